"""ConvexConcave: latent variables by a series of convex problems, each solved with a certificate.

    min   1/2 |w|^2 + sum_i C_i max_{y, h} [loss_i(y) + <w, phi(x_i, y, h)>]
                    - sum_i C_i max_h <w, phi(x_i, y_i, h)>

With h of the true outputs imputed, this becomes the convex problem of structured.py, an upper bound
that is tight where h is the best. To impute and to minimise in turn never raises the objective (Yu
and Joachims, 2009; Ramanan, 2013, on latent structural SVMs).
"""

import math
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.certificate import Certificate, DualPoint
from maxmargin.core.checks import check_shape
from maxmargin.core.latent import LatentOracle
from maxmargin.core.oracle import Oracle
from maxmargin.core.registry import registered
from maxmargin.core.result import Iteration, Result, Status
from maxmargin.core.state import Stateful
from maxmargin.core.threads import Threads
from maxmargin.solvers.loop import CheckpointFile, LoopRun, OnIteration, Solver, Stopping
from maxmargin.solvers.structured import RESUMED, StructuredSolver

Floats = NDArray[np.float64]

Solve = Callable[[Oracle, Stopping, Any, Callable[[Iteration], Iteration]], Result]
"""Solves a problem within bounds from a dual point, and counts iterations."""

FIRST_TOL, PART_OF_GAIN, LAST_TOL = 0.01, 0.3, 0.5
"""Relative gaps of convex steps: the first; each other, as a part of the gain of the step before;
the least, as a part of the tolerance. No step is solved better than its imputations deserve."""

ZERO_TOL = 1e-6
"""Relative gap below which zero weights are an answer, and not only poor imputations."""

_FINISHED = Status.CONVERGED, Status.RELAXED, Status.MAX_ITER
"""Reasons after which the next start may begin."""

_SOLVED = Status.CONVERGED, Status.RELAXED
"""Reasons after which the next step may begin."""


@registered("LatentStart")
class LatentStart(NamedTuple):
    """Where an earlier solve ended; weights without a dual point only serve to impute."""

    weights: Floats
    dual_point: Any


@registered("LatentResult")
@dataclass(frozen=True)
class LatentResult(Result):
    """The result of the best start, certified for the convex problem of its imputations."""

    imputations: Any = None
    objectives: list[float] = field(default_factory=list, repr=False)
    certificates: list[Certificate] = field(default_factory=list, repr=False)
    restart_objectives: list[float] = field(default_factory=list)


@registered("LatentPlace")
class _Place(NamedTuple):
    """Where a start has come to; replaced as a whole, because Ctrl-C may come at any moment."""

    weights: Floats
    imputations: Any
    certificate: Certificate
    objectives: list[float]
    certificates: list[Certificate]

    def after(
        self, step: Certificate, weights: Floats, imputations: Any, certificate: Certificate
    ) -> "_Place":
        """The place after a convex step."""
        objectives = [*self.objectives, certificate.primal]
        return _Place(weights, imputations, certificate, objectives, [*self.certificates, step])


