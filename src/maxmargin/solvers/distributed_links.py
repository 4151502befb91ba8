"""What the driver of a fit on shards knows of each of them, and counts."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maxmargin.dual.registry import registered
from maxmargin.problems.shards import ShardedTrainingSet
from maxmargin.solvers.distributed_shard import Move, Progress, accepted
from maxmargin.solvers.result import Round

Floats = NDArray[np.float64]

NO_PROGRESS = Progress(0.0, math.inf, 0, 0, 0, 0.0, 0.0, 0.0, 0.0)


@registered("ClusterRound")
@dataclass(frozen=True)
class ClusterRound(Round):
    """A line of history of a fit on shards; what it adds is of this round alone.

    Parameters
    ----------
    sent, received : int
        Bytes of the arrays that went to the shards, and that came from them.
    moves : int
        Moves that shards made.
    work_seconds, search_seconds : float
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
    search_seconds: float = 0.0
    idle_seconds: float = 0.0
    taken: float = 1.0


class Counts:
    """What a round has cost so far."""

    def __init__(self, training: ShardedTrainingSet) -> None:
        self.sent, self.received = training.sent, training.received
        self.moves = 0
        self.work = self.search = self.idle = self.taken = 0.0


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
        self.searched = 0
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
        believed, at = self.base.copy(), self.move.patch.places
        believed[at] = accepted(believed[at], self.move.patch.values, self.taken / self.move.scale)
        return believed
