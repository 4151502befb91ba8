"""Crammer-Singer in no more memory than LIBLINEAR.

Every number is the peak resident size of a fresh process: after the imports alone, after it has
loaded the CSR matrix from disk, and after it has trained (ours to tol=1e-3, LIBLINEAR to -e 0.1,
both their defaults). LIBLINEAR is measured twice: as it comes, when it imports numba to convert
the features, and with numba hidden from it.
"""

import argparse
import json
import resource
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.common import NO_PEER, child, load, parser, run, say, subsample
from benchmarks.reporting import Report, Row

MEGABYTE = 1e6
BARE = "LIBLINEAR without numba"


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


def work(who: str, file: str) -> dict[str, float]:
    """Inside the fresh process: import, load, train."""
    trainer: Any
    if who == BARE:
        sys.modules["numba"] = None  # type: ignore[assignment]
    if who.startswith("ours"):
        from maxmargin import LinearClassifier

        n_jobs = 2 if who.endswith("2 threads") else 1
        trainer = LinearClassifier(fit_intercept=False, n_jobs=n_jobs).fit
    else:
        from benchmarks import peer

        def trainer(X: Any, y: Any) -> None:
            peer.Liblinear(X, y).train(peer.CRAMMER_SINGER, C=1.0, e=None)

    peaks = {"imported": peak()}
    with np.load(file) as stored:
        parts = stored["data"], stored["indices"], stored["indptr"]
        X, y = sp.csr_matrix(parts, shape=tuple(stored["shape"])), stored["y"]
    peaks["loaded"] = peak()
    trainer(X, y)
    peaks["trained"] = peak()
    return peaks


def store(path: Path, X: Any, y: Any) -> None:
    np.savez(path, data=X.data, indices=X.indices, indptr=X.indptr, shape=X.shape, y=y)


def measure(options: argparse.Namespace) -> Report:
    from benchmarks import peer  # not above: our own processes shall not import it

    report = Report()
    workers = ["ours", "ours, 2 threads"]
    workers += ["LIBLINEAR", BARE] if peer.installed() else []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.data:
            data = load(name, options.quick)
            few = subsample(data, 100)
            stored, warm = Path(folder, f"{name}.npz"), Path(folder, "warm.npz")
            store(stored, data.X, data.y)
            store(warm, few.X, few.y)
            found = {}
            for worker in workers:
                say(f"{data.name}: {worker}")
                call = ["-m", "benchmarks.memory", "--child", worker]
                child([*call, str(warm)])  # so that compiling does not count
                found[worker] = child([*call, str(stored)])
            stored.unlink()
            report.rows += rows(data.name, found)
            report.details[data.name] = found
    return report


def rows(name: str, found: dict[str, dict[str, float]]) -> list[Row]:
    """The lines of one data set: the promise, and what it is made up of."""
    ours, two = found["ours"], found["ours, 2 threads"]
    reached = f"{ours['trained']:.0f} MB ({two['trained']:.0f} with 2 threads)"
    result = []
    for worker in ("LIBLINEAR", BARE):
        if worker not in found:
            result.append(Row(f"{name}, peak", "<= peer's", reached, NO_PEER))
            break
        theirs = found[worker]["trained"]
        text = f"{theirs:.0f} MB, {worker}"
        met = ours["trained"] <= theirs
        result.append(Row(f"{name}, peak", "<= peer's", reached, text, met))
    for stage, label in (("imported", "imports alone"), ("loaded", "data loaded")):
        theirs_too = " / ".join(
            f"{found[worker][stage]:.0f}" for worker in found if not worker.startswith("ours")
        )
        result.append(Row(f"{name}, {label}", "", f"{ours[stage]:.0f} MB", f"{theirs_too} MB"))
    return result


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(work(*sys.argv[2:])))
    else:
        run(parser(__doc__, ("mnist", "covtype", "20news")), measure)
