"""Whether values are what the code that will use them takes for granted.

Compiled routines check no index, so nothing that a file holds may reach them unseen.

Solvers multiply features with features, sum that over examples times their C, and square it. With d
features up to `LARGEST`, and C that add up to `LARGEST_COST`, scores stay below ``1e40 * 1e50^2 *
d`` and their squares below ``1e280 * d^2``: finite for any d that fits in memory. So it is enough
to look at each number once, where it comes in. Single precision never gets as far.
"""

import types
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar, Union, get_args, get_origin

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray


def check_types(owner: str, values: Mapping[str, Any], hints: Mapping[str, Any]) -> None:
    """Refuse values of an `owner` that are unknown, or of other types than their hints declare."""
    for name, value in values.items():
        if name not in hints:
            raise ValueError(f"{owner} has no {name!r:.60}")
        if not conforms(value, hints[name]):
            raise ValueError(f"{name} of {owner} is of another type, {type(value).__name__}")


def conforms(value: Any, hint: Any) -> bool:
    """Whether a value is of a type that a hint allows; hints that say little allow anything."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any or origin is ClassVar:
        return True
    if origin in (Union, types.UnionType):
        return any(conforms(value, one) for one in arguments)
    if hint is None or hint is types.NoneType:
        return value is None
    if hint is float:
        return type(value) in (float, int)
    if hint in (bool, int, str, bytes):
        return type(value) is hint
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return isinstance(value, str) and value in list(hint)
    if origin is np.ndarray:
        wanted = get_args(arguments[1])[0]
        return isinstance(value, np.ndarray) and (wanted is Any or value.dtype == wanted)
    if origin in (list, Sequence):
        return isinstance(value, list | tuple) and all(conforms(v, arguments[0]) for v in value)
    if origin is tuple:
        return _tuple_conforms(value, arguments)
    if origin in (dict, Mapping):
        return isinstance(value, Mapping) and all(
            conforms(key, arguments[0]) and conforms(item, arguments[1])
            for key, item in value.items()
        )
    return isinstance(value, origin or hint) if isinstance(origin or hint, type) else True


def _tuple_conforms(value: Any, arguments: tuple[Any, ...]) -> bool:
    if not isinstance(value, tuple):
        return False
    if len(arguments) == 2 and arguments[1] is ...:
        return all(conforms(item, arguments[0]) for item in value)
    return len(value) == len(arguments) and all(map(conforms, value, arguments))


def check_shape(name: str, array: Any, *shape: int) -> None:
    """Refuse an array, dense or sparse, that is not of this shape."""
    found = getattr(array, "shape", None)
    if found != shape:
        raise ValueError(f"{name} must be of shape {shape}, but is {found}")


def check_indices(name: str, indices: NDArray[Any], end: int, start: int = 0) -> None:
    """Refuse integers that are not in ``range(start, end)``."""
    if indices.dtype.kind not in "iu":
        raise ValueError(f"{name} must be integers")
    if indices.size and not (start <= int(indices.min()) and int(indices.max()) < end):
        raise ValueError(f"{name} must be from {start} to {end - 1}")


def check_offsets(name: str, offsets: NDArray[Any], end: int) -> None:
    """Refuse the starts of consecutive parts if they do not rise from zero to `end`."""
    good = offsets.ndim == 1 and offsets.dtype.kind in "iu" and len(offsets) > 0
    if not good or offsets[0] != 0 or offsets[-1] != end or (offsets[1:] < offsets[:-1]).any():
        raise ValueError(f"{name} must rise from 0 to {end}")


def check_finite(name: str, array: NDArray[Any]) -> None:
    """Refuse not-a-numbers and infinities."""
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite")


def checked_csr(data: Any, indices: Any, indptr: Any, shape: Sequence[Any]) -> sp.csr_array:
    """A sparse matrix from its arrays, none of which is trusted."""
    if not all(isinstance(part, np.ndarray) and part.ndim == 1 for part in (data, indices, indptr)):
        raise ValueError("a sparse matrix has parts that are no vectors")
    if len(shape) != 2 or not all(type(size) is int and 0 <= size < 2**48 for size in shape):
        raise ValueError("a sparse matrix has a shape that no matrix can have")
    if len(indptr) != shape[0] + 1 or len(data) != len(indices):
        raise ValueError("a sparse matrix has parts that do not fit together")
    check_offsets("rows of a sparse matrix", indptr, len(indices))
    check_indices("columns of a sparse matrix", indices, shape[1])
    return sp.csr_array((data, indices, indptr), shape=tuple(shape))


LARGEST = 1e50
"""Of features, targets, losses and margins."""

LARGEST_COST = 1e40
"""Of the C of an example, with its weights."""


def are_moderate(values: NDArray[Any]) -> bool:
    """Whether all numbers are finite, and none is beyond `LARGEST`; in one pass, mostly."""
    flat = np.ravel(values)
    with np.errstate(all="ignore"):
        if float(np.dot(flat, flat)) <= LARGEST**2:
            return True
    return bool((np.abs(flat) <= np.float64(LARGEST)).all())  # in float32 it would be infinite


def first_immoderate(rows: Any) -> tuple[int, int, float] | None:
    """Row, column and value of the first number that is not finite or beyond `LARGEST`.

    Those that are not finite come before those that are too large.

    Parameters
    ----------
    rows : ndarray or CSR matrix of shape (n_rows, n_columns)

    Examples
    --------
    >>> import numpy as np
    >>> first_immoderate(np.array([[1.0, 2.0], [-1e300, 0.0]]))
    (1, 0, -1e+300)
    """
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
    """The sentence about a number that `first_immoderate` has found."""
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
