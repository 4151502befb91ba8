"""Files of arrays with a JSON header, in the safetensors format.

They are written array by array, so that no copy of them is needed, under another name first: a file
of the right name is whole. Reading one never runs code.
"""

import json
import mmap
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from maxmargin.data.files import check_folder_of

_DTYPES = {
    "bool": "BOOL", "int8": "I8", "uint8": "U8", "int16": "I16", "uint16": "U16", "int32": "I32",
    "uint32": "U32", "int64": "I64", "uint64": "U64", "float16": "F16", "float32": "F32",
    "float64": "F64",
}  # fmt: skip

_NAMES = {kind: name for name, kind in _DTYPES.items()}

_HEADER = "maxmargin"
"""Name in the metadata under which the header is kept."""


class Tensors(NamedTuple):
    """What is in a file."""

    header: Any
    arrays: dict[str, NDArray[Any]]


class DamagedFileError(ValueError):
    """A file is not whole, or is none of ours."""


def write_tensors(
    path: Path, header: Any, arrays: Mapping[str, NDArray[Any]], writer: str = ""
) -> None:
    """Write arrays and a header that JSON can hold; all of it or, if that fails, nothing.

    Parameters
    ----------
    path : Path
    header : object
    arrays : mapping of names to arrays
    writer : str, default=""
        Part of the name of the unfinished file, where several may write at the same time. What a
        writer that is killed leaves is written over by the next one of the same name.

    Raises
    ------
    OSError
        If the disk is full, or the place cannot be written to.
    """
    # Wide numbers come first, so that all stand where the processor can use them in place.
    by_width = sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize)
    whole = {name: np.ascontiguousarray(array) for name, array in by_width}
    entries: dict[str, Any] = {"__metadata__": {_HEADER: json.dumps(header)}}
    at = 0
    for name, array in whole.items():
        end = at + array.nbytes
        kind = _DTYPES[array.dtype.name]
        entries[name] = {"dtype": kind, "shape": array.shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    if path.is_dir() or not path.name:
        raise IsADirectoryError(f"{path} is a folder: give the name of a file.")
    check_folder_of(path)
    partial = path.with_name(f".{path.name}.{writer}partial")
    try:
        with partial.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for array in whole.values():
                file.write(array.reshape(-1).view(np.uint8).data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise


def read_tensors(path: Path) -> Tensors:
    """Header and arrays of a file.

    The arrays are mapped: they are read from the disk when they are used, and what is written to
    them stays in memory.

    Raises
    ------
    DamagedFileError
        With one sentence that says so.
    OSError
        If there is no such file, or it cannot be read.
    """
    path.stat()  # whose errors say more than those of the reader
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: give the name of a file.")
    try:
        with safe_open(path, framework="numpy") as file:  # which checks all sizes
            header = json.loads((file.metadata() or {})[_HEADER])
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            entries = json.loads(stream.read(length))
            mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
    except (SafetensorError, KeyError, ValueError) as error:
        raise DamagedFileError(
            f"{path} is damaged or was not written by maxmargin: {error}."
        ) from error
    data = memoryview(mapped)[8 + length :]
    arrays = {
        name: np.frombuffer(
            data[slice(*entry["data_offsets"])], dtype=_NAMES[entry["dtype"]]
        ).reshape(entry["shape"])
        for name, entry in entries.items()
        if name != "__metadata__"
    }
    return Tensors(header, arrays)
