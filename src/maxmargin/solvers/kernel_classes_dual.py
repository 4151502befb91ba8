"""KernelClassesDual: the dual of kernel Crammer-Singer, exact steps on cached kernel rows.

    min over f   1/2 sum_m |f_m|^2 + sum_i C_i max_m [loss(y_i, m) + f_m(x_i) - f_{y_i}(x_i)]
    max over b   -sum_im b_im loss(y_i, m) - 1/2 sum_m b_m' K b_m
    s.t.         b_im <= C_i [m = y_i],    sum_m b_im = 0

with K the Gram matrix times `scale`. The most violating example is updated exactly, as in Crammer
and Singer (2001); Keerthi et al. (2008), section 2.2, say why kernels ask for that order. Scores
have shape (n_classes, n_samples), dual coefficients (n_samples, padded classes).
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.compiled.rows import padded
from maxmargin.core.arrays import Floats, Order, check_indices, conforms
from maxmargin.core.certificate import Certificate
from maxmargin.core.kernel import Kernel, asymmetric, check_block, check_finite
from maxmargin.core.kernel_oracle import ClassOracle, KernelModel
from maxmargin.core.oracle import Threads
from maxmargin.core.registry import registered
from maxmargin.core.result import Result, Status
from maxmargin.core.state import Stateful
from maxmargin.dual.sweeps import MOVED, NEVER, crammer_singer_step
from maxmargin.solvers.loop import Momentum, Solver, SolverRun, Stopping, in_spite_of_interrupt

_BATCH = 64
"""Kernel rows computed by one matrix product."""

_WITHIN = 0.1
"""An iteration updates examples with at least this part of the largest violation."""

_SWEEPS = 20
"""Most sweeps of an iteration over the examples with cached kernel rows."""

_MOST_AT_ONCE = 8000
"""Examples whose Gram matrix is copied to contiguous memory."""

_DEEPER = 0.3
"""Cached examples are solved to this part of the others' violation."""

_SINGLE = 1e-2
"""Kernel rows are of single precision if that changes them by at most this part of tol."""


@registered("KernelClassesDual")
@dataclass(frozen=True, kw_only=True)
class KernelClassesDual(Solver):
    """Updates the most violating examples, each with an exact step over its classes.

    Scores of all examples follow each step, so the gap is known after every iteration. Examples
    with cached kernel rows are swept many times on their own Gram matrix, with Nesterov's
    extrapolation, before the scores of the others are updated.

    Parameters
    ----------
    cache_bytes : int, default=1_000_000_000
        Memory for kernel rows; beyond, the least recently used are computed again.

    Examples
    --------
    >>> import maxmargin as mm
    >>> mm.KernelClassesDual(cache_bytes=10**8)
    KernelClassesDual(cache_bytes=100000000)
    """

    requires: ClassVar[tuple[type, ...]] = (ClassOracle,)

    cache_bytes: int = 1_000_000_000

    def start(
        self, oracle: ClassOracle, stopping: Stopping, threads: Threads, seed: int
    ) -> "ClassRun":
        return ClassRun(self.cache_bytes, oracle, stopping, threads, seed)

    def iterate(self, run: "ClassRun") -> None:
        run.update_worst()

    def finish(self, run: Any, status: Status) -> Result:
        """The model of the dual point, evaluated anew from the data and the kernel alone."""
        if run.certificate is None:
            status = in_spite_of_interrupt(run.evaluate, status)
        answer, point, certificate = run.answer(), run.point(), run.certificate
        at_zero = float(run.oracle.C @ run.losses[run.oracle.labels].max(axis=1))
        if at_zero < certificate.primal:
            answer = run.oracle.model_of(np.zeros_like(point))
            certificate = replace(certificate, primal=at_zero)
        certificate = certificate.compared_with_zero(at_zero, run.stopping.relative_tol(at_zero))
        if run.stopping.is_enough(certificate.primal, certificate.dual):
            status = Status.CONVERGED
        return Result(answer, point, certificate, status, len(run.history), run.history)


