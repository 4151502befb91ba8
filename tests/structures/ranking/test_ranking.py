"""Rankings: compiled searches and planes against their definition, and every solver's optimum."""

from itertools import combinations_with_replacement, permutations, product

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from structured_referee import Case

import maxmargin as mm
from maxmargin.core.oracle import Threads
from maxmargin.solvers.loop import Stopping
from maxmargin.structures.ranking.problem import (
    PAIR_LOSSES,
    Ranking,
    RankingProblem,
    average_precision,
    ndcg,
    precision_at,
)
from maxmargin.training.fit import make_solver

ONE = Threads(1)
BLOCK = np.zeros(1, dtype=np.int64)

LOSSES = {
    "pairwise": ("pairwise", None),
    "auc": ("auc", None),
    "map": ("map", None),
    "ndcg": ("ndcg", None),
    "ndcg of two": ("ndcg", 2),
    "precision of two": ("precision@k", 2),
}
EXACT_SOLVERS = ("auto", "dual-coordinate", "n-slack", "one-slack")

seeds = st.integers(0, 2**32 - 1)


class Enumerated(RankingProblem):
    """The same, with all outputs of small queries, for the referee."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.known = {}

    def y_true(self, relevance, x=None):
        self.known[id(x)] = np.asarray(relevance, dtype=float)
        return super().y_true(relevance)

    def outputs(self, x):
        return all_outputs(self, self.known[id(x)])


def all_outputs(problem, relevance):
    orders = [np.array(order, np.int32) for order in permutations(range(len(relevance)))]
    if problem.loss_name in PAIR_LOSSES:
        n = len(relevance)
        rising = [np.array(r, np.int32) for r in combinations_with_replacement(range(n + 1), n)]
        chosen = product(orders, rising)
    else:
        chosen = product(orders, repeat=len(problem.y_true(relevance).orders))
    return [Ranking(relevance, np.array(rows)) for rows in chosen]


def draw(seed, problem, n=None, n_levels=3, ties=False):
    """A query that informs."""
    random = np.random.default_rng(seed)
    while True:
        size = n or int(random.integers(3, 5))
        relevance = random.integers(0, n_levels, size).astype(float)
        if problem.informs(relevance):
            rows = random.integers(-1, 2, (size, 3)) if ties else random.normal(size=(size, 3))
            return rows.astype(float), relevance, random


def value(problem, x, y_true, y, w):
    """Score plus loss, relative to the truth."""
    difference = problem.joint_feature(x, y) - problem.joint_feature(x, y_true)
    return problem.loss(y_true, y) + w @ difference


@pytest.mark.parametrize("loss", LOSSES)
@settings(max_examples=12, deadline=None)
@given(seed=seeds, ties=st.booleans(), scale=st.sampled_from([0.0, 0.3, 3.0]))
def test_search_is_the_best_of_all_outputs(loss, seed, ties, scale):
    problem = RankingProblem(*LOSSES[loss])
    n = 3 if loss == "pairwise" else None
    x, relevance, random = draw(seed, problem, n, ties=ties)
    w = scale * (random.integers(-1, 2, 3) if ties else random.normal(size=3))
    y_true = problem.y_true(relevance)
    assert problem.loss(y_true, y_true) == 0.0
    found = problem.loss_augmented_inference(x, y_true, w)
    values = [value(problem, x, y_true, y, w) for y in all_outputs(problem, relevance)]
    assert value(problem, x, y_true, found, w) == pytest.approx(max(values), abs=1e-10)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("sparse", [False, True])
def test_planes_are_those_of_the_definition(loss, sparse, monkeypatch):
    monkeypatch.setattr("maxmargin.core.oracle.SECONDS_FOR_THREADS", -1.0)
    problem = RankingProblem(*LOSSES[loss])
    queries = [draw(seed, problem, n, 4)[:2] for seed, n in enumerate([3, 9, 4, 20, 50, 7] * 4)]
    X = [sp.csr_array(x) if sparse else x for x, _ in queries]
    oracle = problem.make_oracle(X, [relevance for _, relevance in queries], np.ones(24), "margin")
    random = np.random.default_rng(0)
    for scale in (0.1, 1.0):
        weights = scale * random.normal(size=3)
        blocks = random.permutation(24)[:15]
        with Threads(3) as threads:
            cuts = oracle.separate(weights, blocks, threads)
        dense = np.zeros((15, 3))
        np.add.at(
            dense, (np.repeat(np.arange(15), np.diff(cuts.starts)), cuts.columns), cuts.values
        )
        for k, b in enumerate(blocks):
            x, relevance = queries[b]
            y_true = problem.y_true(relevance)
            y = Ranking(relevance, np.frombuffer(cuts.outputs[k], np.int32).reshape(-1, len(x)))
            psi = problem.joint_feature(x, y_true) - problem.joint_feature(x, y)
            assert_allclose(dense[k], psi, atol=1e-12)
            assert cuts.losses[k] == pytest.approx(problem.loss(y_true, y), abs=1e-12)
        again = oracle.cuts_of(blocks, cuts.outputs)
        for one, two in zip(cuts[:4], again[:4], strict=True):
            np.testing.assert_array_equal(one, two)


@settings(max_examples=30, deadline=None)
@given(seed=seeds)
def test_losses_are_what_the_measures_lack(seed):
    random = np.random.default_rng(seed)
    n = int(random.integers(3, 12))
    relevance = random.integers(0, 4, n).astype(float)
    x, w = random.normal(size=(n, 2)), random.normal(size=2)
    scores = x @ w
    best = relevance  # scores that rank ideally
    expected = {
        "map": average_precision,
        "ndcg": ndcg,
        "ndcg of two": lambda r, s: ndcg(r, s, 2),
    }
    for loss, measure in expected.items():
        problem = RankingProblem(*LOSSES[loss])
        if problem.informs(relevance):
            lacking = 1.0 - measure(relevance, scores)
            assert problem.loss(relevance, problem.inference(x, w)) == pytest.approx(lacking)
    problem = RankingProblem("precision@k", 2)
    if problem.informs(relevance):
        share = precision_at(relevance, scores, 2) / precision_at(relevance, best, 2)
        assert problem.loss(relevance, problem.inference(x, w)) == pytest.approx(1.0 - share)
    for loss, levels in (("pairwise", relevance), ("auc", relevance >= 1.0)):
        pairs = [(i, j) for i in range(n) for j in range(n) if levels[i] > levels[j]]
        if pairs:
            wrong = np.mean([scores[i] < scores[j] for i, j in pairs])
            problem = RankingProblem(loss)
            assert problem.loss(relevance, problem.inference(x, w)) == pytest.approx(wrong)


@pytest.mark.parametrize("loss", LOSSES)
def test_hinge_bounds_the_loss_of_the_prediction(loss):
    problem = RankingProblem(*LOSSES[loss])
    for seed in range(20):
        x, relevance, random = draw(seed, problem, n=15, n_levels=4)
        w = random.normal(size=3)
        oracle = problem.make_oracle([x], [relevance], np.ones(1), "margin")
        hinge = oracle.separate(w, BLOCK, ONE).slopes(w)[0]
        assert hinge >= problem.loss(relevance, problem.inference(x, w)) - 1e-12


def test_levels_searched_on_their_own_bound_a_ranking_for_all():
    problem = RankingProblem("ndcg")
    for seed in range(20):
        x, relevance, random = draw(seed, problem, n=4)
        w = random.normal(size=3)
        y_true = problem.y_true(relevance)
        one_for_all = max(
            value(problem, x, y_true, y, w)
            for y in all_outputs(problem, relevance)
            if (y.orders == y.orders[0]).all()
        )
        found = value(problem, x, y_true, problem.loss_augmented_inference(x, y_true, w), w)
        assert found >= one_for_all - 1e-12
        if len(np.unique(relevance)) == 2:
            assert found == pytest.approx(one_for_all)


def test_pairwise_hinge_is_the_mean_over_pairs():
    problem = RankingProblem("pairwise")
    x, relevance, random = draw(0, problem, n=40, n_levels=6)
    w = random.normal(size=3)
    scores = x @ w
    hinges = [
        max(0.0, 1.0 - scores[i] + scores[j])
        for i in range(40)
        for j in range(40)
        if relevance[i] > relevance[j]
    ]
    oracle = problem.make_oracle([x], [relevance], np.ones(1), "margin")
    assert oracle.primal(w) == pytest.approx(0.5 * w @ w + np.mean(hinges))


def test_long_lists_are_sorted_by_numpy_to_the_same_end():
    random = np.random.default_rng(0)
    x, relevance = random.normal(size=(1500, 3)), random.integers(0, 3, 1500).astype(float)
    w = random.normal(size=3)
    problem = RankingProblem("pairwise")
    oracle = problem.make_oracle([x], [relevance], np.ones(1), "margin")
    scores = x @ w
    pairs = relevance[:, None] > relevance
    hinges = np.maximum(0.0, 1.0 - scores[:, None] + scores)[pairs]
    assert oracle.primal(w) == pytest.approx(0.5 * w @ w + hinges.mean())


@pytest.mark.parametrize("loss", LOSSES)
def test_solvers_agree_with_the_referee(loss):
    problem = Enumerated(*LOSSES[loss])
    queries = [draw(seed, problem, n=3)[:2] for seed in range(5)]
    X = [x for x, _ in queries]
    Y = [problem.y_true(relevance, x) for x, relevance in queries]
    C = np.array([3.0, 0.5, 0.0, 1.0, 2.0])
    optimum = Case(problem, X, Y, C).optimum.value
    oracle = problem.make_oracle(X, Y, C, "margin")
    for name in EXACT_SOLVERS:
        result = make_solver(name).solve(oracle, Stopping(1e-6, 500))
        found = result.certificate
        assert found.dual <= optimum * (1 + 1e-7) + 1e-9, name
        assert found.primal >= optimum * (1 - 1e-7) - 1e-9, name
        assert found.relative_gap <= 1e-6, name
    plain = make_solver("frank-wolfe").solve(oracle, Stopping(1e-2, 2000))
    assert plain.certificate.dual <= optimum * (1 + 1e-7) <= plain.certificate.primal * (1 + 2e-7)


def test_queries_that_tell_nothing_have_no_hinge():
    for loss in LOSSES.values():
        problem = RankingProblem(*loss)
        queries = [np.ones((1, 2)), np.eye(2), np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])]
        y_true = [[2.0], [1.0, 1.0], [2.0, 0.0, 1.0]]
        oracle = problem.make_oracle(queries, y_true, np.ones(3), "margin")
        cuts = oracle.separate(np.array([5.0, -3.0]), np.arange(2), ONE)
        assert not cuts.losses.any()
        assert not cuts.values.any()


def test_outputs_of_other_data_are_refused():
    for loss in ("pairwise", "ndcg"):
        problem = RankingProblem(loss)
        oracle = problem.make_oracle([np.eye(3)], [[2.0, 1.0, 0.0]], np.ones(1), "margin")
        for foreign in (np.arange(3), np.zeros(6), [0, 1, 3, 0, 1, 2], [0, 1, 2, 2, 1, 9]):
            with pytest.raises(ValueError, match=r"other (documents|lengths)"):
                oracle.cuts_of(BLOCK, [np.array(foreign, np.int32).tobytes()])


def test_structured_svm_takes_it():
    problem = RankingProblem("map")
    queries = [draw(seed, problem, n=10)[:2] for seed in range(6)]
    X, Y = [x for x, _ in queries], [relevance for _, relevance in queries]
    model = mm.StructuredSVM(problem, C=10.0, tol=1e-3).fit(X, Y)
    assert model.certificate_.relative_gap <= 1e-3
    order = model.predict(X)[0].orders[0]
    assert_allclose(order, np.argsort(-X[0] @ model.weights_, kind="stable"))
    assert -1.0 <= model.score(X, Y) <= 0.0


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("dcg",), "loss is 'dcg'"),
        (("map", 3), "k is for"),
        (("precision@k",), "needs k"),
    ],
)
def test_bad_parameters(arguments, match):
    with pytest.raises(ValueError, match=match):
        RankingProblem(*arguments)


def test_bad_truths():
    problem = RankingProblem()
    with pytest.raises(ValueError, match="none negative"):
        problem.y_true([1.0, -1.0])
    with pytest.raises(ValueError, match="Query 1 has 2 documents but relevance for 3"):
        problem.make_oracle([np.eye(2), np.eye(2)], [[0, 1], [0, 1, 2]], np.ones(2), "margin")
