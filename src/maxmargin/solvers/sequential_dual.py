"""SequentialDual: exact dual steps of one example at a time; Keerthi et al. (2008).

With a dual coefficient b_im for each class, w_m = sum_i b_im x_i (plus the mean of a prior):

- Crammer-Singer (section 2, algorithm 2.1):

      min   1/2 sum_m |w_m|^2 + sum_i C_i max_m [loss(y_i, m) - <w_{y_i} - w_m, x_i>]
      max   -sum_im b_im loss(y_i, m) - 1/2 sum_m |w_m|^2
      s.t.  b_im <= C_i [m = y_i],    sum_m b_im = 0

- Weston-Watkins (section 3, algorithm 3.1): the sum over m != y_i of max(0, .) instead of the
  maximum, and the bounds ``-C_i <= b_im <= 0`` for m != y_i;
- binary hinge loss and regression: one coefficient an example between two bounds, by coordinate
  descent as in LIBLINEAR (Hsieh et al., 2008); one-versus-rest is one such problem a class.
"""

import math
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from maxmargin.core.arrays import Floats, check_finite, conforms
from maxmargin.core.certificate import Certificate, certify
from maxmargin.core.linear import LinearProblem, OneVersusRest
from maxmargin.core.oracle import Threads
from maxmargin.core.registry import registered
from maxmargin.core.result import Iteration, Result, Status
from maxmargin.dual.explicit import make_dual
from maxmargin.dual.interior_point import (
    ITERATION_COST,
    interior_point,
    linear_constraints,
    linear_work,
)
from maxmargin.dual.listed_classes import has_listed_dual
from maxmargin.dual.used_features import UsedFeatures
from maxmargin.solvers.explicit_run import LONGEST_WAIT, SKIPPED_PART_OF_GAP, ExplicitRun
from maxmargin.solvers.loop import Momentum, Solver, Stopping, run_loop
from maxmargin.solvers.many_classes import ManyClassesRun

FINISHED = (Status.CONVERGED, Status.MAX_ITER)
"""Statuses of a part that do not depend on the clock."""

PASSES_OF_A_CLASS = 10.0
"""Passes over the data that the binary problem of a class takes at least."""

UPDATES_FIRST = 50
"""Iterations before an interior-point solve is thought of: most fits end before."""


@registered("SequentialDual")
@dataclass(frozen=True, kw_only=True)
class SequentialDual(Solver):
    """Sequential dual method: exact updates of the examples in random order.

    The method of Keerthi et al. (2008) for multi-class problems; coordinate descent for binary
    problems and regression. A small problem whose updates have taken more work than an
    interior-point solve would, as those of badly scaled features do, is solved by that. Between
    evaluations, the objective in the history is estimated with the loss of every example at its
    last update.

    On sparse rows with a hundred classes or more, each example has a list of the few classes that
    matter to it. Oracle calls, which score all classes, find further ones; updates over the lists
    alone follow. That takes one thread, and neither `acceleration` nor `averaging`.

    Parameters
    ----------
    skip_idle_examples : bool, default=True
        Update idle examples less and less often.
    skip_small_violations : bool, default=True
        Skip violations that are small for the present gap.
    acceleration : bool, default=True
        Extrapolate along the last iterations' steps (Nesterov's weights, restarted and undone when
        the dual would fall).
    averaging : bool, default=True
        Also try the average of the recent weights as the answer; its objective settles long before
        that of the last weights.

    See Also
    --------
    maxmargin.LinearClassifier, maxmargin.LinearRegressor

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> import maxmargin as mm
    >>> X, y = load_digits(return_X_y=True)
    >>> plain = mm.SequentialDual(skip_idle_examples=False, acceleration=False)
    >>> mm.LinearClassifier(solver=plain).fit(X / 16, y).certificate_.relative_gap < 1e-3
    True
    """

    requires: ClassVar[tuple[type, ...]] = (LinearProblem, OneVersusRest)

    skip_idle_examples: bool = True
    skip_small_violations: bool = True
    acceleration: bool = True
    averaging: bool = True

    def start(
        self, oracle: Any, stopping: Stopping, threads: Threads, seed: int
    ) -> "LinearRun | ManyClassesRun | ClassesRun":
        if isinstance(oracle, OneVersusRest):
            return ClassesRun(self, oracle, stopping, threads, seed)
        if has_listed_dual(oracle):
            return ManyClassesRun(self, oracle, stopping, threads, seed)
        return LinearRun(self, oracle, stopping, threads, seed)

    def iterate(self, run: "LinearRun | ManyClassesRun | ClassesRun") -> None:
        run.iterate()

    def finish(self, run: "LinearRun | ManyClassesRun | ClassesRun", status: Status) -> Result:
        return run.finish(status)


