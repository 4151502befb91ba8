"""Shrinking and cooling save time, as in figures 1 and 4 of Keerthi et al. (2008).

How far the dual value is below the optimum, relative to it, against seconds; with and without the
paper's two heuristics, and with and without the two that are ours, acceleration and averaging.
"""

import argparse
from dataclasses import asdict
from typing import Any

import maxmargin as mm
from benchmarks.common import ROOT, load, result_file, run, say, subsample
from benchmarks.race import CRAMMER_SINGER, WESTON_WATKINS, Optimum, Task, optimum, reference_parser
from benchmarks.reporting import Report, Row

LEVEL = 1e-4
"""Relative suboptimality of the dual at which the table compares the variants."""

PLAIN, PAPER, OURS, ALL = "neither", "shrinking, cooling", "acceleration, averaging", "all four"
SOLVERS = {
    PLAIN: mm.SequentialDual(shrinking=False, cooling=False, acceleration=False, averaging=False),
    PAPER: mm.SequentialDual(acceleration=False, averaging=False),
    OURS: mm.SequentialDual(shrinking=False, cooling=False),
    ALL: mm.SequentialDual(),
}
PAIRS = ((PAPER, PLAIN), (ALL, OURS))


def curve(task: Task, solver: mm.SequentialDual, best: Optimum, options: Any) -> dict[str, Any]:
    """Seconds, visits and relative suboptimality of the dual after each round."""
    model = task.fit(solver=solver, tol=options.tol, time_limit=options.time_limit, max_iter=10**7)
    return {
        "status": model.status_,
        "seconds": [line.seconds for line in model.history_],
        "visits": [line.oracle_calls for line in model.history_],
        "below": [(best.primal - line.dual) / abs(best.primal) for line in model.history_],
    }


def seconds_to(level: float, found: dict[str, Any]) -> float | None:
    """When the dual first came within `level`; None for never."""
    pairs = zip(found["seconds"], found["below"], strict=True)
    return next((seconds for seconds, below in pairs if below <= level), None)


def compare(what: str, curves: dict[str, Any], with_it: str, without: str) -> Row:
    """A row that promises the heuristics to save time."""
    bar = "> 1x"
    texts, seconds = {}, {}
    for variant in (with_it, without):
        arrived, end = seconds_to(LEVEL, curves[variant]), curves[variant]["seconds"][-1]
        seconds[variant] = end if arrived is None else arrived
        missed = "not within " if arrived is None else ""
        texts[variant] = f"{variant}: {missed}{seconds[variant]:.3g} s"
    if "not within" in texts[with_it]:
        return Row(what, bar, texts[with_it], texts[without], met=False)
    gain = seconds[without] / seconds[with_it]
    more = ">= " if "not within" in texts[without] else ""
    return Row(what, bar, f"{more}{gain:.2f}x ({texts[with_it]})", texts[without], met=gain > 1)


def plot(curves: dict[str, dict[str, Any]], quick: bool) -> None:
    """One panel for each task."""
    try:
        from matplotlib import pyplot
    except ImportError:
        say("matplotlib is not installed: no plot")
        return
    pyplot.switch_backend("agg")
    figure, grid = pyplot.subplots(
        1, len(curves), figsize=(5 * len(curves), 4), squeeze=False, layout="constrained"
    )
    for panel, (title, variants) in zip(grid[0], curves.items(), strict=True):
        for variant, found in variants.items():
            panel.plot(found["seconds"], [max(one, 1e-12) for one in found["below"]], label=variant)
        panel.set(title=title, xscale="log", yscale="log", xlabel="seconds")
        panel.grid(alpha=0.3)
    grid[0][0].set_ylabel("relative suboptimality of the dual")
    grid[0][0].legend()
    path = result_file("heuristics", quick).with_suffix(".png")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    say(f"written: {path.relative_to(ROOT)}")


def measure(options: argparse.Namespace) -> Report:
    report = Report()
    panels = {}
    for name in options.data:
        data = load(name, options.quick)
        for formulation in (CRAMMER_SINGER, WESTON_WATKINS):
            task = Task(data, formulation, options.C)
            best = optimum(task, options)
            say(f"{task.key}: {best}")
            curves = {}
            for variant, solver in SOLVERS.items():
                task.on(subsample(data, 100)).fit(solver=solver)
                curves[variant] = curve(task, solver, best, options)
            title = f"{data.name}, {formulation.name}"
            report.rows += [compare(f"{title}, dual to {LEVEL:g}", curves, *two) for two in PAIRS]
            report.details[task.key] = {"optimum": asdict(best), "curves": curves}
            panels[title] = curves
    plot(panels, options.quick)
    return report


if __name__ == "__main__":
    arguments = reference_parser(__doc__, ("mnist", "covtype"))
    arguments.add_argument("--C", type=float, default=1.0)
    arguments.add_argument("--tol", type=float, default=1e-5, help="gap at which a run ends")
    arguments.add_argument("--time-limit", type=float, default=120.0, help="seconds for each run")
    run(arguments, measure)
