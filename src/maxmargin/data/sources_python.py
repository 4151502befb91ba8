"""Sources of Python objects: arrays, lists, functions, data sets, collections of Dask."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Number
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.core.arrays import SampledHash, places, release
from maxmargin.data.sources import (
    BATCH_BYTES,
    Columns,
    CountedSource,
    Examples,
    NumberedSource,
    Source,
    as_targets,
    csr_batch_end,
    is_matrix,
)

BATCH_EXAMPLES = 1024
"""Examples of a batch, where their size is not known before they are looked at."""

_SAMPLED_ITEMS = 16


class ArraySource(NumberedSource):
    """Inputs and targets that are arrays or lists, perhaps mapped into memory.

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (n, n_features), data frame, or list of length n
        Mapped arrays (``numpy.load(path, mmap_mode="r")``) take the memory of a batch only.
    y : array-like or list of length n
    batch_bytes : int, default=2**24
        What a batch of rows takes in memory.

    See Also
    --------
    maxmargin.data.open_examples : Finds the right source for what you have.

    Examples
    --------
    >>> import numpy as np
    >>> from maxmargin.data import ArraySource
    >>> ArraySource(np.eye(3), [0, 1, 0])
    ArraySource(ndarray, 3 examples, 3 features)
    """

    def __init__(self, X: Any, y: Any, *, batch_bytes: int = BATCH_BYTES) -> None:
        self.X, self.y = _inputs(X), as_targets(y)
        n = self.X.shape[0] if is_matrix(self.X) else len(self.X)
        if n != len(self.y):
            raise ValueError(
                f"X has {n} examples but y has {len(self.y)}: give one target for each."
            )
        super().__init__(n, self.X.shape[1] if is_matrix(self.X) else None)
        self.batch_bytes = batch_bytes

    def fingerprint(self) -> str:
        content = SampledHash(type(self).__name__)
        content.add(self.X)
        content.add(self.y)
        return content.text()

    def between(self, start: int, end: int) -> Iterator[Examples]:
        while start < end:
            stop = min(self._batch_end(start, end), end)
            X, y = self.X[start:stop], self.y[start:stop]
            if is_matrix(self.X):
                yield Examples(X if sp.issparse(X) else np.asarray(X), y)
            else:
                yield gathered(list(X), list(y), start)
            release(self.X, self.y)
            start = stop

    def _batch_end(self, start: int, end: int) -> int:
        if sp.issparse(self.X):
            entry_bytes = self.X.data.itemsize + self.X.indices.itemsize
            return csr_batch_end(self.X.indptr, start, end, max(self.batch_bytes // entry_bytes, 1))
        if is_matrix(self.X):
            return int(start + max(self.batch_bytes // max(self.X[:1].nbytes, 1), 1))
        return start + BATCH_EXAMPLES

    def _partition(self, start: int, end: int) -> Source:
        # Who reads a partition should not get all.
        X, y = self.X[start:end], self.y[start:end]
        return ArraySource(X, y, batch_bytes=self.batch_bytes)

    def _name(self) -> str:
        return type(self.X).__name__


class FunctionSource(CountedSource):
    """Examples that a function gives, which is called anew for each pass.

    Parameters
    ----------
    function : callable
        Takes no arguments and returns an iterable, as generator functions do: of pairs ``(x, y)``,
        of dictionaries, or of `Examples`, batches of the function's own making.
    features, target : str, default=None
        Keys of dictionaries that hold the input and the target.
    batch_examples : int, default=1024
        Pairs that are put together to a batch.

    See Also
    --------
    maxmargin.data.open_examples : Finds the right source for what you have.

    Notes
    -----
    Inputs that are arrays of one dimension, lists of numbers with a single target, or sparse
    matrices of one row become rows of a matrix.

    Examples
    --------
    >>> from maxmargin.data import FunctionSource
    >>> def words():
    ...     for word, tag in [("dogs", "noun"), ("bark", "verb")]:
    ...         yield {"word": word}, tag
    >>> source = FunctionSource(words)
    >>> next(source.batches()).X
    [{'word': 'dogs'}, {'word': 'bark'}]
    >>> source.classes()
    array(['noun', 'verb'], dtype='<U4')
    """

    _remedy = "give a function that starts anew"

    def __init__(
        self,
        function: Callable[[], Iterable[Any]],
        *,
        features: str | Sequence[str] | None = None,
        target: str | None = None,
        batch_examples: int = BATCH_EXAMPLES,
    ) -> None:
        super().__init__()
        try:
            inspect.signature(function).bind()
        except TypeError as error:
            raise ValueError(
                f"The function {_function_name(function)} must take no arguments ({error}): "
                f"functools.partial can fill them in."
            ) from None
        except ValueError:
            pass  # some compiled functions do not tell
        self.function = function
        self.columns = Columns(features, target)
        self.batch_examples = batch_examples

    def _read(self) -> Iterator[Examples]:
        waiting: list[Any] = []
        n = 0
        for item in self._items():
            if isinstance(item, Examples) or len(waiting) == self.batch_examples:
                if waiting:
                    yield examples_of(waiting, self.columns, n)
                n += len(waiting)
                waiting = []
            if isinstance(item, Examples):
                n += len(item.y)
                yield Examples(_inputs(item.X), as_targets(item.y))
            else:
                waiting.append(item)
        if waiting:
            yield examples_of(waiting, self.columns, n)

    def _items(self) -> Iterable[Any]:
        items = self.function()
        if not isinstance(items, Iterable):
            raise ValueError(
                f"The function {_function_name(self.function)} must return examples one after the "
                f"other, but returned {type(items).__name__}."
            )
        return items

    def _name(self) -> str:
        return _function_name(self.function)

    def _subject(self) -> str:
        return "The generator"


class DatasetSource(NumberedSource):
    """A data set as PyTorch and Hugging Face have them: a length, and items by number.

    Parameters
    ----------
    dataset : object with ``__len__`` and ``__getitem__``
        Of pairs ``(x, y)`` or of dictionaries.
    features, target : str, default=None
        Keys of dictionaries that hold the input and the target.
    batch_examples : int, default=1024
        Items that are put together to a batch.

    See Also
    --------
    FunctionSource : What becomes of the pairs.
    maxmargin.data.open_examples : Finds the right source for what you have.

    Examples
    --------
    >>> from maxmargin.data import DatasetSource
    >>> source = DatasetSource([{"text": "good", "label": 1}, {"text": "bad", "label": 0}])
    >>> next(source.batches())
    Examples(X=['good', 'bad'], y=array([1, 0]))
    """

    def __init__(
        self,
        dataset: Any,
        *,
        features: str | Sequence[str] | None = None,
        target: str | None = None,
        batch_examples: int = BATCH_EXAMPLES,
    ) -> None:
        super().__init__(n_examples=len(dataset))
        self.dataset = dataset
        self.columns = Columns(features, target)
        self.batch_examples = batch_examples

    def fingerprint(self) -> str:
        content = SampledHash(type(self).__name__)
        content.add(len(self.dataset))
        for item in self._items(places(len(self.dataset), _SAMPLED_ITEMS)):
            content.add(item)
        return content.text()

    def _partition(self, start: int, end: int) -> Source:
        if not isinstance(self.dataset, (list, tuple)):
            return super()._partition(start, end)
        # Of items in memory, who reads a partition should not get all.
        return DatasetSource(
            self.dataset[start:end], **self.columns._asdict(), batch_examples=self.batch_examples
        )

    def between(self, start: int, end: int) -> Iterator[Examples]:
        for first in range(start, end, self.batch_examples):
            last = min(first + self.batch_examples, end)
            yield examples_of(self._items(list(range(first, last))), self.columns, first)

    def _items(self, numbers: list[int]) -> list[Any]:
        several = getattr(self.dataset, "__getitems__", None)  # what PyTorch calls if it is there
        if several is not None:
            return list(several(numbers))
        return [self.dataset[number] for number in numbers]

    def _name(self) -> str:
        return type(self.dataset).__name__


def examples_of(items: list[Any], columns: Columns, start: int) -> Examples:
    """A batch of pairs or dictionaries, of which the first has number `start`."""
    if isinstance(items[0], Mapping):
        return gathered(*columns.of_items(items), start)
    for number, item in enumerate(items, start):
        if not (isinstance(item, tuple) and len(item) == 2):
            raise ValueError(
                f"Example {number} is {_described(item)}, but must be a pair (x, y), or a "
                f"dictionary with an input and a target."
            )
    return gathered([x for x, _ in items], [y for _, y in items], start)


def gathered(x: list[Any], y: list[Any], start: int) -> Examples:
    """Some examples as a batch: rows of numbers as a matrix, single targets as an array."""
    targets = as_targets(y)
    single = isinstance(targets, np.ndarray)
    if all(sp.issparse(row) and row.shape[0] == 1 and row.ndim == 2 for row in x):
        return Examples(sp.vstack([sp.csr_array(row) for row in x], format="csr"), targets)
    if not all(_is_row(row, single) for row in x):
        return Examples(x, targets)
    rows = [np.asarray(row) for row in x]
    for number, row in enumerate(rows, start):
        if len(row) != len(rows[0]):
            raise ValueError(
                f"Example {number} has {len(row)} features, but example {start} has "
                f"{len(rows[0])}: a sequence must be a matrix with one row a position."
            )
    return Examples(np.stack(rows), targets)


def _inputs(X: Any) -> Any:
    """A CSR array, a matrix of numbers, or a list."""
    if sp.issparse(X):
        return sp.csr_array(X)
    if not isinstance(X, (np.ndarray, list, tuple)) and hasattr(X, "__array__"):
        X = np.asarray(X)
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind not in "biuf":
        raise ValueError(f"X is a matrix of {X.dtype}, but must hold numbers.")
    return X


def _is_row(x: Any, single_target: bool) -> bool:
    if isinstance(x, (list, tuple)):
        return single_target and bool(x) and all(isinstance(value, Number) for value in x)
    if sp.issparse(x) or not hasattr(x, "__array__") or getattr(x, "ndim", 0) != 1:
        return False
    return np.asarray(x).dtype.kind in "biuf"


def _described(item: Any) -> str:
    if isinstance(item, tuple):
        return f"a tuple of {len(item)}"
    return f"of type {type(item).__name__}"


def _function_name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or type(function).__qualname__


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


def is_dask(data: Any) -> bool:
    """Whether it is a collection of dask with partitions."""
    return type(data).__module__.startswith("dask") and hasattr(data, "to_delayed")


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
                found = f"one of {array.ndim}" if is_dask_array(array) else _described(array)
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
    """Whether it is an array of dask."""
    return type(data).__module__.startswith("dask.array")
