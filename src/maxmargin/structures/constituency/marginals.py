"""Inside-outside: expected counts of rules, units and start symbols under a weighted grammar.

See the module `inference` for grammars and charts. The inside pass takes log-sums over all
derivations of each symbol at each span, relative to their largest terms. The outside pass
distributes the marginal probability of a symbol over the terms of its sum in proportion: there is
no second recursion in logarithms, and the probabilities add up.
"""

from typing import NamedTuple

import numpy as np

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.structures.constituency.inference import (
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

_NEGLIGIBLE = 40.0
"""Terms by so much below the largest are lost in the rounding of the sum: no exponential then."""


class ExpectedCounts(NamedTuple):
    """Expected counts of rules, units ``(n_cells, n_units)``, see `row_of_span`, start symbols."""

    rules: Floats
    units: Floats
    starts: Floats


@inlined
def _add_term(term, at, largest, totals):  # type: ignore[no-untyped-def]
    """Add ``exp(term)`` to the sum ``exp(largest[at]) * totals[at]``."""
    if term > largest[at]:
        totals[at] = totals[at] * np.exp(largest[at] - term) + 1.0
        largest[at] = term
    elif term > largest[at] - _NEGLIGIBLE:
        totals[at] += np.exp(term - largest[at])


@inlined
def _close(largest, totals, n):  # type: ignore[no-untyped-def]
    """Turn the first `n` sums into their logarithms, and clear them."""
    for at in range(n):
        if totals[at] > 0.0:
            largest[at] += np.log(totals[at])
        totals[at] = 0.0


@inlined
def _sum_meetings(lefts, row, rights, after, low, high):  # type: ignore[no-untyped-def]
    """Log-sum over all split points of a left and a right child."""
    largest = -np.inf
    for t in range(low, high + 1):
        largest = max(largest, lefts[row + t] + rights[after + t])
    if largest == -np.inf:
        return largest
    total = 0.0
    for t in range(low, high + 1):
        above = lefts[row + t] + rights[after + t] - largest
        if above > -_NEGLIGIBLE:
            total += np.exp(above)
    return largest + np.log(total)


@compiled
def inside(rules, scores, leaves, chart, totals):  # type: ignore[no-untyped-def]
    """Log-sums of all symbols at all spans, as `fill_chart` their maxima.

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
def _start_marginals(rules, starts, chart, length, expected):  # type: ignore[no-untyped-def]
    """Marginal probabilities of the start symbols; returns the log-partition function."""
    highest = -np.inf
    for symbol in range(len(starts)):
        expected[symbol] = starts[symbol] + top_score(rules, chart, 0, length, symbol, length)
        highest = max(highest, expected[symbol])
    total = 0.0
    for symbol in range(len(starts)):
        expected[symbol] = np.exp(expected[symbol] - highest) if highest > -np.inf else 0.0
        total += expected[symbol]
    for symbol in range(len(starts)):
        expected[symbol] /= max(total, 1.0)
    return highest + np.log(max(total, 1.0))


@compiled
def outside(rules, scores, length, chart, expected, masses, mass, sums):  # type: ignore[no-untyped-def]
    """Fill `expected` from the `chart` of `inside`, and return the log-partition function.

    Scratch: `masses` as ``chart.tops``, `mass` and `sums` ``(n_symbols,)``.
    """
    n_complete, n_symbols = rules.n_complete, rules.n_symbols
    varying = len(scores.units) > 1
    expected.rules[:] = 0.0
    expected.units[:] = 0.0
    masses[: length * (length + 1) // 2 * n_symbols] = 0.0
    log_partition = _start_marginals(rules, scores.starts, chart, length, expected.starts)
    for symbol in range(n_complete):
        masses[top_row(0, symbol, length, n_symbols) + length - 1] = expected.starts[symbol]
    # A span comes after all spans that may contain it: they start earlier, or stop later.
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
                    probability = masses[at] * np.exp(units[u] + bottoms[bottom] - chart.tops[at])
                    expected.units[here, u] = probability
                    mass[bottom] += probability
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
                                if mass[parent] > 0.0 and term > -_NEGLIGIBLE:
                                    probability = mass[parent] * np.exp(term)
                                    expected.rules[r] += probability
                                    total += probability
                            if total > 0.0:
                                masses[row + t] += total
                                middle = start + 1 + t
                                after = top_row(middle, right, length, n_symbols)
                                masses[after + stop - middle - 1] += total
    return log_partition


def expected_derivation(
    rules: Rules, scores: Scores, leaves: Floats
) -> tuple[ExpectedCounts, float]:
    """Expected counts if derivations have probabilities ``~ exp(score)``, and the log-partition.

    `leaves` ``(length, n_complete)``: score of each symbol at each word. Counts are zeros if there
    is no derivation.

    Examples
    --------
    Three words have two binary bracketings:

    >>> import numpy as np
    >>> from maxmargin.structures.constituency.inference import Scores, make_rules
    >>> from maxmargin.structures.constituency.marginals import expected_derivation
    >>> pairs = np.array([(1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 1)])
    >>> rules = make_rules(2, 2, pairs, np.array([(0, 0), (1, 1)]))
    >>> scores = Scores(np.log([1.0, 3.0, 1.0, 1.0]), np.zeros((1, 2)), np.zeros(2))
    >>> leaves = np.array([[0.0, -np.inf]] * 3)
    >>> expected, log_partition = expected_derivation(rules, scores, leaves)
    >>> expected.rules.round(3).tolist(), round(float(np.exp(log_partition)), 3)
    ([1.0, 0.75, 0.25, 0.0], 4.0)
    """
    length = len(leaves)
    chart, sums = make_chart(length, rules), np.empty(rules.n_symbols)
    inside(rules, scores, leaves, chart, sums)
    expected = ExpectedCounts(
        np.empty(rules.n_rules),
        np.empty((n_cells(length), rules.n_units)),
        np.empty(rules.n_complete),
    )
    scratch = np.empty_like(chart.tops), np.empty_like(sums), sums
    return expected, float(outside(rules, scores, length, chart, expected, *scratch))
