"""Files of arrays with a JSON header, in the safetensors format.

A file is written whole or not at all, opened once and believed in nothing: its sizes are checked
against each other before anything is made of them, and two checksums, one of the header (which
holds the other) and one of the arrays, cover every byte. Reading one never runs code.
"""

import hashlib
import json
import math
import mmap
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.io.atomic import atomic_write

_DTYPES = {
    "bool": "BOOL", "int8": "I8", "uint8": "U8", "int16": "I16", "uint16": "U16", "int32": "I32",
    "uint32": "U32", "int64": "I64", "uint64": "U64", "float16": "F16", "float32": "F32",
    "float64": "F64",
}  # fmt: skip

_NAMES = {kind: np.dtype(name) for name, kind in _DTYPES.items()}

_HEADER, _HEADER_SUM, _ARRAYS_SUM = "maxmargin", "maxmargin.header_sum", "maxmargin.arrays_sum"
"""Names in the metadata: the header, and the checksums of the text around it and of the arrays."""

_NO_SUM = "0" * 64
"""Stands for the header's checksum while that is computed."""

_MOST_DIMENSIONS = 32


class Tensors(NamedTuple):
    """What is in a file."""

    header: Any
    arrays: dict[str, NDArray[Any]]


class DamagedFileError(ValueError):
    """A file is not whole, or is none of ours."""


def write_tensors(path: Path, header: Any, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays and a header that JSON can hold; all of it or, if that fails, nothing.

    Parameters
    ----------
    path : Path
    header : object
    arrays : mapping of names to arrays

    Raises
    ------
    OSError
        If the disk is full, or the place cannot be written to.
    """
    # Wide numbers come first, so that all stand where the processor can use them in place.
    by_width = sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize)
    whole = {name: np.ascontiguousarray(array) for name, array in by_width}
    metadata = {
        _HEADER_SUM: _NO_SUM,
        _ARRAYS_SUM: _sum_of(_bytes_of(array) for array in whole.values()),
        _HEADER: json.dumps(header),
    }
    entries: dict[str, Any] = {"__metadata__": metadata}
    at = 0
    for name, array in whole.items():
        end = at + array.nbytes
        kind = _DTYPES[array.dtype.name]
        entries[name] = {"dtype": kind, "shape": array.shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    text = text.replace(_NO_SUM.encode(), _sum_of([text]).encode(), 1)
    with atomic_write(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in whole.values():
            file.write(_bytes_of(array))


def read_tensors(path: Path, *, mapped: bool = False) -> Tensors:
    """Header and arrays of a file.

    Parameters
    ----------
    path : Path
    mapped : bool, default=False
        Leave the arrays in the file until they are used, without comparing them with their
        checksum; what is written to them stays in memory. Should the file be cut short meanwhile,
        the operating system ends the process.

    Raises
    ------
    DamagedFileError
        With one sentence that says so.
    OSError
        If there is no such file, or it cannot be read.
    """
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: give the name of a file.")
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(f"{path} is a device or a pipe, not a file: give the name of a file.")
    try:
        with path.open("rb") as file:
            return _read(file, mapped)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise DamagedFileError(
            f"{path} is damaged or was not written by maxmargin: {reason}."
        ) from error


def _read(file: BinaryIO, mapped: bool) -> Tensors:
    n_bytes = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if n_bytes < 8 or length > n_bytes - 8:
        raise ValueError("the header is longer than the file")
    text = file.read(length)
    entries = json.loads(text)
    if not isinstance(entries, dict) or not isinstance(entries.get("__metadata__"), dict):
        raise ValueError("the header has no metadata")
    metadata = entries.pop("__metadata__")
    if not all(isinstance(value, str) for value in metadata.values()) or _HEADER not in metadata:
        raise ValueError("the header has no metadata")
    _check_header(text, metadata)
    layout = {name: _Place.of(entry) for name, entry in entries.items()}
    n_data = n_bytes - 8 - length
    _check_covers(layout.values(), n_data)
    data = _mapped(file, 8 + length, n_data) if mapped else _loaded(file, n_data)
    if not mapped and _ARRAYS_SUM in metadata and _sum_of([data]) != metadata[_ARRAYS_SUM]:
        raise ValueError("its numbers are not those that were written")
    arrays = {
        name: np.frombuffer(data[place.start : place.end], dtype=place.dtype).reshape(place.shape)
        for name, place in layout.items()
    }
    return Tensors(json.loads(metadata[_HEADER]), arrays)


def _check_header(text: bytes, metadata: Mapping[str, str]) -> None:
    """Compare the header with its checksum; files of the first format have none."""
    stored = metadata.get(_HEADER_SUM)
    if (stored is None) != (_ARRAYS_SUM not in metadata):
        raise ValueError("a checksum is missing")
    if stored is None:
        return
    if _sum_of([text.replace(stored.encode(), _NO_SUM.encode(), 1)]) != stored:
        raise ValueError("its header is not the one that was written")


class _Place(NamedTuple):
    """Where an array stands among the data of a file, and what it is."""

    start: int
    end: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, entry: Any) -> "_Place":
        """What an entry of the header says, if it can be.

        Raises
        ------
        ValueError
        """
        if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
            raise ValueError("an array is not described as it should be")
        kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(kind, str) or kind not in _NAMES:
            raise ValueError(f"arrays of type {kind!r:.40} are not known")
        if not (_are_sizes(shape) and _are_sizes(offsets) and len(offsets) == 2):
            raise ValueError("an array has a shape or a place that no array can have")
        place = cls(offsets[0], offsets[1], _NAMES[kind], tuple(shape))
        if len(shape) > _MOST_DIMENSIONS or place.end - place.start != place.n_bytes:
            raise ValueError("an array has a shape that does not fit its place")
        # An array of no numbers can claim any other dimension: it must be one of some memory.
        if math.prod(max(size, 1) for size in shape) * place.dtype.itemsize > 2**40:
            raise ValueError("an array has a shape that no array can have")
        return place

    @property
    def n_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _check_covers(places: Iterable[_Place], n_bytes: int) -> None:
    """Refuse data that are not made up of the arrays one after the other."""
    at = 0
    for place in sorted(places, key=lambda place: (place.start, place.end)):
        if place.start != at:
            raise ValueError("arrays overlap, or leave a gap")
        at = place.end
    if at != n_bytes:
        raise ValueError("it is cut short, or has more data than its header says")


def _loaded(file: BinaryIO, n_bytes: int) -> memoryview:
    data = np.empty(n_bytes, dtype=np.uint8)
    if file.readinto(data.data) != n_bytes:  # type: ignore[attr-defined]
        raise ValueError("it was cut short while it was read")
    return data.data


def _mapped(file: BinaryIO, start: int, n_bytes: int) -> memoryview:
    # Private and writable: compiled routines would be compiled anew for read-only arrays.
    whole = mmap.mmap(file.fileno(), start + n_bytes, access=mmap.ACCESS_COPY)
    return memoryview(whole)[start:]


def _bytes_of(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _sum_of(parts: Iterable[Any]) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return found.hexdigest()