class ClassRun(SolverRun):
    """One solve, without any randomness."""

    state_names: ClassVar[tuple[str, ...]] = (
        *SolverRun.state_names, "coef", "scores", "highest", "lowest", "cache", "certificate",
    )  # fmt: skip

    state_types: ClassVar[dict[str, Any]] = {"certificate": Certificate | None}

    oracle: ClassOracle

    def __init__(self, cache_bytes: int, oracle: ClassOracle, *more: Any) -> None:
        super().__init__(oracle, *more)
        n, k = len(oracle.labels), oracle.n_classes
        worst = oracle.problem.loss_matrix.max(axis=1)[oracle.labels]
        X = _narrowed(oracle, self.stopping.relative_tol(float(oracle.C @ worst)))
        self.cache = KernelRowCache(oracle.kernel, X, cache_bytes, 2 * _BATCH)
        self.scores = np.zeros((k, n))
        self.coef = np.zeros((n, padded(k)))
        self.losses = np.ascontiguousarray(oracle.problem.loss_matrix)
        self.highest, self.lowest = np.empty(n), np.empty(n)
        self.certificate: Certificate | None = None
        """Of the present point; None after a step."""
        self._survey()

    @property
    def dual_coef(self) -> Floats:
        """Dual coefficients without the padding."""
        return self.coef[:, : self.oracle.n_classes]

    @property
    def half_square(self) -> float:
        return 0.5 * float(np.einsum("im,mi->", self.dual_coef, self.scores))

    @property
    def dual(self) -> float:
        losses = self.losses[self.oracle.labels]
        return -float(np.sum(self.dual_coef * losses)) - self.half_square

    @property
    def n_cuts(self) -> int:
        """Non-zero dual coefficients of wrong classes."""
        return int(np.count_nonzero(self.coef < 0.0))

    @property
    def expected(self) -> float:
        """By the scores, perhaps in single precision."""
        return self.primal

    @property
    def is_done(self) -> bool:
        """Whether the certified gap is closed."""
        found = self.certificate
        return found is not None and self.stopping.is_enough(found.primal, found.dual)

    def resume(self, start: Floats) -> None:
        """Take over dual coefficients, projected for the present C."""
        if start.shape != self.dual_coef.shape:
            raise ValueError("The dual coefficients are those of other examples or classes.")
        C = self.oracle.C
        own = start[np.arange(len(start)), self.oracle.labels]
        scale = np.minimum(1.0, C / np.maximum(own, 1e-300))
        self.coef[:, : self.oracle.n_classes] = start * scale[:, None]
        used = np.flatnonzero(self.coef.any(axis=1))
        for some in np.split(used, range(_BATCH, len(used), _BATCH)):
            self.cache.slots(some)
            self._add(some, self.dual_coef[some])
        self._survey()

    def point(self) -> Floats:
        return self.dual_coef.copy()

    def answer(self) -> KernelModel:
        return self.oracle.model_of(self.dual_coef)

    def update_worst(self) -> None:
        """Update the most violating examples, in batches, then those with cached kernel rows."""
        self.certificate = None
        violations = self.highest - self.lowest
        bar = max(_WITHIN * float(violations.max(initial=0.0)), 1e-14)
        queue = np.flatnonzero((violations >= bar) & (self.cache.slot_of < 0))
        self._update(queue[np.argsort(-violations[queue], kind="stable")], bar)
        self._polish(violations, bar)
        self._survey()
        if self.stopping.is_enough(self.primal, self.dual):
            self.evaluate()

    def _update(self, queue: Order, bar: float) -> None:
        """Update the examples that still violate by the threshold at their turn."""
        oracle, cache = self.oracle, self.cache
        own, change = np.empty(self.coef.shape[1]), np.empty(self.coef.shape[1])
        while len(queue) and not self.stopping.out_of_time:
            found = np.empty(len(queue))
            violations_of(
                queue, self.scores, self.coef, oracle.labels, self.losses, oracle.C, found
            )
            queue = queue[found >= bar]
            rows, queue = queue[:_BATCH], queue[_BATCH:]
            if len(rows):
                self.calls += update(
                    rows, cache.slots(rows), cache.values, cache.diagonal, oracle.problem.scale,
                    self.scores, self.coef, oracle.labels, self.losses, oracle.C, bar, own,
                    change,
                )  # fmt: skip

    def _polish(self, violations: Floats, goal: float) -> None:
        """Sweep the cached examples that have coefficients or violate; then update all scores."""
        oracle, cache = self.oracle, self.cache
        rows = np.sort(cache.row_in[cache.row_in >= 0])
        rows = rows[(violations[rows] >= goal) | self.coef[rows].any(axis=1)]
        if len(rows) > _MOST_AT_ONCE:
            rows = np.sort(rows[np.argsort(-violations[rows], kind="stable")[:_MOST_AT_ONCE]])
        hand = CachedRows(
            cache.between(rows), oracle.problem.scale, np.ascontiguousarray(self.scores[:, rows]),
            self.coef[rows], oracle.labels[rows], self.losses, oracle.C[rows],
        )  # fmt: skip
        momentum = Momentum(hand)
        for _ in range(_SWEEPS):
            momentum.apply()
            steps = hand.sweep(_DEEPER * goal)
            self.calls += steps
            momentum.settle()
            if steps < len(rows) or self.stopping.out_of_time:
                break
        momentum.settle(early=True)
        change = (hand.coef - self.coef[rows])[:, : oracle.n_classes]
        moved = np.flatnonzero(change.any(axis=1))
        self.coef[rows] = hand.coef
        self._add(rows[moved], change[moved])

    def _add(self, rows: Order, change: Floats) -> None:
        """Update all scores for a change of coefficients of cached rows."""
        for start in range(0, len(rows), _BATCH):
            some = slice(start, start + _BATCH)
            kernel_rows = self.cache.values[self.cache.slot_of[rows[some]]]
            factors = (self.oracle.problem.scale * change[some].T).astype(kernel_rows.dtype)
            self.scores += factors @ kernel_rows

    def _survey(self) -> None:
        """Violations of all examples and the primal value, by the kept scores."""
        oracle = self.oracle
        survey(
            self.scores, self.coef, oracle.labels, self.losses, oracle.C, self.highest,
            self.lowest,
        )  # fmt: skip
        own = self.scores[oracle.labels, np.arange(len(oracle.labels))]
        self.primal = self.half_square + float(oracle.C @ (self.highest - own))

    def evaluate(self) -> None:
        """Certify the present point, and go on from exact scores."""
        scores = self.oracle.scores_of(self.dual_coef, self.threads)
        self.certificate = self.oracle.certify(self.dual_coef, scores)
        self.scores = np.ascontiguousarray(scores.T)
        self._survey()
        self.primal = self.evaluated = self.certificate.primal


