"""How linear models predict."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.core.arrays import Floats, check_finite
from maxmargin.predictors.base import Predictor, check_weights
from maxmargin.predictors.checks import check_rows
from maxmargin.predictors.declared import estimator, fitted

BATCH_SCORES = 1 << 23
"""Scores that predictions hold at a time, about."""


@estimator
class LinearPredictor(Predictor):
    """Base of the predictors of linear models.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Names of columns; only when trained on data frames.
    """

    coef_: Any = fitted()
    intercept_: Floats | float = fitted()

    def _scores(self, X: Any) -> Floats:
        """Scores of shape (n_samples,) or, with more than one output, (n_samples, n_outputs)."""
        X = check_rows(self, X, in_order=False)
        scores = self._scored(X, self._table(X))
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def _score_batches(self, X: Any) -> Iterator[Floats]:
        """Scores of some rows at a time, where those of all would take much memory."""
        X = check_rows(self, X, in_order=False)
        table = self._table(X)
        size = 1 + BATCH_SCORES // table.shape[1]
        for at in range(0, X.shape[0], size):
            yield self._scored(X if size >= X.shape[0] else X[at : at + size], table)

    def _table(self, X: Any) -> Any:
        """The weights, of shape (n_features, n_outputs), for products with rows like these."""
        if sp.issparse(self.coef_):
            return self.coef_.T.tocsr() if sp.issparse(X) else self.coef_.T
        if sp.issparse(X) and not self.coef_.flags.f_contiguous:
            # Once for all, after loading: in any other order it is copied for each product.
            self.coef_ = np.asfortranarray(self.coef_)
        return np.atleast_2d(self.coef_).T

    def _scored(self, X: Any, table: Any) -> Floats:
        products = X @ table
        dense = products.toarray() if sp.issparse(products) else products
        return np.asarray(dense) + self.intercept_


@estimator
class LinearRegressorPredictor(LinearPredictor):
    """What a fitted `LinearRegressor` has learned, and how it predicts.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    """

    intercept_: float = fitted()

    def predict(self, X: Any) -> Floats:
        """Predicted values."""
        return self._scores(X)

    def _check_fitted(self) -> None:
        super()._check_fitted()
        one_row = (1,) if sp.issparse(self.coef_) else ()
        check_weights("coef_", self.coef_, *one_row, self.n_features_in_)
        check_finite("intercept_", np.array(self.intercept_))
