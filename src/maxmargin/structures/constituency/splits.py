"""Two neighbouring children of a binary rule, over all split points and several spans at a time.

All scores of one symbol over a sentence of `length` words are a triangle of `triangle` numbers: a
row for each number of words, in it a place for each start. So spans of the same width that follow
each other stand in a row, and so do their children: vectors hold spans. A row has `LANES - 1`
places to spare, which vectors may read and write, and which nobody looks at.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from maxmargin.compiled.compile import inlined
from maxmargin.compiled.simd import (
    INT,
    LANES,
    VECTOR,
    all_at_once,
    arrays,
    constant,
    loaded,
    loop_in_steps,
    splat,
    store,
    vectors_at,
)


def row_of_width(width: Any, length: int) -> Any:
    """Where the row of spans of `width` words begins in a triangle; also of arrays."""
    return (width - 1) * (2 * (length + LANES) - width) // 2


def triangle(length: int) -> int:
    """Places of all spans of one symbol."""
    return length * (length + 2 * LANES - 1) // 2  # the row after the last begins here


def row_stride(width: Any, length: int) -> Any:
    """Places of a row of spans of `width` words."""
    return length + LANES - width


triangle_row = inlined(row_of_width)


def _higher(builder: Any, old: Any, new: Any) -> Any:
    # A comparison and a choice would be stored under a mask, and what is so stored makes those wait
    # that read it soon after: rules with the same parent do, one after the other.
    highest = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(VECTOR, [VECTOR, VECTOR]), f"llvm.maxnum.v{LANES}f64"
    )
    return builder.call(highest, [new, old], fastmath=("nnan", "nsz"))


@intrinsic  # type: ignore[untyped-decorator]
def raise_parents(  # type: ignore[no-untyped-def]
    context, tops, left, right, left_step, right_step, n_splits, n_starts,
    here, at, stride, parents, scores, first_rule, last_rule,
):  # fmt: skip
    """Raise the scores of the parents of two neighbouring symbols.

    - tops, left, right : triangles, and where the children of the first split of the first span are
    - left_step, right_step : from there to those of the second split; one less for each further one
    - n_splits, n_starts : how many splits, and how many spans that follow each other
    - here, at, stride : that of parent ``a`` at the first span is ``here[at + a * stride]``
    - parents, scores, first_rule, last_rule : the rules with these children
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        places, (n_splits, n_starts, at, stride, first_rule, last_rule) = (
            args[1:5],
            (args[k] for k in (5, 6, 8, 9, 12, 13)),
        )
        tops, here, parents, scores = (
            array.data for array in arrays(context, builder, signature, args, 0, 7, 10, 11)
        )
        base = builder.gep(here, [at])

        def emit(place: Any, width: int) -> None:
            def split(_: Any, carried: list[Any]) -> list[Any]:
                left, right, left_step, right_step, *best = carried
                lefts, rights = (
                    loaded(builder, vectors_at(builder, tops, builder.add(child, place), width))
                    for child in (left, right)
                )
                sums = [builder.fadd(a, b) for a, b in zip(lefts, rights, strict=True)]
                # At the next split point the left child has a word more, so its row is further on
                # by the length of a row, and rows get shorter by one each time.
                return [
                    builder.add(left, left_step),
                    builder.add(right, right_step),
                    builder.sub(left_step, INT(1)),
                    builder.sub(right_step, INT(1)),
                    *(_higher(builder, *pair) for pair in zip(best, sums, strict=True)),
                ]

            def rule(r: Any, _: list[Any]) -> list[Any]:
                parent = builder.zext(builder.load(builder.gep(parents, [r])), INT)
                row = builder.add(builder.mul(parent, stride), place)
                targets = vectors_at(builder, base, row, width)
                score = splat(builder, builder.load(builder.gep(scores, [r])))
                sums = [builder.fadd(vector, score) for vector in best]
                before = loaded(builder, targets)
                store(
                    builder,
                    [_higher(builder, *pair) for pair in zip(before, sums, strict=True)],
                    targets,
                )
                return []

            start = [*places, *[constant(-np.inf)] * width]
            best = loop_in_steps(builder, INT(0), n_splits, 1, start, split)[1][4:]
            loop_in_steps(builder, first_rule, last_rule, 1, [], rule)

        # Whole vectors, the last of which may go beyond the last span.
        whole = builder.and_(builder.add(n_starts, INT(LANES - 1)), INT(-LANES))
        all_at_once(builder, whole, 4, 5, emit)
        return context.get_dummy_value()

    place = types.int64
    arguments = (
        tops, place, place, place, place, place, place,
        here, place, place, parents, scores, place, place,
    )  # fmt: skip
    return types.void(*arguments), codegen


