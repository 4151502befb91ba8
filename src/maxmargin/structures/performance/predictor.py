"""How a classifier trained for a performance measure predicts."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.arrays import Floats
from maxmargin.predictors.base import Predictor, check_classes, check_weights
from maxmargin.predictors.checks import check_rows
from maxmargin.predictors.declared import estimator, fitted


@estimator
class PerformanceClassifierPredictor(Predictor):
    """What a fitted `PerformanceClassifier` has learned, and how it predicts.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
    coef_ : ndarray of shape (1, n_features)
        Towards the positive class.
    intercept_ : ndarray of shape (1,)
    pos_label_ : label
        The positive class.
    n_features_in_ : int
    """

    classes_: NDArray[Any] = fitted()
    pos_label_: bool | int | float | str = fitted()
    coef_: Floats = fitted()
    intercept_: Floats = fitted()

    def _check_fitted(self) -> None:
        super()._check_fitted()
        check_classes(self.classes_, 2)
        if self.pos_label_ not in self.classes_.tolist():
            raise ValueError("the positive class is none of the classes")
        check_weights("coef_", self.coef_, 1, self.n_features_in_)
        check_weights("intercept_", self.intercept_, 1)

    def decision_function(self, X: Any) -> Floats:
        """Score of each row; the positive class where it is above zero."""
        X = check_rows(self, X)
        return np.asarray(np.ravel(X @ self.coef_[0]) + self.intercept_[0])

    def predict(self, X: Any) -> NDArray[Any]:
        """Class of each row."""
        called = self.decision_function(X) > 0.0
        larger = called if self.classes_[1] == self.pos_label_ else ~called
        return np.asarray(self.classes_[larger.astype(np.intp)])
