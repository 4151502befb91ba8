"""StructuredSVM: any problem, any solver."""

from collections.abc import Sequence
from dataclasses import field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import _fit_context
from sklearn.utils._param_validation import HasMethods, StrOptions

from maxmargin.core.arrays import Floats
from maxmargin.core.oracle import Oracle
from maxmargin.core.problem import Initializable, as_inputs, check_instance, check_pairs
from maxmargin.core.python_oracle import make_oracle
from maxmargin.core.result import AbsoluteGap
from maxmargin.core.slack_rescaling import SlackRescaledOracle
from maxmargin.data.sources import Source
from maxmargin.estimators.base import CertifiedEstimator, HasEngine
from maxmargin.predictors.declared import estimator
from maxmargin.predictors.structured import HasProblem, StructuredSVMPredictor
from maxmargin.solvers.structured import StructuredSolver
from maxmargin.training.fit import (
    SOLVERS,
    Encoded,
    Metadata,
    first_examples,
    fit_examples,
    known_metadata,
    partial_fit,
    survey_classes,
    train_as_hooked,
)
from maxmargin.training.partitions import Survey


@estimator
class StructuredEstimator(CertifiedEstimator):
    """Base of the estimators that train structured problems.

    Parameters
    ----------
    solver : str or solver object, default="auto"
        "auto", "dual-coordinate", "frank-wolfe", "n-slack" or "one-slack"; for problems that can
        list their outputs also "partial-linearization" and "exponentiated-gradient"; or an object
        such as ``OneSlack(cache=0)``.
    tol : float or AbsoluteGap, default=1e-2
        Relative duality gap that is good enough, or an absolute one: held-out scores are no better
        at smaller ones.
    """

    tol: float | AbsoluteGap = 1e-2

    _parameter_constraints = {"solver": [StrOptions(set(SOLVERS)), StructuredSolver]}

    _online: Any = field(default=None, init=False)

    _widens: ClassVar[bool] = False
    """Whether oracles of partitions widen sparse rows themselves."""

    _solve = train_as_hooked

    def _survey(self, source: Source) -> Metadata:
        """Metadata of all examples of a source, such as their classes."""
        hooks: Any = self
        return survey_classes(hooks, source)

    def _finish(self, X: Any, metadata: Metadata) -> None:
        """Set what `_fitted` cannot, such as names of features; called after every fit."""


@estimator
class RescaledEstimator(StructuredEstimator):
    """Base of those whose loss can rescale the margin or the slack.

    Parameters
    ----------
    rescaling : {"margin", "slack"}, default="margin"
        How the loss enters: it moves the margin, or it multiplies the violation of a margin of one.
    """

    rescaling: str = "margin"

    _parameter_constraints = {"rescaling": [StrOptions({"margin", "slack"})]}

    def _rescaled(self, oracle: Oracle) -> Oracle:
        """An oracle with margin rescaling, or with the rescaling asked for."""
        return SlackRescaledOracle(oracle) if self.rescaling == "slack" else oracle


