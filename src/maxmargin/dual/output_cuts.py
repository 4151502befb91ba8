"""A working set of cutting planes that are kept as outputs alone, without entries.

Where a cut has thousands of entries and an output a few bytes, as in a long chain, routines of the
structure score the parts of outputs instead (`OutputCuts`).
"""

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.arrays import Floats, Order
from maxmargin.core.cuts import Cuts, starts_of
from maxmargin.core.oracle import CompiledOracle, Oracle
from maxmargin.dual.cut_table import N_ENTRIES, N_LIVE, StepRule, Table, listed
from maxmargin.dual.working_set import WorkingSet


class Kept(NamedTuple):
    """Outputs of cuts one after the other, where that of each begins, and how much is used."""

    found: NDArray[Any]
    at: Order
    used: Order


class NewOutputs(NamedTuple):
    """An output for each of some examples, in CSR form, and its loss; perhaps none at all."""

    starts: Order
    found: NDArray[Any]
    losses: Floats


class OutputCuts(Protocol):
    """What `cut_table` does with entries, done with outputs.

    Tables, weights, `added`, `best`, `sums` and what is `kept` are changed; of this there is room
    for all new outputs.
    """

    oracle: CompiledOracle

    def update(
        self,
        examples: Order,
        weights: Floats,
        rule: StepRule,
        table: Table,
        kept: Kept,
        new: NewOutputs,
        added: NDArray[np.int32],
        sums: Floats,
    ) -> None:
        """See `update_examples`."""

    def put(
        self,
        examples: Order,
        coef: Floats,
        table: Table,
        kept: Kept,
        new: NewOutputs,
        added: NDArray[np.int32],
    ) -> None:
        """See `put_cuts`."""

    def add_best(
        self,
        examples: Order,
        weights: Floats,
        vector: Floats,
        table: Table,
        kept: Kept,
        best: Order,
    ) -> float:
        """See `add_best_cuts`."""

    def hinges(self, examples: Order, weights: Floats, table: Table, kept: Kept) -> float:
        """See `hinges_of`."""

    def extrapolate(
        self, examples: Order, momentum: float, weights: Floats, table: Table, kept: Kept
    ) -> float:
        """See `extrapolate_examples`."""

    def revert(self, examples: Order, weights: Floats, table: Table, kept: Kept) -> float:
        """See `revert_examples`."""


class OutputWorkingSet(WorkingSet):
    """A working set whose cuts have no entries in the table, but outputs that are kept."""

    def __init__(self, totals: Floats, n_features: int, routines: OutputCuts) -> None:
        super().__init__(totals, n_features)
        self._routines = routines
        self._drop_entries()
        self._keep(np.zeros(0, dtype=routines.oracle.output_dtype), *listed(self._table))

    def check_state(self) -> None:
        self._drop_entries()  # which files of earlier versions have
        super().check_state()
        examples, numbers = listed(self._table)
        outputs = [self.outputs[p] for p in numbers.tolist()]
        if not all(isinstance(output, bytes) for output in outputs):
            raise ValueError("the outputs of cutting planes are missing")
        self._routines.oracle.cuts_of(examples, outputs)  # which checks them
        self._keep(self._joined(outputs), examples, numbers)

    @property
    def n_bytes(self) -> int:
        return super().n_bytes + sum(array.nbytes for array in self._kept)

    def _drop_entries(self) -> None:
        table = self._table._replace(columns=np.zeros(0, dtype=np.uint32), values=np.zeros(0))
        table.length[table.length > 0] = 0
        table.start[:] = 0
        table.counts[N_ENTRIES : N_LIVE + 1] = 0
        self._table = table

    def _joined(self, outputs: list[bytes]) -> NDArray[Any]:
        # Writable: numba would compile again for an array that is not.
        raw = bytearray().join(outputs)
        return np.frombuffer(raw, dtype=self._routines.oracle.output_dtype)

    def _keep(
        self, found: NDArray[Any], examples: Order, numbers: NDArray[np.int32], room: int = 0
    ) -> None:
        """Keep the outputs of all cuts, which stand one after the other, and room for more."""
        starts = starts_of(self._routines.oracle.output_sizes[examples])
        longer = np.zeros(2 * len(found) + room, dtype=found.dtype)
        longer[: len(found)] = found
        at = np.zeros(len(self._table.start), dtype=np.int64)
        at[numbers] = starts[:-1]
        self._kept = Kept(longer, at, starts[-1:].copy())

    def _make_room_for(self, cuts: Cuts) -> None:
        found, at, used = self._kept
        more = sum(map(len, cuts.outputs)) // found.itemsize
        if len(at) == len(self._table.start) and used[0] + more <= len(found):
            return
        # Once more, without those of cuts that were dropped.
        examples, numbers = listed(self._table)
        sizes = self._routines.oracle.output_sizes[examples]
        first = at[numbers] - starts_of(sizes)[:-1]
        places = np.arange(int(sizes.sum())) + np.repeat(first, sizes)
        self._keep(found[places], examples, numbers, more)

    def _new(self, cuts: Cuts | None, examples: Order) -> NewOutputs:
        if cuts is None:
            return NewOutputs(np.zeros(1, dtype=np.int64), self._kept.found[:0], np.zeros(0))
        starts = starts_of(self._routines.oracle.output_sizes[examples])
        return NewOutputs(starts, self._joined(cuts.outputs), cuts.losses)

    def _update(
        self,
        examples: Order,
        weights: Floats,
        rule: StepRule,
        cuts: Cuts | None,
        added: NDArray[np.int32],
        sums: Floats,
    ) -> None:
        where = self._table, self._kept, self._new(cuts, examples)
        self._routines.update(examples, weights, rule, *where, added, sums)

    def _put(self, examples: Order, cuts: Cuts, coef: Floats, added: NDArray[np.int32]) -> None:
        where = self._table, self._kept, self._new(cuts, examples)
        self._routines.put(examples, coef, *where, added)

    def _add_best(self, weights: Floats, vector: Floats) -> tuple[Order, float]:
        best = np.empty(len(self.totals), np.int64)
        where = self._table, self._kept
        return best, self._routines.add_best(self._everything, weights, vector, *where, best)

    def hinges(self, weights: Floats) -> float:
        return self._routines.hinges(self._everything, weights, self._table, self._kept)

    def _extrapolate(self, examples: Order, momentum: float, weights: Floats) -> float:
        where = self._table, self._kept
        return self._routines.extrapolate(examples, momentum, weights, *where)

    def _revert(self, examples: Order, weights: Floats) -> float:
        return self._routines.revert(examples, weights, self._table, self._kept)

    def _entries_of(
        self, examples: Order, numbers: NDArray[np.int32]
    ) -> tuple[Order, NDArray[np.uint32], Floats]:
        outputs = [self.outputs[p] for p in numbers.tolist()]
        return self._routines.oracle.entries_from(examples, outputs)[:3]


def working_set_of(oracle: Oracle) -> WorkingSet:
    """An empty working set for the examples of an oracle."""
    routines = oracle.output_cuts
    if routines is None:
        return WorkingSet(oracle.C, oracle.n_features)
    return OutputWorkingSet(oracle.C, oracle.n_features, routines)
