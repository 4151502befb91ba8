"""Base of the estimators of structured outputs of one feature row each."""

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, _fit_context
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from maxmargin.core.arrays import Floats
from maxmargin.core.inputs import check_several, class_numbers
from maxmargin.estimators.checks import check_samples
from maxmargin.estimators.structured import ExampleEstimator
from maxmargin.predictors.declared import estimator
from maxmargin.structures.rows.oracle import Codes, RowOracle
from maxmargin.structures.rows.predictor import RowClassifierPredictor, RowPredictor
from maxmargin.training.fit import Encoded, Metadata, partial_fit_classes
from maxmargin.training.partitions import Survey, check_widths


@estimator
class RowEstimator(RowPredictor, ExampleEstimator):
    """Base of the estimators on feature rows."""

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn from some more examples, without those of earlier calls."""
        return self._partial_fit(X, y, sample_weight, self._all_classes(classes, y))

    def _all_classes(self, classes: ArrayLike | None, y: Any) -> NDArray[Any] | None:
        """Classes of a call of `partial_fit`."""
        return partial_fit_classes(self, classes)

    @abstractmethod
    def _codes(self, examples: Encoded, classes: NDArray[Any]) -> Codes:
        """True outputs as rows of integers; ValueError for labels that are no classes."""

    def _oracle(self, examples: Encoded, C: Floats, metadata: Metadata) -> RowOracle:
        X, problem = examples.X, metadata["_problem"]
        codes = self._codes(examples, metadata["classes_"])
        if X.shape[1] != problem.n_inputs:
            raise ValueError(
                f"X has {X.shape[1]} features, but the examples before had {problem.n_inputs}: the "
                f"features must be the same for all."
            )
        return RowOracle(problem, X, codes, C, slack=self.rescaling == "slack")

    def _items(self, X: Any, y: Any, examples: Encoded, **others: Any) -> tuple[Any, Any]:
        return examples.X, examples.y

    def _check_names(self, X: Any, *, reset: bool) -> None:
        validate_data(self, X, reset=reset, skip_check_array=True)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


@estimator
class RowClassifier(ClassifierMixin, RowClassifierPredictor, RowEstimator):
    """Base of those whose outputs are a few classes."""

    def _encode(self, X: Any, Y: Any, metadata: Metadata | None) -> Encoded:
        X, y = check_samples(X, Y, type(self).__name__)
        check_classification_targets(y)
        return Encoded(X, y, len(y))

    def _codes(self, examples: Encoded, classes: NDArray[Any]) -> Codes:
        return class_numbers(examples.y, classes).astype(np.int32)[:, None]

    def _survey_partition(self, X: Any, y: Any) -> Any:
        return np.unique(y), X.shape[1]

    def _metadata_of(self, surveys: list[Survey]) -> Metadata:
        labels, widths = zip(*(survey.found for survey in surveys), strict=True)
        check_widths(widths)
        first: Any = surveys[0].first
        classes = np.unique(np.concatenate(labels))
        hooks: Any = self
        metadata: Metadata = hooks._metadata(self._encode(first.X, first.y, None), classes)
        return metadata

    def _found_classes(self, y: NDArray[Any], classes: NDArray[Any] | None) -> NDArray[Any]:
        """The classes given, or those of the examples; at least two."""
        found = np.unique(y) if classes is None else classes
        check_several(found, type(self).__name__)
        return found
