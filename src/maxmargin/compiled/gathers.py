"""Products with, and sums of, sparse vectors, for one vector of weights.

For entries with values ``v`` at columns ``j``

    gathered_product: sum_j v_j * weights[j]
    add_scattered:    weights[j] += factor * v_j   for each j, one after the other

A column may occur more than once. The loops are emitted with bare pointers: numba would ask at
each place whether it is negative, and sum up in one chain of additions, each of which waits for the
one before; both together take more than half of the time of a short row.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import errors
from numba.extending import intrinsic

from maxmargin.compiled.simd import (
    CONTRACT,
    INT,
    LANES,
    VECTOR,
    add_product,
    loop_in_steps,
    merged_lanes,
    widened,
)


class _Entries:
    """The arguments that both intrinsics share, as LLVM values."""

    def __init__(self, context: Any, builder: Any, signature: Any, args: Any) -> None:
        self.builder = builder
        self.start, self.stop = args[0], args[1]
        self.columns, self.values, self.weights = (
            context.make_array(signature.args[k])(context, builder, args[k]).data for k in (2, 3, 4)
        )

    def value(self, p: Any) -> Any:
        """Value ``p``."""
        return widened(self.builder, self.builder.load(self.builder.gep(self.values, [p])))

    def weight(self, p: Any) -> Any:
        """Pointer to the weight at column ``p``."""
        column = self.builder.load(self.builder.gep(self.columns, [p]))
        return self.builder.gep(self.weights, [self.builder.zext(column, INT)])


def _check(columns: Any, values: Any, weights: Any) -> None:
    """Pointers know nothing of strides and signs."""
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

        zeros = ir.Constant(VECTOR, [0.0] * LANES)
        p, (sums,) = loop_in_steps(builder, entries.start, entries.stop, LANES, [zeros], several)
        total = merged_lanes(builder, sums, lambda a, b: builder.fadd(a, b, flags=CONTRACT))
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
