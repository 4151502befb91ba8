"""What solvers of structured problems share: runs with their steps, and the certificate.

They minimise, with psi_i(y) = phi(x_i, y_i) - phi(x_i, y) (times loss_i(y) for slack rescaling),

    P(w) = 1/2 |w|^2 + sum_i C_i max_y [loss_i(y) - <w, psi_i(y)>]

Its dual has a variable for every output y of every example i (the n-slack formulation):

    max   D(a) = sum_iy a_iy loss_i(y) - 1/2 |w|^2,    w = sum_iy a_iy psi_i(y)
    s.t.  a_iy >= 0,    sum_y a_iy <= C_i
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from maxmargin.core.arrays import Floats, Order, check_finite, check_shape, dot
from maxmargin.core.certificate import Certificate, DualPoint
from maxmargin.core.oracle import Hinges, Oracle, Threads
from maxmargin.core.problem import ProblemError
from maxmargin.core.result import TINY, Result, Status
from maxmargin.core.state import Stateful
from maxmargin.dual.cut_table import StepRule
from maxmargin.dual.interior_point import ITERATION_COST, PART_OF_GAP
from maxmargin.dual.output_cuts import working_set_of
from maxmargin.dual.sweeps import add_snapshot
from maxmargin.dual.working_set import BlockUpdate
from maxmargin.solvers.loop import (
    Momentum,
    Solver,
    SolverRun,
    Stopping,
    in_spite_of_interrupt,
    uncertified,
)

ADD_ONLY = StepRule(max_steps=0)
"""Add new cutting planes without a step."""

EVALUATE_WITHIN = 1.4
"""Gap by the hinges of the last pass, in tolerances, up to which an evaluation is made."""

AVERAGE_BELOW = 1 << 22
"""Number of weights up to which their average is kept."""

LEAST_PART_OF_MEAN_GAP = 0.1
"""Sweeps leave out examples with less than this part of the mean gap."""

RESUMED = 1e-6
"""Relative difference that rounding may make between a dual value kept and one evaluated anew."""

ROUNDING = 1e-9
"""Relative gap below zero that rounding may make."""

STALLED_FOR = 5
"""Iterations in which the gap is not halved before Newton steps are thought of."""

NEWTON_PART_OF_GAP = 0.03
"""Part of the gap, or of the objective over the working set, that a solve of that leaves."""

FIRST_WORK, MOST_WORK = 2e5, 3e7
"""Multiplications of oracle calls at the same weights: few at first, when weights change quickly
and cutting planes age; more later, to keep threads busy."""

LEAST_BATCH = 8
"""Oracle calls at the same weights at least, however expensive, for threads to share."""

BATCHES_PER_PASS = 10
"""Batches of oracle calls in a pass at least, after each of which the weights change."""


class Run(SolverRun):
    """One solve with linear weights, and the best of them so far."""

    state_names: ClassVar[tuple[str, ...]] = (
        *SolverRun.state_names, "weights", "best", "guess", "least_primal", "momentum",
    )  # fmt: skip

    state_types: ClassVar[dict[str, Any]] = {"best": Floats | None}

    oracle: Oracle

    def __init__(self, oracle: Oracle, stopping: Stopping, threads: Threads, seed: int) -> None:
        # A stream has no warm oracle.
        own = oracle.warm() if isinstance(oracle, Oracle) else oracle
        super().__init__(own, stopping, threads, seed)
        self.weights = np.zeros(oracle.n_features)
        self.best: Floats | None = None
        self.guess = math.inf
        """Middle of the bounds of the objective at the best weights."""
        self.least_primal = math.inf
        """Lower bound of the objective of the last weights offered, if the oracle is not exact."""
        self.certificate = Certificate(math.inf, -math.inf)
        self.momentum: Momentum | None = None

    def settle(self) -> None:
        """End an extrapolation under way, so that the present point is the best."""
        if self.momentum is not None:
            self.momentum.settle(early=True)

    def release(self) -> None:
        """Release what no certificate needs, and what would keep the data when the run is over."""
        self.best = self.answer()
        self.momentum = None  # which points back to the run
        del self.weights

    @property
    def everything(self) -> Order:
        return np.arange(self.oracle.n_examples, dtype=np.int64)

    @property
    def shuffled(self) -> Order:
        return self.random.permutation(self.oracle.n_examples)

    @property
    def half_square(self) -> float:
        return 0.5 * dot(self.weights, self.weights)

    @property
    def candidates(self) -> list[Floats]:
        """Weights that may be the answer."""
        return [self.weights]

    @property
    def is_stuck(self) -> bool:
        """Whether the rest of the gap is only the suboptimality bound of relaxed oracle calls."""
        return self._closes_gap(self.least_primal) and not self.is_done

    def reason_to_stop(self) -> Status | None:
        if self.history and self.is_done:
            return Status.CONVERGED
        if self.history and self.is_stuck:
            return Status.RELAXED
        return self.stopping.reason(len(self.history))

    def check_resumed(self) -> None:
        """Evaluate the dual point anew instead of trusting the file."""
        if self.best is None and min(self.primal, self.guess) < math.inf:
            raise ValueError("the weights of its objective are missing")
        for weights in (self.weights, self.best):
            if weights is not None:
                check_shape("weights", weights, self.oracle.n_features)
                check_finite("weights", weights)
        if not isinstance(self.oracle, Oracle):  # a stream, which is read when it is learned
            return
        dual = self.oracle.dual(self.point())
        if not self.dual - dual <= RESUMED * max(abs(dual), abs(self.dual)):
            raise ValueError(f"its dual value is {dual:.6g}, not {self.dual:.6g}")

    def state(self) -> "_RunState":
        return _RunState(self)

    def offer(self, weights: Floats, hinges: Hinges, ends_iteration: bool = False) -> None:
        """Keep `weights` if their objective, with this sum of C times hinge, is the best.

        If this closes the gap and `ends_iteration`, no copy is made: the weights stay.
        """
        objective = _objective(weights, hinges)
        self.least_primal = objective.least
        self.evaluated = min(self.evaluated, objective.most)
        self._consider(weights, objective, ends_iteration and self._closes_gap(objective.most))

    def _consider(self, weights: Floats, objective: Hinges, at_rest: bool) -> None:
        """Keep `weights`, or a copy unless they are `at_rest`, if they are the best by `guess`."""
        closes = self._closes_gap(objective.most) and objective.most < self.primal
        if not (closes or objective.middle < self.guess):
            return
        # The weights come first: were Ctrl-C to come in between, they must not be missing.
        if at_rest:
            self.best = weights
        elif self.best is None:
            self.best = weights.copy()
        else:
            self.best[:] = weights
        self.primal, self.guess = objective.most, objective.middle

    def may_close_gap(self, weights: Floats, known: float) -> bool:
        """Whether `weights` may be good enough, by `known` hinges and the working set."""
        return self._closes_gap(_objective(weights, Hinges(known, known)).least)

    def detach_best(self) -> None:
        """Copy the best weights if they are the present ones, which will change."""
        if self.best is self.weights:
            self.best = self.weights.copy()

    def answer(self) -> Floats:
        return self.weights if self.best is None else self.best

    def evaluate_candidates(self) -> None:
        """Evaluate the last weights, and keep them (not a copy) if they are the best."""
        for weights in self.candidates:
            hinges = self.oracle.all_hinges(weights, self.threads)
            self._consider(weights, _objective(weights, hinges), at_rest=True)

    def choose_as_expected(self) -> None:
        """Take the present weights unless evaluated ones seem better; makes no oracle call."""
        if self.best is None or self.expected < self.primal:
            self.best = self.weights


class _RunState(Stateful):
    """A run, and what its warm oracle remembers."""

    state_names = ("run", "oracle_calls")

    def __init__(self, run: Run) -> None:
        self.run = run

    @property
    def oracle_calls(self) -> Any:
        return self.run.oracle.oracle_state

    @oracle_calls.setter
    def oracle_calls(self, state: Any) -> None:
        self.run.oracle.oracle_state = state


def _objective(weights: Floats, hinges: Hinges) -> Hinges:
    half_square = 0.5 * dot(weights, weights)
    return hinges + Hinges(half_square, half_square)


class TrackedRun(Run):
    """A run that tracks the objective by the hinges of oracle calls and is rarely evaluated."""

    state_names = (
        *Run.state_names, "passes", "passes_evaluated", "dual_asked", "average", "snapshots",
        "estimate",
    )  # fmt: skip

    def __init__(
        self, oracle: Any, stopping: Stopping, threads: Threads, seed: int, averaging: bool
    ) -> None:
        super().__init__(oracle, stopping, threads, seed)
        self.passes = self.passes_evaluated = 0
        self.dual_asked = -math.inf
        self.average = self.weights.copy() if averaging else None
        self.snapshots = np.zeros(1, dtype=np.int64)
        self.estimate = math.inf
        """Sum of C times hinge as seen in the last pass of oracle calls, at changing weights."""

    def snapshot(self) -> None:
        """Add the present weights to the average."""
        if self.average is not None:
            add_snapshot(self.weights[None, :], self.average[None, :], self.snapshots)

    def note_hinges(self, loss: float, examples: Order) -> None:
        """Extrapolate the hinges of `examples` to all."""
        C = self.oracle.C
        self.estimate = loss * float(C.sum()) / max(float(C[examples].sum()), TINY)

    @property
    def candidates(self) -> list[Floats]:
        return [self.weights] if self.average is None else [self.weights, self.average]

    @property
    def expected(self) -> float:
        """By the hinges of the last pass of oracle calls, at changing weights."""
        return self.half_square + self.estimate

    def looks_done(self) -> bool:
        """Whether an evaluation may close the gap, by the last hinges or for the average."""
        primal, stopping = self.expected, self.stopping
        settled = self.dual - self.dual_asked <= stopping.allowed_gap(self.dual)
        self.dual_asked = self.dual
        if settled and self.average is not None and self.passes > 1.2 * self.passes_evaluated:
            return True
        return primal - self.dual <= EVALUATE_WITHIN * stopping.allowed_gap(primal)


class BlockRun(TrackedRun):
    """A run with a working set of cutting planes for each example."""

    state_names = (
        *TrackedRun.state_names, "working_set", "gap", "work", "dual_before", "pay", "newton_pays",
        "halved_gap", "halved_at", "work_to_halve",
    )  # fmt: skip

    def __init__(
        self,
        oracle: Oracle,
        stopping: Stopping,
        threads: Threads,
        seed: int,
        batch_size: int | None = None,
        averaging: bool = False,
    ) -> None:
        super().__init__(oracle, stopping, threads, seed, averaging)
        self.fixed_batch_size = batch_size
        self.working_set = working_set_of(oracle)
        self.gap = math.inf
        """Gap that the oracle calls of the last iteration found."""
        self.work = self.dual_before = 0.0
        """Multiplications since the last Newton steps, about, and the dual value after these."""
        self.pay = 0.0
        """Gain of the dual for each multiplication of oracle calls and updates."""
        self.newton_pays = False
        """Whether the last Newton steps gained more than that, or the next ones may."""
        self.halved_gap, self.halved_at, self.work_to_halve = math.inf, 0, 0.0
        """Gap when it was last found to be halved, the iterations until then, and `work` then."""

    @property
    def dual(self) -> float:
        return self.working_set.dual

    @property
    def n_cuts(self) -> int:
        return self.working_set.n_cuts

    def point(self) -> DualPoint:
        return self.working_set.point()

    def resume(self, start: DualPoint) -> None:
        start = self.oracle.feasible(start)
        cuts = self.oracle.cuts_of(start.examples, start.outputs)
        self.working_set.put(start.examples, cuts, start.coef, self.weights)

    def release(self) -> None:
        super().release()
        del self.working_set, self.average

    @property
    def batch_size(self) -> int:
        """Oracle calls at the same weights; one where Python makes them."""
        if self.fixed_batch_size is not None:
            return self.fixed_batch_size
        each = self.oracle.oracle_work
        if each is None:
            return 1
        work = min(FIRST_WORK * 2.0 ** min(self.passes, 30), MOST_WORK)
        size = max(int(work / max(each, 1.0)), LEAST_BATCH)
        return max(1, min(size, self.oracle.n_examples // BATCHES_PER_PASS))

    def infer(self, order: Order, rule: StepRule) -> BlockUpdate:
        """Call the oracle for the examples `order`, with a block update of each."""
        total, inferred = BlockUpdate(0.0, 0.0, 0.0, 0.0), 0
        for examples, cuts in self._found(order, self.weights, self._separate_for_update):
            total += self.working_set.update(examples, self.weights, rule, cuts)
            inferred += len(examples)
            if self.stopping.out_of_time:
                if math.isinf(self.estimate):
                    self.note_hinges(total.loss, order[:inferred])
                return total
        self.estimate = total.loss
        self.passes += 1
        self.snapshot()
        return total

    def estimate_from_gaps(self, gap: float) -> None:
        """Estimate the hinges from a duality gap that oracle calls found."""
        self.estimate = self.dual + gap - self.half_square

    def infer_at(self, weights: Floats, kept_at: Floats | None = None) -> Hinges:
        """Sum of C times hinge at fixed weights, infinite if time ran out.

        Keeps the cuts that violate the most at the present weights, or at `kept_at`.
        """
        kept_at = self.weights if kept_at is None else kept_at
        total = Hinges(0.0, 0.0)
        for examples, cuts in self._found(self.everything, weights, self.oracle.separate):
            total += self.oracle.hinges(cuts, weights, examples)
            self.working_set.update(examples, kept_at, ADD_ONLY, cuts)
            if self.stopping.out_of_time:
                return Hinges(math.inf, math.inf)
        self.passes += 1
        return total

    def _separate_for_update(self, weights: Floats, examples: Order, threads: Threads) -> Any:
        return self.working_set.separate(self.oracle, weights, examples, threads)

    def _found(
        self, order: Order, weights: Floats, separate: Callable[[Floats, Order, Threads], Any]
    ) -> Iterator[tuple[Order, Any]]:
        """Batches of examples with what `separate` finds; weights may change in between."""
        size = self.batch_size
        for start in range(0, len(order), size):
            examples = order[start : start + size]
            cuts = separate(weights, examples, self.threads)
            self.calls += len(examples)
            each = self.oracle.oracle_work
            self.work += len(examples) * (ITERATION_COST if each is None else each)
            yield examples, cuts

    def sweep(self, order: Order, rule: StepRule) -> BlockUpdate:
        """Sweep the working set of the examples `order`."""
        self.hits += len(order)
        update = self.working_set.update(order, self.weights, rule)
        self.work += update.work + ITERATION_COST
        self.snapshot()
        return update

    def evaluate(self) -> None:
        """Evaluate the candidates until one is good enough; keeps the cutting planes."""
        self.best_dual = max(self.best_dual, self.dual)
        self._evaluate(self.candidates)

    def evaluate_if_done(self) -> None:
        """Evaluate the candidates that may close the gap by the hinges and the working set."""
        if self.looks_done():
            self.settle()
            self.best_dual = max(self.best_dual, self.dual)
            known = self.working_set.hinges
            self._evaluate([w for w in self.candidates if self.may_close_gap(w, known(w))])
            if self.momentum is not None:
                self.momentum.restart()

    def _evaluate(self, candidates: list[Floats]) -> None:
        for weights in candidates:
            self.offer(weights, self.infer_at(weights), ends_iteration=True)
            if self.is_done:
                break
        self.passes_evaluated = self.passes

    def newton_steps_are_due(self) -> bool:
        """Whether some iterations of as much work have not halved the gap, or the last paid."""
        newton_work = self.working_set.newton_work
        if newton_work == math.inf or self.stopping.out_of_time:
            return False
        gap = self.history[-1].objective_gap if self.history else math.inf
        if gap <= 0.5 * self.halved_gap:
            self.halved_gap, self.halved_at, self.work_to_halve = gap, len(self.history), self.work
        has_stalled = len(self.history) - self.halved_at >= STALLED_FOR
        return self.newton_pays or (has_stalled and self.work - self.work_to_halve > newton_work)

    def take_newton_steps(self) -> None:
        """Solve the dual over the working set, and find the cutting planes that it lacks."""
        self.settle()
        if self.work > 0.0:
            self.pay = max(self.dual - self.dual_before, 0.0) / self.work
        before, self.work = self.dual, self.working_set.newton_work
        n_cuts = self.working_set.n_cuts
        self.detach_best()
        found = self.working_set.solve(self.weights, self._allowed_within_working_set)
        self.best_dual = max(self.best_dual, self.dual)
        # Half way to the best weights cutting planes are deeper (Ben-Ameur and Neto, 2007).
        between = self.weights if self.best is None else 0.5 * (self.best + found)
        self.offer(found, self.infer_at(found, kept_at=found), ends_iteration=True)
        if not self.is_done:
            self.offer(between, self.infer_at(between, kept_at=between))
        self.passes_evaluated = self.passes
        # New cutting planes gain only when the working set is solved again.
        goes_on = self.newton_pays and self.working_set.n_cuts > n_cuts
        self.newton_pays = goes_on or self.dual - before > self.pay * self.work
        self.work, self.work_to_halve, self.dual_before = 0.0, 0.0, self.dual
        if self.momentum is not None:
            self.momentum.restart()

    def _allowed_within_working_set(self, primal: float) -> float:
        """Gap allowed to a solve over the working set: what is missing in that counts for more."""
        gap = NEWTON_PART_OF_GAP / PART_OF_GAP * min(self.primal - self.dual, primal)
        return max(self.stopping.allowed_gap(primal), gap)

    def extrapolate(self, momentum: float) -> None:
        self.working_set.extrapolate(momentum, self.weights)

    def revert(self) -> None:
        self.working_set.revert(self.weights)

    def restart(self) -> None:
        self.working_set.extrapolate(0.0, self.weights)


@dataclass(frozen=True, kw_only=True)
class StructuredSolver(Solver):
    """Base of the solvers of structured problems.

    Between evaluations, the objective in the history is estimated with the hinges of the last pass
    of oracle calls, unless a solver says otherwise.
    """

    requires: ClassVar[tuple[type, ...]] = (Oracle,)

    on_shards: ClassVar[bool] = False
    """Whether it trains on shards of the data."""

    def finish(self, run: Any, status: Status) -> Result:
        return _certified(run, status)


def _certified(run: Run, status: Status) -> Result:
    """The best weights and the dual point, certified from the data alone."""
    status = in_spite_of_interrupt(run.settle, status)
    point = run.point()
    linear = run.dual + run.half_square
    slow = run.oracle.oracle_work is None
    try:
        if status is Status.INTERRUPTED and slow:
            run.choose_as_expected()
        elif status is not Status.CONVERGED:  # the last weights have not been evaluated, perhaps
            status = in_spite_of_interrupt(run.evaluate_candidates, status)
        run.release()
        status = in_spite_of_interrupt(lambda: _certify(run, point), status)
        status = in_spite_of_interrupt(lambda: _compare_with_zero(run, linear), status)
    except ProblemError as error:
        error.result = uncertified(run, point)
        raise
    certificate = run.certificate
    if run.stopping.is_enough(certificate.primal, certificate.dual):
        status = Status.CONVERGED
    elif status is Status.CONVERGED and not _within_rounding(run.stopping, certificate):
        status = Status.FAILED  # the run's own account of its sums was wrong
    return Result(run.answer(), point, certificate, status, len(run.history), run.history)


def _within_rounding(stopping: Stopping, certificate: Certificate) -> bool:
    """Whether a gap is closed but for rounding."""
    rounding = RESUMED * max(abs(certificate.primal), abs(certificate.dual))
    return stopping.is_enough(certificate.primal - rounding, certificate.dual)


def _certify(run: Run, point: Any) -> None:
    oracle = run.oracle
    primal = oracle.primal(run.answer(), run.threads)
    run.certificate = Certificate(primal, oracle.dual(point), not oracle.exact)
    if run.certificate.relative_gap < -ROUNDING and isinstance(point, DualPoint):
        _refute(run.oracle, run.answer(), point, run.threads)
        # The cutting planes of the dual point alone prove that the objective is no lower.
        run.certificate = replace(run.certificate, primal=run.certificate.dual)


def _compare_with_zero(run: Run, linear: float) -> None:
    """Take zero weights if they are better; `linear`, of any dual point, bounds their objective."""
    primal, tol = run.certificate.primal, run.stopping.relative_tol(linear)
    if not run.stopping.may_be_zero or primal < (1.0 - tol) * linear:
        return
    zero = np.zeros(run.oracle.n_features)
    at_zero = run.oracle.all_hinges(zero, run.threads).most
    # What relaxed oracles may have missed must not speak for zero weights.
    if at_zero < min(primal, run.guess):
        run.best, primal = zero, at_zero
    certificate = replace(run.certificate, primal=primal)
    run.certificate = certificate.compared_with_zero(at_zero, tol)


def _refute(oracle: Oracle, weights: Floats, point: DualPoint, threads: Threads) -> None:
    """Say which oracle call missed a maximum, as the primal value is below the dual one."""
    cuts = oracle.separate(weights, point.examples, threads)
    if not oracle.exact and cuts.suboptimality is None:
        return
    found = cuts.slopes(weights)
    known = oracle.cuts_of(point.examples, point.outputs).slopes(weights)
    k = int(np.argmax(known - np.maximum(found, 0.0)))
    raise ProblemError(
        f"{oracle.oracle_name} does not find the maximum: for example {point.examples[k]} the "
        f"output {point.outputs[k]!r:.80} has a score plus loss that is {known[k] - found[k]:.3g} "
        f"higher."
    )
