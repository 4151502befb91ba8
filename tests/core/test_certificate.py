import pytest

from maxmargin.core.certificate import Certificate


def test_gap_is_relative_to_the_larger_value():
    assert Certificate(10.0, 9.0).relative_gap == pytest.approx(0.1)
    assert Certificate(1.0, -4.0).relative_gap == pytest.approx(1.25)
    assert Certificate(0.0, 0.0).relative_gap == 0.0


def test_independent_problems_add_up():
    assert Certificate(1.0, 0.5) + Certificate(2.0, 1.5) == Certificate(3.0, 2.0)


def test_reads_well():
    text = str(Certificate(1234.5678, 1234.5))
    assert text == "primal 1234.57, dual 1234.5, relative gap 5.5e-05"
