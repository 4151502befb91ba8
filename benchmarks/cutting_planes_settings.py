"""1-slack cutting planes against the cache, the tolerance and C.

Figures 6, 8 and 9 of Joachims et al. (2009) on Covertype, tags of the Brown corpus, and grammars of
treebank sentences of at most 15 words, on one thread: oracle calls against the cutting planes that
are cached for each example; iterations without a cache and oracle calls with it, against the
tolerance and against C. The bounds of the paper are linear in C and in the inverse of epsilon. Its
epsilon is absolute, our tolerance relative to the objective. Counts do not depend on the machine,
so each training is made once.
"""

import argparse
import math
from collections.abc import Sequence
from typing import Any

import maxmargin as mm
from benchmarks.common import parser, run
from benchmarks.cutting_plane_problems import (
    ONE,
    PAPER,
    PROBLEMS,
    SOLVERS,
    UNCACHED,
    Laboratory,
    Outcome,
    add_sizes,
    exponent,
    listed,
    power,
)
from benchmarks.reporting import Panel, Quote, Report, Row

CACHES = (0, 1, 2, 5, 10, 20)
TOLERANCES = (5.0, 2.0, 1.0, 0.5, 0.2)
"""Times that of the problem."""
CS = (0.03, 0.1, 0.3, 1.0, 3.0)
"""Times that of the problem."""

ALL_OF_IT = 1.1
"""A cache of five does it all if a larger one saves no more than a tenth."""

LEAST = 3
"""Trainings that must have ended for their growth to count."""

MUCH_MORE_SLOWLY = 0.75
HARDLY = 0.25
"""Exponent of growth that counts as hardly any."""

Curves = dict[str, dict[str, Any]]


def grows(hardness: Sequence[float], counts: Sequence[int], found: Sequence[Outcome]) -> float:
    """Exponent of growth over the trainings that ended; not a number if they are too few."""
    done = [at for at, one in enumerate(found) if one.arrived]
    if len(done) < LEAST:
        return math.nan
    return exponent([hardness[at] for at in done], [counts[at] for at in done])


def below(value: float, bound: float) -> bool | None:
    """Whether it is; None if it is not known."""
    return None if math.isnan(value) else value <= bound


def unfinished(outcomes: Sequence[Outcome]) -> str:
    """How many met their time limit, in words."""
    n = sum(not one.arrived for one in outcomes)
    return f"; {n} of {len(outcomes)} met the time limit and do not count" if n else ""


def caches(lab: Laboratory, n: int, report: Report, curves: Curves) -> None:
    """Figure 6."""
    found = {size: lab(mm.OneSlack(cache=size), n) for size in CACHES}
    counts = {size: one.searches for size, one in found.items()}
    # No cache is drawn at one half, for want of a zero on a logarithmic axis.
    curves["figure 6"][lab.name] = [max(size, 0.5) for size in CACHES], list(counts.values())
    text = ", ".join(f"{size}: {count:,}" for size, count in counts.items())
    late = unfinished(list(found.values()))
    met = all(one.arrived for one in found.values())
    report.rows.append(
        Row(
            f"{lab.name}, {n:,} examples, oracle calls with a cache of so many cutting planes",
            f"gap <= {lab.problem.tol:g}",
            f"{text}{late}",
            met=met,
        )
    )
    report.quotes.append(
        Quote(
            f"{PAPER}, figure 6, {lab.name}",
            "a cache of 5 gives all the benefit, larger ones no more",
            f"5 save a factor of {counts[0] / counts[5]:.2f}, 10 {counts[0] / counts[10]:.2f}, "
            f"20 {counts[0] / counts[20]:.2f}{late}",
            None
            if late
            else counts[5] < counts[0] and counts[5] <= ALL_OF_IT * min(counts[10], counts[20]),
        )
    )


def knobs(lab: Laboratory, n: int, report: Report, curves: Curves) -> None:
    """Figures 8 and 9: iterations without a cache, oracle calls with it."""
    problem = lab.problem
    for figure, knob, factors, own in (
        ("8", "tol", TOLERANCES, problem.tol),
        ("9", "C", CS, problem.mean_cost),
    ):
        values = [factor * own for factor in factors]
        hardness = [1.0 / value for value in values] if knob == "tol" else values
        bound = "1/tolerance" if knob == "tol" else "C"
        grown, texts = {}, {}
        for who, count in ((UNCACHED, "rounds"), (ONE, "searches")):
            found = [
                lab(SOLVERS[who], n, *((1.0, factor) if knob == "tol" else (factor, 1.0)))
                for factor in factors
            ]
            counts = [getattr(one, count) for one in found]
            curves[f"figure {figure}: {NAMES[count]}"][lab.name] = values, counts
            grown[count] = grows(hardness, counts, found)
            texts[count] = f"{power(grown[count])} ({listed(counts)}{unfinished(found)})"
            report.rows.append(
                Row(
                    f"{lab.name}, {n:,} examples, {who}, {NAMES[count]} against {knob} "
                    f"({listed(values)})",
                    f"grow slower than {bound}",
                    f"as {bound} to the {texts[count]}",
                    met=below(grown[count], 1.0),
                )
            )
        report.quotes += [
            Quote(
                f"{PAPER}, figure {figure}, {lab.name}",
                f"iterations grow much more slowly than {bound}, which the bound has",
                f"as {bound} to the {texts['rounds']}",
                below(grown["rounds"], MUCH_MORE_SLOWLY),
            ),
            Quote(
                f"{PAPER}, figure {figure}, {lab.name}",
                f"with a cache, {knob} has hardly any influence on the oracle calls",
                f"as {bound} to the {texts['searches']}",
                below(grown["searches"], HARDLY),
            ),
        ]


NAMES = {"rounds": "iterations", "searches": "oracle calls"}
"""What a count of a fit is called."""

AXES = {
    "figure 6": ("cutting planes cached for each example (leftmost: none)", "oracle calls"),
    "figure 8: iterations": ("tolerance", "iterations of 1-slack, no cache"),
    "figure 8: oracle calls": ("tolerance", "oracle calls of 1-slack"),
    "figure 9: iterations": ("C (mean)", "iterations of 1-slack, no cache"),
    "figure 9: oracle calls": ("C (mean)", "oracle calls of 1-slack"),
}


def measure(options: argparse.Namespace) -> Report:
    report = Report()
    curves: Curves = {title: {} for title in AXES}
    for name in options.data:
        lab = Laboratory(name, options)
        n = lab.problem.sizes[-1]
        caches(lab, n, report, curves)
        knobs(lab, n, report, curves)
        report.details[name] = lab.as_json()
    report.panels.update({title: Panel(curves[title], *AXES[title]) for title in AXES})
    return report


if __name__ == "__main__":
    arguments = parser(__doc__, tuple(PROBLEMS))
    run(
        add_sizes(arguments, time_limit=40.0, rows=[1000], sentences=[100], trees=[800]),
        measure,
    )
