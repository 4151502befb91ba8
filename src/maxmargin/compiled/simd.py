"""Routines of explicit vectors, over all classes or labels at a time.

``weights[j, :]`` holds feature ``j`` of all classes, padded to a multiple of `LANES`. LLVM would
reload the class vector for each feature; explicit vectors are three times as fast for ten classes.
"""

from collections.abc import Callable
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


def arrays(context: Any, builder: Any, signature: Any, args: Any, *positions: int) -> list[Any]:
    """The array arguments of an intrinsic."""
    return [context.make_array(signature.args[k])(context, builder, args[k]) for k in positions]


def constant(value: float) -> Any:
    """A vector of equal numbers."""
    return ir.Constant(VECTOR, [value] * LANES)


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
    """Reduce all lanes to one number, pairwise."""
    lanes = [builder.extract_element(vector, ir.Constant(ir.IntType(32), k)) for k in range(LANES)]
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [merge(builder, *pair) for pair in zip(lanes[:half], lanes[half:], strict=True)]
    return lanes[0]


def vectors_at(builder: Any, base: Any, place: Any, width: int) -> list[Any]:
    """Pointers to `width` consecutive vectors from `place` of an array on."""
    first = builder.gep(base, [place])
    return [
        builder.bitcast(builder.gep(first, [INT(LANES * t)]), VECTOR.as_pointer())
        for t in range(width)
    ]


def loaded(builder: Any, pointers: list[Any]) -> list[Any]:
    """The vectors at some pointers."""
    return [builder.load(pointer, align=8) for pointer in pointers]


def store(builder: Any, vectors: list[Any], pointers: list[Any]) -> None:
    """Store vectors at pointers."""
    for vector, pointer in zip(vectors, pointers, strict=True):
        builder.store(vector, pointer, align=8)


def added(builder: Any, a: Any, b: Any) -> Any:
    """``a + b``."""
    return builder.fadd(a, b, flags=CONTRACT)


def add_product(builder: Any, total: Any, a: Any, b: Any) -> Any:
    """``total + a * b``, in one instruction where there is one."""
    return added(builder, total, builder.fmul(a, b, flags=CONTRACT))


def loop_in_steps(
    builder: Any, start: Any, count: Any, step: int, state: list[Any], body: Any
) -> tuple[Any, list[Any]]:
    """Emit a loop over whole steps that carries `state`; returns where it stopped, and that."""
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


Emit = Callable[[Any, int], None]
"""Emits code for so many vectors at a place: ``emit(place, width)``."""


def in_widths(builder: Any, length: Any, widths: tuple[int, ...], emit: Emit) -> Any:
    """Cover `length` numbers by the first width of vectors, the rest by the next ones."""
    column = INT(0)
    for width in widths:

        def body(place: Any, _: list[Any], width: int = width) -> list[Any]:
            emit(place, width)
            return []

        column, _ = loop_in_steps(builder, column, length, LANES * width, [], body)
    return column


def all_at_once(builder: Any, length: Any, wide: int, widest: int, emit: Emit) -> None:
    """Cover `length` numbers by `wide` vectors at a time, at most `widest` at once in the end."""
    more = builder.sub(length, INT(LANES * (widest + 1 - wide)))
    column = in_widths(builder, more, (wide,), emit)
    after = builder.append_basic_block()
    choice = builder.switch(builder.sub(length, column), after)
    for width in range(1, widest + 1):
        block = builder.append_basic_block()
        choice.add_case(INT(LANES * width), block)
        builder.position_at_end(block)
        emit(column, width)
        builder.branch(after)
    builder.position_at_end(after)


class _Row:
    """A row of features and the weights of all classes, as LLVM values."""

    def __init__(self, context: Any, builder: Any, signature: Any, args: Any) -> None:
        values, columns, weights, out = arrays(context, builder, signature, args, 0, 2, 5, 6)
        self.builder, self.count = builder, args[4]
        self.values = builder.gep(values.data, [args[1]])
        self.columns = builder.gep(columns.data, [args[3]])
        self.weights, self.out = weights.data, out.data
        self.n_columns = cgutils.unpack_tuple(builder, weights.shape)[1]

    def for_each_entry(self, column: Any, width: int, state: list[Any], body: Any) -> list[Any]:
        """Loop over the row's values, in all lanes, and the vectors of weights from a column on."""
        builder = self.builder
        base = builder.gep(self.weights, [column])

        def entry(p: Any, carried: list[Any]) -> list[Any]:
            feature = builder.zext(builder.load(builder.gep(self.columns, [p])), INT)
            value = splat(builder, builder.load(builder.gep(self.values, [p])))
            weights = vectors_at(builder, base, builder.mul(feature, self.n_columns), width)
            return body(value, weights, carried)  # type: ignore[no-any-return]

        return loop_in_steps(builder, INT(0), self.count, 1, state, entry)[1]


