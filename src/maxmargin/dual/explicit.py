"""The dual state of a linear problem, and the steps that improve it.

It is the coefficients `coef` and, in step with them, ``unclipped = origin + X' coef`` and the
weights (`SharedWeights`), padded for the compiled routines. `SequentialDual` chooses the steps.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.rows import Rows, padded
from maxmargin.core.arrays import Floats, check_finite
from maxmargin.core.linear import LinearProblem, MulticlassProblem, ScalarProblem, WestonWatkins
from maxmargin.core.oracle import ONE_THREAD, Threads
from maxmargin.core.state import Stateful
from maxmargin.dual.sweeps import (
    DUE,
    MulticlassRows,
    ScalarRows,
    add_multiple,
    add_sides,
    add_snapshot,
    extrapolate_multiclass,
    extrapolate_scalar,
    linear_multiclass,
    linear_scalar,
    move_on,
    product_along,
    shorten_changes,
    sum_moves,
    sum_of_products,
    sweep_multiclass,
    sweep_scalar,
    total_loss_multiclass,
    total_loss_scalar,
    update_order,
)

Order = NDArray[np.int32]

SNAPSHOTS = 16
"""Snapshots in a sweep, for the average: its first part repairs what extrapolation has spoilt."""

SNAPSHOT_COST = 10.0
"""Multiplications (by all outputs) for each weight between two snapshots."""

MERGES = 4
"""How often threads merge their weights in an iteration that has updates enough."""

WORK_OF_A_JOIN = 4.0
"""Multiplications that take as long as to join the moves of a weight: it is memory that counts."""

EXTRAPOLATION_COST = 10.0
"""Multiplications that take as long as to extrapolate a coefficient."""

UPDATE_LIMIT = 1e8
"""Multiplications after which a sweep pauses for clocks and Ctrl-C."""


class SharedWeights(Stateful):
    """Weights of one or several sets of examples, of shape (n_features + 1, n_columns).

    Columns are the outputs, padded to whole vectors.
    """

    state_names = ("unclipped", "weights", "average", "snapshots", "_multiplied")

    def __init__(self, problem: LinearProblem) -> None:
        n_rows, self.n_outputs = problem.weights_shape
        self.nonnegative = problem.nonnegative
        n_columns = padded(self.n_outputs) if self.n_outputs > 1 else 1
        self.unclipped = np.zeros((n_rows, n_columns))
        if problem.origin is not None:
            self.unclipped[:, : self.n_outputs] = problem.origin
        self.weights = self.unclipped.copy() if self.nonnegative else self.unclipped
        self.clip()
        self.average = self.weights.copy()
        self.snapshots = np.zeros(1, dtype=np.int64)
        self._multiplied = 0.0

    def check_state(self) -> None:
        for name in ("unclipped", "weights", "average"):
            check_finite(name, getattr(self, name))

    def clip(self) -> None:
        """Set the weights from `unclipped`."""
        if self.nonnegative:
            np.maximum(self.unclipped[:-1], 0.0, out=self.weights[:-1])
            self.weights[-1] = self.unclipped[-1]

    def resize(self, n_rows: int) -> None:
        """Have so many rows, the constant feature's last; new ones are zero."""
        if n_rows == len(self.weights):
            return

        def resized(array: Floats) -> Floats:
            result = np.zeros((n_rows, array.shape[1]))
            both = min(n_rows, len(array)) - 1
            result[:both], result[-1] = array[:both], array[-1]
            return result

        self.unclipped = resized(self.unclipped)
        self.weights = resized(self.weights) if self.nonnegative else self.unclipped
        self.average = resized(self.average)

    def count(self, multiplications: float) -> None:
        """After a sweep: add a snapshot to the average, if that is cheap beside it."""
        self._multiplied += multiplications
        if self._multiplied >= SNAPSHOT_COST * len(self.weights):
            self._multiplied = 0.0
            self.add_snapshot()

    def add_snapshot(self) -> None:
        """Add the weights to their average."""
        add_snapshot(self.weights, self.average, self.snapshots)

    def line_search(self, linear: float, direction: Floats, along: float, square: float) -> float:
        """Exact step in [0, 1] along `direction`, by false position where weights are clipped.

        `linear` is what a whole step adds to the linear term of the dual, `along` and `square` are
        the direction's inner products with `unclipped` and with itself.
        """
        if not self.nonnegative:
            slope_at_zero = linear - along
            return max(0.0, min(1.0, slope_at_zero / square)) if square > 0.0 else 1.0

        def slope(step: float) -> float:
            product = product_along(self.unclipped, direction, step, self.nonnegative)
            return linear - float(product)

        low, high, slope_low, slope_high = 0.0, 1.0, slope(0.0), slope(1.0)
        if slope_high >= 0.0:
            return 1.0
        if slope_low <= 0.0:
            return 0.0
        enough = 1e-9 * slope_low
        for _ in range(50):
            step = low + (high - low) * slope_low / (slope_low - slope_high)
            here = slope(step)
            if abs(here) <= enough:
                return step
            # Halving the slope at the end that stays makes that end move soon, too.
            if here > 0.0:
                low, slope_low, slope_high = step, here, 0.5 * slope_high
            else:
                high, slope_high, slope_low = step, here, 0.5 * slope_low
        return low

    def without_padding(self, array: Floats) -> Floats:
        """A copy of `unclipped`, `weights` or `average` with one column an output."""
        return array[:, : self.n_outputs].copy()


