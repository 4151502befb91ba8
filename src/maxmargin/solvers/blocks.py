"""The dual state of a linear problem, and the moves that improve it.

One block is one example. The state is the coefficients `coef` and, always in step with them, the
sums ``unclipped = origin + X' coef`` and the weights used for scores. `sequential_dual` decides
which moves to make; the classes here make them.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.dual.rows import Rows, make_rows, squared_norms
from maxmargin.dual.simd import padded
from maxmargin.dual.sweeps import (
    DUE,
    copy_rows,
    extrapolate_multiclass,
    extrapolate_scalar,
    linear_multiclass,
    linear_scalar,
    shorten_changes,
    sweep_multiclass,
    sweep_scalar,
    total_loss_multiclass,
    total_loss_scalar,
)
from maxmargin.engines.threads import Threads
from maxmargin.problems.linear import (
    LinearProblem,
    MulticlassProblem,
    ScalarProblem,
    WestonWatkins,
)

Floats = NDArray[np.float64]
Order = NDArray[np.int64]


class Geometry(NamedTuple):
    """What the kernels need of the features; problems on the same examples share it."""

    rows: Rows
    curvature: Floats

    @classmethod
    def of(cls, problem: LinearProblem) -> "Geometry":
        """Rows and their squared lengths."""
        return cls(make_rows(problem.X, problem.bias), squared_norms(problem.X, problem.bias))


class Blocks(ABC):
    """State and moves that do not depend on the kind of problem.

    Parameters
    ----------
    problem : LinearProblem
    geometry : Geometry
    start : ndarray of shape (n_samples, n_outputs) or None
        Dual coefficients to start from.
    longest_wait : int
        Most rounds that an idle example is left alone; 0 visits all in every round.
    """

    def __init__(
        self,
        problem: LinearProblem,
        geometry: Geometry,
        start: Floats | None,
        longest_wait: int,
    ) -> None:
        n = problem.n_samples
        self.problem = problem
        self.rows, curvature = geometry
        self.longest_wait = longest_wait
        self.round = 0
        self.visits = np.zeros((n, 2), dtype=np.int32)
        # A row of zeros, or of cost zero, can never change the weights.
        empty = curvature <= 0.0
        self.visits[empty | (problem.cost <= 0.0), DUE] = np.iinfo(np.int32).max
        self.terms = self._terms(1.0 / np.where(empty, 1.0, curvature))

        self.n_columns = padded(problem.n_outputs) if problem.n_outputs > 1 else 1
        self.coef = np.zeros((n, self.n_columns))
        self.unclipped = np.zeros((problem.weights_shape[0], self.n_columns))
        self.weights = self.unclipped.copy() if problem.nonnegative else self.unclipped
        if start is not None:
            self.dual_coef[:] = problem.feasible(start)
        self._settle(np.flatnonzero(empty))
        if start is not None:
            self.unclipped[:, : problem.n_outputs] = problem.unclipped_weights(self.dual_coef)
        elif problem.origin is not None:
            self.unclipped[:, : problem.n_outputs] = problem.origin
        self._clip()
        self.linear = self._linear()
        self.previous = self.coef.copy()
        self.last_unclipped = self.unclipped.copy()

    @abstractmethod
    def _terms(self, inverse: Floats) -> Floats:
        """The numbers of each example that the kernels read, one row an example."""

    @abstractmethod
    def _settle(self, empty: Order) -> None:
        """Set the coefficients of rows that have no features to their optimum."""

    @abstractmethod
    def _sweep(
        self, order: Order, weights: Floats, unclipped: Floats, threshold: float
    ) -> float: ...

    @abstractmethod
    def _extrapolate(self, momentum: float) -> None: ...

    @abstractmethod
    def _linear(self) -> float:
        """Linear term of the dual."""

    @abstractmethod
    def total_loss(self, weights: Floats) -> float:
        """Sum of cost times loss at padded `weights`."""

    def _clip(self) -> None:
        if self.problem.nonnegative:
            np.maximum(self.unclipped[:-1], 0.0, out=self.weights[:-1])
            self.weights[-1] = self.unclipped[-1]

    @property
    def dual_coef(self) -> Floats:
        """The coefficients without their padding."""
        return self.coef[:, : self.problem.n_outputs]

    @property
    def dual(self) -> float:
        """Dual value of the current coefficients."""
        return self.linear - 0.5 * _squared(self.weights) + self.problem.origin_value

    def primal(self, weights: Floats) -> float:
        """Objective at padded `weights`, by the compiled kernels."""
        away = weights
        if self.problem.origin is not None:
            away = weights[:, : self.problem.n_outputs] - self.problem.origin
        return 0.5 * _squared(away) + self.total_loss(weights)

    def due_examples(self) -> Order:
        """Examples to visit in this round."""
        return np.flatnonzero(self.visits[:, DUE] <= self.round)

    def sweep(self, order: Order, threshold: float, threads: Threads) -> None:
        """Improve the dual over each example of `order` in turn."""
        if threads.n_threads == 1:
            self.linear += self._sweep(order, self.weights, self.unclipped, threshold)
        else:
            self._sweep_in_threads(order, threshold, threads)

    def _sweep_in_threads(self, order: Order, threshold: float, threads: Threads) -> None:
        """Sweep parts of `order` side by side, each on its own copy of the weights, and add up.

        What each part gained alone need not add up to a gain, so the sum of the moves is scaled by
        an exact line search: the dual never decreases.
        """
        before = np.empty((len(order), self.n_columns))
        copy_rows(self.coef, order, before)

        def sweep_part(part: Order) -> tuple[float, Floats]:
            unclipped = self.unclipped.copy()
            weights = self.weights.copy() if self.problem.nonnegative else unclipped
            linear = self._sweep(part, weights, unclipped, threshold)
            unclipped -= self.unclipped
            return linear, unclipped

        try:
            moves = threads.map(sweep_part, np.array_split(order, threads.n_threads))
        except BaseException:
            shorten_changes(self.coef, order, before, 0.0)
            raise
        direction = np.sum([move for _, move in moves], axis=0)
        step = self._line_search(sum(linear for linear, _ in moves), direction)
        if step < 1.0:
            shorten_changes(self.coef, order, before, step)
        self.unclipped += step * direction
        self._clip()
        self.linear = self._linear()

    def _line_search(self, linear: float, direction: Floats) -> float:
        """Step in [0, 1] that maximises the dual along `direction`.

        The dual's slope falls with the step, and in a straight line but for clipped weights:
        false position is exact at once without them, and its sign is right with them.
        """

        def slope(step: float) -> float:
            moved = self.unclipped + step * direction
            if self.problem.nonnegative:
                np.maximum(moved[:-1], 0.0, out=moved[:-1])
            return linear - float(np.vdot(moved, direction))

        low, high, slope_low, slope_high = 0.0, 1.0, slope(0.0), slope(1.0)
        if slope_high >= 0.0:
            return 1.0
        if slope_low <= 0.0:
            return 0.0
        for _ in range(10 if self.problem.nonnegative else 1):
            step = low + (high - low) * slope_low / (slope_low - slope_high)
            here = slope(step)
            if here > 0.0:
                low, slope_low = step, here
            else:
                high, slope_high = step, here
        return step if not self.problem.nonnegative else low

    def extrapolate(self, momentum: float) -> None:
        """Go on by `momentum` times the move since the last call, as far as is feasible."""
        moved = self.unclipped + momentum * (self.unclipped - self.last_unclipped)
        self.last_unclipped[:] = self.unclipped
        self.unclipped[:] = moved
        self._extrapolate(momentum)
        self._clip()
        self.linear = self._linear()

    def revert(self) -> None:
        """Back to where the last call of `extrapolate` started."""
        self.coef[:] = self.previous
        self.unclipped[:] = self.last_unclipped
        self._clip()
        self.linear = self._linear()


def _squared(array: Floats) -> float:
    return float(np.vdot(array, array))


class MulticlassBlocks(Blocks):
    """Crammer-Singer and Weston-Watkins problems."""

    problem: MulticlassProblem

    def __init__(
        self,
        problem: MulticlassProblem,
        geometry: Geometry,
        start: Floats | None,
        longest_wait: int,
    ) -> None:
        self.separate_slacks = isinstance(problem, WestonWatkins)
        super().__init__(problem, geometry, start, longest_wait)

    def _terms(self, inverse: Floats) -> Floats:
        return np.column_stack([self.problem.cost, self.problem.margins, inverse])

    def _settle(self, empty: Order) -> None:
        problem = self.problem
        labels = problem.labels[empty]
        loss = problem.loss_matrix[labels]
        if self.separate_slacks:
            coef = np.where(loss > 0.0, -problem.cost[empty, None], 0.0)
        else:
            coef = np.zeros(loss.shape)
            worst = loss.argmax(axis=1)
            coef[np.arange(len(empty)), worst] = -problem.cost[empty]
        own = np.arange(len(empty)), labels
        coef[own] = 0.0
        coef[own] = -coef.sum(axis=1)
        self.dual_coef[empty] = coef

    def _sweep(self, order: Order, weights: Floats, unclipped: Floats, threshold: float) -> float:
        p = self.problem
        return float(
            sweep_multiclass(
                self.rows, order, p.labels, self.terms, p.loss_matrix, self.separate_slacks,
                threshold, weights, unclipped, p.nonnegative, self.coef,
                self.visits, self.round, self.longest_wait,
            )
        )  # fmt: skip

    def _extrapolate(self, momentum: float) -> None:
        p = self.problem
        own_bound = p.n_outputs - 1.0 if self.separate_slacks else 1.0
        extrapolate_multiclass(
            self.rows, momentum, self.coef, self.previous, p.labels, self.terms, own_bound,
            self.unclipped,
        )  # fmt: skip

    def _linear(self) -> float:
        p = self.problem
        return float(linear_multiclass(p.labels, self.terms, p.loss_matrix, self.coef))

    def total_loss(self, weights: Floats) -> float:
        p = self.problem
        return float(
            total_loss_multiclass(
                self.rows, p.labels, self.terms, p.loss_matrix, self.separate_slacks, weights
            )
        )


class ScalarBlocks(Blocks):
    """Binary and regression problems."""

    problem: ScalarProblem

    def _terms(self, inverse: Floats) -> Floats:
        p = self.problem
        return np.column_stack([p.target, p.lower, p.upper, inverse])

    def _settle(self, empty: Order) -> None:
        p = self.problem
        target = p.target[empty]
        best = np.where(target > p.epsilon, p.upper[empty], 0.0)
        self.coef[empty, 0] = np.where(target < -p.epsilon, p.lower[empty], best)

    def _sweep(self, order: Order, weights: Floats, unclipped: Floats, threshold: float) -> float:
        p = self.problem
        return float(
            sweep_scalar(
                self.rows, order, self.terms, p.epsilon, threshold, weights, unclipped,
                p.nonnegative, self.coef, self.visits, self.round, self.longest_wait,
            )
        )  # fmt: skip

    def _extrapolate(self, momentum: float) -> None:
        extrapolate_scalar(
            self.rows, momentum, self.coef, self.previous, self.terms, self.unclipped
        )

    def _linear(self) -> float:
        return float(linear_scalar(self.terms, self.problem.epsilon, self.coef))

    def total_loss(self, weights: Floats) -> float:
        return float(total_loss_scalar(self.rows, self.terms, self.problem.epsilon, weights))


def make_blocks(
    problem: LinearProblem, geometry: Geometry, start: Floats | None, longest_wait: int
) -> Blocks:
    """The state of whichever kind of problem this is."""
    if isinstance(problem, MulticlassProblem):
        return MulticlassBlocks(problem, geometry, start, longest_wait)
    if isinstance(problem, ScalarProblem):
        return ScalarBlocks(problem, geometry, start, longest_wait)
    raise TypeError(
        f"SequentialDual solves multi-class, binary and regression problems, "
        f"not {type(problem).__name__}."
    )
