"""Planes summed over all blocks, for the methods with one slack."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.dual.compiled import compiled
from maxmargin.dual.simplex import frank_wolfe_step, pairwise_steps
from maxmargin.dual.working_set import DualPoint

Floats = NDArray[np.float64]

MOST_STEPS = 20_000
DENSE_ABOVE = 0.5
"""Share of non-zeros above which a plane is kept as a dense vector."""


class SummedPlane(NamedTuple):
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


class SummedPlanes:
    """A few planes, their Gram matrix, and coefficients that add up to at most one.

    Parameters
    ----------
    n_features : int
    """

    def __init__(self, n_features: int) -> None:
        self.n_features = n_features
        self.vectors: list[Any] = []
        self.recipes: list[DualPoint] = []
        self.losses = np.zeros(0)
        self.coef = np.zeros(0)
        self.idle = np.zeros(0, dtype=np.int64)
        self.gram = np.zeros((0, 0))

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def slopes(self) -> Floats:
        """``loss - <w, psi>`` of each plane."""
        return np.asarray(self.losses - self.gram @ self.coef)

    @property
    def linear(self) -> float:
        """``sum(coef * loss)``."""
        return float(self.losses @ self.coef)

    @property
    def dual(self) -> float:
        """Dual value of the coefficients."""
        return self.linear - 0.5 * float(self.coef @ self.gram @ self.coef)

    def add(self, plane: SummedPlane, coef: float = 0.0) -> None:
        """Take a plane in."""
        vector = plane.vector
        products = np.array([float(_product(old, vector)) for old in self.vectors])
        m = len(self)
        gram = np.empty((m + 1, m + 1))
        gram[:m, :m] = self.gram
        gram[m, :m] = gram[:m, m] = products
        gram[m, m] = float(vector @ vector)
        self.gram = gram
        dense = np.count_nonzero(vector) > DENSE_ABOVE * len(vector)
        self.vectors.append(vector if dense else sp.csr_array(vector[None, :]))
        self.recipes.append(plane.recipe)
        self.losses = np.append(self.losses, plane.loss)
        self.coef = np.append(self.coef, coef)
        self.idle = np.append(self.idle, 0)

    def solve(self, tolerance: float) -> None:
        """Maximise the dual over the coefficients until no pair violates by `tolerance`."""
        slopes = self.slopes
        _solve(self.gram.ravel(), len(self), slopes, self.coef, tolerance, MOST_STEPS)

    def step_towards_best(self) -> None:
        """One exact step of the dual towards the plane of the largest slope."""
        _step(self.gram.ravel(), len(self), self.slopes, self.coef)

    def drop_idle(self, max_idle: int) -> None:
        """Drop the planes whose coefficient was zero at each of the last `max_idle` calls."""
        self.idle = np.where(self.coef > 0.0, 0, self.idle + 1)
        kept = np.flatnonzero((self.idle == 0) | (self.idle < max_idle))
        if len(kept) < len(self):
            self.vectors = [self.vectors[j] for j in kept]
            self.recipes = [self.recipes[j] for j in kept]
            self.losses, self.coef, self.idle = self.losses[kept], self.coef[kept], self.idle[kept]
            self.gram = np.ascontiguousarray(self.gram[np.ix_(kept, kept)])

    def set_weights(self, weights: Floats) -> None:
        """``weights = sum coef * psi``."""
        weights[:] = 0.0
        for coef, vector in zip(self.coef, self.vectors, strict=True):
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
