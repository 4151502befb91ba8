"""Examples that need not fit in memory: anything that can be gone through again and again.

A `Source` gives examples some at a time. What solvers do with them is theirs: one pass or many.

Hashes of data that look at a part of it only: quick, and the same in every process.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import pairwise
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.core.arrays import SampledHash
from maxmargin.data.labels import label_array

BATCH_BYTES = 1 << 24
"""What a block of a source takes in memory or on disk, about, if nobody says otherwise."""


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
    """Examples in blocks, the same ones in the same order whenever they are asked for.

    Matrices are `n_features` wide. Where that is not known before all has been seen (LIBSVM's
    format does not tell), blocks of the first pass are as wide as the widest so far: they never
    get narrower.
    """

    @abstractmethod
    def batches(self) -> Iterator[Examples]:
        """All examples from the beginning, so many at a time as memory should hold at once."""

    @property
    def n_examples(self) -> int | None:
        """How many there are; None before anybody has counted."""
        return None

    @property
    def n_features(self) -> int | None:
        """Columns of the matrices; None if nobody knows yet, or there are no matrices."""
        return None

    def classes(self) -> NDArray[Any]:
        """All labels, sorted, found by a pass over the examples.

        If an example has several (a sequence of tags, a set of labels), all of them count.
        """
        found: set[Any] = set()
        for batch in self.batches():
            found.update(_labels(batch.y))
        return np.unique(label_array(list(found)))

    def fingerprint(self) -> str:
        """A short text that other data will hardly have, found without a pass over everything.

        The same data have the same one in another process, too.
        """
        content = SampledHash(type(self).__name__)
        for batch in self.batches():
            content.add(batch.X)
            content.add(batch.y)
            break
        return content.text()

    def split(self, n_parts: int) -> "list[Source] | None":
        """Sources of the same examples that follow one another, each of which reads its own only.

        Fewer than asked for if there are too few examples. None if examples can only be found by
        reading those before.
        """
        return None

    @property
    def progress(self) -> tuple[int, int] | None:
        """How far the present pass is: bytes read, and bytes in all; None if that is unknown."""
        return None


class CountedSource(Source):
    """A source that learns from its first full pass how many examples and features there are.

    Parameters
    ----------
    n_examples, n_features : int, default=None
        If they are known before.
    """

    def __init__(self, n_examples: int | None = None, n_features: int | None = None) -> None:
        self._n_examples, self._n_features = n_examples, n_features
        self._classes: NDArray[Any] | None = None
        self._passes = 0  # that came to the end

    @abstractmethod
    def _read(self) -> Iterator[Examples]:
        """The blocks, of which nothing is checked yet."""

    @property
    def n_examples(self) -> int | None:
        return self._n_examples

    @property
    def n_features(self) -> int | None:
        return self._n_features

    def batches(self) -> Iterator[Examples]:
        n_examples = 0
        width: int | None = None
        for batch in self._read():
            n_examples += len(batch.y)
            if self._n_examples is not None and n_examples > self._n_examples:
                self._refuse(f"at least {n_examples}")
            if is_matrix(batch.X):
                width = max(width or 0, batch.X.shape[1])
                batch = Examples(self._as_wide(batch.X, width, n_examples), batch.y)
            yield batch
        if self._n_examples is not None and n_examples != self._n_examples:
            self._refuse(str(n_examples))
        self._passes += 1
        self._n_examples = n_examples
        self._n_features = width if self._n_features is None else self._n_features

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
        """What it reads, for messages."""
        return ""

    def _as_wide(self, X: Any, width: int, n_examples: int) -> Any:
        if self._n_features is not None:
            if width > self._n_features:
                raise ValueError(
                    f"{self!r} gave rows of {width} features among its first {n_examples} examples."
                )
            width = self._n_features
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
        raise ValueError(
            f"{self._subject()} gave {found} examples on the {_ordinal(self._passes + 1)} pass but "
            f"{self._n_examples} on the first: {self._remedy}."
        )

    _remedy = "the data must stay the same between passes"

    def _subject(self) -> str:
        return repr(self)


class NumberedSource(CountedSource):
    """A source that finds examples by their numbers."""

    @abstractmethod
    def between(self, start: int, end: int) -> Iterator[Examples]:
        """Blocks of the examples from number `start` to before `end`; nothing else is read."""

    def _cuts(self, n_parts: int) -> list[int]:
        """Numbers at which parts begin, and at which the last one ends."""
        n = self._n_examples or 0
        return sorted({n * part // n_parts for part in range(n_parts + 1)})

    def split(self, n_parts: int) -> list[Source] | None:
        return [SomeExamples(self, a, b) for a, b in pairwise(self._cuts(n_parts))]


class SomeExamples(CountedSource):
    """Examples of a source from one number to another.

    Parameters
    ----------
    source : NumberedSource
    start, end : int
        Number of the first, and the one after the last.
    """

    def __init__(self, source: NumberedSource, start: int, end: int) -> None:
        super().__init__(end - start, source.n_features)
        self.source, self.start, self.end = source, start, end

    def _read(self) -> Iterator[Examples]:
        return self.source.between(self.start, self.end)

    def _name(self) -> str:
        return f"examples {self.start} to {self.end - 1} of {self.source!r}"


def is_matrix(X: Any) -> bool:
    """Whether the inputs are rows of numbers."""
    return sp.issparse(X) or (isinstance(X, np.ndarray) and X.ndim == 2)


def widened(X: Any, width: int) -> Any:
    """A CSR array with more columns, none of them filled, on the same memory."""
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
    """A label out of an array or a tensor without dimensions."""
    return label.item() if getattr(label, "ndim", None) == 0 and hasattr(label, "item") else label


def _labels(y: Any) -> Any:
    """Labels of some examples, as Python's own objects."""
    if isinstance(y, np.ndarray) and y.dtype != object:
        return np.unique(y).tolist()
    labels: set[Any] = set()
    for label in y:
        if isinstance(label, np.ndarray):
            labels.update(np.unique(label).tolist())
        elif isinstance(label, (list, tuple, set, frozenset)):
            labels.update(label)
        else:
            labels.add(label)
    return labels


def _ordinal(number: int) -> str:
    return {2: "second", 3: "third"}.get(number, f"{number}th")
