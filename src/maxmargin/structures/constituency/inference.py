"""CKY over the derivations of one sentence by a weighted grammar: the best, the second, the k best.

The grammar is binary, but for one unary step at each span. Its symbols ``0 .. n_complete - 1`` are
complete; the others are intermediate symbols of the binarisation, which stand for the first
children of a node. A derivation of a sentence of ``length >= 1`` words gives each of its spans

- a *unit* (a collapsed chain of unary rules), if the symbol that the parent sees, the *top*, is
  complete: the unit leads down to the *bottom* symbol, which may be the same;
- at one word, a leaf score of the bottom symbol; at more, a binary *rule* that splits the bottom
  symbol (an intermediate symbol: itself) into a left and a right child, at a word in between.

Its score is the sum over rules, units and leaves, plus that of the top symbol of the whole as a
start symbol. Any score may be ``-inf`` (forbidden).

A derivation is an int32 array ``(2 * length - 1, 4)``, one row a node in preorder: start, stop (the
span is ``start .. stop - 1``), unit (-1 for intermediate symbols) and rule (-1 for leaves). The
subtree over `m` words takes ``2 * m - 1`` rows, so that the right child of the node in row `p`
stands in row ``p + 2 * (words of the left child)``.

Charts are laid out for vectors: for a left child the scores of a symbol at all stops are adjacent,
for a right child those at all starts, and for each such row the range of finite scores is known.
"""

from functools import cache
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.compiled.simd import LANES, highest_sum

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
Nodes = NDArray[np.int32]


class Rules(NamedTuple):
    """A grammar without its scores; see `make_rules`.

    Rules are sorted by left child, then by right child; rules that share both are a *group*, for
    which split points are compared once. Indices are unsigned, as numba tests the sign of others.
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
        """Number of binary rules."""
        return len(self.parents)

    @property
    def n_units(self) -> int:
        """Number of units."""
        return len(self.unit_tops)


class Scores(NamedTuple):
    """Scores of rules ``(n_rules,)``, of units and of start symbols ``(n_complete,)``.

    Those of units have shape ``(n_cells, n_units)``, one row a span, or ``(1, n_units)`` for all.
    """

    rules: Floats
    units: Floats
    starts: Floats


class Chart(NamedTuple):
    """Viterbi scores, or inside log-sums, of all symbols at all spans of a sentence.

    - tops ``(n_cells * n_symbols + LANES - 1,)``: as the parent sees them; see `row_of_top`;
    - rights ``(length + 1, n_right_symbols, length + LANES - 1)``: the same of right children by
      stop, symbol and start; -inf for a vector from the stop on;
    - bottoms ``(n_cells, n_complete)``: below the units; see `row_of_span`.

    The others are scratch: ranges of the finite scores of each row, the scores of one span, and
    lists of symbols with a finite score at any span of one start, and at one span.
    """

    tops: Floats
    rights: Floats
    bottoms: Floats
    first: Numbers
    last: Numbers
    first_right: Numbers
    last_right: Numbers
    here: Floats
    live: Numbers
    found: Numbers


def make_rules(
    n_complete: int,
    n_symbols: int,
    binary: NDArray[np.int64],
    units: NDArray[np.int64],
) -> Rules:
    """Index a grammar of binary rules ``(n_rules, 3)`` and units ``(n_units, 2)``.

    A rule is parent, left and right symbol, sorted by left, right and parent; a unit is the top and
    the bottom symbol, both complete, sorted by top. A symbol that may stand for itself needs a unit
    that says so.

    Examples
    --------
    Words are 0, a pair of anything is 1; all binary bracketings of three words:

    >>> import numpy as np
    >>> from maxmargin.structures.constituency.inference import Scores, best_derivation, make_rules
    >>> pairs = np.array([(1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 1)])
    >>> rules = make_rules(2, 2, pairs, np.array([(0, 0), (1, 1)]))
    >>> scores = Scores(np.array([0.0, 1.0, 0.0, 0.0]), np.zeros((1, 2)), np.zeros(2))
    >>> leaves = np.array([[0.0, -np.inf]] * 3)
    >>> nodes, score = best_derivation(rules, scores, leaves)
    >>> nodes.tolist(), score
    ([[0, 3, 1, 1], [0, 1, 0, -1], [1, 3, 1, 0], [1, 2, 0, -1], [2, 3, 0, -1]], 1.0)
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
    parents, lefts, rights, slots, tops, bottoms = (
        each.astype(np.uint32) for each in (parents, lefts, rights, slots, tops, bottoms)
    )
    return Rules(
        n_complete,
        n_symbols,
        parents,
        lefts,
        rights,
        slots,
        right_symbols.astype(np.uint32),
        np.searchsorted(lefts[first], every_symbol).astype(np.uint64),
        slots[first],
        np.r_[first, len(group)].astype(np.uint64),
        np.searchsorted(np.sort(parents), every_symbol),
        np.argsort(parents, kind="stable").astype(np.uint32),
        tops,
        bottoms,
        np.searchsorted(tops, every_symbol[: n_complete + 1]),
    )


