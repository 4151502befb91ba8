"""CKY over the derivations of one sentence by a weighted grammar: best, k best.

Symbols below `n_complete` are complete, the others intermediate symbols of the binarisation. At a
span, a *unit* (collapsed unary chain) leads from the complete *top* symbol that the parent sees to
the *bottom*, which a binary *rule* splits or a leaf scores; intermediate symbols have no unit. The
score sums rules, units, leaves and the start symbol; -inf forbids.

A derivation is int32 ``(2 * length - 1, 4)``, its nodes in preorder: start, stop, unit (-1 for
intermediate symbols) and rule (-1 for leaves). The right child of row `p` is in row ``p + 2 *
(words of the left child)``.
"""

from functools import cache
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.compiled.simd import LANES
from maxmargin.core.arrays import Floats
from maxmargin.structures.constituency.splits import (
    move_row,
    raise_parents,
    raise_row,
    row_of_width,
    row_stride,
    triangle,
    triangle_row,
)

Numbers = NDArray[np.int64]
Nodes = NDArray[np.int32]


class Rules(NamedTuple):
    """An indexed grammar without its scores; see `make_rules`.

    Rules are sorted by left, then right child; those that share both are a *group*, whose split
    points are compared once. Indices are unsigned, as numba tests the sign of others.
    """

    n_complete: int
    n_symbols: int
    parents: NDArray[np.uint32]
    lefts: NDArray[np.uint32]
    rights: NDArray[np.uint32]
    left_groups: NDArray[np.uint64]
    """The groups of left child `b` are ``left_groups[b] .. left_groups[b + 1] - 1``."""
    group_rights: NDArray[np.uint32]
    """Right child of each group."""
    right_symbols: NDArray[np.uint32]
    """All right children."""
    group_slots: NDArray[np.uint32]
    """Index of each group's right child in `right_symbols`."""
    group_rules: NDArray[np.uint64]
    """The rules of group `g` are ``group_rules[g] .. group_rules[g + 1] - 1``."""
    parent_starts: Numbers
    """The rules of parent `a` are ``of_parent[parent_starts[a] : parent_starts[a + 1]]``."""
    of_parent: NDArray[np.uint32]
    unit_tops: NDArray[np.uint32]
    unit_bottoms: NDArray[np.uint32]
    unit_starts: Numbers
    """The units of top `a` are ``unit_starts[a] .. unit_starts[a + 1] - 1``."""

    @property
    def n_rules(self) -> int:
        return len(self.parents)

    @property
    def n_units(self) -> int:
        return len(self.unit_tops)


class Scores(NamedTuple):
    """Of rules, of units ``(n_cells, n_units)`` or ``(1, n_units)``, and of start symbols.

    Also holds the expected counts of these.
    """

    rules: Floats
    units: Floats
    starts: Floats


class Chart(NamedTuple):
    """Viterbi scores of all symbols at all spans of a sentence.

    - tops ``(n_symbols * triangle,)``: as the parent sees them, in triangles as in `splits`; a row
      is only there if the symbol has a score at spans of fewer words, or as many, and of more;
    - bottoms ``(n_complete * triangle,)``: below the units, by width, symbol and start;
    - extents ``(n_symbols, 12)``: where a symbol has scores, see `_FEWEST` and so on.

    The others are scratch: scores of all spans of one width, when each symbol had one last, left
    symbols that have a score anywhere, symbols that may have one at a width, and pairs that meet.
    """

    tops: Floats
    bottoms: Floats
    extents: Numbers
    here: Floats
    met: Numbers
    live: NDArray[np.uint32]
    found: NDArray[np.uint32]
    meetings: NDArray[np.uint32]


_FEWEST, _MOST, _FIRST_START, _LAST_START, _FIRST_STOP, _LAST_STOP = range(6)
"""Columns of ``Chart.extents``: least and largest width, start and stop of spans with a score."""
_WIDTHS, _STARTS, _STOPS, _ENDS, _BACK, _BEGINS = range(6, 12)
"""And bits, modulo 64, of their widths, starts and stops; of stop and start, each modulo 8, with
the stop in front; of negative widths; of start and stop, with the start in front."""


