"""Images as grids: what edges are worth, with a certificate on loopy graphs.

Weizmann horses (64 x 64 pixels, two labels) and CamVid (45 x 60, 11 labels and void), with simple
features: colours, means around, place; for edges, differences of colour. Both are trained with the
same features and C, with edges and without. Asked for: better labels with edges than without, and a
gap of 1e-2. C = 1e-3, two threads, whole fits.
"""

import argparse
from functools import partial
from typing import Any

import numpy as np

from benchmarks.common import best, clocks, interleaved, parser, run, say, spread
from benchmarks.grid_data import (
    VOID,
    Split,
    camvid,
    fit,
    horses,
    pretend_images,
    without_edges,
)
from benchmarks.reporting import Bars, Report, Row

TOLERANCE = 1e-2
SETTINGS: dict[str, Any] = {"C": 1e-3, "tol": TOLERANCE, "void": VOID}

LOADERS = {"horses": (horses, 2), "camvid": (camvid, 5)}
"""Each with the labels that `--quick` pretends there are."""


def measure(options: argparse.Namespace) -> Report:
    report = Report()
    for name in options.data:
        load, n_labels = LOADERS[name]
        split = pretend_images(n_labels) if options.quick else load()
        rows, report.details[name] = measure_set(name, split, options)
        report.rows += rows
    report.notes.append(
        "Edges help by "
        + "; ".join(
            f"{found['edges']['accuracy'] - found['nodes alone']['accuracy']:.4f} on {name}, for "
            f"{min(found['edges']['seconds']) / min(found['nodes alone']['seconds']):.1f} times "
            "the time"
            for name, found in report.details.items()
        )
        + ". The features are simple on purpose: what counts here is the difference."
    )
    for what, unit in (("accuracy", "accuracy of pixels"), ("seconds", "seconds")):
        report.panels[unit] = Bars(
            {
                name: {kind: float(np.min(one[what])) for kind, one in found.items()}
                for name, found in report.details.items()
            },
            unit,
            "log" if what == "seconds" else "linear",
        )
    return report


def measure_set(
    name: str, split: Split, options: argparse.Namespace
) -> tuple[list[Row], dict[str, Any]]:
    alone = split.mapped(without_edges)
    works, found = {"edges": split, "nodes alone": alone}, {}
    details: dict[str, Any] = {}
    for what, data in works.items():
        fit(data.train.first(2), max_iter=3, **SETTINGS)  # compiles, or loads what is compiled
        work = partial(
            fit, data.train, time_limit=options.time_limit, n_jobs=options.n_jobs, **SETTINGS
        )
        runs = interleaved({what: work}, 1)[what]
        model = runs[0].answer
        accuracy = model.score(*data.test)
        say(f"{name}, {what}: {accuracy:.4f}, {model.certificate_}, {best(runs):.3g} s")
        found[what] = model, accuracy, runs
        details[what] = clocks(runs) | {
            "primal": model.certificate_.primal,
            "dual": model.certificate_.dual,
            "status": model.status_,
            "accuracy": accuracy,
            "oracle_calls": model.history_[-1].oracle_calls,
        }
    model, accuracy, runs = found["edges"]
    _, accuracy_alone, runs_alone = found["nodes alone"]
    gap = model.certificate_.relative_gap
    return [
        Row(
            f"{name}, accuracy of pixels",
            "> without edges",
            f"{accuracy:.4f}",
            f"{accuracy_alone:.4f} without edges",
            met=accuracy > accuracy_alone,
        ),
        Row(
            f"{name}, relative gap",
            f"<= {TOLERANCE:g}",
            f"{gap:.2g} ({model.status_})",
            met=gap <= TOLERANCE,
        ),
        Row(f"{name}, time", "", spread(runs), f"{spread(runs_alone)} without edges"),
    ], details


if __name__ == "__main__":
    arguments = parser(__doc__, tuple(LOADERS))
    arguments.add_argument("--time-limit", type=float, default=700.0, help="seconds for each fit")
    arguments.add_argument("--n-jobs", type=int, default=2, help="threads")
    run(arguments, measure)
