"""A working set whose examples come and go, within a limit of memory.

Examples of a stream enter with their first violating cutting plane and leave when no coefficient is
left. When memory runs out, three things give some back, none of which changes the weights or the
dual value:

- cutting planes without a coefficient are dropped;
- cutting planes of one example are *merged*: with coefficients ``a_j`` of sum ``a``, the cutting
  plane ``sum_j (a_j / a) (psi_j, loss_j)`` with the coefficient ``a`` stands for all of them. A
  mean of lower bounds of the hinge is a lower bound, so it is a cutting plane of that example, too.
  Of what outputs it is a mixture is kept, so that it can still be made from the example anew;
- examples are *frozen*: their part of the weights and of the linear term is added to one sum for
  all of them, and their cutting planes are forgotten. With coefficients ``a_i`` that examples have
  spent on it, the sum is a cutting plane of ``sum_i a_i hinge_i``. It may shrink as a whole, or be
  exchanged in part for another such cutting plane, found in a later pass; both are exact steps of
  the dual.

Each compiled routine leaves the arrays such that weights and coefficients belong together, so
Ctrl-C, which waits for the end of compiled code, may come after any of them.
"""

import sys
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled
from maxmargin.compiled.rows import add_scattered
from maxmargin.core.certificate import DualPoint
from maxmargin.core.checks import check_indices, check_shape
from maxmargin.core.cuts import Cuts
from maxmargin.core.registry import registered
from maxmargin.dual.gram import clear, make_table, spread
from maxmargin.dual.working_set import (
    _N_CUTS,
    _N_ENTRIES,
    _N_FREE,
    _N_GRAM,
    _N_LIVE,
    _N_SLOTS,
    _SLACK,
    PER_CUT,
    PER_EXAMPLE,
    StepRule,
    WorkingSet,
    _append,
    _drop,
    _without_repeats,
    add_cut,
    cut_slope,
    enter,
    listed,
    move_list,
)

ENTRY_BYTES = 12
CUT_BYTES = 52
EXAMPLE_BYTES = 48
"""What an entry, a cut number and an example take in the arrays, the lists of examples apart."""

NOWHERE, MARKED = -1, -2

SETTLED = 1e-9
"""An example is full if no more than this part of its total is left."""


@compiled
def merge_examples(first, most, room, table, hashed, into, shares):  # type: ignore[no-untyped-def]
    """Merge in the examples from `first` on; returns where the arena was full, or the end.

    Cutting plane `p` that goes into another has that one's number in ``into[p]``, perhaps its own.
    """
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
        full = table.counts[_N_ENTRIES] + taken > len(table.values)
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
                _drop(b, j, table)
        start = table.counts[_N_ENTRIES]
        for t in range(taken):
            h = hashed.places[t]
            table.columns[start + t] = hashed.keys[h]
            table.values[start + t] = hashed.sums[h]
        clear(taken, hashed)
        _append(b, enter(taken, loss, total, table), table, hashed)
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
            _drop(b, j, table)


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
    """Add cutting planes times what is spent on them."""
    for k in range(len(spent)):
        if spent[k] > 0.0:
            add_scattered(starts[k], starts[k + 1], columns, values, vector, spent[k])
            loss[0] += spent[k] * losses[k]


@compiled
def exchange_frozen(step, vector, loss, new_vector, new_loss, weights):  # type: ignore[no-untyped-def]
    """Go from the frozen sum to the new one by `step`, and move the weights with it."""
    for f in range(len(vector)):
        change = step * (new_vector[f] - vector[f])
        vector[f] += change
        weights[f] += change
    loss[0] += step * (new_loss[0] - loss[0])


@compiled
def measure_examples(table, weights, steady, sizes):  # type: ignore[no-untyped-def]
    """How far each example is from a change of its coefficients, and what its cutting planes take.

    A full example stays as it is while all of its cutting planes have a positive slope; the least
    of these tells how steady it is. An example with something left is at the balance of slope zero.
    """
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
    """Move the lists of the examples together, in the order in which they stand, without room."""
    table.counts[_N_SLOTS] = 0
    table.counts[_N_GRAM] = 0
    for o in range(len(order)):
        move_list(order[o], max(table.size[order[o]], 1), table)


@registered("Mixture")
class Mixture(NamedTuple):
    """What a merged cut is a cut of: outputs of an example in proportions that add up to 1."""

    outputs: tuple[Any, ...]
    shares: tuple[float, ...]


def size_of(output: Any) -> int:
    """Bytes that an output takes, about."""
    if isinstance(output, np.ndarray):
        return output.nbytes + sys.getsizeof(output)
    size = sys.getsizeof(output)
    if isinstance(output, tuple | list):
        size += sum(map(size_of, output))
    return size