def make_rules(
    n_complete: int,
    n_symbols: int,
    binary: NDArray[np.int64],
    units: NDArray[np.int64],
) -> Rules:
    """Index binary rules ``(n_rules, 3)`` and units ``(n_units, 2)``.

    A rule is parent, left and right symbol, sorted by left, right and parent; a unit is top and
    bottom symbol, both complete, sorted by top. A symbol that may stand for itself needs a unit
    that says so.
    """
    parents, lefts, rights = np.asarray(binary, dtype=np.int64).reshape(-1, 3).T
    tops, bottoms = np.asarray(units, dtype=np.int64).reshape(-1, 2).T
    order = np.lexsort((parents, rights, lefts))
    if (order != np.arange(len(order))).any() or (np.diff(tops) < 0).any():
        raise ValueError("Rules must be sorted by left, right and parent, and units by their top.")
    group = lefts * n_symbols + rights
    first = np.flatnonzero(np.r_[True, np.diff(group) != 0][: len(group)])
    right_symbols, slots = np.unique(rights[first], return_inverse=True)
    every_symbol = np.arange(n_symbols + 1)
    narrow = np.uint32
    return Rules(
        n_complete,
        n_symbols,
        parents.astype(narrow),
        lefts.astype(narrow),
        rights.astype(narrow),
        np.searchsorted(lefts[first], every_symbol).astype(np.uint64),
        rights[first].astype(narrow),
        right_symbols.astype(narrow),
        slots.astype(narrow),
        np.r_[first, len(group)].astype(np.uint64),
        np.searchsorted(np.sort(parents), every_symbol),
        np.argsort(parents, kind="stable").astype(narrow),
        tops.astype(narrow),
        bottoms.astype(narrow),
        np.searchsorted(tops, every_symbol[: n_complete + 1]),
    )


def n_cells(length: int) -> int:
    """Number of spans of a sentence."""
    return length * (length + 1) // 2


def make_chart(length: int, rules: Rules) -> Chart:
    """A chart for sentences of up to `length` words."""
    n_symbols, places = rules.n_symbols, triangle(length)
    return Chart(
        np.empty(n_symbols * places),
        np.empty(rules.n_complete * places),
        np.empty((n_symbols, 12), dtype=np.int64),
        np.empty(n_symbols * row_stride(1, length)),
        np.empty(n_symbols, dtype=np.int64),
        # Lists have a place to spare.
        np.empty(n_symbols + 1, dtype=np.uint32),
        np.empty(n_symbols + 1, dtype=np.uint32),
        np.empty(len(rules.group_rights) + 1, dtype=np.uint32),
    )


def row_of_span(start: Any, stop: Any, length: int) -> Any:
    """Row of the span ``start .. stop - 1`` in scores of units; also of arrays."""
    return start * (2 * length - start + 1) // 2 + stop - start - 1


cell, places_of, stride_of = inlined(row_of_span), inlined(triangle), inlined(row_stride)


@inlined
def top_score(chart, start, stop, symbol, length):  # type: ignore[no-untyped-def]
    """Score of a symbol at a span, as its parent sees it."""
    width = stop - start
    score = -np.inf
    if chart.extents[symbol, _FEWEST] <= width <= chart.extents[symbol, _MOST]:
        score = chart.tops[symbol * places_of(length) + triangle_row(width, length) + start]
    return score


def row_of_bottom(symbol: Any, width: Any, length: int, n_complete: int) -> Any:
    """Where the bottoms of a symbol begin; also of arrays."""
    return n_complete * row_of_width(width, length) + symbol * row_stride(width, length)


@inlined
def bottom_row(symbol, width, length, n_complete):  # type: ignore[no-untyped-def]
    """`row_of_bottom`."""
    return n_complete * triangle_row(width, length) + symbol * stride_of(width, length)


@inlined
def bottom_score(rules, chart, start, stop, symbol, length):  # type: ignore[no-untyped-def]
    """Score of a complete symbol at a span, below the units."""
    row = bottom_row(np.int64(symbol), stop - start, length, rules.n_complete)
    return chart.bottoms[row + start]


