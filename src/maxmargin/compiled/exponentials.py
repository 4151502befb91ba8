"""Exponentials of vectors, and reweighted distributions ``new ~ old * exp(inverse * score)``.

`inverse` is one over the temperature. The distribution of a chain is its marginal probabilities,
`nodes` of shape (length, P) and `pairs` of shape (length - 1, n_labels, P), padded with zeros.
"""

from math import factorial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.compiled.simd import (
    CONTRACT,
    INT,
    LANES,
    VECTOR,
    add_product,
    added,
    arrays,
    constant,
    in_widths,
    loaded,
    splat,
    store,
    vectors_at,
)

_LOG_2 = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""Leading digits, whose product with an exponent is exact, and the rest."""
_LOG_TINY = -1023.0 * sum(_LOG_2)
"""Below it powers of two have the bits of zero."""
_ROUNDING = 1.5 * 2.0**52 + 1023.0
"""Added to a number, leaves an integer in the lowest bits: as the exponent of a double has it."""
_DEGREE = 13

EXP_OPERATIONS = _DEGREE + 5
"""Multiplications, with or without an addition, of one exponential."""


LEAST = 1e-100
"""Smaller probabilities are reweighted as if they were this large: what vanished can return."""

WIDEST = 430.0
"""Range of transition scores over the temperature up to which `reweight_chain` is accurate: ``LEAST
* exp(-WIDEST)`` is a normal number, and what underflows next to it would not change a sum."""


def _exp_vectors(builder: Any, vectors: list[Any]) -> list[Any]:
    """``exp(x) = 2^k exp(r)``, Taylor series of r; for x below 700, zero for ``k < -1022``."""

    def plus(total: Any, a: Any, b: Any) -> Any:
        return add_product(builder, total, a, b)

    wide = ir.VectorType(INT, LANES)
    higher = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(VECTOR, [VECTOR, VECTOR]), f"llvm.maxnum.v{LANES}f64"
    )
    kept = [
        builder.call(higher, [x, constant(_LOG_TINY)], fastmath=("nnan", "nsz")) for x in vectors
    ]
    # To round by an addition takes fewer instructions than to convert there and back; sums may be
    # reordered, but not across the fence.
    fence = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(VECTOR, [VECTOR]), f"llvm.arithmetic.fence.v{LANES}f64"
    )
    rounded = [
        builder.call(fence, [plus(constant(_ROUNDING), x, constant(1.0 / np.log(2.0)))])
        for x in kept
    ]
    ks = [builder.fsub(k, constant(_ROUNDING)) for k in rounded]
    for part in _LOG_2:
        kept = [plus(x, k, constant(-part)) for x, k in zip(kept, ks, strict=True)]
    squares = [builder.fmul(r, r, flags=CONTRACT) for r in kept]
    even, odd = ([constant(1.0 / factorial(n))] * len(kept) for n in (_DEGREE - 1, _DEGREE))
    for n in range(_DEGREE - 3, -1, -2):
        low, high = (constant(1.0 / factorial(m)) for m in (n, n + 1))
        even = [plus(low, a, square) for a, square in zip(even, squares, strict=True)]
        odd = [plus(high, b, square) for b, square in zip(odd, squares, strict=True)]
    results = []
    for k, r, a, b in zip(rounded, kept, even, odd, strict=True):
        power = builder.shl(builder.bitcast(k, wide), ir.Constant(wide, [52] * LANES))
        whole = builder.fmul(plus(a, b, r), builder.bitcast(power, VECTOR), flags=CONTRACT)
        results.append(whole)
    return results


@intrinsic  # type: ignore[untyped-decorator]
def exponentials(context, values, shift, out):  # type: ignore[no-untyped-def]
    """``out = exp(values + shift)``, padding included; both have whole vectors."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values, out = arrays(context, builder, signature, args, 0, 2)
        shift = splat(builder, args[1])

        def emit(column: Any, width: int) -> None:
            vectors = loaded(builder, vectors_at(builder, values.data, column, width))
            found = _exp_vectors(builder, [added(builder, vector, shift) for vector in vectors])
            store(builder, found, vectors_at(builder, out.data, column, width))

        in_widths(builder, cgutils.unpack_tuple(builder, out.shape)[0], (4, 1), emit)
        return context.get_dummy_value()

    return types.void(values, types.float64, out), codegen


