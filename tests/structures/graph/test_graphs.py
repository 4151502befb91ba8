"""Searches over a graph against all its labellings, one by one."""

from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from maxmargin.compiled.rows import padded
from maxmargin.structures.graph.inference import (
    Effort,
    TooWideError,
    best_exact,
    best_labelling,
    elimination_order,
    graph_marginals,
    make_elimination,
    make_incidence,
    message_pass,
    relax,
    relaxation_scratch,
)


class Graph(NamedTuple):
    nodes: np.ndarray
    edges: np.ndarray
    pairs: np.ndarray

    @property
    def n_nodes(self):
        return len(self.nodes)

    @property
    def n_labels(self):
        return self.nodes.shape[1]

    def labellings(self):
        every = list(product(range(self.n_labels), repeat=self.n_nodes))
        return np.array(every, dtype=np.int64).reshape(len(every), self.n_nodes)

    def scores(self, y):
        total = self.nodes[np.arange(self.n_nodes), y].sum(axis=1)
        for (u, v), table in zip(self.edges, self.pairs, strict=True):
            total += table[y[:, u], y[:, v]]
        return total

    def score(self, labels):
        return self.scores(labels[None])[0]

    @property
    def best(self):
        return self.scores(self.labellings()).max()


def random_edges(random, n_nodes, density):
    """Some of all pairs, in random order and direction."""
    every = [(u, v) for u in range(n_nodes) for v in range(u)]
    chosen = [e if random.random() < 0.5 else e[::-1] for e in every if random.random() < density]
    random.shuffle(chosen)
    return np.array(chosen, dtype=np.int64).reshape(-1, 2)


def random_tree(random, n_nodes):
    names = random.permutation(n_nodes)
    parents = [random.integers(0, v) for v in range(1, n_nodes)]
    edges = [(names[v + 1], names[u]) for v, u in enumerate(parents)]
    return np.array(edges, dtype=np.int64).reshape(-1, 2)


def grid(height, width):
    numbers = np.arange(height * width).reshape(height, width)
    right = np.c_[numbers[:, :-1].ravel(), numbers[:, 1:].ravel()]
    down = np.c_[numbers[:-1].ravel(), numbers[1:].ravel()]
    return np.concatenate([right, down])


def make_graph(seed, n_nodes, n_labels, edges=None, density=0.5, scale=None):
    """Normal scores times `scale`, or small integers, which make ties and sum exactly."""
    random = np.random.default_rng(seed)
    if edges is None:
        edges = random_edges(random, n_nodes, density)

    def draw(*shape):
        drawn = random.normal(size=shape) * scale if scale else random.integers(-1, 2, shape)
        return drawn.astype(np.float64)

    return Graph(draw(n_nodes, n_labels), edges, draw(len(edges), n_labels, n_labels))


def agreeing(graph):
    """The same graph with edges that like to agree, some of them not at all."""
    like = np.maximum(graph.pairs[:, 0, 0], 0.0)
    pairs = graph.pairs.copy()
    pairs[:, 0, 0] = like + pairs[:, 0, 1] + pairs[:, 1, 0] - pairs[:, 1, 1]
    return graph._replace(pairs=pairs)


SIZES = [(n, k) for n in range(7) for k in range(1, 4)]


