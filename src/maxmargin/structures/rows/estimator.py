"""What the estimators share whose inputs are feature rows and whose outputs have a structure."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, _fit_context
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from maxmargin.data.sources import Source
from maxmargin.estimators.base import HasEngine, check_classes, check_weights
from maxmargin.estimators.checks import check_features, check_labels, check_lengths
from maxmargin.estimators.declared import estimator, fitted
from maxmargin.estimators.structured import RescaledEstimator
from maxmargin.structures.rows.oracle import ClassProblem, Codes, RowOracle, RowProblem
from maxmargin.training.fit import (
    Encoded,
    Metadata,
    fit_examples,
    fit_source,
    known_metadata,
    partial_fit,
    partial_fit_classes,
)
from maxmargin.training.partitions import Survey, check_widths

Floats = NDArray[np.float64]


@estimator
class RowEstimator(HasEngine, RescaledEstimator):
    """Base of the estimators on feature rows."""

    classes_: NDArray[Any] = fitted()
    _problem: RowProblem = fitted()
    _weights: Floats = fitted()

    def _check_fitted(self) -> None:
        super()._check_fitted()
        if self._problem.n_inputs != self.n_features_in_:
            raise ValueError("features and weights are not equal in number")
        check_weights("_weights", self._weights, self._problem.n_weights)

    def _row_training(self, X: Any, codes: Codes, C: Floats, problem: RowProblem) -> RowOracle:
        if X.shape[1] != problem.n_inputs:
            raise ValueError(
                f"X has {X.shape[1]} features, but the examples before had {problem.n_inputs}: the "
                f"features must be the same for all."
            )
        return RowOracle(problem, X, codes, C, slack=self.rescaling == "slack")

    def _learn_rows(
        self, X: Any, y: Any, classes: NDArray[Any] | None, sample_weight: ArrayLike | None
    ) -> Self:
        """What `partial_fit` does once the classes are known."""
        hooks: Any = self
        examples = hooks._encode(X, y, known_metadata(hooks))
        if known_metadata(hooks) is not None:
            validate_data(self, X, reset=False, skip_check_array=True)
        partial_fit(hooks, X, y, examples, sample_weight, classes)
        return self

    def _finish(self, X: Any, metadata: Metadata) -> None:
        validate_data(self, X, skip_check_array=True)

    def _checked(self, X: Any) -> Any:
        """Rows to answer for."""
        check_is_fitted(self)
        given, X = X, check_features(X, type(self).__name__)
        validate_data(self, given, reset=False, skip_check_array=True)
        return X

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


@estimator
class RowClassifier(ClassifierMixin, RowEstimator):
    """Base of those whose outputs are a few classes."""

    _problem: ClassProblem = fitted()
    coef_: Floats = fitted()
    loss_matrix_: Floats = fitted()

    def _check_fitted(self) -> None:
        super()._check_fitted()
        check_classes(self.classes_, self._problem.n_classes)

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self, X: Any, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Train on examples and their classes.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features) or Source
            A `Source` gives examples and labels in batches, which need not fit in memory together.
            Then `Online` trains, whose parameters count if `solver` is one.
        y : array-like of shape (n_samples,), default=None
            Numbers or strings. None for a source.
        sample_weight : array-like of shape (n_samples,), default=None
            Multiplies the C of each example. Not for a source.

        Returns
        -------
        self
            The fitted estimator.

        Warns
        -----
        ConvergenceWarning
            If `max_iter`, `time_limit`, Ctrl-C or a callback stopped the fit; the best weights so
            far are kept, with their certificate.
        """
        if isinstance(X, Source):
            fit_source(self, X, y=y, sample_weight=sample_weight)
            return self
        examples = self._encode(X, y, None)
        fit_examples(self, examples.X, examples.y, examples, sample_weight)
        self._finish(X, {})
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(
        self,
        X: Any,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn from some more examples, without those of earlier calls.

        The model can be used after every call. `StructuredSVM.partial_fit` says what is kept, and
        what the certificate is of.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            One row for each example.
        y : array-like of shape (n_samples,)
            The true classes.
        classes : array-like of shape (n_classes,), default=None
            All labels that will ever come; needed in the first call.
        sample_weight : array-like of shape (n_samples,), default=None
            Multiplies the C of each example.

        Returns
        -------
        self
            The fitted estimator.
        """
        return self._learn_rows(X, y, self._all_classes(classes), sample_weight)

    def _all_classes(self, classes: ArrayLike | None) -> NDArray[Any]:
        """Classes of a call of `partial_fit`."""
        return partial_fit_classes(self, classes)

    def decision_function(self, X: Any) -> Floats:
        """Scores.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            One row for each example.

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            One column a class; with two classes, positive means the second.
        """
        scores = self._class_scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Labels.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            One row for each example.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            What is predicted for each input.
        """
        numbers = self._class_scores(X).argmax(axis=1)
        return np.asarray(self.classes_[numbers])

    def _class_scores(self, X: Any) -> Floats:
        X = self._checked(X)
        scores = self._problem.scores(X, self._weights)
        return self._problem.class_scores(scores, self._problem.split(self._weights)[1])

    def _encode(self, X: Any, Y: Any, metadata: Metadata | None) -> Encoded:
        name = type(self).__name__
        y = check_labels(Y, name)
        X = check_features(X, name)
        check_lengths(X, y)
        check_classification_targets(y)
        return Encoded(X, y, len(y))

    def _survey_partition(self, X: Any, y: Any) -> Any:
        return np.unique(y), X.shape[1]

    def _metadata_of(self, surveys: list[Survey]) -> Metadata:
        labels, widths = zip(*(survey.found for survey in surveys), strict=True)
        check_widths(widths)
        first: Any = surveys[0].first
        classes = np.unique(np.concatenate(labels))
        metadata: Metadata = self._metadata(self._encode(first.X, first.y, None), classes)
        return metadata

    def _found_classes(self, y: NDArray[Any], classes: NDArray[Any] | None) -> NDArray[Any]:
        """The classes given, or those of the examples; at least two."""
        found = np.unique(y) if classes is None else classes
        if len(found) < 2:
            raise ValueError(
                f"{type(self).__name__} needs examples of at least two classes, but y holds only "
                f"one class, {found.tolist()[0]!r}."
            )
        return found
