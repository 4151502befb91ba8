"""What the estimators that train through kernels share.

KernelStructuredSVM: any problem whose outputs can be listed, through a kernel.
"""

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import _fit_context
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from maxmargin.core.checks import conforms
from maxmargin.core.inputs import label_array
from maxmargin.core.kernel import Pairs, n_rows
from maxmargin.core.kernel_model import KernelModel, predict
from maxmargin.core.kernel_multiclass import ClassOracle, KernelClasses, Multiclass, class_scores
from maxmargin.core.kernel_oracle import KernelOracle
from maxmargin.core.kernels import NAMES, Kernel, ProductKernel, make_kernel
from maxmargin.core.problem import check_instance
from maxmargin.core.threads import Threads, n_threads
from maxmargin.estimators.base import CertifiedEstimator, check_classes, train_warm
from maxmargin.estimators.checks import check_features, check_loss_matrix
from maxmargin.estimators.declared import estimator, fitted
from maxmargin.estimators.structured import HasProblem
from maxmargin.solvers.kernel_classes_dual import KernelClassesDual
from maxmargin.solvers.mini_batch_dual import MiniBatchDual

Floats = NDArray[np.float64]


@estimator
class KernelEstimator(CertifiedEstimator):
    """Base of the estimators whose model is a `KernelModel`.

    Parameters
    ----------
    rescaling : {"margin", "slack"}, default="margin"
        How the loss enters: it moves the margin, or it multiplies the violation of a margin of one.
    max_iter : int, default=100000
        Most iterations: mini-batches, or updates of the examples that violate their margins most.

    Attributes
    ----------
    model_ : KernelModel
        Rows, factors and the kernel, from which scores are made.
    support_size_ : int
        Rows in the model.
    certificate_ : Certificate
        ``primal``, ``dual``, ``gap`` and ``relative_gap``, with the kernel computed anew.
    """

    rescaling: str = "margin"
    max_iter: int = 100_000

    _parameter_constraints = {"rescaling": [StrOptions({"margin", "slack"})]}

    classes_: NDArray[Any] = fitted()
    model_: KernelModel = fitted()
    support_size_: int = fitted()
    _problem: Any = fitted()

    def _check_fitted(self) -> None:
        super()._check_fitted()
        if not callable(getattr(self._problem, "candidates", None)) or self.model_ is None:
            raise ValueError("there is no problem that could list outputs")
        if isinstance(self._problem, Pairs) and not conforms(
            self.model_.parts.tolist(), list[tuple[Any, Any]]
        ):
            raise ValueError("the kernel model has parts that are no inputs with outputs")
        if isinstance(self._problem, KernelClasses):
            check_classes(self.classes_, len(self._problem.classes))

    def _fit_oracle(self, oracle: Any, problem: Any, solver: Any, X: Any, Y: Any) -> Self:
        """Train; if the problem fails on the way, what was learned before is kept."""

        def attributes(model: Any) -> dict[str, Any]:
            known = {"classes_": problem.classes} if isinstance(problem, KernelClasses) else {}
            return known | {
                "model_": model,
                "support_size_": int(model.parts.shape[0]),
                "_problem": problem,
            }

        shape = type(solver), len(oracle.C)
        result = train_warm(self, solver, oracle, shape, X, Y, attributes)
        self._warn_unless_converged(result, X)
        return self


