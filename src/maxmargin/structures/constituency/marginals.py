"""Inside-outside: expected counts of rules, units and start symbols of one sentence."""

from typing import Any, NamedTuple

import numpy as np

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.core.arrays import Floats
from maxmargin.structures.constituency.inference import Numbers, Rules, Scores, cell, n_cells


class InsideChart(NamedTuple):
    """Inside log-sums of all symbols at all spans of a sentence.

    - tops ``(n_cells * n_symbols,)``: as the parent sees them; see `row_of_top`;
    - rights ``(length + 1, n_right_symbols, length)``: the same of right children by stop, symbol
      and start;
    - bottoms ``(n_cells, n_complete)``: below the units; see `row_of_span`.

    The others are scratch: ranges of finite scores of each row, scores of one span and factors of
    its sums, and symbols with a finite score at one span.
    """

    tops: Floats
    rights: Floats
    bottoms: Floats
    first: Numbers
    last: Numbers
    first_right: Numbers
    last_right: Numbers
    here: Floats
    totals: Floats
    found: Numbers


def make_inside_chart(length: int, rules: Rules) -> InsideChart:
    """A chart for a sentence of `length` words."""
    cells, n_rights, n_symbols = n_cells(length), len(rules.right_symbols), rules.n_symbols
    return InsideChart(
        np.empty(cells * n_symbols),
        np.empty((length + 1, n_rights, length)),
        np.empty((cells, rules.n_complete)),
        np.empty(n_symbols, dtype=np.int64),
        np.empty(n_symbols, dtype=np.int64),
        np.empty((length + 1, n_rights), dtype=np.int64),
        np.empty((length + 1, n_rights), dtype=np.int64),
        np.empty(n_symbols),
        np.empty(n_symbols),
        np.empty(n_symbols + 1, dtype=np.int64),
    )


def row_of_top(start: Any, symbol: Any, length: int, n_symbols: int) -> Any:
    """Where the tops of a symbol over 1, 2, ... words from `start` begin; also of arrays."""
    return start * (2 * length - start + 1) // 2 * n_symbols + symbol * (length - start)


top_row = inlined(row_of_top)


@inlined
def meeting(first, last, first_right, last_right, start):  # type: ignore[no-untyped-def]
    """First and last split point, in the left row, where both children may have scores."""
    return max(first, first_right - start - 1), min(last, last_right - start - 1)


_NEGLIGIBLE = 40.0
"""Terms by so much below the largest are lost in the rounding of a log-sum."""


@inlined
def _sum_meetings(lefts, row, rights, after, low, high):  # type: ignore[no-untyped-def]
    """Log-sum over the split points of a left and a right child."""
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


@inlined
def _add(score, symbol, chart, n_found):  # type: ignore[no-untyped-def]
    """Raise the log-sum of a symbol at a span; returns the length of ``found``."""
    # Without a branch, which would be guessed wrong too often: the list has a place to spare.
    here, totals = chart.here, chart.totals
    before = here[symbol]
    chart.found[n_found] = symbol
    n_found += (before == -np.inf) & (score > -np.inf)
    if score > before:
        totals[symbol] = totals[symbol] * np.exp(before - score) + 1.0
        here[symbol] = score
    elif score > before - _NEGLIGIBLE:
        totals[symbol] += np.exp(score - before)
    return n_found


@inlined
def _close_sums(chart, n):  # type: ignore[no-untyped-def]
    """Turn the sums of the first `n` symbols into logarithms."""
    for symbol in range(n):
        if chart.totals[symbol] > 0.0:
            chart.here[symbol] += np.log(chart.totals[symbol])
        chart.totals[symbol] = 0.0


@inlined
def _close_span(rules, chart, start, stop, length, n_found):  # type: ignore[no-untyped-def]
    """Move the scores of a span from ``chart.here`` to the rows of left and right children."""
    width = stop - start
    for slot in range(len(rules.right_symbols)):
        score = chart.here[rules.right_symbols[slot]]
        chart.rights[stop, slot, start] = score
        if score > -np.inf:
            chart.first_right[stop, slot] = start
            chart.last_right[stop, slot] = max(chart.last_right[stop, slot], start)
    for f in range(n_found):
        symbol = chart.found[f]
        chart.tops[top_row(start, symbol, length, rules.n_symbols) + width - 1] = chart.here[symbol]
        chart.here[symbol] = -np.inf
        if chart.last[symbol] < 0:
            chart.first[symbol] = width - 1
        chart.last[symbol] = width - 1


