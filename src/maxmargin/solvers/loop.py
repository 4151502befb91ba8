"""The loop that iterative solvers share: rounds, records, reasons to stop, checkpoints.

A solver is a small configuration object that starts a run and says what a round is. What a run
keeps, linear weights (structured.py) or a model in terms of a kernel (mini_batch_dual.py), the
loop need not know.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from maxmargin.core.certificate import Certificate
from maxmargin.core.problem import ProblemError
from maxmargin.core.result import Iteration, Result, Status, Stopping
from maxmargin.core.state import Stateful
from maxmargin.core.threads import Threads
from maxmargin.io.checkpoint import Checkpoint

OnIteration = Callable[[Iteration, Callable[[], Any]], bool]
"""Called after each round with its numbers and a way to get the weights; True stops."""


class IterativeRun(Stateful, ABC):
    """One solve: the data, the best values so far, and what they have cost.

    Parameters
    ----------
    oracle : training set
        With ``content``, all that tells it from others, and ``exact``, whether its oracle never
        misses the maximum; and ``watch``, which looks at what a user's oracle finds, or None.
    stopping : Stopping
    threads : Threads
    seed : int
    """

    state_names: ClassVar[tuple[str, ...]] = (
        "primal", "best_dual", "random", "calls", "hits", "history",
    )  # fmt: skip

    cut_short: ClassVar[frozenset[Status]] = frozenset({Status.TIME_LIMIT})
    """Reasons to stop in the middle of a round: going on from there would give another answer."""

    def __init__(self, oracle: Any, stopping: Stopping, threads: Threads, seed: int) -> None:
        self.oracle = oracle
        self.stopping = stopping
        self.threads = threads
        self.random = np.random.default_rng(seed)
        self.primal = math.inf
        self.best_dual = -math.inf
        self.calls = 0
        self.hits = 0
        self.evaluated = math.inf
        """The lowest objective that was evaluated over all examples in this iteration."""
        self.history: list[Iteration] = []

    @property
    @abstractmethod
    def dual(self) -> float:
        """Dual value of the present point."""

    @property
    @abstractmethod
    def n_cuts(self) -> int:
        """Planes kept."""

    @property
    @abstractmethod
    def expected(self) -> float:
        """Objective of the present weights as it can be estimated without an oracle call."""

    @abstractmethod
    def point(self) -> Any:
        """The present dual point, as the training set values it and `resume` takes it."""

    @abstractmethod
    def resume(self, start: Any) -> None:
        """Take over a dual point of an earlier solve."""

    @abstractmethod
    def answer(self) -> Any:
        """The best weights, or model, so far; before any valuation, the present ones."""

    @property
    def is_done(self) -> bool:
        """Whether the gap is closed."""
        return self._closes_gap(self.primal)

    def _closes_gap(self, primal: float) -> bool:
        return self.stopping.is_enough(primal, self.best_dual)

    def heed_watch(self) -> None:
        """Warn, once, if the oracle's answers have contradicted each other."""
        if self.oracle.watch is not None:
            self.oracle.watch.warn()

    def iterations_due(self, every: int) -> bool:
        """Whether the round under way is one of those `every` so many."""
        return (len(self.history) + 1) % every == 0

    def reason_to_stop(self) -> Status | None:
        """Why to stop after the rounds so far; None to go on."""
        if self.history and self.is_done:
            return Status.CONVERGED
        return self.stopping.reason(len(self.history))

    def state(self) -> Stateful:
        """All that the next rounds depend on, with the data."""
        return self

    def go_on_from(self, checkpoint: Checkpoint, solver: "IterativeSolver", seed: int) -> bool:
        """Take over the state of a checkpoint, if it asks for that and there is one."""
        resumed = checkpoint.begin(self.state(), self.oracle.content, solver, self.stopping, seed)
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
        """Raise an error if a state that was read contradicts the data."""

    def as_iteration(self) -> Iteration:
        """The state as a line of history."""
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
class IterativeSolver(ABC):
    """Base of the solvers whose runs go round by round."""

    @abstractmethod
    def _start(
        self, oracle: Any, stopping: Stopping, threads: Threads, seed: int
    ) -> tuple[Any, Iterator[None]]:
        """A run, and the rounds that improve it for ever."""

    @abstractmethod
    def _end(self, run: Any, status: Status) -> Result:
        """The answer of a run, certified."""

    def solve(
        self,
        oracle: Any,
        stopping: Stopping,
        *,
        n_jobs: int = 1,
        seed: int = 0,
        start: Any = None,
        on_iteration: OnIteration | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> Result:
        """Train; never raises for stopping early, the result's status tells.

        Parameters
        ----------
        oracle : training set
        stopping : Stopping
        n_jobs : int
            Threads for the searches. The answer does not depend on it.
        seed : int
            Of the order of visits.
        start : dual point of an earlier result, or None
        on_iteration : callable or None
            See `OnIteration`.
        checkpoint : Checkpoint or None
            Where to keep the state after rounds, and whether to go on from there.

        Raises
        ------
        ProblemError
            If a method of the problem failed; its ``result`` holds what was learned before.
        ValueError
            If the checkpoint to go on from is of other data or parameters.
        """
        with Threads(n_jobs) as threads:
            run, iterations = self._start(oracle, stopping, threads, seed)
            try:
                resumed = checkpoint is not None and run.go_on_from(checkpoint, self, seed)
                if start is not None and not resumed:
                    # Outputs that are none of this data's: then from the beginning.
                    with suppress(ValueError):
                        run.resume(start)
                status = run_loop(run, iterations, on_iteration, checkpoint)
            except KeyboardInterrupt:
                status = Status.INTERRUPTED
            except ProblemError as error:
                error.result = uncertified(run, run.point())
                raise
            result = self._end(run, status)
            run.heed_watch()
            return result


def run_loop(
    run: IterativeRun,
    iterations: Iterator[None],
    on_iteration: OnIteration | None,
    checkpoint: Checkpoint | None,
) -> Status:
    """Rounds until one of the reasons to stop."""
    run.best_dual = max(run.best_dual, run.dual)
    status = run.reason_to_stop()
    while status is None:
        run.evaluated = math.inf
        next(iterations)
        run.heed_watch()
        run.best_dual = max(run.best_dual, run.dual)
        run.history.append(run.as_iteration())
        stop = on_iteration is not None and on_iteration(
            run.history[-1], lambda: run.answer().copy()
        )
        status = run.reason_to_stop() or (Status.STOPPED if stop else None)
        if checkpoint is not None and status not in run.cut_short:
            checkpoint.offer(run.state, final=status is not None)
    return status


def uncertified(run: IterativeRun, point: Any) -> Result:
    """What is known when no search can be trusted any more; nothing is promised."""
    certificate = Certificate(math.inf, run.best_dual, not run.oracle.exact)
    return Result(run.answer(), point, certificate, Status.FAILED, len(run.history), run.history)


def in_spite_of_interrupt(work: Callable[[], None], status: Status) -> Status:
    """Do the work; once more if Ctrl-C comes in between, for an answer without it is worth less."""
    try:
        work()
        return status
    except KeyboardInterrupt:
        work()
        return Status.INTERRUPTED
