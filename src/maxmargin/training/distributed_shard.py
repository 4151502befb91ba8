"""What `DistributedDual` keeps with each shard, and does there.

A shard ascends the dual over its own examples as if there were no others, from the weights that it
was sent, with one difference: it counts its own updates `scale` times. To keep its coefficients
times `scale` is all that this takes. They then add up to at most ``scale * C``, every step is that
of the plain problem, and the weights here change by `scale` times what they would.
"""

import math
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.certificate import DualPoint
from maxmargin.core.cuts import Cuts
from maxmargin.core.oracle import Hinges, Oracle
from maxmargin.core.result import Stopping
from maxmargin.core.threads import Threads
from maxmargin.dual.working_set import BlockUpdate, StepRule, WorkingSet
from maxmargin.solvers.block_coordinate import ENTRY_COST, Auto
from maxmargin.solvers.loop import Momentum
from maxmargin.solvers.structured import BlockRun
from maxmargin.training.shards import Delta

Floats = NDArray[np.float64]
Order = NDArray[np.int64]


MOST_SWEEPS, LEAST_GAIN = 5, 0.3
"""Most sweeps of an update without oracle calls; it ends when they gain less than this part."""


class Request(NamedTuple):
    """What the driver sends to a shard.

    Parameters
    ----------
    step : float
        Which step was made along its last update.
    delta : Delta
        To the weights that it knows, after that step.
    scale : float
        How many times to count its updates from now on.
    local_passes : float
        Passes of oracle calls over its examples; none if it is only to sweep its working set.
    momentum : float
        How far to extrapolate first along the last update.
    restart : bool
        For a single shard: whether to restart its momentum.
    seconds : float or None
        How long it may take at most, about.
    """

    step: float
    delta: Delta
    scale: float
    local_passes: float = 0.0
    momentum: float = 0.0
    restart: bool = False
    seconds: float | None = None

    @property
    def nbytes(self) -> int:
        """Bytes to send."""
        return self.delta.nbytes


class ShardUpdate(NamedTuple):
    """What a shard sends to the driver.

    Parameters
    ----------
    delta : Delta
        To the weights that it was sent: `scale` times ``sum change * psi`` is added to them.
    linear : float
        Change of the dual's linear term.
    scale : float
    statistics : Progress
    """

    delta: Delta
    linear: float
    scale: float
    statistics: "Statistics"

    @property
    def nbytes(self) -> int:
        """Bytes to send."""
        return self.delta.nbytes


class Statistics(NamedTuple):
    """What a shard has done so far, all in all, and the time that its last update took.

    Parameters
    ----------
    passes : float
    estimate : float
        Sum of C times hinge as seen in the last pass of oracle calls.
    calls, hits : int
        Oracle calls, and updates from the working set.
    cuts : int
    local_passes : float
        Passes of the last update.
    effort : float
        Multiplications of the last update, about; none if it only ended an extrapolation.
    seconds, oracle_seconds : float
        Of the last update, and of the oracle calls in it.
    """

    passes: float
    estimate: float
    calls: int
    hits: int
    cuts: int
    local_passes: float
    effort: float
    seconds: float
    oracle_seconds: float


NO_STATISTICS = Statistics(0.0, math.inf, 0, 0, 0, 0.0, 0.0, 0.0, 0.0)


def interpolated(old: Floats, new: Floats, part: float) -> Floats:
    """A step from `old` to `new`; the same bits on all sides."""
    return new if part == 1.0 else old + part * (new - old)


