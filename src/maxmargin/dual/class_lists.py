"""Compiled passes over examples that each have a short list of classes, of very many.

An example's list holds its own class first and then those with which it enters weights, with its
dual coefficients: of many classes most coefficients are zero. A *list update* takes an exact step
over the classes of an example's list only, for the price of so many scores. An *oracle call* has
the scores of all classes, and so finds the most violated ones that the list lacks: cutting planes
in the words of Joachims et al. (2009), the full loop of Keerthi et al. (2008), section 2.1.

Weights are kept by features, the most frequent first. Those have a row with a place for every
class; each other one has a small hash table of the classes that it has met. Lists and tables grow
by moving to the end of a pool. A routine that finds no room there returns the place in its order
where it stopped, and is called again with a longer pool.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.compiled.rows import Rows
from maxmargin.core.registry import registered
from maxmargin.dual.sweeps import (
    CORNER,
    MOVED,
    NEVER,
    WAIT,
    crammer_singer_step,
    postpone,
    weston_watkins_step,
)

HASH_FACTOR = 2654435769
"""2^32 divided by the golden ratio: spreads neighbouring classes over a table."""


BLOCK = 1024
"""Classes whose scores stay in the first cache while the rows of all features are added to them."""


class ListedRows(NamedTuple):
    """Examples of many classes, their features numbered from the most frequent one on.

    Entries of row ``i`` before ``ends[i]`` are of features with dense weights. A row of `terms` is
    C, margin and ``1 / |x|^2``, zero for a row that can never change the weights.
    """

    rows: Rows
    ends: NDArray[np.int64]
    labels: NDArray[np.int32]
    terms: NDArray[np.float64]
    separate_slacks: bool


@registered("ClassLists")
class ClassLists(NamedTuple):
    """Example ``i`` has ``counts[i]`` classes from place ``starts[i]`` on, and room for `rooms[i]`.

    ``end[0]`` is the first free place.
    """

    starts: NDArray[np.int64]
    counts: NDArray[np.int32]
    rooms: NDArray[np.int32]
    classes: NDArray[np.int32]
    coef: NDArray[np.float64]
    end: NDArray[np.int64]


@registered("ClassWeights")
class ClassWeights(NamedTuple):
    """Weights by features: `dense` rows of the frequent ones, the constant feature's last.

    Another feature, less the number of those, has the table of ``2 ** bits[t]`` places from
    ``starts[t]`` on, of which ``used[t]`` are taken. `keys` are their classes, and the number of
    columns of `dense` where a place is free. ``end[0]`` is the first place of no table.
    """

    dense: NDArray[np.float64]
    starts: NDArray[np.int64]
    bits: NDArray[np.int32]
    used: NDArray[np.int32]
    keys: NDArray[np.int32]
    values: NDArray[np.float64]
    end: NDArray[np.int64]


@inlined
def table_place(weights, t, m):  # type: ignore[no-untyped-def]
    """Place of class ``m`` in table ``t``, or the free one where it belongs."""
    start, bits = weights.starts[t], weights.bits[t]
    mask = (np.int64(1) << bits) - 1
    free = np.int32(weights.dense.shape[1])
    at = ((np.int64(m) * HASH_FACTOR) & 0xFFFFFFFF) >> (32 - bits)
    while True:
        key = weights.keys[start + at]
        if key in (m, free):
            return start + at
        at = (at + 1) & mask


@inlined
def set_list_scores(data, i, weights, classes, scores):  # type: ignore[no-untyped-def]
    """Set `scores` to those of the classes of a list."""
    rows = data.rows
    n_dense = weights.dense.shape[0] - 1
    for slot in range(len(classes)):
        scores[slot] = rows.bias * weights.dense[n_dense, classes[slot]]
    for p in range(rows.starts[i], data.ends[i]):
        value = np.float64(rows.values[p])
        row = weights.dense[rows.columns[p]]
        for slot in range(len(classes)):
            scores[slot] += value * row[classes[slot]]
    for p in range(data.ends[i], rows.starts[i + 1]):
        value = np.float64(rows.values[p])
        t = np.int64(rows.columns[p]) - n_dense
        for slot in range(len(classes)):
            scores[slot] += value * weights.values[table_place(weights, t, classes[slot])]


@inlined
def set_all_scores(data, i, weights, scores):  # type: ignore[no-untyped-def]
    """Set `scores` to those of all classes; its last place is for what free places hold."""
    rows = data.rows
    n_dense, n_columns = weights.dense.shape[0] - 1, weights.dense.shape[1]
    for m in range(n_columns):
        scores[m] = rows.bias * weights.dense[n_dense, m]
    at, end = rows.starts[i], data.ends[i]
    for first in range(0, n_columns, BLOCK):
        out = scores[first : min(first + BLOCK, n_columns)]
        for p in range(at, end - 3, 4):
            a, b = np.float64(rows.values[p]), np.float64(rows.values[p + 1])
            c, d = np.float64(rows.values[p + 2]), np.float64(rows.values[p + 3])
            of_a = weights.dense[rows.columns[p], first : first + len(out)]
            of_b = weights.dense[rows.columns[p + 1], first : first + len(out)]
            of_c = weights.dense[rows.columns[p + 2], first : first + len(out)]
            of_d = weights.dense[rows.columns[p + 3], first : first + len(out)]
            for m in range(len(out)):
                out[m] += (a * of_a[m] + b * of_b[m]) + (c * of_c[m] + d * of_d[m])
        for p in range(end - (end - at) % 4, end):
            value = np.float64(rows.values[p])
            row = weights.dense[rows.columns[p], first : first + len(out)]
            for m in range(len(out)):
                out[m] += value * row[m]
    for p in range(end, rows.starts[i + 1]):
        value = np.float64(rows.values[p])
        t = np.int64(rows.columns[p]) - n_dense
        start = weights.starts[t]
        if weights.used[t] > 0:
            for place in range(start, start + (np.int64(1) << weights.bits[t])):
                scores[weights.keys[place]] += value * weights.values[place]


@inlined
def grow_table(weights, t):  # type: ignore[no-untyped-def]
    """Move table ``t`` to one of twice the size; whether there was room for that."""
    old, size = weights.starts[t], np.int64(1) << weights.bits[t]
    new = weights.end[0]
    if new + 2 * size > len(weights.values):
        return False
    free = np.int32(weights.dense.shape[1])
    for place in range(new, new + 2 * size):
        weights.keys[place] = free
        weights.values[place] = 0.0
    weights.end[0] = new + 2 * size
    weights.starts[t] = new
    weights.bits[t] += 1
    for place in range(old, old + size):
        if weights.keys[place] != free:
            moved = table_place(weights, t, weights.keys[place])
            weights.keys[moved] = weights.keys[place]
            weights.values[moved] = weights.values[place]
    return True


@inlined
def have_room(data, i, weights, count):  # type: ignore[no-untyped-def]
    """Whether the tables of a row's features have room, or now get it, for `count` classes more."""
    n_dense = weights.dense.shape[0] - 1
    for p in range(data.ends[i], data.rows.starts[i + 1]):
        t = np.int64(data.rows.columns[p]) - n_dense
        # At most three quarters are taken: then searches stay short, and end.
        while 4 * (weights.used[t] + count) > np.int64(3) << weights.bits[t]:
            if not grow_table(weights, t):
                return False
    return True


