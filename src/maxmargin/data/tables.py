"""Tables and collections of other libraries as sources: Parquet and Arrow files, and Dask's."""

import os
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from maxmargin.core.arrays import SampledHash
from maxmargin.data.files import PathLike, begins_with, check_exists
from maxmargin.data.sources import (
    BATCH_BYTES,
    Columns,
    CountedSource,
    Examples,
    NumberedSource,
    described,
    examples_of,
    numeric,
)

PARQUET, ARROW = b"PAR1", b"ARROW1"

NEAR = 0.1
"""Fraction by which the size of a partition may vary, for it to end where a group does."""


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
        tables = [_Table(file) for file in self.files]
        kinds = _kinds(tables[0].schema)
        self._features, self._target = self.columns.chosen(kinds)
        for table in tables:
            missing = {*self._features, self._target} - set(table.schema.names)
            if missing:
                raise ValueError(f"{table.file} has no column {min(missing)!r}, which others have.")
        counted = all(table.is_parquet for table in tables)
        n_rows = sum(sum(table.groups) for table in tables) if counted else None
        numbers = all(kinds[name] == "number" for name in self._features)
        super().__init__(n_rows, len(self._features) if numbers else None)
        self._tables = tables

    def fingerprint(self) -> str:
        content = SampledHash(type(self).__name__, [self._features, self._target])
        for file in self.files:
            content.add_file(file)
        return content.text()

    def _cuts(self, n_partitions: int) -> list[int]:
        ends = np.cumsum([0, *(rows for table in self._tables for rows in table.groups)])
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
            n_rows = sum(table.groups)
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
            X: Any = numeric(np.column_stack([_numbers(column) for column in columns]))
        elif len(columns) > 1:
            raise ValueError(f"The columns {self._features} do not all hold numbers.")
        else:
            X = _listed(columns[0], f"{where} or one after it, column {self._features[0]!r}")
        return Examples(X, _targets(batch.column(self._target)))

    def _name(self) -> str:
        more = f" and {len(self.files) - 1} more" if len(self.files) > 1 else ""
        return f"{str(self.files[0])!r}{more}"