class _Descent(Stateful):
    """One start: convex steps from some imputations."""

    state_names = ("place", "point", "step_tol", "status", "history")
    state_types: ClassVar[dict[str, Any]] = {"place": _Place | None, "point": Any}

    def __init__(self, latent: LatentOracle, stopping: Stopping, threads: Threads) -> None:
        self.latent, self.stopping, self.threads = latent, stopping, threads
        self.place: _Place | None = None
        self.point: Any = None
        self._oracle: Oracle | None = None
        """That of the present imputations, made when it is needed."""
        self.step_tol = FIRST_TOL
        self.status = ""
        """Why it has ended; empty while it is under way."""
        self.history: list[Iteration] = []

    def begin(self, imputations: Any, again: LatentStart | None) -> None:
        """With given imputations, or with the best at the weights of an earlier solve."""
        oracle = self.latent.imputed(imputations)
        # Infinity: whatever the first step finds is better. Many a start would end at zero.
        certificate = Certificate(math.inf, 0.0, not oracle.exact)
        weights = np.zeros(oracle.n_features)
        if again is not None and again.weights.shape == weights.shape:
            imputations = self.latent.impute(again.weights, imputations, self.threads)
            if again.dual_point is not None:
                weights, oracle = again.weights, self.latent.imputed(imputations)
                certificate = self._certified(oracle, weights, [again.dual_point])
        self.place = _Place(weights, imputations, certificate, [], [])

    def step(self, max_steps: int, solve: Solve) -> bool:
        """Solve the present convex problem and impute anew; whether it was solved to its end."""
        assert self.place is not None
        if len(self.place.certificates) == max_steps:
            self.status = Status.MAX_ITER
            return True
        if self._oracle is None:
            self._oracle = self.latent.imputed(self.place.imputations)
        before = self.place.certificate.primal
        result = self._solve(self._oracle, solve)
        self._oracle, settled = self._take(self._oracle, result)
        # A small gap with imputations that change is no end: many small steps may lead far.
        if settled and self._is_done:
            self.status = Status.CONVERGED
        elif result.status not in _SOLVED or (settled and result.status is Status.RELAXED):
            self.status = result.status
        elif settled:
            self.step_tol = 0.0
        elif 0.0 < before < math.inf:
            gain = 1.0 - self.place.certificate.primal / before
            self.step_tol = min(FIRST_TOL, PART_OF_GAIN * gain)
        return result.status in _FINISHED

    @property
    def _is_done(self) -> bool:
        assert self.place is not None
        certificate = self.place.certificate
        return self.stopping.is_enough(certificate.primal, certificate.dual)

    def _solve(self, oracle: Oracle, solve: Solve) -> Result:
        assert self.place is not None
        stage = f"imputation {len(self.place.certificates) + 1}"
        calls, hits = 0, 0
        if self.history:
            calls, hits = self.history[-1].oracle_calls, self.history[-1].cache_hits

        def counted(line: Iteration) -> Iteration:
            return replace(
                line,
                oracle_calls=line.oracle_calls + calls,
                cache_hits=line.cache_hits + hits,
                stage=stage,
            )

        least = LAST_TOL * self.stopping.relative_tol(self.place.certificate.primal)
        tol, point = max(self.step_tol, least), self.point
        history: list[Iteration] = []
        while True:
            bounds = replace(self.stopping, tol=tol, gap=-math.inf, may_be_zero=False)
            result = solve(oracle, bounds, point, counted)
            history += [counted(line) for line in result.history]
            if result.weights.any() or result.status not in _SOLVED or tol <= ZERO_TOL:
                return replace(result, history=history)
            tol, point = 0.1 * tol, result.dual_point

    def _take(self, oracle: Oracle, result: Result) -> tuple[Oracle, bool]:
        """Take a better solution; returns the next convex problem, and whether it is the same."""
        here, found = self.place, result.certificate
        assert here is not None
        self.history = self.history + result.history
        self.point = result.dual_point
        if found.primal >= here.certificate.primal:
            known = replace(here.certificate, dual=max(found.dual, here.certificate.dual))
            self.place = here.after(found, here.weights, here.imputations, known)
            return oracle, True
        self.place = here.after(found, result.weights, here.imputations, found)
        imputations = self.latent.impute(result.weights, here.imputations, self.threads)
        changed = self.latent.changes(here.imputations, imputations)
        if not changed.any():
            return oracle, True
        oracle = self.latent.imputed(imputations)
        points = [self.point, _without(self.point, changed)]
        certificate = self._certified(oracle, result.weights, points)
        # Never above that of the imputations before, but for rounding and relaxed oracle calls.
        certificate = replace(certificate, primal=min(certificate.primal, found.primal))
        self.place = here.after(found, result.weights, imputations, certificate)
        return oracle, False

    def _certified(self, oracle: Oracle, weights: Floats, points: list[Any]) -> Certificate:
        """Evaluate weights and the best of some dual points, to go on from."""
        self.point, dual = _best_start(oracle, points)
        primal = oracle.primal(weights, self.threads)
        if not oracle.exact:  # calls that miss too much may say less than the dual point proves
            primal = max(primal, dual)
        return Certificate(primal, dual, not oracle.exact)

    def result(self) -> LatentResult | None:
        """The result so far, or None."""
        if self.place is None:
            return None
        return LatentResult(
            weights=self.place.weights,
            dual_point=self.point,
            certificate=self.place.certificate,
            status=Status(self.status or Status.FAILED),
            iterations=len(self.history),
            history=self.history,
            imputations=self.place.imputations,
            objectives=self.place.objectives,
            certificates=self.place.certificates,
        )


