"""Projective trees over a sentence: the best one, and the share of each arc in all of them.

Words are 1 to n, the root is 0, and ``scores[h, m]``, float64 ``(n + 1, n + 1)``, is the score of
the arc from the head h to the modifier m. The first column and the diagonal are never looked at. A
score may be ``-inf`` (forbidden). A tree is projective if the words below any word, with itself,
are neighbours.

Such trees are put together from spans (Eisner 1996). ``complete[h, e]`` is the best score of all
words from h to e below h, ``incomplete[h, m]`` that of the words between h and m with an arc from h
to m. They grow by

    incomplete[h, m] = scores[h, m] + max_q complete[left, q] + complete[right, q + 1]
    complete[h, e]   = max_q incomplete[h, q] + complete[q, e]

where left and right are h and m in their order, and q is what lies between. A copy of `complete`
with rows and columns exchanged makes all that is summed stand side by side. As in chains, no
maximum keeps a pointer to where it came from.
"""

import numpy as np

from maxmargin.dual.compiled import compiled, inlined


@inlined
def _combined(some, others, first, stop, shift, as_logs):  # type: ignore[no-untyped-def]
    """The highest ``some[q] + others[q + shift]`` for q from `first` up to, without, `stop`.

    With `as_logs`, the logarithm of the sum of their exponentials.
    """
    highest = -np.inf
    for q in range(first, stop):
        highest = max(highest, some[q] + others[q + shift])
    if as_logs and highest > -np.inf:
        total = 0.0
        for q in range(first, stop):
            total += np.exp(some[q] + others[q + shift] - highest)
        highest += np.log(total)
    return highest


@inlined
def _fill_spans(scores, first, as_logs, complete, turned, incomplete):  # type: ignore[no-untyped-def]
    """All spans of the nodes from `first` on, shortest first."""
    n = len(scores) - 1
    for h in range(first, n + 1):
        complete[h, h] = turned[h, h] = 0.0
    for width in range(1, n + 1 - first):
        for s in range(first, n + 1 - width):
            t = s + width
            inner = _combined(complete[s], complete[t], s, t, 1, as_logs)
            incomplete[s, t] = inner + scores[s, t]
            incomplete[t, s] = inner + scores[t, s] if s > 0 else -np.inf
            right = _combined(incomplete[s], turned[t], s + 1, t + 1, 0, as_logs)
            left = _combined(incomplete[t], turned[s], s, t, 0, as_logs)
            complete[s, t] = turned[t, s] = right
            complete[t, s] = turned[s, t] = left


@inlined
def _place(some, others, first, stop, shift):  # type: ignore[no-untyped-def]
    """The smallest q with the highest sum."""
    chosen = first
    for q in range(first + 1, stop):
        if some[q] + others[q + shift] > some[chosen] + others[chosen + shift]:
            chosen = q
    return chosen


@inlined
def _share(some, others, first, stop, shift, whole, part, out, other_out):  # type: ignore[no-untyped-def]
    """Share `part` out among the terms of a sum whose logarithm is `whole`."""
    for q in range(first, stop):
        share = part * np.exp(some[q] + others[q + shift] - whole)
        out[q] += share
        other_out[q + shift] += share


@compiled
def eisner(scores, single_root, heads, spans, stack):  # type: ignore[no-untyped-def]
    """Set `heads` ``(n,)`` to the best projective tree and return its score.

    With `single_root` only one word hangs on the root. The score is ``-inf`` if every tree is
    forbidden. Takes ``O(n ** 3)``. Scratch: `spans` float64 ``(3, n + 1, n + 1)``, `stack` int32
    ``(n + 2, 2)``.
    """
    n = len(scores) - 1
    if n == 0:
        return 0.0
    complete, turned, incomplete = spans[0], spans[1], spans[2]
    first = 1 if single_root else 0
    _fill_spans(scores, first, False, complete, turned, incomplete)

    # Below, the stack holds complete spans, each of which brings one arc to light.
    if single_root:
        root = 1
        score = -np.inf
        for m in range(1, n + 1):
            total = scores[0, m] + complete[m, 1] + complete[m, n]
            if total > score:
                score = total
                root = m
        heads[root - 1] = 0
        stack[0, 0] = stack[1, 0] = root
        stack[0, 1], stack[1, 1] = 1, n
        size = 2
    else:
        score = complete[0, n]
        stack[0, 0], stack[0, 1] = 0, n
        size = 1
    while size > 0:
        size -= 1
        h, end = np.int64(stack[size, 0]), np.int64(stack[size, 1])
        if h == end:
            continue
        low, high = (h + 1, end + 1) if h < end else (end, h)
        m = _place(incomplete[h], turned[end], low, high, 0)
        heads[m - 1] = h
        s, t = min(h, m), max(h, m)
        q = _place(complete[s], complete[t], s, t, 1)
        if m != end:
            stack[size, 0], stack[size, 1] = m, end
            size += 1
        if s != q:
            stack[size, 0], stack[size, 1] = s, q
            size += 1
        if t != q + 1:
            stack[size, 0], stack[size, 1] = t, q + 1
            size += 1
    return score


@compiled
def projective_marginals(scores, single_root, marginals, spans, shares):  # type: ignore[no-untyped-def]
    """Probabilities of arcs when projective trees have probability ``~ exp(score)``.

    Fills `marginals` ``(n + 1, n + 1)`` and returns the logarithm of the partition function.
    Takes ``O(n ** 3)``. Scratch: `spans` float64 ``(3, n + 1, n + 1)``, `shares` float64
    ``(2, n + 1, n + 1)``.
    """
    # Widest spans first, the probability of a span is shared out among the ways to make it, in
    # proportion to their terms in its sum: nothing is subtracted, and arcs add up to one.
    n = len(scores) - 1
    marginals[:] = 0.0
    if n == 0:
        return 0.0
    complete, turned, incomplete = spans[0], spans[1], spans[2]
    held, turned_held = shares[0], shares[1]
    held[:] = 0.0
    turned_held[:] = 0.0
    first = 1 if single_root else 0
    _fill_spans(scores, first, True, complete, turned, incomplete)

    if single_root:
        highest = -np.inf
        for m in range(1, n + 1):
            highest = max(highest, scores[0, m] + complete[m, 1] + complete[m, n])
        total = 0.0
        for m in range(1, n + 1):
            part = np.exp(scores[0, m] + complete[m, 1] + complete[m, n] - highest)
            marginals[0, m] = part
            total += part
        for m in range(1, n + 1):
            marginals[0, m] /= total
            held[m, 1] += marginals[0, m]
            held[m, n] += marginals[0, m]
        log_partition = highest + np.log(total)
    else:
        held[0, n] = 1.0
        log_partition = complete[0, n]
    for width in range(n - first, 0, -1):
        for s in range(first, n + 1 - width):
            t = s + width
            right, left = held[s, t] + turned_held[t, s], held[t, s] + turned_held[s, t]
            if right > 0.0:
                _share(
                    incomplete[s], turned[t], s + 1, t + 1, 0, complete[s, t], right,
                    marginals[s], turned_held[t],
                )  # fmt: skip
            if left > 0.0:
                _share(
                    incomplete[t], turned[s], s, t, 0, complete[t, s], left,
                    marginals[t], turned_held[s],
                )  # fmt: skip
            both = marginals[s, t] + marginals[t, s]
            if both > 0.0:
                inner = _combined(complete[s], complete[t], s, t, 1, True)
                _share(complete[s], complete[t], s, t, 1, inner, both, held[s], held[t])
    return log_partition
