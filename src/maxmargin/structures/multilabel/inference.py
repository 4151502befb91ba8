"""Inference over sets of labels with unary and pairwise potentials.

    score(y) = sum_l gains[l] * y_l + sum_e bonus[e] * y_a * y_b,    edge e = {a, b},  y_l in {0, 1}

Forests are solved by max-product, loopy graphs by branch and bound over at most `MOST_LABELS`
labels. Losses of the numbers of true and false positives only are maximised by counts: the best
score for each pair of counts, and the loss added; slack rescaling likewise.

Compiled routines take `gains` float64 and `y_true` int32, both ``(n, n_labels)``, the index `loss`
in `LOSSES` and the flag `slack`, and write `sets` int32 ``(n, n_labels)``. Scratch may be larger.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.core.arrays import Floats, Order, check_indices

Sets = NDArray[np.int32]

MOST_LABELS = 18
"""Labels up to which all sets are enumerated in loopy graphs."""

LOSSES = ("hamming", "f1", "zero-one")
HAMMING, F1, ZERO_ONE, NO_LOSS = range(4)


def count_loss(loss: int, n_true: Any, true_positives: Any, false_positives: Any) -> Any:
    """The loss, by its index in `LOSSES`, of a set with these true and false positives."""
    wrong = n_true - true_positives + false_positives
    if loss == HAMMING:
        return wrong + 0.0
    if loss == ZERO_ONE:
        return 1.0 * (wrong > 0)
    if loss == NO_LOSS:
        return 0.0 * wrong
    # 1 - 2 tp / (|true| + |found|) = wrong / (|true| + |found|); nothing is wrong with two empty
    # sets, whose sizes add up to zero.
    return wrong / (n_true + true_positives + false_positives + (wrong == 0))


_count_loss = inlined(count_loss)


@inlined
def _value(margin, lost, slack):  # type: ignore[no-untyped-def]
    """What is maximised, for a set whose score is the true set's plus `margin`."""
    return lost * (1.0 + max(margin, -1.0)) if slack else lost + margin


@inlined
def _lowest_bit(code, n_labels):  # type: ignore[no-untyped-def]
    """Index of the lowest bit that is set, the last label if none is."""
    k = 0
    while k < n_labels - 1 and not (code >> k) & 1:
        k += 1
    return k


@inlined
def _choose(best, n_true, n_false, loss, slack):  # type: ignore[no-untyped-def]
    """Index in `best`, by counts, of the largest augmented score; the true set first."""
    stride = n_false + 1
    chosen = n_true * stride
    true_score = best[chosen]
    highest = 0.0
    for tp in range(n_true + 1):
        for fp in range(stride):
            at = tp * stride + fp
            lost = _count_loss(loss, n_true, tp, fp)
            value = _value(best[at] - true_score, lost, slack)
            if value > highest:
                highest = value
                chosen = at
    return chosen


@compiled
def best_in_forests(gains, to_parents, parents, order, sets, best):  # type: ignore[no-untyped-def]
    """Set `sets` to the best set for each row of gains, by max-product in a forest.

    ``to_parents[l]`` is the bonus of label l with its parent, which comes after it in `order`; all
    ``(n_labels,)``. Scratch: `best` float64 ``(n_labels, 2)``.
    """
    for k in range(len(gains)):
        for label in range(len(order)):
            best[label, 0] = 0.0
            best[label, 1] = gains[k, label]
        for label in order:
            parent = parents[label]
            if parent >= 0:
                off, on = best[label, 0], best[label, 1]
                best[parent, 0] += max(off, on)
                best[parent, 1] += max(off, on + to_parents[label])
        for i in range(len(order) - 1, -1, -1):
            label = order[i]
            parent = parents[label]
            together = to_parents[label] if parent >= 0 and sets[k, parent] else 0.0
            sets[k, label] = best[label, 1] + together > best[label, 0]


