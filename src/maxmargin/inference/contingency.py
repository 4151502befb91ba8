"""Compiled searches over the labellings of a whole data set, by their contingency tables.

A labelling is measured by two numbers only: how many of the ``P`` positive rows it calls positive,
``hits``, and how many of the ``N`` negative ones, ``alarms``. With these given, the labelling of
the highest score calls the highest rows of both kinds positive, and scores, relative to the truth,

    (sum of the `alarms` highest negative scores - sum of the `P - hits` lowest positive ones) / n

with ``n = P + N``. So a search goes over tables, not labellings. Scores of both kinds fall and come
in two arrays. Kernels return the table and its score plus loss.
"""

from maxmargin.dual.compiled import compiled


@compiled
def worst_f_beta(positive, negative, beta, sums):  # type: ignore[no-untyped-def]
    """The table of the highest score plus ``1 - F_beta``: ``(hits, alarms, value)``.

    ``F_beta = (1 + beta^2) hits / (hits + alarms + beta^2 P)``. With the hits given, both loss and
    score gain ever less by one more alarm, so the best number of alarms is where the next gains
    nothing, and halving finds it. ``O(P log N)``. Scratch: `sums` float64 ``(N + 1,)``.

    Examples
    --------
    >>> import numpy as np
    >>> from maxmargin.inference.contingency import worst_f_beta
    >>> hits, alarms, value = worst_f_beta(np.array([3.0, 0.1]), np.array([-3.0]), 1.0, np.zeros(2))
    >>> hits, alarms, round(value, 3)
    (1, 0, 0.3)
    """
    n_positive, n_negative = len(positive), len(negative)
    scale = 1.0 / (n_positive + n_negative)
    square = beta * beta
    sums[0] = 0.0
    for j in range(n_negative):
        sums[j + 1] = sums[j] + negative[j]
    best_hits, best_alarms, best = 0, 0, 0.0
    missed = 0.0
    for i in range(n_positive):
        missed += positive[i]
    for hits in range(n_positive + 1):
        share = (1.0 + square) * hits
        rest = hits + square * n_positive
        low, high = 0, n_negative
        while low < high:
            middle = (low + high) // 2
            size = rest + middle
            if share / (size * (size + 1.0)) + scale * negative[middle] > 0.0:
                low = middle + 1
            else:
                high = middle
        value = 1.0 - share / (rest + low) + scale * (sums[low] - missed)
        if hits == 0 or value > best:
            best_hits, best_alarms, best = hits, low, value
        if hits < n_positive:
            missed -= positive[hits]
    return best_hits, best_alarms, best


@compiled
def worst_at_k(positive, negative, k, worth):  # type: ignore[no-untyped-def]
    """The same among labellings that call `k` rows positive, by another score.

    Of these, ``misses = min(P - hits, alarms)`` could be right and are not, and the loss is `worth`
    for each: with ``worth = 1 / k`` what is missing of the highest precision possible, with
    ``1 / P`` of the recall. The score, relative to the truth, is

        misses * (mean of the negatives called - mean of the positives not called) / n

    which is the one above where ``k = P``. For other numbers the latter would compare labellings
    with the truth's other number of positives, and could be made as low as one likes by the same
    change of all scores. ``O(n)``. ``1 <= k < n``.
    """
    n_positive, n_negative = len(positive), len(negative)
    scale = 1.0 / (n_positive + n_negative)
    # From as few hits as possible, one alarm after the other becomes a hit.
    hits = max(0, k - n_negative)
    called = missed = 0.0
    for j in range(k - hits):
        called += negative[j]
    for i in range(hits, n_positive):
        missed += positive[i]
    best_hits, best = min(k, n_positive), 0.0
    while hits < min(k, n_positive):
        alarms, left = k - hits, n_positive - hits
        value = min(alarms, left) * (worth + scale * (called / alarms - missed / left))
        if value > best:
            best_hits, best = hits, value
        called -= negative[alarms - 1]
        missed -= positive[hits]
        hits += 1
    return best_hits, k - best_hits, best
