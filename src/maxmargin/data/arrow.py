"""Parquet and Arrow files as sources, through pyarrow."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from maxmargin.core.arrays import SampledHash
from maxmargin.data.files import PathLike, begins_with
from maxmargin.data.sources import BATCH_BYTES, Columns, Examples, NumberedSource

PARQUET, ARROW = b"PAR1", b"ARROW1"
"""How such files begin."""

NEAR = 0.1
"""Fraction by which a partition may be larger or smaller, so that it ends where a group does."""


class ArrowSource(NumberedSource):
    """Rows of Parquet, Feather or Arrow files, read in batches.

    Parameters
    ----------
    path : path or list of paths
        Files, or folders whose files are read in the order of their names.
    features : str or list of str, default=None
        Column of inputs (lists of numbers of the same length, or anything else), or columns of
        numbers that make a row. None takes the only column of lists if there is one, else all
        columns of numbers.
    target : str, default=None
        Column of targets; None takes ``y``, ``target``, ``label`` or ``labels``.
    batch_bytes : int, default=2**24
        What a batch takes in memory, about.

    Raises
    ------
    ImportError
        Without pyarrow.
    ValueError
        If the columns do not fit, or values are missing.

    See Also
    --------
    maxmargin.data.open_examples : Finds the right source for what you have.

    Examples
    --------
    >>> from maxmargin.data import ArrowSource
    >>> source = ArrowSource("train.parquet", target="species")  # doctest: +SKIP
    """

    def __init__(
        self,
        path: PathLike | Sequence[PathLike],
        *,
        features: str | Sequence[str] | None = None,
        target: str | None = None,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        _pyarrow()
        given = [path] if isinstance(path, (str, os.PathLike)) else list(path)
        self.files = [file for one in given for file in _files(Path(one))]
        if not self.files:
            raise ValueError(f"{given!r} holds no Parquet or Arrow files.")
        self.columns = Columns(features, target)
        self.batch_bytes = batch_bytes
        tables = [
            _Parquet(file) if begins_with(file, PARQUET) else _Arrow(file) for file in self.files
        ]
        self._features, self._target = self.columns.chosen(_kinds(tables[0].schema))
        for table in tables:
            missing = {*self._features, self._target} - set(table.schema.names)
            if missing:
                raise ValueError(f"{table.file} has no column {min(missing)!r}, which others have.")
        counts = [table.n_rows for table in tables if table.n_rows is not None]
        known = sum(counts) if len(counts) == len(tables) else None
        numbers = all(_kinds(tables[0].schema)[name] == "number" for name in self._features)
        super().__init__(known, len(self._features) if numbers else None)
        self._tables = tables

    def fingerprint(self) -> str:
        content = SampledHash(type(self).__name__)
        content.add([self._features, self._target])
        for file in self.files:
            content.add_file(file)
        return content.text()

    def _cuts(self, n_partitions: int) -> list[int]:
        ends = np.cumsum([0, *(rows for table in self._tables for rows in table.groups())])
        n = int(ends[-1])
        cuts = {0, n}
        for k in range(1, n_partitions):
            cut = n * k // n_partitions
            nearest = int(ends[np.abs(ends - cut).argmin()])
            cuts.add(nearest if abs(nearest - cut) <= NEAR * n / n_partitions else cut)
        return sorted(cuts)

    def _read(self) -> Iterator[Examples]:
        return self.between(0, sys.maxsize)

    def between(self, start: int, end: int) -> Iterator[Examples]:
        columns, n = [*self._features, self._target], 0  # rows of the tables before
        for table in self._tables:
            n_rows = sum(table.groups())
            rows = range(max(start - n, 0), min(end - n, n_rows))
            at = n + rows.start
            for batch in table.batches(columns, self.batch_bytes, rows) if rows else ():
                yield self._examples(batch, f"{table.file}, row {at}")
                at += batch.num_rows
            n += n_rows

    def _examples(self, batch: Any, where: str) -> Examples:
        for name in (*self._features, self._target):
            if batch.column(name).null_count:
                raise ValueError(
                    f"{where} or one after it has no value in the column {name!r}: fill in what is "
                    f"missing before."
                )
        columns = [batch.column(name) for name in self._features]
        kinds = _kinds(batch.schema)
        if all(kinds[name] == "number" for name in self._features):
            X: Any = np.column_stack([_numbers(column) for column in columns])
            X = X if X.dtype.kind == "f" else X.astype(np.float64)
        elif len(columns) > 1:
            raise ValueError(f"The columns {self._features} do not all hold numbers.")
        else:
            X = _listed(columns[0], f"{where} or one after it, column {self._features[0]!r}")
        return Examples(X, _targets(batch.column(self._target)))

    def _name(self) -> str:
        more = f" and {len(self.files) - 1} more" if len(self.files) > 1 else ""
        return f"{str(self.files[0])!r}{more}"


class _Parquet:
    def __init__(self, file: Path) -> None:
        self.file = file
        with self._open() as parquet:
            self.schema = parquet.schema_arrow
            meta = parquet.metadata
            self.n_rows: int | None = meta.num_rows
            self._groups = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]

    def _open(self) -> Any:
        """A reader: one for each reading, because no two threads may share one."""
        parquet: Any = import_module("pyarrow.parquet")
        return parquet.ParquetFile(self.file, memory_map=True)

    def groups(self) -> list[int]:
        """Rows of each of its groups."""
        return self._groups

    def batches(self, columns: list[str], batch_bytes: int, rows: range) -> Iterator[Any]:
        """Batches of these rows; groups that have none of them are not read."""
        numbers, before = _overlapping(self._groups, rows)
        with self._open() as parquet:
            meta = parquet.metadata
            in_all = sum(meta.row_group(i).total_byte_size for i in range(meta.num_row_groups))
            size = max(int(batch_bytes * meta.num_rows / max(in_all, 1)), 1)
            read = parquet.iter_batches(batch_size=size, row_groups=numbers, columns=columns)
            yield from _sliced(read, before, rows)


class _Arrow:
    def __init__(self, file: Path) -> None:
        self.file = file
        self.schema = self._open().schema
        self.n_rows: int | None = None  # nobody counted
        self._groups: list[int] | None = None

    def _open(self, *columns: int) -> Any:
        """A reader of all columns, or of those with these numbers."""
        pa = _pyarrow()
        options = pa.ipc.IpcReadOptions(included_fields=list(columns))
        return pa.ipc.open_file(pa.memory_map(str(self.file)), options=options)

    def groups(self) -> list[int]:
        """Rows of each of its batches, counted once, in the first column."""
        if self._groups is None:
            reader = self._open(0)
            batches = range(reader.num_record_batches)
            self._groups = [reader.get_batch(i).num_rows for i in batches]
        return self._groups

    def batches(self, columns: list[str], batch_bytes: int, rows: range) -> Iterator[Any]:
        """Batches of these rows; those that have none of them are not read."""
        numbers, before = _overlapping(self.groups(), rows)
        reader = self._open()
        for whole in _sliced((reader.get_batch(i) for i in numbers), before, rows):
            batch = whole.select(columns)
            size = max(batch_bytes * batch.num_rows // max(batch.nbytes, 1), 1)
            for start in range(0, batch.num_rows, size):
                yield batch.slice(start, size)


def _overlapping(counts: list[int], rows: range) -> tuple[list[int], int]:
    """Which groups of so many rows have some of these, and how many rows come before them."""
    ends = np.cumsum([0, *counts]).tolist()
    numbers = [k for k, (a, b) in enumerate(pairwise(ends)) if a < rows.stop and b > rows.start]
    return numbers, ends[numbers[0]] if numbers else 0


def _sliced(batches: Iterable[Any], before: int, rows: range) -> Iterator[Any]:
    """Those rows of batches, which begin with row `before`."""
    for batch in batches:
        start, end = max(rows.start - before, 0), min(rows.stop - before, batch.num_rows)
        if start < end:
            yield batch.slice(start, end - start)
        before += batch.num_rows


def is_arrow(file: PathLike) -> bool:
    """Whether a file begins as Parquet and Arrow files do."""
    return begins_with(file, PARQUET, ARROW)


def _pyarrow() -> Any:
    try:
        return import_module("pyarrow")
    except ImportError:
        raise ImportError(
            "Parquet and Arrow files need the package pyarrow: pip install pyarrow."
        ) from None


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        inside = (file for file in sorted(path.iterdir()) if file.is_file())
        return [file for file in inside if is_arrow(file)]
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {str(path)!r}.")
    if not is_arrow(path):
        raise ValueError(f"{str(path)!r} is no Parquet or Arrow file.")
    return [path]


def _kinds(schema: Any) -> dict[str, str]:
    return {field.name: _kind(field.type) for field in schema}


def _kind(kind: Any) -> str:
    types = _pyarrow().types
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return "number"
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return "list"
    return "other"


def _numbers(column: Any) -> Any:
    return column.to_numpy(zero_copy_only=False)


def _listed(column: Any, where: str) -> Any:
    """A matrix if the column holds lists of numbers, else a list of whatever it holds."""
    if _kind(column.type) != "list" or _kind(column.type.value_type) != "number":
        return column.to_pylist()
    lengths = np.unique(column.value_lengths().to_numpy(zero_copy_only=False))
    if len(lengths) > 1:
        raise ValueError(f"{where} has lists of {lengths[0]} and of {lengths[-1]} numbers.")
    values = column.flatten()
    if values.null_count:
        raise ValueError(f"{where} has a list in which a number is missing.")
    X = _numbers(values).reshape(len(column), int(lengths[0]))
    return X if X.dtype.kind == "f" else X.astype(np.float64)


def _targets(column: Any) -> Any:
    """An array of numbers or strings, or a list of arrays or whatever there is."""
    if _pyarrow().types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if _kind(column.type) == "number":
        return _numbers(column)
    values = column.to_pylist()
    return np.array(values) if all(isinstance(value, str) for value in values) else values
