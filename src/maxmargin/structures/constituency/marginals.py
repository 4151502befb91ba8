"""Shares of rules and units when derivations are weighted by their scores.

See the module `inference` for grammars and charts. Upwards, the logarithms of sums over all
derivations of each symbol at each span are taken, relative to their largest terms. Downwards, what
is known of the share of a symbol is dealt out to the terms of its sum in proportion. So there is
no second recursion in logarithms, and the shares add up to each other.
"""

from typing import NamedTuple

import numpy as np

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.structures.constituency.chart import (
    Floats,
    Rules,
    Scores,
    cell,
    close_span,
    make_chart,
    meeting,
    n_cells,
    open_chart,
    open_start,
    put,
    top_row,
    top_score,
)

_DROWNED = 40.0
"""Terms by so much below the largest are lost in the rounding of the sum: no exponential then."""


class Shares(NamedTuple):
    """How often rules, units and starts are expected.

    Attributes
    ----------
    rules : ndarray of shape (n_rules,)
    units : ndarray of shape (n_cells, n_units)
        For each span, in the order of `maxmargin.structures.constituency.chart.row_of_span`.
    starts : ndarray of shape (n_complete,)
    """

    rules: Floats
    units: Floats
    starts: Floats


@inlined
def _add_term(term, at, largest, totals):  # type: ignore[no-untyped-def]
    """Add ``exp(term)`` to the sum ``exp(largest[at]) * totals[at]``."""
    if term > largest[at]:
        totals[at] = totals[at] * np.exp(largest[at] - term) + 1.0
        largest[at] = term
    elif term > largest[at] - _DROWNED:
        totals[at] += np.exp(term - largest[at])


@inlined
def _close(largest, totals, n):  # type: ignore[no-untyped-def]
    """Turn the first `n` sums into their logarithms, and empty them."""
    for at in range(n):
        if totals[at] > 0.0:
            largest[at] += np.log(totals[at])
        totals[at] = 0.0


@inlined
def _sum_meetings(lefts, row, rights, after, low, high):  # type: ignore[no-untyped-def]
    """Logarithm of the sum over all places where a left and a right child meet."""
    largest = -np.inf
    for t in range(low, high + 1):
        largest = max(largest, lefts[row + t] + rights[after + t])
    if largest == -np.inf:
        return largest
    total = 0.0
    for t in range(low, high + 1):
        above = lefts[row + t] + rights[after + t] - largest
        if above > -_DROWNED:
            total += np.exp(above)
    return largest + np.log(total)


@compiled
def fill_sums(rules, scores, leaves, chart, totals):  # type: ignore[no-untyped-def]
    """The logarithms of the sums of all symbols at all spans, as `fill_chart` their maxima.

    Scratch: `totals` ``(n_symbols,)``.
    """
    length, n_complete = leaves.shape
    varying = len(scores.units) > 1
    here = chart.here
    totals[:] = 0.0
    open_chart(chart, length)
    for start in range(length - 1, -1, -1):
        open_start(chart, length)
        for stop in range(start + 1, length + 1):
            here[:] = -np.inf
            firsts, lasts = chart.first_right[stop], chart.last_right[stop]
            for symbol in range(rules.n_symbols):
                first, last = chart.first[symbol], chart.last[symbol]
                if last >= 0:
                    row = top_row(start, symbol, length, rules.n_symbols)
                    for g in range(rules.left_groups[symbol], rules.left_groups[symbol + 1]):
                        slot = rules.group_slots[g]
                        low, high = meeting(first, last, firsts[slot], lasts[slot], start)
                        rights = chart.rights[stop, slot]
                        both = _sum_meetings(chart.tops, row, rights, start + 1, low, high)
                        if both > -np.inf:
                            for r in range(rules.group_rules[g], rules.group_rules[g + 1]):
                                _add_term(both + scores.rules[r], rules.parents[r], here, totals)
            _close(here, totals, rules.n_symbols)
            if stop - start == 1:
                put(leaves[start], n_complete, here)
            bottoms = chart.bottoms[cell(start, stop, length)]
            put(here, n_complete, bottoms)
            here[:n_complete] = -np.inf
            units = scores.units[cell(start, stop, length) * varying]
            for u in range(len(units)):
                term = bottoms[rules.unit_bottoms[u]] + units[u]
                _add_term(term, rules.unit_tops[u], here, totals)
            _close(here, totals, n_complete)
            close_span(rules, chart, start, stop, length)


@inlined
def _share_starts(rules, starts, chart, length, shares):  # type: ignore[no-untyped-def]
    """Shares of the symbols of the whole; returns the logarithm of the sum."""
    highest = -np.inf
    for symbol in range(len(starts)):
        shares[symbol] = starts[symbol] + top_score(rules, chart, 0, length, symbol, length)
        highest = max(highest, shares[symbol])
    total = 0.0
    for symbol in range(len(starts)):
        shares[symbol] = np.exp(shares[symbol] - highest) if highest > -np.inf else 0.0
        total += shares[symbol]
    for symbol in range(len(starts)):
        shares[symbol] /= max(total, 1.0)
    return highest + np.log(max(total, 1.0))


