"""LinearRegressor, and what it shares with LinearClassifier: from arrays to a certified fit."""

import threading
import time
from abc import abstractmethod
from dataclasses import field
from functools import partial
from numbers import Real
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin, _fit_context, clone
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import validate_data

from maxmargin.core.arrays import Floats
from maxmargin.core.inputs import LARGEST, are_moderate, as_floats, check_costs, first_immoderate
from maxmargin.core.linear import (
    GaussianPrior,
    LinearProblem,
    LinearTask,
    OneVersusRest,
    ScalarProblem,
    unwhitened,
)
from maxmargin.core.result import Result
from maxmargin.data.sources import Source
from maxmargin.dual.listed_classes import has_listed_dual
from maxmargin.estimators.base import CertifiedEstimator
from maxmargin.estimators.checks import check_weighted
from maxmargin.estimators.pruning import Prunable, dense, smaller
from maxmargin.predictors.checks import check_names
from maxmargin.predictors.declared import estimator
from maxmargin.predictors.linear import LinearPredictor, LinearRegressorPredictor
from maxmargin.solvers.loop import Stopping
from maxmargin.solvers.sequential_dual import SequentialDual
from maxmargin.solvers.streamed_dual import OnlineDual, StreamedDual
from maxmargin.training.fit import refuse_checkpoint, train
from maxmargin.training.linear_streams import CheckedExamples, LinearStream

_SPARSE_BELOW, _DENSE_ABOVE = 0.3, 0.7
"""Fractions of non-zeros below which a sparse matrix is faster, and above which a dense one is."""


