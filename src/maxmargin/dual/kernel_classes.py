"""Steps of the kernel Crammer-Singer dual, on scores that are kept for all examples.

Scores are class-major, ``(n_classes, n_samples)``, so that a step adds multiples of a kernel row
to whole rows of them. Dual coefficients are ``(n_samples, padded classes)``, see sweeps.py.

Rows of the Gram matrix are computed when they are needed; those used least recently give way.
"""

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.core.checks import check_indices, check_shape
from maxmargin.core.kernels import Kernel, KernelError, check_block, check_finite
from maxmargin.core.registry import registered
from maxmargin.core.state import Stateful
from maxmargin.dual.sweeps import MOVED, NEVER, crammer_singer_step

Floats = NDArray[np.float64]


class CachedRows:
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
def update(  # type: ignore[no-untyped-def]
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


Order = NDArray[np.int64]


@registered("KernelRows")
class _Held(NamedTuple):
    """Which rows are in which slots, and how they got there.

    Rows that were computed together are computed together again, because the bits of a product of
    matrices may depend on its shape.
    """

    row_in: Order
    batch_in: Order
    batches: dict[int, Order]


class KernelRowCache(Stateful):
    """Kernel of some rows with all rows, as many as fit.

    Parameters
    ----------
    kernel : Kernel
    X : rows
        In the width of floats that the kernel is to be computed in.
    max_bytes : int
    least : int
        Rows that are kept at least, whatever they take.

    Attributes
    ----------
    values : ndarray of shape (n_slots, n_rows)
    diagonal : ndarray of shape (n_rows,)
    evaluations : int
        Values of the kernel that were computed.
    """

    state_names: ClassVar[tuple[str, ...]] = ("last_use", "evaluations", "clock", "held")

    def __init__(self, kernel: Kernel, X: Any, max_bytes: int, least: int) -> None:
        self.kernel, self.X = kernel, X
        n = X.shape[0]
        dtype = X.dtype if X.dtype == np.float32 else np.dtype(np.float64)
        slots = min(n, max(least, max_bytes // max(1, n * dtype.itemsize)))
        self.values = np.empty((slots, n), dtype=dtype)  # what is never used takes no memory
        self.diagonal = _diagonal(kernel, X)
        self.slot_of = np.full(n, -1, dtype=np.int64)
        self.row_in = np.full(slots, -1, dtype=np.int64)
        self.last_use = np.full(slots, -1, dtype=np.int64)
        self.evaluations = n
        self.clock = 0
        """Of calls of `slots`; also the number of the batch that a call computes."""
        self._batch_in = np.full(slots, -1, dtype=np.int64)
        self._batches: dict[int, Order] = {}

    @property
    def held(self) -> _Held:
        """What a state needs of the values: how to compute them again."""
        self._forget_batches()
        return _Held(self.row_in, self._batch_in, self._batches)

    @held.setter
    def held(self, held: _Held) -> None:
        n = self.X.shape[0]
        check_shape("row_in", held.row_in, len(self.row_in))
        check_shape("batch_in", held.batch_in, len(self.row_in))
        check_indices("row_in", held.row_in, n, start=-1)
        for rows in held.batches.values():
            check_indices("rows of a batch", rows, n)
        if not set(held.batch_in[held.row_in >= 0].tolist()) <= held.batches.keys():
            raise ValueError("a kernel row belongs to no batch")
        self.row_in, self._batch_in, self._batches = held
        self.slot_of[:] = -1
        filled = np.flatnonzero(self.row_in >= 0)
        self.slot_of[self.row_in[filled]] = filled
        for batch, rows in self._batches.items():
            block = self.kernel(self.X[rows], self.X)
            slots = self.slot_of[rows]
            here = (slots >= 0) & (self._batch_in[slots] == batch)
            self.values[slots[here]] = block[here]

    def slots(self, rows: Order) -> Order:
        """Where in `values` the kernel of these rows, at most `least`, is; computed if need be."""
        missing = rows[self.slot_of[rows] < 0]
        self.clock += 1
        held = self.slot_of[rows]
        self.last_use[held[held >= 0]] = self.clock
        if len(missing):
            given = np.argpartition(self.last_use, len(missing) - 1)[: len(missing)]
            if self.last_use[given].max() == self.clock:
                raise ValueError("More rows are asked for than the cache can hold.")
            block = self.kernel(self.X[missing], self.X)
            self.evaluations += block.size
            self._check(missing, block)
            leaving = self.row_in[given]
            self.slot_of[leaving[leaving >= 0]] = -1
            self.values[given] = block
            self.row_in[given] = missing
            self.slot_of[missing] = given
            self.last_use[given] = self.clock
            self._batch_in[given] = self.clock
            self._batches[self.clock] = missing
            if len(self._batches) > 2 * len(self.row_in):
                self._forget_batches()
        return self.slot_of[rows]

    def between(self, rows: Order) -> Any:
        """The Gram matrix of some rows that are all at hand, as a copy."""
        gram = np.empty((len(rows), len(rows)), dtype=self.values.dtype)
        _gather(self.values, self.slot_of[rows], rows, gram)
        return gram

    def _forget_batches(self) -> None:
        """Those of which no row is left."""
        live = np.unique(self._batch_in[self.row_in >= 0]).tolist()
        self._batches = {batch: self._batches[batch] for batch in live}

    def _check(self, rows: Order, block: Any) -> None:
        name = self.kernel.name
        check_finite(block, name)
        if self.values.dtype == np.float64:
            check_block(block, self.diagonal[rows], self.diagonal, name)
        other = self.row_in[self.row_in >= 0][:1]
        if len(other):
            there, back = block[0, other[0]], self.values[self.slot_of[other[0]], rows[0]]
            if abs(there - back) > 1e-4 * max(abs(there), abs(back), 1e-300) + 1e-9:
                raise KernelError(
                    f"{name} is not symmetric: for two training rows it is {there:.6g} one way and "
                    f"{back:.6g} the other."
                )


@compiled
def _gather(values, slots, columns, out):  # type: ignore[no-untyped-def]
    """``out[a, b] = values[slots[a], columns[b]]``."""
    for a in range(len(slots)):
        row = values[slots[a]]
        for b in range(len(columns)):
            out[a, b] = row[columns[b]]


def _diagonal(kernel: Kernel, X: Any) -> NDArray[np.float64]:
    """Kernel of each row with itself, some at a time."""
    size = 64
    parts = [
        kernel(X[start : start + size], X[start : start + size]).diagonal()
        for start in range(0, X.shape[0], size)
    ]
    return np.concatenate(parts).astype(np.float64)
