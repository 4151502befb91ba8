"""Files of arrays with a JSON header, in the safetensors format.

They are written array by array, so that no copy of them is needed, under another name first: a file
of the right name is whole. Reading one never runs code.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

_DTYPES = {
    "bool": "BOOL", "int8": "I8", "uint8": "U8", "int16": "I16", "uint16": "U16", "int32": "I32",
    "uint32": "U32", "int64": "I64", "uint64": "U64", "float16": "F16", "float32": "F32",
    "float64": "F64",
}  # fmt: skip

_HEADER = "maxmargin"
"""Name in the metadata under which the header is kept."""


class Tensors(NamedTuple):
    """What is in a file."""

    header: Any
    arrays: dict[str, NDArray[Any]]


class DamagedFileError(ValueError):
    """A file is not whole, or is none of ours."""


def write_tensors(path: Path, header: Any, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays and a header that JSON can hold; all of it or, if that fails, nothing.

    Raises
    ------
    OSError
        If the disk is full, or the place cannot be written to.
    """
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    entries: dict[str, Any] = {"__metadata__": {_HEADER: json.dumps(header)}}
    at = 0
    for name, array in whole.items():
        end = at + array.nbytes
        kind = _DTYPES[array.dtype.name]
        entries[name] = {"dtype": kind, "shape": array.shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)  # arrays start where the processor likes them to
    partial = path.with_name(f".{path.name}.partial")
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

    Raises
    ------
    DamagedFileError
        With one sentence that says so.
    OSError
        If there is no such file, or it cannot be read.
    """
    path.stat()  # whose errors say more than those of the reader
    try:
        with safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {})[_HEADER])
            return Tensors(header, {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    except (SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise DamagedFileError(
            f"{path} is damaged or was not written by maxmargin: {error}."
        ) from error
