"""Estimators with Mercer kernels: KernelStructuredSVM, LowRankKernel and LowRankProblem."""

from collections.abc import Sequence
from dataclasses import field
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    _fit_context,
)
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import validate_data

from maxmargin.core.arrays import Floats, check_shape
from maxmargin.core.inputs import check_loss_matrix, check_several, costs, label_array
from maxmargin.core.kernel import (
    NAMES,
    SAMPLE,
    Kernel,
    ProductKernel,
    check_gram,
    make_kernel,
    n_rows,
)
from maxmargin.core.kernel_oracle import ClassOracle, KernelClasses, KernelOracle, Multiclass
from maxmargin.core.problem import Problem, check_instance
from maxmargin.estimators.base import CertifiedEstimator
from maxmargin.predictors.base import Stored, check_weights
from maxmargin.predictors.checks import check_features, check_rows
from maxmargin.predictors.declared import estimator, fitted
from maxmargin.predictors.kernel import KernelPredictor, KernelStructuredSVMPredictor, takes_rows
from maxmargin.predictors.structured import HasProblem
from maxmargin.solvers.kernel_classes_dual import KernelClassesDual
from maxmargin.solvers.mini_batch_dual import MiniBatchDual
from maxmargin.training.fit import train_oracle

_PER_COMPONENT = 20
"""Rows that a pivot is chosen among, for each component: enough, and their cost is O(k^3)."""

_NOTHING_LEFT = 1e-10
"""Part of the largest diagonal entry below which a row is in the span of those chosen."""


@estimator
class HasKernel:
    """For estimators with a kernel that may be given by name.

    Parameters
    ----------
    gamma : float, default=None
        Of "rbf" and "polynomial"; None is one over the number of features times their variance.
    degree : int, default=3
        Of "polynomial".
    coef0 : float, default=1.0
        Of "polynomial".
    """

    kernel: Any = "rbf"
    gamma: float | None = None
    degree: int = 3
    coef0: float = 1.0

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "kernel": [StrOptions(set(NAMES)), Kernel, callable],
        "gamma": [Interval(Real, 0, None, closed="neither"), None],
        "degree": [Interval(Integral, 1, None, closed="left")],
        "coef0": [Real],
    }

    def _kernel(self) -> Any:
        return make_kernel(self.kernel, self.gamma, self.degree, self.coef0)


@estimator
class KernelEstimator(KernelPredictor, CertifiedEstimator):
    """Base of the estimators whose model is a `KernelModel`.

    Parameters
    ----------
    rescaling : {"margin", "slack"}, default="margin"
        How the loss enters: it moves the margin, or it multiplies the violation of a margin of one.
    max_iter : int, default=100000
        Most iterations: mini-batches, or updates of the examples that violate their margins most.

    """

    rescaling: str = "margin"
    max_iter: int = 100_000

    _parameter_constraints = {"rescaling": [StrOptions({"margin", "slack"})]}

    def _fit_oracle(self, oracle: Any, auto: Any, X: Any, Y: Any) -> None:
        """Train; if the problem fails on the way, the estimator keeps what was learned before."""
        problem, solver = oracle.problem, auto if self.solver == "auto" else self.solver

        def attributes(model: Any) -> dict[str, Any]:
            known = {"classes_": problem.classes} if isinstance(problem, KernelClasses) else {}
            return known | {
                "model_": model,
                "support_size_": int(model.parts.shape[0]),
                "_problem": problem,
            }

        train_oracle(self, solver, oracle, X, Y, attributes, (type(solver), len(oracle.C)))


