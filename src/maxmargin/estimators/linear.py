"""What the linear classifier and the linear regressor share: from arrays to a certified fit."""

import threading
import time
from abc import ABC, abstractmethod
from dataclasses import field
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted, validate_data

from maxmargin.core.checks import LARGEST, first_immoderate
from maxmargin.core.linear import LinearProblem, OneVersusRest
from maxmargin.core.prior import GaussianPrior, WhitenedFeatures
from maxmargin.core.result import Result, Stopping
from maxmargin.core.threads import n_threads
from maxmargin.estimators.base import CertifiedEstimator
from maxmargin.estimators.checks import (
    as_floats,
    check_bias,
    check_costs,
    check_features,
    check_labels,
    check_lengths,
    check_per_sample,
)
from maxmargin.estimators.declared import estimator, fitted
from maxmargin.estimators.pruning import Prunable, dense, smaller
from maxmargin.solvers.sequential_dual import SequentialDual
from maxmargin.solvers.streamed_dual import OnlineDual, StreamedDual

if TYPE_CHECKING:
    from maxmargin.training.streams import LinearStream

Floats = NDArray[np.float64]

SPARSE_BELOW, DENSE_ABOVE = 0.3, 0.7
"""Features with fewer non-zeros than the one fraction are faster in a sparse matrix, with more than
the other in a dense one, which is then also the smaller."""


class Targets(ABC):
    """The training targets as one kind of estimator understands them, and how many outputs."""

    n_outputs: int

    @abstractmethod
    def problem(self, shared: dict[str, Any]) -> LinearProblem | OneVersusRest:
        """The optimisation problem on features and geometry `shared`, which holds `C`."""


