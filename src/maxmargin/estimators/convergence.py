"""Why a fit stopped before its gap was closed, as far as the data tell, and what to do about it."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from maxmargin.core.arrays import Floats
from maxmargin.core.certificate import DualPoint
from maxmargin.core.result import Result

LARGE_FEATURE = 100.0
"""Features above this are likely to be the cause."""

LARGE_SCALE_RATIO = 1000.0
"""So is one column whose largest value is so many times that of another."""

LARGE_RELATIVE_GAP = 0.1
"""Relative gap of a fit that went nowhere."""

AT_BOUND, FEW_AT_BOUND = 0.99, 0.05
"""Part of C from which on a dual variable is at its bound; C is too large if fewer are there."""

MOST_INPUTS, MOST_ROWS = 1000, 10_000
"""Of which the features are examined."""

SCALE_THEM = "scaled to about 1, for example by sklearn.preprocessing.MaxAbsScaler"


class NotConvergedWarning(ConvergenceWarning):
    """A fit stopped early, or found nothing better than zero weights; `cause` ends `message`."""

    def __init__(self, message: str, cause: str = "") -> None:
        super().__init__(f"{message} {cause}".rstrip())
        self.cause = cause


def likely_cause(X: Any, result: Result, C: float, asked: bool) -> str:
    """A sentence or two about the likely cause and its cure, or an empty string.

    `X` is a matrix, or a list of inputs that are matrices or begin with one; all else has no
    features to examine. If the limit was `asked` for, only a fit that went nowhere is explained, by
    features.
    """
    gap = result.certificate.relative_gap
    if asked and not gap > LARGE_RELATIVE_GAP:
        return ""
    blamed = _blamed_features(feature_scales(X))
    if blamed or asked:
        return blamed
    if gap > LARGE_RELATIVE_GAP and _is_too_large(C, result.dual_point):
        return (
            f"The likely cause is C={C:g}: hardly any dual variable has reached it, so that it is "
            f"larger than the data can use, and the dual grows slowly. Try one a hundred times "
            f"smaller."
        )
    return "A larger max_iter lets it train on; a larger tol lets it end sooner."


def _blamed_features(scales: Floats) -> str:
    used = scales[scales > 0.0]
    largest, smallest = used.max(initial=0.0), used.min(initial=np.inf)
    if largest > LARGE_FEATURE:
        others = (
            f", others at most {smallest:.3g}" if largest > LARGE_SCALE_RATIO * smallest else ""
        )
        return (
            f"The likely cause: features are as large as {largest:.3g}{others}. If they are "
            f"{SCALE_THEM}, training is fast."
        )
    if largest > LARGE_SCALE_RATIO * smallest:
        return (
            f"The likely cause: features have very different scales, up to {largest:.3g} in one "
            f"column and up to {smallest:.3g} in another. If they are {SCALE_THEM}, training is "
            f"fast."
        )
    return ""


def feature_scales(X: Any) -> Floats:
    """The largest absolute value in each column of the first rows; empty without numbers."""
    scales = np.zeros(0)
    for matrix in _matrices(X):
        rows = matrix[:MOST_ROWS]
        found = abs(rows).max(axis=0)
        found = found.toarray().ravel() if sp.issparse(found) else np.asarray(found)
        if len(scales) in (0, len(found)):
            scales = np.maximum(scales, found) if len(scales) else found.astype(np.float64)
    return scales


def _matrices(X: Any) -> Iterator[Any]:
    """Matrices of numbers among inputs."""
    if (matrix := _as_matrix(X)) is not None:
        yield matrix
    elif isinstance(X, list | tuple):
        for one in islice(X, MOST_INPUTS):
            matrix = _as_matrix(one[0] if isinstance(one, tuple) and one else one)
            if matrix is not None:
                yield matrix


def _as_matrix(values: Any) -> Any:
    """Values as a matrix with some rows, if they are one."""
    if sp.issparse(values):
        return sp.csr_array(values) if min(values.shape) else None
    if hasattr(values, "to_numpy"):
        values = values.to_numpy()
    is_matrix = isinstance(values, np.ndarray) and values.ndim == 2 and values.size
    return values if is_matrix and values.dtype.kind in "fiub" else None


def _is_too_large(C: float, dual_point: Any) -> bool:
    """Whether hardly any example has a dual variable at its bound."""
    if isinstance(dual_point, DualPoint):
        used = np.bincount(dual_point.examples, dual_point.coef)
    elif isinstance(dual_point, np.ndarray) and dual_point.ndim == 2:
        used = np.abs(dual_point).max(axis=1)
    else:
        return False
    used = used[used > 0.0]
    return bool(len(used) and np.mean(used >= AT_BOUND * C) < FEW_AT_BOUND)
