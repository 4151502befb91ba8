"""Rows of a Gram matrix, computed when they are needed; those used least recently give way."""

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.dual.compiled import compiled
from maxmargin.dual.conforming import check_indices, check_shape
from maxmargin.dual.kernels import Kernel, KernelError, check_block, check_finite
from maxmargin.dual.registry import registered
from maxmargin.dual.state import Stateful

Order = NDArray[np.int64]


@registered("KernelRows")
class _Held(NamedTuple):
    """Which rows are in which slots, and how they got there.

    Rows that were computed together are computed together again, because the bits of a product of
    matrices may depend on its shape.
    """

    row_in: Order
    batch_in: Order
    batches: dict[int, Order]


class KernelRowCache(Stateful):
    """Kernel of some rows with all rows, as many as fit.

    Parameters
    ----------
    kernel : Kernel
    X : rows
        In the width of floats that the kernel is to be computed in.
    max_bytes : int
    least : int
        Rows that are kept at least, whatever they take.

    Attributes
    ----------
    values : ndarray of shape (n_slots, n_rows)
    diagonal : ndarray of shape (n_rows,)
    evaluations : int
        Values of the kernel that were computed.
    """

    state_names: ClassVar[tuple[str, ...]] = ("last_use", "evaluations", "clock", "held")

    def __init__(self, kernel: Kernel, X: Any, max_bytes: int, least: int) -> None:
        self.kernel, self.X = kernel, X
        n = X.shape[0]
        dtype = X.dtype if X.dtype == np.float32 else np.dtype(np.float64)
        slots = min(n, max(least, max_bytes // max(1, n * dtype.itemsize)))
        self.values = np.empty((slots, n), dtype=dtype)  # what is never used takes no memory
        self.diagonal = _diagonal(kernel, X)
        self.slot_of = np.full(n, -1, dtype=np.int64)
        self.row_in = np.full(slots, -1, dtype=np.int64)
        self.last_use = np.full(slots, -1, dtype=np.int64)
        self.evaluations = n
        self.clock = 0
        """Of calls of `slots`; also the number of the batch that a call computes."""
        self._batch_in = np.full(slots, -1, dtype=np.int64)
        self._batches: dict[int, Order] = {}

    @property
    def held(self) -> _Held:
        """What a state needs of the values: how to compute them again."""
        self._forget_batches()
        return _Held(self.row_in, self._batch_in, self._batches)

    @held.setter
    def held(self, held: _Held) -> None:
        n = self.X.shape[0]
        check_shape("row_in", held.row_in, len(self.row_in))
        check_shape("batch_in", held.batch_in, len(self.row_in))
        check_indices("row_in", held.row_in, n, start=-1)
        for rows in held.batches.values():
            check_indices("rows of a batch", rows, n)
        if not set(held.batch_in[held.row_in >= 0].tolist()) <= held.batches.keys():
            raise ValueError("a kernel row belongs to no batch")
        self.row_in, self._batch_in, self._batches = held
        self.slot_of[:] = -1
        filled = np.flatnonzero(self.row_in >= 0)
        self.slot_of[self.row_in[filled]] = filled
        for batch, rows in self._batches.items():
            block = self.kernel(self.X[rows], self.X)
            slots = self.slot_of[rows]
            here = (slots >= 0) & (self._batch_in[slots] == batch)
            self.values[slots[here]] = block[here]

    def slots(self, rows: Order) -> Order:
        """Where in `values` the kernel of these rows, at most `least`, is; computed if need be."""
        missing = rows[self.slot_of[rows] < 0]
        self.clock += 1
        held = self.slot_of[rows]
        self.last_use[held[held >= 0]] = self.clock
        if len(missing):
            given = np.argpartition(self.last_use, len(missing) - 1)[: len(missing)]
            if self.last_use[given].max() == self.clock:
                raise ValueError("More rows are asked for than the cache can hold.")
            block = self.kernel(self.X[missing], self.X)
            self.evaluations += block.size
            self._check(missing, block)
            leaving = self.row_in[given]
            self.slot_of[leaving[leaving >= 0]] = -1
            self.values[given] = block
            self.row_in[given] = missing
            self.slot_of[missing] = given
            self.last_use[given] = self.clock
            self._batch_in[given] = self.clock
            self._batches[self.clock] = missing
            if len(self._batches) > 2 * len(self.row_in):
                self._forget_batches()
        return self.slot_of[rows]

    def between(self, rows: Order) -> Any:
        """The Gram matrix of some rows that are all at hand, as a copy."""
        gram = np.empty((len(rows), len(rows)), dtype=self.values.dtype)
        _gather(self.values, self.slot_of[rows], rows, gram)
        return gram

    def _forget_batches(self) -> None:
        """Those of which no row is left."""
        live = np.unique(self._batch_in[self.row_in >= 0]).tolist()
        self._batches = {batch: self._batches[batch] for batch in live}

    def _check(self, rows: Order, block: Any) -> None:
        name = self.kernel.name
        check_finite(block, name)
        if self.values.dtype == np.float64:
            check_block(block, self.diagonal[rows], self.diagonal, name)
        other = self.row_in[self.row_in >= 0][:1]
        if len(other):
            there, back = block[0, other[0]], self.values[self.slot_of[other[0]], rows[0]]
            if abs(there - back) > 1e-4 * max(abs(there), abs(back), 1e-300) + 1e-9:
                raise KernelError(
                    f"{name} is not symmetric: for two training rows it is {there:.6g} one way and "
                    f"{back:.6g} the other."
                )


@compiled
def _gather(values, slots, columns, out):  # type: ignore[no-untyped-def]
    """``out[a, b] = values[slots[a], columns[b]]``."""
    for a in range(len(slots)):
        row = values[slots[a]]
        for b in range(len(columns)):
            out[a, b] = row[columns[b]]


def _diagonal(kernel: Kernel, X: Any) -> NDArray[np.float64]:
    """Kernel of each row with itself, some at a time."""
    size = 64
    parts = [
        kernel(X[start : start + size], X[start : start + size]).diagonal()
        for start in range(0, X.shape[0], size)
    ]
    return np.concatenate(parts).astype(np.float64)