class LinearRun(ExplicitRun):
    """One solve: the dual state, and the best weights so far, the last ones or their average."""

    state_names: ClassVar[tuple[str, ...]] = (
        "dual_state", "momentum", "history", "calls", "threshold", "candidates", "n_evaluations",
        "best", "primal", "certificate", "best_dual", "n_nonzero", "calls_evaluated",
        "settled_dual", "is_new", "newton_steps_taken",
    )  # fmt: skip

    oracle: LinearProblem

    def __init__(
        self,
        solver: SequentialDual,
        problem: LinearProblem,
        stopping: Stopping,
        threads: Threads,
        seed: int,
        features: UsedFeatures | None = None,
        start: Floats | None = None,
    ) -> None:
        super().__init__(solver, problem, stopping, threads, seed)
        self.features = features or UsedFeatures(problem)
        self.threshold = 0.0
        self.candidates = ["average", "weights"] if solver.averaging else ["weights"]
        self.n_evaluations = self.n_nonzero = self.calls_evaluated = 0
        self.estimate = math.inf
        """Objective of the present weights, with the losses of the examples' last updates."""
        self.is_new = False
        """Whether the best weights have been evaluated since the last certificate."""
        self.newton_steps_taken = False
        self.certified: Result | None = None
        self.resume(start)

    def resume(self, start: Floats | None) -> None:
        """Start from dual coefficients, or from zero."""
        features, problem = self.features, self.features.of(self.oracle)
        longest_wait = LONGEST_WAIT if self.solver.skip_idle_examples else 0
        self.dual_state = make_dual(
            problem, features.measured, start, longest_wait, self.seed, threads=self.threads
        )
        self.best = self.dual_state.shared.weights.copy()
        self.best_dual = self.dual_state.dual
        self.certificate = Certificate(math.inf, self.best_dual)
        self.settled_dual = -math.inf if start is None else self.best_dual
        self.momentum = Momentum(self.dual_state, self.solver.acceleration)

    def check_state(self) -> None:
        if not {*self.candidates} <= {"average", "weights"}:
            raise ValueError("a candidate is no weights")

    def is_whole(self, status: Status | None) -> bool:
        return not self.stopping.out_of_time

    @property
    def dual(self) -> float:
        """As the last sweep left it; a loss by extrapolation is undone."""
        return max(self.momentum.dual, self.best_dual)

    @property
    def n_cuts(self) -> int:
        return self.n_nonzero

    @property
    def expected(self) -> float:
        return self.estimate

    def point(self) -> Floats:
        return self.dual_state.dual_coef

    def answer(self) -> Floats:
        shown = self.dual_state.shared.weights if math.isinf(self.primal) else self.best
        return self.features.spread(shown[:, : self.oracle.n_outputs], self.oracle)

    @property
    def is_done(self) -> bool:
        """Whether the gap of weights not yet certified is closed."""
        certificate = self.certificate
        return self.is_new and self.stopping.is_enough(certificate.primal, certificate.dual)

    def reason_to_stop(self) -> Status | None:
        return Status.CONVERGED if self.is_done else self.stopping.reason(len(self.history))

    def confirm(self) -> bool:
        self.certified = self._certified()
        if self.certified.status is Status.CONVERGED:
            return True
        self.certified = None
        self.momentum.restart()
        self.is_new = False
        return False

    def iterate(self) -> None:
        """Update the examples that are due, and evaluate the weights if it is time to."""
        state, momentum = self.dual_state, self.momentum
        momentum.apply()
        order = state.due_examples()
        for chunk in state.chunks(order):
            state.sweep(chunk, self.threshold)
            if self.stopping.out_of_time:
                break
        self.calls += len(order)
        state.iteration += 1
        settled = momentum.settle()
        self.estimate = state.expected(momentum.dual)
        self.best_dual = max(self.best_dual, momentum.dual)
        if self._gap_seems_closed():
            self._evaluate(self.candidates)
        elif settled and self._evaluation_is_due():
            # The candidate that was worse has another chance every fourth time.
            self._evaluate(self.candidates if self.n_evaluations % 4 == 0 else self.candidates[:1])
            self.n_evaluations += 1
            if not self.is_done and self._newton_steps_are_due():
                self._take_newton_steps()

    def _gap_seems_closed(self) -> bool:
        """Whether the losses of the last updates close the gap, if there were any to speak of."""
        is_enough = self.stopping.is_enough(self.estimate, self.momentum.dual)
        return is_enough and self._updates_suffice()

    def _evaluation_is_due(self) -> bool:
        """Whether an evaluation could close the gap: hardly, while the dual gains as much."""
        dual, before = self.best_dual, self.settled_dual
        self.settled_dual = dual
        if dual - before > self.stopping.allowed_gap(dual):
            since = self.calls - self.calls_evaluated
            return since > 0.5 * self.calls + 4.0 * self.oracle.n_samples
        return self._updates_suffice() or math.isinf(self.primal)

    def _updates_suffice(self) -> bool:
        """Whether an evaluation is cheap beside the updates since the last one."""
        since = self.calls - self.calls_evaluated
        return since > 0.05 * self.calls + 0.6 * self.oracle.n_samples

    def _newton_steps_are_due(self) -> bool:
        """Whether updates have taken more work than an interior-point solve would."""
        if self.newton_steps_taken or len(self.history) < UPDATES_FIRST:
            return False
        rows, n_columns = self.features.measured[0], self.dual_state.shared.weights.shape[1]
        entries = float(rows.starts[-1]) / self.oracle.n_samples
        updates = self.calls * entries * n_columns + len(self.history) * ITERATION_COST
        return updates > linear_work(self.features.of(self.oracle))

    def _take_newton_steps(self) -> None:
        """Solve the problem by an interior-point method: its Gram matrix must be badly scaled."""
        problem = self.features.of(self.oracle)
        self.newton_steps_taken = True
        constraints = linear_constraints(problem)
        found = interior_point(constraints, self.stopping.allowed_gap)
        self.resume(problem.feasible(constraints.coefficients(found.alpha)))
        best = self.best[:, : problem.n_outputs]
        best[:] = constraints.table(found.weights)
        if problem.origin is not None:
            best += problem.origin
        self.certificate = Certificate(self.dual_state.primal(self.best), -math.inf)
        self._evaluate(["weights"])

    def _evaluate(self, candidates: list[str]) -> None:
        """Evaluate candidates until one closes the gap; keep the best."""
        state = self.dual_state
        dual = state.dual
        self.calls_evaluated = self.calls
        best_primal = self.certificate.primal
        primals = {}
        for name in candidates:
            candidate = getattr(state.shared, name)
            primals[name] = state.primal(candidate)
            if primals[name] < best_primal:
                best_primal = primals[name]
                self.best[:] = candidate
            if self.stopping.is_enough(best_primal, dual):
                break
        if len(primals) == 2:
            self.candidates.sort(key=primals.__getitem__)
        self.evaluated = min(primals.values())
        self.is_new = True
        self.primal = best_primal
        self.certificate = Certificate(best_primal, dual)
        self.n_nonzero = int(np.count_nonzero(state.coef))
        if self.solver.skip_small_violations:
            self.threshold = SKIPPED_PART_OF_GAP * self.certificate.gap / self.oracle.C.sum()

    def _certified(self) -> Result:
        """The best weights, or zero, and a dual point, certified from the data alone."""
        problem, state = self.oracle, self.dual_state
        state.release()
        try:
            weights = self.features.spread(self.best[:, : problem.n_outputs], problem)
            dual_coef = problem.feasible(state.dual_coef)
            certificate = certify(problem, weights, dual_coef)
            at_zero = problem.primal_of_prior()
            if at_zero < certificate.primal:
                weights = problem.prior_weights()
                certificate = replace(certificate, primal=at_zero)
            tol = self.stopping.relative_tol(at_zero)
            certificate = certificate.compared_with_zero(at_zero, tol)
            enough = self.stopping.is_enough(certificate.primal, certificate.dual)
            status = Status.CONVERGED if enough else Status.FAILED
            n_iterations = len(self.history)
            return Result(weights, dual_coef, certificate, status, n_iterations, self.history)
        except KeyboardInterrupt:
            state.restart()
            raise

    def finish(self, status: Status) -> Result:
        if self.certified is None:
            self.momentum.settle(early=True)
            self._evaluate(self.candidates)
            self.certified = self._certified()
        converged = self.certified.status is Status.CONVERGED
        return self.certified if converged else replace(self.certified, status=status)