@compiled
def deal_shares(rules, scores, length, chart, shares, masses, mass, sums):  # type: ignore[no-untyped-def]
    """Fill `shares` from the `chart` of `fill_sums`, and return the logarithm of the whole sum.

    Scratch: `masses` as ``chart.tops``, `mass` and `sums` ``(n_symbols,)``.
    """
    n_complete, n_symbols = rules.n_complete, rules.n_symbols
    varying = len(scores.units) > 1
    shares.rules[:] = 0.0
    shares.units[:] = 0.0
    masses[: length * (length + 1) // 2 * n_symbols] = 0.0
    log_partition = _share_starts(rules, scores.starts, chart, length, shares.starts)
    for symbol in range(n_complete):
        masses[top_row(0, symbol, length, n_symbols) + length - 1] = shares.starts[symbol]
    # Whatever has a span as its part is dealt out before: it starts earlier, or stops later.
    for start in range(length):
        for stop in range(length, start, -1):
            here, width = cell(start, stop, length), stop - start
            units, bottoms = scores.units[here * varying], chart.bottoms[here]
            for symbol in range(n_symbols):
                at = top_row(start, symbol, length, n_symbols) + width - 1
                mass[symbol] = masses[at] if symbol >= n_complete else 0.0
                sums[symbol] = chart.tops[at] if symbol >= n_complete else bottoms[symbol]
            for u in range(len(units)):
                top = np.int64(rules.unit_tops[u])
                at = top_row(start, top, length, n_symbols) + width - 1
                if masses[at] > 0.0:
                    bottom = rules.unit_bottoms[u]
                    share = masses[at] * np.exp(units[u] + bottoms[bottom] - chart.tops[at])
                    shares.units[here, u] = share
                    mass[bottom] += share
            for symbol in range(n_symbols):
                row = top_row(start, symbol, length, n_symbols)
                for g in range(rules.left_groups[symbol], rules.left_groups[symbol + 1]):
                    slot = rules.group_slots[g]
                    right = np.int64(rules.right_symbols[slot])
                    rights = chart.rights[stop, slot]
                    low = max(chart.first_right[stop, slot] - start - 1, 0)
                    for t in range(low, min(chart.last_right[stop, slot] - start, width - 1)):
                        both = chart.tops[row + t] + rights[start + 1 + t]
                        if both > -np.inf:
                            total = 0.0
                            for r in range(rules.group_rules[g], rules.group_rules[g + 1]):
                                parent = rules.parents[r]
                                term = both + scores.rules[r] - sums[parent]
                                if mass[parent] > 0.0 and term > -_DROWNED:
                                    share = mass[parent] * np.exp(term)
                                    shares.rules[r] += share
                                    total += share
                            if total > 0.0:
                                masses[row + t] += total
                                middle = start + 1 + t
                                after = top_row(middle, right, length, n_symbols)
                                masses[after + stop - middle - 1] += total
    return log_partition


def expected_derivation(rules: Rules, scores: Scores, leaves: Floats) -> tuple[Shares, float]:
    """Expected rules, units and starts, if derivations have probabilities ``~ exp(score)``.

    Parameters
    ----------
    rules : Rules
    scores : Scores
        Divided by the temperature, if it is not one.
    leaves : ndarray of shape (length, n_complete)
        Score of each symbol as the bottom of each word, divided likewise.

    Returns
    -------
    shares : Shares
        Zeros if there is no derivation.
    log_partition : float
        Logarithm of the sum of ``exp(score)`` over all derivations.

    Examples
    --------
    Three words have two ways to put brackets around pairs:

    >>> import numpy as np
    >>> from maxmargin.structures.constituency.chart import Scores, make_rules
    >>> from maxmargin.structures.constituency.marginals import expected_derivation
    >>> pairs = np.array([(1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 1)])
    >>> rules = make_rules(2, 2, pairs, np.array([(0, 0), (1, 1)]))
    >>> scores = Scores(np.log([1.0, 3.0, 1.0, 1.0]), np.zeros((1, 2)), np.zeros(2))
    >>> leaves = np.array([[0.0, -np.inf]] * 3)
    >>> shares, log_partition = expected_derivation(rules, scores, leaves)
    >>> shares.rules.round(3).tolist(), round(float(np.exp(log_partition)), 3)
    ([1.0, 0.75, 0.25, 0.0], 4.0)
    """
    length = len(leaves)
    chart, sums = make_chart(length, rules), np.empty(rules.n_symbols)
    fill_sums(rules, scores, leaves, chart, sums)
    shares = Shares(
        np.empty(rules.n_rules),
        np.empty((n_cells(length), rules.n_units)),
        np.empty(rules.n_complete),
    )
    scratch = np.empty_like(chart.tops), np.empty_like(sums), sums
    return shares, float(deal_shares(rules, scores, length, chart, shares, *scratch))
