"""Joachims' own programs, at whatever path a user has them: faster to the same objective.

`svm_multiclass_learn`, `svm_hmm_learn` and `svm_perf_learn` cannot be installed from PyPI. Give
their paths (`--svm-multiclass`, `--svm-hmm`, `--svm-perf`, or `SVM_MULTICLASS`, `SVM_HMM` and
`SVM_PERF` in the environment), and they are measured beside ours: on letter (Crammer-Singer, C = 1
on the sum), OCR words of fold 0 as chains (C = 0.1, Hamming count, pixels and transitions), and
a9a (two classes, the hinge, C = 1).

Data are written in their format, each program is a process of its own, and its model is read back.
For the two linear ones the objective is evaluated by numpy from the weights; the race is to within
1e-3 of its optimum. svm_hmm is run at `-e 0.1` and its objective is the one it prints, with ours
to a certified gap of 1e-3. Peak memory is that of the process. Times of programs include reading
the file; theirs as they print them leave it out, and are in the details.
"""

import argparse
import re
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Data, clocks, parser, run, say, span, timed
from benchmarks.contenders import MAKERS, ONE, Contender
from benchmarks.linear_peers import split
from benchmarks.race import TARGET, take_turns
from benchmarks.reporting import Bars, Report, Row
from benchmarks.sequences import error, fit, letters
from benchmarks.svmstruct import (
    HMM,
    LOSS_OF_A_MISTAKE,
    MULTICLASS,
    PERF,
    PROGRAMS,
    Learned,
    Program,
    absent,
    add_paths,
    multiclass_weights,
    perf_weights,
    write_rows,
    write_sequences,
)
from benchmarks.tasks import BINARY, CRAMMER_SINGER, Task, optimum

TOLERANCES = {MULTICLASS: (10.0, 3.0, 1.0, 0.5, 0.1, 0.05, 0.01), PERF: (1.0, 0.3, 0.1, 0.03, 0.01)}
TASKS = {MULTICLASS: ("letter", CRAMMER_SINGER), PERF: ("a9a", BINARY)}
WORDS_C = 0.1


def linear(program: Program, task: Task, folder: Path) -> Contender:
    """svm_multiclass or svm_perf as a contender, its file written beforehand."""
    data, n = folder / f"{program.name}.txt", len(task.data.y)
    if program.name == MULTICLASS:
        write_rows(data, task.data.X, task.data.y + 1)
        options: dict[str, Any] = {"-c": task.C * n * LOSS_OF_A_MISTAKE}
        weights = partial(
            multiclass_weights, n_features=task.data.X.shape[1], n_classes=task.n_classes
        )
    else:
        write_rows(data, task.data.X, 2 * task.data.y - 1)
        # Its error rate is in percent of all examples, and it adds a constant feature unless told.
        options = {"-c": task.C * n / 100.0, "-l": 2, "--b": 0}
        weights = partial(perf_weights, n_features=task.data.X.shape[1])
    model = folder / f"{program.name}.model"
    return Contender(
        program.name,
        "-e",
        TOLERANCES[program.name],
        train=lambda e: program.learn(options | {"-e": e}, data, model),
        weights=lambda learned: weights(learned.model),
    )


def runtime(learned: Learned) -> float | None:
    """Seconds that the program says it took."""
    found = re.search(r"Runtime in cpu-seconds: ([.0-9]+)", learned.output)
    return float(found.group(1)) if found else None


def race_linear(
    program: Program, options: argparse.Namespace, folder: Path
) -> tuple[list[Row], dict[str, Any]]:
    """Time to the target of ours and of a program, test accuracy and memory."""
    name, formulation = TASKS[program.name]
    train, test = split(name, options)
    task = Task(train, formulation)
    best = optimum(task, options)
    found: dict[str, Any] = {"optimum": best.primal}
    works = {}
    for contender in (MAKERS[ONE](task), linear(program, task, folder)):
        for tolerance in contender.tolerances:
            one = timed(partial(contender.train, tolerance))
            excess = best.excess(task.value(contender.weights(one.answer)))
            say(f"  {contender.name}, {contender.knob} {tolerance:g}: {excess:.2e}")
            if excess <= TARGET or one.seconds > options.limit:
                break
        weights = contender.weights(one.answer)
        found[contender.name] = {
            "setting": f"{contender.knob} {tolerance:g}",
            "excess": excess,
            "test": task.accuracy(weights, test),
        }
        if isinstance(one.answer, Learned):
            found[contender.name] |= {
                "megabytes": one.answer.megabytes,
                "printed seconds": runtime(one.answer),
            }
        works[contender.name] = partial(contender.train, tolerance)
    for who, runs in take_turns(works, options.repeats, options.limit).items():
        found[who] |= clocks(runs)
    return linear_rows(program.name, task.data, found), found


