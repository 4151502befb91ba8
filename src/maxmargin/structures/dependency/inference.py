"""Searches over the dependency trees of a sentence: arc scores in, heads out.

The front door of `eisner` (projective trees) and `arborescence` (any trees), which says what scores
look like.

Projective trees over a sentence: the best one, and the share of each arc in all of them.

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

Trees over a sentence that need not be projective: the best one, and the share of each arc.

Scores are those above. The best tree is a maximum spanning arborescence,
found by contracting cycles (Chu and Liu 1965, Edmonds 1967) in the order of Tarjan (1977): follow
the best arcs from modifier to head until they reach the root, or what already hangs on it, or close
a cycle, which becomes one node. Each node has a row with the best arc into it from every word, so
that a contraction is a maximum over rows, and all of it takes ``O(n ** 2)``.
"""

import heapq
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maxmargin.compiled.compile import compiled, inlined


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


Floats = NDArray[np.float64]

_NEW, _ON_PATH, _ATTACHED = range(3)


@inlined
def _best_arc(row, first):  # type: ignore[no-untyped-def]
    """The smallest place from `first` on with the highest entry."""
    chosen = first
    for u in range(first + 1, len(row)):
        if row[u] > row[chosen]:
            chosen = u
    return chosen


@compiled
def arborescence(scores, single_root, heads, rows, gains, entered, nodes):  # type: ignore[no-untyped-def]
    """Set `heads` ``(n,)`` to the best tree and return its score.

    With `single_root` only one word hangs on the root. The score is ``-inf``, and the heads are
    anything, if every tree is forbidden. Takes ``O(n ** 2)``. Scratch: `rows` float64 and `entered`
    int32 ``(n + 1, n + 1)``, `gains` float64 ``(2 * n + 2,)``, `nodes` int32 ``(7, 2 * n + 2)``.
    """
    # rows[slot[v], u] is what the arc from the word u into the node v is better than the arc of
    # the cycle that it breaks up, and entered[slot[v], u] the word in v that it ends in. Nodes
    # above n are cycles; owner[u] is the outermost one that holds the word u.
    n = len(scores) - 1
    slot, parent, owner, state = nodes[0], nodes[1], nodes[2], nodes[3]
    tails, ends, path = nodes[4], nodes[5], nodes[6]
    first = 1 if single_root else 0
    for v in range(n + 1):
        slot[v] = owner[v] = v
        parent[v] = -1
        state[v] = _NEW
        for u in range(n + 1):
            rows[v, u] = scores[u, v]
            entered[v, u] = v
        rows[v, v] = -np.inf
    state[0] = _ATTACHED
    n_nodes = n + 1

    for start in range(1, n + 1):
        if state[owner[start]] != _NEW:
            continue
        path[0] = start
        state[start] = _ON_PATH
        size = 1
        while size > 0:
            v = path[size - 1]
            row = rows[slot[v]]
            u = _best_arc(row, first)
            if row[u] == -np.inf:
                # Arcs from the root come last: a second one only where nothing else is left.
                u = 0
                if row[0] == -np.inf:
                    return -np.inf
            tails[v], ends[v], gains[v] = u, entered[slot[v], u], row[u]
            origin = owner[u]
            if state[origin] == _ATTACHED:
                while size > 0:
                    size -= 1
                    state[path[size]] = _ATTACHED
            elif state[origin] == _NEW:
                state[origin] = _ON_PATH
                path[size] = origin
                size += 1
            else:
                cycle = n_nodes
                n_nodes += 1
                into = slot[origin]
                merged, merged_ends = rows[into], entered[into]
                gain = gains[origin]
                for w in range(n + 1):
                    merged[w] -= gain
                while path[size - 1] != origin:
                    size -= 1
                    member = path[size]
                    parent[member] = cycle
                    other, other_ends = rows[slot[member]], entered[slot[member]]
                    gain = gains[member]
                    for w in range(n + 1):
                        if other[w] - gain > merged[w]:
                            merged[w] = other[w] - gain
                            merged_ends[w] = other_ends[w]
                parent[origin] = cycle
                for w in range(1, n + 1):
                    if parent[owner[w]] == cycle:
                        owner[w] = cycle
                        merged[w] = -np.inf
                slot[cycle] = into
                parent[cycle] = -1
                state[cycle] = _ON_PATH
                path[size - 1] = cycle

    # Outermost first, the arc into a node breaks up all cycles around the word that it ends in;
    # what else was in them keeps its own arc. A node is done when its state says so.
    for v in range(n_nodes):
        state[v] = _NEW
    for v in range(n_nodes - 1, 0, -1):
        if state[v] == _NEW:
            heads[ends[v] - 1] = tails[v]
            around = np.int64(ends[v])
            while around >= 0 and state[around] == _NEW:
                state[around] = _ATTACHED
                around = np.int64(parent[around])
    score = 0.0
    n_roots = 0
    for m in range(1, n + 1):
        score += scores[heads[m - 1], m]
        n_roots += heads[m - 1] == 0
    return -np.inf if single_root and n_roots > 1 else score


