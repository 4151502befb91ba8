"""Sparse vectors, feature rows and cutting planes: products with weights, and sums of them.

The loops are emitted with bare pointers: numba would test indices for signs and sum up in one chain
of additions, more than half of the time of a short row. A column may occur more than once.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from llvmlite import ir
from numba import types
from numba.core import cgutils, errors
from numba.extending import intrinsic
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.compiled.simd import (
    INT,
    LANES,
    VECTOR,
    add_multiple,
    add_product,
    add_scores,
    added,
    arrays,
    constant,
    loop_in_steps,
    merged_lanes,
    widened,
)
from maxmargin.core.arrays import Floats
from maxmargin.core.cuts import Cuts


class _Entries:
    """Entries of a sparse vector and the weights, as LLVM values."""

    def __init__(self, context: Any, builder: Any, signature: Any, args: Any) -> None:
        self.builder = builder
        self.start, self.stop = args[0], args[1]
        self.columns, self.values, self.weights = (
            array.data for array in arrays(context, builder, signature, args, 2, 3, 4)
        )

    def value(self, p: Any) -> Any:
        return widened(self.builder, self.builder.load(self.builder.gep(self.values, [p])))

    def weight(self, p: Any) -> Any:
        """Pointer to the weight at column ``p``."""
        column = self.builder.load(self.builder.gep(self.columns, [p]))
        return self.builder.gep(self.weights, [self.builder.zext(column, INT)])


def _check(columns: Any, values: Any, weights: Any) -> None:
    """Refuse arrays that are not contiguous, or columns that are signed."""
    if any(array.layout != "C" for array in (columns, values, weights)):
        raise errors.TypingError("Entries and weights must be contiguous.")
    if columns.dtype != types.uint32 or weights.dtype != types.float64:
        raise errors.TypingError("Columns must be uint32 and weights float64.")


@intrinsic  # type: ignore[untyped-decorator]
def gathered_product(context, start, stop, columns, values, weights):  # type: ignore[no-untyped-def]
    """``sum_p values[p] * weights[columns[p]]`` for ``start <= p < stop``."""
    _check(columns, values, weights)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        entries = _Entries(context, builder, signature, args)
        lanes = [ir.Constant(ir.IntType(32), k) for k in range(LANES)]

        def several(p: Any, totals: list[Any]) -> list[Any]:
            found = values = ir.Constant(VECTOR, ir.Undefined)
            for k, lane in enumerate(lanes):
                at = builder.add(p, INT(k))
                values = builder.insert_element(values, entries.value(at), lane)
                found = builder.insert_element(found, builder.load(entries.weight(at)), lane)
            return [add_product(builder, totals[0], values, found)]

        def single(p: Any, totals: list[Any]) -> list[Any]:
            weight = builder.load(entries.weight(p))
            return [add_product(builder, totals[0], entries.value(p), weight)]

        zeros = [constant(0.0)]
        p, (sums,) = loop_in_steps(builder, entries.start, entries.stop, LANES, zeros, several)
        total = merged_lanes(builder, sums, added)
        return loop_in_steps(builder, p, entries.stop, 1, [total], single)[1][0]

    return types.float64(types.int64, types.int64, columns, values, weights), codegen


@intrinsic  # type: ignore[untyped-decorator]
def add_scattered(context, start, stop, columns, values, weights, factor):  # type: ignore[no-untyped-def]
    """``weights[columns[p]] += factor * values[p]`` for ``start <= p < stop``."""
    _check(columns, values, weights)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        entries = _Entries(context, builder, signature, args)

        def body(p: Any, _: list[Any]) -> list[Any]:
            weight = entries.weight(p)
            updated = add_product(builder, builder.load(weight), entries.value(p), args[5])
            builder.store(updated, weight)
            return []

        loop_in_steps(builder, entries.start, entries.stop, 1, [], body)
        return context.get_dummy_value()

    arguments = types.int64, types.int64, columns, values, weights, types.float64
    return types.void(*arguments), codegen


class _Column:
    """A feature row and one column of a weight table, as LLVM values."""

    def __init__(self, context: Any, builder: Any, signature: Any, args: Any) -> None:
        values, columns, weights = arrays(context, builder, signature, args, 0, 2, 5)
        self.builder, self.count = builder, args[4]
        self.values = builder.gep(values.data, [args[1]])
        self.columns = builder.gep(columns.data, [args[3]])
        self.weights = builder.gep(weights.data, [args[6]])
        self.n_columns = cgutils.unpack_tuple(builder, weights.shape)[1]

    def value(self, p: Any) -> Any:
        return widened(self.builder, self.builder.load(self.builder.gep(self.values, [p])))

    def weight(self, p: Any) -> Any:
        """Pointer to the weight of the feature at ``p``."""
        feature = self.builder.zext(self.builder.load(self.builder.gep(self.columns, [p])), INT)
        return self.builder.gep(self.weights, [self.builder.mul(feature, self.n_columns)])


@intrinsic  # type: ignore[untyped-decorator]
def column_product(context, values, at, columns, column_at, count, weights, m):  # type: ignore[no-untyped-def]
    """``sum_p values[at + p] * weights[columns[column_at + p], m]`` for ``p < count``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row = _Column(context, builder, signature, args)

        def several(p: Any, totals: list[Any]) -> list[Any]:
            places = [builder.add(p, INT(k)) for k in range(len(totals))]
            return [
                add_product(builder, total, row.value(at), builder.load(row.weight(at)))
                for total, at in zip(totals, places, strict=True)
            ]

        zeros = [ir.Constant(ir.DoubleType(), 0.0)] * LANES
        p, sums = loop_in_steps(builder, INT(0), row.count, LANES, zeros, several)
        while len(sums) > 1:
            half = len(sums) // 2
            sums = [added(builder, *two) for two in zip(sums[:half], sums[half:], strict=True)]
        return loop_in_steps(builder, p, row.count, 1, sums, several)[1][0]

    place = types.int64
    return types.float64(values, place, columns, place, place, weights, place), codegen


