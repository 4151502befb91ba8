"""Row kernels against numpy, for dense and sparse rows of both widths."""

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin.compiled.rows import (
    add_row,
    add_row_multiple,
    add_row_scores,
    clip_row,
    make_rows,
    row_score,
    squared_norms,
)
from maxmargin.compiled.simd import LANES, padded


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