class _Task(NamedTuple):
    latent: LatentOracle
    initial: Any
    start: LatentStart | None
    on_iteration: OnIteration | None


class LatentRun(LoopRun):
    """The best start that has ended, and the one under way; an iteration is a convex step."""

    state_names: ClassVar[tuple[str, ...]] = ("best", "descent")
    state_types: ClassVar[dict[str, Any]] = {"best": LatentResult | None}

    oracle: _Task

    def __init__(
        self, solver: "ConvexConcave", task: _Task, stopping: Stopping, threads: Threads, seed: int
    ) -> None:
        super().__init__(task, stopping, threads)
        self.solver, self.seed = solver, seed
        self.best: LatentResult | None = None
        self.descent = _Descent(task.latent, stopping, threads)
        self._between = self.descent
        """The start under way, as it was before a step that was stopped."""

    def check_state(self) -> None:
        """Evaluate the objectives anew instead of trusting the file."""
        place = self.descent.place
        for known in (self.best, place):
            if known is not None and math.isfinite(known.certificate.primal):
                oracle = self.oracle.latent.imputed(known.imputations)
                check_shape("weights", known.weights, oracle.n_features)
                primal = oracle.primal(known.weights, self.threads)
                worth = (1.0 + RESUMED) * known.certificate.primal
                if oracle.exact and primal > worth:
                    raise ValueError(f"its objective is {primal:.6g}, not {worth:.6g}")

    @property
    def content(self) -> Any:
        return self.oracle[:3]

    @property
    def depends_on(self) -> dict[str, Any]:
        return {"max_iter": self.stopping.max_iter}

    def state(self) -> Stateful:
        """The state after the last whole step."""
        whole = copy(self)
        whole.descent = self._between
        return whole

    def go_on_from(self, checkpoint: CheckpointFile, solver: Solver, seed: int) -> bool:
        # The state is taken over in place.
        more = self.depends_on
        resumed = checkpoint.begin(self, self.content, solver, self.stopping, seed, **more)
        self._between = self.descent
        return resumed

    def is_whole(self, status: Status | None) -> bool:
        return True  # `state` is

    @property
    def ended(self) -> int:
        """Number of starts that have ended."""
        return 0 if self.best is None else len(self.best.restart_objectives)

    def reason_to_stop(self) -> Status | None:
        if not self.descent.status:
            return None
        status = Status(self.descent.status)
        if status in _FINISHED and self.ended + 1 < self.solver.restarts:
            descent = _Descent(self.oracle.latent, self.stopping, self.threads)
            self.best, self.descent = self.result(), descent
            self._between = descent
            return None
        return status

    def iterate(self) -> None:
        """Make a convex step, of a new start if there is none."""
        descent = self.descent
        if descent.place is None:
            self._begin(descent)
        self._between = copy(descent)
        if descent.step(self.solver.max_imputations, self._solve):
            self._between = descent

    def _begin(self, descent: _Descent) -> None:
        latent, initial, again, _ = self.oracle
        if self.ended:
            initial = again = None
        first = latent.init_latent(np.random.default_rng([self.seed, self.ended]))
        if self.ended == 0 and initial is None and again is None:
            again = self._rehearsed()
        descent.begin(first if initial is None else initial, again)

    def _solve(self, oracle: Oracle, bounds: Stopping, point: Any, counted: Any) -> Result:
        show, n_jobs = self.oracle.on_iteration, self.threads.n_threads
        shown = show and (lambda line, weights: show(counted(line), weights))
        return self.solver.solver.solve(
            oracle, bounds, n_jobs=n_jobs, seed=self.seed, start=point, on_iteration=shown
        )

    def _rehearsed(self) -> LatentStart | None:
        """Weights of the easier problem, if there is one."""
        oracle = self.oracle.latent.rehearsal()
        if oracle is None:
            return None
        bounds = replace(self.stopping, tol=max(FIRST_TOL, self.stopping.tol), may_be_zero=False)
        n_jobs = self.threads.n_threads
        result = self.solver.solver.solve(oracle, bounds, n_jobs=n_jobs, seed=self.seed)
        if result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        return LatentStart(result.weights, None)

    def result(self) -> LatentResult | None:
        """The best result so far, with the reason if the last start was stopped."""
        best, last = self.best, self.descent.result()
        if last is None:
            return best
        ends = [*(best.restart_objectives if best else []), last.certificate.primal]
        if best is None or last.certificate.primal < best.certificate.primal:
            best = last
        # From a checkpoint, it is a mere string.
        status = Status(best.status if last.status in _FINISHED else last.status)
        return replace(best, status=status, restart_objectives=ends)

    def answer(self) -> Floats | None:
        found = self.result()
        return None if found is None else found.weights

    def uncertified(self) -> LatentResult | None:
        return self.result()


