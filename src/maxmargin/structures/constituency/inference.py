"""Compiled searches over the derivations of one sentence by a weighted grammar.

The grammar is binary, but for one unary step at each span. Its symbols ``0 .. n_complete - 1`` are
complete; the others are parts, which stand for the first children of a node with many. A
derivation of a sentence of ``length >= 1`` words gives every span that it has a node for

- a *unit*, if the symbol that the node's parent sees, the *top*, is complete: the unit leads down
  to the *bottom* symbol, which may be the same (units stand for chains of unary rules);
- at one word, a score for the bottom symbol as a leaf; at more, a binary *rule* that parts the
  bottom symbol (of a part: itself) into a left and a right symbol, at a word in between.

It scores the sum of its rules, units and leaves, and of the top symbol of the whole as a start. Any
score may be ``-inf`` (forbidden). Parts take neither units nor leaves.

A derivation is an int32 array ``(2 * length - 1, 4)``, one row for each node, above its left, above
its right subtree: start, stop (the span is ``start .. stop - 1``), unit (-1 for parts) and rule
(-1 for leaves). A node over `m` words takes ``2 * m - 1`` rows with all below it, so that the right
child of a node in row `p` stands in row ``p + 2 * (words of the left child)``.
"""

import numpy as np

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.compiled.simd import highest_sum
from maxmargin.structures.constituency.chart import (
    Floats,
    Nodes,
    Rules,
    Scores,
    cell,
    close_found,
    keep_highest,
    make_chart,
    meeting,
    open_chart,
    open_start,
    put,
    right_row,
    top_row,
    top_score,
)


@compiled
def fill_chart(rules, scores, leaves, chart):  # type: ignore[no-untyped-def]
    """Best scores of all symbols at all spans of a sentence.

    `leaves` ``(length, n_complete)``: score of each symbol as the bottom of each word. `chart` has
    room for as many words or more.
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
    """The best unit of a top symbol other than `but`, and its score with what is below it."""
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
    """The best rule and place to part a bottom symbol, other than a given one, and their score."""
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
    """A node of which only span and symbol are known yet."""
    nodes[row, 0] = start
    nodes[row, 1] = stop
    nodes[row, 2] = symbol
    nodes[row, 3] = -1


@compiled
def trace(rules, scores, length, chart, nodes, first, unit, rule, middle):  # type: ignore[no-untyped-def]
    """Find out the best way down from the node in the row `first`, of which span and top are known.

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
    """The best symbol other than `but` for the whole sentence, and its score."""
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

    `chart` is what `fill_chart` left. Of equal ones, some one, always the same.
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

    The loss is ``inf``, and `nodes` stay as they are, if there is no second. `nodes` and `chart`
    are what `best_nodes` left.
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
    """The derivation with the highest score, and that score.

    Parameters
    ----------
    rules : Rules
    scores : Scores
    leaves : ndarray of shape (length, n_complete)
        Score of each symbol as the bottom of each word.

    Returns
    -------
    nodes : ndarray of int32, shape (2 * length - 1, 4)
    score : float
        ``-inf`` if there is no derivation; then `nodes` mean nothing.

    See Also
    --------
    maxmargin.structures.constituency.chart.make_rules : An example.
    maxmargin.structures.constituency.k_best.best_derivations : Several.
    """
    length = len(leaves)
    chart, nodes = make_chart(length, rules), np.zeros((2 * length - 1, 4), dtype=np.int32)
    fill_chart(rules, scores, leaves, chart)
    return nodes, float(best_nodes(rules, scores, length, chart, nodes))
