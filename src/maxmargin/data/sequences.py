"""Sequences as users have them, turned into one matrix of feature rows.

Three forms are understood: a list of matrices with one row a position; one matrix of all rows, with
the lengths; and a list of lists of feature dictionaries, one dictionary a position (see
`maxmargin.data.vocabulary`).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Order = NDArray[np.int64]


def has_dictionaries(X: Any) -> bool:
    """Whether `X` is a list of lists of feature dictionaries (or of lists of names)."""
    if X is None or _is_matrix(X):
        return False
    for sequence in X:
        if _is_matrix(sequence):
            return False
        for position in sequence:
            if isinstance(position, (list, tuple)):
                return bool(position) and isinstance(position[0], str)
            # Words without features are refused where dictionaries are read.
            return isinstance(position, (Mapping, set, frozenset, str))
    return False


def _is_matrix(X: Any) -> bool:
    """Whether it is an array, a sparse matrix or a data frame."""
    return sp.issparse(X) or isinstance(X, np.ndarray) or hasattr(X, "columns")


def stack(X: Any, lengths: Any, n_features: int | None) -> tuple[Any, Order]:
    """Rows of a list of matrices, or of one matrix with lengths, and where sequences end.

    Raises
    ------
    ValueError
        If shapes do not fit together.
    """
    if lengths is not None:
        ends = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(np.asarray(lengths, dtype=np.int64), out=ends[1:])
        if (np.diff(ends) < 0).any():
            raise ValueError("lengths must not be negative.")
        if ends[-1] != X.shape[0]:
            raise ValueError(f"lengths add up to {ends[-1]}, but X has {X.shape[0]} rows.")
        return X, ends
    if _is_matrix(X) and X.ndim == 2:
        raise ValueError(
            "X is one matrix: give lengths, the number of rows of each sequence, or a list of "
            "matrices."
        )
    parts = [_as_rows(part, i) for i, part in enumerate(X)]
    widths = [part.shape[1] for part in parts if part.shape[0] or part.shape[1]]
    width = n_features if n_features is not None else (widths[0] if widths else 0)
    for i, part in enumerate(parts):
        if part.shape[0] and part.shape[1] != width:
            raise ValueError(
                f"Sequence {i} has {part.shape[1]} features, but {width} were expected."
            )
    ends = np.zeros(len(parts) + 1, dtype=np.int64)
    np.cumsum([part.shape[0] for part in parts], out=ends[1:])
    filled = [part for part in parts if part.shape[0]]
    if not filled:
        return np.zeros((0, width)), ends
    if any(sp.issparse(part) for part in filled):
        return sp.vstack([sp.csr_array(part) for part in filled], format="csr"), ends
    return np.concatenate(filled), ends


def place_of(row: int, ends: Order) -> str:
    """Where a row of all sequences is, in words of who knows them one by one."""
    sequence = int(np.searchsorted(ends, row, side="right")) - 1
    return f"sequence {sequence}, position {row - ends[sequence]}"


def _as_rows(part: Any, i: int) -> Any:
    if sp.issparse(part):
        return part
    try:
        rows = np.asarray(part)
        rows = rows if np.issubdtype(rows.dtype, np.floating) else rows.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Sequence {i} must be a matrix of numbers, one row a position, or a list of feature "
            f"dictionaries."
        ) from error
    if rows.size == 0 and rows.ndim < 2:
        return rows.reshape(0, 0)
    if rows.ndim != 2:
        raise ValueError(
            f"Sequence {i} must be a matrix with one row a position, but has {rows.ndim} "
            f"dimensions."
        )
    return rows
