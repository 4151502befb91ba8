"""Problems whose planes are weighted sums of the rows of a block: rankings, whole data sets.

An output gives every row of its block a coefficient; the plane is the sum of the rows with these
coefficients. So a search sees the scores of the rows and nothing else of the features.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled
from maxmargin.compiled.rows import make_rows, row_score
from maxmargin.core.cuts import Cuts
from maxmargin.core.oracle import Oracle
from maxmargin.core.threads import Threads

Floats = NDArray[np.float64]
Order = NDArray[np.int64]


def stacked_rows(X: Sequence[Any]) -> tuple[Any, Order]:
    """The rows of several matrices as one, float32 or float64, and where each ends."""
    stacked = sp.vstack(X, format="csr") if any(map(sp.issparse, X)) else np.concatenate(X)
    rows = stacked if stacked.dtype == np.float32 else stacked.astype(np.float64)
    return rows, np.cumsum([0, *(x.shape[0] for x in X)], dtype=np.int64)


class RowSumOracle(Oracle):
    """Blocks of rows, with what a search needs and what makes planes of outputs.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n_rows, n_columns)
    ends : ndarray of int64, shape (n_blocks + 1,)
        Block ``b`` has the rows ``ends[b]:ends[b + 1]``.
    C : ndarray of shape (n_blocks,)
    bias : float
        Value of a constant last feature; 0.0 is none.
    """

    def __init__(self, X: Any, ends: Order, C: Floats, bias: float = 0.0) -> None:
        self.rows, self.ends, self.C = make_rows(X, bias), ends, C
        self.n_columns = X.shape[1]
        self.n_features = self.n_columns + (bias != 0.0)
        self.sizes = np.diff(ends)
        entries = X.nnz if sp.issparse(X) else X.size
        rows = len(self.rows.starts) - 1
        # Every row is scored, sorted, and most are added up.
        self._work = float(2 * entries + rows * np.log2(rows + 1)) / max(self.n_examples, 1)

    @abstractmethod
    def _infer(self, examples: Order, starts: Order, scores: Floats) -> list[bytes]:
        """The most violating output of each block, whose rows score ``scores[starts[k]:]``."""

    @abstractmethod
    def _measure(
        self, examples: Order, starts: Order, outputs: Sequence[bytes], coef: Floats, losses: Floats
    ) -> None:
        """Set the coefficients of the rows and the loss of each output.

        Raises
        ------
        ValueError
            If the outputs are none of these blocks.
        """

    @property
    def oracle_work(self) -> float:
        return self._work

    def separate(self, weights: Floats, examples: Order, threads: Threads) -> Cuts:
        def infer(part: Order) -> list[bytes]:
            starts = self._starts(part)
            scores = np.empty(starts[-1])
            score_rows(self.rows, self.ends, part, starts, weights, scores)
            return self._infer(part, starts, scores)

        parts = self._parts(examples, threads)
        found = threads.map(infer, parts)
        return self._make_cuts(parts, found, threads)

    def cuts_of(self, examples: Order, outputs: Sequence[bytes]) -> Cuts:
        return self._make_cuts([examples], [list(outputs)], Threads(1))

    def _starts(self, examples: Order) -> Order:
        """Where the rows of each block stand when only these blocks do."""
        starts = np.zeros(len(examples) + 1, dtype=np.int64)
        np.cumsum(self.sizes[examples], out=starts[1:])
        return starts

    def _parts(self, examples: Order, threads: Threads) -> list[Order]:
        """The blocks in as many parts as there is work for threads."""
        return [examples[part] for part in threads.shares(len(examples), self.oracle_work)]

    def _make_cuts(self, parts: list[Order], outputs: list[list[bytes]], threads: Threads) -> Cuts:
        def make(k: int) -> tuple[Order, NDArray[np.uint32], Floats, Floats]:
            examples = parts[k]
            starts = self._starts(examples)
            coef, losses = np.empty(starts[-1]), np.empty(len(examples))
            self._measure(examples, starts, outputs[k], coef, losses)
            entries = self.rows.starts[self.ends]
            most = np.diff(entries)[examples] + (self.n_features > self.n_columns)
            room = int(np.minimum(most, self.n_features).sum())
            columns, values = np.empty(room, dtype=np.uint32), np.empty(room)
            counts = np.empty(len(examples), dtype=np.int64)
            totals, seen = np.zeros(self.n_features), np.zeros(self.n_features, dtype=np.bool_)
            used = sum_rows(
                self.rows, self.n_columns, self.ends, examples, starts, coef,
                counts, columns, values, totals, seen,
            )  # fmt: skip
            return counts, columns[:used], values[:used], losses

        made = threads.map(make, range(len(parts)))
        if not made:
            made = [(np.zeros(0, np.int64), np.zeros(0, np.uint32), np.zeros(0), np.zeros(0))]
        counts, columns, values, losses = (
            np.concatenate(pieces) for pieces in zip(*made, strict=True)
        )
        starts = np.zeros(len(counts) + 1, dtype=np.int64)
        np.cumsum(counts, out=starts[1:])
        return Cuts(starts, columns, values, losses, [y for part in outputs for y in part])


@compiled
def score_rows(rows, ends, examples, starts, weights, scores):  # type: ignore[no-untyped-def]
    """Scores of the rows of each block, written to ``scores[starts[k]:]``."""
    for k in range(len(examples)):
        for t in range(starts[k + 1] - starts[k]):
            scores[starts[k] + t] = row_score(rows, ends[examples[k]] + t, weights)


@compiled
def sum_rows(  # type: ignore[no-untyped-def]
    rows, n_columns, ends, examples, starts, coef, counts, columns, values, totals, seen
):
    """Sum the rows of each block with their coefficients; returns how many entries that took.

    Entries go to `columns` and `values` one block after the other, ``counts[k]`` of them each.
    Scratch: `totals` and `seen`, a number and a flag for each feature, zero before and after.
    """
    used = 0
    for k in range(len(examples)):
        first = used
        constant = 0.0
        for t in range(starts[k + 1] - starts[k]):
            c = coef[starts[k] + t]
            if c == 0.0:
                continue
            i = ends[examples[k]] + t
            constant += c * rows.bias
            at = rows.starts[i]
            for q in range(at, rows.starts[i + 1]):
                j = rows.columns[q if rows.indexed else q - at]
                if not seen[j]:
                    seen[j] = True
                    columns[used] = j
                    used += 1
                totals[j] += c * rows.values[q]
        for q in range(first, used):
            j = columns[q]
            values[q] = totals[j]
            totals[j] = 0.0
            seen[j] = False
        if constant != 0.0:
            columns[used] = n_columns
            values[used] = constant
            used += 1
        counts[k] = used - first
    return used
