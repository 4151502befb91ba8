"""Bad input gets one sentence: what is wrong, where, and what to do."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array
from sklearn.utils.validation import check_consistent_length

from maxmargin.data.sequences import place_of

Floats = NDArray[np.float64]


def check_features(X: Any, name: str, ends: NDArray[np.int64] | None = None) -> Any:
    """Finite float32 or float64 features, dense in C order or CSR with 32-bit columns.

    With `ends`, they are rows of sequences that the user gave one by one.
    """
    try:
        X = check_array(
            X,
            accept_sparse="csr",
            dtype=(np.float64, np.float32),
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
    values = X.data if sp.issparse(X) else X
    if not np.isfinite(values.sum(dtype=np.float64)) and not np.isfinite(values).all():
        at = np.flatnonzero(~np.isfinite(np.ravel(values)))[0]
        if sp.issparse(X):
            row, column = np.searchsorted(X.indptr, at, side="right") - 1, X.indices[at]
        else:
            row, column = np.divmod(at, X.shape[1])
        what = "NaN" if np.isnan(np.ravel(values)[at]) else "infinity"
        place = f"row {row}" if ends is None else place_of(row, ends)
        raise ValueError(
            f"X has {what} (NaN and inf are not allowed) at {place}, column {column}: remove or "
            f"impute such values before {name} sees them."
        )
    return X


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


def as_floats(values: Any, name: str) -> Floats:
    """Numbers as an array."""
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold numbers, in a regular shape.") from error


def check_per_sample(values: ArrayLike, n_samples: int, name: str, what_for: str) -> Floats:
    """One finite number that is not negative for each sample (or one for all)."""
    array = as_floats(values, name)
    if array.ndim == 0:
        array = np.full(n_samples, float(array))
    if array.shape != (n_samples,):
        raise ValueError(
            f"{name} must hold one number for each of the {n_samples} samples, "
            f"but has shape {array.shape}."
        )
    bad = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
    if len(bad):
        raise ValueError(
            f"{name}[{bad[0]}] is {array[bad[0]]}, but {what_for} must be finite and not negative."
        )
    return array


def check_lengths(X: Any, y: Any) -> None:
    """As many targets as rows."""
    try:
        check_consistent_length(X, y)
    except ValueError as error:
        raise ValueError(
            f"X has {X.shape[0]} rows but y has {len(y)} entries (inconsistent numbers of "
            f"samples): give one target for each row."
        ) from error


def check_loss_matrix(loss_matrix: Any, classes: NDArray[Any]) -> Floats:
    """Loss of answering the column's class for the row's, in the order of `classes`."""
    n_classes = len(classes)
    if loss_matrix is None:
        return 1.0 - np.eye(n_classes)
    if isinstance(loss_matrix, dict):
        loss_matrix = [[loss_matrix.get((a, b), float(a != b)) for b in classes] for a in classes]
    loss = as_floats(loss_matrix, "loss_matrix")
    if loss.shape != (n_classes, n_classes):
        raise ValueError(
            f"loss_matrix has shape {loss.shape} but y holds {n_classes} classes: give a "
            f"({n_classes}, {n_classes}) array in the order of the sorted classes, or a "
            f"dictionary {{(true, predicted): loss}}, which also works when a class is missing."
        )
    if not (np.isfinite(loss) & (loss >= 0)).all():
        a, b = np.argwhere(~(np.isfinite(loss) & (loss >= 0)))[0]
        raise ValueError(
            f"loss_matrix[{a}, {b}] is {loss[a, b]}, but losses must be finite and not negative."
        )
    if np.diagonal(loss).any():
        at = int(np.flatnonzero(np.diagonal(loss))[0])
        raise ValueError(
            f"loss_matrix[{at}, {at}] is {loss[at, at]}, but the right answer must cost nothing: "
            f"set the diagonal to zero."
        )
    return loss