@inlined
def add_list_multiple(data, i, weights, classes, change):  # type: ignore[no-untyped-def]
    """``weights += x_i change'`` for the classes of a list; the tables have room."""
    rows = data.rows
    n_dense, free = weights.dense.shape[0] - 1, np.int32(weights.dense.shape[1])
    for slot in range(len(classes)):
        weights.dense[n_dense, classes[slot]] += rows.bias * change[slot]
    for p in range(rows.starts[i], data.ends[i]):
        value = np.float64(rows.values[p])
        row = weights.dense[rows.columns[p]]
        for slot in range(len(classes)):
            row[classes[slot]] += value * change[slot]
    for p in range(data.ends[i], rows.starts[i + 1]):
        value = np.float64(rows.values[p])
        t = np.int64(rows.columns[p]) - n_dense
        for slot in range(len(classes)):
            if change[slot] != 0.0:
                place = table_place(weights, t, classes[slot])
                if weights.keys[place] == free:
                    weights.keys[place] = classes[slot]
                    weights.used[t] += 1
                weights.values[place] += value * change[slot]


@inlined
def step_on(data, i, augmented, coef, threshold, kept_scores, change):  # type: ignore[no-untyped-def]
    """Exact step over the classes of a list, the first one its own; returns what came of it."""
    cost, inverse = data.terms[i, 0], data.terms[i, 2]
    for slot in range(len(coef)):
        kept_scores[slot] = augmented[slot]
    if data.separate_slacks:
        return weston_watkins_step(kept_scores, coef, 0, cost, inverse, threshold, change)
    return crammer_singer_step(kept_scores, coef, 0, cost, inverse, threshold, change)