def spanning_marginals(scores: Floats, single_root: bool) -> tuple[Floats, float]:
    """Probabilities of arcs when trees have probability ``~ exp(score)``, and the log of their sum.

    By the matrix-tree theorem (Tutte): the sum over trees is a determinant, and arcs follow from
    the inverse of its matrix, in ``O(n ** 3)``. Where the best head of each word makes a cycle that
    outweighs all trees by far, digits are lost.
    """
    n = len(scores) - 1
    marginals = np.zeros((n + 1, n + 1))
    if n == 0:
        return marginals, 0.0
    arcs = scores[:, 1:].copy()
    arcs[np.arange(1, n + 1), np.arange(n)] = -np.inf
    highest = arcs.max(axis=0)
    arcs = np.exp(arcs - highest)
    from_root, between = arcs[0], arcs[1:]
    laplacian = np.diag(between.sum(axis=0)) - between
    if single_root:
        laplacian[0] = from_root
    else:
        laplacian[np.diag_indices(n)] += from_root
    inverse = np.linalg.inv(laplacian)
    kept, lost = np.tile(np.diag(inverse), (n, 1)), inverse.T.copy()
    if single_root:
        kept[:, 0] = 0.0
        lost[0] = 0.0
    marginals[1:, 1:] = between * (kept - lost)
    marginals[0, 1:] = from_root * (inverse[:, 0] if single_root else np.diag(inverse))
    return marginals, float(np.linalg.slogdet(laplacian)[1] + highest.sum())


Heads = NDArray[np.int32]


def tree_scratch(n: int) -> tuple[Floats, NDArray[np.int32]]:
    """Room for `search_tree` over sentences of up to `n` words."""
    return np.empty(3 * (n + 1) ** 2 + 1), np.empty((n + 1) * (n + 15), dtype=np.int32)


@inlined
def search_tree(scores, projective, single_root, heads, floats, integers):  # type: ignore[no-untyped-def]
    """Set `heads` ``(n,)`` to the best tree for ``scores`` ``(n + 1, n + 1)``; returns its score.

    Scratch as `tree_scratch` makes it; more than that does no harm.
    """
    size = len(scores)
    square = size * size
    if projective:
        spans = floats[: 3 * square].reshape(3, size, size)
        stack = integers[: 2 * (size + 1)].reshape(size + 1, 2)
        return eisner(scores, single_root, heads, spans, stack)
    rows, gains = floats[:square].reshape(size, size), floats[square : square + 2 * size]
    entered = integers[:square].reshape(size, size)
    nodes = integers[square : square + 14 * size].reshape(7, 2 * size)
    return arborescence(scores, single_root, heads, rows, gains, entered, nodes)


def best_tree(
    scores: ArrayLike, *, projective: bool = True, single_root: bool = True
) -> tuple[Heads, float]:
    """The dependency tree with the highest sum of arc scores.

    Parameters
    ----------
    scores : array-like of shape (n + 1, n + 1)
        ``scores[h, m]``: score of the arc from the head h to the modifier m, words 1 to n, root 0.
        The first column and the diagonal do not count; ``-inf`` forbids an arc.
    projective : bool, default=True
        Only trees without crossing arcs, in ``O(n ** 3)``; any tree takes ``O(n ** 2)``.
    single_root : bool, default=True
        Only one word may hang on the root.

    Returns
    -------
    heads : ndarray of shape (n,)
        Head of each word, 0 for the root.
    score : float
        ``-inf`` if every tree is forbidden; the heads are then anything.

    See Also
    --------
    top_trees, tree_marginals

    Examples
    --------
    >>> scores = [[0, 1, 5, 1], [0, 0, 1, 1], [0, 4, 0, 3], [0, 1, 1, 0]]
    >>> heads, score = best_tree(scores)
    >>> heads.tolist(), score
    ([2, 0, 2], 12.0)
    """
    square = _square(scores)
    n = len(square) - 1
    heads = np.zeros(n, dtype=np.int32)
    return heads, float(search_tree(square, projective, single_root, heads, *tree_scratch(n)))


