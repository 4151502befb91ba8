"""DistributedDual: shards ascend the dual side by side; what they find is added up safely.

The driver's side of the distributed dual method: orders to shards, and moves taken from them.

A move of a shard is a change of its dual variables, of which the driver only sees what it does to
the weights and to the linear term of the dual. Whatever weights it was found at, a part of it
between nothing and all is feasible, and the best part is known exactly. A shard hears with its
next orders what part of its move was taken.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.certificate import DualPoint
from maxmargin.core.oracle import Hinges
from maxmargin.core.registry import registered
from maxmargin.core.result import Iteration, Result, Status, Stopping
from maxmargin.core.state import Stateful
from maxmargin.core.threads import Threads
from maxmargin.solvers.block_coordinate import AVERAGE_BELOW, Auto
from maxmargin.solvers.loop import SolverRun
from maxmargin.solvers.structured import Run, StructuredSolver, TrackedRun
from maxmargin.training.distributed_links import ClusterIteration, Counts, Link, certified_on_shards
from maxmargin.training.distributed_shard import DualShard, Move, Orders, Progress
from maxmargin.training.sharded_oracle import ResidentPoint, ShardedOracle, Sums
from maxmargin.training.shards import Answer, Delta, LostShardError

Floats = NDArray[np.float64]

LEAST_SHARE, FIRST_SHARE, MOST_SHARE = 1.0 / 64.0, 1.0 / 16.0, 1.0
"""Passes that a shard makes between two messages, where their cost decides."""

WORK_PER_OVERHEAD = 10.0
"""Seconds of work for each second that messages take."""

MORE, LESS = 1.2, 0.95
"""Factors by which shards count their moves more often if those are cut short, less if not."""

RESTART = 0.9
"""Moves of which less than this part is taken have gone too far along the last ones."""

PATIENT = 1.5
"""Valuations are worth more passes in between where several shards have to agree."""


class DistributedRun(Run):
    """A solve whose planes, and dual variables, are in the shards.

    Parameters
    ----------
    oracle : ShardedTrainingSet
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
        self.lone = n_shards == 1
        self.scale: float = 1.0 if self.lone else solver.scale or float(n_shards)
        self.share: float = 1.0 if self.lone else solver.share or FIRST_SHARE
        self.overhead = math.nan
        """Seconds that a question and its answer take beside the work."""
        self.linear = self.dual_value = 0.0
        self.average = True if oracle.n_features <= AVERAGE_BELOW else None
        """Whether shards keep one."""
        self.dual_asked = -math.inf
        self.settled = False
        """Whether the dual has hardly grown since the last question."""
        self.passes_evaluated = self.passes_asked = 0.0
        self.version = 0
        self.links = [Link(np.zeros(oracle.n_features)) for _ in range(n_shards)]
        self.lost: set[int] = set()
        self.kept: list[DualPoint] | None = None
        """Points of the shards when they were last asked for, from which lost ones go on."""
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
        return sum(link.progress.cuts for link in self.links)

    @property
    def passes(self) -> float:
        """Passes over all examples so far."""
        return float(np.mean([link.progress.passes for link in self.links]))

    @property
    def expected(self) -> float:
        """With the hinges that shards saw in their last passes of searches, at changing weights.

        Shards that have not searched yet are taken to be like the others.
        """
        known = [e for link in self.links if math.isfinite(e := link.progress.estimate)]
        if not known:
            return math.inf
        return self.half_square + len(self.links) * float(np.mean(known))

    def is_new_pass(self) -> bool:
        """Whether all examples have been searched, on average, since this was last true."""
        if self.passes < self.passes_asked + 1.0:
            return False
        self.passes_asked = self.passes
        return True

    def looks_done(self) -> bool:
        """As `TrackedRun.looks_done`, but with more doubt where there are several shards.

        Each sees the hinges of its own examples, at weights that know these best, so that what they
        expect is less than the truth; and a valuation for nothing costs more than waiting.
        """
        if self.lone:
            return TrackedRun.looks_done(self)  # type: ignore[arg-type]
        primal, stopping = self.expected, self.stopping
        self.settled = self.dual - self.dual_asked <= stopping.allowed_gap(self.dual)
        self.dual_asked = self.dual
        if self.passes <= PATIENT * self.passes_evaluated:
            return False
        return self.settled or primal - self.dual <= stopping.allowed_gap(primal)

    def advance(self) -> None:
        """As many moves as there are shards; if none may be ahead, one of each, in their order."""
        if self.solver.staleness == 0:
            for move in self._ordered("go"):
                self._apply(move)
            if self.lost:
                self.recover()
            return
        moves = 0
        while moves < len(self.links):
            furthest = min(link.inferred for link in self.links) + self.solver.staleness
            for shard, link in enumerate(self.links):
                if shard not in self.shards.busy and link.inferred <= furthest:
                    self._send(shard, "go")
            answer = self._answer()
            if answer is None:
                self.recover()
            else:
                self._apply(answer)
                moves += 1

    def settle(self) -> None:
        """Wait for all shards, and let them rest: what they hold is what they have told."""
        self._drain()
        self._rest()
        if self.lost:
            self.recover()

    def evaluate(self) -> None:
        """Value the weights, and their average, unless planes in hand rule them out.

        The planes found are kept.
        """
        self.settle()
        self.best_dual = max(self.best_dual, self.dual)
        if self._is_open(self.weights, self._ordered("known")):
            self._offer_valued(self.weights, self._ordered("value"))
        if self._average_counts and not self.is_done and not self.lost:
            averages = [answer.value for answer in self._asked("average")]
            average = np.mean(averages, axis=0) if averages else self.weights
            self.oracle.received += average.nbytes * len(averages)
            self.oracle.sent += average.nbytes * len(averages)
            if self._is_open(average, self._asked("known_at", average)):
                self._offer_valued(average, self._asked("value_at", average))
                self.oracle.sent += average.nbytes * len(averages)
        for link in self.links:
            link.restart = True
        # That all were searched here says nothing new.
        self.passes_evaluated = self.passes_asked = self.passes
        if self.lost:
            self.recover()

    @property
    def _average_counts(self) -> bool:
        """Whether the average may be better than the weights of the moment."""
        return self.average is not None and (self.lone or self.settled)

    def _is_open(self, weights: Floats, known: list[Answer]) -> bool:
        """Whether shards leave it open that `weights` close the gap: see `may_close_gap`."""
        return not self.lost and self.may_close_gap(weights, sum(answer.value for answer in known))

    def _offer_valued(self, weights: Floats, answers: list[Answer]) -> None:
        if self.lost:
            return
        total = Hinges(0.0, 0.0)
        for answer in answers:
            hinges, progress = answer.value
            self._note(self.links[answer.shard], progress, answer.seconds)
            total += hinges
        self.offer(weights, total, ends_iteration=True)

    def recover(self, *lost: int) -> None:
        """Make lost shards again, and count anew what all of them hold."""
        self.lost.update(lost)
        self.detach_best()
        self._drain()
        sums = self._counted_anew()
        self.weights[:], self.linear = sums.vector, sums.linear
        self.version += 1
        self.dual_value = self.linear - self.half_square
        # A point that nobody has any more proves nothing.
        self.best_dual = self.dual_value

    def _counted_anew(self) -> Sums:
        while True:
            for shard in sorted(self.lost):
                self._replace(shard)
            self._rest()
            if not self.lost:
                try:
                    return self.oracle.sums()
                except LostShardError as error:
                    self.lost.add(error.number)

    def _replace(self, shard: int) -> None:
        """Make a lost shard again, with the last coefficients of it that were kept."""
        self.shards.make(shard)
        estimate = self.links[shard].progress.estimate
        link = self.links[shard] = Link(np.zeros(self.oracle.n_features))
        link.progress = link.progress._replace(estimate=estimate)
        link.inferred = max(other.inferred for other in self.links)
        if self._answer() is None:
            return
        self._begin(shard)
        if self._answer() is None:
            return
        self.lost.discard(shard)
        if self.kept is not None:
            self.shards.ask(shard, "do", "resume", self.kept[shard])
            answer = self._answer()
            if answer is not None:
                link.move = answer.value

    def point(self) -> Any:
        return ResidentPoint()

    def listed_point(self) -> DualPoint:
        """The coefficients of all examples, fetched from the shards; they are kept, too."""
        while True:
            self.settle()
            answers = self._asked("point")
            if not self.lost:
                self.kept = [answer.value for answer in answers]
                return self.oracle.join(self.kept)
            self.recover()

    def resume(self, start: DualPoint) -> None:
        self.kept = self.oracle.split(start)
        for shard, part in enumerate(self.kept):
            self.shards.ask(shard, "do", "resume", part)
        for answer in self._coming():
            self._apply(answer, whole=True)
        self.dual_value = self.linear - self.half_square
        if self.lost:
            self.recover()

    def release(self) -> None:
        """Nothing: if a shard is lost while its point is certified, it all goes on."""

    def state(self) -> "_DistributedState":  # type: ignore[override]
        return _DistributedState(self)

    def as_iteration(self) -> Iteration:
        counts, self._counts = self._counts, Counts(self.oracle)
        return ClusterIteration(
            **asdict(super().as_iteration()),
            sent=self.oracle.sent - counts.sent,
            received=self.oracle.received - counts.received,
            moves=counts.moves,
            work_seconds=counts.work,
            oracle_seconds=counts.infer,
            idle_seconds=counts.idle,
            taken=counts.taken / max(counts.moves, 1),
        )

    def _send(self, shard: int, method: str) -> None:
        """Let a shard do something, from the present weights on."""
        link = self.links[shard]
        delta = Delta.between(link.believed(), self.weights)
        limit = self.stopping.time_limit
        left = None if limit is None else max(limit - self.stopping.seconds, 0.0)
        accelerated = method == "go" and self.solver.local.acceleration
        momentum = link.next_momentum() if accelerated else 0.0
        share = 0.0 if link.sweeps else self.share
        orders = Orders(link.taken, delta, self.scale, share, momentum, link.restart, left)
        frozen = next((o.base for o in self.links if o.version == self.version), None)
        link.base = self.weights.copy() if frozen is None else frozen
        link.version, link.move, link.taken, link.restart = self.version, None, 1.0, False
        self.oracle.sent += delta.nbytes
        self.shards.ask(shard, "do", method, orders)

    def _ordered(self, method: str) -> list[Answer]:
        """Answers of all shards that are not lost to orders, in the order of the shards."""
        for shard in self._present:
            self._send(shard, method)
        return sorted(self._coming(), key=lambda answer: answer.shard)

    def _asked(self, method: str, *arguments: Any) -> list[Answer]:
        """The same to a question that changes nothing."""
        for shard in self._present:
            self.shards.ask(shard, "do", method, *arguments)
        return sorted(self._coming(), key=lambda answer: answer.shard)

    @property
    def _present(self) -> list[int]:
        return [shard for shard in range(len(self.links)) if shard not in self.lost]

    def _coming(self) -> Iterator[Answer]:
        """What shards that are busy answer, as it comes."""
        while self.shards.busy:
            answer = self._answer()
            if answer is not None:
                yield answer

    def _drain(self) -> None:
        for answer in self._coming():
            if isinstance(answer.value, Move):
                self._apply(answer)

    def _rest(self) -> None:
        for answer in self._ordered("rest"):
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
        """Take the part of a move that is best for the dual, or the `whole` of it."""
        link, move = self.links[answer.shard], answer.value
        self._note(link, move.progress, answer.seconds)
        self.oracle.received += move.nbytes
        at, part = move.delta.entries, 1.0 / move.scale
        change = part * (move.delta.values - link.base[at])
        slope = move.linear - float(self.weights[at] @ change)
        square = float(change @ change)
        best = slope / square if square > 0.0 else 1.0
        taken = 1.0 if self.lone or whole else min(max(best, 0.0), 1.0)
        link.move, link.taken = move, taken
        if square > 0.0 and taken > 0.0:
            # Where nobody else has moved, the weights become the shard's own, to the last bit.
            alone = link.version == self.version and taken == part == 1.0
            self.weights[at] = move.delta.values if alone else self.weights[at] + taken * change
            self.version += 1
        self.linear += taken * move.linear
        gain = taken * slope - 0.5 * taken**2 * square
        self.dual_value += gain
        if move.progress.effort > 0.0:
            self._choose(link, gain, answer.seconds)
            link.inferred += move.progress.share > 0.0
            self._counts.moves += 1
            self._counts.taken += taken
            if best < RESTART:
                link.t = 1.0
            self._adapt(best)

    def _choose(self, link: Link, gain: float, seconds: float) -> None:
        """Sweep planes in hand next, or search: as `Auto` does, by what they have gained.

        The price of a move is the time it took, or, where the answer must not depend on time, its
        work.
        """
        if self.lone:
            return
        timed = self.solver.share is None
        pay = gain / max(seconds if timed else link.progress.effort, 1e-9)
        if link.progress.share > 0.0:
            link.pay = pay
        more = 0.0 < link.pay <= pay and link.sweeps < self.solver.local.max_sweeps
        link.sweeps = link.sweeps + 1 if more else 0

    def _note(self, link: Link, progress: Progress, seconds: float) -> None:
        before, link.progress = link.progress, progress
        idle = max(seconds - progress.seconds, 0.0)
        self.calls += progress.calls - before.calls
        self.hits += progress.hits - before.hits
        self._counts.work += progress.seconds
        self._counts.infer += progress.oracle_seconds
        self._counts.idle += idle
        if progress.share > 0.0:
            link.pass_seconds = progress.seconds / progress.share
            old = idle if math.isnan(self.overhead) else self.overhead
            self.overhead = old + 0.3 * (idle - old)

    def _adapt(self, best: float) -> None:
        """How often moves are to count, and how long they are to be."""
        if self.lone:
            return
        if self.solver.scale is None:
            factor = MORE if best < 1.0 else LESS
            self.scale = min(max(self.scale * factor, 1.0), float(len(self.links)))
        if self.solver.share is None:
            seconds = float(np.nanmean([link.pass_seconds for link in self.links]))
            wanted = WORK_PER_OVERHEAD * self.overhead / max(seconds, 1e-9)
            self.share = min(max(wanted, LEAST_SHARE), MOST_SHARE)


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

    Every shard searches, and moves the dual variables of its own examples, as `Auto` does, with its
    moves counted several times, because others move as well. What it has moved is sent back and
    added up with an exact line search, so that the dual never falls. With one shard this
    is `Auto`.

    Parameters
    ----------
    local : Auto
        What shards do.
    scale : float, default=None
        How many times shards count their own moves: with their number, all moves can be taken
        whole; with less, moves are longer. None finds out on the way.
    share : float, default=None
        Passes over its examples that a shard makes between two messages; None chooses it so that
        messages cost a tenth of the time, about.
    staleness : int, default=2
        Moves with searches that a shard may be ahead of the slowest. 0 lets all wait for all: then,
        with `share` given, the same seed and number of shards give the same bits.
    patience : float, default=600
        Seconds without an answer after which a shard is made again in another place.

    See Also
    --------
    Auto, OneSlack

    Examples
    --------
    >>> import numpy as np
    >>> import maxmargin as mm
    >>> from maxmargin.oracle.distributed_dual import DistributedDual
    >>> X, y = [np.eye(3), np.eye(3)[::-1], np.eye(3)[1:]], ["abc", "cba", "bc"]
    >>> tagger = mm.SequenceTagger(solver=DistributedDual(), n_jobs=2).fit(X, [list(s) for s in y])
    >>> tagger.certificate_.relative_gap <= 1e-3
    True
    """

    local: Auto = field(default_factory=Auto)
    scale: float | None = None
    share: float | None = None
    staleness: int = 2
    patience: float = 600.0

    def __post_init__(self) -> None:
        if self.scale is not None and not self.scale >= 1.0:
            raise ValueError(f"scale must be at least 1, but is {self.scale}.")
        if self.share is not None and not self.share > 0.0:
            raise ValueError(f"share must be positive, but is {self.share}.")
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
