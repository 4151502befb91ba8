"""Separation oracles over queries, with compiled inference for losses of pairs and of lists."""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled
from maxmargin.core.oracle import starts_of
from maxmargin.structures.ranking.inference import (
    count_pairs,
    interleave,
    set_reach,
    sort_descending,
)
from maxmargin.structures.rows.oracle import RowSumOracle

Floats = NDArray[np.float64]
Order = NDArray[np.int64]
Found = NDArray[np.int32]

LONG = 1000
"""Documents above which numpy's sort, which knows vectors, is worth the way there."""

FOREIGN = "The outputs are of other documents."


class PairOracle(RowSumOracle):
    """Queries whose loss is the fraction of pairs in the wrong order, each judged on its own.

    Only the order of the `relevance` ``(n_rows,)`` within a query counts.
    """

    output_dtype = np.int32

    def __init__(self, X: Any, relevance: Floats, ends: Order, C: Floats) -> None:
        super().__init__(X, ends, C)
        self.output_sizes = 2 * self.sizes
        self.levels = np.empty(len(relevance), dtype=np.int32)
        self.n_pairs = np.empty(len(C))
        for b, (start, stop) in enumerate(pairwise(ends.tolist())):
            _, level, counts = np.unique(
                relevance[start:stop], return_inverse=True, return_counts=True
            )
            self.levels[start:stop] = level
            self.n_pairs[b] = max(
                0.5 * ((stop - start) ** 2 - (counts.astype(float) ** 2).sum()), 1
            )

    def infer_from(
        self, scores: Floats, rows: Order, examples: Order, starts: Order, found: Found
    ) -> None:
        sizes = np.diff(rows)
        for k in np.flatnonzero(sizes > LONG):
            start, stop = rows[k], rows[k + 1]
            found[2 * start : start + stop] = np.argsort(-scores[start:stop])
        scratch = np.empty(int(sizes.max(initial=0)), dtype=np.int32)
        infer_pairs(rows, scores, found, scratch)

    def set_coefficients(
        self, examples: Order, starts: Order, found: Found, rows: Order, coef: Floats,
        losses: Floats,
    ) -> None:  # fmt: skip
        longest = int(np.diff(rows).max(initial=0))
        known = measure_pairs(
            self.ends, self.levels, self.n_pairs, examples, rows, found, coef, losses,
            np.empty((2, longest), dtype=np.int64), np.empty(longest + 1, dtype=np.int64),
        )  # fmt: skip
        if not known:
            raise ValueError(FOREIGN)


class RankedList(NamedTuple):
    """Relevant documents, those from a `cut` on, against the others of a query, and some of each.

    The measure of a ranking sums the `credits` ``(n_relevant,)`` times the discounts of their
    ranks; its loss has this `weight` in that of the query.
    """

    cut: float
    weight: float
    credits: Floats


class ListOracle(RowSumOracle):
    """Queries whose loss is that of one or several lists, with the same `discounts` of ranks."""

    output_dtype = np.int32

    def __init__(
        self,
        X: Any,
        relevance: Floats,
        lists: list[list[RankedList]],
        discounts: Floats,
        ends: Order,
        C: Floats,
    ) -> None:
        super().__init__(X, ends, C)
        every = [one for of_query in lists for one in of_query]
        counts = np.array([len(of_query) for of_query in lists], dtype=np.int64)
        n_relevant = np.array([len(one.credits) for one in every], dtype=np.int64)
        sizes = np.repeat(self.sizes, counts)
        queries = zip(np.split(relevance, ends[1:-1]), lists, strict=True)
        relevant = [values >= one.cut for values, of_query in queries for one in of_query]
        self.output_sizes = counts * self.sizes
        self.lists = Lists(
            ends=starts_of(counts),
            relevant=np.concatenate([np.zeros(0, np.bool_), *relevant]),
            starts=starts_of(sizes),
            weights=np.array([one.weight for one in every]),
            credits=np.concatenate([np.zeros(0), *(one.credits for one in every)]),
            credit_starts=starts_of(n_relevant),
            discounts=discounts,
        )
        cells = n_relevant * (sizes - n_relevant + 1)
        self.n_cells = int(cells.max(initial=0))
        self._work += 3.0 * float(cells.sum()) / max(self.n_examples, 1)

    def infer_from(
        self, scores: Floats, rows: Order, examples: Order, starts: Order, found: Found
    ) -> None:
        longest = int(np.diff(rows).max(initial=0))
        infer_lists(
            self.lists, examples, rows, scores, starts, found,
            np.empty((3, longest), dtype=np.int32), np.empty((2, longest)), np.empty(longest + 1),
            np.empty(self.n_cells, dtype=np.int32),
        )  # fmt: skip

    def set_coefficients(
        self, examples: Order, starts: Order, found: Found, rows: Order, coef: Floats,
        losses: Floats,
    ) -> None:  # fmt: skip
        seen = np.empty(int(np.diff(rows).max(initial=0)), dtype=np.int64)
        if not measure_lists(self.lists, examples, rows, starts, found, coef, losses, seen):
            raise ValueError(FOREIGN)


