"""How models with kernels predict."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.arrays import Floats, conforms
from maxmargin.core.kernel import Kernel, Pairs
from maxmargin.core.kernel_oracle import KernelClasses, KernelModel, class_scores, predict
from maxmargin.core.oracle import Threads
from maxmargin.predictors.base import Predictor, check_classes
from maxmargin.predictors.checks import check_is_fitted, check_rows
from maxmargin.predictors.declared import estimator, fitted
from maxmargin.predictors.structured import PROBLEM_ARGUMENTS


@estimator
class KernelPredictor(Predictor):
    """Base of the predictors whose model is a `KernelModel`.

    Attributes
    ----------
    model_ : KernelModel
        Rows, factors and the kernel, from which scores are made.
    support_size_ : int
        Rows in the model.
    certificate_ : Certificate
        ``primal``, ``dual``, ``gap`` and ``relative_gap``, with the kernel computed anew.
    """

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


@estimator
class KernelStructuredSVMPredictor(KernelPredictor):
    """What a fitted `KernelStructuredSVM` has learned, and how it predicts.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Of `Multiclass` only.
    n_features_in_ : int
        Of `Multiclass` on rows of numbers only.
    feature_names_in_ : ndarray of shape (n_features,)
        The same, when trained on a data frame.
    """

    _arguments = PROBLEM_ARGUMENTS

    def predict(self, X: Any) -> Any:
        """The best output of each input.

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

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            One score for each input, the higher the better.
        """
        check_is_fitted(self)
        if not isinstance(self._problem, KernelClasses):
            return np.array([score for _, score in self._predicted(X)])
        kernel = self.model_.kernel.parts
        rows = check_rows(self, X) if takes_rows(kernel) else kernel.rows(X)
        with Threads(self.n_jobs) as threads:
            return class_scores(self.model_, self._problem.codes, rows, threads)

    def _predicted(self, X: Any) -> list[tuple[Any, float]]:
        with Threads(self.n_jobs) as threads:
            return predict(self._problem, self.model_, X, threads)


def takes_rows(kernel: Kernel) -> bool:
    """Whether a kernel compares rows of numbers, rather than pairs of any objects."""
    return not getattr(kernel, "pairwise", False)
