"""DistributedDual: shards ascend the dual in parallel, and the driver adds up their updates.

An update of a shard is a change of its dual variables, of which the driver only sees the effect on
the weights and on the linear term of the dual. Whatever weights it was found at, any step between 0
and 1 along it is feasible, and the best one is known exactly. A shard is told with the next request
which step was made along its update.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.certificate import DualPoint
from maxmargin.core.oracle import Hinges
from maxmargin.core.registry import registered
from maxmargin.core.result import Iteration, Result, Status, Stopping
from maxmargin.core.state import Stateful
from maxmargin.core.threads import Threads
from maxmargin.solvers.block_coordinate import Auto
from maxmargin.solvers.loop import SolverRun
from maxmargin.solvers.structured import AVERAGE_BELOW, Run, StructuredSolver, TrackedRun
from maxmargin.training.distributed_shard import (
    NO_STATISTICS,
    DualShard,
    Request,
    ShardUpdate,
    Statistics,
    interpolated,
)
from maxmargin.training.sharded_oracle import (
    ClusterIteration,
    ResidentPoint,
    ShardedOracle,
    Sums,
    certified_on_shards,
)
from maxmargin.training.shards import Answer, Delta, LostShardError

Floats = NDArray[np.float64]

LEAST_PASSES, FIRST_PASSES, MOST_PASSES = 1.0 / 64.0, 1.0 / 16.0, 1.0
"""Bounds and first value of the local passes between two messages, unless they are given."""

WORK_PER_OVERHEAD = 10.0
"""Seconds of work for each second that messages take."""

SCALE_UP, SCALE_DOWN = 1.2, 0.95
"""Factors of `scale` after a step below 1, and after a whole one."""

RESTART_BELOW = 0.9
"""Step size below which the momentum of a shard starts anew."""

EVALUATION_FACTOR = 1.5
"""Growth of the number of passes between two evaluations where there are several shards."""


class Counts:
    """What the iteration has cost so far."""

    def __init__(self, oracle: ShardedOracle) -> None:
        self.sent, self.received = oracle.sent, oracle.received
        self.updates = 0
        self.work = self.oracle = self.idle = self.step = 0.0


class ShardRecord:
    """What the driver knows of a shard."""

    def __init__(self, weights: Floats) -> None:
        self.base = weights
        """The weights that it was sent."""
        self.version = -1
        """Which of all weights these are."""
        self.update: ShardUpdate | None = None
        """Its last update, if it was not yet told which step was made along it."""
        self.step = 1.0
        self.oracle_updates = 0
        """Its updates with oracle calls; sweeps over the working set take hardly any time."""
        self.statistics = NO_STATISTICS
        self.pass_seconds = math.nan
        self.restart = False
        """Whether it is to restart its momentum."""
        self.t = 1.0
        """Of Nesterov's sequence."""
        self.gain_rate = 0.0
        """Gain of the last update with oracle calls, for its price."""
        self.sweeps = 0
        """How many updates without oracle calls there will have been in a row after the next."""

    def next_momentum(self) -> float:
        """How far to extrapolate along the last update."""
        following = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * self.t**2))
        momentum, self.t = (self.t - 1.0) / following, following
        return momentum

    def believed(self) -> Floats:
        """The weights of the shard once it knows which step was made along its update."""
        if self.update is None:
            return self.base
        believed, at = self.base.copy(), self.update.delta.entries
        believed[at] = interpolated(
            believed[at], self.update.delta.values, self.step / self.update.scale
        )
        return believed