class _Table:
    """A file of rows, in row groups (Parquet) or record batches (Arrow)."""

    def __init__(self, file: Path) -> None:
        self.file, self.is_parquet = file, begins_with(file, PARQUET)
        with self._open() as reader:
            self.schema = reader.schema_arrow if self.is_parquet else reader.schema

    @cached_property
    def groups(self) -> list[int]:
        """Rows of each group; those of Arrow are counted in the first column."""
        with self._open(0) as reader:
            if self.is_parquet:
                meta = reader.metadata
                return [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
            return [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)]

    def batches(self, columns: list[str], batch_bytes: int, rows: range) -> Iterator[Any]:
        """Batches of these rows; groups without any are not read."""
        ends = np.cumsum([0, *self.groups]).tolist()
        wanted = [k for k, (a, b) in enumerate(pairwise(ends)) if a < rows.stop and b > rows.start]
        first = ends[wanted[0]] if wanted else 0  # row of the next batch
        with self._open() as reader:
            if self.is_parquet:
                groups = [reader.metadata.row_group(i) for i in range(len(self.groups))]
                n_bytes = max(sum(group.total_byte_size for group in groups), 1)
                size = max(int(batch_bytes * ends[-1] / n_bytes), 1)
                read = reader.iter_batches(batch_size=size, row_groups=wanted, columns=columns)
            else:
                read = (reader.get_batch(i).select(columns) for i in wanted)
            for batch in read:
                some = batch[max(rows.start - first, 0) : max(rows.stop - first, 0)]
                first += batch.num_rows
                n = max(some.num_rows, 1)
                size = n if self.is_parquet else max(batch_bytes * n // max(some.nbytes, 1), 1)
                for start in range(0, some.num_rows, size):
                    yield some.slice(start, size)

    def _open(self, *columns: int) -> Any:
        """A reader of all columns, or of some of Arrow; not to be shared by threads."""
        if self.is_parquet:
            return import_module("pyarrow.parquet").ParquetFile(self.file, memory_map=True)
        pa = _pyarrow()
        options = pa.ipc.IpcReadOptions(included_fields=list(columns))
        return pa.ipc.open_file(pa.memory_map(str(self.file)), options=options)


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
    check_exists(path)
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
    """A matrix if the column holds lists of numbers, else a list."""
    if _kind(column.type) != "list" or _kind(column.type.value_type) != "number":
        return column.to_pylist()
    lengths = np.unique(column.value_lengths().to_numpy(zero_copy_only=False))
    if len(lengths) > 1:
        raise ValueError(f"{where} has lists of {lengths[0]} and of {lengths[-1]} numbers.")
    values = column.flatten()
    if values.null_count:
        raise ValueError(f"{where} has a list in which a number is missing.")
    return numeric(_numbers(values).reshape(len(column), int(lengths[0])))


def _targets(column: Any) -> Any:
    """An array of numbers or strings, or a list."""
    if _pyarrow().types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if _kind(column.type) == "number":
        return _numbers(column)
    values = column.to_pylist()
    return np.array(values) if all(isinstance(value, str) for value in values) else values


class DaskSource(CountedSource):
    """A bag of pairs ``(x, y)`` or of dictionaries, or a data frame of dask.

    Each batch is a partition, which is computed in this thread when it is asked for.

    Parameters
    ----------
    collection : dask.bag.Bag or dask.dataframe.DataFrame
    features : str or list of str, default=None
        Columns, or keys of dictionaries, of the inputs; None takes all columns of numbers.
    target : str, default=None
        Column or key of the target; None takes ``y``, ``target``, ``label`` or ``labels``.

    See Also
    --------
    maxmargin.data.open_examples : Finds the right source for what you have.

    Examples
    --------
    >>> import dask.bag  # doctest: +SKIP
    >>> DaskSource(dask.bag.from_sequence([([0.0], 1), ([1.0], 2)]))  # doctest: +SKIP
    """

    def __init__(
        self,
        collection: Any,
        *,
        features: str | Sequence[str] | None = None,
        target: str | None = None,
    ) -> None:
        super().__init__()
        self.collection = collection
        self.columns = Columns(features, target)

    def _read(self) -> Iterator[Examples]:
        n = 0
        for delayed in self.collection.to_delayed():
            partition = delayed.compute(scheduler="synchronous")
            if hasattr(partition, "columns"):
                batch = self.columns.of_frame(partition)
            else:
                items = list(partition)
                batch = examples_of(items, self.columns, n) if items else Examples([], [])
            if len(batch.y):
                yield batch
            n += len(batch.y)

    def _name(self) -> str:
        kind = type(self.collection).__name__
        return f"{kind} of {self.collection.npartitions} partitions"


class DaskArrays(CountedSource):
    """Rows of a dask array and their targets.

    Parameters
    ----------
    X : dask.array.Array of shape (n, n_features)
        Its chunks of rows are the batches.
    y : dask.array.Array of shape (n,)
        Brought into the same chunks; if their sizes are not known, as of arrays that were data
        frames, it must have them.

    See Also
    --------
    maxmargin.data.open_examples : Finds the right source for what you have.
    maxmargin.data.DaskSource : Bags and data frames.

    Examples
    --------
    >>> import dask.array as da  # doctest: +SKIP
    >>> DaskArrays(da.zeros((9, 2), chunks=(3, 2)), da.zeros(9))  # doctest: +SKIP
    DaskArrays(3 chunks, 9 examples, 2 features)
    """

    def __init__(self, X: Any, y: Any) -> None:
        for name, array, ndim in (("X", X, 2), ("y", y, 1)):
            if not is_dask_array(array) or array.ndim != ndim:
                found = f"one of {array.ndim}" if is_dask_array(array) else described(array)
                raise ValueError(
                    f"{name} must be a dask array of {ndim} dimension{'s' * (ndim > 1)}, but is "
                    f"{found}."
                )
        unknown = np.isnan([X.shape[0], y.shape[0]])
        if unknown.any():
            if X.numblocks[0] != y.numblocks[0]:
                raise ValueError(
                    f"X has {X.numblocks[0]} chunks of rows but y has {y.numblocks[0]}, and how "
                    f"long they are is not known: call compute_chunk_sizes() of both before."
                )
        elif X.shape[0] != y.shape[0]:
            raise ValueError(
                f"X has {X.shape[0]} rows but y has {y.shape[0]}: give one target for each."
            )
        super().__init__(None if unknown.any() else int(X.shape[0]), int(X.shape[1]))
        self.X = X.rechunk({1: -1})
        self.y = y if unknown.any() else y.rechunk((self.X.chunks[0],))

    def partitions(self) -> list[tuple[Any, Any]]:
        """Chunks of both, not computed yet."""
        rows = self.X.to_delayed()[:, 0].tolist()
        return list(zip(rows, self.y.to_delayed().tolist(), strict=True))

    def _read(self) -> Iterator[Examples]:
        for X, y in self.partitions():
            yield Examples(X.compute(scheduler="synchronous"), y.compute(scheduler="synchronous"))

    def _name(self) -> str:
        return f"{len(self.X.chunks[0])} chunks"


def is_dask_array(data: Any) -> bool:
    """Whether it is a dask array."""
    return type(data).__module__.startswith("dask.array")


def is_dask(data: Any) -> bool:
    """Whether it is a dask collection with partitions."""
    return type(data).__module__.startswith("dask") and hasattr(data, "to_delayed")