@estimator
class LinearEstimator(CertifiedEstimator, Prunable):
    """Base of `LinearClassifier` and `LinearRegressor`.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the sum of the losses.
    fit_intercept : bool, default=True
        Learn an intercept, as the weight of a constant feature.
    intercept_scaling : float, default=1.0
        Value of the constant feature. The larger, the less the intercept is regularised.
    nonnegative : bool, default=False
        Allow no negative weights (the intercept may be negative).
    prior : GaussianPrior or (mean, covariance), default=None
        Gaussian prior on the weights.
    solver : "auto", SequentialDual or StreamedDual, default="auto"
        A solver object with its heuristics set by hand; for a source and for `partial_fit` a
        `StreamedDual`, which says how much memory rows of earlier batches may take.
    max_iter : int, default=10000
        Most passes over the (active) examples; for a source, passes that learn.
    n_jobs : int, default=None
        Threads; None means 1 and -1 one for each core.
    random_state : int, RandomState instance or None, default=0
        Order of the examples. Same seed and `n_jobs`, same answer, bit for bit.
    """

    fit_intercept: bool = True
    intercept_scaling: float = 1.0
    nonnegative: bool = False
    prior: Any = None

    _parameter_constraints = {
        "fit_intercept": ["boolean"],
        "intercept_scaling": [Interval(Real, 0, None, closed="neither")],
        "nonnegative": ["boolean"],
        "prior": [GaussianPrior, tuple, None],
        "solver": [StrOptions({"auto"}), SequentialDual, StreamedDual],
    }

    coef_: Any = fitted()
    intercept_: Floats | float = fitted()

    _online: OnlineDual | None = field(default=None, init=False)

    def _keep_weights(self, keep: NDArray[np.bool_]) -> None:
        self.coef_ = smaller(np.where(keep, dense(self.coef_), 0.0))

    @abstractmethod
    def _set_weights(self, targets: Any, weights: Floats, intercept: Floats) -> dict[str, Any]:
        """Fitted attributes that hold the model.

        Takes weights of shape (n_features, n_outputs) and intercepts of shape (n_outputs,).
        """

    @property
    def _solver(self) -> SequentialDual:
        if isinstance(self.solver, StreamedDual):
            raise ValueError(
                "solver=StreamedDual(...) is for sources and for partial_fit: leave the solver out "
                "for data in memory."
            )
        return SequentialDual() if self.solver == "auto" else self.solver

    @property
    def _streamed_solver(self) -> StreamedDual:
        if isinstance(self.solver, SequentialDual):
            raise ValueError(
                "solver=SequentialDual(...) needs all data in memory: for sources and partial_fit "
                "leave the solver out, or use StreamedDual."
            )
        return StreamedDual() if self.solver == "auto" else self.solver

    @property
    def _bias(self) -> float:
        return float(self.intercept_scaling) if self.fit_intercept else 0.0

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
        self._check_geometry(features)
        if self.nonnegative and not features.keeps_signs:
            raise ValueError(
                "nonnegative=True needs a prior with a diagonal covariance, not a full one: with a "
                "full covariance the bounds do not separate."
            )
        return features

    def _check_geometry(self, features: WhitenedFeatures) -> None:
        """Refuse a prior, or a constant feature, that makes large numbers of moderate ones."""
        check_bias(self._bias)
        if self.prior is None:
            return
        origin = np.zeros((0, 1)) if features.origin is None else features.origin
        if first_immoderate(features.X) is not None or first_immoderate(origin) is not None:
            raise ValueError(
                f"The prior scales features or weights beyond {LARGEST:g}, whose squares overflow: "
                f"take a mean and a covariance nearer to 1."
            )

    def _origin(self, features: WhitenedFeatures) -> Floats | None:
        if features.origin is None or not features.origin.any():
            return None
        return np.vstack([features.origin, np.zeros(features.origin.shape[1])])

    def _fit(self, X: Any, y: Any, targets: Targets, C: Floats, original_X: Any) -> Self:
        """Fit with everything checked; nothing of the estimator changes before the end."""
        start = getattr(self, "_warm", None) if self.warm_start else None
        if start is not None and start[0].shape != (X.shape[0], targets.n_outputs):
            start = None
        result = self._fit_from(start, X, y, targets, C, original_X, threading.Event())
        self._warm = (result.dual_point, self.C) if self.warm_start else None
        self._warn_unless_converged(result, X)
        return self

    def _fit_from(
        self,
        start: tuple[Floats, float] | None,
        X: Any,
        y: Any,
        targets: Targets,
        C: Floats,
        original_X: Any,
        cancelled: threading.Event,
    ) -> Result:
        """Fit from the dual point of another C."""
        features = self._features(X, targets.n_outputs)
        problem = self._problem(features, targets, C)
        carried = None if start is None else _carried_over(problem, *start, self.C)

        def attributes(weights: Floats) -> dict[str, Any]:
            return self._model(features, targets, weights)

        solve = partial(self._solver.solve, problem, start=carried)
        result: Result = self._train(X, y, solve, attributes, cancelled)
        validate_data(self, original_X, skip_check_array=True)
        self._online = None
        return result

    def _problem(
        self, features: WhitenedFeatures, targets: Targets, C: Floats
    ) -> LinearProblem | OneVersusRest:
        return targets.problem(
            {
                "X": features.X,
                "C": C,
                "bias": self._bias,
                "nonnegative": self.nonnegative,
                "origin": self._origin(features),
            }
        )

    def _model(
        self, features: WhitenedFeatures, targets: Targets, weights: Floats
    ) -> dict[str, Any]:
        """Fitted attributes that weights in the space of `features` make up."""
        original = features.unwhiten(weights[:-1])
        fitted = self._set_weights(targets, original, self._bias * weights[-1])
        return fitted | {"n_features_in_": len(original)}

    def _fit_source(self, stream: "LinearStream") -> Self:
        """Fit on batches of a source."""
        solve = partial(self._streamed_solver.solve, stream)
        result: Result = self._train(
            stream.source, None, solve, lambda weights: self._model(*stream.about(), weights)
        )
        self.__dict__.pop("feature_names_in_", None)
        self._warm = self._online = None
        self._warn_unless_converged(result, None)
        return self

    def _learn_online(self, X: Any, targets: Targets, C: Floats) -> None:
        """Dual coordinate steps on further examples, which have been checked."""
        self._refuse_checkpoint()
        solver = self._streamed_solver
        features = self._features(X, targets.n_outputs)
        problem = self._problem(features, targets, C)
        online = self._online
        if online is None:
            seed = int(check_random_state(self.random_state).randint(2**31))
            online = OnlineDual(solver.cache_bytes, seed)
        started = time.perf_counter()
        online.learn(problem, n_threads(self.n_jobs), Stopping.within(self.tol))
        before = self.history_ if online.calls > 1 else []
        seconds = time.perf_counter() - started + (before[-1].seconds if before else 0.0)
        self.__dict__.update(
            self._model(features, targets, online.weights)
            | {
                "certificate_": online.certificate,
                "history_": [*before, online.as_iteration(seconds)],
                "n_iter_": online.calls,
                "status_": "partial",
                "_online": online,
                "_warm": None,
            }
        )

    def _fit_path(
        self, X: Any, y: Any, targets: Targets, C: Floats, original_X: Any, Cs: ArrayLike
    ) -> list[Self]:
        """One fit for each C, from the smallest up, each started from the one before."""
        given = np.atleast_1d(as_floats(Cs, "Cs"))
        if given.ndim != 1 or not given.size or not (np.isfinite(given) & (given > 0)).all():
            raise ValueError(f"Cs must be a list of positive numbers, but is {Cs!r}.")
        values = given.tolist()
        models: dict[float, Self] = {}
        start = None
        cancelled = threading.Event()  # Ctrl-C ends the fits that are still to come, too
        for value in sorted(set(values)):
            model = clone(self).set_params(C=value)
            scaled = check_costs(C * (value / self.C))
            result = model._fit_from(start, X, y, targets, scaled, original_X, cancelled)
            start = (result.dual_point, value)
            model._warn_unless_converged(result, X)
            models[value] = model
        return [models[value] for value in values]

    def _check_samples(
        self, X: Any, y: Any, sample_weight: ArrayLike | None, alone: bool = True
    ) -> tuple[Any, NDArray[Any], Floats]:
        """Checked features and targets, and the C of each example.

        If they are not `alone`, something may be learned from others.
        """
        name = type(self).__name__
        y = check_labels(y, name)
        X = check_features(X, name)
        check_lengths(X, y)
        if alone and not self.fit_intercept and not np.any(X.data if sp.issparse(X) else X):
            raise ValueError(
                "Every row of X is zero and fit_intercept is False, so there is nothing to learn "
                "from: check how X was made."
            )
        C = np.full(X.shape[0], float(self.C))
        if sample_weight is not None:
            C *= check_per_sample(sample_weight, len(C), "sample_weight", "weights")
            if alone and not C.any():
                raise ValueError("All sample weights are zero: at least one must be positive.")
        return X, y, check_costs(C)

    def _scores(self, X: Any) -> Floats:
        """Scores of shape (n_samples,) or, with more than one output, (n_samples, n_outputs)."""
        check_is_fitted(self)
        given, X = X, check_features(X, type(self).__name__)
        validate_data(self, given, reset=False, skip_check_array=True)
        coef = self.coef_ if sp.issparse(self.coef_) else np.atleast_2d(self.coef_)
        scores = np.asarray(safe_sparse_dot(X, coef.T, dense_output=True)) + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


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
