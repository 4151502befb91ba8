"""The training loop of all solvers: stopping, history, Ctrl-C, checkpoints, certification.

The loop runs what a solver, a small configuration object, defines:

    run = solver.start(oracle, stopping, threads, seed)
    while run.reason_to_stop() is None:
        solver.iterate(run)
    result = solver.finish(run, status)
"""

import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from maxmargin.core.certificate import Certificate, relative_gap
from maxmargin.core.oracle import Threads
from maxmargin.core.problem import ProblemError
from maxmargin.core.result import TINY, AbsoluteGap, Iteration, Result, Status
from maxmargin.core.state import Stateful


@dataclass
class Stopping:
    """Bounds on a solve, and its clock, which starts when this object is made.

    A gap is good enough by the relative `tol` or the absolute `gap` (minus infinity for none).
    Setting `cancelled`, from any thread, stops after the present iteration.
    """

    tol: float = 1e-3
    gap: float = field(default=-math.inf, kw_only=True)
    max_iter: int = 10_000
    time_limit: float | None = None
    cancelled: threading.Event = field(default_factory=threading.Event, repr=False)
    may_be_zero: bool = field(default=True, kw_only=True)
    """Whether zero weights may be the answer; latent problems would get stuck there."""
    earlier: float = 0.0
    """Seconds of the solve that this one resumes; the time limit does not count them."""
    _started: float = field(default_factory=time.perf_counter, repr=False)

    @classmethod
    def within(cls, tol: "float | AbsoluteGap", *bounds: Any) -> "Stopping":
        """Bounds with an estimator's `tol`."""
        if isinstance(tol, AbsoluteGap):
            return cls(0.0, *bounds, gap=tol.gap)
        return cls(tol, *bounds)

    def is_enough(self, primal: float, dual: float) -> bool:
        """Whether the gap between these values is good enough."""
        return relative_gap(primal, dual) <= self.tol or primal - dual <= self.gap

    def allowed_gap(self, value: float) -> float:
        """Gap that is good enough for an objective of about this value."""
        return max(self.tol * abs(value), self.gap)

    def relative_tol(self, value: float) -> float:
        """Relative gap that is good enough for an objective of about this value."""
        return max(self.tol, self.gap / max(abs(value), TINY))

    @property
    def seconds(self) -> float:
        return self.earlier + time.perf_counter() - self._started

    @property
    def out_of_time(self) -> bool:
        return self.time_limit is not None and self.seconds - self.earlier > self.time_limit

    def reason(self, iterations: int) -> Status | None:
        """Why to stop after so many iterations, whatever the gap; None to go on."""
        if self.cancelled.is_set():
            return Status.INTERRUPTED
        if self.out_of_time:
            return Status.TIME_LIMIT
        if iterations >= self.max_iter:
            return Status.MAX_ITER
        return None

    def share(self, parts: float, n_parts: int) -> "Stopping":
        """The same bounds for one of `n_parts` parts, with `parts` left to share the time."""
        left = self.time_limit
        if left is not None:
            left = max(left - (self.seconds - self.earlier), 0.0) / parts
        gap = self.gap / n_parts
        return Stopping(self.tol, self.max_iter, left, self.cancelled, gap=gap)


OnIteration = Callable[[Iteration, Callable[[], Any]], bool]
"""Called after each iteration with its numbers and a way to get the weights; True stops."""


class CheckpointFile(Protocol):
    """Where the loop keeps the state of a run; see `maxmargin.Checkpoint`."""

    path: Path

    def begin(
        self, state: Stateful, content: Any, solver: Any, stopping: Stopping, seed: int, **more: Any
    ) -> bool:
        """Note what the run is about, and restore `state` if asked to; whether it did."""

    def offer(self, state: Callable[[], Stateful], final: bool = False) -> None:
        """Write the state if it is due, or `final`."""


class LoopRun(Stateful, ABC):
    """A run as the loop sees it; `oracle` is whatever the solver requires."""

    def __init__(self, oracle: Any, stopping: Stopping, threads: Threads) -> None:
        self.oracle, self.stopping, self.threads = oracle, stopping, threads
        self.evaluated = math.inf
        """Lowest objective evaluated over all examples in this iteration."""
        self.history: list[Iteration] = []

    @abstractmethod
    def reason_to_stop(self) -> Status | None:
        """Why to stop after the iterations so far; None to go on."""

    @abstractmethod
    def answer(self) -> Any:
        """The best weights, or model, so far; before any evaluation, the present ones."""

    @abstractmethod
    def uncertified(self) -> Any:
        """The result when the oracle can no longer be trusted, without a certificate."""

    def note_dual(self) -> None:
        """Keep the present dual value if it is the highest."""

    def record(self) -> None:
        """Add an iteration to the history."""

    def heed_checker(self) -> None:
        """Warn, once, if the answers of a user's oracle contradict each other."""

    def confirm(self) -> bool:
        """Whether the gap is closed indeed, not only by the run's account."""
        return True

    # Checkpoints

    @property
    def content(self) -> Any:
        """What the fingerprint of the training data is made of."""
        return self.oracle.content

    @property
    def depends_on(self) -> dict[str, Any]:
        """What the result depends on beside the data, the solver and its seed."""
        return {}

    def state(self) -> Stateful:
        """All that the next iterations depend on, beside the data."""
        return self

    def is_whole(self, status: Status | None) -> bool:
        """Whether no iteration was cut short: resuming in the middle would change the result."""
        return status is not Status.TIME_LIMIT

    def go_on_from(self, checkpoint: CheckpointFile, solver: "Solver", seed: int) -> bool:
        """Restore the state of a checkpoint, if it asks for that."""
        resumed = checkpoint.begin(
            self.state(), self.content, solver, self.stopping, seed, **self.depends_on
        )
        if resumed:
            try:
                self.check_resumed()
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                raise ValueError(
                    f"{checkpoint.path} is damaged: its dual point is none of this problem "
                    f"({error!s:.100}); remove the file to begin anew."
                ) from error
        return resumed

    def check_resumed(self) -> None:
        """Raise an error if the restored state contradicts the data."""


