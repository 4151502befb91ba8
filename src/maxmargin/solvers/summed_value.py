"""Primal and dual value of a problem whose examples come block by block.

The same functions as for data in memory (`maxmargin.core.linear`), summed up over the blocks;
no solver's bookkeeping enters.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.linear import LinearProblem, OneVersusRest

Floats = NDArray[np.float64]


def parts_of(problem: LinearProblem | OneVersusRest) -> tuple[LinearProblem, ...]:
    """The independent problems that a problem falls into; often it is the only one."""
    return problem.parts if isinstance(problem, OneVersusRest) else (problem,)


class SummedValue:
    """Values of some weights, and of one dual point, summed up over blocks of examples.

    Parameters
    ----------
    candidates : sequence of list of ndarray of shape (n_features + 1, n_outputs)
        Weights to value: for each candidate one array for each part of the problem.
    """

    def __init__(self, candidates: Sequence[list[Floats]]) -> None:
        self.candidates = candidates
        n_parts = len(candidates[0])
        self._losses = np.zeros((n_parts, len(candidates)))
        self._linear = [0.0] * n_parts
        self._sums: list[Floats] = [np.zeros_like(weights) for weights in candidates[0]]
        self._geometry: tuple[LinearProblem, ...] = ()

    def add(
        self, batch: LinearProblem | OneVersusRest, dual_coefs: Sequence[Floats | None]
    ) -> None:
        """Count the examples of a block; None stands for coefficients that are all zero."""
        parts = parts_of(batch)
        nothing = np.zeros(0, dtype=np.intp)
        if not self._geometry:
            self._geometry = tuple(part.some(nothing) for part in parts)
        for m, (part, dual_coef) in enumerate(zip(parts, dual_coefs, strict=True)):
            for c, candidate in enumerate(self.candidates):
                self._losses[m, c] += part.total_loss(candidate[m])
            if dual_coef is not None:
                self._linear[m] += part.linear(dual_coef)
                self._sums[m] += replace(part, origin=None).unclipped_weights(dual_coef)

    def primals(self) -> Floats:
        """Objective values of shape (n_parts, n_candidates)."""
        penalties = [
            [part.penalty(candidate[m]) for candidate in self.candidates]
            for m, part in enumerate(self._geometry)
        ]
        return np.asarray(penalties) + self._losses

    def unclipped(self) -> list[Floats]:
        """``u(B)`` of each part."""
        return [
            sums.copy() if part.origin is None else part.origin + sums
            for part, sums in zip(self._geometry, self._sums, strict=True)
        ]

    def dual(self) -> float:
        """Dual value."""
        values = zip(self._geometry, self._linear, self.unclipped(), strict=True)
        return sum(part.dual_of_sums(linear, unclipped) for part, linear, unclipped in values)
