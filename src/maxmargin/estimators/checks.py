"""Checks of what estimators are given, by scikit-learn's validation and in sentences of our own."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array, validation
from sklearn.utils.validation import _check_feature_names, column_or_1d, validate_data

from maxmargin.core.arrays import Floats
from maxmargin.core.inputs import check_bias, check_kinds, check_lengths, check_moderate, costs

_FLOATS = np.float64, np.float32


def check_is_fitted(estimator: Any) -> None:
    """Refuse an estimator that is not fitted; scikit-learn's check looks at its tags each time."""
    if "certificate_" not in vars(estimator):
        validation.check_is_fitted(estimator)


def check_features(X: Any, name: str, ends: NDArray[np.int64] | None = None) -> Any:
    """Finite features, dense in C order or CSR with 32-bit columns; `ends` are of sequences."""
    if not _is_plain(X):
        try:
            X = check_array(
                X,
                accept_sparse="csr",
                dtype=_FLOATS,
                order="C",
                ensure_all_finite=False,
                estimator=name,
                input_name="X",
            )
        except ValueError as error:
            raise ValueError(one_sentence(str(error), X, "X")) from error
    if sp.issparse(X) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    check_moderate(X, name, ends)
    return X


def _is_plain(X: Any) -> bool:
    """Whether `check_array` would return X as it is, after a while."""
    if type(X) is not np.ndarray and not (sp.issparse(X) and X.format == "csr"):
        return False
    if X.ndim != 2 or 0 in X.shape or X.dtype not in _FLOATS:
        return False
    if type(X) is np.ndarray:
        return bool(X.flags.c_contiguous)
    return bool(X.indices.dtype == X.indptr.dtype == np.int32)


def check_rows(estimator: Any, X: Any) -> Any:
    """Rows to predict for, checked, with the columns of the training data."""
    check_is_fitted(estimator)
    rows = check_features(X, type(estimator).__name__)
    alike = rows is X and rows.shape[1] == estimator.n_features_in_
    if not alike or "feature_names_in_" in vars(estimator):
        validate_data(estimator, X, reset=False, skip_check_array=True)
    return rows


def check_names(estimator: Any, X: Any, reset: bool = False) -> None:
    """Refuse columns of other names or order than in training; with `reset`, set the names."""
    named = _named(X)
    if named is None and not reset and "feature_names_in_" not in vars(estimator):
        return
    _check_feature_names(estimator, np.zeros((0, 0)) if named is None else named, reset=reset)


def _named(X: Any) -> Any:
    """A matrix with the column names of `X`, a data frame or a list of some; None without any."""
    if hasattr(X, "columns"):
        return X
    parts = X if isinstance(X, (list, tuple)) else ()
    frames = [(i, part) for i, part in enumerate(parts) if hasattr(part, "columns")]
    for i, frame in frames[1:]:
        first, names = list(frames[0][1].columns), list(frame.columns)
        if names != first:
            raise ValueError(
                f"Part {i} of X has the columns {names!s:.100}, but part {frames[0][0]} has "
                f"{first!s:.100}: give all parts the same, in the same order."
            )
    return frames[0][1] if frames else None


def check_labels(y: Any, name: str) -> NDArray[Any]:
    """Labels as one column, all of one kind."""
    if y is None:
        raise ValueError(f"{name} requires y to be passed, but the target y is None.")
    check_kinds(y, "y")
    try:
        return np.asarray(column_or_1d(y, warn=True))
    except ValueError as error:
        raise ValueError(one_sentence(str(error), y, "y")) from error


def one_sentence(message: str, values: Any, name: str) -> str:
    """Scikit-learn's complaint about an array, without the print-out of the array."""
    if message.startswith("Complex data not supported"):
        return f"Complex data not supported: {name} must hold real numbers."
    if message.startswith("Expected 2D array"):
        return (
            f"{name} must be a matrix with one row a sample, but has "
            f"{np.asarray(values).ndim} dimensions: "
            f"Reshape your data with reshape(-1, 1) if it has a single feature, or "
            f"reshape(1, -1) if it is a single sample."
        )
    if message.startswith("could not convert"):
        return f"{name} must hold numbers ({message})."
    return message


def check_samples(X: Any, y: Any, name: str) -> tuple[Any, NDArray[Any]]:
    """Checked features, and labels, one for each row."""
    y = check_labels(y, name)
    X = check_features(X, name)
    check_lengths(X, y)
    return X, y


def check_weighted(
    estimator: Any, X: Any, y: Any, sample_weight: ArrayLike | None, alone: bool = True
) -> tuple[Any, NDArray[Any], Floats]:
    """Features, labels and the C of each example of a linear estimator; see `costs`."""
    X, y = check_samples(X, y, type(estimator).__name__)
    if estimator.fit_intercept:
        check_bias(estimator.intercept_scaling)
    elif alone and not np.any(X.data if sp.issparse(X) else X):
        raise ValueError(
            "Every row of X is zero and fit_intercept is False, so there is nothing to learn "
            "from: check how X was made."
        )
    return X, y, costs(estimator, len(y), sample_weight, alone)