@inlined
def gain_of(augmented, change, inverse):  # type: ignore[no-untyped-def]
    """What a step adds to the dual: its slope, less ``|x|^2 |change|^2 / 2``."""
    slope = square = 0.0
    for slot in range(len(change)):
        slope += augmented[slot] * change[slot]
        square += change[slot] * change[slot]
    return -slope - 0.5 * square / inverse


@compiled
def update_lists(  # type: ignore[no-untyped-def]
    data, order, at, threshold, weights, lists, updates, now, longest_wait, scratch, gained
):
    """One exact step over its list for each example of ``order[at:]``; returns where it stopped.

    Parameters
    ----------
    data : ListedRows
    order : ndarray of int32, shape (n_updates,)
    at : int
    threshold : float, violations up to which are left alone
    weights, lists : ClassWeights and ClassLists, changed
    updates : ndarray of int32, shape (n_samples, 3), changed
    now, longest_wait : ints, the pass and the most that an idle example waits
    scratch : ndarray of shape (4, n_columns)
    gained : ndarray of shape (1,), the gain of the dual is added
    """
    for o in range(at, len(order)):
        i = order[o]
        start, stop = lists.starts[i], lists.starts[i] + lists.counts[i]
        count = stop - start
        if not have_room(data, i, weights, count):
            return o
        classes, coef = lists.classes[start:stop], lists.coef[start:stop]
        augmented, change = scratch[0, :count], scratch[1, :count]
        set_list_scores(data, i, weights, classes, augmented)
        for slot in range(1, count):
            augmented[slot] += data.terms[i, 1]
        outcome = step_on(data, i, augmented, coef, threshold, scratch[2, :count], change)
        if outcome == CORNER:
            postpone(i, updates, now, longest_wait)
            continue
        updates[i, WAIT] = 0
        if outcome == MOVED:
            gained[0] += gain_of(augmented, change, data.terms[i, 2])
            add_list_multiple(data, i, weights, classes, change)
    return len(order)


@inlined
def hinge_of(scores, label, margin, n_classes, separate_slacks):  # type: ignore[no-untyped-def]
    """Hinge of an example at the scores of all classes."""
    own = scores[label]
    scores[label] = NEVER
    required = own - margin
    total, worst = 0.0, required
    for m in range(n_classes):
        above = scores[m] - required
        total += above if above > 0.0 else 0.0
        worst = scores[m] if scores[m] > worst else worst
    scores[label] = own
    return total if separate_slacks else max(worst - required, 0.0)


@inlined
def most_violated(scores, n_classes, classes, found):  # type: ignore[no-untyped-def]
    """Set `classes` to those with the highest scores, which are `found`; returns how many."""
    wanted = len(classes)
    count = 0
    least = 0.5 * NEVER
    for m in range(n_classes):
        score = scores[m]
        if score > least:
            t = min(count, wanted - 1)
            while t > 0 and score > found[t - 1]:
                found[t] = found[t - 1]
                classes[t] = classes[t - 1]
                t -= 1
            found[t] = score
            classes[t] = m
            count = min(count + 1, wanted)
            if count == wanted:
                least = found[wanted - 1]
    return count


@inlined
def list_has_room(lists, i, wanted):  # type: ignore[no-untyped-def]
    """Whether a list has room, or now gets it, for `wanted` classes more."""
    old, count = lists.starts[i], np.int64(lists.counts[i])
    if count + wanted <= lists.rooms[i]:
        return True
    room, new = count + count // 2 + wanted, lists.end[0]
    if new + room > len(lists.coef):
        return False
    for slot in range(count):
        lists.classes[new + slot] = lists.classes[old + slot]
        lists.coef[new + slot] = lists.coef[old + slot]
    lists.starts[i] = new
    lists.rooms[i] = room
    lists.end[0] = new + room
    return True


