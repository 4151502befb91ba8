"""Separation oracle over sequences: emissions from feature rows, transitions between neighbours.

The weights are a table, flat for solvers, with one column a label, padded for SIMD; its rows are
d features (emissions), k transitions from label a (row) to b (column), one row each for bias, first
and last, k * k second-order transitions from (a, b), row ``a * k + b``, and k rows for each
feature tied to pairs, row ``j * k + a``.
"""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.compiled.rows import (
    Rows,
    add_row_scores,
    as_matrix,
    empty_rows,
    locked,
    make_rows,
    padded,
)
from maxmargin.core.arrays import Floats, Order, check_indices
from maxmargin.core.cuts import starts_of
from maxmargin.core.oracle import CompiledOracle, Entries
from maxmargin.core.registry import registered
from maxmargin.dual.marginal import Distributions
from maxmargin.structures.chain.inference import best_other, most_slack, viterbi, viterbi2

if TYPE_CHECKING:
    from maxmargin.structures.chain.label_cuts import LabelCuts

Labels = NDArray[np.uint16]


@registered("Layout", check="check")
class Layout(NamedTuple):
    """Rows of the weight table where the parts of a chain model stand; -1 for a part it has not."""

    n_labels: int
    n_features: int
    transitions: int
    bias: int
    first: int
    last: int
    triples: int
    tied: int
    n_rows: int
    n_columns: int

    @classmethod
    def of(
        cls,
        n_features: int,
        n_labels: int,
        *,
        bias: bool,
        ends: bool,
        order: int = 1,
        n_tied: int = 0,
    ) -> "Layout":
        """Lay out the parts one after the other."""
        after = n_features + n_labels
        first_order = after + bias + 2 * ends
        untied = first_order + (n_labels**2 if order == 2 else 0)
        return cls(
            n_labels=n_labels,
            n_features=n_features,
            transitions=n_features,
            bias=after if bias else -1,
            first=after + bias if ends else -1,
            last=after + bias + 1 if ends else -1,
            triples=first_order if order == 2 else -1,
            tied=untied if n_tied else -1,
            n_rows=untied + n_tied * n_labels,
            n_columns=padded(n_labels),
        )

    @property
    def order(self) -> int:
        """1, or 2 with second-order transitions."""
        return 1 if self.triples < 0 else 2

    @property
    def n_tied(self) -> int:
        """Number of the features tied to pairs."""
        return 0 if self.tied < 0 else (self.n_rows - self.tied) // max(self.n_labels, 1)

    def resized(self, n_features: int) -> "Layout":
        """The same parts with another number of features."""
        sizes, bias, ends = (n_features, self.n_labels), self.bias >= 0, self.first >= 0
        return Layout.of(*sizes, bias=bias, ends=ends, order=self.order, n_tied=self.n_tied)

    def check(self) -> None:
        """Raise ValueError if this is no layout that `of` makes."""
        made = self.resized(self.n_features)
        if self.n_labels < 1 or self.n_features < 0 or self != made:
            raise ValueError("the parts of the chain model do not fit together")

    def table(self, weights: Floats) -> Floats:
        return weights.reshape(self.n_rows, self.n_columns)


@dataclass(frozen=True)
class Sequences:
    """Feature rows of all sequences, of `width` features; `tied` are those of pairs, or None."""

    rows: Rows
    ends: Order
    width: int
    tied: Rows | None = None

    @classmethod
    def of(cls, X: Any, ends: Order, tied: Any = None) -> "Sequences":
        """From matrices of all rows, dense or CSR."""
        return cls(
            make_rows(X, 0.0), ends, X.shape[1], None if tied is None else make_rows(tied, 0.0)
        )

    @property
    def lengths(self) -> Order:
        return self.ends[1:] - self.ends[:-1]

    @property
    def longest(self) -> int:
        """The largest length, at least one."""
        if len(self.ends) == 2:  # one sentence at a time, every array counts
            return max(int(self.ends[1]), 1)
        return int(self.lengths.max(initial=1))

    @property
    def entries_per_row(self) -> float:
        """Nonzero features of a row, on average."""
        return float(self.rows.starts[-1] / max(len(self.rows.starts) - 1, 1))

    @property
    def matrix(self) -> Any:
        """The matrix of all rows, dense or CSR."""
        return as_matrix(self.rows, self.width)

    @property
    def dense(self) -> Floats:
        X = self.matrix
        return np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)

    @cached_property
    def tied_rows(self) -> Rows:
        """The features tied to pairs; empty rows if there are none."""
        return empty_rows(len(self.rows.starts) - 1) if self.tied is None else self.tied


