"""Files written whole or not at all, and safetensors files of arrays with a JSON header.

A temporary file beside the target is flushed to disk and renamed over it. What is read is not
trusted: sizes must fit together, and the checksums of header and arrays cover every byte.
"""

import hashlib
import json
import math
import mmap
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.arrays import conforms

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_ENDING = ".partial"
_BINARY = getattr(os, "O_BINARY", 0)

_MOST_NAME_BYTES = 150
"""Of the target's name in the temporary one: file systems allow 255 in all."""


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write to, which replaces `path` when the block ends without an error.

    Symbolic links are followed, mode and owner kept, stale temporary files removed. OSError if
    `path` is no regular file, has no folder, or cannot be written to; what was there stays.
    """
    target = Path(os.path.realpath(path))
    _refuse_others(Path(path), target)
    check_folder_of(target)
    _remove_stale(target)
    partial, file = _create_beside(target)
    try:
        with file:
            yield file
            file.flush()
            _keep_permissions(target, file)
            os.fsync(file.fileno())
            partial.replace(target)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise
    _flush_folder(target.parent)


def _refuse_others(path: Path, target: Path) -> None:
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder: give the name of a file.")
    if target.exists() and not target.is_file():
        raise OSError(f"{path} is a device or a pipe, not a file: give the name of a file.")


def check_folder_of(path: Path) -> None:
    """Refuse a path whose folder does not exist."""
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"There is no folder {path.parent} to write {path.name} to: make it."
        )


def _create_beside(target: Path) -> tuple[Path, BinaryIO]:
    """A new temporary file, locked while it is open."""
    while True:
        partial = target.with_name(f"{_prefix(target)}{secrets.token_hex(8)}{_ENDING}")
        number = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o666)
        file = os.fdopen(number, "wb")
        _lock(file, wait=True)
        # Before it was locked, another writer may have taken it for a stale one.
        if os.fstat(number).st_nlink or fcntl is None:
            return partial, file
        file.close()


def _prefix(target: Path) -> str:
    return f".{os.fsdecode(os.fsencode(target.name)[:_MOST_NAME_BYTES])}."


def _lock(file: BinaryIO, wait: bool) -> bool:
    """Lock a file while it is open; False if others have, or there are no locks here."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_stale(target: Path) -> None:
    """Remove temporary files whose locks nobody holds."""
    prefix = _prefix(target)
    length = len(prefix) + 16 + len(_ENDING)
    with suppress(OSError):  # a folder that cannot be listed
        for name in os.listdir(target.parent):
            if len(name) == length and name.startswith(prefix) and name.endswith(_ENDING):
                stale = target.with_name(name)
                with suppress(OSError), open(stale, "r+b") as file:
                    if _lock(file, wait=False):
                        stale.unlink()


def _keep_permissions(target: Path, file: BinaryIO) -> None:
    if os.name != "posix":
        return
    with suppress(FileNotFoundError):
        there = target.stat()
        with suppress(PermissionError):
            os.fchown(file.fileno(), there.st_uid, there.st_gid)
        os.fchmod(file.fileno(), stat.S_IMODE(there.st_mode))


def _flush_folder(folder: Path) -> None:
    if os.name != "posix":
        return
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


_KINDS = {
    "BOOL": "bool", "I8": "int8", "U8": "uint8", "I16": "int16", "U16": "uint16", "I32": "int32",
    "U32": "uint32", "I64": "int64", "U64": "uint64", "F16": "float16", "F32": "float32",
    "F64": "float64",
}  # fmt: skip
_KIND_OF = {dtype: kind for kind, dtype in _KINDS.items()}

_HEADER, _HEADER_SUM, _ARRAYS_SUM = "maxmargin", "maxmargin.header_sum", "maxmargin.arrays_sum"
"""Names in the metadata: the header, and the checksums of header and arrays."""

_NO_SUM = "0" * 64
"""Stands for the header's checksum while that is computed."""

_MOST_DIMENSIONS = 32


class DamagedFileError(ValueError):
    """A file is not whole, or is none of ours."""


