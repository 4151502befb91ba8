"""Multiclass classification (Crammer and Singer): one weight vector, or one function, per class."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.core.checks import check_shape
from maxmargin.core.kernel import Candidates, KernelProblem
from maxmargin.core.kernels import LinearKernel
from maxmargin.core.registry import registered
from maxmargin.core.state import Remade
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


@registered("Multiclass")
class Multiclass(Remade, KernelProblem):
    """Classes, each with a function of its own in the feature space of a kernel.

    With two classes it is the binary SVM, with the same C. There is no intercept.

    Parameters
    ----------
    classes : array-like of shape (n_classes,), default=None
        All labels; None takes those of the training data.
    loss_matrix : array-like of shape (n_classes, n_classes), default=None
        Loss of predicting the column's class where the row's is true, classes sorted; None is the
        zero-one loss.

    See Also
    --------
    maxmargin.KernelStructuredSVM
    maxmargin.LinearClassifier : The same without a kernel.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from maxmargin.estimators.kernel import KernelStructuredSVM
    >>> from maxmargin.structures.multiclass.problem import Multiclass
    >>> X, y = load_iris(return_X_y=True)
    >>> model = KernelStructuredSVM(Multiclass(), C=10.0, kernel="rbf", gamma=0.5).fit(X, y)
    >>> model.accuracy(X, y) > 0.97
    True
    """

    label_kernel = LinearKernel()

    def __init__(self, classes: Any = None, loss_matrix: Any = None) -> None:
        self.classes = classes
        self.loss_matrix = loss_matrix

    def parts(self) -> dict[str, Any]:
        return {"classes": self.classes, "loss_matrix": self.loss_matrix}

    def outputs(self, x: Any) -> Sequence[Any]:
        raise ValueError("Multiclass does not know its classes before it is fitted.")

    def loss(self, y_true: Any, y: Any) -> float:
        return float(y_true != y)


@registered("Classes")
class KernelClasses(Remade, KernelProblem):
    """`Multiclass` with the classes of the training data.

    Parameters
    ----------
    classes : ndarray of shape (n_classes,)
        Sorted.
    loss_matrix : ndarray of shape (n_classes, n_classes)

    Attributes
    ----------
    scale : float
        Kernel value of a class with itself: with two classes, what makes it the binary hinge.
    codes : ndarray of shape (n_classes, n_classes)
        Label row of each class: one-hot, times the root of `scale`.
    """

    label_kernel = LinearKernel()

    def __init__(self, classes: NDArray[Any], loss_matrix: Floats) -> None:
        check_shape("the loss matrix", loss_matrix, *2 * [len(classes)])
        self.classes, self.loss_matrix = classes, loss_matrix
        self.scale = 0.5 if len(classes) == 2 else 1.0
        self.codes = np.eye(len(classes)) * np.sqrt(self.scale)
        self._listed: list[Any] = classes.tolist()
        self._numbers = {label: k for k, label in enumerate(self._listed)}

    def parts(self) -> dict[str, Any]:
        return {"classes": self.classes, "loss_matrix": self.loss_matrix}

    def number(self, label: Any) -> int:
        """Index of a label among the classes."""
        return self._numbers[label.item() if isinstance(label, np.generic) else label]

    def outputs(self, x: Any) -> Sequence[Any]:
        return self._listed

    def loss(self, y_true: Any, y: Any) -> float:
        return float(self.loss_matrix[self.number(y_true), self.number(y)])

    def label(self, y: Any) -> Any:
        return self.codes[self.number(y)]

    def candidates(self, x: Any) -> Candidates:
        row = sp.csr_array(x.reshape(1, -1)) if sp.issparse(x) else np.asarray(x)[None, :]
        return Candidates.grid(self._listed, row, self.codes)

    def losses(self, y_true: Any, candidates: Candidates) -> Floats:
        return np.asarray(self.loss_matrix[self.number(y_true)])