@compiled
def try_all_sets(  # type: ignore[no-untyped-def]
    gains, y_true, loss, slack, sets, couplings, partial, fields, hopes, right, wrong, states
):
    """Set `sets` to the most violating set for each row of gains, by branch and bound.

    With ``loss == NO_LOSS`` and empty true sets, to the best set.

    couplings : bonuses as a symmetric matrix, float64 ``(n_labels, n_labels)``
    partial, fields, hopes : scratch, float64, ``(n + 1,)``, ``(n + 1, n)``, ``(n,)`` for n labels
    right, wrong, states : scratch, int64 ``(n_labels + 1,)``
    """
    # Labels are decided from the last to the first. Level k of the scratch is for labels k and
    # above being decided: the score so far, what each lower label would add, how many labels are
    # right, and how many wrong if all false ones below will be. Bit k of `code` is set where
    # label k is not decided as what it adds would have it, so that good sets come early. To the
    # next code only the levels up to its lowest bit that is set are done again, two on average.
    n = len(couplings)
    for label in range(n):  # what labels below may add to this one, at most
        hopes[label] = 0.0
        for j in range(label):
            hopes[label] += max(couplings[label, j], 0.0)
    partial[n] = 0.0
    right[n] = 0
    for row in range(len(gains)):
        n_true = 0
        true_score = 0.0
        for label in range(n):
            fields[n, label] = gains[row, label]
            sets[row, label] = y_true[row, label]
            if y_true[row, label]:
                n_true += 1
                true_score += gains[row, label]
                for j in range(label):
                    true_score += couplings[label, j] * y_true[row, j]
        wrong[n] = n - n_true
        highest = 0.0
        code = np.int64(0)
        while code < (np.int64(1) << n):
            k = _lowest_bit(code, n)
            while True:
                on = (fields[k + 1, k] > 0.0) ^ ((code >> k) & 1)
                states[k] = on
                partial[k] = partial[k + 1] + (fields[k + 1, k] if on else 0.0)
                right[k] = right[k + 1] + (on & y_true[row, k])
                wrong[k] = wrong[k + 1] - (1 - on & 1 - y_true[row, k])
                bound = partial[k] - true_score
                for j in range(k):
                    fields[k, j] = fields[k + 1, j] + on * couplings[k, j]
                    bound += max(fields[k, j] + hopes[j], 0.0)
                value = _value(bound, _count_loss(loss, n_true, right[k], wrong[k]), slack)
                if k == 0 or value <= highest:
                    break
                k -= 1
            if value > highest:
                highest = value
                for label in range(n):
                    sets[row, label] = states[label]
            code = ((code >> k) + 1) << k


@compiled
def counted_independent(gains, y_true, loss, slack, sets, ranks, best, right, wrong):  # type: ignore[no-untyped-def]
    """Set `sets` to the most violating set for each row of gains, without edges.

    `ranks` ``(n, n_labels)`` has labels in descending order of gain. Scratch, float64: `best` for
    each pair of counts, `right` and `wrong` ``(n_labels + 1,)``.
    """
    n = gains.shape[1]
    for row in range(len(gains)):
        n_true = n_false = 0
        right[0] = wrong[0] = 0.0  # sums of the highest gains of true and of other labels
        for label in ranks[row]:
            if y_true[row, label]:
                right[n_true + 1] = right[n_true] + gains[row, label]
                n_true += 1
            else:
                wrong[n_false + 1] = wrong[n_false] + gains[row, label]
                n_false += 1
        stride = n_false + 1
        for tp in range(n_true + 1):
            for fp in range(stride):
                best[tp * stride + fp] = right[tp] + wrong[fp]
        chosen = _choose(best, n_true, n_false, loss, slack)
        left_true, left_false = chosen // stride, chosen % stride
        for i in range(n):
            label = ranks[row, i]
            if y_true[row, label]:
                sets[row, label] = left_true > 0
                left_true -= 1
            else:
                sets[row, label] = left_false > 0
                left_false -= 1


