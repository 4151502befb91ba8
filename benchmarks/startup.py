"""How long the first fit takes: from a wheel, and beside LinearSVC.

A wheel is built, which compiles all routines, and unpacked to a folder of its own; fresh processes
use it without any folder for compiled code to write to. Seconds of a whole process that imports the
estimator and fits scikit-learn's digits: the first one from the wheel, later ones, and those of
scikit-learn's LinearSVC in turns with ours; in the first, numba must compile nothing. Asked for:
half a second between the first and a later one, 1.25 times LinearSVC's process, a wheel below 15 MB
that is built within 4 minutes. Beside it, without a bar, a process that has to compile. Commands
that do not train are timed in turns with ``import numpy, numba``: `maxmargin predict` with a small
model may take twice as long as that. Our modules are there as bytecode, as pip installs them and
as those of the peers are. With `--quick` no wheel is built, and machine code is found where it is
kept.
"""

import argparse
import compileall
import inspect
import os
import shutil
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

BUILD, SIZE, FIRST, RATIO, COMMAND = 240.0, 15.0, 0.5, 1.25, 2.0


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


def served() -> None:
    """A saved model loaded to predict only, without scikit-learn."""
    import json
    import sys
    import time

    start = time.perf_counter()
    import maxmargin as mm

    predictor = mm.load_predictor(sys.argv[1])
    loaded = time.perf_counter()
    predictor.predict([[0.0] * 64])
    end = time.perf_counter()
    print(json.dumps({"all": end - start, "fit": end - loaded, "compiled": 0}))


def commands(folder: Path, environment: Mapping[str, str], repeats: int) -> dict[str, list[float]]:
    """Seconds of commands, and of importing numpy and numba, in turns."""
    from sklearn.datasets import dump_svmlight_file, load_digits

    X, y = load_digits(return_X_y=True)
    data, model = str(folder / "digits.svm"), str(folder / "digits.mm")
    dump_svmlight_file(X[:300] / 16, y[:300], data, zero_based=False)
    program = ["-m", "maxmargin"]
    child([*program, "train", data, "-o", model, "--json"], environment)
    calls = {
        "import numpy, numba": ["-c", "import numpy, numba"],
        "maxmargin --help": [*program, "--help"],
        "maxmargin predict": [*program, "predict", model, data, "-o", str(folder / "answers")],
        "maxmargin inspect": [*program, "inspect", model],
        "maxmargin convert": [*program, "convert", data, str(folder / "arrays"), "-q"],
        "load_predictor and predict": ["-c", f"{inspect.getsource(served)}\nserved()", model],
    }
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            shutil.rmtree(folder / "arrays", ignore_errors=True)
            start = time.perf_counter()
            subprocess.run(
                [sys.executable, *call],
                check=True,
                env={**os.environ, **environment},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            found[name].append(time.perf_counter() - start)
    return found


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
    compileall.compile_dir(folder / "installed", quiet=1)
    return seconds, wheel.stat().st_size / 1e6


def measure(options: argparse.Namespace) -> Report:
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {"PYTHONDONTWRITEBYTECODE": ""}  # the first process may write what it lacks
        if not options.quick:
            seconds, size = build(folder)
            rows += [
                Row("wheel, built", f"<= {BUILD:g} s", f"{seconds:.0f} s", met=seconds <= BUILD),
                Row("wheel, size", f"<= {SIZE:g} MB", f"{size:.1f} MB", met=size <= SIZE),
            ]
            environment |= {"PYTHONPATH": str(folder / "installed"), "NUMBA_CACHE_DIR": "/dev/null"}
        first = process(ours, environment)
        later, others = [], []
        for _ in range(options.repeats):
            later.append(process(ours, environment))
            others.append(process(peer, environment))
        called = commands(folder, environment, options.repeats)
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
    imports = called.pop("import numpy, numba")
    for call, times in called.items():
        ratio = min(times) / min(imports)
        met = None if call != "maxmargin predict" else ratio <= COMMAND
        bar = "" if met is None else f"<= {COMMAND:g} x importing numpy, numba"
        rows.append(Row(call, bar, f"{span(times)}, {ratio:.2f} x", span(imports), met=met))
    report = Report(
        rows,
        details={"first": first, "later": later, "others": others, "anew": anew, "called": called},
    )
    parts = {"process": min(own), "import and fit": min(one["all"] for one in later)}
    peers = {"process": min(theirs), "import and fit": min(one["all"] for one in others)}
    report.panels["Seconds of a fresh process"] = Bars(
        {"ours": parts, "LinearSVC": peers}, "seconds"
    )
    return report


if __name__ == "__main__":
    run(parser(__doc__, repeats=5), measure)
