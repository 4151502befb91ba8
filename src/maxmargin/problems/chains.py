"""Sequences of labels: emissions from feature rows, transitions between neighbours.

The weights of a chain problem are a table with one row for each feature and one column for each
label, padded for the vector kernels; flat, it is the weight vector that solvers see:

    rows 0 .. d-1          emissions of the d features
    rows d .. d+k-1        transitions from label a (row) to label b (column)
    one row each           bias, first and last position, where the problem has them
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.dual.compiled import compiled, inlined
from maxmargin.dual.planes import Planes
from maxmargin.dual.rows import add_row_scores, make_rows
from maxmargin.dual.simd import padded
from maxmargin.engines.threads import Threads
from maxmargin.inference.chains import viterbi
from maxmargin.problems.structured import TrainingSet

Floats = NDArray[np.float64]
Labels = NDArray[np.uint16]
Order = NDArray[np.int64]

MARGIN, ZERO_ONE, SLACK = 0, 1, 2


class Layout(NamedTuple):
    """Where in the weight table the parts of a chain model stand; -1 for a part it has not."""

    n_labels: int
    n_features: int
    transitions: int
    bias: int
    first: int
    last: int
    n_rows: int
    n_columns: int

    @classmethod
    def of(cls, n_features: int, n_labels: int, *, bias: bool, ends: bool) -> "Layout":
        """Rows one after the other."""
        after = n_features + n_labels
        return cls(
            n_labels=n_labels,
            n_features=n_features,
            transitions=n_features,
            bias=after if bias else -1,
            first=after + bias if ends else -1,
            last=after + bias + 1 if ends else -1,
            n_rows=after + bias + 2 * ends,
            n_columns=padded(n_labels),
        )

    def table(self, weights: Floats) -> Floats:
        """The weight vector as a table."""
        return weights.reshape(self.n_rows, self.n_columns)


@dataclass(frozen=True)
class Sequences:
    """Feature rows of all sequences, one after the other.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n_tokens, n_features)
    ends : ndarray of int64, shape (n_sequences + 1,)
        Sequence ``i`` has the rows ``ends[i]:ends[i + 1]``.
    """

    X: Any
    ends: Order

    @property
    def lengths(self) -> Order:
        """Number of rows of each sequence."""
        return np.diff(self.ends)


class ChainTrainingSet(TrainingSet):
    """Labelled sequences with compiled searches.

    Parameters
    ----------
    sequences : Sequences
    labels : ndarray of shape (n_tokens,)
        True label of each row, as numbers.
    layout : Layout
    cost : ndarray of shape (n_sequences,)
    loss : ndarray of shape (n_labels, n_labels)
        ``loss[a, b]``: what label b costs where a is right, at one position.
    normalized : bool
        Divide a sequence's loss by its length.
    search : {MARGIN, ZERO_ONE, SLACK}
        Sum of losses over the positions; one for any mistake; or, with slack rescaling, the
        number of mistakes.
    """

    def __init__(
        self,
        sequences: Sequences,
        labels: NDArray[Any],
        layout: Layout,
        cost: Floats,
        loss: Floats,
        normalized: bool = False,
        search: int = MARGIN,
    ) -> None:
        self.sequences, self.layout, self.cost, self.search = sequences, layout, cost, search
        self.labels = labels.astype(np.uint16)
        self.n_features = layout.n_rows * layout.n_columns
        self.rows = make_rows(sequences.X, 0.0)
        self.loss = np.zeros((layout.n_labels, layout.n_columns))
        self.loss[:, : layout.n_labels] = loss
        lengths = np.maximum(sequences.lengths, 1)
        self.loss_scale = 1.0 / lengths if normalized else np.ones(len(lengths))
        self._longest = int(lengths.max(initial=1))

    @property
    def search_work(self) -> float:
        per_row = len(self.rows.values) / max(len(self.rows.starts) - 1, 1)
        if not self.rows.indexed:
            per_row = len(self.rows.columns)
        tokens = len(self.labels) / max(self.n_blocks, 1)
        return tokens * self.layout.n_columns * (per_row + self.layout.n_labels)

    def planes(self, weights: Floats, blocks: Order, threads: Threads) -> Planes:
        starts = self._starts(blocks)
        found = np.empty(starts[-1], dtype=np.uint16)
        table = self.layout.table(weights)
        share = _shares(len(blocks), threads.n_threads)

        def search(part: slice) -> None:
            search_chains(
                self.rows, self.sequences.ends, self.labels, table, self.layout, self.loss,
                self.loss_scale, self.search, blocks[part], starts[part.start :], found,
                *self._scratch(),
            )  # fmt: skip

        threads.map(search, share)
        return self._make_planes(blocks, starts, found, threads)

    def planes_of(self, blocks: Order, outputs: Sequence[bytes]) -> Planes:
        found = np.frombuffer(b"".join(outputs), dtype=np.uint16)
        return self._make_planes(blocks, self._starts(blocks), found, Threads(1))

    def _starts(self, blocks: Order) -> Order:
        starts = np.zeros(len(blocks) + 1, dtype=np.int64)
        np.cumsum(self.sequences.lengths[blocks], out=starts[1:])
        return starts

    def _scratch(self) -> tuple[Any, ...]:
        n, k = self._longest, self.layout.n_columns
        return np.empty((n, k)), np.empty((n, k))

    def _make_planes(self, blocks: Order, starts: Order, found: Labels, threads: Threads) -> Planes:
        share = _shares(len(blocks), threads.n_threads)
        shared = self.rows, self.sequences.ends, self.labels, self.layout
        counts = np.zeros(len(blocks) + 1, dtype=np.int64)
        losses = np.empty(len(blocks))

        def measure(part: slice) -> None:
            measure_planes(
                *shared, self.loss, self.loss_scale, self.search, blocks[part],
                starts[part.start :], found, counts[part.start + 1 :], losses[part.start :],
            )  # fmt: skip

        threads.map(measure, share)
        entries = np.cumsum(counts)
        columns = np.empty(entries[-1], dtype=np.uint32)
        values = np.empty(entries[-1])

        def fill(part: slice) -> None:
            fill_planes(
                *shared, self.search, losses[part.start :], blocks[part], starts[part.start :],
                found, entries[part.start :], columns, values,
            )  # fmt: skip

        threads.map(fill, share)
        raw = found.tobytes()
        outputs = [raw[2 * a : 2 * b] for a, b in pairwise(starts.tolist())]
        return Planes(entries, columns, values, losses, outputs)


def _shares(n: int, parts: int) -> list[slice]:
    """``range(n)`` in equal parts."""
    cuts = np.linspace(0, n, min(parts, max(n, 1)) + 1).astype(int).tolist()
    return [slice(a, b) for a, b in pairwise(cuts)]


@inlined
def set_node_scores(rows, start, stop, table, layout, nodes):  # type: ignore[no-untyped-def]
    """Emissions, bias and ends of the rows ``start..stop-1``."""
    length = stop - start
    for t in range(length):
        for m in range(layout.n_columns):
            nodes[t, m] = table[layout.bias, m] if layout.bias >= 0 else 0.0
        add_row_scores(rows, start + t, table, nodes[t])
    if layout.first >= 0:
        for m in range(layout.n_columns):
            nodes[0, m] += table[layout.first, m]
            nodes[length - 1, m] += table[layout.last, m]


@compiled
def search_chains(  # type: ignore[no-untyped-def]
    rows, ends, labels, table, layout, loss, loss_scale, search, blocks, starts, found,
    nodes, best,
):  # fmt: skip
    """Most violating labels of each block, written to ``found[starts[k]:]``."""
    pairs = table[layout.transitions : layout.transitions + layout.n_labels]
    for k in range(len(blocks)):
        b = blocks[k]
        start, stop = ends[b], ends[b + 1]
        if stop == start:
            continue
        set_node_scores(rows, start, stop, table, layout, nodes)
        for t in range(stop - start):
            truth = labels[start + t]
            for m in range(layout.n_labels):
                nodes[t, m] += loss_scale[b] * loss[truth, m]
        out = found[starts[k] : starts[k + 1]]
        viterbi(nodes[: stop - start], pairs, layout.n_labels, out, best)


@compiled
def measure_planes(  # type: ignore[no-untyped-def]
    rows, ends, labels, layout, loss, loss_scale, search, blocks, starts, found, counts, losses
):
    """Number of entries and loss of the plane of each block's found labels."""
    for k in range(len(blocks)):
        b = blocks[k]
        start = ends[b]
        count = 0
        total = 0.0
        for t in range(ends[b + 1] - start):
            truth, other = labels[start + t], found[starts[k] + t]
            if truth != other:
                extra = (layout.bias >= 0) + (layout.first >= 0) * (
                    (t == 0) + (start + t + 1 == ends[b + 1])
                )
                count += 2 * (rows.starts[start + t + 1] - rows.starts[start + t] + extra)
                total += loss[truth, other]
            if t > 0 and (truth != other or labels[start + t - 1] != found[starts[k] + t - 1]):
                count += 2
        counts[k] = count
        losses[k] = loss_scale[b] * total


