"""Labels for the nodes of graphs: scores from the features of nodes and of edges.

The weights of a graph problem are a table with one column for each label, padded for vector
instructions; flat, it is the weight vector that solvers see:

    rows 0 .. d-1          features of nodes
    one row                bias, where the problem has one
    k rows a feature       features of edges: feature j with label a at the edge's first node (row
                           j * k + a) and label b at its second (column)

Where edges have no direction, the pairs (a, b) and (b, a) are one: only rows a <= columns b are
used.

The cliques of labelled graphs and the probabilities of their labels, in plain numpy.

This is how dual points are evaluated and checked. It knows of an elimination only which node comes
in which place and with which scope; it shares no code with inference.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.compiled.rows import Rows, make_rows
from maxmargin.compiled.simd import padded
from maxmargin.core.checks import check_indices, check_offsets, check_shape
from maxmargin.core.oracle import starts_of
from maxmargin.core.registry import registered
from maxmargin.dual.marginal import CHUNK
from maxmargin.structures.graph.junction_tree import (
    Elimination,
    Incidence,
    make_elimination,
    make_incidence,
)

Floats = NDArray[np.float64]

Ints = NDArray[np.int64]


METHODS = ("auto", "exact", "relaxed", "flow")


AUTO_PASSES = 100
"""Messages along each edge that exact inference may cost and still be chosen by itself."""


MOST_ENTRIES = float(2**26)
"""Entries of all tables of a graph up to which inference is exact if that is asked for."""


@registered("GraphLayout", check="check")
class GraphLayout(NamedTuple):
    """Where in the weight table the parts of a graph model stand; -1 for a part it has not."""

    n_labels: int
    n_features: int
    n_edge_features: int
    bias: int
    pairs: int
    directed: bool
    n_rows: int
    n_columns: int

    @classmethod
    def of(
        cls, n_features: int, n_edge_features: int, n_labels: int, *, bias: bool, directed: bool
    ) -> "GraphLayout":
        """Rows one after the other."""
        return cls(
            n_labels=n_labels,
            n_features=n_features,
            n_edge_features=n_edge_features,
            bias=n_features if bias else -1,
            pairs=n_features + bias,
            directed=directed,
            n_rows=n_features + bias + n_edge_features * n_labels,
            n_columns=padded(n_labels),
        )

    def check(self) -> None:
        """Raise ValueError if this is no layout that `of` makes."""
        sizes = self.n_features, self.n_edge_features, self.n_labels
        made = GraphLayout.of(*sizes, bias=self.bias >= 0, directed=self.directed)
        if min(sizes) < 0 or self.n_labels < 1 or self != made:
            raise ValueError("the parts of the graph model do not fit together")

    def table(self, weights: Floats) -> Floats:
        """The weight vector as a table."""
        return weights.reshape(self.n_rows, self.n_columns)

    def pair_table(self, weights: Floats) -> Floats:
        """Weights of edges, one row a feature: all pairs of labels, flat."""
        flat = weights[self.pairs * self.n_columns :]
        return flat.reshape(self.n_edge_features, self.n_labels * self.n_columns)


@dataclass(frozen=True)
class Graphs:
    """Nodes and edges of all graphs, one graph after the other.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n_nodes_of_all, n_features)
    node_ends : ndarray of int64, shape (n_graphs + 1,)
        Graph ``g`` has the rows ``node_ends[g]:node_ends[g + 1]``.
    edges : ndarray of int64, shape (n_edges_of_all, 2)
        First and second node, counted from 0 in each graph; no loops, and two nodes share one
        edge at most.
    edge_ends : ndarray of int64, shape (n_graphs + 1,)
    edge_rows : ndarray or CSR matrix of shape (n_edges_of_all, n_edge_features)
    """

    X: Any
    node_ends: Ints
    edges: Ints
    edge_ends: Ints
    edge_rows: Any

    @property
    def n_graphs(self) -> int:
        """Number of graphs."""
        return len(self.node_ends) - 1

    @cached_property
    def n_nodes(self) -> Ints:
        """Nodes of each graph."""
        return np.diff(self.node_ends)

    @cached_property
    def n_edges(self) -> Ints:
        """Edges of each graph."""
        return np.diff(self.edge_ends)

    @cached_property
    def is_forest(self) -> NDArray[np.bool_]:
        """Whether each graph is without loops."""
        n = int(self.node_ends[-1])
        ends = self.edges + np.repeat(self.node_ends[:-1], self.n_edges)[:, None]
        links = sp.coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(n, n))
        pieces = sp.csgraph.connected_components(links, directed=False)[1]
        one_each = np.unique(pieces, return_index=True)[1]
        graph = np.repeat(np.arange(self.n_graphs), self.n_nodes)
        n_pieces = np.bincount(graph[one_each], minlength=self.n_graphs)
        forest: NDArray[np.bool_] = self.n_edges == self.n_nodes - n_pieces
        return forest

    @cached_property
    def _kinds(self) -> tuple[Ints, Ints, Ints]:
        """Of each edge its kind, counted in its graph; where kinds start; an edge of each."""
        graph = np.repeat(np.arange(self.n_graphs), self.n_edges)
        n_edges, width = self.edge_rows.shape
        # Equal features have equal sums with random weights, hardly ever others: this is checked.
        sums = self.edge_rows @ np.random.default_rng(0).uniform(1.0, 2.0, width)
        order = np.lexsort((sums, graph))
        changes = np.ones(n_edges, dtype=bool)
        changes[1:] = (np.diff(graph[order]) > 0) | (np.diff(sums[order]) != 0.0)
        number = np.cumsum(changes) - 1
        rows = order[np.flatnonzero(changes)]
        of_edge = np.empty(n_edges, dtype=np.int64)
        of_edge[order] = number
        if (self.edge_rows != self.edge_rows[rows[of_edge]]).sum():
            rows = of_edge = np.arange(n_edges)
        starts = np.searchsorted(graph[rows], np.arange(self.n_graphs + 1)).astype(np.int64)
        return of_edge - starts[graph], starts, rows

    @property
    def kind_ends(self) -> Ints:
        """Where the kinds of each graph's edges start in `kind_rows`."""
        return self._kinds[1]

    @cached_property
    def kind_rows(self) -> Rows:
        """Features of the edges of each kind."""
        return make_rows(self.edge_rows[self._kinds[2]], 0.0)

    @cached_property
    def incidence(self) -> Incidence:
        """Edges at each node."""
        return make_incidence(self.node_ends, self.edge_ends, self.edges, self._kinds[0])

    @cached_property
    def edge_kinds(self) -> Ints:
        """Kind of each edge, counted in its graph."""
        return self._kinds[0]

    def elimination(self, n_labels: int, inference_method: str) -> Elimination:
        """Plans of exact inference, for the graphs that are to have it.

        Raises
        ------
        ValueError
            If ``inference_method="exact"`` is too much for a graph.
        """
        entries = AUTO_PASSES * self.n_edges * float(n_labels**2)
        limits = {
            "exact": np.full(self.n_graphs, MOST_ENTRIES),
            "auto": np.where(self.is_forest, np.inf, np.minimum(entries, MOST_ENTRIES)),
        }.get(inference_method, np.full(self.n_graphs, -1.0))
        found, given_up = make_elimination(self.incidence, self.edges, n_labels, limits)
        if given_up and inference_method == "exact":
            g, width = next(iter(given_up.items()))
            most = min(width - 1, int(np.log(MOST_ENTRIES) / np.log(max(n_labels, 2))) - 1)
            raise ValueError(
                f"Graph {g} is too much for exact inference: its treewidth is about {width} or "
                f"more, but with {n_labels} labels the limit is {most}; inference_method='relaxed' "
                f"finds good labels and a bound, though no marginals."
            )
        return found

    def starts(self, which: Ints) -> Ints:
        """Where the nodes of each of some graphs start when these stand one after the other."""
        starts = np.zeros(len(which) + 1, dtype=np.int64)
        np.cumsum(self.n_nodes[which], out=starts[1:])
        return starts

    def keeping(self, kept: NDArray[np.bool_]) -> "Graphs":
        """The same without some of the nodes, and the edges at these."""
        if kept.all():
            return self
        offsets = np.repeat(self.node_ends[:-1], self.n_edges)[:, None]
        edges = self.edges + offsets
        stay = kept[edges].all(axis=1)
        before = np.concatenate([[0], np.cumsum(kept)])
        node_ends = before[self.node_ends]
        edge_ends = np.concatenate([[0], np.cumsum(stay)])[self.edge_ends]
        kept_edges = before[edges[stay]] - np.repeat(node_ends[:-1], np.diff(edge_ends))[:, None]
        return Graphs(self.X[kept], node_ends, kept_edges, edge_ends, self.edge_rows[stay])


