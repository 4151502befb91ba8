"""Separation oracles over queries, with compiled inference for losses of pairs and of lists.

Each pair (relevant i, irrelevant j) that a ranking inverts adds ``s_j - s_i`` to its score, s the
scores of the documents. Documents of one kind are best sorted by score, so that a ranking is an
interleaving of two sorted lists (Yue et al. 2007). Scratch arguments may be larger than stated.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.core.arrays import Floats, Order
from maxmargin.core.cuts import starts_of
from maxmargin.structures.rows.oracle import RowSumOracle

Found = NDArray[np.int32]

LONG = 1000
"""Documents above which numpy's vectorised sort is faster, its call included."""

FOREIGN = "The outputs are of other documents."


class PairOracle(RowSumOracle):
    """Queries whose loss is the fraction of pairs in the wrong order, each with its own hinge."""

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
    """Documents of relevance `cut` or more against the others, with `weight` in the query's loss.

    A ranking measures the sum of `credits` ``(n_relevant,)`` times the discounts of their ranks.
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
    """The lists of all queries, concatenated: those of query b are ``ends[b]:ends[b + 1]``.

    List l has the flags ``relevant[starts[l]:]`` and the credits ``credits[credit_starts[l]:]``.
    """

    ends: Order
    relevant: NDArray[np.bool_]
    starts: Order
    weights: Floats
    credits: Floats
    credit_starts: Order
    discounts: Floats


@compiled
def sort_descending(scores, order, scratch):  # type: ignore[no-untyped-def]
    """Indices of `scores` in descending order; a stable merge sort that allocates nothing."""
    n = len(scores)
    for t in range(n):
        order[t] = t
    width = 1
    while width < n:
        for low in range(0, n, 2 * width):
            middle, high = min(low + width, n), min(low + 2 * width, n)
            # Where halves follow each other already, there is nothing to merge.
            if middle < high and scores[order[middle - 1]] < scores[order[middle]]:
                a, b = low, middle
                for t in range(low, high):
                    if b >= high or (a < middle and scores[order[a]] >= scores[order[b]]):
                        scratch[t] = order[a]
                        a += 1
                    else:
                        scratch[t] = order[b]
                        b += 1
                for t in range(low, high):
                    order[t] = scratch[t]
        width *= 2


@compiled
def interleave(relevant, irrelevant, credits, discounts, ahead, best, back):  # type: ignore[no-untyped-def]
    """Set `ahead` to the most violating interleaving and return its value; exact, in ``O(P N)``.

    With ``ahead[i]`` irrelevant documents ahead of the relevant document i, it maximises

        mean over pairs of s_j - s_i where inverted - sum_i credits[i] * discounts[i + ahead[i]]

    Each term depends on its own ``ahead[i]``, which only have to be non-decreasing. Scores
    `relevant` ``(P,)`` and `irrelevant` ``(N,)`` are in descending order, neither empty. Scratch:
    `best` float64 ``(N + 1,)``, `back` int32 ``(P, N + 1)``.
    """
    # After document i, best[n] is the best value of documents 0 .. i if the last has n ahead.
    # back[i, n] is then how many document i - 1 has.
    n_relevant, n_irrelevant = len(relevant), len(irrelevant)
    scale = 1.0 / (n_relevant * n_irrelevant)
    for n in range(n_irrelevant + 1):
        best[n] = 0.0
    for i in range(n_relevant):
        highest = best[0]
        at = 0
        gained = 0.0
        for n in range(n_irrelevant + 1):
            if best[n] > highest:
                highest = best[n]
                at = n
            back[i, n] = at
            if n > 0:
                gained += scale * (irrelevant[n - 1] - relevant[i])
            best[n] = highest + gained - credits[i] * discounts[i + n]
    n = 0
    for m in range(1, n_irrelevant + 1):
        if best[m] > best[n]:
            n = m
    value = best[n]
    for i in range(n_relevant - 1, -1, -1):
        ahead[i] = n
        n = back[i, n]
    return value


@compiled
def set_reach(scores, order, reach):  # type: ignore[no-untyped-def]
    """Set ``reach[p]`` to the number of documents that score more than that at rank p less one.

    A better document at rank p violates its margin with the worse ones at ranks below ``reach[p]``.
    """
    t = 0
    for p in range(len(order)):
        while t < len(order) and scores[order[t]] > scores[order[p]] - 1.0:
            t += 1
        reach[p] = t


@compiled
def count_pairs(order, reach, levels, lost, won, tree):  # type: ignore[no-untyped-def]
    """Number of pairs that `order` and a non-decreasing `reach` select, in ``O(n log n_levels)``.

    Pairs are of a document of a higher level at a rank p, counted in its `lost`, and one of a lower
    level at a rank below ``reach[p]``, counted in its `won`. Scratch: `tree` int64 ``(n + 1,)``.
    """
    n = len(order)
    total = 0
    top = np.int64(0)
    for t in range(n):
        if levels[t] >= top:
            top = np.int64(levels[t]) + 1
    # The tree counts documents by level: a sum over the lower ones takes log(n_levels) (Fenwick).
    _clear(tree, top)
    t = 0
    for p in range(n):
        while t < reach[p]:
            _count(tree, top, levels[order[t]])
            t += 1
        lost[order[p]] = _below(tree, levels[order[p]])
        total += lost[order[p]]
    _clear(tree, top)
    p = n
    for t in range(n - 1, -1, -1):
        while p > 0 and reach[p - 1] > t:
            p -= 1
            _count(tree, top, levels[order[p]])
        won[order[t]] = (n - p) - _below(tree, levels[order[t]] + 1)
    return total


@inlined
def _clear(tree, top):  # type: ignore[no-untyped-def]
    for m in range(top + 1):
        tree[m] = 0


@inlined
def _count(tree, top, level):  # type: ignore[no-untyped-def]
    """Add a document of this level to the Fenwick tree."""
    m = np.int64(level) + 1
    while m <= top:
        tree[m] += 1
        m += m & -m


@inlined
def _below(tree, level):  # type: ignore[no-untyped-def]
    """Number of documents of lower levels in the Fenwick tree."""
    total = 0
    m = np.int64(level)
    while m > 0:
        total += tree[m]
        m -= m & -m
    return total


@compiled
def is_order(order, seen):  # type: ignore[no-untyped-def]
    """Whether every document occurs exactly once. Scratch: `seen` int64 ``(n,)``."""
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
    """Order and reach of each query, into `found`; those longer than `LONG` are sorted already."""
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
    """Coefficients and losses of the pairs found; False if they are no orders and reaches.

    ends, levels, n_pairs : of all queries, ``(n_queries + 1,)``, ``(n_rows,)``, ``(n_queries,)``
    examples, starts, losses : ``(n,)``, ``(n + 1,)``, ``(n,)``; `starts` are places in `coef`
    found, coef : order, then reach of each query ``(2 * starts[n],)``; ``(starts[n],)``
    counts, tree : scratch, int64 ``(2, longest)`` and ``(longest + 1,)``
    """
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
    """The most violating order of each list of each query, written to ``found[places[k]:]``.

    lists, examples : `Lists`; int64 ``(n,)``
    starts, scores : ``(n + 1,)`` places of the queries' documents in ``(starts[n],)``
    places, found : ``(n + 1,)`` places of the queries' orders in int32 ``(places[n],)``
    orders, back : scratch, int32 ``(3, longest)`` and ``(most cells of a list,)``
    sorted_scores, best : scratch, float64 ``(2, longest)`` and ``(longest + 1,)``
    """
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
