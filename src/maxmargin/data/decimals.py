"""Decimal numbers in text, read in compiled code to the same bits that Python reads.

A number ``w * 10^q`` with a whole ``w`` of up to 19 digits is ``w * 5^q * 2^q``. The first 128
bits of ``5^q`` are in a table; the first bits of their product with ``w`` are those of the answer,
but for the rounding, which is known unless the bits that are cut off are all ones or all zeros
(Lemire, *Number parsing at a gigabyte per second*, 2021). Of more than 19 digits the first 19 and
their successor are taken: mostly both have the same double. What is left open, a few numbers in a
billion, and what no double has room for, is left to Python's own reading.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled

LEAST_POWER, MOST_POWER = -342, 308
MOST_DIGITS = 19
"""As many always fit in 64 bits."""

PADDING = 8
"""Bytes that must follow a text in memory, because digits are looked at eight at a time."""

DOUBLE, HARD, NO_NUMBER = range(3)
"""What `read_decimal` found: a double, a number for Python to read, or something else."""

_U = np.uint64
_ONE, _TEN = _U(1), _U(10)
_ALL = _U(0xFFFFFFFFFFFFFFFF)
_PRECISION = _ALL >> _U(55)
_FRACTION = (_ONE << _U(52)) - _ONE
_NAN, _INF, _INFINITY = (_U(int.from_bytes(word, "big")) for word in (b"nan", b"inf", b"infinity"))
_TENS = np.array([10**i for i in range(9)], dtype=np.uint64)


def _powers_of_five() -> NDArray[np.uint64]:
    """The first 128 bits of each ``5^q``, upper half first; rounded up where they are cut off."""
    table = []
    for q in range(LEAST_POWER, MOST_POWER + 1):
        if q >= 0:
            power = 5**q
            shift = power.bit_length() - 128
            power = power >> shift if shift > 0 else power << -shift
        else:
            divisor = 5**-q
            power = (1 << (divisor.bit_length() + 127)) // divisor + 1
            power >>= max(power.bit_length() - 128, 0)
        table.append((power >> 64, power & (1 << 64) - 1))
    return np.array(table, dtype=np.uint64)


POWERS = _powers_of_five()

_I64, _I128 = ir.IntType(64), ir.IntType(128)


@intrinsic  # type: ignore[untyped-decorator]
def _eight_bytes(context, text, at):  # type: ignore[no-untyped-def]
    """The eight bytes of `text` from `at` on as one number, the first lowest."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        place = builder.bitcast(builder.gep(array.data, [args[1]]), _I64.as_pointer())
        return builder.load(place, align=1)

    return types.uint64(text, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def _product(context, a, b):  # type: ignore[no-untyped-def]
    """Upper and lower half of the product of two 64-bit numbers."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        whole = builder.mul(builder.zext(args[0], _I128), builder.zext(args[1], _I128))
        halves = builder.lshr(whole, _I128(64)), whole
        return context.make_tuple(
            builder, signature.return_type, [builder.trunc(half, _I64) for half in halves]
        )

    return types.UniTuple(types.uint64, 2)(types.uint64, types.uint64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def _leading_zeros(context, w):  # type: ignore[no-untyped-def]
    """Zero bits before the first one of a number that is not 0."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.IntType(1)(1))

    return types.int64(types.uint64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def _trailing_zeros(context, w):  # type: ignore[no-untyped-def]
    """Zero bits after the last one; 64 if there is none."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.IntType(1)(0))

    return types.int64(types.uint64), codegen


@compiled
def double_bits(w, q):  # type: ignore[no-untyped-def]
    """Bits of the double nearest to ``w * 10^q``, and whether they are known."""
    if w == 0:
        return _U(0), True
    if q < LEAST_POWER or q > MOST_POWER:
        return _U(0), False
    zeros = _leading_zeros(w)
    w <<= _U(zeros)
    high, low = _product(w, POWERS[q - LEAST_POWER, 0])
    if high & _PRECISION == _PRECISION:
        more, _ = _product(w, POWERS[q - LEAST_POWER, 1])
        low += more
        if more > low:
            high += _ONE
    if low == _ALL:
        return _U(0), False
    upper = high >> _U(63)
    shift = upper + _U(9)
    mantissa = high >> shift
    exponent = ((217706 * q) >> 16) + 63 + np.int64(upper) - zeros + 1023
    if exponent <= 0 or exponent >= 2046:
        return _U(0), False  # too small, or too large, or nearly
    if low <= _ONE and -4 <= q <= 23 and mantissa & _U(3) == _ONE and mantissa << shift == high:
        mantissa &= ~_ONE  # exactly between two doubles: to the even one
    mantissa = (mantissa + (mantissa & _ONE)) >> _ONE
    if mantissa > _FRACTION << _ONE | _ONE:
        mantissa >>= _ONE
        exponent += 1
    return (mantissa & _FRACTION) | _U(exponent) << _U(52), True


@compiled
def read_digits(text, at, w):  # type: ignore[no-untyped-def]
    """Digits from `at` on, put behind those of `w` (modulo 2^64), and where they end.

    Eight bytes at a time. What is no digit is found in all of them at once: with the 48 of a zero
    taken off by exclusive or, digits are the bytes below 10. They are moved to the end, behind
    zeros, and pairs, then fours, then all are put together side by side. However many they are, no
    branch has to be guessed.
    """
    count = 8
    while count == 8:
        eight = _eight_bytes(text, at) ^ _U(0x3030303030303030)
        others = (((eight & _U(0x7F7F7F7F7F7F7F7F)) + _U(0x7676767676767676)) | eight) & _U(
            0x8080808080808080
        )
        count = _trailing_zeros(others) >> 3
        digits = eight << _U(64 - 8 * count) if count else _U(0)
        pairs = digits * _TEN + (digits >> _U(8))
        first = (pairs & _U(0x000000FF000000FF)) * _U(100 + (1_000_000 << 32))
        second = ((pairs >> _U(16)) & _U(0x000000FF000000FF)) * _U(1 + (10_000 << 32))
        w = w * _TENS[count] + ((first + second) >> _U(32))
        at += count
    return w, at


@compiled
def _first_digits(text, start, end):  # type: ignore[no-untyped-def]
    """First `MOST_DIGITS` significant digits, how many follow, and how many are fractions."""
    w, kept, dropped, fractions = _U(0), 0, 0, 0
    point = False
    for at in range(start, end):
        digit = _U(text[at]) - _U(48)
        if digit < _TEN:
            fractions += point
            if kept < MOST_DIGITS:
                w = w * _TEN + digit
                kept += w != 0
            else:
                dropped += 1
        elif text[at] == 46:
            point = True
    return w, dropped, fractions


@compiled
def _named_bits(text, at):  # type: ignore[no-untyped-def]
    """Bits of nan, inf or infinity in any case, and where the word ends; 0 if it is another."""
    start = at
    word = _U(0)
    while 97 <= text[at] | 32 <= 122:
        word = word << _U(8) | _U(text[at] | 32)
        at += 1
    if at == start + 3 and word == _NAN:
        return _U(0x7FF8000000000000), at
    if (at == start + 3 and word == _INF) or (at == start + 8 and word == _INFINITY):
        return _U(0x7FF0000000000000), at
    return _U(0), at


@compiled
def read_decimal(text, at):  # type: ignore[no-untyped-def]
    """Read the number at `at`: what was found, where it ends, and the bits of the double.

    `text` must end with something that is no part of a number, and with `PADDING` after that.
    """
    negative = text[at] == 45
    if negative or text[at] == 43:
        at += 1
    start = at
    w, at = read_digits(text, at, _U(0))
    seen = at - start
    q = 0
    if text[at] == 46:
        point = at
        w, at = read_digits(text, at + 1, w)
        q = point + 1 - at
        seen -= q
    if seen == 0:
        found, at = _named_bits(text, start)
        return DOUBLE if found else NO_NUMBER, at, found | _U(negative) << _U(63)
    digits_end = at
    power = np.int64(0)
    if text[at] | 32 == 101:
        at += 1
        falls = text[at] == 45
        if falls or text[at] == 43:
            at += 1
        if not 48 <= text[at] <= 57:
            return NO_NUMBER, at, _U(0)
        while 48 <= text[at] <= 57:
            power = min(power * 10 + np.int64(text[at] - 48), np.int64(100_000))
            at += 1
        if falls:
            power = -power
    if seen <= MOST_DIGITS:
        found, known = double_bits(w, q + power)
    else:
        w, dropped, fractions = _first_digits(text, start, digits_end)
        found, known = double_bits(w, dropped - fractions + power)
        if dropped and known:
            after, known = double_bits(w + _ONE, dropped - fractions + power)
            known = known and after == found
    return DOUBLE if known else HARD, at, found | _U(negative) << _U(63)
