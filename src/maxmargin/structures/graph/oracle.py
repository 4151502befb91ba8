"""Labelled graphs as solvers see them.

The best labels of many graphs, each by the search that fits it.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.rows import make_rows
from maxmargin.core.checks import check_indices
from maxmargin.core.cuts import Cuts
from maxmargin.core.oracle import Hinges, Oracle
from maxmargin.core.threads import Threads
from maxmargin.dual.marginal import Distributions
from maxmargin.structures.graph.graphs import GraphLayout, Graphs
from maxmargin.structures.graph.inference import all_agree, best_cut
from maxmargin.structures.graph.marginals import GraphDistributions
from maxmargin.structures.graph.relaxation import Effort
from maxmargin.structures.graph.routines import (
    GraphData,
    InferenceScratch,
    fill_cuts,
    infer_graphs,
    inference_scratch,
    measure_cuts,
    score_graph,
)

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


class GraphInference:
    """Searches for the best labels of graphs, augmented by losses if there is a truth.

    Parameters
    ----------
    graphs : Graphs
    layout : GraphLayout
    inference_method : {"auto", "exact", "relaxed", "flow"}
        Which searches there are. Flows are for two labels; where the weights make neighbours
        like to differ, a graph is relaxed instead.
    y_true : Truth or None

    Attributes
    ----------
    is_exact : ndarray of bool, shape (n_graphs,)
        Graphs that are always searched exactly.
    """

    def __init__(
        self,
        graphs: Graphs,
        layout: GraphLayout,
        inference_method: str,
        y_true: Truth | None = None,
    ) -> None:
        if inference_method == "flow" and layout.n_labels != 2:
            raise ValueError(
                f"inference_method='flow' is for two labels, but there are {layout.n_labels}: use "
                f"'relaxed', or 'auto'."
            )
        self.graphs, self.layout, self.inference_method = graphs, layout, inference_method
        self.elimination = graphs.elimination(layout.n_labels, inference_method)
        self.is_exact = self.elimination.sizes >= 0
        none = Truth(np.zeros(0, dtype=np.uint16), np.zeros((1, layout.n_columns)), np.zeros(0))
        self.data = GraphData(
            make_rows(graphs.X, 0.0), graphs.kind_rows, graphs.kind_ends, graphs.edge_kinds,
            graphs.edges, layout, graphs.incidence, self.elimination, *(y_true or none),
        )  # fmt: skip
        self._scratch: list[InferenceScratch] = []
        relaxed_edges = np.where(self.is_exact, 0, graphs.n_edges)
        self._cold = np.full(graphs.n_graphs, -1, dtype=np.int64)
        self._message_at = self._cold
        self.messages: Floats | None = None
        """Those of the last searches, where there is room to keep them."""
        n_messages = int(relaxed_edges.sum())
        if y_true is not None and 8 * n_messages * layout.n_columns <= MOST_MESSAGE_BYTES:
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
        self, weights: Floats, examples: Ints, threads: Threads, effort: Effort, quick: bool = False
    ) -> Found:
        """The best labels of some graphs at these weights.

        `effort` is that of relaxed searches. If it may be `quick`, flows are used only where
        nothing else is wanted: a relaxed search that goes on from the last one takes half the time.
        """
        by_flow = self.inference_method == "flow" or (self.inference_method == "auto" and not quick)
        starts = self.graphs.starts(examples)
        found = Found(starts, np.empty(starts[-1], dtype=np.uint16), *np.empty((2, len(examples))))
        tables = self.layout.table(weights), self.layout.pair_table(weights)
        # Messages of a graph must not change under the hands of another thread.
        warm = len(np.unique(examples)) == len(examples)
        message_at = self._message_at if warm else self._cold

        def infer(numbered: tuple[int, slice]) -> None:
            scratch, part = self._scratch[numbered[0]], numbered[1]
            places = np.arange(part.start, part.stop)
            if by_flow and self.layout.n_labels == 2:
                cut = [self._cut(tables, examples[k], k, found, scratch) for k in places]
                places = places[~np.array(cut)]
            messages = self.messages if message_at is not self._cold else self._room()
            infer_graphs(
                self.data, *tables, examples, places, *found, effort,
                messages, message_at, scratch,
            )  # fmt: skip

        parts = threads.shares(len(examples), self.work)
        while len(self._scratch) < len(parts):
            self._scratch.append(inference_scratch(self.graphs, self.elimination, self.layout))
        threads.map(infer, enumerate(parts))
        return found

    def _room(self) -> Floats:
        """For messages of any one graph."""
        most = int(self.graphs.n_edges[~self.is_exact].max(initial=0))
        return np.zeros((most, self.layout.n_columns))

    def _cut(
        self, tables: tuple[Floats, Floats], g: int, k: int, found: Found, scratch: InferenceScratch
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


QUICK = Effort(passes=10, enough=1e-4, progress=0.5)
"""Relaxed searches while training. They go on where the last one of a graph ended, so that the
bounds become tight as the weights settle."""

THOROUGH = Effort(passes=30, enough=1e-4, progress=0.1)
"""Relaxed searches when the weights have settled, and for the certificate."""

UNCERTAIN = 5.0
"""Times what is enough, excess of all bounds that calls for thorough searches."""

MOST_OUTPUTS = 4096
"""Labellings of a graph up to which they can be listed."""


class GraphOracle(Oracle):
    """Labelled graphs with compiled searches.

    Parameters
    ----------
    graphs : Graphs
    labels : ndarray of shape (n_nodes_of_all,)
        True label of each node, as numbers.
    layout : GraphLayout
    C : ndarray of shape (n_graphs,)
    loss : ndarray of shape (n_labels, n_labels)
        ``loss[a, b]``: what label b costs where a is right, at one node.
    scales : ndarray of shape (n_nodes_of_all,)
        Factor of the loss of each node.
    inference_method : {"auto", "exact", "relaxed", "flow"}
        See `GraphInference`.
    enough : float
        Excess of the bound of a relaxed search that is good enough, in parts of the hinge.
    quick : bool
        Whether relaxed searches may be quick until the weights have settled.

    Attributes
    ----------
    exact : bool
        Whether inference is exact for every graph.
    """

    def __init__(
        self,
        graphs: Graphs,
        labels: NDArray[Any],
        layout: GraphLayout,
        C: Floats,
        loss: Floats,
        scales: Floats,
        *,
        inference_method: str = "auto",
        enough: float = 1e-4,
        quick: bool = True,
    ) -> None:
        self.graphs, self.layout, self.C = graphs, layout, C
        self.n_features = layout.n_rows * layout.n_columns
        padded_loss = np.zeros((layout.n_labels, layout.n_columns))
        padded_loss[:, : layout.n_labels] = loss
        y_true = Truth(labels.astype(np.uint16), padded_loss, scales)
        self.enough, self._quick = float(enough), quick
        self.oracle_calls = GraphInference(graphs, layout, inference_method, y_true)
        self.exact = bool(self.oracle_calls.is_exact.all())

    @property
    def oracle_work(self) -> float:
        return self.oracle_calls.work

    @property
    def oracle_state(self) -> Any:
        return self._quick, self.oracle_calls.messages

    @oracle_state.setter
    def oracle_state(self, state: Any) -> None:
        self._quick, self.oracle_calls.messages = state

    def distributions(self, temperature: float) -> Distributions:
        """Marginals of the cliques, so for graphs with exact inference."""
        return GraphDistributions(self, temperature)

    def separate(self, weights: Floats, examples: Ints, threads: Threads) -> Cuts:
        effort = (QUICK if self._quick else THOROUGH)._replace(enough=self.enough)
        found = self.oracle_calls.find(weights, examples, threads, effort, self._quick)
        cuts = self._make_cuts(examples, found.starts, found.labels, threads)
        if self.exact:
            return cuts
        return cuts._replace(suboptimality=np.maximum(found.bounds - found.scores, 0.0))

    def hinges(self, cuts: Cuts, weights: Floats, examples: Ints) -> Hinges:
        found = super().hinges(cuts, weights, examples)
        if self._quick and found.most - found.least > UNCERTAIN * self.enough * found.least:
            # Nearly trained, as far as quick searches can tell: from now on by thorough ones.
            self._quick = False
            cuts = self.separate(weights, examples, Threads(1))
            found = super().hinges(cuts, weights, examples)
        return found

    def all_hinges(self, weights: Floats, threads: Threads | None = None) -> Hinges:
        self._quick = False
        return super().all_hinges(weights, threads)

    def cuts_of(self, examples: Ints, outputs: Sequence[bytes]) -> Cuts:
        # Writable, as found labels are: numba would compile the kernels again for one that is not.
        labels = np.frombuffer(bytearray().join(outputs), dtype=np.uint16)
        starts = self.graphs.starts(examples)
        if [len(output) for output in outputs] != (2 * np.diff(starts)).tolist():
            raise ValueError("The outputs are of other sizes than the graphs.")
        check_indices("labels of outputs", labels, self.layout.n_labels)
        return self._make_cuts(examples, starts, labels, Threads(1))

    def outputs(self, i: int) -> list[bytes]:
        """All labellings of graph `i`, as solvers know them.

        Raises
        ------
        ValueError
            If they are more than `MOST_OUTPUTS`.
        """
        k, n = self.layout.n_labels, int(self.graphs.n_nodes[i])
        if k**n > MOST_OUTPUTS:
            raise ValueError(
                f"Graph {i} has {n} nodes and so {k}**{n} labellings, but solvers that need all of "
                f"them can have {MOST_OUTPUTS} at most: use another, such as 'auto'."
            )
        numbers = np.arange(k**n)[:, None] // k ** np.arange(n) % k
        return [labels.tobytes() for labels in numbers.astype(np.uint16)]

    def _make_cuts(
        self, examples: Ints, starts: Ints, found: NDArray[np.uint16], threads: Threads
    ) -> Cuts:
        data = self.oracle_calls.data
        counts = np.zeros(len(examples) + 1, dtype=np.int64)
        losses = np.empty(len(examples))

        def make(part: slice) -> tuple[NDArray[np.uint32], Floats]:
            some, own = examples[part], starts[part.start :]
            room = measure_cuts(data, some, own, found, losses[part])
            columns, values = np.empty(room, dtype=np.uint32), np.empty(room)
            sums, met = np.zeros(self.n_features), np.zeros(self.n_features, dtype=np.uint8)
            used = fill_cuts(
                data, some, own, found, counts[part.start + 1 :], columns, values, sums, met
            )
            return columns[:used], values[:used]

        parts = threads.shares(len(examples), self.oracle_calls.work)
        made = threads.map(make, parts) or [(np.zeros(0, dtype=np.uint32), np.zeros(0))]
        columns, values = (np.concatenate(pieces) for pieces in zip(*made, strict=True))
        raw = found.tobytes()
        outputs = [raw[2 * a : 2 * b] for a, b in pairwise(starts.tolist())]
        return Cuts(np.cumsum(counts), columns, values, losses, outputs)
