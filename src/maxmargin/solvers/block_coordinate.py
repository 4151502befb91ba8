"""Block-coordinate ascent on the n-slack dual of structured.py: Auto, DualCoordinate, FrankWolfe.

After an oracle call for example i, exact steps over its cutting planes, of slopes g and
coefficients a, raise the dual; every step keeps the dual point feasible.

- pairwise, from the lowest k with a_ik > 0 to the highest j, by
  ``min(a_ik, (g_ij - g_ik) / |psi_ij - psi_ik|^2)``: Ramanan (2013), algorithm 1, equations (25)
  and (28), with the most violating pair instead of a random one;
- Frank-Wolfe, from a_i towards C_i at the best output: Lacoste-Julien et al. (2013), algorithm 4,
  and for all examples at once algorithm 2.
"""

from dataclasses import dataclass

import numpy as np

from maxmargin.core.arrays import Order
from maxmargin.core.oracle import Oracle, Threads
from maxmargin.core.registry import registered
from maxmargin.dual.cut_table import AWAY, FRANK_WOLFE, PAIRWISE, StepRule
from maxmargin.dual.working_set import BlockUpdate
from maxmargin.solvers.loop import Momentum, Stopping
from maxmargin.solvers.structured import (
    AVERAGE_BELOW,
    LEAST_PART_OF_MEAN_GAP,
    BlockRun,
    StructuredSolver,
)

ENTRY_COST = 6.0
"""Cost of a sparse entry of a cut beside a vectorised multiplication of an oracle call."""


@registered("Auto")
@dataclass(frozen=True, kw_only=True)
class Auto(StructuredSolver):
    """Pairwise steps over the working set, and oracle calls when these gain more.

    After a pass of oracle calls the working set is swept for as long as the dual grows faster by
    it, for each multiplication, than by oracle calls. A small working set that updates hardly
    improve, as with badly scaled features, is solved by an interior-point method instead. Work is
    counted in operations, not seconds, so that runs repeat exactly.

    Parameters
    ----------
    oracle_cost : float, default=300
        Cost of an oracle call in updates of an example, for problems in plain Python.
    acceleration : bool, default=True
        Extrapolate along the last sweeps' steps, undone when the dual would fall.
    max_sweeps : int, default=100
        Most sweeps over the working set between two passes of oracle calls.
    max_steps : int, default=10
        Most steps of one update.
    max_idle : int, default=3
        Iterations after which a cutting plane whose coefficient stayed zero is dropped.
    batch_size : int, default=None
        Oracle calls made at the same weights; None chooses by their work.

    See Also
    --------
    DualCoordinate, NSlack, OneSlack, FrankWolfe
    """

    oracle_cost: float = 300.0
    acceleration: bool = True
    max_sweeps: int = 100
    max_steps: int = 10
    max_idle: int = 3
    batch_size: int | None = None

    def start(self, oracle: Oracle, stopping: Stopping, threads: Threads, seed: int) -> BlockRun:
        averaging = oracle.n_features <= AVERAGE_BELOW
        run = BlockRun(oracle, stopping, threads, seed, self.batch_size, averaging)
        run.momentum = Momentum(run, self.acceleration)
        return run

    def iterate(self, run: BlockRun) -> None:
        assert run.momentum is not None
        if run.newton_steps_are_due():
            run.take_newton_steps()
            return
        self.improve(run, run.momentum, run.shuffled)
        run.evaluate_if_done()
        run.working_set.drop_idle(self.max_idle)

    def improve(self, run: BlockRun, momentum: Momentum, order: Order) -> None:
        """Call the oracle for the examples `order`, then sweep for as long as that gains more."""
        rule = StepRule(max_steps=self.max_steps)
        momentum.apply()
        found = run.infer(order, rule)
        momentum.settle()
        pay = found.gain / max(self.inference_effort(run, order, found), 1.0)
        for _ in range(self.max_sweeps):
            momentum.apply()
            swept = run.sweep(self.worth_sweeping(run), rule)
            momentum.settle()
            if swept.gain <= pay * ENTRY_COST * swept.work:
                break

    def inference_effort(self, run: BlockRun, order: Order, found: BlockUpdate) -> float:
        """Multiplications of the oracle calls of `order` and their updates, about."""
        each = run.oracle.oracle_work
        oracle_calls = self.oracle_cost * found.work if each is None else each * len(order)
        return ENTRY_COST * found.work + oracle_calls

    def worth_sweeping(self, run: BlockRun) -> Order:
        """Examples with a gap worth a sweep, in random order."""
        gaps = run.working_set.gaps
        return run.random.permutation(np.flatnonzero(gaps > LEAST_PART_OF_MEAN_GAP * gaps.mean()))


