"""Partial linearization needs less time than Frank-Wolfe, as in figures 1 and 2 of paper 002.

Mohapatra et al. (2016): the dual against time of block partial linearization (BCPL) at their
temperature, 0.01, and with the temperature scheduled, of block Frank-Wolfe (BCFW), and of
exponentiated gradient (OEG) at the best of their temperatures; on OCR letters (626 words) and on
the raw pixels of MNIST. Then the time that each needs until its dual is within 1 % of the
optimum, or as near as all but OEG have come in the time they had, also averaged over lambda. All
run on the same kernels; none values its primal on the way.
"""

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np

import maxmargin as mm
from benchmarks.common import load, parser, run, say
from benchmarks.reporting import Panel, Report, Row
from benchmarks.sequences import Chains, as_chains, fit, letters

LEVEL = 0.01
"""Relative suboptimality of the dual at which times are compared, if it is reached."""

LAMBDAS = (0.1, 0.01, 0.001)
TEMPERATURES = (100.0, 10.0, 1.0, 0.1, 0.01, 0.001, 1e-5, 1e-10)
"""Of exponentiated gradient, as in the paper."""

BCFW, BCPL, SCHEDULED, OEG = "BCFW", "BCPL 0.01", "BCPL scheduled", "OEG"
NEVER = 10**9
DUAL_ONLY: dict[str, Any] = {"averaging": False, "value_every": NEVER}
SOLVERS = {
    BCFW: mm.FrankWolfe(**DUAL_ONLY),
    BCPL: mm.PartialLinearization(temperature=0.01, **DUAL_ONLY),
    SCHEDULED: mm.PartialLinearization(temperature="scheduled", **DUAL_ONLY),
}


@dataclass(frozen=True)
class Task:
    """Sequences, and what is minimised over them, for a lambda."""

    name: str
    chains: Chains
    strength: float
    settings: dict[str, Any]

    @property
    def title(self) -> str:
        """Data and lambda."""
        return f"{self.name}, lambda {self.strength:g}"

    def fit(self, **settings: Any) -> Any:
        """Ours, fitted."""
        C = 1.0 / (self.strength * self.chains.n)
        return fit(self.chains, C=C, max_iter=NEVER, **self.settings | settings)


@dataclass(frozen=True)
class Curve:
    """How a solver's dual grew: seconds, and suboptimality relative to the optimum."""

    seconds: list[float]
    below: list[float]
    passes: int

    def arrival(self, level: float) -> float | None:
        """When it first came within a level; None for never."""
        pairs = zip(self.seconds, self.below, strict=True)
        return next((seconds for seconds, below in pairs if below <= level), None)


@dataclass(frozen=True)
class Race:
    """All solvers on one problem."""

    curves: dict[str, Curve]

    @property
    def level(self) -> float:
        """What all but exponentiated gradient have reached."""
        return max(LEVEL, *(min(self.curves[who].below) for who in SOLVERS))

    def arrived(self, who: str) -> bool:
        """Whether a solver came so far."""
        return self.curves[who].arrival(self.level) is not None

    def time(self, who: str) -> float:
        """When it came there, or else all the time it had: a lower bound."""
        arrival = self.curves[who].arrival(self.level)
        return self.curves[who].seconds[-1] if arrival is None else arrival

    def passes(self, who: str) -> int:
        """How many passes that took."""
        return int(np.searchsorted(self.curves[who].seconds, self.time(who))) + 1


def tasks(name: str, quick: bool) -> list[Task]:
    """The problems on one data set."""
    settings: dict[str, Any] = {"loss": "hamming-normalized"}
    if name == "letters":
        chains = letters("ocr", quick).train
    else:
        chains = as_chains(load("mnist", quick))
        settings |= {"fit_intercept": False, "fit_ends": False}
    return [Task(name, chains, strength, settings) for strength in LAMBDAS]


class StopAt:
    """Callback that stops a fit at a dual value: the gap cannot, for the primal is never valued."""

    def __init__(self, dual: float) -> None:
        self.dual = dual

    def setup(self, estimator: Any, context: Any) -> None:
        """Nothing to do."""

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """Nothing to do."""

    def on_fit_task_end(self, estimator: Any, context: Any) -> bool:
        """Tell whether to stop."""
        line = getattr(context, "round", None)
        return line is not None and bool(line.dual >= self.dual)

    def teardown(self, estimator: Any, context: Any) -> None:
        """Nothing to do."""


