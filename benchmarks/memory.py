"""Crammer-Singer in no more memory than LIBLINEAR.

Every number is the peak resident size of a fresh process: after the imports alone, after it has
loaded the CSR matrix from disk, and after it has trained. Ours trains to `tol=1e-3`; LIBLINEAR
(`-s 4`) and scikit-learn's LinearSVC (`multi_class="crammer_singer"`) to a tolerance of 1, because
their memory does not depend on it. LIBLINEAR is measured twice: as it comes, when its Python
module imports numba to convert the features, and with numba hidden from it.
"""

import argparse
import json
import resource
import sys
import tempfile
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
