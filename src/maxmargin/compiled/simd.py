"""Vector kernels, over all classes or labels at a time.

``weights[j, :]`` holds feature ``j`` of all the classes, padded to a multiple of `LANES`. For a
row with values ``v`` at columns ``j``

    add_scores:   out     += sum_j v_j * weights[j]
    add_multiple: weights[j] += v_j * delta      for each j

for a step from label ``a`` to label ``b`` of a sequence

    max_plus:     out[b]   = added[b] + max_a (before[a] + edges[a, b])
    sum_times:    out[b]   = sum_a before[a] * edges[a, b]

for marginals of pairs, `scaled_products`, and for two spans that meet, `highest_sum`.

All keep the class vector in registers over the whole row. LLVM would not do that by itself: its
loop vectoriser works on the class loop, which reloads and stores the accumulators for each
feature, it does not vectorise a maximum at all, and numba switches off the pass that would
vectorise across the unrolled loop. So the row loop is emitted here with explicit vectors: measured
three times as fast for ten classes. `sum_times` adds up several labels at once, because each
addition is known only four cycles later.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from maxmargin.compiled.compile import inlined

LANES = 4
"""Classes a vector register holds; weights are padded to a multiple of it."""

CONTRACT = ("contract",)
INT = ir.IntType(64)
VECTOR = ir.VectorType(ir.DoubleType(), LANES)


def padded(n_classes: int) -> int:
    """Number of columns that weights for `n_classes` classes have in memory."""
    return -(-n_classes // LANES) * LANES


def widened(builder: Any, value: Any) -> Any:
    """A number as a double."""
    single = isinstance(value.type, ir.FloatType)
    return builder.fpext(value, ir.DoubleType()) if single else value


def splat(builder: Any, value: Any) -> Any:
    """All lanes equal to `value`, widened to double."""
    undefined = ir.Constant(VECTOR, ir.Undefined)
    value = widened(builder, value)
    first = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(first, undefined, lanes)


def merged_lanes(builder: Any, vector: Any, merge: Any) -> Any:
    """One number of all lanes, two and two of which are merged at a time."""
    lanes = [builder.extract_element(vector, ir.Constant(ir.IntType(32), k)) for k in range(LANES)]
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [merge(a, b) for a, b in zip(lanes[:half], lanes[half:], strict=True)]
    return lanes[0]


def vectors_at(builder: Any, base: Any, width: int) -> list[Any]:
    """Pointers to `width` consecutive vectors from `base` on."""
    return [
        builder.bitcast(builder.gep(base, [INT(LANES * t)]), VECTOR.as_pointer())
        for t in range(width)
    ]


def loop_in_steps(
    builder: Any, start: Any, count: Any, step: int, state: list[Any], body: Any
) -> tuple[Any, list[Any]]:
    """Loop from `start` in so large steps, as long as a whole one is left, carrying values.

    `body` takes the position and the values `state` and gives the new ones. Returns where the
    loop stopped, and the values.
    """
    before = builder.block
    head, inside, after = (builder.append_basic_block() for _ in range(3))
    builder.branch(head)
    builder.position_at_end(head)
    p = builder.phi(INT)
    p.add_incoming(start, before)
    carried = [builder.phi(value.type) for value in state]
    for phi, value in zip(carried, state, strict=True):
        phi.add_incoming(value, before)
    following = builder.add(p, INT(step))
    builder.cbranch(builder.icmp_signed("<=", following, count), inside, after)
    builder.position_at_end(inside)
    updated = body(p, carried)
    p.add_incoming(following, builder.block)
    for phi, value in zip(carried, updated, strict=True):
        phi.add_incoming(value, builder.block)
    builder.branch(head)
    builder.position_at_end(after)
    return p, carried


def _for_each_entry(
    builder: Any, count: Any, state: list[Any], at_once: int, neutral: float, body: Any, merge: Any
) -> list[Any]:
    """Loop over ``p = 0..count-1`` carrying the vectors `state`, some `at_once`.

    Each of these has vectors of its own, which begin with the number that is `neutral` to `merge`,
    so that one need not wait for the other.
    """
    width = len(state)
    others = [ir.Constant(VECTOR, [neutral] * LANES)] * (width * (at_once - 1))

    def several(p: Any, vectors: list[Any]) -> list[Any]:
        updated = []
        for k in range(at_once):
            own = vectors[k * width : (k + 1) * width]
            updated += body(builder.add(p, INT(k)), own)
        return updated

    if at_once == 1:
        return loop_in_steps(builder, INT(0), count, 1, state, body)[1]
    p, vectors = loop_in_steps(builder, INT(0), count, at_once, state + others, several)
    while len(vectors) > width:
        half = len(vectors) // width // 2 * width
        pairs = zip(vectors[:half], vectors[half : 2 * half], strict=True)
        vectors = [merge(a, b) for a, b in pairs] + vectors[2 * half :]
    return loop_in_steps(builder, p, count, 1, vectors, body)[1]


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
        self.class_vectors = vectors_at(builder, builder.gep(array(7).data, [column]), self.width)

    def entry(self, p: Any) -> tuple[Any, list[Any]]:
        """Value ``p`` of the row in all lanes, and its vectors of weights."""
        builder = self.builder
        column = builder.zext(builder.load(builder.gep(self.columns, [p])), INT)
        value = splat(builder, builder.load(builder.gep(self.values, [p])))
        row = builder.gep(self.weights, [builder.mul(column, self.row_length)])
        return value, vectors_at(builder, row, self.width)


def add_product(builder: Any, total: Any, a: Any, b: Any) -> Any:
    """``total + a * b``, in one instruction where there is one."""
    return builder.fadd(total, builder.fmul(a, b, flags=CONTRACT), flags=CONTRACT)


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def _dot(context, values, at, columns, column_at, count, weights, column, out, width):  # type: ignore[no-untyped-def]
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row = _Operands(context, builder, signature, args)

        def body(p: Any, sums: list[Any]) -> list[Any]:
            value, weights = row.entry(p)
            return [
                add_product(builder, total, value, builder.load(w, align=8))
                for total, w in zip(sums, weights, strict=True)
            ]

        start = [builder.load(v, align=8) for v in row.class_vectors]
        _, sums = loop_in_steps(builder, INT(0), row.count, 1, start, body)
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
                updated = add_product(builder, builder.load(pointer, align=8), value, d)
                builder.store(updated, pointer, align=8)
            return []

        loop_in_steps(builder, INT(0), row.count, 1, [], body)
        return context.get_dummy_value()

    arguments = (values, at, columns, column_at, count, weights, column, delta, width)
    return types.void(*arguments), codegen


def _add_highest(builder: Any, highest: Any, score: Any, entry: Any) -> Any:
    return _higher(builder, highest, builder.fadd(score, entry))


def _higher(builder: Any, old: Any, new: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", new, old), new, old)


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def _columns(context, before, edges, count, column, out, width, at_once, summing):  # type: ignore[no-untyped-def]
    """Of some columns the maxima of ``before + edges`` or, summing, the sums of products."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def array(position: int) -> tuple[Any, Any]:
            """Where the array starts, and the entries from one of its rows to the next."""
            view = context.make_array(signature.args[position])(context, builder, args[position])
            bytes_a_row = cgutils.unpack_tuple(builder, view.strides)[0]
            return view.data, builder.ashr(bytes_a_row, INT(3))

        scores, score_step = array(0)
        matrix, row_step = array(1)
        count, column = args[2], args[3]
        width, at_once, summing = (kind.literal_value for kind in signature.args[5:])
        update = add_product if summing else _add_highest
        matrix = builder.gep(matrix, [column])

        def body(a: Any, carried: list[Any]) -> list[Any]:
            score = builder.load(builder.gep(scores, [builder.mul(a, score_step)]))
            score = splat(builder, score)
            row = vectors_at(builder, builder.gep(matrix, [builder.mul(a, row_step)]), width)
            return [
                update(builder, old, score, builder.load(pointer, align=8))
                for old, pointer in zip(carried, row, strict=True)
            ]

        def merge(a: Any, b: Any) -> Any:
            return builder.fadd(a, b, flags=CONTRACT) if summing else _higher(builder, a, b)

        neutral = 0.0 if summing else -np.inf
        start = [ir.Constant(VECTOR, [neutral] * LANES)] * width
        found = _for_each_entry(builder, count, start, at_once, neutral, body, merge)
        pointers = vectors_at(builder, builder.gep(array(4)[0], [column]), width)
        for value, pointer in zip(found, pointers, strict=True):
            builder.store(value, pointer, align=8)
        return context.get_dummy_value()

    return types.void(before, edges, count, column, out, width, at_once, summing), codegen


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
    column = np.int64(0)
    while len(out) - column > 8 * LANES:
        _columns(before, edges, count, column, out, 8, 1, 0)
        column += 8 * LANES
    left = len(out) - column
    if left == 4:
        _columns(before, edges, count, column, out, 1, 1, 0)
    elif left == 8:
        _columns(before, edges, count, column, out, 2, 1, 0)
    elif left == 12:
        _columns(before, edges, count, column, out, 3, 1, 0)
    elif left == 16:
        _columns(before, edges, count, column, out, 4, 1, 0)
    elif left == 20:
        _columns(before, edges, count, column, out, 5, 1, 0)
    elif left == 24:
        _columns(before, edges, count, column, out, 6, 1, 0)
    elif left == 28:
        _columns(before, edges, count, column, out, 7, 1, 0)
    elif left == 32:
        _columns(before, edges, count, column, out, 8, 1, 0)
    for b in range(len(out)):
        out[b] += added[b]


