"""Loss-augmented inference over the rankings of one list of documents.

Relevant documents should rank above irrelevant ones. A ranking is compared with the pairs (relevant
i, irrelevant j) that it inverts, each of which adds ``s_j - s_i`` to its score, s the scores of the
documents. Documents of the same kind are best sorted by score: no loss here distinguishes them, and
their pairs with others only gain by it. So a ranking is an interleaving of two sorted lists, given
by the number of irrelevant documents ahead of each relevant one (Yue et al. 2007).

Scratch arguments come last; larger arrays than their shapes say do no harm.
"""

import numpy as np

from maxmargin.compiled.compile import compiled, inlined


@compiled
def sort_descending(scores, order, scratch):  # type: ignore[no-untyped-def]
    """Set `order` to the indices of `scores` from the highest to the lowest; stable.

    A merge sort, as numba's own allocates. Scratch: `scratch` int32 ``(n,)``.
    """
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
    """Set `ahead` to the most violating interleaving and return its value.

    The measure of an interleaving, in which the relevant document ``i = 0, 1, ..`` has ``ahead[i]``
    irrelevant ones ahead of it and so the rank ``i + ahead[i]``, is

        sum_i credits[i] * discounts[i + ahead[i]]

    and what is maximised is the mean of ``s_j - s_i`` over all pairs, those in the right order
    counting zero, less the measure. Both lists of scores, `relevant` ``(P,)`` and `irrelevant`
    ``(N,)``, are sorted in descending order; neither is empty; `discounts` has ``P + N`` entries or
    more. Exact, in ``O(P * N)``: given the number ahead, what a relevant document adds depends on
    no other, and the numbers only have to be non-decreasing. Scratch: `best` float64 ``(N + 1,)``,
    `back` int32 ``(P, N + 1)``.
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
    """Set ``reach[p]`` to the number of documents that score more than that at rank ``p`` less one.

    Every pair of which the better document is at rank p and the other at a rank below ``reach[p]``
    violates a margin of one.
    """
    t = 0
    for p in range(len(order)):
        while t < len(order) and scores[order[t]] > scores[order[p]] - 1.0:
            t += 1
        reach[p] = t


@compiled
def count_pairs(order, reach, levels, lost, won, tree):  # type: ignore[no-untyped-def]
    """Count the pairs that `order` and a non-decreasing `reach` select, and return their number.

    A pair is of a document of a higher level, at some rank p, and one of a lower level at a rank
    below ``reach[p]``. ``lost[i]`` is in how many of them document i is the higher, ``won[i]`` in
    how many it is the lower. Levels are ``0 .. n - 1`` or fewer. ``O(n log(n_levels))``. Scratch:
    `tree` int64 ``(n + 1,)``.
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
    """One more document of this level."""
    m = np.int64(level) + 1
    while m <= top:
        tree[m] += 1
        m += m & -m


@inlined
def _below(tree, level):  # type: ignore[no-untyped-def]
    """Documents of lower levels."""
    total = 0
    m = np.int64(level)
    while m > 0:
        total += tree[m]
        m -= m & -m
    return total
