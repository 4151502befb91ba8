"""Searches over the labellings of one graph, ready to call: best labels with a bound, marginals.

Thin functions around the compiled ones of `junction_tree` (exact, for trees and nearly trees),
`relaxation` (any graph) and `flow` (two labels); these take many graphs, and scratch.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maxmargin.dual.simd import padded
from maxmargin.inference.flow import all_agree, best_cut
from maxmargin.inference.incidence import Incidence, make_incidence
from maxmargin.inference.junction_tree import (
    Elimination,
    best_exact,
    make_elimination,
    marginals_exact,
)
from maxmargin.inference.relaxation import Effort, relax, relaxation_scratch

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Labelling(NamedTuple):
    """Labels of the nodes, their score, and a bound that the score of no labels exceeds."""

    labels: Ints
    score: float
    bound: float


class Marginals(NamedTuple):
    """Logarithm of the partition function, and probabilities of labels and of pairs of labels."""

    log_partition: float
    nodes: Floats
    pairs: Floats


class _Graph(NamedTuple):
    nodes: Floats
    pairs: Floats
    edges: Ints
    tables: Floats
    incidence: Incidence

    @property
    def n_labels(self) -> int:
        return int(self.tables.shape[1])

    def elimination(self) -> Elimination:
        limits = np.full(1, np.inf)
        return make_elimination(self.incidence, self.edges, self.n_labels, limits)[0]


def best_labelling(
    nodes: ArrayLike, edges: ArrayLike, pairs: ArrayLike, method: str = "exact"
) -> Labelling:
    """Labels with the highest score, ``sum_v nodes[v, y_v] + sum_e pairs[e, y_first, y_second]``.

    Parameters
    ----------
    nodes : array-like of shape (n_nodes, n_labels)
    edges : array-like of shape (n_edges, 2)
        First and second node; no loops, no two edges between the same nodes.
    pairs : array-like of shape (n_edges, n_labels, n_labels), or (n_labels, n_labels) for all
        The label of an edge's first node is the row.
    method : {"exact", "relaxed", "flow"}, default="exact"
        Exact takes ``n_labels ** (treewidth + 1)`` steps for each node. Relaxed gives labels that
        may not be the best, and a bound. Flow is exact, for two labels and edges that like to
        agree: ``pairs[e, 0, 0] + pairs[e, 1, 1] >= pairs[e, 0, 1] + pairs[e, 1, 0]``.

    Returns
    -------
    labelling : Labelling

    See Also
    --------
    graph_marginals

    Examples
    --------
    Three neighbours in a ring who each want to differ from the other two, with two labels:

    >>> ring = [(0, 1), (1, 2), (2, 0)]
    >>> nodes = [[0.5, 0.0], [0.0, 0.125], [0.0, 0.25]]
    >>> best_labelling(nodes, ring, [[0.0, 1.0], [1.0, 0.0]])
    Labelling(labels=array([0, 1, 1]), score=2.875, bound=2.875)

    The relaxation finds them, too, but cannot exclude that all three get their will:

    >>> best_labelling(nodes, ring, [[0.0, 1.0], [1.0, 0.0]], method="relaxed").bound > 3.0
    True
    """
    graph = _graph(nodes, edges, pairs)
    n_nodes, width = graph.nodes.shape
    labels = np.zeros(n_nodes, dtype=np.int64)
    shared = 0, graph.n_labels, graph.nodes, graph.pairs
    if method == "exact":
        elimination = graph.elimination()
        tables, row = np.empty(elimination.sizes[0]), np.empty(width)
        score = best_exact(elimination, graph.incidence, *shared, labels, tables, row)
        return Labelling(labels, score, score)
    if method == "flow":
        if graph.n_labels != 2 or not all_agree(graph.tables):
            raise ValueError("A flow needs two labels, and edges that like to agree.")
        labels, bound = best_cut(graph.nodes, graph.edges, graph.tables)
        first, second = labels[graph.edges].T
        score = float(graph.nodes[np.arange(n_nodes), labels].sum())
        score += float(graph.tables[np.arange(len(first)), first, second].sum())
        return Labelling(labels, score, max(bound, score))
    if method == "relaxed":
        messages = np.zeros((len(graph.edges), width))
        scratch = relaxation_scratch(n_nodes, width)
        found = relax(graph.incidence, *shared, -np.inf, Effort(), messages, labels, scratch)
        return Labelling(labels, *found)
    raise ValueError(f"method must be 'exact', 'relaxed' or 'flow', but is {method!r}.")


def graph_marginals(nodes: ArrayLike, edges: ArrayLike, pairs: ArrayLike) -> Marginals:
    """Probabilities of labels and of pairs when labellings have probability ``~ exp(score)``.

    Exact, so for graphs of small treewidth. For another temperature, divide the scores by it.

    Parameters
    ----------
    nodes, edges, pairs
        As for `best_labelling`.

    Returns
    -------
    marginals : Marginals
        `nodes` of shape (n_nodes, n_labels), `pairs` of shape (n_edges, n_labels, n_labels).

    Examples
    --------
    >>> marginals = graph_marginals([[0.0, 0.0], [0.0, 0.0]], [(0, 1)], np.log([[3, 1], [1, 3]]))
    >>> marginals.nodes.round(3).tolist(), marginals.pairs.round(3).tolist()
    ([[0.5, 0.5], [0.5, 0.5]], [[[0.375, 0.125], [0.125, 0.375]]])
    """
    graph = _graph(nodes, edges, pairs)
    n, (n_nodes, width) = graph.n_labels, graph.nodes.shape
    elimination = graph.elimination()
    of_nodes, of_pairs = np.empty((n_nodes, width)), np.empty((len(graph.edges), n, width))
    tables, shares = np.empty((2, int(elimination.sizes[0])))
    log_partition = marginals_exact(
        elimination, graph.incidence, 0, n, graph.nodes, graph.pairs, of_nodes, of_pairs,
        np.zeros(n_nodes, dtype=np.int64), tables, shares, np.empty(width),
    )  # fmt: skip
    return Marginals(log_partition, of_nodes[:, :n], of_pairs[:, :, :n])


def _graph(nodes: Any, edges: Any, pairs: Any) -> _Graph:
    """Scores padded, and tables from either end."""
    nodes = np.asarray(nodes, dtype=np.float64)
    edges = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    (n_nodes, n), m = nodes.shape, len(edges)
    tables = np.broadcast_to(np.asarray(pairs, dtype=np.float64), (m, n, n))
    width = padded(n)
    both = np.zeros((2 * m, n, width))
    both[::2, :, :n], both[1::2, :, :n] = tables, tables.transpose(0, 2, 1)
    wide = np.zeros((n_nodes, width))
    wide[:, :n] = nodes
    ends = np.array([0, n_nodes]), np.array([0, m])
    return _Graph(wide, both, edges, tables, make_incidence(*ends, edges, np.arange(m)))
