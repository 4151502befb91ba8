"""DistributedDual: shards ascend the dual in parallel, and the driver adds up their updates.

It maximises the n-slack dual (see `maxmargin.dual.working_set`) as CoCoA+ does (Ma et al., 2015).
Of an update of its dual variables a shard sends the effect on weights and linear term; any step in
[0, 1] along it is feasible, the best is known exactly, and the next request says which was made.
A shard counts its updates `scale` times: it keeps coefficients times `scale`, up to ``scale * C``.
"""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from maxmargin.core.arrays import Floats, Order
from maxmargin.core.certificate import DualPoint
from maxmargin.core.oracle import Hinges, Oracle, Threads
from maxmargin.core.registry import registered
from maxmargin.core.result import Iteration, Result, Status
from maxmargin.core.state import Stateful
from maxmargin.dual.cut_table import StepRule
from maxmargin.dual.output_cuts import OutputWorkingSet
from maxmargin.dual.working_set import BlockUpdate, WorkingSet
from maxmargin.solvers.block_coordinate import ENTRY_COST, Auto
from maxmargin.solvers.loop import Momentum, SolverRun, Stopping
from maxmargin.solvers.structured import (
    AVERAGE_BELOW,
    BlockRun,
    Run,
    StructuredSolver,
    TrackedRun,
)
from maxmargin.training.shards import (
    Answer,
    ClusterIteration,
    Delta,
    LostShardError,
    ResidentPoint,
    ShardedOracle,
    certified_on_shards,
    retried,
)

MOST_SWEEPS, LEAST_GAIN = 5, 0.3
"""Sweeps of an update without oracle calls end at a gain below this part of the first."""

LEAST_PASSES, FIRST_PASSES, MOST_PASSES = 1.0 / 64.0, 1.0 / 16.0, 1.0
"""Bounds and first value of the local passes, unless they are given."""

WORK_PER_OVERHEAD = 10.0
"""Seconds of work for each second that messages take."""

SCALE_UP, SCALE_DOWN = 1.2, 0.95
"""Factors of `scale` after a step below 1, and after a whole one."""

RESTART_BELOW = 0.9
"""Step size below which the momentum of a shard restarts."""

EVALUATION_FACTOR = 1.5
"""Growth of the passes between two evaluations with several shards."""


class Request(NamedTuple):
    """What the driver sends to a shard."""

    step: float
    """That was made along its last update."""
    delta: Delta
    """To the weights that it knows, after that step."""
    scale: float
    local_passes: float = 0.0
    """Passes of oracle calls; 0 only sweeps the working set."""
    momentum: float = 0.0
    """For extrapolation along the last update."""
    restart: bool = False
    """Restart the momentum of a single shard."""
    seconds: float | None = None

    @property
    def nbytes(self) -> int:
        return self.delta.nbytes


class ShardUpdate(NamedTuple):
    """What a shard sends to the driver."""

    delta: Delta
    """To the weights that it was sent: adds `scale` times ``sum change * psi``."""
    linear: float
    """Change of the dual's linear term."""
    scale: float
    statistics: "Statistics"

    @property
    def nbytes(self) -> int:
        return self.delta.nbytes


class Statistics(NamedTuple):
    """What a shard has done in all, and what its last update took."""

    passes: float = 0.0
    estimate: float = math.inf
    """Sum of C times hinge in the last pass of oracle calls."""
    calls: int = 0
    hits: int = 0
    cuts: int = 0
    local_passes: float = 0.0
    """Of the last update, as all that follow."""
    effort: float = 0.0
    """Approximate multiplications; zero if it only ended an extrapolation."""
    seconds: float = 0.0
    oracle_seconds: float = 0.0


def interpolated(old: Floats, new: Floats, part: float) -> Floats:
    """A step from `old` to `new`, to the same bits in driver and shards."""
    return new if part == 1.0 else old + part * (new - old)