def _narrowed(oracle: ClassOracle, tol: float) -> Any:
    """The rows in single precision, if that is precise enough for the kernel."""
    X, kernel = oracle.X, oracle.kernel
    if X.dtype == object:
        return X
    some = X[: 2 * _BATCH]
    exact = kernel(some, some)
    off = np.abs(kernel(some.astype(np.float32), some.astype(np.float32)) - exact).max()
    return X.astype(np.float32) if off <= _SINGLE * tol * np.abs(exact).max() else X


class CachedRows:
    """The dual over n examples with their own Gram matrix, others fixed; `Extrapolable`."""

    def __init__(
        self, gram: Any, scale: float, scores: Floats, coef: Floats, labels: Any, losses: Floats,
        cost: Floats,
    ) -> None:  # fmt: skip
        self.gram, self.scale, self.scores, self.coef = gram, scale, scores, coef
        self.labels, self.losses, self.cost = labels, losses, cost
        self._outside = scores - self._scores_of(coef)
        """Scores due to all other examples."""
        self.restart()
        n, width = coef.shape
        self._scratch = np.empty(n), np.empty(n), np.empty(width), np.empty(width)

    @property
    def dual(self) -> float:
        """Dual value, but for the terms of other examples alone."""
        coef = self.coef[:, : len(self.scores)]
        linear = float(np.sum(coef * self.losses[self.labels]))
        return -linear - 0.5 * float(np.einsum("im,mi->", coef, self.scores + self._outside))

    def sweep(self, goal: float) -> int:
        """About as many steps as there are examples; fewer if none violates by `goal`."""
        return polish(  # type: ignore[no-any-return]
            self.gram, self.scale, self.scores, self.coef, self.labels, self.losses, self.cost,
            goal, len(self.labels), *self._scratch,
        )  # fmt: skip

    def extrapolate(self, momentum: float) -> None:
        last = self._before[0]
        self.restart()
        if momentum > 0.0:
            coef = self.coef + momentum * (self.coef - last)
            project(coef, len(self.scores), self.labels, self.cost)
            self.scores += self._scores_of(coef - self.coef)
            self.coef = coef

    def revert(self) -> None:
        coef, scores = self._before
        self.coef, self.scores = coef.copy(), scores.copy()

    def restart(self) -> None:
        self._before = self.coef.copy(), self.scores.copy()

    def _scores_of(self, coef: Floats) -> Floats:
        factors = np.ascontiguousarray(coef[:, : len(self.scores)].T, dtype=self.gram.dtype)
        return np.asarray(self.scale * (factors @ self.gram), dtype=np.float64)


