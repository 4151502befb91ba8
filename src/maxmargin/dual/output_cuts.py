"""A working set of cutting planes that are kept as outputs, without entries.

Where a cut has thousands of entries and an output a few bytes, as in a long chain, routines of the
structure score the parts of outputs instead (`OutputCuts`). In the table, ``columns`` are codes of
the parts in which an output differs from the true one, and there are no ``values``.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.arrays import Floats, Order
from maxmargin.core.cuts import Cuts, starts_of
from maxmargin.core.oracle import CompiledOracle, Oracle, Threads, outputs_of
from maxmargin.dual.cut_table import N_ENTRIES, N_LIVE, StepRule, Table, listed
from maxmargin.dual.working_set import WorkingSet


class NewOutputs(NamedTuple):
    """An output for each of some examples, in CSR form, and its loss; perhaps none at all."""

    starts: Order
    found: NDArray[Any]
    losses: Floats

    @property
    def outputs(self) -> list[bytes]:
        """The outputs one by one, as those of `Cuts`."""
        return outputs_of(self.starts, self.found)


class OutputCuts(Protocol):
    """What `cut_table` does with entries, done with outputs.

    Tables, weights, `added`, `best` and `sums` are changed; in the table there is room for all new
    outputs.
    """

    oracle: CompiledOracle

    def losses(self, examples: Order, starts: Order, found: NDArray[Any]) -> Floats:
        """Losses of a batch of outputs, see `CompiledOracle`."""

    def update(
        self,
        examples: Order,
        weights: Floats,
        rule: StepRule,
        table: Table,
        new: NewOutputs,
        added: NDArray[np.int32],
        sums: Floats,
    ) -> None:
        """See `update_examples`."""

    def put(
        self,
        examples: Order,
        coef: Floats,
        weights: Floats,
        table: Table,
        new: NewOutputs,
        added: NDArray[np.int32],
    ) -> None:
        """See `put_cuts`."""

    def add_best(
        self, examples: Order, weights: Floats, vector: Floats, table: Table, best: Order
    ) -> float:
        """See `add_best_cuts`."""

    def hinges(self, examples: Order, weights: Floats, table: Table) -> float:
        """See `hinges_of`."""

    def extrapolate(self, examples: Order, momentum: float, weights: Floats, table: Table) -> float:
        """See `extrapolate_examples`."""

    def revert(self, examples: Order, weights: Floats, table: Table) -> float:
        """See `revert_examples`."""

    def code(
        self, examples: Order, numbers: NDArray[np.int32], table: Table, new: NewOutputs
    ) -> None:
        """Set the codes of cuts `numbers`, whose outputs are known, one after the other."""


class OutputWorkingSet(WorkingSet):
    """A working set with codes of outputs in place of entries."""

    def __init__(self, totals: Floats, n_features: int, routines: OutputCuts) -> None:
        super().__init__(totals, n_features)
        self._routines = routines
        self._table = self._table._replace(values=np.zeros(0))

    def check_state(self) -> None:
        """Refuse a bad table; codes are made again of the outputs, which are checked."""
        table = self._table._replace(columns=np.zeros(0, dtype=np.uint32), values=np.zeros(0))
        table.length[table.length > 0] = 0
        table.start[:] = 0
        table.counts[N_ENTRIES : N_LIVE + 1] = 0
        self._table = table
        super().check_state()
        examples, numbers = listed(table)
        outputs = [self.outputs[p] for p in numbers.tolist()]
        if not all(isinstance(output, bytes) for output in outputs):
            raise ValueError("the outputs of cutting planes are missing")
        self._routines.oracle.cuts_of(examples, outputs)  # which checks them
        new = self._new(outputs, table.loss[numbers], examples)
        self._resize_arena(len(new.found))
        self._routines.code(examples, numbers, self._table, new)

    def _resize_arena(self, size: int) -> None:
        self._resize(size, "columns")

    def _close_gaps(self) -> None:
        table = self._table
        in_use = np.flatnonzero(table.length > 0)
        lengths = table.length[in_use].astype(np.int64)
        starts = starts_of(lengths)
        places = np.arange(starts[-1]) + np.repeat(table.start[in_use] - starts[:-1], lengths)
        table.columns[: starts[-1]] = table.columns[places]
        table.start[in_use] = starts[:-1]
        table.counts[N_ENTRIES] = starts[-1]

    def separate(
        self, oracle: Oracle, weights: Floats, examples: Order, threads: Threads
    ) -> NewOutputs:
        """Outputs and losses: entries, which are not kept, would take as long as a block update."""
        starts, found = self._routines.oracle.most_violating(weights, examples, threads)
        return NewOutputs(starts, found, self._routines.losses(examples, starts, found))

    def _make_room_for(self, cuts: Cuts | NewOutputs) -> None:
        self._extend_arena(sum(map(len, cuts.outputs)) // self._output_dtype.itemsize)

    @property
    def _output_dtype(self) -> Any:
        return np.dtype(self._routines.oracle.output_dtype)

    def _new(self, outputs: list[Any], losses: Floats, examples: Order) -> NewOutputs:
        # Writable: numba would compile again for an array that is not.
        found = np.frombuffer(bytearray().join(outputs), dtype=self._output_dtype)
        return NewOutputs(starts_of(self._routines.oracle.output_sizes[examples]), found, losses)

    def _update(
        self,
        examples: Order,
        weights: Floats,
        rule: StepRule,
        cuts: Cuts | NewOutputs | None,
        added: NDArray[np.int32],
        sums: Floats,
    ) -> None:
        if isinstance(cuts, NewOutputs):
            new = cuts
        elif cuts is None:
            new = self._new([], np.zeros(0), examples[:0])
        else:
            new = self._new(cuts.outputs, cuts.losses, examples)
        self._routines.update(examples, weights, rule, self._table, new, added, sums)

    def _put(
        self,
        examples: Order,
        cuts: Cuts,
        coef: Floats,
        weights: Floats,
        added: NDArray[np.int32],
    ) -> None:
        new = self._new(cuts.outputs, cuts.losses, examples)
        self._routines.put(examples, coef, weights, self._table, new, added)

    def _add_best(self, weights: Floats, vector: Floats) -> tuple[Order, float]:
        best = np.empty(len(self.totals), np.int64)
        where = self._everything, weights, vector, self._table, best
        return best, self._routines.add_best(*where)

    def hinges(self, weights: Floats) -> float:
        return self._routines.hinges(self._everything, weights, self._table)

    def _extrapolate(self, examples: Order, momentum: float, weights: Floats) -> float:
        return self._routines.extrapolate(examples, momentum, weights, self._table)

    def _revert(self, examples: Order, weights: Floats) -> float:
        return self._routines.revert(examples, weights, self._table)

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
