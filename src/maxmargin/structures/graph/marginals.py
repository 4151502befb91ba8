"""Dual variables of graph labelling: clique marginals on the junction tree of an `Elimination`.

A distribution on graph ``g`` has ``sizes[g] * n_labels`` entries: from ``(table_at[p] + i) *
n_labels`` on, the ``i``-th labelling of the scope of place ``p`` with each label of its node. It
stands for ``p(y) = prod_p p(node of p | scope of p)``, that of most entropy with these marginals.
Updates are compiled; `CliqueTree` evaluates and checks in numpy, sharing no code with inference.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.compiled.rows import add_row_multiple
from maxmargin.core.arrays import Floats, check_indices, check_offsets, check_shape
from maxmargin.core.cuts import starts_of
from maxmargin.core.registry import registered
from maxmargin.dual.marginal import (
    CHUNK,
    TOLERANCE,
    Distributions,
    MarginalPoint,
    add_expected,
    add_node_changes,
    expected_loss,
    mix_example,
    old_and_new,
    step_along,
    touch,
    touch_features,
)
from maxmargin.structures.graph.inference import (
    Ints,
    add_clique_changes,
    best_exact,
    next_labels,
    open_scope,
    reweight_cliques,
    set_own_row,
    table_place,
)
from maxmargin.structures.graph.oracle import (
    GraphOracle,
    InferenceScratch,
    pair_rows,
    score_graph,
)


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


class Scratch(NamedTuple):
    """Scratch of one thread."""

    inference: InferenceScratch
    shares: Floats
    direction: Floats
    touched: Ints


@inlined
def propose_example(data, g, old, temperature, table, scratch, new):  # type: ignore[no-untyped-def]
    """Set the proposal `new` of a graph; returns its hinge and the expected slope."""
    n, elimination, incidence = data.layout.n_labels, data.elimination, data.incidence
    nodes, pairs, labels, tables, relaxation = scratch.inference
    row = relaxation.row
    own = score_graph(data, g, table, nodes, pairs)
    mean = mean_clique_score(elimination, incidence, g, n, nodes, pairs, old, labels, row)
    best = best_exact(elimination, incidence, g, n, nodes, pairs, labels, tables, row)
    if temperature == 0.0:
        set_clique_labelling(elimination, incidence, g, n, labels, new)
    else:
        scale_scores(data, g, 1.0 / temperature, nodes, pairs)
        for i in range(len(old)):
            new[i] = old[i]
        shares = scratch.shares
        reweight_cliques(
            elimination, incidence, g, n, nodes, pairs, new, labels, tables, shares, row
        )
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
def add_changes(graphs, g, C, old, new, scratch, table):  # type: ignore[no-untyped-def]
    """Add the change of the weights by a full step to `table`; returns that of the linear term."""
    layout, first = graphs.layout, graphs.incidence.node_ends[g]
    n_nodes = graphs.incidence.node_ends[g + 1] - first
    first_kind, last_kind = graphs.kind_ends[g], graphs.kind_ends[g + 1]
    # What the marginals of nodes and edges change by, times C.
    nodes, pairs = scratch.nodes[:n_nodes], scratch.pairs[: last_kind - first_kind]
    nodes[:] = 0.0
    pairs[:] = 0.0
    add_clique_changes(
        graphs.elimination, graphs.incidence, g, layout.n_labels, old, new, C,
        nodes, pairs, scratch.labels, scratch.relaxation.row,
    )  # fmt: skip
    if not layout.directed:
        for kind in range(len(pairs)):
            for a in range(layout.n_labels):
                for b in range(a):
                    pairs[kind, b, a] += pairs[kind, a, b]
                    pairs[kind, a, b] = 0.0
    add_node_changes(graphs.rows, layout.bias, first, nodes, n_nodes, table)
    pair_table = pair_rows(table, layout)
    for kind in range(first_kind, last_kind):
        flat = pairs[kind - first_kind].reshape(layout.n_labels * layout.n_columns)
        add_row_multiple(graphs.kind_rows, kind, flat, pair_table)
    linear = 0.0
    for v in range(n_nodes):
        y_true = graphs.labels[first + v]
        for m in range(layout.n_columns):
            linear -= graphs.scales[first + v] * nodes[v, m] * graphs.loss[y_true, m]
    return linear


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
def move_graphs(data, starts, masses, found, first, last, move, table, scratch):  # type: ignore[no-untyped-def]
    """See `Distributions.move_examples`."""
    graphs, totals = data
    direction, touched = scratch.direction, scratch.touched
    gain = linear = 0.0
    entries = 0
    for k in range(first, last):
        g = found.examples[k]
        old, new = old_and_new(starts, masses, found, 0, k)
        if move.proposes:
            found.hinges[k] = found.values[k] = 0.0
            if len(old) > 0:
                found.hinges[k], found.values[k] = propose_example(
                    graphs, g, old, move.temperature, table, scratch, new
                )
        if move.steps:
            whole = add_changes(graphs, g, totals[g], old, new, scratch.inference, direction)
            count = touch_rows(graphs, g, touched)
            step, slope, square = step_along(move, whole, direction, table, touched, count)
            if step > 0.0:
                mix_example(starts, masses, found, k, step)
            gain += step * (slope - 0.5 * step * square)
            linear += step * whole
            start, stop = graphs.incidence.node_ends[g], graphs.incidence.node_ends[g + 1]
            entries += graphs.rows.starts[stop] - graphs.rows.starts[start] + len(old)
        elif not move.proposes:
            linear += add_changes(graphs, g, totals[g], old, new, scratch.inference, table)
    return gain, linear, 4 * entries * graphs.layout.n_columns


@registered("CliqueTree", check="check")
@dataclass(frozen=True, eq=False)
class CliqueTree:
    """Junction trees of all graphs, and marginals on them as one vector.

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
        everything = np.arange(len(self.nodes))
        for some, sums in self._sums(mass, everything, np.ones_like(everything)):
            marginals[self.nodes[some]] = sums
        return marginals

    def covers(self, edges: Ints) -> bool:
        """Whether the two nodes of each edge, counted over all graphs, share a clique."""
        return bool((self._edge_places(edges)[1] >= 0).all())

    def edge_marginals(self, mass: Floats, edges: Ints) -> Floats:
        """Marginals of pairs, ``(n_edges, n_labels, n_labels)``, of edges that must be covered."""
        n = self.n_labels
        marginals = np.empty((len(edges), n, n))
        own, position = self._edge_places(edges)
        for some, sums in self._sums(mass, own, 1 | 2 << position):
            pairs = sums.reshape(-1, n, n)
            swapped = self.nodes[own[some]] == edges[some, 0]
            marginals[some] = np.where(swapped[:, None, None], pairs.transpose(0, 2, 1), pairs)
        return marginals

    def is_distribution(self, mass: Floats, tolerance: float) -> bool:
        """Whether these are the clique marginals of some distribution over labellings.

        So they are if none is negative, cliques without scope sum to one, and each other agrees on
        its scope with the later clique that contains it: labels can then be drawn from the last
        place on.
        """
        if mass.shape != (self.starts[-1],) or not (mass >= 0.0).all() or not self._is_tree:
            return False
        roots = self.starts[:-1][self.widths == 0]
        totals = mass[roots[:, None] + np.arange(self.n_labels)].sum(axis=1)
        off = np.abs(totals - 1.0).max(initial=0.0)
        return bool(max(off, self._disagreement(mass)) <= tolerance)

    def _disagreement(self, mass: Floats) -> float:
        """Largest difference between a clique and the next one in the marginals of its scope."""
        off = 0.0
        below = np.flatnonzero(self.widths)
        above = self.scope[self.scope_starts[below]]
        for some, theirs in self._sums(mass, above, 1 | self._shared[below] << 1):
            own = self._tables(mass, below[some]).reshape(*theirs.shape, self.n_labels).sum(axis=2)
            off = max(off, float(np.abs(own - theirs).max()))
        return off

    def _sums(self, mass: Floats, places: Ints, kept: Ints) -> Iterator[tuple[Ints, Floats]]:
        """Marginals of cliques over some of their nodes, the last running fastest, in batches.

        Bit 0 of ``kept[i]`` stands for the node of ``places[i]``, the next ones for its scope.
        Yields which of the places, of the same kind and few enough to be copied, and a row of each.
        """
        n, widths = self.n_labels, self.widths[places]
        order = np.lexsort((widths, kept))
        changes = np.diff(widths[order]) | np.diff(kept[order])
        for group in np.split(order, np.flatnonzero(changes) + 1) if len(order) else ():
            # Axes of a clique: its scope from the last to the first, then the node itself.
            bits = [int(kept[group[0]]) >> i & 1 for i in range(widths[group[0]], -1, -1)]
            runs = [(bit, n ** len(list(run))) for bit, run in groupby(bits)]
            dropped = tuple(axis for axis, (bit, _) in enumerate(runs, start=1) if not bit)
            size = max(1, CHUNK // n ** len(bits))
            for some in (group[i : i + size] for i in range(0, len(group), size)):
                tables = self._tables(mass, places[some]).reshape(-1, *(count for _, count in runs))
                yield some, tables.sum(axis=dropped).reshape(len(some), -1)

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
        ends = np.sort(np.argsort(self.nodes)[edges], axis=1)
        return ends[:, 0], self._positions(ends[:, 0], ends[:, 1])

    def _tables(self, mass: Floats, places: Ints) -> Floats:
        """Entries of cliques of the same width, one row each."""
        size = self.n_labels ** (int(self.widths[places[0]]) + 1)
        tables: Floats = mass[self.starts[places][:, None] + np.arange(size)]
        return tables


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
        scope = np.repeat(first, np.diff(elimination.scope_starts)) + elimination.scope
        places = np.argsort(nodes)
        tree = CliqueTree(oracle.layout.n_labels, nodes, elimination.scope_starts, places[scope])
        return cls(tree.even(), tree)

    def is_like(self, other: "GraphPoint") -> bool:
        own, others = self.tree, other.tree
        return own.n_labels == others.n_labels and all(
            np.array_equal(getattr(own, name), getattr(others, name))
            for name in ("nodes", "scope_starts", "scope")
        )

    def is_feasible(self, oracle: GraphOracle) -> bool:
        return (
            self.tree.n_labels == oracle.layout.n_labels
            and len(self.tree.nodes) == oracle.graphs.node_ends[-1]
            and self.tree.covers(oracle.graphs.all_edges)
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

        edges = graphs.all_edges
        first, second = labels[edges].T
        pairs = self.tree.edge_marginals(self.mass, edges).reshape(len(edges), n * n)
        sums = np.zeros((layout.n_edge_features, n * n))
        of_edges = np.repeat(oracle.C, graphs.n_edges)
        add_expected(graphs.edge_rows, pairs, first * n + second, of_edges, sums, None)
        tables = sums.reshape(-1, n, n)
        if not layout.directed:
            tables = np.triu(tables) + np.triu(tables.transpose(0, 2, 1), 1)
        table[layout.pairs :] += tables.reshape(-1, n)
        return weights, expected_loss(nodes, labels, data.loss[:, :n], C * data.scales)


MOST_NUMBERS = 2**28
"""Bound on the clique marginals of all graphs: 2 GB."""


class GraphDistributions(Distributions):
    """Clique marginals of all graphs; ValueError if they are too many, or inference not exact."""

    move_examples = staticmethod(move_graphs)

    oracle: GraphOracle
    point: GraphPoint

    def __init__(self, oracle: GraphOracle, temperature: float) -> None:
        sizes = oracle.layout.n_labels * _exact_sizes(oracle)
        data = oracle.inference.data, oracle.C
        super().__init__(oracle, GraphPoint.even(oracle), data, (sizes,), temperature)

    def _true_places(self) -> tuple[Ints, ...]:
        return (self.point.tree.places_of(self.oracle.inference.data.labels),)

    def _scratch(self) -> Scratch:
        inference = self.oracle.inference.scratch()
        return Scratch(inference, np.empty_like(inference.tables), self._direction, self._touched)


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
