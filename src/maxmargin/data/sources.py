"""Sources: examples in batches, which need not fit in memory and can be read again and again."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby, islice, pairwise
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.core.arrays import SampledHash, places, release
from maxmargin.core.inputs import label_array

BATCH_BYTES = 1 << 24
"""Approximate memory of a batch, by default."""

BATCH_EXAMPLES = 1024
"""Examples of a batch, where their size is not known."""

_SAMPLED_ITEMS = 16


class Examples(NamedTuple):
    """Some examples, in order.

    Parameters
    ----------
    X : sparse CSR array or ndarray of shape (n, n_features), or list of length n
        Inputs: a matrix where each is a row of numbers, else a list of whatever they are.
    y : ndarray of shape (n,), or list of length n
        What is to be predicted for them.
    """

    X: Any
    y: Any


class Source(ABC):
    """Examples in batches, the same ones in the same order in each pass.

    Matrices are `n_features` wide; until that is known, batches of the first pass are as wide as
    the widest so far.
    """

    n_examples: int | None = None
    """How many there are; None before they are counted."""

    n_features: int | None = None
    """Columns of the matrices; None if that is not known yet, or there are no matrices."""

    @abstractmethod
    def batches(self) -> Iterator[Examples]:
        """All examples from the beginning, a batch at a time."""

    def classes(self) -> NDArray[Any]:
        """All labels, sorted, found by a pass; of tag sequences and label sets, all that occur."""
        found: set[Any] = set()
        for batch in self.batches():
            found.update(_labels(batch.y))
        return np.unique(label_array(list(found)))

    def fingerprint(self) -> str:
        """A short text that identifies the data in any process, found without a full pass."""
        first = next(self.batches(), ())
        return SampledHash(type(self).__name__, *first).text()

    def split(self, n_partitions: int) -> "list[Source] | None":
        """Consecutive partitions, at most as many as asked for, each a source of its own.

        None if examples can only be found by reading those before.
        """
        return None

    @property
    def progress(self) -> tuple[int, int] | None:
        """Bytes read in the present pass, and bytes in all; None if that is unknown."""
        return None


class CountedSource(Source):
    """A source that learns from its first full pass how many examples and features there are.

    Parameters
    ----------
    n_examples, n_features : int, default=None
        If they are known before.
    """

    def __init__(self, n_examples: int | None = None, n_features: int | None = None) -> None:
        self.n_examples, self.n_features = n_examples, n_features
        self._classes: NDArray[Any] | None = None
        self._passes = 0  # that came to the end

    @abstractmethod
    def _read(self) -> Iterator[Examples]:
        """The batches, unchecked."""

    def batches(self) -> Iterator[Examples]:
        n_examples = 0
        width: int | None = None
        for batch in self._read():
            n_examples += len(batch.y)
            if self.n_examples is not None and n_examples > self.n_examples:
                self._refuse(f"at least {n_examples}")
            if is_matrix(batch.X):
                width = max(width or 0, batch.X.shape[1])
                batch = Examples(self._as_wide(batch.X, width, n_examples), batch.y)
            yield batch
        if self.n_examples is not None and n_examples != self.n_examples:
            self._refuse(str(n_examples))
        self._passes += 1
        self.n_examples = n_examples
        self.n_features = width if self.n_features is None else self.n_features

    def classes(self) -> NDArray[Any]:
        if self._classes is None:
            self._classes = super().classes()
        return self._classes

    def __repr__(self) -> str:
        n, width = self.n_examples, self.n_features
        counts = ["not counted yet"] if n is None else [f"{n} examples"]
        counts += [] if width is None else [f"{width} features"]
        return f"{type(self).__name__}({self._name()}, {', '.join(counts)})"

    def _name(self) -> str:
        return ""

    def _as_wide(self, X: Any, width: int, n_examples: int) -> Any:
        if self.n_features is not None:
            if width > self.n_features:
                raise ValueError(
                    f"{self!r} gave rows of {width} features among its first {n_examples} examples."
                )
            width = self.n_features
        if X.shape[1] == width:
            return X
        if not sp.issparse(X):
            raise ValueError(
                f"{self!r} gave rows of {X.shape[1]} and of {width} features among its first "
                f"{n_examples} examples."
            )
        return widened(X, width)

    def _refuse(self, found: str) -> None:
        if self._passes == 0:
            raise ValueError(f"{self!r} gave {found} examples on the first pass.")
        subject, ordinal = self._subject or repr(self), _ordinal(self._passes + 1)
        raise ValueError(
            f"{subject} gave {found} examples on the {ordinal} pass but {self.n_examples} on the "
            f"first: {self._remedy}."
        )

    _subject = ""
    _remedy = "the data must stay the same between passes"


class NumberedSource(CountedSource):
    """A source that finds examples by number."""

    @abstractmethod
    def between(self, start: int, end: int) -> Iterator[Examples]:
        """Batches of the examples ``start..end-1``; nothing else is read."""

    def _read(self) -> Iterator[Examples]:
        return self.between(0, self.n_examples or 0)

    def _cuts(self, n_partitions: int) -> list[int]:
        """Numbers at which partitions begin, and the last one ends."""
        n = self.n_examples or 0
        return sorted({n * k // n_partitions for k in range(n_partitions + 1)})

    def _partition(self, start: int, end: int) -> Source:
        return _Partition(self, start, end)

    def split(self, n_partitions: int) -> list[Source] | None:
        return [self._partition(a, b) for a, b in pairwise(self._cuts(n_partitions))]


class _Partition(CountedSource):
    """Consecutive examples of a source."""

    def __init__(self, source: NumberedSource, start: int, end: int) -> None:
        super().__init__(end - start, source.n_features)
        self.source, self.start, self.end = source, start, end

    def _read(self) -> Iterator[Examples]:
        return self.source.between(self.start, self.end)

    def _name(self) -> str:
        return f"examples {self.start} to {self.end - 1} of {self.source!r}"


def csr_batch_end(
    data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any], start: int, end: int, size: int
) -> int:
    """End of a batch of CSR rows from `start` on, of about `size` bytes."""
    most = max(size // (data.itemsize + indices.itemsize), 1)
    ends = indptr[start + 1 : min(start + most, end) + 1]
    return start + max(int(np.searchsorted(ends, int(indptr[start]) + most, side="right")), 1)


def is_matrix(X: Any) -> bool:
    """Whether the inputs are rows of numbers."""
    return sp.issparse(X) or (isinstance(X, np.ndarray) and X.ndim == 2)


def widened(X: Any, width: int) -> Any:
    """A CSR array with more columns, on the same memory."""
    wide = sp.csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], width))
    wide.has_canonical_format = X.has_canonical_format
    return wide


def as_targets(y: Any) -> Any:
    """An array of single labels or numbers, or else a list."""
    if not isinstance(y, (np.ndarray, list, tuple)) and hasattr(y, "__array__"):
        y = np.asarray(y)
    if isinstance(y, np.ndarray):
        return y if y.ndim == 1 and y.dtype != object else as_targets(list(y))
    labels = [_plain(label) for label in y]
    if all(isinstance(label, (str, Number, np.generic)) for label in labels):
        if len({isinstance(label, str) for label in labels}) > 1:
            raise ValueError("Some targets are numbers and some are strings: give one kind only.")
        return np.array(labels)
    return labels


def _plain(label: Any) -> Any:
    """A label out of an array or tensor without dimensions."""
    return label.item() if getattr(label, "ndim", None) == 0 and hasattr(label, "item") else label


def _labels(y: Any) -> Any:
    if isinstance(y, np.ndarray) and y.dtype != object:
        return np.unique(y).tolist()
    labels: set[Any] = set()
    for label in y:
        several = np.unique(label).tolist() if isinstance(label, np.ndarray) else label
        is_single = not isinstance(several, (list, tuple, set, frozenset))
        labels.update([several] if is_single else several)
    return labels


def _ordinal(number: int) -> str:
    return {2: "second", 3: "third"}.get(number, f"{number}th")


USUAL_TARGETS = ("y", "target", "label", "labels")
"""Names of the target's column that are understood by default."""