@compiled
def counted_in_forests(  # type: ignore[no-untyped-def]
    gains, y_true, loss, slack, sets, to_parents, parents, order, now, before, counts
):
    """Set `sets` to the most violating set for each row of gains, in a forest.

    to_parents, parents, order : as in `best_in_forests`
    now, before : scratch, float64 ``(n_labels + 1, 2, P)``; time is quadratic in P pairs of counts
    counts : scratch, int64 ``(6, n_labels + 1)``
    """
    # now[l, s, at]: the best score of label l, in state s, with what is below it and has been
    # merged so far, by counts; before[l] is that of its parent when l is merged into it. The roots
    # are merged into one more label, the last, which is off.
    n = len(order)
    trues, falses, want_true, want_false = counts[0], counts[1], counts[2], counts[3]
    prior_true, prior_false = counts[4], counts[5]
    for row in range(len(gains)):
        n_true = 0
        for label in range(n):
            n_true += y_true[row, label]
        stride = n - n_true + 1
        for label in range(n + 1):
            trues[label] = y_true[row, label] if label < n else 0
            falses[label] = 1 - trues[label] if label < n else 0
            for at in range(trues[label] * stride + falses[label] + 1):
                now[label, 0, at] = now[label, 1, at] = -np.inf
            now[label, 0, 0] = 0.0
            if label < n:
                now[label, 1, stride if trues[label] else 1] = gains[row, label]
        for label in order:
            parent = parents[label] if parents[label] >= 0 else n
            prior_true[label], prior_false[label] = trues[parent], falses[parent]
            _merge(now, before, label, parent, to_parents[label], trues, falses, stride)
        chosen = _choose(now[n, 0], n_true, n - n_true, loss, slack)
        want_true[n], want_false[n] = chosen // stride, chosen % stride
        for i in range(n - 1, -1, -1):
            label = order[i]
            parent = parents[label] if parents[label] >= 0 else n
            together = to_parents[label] if parent < n and sets[row, parent] else 0.0
            state = sets[row, parent] if parent < n else 0
            tp, fp = want_true[parent], want_false[parent]
            highest = -np.inf
            for a in range(max(0, tp - prior_true[label]), min(trues[label], tp) + 1):
                for b in range(max(0, fp - prior_false[label]), min(falses[label], fp) + 1):
                    rest = before[label, state, (tp - a) * stride + fp - b]
                    at = a * stride + b
                    off, on = now[label, 0, at], now[label, 1, at] + together
                    if rest + max(off, on) > highest:
                        highest = rest + max(off, on)
                        sets[row, label] = on > off
                        want_true[label], want_false[label] = a, b
            want_true[parent] = tp - want_true[label]
            want_false[parent] = fp - want_false[label]


@inlined
def _merge(now, before, label, parent, bonus, trues, falses, stride):  # type: ignore[no-untyped-def]
    """Combine the complete table of a label with that of its parent."""
    for state in range(2):
        for tp in range(trues[parent] + 1):
            for fp in range(falses[parent] + 1):
                at = tp * stride + fp
                before[label, state, at] = now[parent, state, at]
        for tp in range(trues[parent] + trues[label] + 1):
            for fp in range(falses[parent] + falses[label] + 1):
                now[parent, state, tp * stride + fp] = -np.inf
        for a in range(trues[label] + 1):
            for b in range(falses[label] + 1):
                at = a * stride + b
                added = max(now[label, 0, at], now[label, 1, at] + state * bonus)
                for tp in range(trues[parent] + 1):
                    for fp in range(falses[parent] + 1):
                        here = tp * stride + fp
                        total = before[label, state, here] + added
                        now[parent, state, here + at] = max(now[parent, state, here + at], total)
    trues[parent] += trues[label]
    falses[parent] += falses[label]


