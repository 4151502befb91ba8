"""LIBLINEAR, the peer: trained through its own Python interface, on features prepared once."""

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import NO_PEER, Floats, say

try:
    from liblinear import liblinear as binding
    from liblinear import liblinearutil
except ImportError:
    binding = liblinearutil = None

CRAMMER_SINGER, HINGE, REGRESSION = 4, 3, 13
"""Its solvers: ``-s 4``, ``-s 3`` and ``-s 13``."""


def installed() -> bool:
    """Whether it is there; says so if not."""
    if liblinearutil is None:
        say(f"{NO_PEER}: `pip install liblinear-official`; its part is skipped")
    return liblinearutil is not None


@dataclass(frozen=True)
class Model:
    """A trained model and what LIBLINEAR printed while it trained."""

    raw: Any
    output: str

    @property
    def limits_hit(self) -> int:
        """How many of its (binary) problems ended at the limit of iterations."""
        return self.output.count("WARNING: reaching max number of iterations")

    def weights(self) -> Floats:
        """Weights of shape (n_features, n_outputs), classes in the order 0, 1, ..."""
        solver, n_features = self.raw.param.solver_type, self.raw.get_nr_feature()
        n_classes = self.raw.get_nr_class()
        alone = solver == REGRESSION or (solver == HINGE and n_classes == 2)
        shape = n_features, 1 if alone else n_classes
        stored: Floats = np.ctypeslib.as_array(self.raw.w, shape=shape).copy()
        if solver == REGRESSION:
            return stored
        labels = self.raw.get_labels()
        if alone:  # positive means the class that LIBLINEAR met first
            return stored if labels[0] == 1 else -stored
        weights = np.empty_like(stored)
        weights[:, labels] = stored
        return weights


class Liblinear:
    """LIBLINEAR with one data set, converted to its own format here and never again."""

    def __init__(self, X: Any, y: NDArray[Any]) -> None:
        self.problem = liblinearutil.problem(y, X)

    def train(self, solver: int, C: float, e: float | None, epsilon: float = 0.0) -> Model:
        """Train to a tolerance ``-e`` (None: its default).

        It draws random numbers from the C library; these start here as they do in a new process,
        so that runs repeat.
        """
        options = f"-s {solver} -c {C!r} -p {epsilon!r}" + ("" if e is None else f" -e {e!r}")
        parameter = liblinearutil.parameter(options)
        printed: list[bytes] = []
        parameter.print_func = binding.PRINT_STRING_FUN(printed.append)
        ctypes.CDLL(None).srand(1)
        raw = liblinearutil.train(self.problem, parameter)
        return Model(raw, b"".join(printed).decode())