@compiled
def inside(rules, scores, leaves, chart):  # type: ignore[no-untyped-def]
    """Fill `chart` with inside log-sums, as `fill_chart` another one with maxima."""
    length, n_complete = leaves.shape
    n_symbols = rules.n_symbols
    varying = len(scores.units) > 1
    here, found = chart.here, chart.found
    here[:] = -np.inf
    chart.totals[:] = 0.0
    chart.first_right[: length + 1] = length
    chart.last_right[: length + 1] = -1
    for start in range(length - 1, -1, -1):
        # Of many symbols few have scores at a span: the others are written in one go.
        chart.last[:] = -1
        first = top_row(start, 0, length, n_symbols)
        chart.tops[first : first + n_symbols * (length - start)] = -np.inf
        for stop in range(start + 1, length + 1):
            n_found = 0
            if stop - start == 1:
                for symbol in range(n_complete):
                    score = leaves[start, symbol]
                    if score > -np.inf:
                        n_found = _add(score, symbol, chart, n_found)
            firsts, lasts = chart.first_right[stop], chart.last_right[stop]
            # Sums are rounded in the order of their terms, which is that of the symbols.
            for symbol in range(n_symbols):
                first, last = chart.first[symbol], chart.last[symbol]
                if last < 0:
                    continue
                row = top_row(start, symbol, length, n_symbols)
                for g in range(rules.left_groups[symbol], rules.left_groups[symbol + 1]):
                    slot = rules.group_slots[g]
                    low, high = meeting(first, last, firsts[slot], lasts[slot], start)
                    if low > high:
                        continue
                    rights = chart.rights[stop, slot]
                    both = _sum_meetings(chart.tops, row, rights, start + 1, low, high)
                    if both > -np.inf:
                        for r in range(rules.group_rules[g], rules.group_rules[g + 1]):
                            score = both + scores.rules[r]
                            n_found = _add(score, rules.parents[r], chart, n_found)
            _close_sums(chart, n_symbols)
            # So far these are bottoms; parts stay as they are.
            bottoms = chart.bottoms[cell(start, stop, length)]
            for symbol in range(n_complete):
                bottoms[symbol] = here[symbol]
                here[symbol] = -np.inf
            n_parts = 0
            for f in range(n_found):
                if found[f] >= n_complete:
                    found[n_parts] = found[f]
                    n_parts += 1
            n_found = n_parts
            units = scores.units[cell(start, stop, length) * varying]
            for u in range(len(units)):
                score = bottoms[rules.unit_bottoms[u]] + units[u]
                if score > -np.inf:
                    n_found = _add(score, rules.unit_tops[u], chart, n_found)
            _close_sums(chart, n_complete)
            _close_span(rules, chart, start, stop, length, n_found)


@inlined
def _start_marginals(n_symbols, starts, chart, length, expected):  # type: ignore[no-untyped-def]
    """Marginals of the start symbols; returns the log-partition function."""
    highest = -np.inf
    for symbol in range(len(starts)):
        whole = chart.tops[top_row(0, symbol, length, n_symbols) + length - 1]
        expected[symbol] = starts[symbol] + whole
        highest = max(highest, expected[symbol])
    total = 0.0
    for symbol in range(len(starts)):
        expected[symbol] = np.exp(expected[symbol] - highest) if highest > -np.inf else 0.0
        total += expected[symbol]
    for symbol in range(len(starts)):
        expected[symbol] /= max(total, 1.0)
    return highest + np.log(max(total, 1.0))


@compiled
def outside(rules, scores, length, chart, expected, masses):  # type: ignore[no-untyped-def]
    """Fill `expected` from the `chart` of `inside`; returns the log-partition function.

    Distributes the marginal of a symbol over the terms of its sum in proportion, so that marginals
    add up. Scratch: `masses` as ``chart.tops``.
    """
    mass, sums = chart.here, chart.totals
    n_complete, n_symbols = rules.n_complete, rules.n_symbols
    varying = len(scores.units) > 1
    expected.rules[:] = 0.0
    expected.units[:] = 0.0
    masses[: length * (length + 1) // 2 * n_symbols] = 0.0
    log_partition = _start_marginals(n_symbols, scores.starts, chart, length, expected.starts)
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


def expected_derivation(rules: Rules, scores: Scores, leaves: Floats) -> tuple[Scores, float]:
    """Expected counts under ``p ~ exp(score)``, zeros without derivations, and log-partition."""
    length = len(leaves)
    chart = make_inside_chart(length, rules)
    inside(rules, scores, leaves, chart)
    expected = Scores(
        np.empty(rules.n_rules),
        np.empty((n_cells(length), rules.n_units)),
        np.empty(rules.n_complete),
    )
    masses = np.empty_like(chart.tops)
    return expected, float(outside(rules, scores, length, chart, expected, masses))
