"""PerformanceClassifier: what goes in, what comes out, and what it says to bad input."""

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import accuracy_score, f1_score, fbeta_score, precision_score, roc_auc_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import maxmargin as mm
from maxmargin.structures.performance.estimator import PerformanceClassifier

LOSSES = {
    "f1": {"loss": "f1"},
    "f2": {"loss": "f1", "beta": 2.0},
    "auc": {"loss": "auc"},
    "error": {"loss": "error"},
    "precision@k": {"loss": "precision@k", "k": 60},
    "recall@k": {"loss": "recall@k", "k": 0.3},
    "break-even": {"loss": "break-even"},
}


def data(n=300, seed=0, share=0.15):
    """Few positives, with noise."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, 4))
    scores = X @ [1.0, -1.0, 0.5, 0.0] + 0.5 * random.normal(size=n)
    return X, np.where(scores > np.quantile(scores, 1 - share), "yes", "no")


X, Y = data()


@pytest.mark.parametrize("loss", LOSSES)
def test_it_learns_and_certifies(loss):
    model = PerformanceClassifier(C=1.0, tol=1e-3, **LOSSES[loss]).fit(X, Y)
    assert model.certificate_.relative_gap <= 1e-3
    assert model.status_ == "converged"
    best = {"precision@k": 45 / 60}.get(loss, 1.0)
    assert 0.75 * best < model.score(*data(seed=1)) <= best + 1e-12
    assert_array_equal(model.classes_, ["no", "yes"])
    assert model.pos_label_ == "yes"
    assert set(model.predict(X)) == {"no", "yes"}


@pytest.mark.parametrize("solver", ["auto", "dual-coordinate", "n-slack"])
@pytest.mark.parametrize("loss", ["f1", "auc", "break-even"])
def test_solvers_agree(solver, loss):
    one = PerformanceClassifier(loss=loss, tol=1e-5).fit(X, Y)
    two = PerformanceClassifier(loss=loss, tol=1e-5, solver=solver).fit(X, Y)
    assert one.certificate_.primal == pytest.approx(two.certificate_.primal, rel=2e-5)


def test_plain_frank_wolfe_brackets_the_optimum():
    best = PerformanceClassifier(tol=1e-5).fit(X, Y).certificate_
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = PerformanceClassifier(solver="frank-wolfe", max_iter=300, tol=1e-3).fit(X, Y)
    assert model.certificate_.dual <= best.primal
    assert model.certificate_.primal >= best.dual


def test_errors_are_those_of_the_linear_classifier():
    linear = mm.LinearClassifier(C=0.3, tol=1e-6).fit(X, Y)
    model = PerformanceClassifier(C=0.3, loss="error", tol=1e-6).fit(X, Y)
    assert model.certificate_.primal == pytest.approx(linear.certificate_.primal, rel=2e-6)
    assert_allclose(model.coef_, linear.coef_, atol=2e-3)
    assert_allclose(model.intercept_, linear.intercept_, atol=2e-3)


@pytest.mark.parametrize("loss", LOSSES)
def test_hinge_bounds_what_the_measure_lacks(loss):
    options = LOSSES[loss]
    model = PerformanceClassifier(C=1.0, tol=1e-6, **options).fit(X, Y)
    weights = np.r_[model.coef_[0], model.intercept_ if loss in ("f1", "f2", "error") else 0.0]
    hinge = (model.certificate_.primal - 0.5 * weights @ weights) / len(X)
    best = {"precision@k": 45 / 60}.get(loss, 1.0)
    assert hinge >= best - model.score(X, Y) - 1e-9


def test_scores_are_the_measures():
    test, y_true = data(seed=2)
    by_sklearn = {
        "f1": lambda m: f1_score(y_true, m.predict(test), pos_label="yes"),
        "f2": lambda m: fbeta_score(y_true, m.predict(test), beta=2.0, pos_label="yes"),
        "auc": lambda m: roc_auc_score(y_true, m.decision_function(test)),
        "error": lambda m: accuracy_score(y_true, m.predict(test)),
    }
    for loss, measure in by_sklearn.items():
        model = PerformanceClassifier(tol=1e-3, **LOSSES[loss]).fit(X, Y)
        assert model.score(test, y_true) == pytest.approx(measure(model))
    model = PerformanceClassifier(tol=1e-3, **LOSSES["precision@k"]).fit(X, Y)
    first = np.argsort(-model.decision_function(test))[:60]
    assert model.score(test, y_true) == pytest.approx(np.mean(y_true[first] == "yes"))
    model = PerformanceClassifier(tol=1e-3, **LOSSES["recall@k"]).fit(X, Y)
    first = np.argsort(-model.decision_function(test))[:90]
    assert model.score(test, y_true) == pytest.approx(np.sum(y_true[first] == "yes") / 45)
    model = PerformanceClassifier(tol=1e-3, **LOSSES["break-even"]).fit(X, Y)
    first = np.argsort(-model.decision_function(test))[:45]
    assert model.score(test, y_true) == pytest.approx(np.mean(y_true[first] == "yes"))


def test_f1_is_better_where_positives_are_few():
    rows, y_true = data(2000, share=0.05)
    rows[:, 3] = np.random.default_rng(1).normal(size=2000)
    test = data(4000, seed=3, share=0.05)
    ours = PerformanceClassifier(C=0.1, tol=1e-3).fit(rows, y_true)
    linear = mm.LinearClassifier(C=0.1).fit(rows, y_true)
    of_linear = f1_score(test[1], linear.predict(test[0]), pos_label="yes")
    assert ours.score(*test) >= of_linear


def test_thresholds():
    for loss, called in (("break-even", 45), ("precision@k", 60), ("recall@k", 90)):
        model = PerformanceClassifier(tol=1e-3, **LOSSES[loss]).fit(X, Y)
        assert np.sum(model.predict(X) == "yes") == called
        if loss == "break-even":
            y_true = Y == "yes"
            precision = precision_score(y_true, model.predict(X) == "yes")
            assert model.score(X, Y) == pytest.approx(precision)
    model = PerformanceClassifier(loss="auc", tol=1e-3).fit(X, Y)
    scores = X @ model.coef_[0]
    fewest = min(np.sum((scores > cut) != (Y == "yes")) for cut in [-np.inf, *scores])
    assert np.sum(model.predict(X) != Y) == fewest
    for loss in LOSSES.values():
        model = PerformanceClassifier(fit_intercept=False, tol=1e-3, **loss).fit(X, Y)
        assert model.intercept_[0] == 0.0
        assert_allclose(model.decision_function(X), X @ model.coef_[0])


def test_equal_scores_have_a_threshold():
    rows = np.array([[0.0], [0.0], [1.0], [1.0]])
    model = PerformanceClassifier(loss="auc", tol=1e-3).fit(rows, [0, 0, 1, 1])
    assert_array_equal(model.predict(rows), [0, 0, 1, 1])
    model = PerformanceClassifier(loss="auc", tol=1e-3).fit(rows, [0, 1, 1, 1])
    assert set(model.predict(rows)) <= {0, 1}


def test_the_other_class_may_be_positive():
    flipped = np.where(Y == "yes", "a", "b")
    one = PerformanceClassifier(tol=1e-6).fit(X, Y)
    two = PerformanceClassifier(tol=1e-6, pos_label="a").fit(X, flipped)
    assert_allclose(one.coef_, two.coef_)
    assert_array_equal(one.predict(X) == "yes", two.predict(X) == "a")
    assert one.score(X, Y) == pytest.approx(two.score(X, flipped))


def test_sparse_and_narrow_features_are_the_same_data():
    one = PerformanceClassifier(tol=1e-3).fit(X, Y)
    assert_allclose(
        PerformanceClassifier(tol=1e-3).fit(sp.csr_array(X), Y).coef_, one.coef_, atol=1e-8
    )
    narrow = PerformanceClassifier(tol=1e-3).fit(X.astype(np.float32), Y)
    assert narrow.certificate_.primal == pytest.approx(one.certificate_.primal, rel=2e-3)


def test_warm_start_and_clone():
    warm = PerformanceClassifier(warm_start=True, tol=1e-3).fit(X, Y)
    cold = warm.n_iter_
    assert warm.fit(X, Y).n_iter_ < cold
    assert warm.set_params(C=2.0).fit(X, Y[::-1]).status_ == "converged"
    assert not hasattr(clone(warm), "coef_")


def test_zero_weights_are_said_to_be_no_better():
    random = np.random.default_rng(0)
    y_true = np.arange(200) < 100
    with pytest.warns(UserWarning, match="No weights promise a better precision@k"):
        PerformanceClassifier(loss="precision@k", k=5, tol=1e-3).fit(
            random.normal(size=(200, 2)), y_true
        )


@pytest.mark.parametrize(
    ("options", "y", "match"),
    [
        ({}, ["no"] * 300, "needs two classes, but y holds 1 class"),
        ({}, np.arange(300) % 3, "needs two classes, but y holds 3 classes"),
        ({}, None, "y is None"),
        ({}, Y[:-1], "rows but y has"),
        ({"pos_label": "maybe"}, Y, "pos_label is 'maybe', but y holds 'no' and 'yes'"),
        ({"loss": "precision@k"}, Y, "needs k"),
        ({"loss": "f1", "k": 3}, Y, "takes no k"),
        ({"loss": "precision@k", "k": 300}, Y, "k is 300, which is 300 of 300 rows"),
        ({"loss": "recall@k", "k": 1000}, Y, "k is 1000, which is 1000 of 300 rows"),
        ({"loss": "hamming"}, Y, "'loss' parameter"),
        ({"k": 0}, Y, "'k' parameter"),
        ({"beta": 0.0}, Y, "'beta' parameter"),
    ],
)
def test_bad_input_gets_a_sentence(options, y, match):
    with pytest.raises(ValueError, match=match):
        PerformanceClassifier(tol=1e-3, **options).fit(X, y)


def test_sample_weights_are_refused():
    with pytest.raises(ValueError, match="takes no sample_weight"):
        PerformanceClassifier(tol=1e-3).fit(X, Y, sample_weight=np.ones(300))
    model = PerformanceClassifier(tol=1e-3).fit(X, Y)
    with pytest.raises(ValueError, match="no sample_weight"):
        model.score(X, Y, sample_weight=np.ones(300))


def test_prediction_and_scores_of_bad_data():
    with pytest.raises(NotFittedError):
        PerformanceClassifier(tol=1e-3).predict(X)
    model = PerformanceClassifier(loss="auc", tol=1e-3).fit(X, Y)
    with pytest.raises(ValueError, match="4 features"):
        model.predict(X[:, :3])
    with pytest.raises(ValueError, match="both classes"):
        model.score(X, ["yes"] * 300)
    with pytest.raises(ValueError, match="positive rows"):
        model.score(X, ["no"] * 300)
    with pytest.raises(ValueError, match="rows but y has"):
        model.score(X, Y[:-1])


def test_stopping_early_is_said():
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        model = PerformanceClassifier(max_iter=1, tol=1e-8).fit(X, Y)
    assert model.certificate_.primal >= model.certificate_.dual


WEIGHTED_CHECKS = (
    "check_sample_weights_pandas_series",
    "check_sample_weights_not_an_array",
    "check_sample_weights_list",
    "check_sample_weights_shape",
    "check_sample_weights_not_overwritten",
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
    "check_all_zero_sample_weights_error",
    "check_classifiers_one_label_sample_weights",
)


def refused(estimator):
    return dict.fromkeys(WEIGHTED_CHECKS, "sample_weight is refused: the measures count rows")


@parametrize_with_checks(
    [PerformanceClassifier(max_iter=300, tol=1e-3)], expected_failed_checks=refused
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.skipif(
    not (Path(os.environ.get("MAXMARGIN_DATA", "/nowhere")) / "a9a").exists(),
    reason="MAXMARGIN_DATA holds no a9a",
)
@pytest.mark.slow
def test_a9a():
    from benchmarks.datasets import load

    a9a = load("a9a")
    ours = PerformanceClassifier(C=0.1, tol=1e-3).fit(a9a.X_train, a9a.y_train)
    linear = mm.LinearClassifier(C=0.1).fit(a9a.X_train, a9a.y_train)
    of_linear = f1_score(a9a.y_test, linear.predict(a9a.X_test))
    assert ours.score(a9a.X_test, a9a.y_test) > of_linear + 0.01
