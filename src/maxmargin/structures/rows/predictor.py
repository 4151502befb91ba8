"""How structures over single rows predict."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.arrays import Floats
from maxmargin.predictors.base import Predictor, check_classes, check_weights
from maxmargin.predictors.checks import check_rows
from maxmargin.predictors.declared import estimator, fitted
from maxmargin.structures.rows.oracle import ClassProblem, RowProblem


@estimator
class RowPredictor(Predictor):
    """Base of the predictors for single rows.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Names of columns; only when trained on data frames.
    """

    classes_: NDArray[Any] = fitted()
    _problem: RowProblem = fitted()
    _weights: Floats = fitted()

    def _check_fitted(self) -> None:
        super()._check_fitted()
        if self._problem.n_inputs != self.n_features_in_:
            raise ValueError("features and weights are not equal in number")
        check_weights("_weights", self._weights, self._problem.n_weights)

    def _potentials(self, X: Any) -> tuple[Floats, Floats]:
        X = check_rows(self, X)
        return self._problem.potentials(X, self._weights)


@estimator
class RowClassifierPredictor(RowPredictor):
    """Base of those whose outputs are a few classes."""

    _problem: ClassProblem = fitted()
    coef_: Floats = fitted()
    loss_matrix_: Floats = fitted()

    def _check_fitted(self) -> None:
        super()._check_fitted()
        check_classes(self.classes_, self._problem.n_classes)

    def decision_function(self, X: Any) -> Floats:
        """Scores.

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            One column a class; with two classes, positive means the second.
        """
        scores = self._class_scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Predicted labels."""
        numbers = self._class_scores(X).argmax(axis=1)
        return np.asarray(self.classes_[numbers])

    def _class_scores(self, X: Any) -> Floats:
        potentials = self._potentials(X)
        return self._problem.class_scores(*potentials)