class SolverRun(LoopRun):
    """The state of one solve: the best values so far, and their cost."""

    state_names: ClassVar[tuple[str, ...]] = (
        "primal", "best_dual", "random", "calls", "hits", "history",
    )  # fmt: skip

    def __init__(self, oracle: Any, stopping: Stopping, threads: Threads, seed: int) -> None:
        super().__init__(oracle, stopping, threads)
        self.random = np.random.default_rng(seed)
        self.primal = math.inf
        self.best_dual = -math.inf
        self.calls = 0
        self.hits = 0

    @property
    @abstractmethod
    def dual(self) -> float:
        """Dual value of the present point."""

    @property
    @abstractmethod
    def n_cuts(self) -> int:
        """Cutting planes, or non-zero dual variables."""

    @property
    @abstractmethod
    def expected(self) -> float:
        """Estimated objective of the present weights, without an oracle call."""

    @abstractmethod
    def point(self) -> Any:
        """The present dual point, as the oracle evaluates it and `resume` takes it."""

    @abstractmethod
    def resume(self, start: Any) -> None:
        """Take over a dual point of an earlier solve."""

    @property
    def is_done(self) -> bool:
        return self._closes_gap(self.primal)

    def _closes_gap(self, primal: float) -> bool:
        return self.stopping.is_enough(primal, self.best_dual)

    def heed_checker(self) -> None:
        if self.oracle.checker is not None:
            self.oracle.checker.warn()

    def iterations_due(self, every: int) -> bool:
        """Whether the present iteration is one of `every` so many."""
        return (len(self.history) + 1) % every == 0

    def reason_to_stop(self) -> Status | None:
        if self.history and self.is_done:
            return Status.CONVERGED
        return self.stopping.reason(len(self.history))

    def note_dual(self) -> None:
        self.best_dual = max(self.best_dual, self.dual)

    def record(self) -> None:
        self.history.append(self.as_iteration())

    def uncertified(self) -> Result:
        return uncertified(self, self.point())

    def as_iteration(self) -> Iteration:
        """The state as a line of the history."""
        exact = math.isfinite(self.evaluated)
        return Iteration(
            seconds=self.stopping.seconds,
            oracle_calls=self.calls,
            cache_hits=self.hits,
            primal=self.primal,
            dual=self.best_dual,
            cuts=self.n_cuts,
            objective=self.evaluated if exact else self.expected,
            exact=exact,
        )


@dataclass(frozen=True, kw_only=True)
class Solver(ABC):
    """Base of all solvers: what a run requires, how it starts, and what an iteration is."""

    requires: ClassVar[tuple[type, ...]] = (object,)
    """Classes or runtime-checkable protocols, one of which the oracle must be."""

    def check(self, oracle: Any) -> None:
        """Raise TypeError, before any work, if `oracle` lacks what this solver requires."""
        if not isinstance(oracle, self.requires):
            known = " or ".join(kind.__name__ for kind in self.requires)
            raise TypeError(
                f"{type(self).__name__} requires an oracle of the kind {known}, but was given "
                f"{type(oracle).__name__}: choose another solver."
            )

    @abstractmethod
    def start(self, oracle: Any, stopping: Stopping, threads: Threads, seed: int) -> Any:
        """A new run: mostly a `SolverRun`."""

    @abstractmethod
    def iterate(self, run: Any) -> None:
        """Improve a run."""

    @abstractmethod
    def finish(self, run: Any, status: Status) -> Result:
        """The result of a run, certified from the data alone."""

    def solve(
        self,
        oracle: Any,
        stopping: Stopping,
        *,
        n_jobs: int | None = 1,
        seed: int = 0,
        start: Any = None,
        on_iteration: OnIteration | None = None,
        checkpoint: CheckpointFile | None = None,
    ) -> Result:
        """Train; never raises for stopping early, the result's status tells.

        Parameters
        ----------
        oracle : object
            See `requires`.
        stopping : Stopping
        n_jobs : int or None
            Threads for the oracle calls; the answer does not depend on it.
        seed : int
            Of the order in which examples are updated.
        start : dual point of an earlier result, or None
        on_iteration : callable or None
        checkpoint : Checkpoint or None
            Where to keep the state, and whether to resume from there.

        Raises
        ------
        ProblemError
            If a method of the problem failed; its ``result`` holds what was learned before.
        TypeError, ValueError
            For an oracle that lacks what is required, for a checkpoint of other data or parameters.
        """
        self.check(oracle)
        with Threads(n_jobs) as threads:
            run = self.start(oracle, stopping, threads, seed)
            try:
                resumed = checkpoint is not None and run.go_on_from(checkpoint, self, seed)
                if start is not None and not resumed:
                    # Outputs that are none of this data's: then from the beginning.
                    with suppress(ValueError):
                        run.resume(start)
                status = run_loop(self, run, on_iteration, checkpoint)
            except KeyboardInterrupt:
                stopping.cancelled.set()
                status = Status.INTERRUPTED
            except ProblemError as error:
                error.result = run.uncertified()
                raise
            result = self.finish(run, status)
            run.heed_checker()
            return result


