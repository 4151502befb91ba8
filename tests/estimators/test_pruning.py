"""Models without their small weights."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_iris, make_regression
from sklearn.exceptions import NotFittedError

import maxmargin as mm
from maxmargin.estimators.pruning import prune
from maxmargin.io.models import load, save

IRIS, SPECIES = load_iris(return_X_y=True)


def sentences(n, random):
    """Words that tell their tag, and others that tell nothing."""
    tags = [random.choice(["A", "B", "C"], size=random.integers(2, 7)) for _ in range(n)]
    X = [
        [{"word": f"{tag}{random.integers(5)}", "noise": f"n{random.integers(100)}"} for tag in row]
        for row in tags
    ]
    return X, [list(row) for row in tags]


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(0)
    return sentences(80, random), sentences(40, random)


OPTIONS = {
    "plain": {},
    "second order": {"order": 2},
    "no ends, no bias": {"fit_ends": False, "fit_intercept": False},
    "pairs": {"pair_features": ["word=A1", "noise=n3"]},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
def test_dropping_features_is_the_same_as_setting_their_weights_to_zero(data, options):
    (X, y), (X_test, y_test) = data
    tagger = mm.SequenceTagger(**options).fit(X, y)
    before = pickle.dumps(tagger)
    pruned = prune(tagger, 0.05, X_test, y_test)
    assert pickle.dumps(tagger) == before

    zeroed = pickle.loads(before)
    weights = zeroed._table[: zeroed.n_features_in_, :3].T  # the table that the searches use
    weights[np.abs(weights) < 0.05] = 0.0
    smaller = pruned.estimator
    assert len(smaller.vocabulary_) < len(tagger.vocabulary_)
    assert smaller.coef_.shape == (3, len(smaller.vocabulary_))
    assert_array_equal(smaller.transitions_, tagger.transitions_)
    for name, column in smaller.vocabulary_.items():
        assert_array_equal(smaller.coef_[:, column], weights[:, zeroed.vocabulary_[name]])
    assert_allclose(smaller.decision_function(X_test), zeroed.decision_function(X_test), rtol=1e-12)
    assert pruned.score_before == tagger.score(X_test, y_test)
    assert pruned.score_after == zeroed.score(X_test, y_test)
    assert pruned.kept == np.count_nonzero(smaller.coef_)
    assert pruned.kept + pruned.dropped == np.count_nonzero(tagger.coef_)


def test_a_threshold_of_zero_changes_no_answer(data):
    (X, y), (X_test, y_test) = data
    tagger = mm.SequenceTagger().fit(X, y)
    pruned = prune(tagger, 0.0, X_test, y_test)
    assert pruned.dropped == 0
    assert pruned.score_before == pruned.score_after
    scores = tagger.decision_function(X_test)
    assert_allclose(pruned.estimator.decision_function(X_test), scores, rtol=1e-12)


def test_the_file_of_a_pruned_tagger_is_smaller_and_can_be_read(data, tmp_path):
    (X, y), (X_test, _) = data
    tagger = mm.SequenceTagger().fit(X, y)
    smaller = prune(tagger, 0.1).estimator
    sizes = [
        save(model, tmp_path / f"{k}.mm").stat().st_size
        for k, model in enumerate((tagger, smaller))
    ]
    assert sizes[1] < sizes[0]
    again = load(tmp_path / "1.mm")
    assert_array_equal(again.decision_function(X_test), smaller.decision_function(X_test))


def test_a_tagger_on_matrices_keeps_its_columns():
    random = np.random.default_rng(0)
    X = [random.normal(size=(5, 4)) for _ in range(20)]
    y = [(rows[:, 0] > 0).astype(int) for rows in X]
    tagger = mm.SequenceTagger().fit(X, y)
    pruned = prune(tagger, 0.5 * np.abs(tagger.coef_).max(), X, y)
    assert pruned.estimator.coef_.shape == tagger.coef_.shape
    assert pruned.kept < tagger.coef_.size
    assert pruned.score_after > 0.8


@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array])
def test_weights_of_a_linear_model_become_sparse(layout, tmp_path):
    random = np.random.default_rng(0)
    X = np.hstack([IRIS, 0.01 * random.normal(size=(150, 200))])
    model = mm.LinearClassifier(C=0.1).fit(layout(X), SPECIES)
    pruned = prune(model, 0.02, layout(X), SPECIES)
    assert sp.issparse(pruned.estimator.coef_)
    dense = np.where(np.abs(model.coef_) < 0.02, 0.0, model.coef_)
    expected = X @ dense.T + model.intercept_
    assert_allclose(pruned.estimator.decision_function(layout(X)), expected, rtol=1e-12)
    assert pruned.score_after > 0.9
    again = load(save(pruned.estimator, tmp_path / "model.mm"))
    assert_array_equal(again.predict(X), pruned.estimator.predict(X))
    twice = prune(pruned.estimator, 0.05)
    assert 0 < twice.kept < pruned.kept


def test_few_small_weights_stay_in_a_dense_array():
    model = mm.LinearClassifier().fit(IRIS, SPECIES)
    threshold = np.sort(np.abs(model.coef_), axis=None)[3]
    pruned = prune(model, threshold)
    assert isinstance(pruned.estimator.coef_, np.ndarray)
    assert pruned.dropped == np.count_nonzero(np.abs(model.coef_) < threshold) > 0


def test_a_regressor():
    X, y = make_regression(100, 50, n_informative=3, random_state=0)
    model = mm.LinearRegressor(C=10.0).fit(X, y)
    pruned = prune(model, 5.0, X, y)
    assert pruned.kept == 3
    assert pruned.estimator.predict(X).shape == (100,)
    assert pruned.score_after > 0.95


def test_two_classes():
    model = mm.LinearClassifier().fit(IRIS, SPECIES == 0)
    pruned = prune(model, np.abs(model.coef_).max(), IRIS, SPECIES == 0)
    assert pruned.kept == 1
    assert pruned.score_after > 0.6


def test_the_certificate_of_a_pruned_model_promises_nothing():
    model = mm.LinearClassifier().fit(IRIS, SPECIES)
    certificate = prune(model, 0.1).estimator.certificate_
    assert certificate.dual == model.certificate_.dual
    assert certificate.relative_gap == np.inf


def test_other_estimators_are_refused_in_a_sentence():
    with pytest.raises(TypeError, match="OrdinalClassifier cannot be pruned: only SequenceTagger"):
        prune(mm.OrdinalClassifier().fit(IRIS, SPECIES), 0.1)


@pytest.mark.parametrize("threshold", [-1.0, np.nan, np.inf])
def test_bad_thresholds(threshold):
    with pytest.raises(ValueError, match=r"threshold is .*, but must be a number that is not neg"):
        prune(mm.LinearClassifier().fit(IRIS, SPECIES), threshold)


def test_a_threshold_that_leaves_nothing():
    with pytest.raises(ValueError, match="of 1e\\+06 would drop all weights, of which the largest"):
        prune(mm.LinearClassifier().fit(IRIS, SPECIES), 1e6)


def test_examples_without_labels():
    with pytest.raises(ValueError, match="Give X and y both, or neither"):
        prune(mm.LinearClassifier().fit(IRIS, SPECIES), 0.1, IRIS)


def test_an_estimator_that_is_not_fitted():
    with pytest.raises(NotFittedError):
        prune(mm.LinearClassifier(), 0.1)