@pytest.mark.parametrize(("n_nodes", "n_labels"), SIZES)
def test_exact_is_the_best_of_all(n_nodes, n_labels):
    for seed, (scale, density) in enumerate(product([None, 1.0, 1e4], [0.2, 0.5, 1.0])):
        graph = make_graph(seed, n_nodes, n_labels, density=density, scale=scale)
        labels, score, bound = best_labelling(*graph)
        assert score == bound == pytest.approx(graph.best, rel=1e-12, abs=1e-12)
        assert graph.score(labels) == pytest.approx(score, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(("n_nodes", "n_labels"), SIZES)
def test_relaxed_scores_and_bounds_enclose_the_best(n_nodes, n_labels):
    for seed, (scale, density) in enumerate(product([None, 1.0, 1e4], [0.2, 0.5, 1.0])):
        graph = make_graph(seed, n_nodes, n_labels, density=density, scale=scale)
        labels, score, bound = best_labelling(*graph, method="relaxed")
        slack = 1e-9 * (1.0 + abs(graph.best))
        assert score <= graph.best + slack
        assert bound >= graph.best - slack
        assert graph.score(labels) == pytest.approx(score, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("n_nodes", range(7))
def test_flow_is_the_best_of_all_where_neighbours_agree(n_nodes):
    for seed, scale in enumerate([None, None, 1.0, 1.0, 1e-4, 1e6]):
        graph = agreeing(make_graph(seed, n_nodes, 2, density=0.6, scale=scale))
        labels, score, bound = best_labelling(*graph, method="flow")
        resolution = 1e-7 * (np.abs(graph.nodes).sum() + np.abs(graph.pairs).sum())
        assert score == pytest.approx(graph.best, abs=resolution)
        assert graph.score(labels) == pytest.approx(score, rel=1e-12)
        assert bound >= graph.best - 1e-12 * (1.0 + abs(graph.best))
        assert bound <= score + resolution


def test_flow_on_a_grid_agrees_with_elimination():
    graph = agreeing(make_graph(0, 60, 2, edges=grid(6, 10), scale=1.0))
    exact, cut = best_labelling(*graph), best_labelling(*graph, method="flow")
    assert_array_equal(cut.labels, exact.labels)
    assert cut.score == pytest.approx(exact.score, rel=1e-12)
    assert exact.score <= cut.bound <= exact.score + 1e-5


def test_flow_is_refused_where_neighbours_differ():
    with pytest.raises(ValueError, match="submodular"):
        best_labelling(np.zeros((2, 2)), [(0, 1)], [[0.0, 1.0], [1.0, 0.0]], method="flow")
    with pytest.raises(ValueError, match="two labels"):
        best_labelling(np.zeros((2, 3)), [(0, 1)], np.eye(3), method="flow")
    with pytest.raises(ValueError, match="method must be"):
        best_labelling(np.zeros((2, 3)), [(0, 1)], np.eye(3), method="guess")


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 5))
def test_on_trees_the_relaxation_is_exact(seed, n_nodes, n_labels):
    random = np.random.default_rng(seed)
    edges = random_tree(random, n_nodes)
    graph = make_graph(seed, n_nodes, n_labels, edges=edges, scale=1.0)
    incidence, nodes, pairs, width = prepared(graph)
    messages, best = np.zeros((n_nodes - 1, width)), np.zeros(n_nodes, dtype=np.int64)
    args = incidence, 0, n_labels, nodes, pairs, -np.inf, Effort(10_000, 0.0, 0.0), messages, best
    score, bound = relax(*args, relaxation_scratch(n_nodes, width))
    exact = best_labelling(*graph).score
    assert score == pytest.approx(graph.score(best), rel=1e-12, abs=1e-12)
    assert score == pytest.approx(exact, rel=1e-9, abs=1e-9)
    assert bound == pytest.approx(exact, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 9), (2, 9), (4, 5)])
def test_labels_beyond_one_vector(height, width):
    n_labels = 6 if height > 2 else 13
    graph = make_graph(1, height * width, n_labels, edges=grid(height, width), scale=1.0)
    exact = best_labelling(*graph)
    relaxed = best_labelling(*graph, method="relaxed")
    assert relaxed.score <= exact.score + 1e-9 <= relaxed.bound + 2e-9
    assert graph.score(exact.labels) == pytest.approx(exact.score)
    if height == 1:
        assert relaxed.score == pytest.approx(exact.score)


# The relaxation's passes


def prepared(graph):
    n, m, width = graph.n_labels, len(graph.edges), padded(graph.n_labels)
    nodes = np.zeros((graph.n_nodes, width))
    nodes[:, :n] = graph.nodes
    pairs = np.zeros((2 * m, n, width))
    pairs[::2, :, :n], pairs[1::2, :, :n] = graph.pairs, graph.pairs.transpose(0, 2, 1)
    ends = np.array([0, graph.n_nodes]), np.array([0, m])
    return make_incidence(*ends, graph.edges, np.arange(m)), nodes, pairs, width


def test_bounds_never_rise():
    for seed in range(20):
        graph = make_graph(seed, 9, 3, density=0.6, scale=1.0)
        incidence, nodes, pairs, width = prepared(graph)
        messages = np.zeros((len(graph.edges), width))
        scratch = relaxation_scratch(graph.n_nodes, width)
        bounds = []
        for step in range(12):
            forward = step % 2 == 0
            args = incidence, 0, graph.n_nodes, 3, forward, nodes, pairs, messages, scratch
            bound, score = message_pass(*args)
            assert score == pytest.approx(graph.score(scratch.labels))
            bounds.append(bound)
        assert_array_equal(np.diff(bounds) <= 1e-10, True)
        assert bounds[-1] < bounds[0]


def test_any_messages_give_a_bound():
    random = np.random.default_rng(0)
    for seed in range(20):
        graph = make_graph(seed, 6, 2, density=0.7, scale=1.0)
        incidence, nodes, pairs, width = prepared(graph)
        messages = 10.0 * random.normal(size=(len(graph.edges), width))
        best = np.zeros(6, dtype=np.int64)
        floor = graph.score(best)
        args = incidence, 0, 2, nodes, pairs, floor, Effort(1, 0.0, 0.0), messages, best
        score, bound = relax(*args, relaxation_scratch(6, width))
        assert floor <= score == pytest.approx(graph.score(best))
        assert score <= graph.best + 1e-9
        assert bound >= graph.best - 1e-9


def test_the_labelling_to_beat_stays_if_nothing_beats_it():
    graph = make_graph(3, 6, 2, density=0.7, scale=1.0)
    incidence, nodes, pairs, width = prepared(graph)
    best = best_labelling(*graph).labels
    messages = np.zeros((len(graph.edges), width))
    kept = best.copy()
    args = incidence, 0, 2, nodes, pairs, graph.best + 1e-9, Effort(), messages, kept
    score, bound = relax(*args, relaxation_scratch(6, width))
    assert score == graph.best + 1e-9
    assert bound >= score
    assert_array_equal(kept, best)


