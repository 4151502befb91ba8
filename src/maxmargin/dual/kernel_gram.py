"""Rows, each kept once, and the kernel between all of them, each value computed once."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.core.kernels import (
    SAMPLE,
    Kernel,
    KernelError,
    check_block,
    check_gram,
    row_keys,
    stacked,
)
from maxmargin.core.registry import registered

Floats = NDArray[np.float64]
Order = NDArray[np.int64]

_FIRST_ROOM = 64


@registered("GramState")
class GramState(NamedTuple):
    """All of a `GrowingGram` but its rows, which whoever restores it must make anew.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_rows)
    evaluations, next_check : int
    """

    values: Floats
    evaluations: int
    next_check: int


class GrowingGram:
    """A table of rows with their Gram matrix, which grows by new times all values.

    Parameters
    ----------
    kernel : Kernel

    Attributes
    ----------
    evaluations : int
        Values of the kernel that were computed.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.values = np.empty((_FIRST_ROOM, _FIRST_ROOM))
        """The Gram matrix in the upper left corner; the rest is room to grow."""
        self.evaluations = 0
        self._size = 0
        self._rows: Any = None
        """Perhaps with room to grow, too."""
        self._numbers: dict[Any, int] = {}
        self._next_check = SAMPLE

    def __len__(self) -> int:
        return self._size

    @property
    def rows(self) -> Any:
        """All rows; None before the first."""
        return None if self._rows is None else self._rows[: self._size]

    @property
    def gram(self) -> Floats:
        """Values between all rows."""
        return self.values[: len(self), : len(self)]

    def add(self, rows: Any) -> Order:
        """Numbers of the rows in the table; those that are not in it yet are taken in."""
        numbers = np.empty(rows.shape[0], dtype=np.int64)
        size = len(self)
        new: list[int] = []
        added: dict[Any, int] = {}
        for k, key in enumerate(row_keys(rows)):
            number = self._numbers[key] if key in self._numbers else added.get(key, -1)
            if number < 0:
                number = added[key] = size + len(new)
                new.append(k)
            numbers[k] = number
        if new:
            self._grow(rows[np.array(new)])
            self._numbers |= added
        return numbers

    @property
    def state(self) -> GramState:
        """What to `restore`."""
        return GramState(self.gram, self.evaluations, self._next_check)

    def restore(self, state: GramState, rows: Any) -> None:
        """Take over a state, whose rows are these."""
        self._size, self._rows = rows.shape[0], rows
        self._numbers = {key: number for number, key in enumerate(row_keys(rows))}
        self.values = state.values
        self.evaluations, self._next_check = state.evaluations, state.next_check

    def keep(self, which: Order) -> None:
        """Forget all rows but these; the row ``which[k]`` becomes row ``k``."""
        size = len(which)
        values = np.empty((_room(size),) * 2)
        values[:size, :size] = self.values[np.ix_(which, which)]
        place = {int(old): k for k, old in enumerate(which)}
        self._numbers = {
            key: place[number] for key, number in self._numbers.items() if number in place
        }
        self._rows, self.values, self._size = self._rows[which], values, size

    def _grow(self, new: Any) -> None:
        size, n = len(self), new.shape[0]
        store = new if self._rows is None else _appended(self._rows, size, new)
        block = self.kernel(new, store[: size + n])
        self.evaluations += block.size
        own = block[:, size:]
        self._check(block[:, :size], own, new)
        if size + n > len(self.values):
            values = np.empty((_room(size + n),) * 2)
            values[:size, :size] = self.gram
            self.values = values
        self.values[size : size + n, : size + n] = block
        self.values[:size, size : size + n] = block[:, :size].T
        self._rows, self._size = store, size + n
        if size + n >= self._next_check:  # now and then, a larger sample
            self._next_check = 2 * (size + n)
            some = np.random.default_rng(size).permutation(size + n)[: 2 * SAMPLE]
            check_gram(self.gram[np.ix_(some, some)], self.kernel.name)

    def _check(self, block: Floats, own: Floats, new: Any) -> None:
        name, size = self.kernel.name, len(self)
        check_gram(own[:SAMPLE, :SAMPLE], name)
        if not size:
            return
        check_block(block, own.diagonal(), self.gram.diagonal(), name)
        back = float(self.kernel(self.rows[size - 1 :], new[:1])[0, 0])
        self.evaluations += 1
        if abs(back - block[0, -1]) > 1e-6 * max(abs(back), float(self.values[0, 0]), 1e-300):
            raise KernelError(
                f"{name} is not symmetric: for two training rows it is {block[0, -1]:.6g} one way "
                f"and {back:.6g} the other."
            )


def _appended(store: Any, size: int, new: Any) -> Any:
    """The first `size` rows of a store, then new ones; with room for more where rows are dense."""
    if sp.issparse(store):
        return stacked([store[:size], new])
    needed = size + new.shape[0]
    if needed > len(store):
        wider = np.empty_like(store, shape=(_room(needed), *store.shape[1:]))
        wider[:size] = store[:size]
        store = wider
    store[size:needed] = new
    return store


def _room(size: int) -> int:
    """Rows to make room for: so many that copies do not matter."""
    return max(_FIRST_ROOM, size + size // 2)
