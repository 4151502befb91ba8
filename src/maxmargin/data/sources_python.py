"""Sources from Python's own things: arrays and lists, functions, data sets with a length."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from numbers import Number
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.core.arrays import SampledHash, places, release
from maxmargin.data.sources import (
    BATCH_BYTES,
    CountedSource,
    Examples,
    NumberedSource,
    Source,
    as_targets,
    is_matrix,
)
from maxmargin.data.sources_columns import Columns

BATCH_EXAMPLES = 1024
"""Examples of a block, where their size is not known before they are looked at."""

_SAMPLED_ITEMS = 16


class ArraySource(CountedSource):
    """Inputs and targets that are arrays or lists, perhaps mapped into memory.

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (n, n_features), data frame, or list of length n
        Mapped arrays (``numpy.load(path, mmap_mode="r")``) take the memory of a block only.
    y : array-like or list of length n
    batch_bytes : int, default=2**24
        What a block of rows takes in memory.

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

    def split(self, n_parts: int) -> list[Source] | None:
        n = len(self.y)
        cuts = sorted({n * part // n_parts for part in range(n_parts + 1)})
        bytes_ = self.batch_bytes
        return [
            ArraySource(self.X[a:b], self.y[a:b], batch_bytes=bytes_) for a, b in pairwise(cuts)
        ]

    def _read(self) -> Iterator[Examples]:
        start, n = 0, len(self.y)
        while start < n:
            end = min(self._block_end(start), n)
            X, y = self.X[start:end], self.y[start:end]
            if is_matrix(self.X):
                yield Examples(X if sp.issparse(X) else np.asarray(X), y)
            else:
                yield gathered(list(X), list(y), start)
            release(self.X, self.y)
            start = end

    def _block_end(self, start: int) -> int:
        if sp.issparse(self.X):
            entry_bytes = self.X.data.itemsize + self.X.indices.itemsize
            entries = max(self.batch_bytes // entry_bytes, 1)
            indptr = self.X.indptr
            next_ends = indptr[start + 1 : start + 1 + entries]
            return start + max(int(np.searchsorted(next_ends, indptr[start] + entries, "right")), 1)
        if is_matrix(self.X):
            return int(start + max(self.batch_bytes // max(self.X[:1].nbytes, 1), 1))
        return start + BATCH_EXAMPLES

    def _name(self) -> str:
        return type(self.X).__name__


class FunctionSource(CountedSource):
    """Examples that a function gives, which is called anew for each pass.

    Parameters
    ----------
    function : callable
        Takes no arguments and returns an iterable, as generator functions do: of pairs ``(x, y)``,
        of dictionaries, or of `Examples`, blocks of the function's own making.
    features, target : str, default=None
        Keys of dictionaries that hold the input and the target.
    batch_examples : int, default=1024
        Pairs that are put together to a block.

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
        Items that are put together to a block.

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

    def _read(self) -> Iterator[Examples]:
        return self.between(0, len(self.dataset))

    def split(self, n_parts: int) -> list[Source] | None:
        if not isinstance(self.dataset, (list, tuple)):
            return super().split(n_parts)
        # Of items in memory, who reads a part should not get all.
        return [
            DatasetSource(
                self.dataset[a:b],
                features=self.columns.features,
                target=self.columns.target,
                batch_examples=self.batch_examples,
            )
            for a, b in pairwise(self._cuts(n_parts))
        ]

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
    """A block of pairs or dictionaries, of which the first has number `start`."""
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
    """Some examples as a block: rows of numbers as a matrix, single targets as an array."""
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
