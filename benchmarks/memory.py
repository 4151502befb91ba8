"""Peak memory beside LIBLINEAR's, crfsuite's, and that of the data themselves.

Every number is the peak resident size of a fresh process: after the imports alone, after it has
loaded the CSR matrix from disk, and after it has trained. Ours trains to `tol=1e-3`; LIBLINEAR
(`-s 4`) and scikit-learn's LinearSVC (`multi_class="crammer_singer"`) to a tolerance of 1, because
their memory does not depend on it. LIBLINEAR is measured twice: as it comes, when its Python
module imports numba to convert the features, and with numba hidden from it.

A small fit, digits, stands beside a process that only imports scikit-learn and numba, and beside
LinearSVC. Taggers: CoNLL-2000 chunking from feature dictionaries, to the gap at which ours reaches
crfsuite's F1, beside crfsuite with 20 iterations; and the Brown corpus from a matrix, to a gap of
1e-2, beside twice the matrix and the weights.
"""

import argparse
import inspect
import json
import resource
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.common import Data, child, load, parser, run, say, subsample
from benchmarks.contenders import LIBLINEAR, LINEAR_SVC, MAKERS, ONE, TWO, missing
from benchmarks.reporting import Bars, Report, Row
from benchmarks.tasks import FORMULATIONS, Task

MEGABYTE = 1e6
BARE = "LIBLINEAR without numba"
SETTINGS = {ONE: 1e-3, TWO: 1e-3, LIBLINEAR: 1.0, BARE: 1.0, LINEAR_SVC: 1.0}
TAGGERS = {"ours": 0.1, "crfsuite lbfgs": 20, "crfsuite ap": 20}
"""Tolerance of ours, iterations of crfsuite: its memory does not grow with them."""

SMALL_FIT = 1.15
"""Peak of a small fit, in those of a process that only imports scikit-learn and numba."""

MODULES = {
    "ours": "maxmargin.structures.multiclass.estimator",
    "LIBLINEAR": "benchmarks.peer",
    "LinearSVC": "sklearn.svm",
    "SGDClassifier": "sklearn.linear_model",
    "Vowpal": "benchmarks.vowpal",
}
"""What a contender whose name starts so imports."""


