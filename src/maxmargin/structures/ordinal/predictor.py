"""How an ordinal classifier predicts."""

from maxmargin.core.arrays import Floats
from maxmargin.predictors.declared import estimator, fitted
from maxmargin.structures.rows.predictor import RowClassifierPredictor


@estimator
class OrdinalClassifierPredictor(RowClassifierPredictor):
    """What a fitted `OrdinalClassifier` has learned, and how it predicts.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        In their order.
    coef_ : ndarray of shape (n_features,)
        The direction; ``X @ coef_`` is where on it examples lie.
    thresholds_ : ndarray of shape (n_classes - 1,)
        Between neighbouring classes.
    loss_matrix_ : ndarray of shape (n_classes, n_classes)
    """

    thresholds_: Floats = fitted()
