"""Classes without any structure, as a structured problem: each has weights of its own."""

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
        What the column's class costs where the row's is right; None is one for every mistake.
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
        self, X: Any, Y: Sequence[Any], cost: Floats, rescaling: str = "margin"
    ) -> RowOracle:
        """The training set with batched searches; a whole array of outputs is checked at once."""
        codes = np.asarray(Y)
        if codes.ndim != 1 or codes.dtype.kind not in "iu" or not self._all_known(codes):
            return super().make_oracle(X, Y, cost, rescaling)
        bound = super().make_oracle(X, Y[:1], cost, rescaling)
        bound.y_true = codes.astype(np.int32)[:, None]
        return bound

    def _all_known(self, codes: NDArray[Any]) -> bool:
        return bool(((codes >= 0) & (codes < self.n_classes)).all())
