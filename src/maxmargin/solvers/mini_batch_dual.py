"""MiniBatchDual: kernel structural SVMs by cutting planes in mini-batches; He (2016), algorithm 1.

Objective and dual are those of structured.py, with phi given by a joint kernel:

    |w|^2 = sum_iy sum_jz a_iy a_jz K(psi_i(y), psi_j(z))

The dual over the working set (algorithm 2, with the diagonal) is solved by exact pairwise steps.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from maxmargin.core.arrays import Order, check_indices
from maxmargin.core.certificate import Certificate, DualPoint
from maxmargin.core.kernel_oracle import Found, KernelModel, KernelOracle
from maxmargin.core.oracle import Threads
from maxmargin.core.problem import ProblemError
from maxmargin.core.registry import registered
from maxmargin.core.result import TINY, Result, Status
from maxmargin.dual.kernel_cuts import KernelCuts
from maxmargin.solvers.loop import Solver, SolverRun, Stopping, in_spite_of_interrupt

_ROUNDING = 1e-6
"""Relative gap below zero that rounding of kernel values may cause."""

_MOST_UPDATES = 200_000
"""Most updates of examples in one quadratic program."""

_QP_PART = 0.1
"""The quadratic program is solved to this part of the gap that the oracle calls found."""


@registered("MiniBatchDual")
@dataclass(frozen=True, kw_only=True)
class MiniBatchDual(Solver):
    """Cutting planes of one mini-batch at a time, through a kernel.

    An iteration calls the oracle for a mini-batch, adds the outputs that violate their example's
    slack by more than epsilon, and improves the dual over the working set. Ends when the gap is
    closed, or when no output of a whole pass violates by more than epsilon.

    Parameters
    ----------
    batch_size : int, default=None
        Oracle calls made with the same model; None is a twentieth of the examples, from 8 to 64.
    outputs_per_call : int, default=1
        Outputs that an oracle call may add for an example.
    diversity : float, default=0.0
        Bonus, where several are wanted, for each unit of loss between an output and those before
        it.
    steps : {"qp", "smo"}, default="qp"
        Solve over the whole working set after each mini-batch, or only make closed-form steps in
        the examples of the mini-batch.
    prune_every : int, default=20
        Iterations between removals of idle outputs.
    max_idle : int, default=10
        Iterations after which an output without coefficient is idle.
    epsilon : float, default=None
        Violation that does not count; None is what is sure to close the gap asked for.

    See Also
    --------
    maxmargin.KernelStructuredSVM

    Examples
    --------
    >>> import maxmargin as mm
    >>> mm.MiniBatchDual(outputs_per_call=3, diversity=0.5).steps
    'qp'
    """

    requires: ClassVar[tuple[type, ...]] = (KernelOracle,)

    batch_size: int | None = None
    outputs_per_call: int = 1
    diversity: float = 0.0
    steps: str = "qp"
    prune_every: int = 20
    max_idle: int = 10
    epsilon: float | None = None

    def __post_init__(self) -> None:
        for name in ("batch_size", "outputs_per_call", "prune_every", "max_idle"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}, but must be at least 1.")
        for name in ("diversity", "epsilon"):
            value = getattr(self, name)
            if value is not None and not value >= 0.0:
                raise ValueError(f"{name} is {value}, but must not be negative.")
        if self.steps not in ("qp", "smo"):
            raise ValueError(f"steps is {self.steps!r}, but must be 'qp' or 'smo'.")

    def start(
        self, oracle: KernelOracle, stopping: Stopping, threads: Threads, seed: int
    ) -> "MiniBatchRun":
        return MiniBatchRun(self, oracle, stopping, threads, seed)

    def iterate(self, run: "MiniBatchRun") -> None:
        run.update_batch()

    def finish(self, run: Any, status: Status) -> Result:
        """The best model and the dual point, certified from the data and the kernel alone."""
        point = run.point()
        if run.certificate is None:
            status = in_spite_of_interrupt(run.evaluate, status)
        status = in_spite_of_interrupt(run.compare_with_zero, status)
        if run.stopping.is_enough(run.certificate.primal, run.certificate.dual):
            status = Status.CONVERGED
        return Result(run.answer(), point, run.certificate, status, len(run.history), run.history)


class MiniBatchRun(SolverRun):
    """One solve."""

    state_names: ClassVar[tuple[str, ...]] = (
        *SolverRun.state_names, "order", "inferred", "hinges", "fresh", "cuts", "best_point",
        "certificate", "nothing_violates",
    )  # fmt: skip

    state_types: ClassVar[dict[str, Any]] = {
        "best_point": DualPoint | None,
        "certificate": Certificate | None,
    }

    oracle: KernelOracle

    def __init__(self, solver: MiniBatchDual, oracle: KernelOracle, *more: Any) -> None:
        super().__init__(oracle, *more)
        self.solver = solver
        self.cuts = KernelCuts(oracle.C, oracle.kernel, oracle.by_slack)
        self.order: Order = np.zeros(0, dtype=np.int64)
        """Examples in the order of the present pass."""
        self.inferred = 0
        """Oracle calls of the present pass."""
        self.fresh = 0
        """Outputs that violated in the present pass."""
        self.hinges = np.full(oracle.n_examples, math.inf)
        """Hinge of each example at its last oracle call; infinite before the first."""
        self.best: KernelModel | None = None
        self.best_point: DualPoint | None = None
        """Of the best model."""
        self.certificate: Certificate | None = None
        """Of the present point and the best model; None when either has changed."""
        self.nothing_violates = False

    def check_state(self) -> None:
        check_indices("order", self.order, self.oracle.n_examples)
        if self.inferred < 0 or (self.best_point is None and math.isfinite(self.primal)):
            raise ValueError("the model of its objective is missing")
        if self.best_point is not None:
            self.best = self.oracle.model_of(self.best_point)
        atoms, y_true = self.cuts.atoms, self.oracle.Y
        whose = zip(atoms.examples.tolist(), atoms.is_true_output, atoms.outputs, strict=True)
        outputs = [y_true[i] if is_true else output for i, is_true, output in whose]
        wrong = np.flatnonzero(~atoms.is_true_output)
        self.oracle.check_listed(atoms.examples[wrong], [outputs[k] for k in wrong])
        if outputs:
            self.cuts.restore(*self.oracle.rows_of(atoms.examples, outputs))

    @property
    def dual(self) -> float:
        return self.cuts.dual

    @property
    def n_cuts(self) -> int:
        return len(self.cuts)

    @property
    def epsilon(self) -> float:
        if self.solver.epsilon is not None:
            return self.solver.epsilon
        total = float(self.oracle.C.sum())
        return 0.25 * self.stopping.allowed_gap(max(self.dual, 0.0)) / total if total else 0.0

    @property
    def is_done(self) -> bool:
        """Whether the gap is closed, or no output violates by more than epsilon."""
        return super().is_done or (self.solver.epsilon is not None and self.nothing_violates)

    @property
    def expected(self) -> float:
        """By the hinges of the last oracle calls; others are taken to be alike."""
        C, known = self.oracle.C, np.isfinite(self.hinges)
        share = float(C[known].sum()) / max(float(C.sum()), TINY)
        return self.cuts.half_square + float(C[known] @ self.hinges[known]) / max(share, TINY)

    def resume(self, start: DualPoint) -> None:
        start = start.feasible(self.oracle.C)
        if len(start.examples):
            outputs = self.oracle.outputs_of(start.examples, start.outputs, start.coef)
            self.cuts.add(outputs, self.oracle.y_true)

    def point(self) -> DualPoint:
        atoms = self.cuts.atoms
        used = np.flatnonzero((atoms.coef > 0.0) & ~atoms.is_true_output)
        outputs = [atoms.outputs[k] for k in used]
        return DualPoint(examples=atoms.examples[used], outputs=outputs, coef=atoms.coef[used])

    def model(self) -> KernelModel:
        cuts = self.cuts
        if not len(cuts.atoms.coef):
            return self.oracle.model_of(self.point())
        at = cuts.atoms.parts, cuts.atoms.labels
        return KernelModel.of(
            self.oracle.kernel, cuts.parts.rows, cuts.labels.rows, at, cuts.factors
        )

    def answer(self) -> KernelModel:
        return self.model() if self.best is None else self.best

    def update_batch(self) -> None:
        """Oracle calls for the next mini-batch, and steps; each pass has a new order."""
        n = self.oracle.n_examples
        size = self.solver.batch_size or min(max(n // 20, 8), 64)
        if self.inferred >= len(self.order):
            self.order, self.inferred = self.random.permutation(n), 0
            self.fresh = 0
        examples = self.order[self.inferred : self.inferred + size]
        found = self._infer(self.model(), examples)
        self.inferred += len(examples)
        self.hinges[examples] = found.hinges
        taken, gap = self._take_in(found)
        self.fresh += taken
        self._improve(examples, gap)
        if self.inferred == n:
            expected = self.expected
            close = expected - self.dual <= 2.0 * self.stopping.allowed_gap(expected)
            if close or not self.fresh:  # the hinges of the pass promise the end
                self.evaluate()

    def _infer(self, model: KernelModel, examples: Order) -> Found:
        solver = self.solver
        self.calls += len(examples)
        return self.oracle.infer(
            model, examples, self.threads, solver.outputs_per_call, solver.diversity
        )

    def _take_in(self, found: Found) -> tuple[int, float]:
        """Add the outputs that violate their slacks by more than epsilon; how many, and the gap."""
        examples = found.outputs.examples
        C, suboptimality = self.oracle.C[examples], found.slopes - self.cuts.slacks()[examples]
        suboptimality = np.where(C > 0.0, suboptimality, 0.0)
        chosen = np.flatnonzero(suboptimality > self.epsilon)
        if len(chosen):
            self.cuts.add(found.outputs.take(chosen), self.oracle.y_true)
        return len(chosen), float(C @ np.maximum(suboptimality, 0.0))

    def _improve(self, examples: Order, gap: float) -> None:
        """Improve the dual to a part of the gap that the oracle calls found; then prune."""
        solver, cuts = self.solver, self.cuts
        self.certificate = None
        if solver.steps == "smo":
            cuts.solve(examples, 0.0, len(examples))
        else:
            enough = 0.25 * self.stopping.allowed_gap(self.dual)
            cuts.solve(None, max(_QP_PART * gap, enough), _MOST_UPDATES)
        cuts.note_idle()
        if self.iterations_due(solver.prune_every):
            cuts.drop_idle(solver.max_idle)

    def evaluate(self) -> None:
        """Evaluate and certify the model on all examples, and add the outputs that violate."""
        point = self.point()
        model = self.oracle.model_of(point)
        found = self._infer(model, np.arange(self.oracle.n_examples))
        primal = self.evaluated = model.half_square + float(self.oracle.C @ found.hinges)
        if primal < self.primal:
            # The model comes first: were Ctrl-C to come in between, it must not be missing.
            self.best_point, self.best = point, model
            self.primal = primal
        self.certificate = Certificate(self.primal, self.oracle.dual(point))
        if self.certificate.relative_gap < -_ROUNDING:
            raise ProblemError(
                f"The dual value {self.certificate.dual:.6g} is above the objective "
                f"{self.primal:.6g}: outputs have been taken in that the problem does not list for "
                f"their examples."
            )
        closed = self.stopping.is_enough(self.primal, self.certificate.dual)
        self.nothing_violates = closed or not self._take_in(found)[0]

    def compare_with_zero(self) -> None:
        """Take the zero model if it is better: at least the linear term of the dual."""
        assert self.certificate is not None
        primal, tol = self.certificate.primal, self.stopping.relative_tol(self.dual)
        if primal < (1.0 - tol) * (self.dual + self.cuts.half_square):
            return
        nothing = DualPoint(np.zeros(0, dtype=np.int64), np.zeros(0), [])
        model = self.oracle.model_of(nothing)
        found = self._infer(model, np.arange(self.oracle.n_examples))
        at_zero = float(self.oracle.C @ found.hinges)
        if at_zero < primal:
            self.best_point, self.best, self.primal = nothing, model, at_zero
        certificate = Certificate(min(primal, at_zero), self.certificate.dual)
        self.certificate = certificate.compared_with_zero(at_zero, tol)
