"""Fits that start from the dual solution of the fit before."""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

from maxmargin.solvers.result import Result


def train_warm(
    model: Any,
    solver: Any,
    training: Any,
    shape: Hashable,
    X: Any,
    y: Any,
    attributes: Callable[[Any], dict[str, Any]],
) -> Result:
    """Train an estimator, with `warm_start` from where its last fit ended, if the shapes are equal.

    Parameters
    ----------
    model : CertifiedEstimator
    solver
        With ``solve(training, ..., start)``.
    training
    shape : hashable
        What must be the same for a dual solution to fit again.
    X, y, attributes
        As in ``CertifiedEstimator._train``.
    """
    known, point = (model.warm_start and getattr(model, "_warm", None)) or (None, None)
    solve = partial(solver.solve, training, start=point if known == shape else None)
    result: Result = model._train(X, y, solve, attributes)
    model._warm = (shape, result.dual_point) if model.warm_start else None
    return result
