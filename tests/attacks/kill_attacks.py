"""Fits that are killed again and again end with the same bits as those that are left alone."""

import os
import select
import signal
import time
import traceback
from pathlib import Path

from attacked_fits import fit, learned
from children import Outcome, quietly
from model_attacks import seeded

_OPTIONS = {"tol": 1e-9, "max_iter": 100}
"""Of the fits that are killed."""

_MOST_KILLS = 25
"""Of one fit, before it is left to end."""


def kills(kind: str, folder: Path, n: int, seed: int) -> list[tuple[int, Outcome]]:
    """One outcome for each kill; those of a fit are all right or all wrong."""
    random = seeded(kind, "kills", seed)
    expected = learned(fit(kind, None, **_OPTIONS))  # which also compiles all that children need
    path = folder / "killed.checkpoint"
    seconds = _seconds_of_a_fit(kind, path)
    outcomes: list[tuple[int, Outcome]] = []
    while len(outcomes) < n:
        _clear(folder)
        moments = []
        for _ in range(min(_MOST_KILLS, n - len(outcomes))):
            before = _content(path)
            if _child(kind, path, random.uniform(0.0, seconds / 2.0))[0] is not None:
                break
            moments.append("as it went on" if _content(path) != before else "before it went on")
        if moments:
            found = _judged(_child(kind, path, None)[0], expected, path)
            told = [
                found if found.failed else Outcome(False, f"same bits, killed {moment}")
                for moment in moments
            ]
            outcomes += enumerate(told, len(outcomes))
    _clear(folder)
    return outcomes


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _seconds_of_a_fit(kind: str, path: Path) -> float:
    _clear(path.parent)
    return _child(kind, path, None)[1]


def _clear(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


def _judged(said: str | None, expected: str, path: Path) -> Outcome:
    left = [file.name for file in path.parent.iterdir() if file != path]
    if said != expected:
        text = said or ""
        what = "an error after a kill" if text.startswith("error") else "other bits after a kill"
        return Outcome(True, what, text[:300])
    if left:
        return Outcome(True, "files left behind", ", ".join(left))
    return Outcome(False, "same bits")


def _child(kind: str, path: Path, seconds: float | None) -> tuple[str | None, float]:
    """What a fit in a child has learned and how long it took; None if it had to be killed."""
    receiver, sender = os.pipe()
    began = time.monotonic()
    process = os.fork()
    if not process:
        os.close(receiver)
        _work(kind, path, sender)  # never returns
    os.close(sender)
    said = []
    with os.fdopen(receiver, "rb") as pipe:
        if select.select([pipe], [], [], seconds)[0]:
            said.append(pipe.read())
    took = time.monotonic() - began
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return (said[0].decode() if said and said[0] else None), took


def _work(kind: str, path: Path, sender: int) -> None:
    try:
        quietly()
        said = learned(fit(kind, path, **_OPTIONS))
    except BaseException:
        said = "error " + traceback.format_exc()[-2000:]
    with os.fdopen(sender, "wb") as pipe:
        pipe.write(said.encode())
    os._exit(0)
