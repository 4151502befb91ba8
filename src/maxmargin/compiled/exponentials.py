"""Exponentials of whole vectors, and distributions reweighted by exponentials of scores.

Those of vectors are five times as fast as a call of the C library for each number.

A reweighted distribution is ``new ~ old * exp(inverse * score)``, `inverse` one over the
temperature. That of a chain has the probabilities `nodes` of labels, ``(length, P)``, and `pairs`
of labels of neighbours, ``(length - 1, n_labels, P)``, zero in the padding; see
`maxmargin.structures.chain.inference` for scores and padding. There are two ways to reweight them:
`set_potentials` makes scores for `marginals_along`, whatever they are; `reweight_chain` takes no
logarithm for every pair, where the scores of pairs are the same at all positions and lie close
enough to each other.
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
"""Its leading digits, which times any exponent are exact, and the rest."""
_LOG_TINY = -708.0
_DEGREE = 13

EXP_OPERATIONS = _DEGREE + 5
"""Multiplications, with or without an addition, of one exponential."""


LEAST = 1e-100
"""Smaller probabilities are reweighted as if they were this large: what vanished can return."""

WIDEST = 430.0
"""Range of transitions over the temperature up to which factors can take the place of logarithms.

Then the smallest product of a share, a probability and a factor, ``LEAST * exp(-WIDEST)``, is still
a number, and what iterations to zero next to it would not have changed a sum."""


def _exp_vectors(builder: Any, vectors: list[Any]) -> list[Any]:
    """Exponentials of vectors of numbers below 700; zero below the smallest normal number.

    ``exp(x) = 2^k exp(r)`` with ``|r| <= log(2) / 2``, and of `r` the Taylor series up to where
    the next term is lost in rounding: even and odd powers apart, so that they need not wait for
    each other.
    """

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

        in_widths(builder, cgutils.unpack_tuple(builder, out.shape)[0], (2, 1), emit)
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

        in_widths(builder, cgutils.unpack_tuple(builder, operands[2].shape)[0], (2, 1), emit)
        return context.get_dummy_value()

    return types.void(values, shifts, types.float64, out, sums), codegen


@inlined
def normalise(logs):  # type: ignore[no-untyped-def]
    """From logarithms to probabilities."""
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
    """Set `new`, the scores, to the probabilities; `old` has one for every output."""
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
    """All probability on one labelling."""
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
    """The distribution's logarithm plus scores over the temperature.

    That of the positions in the place of `scores`, that of the pairs in `potentials`.
    """
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
    """``exp(edges * inverse)`` over the highest; returns whether that can be used."""
    lowest, highest = np.inf, -np.inf
    for a in range(n_labels):
        for m in range(n_labels):
            lowest = min(lowest, edges[a, m])
            highest = max(highest, edges[a, m])
    for a in range(n_labels):
        for m in range(n_labels):
            factors[a, m] = np.exp((edges[a, m] - highest) * inverse)
    return (highest - lowest) * inverse <= WIDEST


@inlined
def forward_shares(nodes, pairs, logs, factors, n_labels, new_pairs, sums):  # type: ignore[no-untyped-def]
    """One step forward: ``new_pairs[a, m] ~ exp(logs[a]) * p(m | a) * factors[a, m]``."""
    highest = -np.inf
    for a in range(n_labels):
        highest = max(highest, logs[a])
    for m in range(len(sums)):
        sums[m] = 0.0
    for a in range(n_labels):
        share = np.exp(logs[a] - highest) / max(nodes[a], LEAST)
        for m in range(len(sums)):
            part = share * max(pairs[a, m], LEAST) * factors[a, m]
            new_pairs[a, m] = part
            sums[m] += part


@compiled
def reweight_chain(  # type: ignore[no-untyped-def]
    nodes, pairs, scores, inverse, factors, n_labels, new_nodes, new_pairs, sums
):
    """What `marginals_along` makes of `set_potentials`, without a logarithm for every pair.

    As there, the way forward leaves in `new_pairs` what is in proportion to the probabilities of a
    label given the next one, and the way back shares these out.

    Parameters
    ----------
    nodes, pairs, new_nodes, new_pairs : ndarray
        Marginal probabilities, and those that are set.
    scores, sums : ndarray of shape (length, P)
        Scores of labels, and scratch.
    inverse, n_labels : number
    factors : ndarray of shape (n_labels, P)
        Exponentials of the scores of transitions over the temperature; see `set_factors`.
    """
    last = len(nodes) - 1
    for m in range(n_labels):
        new_nodes[0, m] = np.log(max(nodes[0, m], LEAST)) + inverse * scores[0, m]
    for t in range(last):
        forward_shares(nodes[t], pairs[t], new_nodes[t], factors, n_labels, new_pairs[t], sums[t])
        for m in range(n_labels):
            new_nodes[t + 1, m] = np.log(sums[t, m]) + inverse * scores[t + 1, m]
    normalise(new_nodes[last, :n_labels])
    for t in range(last + 1):
        for m in range(n_labels, nodes.shape[1]):
            new_nodes[t, m] = sums[t, m] = 0.0
    for t in range(last - 1, -1, -1):
        for m in range(n_labels):
            sums[t, m] = new_nodes[t + 1, m] / sums[t, m]
        for a in range(n_labels):
            total = 0.0
            for m in range(nodes.shape[1]):
                new_pairs[t, a, m] *= sums[t, m]
                total += new_pairs[t, a, m]
            new_nodes[t, a] = total
