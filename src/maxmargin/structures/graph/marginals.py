"""Dual variables of graph labelling: clique marginals on the junction tree of an `Elimination`.

A distribution on graph ``g`` has ``sizes[g] * n_labels`` entries: from ``(table_at[p] + i) *
n_labels`` on, the ``i``-th labelling of the scope of place ``p`` with each label of its node. It
stands for ``p(y) = prod_p p(node of p | scope of p)``, that of most entropy with these marginals.
Updates are compiled; `CliqueTree` evaluates and checks in numpy, sharing no code with inference.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.compiled.exponentials import LEAST
from maxmargin.compiled.rows import add_row_multiple
from maxmargin.core.checks import check_indices, check_offsets, check_shape
from maxmargin.core.cuts import starts_of
from maxmargin.core.registry import registered
from maxmargin.dual.marginal import (
    CHUNK,
    TOLERANCE,
    Distributions,
    MarginalPoint,
    Move,
    add_expected,
    add_node_changes,
    expected_loss,
    measure_rows,
    mix_example,
    move_and_clear,
    old_and_new,
    step_size,
    touch,
    touch_features,
)
from maxmargin.structures.graph.inference import (
    Floats,
    Ints,
    add_row,
    best_exact,
    next_labels,
    open_scope,
    set_own_row,
    set_row,
    share_out,
    table_place,
)
from maxmargin.structures.graph.oracle import (
    GraphData,
    GraphOracle,
    Graphs,
    score_graph,
)


@compiled
def reweight_cliques(  # type: ignore[no-untyped-def]
    elimination, incidence, g, n_labels, nodes, pairs, cliques, labels, tables, shares, row
):
    """Multiply the probability of each labelling by ``exp(score)`` and normalise, in place.

    elimination, incidence, g, n_labels, nodes, pairs : the graph and its scores
    cliques ``(sizes[g] * n_labels,)`` : clique marginals, changed
    labels int64 ``(n_nodes,)``, tables and shares ``(sizes[g],)``, row ``(P,)`` : scratch
    """
    start, stop = incidence.node_ends[g], incidence.node_ends[g + 1]
    # On the way there, a clique becomes what its node's labels have given those of the scope. The
    # label of the highest score counts at least LEAST, next to which it does not matter what
    # rounds to zero.
    for p in range(start, stop):
        first, last = open_scope(elimination, p, n_labels, labels)
        for at in range(first, last):
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
            next_labels(elimination, p, n_labels, labels)
        if elimination.scope_starts[p] == elimination.scope_starts[p + 1]:
            shares[first] = 1.0
    # And back, it is multiplied by the probability of the scope's labels.
    for p in range(stop - 1, start - 1, -1):
        first, last = open_scope(elimination, p, n_labels, labels)
        for at in range(first, last):
            own = cliques[at * n_labels : (at + 1) * n_labels]
            for b in range(n_labels):
                own[b] *= shares[at]
            share_out(elimination, p, n_labels, labels, own, shares)
            next_labels(elimination, p, n_labels, labels)


@compiled
def mean_clique_score(elimination, incidence, g, n_labels, nodes, pairs, cliques, labels, row):  # type: ignore[no-untyped-def]
    """Expected score under the marginals `cliques`; `labels` and `row` are scratch."""
    total = 0.0
    for p in range(incidence.node_ends[g], incidence.node_ends[g + 1]):
        first, last = open_scope(elimination, p, n_labels, labels)
        for at in range(first, last):
            set_own_row(elimination, incidence, p, n_labels, nodes, pairs, labels, row)
            for b in range(n_labels):
                total += cliques[at * n_labels + b] * row[b]
            next_labels(elimination, p, n_labels, labels)
    return total


@compiled
def set_clique_labelling(elimination, incidence, g, n_labels, labels, cliques):  # type: ignore[no-untyped-def]
    """Set `cliques` to the point mass on one labelling."""
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
    """Add ``factor * (old - new)`` of the marginals of nodes and edges.

    elimination, incidence, g, n_labels : the graph
    old, new ``(sizes[g] * n_labels,)``, factor : clique marginals
    kinds : kind of the edge in each place of `Incidence`
    of_nodes ``(n_nodes, P)``, of_pairs ``(n_kinds, n_labels, P)`` : added to
    labels int64 ``(n_nodes,)``, row ``(P,)`` : scratch
    """
    for p in range(incidence.node_ends[g], incidence.node_ends[g + 1]):
        first, last = open_scope(elimination, p, n_labels, labels)
        for at in range(first, last):
            for b in range(n_labels):
                i = at * n_labels + b
                row[b] = factor * (old[i] - new[i])
            add_row(elimination, incidence, p, n_labels, labels, row, kinds, of_nodes, of_pairs)
            next_labels(elimination, p, n_labels, labels)


class CliqueData(NamedTuple):
    """The data for compiled functions; ``kinds[q]`` is the kind of the edge in place ``q``."""

    graphs: GraphData
    kinds: Ints
    totals: Floats


class WeightTables(NamedTuple):
    """Weights, or a direction, as the whole table and as that of edges, all pairs flat."""

    rows: Floats
    pairs: Floats


class ProposalScratch(NamedTuple):
    """Scratch of one thread."""

    nodes: Floats
    pairs: Floats
    labels: Ints
    tables: Floats
    shares: Floats
    row: Floats


class StepScratch(NamedTuple):
    """Scratch of steps; `direction` and ``touched[1]`` are zero between them."""

    direction: WeightTables
    touched: Ints
    nodes: Floats
    pairs: Floats
    labels: Ints
    row: Floats


@inlined
def propose_example(data, g, old, temperature, weights, scratch, new):  # type: ignore[no-untyped-def]
    """Set the proposal `new` of a graph; returns its hinge and the expected slope."""
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
    """Set what a full step changes node and edge factors by, ``C * (old - new)``, in `scratch`.

    Returns the change of the linear term of the dual.
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
    """Add the change of the weights by a full step to `direction`."""
    layout, first = data.layout, data.incidence.node_ends[g]
    n_nodes = data.incidence.node_ends[g + 1] - first
    add_node_changes(data.rows, layout.bias, first, nodes, n_nodes, direction.rows)
    for kind in range(data.kind_ends[g], data.kind_ends[g + 1]):
        flat = pairs[kind - data.kind_ends[g]].reshape(layout.n_labels * layout.n_columns)
        add_row_multiple(data.kind_rows, kind, flat, direction.pairs)


