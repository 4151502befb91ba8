"""ProgressLine: what a fit is doing, on one line, and how much longer it will take."""

import math
import threading
import time
from bisect import bisect_left
from contextlib import suppress
from typing import Any, NamedTuple, TextIO

import numpy as np

from maxmargin.core.arrays import Floats
from maxmargin.core.result import AbsoluteGap, Iteration
from maxmargin.data.live_line import Field, LiveLine, about, duration, short
from maxmargin.solvers.loop import Stopping

try:  # A private part of scikit-learn: without it, fits in other processes are not shown.
    from sklearn.callback import _transport as transport
except ImportError:
    transport = None

_EVERY_IN_PLACE, _EVERY_ELSEWHERE = 0.1, 5.0
"""Seconds between two changes of the line."""

_FRACTION_OF_TIME = 0.02
"""Of the time so far, that a log waits for its next line: a long fit needs few lines."""


class ProgressLine:
    """Callback that shows on one line how far a fit has come, and how much longer it may take.

    The line has the iteration, the relative duality gap (with a tilde, an estimate), the dual
    objective, oracle calls, cutting planes kept, constraints found in the cache, and the time so
    far and left, extrapolated from the rate at which the gap closes.

    In a terminal the line is rewritten in place; in a log file or a notebook a new line is written
    now and then. Set on a grid search or a pipeline, as scikit-learn's own bar is, it shows how
    many of the fits inside are done, in other processes too.

    Parameters
    ----------
    every : float, default=None
        Minimum number of seconds between two changes of the line. None means 0.1 in a terminal;
        elsewhere 5, and more in a long fit.
    stream : file, default=None
        Where to write; None means standard error, in a notebook standard output.

    See Also
    --------
    sklearn.callback.ProgressBar : Scikit-learn's own, which our estimators also serve.

    Examples
    --------
    >>> import sys
    >>> from sklearn.datasets import load_iris
    >>> import maxmargin as mm
    >>> X, y = load_iris(return_X_y=True)
    >>> line = mm.ProgressLine(stream=sys.stdout)
    >>> mm.LinearClassifier().set_callbacks(line).fit(X, y)  # doctest: +ELLIPSIS
    C 1  iteration ...  gap ...  tol 0.001  dual ...  calls ...  cuts ...  converged
    LinearClassifier()
    """

    max_propagation_depth = None
    """All the estimators inside get it: scikit-learn's protocol."""

    def __init__(self, every: float | None = None, stream: TextIO | None = None) -> None:
        if every is not None and not every >= 0:
            raise ValueError(f"every is {every}, but must be a number of seconds.")
        self.every = every
        self.stream = stream
        self._runs: dict[Any, _Run] = {}
        self._listener: Any = None
        """Where copies in other processes send their news, while there are any."""
        self._is_copy = False
        self._sent_at = -math.inf

    def setup(self, estimator: Any, context: Any) -> None:
        """Start the clock."""
        self._runs[context.root_uuid] = _Run(LiveLine(self.stream), self.every)

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """Nothing to show yet."""

    def on_fit_task_end(self, estimator: Any, context: Any) -> bool:
        """Show the iteration, or the fit, that has ended."""
        line = getattr(context, "iteration", None)
        ends_fit = (
            line is None and context.task_name == "fit" and hasattr(estimator, "certificate_")
        )
        if line is None and not ends_fit:
            return False
        task = context if ends_fit else context.parent
        path: list[Any] = []
        while task is not None:  # the task and all that it is part of, the outermost first
            path.insert(0, task)
            task = task.parent
        news = _News(
            tuple(task.task_id for task in path),
            # Tasks in no order are the same fit with other parameters or data.
            next((task.max_subtasks for task in path if not task.sequential_subtasks), None),
            estimator.C,
            estimator.tol,
            estimator.time_limit,
            0 if ends_fit else context.task_id + 1,
            line,
        )
        if ends_fit:
            gap = estimator.certificate_.relative_gap
            news = news._replace(status=estimator.status_, gap=gap)
        self._tell(context.root_uuid, news)
        return False

    def teardown(self, estimator: Any, context: Any) -> None:
        """Leave a last line."""
        self._runs.pop(context.root_uuid).close()
        if not self._runs and self._listener is not None:
            transport.close_listener(self._listener)
            self._listener = None

    def _tell(self, root: Any, news: "_News") -> None:
        """Show news here, or send them to where they are shown."""
        if not self._is_copy:
            self._hear((root, news))
        elif news.status or time.perf_counter() - self._sent_at >= _EVERY_IN_PLACE:
            self._sent_at = time.perf_counter()
            with suppress(OSError, EOFError):  # the listener has gone
                transport.send(self._listener, (root, news))

    def _hear(self, message: Any) -> None:
        root, news = message
        if root in self._runs:
            self._runs[root].hear(news)

    def __getstate__(self) -> dict[str, Any]:
        """For a copy in another process, which sends its news to this one during a fit."""
        if self._runs and self._listener is None and transport is not None:
            self._listener = transport.open_listener(self._hear)
        return {"every": self.every, "listener": self._listener}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["every"])  # type: ignore[misc]
        self._listener = state["listener"]
        self._is_copy = self._listener is not None


