"""Ordered classes: one weight vector for all classes, thresholds along it.

For losses convex in the prediction on either side of the true class, thresholds ascend at the
optimum: setting two consecutive ones in descending order to their mean would shorten the weights,
and raise the score of the class between to the mean of its neighbours', so that it becomes no most
violating one: no hinge would grow. With the absolute loss, the hinge is then the larger of two sums
of binary hinges, of thresholds below and above the class; "all thresholds" losses add both.
"""

import numpy as np

from maxmargin.core.arrays import Floats
from maxmargin.core.registry import registered
from maxmargin.structures.rows.oracle import ClassProblem, Codes


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
    >>> X, Y = [[0.1], [0.4], [0.6], [0.9]], [0, 1, 1, 2]
    >>> model = mm.StructuredSVM(mm.structures.Ordinal(1, 3), C=100.0).fit(X, Y)
    >>> model.predict([[0.0], [0.5], [1.0]])
    [0, 1, 2]
    """

    def __init__(self, n_features: int, n_classes: int, loss_matrix: Floats | None = None) -> None:
        if loss_matrix is None:
            loss_matrix = distances(n_classes)
        super().__init__(n_classes, loss_matrix, n_features, 1, n_classes - 1, fit_intercept=False)

    def factors(self, codes: Codes) -> Codes:
        return codes

    def extras(self, codes: Codes) -> Codes:
        passed = np.arange(1, self.n_classes, dtype=np.int32) <= codes
        return -passed.astype(np.int32)

    def class_scores(self, scores: Floats, extras: Floats) -> Floats:
        passed = np.concatenate([[0.0], np.cumsum(extras)])
        return np.asarray(scores[:, :1] * np.arange(self.n_classes) - passed)


def distances(n_classes: int) -> Floats:
    """The absolute loss between all pairs of classes."""
    ranks = np.arange(n_classes, dtype=np.float64)
    return np.abs(ranks[:, None] - ranks)
