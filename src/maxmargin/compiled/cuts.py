"""Products with, and sums of, cutting planes, compiled: what steps on the dual are made of."""

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.compiled.gathers import add_scattered, gathered_product
from maxmargin.core.cuts import Cuts


def add_to(weights: NDArray[np.float64], cuts: Cuts, coef: NDArray[np.float64]) -> None:
    """``weights += sum_k coef_k psi_k``."""
    add_cuts(cuts.starts, cuts.columns, cuts.values, coef, weights)


@inlined
def cut_product(start, stop, columns, values, weights):  # type: ignore[no-untyped-def]
    """``<w, psi>`` of the plane with these entries."""
    return gathered_product(start, stop, columns, values, weights)


@inlined
def add_cut(start, stop, columns, values, coef, weights):  # type: ignore[no-untyped-def]
    """``weights += coef * psi``."""
    add_scattered(start, stop, columns, values, weights, coef)


@compiled
def add_cuts(starts, columns, values, coef, weights):  # type: ignore[no-untyped-def]
    """``weights += sum_k coef_k psi_k``."""
    for k in range(len(coef)):
        if coef[k] != 0.0:
            add_cut(starts[k], starts[k + 1], columns, values, coef[k], weights)
