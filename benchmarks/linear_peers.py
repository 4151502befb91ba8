"""Linear peers in the open: LIBLINEAR, LinearSVC, SGDClassifier, Vowpal Wabbit.

The same rows, features, C = 1 on the sum and no intercept for everyone, on a9a (two classes), 20
Newsgroups and letter (all training rows), 5,000 rows of MNIST and 20,000 of Covertype (`--rows 0`
takes all), one thread. Who minimises the same objective races to within 1e-3 of its optimum,
evaluated by numpy from the weights: Crammer-Singer for us, LIBLINEAR (`-s 4`) and LinearSVC
(`multi_class="crammer_singer"`); one hinge against the rest for us, LIBLINEAR (`-s 3`), LinearSVC
(`loss="hinge"`) and SGDClassifier, whose knob is its number of passes, with its steps as they
come (on a9a also averaged). Each gets the loosest setting with which it arrives.

Vowpal Wabbit has no objective in common with the others: `--oaa` with the hinge and `--csoaa` are
shown with the number of passes, of 1, 5 and 20, that did best on the test rows, and what that
took. Its features are in its cache file beforehand, as LIBLINEAR's are converted beforehand;
scikit-learn converts inside the clock.

Contenders train in turns in one process; minima are compared and the spread is shown. Peak memory
is that of a fresh process that loads the rows from disk and trains once.
"""

import argparse
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Data, clocks, load, run, say, span, subsample
from benchmarks.contenders import (
    AVERAGED,
    COSTS,
    LIBLINEAR,
    LINEAR_SVC,
    MAKERS,
    SGD,
    WABBIT,
    missing,
)
from benchmarks.memory import peaks_of, store
from benchmarks.race import (
    BINARY,
    CRAMMER_SINGER,
    ONE,
    ONE_VERSUS_REST,
    Task,
    distance_panels,
    limit_notes,
    measured,
    race,
    race_parser,
    ratio_row,
    reached,
    take_turns,
)
from benchmarks.reporting import Bars, Report, Row

ROWS = {"a9a": 0, "letter": 0, "20news": 0, "mnist": 5_000, "covtype": 20_000}
"""Training rows of each data set; 0 is all."""

SAME_HINGE = (ONE, LIBLINEAR, LINEAR_SVC, SGD, AVERAGED)
ENTRIES = {
    BINARY: (SAME_HINGE, (WABBIT,)),
    CRAMMER_SINGER: ((ONE, LIBLINEAR, LINEAR_SVC), ()),
    ONE_VERSUS_REST: (SAME_HINGE[:4], (WABBIT, COSTS)),
}
"""Who shares an objective, and who is only scored."""

PASSES = (1, 5, 20)
WEIGHED = {BINARY: (*SAME_HINGE[:4], WABBIT), CRAMMER_SINGER: SAME_HINGE[:3], ONE_VERSUS_REST: ()}
"""Whose memory is measured."""

QUICK = ("a9a", "covtype")
QUICK_PEAK = LIBLINEAR, BINARY
"""What a quick run takes, and whose memory it measures."""


def split(name: str, options: argparse.Namespace) -> tuple[Data, Data]:
    """Training rows, as many as asked for, and test rows."""
    if options.quick:
        data = load(name, quick=True)
        test = np.arange(len(data.y)) % 3 == 0
        return data.some(~test), data.some(test)
    from benchmarks.datasets import load as load_real

    real = load_real(name)
    n = ROWS[name] if options.rows is None else options.rows
    train = Data(name, real.X_train, real.y_train)
    return subsample(train, n or len(real.y_train)), Data(name, real.X_test, real.y_test)


