"""Ordinal regression: one weight vector for all classes, and thresholds along it.

Class ``k`` of ``0 .. K-1`` scores ``sum_{j <= k} (<w, x> - threshold_j)``, with thresholds
``1 .. K-1``. With thresholds in ascending order the best class is the number of thresholds below
``<w, x>``.

For a loss that is convex in the prediction on either side of the true class, such as the absolute
and the squared one, thresholds are in ascending order at the optimum. Were two consecutive ones in
descending order, setting both to their mean would shorten the weights and raise the score of the
class between them to the mean of the scores on either side. For examples of that class the hinge
falls; for others the class does not become the most violating one, since its score plus loss is at
most the mean of those on either side. So no hinge would grow. In ascending order, and with the
absolute loss, the hinge of an example is the larger of two sums of binary hinges: of the thresholds
below its class and of those above. (The "all thresholds" or "implicit constraints" loss of ordinal
regression adds both sums, which bounds the absolute error less tightly.)
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.checks import check_shape
from maxmargin.core.registry import registered
from maxmargin.structures.rows.oracle import ClassProblem, Codes

Floats = NDArray[np.float64]


@registered("Ordinal")
class Ordinal(ClassProblem):
    """Ordered classes 0 to n_classes - 1 by one weight vector and thresholds.

    Parameters
    ----------
    n_features : int
        Features of an input.
    n_classes : int
    loss_matrix : array-like of shape (n_classes, n_classes), default=None
        Loss of predicting the column's class where the row's is true; None is the absolute loss.

    See Also
    --------
    maxmargin.OrdinalClassifier : The estimator.

    Examples
    --------
    >>> import maxmargin as mm
    >>> from maxmargin.structures.ordinal.problem import Ordinal
    >>> X, Y = [[0.1], [0.4], [0.6], [0.9]], [0, 1, 1, 2]
    >>> mm.StructuredSVM(Ordinal(1, 3), C=100.0).fit(X, Y).predict([[0.0], [0.5], [1.0]])
    [0, 1, 2]
    """

    def __init__(self, n_features: int, n_classes: int, loss_matrix: Floats | None = None) -> None:
        if loss_matrix is None:
            loss_matrix = distances(n_classes)
        check_shape("the loss matrix", loss_matrix, n_classes, n_classes)
        super().__init__(loss_matrix, n_features, 1, n_classes - 1, fit_intercept=False)

    def parts(self) -> dict[str, Any]:
        return {
            "n_features": self.n_inputs,
            "n_classes": self.n_classes,
            "loss_matrix": self.loss_matrix,
        }

    def factors(self, codes: Codes) -> Codes:
        return codes

    def extras(self, codes: Codes) -> Codes:
        passed = np.arange(1, self.n_classes, dtype=np.int32) <= codes
        return -passed.astype(np.int32)

    def class_scores(self, scores: Floats, extras: Floats) -> Floats:
        passed = np.concatenate([[0.0], np.cumsum(extras)])
        return np.asarray(scores[:, :1] * np.arange(self.n_classes) - passed)


def distances(n_classes: int) -> Floats:
    """The absolute loss of each two classes."""
    ranks = np.arange(n_classes, dtype=np.float64)
    return np.abs(ranks[:, None] - ranks)