def n_cells(length: int) -> int:
    """Number of spans of a sentence."""
    return length * (length + 1) // 2


def make_chart(length: int, rules: Rules) -> Chart:
    """Room for sentences of up to `length` words."""
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
        np.empty(n_symbols, dtype=np.int64),
        np.empty(n_symbols + 1, dtype=np.int64),
    )


def row_of_span(start: Any, stop: Any, length: int) -> Any:
    """Row of the span ``start .. stop - 1`` in a chart; also for arrays of spans."""
    return start * (2 * length - start + 1) // 2 + stop - start - 1


def row_of_top(start: Any, symbol: Any, length: int, n_symbols: int) -> Any:
    """Where the tops of a symbol over 1, 2, ... words from `start` begin; also for arrays."""
    return start * (2 * length - start + 1) // 2 * n_symbols + symbol * (length - start)


cell = inlined(row_of_span)
top_row = inlined(row_of_top)


@inlined
def top_score(rules, chart, start, stop, symbol, length):  # type: ignore[no-untyped-def]
    """Score of a symbol at a span, as its parent sees it."""
    return chart.tops[top_row(start, symbol, length, rules.n_symbols) + stop - start - 1]


@inlined
def put(values, n, out):  # type: ignore[no-untyped-def]
    """``out[:n] = values[:n]``."""
    for at in range(n):
        out[at] = values[at]


@inlined
def right_row(chart, stop, slot):  # type: ignore[no-untyped-def]
    """Offset of the scores of a right child that ends at `stop` in the flat ``chart.rights``."""
    return (stop * chart.rights.shape[1] + slot) * chart.rights.shape[2]


@inlined
def meeting(first, last, first_right, last_right, start):  # type: ignore[no-untyped-def]
    """First and last split point where both children may have scores, in the left row."""
    return max(first, first_right - start - 1), min(last, last_right - start - 1)


@inlined
def open_chart(chart, length):  # type: ignore[no-untyped-def]
    """Clear the ranges of right children, and pad ``rights`` with -inf beyond each stop."""
    chart.first_right[: length + 1] = length
    chart.last_right[: length + 1] = -1
    for stop in range(length + 1):
        chart.rights[stop, :, stop : stop + LANES - 1] = -np.inf


@inlined
def open_start(chart, length):  # type: ignore[no-untyped-def]
    """Clear the ranges of left children; starts go from right to left."""
    chart.first[:] = length
    chart.last[:] = -1


@inlined
def _close_rights(rules, chart, start, stop):  # type: ignore[no-untyped-def]
    """Copy the scores of a span from ``chart.here`` to the rows of right children."""
    for slot in range(len(rules.right_symbols)):
        score = chart.here[rules.right_symbols[slot]]
        chart.rights[stop, slot, start] = score
        if score > -np.inf:
            chart.first_right[stop, slot] = start
            chart.last_right[stop, slot] = max(chart.last_right[stop, slot], start)


@inlined
def close_span(rules, chart, start, stop, length):  # type: ignore[no-untyped-def]
    """Copy the scores of a span from ``chart.here`` to the rows of left and right children."""
    width = stop - start
    for symbol in range(rules.n_symbols):
        score = chart.here[symbol]
        chart.tops[top_row(start, symbol, length, rules.n_symbols) + width - 1] = score
        if score > -np.inf:
            chart.first[symbol] = min(chart.first[symbol], width - 1)
            chart.last[symbol] = width - 1
    _close_rights(rules, chart, start, stop)


