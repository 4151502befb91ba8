"""Inputs of estimators as arrays: labels, all of one kind, and feature rows of sequences.

Sequences have three forms: a list of matrices with one row a position; one matrix of all rows, with
the lengths; and a list of lists of feature dictionaries (`structures/chain/vocabulary.py`).

Solvers multiply features with features, sum that over examples times their C, and square it. With d
features up to `LARGEST`, and C that add up to `LARGEST_COST`, scores stay below ``1e40 * 1e50^2 *
d`` and their squares below ``1e280 * d^2``: finite for any d that fits in memory. So it is enough
to look at each number once, where it comes in. Single precision never gets as far.
"""

from collections.abc import Iterable, Mapping
from itertools import chain
from numbers import Number
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from maxmargin.core.arrays import Floats, Order, inner_product
from maxmargin.core.cuts import starts_of


def label_array(labels: Any, what: str = "y", void: Any = None) -> NDArray[Any]:
    """Labels as an array, all of one kind but for `void`; numpy would turn 0 into "0"."""
    kinds = check_kinds(labels, what, void)
    others = kinds and isinstance(labels, (list, tuple)) and _kind(void) not in kinds
    return np.array(labels, dtype=object) if others and void in labels else np.asarray(labels)


def flat_labels(parts: Iterable[Any], what: str = "y", void: Any = None) -> NDArray[Any]:
    """Concatenate the labels of several lists, all of one kind."""
    lists = [part for part in parts if len(part)]
    kinds: dict[str, Any] = {}
    for part in lists:
        for kind, example in check_kinds(part, what, void).items():
            kinds.setdefault(kind, example)
    _refuse_mixture(kinds, what)
    return np.concatenate([np.asarray(part) for part in lists]) if lists else np.zeros(0)


