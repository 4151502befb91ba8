"""MiniBatchDual: kernel structural SVMs by cutting planes in mini-batches (He, 2016)."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.dual.certificate import Certificate
from maxmargin.dual.kernel_planes import KernelPlanes, NewOutputs
from maxmargin.dual.working_set import DualPoint
from maxmargin.engines.threads import Threads
from maxmargin.problems.kernel_model import KernelModel
from maxmargin.problems.kernel_training import Found, KernelTrainingSet
from maxmargin.problems.structured import ProblemError
from maxmargin.solvers.result import Result, Round, Status
from maxmargin.solvers.stopping import Stopping

Floats = NDArray[np.float64]
Order = NDArray[np.int64]

OnKernelRound = Callable[[Round, Callable[[], KernelModel]], bool]
"""Called after each round with its numbers and a way to get the model; True stops."""

_MOST_VISITS = 200_000
"""Of examples, in one solution of the quadratic program."""

_QP_PART = 0.1
"""The quadratic program is solved to this part of the gap that the searches found."""

_STEPS = ("qp", "smo")


@dataclass(frozen=True, kw_only=True)
class MiniBatchDual:
    """Cutting planes of one mini-batch at a time, through a kernel.

    A round searches the examples of a mini-batch, takes in the outputs that violate their example's
    slack by more than epsilon, and improves the dual over the outputs in hand. Each pass over
    the examples is in a new random order. Ends when the gap is closed, or when a whole pass found
    no output that violates by more than epsilon.

    Parameters
    ----------
    batch_size : int, default=None
        Examples searched with the same model; None is a twentieth of them, 8 at least and 64 at
        most.
    outputs_per_search : int, default=1
        Outputs that a search may give to an example.
    diversity : float, default=0.0
        When several are wanted: bonus of an output for each unit of loss between it and those
        taken before it.
    steps : {"qp", "smo"}, default="qp"
        Solve over all outputs in hand after each mini-batch, or only make closed-form steps in the
        examples of the mini-batch.
    prune_every : int, default=20
        Rounds from one removal of idle outputs to the next.
    max_idle : int, default=10
        Rounds after which an output without coefficient is idle.
    epsilon : float, default=None
        Violation that does not count; None is what is sure to close the gap asked for.

    See Also
    --------
    maxmargin.KernelStructuredSVM

    Examples
    --------
    >>> from maxmargin.solvers.mini_batch_dual import MiniBatchDual
    >>> MiniBatchDual(outputs_per_search=3, diversity=0.5).steps
    'qp'
    """

    batch_size: int | None = None
    outputs_per_search: int = 1
    diversity: float = 0.0
    steps: str = "qp"
    prune_every: int = 20
    max_idle: int = 10
    epsilon: float | None = None

    def __post_init__(self) -> None:
        for name in ("batch_size", "outputs_per_search", "prune_every", "max_idle"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}, but must be at least 1.")
        for name in ("diversity", "epsilon"):
            value = getattr(self, name)
            if value is not None and not value >= 0.0:
                raise ValueError(f"{name} is {value}, but must not be negative.")
        if self.steps not in _STEPS:
            raise ValueError(f"steps is {self.steps!r}, but must be 'qp' or 'smo'.")

    def solve(
        self,
        training: KernelTrainingSet,
        stopping: Stopping,
        *,
        n_jobs: int = 1,
        seed: int = 0,
        start: DualPoint | None = None,
        on_round: OnKernelRound | None = None,
    ) -> Result:
        """Train; never raises for stopping early, the result's status tells.

        Parameters
        ----------
        training : KernelTrainingSet
        stopping : Stopping
        n_jobs : int
            Threads for the searches. The answer does not depend on it.
        seed : int
            Of the order of visits.
        start : DualPoint or None
            Of an earlier result.
        on_round : callable or None

        Raises
        ------
        ProblemError, KernelError
            If a method of the problem failed, or the kernel is none.
        """
        with Threads(n_jobs) as threads:
            run = MiniBatchRun(self, training, stopping, threads, seed)
            if start is not None:
                run.resume(start)
            status = loop(run, run.rounds(), on_round)
            return certified(run, status)


class MiniBatchRun:
    """One solve.

    Parameters
    ----------
    solver : MiniBatchDual
    training : KernelTrainingSet
    stopping : Stopping
    threads : Threads
    seed : int
    """

    def __init__(
        self,
        solver: MiniBatchDual,
        training: KernelTrainingSet,
        stopping: Stopping,
        threads: Threads,
        seed: int,
    ) -> None:
        self.solver, self.training = solver, training
        self.stopping, self.threads = stopping, threads
        self.random = np.random.default_rng(seed)
        self.planes = KernelPlanes(training.cost, training.kernel)
        self.calls = 0
        self.history: list[Round] = []
        self.primal = math.inf
        self.best: KernelModel | None = None
        self.certificate: Certificate | None = None
        """Of the present point and the best model; None when either has changed since."""
        self.nothing_violates = False

    @property
    def dual(self) -> float:
        """Dual value of the present point."""
        return self.planes.dual

    @property
    def n_planes(self) -> int:
        """Outputs in hand."""
        return len(self.planes)

    @property
    def epsilon(self) -> float:
        """Violation that does not count."""
        if self.solver.epsilon is not None:
            return self.solver.epsilon
        total = float(self.training.cost.sum())
        return 0.25 * self.stopping.tol * max(self.dual, 0.0) / total if total else 0.0

    @property
    def is_done(self) -> bool:
        """Whether the gap is closed, or no output violates by more than epsilon."""
        if self.solver.epsilon is not None and self.nothing_violates:
            return True
        return Certificate(self.primal, self.dual).relative_gap <= self.stopping.tol

    def resume(self, start: DualPoint) -> None:
        """Take over a dual point of an earlier solve."""
        start = self.training.feasible(start)
        if len(start.blocks):
            outputs = self.training.outputs_of(start.blocks, start.outputs, start.coef)
            self.planes.add(self.training.truths(start.blocks), outputs)

    def point(self) -> DualPoint:
        """The present dual point."""
        atoms = self.planes.atoms
        used = np.flatnonzero((atoms.coef > 0.0) & ~atoms.is_truth)
        outputs = [atoms.outputs[k] for k in used]
        return DualPoint(blocks=atoms.blocks[used], outputs=outputs, coef=atoms.coef[used])

    def model(self) -> KernelModel:
        """The present model."""
        planes = self.planes
        if not len(planes.atoms.coef):
            return self.training.model_of(self.point())
        at = planes.atoms.parts, planes.atoms.labels
        return KernelModel.of(
            self.training.kernel, planes.parts.rows, planes.labels.rows, at, planes.factors
        )

    def answer(self) -> KernelModel:
        """The best model so far; before any valuation, the present one."""
        return self.model() if self.best is None else self.best

    def rounds(self) -> Iterator[None]:
        """Mini-batches for ever; each pass in a new order."""
        n = self.training.n_blocks
        size = self.solver.batch_size or min(max(n // 20, 8), 64)
        while True:
            order = self.random.permutation(n)
            seen, fresh = 0.0, 0
            for start in range(0, n, size):
                blocks = order[start : start + size]
                found = self._search(self.model(), blocks)
                seen += float(self.training.cost[blocks] @ found.hinges)
                excess = self._excess(found)
                fresh += self._take_in(found, excess)
                costs = self.training.cost[found.outputs.blocks]
                self._improve(blocks, float(costs @ np.maximum(excess, 0.0)))
                ends_pass = start + size >= n
                if ends_pass:
                    self._end_pass(seen, fresh)
                yield

    def _search(self, model: KernelModel, blocks: Order) -> Found:
        solver = self.solver
        self.calls += len(blocks)
        return self.training.search(
            model, blocks, self.threads, solver.outputs_per_search, solver.diversity
        )

    def _excess(self, found: Found) -> Floats:
        """How far outputs that were found exceed the slacks of their examples."""
        blocks = found.outputs.blocks
        excess = found.slopes - self.planes.slacks()[blocks]
        return np.where(self.training.cost[blocks] > 0.0, excess, 0.0)

    def _take_in(self, found: Found, excess: Floats) -> int:
        """Take in what exceeds the slacks by more than epsilon; says how many did."""
        chosen = np.flatnonzero(excess > self.epsilon)
        if not len(chosen):
            return 0
        old = found.outputs
        outputs = NewOutputs(
            old.blocks[chosen],
            [old.outputs[k] for k in chosen],
            old.losses[chosen],
            old.parts[chosen],
            old.labels[chosen],
            old.coef[chosen],
        )
        self.planes.add(self.training.truths(np.unique(outputs.blocks)), outputs)
        return len(chosen)

    def _improve(self, blocks: Order, gap: float) -> None:
        """Improve the dual, to a part of the gap that the searches found; then prune."""
        solver, planes = self.solver, self.planes
        self.certificate = None
        if solver.steps == "smo":
            planes.solve(blocks, 0.0, len(blocks))
        else:
            enough = 0.25 * self.stopping.tol * abs(self.dual)
            planes.solve(None, max(_QP_PART * gap, enough), _MOST_VISITS)
        planes.note_idle()
        if (len(self.history) + 1) % solver.prune_every == 0:
            planes.drop_idle(solver.max_idle)

    def _end_pass(self, seen: float, fresh: int) -> None:
        """Value the model if the pass, each of whose searches had another, promises the end."""
        estimate = self.planes.half_square + seen
        close = estimate - self.dual <= 2.0 * self.stopping.tol * abs(estimate)
        if close or not fresh:
            self.nothing_violates = not self.value()

    def value(self) -> int:
        """Value the model on all examples, and certify it; says how many outputs violate."""
        point = self.point()
        model = self.training.model_of(point)
        found = self._search(model, np.arange(self.training.n_blocks))
        primal = model.half_square + float(self.training.cost @ found.hinges)
        if primal < self.primal:
            self.best, self.primal = model, primal
        self.certificate = Certificate(self.primal, self.training.dual(point))
        if self.certificate.relative_gap <= self.stopping.tol:
            return 0
        return self._take_in(found, self._excess(found))

    def as_round(self) -> Round:
        """The state as a line of history."""
        return Round(
            seconds=self.stopping.seconds,
            oracle_calls=self.calls,
            cache_hits=0,
            primal=self.primal,
            dual=self.dual,
            planes=self.n_planes,
        )


def loop(run: Any, rounds: Iterator[None], on_round: OnKernelRound | None) -> Status:
    """Rounds until one of the reasons to stop."""
    try:
        while True:
            next(rounds)
            run.history.append(run.as_round())
            stop = on_round is not None and on_round(run.history[-1], run.answer)
            if run.is_done:
                return Status.CONVERGED
            status = run.stopping.reason(len(run.history))
            if status is not None or stop:
                return status or Status.STOPPED
    except KeyboardInterrupt:
        return Status.INTERRUPTED
    except ProblemError as error:
        point = run.point()
        unknown = Certificate(math.inf, run.dual)
        error.result = Result(
            run.answer(), point, unknown, Status.FAILED, len(run.history), run.history
        )
        raise


def certified(run: Any, status: Status) -> Result:
    """The best model and the dual point, valued anew from the data and the kernel alone."""
    point = run.point()
    if run.certificate is None:
        try:
            run.value()
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
            run.value()
    certificate = run.certificate
    if certificate.relative_gap <= run.stopping.tol:
        status = Status.CONVERGED
    return Result(run.answer(), point, certificate, status, len(run.history), run.history)
