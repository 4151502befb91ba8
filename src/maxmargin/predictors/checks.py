"""Checks of what is to be predicted for; scikit-learn is imported only where it has a complaint."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.core.inputs import check_moderate

_FLOATS = np.float64, np.float32


def check_is_fitted(predictor: Any) -> None:
    """Refuse an estimator that is not fitted; scikit-learn's check looks at its tags each time."""
    if "certificate_" not in vars(predictor):
        from sklearn.utils import validation

        validation.check_is_fitted(predictor)


def check_features(
    X: Any, name: str, ends: NDArray[np.int64] | None = None, in_order: bool = True
) -> Any:
    """Finite features, dense in C order or CSR; `ends` are of sequences.

    The columns of a sparse row are all different and, unless `in_order` is False, sorted.
    """
    rows = _plain(X)
    rows = _checked_array(X, name) if rows is None else rows
    if sp.issparse(rows) and not rows.has_canonical_format and (in_order or _has_repeats(rows)):
        rows = rows.copy()
        rows.sum_duplicates()
    check_moderate(rows, name, ends)
    return rows


def _has_repeats(rows: Any) -> bool:
    from maxmargin.compiled.rows import repeats_columns  # sorted rows predict without numba

    return bool(repeats_columns(rows))


def _plain(X: Any) -> Any:
    """What `check_array` would make of arrays, sparse matrices and lists of numbers, or None."""
    if type(X) is list:
        try:
            X = np.array(X)
        except ValueError:
            return None  # rows of different lengths
    if sp.issparse(X):
        X = X if X.format == "csr" else X.tocsr()
    elif type(X) is not np.ndarray:
        return None
    if X.ndim != 2 or 0 in X.shape or X.dtype.kind not in "fiub":
        return None
    if X.dtype not in _FLOATS:
        X = X.astype(np.float64)
    return X if sp.issparse(X) else np.ascontiguousarray(X)


def _checked_array(X: Any, name: str) -> Any:
    """Data frames and bad input, by scikit-learn's validation."""
    from sklearn.utils import check_array

    try:
        return check_array(
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


def check_rows(predictor: Any, X: Any, in_order: bool = True) -> Any:
    """Rows to predict for, checked, with the columns of the training data."""
    check_is_fitted(predictor)
    rows = check_features(X, type(predictor).__name__, in_order=in_order)
    if not isinstance(X, list):
        check_names(predictor, X)
    if rows.shape[1] != predictor.n_features_in_:
        raise ValueError(
            f"X has {rows.shape[1]} features, but {type(predictor).__name__} is expecting "
            f"{predictor.n_features_in_} features as input."
        )
    return rows


def check_names(predictor: Any, X: Any, reset: bool = False) -> None:
    """Refuse columns of other names or order than in training; with `reset`, set the names."""
    named = _named(X)
    if named is None and not _has_names(predictor):
        return
    from sklearn.utils.validation import _check_feature_names

    _check_feature_names(predictor, np.zeros((0, 0)) if named is None else named, reset=reset)


def _has_names(predictor: Any) -> bool:
    return "feature_names_in_" in vars(predictor)


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
