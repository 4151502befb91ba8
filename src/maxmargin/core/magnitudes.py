"""How large numbers may be so that nothing that is made of them overflows.

Solvers multiply features with features, sum that over examples times their costs, and square it.
With d features up to `LARGEST`, and costs that add up to `LARGEST_COST`, scores stay below
``1e40 * 1e50^2 * d`` and their squares below ``1e280 * d^2``: finite for any d that fits in memory.
So it is enough to look at each number once, where it comes in. Single precision never gets as far.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

LARGEST = 1e50
"""Of features, targets, losses and margins."""

LARGEST_COST = 1e40
"""Of the C of an example, with its weights."""


def are_moderate(values: NDArray[Any]) -> bool:
    """Whether all numbers are finite, and none is beyond `LARGEST`; in one pass, mostly."""
    flat = np.ravel(values)
    with np.errstate(all="ignore"):
        if float(np.dot(flat, flat)) <= LARGEST**2:
            return True
    return bool((np.abs(flat) <= np.float64(LARGEST)).all())  # in float32 it would be infinite


def first_immoderate(rows: Any) -> tuple[int, int, float] | None:
    """Row, column and value of the first number that is not finite or beyond `LARGEST`.

    Those that are not finite come before those that are too large.

    Parameters
    ----------
    rows : ndarray or CSR matrix of shape (n_rows, n_columns)

    Examples
    --------
    >>> import numpy as np
    >>> first_immoderate(np.array([[1.0, 2.0], [-1e300, 0.0]]))
    (1, 0, -1e+300)
    """
    values = np.ravel(rows.data if sp.issparse(rows) else rows)
    if are_moderate(values):
        return None
    bad = np.flatnonzero(~np.isfinite(values))
    at = int(bad[0] if len(bad) else np.flatnonzero(np.abs(values) > LARGEST)[0])
    if not sp.issparse(rows):
        row, column = divmod(at, rows.shape[1])
        return row, column, float(values[at])
    row = int(np.searchsorted(rows.indptr, at, side="right")) - 1
    return row, int(rows.indices[at]), float(values[at])


def complaint(value: float, what: str, where: str, who: str) -> str:
    """The sentence about a number that `first_immoderate` has found."""
    if np.isfinite(value):
        return (
            f"{what} has {value:g} at {where}, but squares of numbers beyond {LARGEST:g} overflow: "
            f"scale the features, to about 1, before {who} sees them."
        )
    kind = "NaN" if np.isnan(value) else "infinity"
    return (
        f"{what} has {kind} (NaN and inf are not allowed) at {where}: remove or impute such values "
        f"before {who} sees them."
    )
