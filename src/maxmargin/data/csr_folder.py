"""A folder with a sparse matrix and its targets, mapped into memory.

``indptr.npy`` (int64), ``indices.npy`` (int32), ``data.npy``, ``y.npy``, and ``meta.json``, which
says what these must hold and names targets that are no numbers.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

from maxmargin.core.arrays import (
    SampledHash,
    check_indices,
    checked_csr,
    conforms,
    open_mapped,
    release,
)
from maxmargin.data.files import PathLike
from maxmargin.data.sources import BATCH_BYTES, Examples, NumberedSource, as_targets, csr_batch_end

META = "meta.json"
FORMAT = "maxmargin CSR folder 1"

_KINDS = {"indptr": "i", "indices": "i", "data": "f", "y": "if"}

_WHOLE_UP_TO = 2.0**53
_CHUNK = 1 << 20


class CsrFolder(NumberedSource):
    """A folder written by `convert` or `CsrFolderWriter`: sparse rows, mapped into memory.

    Parameters
    ----------
    path : path
        The folder.
    batch_bytes : int, default=2**24
        Entries that a batch holds, in bytes.

    Attributes
    ----------
    X : csr_array of shape (n_examples, n_features)
        All rows, mapped: takes memory only for what is looked at.
    y : ndarray of shape (n_examples,)
        All targets.

    Raises
    ------
    ValueError
        If it is no such folder, or its files do not fit together.

    See Also
    --------
    convert : Makes one from any source of rows.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from maxmargin.data import CsrFolder, convert, open_examples
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     source = open_examples(np.eye(3), ["a", "b", "a"])
    ...     stored = convert(source, f"{folder}/stored", progress=False)
    ...     print(stored.n_examples, stored.n_features, stored.classes(), stored.X.nnz)
    3 3 ['a' 'b'] 3
    """

    def __init__(self, path: PathLike, *, batch_bytes: int = BATCH_BYTES) -> None:
        self.path = os.fspath(path)
        self.batch_bytes = batch_bytes
        meta = self._meta()
        super().__init__(meta["n_examples"], meta["n_features"])
        self._labels = None if meta["classes"] is None else np.array(meta["classes"])
        self._indptr = self._array("indptr", meta["n_examples"] + 1)
        self._indices = self._array("indices", meta["n_entries"])
        self._data = self._array("data", meta["n_entries"])
        self._y = self._array("y", meta["n_examples"])
        self._position = 0
        self._is_checked = False

    @property
    def X(self) -> sp.csr_array:  # noqa: N802
        """All rows, mapped into memory."""
        if not self._is_checked:  # nobody else looks at them before compiled routines do
            for _ in self._read():
                pass
            self._is_checked = True
        X = sp.csr_array((len(self._y), self.n_features), dtype=self._data.dtype)
        # Not through the constructor, which would copy the columns to 64 bits if there are many.
        X.data, X.indices, X.indptr = self._data, self._indices, self._indptr
        X.has_canonical_format = True
        return X

    @property
    def y(self) -> NDArray[Any]:
        """All targets."""
        return self._targets(0, len(self._y))

    @property
    def progress(self) -> tuple[int, int] | None:
        size = self._data.itemsize + self._indices.itemsize
        return self._position * size, len(self._data) * size

    def classes(self) -> NDArray[Any]:
        if self._classes is None:
            found = np.asarray(self._y[:0])
            for start in range(0, len(self._y), _CHUNK):
                found = np.union1d(found, self._y[start : start + _CHUNK])
                release(self._y)
            self._classes = found if self._labels is None else np.sort(self._labels)
        return self._classes

    def fingerprint(self) -> str:
        about = [self.n_features, None if self._labels is None else self._labels.tolist()]
        arrays = self._indptr, self._indices, self._data, self._y
        return SampledHash(type(self).__name__, about, *arrays).text()

    def __reduce__(self) -> Any:
        # Whoever gets it opens the files anew: mapped arrays would be sent whole.
        return partial(CsrFolder, batch_bytes=self.batch_bytes), (self.path,)

    def _cuts(self, n_partitions: int) -> list[int]:
        entries = [len(self._data) * k // n_partitions for k in range(1, n_partitions)]
        return sorted({0, *np.searchsorted(self._indptr, entries).tolist(), len(self._y)})

    def between(self, start: int, end: int) -> Iterator[Examples]:
        arrays = self._data, self._indices, self._indptr
        while start < end:
            stop = csr_batch_end(*arrays, start, end, self.batch_bytes)
            last = int(self._indptr[stop])
            yield Examples(self._rows(start, stop), self._targets(start, stop))
            release(*arrays, self._y)
            start, self._position = stop, last

    def _rows(self, start: int, stop: int) -> sp.csr_array:
        """Some rows, their columns not yet checked."""
        first, last = int(self._indptr[start]), int(self._indptr[stop])
        with self._damage_named(f" between rows {start} and {stop}"):
            X = checked_csr(
                np.asarray(self._data[first:last]),
                np.asarray(self._indices[first:last]),
                (self._indptr[start : stop + 1] - first).astype(np.int32),
                (stop - start, self.n_features),
            )
        X.has_canonical_format = True
        return X

    def _targets(self, start: int, end: int) -> NDArray[Any]:
        y = np.asarray(self._y[start:end])
        if self._labels is None:
            return y
        with self._damage_named():
            check_indices("numbers of classes", y, len(self._labels))
        return np.asarray(self._labels[y])

    @contextmanager
    def _damage_named(self, where: str = "") -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            raise ValueError(
                f"{self.path!r} is damaged{where}: {error}; convert the data anew."
            ) from error

    def _meta(self) -> dict[str, Any]:
        try:
            meta = json.loads(Path(self.path, META).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{self.path!r} is no CSR folder: it holds no {META}."
            ) from None
        except ValueError as error:
            raise ValueError(f"{self.path!r} is damaged: {META} is no JSON.") from error
        if not isinstance(meta, dict) or meta.get("format") != FORMAT:
            raise ValueError(f"{self.path!r} is no CSR folder of a kind this version knows.")
        sizes = [meta.get(name) for name in ("n_examples", "n_features", "n_entries")]
        classes = meta.get("classes")
        if not all(type(size) is int and 0 <= size < 2**62 for size in sizes) or not (
            conforms(classes, list[str] | None)
        ):
            raise ValueError(f"{self.path!r} is damaged: {META} does not say what the others hold.")
        return meta

    def _array(self, name: str, count: int) -> NDArray[Any]:
        path = Path(self.path, f"{name}.npy")
        if not path.is_file():
            raise ValueError(f"{self.path!r} is damaged: it holds no {path.name}.")
        array = open_mapped(path)
        if array.dtype.kind not in _KINDS[name]:
            raise ValueError(f"{self.path!r} is damaged: {path.name} holds {array.dtype} numbers.")
        if array.shape != (count,):
            raise ValueError(
                f"{self.path!r} is damaged: {path.name} has shape {array.shape}, but {META} says "
                f"({count},)."
            )
        return array

    def _name(self) -> str:
        return repr(self.path)


class CsrFolderWriter:
    """Writes a `CsrFolder` in batches, in a ``with`` statement; it appears when it is complete.

    Parameters
    ----------
    path : path
        Of the folder, which must not exist.
    dtype : {numpy.float64, numpy.float32}, default=numpy.float64
        Of the values.
    """

    def __init__(self, path: PathLike, dtype: DTypeLike = np.float64) -> None:
        self.path = Path(path)
        if np.dtype(dtype) not in (np.float32, np.float64):
            raise ValueError(f"dtype must be float32 or float64, not {np.dtype(dtype)}.")
        self._refuse_existing()
        self._folder = self.path.with_name(f".{self.path.name}.{os.getpid()}.part")
        self._kinds = {"indptr": np.int64, "indices": np.int32, "data": dtype, "y": np.float64}
        self._arrays: dict[str, GrowingArray] = {}
        self._width = 0
        self._whole = True  # targets are whole numbers
        self._named: bool | None = None  # or strings, with these numbers
        self._codes: dict[str, int] = {}

    def __enter__(self) -> "CsrFolderWriter":
        try:
            self._folder.mkdir(parents=True)
            for name, kind in self._kinds.items():
                self._arrays[name] = GrowingArray(self._folder / f"{name}.npy", kind)
            self._arrays["indptr"].append(np.zeros(1, np.int64))
        except BaseException:
            self._clear()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            self._clear()

    def append(self, examples: Examples) -> None:
        """Write some more rows, sparse or dense, and their targets."""
        X = sp.csr_array(examples.X)
        if not X.has_canonical_format:
            X = X.copy()  # it may share memory with what the user has
            X.sum_duplicates()
        n_before = self._arrays["data"].size
        self._arrays["y"].append(self._numbers(examples.y))
        self._arrays["indices"].append(X.indices)
        self._arrays["data"].append(X.data)
        self._arrays["indptr"].append(X.indptr[1:].astype(np.int64) + n_before)
        self._width = max(self._width, X.shape[1])

    def _numbers(self, y: Any) -> NDArray[np.float64]:
        """Targets as numbers, or else numbered as they come."""
        values = as_targets(y)
        if not isinstance(values, np.ndarray):
            raise ValueError(
                "A CSR folder holds one target for each row, a number or a string, but here is "
                f"{next(target for target in values if not isinstance(target, str))!r:.100}."
            )
        named = values.dtype.kind not in "biuf"
        if self._named not in (None, named):
            raise ValueError("Some targets are numbers and some are strings: give one kind only.")
        self._named = named
        if named:
            numbers = [self._codes.setdefault(name, len(self._codes)) for name in values.tolist()]
            return np.array(numbers, dtype=np.float64)
        self._whole = self._whole and values.dtype.kind != "f"
        if self._whole and (np.abs(values.astype(np.float64)) > _WHOLE_UP_TO).any():
            raise ValueError(f"Targets that are whole numbers must be below {_WHOLE_UP_TO:.0f}.")
        return values.astype(np.float64)

    def _finish(self) -> None:
        meta = {
            "format": FORMAT,
            "n_examples": self._arrays["y"].size,
            "n_features": self._width,
            "n_entries": self._arrays["data"].size,
            "classes": list(self._codes) if self._named else None,
        }
        for array in self._arrays.values():
            array.finish()
        if self._whole:
            _as_whole_numbers(self._folder / "y.npy")
        with open(self._folder / META, "w", encoding="utf-8") as file:
            json.dump(meta, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        self._refuse_existing()
        self._folder.rename(self.path)

    def _clear(self) -> None:
        for array in self._arrays.values():
            with suppress(OSError):  # as from a full disk, which must not keep the rest
                array.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _refuse_existing(self) -> None:
        if self.path.exists():
            raise FileExistsError(f"{str(self.path)!r} exists: remove it, or give another name.")


class GrowingArray:
    """A new one-dimensional ``.npy`` file, written piece by piece."""

    def __init__(self, path: Path, dtype: DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self.size = 0
        self._file = open(path, "xb")  # noqa: SIM115
        self._write_header()

    def append(self, piece: NDArray[Any]) -> None:
        self._file.write(np.ascontiguousarray(piece, dtype=self.dtype).data)
        self.size += len(piece)

    def finish(self) -> None:
        """Write the final length, and flush to disk."""
        self._file.seek(0)
        self._write_header()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def close(self) -> None:
        self._file.close()

    def _write_header(self) -> None:
        # numpy leaves room for the longest possible length: every header is as long as the first.
        header = {
            "descr": np.lib.format.dtype_to_descr(self.dtype),
            "fortran_order": False,
            "shape": (self.size,),
        }
        np.lib.format.write_array_header_1_0(self._file, header)


def _as_whole_numbers(path: Path) -> None:
    """Replace an array of floats by one of integers, some at a time."""
    floats = open_mapped(path)
    beside = path.with_name("whole.npy")
    whole = GrowingArray(beside, np.int64)
    for at in range(0, len(floats), _CHUNK):
        whole.append(floats[at : at + _CHUNK].astype(np.int64))
        release(floats)
    whole.finish()
    beside.replace(path)