@estimator
class LinearEstimator(LinearPredictor, CertifiedEstimator, Prunable):
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
        Order of the examples. Same seed and `n_jobs`, same result, bit for bit.

    """

    fit_intercept: bool = True
    intercept_scaling: float = 1.0
    nonnegative: bool = False
    prior: Any = None

    _parameter_constraints = {
        "intercept_scaling": [Interval(Real, 0, None, closed="neither")],
        "prior": [GaussianPrior, tuple, None],
        "solver": [StrOptions({"auto"}), SequentialDual, StreamedDual],
    }

    _check_samples = check_weighted

    _arguments = """
    Cs : array-like of float
        Values of C, in any order.
    """

    _pages = {
        "fit": """
        `X` may also be a `Source` of examples and targets in batches, which need not fit in memory
        together; then `y` is left out. An iteration is then a pass over the source, and Ctrl-C or
        `time_limit` still take what is left of a pass, or one more, for the certificate.
        """,
        "partial_fit": """
        Rows that still matter stay in a cache (`StreamedDual.cache_bytes`) and go on adapting to
        those that follow. A `fit` before is forgotten but for its classes.

        Returns
        -------
        self : object
            The model is ready to predict. ``certificate_.dual`` is a lower bound of the objective
            over all examples so far, at any weights; ``certificate_.primal`` is infinite,
            because nobody can value weights on examples that are gone.
        """,
        "path": """
        Returns
        -------
        models : list of estimators
            In the order of `Cs`; this estimator itself stays as it is.
        """,
    }

    _online: OnlineDual | None = field(default=None, init=False)

    def _keep_weights(self, keep: NDArray[np.bool_]) -> None:
        self.coef_ = smaller(np.where(keep, dense(self.coef_), 0.0))

    @abstractmethod
    def _model(self, task: LinearTask, coef: Floats, intercept: Floats) -> dict[str, Any]:
        """Fitted attributes, of shapes (n_features, n_outputs) and (n_outputs,) weights."""

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

    def _fit(self, X: Any, rows: Any, y: Any, task: LinearTask) -> Self:
        """Fit with everything checked; nothing of the estimator changes before the end."""
        start = getattr(self, "_warm", None) if self.warm_start else None
        result = self._fit_from(start, X, rows, y, task)
        self._warm = (result.dual_point, self.C) if self.warm_start else None
        self._warn_unless_converged(result, rows)
        return self

    def _fit_from(
        self,
        start: tuple[Floats, float] | None,
        X: Any,
        rows: Any,
        y: Any,
        task: LinearTask,
        cancelled: threading.Event | None = None,
    ) -> Result:
        """Fit from the dual point of another C."""
        carried = None if start is None else _carried_over(task.problem, *start, self.C)
        solve = partial(self._solver.solve, task.problem, start=carried)
        result: Result = train(self, rows, y, solve, partial(self._attributes, task), cancelled)
        check_names(self, X, reset=True)
        self._online = None
        return result

    def _attributes(self, task: LinearTask, weights: Any) -> dict[str, Any]:
        """Fitted attributes that weights for the features of a problem make up."""
        last = weights[[-1]].toarray()[0] if sp.issparse(weights) else weights[-1]
        coef = unwhitened(weights[:-1], task.root)
        return self._model(task, coef, task.bias * last) | {"n_features_in_": coef.shape[0]}

    def _fit_source(self, stream: LinearStream) -> Self:
        solve = partial(self._streamed_solver.solve, stream)
        result: Result = train(
            self,
            stream.source,
            None,
            solve,
            lambda weights: self._attributes(stream.about, weights),
        )
        self.__dict__.pop("feature_names_in_", None)
        self._warm = self._online = None
        self._warn_unless_converged(result, None)
        return self

    def _learn_online(self, X: Any, task: LinearTask) -> Self:
        """Dual coordinate steps on further examples, which have been checked."""
        online = self._online
        validate_data(self, X, reset=online is None, skip_check_array=True)
        refuse_checkpoint(self)
        solver = self._streamed_solver
        if online is None:
            seed = int(check_random_state(self.random_state).randint(2**31))
            online = OnlineDual(solver.cache_bytes, seed)
        started = time.perf_counter()
        online.learn(task.problem, self.n_jobs, Stopping.within(self.tol))
        before = self.history_ if online.calls > 1 else []
        seconds = time.perf_counter() - started + (before[-1].seconds if before else 0.0)
        self.__dict__.update(
            self._attributes(task, online.weights)
            | {
                "certificate_": online.certificate,
                "history_": [*before, online.as_iteration(seconds)],
                "n_iter_": online.calls,
                "status_": "partial",
                "_online": online,
                "_warm": None,
            }
        )
        return self

    def _fit_path(self, X: Any, rows: Any, y: Any, task: LinearTask, Cs: ArrayLike) -> list[Self]:
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
            problem = task.problem.scaled(value / self.C)
            check_costs(problem.parts[0].C)
            own = task._replace(problem=problem)
            result = model._fit_from(start, X, rows, y, own, cancelled)
            start = (result.dual_point, value)
            model._warn_unless_converged(result, rows)
            models[value] = model
        return [models[value] for value in values]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def geometry(estimator: Any, X: Any, n_outputs: int) -> tuple[dict[str, Any], Floats | None]:
    """Features and geometry of the weights, as problems take them, and the root of the prior."""
    n_entries = X.shape[0] * X.shape[1]
    if sp.issparse(X) and X.nnz > _DENSE_ABOVE * n_entries:
        X = X.toarray()
    elif not sp.issparse(X) and np.count_nonzero(X) < _SPARSE_BELOW * n_entries:
        X = sp.csr_array(X)
    origin = root = None
    if estimator.prior is not None:
        X, origin, root = _prior(estimator.prior).whiten(X, n_outputs)
        known = np.zeros((1, n_outputs)) if origin is None else origin
        if first_immoderate(X) is not None or first_immoderate(known) is not None:
            raise ValueError(
                f"The prior scales features or weights beyond {LARGEST:g}, whose squares overflow: "
                f"take a mean and a covariance nearer to 1."
            )
        if estimator.nonnegative and root is not None and root.ndim == 2:
            raise ValueError(
                "nonnegative=True needs a prior with a diagonal covariance, not a full one: with a "
                "full covariance the bounds do not separate."
            )
        origin = np.vstack([known, np.zeros(n_outputs)]) if known.any() else None
    bias = float(estimator.intercept_scaling) if estimator.fit_intercept else 0.0
    return {"X": X, "bias": bias, "origin": origin, "nonnegative": estimator.nonnegative}, root


def _prior(prior: Any) -> GaussianPrior:
    if isinstance(prior, GaussianPrior):
        return prior
    if len(prior) != 2:
        raise ValueError(
            f"prior must be a GaussianPrior or a pair (mean, covariance), but has "
            f"{len(prior)} parts."
        )
    return GaussianPrior(*prior)


def _carried_over(
    problem: LinearProblem | OneVersusRest, dual_coef: Floats, old_C: float, new_C: float
) -> Floats | None:
    """Dual variables of another C as a start: as they are or in proportion, whichever is better.

    None if they are of other examples or outputs.
    """
    parts = problem.parts
    if dual_coef.shape != (parts[0].n_samples, len(parts) * parts[0].n_outputs):
        return None
    if sp.issparse(dual_coef) != has_listed_dual(problem):
        return None
    factors = [1.0, 0.0] if old_C == new_C else [1.0, 0.0, new_C / old_C]
    owned = [dual_coef] if len(parts) == 1 else np.split(dual_coef, len(parts), axis=1)
    columns = [
        max((part.feasible(factor * own) for factor in factors), key=part.dual)
        for part, own in zip(parts, owned, strict=True)
    ]
    return columns[0] if len(parts) == 1 else np.hstack(columns)


@estimator
class LinearRegressor(RegressorMixin, LinearRegressorPredictor, LinearEstimator):
    """Linear support vector regression, with a certificate of optimality.

    Minimises ``1/2 |w|^2 + C * sum_i weight_i * max(0, |y_i - w'x_i| - epsilon)``.

    Parameters
    ----------
    epsilon : float, default=0.0
        Errors up to this size cost nothing.

    See Also
    --------
    LinearClassifier : The same for labels as targets.
    SequentialDual : The solver.
    StreamedDual : The solver for sources.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> import maxmargin as mm
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = mm.LinearRegressor(C=100.0, epsilon=5.0).fit(X, y)
    >>> bool(model.score(X, y) > 0.4), model.certificate_.relative_gap <= 1e-3
    (True, True)
    """

    epsilon: float = 0.0

    _parameter_constraints = {
        "epsilon": [Interval(Real, 0, None, closed="left")],
    }

    _arguments = """
    y : array-like of shape (n_samples,)
        The true values.
    """

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self, X: Any, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Train on examples and their target values."""
        if isinstance(X, Source):
            return self._fit_source(_NumberStream(self, X, y, sample_weight))
        rows, y, C = self._check_samples(X, y, sample_weight)
        return self._fit(X, rows, y, self._task(rows, y, C))

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from further examples, without those of earlier calls."""
        rows, y, C = self._check_samples(X, y, sample_weight, alone=False)
        return self._learn_online(X, self._task(rows, y, C))

    @_fit_context(prefer_skip_nested_validation=True)
    def path(
        self, X: Any, y: ArrayLike, Cs: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> list[Self]:
        """A certified model for each C, each fit started from the one before."""
        rows, y, C = self._check_samples(X, y, sample_weight)
        return self._fit_path(X, rows, y, self._task(rows, y, C), Cs)

    def _task(self, X: Any, y: NDArray[Any], C: Floats) -> LinearTask:
        try:
            values = y.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"y must hold numbers, but is of type {y.dtype}: use LinearClassifier for labels."
            ) from error
        if not np.isfinite(values).all():
            at = int(np.flatnonzero(~np.isfinite(values))[0])
            raise ValueError(
                f"y[{at}] is {values[at]} (NaN and inf are not allowed): leave that sample out."
            )
        if not are_moderate(values):
            at = int(np.argmax(np.abs(values)))
            raise ValueError(
                f"y[{at}] is {values[at]:g}, but beyond {LARGEST:g} sums of errors overflow: scale "
                f"the targets, to about 1."
            )
        if self.epsilon > LARGEST:
            raise ValueError(f"epsilon is {self.epsilon:g}, but must not be beyond {LARGEST:g}.")
        shared, root = geometry(self, X, 1)
        problem = ScalarProblem.epsilon_insensitive(values, float(self.epsilon), C, **shared)
        return LinearTask(problem, root, shared["bias"])

    def _model(self, task: LinearTask, coef: Floats, intercept: Floats) -> dict[str, Any]:
        return {"coef_": coef[:, 0].copy(), "intercept_": float(intercept[0])}


class _NumberStream(LinearStream):
    """Batches of a source whose targets are numbers."""

    estimator: LinearRegressor

    def task(self, examples: CheckedExamples) -> LinearTask:
        return self.estimator._task(examples.X, examples.y, examples.C)
