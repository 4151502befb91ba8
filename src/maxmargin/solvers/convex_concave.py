"""ConvexConcave: latent variables by a series of convex problems, each solved with a certificate.

    min   1/2 |w|^2 + sum_i C_i max_{y, h} [loss_i(y) + <w, phi(x_i, y, h)>]
                    - sum_i C_i max_h <w, phi(x_i, y_i, h)>

With h of the true outputs imputed, this becomes the convex problem of structured.py, an upper bound
that is tight where h is the best. To impute and to minimise in turn never raises the objective (Yu
and Joachims, 2009; Ramanan, 2013, on latent structural SVMs).
"""

import math
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.arrays import Floats, check_shape
from maxmargin.core.certificate import Certificate, DualPoint
from maxmargin.core.latent import LatentOracle
from maxmargin.core.oracle import Oracle, Threads
from maxmargin.core.registry import registered
from maxmargin.core.result import Iteration, Result, Status
from maxmargin.solvers.loop import LoopRun, OnIteration, Solver, Stopping
from maxmargin.solvers.structured import RESUMED, StructuredSolver

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
    """A start, certified for the convex problem of its imputations; `FAILED` while under way."""

    imputations: Any = None
    objectives: list[float] = field(default_factory=list, repr=False)
    certificates: list[Certificate] = field(default_factory=list, repr=False)
    restart_objectives: list[float] = field(default_factory=list)
    step_tol: float = field(default=FIRST_TOL, repr=False)
    """Relative gap of the next convex step."""