@compiled
def touch_rows(data, g, touched):  # type: ignore[no-untyped-def]
    """List the rows of the weight table that a graph uses; returns their number."""
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


@compiled
def move_graphs(  # type: ignore[no-untyped-def]
    data, starts, masses, found, first, last, move, weights, scratch, step_scratch
):
    """See `Distributions._move`."""
    graphs, direction, touched = data.graphs, step_scratch.direction, step_scratch.touched
    gain = linear = 0.0
    entries = 0
    for k in range(first, last):
        g = found.examples[k]
        old, new = old_and_new(starts, masses, found, 0, k)
        if move.proposes:
            found.hinges[k] = found.values[k] = 0.0
            if len(old) > 0:
                found.hinges[k], found.values[k] = propose_example(
                    graphs, g, old, move.temperature, weights, scratch, new
                )
        if move.steps:
            whole = set_changes(data, g, old, new, step_scratch)
            add_changes(graphs, g, step_scratch.nodes, step_scratch.pairs, direction)
            count = touch_rows(graphs, g, touched)
            product, square = measure_rows(direction.rows, weights.rows, touched, count)
            slope = whole - product
            step = step_size(move, slope, square)
            move_and_clear(direction.rows, step, weights.rows, touched, count)
            if step > 0.0:
                mix_example(starts, masses, found, k, step)
            gain += step * (slope - 0.5 * step * square)
            linear += step * whole
            start, stop = graphs.incidence.node_ends[g], graphs.incidence.node_ends[g + 1]
            entries += graphs.rows.starts[stop] - graphs.rows.starts[start] + len(old)
    return gain, linear, 4 * entries * graphs.layout.n_columns


