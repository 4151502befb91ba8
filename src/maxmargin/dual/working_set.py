"""The n-slack dual over a working set, and the block updates that improve it.

Maximise ``sum coef * loss - 1/2 |w|^2`` with ``w = sum coef * psi``, over ``coef >= 0`` with
``sum(coef) <= total`` in each example. No update lowers it. A cut is a number, its entries stand in
the arena `columns`, `values` from ``start`` on. Example ``b`` has its cuts in
``slots[slot_at[b]:]`` and their Gram matrix in ``gram[gram_at[b]:]``, with room for
``capacity[b]``. Room is made before a call: compiled routines never allocate.

A large working set whose outputs an `Expander` can expand keeps no more entries than it has room
for, of the other cuts the outputs alone: two bytes a label, not hundreds of entries. Their entries
are made again when their examples are updated, in a window at the end of the arena.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.compiled.rows import add_scattered, add_to, gathered_product
from maxmargin.core.arrays import Floats, Order, check_finite, check_indices, check_shape
from maxmargin.core.certificate import DualPoint
from maxmargin.core.cuts import Cuts, starts_of
from maxmargin.core.oracle import Expander
from maxmargin.core.registry import registered
from maxmargin.core.state import Stateful
from maxmargin.dual.gram import (
    ROUNDING,
    clear,
    frank_wolfe_step,
    make_table,
    pairwise_steps,
    product_with_spread,
    spread,
)
from maxmargin.dual.interior_point import DenseConstraints, interior_point, newton_work

PAIRWISE, FRANK_WOLFE, AWAY = 0, 1, 2

UNUSED = -1
"""Length of a number that no cut has."""

_FIRST_CAPACITY = 4

_MOST_CAPACITY = 1 << 24
"""Cuts of one example beyond which their Gram matrix would fit in no memory."""

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

PER_EXAMPLE = ("owner", "totals", "gaps", "size", "capacity", "slot_at", "gram_at")
PER_CUT = ("start", "length", "loss", "coef", "previous", "idle", "free")
"""Arrays with a place for each example, and for each cut number."""

_N_FREE, _N_ENTRIES, _N_LIVE, _N_SLOTS, _N_GRAM, _N_CUTS = range(6)
_GAIN, _GAP, _BOUND, _WORK, _LINEAR = range(5)


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


@registered("WorkingSetTable")
class _Table(NamedTuple):
    """All arrays of a working set; replaced in one assignment, because Ctrl-C may come any time."""

    owner: NDArray[np.int64]
    totals: Floats
    gaps: Floats
    size: NDArray[np.int32]
    capacity: NDArray[np.int32]
    slot_at: NDArray[np.int64]
    gram_at: NDArray[np.int64]
    slots: NDArray[np.int32]
    gram: Floats
    start: NDArray[np.int64]
    length: NDArray[np.int32]
    loss: Floats
    coef: Floats
    previous: Floats
    idle: NDArray[np.int32]
    columns: NDArray[np.uint32]
    values: Floats
    free: NDArray[np.int32]
    counts: NDArray[np.int64]


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
        self._table = _Table(
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
        self._table.counts[_N_SLOTS] = n * _FIRST_CAPACITY
        self._table.counts[_N_GRAM] = n * _FIRST_CAPACITY**2

    def check_state(self) -> None:
        """Refuse a table in which compiled routines would read outside their arrays."""
        counts = self._table.counts
        is_window = self._expander is not None and counts[_N_ENTRIES] == 0 < counts[_N_LIVE]
        _check_table(self._table, self.n_features, len(self.outputs), is_window)
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
            _update_examples(
                examples[part], weights, self._table, *rule, *_some(cuts, part),
                added[part], self._hash, self._scratch, sums,
            )  # fmt: skip
        self.linear += float(sums[_LINEAR])
        self.dual += float(sums[_GAIN])
        self._note_outputs()
        return BlockUpdate(*sums[:_LINEAR].tolist())

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
                _put_cuts(
                    examples[some[window]], *_some(part, window), coef[some[window]],
                    self._table, self._hash, added[window],
                )  # fmt: skip
            for p, output in zip(added.tolist(), part.outputs, strict=True):
                self.outputs[p] = output
            self._pack_new(added)

    def drop_idle(self, max_idle: int) -> None:
        """Drop the cuts whose coefficient was zero at each of the last `max_idle` calls."""
        _drop_idle(self._table, max_idle)
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
            loss = _add_best(examples[part], self._table, weights, vector, best, loss)
        return best, float(loss)

    def hinges(self, weights: Floats) -> float:
        """Sum over the examples of C times the hinge over the working set: a lower bound."""
        total, examples = 0.0, self._everything
        for part in self._windows(examples):
            total = _hinges(examples[part], self._table, weights, total)
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
        _mix(self._table, best, step)
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
        _keep_latest(self._table, limit)
        self._reclaim()

    def extrapolate(self, momentum: float, weights: Floats) -> None:
        """Extrapolate by `momentum` times the change since the last call, as far as is feasible."""
        linear, examples = 0.0, self._moving
        if momentum == 0.0:
            examples = examples[:0]
            self._table.previous[:] = self._table.coef
        for part in self._windows(examples):
            linear = _extrapolate(examples[part], momentum, self._table, weights, linear)
        self._moved(float(linear), weights)

    def revert(self, weights: Floats) -> None:
        """Return to where the last `extrapolate` started."""
        linear, examples = 0.0, self._moving
        for part in self._windows(examples):
            linear = _revert(examples[part], self._table, weights, linear)
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
                self._stay = int(table.counts[_N_ENTRIES])
        table.counts[_N_ENTRIES] = 0

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
        table.counts[_N_ENTRIES] = starts[-1]
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
        if table.counts[_N_FREE] < len(examples):
            self._add_numbers(len(examples))
        needed = table.counts[_N_ENTRIES] + len(cuts.values)
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
        self._reserve("slots", int(table.counts[_N_SLOTS] + (2 * old).sum()))
        self._reserve("gram", int(table.counts[_N_GRAM] + (4 * old**2).sum()))
        _widen_examples(full, self._table)

    def _add_numbers(self, wanted: int) -> None:
        table = self._table
        old = int(table.counts[_N_CUTS])
        new = self._grown(old, old + wanted)
        per_cut = {name: _longer(getattr(table, name), new) for name in PER_CUT}
        per_cut["length"][old:] = UNUSED
        self._table = table._replace(**per_cut)
        n_free = int(table.counts[_N_FREE])
        self._table.free[n_free : n_free + new - old] = np.arange(new - 1, old - 1, -1)
        table.counts[_N_FREE] = n_free + new - old
        table.counts[_N_CUTS] = new
        self.outputs += [None] * (new - old)

    def _extend_arena(self, n_entries: int) -> None:
        """Make room for more entries, by compaction or a larger arena."""
        table = self._table
        size = self._arena_with(n_entries)
        if size > self._window_at and self._expander is not None:
            self._stay = int(table.counts[_N_ENTRIES])
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
        used, live = self._table.counts[_N_ENTRIES], self._table.counts[_N_LIVE]
        return bool(used - live > live // _SLACK)

    def _arena_with(self, n_entries: int) -> int:
        """Size of the arena with room for so many more entries."""
        counts, size = self._table.counts, len(self._table.values)
        if counts[_N_ENTRIES] + n_entries <= size:
            return size
        used = int(counts[_N_LIVE if self._has_gaps else _N_ENTRIES])
        return size if used + n_entries <= size else used + n_entries + used // _SLACK

    def _close_gaps(self) -> None:
        table = self._table
        in_use = np.flatnonzero(table.length >= 0)
        _compact(table, in_use[np.argsort(table.start[in_use], kind="stable")])

    def _reclaim(self) -> None:
        """Close the gaps between entries that stay in front of a window, if they are large."""
        if self._packed is None:
            return
        table = self._table
        staying = np.flatnonzero((table.length >= 0) & (table.start < self._window_at))
        live = int(table.length[staying].sum(dtype=np.int64))
        if self._stay - live > live // _SLACK:
            _compact(table, staying[np.argsort(table.start[staying], kind="stable")])
            self._stay = live
            table.counts[_N_ENTRIES] = 0

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


def _check_table(table: _Table, n_features: int, n_outputs: int, is_window: bool) -> None:
    """Refuse a table, perhaps from a file, in which routines would read outside their arrays."""
    places = [array.__array_interface__["data"][0] for array in table if array.size]
    if len(set(places)) < len(places):
        raise ValueError("two arrays of the working set are the same")
    n_cuts, n_entries = len(table.start), len(table.columns)
    for names, length in ((PER_EXAMPLE, len(table.owner)), (PER_CUT, n_cuts)):
        for name in names:
            check_shape(name, getattr(table, name), length)
    check_shape("values", table.values, n_entries)
    most_live = np.iinfo(np.int64).max if is_window else n_entries
    rooms = n_cuts, n_entries, most_live, len(table.slots), len(table.gram), n_cuts
    counts = table.counts
    check_shape("counts", counts, len(rooms))
    if (counts < 0).any() or (counts > np.array(rooms)).any() or n_outputs < counts[_N_CUTS]:
        raise ValueError("the working set counts more cutting planes than it has")
    _check_lists(table)
    free, n_entries = table.free[: counts[_N_FREE]], int(counts[_N_ENTRIES])
    check_indices("free", free, n_cuts)
    check_indices("columns", table.columns[:n_entries], max(n_features, 1))
    for name in ("totals", "loss", "coef", "previous"):
        check_finite(name, getattr(table, name))
    check_finite("values", table.values[:n_entries])
    in_use = np.flatnonzero(table.length >= 0)
    lengths = table.length[in_use].astype(np.int64)
    if not is_window:
        _check_apart("start", table.start[in_use], lengths, n_entries)
    if int(lengths.sum()) != int(counts[_N_LIVE]):
        raise ValueError("the working set counts other entries than it has")
    numbers = np.sort(np.concatenate([free, in_use]))
    if not np.array_equal(numbers, np.arange(int(counts[_N_CUTS]))):
        raise ValueError("a cutting plane is in use and free, or neither")


def _check_lists(table: _Table) -> None:
    size, capacity = table.size.astype(np.int64), table.capacity.astype(np.int64)
    if (size < 0).any() or (size > capacity).any() or capacity.max(initial=0) > _MOST_CAPACITY:
        raise ValueError("an example has more cutting planes than there is room for")
    _check_apart("slot_at", table.slot_at, capacity, int(table.counts[_N_SLOTS]))
    _check_apart("gram_at", table.gram_at, capacity**2, int(table.counts[_N_GRAM]))
    _, numbers = listed(table)
    check_indices("slots", numbers, len(table.start))
    if not np.array_equal(np.sort(numbers), np.flatnonzero(table.length >= 0)):
        raise ValueError("examples list other cutting planes than there are")


def _check_apart(name: str, starts: Order, lengths: Order, end: int) -> None:
    """Refuse intervals that overlap, or do not lie between 0 and `end`."""
    order = np.lexsort([lengths, starts])
    starts, stops = starts[order], starts[order] + lengths[order]
    inside = ((starts >= 0) & (starts <= end) & (stops <= end)).all()
    if not inside or (stops[:-1] > starts[1:]).any():
        raise ValueError(f"{name} points outside its array, or into the part of another")


def listed(table: _Table, examples: Order | slice = slice(None)) -> tuple[Order, NDArray[np.int32]]:
    """Places in `examples` and numbers of their cuts, in the order of the lists."""
    size, slot_at = table.size[examples].astype(np.int64), table.slot_at[examples]
    order = np.repeat(np.arange(len(size)), size)
    place = np.arange(len(order)) - np.repeat(np.cumsum(size) - size, size)
    return order, table.slots[slot_at[order] + place]


def _without_repeats(examples: Order) -> list[Order]:
    """Positions in `examples` in groups that have each example at most once."""
    order = np.argsort(examples, kind="stable")
    rank = np.arange(len(examples)) - np.searchsorted(examples[order], examples[order])
    return [np.sort(order[rank == r]) for r in range(rank.max(initial=-1) + 1)]


def _longer(array: NDArray[Any], length: int) -> NDArray[Any]:
    longer = np.zeros(max(length, len(array)), dtype=array.dtype)
    longer[: len(array)] = array
    return longer


@inlined
def cut_slope(p, table, weights):  # type: ignore[no-untyped-def]
    """``loss - <w, psi>`` of cut `p`."""
    start = table.start[p]
    stop = start + table.length[p]
    return table.loss[p] - gathered_product(start, stop, table.columns, table.values, weights)


@inlined
def add_cut(p, coef, table, weights):  # type: ignore[no-untyped-def]
    """``weights += coef * psi``."""
    start = table.start[p]
    stop = start + table.length[p]
    add_scattered(start, stop, table.columns, table.values, weights, coef)


@inlined
def _set_coef(p, new, table, weights):  # type: ignore[no-untyped-def]
    """Change the coefficient of a cut; returns the change of the linear term."""
    change = new - table.coef[p]
    if change != 0.0:
        table.coef[p] = new
        add_cut(p, change, table, weights)
    return change * table.loss[p]


@inlined
def enter(length, loss, coef, table):  # type: ignore[no-untyped-def]
    """A number for a cut whose entries are the next in the arena."""
    table.counts[_N_FREE] -= 1
    p = table.free[table.counts[_N_FREE]]
    table.start[p] = table.counts[_N_ENTRIES]
    table.counts[_N_ENTRIES] += length
    table.counts[_N_LIVE] += length
    table.length[p] = length
    table.loss[p] = loss
    table.coef[p] = coef
    table.previous[p] = coef
    table.idle[p] = 0
    return p


@inlined
def _store(first, last, columns, values, loss, coef, table):  # type: ignore[no-untyped-def]
    """Copy a cut into the arena; returns its number."""
    start = table.counts[_N_ENTRIES]
    for q in range(last - first):
        table.columns[start + q] = columns[first + q]
        table.values[start + q] = values[first + q]
    return enter(last - first, loss, coef, table)


@inlined
def _append(b, p, table, hashed):  # type: ignore[no-untyped-def]
    """Append cut `p`, whose entries are in the arena, to example `b`."""
    m = table.size[b]
    at, gram_at, stride = table.slot_at[b], table.gram_at[b], table.capacity[b]
    start = table.start[p]
    stop = start + table.length[p]
    table.slots[at + m] = p
    table.size[b] = m + 1
    taken = spread(start, stop, table.columns, table.values, 1.0, 0, hashed)
    for j in range(m + 1):
        other = table.slots[at + j]
        first = table.start[other]
        last = first + table.length[other]
        product = product_with_spread(first, last, table.columns, table.values, hashed)
        table.gram[gram_at + m * stride + j] = product
        table.gram[gram_at + j * stride + m] = product
    clear(taken, hashed)


@inlined
def _drop(b, j, table):  # type: ignore[no-untyped-def]
    """Drop cut ``j`` of example `b`; the last takes its place."""
    at, gram_at, stride = table.slot_at[b], table.gram_at[b], table.capacity[b]
    last = table.size[b] - 1
    p = table.slots[at + j]
    table.free[table.counts[_N_FREE]] = p
    table.counts[_N_FREE] += 1
    table.counts[_N_LIVE] -= table.length[p]
    table.length[p] = UNUSED
    table.slots[at + j] = table.slots[at + last]
    for k in range(last + 1):
        table.gram[gram_at + j * stride + k] = table.gram[gram_at + last * stride + k]
    for k in range(last + 1):
        table.gram[gram_at + k * stride + j] = table.gram[gram_at + k * stride + last]
    table.gram[gram_at + j * stride + j] = table.gram[gram_at + last * stride + last]
    table.size[b] = last


@compiled
def _update_examples(  # type: ignore[no-untyped-def]
    examples, weights, table, kind, max_steps, tolerance,
    new_starts, new_columns, new_values, new_losses, added, hashed, scratch, sums,
):  # fmt: skip
    """Update `examples` in order; see `WorkingSet.update`.

    Parameters
    ----------
    examples : ndarray of int64, shape (n_updates,)
    weights, table : ndarray of shape (n_features,) and _Table, changed
    kind, max_steps, tolerance : see `StepRule`
    new_starts, new_columns, new_values, new_losses : a cut for each example as in `Cuts`, or empty
    added : ndarray of int32, shape (n_updates,), set to the numbers of the cuts that are kept
    hashed, scratch : HashTable, empty also afterwards, and ndarray of shape (2, most_cuts)
    sums : ndarray of shape (5,); adds gain, gap, C times hinge, work and change of the linear term
    """
    slopes, coef = scratch[0], scratch[1]
    for o in range(len(examples)):
        b = examples[o]
        total = table.totals[b]
        at = table.slot_at[b]
        m = table.size[b]
        work = 0
        highest = 0.0
        value = 0.0
        for j in range(m):
            p = table.slots[at + j]
            work += table.length[p]
            slopes[j] = slope = cut_slope(p, table, weights)
            coef[j] = table.coef[p]
            highest = max(highest, slope)
            value += coef[j] * slope
        if len(new_losses) > 0:
            first, last = new_starts[o], new_starts[o + 1]
            product = gathered_product(first, last, new_columns, new_values, weights)
            slope = new_losses[o] - product
            work += last - first
            if slope > highest + tolerance:
                highest = slope
                p = _store(first, last, new_columns, new_values, new_losses[o], 0.0, table)
                _append(b, p, table, hashed)
                added[o] = p
                slopes[m] = slope
                coef[m] = 0.0
                work += 3 * work
                m += 1
        gap = total * highest - value
        table.gaps[b] = gap
        sums[_GAP] += gap
        sums[_BOUND] += total * highest
        gram_at, stride = table.gram_at[b], table.capacity[b]
        if kind == PAIRWISE:
            gain, steps = pairwise_steps(
                table.gram, gram_at, stride, m, slopes, coef, total, tolerance, max_steps
            )
            work += 3 * m * steps
        else:
            gain = frank_wolfe_step(
                table.gram, gram_at, stride, m, slopes, coef, total, kind == AWAY
            )
            work += m * m
        sums[_GAIN] += gain
        for j in range(m):
            p = table.slots[at + j]
            if coef[j] != table.coef[p]:
                work += table.length[p]
                sums[_LINEAR] += _set_coef(p, coef[j], table, weights)
        sums[_WORK] += work


@compiled
def _drop_idle(table, max_idle):  # type: ignore[no-untyped-def]
    """Drop cuts without a coefficient at the last `max_idle` calls."""
    for b in range(len(table.size)):
        # Backwards, because the last takes the place of one that is dropped.
        for j in range(table.size[b] - 1, -1, -1):
            p = table.slots[table.slot_at[b] + j]
            if table.coef[p] > 0.0 or table.previous[p] > 0.0:
                table.idle[p] = 0
            else:
                table.idle[p] += 1
                if table.idle[p] >= max_idle:
                    _drop(b, j, table)


@compiled
def _add_best(examples, table, weights, vector, best, loss):  # type: ignore[no-untyped-def]
    """Set and add the most violating cuts of `examples`; returns `loss` plus theirs."""
    for b in examples:
        best[b] = -1
        highest = 0.0
        for j in range(table.size[b]):
            p = table.slots[table.slot_at[b] + j]
            table.idle[p] += 1
            slope = cut_slope(p, table, weights)
            if slope > highest:
                highest = slope
                best[b] = p
        p = best[b]
        if p >= 0:
            table.idle[p] = 0
            loss += table.totals[b] * table.loss[p]
            add_cut(p, table.totals[b], table, vector)
    return loss


@compiled
def _hinges(examples, table, weights, total):  # type: ignore[no-untyped-def]
    """`total` plus C times hinge of `examples`."""
    for b in examples:
        highest = 0.0
        for j in range(table.size[b]):
            p = table.slots[table.slot_at[b] + j]
            highest = max(highest, cut_slope(p, table, weights))
        total += table.totals[b] * highest
    return total


@compiled
def _mix(table, best, step):  # type: ignore[no-untyped-def]
    """``coef = (1 - step) * coef + step * totals`` at the best cut of each example."""
    for b in range(len(table.totals)):
        for j in range(table.size[b]):
            table.coef[table.slots[table.slot_at[b] + j]] *= 1.0 - step
        if best[b] >= 0:
            table.coef[best[b]] += step * table.totals[b]


@compiled
def _keep_latest(table, limit):  # type: ignore[no-untyped-def]
    for b in range(len(table.size)):
        while table.size[b] > limit:
            oldest = 0
            for j in range(table.size[b]):
                p, q = table.slots[table.slot_at[b] + j], table.slots[table.slot_at[b] + oldest]
                if table.coef[q] > 0.0 or (table.coef[p] == 0.0 and table.idle[p] > table.idle[q]):
                    oldest = j
            if table.coef[table.slots[table.slot_at[b] + oldest]] > 0.0:
                break  # all that are left carry weight
            _drop(b, oldest, table)


@compiled
def _extrapolate(examples, momentum, table, weights, linear):  # type: ignore[no-untyped-def]
    """``coef += step_b * (coef - previous)``, ``step_b <= momentum`` the longest feasible one.

    Returns `linear` plus the change of the linear term, as `_revert` does.
    """
    for b in examples:
        at = table.slot_at[b]
        m = table.size[b]
        step = momentum
        used = growth = 0.0
        moving = False
        for j in range(m):
            p = table.slots[at + j]
            change = table.coef[p] - table.previous[p]
            moving |= change != 0.0
            used += table.coef[p]
            growth += change
            if step * change < -table.coef[p]:
                step = -table.coef[p] / change
        if not moving:
            continue
        # Moves within a full example grow by rounding errors only, which must not stop them.
        total = table.totals[b]
        if growth > 0.0 and step * growth > total - used + ROUNDING * total:
            step = max(total - used, 0.0) / growth
        for j in range(m):
            p = table.slots[at + j]
            old = table.coef[p]
            new = max(old + step * (old - table.previous[p]), 0.0)
            table.previous[p] = old
            linear += _set_coef(p, new, table, weights)
    return linear


@compiled
def _revert(examples, table, weights, linear):  # type: ignore[no-untyped-def]
    """``coef = previous``."""
    for b in examples:
        for j in range(table.size[b]):
            p = table.slots[table.slot_at[b] + j]
            linear += _set_coef(p, table.previous[p], table, weights)
    return linear


@compiled
def _put_cuts(examples, starts, columns, values, losses, coef, table, hashed, added):  # type: ignore[no-untyped-def]
    """Append a cut with its coefficient to each of the examples, for which `table` has room.

    Parameters
    ----------
    examples, coef : ndarrays of shape (n,), without repeats
    starts, columns, values, losses : CSR arrays of the cuts, as in `Cuts`
    table, hashed : _Table, changed, and HashTable, empty also afterwards
    added : ndarray of int32, shape (n,), set to the numbers of the cuts
    """
    for o in range(len(examples)):
        p = _store(starts[o], starts[o + 1], columns, values, losses[o], coef[o], table)
        _append(examples[o], p, table, hashed)
        added[o] = p


@inlined
def move_list(b, room, table):  # type: ignore[no-untyped-def]
    """Move the list of example `b` to the end of all, with room for so many cuts."""
    m, old = table.size[b], table.capacity[b]
    slot_at, gram_at = table.counts[_N_SLOTS], table.counts[_N_GRAM]
    for j in range(m):
        table.slots[slot_at + j] = table.slots[table.slot_at[b] + j]
        for k in range(m):
            table.gram[gram_at + j * room + k] = table.gram[table.gram_at[b] + j * old + k]
    table.slot_at[b], table.gram_at[b], table.capacity[b] = slot_at, gram_at, room
    table.counts[_N_SLOTS] += room
    table.counts[_N_GRAM] += room * room


@compiled
def _widen_examples(full, table):  # type: ignore[no-untyped-def]
    """Move the lists of the examples `full` to the end, with twice the room."""
    for o in range(len(full)):
        move_list(full[o], 2 * table.capacity[full[o]], table)


@compiled
def _compact(table, order):  # type: ignore[no-untyped-def]
    """Compact the arena; `order` is the cuts in the order in which they stand."""
    at = 0
    for o in range(len(order)):
        p = order[o]
        start = table.start[p]
        table.start[p] = at
        for q in range(table.length[p]):
            table.columns[at] = table.columns[start + q]
            table.values[at] = table.values[start + q]
            at += 1
    table.counts[_N_ENTRIES] = at
