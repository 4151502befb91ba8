"""What every solver returns."""

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.certificate import Certificate
from maxmargin.core.registry import registered


class Status(StrEnum):
    """Why a solver stopped."""

    CONVERGED = "converged"
    RELAXED = "relaxed"
    MAX_ITER = "max_iter"
    PASSES = "passes"
    TIME_LIMIT = "time_limit"
    INTERRUPTED = "interrupted"
    STOPPED = "stopped by a callback"
    FAILED = "failed"


@registered("Round")
@dataclass(frozen=True)
class Iteration:
    """One line of a fit's history.

    Parameters
    ----------
    seconds : float
        Since the solver started.
    oracle_calls : int
        Searches for a most violating output so far; for explicit classes, visits of examples.
    cache_hits : int
        Of those, answered from cached planes (explicit classes have none).
    primal, dual : float
        Best values known so far; primal is infinite before the first evaluation.
    cuts : int
        Planes (or non-zero dual variables) kept.
    objective : float
        Objective of the weights of this iteration, finite in every iteration: evaluated over all
        examples if `exact`, else estimated.
    exact : bool
        Whether the objective was evaluated over all examples in this iteration. Otherwise it is
        what the oracle calls of the pass, made at weights that have changed since, or the working
        set let expect, and no bound. Each solver says in its documentation what it is.
    stage : str
        Which part of a fit in several parts this is, such as ``3 of 10 classes``.
    done : float
        Share of the work that is done, of a fit in parts; zero where only the gap tells.
    expected : float, default=None
        What model files of earlier versions have for `objective`, which takes it over; then None.
    """

    seconds: float
    oracle_calls: int
    cache_hits: int
    primal: float
    dual: float
    cuts: int
    objective: float = math.inf
    exact: bool = False
    stage: str = ""
    done: float = 0.0
    expected: float | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.expected is not None:
            object.__setattr__(self, "objective", self.expected)
            object.__setattr__(self, "expected", None)

    @property
    def relative_gap(self) -> float:
        """Relative duality gap of this round's values, as the solver sees them."""
        return Certificate(self.primal, self.dual).relative_gap

    @property
    def objective_gap(self) -> float:
        """Relative gap between `objective` and `dual`; a guess, no bound, unless `exact`."""
        return Certificate(self.objective, self.dual).relative_gap


@registered("Result")
@dataclass(frozen=True)
class Result:
    """Weights, how good they are, why the solver stopped, and what a warm start needs.

    Parameters
    ----------
    weights : ndarray
        Of a linear problem of shape (n_features + 1, n_outputs), the last row for the constant
        feature; of a structured problem of shape (n_features,).
    dual_point : ndarray of shape (n_samples, n_outputs) or DualPoint
        Dual coefficients: the state from which a further solve can start.
    certificate : Certificate
    status : Status
    iterations : int
        Rounds that were made; the most in any part of a problem that falls into parts.
    history : list of Round
        One line a round, or a part.
    """

    weights: NDArray[np.float64]
    dual_point: Any
    certificate: Certificate
    status: Status
    iterations: int
    history: list[Iteration] = field(repr=False)