@compiled
def add_all_graphs(data, starts, masses, found, direction, scratch):  # type: ignore[no-untyped-def]
    """See `Distributions._add_direction`."""
    linear = 0.0
    for k in range(len(found.examples)):
        g = found.examples[k]
        old, new = old_and_new(starts, masses, found, 0, k)
        linear += set_changes(data, g, old, new, scratch)
        add_changes(data.graphs, g, scratch.nodes, scratch.pairs, direction)
    return linear


@registered("CliqueTree", check="check")
@dataclass(frozen=True, eq=False)
class CliqueTree:
    """Junction trees of all graphs, and marginals on them as one vector of `n_numbers` entries.

    Cliques follow each other, the label of the node running fastest, then that of the first of its
    scope. `nodes` has the node of each place, counted over all graphs; `scope` the places in the
    scope of each place, all later than it, in rising order.
    """

    n_labels: int
    nodes: Ints
    scope_starts: Ints
    scope: Ints

    def check(self) -> None:
        """Raise ValueError if a scope names places that do not exist."""
        check_offsets("scope_starts", self.scope_starts, len(self.scope))
        check_shape("scope_starts", self.scope_starts, len(self.nodes) + 1)
        check_indices("scope", self.scope, len(self.nodes))
        check_indices("nodes", self.nodes, len(self.nodes))

    @cached_property
    def widths(self) -> Ints:
        """Size of each scope."""
        return np.diff(self.scope_starts)

    @cached_property
    def starts(self) -> Ints:
        """Where each clique starts, and the end of the last."""
        return starts_of(self.n_labels ** (self.widths + 1))

    @cached_property
    def places(self) -> Ints:
        places = np.empty_like(self.nodes)
        places[self.nodes] = np.arange(len(self.nodes))
        return places

    @property
    def n_numbers(self) -> int:
        return int(self.starts[-1])

    def is_like(self, other: "CliqueTree") -> bool:
        """Whether marginals of one can be read as those of the other."""
        return self.n_labels == other.n_labels and all(
            np.array_equal(getattr(self, name), getattr(other, name))
            for name in ("nodes", "scope_starts", "scope")
        )

    def even(self) -> Floats:
        sizes = np.diff(self.starts)
        return np.repeat(1.0 / sizes, sizes)

    def places_of(self, labels: NDArray[np.integer]) -> Ints:
        """Index of the entry of each clique for these labels of the nodes."""
        of_place = labels.astype(np.int64)[self.nodes]
        at = self.starts[:-1] + of_place
        powers = self.n_labels ** (1 + np.arange(len(self.scope)) - self.scope_starts[self._owners])
        np.add.at(at, self._owners, powers * of_place[self.scope])
        return at

    def node_marginals(self, mass: Floats) -> Floats:
        """Marginals of labels, ``(n_nodes, n_labels)``."""
        marginals = np.empty((len(self.nodes), self.n_labels))
        for some in _alike(self.widths, self.n_labels ** (self.widths + 1)):
            tables = self._tables(mass, some)
            marginals[self.nodes[some]] = tables.reshape(len(some), -1, self.n_labels).sum(axis=1)
        return marginals

    def covers(self, edges: Ints) -> bool:
        """Whether the two nodes of each edge, counted over all graphs, share a clique."""
        return bool((self._edge_places(edges)[1] >= 0).all())

    def edge_marginals(self, mass: Floats, edges: Ints) -> Floats:
        """Marginals of pairs, ``(n_edges, n_labels, n_labels)``, of edges that must be covered."""
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
        """Whether these are the clique marginals of some distribution over labellings.

        So they are if none is negative, cliques without scope sum to one, and each other agrees on
        its scope with the later clique that contains it: labels can then be drawn from the last
        place on.
        """
        if mass.shape != (self.n_numbers,) or not (mass >= 0.0).all() or not self._is_tree:
            return False
        roots = self.starts[:-1][self.widths == 0]
        totals = mass[roots[:, None] + np.arange(self.n_labels)].sum(axis=1)
        off = np.abs(totals - 1.0).max(initial=0.0)
        return bool(max(off, self._disagreement(mass)) <= tolerance)

    def _disagreement(self, mass: Floats) -> float:
        """Largest difference between a clique and the next one in the marginals of its scope."""
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
        """The place of each entry of `scope`."""
        return np.repeat(np.arange(len(self.nodes)), self.widths)

    @cached_property
    def _shared(self) -> Ints:
        """Bits: which of the next clique's scope (its first node's) each has; -1 if not in it."""
        rest = np.flatnonzero(np.arange(len(self.scope)) > self.scope_starts[self._owners])
        owners = self._owners[rest]
        positions = self._positions(self.scope[self.scope_starts[owners]], self.scope[rest])
        shared = np.zeros(len(self.nodes), dtype=np.int64)
        np.add.at(shared, owners, 1 << np.maximum(positions, 0))
        shared[owners[positions < 0]] = -1
        return shared

    @cached_property
    def _is_tree(self) -> bool:
        """Whether scopes are in order, and each lies in the clique of its first node."""
        keys = self._keys
        rising = (np.diff(keys) > 0).all() and (self.scope > self._owners).all()
        return bool(rising and (self._shared >= 0).all())

    @cached_property
    def _keys(self) -> Ints:
        """A sorted key for each pair of a place and a place in its scope."""
        return self._owners * len(self.nodes) + self.scope

    def _positions(self, owners: Ints, members: Ints) -> Ints:
        """Position of `members` in the scopes of `owners`; -1 if absent."""
        wanted = owners * len(self.nodes) + members
        at = np.searchsorted(self._keys, wanted)
        there = np.append(self._keys, -1)[at] == wanted
        return np.where(there, at - self.scope_starts[owners], -1)

    def _edge_places(self, edges: Ints) -> tuple[Ints, Ints]:
        """The earlier place of each edge, and where in its scope the later is; -1 if absent."""
        ends = np.sort(self.places[edges], axis=1)
        return ends[:, 0], self._positions(ends[:, 0], ends[:, 1])

    def _tables(self, mass: Floats, places: Ints) -> Floats:
        """Entries of cliques of the same width, one row each."""
        size = self.n_labels ** (int(self.widths[places[0]]) + 1)
        tables: Floats = mass[self.starts[places][:, None] + np.arange(size)]
        return tables


