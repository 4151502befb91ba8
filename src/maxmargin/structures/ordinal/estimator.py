"""OrdinalClassifier: one weight vector for all classes, thresholds along it."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import StrOptions

from maxmargin.core.arrays import Floats
from maxmargin.core.inputs import all_classes, check_loss_matrix, label_array
from maxmargin.predictors.declared import estimator
from maxmargin.structures.ordinal.predictor import OrdinalClassifierPredictor
from maxmargin.structures.ordinal.problem import Ordinal, distances
from maxmargin.structures.rows.estimator import RowClassifier
from maxmargin.structures.rows.oracle import Codes
from maxmargin.training.fit import Encoded, Metadata

_POWERS = {"absolute": 1, "squared": 2}


@estimator
class OrdinalClassifier(OrdinalClassifierPredictor, RowClassifier):
    """Ordered classes by one direction and thresholds, with a certificate of optimality.

    Class ``k`` scores ``sum_{j <= k} (<coef_, x> - thresholds_[j])``. Minimises ``1/2 |w|^2 + C *
    sum_i weight_i * hinge_i(w)`` over weights and thresholds. With ascending thresholds and the
    absolute loss, the hinge of an example is the larger of two sums of binary hinges: of the
    thresholds below its class, and of those above.

    Parameters
    ----------
    loss : {"absolute", "squared"} or array-like, default="absolute"
        Distance between the classes; its square; or ``loss[true, predicted]``, in the order of the
        classes (also as dictionary ``{(true, predicted): loss}``).
    classes : array-like, default=None
        The classes in their order, also those missing from `y`; None sorts those in `y`.

    See Also
    --------
    LinearRegressor : Numbers as targets.
    LinearClassifier : Classes without an order.

    Notes
    -----
    For losses that are convex on either side of the true class, as the two by name are, thresholds
    ascend at the optimum, and after a fit up to its tolerance. They are regularised as weights are:
    centre and scale features first.

    Examples
    --------
    >>> import maxmargin as mm
    >>> X = [[0.1], [0.2], [0.4], [0.6], [0.8], [0.9]]
    >>> y = ["cold", "cold", "warm", "warm", "hot", "hot"]
    >>> model = mm.OrdinalClassifier(C=100.0, classes=["cold", "warm", "hot"]).fit(X, y)
    >>> model.predict([[0.0], [0.5], [1.0]]).tolist()
    ['cold', 'warm', 'hot']
    """

    loss: Any = "absolute"
    classes: ArrayLike | None = None

    _parameter_constraints = {
        "loss": [StrOptions(set(_POWERS)), "array-like", dict],
        "classes": ["array-like", None],
    }

    def score(self, X: Any, y: ArrayLike, sample_weight: Any = None) -> float:
        """Minus how many classes predictions are off, on average: zero is perfect."""
        predicted = self._class_scores(X).argmax(axis=1)
        y_true = _ranks(np.asarray(y), self.classes_)
        return -float(np.average(np.abs(predicted - y_true), weights=sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # where classes have no order
        return tags

    def _order(self) -> NDArray[Any] | None:
        """The parameter `classes`, checked."""
        if self.classes is None:
            return None
        classes = label_array(self.classes, "classes")
        if classes.ndim != 1:
            raise ValueError(f"classes must be a list, but has {classes.ndim} dimensions.")
        values, counts = np.unique(classes, return_counts=True)
        if (counts > 1).any():
            raise ValueError(f"classes lists {values[counts > 1].tolist()[0]!r} more than once.")
        return classes

    def _all_classes(self, classes: ArrayLike | None, y: Any) -> NDArray[Any] | None:
        order = self._order()
        return super()._all_classes(classes, y) if order is None else all_classes(classes, order)

    def _metadata(self, examples: Encoded, classes: NDArray[Any] | None) -> Metadata:
        found, order = self._found_classes(examples.y, classes), self._order()
        classes = found if order is None else order
        loss_matrix = self._losses(classes)
        problem = Ordinal(examples.X.shape[1], len(classes), loss_matrix)
        return {"classes_": classes, "loss_matrix_": loss_matrix, "_problem": problem}

    def _codes(self, examples: Encoded, classes: NDArray[Any]) -> Codes:
        return _ranks(examples.y, classes)[:, None]

    def _fitted(self, metadata: Metadata, weights: Floats) -> dict[str, Any]:
        table, thresholds = metadata["_problem"].split(weights)
        return metadata | {
            "coef_": table[:, 0].copy(),
            "thresholds_": thresholds.copy(),
            "_weights": weights,
        }

    def _losses(self, classes: NDArray[Any]) -> Floats:
        if isinstance(self.loss, str):
            return np.asarray(distances(len(classes)) ** _POWERS[self.loss])
        return check_loss_matrix(self.loss, classes)


def _ranks(y: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int32]:
    """The index of each label among the classes."""
    order = np.argsort(classes, kind="stable")
    at = np.searchsorted(classes[order], y)
    ranks = order[np.minimum(at, len(classes) - 1)]
    unknown = np.flatnonzero(classes[ranks] != y)
    if len(unknown):
        raise ValueError(
            f"y[{unknown[0]}] is {y[unknown].tolist()[0]!r}, which is not among the classes: list "
            f"all of them, in their order, in the parameter classes."
        )
    return np.asarray(ranks, dtype=np.int32)
