"""Label sets against plain Python and the referee; the tree of mutual information."""

from itertools import combinations, product

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
from numpy.testing import assert_array_equal
from structured_referee import Case, random_cost

from maxmargin.structures.multilabel.inference import LOSSES, MOST_LABELS
from maxmargin.structures.multilabel.problem import LabelSets, chow_liu_tree

GRAPHS = {
    "independent": [],
    "tree": [(1, 0), (1, 3), (3, 2)],
    "full": list(combinations(range(4), 2)),
}


class PlainLabels(PlainRows):
    """Labels are on or off; an edge has four features, of which one is on."""

    def __init__(self, n_labels, edges, loss, intercept=True):
        super().__init__(intercept)
        self.n_labels, self.edges, self.loss_name = n_labels, edges, loss

    def outputs(self, x):
        return [y[::-1] for y in product([0, 1], repeat=self.n_labels)]

    def factors(self, y):
        return list(y)

    def extras(self, y):
        return [
            float((y[a], y[b]) == states)
            for a, b in self.edges
            for states in ((0, 0), (0, 1), (1, 0), (1, 1))
        ]

    def loss(self, y_true, y):
        wrong = sum(a != b for a, b in zip(y_true, y, strict=True))
        if self.loss_name == "f1":
            return wrong / (sum(y_true) + sum(y)) if wrong else 0.0
        return float(wrong if self.loss_name == "hamming" else wrong > 0)


def make(seed, graph="tree", loss="hamming", rescaling="margin", intercept=True, n=10, d=3):
    random = np.random.default_rng(seed)
    edges = GRAPHS[graph]
    X = list(random.normal(size=(n, d)) * (random.random((n, d)) < 0.8))
    Y = [tuple(y) for y in random.integers(0, 2, (n, 4)).tolist()]
    case = Case(PlainLabels(4, edges, loss, intercept), X, Y, random_cost(random, n), rescaling)
    return case, LabelSets(d, 4, edges, loss, intercept)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("rescaling", ["margin", "slack"])
def test_searches(graph, loss, rescaling):
    for seed in range(4):
        case, problem = make(seed, graph, loss, rescaling, intercept=seed < 3)
        check_searches(problem, case, sparse=seed % 2 == 1)


@pytest.mark.parametrize("graph", GRAPHS)
def test_single_searches(graph):
    check_single_searches(*make(0, graph, "f1")[::-1])


@pytest.mark.parametrize("graph", GRAPHS)
def test_threads_and_widths(graph, monkeypatch):
    case, problem = make(1, graph, n=60)
    check_threads(problem, case, monkeypatch)
    check_widths(problem, case)


@pytest.mark.diagonal
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("graph", GRAPHS)
def test_solvers_agree_with_the_referee(solver, graph):
    check_solver(*make(0, graph)[::-1], solver)
    check_solver(*make(1, graph, "f1", "slack")[::-1], solver)


@pytest.mark.parametrize("graph", GRAPHS)
def test_top(graph):
    case, problem = make(2, graph)
    w = np.random.default_rng(0).normal(size=problem.n_weights)
    for x in case.X[:3]:
        ranked = sorted(
            case.problem.outputs(x), key=lambda y, x=x: -(case.problem.joint_feature(x, y) @ w)
        )
        assert [tuple(y) for y in problem.k_best(x, w, 5)] == ranked[:5]
        assert len(problem.k_best(x, w, 100)) == 16


def test_listing_all_sets_has_its_limit():
    problem = LabelSets(1, MOST_LABELS + 1)
    with pytest.raises(ValueError, match=f"at most {MOST_LABELS} labels, but there are"):
        problem.outputs([0.0])
    with pytest.raises(ValueError, match="ask for the best set alone"):
        problem.k_best([0.0], np.zeros(problem.n_weights), 1)


def test_bind_looks_at_what_it_gets():
    case, problem = make(0)
    with pytest.raises(ValueError, match="made for rows of 3 features"):
        problem.make_oracle(np.ones((10, 2)), case.Y, case.C)
    for bad in ((0, 1, 0), (0, 1, 0, 2), (0, 1, 0, 0.5), "abcd"):
        with pytest.raises(ValueError, match=r"example 1 is .* 4 whole numbers from 0 to 1"):
            problem.make_oracle(np.ones((2, 3)), [case.Y[0], bad], case.C[:2])
    with pytest.raises(ValueError, match="other lengths"):
        bound(problem, case).cuts_of(np.array([0]), [b"1234"])


def information(Y, a, b):
    """Mutual information of two columns, from its definition."""
    total = 0.0
    for s, t in product([0, 1], repeat=2):
        joint = np.mean((Y[:, a] == s) & (Y[:, b] == t))
        if joint:
            total += joint * np.log(joint / np.mean(Y[:, a] == s) / np.mean(Y[:, b] == t))
    return total


def spanning_trees(n):
    """All trees over n labels, as sets of edges."""
    for edges in combinations(combinations(range(n), 2), n - 1):
        groups = list(range(n))
        for a, b in edges:
            groups = [groups[a] if group == groups[b] else group for group in groups]
        if len(set(groups)) == 1:
            yield edges


def test_the_tree_of_most_mutual_information():
    for seed in range(5):
        random = np.random.default_rng(seed)
        Y = (random.random((40, 1)) * random.random((1, 5)) + random.random((40, 5)) * 0.5) > 0.5
        found = chow_liu_tree(Y.astype(np.int32))
        assert (found[:, 0] < found[:, 1]).all()
        best = max(sum(information(Y, a, b) for a, b in edges) for edges in spanning_trees(5))
        assert sum(information(Y, a, b) for a, b in found) == pytest.approx(best)


def test_trees_of_one_label_and_of_constant_labels():
    assert chow_liu_tree(np.ones((4, 1), dtype=np.int32)).shape == (0, 2)
    edges = chow_liu_tree(np.ones((4, 3), dtype=np.int32))
    assert_array_equal(edges, [[0, 1], [0, 2]])
