"""Checks of what estimators learn from, by scikit-learn's validation and in our own sentences."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from maxmargin.core.arrays import Floats
from maxmargin.core.inputs import check_bias, check_kinds, check_lengths, costs
from maxmargin.predictors.checks import check_features, one_sentence


def check_labels(y: Any, name: str) -> NDArray[Any]:
    """Labels as one column, all of one kind."""
    if y is None:
        raise ValueError(f"{name} requires y to be passed, but the target y is None.")
    check_kinds(y, "y")
    if type(y) is np.ndarray and y.ndim == 1 and y.dtype.kind in "biufU":
        return y  # scikit-learn would ask which library's array it is, for longer than a pass
    try:
        return np.asarray(column_or_1d(y, warn=True))
    except ValueError as error:
        raise ValueError(one_sentence(str(error), y, "y")) from error


def check_are_classes(y: NDArray[Any]) -> None:
    """Refuse labels that are no classes, and warn of too many."""
    # Of whole numbers close together there is nothing to say; scikit-learn would sort them first.
    if y.dtype.kind != "i" or not len(y) or int(y.max()) - int(y.min()) >= len(y) // 2:
        check_classification_targets(y)


def check_samples(X: Any, y: Any, name: str, in_order: bool = True) -> tuple[Any, NDArray[Any]]:
    """Checked features, and labels, one for each row."""
    y = check_labels(y, name)
    X = check_features(X, name, in_order=in_order)
    check_lengths(X, y)
    return X, y


def _is_zero(X: Any) -> bool:
    """Whether a matrix holds nothing but zeros; mostly the first numbers tell."""
    values = X.data if sp.issparse(X) else X
    return not (np.any(values[:100]) or np.any(values))


def check_weighted(
    estimator: Any, X: Any, y: Any, sample_weight: ArrayLike | None, alone: bool = True
) -> tuple[Any, NDArray[Any], Floats]:
    """Features, labels and the C of each example of a linear estimator; see `costs`."""
    # A vectorizer's rows are not in order, and to sort them takes longer than a short fit.
    X, y = check_samples(X, y, type(estimator).__name__, in_order=False)
    if estimator.fit_intercept:
        check_bias(estimator.intercept_scaling)
    elif alone and _is_zero(X):
        raise ValueError(
            "Every row of X is zero and fit_intercept is False, so there is nothing to learn "
            "from: check how X was made."
        )
    return X, y, costs(estimator, len(y), sample_weight, alone)
