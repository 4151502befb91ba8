"""Products with, and sums of, cutting planes, compiled: what steps on the dual are made of."""

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.compiled.gathers import add_scattered, gathered_product
from maxmargin.core.cuts import Cuts


def slopes(cuts: Cuts, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """``loss - <w, psi>`` of each cut: the derivatives of the dual by their coefficients."""
    out = np.empty(len(cuts.losses))
    set_slopes(cuts.starts, cuts.columns, cuts.values, cuts.losses, weights, out)
    return out


def add_to(weights: NDArray[np.float64], cuts: Cuts, coef: NDArray[np.float64]) -> None:
    """``weights += sum_k coef_k psi_k``."""
    add_cuts(cuts.starts, cuts.columns, cuts.values, coef, weights)


@inlined
def cut_product(start, stop, columns, values, weights):  # type: ignore[no-untyped-def]
    """``<w, psi>`` of the cutting plane with these entries."""
    return gathered_product(start, stop, columns, values, weights)


@inlined
def add_cut(start, stop, columns, values, coef, weights):  # type: ignore[no-untyped-def]
    """``weights += coef * psi``."""
    add_scattered(start, stop, columns, values, weights, coef)


@compiled
def set_slopes(starts, columns, values, losses, weights, out):  # type: ignore[no-untyped-def]
    """Set ``out[k] = loss_k - <w, psi_k>``."""
    for k in range(len(losses)):
        out[k] = losses[k] - cut_product(starts[k], starts[k + 1], columns, values, weights)


@compiled
def add_cuts(starts, columns, values, coef, weights):  # type: ignore[no-untyped-def]
    """``weights += sum_k coef_k psi_k``."""
    for k in range(len(coef)):
        if coef[k] != 0.0:
            add_cut(starts[k], starts[k + 1], columns, values, coef[k], weights)