class Lists(NamedTuple):
    """The lists of all queries, one after the other.

    Query ``b`` has the lists ``ends[b]:ends[b + 1]``; list ``l`` has the documents
    ``relevant[starts[l]:]`` and the credits ``credits[credit_starts[l]:]``.
    """

    ends: Order
    relevant: NDArray[np.bool_]
    starts: Order
    weights: Floats
    credits: Floats
    credit_starts: Order
    discounts: Floats


@compiled
def is_order(order, seen):  # type: ignore[no-untyped-def]
    """Whether every document occurs, once. Scratch: `seen` int64 ``(n,)``."""
    n = len(order)
    for t in range(n):
        seen[t] = 0
    for t in range(n):
        if order[t] < 0 or order[t] >= n or seen[order[t]]:
            return False
        seen[order[t]] = 1
    return True


@compiled
def infer_pairs(starts, scores, found, scratch):  # type: ignore[no-untyped-def]
    """Order and reach of each query; long ones have their order already."""
    for k in range(len(starts) - 1):
        start, stop = starts[k], starts[k + 1]
        order, reach = found[2 * start : start + stop], found[start + stop : 2 * stop]
        if stop - start <= LONG:
            sort_descending(scores[start:stop], order, scratch)
        set_reach(scores[start:stop], order, reach)


@compiled
def measure_pairs(  # type: ignore[no-untyped-def]
    ends, levels, n_pairs, examples, starts, found, coef, losses, counts, tree
):
    """Coefficients and losses of the pairs found; False if they are no orders and reaches."""
    for k in range(len(examples)):
        start, stop = starts[k], starts[k + 1]
        n = stop - start
        order, reach = found[2 * start : start + stop], found[start + stop : 2 * stop]
        if not is_order(order, tree):
            return False
        for t in range(n):
            if reach[t] < (reach[t - 1] if t > 0 else 0) or reach[t] > n:
                return False
        own = levels[ends[examples[k]] : ends[examples[k] + 1]]
        total = count_pairs(order, reach, own, counts[0], counts[1], tree)
        for t in range(n):
            coef[start + t] = (counts[0, t] - counts[1, t]) / n_pairs[examples[k]]
        losses[k] = total / n_pairs[examples[k]]
    return True


@compiled
def infer_lists(  # type: ignore[no-untyped-def]
    lists, examples, starts, scores, places, found, orders, sorted_scores, best, back
):
    """The most violating order of each list, written to ``found[places[k]:]``."""
    for k in range(len(examples)):
        start, n = starts[k], starts[k + 1] - starts[k]
        own = scores[start : start + n]
        order, ahead = orders[0, :n], orders[1]
        first, last = lists.ends[examples[k]], lists.ends[examples[k] + 1]
        if last > first:
            sort_descending(own, order, orders[1, :n])
        for m in range(first, last):
            relevant = lists.relevant[lists.starts[m] : lists.starts[m + 1]]
            credits = lists.credits[lists.credit_starts[m] : lists.credit_starts[m + 1]]
            n_relevant = len(credits)
            n_irrelevant = n - n_relevant
            # The relevant ones from the front, the others after them, both by their scores.
            split_order = orders[2, :n]
            i, j = 0, n_relevant
            for t in range(n):
                if relevant[order[t]]:
                    split_order[i] = order[t]
                    sorted_scores[0, i] = own[order[t]]
                    i += 1
                else:
                    split_order[j] = order[t]
                    sorted_scores[1, j - n_relevant] = own[order[t]]
                    j += 1
            table = back[: n_relevant * (n_irrelevant + 1)].reshape(n_relevant, n_irrelevant + 1)
            interleave(
                sorted_scores[0, :n_relevant], sorted_scores[1, :n_irrelevant], credits,
                lists.discounts, ahead, best, table,
            )  # fmt: skip
            at = places[k] + (m - first) * n
            j = 0
            for i in range(n_relevant):
                while j < ahead[i]:
                    found[at + i + j] = split_order[n_relevant + j]
                    j += 1
                found[at + i + j] = split_order[i]
            while j < n_irrelevant:
                found[at + n_relevant + j] = split_order[n_relevant + j]
                j += 1


@compiled
def measure_lists(lists, examples, starts, places, found, coef, losses, seen):  # type: ignore[no-untyped-def]
    """Coefficients and losses of the orders found; False if they are no orders."""
    for k in range(len(examples)):
        start, n = starts[k], starts[k + 1] - starts[k]
        for t in range(start, start + n):
            coef[t] = 0.0
        losses[k] = 0.0
        first = lists.ends[examples[k]]
        for m in range(first, lists.ends[examples[k] + 1]):
            at = places[k] + (m - first) * n
            order = found[at : at + n]
            if not is_order(order, seen):
                return False
            relevant = lists.relevant[lists.starts[m] : lists.starts[m + 1]]
            credits = lists.credits[lists.credit_starts[m] : lists.credit_starts[m + 1]]
            n_relevant = len(credits)
            weight = lists.weights[m]
            each = weight / (n_relevant * (n - n_relevant))
            i = 0
            for t in range(n):
                if relevant[order[t]]:
                    losses[k] += weight * credits[i] * (lists.discounts[i] - lists.discounts[t])
                    coef[start + order[t]] += each * (t - i)
                    i += 1
                else:
                    coef[start + order[t]] -= each * (n_relevant - i)
    return True
