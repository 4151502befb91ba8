"""Multiclass classification (Crammer and Singer): one weight vector, or one function, per class."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.structures.rows.oracle import ClassProblem, Codes, RowOracle

Floats = NDArray[np.float64]


class Classes(ClassProblem):
    """Classes 0 to n_classes - 1, each with a weight vector (Crammer and Singer).

    `LinearClassifier` trains the same model faster, from data in memory. This is for what only
    structured solvers do.

    Parameters
    ----------
    n_features : int
        Features of an input.
    n_classes : int
    loss_matrix : array-like of shape (n_classes, n_classes), default=None
        Loss of predicting the column's class where the row's is true; None is the zero-one loss.
    fit_intercept : bool, default=True

    See Also
    --------
    maxmargin.LinearClassifier

    Examples
    --------
    >>> import maxmargin as mm
    >>> from maxmargin.structures.multiclass.problem import Classes
    >>> X, Y = [[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], [0, 1, 2]
    >>> mm.StructuredSVM(Classes(2, 3), C=100.0).fit(X, Y).predict([[2.0, 0.0], [-1.0, -2.0]])
    [0, 2]
    """

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        loss_matrix: Floats | None = None,
        fit_intercept: bool = True,
    ) -> None:
        if loss_matrix is None:
            loss_matrix = 1.0 - np.eye(n_classes)
        super().__init__(loss_matrix, n_features, n_classes, fit_intercept=fit_intercept)

    def factors(self, codes: Codes) -> Codes:
        return np.asarray(np.arange(self.n_classes) == codes, dtype=np.int32)

    def class_scores(self, scores: Floats, extras: Floats) -> Floats:
        return scores[:, : self.n_classes]

    def make_oracle(
        self, X: Any, Y: Sequence[Any], C: Floats, rescaling: str = "margin"
    ) -> RowOracle:
        """The oracle with batched inference; a whole array of outputs is checked at once."""
        codes = np.asarray(Y)
        are_codes = codes.ndim == 1 and codes.dtype.kind in "iu"
        if not are_codes or not ((codes >= 0) & (codes < self.n_classes)).all():
            return super().make_oracle(X, Y, C, rescaling)
        oracle = super().make_oracle(X, Y[:1], C, rescaling)
        oracle.y_true = codes.astype(np.int32)[:, None]
        return oracle
