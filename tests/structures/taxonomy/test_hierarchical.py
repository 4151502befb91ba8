"""HierarchicalClassifier: what goes in, what comes out, and what it says to bad input."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import KFold, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import maxmargin as mm
from maxmargin.structures.taxonomy.estimator import HierarchicalClassifier

CLASSES = np.array(["a.x", "a.y", "b.x", "b.y", "b.z"])


def examples(n=150, d=6, seed=0):
    """Classes in two groups, which are easier to tell than the classes."""
    random = np.random.default_rng(seed)
    groups, single = 2.0 * random.normal(size=(2, d)), random.normal(size=(5, d))
    numbers = random.integers(0, 5, n)
    centres = groups[(numbers > 1).astype(int)] + single[numbers]
    return centres + random.normal(size=(n, d)), CLASSES[numbers]


X, y = examples()


@pytest.fixture(scope="module")
def model():
    return HierarchicalClassifier(C=0.1, tol=1e-3).fit(X, y)


def test_it_learns_and_certifies(model):
    assert model.score(X, y) > 0.6
    assert model.certificate_.relative_gap <= 1e-3
    assert_array_equal(model.classes_, CLASSES)
    assert model.nodes_ == ["a", "a.x", "a.y", "b", "b.x", "b.y", "b.z"]
    assert_array_equal(model.parents_, [-1, 0, 0, -1, 3, 3, 3])


def test_answers_follow_from_the_named_weights(model):
    scores = X @ model.coef_.T + model.intercept_
    assert_allclose(model.decision_function(X), scores)
    assert_array_equal(model.predict(X), CLASSES[scores.argmax(axis=1)])
    at = dict(zip(model.nodes_, model.node_coef_, strict=True))
    for name, row in zip(CLASSES, model.coef_, strict=True):
        assert_allclose(row, at[name[0]] + at[name])


def test_the_loss_is_the_path_and_is_bounded(model):
    expected = [[2 * (a != b) + 2 * (a[0] != b[0]) for b in CLASSES] for a in CLASSES]
    assert_array_equal(model.loss_matrix_, expected)
    numbers = {name: k for k, name in enumerate(CLASSES)}
    lost = sum(
        model.loss_matrix_[numbers[a], numbers[b]] for a, b in zip(y, model.predict(X), strict=True)
    )
    assert model.C * lost <= model.certificate_.primal


def test_a_flat_taxonomy_is_crammer_singer():
    flat = HierarchicalClassifier(C=0.1, taxonomy=dict.fromkeys(CLASSES), tol=1e-6).fit(X, y)
    classes = 2.0 * (1.0 - np.eye(5))
    linear = mm.LinearClassifier(C=0.1, loss_matrix=classes, tol=1e-6).fit(X, y)
    assert flat.certificate_.primal == pytest.approx(linear.certificate_.primal, rel=1e-5)
    assert_allclose(flat.coef_, linear.coef_, atol=5e-3)


def test_losses():
    zero_one = HierarchicalClassifier(loss="zero-one", tol=1e-3).fit(X, y)
    assert_array_equal(zero_one.loss_matrix_, 1.0 - np.eye(5))
    named = HierarchicalClassifier(loss={("a.x", "a.y"): 0.5}, tol=1e-3).fit(X, y)
    assert named.loss_matrix_[0].tolist() == [0, 0.5, 1, 1, 1]
    lengths = HierarchicalClassifier(edge_lengths={"a": 2.0, "nothing": 1.0}, tol=1e-3).fit(X, y)
    assert lengths.loss_matrix_[0].tolist() == [0, 2, 5, 5, 5]
    slack = HierarchicalClassifier(rescaling="slack", C=0.1, tol=1e-3).fit(X, y)
    assert slack.score(X, y) > 0.5


def test_forms_of_a_taxonomy(model):
    nested = {"a": ["a.x", "a.y"], "b": {"b.x": {}, "b.y": {}, "b.z": {}}}
    parents = {name: name[0] for name in CLASSES}
    for taxonomy in (nested, parents, CLASSES.tolist(), CLASSES):
        other = HierarchicalClassifier(C=0.1, taxonomy=taxonomy, tol=1e-3).fit(X, y)
        assert_array_equal(other.coef_, model.coef_)


@pytest.mark.parametrize("solver", ["dual-coordinate", "n-slack", "one-slack"])
def test_solvers_agree(solver, model):
    other = clone(model).set_params(solver=solver, tol=1e-4).fit(X, y)
    assert other.certificate_.dual <= model.certificate_.primal
    assert other.certificate_.primal == pytest.approx(model.certificate_.primal, rel=1.1e-3)


def test_sparse_rows_threads_and_pickles(model):
    sparse = clone(model).set_params(tol=1e-4).fit(sp.csr_matrix(X), y)
    assert sparse.certificate_.primal == pytest.approx(model.certificate_.primal, rel=1.1e-3)
    two = clone(model).set_params(n_jobs=2).fit(X, y)
    assert_array_equal(two.coef_, model.coef_)
    twin = pickle.loads(pickle.dumps(model))
    assert_array_equal(twin.predict(sp.csr_array(X)), model.predict(X))


def test_without_intercepts():
    model = HierarchicalClassifier(fit_intercept=False, tol=1e-3).fit(X, y)
    assert not model.intercept_.any()
    assert_allclose(model.decision_function(X), X @ model.coef_.T)


def test_a_class_may_be_missing_from_a_fold():
    order = np.argsort(y, kind="stable")
    scores = cross_val_score(
        HierarchicalClassifier(tol=1e-2), X[order], y[order], cv=KFold(5), error_score="raise"
    )
    assert len(scores) == 5


BAD = {
    "one class": ((X, np.full(150, "a")), {}, "only one class"),
    "unknown class": ((X, y), {"taxonomy": {"a.x": "a"}}, "class 'a.y' is not in the taxonomy"),
    "circle": ((X, y), {"taxonomy": dict.fromkeys(CLASSES, "p") | {"p": "q", "q": "p"}}, "cycle"),
    "two parents": (
        (X, y),
        {"taxonomy": {"a": CLASSES.tolist(), "b": ["a.x"]}},
        "two parents",
    ),
    "a word": ((X, y), {"taxonomy": "tree"}, "'taxonomy' parameter"),
    "lengths of another loss": (
        (X, y),
        {"loss": "zero-one", "edge_lengths": {"a": 2.0}},
        "edge_lengths are for loss='tree'",
    ),
    "negative length": ((X, y), {"edge_lengths": {"a": -2.0}}, "edge above 'a'"),
    "NaN": ((np.full_like(X, np.nan), y), {}, "NaN .* row 0, column 0"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_a_sentence(name):
    arguments, options, message = BAD[name]
    with pytest.raises(ValueError, match=message) as caught:
        HierarchicalClassifier(tol=1e-3, **options).fit(*arguments)
    assert "\n" not in str(caught.value)


# These compare fits to seven digits; see `test_sample_weight_is_repetition` instead.
TOO_FINE = dict.fromkeys(
    (
        "check_sample_weight_equivalence_on_dense_data",
        "check_sample_weight_equivalence_on_sparse_data",
    ),
    "asks for a smaller gap",
)


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [HierarchicalClassifier(max_iter=100, tol=1e-3)], expected_failed_checks=lambda _: TOO_FINE
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_sample_weight_is_repetition():
    weights = np.arange(len(X)) % 3
    weighted = HierarchicalClassifier(tol=1e-5).fit(X, y, sample_weight=weights)
    repeated = HierarchicalClassifier(tol=1e-5).fit(
        np.repeat(X, weights, axis=0), np.repeat(y, weights)
    )
    assert weighted.certificate_.primal == pytest.approx(repeated.certificate_.primal, rel=3e-5)
