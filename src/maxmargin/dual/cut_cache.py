"""A working set for streams, whose examples come and go within a limit of memory.

Three things free memory, and change neither weights nor dual value: cuts without a coefficient are
dropped; cuts of one example are merged, as ``sum_j (a_j / a) (psi_j, loss_j)``, ``a = sum_j a_j``,
is a mean of lower bounds of its hinge; examples are frozen into one sum, a cutting plane of
``sum_i a_i hinge_i``. Exact steps of the dual shrink that sum, or exchange it for one of a later
pass. Compiled routines leave weights and coefficients consistent: Ctrl-C may come after any.
"""

import sys
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled
from maxmargin.compiled.rows import add_scattered
from maxmargin.core.arrays import Floats, Order, check_indices, check_shape, dot
from maxmargin.core.certificate import DualPoint
from maxmargin.core.cuts import Cuts
from maxmargin.core.registry import registered
from maxmargin.dual.cut_table import (
    N_CUTS,
    N_ENTRIES,
    N_FREE,
    N_GRAM,
    N_LIVE,
    N_SLOTS,
    PER_CUT,
    PER_EXAMPLE,
    StepRule,
    add_cut,
    append_cut,
    cut_slope,
    drop_cut,
    enter,
    listed,
    move_list,
)
from maxmargin.dual.gram import clear, make_table, spread
from maxmargin.dual.working_set import _SLACK, WorkingSet, _without_repeats

ENTRY_BYTES = 12
CUT_BYTES = 52
EXAMPLE_BYTES = 48
"""Memory of an entry, a cut number and an example, the lists of examples apart."""

NOWHERE, MARKED = -1, -2

SETTLED = 1e-9
"""An example is full if no more than this part of its total is left."""


@compiled
def merge_examples(first, most, room, table, hashed, into, shares):  # type: ignore[no-untyped-def]
    """Merge from example `first` on, cut `p` into ``into[p]``; returns where the arena was full."""
    for b in range(first, len(table.size)):
        m = table.size[b]
        at = table.slot_at[b]
        if m <= most:
            continue
        total = 0.0
        entries = 0
        for j in range(m):
            p = table.slots[at + j]
            better = 0
            for k in range(m):
                q = table.slots[at + k]
                if table.coef[q] > table.coef[p] or (table.coef[q] == table.coef[p] and k < j):
                    better += 1
            if better >= most - 1:
                into[p] = MARKED
                total += table.coef[p]
                entries += table.length[p]
        fits = entries <= room and total > 0.0
        taken = 0
        loss = 0.0
        if fits:
            for j in range(m):
                p = table.slots[at + j]
                if into[p] == MARKED:
                    share = table.coef[p] / total
                    start, stop = table.start[p], table.start[p] + table.length[p]
                    taken = spread(start, stop, table.columns, table.values, share, taken, hashed)
                    loss += share * table.loss[p]
        full = table.counts[N_ENTRIES] + taken > len(table.values)
        if not fits or full:
            clear(taken, hashed)
            for j in range(m):
                into[table.slots[at + j]] = NOWHERE
            if full:
                return b
            continue
        # Where a cutting plane is forgotten its number is the first to be used again.
        new = NOWHERE
        for j in range(m):
            p = table.slots[at + j]
            if into[p] == MARKED:
                new = p
                break
        for j in range(m - 1, -1, -1):
            p = table.slots[at + j]
            if into[p] == MARKED:
                into[p] = new
                shares[p] = table.coef[p] / total
                drop_cut(b, j, table)
        start = table.counts[N_ENTRIES]
        for t in range(taken):
            h = hashed.places[t]
            table.columns[start + t] = hashed.keys[h]
            table.values[start + t] = hashed.sums[h]
        clear(taken, hashed)
        append_cut(b, enter(taken, loss, total, table), table, hashed)
    return len(table.size)


@compiled
def freeze_examples(examples, table, vector, loss, spent):  # type: ignore[no-untyped-def]
    """Add what the examples have in weights and dual to the frozen sum, and drop their cuts."""
    for o in range(len(examples)):
        b = examples[o]
        owner = table.owner[b]
        for j in range(table.size[b] - 1, -1, -1):
            p = table.slots[table.slot_at[b] + j]
            coef = table.coef[p]
            add_cut(p, coef, table, vector)
            loss[0] += coef * table.loss[p]
            if owner < len(spent):
                spent[owner] += coef
            drop_cut(b, j, table)