@registered("ConvexConcave")
@dataclass(frozen=True, kw_only=True)
class ConvexConcave(Solver):
    """The convex-concave procedure: the best of several starts, convex steps by any solver."""

    requires: ClassVar[tuple[type, ...]] = (LatentOracle,)

    solver: StructuredSolver
    restarts: int = 1
    max_imputations: int = 100

    def solve(  # type: ignore[override]
        self,
        latent: LatentOracle,
        stopping: Stopping,
        *,
        n_jobs: int = 1,
        seed: int = 0,
        initial: Any = None,
        start: LatentStart | None = None,
        on_iteration: OnIteration | None = None,
        checkpoint: CheckpointFile | None = None,
    ) -> LatentResult:
        """Train, first with the `initial` imputations or those at the weights of `start`.

        `tol` is the relative gap to the optimum of the convex problem with the same imputations.
        """
        task = _Task(latent, initial, start, on_iteration)
        result: Any = super().solve(task, stopping, n_jobs=n_jobs, seed=seed, checkpoint=checkpoint)
        return result  # type: ignore[no-any-return]

    def check(self, oracle: _Task) -> None:
        super().check(oracle.latent)

    def start(self, oracle: _Task, stopping: Stopping, threads: Threads, seed: int) -> LatentRun:
        return LatentRun(self, oracle, stopping, threads, seed)

    def iterate(self, run: LatentRun) -> None:
        run.iterate()

    def finish(self, run: LatentRun, status: Status) -> LatentResult:
        run.descent.status = status
        found = run.result()
        if found is None:
            raise KeyboardInterrupt  # before anything was begun
        return _compared_with_zero(found, run.oracle.latent, run.stopping, run.threads)


def _compared_with_zero(
    found: LatentResult, latent: LatentOracle, stopping: Stopping, threads: Threads
) -> LatentResult:
    """Zero weights if they are better; their objective does not depend on the imputations."""
    oracle = latent.imputed(found.imputations)
    zero = np.zeros(oracle.n_features)
    at_zero = oracle.primal(zero, threads)
    certificate = found.certificate
    if at_zero < certificate.primal:
        found, certificate = replace(found, weights=zero), replace(certificate, primal=at_zero)
    tol = stopping.relative_tol(at_zero)
    return replace(found, certificate=certificate.compared_with_zero(at_zero, tol))


def _best_start(oracle: Oracle, points: list[Any]) -> tuple[Any, float]:
    """The dual point of the highest value and that value; None and zero if none is positive."""
    best, highest = None, 0.0
    for point in points:
        if point is None:
            continue
        with suppress(ValueError):  # outputs that are none of this data's
            if isinstance(point, DualPoint):
                point = oracle.feasible(point)
            dual = oracle.dual(point)
            if dual > highest:
                best, highest = point, dual
    return best, highest


def _without(point: Any, changed: NDArray[np.bool_]) -> Any:
    """A dual point without the examples that have changed; None for another kind of point."""
    if not isinstance(point, DualPoint):
        return None
    kept = np.flatnonzero(~changed[point.examples])
    outputs = [point.outputs[k] for k in kept.tolist()]
    return DualPoint(point.examples[kept], point.coef[kept], outputs)
