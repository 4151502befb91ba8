"""Labels for the nodes of graphs: scores from the features of nodes and of edges.

The weights of a graph problem are a table with one column for each label, padded for the vector
kernels; flat, it is the weight vector that solvers see:

    rows 0 .. d-1          features of nodes
    one row                bias, where the problem has one
    k rows a feature       features of edges: feature j with label a at the edge's first node (row
                           j * k + a) and label b at its second (column)

Where edges have no direction, the pairs (a, b) and (b, a) are one: only rows a <= columns b are
used.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.compiled.rows import Rows, make_rows
from maxmargin.compiled.simd import padded
from maxmargin.core.registry import registered
from maxmargin.structures.graph.incidence import Incidence, make_incidence
from maxmargin.structures.graph.junction_tree import Elimination, make_elimination

Floats = NDArray[np.float64]

Ints = NDArray[np.int64]


METHODS = ("auto", "exact", "relaxed", "flow")


AUTO_PASSES = 100
"""Messages along each edge that an exact search may cost and still be chosen by itself."""


MOST_ENTRIES = float(2**26)
"""Entries of all tables of a graph up to which an exact search is made if it is asked for."""


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
        """Plans of exact searches, for the graphs that are to be searched so.

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
                f"Graph {g} cannot be searched exactly: its treewidth is about {width} or more, "
                f"but with {n_labels} labels the limit is {most}; inference_method='relaxed' finds "
                f"good labels and a bound, though no marginals."
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
