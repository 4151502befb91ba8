"""Products with and sums of sparse vectors against numpy."""

import numpy as np
import pytest
from numba.core.errors import TypingError

from maxmargin.compiled.compile import compiled
from maxmargin.compiled.gathers import add_scattered, gathered_product


@compiled
def run_product(start, stop, columns, values, weights):
    return gathered_product(start, stop, columns, values, weights)


@compiled
def run_add(start, stop, columns, values, weights, factor):
    add_scattered(start, stop, columns, values, weights, factor)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 8, 11, 30])
def test_products_and_sums(count, dtype):
    """Thirty entries in seven columns: some columns come again."""
    random = np.random.default_rng(count)
    columns = random.integers(0, 7, 40).astype(np.uint32)
    values = random.normal(size=40).astype(dtype)
    weights = random.normal(size=7)
    inside = slice(6, 6 + count)
    found = run_product(6, 6 + count, columns, values, weights)
    assert found == pytest.approx(values[inside] @ weights[columns[inside]], abs=1e-6)
    expected = weights.copy()
    np.add.at(expected, columns[inside], 0.3 * values[inside].astype(np.float64))
    run_add(6, 6 + count, columns, values, weights, 0.3)
    np.testing.assert_allclose(weights, expected, rtol=1e-12)


def test_columns_use_all_their_bits():
    """A column is no negative number, however large."""
    weights = np.zeros(2**16)
    weights[-1] = 2.0
    columns = np.array([2**16 - 1], dtype=np.uint32)
    assert run_product(0, 1, columns, np.array([3.0]), weights) == 6.0


def test_bare_pointers_take_no_strides_and_no_signs():
    columns, values = np.zeros(4, dtype=np.uint32), np.ones(4)
    with pytest.raises(TypingError, match="contiguous"):
        run_product(0, 4, columns, values, np.ones(8)[::2])
    with pytest.raises(TypingError, match="uint32"):
        run_product(0, 4, columns.astype(np.int64), values, np.ones(4))
