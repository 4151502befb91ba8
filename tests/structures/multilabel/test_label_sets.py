"""Searches over label sets against all sets, one by one."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from maxmargin.structures.multilabel.inference import LOSSES, MOST_LABELS, LabelGraph

KINDS = ("independent", "forest", "full", "some")


def make_edges(kind, n_labels, random):
    """Edges of a random graph of that kind; ends in any order."""
    if kind == "independent":
        return []
    if kind == "forest":  # some labels stay alone, or start a new tree
        names = random.permutation(n_labels)
        edges = [(names[random.integers(i)], names[i]) for i in range(1, n_labels)]
        return [tuple(random.permutation(edge)) for edge in edges if random.random() < 0.8]
    edges = list(combinations(range(n_labels), 2))
    return edges if kind == "full" else [edge for edge in edges if random.random() < 0.5]


class Case:
    """A graph, scores for a few rows, and truths; with integers there are ties."""

    def __init__(self, kind, n_labels, seed, integers=False, n=4):
        random = np.random.default_rng(seed)
        self.n_labels = n_labels
        self.edges = make_edges(kind, n_labels, random)
        self.graph = LabelGraph(n_labels, self.edges)

        def draw(*shape):
            if integers:
                return random.integers(-2, 3, shape).astype(np.float64)
            return random.normal(size=shape) * 10.0 ** random.uniform(-1.0, 1.0)

        self.gains, self.bonus = draw(n, n_labels), draw(len(self.edges))
        self.y_true = (random.random((n, n_labels)) < random.random()).astype(np.int32)
        self.sets = np.array(list(product([0, 1], repeat=n_labels)), dtype=np.int32)
        self.sets = self.sets.reshape(-1, n_labels)

    def scores(self, row, sets=None):
        sets = self.sets if sets is None else sets
        total = sets @ self.gains[row]
        for (a, b), bonus in zip(self.edges, self.bonus, strict=True):
            total = total + bonus * sets[:, a] * sets[:, b]
        return total

    def losses(self, row, loss, sets=None):
        sets = self.sets if sets is None else sets
        return np.array([plain_loss(loss, self.y_true[row], y) for y in sets])

    def values(self, row, loss, slack, sets=None):
        scores, losses = self.scores(row, sets), self.losses(row, loss, sets)
        own = self.scores(row, self.y_true[row][None])[0]
        return losses * (1.0 + scores - own) if slack else losses + scores - own


def plain_loss(loss, y_true, y):
    if loss == "hamming":
        return float(np.sum(y_true != y))
    if loss == "zero-one":
        return float(np.any(y_true != y))
    both = y_true.sum() + y.sum()
    return 1.0 - 2.0 * np.sum(y_true * y) / both if both else 0.0


cases = st.builds(
    Case,
    kind=st.sampled_from(KINDS),
    n_labels=st.integers(1, 7),
    seed=st.integers(0, 2**32 - 1),
    integers=st.booleans(),
)


@settings(max_examples=100, deadline=None)
@given(case=cases)
def test_the_best_of_all_sets(case):
    found = case.graph.best(case.gains, case.bonus)
    assert found.dtype == np.int32
    assert set(np.unique(found)) <= {0, 1}
    expected = [case.scores(row).max() for row in range(4)]
    reached = [case.scores(row, found[row][None])[0] for row in range(4)]
    assert_allclose(reached, expected, rtol=1e-12, atol=1e-12)
    assert_allclose(case.graph.scores(found, case.gains, case.bonus), expected, atol=1e-12)


@settings(max_examples=200, deadline=None)
@given(case=cases, loss=st.sampled_from(LOSSES), slack=st.booleans())
def test_the_most_violating_of_all_sets(case, loss, slack):
    found = case.graph.most_violating(case.gains, case.bonus, case.y_true, loss, slack)
    for row in range(4):
        expected = case.values(row, loss, slack).max()
        reached = case.values(row, loss, slack, found[row][None])[0]
        assert reached == pytest.approx(expected, rel=1e-11, abs=1e-11)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", ["f1", "zero-one"])
def test_the_truth_wins_ties(kind, loss):
    """With a high price on every other set, and with nothing to be had but the loss of zero."""
    case = Case(kind, 5, 0)
    gains = 100.0 * (2.0 * case.y_true - 1.0)
    found = case.graph.most_violating(gains, 0.0 * case.bonus, case.y_true, loss)
    assert_array_equal(found, case.y_true)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("filled", [0, 1])
@pytest.mark.parametrize("slack", [False, True])
def test_empty_and_full_truths(kind, filled, slack):
    for seed in range(10):
        case = Case(kind, 5, seed)
        case.y_true[:] = filled
        found = case.graph.most_violating(case.gains, case.bonus, case.y_true, "f1", slack)
        for row in range(4):
            reached = case.values(row, "f1", slack, found[row][None])[0]
            assert reached == pytest.approx(case.values(row, "f1", slack).max(), abs=1e-11)


def test_no_rows_and_one_label():
    for edges in ([], [(0, 1)], [(0, 1), (1, 2), (0, 2)]):
        graph = LabelGraph(3, edges)
        none, bonus = np.zeros((0, 3)), np.ones(len(edges))
        assert graph.best(none, bonus).shape == (0, 3)
        assert graph.most_violating(none, bonus, none.astype(np.int32), "f1").shape == (0, 3)
    assert_array_equal(
        LabelGraph(1, []).best(np.array([[1.0], [-1.0], [0.0]]), np.zeros(0)), [[1], [0], [0]]
    )


def test_long_paths_and_stars():
    """More labels than can be tried, against the same search written down differently."""
    n = 40
    random = np.random.default_rng(0)
    gains, bonus = random.normal(size=(3, n)), random.normal(size=n - 1)
    path = LabelGraph(n, [(i, i + 1) for i in range(n - 1)]).best(gains, bonus)
    for row in range(3):
        off, on = 0.0, gains[row, 0]
        for i in range(1, n):
            off, on = max(off, on), gains[row, i] + max(off, on + bonus[i - 1])
        score = path[row] @ gains[row] + (path[row, :-1] * path[row, 1:]) @ bonus
        assert score == pytest.approx(max(off, on))
    star = LabelGraph(n, [(0, i) for i in range(1, n)])
    for row, found in enumerate(star.best(gains, bonus)):
        leaves = gains[row, 1:]
        on = gains[row, 0] + np.maximum(leaves + bonus, 0.0).sum()
        best = max(on, np.maximum(leaves, 0.0).sum())
        assert star.scores(found[None], gains[row][None], bonus)[0] == pytest.approx(best)


def test_counts_in_a_forest_without_bonus_are_those_of_independent_labels():
    n = 30
    random = np.random.default_rng(1)
    gains = random.normal(size=(5, n))
    y_true = (random.random((5, n)) < 0.2).astype(np.int32)
    edges = [(int(random.integers(i)), i) for i in range(1, n)]
    for slack in (False, True):
        tree = LabelGraph(n, edges).most_violating(gains, np.zeros(n - 1), y_true, "f1", slack)
        alone = LabelGraph(n, []).most_violating(gains, np.zeros(0), y_true, "f1", slack)
        assert_array_equal(tree, alone)


def test_cycles_among_many_labels_are_refused():
    many = MOST_LABELS + 1
    with pytest.raises(ValueError, match=f"at most {MOST_LABELS} labels, but there are {many}"):
        LabelGraph(many, list(combinations(range(many), 2)))
    with pytest.raises(ValueError, match="graph='tree'"):
        LabelGraph(many, [(0, 1), (1, 2), (2, 0)])
    assert LabelGraph(1000, [(i, i + 1) for i in range(999)]).is_forest
    assert not LabelGraph(3, [(0, 1), (1, 2), (2, 0)]).is_forest