@compiled
def shrink_frozen(factor, vector, loss, spent, new_vector, new_loss, weights):  # type: ignore[no-untyped-def]
    """Multiply the frozen sums by `factor`, and take the rest out of the weights."""
    for f in range(len(vector)):
        weights[f] -= (1.0 - factor) * vector[f]
        vector[f] *= factor
    for f in range(len(new_vector)):
        new_vector[f] *= factor
    loss[0] *= factor
    new_loss[0] *= factor
    for owner in range(len(spent)):
        spent[owner] *= factor


@compiled
def add_renewed(starts, columns, values, losses, spent, vector, loss):  # type: ignore[no-untyped-def]
    """Add the renewed cuts of frozen examples, times what these have spent."""
    for k in range(len(spent)):
        if spent[k] > 0.0:
            add_scattered(starts[k], starts[k + 1], columns, values, vector, spent[k])
            loss[0] += spent[k] * losses[k]


@compiled
def exchange_frozen(step, vector, loss, new_vector, new_loss, weights):  # type: ignore[no-untyped-def]
    """Step from the frozen sum towards the new one, and update the weights."""
    for f in range(len(vector)):
        change = step * (new_vector[f] - vector[f])
        vector[f] += change
        weights[f] += change
    loss[0] += step * (new_loss[0] - loss[0])


@compiled
def measure_examples(table, weights, steady, sizes):  # type: ignore[no-untyped-def]
    """Memory and least slope of each example; full ones with a high slope are the steadiest."""
    for b in range(len(table.size)):
        used = 0.0
        least = np.inf
        for j in range(table.size[b]):
            p = table.slots[table.slot_at[b] + j]
            used += table.coef[p]
            least = min(least, cut_slope(p, table, weights))
            sizes[b] += CUT_BYTES + ENTRY_BYTES * table.length[p]
        sizes[b] += 4 * table.capacity[b] + 8 * table.capacity[b] * table.capacity[b]
        steady[b] = least if used >= table.totals[b] * (1.0 - SETTLED) else min(least, 0.0)


@compiled
def pack_lists(table, order):  # type: ignore[no-untyped-def]
    """Move the lists of the examples together, in their order, without room to grow."""
    table.counts[N_SLOTS] = 0
    table.counts[N_GRAM] = 0
    for o in range(len(order)):
        move_list(order[o], max(table.size[order[o]], 1), table)


@registered("Mixture")
class Mixture(NamedTuple):
    """What a merged cut is a cut of: outputs of an example with convex coefficients."""

    outputs: tuple[Any, ...]
    shares: tuple[float, ...]


def size_of(output: Any) -> int:
    """Approximate memory of an output."""
    if isinstance(output, np.ndarray):
        return output.nbytes + sys.getsizeof(output)
    size = sys.getsizeof(output)
    if isinstance(output, tuple | list):
        size += sum(map(size_of, output))
    return size


def parts_of(output: Any) -> list[tuple[Any, float]]:
    """Outputs of a cut with their convex coefficients; the only one if it is not merged."""
    if isinstance(output, Mixture):
        return list(zip(output.outputs, output.shares, strict=True))
    return [(output, 1.0)]


def mixed_output(mixed: list[tuple[Any, float]]) -> Mixture:
    """The mixture of outputs, or of mixtures, in these proportions."""
    parts = [
        (part, share * inner)
        for output, share in mixed
        if share > 0.0
        for part, inner in parts_of(output)
    ]
    try:
        sums: dict[Any, float] = {}
        for part, share in parts:
            sums[part] = sums.get(part, 0.0) + share
        parts = list(sums.items())
    except TypeError:  # outputs that cannot be looked up stay as many as they are
        pass
    return Mixture(tuple(part for part, _ in parts), tuple(share for _, share in parts))


FIRST_CAPACITY = 2
"""Room of a new example: most never have more cuts."""

ROOM_TO_MERGE = 8
"""One part in so many of the limit stays free: merged cuts are stored before others are dropped."""

FULL_AFTER_SQUEEZE = 0.7
"""Fraction of the limit that a squeeze leaves: it goes through the whole cache, so it must last."""


@registered("Frozen")
class Frozen(NamedTuple):
    """The sum of the cuts of frozen examples, each times its coefficient.

    `vector` and `loss` are its parts of weights and linear term, `spent` the sum of coefficients of
    each owner (empty if owners never return), `new_*` the same of cuts renewed in the present pass.
    """

    vector: Floats
    loss: Floats
    spent: Floats
    new_vector: Floats
    new_loss: Floats

    def copy(self) -> "Frozen":
        return Frozen(*(array.copy() for array in self))


