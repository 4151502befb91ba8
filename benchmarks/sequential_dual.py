"""The sequential dual method against exponentiated gradient and cutting planes.

Figures 2 and 3 of Keerthi et al. (2008): how far the dual is below the optimum, and the test
accuracy, against training time. Crammer-Singer without intercept on 20 Newsgroups, MNIST and
Covertype with C = 1, and on MNIST with C = 0.1 and C = 10 (the paper's SECTOR and RCV1 cannot be
had). Contestants, all of this library, on one thread:

- **SDM**: `SequentialDual` with the paper's heuristics only, shrinking and cooling;
- **SDM, ours**: with acceleration and averaging besides, the default of `LinearClassifier`;
- **EG**: `ExponentiatedGradient`, one example at a time, at the best of four temperatures, each
  tried for a part of the time (which is not counted);
- **CP**: `OneSlack` without a cache, the cutting plane or bundle method.

EG and CP see the rows as chains of length one. Every contestant has the same processor time, with C
= 10 ten times as much as else; looks at the test rows do not count. The time until the dual is
within 1 % of the optimum is compared, or, where EG or CP never come there, the time they had is a
lower bound; likewise the time until the test accuracy is within half a point of its value at the
optimum. The accuracy is that of the best weights so far, as a user would get them.
"""

import argparse
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import maxmargin as mm
from benchmarks.common import run, say, subsample
from benchmarks.learning_curves import LearningCurve, Tables, tables
from benchmarks.race import CRAMMER_SINGER, Task, optimum, reference_parser
from benchmarks.reporting import Panel, Quote, Report, Row, thinned
from benchmarks.sequences import as_chains, fit

LEVEL = 0.01
"""Relative suboptimality of the dual at which times are compared."""

NEAR = 0.5
"""Points of test accuracy that count as there."""

ENOUGH = 1e-5
"""Relative suboptimality at which a run ends."""

TEMPERATURES = (1.0, 10.0, 100.0, 1000.0)
NEVER = 10**9
SDM, OURS, EG, CP = "SDM", "SDM, ours", "EG", "CP"
SEQUENTIAL = {
    SDM: mm.SequentialDual(acceleration=False, averaging=False),
    OURS: mm.SequentialDual(),
}
CHAIN_SETTINGS: dict[str, Any] = {
    "loss": "hamming",
    "fit_intercept": False,
    "fit_ends": False,
    "tol": 1e-12,
    "max_iter": NEVER,
}
PANELS = {"20news": (1.0,), "mnist": (0.1, 1.0, 10.0), "covtype": (1.0,)}
"""Values of C for each data set."""


def chains_fit(data: Any, C: float, solver: Any, callback: LearningCurve | None) -> Any:
    """Classes as chains of length one."""
    return fit(as_chains(data), callback, C=C, solver=solver, **CHAIN_SETTINGS)


class Contest:
    """All contestants on one problem.

    Parameters
    ----------
    both : Tables
    C : float
    options : argparse.Namespace
    """

    def __init__(self, both: Tables, C: float, options: argparse.Namespace) -> None:
        self.train, self.test = both
        self.task = Task(self.train, CRAMMER_SINGER, C)
        self.limit = options.time_limit * max(C, 1.0)  # large C takes longer, much like C
        self._load_compiled()
        self.optimum = optimum(self.task, options)
        say(f"{self.task.key}: {self.optimum}")
        self.title = f"{self.train.name}, C = {C:g}"
        self.curves: dict[str, LearningCurve] = {}
        self.temperature = np.nan

    def run(self) -> None:
        """Train all of them."""
        for who, solver in SEQUENTIAL.items():
            self.curves[who] = self._sequential(solver)
        tried = {
            temperature: self._chains(self._gradient(temperature), self.limit / 8)
            for temperature in TEMPERATURES
        }
        self.temperature = max(tried, key=lambda one: max(tried[one].duals, default=-np.inf))
        self.curves[EG] = self._chains(self._gradient(self.temperature), self.limit)
        self.curves[CP] = self._chains(self._planes(), self.limit)
        for who, curve in self.curves.items():
            below = min(curve.below(self.optimum.primal), default=np.inf)
            say(f"  {who}: {below:.1e} below after {curve.seconds[-1]:.3g} s")

    def _load_compiled(self) -> None:
        """So that no clock counts it."""
        few = subsample(self.train, 100)
        for solver in SEQUENTIAL.values():
            self.task.on(few).fit(solver=solver)
        for solver in (self._gradient(1.0), self._planes()):
            fit(as_chains(few), solver=solver, **CHAIN_SETTINGS | {"max_iter": 3})

    @staticmethod
    def _gradient(temperature: float) -> Any:
        return mm.ExponentiatedGradient(
            temperature=temperature, averaging=False, evaluate_every=NEVER
        )

    @staticmethod
    def _planes() -> Any:
        return mm.OneSlack(cache=0)

    def _curve(self, limit: float) -> LearningCurve:
        enough = (1.0 - ENOUGH) * self.optimum.primal
        return LearningCurve(self._score, limit, enough)

    def _sequential(self, solver: Any) -> LearningCurve:
        curve = self._curve(self.limit)
        model = self.task.estimator(solver=solver, tol=1e-9, max_iter=NEVER)
        model.set_callbacks(curve).fit(self.train.X, self.train.y)
        return curve

    def _chains(self, solver: Any, limit: float) -> LearningCurve:
        curve = self._curve(limit)
        chains_fit(self.train, self.task.C, solver, curve)
        return curve

    def _score(self, model: Any) -> float:
        if isinstance(model, mm.SequenceTagger):
            chains = as_chains(self.test)
            return float(model.score(chains.X, chains.y, lengths=chains.lengths))
        return float(model.score(self.test.X, self.test.y))

    def time(self, who: str, level: float = LEVEL) -> tuple[float, str]:
        """Seconds to within a level, or all it had; and as text."""
        curve = self.curves[who]
        arrived = curve.seconds_to(level, self.optimum.primal)
        if arrived is not None:
            return arrived, f"{arrived:.3g} s"
        return curve.seconds[-1], (
            f"over {curve.seconds[-1]:.3g} s ({min(curve.below(self.optimum.primal)):.1%} below)"
        )

    def time_to_accuracy(self, who: str) -> tuple[float, str]:
        """The same for the test accuracy."""
        final = self.curves[OURS].looks[-1][1]
        arrived = self.curves[who].seconds_to_accuracy(final - NEAR)
        if arrived is not None:
            return arrived, f"{arrived:.3g} s"
        end, best = self.curves[who].seconds[-1], max(self.curves[who].accuracies[1])
        return end, f"over {end:.3g} s (at best {best:.1f} %)"


