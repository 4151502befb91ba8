"""Steps of the kernel Crammer-Singer dual, on scores that are kept for all examples.

Scores are class-major, ``(n_classes, n_samples)``, so that a step adds multiples of a kernel row
to whole rows of them. Dual coefficients are ``(n_samples, padded classes)``, see subproblems.py.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.dual.compiled import compiled, inlined
from maxmargin.dual.subproblems import MOVED, NEVER, crammer_singer_step

Floats = NDArray[np.float64]


class RowsAtHand:
    """Some of the examples with their own Gram matrix, as if nothing else could move.

    Is `Extrapolable`: the product of the Gram matrix with a change of all coefficients costs about
    as much as a sweep.

    Parameters
    ----------
    gram : ndarray of shape (n, n)
    scale : float
        Kernel of a class with itself.
    scores : ndarray of shape (n_classes, n)
    coef : ndarray of shape (n, padded classes)
    labels, cost : ndarray of shape (n,)
    losses : ndarray of shape (n_classes, n_classes)
    """

    def __init__(
        self, gram: Any, scale: float, scores: Floats, coef: Floats, labels: Any, losses: Floats,
        cost: Floats,
    ) -> None:  # fmt: skip
        self.gram, self.scale, self.scores, self.coef = gram, scale, scores, coef
        self.labels, self.losses, self.cost = labels, losses, cost
        self._outside = scores - self._scores_of(coef)
        """What all other examples add to the scores."""
        self._before = coef.copy(), scores.copy()
        n, width = coef.shape
        self._scratch = np.empty(n), np.empty(n), np.empty(width), np.empty(width)

    @property
    def dual(self) -> float:
        """Dual value, but for what other examples have by themselves."""
        coef = self.coef[:, : len(self.scores)]
        linear = float(np.sum(coef * self.losses[self.labels]))
        return -linear - 0.5 * float(np.einsum("im,mi->", coef, self.scores + self._outside))

    def sweep(self, goal: float) -> int:
        """About as many steps as there are examples; fewer if none violates by `goal`."""
        steps = polish(
            self.gram, self.scale, self.scores, self.coef, self.labels, self.losses, self.cost,
            goal, len(self.labels), *self._scratch,
        )  # fmt: skip
        return int(steps)

    def extrapolate(self, momentum: float) -> None:
        """See `Extrapolable`."""
        last = self._before[0]
        self.restart()
        if momentum > 0.0:
            coef = self.coef + momentum * (self.coef - last)
            project(coef, len(self.scores), self.labels, self.cost)
            self.scores += self._scores_of(coef - self.coef)
            self.coef = coef

    def revert(self) -> None:
        """See `Extrapolable`."""
        coef, scores = self._before
        self.coef, self.scores = coef.copy(), scores.copy()

    def restart(self) -> None:
        """See `Extrapolable`."""
        self._before = self.coef.copy(), self.scores.copy()

    def _scores_of(self, coef: Floats) -> Floats:
        factors = np.ascontiguousarray(coef[:, : len(self.scores)].T, dtype=self.gram.dtype)
        return np.asarray(self.scale * (factors @ self.gram), dtype=np.float64)


@compiled
def project(coef, n_classes, labels, cost):  # type: ignore[no-untyped-def]
    """The nearest feasible coefficients of each example, in place; see `crammer_singer_step`."""
    for i in range(len(labels)):
        own = coef[i]
        if cost[i] == 0.0:
            own[:] = 0.0
            continue
        own[labels[i]] -= cost[i]
        highest = NEVER
        for m in range(n_classes):
            highest = max(highest, -own[m])
        level = highest - cost[i]
        while True:
            total = 0.0
            count = 0
            for m in range(n_classes):
                above = -own[m] > level
                total -= own[m] if above else 0.0
                count += above
            higher = (total - cost[i]) / count
            if higher <= level:
                break
            level = higher
        for m in range(n_classes):
            new = own[m] + level
            own[m] = new if new < 0.0 else 0.0
        own[labels[i]] += cost[i]


@inlined
def _survey(scores, coef, labels, losses, cost, highest, lowest):  # type: ignore[no-untyped-def]
    """Loss-augmented scores of each example: the highest, and the lowest that has coefficient."""
    n = len(labels)
    for i in range(n):
        highest[i] = NEVER
        lowest[i] = -NEVER
    for m in range(len(scores)):
        for i in range(n):
            value = scores[m, i] + losses[labels[i], m]
            highest[i] = value if value > highest[i] else highest[i]
            a = coef[i, m] - (cost[i] if labels[i] == m else 0.0)
            low = value if a < 0.0 else -NEVER
            lowest[i] = low if low < lowest[i] else lowest[i]


@compiled
def survey(scores, coef, labels, losses, cost, highest, lowest):  # type: ignore[no-untyped-def]
    """The same, from Python."""
    _survey(scores, coef, labels, losses, cost, highest, lowest)


@compiled
def violations_of(rows, scores, coef, labels, losses, cost, out):  # type: ignore[no-untyped-def]
    """How far from optimal some examples are: what `survey` says, highest less lowest."""
    for r in range(len(rows)):
        i = rows[r]
        highest = NEVER
        lowest = -NEVER
        for m in range(len(scores)):
            value = scores[m, i] + losses[labels[i], m]
            highest = max(highest, value)
            if coef[i, m] - (cost[i] if labels[i] == m else 0.0) < 0.0:
                lowest = min(lowest, value)
        out[r] = highest - lowest


@compiled
def visit(  # type: ignore[no-untyped-def]
    rows, slots, kernel, diagonal, scale, scores, coef, labels, losses, cost, goal, own, change
):
    """An exact step for each of the examples `rows` that violates by `goal`; says how many moved.

    Parameters
    ----------
    rows, slots : ndarray of shape (n,)
        Examples, and where their kernel rows are in `kernel`.
    scale : float
        Kernel of a class with itself.
    own, change : ndarray of shape (padded classes,)
        Scratch.
    """
    moved = 0
    n_classes = len(scores)
    for r in range(len(rows)):
        i = rows[r]
        for m in range(len(own)):
            own[m] = NEVER
        for m in range(n_classes):
            own[m] = scores[m, i] + losses[labels[i], m]
        inverse = _inverse(scale * diagonal[i])
        what = crammer_singer_step(own, coef[i], labels[i], cost[i], inverse, goal, change)
        if what != MOVED:
            continue
        moved += 1
        row = kernel[slots[r]]
        for m in range(n_classes):
            if change[m] != 0.0:
                step = scale * change[m]
                of_class = scores[m]
                for j in range(len(row)):
                    of_class[j] += step * row[j]
    return moved


@compiled
def polish(  # type: ignore[no-untyped-def]
    gram, scale, scores, coef, labels, losses, cost, goal, most, highest, lowest, own, change
):
    """Steps over a few examples with their own Gram matrix, the worst first (shrinking).

    Until none violates by `goal`, or about `most` steps have been made; returns their number.

    Parameters
    ----------
    gram : ndarray of shape (n, n)
    scores : ndarray of shape (n_classes, n)
    coef : ndarray of shape (n, padded classes)
    labels, cost : ndarray of shape (n,)
    highest, lowest, own, change : ndarray
        Scratch.
    """
    moved = 0
    n_classes = len(scores)
    while True:
        _survey(scores, coef, labels, losses, cost, highest, lowest)
        worst = 0.0
        for i in range(len(labels)):
            worst = max(worst, highest[i] - lowest[i])
        if worst <= goal or moved >= most:
            return moved
        bar = max(0.3 * worst, goal)
        before = moved
        for i in range(len(labels)):
            if highest[i] - lowest[i] < bar:
                continue
            for m in range(len(own)):
                own[m] = NEVER
            for m in range(n_classes):
                own[m] = scores[m, i] + losses[labels[i], m]
            inverse = _inverse(scale * gram[i, i])
            what = crammer_singer_step(own, coef[i], labels[i], cost[i], inverse, 0.3 * bar, change)
            if what != MOVED:
                continue
            moved += 1
            row = gram[i]
            for m in range(n_classes):
                if change[m] != 0.0:
                    step = scale * change[m]
                    of_class = scores[m]
                    for j in range(len(row)):
                        of_class[j] += step * row[j]
        if moved == before:
            return moved


@inlined
def _inverse(curvature):  # type: ignore[no-untyped-def]
    """One over the curvature; of a row of no length, something large."""
    return 1.0 / curvature if curvature > 1e-12 else 1e12