def contests(name: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The races on one data set, with the scores of those who cannot race, and memory."""
    train, test = split(name, options)
    two = int(train.y.max()) == 1
    for formulation in (BINARY,) if two else (CRAMMER_SINGER, ONE_VERSUS_REST):
        racing, scored = ENTRIES[formulation]
        task = Task(train, formulation)
        found = race(task, options, racing, test)
        found["n"] = len(train.y)
        found["scored"] = {
            who: {"missing": missing(who)} if missing(who) else score(who, task, test, options)
            for who in scored
        }
        settings = {
            who: each["search"][-1]["tolerance"] for who, each in found["finishes"].items()
        } | {who: each["passes"] for who, each in found["scored"].items() if "passes" in each}
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "rows.npz")
            store(file, train)
            found["peaks"] = {
                who: peaks_of(who, formulation.name, settings[who], file)
                for who in WEIGHED[formulation]
                if who in settings and not (options.quick and (who, formulation) != QUICK_PEAK)
            }
        yield found


def score(who: str, task: Task, test: Data, options: argparse.Namespace) -> dict[str, Any]:
    """The number of passes that does best on the test rows, and what it takes."""
    contender = MAKERS[who](task)
    tried = PASSES[:2] if options.quick else PASSES
    scores = {passes: task.accuracy(contender.train(passes), test) for passes in tried}
    passes = max(scores, key=scores.__getitem__)
    runs = take_turns({who: partial(contender.train, passes)}, options.repeats, 20.0)[who]
    say(f"  {who}: {scores}, {span(run.seconds for run in runs)}")
    return {"passes": passes, "test": scores[passes], **clocks(runs)}


def measure(options: argparse.Namespace) -> Report:
    tasks = {name: partial(contests, name, options) for name in (QUICK if options.quick else ROWS)}
    races = measured("linear_peers", options, tasks)
    notes, panels = limit_notes(races), distance_panels(races)
    report = Report(panels=panels, notes=notes, details={"races": races})
    for found in races:
        report.rows += rows(found)
    heights = {
        f"{found['data']}, {found['formulation']}": {
            name: 100 * each["test"]
            for name, each in (found["finishes"] | found["scored"]).items()
            if each.get("test") is not None
        }
        for found in races
    }
    report.panels["Test accuracy"] = Bars(heights, "percent right")
    report.panels["Peak memory"] = Bars(
        {
            found["data"]: {who: peaks["trained"] for who, peaks in found["peaks"].items()}
            for found in races
            if found["peaks"]
        },
        "MB",
    )
    return report


def rows(found: dict[str, Any]) -> list[Row]:
    """Time to the target beside each peer, then test accuracy, then memory."""
    title = f"{found['data']} ({found['n']:,} rows), {found['formulation']}"
    finishes, scored = found["finishes"], found["scored"]
    result = [
        ratio_row(f"{title}: time", 1.0, found, ONE, name)
        for name in (*finishes, *found["missing"])
        if name != ONE
    ]
    ours = finishes[ONE]["test"]
    others = {name: each["test"] for name, each in finishes.items() if name != ONE}
    text = ", ".join(
        f"{name} {value:.2%}{'' if reached(finishes[name]) else ' (did not arrive)'}"
        for name, value in others.items()
    )
    result.append(Row(f"{title}: test accuracy", "", f"{ours:.2%}", text))
    for name, each in scored.items():
        if "test" in each:
            peer = f"{each['test']:.2%} in {span(each['seconds'])}, {each['passes']} passes"
            reach = f"{ours:.2%} in {span(finishes[ONE]['seconds'])}"
            result.append(Row(f"{title}: beside {name}", "", reach, peer))
        else:
            result.append(Row(f"{title}: beside {name}", "", f"{ours:.2%}", each["missing"]))
    peaks = found["peaks"]
    if ONE in peaks:
        peers = {name: each["trained"] for name, each in peaks.items() if name != ONE}
        text = ", ".join(f"{name} {value:.0f} MB" for name, value in peers.items())
        mine = peaks[ONE]["trained"]
        what = f"{title}: peak memory"
        result.append(Row(what, "<= each", f"{mine:.0f} MB", text, mine <= min(peers.values())))
    return result


def arguments() -> argparse.ArgumentParser:
    result = race_parser(__doc__, list(ROWS), repeats=3)
    result.set_defaults(search_limit=20.0, repeat_limit=10.0, reference_limit=60.0)
    result.add_argument("--rows", type=int, help="training rows of each data set; 0 for all")
    return result


if __name__ == "__main__":
    run(arguments(), measure)
