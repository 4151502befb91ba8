"""Base of all estimators: stopping, callbacks, warnings, warm starts, stored attributes."""

import copy
import inspect
import os
import warnings
from collections.abc import Callable
from dataclasses import MISSING, field, fields
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, _clone_parametrized
from sklearn.callback import CallbackSupportMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from maxmargin.core.arrays import Floats, check_shape
from maxmargin.core.certificate import Certificate
from maxmargin.core.result import AbsoluteGap, Iteration, Result, Status
from maxmargin.estimators.convergence import NotConvergedWarning, likely_cause
from maxmargin.estimators.declared import Documented, estimator, fitted
from maxmargin.io.checkpoint import Checkpoint


@estimator
class StoredEstimator:
    """Base of the estimators that files can hold; a file sets only what ``fitted()`` declares."""

    n_features_in_: int = fitted()
    feature_names_in_: NDArray[np.object_] = fitted()

    @classmethod
    def fitted_types(cls) -> dict[str, Any]:
        """Type hints of the attributes that a fit sets, by name."""
        learned = [one for one in fields(cls) if not one.init and one.default is MISSING]
        return {one.name: one.type for one in learned}

    def _check_fitted(self) -> None:
        """Raise an error if attributes that come from a file do not fit together."""


def check_classes(classes: NDArray[Any], n_classes: int | None = None) -> None:
    """ValueError for what can be no array of class labels, or not of so many."""
    labels = classes.tolist()
    plain = all(isinstance(label, str | int | float) for label in labels)
    if classes.ndim != 1 or not plain or n_classes not in (None, len(labels)):
        raise ValueError("classes_ are not the labels of the model's classes")


def check_weights(name: str, weights: Any, *shape: int) -> None:
    """ValueError for weights, dense or sparse, that are not float64 or not of this shape."""
    check_shape(name, weights, *shape)
    if weights.dtype != np.float64:
        raise ValueError(f"{name} must be numbers of 64 bits")


def callers_level() -> int:
    """The `stacklevel` of a warning that names the line which called the library."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and (frame := frame.f_back) is not None:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith(("maxmargin.", "sklearn.")):
            break
        level += 1
    return level


MOST_THREADS = 1024
"""More than any machine has use for: a number in a file must not be able to ask for them."""


@estimator
class CertifiedEstimator(CallbackSupportMixin, StoredEstimator, Documented, BaseEstimator):
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
    n_jobs : int, default=None
        Threads; None means 1 and -1 one for each core. The result does not depend on it.
    random_state : int, RandomState instance or None, default=0
        Order of the examples.

    Attributes
    ----------
    certificate_ : Certificate
        ``primal``, ``dual``, ``gap`` and ``relative_gap`` over all the training data.
    history_ : list of Iteration
        Seconds, oracle calls, updates, primal and dual value after each iteration.
    n_iter_ : int
        Number of iterations.
    status_ : str
        "converged", or why the fit stopped before.
    """

    C: float = field(default=1.0, kw_only=False)
    solver: Any = "auto"
    tol: float | AbsoluteGap = 1e-3
    warm_start: bool = False
    max_iter: int = 10_000
    time_limit: float | None = None
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None
    n_jobs: int | None = None
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

    certificate_: Certificate = fitted()
    history_: list[Iteration] = fitted()
    n_iter_: int = fitted()
    status_: str = fitted()
    _data_fingerprint: str = fitted()

    def _check_fitted(self) -> None:
        """ValueError unless all of these are there and fit together."""
        _ = self.certificate_, self.history_, self.n_iter_, self.status_

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
