"""What a benchmark leaves behind: all it found, how it was measured, and on what."""

import json
import os
import platform
import shlex
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.fingerprint import ROOT, code, surroundings
from benchmarks.reporting import Quote, Report, Row, panel_as_json

RESULTS = ROOT / "benchmarks" / "results"

WHAT = ("claim", "about", "rows", "quotes", "notes", "panels")
HOW = ("arguments", "command", "date", "commit", "machine", "seconds", "load", "others")
DEPENDS = ("code", "cpu", "cores", "versions")
"""What every result has: what was found, how, and what it depends on."""


PUBLISHED = ROOT / "docs" / "_static" / "benchmarks"


class MalformedError(Exception):
    """A result that cannot be used; says why in one sentence."""


def result_file(claim: str, quick: bool) -> Path:
    """Where the JSON of a benchmark goes; quick runs do not overwrite real ones."""
    return (RESULTS / "quick" if quick else RESULTS) / f"{claim}.json"


def published_file(claim: str) -> Path:
    """Where the page takes the claim's result from; the plot is beside it."""
    return PUBLISHED / f"{claim}.json"


class Recording:
    """Notes how and on what a benchmark runs; begins when it is made.

    Parameters
    ----------
    claim : str
        Name of the benchmark's module.
    arguments : sequence of str
        What it was called with.
    quick : bool
        Whether only to show that it runs: then the code's digest, which takes a second, is left
        out.
    """

    def __init__(self, claim: str, arguments: Sequence[str], quick: bool = False) -> None:
        self._about = {
            "claim": claim,
            "arguments": list(arguments),
            "command": shlex.join(["python", "-m", f"benchmarks.{claim}", *arguments]),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": _commit(),
            "machine": f"{platform.system()} {platform.release()} {platform.machine()}",
            # Now, not at the end: somebody may edit a file in the meantime.
            "code": "" if quick else code(claim),
            **surroundings(claim),
        }
        self._load = _load()
        self._began = time.perf_counter()
        self._busy, self._own = _busy_seconds(), _own_seconds()

    def end(self, report: Report, about: str | None) -> dict[str, Any]:
        """The whole result, ready to be written."""
        seconds = time.perf_counter() - self._began
        others = (_busy_seconds() - self._busy) - (_own_seconds() - self._own)
        return self._about | {
            "about": about or "",
            "seconds": round(seconds, 1),
            "load": [*self._load, *_load()],
            "others": round(max(others, 0.0) / seconds, 2),
            "rows": [asdict(row) for row in report.rows],
            "quotes": [asdict(quote) for quote in report.quotes],
            "notes": report.notes,
            "panels": {title: panel_as_json(panel) for title, panel in report.panels.items()},
            "details": report.details,
        }


def read_result(path: Path) -> dict[str, Any]:
    """A result that has all it must have; `MalformedError` if there is none or it has not."""
    name = path.name
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MalformedError(f"{name} was not written") from None
    except ValueError:
        raise MalformedError(f"{name} is not JSON") from None
    missing = [key for key in (*WHAT, *HOW, *DEPENDS) if key not in result]
    if missing:
        raise MalformedError(f"{name} is of an older form (without {missing[0]}): measure it again")
    if not result["rows"]:
        raise MalformedError(f"{name} has no rows")
    try:
        texts = [text for row in result["rows"] for text in Row(**row).cells()]
        texts += [quote.says for quote in [Quote(**one) for one in result["quotes"]]]
    except (TypeError, KeyError):
        raise MalformedError(f"{name} has rows or quotes of another shape") from None
    if not all(isinstance(text, str) for text in [*texts, *result["notes"]]):
        raise MalformedError(f"{name} has rows, quotes or notes that are no text")
    # Where no peer is there to be measured, nothing is there to be drawn.
    found_something = any(row["reached"] not in ("", "-") for row in result["rows"])
    if not result["panels"] and found_something and "failed" not in result:
        raise MalformedError(f"{name} has no plot")
    return dict(result)


# The machine


def _commit() -> str | None:
    """The commit that is checked out, and whether files differ from it."""
    # Without locks: somebody may be committing.
    command = ["git", "--no-optional-locks", "describe", "--always", "--exclude=*"]
    command += ["--dirty= with changes"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _load() -> list[float]:
    """Processes that ran or wanted to in the last minute, on average."""
    return [round(os.getloadavg()[0], 2)] if hasattr(os, "getloadavg") else []


def _busy_seconds() -> float:
    """Processor time that anybody has used since the machine started; 0 where nobody knows."""
    try:
        fields = Path("/proc/stat").read_text().split(maxsplit=9)[1:9]
    except OSError:
        return 0.0
    user, nice, system, _, _, irq, softirq, steal = map(int, fields)
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    """Processor time of this process and of its children that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system
