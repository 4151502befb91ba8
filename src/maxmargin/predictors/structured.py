"""How a structural SVM predicts: by the inference of its problem."""

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from maxmargin.core.arrays import Floats
from maxmargin.core.problem import as_inputs, called
from maxmargin.predictors.base import Predictor, check_weights
from maxmargin.predictors.checks import check_is_fitted
from maxmargin.predictors.declared import estimator, fitted

PROBLEM_ARGUMENTS = """
X : sequence of n_samples inputs
    Inputs, as the problem understands them.
y : sequence of n_samples outputs
    Their true outputs.
"""
"""What methods of estimators take whose parameter is the problem."""


@estimator
class HasProblem:
    """For estimators whose first parameter is the problem; the last of their bases.

    Parameters
    ----------
    problem : Problem
        What is predicted.
    """

    problem: Any = field(kw_only=False)


@estimator
class ProblemPredictor(Predictor, HasProblem):
    """Base of the predictors with weights for the joint features of a problem.

    Attributes
    ----------
    weights_ : ndarray of shape (n_features,)
    """

    _arguments = PROBLEM_ARGUMENTS

    weights_: Floats = fitted()

    def _check_fitted(self) -> None:
        super()._check_fitted()
        check_weights("weights_", self.weights_, len(self.weights_))

    def _scores(self, features: Iterable[Any]) -> Floats:
        """Products of joint features, dense or sparse, with the weights."""
        return np.array([np.ravel(feature @ self.weights_)[0] for feature in features])


@estimator
class StructuredSVMPredictor(ProblemPredictor):
    """What a fitted `StructuredSVM` has learned, and how it predicts."""

    def predict(self, X: Sequence[Any]) -> list[Any]:
        """The best output of each input.

        Returns
        -------
        y : list
            What is predicted for each input.

        Raises
        ------
        ProblemError
            If ``inference`` of the problem raises.
        """
        check_is_fitted(self)
        inputs = enumerate(as_inputs(X))
        return [called(self.problem, "inference", i, x, self.weights_) for i, x in inputs]

    def decision_function(self, X: Sequence[Any]) -> Floats:
        """Score of the best output of each input."""
        outputs = self.predict(X)
        pairs = zip(as_inputs(X), outputs, strict=True)
        return self._scores(self.problem.joint_feature(x, y) for x, y in pairs)
