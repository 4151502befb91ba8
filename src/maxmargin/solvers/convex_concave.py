"""ConvexConcave: latent variables by a series of convex problems, each solved with a certificate.

The objective of a latent problem is a difference of convex functions. With the latent variables of
all truths fixed, it becomes convex and no lower; with the best ones at some weights, it is the same
there. So to choose the best imputations and then to minimise, in turn, never raises the objective.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.certificate import Certificate, DualPoint
from maxmargin.core.checks import check_shape
from maxmargin.core.latent import LatentOracle
from maxmargin.core.oracle import Oracle
from maxmargin.core.problem import ProblemError
from maxmargin.core.registry import registered
from maxmargin.core.result import Iteration, Result, Status, Stopping
from maxmargin.core.state import Stateful
from maxmargin.core.threads import Threads
from maxmargin.io.checkpoint import Checkpoint
from maxmargin.solvers.loop import OnIteration
from maxmargin.solvers.structured import RESUMED, StructuredSolver

Floats = NDArray[np.float64]

Solve = Callable[[Oracle, Stopping, Any, Callable[[Iteration], Iteration]], Result]
"""Takes the problem, bounds, a dual point to start from, and how to count rounds."""

FIRST_TOL, PART_OF_GAIN, LAST_TOL = 0.01, 0.3, 0.5
"""Relative gaps at which convex steps end: the first and most; each other, as a part of what the
step before lowered the objective by; and the least, as a part of the tolerance. No step is solved
better than its imputations deserve, and one solved to the least gains the rest of the tolerance, or
ends the procedure. When imputations stay, it is the least at once."""

ZERO_TOL = 1e-6
"""Relative gap below which weights of zero are taken for an answer. Above it they only mean that
little can be gained with these imputations, and every imputation would be as good."""

_FINISHED = Status.CONVERGED, Status.RELAXED, Status.MAX_ITER
"""After these, the next start may begin."""

_SOLVED = Status.CONVERGED, Status.RELAXED
"""After these, the next step."""


@registered("LatentStart")
class LatentStart(NamedTuple):
    """Where an earlier solve ended; without a dual point, its weights only serve to complete."""

    weights: Floats
    dual_point: Any


@registered("LatentResult")
@dataclass(frozen=True)
class LatentResult(Result):
    """The result of the best start, and the steps on the way to it.

    The certificate is of the convex problem that the imputations leave: with these, no weights are
    better than the result's by more than the gap.

    Parameters
    ----------
    imputations : object
        Latent variables of all truths: the best at the weights.
    objectives : list of float
        The objective after each convex step; it never rises.
    certificates : list of Certificate
        Of each convex step.
    restart_objectives : list of float
        The last objective of every start.
    """

    imputations: Any = None
    objectives: list[float] = field(default_factory=list, repr=False)
    certificates: list[Certificate] = field(default_factory=list, repr=False)
    restart_objectives: list[float] = field(default_factory=list)


@registered("LatentPlace")
class _Place(NamedTuple):
    """Where a start has come to: weights, imputations, their certificate, and the steps so far."""

    weights: Floats
    imputations: Any
    certificate: Certificate
    objectives: list[float]
    certificates: list[Certificate]


class _Descent(Stateful):
    """One start: steps down from some imputations.

    The place where it is changes in one assignment, so Ctrl-C may come at any moment.

    Parameters
    ----------
    latent : LatentTrainingSet
    stopping : Stopping
    threads : Threads
    """

    state_names = ("place", "point", "step_tol", "status", "history")
    state_types: ClassVar[dict[str, Any]] = {"place": _Place | None, "point": Any}

    def __init__(self, latent: LatentOracle, stopping: Stopping, threads: Threads) -> None:
        self.latent, self.stopping, self.threads = latent, stopping, threads
        self.place: _Place | None = None
        self.point: Any = None
        self.step_tol = FIRST_TOL
        self.status: str = Status.FAILED
        self.history: list[Iteration] = []

    def begin(self, imputations: Any, again: LatentStart | None) -> None:
        """With some imputations, or with the best at the weights of an earlier solve."""
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

    def run(self, max_steps: int, solve: Solve, checkpoint: Callable[[bool], None]) -> None:
        """Step down until what is left of the gap is within the tolerance.

        `checkpoint` is called between steps; with True when the next one was stopped half way.
        """
        assert self.place is not None
        oracle = self.latent.imputed(self.place.imputations)
        while self.status not in _FINISHED:
            if len(self.place.certificates) == max_steps:
                self.status = Status.MAX_ITER
                return
            checkpoint(False)
            before = self.place.certificate.primal
            result = self._solve(oracle, solve)
            if result.status not in _FINISHED:
                checkpoint(True)
            oracle, settled = self._take(oracle, result)
            # A small gap with imputations that change is no end: many small steps may lead far.
            if settled and self._is_done:
                self.status = Status.CONVERGED
            elif result.status not in _SOLVED or (settled and result.status is Status.RELAXED):
                self.status = result.status
                return
            elif settled:
                self.step_tol = 0.0
            elif 0.0 < before < math.inf:
                gain = 1.0 - self.place.certificate.primal / before
                self.step_tol = min(FIRST_TOL, PART_OF_GAIN * gain)

    @property
    def _is_done(self) -> bool:
        assert self.place is not None
        certificate = self.place.certificate
        return self.stopping.is_enough(certificate.primal, certificate.dual)

    def _solve(self, oracle: Oracle, solve: Solve) -> Result:
        """A convex step; its rounds count on from those before."""
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
        """Go to the solution of a convex step if it is better.

        Returns the next convex problem, and whether it is still the same.
        """
        here, found = self.place, result.certificate
        assert here is not None
        self.history = self.history + result.history
        self.point = result.dual_point
        steps = [*here.certificates, found]
        if found.primal >= here.certificate.primal:
            known = replace(here.certificate, dual=max(found.dual, here.certificate.dual))
            objectives = [*here.objectives, known.primal]
            self.place = _Place(here.weights, here.imputations, known, objectives, steps)
            return oracle, True
        objectives = [*here.objectives, found.primal]
        self.place = _Place(result.weights, here.imputations, found, objectives, steps)
        imputations = self.latent.impute(result.weights, here.imputations, self.threads)
        changed = self.latent.changes(here.imputations, imputations)
        if not changed.any():
            return oracle, True
        oracle = self.latent.imputed(imputations)
        points = [self.point, _without(self.point, changed)]
        certificate = self._certified(oracle, result.weights, points)
        # Never above that of the imputations before, but for rounding and relaxed searches.
        certificate = replace(certificate, primal=min(certificate.primal, found.primal))
        objectives = [*here.objectives, certificate.primal]
        self.place = _Place(result.weights, imputations, certificate, objectives, steps)
        return oracle, False

    def _certified(self, oracle: Oracle, weights: Floats, points: list[Any]) -> Certificate:
        """Value weights, and the best of some dual points, which is the one to go on from."""
        self.point, dual = _best_start(oracle, points)
        primal = oracle.primal(weights, self.threads)
        if not oracle.exact:  # searches that miss too much may say less than the dual point proves
            primal = max(primal, dual)
        return Certificate(primal, dual, not oracle.exact)

    def result(self) -> LatentResult | None:
        """What has been found so far, if it has begun."""
        if self.place is None:
            return None
        return LatentResult(
            weights=self.place.weights,
            dual_point=self.point,
            certificate=self.place.certificate,
            status=Status(self.status),
            iterations=len(self.history),
            history=self.history,
            imputations=self.place.imputations,
            objectives=self.place.objectives,
            certificates=self.place.certificates,
        )


class _Starts(Stateful):
    """All starts: the best of those that have ended, and the one under way."""

    state_names = ("best", "descent")
    state_types: ClassVar[dict[str, Any]] = {"best": LatentResult | None}

    def __init__(self, first: _Descent) -> None:
        self.best: LatentResult | None = None
        self.descent = first

    def check_state(self) -> None:
        """Evaluate the objectives anew: a file is not believed what its weights are worth."""
        place = self.descent.place
        for known in (self.best, place):
            if known is not None and math.isfinite(known.certificate.primal):
                oracle = self.descent.latent.imputed(known.imputations)
                check_shape("weights", known.weights, oracle.n_features)
                primal = oracle.primal(known.weights, self.descent.threads)
                worth = (1.0 + RESUMED) * known.certificate.primal
                if oracle.exact and primal > worth:
                    raise ValueError(f"its objective is {primal:.6g}, not {worth:.6g}")

    @property
    def ended(self) -> int:
        """How many have."""
        return 0 if self.best is None else len(self.best.restart_objectives)

    def follow(self, descent: _Descent) -> None:
        """The one under way has ended, and this is the next."""
        self.best, self.descent = self.result(), descent

    def result(self) -> LatentResult | None:
        """The best so far; if the last start has been stopped, it says why."""
        best, last = self.best, self.descent.result()
        if last is None:
            return best
        ends = [*(best.restart_objectives if best else []), last.certificate.primal]
        if best is None or last.certificate.primal < best.certificate.primal:
            best = last
        # From a checkpoint, it is a mere string.
        status = Status(best.status if last.status in _FINISHED else last.status)
        return replace(best, status=status, restart_objectives=ends)


@registered("ConvexConcave")
@dataclass(frozen=True, kw_only=True)
class ConvexConcave:
    """The convex-concave procedure around any solver, from several starts.

    Parameters
    ----------
    solver : StructuredSolver
        For the convex steps.
    restarts : int
        Starts; the one that ends at the lowest objective counts.
    max_imputations : int
        Most convex steps of each start.
    """

    solver: StructuredSolver
    restarts: int = 1
    max_imputations: int = 100

    def solve(
        self,
        latent: LatentOracle,
        stopping: Stopping,
        *,
        n_jobs: int = 1,
        seed: int = 0,
        initial: Any = None,
        start: LatentStart | None = None,
        on_iteration: OnIteration | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> LatentResult:
        """Train; never raises for stopping early, the result's status tells.

        Parameters
        ----------
        latent : LatentTrainingSet
        stopping : Stopping
            `tol` is the relative gap between the objective and the least value of the convex
            problem with the same imputations; `max_iter` bounds the rounds of each convex step.
        n_jobs, seed, on_round
            As in `StructuredSolver.solve`.
        init_latent : object or None
            Completions of the first start.
        start : LatentStart or None
            For the first start: complete at these weights, and begin with this dual point.
        checkpoint : Checkpoint or None
            Written between convex steps.

        Raises
        ------
        ProblemError
            If a method of the problem failed; its ``result`` holds what was learned before.
        """

        def solve(oracle: Oracle, bounds: Stopping, point: Any, counted: Any) -> Result:
            shown = on_iteration and (lambda line, weights: on_iteration(counted(line), weights))
            return self.solver.solve(
                oracle, bounds, n_jobs=n_jobs, seed=seed, start=point, on_iteration=shown
            )

        def save(final: bool) -> None:
            if checkpoint is not None:
                checkpoint.offer(lambda: starts, final)

        with Threads(n_jobs) as threads:
            starts = _Starts(_Descent(latent, stopping, threads))
            if checkpoint is not None:
                content, most = (latent, initial, start), stopping.max_iter
                checkpoint.begin(starts, content, self, stopping, seed, max_iter=most)
            try:
                while True:
                    descent, restart = starts.descent, starts.ended
                    if descent.place is None:
                        given, again = (initial, start) if restart == 0 else (None, None)
                        first = latent.init_latent(np.random.default_rng([seed, restart]))
                        if restart == 0 and given is None and again is None:
                            again = self._rehearsed(latent, stopping, n_jobs, seed)
                        descent.begin(first if given is None else given, again)
                    descent.run(self.max_imputations, solve, save)
                    if descent.status not in _FINISHED or restart + 1 >= self.restarts:
                        break
                    starts.follow(_Descent(latent, stopping, threads))
            except KeyboardInterrupt:
                starts.descent.status = Status.INTERRUPTED
            except ProblemError as error:
                error.result = starts.result()
                raise
            found = starts.result()
            if found is None:
                raise KeyboardInterrupt  # before anything was begun
            found = _compared_with_zero(found, latent, stopping, threads)
            if found.status in _FINISHED:
                save(True)
            return found

    def _rehearsed(
        self, latent: LatentOracle, stopping: Stopping, n_jobs: int, seed: int
    ) -> LatentStart | None:
        """Weights of an easier problem, if there is one."""
        oracle = latent.rehearsal()
        if oracle is None:
            return None
        bounds = replace(stopping, tol=max(FIRST_TOL, stopping.tol), may_be_zero=False)
        result = self.solver.solve(oracle, bounds, n_jobs=n_jobs, seed=seed)
        if result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        return LatentStart(result.weights, None)


def _compared_with_zero(
    found: LatentResult, latent: LatentOracle, stopping: Stopping, threads: Threads
) -> LatentResult:
    """Take zero weights if they are better; their objective does not depend on the imputations."""
    oracle = latent.imputed(found.imputations)
    zero = np.zeros(oracle.n_features)
    at_zero = oracle.primal(zero, threads)
    certificate = found.certificate
    if at_zero < certificate.primal:
        found, certificate = replace(found, weights=zero), replace(certificate, primal=at_zero)
    tol = stopping.relative_tol(at_zero)
    return replace(found, certificate=certificate.compared_with_zero(at_zero, tol))


def _best_start(oracle: Oracle, points: list[Any]) -> tuple[Any, float]:
    """The dual point of the highest value, and that value; none if zero is higher.

    A point stays feasible when truths are completed otherwise, but its planes are others then.
    """
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
    """A dual point without the examples that have changed; None for one of another kind."""
    if not isinstance(point, DualPoint):
        return None
    kept = np.flatnonzero(~changed[point.examples])
    outputs = [point.outputs[k] for k in kept.tolist()]
    return DualPoint(point.examples[kept], point.coef[kept], outputs)
