"""Solves carry along the features that occur, and answer for all of them."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import maxmargin as mm
from maxmargin.core.linear import ScalarProblem
from maxmargin.dual.used_features import UsedFeatures


def wide_rows(seed=0, n=60, width=4000, count=12):
    """Rows in a few of many columns, and signs that they tell."""
    random = np.random.default_rng(seed)
    occurring = np.sort(random.choice(width, size=100, replace=False))
    columns = np.concatenate([random.choice(occurring, count, replace=False) for _ in range(n)])
    X = sp.csr_array(
        (random.normal(size=n * count), columns, np.arange(n + 1) * count), shape=(n, width)
    )
    return X, np.where(X @ random.normal(size=width) > 0, 1.0, -1.0)


def problem_of(X, signs, **options):
    ones = np.ones(len(signs))
    return ScalarProblem.hinge(signs, ones, ones, X=X, **options)


def test_the_smaller_problem_has_the_same_values():
    X, signs = wide_rows()
    problem = problem_of(X, signs, bias=2.0)
    features = UsedFeatures(problem)
    smaller = features.of(problem)
    assert smaller.X.shape == (60, len(np.unique(X.indices)))
    np.testing.assert_array_equal(np.sort(features.columns), np.unique(X.indices))
    weights = np.random.default_rng(1).normal(size=smaller.weights_shape)
    spread = features.spread(weights, problem)
    assert spread.shape == problem.weights_shape
    assert problem.primal(spread) == pytest.approx(smaller.primal(weights), rel=1e-12)
    coef = problem.feasible(np.random.default_rng(2).normal(size=(60, 1)))
    assert problem.dual(coef) == pytest.approx(smaller.dual(coef), rel=1e-12)
    np.testing.assert_allclose(
        features.spread(smaller.weights(coef), problem), problem.weights(coef)
    )


@pytest.mark.parametrize("kind", ["dense", "many entries", "all occur", "prior"])
def test_other_problems_stay_as_they_are(kind):
    X, signs = wide_rows()
    origin = None
    if kind == "dense":
        X = X.toarray()
    elif kind == "many entries":
        X = sp.csr_array(np.pad(np.ones((60, 90)), ((0, 0), (0, 110))))
    elif kind == "all occur":
        X = sp.csr_array(np.eye(60))
    else:
        origin = np.ones((X.shape[1] + 1, 1))
    problem = problem_of(X, signs, origin=origin)
    features = UsedFeatures(problem)
    assert features.of(problem) is problem
    weights = np.ones(problem.weights_shape)
    assert features.spread(weights, problem) is weights


@pytest.mark.parametrize("formulation", ["crammer-singer", "weston-watkins", "one-vs-rest"])
@pytest.mark.parametrize("options", [{}, {"nonnegative": True}, {"n_jobs": 2}])
def test_fits_are_those_without_the_other_columns(formulation, options):
    X, _ = wide_rows(n=90)
    y = np.arange(90) % 3
    used = np.unique(X.indices)
    model = mm.LinearClassifier(formulation=formulation, tol=1e-6, **options)
    wide, narrow = clone(model).fit(X, y), clone(model).fit(X[:, used].toarray(), y)
    assert wide.coef_.shape == (3, X.shape[1])
    assert not np.delete(wide.coef_, used, axis=1).any()
    assert wide.certificate_.primal == pytest.approx(narrow.certificate_.primal, rel=1e-5)
    np.testing.assert_allclose(wide.coef_[:, used], narrow.coef_, atol=0.02)


def test_a_fit_resumes_from_a_checkpoint(tmp_path):
    X, signs = wide_rows(n=200)
    path = tmp_path / "fit"
    options = {"C": 100.0, "tol": 1e-9}
    with pytest.warns(ConvergenceWarning):
        mm.LinearClassifier(checkpoint=path, max_iter=3, **options).fit(X, signs)
    going_on = mm.LinearClassifier(checkpoint=mm.Checkpoint(path, resume=True), **options)
    whole = mm.LinearClassifier(**options).fit(X, signs)
    np.testing.assert_array_equal(going_on.fit(X, signs).coef_, whole.coef_)
