"""The temperature of partial linearization, and its schedule.

Mohapatra et al. (2016) fix the temperature at 0.01 and leave open whether changing it in the course
of a training helps. Here block partial linearization runs at fixed temperatures from zero, which is
block-coordinate Frank-Wolfe, to one, and with the schedule that we found: cold and hot passes in
turn, with a hot temperature that follows what it gains. Handwritten words and MNIST as under the
claim `temperature`, for two lambda, on one thread. What counts is the time until the dual is within
1 % of the optimum, and how far it is from it after a tenth of the time limit.
"""

import argparse
from collections.abc import Mapping

import maxmargin as mm
from benchmarks.common import parser, run, say
from benchmarks.reporting import Panel, Quote, Report, Row
from benchmarks.temperature import (
    DATA,
    DUAL_ONLY,
    LEVEL,
    PAPER,
    Curve,
    Task,
    add_limits,
    curve,
    optimum,
    tasks,
    warm,
)

STRENGTHS = (0.1, 0.01)
TEMPERATURES = (0.0, 1e-4, 1e-3, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
THEIRS = 0.01
ZERO = 1e-5
"""Where temperature zero is drawn, for want of a zero on a logarithmic axis."""

EARLY = 0.1
"""Part of the time limit after which the duals are compared."""

SCHEDULED = "scheduled"


class Sweep:
    """How partial linearization does at each temperature on one problem."""

    def __init__(self, task: Task, options: argparse.Namespace) -> None:
        self.title, self.limit = task.title, options.time_limit
        highest = optimum(task, options)
        self.curves: dict[float | str, Curve] = {}
        tried: list[float | str] = [*TEMPERATURES[:: 4 if options.quick else 1], SCHEDULED]
        for temperature in tried:
            solver = mm.PartialLinearization(temperature=temperature, **DUAL_ONLY)
            one = curve(task, solver, highest, self.limit)
            self.curves[temperature] = one
            say(f"  {temperature}: {min(one.below):.1e} after {one.seconds[-1]:.3g} s")

    @property
    def fixed(self) -> Mapping[float, Curve]:
        """Those of fixed temperatures."""
        return {key: one for key, one in self.curves.items() if not isinstance(key, str)}

    def time(self, temperature: float | str) -> float:
        """Until the level, or else all the time there was."""
        arrival = self.curves[temperature].arrival(LEVEL)
        return self.limit if arrival is None else arrival

    def early(self, temperature: float | str) -> float:
        """Suboptimality of the dual after a part of the time, or at the end if that was before."""
        one = self.curves[temperature]
        pairs = zip(one.seconds, one.below, strict=True)
        found = [below for seconds, below in pairs if seconds <= EARLY * self.limit]
        return found[-1] if found else one.below[0]

    @property
    def best(self) -> float:
        """The fixed temperature that arrives first; if none does, that which came nearest."""
        return min(self.fixed, key=lambda key: (self.time(key), min(self.curves[key].below)))

    def words(self, temperature: float | str) -> str:
        """Time until the level in words."""
        if self.curves[temperature].arrival(LEVEL) is None:
            return f"{min(self.curves[temperature].below):.1e} after {self.limit:g} s"
        return f"{self.time(temperature):.3g} s"


def describe(sweep: Sweep, report: Report) -> None:
    """Rows, a quote and panels of one problem."""
    best = sweep.best
    gain = sweep.time(best) / sweep.time(SCHEDULED)
    report.rows.append(
        Row(
            f"{sweep.title}, scheduled against the best fixed temperature",
            ">= 1x",
            f"{gain:.2f}x ({sweep.words(SCHEDULED)})",
            f"{sweep.words(best)} at {best:g}",
            met=gain >= 1.0,
        )
    )
    if THEIRS in sweep.fixed:
        gain = sweep.time(THEIRS) / sweep.time(SCHEDULED)
        report.rows.append(
            Row(
                f"{sweep.title}, scheduled against the paper's temperature",
                "> 1x",
                f"{gain:.2f}x ({sweep.words(SCHEDULED)})",
                f"{sweep.words(THEIRS)} at {THEIRS:g}",
                met=gain > 1.0,
            )
        )
        near = sweep.time(THEIRS) / sweep.time(best)
        report.quotes.append(
            Quote(
                f"{PAPER}, section 5.2, {sweep.title}",
                "a fixed temperature of 0.01 does for all sets and all lambda",
                f"{sweep.words(THEIRS)}; the best fixed one is {best:g}, {near:.2g} times as fast; "
                f"zero (BCFW) {sweep.words(0.0)}",
                near <= 2.0,
            )
        )
        report.quotes.append(
            Quote(
                f"{PAPER}, section 6, {sweep.title}",
                "varying the temperature in the course of training may converge faster: left open",
                f"scheduled {sweep.words(SCHEDULED)}, fixed at 0.01 {sweep.words(THEIRS)}",
                sweep.time(SCHEDULED) < sweep.time(THEIRS),
            )
        )


def panels(sweeps: list[Sweep]) -> dict[str, Panel]:
    """Time and early suboptimality against the temperature; the schedule as a level line."""
    times, duals = {}, {}
    for sweep in sweeps:
        keys = list(sweep.fixed)
        places = [max(key, ZERO) for key in keys]
        ends = [places[0], places[-1]]
        times[sweep.title] = places, [sweep.time(key) for key in keys]
        times[f"{sweep.title}, scheduled"] = ends, [sweep.time(SCHEDULED)] * 2
        duals[sweep.title] = places, [sweep.early(key) for key in keys]
        duals[f"{sweep.title}, scheduled"] = ends, [sweep.early(SCHEDULED)] * 2
    limit = sweeps[0].limit
    x = "temperature (leftmost: zero, Frank-Wolfe)"
    data = sweeps[0].title.split(",")[0]
    return {
        f"{data}: time until the dual is within {LEVEL:.0%}": Panel(times, x, "seconds"),
        f"{data}: dual after {EARLY * limit:g} s": Panel(duals, x, "relative suboptimality"),
    }


def measure(options: argparse.Namespace) -> Report:
    if options.quick:
        options.time_limit, options.reference_limit = 0.1, 0.5
    report = Report()
    for name in options.data:
        problems = [task for task in tasks(name, options.quick) if task.strength in STRENGTHS]
        warm(problems[0])
        sweeps = [Sweep(task, options) for task in problems]
        for sweep in sweeps:
            describe(sweep, report)
            report.details[sweep.title] = {
                str(key): {
                    "time": sweep.time(key),
                    "early": sweep.early(key),
                    "least": min(one.below),
                    "passes": one.passes,
                }
                for key, one in sweep.curves.items()
            }
        report.panels.update(panels(sweeps))
    return report


if __name__ == "__main__":
    run(add_limits(parser(__doc__, DATA), limit=10.0), measure)