class ChainData(NamedTuple):
    """The data for compiled functions; without true `labels` nothing is loss-augmented.

    Label b where a is true costs ``loss[a, b]`` times `loss_scale` of the sequence.
    """

    rows: Rows
    tied: Rows
    ends: Order
    layout: Layout
    labels: Labels
    loss: Floats
    loss_scale: Floats

    @classmethod
    def unlabelled(cls, sequences: Sequences, layout: Layout) -> "ChainData":
        """For predictions."""
        tied = _NO_ROWS if sequences.tied is None else sequences.tied
        loss = _no_loss(layout.n_columns)
        return cls(sequences.rows, tied, sequences.ends, layout, _NO_LABELS, loss, _NO_SCALES)


_NO_ROWS, _NO_LABELS, _NO_SCALES = empty_rows(0), np.zeros(0, dtype=np.uint16), np.zeros(0)


@cache  # one sentence at a time, every array counts
def _no_loss(n_columns: int) -> Floats:
    return np.zeros((1, n_columns))


def infer_labels(
    longest: int, data: ChainData, table: Floats, examples: Order, starts: Order, found: Labels
) -> Floats:
    """Write the labels of the highest (loss-augmented) score to `found`; returns the scores."""
    layout, scores = data.layout, np.zeros(len(examples))
    nodes = np.empty((longest, layout.n_columns))
    where = data, locked(table), examples, starts, found, scores, nodes
    if layout.triples >= 0:
        infer_second_order(*where, np.empty((longest, layout.n_labels, layout.n_columns)))
    else:
        best = np.empty((longest, layout.n_columns))
        infer_first_order(*where, edge_scratch(longest, layout), best)
    return scores


_MERGED = 4
"""Features of a chain for each weight from which on cuts are better kept as merged entries."""


class ChainOracle(CompiledOracle):
    """Separation oracle over labelled sequences, with compiled inference.

    Label b where a is true costs ``loss[a, b]`` at a position; `normalized` divides the loss of a
    sequence by its length. With `zero_one` any mistake costs one, and both are ignored. Slack
    rescaling needs a loss that counts mistakes.
    """

    output_dtype = np.uint16

    def __init__(
        self,
        sequences: Sequences,
        labels: NDArray[Any],
        layout: Layout,
        C: Floats,
        loss: Floats,
        *,
        normalized: bool = False,
        zero_one: bool = False,
        slack: bool = False,
    ) -> None:
        self.sequences, self.layout, self.C = sequences, layout, C
        self.zero_one, self.slack = zero_one, slack
        self.labels = labels.astype(np.uint16)
        self.n_features = layout.n_rows * layout.n_columns
        self.rows = sequences.rows
        self.loss = np.zeros((layout.n_labels, layout.n_columns))
        self.loss[:, : layout.n_labels] = 1.0 - np.eye(layout.n_labels) if zero_one else loss
        self.output_sizes = sequences.lengths
        lengths = np.maximum(sequences.lengths, 1)
        scaled = normalized and not zero_one
        self.loss_scale = 1.0 / lengths if scaled else np.ones(len(lengths))

    @property
    def oracle_work(self) -> float:
        per_row = self.sequences.entries_per_row
        tokens = len(self.labels) / max(self.n_examples, 1)
        pairs: int = self.layout.n_labels**self.layout.order
        return tokens * self.layout.n_columns * (per_row + pairs)

    def distributions(self, temperature: float) -> Distributions:
        """Marginals of labels and of pairs of neighbours."""
        from maxmargin.structures.chain.marginals import ChainDistributions

        if self.layout.triples >= 0 or self.zero_one or self.slack:
            raise ValueError(
                "PartialLinearization and ExponentiatedGradient train chains of order 1 with "
                "margin rescaling and a loss that adds up over the positions, and no others."
            )
        return ChainDistributions(self, temperature)

    @property
    def output_cuts(self) -> "LabelCuts | None":
        from maxmargin.structures.chain.label_cuts import LabelCuts

        # Merged cuts of dense features are much shorter than what they are merged of.
        features = self.sequences.rows.starts[-1] / max(self.n_examples, 1)
        return LabelCuts(self) if features < _MERGED * self.n_features else None

    @property
    def data(self) -> ChainData:
        return ChainData(
            self.rows, self.sequences.tied_rows, self.sequences.ends, self.layout,
            self.labels, self.loss, self.loss_scale,
        )  # fmt: skip

    def infer(self, weights: Floats, examples: Order, starts: Order, found: Labels) -> None:
        where = self.data, self.layout.table(weights), examples, starts, found
        length, width = self.sequences.longest, self.layout.n_columns
        if self.layout.triples >= 0 or not (self.zero_one or self.slack):
            infer_labels(length, *where)
        else:
            best = np.empty((1, length, width) if self.zero_one else (length, length + 1, width))
            scratch = np.empty((length, width)), best, np.empty(length)
            infer_rescaled(*where, self.zero_one, *scratch)

    def check_outputs(self, examples: Order, starts: Order, found: Labels) -> None:
        check_indices("labels of outputs", found, self.layout.n_labels)

    def entries_of(self, examples: Order, starts: Order, found: Labels) -> Entries:
        counts, losses = self.measured(examples, starts, found)
        entries = starts_of(counts)
        columns, values = np.empty(entries[-1], dtype=np.uint32), np.empty(entries[-1])
        scales = losses if self.slack else np.ones(len(examples))
        fill_cuts(self.data, examples, starts, found, scales, entries, columns, values)
        return entries, columns, values, losses

    def measured(self, examples: Order, starts: Order, found: Labels) -> tuple[Order, Floats]:
        """Number of entries and loss of the cut of each output."""
        counts, losses = np.empty(len(examples), dtype=np.int64), np.empty(len(examples))
        measure_cuts(self.data, examples, starts, found, self.zero_one, counts, losses)
        return counts, losses


