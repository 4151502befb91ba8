"""Moves of the distributions over labellings of graphs, compiled: proposals and steps."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.dual.compiled import compiled, inlined
from maxmargin.dual.rows import add_row_multiple
from maxmargin.inference.cliques import (
    add_clique_changes,
    mean_clique_score,
    reweight_cliques,
    set_clique_labelling,
)
from maxmargin.inference.junction_tree import best_exact
from maxmargin.problems.distributions.directions import (
    measure_rows,
    move_and_clear,
    touch,
    touch_features,
)
from maxmargin.problems.distributions.flat import mix, old_and_new
from maxmargin.problems.distributions.steps import step_size
from maxmargin.problems.graph_kernels import GraphData, score_graph

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class CliqueData(NamedTuple):
    """What the kernels need of the data.

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
def propose_block(data, g, old, temperature, weights, scratch, new):  # type: ignore[no-untyped-def]
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
        truth = graphs.labels[first + v]
        for m in range(layout.n_columns):
            linear -= graphs.scales[first + v] * nodes[v, m] * graphs.loss[truth, m]
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
def step_block(data, g, old, new, move, weights, scratch):  # type: ignore[no-untyped-def]
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
        g = found.blocks[k]
        old, new = old_and_new(data.first, mass, found, k)
        if move.proposes:
            found.hinges[k] = found.values[k] = 0.0
            if len(old) > 0:
                found.hinges[k], found.values[k] = propose_block(
                    graphs, g, old, move.temperature, weights, scratch, new
                )
        if move.steps:
            more, change = step_block(data, g, old, new, move, weights, step_scratch)
            gain += more
            linear += change
            start, stop = graphs.incidence.node_ends[g], graphs.incidence.node_ends[g + 1]
            entries += graphs.rows.starts[stop] - graphs.rows.starts[start] + len(old)
    return gain, linear, 4 * entries * graphs.layout.n_columns


@compiled
def add_all_graphs(data, mass, found, direction, scratch):  # type: ignore[no-untyped-def]
    """See `Distributions._add_direction`."""
    linear = 0.0
    for k in range(len(found.blocks)):
        g = found.blocks[k]
        old, new = old_and_new(data.first, mass, found, k)
        linear += set_changes(data, g, old, new, scratch)
        add_changes(data.graphs, g, scratch.nodes, scratch.pairs, direction)
    return linear