def parts_of(output: Any) -> list[tuple[Any, float]]:
    """Outputs with their shares; of a cutting plane that is not merged, the one."""
    if isinstance(output, Mixture):
        return list(zip(output.outputs, output.shares, strict=True))
    return [(output, 1.0)]


def mixed_output(mixed: list[tuple[Any, float]]) -> Mixture:
    """The mixture of outputs, or mixtures, in these proportions."""
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


Floats = NDArray[np.float64]
Order = NDArray[np.int64]

FIRST_CAPACITY = 2
"""Cutting planes that a new example has room for: most examples never have more."""

ROOM_TO_MERGE = 8
"""This part of the limit is left free, for merged cuts are stored before those they are made of
are forgotten."""

FULL_AFTER_SQUEEZE = 0.7
"""A squeeze goes through the whole cache, so it makes room for a good while."""


@registered("Frozen")
class Frozen(NamedTuple):
    """The sum of the cutting planes that were forgotten, each times its coefficient.

    Their part of the weights and of the linear term, ``(n_features,)`` and ``(1,)``; for each owner
    what its coefficients add up to, empty if owners never come back; and the same sums of cutting
    planes that were found in the present pass, for as much as is spent.
    """

    vector: Floats
    loss: Floats
    spent: Floats
    new_vector: Floats
    new_loss: Floats

    def copy(self) -> "Frozen":
        """The same in arrays of its own."""
        return Frozen(*(array.copy() for array in self))