def check_kinds(labels: Any, what: str, void: Any = None) -> dict[str, Any]:
    """Kinds of labels other than `void`, with an example of each; more than one is refused."""
    dtype = getattr(labels, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind != "O":
        examples = [np.ravel(labels)[0]] if np.size(labels) else []
    else:
        is_list = isinstance(labels, (list, tuple))
        members = labels if is_list else np.asarray(labels).ravel().tolist()
        if any(isinstance(member, (list, tuple, np.ndarray)) for member in members[:1]):
            members = list(chain.from_iterable(members))
        if void in members:
            members = [member for member in members if member != void]
        examples = list(dict(zip(map(type, members), members, strict=True)).values())
    kinds = {_kind(example): example for example in examples}
    if "byte strings" in kinds:
        shown = bytes(kinds["byte strings"])
        raise ValueError(
            f"{what} holds byte strings, such as {shown!r:.50}: decode them, as "
            f"[label.decode() for label in labels] does."
        )
    _refuse_mixture(kinds, what)
    return kinds


def _refuse_mixture(kinds: dict[str, Any], what: str) -> None:
    if len(kinds) > 1:
        (kind, example), (other_kind, other), *_ = sorted(kinds.items())
        shown = [one.item() if isinstance(one, np.generic) else one for one in (example, other)]
        raise ValueError(
            f"{what} mixes {kind} and {other_kind}, such as {shown[0]!r:.50} and {shown[1]!r:.50}: "
            f"make all labels of one kind."
        )


def _kind(label: Any) -> str:
    if isinstance(label, str):
        return "strings"
    if isinstance(label, (bytes, bytearray)):
        return "byte strings"
    if isinstance(label, (Number, np.generic)):
        return "numbers"
    return f"objects ({type(label).__name__})"


def all_classes(classes: Any, known: NDArray[Any] | None) -> NDArray[Any]:
    """The classes that are `known`, or, at the first call of `partial_fit`, those given, sorted."""
    if classes is None:
        if known is None:
            raise ValueError(
                "classes must be passed on the first call to partial_fit: all labels that will "
                "ever come."
            )
        return known
    given = np.unique(label_array(classes, "classes"))
    if known is not None and not np.array_equal(given, np.sort(known)):
        raise ValueError(
            f"classes are {given.tolist()}, not the same as on the last call to partial_fit, but "
            f"{known.tolist()} are known already: they must stay the same."
        )
    return given


def numbered_classes(labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The classes, sorted, and the number of each label among them."""
    if labels.dtype.kind == "i" and len(labels):
        lowest, highest = int(labels.min()), int(labels.max())
        if highest - lowest < len(labels):  # whole numbers close together can be counted
            above = np.subtract(labels, lowest, dtype=np.intp)
            present = np.bincount(above) > 0
            classes = (np.flatnonzero(present) + lowest).astype(labels.dtype)
            return classes, above if present.all() else (np.cumsum(present) - 1)[above]
    return np.unique(labels, return_inverse=True)


def joined_classes(known: NDArray[Any], found: NDArray[Any]) -> NDArray[Any]:
    """Sorted union of the classes; ValueError for fractions."""
    if found.dtype.kind == "f" and (found != np.round(found)).any():
        bad = found[found != np.round(found)][0]
        raise ValueError(f"Labels must be whole numbers or text, but y holds {bad}.")
    return np.union1d(known, found) if len(known) else found


def class_numbers(
    labels: NDArray[Any], classes: NDArray[Any], flat: bool = False
) -> NDArray[np.intp]:
    """Index of each label in the sorted `classes`; `flat` labels are those of several lists."""
    if not len(labels):
        return np.zeros(0, dtype=np.intp)
    try:
        numbers = np.searchsorted(classes, labels).clip(max=len(classes) - 1)
    except TypeError as error:
        raise ValueError(
            "Labels must all be strings or all be numbers, but y mixes types."
        ) from error
    unknown = np.flatnonzero(classes[numbers] != labels)
    if len(unknown):
        label = np.asarray(labels)[unknown].tolist()[0]
        where = "y holds" if flat else f"y[{unknown[0]}] is"
        raise ValueError(f"{where} {label!r}, which is not one of the classes {classes.tolist()}.")
    return numbers


def has_dictionaries(X: Any) -> bool:
    """Whether `X` is a list of lists of feature dictionaries (or of lists of names)."""
    if X is None or _is_matrix(X):
        return False
    for sequence in X:
        if _is_matrix(sequence):
            return False
        for position in sequence:
            if isinstance(position, (list, tuple)):
                return bool(position) and isinstance(position[0], str)
            # Words without features are refused where dictionaries are read.
            return isinstance(position, (dict, Mapping, set, frozenset, str))
    return False


def _is_matrix(X: Any) -> bool:
    """Whether it is an array, a sparse matrix or a data frame."""
    if type(X) in (list, tuple):
        return False
    return sp.issparse(X) or isinstance(X, np.ndarray) or hasattr(X, "columns")


def stack(X: Any, lengths: Any, n_features: int | None) -> tuple[Any, Order]:
    """Feature rows of all sequences, and where each sequence begins and ends."""
    if lengths is not None:
        ends = starts_of(np.asarray(lengths, dtype=np.int64))
        if (np.diff(ends) < 0).any():
            raise ValueError("lengths must not be negative.")
        if ends[-1] != X.shape[0]:
            raise ValueError(f"lengths add up to {ends[-1]}, but X has {X.shape[0]} rows.")
        return X, ends
    if _is_matrix(X) and X.ndim == 2:
        raise ValueError(
            "X is one matrix: give lengths, the number of rows of each sequence, or a list of "
            "matrices."
        )
    hint = ", or a list of feature dictionaries"
    matrices = [as_matrix(x, f"Sequence {i}", "one row a position", hint) for i, x in enumerate(X)]
    widths = [rows.shape[1] for rows in matrices if rows.shape[0] or rows.shape[1]]
    width = n_features if n_features is not None else (widths[0] if widths else 0)
    for i, rows in enumerate(matrices):
        if rows.shape[0] and rows.shape[1] != width:
            raise ValueError(
                f"Sequence {i} has {rows.shape[1]} features, but {width} were expected."
            )
    return stacked_matrices(matrices, width), starts_of([rows.shape[0] for rows in matrices])


def place_of(row: int, ends: Order) -> str:
    """Sequence and position of a row, for messages."""
    sequence = int(np.searchsorted(ends, row, side="right")) - 1
    return f"sequence {sequence}, position {row - ends[sequence]}"


def as_matrix(rows: Any, name: str, row: str, hint: str = "") -> Any:
    """A matrix, sparse or dense, of float32 or float64; errors name it and say what a `row` is."""
    if sp.issparse(rows):
        return rows
    try:
        matrix = np.asarray(rows)
        matrix = matrix if matrix.dtype == np.float32 else matrix.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a matrix of numbers, {row}{hint}.") from error
    if matrix.size == 0 and matrix.ndim < 2:
        return matrix.reshape(0, 0)
    if matrix.ndim != 2:
        raise ValueError(f"{name} must be a matrix with {row}, not of {matrix.ndim} dimensions.")
    return matrix


def stacked_matrices(matrices: list[Any], width: int) -> Any:
    """Rows of all matrices, sparse if one of them is; `width` columns if there are none."""
    filled = [rows for rows in matrices if rows.shape[0]]
    if not filled:
        return np.zeros((0, width))
    if any(sp.issparse(rows) for rows in filled):
        return sp.vstack([sp.csr_array(rows) for rows in filled], format="csr")
    return np.ascontiguousarray(np.concatenate(filled))


LARGEST = 1e50
"""Largest feature, target, loss and margin."""

LARGEST_COST = 1e40
"""Largest C of an example, times its weights."""


_FEW = 1000
"""Numbers that BLAS multiplies in one thread, whatever it is."""


def are_moderate(values: NDArray[Any]) -> bool:
    """Whether all numbers are finite and at most `LARGEST`."""
    flat = values.ravel()
    square = float(flat.dot(flat)) if flat.size < _FEW else inner_product(flat, flat)
    if square <= LARGEST**2:
        return True
    return bool((np.abs(flat) <= np.float64(LARGEST)).all())  # in float32 it would be infinite


def first_immoderate(rows: Any) -> tuple[int, int, float] | None:
    """Row, column and value of the first number that is not finite, or else is beyond `LARGEST`."""
    values = np.ravel(rows.data if sp.issparse(rows) else rows)
    if are_moderate(values):
        return None
    bad = np.flatnonzero(~np.isfinite(values))
    at = int(bad[0] if len(bad) else np.flatnonzero(np.abs(values) > LARGEST)[0])
    if not sp.issparse(rows):
        row, column = divmod(at, rows.shape[1])
        return row, column, float(values[at])
    row = int(np.searchsorted(rows.indptr, at, side="right")) - 1
    return row, int(rows.indices[at]), float(values[at])


def complaint(value: float, what: str, where: str, who: str) -> str:
    """Error message for what `first_immoderate` found."""
    if np.isfinite(value):
        return (
            f"{what} has {value:g} at {where}, but squares of numbers beyond {LARGEST:g} overflow: "
            f"scale the features, to about 1, before {who} sees them."
        )
    kind = "NaN" if np.isnan(value) else "infinity"
    return (
        f"{what} has {kind} (NaN and inf are not allowed) at {where}: remove or impute such values "
        f"before {who} sees them."
    )


def check_moderate(X: Any, name: str, ends: NDArray[np.int64] | None = None) -> None:
    """Refuse NaN, infinity, and features so large that their squares overflow."""
    found = first_immoderate(X)
    if found is not None:
        row, column, value = found
        place = f"row {row}" if ends is None else place_of(row, ends)
        raise ValueError(complaint(value, "X", f"{place}, column {column}", name))


def as_floats(values: Any, name: str) -> Floats:
    """Numbers as an array; ValueError for anything else."""
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold numbers, in a regular shape.") from error


def check_per_sample(values: ArrayLike, n_samples: int, name: str, what_for: str) -> Floats:
    """One finite, non-negative number for each sample (or one for all)."""
    array = as_floats(values, name)
    if array.ndim == 0:
        _check_sizes(array[None], name, what_for, f"take smaller {what_for}")
        return np.full(n_samples, float(array))
    if array.shape != (n_samples,):
        raise ValueError(
            f"{name} must hold one number for each of the {n_samples} samples, "
            f"but has shape {array.shape}."
        )
    _check_sizes(array, name, what_for, f"take smaller {what_for}")
    return array


def _check_sizes(array: Floats, name: str, what_for: str, cure: str) -> None:
    """Refuse numbers that are negative, not finite or beyond `LARGEST`."""
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


def check_several(classes: NDArray[Any], name: str) -> None:
    """Refuse a single class."""
    if len(classes) < 2:
        raise ValueError(
            f"{name} needs examples of at least two classes, but y holds only one class, "
            f"{classes.tolist()[0]!r}."
        )


def check_k(k: int) -> int:
    """Refuse a number of best outputs below one."""
    if k < 1:
        raise ValueError(f"k must be at least 1, but is {k}.")
    return int(k)


def check_temperature(temperature: float) -> float:
    """Refuse a temperature that scores cannot be divided by."""
    if not temperature > 0.0:
        raise ValueError(f"temperature must be positive, but is {temperature}.")
    return float(temperature)


def check_lengths(X: Any, y: Any) -> None:
    """Refuse another number of targets than of rows."""
    if X.shape[0] != len(y):
        raise ValueError(
            f"X has {X.shape[0]} rows but y has {len(y)} entries (inconsistent numbers of "
            f"samples): give one target for each row."
        )


def costs(
    estimator: Any, n_examples: int, sample_weight: ArrayLike | None, alone: bool = True
) -> Floats:
    """C of each example; `alone` says that no others are learned from."""
    C = np.full(n_examples, float(estimator.C))
    if sample_weight is not None:
        C *= check_per_sample(sample_weight, n_examples, "sample_weight", "weights")
        if alone and not C.any():
            raise ValueError("All sample weights are zero: at least one must be positive.")
    return check_costs(C)


def check_costs(C: Floats) -> Floats:
    """C of each example, none so large that sums overflow."""
    total = float(C.sum())
    if not total <= LARGEST_COST:
        at = int(np.argmax(C))
        raise ValueError(
            f"C times the weights adds up to {total:g} (example {at} has {C[at]:g}), but beyond "
            f"{LARGEST_COST:g} the objective overflows: take a smaller C or smaller weights."
        )
    return C
