"""Multiclass: one class for each row, for kernels."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.core.certificate import Certificate
from maxmargin.core.conforming import check_shape
from maxmargin.core.kernel import Candidates, KernelProblem
from maxmargin.core.registry import registered
from maxmargin.core.state import Remade
from maxmargin.core.threads import Threads
from maxmargin.data.labels import label_array
from maxmargin.dual.kernel_model import KernelModel
from maxmargin.dual.kernels import SAMPLE, LinearKernel, ProductKernel, check_gram

Floats = NDArray[np.float64]


@registered("Multiclass")
class Multiclass(Remade, KernelProblem):
    """Classes, each with a function of its own in the space of the kernel (Crammer and Singer).

    With two classes it is the binary SVM, with the same C. There is no intercept.

    Parameters
    ----------
    classes : array-like of shape (n_classes,), default=None
        All labels; None takes those of the training data.
    loss_matrix : array-like of shape (n_classes, n_classes), default=None
        What the column's class costs where the row's is right, classes sorted; None is one for
        every mistake.

    See Also
    --------
    maxmargin.KernelStructuredSVM
    maxmargin.LinearClassifier : The same without a kernel.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from maxmargin.estimators.kernel import KernelStructuredSVM
    >>> from maxmargin.structures.multiclass.kernel import Multiclass
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

    def known_classes(self, y: Sequence[Any]) -> NDArray[Any]:
        """The classes given, which must include all of the training data, or those of the data."""
        labels = label_array(y)
        if labels.ndim != 1 or not len(labels):
            raise ValueError("Multiclass needs one label for each input.")
        classes = np.unique(
            labels if self.classes is None else label_array(self.classes, "classes")
        )
        unknown = np.setdiff1d(labels, classes)
        if len(unknown):
            raise ValueError(f"y has the label {unknown.tolist()[0]!r}, which is not in classes.")
        if len(classes) < 2:
            raise ValueError(
                f"Multiclass needs examples of at least two classes, but y holds only one class, "
                f"{classes.tolist()[0]!r}."
            )
        return classes

    def outputs(self, x: Any) -> Sequence[Any]:
        raise ValueError("Multiclass does not know its classes before it is fitted.")

    def loss(self, y_true: Any, y: Any) -> float:
        return float(y_true != y)


@registered("Classes")
class Classes(Remade, KernelProblem):
    """`Multiclass` with its classes.

    Parameters
    ----------
    classes : ndarray of shape (n_classes,)
        Sorted.
    loss_matrix : ndarray of shape (n_classes, n_classes)
    """

    label_kernel = LinearKernel()

    def __init__(self, classes: NDArray[Any], loss_matrix: Floats) -> None:
        check_shape("the loss matrix", loss_matrix, *2 * [len(classes)])
        self.classes, self.loss_matrix = classes, loss_matrix
        self.numbers = {label: k for k, label in enumerate(classes.tolist())}
        self.codes = np.eye(len(classes)) * np.sqrt(self.scale)
        """Label row of each class."""
        self._listed: list[Any] = classes.tolist()

    def parts(self) -> dict[str, Any]:
        return {"classes": self.classes, "loss_matrix": self.loss_matrix}

    @property
    def scale(self) -> float:
        """Kernel value of a class with itself: with two classes, what makes it the binary hinge."""
        return 0.5 if len(self.classes) == 2 else 1.0

    def number(self, label: Any) -> int:
        """Place of a label among the classes."""
        return self.numbers[label.item() if isinstance(label, np.generic) else label]

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
    """Rows with classes, as the solver for them sees it.

    Dual coefficients are an array of shape (n_samples, n_classes): the factor with which a row
    enters the function of each class. Those of a row add up to zero.

    Parameters
    ----------
    problem : Classes
    X : ndarray or CSR matrix of shape (n_samples, n_features)
    labels : ndarray of shape (n_samples,)
        Class numbers.
    cost : ndarray of shape (n_samples,)
    kernel : Kernel
        Of rows. Is checked on a sample of them.
    """

    def __init__(
        self, problem: Classes, X: Any, labels: NDArray[np.int64], cost: Floats, kernel: Any
    ) -> None:
        self.problem, self.X, self.labels, self.cost = problem, X, labels, cost
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

    relaxed = False
    watch = None
    """Nobody need look at an oracle that no user wrote."""

    @property
    def content(self) -> Any:
        """All that tells these examples from others."""
        problem = self.problem
        rows = self.X, self.labels, self.cost
        return problem.classes, problem.loss_matrix, rows, self.kernel

    def scores_of(self, dual_coef: Floats, threads: Threads) -> Floats:
        """Scores of all classes for all rows, by the model of these coefficients."""
        return class_scores(self.model_of(dual_coef), self.problem.codes, self.X, threads)

    def certify(self, dual_coef: Floats, scores: Floats) -> Certificate:
        """Primal value of the model of these coefficients, and their dual value.

        Parameters
        ----------
        dual_coef : ndarray of shape (n_samples, n_classes)
        scores : ndarray of shape (n_samples, n_classes)
            What `scores_of` says.

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
        return Certificate(half_square + float(self.cost @ hinges), linear - half_square)

    def _check_feasible(self, dual_coef: Floats) -> None:
        own = np.zeros(dual_coef.shape, dtype=np.bool_)
        own[np.arange(len(own)), self.labels] = True
        room = 1e-9 * self.cost[:, None]
        in_bounds = np.where(
            own, (dual_coef >= -room) & (dual_coef <= self.cost[:, None] + room), dual_coef <= room
        )
        if not (in_bounds.all() and (np.abs(dual_coef.sum(axis=1)) <= 1e-7 * self.cost).all()):
            raise ValueError("The dual coefficients are not feasible.")


def class_scores(model: KernelModel, codes: Floats, X: Any, threads: Threads) -> Floats:
    """Scores of all classes, whose label rows are `codes`, for rows: (n_samples, n_classes)."""
    weights = model.weights_of(codes)
    parts = threads.map(lambda some: model.scores(X[some], weights), threads.shares(X.shape[0]))
    return np.concatenate(parts)
