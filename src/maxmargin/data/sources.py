"""Examples that need not fit in memory: anything that can be gone through again and again.

A `Source` gives examples some at a time. What solvers do with them is theirs: one pass or many.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple


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
    """Examples in blocks, the same ones in the same order whenever they are asked for."""

    @abstractmethod
    def blocks(self) -> Iterator[Examples]:
        """All examples from the beginning, so many at a time as memory should hold at once."""

    @property
    def n_examples(self) -> int | None:
        """How many there are; None before anybody has counted."""
        return None

    @property
    def n_features(self) -> int | None:
        """Columns of the matrices; None if nobody knows yet, or there are no matrices."""
        return None
