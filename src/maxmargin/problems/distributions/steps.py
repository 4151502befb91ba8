"""What the kernels of all distributions have in common: moves, and how far to go."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.dual.compiled import inlined

Order = NDArray[np.int64]

LONGEST = 1.0 - float(np.finfo(np.float64).eps)
"""Longest step at a temperature above zero: it leaves a trace of every output."""

LINE_SEARCH = -1.0
"""Stands for a step size in kernels: look for the best one."""


class Move(NamedTuple):
    """What a kernel does with each block.

    Parameters
    ----------
    proposes, steps : bool
        Find the distribution to go towards; go there.
    temperature : float
        That of the proposals.
    fixed_step : float
        A step size or `LINE_SEARCH`.
    """

    proposes: bool
    steps: bool
    temperature: float
    fixed_step: float


@inlined
def best_step(slope, square, longest):  # type: ignore[no-untyped-def]
    """The step in [0, longest] with the largest ``slope * step - 1/2 square * step^2``."""
    if square * longest > slope:
        return max(slope / square, 0.0)
    return longest if slope > 0.0 else 0.0


@inlined
def step_size(move, slope, square):  # type: ignore[no-untyped-def]
    """The step of a move along which the dual grows by ``slope * step - 1/2 square * step^2``."""
    if move.fixed_step >= 0.0:
        return move.fixed_step
    return best_step(slope, square, LONGEST if move.temperature > 0.0 else 1.0)


@inlined
def mixed(old, new, step):  # type: ignore[no-untyped-def]
    """``(1 - step) * old + step * new``, exact but for the last digit however small they are.

    Without the maximum, LLVM would make ``old + step * (new - old)`` of it. That rounds in units of
    the larger one, which may be all there is of the sum where the step is close to one.
    """
    return max(1.0 - step, 0.0) * old + step * new


def starts_of(sizes: NDArray[Any]) -> Order:
    """Where each of some parts of these sizes starts, and the last one ends."""
    starts = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=starts[1:])
    return starts


def places_for(sizes: Order, for_all: bool) -> tuple[Order, int]:
    """Where things of these sizes go, side by side or all to one place, and the room they take."""
    if for_all:
        starts = starts_of(sizes)
        return starts[:-1], int(starts[-1])
    return np.zeros(len(sizes), dtype=np.int64), int(sizes.max(initial=0))