@inlined
def _note(chart, symbol, turn, n_found):  # type: ignore[no-untyped-def]
    """List a symbol, once in each turn; returns the length of ``chart.found``."""
    # Without a branch, which would be guessed wrong too often.
    chart.found[n_found] = symbol
    n_found += chart.met[symbol] != turn
    chart.met[symbol] = turn
    return n_found


@inlined
def turned(bits, steps):  # type: ignore[no-untyped-def]
    """64 bits, so many places higher, and the highest as the lowest."""
    bits, steps = np.uint64(bits), np.uint64(steps & 63)
    return np.int64((bits << steps) | (bits >> (np.uint64(64) - steps & np.uint64(63))))


_BYTES = np.uint64(0x0101010101010101)
_DIAGONAL = np.uint64(0x8040201008040201)


@inlined
def squared(starts, width):  # type: ignore[no-untyped-def]
    """Bits of start and stop, and of stop and start, modulo 8, from bits of starts.

    The first of the two says which byte, the second which bit of it.
    """
    bits = np.uint64(starts)
    for step in (np.uint64(32), np.uint64(16), np.uint64(8)):
        bits |= bits >> step
    # Each start at itself; then bits are turned within their bytes, or whole bytes.
    same = ((bits & np.uint64(255)) * _BYTES) & _DIAGONAL
    steps = np.uint64(width & 7)
    low = _BYTES * ((np.uint64(1) << steps) - np.uint64(1))
    begins = ((same << steps) & ~low) | ((same >> (np.uint64(8) - steps)) & low)
    return np.int64(begins), turned(np.int64(same), 8 * width)


@inlined
def _meetings(rules, chart, left, width):  # type: ignore[no-untyped-def]
    """List the groups of a left symbol that may meet the right one; returns their number."""
    extents = chart.extents
    # What the right child must have one of: the words that the left one leaves, a start where it
    # stops, a stop so many words after it starts, and both at once.
    widths = turned(extents[left, _BACK], width)
    starts, stops = extents[left, _STOPS], turned(extents[left, _STARTS], width)
    ends = turned(extents[left, _BEGINS], 8 * width)
    n = 0
    for g in range(rules.left_groups[left], rules.left_groups[left + 1]):
        right = rules.group_rights[g]
        chart.meetings[n] = g
        n += (
            ((extents[right, _WIDTHS] & widths) != 0)
            & ((extents[right, _STARTS] & starts) != 0)
            & ((extents[right, _STOPS] & stops) != 0)
            & ((extents[right, _ENDS] & ends) != 0)
        )
    return n


@inlined
def _join(rules, scores, chart, length, width, n_live, n_found):  # type: ignore[no-untyped-def]
    """Raise the scores of all parents at spans of a width; returns the length of ``found``."""
    extents, places, stride = chart.extents, places_of(length), stride_of(width, length)
    for f in range(n_live):
        left = chart.live[f]
        least, most = extents[left, _FEWEST], extents[left, _MOST]
        first, last = extents[left, _FIRST_START], extents[left, _LAST_START]
        for m in range(_meetings(rules, chart, left, width)):
            g = chart.meetings[m]
            right = rules.group_rights[g]
            low = max(least, width - extents[right, _MOST])
            high = min(most, width - extents[right, _FEWEST])
            # Vectors begin at the same places whatever the symbols: to read what was just written,
            # but to other bounds, would have to wait.
            start = max(first, extents[right, _FIRST_STOP] - width) & -LANES
            stop = min(last, extents[right, _LAST_STOP] - width)
            first_rule, last_rule = rules.group_rules[g], rules.group_rules[g + 1]
            raise_parents(
                chart.tops,
                left * places + triangle_row(low, length) + start,
                right * places + triangle_row(width - low, length) + start + low,
                stride_of(low, length), width - low - length - LANES,
                high - low + 1, stop - start + 1,
                chart.here, start, stride, rules.parents, scores.rules,
                np.int64(first_rule), np.int64(last_rule),
            )  # fmt: skip
            for r in range(first_rule, last_rule):
                n_found = _note(chart, rules.parents[r], 2 * width, n_found)
    return n_found


