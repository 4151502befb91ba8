"""Trees over a sentence that need not be projective: the best one, and the share of each arc.

Scores are those of `maxmargin.inference.eisner`. The best tree is a maximum spanning arborescence,
found by contracting cycles (Chu and Liu 1965, Edmonds 1967) in the order of Tarjan (1977): follow
the best arcs from modifier to head until they reach the root, or what already hangs on it, or close
a cycle, which becomes one node. Each node has a row with the best arc into it from every word, so
that a contraction is a maximum over rows, and all of it takes ``O(n ** 2)``.
"""

import numpy as np
from numpy.typing import NDArray

from maxmargin.dual.compiled import compiled, inlined

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