def curve(task: Task, solver: Any, optimum: float, limit: float) -> Curve:
    """Train for so many seconds, or until well within the level."""
    stop = StopAt((1 - 0.3 * LEVEL) * optimum)
    model = task.fit(solver=solver, tol=1e-12, time_limit=limit, callback=stop)
    below = [(optimum - line.dual) / optimum for line in model.history_]
    return Curve([line.seconds for line in model.history_], below, len(below))


def exponentiated_gradient(
    task: Task, optimum: float, options: argparse.Namespace
) -> tuple[float, Curve]:
    """At the temperature whose dual was best after a part of the time."""
    limit = options.time_limit

    def run_for(temperature: float, seconds: float) -> Curve:
        solver = mm.ExponentiatedGradient(temperature=temperature, **DUAL_ONLY)
        return curve(task, solver, optimum, seconds)

    temperatures = TEMPERATURES[:: 4 if options.quick else 1]
    tried = {temperature: run_for(temperature, limit / 5) for temperature in temperatures}
    best = min(tried, key=lambda temperature: min(tried[temperature].below))
    return best, run_for(best, limit)


def race(task: Task, options: argparse.Namespace) -> Race:
    """All solvers, and the optimum that they are measured against."""
    reference = task.fit(tol=1e-4, time_limit=options.reference_limit).certificate_
    say(f"{task.title}: {reference}")
    found = {
        who: curve(task, solver, reference.primal, options.time_limit)
        for who, solver in SOLVERS.items()
    }
    temperature, found[OEG] = exponentiated_gradient(task, reference.primal, options)
    say(f"  {OEG}: best temperature {temperature:g}")
    for who, one in found.items():
        say(f"  {who}: {min(one.below):.1e} after {one.seconds[-1]:.3g} s, {one.passes} passes")
    return Race(found)


def compare(what: str, races: list[Race]) -> list[Row]:
    """Mean times of the others beside that of block Frank-Wolfe."""

    def mean(who: str) -> float:
        return float(np.mean([one.time(who) for one in races]))

    def text(who: str) -> str:
        missed = not all(one.arrived(who) for one in races)
        passes = np.mean([one.passes(who) for one in races])
        return f"{'>= ' if missed else ''}{mean(who):.3g} s, {passes:.0f} passes"

    rows = []
    for who in (BCPL, SCHEDULED, OEG):
        gain = mean(BCFW) / mean(who)
        promised = who != OEG
        reached = f"{gain:.2f}x ({text(who)})" if promised else text(who)
        met = gain > 1 if promised else None
        title = f"{what}, {who} against {BCFW}"
        rows.append(Row(title, "> 1x" if promised else "", reached, text(BCFW), met))
    return rows


def measure(options: argparse.Namespace) -> Report:
    if options.quick:
        options.time_limit, options.reference_limit = 0.2, 1.0
    report = Report()
    panels = {}
    for name in options.data:
        problems = tasks(name, options.quick)
        few = problems[0].chains.first(20)
        for solver in (*SOLVERS.values(), mm.ExponentiatedGradient(temperature=0.1), mm.Auto()):
            fit(few, **problems[0].settings, solver=solver, max_iter=3)  # loads what is compiled
        races = {task.title: race(task, options) for task in problems}
        for title, one in races.items():
            panels[title] = Panel(
                {who: (each.seconds, each.below) for who, each in one.curves.items()},
                "seconds",
                "relative suboptimality of the dual",
            )
            report.rows += compare(f"{title}, dual to {one.level:.2g}", [one])
            report.details[title] = {who: vars(each) for who, each in one.curves.items()}
        report.rows += compare(f"{name}, mean over lambda (figure 2)", list(races.values()))
    report.panels.update(panels)
    return report


if __name__ == "__main__":
    arguments = parser(__doc__, ("letters", "mnist"))
    arguments.add_argument("--time-limit", type=float, default=60.0, help="seconds for each run")
    arguments.add_argument(
        "--reference-limit", type=float, default=300.0, help="seconds for each optimal value"
    )
    run(arguments, measure)