@inlined
def _lift(rules, units, chart, length, width, n_found):  # type: ignore[no-untyped-def]
    """Turn the scores of complete symbols from bottoms into tops; returns the length of ``found``.

    They leave ``chart.here``, and come back through the units.
    """
    n_complete, stride, n_starts = rules.n_complete, stride_of(width, length), length - width + 1
    first = bottom_row(0, width, length, n_complete)
    bottoms = chart.bottoms[first : first + n_complete * stride]
    for p in range(len(bottoms)):
        bottoms[p] = chart.here[p]
        chart.here[p] = -np.inf
    n_parts = 0
    for f in range(n_found):
        symbol = chart.found[f]
        chart.found[n_parts] = symbol
        n_parts += symbol >= n_complete
    n_found = n_parts
    for u in range(len(rules.unit_tops)):
        top, bottom = rules.unit_tops[u], rules.unit_bottoms[u]
        # Complete symbols are met twice, as bottoms and as tops: hence two turns for each width.
        if chart.met[bottom] >= 2 * width:
            if len(units) > 1:
                for start in range(n_starts):
                    score = bottoms[bottom * stride + start]
                    score += units[cell(start, start + width, length), u]
                    own = top * stride + start
                    chart.here[own] = max(chart.here[own], score)
            else:
                raise_row(bottoms, bottom * stride, units[0, u], chart.here, top * stride, n_starts)
            n_found = _note(chart, top, 2 * width + 1, n_found)
    return n_found


@inlined
def _close(rules, chart, length, width, n_found, n_live):  # type: ignore[no-untyped-def]
    """Move the scores of a width from ``here`` to ``tops``; returns the length of ``live``."""
    tops, extents = chart.tops, chart.extents
    places, stride, n_starts = places_of(length), stride_of(width, length), length - width + 1
    for f in range(n_found):
        symbol = chart.found[f]
        row = symbol * places + triangle_row(width, length)
        first, last, starts = move_row(chart.here, symbol * stride, tops, row, n_starts)
        if last >= 0:
            if extents[symbol, _MOST] < 0:
                extents[symbol, _FEWEST] = width
                chart.live[n_live] = symbol
                n_live += rules.left_groups[symbol + 1] > rules.left_groups[symbol]
            else:
                # Rows between two that have scores are looked at, too.
                gap = symbol * places + triangle_row(extents[symbol, _MOST] + 1, length)
                tops[gap:row] = -np.inf
            extents[symbol, _MOST] = width
            extents[symbol, _FIRST_START] = min(extents[symbol, _FIRST_START], first)
            extents[symbol, _LAST_START] = max(extents[symbol, _LAST_START], last)
            extents[symbol, _FIRST_STOP] = min(extents[symbol, _FIRST_STOP], first + width)
            extents[symbol, _LAST_STOP] = max(extents[symbol, _LAST_STOP], last + width)
            extents[symbol, _WIDTHS] |= turned(1, width)
            extents[symbol, _BACK] |= turned(1, -width)
            extents[symbol, _STARTS] |= starts
            extents[symbol, _STOPS] |= turned(starts, width)
            begins, ends = squared(starts, width)
            extents[symbol, _BEGINS] |= begins
            extents[symbol, _ENDS] |= ends
    return n_live


@compiled
def fill_chart(rules, scores, leaves, chart):  # type: ignore[no-untyped-def]
    """Fill `chart` with Viterbi scores, given leaf scores ``(length, n_complete)``."""
    # Spans of one width at a time, narrow ones first. A pair of children is looked at once for all
    # of them: of many symbols few have scores, and where they do mostly tells that two never meet.
    length, n_complete = leaves.shape
    chart.here[: rules.n_symbols * stride_of(1, length)] = -np.inf
    for symbol in range(rules.n_symbols):
        chart.met[symbol] = 0
        for column in range(_WIDTHS):
            least = column % 2 == 0
            chart.extents[symbol, column] = 2 * length if least else -1
        chart.extents[symbol, _WIDTHS:] = 0
    n_live = 0
    for width in range(1, length + 1):
        n_found = 0
        if width == 1:
            for start in range(length):
                for symbol in range(n_complete):
                    if leaves[start, symbol] > -np.inf:
                        chart.here[symbol * stride_of(1, length) + start] = leaves[start, symbol]
                        n_found = _note(chart, symbol, 2 * width, n_found)
        else:
            n_found = _join(rules, scores, chart, length, width, n_live, n_found)
        n_found = _lift(rules, scores.units, chart, length, width, n_found)
        n_live = _close(rules, chart, length, width, n_found, n_live)


