"""What the linear classifier and the linear regressor share: from arrays to a certified fit."""

import os
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from maxmargin.estimators.checks import (
    as_floats,
    check_features,
    check_lengths,
    check_per_sample,
    one_sentence,
)
from maxmargin.problems.linear import LinearProblem, OneVersusRest
from maxmargin.problems.prior import GaussianPrior, WhitenedFeatures
from maxmargin.solvers.result import Result, Round, Status
from maxmargin.solvers.sequential_dual import SequentialDual
from maxmargin.solvers.stopping import Stopping

Floats = NDArray[np.float64]

SPARSE_BELOW, DENSE_ABOVE = 0.3, 0.7
"""Features with fewer non-zeros than the one share are faster in a sparse matrix, with more than
the other in a dense one, which is then also the smaller."""


class Targets(ABC):
    """The training targets as one kind of estimator understands them, and how many outputs."""

    n_outputs: int

    @abstractmethod
    def problem(self, shared: dict[str, Any]) -> LinearProblem | OneVersusRest:
        """The optimisation problem on features and geometry `shared`, which holds `cost`."""


class LinearEstimator(CallbackSupportMixin, BaseEstimator, ABC):
    """Base of `LinearClassifier` and `LinearRegressor`."""

    _parameter_constraints: dict[str, list[Any]] = {
        "C": [Interval(Real, 0, None, closed="neither")],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "fit_intercept": ["boolean"],
        "intercept_scaling": [Interval(Real, 0, None, closed="neither")],
        "nonnegative": ["boolean"],
        "prior": [GaussianPrior, tuple, None],
        "warm_start": ["boolean"],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "time_limit": [Interval(Real, 0, None, closed="neither"), None],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "solver": [StrOptions({"auto"}), SequentialDual],
    }

    C: float
    tol: float
    fit_intercept: bool
    intercept_scaling: float
    nonnegative: bool
    prior: GaussianPrior | tuple[Any, Any] | None
    warm_start: bool
    max_iter: int
    time_limit: float | None
    n_jobs: int | None
    random_state: Any
    solver: Any

    coef_: Floats
    intercept_: Floats | float

    @abstractmethod
    def _set_weights(self, targets: Any, weights: Floats, intercept: Floats) -> dict[str, Any]:
        """Fitted attributes that hold the model.

        Takes weights of shape (n_features, n_outputs) and intercepts of shape (n_outputs,).
        """

    def _solve(
        self,
        X: Any,
        y: Any,
        targets: Targets,
        cost: Floats,
        start: tuple[Floats, float] | None,
        cancelled: threading.Event,
    ) -> tuple[Result, dict[str, Any]]:
        """Build the problem, solve it, and name what was learned."""
        if self.n_jobs == 0:
            raise ValueError("n_jobs is 0: use 1 for one thread, or -1 for one per core.")
        features = self._features(X, targets.n_outputs)
        shared = {
            "X": features.X,
            "cost": cost,
            "bias": float(self.intercept_scaling) if self.fit_intercept else 0.0,
            "nonnegative": self.nonnegative,
            "origin": self._origin(features),
        }
        problem = targets.problem(shared)

        def attributes(weights: Floats) -> dict[str, Any]:
            original = features.unwhiten(weights[:-1])
            intercept = shared["bias"] * weights[-1]
            fitted = self._set_weights(targets, original, intercept)
            return fitted | {"n_features_in_": X.shape[1]}

        result = self._solver.solve(
            problem,
            Stopping(self.tol, self.max_iter, self.time_limit, cancelled),
            n_jobs=_n_threads(self.n_jobs),
            seed=int(check_random_state(self.random_state).randint(2**31)),
            start=None if start is None else _carried_over(problem, *start, self.C),
            on_round=self._on_round(X, y, attributes),
        )
        fitted = attributes(result.weights) | {
            "certificate_": result.certificate,
            "history_": result.history,
            "n_iter_": max(1, result.rounds),
            "status_": str(result.status),
        }
        return result, fitted

    @property
    def _solver(self) -> SequentialDual:
        return SequentialDual() if self.solver == "auto" else self.solver

    def _features(self, X: Any, n_outputs: int) -> WhitenedFeatures:
        prior = self.prior
        if isinstance(prior, tuple):
            if len(prior) != 2:
                raise ValueError(
                    f"prior must be a GaussianPrior or a pair (mean, covariance), but has "
                    f"{len(prior)} parts."
                )
            prior = GaussianPrior(*prior)
        n_entries = X.shape[0] * X.shape[1]
        if sp.issparse(X) and X.nnz > DENSE_ABOVE * n_entries:
            X = X.toarray()
        elif not sp.issparse(X) and np.count_nonzero(X) < SPARSE_BELOW * n_entries:
            X = sp.csr_array(X)
        features = (prior or GaussianPrior()).whiten(X, n_outputs)
        if self.nonnegative and not features.keeps_signs:
            raise ValueError(
                "nonnegative=True needs a prior with a diagonal covariance, not a full one: with a "
                "full covariance the bounds do not separate."
            )
        return features

    def _origin(self, features: WhitenedFeatures) -> Floats | None:
        if features.origin is None or not features.origin.any():
            return None
        return np.vstack([features.origin, np.zeros(features.origin.shape[1])])

    def _on_round(
        self, X: Any, y: Any, attributes: Callable[[Floats], dict[str, Any]]
    ) -> Callable[[Round, Callable[[], Floats]], bool] | None:
        """Hand each round to the callbacks, if there are any."""
        if not getattr(self, "_skl_callbacks", None):
            return None
        fit_context = self._callback_fit_ctx

        def on_round(line: Round, weights: Callable[[], Floats]) -> bool:
            arguments = {
                "estimator": self,
                "X": X,
                "y": y,
                "metadata": {"round": line, "tol": self.tol},
                "reconstruction_attributes": lambda: attributes(weights()),
            }
            context = fit_context.subcontext(task_name="round")
            context.call_on_fit_task_begin(**arguments)
            return bool(context.call_on_fit_task_end(**arguments))

        return on_round

    def _fit(self, X: Any, y: Any, targets: Targets, cost: Floats, original_X: Any) -> Self:
        """Fit with everything checked; nothing of the estimator changes before the end."""
        start = getattr(self, "_warm", None) if self.warm_start else None
        if start is not None and start[0].shape != (X.shape[0], targets.n_outputs):
            start = None
        result = self._fit_from(start, X, y, targets, cost, original_X, threading.Event())
        self._warm = (result.dual_coef, self.C) if self.warm_start else None
        _warn_unless_converged(self, result)
        return self

    @with_callbacks
    def _fit_from(
        self,
        start: tuple[Floats, float] | None,
        X: Any,
        y: Any,
        targets: Targets,
        cost: Floats,
        original_X: Any,
        cancelled: threading.Event,
    ) -> Result:
        """Fit from a start, showing it to the callbacks."""
        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        result, fitted = self._solve(X, y, targets, cost, start, cancelled)
        validate_data(self, original_X, skip_check_array=True)
        self.__dict__.update(fitted)
        context.call_on_fit_task_end(
            estimator=self, X=X, y=y, reconstruction_attributes=lambda: fitted
        )
        return result

    def _fit_path(
        self, X: Any, y: Any, targets: Targets, cost: Floats, original_X: Any, Cs: ArrayLike
    ) -> list[Self]:
        """One fit for each C, from the smallest up, each started from the one before."""
        given = np.atleast_1d(as_floats(Cs, "Cs"))
        if given.ndim != 1 or not given.size or not (np.isfinite(given) & (given > 0)).all():
            raise ValueError(f"Cs must be a list of positive numbers, but is {Cs!r}.")
        values = given.tolist()
        models: dict[float, Self] = {}
        start = None
        cancelled = threading.Event()  # Ctrl-C ends the fits that are still to come, too
        for C in sorted(set(values)):
            model = clone(self).set_params(C=C)
            scaled = cost * (C / self.C)
            result = model._fit_from(start, X, y, targets, scaled, original_X, cancelled)
            start = (result.dual_coef, C)
            _warn_unless_converged(model, result)
            models[C] = model
        return [models[C] for C in values]

    def _check_samples(
        self, X: Any, y: Any, sample_weight: ArrayLike | None
    ) -> tuple[Any, NDArray[Any], Floats]:
        """Checked features and targets, and the C of each example."""
        name = type(self).__name__
        if y is None:
            raise ValueError(f"{name} requires y to be passed, but the target y is None.")
        X = check_features(X, name)
        try:
            y = column_or_1d(y, warn=True)
        except ValueError as error:
            raise ValueError(one_sentence(str(error), y, "y")) from error
        check_lengths(X, y)
        if not self.fit_intercept and not np.any(X.data if sp.issparse(X) else X):
            raise ValueError(
                "Every row of X is zero and fit_intercept is False, so there is nothing to learn "
                "from: check how X was made."
            )
        cost = np.full(X.shape[0], float(self.C))
        if sample_weight is not None:
            cost *= check_per_sample(sample_weight, len(cost), "sample_weight", "weights")
            if not cost.any():
                raise ValueError("All sample weights are zero: at least one must be positive.")
        return X, y, cost

    def _scores(self, X: Any) -> Floats:
        """Scores of shape (n_samples,) or, with more than one output, (n_samples, n_outputs)."""
        check_is_fitted(self)
        given, X = X, check_features(X, type(self).__name__)
        validate_data(self, given, reset=False, skip_check_array=True)
        scores = np.asarray(X @ np.atleast_2d(self.coef_).T) + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _n_threads(n_jobs: int | None) -> int:
    if n_jobs is None:
        return 1
    cores = os.cpu_count() or 1
    return n_jobs if n_jobs > 0 else max(1, cores + 1 + n_jobs)