class LatentRun(LoopRun):
    """The best start that has ended, and the one under way; an iteration is a convex step."""

    state_names: ClassVar[tuple[str, ...]] = ("best", "whole")
    state_types: ClassVar[dict[str, Any]] = {
        "best": LatentResult | None,
        "whole": LatentResult | None,
    }

    oracle: LatentOracle

    def __init__(
        self,
        solver: "ConvexConcave",
        latent: LatentOracle,
        stopping: Stopping,
        threads: Threads,
        seed: int,
    ) -> None:
        super().__init__(latent, stopping, threads)
        self.solver, self.seed = solver, seed
        self.best: LatentResult | None = None
        self.here: LatentResult | None = None
        """The start under way; replaced as a whole, because Ctrl-C may come at any moment."""
        self.whole: LatentResult | None = None
        """The same, as it was before a step that was stopped."""
        self._convex: Oracle | None = None
        """The convex problem of its imputations, made when it is needed."""

    def check_state(self) -> None:
        """Evaluate the objectives anew instead of trusting the file."""
        for known in (self.best, self.whole):
            if known is not None and math.isfinite(known.certificate.primal):
                oracle = self.oracle.imputed(known.imputations)
                check_shape("weights", known.weights, oracle.n_features)
                primal = oracle.primal(known.weights, self.threads)
                worth = (1.0 + RESUMED) * known.certificate.primal
                if oracle.exact and primal > worth:
                    raise ValueError(f"its objective is {primal:.6g}, not {worth:.6g}")
        self.here = self.whole

    @property
    def content(self) -> Any:
        return self.oracle, self.solver.initial, self.solver.again

    @property
    def depends_on(self) -> dict[str, Any]:
        return {"max_iter": self.stopping.max_iter}

    def is_whole(self, status: Status | None) -> bool:
        return True  # the state is that after the last whole step

    @property
    def ended(self) -> int:
        """Number of starts that have ended."""
        return 0 if self.best is None else len(self.best.restart_objectives)

    def reason_to_stop(self) -> Status | None:
        if self.here is None or self.here.status == Status.FAILED:
            return None
        if self.here.status in _FINISHED and self.ended + 1 < self.solver.restarts:
            self.best, self.here = self.result(), None
            self.whole = self._convex = None
            return None
        return Status(self.here.status)

    def iterate(self) -> None:
        """Make a convex step, of a new start if there is none, and impute anew."""
        if self.here is None:
            self.here = self.whole = self._begin()
        here = self.here
        if len(here.certificates) == self.solver.max_imputations:
            self.here = self.whole = replace(here, status=Status.MAX_ITER)
            return
        if self._convex is None:
            self._convex = self.oracle.imputed(here.imputations)
        result = self._solve_step(here, self._convex)
        settled = self._take(here, result)
        before, now = here.certificate.primal, self.here.certificate
        # A small gap with imputations that change is no end: many small steps may lead far.
        if settled and self.stopping.is_enough(now.primal, now.dual):
            self.here = replace(self.here, status=Status.CONVERGED)
        elif result.status not in _SOLVED or (settled and result.status is Status.RELAXED):
            self.here = replace(self.here, status=result.status)
        elif settled:
            self.here = replace(self.here, step_tol=0.0)
        elif 0.0 < before < math.inf:
            gain = 1.0 - now.primal / before
            self.here = replace(self.here, step_tol=min(FIRST_TOL, PART_OF_GAIN * gain))
        if result.status in _FINISHED:
            self.whole = self.here

    def _begin(self) -> LatentResult:
        """A start with given imputations, or with the best at the weights of an earlier solve."""
        latent, initial, again = self.content
        imputations = latent.init_latent(np.random.default_rng([self.seed, self.ended]))
        if self.ended:
            initial = again = None
        elif initial is None and again is None:
            again = self._rehearsed()
        if initial is not None:
            imputations = initial
        oracle = latent.imputed(imputations)
        # Infinity: whatever the first step finds is better. Many a start would end at zero.
        certificate = Certificate(math.inf, 0.0, not oracle.exact)
        weights, point = np.zeros(oracle.n_features), None
        if again is not None and again.weights.shape == weights.shape:
            imputations = latent.impute(again.weights, imputations, self.threads)
            if again.dual_point is not None:
                weights, oracle = again.weights, latent.imputed(imputations)
                point, certificate = self._certified(oracle, weights, [again.dual_point])
        return LatentResult(weights, point, certificate, Status.FAILED, 0, [], imputations)

    def _rehearsed(self) -> LatentStart | None:
        """Weights of the easier problem, if there is one."""
        oracle = self.oracle.rehearsal()
        if oracle is None:
            return None
        bounds = replace(self.stopping, tol=max(FIRST_TOL, self.stopping.tol), may_be_zero=False)
        n_jobs = self.threads.n_threads
        result = self.solver.solver.solve(oracle, bounds, n_jobs=n_jobs, seed=self.seed)
        if result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        return LatentStart(result.weights, None)

    def _solve_step(self, here: LatentResult, oracle: Oracle) -> Result:
        """Solve the present convex problem, its iterations counted from those of steps before."""
        stage = f"imputation {len(here.certificates) + 1}"
        calls, hits = 0, 0
        if here.history:
            calls, hits = here.history[-1].oracle_calls, here.history[-1].cache_hits

        def counted(line: Iteration) -> Iteration:
            return replace(
                line,
                oracle_calls=line.oracle_calls + calls,
                cache_hits=line.cache_hits + hits,
                stage=stage,
            )

        show, n_jobs = self.solver.on_iteration, self.threads.n_threads
        shown = show and (lambda line, weights: show(counted(line), weights))
        least = LAST_TOL * self.stopping.relative_tol(here.certificate.primal)
        tol, point = max(here.step_tol, least), here.dual_point
        history: list[Iteration] = []
        while True:
            bounds = replace(self.stopping, tol=tol, gap=-math.inf, may_be_zero=False)
            result = self.solver.solver.solve(
                oracle, bounds, n_jobs=n_jobs, seed=self.seed, start=point, on_iteration=shown
            )
            history += [counted(line) for line in result.history]
            if result.weights.any() or result.status not in _SOLVED or tol <= ZERO_TOL:
                return replace(result, history=history)
            tol, point = 0.1 * tol, result.dual_point

    def _take(self, here: LatentResult, result: Result) -> bool:
        """Take a better solution; whether the next convex problem is the same."""
        latent, found, history = self.oracle, result.certificate, here.history

        def moved(certificate: Certificate, **changes: Any) -> LatentResult:
            return replace(
                here,
                certificate=certificate,
                iterations=len(history) + len(result.history),
                history=history + result.history,
                objectives=[*here.objectives, certificate.primal],
                certificates=[*here.certificates, found],
                **{"dual_point": result.dual_point} | changes,
            )

        if found.primal >= here.certificate.primal:
            known = replace(here.certificate, dual=max(found.dual, here.certificate.dual))
            self.here = moved(known)
            return True
        weights = result.weights
        self.here = moved(found, weights=weights)
        imputations = latent.impute(weights, here.imputations, self.threads)
        changed = latent.changes(here.imputations, imputations)
        if not changed.any():
            return True
        oracle = latent.imputed(imputations)
        points = [result.dual_point, _without(result.dual_point, changed)]
        point, certificate = self._certified(oracle, weights, points)
        # Never above that of the imputations before, but for rounding and relaxed oracle calls.
        certificate = replace(certificate, primal=min(certificate.primal, found.primal))
        self.here = moved(certificate, weights=weights, imputations=imputations, dual_point=point)
        self._convex = oracle
        return False

    def _certified(
        self, oracle: Oracle, weights: Floats, points: list[Any]
    ) -> tuple[Any, Certificate]:
        """The best of some dual points, None if none is positive, to go on from with `weights`."""
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
        primal = oracle.primal(weights, self.threads)
        if not oracle.exact:  # calls that miss too much may say less than the dual point proves
            primal = max(primal, highest)
        return best, Certificate(primal, highest, not oracle.exact)

    def result(self) -> LatentResult | None:
        """The best result so far, with the reason if the last start was stopped."""
        best, last = self.best, self.here
        if last is None:
            return best
        ends = [*(best.restart_objectives if best else []), last.certificate.primal]
        if best is None or last.certificate.primal < best.certificate.primal:
            best = last
        # From a checkpoint, it is a mere string.
        status = Status(best.status if last.status in _FINISHED else last.status)
        return replace(best, status=status, restart_objectives=ends)

    uncertified = result

    def answer(self) -> Floats | None:
        found = self.result()
        return None if found is None else found.weights