class Columns(NamedTuple):
    """Names of the columns with the inputs and the target.

    By default the only column of lists, else all of numbers; and the one of `USUAL_TARGETS`.
    """

    features: str | Sequence[str] | None = None
    target: str | None = None

    def chosen(self, kinds: Mapping[str, str]) -> tuple[list[str], str]:
        """Columns of inputs and target; `kinds` are "number", "list" or "other"."""
        usual = [name for name in USUAL_TARGETS if name in kinds]
        if self.target is None and len(usual) != 1:
            raise ValueError(
                f"Which of the columns {_listed(kinds)} is the target? Name it with target=."
            )
        target = usual[0] if self.target is None else self.target
        given = [self.features] if isinstance(self.features, str) else list(self.features or ())
        for name, option in [(target, "target"), *((name, "features") for name in given)]:
            if name not in kinds:
                raise ValueError(
                    f"{option} names the column {name!r}, but there are only {_listed(kinds)}."
                )
        if self.features is not None:
            return given, target
        others = [name for name in kinds if name != target]
        lists = [name for name in others if kinds[name] == "list"]
        numbers = [name for name in others if kinds[name] == "number"]
        if len(lists) == 1:
            return lists, target
        if numbers or len(others) == 1:
            return numbers or others, target
        raise ValueError(
            f"Which of the columns {_listed(kinds)} hold the inputs? Name them with features=."
        )

    def of_items(self, items: Sequence[Mapping[str, Any]]) -> tuple[list[Any], list[Any]]:
        """Inputs and targets of dictionaries."""
        kinds = {name: _kind(value) for name, value in items[0].items()}
        features, target = self.chosen(kinds)
        x = [
            item[features[0]]
            if isinstance(self.features, str) or (len(features) == 1 and self.features is None)
            else np.array([item[name] for name in features], dtype=np.float64)
            for item in items
        ]
        return x, [item[target] for item in items]

    def of_frame(self, frame: Any) -> Examples:
        """Inputs and targets of a pandas data frame."""
        kinds = {
            name: "number" if column.dtype.kind in "biuf" else "other"
            for name, column in frame.items()
        }
        features, target = self.chosen(kinds)
        y = frame[target].to_numpy()
        y = y.astype(str) if y.dtype.kind not in "biuf" else y
        if isinstance(self.features, str) and kinds[features[0]] == "other":
            return Examples(frame[features[0]].tolist(), y)
        for name in features:
            if kinds[name] != "number":
                raise ValueError(f"The column {name!r} of the features holds no numbers.")
        return Examples(numeric(frame[features].to_numpy()), y)


