"""Ranker: what goes in, what comes out, and what it says to bad input."""

import warnings
from itertools import permutations, product

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import roc_auc_score

from maxmargin.structures.ranking.estimator import Ranker
from maxmargin.structures.ranking.predictor import query_rows
from maxmargin.structures.ranking.problem import Ranking, RankingProblem, average_precision, ndcg

LOSSES = {
    "pairwise": {"loss": "pairwise"},
    "ndcg": {"loss": "ndcg"},
    "ndcg@5": {"loss": "ndcg", "k": 5},
    "map": {"loss": "map"},
    "auc": {"loss": "auc"},
    "precision@k": {"loss": "precision@k", "k": 3},
}


def queries(n=30, d=5, seed=0, noise=0.5):
    """Lists of 5 to 20 documents whose relevance follows a linear score."""
    random = np.random.default_rng(seed)
    w = random.normal(size=d)
    X, y, groups = [], [], []
    for q in range(n):
        size = int(random.integers(5, 21))
        rows = random.normal(size=(size, d))
        scores = rows @ w + noise * random.normal(size=size) + random.normal()
        X.append(rows)
        y.append(np.digitize(scores - scores.mean(), [0.5, 2.0]))
        groups += [f"q{q}"] * size
    return np.concatenate(X), np.concatenate(y), np.array(groups)


X, Y, GROUPS = queries()


