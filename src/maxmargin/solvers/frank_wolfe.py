"""FrankWolfe: towards the best plane, by an exact line search."""

from dataclasses import dataclass

import numpy as np

from maxmargin.core.oracle import Oracle
from maxmargin.core.registry import registered
from maxmargin.core.result import Stopping
from maxmargin.core.threads import Threads
from maxmargin.dual.working_set import AWAY, FRANK_WOLFE, PAIRWISE, StepRule
from maxmargin.solvers.structured import BlockRun, Order, StructuredSolver

MAX_IDLE = 50
"""Rounds after which a plane whose coefficient stayed zero is dropped."""

STEPS = {"frank-wolfe": FRANK_WOLFE, "away": AWAY, "pairwise": PAIRWISE}


@registered("FrankWolfe")
@dataclass(frozen=True, kw_only=True)
class FrankWolfe(StructuredSolver):
    """Frank-Wolfe on the dual, over all blocks at once or one after the other.

    With `gap_sampling`, the objective in the history is estimated from the gap of every block at
    its last visit.

    Parameters
    ----------
    block : bool, default=True
        One step for each block (Lacoste-Julien et al., 2013), or one for all of them.
    step : {"frank-wolfe", "away", "pairwise"}, default="frank-wolfe"
        Towards the best plane; that or away from the worst, what promises more; or from the
        worst to the best. The last two need `block`.
    averaging : bool, default=True
        Also try the average of the weights as the answer: its test error falls early.
    gap_sampling : bool, default=False
        Choose blocks in proportion to their last known gap, instead of all in random order.
    cache_sweeps : int, default=0
        Sweeps over the planes in hand after each pass of searches.
    evaluate_every : int, default=10
        Passes between true valuations of the weights; each costs one or two more passes.
    batch_size : int, default=None
        Searches made at the same weights; None chooses by their work.

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
            run.value()
        else:
            run.value_if_done()
        run.working_set.drop_idle(MAX_IDLE)

    def _order(self, run: BlockRun) -> Order:
        gaps = np.maximum(run.working_set.gaps, 0.0)
        if not self.gap_sampling or not np.isfinite(gaps).all() or gaps.sum() <= 0.0:
            return run.shuffled
        # Without repeats within a pass; blocks of no gap still have a small chance.
        chances = gaps / gaps.sum() + 0.1 / len(gaps)
        drawn = run.random.choice(len(gaps), size=len(gaps), p=chances / chances.sum())
        return run.random.permutation(np.unique(drawn))
