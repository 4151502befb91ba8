"""The arrays of a working set, and the compiled routines over them.

A cut is a number, its entries stand in the arena `columns`, `values` from ``start`` on. Example
``b`` has its cuts in ``slots[slot_at[b]:]`` and their Gram matrix in ``gram[gram_at[b]:]``, with
room for ``capacity[b]``. Room is made before a call: compiled routines never allocate.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.compiled.rows import add_scattered, gathered_product
from maxmargin.core.arrays import Floats, Order, check_finite, check_indices, check_shape
from maxmargin.core.registry import registered
from maxmargin.dual.gram import (
    ROUNDING,
    clear,
    frank_wolfe_step,
    pairwise_steps,
    product_with_spread,
    spread,
)

PAIRWISE, FRANK_WOLFE, AWAY = 0, 1, 2

UNUSED = -1
"""Length of a number that no cut has."""

MOST_CAPACITY = 1 << 24
"""Cuts of one example beyond which their Gram matrix would fit in no memory."""

PER_EXAMPLE = ("owner", "totals", "gaps", "size", "capacity", "slot_at", "gram_at")
PER_CUT = ("start", "length", "loss", "coef", "previous", "idle", "free")
"""Arrays with a place for each example, and for each cut number."""

N_FREE, N_ENTRIES, N_LIVE, N_SLOTS, N_GRAM, N_CUTS = range(6)
GAIN, GAP, BOUND, WORK, LINEAR = range(5)


class StepRule(NamedTuple):
    """How an update improves the dual over an example, whose violation exceeds `tolerance`.

    `kind` is PAIRWISE (at most `max_steps` steps between the most violating pair), FRANK_WOLFE (a
    line search towards the best cut), or AWAY (that, or away from the worst if it promises more).
    """

    kind: int = PAIRWISE
    max_steps: int = 100
    tolerance: float = 0.0


@registered("WorkingSetTable")
class Table(NamedTuple):
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


def check_table(table: Table, n_features: int, n_outputs: int) -> None:
    """Refuse a table, perhaps from a file, in which routines would read outside their arrays."""
    places = [array.__array_interface__["data"][0] for array in table if array.size]
    if len(set(places)) < len(places):
        raise ValueError("two arrays of the working set are the same")
    n_cuts, n_entries = len(table.start), len(table.columns)
    for names, length in ((PER_EXAMPLE, len(table.owner)), (PER_CUT, n_cuts)):
        for name in names:
            check_shape(name, getattr(table, name), length)
    check_shape("values", table.values, n_entries)
    rooms = n_cuts, n_entries, n_entries, len(table.slots), len(table.gram), n_cuts
    counts = table.counts
    check_shape("counts", counts, len(rooms))
    if (counts < 0).any() or (counts > np.array(rooms)).any() or n_outputs < counts[N_CUTS]:
        raise ValueError("the working set counts more cutting planes than it has")
    _check_lists(table)
    free, n_entries = table.free[: counts[N_FREE]], int(counts[N_ENTRIES])
    check_indices("free", free, n_cuts)
    check_indices("columns", table.columns[:n_entries], max(n_features, 1))
    for name in ("totals", "loss", "coef", "previous"):
        check_finite(name, getattr(table, name))
    check_finite("values", table.values[:n_entries])
    in_use = np.flatnonzero(table.length >= 0)
    lengths = table.length[in_use].astype(np.int64)
    _check_apart("start", table.start[in_use], lengths, n_entries)
    if int(lengths.sum()) != int(counts[N_LIVE]):
        raise ValueError("the working set counts other entries than it has")
    numbers = np.sort(np.concatenate([free, in_use]))
    if not np.array_equal(numbers, np.arange(int(counts[N_CUTS]))):
        raise ValueError("a cutting plane is in use and free, or neither")


def _check_lists(table: Table) -> None:
    size, capacity = table.size.astype(np.int64), table.capacity.astype(np.int64)
    if (size < 0).any() or (size > capacity).any() or capacity.max(initial=0) > MOST_CAPACITY:
        raise ValueError("an example has more cutting planes than there is room for")
    _check_apart("slot_at", table.slot_at, capacity, int(table.counts[N_SLOTS]))
    _check_apart("gram_at", table.gram_at, capacity**2, int(table.counts[N_GRAM]))
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


def listed(table: Table, examples: Order | slice = slice(None)) -> tuple[Order, NDArray[np.int32]]:
    """Places in `examples` and numbers of their cuts, in the order of the lists."""
    size, slot_at = table.size[examples].astype(np.int64), table.slot_at[examples]
    order = np.repeat(np.arange(len(size)), size)
    place = np.arange(len(order)) - np.repeat(np.cumsum(size) - size, size)
    return order, table.slots[slot_at[order] + place]


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
def set_coef(p, new, table, weights):  # type: ignore[no-untyped-def]
    """Change the coefficient of a cut; returns the change of the linear term."""
    change = new - table.coef[p]
    if change != 0.0:
        table.coef[p] = new
        add_cut(p, change, table, weights)
    return change * table.loss[p]


@inlined
def enter(length, loss, coef, table):  # type: ignore[no-untyped-def]
    """A number for a cut whose entries are the next in the arena."""
    table.counts[N_FREE] -= 1
    p = table.free[table.counts[N_FREE]]
    table.start[p] = table.counts[N_ENTRIES]
    table.counts[N_ENTRIES] += length
    table.counts[N_LIVE] += length
    table.length[p] = length
    table.loss[p] = loss
    table.coef[p] = coef
    table.previous[p] = coef
    table.idle[p] = 0
    return p


@inlined
def store_cut(first, last, columns, values, loss, coef, table):  # type: ignore[no-untyped-def]
    """Copy a cut into the arena; returns its number."""
    start = table.counts[N_ENTRIES]
    for q in range(last - first):
        table.columns[start + q] = columns[first + q]
        table.values[start + q] = values[first + q]
    return enter(last - first, loss, coef, table)


@inlined
def append_cut(b, p, table, hashed):  # type: ignore[no-untyped-def]
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
def drop_cut(b, j, table):  # type: ignore[no-untyped-def]
    """Drop cut ``j`` of example `b`; the last takes its place."""
    at, gram_at, stride = table.slot_at[b], table.gram_at[b], table.capacity[b]
    last = table.size[b] - 1
    p = table.slots[at + j]
    table.free[table.counts[N_FREE]] = p
    table.counts[N_FREE] += 1
    table.counts[N_LIVE] -= table.length[p]
    table.length[p] = UNUSED
    table.slots[at + j] = table.slots[at + last]
    for k in range(last + 1):
        table.gram[gram_at + j * stride + k] = table.gram[gram_at + last * stride + k]
    for k in range(last + 1):
        table.gram[gram_at + k * stride + j] = table.gram[gram_at + k * stride + last]
    table.gram[gram_at + j * stride + j] = table.gram[gram_at + last * stride + last]
    table.size[b] = last


@inlined
def step_block(b, m, highest, value, rule, table, slopes, coef, sums):  # type: ignore[no-untyped-def]
    """Steps over the `m` cuts of example `b`, which change `slopes` and `coef`; returns their work.

    highest, value : the largest slope, at least zero, and ``sum(coef * slopes)``
    sums : as in `update_examples`
    """
    total = table.totals[b]
    gap = total * highest - value
    table.gaps[b] = gap
    sums[GAP] += gap
    sums[BOUND] += total * highest
    gram_at, stride = table.gram_at[b], table.capacity[b]
    if rule.kind == PAIRWISE:
        gain, steps = pairwise_steps(
            table.gram, gram_at, stride, m, slopes, coef, total, rule.tolerance, rule.max_steps
        )
        work = 3 * m * steps
    else:
        gain = frank_wolfe_step(
            table.gram, gram_at, stride, m, slopes, coef, total, rule.kind == AWAY
        )
        work = m * m
    sums[GAIN] += gain
    return work


@compiled
def update_examples(  # type: ignore[no-untyped-def]
    examples, weights, table, rule, new_starts, new_columns, new_values, new_losses, added,
    hashed, scratch, sums,
):  # fmt: skip
    """Update `examples` in order; see `WorkingSet.update`.

    Parameters
    ----------
    examples : ndarray of int64, shape (n_updates,)
    weights, table : ndarray of shape (n_features,) and Table, changed
    rule : StepRule
    new_starts, new_columns, new_values, new_losses : a cut for each example as in `Cuts`, or empty
    added : ndarray of int32, shape (n_updates,), set to the numbers of the cuts that are kept
    hashed, scratch : HashTable, empty also afterwards, and ndarray of shape (2, most_cuts)
    sums : ndarray of shape (5,); adds gain, gap, C times hinge, work and change of the linear term
    """
    slopes, coef = scratch[0], scratch[1]
    for o in range(len(examples)):
        b = examples[o]
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
            if slope > highest + rule.tolerance:
                highest = slope
                p = store_cut(first, last, new_columns, new_values, new_losses[o], 0.0, table)
                append_cut(b, p, table, hashed)
                added[o] = p
                slopes[m] = slope
                coef[m] = 0.0
                work += 3 * work
                m += 1
        work += step_block(b, m, highest, value, rule, table, slopes, coef, sums)
        for j in range(m):
            p = table.slots[at + j]
            if coef[j] != table.coef[p]:
                work += table.length[p]
                sums[LINEAR] += set_coef(p, coef[j], table, weights)
        sums[WORK] += work


@compiled
def drop_idle_cuts(table, max_idle):  # type: ignore[no-untyped-def]
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
                    drop_cut(b, j, table)


@compiled
def add_best_cuts(examples, table, weights, vector, best):  # type: ignore[no-untyped-def]
    """Set the most violating cut of each of the `examples`, and add them; returns their loss."""
    loss = 0.0
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
def hinges_of(examples, table, weights):  # type: ignore[no-untyped-def]
    """Sum of C times hinge of `examples`."""
    total = 0.0
    for b in examples:
        highest = 0.0
        for j in range(table.size[b]):
            p = table.slots[table.slot_at[b] + j]
            highest = max(highest, cut_slope(p, table, weights))
        total += table.totals[b] * highest
    return total


@compiled
def mix_best(table, best, step):  # type: ignore[no-untyped-def]
    """``coef = (1 - step) * coef + step * totals`` at the best cut of each example."""
    for b in range(len(table.totals)):
        for j in range(table.size[b]):
            table.coef[table.slots[table.slot_at[b] + j]] *= 1.0 - step
        if best[b] >= 0:
            table.coef[best[b]] += step * table.totals[b]


@compiled
def keep_latest_cuts(table, limit):  # type: ignore[no-untyped-def]
    """Drop all but `limit` cuts of each example, those used longest ago first."""
    for b in range(len(table.size)):
        while table.size[b] > limit:
            oldest = 0
            for j in range(table.size[b]):
                p, q = table.slots[table.slot_at[b] + j], table.slots[table.slot_at[b] + oldest]
                if table.coef[q] > 0.0 or (table.coef[p] == 0.0 and table.idle[p] > table.idle[q]):
                    oldest = j
            if table.coef[table.slots[table.slot_at[b] + oldest]] > 0.0:
                break  # all that are left carry weight
            drop_cut(b, oldest, table)


@inlined
def longest_step(b, momentum, table):  # type: ignore[no-untyped-def]
    """The longest feasible step of an example along its change since `previous`, up to `momentum`.

    Negative if its coefficients have not changed.
    """
    at = table.slot_at[b]
    step = momentum
    used = growth = 0.0
    moving = False
    for j in range(table.size[b]):
        p = table.slots[at + j]
        change = table.coef[p] - table.previous[p]
        moving |= change != 0.0
        used += table.coef[p]
        growth += change
        if step * change < -table.coef[p]:
            step = -table.coef[p] / change
    # Moves within a full example grow by rounding errors only, which must not stop them.
    total = table.totals[b]
    if growth > 0.0 and step * growth > total - used + ROUNDING * total:
        step = max(total - used, 0.0) / growth
    return step if moving else -1.0


@inlined
def extrapolated(p, step, table):  # type: ignore[no-untyped-def]
    """The coefficient of cut `p` after such a step; its present one becomes the previous."""
    old = table.coef[p]
    new = max(old + step * (old - table.previous[p]), 0.0)
    table.previous[p] = old
    return new


@compiled
def extrapolate_examples(examples, momentum, table, weights):  # type: ignore[no-untyped-def]
    """``coef += step_b * (coef - previous)``, ``step_b <= momentum`` the longest feasible one.

    Returns the change of the linear term, as `revert_examples` does.
    """
    linear = 0.0
    for b in examples:
        step = longest_step(b, momentum, table)
        if step >= 0.0:
            for j in range(table.size[b]):
                p = table.slots[table.slot_at[b] + j]
                linear += set_coef(p, extrapolated(p, step, table), table, weights)
    return linear


@compiled
def revert_examples(examples, table, weights):  # type: ignore[no-untyped-def]
    """``coef = previous``."""
    linear = 0.0
    for b in examples:
        for j in range(table.size[b]):
            p = table.slots[table.slot_at[b] + j]
            linear += set_coef(p, table.previous[p], table, weights)
    return linear


@compiled
def put_cuts(examples, starts, columns, values, losses, coef, table, hashed, added):  # type: ignore[no-untyped-def]
    """Append a cut with its coefficient to each of the examples, for which `table` has room.

    Parameters
    ----------
    examples, coef : ndarrays of shape (n,), without repeats
    starts, columns, values, losses : CSR arrays of the cuts, as in `Cuts`
    table, hashed : Table, changed, and HashTable, empty also afterwards
    added : ndarray of int32, shape (n,), set to the numbers of the cuts
    """
    for o in range(len(examples)):
        p = store_cut(starts[o], starts[o + 1], columns, values, losses[o], coef[o], table)
        append_cut(examples[o], p, table, hashed)
        added[o] = p


@inlined
def move_list(b, room, table):  # type: ignore[no-untyped-def]
    """Move the list of example `b` to the end of all, with room for so many cuts."""
    m, old = table.size[b], table.capacity[b]
    slot_at, gram_at = table.counts[N_SLOTS], table.counts[N_GRAM]
    for j in range(m):
        table.slots[slot_at + j] = table.slots[table.slot_at[b] + j]
        for k in range(m):
            table.gram[gram_at + j * room + k] = table.gram[table.gram_at[b] + j * old + k]
    table.slot_at[b], table.gram_at[b], table.capacity[b] = slot_at, gram_at, room
    table.counts[N_SLOTS] += room
    table.counts[N_GRAM] += room * room


@compiled
def widen_examples(full, table):  # type: ignore[no-untyped-def]
    """Move the lists of the examples `full` to the end, with twice the room."""
    for o in range(len(full)):
        move_list(full[o], 2 * table.capacity[full[o]], table)


@compiled
def compact_arena(table, order):  # type: ignore[no-untyped-def]
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
    table.counts[N_ENTRIES] = at
