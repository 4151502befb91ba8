"""ProgressLine: what a fit is doing, on one line.

A line of text that changes: rewritten in a terminal, written again elsewhere.

Amounts as people read them: short.
"""

import math
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TextIO

from maxmargin.core.result import AbsoluteGap, Iteration
from maxmargin.report.remaining import TimeLeft

_CLEAR_TO_END = "\x1b[J"


class Field(NamedTuple):
    """A part of a line; where there is no room for all, the least important go."""

    text: str
    importance: int


def fitted(fields: Sequence[Field], width: int) -> str:
    """As many fields as have room, the important ones first.

    Examples
    --------
    >>> fitted([Field("iteration 3", 2), Field("cuts 7", 1), Field("gap 0.1", 3)], width=20)
    'iteration 3  gap 0.1'
    """
    left = [field for field in fields if field.text]
    while len(left) > 1 and len(_joined(left)) > width:
        left.remove(min(left, key=lambda field: field.importance))
    return _joined(left)[:width]


def _joined(fields: Sequence[Field]) -> str:
    return "  ".join(field.text for field in fields)


class LiveLine:
    """Writes a line to a stream, and again when it has changed.

    In a terminal it is rewritten in place and never wraps. In a file, a notebook, a terminal that
    cannot move its cursor, or a process that shares its terminal with others, each text is a line
    of its own.

    Parameters
    ----------
    stream : file, default=None
        None means standard error; in a notebook, which shows that as something to worry about,
        standard output.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        if stream is None:
            stream = sys.stdout if _in_notebook() else sys.stderr
        self.stream = stream
        self.in_place = (
            stream.isatty()
            and os.environ.get("TERM") != "dumb"
            and not _in_notebook()
            and multiprocessing.current_process().name == "MainProcess"
        )
        self._is_open = False

    def show(self, fields: Sequence[Field]) -> None:
        """Write the line, or rewrite it."""
        if not self.in_place:
            self._write(_joined([field for field in fields if field.text]) + "\n")
            return
        # In the last column some terminals wrap. Where the terminal has become narrower, the line
        # may have been wrapped already; what is below the cursor is cleared, and nothing above,
        # since terminals differ in where the cursor is then.
        self._write("\r" + fitted(fields, self._width() - 1) + _CLEAR_TO_END)
        self._is_open = True

    def end(self) -> None:
        """Leave the line on the screen and go to the next."""
        if self._is_open:
            self._is_open = False
            self._write("\n")

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()

    def _width(self) -> int:
        try:
            columns = os.get_terminal_size(self.stream.fileno()).columns
        except (OSError, ValueError):  # says it is a terminal, but has no size
            columns = 0
        return max(columns, 2) if columns else 80


def _in_notebook() -> bool:
    """Whether a Jupyter kernel runs this."""
    shell = sys.modules.get("IPython")
    return shell is not None and hasattr(shell.get_ipython(), "kernel")


def short(number: float) -> str:
    """A count in at most five characters.

    Examples
    --------
    >>> short(87), short(12_345), short(999_960), short(2_000_000_000)
    ('87', '12.3k', '1M', '2G')
    """
    for sign in ("", "k", "M", "G"):
        number = float(f"{number:.3g}")
        if number < 1000.0:
            return f"{number:g}{sign}"
        number /= 1000.0
    return f"{number:.3g}T"


def duration(seconds: float) -> str:
    """Time that has passed.

    Examples
    --------
    >>> duration(3.14), duration(200), duration(3700)
    ('3.1 s', '3 min 20 s', '1 h 1 min')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def about(seconds: float) -> str:
    """Time that something will take, no finer than anybody can know.

    Examples
    --------
    >>> about(0.2), about(3.14), about(47), about(95), about(4_000), about(200_000)
    ('1 s', '3 s', '50 s', '1.6 min', '1.1 h', '2.3 days')
    """
    for unit, size, most in (("s", 1, 60), ("min", 60, 60), ("h", 3600, 24)):
        amount = seconds / size
        digits = 2 if amount < 3 and size > 1 else 1
        rounded = float(f"{amount:.{digits}g}")
        if rounded < most:
            return f"{max(rounded, 1):g} {unit}"
    return f"{seconds / 86400:.2g} days"