@compiled
def fill_planes(  # type: ignore[no-untyped-def]
    rows, ends, labels, layout, search, losses, blocks, starts, found, entries, columns, values
):
    """The entries: features of the true labels less those of the found ones, where they differ."""
    width = layout.n_columns
    for k in range(len(blocks)):
        b = blocks[k]
        start, stop = ends[b], ends[b + 1]
        at = entries[k]
        for t in range(stop - start):
            truth, other = labels[start + t], found[starts[k] + t]
            if truth != other:
                first = rows.starts[start + t]
                for q in range(rows.starts[start + t + 1] - first):
                    row = rows.columns[q + first * rows.indexed] * width
                    value = rows.values[first + q]
                    columns[at], columns[at + 1] = row + truth, row + other
                    values[at], values[at + 1] = value, -value
                    at += 2
                for part in range(3):
                    row = layout.bias
                    if part == 1:
                        row = layout.first if t == 0 else -1
                    elif part == 2:
                        row = layout.last if start + t + 1 == stop else -1
                    if row >= 0:
                        columns[at], columns[at + 1] = row * width + truth, row * width + other
                        values[at], values[at + 1] = 1.0, -1.0
                        at += 2
            if t > 0:
                before, found_before = labels[start + t - 1], found[starts[k] + t - 1]
                if truth != other or before != found_before:
                    row = layout.transitions
                    columns[at] = (row + before) * width + truth
                    columns[at + 1] = (row + found_before) * width + other
                    values[at], values[at + 1] = 1.0, -1.0
                    at += 2
