"""What all benchmarks share: arguments, data, clocks, child processes."""

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from benchmarks.fingerprint import ROOT as ROOT
from benchmarks.recording import RESULTS as RESULTS
from benchmarks.recording import Recording
from benchmarks.recording import result_file as result_file
from benchmarks.reporting import Report, draw, table, write_json

Floats = NDArray[np.float64]

CS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""The values of C of a whole path."""

NO_PEER = "LIBLINEAR not installed"

TINY = {
    "mnist": "digits",
    "covtype": "iris",
    "20news": "wine",
    "a9a": "breast_cancer",
    "cpu_small": "diabetes",
    "letter": "digits",
}
"""Data sets of scikit-learn that `--quick` takes in place of the real ones."""


def say(text: str) -> None:
    """Progress, on standard error so that standard output holds only tables."""
    print(text, file=sys.stderr, flush=True)


# Running


def parser(
    description: str | None, data: Sequence[str] = (), repeats: int | None = None
) -> argparse.ArgumentParser:
    """The arguments that benchmarks have in common."""
    result = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    result.add_argument("--quick", action="store_true", help="tiny data: only shows that it runs")
    if data:
        result.add_argument(
            "--data", nargs="+", choices=data, default=list(data), help="on which data (all)"
        )
    if repeats is not None:
        result.add_argument(
            "--repeats", type=int, default=repeats, help="how often each is timed (%(default)s)"
        )
    return result


def run(
    arguments: argparse.ArgumentParser, measure: Callable[[argparse.Namespace], Report]
) -> None:
    """Measure, print the table, write the JSON and the plot."""
    claim = Path(sys.argv[0]).stem
    options = arguments.parse_args()
    if options.quick and "repeats" in options:
        options.repeats = min(options.repeats, 2)
    recording = Recording(claim, sys.argv[1:], options.quick)
    try:
        with threadpool_limits(limits=1):  # what numpy calls shall not bring threads of its own
            report = measure(options)
    except KeyboardInterrupt:
        say(f"Stopped before its end: no result of {claim} is written.")
        sys.exit(130)
    result = recording.end(report, arguments.description)
    title = (arguments.description or claim).splitlines()[0]
    print(f"{title}{' (quick: numbers mean nothing)' if options.quick else ''}")
    print(f"{result['cpu']}, {result['cores']} cores, {result['date']}\n")
    print(table(report.rows, judged=not options.quick), end="\n\n")
    path = result_file(claim, options.quick)
    write_json(path, result)
    if report.panels:
        draw(report.panels, path.with_suffix(".svg"))
    say(f"written: {path.relative_to(ROOT)}")


def child(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> Any:
    """What a fresh Python process prints, as JSON, on its last line."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | (environment or {}),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


# Data


class Data(NamedTuple):
    """Examples and their targets; `name` tells what `--quick` put in the place of the real."""

    name: str
    X: Any
    y: NDArray[Any]

    def some(self, rows: NDArray[Any]) -> "Data":
        """Only some of the examples."""
        return Data(self.name, self.X[rows], self.y[rows])


def load(name: str, quick: bool = False, test_rows: bool = False) -> Data:
    """Training rows of a data set as CSR, with the test rows below them if wanted."""
    if quick:
        return _tiny(TINY[name])
    from benchmarks.datasets import load as load_real

    data = load_real(name)
    if not test_rows:
        return Data(name, data.X_train, data.y_train)
    X = sp.vstack([data.X_train, data.X_test], format="csr")
    return Data(name, X, np.concatenate([data.y_train, data.y_test]))


def _tiny(name: str) -> Data:
    from sklearn import datasets

    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return Data(name, sp.csr_matrix(X / np.abs(X).max(axis=0).clip(min=1e-300)), y)


def subsample(data: Data, n: int, seed: int = 0) -> Data:
    """At most `n` random rows, in their old order, two or more of each class."""
    if n >= len(data.y):
        return data
    random = np.random.RandomState(seed)
    order = random.permutation(len(data.y))
    if not np.issubdtype(data.y.dtype, np.integer):
        return data.some(np.sort(order[:n]))
    of_each = [order[data.y[order] == label][:2] for label in np.unique(data.y)]
    first = np.concatenate(of_each)
    rest = order[~np.isin(order, first)]
    return data.some(np.sort(np.concatenate([first, rest[: max(0, n - len(first))]])))


# Clocks


@dataclass(frozen=True)
class Timed:
    """An answer and what it took: wall time, and processor time of all threads."""

    answer: Any
    seconds: float
    cpu_seconds: float


def timed(work: Callable[[], Any]) -> Timed:
    """Do the work once, on both clocks."""
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    answer = work()
    return Timed(answer, time.perf_counter() - wall, time.process_time() - cpu)


def interleaved(works: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, list[Timed]]:
    """Each work `repeats` times, taking turns, so that a busy moment hits them alike."""
    results: dict[str, list[Timed]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            results[name].append(timed(work))
    return results


def best(runs: Sequence[Timed]) -> float:
    """The least wall time."""
    return min(run.seconds for run in runs)


def spread(runs: Sequence[Timed]) -> str:
    """The least wall time, and the greatest."""
    return span(run.seconds for run in runs)


def span(values: Any) -> str:
    """Seconds as text, least to greatest."""
    ordered = sorted(values)
    low, high = f"{ordered[0]:.3g}", f"{ordered[-1]:.3g}"
    return f"{low} s" if low == high else f"{low}-{high} s"


def clocks(runs: Sequence[Timed]) -> dict[str, list[float]]:
    """Both clocks of all runs, for the JSON."""
    return {
        "seconds": [run.seconds for run in runs],
        "cpu_seconds": [run.cpu_seconds for run in runs],
    }
