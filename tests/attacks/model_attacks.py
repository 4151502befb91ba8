"""Damaged model files: a sentence, the same answers, or at worst a clean refusal to answer."""

import dataclasses
import sys
import zlib
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from attacked_models import (
    MODELS,
    RUN_BY_OWN_CODE,
    Attacked,
    answers,
    fitted,
    is_of_own_code,
)
from children import Attempt, Outcome, foreign, refusal
from corruptions import FREE, Arrays, Damaged, aimed_damage, blindly_damaged

import maxmargin as mm
from maxmargin.io.files import read_tensors, write_tensors


@dataclasses.dataclass(frozen=True)
class _Target:
    """A model, its file, and what it answers."""

    kind: str
    attacked: Attacked
    raw: bytes
    header: Any
    arrays: Arrays
    expected: str


@cache
def _target(kind: str) -> _Target:
    attacked = fitted(kind)
    with TemporaryDirectory() as folder:
        path = mm.save(attacked.model, Path(folder, "whole.mm"))
        again = attacked._replace(model=mm.load(path, **attacked.given))
        header, arrays = read_tensors(path)
        copied = {name: array.copy() for name, array in arrays.items()}
        return _Target(kind, attacked, path.read_bytes(), header, copied, answers(again))


def seeded(kind: str, attack: str, seed: int) -> np.random.Generator:
    """The generator of one try, whatever was tried before."""
    return np.random.default_rng([zlib.crc32(kind.encode()), zlib.crc32(attack.encode()), seed])


def blind(kind: str, folder: Path) -> Attempt:
    """Bytes of a model file are changed: nothing but the same answers, or an error, will do."""
    target = _target(kind)
    others = [_target(other).raw for other in _others(kind)]

    def attempt(seed: int) -> Iterator[str | Outcome]:
        raw, what = blindly_damaged(target.raw, others, seeded(kind, "blind", seed))
        path = _emptied(folder / "damaged.mm")
        path.write_bytes(raw)
        yield what
        yield _outcome(target, path, "bytes changed")

    return attempt


def _others(kind: str) -> list[str]:
    """Two kinds whose bytes are mixed with those of this one."""
    kinds = list(MODELS)
    at = kinds.index(kind)
    return [kinds[at - 1], kinds[(at + 1) % len(kinds)]]


def aimed(kind: str, folder: Path) -> Attempt:
    """What a model file holds is changed, and written with a valid checksum."""
    target = _target(kind)

    def attempt(seed: int) -> Iterator[str | Outcome]:
        random = seeded(kind, "aimed", seed)
        path = folder / "damaged.mm"
        free = (*FREE, "parts") if kind in RUN_BY_OWN_CODE else FREE
        damaged = write_damaged(path, target.header, target.arrays, random, free)
        yield damaged.what
        yield _outcome(target, path, damaged.breaks)

    return attempt


def write_damaged(
    path: Path, header: Any, arrays: Arrays, random: Any, free: tuple[str, ...] = FREE
) -> Damaged:
    """Write something else than a file held."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)  # of the writer; who reads has to live with less
    try:
        while True:
            damaged = aimed_damage(header, arrays, random, free)
            with suppress(ValueError, TypeError, KeyError, AttributeError):  # no file can hold it
                write_tensors(_emptied(path), damaged.header, damaged.arrays)
                return damaged
    finally:
        sys.setrecursionlimit(limit)


def _emptied(path: Path) -> Path:
    """Arrays of the model before may still be mapped from the file of this name."""
    path.unlink(missing_ok=True)
    return path


def _outcome(target: _Target, path: Path, broken: str) -> Outcome:
    """What comes of a file; other answers are a failure if there is something `broken` in it."""
    try:
        mm.read_header(path)
    except mm.ModelFileError as error:
        header = refusal(error, "read_header")
    except BaseException as error:
        header = foreign("read_header", error)
    else:
        header = Outcome(False, "read")
    if header.failed:
        return header
    try:
        model = mm.load(path, **target.attacked.given)
    except mm.ModelFileError as error:
        return refusal(error, "load")
    except BaseException as error:
        return foreign("load", error)
    try:
        found = answers(target.attacked._replace(model=model))
    except UnicodeError as error:
        return foreign("predict", error)
    except ValueError as error:
        return Outcome(False, "cannot answer", str(error)[:300])
    except BaseException as error:
        if is_of_own_code(error):
            return Outcome(False, "own code cannot answer", str(error)[:300])
        return foreign("predict", error)
    if found == target.expected:
        return Outcome(False, "same answers")
    if broken:
        return Outcome(True, f"other answers: {broken}")
    return Outcome(False, "other answers")
