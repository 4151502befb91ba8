"""Distributions over the labellings of graphs, kept as probabilities of the labels of cliques.

The cliques are those of an `Elimination`: each node with its scope. A distribution over the
labellings of graph ``g`` is a vector of ``sizes[g] * n_labels`` numbers. From ``(table_at[p] + i) *
n_labels`` on stand the probabilities of the ``i``-th labelling of the scope of place ``p`` together
with each label of the node. The probability of all labels is

    p(y) = prod_p  p(label of the node in place p | labels of its scope)

which is that of the cliques over that of what neighbouring cliques share. Of all distributions with
these probabilities of cliques, it is the one with the most entropy.

Cliques must agree on what they share, and do so after each of these functions.

Moves of the distributions over labellings of graphs, compiled: proposals and steps.

Probabilities of cliques as a dual point, valued in plain numpy.

Distributions over the labellings of graphs with exact inference.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.compiled.exponentials import LEAST
from maxmargin.compiled.rows import add_row_multiple
from maxmargin.core.registry import registered
from maxmargin.dual.marginal import (
    TOLERANCE,
    FlatDistributions,
    FlatPoint,
    Move,
    changes_of,
    chunks_of,
    measure_rows,
    mix,
    move_and_clear,
    old_and_new,
    step_size,
    touch,
    touch_features,
)
from maxmargin.structures.graph.graphs import CliqueTree, Graphs
from maxmargin.structures.graph.junction_tree import (
    add_row,
    best_exact,
    first_labels,
    next_labels,
    set_own_row,
    set_row,
    share_out,
    table_place,
)
from maxmargin.structures.graph.oracle import GraphData, GraphOracle, score_graph


@compiled
def reweight_cliques(  # type: ignore[no-untyped-def]
    elimination, incidence, g, n_labels, nodes, pairs, cliques, labels, tables, shares, row
):
    """Multiply the probability of each labelling by ``exp(score)``, and normalise.

    Changes `cliques` in place. Scratch: `labels` int64 ``(n_nodes,)``, `tables` and `shares`
    float64 ``(sizes[g],)``, `row` float64 ``(P,)``.
    """
    start, stop = incidence.node_ends[g], incidence.node_ends[g + 1]
    # On the way there, a clique becomes what its node's labels have given those of the scope. The
    # label of the highest score counts at least LEAST, next to which it does not matter what
    # rounds to zero.
    for p in range(start, stop):
        first_labels(elimination, p, labels)
        at = elimination.table_at[p]
        more = True
        while more:
            set_row(elimination, incidence, p, n_labels, nodes, pairs, labels, tables, row)
            own = cliques[at * n_labels : (at + 1) * n_labels]
            highest = row[0]
            for b in range(1, n_labels):
                highest = max(highest, row[b])
            before = total = 0.0
            for b in range(n_labels):
                kept = max(own[b], LEAST)
                before += kept
                own[b] = kept * np.exp(row[b] - highest)
                total += own[b]
            scale = 1.0 / total
            for b in range(n_labels):
                own[b] *= scale
            tables[at] = highest + np.log(total / before)
            shares[at] = 0.0
            at += 1
            more = next_labels(elimination, p, n_labels, labels)
        if elimination.scope_starts[p] == elimination.scope_starts[p + 1]:
            shares[at - 1] = 1.0
    # And back, it is multiplied by the probability of the scope's labels.
    for p in range(stop - 1, start - 1, -1):
        first_labels(elimination, p, labels)
        at = elimination.table_at[p]
        more = True
        while more:
            own = cliques[at * n_labels : (at + 1) * n_labels]
            for b in range(n_labels):
                own[b] *= shares[at]
            share_out(elimination, p, n_labels, labels, own, shares)
            at += 1
            more = next_labels(elimination, p, n_labels, labels)


@compiled
def mean_clique_score(elimination, incidence, g, n_labels, nodes, pairs, cliques, labels, row):  # type: ignore[no-untyped-def]
    """Expected score of a labelling. Scratch: `labels` and `row`."""
    total = 0.0
    for p in range(incidence.node_ends[g], incidence.node_ends[g + 1]):
        first_labels(elimination, p, labels)
        at = elimination.table_at[p]
        more = True
        while more:
            set_own_row(elimination, incidence, p, n_labels, nodes, pairs, labels, row)
            for b in range(n_labels):
                total += cliques[at * n_labels + b] * row[b]
            at += 1
            more = next_labels(elimination, p, n_labels, labels)
    return total


@compiled
def set_clique_labelling(elimination, incidence, g, n_labels, labels, cliques):  # type: ignore[no-untyped-def]
    """All probability on one labelling."""
    for i in range(len(cliques)):
        cliques[i] = 0.0
    for p in range(incidence.node_ends[g], incidence.node_ends[g + 1]):
        at = table_place(elimination, p, n_labels, labels)
        first = elimination.scope_starts[p]
        if first < elimination.scope_starts[p + 1]:
            at += labels[elimination.scope[first]]
        cliques[at * n_labels + labels[elimination.order[p]]] = 1.0


@compiled
def add_clique_changes(  # type: ignore[no-untyped-def]
    elimination, incidence, g, n_labels, old, new, factor, kinds, of_nodes, of_pairs, labels, row
):
    """Add `factor` times what labels and pairs lose in probability from `old` to `new` cliques.

    To `of_nodes` ``(n_nodes, P)`` and `of_pairs` ``(n_kinds, n_labels, P)``, the labels of the
    edge's first node as rows; ``kinds[q]`` is the kind of the edge in place ``q`` in `Incidence`.
    Scratch: `labels` and `row`.
    """
    for p in range(incidence.node_ends[g], incidence.node_ends[g + 1]):
        first_labels(elimination, p, labels)
        at = elimination.table_at[p]
        more = True
        while more:
            for b in range(n_labels):
                i = at * n_labels + b
                row[b] = factor * (old[i] - new[i])
            add_row(elimination, incidence, p, n_labels, labels, row, kinds, of_nodes, of_pairs)
            at += 1
            more = next_labels(elimination, p, n_labels, labels)


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class CliqueData(NamedTuple):
    """What the compiled functions need of the data.

    Probabilities of graph ``g`` are ``first[g]:first[g + 1]``. The edge in place ``q`` of the
    incidence has the kind ``kinds[q]``, and edges of a kind have the same features.
    """

    graphs: GraphData
    first: Ints
    kinds: Ints
    totals: Floats


class WeightTables(NamedTuple):
    """Weights, or a direction, as the table of all, and as that of edges with all pairs flat."""

    rows: Floats
    pairs: Floats


class ProposalScratch(NamedTuple):
    """Scratch of one thread; what it holds does not matter."""

    nodes: Floats
    pairs: Floats
    labels: Ints
    tables: Floats
    shares: Floats
    row: Floats


class StepScratch(NamedTuple):
    """Scratch of steps: `direction` and ``touched[1]`` are zero between them."""

    direction: WeightTables
    touched: Ints
    nodes: Floats
    pairs: Floats
    labels: Ints
    row: Floats


@inlined
def propose_example(data, g, old, temperature, weights, scratch, new):  # type: ignore[no-untyped-def]
    """Set the distribution to go towards; returns the hinge and the mean slope."""
    n, elimination, incidence = data.layout.n_labels, data.elimination, data.incidence
    nodes, pairs, labels, row = scratch.nodes, scratch.pairs, scratch.labels, scratch.row
    own = score_graph(data, g, weights.rows, weights.pairs, nodes, pairs)
    mean = mean_clique_score(elimination, incidence, g, n, nodes, pairs, old, labels, row)
    best = best_exact(elimination, incidence, g, n, nodes, pairs, labels, scratch.tables, row)
    if temperature == 0.0:
        set_clique_labelling(elimination, incidence, g, n, labels, new)
    else:
        scale_scores(data, g, 1.0 / temperature, nodes, pairs)
        for i in range(len(old)):
            new[i] = old[i]
        reweight_cliques(
            elimination, incidence, g, n, nodes, pairs, new,
            labels, scratch.tables, scratch.shares, row,
        )  # fmt: skip
    return best - own, mean - own


@compiled
def scale_scores(data, g, factor, nodes, pairs):  # type: ignore[no-untyped-def]
    """Multiply the scores of graph `g`."""
    for v in range(data.incidence.node_ends[g + 1] - data.incidence.node_ends[g]):
        for m in range(nodes.shape[1]):
            nodes[v, m] *= factor
    for t in range(2 * (data.kind_ends[g + 1] - data.kind_ends[g])):
        for a in range(pairs.shape[1]):
            for m in range(pairs.shape[2]):
                pairs[t, a, m] *= factor


@compiled
def set_changes(data, g, old, new, scratch):  # type: ignore[no-untyped-def]
    """Set what a whole step changes the factors of feature rows by: cost times ``old - new``.

    In ``scratch.nodes``, and for each kind of edges in ``scratch.pairs``. Returns the change of the
    linear term.
    """
    graphs, nodes, pairs = data.graphs, scratch.nodes, scratch.pairs
    layout, first = graphs.layout, graphs.incidence.node_ends[g]
    n_nodes = graphs.incidence.node_ends[g + 1] - first
    for v in range(n_nodes):
        for m in range(layout.n_columns):
            nodes[v, m] = 0.0
    for kind in range(graphs.kind_ends[g + 1] - graphs.kind_ends[g]):
        for a in range(layout.n_labels):
            for m in range(layout.n_columns):
                pairs[kind, a, m] = 0.0
    add_clique_changes(
        graphs.elimination, graphs.incidence, g, layout.n_labels, old, new, data.totals[g],
        data.kinds, nodes, pairs, scratch.labels, scratch.row,
    )  # fmt: skip
    if not layout.directed:
        for kind in range(graphs.kind_ends[g + 1] - graphs.kind_ends[g]):
            for a in range(layout.n_labels):
                for b in range(a):
                    pairs[kind, b, a] += pairs[kind, a, b]
                    pairs[kind, a, b] = 0.0
    linear = 0.0
    for v in range(n_nodes):
        y_true = graphs.labels[first + v]
        for m in range(layout.n_columns):
            linear -= graphs.scales[first + v] * nodes[v, m] * graphs.loss[y_true, m]
    return linear


@compiled
def add_changes(data, g, nodes, pairs, direction):  # type: ignore[no-untyped-def]
    """Add what a whole step changes the weights by."""
    layout, first = data.layout, data.incidence.node_ends[g]
    for v in range(data.incidence.node_ends[g + 1] - first):
        add_row_multiple(data.rows, first + v, nodes[v], direction.rows)
        if layout.bias >= 0:
            for m in range(layout.n_columns):
                direction.rows[layout.bias, m] += nodes[v, m]
    for kind in range(data.kind_ends[g], data.kind_ends[g + 1]):
        flat = pairs[kind - data.kind_ends[g]].reshape(layout.n_labels * layout.n_columns)
        add_row_multiple(data.kind_rows, kind, flat, direction.pairs)


@compiled
def touch_rows(data, g, touched):  # type: ignore[no-untyped-def]
    """List the rows of the weight table that belong to a graph; returns how many there are."""
    layout, kind_rows = data.layout, data.kind_rows
    count = 0
    for i in range(data.incidence.node_ends[g], data.incidence.node_ends[g + 1]):
        count = touch_features(data.rows, i, touched, count)
    if layout.bias >= 0:
        count = touch(layout.bias, touched, count)
    for kind in range(data.kind_ends[g], data.kind_ends[g + 1]):
        start = kind_rows.starts[kind]
        for q in range(start, kind_rows.starts[kind + 1]):
            j = np.int64(kind_rows.columns[q if kind_rows.indexed else q - start])
            for a in range(layout.n_labels):
                count = touch(layout.pairs + j * layout.n_labels + a, touched, count)
    return count


@inlined
def step_example(data, g, old, new, move, weights, scratch):  # type: ignore[no-untyped-def]
    """Step towards a proposal; returns the gain and the change of the linear term."""
    direction, touched = scratch.direction, scratch.touched
    whole = set_changes(data, g, old, new, scratch)
    add_changes(data.graphs, g, scratch.nodes, scratch.pairs, direction)
    count = touch_rows(data.graphs, g, touched)
    product, square = measure_rows(direction.rows, weights.rows, touched, count)
    slope = whole - product
    step = step_size(move, slope, square)
    move_and_clear(direction.rows, step, weights.rows, touched, count)
    if step > 0.0:
        mix(old, new, step)
    return step * (slope - 0.5 * step * square), step * whole


@compiled
def move_graphs(data, mass, found, first, last, move, weights, scratch, step_scratch):  # type: ignore[no-untyped-def]
    """See `Distributions._move`."""
    graphs = data.graphs
    gain = linear = 0.0
    entries = 0
    for k in range(first, last):
        g = found.examples[k]
        old, new = old_and_new(data.first, mass, found, k)
        if move.proposes:
            found.hinges[k] = found.values[k] = 0.0
            if len(old) > 0:
                found.hinges[k], found.values[k] = propose_example(
                    graphs, g, old, move.temperature, weights, scratch, new
                )
        if move.steps:
            more, change = step_example(data, g, old, new, move, weights, step_scratch)
            gain += more
            linear += change
            start, stop = graphs.incidence.node_ends[g], graphs.incidence.node_ends[g + 1]
            entries += graphs.rows.starts[stop] - graphs.rows.starts[start] + len(old)
    return gain, linear, 4 * entries * graphs.layout.n_columns


@compiled
def add_all_graphs(data, mass, found, direction, scratch):  # type: ignore[no-untyped-def]
    """See `Distributions._add_direction`."""
    linear = 0.0
    for k in range(len(found.examples)):
        g = found.examples[k]
        old, new = old_and_new(data.first, mass, found, k)
        linear += set_changes(data, g, old, new, scratch)
        add_changes(data.graphs, g, scratch.nodes, scratch.pairs, direction)
    return linear


@registered("GraphPoint")
@dataclass(frozen=True, eq=False)
class GraphPoint(FlatPoint):
    """Probabilities of the labels of all cliques of all graphs.

    Parameters
    ----------
    mass : ndarray of shape (tree.n_numbers,)
    tree : CliqueTree
    """

    tree: CliqueTree

    @classmethod
    def even(cls, oracle: GraphOracle) -> Self:
        """All labellings alike; each graph must have an elimination."""
        graphs, elimination = oracle.graphs, oracle.inference.elimination
        first = np.repeat(graphs.node_ends[:-1], graphs.n_nodes)
        nodes = first + elimination.order
        places = np.empty_like(nodes)
        places[nodes] = np.arange(len(nodes))
        scope = places[np.repeat(first, np.diff(elimination.scope_starts)) + elimination.scope]
        tree = CliqueTree(oracle.layout.n_labels, nodes, elimination.scope_starts, scope)
        return cls(tree.even(), tree)

    def is_like(self, other: FlatPoint) -> bool:
        return isinstance(other, GraphPoint) and self.tree.is_like(other.tree)

    def expectations(self, oracle: GraphOracle) -> tuple[Floats, float]:
        """The weights and the linear term of the dual that belong to the distributions."""
        weights = np.zeros(oracle.n_features)
        linear = self._add_nodes(oracle, weights)
        self._add_edges(oracle, weights)
        return weights, linear

    def dual(self, oracle: GraphOracle) -> float:
        fits = (
            self.tree.n_labels == oracle.layout.n_labels
            and len(self.tree.nodes) == oracle.graphs.node_ends[-1]
            and self.tree.covers(_all_edges(oracle.graphs))
        )
        if not (fits and self.tree.is_distribution(self.mass, TOLERANCE)):
            raise ValueError("The dual point is not feasible.")
        weights, linear = self.expectations(oracle)
        return linear - 0.5 * float(weights @ weights)

    def _add_nodes(self, oracle: GraphOracle, weights: Floats) -> float:
        """Add the weights of features and biases; returns the linear term."""
        layout, graphs, y_true = oracle.layout, oracle.graphs, oracle.inference.data
        n, table = layout.n_labels, layout.table(weights)
        C = np.repeat(oracle.C, graphs.n_nodes)
        nodes = self.tree.node_marginals(self.mass)
        linear = 0.0
        for some in chunks_of(nodes):
            labels = y_true.labels[some]
            losses = (y_true.loss[labels, :n] * nodes[some]).sum(axis=1)
            linear += float((C[some] * y_true.scales[some]) @ losses)
            changes = changes_of(nodes[some], labels, C[some])
            table[: layout.n_features, :n] += graphs.X[some].T @ changes
            if layout.bias >= 0:
                table[layout.bias, :n] += changes.sum(axis=0)
        return linear

    def _add_edges(self, oracle: GraphOracle, weights: Floats) -> None:
        """Add the weights of edges."""
        layout, graphs = oracle.layout, oracle.graphs
        n, edges = layout.n_labels, _all_edges(graphs)
        first, second = oracle.inference.data.labels.astype(np.int64)[edges].T
        C = np.repeat(oracle.C, graphs.n_edges)
        pairs = self.tree.edge_marginals(self.mass, edges).reshape(len(edges), n * n)
        sums = np.zeros((layout.n_edge_features, n * n))
        for some in chunks_of(pairs):
            changes = changes_of(pairs[some], (first * n + second)[some], C[some])
            sums += graphs.edge_rows[some].T @ changes
        tables = sums.reshape(-1, n, n)
        if not layout.directed:
            tables = np.triu(tables) + np.triu(tables.transpose(0, 2, 1), 1)
        layout.pair_table(weights).reshape(-1, n, layout.n_columns)[:, :, :n] += tables


def _all_edges(graphs: Graphs) -> Ints:
    """Edges with nodes counted over all graphs."""
    return graphs.edges + np.repeat(graphs.node_ends[:-1], graphs.n_edges)[:, None]


MOST_NUMBERS = 2**28
"""Probabilities of all cliques that are kept at most: 2 GB."""


class GraphDistributions(FlatDistributions):
    """Probabilities of the labels of all cliques of all graphs.

    Parameters
    ----------
    oracle : GraphTrainingSet
        Of graphs with exact inference.
    temperature : float
        Whether it is zero decides on the start.

    Raises
    ------
    ValueError
        If a graph has no exact inference, or the cliques of all have too many labellings.
    """

    oracle: GraphOracle
    point: GraphPoint

    def __init__(self, oracle: GraphOracle, temperature: float) -> None:
        layout, data = oracle.layout, oracle.inference.data
        sizes = layout.n_labels * _exact_sizes(oracle)
        super().__init__(oracle, GraphPoint.even(oracle), sizes)
        self._data = CliqueData(data, self._first, data.incidence.tables // 2, oracle.C)
        self._most_nodes = int(oracle.graphs.n_nodes.max(initial=1))
        self._most_kinds = int(np.diff(data.kind_ends).max(initial=1))
        self._scratch = StepScratch(
            direction=self._tables(np.zeros(oracle.n_features)),
            touched=np.zeros((2, layout.n_rows), dtype=np.int64),
            nodes=np.empty((self._most_nodes, layout.n_columns)),
            pairs=np.empty((self._most_kinds, layout.n_labels, layout.n_columns)),
            labels=np.empty(self._most_nodes, dtype=np.int64),
            row=np.empty(layout.n_columns),
        )
        self._start(temperature)

    def expectations(self) -> tuple[Floats, float]:
        return self.point.expectations(self.oracle)

    def _give_to_true_output(self, kept: float) -> None:
        self.point.mass[:] *= kept
        self.point.mass[self.point.tree.places_of(self._data.graphs.labels)] += 1.0 - kept

    def _move(self, move: Move, part: slice, weights: Floats) -> tuple[float, float, float]:
        moved: tuple[float, float, float] = move_graphs(
            self._data, self.point.mass, self._proposals, part.start, part.stop, move,
            self._tables(weights), self._proposal_scratch(), self._scratch,
        )  # fmt: skip
        return moved

    def _add_direction(self, direction: Floats) -> float:
        return float(
            add_all_graphs(
                self._data, self.point.mass, self._proposals, self._tables(direction), self._scratch
            )
        )

    def _tables(self, weights: Floats) -> WeightTables:
        layout = self.oracle.layout
        return WeightTables(layout.table(weights), layout.pair_table(weights))

    def _proposal_scratch(self) -> ProposalScratch:
        layout, sizes = self.oracle.layout, self._data.graphs.elimination.sizes
        tables, shares = np.empty((2, int(sizes.max(initial=0))))
        return ProposalScratch(
            nodes=np.empty((self._most_nodes, layout.n_columns)),
            pairs=np.empty((2 * self._most_kinds, layout.n_labels, layout.n_columns)),
            labels=np.empty(self._most_nodes, dtype=np.int64),
            tables=tables,
            shares=shares,
            row=np.empty(layout.n_columns),
        )


def _exact_sizes(oracle: GraphOracle) -> NDArray[np.int64]:
    """Labellings of the scopes of each graph, after a look whether all can be kept."""
    sizes = oracle.inference.elimination.sizes
    relaxed = np.flatnonzero(sizes < 0)
    if len(relaxed):
        raise ValueError(
            f"PartialLinearization and ExponentiatedGradient need the marginals of exact "
            f"inference, which graph {relaxed[0]} has not: use another solver, such as 'auto', "
            f"or inference_method='exact' if the treewidth is small."
        )
    count = oracle.layout.n_labels * int(sizes.sum())
    if count > MOST_NUMBERS:
        raise ValueError(
            f"PartialLinearization and ExponentiatedGradient would have to keep {count:,} "
            f"probabilities for the cliques of these graphs, but {MOST_NUMBERS:,} are the limit: "
            f"use another solver, such as 'auto'."
        )
    return sizes
