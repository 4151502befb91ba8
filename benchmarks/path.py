"""A whole path of C on MNIST in less than half the time of separate fits."""

import argparse
from functools import partial
from typing import Any

import maxmargin as mm
from benchmarks.common import (
    CS,
    Data,
    best,
    clocks,
    interleaved,
    load,
    parser,
    run,
    spread,
    subsample,
)
from benchmarks.reporting import Report, Row

BAR = 0.5


def path(data: Data) -> list[Any]:
    """All fits, each started from the one before."""
    model = mm.LinearClassifier(fit_intercept=False)
    return list(model.path(data.X, data.y, CS))


def separate(data: Data) -> list[Any]:
    """All fits, each from nothing."""
    models = [mm.LinearClassifier(C=C, fit_intercept=False) for C in CS]
    return [model.fit(data.X, data.y) for model in models]


def measure(options: argparse.Namespace) -> Report:
    report = Report()
    for name in options.data:
        data = load(name, options.quick)
        path(subsample(data, 100))
        works = {"path": partial(path, data), "separate": partial(separate, data)}
        runs = interleaved(works, options.repeats)
        share = best(runs["path"]) / best(runs["separate"])
        report.rows.append(
            Row(
                f"{data.name}, {len(CS)} values of C, tol 0.001",
                f"< {BAR:g} of the time",
                f"{share:.2f} ({spread(runs['path'])})",
                f"separate fits {spread(runs['separate'])}",
                met=share < BAR,
            )
        )
        report.details[data.name] = {
            kind: {
                **clocks(timings),
                "fits": [
                    {
                        "C": model.C,
                        "rounds": model.n_iter_,
                        "seconds": model.history_[-1].seconds,
                        "relative_gap": model.certificate_.relative_gap,
                    }
                    for model in timings[-1].answer
                ],
            }
            for kind, timings in runs.items()
        }
    return report


if __name__ == "__main__":
    run(parser(__doc__, ("mnist",), repeats=3), measure)
