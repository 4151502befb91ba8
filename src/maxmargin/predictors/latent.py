"""How models with latent variables predict."""

from collections.abc import Sequence
from typing import Any

from maxmargin.core.arrays import Floats
from maxmargin.core.certificate import Certificate
from maxmargin.core.latent import as_pair
from maxmargin.core.problem import called
from maxmargin.predictors.base import Predictor
from maxmargin.predictors.checks import check_is_fitted
from maxmargin.predictors.declared import estimator, fitted
from maxmargin.predictors.structured import ProblemPredictor


@estimator
class LatentPredictor(Predictor):
    """Base of the predictors with latent variables.

    Attributes
    ----------
    objectives_ : ndarray of shape (n_steps,)
        The objective after each convex step of the best start; it never rises.
    certificates_ : list of Certificate
        Of each convex step of the best start.
    certificate_ : Certificate
        For the convex problem with these latent variables: ``primal`` is the objective, ``dual`` a
        lower bound with these latent variables only, not for the problem as a whole.
    imputations_ : list
        Latent variable of each true output: the best at the weights.
    restart_objectives_ : ndarray of shape (n_restarts,)
        The objective at the end of every start.
    history_ : list of Iteration
        Iterations of all the convex steps of the best start.
    n_iter_ : int
        Number of these.
    """

    objectives_: Floats = fitted()
    certificates_: list[Certificate] = fitted()
    imputations_: Any = fitted()
    restart_objectives_: Floats = fitted()


@estimator
class LatentStructuredSVMPredictor(LatentPredictor, ProblemPredictor):
    """What a fitted `LatentStructuredSVM` has learned, and how it predicts."""

    def predict(self, X: Sequence[Any]) -> list[Any]:
        """The best output of each input.

        Returns
        -------
        y : list
            What is predicted for each input.
        """
        return [y for y, _ in self.predict_latent(X)]

    def predict_latent(self, X: Sequence[Any]) -> list[tuple[Any, Any]]:
        """The best output of each input with its latent variable.

        Returns
        -------
        pairs : list of (y, h)
            The best latent variable of each input.
        """
        check_is_fitted(self)
        found = (called(self.problem, "inference", i, x, self.weights_) for i, x in enumerate(X))
        return [as_pair(pair) for pair in found]

    def decision_function(self, X: Sequence[Any]) -> Floats:
        """Score of the best output of each input."""
        pairs = self.predict_latent(X)
        both = zip(X, pairs, strict=True)
        return self._scores(self.problem.joint_feature(x, *pair) for x, pair in both)
