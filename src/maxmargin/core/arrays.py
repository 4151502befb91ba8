"""Arrays: their types, checks of those from files, memory-mapped ones, hashes of samples.

Compiled routines check no index themselves, so what comes from a file is checked before.
"""

import hashlib
import mmap
import os
import types
from collections.abc import Iterable, Mapping, Sequence, Set
from enum import StrEnum
from functools import lru_cache
from typing import Any, ClassVar, Union, get_args, get_origin

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Order = NDArray[np.int64]
"""Numbers of examples, cutting planes or entries, in an order that matters."""


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


_LEFT_TO_BLAS = 8192
"""Numbers of which BLAS takes an inner product in one thread."""


def dot(a: Floats, b: Floats) -> float:
    """Inner product of two vectors, in this thread: those of BLAS go on spinning after each."""
    return float(a @ b) if len(a) <= _LEFT_TO_BLAS else float(np.einsum("i,i->", a, b))


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


def inner_product(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Sum of all products, in one thread: BLAS would wait for a second core, if that is busy."""
    return float(np.einsum("i,i->", a.ravel(), b.ravel()))


def open_mapped(path: str | os.PathLike[str]) -> NDArray[Any]:
    """The array of an ``.npy`` file, mapped for reading."""
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        if os.path.getsize(path) and "mmap an empty file" in str(error):
            return np.load(path, allow_pickle=False)  # type: ignore[no-any-return]
        raise ValueError(f"{os.fspath(path)!r} is damaged or holds no array ({error}).") from error
    return array


def release(*arrays: Any) -> None:
    """Drop the pages of mapped arrays from memory until they are read again."""
    for array in arrays:
        mapped = getattr(array, "_mmap", None)
        if mapped is not None and array.mode in ("r", "r+") and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)


PIECES, PIECE_BYTES = 64, 1024
"""Chunks of an array or a file that are hashed, and their length."""


class SampledHash:
    """A hash of samples of the data that are added."""

    piece_bytes: ClassVar[int] = PIECE_BYTES

    def __init__(self, kind: str, *values: Any) -> None:
        self._hash = hashlib.blake2b(kind.encode(), digest_size=16)
        for value in values:
            self.add(value)

    def text(self) -> str:
        return self._hash.hexdigest()

    def add(self, value: Any) -> None:
        """Add any object that examples are made of; of an unknown one, its type."""
        if isinstance(value, np.ndarray) and value.dtype != object:
            self._add_array(value)
        elif sp.issparse(value):
            csr = value if value.format == "csr" else sp.csr_array(value)
            self._add_text(f"sparse {csr.shape}")
            for part in (csr.indptr, csr.indices, csr.data):
                self._add_array(part)
        elif isinstance(value, Mapping):
            self._add_text(f"mapping {len(value)}")
            for key in sorted(value, key=repr):
                self.add(key)
                self.add(value[key])
        elif isinstance(value, Set):
            self._add_text(f"set {sorted(map(repr, value))}")
        elif isinstance(value, (str, bytes, bool, int, float, complex, np.generic, type(None))):
            self._add_text(repr(value))
        elif isinstance(value, (Sequence, np.ndarray)):
            self._add_text(f"sequence {len(value)}")
            for place in self._places(len(value)):
                self.add(value[place])
        elif hasattr(value, "__array__"):
            self.add(np.asarray(value))
        else:
            self._add_unknown(value)

    def add_file(self, path: str | os.PathLike[str]) -> None:
        """Add the size and chunks of a file."""
        size = os.path.getsize(path)
        self._add_text(f"file {size}")
        with open(path, "rb") as file:
            for place in places(-(-size // PIECE_BYTES)):
                file.seek(place * PIECE_BYTES)
                self._hash.update(file.read(PIECE_BYTES))

    def _places(self, n: int) -> Iterable[int]:
        return places(n)

    def _add_unknown(self, value: Any) -> None:
        self._add_text(type(value).__qualname__)

    def _add_array(self, array: Any) -> None:
        self._add_text(f"array {array.shape} {array.dtype.str}")
        if array.ndim == 0 or array.size * array.itemsize <= PIECES * self.piece_bytes:
            self._hash.update(array.tobytes())
            return
        if not array.flags.c_contiguous:
            array = array if array.flags.f_contiguous else array[[*places(len(array))]]
        flat = array.reshape(-1, order="A")
        per_piece = max(self.piece_bytes // array.itemsize, 1)
        is_mapped = hasattr(array, "_mmap")
        pieces = []
        for place in places(-(-len(flat) // per_piece)):
            pieces.append(flat[place * per_piece : (place + 1) * per_piece].tobytes())
            if is_mapped:
                release(array)  # the system maps far more than was looked at
        self._hash.update(b"".join(pieces))

    def _add_text(self, text: str) -> None:
        self._hash.update(text.encode())
        self._hash.update(b"\0")


@lru_cache  # the arrays of a matrix are of the same few lengths, fit after fit
def places(n: int, most: int = PIECES) -> tuple[int, ...]:
    """Up to `most` indices below `n`, evenly spaced, the first and the last among them."""
    return tuple(dict.fromkeys(np.linspace(0, n - 1, min(most, n)).astype(np.int64).tolist()))
