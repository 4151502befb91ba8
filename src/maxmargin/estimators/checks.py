"""Bad input gets one sentence: what is wrong, where, and what to do."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array
from sklearn.utils.validation import (
    _check_feature_names,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from maxmargin.core.checks import LARGEST, LARGEST_COST, complaint, first_immoderate
from maxmargin.core.inputs import check_kinds, place_of

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
    check_moderate(X, name, ends)
    return X


def check_moderate(X: Any, name: str, ends: NDArray[np.int64] | None = None) -> None:
    """Refuse NaN, infinity, and features so large that their squares overflow."""
    found = first_immoderate(X)
    if found is not None:
        row, column, value = found
        place = f"row {row}" if ends is None else place_of(row, ends)
        raise ValueError(complaint(value, "X", f"{place}, column {column}", name))


def check_rows(estimator: Any, X: Any) -> Any:
    """Rows to predict for, checked, with the columns of the training data."""
    check_is_fitted(estimator)
    rows = check_features(X, type(estimator).__name__)
    validate_data(estimator, X, reset=False, skip_check_array=True)
    return rows


def check_names(estimator: Any, X: Any, reset: bool = False) -> None:
    """Refuse columns of other names, or in another order, than those of the training data.

    Or set ``feature_names_in_`` to their names, and remove it if they have none.
    """
    _check_feature_names(estimator, _named(X), reset=reset)


def _named(X: Any) -> Any:
    """A matrix whose columns have the names of those of `X`: a data frame, or a list of some."""
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
    return frames[0][1] if frames else np.zeros((0, 0))


def check_labels(y: Any, name: str) -> NDArray[Any]:
    """Labels as one column, all of one kind."""
    if y is None:
        raise ValueError(f"{name} requires y to be passed, but the target y is None.")
    check_kinds(y, "y")
    try:
        return np.asarray(column_or_1d(y, warn=True))
    except ValueError as error:
        raise ValueError(one_sentence(str(error), y, "y")) from error


def check_several(classes: NDArray[Any], name: str) -> None:
    """Refuse a single class."""
    if len(classes) < 2:
        raise ValueError(
            f"{name} needs examples of at least two classes, but y holds only one class, "
            f"{classes.tolist()[0]!r}."
        )


def check_k(k: int) -> int:
    """How many of the best outputs are asked for."""
    if k < 1:
        raise ValueError(f"k must be at least 1, but is {k}.")
    return int(k)


def check_temperature(temperature: float) -> float:
    """What scores are divided by."""
    if not temperature > 0.0:
        raise ValueError(f"temperature must be positive, but is {temperature}.")
    return float(temperature)


def check_costs(C: Floats) -> Floats:
    """The C of each example, with its weights; none so large that sums of them overflow."""
    total = float(C.sum())
    if not total <= LARGEST_COST:
        at = int(np.argmax(C))
        raise ValueError(
            f"C times the weights adds up to {total:g} (example {at} has {C[at]:g}), but beyond "
            f"{LARGEST_COST:g} the objective overflows: take a smaller C or smaller weights."
        )
    return C


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
    _check_sizes(array, name, what_for, f"take smaller {what_for}")
    return array


def _check_sizes(array: Floats, name: str, what_for: str, cure: str) -> None:
    """Refuse numbers that are negative or not finite, or so large that sums of them overflow."""
    bad = np.argwhere(~(np.isfinite(array) & (array >= 0)))
    large = np.argwhere(array > LARGEST)
    if not len(bad) and not len(large):
        return
    at = tuple((bad if len(bad) else large)[0].tolist())
    place = f"{name}[{', '.join(map(str, at))}]"
    if len(bad):
        raise ValueError(f"{place} is {array[at]}, but {what_for} must be finite and not negative.")
    raise ValueError(f"{place} is {array[at]:g}, but beyond {LARGEST:g} sums overflow: {cure}.")


def check_bias(bias: float) -> None:
    """Refuse a constant feature whose square overflows."""
    if bias > LARGEST:
        raise ValueError(
            f"intercept_scaling is {bias:g}, but its square overflows beyond {LARGEST:g}: take a "
            f"smaller one."
        )


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
    _check_sizes(loss, "loss_matrix", "losses", "take smaller losses and a larger C")
    if np.diagonal(loss).any():
        at = int(np.flatnonzero(np.diagonal(loss))[0])
        raise ValueError(
            f"loss_matrix[{at}, {at}] is {loss[at, at]}, but the right answer must cost nothing: "
            f"set the diagonal to zero."
        )
    return loss
