"""Numbers in text have the bits that Python gives them."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxmargin.data.libsvm_lines import PADDING, read_decimal


def read(text, after=b" "):
    raw = np.frombuffer(text.encode() + after + b"7" * PADDING, dtype=np.uint8)
    found, end, bits = read_decimal(raw, 0)
    return found, end, np.uint64(bits).view(np.float64)


def assert_same_bits(text):
    found, end, number = read(text)
    assert end == len(text)
    assert found
    assert struct.pack("d", number) == struct.pack("d", float(text))


@settings(max_examples=500, deadline=None)
@given(st.floats())
def test_shortest_forms(number):
    assert_same_bits(repr(number))


@settings(max_examples=500, deadline=None)
@given(st.integers(0, 10**19 - 1), st.integers(-345, 310), st.sampled_from(["", "-", "+"]))
def test_digits_and_a_power(digits, power, sign):
    assert_same_bits(f"{sign}{digits}e{power}")


@settings(max_examples=500, deadline=None)
@given(st.text("0123456789", max_size=30), st.text("0123456789", max_size=30))
def test_any_number_of_digits(whole, fraction):
    if whole or fraction:
        assert_same_bits(f"{whole}.{fraction}")
        assert_same_bits(f"{whole}{fraction}")


@settings(max_examples=300, deadline=None)
@given(st.integers(2**52, 2**53 - 1), st.sampled_from([".5", ".50000000000000000001", ".25"]))
def test_halfway_between_two_doubles(whole, fraction):
    assert_same_bits(f"{whole}{fraction}")
    assert_same_bits(str(2 * whole + 1))


FORMS = """
0 -0 0.0e5 1 .5 5. 1E+05 1e-5 00000000000000000000001.5 1e22 1e23 9007199254740993
nan -NaN -inf Infinity
7450580596923828125e-27 0.000000000000000000000000000001 123456789012345678901
0.10000000000000000555111512312578
"""


@pytest.mark.parametrize("text", FORMS.split())
def test_forms(text):
    assert_same_bits(text)


@pytest.mark.parametrize(
    "text", ["5e-324", "1e400", "-1e400", "1e-400", "-9007199254740993.00000000000000"]
)
@pytest.mark.parametrize("after", [b" ", b":", b"\n", b"x", b"_1"])
def test_left_to_python(text, after):
    assert_same_bits(text)
    found, end, number = read(text, after)
    assert (found, end, number) == (True, len(text), float(text))


@pytest.mark.parametrize(
    "text", ["", "-", ".", "x", "e5", "1e", "1e+", ":", "nano", "in", "infinit", "xinfinity"]
)
def test_no_numbers(text):
    assert not read(text)[0]


@pytest.mark.parametrize("length", range(1, 26))
def test_a_number_ends_where_its_digits_do(length):
    digits = "1234567890123456789012345"[:length]
    for after in (b" ", b":", b"/", b"\n", b"\xff", b"\x00"):
        _, end, number = read(digits, after)
        assert (end, number) == (length, float(digits))