class KernelRowCache(Stateful):
    """Least-recently-used cache of kernel rows, `values` of shape (n_slots, n_samples).

    The state is without the values, computed again by the same batches: bits of a product depend on
    its shape.
    """

    state_names = ("row_in", "batch_in", "batches", "last_use", "evaluations", "clock")

    def __init__(self, kernel: Kernel, X: Any, max_bytes: int, least: int) -> None:
        self.kernel, self.X = kernel, X
        n = X.shape[0]
        dtype = X.dtype if X.dtype == np.float32 else np.dtype(np.float64)
        slots = min(n, max(least, max_bytes // max(1, n * dtype.itemsize)))
        self.values = np.empty((slots, n), dtype=dtype)  # what is never used takes no memory
        some = [slice(start, start + _BATCH) for start in range(0, n, _BATCH)]
        diagonals = [kernel(X[part], X[part]).diagonal() for part in some]
        self.diagonal = np.concatenate(diagonals).astype(np.float64)
        self.slot_of = np.full(n, -1, dtype=np.int64)
        self.row_in = np.full(slots, -1, dtype=np.int64)
        self.last_use = np.full(slots, -1, dtype=np.int64)
        self.evaluations = n
        self.clock = 0
        """Number of calls of `slots`, and of the batch that a call computes."""
        self.batch_in = np.full(slots, -1, dtype=np.int64)
        self.batches: dict[int, Order] = {}
        """Rows of each batch of which one may be in a slot."""

    def check_state(self) -> None:
        n = self.X.shape[0]
        check_indices("row_in", self.row_in, n, start=-1)
        if not conforms(self.batches, dict[int, Order]):
            raise ValueError("batches are no rows")
        for rows in self.batches.values():
            check_indices("rows of a batch", rows, n)
        filled = np.flatnonzero(self.row_in >= 0)
        live = set(self.batch_in[filled].tolist())
        if not live <= self.batches.keys():
            raise ValueError("a kernel row belongs to no batch")
        self.slot_of[:] = -1
        self.slot_of[self.row_in[filled]] = filled
        for batch in live:
            rows = self.batches[batch]
            block = self.kernel(self.X[rows], self.X)
            slots = self.slot_of[rows]
            here = (slots >= 0) & (self.batch_in[slots] == batch)
            self.values[slots[here]] = block[here]

    def slots(self, rows: Order) -> Order:
        """Slots of the kernel rows of at most `least` rows, computed where they are missing."""
        held = self.slot_of[rows]
        missing = rows[held < 0]
        self.clock += 1
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
            self.batch_in[given] = self.clock
            self.batches[self.clock] = missing
            if len(self.batches) > 2 * len(self.row_in):
                live = np.unique(self.batch_in[self.row_in >= 0]).tolist()
                self.batches = {batch: self.batches[batch] for batch in live}
        return self.slot_of[rows]

    def between(self, rows: Order) -> Any:
        """The Gram matrix of rows in the cache, copied."""
        gram = np.empty((len(rows), len(rows)), dtype=self.values.dtype)
        _gather(self.values, self.slot_of[rows], rows, gram)
        return gram

    def _check(self, rows: Order, block: Any) -> None:
        name = self.kernel.name
        check_finite(block, name)
        if self.values.dtype == np.float64:
            check_block(block, self.diagonal[rows], self.diagonal, name)
        other = self.row_in[self.row_in >= 0][:1]
        if len(other):
            there, back = block[0, other[0]], self.values[self.slot_of[other[0]], rows[0]]
            if abs(there - back) > 1e-4 * max(abs(there), abs(back), 1e-300) + 1e-9:
                raise asymmetric(name, there, back)


@compiled
def _gather(values, slots, columns, out):  # type: ignore[no-untyped-def]
    """``out[a, b] = values[slots[a], columns[b]]``."""
    for a in range(len(slots)):
        row = values[slots[a]]
        for b in range(len(columns)):
            out[a, b] = row[columns[b]]


@compiled
def project(coef, n_classes, labels, cost):  # type: ignore[no-untyped-def]
    """Project the coefficients of each example on the feasible set, in place."""
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


@compiled
def survey(scores, coef, labels, losses, cost, highest, lowest):  # type: ignore[no-untyped-def]
    """The highest loss-augmented score of each example, and the lowest with a coefficient."""
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
def violations_of(rows, scores, coef, labels, losses, cost, out):  # type: ignore[no-untyped-def]
    """Violation of the optimality conditions of some examples: highest less lowest of `survey`."""
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


@inlined
def _step(  # type: ignore[no-untyped-def]
    i, row, curvature, scale, scores, coef, labels, losses, cost, threshold, own, change
):
    """Exact step for example `i` with its kernel row, if it violates by the threshold; whether."""
    for m in range(len(own)):
        own[m] = NEVER
    for m in range(len(scores)):
        own[m] = scores[m, i] + losses[labels[i], m]
    inverse = 1.0 / curvature if curvature > 1e-12 else 1e12  # large, for a row of no length
    what = crammer_singer_step(own, coef[i], labels[i], cost[i], inverse, threshold, change)
    if what != MOVED:
        return 0
    for m in range(len(scores)):
        if change[m] != 0.0:
            step = scale * change[m]
            of_class = scores[m]
            for j in range(len(row)):
                of_class[j] += step * row[j]
    return 1


@compiled
def update(  # type: ignore[no-untyped-def]
    rows, slots, kernel, diagonal, scale, scores, coef, labels, losses, cost, goal, own, change
):
    """Exact steps for the examples `rows` that violate by `goal`; returns how many moved.

    - rows, slots : (n,), examples, and their kernel rows in `kernel`
    - kernel, diagonal, scale : (n_slots, n_samples), (n_samples,), kernel of a class with itself
    - scores, coef, labels, losses, cost, goal : as in `polish`, for all examples
    - own, change : (padded classes,), scratch
    """
    moved = 0
    for r in range(len(rows)):
        i = rows[r]
        moved += _step(
            i, kernel[slots[r]], scale * diagonal[i], scale, scores, coef, labels, losses, cost,
            goal, own, change,
        )  # fmt: skip
    return moved


@compiled
def polish(  # type: ignore[no-untyped-def]
    gram, scale, scores, coef, labels, losses, cost, goal, most, highest, lowest, own, change
):
    """Steps over n examples with their own Gram matrix, the most violating first (shrinking).

    Until none violates by `goal`, or after about `most` steps; returns their number.

    - gram, scale : (n, n), kernel of a class with itself
    - scores, coef : (n_classes, n), (n, padded classes)
    - labels, cost, losses : (n,), (n,), (n_classes, n_classes)
    - goal, most : numbers
    - highest, lowest, own, change : (n,), (n,), (padded classes,) twice, scratch
    """
    moved = 0
    while True:
        survey(scores, coef, labels, losses, cost, highest, lowest)
        worst = 0.0
        for i in range(len(labels)):
            worst = max(worst, highest[i] - lowest[i])
        if worst <= goal or moved >= most:
            return moved
        bar = max(0.3 * worst, goal)
        before = moved
        for i in range(len(labels)):
            if highest[i] - lowest[i] >= bar:
                moved += _step(
                    i, gram[i], scale * gram[i, i], scale, scores, coef, labels, losses, cost,
                    0.3 * bar, own, change,
                )  # fmt: skip
        if moved == before:
            return moved
