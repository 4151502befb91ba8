"""Auto: the default, which decides between searching and sweeping by what they have gained."""

from dataclasses import dataclass

import numpy as np

from maxmargin.core.oracle import Oracle
from maxmargin.core.registry import registered
from maxmargin.core.result import Stopping
from maxmargin.core.threads import Threads
from maxmargin.dual.working_set import BlockUpdate, StepRule
from maxmargin.solvers.momentum import Momentum
from maxmargin.solvers.structured import BlockRun, Order, StructuredSolver

ENTRY_COST = 6.0
"""A plane's entries are looked up one by one; searches multiply vectors, faster by about this."""

AVERAGE_BELOW = 1 << 22
"""Weights up to which their average is kept, too: beyond, it would cost too much memory."""

NOTABLE = 0.1
"""Blocks with less than this part of the mean gap are left out of sweeps."""


@registered("Auto")
@dataclass(frozen=True, kw_only=True)
class Auto(StructuredSolver):
    """Pairwise steps over planes in hand, new ones when those no longer pay.

    After a pass of searches, which is worth most in the beginning, planes in hand are swept for as
    long as the dual grows faster by it, for each multiplication, than by searching. Both are
    counted in operations, not seconds, so that runs repeat exactly. Between sweeps the
    coefficients are extrapolated.

    Parameters
    ----------
    oracle_cost : float, default=300
        Cost of a search in visits of a block, for problems in plain Python, which cannot
        count.
    acceleration : bool, default=True
        Extrapolate along the last sweeps' moves, undone when the dual would fall.
    max_sweeps : int, default=100
        Most sweeps between two passes of searches.
    max_steps : int, default=10
        Most steps of one visit.
    max_idle : int, default=3
        Rounds after which a plane whose coefficient stayed zero is dropped.
    batch_size : int, default=None
        Searches made at the same weights; None chooses by their work.

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
        self.improve(run, run.momentum, run.shuffled)
        run.value_if_done()
        run.working_set.drop_idle(self.max_idle)

    def improve(self, run: BlockRun, momentum: Momentum, order: Order) -> None:
        """Search for planes of the blocks `order`, and sweep for as long as that pays."""
        rule = StepRule(max_steps=self.max_steps)
        momentum.apply()
        found = run.infer(order, rule)
        momentum.settle()
        pay = found.gain / max(self.inference_effort(run, order, found), 1.0)
        for _ in range(self.max_sweeps):
            momentum.apply()
            swept = run.sweep(self.notable(run), rule)
            momentum.settle()
            if swept.gain <= pay * ENTRY_COST * swept.work:
                break

    def inference_effort(self, run: BlockRun, order: Order, found: BlockUpdate) -> float:
        """Multiplications that searches of `order` and the visits with them took, about."""
        each = run.oracle.oracle_work
        oracle_calls = self.oracle_cost * found.work if each is None else each * len(order)
        return ENTRY_COST * found.work + oracle_calls

    def notable(self, run: BlockRun) -> Order:
        """Blocks that sweeps may gain by, in random order."""
        gaps = run.working_set.gaps
        return run.random.permutation(np.flatnonzero(gaps > NOTABLE * gaps.mean()))