class ShardCuts(WorkingSet):
    """A working set that remembers where an update began, and can change its scale."""

    def __init__(self, totals: Floats, n_features: int) -> None:
        super().__init__(totals, n_features)
        self.gaps[:] = 0.0  # sweeps leave examples out that have no cuts yet
        self.begin_update()

    def begin_update(self) -> None:
        """An update begins here."""
        self._held, self._held_linear = self._table.coef.copy(), self.linear

    @property
    def change(self) -> float:
        """Change of the linear term since."""
        return self.linear - self._held_linear

    def scale_back(self, part: float) -> None:
        """Take back all but a part of the update."""
        coef = self._table.coef
        coef *= part
        coef[: len(self._held)] += (1.0 - part) * self._held
        self.linear = self._held_linear + part * self.change

    def rescale(self, factor: float) -> None:
        """Other units for coefficients and what they may add up to."""
        for array in (self._table.coef, self._table.previous, self._table.totals):
            array *= factor
        self.linear *= factor

    def refresh_dual(self, weights: Floats) -> None:
        """Bring the dual value up to date after the weights were set from outside."""
        self._moved(0.0, weights)


class ShardRun(BlockRun):
    """The run of a shard, which may stop in the middle of a pass."""

    working_set: ShardCuts

    def __init__(self, oracle: Oracle, seed: Any, averaging: bool, options: Auto) -> None:
        super().__init__(oracle, Stopping(), Threads(1), seed, options.batch_size, averaging)
        self.working_set = ShardCuts(oracle.C.copy(), oracle.n_features)
        self.scale = 1.0
        self.options = options
        self.oracle_seconds = self.effort = 0.0
        self._left: Order = np.zeros(0, dtype=np.int64)
        self._loss = 0.0

    def following(self, local_passes: float) -> Order:
        """The next examples of the pass: so large a part of all, or what is left."""
        if not len(self._left):
            self._left, self._loss = self.shuffled, 0.0
        n = max(1, math.ceil(local_passes * self.oracle.n_examples))
        order, self._left = self._left[:n], self._left[n:]
        return order

    def infer(self, order: Order, rule: StepRule) -> BlockUpdate:
        passes, estimate = self.passes, self.estimate
        found = super().infer(order, rule)
        self.effort += self.options.inference_effort(self, order, found)
        self._loss += found.loss / self.scale
        if not len(self._left):
            self.estimate = self._loss
            return found
        self.passes, self.estimate = passes, estimate
        if math.isinf(estimate):
            self.note_hinges(self._loss, np.setdiff1d(self.everything, self._left))
        return found

    def sweep(self, order: Order, rule: StepRule) -> BlockUpdate:
        swept = super().sweep(order, rule)
        self.effort += ENTRY_COST * swept.work
        return swept

    def _found(self, order: Order, weights: Floats) -> Iterator[tuple[Order, Cuts]]:
        found = super()._found(order, weights)
        while True:
            started = time.perf_counter()
            item = next(found, None)
            self.oracle_seconds += time.perf_counter() - started
            if item is None:
                return
            yield item