def top_trees(
    scores: ArrayLike, k: int, *, projective: bool = True, single_root: bool = True
) -> list[tuple[Heads, float]]:
    """The k best trees and their scores, best first; fewer where there are fewer.

    Each tree found splits what is left into at most n parts, by the first word whose head differs
    from its own (Lawler 1972), so that k trees take about ``k * n`` searches.

    Parameters
    ----------
    scores, projective, single_root
        As in `best_tree`.
    k : int

    Returns
    -------
    trees : list of (heads, score)

    Examples
    --------
    >>> scores = [[0, 1, 5], [0, 0, 1], [0, 4, 0]]
    >>> [(heads.tolist(), score) for heads, score in top_trees(scores, 3)]
    [([2, 0], 9.0), ([0, 1], 2.0)]
    """
    square = _square(scores)
    n = len(square) - 1
    scratch = tree_scratch(n)
    tickets = count()  # equal scores come in the order in which they were found
    parts: list[tuple[float, int, Heads, int, Floats]] = []

    def add(allowed: Floats, n_fixed: int) -> None:
        heads = np.zeros(n, dtype=np.int32)
        score = float(search_tree(allowed, projective, single_root, heads, *scratch))
        if score > -np.inf:
            heapq.heappush(parts, (-score, next(tickets), heads, n_fixed, allowed))

    add(square, 0)
    trees: list[tuple[Heads, float]] = []
    while parts and len(trees) < k:
        loss, _, heads, n_fixed, allowed = heapq.heappop(parts)
        trees.append((heads, -loss))
        for m in range(n_fixed + 1, n + 1):
            other = allowed.copy()
            other[heads[m - 1], m] = -np.inf
            add(other, m - 1)
            only = allowed[heads[m - 1], m]
            allowed[:, m] = -np.inf
            allowed[heads[m - 1], m] = only
    return trees


def tree_marginals(
    scores: ArrayLike, *, projective: bool = True, single_root: bool = True
) -> tuple[Floats, float]:
    """Probability of each arc when a tree has a probability in proportion to ``exp(score)``.

    Parameters
    ----------
    scores, projective, single_root
        As in `best_tree`.

    Returns
    -------
    marginals : ndarray of shape (n + 1, n + 1)
        ``marginals[h, m]``; each column but the first sums to one.
    log_partition : float
        Logarithm of the sum of ``exp(score)`` over all trees.

    Notes
    -----
    By spans, inside and outside, for projective trees; for others by the matrix-tree theorem, which
    loses digits where scores differ by more than about 20.

    Examples
    --------
    >>> import numpy as np
    >>> marginals, log_partition = tree_marginals(np.zeros((3, 3)))
    >>> marginals.round(2).tolist()
    [[0.0, 0.5, 0.5], [0.0, 0.0, 0.5], [0.0, 0.5, 0.0]]
    """
    square = _square(scores)
    if not projective:
        return spanning_marginals(square, single_root)
    marginals = np.empty_like(square)
    spans, shares = np.empty((3, *square.shape)), np.empty((2, *square.shape))
    return marginals, float(projective_marginals(square, single_root, marginals, spans, shares))


def _square(scores: Any) -> Floats:
    """Scores as kernels take them: a copy, of the right shape, zero where nobody looks."""
    square = np.array(scores, dtype=np.float64, order="C")
    if square.ndim != 2 or square.shape[0] != square.shape[1] or not len(square):
        raise ValueError(
            f"scores must have shape (n + 1, n + 1) for n words and the root, not {square.shape}."
        )
    square[:, 0] = 0.0
    np.fill_diagonal(square, 0.0)
    if np.isnan(square).any() or (square == np.inf).any():
        raise ValueError("scores must be finite, or -inf for arcs that are forbidden.")
    return square
