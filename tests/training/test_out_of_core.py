"""Linear estimators on sources, and their `partial_fit`."""

import copy
import pickle
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal, assert_equal
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from maxmargin import GaussianPrior, LinearClassifier, LinearRegressor, SequentialDual
from maxmargin.data.sources import Examples, Source
from maxmargin.solvers.streamed_dual import StreamedDual
from maxmargin.training import linear_streams

FORMULATIONS = ["crammer-singer", "weston-watkins", "one-vs-rest"]

IRIS, SPECIES = load_iris(return_X_y=True)
IRIS = StandardScaler().fit_transform(IRIS)
MIXED = np.random.default_rng(0).permutation(150)
IRIS, SPECIES = IRIS[MIXED], SPECIES[MIXED]
NAMES = np.array(["ash", "birch", "cedar"])[SPECIES]
PETALS = IRIS @ [1.0, -2.0, 0.5, 0.0]


class Parts(Source):
    """Blocks in a list; counts how often it was gone through."""

    def __init__(self, blocks):
        self.parts = [Examples(*block) for block in blocks]
        self.passes = 0

    def batches(self):
        self.passes += 1
        yield from self.parts


def cut(X, y, ends=(1, 1, 40, 41, 100)):
    """A source of uneven blocks, one of them empty."""
    ends = [0, *ends, len(y)]
    return Parts([(X[a:b], y[a:b]) for a, b in pairwise(ends)])


@pytest.fixture(params=["small blocks", "joined blocks"])
def _block_sizes(request, monkeypatch):
    """With and without the joining of small blocks."""
    if request.param == "small blocks":
        monkeypatch.setattr(linear_streams, "SMALL_BATCH", 0)


def assert_same_model(model, expected, rel=1e-3):
    """Objectives within the tolerance, and all that follows from it."""
    certificate, other = model.certificate_, expected.certificate_
    assert certificate.relative_gap <= model.tol
    assert certificate.primal == pytest.approx(other.primal, rel=2 * model.tol)
    assert certificate.dual <= other.primal * (1 + 1e-9)
    assert model.coef_.shape == expected.coef_.shape
    assert np.shape(model.intercept_) == np.shape(expected.intercept_)
    apart = np.linalg.norm(model.coef_ - expected.coef_)
    assert apart <= 2 * np.sqrt(2 * model.tol * certificate.primal)


# Fitting a source.


@pytest.mark.usefixtures("_block_sizes")
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_classifier_on_a_source(formulation, n_classes, make):
    few = n_classes > SPECIES
    X, y = IRIS[few], NAMES[few]
    model = LinearClassifier(formulation=formulation, tol=1e-4)
    expected = clone(model).set_params(tol=1e-6).fit(X, y)
    source = cut(make(X), y)
    model.fit(source)
    assert_same_model(model, expected)
    assert_array_equal(model.classes_, expected.classes_)
    assert model.n_features_in_ == 4
    assert model.n_iter_ == source.passes == len(model.history_)
    assert model.status_ == "converged"
    assert model.score(X, y) > 0.9


@pytest.mark.usefixtures("_block_sizes")
@pytest.mark.parametrize(
    "options",
    [
        {"fit_intercept": False},
        {"intercept_scaling": 3.0},
        {"nonnegative": True},
        {"loss_matrix": {("ash", "cedar"): 3.0}},
        {"loss_matrix": 2.0 - 2.0 * np.eye(3)},
        {"class_weight": {"ash": 3.0}},
        {"class_weight": "balanced"},
        {"margins": {"ash": 2.0}},
        {"margins": 0.5},
        {"margins": 1.0 + np.arange(150) % 3},
        {"prior": GaussianPrior([0.1, 0.2, 0.3, 0.4], [1.0, 2.0, 3.0, 4.0])},
        {"prior": (np.ones((3, 4)), np.eye(4) + 0.5)},
        {"n_jobs": 2},
    ],
    ids=str,
)
def test_options_mean_the_same_on_a_source(options):
    model = LinearClassifier(tol=1e-4, **options)
    expected = clone(model).set_params(tol=1e-6).fit(IRIS, NAMES)
    assert_same_model(model.fit(cut(IRIS, NAMES)), expected)


def test_weights_and_margins_of_each_example():
    weights, margins = np.arange(150.0) % 3, 1 + np.arange(150.0) % 2
    model = LinearClassifier(tol=1e-4)
    expected = clone(model).set_params(tol=1e-6).fit(IRIS, NAMES, weights, margins)
    model.fit(cut(IRIS, NAMES), sample_weight=weights, margins=margins)
    assert_same_model(model, expected)