@intrinsic  # type: ignore[untyped-decorator]
def add_exponentials(context, values, shifts, shift, out, sums):  # type: ignore[no-untyped-def]
    """``out = exp(values + shifts + shift)`` and ``sums += out``, padding included."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        operands = arrays(context, builder, signature, args, 0, 1, 3, 4)
        shift = splat(builder, args[2])

        def emit(column: Any, width: int) -> None:
            values, shifts, out, sums = (
                vectors_at(builder, array.data, column, width) for array in operands
            )
            both = zip(loaded(builder, values), loaded(builder, shifts), strict=True)
            moved = [builder.fadd(builder.fadd(value, move), shift) for value, move in both]
            found = _exp_vectors(builder, moved)
            store(builder, found, out)
            totals = zip(loaded(builder, sums), found, strict=True)
            store(builder, [builder.fadd(total, value) for total, value in totals], sums)

        in_widths(builder, cgutils.unpack_tuple(builder, operands[2].shape)[0], (4, 1), emit)
        return context.get_dummy_value()

    return types.void(values, shifts, types.float64, out, sums), codegen


_LOG_SERIES = (
    6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01,
    2.222219843214978396e-01, 1.818357216161805012e-01, 1.531383769920937332e-01,
    1.479819860511658591e-01,
)  # fmt: skip
"""Of ``log(1 + f)`` in squares of ``f / (2 + f)``, as in fdlibm."""


def _log_vector(builder: Any, x: Any) -> Any:
    """``log(2^k (1 + f)) = k log(2) + log(1 + f)``; for normal numbers, and -inf for zero."""
    wide = ir.VectorType(INT, LANES)

    def same(bits: int) -> Any:
        return ir.Constant(wide, [bits] * LANES)

    def plus(total: Any, a: Any, b: Any) -> Any:
        return add_product(builder, total, a, b)

    one, root = 1023 << 52, 0x3FE6A09E667F3BCD  # the bits of 1, and of the root of 1/2
    bits = builder.bitcast(x, wide)
    # Less the root, so that 1 + f is between it and its double.
    moved = builder.add(bits, same(one - root))
    power = builder.lshr(moved, same(52))
    kept = builder.sub(bits, builder.sub(builder.and_(moved, same(0xFFF << 52)), same(one)))
    # The integer as the last bits of 2^52.
    whole = builder.bitcast(builder.or_(power, same((1023 + 52) << 52)), VECTOR)
    k = builder.fsub(whole, constant(2.0**52 + 1023.0))
    f = builder.fsub(builder.bitcast(kept, VECTOR), constant(1.0))
    s = builder.fdiv(f, builder.fadd(f, constant(2.0)))
    square = builder.fmul(s, s, flags=CONTRACT)
    series = constant(_LOG_SERIES[-1])
    for coefficient in _LOG_SERIES[-2::-1]:
        series = plus(constant(coefficient), series, square)
    half = builder.fmul(constant(0.5), builder.fmul(f, f, flags=CONTRACT), flags=CONTRACT)
    rest = builder.fmul(s, plus(half, series, square), flags=CONTRACT)
    rest = builder.fsub(plus(rest, k, constant(_LOG_2[1])), half)
    found = plus(added(builder, f, rest), k, constant(_LOG_2[0]))
    zero = builder.fcmp_ordered("<=", x, constant(0.0))
    return builder.select(zero, constant(-np.inf), found)


@intrinsic  # type: ignore[untyped-decorator]
def add_logarithms(context, values, out):  # type: ignore[no-untyped-def]
    """``out += log(values)``, padding included; both have whole vectors."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values, out = arrays(context, builder, signature, args, 0, 1)

        def emit(column: Any, width: int) -> None:
            vectors = loaded(builder, vectors_at(builder, values.data, column, width))
            targets = vectors_at(builder, out.data, column, width)
            logs = [_log_vector(builder, vector) for vector in vectors]
            sums = zip(loaded(builder, targets), logs, strict=True)
            store(builder, [builder.fadd(total, log) for total, log in sums], targets)

        in_widths(builder, cgutils.unpack_tuple(builder, out.shape)[0], (1,), emit)
        return context.get_dummy_value()

    return types.void(values, out), codegen


@inlined
def normalise(logs):  # type: ignore[no-untyped-def]
    """Turn log-probabilities into probabilities that add up to one, in place."""
    highest = -np.inf
    for m in range(len(logs)):
        highest = max(highest, logs[m])
    total = 0.0
    for m in range(len(logs)):
        logs[m] = np.exp(logs[m] - highest)
        total += logs[m]
    for m in range(len(logs)):
        logs[m] /= total


@inlined
def reweight(old, inverse, new):  # type: ignore[no-untyped-def]
    """Set `new`, which holds scores, to the reweighted distribution."""
    for j in range(len(old)):
        new[j] = np.log(max(old[j], LEAST)) + inverse * new[j]
    normalise(new)


@compiled
def true_score(labels, scores, edges):  # type: ignore[no-untyped-def]
    """Score of the true labelling."""
    varying = len(edges) > 1
    total = scores[0, labels[0]]
    for t in range(1, len(labels)):
        total += scores[t, labels[t]] + edges[(t - 1) * varying, labels[t - 1], labels[t]]
    return total