def quiet(model, *data, **options):
    """Fit without the note on queries left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return model.fit(*data, **options)


@pytest.fixture(scope="module")
def model():
    return quiet(Ranker(C=10.0, tol=1e-3), X, Y, GROUPS)


@pytest.mark.parametrize("loss", LOSSES)
def test_it_learns_and_certifies(loss):
    model = quiet(Ranker(C=10.0, tol=1e-3, **LOSSES[loss]), X, Y, GROUPS)
    assert model.certificate_.relative_gap <= 1e-3
    assert model.status_ == "converged"
    test = queries(seed=0, noise=0.0)
    assert model.score(*test) > 0.9
    assert model.n_queries_ + model.n_left_out_ == 30


@pytest.mark.parametrize("solver", ["dual-coordinate", "n-slack", "one-slack"])
@pytest.mark.parametrize("loss", ["pairwise", "map"])
def test_solvers_agree(solver, loss):
    one = quiet(Ranker(loss=loss, tol=1e-5), X, Y, GROUPS)
    two = quiet(Ranker(loss=loss, tol=1e-5, solver=solver), X, Y, GROUPS)
    assert one.certificate_.primal == pytest.approx(two.certificate_.primal, rel=2e-5)


def test_scores_orders_and_measure(model):
    scores = model.predict(X)
    assert_allclose(scores, X @ model.coef_)
    assert_array_equal(scores, model.decision_function(X))
    orders = model.rank(X, GROUPS)
    assert len(orders) == 30
    for order, query in zip(orders, dict.fromkeys(GROUPS), strict=True):
        assert_array_equal(np.sort(order), np.flatnonzero(query == GROUPS))
        assert (np.diff(scores[order]) <= 0).all()
    by_hand = [ndcg(Y[order], -np.arange(len(order)), 10) for order in orders]
    assert model.score(X, Y, GROUPS) == pytest.approx(np.mean(by_hand))


def test_forms_of_groups_are_the_same_queries(model):
    sizes = [int(np.sum(query == GROUPS)) for query in dict.fromkeys(GROUPS)]
    by_size = quiet(Ranker(C=10.0, tol=1e-3), X, Y, sizes)
    assert_array_equal(by_size.coef_, model.coef_)
    shuffle = np.random.default_rng(0).permutation(len(X))
    back = np.argsort(shuffle)
    scattered = quiet(Ranker(C=10.0, tol=1e-6), X[shuffle], Y[shuffle], GROUPS[shuffle])
    plain = quiet(Ranker(C=10.0, tol=1e-6), X, Y, GROUPS)
    assert scattered.certificate_.primal == pytest.approx(plain.certificate_.primal, rel=2e-6)
    assert scattered.score(X[shuffle], Y[shuffle], GROUPS[shuffle]) == pytest.approx(
        scattered.score(X, Y, GROUPS)
    )
    for order in scattered.rank(X[shuffle], GROUPS[shuffle]):
        assert len(set(GROUPS[shuffle][order])) == 1
    assert_allclose(scattered.predict(X[shuffle])[back], scattered.predict(X))


def test_sparse_and_narrow_features_are_the_same_data(model):
    sparse = quiet(Ranker(C=10.0, tol=1e-3), sp.csr_matrix(X), Y, GROUPS)
    assert_allclose(sparse.coef_, model.coef_, atol=1e-8)
    narrow = quiet(Ranker(C=10.0, tol=1e-3), X.astype(np.float32), Y, GROUPS)
    assert narrow.certificate_.primal == pytest.approx(model.certificate_.primal, rel=2e-3)


def test_threads_and_seeds(model):
    again = quiet(Ranker(C=10.0, n_jobs=2, tol=1e-3), X, Y, GROUPS)
    assert_array_equal(again.coef_, model.coef_)


def test_weights_of_queries():
    weights = np.zeros(30)
    weights[:10] = 2.0
    some = np.isin(GROUPS, [f"q{q}" for q in range(10)])
    weighted = quiet(Ranker(C=1.0, tol=1e-6), X, Y, GROUPS, sample_weight=weights)
    alone = quiet(Ranker(C=2.0, tol=1e-6), X[some], Y[some], GROUPS[some])
    assert_allclose(weighted.coef_, alone.coef_, atol=1e-3)


def test_warm_start_and_clone(model):
    warm = quiet(Ranker(C=10.0, warm_start=True, tol=1e-3), X, Y, GROUPS)
    cold = warm.n_iter_
    quiet(warm, X, Y, GROUPS)
    assert warm.n_iter_ <= cold
    quiet(warm, X, Y[::-1], GROUPS)  # other relevance: the old outputs may not fit
    assert warm.status_ == "converged"
    assert not hasattr(clone(warm), "coef_")


def test_auc_is_what_sklearn_measures():
    random = np.random.default_rng(0)
    rows = random.normal(size=(80, 3))
    y_true = (rows[:, 0] + random.normal(size=80) > 0).astype(int)
    model = Ranker(loss="auc", C=100.0, tol=1e-3).fit(rows, y_true, np.zeros(80))
    lacking = 1.0 - roc_auc_score(y_true, model.predict(rows))
    hinge = (model.certificate_.primal - 0.5 * model.coef_ @ model.coef_) / 100.0
    assert lacking <= hinge + 1e-9


def test_queries_that_tell_nothing_are_counted():
    groups = np.array([0, 0, 0, 1, 2, 2, 3, 3])
    y = [1, 0, 2, 1, 1, 1, 0, 0]
    rows = np.random.default_rng(0).normal(size=(8, 2))
    with pytest.warns(UserWarning, match="3 of 4 queries are left out"):
        model = Ranker(tol=1e-3).fit(rows, y, groups)
    assert (model.n_queries_, model.n_left_out_) == (1, 3)
    alone = Ranker(tol=1e-3).fit(rows[:3], y[:3], groups[:3])
    assert_allclose(model.coef_, alone.coef_)
    assert 0.0 <= model.score(rows, y, groups) <= 1.0
    with pytest.raises(ValueError, match="None of the 3 queries"):
        Ranker(tol=1e-3).fit(rows[3:], y[3:], groups[3:])
    with pytest.raises(ValueError, match="None of the 1 queries"):
        Ranker(loss="precision@k", k=50, tol=1e-3).fit(rows[:3], y[:3], groups[:3])
    # More places than documents are all of them.
    cut = Ranker(loss="ndcg", k=50, tol=1e-3).fit(rows[:3], y[:3], groups[:3])
    assert_allclose(cut.coef_, Ranker(loss="ndcg", tol=1e-3).fit(rows[:3], y[:3], groups[:3]).coef_)


@pytest.mark.parametrize(
    ("data", "match"),
    [
        ((X, Y, GROUPS[:-1]), "groups"),
        ((X, Y, None), "needs groups"),
        ((X, Y, np.zeros((len(X), 1))), "groups must be a list"),
        ((X, Y, [3, 4]), "add up to"),
        ((X, Y, [len(X) + 1, -1]), "add up to"),
        ((X, Y, np.full(len(X), np.nan)), r"groups\[0\] is NaN"),
        ((X, -Y - 1, GROUPS), "relevance must be from 0"),
        ((X, np.where(np.arange(len(Y)) == 3, np.nan, Y), GROUPS), r"y\[3\] is nan"),
        ((X, np.full(len(Y), 2000), GROUPS), r"y\[0\] is 2000.0"),
        ((X, Y[:-1], GROUPS), "rows but y has"),
        ((X, None, GROUPS), "y is None"),
        ((X, [Y, Y], GROUPS), "y"),
        ((np.where(np.arange(len(X))[:, None] == 2, np.nan, X), Y, GROUPS), "X has NaN"),
    ],
)
def test_bad_input_gets_a_sentence(data, match):
    with pytest.raises(ValueError, match=match):
        Ranker(tol=1e-3).fit(*data)


def test_bad_parameters():
    with pytest.raises(ValueError, match="'loss' parameter"):
        Ranker(loss="dcg", tol=1e-3).fit(X, Y, GROUPS)
    with pytest.raises(ValueError, match="needs k"):
        Ranker(loss="precision@k", tol=1e-3).fit(X, Y, GROUPS)
    with pytest.raises(ValueError, match="k is for"):
        Ranker(loss="map", k=3, tol=1e-3).fit(X, Y, GROUPS)
    with pytest.raises(ValueError, match="sample_weight must hold"):
        Ranker(tol=1e-3).fit(X, Y, GROUPS, sample_weight=np.ones(7))


def test_prediction_wants_the_same_features(model):
    with pytest.raises(NotFittedError):
        Ranker(tol=1e-3).predict(X)
    with pytest.raises(ValueError, match="5 features"):
        model.predict(X[:, :3])
    with pytest.raises(ValueError, match="rows but y has"):
        model.score(X, Y[:-1], GROUPS)


def test_stopping_early_is_said():
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        model = Ranker(C=1000.0, tol=1e-8, max_iter=1).fit(X, Y, GROUPS)
    assert model.certificate_.primal >= model.certificate_.dual


def test_query_rows_keep_the_order_of_appearance():
    rows = query_rows([7, 3, 7, 7, 1, 3], 6)
    assert [part.tolist() for part in rows] == [[0, 2, 3], [1, 5], [4]]


def test_measures_of_letor():
    # By hand: gains 3, 0, 1 at the places 1, 2, 3; the third counts 1 / log2(3).
    assert ndcg([0, 1, 2], [2.0, 1.0, 3.0]) == pytest.approx((3 + 1 / np.log2(3)) / 4)
    assert ndcg([0, 0], [1.0, 2.0], 10) == 0.0
    assert average_precision([0, 2, 1], [3.0, 2.0, 1.0]) == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert average_precision([0, 0], [1.0, 2.0]) == 0.0


@pytest.mark.diagonal
@pytest.mark.parametrize("loss", ["pairwise", "auc"])
@pytest.mark.parametrize("C", [0.3, 3.0])
@pytest.mark.parametrize("n_levels", [2, 3])
def test_slack_rescaling_of_pairs_against_all_outputs(loss, C, n_levels):
    """The certificate encloses the least value of the objective over all rankings."""
    random = np.random.default_rng(n_levels)
    problem = RankingProblem(loss)
    X = random.normal(size=(3, 4, 2))
    y = random.integers(0, n_levels, size=(3, 4)).astype(float)
    y[:, 0], y[:, 1] = 0, n_levels - 1
    orders = [np.array(order, dtype=np.int32) for order in permutations(range(4))]
    cuts = []
    for x, y_true in zip(X, y, strict=True):
        right = problem.joint_feature(x, problem.y_true(y_true))
        outputs = [Ranking(y_true, np.array(pair)) for pair in product(orders, orders)]
        psi = np.array([right - problem.joint_feature(x, output) for output in outputs])
        cuts.append((psi, np.array([problem.loss(y_true, output) for output in outputs])))

    def objective(w):
        hinges = [np.max(losses * (1.0 - psi @ w)) for psi, losses in cuts]
        return 0.5 * w @ w + C * np.sum(np.maximum(hinges, 0.0))

    model = Ranker(C=C, loss=loss, rescaling="slack", tol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X.reshape(12, 2), y.ravel(), np.repeat(np.arange(3), 4))
    options = {"xatol": 1e-9, "fatol": 1e-12, "maxiter": 4000}
    best = minimize(objective, model.coef_, method="Nelder-Mead", options=options).fun
    certificate = model.certificate_
    assert certificate.dual <= best + 1e-7
    assert objective(model.coef_) <= certificate.primal + 1e-9
    assert objective(model.coef_) <= best + certificate.gap + 1e-9
    assert certificate.relative_gap < 0.05  # the search misses little
    if C > 1.0:  # else every pair is violated, and margin rescaling is the same problem
        margin = Ranker(C=C, loss=loss, tol=1e-6).fit(
            X.reshape(12, 2), y.ravel(), np.repeat(np.arange(3), 4)
        )
        assert objective(margin.coef_) > best + 1e-4
