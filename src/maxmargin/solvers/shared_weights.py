"""The weights of a linear problem, as the kernels want them, with their average."""

import numpy as np
from numpy.typing import NDArray

from maxmargin.dual.simd import padded
from maxmargin.dual.state import Stateful
from maxmargin.dual.sweeps import add_snapshot
from maxmargin.problems.linear import LinearProblem

Floats = NDArray[np.float64]

SNAPSHOT_COST = 10.0
"""Multiplications (by all outputs) that sweeps should make for each weight between snapshots."""


def n_columns(problem: LinearProblem) -> int:
    """Outputs, padded for the vector kernels."""
    return padded(problem.n_outputs) if problem.n_outputs > 1 else 1


class SharedWeights(Stateful):
    """Weights that one set of examples, or several in turn, work on; at first the origin.

    Parameters
    ----------
    problem : LinearProblem
        Tells how many weights there are, and their origin.

    Attributes
    ----------
    unclipped, weights : ndarray of shape (n_features + 1, n_columns)
        See `maxmargin.dual.sweeps`; the same array unless weights must not be negative.
    average : ndarray of the same shape
        Of recent weights.
    """

    state_names = ("unclipped", "weights", "average", "snapshots", "_multiplied")

    def __init__(self, problem: LinearProblem) -> None:
        self.n_outputs = problem.n_outputs
        self.nonnegative = problem.nonnegative
        self.unclipped = np.zeros((problem.weights_shape[0], n_columns(problem)))
        if problem.origin is not None:
            self.unclipped[:, : self.n_outputs] = problem.origin
        self.weights = self.unclipped.copy() if self.nonnegative else self.unclipped
        self.clip()
        self.average = self.weights.copy()
        self.snapshots = np.zeros(1, dtype=np.int64)
        self._multiplied = 0.0

    def clip(self) -> None:
        """Bring the weights in step with `unclipped`."""
        if self.nonnegative:
            np.maximum(self.unclipped[:-1], 0.0, out=self.weights[:-1])
            self.weights[-1] = self.unclipped[-1]

    def resize(self, n_rows: int) -> None:
        """Have so many rows, the constant feature's the last; new ones are zero."""

        def resized(array: Floats) -> Floats:
            result = np.zeros((n_rows, array.shape[1]))
            both = min(n_rows, len(array)) - 1
            result[:both], result[-1] = array[:both], array[-1]
            return result

        self.unclipped = resized(self.unclipped)
        self.weights = resized(self.weights) if self.nonnegative else self.unclipped
        self.average = resized(self.average)

    def count(self, multiplications: float) -> None:
        """After a sweep: let the weights enter their average, if that costs little beside it."""
        self._multiplied += multiplications
        if self._multiplied >= SNAPSHOT_COST * len(self.weights):
            self._multiplied = 0.0
            add_snapshot(self.weights, self.average, self.snapshots)

    def without_padding(self, array: Floats) -> Floats:
        """A copy of `unclipped`, `weights` or `average` with one column an output."""
        return array[:, : self.n_outputs].copy()
