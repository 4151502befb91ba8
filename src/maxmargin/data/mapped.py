"""Arrays in files, mapped into memory so that only what is looked at is read."""

import mmap
import os
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


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
    """Take the pages of mapped arrays out of this process's memory, until they are looked at again.

    Without it a pass over a file larger than memory would count as that much memory, even though
    the system may take it back. Arrays that are not mapped, or whose changes are private, are left
    alone.
    """
    for array in arrays:
        mapped = getattr(array, "_mmap", None)
        if mapped is not None and array.mode in ("r", "r+") and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)


class GrowingArray:
    """An ``.npy`` file of one dimension that is written piece by piece.

    Parameters
    ----------
    path : path
        Of the file, which must not exist.
    dtype : dtype
        What pieces are converted to.
    """

    def __init__(self, path: str | os.PathLike[str], dtype: DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self.size = 0
        self._file = open(path, "xb")  # noqa: SIM115
        self._write_header()

    def append(self, piece: NDArray[Any]) -> None:
        """Write more."""
        self._file.write(np.ascontiguousarray(piece, dtype=self.dtype).data)
        self.size += len(piece)

    def finish(self) -> None:
        """Write how long it has become, and have the disk keep it."""
        self._file.seek(0)
        self._write_header()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def close(self) -> None:
        """Give up."""
        self._file.close()

    def _write_header(self) -> None:
        # numpy leaves room for the longest possible length: every header is as long as the first.
        header = {
            "descr": np.lib.format.dtype_to_descr(self.dtype),
            "fortran_order": False,
            "shape": (self.size,),
        }
        np.lib.format.write_array_header_1_0(self._file, header)
