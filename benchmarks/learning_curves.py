"""What a fit has learned while it runs: shared by benchmarks that redo a paper's curves."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import Data, load
from benchmarks.datasets import load as load_real
from benchmarks.stream_tasks import Stopwatch
from maxmargin.core.result import Iteration

BETWEEN = 1.15
"""Factor of the time from one look at the test rows to the next."""

LEAST = 1e-9
"""A plot has no zero, and no optimum is known better."""


class Tables(NamedTuple):
    """Training and test rows."""

    train: Data
    test: Data


def tables(name: str, quick: bool) -> Tables:
    """The usual ones of a data set; of a tiny one, every fifth row is a test row."""
    if quick:
        data = load(name, quick=True)
        held_out = np.arange(len(data.y)) % 5 == 0
        return Tables(data.some(~held_out), data.some(held_out))
    real = load_real(name)
    return Tables(Data(name, real.X_train, real.y_train), Data(name, real.X_test, real.y_test))


class DualCurve:
    """Callback that notes the dual after each iteration.

    Ends the fit after `limit` seconds of processor time, or when the dual is `enough`.

    Parameters
    ----------
    limit : float
    enough : float
    """

    def __init__(self, limit: float, enough: float = np.inf) -> None:
        self.limit, self.enough = limit, enough
        self.watch = Stopwatch()
        self.seconds: list[float] = []
        self.duals: list[float] = []

    def setup(self, estimator: Any, context: Any) -> None:
        """Start the clock."""
        self.watch = Stopwatch()

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """Nothing to do."""

    def on_fit_task_end(self, estimator: Any, context: Any) -> bool:
        """Note where the fit is; whether it is to stop."""
        line = getattr(context, "iteration", None)
        return line is not None and self.note(line)

    def note(self, line: Iteration) -> bool:
        """Keep a line of history; whether it is the last."""
        self.seconds.append(self.watch.seconds)
        self.duals.append(line.dual)
        return self.seconds[-1] > self.limit or line.dual >= self.enough

    def teardown(self, estimator: Any, context: Any) -> None:
        """Nothing to do."""

    def below(self, optimum: float) -> list[float]:
        """How far the duals are below the optimum, relative to it."""
        return [max((optimum - dual) / abs(optimum), LEAST) for dual in self.duals]

    def seconds_to(self, level: float, optimum: float) -> float | None:
        """When the dual came within a level of the optimum; None for never."""
        pairs = zip(self.seconds, self.below(optimum), strict=True)
        return next((seconds for seconds, below in pairs if below <= level), None)


class LearningCurve(DualCurve):
    """The same, and from time to time the test accuracy; looks at it do not count.

    Parameters
    ----------
    score : callable
        Test accuracy of a fitted estimator.
    limit, enough
        See `DualCurve`.
    """

    def __init__(self, score: Callable[[Any], float], limit: float, enough: float = np.inf) -> None:
        super().__init__(limit, enough)
        self.score = score
        self.looks: list[tuple[float, float]] = []

    def on_fit_task_end(  # type: ignore[override]
        self, estimator: Any, context: Any, *, fitted_estimator: Any
    ) -> bool:
        """Note where the fit is, and maybe what it has learned; whether it is to stop."""
        line = getattr(context, "iteration", None)
        if line is None:
            return False
        ends = self.note(line)
        is_due = ends or not self.looks or self.seconds[-1] >= BETWEEN * self.looks[-1][0]
        if is_due and fitted_estimator.coef_.any():  # zero as long as no weights were valued
            self.look(fitted_estimator)
        return ends

    def look(self, model: Any) -> None:
        """Note the test accuracy."""
        now = self.watch.seconds
        self.looks.append((now, 100 * self.watch.aside(lambda: self.score(model))))

    def seconds_to_accuracy(self, accuracy: float) -> float | None:
        """When the test accuracy was first so high; None for never."""
        return next((seconds for seconds, found in self.looks if found >= accuracy), None)

    @property
    def accuracies(self) -> tuple[list[float], list[float]]:
        """Seconds, and per cent."""
        return [seconds for seconds, _ in self.looks], [found for _, found in self.looks]
