"""MAP inference for graphs that are not exact by elimination: relaxations and minimum cuts.

**Relaxed**: a labelling and a bound that no labelling exceeds, by tree-reweighted message passing.
The score of an edge can be split between its ends: with any *messages* ``m_ev`` from edge to node,
the score of every labelling is at most

    sum_v max_x (nodes[v, x] + sum_e m_ev[x]) + sum_e max_xy (table_e[x, y] - m_eu[x] - m_ev[y])

The least such bound is the value of the linear relaxation. A pass goes over the nodes in order. A
node passes its scores on to its edges ahead, in equal parts, and each of these passes all it has to
its other end. So after a pass no edge has anything left, and the bound is a sum over nodes. Passes
in alternate directions never raise it (Kolmogorov, 2006: TRW-S). Only one message is kept for each
edge: the one to the later node.

**Minimum cuts**, for two labels and submodular (attractive) pairwise potentials, ``t[0, 0] +
t[1, 1] >= t[0, 1] + t[1, 0]``. These are, up to a constant, scores of the two nodes less ``weight *
[first has 0 and second has 1]``, so that a minimum cut between label 0 and label 1 is the best
labelling. Capacities are whole numbers, so they are rounded; but what flows along the edges is a
set of messages as above, and these give a bound without any rounding.

`best_labelling` and `graph_marginals` are for one graph, ready to call; `junction_tree` says how
graphs are laid out for the compiled functions.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.compiled.simd import max_plus, padded
from maxmargin.structures.chain.inference import highest_label
from maxmargin.structures.graph.junction_tree import (
    Elimination,
    Incidence,
    Ints,
    best_exact,
    make_elimination,
    make_incidence,
    marginals_exact,
    set_local_scores,
)

ROUNDING = 1e-12
"""A bound this close above a score, relative to its size, is the score."""


class Effort(NamedTuple):
    """When relaxed inference has done enough.

    Parameters
    ----------
    passes : int
        Most passes, there and back.
    enough : float
        Stop where the bound exceeds the labelling by no more than this part of what the bound
        exceeds the score to beat by: for training, the hinge.
    progress : float
        Stop where a pass, there and back, takes less than this part of the bound's excess away.
    """

    passes: int = 100
    enough: float = 0.0
    progress: float = 0.01


class RelaxationScratch(NamedTuple):
    """`labels` int64 ``(n_nodes,)``; the others ``(P,)``, `zeros` with zeros."""

    labels: NDArray[np.int64]
    belief: NDArray[np.float64]
    row: NDArray[np.float64]
    given: NDArray[np.float64]
    zeros: NDArray[np.float64]


def relaxation_scratch(n_nodes: int, width: int) -> RelaxationScratch:
    """Scratch for graphs of at most so many nodes."""
    rows = np.zeros((4, width))
    return RelaxationScratch(np.zeros(n_nodes, dtype=np.int64), *rows)


@compiled
def message_pass(  # type: ignore[no-untyped-def]
    incidence, first, n_nodes, n_labels, forward, nodes, pairs, messages, scratch
):
    """One pass; returns the bound after it and the score of the labelling met on the way.

    That one goes to ``scratch.labels``: each node takes the best label given those of the nodes
    before it and the messages from those ahead.
    """
    labels, belief, row, given = scratch.labels, scratch.belief, scratch.row, scratch.given
    bound = 0.0
    score = 0.0
    for step in range(n_nodes):
        v = step if forward else n_nodes - 1 - step
        start, middle, stop = (
            incidence.starts[first + v],
            incidence.middles[first + v],
            incidence.starts[first + v + 1],
        )
        behind, behind_end = (start, middle) if forward else (middle, stop)
        ahead, ahead_end = (middle, stop) if forward else (start, middle)
        # Beliefs: scores with the messages of all edges. For the label, nodes behind have theirs.
        for b in range(n_labels):
            belief[b] = nodes[v, b]
            row[b] = nodes[v, b]
        for q in range(behind, behind_end):
            message = messages[incidence.edges[q]]
            beside = pairs[incidence.tables[q] ^ 1, labels[incidence.neighbours[q]]]
            for b in range(n_labels):
                belief[b] += message[b]
                row[b] += beside[b]
        for b in range(n_labels):
            given[b] = row[b]
        for q in range(ahead, ahead_end):
            message = messages[incidence.edges[q]]
            for b in range(n_labels):
                belief[b] += message[b]
                given[b] += message[b]
        label = highest_label(given, n_labels)
        labels[v] = label
        score += row[label]
        highest = belief[0]
        for b in range(1, n_labels):
            highest = max(highest, belief[b])
        n_ahead, n_behind = ahead_end - ahead, behind_end - behind
        most = max(n_ahead, n_behind, 1)
        share = 1.0 / most
        bound += (1.0 - n_ahead / most) * highest
        for q in range(ahead, ahead_end):
            message = messages[incidence.edges[q]]
            for b in range(n_labels):
                given[b] = share * belief[b] - message[b]
            max_plus(given, pairs[incidence.tables[q]], scratch.zeros, n_labels, message)
    return bound, score


@inlined
def improve(incidence, first, n_nodes, n_labels, nodes, pairs, sweeps, labels, row):  # type: ignore[no-untyped-def]
    """Give node after node its best label given all others; returns what that gains."""
    gain = 0.0
    for _ in range(sweeps):
        before = gain
        for v in range(n_nodes):
            set_local_scores(incidence, first, v, n_labels, nodes, pairs, labels, row)
            label = highest_label(row, n_labels)
            if row[label] > row[labels[v]]:
                gain += row[label] - row[labels[v]]
                labels[v] = label
        if gain == before:
            break
    return gain


@compiled
def relax(  # type: ignore[no-untyped-def]
    incidence, g, n_labels, nodes, pairs, floor, effort, messages, best, scratch
):
    """Find a labelling of graph `g` and a bound; returns the labelling's score and the bound.

    `best` holds the labelling to beat, and at the end the best one found. Its score is `floor`,
    which may be ``-inf`` if there is none. `messages`, ``(n_edges, P)``, may hold anything finite
    at first; the better they fit, the fewer passes it takes. They are left as they are at the end.
    """
    first = incidence.node_ends[g]
    n_nodes = incidence.node_ends[g + 1] - first
    labels = scratch.labels
    score = floor
    bound = before = np.inf
    for _ in range(effort.passes):
        for direction in range(2):
            forward = direction == 0
            reached, found = message_pass(
                incidence, first, n_nodes, n_labels, forward, nodes, pairs, messages, scratch
            )
            bound = min(bound, reached)
            if not forward:  # a sweep takes nearly as long as a pass
                found += improve(
                    incidence, first, n_nodes, n_labels, nodes, pairs, 1, labels, scratch.row
                )
            if found > score:
                score = found
                for v in range(n_nodes):
                    best[v] = labels[v]
        suboptimality = bound - score
        if suboptimality <= ROUNDING * abs(bound):
            break
        if effort.enough > 0.0 and suboptimality <= effort.enough * (bound - floor):
            break
        if before - bound < effort.progress * suboptimality:
            break
        before = bound
    if score < bound:
        for v in range(n_nodes):
            labels[v] = best[v]
        score += improve(incidence, first, n_nodes, n_labels, nodes, pairs, 10, labels, scratch.row)
        for v in range(n_nodes):
            best[v] = labels[v]
    return score, max(bound, score)


Floats = NDArray[np.float64]

SUBMODULAR_ROUNDING = 1e-14
"""Relative to the scores of an edge, what may lack of submodularity by rounding."""

LARGEST = 2**30
"""What all capacities add up to at most: flows are 32-bit numbers."""


def submodularity(tables: Floats) -> Floats:
    """How submodular an edge is: ``t[0, 0] + t[1, 1] - t[0, 1] - t[1, 0]``.

    Parameters
    ----------
    tables : ndarray of shape (..., 2, 2 or more)
    """
    like: Floats = tables[..., 0, 0] + tables[..., 1, 1] - tables[..., 0, 1] - tables[..., 1, 0]
    return like


def all_submodular(tables: Floats) -> bool:
    """Whether `submodularity` is nowhere negative, but for rounding."""
    sizes = np.abs(tables[..., :2]).sum(axis=(-2, -1))
    return bool((submodularity(tables) >= -SUBMODULAR_ROUNDING * sizes).all())


def best_cut(nodes: Floats, edges: Ints, tables: Floats) -> tuple[Ints, float]:
    """Best labels of a graph with two labels, and a bound that no labelling exceeds.

    Parameters
    ----------
    nodes : ndarray of shape (n_nodes, 2 or more)
    edges : ndarray of shape (n_edges, 2)
    tables : ndarray of shape (n_edges, 2, 2 or more)
        Scores of the labels of an edge's first (row) and second node; they must be
        submodular, see `all_submodular`.

    Returns
    -------
    labels : ndarray of shape (n_nodes,)
    bound : float
        The score of the labels but for rounding.

    Examples
    --------
    The middle of three nodes is of another opinion than its neighbours, but not very:

    >>> nodes = np.array([[0.0, 2.0], [1.0, 0.0], [0.0, 2.0]])
    >>> alike = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> best_cut(nodes, np.array([[0, 1], [1, 2]]), np.array([alike, alike]))
    (array([1, 1, 1]), 6.0)
    """
    n_nodes = len(nodes)
    first, second = edges.T
    weight = np.maximum(submodularity(tables), 0.0)
    # In favour of label 1: what is left of an edge is 0, but for -weight where they are (0, 1).
    favour = nodes[:, 1] - nodes[:, 0]
    favour += np.bincount(first, tables[:, 1, 0] - tables[:, 0, 0], n_nodes)
    favour += np.bincount(second, tables[:, 1, 1] - tables[:, 1, 0], n_nodes)
    constant = float(nodes[:, 0].sum() + tables[:, 0, 0].sum())

    total = float(np.abs(favour).sum() + weight.sum())
    scale = 2.0 ** np.floor(np.log2(LARGEST / total)) if total > 0.0 else 1.0
    network, source, sink = _network(favour * scale, edges, weight * scale)
    flow = maximum_flow(network, source, sink, method="dinic").flow

    residual = network - flow
    residual.data[residual.data < 0] = 0
    residual.eliminate_zeros()
    labels = np.ones(n_nodes + 2, dtype=np.int64)
    labels[breadth_first_order(residual, source, return_predecessors=False)] = 0

    # Label 0 is on the side of the source. What flows along an edge from first to second speaks
    # for 1 at the first and against it at the second.
    sent = np.zeros(len(edges))
    if len(edges):
        sent += np.asarray(sp.csr_matrix(flow)[first, second]).ravel() / scale
    sent = np.clip(sent, 0.0, weight)
    favour += np.bincount(first, sent, n_nodes) - np.bincount(second, sent, n_nodes)
    return labels[:n_nodes], constant + float(np.maximum(favour, 0.0).sum())


def _network(favour: Floats, edges: Ints, weight: Floats) -> tuple[sp.csr_array, int, int]:
    """Capacities from the source (label 0) over the nodes to the sink (label 1)."""
    n_nodes = len(favour)
    source, sink = n_nodes, n_nodes + 1
    own = np.arange(n_nodes)
    for_one = favour > 0.0
    tails = np.concatenate([edges[:, 0], np.where(for_one, own, source)])
    heads = np.concatenate([edges[:, 1], np.where(for_one, sink, own)])
    capacities = np.round(np.concatenate([weight, np.abs(favour)])).astype(np.int32)
    network = sp.csr_array((capacities, (tails, heads)), shape=(n_nodes + 2, n_nodes + 2))
    return network, source, sink


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
        if graph.n_labels != 2 or not all_submodular(graph.tables):
            raise ValueError("A flow needs two labels, and submodular scores of edges.")
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
