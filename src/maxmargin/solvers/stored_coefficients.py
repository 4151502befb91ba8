"""Dual coefficients of a block of examples that is not in memory: only those that are not zero."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.dual.conforming import check_shape
from maxmargin.dual.registry import registered
from maxmargin.problems.linear import LinearProblem, MulticlassProblem

Floats = NDArray[np.float64]
Fractions = NDArray[np.float32]
Steps = NDArray[np.unsignedinteger]


_MOST_CELLS = 1 << 28
"""Of a matrix in a file, where nothing but a number says how large it is."""


@registered("StoredCoefficients", check="check")
class StoredCoefficients(NamedTuple):
    """Non-zero coefficients as fractions of the examples' costs.

    Most are at a bound: the fraction is one or minus one, and only its place is stored, as the step
    from the place before, which takes a byte or two. The others take four bytes more. The
    coefficient of an example's own class is left out: it is minus the sum of the others.

    Parameters
    ----------
    shape : tuple of int
        Of the dense matrix, (n_samples, n_outputs).
    lowest, highest, between : ndarray of unsigned int
        Steps between places, in the flattened matrix, of the fractions -1, 1, and all others.
    fractions : ndarray of float32
        Those between.
    """

    shape: tuple[int, int]
    lowest: NDArray[Any]
    highest: NDArray[Any]
    between: NDArray[Any]
    fractions: Fractions

    @classmethod
    def of(cls, fractions: Fractions) -> "StoredCoefficients":
        """From a dense matrix of fractions."""
        flat = fractions.ravel()
        low, high = flat == -1.0, flat == 1.0
        between = np.flatnonzero((flat != 0.0) & ~low & ~high)
        return cls(
            fractions.shape,
            _steps(np.flatnonzero(low)),
            _steps(np.flatnonzero(high)),
            _steps(between),
            flat[between],
        )

    def check(self) -> None:
        """Raise ValueError if places lie outside the matrix."""
        size = math.prod(self.shape)
        if len(self.shape) != 2 or min(self.shape) < 0 or size > _MOST_CELLS:
            raise ValueError("the coefficients of a block are more than a block can have")
        check_shape("fractions", self.fractions, len(self.between))
        for name in ("lowest", "highest", "between"):
            steps = getattr(self, name)
            last = float(steps.sum(dtype=np.float64))
            if steps.dtype.kind != "u" or steps.ndim != 1 or last >= max(size, 1):
                raise ValueError(f"{name} coefficients stand outside their matrix")

    def dense(self) -> Fractions:
        """The matrix of fractions."""
        result = np.zeros(self.shape, dtype=np.float32)
        flat = result.ravel()
        flat[_places(self.lowest)] = -1.0
        flat[_places(self.highest)] = 1.0
        flat[_places(self.between)] = self.fractions
        return result

    def changed(self, rows: NDArray[np.int32], fractions: Fractions) -> "StoredCoefficients":
        """The same with other coefficients for some of the rows."""
        dense = self.dense()
        dense[rows] = fractions
        return self.of(dense)

    def restore(self, problem: LinearProblem) -> Floats:
        """Feasible coefficients for the examples of `problem`."""
        return problem.feasible(self.dense() * problem.cost[:, None])

    @property
    def n_stored(self) -> int:
        """How many there are."""
        return len(self.lowest) + len(self.highest) + len(self.between)

    @property
    def nbytes(self) -> int:
        """Memory they take."""
        return sum(array.nbytes for array in self[1:])


def _steps(places: NDArray[np.intp]) -> Steps:
    steps = np.diff(places, prepend=0)
    return steps.astype(np.min_scalar_type(int(steps.max(initial=0))))


def _places(steps: Steps) -> NDArray[np.int64]:
    return np.cumsum(steps, dtype=np.int64)


def fractions_of(problem: LinearProblem, dual_coef: Floats) -> Fractions:
    """What `StoredCoefficients` keeps of coefficients, still as a dense matrix."""
    own_too = not isinstance(problem, MulticlassProblem)
    needed = dual_coef if own_too else np.minimum(dual_coef, 0.0)
    cost = problem.cost[:, None]
    return np.divide(needed, cost, out=np.zeros_like(needed), where=cost > 0.0).astype(np.float32)
