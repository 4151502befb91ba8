"""Dependency trees of a sentence: the best, the k best, marginals, valid trees.

``scores[h, m]``, float64 ``(n + 1, n + 1)``, is the score of the arc from head h to modifier m;
words are 1 to n, the root is 0. The first column and the diagonal are never read; -inf forbids.
"""

import heapq
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.core.arrays import Floats
from maxmargin.core.registry import registered

Heads = NDArray[np.int32]
Numbers = NDArray[np.int64]


@inlined
def _best_or_log_sum(some, others, first, stop, shift, as_logs):  # type: ignore[no-untyped-def]
    """The highest ``some[q] + others[q + shift]`` for ``first <= q < stop``, or their log-sum."""
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
    """Best scores, or inside log-sums, of the spans of the nodes from `first` on (Eisner 1996).

        incomplete[h, m] = scores[h, m] + max_q complete[left, q] + complete[right, q + 1]
        complete[h, e]   = max_q incomplete[h, q] + complete[q, e]

    Left and right are h and m in order, q in between. With the transpose `turned` of `complete`,
    all terms are contiguous.
    """
    n = len(scores) - 1
    for h in range(first, n + 1):
        complete[h, h] = turned[h, h] = 0.0
    for width in range(1, n + 1 - first):
        for s in range(first, n + 1 - width):
            t = s + width
            inner = _best_or_log_sum(complete[s], complete[t], s, t, 1, as_logs)
            incomplete[s, t] = inner + scores[s, t]
            incomplete[t, s] = inner + scores[t, s] if s > 0 else -np.inf
            right = _best_or_log_sum(incomplete[s], turned[t], s + 1, t + 1, 0, as_logs)
            left = _best_or_log_sum(incomplete[t], turned[s], s, t, 0, as_logs)
            complete[s, t] = turned[t, s] = right
            complete[t, s] = turned[s, t] = left


@inlined
def _argbest(some, others, first, stop, shift):  # type: ignore[no-untyped-def]
    """The smallest q with the highest ``some[q] + others[q + shift]``."""
    chosen = first
    for q in range(first + 1, stop):
        if some[q] + others[q + shift] > some[chosen] + others[chosen + shift]:
            chosen = q
    return chosen


@inlined
def _distribute(some, others, first, stop, shift, whole, part, out, other_out):  # type: ignore[no-untyped-def]
    """Distribute the probability `part` over the terms of a log-sum.

    some, others, first, stop, shift, whole : terms as in `_best_or_log_sum`, and their log-sum
    out, other_out : added to, as `some` and `others`
    """
    for q in range(first, stop):
        probability = part * np.exp(some[q] + others[q + shift] - whole)
        out[q] += probability
        other_out[q + shift] += probability


@compiled
def eisner(scores, single_root, heads, floats, integers):  # type: ignore[no-untyped-def]
    """`best_heads` among projective trees, in ``O(n ** 3)`` and without back pointers."""
    size = len(scores)
    n = size - 1
    if n == 0:
        return 0.0
    spans = floats[: 3 * size * size].reshape(3, size, size)
    stack = integers[: 2 * (size + 1)].reshape(size + 1, 2)
    complete, turned, incomplete = spans[0], spans[1], spans[2]
    _fill_spans(scores, int(single_root), False, complete, turned, incomplete)

    # The stack holds complete spans, each of which contributes one arc.
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
        depth = 2
    else:
        score = complete[0, n]
        stack[0, 0], stack[0, 1] = 0, n
        depth = 1
    while depth > 0:
        depth -= 1
        h, end = np.int64(stack[depth, 0]), np.int64(stack[depth, 1])
        if h == end:
            continue
        low, high = (h + 1, end + 1) if h < end else (end, h)
        m = _argbest(incomplete[h], turned[end], low, high, 0)
        heads[m - 1] = h
        s, t = min(h, m), max(h, m)
        q = _argbest(complete[s], complete[t], s, t, 1)
        for top, last in ((m, end), (s, q), (t, q + 1)):
            if top != last:
                stack[depth, 0], stack[depth, 1] = top, last
                depth += 1
    return score