@estimator
class KernelStructuredSVM(KernelEstimator, HasProblem):
    """Structural SVM in the space of a kernel, with a certificate of optimality.

    Minimises ``1/2 |w|^2 + C * sum_i weight_i * hinge_i(w)``. Scores are ``<w, phi(x, y)>``, but
    only the kernel ``<phi(x, y), phi(x', y')>`` is known. The model keeps the outputs with a
    coefficient, and nothing else.

    Parameters
    ----------
    problem : KernelProblem or Problem
        `Multiclass` for classes. A `Problem` must have ``outputs(x)``; the kernel then compares its
        joint features.
    kernel : {"linear", "rbf", "polynomial"}, kernel object or callable, default="rbf"
        A callable is ``k(A, B)``, all values between two batches of rows. Objects are
        `FunctionKernel` (also for pairs of anything), `JointKernel` (of inputs and outputs) and
        `ProductKernel` (of parts, times one of labels).
    gamma : float, default=None
        Of "rbf" and "polynomial"; None is one over the number of features times their variance.
    degree : int, default=3
        Of "polynomial".
    coef0 : float, default=1.0
        Of "polynomial".
    solver : "auto", MiniBatchDual or KernelClassesDual, default="auto"
        "auto" is `KernelClassesDual` for `Multiclass` and `MiniBatchDual` for all others, among
        them `Multiclass` with slack rescaling of a loss matrix.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Of `Multiclass` only.
    n_features_in_ : int
        Of `Multiclass` on rows of numbers only.
    feature_names_in_ : ndarray of shape (n_features,)
        The same, when trained on a data frame.

    See Also
    --------
    KernelProblem : What to write.
    StructuredSVM : The same without a kernel.
    LowRankKernel : Features that stand for a kernel, for any linear model.

    Examples
    --------
    A kernel of inputs and outputs. Which of two words rhymes with a word?

    >>> from maxmargin.core.kernels import JointKernel
    >>> from maxmargin.estimators.kernel import KernelStructuredSVM
    >>> from maxmargin.core.kernel import KernelProblem
    >>> class Choice(KernelProblem):
    ...     def outputs(self, x):
    ...         return x[1:]
    ...     def loss(self, y_true, y):
    ...         return float(y_true != y)
    >>> def ends(x, y):
    ...     return [x[0][-k:] == y[-k:] for k in (1, 2, 3)]
    >>> def kernel(x, y, x2, y2):
    ...     return sum(a and b for a, b in zip(ends(x, y), ends(x2, y2)))
    >>> X = [("house", "mouse", "horse"), ("light", "line", "night")]
    >>> model = KernelStructuredSVM(Choice(), kernel=JointKernel(kernel)).fit(X, ["mouse", "night"])
    >>> model.predict([("tree", "tea", "free")])
    ['free']
    """

    kernel: Any = "rbf"
    gamma: float | None = None
    degree: int = 3
    coef0: float = 1.0

    _parameter_constraints = {
        "problem": [HasMethods(["loss"])],
        "kernel": [StrOptions(set(NAMES)), Kernel, ProductKernel, callable],
        "gamma": [Interval(Real, 0, None, closed="neither"), None],
        "degree": [Interval(Integral, 1, None, closed="left")],
        "coef0": [Real],
        "solver": [StrOptions({"auto"}), MiniBatchDual, KernelClassesDual],
    }

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Sequence[Any], sample_weight: ArrayLike | None = None) -> Self:
        """Train on inputs and their true outputs.

        Parameters
        ----------
        X, y : sequence of length n_samples
            Inputs and outputs, as the problem understands them.
        sample_weight : array-like of shape (n_samples,), default=None
            Multiplies the C of each example.

        Returns
        -------
        self : KernelStructuredSVM
            The fitted estimator.

        Raises
        ------
        ProblemError
            If a method of the problem raises or breaks its contract.
        KernelError
            If the kernel is not symmetric, or not positive semi-definite.

        Warns
        -----
        ConvergenceWarning
            If `max_iter`, `time_limit`, Ctrl-C or a callback stopped the fit; the best model so
            far is kept, with its certificate.
        """
        check_instance(self.problem)
        n = n_rows(X)
        if n != len(y):
            raise ValueError(f"X has {n} inputs but y has {len(y)} outputs: give one for each.")
        if not n:
            raise ValueError("X is empty: there is nothing to learn from.")
        C = self._costs(n, sample_weight)
        kernel = make_kernel(self.kernel, self.gamma, self.degree, self.coef0)
        if isinstance(self.problem, Multiclass):
            return self._fit_classes(X, y, C, kernel)
        if isinstance(self.solver, KernelClassesDual):
            raise ValueError("KernelClassesDual is for Multiclass only: use MiniBatchDual.")
        oracle = KernelOracle(self.problem, X, y, C, kernel, self.rescaling)
        solver = MiniBatchDual() if self.solver == "auto" else self.solver
        return self._fit_oracle(oracle, oracle.problem, solver, X, y)

    def _fit_classes(self, X: Any, y: Any, C: Floats, kernel: Any) -> Self:
        classes = _classes_of(self.problem, y)
        problem = KernelClasses(classes, check_loss_matrix(self.problem.loss_matrix, classes))
        given, X = X, self._rows(X, kernel)
        # With a loss of one for every mistake, both rescalings are the same.
        same = np.array_equal(problem.loss_matrix, 1.0 - np.eye(len(classes)))
        is_plain = not isinstance(kernel, ProductKernel) and (self.rescaling == "margin" or same)
        if is_plain and not isinstance(self.solver, MiniBatchDual):
            labels = np.array([problem.number(label) for label in y], dtype=np.int64)
            oracle: Any = ClassOracle(problem, X, labels, C, kernel)
            solver: Any = KernelClassesDual() if self.solver == "auto" else self.solver
        else:
            if isinstance(self.solver, KernelClassesDual):
                raise ValueError(
                    "KernelClassesDual has a kernel of labels and margin rescaling built in: use "
                    "MiniBatchDual."
                )
            oracle = KernelOracle(problem, X, y, C, kernel, self.rescaling)
            solver = MiniBatchDual() if self.solver == "auto" else self.solver
        self._fit_oracle(oracle, problem, solver, X, y)
        if _takes_rows(kernel):
            validate_data(self, given, skip_check_array=True)
        return self

    def predict(self, X: Any) -> Any:
        """The best output of each input.

        Parameters
        ----------
        X : sequence of inputs
            Inputs, as the problem understands them.

        Returns
        -------
        y : list, or for `Multiclass` ndarray of shape (n_samples,)
            What is predicted for each input.
        """
        check_is_fitted(self)
        if isinstance(self._problem, KernelClasses):
            return self.classes_[self.decision_function(X).argmax(axis=1)]
        return [output for output, _ in self._predicted(X)]

    def decision_function(self, X: Any) -> Floats:
        """Score of the best output of each input; for `Multiclass`, of every class.

        Parameters
        ----------
        X : sequence of length n_samples
            Inputs, as the problem understands them.

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            One score for each input, the higher the better.
        """
        check_is_fitted(self)
        if not isinstance(self._problem, KernelClasses):
            return np.array([score for _, score in self._predicted(X)])
        kernel = self.model_.kernel.parts
        rows = self._rows(X, kernel)
        if _takes_rows(kernel):
            validate_data(self, X, reset=False, skip_check_array=True)
        with Threads(n_threads(self.n_jobs)) as threads:
            return class_scores(self.model_, self._problem.codes, rows, threads)

    def score(self, X: Any, y: Sequence[Any]) -> float:
        """Minus the mean loss of the predictions: zero is perfect.

        Parameters
        ----------
        X : sequence of length n_samples
            Inputs, as the problem understands them.
        y : sequence of length n_samples
            Their true outputs.

        Returns
        -------
        score : float
            The higher, the better.
        """
        pairs = zip(y, self.predict(X), strict=True)
        return -float(np.mean([self._problem.loss(y_true, y_pred) for y_true, y_pred in pairs]))

    def accuracy(self, X: Any, y: Sequence[Any]) -> float:
        """Fraction of the predictions that are right.

        Parameters
        ----------
        X : sequence of length n_samples
            Inputs, as the problem understands them.
        y : sequence of length n_samples
            Their true outputs.

        Returns
        -------
        accuracy : float
            The higher, the better.
        """
        return float(
            np.mean([y_true == y_pred for y_true, y_pred in zip(y, self.predict(X), strict=True)])
        )

    def _predicted(self, X: Any) -> list[tuple[Any, float]]:
        with Threads(n_threads(self.n_jobs)) as threads:
            return predict(self._problem, self.model_, X, threads)

    def _rows(self, X: Any, kernel: Any) -> Any:
        """Checked features, unless the kernel takes anything."""
        if _takes_rows(kernel):
            return check_features(X, type(self).__name__)
        return _inner(kernel).rows(X)


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
    if len(classes) < 2:
        raise ValueError(
            f"Multiclass needs examples of at least two classes, but y holds only one class, "
            f"{classes.tolist()[0]!r}."
        )
    return classes


def _inner(kernel: Any) -> Any:
    return kernel.parts if isinstance(kernel, ProductKernel) else kernel


def _takes_rows(kernel: Any) -> bool:
    """Whether a kernel compares rows of numbers, and not anything in pairs."""
    return not getattr(_inner(kernel), "pairwise", False)
