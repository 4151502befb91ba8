"""Planes: what a search finds, as sparse vectors.

For any weights ``w``, the hinge of a block is at least ``loss - <w, psi>`` for each of its planes
``(psi, loss)``, whatever weights it was found at.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.compiled.gathers import add_scattered, gathered_product

Floats = NDArray[np.float64]


class Cuts(NamedTuple):
    """Planes of a batch of blocks, one for each.

    Plane ``k`` has the entries ``values[starts[k]:starts[k + 1]]`` at `columns`. A column may
    occur more than once; its values then add up. `outputs` are what the planes are planes of,
    in whatever form the problem gives them: from an output the plane can be made again.

    `suboptimality` is how far the hinge of each block may lie above its plane, at the weights that
    were searched; None, for a search that finds the highest, is nowhere.
    """

    starts: NDArray[np.int64]
    columns: NDArray[np.uint32]
    values: Floats
    losses: Floats
    outputs: list[Any]
    suboptimality: Floats | None = None

    def slopes(self, weights: Floats) -> Floats:
        """``loss - <w, psi>`` of each plane."""
        out = np.empty(len(self.losses))
        cut_slopes(self.starts, self.columns, self.values, self.losses, weights, out)
        return out

    def take(self, which: NDArray[np.int64]) -> "Cuts":
        """Some of the planes, as planes; what was not found by their search does not matter."""
        counts = np.diff(self.starts)[which]
        starts = np.zeros(len(which) + 1, dtype=np.int64)
        np.cumsum(counts, out=starts[1:])
        entries = np.arange(starts[-1]) + np.repeat(self.starts[which] - starts[:-1], counts)
        return Cuts(
            starts,
            self.columns[entries],
            self.values[entries],
            self.losses[which],
            [self.outputs[k] for k in which],
        )

    def add_to(self, weights: Floats, coef: Floats) -> None:
        """``weights += sum_k coef_k psi_k``."""
        add_cuts(self.starts, self.columns, self.values, coef, weights)


@inlined
def cut_product(start, stop, columns, values, weights):  # type: ignore[no-untyped-def]
    """``<w, psi>`` of the plane with these entries."""
    return gathered_product(start, stop, columns, values, weights)


@inlined
def add_cut(start, stop, columns, values, coef, weights):  # type: ignore[no-untyped-def]
    """``weights += coef * psi``."""
    add_scattered(start, stop, columns, values, weights, coef)


@compiled
def cut_slopes(starts, columns, values, losses, weights, out):  # type: ignore[no-untyped-def]
    """Set ``out[k] = loss_k - <w, psi_k>``."""
    for k in range(len(losses)):
        out[k] = losses[k] - cut_product(starts[k], starts[k + 1], columns, values, weights)


@compiled
def add_cuts(starts, columns, values, coef, weights):  # type: ignore[no-untyped-def]
    """``weights += sum_k coef_k psi_k``."""
    for k in range(len(coef)):
        if coef[k] != 0.0:
            add_cut(starts[k], starts[k + 1], columns, values, coef[k], weights)
