"""Inner products of sparse planes, through a small hash table.

One plane is spread out in the table, and any number of others are multiplied with it. Entries
need not be sorted, and columns may repeat on either side. With few features, the table has a place
for each of them, and a column is its own hash.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import inlined

EMPTY = np.uint32(0xFFFFFFFF)
_MIXING = np.uint64(0x9E3779B97F4A7C15)

DIRECT_BELOW = 1 << 16
"""Features up to which a table has a place for each: half a megabyte, which a cache holds."""


class HashTable(NamedTuple):
    """A table for one plane; empty between uses. See `make_table`."""

    keys: NDArray[np.uint32]
    sums: NDArray[np.float64]
    places: NDArray[np.int64]
    multiplier: np.uint64
    shift: np.uint64


def make_table(n_entries: int, n_features: int) -> HashTable:
    """A table with room for a plane of `n_entries` entries, at most half full."""
    direct = n_features <= DIRECT_BELOW
    bits = max(6, n_features.bit_length() if direct else (2 * n_entries).bit_length())
    return HashTable(
        keys=np.full(1 << bits, EMPTY, dtype=np.uint32),
        sums=np.zeros(1 << bits),
        places=np.zeros(n_entries + 1, dtype=np.int64),
        multiplier=np.uint64(1) if direct else _MIXING,
        shift=np.uint64(0) if direct else np.uint64(64 - bits),
    )


@inlined
def _find(column, table):  # type: ignore[no-untyped-def]
    """Position of `column`, or of the empty place where it belongs."""
    mask = len(table.keys) - 1
    # The top bits of a product that mixes all of the column's bits.
    h = np.int64((np.uint64(column) * table.multiplier) >> table.shift)
    while table.keys[h] != column and table.keys[h] != EMPTY:
        h = (h + 1) & mask
    return h


@inlined
def spread(start, stop, columns, values, table):  # type: ignore[no-untyped-def]
    """Put a plane in the table; returns how many places it took."""
    taken = 0
    for q in range(start, stop):
        h = _find(columns[q], table)
        if table.keys[h] == EMPTY:
            table.keys[h] = columns[q]
            table.sums[h] = 0.0
            table.places[taken] = h
            taken += 1
        table.sums[h] += values[q]
    return taken


@inlined
def product_with_spread(start, stop, columns, values, table):  # type: ignore[no-untyped-def]
    """Inner product of a plane with the one in the table."""
    total = 0.0
    for q in range(start, stop):
        h = _find(columns[q], table)
        if table.keys[h] != EMPTY:
            total += values[q] * table.sums[h]
    return total


@inlined
def clear(taken, table):  # type: ignore[no-untyped-def]
    """Empty the table again."""
    for t in range(taken):
        table.keys[table.places[t]] = EMPTY