def test_effort_ends_a_search():
    graph = make_graph(5, 30, 4, density=0.3, scale=1.0)
    incidence, nodes, pairs, width = prepared(graph)

    def bound(effort):
        messages, best = np.zeros((len(graph.edges), width)), np.zeros(30, dtype=np.int64)
        args = incidence, 0, 4, nodes, pairs, graph.score(best), effort, messages, best
        return relax(*args, relaxation_scratch(30, width))[1]

    one, many = bound(Effort(1, 0.0, 0.0)), bound(Effort(300, 0.0, 0.0))
    assert many < bound(Effort(300, 0.0, 0.5)) < one
    assert bound(Effort(300, 1.0, 0.0)) == one


# Elimination


def test_order_of_elimination():
    random = np.random.default_rng(0)
    for n_nodes in [1, 2, 5, 30]:
        order = elimination_order(n_nodes, random_tree(random, n_nodes).tolist(), 2, np.inf)
        assert sorted(v for v, _ in order) == list(range(n_nodes))
        assert max(len(scope) for _, scope in order) <= 1
    ring = [(v, (v + 1) % 8) for v in range(8)]
    assert max(len(scope) for _, scope in elimination_order(8, ring, 2, np.inf)) == 2
    order = elimination_order(30, grid(3, 10).tolist(), 2, np.inf)
    assert max(len(scope) for _, scope in order) == 3
    place = {v: p for p, (v, _) in enumerate(order)}
    for v, scope in order:  # each scope in the order of elimination, all of it later
        assert [place[v], *map(place.get, scope)] == sorted([place[v], *map(place.get, scope)])
    everyone = [(u, v) for u in range(6) for v in range(u)]
    with pytest.raises(TooWideError) as error:
        elimination_order(6, everyone, 3, 3**6 - 1)
    assert error.value.width == 5


def test_many_graphs_at_once():
    graphs = [make_graph(seed, seed % 6, 3, density=0.5, scale=1.0) for seed in range(12)]
    node_ends = np.cumsum([0, *(g.n_nodes for g in graphs)])
    edge_ends = np.cumsum([0, *(len(g.edges) for g in graphs)])
    edges = np.concatenate([g.edges for g in graphs])
    kinds = np.concatenate([np.arange(len(g.edges)) for g in graphs])
    incidence = make_incidence(node_ends, edge_ends, edges, kinds)
    limits = np.full(12, np.inf)
    limits[[4, 10]] = 20.0
    elimination, given_up = make_elimination(incidence, edges, 3, limits)
    assert set(given_up) == {4, 10}
    assert_array_equal(np.flatnonzero(elimination.sizes < 0), [4, 10])
    for i, graph in enumerate(graphs):
        if i in given_up:
            continue
        _, nodes, pairs, width = prepared(graph)
        labels = np.zeros(graph.n_nodes, dtype=np.int64)
        scratch = np.empty(elimination.sizes[i]), np.empty(width)
        score = best_exact(elimination, incidence, i, 3, nodes, pairs, labels, *scratch)
        assert score == pytest.approx(graph.best)


# Marginals


@pytest.mark.parametrize(("n_nodes", "n_labels"), SIZES)
def test_marginals(n_nodes, n_labels):
    for seed, (scale, density) in enumerate(product([None, 1.0, 100.0], [0.2, 0.6, 1.0])):
        graph = make_graph(seed, n_nodes, n_labels, density=density, scale=scale)
        y = graph.labellings()
        scores = graph.scores(y)
        weights = np.exp(scores - scores.max())
        log_partition = scores.max() + np.log(weights.sum())
        weights /= weights.sum()
        of_nodes = np.zeros((n_nodes, n_labels))
        of_pairs = np.zeros((len(graph.edges), n_labels, n_labels))
        for v in range(n_nodes):
            np.add.at(of_nodes[v], y[:, v], weights)
        for e, (u, v) in enumerate(graph.edges):
            np.add.at(of_pairs[e], (y[:, u], y[:, v]), weights)
        found = graph_marginals(*graph)
        assert found.log_partition == pytest.approx(log_partition, rel=1e-12, abs=1e-12)
        assert_allclose(found.nodes, of_nodes, atol=1e-11)
        assert_allclose(found.pairs, of_pairs, atol=1e-11)


def test_marginals_of_a_long_ring_add_up():
    n = 500
    ring = np.array([(v, (v + 1) % n) for v in range(n)])
    graph = make_graph(0, n, 4, edges=ring, scale=3.0)
    found = graph_marginals(*graph)
    assert_allclose(found.nodes.sum(axis=1), 1.0, atol=1e-9)
    assert_allclose(found.pairs.sum(axis=2), found.nodes[ring[:, 0]], atol=1e-9)
    assert_allclose(found.pairs.sum(axis=1), found.nodes[ring[:, 1]], atol=1e-9)