def linear_rows(name: str, data: Data, found: dict[str, Any]) -> list[Row]:
    """Time, accuracy and memory beside a program's."""
    ours, theirs = found[ONE], found[name]
    ratio = min(theirs["seconds"]) / min(ours["seconds"])
    arrived = theirs["excess"] <= TARGET
    text = f"{name} {span(theirs['seconds'])}, {theirs['setting']}"
    text += "" if arrived else f" (still {theirs['excess']:.1e} above)"
    reached = f"{'' if arrived else '>= '}{ratio:.2f}x ({span(ours['seconds'])})"
    met = ours["excess"] <= TARGET and ratio >= 1.0
    title = f"{data.name}, beside {name}"
    return [
        Row(f"{title}: time to 1e-3", ">= 1x", reached, text, met=met),
        Row(f"{title}: test accuracy", "", f"{ours['test']:.2%}", f"{theirs['test']:.2%}"),
        Row(f"{title}: its peak memory", "", "-", f"{theirs['megabytes']:.0f} MB"),
    ]


def race_words(
    program: Program, options: argparse.Namespace, folder: Path
) -> tuple[list[Row], dict[str, Any]]:
    """OCR words of fold 0: ours to a gap of 1e-3, svm_hmm to -e 0.1."""
    train, test = letters("ocr", options.quick)
    file, test_file, model = folder / "words.txt", folder / "test.txt", folder / "words.model"
    write_sequences(file, train.X, train.y + 1, train.lengths)
    write_sequences(test_file, test.X, test.y + 1, test.lengths)
    flags = {"-c": WORDS_C * train.n, "-e": 0.1}
    settings: dict[str, Any] = {"C": WORDS_C, "fit_intercept": False, "fit_ends": False}
    fit(train.first(20), **settings)  # compiles, or loads what is compiled
    works = {
        ONE: partial(fit, train, tol=TARGET, **settings),
        program.name: partial(program.learn, flags, file, model),
    }
    runs = take_turns(works, options.repeats, options.limit)
    ours, theirs = runs[ONE][0].answer, runs[program.name][-1].answer
    answers = program.classify(test_file, model, folder / "answers.txt")
    wrong = None if answers is None else float(np.mean(answers != test.y + 1))
    mine = error(ours, test)
    found = {
        ONE: clocks(runs[ONE]) | {"objective": ours.certificate_.primal, "error": mine},
        program.name: clocks(runs[program.name])
        | {
            "objective": theirs.objective,
            "error": wrong,
            "megabytes": theirs.megabytes,
            "printed seconds": runtime(theirs),
        },
    }
    least = min(run.seconds for run in runs[program.name])
    ratio = least / min(run.seconds for run in runs[ONE])
    title = f"words, beside {program.name}"
    text = f"{program.name} {span(run.seconds for run in runs[program.name])}, -e 0.1"
    reached = f"{ratio:.2f}x ({span(run.seconds for run in runs[ONE])}, gap 1e-3)"
    stated = "nothing printed" if theirs.objective is None else f"{theirs.objective:.2f}, printed"
    value = ours.certificate_.primal
    met = None if theirs.objective is None else bool(value <= theirs.objective)
    rows = [
        Row(f"{title}: time", ">= 1x", reached, text, met=ratio >= 1.0),
        Row(f"{title}: objective", "<= its", f"{value:.2f}", stated, met=met),
        Row(
            f"{title}: letter error",
            "",
            f"{mine:.4f}",
            "no svm_hmm_classify beside it" if wrong is None else f"{wrong:.4f}",
        ),
        Row(f"{title}: its peak memory", "", "-", f"{theirs.megabytes:.0f} MB"),
    ]
    return rows, found


def measure(options: argparse.Namespace) -> Report:
    report = Report()
    heights: dict[str, dict[str, float]] = {}
    for name in PROGRAMS:
        path = getattr(options, name)
        if path is None:
            report.rows.append(Row(name, "", "-", absent(name)))
            continue
        race = race_words if name == HMM else race_linear
        with tempfile.TemporaryDirectory() as folder:
            rows, found = race(Program.at(name, path), options, Path(folder))
        report.rows += rows
        report.details[name] = found
        heights[name] = {who: min(found[who]["seconds"]) for who in (ONE, name)}
    if heights:
        report.panels["Time"] = Bars(heights, "seconds", "log")
    else:
        report.notes.append("No program was given, so there is nothing to compare and no plot.")
    return report


def arguments() -> argparse.ArgumentParser:
    result = parser(__doc__, repeats=3)
    add_paths(result)
    result.add_argument(
        "--limit", type=float, default=60.0, help="seconds after which nothing tighter is tried"
    )
    result.add_argument("--reference-limit", type=float, default=60.0, metavar="SECONDS")
    return result


if __name__ == "__main__":
    run(arguments(), measure)
