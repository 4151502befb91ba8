"""What makes short fits short changes no answer."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

import maxmargin as mm
from maxmargin.compiled.rows import repeats_columns
from maxmargin.core.inputs import numbered_classes
from maxmargin.core.linear import ScalarProblem
from maxmargin.estimators.checks import check_are_classes, check_features


def rows_in_order(n=80, width=300, seed=0):
    X = sp.random_array((n, width), density=0.05, format="csr", rng=np.random.default_rng(seed))
    X.sort_indices()
    return X, np.where(X @ np.linspace(-1, 1, width) > 0, "b", "a")


def shuffled(X):
    """The same matrix, the entries of its rows in reverse."""
    of_row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    order = np.lexsort((-X.indices, of_row))
    return sp.csr_array((X.data[order], X.indices[order], X.indptr), shape=X.shape)


def halved(X):
    """The same matrix, every entry as the sum of two."""
    data, indices = np.repeat(0.5 * X.data, 2), np.repeat(X.indices, 2)
    return sp.csr_array((data, indices, 2 * X.indptr), shape=X.shape)


@pytest.mark.parametrize("change", [shuffled, halved, lambda X: shuffled(halved(X))])
@pytest.mark.parametrize("C", [0.01, 10.0])
def test_rows_train_in_any_order_and_with_repeated_columns(change, C):
    X, y = rows_in_order()
    changed = change(X)
    before = changed.indices.copy(), changed.data.copy()
    models = [mm.LinearClassifier(C=C, tol=1e-6).fit(rows, y) for rows in (X, changed)]
    np.testing.assert_allclose(models[0].coef_, models[1].coef_, atol=1e-2 * C)
    primals = [model.certificate_.primal for model in models]
    assert primals[1] == pytest.approx(primals[0], rel=2e-6)
    np.testing.assert_array_equal(changed.indices, before[0])  # the user's matrix stays
    np.testing.assert_array_equal(changed.data, before[1])


def test_repeated_columns_are_found_in_any_order():
    X, _ = rows_in_order()
    assert not repeats_columns(X)
    assert not repeats_columns(shuffled(X))
    assert repeats_columns(halved(X))
    apart = sp.csr_array((np.ones(4), np.array([2, 0, 1, 2]), np.array([0, 0, 4])), shape=(2, 3))
    assert repeats_columns(apart)
    in_two_rows = sp.csr_array((np.ones(4), [2, 0, 2, 0], [0, 2, 4]), shape=(2, 3))
    assert not repeats_columns(in_two_rows)


def test_rows_are_copied_only_where_they_must_be():
    X, _ = rows_in_order()
    mixed = shuffled(X)
    assert check_features(mixed, "a", in_order=False) is mixed
    assert check_features(mixed, "a").has_canonical_format
    assert check_features(halved(X), "a", in_order=False).nnz == X.nnz


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.uint8, float, str, bool])
def test_classes_are_numbered_as_numpy_does(kind):
    labels = np.random.default_rng(0).integers(-100 if kind is np.int8 else 0, 100, 400)
    labels = labels[labels % 7 != 0].astype(kind)
    classes, numbers = numbered_classes(labels)
    wanted, inverse = np.unique(labels, return_inverse=True)
    assert classes.dtype == wanted.dtype
    np.testing.assert_array_equal(classes, wanted)
    np.testing.assert_array_equal(numbers, inverse)


def test_classes_far_apart_are_numbered():
    labels = np.array([2**62, -(2**62), 5, 2**62])
    np.testing.assert_array_equal(numbered_classes(labels)[1], [2, 0, 1, 2])


def test_labels_that_are_no_classes_are_refused_as_before():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_are_classes(np.arange(40) % 3)
    with pytest.raises(ValueError, match="continuous"):
        check_are_classes(np.linspace(0, 1, 40))


def test_the_losses_count_the_side_that_can_be_missed():
    random = np.random.default_rng(0)
    scores, C = random.normal(size=(50, 1)), random.random(50)
    signs = np.where(random.random(50) > 0.5, 1.0, -1.0)
    X = np.zeros((50, 1))
    hinge = ScalarProblem.hinge(signs, np.ones(50), C, X=X)
    wanted = np.maximum(1.0 - signs * scores[:, 0], 0.0)
    np.testing.assert_allclose(hinge.losses(scores, slice(None)), wanted)
    np.testing.assert_array_equal(hinge.upper - hinge.lower, C)
    tube = ScalarProblem.epsilon_insensitive(signs, 0.3, C, X=X)
    wanted = np.maximum(np.abs(signs - scores[:, 0]) - 0.3, 0.0)
    np.testing.assert_allclose(tube.losses(scores, slice(None)), wanted)


def test_a_fit_that_one_pass_finishes_takes_one_pass():
    X, y = rows_in_order(n=400)
    model = mm.LinearClassifier(C=1e-3, tol=0.05).fit(X, y)
    assert model.n_iter_ <= 2
    assert model.history_[-1].exact
    assert model.certificate_.relative_gap <= 0.05