class _News(NamedTuple):
    """What has happened to a fit."""

    fit: Any
    """Which one it is."""
    n_fits: int | None
    """How many fits there are of its kind."""
    C: float
    tol: float | AbsoluteGap
    time_limit: float | None
    iterations: int
    """How many have ended; 0 at the end."""
    line: Iteration | None
    """The last iteration; None at the end."""
    status: str = ""
    """Why it has ended."""
    gap: float = math.inf
    """Of its certificate."""


class _Run:
    """All the fits between a `setup` and its `teardown`, and the line that shows them."""

    def __init__(self, line: LiveLine, every: float | None) -> None:
        self._line, self._every = line, every
        self._fits: dict[Any, _Fit] = {}
        self._latest: _Fit | None = None
        self._is_new = False
        self._ended, self._n_fits = 0, 0
        self._started = time.perf_counter()
        # The terminal's lock is taken before this one, never inside it: its own thread renders.
        self._lock = threading.Lock()
        if line.in_place:
            line.show(self._fields)
        self._shown_at = self._started

    def hear(self, news: _News) -> None:
        """Record news, and show them unless the line has just been written."""
        with self._lock:
            fit = self._fits.setdefault(news.fit, _Fit(news))
            fit.hear(news)
            self._latest, self._is_new = fit, True
            self._n_fits = max(self._n_fits, news.n_fits or 0)
            if news.status:
                del self._fits[news.fit]
                self._ended += 1
            due = time.perf_counter() - self._shown_at >= self._pause
        if due:
            self._show()

    def close(self) -> None:
        """Show the last state, and end the line."""
        if self._n_fits:
            count = Field(f"{self._ended} fits", 2)
            self._line.show([count, Field(duration(self._elapsed), 1)])
        elif self._latest is not None and (self._line.in_place or self._is_new):
            self._show()
        self._line.end(clear=self._latest is None)

    @property
    def _elapsed(self) -> float:
        return time.perf_counter() - self._started

    @property
    def _pause(self) -> float:
        """Seconds between two lines."""
        if self._every is not None:
            return self._every
        if self._line.in_place:
            return _EVERY_IN_PLACE
        return max(_EVERY_ELSEWHERE, _FRACTION_OF_TIME * self._elapsed)

    def _show(self) -> None:
        self._line.show(self._fields)
        self._shown_at, self._is_new = time.perf_counter(), False

    def _fields(self) -> list[Field]:
        with self._lock:
            fit = self._latest
            if fit is None:
                return [Field("starting", 2), Field(duration(self._elapsed), 1)]
            if fit.news.n_fits is None:
                return fit.fields()
            ended, n_fits = self._ended, fit.news.n_fits
            # The other fits of a grid search are thought to be like those before.
            left = self._elapsed * max(n_fits - ended, 0) / ended if ended else None
            count = Field(f"{ended} of {n_fits} fits", 9)
            return [count, *fit.numbers(), *_times(self._elapsed, left)]


class _Fit:
    """One fit, as the last news describe it."""

    def __init__(self, news: _News) -> None:
        self.news = news
        self._line: Iteration | None = None
        self._heard_at = time.perf_counter()
        self._time_left = TimeLeft(news.tol, news.time_limit)

    def hear(self, news: _News) -> None:
        self.news = news._replace(iterations=news.iterations or self.news.iterations)
        if news.line is not None:
            self._line, self._heard_at = news.line, time.perf_counter()
            self._time_left.add(news.line)

    def fields(self) -> list[Field]:
        """All that there is to show."""
        line = self._line
        seconds = time.perf_counter() - self._heard_at + (0.0 if line is None else line.seconds)
        if self.news.status:
            ends = [Field(duration(seconds), 7), Field(self.news.status, 8)]
        else:
            ends = _times(seconds, self._time_left.seconds(seconds))
        return [Field(f"C {self.news.C:.3g}", 3), *self.numbers(), *ends]

    def numbers(self) -> list[Field]:
        """Iteration, gap, dual value and counts of the solver."""
        news, line = self.news, self._line
        if line is None or news.status:
            gap = f"{news.gap:.1e}"
        elif math.isfinite(line.relative_gap):
            gap = f"{line.relative_gap:.1e}"
        else:
            gap = "?" if line.objective_gap == math.inf else f"~{line.objective_gap:.0e}"
        if line is None:
            return [Field(f"gap {gap}", 9)]
        return [
            Field(line.stage, 6),
            Field("" if line.done else f"iteration {news.iterations}", 6),
            Field(f"gap {gap}", 9),
            Field(f"tol {news.tol:g}", 4),
            Field(f"dual {line.dual:.6g}", 5),
            Field(f"calls {short(line.oracle_calls)}", 2),
            Field(f"cuts {short(line.cuts)}", 1),
            Field(f"cached {short(line.cache_hits)}" if line.cache_hits else "", 0),
        ]