@registered("DualCoordinate")
@dataclass(frozen=True, kw_only=True)
class DualCoordinate(StructuredSolver):
    """Dual coordinate descent of Ramanan (2013), algorithm 1, on a growing working set.

    An iteration calls the oracle for every example, in random order, with steps over the example's
    cutting planes, and then sweeps the working set until its own gap is small.

    Parameters
    ----------
    bound : {"tracked", "true"}, default="tracked"
        How the primal value is known: from the hinges of the last pass, with an evaluation only
        when they promise the end; or by an evaluation in every iteration.
    precision : float, default=0.5
        Sweep until the gap over the working set is this part of the gap that the oracle calls
        found.
    max_sweeps : int, default=10
        Most sweeps over the working set in one iteration.
    max_steps : int, default=10
        Most steps of one update.
    max_idle : int, default=50
        Iterations after which a cutting plane whose coefficient stayed zero is dropped.
    batch_size : int, default=None
        Oracle calls made at the same weights; None chooses by their work.

    See Also
    --------
    Auto, NSlack, FrankWolfe
    """

    bound: str = "tracked"
    precision: float = 0.5
    max_sweeps: int = 10
    max_steps: int = 10
    max_idle: int = 50
    batch_size: int | None = None

    def __post_init__(self) -> None:
        if self.bound not in ("tracked", "true"):
            raise ValueError(f"bound must be 'tracked' or 'true', but is {self.bound!r}.")

    def start(self, oracle: Oracle, stopping: Stopping, threads: Threads, seed: int) -> BlockRun:
        return BlockRun(oracle, stopping, threads, seed, self.batch_size)

    def iterate(self, run: BlockRun) -> None:
        rule = StepRule(max_steps=self.max_steps)
        found = run.infer(run.shuffled, rule)
        for _ in range(self.max_sweeps):
            if run.sweep(run.shuffled, rule).gap <= self.precision * found.gap:
                break
        if self.bound == "true":
            run.evaluate()
        else:
            run.evaluate_if_done()
        run.working_set.drop_idle(self.max_idle)


MAX_IDLE = 50
"""Iterations after which a cutting plane whose coefficient stayed zero is dropped."""

STEPS = {"frank-wolfe": FRANK_WOLFE, "away": AWAY, "pairwise": PAIRWISE}


@registered("FrankWolfe")
@dataclass(frozen=True, kw_only=True)
class FrankWolfe(StructuredSolver):
    """Frank-Wolfe on the dual, over all examples at once or one after the other.

    With `gap_sampling`, the objective in the history is estimated from the gap of every example at
    its last update.

    Parameters
    ----------
    block : bool, default=True
        One step for each example (Lacoste-Julien et al., 2013), or one for all of them.
    step : {"frank-wolfe", "away", "pairwise"}, default="frank-wolfe"
        Towards the best cutting plane; that or away from the worst; or from the worst to the best.
        The last two need `block`.
    averaging : bool, default=True
        Also try the average of the weights as the answer: its test error falls early.
    gap_sampling : bool, default=False
        Choose examples in proportion to their last known gap, instead of all in random order.
    cache_sweeps : int, default=0
        Sweeps over the working set after each pass of oracle calls.
    evaluate_every : int, default=10
        Passes between evaluations of the weights; each costs one or two more passes.
    batch_size : int, default=None
        Oracle calls made at the same weights; None chooses by their work.

    See Also
    --------
    Auto, PartialLinearization, DualCoordinate
    """

    block: bool = True
    step: str = "frank-wolfe"
    averaging: bool = True
    gap_sampling: bool = False
    cache_sweeps: int = 0
    evaluate_every: int = 10
    batch_size: int | None = None

    def __post_init__(self) -> None:
        if self.step not in STEPS:
            raise ValueError(f"step must be one of {sorted(STEPS)}, but is {self.step!r}.")
        if not self.block and self.step != "frank-wolfe":
            raise ValueError(f"step={self.step!r} needs block=True.")

    def start(self, oracle: Oracle, stopping: Stopping, threads: Threads, seed: int) -> BlockRun:
        return BlockRun(oracle, stopping, threads, seed, self.batch_size, self.averaging)

    def iterate(self, run: BlockRun) -> None:
        if not self.block:
            run.offer(run.weights, run.infer_at(run.weights))
            run.snapshot()
            run.working_set.step_towards_best(run.weights)
            return
        rule = StepRule(kind=STEPS[self.step], max_steps=1)
        order = self._order(run)
        run.infer(order, rule)
        if len(order) < run.oracle.n_examples:
            run.estimate_from_gaps(float(run.working_set.gaps.sum()))
        for _ in range(self.cache_sweeps):
            run.sweep(run.shuffled, rule)
        if run.iterations_due(self.evaluate_every):
            run.evaluate()
        else:
            run.evaluate_if_done()
        run.working_set.drop_idle(MAX_IDLE)

    def _order(self, run: BlockRun) -> Order:
        gaps = np.maximum(run.working_set.gaps, 0.0)
        if not self.gap_sampling or not np.isfinite(gaps).all() or gaps.sum() <= 0.0:
            return run.shuffled
        # Without repeats within a pass; examples of no gap still have a small chance.
        chances = gaps / gaps.sum() + 0.1 / len(gaps)
        drawn = run.random.choice(len(gaps), size=len(gaps), p=chances / chances.sum())
        return run.random.permutation(np.unique(drawn))