class DualShard:
    """The state of `DistributedDual` on a shard.

    Parameters
    ----------
    oracle : Oracle
        Of the examples of the shard.
    options : Auto
        How to ascend.
    seed : int
    number : int
        Of the shard.
    n_shards : int
        A single one makes whole steps, and its extrapolation goes on from one request to the next.
    averaging : bool
    """

    def __init__(
        self,
        oracle: Oracle,
        options: Auto,
        seed: int,
        number: int,
        n_shards: int,
        averaging: bool,
    ) -> None:
        self.options, self.single = options, n_shards == 1
        own_seed = seed if number == 0 else [seed, number]
        self.run = ShardRun(oracle, own_seed, averaging, options)
        # With several, the driver says how far to extrapolate.
        accelerated = options.acceleration and self.single
        self.momentum = self.run.momentum = Momentum(self.run, accelerated)
        self.base = self.run.weights.copy()
        """The weights that were sent."""

    def improve(self, request: Request) -> ShardUpdate:
        """Make so many passes, or parts of one, or sweep the working set."""
        run, started = self.run, time.perf_counter()
        self._set_weights(request)
        run.oracle_seconds, run.effort = 0.0, 1.0
        if request.local_passes > 0.0:
            run.working_set.drop_idle(self.options.max_idle)
        run.working_set.begin_update()
        if not self.single:
            run.extrapolate(request.momentum)
        done = 0.0
        while done < request.local_passes and not run.stopping.out_of_time:
            order = run.following(request.local_passes - done)
            self.options.improve(run, self.momentum, order)
            done += len(order) / run.oracle.n_examples
        if request.local_passes == 0.0:
            self._sweep()
        return self._update(started, done)

    def _sweep(self) -> None:
        """Sweep the working set until that gains little."""
        rule, first = StepRule(max_steps=self.options.max_steps), 0.0
        for _ in range(MOST_SWEEPS):
            gain = self.run.sweep(self.options.worth_sweeping(self.run), rule).gain
            first = first or gain
            if gain <= LEAST_GAIN * first:
                break

    def settle(self, request: Request) -> ShardUpdate:
        """End an extrapolation that is under way."""
        started = time.perf_counter()
        self._set_weights(request)
        self.run.oracle_seconds = self.run.effort = 0.0
        self.run.working_set.begin_update()
        self.run.settle()
        return self._update(started, 0.0)

    def evaluate(self, request: Request) -> tuple[Hinges, Statistics]:
        """Sum of C times hinge at the weights sent; the cutting planes found are kept."""
        self._set_weights(request)
        return self.evaluate_at(self.run.weights)

    def evaluate_at(self, weights: Floats) -> tuple[Hinges, Statistics]:
        """The same at any weights."""
        started = time.perf_counter()
        self.run.oracle_seconds = self.run.effort = 0.0
        hinges = self.run.infer_at(weights)
        return hinges, self._statistics(started, 1.0)

    def lower_bound(self, request: Request) -> float:
        """What that sum is at least, at the weights sent, by the cuts of the working set."""
        self._set_weights(request)
        return self.lower_bound_at(self.run.weights)

    def lower_bound_at(self, weights: Floats) -> float:
        """The same at any weights."""
        return self.run.working_set.hinges(weights) / self.run.scale

    def average(self) -> Floats:
        """Average of the weights in the course of the updates here."""
        assert self.run.average is not None
        return self.run.average

    def resume(self, point: DualPoint) -> ShardUpdate:
        """Take over a dual point, before anything else happened; the update is from zero."""
        started = time.perf_counter()
        self._set_scale(1.0)  # that of the point
        self.run.working_set.begin_update()
        self.run.resume(point)
        return self._update(started, 0.0)

    def point(self) -> DualPoint:
        """The dual point, with the last update whole."""
        point = self.run.working_set.point()
        return point._replace(coef=point.coef / self.run.scale)

    def _set_weights(self, request: Request) -> None:
        run, cuts = self.run, self.run.working_set
        run.stopping = Stopping(time_limit=request.seconds)
        self.base = interpolated(self.base, run.weights, request.step / run.scale).copy()
        request.delta.apply(self.base)
        if request.step != 1.0:
            cuts.scale_back(request.step)
        self._set_scale(request.scale)
        run.weights[:] = self.base
        if not self.single:
            cuts.refresh_dual(run.weights)
        if request.restart:
            self.momentum.restart()

    def _set_scale(self, scale: float) -> None:
        if scale != self.run.scale:
            self.run.working_set.rescale(scale / self.run.scale)
            self.run.scale = scale

    def _update(self, started: float, local_passes: float) -> ShardUpdate:
        run = self.run
        return ShardUpdate(
            Delta.between(self.base, run.weights),
            run.working_set.change / run.scale,
            run.scale,
            self._statistics(started, local_passes),
        )

    def _statistics(self, started: float, local_passes: float) -> Statistics:
        run = self.run
        seconds = time.perf_counter() - started
        return Statistics(
            run.passes, run.estimate, run.calls, run.hits, run.n_cuts, local_passes, run.effort,
            seconds, run.oracle_seconds,
        )  # fmt: skip
