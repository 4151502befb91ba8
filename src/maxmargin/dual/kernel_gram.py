"""Rows, each kept once, and the kernel between all of them, each value computed once."""

import hashlib
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.dual.kernels import SAMPLE, Kernel, KernelError, check_block, check_gram

Floats = NDArray[np.float64]
Order = NDArray[np.int64]

_FIRST_ROOM = 64


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
        self.rows: Any = None
        self.values = np.zeros((_FIRST_ROOM, _FIRST_ROOM))
        """The Gram matrix in the upper left corner; the rest is room to grow."""
        self.evaluations = 0
        self._numbers: dict[Any, int] = {}
        self._next_check = SAMPLE

    def __len__(self) -> int:
        return 0 if self.rows is None else int(self.rows.shape[0])

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

    def keep(self, which: Order) -> None:
        """Forget all rows but these; the row ``which[k]`` becomes row ``k``."""
        gram = self.gram[np.ix_(which, which)]
        self.values = np.zeros_like(self.values, shape=(_room(len(which)),) * 2)
        self.values[: len(which), : len(which)] = gram
        place = {int(old): k for k, old in enumerate(which)}
        self._numbers = {
            key: place[number] for key, number in self._numbers.items() if number in place
        }
        self.rows = self.rows[which]

    def _grow(self, new: Any) -> None:
        size, n = len(self), new.shape[0]
        rows = new if self.rows is None else stacked([self.rows, new])
        block = self.kernel(new, rows)
        self.evaluations += block.size
        own = block[:, size:]
        self._check(block[:, :size], own, new)
        if size + n > len(self.values):
            values = np.zeros((_room(size + n),) * 2)
            values[:size, :size] = self.gram
            self.values = values
        self.values[size : size + n, : size + n] = block
        self.values[:size, size : size + n] = block[:, :size].T
        self.rows = rows
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
        back = float(self.kernel(self.rows[-1:], new[:1])[0, 0])
        self.evaluations += 1
        if abs(back - block[0, -1]) > 1e-6 * max(abs(back), float(self.values[0, 0]), 1e-300):
            raise KernelError(
                f"{name} is not symmetric: for two training rows it is {block[0, -1]:.6g} one way "
                f"and {back:.6g} the other."
            )


def stacked(parts: list[Any]) -> Any:
    """Rows below each other."""
    if sp.issparse(parts[0]):
        return sp.csr_array(sp.vstack(parts))
    return np.concatenate(parts)


def row_keys(rows: Any) -> list[Any]:
    """Something to tell rows apart by, or to find that they are the same."""
    if sp.issparse(rows):
        rows.sort_indices()
        starts, columns, values = rows.indptr, rows.indices, rows.data
        return [
            _digest(columns[a:b].tobytes() + values[a:b].tobytes())
            for a, b in pairwise(starts.tolist())
        ]
    if rows.dtype == object:
        return [_object_key(row) for row in rows]
    rows = np.ascontiguousarray(rows) + 0.0  # there is a zero with a sign, too
    return [_digest(row.tobytes()) for row in rows]


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


class _Same:
    """An object that is equal to itself only, and stays alive so that its id stays its own."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __hash__(self) -> int:
        return id(self.thing)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.thing is other.thing


def _object_key(thing: Any) -> Any:
    if isinstance(thing, tuple):  # an input with an output, as joint kernels compare them
        return tuple(_object_key(part) for part in thing)
    if isinstance(thing, np.ndarray) and thing.dtype != object:
        return thing.shape, thing.dtype.str, _digest(np.ascontiguousarray(thing).tobytes())
    try:
        hash(thing)
    except TypeError:
        return _Same(thing)
    return type(thing), thing


def _room(size: int) -> int:
    """Rows to make room for: so many that copies do not matter."""
    return max(_FIRST_ROOM, size + size // 2)
