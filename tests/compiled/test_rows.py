"""Rows, dense and sparse, of both widths, and sparse vectors against numpy."""

import numpy as np
import pytest
import scipy.sparse as sp
from numba.core.errors import TypingError

from maxmargin.compiled.compile import compiled
from maxmargin.compiled.rows import (
    add_row,
    add_row_multiple,
    add_row_scores,
    add_scattered,
    clip_row,
    gathered_product,
    make_rows,
    padded,
    row_score,
    squared_norms,
)
from maxmargin.compiled.simd import LANES


@pytest.fixture(params=[("dense", np.float64), ("dense", np.float32), ("sparse", np.float64)])
def matrix(request):
    layout, dtype = request.param
    random = np.random.default_rng(0)
    X = (random.normal(size=(12, 23)) * (random.random((12, 23)) < 0.4)).astype(dtype)
    X[3] = 0.0
    X[-1] = 0.0
    return X, (sp.csr_array(X) if layout == "sparse" else X)


@pytest.mark.parametrize("bias", [0.0, 1.5])
@pytest.mark.parametrize("n_classes", [2, 4, 7, 12, 16, 20, 33])
def test_class_contiguous_kernels(matrix, n_classes, bias):
    dense, X = matrix
    full = np.hstack([dense, np.full((len(dense), 1), bias)]).astype(np.float64)
    rows = make_rows(X, bias)
    random = np.random.default_rng(1)
    weights = random.normal(size=(24, padded(n_classes)))
    for i in range(len(dense)):
        start = random.normal(size=padded(n_classes))
        scores = start.copy()
        add_row_scores(rows, i, weights, scores)
        np.testing.assert_allclose(scores, start + full[i] @ weights, atol=1e-12)
        change = random.normal(size=padded(n_classes))
        expected = weights + np.outer(full[i], change)
        add_row_multiple(rows, i, change, weights)
        np.testing.assert_allclose(weights, expected, atol=1e-12)


@pytest.mark.parametrize("bias", [0.0, 1.5])
def test_single_weight_vector_kernels(matrix, bias):
    dense, X = matrix
    full = np.hstack([dense, np.full((len(dense), 1), bias)]).astype(np.float64)
    rows = make_rows(X, bias)
    weights = np.random.default_rng(1).normal(size=24)
    for i in range(len(dense)):
        assert row_score(rows, i, weights) == pytest.approx(full[i] @ weights, abs=1e-12)
        expected = weights + 0.3 * full[i]
        add_row(rows, i, 0.3, weights)
        np.testing.assert_allclose(weights, expected, atol=1e-12)


def test_clipping_touches_only_the_row_and_never_the_constant_feature(matrix):
    dense, X = matrix
    unclipped = np.random.default_rng(2).normal(size=(24, 4))
    weights = np.full((24, 4), 9.0)
    clip_row(make_rows(X, 1.0), 0, unclipped, weights)
    touched = np.append(dense[0] != 0, True) if sp.issparse(X) else np.ones(24, bool)
    expected = np.where(touched[:, None], np.maximum(unclipped, 0.0), 9.0)
    expected[-1] = unclipped[-1]
    np.testing.assert_array_equal(weights, expected)


def test_squared_norms(matrix):
    dense, X = matrix
    expected = (dense.astype(np.float64) ** 2).sum(axis=1) + 4.0
    norms = np.empty(len(dense))
    squared_norms(make_rows(X, 2.0), norms)
    np.testing.assert_allclose(norms, expected, rtol=1e-6)


def test_padding_is_whole_vectors():
    assert [padded(n) for n in (2, 4, 5, 20)] == [LANES, LANES, 2 * LANES, 5 * LANES]


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