@inlined
def sum_times(before, edges, n_labels, out):  # type: ignore[no-untyped-def]
    """``out[b] = sum_a before[a] * edges[a, b]``, anything in the padding."""
    count = np.int64(n_labels)
    column = np.int64(0)
    while len(out) - column >= 4 * LANES:
        _columns(before, edges, count, column, out, 4, 2, 1)
        column += 4 * LANES
    while len(out) - column >= LANES:
        _columns(before, edges, count, column, out, 1, 4, 1)
        column += LANES


@intrinsic  # type: ignore[untyped-decorator]
def scaled_products(context, row, shares, factor, out):  # type: ignore[no-untyped-def]
    """``out = factor * row * shares``, whole vectors; returns its sum. `out` may be `row`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        arrays = [
            context.make_array(signature.args[k])(context, builder, args[k]) for k in (0, 1, 3)
        ]
        scale = splat(builder, args[2])

        def body(p: Any, total: list[Any]) -> list[Any]:
            own, share, target = (
                vectors_at(builder, builder.gep(array.data, [p]), 1)[0] for array in arrays
            )
            share = builder.fmul(scale, builder.load(share, align=8), flags=CONTRACT)
            part = builder.fmul(share, builder.load(own, align=8), flags=CONTRACT)
            builder.store(part, target, align=8)
            return [builder.fadd(total[0], part, flags=CONTRACT)]

        length = cgutils.unpack_tuple(builder, arrays[2].shape)[0]
        zeros = ir.Constant(VECTOR, [0.0] * LANES)
        _, (total,) = loop_in_steps(builder, INT(0), length, LANES, [zeros], body)
        return merged_lanes(builder, total, lambda a, b: builder.fadd(a, b, flags=CONTRACT))

    return types.float64(row, shares, types.float64, out), codegen


@intrinsic  # type: ignore[untyped-decorator]
def highest_sum(context, left, left_at, right, right_at, count):  # type: ignore[no-untyped-def]
    """The highest ``left[left_at + p] + right[right_at + p]`` for ``p < count``, flat places.

    Goes on to a whole number of vectors, of which there is at least one: in either array there must
    be room, and in one of the two -inf there.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        first, second = (
            builder.gep(
                context.make_array(signature.args[k])(context, builder, args[k]).data, [args[k + 1]]
            )
            for k in (0, 2)
        )

        def body(p: Any, highest: list[Any]) -> list[Any]:
            one, other = (
                builder.load(vectors_at(builder, builder.gep(base, [p]), 1)[0], align=8)
                for base in (first, second)
            )
            return [_add_highest(builder, highest[0], one, other)]

        # The first vector without a question: mostly it is the only one.
        start = body(INT(0), [ir.Constant(VECTOR, [-np.inf] * LANES)])
        whole = builder.add(args[4], INT(LANES - 1))
        _, (highest,) = loop_in_steps(builder, INT(LANES), whole, LANES, start, body)
        return merged_lanes(builder, highest, lambda a, b: _higher(builder, a, b))

    return types.float64(left, left_at, right, right_at, count), codegen
