"""What every estimator shares: bounds on the solver, callbacks, warnings, warm starts.

What Ctrl-C does to a fit that keeps checkpoints.

Fits that start from the dual solution of the fit before.

What a file may hold of an estimator: attributes it declares, of the types it declares.
"""

import copy
import inspect
import os
import signal
import threading
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import MISSING, field, fields
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, _clone_parametrized
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from maxmargin.core.arrays import SampledHash
from maxmargin.core.certificate import Certificate
from maxmargin.core.checks import check_shape
from maxmargin.core.problem import ProblemError
from maxmargin.core.result import AbsoluteGap, Iteration, Result, Status, Stopping
from maxmargin.core.threads import n_threads
from maxmargin.estimators.checks import check_costs, check_per_sample
from maxmargin.estimators.convergence import NotConvergedWarning, likely_cause
from maxmargin.estimators.declared import Documented, estimator, fitted
from maxmargin.io.checkpoint import Checkpoint


@contextmanager
def first_interrupt_sets(cancelled: threading.Event) -> Iterator[None]:
    """Let the first Ctrl-C set `cancelled`, so that the iteration under way is ended and kept.

    The second one comes at once. Where somebody else handles Ctrl-C, or this is not the main
    thread, nothing changes.
    """
    usual = signal.default_int_handler
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not usual:
        yield
        return

    def cancel(number: int, frame: Any) -> None:
        signal.signal(signal.SIGINT, usual)
        cancelled.set()

    signal.signal(signal.SIGINT, cancel)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


def train_warm(
    model: Any,
    solver: Any,
    oracle: Any,
    shape: Hashable,
    X: Any,
    y: Any,
    attributes: Callable[[Any], dict[str, Any]],
) -> Result:
    """Train an estimator, with `warm_start` from where its last fit ended, if the shapes are equal.

    Parameters
    ----------
    model : CertifiedEstimator
    solver
        With ``solve(oracle, ..., start)``.
    training
    shape : hashable
        What must be the same for a dual solution to fit again.
    X, y, attributes
        As in ``CertifiedEstimator._train``.
    """
    known, point = (model.warm_start and getattr(model, "_warm", None)) or (None, None)
    solve = partial(solver.solve, oracle, start=point if known == shape else None)
    result: Result = model._train(X, y, solve, attributes)
    model._warm = (shape, result.dual_point) if model.warm_start else None
    return result


@estimator
class StoredEstimator:
    """Base of the estimators that files can hold.

    Attributes that a fit sets are declared by ``fitted()``. A file can set no others.
    """

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
    """Refuse what can be no array of class labels, or not of so many.

    Raises
    ------
    ValueError
    """
    labels = classes.tolist()
    plain = all(isinstance(label, str | int | float) for label in labels)
    if classes.ndim != 1 or not plain or n_classes not in (None, len(labels)):
        raise ValueError("classes_ are not the labels of the model's classes")


def check_weights(name: str, weights: Any, *shape: int) -> None:
    """Refuse weights, dense or sparse, that are not of this shape, or no numbers of 64 bits.

    Raises
    ------
    ValueError
    """
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


Floats = NDArray[np.float64]

Solve = Callable[..., Result]
"""Takes `stopping`, `n_jobs`, `seed`, `on_iteration` and perhaps `checkpoint`."""


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
        File to keep the state of the fit in. After a crash ``Checkpoint(path, resume=True)`` goes
        on from it, to the same answer as without the stop.
    n_jobs : int, default=None
        Threads; None means 1 and -1 one for each core. The answer does not depend on it.
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

    @with_callbacks
    def _train(
        self,
        X: Any,
        y: Any,
        solve: Solve,
        attributes: Callable[[Floats], dict[str, Any]],
        cancelled: threading.Event | None = None,
    ) -> Result:
        """Solve, showing it to the callbacks, and set what was learned.

        Nothing of the estimator changes before the end; if the problem fails on the way, what was
        learned before is kept. `attributes` names what weights mean.
        """
        if self.n_jobs == 0:
            raise ValueError("n_jobs is 0: use 1 for one thread, or -1 for one per core.")
        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        cancelled = cancelled or threading.Event()
        stopping = Stopping.within(self.tol, self.max_iter, self.time_limit, cancelled)
        patient: Any = nullcontext()
        kept: dict[str, Checkpoint] = {}
        if self.checkpoint is not None:
            patient = first_interrupt_sets(cancelled)
            kept["checkpoint"] = Checkpoint.of(self.checkpoint)
        try:
            with patient:
                result = solve(
                    stopping=stopping,
                    n_jobs=n_threads(self.n_jobs),
                    seed=int(check_random_state(self.random_state).randint(2**31)),
                    on_iteration=self._on_iteration(X, y, attributes),
                    **kept,
                )
        except ProblemError as error:
            if error.result is not None:
                self.__dict__.update(self._learned(error.result, attributes))
            raise
        fitted = self._learned(result, attributes) | {"_data_fingerprint": _fingerprint(X, y)}
        self.__dict__.update(fitted)
        context.call_on_fit_task_end(
            estimator=self, X=X, y=y, reconstruction_attributes=lambda: fitted
        )
        return result

    def _costs(self, n_samples: int, sample_weight: ArrayLike | None) -> Floats:
        """C of each example."""
        C = np.full(n_samples, float(self.C))
        if sample_weight is not None:
            C *= check_per_sample(sample_weight, n_samples, "sample_weight", "weights")
            if not C.any():
                raise ValueError("All sample weights are zero: at least one must be positive.")
        return check_costs(C)

    def _refuse_checkpoint(self) -> None:
        """For calls of `partial_fit`, which end before there would be one."""
        if self.checkpoint is not None:
            raise ValueError(
                "partial_fit keeps no checkpoint: leave checkpoint out, and save the model between "
                "two calls."
            )

    def _check_fitted(self) -> None:
        """See `StoredEstimator`; all of these must be there."""
        _ = self.certificate_, self.history_, self.n_iter_, self.status_

    def _learned(
        self, result: Result, attributes: Callable[[Floats], dict[str, Any]]
    ) -> dict[str, Any]:
        """Fitted attributes."""
        return attributes(result.weights) | {
            "certificate_": result.certificate,
            "history_": result.history,
            "n_iter_": max(1, result.iterations),
            "status_": str(result.status),
        }

    def _on_iteration(
        self, X: Any, y: Any, attributes: Callable[[Floats], dict[str, Any]]
    ) -> Callable[[Iteration, Callable[[], Floats]], bool] | None:
        """Hand each iteration to the callbacks, if there are any."""
        if not getattr(self, "_skl_callbacks", None):
            return None
        fit_context = self._callback_fit_ctx

        def on_iteration(line: Iteration, weights: Callable[[], Floats]) -> bool:
            arguments = {
                "estimator": self,
                "X": X,
                "y": y,
                "reconstruction_attributes": lambda: attributes(weights()),
            }
            context = fit_context.subcontext(task_name="iteration")
            # Not as metadata, which scikit-learn's ScoringMonitor hands to the scorers.
            context.iteration = line
            context.call_on_fit_task_begin(**arguments)
            return bool(context.call_on_fit_task_end(**arguments))

        return on_iteration

    def _warn_unless_converged(self, result: Result, X: Any) -> None:
        """Say why the solver stopped, and at which gap, unless it did all that was asked for.

        `X` is what it was fitted to, which may be the cause.
        """
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


def _fingerprint(X: Any, y: Any) -> str:
    """A name for the data, which a model keeps: from some of it, so that it costs little."""
    found = SampledHash("X and y")
    found.add(X)
    found.add(y)
    return found.text()


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