@inlined
def set_node_scores(rows, start, stop, table, layout, nodes):  # type: ignore[no-untyped-def]
    """Set emissions, bias and ends of the rows ``start..stop-1``."""
    length = stop - start
    for t in range(length):
        for m in range(layout.n_columns):
            nodes[t, m] = table[layout.bias, m] if layout.bias >= 0 else 0.0
        add_row_scores(rows, start + t, table, nodes[t])
    if layout.first >= 0:
        for m in range(layout.n_columns):
            nodes[0, m] += table[layout.first, m]
            nodes[length - 1, m] += table[layout.last, m]


@inlined
def pair_scores(table, layout):  # type: ignore[no-untyped-def]
    """The transitions of the weight table."""
    return table[layout.transitions : layout.transitions + layout.n_labels]


@inlined
def edge_scores(tied, start, stop, table, layout, edges):  # type: ignore[no-untyped-def]
    """Pair scores: one matrix for all positions or, with tied features, one for each."""
    pairs = pair_scores(table, layout)
    if layout.tied < 0:
        return pairs.reshape(1, layout.n_labels, layout.n_columns)
    for t in range(1, stop - start):
        here = edges[t - 1]
        for a in range(layout.n_labels):
            for m in range(layout.n_columns):
                here[a, m] = pairs[a, m]
        for q in range(tied.starts[start + t], tied.starts[start + t + 1]):
            first = layout.tied + np.int64(tied.columns[q]) * layout.n_labels
            for a in range(layout.n_labels):
                for m in range(layout.n_columns):
                    here[a, m] += tied.values[q] * table[first + a, m]
    return edges[: max(stop - start - 1, 1)]


def edge_scratch(length: int, layout: Layout) -> Floats:
    """Scratch of `edge_scores`."""
    return np.zeros((length if layout.tied >= 0 else 0, layout.n_labels, layout.n_columns))


@inlined
def score_example(data, b, table, nodes):  # type: ignore[no-untyped-def]
    """Set node scores, loss-augmented if there are true labels."""
    start, stop = data.ends[b], data.ends[b + 1]
    set_node_scores(data.rows, start, stop, table, data.layout, nodes)
    if len(data.labels) > 0:
        for t in range(stop - start):
            for m in range(nodes.shape[1]):
                nodes[t, m] += data.loss_scale[b] * data.loss[data.labels[start + t], m]


