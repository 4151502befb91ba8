"""Kernel Crammer-Singer: multiclass classification in the feature space of a kernel, its oracle."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.core.certificate import Certificate
from maxmargin.core.checks import check_shape
from maxmargin.core.kernel import Candidates, KernelProblem
from maxmargin.core.kernel_model import KernelModel
from maxmargin.core.kernels import (
    SAMPLE,
    LinearKernel,
    ProductKernel,
    check_gram,
)
from maxmargin.core.registry import registered
from maxmargin.core.state import Remade
from maxmargin.core.threads import Threads

Floats = NDArray[np.float64]


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
    >>> from maxmargin.core.kernel_multiclass import Multiclass
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


class ClassOracle:
    """Oracle of kernel Crammer-Singer, over rows with one class each.

    Dual coefficients are an array of shape (n_samples, n_classes): the factor with which a row
    enters the function of each class. Those of a row sum to zero.

    Parameters
    ----------
    problem : KernelClasses
    X : ndarray or CSR matrix of shape (n_samples, n_features)
    labels : ndarray of shape (n_samples,)
        Class numbers.
    C : ndarray of shape (n_samples,)
        C of each example.
    kernel : Kernel
        Of rows; checked on a sample of them.
    """

    exact = True
    checker = None  # no user wrote this oracle: its answers need no checks

    def __init__(
        self, problem: KernelClasses, X: Any, labels: NDArray[np.int64], C: Floats, kernel: Any
    ) -> None:
        self.problem, self.X, self.labels, self.C = problem, X, labels, C
        some = X[np.random.default_rng(0).permutation(X.shape[0])[:SAMPLE]]
        self.kernel = kernel.fitted(X)
        check_gram(self.kernel(some, some), self.kernel.name)

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.problem.classes)

    def model_of(self, dual_coef: Floats) -> KernelModel:
        """The model of dual coefficients."""
        used = np.flatnonzero(dual_coef.any(axis=1))
        kernel = ProductKernel(self.kernel, LinearKernel())
        factors = sp.csr_array(dual_coef[used])
        return KernelModel(kernel, self.X[used], self.problem.codes, factors)

    @property
    def content(self) -> Any:
        """What the fingerprint of the training data is taken of."""
        problem = self.problem
        rows = self.X, self.labels, self.C
        return problem.classes, problem.loss_matrix, rows, self.kernel

    def scores_of(self, dual_coef: Floats, threads: Threads) -> Floats:
        """Scores of all classes for all rows, by the model of these coefficients."""
        return class_scores(self.model_of(dual_coef), self.problem.codes, self.X, threads)

    def certify(self, dual_coef: Floats, scores: Floats) -> Certificate:
        """Primal and dual value of coefficients, given what `scores_of` returns for them.

        Raises
        ------
        ValueError
            If the coefficients are not feasible.
        """
        self._check_feasible(dual_coef)
        losses = self.problem.loss_matrix[self.labels]
        own = np.take_along_axis(scores, self.labels[:, None], axis=1)
        hinges = (scores + losses - own).max(axis=1)
        half_square = 0.5 * float(np.sum(dual_coef * scores))
        linear = -float(np.sum(dual_coef * losses))
        return Certificate(half_square + float(self.C @ hinges), linear - half_square)

    def _check_feasible(self, dual_coef: Floats) -> None:
        own = np.arange(self.n_classes) == self.labels[:, None]
        C = self.C[:, None]
        room = 1e-9 * C
        in_bounds = np.where(own, (dual_coef >= -room) & (dual_coef <= C + room), dual_coef <= room)
        if not (in_bounds.all() and (np.abs(dual_coef.sum(axis=1)) <= 1e-7 * self.C).all()):
            raise ValueError("The dual coefficients are not feasible.")


def class_scores(model: KernelModel, codes: Floats, X: Any, threads: Threads) -> Floats:
    """Scores of all classes, whose label rows are `codes`: (n_samples, n_classes)."""
    weights = model.weights_of(codes)
    parts = threads.map(lambda some: model.scores(X[some], weights), threads.shares(X.shape[0]))
    return np.concatenate(parts)
