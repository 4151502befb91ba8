"""When a solve stops, and what it returns: one rule and one type for every solver."""

import math
import threading
import time
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
        Best values known so far; primal is infinite before the first evaluation.
    cuts : int
        Cutting planes (or non-zero dual variables) kept.
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
        Iterations that were made; the most in any part of a problem that falls into parts.
    history : list of Iteration
        One line an iteration, or a part.
    """

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

    A number as `tol` is a relative duality gap. With ``tol=AbsoluteGap(gap)`` training ends when
    the objective of the weights is certified to be at most `gap` above the optimum, however large
    the objective is. That is how SVMstruct stops: its ``-e`` is a gap of ``c * e``.

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


@dataclass
class Stopping:
    """Bounds on a solve, and its clock.

    Parameters
    ----------
    tol : float
        Relative duality gap that is good enough.
    gap : float
        Duality gap that is good enough, whatever the relative one; minus infinity for none.
    max_iter : int
        Most iterations.
    time_limit : float or None
        Most seconds, counted from when this object is made.
    cancelled : threading.Event
        Set it, from any thread, to stop after the present iteration.
    """

    tol: float = 1e-3
    gap: float = field(default=-math.inf, kw_only=True)
    max_iter: int = 10_000
    time_limit: float | None = None
    cancelled: threading.Event = field(default_factory=threading.Event, repr=False)
    may_be_zero: bool = field(default=True, kw_only=True)
    """Whether zero weights may be the answer. Convex steps of latent problems go on from it, and
    would not get away from there."""
    earlier: float = 0.0
    """Seconds of a solve that this one goes on with; the time limit does not count them."""
    _started: float = field(default_factory=time.perf_counter, repr=False)

    @classmethod
    def within(cls, tol: "float | AbsoluteGap", *bounds: Any) -> "Stopping":
        """Bounds with an estimator's `tol`."""
        if isinstance(tol, AbsoluteGap):
            return cls(0.0, *bounds, gap=tol.gap)
        return cls(tol, *bounds)

    def is_enough(self, primal: float, dual: float) -> bool:
        """Whether weights and a dual point of these values are good enough."""
        certificate = Certificate(primal, dual)
        return certificate.relative_gap <= self.tol or certificate.gap <= self.gap

    def allowed_gap(self, value: float) -> float:
        """The gap that is good enough for an objective of about this value."""
        return max(self.tol * abs(value), self.gap)

    def relative_tol(self, value: float) -> float:
        """The relative gap that is good enough for an objective of about this value."""
        return max(self.tol, self.gap / max(abs(value), TINY))

    @property
    def seconds(self) -> float:
        """Time since the start."""
        return self.earlier + time.perf_counter() - self._started

    @property
    def out_of_time(self) -> bool:
        """Whether the time limit has passed."""
        limit = math.inf if self.time_limit is None else self.time_limit
        return self.seconds - self.earlier > limit

    def reason(self, iterations: int) -> Status | None:
        """Why to stop after so many iterations, whatever the gap; None to go on."""
        if self.cancelled.is_set():
            return Status.INTERRUPTED
        if self.out_of_time:
            return Status.TIME_LIMIT
        if iterations >= self.max_iter:
            return Status.MAX_ITER
        return None

    def share(self, parts: float, n_parts: int) -> "Stopping":
        """The same bounds for one of `n_parts` parts, with `parts` left to share the time."""
        left = self.time_limit
        if left is not None:
            left = max(left - (self.seconds - self.earlier), 0.0) / parts
        gap = self.gap / n_parts
        return Stopping(self.tol, self.max_iter, left, self.cancelled, gap=gap)
