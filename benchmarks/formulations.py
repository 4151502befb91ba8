"""One-versus-rest takes as long as the direct formulations, and ends lower.

Figure 5 of Keerthi et al. (2008): test accuracy against training time of Crammer-Singer,
Weston-Watkins and one-versus-rest with C = 1 on MNIST and Covertype, without intercept, all by
`SequentialDual` on one thread. Each point is a fit of its own that is stopped after so many
iterations (of each class, for one-versus-rest), each with 1.6 times the iterations of the one
before, until one reaches a certified relative gap of 1e-3. Seconds are processor time of whole
fits, checks and certificate included.
"""

import argparse
import math
import warnings
from functools import partial
from typing import Any

from sklearn.exceptions import ConvergenceWarning

import maxmargin as mm
from benchmarks.common import Data, parser, run, say, subsample, timed
from benchmarks.learning_curves import Tables, tables
from benchmarks.reporting import Bars, Panel, Quote, Report, Row

TOLERANCE = 1e-3
NEAR = 0.5
"""Points of test accuracy below the last that count as there."""

SIMILAR = 3.0
"""Times that are called nearly the same differ by less than this factor."""

MORE = 1.6
"""Times as many iterations has a fit as the one before it."""

CRAMMER_SINGER, WESTON_WATKINS, REST = "crammer-singer", "weston-watkins", "one-vs-rest"
FORMULATIONS = (CRAMMER_SINGER, WESTON_WATKINS, REST)
Curve = tuple[list[float], list[float]]
"""Seconds, and per cent right."""


def fitted(data: Data, formulation: str, rounds: int) -> Any:
    """A fit of so many iterations at most."""
    model = mm.LinearClassifier(
        formulation=formulation, fit_intercept=False, tol=TOLERANCE, max_iter=rounds
    )
    return model.fit(data.X, data.y)


def curve(both: Tables, formulation: str, limit: float) -> Curve:
    """Fits of more and more iterations, until one converges or takes too long."""
    seconds: list[float] = []
    accuracies: list[float] = []
    rounds = 1
    while True:
        done = timed(partial(fitted, both.train, formulation, rounds))
        seconds.append(done.cpu_seconds)
        accuracies.append(100 * float(done.answer.score(both.test.X, both.test.y)))
        if done.answer.status_ == "converged" or seconds[-1] > limit:
            return seconds, accuracies
        rounds = math.ceil(MORE * rounds)


def arrival(curve: Curve) -> float:
    """When the accuracy was first near its last."""
    return next(s for s, found in zip(*curve, strict=True) if found >= curve[1][-1] - NEAR)


def measure_data(name: str, options: argparse.Namespace, report: Report) -> None:
    """All formulations on one data set."""
    both = tables(name, options.quick)
    curves: dict[str, Curve] = {}
    for formulation in FORMULATIONS:
        fitted(subsample(both.train, 100), formulation, 3)  # loads what is compiled
        curves[formulation] = curve(both, formulation, options.time_limit)
    title = both.train.name
    last = {who: curve[1][-1] for who, curve in curves.items()}
    times = {who: arrival(curve) for who, curve in curves.items()}
    say(f"{title}: {last}, {times}")
    for formulation in (CRAMMER_SINGER, WESTON_WATKINS):
        report.rows.append(
            Row(
                f"{title}: {formulation}, test accuracy at the end",
                f"> {REST}'s",
                f"{last[formulation]:.2f} %",
                f"{last[REST]:.2f} %",
                met=last[formulation] > last[REST],
            )
        )
    slowest, fastest = max(times.values()), min(times.values())
    texts = ", ".join(f"{who} {seconds:.3g} s" for who, seconds in times.items())
    report.rows.append(
        Row(
            f"{title}: time to within {NEAR} points of the last accuracy",
            f"< {SIMILAR:g} times the fastest (the paper: nearly the same)",
            f"{slowest / fastest:.1f} times: {texts}",
            met=slowest < SIMILAR * fastest,
        )
    )
    report.quotes.append(
        Quote(
            "Keerthi et al. (2008), figure 5",
            f"{title}: all three are steady after nearly the same time; one-versus-rest is lowest",
            f"steady after: {texts}; at the end "
            + ", ".join(f"{who} {found:.2f} %" for who, found in last.items()),
            slowest < SIMILAR * fastest and last[REST] == min(last.values()),
        )
    )
    report.panels[title] = Panel(curves, "processor seconds", "per cent", ("log", "linear"))
    report.panels[f"{title}: whole run"] = Bars(
        {who: {"": curve[0][-1]} for who, curve in curves.items()},
        f"processor seconds to a gap of {TOLERANCE:g}",
    )
    report.details[title] = {
        who: {
            "seconds": [round(s, 3) for s in curve[0]],
            "per cent": [round(a, 3) for a in curve[1]],
        }
        for who, curve in curves.items()
    }
    ends = {who: curve[0][-1] for who, curve in curves.items()}
    report.notes.append(
        f"{title}: to a certified gap of {TOLERANCE:g} the longest fits take "
        + ", ".join(f"{seconds:.3g} s ({who})" for who, seconds in ends.items())
        + "; each class of one-versus-rest to its own gap."
    )


def measure(options: argparse.Namespace) -> Report:
    """All data sets."""
    if options.quick:
        options.time_limit = 0.05
    report = Report()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for name in options.data:
            measure_data(name, options, report)
    return report


if __name__ == "__main__":
    arguments = parser(__doc__, ("mnist", "covtype"))
    arguments.add_argument(
        "--time-limit", type=float, default=20.0, help="seconds after which no longer fit is made"
    )
    run(arguments, measure)
