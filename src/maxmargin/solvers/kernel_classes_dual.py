"""KernelClassesDual: the dual of kernel Crammer-Singer, exact steps on cached kernel rows.

    min over f   1/2 sum_m |f_m|^2 + sum_i C_i max_m [loss(y_i, m) + f_m(x_i) - f_{y_i}(x_i)]
    max over b   -sum_im b_im loss(y_i, m) - 1/2 sum_m b_m' K b_m
    s.t.         b_im <= C_i [m = y_i],    sum_m b_im = 0

with K the Gram matrix times `scale`. The example that violates most is updated exactly, as in
Crammer and Singer (2001); see Keerthi et al. (2008), section 2.2, for why kernels ask for that
order and linear problems for a sequential one.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.simd import padded
from maxmargin.core.certificate import Certificate
from maxmargin.core.kernel_model import KernelModel
from maxmargin.core.kernel_multiclass import ClassOracle
from maxmargin.core.registry import registered
from maxmargin.core.result import Result, Status, Stopping
from maxmargin.core.threads import Threads
from maxmargin.dual.kernel_classes import CachedRows, KernelRowCache, survey, update, violations_of
from maxmargin.solvers.loop import Momentum, Solver, SolverRun, in_spite_of_interrupt

Floats = NDArray[np.float64]
Order = NDArray[np.int64]

_BATCH = 64
"""Examples whose kernel rows are computed by one product of matrices."""

_WITHIN = 0.1
"""An iteration updates the examples whose violation is at least this part of the largest."""

_SWEEPS = 20
"""Over the examples whose kernel rows are at hand, in an iteration, at most."""

_MOST_AT_ONCE = 8000
"""Examples whose Gram matrix is copied out, so that steps over them read memory in one piece."""

_DEEPER = 0.3
"""Examples at hand are solved to this part of what the others are."""

_SINGLE = 1e-2
"""Kernel rows are in single precision if that changes them by no more than this part of tol."""


@registered("KernelClassesDual")
@dataclass(frozen=True, kw_only=True)
class KernelClassesDual(Solver):
    """Updates the examples that violate the optimum most, each with an exact step over its classes.

    Scores of all examples are kept up to date with the kernel row of each example that moves, so
    the gap is known after every iteration. Examples whose kernel rows are at hand are swept many
    times on their own Gram matrix, with Nesterov's extrapolation, before the others hear of it.

    Parameters
    ----------
    cache_bytes : int, default=1_000_000_000
        For kernel rows. With more of them, those used least recently are computed again.

    Examples
    --------
    >>> from maxmargin.solvers.kernel_classes_dual import KernelClassesDual
    >>> KernelClassesDual(cache_bytes=10**8)
    KernelClassesDual(cache_bytes=100000000)
    """

    requires: ClassVar[tuple[type, ...]] = (ClassOracle,)

    cache_bytes: int = 1_000_000_000

    def start(
        self, oracle: ClassOracle, stopping: Stopping, threads: Threads, seed: int
    ) -> "ClassRun":
        return ClassRun(self, oracle, stopping, threads, seed)

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
    """One solve.

    Parameters
    ----------
    solver : KernelClassesDual
    oracle : ClassOracle
    stopping : Stopping
    threads : Threads
    seed : int
        There is nothing random in it.
    """

    state_names: ClassVar[tuple[str, ...]] = (
        *SolverRun.state_names, "coef", "scores", "highest", "lowest", "cache", "certificate",
    )  # fmt: skip

    state_types: ClassVar[dict[str, Any]] = {"certificate": Certificate | None}

    oracle: ClassOracle

    def __init__(
        self,
        solver: KernelClassesDual,
        oracle: ClassOracle,
        stopping: Stopping,
        threads: Threads,
        seed: int,
    ) -> None:
        super().__init__(oracle, stopping, threads, seed)
        n, k = len(oracle.labels), oracle.n_classes
        worst = oracle.problem.loss_matrix.max(axis=1)[oracle.labels]
        X = _narrowed(oracle, stopping.relative_tol(float(oracle.C @ worst)))
        self.cache = KernelRowCache(oracle.kernel, X, solver.cache_bytes, 2 * _BATCH)
        self.scores = np.zeros((k, n))
        self.coef = np.zeros((n, padded(k)))
        self.losses = np.ascontiguousarray(oracle.problem.loss_matrix)
        self.highest, self.lowest = np.empty(n), np.empty(n)
        self.certificate: Certificate | None = None
        """Of the present point; None when it has moved since."""
        self._survey()

    @property
    def dual_coef(self) -> Floats:
        """Dual coefficients without the padding."""
        return self.coef[:, : self.oracle.n_classes]

    @property
    def half_square(self) -> float:
        """``1/2 |w|^2``."""
        return 0.5 * float(np.einsum("im,mi->", self.dual_coef, self.scores))

    @property
    def dual(self) -> float:
        """Dual value of the present point."""
        losses = self.losses[self.oracle.labels]
        return -float(np.sum(self.dual_coef * losses)) - self.half_square

    @property
    def n_cuts(self) -> int:
        """Dual coefficients of wrong classes that are not zero."""
        return int(np.count_nonzero(self.coef < 0.0))

    @property
    def expected(self) -> float:
        """By the scores that are kept up to date, perhaps in single precision."""
        return self.primal

    @property
    def is_done(self) -> bool:
        """Whether the gap is closed, and not only as far as kept scores tell."""
        certificate = self.certificate
        return certificate is not None and self.stopping.is_enough(
            certificate.primal, certificate.dual
        )

    def resume(self, start: Floats) -> None:
        """Take over dual coefficients of an earlier solve, shrunk to the present costs."""
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
        """The present dual coefficients."""
        return self.dual_coef.copy()

    def answer(self) -> KernelModel:
        """The present model."""
        return self.oracle.model_of(self.dual_coef)

    def update_worst(self) -> None:
        """The worst examples, a batch at a time; then all whose kernel rows are cached."""
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
        """Update those of the examples whose violation is still above the bar at their turn."""
        oracle, cache = self.oracle, self.cache
        own, change = np.empty(self.coef.shape[1]), np.empty(self.coef.shape[1])
        violations = np.empty(len(queue))
        left = queue
        while len(left) and not self.stopping.out_of_time:
            found = violations[: len(left)]
            violations_of(left, self.scores, self.coef, oracle.labels, self.losses, oracle.C, found)
            left = left[found >= bar]
            rows, left = left[:_BATCH], left[_BATCH:]
            if len(rows):
                self.calls += update(
                    rows, cache.slots(rows), cache.values, cache.diagonal, oracle.problem.scale,
                    self.scores, self.coef, oracle.labels, self.losses, oracle.C, bar, own,
                    change,
                )  # fmt: skip

    def _polish(self, violations: Floats, goal: float) -> None:
        """Many steps over the examples that matter, of those whose kernel rows are at hand.

        An example matters if it has coefficients or violates. The scores of all others are made
        up for at the end, by products of matrices.
        """
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
        """Bring all scores up to date after a change of the coefficients of rows at hand."""
        for start in range(0, len(rows), _BATCH):
            some = slice(start, start + _BATCH)
            kernel_rows = self.cache.values[self.cache.slot_of[rows[some]]]
            factors = (self.oracle.problem.scale * change[some].T).astype(kernel_rows.dtype)
            self.scores += factors @ kernel_rows

    def _survey(self) -> None:
        """Violations of all examples, and the primal value, by the scores at hand."""
        oracle = self.oracle
        survey(
            self.scores, self.coef, oracle.labels, self.losses, oracle.C, self.highest,
            self.lowest,
        )  # fmt: skip
        own = self.scores[oracle.labels, np.arange(len(oracle.labels))]
        self.primal = self.half_square + float(oracle.C @ (self.highest - own))

    def evaluate(self) -> None:
        """Certify the present point, and go on from scores that are exact."""
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