class LabelGraph:
    """Labels and edges ``(n_edges, 2)``, none twice; ValueError for cycles over too many labels."""

    def __init__(self, n_labels: int, edges: ArrayLike) -> None:
        self.n_labels = n_labels
        self.edges = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
        check_indices("pairs of labels", self.edges, n_labels)
        self._rooted = self._find_roots()
        if not self.is_forest and n_labels > MOST_LABELS:
            raise ValueError(
                f"The pairs of labels form a cycle, and then all sets of labels are enumerated, "
                f"for at most {MOST_LABELS} labels, but there are {n_labels}: use "
                f"graph='tree', graph='independent', or pairs that form no cycle."
            )

    @property
    def is_forest(self) -> bool:
        return self._rooted is not None

    def _find_roots(self) -> tuple[Order, Order, Order] | None:
        """Every label's parent and the edge to it, -1 at a root; all labels, leaves first."""
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

    def _forest(self, bonus: Floats) -> tuple[Floats, Order, Order]:
        """The bonus of each label with its parent, the parents, and the order, of a forest."""
        assert self._rooted is not None
        parents, edges, order = self._rooted
        return np.append(bonus, 0.0)[edges], parents, order

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
        """MAP inference for each row of gains ``(n, n_labels)``; -inf rules a label out."""
        gains = np.ascontiguousarray(gains)
        if not len(self.edges):
            return (gains > 0.0).astype(np.int32)
        sets = np.empty(gains.shape, dtype=np.int32)
        if self.is_forest:
            best_in_forests(gains, *self._forest(bonus), sets, np.empty((self.n_labels, 2)))
        else:
            self._try_all(gains, bonus, np.zeros(gains.shape, np.int32), NO_LOSS, False, sets)
        return sets

    def most_violating(
        self, gains: Floats, bonus: Floats, y_true: Sets, loss: str, slack: bool = False
    ) -> Sets:
        """Loss-augmented inference; with `slack`, of ``loss * (1 + score - score of y_true)``."""
        y_true = np.ascontiguousarray(y_true, dtype=np.int32)
        if loss == "hamming" and not slack:
            return self.best(gains + 1.0 - 2.0 * y_true, bonus)
        gains = np.ascontiguousarray(gains)
        sets = np.empty(gains.shape, dtype=np.int32)
        if not self.is_forest:
            self._try_all(gains, bonus, y_true, LOSSES.index(loss), slack, sets)
            return sets
        wanted = gains, y_true, LOSSES.index(loss), slack, sets
        n = self.n_labels
        n_true = y_true.sum(axis=1)
        size = int(((n_true + 1) * (n - n_true + 1)).max(initial=1))
        if not len(self.edges):
            ranks = np.argsort(-gains, axis=1, kind="stable")
            counted_independent(*wanted, ranks, np.empty(size), *np.empty((2, n + 1)))
        else:
            tables, counts = np.empty((2, n + 1, 2, size)), np.empty((6, n + 1), dtype=np.int64)
            counted_in_forests(*wanted, *self._forest(bonus), *tables, counts)
        return sets

    def _try_all(
        self, gains: Floats, bonus: Floats, y_true: Sets, loss: int, slack: bool, sets: Sets
    ) -> None:
        n = self.n_labels
        counts = np.empty((3, n + 1), dtype=np.int64)
        scratch = np.empty(n + 1), np.empty((n + 1, n)), np.empty(n), *counts
        try_all_sets(gains, y_true, loss, slack, sets, self.couplings(bonus), *scratch)

    def work(self, n_true: float, by_counts: bool) -> float:
        """Operations of one inference, about, where the true set has `n_true` labels."""
        if not self.is_forest:
            return 4.0 * 2.0**self.n_labels
        each = (n_true + 1.0) * (self.n_labels - n_true + 1.0) if by_counts else 1.0
        return each * self.n_labels if not len(self.edges) else 4.0 * each * (self.n_labels + each)