def peak() -> float:
    """Peak resident size of this process in MB.

    From /proc where there is one: what getrusage tells may be the peak of the parent process.
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        kilobytes = next(line.split()[1] for line in lines if line.startswith("VmHWM:"))
        return int(kilobytes) * 1024 / MEGABYTE
    except (OSError, StopIteration):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MEGABYTE


def work(who: str, formulation: str, setting: str, file: str) -> dict[str, float]:
    """Inside the fresh process: import, load, train."""
    if who == BARE:
        sys.modules["numba"] = None  # type: ignore[assignment]
    import_module(next(name for start, name in MODULES.items() if who.startswith(start)))
    peaks = {"imported": peak()}
    with np.load(file) as stored:
        parts = stored["data"], stored["indices"], stored["indptr"]
        X, y = sp.csr_matrix(parts, shape=tuple(stored["shape"])), stored["y"]
    peaks["loaded"] = peak()
    task = Task(Data("stored", X, y), FORMULATIONS[formulation])
    MAKERS[LIBLINEAR if who == BARE else who](task).train(float(setting))
    peaks["trained"] = peak()
    return peaks


def store(path: Path, data: Data) -> None:
    """Write examples where a fresh process will find them."""
    X = data.X
    np.savez(path, data=X.data, indices=X.indices, indptr=X.indptr, shape=X.shape, y=data.y)


def peaks_of(who: str, formulation: str, setting: float, file: Path) -> dict[str, float]:
    """Peaks of a fresh process that trains on stored examples, in MB."""
    call = ["-m", "benchmarks.memory", "--child", who, formulation, str(setting), str(file)]
    result: dict[str, float] = child(call)
    return result


def measure(options: argparse.Namespace) -> Report:
    report = linear(options)
    for more in (small(), chunking(options.quick), brown(options.quick)):
        report.rows += more.rows
        report.notes += more.notes
        report.details |= more.details
    return report


# A small fit


def imports() -> None:
    """Import what every fit of ours needs. Its source runs in a fresh process, as those below."""
    import numba  # noqa: F401
    import sklearn.base  # noqa: F401


def imports_without_pandas() -> None:
    import sys

    sys.modules["pandas"] = sys.modules["pyarrow"] = None  # type: ignore[assignment]
    import numba  # noqa: F401
    import sklearn.base  # noqa: F401


def our_digits() -> None:
    from sklearn.datasets import load_digits

    import maxmargin as mm

    X, y = load_digits(return_X_y=True)
    mm.LinearClassifier().fit(X / 16, y)


def their_digits() -> None:
    from sklearn.datasets import load_digits
    from sklearn.svm import LinearSVC

    X, y = load_digits(return_X_y=True)
    LinearSVC().fit(X / 16, y)


def peak_of(work: Callable[[], None]) -> float:
    """Peak of a fresh process that does nothing but the work, in MB."""
    source = [inspect.getsource(work), f"{work.__name__}()", "from benchmarks.memory import peak"]
    result: float = child(["-c", "\n".join([*source, "print(peak())"])])
    return result


def small() -> Report:
    """Digits, beside the imports alone, and LinearSVC."""
    peak_of(our_digits)  # so that compiling does not count
    works = imports, imports_without_pandas, our_digits, their_digits
    peaks = {work.__name__: peak_of(work) for work in works}
    bare, without_pandas, ours, theirs = peaks.values()
    reached = f"{ours:.0f} MB"
    rows = [
        Row(
            "digits, peak",
            f"<= {SMALL_FIT:g} x scikit-learn and numba imported",
            f"{reached}, {ours / bare:.2f} x",
            f"{bare:.0f} MB, both imported",
            ours <= SMALL_FIT * bare,
        ),
        Row("digits, peak", "", reached, f"{theirs:.0f} MB, LinearSVC"),
    ]
    note = (
        f"scikit-learn imports pandas and pyarrow where they are installed: here "
        f"{bare - without_pandas:.0f} of the {bare:.0f} MB of a process that imports scikit-learn "
        f"and numba and does nothing."
    )
    return Report(rows, details={"digits": peaks}, notes=[note])


# Taggers


def chunking(quick: bool) -> Report:
    """Feature dictionaries of CoNLL-2000, beside crfsuite."""
    from benchmarks.sequences import corpus  # not above: the peers' processes shall not import it
    from benchmarks.tagger_peers import missing as missing_tagger

    rows, peaks = [], {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "sentences.json")
        data = corpus("conll2000", quick)
        file.write_text(json.dumps([data.train, data.test]))
        for who, setting in TAGGERS.items():
            if not missing_tagger(who):
                say(f"chunking: {who}")
                call = ["-m", "benchmarks.chunking", "--child", who, str(setting), str(file)]
                peaks[who] = child(call)["peaks"]
    ours = peaks["ours"]
    reached = f"{ours['trained']:.0f} MB"
    for who in [*TAGGERS][1:]:
        theirs = peaks.get(who)
        text = f"{who} {missing_tagger(who)}" if theirs is None else _parts(theirs, who)
        met = None if theirs is None else ours["trained"] < theirs["trained"]
        rows.append(Row("chunking, peak", "< peer's", reached, text, met))
    rows.append(
        Row("chunking, above the imports", "", f"{ours['trained'] - ours['loaded']:.0f} MB")
    )
    note = (
        f"Of our peak in chunking, {ours['prepared']:.0f} MB are the dictionaries, as of peers, "
        f"and {ours['loaded'] - ours['prepared']:.0f} are scikit-learn, numba and compiled code."
    )
    return Report(rows, details={"chunking": peaks}, notes=[note])


def _parts(peaks: dict[str, float], who: str) -> str:
    return f"{peaks['trained']:.0f} MB, {who} ({peaks['prepared']:.0f} before training)"


def brown(quick: bool) -> Report:
    """The matrix of the Brown corpus, beside twice the data and the weights."""
    me = ["-m", "benchmarks.brown_tagging"]
    say("Brown corpus")
    with tempfile.TemporaryDirectory() as folder:
        child([*me, "--prepare", folder, str(10**6), str(int(quick))])
        found = child([*me, "--child", folder, *map(str, (0.1, 0.01, 900.0, 1))])
    peaks, data, weights = found["peaks"], found["data_bytes"], 8 * found["weights"]
    bar = 2.0 * (data + weights) / MEGABYTE
    parts = f"twice {data / MEGABYTE:.0f} MB data and {weights / MEGABYTE:.0f} MB weights"
    reached, above = peaks["trained"], peaks["trained"] - peaks["loaded"]
    rows = [
        Row("Brown, peak", f"<= {bar:.0f} MB", f"{reached:.0f} MB", parts, reached <= bar),
        Row("Brown, above the loaded data", "", f"{above:.0f} MB", "of it the weights, once"),
    ]
    return Report(rows, details={"brown": peaks})


# Crammer-Singer


def linear(options: argparse.Namespace) -> Report:
    """Classes, beside LIBLINEAR and LinearSVC."""
    found: dict[str, dict[str, Any]] = {}
    absent = missing(LIBLINEAR)
    workers = [ONE, TWO, *([] if absent else [LIBLINEAR, BARE]), LINEAR_SVC]
    with tempfile.TemporaryDirectory() as folder:
        for name in options.data[: 1 if options.quick else None]:
            data = load(name, options.quick)
            stored, few = Path(folder, f"{name}.npz"), Path(folder, "few.npz")
            store(stored, data)
            store(few, subsample(data, 100))
            for worker in (ONE, TWO):  # so that compiling does not count
                peaks_of(worker, "crammer-singer", SETTINGS[worker], few)
            mine: dict[str, Any] = {"few rows": peaks_of(ONE, "crammer-singer", 1e-3, few)}
            for worker in workers:
                say(f"{data.name}: {worker}")
                mine[worker] = peaks_of(worker, "crammer-singer", SETTINGS[worker], stored)
            stored.unlink()
            found[data.name] = mine
    return report_of(found, absent)


def report_of(found: dict[str, dict[str, Any]], absent: str) -> Report:
    """Rows, notes and plot of the peaks."""
    report = Report(details={"peaks": found})
    for name, mine in found.items():
        report.rows += rows(name, mine, absent)
    one = next(iter(found.values()))
    imports, kernels = one[ONE]["imported"], one["few rows"]
    note = (
        f"Of our peak, {imports:.0f} MB are the interpreter with numpy, scipy, scikit-learn and "
        f"numba before any data is read; a fit of a hundred rows adds "
        f"{kernels['trained'] - kernels['imported']:.0f} MB, most of it compiled code that numba "
        f"loads."
    )
    if not absent:
        note += (
            f" LIBLINEAR's Python module imports numba when that is installed: "
            f"{one[LIBLINEAR]['imported']:.0f} MB before any data, without it "
            f"{one[BARE]['imported']:.0f}."
        )
    report.notes.append(note)
    stages = {"trained": "Peak", "above": "Above what was there with the data loaded"}
    for stage, title in stages.items():
        heights = {
            name: {
                worker: peaks["trained"] - (peaks["loaded"] if stage == "above" else 0.0)
                for worker, peaks in mine.items()
                if worker != "few rows"
            }
            for name, mine in found.items()
        }
        report.panels[title] = Bars(heights, "MB")
    return report


def rows(name: str, found: dict[str, dict[str, float]], absent: str) -> list[Row]:
    """The lines of one data set: the promise, and what it is made up of."""
    ours, two = found[ONE], found[TWO]
    reached = f"{ours['trained']:.0f} MB ({two['trained']:.0f} with 2 threads)"
    above = f"{ours['trained'] - ours['loaded']:.0f} MB"
    result = []
    if absent:
        result.append(Row(f"{name}, peak", "<= peer's", reached, f"{LIBLINEAR} {absent}"))
    for worker, theirs in found.items():
        if worker in (ONE, TWO, "few rows"):
            continue
        text = f"{theirs['trained']:.0f} MB, {worker}"
        met = ours["trained"] <= theirs["trained"]
        result.append(Row(f"{name}, peak", "<= peer's", reached, text, met))
        text = f"{theirs['trained'] - theirs['loaded']:.0f} MB, {worker}"
        result.append(Row(f"{name}, above the loaded data", "", above, text))
    return result


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(work(*sys.argv[2:])))
    else:
        run(parser(__doc__, ("mnist", "covtype", "20news")), measure)
