"""Memory-mapped arrays, and hashes of samples of data."""

import hashlib
import mmap
import os
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray


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
            csr = sp.csr_array(value)
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
        if array.ndim == 0 or array.size * array.itemsize <= PIECES * PIECE_BYTES:
            self._hash.update(array.tobytes())
            return
        if not array.flags.c_contiguous:
            array = array if array.flags.f_contiguous else array[places(len(array))]
        flat = array.reshape(-1, order="A")
        per_piece = max(PIECE_BYTES // array.itemsize, 1)
        for place in places(-(-len(flat) // per_piece)):
            piece = flat[place * per_piece : (place + 1) * per_piece]
            self._hash.update(piece.tobytes())
            release(array)  # the system maps far more than was looked at

    def _add_text(self, text: str) -> None:
        self._hash.update(text.encode())
        self._hash.update(b"\0")


def places(n: int, most: int = PIECES) -> list[int]:
    """Up to `most` indices below `n`, evenly spaced, the first and the last among them."""
    return sorted({int(place) for place in np.linspace(0, n - 1, min(most, n))}) if n else []
