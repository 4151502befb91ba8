"""Certificates: primal and dual values between which the optimum lies."""

import math
import sys
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from maxmargin.core.arrays import Floats, Order, check_indices, check_shape
from maxmargin.core.registry import registered


class CertifiableProblem(Protocol):
    """A problem that can evaluate weights and dual points from the data alone."""

    def primal(self, weights: Floats, /) -> float: ...

    def dual(self, dual_point: Any, /) -> float: ...

    @property
    def exact(self) -> bool: ...


@registered("Certificate")
@dataclass(frozen=True)
class Certificate:
    """Two numbers with the optimum between them.

    Parameters
    ----------
    primal : float
        Objective of the weights that are returned.
    dual : float
        Value of a feasible dual point: no weights can have an objective below it.
    relaxed : bool
        Whether `primal` is an upper bound of the objective, because inference is relaxed.
    at_zero : float or None
        Objective of zero weights, unless `primal` is below it by the tolerance asked for: then the
        weights are hardly worth more than none.

    Examples
    --------
    >>> from maxmargin import Certificate
    >>> certificate = Certificate(primal=10.0, dual=9.5)
    >>> certificate.gap, certificate.relative_gap
    (0.5, 0.05)
    """

    primal: float
    dual: float
    relaxed: bool = False
    at_zero: float | None = field(default=None, compare=False)

    @property
    def gap(self) -> float:
        """``primal - dual``: the weights are at most this far above the optimum."""
        return self.primal - self.dual

    @property
    def relative_gap(self) -> float:
        """The gap divided by the larger of the two values; this is what ``tol`` bounds."""
        return relative_gap(self.primal, self.dual)

    def __add__(self, other: "Certificate") -> "Certificate":
        """Certificate of two independent problems solved side by side."""
        at_zero = None
        if self.at_zero is not None and other.at_zero is not None:
            at_zero = self.at_zero + other.at_zero
        return Certificate(
            self.primal + other.primal,
            self.dual + other.dual,
            self.relaxed or other.relaxed,
            at_zero,
        )

    def compared_with_zero(self, at_zero: float, tol: float) -> "Certificate":
        """The same, with the objective of zero weights noted if it is not clearly higher."""
        close = self.primal > (1.0 - tol) * at_zero
        return replace(self, at_zero=at_zero if close else None)

    def __str__(self) -> str:
        return (
            f"primal {self.primal:.6g}, dual {self.dual:.6g}, relative gap {self.relative_gap:.1e}"
            f"{' (relaxed)' if self.relaxed else ''}"
        )


def relative_gap(primal: float, dual: float) -> float:
    """The gap divided by the larger of the two values; infinite before there are any."""
    gap = primal - dual
    if not math.isfinite(gap):
        return math.inf
    return gap / max(abs(primal), abs(dual), sys.float_info.min)


def certify(problem: CertifiableProblem, weights: Floats, dual_point: Any) -> Certificate:
    """Evaluate any `weights` and any feasible `dual_point` from the data alone."""
    return Certificate(
        primal=problem.primal(weights), dual=problem.dual(dual_point), relaxed=not problem.exact
    )


@registered("DualPoint", check="check")
class DualPoint(NamedTuple):
    """Coefficients of outputs, not negative; those of an example add up to at most its C."""

    examples: Order
    coef: Floats
    outputs: list[Any]

    def check(self) -> None:
        """Raise ValueError if the numbers of examples, outputs and coefficients differ."""
        check_shape("examples", self.examples, len(self.outputs))
        check_shape("coef", self.coef, len(self.outputs))
        check_indices("examples", self.examples, 2**62)

    def feasible(self, C: Floats) -> "DualPoint":
        """The point, scaled down in examples where it exceeds their C."""
        coef = np.maximum(self.coef, 0.0)
        used = np.bincount(self.examples, weights=coef, minlength=len(C))
        over = used > C
        scale = np.ones(len(C))
        scale[over] = C[over] / used[over]
        return self._replace(coef=coef * scale[self.examples])

    def feasible_coef(self, C: Floats) -> Floats:
        """Coefficients of a point that is feasible up to rounding; ValueError for others."""
        coef = self.feasible(C).coef
        if not np.allclose(coef, self.coef, rtol=1e-9, atol=0.0):
            raise ValueError("The dual point is not feasible.")
        return coef
