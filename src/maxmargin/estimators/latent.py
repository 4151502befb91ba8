"""LatentStructuredSVM: any problem with latent variables, any solver."""

import warnings
from collections.abc import Sequence
from functools import partial
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import HasMethods, Interval

from maxmargin.core.inputs import costs
from maxmargin.core.latent import LatentOracle, LatentProblem, make_latent_oracle
from maxmargin.core.problem import check_instance
from maxmargin.core.result import Result, Status
from maxmargin.estimators.structured import StructuredEstimator
from maxmargin.predictors.base import callers_level
from maxmargin.predictors.declared import estimator
from maxmargin.predictors.latent import LatentPredictor, LatentStructuredSVMPredictor
from maxmargin.predictors.structured import HasProblem
from maxmargin.solvers.convex_concave import ConvexConcave, LatentResult, LatentStart
from maxmargin.training.fit import make_solver, train


@estimator
class LatentEstimator(LatentPredictor, StructuredEstimator):
    """Base of the estimators with latent variables.

    Parameters
    ----------
    restarts : int, default=1
        Starts, each from other latent variables; the one with the lowest objective counts.
    max_imputations : int, default=100
        Most convex steps of each start.
    solver : str or solver object, default="auto"
        Of the convex steps; see `StructuredSVM`.
    tol : float, default=1e-3
        Relative gap between the objective and the least value of the convex problem with the same
        latent variables, at which a start ends.
    warm_start : bool, default=False
        Begin the first start with weights and dual solution of the fit before, whatever its C.
    max_iter : int, default=10000
        Most iterations of each convex step.
    time_limit : float, default=None
        Most seconds, for all starts together.
    checkpoint : path or Checkpoint, default=None
        File for the state of the fit between convex steps; ``Checkpoint(path, resume=True)``
        resumes it.
    random_state : int, RandomState instance or None, default=0
        Starts, and the order of the examples.

    """

    _pages = {
        "fit": """
        Warns
        -----
        ConvergenceWarning
            If `max_imputations`, `max_iter`, `time_limit`, Ctrl-C or a callback stopped the fit;
            the best weights so far are kept, with their certificate.
        """
    }

    restarts: int = 1
    max_imputations: int = 100
    tol: float = 1e-3

    _parameter_constraints = {
        "restarts": [Interval(Integral, 1, None, closed="left")],
        "max_imputations": [Interval(Integral, 1, None, closed="left")],
    }

    def _fit_latent(
        self, latent: LatentOracle, X: Any, y: Any, attributes: Any, initial: Any = None
    ) -> None:
        """Train; if the problem fails on the way, the estimator keeps what was learned before."""
        procedure = ConvexConcave(
            solver=make_solver(self.solver),
            restarts=self.restarts,
            max_imputations=self.max_imputations,
            initial=initial,
            again=getattr(self, "_end", None) if self.warm_start else None,
        )
        result = train(self, X, y, partial(procedure.solve, latent), attributes)
        end = LatentStart(result.weights, result.dual_point)
        self._end = end if self.warm_start else None
        self._warn_unless_converged(result, X)

    def _learned(self, result: Result, attributes: Any) -> dict[str, Any]:
        learned = super()._learned(result, attributes)
        assert isinstance(result, LatentResult)
        return learned | {
            "objectives_": np.array(result.objectives),
            "certificates_": result.certificates,
            "imputations_": result.imputations,
            "restart_objectives_": np.array(result.restart_objectives),
        }

    def _warn_unless_converged(self, result: Result, X: Any) -> None:
        assert isinstance(result, LatentResult)
        if result.status is Status.MAX_ITER and len(result.certificates) >= self.max_imputations:
            warnings.warn(
                f"{type(self).__name__} was stopped after max_imputations={self.max_imputations} "
                f"convex steps, before its latent variables settled; the best weights so far are "
                f"kept.",
                ConvergenceWarning,
                stacklevel=callers_level(),
            )
        else:
            super()._warn_unless_converged(result, X)


@estimator
class LatentStructuredSVM(LatentStructuredSVMPredictor, LatentEstimator, HasProblem):
    """Structural SVM whose outputs have a latent part that the training data do not tell.

    Minimises ``1/2 |w|^2 + C * sum_i weight_i * hinge_i(w)``, where the hinge of an example is the
    highest ``loss(y) + <w, feature(y, h)>`` over its outputs ``y`` and latent variables ``h``, less
    the highest ``<w, feature(y_true, h)>``. That is not convex: in turn, the latent variables of
    the true outputs are imputed, and the convex problem that is left is solved with a certificate,
    from the dual solution before (CCCP). The objective never rises.

    Parameters
    ----------
    problem : LatentProblem
        What is predicted.

    See Also
    --------
    LatentProblem : What to write.
    LatentClassifier : Which of several feature rows shows the class, ready made.
    StructuredSVM : Without latent variables.

    Examples
    --------
    See `LatentProblem`.
    """

    _parameter_constraints = {"problem": [HasMethods(sorted(LatentProblem.__abstractmethods__))]}

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: Sequence[Any],
        y: Sequence[Any],
        sample_weight: ArrayLike | None = None,
        *,
        initial: Sequence[Any] | None = None,
    ) -> Self:
        """Train on inputs and their true outputs.

        Parameters
        ----------
        initial : sequence of length n_samples, default=None
            Latent variables of the true outputs for the first start; None asks the problem.

        Raises
        ------
        ProblemError
            If a method of the problem raises or breaks its contract; what was learned is kept.
        """
        check_instance(self.problem)
        for name, given in {"y": y, "initial": initial}.items():
            if given is not None and len(given) != len(X):
                raise ValueError(
                    f"X has {len(X)} inputs but {name} has {len(given)} entries: give one for each."
                )
        if not len(X):
            raise ValueError("X is empty: there is nothing to learn from.")
        latent = make_latent_oracle(self.problem, X, y, costs(self, len(X), sample_weight))
        self._fit_latent(latent, X, y, lambda weights: {"weights_": weights}, initial)
        return self

    def score(self, X: Sequence[Any], y: Sequence[Any]) -> float:
        """Minus the mean loss of the predictions: zero is perfect."""
        pairs = zip(y, self.predict(X), strict=True)
        return -float(np.mean([self.problem.loss(*pair) for pair in pairs]))
