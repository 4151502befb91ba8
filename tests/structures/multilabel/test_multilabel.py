"""MultilabelClassifier: what goes in, what comes out, and what it says to bad input."""

import os
import pickle
from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier

import maxmargin as mm
from maxmargin.structures.multilabel.estimator import MultilabelClassifier

GRAPHS = ("independent", "tree", "full", [(0, 2), (3, 2)])
NAMES = np.array(["beach", "field", "sunset", "urban"])


def examples(n=80, d=5, seed=0):
    """Labels that follow features, and two that come together."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, d))
    Y = X @ random.normal(size=(d, 4)) + 0.5 * random.normal(size=(n, 4)) > 0.3
    Y[:, 2] &= Y[:, 0]
    return X, Y.astype(int)


X, Y = examples()


@pytest.fixture(scope="module", params=GRAPHS, ids=str)
def model(request):
    return MultilabelClassifier(C=0.3, graph=request.param, tol=1e-3).fit(X, Y)


def score_of(model, x, y):
    """Score of a set from the named attributes alone."""
    total = sum(model.coef_[k] @ x + model.intercept_[k] for k in np.flatnonzero(y))
    return total + sum(
        table[y[a], y[b]] for (a, b), table in zip(model.edges_, model.pair_coef_, strict=True)
    )


def ranked(model, x):
    sets = [np.array(y) for y in product([0, 1], repeat=4)]
    return sorted(sets, key=lambda y: -score_of(model, x, y))


def test_it_learns_and_certifies(model):
    assert model.score(X, Y) > 0.5
    assert np.mean(model.predict(X) == Y) > 0.85
    assert model.certificate_.relative_gap <= 1e-3
    assert model.status_ == "converged"
    assert_array_equal(model.classes_, np.arange(4))
    assert model.n_features_in_ == 5


def test_answers_follow_from_the_named_weights(model):
    assert model.pair_coef_.shape == (len(model.edges_), 2, 2)
    predicted, margins = model.predict(X[:20]), model.decision_function(X[:20])
    top = model.predict_k_best(X[:20], 4)
    for x, y, row, best in zip(X[:20], predicted, margins, top, strict=True):
        by_hand = ranked(model, x)
        assert_array_equal(y, by_hand[0])
        assert_array_equal([labels for labels, _ in best], by_hand[:4])
        assert_allclose([score for _, score in best], [score_of(model, x, z) for z in by_hand[:4]])
        for label in range(4):
            on, off = (
                max(score_of(model, x, z) for z in by_hand if z[label] == state) for state in (1, 0)
            )
            assert row[label] == pytest.approx(on - off)


def test_decisions_have_the_sign_of_predictions(model):
    assert_array_equal(model.decision_function(X) > 0, model.predict(X) == 1)


def test_graphs():
    fitted = {str(g): MultilabelClassifier(graph=g, tol=1e-3).fit(X, Y) for g in GRAPHS}
    assert len(fitted["independent"].edges_) == 0
    assert len(fitted["tree"].edges_) == 3
    assert [0, 2] in fitted["tree"].edges_.tolist()
    assert_array_equal(fitted["full"].edges_, list(combinations(range(4), 2)))
    assert_array_equal(fitted[str(GRAPHS[3])].edges_, [[0, 2], [2, 3]])
    primal = {name: m.certificate_.primal for name, m in fitted.items()}
    assert primal["full"] < primal["tree"] < primal["independent"]


def test_independent_labels_with_hamming_loss_are_binary_problems():
    """The hinge of a set is the sum of the hinges of its labels."""
    model = MultilabelClassifier(C=0.5, graph="independent", tol=1e-6).fit(X, Y)
    binary = OneVsRestClassifier(mm.LinearClassifier(C=0.5, tol=1e-6)).fit(X, Y)
    primal = sum(part.certificate_.primal for part in binary.estimators_)
    assert model.certificate_.primal == pytest.approx(primal, rel=1e-5)
    assert_allclose(model.coef_, np.vstack([p.coef_ for p in binary.estimators_]), atol=5e-3)


def test_forms_of_input_are_the_same_data():
    first = MultilabelClassifier(tol=1e-4).fit(X, Y)
    sets = [set(NAMES[row == 1].tolist()) for row in Y]
    forms = {
        "bool": (X, Y.astype(bool)),
        "lists": (X.tolist(), Y.tolist()),
        "sparse": (sp.csr_matrix(X), sp.csr_matrix(Y)),
        "frames": (pd.DataFrame(X), pd.DataFrame(Y, columns=NAMES)),
        "sets": (X, sets),
        "frozen": (X, tuple(frozenset(labels) for labels in sets)),
        "series": (X, pd.Series(sets)),
        "strings": (X, [sorted(labels) for labels in sets]),
        "numbers": (X, [set(np.flatnonzero(row).tolist()) for row in Y]),
    }
    for name, (inputs, labels) in forms.items():
        other = MultilabelClassifier(tol=1e-4).fit(inputs, labels)
        assert other.certificate_.primal == pytest.approx(first.certificate_.primal, rel=2e-4)
        assert other.score(inputs, labels) == pytest.approx(first.score(X, Y), abs=0.03)
        expected = np.arange(4) if name in ("bool", "lists", "sparse", "numbers") else NAMES
        assert_array_equal(other.classes_, expected)
        if name in ("sets", "frozen", "series", "strings"):
            answer = other.predict(X)
            assert all(isinstance(labels, set) for labels in answer)
            assert np.mean([a == b for a, b in zip(answer, sets, strict=True)]) > 0.5


def test_pairs_may_be_named():
    sets = [set(NAMES[row == 1].tolist()) for row in Y]
    model = MultilabelClassifier(graph=[("urban", "beach")], tol=1e-3).fit(X, sets)
    assert_array_equal(model.edges_, [[0, 3]])


def test_labels_never_seen_are_mistakes():
    sets = [set(NAMES[row == 1].tolist()) for row in Y]
    model = MultilabelClassifier(tol=1e-3).fit(X, sets)
    assert model.score(X, [labels | {"new"} for labels in sets]) == 0.0


def test_single_precision():
    double = MultilabelClassifier(tol=1e-5).fit(X, Y)
    single = MultilabelClassifier(tol=1e-5).fit(X.astype(np.float32), Y)
    assert single.certificate_.primal == pytest.approx(double.certificate_.primal, rel=1e-4)
    assert single.coef_.dtype == np.float64


@pytest.mark.parametrize("loss", ["hamming", "f1", "zero-one"])
@pytest.mark.parametrize("rescaling", ["margin", "slack"])
def test_losses_bound_what_is_lost(loss, rescaling):
    model = MultilabelClassifier(graph="full", loss=loss, rescaling=rescaling, tol=1e-3).fit(X, Y)
    norm = np.sum(model.coef_**2) + np.sum(model.intercept_**2) + np.sum(model.pair_coef_**2)
    hinges = model.certificate_.primal - 0.5 * norm
    lost = 0.0
    for y_true, found in zip(Y, model.predict(X), strict=True):
        wrong = np.sum(y_true != found)
        sizes = max(y_true.sum() + found.sum(), 1)
        lost += {"hamming": wrong, "f1": wrong / sizes, "zero-one": float(wrong > 0)}[loss]
    assert lost <= hinges + 1e-9


@pytest.mark.parametrize("solver", ["auto", "dual-coordinate", "n-slack", "one-slack"])
def test_solvers_agree(solver):
    first = MultilabelClassifier(C=0.3, loss="f1", tol=1e-3).fit(X, Y)
    other = MultilabelClassifier(C=0.3, loss="f1", solver=solver, tol=1e-4).fit(X, Y)
    assert other.certificate_.dual <= first.certificate_.primal
    assert other.certificate_.primal == pytest.approx(first.certificate_.primal, rel=1.1e-3)


@pytest.mark.parametrize("graph", GRAPHS[:3])
def test_threads_do_not_change_the_answer(graph):
    one = MultilabelClassifier(graph=graph, tol=1e-3).fit(X, Y)
    two = clone(one).set_params(n_jobs=2).fit(X, Y)
    assert_array_equal(two.coef_, one.coef_)
    assert_array_equal(two.predict(X), one.predict(X))


def test_warm_start_and_weights():
    model = MultilabelClassifier(warm_start=True, tol=1e-4).fit(X, Y)
    first = model.history_[-1].oracle_calls
    assert model.fit(X, Y).history_[-1].oracle_calls < first / 2
    weights = np.arange(len(X)) % 3
    weighted = MultilabelClassifier(tol=1e-5).fit(X, Y, sample_weight=weights)
    repeated = MultilabelClassifier(tol=1e-5, graph=weighted.edges_)
    repeated.fit(np.repeat(X, weights, axis=0), np.repeat(Y, weights, axis=0))
    assert weighted.certificate_.primal == pytest.approx(repeated.certificate_.primal, rel=3e-5)


def test_warm_start_with_other_labels_starts_anew():
    model = MultilabelClassifier(warm_start=True, graph="independent", tol=1e-3).fit(X, Y)
    model.fit(X, Y[:, :3])
    cold = MultilabelClassifier(graph="independent", tol=1e-3).fit(X, Y[:, :3])
    assert_array_equal(model.coef_, cold.coef_)


def test_tools_of_scikit_learn():
    assert cross_val_score(MultilabelClassifier(C=0.3, tol=1e-3), X, Y, cv=3).min() > 0.3
    infer = GridSearchCV(
        MultilabelClassifier(tol=1e-3), {"C": [1e-4, 0.3], "graph": ["tree"]}, cv=3
    )
    assert infer.fit(X, Y).best_params_["C"] == 0.3
    twin = pickle.loads(pickle.dumps(infer.best_estimator_))
    assert_array_equal(twin.predict(X), infer.predict(X))


def test_one_label_and_labels_that_are_always_or_never_on():
    Z = np.zeros((80, 3), dtype=int)
    Z[:, 1] = 1
    model = MultilabelClassifier(C=10.0, tol=1e-3).fit(X, Z)
    assert model.score(X, Z) == 1.0
    assert MultilabelClassifier(tol=1e-3).fit(X, Y[:, :1]).predict(X).shape == (80, 1)


def test_early_stops_keep_the_best_and_warn():
    with pytest.warns(ConvergenceWarning, match="max_iter=1 iterations") as caught:
        model = MultilabelClassifier(C=100.0, max_iter=1, tol=1e-8).fit(X, Y)
    assert caught[0].filename == __file__
    assert model.certificate_.primal >= model.certificate_.dual


BAD = {
    "one column": ((X, Y[:, 0]), {}, r"has the shape \(80,\)"),
    "no column": ((X, Y[:, :0]), {}, r"has the shape \(80, 0\)"),
    "a two": ((X, Y + 1), {}, r"y\[0, \d\] is 2, but must be 0 or 1"),
    "a half": ((X, Y * 0.5), {}, "is 0.5, but must be 0 or 1"),
    "ragged": ((X, [[0, 1]] * 79 + [[0]]), {}, "matrix of zeros and ones"),
    "None": ((X, None), {}, "matrix of zeros and ones"),
    "rows": ((X[:-1], Y), {}, "X has 79 rows but y has 80"),
    "NaN": ((np.where(X[3, 2] == X, np.nan, X), Y), {}, "NaN .* row 3, column 2"),
    "not a set": ((X, [{"a"}] * 79 + ["b"]), {}, r"y\[79\] is 'b', but must be a set"),
    "all empty": ((X, [set()] * 80), {}, "All sets in y are empty"),
    "mixed": ((X, [{"a"}] * 79 + [{1}]), {}, "y mixes numbers and strings, such as"),
    "graph of triples": ((X, Y), {"graph": [(0, 1, 2)]}, r"pairs of labels, but holds \[0, 1, 2\]"),
    "unknown pair": ((X, Y), {"graph": [(0, 9)]}, "graph names 9, which is no label of y"),
    "pair with itself": ((X, Y), {"graph": [(1, 1)]}, "a label with itself"),
    "pair twice": ((X, Y), {"graph": [(0, 1), (1, 0)]}, "a pair for the second time"),
    "unknown graph": ((X, Y), {"graph": "ring"}, "'graph' parameter"),
    "unknown loss": ((X, Y), {"loss": "jaccard"}, "'loss' parameter"),
    "too many": ((X, np.tile(Y, 5)), {"graph": "full"}, "at most 18 labels, but there are 20"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_a_sentence(name):
    arguments, options, message = BAD[name]
    with pytest.raises(ValueError, match=message) as caught:
        MultilabelClassifier(tol=1e-3, **options).fit(*arguments)
    assert "\n" not in str(caught.value)


def test_bad_questions_get_a_sentence(model):
    with pytest.raises(NotFittedError):
        MultilabelClassifier(tol=1e-3).predict(X)
    with pytest.raises(ValueError, match="4 features"):
        model.predict(X[:, :4])
    with pytest.raises(ValueError, match="k must be at least 1"):
        model.predict_k_best(X, 0)
    with pytest.raises(ValueError, match=r"y has the shape \(80, 3\).* must have \(80, 4\)"):
        model.score(X, Y[:, :3])


@pytest.mark.slow
@pytest.mark.skipif("MAXMARGIN_DATA" not in os.environ, reason="needs the real data")
def test_scene():
    """Pairs help: more sets are right as a whole."""
    data = np.load(os.path.join(os.environ["MAXMARGIN_DATA"], "scene", "scene.npz"))
    scores = [
        MultilabelClassifier(C=0.1, graph=graph, tol=1e-3)
        .fit(data["X_train"], data["y_train"])
        .score(data["X_test"], data["y_test"])
        for graph in ("independent", "full")
    ]
    assert scores[1] > scores[0] + 0.05