@compiled
def projective_marginals(scores, single_root, marginals, spans, outside):  # type: ignore[no-untyped-def]
    """Marginals of arcs over projective trees (inside-outside); returns the log-partition function.

    ``O(n ** 3)``. Fills `marginals` ``(n + 1, n + 1)``. Scratch: `spans` ``(3, n + 1, n + 1)``,
    `outside` ``(2, n + 1, n + 1)``.
    """
    # Widest spans first, the probability of a span is distributed over the ways to make it, in
    # proportion to their terms in its sum: nothing is subtracted, and arcs add up to one.
    n = len(scores) - 1
    marginals[:] = 0.0
    if n == 0:
        return 0.0
    complete, turned, incomplete = spans[0], spans[1], spans[2]
    held, turned_held = outside[0], outside[1]
    held[:] = 0.0
    turned_held[:] = 0.0
    first = int(single_root)
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
                _distribute(
                    incomplete[s], turned[t], s + 1, t + 1, 0, complete[s, t], right,
                    marginals[s], turned_held[t],
                )  # fmt: skip
            if left > 0.0:
                _distribute(
                    incomplete[t], turned[s], s, t, 0, complete[t, s], left,
                    marginals[t], turned_held[s],
                )  # fmt: skip
            both = marginals[s, t] + marginals[t, s]
            if both > 0.0:
                inner = _best_or_log_sum(complete[s], complete[t], s, t, 1, True)
                _distribute(complete[s], complete[t], s, t, 1, inner, both, held[s], held[t])
    return log_partition


_NEW, _ON_PATH, _ATTACHED = range(3)


@compiled
def arborescence(scores, single_root, heads, floats, integers):  # type: ignore[no-untyped-def]
    """`best_heads` among all trees, in ``O(n ** 2)``: Chu-Liu/Edmonds (Tarjan 1977).

    Best arcs are followed from modifier to head until they reach the root's tree or close a cycle,
    which is contracted: a maximum over rows.
    """
    # rows[slot[v], u] is what the arc from the word u into the node v is better than the arc of
    # the cycle that it breaks up, and entered[slot[v], u] the word in v that it ends in. Nodes
    # above n are cycles; owner[u] is the outermost one that holds the word u.
    width = len(scores)
    n, square = width - 1, width * width
    rows, gains = floats[:square].reshape(width, width), floats[square : square + 2 * width]
    entered = integers[:square].reshape(width, width)
    nodes = integers[square : square + 14 * width].reshape(7, 2 * width)
    slot, parent, owner, state = nodes[0], nodes[1], nodes[2], nodes[3]
    tails, ends, path = nodes[4], nodes[5], nodes[6]
    first = int(single_root)
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
            u = first + int(np.argmax(row[first:]))
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


def matrix_tree_marginals(scores: Floats, single_root: bool) -> tuple[Floats, float]:
    """Marginals of arcs over all trees, and log-partition, by the matrix-tree theorem (Tutte)."""
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


def tree_scratch(n: int) -> tuple[Floats, NDArray[np.int32]]:
    """Scratch of `best_heads` for sentences of up to `n` words."""
    return np.empty(3 * (n + 1) ** 2 + 1), np.empty((n + 1) * (n + 15), dtype=np.int32)


@inlined
def best_heads(scores, projective, single_root, heads, floats, integers):  # type: ignore[no-untyped-def]
    """Set `heads` ``(n,)`` to the best tree; returns its score, -inf if all are forbidden.

    Scratch from `tree_scratch`.
    """
    if projective:
        return eisner(scores, single_root, heads, floats, integers)
    return arborescence(scores, single_root, heads, floats, integers)


