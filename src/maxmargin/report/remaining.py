"""How much longer a fit will take, from the rate at which its gap has been closing."""

import math
from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.result import AbsoluteGap, Iteration, Stopping

Floats = NDArray[np.float64]

RECENT = 0.7
"""Share of the time so far whose rounds count: less is noise, more is how it was long ago."""

FEWEST = 4
"""Gaps from which a rate can be told."""

FARTHEST = 30.0
"""Times the time so far: nobody can see further ahead."""

STRETCH = 0.8
"""The gain of a round's dual is counted from this share of its time on."""

_MOST_ITERATIONS = 512


class TimeLeft:
    """Extrapolates the logarithm of the gap to the tolerance.

    Gaps fall exponentially with time or, with some solvers, like a power of it; whichever has
    fitted better of late is taken. Most rounds tell the gap: they evaluated the objective, or
    estimate it. For the others the recent gain of the dual stands in, which falls
    as the gap does; the last round that told both says how many times larger the gap is.

    Parameters
    ----------
    tol : float or AbsoluteGap
        Gap at which the fit ends.
    time_limit : float or None
        Seconds after which it ends anyway.

    Examples
    --------
    >>> from maxmargin.core.result import Iteration
    >>> left = TimeLeft(tol=1e-4)
    >>> for second in range(1, 11):  # half of the gap is closed every second
    ...     left.add(Iteration(second, 0, 0, primal=1.0 + 0.5**second, dual=1.0, cuts=0))
    >>> round(left.seconds(now=10.0), 1)
    3.3
    """

    def __init__(self, tol: float | AbsoluteGap, time_limit: float | None = None) -> None:
        self._bounds, self._time_limit = Stopping.within(tol), time_limit
        self._last: Iteration | None = None
        self._at: list[float] = []
        self._duals: list[float] = []
        self._log_gaps: list[float] = []  # of the rounds that tell; else not a number
        self._log_gains: list[float] = []

    def add(self, line: Iteration) -> None:
        """Take notice of a round."""
        last, self._last = self._last, line
        tells = last is None or (line.primal, line.objective) != (last.primal, last.objective)
        gap = min(line.relative_gap, line.objective_gap) if tells else math.nan
        self._at.append(line.seconds)
        self._duals.append(line.dual)
        before = self._duals[bisect_left(self._at, STRETCH * line.seconds)]
        self._log_gaps.append(_log(gap))
        self._log_gains.append(_log((line.dual - before) / abs(line.dual or 1.0)))
        if len(self._at) > _MOST_ITERATIONS:
            self._thin()

    def seconds(self, now: float) -> float | None:
        """From `now`, in seconds since the solver started; None if nothing can be told."""
        if self._last is None:
            return None
        if self._last.done:
            total = self._last.seconds / self._last.done
            return max(total - now, 0.0)
        if self._last.stage:  # how many more are to come, nobody knows
            return None
        end = self._end(now)
        known = [] if end is None or not now < end < FARTHEST * now else [end - now]
        if self._time_limit is not None:
            known.append(max(self._time_limit - now, 0.0))
        return min(known, default=None)

    def _end(self, now: float) -> float | None:
        """When the gap will be closed."""
        at, log_gaps = self._points()
        recent = at >= (1.0 - RECENT) * now
        if np.count_nonzero(recent) < FEWEST:
            return None
        log_gaps = np.minimum.accumulate(log_gaps)[recent]
        at = at[recent]
        exponential, error = _falling(at, log_gaps)
        power, other_error = _falling(np.log(at), log_gaps)
        to_go = log_gaps[-1] - math.log(self._bounds.relative_tol(self._duals[-1]))
        if to_go <= 0.0 or exponential <= 0.0 or power <= 0.0:
            return None
        if error <= other_error:
            return float(at[-1] + to_go / exponential)
        return float(at[-1] * math.exp(min(to_go / power, 100.0)))

    def _points(self) -> tuple[Floats, Floats]:
        """Times, and the logarithm of the gap then, as far as it can be told."""
        at, log_gaps = np.array(self._at), np.array(self._log_gaps)
        log_gains = np.array(self._log_gains)
        ratios = (log_gaps - log_gains)[np.isfinite(log_gaps) & np.isfinite(log_gains)]
        if len(ratios):
            log_gaps = np.where(np.isnan(log_gaps), log_gains + ratios[-1], log_gaps)
        known = np.isfinite(log_gaps) & (at > 0.0)
        return at[known], log_gaps[known]

    def _thin(self) -> None:
        """Forget every other round that tells nothing; if all tell, every other one."""
        quiet = [k for k, log_gap in enumerate(self._log_gaps[:-1]) if not math.isfinite(log_gap)]
        gone = set(quiet[::2] if len(quiet) > len(self._at) // 2 else range(0, len(self._at), 2))
        for values in (self._at, self._duals, self._log_gaps, self._log_gains):
            values[:] = [value for k, value in enumerate(values) if k not in gone]


def _log(number: float) -> float:
    return math.log(number) if 0.0 < number < math.inf else math.nan


def _falling(x: Floats, y: Floats) -> tuple[float, float]:
    """How steeply a straight line through points falls, and its sum of squared errors."""
    x, y = x - x.mean(), y - y.mean()
    spread = float(x @ x)
    if spread == 0.0:
        return 0.0, math.inf
    slope = float(x @ y) / spread
    return -slope, float(np.sum((y - slope * x) ** 2))
