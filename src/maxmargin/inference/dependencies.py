"""Searches over the dependency trees of a sentence: arc scores in, heads out.

The front door of `eisner` (projective trees) and `arborescence` (any trees), which says what scores
look like.
"""

import heapq
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maxmargin.dual.compiled import inlined
from maxmargin.inference.arborescence import arborescence, spanning_marginals
from maxmargin.inference.eisner import eisner, projective_marginals

Floats = NDArray[np.float64]
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
