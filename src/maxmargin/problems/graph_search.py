"""The best labels of many graphs, each by the search that fits it."""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.dual.rows import make_rows
from maxmargin.engines.threads import Threads
from maxmargin.inference.flow import all_agree, best_cut
from maxmargin.inference.relaxation import Effort
from maxmargin.problems.graph_kernels import (
    GraphData,
    SearchScratch,
    score_graph,
    search_graphs,
    search_scratch,
)
from maxmargin.problems.graphs import GraphLayout, Graphs

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_MESSAGE_BYTES = 2**30
"""Memory that messages may take between searches; beyond, each search starts without."""

USUAL_PASSES = 3.0
"""Passes, there and back, of a relaxed search that starts with the messages of the last."""


class Truth(NamedTuple):
    """True labels, what wrong ones cost, and factors of that for each node."""

    labels: NDArray[np.uint16]
    loss: Floats
    scales: Floats


class Found(NamedTuple):
    """Labels of the nodes of graph ``k`` of a batch from ``starts[k]`` on, and their scores.

    No labels have a score above the `bounds`. With a truth, scores include losses.
    """

    starts: Ints
    labels: NDArray[np.uint16]
    scores: Floats
    bounds: Floats


class GraphSearch:
    """Searches for the best labels of graphs, augmented by losses if there is a truth.

    Parameters
    ----------
    graphs : Graphs
    layout : GraphLayout
    inference : {"auto", "exact", "relaxed", "flow"}
        Which searches there are. Flows are for two labels; where the weights make neighbours
        like to differ, a graph is relaxed instead.
    truth : Truth or None

    Attributes
    ----------
    is_exact : ndarray of bool, shape (n_graphs,)
        Graphs that are always searched exactly.
    """

    def __init__(
        self,
        graphs: Graphs,
        layout: GraphLayout,
        inference: str,
        truth: Truth | None = None,
    ) -> None:
        if inference == "flow" and layout.n_labels != 2:
            raise ValueError(
                f"inference='flow' is for two labels, but there are {layout.n_labels}: use "
                f"'relaxed', or 'auto'."
            )
        self.graphs, self.layout, self.inference = graphs, layout, inference
        self.elimination = graphs.elimination(layout.n_labels, inference)
        self.is_exact = self.elimination.sizes >= 0
        none = Truth(np.zeros(0, dtype=np.uint16), np.zeros((1, layout.n_columns)), np.zeros(0))
        self.data = GraphData(
            make_rows(graphs.X, 0.0), graphs.kind_rows, graphs.kind_ends, graphs.edge_kinds,
            graphs.edges, layout, graphs.incidence, self.elimination, *(truth or none),
        )  # fmt: skip
        self._scratch: list[SearchScratch] = []
        relaxed_edges = np.where(self.is_exact, 0, graphs.n_edges)
        self._cold = np.full(graphs.n_graphs, -1, dtype=np.int64)
        self._message_at = self._cold
        self.messages: Floats | None = None
        """Those of the last searches, where there is room to keep them."""
        n_messages = int(relaxed_edges.sum())
        if truth is not None and 8 * n_messages * layout.n_columns <= MOST_MESSAGE_BYTES:
            self._message_at = np.cumsum(relaxed_edges) - relaxed_edges
            self.messages = np.zeros((n_messages, layout.n_columns))

    @cached_property
    def work(self) -> float:
        """Multiplications of one search, on average."""
        graphs, layout = self.graphs, self.layout
        kinds, pairs = graphs.kind_ends[-1], layout.n_labels * layout.n_columns
        scoring = _entries(graphs.X) * layout.n_columns + kinds * _per_row(graphs.edge_rows) * pairs
        messages = graphs.n_edges[~self.is_exact].sum() * 2.0 * USUAL_PASSES * pairs
        tables = self.elimination.sizes[self.is_exact].sum() * 2.0 * layout.n_columns
        return float(scoring + messages + tables) / max(graphs.n_graphs, 1)

    def find(
        self, weights: Floats, blocks: Ints, threads: Threads, effort: Effort, quick: bool = False
    ) -> Found:
        """The best labels of some graphs at these weights.

        `effort` is that of relaxed searches. If it may be `quick`, flows are used only where
        nothing else is wanted: a relaxed search that goes on from the last one takes half the time.
        """
        by_flow = self.inference == "flow" or (self.inference == "auto" and not quick)
        starts = self.graphs.starts(blocks)
        found = Found(starts, np.empty(starts[-1], dtype=np.uint16), *np.empty((2, len(blocks))))
        tables = self.layout.table(weights), self.layout.pair_table(weights)
        # Messages of a graph must not change under the hands of another thread.
        warm = len(np.unique(blocks)) == len(blocks)
        message_at = self._message_at if warm else self._cold

        def search(numbered: tuple[int, slice]) -> None:
            scratch, part = self._scratch[numbered[0]], numbered[1]
            places = np.arange(part.start, part.stop)
            if by_flow and self.layout.n_labels == 2:
                cut = [self._cut(tables, blocks[k], k, found, scratch) for k in places]
                places = places[~np.array(cut)]
            messages = self.messages if message_at is not self._cold else self._room()
            search_graphs(
                self.data, *tables, blocks, places, *found, effort,
                messages, message_at, scratch,
            )  # fmt: skip

        parts = threads.shares(len(blocks), self.work)
        while len(self._scratch) < len(parts):
            self._scratch.append(search_scratch(self.graphs, self.elimination, self.layout))
        threads.map(search, enumerate(parts))
        return found

    def _room(self) -> Floats:
        """For messages of any one graph."""
        most = int(self.graphs.n_edges[~self.is_exact].max(initial=0))
        return np.zeros((most, self.layout.n_columns))

    def _cut(
        self, tables: tuple[Floats, Floats], g: int, k: int, found: Found, scratch: SearchScratch
    ) -> bool:
        """Search graph `g` by a flow, if that is possible, for place `k` of a batch."""
        if self.is_exact[g]:
            return False
        data, graphs = self.data, self.graphs
        floor = score_graph(data, g, *tables, scratch.nodes, scratch.pairs)
        nodes = scratch.nodes[: graphs.n_nodes[g]]
        edges = graphs.edges[graphs.edge_ends[g] : graphs.edge_ends[g + 1]]
        kinds = graphs.edge_kinds[graphs.edge_ends[g] : graphs.edge_ends[g + 1]]
        of_kinds = scratch.pairs[: 2 * (graphs.kind_ends[g + 1] - graphs.kind_ends[g]) : 2]
        if not all_agree(of_kinds):
            return False
        pairs = of_kinds[kinds]
        labels, bound = best_cut(nodes, edges, pairs)
        score = float(nodes[np.arange(len(nodes)), labels].sum())
        score += float(pairs[np.arange(len(pairs)), labels[edges[:, 0]], labels[edges[:, 1]]].sum())
        if score < floor:  # by rounding
            labels[:] = data.labels[graphs.node_ends[g] : graphs.node_ends[g + 1]]
            score = floor
        found.labels[found.starts[k] : found.starts[k + 1]] = labels
        found.scores[k], found.bounds[k] = score, max(bound, score)
        return True


def _entries(X: Any) -> float:
    return float(X.nnz if hasattr(X, "nnz") else X.size)


def _per_row(X: Any) -> float:
    return float(_entries(X) / max(X.shape[0], 1))
