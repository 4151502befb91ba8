"""What the plane cache does to its arrays, compiled.

Each of these leaves the arrays such that weights and coefficients belong together, so Ctrl-C, which
waits for the end of compiled code, may come after any of them.
"""

import numpy as np

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.compiled.cuts import add_cut, cut_product
from maxmargin.dual.gram import EMPTY, _find, clear
from maxmargin.dual.working_set import (
    _N_ENTRIES,
    _N_FREE,
    _N_GRAM,
    _N_LIVE,
    _N_SLOTS,
    _append,
    _drop,
)

ENTRY_BYTES = 12
CUT_BYTES = 52
BLOCK_BYTES = 48
"""What an entry, a plane number and a block take in the arrays, the lists of blocks apart."""

NOWHERE, MARKED = -1, -2

SETTLED = 1e-9
"""A block is full if no more than this part of its total is left."""


@compiled
def count_entries(table, entries):  # type: ignore[no-untyped-def]
    """Entries of all planes of each block."""
    for b in range(len(table.size)):
        for j in range(table.size[b]):
            entries[b] += table.length[table.slots[table.slot_at[b] + j]]


@inlined
def _spread_more(start, stop, columns, values, share, taken, table):  # type: ignore[no-untyped-def]
    """Add `share` times a plane to what is in the table; returns the places that are taken."""
    for q in range(start, stop):
        h = _find(columns[q], table)
        if table.keys[h] == EMPTY:
            table.keys[h] = columns[q]
            table.sums[h] = 0.0
            table.places[taken] = h
            taken += 1
        table.sums[h] += share * values[q]
    return taken


@compiled
def merge_examples(first, most, room, table, hashed, into, shares):  # type: ignore[no-untyped-def]
    """Merge in the blocks from `first` on; returns where the arena was full, or the end.

    Plane `p` that goes into another has that one's number in ``into[p]``, perhaps its own.
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
                    stop = table.start[p] + table.length[p]
                    taken = _spread_more(
                        table.start[p], stop, table.columns, table.values, share, taken, hashed
                    )
                    loss += share * table.loss[p]
        full = table.counts[_N_ENTRIES] + taken > len(table.values)
        if not fits or full:
            clear(taken, hashed)
            for j in range(m):
                into[table.slots[at + j]] = NOWHERE
            if full:
                return b
            continue
        # Where a plane is forgotten its number is the first to be used again.
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
        table.counts[_N_FREE] -= 1
        start = table.counts[_N_ENTRIES]
        for t in range(taken):
            h = hashed.places[t]
            table.columns[start + t] = hashed.keys[h]
            table.values[start + t] = hashed.sums[h]
        clear(taken, hashed)
        table.counts[_N_ENTRIES] += taken
        table.counts[_N_LIVE] += taken
        table.start[new] = start
        table.length[new] = taken
        table.loss[new] = loss
        table.coef[new] = total
        table.previous[new] = total
        table.idle[new] = 0
        _append(b, new, table, hashed)
    return len(table.size)


@compiled
def freeze_examples(examples, table, vector, loss, spent):  # type: ignore[no-untyped-def]
    """Add what the blocks have in weights and dual to the frozen sum, and drop their planes."""
    for o in range(len(examples)):
        b = examples[o]
        owner = table.owner[b]
        for j in range(table.size[b] - 1, -1, -1):
            p = table.slots[table.slot_at[b] + j]
            coef = table.coef[p]
            stop = table.start[p] + table.length[p]
            add_cut(table.start[p], stop, table.columns, table.values, coef, vector)
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
    """Add planes times what is spent on them."""
    for k in range(len(spent)):
        if spent[k] > 0.0:
            add_cut(starts[k], starts[k + 1], columns, values, spent[k], vector)
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
    """How far each block is from a change of its coefficients, and what its planes take.

    A full block stays as it is while all of its planes have a positive slope; the least of these
    tells how steady it is. A block with something left is at the balance of slope zero.
    """
    for b in range(len(table.size)):
        used = 0.0
        least = np.inf
        for j in range(table.size[b]):
            p = table.slots[table.slot_at[b] + j]
            stop = table.start[p] + table.length[p]
            product = cut_product(table.start[p], stop, table.columns, table.values, weights)
            used += table.coef[p]
            least = min(least, table.loss[p] - product)
            sizes[b] += CUT_BYTES + ENTRY_BYTES * table.length[p]
        sizes[b] += 4 * table.capacity[b] + 8 * table.capacity[b] * table.capacity[b]
        steady[b] = least if used >= table.totals[b] * (1.0 - SETTLED) else min(least, 0.0)


@compiled
def pack_lists(table, order):  # type: ignore[no-untyped-def]
    """Move the lists of the blocks together, in the order in which they stand, without room."""
    slot_at = gram_at = 0
    for o in range(len(order)):
        b = order[o]
        m, old = table.size[b], table.capacity[b]
        new = max(m, 1)
        for j in range(m):
            table.slots[slot_at + j] = table.slots[table.slot_at[b] + j]
            for k in range(m):
                table.gram[gram_at + j * new + k] = table.gram[table.gram_at[b] + j * old + k]
        table.slot_at[b], table.gram_at[b], table.capacity[b] = slot_at, gram_at, new
        slot_at += new
        gram_at += new * new
    table.counts[_N_SLOTS] = slot_at
    table.counts[_N_GRAM] = gram_at