def run_loop(
    solver: Solver,
    run: LoopRun,
    on_iteration: OnIteration | None = None,
    checkpoint: CheckpointFile | None = None,
) -> Status:
    """Iterate until there is a reason to stop."""
    run.note_dual()
    status = _confirmed(run, run.reason_to_stop())
    while status is None:
        run.evaluated = math.inf
        solver.iterate(run)
        run.heed_checker()
        run.note_dual()
        run.record()
        stop = on_iteration is not None and on_iteration(
            run.history[-1], lambda: run.answer().copy()
        )
        status = run.reason_to_stop() or (Status.STOPPED if stop else None)
        if checkpoint is not None and run.is_whole(status):
            checkpoint.offer(run.state, final=status is not None)
        status = _confirmed(run, status) or (Status.STOPPED if stop else None)
    return status


def _confirmed(run: LoopRun, status: Status | None) -> Status | None:
    """The reason to stop, without a gap that is not closed after all."""
    if status is Status.CONVERGED and not run.confirm():
        return run.reason_to_stop()
    return status


def uncertified(run: SolverRun, point: Any) -> Result:
    """The result when the oracle can no longer be trusted, without a certificate."""
    certificate = Certificate(math.inf, run.best_dual, not run.oracle.exact)
    return Result(run.answer(), point, certificate, Status.FAILED, len(run.history), run.history)


def in_spite_of_interrupt(work: Callable[[], None], status: Status) -> Status:
    """Do the work, once more if Ctrl-C interrupts it: the result needs it."""
    try:
        work()
        return status
    except KeyboardInterrupt:
        work()
        return Status.INTERRUPTED


SWEEPS_PER_EXTRAPOLATION = 3
"""Sweeps between extrapolations: three see a steadier direction for less."""


class Extrapolable(Protocol):
    """A dual state that can be extrapolated along its last steps, and reverted."""

    @property
    def dual(self) -> float:
        """Dual value."""

    def extrapolate(self, momentum: float) -> None:
        """Go on by `momentum` times the change since the last call, as far as is feasible."""

    def revert(self) -> None:
        """Back to the point before the last `extrapolate`."""

    def restart(self) -> None:
        """Forget the steps so far."""


class Momentum(Stateful):
    """Nesterov's extrapolation between sweeps, reverted and restarted when the dual would fall."""

    state_names = ("sweeps", "t", "dual", "dual_before", "extrapolated")

    def __init__(self, state: Extrapolable, enabled: bool = True) -> None:
        self.state = state
        self.enabled = enabled
        self.sweeps, self.t = 0, 1.0
        self.dual = self.dual_before = -math.inf
        self.extrapolated = False

    def check_state(self) -> None:
        """Refuse an impossible weight."""
        if not 1.0 <= self.t < math.inf or self.sweeps < 0:
            raise ValueError("the extrapolation is none")

    def restart(self) -> None:
        """Start anew from the present point."""
        self.state.restart()
        self.sweeps, self.t = 0, 1.0

    def apply(self) -> None:
        """Before a sweep: extrapolate, if it is due."""
        if self.enabled and self.sweeps == 0:
            following = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * self.t**2))
            self.dual_before = self.dual
            self.extrapolated = self.t > 1.0
            self.state.extrapolate((self.t - 1.0) / following)
            self.t = following

    def settle(self, early: bool = False) -> bool:
        """After a sweep: revert the extrapolation, at its end, if the dual fell."""
        self.sweeps += 1
        self.dual = self.state.dual
        if self.enabled and self.sweeps < SWEEPS_PER_EXTRAPOLATION and not early:
            return False
        self.sweeps = 0
        # Exact steps alone lose nothing but rounding errors, and undoing those would never end.
        if self.enabled and self.extrapolated and self.dual < self.dual_before:
            self.state.revert()
            self.dual = self.dual_before
            self.t = 1.0
        return True
