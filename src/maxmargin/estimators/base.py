"""Base of all estimators: stopping, callbacks, warnings, warm starts, stored attributes."""

import copy
import os
import warnings
from collections.abc import Callable
from dataclasses import field
from numbers import Integral, Real
from typing import Any, ClassVar, Self

from sklearn.base import BaseEstimator, _clone_parametrized
from sklearn.callback import CallbackSupportMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from maxmargin.core.arrays import Floats
from maxmargin.core.result import AbsoluteGap, Result, Status
from maxmargin.estimators.convergence import NotConvergedWarning, likely_cause
from maxmargin.io.checkpoint import Checkpoint
from maxmargin.predictors.base import MOST_THREADS, Predictor, callers_level
from maxmargin.predictors.declared import estimator


@estimator
class CertifiedEstimator(CallbackSupportMixin, Predictor, BaseEstimator):
    """Base of all estimators: a fit is a solve with a certificate.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the sum of the hinges.
    tol : float or AbsoluteGap, default=1e-3
        Relative duality gap that is good enough, or an absolute one.
    warm_start : bool, default=False
        Start `fit` from the dual solution of the fit before, also when C has changed.
    max_iter : int, default=10000
        Most iterations.
    time_limit : float, default=None
        Most seconds.
    checkpoint : path or Checkpoint, default=None
        File for the state of the fit; ``Checkpoint(path, resume=True)`` resumes it, with the same
        result as without the interruption.
    random_state : int, RandomState instance or None, default=0
        Order of the examples.
    """

    C: float = field(default=1.0, kw_only=False)
    solver: Any = "auto"
    tol: float | AbsoluteGap = 1e-3
    warm_start: bool = False
    max_iter: int = 10_000
    time_limit: float | None = None
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None
    random_state: Any = 0

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "C": [Interval(Real, 0, None, closed="neither")],
        "tol": [Interval(Real, 0, None, closed="neither"), AbsoluteGap],
        "warm_start": ["boolean"],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "time_limit": [Interval(Real, 0, None, closed="neither"), None],
        "checkpoint": [str, os.PathLike, Checkpoint, None],
        "n_jobs": [Interval(Integral, -MOST_THREADS, MOST_THREADS, closed="both"), None],
        "random_state": ["random_state"],
    }

    def _learned(
        self, result: Result, attributes: Callable[[Floats], dict[str, Any]]
    ) -> dict[str, Any]:
        return attributes(result.weights) | {
            "certificate_": result.certificate,
            "history_": result.history,
            "n_iter_": max(1, result.iterations),
            "status_": str(result.status),
        }

    def _warn_unless_converged(self, result: Result, X: Any) -> None:
        """Warn why the solver stopped, and at which gap; features of `X` may be the cause."""
        hardly_better = result.certificate.at_zero is not None
        done = result.status in (Status.CONVERGED, Status.PASSES, Status.RELAXED)
        if hardly_better and done:
            warning = NotConvergedWarning(
                f"{type(self).__name__} found no weights whose objective is below that of zero "
                f"weights, {result.certificate.at_zero:.6g}, by more than tol={self.tol:g} asks "
                f"for.",
                f"The weights are hardly better than none: take a larger C than {self.C:g}, or "
                f"features that tell the outputs apart.",
            )
            warnings.warn(warning, stacklevel=callers_level())
        if result.status in (Status.CONVERGED, Status.PASSES):
            return
        reasons = {
            Status.MAX_ITER: f"max_iter={self.max_iter} iterations",
            Status.TIME_LIMIT: f"the time limit of {self.time_limit} s",
            Status.INTERRUPTED: "an interrupt",
            Status.STOPPED: "a callback",
            Status.FAILED: "a certificate that contradicts the solver's own account",
        }
        gap = self._gap_in_words(result)
        if result.status is Status.RELAXED:
            warnings.warn(
                f"{type(self).__name__} has converged as far as its relaxed inference can tell: of "
                f"the {gap}, above tol={self.tol:g}, no more can be closed by training on.",
                ConvergenceWarning,
                stacklevel=callers_level(),
            )
            return
        asked = result.status is not Status.MAX_ITER or self.max_iter != type(self).max_iter
        warning = NotConvergedWarning(
            f"{type(self).__name__} was stopped by {reasons[result.status]} at a {gap}, above "
            f"tol={self.tol:g}; the best weights so far are kept"
            f"{', hardly better than zero weights' if hardly_better else ''}.",
            likely_cause(X, result, self.C, asked),
        )
        warnings.warn(warning, stacklevel=callers_level())

    def _gap_in_words(self, result: Result) -> str:
        """The gap, in the units of `tol`."""
        certificate = result.certificate
        if isinstance(self.tol, AbsoluteGap):
            return f"duality gap of {certificate.gap:.2g}"
        return f"relative duality gap of {certificate.relative_gap:.2g}"


@estimator
class HasEngine:
    """For estimators with the parameter `engine`.

    Parameters
    ----------
    engine : {"threads", "processes", "dask"} or distributed.Client, default=None
        Where to train: in this process; in `n_jobs` processes, for inference in pure Python; on the
        workers of a Dask cluster. None takes what `maxmargin.engine` says, or else threads.
    """

    engine: Any = None

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "engine": [StrOptions({"threads", "processes", "dask"}), HasMethods("submit"), None]
    }

    def __sklearn_clone__(self) -> Self:
        # The connection to a cluster stays the same; it cannot be copied.
        bare = copy.copy(self)
        bare.engine = None
        clone: Self = _clone_parametrized(bare)
        clone.engine = self.engine
        return clone

    def __getstate__(self) -> dict[str, Any]:
        # Nor can it be written.
        own: Any = super().__getstate__()
        state = dict(own)  # which may be the estimator's own dictionary
        if "engine" in state and not isinstance(state["engine"], str):
            state["engine"] = None
        return state