@compiled
def call_oracle(  # type: ignore[no-untyped-def]
    data, order, at, n_classes, threshold, step, weights, lists, losses, scores, violated, scratch,
    gained,
):  # fmt: skip
    """Score all classes for each example of ``order[at:]``; returns where it stopped.

    Classes without a coefficient leave the list, and those of the most violated enter it that have
    one after an exact step over both; the step is taken, or only tried.

    Parameters
    ----------
    data : ListedRows
    order : ndarray of int32, shape (n_updates,)
    at, n_classes : ints
    threshold : float, violations up to which are left alone
    step : bool, whether to take steps; otherwise the weights and coefficients stay
    weights, lists : ClassWeights and ClassLists, changed
    losses : ndarray of shape (n_samples,), set to C times hinge as seen before the steps
    scores : ndarray of shape (n_columns + 1,)
    violated : ndarray of int32, as long as the most classes that enter a list
    scratch : ndarray of shape (4, n_columns)
    gained : ndarray of shape (1,), what the steps add to the dual, or would, is added
    """
    for o in range(at, len(order)):
        i = order[o]
        label, margin = data.labels[i], data.terms[i, 1]
        if not list_has_room(lists, i, len(violated)):
            return o
        if step and not have_room(data, i, weights, lists.counts[i] + len(violated)):
            return o
        set_all_scores(data, i, weights, scores)
        hinge = hinge_of(scores, label, margin, n_classes, data.separate_slacks)
        losses[i] = data.terms[i, 0] * hinge
        if data.terms[i, 2] == 0.0:
            continue
        start, kept = lists.starts[i], 0
        for old in range(start, start + lists.counts[i]):
            m, coef = lists.classes[old], lists.coef[old]
            if coef != 0.0 or old == start:
                lists.classes[start + kept] = m
                lists.coef[start + kept] = coef
                scratch[0, kept] = scores[m] + (margin if old > start else 0.0)
                kept += 1
                scores[m] = NEVER
        count = kept + most_violated(scores, n_classes, violated, scratch[1])
        for slot in range(kept, count):
            lists.classes[start + slot] = violated[slot - kept]
            lists.coef[start + slot] = 0.0
            scratch[0, slot] = scratch[1, slot - kept] + margin
        coef, tried = lists.coef[start : start + count], scratch[3, :count]
        for slot in range(count):
            tried[slot] = coef[slot]
        augmented, change = scratch[0, :count], scratch[1, :count]
        outcome = step_on(data, i, augmented, tried, threshold, scratch[2, :count], change)
        lists.counts[i] = kept
        if outcome != MOVED:
            continue
        gained[0] += gain_of(augmented, change, data.terms[i, 2])
        if step:
            add_list_multiple(data, i, weights, lists.classes[start : start + count], change)
            for slot in range(count):
                coef[slot] = tried[slot]
        for slot in range(kept, count):
            if tried[slot] != 0.0:
                place = start + lists.counts[i]
                lists.classes[place] = lists.classes[start + slot]
                lists.coef[place] = coef[slot]
                lists.counts[i] += 1
    return len(order)


@compiled
def add_lists(data, weights, lists, at):  # type: ignore[no-untyped-def]
    """Add the rows of the examples from ``at`` on, times their coefficients, to the weights.

    Returns at which example there was no room.
    """
    for i in range(at, len(lists.counts)):
        start, stop = lists.starts[i], lists.starts[i] + lists.counts[i]
        if not have_room(data, i, weights, stop - start):
            return i
        add_list_multiple(data, i, weights, lists.classes[start:stop], lists.coef[start:stop])
    return len(lists.counts)


@compiled
def compact_tables(weights, by_place):  # type: ignore[no-untyped-def]
    """Move the tables, in the order of their places, to the beginning of the pool."""
    end = np.int64(0)
    for t in by_place:
        start, size = weights.starts[t], np.int64(1) << weights.bits[t]
        for p in range(size):
            weights.keys[end + p] = weights.keys[start + p]
            weights.values[end + p] = weights.values[start + p]
        weights.starts[t] = end
        end += size
    weights.end[0] = end


@compiled
def squared_norm(weights):  # type: ignore[no-untyped-def]
    """Of all weights."""
    total = 0.0
    dense = weights.dense.reshape(weights.dense.size)
    for p in range(len(dense)):
        total += dense[p] * dense[p]
    for t in range(len(weights.starts)):
        start = weights.starts[t]
        for place in range(start, start + (np.int64(1) << weights.bits[t])):
            total += weights.values[place] * weights.values[place]
    return total


@compiled
def copy_lists(lists, indptr, classes, coef):  # type: ignore[no-untyped-def]
    """Write the lists one after the other; `indptr` says where each begins."""
    for i in range(len(lists.counts)):
        start = lists.starts[i]
        for slot in range(lists.counts[i]):
            classes[indptr[i] + slot] = lists.classes[start + slot]
            coef[indptr[i] + slot] = lists.coef[start + slot]