try:  # A private part of scikit-learn: without it, fits in other processes are not shown.
    from sklearn.callback import _transport as transport
except ImportError:
    transport = None

_EVERY_IN_PLACE = 0.1
_EVERY_ELSEWHERE = 5.0

_SHARE_OF_TIME = 0.02
"""Of the time so far, that a log waits for its next line: a long fit needs few lines."""

_TICK = 0.5
"""Seconds after which the clock of a line moves on, however long the round."""


class ProgressLine:
    """Callback that shows on one line how far a fit has come, and how much longer it may take.

    The line tells round, relative gap, dual value, searches, planes kept, answers from the cache,
    and the time: so far, and left, extrapolated from the rate at which the gap has been closing; a
    question mark means that nobody can tell yet. A gap with a tilde is what the searches let
    expect, before the objective has been valued.

    In a terminal the line is rewritten in place, and drops what matters least where it has no
    room; in a log file or a notebook a new line is written now and then. Set on a search or a
    pipeline, it shows all the fits in there, in other processes too. For silence, set no callback.

    Parameters
    ----------
    every : float, default=None
        Least seconds between two changes of the line. None means 0.1 in a terminal; elsewhere 5,
        and more and more in a long fit.
    stream : file, default=None
        Where to write; None means standard error, in a notebook standard output.

    See Also
    --------
    sklearn.callback.ProgressBar : Scikit-learn's own, which our estimators also serve.

    Notes
    -----
    Of a grid search the line tells how many fits are done. Like scikit-learn's own bar it is set
    on the outermost estimator, which hands it on to those inside.

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
        self._iterations: dict[Any, int] = {}
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
        """Show the round, or the fit, that has ended."""
        line = getattr(context, "iteration", None)
        ends_fit = (
            line is None and context.task_name == "fit" and hasattr(estimator, "certificate_")
        )
        if line is None and not ends_fit:
            return False
        path = _path(context if ends_fit else context.parent)
        key = tuple(task.task_id for task in path)
        count = self._iterations[key] = self._iterations.get(key, 0) + (not ends_fit)
        news = _News(
            key,
            # Tasks in no order are the same fit with other parameters or data.
            next((task.max_subtasks for task in path if not task.sequential_subtasks), None),
            estimator.C,
            estimator.tol,
            estimator.time_limit,
            count,
            line,
        )
        if ends_fit:
            del self._iterations[key]
            gap = estimator.certificate_.relative_gap
            news = news._replace(status=estimator.status_, gap=gap)
        self._tell(context.root_uuid, news)
        return False

    def teardown(self, estimator: Any, context: Any) -> None:
        """Leave a last line."""
        self._runs.pop(context.root_uuid).close()
        if not self._runs:
            self._iterations.clear()
            if self._listener is not None:
                transport.close_listener(self._listener)
                self._listener = None

    def _tell(self, root: Any, news: "_News") -> None:
        """Show news here, or send them to where they are shown."""
        if not self._is_copy:
            self._hear((root, news))
        elif news.status or time.perf_counter() - self._sent_at >= _EVERY_IN_PLACE:
            self._sent_at = time.perf_counter()
            with suppress(OSError, EOFError):  # nobody is there any more
                transport.send(self._listener, (root, news))

    def _hear(self, message: Any) -> None:
        root, news = message
        if root in self._runs:
            self._runs[root].hear(news)

    def __getstate__(self) -> dict[str, Any]:
        """For a copy in another process, which during a fit tells its news to this one."""
        if self._runs and self._listener is None and transport is not None:
            self._listener = transport.open_listener(self._hear)
        return {"every": self.every, "listener": self._listener}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["every"])  # type: ignore[misc]
        self._listener = state["listener"]
        self._is_copy = self._listener is not None


def _path(context: Any) -> list[Any]:
    """A task and all that it is part of, the outermost first."""
    path = []
    while context is not None:
        path.append(context)
        context = context.parent
    return path[::-1]


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
    line: Iteration | None
    """The last round; None at the end."""
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
        self._started = self._shown_at = time.perf_counter()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._ticker: threading.Thread | None = None
        if line.in_place:
            self._ticker = threading.Thread(target=self._tick, daemon=True)
            self._ticker.start()

    def hear(self, news: _News) -> None:
        """Take notice, and show it unless the line has just been written."""
        with self._lock:
            fit = self._fits.setdefault(news.fit, _Fit(news))
            fit.hear(news)
            self._latest, self._is_new = fit, True
            self._n_fits = max(self._n_fits, news.n_fits or 0)
            if news.status:
                del self._fits[news.fit]
                self._ended += 1
            if time.perf_counter() - self._shown_at >= self._pause:
                self._show()

    def close(self) -> None:
        """Show the last state, and end the line."""
        self._closing.set()
        if self._ticker is not None:
            self._ticker.join()
        if self._n_fits:
            count = Field(f"{self._ended} fits", 2)
            self._line.show([count, Field(duration(self._elapsed), 1)])
        elif self._latest is not None and (self._line.in_place or self._is_new):
            self._show()
        self._line.end()

    @property
    def _elapsed(self) -> float:
        return time.perf_counter() - self._started

    @property
    def _pause(self) -> float:
        """Between two lines."""
        if self._every is not None:
            return self._every
        if self._line.in_place:
            return _EVERY_IN_PLACE
        return max(_EVERY_ELSEWHERE, _SHARE_OF_TIME * self._elapsed)

    def _tick(self) -> None:
        while not self._closing.wait(_TICK):
            with self._lock:
                if time.perf_counter() - self._shown_at >= _TICK:
                    self._show()

    def _show(self) -> None:
        fit = self._latest
        if fit is None:
            fields = [Field("starting", 2), Field(duration(self._elapsed), 1)]
        elif fit.news.n_fits is None:
            fields = fit.fields()
        else:
            count = Field(f"{self._ended} of {fit.news.n_fits} fits", 9)
            fields = [count, *fit.numbers(), *_times(self._elapsed, self._left(fit.news.n_fits))]
        self._line.show(fields)
        self._shown_at, self._is_new = time.perf_counter(), False

    def _left(self, n_fits: int) -> float | None:
        """Time for the other fits of a search, if they are like those before."""
        if not self._ended:
            return None
        return self._elapsed * max(n_fits - self._ended, 0) / self._ended


class _Fit:
    """One fit: the last that was heard of it."""

    def __init__(self, news: _News) -> None:
        self.news = news
        self._line: Iteration | None = None
        self._heard_at = time.perf_counter()
        self._time_left = TimeLeft(news.tol, news.time_limit)

    def hear(self, news: _News) -> None:
        """Take notice."""
        self.news = news
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
        """Where the solver is."""
        news, line = self.news, self._line
        if line is None:
            return [Field(f"gap {news.gap:.1e}", 9)]
        return [
            Field(line.stage, 6),
            Field(f"iteration {news.iterations}", 6) if not line.done else Field("", 0),
            Field(f"gap {self._gap()}", 9),
            Field(f"tol {news.tol:g}", 4),
            Field(f"dual {line.dual:.6g}", 5),
            Field(f"calls {short(line.oracle_calls)}", 2),
            Field(f"cuts {short(line.cuts)}", 1),
            Field(f"cached {short(line.cache_hits)}", 0) if line.cache_hits else Field("", 0),
        ]

    def _gap(self) -> str:
        line = self._line
        if self.news.status:
            return f"{self.news.gap:.1e}"
        if line is None or min(line.relative_gap, line.objective_gap) == math.inf:
            return "?"
        if math.isfinite(line.relative_gap):
            return f"{line.relative_gap:.1e}"
        return f"~{line.objective_gap:.0e}"


def _times(elapsed: float, left: float | None) -> list[Field]:
    return [
        Field(duration(elapsed), 7),
        Field("? left" if left is None else f"about {about(left)} left", 8),
    ]