@inlined
def _best_unit(rules, scores, chart, length, start, stop, top, but):  # type: ignore[no-untyped-def]
    """The best unit of a top symbol other than `but`, and its score with the bottom's."""
    chosen = -1
    highest = -np.inf
    units = scores.units[cell(start, stop, length) * (len(scores.units) > 1)]
    for u in range(rules.unit_starts[top], rules.unit_starts[top + 1]):
        score = bottom_score(rules, chart, start, stop, rules.unit_bottoms[u], length) + units[u]
        if score > highest and u != but:
            highest = score
            chosen = u
    return chosen, highest


@inlined
def _best_rule(rules, scores, chart, length, start, stop, bottom, but, but_middle):  # type: ignore[no-untyped-def]
    """The best rule and split point of a bottom symbol, and its score.

    rules, scores, chart, length, start, stop, bottom : the span and its symbol
    but, but_middle : a rule and split point that are left out; -1 for none
    """
    chosen = -1
    chosen_middle = -1
    highest = -np.inf
    extents, tops, places, width = chart.extents, chart.tops, places_of(length), stop - start
    for q in range(rules.parent_starts[bottom], rules.parent_starts[bottom + 1]):
        r = int(rules.of_parent[q])
        left, right = np.int64(rules.lefts[r]), np.int64(rules.rights[r])
        low = max(extents[left, _FEWEST], width - extents[right, _MOST])
        high = min(extents[left, _MOST], width - extents[right, _FEWEST])
        for t in range(low, high + 1):
            before = tops[left * places + triangle_row(t, length) + start]
            after = tops[right * places + triangle_row(width - t, length) + start + t]
            score = before + after + scores[r]
            if score > highest and (r != but or start + t != but_middle):
                highest = score
                chosen = r
                chosen_middle = start + t
    return chosen, chosen_middle, highest


@inlined
def _place(nodes, row, start, stop, symbol):  # type: ignore[no-untyped-def]
    """Write a node of which only span and symbol are known."""
    nodes[row, 0] = start
    nodes[row, 1] = stop
    nodes[row, 2] = symbol
    nodes[row, 3] = -1


@compiled
def trace(rules, scores, length, chart, nodes, first, unit, rule, middle):  # type: ignore[no-untyped-def]
    """Follow the best choices down from row `first`, whose span and top are known.

    rules, scores, length, chart : as `fill_chart` left them
    nodes ``(2 * length - 1, 4)`` : the derivation, filled from row `first` on
    unit, rule, middle : choices at the first node; -1 for the best
    """
    stop_row = first + 2 * (nodes[first, 1] - nodes[first, 0]) - 1
    for row in range(first, stop_row):
        start, stop = np.int64(nodes[row, 0]), np.int64(nodes[row, 1])
        bottom = np.int64(nodes[row, 2])
        nodes[row, 2] = -1
        if bottom < rules.n_complete:
            if unit < 0:
                unit, _ = _best_unit(rules, scores, chart, length, start, stop, bottom, -1)
            nodes[row, 2] = unit
            bottom = np.int64(rules.unit_bottoms[unit])
        if stop - start > 1:
            if rule < 0:
                rule, middle, _ = _best_rule(
                    rules, scores.rules, chart, length, start, stop, bottom, -1, -1
                )
            nodes[row, 3] = rule
            _place(nodes, row + 1, start, middle, rules.lefts[rule])
            _place(nodes, row + 2 * (middle - start), middle, stop, rules.rights[rule])
        unit, rule, middle = -1, -1, -1


@inlined
def _best_start(rules, starts, chart, length, but):  # type: ignore[no-untyped-def]
    """The best start symbol other than `but`, and its score."""
    chosen = -1
    highest = -np.inf
    for symbol in range(rules.n_complete):
        score = starts[symbol] + top_score(chart, 0, length, symbol, length)
        if score > highest and symbol != but:
            highest = score
            chosen = symbol
    return chosen, highest


