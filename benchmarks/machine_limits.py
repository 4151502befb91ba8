"""What this machine can do at most: bytes moved and arithmetic a second, measured, not looked up.

Arithmetic is measured in registers alone, with as many independent chains as it takes to keep the
units busy, in explicit vectors as the library's own kernels have them. Bytes are measured in
streams over arrays of a given size, for every level of the cache has a speed of its own. Numbers
that do not stand in a row are measured at the very places where they stand.
"""

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from maxmargin.compiled.exponentials import EXP_OPERATIONS
from maxmargin.compiled.simd import LANES, VECTOR, splat

_INT = ir.IntType(64)

CHAINS = 10
"""Vectors that are worked on at the same time: more than latency times units, fewer than there are
registers."""

WINDOW, WHOLE = 0.0005, 0.2
"""Seconds of one measurement and of all together. The fastest counts, for whatever disturbs one
makes it slower; many short ones find a moment in which nothing does."""


def _multiply_add(builder: Any, value: Any, factor: Any, term: Any) -> Any:
    product = builder.fmul(value, factor, flags=("contract",))
    return builder.fadd(product, term, flags=("contract",))


def _add_max(builder: Any, value: Any, factor: Any, term: Any) -> Any:
    moved = builder.fadd(value, term, flags=("contract",))
    return builder.select(builder.fcmp_ordered(">", moved, value, flags=("nsz",)), moved, value)


OPERATIONS = {
    "multiply-adds": (_multiply_add, 1),
    "additions with maximum": (_add_max, 1),
    "exponentials": (_multiply_add, EXP_OPERATIONS),
}
"""What a loop does, and how many of these make one operation."""


def _register_loop(operation: Callable[[Any, Any, Any, Any], Any]) -> Any:
    """A compiled loop of nothing but one operation; takes the number of iterations."""

    @intrinsic  # type: ignore[untyped-decorator]
    def rounds(context, count, factor, term):  # type: ignore[no-untyped-def]
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            count = args[0]
            factor, term = (splat(builder, value) for value in args[1:])
            before = builder.block
            inside, after = builder.append_basic_block(), builder.append_basic_block()
            builder.branch(inside)
            builder.position_at_end(inside)
            p = builder.phi(_INT)
            p.add_incoming(_INT(0), before)
            chains = [builder.phi(VECTOR) for _ in range(CHAINS)]
            updated = [operation(builder, chain, factor, term) for chain in chains]
            for number, (chain, new) in enumerate(zip(chains, updated, strict=True)):
                chain.add_incoming(ir.Constant(VECTOR, [float(number)] * LANES), before)
                chain.add_incoming(new, inside)
            following = builder.add(p, _INT(1))
            p.add_incoming(following, inside)
            builder.cbranch(builder.icmp_signed("<", following, count), inside, after)
            builder.position_at_end(after)
            total = updated[0]
            for value in updated[1:]:
                total = builder.fadd(total, value)
            return builder.extract_element(total, ir.Constant(ir.IntType(32), 0))

        return types.float64(types.int64, types.float64, types.float64), codegen

    @numba.njit
    def loop(count, factor, term):  # type: ignore[no-untyped-def]
        return rounds(count, factor, term)

    return lambda count: loop(count, 0.999, 1e-3)


@numba.njit(fastmath=True)
def _read(a, b, rounds):  # type: ignore[no-untyped-def]
    """All bits of an array together, which costs least of all ways to look at each number."""
    bits = a.view(np.int64)
    total = 0
    for r in range(rounds):
        for i in range(len(bits)):
            total |= bits[i] + r
    return total


@numba.njit(fastmath=True)
def _fill(a, b, rounds):  # type: ignore[no-untyped-def]
    """Write an array."""
    for r in range(rounds):
        for i in range(len(a)):
            a[i] = r


@numba.njit(fastmath=True)
def _update(a, b, rounds):  # type: ignore[no-untyped-def]
    """Read one array and add it to another."""
    for _ in range(rounds):
        for i in range(len(a)):
            a[i] += 1e-9 * b[i]


@numba.njit(fastmath=True)
def _triad(a, b, rounds):  # type: ignore[no-untyped-def]
    """STREAM's, with two halves of one array as its sources."""
    half = len(a) // 2
    for _ in range(rounds):
        for i in range(half):
            a[i] = b[i] + 3.0 * b[half + i]


STREAMS: dict[str, tuple[Any, int, bool]] = {
    "read": (_read, 8, False),
    "written": (_fill, 8, False),
    "updated": (_update, 24, True),
    "triad": (_triad, 12, True),
}
"""Kernels with the bytes they move for each entry of the first array, and whether they take two."""


@numba.njit(fastmath=True)
def _gather(columns, table, rounds):  # type: ignore[no-untyped-def]
    """Sum up what stands at the columns, several at a time."""
    total = 0.0
    for _ in range(rounds):
        for q in range(len(columns)):
            total += table[columns[q]]
    return total


@numba.njit
def _scatter(columns, table, rounds):  # type: ignore[no-untyped-def]
    """Add to what stands at the columns, one after the other, for one may come again at once."""
    for _ in range(rounds):
        for q in range(len(columns)):
            table[columns[q]] += 1e-9


PLACES = {"gathered": _gather, "scattered": _scatter}
"""Kernels that read, or add to, one number of a table for each column."""


def fastest(work: Callable[[int], Any], whole: float = WHOLE) -> float:
    """Seconds of one iteration of ``work(iterations)``: the fewest that `whole` seconds show."""
    work(1)
    rounds = 1
    while (seconds := _seconds(work, rounds)) < WINDOW:
        rounds = max(2 * rounds, int(rounds * WINDOW / max(seconds, 1e-9)))
    end = time.perf_counter() + whole
    while time.perf_counter() < end:
        seconds = min(seconds, _seconds(work, rounds))
    return seconds / rounds


def _seconds(work: Callable[[int], Any], rounds: int) -> float:
    start = time.perf_counter()
    work(rounds)
    return time.perf_counter() - start


@cache
def rate(operation: str) -> float:
    """How often a second an operation of `OPERATIONS` is done to one number."""
    work, each = OPERATIONS[operation]
    found: float = CHAINS * LANES / fastest(_register_loop(work)) / each
    return found


def bandwidth(stream: str, size: int) -> float:
    """Bytes a second of one of the `STREAMS` over `size` bytes in all, rounded to a power of 2."""
    return _bandwidth(stream, 1 << max(12, round(np.log2(max(size, 1)))))


@cache
def _bandwidth(stream: str, size: int) -> float:
    kernel, bytes_each, two = STREAMS[stream]
    n = size // (16 if two else 8)
    a, b = np.ones(n), np.ones(n if two else 1)
    return bytes_each * n / fastest(lambda rounds: kernel(a, b, rounds))


def place_seconds(what: str, columns: NDArray[np.uint32], n: int) -> float:
    """Seconds of one of the kernels of `PLACES`, for a table of `n` numbers."""
    kernel, table = PLACES[what], np.ones(n)
    return fastest(lambda rounds: kernel(columns, table, rounds), 2 * WHOLE)