@registered("CliqueTree", check="check")
@dataclass(frozen=True, eq=False)
class CliqueTree:
    """Cliques of graphs that are eliminated node by node: each node with its scope.

    A vector of `n_numbers` numbers has a probability for all labellings of each clique, one clique
    after the other: the label of the node runs fastest, then that of the first of its scope.

    Parameters
    ----------
    n_labels : int
    nodes : ndarray of int64, shape (n_nodes_of_all,)
        The node in each place, counted over all graphs.
    scope_starts : ndarray of int64, shape (n_nodes_of_all + 1,)
    scope : ndarray of int64
        Places of the nodes in the scope of each place, all later than it, in rising order.
    """

    n_labels: int
    nodes: Ints
    scope_starts: Ints
    scope: Ints

    def check(self) -> None:
        """Raise ValueError if a scope names places that there are not."""
        check_offsets("scope_starts", self.scope_starts, len(self.scope))
        check_shape("scope_starts", self.scope_starts, len(self.nodes) + 1)
        check_indices("scope", self.scope, len(self.nodes))
        check_indices("nodes", self.nodes, len(self.nodes))

    @cached_property
    def widths(self) -> Ints:
        """How many nodes each scope has."""
        return np.diff(self.scope_starts)

    @cached_property
    def starts(self) -> Ints:
        """Where the numbers of each clique start, and the last one's end."""
        return starts_of(self.n_labels ** (self.widths + 1))

    @cached_property
    def places(self) -> Ints:
        """The place of each node."""
        places = np.empty_like(self.nodes)
        places[self.nodes] = np.arange(len(self.nodes))
        return places

    @property
    def n_numbers(self) -> int:
        """Numbers of all cliques."""
        return int(self.starts[-1])

    def is_like(self, other: "CliqueTree") -> bool:
        """Whether numbers of one are numbers of the other."""
        return self.n_labels == other.n_labels and all(
            np.array_equal(own, others)
            for own, others in [
                (self.nodes, other.nodes),
                (self.scope_starts, other.scope_starts),
                (self.scope, other.scope),
            ]
        )

    def even(self) -> Floats:
        """All labellings alike."""
        sizes = np.diff(self.starts)
        return np.repeat(1.0 / sizes, sizes)

    def places_of(self, labels: NDArray[np.integer]) -> Ints:
        """Where each clique has its number for these labels of the nodes."""
        of_place = labels.astype(np.int64)[self.nodes]
        at = self.starts[:-1] + of_place
        powers = self.n_labels ** (1 + np.arange(len(self.scope)) - self.scope_starts[self._owners])
        np.add.at(at, self._owners, powers * of_place[self.scope])
        return at

    def node_marginals(self, mass: Floats) -> Floats:
        """Probabilities of labels, ``(n_nodes, n_labels)``."""
        marginals = np.empty((len(self.nodes), self.n_labels))
        for some in _alike(self.widths, self.n_labels ** (self.widths + 1)):
            tables = self._tables(mass, some)
            marginals[self.nodes[some]] = tables.reshape(len(some), -1, self.n_labels).sum(axis=1)
        return marginals

    def covers(self, edges: Ints) -> bool:
        """Whether the nodes of each edge, counted over all graphs, are together in a clique."""
        return bool((self._edge_places(edges)[1] >= 0).all())

    def edge_marginals(self, mass: Floats, edges: Ints) -> Floats:
        """Probabilities of pairs of labels, ``(n_edges, n_labels, n_labels)``.

        The labels of the edge's first node are the rows. The edges must be covered.
        """
        n = self.n_labels
        marginals = np.empty((len(edges), n, n))
        own, position = self._edge_places(edges)
        width = self.widths[own]
        for some in _alike(width * (1 + width.max(initial=0)) + position, n ** (width + 1)):
            k, i = int(width[some[0]]), int(position[some[0]])
            tables = self._tables(mass, own[some]).reshape(-1, n ** (k - 1 - i), n, n**i, n)
            pairs = tables.sum(axis=(1, 3))
            swapped = self.nodes[own[some]] == edges[some, 0]
            marginals[some] = np.where(swapped[:, None, None], pairs.transpose(0, 2, 1), pairs)
        return marginals

    def is_distribution(self, mass: Floats, tolerance: float) -> bool:
        """Whether these are the probabilities of cliques under a distribution over labellings.

        They are if none is negative, cliques without a scope sum to one, and every other agrees on
        the labels of its scope with a later clique, which has all of it: from the last place to
        the first, the labels of a node can then be drawn given those of its scope, and all cliques
        come out with these probabilities.
        """
        if mass.shape != (self.n_numbers,) or not (mass >= 0.0).all() or not self._is_tree:
            return False
        roots = self.starts[:-1][self.widths == 0]
        totals = mass[roots[:, None] + np.arange(self.n_labels)].sum(axis=1)
        off = np.abs(totals - 1.0).max(initial=0.0)
        return bool(max(off, self._disagreement(mass)) <= tolerance)

    def _disagreement(self, mass: Floats) -> float:
        """By how much cliques differ at most in the labels that they share with the next."""
        n, off = self.n_labels, 0.0
        below = np.flatnonzero(self.widths)
        above = self.scope[self.scope_starts[below]]
        width, shared = self.widths[above], self._shared[below]
        sizes = n ** (np.maximum(width, self.widths[below]) + 1)
        for some in _alike(width + (1 + width.max(initial=0)) * shared, sizes):
            k, kept = int(width[some[0]]), int(shared[some[0]])
            # Axes of a clique: its scope from the last to the first, then the node itself.
            dropped = tuple(k - i for i in range(k) if not kept >> i & 1)
            tables = self._tables(mass, above[some]).reshape(-1, *[n] * (k + 1))
            theirs = tables.sum(axis=dropped).reshape(len(some), -1)
            own = self._tables(mass, below[some]).reshape(*theirs.shape, n).sum(axis=2)
            off = max(off, float(np.abs(own - theirs).max()))
        return off

    @cached_property
    def _owners(self) -> Ints:
        """The place that each entry of `scope` belongs to."""
        return np.repeat(np.arange(len(self.nodes)), self.widths)

    @cached_property
    def _shared(self) -> Ints:
        """Which of the next clique's scope each scope has, besides its node: bits; -1 for others.

        The next clique is that of the scope's first node.
        """
        rest = np.flatnonzero(np.arange(len(self.scope)) > self.scope_starts[self._owners])
        owners = self._owners[rest]
        positions = self._positions(self.scope[self.scope_starts[owners]], self.scope[rest])
        shared = np.zeros(len(self.nodes), dtype=np.int64)
        np.add.at(shared, owners, 1 << np.maximum(positions, 0))
        shared[owners[positions < 0]] = -1
        return shared

    @cached_property
    def _is_tree(self) -> bool:
        """Whether scopes are in order, and each is part of the clique of its first node."""
        keys = self._keys
        rising = (np.diff(keys) > 0).all() and (self.scope > self._owners).all()
        return bool(rising and (self._shared >= 0).all())

    @cached_property
    def _keys(self) -> Ints:
        """A number for each place with a place in its scope, in rising order."""
        return self._owners * len(self.nodes) + self.scope

    def _positions(self, owners: Ints, members: Ints) -> Ints:
        """Where in the scopes of some places others are; -1 if not there."""
        wanted = owners * len(self.nodes) + members
        at = np.searchsorted(self._keys, wanted)
        there = np.append(self._keys, -1)[at] == wanted
        return np.where(there, at - self.scope_starts[owners], -1)

    def _edge_places(self, edges: Ints) -> tuple[Ints, Ints]:
        """The earlier place of each edge, and where in its scope the later one is; -1 if not."""
        ends = np.sort(self.places[edges], axis=1)
        return ends[:, 0], self._positions(ends[:, 0], ends[:, 1])

    def _tables(self, mass: Floats, places: Ints) -> Floats:
        """Numbers of some cliques of the same width, one row each."""
        size = self.n_labels ** (int(self.widths[places[0]]) + 1)
        tables: Floats = mass[self.starts[places][:, None] + np.arange(size)]
        return tables


def _alike(kinds: Ints, sizes: Ints) -> Iterator[Ints]:
    """Places of things of the same kind, so many at a time as may be copied.

    `sizes` is how many numbers each has; those of one kind have equally many, or less.
    """
    order = np.argsort(kinds, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(kinds[order])) + 1):
        if len(group):
            count = max(1, CHUNK // int(sizes[group].max()))
            yield from (group[i : i + count] for i in range(0, len(group), count))
