"""Exponentials of whole vectors: five times as fast as a call of the C library for each number."""

from math import factorial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from maxmargin.compiled.compile import inlined
from maxmargin.compiled.simd import CONTRACT, INT, LANES, VECTOR, add_product, splat, vectors_at

_LOG_2 = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""Its leading digits, which times any exponent are exact, and the rest."""
_LOG_TINY = -708.0
_DEGREE = 13

EXP_OPERATIONS = _DEGREE + 5
"""Multiplications, with or without an addition, of one exponential."""


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def _exp(context, values, shift, column, out, width):  # type: ignore[no-untyped-def]
    """``exp(values + shift)`` of some vectors."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        width = signature.args[4].literal_value
        sources, targets = (
            vectors_at(
                builder,
                builder.gep(
                    context.make_array(signature.args[k])(context, builder, args[k]).data, [args[2]]
                ),
                width,
            )
            for k in (0, 3)
        )
        shift = splat(builder, args[1])
        moved = [
            builder.fadd(builder.load(pointer, align=8), shift, flags=CONTRACT)
            for pointer in sources
        ]
        for value, pointer in zip(exp_vectors(builder, moved), targets, strict=True):
            builder.store(value, pointer, align=8)
        return context.get_dummy_value()

    return types.void(values, shift, column, out, width), codegen


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def _add_exp(context, values, shifts, shift, column, out, sums, width):  # type: ignore[no-untyped-def]
    """``exp(values + shifts + shift)`` of some vectors, which are added to `sums`, too."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        width = signature.args[6].literal_value
        sources, moves, targets, totals = (
            vectors_at(
                builder,
                builder.gep(
                    context.make_array(signature.args[k])(context, builder, args[k]).data, [args[3]]
                ),
                width,
            )
            for k in (0, 1, 4, 5)
        )
        shift = splat(builder, args[2])
        moved = []
        for source, move in zip(sources, moves, strict=True):
            both = builder.fadd(builder.load(source, align=8), builder.load(move, align=8))
            moved.append(builder.fadd(both, shift))
        found = exp_vectors(builder, moved)
        for value, target, total in zip(found, targets, totals, strict=True):
            builder.store(value, target, align=8)
            builder.store(builder.fadd(builder.load(total, align=8), value), total, align=8)
        return context.get_dummy_value()

    return types.void(values, shifts, shift, column, out, sums, width), codegen


def exp_vectors(builder: Any, vectors: list[Any]) -> list[Any]:
    """Exponentials of some vectors, which take turns; zero below the smallest normal number.

    Of numbers below 700, and none that is not a number.

    ``exp(x) = 2^k exp(r)`` with ``|r| <= log(2) / 2``, and of `r` the Taylor series up to where
    the next term is lost in rounding: even and odd powers apart, so that they need not wait for
    each other.
    """

    def constant(value: float) -> Any:
        return ir.Constant(VECTOR, [value] * LANES)

    def plus(total: Any, a: Any, b: Any) -> Any:
        return add_product(builder, total, a, b)

    wide = ir.VectorType(INT, LANES)
    nearest = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(VECTOR, [VECTOR]), f"llvm.rint.v{LANES}f64"
    )
    least = constant(_LOG_TINY)
    inside = [builder.fcmp_ordered(">", x, least, flags=CONTRACT) for x in vectors]
    kept = [builder.select(i, x, least) for i, x in zip(inside, vectors, strict=True)]
    ks = [
        builder.call(nearest, [builder.fmul(x, constant(1.0 / np.log(2.0)), flags=CONTRACT)])
        for x in kept
    ]
    for part in _LOG_2:
        kept = [plus(x, k, constant(-part)) for x, k in zip(kept, ks, strict=True)]
    squares = [builder.fmul(r, r, flags=CONTRACT) for r in kept]
    even, odd = ([constant(1.0 / factorial(n))] * len(kept) for n in (_DEGREE - 1, _DEGREE))
    for n in range(_DEGREE - 3, -1, -2):
        low, high = (constant(1.0 / factorial(m)) for m in (n, n + 1))
        even = [plus(low, a, square) for a, square in zip(even, squares, strict=True)]
        odd = [plus(high, b, square) for b, square in zip(odd, squares, strict=True)]
    results = []
    for i, k, r, a, b in zip(inside, ks, kept, even, odd, strict=True):
        power = builder.sext(builder.fptosi(k, ir.VectorType(ir.IntType(32), LANES)), wide)
        power = builder.add(power, ir.Constant(wide, [1023] * LANES))  # the bits of 2^k
        power = builder.shl(power, ir.Constant(wide, [52] * LANES))
        whole = builder.fmul(plus(a, b, r), builder.bitcast(power, VECTOR), flags=CONTRACT)
        results.append(builder.select(i, whole, constant(0.0)))
    return results


@inlined
def exponentials(values, shift, out):  # type: ignore[no-untyped-def]
    """``out = exp(values + shift)``, padding included; both have whole vectors."""
    column = np.int64(0)
    while len(out) - column >= 2 * LANES:
        _exp(values, shift, column, out, 2)
        column += 2 * LANES
    if column < len(out):
        _exp(values, shift, column, out, 1)


@inlined
def add_exponentials(values, shifts, shift, out, sums):  # type: ignore[no-untyped-def]
    """``out = exp(values + shifts + shift)`` and ``sums += out``, padding included."""
    column = np.int64(0)
    while len(out) - column >= 2 * LANES:
        _add_exp(values, shifts, shift, column, out, sums, 2)
        column += 2 * LANES
    if column < len(out):
        _add_exp(values, shifts, shift, column, out, sums, 1)
