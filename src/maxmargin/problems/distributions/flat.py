"""Distributions whose numbers stand in one vector, those of a block side by side."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from maxmargin.dual.compiled import compiled, inlined
from maxmargin.problems.distributions.contract import DistributionPoint, Distributions
from maxmargin.problems.distributions.steps import mixed, places_for, starts_of

Floats = NDArray[np.float64]
Order = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class FlatPoint(DistributionPoint):
    """Probabilities of all blocks, one after the other.

    Parameters
    ----------
    mass : ndarray of shape (n_variables,)
    """

    mass: Floats

    @property
    def n_variables(self) -> int:
        return len(self.mass)

    def copy(self) -> Self:
        return replace(self, mass=self.mass.copy())

    @abstractmethod
    def is_like(self, other: "FlatPoint") -> bool:
        """Whether the numbers of another point of this kind stand for the same."""


class FlatProposals(NamedTuple):
    """The distribution proposed for block ``blocks[k]`` stands in `mass` from ``at[k]`` on."""

    blocks: Order
    at: Order
    mass: Floats
    hinges: Floats
    values: Floats


class FlatDistributions(Distributions):
    """Distributions whose numbers stand in one vector, those of a block side by side.

    Parameters
    ----------
    training : TrainingSet
    point : FlatPoint
        All outputs alike.
    sizes : ndarray of int64, shape (n_blocks,)
        How many numbers each block has.
    """

    point: FlatPoint

    def __init__(self, training: Any, point: FlatPoint, sizes: Order) -> None:
        super().__init__(training)
        self.point = point
        self._sizes, self._first = sizes, starts_of(sizes)

    def _fits(self, start: Any) -> bool:
        return type(start) is type(self.point) and self.point.is_like(start)

    def _set(self, start: FlatPoint) -> None:
        self.point.mass[:] = start.mass

    def _room(self, blocks: Order, for_all: bool) -> FlatProposals:
        at, size = places_for(self._sizes[blocks], for_all)
        return FlatProposals(blocks, at, np.empty(size), *np.empty((2, len(blocks))))

    def _mix(self, step: float) -> None:
        mix_all(self._first, self.point.mass, self._proposals, step)


@inlined
def old_and_new(first, mass, found, k):  # type: ignore[no-untyped-def]
    """The distribution of block ``blocks[k]``, and the one proposed."""
    b = found.blocks[k]
    old = mass[first[b] : first[b + 1]]
    return old, found.mass[found.at[k] : found.at[k] + len(old)]


@compiled
def mix(old, new, step):  # type: ignore[no-untyped-def]
    """``old = (1 - step) * old + step * new``."""
    for j in range(len(old)):
        old[j] = mixed(old[j], new[j], step)


@compiled
def mix_all(first, mass, found, step):  # type: ignore[no-untyped-def]
    """See `Distributions._mix`."""
    for k in range(len(found.blocks)):
        old, new = old_and_new(first, mass, found, k)
        mix(old, new, step)
