"""Ordered classes against plain Python and the referee, and where their thresholds are."""

import numpy as np
import pytest
from feature_rows import (
    SOLVERS,
    PlainRows,
    bound,
    check_searches,
    check_single_searches,
    check_solver,
    check_threads,
    check_widths,
)
from numpy.testing import assert_allclose
from structured_referee import Case, random_cost

from maxmargin.core.oracle import Threads
from maxmargin.structures.ordinal.problem import Ordinal, distances


class PlainOrdinal(PlainRows):
    """A class passes as many thresholds as its number says."""

    def __init__(self, matrix):
        super().__init__(intercept=False)
        self.matrix = matrix

    def outputs(self, x):
        return list(range(len(self.matrix)))

    def factors(self, y):
        return [y]

    def extras(self, y):
        return [-1.0 if j <= y else 0.0 for j in range(1, len(self.matrix))]

    def loss(self, y_true, y):
        return float(self.matrix[y_true, y])


def make(seed, rescaling="margin", loss="absolute", n=14, d=3):
    random = np.random.default_rng(seed)
    k = int(random.integers(2, 6))
    matrix = {
        "absolute": distances(k),
        "squared": distances(k) ** 2,
        "any": random.uniform(0.2, 2.0, (k, k)) * (1.0 - np.eye(k)),
    }[loss]
    X = list(random.normal(size=(n, d)) * (random.random((n, d)) < 0.8))
    noisy = np.array(X) @ random.normal(size=d) + random.normal(size=n)
    Y = np.clip(np.round(noisy + (k - 1) / 2), 0, k - 1).astype(int).tolist()
    case = Case(PlainOrdinal(matrix), X, Y, random_cost(random, n), rescaling)
    return case, Ordinal(d, k, matrix)


LOSSES = ("absolute", "squared", "any")


@pytest.mark.parametrize("rescaling", ["margin", "slack"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("sparse", [False, True])
def test_searches(rescaling, loss, sparse):
    for seed in range(5):
        case, problem = make(seed, rescaling, loss)
        check_searches(problem, case, sparse)


@pytest.mark.parametrize("loss", LOSSES)
def test_single_searches(loss):
    check_single_searches(*make(0, loss=loss)[::-1])


def test_threads_and_widths(monkeypatch):
    case, problem = make(1, n=60)
    check_threads(problem, case, monkeypatch)
    check_widths(problem, case)


@pytest.mark.diagonal
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("rescaling", ["margin", "slack"])
def test_solvers_agree_with_the_referee(solver, rescaling):
    for seed in range(2):
        case, problem = make(seed, rescaling)
        check_solver(problem, case, solver)


def test_the_hinge_is_the_larger_of_two_sums_of_binary_hinges():
    """With the absolute loss and thresholds in order."""
    random = np.random.default_rng(0)
    for seed in range(5):
        case, problem = make(seed)
        thresholds = np.sort(random.normal(size=problem.n_classes - 1))
        direction = random.normal(size=3)
        hinges = []
        for x, y in zip(case.X, case.Y, strict=True):
            passed = x @ direction - thresholds
            below = np.maximum(1.0 - passed[:y], 0.0).sum()
            above = np.maximum(1.0 + passed[y:], 0.0).sum()
            hinges.append(max(below, above))
        weights = np.concatenate([np.outer(direction, [1, 0, 0, 0]).ravel(), thresholds])
        cuts = bound(problem, case).separate(weights, np.arange(len(case.X)), Threads(1))
        assert_allclose(cuts.slopes(weights), hinges, atol=1e-12)


@pytest.mark.parametrize("loss", ["absolute", "squared"])
def test_thresholds_are_in_order_at_the_optimum(loss):
    """Also where classes have no examples at all."""
    for seed in range(8):
        case, problem = make(seed, loss=loss)
        thin = case.Y.count(case.Y[0])
        if thin < len(case.Y) and problem.n_classes > 2:
            case.C[np.array(case.Y) == case.Y[0]] = 0.0
        thresholds = case.optimum.weights[-(problem.n_classes - 1) :]
        assert (np.diff(thresholds) >= -1e-6).all()


def test_thresholds_may_be_out_of_order_with_a_loss_that_is_not_convex():
    """The reason why that is said of convex losses only."""
    X = [np.array([v]) for v in (-1.0, -0.8, 0.0, 0.8, 1.0)]
    found = []
    for matrix in (1.0 - np.eye(3), distances(3)):
        case = Case(PlainOrdinal(matrix), X, [0, 0, 2, 2, 2], np.full(5, 0.3))
        found.append(np.diff(case.optimum.weights[-2:])[0])
    assert found[0] < -1e-3
    assert found[1] >= -1e-6


def test_class_scores_count_the_thresholds_passed():
    problem = Ordinal(1, 4)
    thresholds = np.array([-1.0, 0.5, 2.0])
    scores = np.array([[-2.0], [0.0], [1.0], [3.0]])
    found = problem.class_scores(scores, thresholds)
    assert_allclose(found[2], [0.0, 2.0, 2.5, 1.5])
    assert found.argmax(axis=1).tolist() == [0, 1, 2, 3]