def numeric(X: NDArray[Any]) -> NDArray[Any]:
    """A matrix of floating point numbers."""
    return X if X.dtype.kind == "f" else X.astype(np.float64)


def _kind(value: Any) -> str:
    if isinstance(value, (Number, np.generic)) and not isinstance(value, str):
        return "number"
    if isinstance(value, (list, tuple, np.ndarray)) or hasattr(value, "__array__"):
        return "list"
    return "other"


def _listed(names: Any) -> str:
    shown = [repr(name) for name in names]
    return ", ".join(shown[:20]) + (", ..." if len(shown) > 20 else "")


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
        return SampledHash(type(self).__name__, self.X, self.y).text()

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
        X, size = self.X, self.batch_bytes
        if sp.issparse(X):
            return csr_batch_end(X.data, X.indices, X.indptr, start, end, size)
        if is_matrix(X):
            return int(start + max(size // max(X[:1].nbytes, 1), 1))
        return start + BATCH_EXAMPLES

    def _partition(self, start: int, end: int) -> Source:
        # Who reads a partition should not get all.
        X, y = self.X[start:end], self.y[start:end]
        return ArraySource(X, y, batch_bytes=self.batch_bytes)

    def _name(self) -> str:
        return type(self.X).__name__


class FunctionSource(CountedSource):
    """Examples that a function gives, which is called anew for each pass.

    Inputs that are arrays of one dimension, lists of numbers with a single target, or sparse
    matrices of one row become rows of a matrix.

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

    Examples
    --------
    >>> from maxmargin.data import FunctionSource
    >>> def words():
    ...     for word, tag in [("dogs", "noun"), ("bark", "verb")]:
    ...         yield {"word": word}, tag
    >>> source = FunctionSource(words)
    >>> next(source.batches()).X, source.classes()
    ([{'word': 'dogs'}, {'word': 'bark'}], array(['noun', 'verb'], dtype='<U4'))
    """

    _subject = "The generator"
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
        n = 0
        for is_batch, items in groupby(self._items(), lambda item: isinstance(item, Examples)):
            while some := list(islice(items, 1 if is_batch else self.batch_examples)):
                if is_batch:
                    batch = Examples(_inputs(some[0].X), as_targets(some[0].y))
                else:
                    batch = examples_of(some, self.columns, n)
                n += len(batch.y)
                yield batch

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
        items = self._items([*places(len(self.dataset), _SAMPLED_ITEMS)])
        return SampledHash(type(self).__name__, len(self.dataset), *items).text()

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
    """A batch of pairs or dictionaries, the first of which has number `start`."""
    if isinstance(items[0], Mapping):
        return gathered(*columns.of_items(items), start)
    for number, item in enumerate(items, start):
        if not (isinstance(item, tuple) and len(item) == 2):
            raise ValueError(
                f"Example {number} is {described(item)}, but must be a pair (x, y), or a "
                f"dictionary with an input and a target."
            )
    return gathered([x for x, _ in items], [y for _, y in items], start)


def gathered(x: list[Any], y: list[Any], start: int) -> Examples:
    """A batch: rows of numbers as a matrix, single targets as an array."""
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


def described(item: Any) -> str:
    """What something is, for messages."""
    if isinstance(item, tuple):
        return f"a tuple of {len(item)}"
    return f"of type {type(item).__name__}"


def _function_name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or type(function).__qualname__


class SourceBatch(NamedTuple):
    """A batch of a source, its number, and the number of examples before it."""

    number: int
    first: int
    examples: Examples

    @contextmanager
    def located(self) -> Iterator[None]:
        """Let errors say where in the source the batch is."""
        try:
            yield
        except ValueError as error:
            if type(error) is not ValueError:  # others name the example
                raise
            raise ValueError(
                f"In batch {self.number} of the source, whose first example is number "
                f"{self.first} of all, {error}"
            ) from error


def read_batches(source: Source) -> Iterator[SourceBatch]:
    """The nonempty batches of a source; an error if there are none."""
    first = 0
    for number, examples in enumerate(source.batches()):
        if len(examples.y):
            yield SourceBatch(number, first, examples)
            first += len(examples.y)
    if not first:
        raise ValueError("The source holds no examples: there is nothing to learn from.")
