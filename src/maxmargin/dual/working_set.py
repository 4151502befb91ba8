"""The n-slack dual over a working set, and the block updates that improve it.

Maximise ``sum coef * loss - 1/2 |w|^2`` with ``w = sum coef * psi``, over ``coef >= 0`` with
``sum(coef) <= total`` in each example. No update lowers it. `cut_table` has the arrays.

A large working set whose outputs an `Expander` can expand keeps no more entries than it has room
for, of the other cuts the outputs alone: two bytes a label, not hundreds of entries. Their entries
are made again when their examples are updated, in a window at the end of the arena.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.rows import add_to
from maxmargin.core.arrays import Floats, Order
from maxmargin.core.certificate import DualPoint
from maxmargin.core.cuts import Cuts, starts_of
from maxmargin.core.oracle import Expander
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
    PAIRWISE,
    PER_CUT,
    UNUSED,
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

_MOST_ENTRIES = 1 << 21
_WEIGHTS_PER_ENTRY = 8
"""If outputs can be expanded, so many entries stay in the arena, 24 MB, or a fifth of the memory
of the weights."""

_CHECKED = 1024
"""Cuts that are expanded at a time when outputs from a file are checked."""

_WINDOW = 1 << 18
"""Entries that are expanded at a time: few enough for a cache, many enough for a call."""


class StepRule(NamedTuple):
    """How an update improves the dual over an example, whose violation exceeds `tolerance`.

    `kind` is PAIRWISE (at most `max_steps` steps between the most violating pair), FRANK_WOLFE (a
    line search towards the best cut), or AWAY (that, or away from the worst if it promises more).
    """

    kind: int = PAIRWISE
    max_steps: int = 100
    tolerance: float = 0.0


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


class _Packed(NamedTuple):
    """Outputs of all cuts in one array, where that of each cut starts, and how much is used."""

    found: NDArray[Any]
    at: Order
    used: Order


class WorkingSet(Stateful):
    """Cuts of all examples and the dual point over them; `totals` is the C of each example."""

    state_names: ClassVar[tuple[str, ...]] = ("outputs", "linear", "dual", "_table")

    _growth = 4
    """Fraction by which arrays grow at least."""

    def __init__(self, totals: Floats, n_features: int, expander: Expander | None = None) -> None:
        n = len(totals)
        self.n_features = n_features
        self._expander = expander
        self._packed: _Packed | None = None
        """The outputs, if not all entries stay in the arena."""
        self._window_at = max(_MOST_ENTRIES, n_features // _WEIGHTS_PER_ENTRY)
        """Where the window is; entries before it stay."""
        self._stay = 0
        """Entries that stay, with the gaps between them."""
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
        counts = self._table.counts
        is_window = self._expander is not None and counts[N_ENTRIES] == 0 < counts[N_LIVE]
        check_table(self._table, self.n_features, len(self.outputs), is_window)
        self._widen_scratch(int(self._table.capacity.max(initial=0)))
        if is_window:
            self._check_outputs()
            self._pack_outputs()
            self._table.start[:] = self._window_at

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

    def update(
        self, examples: Order, weights: Floats, rule: StepRule, cuts: Cuts | None = None
    ) -> BlockUpdate:
        """Improve the dual over `examples` in turn; a new cut is kept if it violates the most."""
        added = np.full(len(examples), -1, dtype=np.int32)
        sums = np.zeros(5)
        if cuts is not None:
            self._make_room(examples, cuts)
            self._latest = added, cuts.outputs
        for part in self._windows(examples, cuts):
            update_examples(
                examples[part], weights, self._table, *rule, *_some(cuts, part),
                added[part], self._hash, self._scratch, sums,
            )  # fmt: skip
        self.linear += float(sums[LINEAR])
        self.dual += float(sums[GAIN])
        self._note_outputs()
        return BlockUpdate(*sums[:LINEAR].tolist())

    def _note_outputs(self) -> None:
        """Note the outputs of the cuts added last, should Ctrl-C have come before that."""
        if self._latest is not None:
            added, outputs = self._latest
            kept = np.flatnonzero(added >= 0)
            for k in kept:
                self.outputs[added[k]] = outputs[k]
            self._pack_new(added[kept])
            self._latest = None

    def put(self, examples: Order, cuts: Cuts, coef: Floats, weights: Floats) -> None:
        """Take over cuts with their coefficients, and update the weights; examples may repeat."""
        add_to(weights, cuts, coef)
        self._moved(float(coef @ cuts.losses), weights)
        for some in _without_repeats(examples):
            part = cuts.take(some)
            added = np.empty(len(some), dtype=np.int32)
            self._make_room(examples[some], part)
            for window in self._windows(examples[some], part):
                put_cuts(
                    examples[some[window]], *_some(part, window), coef[some[window]],
                    self._table, self._hash, added[window],
                )  # fmt: skip
            for p, output in zip(added.tolist(), part.outputs, strict=True):
                self.outputs[p] = output
            self._pack_new(added)

    def drop_idle(self, max_idle: int) -> None:
        """Drop the cuts whose coefficient was zero at each of the last `max_idle` calls."""
        drop_idle_cuts(self._table, max_idle)
        self._reclaim()

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
        best, loss, examples = np.empty(len(self.totals), np.int64), 0.0, self._everything
        for part in self._windows(examples):
            loss = add_best_cuts(examples[part], self._table, weights, vector, best, loss)
        return best, float(loss)

    def hinges(self, weights: Floats) -> float:
        """Sum over the examples of C times the hinge over the working set: a lower bound."""
        total, examples = 0.0, self._everything
        for part in self._windows(examples):
            total = hinges_of(examples[part], self._table, weights, total)
        return float(total)

    def step_towards_best(self, weights: Floats) -> None:
        """One exact line search for all examples together, towards the best cut of each."""
        corner = np.zeros_like(weights)
        best, linear = self._add_best(weights, corner)
        corner -= weights
        linear -= self.linear
        slope = max(linear - float(weights @ corner), 0.0)
        square = float(corner @ corner)
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
        rows = np.zeros((len(numbers), self.n_features))
        for part in self._windows(owners):
            inside = slice(*np.searchsorted(groups, [part.start, part.stop]))
            self._add_entries(numbers[inside], rows[inside])
        table = self._table
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

    def _add_entries(self, numbers: NDArray[np.int32], rows: Floats) -> None:
        """Add each of the cuts `numbers`, whose entries are in the arena, to a row."""
        table = self._table
        lengths = table.length[numbers].astype(np.int64)
        places = np.repeat(np.arange(len(numbers)), lengths)
        entries = np.arange(len(places)) + (table.start[numbers] - starts_of(lengths)[:-1])[places]
        np.add.at(rows, (places, table.columns[entries]), table.values[entries])

    def keep_latest(self, limit: int) -> None:
        """Drop all but the `limit` cuts of each example used last, and those with a coefficient."""
        keep_latest_cuts(self._table, limit)
        self._reclaim()

    def extrapolate(self, momentum: float, weights: Floats) -> None:
        """Extrapolate by `momentum` times the change since the last call, as far as is feasible."""
        linear, examples = 0.0, self._moving
        if momentum == 0.0:
            examples = examples[:0]
            self._table.previous[:] = self._table.coef
        for part in self._windows(examples):
            linear = extrapolate_examples(examples[part], momentum, self._table, weights, linear)
        self._moved(float(linear), weights)

    def revert(self, weights: Floats) -> None:
        """Return to where the last `extrapolate` started."""
        linear, examples = 0.0, self._moving
        for part in self._windows(examples):
            linear = revert_examples(examples[part], self._table, weights, linear)
        self._moved(float(linear), weights)

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

    def _windows(self, examples: Order, cuts: Cuts | None = None) -> Iterator[slice]:
        """Slices of `examples`, without repeats, while their entries are in the arena.

        There is room for those of `cuts`, a new one for each example.
        """
        if self._packed is None:
            yield slice(0, len(examples))
            return
        if cuts is None:
            self._note_outputs()  # those that an interrupted update left
        table = self._table
        order, numbers = listed(table, examples)
        absent = table.start[numbers] >= self._window_at
        order, numbers = order[absent], numbers[absent]
        sizes = np.bincount(order, table.length[numbers], len(examples)).astype(np.int64)
        if cuts is not None:
            sizes += np.diff(cuts.starts)
        window = (np.cumsum(sizes) - sizes) // _WINDOW
        bounds = [0, *(np.flatnonzero(np.diff(window)) + 1).tolist(), len(examples)]
        for first, last in pairwise(bounds):
            some = slice(*np.searchsorted(order, [first, last]))
            n_entries = int(sizes[first:last].sum())
            stays = self._fill_window(examples[order[some]], numbers[some], n_entries)
            yield slice(first, last)
            if stays:  # not those of new cuts that were not kept
                self._stay = int(table.counts[N_ENTRIES])
        table.counts[N_ENTRIES] = 0

    def _fill_window(self, examples: Order, numbers: NDArray[np.int32], size: int) -> bool:
        """Expand the cuts `numbers` of `examples`, with room for so many entries in all.

        Returns whether there is room for them to stay.
        """
        assert self._expander is not None
        assert self._packed is not None
        stays = self._stay + size <= self._window_at
        first = self._stay if stays else self._window_at
        if first + size > len(self._table.values):
            self._resize_arena(first + size)
        if stays:
            self._stay = first + size  # before anything points there, should Ctrl-C come
        table, (found, at, _) = self._table, self._packed
        starts = first + starts_of(table.length[numbers])
        self._expander.expand(
            examples, at[numbers], found, table.loss[numbers], starts, table.columns, table.values
        )
        table.counts[N_ENTRIES] = starts[-1]
        table.start[numbers] = starts[:-1]
        return stays

    def _pack_outputs(self) -> None:
        """Put all outputs into one array, with room for as many more."""
        assert self._expander is not None
        numbers = listed(self._table)[1]
        found, starts = self._joined(numbers)
        at = np.zeros(len(self._table.start), dtype=np.int64)
        at[numbers] = starts[:-1]
        self._packed = _Packed(_longer(found, 2 * len(found)), at, starts[-1:])

    def _pack_new(self, numbers: NDArray[np.int32]) -> None:
        """Add the outputs of new cuts."""
        if self._packed is None:
            return
        found, starts = self._joined(numbers)
        outputs, at, used = self._packed
        if len(at) < len(self._table.start) or used[0] + len(found) > len(outputs):
            self._pack_outputs()  # also leaves out those of cuts that were dropped
            return
        outputs[used[0] : used[0] + len(found)] = found
        at[numbers] = used[0] + starts[:-1]
        used += len(found)

    def _joined(self, numbers: NDArray[np.int32]) -> tuple[NDArray[Any], Order]:
        """Outputs of some cuts one after the other, and where each starts."""
        assert self._expander is not None
        outputs = [self.outputs[p] for p in numbers.tolist()]
        found = np.frombuffer(bytearray().join(outputs), dtype=self._expander.output_dtype)
        return found, starts_of(list(map(len, outputs))) // found.itemsize

    def _check_outputs(self) -> None:
        """Refuse outputs that are none, or whose cuts have other entries than are expected."""
        assert self._expander is not None
        examples, numbers = listed(self._table)
        outputs = [self.outputs[p] for p in numbers.tolist()]
        if not all(isinstance(output, bytes) for output in outputs):
            raise ValueError("the outputs of cutting planes are missing")
        for start in range(0, len(numbers), _CHECKED):
            some = slice(start, start + _CHECKED)
            entries, *_ = self._expander.entries_from(examples[some], outputs[some])
            if not np.array_equal(np.diff(entries), self._table.length[numbers[some]]):
                raise ValueError("outputs have other entries than the working set says")

    def _moved(self, linear: float, weights: Floats) -> None:
        """Bring the dual value up to date after the linear term changed by `linear`."""
        self.linear += linear
        self.dual = self.linear - 0.5 * float(weights @ weights)

    def _make_room(self, examples: Order, cuts: Cuts) -> None:
        table = self._table
        full = examples[table.size[examples] == table.capacity[examples]]
        if len(full):
            self._widen(full)
        table = self._table
        if table.counts[N_FREE] < len(examples):
            self._add_numbers(len(examples))
        needed = table.counts[N_ENTRIES] + len(cuts.values)
        if needed > len(table.values) and self._packed is None:
            self._extend_arena(len(cuts.values))
        largest = int(np.diff(cuts.starts).max(initial=0))
        if largest >= len(self._hash.places):
            self._hash = make_table(2 * largest, self.n_features)
        self._widen_scratch(int(self._table.capacity[examples].max()))

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
        """Make room for more entries, by compaction or a larger arena."""
        table = self._table
        size = self._arena_with(n_entries)
        if size > self._window_at and self._expander is not None:
            self._stay = int(table.counts[N_ENTRIES])
            self._window_at = max(self._window_at, self._stay)
            self._pack_outputs()
            self._reclaim()
            return
        if self._has_gaps:
            self._close_gaps()
        if size > len(table.values):
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
        counts, size = self._table.counts, len(self._table.values)
        if counts[N_ENTRIES] + n_entries <= size:
            return size
        used = int(counts[N_LIVE if self._has_gaps else N_ENTRIES])
        return size if used + n_entries <= size else used + n_entries + used // _SLACK

    def _close_gaps(self) -> None:
        table = self._table
        in_use = np.flatnonzero(table.length >= 0)
        compact_arena(table, in_use[np.argsort(table.start[in_use], kind="stable")])

    def _reclaim(self) -> None:
        """Close the gaps between entries that stay in front of a window, if they are large."""
        if self._packed is None:
            return
        table = self._table
        staying = np.flatnonzero((table.length >= 0) & (table.start < self._window_at))
        live = int(table.length[staying].sum(dtype=np.int64))
        if self._stay - live > live // _SLACK:
            compact_arena(table, staying[np.argsort(table.start[staying], kind="stable")])
            self._stay = live
            table.counts[N_ENTRIES] = 0

    def _grown(self, length: int, wanted: int) -> int:
        return max(wanted, length + length // self._growth)


_NO_CUTS = Cuts(
    np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.uint32), np.zeros(0), np.zeros(0), []
)


def _some(cuts: Cuts | None, part: slice) -> tuple[Any, ...]:
    """Arrays of some of the cuts for compiled routines."""
    if cuts is None:
        return _NO_CUTS[:4]
    starts = cuts.starts[part.start : part.stop + 1]
    return starts, cuts.columns, cuts.values, cuts.losses[part]


def _without_repeats(examples: Order) -> list[Order]:
    """Positions in `examples` in groups that have each example at most once."""
    order = np.argsort(examples, kind="stable")
    rank = np.arange(len(examples)) - np.searchsorted(examples[order], examples[order])
    return [np.sort(order[rank == r]) for r in range(rank.max(initial=-1) + 1)]


def _longer(array: NDArray[Any], length: int) -> NDArray[Any]:
    longer = np.zeros(max(length, len(array)), dtype=array.dtype)
    longer[: len(array)] = array
    return longer
