"""Nesterov's extrapolation between sweeps of a dual method."""

import math
from typing import Protocol

from maxmargin.core.state import Stateful

SWEEPS_PER_EXTRAPOLATION = 3
"""Sweeps between extrapolations; three see a steadier direction, at a third of the price."""


class Extrapolable(Protocol):
    """A dual state that can be moved on along its last moves, and back."""

    @property
    def dual(self) -> float:
        """Dual value."""

    def extrapolate(self, momentum: float) -> None:
        """Go on by `momentum` times the move since the last call, as far as is feasible."""

    def revert(self) -> None:
        """Back to where the last call of `extrapolate` started."""

    def restart(self) -> None:
        """Forget the moves so far."""


class Momentum(Stateful):
    """Extrapolates now and then, and undoes and restarts whenever the dual would fall."""

    state_names = ("sweeps", "t", "dual", "dual_before", "extrapolated")

    def __init__(self, state: Extrapolable, enabled: bool = True) -> None:
        self.state = state
        self.enabled = enabled
        self.sweeps, self.t = 0, 1.0
        self.dual = self.dual_before = -math.inf
        self.extrapolated = False

    def check_state(self) -> None:
        """Refuse a weight that no extrapolation has."""
        if not 1.0 <= self.t < math.inf or self.sweeps < 0:
            raise ValueError("the extrapolation is none")

    def restart(self) -> None:
        """Begin anew from where the state is."""
        self.state.restart()
        self.sweeps, self.t = 0, 1.0

    def apply(self) -> None:
        """Before a sweep: extrapolate, if it is time to."""
        if self.enabled and self.sweeps == 0:
            following = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * self.t**2))
            self.dual_before = self.dual
            self.extrapolated = self.t > 1.0
            self.state.extrapolate((self.t - 1.0) / following)
            self.t = following

    def settle(self, early: bool = False) -> bool:
        """After a sweep: was it the last before the next extrapolation? Then undo a loss."""
        self.sweeps += 1
        self.dual = self.state.dual
        if self.enabled and self.sweeps < SWEEPS_PER_EXTRAPOLATION and not early:
            return False
        self.sweeps = 0
        # Exact steps alone lose nothing but rounding errors, and undoing those would never end.
        if self.enabled and self.extrapolated and self.dual < self.dual_before:
            self.state.revert()
            self.dual = self.dual_before
            self.t = 1.0
        return True
