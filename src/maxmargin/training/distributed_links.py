"""What the driver of a fit on shards knows of each of them, and counts.

How a solve on shards ends: with a certificate, whoever is lost while it is made.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.registry import registered
from maxmargin.core.result import Iteration, Result, Status
from maxmargin.solvers.loop import Solver, run_loop
from maxmargin.training.distributed_shard import Move, Progress, accepted
from maxmargin.training.sharded_oracle import ShardedOracle
from maxmargin.training.shards import LostShardError

Floats = NDArray[np.float64]

NO_PROGRESS = Progress(0.0, math.inf, 0, 0, 0, 0.0, 0.0, 0.0, 0.0)


@registered("ClusterRound")
@dataclass(frozen=True)
class ClusterIteration(Iteration):
    """A line of history of a fit on shards; what it adds is of this round alone.

    Parameters
    ----------
    sent, received : int
        Bytes of the arrays that went to the shards, and that came from them.
    moves : int
        Moves that shards made.
    work_seconds, oracle_seconds : float
        Time that shards worked, added up, and of that the time of their searches.
    idle_seconds : float
        Time between question and answer that they did not work, added up: transport and the
        scheduler.
    taken : float
        What part of the shards' moves was taken, on average.
    """

    sent: int = 0
    received: int = 0
    moves: int = 0
    work_seconds: float = 0.0
    oracle_seconds: float = 0.0
    idle_seconds: float = 0.0
    taken: float = 1.0


class Counts:
    """What a round has cost so far."""

    def __init__(self, oracle: ShardedOracle) -> None:
        self.sent, self.received = oracle.sent, oracle.received
        self.moves = 0
        self.work = self.infer = self.idle = self.taken = 0.0


class Link:
    """What the driver knows of a shard."""

    def __init__(self, weights: Floats) -> None:
        self.base = weights
        """The weights that it was sent."""
        self.version = -1
        """Which of all weights these are."""
        self.move: Move | None = None
        """The last move, of which it has not heard yet what part was taken."""
        self.taken = 1.0
        self.inferred = 0
        """Its moves with searches; sweeps of planes in hand take no time to speak of."""
        self.progress = NO_PROGRESS
        self.pass_seconds = math.nan
        self.restart = False
        """Whether it is to forget where its last moves went."""
        self.t = 1.0
        """Of Nesterov's sequence."""
        self.pay = 0.0
        """What the last move with searches has gained for its price."""
        self.sweeps = 0
        """How many moves without searches there will have been in a row after the next."""

    def next_momentum(self) -> float:
        """How much further to go along the last move."""
        following = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * self.t**2))
        momentum, self.t = (self.t - 1.0) / following, following
        return momentum

    def believed(self) -> Floats:
        """The weights that the shard has once it knows what part of its move was taken."""
        if self.move is None:
            return self.base
        believed, at = self.base.copy(), self.move.delta.entries
        believed[at] = accepted(believed[at], self.move.delta.values, self.taken / self.move.scale)
        return believed


AT_THE_END = (Status.CONVERGED, Status.RELAXED)
"""Reasons to stop that hold only for as long as the dual point that they were found with."""


def certified_on_shards(
    run: Any,
    status: Status,
    certify: Callable[[Status], Result],
    solver: Solver,
) -> Result:
    """The answer of a run, certified.

    With a shard goes what it had reached. Where the run had come to its end, it must come there
    again before anybody says so.

    Parameters
    ----------
    run : Run
        With ``recover(*shards)``, which makes lost ones again and counts anew what all hold.
    status : Status
        Why it has stopped.
    certify : callable
        Values the answer and the dual point anew; a shard may be lost meanwhile.
    solver : Solver
        Whose run it is.
    """
    while True:
        try:
            result = certify(status)
            holds = result.certificate.relative_gap <= run.stopping.tol
            if holds or status is not Status.CONVERGED:
                return result
            # A shard was lost since the run had closed the gap.
            run.recover()
            run.primal = result.certificate.primal
            if run.is_done:  # but for rounding
                return result
        except LostShardError as lost:
            run.recover(lost.number)
        if status in AT_THE_END:
            status = run_loop(solver, run)
