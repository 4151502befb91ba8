"""Planes summed over all blocks, for the methods with one slack."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled
from maxmargin.core.certificate import DualPoint
from maxmargin.core.checks import check_shape
from maxmargin.core.registry import registered
from maxmargin.core.state import Stateful
from maxmargin.dual.simplex import frank_wolfe_step, pairwise_steps

Floats = NDArray[np.float64]

MOST_STEPS = 20_000
DENSE_ABOVE = 0.5
"""Share of non-zeros above which a plane is kept as a dense vector."""


class SummedCut(NamedTuple):
    """One plane, and the outputs that it is the sum of.

    Parameters
    ----------
    vector : ndarray of shape (n_features,)
    loss : float
    recipe : DualPoint
        Coefficients of outputs with which ``vector = sum coef * psi``.
    """

    vector: Floats
    loss: float
    recipe: DualPoint


@registered("SummedPlanes")
class _Kept(NamedTuple):
    """Planes with all that is known of them, replaced as a whole: Ctrl-C may come at any moment."""

    vectors: tuple[Any, ...] = ()
    recipes: tuple[DualPoint, ...] = ()
    losses: Floats = np.zeros(0)
    coef: Floats = np.zeros(0)
    idle: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
    gram: Floats = np.zeros((0, 0))


class SummedCuts(Stateful):
    """A few planes, their Gram matrix, and coefficients that add up to at most one."""

    state_names = ("kept",)

    def __init__(self) -> None:
        self.kept = _Kept()

    def check_state(self) -> None:
        """Refuse cutting planes that are not as many as their coefficients."""
        kept = self.kept
        for name in ("losses", "coef", "idle"):
            check_shape(name, getattr(kept, name), len(self))
        check_shape("gram", kept.gram, len(self), len(self))
        if len(kept.recipes) != len(self) or not all(hasattr(v, "shape") for v in kept.vectors):
            raise ValueError("the summed cutting planes are not as many as what they are made of")

    def __len__(self) -> int:
        return len(self.kept.vectors)

    @property
    def used(self) -> list[tuple[float, DualPoint]]:
        """Coefficients that are not zero, with what their planes are made of."""
        kept = self.kept
        return [(c, r) for c, r in zip(kept.coef, kept.recipes, strict=True) if c > 0.0]

    @property
    def slopes(self) -> Floats:
        """``loss - <w, psi>`` of each plane."""
        kept = self.kept
        return np.asarray(kept.losses - kept.gram @ kept.coef)

    @property
    def dual(self) -> float:
        """Dual value of the coefficients."""
        kept = self.kept
        return float(kept.losses @ kept.coef) - 0.5 * float(kept.coef @ kept.gram @ kept.coef)

    def add(self, cut: SummedCut, coef: float = 0.0) -> None:
        """Take a plane in."""
        kept, vector = self.kept, cut.vector
        m = len(self)
        gram = np.empty((m + 1, m + 1))
        gram[:m, :m] = kept.gram
        gram[m, :m] = gram[:m, m] = [_product(old, vector) for old in kept.vectors]
        gram[m, m] = float(vector @ vector)
        dense = np.count_nonzero(vector) > DENSE_ABOVE * len(vector)
        self.kept = _Kept(
            vectors=(*kept.vectors, vector if dense else sp.csr_array(vector[None, :])),
            recipes=(*kept.recipes, cut.recipe),
            losses=np.append(kept.losses, cut.loss),
            coef=np.append(kept.coef, coef),
            idle=np.append(kept.idle, 0),
            gram=gram,
        )

    def solve(self, tolerance: float) -> None:
        """Maximise the dual over the coefficients until no pair violates by `tolerance`."""
        kept = self.kept
        _solve(kept.gram.ravel(), len(self), self.slopes, kept.coef, tolerance, MOST_STEPS)

    def step_towards_best(self) -> None:
        """One exact step of the dual towards the plane of the largest slope."""
        kept = self.kept
        _step(kept.gram.ravel(), len(self), self.slopes, kept.coef)

    def drop_idle(self, max_idle: int) -> None:
        """Drop the planes whose coefficient was zero at each of the last `max_idle` calls."""
        old = self.kept
        idle = np.where(old.coef > 0.0, 0, old.idle + 1)
        stay = np.flatnonzero((idle == 0) | (idle < max_idle))
        self.kept = _Kept(
            vectors=tuple(old.vectors[j] for j in stay),
            recipes=tuple(old.recipes[j] for j in stay),
            losses=old.losses[stay],
            coef=old.coef[stay],
            idle=idle[stay],
            gram=np.ascontiguousarray(old.gram[np.ix_(stay, stay)]),
        )

    def set_weights(self, weights: Floats) -> None:
        """``weights = sum coef * psi``."""
        weights[:] = 0.0
        for coef, vector in zip(self.kept.coef, self.kept.vectors, strict=True):
            if coef > 0.0:
                if sp.issparse(vector):
                    weights[vector.indices] += coef * vector.data
                else:
                    weights += coef * vector


def _product(old: Any, vector: Floats) -> float:
    if sp.issparse(old):
        return float(old.data @ vector[old.indices])
    return float(old @ vector)


@compiled
def _solve(gram, size, slopes, coef, tolerance, max_steps):  # type: ignore[no-untyped-def]
    gain, _ = pairwise_steps(gram, 0, size, size, slopes, coef, 1.0, tolerance, max_steps)
    return gain


@compiled
def _step(gram, size, slopes, coef):  # type: ignore[no-untyped-def]
    return frank_wolfe_step(gram, 0, size, size, slopes, coef, 1.0, False)