def best_tree(
    scores: ArrayLike, *, projective: bool = True, single_root: bool = True
) -> tuple[Heads, float]:
    """MAP inference of one sentence: the dependency tree with the highest score.

    Projective trees take ``O(n ** 3)`` (Eisner), any trees ``O(n ** 2)`` (Chu-Liu and Edmonds).

    Parameters
    ----------
    scores : array-like of shape (n + 1, n + 1)
        ``scores[head, modifier]`` of arcs between n words, counted from 1; the root is word 0.
    projective : bool
        Whether arcs must not cross.
    single_root : bool
        Whether the root has one modifier only.

    Returns
    -------
    heads : ndarray of shape (n,)
        The head of each word, 0 for the root.
    score : float
        The sum of the scores of its arcs; -inf if all trees are forbidden by scores of -inf.

    See Also
    --------
    k_best_trees : The k best trees.
    tree_marginals : Marginal probabilities of arcs.

    Examples
    --------
    >>> scores = [[0.0, 1.0, 5.0], [0.0, 0.0, 2.0], [0.0, 3.0, 0.0]]
    >>> best_tree(scores)
    (array([2, 0], dtype=int32), 8.0)
    """
    square = _square(scores)
    n = len(square) - 1
    heads = np.zeros(n, dtype=np.int32)
    return heads, float(best_heads(square, projective, single_root, heads, *tree_scratch(n)))


def k_best_trees(
    scores: ArrayLike, k: int, *, projective: bool = True, single_root: bool = True
) -> list[tuple[Heads, float]]:
    """The k dependency trees with the highest scores, by about ``k * n`` inferences (Lawler 1972).

    Parameters
    ----------
    scores : array-like of shape (n + 1, n + 1)
        ``scores[head, modifier]`` of arcs between n words, counted from 1; the root is word 0.
    k : int
        How many trees; fewer are returned where there are no more.
    projective : bool
        Whether arcs must not cross.
    single_root : bool
        Whether the root has one modifier only.

    Returns
    -------
    list of (ndarray of shape (n,), float)
        Heads of the words and score of each tree, best first.

    See Also
    --------
    best_tree : The best one alone.

    Examples
    --------
    >>> scores = [[0.0, 1.0, 5.0], [0.0, 0.0, 2.0], [0.0, 3.0, 0.0]]
    >>> [score for _, score in k_best_trees(scores, 2)]
    [8.0, 3.0]
    """
    square = _square(scores)
    n = len(square) - 1
    scratch = tree_scratch(n)
    tickets = count()  # equal scores come in the order in which they were found
    parts: list[tuple[float, int, Heads, int, Floats]] = []

    def add(allowed: Floats, n_fixed: int) -> None:
        heads = np.zeros(n, dtype=np.int32)
        score = float(best_heads(allowed, projective, single_root, heads, *scratch))
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
    """Marginal probabilities of arcs under ``p(tree) ~ exp(score)``.

    Inside-outside for projective trees; for others the matrix-tree theorem, which loses digits
    where scores differ by more than about 20.

    Parameters
    ----------
    scores : array-like of shape (n + 1, n + 1)
        ``scores[head, modifier]`` of arcs between n words, counted from 1; the root is word 0.
    projective : bool
        Whether arcs must not cross.
    single_root : bool
        Whether the root has one modifier only.

    Returns
    -------
    marginals : ndarray of shape (n + 1, n + 1)
        The probability of each arc.
    log_partition : float
        The logarithm of the partition function.

    See Also
    --------
    best_tree : The tree with the highest score.

    Examples
    --------
    >>> marginals, _ = tree_marginals([[0.0, 1.0, 1.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    >>> marginals[:, 1]
    array([0.5, 0. , 0.5])
    """
    square = _square(scores)
    if not projective:
        return matrix_tree_marginals(square, single_root)
    marginals = np.empty_like(square)
    spans, outside = np.empty((3, *square.shape)), np.empty((2, *square.shape))
    return marginals, float(projective_marginals(square, single_root, marginals, spans, outside))


