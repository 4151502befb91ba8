"""LowRankKernel: features whose inner products are nearly a kernel, for every linear model.

Any problem with a low-rank kernel, as a linear one: for every linear solver.
"""

from collections.abc import Sequence
from dataclasses import field
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    _fit_context,
)
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from maxmargin.core.checks import check_shape
from maxmargin.core.kernels import NAMES, SAMPLE, Kernel, check_gram, make_kernel
from maxmargin.core.problem import Problem
from maxmargin.estimators.base import StoredEstimator, check_weights
from maxmargin.estimators.checks import check_features
from maxmargin.estimators.declared import estimator, fitted

Floats = NDArray[np.float64]

_PER_COMPONENT = 20
"""Rows that a pivot is chosen among, for each component: enough, and their cost is O(k^3)."""

_NOTHING_LEFT = 1e-10
"""Part of the largest diagonal entry below which a row is in the span of those chosen."""


@estimator
class LowRankKernel(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, StoredEstimator, BaseEstimator
):
    """Features of rank k, from the kernel with k basis rows.

    With ``K`` the Gram matrix of the basis and ``K = L L'``, the features of ``x`` are
    ``L^-1 (k(x, b_1), ..., k(x, b_k))``. Their inner products are those of the kernel, projected on
    the span of the basis. Any linear model on them is a kernel model whose weights lie
    in that span. Takes ``n k`` values of the kernel, ``O(k^3)`` for the basis, and a product of
    matrices.

    Parameters
    ----------
    kernel : {"linear", "rbf", "polynomial"}, Kernel or callable, default="rbf"
    n_components : int, default=100
        Basis rows; fewer are taken if these span all the others.
    gamma : float, default=None
        Of "rbf" and "polynomial"; None is one over the number of features times their variance.
    degree : int, default=3
        Of "polynomial".
    coef0 : float, default=1.0
        Of "polynomial".
    method : {"cholesky", "random"}, default="cholesky"
        Each basis row is drawn with a probability in proportion to what those before it leave of it
        (randomly pivoted Cholesky, on a sample of 20 rows for each component), or all are drawn
        at random.
    random_state : int, RandomState instance or None, default=0
        Draws the basis rows.

    Attributes
    ----------
    basis_ : {ndarray, csr_array} of shape (rank, n_features)
    basis_indices_ : ndarray of shape (rank,)
        Rows of the training data that they are.
    inverse_ : ndarray of shape (rank, rank)
        ``L^-1``.
    kernel_ : Kernel
        With its parameters.
    n_features_in_ : int

    See Also
    --------
    KernelStructuredSVM : All of the kernel.
    sklearn.kernel_approximation.Nystroem : Random rows, and an eigenvalue decomposition.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.pipeline import make_pipeline
    >>> import maxmargin as mm
    >>> from maxmargin.estimators.low_rank import LowRankKernel
    >>> X, y = load_digits(return_X_y=True)
    >>> features = LowRankKernel("rbf", gamma=0.05, n_components=200)
    >>> model = make_pipeline(features, mm.LinearClassifier(C=10.0, tol=1e-2)).fit(X / 16, y)
    >>> model.score(X / 16, y) > 0.99
    True
    """

    kernel: Any = field(default="rbf", kw_only=False)
    n_components: int = field(default=100, kw_only=False)
    gamma: float | None = None
    degree: int = 3
    coef0: float = 1.0
    method: str = "cholesky"
    random_state: Any = 0

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "kernel": [StrOptions(set(NAMES)), Kernel, callable],
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "gamma": [Interval(Real, 0, None, closed="neither"), None],
        "degree": [Interval(Integral, 1, None, closed="left")],
        "coef0": [Real],
        "method": [StrOptions({"cholesky", "random"})],
        "random_state": ["random_state"],
    }

    basis_: Any = fitted()
    basis_indices_: NDArray[np.int64] = fitted()
    inverse_: Floats = fitted()
    kernel_: Kernel = fitted()

    def _check_fitted(self) -> None:
        rank = len(self.inverse_)
        check_weights("inverse_", self.inverse_, rank, rank)
        check_shape("basis_", self.basis_, rank, self.n_features_in_)
        if self.basis_.dtype.kind != "f":
            raise ValueError("basis_ must be numbers")
        if getattr(self.kernel_, "gamma", 1.0) is None:
            raise ValueError("the kernel has no gamma")

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> Self:
        """Choose the basis.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            One row for each example.
        y : ignored
            Ignored.

        Returns
        -------
        self : LowRankKernel
            The fitted estimator.

        Raises
        ------
        KernelError
            If the kernel is not symmetric, or not positive semi-definite.
        """
        rows = check_features(X, type(self).__name__)
        validate_data(self, X, skip_check_array=True)
        made = make_kernel(self.kernel, self.gamma, self.degree, self.coef0)
        self.kernel_ = made.fitted(rows)
        n = rows.shape[0]
        random = check_random_state(self.random_state)
        order = random.permutation(n)
        some = rows[order[:SAMPLE]]
        check_gram(self.kernel_(some, some), self.kernel_.name)
        k = min(self.n_components, n)
        pool = order[: k if self.method == "random" else _PER_COMPONENT * k]
        chosen = pivots(self.kernel_, rows[pool], k, random)
        self.basis_indices_ = pool[chosen]
        self.basis_ = rows[self.basis_indices_]
        gram = self.kernel_(self.basis_, self.basis_)
        gram.flat[:: len(gram) + 1] += 1e-12 * gram.diagonal().max() or 1.0
        factor = np.linalg.cholesky(gram)
        self.inverse_ = scipy.linalg.solve_triangular(factor, np.eye(len(factor)), lower=True)
        return self

    def transform(self, X: Any) -> Floats:
        """Features.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            One row for each example.

        Returns
        -------
        features : ndarray of shape (n_samples, rank)
            One row for each of `X`.
        """
        check_is_fitted(self)
        rows = check_features(X, type(self).__name__)
        validate_data(self, X, reset=False, skip_check_array=True)
        return np.asarray(self.kernel_(rows, self.basis_) @ self.inverse_.T)

    @property
    def _n_features_out(self) -> int:
        return len(self.inverse_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def pivots(kernel: Kernel, rows: Any, k: int, random: Any) -> NDArray[np.int64]:
    """Up to `k` rows that describe the others, by a Cholesky decomposition with random pivots.

    A pivot is drawn with a probability in proportion to what is left of the diagonal: rows that are
    described well already are left alone, and a few outliers do not take it all, as they would
    if the largest were always chosen. Computes the kernel of each chosen row with all rows, and
    nothing else but its diagonal. Ends early when nothing is left to describe.
    """
    n = rows.shape[0]
    left = np.array([kernel(rows[i : i + 1], rows[i : i + 1])[0, 0] for i in range(n)], dtype=float)
    nothing = _NOTHING_LEFT * float(left.max(initial=0.0))
    columns = np.zeros((k, n))
    chosen: list[int] = []
    for j in range(k):
        left[left <= nothing] = 0.0
        total = left.sum()
        if total == 0.0:
            break
        at = int(random.choice(n, p=left / total))
        column = kernel(rows[at : at + 1], rows)[0] - columns[:j, at] @ columns[:j]
        columns[j] = column / np.sqrt(left[at])
        left -= columns[j] ** 2
        left[at] = 0.0
        chosen.append(at)
    if not chosen:  # the kernel is zero everywhere: one feature that says so
        chosen = [0]
    return np.array(chosen, dtype=np.int64)


class LowRankProblem(Problem):
    """A problem whose joint features go through a feature map, such as a fitted `LowRankKernel`.

    Scores are then sums over the basis of the map, and every solver of `StructuredSVM` trains it,
    `OneSlack` included. Inference tries all outputs.

    Parameters
    ----------
    problem : Problem with ``outputs(x)``, or KernelProblem
        Of a `KernelProblem` the parts are mapped.
    features : transformer
        Fitted; ``transform`` takes rows.
    labels : transformer, default=None
        For a `KernelProblem`: map of the labels. The features of an output are then the products
        of those of its part and of its label.

    Examples
    --------
    >>> import numpy as np
    >>> import maxmargin as mm
    >>> from maxmargin.estimators.low_rank import LowRankKernel
    >>> from maxmargin.core.kernel import KernelProblem
    >>> from maxmargin.estimators.low_rank import LowRankProblem
    >>> class Parity(KernelProblem):
    ...     def outputs(self, x):
    ...         return [-1.0, 1.0]
    ...     def loss(self, y_true, y):
    ...         return float(y_true != y)
    >>> X, Y = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), [-1.0, 1.0, 1.0, -1.0]
    >>> features = LowRankKernel("rbf", 4, gamma=1.0).fit(X)
    >>> labels = LowRankKernel("linear", 1).fit([[-1.0], [1.0]])
    >>> problem = LowRankProblem(Parity(), features, labels)
    >>> mm.StructuredSVM(problem, C=10.0, solver="one-slack").fit(X, Y).predict(X)
    [-1.0, 1.0, 1.0, -1.0]
    """

    def __init__(self, problem: Any, features: Any, labels: Any = None) -> None:
        self.problem, self.features, self.labels = problem, features, labels

    def outputs(self, x: Any) -> Sequence[Any]:
        """All outputs of an input."""
        return list(self.problem.outputs(x))

    def joint_feature(self, x: Any, y: Any) -> Floats:
        return np.asarray(self._features(x, [y])[0])

    def loss(self, y_true: Any, y: Any) -> float:
        return float(self.problem.loss(y_true, y))

    def inference(self, x: Any, w: Floats) -> Any:
        outputs = self.outputs(x)
        return outputs[int(np.argmax(self._features(x, outputs) @ w))]

    def loss_augmented_inference(self, x: Any, y_true: Any, w: Floats) -> Any:
        outputs = self.outputs(x)
        losses = np.array([self.loss(y_true, y) for y in outputs])
        return outputs[int(np.argmax(self._features(x, outputs) @ w + losses))]

    def _features(self, x: Any, outputs: Sequence[Any]) -> Floats:
        part = getattr(self.problem, "part", None) or self.problem.joint_feature
        parts = [np.ravel(part(x, y)) for y in outputs]
        features = np.asarray(self.features.transform(np.array(parts)))
        if self.labels is None:
            return features
        labels = [np.ravel(self.problem.label(y)) for y in outputs]
        mapped = np.asarray(self.labels.transform(np.array(labels)))
        products = np.einsum("na,nb->nab", features, mapped)
        return np.asarray(products.reshape(len(outputs), -1))
