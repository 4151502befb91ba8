"""When to stop: one rule for every solver."""

import math
import threading
import time
from dataclasses import dataclass, field

from maxmargin.solvers.result import Status


@dataclass
class Stopping:
    """Bounds on a solve, and its clock.

    Parameters
    ----------
    tol : float
        Relative duality gap that is good enough.
    max_iter : int
        Most rounds.
    time_limit : float or None
        Most seconds, counted from when this object is made.
    cancelled : threading.Event
        Set it, from any thread, to stop after the present round.
    """

    tol: float = 1e-3
    max_iter: int = 10_000
    time_limit: float | None = None
    cancelled: threading.Event = field(default_factory=threading.Event, repr=False)
    earlier: float = 0.0
    """Seconds of a solve that this one goes on with; the time limit does not count them."""
    _started: float = field(default_factory=time.perf_counter, repr=False)

    @property
    def seconds(self) -> float:
        """Time since the start."""
        return self.earlier + time.perf_counter() - self._started

    @property
    def out_of_time(self) -> bool:
        """Whether the time limit has passed."""
        limit = math.inf if self.time_limit is None else self.time_limit
        return self.seconds - self.earlier > limit

    def reason(self, rounds: int) -> Status | None:
        """Why to stop after so many rounds, whatever the gap; None to go on."""
        if self.cancelled.is_set():
            return Status.INTERRUPTED
        if self.out_of_time:
            return Status.TIME_LIMIT
        if rounds >= self.max_iter:
            return Status.MAX_ITER
        return None

    def share(self, parts: float) -> "Stopping":
        """The same bounds for one of several parts that have to share the time."""
        left = self.time_limit
        if left is not None:
            left = max(left - (self.seconds - self.earlier), 0.0) / parts
        return Stopping(self.tol, self.max_iter, left, self.cancelled)
