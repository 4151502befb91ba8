"""CKY over the derivations of one sentence by a weighted grammar: best, k best, inside-outside.

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
from maxmargin.compiled.simd import LANES, highest_sum
from maxmargin.core.arrays import Floats

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
    right_slots: NDArray[np.uint32]
    """Index of each rule's right child in `right_symbols`."""
    right_symbols: NDArray[np.uint32]
    left_groups: NDArray[np.uint64]
    """The groups of left child `b` are ``left_groups[b] .. left_groups[b + 1] - 1``."""
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
    """Viterbi scores, or inside log-sums, of all symbols at all spans of a sentence.

    - tops ``(n_cells * n_symbols + LANES - 1,)``: as the parent sees them; see `row_of_top`;
    - rights ``(length + 1, n_right_symbols, length + LANES - 1)``: the same of right children by
      stop, symbol and start, so that vectors are contiguous; -inf for a vector from the stop on;
    - bottoms ``(n_cells, n_complete)``: below the units; see `row_of_span`.

    The others are scratch: ranges of finite scores of each row, scores of one span and factors of
    its sums, and symbols with a finite score at any span of one start, and at one span.
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
    live: Numbers
    found: Numbers


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
    right_symbols, slots = np.unique(rights, return_inverse=True)
    every_symbol = np.arange(n_symbols + 1)
    narrow = np.uint32
    return Rules(
        n_complete,
        n_symbols,
        parents.astype(narrow),
        lefts.astype(narrow),
        rights.astype(narrow),
        slots.astype(narrow),
        right_symbols.astype(narrow),
        np.searchsorted(lefts[first], every_symbol).astype(np.uint64),
        slots[first].astype(narrow),
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
    cells, n_rights, n_symbols = n_cells(length), len(rules.right_symbols), rules.n_symbols
    return Chart(
        # Meetings are looked at in whole vectors, which may end after the last one.
        np.empty(cells * n_symbols + LANES - 1),
        np.empty((length + 1, n_rights, length + LANES - 1)),
        np.empty((cells, rules.n_complete)),
        np.empty(n_symbols, dtype=np.int64),
        np.empty(n_symbols, dtype=np.int64),
        np.empty((length + 1, n_rights), dtype=np.int64),
        np.empty((length + 1, n_rights), dtype=np.int64),
        np.empty(n_symbols),
        np.empty(n_symbols),
        np.empty(n_symbols, dtype=np.int64),
        np.empty(n_symbols + 1, dtype=np.int64),
    )


def row_of_span(start: Any, stop: Any, length: int) -> Any:
    """Row of the span ``start .. stop - 1`` in a chart; also of arrays."""
    return start * (2 * length - start + 1) // 2 + stop - start - 1


def row_of_top(start: Any, symbol: Any, length: int, n_symbols: int) -> Any:
    """Where the tops of a symbol over 1, 2, ... words from `start` begin; also of arrays."""
    return start * (2 * length - start + 1) // 2 * n_symbols + symbol * (length - start)


cell = inlined(row_of_span)
top_row = inlined(row_of_top)


@inlined
def top_score(rules, chart, start, stop, symbol, length):  # type: ignore[no-untyped-def]
    """Score of a symbol at a span, as its parent sees it."""
    return chart.tops[top_row(start, symbol, length, rules.n_symbols) + stop - start - 1]


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
def _add(score, symbol, chart, n_found, as_logs):  # type: ignore[no-untyped-def]
    """Raise the score of a symbol at a span, or its log-sum; returns the length of ``found``."""
    # Without a branch, which would be guessed wrong too often: the list has a place to spare.
    here, totals = chart.here, chart.totals
    before = here[symbol]
    chart.found[n_found] = symbol
    n_found += (before == -np.inf) & (score > -np.inf)
    if not as_logs:
        here[symbol] = max(before, score)
    elif score > before:
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
def _close_span(rules, chart, start, stop, length, n_found, n_live):  # type: ignore[no-untyped-def]
    """Move the scores of a span from ``chart.here`` to the rows of left and right children.

    Returns the length of ``chart.live``.
    """
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
            chart.live[n_live] = symbol
            n_live += 1
        chart.last[symbol] = width - 1
    return n_live


@inlined
def _cky(rules, scores, leaves, chart, as_logs):  # type: ignore[no-untyped-def]
    """Fill `chart` with Viterbi scores or, `as_logs`, with inside log-sums."""
    length, n_complete = leaves.shape
    n_symbols = rules.n_symbols
    varying = len(scores.units) > 1
    here, found = chart.here, chart.found
    here[:] = -np.inf
    chart.totals[:] = 0.0
    chart.first_right[: length + 1] = length
    chart.last_right[: length + 1] = -1
    for stop in range(length + 1):
        chart.rights[stop, :, stop : stop + LANES - 1] = -np.inf
    for start in range(length - 1, -1, -1):
        # Of many symbols few have scores at a span: the others are written in one go, and what
        # follows looks at lists.
        chart.last[:] = -1
        first = top_row(start, 0, length, n_symbols)
        chart.tops[first : first + n_symbols * (length - start)] = -np.inf
        n_live = 0
        for stop in range(start + 1, length + 1):
            n_found = 0
            if stop - start == 1:
                for symbol in range(n_complete):
                    score = leaves[start, symbol]
                    if score > -np.inf:
                        n_found = _add(score, symbol, chart, n_found, as_logs)
            firsts, lasts = chart.first_right[stop], chart.last_right[stop]
            # Sums are rounded in the order of their terms, which is that of the symbols.
            for f in range(n_symbols if as_logs else n_live):
                symbol = f if as_logs else chart.live[f]
                first, last = chart.first[symbol], chart.last[symbol]
                if last < 0:
                    continue
                row = top_row(start, symbol, length, n_symbols)
                for g in range(rules.left_groups[symbol], rules.left_groups[symbol + 1]):
                    slot = rules.group_slots[g]
                    low, high = meeting(first, last, firsts[slot], lasts[slot], start)
                    if low > high:
                        continue
                    if as_logs:
                        rights = chart.rights[stop, slot]
                        both = _sum_meetings(chart.tops, row, rights, start + 1, low, high)
                    else:
                        right = (stop * chart.rights.shape[1] + slot) * chart.rights.shape[2]
                        both = highest_sum(
                            chart.tops, row + low, chart.rights, right + start + 1 + low,
                            high - low + 1,
                        )  # fmt: skip
                    if both > -np.inf:
                        for r in range(rules.group_rules[g], rules.group_rules[g + 1]):
                            score = both + scores.rules[r]
                            n_found = _add(score, rules.parents[r], chart, n_found, as_logs)
            if as_logs:
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
                    n_found = _add(score, rules.unit_tops[u], chart, n_found, as_logs)
            if as_logs:
                _close_sums(chart, n_complete)
            n_live = _close_span(rules, chart, start, stop, length, n_found, n_live)


@compiled
def fill_chart(rules, scores, leaves, chart):  # type: ignore[no-untyped-def]
    """Fill `chart` with Viterbi scores, given leaf scores ``(length, n_complete)``."""
    _cky(rules, scores, leaves, chart, False)


@compiled
def inside(rules, scores, leaves, chart):  # type: ignore[no-untyped-def]
    """Fill `chart` with inside log-sums, as `fill_chart` with maxima."""
    _cky(rules, scores, leaves, chart, True)


@inlined
def _best_unit(rules, units, bottoms, top, but):  # type: ignore[no-untyped-def]
    """The best unit of a top symbol other than `but`, and its score with the bottom's."""
    chosen = -1
    highest = -np.inf
    for u in range(rules.unit_starts[top], rules.unit_starts[top + 1]):
        score = bottoms[rules.unit_bottoms[u]] + units[u]
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
    for q in range(rules.parent_starts[bottom], rules.parent_starts[bottom + 1]):
        r = int(rules.of_parent[q])
        row = top_row(start, np.int64(rules.lefts[r]), length, rules.n_symbols)
        rights = chart.rights[stop, rules.right_slots[r]]
        for middle in range(start + 1, stop):
            score = chart.tops[row + middle - start - 1] + rights[middle] + scores[r]
            if score > highest and (r != but or middle != but_middle):
                highest = score
                chosen = r
                chosen_middle = middle
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
    varying = len(scores.units) > 1
    stop_row = first + 2 * (nodes[first, 1] - nodes[first, 0]) - 1
    for row in range(first, stop_row):
        start, stop = np.int64(nodes[row, 0]), np.int64(nodes[row, 1])
        bottom = np.int64(nodes[row, 2])
        nodes[row, 2] = -1
        if bottom < rules.n_complete:
            here = cell(start, stop, length)
            if unit < 0:
                units = scores.units[here * varying]
                unit, _ = _best_unit(rules, units, chart.bottoms[here], bottom, -1)
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
        score = starts[symbol] + top_score(rules, chart, 0, length, symbol, length)
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
    score = scores.starts[top] + top_score(rules, chart, 0, length, top, length)
    symbol, highest = _best_start(rules, scores.starts, chart, length, top)
    least = score - highest
    row, unit, rule, place = 0, np.int64(-1), np.int64(-1), np.int64(-1)
    for p in range(2 * length - 1):
        start, stop = np.int64(nodes[p, 0]), np.int64(nodes[p, 1])
        own_unit, own_rule = np.int64(nodes[p, 2]), np.int64(nodes[p, 3])
        top = bottom = np.int64(rules.parents[own_rule]) if own_rule >= 0 else np.int64(-1)
        if own_unit >= 0:
            here = cell(start, stop, length)
            top = np.int64(rules.unit_tops[own_unit])
            units, bottoms = scores.units[here * varying], chart.bottoms[here]
            other, highest = _best_unit(rules, units, bottoms, top, own_unit)
            score = units[own_unit] + bottoms[rules.unit_bottoms[own_unit]]
            if score - highest < least:
                least = score - highest
                row, symbol, unit, rule = p, top, other, np.int64(-1)
        if own_rule >= 0:
            middle = np.int64(nodes[p + 1, 1])
            left = np.int64(rules.lefts[own_rule])
            score = top_score(rules, chart, start, middle, left, length) + scores.rules[own_rule]
            score += chart.rights[stop, rules.right_slots[own_rule], middle]
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
            here = row_of_span(start, stop, length)
            own = scores.units[here if len(scores.units) > 1 else 0, numbers]
            values = own + chart.bottoms[here, rules.unit_bottoms[numbers]]
            middles = np.full(len(numbers), stop)
        else:
            of_parent = rules.of_parent[slice(*rules.parent_starts[symbol : symbol + 2])]
            splits = np.arange(start + 1, stop)
            lefts = rules.lefts[of_parent].astype(np.int64)
            rows = row_of_top(start, lefts, length, rules.n_symbols)
            left = chart.tops[rows + (splits - start - 1)[:, None]]
            right = chart.rights[stop, rules.right_slots[of_parent], start + 1 : stop].T
            values = (left + right + scores.rules[of_parent]).ravel()
            numbers, middles = np.tile(of_parent, len(splits)), np.repeat(splits, len(of_parent))
        possible = np.flatnonzero(values > -np.inf)
        order = possible[np.argsort(-values[possible], kind="stable")[:k]]
        losses = values[order[:1]] - values[order]
        columns = losses.tolist(), numbers[order].tolist(), middles[order].tolist()
        return list(zip(*columns, strict=True))

    rows = row_of_top(0, np.arange(rules.n_complete), length, rules.n_symbols)
    whole = scores.starts + chart.tops[rows + length - 1]
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


@inlined
def _start_marginals(rules, starts, chart, length, expected):  # type: ignore[no-untyped-def]
    """Marginals of the start symbols; returns the log-partition function."""
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


def expected_derivation(rules: Rules, scores: Scores, leaves: Floats) -> tuple[Scores, float]:
    """Expected counts under ``p ~ exp(score)``, zeros without derivations, and log-partition."""
    length = len(leaves)
    chart = make_chart(length, rules)
    inside(rules, scores, leaves, chart)
    expected = Scores(
        np.empty(rules.n_rules),
        np.empty((n_cells(length), rules.n_units)),
        np.empty(rules.n_complete),
    )
    masses = np.empty_like(chart.tops)
    return expected, float(outside(rules, scores, length, chart, expected, masses))