class ShardCuts(WorkingSet):
    """A working set that remembers where an update began, and has `scale` times coefficients."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.gaps[:] = 0.0  # sweeps leave examples out that have no cuts yet
        self.scale = 1.0
        self.begin_update()

    def begin_update(self) -> None:
        self._held, self._held_linear = self._table.coef.copy(), self.linear

    @property
    def change(self) -> float:
        """Change of the linear term by the update."""
        return self.linear - self._held_linear

    def scale_back(self, part: float) -> None:
        """Revert all but a part of the update."""
        if part != 1.0:
            coef = self._table.coef
            coef *= part
            coef[: len(self._held)] += (1.0 - part) * self._held
            self.linear = self._held_linear + part * self.change

    def rescale(self, scale: float) -> None:
        """Multiply the coefficients and their bounds."""
        if scale != self.scale:
            factor, self.scale = scale / self.scale, scale
            for array in (self._table.coef, self._table.previous, self._table.totals):
                array *= factor
            self.linear *= factor

    def refresh_dual(self, weights: Floats) -> None:
        """Recompute the dual value for weights that were set from outside."""
        self._moved(0.0, weights)


class ShardOutputs(ShardCuts, OutputWorkingSet):
    """The same with outputs in place of entries."""


class ShardRun(BlockRun):
    """The run of a shard, which may stop in the middle of a pass."""

    working_set: ShardCuts
    momentum: Momentum

    def __init__(
        self, oracle: Oracle, options: Auto, seed: Any, single: bool, averaging: bool
    ) -> None:
        super().__init__(oracle, Stopping(), Threads(1), seed, options.batch_size, averaging)
        cuts, size = oracle.output_cuts, (oracle.C.copy(), oracle.n_features)
        self.working_set = ShardCuts(*size) if cuts is None else ShardOutputs(*size, cuts)
        self.options = options
        # With several shards, the driver says how far to extrapolate.
        self.momentum = Momentum(self, options.acceleration and single)
        self.oracle_seconds = self.effort = 0.0
        self._left: Order = np.zeros(0, dtype=np.int64)
        self._loss = 0.0

    def following(self, local_passes: float) -> Order:
        """The next examples of the pass: this fraction of all, or what is left."""
        if not len(self._left):
            self._left, self._loss = self.shuffled, 0.0
        n = max(1, math.ceil(local_passes * self.oracle.n_examples))
        order, self._left = self._left[:n], self._left[n:]
        return order

    def infer(self, order: Order, rule: StepRule) -> BlockUpdate:
        passes, estimate = self.passes, self.estimate
        found = super().infer(order, rule)
        self.effort += self.options.inference_effort(self, order, found)
        self._loss += found.loss / self.working_set.scale
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

    def _found(
        self, order: Order, weights: Floats, separate: Callable[[Floats, Order, Threads], Any]
    ) -> Iterator[tuple[Order, Any]]:
        found = super()._found(order, weights, separate)
        while True:
            started = time.perf_counter()
            item = next(found, None)
            self.oracle_seconds += time.perf_counter() - started
            if item is None:
                return
            yield item


class DualShard:
    """The state of `DistributedDual` on a shard; a single one makes whole steps."""

    def __init__(
        self, oracle: Oracle, options: Auto, seed: Any, single: bool, averaging: bool
    ) -> None:
        self.single = single
        self.run = ShardRun(oracle, options, seed, single, averaging)
        self.base = self.run.weights.copy()
        """The weights that were sent."""

    def improve(self, request: Request) -> ShardUpdate:
        """Make local passes of oracle calls, or sweep the working set."""
        run, options = self.run, self.run.options
        self._weights(request)
        run.effort = 1.0
        if request.local_passes > 0.0:
            run.working_set.drop_idle(options.max_idle)
        if not self.single:
            run.extrapolate(request.momentum)
        done = 0.0
        while done < request.local_passes and not run.stopping.out_of_time:
            order = run.following(request.local_passes - done)
            options.improve(run, run.momentum, order)
            done += len(order) / run.oracle.n_examples
        if request.local_passes == 0.0:
            rule, first = StepRule(max_steps=options.max_steps), 0.0
            for _ in range(MOST_SWEEPS):
                gain = run.sweep(options.worth_sweeping(run), rule).gain
                first = first or gain
                if gain <= LEAST_GAIN * first:
                    break
        return self._update(done)

    def settle(self, request: Request) -> ShardUpdate:
        """End an extrapolation."""
        self._weights(request)
        self.run.settle()
        return self._update()

    def evaluate(self, at: Request | Floats) -> tuple[Hinges, Statistics]:
        """Sum of C times hinge; the cuts found are kept."""
        return self.run.infer_at(self._weights(at)), self._statistics(1.0)

    def lower_bound(self, at: Request | Floats) -> float:
        """Lower bound of that sum, by the working set."""
        cuts = self.run.working_set
        return cuts.hinges(self._weights(at)) / cuts.scale

    def average(self) -> Floats:
        """Average of the weights over the updates here."""
        assert self.run.average is not None
        return self.run.average

    def resume(self, point: DualPoint) -> ShardUpdate:
        """Start from a dual point, before any update; that returned is from zero."""
        self._started = time.perf_counter()
        self.run.working_set.rescale(1.0)  # that of the point
        self.run.working_set.begin_update()
        self.run.resume(point)
        return self._update()

    def point(self) -> DualPoint:
        """The dual point, with the last update whole."""
        point = self.run.point()
        return point._replace(coef=point.coef / self.run.working_set.scale)

    def _weights(self, at: Request | Floats) -> Floats:
        """The weights of a request, from which an update begins, or weights as they are."""
        run, cuts = self.run, self.run.working_set
        self._started = time.perf_counter()
        run.oracle_seconds = run.effort = 0.0
        if not isinstance(at, Request):
            return at
        run.stopping = Stopping(time_limit=at.seconds)
        self.base = interpolated(self.base, run.weights, at.step / cuts.scale).copy()
        at.delta.apply(self.base)
        cuts.scale_back(at.step)
        cuts.rescale(at.scale)
        run.weights[:] = self.base
        if not self.single:
            cuts.refresh_dual(run.weights)
        if at.restart:
            run.momentum.restart()
        cuts.begin_update()
        return run.weights

    def _update(self, local_passes: float = 0.0) -> ShardUpdate:
        weights, cuts = self.run.weights, self.run.working_set
        delta, statistics = Delta.between(self.base, weights), self._statistics(local_passes)
        return ShardUpdate(delta, cuts.change / cuts.scale, cuts.scale, statistics)

    def _statistics(self, local_passes: float) -> Statistics:
        run = self.run
        return Statistics(
            run.passes, run.estimate, run.calls, run.hits, run.n_cuts, local_passes, run.effort,
            time.perf_counter() - self._started, run.oracle_seconds,
        )  # fmt: skip


@dataclass
class ShardRecord:
    """What the driver knows of a shard: the weights it was sent, its last update, its pace."""

    base: Floats
    version: int = -1
    update: ShardUpdate | None = None
    """Its last, until it is told the step made along it."""
    step: float = 1.0
    oracle_updates: int = 0
    """Its updates with oracle calls; sweeps take hardly any time."""
    statistics: Statistics = field(default_factory=Statistics)
    pass_seconds: float = math.nan
    restart: bool = False
    t: float = 1.0
    gain_rate: float = 0.0
    """Gain of the last update with oracle calls, by its cost."""
    sweeps: int = 0
    """Updates without oracle calls in a row, the next one included."""

    def next_momentum(self) -> float:
        following = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * self.t**2))
        momentum, self.t = (self.t - 1.0) / following, following
        return momentum

    def believed(self) -> Floats:
        """The weights of the shard once it knows the step made along its update."""
        if self.update is None:
            return self.base
        believed, at = self.base.copy(), self.update.delta.entries
        believed[at] = interpolated(
            believed[at], self.update.delta.values, self.step / self.update.scale
        )
        return believed


class DistributedRun(Run):
    """A solve whose cuts and dual variables are in the shards."""

    state_names = (*SolverRun.state_names, "best", "guess", "least_primal", "scale")

    oracle: ShardedOracle

    def __init__(
        self,
        oracle: ShardedOracle,
        stopping: Stopping,
        threads: Threads,
        seed: int,
        solver: Any,
    ) -> None:
        super().__init__(oracle, stopping, threads, seed)
        self.solver, self.seed, self.shards = solver, seed, oracle.shards
        n_shards = len(self.shards)
        self.single = n_shards == 1
        self.scale: float = 1.0 if self.single else solver.scale or float(n_shards)
        self.local_passes: float = 1.0 if self.single else solver.local_passes or FIRST_PASSES
        self.overhead = math.nan
        """Seconds of a request and its answer beside the work."""
        self.linear = self.dual_value = 0.0
        self.average = True if oracle.n_features <= AVERAGE_BELOW else None
        """None if shards keep none."""
        self.dual_asked = -math.inf
        self.settled = False
        """Whether the dual has hardly grown since the last check."""
        self.passes_evaluated = self.passes_asked = 0.0
        self.version = 0
        self.records = [ShardRecord(np.zeros(oracle.n_features)) for _ in range(n_shards)]
        self.checkpointed: list[DualPoint] | None = None
        """Dual points of the shards as last fetched, from which lost ones resume."""
        self._costs: dict[str, Any] = defaultdict(float)
        """Of the iteration so far, by names of `ClusterIteration`."""
        oracle.traffic()  # what was sent before is none of this run's
        self.shards.patience = solver.patience
        for shard in range(n_shards):
            self.shards.ask(shard, *self._beginning(shard))
        self.shards.gathered()
        if self.shards.lost:
            self.recover()

    def _beginning(self, shard: int) -> tuple[Any, ...]:
        """The first request of a shard."""
        seed = [self.seed, shard] if shard else self.seed
        averaging = self.average is not None
        return "begin", DualShard, self.solver.local, seed, self.single, averaging

    def check_resumed(self) -> None:
        """Shards have evaluated the point when they took it over."""

    @property
    def dual(self) -> float:
        return self.dual_value

    @property
    def n_cuts(self) -> int:
        return sum(record.statistics.cuts for record in self.records)

    @property
    def passes(self) -> float:
        return float(np.mean([record.statistics.passes for record in self.records]))

    @property
    def expected(self) -> float:
        """Objective with the hinges of the shards' last passes, at changing weights."""
        known = [e for record in self.records if math.isfinite(e := record.statistics.estimate)]
        if not known:
            return math.inf
        return self.half_square + len(self.records) * float(np.mean(known))

    def is_new_pass(self) -> bool:
        """Whether there was a pass, on average, since this was last true."""
        if self.passes < self.passes_asked + 1.0:
            return False
        self.passes_asked = self.passes
        return True

    def looks_done(self) -> bool:
        """As `TrackedRun.looks_done`, but stricter with several shards.

        Hinges that each has seen at weights that fit its own examples add up to too little, and an
        evaluation in vain costs more than waiting.
        """
        if self.single:
            return TrackedRun.looks_done(self)  # type: ignore[arg-type]
        primal, stopping = self.expected, self.stopping
        self.settled = self.dual - self.dual_asked <= stopping.allowed_gap(self.dual)
        self.dual_asked = self.dual
        if self.passes <= EVALUATION_FACTOR * self.passes_evaluated:
            return False
        return self.settled or primal - self.dual <= stopping.allowed_gap(primal)

    def advance(self) -> None:
        """As many updates as there are shards; without staleness one of each, in order."""
        if self.solver.staleness == 0:
            self._send_all("improve")
            for answer in sorted(self.shards.coming()):
                self._apply(answer)
            if self.shards.lost:
                self.recover()
            return
        updates = 0
        while updates < len(self.records):
            furthest = min(record.oracle_updates for record in self.records) + self.solver.staleness
            for shard, record in enumerate(self.records):
                if shard not in self.shards.busy and record.oracle_updates <= furthest:
                    self._send(shard, "improve")
            next_answer = next(self.shards.coming(), None)
            if next_answer is not None:
                self._apply(next_answer)
                updates += 1
            if self.shards.lost:
                self.recover()

    def settle(self) -> None:
        """Wait for all shards, and end extrapolations: the driver knows all they hold."""
        self._drain()
        self._settle_shards()
        if self.shards.lost:
            self.recover()

    def evaluate(self) -> None:
        """Evaluate the weights and their average, unless the working sets rule them out."""
        self.settle()
        self.best_dual = max(self.best_dual, self.dual)
        with suppress(LostShardError):
            self._evaluate()
            if self.average is not None and (self.single or self.settled) and not self.is_done:
                average = np.mean(self.shards.ask_all("do", "average"), axis=0)
                self.oracle.received += average.nbytes * len(self.shards)
                self._evaluate(average)
        for record in self.records:
            record.restart = True
        # The pass of the evaluation is none of the updates.
        self.passes_evaluated = self.passes_asked = self.passes
        if self.shards.lost:
            self.recover()

    def _evaluate(self, at: Floats | None = None) -> None:
        """Evaluate weights, the present ones if None, unless the working sets rule them out."""
        weights = self.weights if at is None else at
        self._send_all("lower_bound", at)
        known = sum(answer.value for answer in self.shards.wait())
        if self.may_close_gap(weights, known):
            self._send_all("evaluate", at)
            total = Hinges(0.0, 0.0)
            for shard, (hinges, statistics), _, seconds in self.shards.wait():
                self._note(self.records[shard], statistics, seconds)
                total += hinges
            self.offer(weights, total, ends_iteration=True)

    def recover(self) -> None:
        """Make lost shards again, and recompute what all of them hold."""
        self.detach_best()
        self._drain()
        while True:
            self._restore()
            self._settle_shards()
            with suppress(LostShardError):
                self.weights[:], self.linear = self.oracle.sums()
                break
        self.version += 1
        self.dual_value = self.linear - self.half_square
        # A point that is lost proves nothing.
        self.best_dual = self.dual_value

    def _restore(self) -> None:
        """Make lost shards again, from their last fetched coefficients."""
        for shard in self.shards.lost:
            statistics = Statistics(estimate=self.records[shard].statistics.estimate)
            self.records[shard] = ShardRecord(np.zeros(len(self.weights)), statistics=statistics)
            self.records[shard].oracle_updates = max(one.oracle_updates for one in self.records)
        for shard in self.shards.restore(self._beginning):
            if self.checkpointed is not None:
                self.shards.ask(shard, "do", "resume", self.checkpointed[shard])
        for answer in self.shards.coming():
            self.records[answer.shard].update = answer.value

    def point(self) -> Any:
        return ResidentPoint()

    @retried
    def listed_point(self) -> DualPoint:
        """The coefficients of all examples, fetched from the shards, and kept for lost ones."""
        self.settle()
        self.checkpointed = points = self.shards.ask_all("do", "point")
        return self.oracle.join(points)

    def resume(self, start: DualPoint) -> None:
        self.checkpointed = self.oracle.split(start)
        for shard, point in enumerate(self.checkpointed):
            self.shards.ask(shard, "do", "resume", point)
        for answer in sorted(self.shards.coming()):
            self._apply(answer, whole=True)
        self.dual_value = self.linear - self.half_square
        if self.shards.lost:
            self.recover()

    def release(self) -> None:
        """Nothing: if a shard is lost while its point is certified, training goes on."""

    def state(self) -> "_DistributedState":  # type: ignore[override]
        return _DistributedState(self)

    def as_iteration(self) -> Iteration:
        costs, self._costs = self._costs, defaultdict(float)
        updates = int(costs.pop("updates", 0))
        step = costs.pop("step", 0.0) / max(updates, 1)
        line = asdict(super().as_iteration())
        traffic = self.oracle.traffic()
        return ClusterIteration(**line, **traffic, **costs, updates=updates, step=step)

    def _send(self, shard: int, method: str) -> None:
        record = self.records[shard]
        delta = Delta.between(record.believed(), self.weights)
        limit = self.stopping.time_limit
        left = None if limit is None else max(limit - self.stopping.seconds, 0.0)
        accelerated = method == "improve" and self.solver.local.acceleration
        momentum = record.next_momentum() if accelerated else 0.0
        local_passes = 0.0 if record.sweeps else self.local_passes
        request = Request(
            record.step, delta, self.scale, local_passes, momentum, record.restart, left
        )
        frozen = next((o.base for o in self.records if o.version == self.version), None)
        record.base = self.weights.copy() if frozen is None else frozen
        record.version, record.update, record.step, record.restart = self.version, None, 1.0, False
        self.oracle.sent += delta.nbytes
        self.shards.ask(shard, "do", method, request)

    def _send_all(self, method: str, at: Floats | None = None) -> None:
        """Send a request to the shards that are not lost, with the present weights or others."""
        for shard in sorted(set(range(len(self.records))) - self.shards.lost):
            if at is None:
                self._send(shard, method)
            else:
                self.shards.ask(shard, "do", method, at)
                self.oracle.sent += at.nbytes

    def _drain(self) -> None:
        for answer in self.shards.coming():
            if isinstance(answer.value, ShardUpdate):
                self._apply(answer)

    def _settle_shards(self) -> None:
        self._send_all("settle")
        for answer in sorted(self.shards.coming()):
            self._apply(answer)
        self.dual_value = self.linear - self.half_square

    def _apply(self, answer: Answer, whole: bool = False) -> None:
        """Make the step along an update that is best for the dual, or a whole one."""
        record, update = self.records[answer.shard], answer.value
        self._note(record, update.statistics, answer.seconds)
        self.oracle.received += update.nbytes
        at, part = update.delta.entries, 1.0 / update.scale
        change = part * (update.delta.values - record.base[at])
        slope = update.linear - float(self.weights[at] @ change)
        square = float(change @ change)
        best = slope / square if square > 0.0 else 1.0
        step = 1.0 if self.single or whole else min(max(best, 0.0), 1.0)
        record.update, record.step = update, step
        if square > 0.0 and step > 0.0:
            # Without updates of others, the weights become the shard's own, to the last bit.
            alone = record.version == self.version and step == part == 1.0
            self.weights[at] = update.delta.values if alone else self.weights[at] + step * change
            self.version += 1
        self.linear += step * update.linear
        gain = step * slope - 0.5 * step**2 * square
        self.dual_value += gain
        if update.statistics.effort > 0.0:
            self._choose(record, gain, answer.seconds)
            record.oracle_updates += update.statistics.local_passes > 0.0
            self._costs["updates"] += 1
            self._costs["step"] += step
            if best < RESTART_BELOW:
                record.t = 1.0
            self._adapt(best)

    def _choose(self, record: ShardRecord, gain: float, seconds: float) -> None:
        """Sweep next or call the oracle, whichever gained more by time (or work, if repeatable)."""
        if self.single:
            return
        timed = self.solver.local_passes is None
        gain_rate = gain / max(seconds if timed else record.statistics.effort, 1e-9)
        if record.statistics.local_passes > 0.0:
            record.gain_rate = gain_rate
        more = 0.0 < record.gain_rate <= gain_rate and record.sweeps < self.solver.local.max_sweeps
        record.sweeps = record.sweeps + 1 if more else 0

    def _note(self, record: ShardRecord, statistics: Statistics, seconds: float) -> None:
        before, record.statistics = record.statistics, statistics
        idle = max(seconds - statistics.seconds, 0.0)
        self.calls += statistics.calls - before.calls
        self.hits += statistics.hits - before.hits
        self._costs["work_seconds"] += statistics.seconds
        self._costs["oracle_seconds"] += statistics.oracle_seconds
        self._costs["idle_seconds"] += idle
        if statistics.local_passes > 0.0:
            record.pass_seconds = statistics.seconds / statistics.local_passes
            old = idle if math.isnan(self.overhead) else self.overhead
            self.overhead = old + 0.3 * (idle - old)

    def _adapt(self, best: float) -> None:
        """Adapt `scale` and the local passes between two messages."""
        if self.single:
            return
        if self.solver.scale is None:
            factor = SCALE_UP if best < 1.0 else SCALE_DOWN
            self.scale = min(max(self.scale * factor, 1.0), float(len(self.records)))
        if self.solver.local_passes is None:
            seconds = float(np.nanmean([record.pass_seconds for record in self.records]))
            wanted = WORK_PER_OVERHEAD * self.overhead / max(seconds, 1e-9)
            self.local_passes = min(max(wanted, LEAST_PASSES), MOST_PASSES)


