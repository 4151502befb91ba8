"""Charts that are filled by vectors of spans, against one span at a time."""

import numpy as np
import pytest

from maxmargin.compiled.compile import compiled
from maxmargin.compiled.simd import LANES
from maxmargin.structures.constituency.inference import (
    Scores,
    fill_chart,
    make_chart,
    make_rules,
    squared,
    top_scores,
    turned,
)
from maxmargin.structures.constituency.splits import (
    move_row,
    raise_row,
    row_of_width,
    row_stride,
    triangle,
)


@compiled
def run_move_row(source, source_at, target, target_at, count):
    return move_row(source, source_at, target, target_at, count)


@compiled
def run_raise_row(source, source_at, score, target, target_at, count):
    raise_row(source, source_at, score, target, target_at, count)


@compiled
def run_squared(starts, width):
    return squared(starts, width)


@compiled
def run_turned(bits, steps):
    return turned(bits, steps)


@pytest.mark.parametrize("length", [1, 2, 7, 30])
def test_rows_of_a_triangle_follow_each_other(length):
    at = 0
    for width in range(1, length + 1):
        assert row_of_width(width, length) == at
        assert row_stride(width, length) == length - width + LANES
        at += row_stride(width, length)
    assert triangle(length) == at


@pytest.mark.parametrize("count", [1, 3, 4, 5, 8, 70])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.9])
def test_rows_are_moved(count, share):
    random = np.random.default_rng(count)
    source = np.where(random.random(80) < share, 1.0, -np.inf)
    source[2 + count :] = 1.0  # the last vector goes on
    target, before = np.zeros(80), source.copy()
    first, last, bits = run_move_row(source, 2, target, 1, count)
    there = np.flatnonzero(before[2 : 2 + count] > -np.inf)
    assert last == (there[-1] if len(there) else -1)
    assert not len(there) or first == there[0]
    assert bits % 2**64 == sum({1 << (int(p) % 64) for p in there})
    np.testing.assert_array_equal(target[1 : 1 + count], before[2 : 2 + count])
    assert (source[2 : 2 + count] == -np.inf).all()


def test_rows_are_raised():
    source, target = np.arange(12.0), np.full(12, 5.0)
    run_raise_row(source, 3, 1.0, target, 2, 4)
    assert target[:7].tolist() == [5.0, 5.0, 5.0, 5.0, 6.0, 7.0, 5.0]


def test_bits_are_turned():
    for steps in (0, 1, 63, 64, 70):
        assert run_turned(5, steps) % 2**64 == (5 << steps % 64 | 5 >> 64 - steps % 64) % 2**64
    assert run_turned(-1, 7) == -1


@pytest.mark.parametrize("width", [1, 2, 7, 8, 19, 64])
def test_bits_of_spans(width):
    random = np.random.default_rng(width)
    starts = np.flatnonzero(random.random(64) < 0.1)
    bits = sum(1 << int(start) for start in starts)
    begins, ends = run_squared(np.uint64(bits).astype(np.int64), width)
    spans = {(int(start) % 8, int(start + width) % 8) for start in starts}
    assert begins % 2**64 == sum(1 << 8 * start + stop for start, stop in spans)
    assert ends % 2**64 == sum(1 << 8 * stop + start for start, stop in spans)


def every_score(rules, scores, leaves):
    """Scores of all symbols, by width and start."""
    length = len(leaves)
    tops = np.full((length + 1, length, rules.n_symbols), -np.inf)
    for width in range(1, length + 1):
        for start in range(length - width + 1):
            here = np.full(rules.n_symbols, -np.inf)
            if width == 1:
                here[: rules.n_complete] = leaves[start]
            for split in range(1, width):
                left, right = tops[split, start], tops[width - split, start + split]
                both = left[rules.lefts] + right[rules.rights] + scores.rules
                np.maximum.at(here, rules.parents, both)
            top = tops[width, start]
            top[rules.n_complete :] = here[rules.n_complete :]
            at = start * (2 * length - start + 1) // 2 + width - 1 if len(scores.units) > 1 else 0
            np.maximum.at(top, rules.unit_tops, here[rules.unit_bottoms] + scores.units[at])
    return tops


@pytest.mark.parametrize("length", [1, 2, 5, 13, 30, 70])
@pytest.mark.parametrize("n_rules", [15, 60])
@pytest.mark.parametrize("varying", [False, True])
def test_charts_are_the_same(length, n_rules, varying):
    random = np.random.default_rng(length + n_rules)
    n_complete, n_symbols = 8, 20
    binary = np.unique(random.integers(0, n_symbols, (n_rules, 3)), axis=0)
    binary = binary[np.lexsort((binary[:, 0], binary[:, 2], binary[:, 1]))]
    units = np.unique(random.integers(0, n_complete, (12, 2)), axis=0)
    rules = make_rules(n_complete, n_symbols, binary, units)
    cells = length * (length + 1) // 2 if varying else 1
    scores = Scores(
        random.normal(size=len(binary)),
        random.normal(size=(cells, len(units))),
        np.zeros(n_complete),
    )
    leaves = np.where(random.random((length, n_complete)) < 0.2, 0.0, -np.inf)
    chart = make_chart(length + 3, rules)
    for part in chart:
        part[...] = 7
    fill_chart(rules, scores, leaves, chart)
    expected = every_score(rules, scores, leaves)
    for width in range(1, length + 1):
        starts = np.arange(length - width + 1)
        symbols = np.arange(n_symbols)[:, None]
        found = top_scores(chart, starts, starts + width, symbols, length)
        np.testing.assert_array_equal(found, expected[width, starts].T)
