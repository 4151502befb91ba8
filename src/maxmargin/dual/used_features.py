"""Features that occur: what a solve of a linear problem carries along of its weights.

Text of a few thousand words has columns for all words of its vocabulary. Their weights stay zero,
yet every snapshot, norm and extrapolation would pass over them, for longer than over the examples.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled
from maxmargin.compiled.rows import make_rows, measured_rows
from maxmargin.core.arrays import Floats
from maxmargin.core.linear import LinearProblem

ENTRIES_PER_FEATURE = 8
"""With more entries than this for each feature, a pass over the weights is cheap beside one over
the rows, and few features do not occur."""

MOST_ENTRIES = 1 << 22
"""Entries beyond which the numbers of columns are not worth a second array."""


class UsedFeatures:
    """The rows of a problem, in the features that occur if those are few enough to be worth it."""

    def __init__(self, problem: LinearProblem) -> None:
        self.X: Any = problem.X
        self.columns: NDArray[np.int32] | None = None
        """Columns that occur; None stands for all of them."""
        if sp.issparse(self.X) and problem.origin is None and self._is_wide():
            self._leave_out_others()
        self.measured = measured_rows(self.X, problem.bias)

    def _is_wide(self) -> bool:
        return bool(self.X.nnz <= min(MOST_ENTRIES, ENTRIES_PER_FEATURE * self.X.shape[1]))

    def _leave_out_others(self) -> None:
        X = self.X
        numbers = np.full(X.shape[1], -1, dtype=np.int32)
        columns = np.empty(X.shape[1] + 1, dtype=np.int32)
        renumbered = np.empty(X.nnz, dtype=np.int32)
        given = make_rows(X, 0.0).columns[: X.nnz]  # arrays may be longer than the matrix
        count = number_columns(given, numbers, columns, renumbered)
        if 2 * count <= X.shape[1]:
            shape = X.shape[0], int(count)
            self.X = sp.csr_array((X.data[: X.nnz], renumbered, X.indptr), shape=shape)
            self.columns = columns[:count]

    def of(self, problem: LinearProblem) -> LinearProblem:
        """The same problem with weights for these features only."""
        return problem if self.columns is None else replace(problem, X=self.X)

    def spread(self, weights: Floats, problem: LinearProblem) -> Floats:
        """Weights for all features of the `problem`; the others are zero."""
        if self.columns is None:
            return weights
        spread = np.zeros(problem.weights_shape)
        spread[self.columns], spread[-1] = weights[:-1], weights[-1]
        return spread


@compiled
def number_columns(given, numbers, columns, renumbered):  # type: ignore[no-untyped-def]
    """Number columns in the order in which they occur; returns how many there are.

    ``numbers[column]``, -1 before, is the number of a column, `columns` are those that occur, with
    room for one more, and `renumbered` is what `given` becomes.
    """
    count = 0
    for p in range(len(given)):
        # Without branches, which nobody could foretell: a number is written again as it was.
        column = given[p]
        number = numbers[column]
        is_new = number < 0
        number = count if is_new else number
        columns[count] = column
        numbers[column] = number
        renumbered[p] = number
        count += is_new
    return count
