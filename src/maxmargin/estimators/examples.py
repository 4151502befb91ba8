"""Base of the estimators that learn from examples in memory, from a source, or batch by batch."""

from typing import Any, ClassVar, Self

from numpy.typing import ArrayLike
from sklearn.base import _fit_context

from maxmargin.data.sources import Source
from maxmargin.estimators.base import HasEngine
from maxmargin.estimators.declared import estimator
from maxmargin.estimators.structured import RescaledEstimator
from maxmargin.training.fit import (
    Encoded,
    Metadata,
    fit_examples,
    fit_source,
    known_metadata,
    partial_fit,
)


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

    def _fit(self, X: Any, y: Any, sample_weight: ArrayLike | None, **others: Any) -> Self:
        """Fit to examples or a source; `others` are further arguments of `fit` and `_encode`."""
        hooks: Any = self
        if isinstance(X, Source):
            fit_source(hooks, X, y=y, sample_weight=sample_weight, **others)
            return self
        examples = hooks._encode(X, y, None, **others)
        fit_examples(hooks, *self._items(X, y, examples, **others), examples, sample_weight)
        self._check_names(X, reset=True)
        return self

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