def _times(elapsed: float, left: float | None) -> list[Field]:
    return [
        Field(duration(elapsed), 7),
        Field("? left" if left is None else f"about {about(left)} left", 8),
    ]


RECENT = 0.7
"""Last fraction of the time so far whose iterations count: older ones had another rate."""

MIN_GAPS = 4
"""From so many gaps on, a rate is fitted."""

MAX_HORIZON = 30.0
"""Multiple of the time so far, beyond which no estimate is given."""

GAIN_SINCE = 0.8
"""The dual's gain at an iteration is counted from this fraction of its time on."""

_MAX_ITERATIONS = 512


class TimeLeft:
    """Extrapolates the logarithm of the gap, in time or in its logarithm, to the tolerance.

    The recent gain of the dual, which falls as the gap does, stands in where the gap is not known.
    """

    def __init__(self, tol: float | AbsoluteGap, time_limit: float | None = None) -> None:
        self._bounds, self._time_limit = Stopping.within(tol), time_limit
        self._last: Iteration | None = None
        self._points: list[_Point] = []

    def add(self, line: Iteration) -> None:
        last, self._last = self._last, line
        tells = last is None or (line.primal, line.objective) != (last.primal, last.objective)
        gap = min(line.relative_gap, line.objective_gap) if tells else math.nan
        since = bisect_left(self._points, GAIN_SINCE * line.seconds, key=lambda point: point.at)
        before = self._points[since].dual if since < len(self._points) else line.dual
        gain = (line.dual - before) / abs(line.dual or 1.0)
        self._points.append(_Point(line.seconds, line.dual, _log(gap), _log(gain)))
        if len(self._points) > _MAX_ITERATIONS:
            self._thin()

    def seconds(self, now: float) -> float | None:
        """From `now`, in seconds since the solver started; None if it cannot be estimated."""
        if self._last is None:
            return None
        if self._last.done:
            total = self._last.seconds / self._last.done
            return max(total - now, 0.0)
        if self._last.stage:  # how many more will come is not known
            return None
        end = self._end(now)
        known = [] if end is None or not now < end < MAX_HORIZON * now else [end - now]
        if self._time_limit is not None:
            known.append(max(self._time_limit - now, 0.0))
        return min(known, default=None)

    def _end(self, now: float) -> float | None:
        """When the gap will be closed."""
        at, log_gaps = self._gaps()
        recent = at >= (1.0 - RECENT) * now
        if np.count_nonzero(recent) < MIN_GAPS:
            return None
        log_gaps = np.minimum.accumulate(log_gaps)[recent]
        at = at[recent]
        exponential, error = _falling(at, log_gaps)
        power, other_error = _falling(np.log(at), log_gaps)
        to_go = log_gaps[-1] - math.log(self._bounds.relative_tol(self._points[-1].dual))
        if to_go <= 0.0 or exponential <= 0.0 or power <= 0.0:
            return None
        if error <= other_error:
            return float(at[-1] + to_go / exponential)
        return float(at[-1] * math.exp(min(to_go / power, 100.0)))

    def _gaps(self) -> tuple[Floats, Floats]:
        """Times, and the logarithm of the gap then, as far as it is known."""
        at, _, log_gaps, log_gains = np.array(self._points).T
        ratios = (log_gaps - log_gains)[np.isfinite(log_gaps) & np.isfinite(log_gains)]
        if len(ratios):
            log_gaps = np.where(np.isnan(log_gaps), log_gains + ratios[-1], log_gaps)
        known = np.isfinite(log_gaps) & (at > 0.0)
        return at[known], log_gaps[known]

    def _thin(self) -> None:
        """Forget every other iteration without a gap; if all have one, every other one."""
        n = len(self._points)
        quiet = [k for k in range(n - 1) if not math.isfinite(self._points[k].log_gap)]
        gone = set(quiet[::2] if len(quiet) > n // 2 else range(0, n, 2))
        self._points = [point for k, point in enumerate(self._points) if k not in gone]


class _Point(NamedTuple):
    """An iteration: its time, its dual value, and logarithms, NaN where they are not known."""

    at: float
    dual: float
    log_gap: float
    log_gain: float


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
