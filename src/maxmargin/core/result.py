"""What a solve returns, and when it may stop."""

import math
from dataclasses import dataclass, field
from enum import StrEnum
from numbers import Real
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
        Oracle calls so far; for explicit classes, block updates.
    cache_hits : int
        Updates with cached cutting planes instead (explicit classes have none).
    primal, dual : float
        Best values so far; primal is infinite before the first evaluation.
    cuts : int
        Cutting planes (or non-zero dual variables) kept.
    objective : float
        Objective of the weights of this iteration: evaluated over all examples if `exact`, else
        estimated, as the solver's page says, and no bound.
    exact : bool
        Whether the objective was evaluated over all examples in this iteration.
    stage : str
        Which part of a fit in several parts this is, such as ``3 of 10 classes``.
    done : float
        Share of the work that is done, of a fit in parts; zero where only the gap tells.
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

    @property
    def relative_gap(self) -> float:
        """Relative duality gap of the values of this iteration, as the solver sees them."""
        return Certificate(self.primal, self.dual).relative_gap

    @property
    def objective_gap(self) -> float:
        """Relative gap between `objective` and `dual`; a guess, no bound, unless `exact`."""
        return Certificate(self.objective, self.dual).relative_gap


@registered("Result")
@dataclass(frozen=True)
class Result:
    """Weights or model, certificate, status, and the dual point for a warm start."""

    weights: NDArray[np.float64]
    dual_point: Any
    certificate: Certificate
    status: Status
    iterations: int
    history: list[Iteration] = field(repr=False)


TINY = 1e-300


@registered("AbsoluteGap")
@dataclass(frozen=True)
class AbsoluteGap:
    """A tolerance in the units of the objective, for the parameter `tol` of any estimator.

    Training ends when the weights are certified to be at most `gap` above the optimum; a number as
    `tol` is a relative gap. That is how SVMstruct stops: its ``-e`` is a gap of ``c * e``.

    Parameters
    ----------
    gap : float
        Primal minus dual objective that is good enough; positive and finite.

    See Also
    --------
    Certificate : ``certificate_.gap`` is what it bounds.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> import maxmargin as mm
    >>> X, y = load_iris(return_X_y=True)
    >>> model = mm.LinearClassifier(tol=mm.AbsoluteGap(0.5)).fit(X, y)
    >>> model.status_, model.certificate_.gap <= 0.5
    ('converged', True)
    """

    gap: float

    def __post_init__(self) -> None:
        if not (isinstance(self.gap, Real) and 0.0 < self.gap < math.inf):
            raise ValueError(f"gap is {self.gap!r}, but must be a positive number.")

    def __format__(self, spec: str) -> str:
        return f"AbsoluteGap({self.gap:{spec}})"