@compiled
def infer_first_order(data, table, examples, starts, found, scores, nodes, edges, best):  # type: ignore[no-untyped-def]
    """Write MAP labels of each of the `examples` to ``found[starts[k]:]``, and set `scores`.

    data, table : `ChainData`, and weights as in `Layout`
    examples, starts, found, scores : ``examples[k]``, where its labels go, its score
    nodes, edges, best : scratch of `score_example`, `edge_scores` and `viterbi`
    """
    for k in range(len(examples)):
        start, stop = data.ends[examples[k]], data.ends[examples[k] + 1]
        if stop > start:
            score_example(data, examples[k], table, nodes)
            along = edge_scores(data.tied, start, stop, table, data.layout, edges)
            out = found[starts[k] : starts[k + 1]]
            scores[k] = viterbi(nodes[: stop - start], along, data.layout.n_labels, out, best)


@compiled
def label_sequences(rows, ends, table, layout, labels, scores, scratch):  # type: ignore[no-untyped-def]
    """`infer_first_order` for predictions without tied features: a word has few arguments.

    rows, ends : `Rows`, and where each sequence begins and ends
    table, layout : weights, and their `Layout`
    labels, scores : set, of every row and of every sequence
    scratch : ndarray of shape (2, longest, n_columns)
    """
    nodes, best = scratch[0], scratch[1]
    pairs = pair_scores(table, layout).reshape(1, layout.n_labels, layout.n_columns)
    for k in range(len(ends) - 1):
        start, stop = ends[k], ends[k + 1]
        if stop > start:
            set_node_scores(rows, start, stop, table, layout, nodes)
            out = labels[start:stop]
            scores[k] = viterbi(nodes[: stop - start], pairs, layout.n_labels, out, best)


@compiled
def infer_second_order(data, table, examples, starts, found, scores, nodes, best):  # type: ignore[no-untyped-def]
    """`infer_first_order` at second order."""
    n, first = data.layout.n_labels, data.layout.triples
    pairs, triples = pair_scores(table, data.layout), table[first : first + n * n]
    for k in range(len(examples)):
        length = data.ends[examples[k] + 1] - data.ends[examples[k]]
        if length > 0:
            score_example(data, examples[k], table, nodes)
            out = found[starts[k] : starts[k + 1]]
            scores[k] = viterbi2(nodes[:length], pairs, triples, n, out, best)


@compiled
def infer_rescaled(data, table, examples, starts, found, zero_one, nodes, best, agreed):  # type: ignore[no-untyped-def]
    """Slack-rescaled inference, or (`zero_one`) the best labels other than the true ones.

    data, table, examples, starts, found : as in `infer_first_order`
    nodes, best, agreed : scratch of `score_example`, of `most_slack` or, ``best[0]``, `best_other`
    """
    pairs, n = pair_scores(table, data.layout), data.layout.n_labels
    for k in range(len(examples)):
        start, stop = data.ends[examples[k]], data.ends[examples[k] + 1]
        if stop > start:
            set_node_scores(data.rows, start, stop, table, data.layout, nodes)
            scores, y_true = nodes[: stop - start], data.labels[start:stop]
            out = found[starts[k] : starts[k + 1]]
            if zero_one:
                best_other(scores, pairs, n, y_true, out, best[0], agreed)
            else:
                most_slack(scores, pairs, n, y_true, out, best)


@inlined
def differ(labels, found, at, other_at, t, reach):  # type: ignore[no-untyped-def]
    """Whether any of the labels ``t - reach .. t`` differ."""
    result = False
    for back in range(reach + 1):
        result |= labels[at + t - back] != found[other_at + t - back]
    return result