@pytest.mark.usefixtures("_block_sizes")
def test_regressor_on_a_source():
    model = LinearRegressor(tol=1e-4, epsilon=0.1)
    weights = 1 + np.arange(150.0) % 3
    expected = clone(model).set_params(tol=1e-6).fit(IRIS, PETALS, weights)
    model.fit(cut(IRIS, PETALS), sample_weight=weights)
    assert_same_model(model, expected)
    assert model.score(IRIS, PETALS) > 0.99


@pytest.mark.usefixtures("_block_sizes")
def test_classes_seen_late_and_one_at_a_time():
    by_class = np.argsort(SPECIES, kind="stable")
    source = cut(IRIS[by_class], NAMES[by_class], ends=range(10, 150, 10))
    model = LinearClassifier(tol=1e-4).fit(source)
    assert_same_model(model, LinearClassifier(tol=1e-6).fit(IRIS, NAMES))
    assert_array_equal(model.classes_, ["ash", "birch", "cedar"])


@pytest.mark.usefixtures("_block_sizes")
def test_blocks_may_know_only_the_columns_they_have_seen():
    X = np.hstack([IRIS, IRIS**2])
    X[:50, 4:], X[:90, 6:] = 0.0, 0.0
    narrow = [sp.csr_array(X[:50, :4]), sp.csr_array(X[50:90, :6]), sp.csr_array(X[90:])]
    ends = [0, 50, 90, 150]
    source = Parts(
        [(part, SPECIES[a:b]) for part, (a, b) in zip(narrow, pairwise(ends), strict=True)]
    )
    model = LinearClassifier(tol=1e-4).fit(source)
    assert_same_model(model, LinearClassifier(tol=1e-6).fit(X, SPECIES))
    assert model.n_features_in_ == 8


def test_a_fit_on_a_source_repeats_bit_for_bit():
    one, two = (LinearClassifier(random_state=3).fit(cut(IRIS, SPECIES)) for _ in range(2))
    assert_array_equal(one.coef_, two.coef_)


def test_one_versus_rest_does_not_depend_on_the_number_of_threads():
    model = LinearClassifier(formulation="one-vs-rest")
    one = clone(model).fit(cut(IRIS, SPECIES))
    two = clone(model).set_params(n_jobs=2).fit(cut(IRIS, SPECIES))
    assert_array_equal(one.coef_, two.coef_)


def test_memory_for_rows_saves_passes():
    X, y = load_digits(return_X_y=True)
    X, y = X[:600], y[:600]
    passes = {}
    for cache_bytes in (0, 1 << 24):
        source = cut(X / 16, y, ends=range(50, 600, 50))
        solver = StreamedDual(cache_bytes=cache_bytes)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(linear_streams, "SMALL_BATCH", 0)
            model = LinearClassifier(C=0.1, tol=0.02, solver=solver).fit(source)
        assert model.certificate_.relative_gap <= 0.02
        passes[cache_bytes] = source.passes
    assert passes[1 << 24] <= 0.5 * passes[0]
    assert passes[1 << 24] <= 8


def test_stopped_early_it_keeps_what_it_has():
    model = LinearClassifier(tol=1e-12, max_iter=1)
    with pytest.warns(ConvergenceWarning, match=r"max_iter=1 iterations .* gap of"):
        model.fit(cut(IRIS, SPECIES))
    assert model.status_ == "max_iter"
    assert model.n_iter_ == 2  # the second certifies
    assert 1e-12 < model.certificate_.relative_gap < 1.0
    assert model.score(IRIS, SPECIES) > 0.8


# Bad sources.


def refused(model, source, match, **metadata):
    before = copy.deepcopy(vars(model))
    with pytest.raises(ValueError, match=match) as caught:
        model.fit(source, **metadata)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    assert_equal(vars(model), before)


def with_entry(value):
    X = IRIS.copy()
    X[70, 2] = value
    return X


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_in_a_block_is_found(make, value):
    match = (
        r"In batch 4 of the source, whose first example is number 41 of all, .* row 29, column 2"
    )
    refused(LinearClassifier(), cut(make(with_entry(value)), SPECIES), match)