class ClassesRun(ExplicitRun):
    """A one-versus-rest problem: an iteration solves the binary problem of one more class."""

    state_names: ClassVar[tuple[str, ...]] = ("rows", "history")

    oracle: OneVersusRest

    def __init__(
        self,
        solver: SequentialDual,
        problem: OneVersusRest,
        stopping: Stopping,
        threads: Threads,
        seed: int,
    ) -> None:
        super().__init__(solver, problem, stopping, threads, seed)
        self.n_parts = len(problem.parts)
        self.features = UsedFeatures(problem.parts[0])
        self.results: dict[int, Result] = {}
        self.running: dict[Future[Result], int] = {}
        self.at_zero = [part.primal(np.zeros(part.weights_shape)) for part in problem.parts]
        self.starts: Floats | None = None
        entries = len(self.features.measured[0].values)
        work = PASSES_OF_A_CLASS * float(entries)
        self.n_threads = len(threads.shares(self.n_parts, work))
        self.pool = ThreadPoolExecutor(self.n_threads)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """The solved classes as plain data, without their certificates."""
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
        self.results = {m: self._certified_anew(m, *row) for m, *row in rows}

    def _certified_anew(self, m: int, weights: Floats, coef: Floats, *rest: Any) -> Result:
        """A solved class from a file, certified anew."""
        part, (status, iterations, history) = self.oracle.parts[m], rest
        if weights.shape != part.weights_shape or coef.shape != (part.n_samples, 1):
            raise ValueError("a finished class has weights of another shape")
        check_finite("weights", weights)
        check_finite("coefficients", coef)
        certificate = certify(part, weights, part.feasible(coef))
        return Result(weights, coef, certificate, Status(status), iterations, history)

    @property
    def dual(self) -> float:
        return sum(result.certificate.dual for result in self.results.values())

    @property
    def n_cuts(self) -> int:
        return sum(line.cuts for line in self._last_lines())

    @property
    def expected(self) -> float:
        """Objective with zero weights for classes not solved yet."""
        rest = sum(self.at_zero[m] for m in range(self.n_parts) if m not in self.results)
        return rest + sum(result.certificate.primal for result in self.results.values())

    def point(self) -> Floats:
        return np.hstack([self.results[m].dual_point for m in range(self.n_parts)])

    def resume(self, start: Floats) -> None:
        self.starts = start

    def answer(self) -> Floats:
        zero, found = np.zeros(self.oracle.parts[0].weights_shape), self.results
        return np.hstack([found[m].weights if m in found else zero for m in range(self.n_parts)])

    def reason_to_stop(self) -> Status | None:
        """None before all classes are solved, each within its share of the time."""
        return None if len(self.results) < self.n_parts else self._status

    @property
    def _status(self) -> Status:
        """Status of the first class that has not converged, if any."""
        statuses = [self.results[m].status for m in range(self.n_parts)]
        return next((one for one in statuses if one is not Status.CONVERGED), Status.CONVERGED)

    def is_whole(self, status: Status | None) -> bool:
        *_, last = self.results.values()
        return last.status in FINISHED

    def iterate(self) -> None:
        """Wait for the next class to be solved, and keep the threads busy."""
        begun = {*self.results, *self.running.values()}
        waiting = [m for m in range(self.n_parts) if m not in begun]
        if self.n_threads == 1:
            self.results[waiting[0]] = self._solve(waiting[0])
            return
        for m in waiting[: self.n_threads - len(self.running)]:
            self.running[self.pool.submit(self._solve, m)] = m
        done, _ = wait(self.running, return_when=FIRST_COMPLETED)
        future = min(done, key=self.running.__getitem__)
        self.results[self.running.pop(future)] = future.result()

    def _solve(self, m: int) -> Result:
        left = self.n_parts - len(self.results)
        stopping = self.stopping.share(max(1.0, left / self.n_threads), self.n_parts)
        with Threads(1) as thread:
            problem, seed = self.oracle.parts[m], self.seed + m
            start = None if self.starts is None else self.starts[:, [m]]
            run = LinearRun(self.solver, problem, stopping, thread, seed, self.features, start)
            try:
                status = run_loop(self.solver, run)
            except KeyboardInterrupt:
                stopping.cancelled.set()
                status = Status.INTERRUPTED
            return run.finish(status)

    def _last_lines(self) -> list[Iteration]:
        return [result.history[-1] for result in self.results.values() if result.history]

    def as_iteration(self) -> Iteration:
        self.calls = sum(line.oracle_calls for line in self._last_lines())
        self.primal = self.evaluated = self.expected
        return replace(
            super().as_iteration(),
            dual=self.dual,
            stage=f"{len(self.results)} of {self.n_parts} classes",
            done=len(self.results) / self.n_parts,
        )

    def finish(self, status: Status) -> Result:
        """All classes; those not solved yet have zero weights, with their certificate."""
        if len(self.results) < self.n_parts:
            self.stopping.cancelled.set()
        while len(self.results) < self.n_parts:
            self.iterate()
            self.history.append(self.as_iteration())
        self.pool.shutdown()
        if self._status is Status.CONVERGED or status is not Status.STOPPED:
            status = self._status
        parts = [self.results[m] for m in range(self.n_parts)]
        certificate = sum(
            (part.certificate for part in parts), start=Certificate(0.0, 0.0, at_zero=0.0)
        )
        iterations = max(part.iterations for part in parts)
        return Result(self.answer(), self.point(), certificate, status, iterations, self.history)