@inlined
def keep_highest(score, symbol, here, found, n_found):  # type: ignore[no-untyped-def]
    """Raise the score of a symbol at a span; returns the number of symbols in `found`."""
    # Without a branch, which would be guessed wrong too often: the list has a place to spare.
    before = here[symbol]
    found[n_found] = symbol
    n_found += (before == -np.inf) & (score > -np.inf)
    here[symbol] = max(before, score)
    return n_found


@inlined
def close_found(rules, chart, start, stop, length, n_found, n_live):  # type: ignore[no-untyped-def]
    """`close_span` for the symbols in ``chart.found`` only, where ``chart.tops`` is -inf elsewhere.

    Clears ``chart.here`` and returns the number of symbols in ``chart.live``.
    """
    width = stop - start
    _close_rights(rules, chart, start, stop)
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


@compiled
def fill_chart(rules, scores, leaves, chart):  # type: ignore[no-untyped-def]
    """CKY: Viterbi scores of all symbols at all spans of a sentence.

    `leaves` ``(length, n_complete)``: score of each symbol at each word. `chart` may be larger.
    """
    length, n_complete = leaves.shape
    n_symbols = rules.n_symbols
    varying = len(scores.units) > 1
    here, found = chart.here, chart.found
    here[:] = -np.inf
    open_chart(chart, length)
    for start in range(length - 1, -1, -1):
        # Of many symbols few have scores at a span: the others are written in one go, and what
        # follows looks at lists.
        open_start(chart, length)
        first = top_row(start, 0, length, n_symbols)
        chart.tops[first : first + n_symbols * (length - start)] = -np.inf
        n_live = 0
        for stop in range(start + 1, length + 1):
            n_found = 0
            if stop - start == 1:
                for symbol in range(n_complete):
                    score = leaves[start, symbol]
                    if score > -np.inf:
                        n_found = keep_highest(score, symbol, here, found, n_found)
            firsts, lasts = chart.first_right[stop], chart.last_right[stop]
            for f in range(n_live):
                symbol = chart.live[f]
                row = top_row(start, symbol, length, n_symbols)
                first, last = chart.first[symbol], chart.last[symbol]
                for g in range(rules.left_groups[symbol], rules.left_groups[symbol + 1]):
                    slot = rules.group_slots[g]
                    low, high = meeting(first, last, firsts[slot], lasts[slot], start)
                    if low <= high:
                        right = right_row(chart, stop, slot) + start + 1
                        best = highest_sum(
                            chart.tops, row + low, chart.rights, right + low, high - low + 1
                        )
                        if best > -np.inf:
                            for r in range(rules.group_rules[g], rules.group_rules[g + 1]):
                                n_found = keep_highest(
                                    best + scores.rules[r], rules.parents[r], here, found, n_found
                                )
            # So far these are bottoms; parts stay as they are.
            bottoms = chart.bottoms[cell(start, stop, length)]
            put(here, n_complete, bottoms)
            here[:n_complete] = -np.inf
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
                    n_found = keep_highest(score, rules.unit_tops[u], here, found, n_found)
            n_live = close_found(rules, chart, start, stop, length, n_found, n_live)


@inlined
def _best_unit(rules, units, bottoms, top, but):  # type: ignore[no-untyped-def]
    """The best unit of a top symbol other than `but`, and its score with what is below."""
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
    """The best rule and split point of a bottom symbol, other than a given pair, and the score."""
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
    """Write a node of which only span and symbol are known yet."""
    nodes[row, 0] = start
    nodes[row, 1] = stop
    nodes[row, 2] = symbol
    nodes[row, 3] = -1


