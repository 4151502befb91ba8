"""Runs claims, each in a process of its own, and tells what became of it."""

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.claims import about
from benchmarks.fingerprint import ROOT, what_changed
from benchmarks.recording import MalformedError, Recording, published_file, read_result, result_file
from benchmarks.reporting import Report, Row, count, write_json
from maxmargin.data.live_line import duration

PATIENCE = 10.0
"""Seconds that a process has to end by itself after it was told to."""

LOOK = 0.1
"""Seconds from one look at the processes to the next."""


def why_measure(claim: str) -> str:
    """Why the claim has to be measured; empty if its result still stands."""
    path = result_file(claim, quick=False)
    if not path.exists():
        return "not measured yet"
    try:
        result = read_result(path)
    except MalformedError as error:
        return str(error)
    if "failed" in result:
        return f"it {result['failed']} last time"
    if result["arguments"]:
        return f"measured as `{result['command']}`"
    return what_changed(claim, result)


@dataclass(frozen=True)
class Outcome:
    """What became of a claim: what it found, or why it found nothing."""

    claim: str
    rows: Sequence[Row]
    seconds: float
    failure: str = ""
    said: str = ""
    """The end of what a claim said that failed."""

    @property
    def missed(self) -> list[Row]:
        """Rows that promise more than was reached."""
        return [row for row in self.rows if row.met is False]

    def __str__(self) -> str:
        if self.failure:
            return f"{self.failure} ({duration(self.seconds)})"
        promised = [row for row in self.rows if row.met is not None]
        met = len(promised) - len(self.missed)
        bars = f"{met} of {count(len(promised), 'bar')} met" if promised else "no bars to meet"
        return f"{bars} ({duration(self.seconds)})"


@dataclass
class Run:
    """A claim that is being measured.

    Parameters
    ----------
    claim : str
        Its name.
    quick : bool
        Whether only to show that it runs.
    limit : float
        Seconds after which it is stopped.
    """

    claim: str
    quick: bool
    limit: float
    _process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        flags = ["--quick"] if self.quick else []
        self._path = result_file(self.claim, self.quick)
        self._picture = self._path.with_suffix(".svg")
        self._log = self._path.with_suffix(".log")
        self._recording = Recording(self.claim, flags, self.quick)
        self._before = {path: _when_written(path) for path in (self._path, self._picture)}
        self._began = time.monotonic()
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"benchmarks.{self.claim}", *flags],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Whatever it starts can then be stopped with it.
                start_new_session=True,
            )

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._began

    @property
    def last_line(self) -> str:
        """What it last said."""
        return self._said().rpartition("\n")[2].strip()

    def _said(self) -> str:
        """The end of all it said."""
        with self._log.open("rb") as log:
            log.seek(-min(self._log.stat().st_size, 4000), os.SEEK_END)
            return log.read().decode(errors="replace").replace("\r", "\n").strip()

    def outcome(self) -> Outcome | None:
        """What became of it; None as long as it runs."""
        code = self._process.poll()
        if code is None and self.seconds < self.limit:
            return None
        self.stop()
        if code is None:
            limit = duration(self.limit)
            return self._failed(f"ends within {limit}", f"was stopped by its limit of {limit}")
        if code:
            what = f"failed with exit code {code}" if code > 0 else f"was ended by signal {-code}"
            return self._failed("runs to its end", f"{what}: {self.last_line}")
        try:
            rows = [Row(**row) for row in self._result()["rows"]]
        except MalformedError as error:
            return self._failed("leaves a result and a plot", f"failed: {error}")
        return Outcome(self.claim, rows, self.seconds)

    def stop(self) -> None:
        """End it and all that it started: kindly first."""
        try:
            if self._process.poll() is None:
                self._signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(PATIENCE)
        finally:  # also when somebody is in a hurry and presses Ctrl-C again
            self._signal(signal.SIGKILL)
            self._process.wait()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _result(self) -> dict[str, Any]:
        """What it has just left, not what was there before."""
        if _when_written(self._path) == self._before[self._path]:
            raise MalformedError(f"{self._path.name} was not written")
        result = read_result(self._path)
        if result["panels"] and _when_written(self._picture) == self._before[self._picture]:
            raise MalformedError(f"{self._picture.name} was not written")
        return result

    def _failed(self, bar: str, failure: str) -> Outcome:
        """A failure is a result too: a bar that is missed."""
        rows = [Row("the whole claim", bar, failure, met=False)]
        result = self._recording.end(Report(rows), about(self.claim))
        write_json(self._path, result | {"failed": failure})
        return Outcome(self.claim, rows, self.seconds, failure, self._said())


def _when_written(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


def outcomes(
    claims: Sequence[str], quick: bool, limit: float, at_once: int = 1
) -> Generator[tuple[list[Run], Outcome | None]]:
    """Run the claims, so many at once; now and then what runs, and whatever has become of one.

    What still runs when the generator is closed is stopped.
    """
    waiting, running = list(claims), list[Run]()
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append(Run(waiting.pop(0), quick, limit))
            for run in list(running):
                outcome = run.outcome()
                if outcome is not None:
                    running.remove(run)
                    yield running, outcome
            yield running, None
            time.sleep(LOOK)
    finally:
        for run in running:
            run.stop()


def expected_seconds(claims: Sequence[str], quick: bool) -> dict[str, float]:
    """How long each took the last time; of those that never ran, what is usual."""
    known = {}
    for claim in claims:
        published = [] if quick else [published_file(claim)]
        for path in (result_file(claim, quick), *published):
            if claim not in known and path.exists():
                with suppress(ValueError, KeyError):
                    known[claim] = float(json.loads(path.read_text())["seconds"])
    usual = statistics.median(known.values()) if known else 0.0
    return {claim: known.get(claim, usual) for claim in claims}
