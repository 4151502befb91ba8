"""What training and prediction compute for graphs, compiled: scores, searches, planes."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.compiled.rows import Rows, add_row_scores
from maxmargin.structures.graph.graphs import Floats, GraphLayout, Graphs, Ints
from maxmargin.structures.graph.incidence import Incidence, labelling_score
from maxmargin.structures.graph.junction_tree import Elimination, best_exact
from maxmargin.structures.graph.relaxation import RelaxationScratch, relax, relaxation_scratch


class GraphData(NamedTuple):
    """What the kernels need of the data.

    `labels` are the true ones and `scales` the factors of each node's loss; without any, there is
    no truth, and scores are not augmented.
    """

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


def inference_scratch(
    graphs: Graphs, elimination: Elimination, layout: GraphLayout
) -> InferenceScratch:
    """Scratch that is enough for each of the graphs."""
    n_nodes = int(graphs.n_nodes.max(initial=1))
    n_kinds = int(np.diff(graphs.kind_ends).max(initial=1))
    width = layout.n_columns
    return InferenceScratch(
        np.zeros((n_nodes, width)),
        np.zeros((2 * n_kinds, layout.n_labels, width)),
        np.zeros(n_nodes, dtype=np.int64),
        np.empty(max(int(elimination.sizes.max(initial=0)), 0)),
        relaxation_scratch(n_nodes, width),
    )


@compiled
def score_graph(data, g, table, pair_table, nodes, pairs):  # type: ignore[no-untyped-def]
    """Scores of the labels of graph `g`, losses included if there are true labels.

    Returns the score of the true labels; ``-inf`` if there are none.
    """
    layout, incidence = data.layout, data.incidence
    n, first = layout.n_labels, incidence.node_ends[g]
    n_nodes = incidence.node_ends[g + 1] - first
    for v in range(n_nodes):
        for m in range(layout.n_columns):
            nodes[v, m] = table[layout.bias, m] if layout.bias >= 0 else 0.0
        add_row_scores(data.rows, first + v, table, nodes[v])
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
    data, table, pair_table, examples, places, starts, found, scores, bounds, effort,
    messages, message_at, scratch,
):  # fmt: skip
    """The best labels of the graphs ``examples[places]``, exactly or not, at ``found[starts[k]:]``.

    `messages` of graph ``g`` stand from ``message_at[g]`` on; if that is -1, it has none of
    an earlier search, and there is room at the beginning.
    """
    n = data.layout.n_labels
    for i in range(len(places)):
        k = places[i]
        g = examples[k]
        floor = score_graph(data, g, table, pair_table, scratch.nodes, scratch.pairs)
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


# A large graph has many nodes but few different features, so the entries of a plane are summed: in
# scratch that is zero between planes, while the plane's place holds the columns met, each once.


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
    """Where the weight of a pair of labels stands, for the first feature of edges."""
    swapped = not layout.directed and b < a
    row, column = (b, a) if swapped else (a, b)
    return (layout.pairs + row) * layout.n_columns + column


@compiled
def measure_cuts(data, examples, starts, found, losses):  # type: ignore[no-untyped-def]
    """Losses of each block's found labels; returns how many entries their planes have at most."""
    layout, incidence = data.layout, data.incidence
    room = 0
    for k in range(len(examples)):
        g = examples[k]
        first, at = incidence.node_ends[g], starts[k]
        count = 0
        total = 0.0
        for v in range(incidence.node_ends[g + 1] - first):
            y_true, label = data.labels[first + v], found[at + v]
            if y_true != label:
                count += data.rows.starts[first + v + 1] - data.rows.starts[first + v]
                count += layout.bias >= 0
                total += data.scales[first + v] * data.loss[y_true, label]
        for e in range(incidence.edge_ends[g], incidence.edge_ends[g + 1]):
            u, v = data.edges[e, 0], data.edges[e, 1]
            if data.labels[first + u] != found[at + u] or data.labels[first + v] != found[at + v]:
                row = data.kind_ends[g] + data.edge_kinds[e]
                count += data.kind_rows.starts[row + 1] - data.kind_rows.starts[row]
        room += min(2 * count, layout.n_rows * layout.n_columns)
        losses[k] = total
    return room


@compiled
def fill_cuts(data, examples, starts, found, counts, columns, values, sums, met):  # type: ignore[no-untyped-def]
    """Features of the true labels less those of the found ones, one plane after the other.

    Plane ``k`` has ``counts[k]`` entries; returns how many there are in all. Scratch: `sums` and
    `met`, a number and a flag for each weight, zero before and after.
    """
    layout, incidence = data.layout, data.incidence
    width, step = layout.n_columns, layout.n_labels * layout.n_columns
    rows, kind_rows = data.rows, data.kind_rows
    start = 0
    for k in range(len(examples)):
        g = examples[k]
        first, at = incidence.node_ends[g], starts[k]
        used = start
        for v in range(incidence.node_ends[g + 1] - first):
            y, z = np.int64(data.labels[first + v]), np.int64(found[at + v])
            if y != z:
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
        start = stop
    return start