class DistributedRun(Run):
    """A solve whose cutting planes, and dual variables, are in the shards.

    Parameters
    ----------
    oracle : ShardedOracle
    stopping, threads, seed
        As in `Run`.
    solver : DistributedDual
    """

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
        """Seconds that a request and its answer take beside the work."""
        self.linear = self.dual_value = 0.0
        self.average = True if oracle.n_features <= AVERAGE_BELOW else None
        """Whether shards keep one."""
        self.dual_asked = -math.inf
        self.settled = False
        """Whether the dual has hardly grown since the last check."""
        self.passes_evaluated = self.passes_asked = 0.0
        self.version = 0
        self.records = [ShardRecord(np.zeros(oracle.n_features)) for _ in range(n_shards)]
        self.lost: set[int] = set()
        self.checkpointed: list[DualPoint] | None = None
        """Dual points of the shards when they were last fetched, from which lost ones go on."""
        self._counts = Counts(oracle)
        self.shards.patience = solver.patience
        for shard in range(n_shards):
            self._begin(shard)
        self._drain()
        if self.lost:
            self.recover()

    def _begin(self, shard: int) -> None:
        self.shards.ask(
            shard, "begin", DualShard, self.solver.local, self.seed, shard, len(self.shards),
            self.average is not None,
        )  # fmt: skip

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
        """Passes over all examples so far."""
        return float(np.mean([record.statistics.passes for record in self.records]))

    @property
    def expected(self) -> float:
        """With the hinges that shards saw in their last passes, at changing weights.

        Shards that have seen none yet are assumed to be like the others.
        """
        known = [e for record in self.records if math.isfinite(e := record.statistics.estimate)]
        if not known:
            return math.inf
        return self.half_square + len(self.records) * float(np.mean(known))

    def is_new_pass(self) -> bool:
        """Whether there was a pass over all examples, on average, since this was last true."""
        if self.passes < self.passes_asked + 1.0:
            return False
        self.passes_asked = self.passes
        return True

    def looks_done(self) -> bool:
        """As `TrackedRun.looks_done`, but stricter where there are several shards.

        Each sees the hinges of its own examples at weights that fit these best, so that their sum
        is too low; and an evaluation in vain costs more than waiting.
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
        """As many updates as there are shards; without staleness, one of each, in their order."""
        if self.solver.staleness == 0:
            for update in self._requested("improve"):
                self._apply(update)
            if self.lost:
                self.recover()
            return
        updates = 0
        while updates < len(self.records):
            furthest = min(record.oracle_updates for record in self.records) + self.solver.staleness
            for shard, record in enumerate(self.records):
                if shard not in self.shards.busy and record.oracle_updates <= furthest:
                    self._send(shard, "improve")
            answer = self._answer()
            if answer is None:
                self.recover()
            else:
                self._apply(answer)
                updates += 1

    def settle(self) -> None:
        """Wait for all shards, and let them end extrapolations: the driver knows all they hold."""
        self._drain()
        self._settle_shards()
        if self.lost:
            self.recover()

    def evaluate(self) -> None:
        """Evaluate the weights, and their average, unless the working sets rule them out.

        The cutting planes found are kept.
        """
        self.settle()
        self.best_dual = max(self.best_dual, self.dual)
        if self._is_open(self.weights, self._requested("lower_bound")):
            self._offer_evaluated(self.weights, self._requested("evaluate"))
        if self._average_counts and not self.is_done and not self.lost:
            averages = [answer.value for answer in self._asked("average")]
            average = np.mean(averages, axis=0) if averages else self.weights
            self.oracle.received += average.nbytes * len(averages)
            self.oracle.sent += average.nbytes * len(averages)
            if self._is_open(average, self._asked("lower_bound_at", average)):
                self._offer_evaluated(average, self._asked("evaluate_at", average))
                self.oracle.sent += average.nbytes * len(averages)
        for record in self.records:
            record.restart = True
        # The pass of the evaluation is none of the updates.
        self.passes_evaluated = self.passes_asked = self.passes
        if self.lost:
            self.recover()

    @property
    def _average_counts(self) -> bool:
        """Whether the average may be better than the present weights."""
        return self.average is not None and (self.single or self.settled)

    def _is_open(self, weights: Floats, known: list[Answer]) -> bool:
        """Whether shards leave it open that `weights` close the gap: see `may_close_gap`."""
        return not self.lost and self.may_close_gap(weights, sum(answer.value for answer in known))

    def _offer_evaluated(self, weights: Floats, answers: list[Answer]) -> None:
        if self.lost:
            return
        total = Hinges(0.0, 0.0)
        for answer in answers:
            hinges, statistics = answer.value
            self._note(self.records[answer.shard], statistics, answer.seconds)
            total += hinges
        self.offer(weights, total, ends_iteration=True)

    def recover(self, *lost: int) -> None:
        """Make lost shards again, and recompute what all of them hold."""
        self.lost.update(lost)
        self.detach_best()
        self._drain()
        sums = self._recompute_sums()
        self.weights[:], self.linear = sums.vector, sums.linear
        self.version += 1
        self.dual_value = self.linear - self.half_square
        # A point that is lost proves nothing.
        self.best_dual = self.dual_value

    def _recompute_sums(self) -> Sums:
        while True:
            for shard in sorted(self.lost):
                self._remake(shard)
            self._settle_shards()
            if not self.lost:
                try:
                    return self.oracle.sums()
                except LostShardError as error:
                    self.lost.add(error.number)

    def _remake(self, shard: int) -> None:
        """Make a lost shard again, from the last coefficients that were fetched from it."""
        self.shards.make(shard)
        estimate = self.records[shard].statistics.estimate
        record = self.records[shard] = ShardRecord(np.zeros(self.oracle.n_features))
        record.statistics = record.statistics._replace(estimate=estimate)
        record.oracle_updates = max(other.oracle_updates for other in self.records)
        if self._answer() is None:
            return
        self._begin(shard)
        if self._answer() is None:
            return
        self.lost.discard(shard)
        if self.checkpointed is not None:
            self.shards.ask(shard, "do", "resume", self.checkpointed[shard])
            answer = self._answer()
            if answer is not None:
                record.update = answer.value

    def point(self) -> Any:
        return ResidentPoint()

    def listed_point(self) -> DualPoint:
        """The coefficients of all examples, fetched from the shards, and kept for lost ones."""
        while True:
            self.settle()
            answers = self._asked("point")
            if not self.lost:
                self.checkpointed = [answer.value for answer in answers]
                return self.oracle.join(self.checkpointed)
            self.recover()

    def resume(self, start: DualPoint) -> None:
        self.checkpointed = self.oracle.split(start)
        for shard, point in enumerate(self.checkpointed):
            self.shards.ask(shard, "do", "resume", point)
        for answer in self._coming():
            self._apply(answer, whole=True)
        self.dual_value = self.linear - self.half_square
        if self.lost:
            self.recover()

    def release(self) -> None:
        """Nothing: if a shard is lost while its point is certified, training goes on."""

    def state(self) -> "_DistributedState":  # type: ignore[override]
        return _DistributedState(self)

    def as_iteration(self) -> Iteration:
        counts, self._counts = self._counts, Counts(self.oracle)
        return ClusterIteration(
            **asdict(super().as_iteration()),
            sent=self.oracle.sent - counts.sent,
            received=self.oracle.received - counts.received,
            updates=counts.updates,
            work_seconds=counts.work,
            oracle_seconds=counts.oracle,
            idle_seconds=counts.idle,
            step=counts.step / max(counts.updates, 1),
        )

    def _send(self, shard: int, method: str) -> None:
        """Send a shard a request, with the present weights."""
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

    def _requested(self, method: str) -> list[Answer]:
        """Answers to a request with the present weights, of all shards that are not lost."""
        for shard in self._present:
            self._send(shard, method)
        return sorted(self._coming(), key=lambda answer: answer.shard)

    def _asked(self, method: str, *arguments: Any) -> list[Answer]:
        """Answers to a request that changes nothing."""
        for shard in self._present:
            self.shards.ask(shard, "do", method, *arguments)
        return sorted(self._coming(), key=lambda answer: answer.shard)

    @property
    def _present(self) -> list[int]:
        return [shard for shard in range(len(self.records)) if shard not in self.lost]

    def _coming(self) -> Iterator[Answer]:
        """What shards that are busy answer, as it comes."""
        while self.shards.busy:
            answer = self._answer()
            if answer is not None:
                yield answer

    def _drain(self) -> None:
        for answer in self._coming():
            if isinstance(answer.value, ShardUpdate):
                self._apply(answer)

    def _settle_shards(self) -> None:
        for answer in self._requested("settle"):
            self._apply(answer)
        self.dual_value = self.linear - self.half_square

    def _answer(self) -> Answer | None:
        """The next answer; None if it is that a shard is lost."""
        answer = self.shards.answer()
        assert answer is not None
        if isinstance(answer.error, LostShardError):
            self.lost.add(answer.shard)
            return None
        if answer.error is not None:
            raise answer.error
        return answer

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
            self._counts.updates += 1
            self._counts.step += step
            if best < RESTART_BELOW:
                record.t = 1.0
            self._adapt(best)

    def _choose(self, record: ShardRecord, gain: float, seconds: float) -> None:
        """Sweep the working set next, or call the oracle: as `Auto` does, by what they gained.

        The price of an update is the time it took, or, where the answer must not depend on time,
        its work.
        """
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
        self._counts.work += statistics.seconds
        self._counts.oracle += statistics.oracle_seconds
        self._counts.idle += idle
        if statistics.local_passes > 0.0:
            record.pass_seconds = statistics.seconds / statistics.local_passes
            old = idle if math.isnan(self.overhead) else self.overhead
            self.overhead = old + 0.3 * (idle - old)

    def _adapt(self, best: float) -> None:
        """Adapt the scale of updates, and the local passes between two messages."""
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
    """A run, and its dual point in terms of all examples, whoever has them.

    The point comes first: if a shard is lost while it is fetched, the run knows of a lower dual.
    """

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
    does, with its updates counted several times, because other shards make updates as well. These
    are sent back and added up with an exact line search, so that the dual never falls. With one
    shard this is `Auto`.

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
    >>> from maxmargin.training.distributed_dual import DistributedDual
    >>> X, y = [np.eye(3), np.eye(3)[::-1], np.eye(3)[1:]], ["abc", "cba", "bc"]
    >>> tagger = mm.SequenceTagger(solver=DistributedDual(), n_jobs=2).fit(X, [list(s) for s in y])
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
        def certify(status: Status) -> Result:
            result = super(DistributedDual, self).finish(run, status)
            if run.oracle.lists_point:
                return replace(result, dual_point=run.listed_point())
            return result

        return certified_on_shards(run, status, certify, self)
