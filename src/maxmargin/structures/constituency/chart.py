"""Grammars and charts as arrays; the module `inference` says what is in them.

Two spans that meet are looked at for all places where they can: of the left one the scores of a
symbol for all stops stand in a row, of the right one those for all starts. For each row it is
known in which part of it there are any scores.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import inlined
from maxmargin.compiled.simd import LANES

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
Nodes = NDArray[np.int32]


class Rules(NamedTuple):
    """A grammar without its scores; see `make_rules`.

    Rules with the same left child are neighbours, and among them those with the same right child,
    a *group*: how well two neighbouring spans fit is the same for all rules of a group. Loops
    run over unsigned numbers, for of others numba asks each time whether they are negative.
    """

    n_complete: int
    n_symbols: int
    parents: NDArray[np.uint32]
    lefts: NDArray[np.uint32]
    rights: NDArray[np.uint32]
    right_slots: NDArray[np.uint32]
    """Of each rule, the place of its right child in `right_symbols`."""
    right_symbols: NDArray[np.uint32]
    left_groups: NDArray[np.uint64]
    """The groups of left child `b` are ``left_groups[b] .. left_groups[b + 1] - 1``."""
    group_slots: NDArray[np.uint32]
    """Of each group, the place of its right child in `right_symbols`."""
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
    """What rules, units and starts are worth.

    Attributes
    ----------
    rules : ndarray of shape (n_rules,)
    units : ndarray of shape (n_cells, n_units) or (1, n_units)
        For each span, or for all alike.
    starts : ndarray of shape (n_complete,)
    """

    rules: Floats
    units: Floats
    starts: Floats


class Chart(NamedTuple):
    """Best scores, or log-sums, of all symbols at all spans of a sentence.

    Attributes
    ----------
    tops : ndarray of shape (n_cells * n_symbols + LANES - 1,)
        As seen from above; see `row_of_top`.
    rights : ndarray of shape (length + 1, n_right_symbols, length + LANES - 1)
        The same of right children by stop, symbol and start; from the stop on, a vector has -inf.
    bottoms : ndarray of shape (n_cells, n_complete)
        Below the units; see `row_of_span`.
    first, last, first_right, last_right : ndarray of int64
        Scratch: in which part of a row there are scores.
    here : ndarray of shape (n_symbols,)
        Scratch: the scores of one span.
    live, found : ndarray of shape (n_symbols,) and (n_symbols + 1,)
        Scratch: the symbols that have a score at some span of one start, and at one span.
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
    """A grammar for the searches of this module.

    Parameters
    ----------
    n_complete, n_symbols : int
    binary : ndarray of shape (n_rules, 3)
        Parent, left and right symbol; in the order of left, right and parent.
    units : ndarray of shape (n_units, 2)
        Top and bottom symbol, both complete; in the order of the tops. A symbol that may stand
        for itself needs a unit that says so.

    Returns
    -------
    rules : Rules

    Examples
    --------
    Words are 0, a pair of anything is 1; all pairs of brackets around three words:

    >>> import numpy as np
    >>> from maxmargin.structures.constituency.inference import best_derivation
    >>> from maxmargin.structures.constituency.chart import Scores, make_rules
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
    """Row of the span ``start .. stop - 1`` in a chart; also of arrays of spans."""
    return start * (2 * length - start + 1) // 2 + stop - start - 1


def row_of_top(start: Any, symbol: Any, length: int, n_symbols: int) -> Any:
    """Where the tops of a symbol at one, two, ... words from `start` on stand; also of arrays."""
    return start * (2 * length - start + 1) // 2 * n_symbols + symbol * (length - start)


cell = inlined(row_of_span)
top_row = inlined(row_of_top)


@inlined
def top_score(rules, chart, start, stop, symbol, length):  # type: ignore[no-untyped-def]
    """Score of a symbol at a span, as seen from above."""
    return chart.tops[top_row(start, symbol, length, rules.n_symbols) + stop - start - 1]


@inlined
def put(values, n, out):  # type: ignore[no-untyped-def]
    """``out[:n] = values[:n]``."""
    for at in range(n):
        out[at] = values[at]


@inlined
def right_row(chart, stop, slot):  # type: ignore[no-untyped-def]
    """Where the scores of a right child that ends at `stop` begin in the flat ``chart.rights``."""
    return (stop * chart.rights.shape[1] + slot) * chart.rights.shape[2]


@inlined
def meeting(first, last, first_right, last_right, start):  # type: ignore[no-untyped-def]
    """First and last place where a left and a right child may meet, as columns of the left.

    Given the part of either row where there are scores.
    """
    return max(first, first_right - start - 1), min(last, last_right - start - 1)


@inlined
def open_chart(chart, length):  # type: ignore[no-untyped-def]
    """Nothing ends anywhere yet, and whatever looks beyond a stop finds nothing there."""
    chart.first_right[: length + 1] = length
    chart.last_right[: length + 1] = -1
    for stop in range(length + 1):
        chart.rights[stop, :, stop : stop + LANES - 1] = -np.inf


@inlined
def open_start(chart, length):  # type: ignore[no-untyped-def]
    """Nothing begins at a new start yet; starts go from right to left."""
    chart.first[:] = length
    chart.last[:] = -1


@inlined
def _close_rights(rules, chart, start, stop):  # type: ignore[no-untyped-def]
    """Put the scores of a span, which are in ``chart.here``, in the rows of right children."""
    for slot in range(len(rules.right_symbols)):
        score = chart.here[rules.right_symbols[slot]]
        chart.rights[stop, slot, start] = score
        if score > -np.inf:
            chart.first_right[stop, slot] = start
            chart.last_right[stop, slot] = max(chart.last_right[stop, slot], start)


@inlined
def close_span(rules, chart, start, stop, length):  # type: ignore[no-untyped-def]
    """Put the scores of a span, which are in ``chart.here``, in their places in the rows."""
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
    """Let a score enter a span; returns how many symbols are in the list of those it has."""
    # Without a branch, which would be guessed wrong too often: the list has a place to spare.
    before = here[symbol]
    found[n_found] = symbol
    n_found += (before == -np.inf) & (score > -np.inf)
    here[symbol] = max(before, score)
    return n_found


@inlined
def close_found(rules, chart, start, stop, length, n_found, n_live):  # type: ignore[no-untyped-def]
    """`close_span` for the symbols in ``chart.found``, where ``chart.tops`` has -inf elsewhere.

    Empties ``chart.here`` and returns how many symbols are in ``chart.live``.
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