class CutCache(WorkingSet):
    """A working set of at most `max_bytes`; if it `remembers`, frozen examples may return."""

    state_names = (*WorkingSet.state_names, "output_bytes", "frozen", "n_merged", "n_frozen")

    state_types: ClassVar[dict[str, Any]] = {"frozen": Frozen | None}

    _growth = _SLACK

    def __init__(self, n_features: int, max_bytes: int, remembers: bool = True) -> None:
        super().__init__(np.zeros(0), n_features)
        self.max_bytes, self.remembers = max_bytes, remembers
        self.output_bytes = 0
        self.frozen: Frozen | None = None
        self.n_merged = 0
        self.n_frozen = 0
        """Counts an example each time that it is frozen."""
        self._merging: tuple[NDArray[np.int64], Floats] | None = None
        self._rooms: dict[str, NDArray[Any]] = {}
        self.look_at(0, 0)

    def check_state(self) -> None:
        super().check_state()
        check_indices("owner", self.owners, 2**31)
        if self.frozen is not None:
            check_shape("vector", self.frozen.vector, self.n_features)
            check_shape("new_vector", self.frozen.new_vector, self.n_features * self.remembers)
            for name in ("loss", "new_loss"):
                check_shape(name, getattr(self.frozen, name), 1)

    @property
    def n_examples(self) -> int:
        """Examples with cuts."""
        return len(self._table.size)

    @property
    def owners(self) -> Order:
        """Number in the stream of each example."""
        return self._table.owner

    @property
    def n_bytes(self) -> int:
        frozen = 0 if self.frozen is None else sum(array.nbytes for array in self.frozen)
        room = EXAMPLE_BYTES * (self._example_room - self.n_examples)
        return super().n_bytes + room + 8 * len(self.outputs) + self.output_bytes + frozen

    @property
    def _example_room(self) -> int:
        return len(self._room("owner"))

    @property
    def _limit(self) -> int:
        return self.max_bytes - self.max_bytes // ROOM_TO_MERGE

    def look_at(self, first: int, last: int) -> None:
        """Choose the range of owners that `examples_of` looks up."""
        self._window = first, last
        self._found: NDArray[np.int32] | None = None

    def examples_of(self, owners: Order) -> Order:
        """Examples of these owners, all in the range of `look_at`; -1 for none."""
        first, last = self._window
        if self._found is None:
            found = np.full(last - first, -1, dtype=np.int32)
            inside = np.flatnonzero((self.owners >= first) & (self.owners < last))
            found[self.owners[inside] - first] = inside
            self._found = found
        return self._found[owners - first].astype(np.int64)

    def spent(self, owners: Order) -> Floats | float:
        """What frozen cuts have taken of the C of these owners."""
        if self.frozen is None or not len(self.frozen.spent):
            return 0.0
        known = self.frozen.spent
        return np.where(owners < len(known), known[np.minimum(owners, len(known) - 1)], 0.0)

    def take_in(
        self, owners: Order, cost: Floats, cuts: Cuts, weights: Floats, rule: StepRule
    ) -> None:
        """Update the examples of `owners` with a new cut each; ValueError if one does not fit."""
        for _, some, examples in self._admit(owners, cost, cuts, weights):
            self.update(examples, weights, rule, some)

    def put_in(
        self, owners: Order, cost: Floats, cuts: Cuts, coef: Floats, weights: Floats
    ) -> None:
        """Take over cuts with their coefficients; owners may repeat."""
        for some in _without_repeats(owners):
            admitted = self._admit(owners[some], cost[some], cuts.take(some), weights)
            for part, given, examples in admitted:
                self.put(examples, given, coef[some][part], weights)

    def _admit(
        self, owners: Order, cost: Floats, cuts: Cuts, weights: Floats
    ) -> Iterator[tuple[Order, Cuts, Order]]:
        """Make room for the cut of each owner, in batches if need be: positions, cuts, examples."""
        queue = [np.arange(len(owners))] if len(owners) else []
        while queue:
            part = queue.pop()
            some = cuts if len(part) == len(owners) else cuts.take(part)
            needed = self._bytes_with(self.examples_of(owners[part]), some)
            if needed > self._limit:
                self.squeeze(int(FULL_AFTER_SQUEEZE * self._limit), weights)
                needed = self._bytes_with(self.examples_of(owners[part]), some)
            if needed <= self._limit:
                yield part, some, self._examples_for(owners[part], cost[part])
            elif len(part) > 1:
                queue += np.array_split(part, 2)[::-1]
            else:
                raise ValueError(
                    f"The cache of {self.max_bytes} bytes is too small for the cutting planes of "
                    f"one example, here {owners[part[0]]}: set cache_bytes to {2 * needed} or more."
                )

    def _examples_for(self, owners: Order, cost: Floats) -> Order:
        examples = self.examples_of(owners)
        totals = np.maximum(cost - self.spent(owners), 0.0)
        known = examples >= 0
        # What was frozen may have shrunk since the example was made.
        self.totals[examples[known]] = totals[known]
        examples[~known] = self._add_examples(owners[~known], totals[~known])
        return examples

    def prune(self, weights: Floats, max_idle: int = 1) -> None:
        """Drop cuts without a coefficient at `max_idle` calls, and examples without cuts."""
        self.extrapolate(0.0, weights)  # no move before this one is to be undone
        self.drop_idle(max_idle)
        self._keep_examples()

    def squeeze(self, target: int, weights: Floats) -> None:
        """Free memory until at most `target` bytes are taken, or nothing is left to free."""
        self.prune(weights)
        self.shrink()
        for most in (4, 2, 1):
            if self.n_bytes <= target:
                return
            self.merge(most)
            self.shrink()
        while self.n_bytes > target and self.n_examples:
            self._freeze_some(target, weights)
            self.shrink()

    def merge(self, most: int) -> None:
        """In every example, merge all but the ``most - 1`` cuts with the largest coefficients."""
        self._note_outputs()
        table = self._table
        examples, numbers = listed(table)
        entries = np.bincount(examples, table.length[numbers], self.n_examples).astype(np.int64)
        room = max((self.max_bytes - self.n_bytes) // ENTRY_BYTES, 0)
        room = int(min(room, entries.sum()))
        self._close_gaps()
        self._resize_arena(int(table.counts[N_LIVE]) + room)
        hashed = make_table(int(min(entries.max(initial=0), room)), self.n_features)
        into = np.full(int(table.counts[N_CUTS]), NOWHERE, dtype=np.int64)
        shares = np.zeros(len(into))
        self._merging = into, shares
        example = 0
        while example < self.n_examples:
            example = merge_examples(example, most, room, table, hashed, into, shares)
            if example < self.n_examples:
                self._close_gaps()
        self._note_outputs()

    def freeze(self, examples: Order) -> None:
        """Add the cuts of some examples to the frozen sum, and drop them."""
        self._note_outputs()
        n_owners = int(self.owners[examples].max(initial=-1)) + 1 if self.remembers else 0
        if self.frozen is None:
            n_new = self.n_features if self.remembers else 0
            sums = np.zeros(self.n_features), np.zeros(1), np.zeros(n_owners)
            self.frozen = Frozen(*sums, np.zeros(n_new), np.zeros(1))
        elif n_owners > len(self.frozen.spent):
            spent = np.zeros(n_owners)
            spent[: len(self.frozen.spent)] = self.frozen.spent
            self.frozen = self.frozen._replace(spent=spent)
        freeze_examples(examples, self._table, *self.frozen[:3])
        self.n_frozen += len(examples)
        self._keep_examples()

    def take_over(self, frozen: Frozen, part: float, weights: Floats) -> None:
        """Start from `part` of a frozen sum, and add it to the weights."""
        weights += frozen.vector
        shrink_frozen(part, *frozen, weights)
        self.frozen = frozen

    def frozen_slope(self, weights: Floats) -> float:
        """Derivative of the dual in the coefficient of the frozen sum."""
        if self.frozen is None:
            return 0.0
        return float(self.frozen.loss[0]) - dot(self.frozen.vector, weights)

    def thaw(self, weights: Floats) -> None:
        """Shrink the frozen sum by an exact line search."""
        slope = self.frozen_slope(weights)
        if self.frozen is None or slope >= 0.0:
            return
        square = dot(self.frozen.vector, self.frozen.vector)
        part = 1.0 if square <= -slope else -slope / square
        loss = part * float(self.frozen.loss[0])
        shrink_frozen(1.0 - part, *self.frozen, weights)
        self._moved(-loss, weights)

    def begin_pass(self) -> None:
        """Forget renewed cuts of a pass that was not completed."""
        if self.frozen is not None:
            self.frozen.new_vector[:] = 0.0
            self.frozen.new_loss[:] = 0.0

    def renew(self, owners: Order, cuts: Cuts, slopes: Floats) -> None:
        """Add new cuts of frozen examples to the new sum, or zero where they do not violate."""
        spent = np.where(slopes > 0.0, self.spent(owners), 0.0)
        if self.frozen is not None and spent.any():
            add_renewed(*cuts[:4], spent, self.frozen.new_vector, self.frozen.new_loss)

    def end_pass(self, weights: Floats) -> None:
        """Step from the frozen sum towards the new one by an exact line search."""
        if self.frozen is None or not len(self.frozen.new_vector):
            return
        vector, loss, _, new_vector, new_loss = self.frozen
        linear = float(new_loss[0] - loss[0])
        slope = linear - dot(weights, new_vector) + dot(weights, vector)
        square = float(np.sum((new_vector - vector) ** 2))
        if slope > 0.0:
            step = 1.0 if square <= slope else slope / square
            exchange_frozen(step, vector, loss, new_vector, new_loss, weights)
            self._moved(step * linear, weights)
        self.begin_pass()

    def recount(self, weights: Floats) -> None:
        """Recompute the dual value, without the rounding errors of many small gains."""
        table = self._table
        live = table.length >= 0
        self.linear = float(table.coef[live] @ table.loss[live])
        if self.frozen is not None:
            self.linear += float(self.frozen.loss[0])
        self._moved(0.0, weights)

    def shrink(self) -> None:
        """Free all room that no cut takes."""
        self._note_outputs()
        pack_lists(self._table, np.argsort(self._table.slot_at, kind="stable"))
        self._close_gaps()
        table = self._table
        numbers = np.flatnonzero(table.length >= 0)
        rank = np.zeros(len(table.length), dtype=np.int32)
        rank[numbers] = np.arange(len(numbers))
        counts = table.counts.copy()
        counts[[N_FREE, N_CUTS]] = 0, len(numbers)
        arrays = {name: getattr(table, name)[numbers] for name in PER_CUT}
        arrays |= {name: getattr(table, name).copy() for name in PER_EXAMPLE}
        arrays["slots"] = rank[table.slots[: counts[N_SLOTS]]]
        arrays["gram"] = table.gram[: counts[N_GRAM]].copy()
        table = table._replace(**arrays, counts=counts)
        outputs = [self.outputs[p] for p in numbers]
        self._table, self.outputs = table, outputs
        self._rooms = {}
        self.output_bytes = sum(map(size_of, outputs))
        self._resize_arena(int(counts[N_LIVE]))

    def point(self) -> DualPoint:
        """The positive coefficients by owner, mixtures taken apart, without what is frozen."""
        examples, coef, outputs = super().point()
        given = zip(self.owners[examples].tolist(), coef.tolist(), outputs, strict=True)
        parts = [(own, c * share, part) for own, c, out in given for part, share in parts_of(out)]
        parts.sort(key=lambda part: part[0])
        return DualPoint(
            examples=np.array([owner for owner, _, _ in parts], dtype=np.int64),
            coef=np.array([coef for _, coef, _ in parts], dtype=np.float64),
            outputs=[output for _, _, output in parts],
        )

    def _add_examples(self, owners: Order, totals: Floats) -> Order:
        n, counts = len(owners), self._table.counts.copy()
        places = np.arange(n, dtype=np.int64)
        arrays = {
            "owner": owners,
            "totals": totals,
            "gaps": np.zeros(n),
            "size": np.zeros(n, dtype=np.int32),
            "capacity": np.full(n, FIRST_CAPACITY, dtype=np.int32),
            "slot_at": counts[N_SLOTS] + places * FIRST_CAPACITY,
            "gram_at": counts[N_GRAM] + places * FIRST_CAPACITY**2,
        }
        counts[N_SLOTS] += n * FIRST_CAPACITY
        counts[N_GRAM] += n * FIRST_CAPACITY**2
        longer = {name: self._followed(name, new) for name, new in arrays.items()}
        self._reserve("slots", int(counts[N_SLOTS]))
        self._reserve("gram", int(counts[N_GRAM]))
        self._table = self._table._replace(**longer, counts=counts)
        examples = np.arange(self.n_examples - n, self.n_examples, dtype=np.int64)
        if self._found is not None:
            self._found[owners - self._window[0]] = examples
        return examples

    def _followed(self, name: str, new: NDArray[Any]) -> NDArray[Any]:
        """The array of examples with `new` appended, in place if there is room."""
        array = getattr(self._table, name)
        length, wanted = len(array), len(array) + len(new)
        room = self._room(name)
        if len(room) < wanted:
            room = np.zeros(self._grown(len(room), wanted), dtype=array.dtype)
            room[:length] = array
            self._rooms[name] = room
        room[length:wanted] = new
        return room[:wanted]

    def _room(self, name: str) -> NDArray[Any]:
        """The array of examples with the room behind it."""
        array = getattr(self._table, name)
        room = self._rooms.get(name)
        return room if room is not None and array.base is room else array

    def _keep_examples(self) -> None:
        """Drop examples without cuts, and outputs of dropped cuts."""
        for p in self._table.free[: self._table.counts[N_FREE]].tolist():
            if self.outputs[p] is not None:
                self.output_bytes -= size_of(self.outputs[p])
                self.outputs[p] = None
        table = self._table
        kept = np.flatnonzero(table.size)
        if len(kept) < self.n_examples:
            arrays = {name: getattr(table, name)[kept] for name in PER_EXAMPLE}
            self._table = table = table._replace(**arrays)
            self._rooms, self._found = {}, None
        if table.counts[N_SLOTS] > 2 * table.capacity.sum(dtype=np.int64):
            pack_lists(table, np.argsort(table.slot_at, kind="stable"))

    def _freeze_some(self, target: int, weights: Floats) -> None:
        """Freeze the steadiest examples, as many as bring the cache to `target` bytes."""
        steady, sizes = np.zeros(self.n_examples), np.zeros(self.n_examples, dtype=np.int64)
        measure_examples(self._table, weights, steady, sizes)
        sizes += EXAMPLE_BYTES + self.output_bytes // max(self.n_examples, 1)
        excess = self.n_bytes - target
        if self.frozen is None:
            excess += 16 * self.n_features
        order = np.argsort(-steady, kind="stable")
        n = int(np.searchsorted(np.cumsum(sizes[order]), excess)) + 1
        self.freeze(np.sort(order[:n]))

    def _bytes_with(self, examples: Order, cuts: Cuts) -> int:
        """Memory once each of the examples (-1: new) has got its cut."""
        table, counts = self._table, self._table.counts
        known = examples[examples >= 0]
        n_new, n_entries = len(examples) - len(known), len(cuts.values)
        full = known[table.size[known] == table.capacity[known]]
        wider = 2 * table.capacity[full].astype(np.int64)
        slots = n_new * FIRST_CAPACITY, int(wider.sum())
        gram = n_new * FIRST_CAPACITY**2, int((wider**2).sum())
        numbers = int(counts[N_CUTS])
        if counts[N_FREE] < len(examples):
            numbers = self._grown(numbers, numbers + len(examples))
        return (
            self.n_bytes
            + EXAMPLE_BYTES * self._lengthening(self._example_room, self.n_examples, n_new)
            + 4 * self._lengthening(len(table.slots), int(counts[N_SLOTS]), *slots)
            + 8 * self._lengthening(len(table.gram), int(counts[N_GRAM]), *gram)
            + CUT_BYTES * max(numbers - len(self.outputs), 0)
            + ENTRY_BYTES * max(self._arena_with(n_entries) - len(table.values), 0)
            + sum(map(size_of, cuts.outputs))
        )

    def _lengthening(self, length: int, used: int, *more: int) -> int:
        """By how much an array grows that takes so many more, one after the other."""
        longer = length
        for wanted in np.cumsum([used, *more]).tolist():
            longer = longer if wanted <= longer else self._grown(longer, wanted)
        return longer - length

    def _note_outputs(self) -> None:
        if self._latest is not None:
            added, outputs = self._latest
            self.output_bytes += sum(size_of(outputs[k]) for k in np.flatnonzero(added >= 0))
        super()._note_outputs()
        if self._merging is not None:
            into, shares = self._merging
            outputs = list(self.outputs)
            groups: dict[int, list[int]] = {}
            for p in np.flatnonzero(into >= 0).tolist():
                groups.setdefault(int(into[p]), []).append(p)
                outputs[p] = None
            for target, members in groups.items():
                outputs[target] = mixed_output(
                    [(self.outputs[p], float(shares[p])) for p in members]
                )
            merged = sum(map(len, groups.values())) - len(groups)
            self.outputs, self._merging = outputs, None
            self.n_merged += merged
            self.output_bytes = sum(size_of(output) for output in outputs if output is not None)