@compiled
def trace(rules, scores, length, chart, nodes, first, unit, rule, middle):  # type: ignore[no-untyped-def]
    """Follow the best choices down from the node in row `first`, of which span and top are known.

    If `unit` or `rule` (with `middle`) are not -1, they are those of the first node.
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
    """Set `nodes` to the best derivation and return its score, ``-inf`` if there is none.

    `chart` is what `fill_chart` left. Ties are broken always in the same way.
    """
    symbol, score = _best_start(rules, scores.starts, chart, length, -1)
    if symbol >= 0:
        _place(nodes, 0, 0, length, symbol)
        none = np.int64(-1)
        trace(rules, scores, length, chart, nodes, np.int64(0), none, none, none)
    return score


@compiled
def next_nodes(rules, scores, length, chart, nodes):  # type: ignore[no-untyped-def]
    """Change `nodes` from the best derivation to the second best, and return its loss of score.

    The loss is ``inf``, and `nodes` do not change, if there is no second. `nodes` and `chart` are
    what `best_nodes` left.
    """
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
        bottom = np.int64(rules.parents[own_rule]) if own_rule >= 0 else np.int64(-1)
        top = bottom
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
            row_of_left = top_row(start, np.int64(rules.lefts[own_rule]), length, rules.n_symbols)
            score = chart.tops[row_of_left + middle - start - 1] + scores.rules[own_rule]
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
    """The derivation with the highest score, and that score; ``-inf`` if there is none.

    `leaves` ``(length, n_complete)``: score of each symbol at each word.
    """
    length = len(leaves)
    chart, nodes = make_chart(length, rules), np.zeros((2 * length - 1, 4), dtype=np.int32)
    fill_chart(rules, scores, leaves, chart)
    return nodes, float(best_nodes(rules, scores, length, chart, nodes))


@compiled
def set_leaves(leaves, first, weights, scores):  # type: ignore[no-untyped-def]
    """Scores of the tags of ``len(scores)`` words, from the word `first` on."""
    scores[:] = -np.inf
    for t in range(len(scores)):
        for q in range(leaves.starts[first + t], leaves.starts[first + t + 1]):
            column = leaves.columns[q]
            scores[t, leaves.symbols[q]] = weights[column] if column >= 0 else 0.0


_OPEN = -2
"""In place of a unit that is still to be chosen."""


def best_derivations(
    rules: Rules, scores: Scores, leaves: Floats, k: int
) -> list[tuple[Nodes, float]]:
    """The k best derivations with their scores, best first; fewer where there are fewer.

    A best-first search: derivations are completed one node at a time, in preorder, always the one
    that can still become the best. The chart of Viterbi scores is an exact heuristic, so nothing
    is completed that is not among the answers.

    Examples
    --------
    Four words have five binary bracketings:

    >>> import numpy as np
    >>> from maxmargin.structures.constituency.inference import (
    ...     Scores, best_derivations, make_rules
    ... )
    >>> pairs = np.array([(1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 1)])
    >>> rules = make_rules(2, 2, pairs, np.array([(0, 0), (1, 1)]))
    >>> scores = Scores(np.array([0.0, 1.0, 0.0, 0.0]), np.zeros((1, 2)), np.zeros(2))
    >>> leaves = np.array([[0.0, -np.inf]] * 4)
    >>> [score for _, score in best_derivations(rules, scores, leaves, 10)]
    [2.0, 1.0, 1.0, 0.0, 0.0]
    """
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
    # top while the unit is open, then the bottom. Of ties comes the one that was expanded last: no
    # second one is begun before the first is done.
    turn = count(0, -1)
    heap: list[Any] = [
        (-score, next(turn), 0, (), ((0, length, symbol, _OPEN),))
        for symbol, score in enumerate(whole.tolist())
        if score > -np.inf
    ]
    heapify(heap)
    found: list[tuple[Nodes, float]] = []
    while heap and len(found) < k:
        lost, _, rank, done, todo = heappop(heap)
        (start, stop, symbol, unit), *rest = todo
        ways = choices(start, stop, symbol, unit == _OPEN)
        loss, number, middle = ways[rank]
        if rank + 1 < len(ways):
            more = ways[rank + 1][0] - loss
            heappush(heap, (lost + more, next(turn), rank + 1, done, todo))
        if unit != _OPEN:
            done = *done, (start, stop, unit, number)
            left, right = int(rules.lefts[number]), int(rules.rights[number])
            left_unit, right_unit = (
                _OPEN if child < rules.n_complete else -1 for child in (left, right)
            )
            rest = [(start, middle, left, left_unit), (middle, stop, right, right_unit), *rest]
        elif stop - start == 1:
            done = *done, (start, stop, number, -1)
        else:
            rest = [(start, stop, int(rules.unit_bottoms[number]), number), *rest]
        if rest:
            heappush(heap, (lost, next(turn), 0, done, rest))
        else:
            found.append((np.array(done, dtype=np.int32), 0.0 - lost))
    return found