@compiled
def best_nodes(rules, scores, length, chart, nodes):  # type: ignore[no-untyped-def]
    """Set `nodes` to the best derivation in a filled `chart`; returns its score, -inf for none."""
    symbol, score = _best_start(rules, scores.starts, chart, length, -1)
    if symbol >= 0:
        _place(nodes, 0, 0, length, symbol)
        none = np.int64(-1)
        trace(rules, scores, length, chart, nodes, np.int64(0), none, none, none)
    return score


@compiled
def next_nodes(rules, scores, length, chart, nodes):  # type: ignore[no-untyped-def]
    """Turn the best derivation into the second best; returns the loss of score, inf for none."""
    # The second best takes another way at exactly one node of the best, and the best way below:
    # with two such nodes, to go back to the best at one of them would not make it worse.
    varying = len(scores.units) > 1
    top = np.int64(rules.unit_tops[nodes[0, 2]])
    score = scores.starts[top] + top_score(chart, 0, length, top, length)
    symbol, highest = _best_start(rules, scores.starts, chart, length, top)
    least = score - highest
    row, unit, rule, place = 0, np.int64(-1), np.int64(-1), np.int64(-1)
    for p in range(2 * length - 1):
        start, stop = np.int64(nodes[p, 0]), np.int64(nodes[p, 1])
        own_unit, own_rule = np.int64(nodes[p, 2]), np.int64(nodes[p, 3])
        top = bottom = np.int64(rules.parents[own_rule]) if own_rule >= 0 else np.int64(-1)
        if own_unit >= 0:
            top = np.int64(rules.unit_tops[own_unit])
            other, highest = _best_unit(rules, scores, chart, length, start, stop, top, own_unit)
            below = bottom_score(rules, chart, start, stop, rules.unit_bottoms[own_unit], length)
            score = scores.units[cell(start, stop, length) * varying, own_unit] + below
            if score - highest < least:
                least = score - highest
                row, symbol, unit, rule = p, top, other, np.int64(-1)
        if own_rule >= 0:
            middle = np.int64(nodes[p + 1, 1])
            left, right = np.int64(rules.lefts[own_rule]), np.int64(rules.rights[own_rule])
            score = top_score(chart, start, middle, left, length) + scores.rules[own_rule]
            score += top_score(chart, middle, stop, right, length)
            other, other_middle, highest = _best_rule(
                rules, scores.rules, chart, length, start, stop, bottom, own_rule, middle
            )
            if score - highest < least:
                least = score - highest
                row, symbol, unit, rule, place = p, top, own_unit, other, other_middle
    if least < np.inf:
        nodes[row, 2] = symbol
        trace(rules, scores, length, chart, nodes, np.int64(row), unit, rule, place)
    return least


def best_derivation(rules: Rules, scores: Scores, leaves: Floats) -> tuple[Nodes, float]:
    """The best derivation and its score, -inf for none; `leaves` ``(length, n_complete)``."""
    length = len(leaves)
    chart, nodes = make_chart(length, rules), np.zeros((2 * length - 1, 4), dtype=np.int32)
    fill_chart(rules, scores, leaves, chart)
    return nodes, float(best_nodes(rules, scores, length, chart, nodes))


@compiled
def set_leaves(leaves, first, weights, scores):  # type: ignore[no-untyped-def]
    """Set the scores of the tags of ``len(scores)`` words, from the word `first` on."""
    scores[:] = -np.inf
    for t in range(len(scores)):
        for q in range(leaves.starts[first + t], leaves.starts[first + t + 1]):
            column = leaves.columns[q]
            scores[t, leaves.symbols[q]] = weights[column] if column >= 0 else 0.0


@compiled
def list_columns(rules, units, start_columns, leaves, first_word, nodes, columns, at):  # type: ignore[no-untyped-def]
    """Write the columns that a derivation uses from `at` on, with repeats; returns the end."""
    columns[at] = start_columns[rules.unit_tops[nodes[0, 2]]]
    at += 1
    for p in range(len(nodes)):
        unit, rule = nodes[p, 2], nodes[p, 3]
        if unit >= 0:
            for q in range(units.column_starts[unit], units.column_starts[unit + 1]):
                columns[at] = units.columns[q]
                at += 1
        column = np.int64(rule)
        if rule < 0:
            word, tag = first_word + nodes[p, 0], rules.unit_bottoms[unit]
            for q in range(leaves.starts[word], leaves.starts[word + 1]):
                if leaves.symbols[q] == tag:
                    column = leaves.columns[q]
        if column >= 0:
            columns[at] = column
            at += 1
    return at


