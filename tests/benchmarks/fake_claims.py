"""A folder with the real runner and with claims of no worth, to see what becomes of them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHARED = (
    "__init__",
    "__main__",
    "claims",
    "common",
    "fingerprint",
    "page",
    "progress",
    "publishing",
    "recording",
    "reporting",
    "runner",
)

BEGINNING = '''"""The claim {name}.

What it measures.
"""
import os, signal, sys, time
from benchmarks.reporting import Bars, Panel, Report, Row, draw, write_json
from benchmarks.recording import Recording, result_file

signal.signal(signal.SIGINT, signal.default_int_handler)
quick = "--quick" in sys.argv
path = result_file("{name}", quick)
recording = Recording("{name}", sys.argv[1:], quick)
rows = [Row("speed", ">= 2x", "3x", "peer", True), Row("size", "1 MB", "2 MB", "", False)]
panels = {{"speeds": Bars({{"data": {{"ours": 1.0, "peer": 3.0}}}}, "seconds")}}


def leave(report, picture="<svg/>"):
    write_json(path, recording.end(report, __doc__))
    path.with_suffix(".svg").write_text(picture)


'''
GOOD = "leave(Report(rows, panels=panels))\n"
WHOLE = '''"""The claim that has everything.

Measured with the real thing.
"""
from benchmarks.common import parser, run
from benchmarks.reporting import Panel, Report, Row


def measure(options):
    panels = {"a curve": Panel({"ours": ([1, 2], [3, 4])}, "x", "y")}
    return Report([Row("speed", ">= 2x", "3x", "peer", True)], panels=panels)


if __name__ == "__main__":
    run(parser(__doc__), measure)
'''


def make_folder(folder, **claims):
    """Write the claims, each a body or a whole program, and what they need."""
    benchmarks = folder / "benchmarks"
    benchmarks.mkdir(parents=True)
    (folder / "docs").mkdir()
    (folder / "src" / "maxmargin").mkdir(parents=True)
    (folder / "src" / "maxmargin" / "library.py").write_text("speed = 1\n")
    for name in SHARED:
        shutil.copy(ROOT / "benchmarks" / f"{name}.py", benchmarks)
    with (benchmarks / "claims.py").open("a") as registry:
        registry.write(f"\n\nSECTIONS = (Section('Fakes', {tuple(claims)!r}),)\n")
    for name, body in claims.items():
        is_whole = body.startswith('"""')
        (benchmarks / f"{name}.py").write_text(
            body if is_whole else BEGINNING.format(name=name) + body
        )
    return folder


def command(*arguments):
    return [sys.executable, "-m", "benchmarks", *arguments]


def bench(folder, *arguments):
    """`python -m benchmarks` in that folder."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        command(*arguments),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