def write_tensors(path: Path, header: Any, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays and a JSON header; all of it or, after an OSError, nothing."""
    # Wide numbers come first, so that all stand where the processor can use them in place.
    by_width = sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize)
    whole = {name: np.ascontiguousarray(array) for name, array in by_width}
    data = [array.reshape(-1).view(np.uint8).data for array in whole.values()]
    metadata = {_HEADER_SUM: _NO_SUM, _ARRAYS_SUM: _sum_of(data), _HEADER: json.dumps(header)}
    entries: dict[str, Any] = {"__metadata__": metadata}
    at = 0
    for name, array in whole.items():
        place = [at, at := at + array.nbytes]
        kind = _KIND_OF[array.dtype.name]
        entries[name] = {"dtype": kind, "shape": array.shape, "data_offsets": place}
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    text = text.replace(_NO_SUM.encode(), _sum_of([text]).encode(), 1)
    with atomic_write(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.writelines(data)


def read_tensors(path: Path, *, mapped: bool = False) -> tuple[Any, dict[str, NDArray[Any]]]:
    """Header and arrays of a file; DamagedFileError says what is wrong with it.

    `mapped` arrays stay in the file, without a check of their checksum; writes stay in memory.
    """
    path.stat()
    _refuse_others(path, path)
    try:
        with path.open("rb") as file:
            return _read(file, mapped)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise DamagedFileError(
            f"{path} is damaged or was not written by maxmargin: {reason}."
        ) from error


def _read(file: BinaryIO, mapped: bool) -> tuple[Any, dict[str, NDArray[Any]]]:
    n_bytes = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if n_bytes < 8 or length > n_bytes - 8:
        raise ValueError("the header is longer than the file")
    text = file.read(length)
    entries: Any = json.loads(text)
    metadata: Any = entries.pop("__metadata__", None) if isinstance(entries, dict) else None
    if not conforms(metadata, dict[str, str]) or _HEADER not in metadata:
        raise ValueError("the header has no metadata")
    header_sum, arrays_sum = metadata.get(_HEADER_SUM), metadata.get(_ARRAYS_SUM)
    if (header_sum is None) != (arrays_sum is None):
        raise ValueError("a checksum is missing")
    # Files of the first format have none.
    blank = text if header_sum is None else text.replace(header_sum.encode(), _NO_SUM.encode(), 1)
    if header_sum not in (None, _sum_of([blank])):
        raise ValueError("its header is not the one that was written")
    places = {name: _place(entry) for name, entry in entries.items()}
    start, n_data = 8 + length, n_bytes - 8 - length
    _check_covers(places.values(), n_data)
    if mapped:
        # Private and writable: compiled routines would be compiled anew for read-only arrays.
        data = memoryview(mmap.mmap(file.fileno(), n_bytes, access=mmap.ACCESS_COPY))[start:]
    else:
        data = np.empty(n_data, dtype=np.uint8).data
        if file.readinto(data) != n_data:  # type: ignore[attr-defined]
            raise ValueError("it was cut short while it was read")
        if arrays_sum not in (None, _sum_of([data])):
            raise ValueError("its numbers are not those that were written")
    arrays = {
        name: np.frombuffer(data[place.start : place.end], dtype=place.dtype).reshape(place.shape)
        for name, place in places.items()
    }
    return json.loads(metadata[_HEADER]), arrays


class _Place(NamedTuple):
    """Dtype, shape and position of an array in a file."""

    start: int
    end: int
    dtype: np.dtype[Any]
    shape: list[int]


def _place(entry: Any) -> _Place:
    """An entry of the header; ValueError if it is impossible."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError("an array is not described as it should be")
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"arrays of type {kind!r:.40} are not known")
    if not (_are_sizes(shape) and _are_sizes(offsets) and len(offsets) == 2):
        raise ValueError("an array has a shape or a place that no array can have")
    place = _Place(offsets[0], offsets[1], np.dtype(_KINDS[kind]), shape)
    n_bytes = math.prod(shape) * place.dtype.itemsize
    if len(shape) > _MOST_DIMENSIONS or place.end - place.start != n_bytes:
        raise ValueError("an array has a shape that does not fit its place")
    # An array of no numbers can claim any other dimension: it must be one of some memory.
    if math.prod(max(size, 1) for size in shape) * place.dtype.itemsize > 2**40:
        raise ValueError("an array has a shape that no array can have")
    return place


def _are_sizes(values: Any) -> bool:
    return conforms(values, list[int]) and all(value >= 0 for value in values)


def _check_covers(places: Iterable[_Place], n_bytes: int) -> None:
    """Refuse data that are not the arrays one after the other."""
    at = 0
    for place in sorted(places, key=lambda place: (place.start, place.end)):
        if place.start != at:
            raise ValueError("arrays overlap, or leave a gap")
        at = place.end
    if at != n_bytes:
        raise ValueError("it is cut short, or has more data than its header says")


def _sum_of(parts: Iterable[Any]) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return found.hexdigest()