def _alike(kinds: Ints, sizes: Ints) -> Iterator[Ints]:
    """Batches of places of the same kind, small enough to be copied; `sizes` are their entries."""
    order = np.argsort(kinds, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(kinds[order])) + 1):
        if len(group):
            count = max(1, CHUNK // int(sizes[group].max()))
            yield from (group[i : i + count] for i in range(0, len(group), count))


@registered("GraphPoint")
@dataclass(frozen=True, eq=False)
class GraphPoint(MarginalPoint):
    """A dual point: clique marginals of all graphs, as in `CliqueTree`."""

    mass: Floats
    tree: CliqueTree

    @classmethod
    def even(cls, oracle: GraphOracle) -> Self:
        """Uniform distributions; each graph must have an elimination."""
        graphs, elimination = oracle.graphs, oracle.inference.elimination
        first = np.repeat(graphs.node_ends[:-1], graphs.n_nodes)
        nodes = first + elimination.order
        places = np.empty_like(nodes)
        places[nodes] = np.arange(len(nodes))
        scope = places[np.repeat(first, np.diff(elimination.scope_starts)) + elimination.scope]
        tree = CliqueTree(oracle.layout.n_labels, nodes, elimination.scope_starts, scope)
        return cls(tree.even(), tree)

    def is_like(self, other: "GraphPoint") -> bool:
        return self.tree.is_like(other.tree)

    def is_feasible(self, oracle: GraphOracle) -> bool:
        return (
            self.tree.n_labels == oracle.layout.n_labels
            and len(self.tree.nodes) == oracle.graphs.node_ends[-1]
            and self.tree.covers(_all_edges(oracle.graphs))
            and self.tree.is_distribution(self.mass, TOLERANCE)
        )

    def expectations(self, oracle: GraphOracle) -> tuple[Floats, float]:
        weights = np.zeros(oracle.n_features)
        layout, graphs, data = oracle.layout, oracle.graphs, oracle.inference.data
        n, table = layout.n_labels, layout.table(weights)[:, : layout.n_labels]
        C = np.repeat(oracle.C, graphs.n_nodes)
        nodes, labels = self.tree.node_marginals(self.mass), data.labels.astype(np.int64)
        bias = table[layout.bias] if layout.bias >= 0 else None
        add_expected(graphs.X, nodes, labels, C, table[: layout.n_features], bias)

        edges = _all_edges(graphs)
        first, second = labels[edges].T
        pairs = self.tree.edge_marginals(self.mass, edges).reshape(len(edges), n * n)
        sums = np.zeros((layout.n_edge_features, n * n))
        of_edges = np.repeat(oracle.C, graphs.n_edges)
        add_expected(graphs.edge_rows, pairs, first * n + second, of_edges, sums, None)
        tables = sums.reshape(-1, n, n)
        if not layout.directed:
            tables = np.triu(tables) + np.triu(tables.transpose(0, 2, 1), 1)
        layout.pair_table(weights).reshape(-1, n, layout.n_columns)[:, :, :n] += tables
        return weights, expected_loss(nodes, labels, data.loss[:, :n], C * data.scales)


def _all_edges(graphs: Graphs) -> Ints:
    """Edges with nodes counted over all graphs."""
    return graphs.edges + np.repeat(graphs.node_ends[:-1], graphs.n_edges)[:, None]


MOST_NUMBERS = 2**28
"""Bound on the clique marginals of all graphs: 2 GB."""


class GraphDistributions(Distributions):
    """Clique marginals of all graphs; ValueError if they are too many, or inference not exact."""

    oracle: GraphOracle
    point: GraphPoint

    def __init__(self, oracle: GraphOracle, temperature: float) -> None:
        layout, data = oracle.layout, oracle.inference.data
        sizes = layout.n_labels * _exact_sizes(oracle)
        super().__init__(oracle, GraphPoint.even(oracle), sizes)
        self._data = CliqueData(data, data.incidence.tables // 2, oracle.C)
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

    def _true_places(self) -> tuple[Ints, ...]:
        return (self.point.tree.places_of(self._data.graphs.labels),)

    def _move(self, move: Move, part: slice, weights: Floats) -> tuple[float, float, float]:
        layout, sizes = self.oracle.layout, self._data.graphs.elimination.sizes
        tables, shares = np.empty((2, int(sizes.max(initial=0))))
        scratch = ProposalScratch(
            nodes=np.empty((self._most_nodes, layout.n_columns)),
            pairs=np.empty((2 * self._most_kinds, layout.n_labels, layout.n_columns)),
            labels=np.empty(self._most_nodes, dtype=np.int64),
            tables=tables,
            shares=shares,
            row=np.empty(layout.n_columns),
        )
        moved: tuple[float, float, float] = move_graphs(
            self._data, self._first, self.point.masses, self._proposals, part.start, part.stop,
            move, self._tables(weights), scratch, self._scratch,
        )  # fmt: skip
        return moved

    def _add_direction(self, direction: Floats) -> float:
        where = self._data, self._first, self.point.masses, self._proposals
        return float(add_all_graphs(*where, self._tables(direction), self._scratch))

    def _tables(self, weights: Floats) -> WeightTables:
        layout = self.oracle.layout
        return WeightTables(layout.table(weights), layout.pair_table(weights))


def _exact_sizes(oracle: GraphOracle) -> NDArray[np.int64]:
    """Scope labellings of each graph; ValueError if they are too many, or inference not exact."""
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
