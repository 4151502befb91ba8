"""What runs on problems with explicit outputs have in common."""

from typing import TYPE_CHECKING, Any

from maxmargin.core.oracle import Threads
from maxmargin.solvers.loop import SolverRun, Stopping

if TYPE_CHECKING:
    from maxmargin.solvers.sequential_dual import SequentialDual

LONGEST_WAIT = 63
"""Iterations after which even an idle example is updated again."""

SKIPPED_PART_OF_GAP = 0.1
"""Skipped violations could together close at most this many times the gap."""


class ExplicitRun(SolverRun):
    """A run on a problem with explicit outputs, without a user's oracle."""

    def __init__(
        self,
        solver: "SequentialDual",
        problem: Any,
        stopping: Stopping,
        threads: Threads,
        seed: int,
    ) -> None:
        super().__init__(problem, stopping, threads, seed)
        self.solver, self.seed = solver, seed

    @property
    def content(self) -> Any:
        return self.oracle

    @property
    def depends_on(self) -> dict[str, Any]:
        return {"n_jobs": self.threads.n_threads}

    def heed_checker(self) -> None:
        """No user wrote the oracle."""