@pytest.mark.parametrize(
    ("source", "match"),
    [
        (Parts([]), "no examples"),
        (cut(IRIS, np.zeros(150, dtype=int)), "at least two classes"),
        (Parts([(IRIS, SPECIES[:-1])]), "150 rows but y has 149"),
        (Parts([(IRIS, SPECIES), (IRIS[:, :3], SPECIES)]), "X has 3 features, .* had 4"),
        (Parts([(["a", "b"], [0, 1])]), "X is a list"),
        (Parts([(IRIS, SPECIES), (IRIS, NAMES)]), "y holds text, but batches before held numbers"),
        (cut(IRIS, IRIS[:, 0]), "whole numbers or text"),
    ],
)
def test_bad_sources_of_labels(source, match):
    refused(LinearClassifier(), source, match)


def test_bad_targets_of_a_regressor():
    refused(LinearRegressor(), cut(IRIS, NAMES), "y must hold numbers")
    bad = np.where(np.arange(150) == 60, np.nan, PETALS)
    refused(LinearRegressor(), cut(IRIS, bad), r"batch 4 .* y\[19\] is nan")


def test_metadata_of_a_source_must_have_an_entry_for_each_example():
    model, source = LinearClassifier(), cut(IRIS, SPECIES)
    refused(model, source, "sample_weight has 9 entries", sample_weight=np.ones(9))
    refused(model, source, "sample_weight has 151 entries", sample_weight=np.ones(151))
    refused(model, source, "margins has 9 entries", margins=np.ones(9))
    refused(model, source, "leave y out", y=SPECIES)


def test_solvers_for_the_other_kind_of_data_are_refused():
    refused(LinearClassifier(solver=SequentialDual()), cut(IRIS, SPECIES), "in memory")
    with pytest.raises(ValueError, match="for sources"):
        LinearClassifier(solver=StreamedDual()).fit(IRIS, SPECIES)


def test_a_source_that_changes_is_refused():
    class Changing(Parts):
        def batches(self):
            yield from super().batches()
            if self.passes > 1:
                yield self.parts[0]

    source = Changing([(IRIS, SPECIES)])
    model = LinearClassifier(tol=1e-9, max_iter=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear_streams, "SMALL_BATCH", 0)
        refused(model, source, "other blocks than on the first pass")


# partial_fit.


def in_batches(model, X, y, size=10, **first):
    for at in range(0, len(y), size):
        model.partial_fit(X[at : at + size], y[at : at + size], **(first if at == 0 else {}))
    return model


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_one_pass_of_partial_fit_comes_near_the_fit(formulation):
    X, y = load_digits(return_X_y=True)
    X = X / 16
    model = LinearClassifier(C=0.1, formulation=formulation)
    fitted = clone(model).fit(X[:1500], y[:1500])
    in_batches(model, X[:1500], y[:1500], 100, classes=range(10))
    assert_array_equal(model.classes_, range(10))
    assert model.score(X[1500:], y[1500:]) > fitted.score(X[1500:], y[1500:]) - 0.03
    assert 0.5 < model.certificate_.dual / fitted.certificate_.primal <= 1.0
    assert np.isinf(model.certificate_.primal)
    assert len(model.history_) == model.n_iter_ == 15
    assert model.status_ == "partial"


def test_one_pass_of_a_regressor():
    model = in_batches(LinearRegressor(), IRIS, PETALS)
    fitted = LinearRegressor().fit(IRIS, PETALS)
    assert model.score(IRIS, PETALS) > 0.99
    assert model.coef_.shape == (4,)
    assert model.certificate_.dual <= fitted.certificate_.primal


def test_weights_are_usable_after_every_call():
    model = LinearClassifier()
    for at in range(0, 150, 10):
        model.partial_fit(IRIS[at : at + 10], SPECIES[at : at + 10], classes=[0, 1, 2])
        assert np.isfinite(model.decision_function(IRIS)).all()
        assert model.decision_function(IRIS).shape == (150, 3)


def test_a_batch_may_lack_classes_or_hold_one_example():
    model = LinearClassifier()
    for row in range(60):
        model.partial_fit(IRIS[[row]], SPECIES[[row]], classes=[0, 1, 2])
    assert model.score(IRIS, SPECIES) > 0.8


def test_two_classes_have_one_row_of_weights():
    few = SPECIES < 2
    model = in_batches(LinearClassifier(), IRIS[few], NAMES[few], classes=["ash", "birch"])
    assert model.coef_.shape == (1, 4)
    assert model.score(IRIS[few], NAMES[few]) == 1.0


