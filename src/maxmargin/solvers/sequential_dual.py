"""SequentialDual: the dual of a linear problem, one example at a time, each step exact."""

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.certificate import Certificate, certify
from maxmargin.core.checks import check_finite, conforms
from maxmargin.core.linear import LinearProblem, OneVersusRest
from maxmargin.core.registry import registered
from maxmargin.core.result import Iteration, Result, Status, Stopping
from maxmargin.core.state import Stateful
from maxmargin.core.threads import Threads
from maxmargin.dual.explicit import MERGES, Blocks, Geometry, make_blocks
from maxmargin.io.checkpoint import Checkpoint
from maxmargin.solvers.momentum import Momentum

Floats = NDArray[np.float64]
Order = NDArray[np.int32]

OnIteration = Callable[[Iteration, Callable[[], Floats]], bool]
"""Called after each round with its numbers and a way to get the weights; True stops."""

LONGEST_WAIT = 63
"""Rounds after which even an example that never moves is looked at again."""

FINISHED = (Status.CONVERGED, Status.MAX_ITER)
"""Where a part of a problem ends whatever the clock says."""

COOLING = 0.1
"""Violations left alone could together close at most this many times the gap."""


@registered("SequentialDual")
@dataclass(frozen=True, kw_only=True)
class SequentialDual:
    """Sequential dual method: visit the examples in random order, solve each one's part exactly.

    The method of Keerthi et al. (2008) for the multi-class problems; for binary and regression
    problems it is coordinate descent. Each heuristic can be switched off. Between evaluations, the
    objective in the history is estimated with the loss of every example at its last visit.

    Parameters
    ----------
    shrinking : bool, default=True
        Visit idle examples less and less often.
    cooling : bool, default=True
        Leave alone violations that are small for the present gap.
    acceleration : bool, default=True
        Extrapolate along the last rounds' moves (Nesterov's weights, restarted and undone
        when the dual would fall).
    averaging : bool, default=True
        Also try the average of the recent weights as the answer; its objective settles long
        before that of the last weights.

    See Also
    --------
    maxmargin.LinearClassifier, maxmargin.LinearRegressor

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> import maxmargin as mm
    >>> X, y = load_digits(return_X_y=True)
    >>> plain = mm.SequentialDual(shrinking=False, cooling=False, acceleration=False)
    >>> mm.LinearClassifier(solver=plain).fit(X / 16, y).certificate_.relative_gap < 1e-3
    True
    """

    shrinking: bool = True
    cooling: bool = True
    acceleration: bool = True
    averaging: bool = True

    def solve(
        self,
        problem: LinearProblem | OneVersusRest,
        stopping: Stopping,
        *,
        n_jobs: int = 1,
        seed: int = 0,
        start: Floats | None = None,
        on_iteration: OnIteration | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> Result:
        """Solve `problem`; never raises for stopping early, the result's status tells.

        Parameters
        ----------
        problem : LinearProblem or OneVersusRest
        stopping : Stopping
        n_jobs : int
            Threads. They share out the classes of a one-versus-rest problem, else the examples.
        seed : int
            Same seed and `n_jobs`, same answer.
        start : ndarray of shape (n_samples, n_outputs) or None
            Dual coefficients of an earlier solve.
        on_iteration : callable or None
            See `OnIteration`.
        checkpoint : Checkpoint or None
            Where to keep the state after rounds, and whether to go on from there. Of a
            one-versus-rest problem, the parts that are done are kept.
        """
        if isinstance(problem, OneVersusRest):
            parts = _Parts(problem)
            if checkpoint is not None:
                checkpoint.begin(parts, problem, self, stopping, seed, n_jobs=n_jobs)
            return self._solve_parts(
                problem, stopping, n_jobs, seed, start, on_iteration, parts, checkpoint
            )
        with Threads(n_jobs) as threads:
            run = self._run(problem, Geometry.of(problem), seed, start)
            if checkpoint is not None:
                checkpoint.begin(run, problem, self, stopping, seed, n_jobs=n_jobs)
            return self._solve(run, stopping, threads, on_iteration, checkpoint)

    def _run(
        self, problem: LinearProblem, geometry: Geometry, seed: int, start: Floats | None
    ) -> "_Run":
        longest_wait = LONGEST_WAIT if self.shrinking else 0
        blocks = make_blocks(problem, geometry, start, longest_wait, seed)
        momentum = Momentum(blocks, self.acceleration)
        return _Run(blocks, momentum, _Answer(blocks, self.averaging, warm=start is not None))

    def _solve(
        self,
        run: "_Run",
        stopping: Stopping,
        threads: Threads,
        on_iteration: OnIteration | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> Result:
        blocks, answer = run.blocks, run.answer
        certified = None
        stop = False
        status = None if answer.closes_gap(stopping) else stopping.reason(blocks.round)
        try:
            while status is None:
                if answer.closes_gap(stopping):
                    certified = run.certified(stopping)
                    if certified is not None:
                        status = Status.CONVERGED
                        break
                else:
                    stop = self._iteration(run, stopping, threads, on_iteration)
                if not answer.closes_gap(stopping):
                    status = Status.STOPPED if stop else stopping.reason(blocks.round)
                # A round that ran out of time is not whole: it would lead to another answer.
                if checkpoint is not None and not stopping.out_of_time:
                    ends = status is not None or answer.closes_gap(stopping)
                    checkpoint.offer(lambda: run, final=ends)
        except KeyboardInterrupt:
            stopping.cancelled.set()
            status = Status.INTERRUPTED
        if certified is None:
            run.momentum.settle(early=True)
            answer.value(run.updates, threads)
            certified = answer.certified(stopping)
        if certified.is_enough(stopping):
            status = Status.CONVERGED
        assert status is not None
        return Result(*certified, status, blocks.round, run.history)

    def _iteration(
        self, run: "_Run", stopping: Stopping, threads: Threads, on_iteration: OnIteration | None
    ) -> bool:
        """Visit the examples that are due, and value the answer if it is; whether to stop."""
        blocks, momentum, answer = run.blocks, run.momentum, run.answer
        momentum.apply()
        order = blocks.due_examples()
        for batch in _batches(order, blocks, threads):
            blocks.sweep(batch, run.threshold, threads)
            if stopping.out_of_time:
                break
        run.updates += len(order)
        blocks.round += 1
        settled = momentum.settle()
        answer.best_dual = max(answer.best_dual, momentum.dual)
        answer.evaluated = math.inf
        if settled and answer.is_due(run.updates, stopping):
            answer.value(run.updates, threads)
            if self.cooling:
                run.threshold = COOLING * answer.certificate.gap / blocks.problem.C.sum()
        run.history.append(answer.as_iteration(stopping.seconds, run.updates))
        return on_iteration is not None and on_iteration(run.history[-1], answer.weights)

    def _solve_parts(
        self,
        problem: OneVersusRest,
        stopping: Stopping,
        n_jobs: int,
        seed: int,
        start: Floats | None,
        on_iteration: OnIteration | None,
        done: "_Parts",
        checkpoint: Checkpoint | None,
    ) -> Result:
        """One binary problem after the other, shared out among the threads."""
        geometry = Geometry.of(problem.parts[0])
        n_parts = len(problem.parts)
        results, history = done.results, done.history
        at_zero = [_at_zero(part) for part in problem.parts]
        lock = threading.Lock()
        stopped = False

        def weights() -> Floats:
            zero = np.zeros(problem.parts[0].weights_shape)
            columns = [results[m].weights if m in results else zero for m in range(n_parts)]
            return np.hstack(columns)

        def solve_part(m: int) -> None:
            nonlocal stopped
            alone = None if start is None else start[:, [m]]
            left = stopping.share(max(1.0, (n_parts - len(results)) / n_jobs), n_parts)
            with Threads(1) as thread:
                run = self._run(problem.parts[m], geometry, seed + m, alone)
                result = self._solve(run, left, thread)
            with lock:
                results[m] = result
                rest = sum(at_zero[k] for k in range(n_parts) if k not in results)
                history.append(_total(list(results.values()), rest, stopping.seconds, n_parts))
                if checkpoint is not None and result.status in FINISHED:
                    checkpoint.offer(lambda: done, final=len(results) == n_parts)
                if on_iteration is not None and on_iteration(history[-1], weights):
                    stopped = True
                    stopping.cancelled.set()

        try:
            with Threads(min(n_jobs, n_parts)) as threads:
                left_to_do = [m for m in range(n_parts) if m not in results]
                threads.map(solve_part, left_to_do, stopping.cancelled.set)
        except KeyboardInterrupt:
            stopping.cancelled.set()
            on_iteration = None
            for m in set(range(n_parts)) - set(results):
                solve_part(m)  # cancelled: an untrained part, with its certificate
        parts = [results[m] for m in range(n_parts)]
        certificate = sum(
            (part.certificate for part in parts), start=Certificate(0.0, 0.0, at_zero=0.0)
        )
        unfinished = [part.status for part in parts if part.status is not Status.CONVERGED]
        status = unfinished[0] if unfinished else Status.CONVERGED
        if stopped and unfinished:
            status = Status.STOPPED
        dual_coef = np.hstack([part.dual_point for part in parts])
        iterations = max(part.iterations for part in parts)
        return Result(weights(), dual_coef, certificate, status, iterations, history)


class _Run(Stateful):
    """One solve: the dual state, what moves it, the best answer, and what it has cost."""

    state_names = ("blocks", "momentum", "answer", "history", "updates", "threshold")

    def __init__(self, blocks: Blocks, momentum: Momentum, answer: "_Answer") -> None:
        self.blocks, self.momentum, self.answer = blocks, momentum, answer
        self.history: list[Iteration] = []
        self.updates = 0
        self.threshold = 0.0

    def certified(self, stopping: Stopping) -> "_Certified | None":
        """The answer, valued anew; None if its gap is not closed after all."""
        certified = self.answer.certified(stopping)
        if certified.is_enough(stopping):
            return certified
        self.momentum.restart()
        self.answer.is_new = False
        return None


class _Parts(Stateful):
    """The parts of a problem that are solved."""

    state_names = ("rows", "history")

    def __init__(self, problem: OneVersusRest) -> None:
        self._problem = problem
        self.results: dict[int, Result] = {}
        self.history: list[Iteration] = []

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """The finished ones as plain data, without their certificates."""
        return [
            (m, part.weights, part.dual_point, str(part.status), part.iterations, part.history[-1:])
            for m, part in self.results.items()
            if part.status in FINISHED
        ]

    @rows.setter
    def rows(self, rows: list[tuple[Any, ...]]) -> None:
        for row in rows:
            if not conforms(row, tuple[int, Floats, Floats, str, int, list[Iteration]]):
                raise ValueError("a finished class is not whole")
        self.results = {m: self._result(m, *row) for m, *row in rows}

    def _result(
        self,
        m: int,
        weights: Floats,
        coef: Floats,
        status: str,
        iterations: int,
        history: list[Iteration],
    ) -> Result:
        """A finished part, certified anew: a file is not believed what its weights are worth."""
        part = self._problem.parts[m]
        if weights.shape != part.weights_shape or coef.shape != (part.n_samples, 1):
            raise ValueError("a finished class has weights of another shape")
        check_finite("weights", weights)
        check_finite("coefficients", coef)
        certificate = certify(part, weights, part.feasible(coef))
        return Result(weights, coef, certificate, Status(status), iterations, history)


def _at_zero(part: LinearProblem) -> float:
    """Objective of weights of zero, which a part has until it is solved."""
    nothing = np.zeros((part.n_samples, part.n_outputs))
    losses = part.losses(nothing, slice(None))
    return part.penalty(np.zeros(part.weights_shape)) + float(part.C @ losses)


def _total(results: list[Result], rest: float, seconds: float, n_parts: int) -> Iteration:
    """One line of history for all parts, with the objective of those not solved yet as `rest`."""
    last = [result.history[-1] for result in results if result.history]
    primal = rest + sum(result.certificate.primal for result in results)
    return Iteration(
        seconds=seconds,
        oracle_calls=sum(line.oracle_calls for line in last),
        cache_hits=0,
        primal=primal,
        dual=sum(result.certificate.dual for result in results),
        cuts=sum(line.cuts for line in last),
        objective=primal,
        exact=True,
        stage=f"{len(results)} of {n_parts} classes",
        done=len(results) / n_parts,
    )


def _batches(order: Order, blocks: Blocks, threads: Threads) -> Iterator[Order]:
    """Parts of a round between which threads agree on the weights and clocks are heeded."""
    size = blocks.updates_per_call
    if threads.n_threads > 1:
        size = min(size, max(blocks.updates_per_merge, -(-len(order) // MERGES)))
    for at in range(0, len(order), size):
        yield order[at : at + size]


class _Answer(Stateful):
    """The best weights so far: the last ones or their average, whichever has less loss."""

    state_names = (
        "candidates", "n_evaluations", "best", "certificate", "best_dual", "cuts",
        "updates_evaluated", "settled_dual", "is_new",
    )  # fmt: skip

    def __init__(self, blocks: Blocks, averaging: bool, warm: bool) -> None:
        self.blocks = blocks
        self.candidates = ["average", "weights"] if averaging else ["weights"]
        self.n_evaluations = 0
        self.best = blocks.weights.copy()
        self.certificate = Certificate(math.inf, blocks.dual)
        self.best_dual = blocks.dual
        self.cuts = 0
        self.updates_evaluated = 0
        self.settled_dual = blocks.dual if warm else -math.inf
        self.is_new = False
        self.evaluated = math.inf
        """The lowest objective that was evaluated in this round."""

    def check_state(self) -> None:
        """Refuse candidates that there are not."""
        if not {*self.candidates} <= {"average", "weights"}:
            raise ValueError("a candidate is no weights")

    def closes_gap(self, stopping: Stopping) -> bool:
        """Whether the gap of an answer that nobody has certified yet is small enough."""
        return self.is_new and stopping.is_enough(self.certificate.primal, self.certificate.dual)

    def is_due(self, updates: int, stopping: Stopping) -> bool:
        """Whether a `value`, which costs about half a round, could find the gap closed.

        While the dual still gains more than the gap asked for, the gap cannot have been smaller
        than that gain just before and is hardly smaller now. Something to show is wanted now and
        then all the same.
        """
        dual, before = self.best_dual, self.settled_dual
        self.settled_dual = dual
        since = updates - self.updates_evaluated
        n_samples = self.blocks.problem.n_samples
        if dual - before > stopping.allowed_gap(dual):
            return since > 0.5 * updates + 4.0 * n_samples
        return since > 0.05 * updates + 0.6 * n_samples or math.isinf(self.certificate.primal)

    def value(self, updates: int, threads: Threads) -> None:
        """Find the objective of the candidates and keep the best.

        Valuing costs a pass over the data, so the candidate that was the worse one last time is
        valued only every fourth time.
        """
        blocks = self.blocks
        self.updates_evaluated = updates
        best_primal = self.certificate.primal
        primals = {}
        for name in self.candidates if self.n_evaluations % 4 == 0 else self.candidates[:1]:
            candidate = getattr(blocks, name)
            primals[name] = blocks.primal(candidate, threads)
            if primals[name] < best_primal:
                best_primal = primals[name]
                self.best[:] = candidate
        if len(primals) == 2:
            self.candidates.sort(key=primals.__getitem__)
        self.n_evaluations += 1
        self.evaluated = min(primals.values())
        self.is_new = True
        self.certificate = Certificate(best_primal, blocks.dual)
        self.cuts = int(np.count_nonzero(blocks.coef))

    def weights(self) -> Floats:
        """The best weights; before any valuation, the present ones. Without padding."""
        shown = self.blocks.weights if math.isinf(self.certificate.primal) else self.best
        return shown[:, : self.blocks.problem.n_outputs].copy()

    def certified(self, stopping: Stopping) -> "_Certified":
        """The best weights, or zero, and a dual point, valued anew from the data alone."""
        self.blocks.release()
        problem = self.blocks.problem
        try:
            weights = self.best[:, : problem.n_outputs]
            dual_coef = problem.feasible(self.blocks.dual_coef)
            certificate = certify(problem, weights, dual_coef)
            zero = problem.prior_weights()
            at_zero = problem.primal(zero)
            if at_zero < certificate.primal:
                weights, certificate = zero, replace(certificate, primal=at_zero)
            certificate = certificate.compared_with_zero(at_zero, stopping.relative_tol(at_zero))
            return _Certified(weights, dual_coef, certificate)
        except KeyboardInterrupt:
            self.blocks.restart()
            raise

    def as_iteration(self, seconds: float, updates: int) -> Iteration:
        """The state as a line of history."""
        exact = math.isfinite(self.evaluated)
        return Iteration(
            seconds=seconds,
            oracle_calls=updates,
            cache_hits=0,
            primal=self.certificate.primal,
            dual=self.best_dual,
            cuts=self.cuts,
            objective=self.evaluated if exact else self.blocks.expected,
            exact=exact,
        )


class _Certified(NamedTuple):
    weights: Floats
    dual_coef: Floats
    certificate: Certificate

    def is_enough(self, stopping: Stopping) -> bool:
        """Whether the gap is closed."""
        return stopping.is_enough(self.certificate.primal, self.certificate.dual)