@intrinsic  # type: ignore[untyped-decorator]
def add_to_column(context, values, at, columns, column_at, count, weights, m, factor):  # type: ignore[no-untyped-def]
    """``weights[columns[column_at + p], m] += factor * values[at + p]`` for ``p < count``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row = _Column(context, builder, signature, args)

        def body(p: Any, _: list[Any]) -> list[Any]:
            weight = row.weight(p)
            builder.store(add_product(builder, builder.load(weight), row.value(p), args[7]), weight)
            return []

        loop_in_steps(builder, INT(0), row.count, 1, [], body)
        return context.get_dummy_value()

    place = types.int64
    arguments = values, place, columns, place, place, weights, place, types.float64
    return types.void(*arguments), codegen


class Rows(NamedTuple):
    """Feature rows, dense or sparse, in the one layout all routines read.

    Row ``i`` has the values ``values[starts[i]:starts[i + 1]]``, in the same places of `columns`
    (sparse, ``indexed == 1``) or in all `columns` (dense, ``indexed == 0``), and the constant
    feature `bias` in column ``n_features``. Columns are unsigned, which saves numba's code for
    negative indices.
    """

    values: NDArray[np.floating]
    columns: NDArray[np.uint32]
    starts: NDArray[np.int64]
    indexed: int
    bias: float


def padded(n_classes: int) -> int:
    """Number of columns that weights for `n_classes` classes have in memory."""
    return -(-n_classes // LANES) * LANES


def make_rows(X: Any, bias: float) -> Rows:
    """Rows of a C-ordered array or a CSR matrix; shares its memory."""
    if sp.issparse(X):
        columns = X.indices.astype(np.int32, copy=False).view(np.uint32)
        return sparse_rows(X.data, columns, X.indptr.astype(np.int64))._replace(bias=bias)
    n, d = X.shape
    starts = np.arange(n + 1, dtype=np.int64) * d
    columns = np.arange(d, dtype=np.uint32)
    return Rows(locked(np.ravel(X)), locked(columns), starts, 0, bias)


def empty_rows(n_rows: int) -> Rows:
    """Rows without any features."""
    return Rows(*_NO_ENTRIES, np.zeros(n_rows + 1, dtype=np.int64), 1, 0.0)


def sparse_rows(
    values: NDArray[np.floating], columns: NDArray[np.uint32], starts: NDArray[np.int64]
) -> Rows:
    """Rows of the arrays of a CSR matrix."""
    return Rows(locked(values), locked(columns), starts, 1, 0.0)


def as_matrix(rows: Rows, n_features: int) -> Any:
    """The matrix, dense or CSR, that some rows were made of; shares their memory."""
    shape = len(rows.starts) - 1, n_features
    if not rows.indexed:
        return rows.values.reshape(shape)
    return sp.csr_array((rows.values, rows.columns.view(np.int32), rows.starts), shape=shape)


def in_double(rows: Rows) -> Rows:
    """The same rows with values in double precision."""
    return rows._replace(values=locked(rows.values.astype(np.float64, copy=False)))


def measured_rows(X: Any, bias: float) -> tuple[Rows, Floats]:
    """Rows, and the squared norm of each."""
    rows, norms = make_rows(X, bias), np.empty(X.shape[0])
    squared_norms(rows, norms)
    return rows, norms


def repeats_columns(X: Any) -> bool:
    """Whether a row of a CSR matrix, in any order, has two entries in one column."""
    rows = make_rows(X, 0.0)
    return bool(has_repeats(rows.starts, rows.columns, np.full(X.shape[1], -1, dtype=np.int32)))


def locked(array: NDArray[Any]) -> NDArray[Any]:
    """A read-only view: numba compiles anew for arrays that are writable.

    Inference takes weights like that, which may be those of a file.
    """
    view = array.view()
    view.setflags(write=False)
    return view


_NO_ENTRIES = locked(np.empty(0)), locked(np.empty(0, dtype=np.uint32))


@compiled
def squared_norms(rows, norms):  # type: ignore[no-untyped-def]
    """Set `norms` to the squared norm of every row, the constant feature included."""
    for i in range(len(norms)):
        # A slice: its indices are never negative, and the compiler makes vectors of the sum.
        values = rows.values[rows.starts[i] : rows.starts[i + 1]]
        total = 0.0
        for p in range(len(values)):
            total += np.float64(values[p]) * np.float64(values[p])
        norms[i] = rows.bias * rows.bias + total


@compiled
def has_repeats(starts, columns, last):  # type: ignore[no-untyped-def]
    """Whether any row has a column twice; ``last[column]`` is its last row, -1 before."""
    for i in range(len(starts) - 1):
        for p in range(starts[i], starts[i + 1]):
            if last[columns[p]] == i:
                return True
            last[columns[p]] = i
    return False


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


def slopes(cuts: Cuts, weights: Floats) -> Floats:
    """``loss - <w, psi>`` of each cut: the partial derivatives of the dual."""
    out = np.empty(len(cuts.losses))
    set_slopes(cuts.starts, cuts.columns, cuts.values, cuts.losses, weights, out)
    return out


def add_to(weights: Floats, cuts: Cuts, coef: Floats) -> None:
    """``weights += sum_k coef_k psi_k``."""
    add_cuts(cuts.starts, cuts.columns, cuts.values, coef, weights)


@compiled
def set_slopes(starts, columns, values, losses, weights, out):  # type: ignore[no-untyped-def]
    """Set ``out[k] = loss_k - <w, psi_k>``."""
    for k in range(len(losses)):
        product = gathered_product(starts[k], starts[k + 1], columns, values, weights)
        out[k] = losses[k] - product


@compiled
def add_cuts(starts, columns, values, coef, weights):  # type: ignore[no-untyped-def]
    """``weights += sum_k coef_k psi_k``."""
    for k in range(len(coef)):
        if coef[k] != 0.0:
            add_scattered(starts[k], starts[k + 1], columns, values, weights, coef[k])
