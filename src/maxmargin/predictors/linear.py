"""How linear models predict."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.core.arrays import Floats, check_finite
from maxmargin.predictors.base import Predictor, check_weights
from maxmargin.predictors.checks import check_rows
from maxmargin.predictors.declared import estimator, fitted


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
        if sp.issparse(X) and not sp.issparse(self.coef_) and not self.coef_.flags.f_contiguous:
            # Once for all, after loading: in any other order it is copied for each product.
            self.coef_ = np.asfortranarray(self.coef_)
        coef = self.coef_ if sp.issparse(self.coef_) else np.atleast_2d(self.coef_)
        products = X @ coef.T
        dense = products.toarray() if sp.issparse(products) else products
        scores = np.asarray(dense) + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores


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
