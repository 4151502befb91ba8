"""A whole path of C in less than half the time of separate fits.

Keerthi et al. (2008), section 2.3: the answer for one C is a good start for the next.
Crammer-Singer on MNIST for the seven values of C of the paper's table 4.2, each to a certified
relative gap of 1e-3: `LinearClassifier.path`, which starts each fit from the one before, against
fits from nothing, taking turns, on one thread. The paper gives no figure for what it saves.
Processor time of whole calls, the least of the repeats.
"""

import argparse
from functools import partial
from typing import Any

import maxmargin as mm
from benchmarks.common import (
    CS,
    Data,
    clocks,
    interleaved,
    load,
    parser,
    run,
    span,
    subsample,
)
from benchmarks.reporting import Panel, Quote, Report, Row

BAR = 0.5


def path(data: Data) -> list[Any]:
    """All fits, each started from the one before."""
    model = mm.LinearClassifier(fit_intercept=False)
    return list(model.path(data.X, data.y, CS))


def separate(data: Data) -> list[Any]:
    """All fits, each from nothing."""
    models = [mm.LinearClassifier(C=C, fit_intercept=False) for C in CS]
    return [model.fit(data.X, data.y) for model in models]


def fits(models: list[Any]) -> dict[str, list[float]]:
    """What each fit took."""
    return {
        "C": [model.C for model in models],
        "rounds": [model.n_iter_ for model in models],
        "seconds": [model.history_[-1].seconds for model in models],
        "relative gap": [model.certificate_.relative_gap for model in models],
    }


def measure(options: argparse.Namespace) -> Report:
    """All data sets."""
    report = Report()
    for name in options.data:
        data = load(name, options.quick)
        path(subsample(data, 100))
        works = {"path": partial(path, data), "separate": partial(separate, data)}
        runs = interleaved(works, options.repeats)
        seconds = {kind: [one.cpu_seconds for one in timings] for kind, timings in runs.items()}
        share = min(seconds["path"]) / min(seconds["separate"])
        report.rows.append(
            Row(
                f"{data.name}, {len(CS)} values of C, tol 0.001",
                f"< {BAR:g} of the time",
                f"{share:.2f} ({span(seconds['path'])})",
                f"separate fits {span(seconds['separate'])}",
                met=share < BAR,
            )
        )
        found = {kind: fits(timings[-1].answer) for kind, timings in runs.items()}
        report.quotes.append(
            Quote(
                "Keerthi et al. (2008), section 2.3",
                "starting from the answer for another C improves efficiency",
                f"{data.name}: {1 / share:.1f} times as fast over {len(CS)} values of C",
                share < 1.0,
            )
        )
        report.panels[f"{data.name}, each fit"] = Panel(
            {kind: (each["C"], each["seconds"]) for kind, each in found.items()}, "C", "seconds"
        )
        report.details[data.name] = {
            kind: clocks(runs[kind]) | {"fits": each} for kind, each in found.items()
        }
    return report


if __name__ == "__main__":
    run(parser(__doc__, ("mnist",), repeats=2), measure)
