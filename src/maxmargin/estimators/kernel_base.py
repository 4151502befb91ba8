"""What the estimators that train through kernels share."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import StrOptions

from maxmargin.dual.conforming import conforms
from maxmargin.estimators.base import CertifiedEstimator
from maxmargin.estimators.stored import check_classes
from maxmargin.estimators.warm import train_warm
from maxmargin.problems.kernel import Pairs
from maxmargin.problems.kernel_model import KernelModel
from maxmargin.problems.multiclass_kernel import Classes

Floats = NDArray[np.float64]


class KernelEstimator(CertifiedEstimator):
    """Base of the estimators whose model is a `KernelModel`."""

    _parameter_constraints: dict[str, list[Any]] = CertifiedEstimator._parameter_constraints | {
        "rescaling": [StrOptions({"margin", "slack"})],
    }

    rescaling: str

    classes_: NDArray[Any]
    model_: KernelModel
    support_size_: int
    _problem: Any

    def _check_fitted(self) -> None:
        super()._check_fitted()
        if not callable(getattr(self._problem, "candidates", None)) or self.model_ is None:
            raise ValueError("there is no problem that could list outputs")
        if isinstance(self._problem, Pairs) and not conforms(
            self.model_.parts.tolist(), list[tuple[Any, Any]]
        ):
            raise ValueError("the kernel model has parts that are no inputs with outputs")
        if isinstance(self._problem, Classes):
            check_classes(self.classes_, len(self._problem.classes))

    def _fit_training(self, training: Any, problem: Any, solver: Any, X: Any, Y: Any) -> Self:
        """Train; if the problem fails on the way, what was learned before is kept."""

        def attributes(model: Any) -> dict[str, Any]:
            known = {"classes_": problem.classes} if isinstance(problem, Classes) else {}
            return known | {
                "model_": model,
                "support_size_": int(model.parts.shape[0]),
                "_problem": problem,
            }

        shape = type(solver), len(training.cost)
        result = train_warm(self, solver, training, shape, X, Y, attributes)
        self._warn_unless_converged(result, X, stacklevel=4)
        return self
