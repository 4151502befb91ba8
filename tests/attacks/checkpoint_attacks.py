"""Damaged checkpoints: a sentence, or the answer of a whole one; no certificate that is wrong."""

import dataclasses
import json
import math
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from attacked_fits import FITS, fit, learned
from children import Attempt, Outcome, foreign, refusal
from corruptions import Arrays, blindly_damaged
from model_attacks import seeded, write_damaged

from maxmargin.io.files import read_tensors, write_tensors

_ROUNDING = 1e-7
"""Part of a value by which two ways to compute it may differ."""

_OPTIONS = {"tol": 1e-6, "max_iter": 12}
"""Of the fits that are attacked."""


@dataclasses.dataclass(frozen=True)
class _Target:
    """A checkpoint from the middle of a fit, and what the fit comes to."""

    kind: str
    raw: bytes
    header: Any
    arrays: Arrays
    expected: str
    optimum: tuple[float, float]
    """Between these numbers, if the problem is convex."""


class _Snapshots:
    """A callback that keeps the checkpoint as it is after each round."""

    def __init__(self, path: Path) -> None:
        self.path, self.taken = path, [b""]

    def setup(self, estimator, context): ...

    def teardown(self, estimator, context): ...

    def on_fit_task_begin(self, *arguments, **more): ...

    def on_fit_task_end(self, *arguments, **more):
        raw = self.path.read_bytes() if self.path.exists() else b""
        if raw != self.taken[-1]:
            self.taken.append(raw)


@cache
def _target(kind: str) -> _Target:
    with TemporaryDirectory() as folder:
        path = Path(folder, "whole.checkpoint")
        snapshots = _Snapshots(path)
        whole = learned(fit(kind, path, snapshots, **_OPTIONS))
        _removed(path).write_bytes(snapshots.taken[1 + len(snapshots.taken) // 2])
        header, arrays = _timeless(*read_tensors(path))
        write_tensors(_removed(path), header, arrays)
        raw = path.read_bytes()
        expected = learned(fit(kind, path, **_OPTIONS))
    assert expected == whole, f"{kind} does not go on to the same answer"
    return _Target(kind, raw, header, arrays, expected, _optimum(kind))


def _timeless(header: Any, arrays: Arrays) -> tuple[Any, Arrays]:
    """Without the time that rounds have taken, the file is the same in every run."""
    copied = {name: array.copy() for name, array in arrays.items()}
    for name, array in copied.items():
        if name.endswith("seconds"):
            array[:] = 0.0
    text = re.sub(r'"seconds": [-+.e0-9]+', '"seconds": 0.0', json.dumps(header))
    return json.loads(text), copied


@cache
def _optimum(kind: str) -> tuple[float, float]:
    """Bounds of the optimum from a fit of its own, the upper one by hand where that can be."""
    if not FITS[kind].convex:
        return -math.inf, math.inf
    model = fit(kind, None, tol=1e-9, max_iter=2000, **FITS[kind].exact)
    by_hand = FITS[kind].objective
    upper = model.certificate_.primal if by_hand is None else by_hand(model)
    return model.certificate_.dual, upper


def _removed(path: Path) -> Path:
    path.unlink(missing_ok=True)
    return path


def blind(kind: str, folder: Path) -> Attempt:
    """Bytes of a checkpoint are changed: an error that names it, or the very same answer."""
    target = _target(kind)
    kinds = list(FITS)
    other = kinds[kinds.index(kind) - 1]
    others = [_target(other).raw, target.raw[: len(target.raw) // 2]]
    path = folder / "damaged.checkpoint"

    def attempt(seed: int) -> Iterator[str | Outcome]:
        raw, what = blindly_damaged(target.raw, others, seeded(kind, "blind", seed))
        _removed(path).write_bytes(raw)
        yield what
        found = _ended(target, path)
        if isinstance(found, Outcome):
            named = found.what != "refused" or str(path) in found.detail
            yield found if named else Outcome(True, "no word of the file", found.detail)
        elif learned(found) == target.expected:
            yield Outcome(False, "same answer")
        else:
            yield Outcome(True, "other answer", ": ".join(_wrong(target, found) or ("certified",)))

    return attempt


def aimed(kind: str, folder: Path) -> Attempt:
    """What a checkpoint holds is changed, with a valid checksum: no certificate may be wrong."""
    target = _target(kind)
    path = folder / "damaged.checkpoint"

    def attempt(seed: int) -> Iterator[str | Outcome]:
        random = seeded(kind, "aimed", seed)
        yield write_damaged(path, target.header, target.arrays, random).what
        found = _ended(target, path)
        if isinstance(found, Outcome):
            yield found
        elif wrong := _wrong(target, found):
            yield Outcome(True, *wrong)
        else:
            same = learned(found) == target.expected
            yield Outcome(False, "same answer" if same else "other answer, certified")

    return attempt


def _ended(target: _Target, path: Path) -> Any:
    """The estimator that the fit ends with, or how it ended otherwise."""
    try:
        return fit(target.kind, path, **_OPTIONS)
    except UnicodeError as error:
        return foreign("resume", error)
    except ValueError as error:
        return refusal(error, "resume")
    except BaseException as error:
        return foreign("resume", error)


def _wrong(target: _Target, model: Any) -> tuple[str, str] | None:
    """What is wrong with the certificate of a fit, if anything."""
    primal, dual = model.certificate_.primal, model.certificate_.dual
    lower, upper = target.optimum
    if math.isnan(primal) or math.isnan(dual):
        return "certificate is not a number", f"{primal} {dual}"
    if dual > upper + _ROUNDING * abs(upper):
        return "dual value above the optimum", f"{dual} > {upper}"
    if primal < lower - _ROUNDING * abs(lower):
        return "primal value below the optimum", f"{primal} < {lower}"
    by_hand = FITS[target.kind].objective
    if by_hand is not None and not primal >= by_hand(model) * (1.0 - _ROUNDING):
        return "primal value below the objective of the weights", f"{primal} < {by_hand(model)}"
    return None