@intrinsic  # type: ignore[untyped-decorator]
def add_scores(context, values, at, columns, column_at, count, weights, out):  # type: ignore[no-untyped-def]
    """``out += sum_p values[at + p] * weights[columns[column_at + p]]`` for ``p < count``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row = _Row(context, builder, signature, args)

        def body(value: Any, weights: list[Any], sums: list[Any]) -> list[Any]:
            found = loaded(builder, weights)
            return [add_product(builder, s, value, w) for s, w in zip(sums, found, strict=True)]

        def emit(column: Any, width: int) -> None:
            out = vectors_at(builder, row.out, column, width)
            store(builder, row.for_each_entry(column, width, loaded(builder, out), body), out)

        all_at_once(builder, row.n_columns, 4, 6, emit)
        return context.get_dummy_value()

    places = types.int64
    return types.void(values, places, columns, places, places, weights, out), codegen


@intrinsic  # type: ignore[untyped-decorator]
def add_multiple(context, values, at, columns, column_at, count, weights, delta):  # type: ignore[no-untyped-def]
    """``weights[columns[column_at + p]] += values[at + p] * delta`` for ``p < count``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row = _Row(context, builder, signature, args)

        def emit(column: Any, width: int) -> None:
            delta = loaded(builder, vectors_at(builder, row.out, column, width))

            def body(value: Any, weights: list[Any], _: list[Any]) -> list[Any]:
                for pointer, d in zip(weights, delta, strict=True):
                    updated = add_product(builder, builder.load(pointer, align=8), value, d)
                    builder.store(updated, pointer, align=8)
                return []

            row.for_each_entry(column, width, [], body)

        all_at_once(builder, row.n_columns, 4, 6, emit)
        return context.get_dummy_value()

    places = types.int64
    return types.void(values, places, columns, places, places, weights, delta), codegen


class _Step:
    """A step from label ``a`` to label ``b`` of a sequence, as LLVM values."""

    def __init__(self, context: Any, builder: Any, signature: Any, args: Any) -> None:
        before, edges, out = arrays(context, builder, signature, args, 0, 1, 3)
        self.builder, self.n_labels = builder, args[2]
        self.before, self.edges, self.out = before.data, edges.data, out.data
        self.before_step, self.edges_step = (
            builder.ashr(cgutils.unpack_tuple(builder, array.strides)[0], INT(3))
            for array in (before, edges)
        )
        (self.length,) = cgutils.unpack_tuple(builder, out.shape)

    def columns(
        self, column: Any, width: int, neutral: float, update: Any, at_once: int = 1
    ) -> list[Any]:
        """Reduce some columns of `edges` over all labels, `at_once` in separate accumulators."""
        builder = self.builder
        base = builder.gep(self.edges, [column])

        def body(a: Any, carried: list[Any]) -> list[Any]:
            score = builder.gep(self.before, [builder.mul(a, self.before_step)])
            score = splat(builder, builder.load(score))
            row = vectors_at(builder, base, builder.mul(a, self.edges_step), width)
            return [
                update(builder, old, score, entry)
                for old, entry in zip(carried, loaded(builder, row), strict=True)
            ]

        def several(a: Any, vectors: list[Any]) -> list[Any]:
            parts = (vectors[k * width : (k + 1) * width] for k in range(at_once))
            return [v for k, own in enumerate(parts) for v in body(builder.add(a, INT(k)), own)]

        start = [constant(neutral)] * (width * at_once)
        a, vectors = loop_in_steps(builder, INT(0), self.n_labels, at_once, start, several)
        if at_once == 1:
            return vectors
        while len(vectors) > width:
            half = len(vectors) // 2
            pairs = zip(vectors[:half], vectors[half:], strict=True)
            vectors = [added(builder, *pair) for pair in pairs]
        return loop_in_steps(builder, a, self.n_labels, 1, vectors, body)[1]