class LinearDual(Stateful, ABC):
    """The dual state of a linear problem: what does not depend on its kind.

    `start` is of shape (n_samples, n_outputs), or None for zero. Examples in `shared` weights, in
    which `start` counts already, cannot be extrapolated.
    """

    routines: ClassVar["_Routines"]

    state_names = (
        "coef", "shared", "previous", "last_unclipped", "updates", "random", "iteration", "linear",
        "losses",
    )  # fmt: skip

    def __init__(
        self,
        problem: LinearProblem,
        measured: tuple[Rows, Floats],
        start: Floats | None,
        longest_wait: int,
        seed: int,
        shared: SharedWeights | None,
        threads: Threads,
    ) -> None:
        rows, curvature = measured
        n = len(curvature)
        self.random = np.array([seed], dtype=np.uint64)
        self.problem, self.threads = problem, threads
        self.alone = shared is None
        self.shared = SharedWeights(problem) if shared is None else shared
        self.longest_wait = longest_wait
        self.iteration = 0
        self.updates = np.zeros((n, 3), dtype=np.int32)
        self.orders = [np.empty(n, dtype=np.int32) for _ in range(3)]
        # A row of zeros, or of cost zero, can never change the weights.
        empty = curvature <= 0.0
        self.updates[empty | (problem.C <= 0.0), DUE] = np.iinfo(np.int32).max
        self.data = self._data(rows, 1.0 / np.where(empty, 1.0, curvature))

        n_rows, self.n_columns = self.shared.unclipped.shape
        self.coef = np.zeros((n, self.n_columns))
        if start is not None:
            self.dual_coef[:] = problem.feasible(start)
        self._settle(np.flatnonzero(empty).astype(np.int32))
        self.linear = self._linear()
        self.losses = self._losses_at_zero()
        """C times hinge of each example at its last update."""
        self.copies = np.empty((0, 0, 0))
        if self.alone:
            if start is None:
                self._leave_zero()
            else:
                unclipped = problem.unclipped_weights(self.dual_coef)
                self.shared.unclipped[:, : problem.n_outputs] = unclipped
                self.shared.clip()
            self.restart()
        self.per_row = per_row = len(rows.values) / max(1, n) + 1.0
        self.updates_per_snapshot = 1 + int(SNAPSHOT_COST * n_rows / per_row)
        self.updates_per_merge = 2000 + int(50.0 * n_rows / per_row)
        self.updates_per_call = 1 + int(UPDATE_LIMIT / (per_row * self.n_columns))

    def check_state(self) -> None:
        for name in ("coef", "previous", "last_unclipped"):
            check_finite(name, getattr(self, name))

    @abstractmethod
    def _data(self, rows: Rows, inverse: Floats) -> Any:
        """The examples as the compiled routines take them; `inverse` is ``1 / |x|^2``."""

    @abstractmethod
    def _losses_at_zero(self) -> Floats:
        """C times hinge of each example at scores of zero."""

    @abstractmethod
    def _settle(self, empty: Order) -> None:
        """Set the coefficients of rows without features to their optimum."""

    def _sweep(
        self, order: Order, weights: Floats, unclipped: Floats, threshold: float, every: int
    ) -> float:
        """Sweep through `order` on these weights; returns the change of the linear term."""
        return float(
            self.routines.sweep(
                self.data, order, threshold, weights, unclipped, self.problem.nonnegative,
                self.coef, self.losses, self.updates, self.iteration, self.longest_wait,
                self.shared.average, self.shared.snapshots, every, self._scratch(),
            )
        )  # fmt: skip

    def _scratch(self) -> Floats:
        return np.zeros((2, self.n_columns))

    def _linear(self) -> float:
        return float(self.routines.linear(self.data, self.coef))

    def _linear_after(self, change: float, step: float) -> float:
        """Linear term after `step` times an update that changed it by `change`."""
        return self.linear + step * change

    def restart(self) -> None:
        """Restart momentum and average."""
        shared = self.shared
        self.previous = self.coef.copy()
        self.last_unclipped = shared.unclipped.copy()
        self.copies = np.empty((0, 0, 0))
        if shared.average is shared.weights:  # released
            shared.average = shared.weights.copy()
        else:
            shared.average[:] = shared.weights
        shared.snapshots = np.zeros(1, dtype=np.int64)

    def release(self) -> None:
        """Free the memory that only further steps need; `restart` before the next."""
        del self.previous, self.last_unclipped, self.copies
        self.shared.average = self.shared.weights

    @property
    def dual_coef(self) -> Floats:
        return self.coef[:, : self.problem.n_outputs]

    def set_coef(self, dual_coef: Floats) -> None:
        """Set the coefficients to a feasible point next to `dual_coef`, but not the weights."""
        self.dual_coef[:] = self.problem.feasible(dual_coef)
        self.linear = self._linear()

    @property
    def dual(self) -> float:
        weights, origin = self.shared.weights, self.problem.origin
        if origin is None:
            return self.linear - 0.5 * float(sum_of_products(weights, weights))
        weights = weights[:, : self.problem.n_outputs]
        return self.linear - 0.5 * float(sum_of_products(weights - origin, weights + origin))

    def expected(self, dual: float) -> float:
        """Objective if every example had the loss of its last update; `dual` is the present one."""
        if self.problem.origin is None:  # then the dual has the regulariser in it
            penalty = self.linear - dual
        else:
            penalty = self._penalty(self.shared.weights)
        return penalty + float(self.losses.sum())

    def primal(self, weights: Floats) -> float:
        """Objective at padded `weights`."""
        # Weights that another core has read are slow to write again: where sweeps are in turn,
        # that takes as long as is saved here.
        n = self.problem.n_samples
        threads = self.threads if n >= self.updates_per_merge else ONE_THREAD

        def total_loss(part: slice) -> float:
            ends = part.start, part.stop
            return float(self.routines.total_loss(self.data, *ends, weights, self._scratch()))

        return self._penalty(weights) + sum(threads.map(total_loss, threads.shares(n)))

    def _penalty(self, weights: Floats) -> float:
        """Regulariser at padded `weights`."""
        away = weights
        if self.problem.origin is not None:
            away = weights[:, : self.problem.n_outputs] - self.problem.origin
        return 0.5 * float(sum_of_products(away, away))

    def due_examples(self) -> Order:
        """Examples to update in this iteration, in random order."""
        order, *scratch = self.orders
        count = update_order(self.updates, self.iteration, self.random, *scratch, order)
        return order[:count]

    def chunks(self, order: Order) -> Iterator[Order]:
        """Chunks of a pass, between which threads merge their weights."""
        size = self.updates_per_call
        if self.threads.n_threads > 1:
            size = min(size, max(self.updates_per_merge, -(-len(order) // MERGES)))
        for at in range(0, len(order), size):
            yield order[at : at + size]

    def sweep(self, order: Order, threshold: float) -> None:
        """Update each example of `order` in turn."""
        if self.threads.n_threads > 1 and len(order) >= self.updates_per_merge:
            self._sweep_in_threads(order, threshold)
        else:
            self._sweep_in_turn(order, threshold)

    def _sweep_in_turn(self, order: Order, threshold: float) -> None:
        """Sweep in one thread."""
        shared = self.shared
        every = len(order) + 1
        if self.alone:
            every = max(self.updates_per_snapshot, len(order) // SNAPSHOTS)
        self.linear += self._sweep(order, shared.weights, shared.unclipped, threshold, every)
        if not self.alone:
            shared.count(len(order) * self.per_row)
        elif len(order) < every:
            shared.add_snapshot()

    def _sweep_in_threads(self, order: Order, threshold: float) -> None:
        """Sweep parts of `order` on copies of the weights; a line search scales their sum."""
        shared, threads, n_parts = self.shared, self.threads, self.threads.n_threads
        parts = np.array_split(order, n_parts)
        before: list[Floats] = [np.empty(0)] * n_parts
        shape = (n_parts, *shared.unclipped.shape)
        if self.copies.shape != shape:
            self.copies = np.empty(shape)
        copies = self.copies
        ranges = threads.shares(shape[1], WORK_OF_A_JOIN * shape[2])
        products = np.zeros((len(ranges), 2))

        def sweep_part(t: int) -> float:
            before[t] = self.coef[parts[t]]
            unclipped = copies[t]
            unclipped[:] = shared.unclipped
            weights = shared.weights.copy() if shared.nonnegative else unclipped
            return self._sweep(parts[t], weights, unclipped, threshold, len(parts[t]) + 1)

        def sum_range(k: int) -> None:
            rows = ranges[k]
            sum_moves(shared.unclipped, copies, rows.start, rows.stop, products[k])

        def join_range(rows: slice) -> None:
            add_multiple(shared.unclipped, copies[0], step, rows.start, rows.stop)

        def shorten_part(t: int) -> None:
            if len(before[t]):
                shorten_changes(self.coef, parts[t], before[t], step)

        step = 0.0  # what is left of the moves if something interrupts them
        try:
            linear = sum(threads.map(sweep_part, range(n_parts)))
        except BaseException:
            for t in range(n_parts):
                shorten_part(t)
            raise
        threads.map(sum_range, range(len(ranges)))
        along, square = products.sum(axis=0).tolist()
        step = shared.line_search(linear, copies[0], along, square)
        if step < 1.0:
            threads.map(shorten_part, range(n_parts))
        if step == 0.0:  # next to the optimum, where only one example at a time can gain
            self._sweep_in_turn(order, threshold)
            return
        threads.map(join_range, ranges)
        shared.clip()
        self.linear = self._linear_after(linear, step)
        shared.add_snapshot()

    def extrapolate(self, momentum: float) -> None:
        """Extrapolate by `momentum` times the change since the last call, as far as is feasible."""
        unclipped = self.shared.unclipped
        move_on(unclipped, self.last_unclipped, momentum)
        # Where examples cannot go as far, weights are corrected, by each thread in a table of its
        # own if those are small.
        n = self.problem.n_samples
        are_small = WORK_OF_A_JOIN * self.threads.n_threads * len(unclipped) < n
        threads = self.threads if are_small else ONE_THREAD
        parts = threads.shares(n, EXTRAPOLATION_COST * self.n_columns)
        tables = [unclipped, *(np.zeros_like(unclipped) for _ in parts[1:])]

        def extrapolate_part(k: int) -> float:
            return float(
                self.routines.extrapolate(
                    self.data, parts[k].start, parts[k].stop, momentum, self.coef, self.previous,
                    tables[k], self.updates, self._scratch(),
                )
            )  # fmt: skip

        self.linear += sum(threads.map(extrapolate_part, range(len(parts))))
        for table in tables[1:]:
            unclipped += table
        self.shared.clip()

    def _leave_zero(self) -> None:
        """Step from zero to a better point, if one is known that takes less than a pass."""

    def revert(self) -> None:
        """Return to where the last `extrapolate` started."""
        self.coef[:] = self.previous
        self.shared.unclipped[:] = self.last_unclipped
        self.shared.clip()
        self.linear = self._linear()


class _Routines(NamedTuple):
    """The compiled routines of one kind of problem."""

    sweep: Callable[..., Any]
    extrapolate: Callable[..., Any]
    linear: Callable[..., Any]
    total_loss: Callable[..., Any]


class MulticlassDual(LinearDual):
    """Crammer-Singer and Weston-Watkins problems."""

    problem: MulticlassProblem
    routines = _Routines(
        sweep_multiclass, extrapolate_multiclass, linear_multiclass, total_loss_multiclass
    )

    def _data(self, rows: Rows, inverse: Floats) -> MulticlassRows:
        p = self.problem
        terms = np.column_stack([p.C, p.margins, inverse])
        separate_slacks = isinstance(p, WestonWatkins)
        return MulticlassRows(rows, p.labels, terms, p.all_losses(), separate_slacks)

    def _losses_at_zero(self) -> Floats:
        p, loss = self.problem, self.data.loss
        worst = loss.sum(axis=1) if self.data.separate_slacks else loss.max(axis=1)
        return np.asarray(p.C * p.margins * worst[p.labels])

    def _settle(self, empty: Order) -> None:
        problem = self.problem
        own = np.arange(len(empty)), problem.labels[empty]
        loss = self.data.loss[own[1]]
        if self.data.separate_slacks:
            coef = np.where(loss > 0.0, -problem.C[empty, None], 0.0)
        else:
            coef = np.zeros(loss.shape)
            coef[own[0], loss.argmax(axis=1)] = -problem.C[empty]
        coef[own] = 0.0
        coef[own] = -coef.sum(axis=1)
        self.dual_coef[empty] = coef


class ScalarDual(LinearDual):
    """Binary and regression problems."""

    problem: ScalarProblem
    routines = _Routines(sweep_scalar, extrapolate_scalar, linear_scalar, total_loss_scalar)

    def _data(self, rows: Rows, inverse: Floats) -> ScalarRows:
        p = self.problem
        terms = np.column_stack([p.target, p.lower, p.upper, inverse])
        return ScalarRows(rows, terms, p.epsilon)

    def _losses_at_zero(self) -> Floats:
        p = self.problem
        return p.C * p.losses(np.zeros((p.n_samples, 1)), slice(None))

    def _settle(self, empty: Order) -> None:
        p = self.problem
        target = p.target[empty]
        best = np.where(target > p.epsilon, p.upper[empty], 0.0)
        self.coef[empty, 0] = np.where(target < -p.epsilon, p.lower[empty], best)

    def _leave_zero(self) -> None:
        """Step towards the bounds of each side's examples, as far as is best for the two sides.

        Where C is small nearly all coefficients end at their bounds, and this is nearly all there
        is to do; elsewhere it saves a pass.
        """
        p, shared = self.problem, self.shared
        if p.nonnegative or p.origin is not None:
            return
        # Products and indices: classes come in no order, and choices by them take longer.
        is_above = p.target > 0.0
        bound = is_above * p.upper + ~is_above * p.lower
        settled = self.coef[:, 0] != 0.0  # rows without features
        bound[settled] = 0.0
        sums = np.zeros((2, len(shared.unclipped)))
        add_sides(self.data.rows, bound, sums)
        gains = p.target * bound - p.epsilon * np.abs(bound)
        linear = np.array([(gains * is_above).sum(), (gains * ~is_above).sum()])
        steps = _best_of_unit_square(linear, sums @ sums.T)
        self.coef[:, 0] += bound * steps[1 - is_above]
        np.dot(steps, sums, out=shared.unclipped.ravel())  # a view: there is one column
        self.linear = self._linear()

    def _linear_after(self, change: float, step: float) -> float:
        return self._linear()  # epsilon * |coef| is not linear in the step


def _best_of_unit_square(linear: Floats, gram: Floats) -> Floats:
    """The maximiser of ``linear . z - 1/2 z' gram z`` over z in [0, 1]^2."""

    def along(j: int, other: float) -> float:
        slope = linear[j] - gram[0, 1] * other
        if slope <= 0.0:
            return 0.0
        return float(min(1.0, slope / gram[j, j])) if gram[j, j] > 0.0 else 1.0

    edges = [(along(0, end), end) for end in (0.0, 1.0)]
    edges += [(end, along(1, end)) for end in (0.0, 1.0)]
    determinant = gram[0, 0] * gram[1, 1] - gram[0, 1] ** 2
    if determinant > 0.0:
        inside = (gram[[1, 0], [1, 0]] * linear - gram[0, 1] * linear[::-1]) / determinant
        if 0.0 <= inside.min() <= inside.max() <= 1.0:
            edges.append(tuple(inside))
    points = np.array(edges)
    values = points @ linear - 0.5 * ((points @ gram) * points).sum(axis=1)
    return points[values.argmax()]  # type: ignore[no-any-return]


def make_dual(
    problem: LinearProblem,
    measured: tuple[Rows, Floats],
    start: Floats | None = None,
    longest_wait: int = 0,
    seed: int = 0,
    shared: SharedWeights | None = None,
    threads: Threads = ONE_THREAD,
) -> LinearDual:
    """The dual state for this kind of problem, whose features are `measured_rows`."""
    for kind, dual in ((MulticlassProblem, MulticlassDual), (ScalarProblem, ScalarDual)):
        if isinstance(problem, kind):
            return dual(problem, measured, start, longest_wait, seed, shared, threads)
    raise TypeError(
        f"SequentialDual solves multi-class, binary and regression problems, "
        f"not {type(problem).__name__}."
    )
