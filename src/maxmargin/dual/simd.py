"""Three vector kernels, over all classes or labels at a time.

``weights[j, :]`` holds feature ``j`` of all the classes, padded to a multiple of `LANES`. For a
row with values ``v`` at columns ``j``

    add_scores:   out     += sum_j v_j * weights[j]
    add_multiple: weights[j] += v_j * delta      for each j

and for a step from label ``a`` to label ``b`` of a sequence

    max_plus:     out[b]   = added[b] + max_a (before[a] + edges[a, b])

All keep the class vector in registers over the whole row. LLVM would not do that by itself: its
loop vectoriser works on the class loop, which reloads and stores the accumulators for each
feature, and numba switches off the pass that would vectorise across the unrolled loop. So the
row loop is emitted here with explicit vectors: measured three times as fast for ten classes.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from maxmargin.dual.compiled import inlined

LANES = 4
"""Classes a vector register holds; weights are padded to a multiple of it."""

_CONTRACT = ("contract",)
_INT = ir.IntType(64)
_VECTOR = ir.VectorType(ir.DoubleType(), LANES)


def padded(n_classes: int) -> int:
    """Number of columns that weights for `n_classes` classes have in memory."""
    return -(-n_classes // LANES) * LANES


def _splat(builder: Any, value: Any) -> Any:
    """All lanes equal to `value`, widened to double."""
    if isinstance(value.type, ir.FloatType):
        value = builder.fpext(value, ir.DoubleType())
    undefined = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(first, undefined, lanes)


def _vectors(builder: Any, base: Any, width: int) -> list[Any]:
    """Pointers to `width` consecutive vectors from `base` on."""
    return [
        builder.bitcast(builder.gep(base, [_INT(LANES * t)]), _VECTOR.as_pointer())
        for t in range(width)
    ]


def _for_each_entry(builder: Any, count: Any, state: list[Any], body: Any) -> list[Any]:
    """Loop ``p = 0..count-1`` carrying the vectors `state`; `body` gives the new ones."""
    before = builder.block
    head, inside, after = (builder.append_basic_block() for _ in range(3))
    builder.branch(head)
    builder.position_at_end(head)
    p = builder.phi(_INT)
    p.add_incoming(_INT(0), before)
    carried = [builder.phi(_VECTOR) for _ in state]
    for phi, start in zip(carried, state, strict=True):
        phi.add_incoming(start, before)
    builder.cbranch(builder.icmp_signed("<", p, count), inside, after)
    builder.position_at_end(inside)
    updated = body(p, carried)
    p.add_incoming(builder.add(p, _INT(1)), builder.block)
    for phi, value in zip(carried, updated, strict=True):
        phi.add_incoming(value, builder.block)
    builder.branch(head)
    builder.position_at_end(after)
    return carried


class _Operands:
    """The arguments the two intrinsics share, as LLVM values."""

    def __init__(self, context: Any, builder: Any, signature: Any, args: Any) -> None:
        def array(position: int) -> Any:
            kind = signature.args[position]
            return context.make_array(kind)(context, builder, args[position])

        self.builder = builder
        self.width = signature.args[8].literal_value
        self.values = builder.gep(array(0).data, [args[1]])
        self.columns = builder.gep(array(2).data, [args[3]])
        self.count, column = args[4], args[6]
        weights = array(5)
        self.row_length = cgutils.unpack_tuple(builder, weights.shape)[1]
        self.weights = builder.gep(weights.data, [column])
        self.class_vectors = _vectors(builder, builder.gep(array(7).data, [column]), self.width)

    def entry(self, p: Any) -> tuple[Any, list[Any]]:
        """Value ``p`` of the row in all lanes, and its vectors of weights."""
        builder = self.builder
        column = builder.zext(builder.load(builder.gep(self.columns, [p])), _INT)
        value = _splat(builder, builder.load(builder.gep(self.values, [p])))
        row = builder.gep(self.weights, [builder.mul(column, self.row_length)])
        return value, _vectors(builder, row, self.width)


def _add_product(builder: Any, total: Any, a: Any, b: Any) -> Any:
    return builder.fadd(total, builder.fmul(a, b, flags=_CONTRACT), flags=_CONTRACT)


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def _dot(context, values, at, columns, column_at, count, weights, column, out, width):  # type: ignore[no-untyped-def]
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row = _Operands(context, builder, signature, args)

        def body(p: Any, sums: list[Any]) -> list[Any]:
            value, weights = row.entry(p)
            return [
                _add_product(builder, total, value, builder.load(w, align=8))
                for total, w in zip(sums, weights, strict=True)
            ]

        start = [builder.load(v, align=8) for v in row.class_vectors]
        sums = _for_each_entry(builder, row.count, start, body)
        for total, pointer in zip(sums, row.class_vectors, strict=True):
            builder.store(total, pointer, align=8)
        return context.get_dummy_value()

    arguments = (values, at, columns, column_at, count, weights, column, out, width)
    return types.void(*arguments), codegen


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def _axpy(context, values, at, columns, column_at, count, weights, column, delta, width):  # type: ignore[no-untyped-def]
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row = _Operands(context, builder, signature, args)
        delta = [builder.load(v, align=8) for v in row.class_vectors]

        def body(p: Any, _: list[Any]) -> list[Any]:
            value, weights = row.entry(p)
            for pointer, d in zip(weights, delta, strict=True):
                updated = _add_product(builder, builder.load(pointer, align=8), value, d)
                builder.store(updated, pointer, align=8)
            return []

        _for_each_entry(builder, row.count, [], body)
        return context.get_dummy_value()

    arguments = (values, at, columns, column_at, count, weights, column, delta, width)
    return types.void(*arguments), codegen


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def _highest(context, before, edges, added, count, column, out, width):  # type: ignore[no-untyped-def]
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def array(position: int) -> tuple[Any, Any]:
            """Where the array starts, and the entries from one of its rows to the next."""
            view = context.make_array(signature.args[position])(context, builder, args[position])
            bytes_a_row = cgutils.unpack_tuple(builder, view.strides)[0]
            return view.data, builder.ashr(bytes_a_row, _INT(3))

        scores, score_step = array(0)
        matrix, row_step = array(1)
        count, column, width = args[3], args[4], signature.args[6].literal_value
        matrix = builder.gep(matrix, [column])

        def body(a: Any, highest: list[Any]) -> list[Any]:
            score = builder.load(builder.gep(scores, [builder.mul(a, score_step)]))
            score = _splat(builder, score)
            row = builder.gep(matrix, [builder.mul(a, row_step)])
            updated = []
            for old, pointer in zip(highest, _vectors(builder, row, width), strict=True):
                new = builder.fadd(score, builder.load(pointer, align=8))
                updated.append(builder.select(builder.fcmp_ordered(">", new, old), new, old))
            return updated

        start = [ir.Constant(_VECTOR, [-np.inf] * LANES)] * width
        highest = _for_each_entry(builder, count, start, body)
        added, out = (
            _vectors(builder, builder.gep(array(position)[0], [column]), width)
            for position in (2, 5)
        )
        for value, more, pointer in zip(highest, added, out, strict=True):
            value = builder.fadd(value, builder.load(more, align=8))
            builder.store(value, pointer, align=8)
        return context.get_dummy_value()

    return types.void(before, edges, added, count, column, out, width), codegen


@inlined
def add_scores(values, at, columns, column_at, count, weights, out):  # type: ignore[no-untyped-def]
    """``out += sum_p values[at + p] * weights[columns[column_at + p]]`` for ``p < count``."""
    n_columns = weights.shape[1]
    column = np.int64(0)
    while n_columns - column > 24:
        _dot(values, at, columns, column_at, count, weights, column, out, 4)
        column += 16
    left = n_columns - column
    if left == 4:
        _dot(values, at, columns, column_at, count, weights, column, out, 1)
    elif left == 8:
        _dot(values, at, columns, column_at, count, weights, column, out, 2)
    elif left == 12:
        _dot(values, at, columns, column_at, count, weights, column, out, 3)
    elif left == 16:
        _dot(values, at, columns, column_at, count, weights, column, out, 4)
    elif left == 20:
        _dot(values, at, columns, column_at, count, weights, column, out, 5)
    elif left == 24:
        _dot(values, at, columns, column_at, count, weights, column, out, 6)


@inlined
def add_multiple(values, at, columns, column_at, count, weights, delta):  # type: ignore[no-untyped-def]
    """``weights[columns[column_at + p]] += values[at + p] * delta`` for ``p < count``."""
    n_columns = weights.shape[1]
    column = np.int64(0)
    while n_columns - column > 24:
        _axpy(values, at, columns, column_at, count, weights, column, delta, 4)
        column += 16
    left = n_columns - column
    if left == 4:
        _axpy(values, at, columns, column_at, count, weights, column, delta, 1)
    elif left == 8:
        _axpy(values, at, columns, column_at, count, weights, column, delta, 2)
    elif left == 12:
        _axpy(values, at, columns, column_at, count, weights, column, delta, 3)
    elif left == 16:
        _axpy(values, at, columns, column_at, count, weights, column, delta, 4)
    elif left == 20:
        _axpy(values, at, columns, column_at, count, weights, column, delta, 5)
    elif left == 24:
        _axpy(values, at, columns, column_at, count, weights, column, delta, 6)


@inlined
def max_plus(before, edges, added, n_labels, out):  # type: ignore[no-untyped-def]
    """``out[b] = added[b] + max_a (before[a] + edges[a, b])``, anything in the padding."""
    count = np.int64(n_labels)
    left = np.int64(len(out))
    while left >= 4 * LANES:
        _highest(before, edges, added, count, len(out) - left, out, 4)
        left -= 4 * LANES
    if left >= 2 * LANES:
        _highest(before, edges, added, count, len(out) - left, out, 2)
        left -= 2 * LANES
    if left >= LANES:
        _highest(before, edges, added, count, len(out) - left, out, 1)