def _higher(builder: Any, old: Any, new: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", new, old), new, old)


def _add_highest(builder: Any, highest: Any, score: Any, entry: Any) -> Any:
    return _higher(builder, highest, builder.fadd(score, entry))


@intrinsic  # type: ignore[untyped-decorator]
def _max_plus(context, before, edges, n_labels, out):  # type: ignore[no-untyped-def]
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        step = _Step(context, builder, signature, args)

        def emit(column: Any, width: int) -> None:
            found = step.columns(column, width, -np.inf, _add_highest)
            store(builder, found, vectors_at(builder, step.out, column, width))

        all_at_once(builder, step.length, 8, 8, emit)
        return context.get_dummy_value()

    return types.void(before, edges, types.int64, out), codegen


@inlined
def max_plus(before, edges, added, n_labels, out):  # type: ignore[no-untyped-def]
    """``out[b] = added[b] + max_a (before[a] + edges[a, b])``, anything in the padding."""
    _max_plus(before, edges, n_labels, out)
    for b in range(len(out)):
        out[b] += added[b]


@intrinsic  # type: ignore[untyped-decorator]
def sum_times(context, before, edges, n_labels, out):  # type: ignore[no-untyped-def]
    """``out[b] = sum_a before[a] * edges[a, b]``, anything in the padding."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        step = _Step(context, builder, signature, args)

        def emit(column: Any, width: int) -> None:
            # Each addition is known only four cycles later: of few columns several labels at once.
            at_once = 1 if width > 5 else 2 if width > 2 else 4
            found = step.columns(column, width, 0.0, add_product, at_once)
            store(builder, found, vectors_at(builder, step.out, column, width))

        all_at_once(builder, step.length, 8, 8, emit)
        return context.get_dummy_value()

    return types.void(before, edges, types.int64, out), codegen


_WIDEST = 8
"""Vectors of shares that stay in registers."""


class _Shares:
    """Rows of a matrix times a vector, as LLVM values."""

    def __init__(self, context: Any, builder: Any, signature: Any, args: Any, scaled: bool) -> None:
        self.builder, self.n_rows, self.scaled = builder, args[1], scaled
        rows, shares, before, out = arrays(context, builder, signature, args, 0, 2, 3, 4)
        self.rows, self.shares, self.before, self.out = (
            a.data for a in (rows, shares, before, out)
        )
        self.row_step, self.before_step, self.out_step = (
            builder.ashr(cgutils.unpack_tuple(builder, array.strides)[0], INT(3))
            for array in (rows, before, out)
        )
        (self.length,) = cgutils.unpack_tuple(builder, shares.shape)

    def each_row(self, emit: Callable[[Any, Any, Any], Any]) -> None:
        """Set all rows: ``emit(row, out, factor)`` does one and returns vectors to sum up."""
        builder = self.builder

        def body(a: Any, _: list[Any]) -> list[Any]:
            row, out, place = (
                builder.gep(base, [builder.mul(a, step)])
                for base, step in (
                    (self.rows, self.row_step),
                    (self.out, self.out_step),
                    (self.before, self.before_step),
                )
            )
            factor = builder.load(place) if self.scaled else None
            totals = emit(row, out, splat(builder, factor) if self.scaled else None)
            while len(totals) > 1:
                half = len(totals) // 2
                pairs = zip(totals[:half], totals[half:], strict=False)
                totals = [added(builder, *pair) for pair in pairs] + totals[2 * half :]
            total = merged_lanes(builder, totals[0], added)
            if self.scaled:
                total = builder.fmul(total, factor, flags=CONTRACT)
            builder.store(total, place)
            return []

        loop_in_steps(builder, INT(0), self.n_rows, 1, [], body)

    def parts(self, row: Any, out: Any, factor: Any, place: Any, shares: list[Any]) -> list[Any]:
        """Set some vectors of a row; returns them without the factor."""
        builder = self.builder
        own = loaded(builder, vectors_at(builder, row, place, len(shares)))
        parts = [builder.fmul(a, b, flags=CONTRACT) for a, b in zip(own, shares, strict=True)]
        found = parts
        if self.scaled:
            found = [builder.fmul(part, factor, flags=CONTRACT) for part in parts]
        store(builder, found, vectors_at(builder, out, place, len(shares)))
        return parts

    def narrow(self, width: int) -> None:
        """All rows of so many vectors, the shares in registers."""
        shares = loaded(self.builder, vectors_at(self.builder, self.shares, INT(0), width))
        self.each_row(lambda row, out, factor: self.parts(row, out, factor, INT(0), shares))

    def wide(self) -> None:
        """All rows, of any length."""
        builder = self.builder

        def emit(row: Any, out: Any, factor: Any) -> list[Any]:
            place, totals = INT(0), [constant(0.0)]
            for width in (4, 1):
                start = [totals[0], *[constant(0.0)] * (width - 1)]

                def body(p: Any, carried: list[Any], width: int = width) -> list[Any]:
                    shares = loaded(builder, vectors_at(builder, self.shares, p, width))
                    parts = self.parts(row, out, factor, p, shares)
                    return [added(builder, *pair) for pair in zip(carried, parts, strict=True)]

                place, totals = loop_in_steps(
                    builder, place, self.length, LANES * width, start, body
                )
                while len(totals) > 1:
                    pairs = zip(totals[0::2], totals[1::2], strict=True)
                    totals = [added(builder, *pair) for pair in pairs]
            return totals

        self.each_row(emit)


def _sharing(scaled: bool) -> Any:
    """An intrinsic that shares out, with or without factors."""

    @intrinsic  # type: ignore[untyped-decorator]
    def share(context, rows, n_rows, shares, before, out):  # type: ignore[no-untyped-def]
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            work = _Shares(context, builder, signature, args, scaled)
            after, many = builder.append_basic_block(), builder.append_basic_block()
            choice = builder.switch(work.length, many)
            for width in range(1, _WIDEST + 1):
                block = builder.append_basic_block()
                choice.add_case(INT(LANES * width), block)
                builder.position_at_end(block)
                work.narrow(width)
                builder.branch(after)
            builder.position_at_end(many)
            work.wide()
            builder.branch(after)
            builder.position_at_end(after)
            return context.get_dummy_value()

        return types.void(rows, types.int64, shares, before, out), codegen

    return share


share_out = _sharing(False)
"""``out[a] = rows[a] * shares`` and ``before[a]`` their sum, for the first rows, in whole vectors.

``share_out(rows, n_rows, shares, before, out)``; `out` may be `rows`.
"""

share_out_scaled = _sharing(True)
"""``out[a] = before[a] * rows[a] * shares`` and ``before[a]`` their sum, as `share_out`."""
