"""What the estimators that train through kernels share."""

from collections.abc import Callable
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import StrOptions

from maxmargin.estimators.base import CertifiedEstimator
from maxmargin.problems.multiclass_kernel import Classes
from maxmargin.solvers.result import Result

Floats = NDArray[np.float64]


class KernelEstimator(CertifiedEstimator):
    """Base of the estimators whose model is a `KernelModel`."""

    _parameter_constraints: dict[str, list[Any]] = CertifiedEstimator._parameter_constraints | {
        "rescaling": [StrOptions({"margin", "slack"})],
    }

    rescaling: str

    def _fit_training(self, training: Any, problem: Any, solver: Any, X: Any, Y: Any) -> Self:
        """Train; if the problem fails on the way, what was learned before is kept."""

        def attributes(model: Any) -> dict[str, Any]:
            known = {"classes_": problem.classes} if isinstance(problem, Classes) else {}
            return known | {
                "model_": model,
                "support_size_": int(model.parts.shape[0]),
                "_problem": problem,
            }

        key = type(solver), len(training.cost)
        start = getattr(self, "_warm", None) if self.warm_start else None
        start = start[1] if start is not None and start[0] == key else None
        solve: Callable[..., Result] = partial(solver.solve, training, start=start)
        result = self._train(X, Y, solve, attributes)
        self._warm = (key, result.dual_point) if self.warm_start else None
        self._warn_unless_converged(result, stacklevel=4)
        return self
