"""The dual over the cuts of one example, on their Gram matrix.

Maximise ``sum_j coef_j loss_j - 1/2 |w|^2`` over ``coef >= 0, sum(coef) <= total``; the rest
belongs to the true output, a cut without features or loss. The slope of cut ``j`` is ``loss_j - <w,
psi_j>``. Inner products of sparse cuts go through a small hash table, in which one is spread:
columns may repeat and need not be sorted.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import inlined

EMPTY = np.uint32(0xFFFFFFFF)
_MIXING = np.uint64(0x9E3779B97F4A7C15)

DIRECT_BELOW = 1 << 16
"""Features up to which a table has a place for each: half a megabyte, which fits in a cache."""


class HashTable(NamedTuple):
    """A table for one cut; empty between uses. See `make_table`."""

    keys: NDArray[np.uint32]
    sums: NDArray[np.float64]
    places: NDArray[np.int64]
    multiplier: np.uint64
    shift: np.uint64


def make_table(n_entries: int, n_features: int) -> HashTable:
    """A table with room for a cut of `n_entries` entries, at most half full."""
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
def find(column, table):  # type: ignore[no-untyped-def]
    """Position of `column`, or of the empty place where it belongs."""
    mask = len(table.keys) - 1
    # The top bits of a product that mixes all of the column's bits.
    h = np.int64((np.uint64(column) * table.multiplier) >> table.shift)
    while table.keys[h] != column and table.keys[h] != EMPTY:
        h = (h + 1) & mask
    return h


@inlined
def spread(start, stop, columns, values, factor, taken, table):  # type: ignore[no-untyped-def]
    """Add `factor` times a cut to what is in the table; returns how many places are taken."""
    for q in range(start, stop):
        h = find(columns[q], table)
        if table.keys[h] == EMPTY:
            table.keys[h] = columns[q]
            table.sums[h] = 0.0
            table.places[taken] = h
            taken += 1
        table.sums[h] += factor * values[q]
    return taken


@inlined
def product_with_spread(start, stop, columns, values, table):  # type: ignore[no-untyped-def]
    """Inner product of a cut with the one in the table."""
    total = 0.0
    for q in range(start, stop):
        h = find(columns[q], table)
        if table.keys[h] != EMPTY:
            total += values[q] * table.sums[h]
    return total


@inlined
def clear(taken, table):  # type: ignore[no-untyped-def]
    """Empty the table again."""
    for t in range(taken):
        table.keys[table.places[t]] = EMPTY


ZERO_CUT = -1

ROUNDING = 1e-12
"""Part of an example's C that is only what rounding left of it."""


@inlined
def curvature_between(gram, at, stride, up, down):  # type: ignore[no-untyped-def]
    """``|psi_up - psi_down|^2``; either may be the zero cut."""
    total = 0.0
    if up >= 0:
        total += gram[at + up * stride + up]
    if down >= 0:
        total += gram[at + down * stride + down]
        if up >= 0:
            total -= 2.0 * gram[at + up * stride + down]
    return total


@inlined
def pairwise_steps(gram, at, stride, size, slopes, coef, total, tolerance, max_steps):  # type: ignore[no-untyped-def]
    """Step between the most violating pair until it violates by `tolerance` at most.

    Returns the gain of the dual and the number of steps.

    Parameters
    ----------
    gram, at, stride, size : inner products of `size` cuts from ``gram[at]`` on, in rows of `stride`
    slopes, coef : ndarrays of shape (size,), changed
    total, tolerance, max_steps : C of the example, and when to stop
    """
    rest = total
    for j in range(size):
        rest -= coef[j]
    if rest < ROUNDING * total:  # it could not be given away, and would be offered for ever
        rest = 0.0
    gain = 0.0
    steps = 0
    while steps < max_steps:
        up = down = ZERO_CUT
        highest = 0.0
        lowest = 0.0 if rest > 0.0 else 1e300
        for j in range(size):
            if slopes[j] > highest:
                highest = slopes[j]
                up = j
            if coef[j] > 0.0 and slopes[j] < lowest:
                lowest = slopes[j]
                down = j
        violation = highest - lowest
        if violation <= tolerance:
            break
        curvature = curvature_between(gram, at, stride, up, down)
        available = coef[down] if down >= 0 else rest
        step = available
        if curvature * available > violation:
            step = violation / curvature
        if down >= 0:
            coef[down] = coef[down] - step if step < available else 0.0
            for j in range(size):
                slopes[j] += step * gram[at + down * stride + j]
        else:
            rest = rest - step if step < available else 0.0
        if up >= 0:
            coef[up] += step
            for j in range(size):
                slopes[j] -= step * gram[at + up * stride + j]
        else:
            rest += step
        gain += step * (violation - 0.5 * step * curvature)
        steps += 1
    return gain, steps


@inlined
def frank_wolfe_step(gram, at, stride, size, slopes, coef, total, away):  # type: ignore[no-untyped-def]
    """Exact line search to the best cut or `away` from the worst, on `coef`; returns the gain."""
    best = worst = ZERO_CUT
    highest = 0.0
    used = value = square = 0.0
    for j in range(size):
        used += coef[j]
        value += coef[j] * slopes[j]
        if slopes[j] > highest:
            highest = slopes[j]
            best = j
        for k in range(size):
            square += coef[j] * gram[at + j * stride + k] * coef[k]
    lowest = 0.0 if total - used > ROUNDING * total else 1e300
    for j in range(size):
        if coef[j] > 0.0 and slopes[j] < lowest:
            lowest = slopes[j]
            worst = j
    towards = total * highest - value
    backing = value - total * lowest
    leave = away and backing > towards
    corner = worst if leave else best
    # Direction total * e_corner - coef, or its opposite.
    curvature = square
    if corner >= 0:
        curvature += total * total * gram[at + corner * stride + corner]
        for k in range(size):
            curvature -= 2.0 * total * gram[at + corner * stride + k] * coef[k]
    slope = backing if leave else towards
    longest = 1.0
    if leave:
        held = coef[worst] if worst >= 0 else total - used
        longest = held / (total - held) if held < total else 0.0
    step = longest
    if curvature * longest > slope:
        step = slope / curvature
    if slope <= 0.0 or step <= 0.0:
        return 0.0
    keep = 1.0 + step if leave else 1.0 - step
    for j in range(size):
        coef[j] *= keep
    if corner >= 0:
        coef[corner] += -step * total if leave else step * total
        if leave and step == longest:
            coef[corner] = 0.0
    return step * (slope - 0.5 * step * curvature)