@registered("ConvexConcave")
@dataclass(frozen=True, kw_only=True)
class ConvexConcave(Solver):
    """The convex-concave procedure: the best of several starts, convex steps by any solver."""

    requires: ClassVar[tuple[type, ...]] = (LatentOracle,)

    solver: StructuredSolver
    restarts: int = 1
    max_imputations: int = 100
    initial: Any = field(default=None, repr=False)
    """Imputations of the first start; None asks the oracle."""
    again: LatentStart | None = field(default=None, repr=False)
    """Where an earlier solve ended, and the first start begins."""
    on_iteration: OnIteration | None = field(default=None, repr=False)
    """Called after each iteration of each convex step."""

    def solve(
        self,
        oracle: LatentOracle,
        stopping: Stopping,
        *,
        on_iteration: OnIteration | None = None,
        **more: Any,
    ) -> Result:
        """Train; `tol` is the relative gap to the optimum of the convex problem at the end."""
        return Solver.solve(replace(self, on_iteration=on_iteration), oracle, stopping, **more)

    def start(
        self, oracle: LatentOracle, stopping: Stopping, threads: Threads, seed: int
    ) -> LatentRun:
        return LatentRun(self, oracle, stopping, threads, seed)

    def iterate(self, run: LatentRun) -> None:
        run.iterate()

    def finish(self, run: LatentRun, status: Status) -> LatentResult:
        """Zero weights if they are better; their objective does not depend on the imputations."""
        if run.here is not None:
            run.here = replace(run.here, status=status)
        found = run.result()
        if found is None:
            raise KeyboardInterrupt  # before anything was begun
        oracle = run.oracle.imputed(found.imputations)
        zero = np.zeros(oracle.n_features)
        at_zero = oracle.primal(zero, run.threads)
        certificate = found.certificate
        if at_zero < certificate.primal:
            found, certificate = replace(found, weights=zero), replace(certificate, primal=at_zero)
        tol = run.stopping.relative_tol(at_zero)
        return replace(found, certificate=certificate.compared_with_zero(at_zero, tol))


def _without(point: Any, changed: NDArray[np.bool_]) -> Any:
    """A dual point without the examples that have changed; None for another kind of point."""
    if not isinstance(point, DualPoint):
        return None
    kept = np.flatnonzero(~changed[point.examples])
    outputs = [point.outputs[k] for k in kept.tolist()]
    return DualPoint(point.examples[kept], point.coef[kept], outputs)