def _carried_over(
    problem: LinearProblem | OneVersusRest, dual_coef: Floats, old_C: float, new_C: float
) -> Floats:
    """Dual coefficients of another C as a start: as they are or in proportion, what is better."""
    scaled = dual_coef * (new_C / old_C)
    if isinstance(problem, OneVersusRest):
        columns = [
            _carried_over(part, dual_coef[:, [m]], old_C, new_C)
            for m, part in enumerate(problem.parts)
        ]
        return np.hstack(columns)
    candidates = [problem.feasible(dual_coef), problem.feasible(0.0 * dual_coef)]
    if old_C != new_C:
        candidates.append(problem.feasible(scaled))
    return max(candidates, key=problem.dual)


def _warn_unless_converged(estimator: LinearEstimator, result: Result) -> None:
    if result.status is Status.CONVERGED:
        return
    reasons = {
        Status.MAX_ITER: f"max_iter={estimator.max_iter} rounds",
        Status.TIME_LIMIT: f"the time limit of {estimator.time_limit} s",
        Status.INTERRUPTED: "an interrupt",
        Status.STOPPED: "a callback",
    }
    gap = result.certificate.relative_gap
    warnings.warn(
        f"{type(estimator).__name__} was stopped by {reasons[result.status]} at a relative duality "
        f"gap of {gap:.2g}, above tol={estimator.tol:g}; the best weights so far are kept.",
        ConvergenceWarning,
        stacklevel=5,  # the line that called fit or path
    )
