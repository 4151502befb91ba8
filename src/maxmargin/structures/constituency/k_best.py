"""The k best derivations of a sentence by a weighted grammar, see the module `inference`.

Derivations are completed one node at a time, from left to right, always the one that can still
become the best. The chart of best scores says exactly what that is, so nothing is completed that
is not among the answers, and a derivation costs as many steps as it has nodes, besides the chart.
"""

from functools import cache
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.structures.constituency.chart import (
    Chart,
    Floats,
    Nodes,
    Rules,
    Scores,
    make_chart,
    row_of_span,
    row_of_top,
)
from maxmargin.structures.constituency.inference import fill_chart

_OPEN = -2
"""In place of a unit: it is still to be chosen."""


class _Item(NamedTuple):
    """A node to be completed; `symbol` is its top while the unit is open, then its bottom."""

    start: int
    stop: int
    symbol: int
    unit: int


class _Choice(NamedTuple):
    """One way on from an item: a unit, or a rule and where it parts the span; what it loses."""

    loss: float
    number: int
    middle: int


class _Choices:
    """The best ways on from each item, best first, made when they are first asked for."""

    def __init__(self, rules: Rules, scores: Scores, chart: Chart, length: int, k: int) -> None:
        self.rules, self.scores, self.chart, self.length, self.k = rules, scores, chart, length, k
        self.of_top, self.of_bottom = cache(self._of_top), cache(self._of_bottom)

    def __call__(self, item: _Item) -> list[_Choice]:
        place = item.start, item.stop, item.symbol
        return self.of_top(*place) if item.unit == _OPEN else self.of_bottom(*place)

    def _of_top(self, start: int, stop: int, top: int) -> list[_Choice]:
        units = np.arange(self.rules.unit_starts[top], self.rules.unit_starts[top + 1])
        here = row_of_span(start, stop, self.length)
        own = self.scores.units[here if len(self.scores.units) > 1 else 0, units]
        return self._ranked(
            own + self.chart.bottoms[here, self.rules.unit_bottoms[units]],
            units,
            np.full(len(units), stop),
        )

    def _of_bottom(self, start: int, stop: int, bottom: int) -> list[_Choice]:
        first, last = self.rules.parent_starts[bottom : bottom + 2]
        rules = self.rules.of_parent[first:last]
        middles = np.arange(start + 1, stop)
        lefts = self.rules.lefts[rules].astype(np.int64)
        rows = row_of_top(start, lefts, self.length, self.rules.n_symbols)
        left = self.chart.tops[rows + (middles - start - 1)[:, None]]
        right = self.chart.rights[stop, self.rules.right_slots[rules], start + 1 : stop].T
        return self._ranked(
            (left + right + self.scores.rules[rules]).ravel(),
            np.tile(rules, len(middles)),
            np.repeat(middles, len(rules)),
        )

    def _ranked(
        self, scores: Floats, numbers: NDArray[Any], middles: NDArray[Any]
    ) -> list[_Choice]:
        """Of what is possible, the k best; no others can be part of the k best derivations."""
        possible = np.flatnonzero(scores > -np.inf)
        order = possible[np.argsort(-scores[possible], kind="stable")[: self.k]]
        losses = scores[order[:1]] - scores[order]
        return [
            _Choice(*choice)
            for choice in zip(
                losses.tolist(), numbers[order].tolist(), middles[order].tolist(), strict=True
            )
        ]


def best_derivations(
    rules: Rules, scores: Scores, leaves: Floats, k: int
) -> list[tuple[Nodes, float]]:
    """The k best derivations with their scores, best first.

    Parameters
    ----------
    rules : Rules
    scores : Scores
    leaves : ndarray of shape (length, n_complete)
        Score of each symbol as the bottom of each word.
    k : int
        How many; there are fewer answers where there are fewer derivations.

    Returns
    -------
    found : list of (nodes, score)

    See Also
    --------
    maxmargin.structures.constituency.inference.best_derivation : The best alone.

    Examples
    --------
    Four words have five ways to put brackets around pairs:

    >>> import numpy as np
    >>> from maxmargin.structures.constituency.chart import Scores, make_rules
    >>> from maxmargin.structures.constituency.k_best import best_derivations
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
    choices = _Choices(rules, scores, chart, length, k)
    rows = row_of_top(0, np.arange(rules.n_complete), length, rules.n_symbols)
    whole = scores.starts + chart.tops[rows + length - 1]
    # Of equals, the one that was worked at last: no second one is begun before the first is done.
    turn = count(0, -1)
    heap: list[Any] = [
        (-score, next(turn), _Item(0, length, symbol, _OPEN), 0, None, None)
        for symbol, score in enumerate(whole.tolist())
        if score > -np.inf
    ]
    heapify(heap)
    found: list[tuple[Nodes, float]] = []
    while heap and len(found) < k:
        lost, _, item, rank, rows, rest = heappop(heap)
        ways = choices(item)
        way = ways[rank]
        if rank + 1 < len(ways):
            more = ways[rank + 1].loss - way.loss
            heappush(heap, (lost + more, next(turn), item, rank + 1, rows, rest))
        rows, rest = _take(rules, item, way, rows, rest)
        if rest is None:
            found.append((_unlinked(rows, length), 0.0 - lost))
        else:
            following, rest = rest
            heappush(heap, (lost, next(turn), following, 0, rows, rest))
    return found


def _take(rules: Rules, item: _Item, way: _Choice, rows: Any, rest: Any) -> tuple[Any, Any]:
    """Rows so far and items still open, both linked lists, when an item goes that way."""
    start, stop, _, unit = item
    if unit != _OPEN:
        rows = (start, stop, unit, way.number), rows
        right = _child(rules, way.middle, stop, int(rules.rights[way.number]))
        left = _child(rules, start, way.middle, int(rules.lefts[way.number]))
        return rows, (left, (right, rest))
    if stop - start == 1:
        return ((start, stop, way.number, -1), rows), rest
    bottom = int(rules.unit_bottoms[way.number])
    return rows, (_Item(start, stop, bottom, way.number), rest)


def _child(rules: Rules, start: int, stop: int, symbol: int) -> _Item:
    return _Item(start, stop, symbol, _OPEN if symbol < rules.n_complete else -1)


def _unlinked(rows: Any, length: int) -> Nodes:
    """Rows that were linked last to first as an array."""
    nodes = np.empty((2 * length - 1, 4), dtype=np.int32)
    for at in range(len(nodes) - 1, -1, -1):
        nodes[at], rows = rows
    return nodes