def _square(scores: Any) -> Floats:
    """Checked scores: a contiguous copy, zero where they are never read."""
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


_FINE, _OUTSIDE, _ITSELF, _CYCLE, _ROOTS, _CROSSING = range(6)


@registered("Structure")
class Structure(NamedTuple):
    """The set of trees: projective or all, single-rooted or all."""

    projective: bool
    single_root: bool


def check_trees(heads: Numbers, ends: Numbers, structure: Structure) -> None:
    """Raise ValueError, naming sentence and word, for heads that are no trees of this structure."""
    first = np.zeros(2, dtype=np.int64)
    fault = find_fault(heads, ends, *structure, first)
    if fault == _FINE:
        return
    i, word = first.tolist()
    n, head = int(ends[i + 1] - ends[i]), int(heads[ends[i] + word - 1])
    what = {
        _OUTSIDE: f"the head of word {word} is {head}, but heads are 0, the root, to {n}, the last "
        f"word.",
        _ITSELF: f"word {word} is its own head.",
        _CYCLE: f"following the heads from word {word} leads round in a cycle, not to the root 0.",
        _ROOTS: f"word {word} is the second one with the root as its head: give each sentence one, "
        f"or set single_root=False.",
        _CROSSING: f"the tree is not projective, the arc from {head} to {word} crosses another: "
        f"set structure='non-projective' or, of a DependencyParser, projectivize=True.",
    }
    raise ValueError(f"Sentence {i}: {what[fault]}")


@inlined
def _crossing_word(heads):  # type: ignore[no-untyped-def]
    """The word with the shortest non-projective arc; 0 if there is none."""
    n = len(heads)
    chosen, shortest = 0, n + 1
    for m in range(1, n + 1):
        h = heads[m - 1]
        if abs(h - m) >= shortest:
            continue
        for between in range(min(h, m) + 1, max(h, m)):
            above = between
            while above != h and above != 0:
                above = heads[above - 1]
            if above != h:
                chosen, shortest = m, abs(h - m)
                break
    return chosen


@compiled
def find_fault(heads, ends, projective, single_root, first):  # type: ignore[no-untyped-def]
    """The kind of the first fault; `first` gets its sentence and its word."""
    for i in range(len(ends) - 1):
        here = heads[ends[i] : ends[i + 1]]
        n = len(here)
        first[0] = i
        n_roots = 0
        for m in range(1, n + 1):
            first[1] = m
            if here[m - 1] < 0 or here[m - 1] > n:
                return _OUTSIDE
            if here[m - 1] == m:
                return _ITSELF
            n_roots += here[m - 1] == 0
            if single_root and n_roots > 1:
                return _ROOTS
        for m in range(1, n + 1):
            above = m
            for _ in range(n):
                if above != 0:
                    above = here[above - 1]
            if above != 0:
                first[1] = m
                return _CYCLE
        if projective:
            first[1] = _crossing_word(here)
            if first[1] > 0:
                return _CROSSING
    return _FINE


@compiled
def lift_crossing(heads, ends):  # type: ignore[no-untyped-def]
    """Lift arcs as in `projectivized`, in place; returns how many trees have changed."""
    n_changed = 0
    for i in range(len(ends) - 1):
        here = heads[ends[i] : ends[i + 1]]
        m = _crossing_word(here)
        n_changed += m > 0
        while m > 0:
            here[m - 1] = here[here[m - 1] - 1]
            m = _crossing_word(here)
    return n_changed


def projectivized(heads: Numbers, ends: Numbers) -> tuple[Numbers, int]:
    """Trees with the shortest crossing arc lifted to its head's head until none is left.

    Also returns how many have changed (Nivre and Nilsson 2005).
    """
    lifted = heads.copy()
    return lifted, int(lift_crossing(lifted, ends))
