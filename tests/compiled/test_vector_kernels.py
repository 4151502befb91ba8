"""The kernels of explicit vectors against numpy."""

import numpy as np
import pytest

from maxmargin.compiled.compile import compiled
from maxmargin.compiled.exponentials import add_logarithms, exponentials
from maxmargin.compiled.rows import padded
from maxmargin.compiled.simd import (
    LANES,
    add_scores,
    max_plus,
    share_out,
    share_out_scaled,
    sum_times,
)


@compiled
def run_exponentials(values, shift, out):
    exponentials(values, shift, out)


@compiled
def run_add_logarithms(values, out):
    add_logarithms(values, out)


@compiled
def run_share_out(rows, n_rows, shares, before, out, scaled):
    if scaled:
        share_out_scaled(rows, n_rows, shares, before, out)
    else:
        share_out(rows, n_rows, shares, before, out)


@compiled
def run_sum_times(before, edges, n_labels, out):
    sum_times(before, edges, n_labels, out)


@compiled
def run_max_plus(before, edges, added, n_labels, out):
    max_plus(before, edges, added, n_labels, out)


@compiled
def run_add_scores(values, columns, weights, out):
    add_scores(values, np.int64(0), columns, np.int64(0), np.int64(len(values)), weights, out)


def exponentials_of(values, shift=0.0):
    values = np.asarray(values, dtype=np.float64)
    out = np.empty(padded(len(values)))
    run_exponentials(np.resize(values, len(out)), shift, out)
    return out[: len(values)]


def test_exponentials_to_the_last_digits():
    x = np.linspace(-700.0, 700.0, 100_000)
    expected = np.exp(x.astype(np.longdouble))
    assert np.max(np.abs(exponentials_of(x) - expected) / expected) < 4e-16


def test_exponentials_of_extremes():
    assert exponentials_of([0.0, -np.inf, -1e300, -745.0, -0.0]).tolist() == [1.0, 0, 0, 0, 1.0]
    assert exponentials_of([1.0, 2.0, 3.0], -2.0) == pytest.approx(np.exp([-1.0, 0.0, 1.0]))


def test_logarithms_to_the_last_digits():
    random = np.random.default_rng(0)
    values = np.concatenate(
        [random.uniform(0.4, 3.0, 4000), 10.0 ** random.uniform(-300, 300, 4000)]
    )
    out = np.zeros(len(values))
    run_add_logarithms(values, out)
    assert np.abs(out - np.log(values)).max() < 2e-13
    assert (np.abs(out - np.log(values)) <= 4e-16 * np.maximum(1.0, np.abs(out))).all()
    few = np.array([0.0, 1.0, 2.0, 0.5, 1e-300, 1e300, np.sqrt(0.5), np.sqrt(2.0)])
    out = np.ones(8)
    run_add_logarithms(few, out)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(out, 1.0 + np.log(few), rtol=4e-16, atol=4e-16)


@pytest.mark.parametrize("n", [1, 2, 4, 5, 26, 32, 33, 61])
@pytest.mark.parametrize("scaled", [False, True])
def test_rows_are_shared_out(n, scaled):
    random = np.random.default_rng(n)
    rows, shares = random.random((n + 1, padded(n))), random.random(padded(n))
    factors, out = random.random((n + 1, 3))[:, 0], np.full((n + 1, padded(n)), 7.0)
    before = factors.copy() if scaled else np.full(n + 1, 5.0)
    expected = rows * shares * (factors[:, None] if scaled else 1.0)
    run_share_out(rows, n, shares, before, out, scaled)
    np.testing.assert_allclose(out[:n], expected[:n], rtol=1e-14)
    np.testing.assert_allclose(before[:n], expected[:n].sum(axis=1), rtol=1e-14)
    assert (out[n] == 7.0).all()
    run_share_out(rows, n, shares, before, rows, False)
    np.testing.assert_allclose(rows[:n], expected[:n] / (factors[:n, None] if scaled else 1.0))


@pytest.mark.parametrize("n", [1, 2, 4, 5, 9, 13, 17, 21, 26, 29, 33, 45, 61, 66])
def test_steps_of_all_widths(n):
    random = np.random.default_rng(n)
    width = padded(n)
    before, added = random.normal(size=width), random.normal(size=width)
    edges, out = random.normal(size=(n, width)), np.empty(width)
    run_max_plus(before, edges, added, n, out)
    np.testing.assert_array_equal(out, np.max(before[:n, None] + edges, axis=0) + added)
    run_sum_times(before, edges, n, out)
    np.testing.assert_allclose(out, before[:n] @ edges, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n_entries", range(20))
@pytest.mark.parametrize("n_classes", [3, 7, 10, 15, 20, 24, 30])
def test_scores_of_rows_of_all_lengths(n_entries, n_classes):
    random = np.random.default_rng(n_entries)
    weights = random.normal(size=(50, padded(n_classes)))
    columns = random.integers(0, 50, n_entries).astype(np.uint32)
    values, out = random.normal(size=n_entries), random.normal(size=padded(n_classes))
    expected = out + values @ weights[columns]
    run_add_scores(values, columns, weights, out)
    np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-12)
    assert len(out) % LANES == 0
