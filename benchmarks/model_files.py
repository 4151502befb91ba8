"""Model files beside pickle's: size, and time to write and load.

A tagger of words (CoNLL-2000 chunking, usual templates, C = 0.1, a gap of 0.1) and a classifier (20
Newsgroups, a gap of 0.01), each kept by `mm.save` and by pickle, protocol 5. Loading is measured
up to the first prediction, in turns, from files that the system has in memory; the fastest of
several counts. A model is read whole and compared with its checksums, or mapped (``mmap=True``):
then it reads only what that prediction needs. Nothing was asked for.
"""

import argparse
import pickle
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import maxmargin as mm
from benchmarks.common import best, interleaved, load, parser, run, say
from benchmarks.datasets import load_corpus
from benchmarks.reporting import Bars, Report, Row


class Case(NamedTuple):
    """A fitted estimator, and one example to predict for."""

    name: str
    model: Any
    example: Any


def tagger(quick: bool) -> Case:
    templates = mm.data.Templates.default(2)
    if quick:
        corpus: Any = [[(word, word[-1], word[0]) for word in ("the", "dog", "barks")] * 4]
    else:
        corpus = load_corpus("conll2000").train
    X = templates.transform([[(word, tag) for word, tag, _ in one] for one in corpus])
    labels = [[chunk for _, _, chunk in one] for one in corpus]
    model = mm.SequenceTagger(C=0.1, tol=0.1, n_jobs=-1).fit(X, labels)
    return Case("chunking, with vocabulary", model, X[:1])


def classifier(quick: bool) -> Case:
    data = load("20news", quick)
    model = mm.LinearClassifier(tol=0.01, n_jobs=-1).fit(data.X, data.y)
    return Case("20 Newsgroups", model, data.X[:1])


def measure(options: argparse.Namespace) -> Report:
    report = Report()
    for make in (tagger, classifier):
        say(make.__name__)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case = make(options.quick)
        with tempfile.TemporaryDirectory() as folder:
            compare(case, Path(folder), options.repeats, report)
    for name, found in report.details.items():
        seconds, (ours, theirs) = found["seconds"], found["bytes"]
        read, mapped = (seconds[way] / seconds["unpickle"] for way in ("load", "map"))
        report.notes.append(
            f"{name}: read, the model answers in {read:.2f} of the time that unpickling takes, "
            f"mapped in {mapped:.2f}, from a file {ours / theirs:.2f} times as large. Loading it "
            f"runs no code, which unpickling does."
        )
    report.panels["Seconds"] = Bars(
        {name: found["seconds"] for name, found in report.details.items()}, "seconds", "log"
    )
    report.panels["Megabytes"] = Bars(
        {
            name: dict(
                zip(("ours", "pickle"), (size / 1e6 for size in found["bytes"]), strict=True)
            )
            for name, found in report.details.items()
        },
        "megabytes",
    )
    return report


def compare(case: Case, folder: Path, repeats: int, report: Report) -> None:
    """Both ways of keeping a model, by size and by time."""
    ours, theirs = folder / "model.mm", folder / "model.pickle"
    expected = case.model.predict(case.example)
    works: dict[str, Callable[[], Any]] = {
        "save": lambda: mm.save(case.model, ours),
        "dump": lambda: theirs.write_bytes(pickle.dumps(case.model, protocol=5)),
        "load": lambda: mm.load(ours).predict(case.example),
        "map": lambda: mm.load(ours, mmap=True).predict(case.example),
        "unpickle": lambda: pickle.loads(theirs.read_bytes()).predict(case.example),
    }
    runs = interleaved(works, repeats)
    for name in ("load", "map", "unpickle"):
        np.testing.assert_array_equal(runs[name][0].answer, expected)
    sizes = ours.stat().st_size, theirs.stat().st_size
    seconds = {name: best(timings) for name, timings in runs.items()}
    report.rows += [
        Row(f"{case.name}: megabytes", "", f"{sizes[0] / 1e6:.2f}", f"{sizes[1] / 1e6:.2f}"),
        Row(
            f"{case.name}: load and predict once",
            "",
            f"{1e3 * seconds['load']:.1f} ms",
            f"{1e3 * seconds['unpickle']:.1f} ms",
        ),
        Row(
            f"{case.name}: map and predict once",
            "",
            f"{1e3 * seconds['map']:.1f} ms",
            f"{1e3 * seconds['unpickle']:.1f} ms",
        ),
        Row(
            f"{case.name}: write",
            "",
            f"{1e3 * seconds['save']:.1f} ms",
            f"{1e3 * seconds['dump']:.1f} ms",
        ),
    ]
    report.details[case.name] = {"bytes": sizes, "seconds": seconds}


if __name__ == "__main__":
    run(parser(__doc__, repeats=7), measure)
