"""What the estimators share whose inputs are feature rows and whose outputs have a structure."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from maxmargin.estimators.checks import check_features, check_lengths, one_sentence
from maxmargin.estimators.structured import StructuredEstimator
from maxmargin.problems.feature_rows import ClassProblem, Codes, RowProblem, RowTrainingSet

Floats = NDArray[np.float64]


class RowEstimator(StructuredEstimator):
    """Base of the estimators on feature rows."""

    _parameter_constraints: dict[str, list[Any]] = StructuredEstimator._parameter_constraints | {
        "rescaling": [StrOptions({"margin", "slack"})],
    }

    rescaling: str

    classes_: NDArray[Any]

    def _training(
        self,
        problem: RowProblem,
        X: Any,
        codes: Codes,
        sample_weight: ArrayLike | None,
        classes: NDArray[Any],
    ) -> RowTrainingSet:
        """The examples of a fit; one before with other classes is no start for it."""
        if not np.array_equal(getattr(self, "classes_", classes), classes):
            self._warm = None
        cost = self._costs(X.shape[0], sample_weight)
        return RowTrainingSet(problem, X, codes, cost, slack=self.rescaling == "slack")

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


class RowClassifier(ClassifierMixin, RowEstimator):
    """Base of those whose outputs are a few classes."""

    _problem: ClassProblem
    _weights: Floats

    def decision_function(self, X: Any) -> Floats:
        """Scores.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

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

        Returns
        -------
        y : ndarray of shape (n_samples,)
        """
        numbers = self._class_scores(X).argmax(axis=1)
        return np.asarray(self.classes_[numbers])

    def _class_scores(self, X: Any) -> Floats:
        X = self._checked(X)
        scores = self._problem.scores(X, self._weights)
        return self._problem.class_scores(scores, self._problem.split(self._weights)[1])

    def _check_samples(self, X: Any, y: Any) -> tuple[Any, NDArray[Any]]:
        """Checked features and labels."""
        name = type(self).__name__
        if y is None:
            raise ValueError(f"{name} requires y to be passed, but the target y is None.")
        X = check_features(X, name)
        try:
            y = column_or_1d(y, warn=True)
        except ValueError as error:
            raise ValueError(one_sentence(str(error), y, "y")) from error
        check_lengths(X, y)
        check_classification_targets(y)
        if (y == y[0]).all():
            raise ValueError(
                f"{name} needs examples of at least two classes, but y holds only one class, "
                f"{y[0]!r}."
            )
        return X, y