class _DistributedState(Stateful):
    """A run and its dual point, which is fetched first: a shard lost meanwhile lowers the dual."""

    state_names = ("point", "run")

    def __init__(self, run: DistributedRun) -> None:
        self.run = run

    @property
    def point(self) -> DualPoint:
        return self.run.listed_point()

    @point.setter
    def point(self, point: DualPoint) -> None:
        self.run.resume(point)


@registered("DistributedDual")
@dataclass(frozen=True, kw_only=True)
class DistributedDual(StructuredSolver):
    """Dual ascent on shards of the data, in the style of CoCoA+ (Ma et al., 2015).

    Every shard calls the oracle for its own examples and updates their dual variables as `Auto`
    does, with its updates counted several times, because other shards make updates as well. An
    exact line search adds them up, so that the dual never falls. With one shard this is `Auto`.

    Parameters
    ----------
    local : Auto
        The local solver of each shard.
    scale : float, default=None
        How many times shards count their own updates (sigma' of CoCoA+): at the number of shards,
        steps along all of them can be whole; below, updates are longer. None adapts it.
    local_passes : float, default=None
        Passes over its examples that a shard makes between two messages; None chooses it so that
        messages cost a tenth of the time, about.
    staleness : int, default=2
        Updates with oracle calls that a shard may be ahead of the slowest. 0 is synchronous: then,
        with `local_passes` given, the same seed and number of shards give the same bits.
    patience : float, default=600
        Seconds without an answer after which a shard is made again on another worker.

    See Also
    --------
    Auto, OneSlack

    Examples
    --------
    >>> import numpy as np
    >>> import maxmargin as mm
    >>> X, y = [np.eye(3), np.eye(3)[::-1]], [list("abc"), list("cba")]
    >>> tagger = mm.SequenceTagger(solver=mm.DistributedDual(), tol=1e-3, n_jobs=2).fit(X, y)
    >>> tagger.certificate_.relative_gap <= 1e-3
    True
    """

    on_shards: ClassVar[bool] = True

    local: Auto = field(default_factory=Auto)
    scale: float | None = None
    local_passes: float | None = None
    staleness: int = 2
    patience: float = 600.0

    def __post_init__(self) -> None:
        if self.scale is not None and not self.scale >= 1.0:
            raise ValueError(f"scale must be at least 1, but is {self.scale}.")
        if self.local_passes is not None and not self.local_passes > 0.0:
            raise ValueError(f"local_passes must be positive, but is {self.local_passes}.")
        if self.staleness < 0:
            raise ValueError(f"staleness must not be negative, but is {self.staleness}.")

    def start(self, oracle: Any, stopping: Stopping, threads: Threads, seed: int) -> DistributedRun:
        return DistributedRun(oracle, stopping, threads, seed, self)

    def iterate(self, run: DistributedRun) -> None:
        run.advance()
        if run.is_new_pass() and run.looks_done():
            run.evaluate()

    def finish(self, run: DistributedRun, status: Status) -> Result:
        return certified_on_shards(super().finish, run, status, self)