class CutCache(WorkingSet):
    """Cutting planes of examples that come and go.

    What is kept never takes more than `max_bytes`: arrays, outputs, and the sum of what was
    forgotten. One that `remembers` knows what each frozen example has spent of its total, for
    examples that come back.
    """

    state_names = (*WorkingSet.state_names, "output_bytes", "frozen", "n_merged", "n_frozen")

    state_types: ClassVar[dict[str, Any]] = {"frozen": Frozen | None}

    _growth = _SLACK

    def __init__(self, n_features: int, max_bytes: int, remembers: bool = True) -> None:
        super().__init__(np.zeros(0), n_features)
        self.max_bytes, self.remembers = max_bytes, remembers
        self.output_bytes = 0
        self.frozen: Frozen | None = None
        self.n_merged = 0
        """Cutting planes that were merged into others."""
        self.n_frozen = 0
        """Examples whose cutting planes were forgotten, some of them more than once."""
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
        """Examples with cutting planes."""
        return len(self._table.size)

    @property
    def owners(self) -> Order:
        """Whose example each is."""
        return self._table.owner

    @property
    def n_bytes(self) -> int:
        frozen = 0 if self.frozen is None else sum(array.nbytes for array in self.frozen)
        room = EXAMPLE_BYTES * (self._example_room - self.n_examples)
        return super().n_bytes + room + 8 * len(self.outputs) + self.output_bytes + frozen

    @property
    def _example_room(self) -> int:
        """Examples up to which the arrays have room."""
        return len(self._room("owner"))

    @property
    def _limit(self) -> int:
        """Bytes up to which cutting planes are taken in."""
        return self.max_bytes - self.max_bytes // ROOM_TO_MERGE

    def look_at(self, first: int, last: int) -> None:
        """Have the examples of owners from `first` to `last` at hand."""
        self._window = first, last
        self._found: NDArray[np.int32] | None = None

    def examples_of(self, owners: Order) -> Order:
        """The examples of these owners, all of them in the range that is looked at; -1 for none."""
        first, last = self._window
        if self._found is None:
            found = np.full(last - first, -1, dtype=np.int32)
            inside = np.flatnonzero((self.owners >= first) & (self.owners < last))
            found[self.owners[inside] - first] = inside
            self._found = found
        return self._found[owners - first].astype(np.int64)

    def spent(self, owners: Order) -> Floats | float:
        """What frozen cutting planes have taken of the totals of these owners."""
        if self.frozen is None or not len(self.frozen.spent):
            return 0.0
        known = self.frozen.spent
        return np.where(owners < len(known), known[np.minimum(owners, len(known) - 1)], 0.0)

    def take_in(
        self, owners: Order, cost: Floats, cuts: Cuts, weights: Floats, rule: StepRule
    ) -> None:
        """Update the examples of `owners`, made where there are none, with a new cut for each.

        Raises ValueError if the cutting planes of one example take more memory than there is.
        """
        for _, some, examples in self._admit(owners, cost, cuts, weights):
            self.update(examples, weights, rule, some)

    def put_in(
        self, owners: Order, cost: Floats, cuts: Cuts, coef: Floats, weights: Floats
    ) -> None:
        """Take cutting planes over with their coefficients; an owner may come several times."""
        for some in _without_repeats(owners):
            admitted = self._admit(owners[some], cost[some], cuts.take(some), weights)
            for part, given, examples in admitted:
                self.put(examples, given, coef[some][part], weights)

    def _admit(
        self, owners: Order, cost: Floats, cuts: Cuts, weights: Floats
    ) -> Iterator[tuple[Order, Cuts, Order]]:
        """Make room for the cut of each owner, in parts if need be: positions, cuts, examples."""
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
        """Examples of these owners, new ones where there are none."""
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
        """Give memory back until at most `target` bytes are taken, or nothing is left to give."""
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
        """In every example, make one cut of all but the ``most - 1`` with the most weight."""
        self._note_outputs()
        table = self._table
        examples, numbers = listed(table)
        entries = np.bincount(examples, table.length[numbers], self.n_examples).astype(np.int64)
        room = max((self.max_bytes - self.n_bytes) // ENTRY_BYTES, 0)
        room = int(min(room, entries.sum()))
        self._close_gaps()
        self._resize_arena(int(table.counts[_N_LIVE]) + room)
        hashed = make_table(int(min(entries.max(initial=0), room)), self.n_features)
        into = np.full(int(table.counts[_N_CUTS]), NOWHERE, dtype=np.int64)
        shares = np.zeros(len(into))
        self._merging = into, shares
        example = 0
        while example < self.n_examples:
            example = merge_examples(example, most, room, table, hashed, into, shares)
            if example < self.n_examples:
                self._close_gaps()
        self._note_outputs()

    def freeze(self, examples: Order) -> None:
        """Forget the cutting planes of some examples, but not what they add to weights and dual."""
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
        """Begin with `part` of a frozen sum, and add it to the weights."""
        weights += frozen.vector
        shrink_frozen(part, *frozen, weights)
        self.frozen = frozen

    def frozen_slope(self, weights: Floats) -> float:
        """Derivative of the dual in the coefficient of the frozen sum."""
        if self.frozen is None:
            return 0.0
        return float(self.frozen.loss[0] - self.frozen.vector @ weights)

    def thaw(self, weights: Floats) -> None:
        """Shrink the frozen sum by what helps the dual most."""
        slope = self.frozen_slope(weights)
        if self.frozen is None or slope >= 0.0:
            return
        square = float(self.frozen.vector @ self.frozen.vector)
        part = 1.0 if square <= -slope else -slope / square
        loss = part * float(self.frozen.loss[0])
        shrink_frozen(1.0 - part, *self.frozen, weights)
        self._moved(-loss, weights)

    def begin_pass(self) -> None:
        """Forget the new cuts of frozen examples that an earlier pass did not bring to an end."""
        if self.frozen is not None:
            self.frozen.new_vector[:] = 0.0
            self.frozen.new_loss[:] = 0.0

    def renew(self, owners: Order, cuts: Cuts, slopes: Floats) -> None:
        """Note new cutting planes of frozen examples; those that do not violate count as zero."""
        spent = np.where(slopes > 0.0, self.spent(owners), 0.0)
        if self.frozen is not None and spent.any():
            add_renewed(*cuts[:4], spent, self.frozen.new_vector, self.frozen.new_loss)

    def end_pass(self, weights: Floats) -> None:
        """Exchange the frozen sum for that of the new cuts, by the part that helps most."""
        if self.frozen is None or not len(self.frozen.new_vector):
            return
        vector, loss, _, new_vector, new_loss = self.frozen
        linear = float(new_loss[0] - loss[0])
        slope = linear - float(weights @ new_vector) + float(weights @ vector)
        square = float(np.sum((new_vector - vector) ** 2))
        if slope > 0.0:
            step = 1.0 if square <= slope else slope / square
            exchange_frozen(step, vector, loss, new_vector, new_loss, weights)
            self._moved(step * linear, weights)
        self.begin_pass()

    def recount(self, weights: Floats) -> None:
        """Evaluate the dual anew, without the rounding errors of many small gains."""
        table = self._table
        live = table.length >= 0
        self.linear = float(table.coef[live] @ table.loss[live])
        if self.frozen is not None:
            self.linear += float(self.frozen.loss[0])
        self._moved(0.0, weights)

    def shrink(self) -> None:
        """Give back all room that no cutting plane takes."""
        self._note_outputs()
        pack_lists(self._table, np.argsort(self._table.slot_at, kind="stable"))
        self._close_gaps()
        table = self._table
        numbers = np.flatnonzero(table.length >= 0)
        rank = np.zeros(len(table.length), dtype=np.int32)
        rank[numbers] = np.arange(len(numbers))
        counts = table.counts.copy()
        counts[[_N_FREE, _N_CUTS]] = 0, len(numbers)
        arrays = {name: getattr(table, name)[numbers] for name in PER_CUT}
        arrays |= {name: getattr(table, name).copy() for name in PER_EXAMPLE}
        arrays["slots"] = rank[table.slots[: counts[_N_SLOTS]]]
        arrays["gram"] = table.gram[: counts[_N_GRAM]].copy()
        table = table._replace(**arrays, counts=counts)
        outputs = [self.outputs[p] for p in numbers]
        self._table, self.outputs = table, outputs
        self._rooms = {}
        self.output_bytes = sum(map(size_of, outputs))
        self._resize_arena(int(counts[_N_LIVE]))

    def point(self) -> DualPoint:
        """The coefficients that are not zero, mixtures taken apart, with owners for examples.

        What is frozen is not in it.
        """
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
        """Examples without cutting planes."""
        table, n = self._table, len(owners)
        counts = table.counts.copy()
        places = np.arange(n, dtype=np.int64)
        arrays = {
            "owner": owners,
            "totals": totals,
            "gaps": np.zeros(n),
            "size": np.zeros(n, dtype=np.int32),
            "capacity": np.full(n, FIRST_CAPACITY, dtype=np.int32),
            "slot_at": counts[_N_SLOTS] + places * FIRST_CAPACITY,
            "gram_at": counts[_N_GRAM] + places * FIRST_CAPACITY**2,
        }
        counts[_N_SLOTS] += n * FIRST_CAPACITY
        counts[_N_GRAM] += n * FIRST_CAPACITY**2
        longer = {name: self._followed(name, new) for name, new in arrays.items()}
        self._table = table._replace(
            **longer,
            slots=self._longer(table.slots, int(counts[_N_SLOTS])),
            gram=self._longer(table.gram, int(counts[_N_GRAM])),
            counts=counts,
        )
        examples = np.arange(self.n_examples - n, self.n_examples, dtype=np.int64)
        if self._found is not None:
            self._found[owners - self._window[0]] = examples
        return examples

    def _followed(self, name: str, new: NDArray[Any]) -> NDArray[Any]:
        """The array of examples with `new` behind it, in the room behind it if there is enough."""
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
        """The array of examples, with what room there is behind it."""
        array = getattr(self._table, name)
        room = self._rooms.get(name)
        return room if room is not None and array.base is room else array

    def _keep_examples(self) -> None:
        """Drop the examples that have no cuts, and the outputs of cuts that are gone."""
        for p in self._table.free[: self._table.counts[_N_FREE]].tolist():
            if self.outputs[p] is not None:
                self.output_bytes -= size_of(self.outputs[p])
                self.outputs[p] = None
        table = self._table
        kept = np.flatnonzero(table.size)
        if len(kept) < self.n_examples:
            arrays = {name: getattr(table, name)[kept] for name in PER_EXAMPLE}
            self._table = table = table._replace(**arrays)
            self._rooms, self._found = {}, None
        if table.counts[_N_SLOTS] > 2 * table.capacity.sum(dtype=np.int64):
            pack_lists(table, np.argsort(table.slot_at, kind="stable"))

    def _freeze_some(self, target: int, weights: Floats) -> None:
        """Freeze so many examples as bring the cache to `target`, the steadiest first."""
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
        """Bytes that will be taken when each of the examples, new where -1, has got its cut."""
        table, counts = self._table, self._table.counts
        known = examples[examples >= 0]
        n_new, n_entries = len(examples) - len(known), len(cuts.values)
        full = known[table.size[known] == table.capacity[known]]
        wider = 2 * table.capacity[full].astype(np.int64)
        slots = n_new * FIRST_CAPACITY, int(wider.sum())
        gram = n_new * FIRST_CAPACITY**2, int((wider**2).sum())
        numbers = int(counts[_N_CUTS])
        if counts[_N_FREE] < len(examples):
            numbers = self._grown(numbers, numbers + len(examples))
        return (
            self.n_bytes
            + EXAMPLE_BYTES * self._lengthening(self._example_room, self.n_examples, n_new)
            + 4 * self._lengthening(len(table.slots), int(counts[_N_SLOTS]), *slots)
            + 8 * self._lengthening(len(table.gram), int(counts[_N_GRAM]), *gram)
            + CUT_BYTES * max(numbers - len(self.outputs), 0)
            + ENTRY_BYTES * max(self._arena_with(n_entries) - len(table.values), 0)
            + sum(map(size_of, cuts.outputs))
        )

    def _lengthening(self, length: int, used: int, *more: int) -> int:
        """By how much an array grows that takes so much more, one after the other."""
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
