"""LinearRegressor: linear support vector regression."""

from dataclasses import dataclass
from numbers import Real
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin, _fit_context
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import validate_data

from maxmargin.core.checks import LARGEST, are_moderate, check_finite
from maxmargin.core.linear import LinearProblem, ScalarProblem
from maxmargin.data.sources import Source
from maxmargin.estimators.base import check_weights
from maxmargin.estimators.checks import as_floats
from maxmargin.estimators.declared import estimator, fitted
from maxmargin.estimators.linear import LinearEstimator, Targets
from maxmargin.training.streams import CheckedExamples, LinearStream

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _NumberTargets(Targets):
    values: Floats
    epsilon: float
    n_outputs: int = 1

    def problem(self, shared: dict[str, Any]) -> LinearProblem:
        return ScalarProblem.epsilon_insensitive(self.values, self.epsilon, **shared)


@estimator
class LinearRegressor(RegressorMixin, LinearEstimator):
    """Linear support vector regression, with a certificate of optimality.

    Minimises ``1/2 |w|^2 + C * sum_i weight_i * max(0, |y_i - w'x_i| - epsilon)``.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the sum of the losses.
    epsilon : float, default=0.0
        Errors up to this size cost nothing.
    solver : "auto", SequentialDual or StreamedDual, default="auto"
        A solver object with its heuristics set by hand; for a source and for `partial_fit` a
        `StreamedDual`, which says how much memory rows of earlier batches may take.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)

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

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self, X: Any, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Train on examples and their target values.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features) or Source
            A `Source` gives examples and targets in batches, which need not fit in memory together.
            An iteration is then a pass over the source, and Ctrl-C or `time_limit` still
            take what is left of a pass, or one more, for the certificate.
        y : array-like of shape (n_samples,), default=None
            None for a source.
        sample_weight : array-like of shape (n_samples,), default=None
            Multiplies the C of each example.

        Returns
        -------
        self : LinearRegressor
            The fitted estimator.

        Warns
        -----
        ConvergenceWarning
            If `max_iter`, `time_limit`, Ctrl-C or a callback stopped the fit; the best weights so
            far are kept, with their certificate.
        """
        if isinstance(X, Source):
            weights = None if sample_weight is None else as_floats(sample_weight, "sample_weight")
            return self._fit_source(_NumberStream(self, X, y, weights))
        return self._fit(*self._check(X, y, sample_weight), original_X=X)

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from further examples, without those of earlier calls.

        Rows that still matter stay in a cache (`StreamedDual.cache_bytes`) and go on adapting to
        those that follow. A `fit` before is forgotten.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            One row for each example.
        y : array-like of shape (n_samples,)
            The true values.
        sample_weight : array-like of shape (n_samples,), default=None
            Multiplies the C of each example.

        Returns
        -------
        self : LinearRegressor
            The model is ready to predict. ``certificate_.dual`` is a lower bound of the objective
            over all examples so far, at any weights; ``certificate_.primal`` is infinite,
            because nobody can value weights on examples that are gone.
        """
        first = self._online is None
        given, (X, y, C) = X, self._check_samples(X, y, sample_weight, alone=False)
        targets = self._targets(y)
        validate_data(self, given, reset=first, skip_check_array=True)
        self._learn_online(X, targets, C)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def path(
        self, X: Any, y: ArrayLike, Cs: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> list[Self]:
        """A certified model for each C, each fit started from the one before.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            One row for each example.
        y : array-like of shape (n_samples,)
            The true values.
        Cs : array-like of float
            Values of C, in any order.
        sample_weight : array-like of shape (n_samples,), default=None
            Multiplies the C of each example.

        Returns
        -------
        models : list of LinearRegressor
            In the order of `Cs`; this estimator itself stays as it is.
        """
        return self._fit_path(*self._check(X, y, sample_weight), original_X=X, Cs=Cs)

    def predict(self, X: Any) -> Floats:
        """Predicted values.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            One row for each example.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            What is predicted for each input.
        """
        return self._scores(X)

    def _check(
        self, X: Any, y: Any, sample_weight: ArrayLike | None
    ) -> tuple[Any, Any, _NumberTargets, Floats]:
        """Checked features, values, targets and costs."""
        X, y, C = self._check_samples(X, y, sample_weight)
        return X, y, self._targets(y), C

    def _targets(self, y: NDArray[Any]) -> _NumberTargets:
        """Checked values."""
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
        return _NumberTargets(values, float(self.epsilon))

    intercept_: float = fitted()

    def _check_fitted(self) -> None:
        super()._check_fitted()
        one_row = (1,) if sp.issparse(self.coef_) else ()
        check_weights("coef_", self.coef_, *one_row, self.n_features_in_)
        check_finite("intercept_", np.array(self.intercept_))

    def _set_weights(
        self, targets: _NumberTargets, weights: Floats, intercept: Floats
    ) -> dict[str, Any]:
        return {"coef_": weights[:, 0].copy(), "intercept_": float(intercept[0])}


class _NumberStream(LinearStream):
    """Batches of a source whose targets are numbers."""

    estimator: LinearRegressor

    def targets(self, examples: CheckedExamples) -> tuple[Targets, Floats]:
        return self.estimator._targets(examples.y), examples.C
