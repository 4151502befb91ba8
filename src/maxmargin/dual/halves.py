"""Updates in two threads: halves of the examples, each at weights of its own.

A thread updates its half as if there were no other, then repeats the other's moves on its own
weights, so that both have the same again, up to rounding. Moves d_0 and d_1 of the weights raise
the dual by ``gain_0 + gain_1 - <d_0, d_1>``, and the product comes with the repetition. Where the
dual grows by less than with one half alone, the other is undone: that is rare, because few examples
are updated between two repetitions. The halves depend on the problem only, so that any number of
threads from two on gives the same bits.
"""

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from maxmargin.compiled.compile import compiled
from maxmargin.compiled.rows import gathered_product
from maxmargin.core.arrays import Floats, Order
from maxmargin.core.oracle import Threads
from maxmargin.dual.cut_table import Table, add_cut

Answer = TypeVar("Answer")

BOTH = 0, 1


class Halves:
    """The second thread's weights."""

    def __init__(self, threads: Threads) -> None:
        self.threads = threads
        self._copied: Floats | None = None
        """The weights that the second ones are a copy of, unless these have moved since."""
        self._second = np.zeros(0)

    def forget(self) -> None:
        """Copy the weights again before the next moves, as they have changed otherwise."""
        self._copied = None

    def move(
        self,
        table: Table,
        halves: list[Order],
        weights: Floats,
        before: Floats,
        work: Callable[[int, Floats], Answer],
    ) -> tuple[list[Answer], list[float]]:
        """Answers of ``work(t, weights)`` for both halves, and `repeat_moves` of each.

        `before` are the coefficients of all cuts before the moves.
        """
        both = weights, self._second_of(weights)
        self._copied = None
        try:
            answers = self.threads.map(lambda t: work(t, both[t]), BOTH)
        finally:  # also after Ctrl-C: the weights are to be those of all coefficients
            products = self.threads.map(
                lambda t: float(repeat_moves(halves[t], before, table, both[1 - t])), BOTH
            )
        self._copied = weights
        return answers, products

    def repeat(self, table: Table, examples: Order, weights: Floats, before: Floats) -> None:
        """Bring the second weights in step after moves on the first alone."""
        if self._copied is weights:
            repeat_moves(examples, before, table, self._second)

    def undo(self, table: Table, examples: Order, weights: Floats, before: Floats) -> None:
        """Undo the moves of a half, which both weights have."""
        undo_moves(examples, before, table, weights, self._second)

    def _second_of(self, weights: Floats) -> Floats:
        if len(self._second) != len(weights):
            self._second = np.empty_like(weights)
        if self._copied is not weights:
            self._second[:] = weights
        return self._second


@compiled
def repeat_moves(examples, before, table, weights):  # type: ignore[no-untyped-def]
    """Add ``(coef - before) * psi`` of the cuts of `examples` to other weights.

    Returns, with d the moves of examples and w the weights before each, the sum of
    ``<d, w> + |d|^2 / 2``. At the weights at which it was made, a move that changes the linear term
    by l and gains g has ``l - g`` instead: the difference is the product of the two threads' moves.
    """
    total = 0.0
    for b in examples:
        at, gram_at, stride = table.slot_at[b], table.gram_at[b], table.capacity[b]
        for j in range(table.size[b]):
            p = table.slots[at + j]
            change = table.coef[p] - before[p]
            if change == 0.0:
                continue
            start = table.start[p]
            stop = start + table.length[p]
            total += change * gathered_product(start, stop, table.columns, table.values, weights)
            # The product has those of the cuts before, whose moves are in the weights already.
            total += 0.5 * change * change * table.gram[gram_at + j * stride + j]
            add_cut(p, change, table, weights)
    return total


@compiled
def undo_moves(examples, before, table, weights, second):  # type: ignore[no-untyped-def]
    """``coef = before`` for the cuts of `examples`, of which both weights have the moves."""
    for b in examples:
        for j in range(table.size[b]):
            p = table.slots[table.slot_at[b] + j]
            change = before[p] - table.coef[p]
            if change != 0.0:
                table.coef[p] = before[p]
                add_cut(p, change, table, weights)
                add_cut(p, change, table, second)
