"""The n-slack dual over a working set, and the block updates that improve it.

Maximise ``sum coef * loss - 1/2 |w|^2`` with ``w = sum coef * psi``, over ``coef >= 0`` with
``sum(coef) <= total`` in each example. No update lowers it. `cut_table` has the arrays;
`output_cuts` has a working set without entries.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.rows import add_to
from maxmargin.core.arrays import Floats, Order, dot
from maxmargin.core.certificate import DualPoint
from maxmargin.core.cuts import Cuts, starts_of
from maxmargin.core.oracle import Oracle, Threads
from maxmargin.core.state import Stateful
from maxmargin.dual.cut_table import (
    GAIN,
    LINEAR,
    N_CUTS,
    N_ENTRIES,
    N_FREE,
    N_GRAM,
    N_LIVE,
    N_SLOTS,
    PER_CUT,
    UNUSED,
    StepRule,
    Table,
    add_best_cuts,
    check_table,
    compact_arena,
    drop_idle_cuts,
    extrapolate_examples,
    hinges_of,
    keep_latest_cuts,
    listed,
    mix_best,
    put_cuts,
    revert_examples,
    update_examples,
    widen_examples,
)
from maxmargin.dual.gram import make_table
from maxmargin.dual.interior_point import DenseConstraints, interior_point, newton_work

_FIRST_CAPACITY = 4

_SLACK = 8
"""Fraction of the arena that dropped cuts may take, and again the room to grow."""


class BlockUpdate(NamedTuple):
    """Gain of the dual over the updated examples, and sums over them before their steps.

    `gap` sums ``total * hinge - sum(coef * slope)`` and `loss` sums ``total * hinge``, with the
    hinge over the working set; `work` is about the number of multiplications.
    """

    gain: float
    gap: float
    loss: float
    work: float

    def __add__(self, other: "BlockUpdate") -> "BlockUpdate":  # type: ignore[override]
        return BlockUpdate(*(a + b for a, b in zip(self, other, strict=True)))


class WorkingSet(Stateful):
    """Cuts of all examples and the dual point over them; `totals` is the C of each example."""

    state_names: ClassVar[tuple[str, ...]] = ("outputs", "linear", "dual", "_table")

    _growth = 4
    """Fraction by which arrays grow at least."""

    def __init__(self, totals: Floats, n_features: int) -> None:
        n = len(totals)
        self.n_features = n_features
        self.outputs: list[Any] = []
        self._latest: tuple[NDArray[np.int32], list[Any]] | None = None
        self.linear = 0.0
        """``sum(coef * loss)``, the dual's linear term."""
        self.dual = 0.0
        """Dual value, kept up to date by the gains of updates: cheaper than ``|w|^2``."""
        self._scratch = np.zeros((2, _FIRST_CAPACITY))
        self._hash = make_table(16, n_features)
        room = max(n, 16)
        self._table = Table(
            owner=np.arange(n, dtype=np.int64),
            totals=totals,
            gaps=np.full(n, np.inf),
            size=np.zeros(n, dtype=np.int32),
            capacity=np.full(n, _FIRST_CAPACITY, dtype=np.int32),
            slot_at=np.arange(n, dtype=np.int64) * _FIRST_CAPACITY,
            gram_at=np.arange(n, dtype=np.int64) * _FIRST_CAPACITY**2,
            slots=np.zeros(n * _FIRST_CAPACITY, dtype=np.int32),
            gram=np.zeros(n * _FIRST_CAPACITY**2),
            start=np.zeros(room, dtype=np.int64),
            length=np.full(room, UNUSED, dtype=np.int32),
            loss=np.zeros(room),
            coef=np.zeros(room),
            previous=np.zeros(room),
            idle=np.zeros(room, dtype=np.int32),
            columns=np.zeros(1024, dtype=np.uint32),
            values=np.zeros(1024),
            free=np.zeros(room, dtype=np.int32),
            counts=np.zeros(6, dtype=np.int64),
        )
        self._table.counts[N_SLOTS] = n * _FIRST_CAPACITY
        self._table.counts[N_GRAM] = n * _FIRST_CAPACITY**2

    def check_state(self) -> None:
        """Refuse a table in which compiled routines would read outside their arrays."""
        check_table(self._table, self.n_features, len(self.outputs))
        self._widen_scratch(int(self._table.capacity.max(initial=0)))

    def _widen_scratch(self, widest: int) -> None:
        if widest > self._scratch.shape[1]:
            self._scratch = np.zeros((2, 2 * widest))

    @property
    def totals(self) -> Floats:
        """C of each example."""
        return self._table.totals

    @property
    def gaps(self) -> Floats:
        """Gap of each example at its last update."""
        return self._table.gaps

    @property
    def n_cuts(self) -> int:
        return int(self._table.size.sum())

    @property
    def n_bytes(self) -> int:
        return sum(array.nbytes for array in self._table)

    def separate(self, oracle: Oracle, weights: Floats, examples: Order, threads: Threads) -> Any:
        """Call the oracle for cuts to `update` with, and for nothing else."""
        return oracle.separate(weights, examples, threads)

    def update(
        self, examples: Order, weights: Floats, rule: StepRule, cuts: Cuts | None = None
    ) -> BlockUpdate:
        """Improve the dual over `examples` in turn; a new cut is kept if it violates the most."""
        added = np.full(len(examples), -1, dtype=np.int32)
        sums = np.zeros(5)
        if cuts is not None:
            self._make_room(examples, cuts)
            self._latest = added, cuts.outputs
        self._update(examples, weights, rule, cuts, added, sums)
        self.linear += float(sums[LINEAR])
        self.dual += float(sums[GAIN])
        self._note_outputs()
        return BlockUpdate(*sums[:LINEAR].tolist())

    def _update(
        self,
        examples: Order,
        weights: Floats,
        rule: StepRule,
        cuts: Cuts | None,
        added: NDArray[np.int32],
        sums: Floats,
    ) -> None:
        """See `update_examples`."""
        new = (cuts or _NO_CUTS)[:4]
        update_examples(
            examples, weights, self._table, rule, *new, added, self._hash, self._scratch, sums
        )

    def _note_outputs(self) -> None:
        """Note the outputs of the cuts added last, should Ctrl-C have come before that."""
        if self._latest is not None:
            added, outputs = self._latest
            kept = np.flatnonzero(added >= 0)
            for k in kept:
                self.outputs[added[k]] = outputs[k]
            self._latest = None

    def put(self, examples: Order, cuts: Cuts, coef: Floats, weights: Floats) -> None:
        """Take over cuts with their coefficients, and update the weights; examples may repeat."""
        add_to(weights, cuts, coef)
        self._moved(float(coef @ cuts.losses), weights)
        for some in _without_repeats(examples):
            part = cuts.take(some)
            added = np.empty(len(some), dtype=np.int32)
            self._make_room(examples[some], part)
            self._put(examples[some], part, coef[some], weights, added)
            for p, output in zip(added.tolist(), part.outputs, strict=True):
                self.outputs[p] = output

    def _put(
        self,
        examples: Order,
        cuts: Cuts,
        coef: Floats,
        weights: Floats,
        added: NDArray[np.int32],
    ) -> None:
        """See `put_cuts`; the weights have the cuts already."""
        put_cuts(examples, *cuts[:4], coef, self._table, self._hash, added)

    def drop_idle(self, max_idle: int) -> None:
        """Drop the cuts whose coefficient was zero at each of the last `max_idle` calls."""
        drop_idle_cuts(self._table, max_idle)

    def add_best(self, weights: Floats, vector: Floats) -> tuple[float, "DualPoint"]:
        """Add C times the most violating cut of each example to `vector`.

        Returns the loss of the sum and the cuts in it, which `keep_latest` takes for just used.
        """
        self._note_outputs()
        best, loss = self._add_best(weights, vector)
        examples = np.flatnonzero(best >= 0)
        return loss, DualPoint(
            examples, self.totals[examples], [self.outputs[p] for p in best[examples].tolist()]
        )

    def _add_best(self, weights: Floats, vector: Floats) -> tuple[Order, float]:
        best = np.empty(len(self.totals), np.int64)
        return best, float(add_best_cuts(self._everything, self._table, weights, vector, best))

    def hinges(self, weights: Floats) -> float:
        """Sum over the examples of C times the hinge over the working set: a lower bound."""
        return float(hinges_of(self._everything, self._table, weights))

    def step_towards_best(self, weights: Floats) -> None:
        """One exact line search for all examples together, towards the best cut of each."""
        corner = np.zeros_like(weights)
        best, linear = self._add_best(weights, corner)
        corner -= weights
        linear -= self.linear
        slope = max(linear - dot(weights, corner), 0.0)
        square = dot(corner, corner)
        step = 1.0 if square <= slope else slope / square
        mix_best(self._table, best, step)
        weights += step * corner
        self._moved(step * linear, weights)

    @property
    def newton_work(self) -> float:
        """Multiplications of `solve`, about; infinite if it would take much memory."""
        return newton_work(self.n_cuts, self.n_features)

    def solve(self, weights: Floats, allowed_gap: Callable[[float], float]) -> Floats:
        """Solve the dual over the working set by an interior-point method.

        `weights` become those of the dual point, which has to be better. Returns those of the
        primal, which near the end are better than these.
        """
        owners = np.flatnonzero((self.totals > 0.0) & (self._table.size > 0))
        groups, numbers = listed(self._table, owners)
        table, starts, columns, values = self._table, *self._entries_of(owners[groups], numbers)
        rows = np.zeros((len(numbers), self.n_features))
        np.add.at(rows, (np.repeat(np.arange(len(numbers)), np.diff(starts)), columns), values)
        constraints = DenseConstraints(rows, table.loss[numbers], groups, table.totals[owners])
        point = interior_point(constraints, allowed_gap)
        alpha = np.maximum(point.alpha, 0.0)
        over = constraints.summed(alpha) / constraints.C
        alpha /= np.maximum(over, 1.0)[groups]
        found = constraints.weights(alpha)
        linear = float(constraints.margins @ alpha)
        if linear - 0.5 * float(found @ found) > self.dual:
            table.coef[:] = 0.0
            table.coef[numbers] = alpha
            weights[:] = found
            self._moved(linear - self.linear, weights)
        return point.weights

    def _entries_of(
        self, examples: Order, numbers: NDArray[np.int32]
    ) -> tuple[Order, NDArray[np.uint32], Floats]:
        """Entries of cuts of these examples: starts, columns and values."""
        table = self._table
        lengths = table.length[numbers].astype(np.int64)
        starts = starts_of(lengths)
        entries = np.arange(starts[-1]) + np.repeat(table.start[numbers] - starts[:-1], lengths)
        return starts, table.columns[entries], table.values[entries]

    def keep_latest(self, limit: int) -> None:
        """Drop all but the `limit` cuts of each example used last, and those with a coefficient."""
        keep_latest_cuts(self._table, limit)

    def extrapolate(self, momentum: float, weights: Floats) -> None:
        """Extrapolate by `momentum` times the change since the last call, as far as is feasible."""
        if momentum == 0.0:
            self._table.previous[:] = self._table.coef
            self._moved(0.0, weights)
        else:
            self._moved(self._extrapolate(self._moving, momentum, weights), weights)

    def _extrapolate(self, examples: Order, momentum: float, weights: Floats) -> float:
        """See `extrapolate_examples`."""
        return float(extrapolate_examples(examples, momentum, self._table, weights))

    def revert(self, weights: Floats) -> None:
        """Return to where the last `extrapolate` started."""
        self._moved(self._revert(self._moving, weights), weights)

    def _revert(self, examples: Order, weights: Floats) -> float:
        """See `revert_examples`."""
        return float(revert_examples(examples, self._table, weights))

    def point(self) -> "DualPoint":
        """The positive coefficients with their outputs."""
        self._note_outputs()
        examples, numbers = listed(self._table)
        used = self._table.coef[numbers] > 0.0
        numbers = numbers[used]
        outputs = [self.outputs[p] for p in numbers.tolist()]
        return DualPoint(examples[used], self._table.coef[numbers], outputs)

    @property
    def _everything(self) -> Order:
        return np.arange(len(self.totals), dtype=np.int64)

    @property
    def _moving(self) -> Order:
        """Examples whose coefficients have changed since the last `extrapolate`."""
        order, numbers = listed(self._table)
        moved = self._table.coef[numbers] != self._table.previous[numbers]
        return np.unique(order[moved])

    def _moved(self, linear: float, weights: Floats) -> None:
        """Bring the dual value up to date after the linear term changed by `linear`."""
        self.linear += linear
        self.dual = self.linear - 0.5 * dot(weights, weights)

    def _make_room(self, examples: Order, cuts: Cuts) -> None:
        table = self._table
        full = examples[table.size[examples] == table.capacity[examples]]
        if len(full):
            self._widen(full)
        table = self._table
        if table.counts[N_FREE] < len(examples):
            self._add_numbers(len(examples))
        self._make_room_for(cuts)
        self._widen_scratch(int(self._table.capacity[examples].max()))

    def _make_room_for(self, cuts: Cuts) -> None:
        self._extend_arena(len(cuts.values))
        largest = int(np.diff(cuts.starts).max(initial=0))
        if largest >= len(self._hash.places):
            self._hash = make_table(2 * largest, self.n_features)

    def _widen(self, full: Order) -> None:
        """Double the room for cuts in some examples, at the end of the lists."""
        table = self._table
        old = table.capacity[full].astype(np.int64)
        self._reserve("slots", int(table.counts[N_SLOTS] + (2 * old).sum()))
        self._reserve("gram", int(table.counts[N_GRAM] + (4 * old**2).sum()))
        widen_examples(full, self._table)

    def _add_numbers(self, wanted: int) -> None:
        table = self._table
        old = int(table.counts[N_CUTS])
        new = self._grown(old, old + wanted)
        per_cut = {name: _longer(getattr(table, name), new) for name in PER_CUT}
        per_cut["length"][old:] = UNUSED
        self._table = table._replace(**per_cut)
        n_free = int(table.counts[N_FREE])
        self._table.free[n_free : n_free + new - old] = np.arange(new - 1, old - 1, -1)
        table.counts[N_FREE] = n_free + new - old
        table.counts[N_CUTS] = new
        self.outputs += [None] * (new - old)

    def _extend_arena(self, n_entries: int) -> None:
        """Make room for more entries where it is short, by compaction or a larger arena."""
        if self._table.counts[N_ENTRIES] + n_entries <= len(self._table.columns):
            return
        size = self._arena_with(n_entries)
        if self._has_gaps:
            self._close_gaps()
        if size > len(self._table.columns):
            self._resize_arena(size)

    def _resize_arena(self, size: int) -> None:
        self._resize(size, "columns", "values")

    def _reserve(self, name: str, least: int) -> None:
        """Make an array at least so long, with room to spare if it was too short."""
        length = len(getattr(self._table, name))
        if least > length:
            self._resize(self._grown(length, least), name)

    def _resize(self, size: int, *names: str) -> None:
        """Give arrays another size in place: a copy beside the old one would be a peak."""
        if not all(getattr(self._table, name).flags.owndata for name in names):
            # Those out of a pickle live in its memory.
            own = {name: getattr(self._table, name).copy() for name in names}
            self._table = self._table._replace(**own)
        for name in names:
            getattr(self._table, name).resize(size, refcheck=False)

    @property
    def _has_gaps(self) -> bool:
        """Whether dropped cuts take enough of the arena to compact it."""
        used, live = self._table.counts[N_ENTRIES], self._table.counts[N_LIVE]
        return bool(used - live > live // _SLACK)

    def _arena_with(self, n_entries: int) -> int:
        """Size of the arena with room for so many more entries."""
        counts, size = self._table.counts, len(self._table.columns)
        if counts[N_ENTRIES] + n_entries <= size:
            return size
        used = int(counts[N_LIVE if self._has_gaps else N_ENTRIES])
        return size if used + n_entries <= size else used + n_entries + used // _SLACK

    def _close_gaps(self) -> None:
        table = self._table
        in_use = np.flatnonzero(table.length >= 0)
        compact_arena(table, in_use[np.argsort(table.start[in_use], kind="stable")])

    def _grown(self, length: int, wanted: int) -> int:
        return max(wanted, length + length // self._growth)


_NO_CUTS = Cuts(
    np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.uint32), np.zeros(0), np.zeros(0), []
)


def _without_repeats(examples: Order) -> list[Order]:
    """Positions in `examples` in groups that have each example at most once."""
    order = np.argsort(examples, kind="stable")
    rank = np.arange(len(examples)) - np.searchsorted(examples[order], examples[order])
    return [np.sort(order[rank == r]) for r in range(rank.max(initial=-1) + 1)]


def _longer(array: NDArray[Any], length: int) -> NDArray[Any]:
    longer = np.zeros(max(length, len(array)), dtype=array.dtype)
    longer[: len(array)] = array
    return longer