@compiled
def mean_score(nodes, pairs, scores, edges):  # type: ignore[no-untyped-def]
    """Expected score of a labelling."""
    varying = len(edges) > 1
    total = 0.0
    for t in range(len(nodes)):
        for m in range(nodes.shape[1]):
            total += nodes[t, m] * scores[t, m]
    for t in range(len(pairs)):
        edge = edges[t * varying]
        for a in range(pairs.shape[1]):
            for m in range(pairs.shape[2]):
                total += pairs[t, a, m] * edge[a, m]
    return total


@compiled
def set_labelling(labels, nodes, pairs):  # type: ignore[no-untyped-def]
    """Put all probability on one labelling."""
    for t in range(len(nodes)):
        for m in range(nodes.shape[1]):
            nodes[t, m] = 0.0
        nodes[t, labels[t]] = 1.0
    for t in range(len(pairs)):
        for a in range(pairs.shape[1]):
            for m in range(pairs.shape[2]):
                pairs[t, a, m] = 0.0
        pairs[t, labels[t], labels[t + 1]] = 1.0


@compiled
def set_potentials(nodes, pairs, edges, inverse, n_labels, scores, potentials):  # type: ignore[no-untyped-def]
    """Log-distribution plus scores over the temperature, in `scores` and (pairs) `potentials`."""
    varying = len(edges) > 1
    last = len(nodes) - 1
    for t in range(last + 1):
        # An inner position is part of two pairs: it would be counted once too often.
        sign = 1.0 if last == 0 else (-1.0 if 0 < t < last else 0.0)
        for m in range(n_labels):
            scores[t, m] = inverse * scores[t, m] + sign * np.log(max(nodes[t, m], LEAST))
    for t in range(last):
        edge = edges[t * varying]
        for a in range(n_labels):
            for m in range(n_labels):
                log = np.log(max(pairs[t, a, m], LEAST))
                potentials[t, a, m] = inverse * edge[a, m] + log


@compiled
def set_factors(edges, inverse, n_labels, factors):  # type: ignore[no-untyped-def]
    """``exp(edges * inverse)`` over the highest; returns whether their range is within `WIDEST`."""
    lowest, highest = np.inf, -np.inf
    for a in range(n_labels):
        for m in range(n_labels):
            lowest = min(lowest, edges[a, m])
            highest = max(highest, edges[a, m])
    for a in range(n_labels):
        for m in range(n_labels):
            factors[a, m] = np.exp((edges[a, m] - highest) * inverse)
    return (highest - lowest) * inverse <= WIDEST


@compiled
def reweight_chain(  # type: ignore[no-untyped-def]
    nodes, pairs, scores, inverse, factors, n_labels, new_nodes, new_pairs, sums
):
    """Forward-backward on `set_potentials`, without a logarithm for every pair.

    - nodes, pairs, new_nodes, new_pairs : marginal probabilities, and those that are set
    - scores, sums : (length, P), scores of labels, and scratch
    - factors : (n_labels, P), of the transitions, see `set_factors`
    - inverse, n_labels : numbers
    """
    last, width = len(nodes) - 1, nodes.shape[1]
    for m in range(n_labels):
        new_nodes[0, m] = np.log(max(nodes[0, m], LEAST)) + inverse * scores[0, m]
    for t in range(last):
        # Forward: new_pairs[t, a, m] ~ exp(new_nodes[t, a]) * p(m | a) * factors[a, m].
        highest = -np.inf
        for a in range(n_labels):
            highest = max(highest, new_nodes[t, a])
        for m in range(width):
            sums[t, m] = 0.0
        for a in range(n_labels):
            share = np.exp(new_nodes[t, a] - highest) / max(nodes[t, a], LEAST)
            for m in range(width):
                part = share * max(pairs[t, a, m], LEAST) * factors[a, m]
                new_pairs[t, a, m] = part
                sums[t, m] += part
        for m in range(n_labels):
            new_nodes[t + 1, m] = np.log(sums[t, m]) + inverse * scores[t + 1, m]
    normalise(new_nodes[last, :n_labels])
    for t in range(last + 1):
        for m in range(n_labels, width):
            new_nodes[t, m] = sums[t, m] = 0.0
    for t in range(last - 1, -1, -1):
        for m in range(n_labels):
            sums[t, m] = new_nodes[t + 1, m] / sums[t, m]
        for a in range(n_labels):
            total = 0.0
            for m in range(width):
                new_pairs[t, a, m] *= sums[t, m]
                total += new_pairs[t, a, m]
            new_nodes[t, a] = total
