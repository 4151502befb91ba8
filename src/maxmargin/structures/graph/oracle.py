"""Separation oracle over labelled graphs: exact, by minimum cuts, or relaxed with a bound.

The weights are a table, flat for solvers, with one column a label, padded for SIMD; its rows are
node features, a bias, and k rows for each edge feature j: row ``j * k + a`` for label a at the
first node, column b at the second; only a <= b where edges have no direction.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.compiled.rows import Rows, add_row_scores, locked, make_rows, padded
from maxmargin.core.arrays import Floats, check_indices
from maxmargin.core.cuts import Cuts, starts_of
from maxmargin.core.oracle import CompiledOracle, Entries, Threads
from maxmargin.core.registry import registered
from maxmargin.dual.marginal import Distributions
from maxmargin.structures.graph.inference import (
    Effort,
    Elimination,
    Incidence,
    Ints,
    Labelling,
    RelaxationScratch,
    all_submodular,
    best_cut,
    best_exact,
    find_cycles,
    labelling_score,
    make_elimination,
    make_incidence,
    marginals_exact,
    relax,
    relaxation_scratch,
)

Labels = NDArray[np.uint16]

METHODS = ("auto", "exact", "relaxed", "flow")

AUTO_PASSES = 100
"""Cost of exact inference, in messages along each edge, up to which "auto" chooses it."""

MOST_ENTRIES = float(2**26)
"""Table entries of a graph up to which inference may be exact; with "exact", more are an error."""

MOST_MESSAGE_BYTES = 2**30
"""Memory for the messages of a run; beyond, each call starts without."""

USUAL_PASSES = 3.0
"""Typical passes, forward and backward, of relaxed inference with a warm start."""

QUICK = Effort(passes=10, progress=0.5)
"""Effort of the first calls for a graph in a run, each with a warm start."""

THOROUGH = Effort(passes=30, progress=0.1)
"""Effort where quick inference stays too loose, and without a warm start."""

ANSWER = Effort(passes=100, progress=0.02)
"""Effort for predictions, which start without messages."""

UNCERTAIN = 5.0
"""Suboptimality bound, in multiples of `enough`, that calls for thorough inference."""

MOST_OUTPUTS = 4096
"""Labellings of a graph up to which they are enumerated."""


@registered("GraphLayout", check="check")
class GraphLayout(NamedTuple):
    """Rows of the weight table where the parts of a graph model stand; -1 for a part it has not."""

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
        """Lay out the parts one after the other."""
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
        return weights.reshape(self.n_rows, self.n_columns)


@dataclass(frozen=True)
class Graphs:
    """Nodes and edges of all graphs concatenated, nodes counted from 0 in each.

    Graph ``g`` has the rows ``node_ends[g]:node_ends[g + 1]`` of `X`, and those from
    ``edge_ends[g]`` to ``edge_ends[g + 1]`` of `edges` ``(n_edges_of_all, 2)`` and `edge_rows`. No
    loops, no parallel edges.
    """

    X: Any
    node_ends: Ints
    edges: Ints
    edge_ends: Ints
    edge_rows: Any

    @property
    def n_graphs(self) -> int:
        return len(self.node_ends) - 1

    @cached_property
    def n_nodes(self) -> Ints:
        return self.node_ends[1:] - self.node_ends[:-1]

    @cached_property
    def n_edges(self) -> Ints:
        return self.edge_ends[1:] - self.edge_ends[:-1]

    @property
    def all_edges(self) -> Ints:
        """Edges with nodes counted over all graphs."""
        return self.edges + np.repeat(self.node_ends[:-1], self.n_edges)[:, None]

    @cached_property
    def is_forest(self) -> NDArray[np.bool_]:
        forest = np.ones(self.n_graphs, dtype=np.bool_)
        above = np.arange(self.node_ends[-1])
        find_cycles(self.node_ends, self.edge_ends, self.edges, above, forest)
        return forest

    @cached_property
    def _kinds(self) -> tuple[Ints, Ints, Ints]:
        """Kind of each edge in its graph; where kinds of each graph start; an edge of each kind."""
        n_edges, width = self.edge_rows.shape
        graph = np.repeat(np.arange(self.n_graphs), self.n_edges)
        if not sp.issparse(self.edge_rows) and (self.edge_rows == self.edge_rows[:1]).all():
            # One kind in all, as of edges without features.
            has_edges = self.n_edges > 0
            return np.zeros(n_edges, np.int64), starts_of(has_edges), self.edge_ends[:-1][has_edges]
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
        """Where the kinds of each graph start in `kind_rows`."""
        return self._kinds[1]

    @cached_property
    def kind_rows(self) -> Rows:
        return make_rows(self.edge_rows[self._kinds[2]], 0.0)

    @cached_property
    def incidence(self) -> Incidence:
        return make_incidence(self.node_ends, self.edge_ends, self.edges, self._kinds[0])

    @cached_property
    def edge_kinds(self) -> Ints:
        """Kind of each edge, counted in its graph."""
        return self._kinds[0]

    def elimination(self, n_labels: int, inference_method: str) -> Elimination:
        """Eliminations for exact inference; ValueError if "exact" is too much for a graph."""
        limits = np.full(self.n_graphs, MOST_ENTRIES if inference_method == "exact" else -1.0)
        if inference_method == "auto":
            entries = AUTO_PASSES * self.n_edges * float(n_labels**2)
            limits = np.where(self.is_forest, np.inf, np.minimum(entries, MOST_ENTRIES))
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

    def keeping(self, kept: NDArray[np.bool_]) -> "Graphs":
        """The graphs with the nodes `kept` only, and the edges among them."""
        if kept.all():
            return self
        edges = self.all_edges
        stay = kept[edges].all(axis=1)
        before = np.concatenate([[0], np.cumsum(kept)])
        node_ends = before[self.node_ends]
        edge_ends = np.concatenate([[0], np.cumsum(stay)])[self.edge_ends]
        kept_edges = before[edges[stay]] - np.repeat(node_ends[:-1], np.diff(edge_ends))[:, None]
        return Graphs(self.X[kept], node_ends, kept_edges, edge_ends, self.edge_rows[stay])


class GraphInference:
    """MAP inference for graphs, loss-augmented if there are true labels.

    `y_true` are these, the loss of others, and the factor of each node's loss. Flow is for two
    labels, and falls back to relaxed inference where weights are not submodular. Graphs that
    `is_exact` marks always have exact inference.
    """

    def __init__(
        self,
        graphs: Graphs,
        layout: GraphLayout,
        inference_method: str,
        y_true: tuple[Labels, Floats, Floats] | None = None,
    ) -> None:
        if inference_method == "flow" and layout.n_labels != 2:
            raise ValueError(
                f"inference_method='flow' is for two labels, but there are {layout.n_labels}: use "
                f"'relaxed', or 'auto'."
            )
        self.graphs, self.layout, self.inference_method = graphs, layout, inference_method
        self.elimination = graphs.elimination(layout.n_labels, inference_method)
        self.is_exact = self.elimination.sizes >= 0
        none = np.zeros(0, dtype=np.uint16), np.zeros((1, layout.n_columns)), np.zeros(0)
        self.data = GraphData(
            make_rows(graphs.X, 0.0), graphs.kind_rows, graphs.kind_ends, graphs.edge_kinds,
            graphs.edges, layout, graphs.incidence, self.elimination, *(y_true or none),
        )  # fmt: skip
        self._unused: list[InferenceScratch] = []

    @cached_property
    def work(self) -> float:
        """Multiplications of one call, on average."""
        graphs, layout = self.graphs, self.layout
        kinds, pairs = graphs.kind_ends[-1], layout.n_labels * layout.n_columns
        of_edges = _entries(graphs.edge_rows) / max(graphs.edge_rows.shape[0], 1)
        scoring = _entries(graphs.X) * layout.n_columns + kinds * of_edges * pairs
        messages = graphs.n_edges[~self.is_exact].sum() * 2.0 * USUAL_PASSES * pairs
        tables = self.elimination.sizes[self.is_exact].sum() * 2.0 * layout.n_columns
        return float(scoring + messages + tables) / max(graphs.n_graphs, 1)

    @cached_property
    def most_entries(self) -> Ints:
        """Upper bound on the entries of a cut of each graph."""
        data, graphs, layout = self.data, self.graphs, self.layout
        kinds = np.repeat(data.kind_ends[:-1], graphs.n_edges) + data.edge_kinds
        of_edges = starts_of(np.diff(data.kind_rows.starts)[kinds])
        counts = np.diff(data.rows.starts[graphs.node_ends]) + np.diff(of_edges[graphs.edge_ends])
        counts += (layout.bias >= 0) * graphs.n_nodes
        most: Ints = np.minimum(2 * counts, layout.n_rows * layout.n_columns)
        return most

    def infer(
        self,
        weights: Floats,
        examples: Ints,
        starts: Ints,
        found: Labels,
        effort: Effort,
        messages: "Messages | None" = None,
        quick: NDArray[np.bool_] | None = None,
    ) -> tuple[Floats, Floats]:
        """Write the best labels of a batch to `found`; returns their scores, and upper bounds.

        Relaxed inference starts from `messages` and leaves its own there; on `quick` graphs it is
        tried before flows, which take twice as long.
        """
        table = locked(self.layout.table(weights))
        scores, bounds = np.empty((2, len(examples)))
        places = np.arange(len(examples))
        quick = np.zeros(len(examples), dtype=np.bool_) if quick is None else quick
        start = messages or self._no_messages
        scratch = self._unused.pop() if self._unused else self.scratch()
        if self.layout.n_labels == 2 and self.inference_method in ("flow", "auto"):
            by_flow = ~self.is_exact[examples] & (~quick | (self.inference_method == "flow"))
            for k in np.flatnonzero(by_flow):
                cut = self._cut(table, examples[k], scratch)
                if cut is not None:
                    found[starts[k] : starts[k + 1]], scores[k], bounds[k] = cut
                    places = places[places != k]
        for some, most in ((places[~quick[places]], effort), (places[quick[places]], QUICK)):
            if len(some):
                infer_graphs(
                    self.data, table, examples, some, starts, found, scores, bounds,
                    most._replace(enough=effort.enough), *start, scratch,
                )  # fmt: skip
        self._unused.append(scratch)
        return scores, bounds

    def best_labels(self, weights: Floats, threads: Threads) -> tuple[Labels, Floats]:
        """Best labels of all nodes, and the score of each graph."""
        everything = np.arange(self.graphs.n_graphs, dtype=np.int64)
        labels = np.empty(int(self.graphs.node_ends[-1]), dtype=np.uint16)

        def infer(part: slice) -> Floats:
            starts = self.graphs.node_ends[part.start :]
            return self.infer(weights, everything[part], starts, labels, ANSWER)[0]

        if threads.n_threads == 1:
            return labels, infer(slice(0, None))
        parts = threads.shares(len(everything), self.work)
        return labels, np.concatenate([np.zeros(0), *threads.map(infer, parts)])

    def marginals(self, weights: Floats, temperature: float) -> list[Floats]:
        """Marginals by ``exp(score / temperature)`` of the labels of graphs that are all exact."""
        graphs, scratch = self.graphs, self.scratch()
        table = locked(self.layout.table(weights / temperature))
        n_kinds = np.diff(graphs.kind_ends)
        found = []
        for g in range(graphs.n_graphs):
            nodes, pairs = scratch.nodes[: graphs.n_nodes[g]], scratch.pairs[: 2 * n_kinds[g]]
            score_graph(self.data, g, table, nodes, pairs)
            found.append(marginals_exact(self.elimination, graphs.incidence, g, nodes, pairs).nodes)
        return found

    def scratch(self) -> "InferenceScratch":
        """Scratch large enough for any of the graphs."""
        graphs, layout = self.graphs, self.layout
        n_nodes = int(graphs.n_nodes.max(initial=1))
        n_kinds = int(np.diff(graphs.kind_ends).max(initial=1))
        return InferenceScratch(
            np.zeros((n_nodes, layout.n_columns)),
            np.zeros((2 * n_kinds, layout.n_labels, layout.n_columns)),
            np.zeros(n_nodes, dtype=np.int64),
            np.empty(max(int(self.elimination.sizes.max(initial=0)), 0)),
            relaxation_scratch(n_nodes, layout.n_columns),
        )

    @property
    def _no_messages(self) -> "Messages":
        """Scratch for the messages of any one graph."""
        most = int(self.graphs.n_edges[~self.is_exact].max(initial=0))
        at = np.full(self.graphs.n_graphs, -1, dtype=np.int64)
        return Messages(np.zeros((most, self.layout.n_columns)), at)

    def _cut(self, table: Floats, g: int, scratch: "InferenceScratch") -> Labelling | None:
        """Labels, score and bound of graph `g` by minimum cut; None if it is not submodular."""
        data, graphs = self.data, self.graphs
        floor = score_graph(data, g, table, scratch.nodes, scratch.pairs)
        nodes = scratch.nodes[: graphs.n_nodes[g]]
        edges = graphs.edges[graphs.edge_ends[g] : graphs.edge_ends[g + 1]]
        kinds = graphs.edge_kinds[graphs.edge_ends[g] : graphs.edge_ends[g + 1]]
        of_kinds = scratch.pairs[: 2 * (graphs.kind_ends[g + 1] - graphs.kind_ends[g]) : 2]
        if not all_submodular(of_kinds):
            return None
        cut = best_cut(nodes, edges, of_kinds[kinds])
        if cut.score < floor:  # by rounding
            y_true = data.labels[graphs.node_ends[g] : graphs.node_ends[g + 1]]
            return Labelling(y_true.astype(np.int64), floor, max(cut.bound, floor))
        return cut


def _entries(X: Any) -> float:
    return float(X.nnz if hasattr(X, "nnz") else X.size)


class GraphOracle(CompiledOracle):
    """Separation oracle over labelled graphs, with compiled inference.

    Label b where a is true costs ``loss[a, b]`` times `scales` ``(n_nodes_of_all,)`` of the node.
    Relaxed inference may stop at a suboptimality bound of `enough` times the hinge.
    """

    output_dtype = np.uint16

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
    ) -> None:
        self.graphs, self.layout, self.C = graphs, layout, C
        self.n_features, self.output_sizes = layout.n_rows * layout.n_columns, graphs.n_nodes
        padded_loss = np.zeros((layout.n_labels, layout.n_columns))
        padded_loss[:, : layout.n_labels] = loss
        y_true = labels.astype(np.uint16), padded_loss, scales
        self.effort = THOROUGH._replace(enough=float(enough))
        self.inference = GraphInference(graphs, layout, inference_method, y_true)
        self.exact = bool(self.inference.is_exact.all())

    @property
    def oracle_work(self) -> float:
        return self.inference.work

    def warm(self) -> CompiledOracle:
        return self if self.exact else WarmGraphOracle(self)

    def distributions(self, temperature: float) -> Distributions:
        """Clique marginals, for graphs with exact inference."""
        from maxmargin.structures.graph.marginals import GraphDistributions

        return GraphDistributions(self, temperature)

    def infer(self, weights: Floats, examples: Ints, starts: Ints, found: Labels) -> Floats | None:
        scores, bounds = self.inference.infer(weights, examples, starts, found, self.effort)
        return None if self.exact else np.maximum(bounds - scores, 0.0)

    def check_outputs(self, examples: Ints, starts: Ints, found: Labels) -> None:
        check_indices("labels of outputs", found, self.layout.n_labels)

    def outputs(self, i: int) -> list[bytes]:
        """All labellings of graph `i`, in bytes; ValueError if they are too many."""
        k, n = self.layout.n_labels, int(self.graphs.n_nodes[i])
        if k**n > MOST_OUTPUTS:
            raise ValueError(
                f"Graph {i} has {n} nodes and so {k}**{n} labellings, but solvers that need all of "
                f"them can have {MOST_OUTPUTS} at most: use another, such as 'auto'."
            )
        numbers = np.arange(k**n)[:, None] // k ** np.arange(n) % k
        return [labels.tobytes() for labels in numbers.astype(np.uint16)]

    def entries_of(self, examples: Ints, starts: Ints, found: Labels) -> Entries:
        room = int(self.inference.most_entries[examples].sum())
        columns, values = np.empty(room, dtype=np.uint32), np.empty(room)
        sums, met = np.zeros(self.n_features), np.zeros(self.n_features, dtype=np.uint8)
        counts, losses = np.zeros(len(examples), dtype=np.int64), np.empty(len(examples))
        where = self.inference.data, examples, starts, found
        used = fill_cuts(*where, counts, columns, values, losses, sums, met)
        return starts_of(counts), columns[:used], values[:used], losses


class WarmGraphOracle(GraphOracle):
    """The oracle of one run, whose relaxed inference starts from the messages of the last call.

    Inference for a graph is quick until, warm-started, it once stayed too far from its bound.
    """

    def __init__(self, oracle: GraphOracle) -> None:
        vars(self).update(vars(oracle))
        self._cold = oracle
        edges = np.where(self.inference.is_exact, 0, self.graphs.n_edges)
        n_messages = int(edges.sum())
        self.messages: Messages | None = None
        if 8 * n_messages * self.layout.n_columns <= MOST_MESSAGE_BYTES:
            values = np.zeros((n_messages, self.layout.n_columns))
            self.messages = Messages(values, np.cumsum(edges) - edges)
        self.calls = np.zeros(len(self.C), dtype=np.int64)
        """Of each graph; -1 if inference is to be thorough."""

    @property
    def cold(self) -> GraphOracle:
        return self._cold

    @property
    def content(self) -> Any:
        return self._cold.content

    @property
    def oracle_state(self) -> Any:
        return self.calls, None if self.messages is None else self.messages.values

    @oracle_state.setter
    def oracle_state(self, state: Any) -> None:
        self.calls, values = state
        if self.messages is not None:
            self.messages = self.messages._replace(values=values)

    def separate(self, weights: Floats, examples: Ints, threads: Threads) -> Cuts:
        # Messages of a graph must not change under the hands of another thread.
        if self.messages is None or len(np.unique(examples)) < len(examples):
            return self._cold.separate(weights, examples, threads)
        cuts = super().separate(weights, examples, threads)
        calls = self.calls[examples]
        loose = (calls > 0) & self._is_loose(cuts, weights)
        self.calls[examples] = np.where((calls < 0) | loose, -1, calls + 1)
        return super().separate(weights, examples, threads) if loose.any() else cuts

    def _is_loose(self, cuts: Cuts, weights: Floats) -> NDArray[np.bool_]:
        """Whether the suboptimality bound exceeds `UNCERTAIN` times `enough` of the hinge."""
        assert cuts.suboptimality is not None
        hinges = np.maximum(cuts.slopes(weights), 0.0)
        loose: NDArray[np.bool_] = cuts.suboptimality > UNCERTAIN * self.effort.enough * hinges
        return loose

    def infer(self, weights: Floats, examples: Ints, starts: Ints, found: Labels) -> Floats | None:
        quick = self.calls[examples] >= 0
        scores, bounds = self.inference.infer(
            weights, examples, starts, found, self.effort, self.messages, quick
        )
        return np.maximum(bounds - scores, 0.0)


class Messages(NamedTuple):
    """Messages of graph ``g`` start at ``starts[g]``; -1 if there are none yet."""

    values: Floats
    starts: Ints


class GraphData(NamedTuple):
    """The data for compiled functions; without `labels` and `scales` nothing is loss-augmented."""

    rows: Rows
    kind_rows: Rows
    kind_ends: Ints
    edge_kinds: Ints
    edges: Ints
    layout: GraphLayout
    incidence: Incidence
    elimination: Elimination
    labels: NDArray[np.uint16]
    loss: Floats
    scales: Floats


class InferenceScratch(NamedTuple):
    """Scratch of one thread."""

    nodes: Floats
    pairs: Floats
    labels: Ints
    tables: Floats
    relaxation: RelaxationScratch


@inlined
def pair_rows(table, layout):  # type: ignore[no-untyped-def]
    """Weights of edges in the table, one row a feature: all pairs of labels, flat."""
    shape = layout.n_edge_features, layout.n_labels * layout.n_columns
    return table[layout.pairs :].reshape(shape)


@compiled
def score_graph(data, g, table, nodes, pairs):  # type: ignore[no-untyped-def]
    """Set the (loss-augmented) scores of graph `g`; returns that of the true labels, or -inf."""
    layout, incidence = data.layout, data.incidence
    n, first = layout.n_labels, incidence.node_ends[g]
    n_nodes = incidence.node_ends[g + 1] - first
    for v in range(n_nodes):
        for m in range(layout.n_columns):
            nodes[v, m] = table[layout.bias, m] if layout.bias >= 0 else 0.0
        add_row_scores(data.rows, first + v, table, nodes[v])
    pair_table = pair_rows(table, layout)
    for kind in range(data.kind_ends[g + 1] - data.kind_ends[g]):
        there, back = pairs[2 * kind], pairs[2 * kind + 1]
        for a in range(n):
            for m in range(layout.n_columns):
                there[a, m] = 0.0
        flat = there.reshape(n * layout.n_columns)
        add_row_scores(data.kind_rows, data.kind_ends[g] + kind, pair_table, flat)
        for a in range(n):
            for b in range(n):
                if not layout.directed and b < a:
                    there[a, b] = there[b, a]
                back[b, a] = there[a, b]
    if len(data.labels) == 0:
        return -np.inf
    for v in range(n_nodes):
        label = data.labels[first + v]
        for m in range(layout.n_columns):
            nodes[v, m] += data.scales[first + v] * data.loss[label, m]
    y_true = data.labels[first : first + n_nodes]
    return labelling_score(incidence, first, n_nodes, nodes, pairs, y_true)


@compiled
def infer_graphs(  # type: ignore[no-untyped-def]
    data, table, examples, places, starts, found, scores, bounds, effort,
    messages, message_at, scratch,
):  # fmt: skip
    """Write MAP labels of the graphs ``examples[places]`` to `found`, exact or relaxed.

    data, table : `GraphData`, and weights as in `GraphLayout`
    examples, places, starts : ``examples[k]`` for k in `places`, its labels from ``starts[k]`` on
    found, scores, bounds : labels, and score and upper bound of each k; filled
    effort, messages, message_at : of graph ``g`` from ``message_at[g]`` on; -1 is a cold start
    scratch : `InferenceScratch`
    """
    n = data.layout.n_labels
    for i in range(len(places)):
        k = places[i]
        g = examples[k]
        floor = score_graph(data, g, table, scratch.nodes, scratch.pairs)
        out = found[starts[k] : starts[k + 1]]
        if data.elimination.sizes[g] >= 0:
            scores[k] = best_exact(
                data.elimination, data.incidence, g, n, scratch.nodes, scratch.pairs,
                scratch.labels, scratch.tables, scratch.relaxation.row,
            )  # fmt: skip
            bounds[k] = scores[k]
            for v in range(len(out)):
                out[v] = scratch.labels[v]
        else:
            n_edges = data.incidence.edge_ends[g + 1] - data.incidence.edge_ends[g]
            at = max(message_at[g], 0)
            own = messages[at : at + n_edges]
            if message_at[g] < 0:
                for e in range(n_edges):
                    for m in range(own.shape[1]):
                        own[e, m] = 0.0
            if floor > -np.inf:
                for v in range(len(out)):
                    out[v] = data.labels[data.incidence.node_ends[g] + v]
            scores[k], bounds[k] = relax(
                data.incidence, g, n, scratch.nodes, scratch.pairs, floor, effort,
                own, out, scratch.relaxation,
            )  # fmt: skip


# A large graph has many nodes but few different features, so the entries of a cut are summed: in
# scratch that is zero between cuts, while the place of the cut holds the columns met, each once.


@inlined
def _add_entry(column, value, sums, met, columns, used):  # type: ignore[no-untyped-def]
    if met[column] == 0:
        met[column] = 1
        columns[used] = column
        used += 1
    sums[column] += value
    return used


@inlined
def _pair_column(layout, a, b):  # type: ignore[no-untyped-def]
    """Column of a pair of labels for the first edge feature."""
    swapped = not layout.directed and b < a
    row, column = (b, a) if swapped else (a, b)
    return (layout.pairs + row) * layout.n_columns + column


@compiled
def fill_cuts(data, examples, starts, found, counts, columns, values, losses, sums, met):  # type: ignore[no-untyped-def]
    """Write the cuts ``phi(x, y_true) - phi(x, found)``; returns the number of entries.

    data, examples, starts, found : `GraphData`, and labels of ``examples[k]`` from ``starts[k]`` on
    counts ``(n_examples,)``, columns, values, losses : the cuts, filled
    sums, met ``(n_features,)`` : scratch, zero before and after
    """
    layout, incidence = data.layout, data.incidence
    width, step = layout.n_columns, layout.n_labels * layout.n_columns
    rows, kind_rows = data.rows, data.kind_rows
    start = 0
    for k in range(len(examples)):
        g = examples[k]
        first, at = incidence.node_ends[g], starts[k]
        used = start
        total = 0.0
        for v in range(incidence.node_ends[g + 1] - first):
            y, z = np.int64(data.labels[first + v]), np.int64(found[at + v])
            if y != z:
                total += data.scales[first + v] * data.loss[y, z]
                begin = rows.starts[first + v]
                for q in range(begin, rows.starts[first + v + 1]):
                    base = np.int64(rows.columns[q if rows.indexed else q - begin]) * width
                    value = np.float64(rows.values[q])
                    used = _add_entry(base + y, value, sums, met, columns, used)
                    used = _add_entry(base + z, -value, sums, met, columns, used)
                if layout.bias >= 0:
                    base = layout.bias * width
                    used = _add_entry(base + y, 1.0, sums, met, columns, used)
                    used = _add_entry(base + z, -1.0, sums, met, columns, used)
        for e in range(incidence.edge_ends[g], incidence.edge_ends[g + 1]):
            u, v = data.edges[e, 0], data.edges[e, 1]
            y_true = np.int64(data.labels[first + u]), np.int64(data.labels[first + v])
            y = _pair_column(layout, y_true[0], y_true[1])
            z = _pair_column(layout, np.int64(found[at + u]), np.int64(found[at + v]))
            if y != z:
                row = data.kind_ends[g] + data.edge_kinds[e]
                begin = kind_rows.starts[row]
                for q in range(begin, kind_rows.starts[row + 1]):
                    j = np.int64(kind_rows.columns[q if kind_rows.indexed else q - begin])
                    value = np.float64(kind_rows.values[q])
                    used = _add_entry(y + j * step, value, sums, met, columns, used)
                    used = _add_entry(z + j * step, -value, sums, met, columns, used)
        stop = start
        for q in range(start, used):
            column = columns[q]
            if sums[column] != 0.0:
                columns[stop] = column
                values[stop] = sums[column]
                stop += 1
            sums[column] = 0.0
            met[column] = 0
        counts[k] = stop - start
        losses[k] = total
        start = stop
    return start