@estimator
class KernelStructuredSVM(HasKernel, KernelStructuredSVMPredictor, KernelEstimator, HasProblem):
    """Structural SVM in the space of a kernel, with a certificate of optimality.

    Minimises ``1/2 |w|^2 + C * sum_i weight_i * hinge_i(w)`` with scores ``<w, phi(x, y)>``, of
    which only the kernel ``<phi(x, y), phi(x', y')>`` is known. The model keeps the support
    vectors.

    Parameters
    ----------
    problem : KernelProblem or Problem
        `Multiclass` for classes. A `Problem` must have ``outputs(x)``; the kernel then compares its
        joint features.
    kernel : {"linear", "rbf", "polynomial"}, kernel object or callable, default="rbf"
        A callable is ``k(A, B)``, all values between two batches of rows. Objects are
        `FunctionKernel`, also for pairs of anything, `JointKernel` and `ProductKernel`.
    solver : "auto", MiniBatchDual or KernelClassesDual, default="auto"
        "auto" is `KernelClassesDual` for `Multiclass`, unless a loss matrix rescales its slack, and
        `MiniBatchDual` for all others.

    See Also
    --------
    KernelProblem : What to write.
    StructuredSVM : The same without a kernel.
    LowRankKernel : Features that stand for a kernel, for any linear model.

    Examples
    --------
    A kernel of inputs and outputs. Which of two words rhymes with a word?

    >>> import maxmargin as mm
    >>> class Choice(mm.KernelProblem):
    ...     def outputs(self, x):
    ...         return x[1:]
    ...     def loss(self, y_true, y):
    ...         return float(y_true != y)
    >>> def ends(x, y):
    ...     return [x[0][-k:] == y[-k:] for k in (1, 2, 3)]
    >>> def kernel(x, y, x2, y2):
    ...     return sum(a and b for a, b in zip(ends(x, y), ends(x2, y2)))
    >>> X = [("house", "mouse", "horse"), ("light", "line", "night")]
    >>> model = mm.KernelStructuredSVM(Choice(), kernel=mm.JointKernel(kernel))
    >>> model.fit(X, ["mouse", "night"]).predict([("tree", "tea", "free")])
    ['free']
    """

    _parameter_constraints = {
        "problem": [HasMethods(["loss"])],
        "kernel": [StrOptions(set(NAMES)), Kernel, ProductKernel, callable],
        "solver": [StrOptions({"auto"}), MiniBatchDual, KernelClassesDual],
    }

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Sequence[Any], sample_weight: ArrayLike | None = None) -> Self:
        """Train on inputs and their true outputs.

        Raises
        ------
        ProblemError
            If a method of the problem raises or breaks its contract.
        KernelError
            If the kernel is not symmetric, or not positive semi-definite.
        """
        check_instance(self.problem)
        n = n_rows(X)
        if n != len(y):
            raise ValueError(f"X has {n} inputs but y has {len(y)} outputs: give one for each.")
        if not n:
            raise ValueError("X is empty: there is nothing to learn from.")
        C, kernel, problem, rows = costs(self, n, sample_weight), self._kernel(), self.problem, X
        is_plain = numbers = False
        if isinstance(problem, Multiclass):
            classes = _classes_of(problem, y)
            problem = KernelClasses(classes, check_loss_matrix(problem.loss_matrix, classes))
            inner = kernel.parts if isinstance(kernel, ProductKernel) else kernel
            numbers = takes_rows(inner)
            rows = check_features(X, type(self).__name__) if numbers else inner.rows(X)
            # With a loss of one for every mistake, both rescalings are the same.
            same = np.array_equal(problem.loss_matrix, 1.0 - np.eye(len(classes)))
            is_plain = self.rescaling == "margin" or same
            is_plain &= not isinstance(kernel, ProductKernel)
        elif isinstance(self.solver, KernelClassesDual):
            raise ValueError("KernelClassesDual is for Multiclass only: use MiniBatchDual.")
        oracle: Any
        auto: Any = MiniBatchDual()
        if is_plain and not isinstance(self.solver, MiniBatchDual):
            labels = np.array([problem.number(label) for label in y], dtype=np.int64)
            oracle, auto = ClassOracle(problem, rows, labels, C, kernel), KernelClassesDual()
        elif isinstance(self.solver, KernelClassesDual):
            raise ValueError(
                "KernelClassesDual has a kernel of labels and margin rescaling built in: use "
                "MiniBatchDual."
            )
        else:
            oracle = KernelOracle(problem, rows, y, C, kernel, self.rescaling)
        self._fit_oracle(oracle, auto, rows, y)
        if numbers:
            validate_data(self, X, skip_check_array=True)
        return self

    def score(self, X: Any, y: Sequence[Any]) -> float:
        """Minus the mean loss of the predictions: zero is perfect."""
        pairs = zip(y, self.predict(X), strict=True)
        return -float(np.mean([self._problem.loss(*pair) for pair in pairs]))

    def accuracy(self, X: Any, y: Sequence[Any]) -> float:
        """Fraction of the predictions that are right.

        Returns
        -------
        accuracy : float
            The higher, the better.
        """
        return float(np.mean([a == b for a, b in zip(y, self.predict(X), strict=True)]))


