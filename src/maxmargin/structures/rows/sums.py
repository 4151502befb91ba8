"""Problems whose cuts are weighted sums of the rows of an example: rankings, whole data sets.

An output gives every row of its example a coefficient; psi is the sum of the rows with these
coefficients. So inference sees the scores of the rows and nothing else of the features.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled
from maxmargin.compiled.rows import make_rows, row_score
from maxmargin.core.oracle import CompiledOracle, Entries, starts_of

Floats = NDArray[np.float64]
Order = NDArray[np.int64]


def stacked_rows(X: Sequence[Any]) -> tuple[Any, Order]:
    """The rows of several matrices as one, float32 or float64, and where each ends."""
    stacked = sp.vstack(X, format="csr") if any(map(sp.issparse, X)) else np.concatenate(X)
    rows = stacked if stacked.dtype == np.float32 else stacked.astype(np.float64)
    return rows, np.cumsum([0, *(x.shape[0] for x in X)], dtype=np.int64)


class RowSumOracle(CompiledOracle):
    """Examples of several rows, with what inference needs and what makes cuts of outputs.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n_rows, n_columns)
    ends : ndarray of int64, shape (n_examples + 1,)
        Example ``i`` has the rows ``ends[i]:ends[i + 1]``.
    C : ndarray of shape (n_examples,)
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
    def infer_from(
        self, scores: Floats, rows: Order, examples: Order, starts: Order, found: NDArray[Any]
    ) -> None:
        """Write the most violated outputs to `found`; the rows score ``scores[rows[k]:]``."""

    @abstractmethod
    def set_coefficients(
        self, examples: Order, starts: Order, found: NDArray[Any], rows: Order, coef: Floats,
        losses: Floats,
    ) -> None:  # fmt: skip
        """Set the coefficients of the rows, ``coef[rows[k]:]``, and the loss of each output.

        Raises
        ------
        ValueError
            If these are no outputs of the examples.
        """

    @property
    def oracle_work(self) -> float:
        return self._work

    def infer(self, weights: Floats, examples: Order, starts: Order, found: NDArray[Any]) -> None:
        rows = starts_of(self.sizes[examples])
        scores = np.empty(rows[-1])
        score_rows(self.rows, self.ends, examples, rows, weights, scores)
        self.infer_from(scores, rows, examples, starts, found)

    def check_outputs(self, examples: Order, starts: Order, found: NDArray[Any]) -> None:
        """Checked when they are measured."""

    def entries_of(self, examples: Order, starts: Order, found: NDArray[Any]) -> Entries:
        rows = starts_of(self.sizes[examples])
        coef, losses = np.empty(rows[-1]), np.empty(len(examples))
        self.set_coefficients(examples, starts, found, rows, coef, losses)
        most = np.diff(self.rows.starts[self.ends])[examples] + (self.n_features > self.n_columns)
        room = int(np.minimum(most, self.n_features).sum())
        columns, values = np.empty(room, dtype=np.uint32), np.empty(room)
        counts = np.empty(len(examples), dtype=np.int64)
        totals, seen = np.zeros(self.n_features), np.zeros(self.n_features, dtype=np.bool_)
        used = sum_rows(
            self.rows, self.n_columns, self.ends, examples, rows, coef, counts, columns, values,
            totals, seen,
        )  # fmt: skip
        return starts_of(counts), columns[:used], values[:used], losses


@compiled
def score_rows(rows, ends, examples, starts, weights, scores):  # type: ignore[no-untyped-def]
    """Scores of the rows of each example, written to ``scores[starts[k]:]``."""
    for k in range(len(examples)):
        for t in range(starts[k + 1] - starts[k]):
            scores[starts[k] + t] = row_score(rows, ends[examples[k]] + t, weights)


@compiled
def sum_rows(  # type: ignore[no-untyped-def]
    rows, n_columns, ends, examples, starts, coef, counts, columns, values, totals, seen
):
    """Sum the rows of each example with their coefficients; returns how many entries that took.

    Entries go to `columns` and `values` one example after the other, ``counts[k]`` of them each.
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
