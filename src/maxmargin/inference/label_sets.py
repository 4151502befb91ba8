"""Searches over sets of labels that score labels and pairs of labels.

A set ``y`` of labels, 0 or 1 each, scores

    sum_l gains[l] * y_l + sum_e bonus[e] * y_a * y_b,    edge e = {a, b}

Any scores of pairs can be brought to this form. Without edges labels are chosen one by one; where
the edges make no circle, by dynamic programming; otherwise all sets are tried, which is why there
may be at most `MOST_LABELS` labels then.

Losses that depend on the number of true and of false positives, given the true set, are searched
by counts: the highest score of a set is found for each pair of counts, the loss is added, and
the best of these is it. That serves any such loss, and slack rescaling as well.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.dual.conforming import check_indices
from maxmargin.inference.label_set_kernels import (
    LOSSES,
    NO_LOSS,
    best_in_forests,
    counted_in_forests,
    counted_independent,
    try_all_sets,
)

Floats = NDArray[np.float64]
Sets = NDArray[np.int32]
Order = NDArray[np.int64]

MOST_LABELS = 18
"""Labels up to which all sets are tried, where edges make circles."""


@dataclass(frozen=True, eq=False)
class LabelGraph:
    """Labels and the pairs of them that are scored together.

    Parameters
    ----------
    n_labels : int
    edges : array-like of shape (n_edges, 2)
        Pairs of labels, no pair twice.

    Raises
    ------
    ValueError
        If the edges make a circle among more than `MOST_LABELS` labels.

    Examples
    --------
    Two labels that only pay together, and a third:

    >>> import numpy as np
    >>> from maxmargin.inference.label_sets import LabelGraph
    >>> graph = LabelGraph(3, [(0, 1)])
    >>> gains, bonus = np.array([[-1.0, -1.0, 0.5], [-1.0, -3.0, -0.5]]), np.array([3.0])
    >>> graph.best(gains, bonus)
    array([[1, 1, 1],
           [0, 0, 0]], dtype=int32)

    With the loss added, sets far from the truth come out ahead:

    >>> graph.most_violating(gains, bonus, np.array([[1, 1, 1], [1, 1, 0]]), "hamming")
    array([[0, 0, 0],
           [0, 0, 1]], dtype=int32)
    """

    n_labels: int
    edges: Any

    def __post_init__(self) -> None:
        edges = np.asarray(self.edges, dtype=np.int64).reshape(-1, 2)
        object.__setattr__(self, "edges", edges)
        check_indices("pairs of labels", edges, self.n_labels)
        if not self.is_forest and self.n_labels > MOST_LABELS:
            raise ValueError(
                f"The pairs of labels make a circle, and then all sets of labels are tried, which "
                f"takes at most {MOST_LABELS} labels, but there are {self.n_labels}: use "
                f"graph='tree', graph='independent', or pairs that make no circle."
            )

    @property
    def is_forest(self) -> bool:
        """Whether the edges make no circle."""
        return self._rooted is not None

    @cached_property
    def _rooted(self) -> "tuple[Order, Order, Order] | None":
        """Every label's parent and the edge to it, -1 at a root, and children before parents."""
        neighbours: list[list[tuple[int, int]]] = [[] for _ in range(self.n_labels)]
        for edge, (a, b) in enumerate(self.edges.tolist()):
            neighbours[a].append((b, edge))
            neighbours[b].append((a, edge))
        parents, to_parent = np.full((2, self.n_labels), -1, dtype=np.int64)
        order: list[int] = []
        seen: set[int] = set()
        for root in range(self.n_labels):
            waiting = [] if root in seen else [root]
            seen.add(root)
            while waiting:
                label = waiting.pop()
                order.append(label)
                for other, edge in neighbours[label]:
                    if edge == to_parent[label]:
                        continue
                    if other in seen:
                        return None
                    seen.add(other)
                    parents[other], to_parent[other] = label, edge
                    waiting.append(other)
        return parents, to_parent, np.array(order[::-1], dtype=np.int64)

    def _forest(self, bonus: Floats) -> tuple[Order, Floats, Order]:
        """Parents, the bonus of each label with its parent, and the order, of a forest."""
        assert self._rooted is not None
        parents, to_parent, order = self._rooted
        to_parents = np.zeros(self.n_labels)
        to_parents[to_parent >= 0] = bonus[to_parent[to_parent >= 0]]
        return parents, to_parents, order

    def couplings(self, bonus: Floats) -> Floats:
        """The bonus of each two labels, as a symmetric matrix."""
        matrix = np.zeros((self.n_labels, self.n_labels))
        a, b = self.edges.T
        matrix[a, b] = matrix[b, a] = bonus
        return matrix

    def scores(self, sets: Sets, gains: Floats, bonus: Floats) -> Floats:
        """Scores of sets, one for each row."""
        a, b = self.edges.T
        return np.asarray((sets * gains).sum(axis=1) + (sets[:, a] * sets[:, b]) @ bonus)

    def best(self, gains: Floats, bonus: Floats) -> Sets:
        """The set of the highest score for each row of gains.

        Parameters
        ----------
        gains : ndarray of shape (n, n_labels)
            A gain of ``-inf`` rules a label out.
        bonus : ndarray of shape (n_edges,)

        Returns
        -------
        sets : ndarray of int32, shape (n, n_labels)
            Without edges, a label whose gain is zero is left out.
        """
        gains = np.ascontiguousarray(gains)
        if not len(self.edges):
            return (gains > 0.0).astype(np.int32)
        sets = np.empty(gains.shape, dtype=np.int32)
        if self.is_forest:
            parents, to_parents, order = self._forest(bonus)
            scratch = np.empty((self.n_labels, 2))
            best_in_forests(gains, to_parents, parents, order, sets, scratch)
        else:
            self._try_all(gains, bonus, np.zeros(gains.shape, np.int32), NO_LOSS, False, sets)
        return sets

    def most_violating(
        self, gains: Floats, bonus: Floats, truths: Sets, loss: str, slack: bool = False
    ) -> Sets:
        """The set of the highest score plus loss for each row of gains; the truth, if it is.

        Parameters
        ----------
        gains : ndarray of shape (n, n_labels)
        bonus : ndarray of shape (n_edges,)
        truths : ndarray of shape (n, n_labels)
        loss : {"hamming", "f1", "zero-one"}
            Number of wrong labels; 1 - F1 of the two sets, which is 0 for two empty ones; one for
            any mistake.
        slack : bool, default=False
            The highest ``loss * (1 + score - score of the truth)`` instead.

        Returns
        -------
        sets : ndarray of int32, shape (n, n_labels)
        """
        truths = np.ascontiguousarray(truths, dtype=np.int32)
        if loss == "hamming" and not slack:
            return self.best(gains + 1.0 - 2.0 * truths, bonus)
        gains = np.ascontiguousarray(gains)
        sets = np.empty(gains.shape, dtype=np.int32)
        if not self.is_forest:
            self._try_all(gains, bonus, truths, LOSSES.index(loss), slack, sets)
            return sets
        wanted = gains, truths, LOSSES.index(loss), slack, sets
        n = self.n_labels
        n_true = truths.sum(axis=1)
        size = int(((n_true + 1) * (n - n_true + 1)).max(initial=1))
        if not len(self.edges):
            ranks = np.argsort(-gains, axis=1, kind="stable")
            counted_independent(*wanted, ranks, np.empty(size), *np.empty((2, n + 1)))
        else:
            parents, to_parents, order = self._forest(bonus)
            tables = np.empty((2, n + 1, 2, size))
            counts = np.empty((6, n + 1), dtype=np.int64)
            counted_in_forests(*wanted, to_parents, parents, order, *tables, counts)
        return sets

    def _try_all(
        self, gains: Floats, bonus: Floats, truths: Sets, loss: int, slack: bool, sets: Sets
    ) -> None:
        n = self.n_labels
        counts = np.empty((3, n + 1), dtype=np.int64)
        scratch = np.empty(n + 1), np.empty((n + 1, n)), np.empty(n), *counts
        try_all_sets(gains, truths, loss, slack, sets, self.couplings(bonus), *scratch)

    def work(self, n_true: float, by_counts: bool) -> float:
        """Operations of a search, about, where the truth has `n_true` labels."""
        if not self.is_forest:
            return 4.0 * 2.0**self.n_labels
        each = (n_true + 1.0) * (self.n_labels - n_true + 1.0) if by_counts else 1.0
        return each * self.n_labels if not len(self.edges) else 4.0 * each * (self.n_labels + each)
