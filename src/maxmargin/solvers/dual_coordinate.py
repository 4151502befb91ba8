"""DualCoordinate: search for each block in turn, and coordinate steps over the planes in hand."""

from dataclasses import dataclass

from maxmargin.core.oracle import Oracle
from maxmargin.core.registry import registered
from maxmargin.core.result import Stopping
from maxmargin.core.threads import Threads
from maxmargin.dual.working_set import StepRule
from maxmargin.solvers.structured import BlockRun, StructuredSolver


@registered("DualCoordinate")
@dataclass(frozen=True, kw_only=True)
class DualCoordinate(StructuredSolver):
    """Dual coordinate descent of Ramanan (2013), algorithm 1, on a growing set of planes.

    A round searches for the most violating plane of every block, in random order, and takes
    steps over each block's planes: of one coefficient (against the zero plane) or between the
    most violating pair. Then it sweeps the planes in hand until their own gap is small.

    Parameters
    ----------
    bound : {"tracked", "true"}, default="tracked"
        How the upper bound is known: from the hinges seen on the way, with a true valuation only
        when they promise the end; or by a true valuation in every round.
    precision : float, default=0.5
        Sweep until the gap over the planes in hand is this part of the gap that the searches
        found.
    max_sweeps : int, default=10
        Most sweeps of one round.
    max_steps : int, default=10
        Most steps of one visit.
    max_idle : int, default=50
        Rounds after which a plane whose coefficient stayed zero is dropped.
    batch_size : int, default=None
        Searches made at the same weights; None chooses by their work.

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
            run.value()
        else:
            run.value_if_done()
        run.working_set.drop_idle(self.max_idle)
