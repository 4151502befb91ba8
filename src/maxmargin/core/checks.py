"""Checks of values from files: compiled routines check no index themselves."""

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