def _classes_of(problem: Multiclass, y: Sequence[Any]) -> NDArray[Any]:
    """The classes given, which must include all of the training data, or those of the data."""
    labels = label_array(y)
    if labels.ndim != 1 or not len(labels):
        raise ValueError("Multiclass needs one label for each input.")
    given = problem.classes
    classes = np.unique(labels if given is None else label_array(given, "classes"))
    unknown = np.setdiff1d(labels, classes)
    if len(unknown):
        raise ValueError(f"y has the label {unknown.tolist()[0]!r}, which is not in classes.")
    check_several(classes, "Multiclass")
    return classes


@estimator
class LowRankKernel(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, HasKernel, Stored, BaseEstimator
):
    """Features of rank k, from the kernel with k basis rows.

    With ``K = L L'`` the Gram matrix of the basis, the features of ``x`` are ``L^-1 (k(x, b_1),
    ..., k(x, b_k))``: a linear model on them is a kernel model whose weights lie in the span of the
    basis. Takes ``n k`` values of the kernel and ``O(k^3)`` for the basis.

    Parameters
    ----------
    kernel : {"linear", "rbf", "polynomial"}, Kernel or callable, default="rbf"
    n_components : int, default=100
        Basis rows; fewer are taken if these span all the others.
    method : {"cholesky", "random"}, default="cholesky"
        Randomly pivoted Cholesky decomposition, on a sample of 20 rows for each component, or
        uniformly drawn rows.
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
    >>> X, y = load_digits(return_X_y=True)
    >>> features = mm.LowRankKernel("rbf", gamma=0.05, n_components=200)
    >>> model = make_pipeline(features, mm.LinearClassifier(C=10.0, tol=1e-2)).fit(X / 16, y)
    >>> model.score(X / 16, y) > 0.99
    True
    """

    kernel: Any = field(default="rbf", kw_only=False)
    n_components: int = field(default=100, kw_only=False)
    method: str = "cholesky"
    random_state: Any = 0

    _parameter_constraints = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
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
        if not self.kernel_.is_fitted:
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
        self.kernel_ = self._kernel().fitted(rows)
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
        return np.asarray(self.kernel_(check_rows(self, X), self.basis_) @ self.inverse_.T)

    @property
    def _n_features_out(self) -> int:
        return len(self.inverse_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def pivots(kernel: Kernel, rows: Any, k: int, random: Any) -> NDArray[np.int64]:
    """Up to `k` rows that span the others well, by randomly pivoted Cholesky decomposition.

    Drawing pivots in proportion to the residual diagonal keeps outliers from taking them all.
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

    Every solver of `StructuredSVM` trains it. Inference tries all outputs.

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
    >>> class Parity(mm.KernelProblem):
    ...     def outputs(self, x):
    ...         return [-1.0, 1.0]
    ...     def loss(self, y_true, y):
    ...         return float(y_true != y)
    >>> X, Y = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), [-1.0, 1.0, 1.0, -1.0]
    >>> features = mm.LowRankKernel("rbf", 4, gamma=1.0).fit(X)
    >>> labels = mm.LowRankKernel("linear", 1).fit([[-1.0], [1.0]])
    >>> problem = mm.LowRankProblem(Parity(), features, labels)
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
