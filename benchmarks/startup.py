"""How long the first fit takes: from a wheel, and beside LinearSVC.

A wheel is built, which compiles all routines, and unpacked to a folder of its own; fresh processes
use it without any folder for compiled code to write to. Seconds of a whole process that imports the
estimator and fits scikit-learn's digits: the first one from the wheel, later ones, and those of
scikit-learn's LinearSVC in turns with ours; in the first, numba must compile nothing. Asked for:
half a second between the first and a later one, 1.25 times LinearSVC's process, a wheel below 15 MB
that is built within 4 minutes. Beside it, without a bar, a process that has to compile. With
`--quick` no wheel is built, and machine code is found where it is kept.
"""

import argparse
import inspect
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, child, parser, run, say, span
from benchmarks.reporting import Bars, Report, Row

BUILD, SIZE, FIRST, RATIO = 240.0, 15.0, 0.5, 1.25


def ours() -> None:
    """Import and fit, counting compilations. Its source runs in a fresh process."""
    import json
    import time

    start = time.perf_counter()
    from numba.core import event

    class Compilations(event.Listener):  # type: ignore[misc]
        seen = 0

        def on_start(self, event: object) -> None:
            Compilations.seen += 1

        def on_end(self, event: object) -> None:
            pass

    event.register("numba:compile", Compilations())
    from sklearn.datasets import load_digits

    import maxmargin as mm

    X, y = load_digits(return_X_y=True)
    model = mm.LinearClassifier()  # imported when it is asked for
    loaded = time.perf_counter()
    model.fit(X / 16, y)
    end = time.perf_counter()
    print(json.dumps({"all": end - start, "fit": end - loaded, "compiled": Compilations.seen}))


def peer() -> None:
    """The same with LinearSVC."""
    import json
    import time

    start = time.perf_counter()
    from sklearn.datasets import load_digits
    from sklearn.svm import LinearSVC

    X, y = load_digits(return_X_y=True)
    loaded = time.perf_counter()
    LinearSVC().fit(X / 16, y)
    end = time.perf_counter()
    print(json.dumps({"all": end - start, "fit": end - loaded, "compiled": 0}))


def process(work: Callable[[], None], environment: Mapping[str, str]) -> dict[str, Any]:
    """Seconds of a fresh process that does the work, and what it says itself."""
    start = time.perf_counter()
    said = child(["-c", f"{inspect.getsource(work)}\n{work.__name__}()"], environment)
    return {**said, "process": time.perf_counter() - start}


def build(folder: Path) -> tuple[float, float]:
    """Build a wheel and unpack it; returns seconds and MB."""
    say("building a wheel ...")
    start = time.perf_counter()
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "-w", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True, stdout=sys.stderr)
    seconds = time.perf_counter() - start
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    return seconds, wheel.stat().st_size / 1e6


def measure(options: argparse.Namespace) -> Report:
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment: dict[str, str] = {}
        if not options.quick:
            seconds, size = build(folder)
            rows += [
                Row("wheel, built", f"<= {BUILD:g} s", f"{seconds:.0f} s", met=seconds <= BUILD),
                Row("wheel, size", f"<= {SIZE:g} MB", f"{size:.1f} MB", met=size <= SIZE),
            ]
            environment = {"PYTHONPATH": str(folder / "installed"), "NUMBA_CACHE_DIR": "/dev/null"}
        first = process(ours, environment)
        later, others = [], []
        for _ in range(options.repeats):
            later.append(process(ours, environment))
            others.append(process(peer, environment))
        with tempfile.TemporaryDirectory() as empty:
            anew = process(ours, {"NUMBA_CACHE_DIR": empty})
    own, theirs = ([one["process"] for one in some] for some in (later, others))
    fits = [one["fit"] for one in later]
    extra, ratio = first["process"] - min(own), min(own) / min(theirs)
    wanted, reached = f"<= {RATIO:g} x LinearSVC", f"{span(own)}, {ratio:.2f} x"
    count = first["compiled"]
    rows += [
        Row("compilations in the first fit", "0", str(count), met=count == 0),
        Row("first process beyond a later one", f"<= {FIRST:g} s", f"{extra:.2f} s",
            met=extra <= FIRST),
        Row("process with import and fit", wanted, reached, span(theirs), met=ratio <= RATIO),
        Row("of that, the fit", "", span(fits), span(one["fit"] for one in others)),
        Row("process that has to compile", "", f"{anew['process']:.1f} s"),
    ]  # fmt: skip
    report = Report(rows, details={"first": first, "later": later, "others": others, "anew": anew})
    parts = {"process": min(own), "import and fit": min(one["all"] for one in later)}
    peers = {"process": min(theirs), "import and fit": min(one["all"] for one in others)}
    report.panels["Seconds of a fresh process"] = Bars(
        {"ours": parts, "LinearSVC": peers}, "seconds"
    )
    return report


if __name__ == "__main__":
    run(parser(__doc__, repeats=5), measure)