def test_options_count_in_partial_fit():
    def coef(weights=None, **options):
        model = LinearClassifier(**options)
        model.partial_fit(IRIS, SPECIES, classes=[0, 1, 2], sample_weight=weights)
        return model.coef_

    plain = coef()
    assert_array_equal(plain, coef(np.ones(150)))
    assert_allclose(coef(np.full(150, 2.0)), coef(C=2.0))
    assert_allclose(coef(class_weight={1: 2.0}), coef(np.where(SPECIES == 1, 2.0, 1.0)))
    assert not np.allclose(plain, coef(loss_matrix={(0, 2): 5.0}))
    assert (coef(nonnegative=True) >= 0.0).all()


def test_fit_and_partial_fit_begin_anew_after_each_other():
    model = LinearClassifier().partial_fit(IRIS, SPECIES, classes=[0, 1, 2])
    model.fit(IRIS[:, :3], NAMES)
    assert_array_equal(model.coef_, LinearClassifier().fit(IRIS[:, :3], NAMES).coef_)
    fresh = LinearClassifier().partial_fit(IRIS, NAMES, classes=["ash", "birch", "cedar"])
    assert_array_equal(model.partial_fit(IRIS, NAMES).coef_, fresh.coef_)  # classes of the fit
    assert model.n_iter_ == 1
    model.fit(IRIS, NAMES).partial_fit(IRIS, SPECIES, classes=[0, 1, 2])
    assert_array_equal(model.coef_, fresh.coef_)


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_a_pickled_model_goes_on_as_if_nothing_had_been(formulation):
    model = LinearClassifier(formulation=formulation)
    in_batches(model, IRIS[:100], SPECIES[:100], classes=[0, 1, 2])
    twins = [pickle.loads(pickle.dumps(model)), copy.deepcopy(model), model]
    for twin in twins:
        in_batches(twin, IRIS[100:], SPECIES[100:])
    assert_array_equal(twins[0].coef_, model.coef_)
    assert_array_equal(twins[1].coef_, model.coef_)


@pytest.mark.parametrize(
    ("X", "y", "options", "match"),
    [
        (IRIS, NAMES, {}, r"y\[0\] is '\w+', which is not one of the classes \[0, 1, 2\]"),
        (IRIS, SPECIES + 1, {}, r"is 3, which is not one of the classes"),
        (IRIS[:, :3], SPECIES, {}, "3 features, but LinearClassifier is expecting 4"),
        (with_entry(np.nan), SPECIES, {}, "row 70, column 2"),
        (IRIS, SPECIES, {"classes": [0, 1]}, "not the same as on the last call"),
        (IRIS, SPECIES, {"sample_weight": [1.0]}, "sample_weight must hold one number"),
    ],
)
def test_bad_batches_are_refused_and_change_nothing(X, y, options, match):
    model = LinearClassifier().partial_fit(IRIS, SPECIES, classes=[0, 1, 2])
    before = copy.deepcopy(model)
    with pytest.raises(ValueError, match=match):
        model.partial_fit(X, y, **options)
    model.partial_fit(IRIS, SPECIES)
    before.partial_fit(IRIS, SPECIES)
    assert_array_equal(model.coef_, before.coef_)


@pytest.mark.parametrize("more", [{}, {"loss_matrix": {(0, 2): 3.0}}], ids=["", "surveyed"])
def test_class_weights_of_what_is_no_class_of_a_source(more):
    model = LinearClassifier(class_weight={3: 2.0}, **more)
    refused(model, cut(IRIS, SPECIES), r"class_weight names 3, .* classes \[0, 1, 2\]")
    LinearClassifier(class_weight={2: 2.0}, **more).fit(cut(IRIS, SPECIES))  # comes last


def test_first_calls_that_lack_something():
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        LinearClassifier().partial_fit(IRIS, SPECIES)
    with pytest.raises(ValueError, match="balanced"):
        LinearClassifier(class_weight="balanced").partial_fit(IRIS, SPECIES, classes=[0, 1, 2])
    with pytest.raises(ValueError, match="at least two classes"):
        LinearClassifier().partial_fit(IRIS, SPECIES, classes=[1])
    with pytest.raises(ValueError, match=r"class_weight names 3, .* classes \[0, 1, 2\]"):
        LinearClassifier(class_weight={3: 2.0}).partial_fit(IRIS, SPECIES, classes=[0, 1, 2])
    with pytest.raises(ValueError, match="in memory"):
        LinearClassifier(solver=SequentialDual()).partial_fit(IRIS, SPECIES, classes=[0, 1, 2])