@estimator
class ExampleEstimator(HasEngine, RescaledEstimator):
    """`fit` and the core of `partial_fit`, for estimators with the hooks of `training.fit`."""

    _pages: ClassVar[dict[str, str]] = {
        "fit": """
        `X` may also be a `Source` of examples with their outputs, which need not fit in memory
        together; then all other arguments are left out. `Online` trains, whose parameters count if
        `solver` is one.
        """
    }

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Train on examples and their true outputs."""
        return self._fit(X, y, sample_weight)

    _fit = fit_examples

    def _partial_fit(
        self, X: Any, y: Any, sample_weight: ArrayLike | None, classes: Any = None, **others: Any
    ) -> Self:
        """Learn from a batch of examples; all `classes` are known in the first call."""
        hooks: Any = self
        known = known_metadata(hooks)
        examples = hooks._encode(X, y, known, **others)
        if known is not None:
            self._check_names(X, reset=False)
        partial_fit(hooks, X, y, examples, sample_weight, classes)
        return self

    def _items(self, X: Any, y: Any, examples: Encoded, **others: Any) -> tuple[Any, Any]:
        """Inputs and outputs before they are encoded, one item or row for each example."""
        return X, y

    def _check_names(self, X: Any, *, reset: bool) -> None:
        """Compare names and number of the features with those of the training data, or set them."""

    def _finish(self, X: Any, metadata: Metadata) -> None:
        self._check_names(X, reset=True)


@estimator
class StructuredSVM(StructuredSVMPredictor, ExampleEstimator, HasProblem):
    """Structural SVM for any problem whose loss-augmented inference you can write.

    Minimises ``1/2 |w|^2 + C * sum_i weight_i * hinge_i(w)``, where the hinge of an example is the
    highest ``loss(y) + <w, feature(y) - feature(y_true)>`` over its outputs ``y``.

    Parameters
    ----------
    rescaling : {"margin", "slack"}, default="margin"
        How the loss enters: it moves the margin, or it multiplies the violation of a margin of one.
        Without ``slack_rescaled_inference`` of the problem, the latter takes several calls of
        ``loss_augmented_inference``, which may miss the largest slack: the certificate then counts
        a bound of it, and a fit may end with the status "relaxed".

    See Also
    --------
    Problem : What to write.
    SequenceTagger : Chains of labels, ready made.

    Examples
    --------
    See `Problem`.
    """

    _parameter_constraints = {
        "problem": [HasMethods(["joint_feature", "loss", "inference", "loss_augmented_inference"])],
        "rescaling": [StrOptions({"margin", "slack"})],
    }

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: Sequence[Any] | Source,
        y: Sequence[Any] | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Train on inputs and their true outputs.

        `X` may also be a `Source` of both, which need not fit in memory, without other arguments.
        `Online` trains then, with its parameters if `solver` is one.

        Raises
        ------
        ProblemError
            If a method of the problem raises or breaks its contract; what was learned is kept.
        """
        return self._fit(X, y, sample_weight)

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(
        self, X: Sequence[Any], y: Sequence[Any], sample_weight: ArrayLike | None = None
    ) -> Self:
        """Learn from some more examples.

        They get one pass and are not kept, only the cutting planes of those that violate (see
        `Online`, whose parameters count if `solver` is one). The model can be used after every
        call. The first call, and the first after `fit`, begin anew. Examples that come again count
        again: `k` passes over the same data are a fit with ``k * C``.

        The dual value of ``certificate_`` is a lower bound of the objective over all examples of
        all calls. Its primal value is that of the cached constraints alone, which the objective is
        at least; how much more only another pass tells, such as `fit` with a source makes.
        """
        return self._partial_fit(X, y, sample_weight)

    def _encode(self, X: Any, y: Any, metadata: Metadata | None) -> Encoded:
        check_instance(self.problem)
        if y is None:
            raise ValueError("y is missing: give one output for each input, or a source of both.")
        X = as_inputs(X)
        check_pairs(X, y)
        return Encoded(X, y, len(X))

    def _survey(self, source: Source) -> Metadata:
        if isinstance(self.problem, Initializable):
            self.problem.initialize(*first_examples(source))
        return {}

    def _survey_partition(self, X: Any, y: Any) -> None:
        """Nothing: a problem has no metadata."""

    def _metadata_of(self, surveys: list[Survey]) -> Metadata:
        return {}

    def _metadata(self, examples: Encoded, classes: NDArray[Any] | None) -> Metadata:
        if isinstance(self.problem, Initializable):
            self.problem.initialize(examples.X, examples.y)
        return {}

    def _oracle(self, examples: Encoded, C: Floats, metadata: Metadata) -> Oracle:
        return make_oracle(self.problem, examples.X, examples.y, C, self.rescaling)

    def _fitted(self, metadata: Metadata, weights: Floats) -> dict[str, Any]:
        return {"weights_": weights}

    def score(self, X: Sequence[Any], y: Sequence[Any]) -> float:
        """Minus the mean loss of the predictions: zero is perfect."""
        losses = [
            self.problem.loss(y_true, y_pred)
            for y_true, y_pred in zip(y, self.predict(X), strict=True)
        ]
        return -float(np.mean(losses))
