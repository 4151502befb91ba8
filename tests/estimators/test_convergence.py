"""A fit that did not converge says what is likely to be the cause, and what to do."""

import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

import maxmargin as mm
from maxmargin.core.certificate import Certificate, DualPoint
from maxmargin.estimators.convergence import NotConvergedWarning, feature_scales, likely_cause

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.normal(size=(60, 5))
LABELS = np.arange(60) % 3
IRIS = load_iris().data
UPDATES_ALONE = mm.LinearClassifier(nonnegative=True)
"""Bounds on weights leave no way but updates, which crawl on bad scales."""


def complaint(model, *data):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(*data)
    (warning,) = [one for one in caught if issubclass(one.category, NotConvergedWarning)]
    assert issubclass(warning.category, ConvergenceWarning)
    return str(warning.message)


def test_large_features():
    text = complaint(UPDATES_ALONE, ROWS * [1, 10, 1e3, 1e5, 1e6], LABELS)
    assert "stopped by max_iter=10000 iterations" in text
    assert "features are as large as" in text
    assert "others at most" in text
    assert "MaxAbsScaler" in text


def test_features_of_different_scales():
    text = complaint(clone(UPDATES_ALONE).set_params(C=1e4), ROWS * [1e-4, 1, 1, 1, 1], LABELS)
    assert "very different scales" in text


def test_a_c_that_is_far_too_large():
    text = complaint(clone(UPDATES_ALONE).set_params(C=1e9), ROWS, LABELS)
    assert "likely cause is C=1e+09" in text
    assert "smaller" in text


def test_nothing_to_blame():
    result = SimpleNamespace(certificate=Certificate(10.0, 9.9), dual_point=np.ones((150, 3)))
    text = likely_cause(IRIS, result, 1.0, asked=False)
    assert text == "A larger max_iter lets it train on; a larger tol lets it end sooner."


def test_limits_that_were_asked_for_need_no_explanation_unless_features_are_large():
    asked = mm.LinearClassifier(C=1e9, max_iter=3)
    said = complaint(asked, ROWS, LABELS)
    assert said.endswith("the best weights so far are kept, hardly better than zero weights.")
    assert "as large as" in complaint(asked, 1e4 * ROWS, LABELS)
    sequences = [1e4 * rows for rows in np.split(ROWS, 12)]
    tags = np.split(LABELS, 12)
    assert "as large as" in complaint(mm.SequenceTagger(max_iter=1), sequences, tags)


def test_structures_blame_c_too():
    point = DualPoint(np.arange(10), np.full(10, 0.01), [None] * 10)
    result = SimpleNamespace(certificate=Certificate(10.0, 1.0), dual_point=point)
    assert "C=100" in likely_cause(["no", "features"], result, 100.0, asked=False)
    assert "larger max_iter" in likely_cause(None, result, 0.01, asked=False)
    nearly = SimpleNamespace(certificate=Certificate(10.0, 9.9), dual_point=point)
    assert "larger max_iter" in likely_cause(None, nearly, 100.0, asked=False)
    assert likely_cause(None, result, 100.0, asked=True) == ""


@pytest.mark.parametrize(
    "X",
    [
        ROWS,
        sp.csr_array(ROWS),
        sp.csc_matrix(ROWS),
        pd.DataFrame(ROWS),
        list(np.split(ROWS, 6)),
        [(rows, [(0, 1)]) for rows in np.split(ROWS, 6)],
        tuple(sp.csr_array(rows) for rows in np.split(ROWS, 6)),
    ],
    ids=["dense", "csr", "csc", "frame", "sequences", "graphs", "sparse sequences"],
)
def test_scales_of_all_kinds_of_inputs(X):
    assert_allclose(feature_scales(X), np.abs(ROWS).max(axis=0))


@pytest.mark.parametrize(
    "X",
    [None, [], "text", ["words"], [[{"a": 1.0}]], np.zeros((0, 3)), np.array([["a"]]), [()], 3.0],
)
def test_inputs_without_features_are_not_looked_at(X):
    assert len(feature_scales(X)) == 0


def test_inputs_of_different_widths_do_not_fail():
    assert_allclose(feature_scales([np.ones((2, 3)), np.ones((2, 4))]), np.ones(3))


def test_the_cause_is_the_end_of_the_message():
    warning = NotConvergedWarning("It stopped.", "Too large.")
    assert (str(warning), warning.cause) == ("It stopped. Too large.", "Too large.")
    assert str(NotConvergedWarning("It stopped.")) == "It stopped."
