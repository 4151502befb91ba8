"""How a linear classifier predicts."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.arrays import Floats
from maxmargin.predictors.base import check_classes, check_weights
from maxmargin.predictors.declared import estimator, fitted
from maxmargin.predictors.linear import LinearPredictor


@estimator
class LinearClassifierPredictor(LinearPredictor):
    """What a fitted `LinearClassifier` has learned, and how it predicts.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray or sparse array of shape (1, n_features) or (n_classes, n_features)
        One row with two classes. Sparse (CSR) if a fit of sparse rows with many classes has more
        than 2^25 weights.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    history_ : list of Iteration
        Seconds, updates, primal and dual value after each pass (for "one-vs-rest", after each
        class, of the classes so far).
    n_iter_ : int
        Number of passes (for "one-vs-rest", of the class that took most).
    """

    classes_: NDArray[Any] = fitted()
    intercept_: Floats = fitted()

    def decision_function(self, X: Any) -> Floats:
        """Scores.

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            One column a class; with two classes, positive means the second.
        """
        return self._scores(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """Predicted labels."""
        numbers = [
            scores[:, 0] > 0 if scores.shape[1] == 1 else scores.argmax(axis=1)
            for scores in self._score_batches(X)
        ]
        return np.asarray(self.classes_[np.concatenate(numbers).astype(np.intp)])

    def _check_fitted(self) -> None:
        super()._check_fitted()
        check_classes(self.classes_)
        if len(self.classes_) < 2:
            raise ValueError("classes_ are fewer than two")
        n_outputs = 1 if len(self.classes_) == 2 else len(self.classes_)
        check_weights("coef_", self.coef_, n_outputs, self.n_features_in_)
        check_weights("intercept_", self.intercept_, n_outputs)
