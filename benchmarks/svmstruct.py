"""Joachims' programs, wherever a user has them: called, timed, their models read back.

They cannot be installed from PyPI, so paths are given: ``--svm-multiclass``, ``--svm-hmm`` and
``--svm-perf`` name the programs that learn, or the variables ``SVM_MULTICLASS``, ``SVM_HMM`` and
``SVM_PERF`` of the environment do. The program that classifies is looked for beside it.
"""

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import dump_svmlight_file

from benchmarks.common import Floats
from maxmargin.data.files import FileFormatError

MULTICLASS, HMM, PERF = "svm_multiclass", "svm_hmm", "svm_perf"
PROGRAMS = (MULTICLASS, HMM, PERF)

LOSS_OF_A_MISTAKE = 100.0
"""What svm_multiclass counts for a wrong class."""


class ProgramError(RuntimeError):
    """A program failed, or is not what it should be."""


def add_paths(arguments: argparse.ArgumentParser) -> None:
    """Options with the paths of the programs."""
    for name in PROGRAMS:
        arguments.add_argument(
            f"--{name.replace('_', '-')}",
            metavar="PATH",
            default=os.environ.get(name.upper()),
            help=f"the program {name}_learn",
        )


def absent(name: str) -> str:
    """What to say of a program that was not given."""
    return f"not given: --{name.replace('_', '-')} PATH, or {name.upper()} in the environment"


# Data in their format


def write_rows(path: Path, X: Any, classes: NDArray[Any]) -> None:
    """Rows with their targets, features counted from 1."""
    dump_svmlight_file(X, classes, str(path), zero_based=False)


def write_sequences(path: Path, X: Any, tags: NDArray[Any], lengths: NDArray[Any]) -> None:
    """Sequences as svm_hmm reads them: a row for each position, numbered by sequence."""
    numbers = np.repeat(np.arange(1, len(lengths) + 1), lengths)
    dump_svmlight_file(X, tags, str(path), zero_based=False, query_id=numbers)


# Calls


@dataclass(frozen=True)
class Learned:
    """What a program left behind: its model, and what it took."""

    model: Path
    output: str
    seconds: float
    cpu_seconds: float
    megabytes: float

    @property
    def objective(self) -> float | None:
        """The primal value that the program prints, in its own scale."""
        found = re.search(r"Primal objective value: pval=([-+.0-9eE]+)", self.output)
        return float(found.group(1)) if found else None


@dataclass(frozen=True)
class Program:
    """One of the programs, at a path of a user."""

    name: str
    learner: Path

    @classmethod
    def at(cls, name: str, path: str) -> "Program":
        """The program at a path, or a sentence why it is none."""
        found = shutil.which(path)
        if found is None:
            option = f"--{name.replace('_', '-')}"
            raise ProgramError(f"{option} names {path}, which is no program: give its full path.")
        return cls(name, Path(found))

    def learn(self, options: Mapping[str, Any], data: Path, model: Path) -> Learned:
        """Train on a file."""
        flags = [str(part) for pair in options.items() for part in pair]
        call = [str(self.learner), *flags, str(data), str(model)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.perf_counter()
        output, status = _run(call)
        seconds = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if status or not model.exists():
            last = (output.strip().splitlines() or ["nothing"])[-1]
            raise ProgramError(
                f"{' '.join(call)} ended with status {status} and left "
                f"{'a' if model.exists() else 'no'} model; the last it said: {last}"
            )
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        unit = 1 if sys.platform == "darwin" else 1024
        return Learned(model, output, seconds, cpu, after.ru_maxrss * unit / 1e6)

    def classify(self, data: Path, model: Path, answers: Path) -> Floats | None:
        """First number of each line that the program beside it answers; None without one."""
        classifier = self.learner.with_name(self.learner.name.replace("_learn", "_classify"))
        if classifier == self.learner or not classifier.exists():
            return None
        output, status = _run([str(classifier), str(data), str(model), str(answers)])
        if status:
            raise ProgramError(f"{classifier} ended with status {status}: {output.strip()[-200:]}")
        lines = answers.read_text().split("\n")
        return np.array([float(line.split()[0]) for line in lines if line.strip()])


def _run(call: list[str]) -> tuple[str, int]:
    done = subprocess.run(call, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.stdout, done.returncode


# Models in their format


def read_model(path: Path) -> tuple[dict[str, str], Floats]:
    """Header of a linear model, and its weights: the sum of what it calls support vectors.

    Header lines are ``value # what``; after the threshold each line is ``alpha [qid:n] j:w ... #``.
    """
    lines = path.read_text().splitlines()
    header: dict[str, str] = {}
    first = 1
    for line in lines[1:]:
        value, _, what = line.partition("#")
        header[what.strip().split(",")[0]] = value.strip()
        first += 1
        if "threshold b" in header:
            break
    if "threshold b" not in header or "highest feature index" not in header:
        raise FileFormatError(str(path), None, "is no model of SVMstruct: its header is cut short.")
    weights = np.zeros(int(header["highest feature index"]))
    for number, line in enumerate(lines[first:], start=first + 1):
        alpha, *entries = line.partition("#")[0].split()
        for entry in entries:
            place, _, value = entry.partition(":")
            if place == "qid":
                continue
            if not place.isdigit() or not 1 <= int(place) <= len(weights):
                raise FileFormatError(str(path), number, f"has {entry!r}, which is no weight.")
            weights[int(place) - 1] += float(alpha) * float(value)
    return header, weights


def multiclass_weights(path: Path, n_features: int, n_classes: int) -> Floats:
    """Weights of svm_multiclass in our scale, of shape (n_features, n_classes).

    It counts `LOSS_OF_A_MISTAKE` for a wrong class, so its weights are so many times ours.
    """
    header, weights = read_model(path)
    width, classes = int(header["number of base features"]), int(header["number of classes"])
    table = np.zeros((n_classes, n_features))
    stored = weights[: width * classes]
    stored = np.pad(stored, (0, width * classes - len(stored))).reshape(classes, width)
    rows, columns = min(classes, n_classes), min(width, n_features)
    table[:rows, :columns] = stored[:rows, :columns]
    return np.ascontiguousarray(table.T) / LOSS_OF_A_MISTAKE


def perf_weights(path: Path, n_features: int) -> Floats:
    """Weights of svm_perf, of shape (n_features, 1)."""
    _, weights = read_model(path)
    result = np.zeros((n_features, 1))
    shared = min(n_features, len(weights))
    result[:shared, 0] = weights[:shared]
    return result
