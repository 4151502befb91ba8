"""The examples as rows that the compiled routines can walk, dense or sparse, without a copy."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.compiled.gathers import add_scattered, gathered_product
from maxmargin.compiled.simd import add_multiple, add_scores


class Rows(NamedTuple):
    """Feature rows in the one layout all kernels read.

    Row ``i`` has the values ``values[starts[i]:starts[i + 1]]``. Their columns stand at the same
    places of `columns` (sparse, ``indexed == 1``), or are the whole of `columns` for every row
    (dense, ``indexed == 0``). Every row also has an implicit last feature, column ``n_features``,
    with the constant value `bias` (0.0: none). Columns are unsigned because numba then leaves out
    the code for negative indices, a tenth or two of a sparse kernel's time.
    """

    values: NDArray[np.floating]
    columns: NDArray[np.uint32]
    starts: NDArray[np.int64]
    indexed: int
    bias: float


def make_rows(X: Any, bias: float) -> Rows:
    """Rows of a C-ordered array or a CSR matrix; shares its memory."""
    if sp.issparse(X):
        columns = X.indices.astype(np.int32, copy=False).view(np.uint32)
        return Rows(_locked(X.data), _locked(columns), X.indptr.astype(np.int64), 1, bias)
    n, d = X.shape
    starts = np.arange(n + 1, dtype=np.int64) * d
    columns = np.arange(d, dtype=np.uint32)
    return Rows(_locked(np.ravel(X)), _locked(columns), starts, 0, bias)


def _locked(array: NDArray[Any]) -> NDArray[Any]:
    """A read-only view: numba would compile everything once more for arrays that are not."""
    view = array.view()
    view.flags.writeable = False
    return view


@compiled
def squared_norms(rows, norms):  # type: ignore[no-untyped-def]
    """Set `norms` to the squared length of every row, the constant feature included."""
    for i in range(len(norms)):
        total = rows.bias * rows.bias
        for p in range(rows.starts[i], rows.starts[i + 1]):
            total += np.float64(rows.values[p]) * np.float64(rows.values[p])
        norms[i] = total


@inlined
def add_row_scores(rows, i, weights, out):  # type: ignore[no-untyped-def]
    """``out += x_i' weights`` for padded, class-contiguous weights."""
    at = rows.starts[i]
    count = rows.starts[i + 1] - at
    add_scores(rows.values, at, rows.columns, at * rows.indexed, count, weights, out)
    if rows.bias != 0.0:
        last = weights.shape[0] - 1
        for m in range(len(out)):
            out[m] += rows.bias * weights[last, m]


@inlined
def add_row_multiple(rows, i, change, weights):  # type: ignore[no-untyped-def]
    """``weights += x_i change'`` for padded, class-contiguous weights."""
    at = rows.starts[i]
    count = rows.starts[i + 1] - at
    add_multiple(rows.values, at, rows.columns, at * rows.indexed, count, weights, change)
    if rows.bias != 0.0:
        last = weights.shape[0] - 1
        for m in range(len(change)):
            weights[last, m] += rows.bias * change[m]


@inlined
def row_score(rows, i, weights):  # type: ignore[no-untyped-def]
    """``x_i' weights`` for one weight vector."""
    at, stop = rows.starts[i], rows.starts[i + 1]
    score = rows.bias * weights[len(weights) - 1]
    if rows.indexed == 0:
        values = rows.values[at:stop]
        for p in range(stop - at):
            score += values[p] * weights[p]
        return score
    return score + gathered_product(at, stop, rows.columns, rows.values, weights)


@inlined
def add_row(rows, i, change, weights):  # type: ignore[no-untyped-def]
    """``weights += change * x_i`` for one weight vector."""
    at, stop = rows.starts[i], rows.starts[i + 1]
    weights[len(weights) - 1] += change * rows.bias
    if rows.indexed == 0:
        values = rows.values[at:stop]
        for p in range(stop - at):
            weights[p] += change * values[p]
    else:
        add_scattered(at, stop, rows.columns, rows.values, weights, change)


@inlined
def clip_row(rows, i, unclipped, weights):  # type: ignore[no-untyped-def]
    """``weights = max(unclipped, 0)`` at the features of row ``i``; the constant one is free."""
    at = rows.starts[i]
    c = at * rows.indexed
    for p in range(rows.starts[i + 1] - at):
        j = rows.columns[c + p]
        for m in range(weights.shape[1]):
            weights[j, m] = max(unclipped[j, m], 0.0)
    last = weights.shape[0] - 1
    for m in range(weights.shape[1]):
        weights[last, m] = unclipped[last, m]