def tell(contest: Contest, figure: str, report: Report) -> None:
    """Rows, quotes and panels of one problem."""
    title = contest.title
    for what, time in (
        (f"dual to {LEVEL:.0%}", contest.time),
        (f"test accuracy to {NEAR} points", contest.time_to_accuracy),
    ):
        seconds, texts = {}, {}
        for who in contest.curves:
            seconds[who], texts[who] = time(who)
        for who in (EG, CP):
            gain = seconds[who] / seconds[SDM]
            more = ">= " if texts[who].startswith("over") else ""
            report.rows.append(
                Row(
                    f"{title}, {what}: SDM before {who}",
                    "> 1x",
                    f"{more}{gain:.1f}x (SDM {texts[SDM]}; ours {texts[OURS]})",
                    f"{who} {texts[who]}",
                    met=gain > 1.0 and not texts[SDM].startswith("over"),
                )
            )
        order = seconds[SDM] < seconds[EG] and (
            seconds[EG] < seconds[CP] or texts[CP].startswith("over")
        )
        report.quotes.append(
            Quote(
                f"Keerthi et al. (2008), {figure}",
                f"{title}, {what}: SDM much before EG, EG much before CP",
                ", ".join(f"{who} {texts[who]}" for who in contest.curves),
                order,
            )
        )
    best = contest.optimum.primal
    report.panels[f"{title}: dual"] = Panel(
        {who: (curve.seconds, curve.below(best)) for who, curve in contest.curves.items()},
        "processor seconds",
        "relative suboptimality of the dual",
    )
    report.panels[f"{title}: test accuracy"] = Panel(
        {who: curve.accuracies for who, curve in contest.curves.items()},
        "processor seconds",
        "per cent",
        ("log", "linear"),
    )
    report.details[title] = {
        "optimum": [contest.optimum.primal, contest.optimum.dual],
        "temperature of EG": contest.temperature,
        "curves": {
            who: {
                "dual": _few(curve.seconds, curve.below(best)),
                "accuracy": _few(*curve.accuracies),
            }
            for who, curve in contest.curves.items()
        },
    }


def _few(*curve: list[float]) -> list[list[float]]:
    """At most a hundred points, with few digits."""
    return [[float(f"{value:.4g}") for value in values[::3]] for values in thinned(*curve)]


def measure(options: argparse.Namespace) -> Report:
    """All panels."""
    if options.quick:
        options.time_limit, options.reference_limit = 0.3, 1.0
    report = Report()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for name in options.data:
            both = tables(name, options.quick)
            for C in PANELS[name]:
                contest = Contest(both, C, options)
                contest.run()
                tell(contest, "figure 3" if C == 1.0 else "figure 2", report)
    report.notes.append(
        "EG and CP know neither shrinking nor that a row has one class to compare with: they run "
        "on the kernels for chains, and EG's temperature is chosen for it. Their curves "
        "are those of their methods, less so of their best implementations."
    )
    return report


if __name__ == "__main__":
    arguments = reference_parser(__doc__, tuple(PANELS))
    arguments.set_defaults(reference_limit=60.0)
    arguments.add_argument("--time-limit", type=float, default=10.0, help="seconds for each run")
    run(arguments, measure)
