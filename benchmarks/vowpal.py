"""Vowpal Wabbit as a trainer of linear classifiers: one hinge for each class, or costs."""

import math
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from vowpalwabbit import Workspace  # type: ignore[import-untyped]

from benchmarks.common import Floats
from benchmarks.tasks import BINARY, Task


class Wabbit:
    """Vowpal Wabbit with one data set, in a cache file of its own.

    Parameters
    ----------
    task : Task
        Its data; neither way minimises its objective, because regularisation as the steps go
        (``--l2``) is something else, and is left out.
    costs : bool
        Regress the cost of each class (``--csoaa``) instead of a hinge for each class against the
        rest (``--oaa``).
    """

    def __init__(self, task: Task, costs: bool = False) -> None:
        self.task, self.costs = task, costs
        self.n_classes = 1 if task.formulation is BINARY else task.n_classes
        self.folder = Path(tempfile.mkdtemp())
        text, self.cache = self.folder / "train", self.folder / "cache"
        text.write_text(lines(task.data.X, self._labels()))
        self._run(f"-d {text} -k --cache_file {self.cache}")
        text.unlink()

    def __del__(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def train(self, passes: float) -> Floats:
        """Weights of shape (n_features, n_outputs); those of costs with their sign turned."""
        model = self.folder / "model"
        self._run(f"--cache_file {self.cache} --passes {int(passes)} --readable_model {model}")
        weights = self._read(model.read_text())
        return -weights if self.costs else weights

    @property
    def _stride(self) -> int:
        """Places of one feature: its classes, up to a power of two."""
        return 1 << (self.n_classes - 1).bit_length()

    def _labels(self) -> list[str]:
        y = self.task.data.y
        if self.n_classes == 1:
            return ["1" if one else "-1" for one in y]
        if not self.costs:
            return [str(one + 1) for one in y]
        everyone = range(self.n_classes)
        costs = [" ".join(f"{k + 1}:{int(k != one)}" for k in everyone) for one in everyone]
        return [costs[one] for one in y]

    def _run(self, call: str) -> None:
        n_features = self.task.data.X.shape[1]
        bits = max(18, math.ceil(math.log2(n_features * self._stride)))
        options = f"-b {bits} --noconstant --holdout_off --quiet "
        if self.costs:
            options += f"--csoaa {self.n_classes}"
        else:
            options += "--loss_function hinge"
            options += f" --oaa {self.n_classes}" if self.n_classes > 1 else ""
        Workspace(arg_list=f"{call} {options}".split()).finish()

    def _read(self, text: str) -> Floats:
        """Weights of a readable model: feature by feature, classes of each side by side."""
        stride = self._stride
        weights = np.zeros(self.task.data.X.shape[1] * stride)
        after_header = text[text.index("\ncurrent_pass") :].splitlines()
        for line in after_header:
            if line[:1].isdigit():
                place, values = line.split(":")
                weights[int(place)] = float(values.split()[0])
        return np.ascontiguousarray(weights.reshape(-1, stride)[:, : self.n_classes])


def lines(X: Any, labels: list[str]) -> str:
    """Rows in Vowpal Wabbit's format, features named by their numbers."""
    starts, columns, values = X.indptr.tolist(), X.indices.tolist(), X.data.tolist()
    return "".join(
        f"{label} | "
        + " ".join(f"{columns[q]}:{values[q]:.9g}" for q in range(starts[i], starts[i + 1]))
        + "\n"
        for i, label in enumerate(labels)
    )