@compiled
def measure_cuts(data, examples, starts, found, zero_one, counts, losses):  # type: ignore[no-untyped-def]
    """Set number of entries and loss of the cut of each example's found labels.

    A cut of a long chain that would have more entries than there are weights has one for each.
    """
    rows, tied, ends, layout = data.rows, data.tied, data.ends, data.layout
    labels, loss = data.labels, data.loss
    n_weights = layout.n_rows * layout.n_columns
    for k in range(len(examples)):
        b = examples[k]
        start, at = ends[b], starts[k]
        count = 0
        errors = 0
        total = 0.0
        for t in range(ends[b + 1] - start):
            if differ(labels, found, start, at, t, 0):
                errors += 1
                count += rows.starts[start + t + 1] - rows.starts[start + t]
                count += (layout.bias >= 0) + (layout.first >= 0) * (
                    (t == 0) + (start + t + 1 == ends[b + 1])
                )
                total += loss[labels[start + t], found[at + t]]
            if t > 0 and differ(labels, found, start, at, t, 1):
                count += 1 + tied.starts[start + t + 1] - tied.starts[start + t]
            if layout.triples >= 0 and t > 1 and differ(labels, found, start, at, t, 2):
                count += 1
        counts[k] = min(2 * count, n_weights)
        losses[k] = data.loss_scale[b] * total
        if zero_one:
            losses[k] = 1.0 if errors > 0 else 0.0


@inlined
def put_pair(columns, values, at, dense, width, row, y_true, other_row, other, value):  # type: ignore[no-untyped-def]
    """Put `value` in column ``row * width + y_true`` and ``-value`` in that of the other label.

    columns, values, at : entries of the cuts, and where to begin; returns where they go on
    dense : bool, the cut has an entry for each weight, from `at` on
    width, row, y_true, other_row, other : width of the weight table, true and other cell in it
    """
    cell, other_cell = row * width + y_true, other_row * width + other
    if dense:
        values[at + cell] += value
        values[at + other_cell] -= value
        return at
    columns[at] = cell
    columns[at + 1] = other_cell
    values[at] = value
    values[at + 1] = -value
    return at + 2


@compiled
def fill_cuts(data, examples, starts, found, scales, entries, columns, values):  # type: ignore[no-untyped-def]
    """Write the cuts ``phi(x, y_true) - phi(x, found)``, entries only where labels differ.

    That of example ``examples[k]`` lies in ``entries[k]:entries[k + 1]``, see `measure_cuts`.
    """
    rows, tied, ends, layout, labels = data.rows, data.tied, data.ends, data.layout, data.labels
    width, n = layout.n_columns, layout.n_labels
    n_weights = layout.n_rows * width
    for k in range(len(examples)):
        b = examples[k]
        start, stop = ends[b], ends[b + 1]
        other_at = starts[k]
        scale = scales[k]
        at = entries[k]
        dense = entries[k + 1] - at == n_weights
        if dense:
            for p in range(n_weights):
                columns[at + p] = p
                values[at + p] = 0.0
        for t in range(stop - start):
            y, z = np.int64(labels[start + t]), np.int64(found[other_at + t])
            if y != z:
                first = rows.starts[start + t]
                for q in range(first, rows.starts[start + t + 1]):
                    row = np.int64(rows.columns[q if rows.indexed else q - first])
                    at = put_pair(
                        columns, values, at, dense, width, row, y, row, z, scale * rows.values[q]
                    )
                if layout.bias >= 0:
                    at = put_pair(
                        columns, values, at, dense, width, layout.bias, y, layout.bias, z, scale
                    )
                if layout.first >= 0 and t == 0:
                    row = layout.first
                    at = put_pair(columns, values, at, dense, width, row, y, row, z, scale)
                if layout.last >= 0 and start + t + 1 == stop:
                    row = layout.last
                    at = put_pair(columns, values, at, dense, width, row, y, row, z, scale)
            if t > 0 and differ(labels, found, start, other_at, t, 1):
                before = np.int64(labels[start + t - 1])
                other_before = np.int64(found[other_at + t - 1])
                row, other = layout.transitions + before, layout.transitions + other_before
                at = put_pair(columns, values, at, dense, width, row, y, other, z, scale)
                for q in range(tied.starts[start + t], tied.starts[start + t + 1]):
                    first = layout.tied + np.int64(tied.columns[q]) * n
                    value = scale * tied.values[q]
                    row, other = first + before, first + other_before
                    at = put_pair(columns, values, at, dense, width, row, y, other, z, value)
            if layout.triples >= 0 and t > 1 and differ(labels, found, start, other_at, t, 2):
                row = np.int64(labels[start + t - 2]) * n + labels[start + t - 1]
                other = np.int64(found[other_at + t - 2]) * n + found[other_at + t - 1]
                row += layout.triples
                other += layout.triples
                at = put_pair(columns, values, at, dense, width, row, y, other, z, scale)
