"""ProgressLine: what a fit is doing, on one line."""

import math
import sys
import time
from typing import Any, TextIO

from maxmargin.solvers.result import Round


class ProgressLine:
    """Callback that shows round, gap, objective and seconds while an estimator trains.

    In a terminal the line is rewritten in place; elsewhere a new line is printed now and then.

    Parameters
    ----------
    every : float, default=None
        Seconds between lines; None means 0.1 in a terminal and 5 elsewhere.
    stream : file, default=None
        Where to write; None means standard error.

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
    round ... gap ...
    LinearClassifier()
    """

    def __init__(self, every: float | None = None, stream: TextIO | None = None) -> None:
        self.every = every
        self.stream = stream

    def setup(self, estimator: Any, context: Any) -> None:
        """Start the clock."""
        self._rounds = self._shown = self._width = 0
        self._last: Round | None = None
        self._tol = 0.0
        self._shown_at = time.perf_counter()

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """Nothing to show yet."""

    def on_fit_task_end(self, estimator: Any, context: Any, *, metadata: Any = None) -> bool:
        """Show the round that has ended, unless the last one shown is very recent."""
        if metadata and "round" in metadata:
            self._rounds += 1
            self._last, self._tol = metadata["round"], metadata["tol"]
            in_place = self._stream.isatty()
            every = (0.1 if in_place else 5.0) if self.every is None else self.every
            if time.perf_counter() - self._shown_at >= every:
                self._show(end="" if in_place else "\n")
        return False

    def teardown(self, estimator: Any, context: Any) -> None:
        """Leave the last round on the screen."""
        if self._last is None:
            return
        if self._stream.isatty() or self._shown != self._rounds:
            self._show(end="\n")

    @property
    def _stream(self) -> TextIO:
        return sys.stderr if self.stream is None else self.stream

    def _show(self, end: str) -> None:
        assert self._last is not None
        line = self._last
        known = math.isfinite(line.primal)
        gap, primal = (
            (f"{line.relative_gap:8.2e}", f"{line.primal:.6g}") if known else ("   ?", "?")
        )
        text = (
            f"round {self._rounds:4d}  gap {gap} (tol {self._tol:g})  "
            f"primal {primal}  dual {line.dual:.6g}  {line.seconds:.1f} s"
        )
        start = ""
        if self._stream.isatty():
            start = "\r"
            text = text.ljust(self._width)  # covers a longer line before
            self._width = len(text.rstrip())
        self._shown = self._rounds
        self._stream.write(f"{start}{text}{end}")
        self._stream.flush()
        self._shown_at = time.perf_counter()