def top_scores(chart: Chart, start: Any, stop: Any, symbols: NDArray[Any], length: int) -> Floats:
    """`top_score` of arrays."""
    symbols, width = symbols.astype(np.int64), stop - start
    there = (chart.extents[symbols, _FEWEST] <= width) & (width <= chart.extents[symbols, _MOST])
    places = symbols * triangle(length) + row_of_width(width, length) + start
    found: Floats = np.where(there, chart.tops[places], -np.inf)
    return found


def best_derivations(
    rules: Rules, scores: Scores, leaves: Floats, k: int
) -> list[tuple[Nodes, float]]:
    """The k best derivations, best first: A* with the Viterbi chart as exact heuristic."""
    length = len(leaves)
    chart = make_chart(length, rules)
    fill_chart(rules, scores, leaves, chart)

    @cache
    def choices(start: int, stop: int, symbol: int, is_open: bool) -> list[tuple[Any, ...]]:
        """The k best ways to complete a node: loss of score, unit or rule, split point."""
        if is_open:
            numbers = np.arange(*rules.unit_starts[symbol : symbol + 2])
            here = row_of_span(start, stop, length) if len(scores.units) > 1 else 0
            symbols = rules.unit_bottoms[numbers].astype(np.int64)
            rows = row_of_bottom(symbols, stop - start, length, rules.n_complete)
            below = chart.bottoms[rows + start]
            values = scores.units[here, numbers] + below
            middles = np.full(len(numbers), stop)
        else:
            of_parent = rules.of_parent[slice(*rules.parent_starts[symbol : symbol + 2])]
            splits = np.arange(start + 1, stop)
            left = top_scores(chart, start, splits[:, None], rules.lefts[of_parent], length)
            right = top_scores(chart, splits[:, None], stop, rules.rights[of_parent], length)
            values = (left + right + scores.rules[of_parent]).ravel()
            numbers, middles = np.tile(of_parent, len(splits)), np.repeat(splits, len(of_parent))
        possible = np.flatnonzero(values > -np.inf)
        order = possible[np.argsort(-values[possible], kind="stable")[:k]]
        losses = values[order[:1]] - values[order]
        columns = losses.tolist(), numbers[order].tolist(), middles[order].tolist()
        return list(zip(*columns, strict=True))

    whole = scores.starts + top_scores(chart, 0, length, np.arange(rules.n_complete), length)
    # Nodes that are done, and those still open: start, stop, symbol and unit, the symbol being the
    # top while the unit is None, then the bottom. Of ties comes the one that was expanded last: no
    # second one is begun before the first is done.
    turn = count(0, -1)
    heap: list[Any] = [
        (-score, next(turn), 0, (), ((0, length, symbol, None),))
        for symbol, score in enumerate(whole.tolist())
        if score > -np.inf
    ]
    heapify(heap)
    found: list[tuple[Nodes, float]] = []
    while heap and len(found) < k:
        lost, _, rank, done, todo = heappop(heap)
        (start, stop, symbol, unit), *rest = todo
        ways = choices(start, stop, symbol, unit is None)
        loss, number, middle = ways[rank]
        if rank + 1 < len(ways):
            more = ways[rank + 1][0] - loss
            heappush(heap, (lost + more, next(turn), rank + 1, done, todo))
        if unit is not None:
            done = *done, (start, stop, unit, number)
            left, right = int(rules.lefts[number]), int(rules.rights[number])
            units = [None if child < rules.n_complete else -1 for child in (left, right)]
            rest = [(start, middle, left, units[0]), (middle, stop, right, units[1]), *rest]
        elif stop - start == 1:
            done = *done, (start, stop, number, -1)
        else:
            rest = [(start, stop, int(rules.unit_bottoms[number]), number), *rest]
        if rest:
            heappush(heap, (lost, next(turn), 0, done, rest))
        else:
            found.append((np.array(done, dtype=np.int32), 0.0 - lost))
    return found
