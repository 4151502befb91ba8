"""OrdinalClassifier: what goes in, what comes out, and what it says to bad input."""

import gzip
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

import maxmargin as mm
from maxmargin.structures.ordinal.estimator import OrdinalClassifier

ORDER = ["never", "rarely", "often", "always"]


def examples(n=120, d=4, seed=0):
    """Four classes along one direction, with noise."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, d))
    along = X @ random.normal(size=d) + 0.3 * random.normal(size=n)
    return X, np.digitize(along, [-1.5, 0.0, 1.5])


X, y = examples()


@pytest.fixture(scope="module")
def model():
    return OrdinalClassifier(tol=1e-3).fit(X, y)


def test_it_learns_and_certifies(model):
    assert model.score(X, y) > -0.2
    assert np.mean(model.predict(X) == y) > 0.8
    assert model.certificate_.relative_gap <= 1e-3
    assert_array_equal(model.classes_, np.arange(4))


def test_answers_follow_from_the_named_weights(model):
    along = X @ model.coef_
    expected = np.cumsum(along[:, None] - model.thresholds_, axis=1)
    expected = np.hstack([np.zeros((len(X), 1)), expected])
    assert_allclose(model.decision_function(X), expected)
    assert_array_equal(model.predict(X), expected.argmax(axis=1))
    assert (np.diff(model.thresholds_) > 0.0).all()
    assert_array_equal(model.predict(X), (along[:, None] > model.thresholds_).sum(axis=1))


def test_it_bounds_what_is_lost(model):
    norm = np.sum(model.coef_**2) + np.sum(model.thresholds_**2)
    hinges = model.certificate_.primal - 0.5 * norm
    assert np.abs(model.predict(X) - y).sum() <= hinges + 1e-9


def test_names_in_their_order():
    named = OrdinalClassifier(classes=ORDER, tol=1e-3).fit(X, np.array(ORDER)[y])
    numbers = OrdinalClassifier(tol=1e-3).fit(X, y)
    assert_array_equal(named.coef_, numbers.coef_)
    assert_array_equal(named.predict(X), np.array(ORDER)[numbers.predict(X)])
    assert named.score(X, np.array(ORDER)[y]) == numbers.score(X, y)
    backwards = OrdinalClassifier(classes=ORDER[::-1], tol=1e-6).fit(X, np.array(ORDER)[y])
    assert backwards.certificate_.primal == pytest.approx(numbers.certificate_.primal, rel=2e-3)


def test_classes_without_examples():
    """Their thresholds lie together, unless there is room between the neighbours."""
    model = OrdinalClassifier(classes=[0, 1, 2, 3, 4, 5, 6], tol=1e-5).fit(X, y + (y > 1))
    assert len(model.thresholds_) == 6
    assert (np.diff(model.thresholds_) > -0.02).all()
    assert model.score(X, y + (y > 1)) > -0.3


def test_losses():
    squared = OrdinalClassifier(loss="squared", tol=1e-3).fit(X, y)
    by_hand = OrdinalClassifier(loss=(np.arange(4)[:, None] - np.arange(4)) ** 2, tol=1e-3).fit(
        X, y
    )
    assert_array_equal(squared.coef_, by_hand.coef_)
    assert_array_equal(squared.loss_matrix_[0], [0, 1, 4, 9])
    named = OrdinalClassifier(classes=ORDER, loss={("never", "always"): 7.0}, tol=1e-3)
    assert named.fit(X, np.array(ORDER)[y]).loss_matrix_[0].tolist() == [0, 1, 1, 7]
    slack = OrdinalClassifier(rescaling="slack", tol=1e-3).fit(X, y)
    assert slack.score(X, y) > -0.3


def test_two_classes_are_the_binary_hinge():
    """The threshold is minus the intercept."""
    two = (y > 1).astype(int)
    ordinal = OrdinalClassifier(tol=1e-7).fit(X, two)
    binary = mm.LinearClassifier(tol=1e-7).fit(X, two)
    assert ordinal.certificate_.primal == pytest.approx(binary.certificate_.primal, rel=1e-6)
    assert_allclose(ordinal.coef_, binary.coef_[0], atol=1e-3)
    assert_allclose(ordinal.decision_function(X), binary.decision_function(X), atol=1e-2)


@pytest.mark.parametrize("solver", ["dual-coordinate", "n-slack", "one-slack"])
def test_solvers_agree(solver, model):
    other = OrdinalClassifier(solver=solver, tol=1e-4).fit(X, y)
    assert other.certificate_.dual <= model.certificate_.primal
    assert other.certificate_.primal == pytest.approx(model.certificate_.primal, rel=1.1e-3)


def test_sparse_rows_threads_and_pickles(model):
    other = OrdinalClassifier(tol=1e-4, n_jobs=2).fit(sp.csr_matrix(X), y)
    assert other.certificate_.primal == pytest.approx(model.certificate_.primal, rel=1.1e-3)
    two = clone(model).set_params(n_jobs=2).fit(X, y)
    assert_array_equal(two.coef_, model.coef_)
    twin = pickle.loads(pickle.dumps(model))
    assert_array_equal(twin.predict(sp.csr_array(X)), model.predict(X))


def test_grid_search():
    infer = GridSearchCV(OrdinalClassifier(tol=1e-3), {"C": [1e-4, 1.0]}, cv=3).fit(X, y)
    assert infer.best_params_ == {"C": 1.0}


BAD = {
    "one class": ((X, np.ones(120)), {}, "only one class"),
    "rows": ((X, y[:-1]), {}, "120 rows but y has 119"),
    "no target": ((X, None), {}, "requires y"),
    "continuous": ((X, X[:, 0]), {}, "continuous"),
    "missing class": ((X, y), {"classes": [0, 1, 2]}, r"y\[\d+\] is 3, which is not among"),
    "repeated": ((X, y), {"classes": [0, 1, 2, 3, 1]}, "lists 1 more than once"),
    "not a list": ((X, y), {"classes": [[0, 1], [2, 3]]}, "classes must be a list"),
    "loss matrix": ((X, y), {"loss": np.ones((4, 4))}, "must cost nothing"),
    "unknown loss": ((X, y), {"loss": "cubic"}, "'loss' parameter"),
    "NaN": ((np.full_like(X, np.nan), y), {}, "NaN .* row 0, column 0"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_a_sentence(name):
    arguments, options, message = BAD[name]
    with pytest.raises(ValueError, match=message) as caught:
        OrdinalClassifier(tol=1e-3, **options).fit(*arguments)
    assert "\n" not in str(caught.value)


def test_scores_of_unknown_classes(model):
    with pytest.raises(ValueError, match="not among the classes"):
        model.score(X, y + 1)


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
    [OrdinalClassifier(max_iter=100, tol=1e-3)], expected_failed_checks=lambda _: TOO_FINE
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_sample_weight_is_repetition():
    weights = np.arange(len(X)) % 3
    weighted = OrdinalClassifier(tol=1e-5).fit(X, y, sample_weight=weights)
    repeated = OrdinalClassifier(tol=1e-5).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    assert weighted.certificate_.primal == pytest.approx(repeated.certificate_.primal, rel=3e-5)


@pytest.mark.skipif("MAXMARGIN_DATA" not in os.environ, reason="needs the real data")
def test_abalone():
    """Closer than an answer of the median, by far."""
    path = Path(os.environ["MAXMARGIN_DATA"], "abalone", "abalone.data.gz")
    lines = gzip.decompress(path.read_bytes()).decode().split()
    values = np.array([line.split(",")[1:] for line in lines], dtype=float)
    measures, rings = values[:, :-1], values[:, -1].astype(int)
    model = OrdinalClassifier(classes=np.arange(1, 30), tol=1e-2).fit(measures[:3133], rings[:3133])
    error = np.abs(model.predict(measures[3133:]) - rings[3133:]).mean()
    assert error < 0.8 * np.abs(np.median(rings) - rings[3133:]).mean()