@intrinsic  # type: ignore[untyped-decorator]
def raise_row(context, source, source_at, score, target, target_at, count):  # type: ignore[no-untyped-def]
    """``target[target_at + p] = max(itself, source[source_at + p] + score)`` for ``p < count``.

    Goes on to a whole number of vectors.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source, target = arrays(context, builder, signature, args, 0, 3)
        bases = builder.gep(source.data, [args[1]]), builder.gep(target.data, [args[4]])
        score = splat(builder, args[2])

        def body(p: Any, _: list[Any]) -> list[Any]:
            below, above = (vectors_at(builder, base, p, 1) for base in bases)
            raised = builder.fadd(loaded(builder, below)[0], score)
            store(builder, [_higher(builder, loaded(builder, above)[0], raised)], above)
            return []

        whole = builder.add(args[5], INT(LANES - 1))
        loop_in_steps(builder, INT(0), whole, LANES, [], body)
        return context.get_dummy_value()

    place = types.int64
    return types.void(source, place, types.float64, target, place, place), codegen


@intrinsic  # type: ignore[untyped-decorator]
def move_row(context, source, source_at, target, target_at, count):  # type: ignore[no-untyped-def]
    """Move a row, -inf stays behind; returns the first and the last place that was not -inf.

    Without such a place the last one is -1. Returns the places as bits, too, that of ``p`` modulo
    64. Goes on to a whole number of vectors.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source, target = arrays(context, builder, signature, args, 0, 2)
        bases = builder.gep(source.data, [args[1]]), builder.gep(target.data, [args[3]])
        count = args[4]
        nothing = constant(-np.inf)

        def body(p: Any, carried: list[Any]) -> list[Any]:
            first, last, every = carried
            own, to = (vectors_at(builder, base, p, 1) for base in bases)
            scores = loaded(builder, own)
            store(builder, scores, to)
            store(builder, [nothing], own)
            bits = builder.fcmp_ordered(">", scores[0], nothing)
            bits = builder.zext(builder.bitcast(bits, ir.IntType(LANES)), INT)
            # Those beyond the end say nothing.
            left = builder.sub(count, p)
            many = builder.icmp_signed(">", left, INT(LANES))
            left = builder.select(many, INT(LANES), left)
            bits = builder.and_(bits, builder.sub(builder.shl(INT(1), left), INT(1)))
            some = builder.icmp_unsigned("!=", bits, INT(0))
            zeros = ir.Constant(ir.IntType(1), 0)
            lowest = builder.add(p, builder.cttz(bits, zeros))
            highest = builder.add(p, builder.sub(INT(63), builder.ctlz(bits, zeros)))
            none = builder.icmp_signed("<", last, INT(0))
            first = builder.select(builder.and_(some, none), lowest, first)
            every = builder.or_(every, builder.shl(bits, builder.and_(p, INT(63))))
            return [first, builder.select(some, highest, last), every]

        whole = builder.add(count, INT(LANES - 1))
        _, ends = loop_in_steps(builder, INT(0), whole, LANES, [INT(0), INT(-1), INT(0)], body)
        return context.make_tuple(builder, signature.return_type, ends)

    place = types.int64
    found = types.UniTuple(types.int64, 3)
    return found(source, place, target, place, place), codegen
