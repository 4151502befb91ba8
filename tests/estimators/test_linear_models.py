"""The linear models against the referee, scikit-learn and themselves."""

import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
import referee
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC, LinearSVR

from maxmargin import GaussianPrior, LinearClassifier, LinearRegressor, SequentialDual

FORMULATIONS = ["crammer-singer", "weston-watkins", "one-vs-rest"]
SINGLE_MACHINE = ["crammer-singer", "weston-watkins"]

pytestmark = pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")

random = np.random.default_rng(0)
FEATURES = random.normal([0.0, 0.5, 1.0, 0.0, -1.0], size=(60, 5))
SCORES = FEATURES @ random.standard_normal((5, 4)) + random.standard_normal((60, 4))
LABELS = SCORES.argmax(axis=1)
SIGNS = (SCORES[:, 0] > 0).astype(int)
VALUES = SCORES[:, 0] + 1.0
WEIGHTS = random.integers(0, 4, 60).astype(float)
MARGINS = random.uniform(0.0, 2.0, 60)
LOSSES = np.array(
    [[0.0, 1.0, 2.0, 0.5], [3.0, 0.0, 1.0, 1.0], [0.0, 0.2, 0.0, 1.0], [1.0, 1.0, 4.0, 0.0]]
)
MEAN = random.standard_normal(5)
VARIANCES = random.uniform(0.2, 5.0, 5)
ROOT = random.standard_normal((5, 5))
COVARIANCE = ROOT @ ROOT.T + 0.1 * np.eye(5)


# What the parameters mean, written once more from their description.


class Problem(NamedTuple):
    optimum: float
    value: Callable[[np.ndarray], float]


def each(values, keys, default=1.0):
    """A number for each of `keys`, from a number, a dictionary or an array."""
    if isinstance(values, Mapping):
        return np.array([values.get(key, default) for key in keys])
    return np.broadcast_to(values, len(keys)).astype(float)


def options_of(model, d, n_outputs):
    prior = model.prior or GaussianPrior()
    mean, covariance = prior if isinstance(prior, tuple) else (prior.mean, prior.covariance)
    mean = np.broadcast_to(0.0 if mean is None else mean, (n_outputs, d))
    covariance = np.ones(d) if covariance is None else np.asarray(covariance)
    if model.fit_intercept:
        mean = np.hstack([mean, np.zeros((n_outputs, 1))])
        if covariance.ndim == 1:
            covariance = np.append(covariance, 1.0)
        else:
            covariance = np.block(
                [[covariance, np.zeros((d, 1))], [np.zeros((1, d)), np.ones((1, 1))]]
            )
    return {
        "bias": model.intercept_scaling if model.fit_intercept else 0.0,
        "mean": mean,
        "covariance": covariance,
        "nonnegative": model.nonnegative,
    }


def weights_of(model):
    """Rows of weights, the one of the constant feature last."""
    coef = np.atleast_2d(model.coef_)
    if not model.fit_intercept:
        assert not np.any(model.intercept_)
        return coef
    return np.column_stack([coef, np.ravel(model.intercept_) / model.intercept_scaling])


def weston_watkins(X, y, n_classes, *, C, margins, loss_matrix, **options):
    """As the referee's, with a loss matrix."""
    model = referee._model(X, n_classes, **options)
    competitors = np.arange(n_classes) != y[:, None]
    required = (margins[:, None] * loss_matrix[y])[competitors]
    slopes = referee._rival_slopes(model.inputs, y, n_classes)[competitors]

    def value(weights):
        scores = model.scores(weights)
        lead = scores[np.arange(len(y)), y][:, None] - scores
        losses = np.maximum(0.0, required - lead[competitors]).reshape(len(y), -1).sum(axis=1)
        return model.regulariser(weights) + float(C @ losses)

    solution = referee._solve(
        model,
        slopes=np.stack([np.zeros_like(slopes), slopes], axis=1),
        offsets=np.stack([np.zeros_like(required), required], axis=1),
        C=np.repeat(C, n_classes - 1),
        objective=value,
    )
    return Problem(solution.value, value)


def hinge(X, signs, **terms):
    solution = referee.hinge(X, signs, **terms)
    return Problem(solution.value, lambda w: referee.hinge_objective(w, X, signs, **terms))


def classification_problem(model, X, y, sample_weight=None, margins=None):
    classes, labels = np.unique(y, return_inverse=True)
    k = len(classes)
    C = model.C * (np.ones(len(y)) if sample_weight is None else sample_weight)
    if model.class_weight == "balanced":
        counts = np.bincount(labels, sample_weight)
        C = C * (counts.sum() / (k * counts))[labels]
    elif model.class_weight is not None:
        C = C * each(model.class_weight, y)
    margins = each(model.margins if margins is None else margins, y)
    loss_matrix = 1.0 - np.eye(k)
    if isinstance(model.loss_matrix, dict):
        for (true, predicted), loss in model.loss_matrix.items():
            loss_matrix[classes == true, classes == predicted] = loss
    elif model.loss_matrix is not None:
        loss_matrix = np.asarray(model.loss_matrix)
    options = options_of(model, X.shape[1], 1 if k == 2 else k)
    if k == 2:
        margins = margins * loss_matrix[labels, 1 - labels]
        return hinge(X, 2.0 * labels - 1.0, C=C, margins=margins, **options)
    if model.formulation == "one-vs-rest":
        means = options.pop("mean")
        parts = [
            hinge(
                X,
                np.where(labels == m, 1.0, -1.0),
                C=C,
                margins=margins,
                mean=means[m],
                **options,
            )
            for m in range(k)
        ]
        return Problem(
            sum(part.optimum for part in parts),
            lambda w: sum(part.value(row) for part, row in zip(parts, w, strict=True)),
        )
    terms = {"C": C, "margins": margins, "loss_matrix": loss_matrix} | options
    if model.formulation == "weston-watkins":
        return weston_watkins(X, labels, k, **terms)
    solution = referee.crammer_singer(X, labels, k, **terms)
    return Problem(
        solution.value, lambda w: referee.crammer_singer_objective(w, X, labels, k, **terms)
    )


def regression_problem(model, X, y, sample_weight=None):
    C = model.C * (np.ones(len(y)) if sample_weight is None else sample_weight)
    terms = {"C": C, "epsilon": model.epsilon} | options_of(model, X.shape[1], 1)
    solution = referee.epsilon_insensitive(X, y, **terms)
    return Problem(
        solution.value, lambda w: referee.epsilon_insensitive_objective(w, X, y, **terms)
    )


def problem_of(model, *data, **metadata):
    classifier = isinstance(model, LinearClassifier)
    make = classification_problem if classifier else regression_problem
    return make(model, *data, **metadata)


def assert_certified(model, *data, **metadata):
    """The certificate holds, whether or not the model has converged; returns the optimum."""
    optimum, value = problem_of(model, *data, **metadata)
    certificate = model.certificate_
    rounding = 1e-8 * (1.0 + abs(optimum))
    assert certificate.dual <= optimum + rounding
    assert certificate.primal >= optimum - rounding
    assert_allclose(value(weights_of(model)), certificate.primal, rtol=1e-9, atol=1e-12)
    assert certificate.gap == certificate.primal - certificate.dual
    scale = max(abs(certificate.primal), abs(certificate.dual))
    assert_allclose(certificate.relative_gap * scale, certificate.gap)
    if model.nonnegative:
        assert model.coef_.min() >= 0.0
    return optimum


def assert_optimal(model, *data, **metadata):
    """The model has converged, to an objective that the referee agrees with."""
    optimum = assert_certified(model, *data, **metadata)
    assert_allclose(model.certificate_.primal, optimum, rtol=1e-6, atol=1e-9)
    assert model.status_ == "converged"
    assert model.certificate_.relative_gap <= model.tol


GEOMETRY: list[dict[str, Any]] = [
    {},
    {"C": 0.01},
    {"C": 30.0},
    {"fit_intercept": False},
    {"intercept_scaling": 10.0},
    {"intercept_scaling": 0.1},
    {"nonnegative": True},
    {"nonnegative": True, "fit_intercept": False},
    {"prior": (MEAN, None)},
    {"prior": GaussianPrior(covariance=VARIANCES)},
    {"prior": (MEAN, VARIANCES), "nonnegative": True},
    {"prior": (None, COVARIANCE)},
    {"prior": (MEAN, COVARIANCE), "fit_intercept": False},
    {"prior": (MEAN, COVARIANCE), "intercept_scaling": 3.0},
    {"solver": SequentialDual(skip_idle_examples=False)},
    {"solver": SequentialDual(acceleration=False)},
    {"solver": SequentialDual(averaging=False, skip_small_violations=False)},
]
CLASSES: list[dict[str, Any]] = [
    {"class_weight": {0: 3.0, 1: 0.5}},
    {"class_weight": {0: 0.0, 1: 2.0, 2: 1.0, 3: 1.0}},
    {"class_weight": "balanced"},
    {"margins": 2.5},
    {"margins": 0.3, "nonnegative": True},
    {"margins": {0: 2.0, 1: 0.5}},
    {"margins": MARGINS},
]
COSTS: list[dict[str, Any]] = [
    {"loss_matrix": LOSSES},
    {"loss_matrix": LOSSES.tolist(), "margins": MARGINS},
    {"loss_matrix": {(0, 1): 3.0, (2, 0): 0.0, (9, 0): 7.0}},
    {"loss_matrix": LOSSES, "nonnegative": True, "prior": (MEAN, VARIANCES)},
    {"loss_matrix": LOSSES, "class_weight": "balanced", "fit_intercept": False},
]


def name(options):
    """A short name for a case."""
    short = {
        key: type(value).__name__ if key in {"loss_matrix", "prior"} else value
        for key, value in options.items()
    }
    return " ".join(f"{key}={np.shape(v) or v}" for key, v in short.items()) or "default"


@pytest.mark.diagonal
@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize("options", GEOMETRY + CLASSES, ids=name)
def test_classifier(formulation, options):
    model = LinearClassifier(formulation=formulation, tol=1e-8).set_params(**options)
    assert_optimal(model.fit(FEATURES, LABELS), FEATURES, LABELS)


@pytest.mark.parametrize("formulation", SINGLE_MACHINE)
@pytest.mark.parametrize("options", COSTS, ids=name)
def test_loss_matrix(formulation, options):
    model = LinearClassifier(formulation=formulation, tol=1e-8).set_params(**options)
    assert_optimal(model.fit(FEATURES, LABELS), FEATURES, LABELS)


@pytest.mark.diagonal
@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"class_weight": "balanced"},
        {"margins": {0: 2.0}, "class_weight": {1: 2.0}, "nonnegative": True},
        {"prior": (np.arange(20.0).reshape(4, 5) % 3, VARIANCES)},
        {"prior": (MEAN, COVARIANCE), "class_weight": {3: 4.0}, "C": 0.3},
    ],
    ids=name,
)
def test_weights_and_margins_given_to_fit(formulation, options):
    model = LinearClassifier(formulation=formulation, tol=1e-8).set_params(**options)
    metadata = {"sample_weight": WEIGHTS}
    assert_optimal(model.fit(FEATURES, LABELS, **metadata), FEATURES, LABELS, **metadata)
    metadata = {"sample_weight": WEIGHTS, "margins": MARGINS}
    assert_optimal(model.fit(FEATURES, LABELS, **metadata), FEATURES, LABELS, **metadata)


@pytest.mark.diagonal
@pytest.mark.parametrize("options", GEOMETRY + CLASSES, ids=name)
def test_two_classes_are_the_binary_hinge(options):
    options = options | ({"class_weight": {0: 3.0}} if "class_weight" in options else {})
    models = [
        LinearClassifier(formulation=formulation, tol=1e-8).set_params(**options)
        for formulation in FORMULATIONS
    ]
    for model in models:
        assert_optimal(model.fit(FEATURES, SIGNS), FEATURES, SIGNS)
        assert model.coef_.shape == (1, 5)
        assert_array_equal(model.coef_, models[0].coef_)
        scores = FEATURES @ model.coef_[0] + model.intercept_
        assert_allclose(model.decision_function(FEATURES), scores)
        assert_array_equal(model.predict(FEATURES), scores > 0)


@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize("losses", [{(0, 1): 3.0}, [[0.0, 0.5], [2.0, 0.0]]], ids=str)
def test_two_classes_and_a_loss_matrix(formulation, losses):
    model = LinearClassifier(formulation=formulation, tol=1e-8, loss_matrix=losses)
    model.set_params(margins=MARGINS).fit(FEATURES, SIGNS, WEIGHTS)
    assert_optimal(model, FEATURES, SIGNS, WEIGHTS)


@pytest.mark.diagonal
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 100.0])
@pytest.mark.parametrize("options", GEOMETRY, ids=name)
def test_regressor(options, epsilon):
    model = LinearRegressor(epsilon=epsilon, tol=1e-8).set_params(**options)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*zero weights")  # where no target is off by epsilon
        model.fit(FEATURES, VALUES)
    assert_optimal(model, FEATURES, VALUES)
    assert isinstance(model.intercept_, float)
    assert_allclose(model.predict(FEATURES), FEATURES @ model.coef_ + model.intercept_)


def test_weights_of_a_regressor():
    model = LinearRegressor(epsilon=0.2, tol=1e-8, prior=(MEAN, VARIANCES), nonnegative=True)
    model.fit(FEATURES, VALUES, sample_weight=WEIGHTS)
    assert_optimal(model, FEATURES, VALUES, sample_weight=WEIGHTS)


@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_a_weight_is_a_number_of_copies(formulation, class_weight):
    model = LinearClassifier(formulation=formulation, class_weight=class_weight, tol=1e-8)
    copies = WEIGHTS.astype(int)
    weighted = clone(model).fit(FEATURES, LABELS, WEIGHTS)
    copied = clone(model).fit(np.repeat(FEATURES, copies, axis=0), np.repeat(LABELS, copies))
    assert_allclose(weighted.certificate_.primal, copied.certificate_.primal, rtol=1e-7)


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_many_classes_and_more_features_than_examples(formulation):
    X = random.standard_normal((24, 30))
    y = np.arange(24) % 9
    model = LinearClassifier(formulation=formulation, tol=1e-8).fit(X, y)
    assert_optimal(model, X, y)


@pytest.mark.parametrize("C", [30.0, 100.0])
def test_small_gaps_are_reached_whatever_the_seed(C):
    model = LinearClassifier(C, tol=1e-8, max_iter=5000)
    for seed in range(8):
        assert model.set_params(random_state=seed).fit(FEATURES, LABELS).status_ == "converged"


def test_decision_function_and_predict():
    model = LinearClassifier().fit(FEATURES, LABELS + 5)
    assert_array_equal(model.classes_, [5, 6, 7, 8])
    scores = FEATURES @ model.coef_.T + model.intercept_
    assert_allclose(model.decision_function(FEATURES), scores)
    assert_array_equal(model.predict(FEATURES), 5 + scores.argmax(axis=1))


# Against scikit-learn's liblinear.


@pytest.mark.parametrize("C", [0.1, 1.0])
@pytest.mark.parametrize("y", [SIGNS, LABELS], ids=["two classes", "four classes"])
def test_linear_svc(y, C):
    theirs = LinearSVC(C=C, loss="hinge", tol=1e-10, max_iter=1_000_000).fit(FEATURES, y)
    ours = LinearClassifier(C, formulation="one-vs-rest", tol=1e-10).fit(FEATURES, y)
    assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-4)


@pytest.mark.parametrize(
    ("y", "options"),
    [
        # With more classes liblinear gives the weight of a class to its own machine only.
        (SIGNS, {"intercept_scaling": 3.0, "class_weight": {0: 2.0, 1: 0.5}}),
        (LABELS, {"intercept_scaling": 3.0}),
        (LABELS, {"fit_intercept": False}),
    ],
    ids=["weighted classes", "intercept", "no intercept"],
)
def test_linear_svc_with_options(y, options):
    theirs = LinearSVC(loss="hinge", tol=1e-10, max_iter=1_000_000, **options)
    ours = LinearClassifier(formulation="one-vs-rest", tol=1e-10, **options)
    theirs.fit(FEATURES, y, WEIGHTS)
    ours.fit(FEATURES, y, WEIGHTS)
    assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-4)


def test_linear_svc_of_crammer_and_singer():
    theirs = LinearSVC(multi_class="crammer_singer", tol=1e-10, max_iter=1_000_000)
    theirs.fit(FEATURES, LABELS)
    ours = LinearClassifier(tol=1e-10).fit(FEATURES, LABELS)
    assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-4)


@pytest.mark.parametrize("epsilon", [0.0, 0.5])
@pytest.mark.parametrize("C", [0.1, 1.0])
def test_linear_svr(C, epsilon):
    theirs = LinearSVR(C=C, epsilon=epsilon, tol=1e-10, max_iter=1_000_000).fit(FEATURES, VALUES)
    ours = LinearRegressor(C, epsilon=epsilon, tol=1e-10).fit(FEATURES, VALUES)
    assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    assert_allclose(ours.intercept_, theirs.intercept_[0], atol=1e-4)


# Warm starts and paths.

KINDS = [
    *((LinearClassifier(formulation=formulation), LABELS) for formulation in FORMULATIONS),
    (LinearClassifier(), SIGNS),
    (LinearRegressor(epsilon=0.1), VALUES),
]
kinds = pytest.mark.parametrize(
    ("model", "y"), KINDS, ids=[*FORMULATIONS, "two classes", "regressor"]
)


@kinds
def test_warm_start_again(model, y):
    model = clone(model).set_params(warm_start=True, tol=1e-6).fit(FEATURES, y)
    updates = model.history_[-1].oracle_calls
    model.fit(FEATURES, y)
    assert_optimal(model, FEATURES, y)
    assert model.history_[-1].oracle_calls < 0.3 * updates


@pytest.mark.diagonal
@kinds
@pytest.mark.parametrize("C", [0.01, 0.98, 1.02, 100.0])
def test_warm_start_with_another_cost(model, y, C):
    cold = clone(model).set_params(C=C, tol=1e-8).fit(FEATURES, y)
    warm = clone(model).set_params(warm_start=True, tol=1e-8).fit(FEATURES, y)
    assert_optimal(warm.set_params(C=C).fit(FEATURES, y), FEATURES, y)
    assert_allclose(warm.certificate_.primal, cold.certificate_.primal, rtol=1e-7)


@kinds
def test_warm_start_with_nearly_the_same_cost_starts_nearly_there(model, y):
    cold = clone(model).set_params(C=1.01, max_iter=1)
    warm = clone(model).set_params(warm_start=True, tol=1e-8).fit(FEATURES, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        cold.fit(FEATURES, y)
        warm.set_params(C=1.01, max_iter=1).fit(FEATURES, y)
    assert warm.certificate_.gap < 0.1 * cold.certificate_.gap
    assert warm.certificate_.dual > cold.certificate_.dual


@kinds
def test_warm_start_with_other_data(model, y):
    warm = clone(model).set_params(warm_start=True).fit(FEATURES, y)
    warm.fit(FEATURES[:-7], y[:-7])
    cold = clone(model).fit(FEATURES[:-7], y[:-7])
    assert_array_equal(warm.coef_, cold.coef_)
    assert warm.n_iter_ == cold.n_iter_


def test_warm_start_with_other_classes_and_features():
    warm = LinearClassifier(warm_start=True, tol=1e-8).fit(FEATURES, LABELS)
    assert_optimal(warm.fit(FEATURES, SIGNS), FEATURES, SIGNS)
    assert_optimal(warm.fit(FEATURES[:, :3], SIGNS), FEATURES[:, :3], SIGNS)
    assert_optimal(warm.fit(FEATURES, 3 - LABELS), FEATURES, 3 - LABELS)
    for formulation in FORMULATIONS:
        warm.set_params(formulation=formulation, nonnegative=True)
        assert_optimal(warm.fit(FEATURES, LABELS, WEIGHTS), FEATURES, LABELS, WEIGHTS)


@kinds
def test_no_warm_start_unless_asked_for(model, y):
    first = clone(model).fit(FEATURES, y)
    coef, iterations = first.coef_, first.n_iter_
    again = first.fit(FEATURES, y)
    assert_array_equal(again.coef_, coef)
    assert again.n_iter_ == iterations


@kinds
def test_path(model, y):
    model = clone(model).set_params(tol=1e-8)
    Cs = [1.0, 0.01, 10.0, 1.0, 0.1]
    path = model.path(FEATURES, y, Cs)
    assert [member.C for member in path] == Cs
    assert vars(model) == model.get_params()
    for member in path:
        assert_optimal(member, FEATURES, y)
        alone = clone(model).set_params(C=member.C).fit(FEATURES, y)
        assert_allclose(member.certificate_.primal, alone.certificate_.primal, rtol=1e-7)
        assert member.n_features_in_ == 5
        assert member.predict(FEATURES).shape == (60,)


@kinds
def test_path_leaves_a_fitted_model_alone(model, y):
    model = clone(model).fit(FEATURES, y)
    before = dict(vars(model))
    model.path(FEATURES[:, :3], y, [0.1])
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[key] is before[key] for key in before)


def test_path_with_weights_and_margins():
    model = LinearClassifier(C=7.0, tol=1e-8, class_weight="balanced", margins=3.0)
    path = model.path(FEATURES, LABELS, [0.1, 1.0], WEIGHTS, MARGINS)
    for member in path:
        assert_optimal(member, FEATURES, LABELS, WEIGHTS, MARGINS)


@kinds
def test_warm_start_where_the_optimum_is_zero(model, y):
    model = clone(model).set_params(warm_start=True, max_iter=1000).fit(FEATURES, y)
    if isinstance(model, LinearClassifier):
        model.set_params(margins=0.0).fit(FEATURES, y)
    else:
        model.fit(FEATURES, 0.0 * y)
    assert model.status_ == "converged"
    assert model.certificate_.primal == 0.0


# Threads and seeds.


@kinds
@pytest.mark.parametrize(
    "options", [{}, {"nonnegative": True, "prior": (MEAN, VARIANCES)}], ids=name
)
def test_two_threads(model, y, options):
    model = clone(model).set_params(n_jobs=2, tol=1e-8, **options)
    first, again = clone(model).fit(FEATURES, y), clone(model).fit(FEATURES, y)
    assert_optimal(first, FEATURES, y)
    assert_array_equal(first.coef_, again.coef_)
    assert_array_equal(first.intercept_, again.intercept_)
    assert first.certificate_ == again.certificate_


def test_more_threads_than_examples_or_classes():
    X, y = np.array([[1.0], [2.0], [-1.0]]), np.array([0, 1, 2])
    for formulation in FORMULATIONS:
        model = LinearClassifier(formulation=formulation, n_jobs=8, tol=1e-8).fit(X, y)
        assert_optimal(model, X, y)


@pytest.mark.parametrize("n_jobs", [None, -1, -100])
def test_numbers_of_threads(n_jobs):
    model = LinearClassifier(n_jobs=n_jobs, tol=1e-8).fit(FEATURES, LABELS)
    assert_optimal(model, FEATURES, LABELS)


@kinds
def test_random_state(model, y):
    def fit(seed):
        # With bounds, so that it is updates alone, in their order, that find the optimum.
        bounded = clone(model).set_params(random_state=seed, tol=1e-8, nonnegative=True)
        return bounded.fit(FEATURES, y)

    assert_array_equal(fit(3).coef_, fit(3).coef_)
    assert_array_equal(fit(np.random.RandomState(3)).coef_, fit(np.random.RandomState(3)).coef_)
    assert not np.array_equal(fit(3).coef_, fit(4).coef_)
    for seed in (4, None):
        assert_allclose(fit(seed).certificate_.primal, fit(3).certificate_.primal, rtol=1e-7)


# History.


@kinds
def test_history(model, y):
    model = clone(model).fit(FEATURES, y)
    history = model.history_
    one_versus_rest = model.get_params().get("formulation") == "one-vs-rest"
    assert len(history) == (4 if one_versus_rest else model.n_iter_)  # four classes
    seconds = [line.seconds for line in history]
    assert seconds == sorted(seconds)
    updates = [line.oracle_calls for line in history]
    assert updates == sorted(set(updates))
    assert all(line.relative_gap > -1e-12 for line in history)  # and none is NaN
    assert_allclose(history[-1].primal, model.certificate_.primal)
    assert_allclose(history[-1].dual, model.certificate_.dual)


@pytest.mark.parametrize("formulation", SINGLE_MACHINE)
def test_the_best_values_so_far_only_get_better(formulation):
    for C in (0.1, 10.0):
        model = LinearClassifier(C, formulation=formulation, tol=1e-6).fit(FEATURES, LABELS)
        primal = np.array([line.primal for line in model.history_])
        dual = np.array([line.dual for line in model.history_])
        assert (primal[1:] <= primal[:-1]).all()
        assert (dual[1:] >= dual[:-1] - 1e-10 * abs(dual[:-1])).all()


# Stopped before the end.


@kinds
@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize(
    ("options", "status"), [({"max_iter": 1}, "max_iter"), ({"time_limit": 1e-9}, "time_limit")]
)
def test_limits(model, y, options, status, n_jobs):
    model = clone(model).set_params(tol=1e-9, n_jobs=n_jobs, **options)
    with pytest.warns(ConvergenceWarning, match=r"gap of .*, above tol=1e-09") as caught:
        model.fit(FEATURES, y)
    assert len(caught) == 1
    assert f"{model.certificate_.relative_gap:.2g}" in str(caught[0].message)
    assert model.status_ == status
    assert model.certificate_.relative_gap > model.tol
    assert_certified(model, FEATURES, y)
    assert model.predict(FEATURES).shape == (60,)


@kinds
def test_time_limit_is_kept(model, y):
    model = clone(model).set_params(
        tol=1e-15, C=1e7, max_iter=10**9, time_limit=0.2, nonnegative=True
    )
    started = time.perf_counter()
    with pytest.warns(ConvergenceWarning, match=r"time limit of 0.2 s"):
        model.fit(FEATURES, y)
    assert 0.1 < time.perf_counter() - started < 2.0


@kinds
def test_limits_of_a_path(model, y):
    model = clone(model).set_params(max_iter=1)
    with pytest.warns(ConvergenceWarning) as caught:
        path = model.path(FEATURES, y, [1.0, 10.0])
    assert len(caught) == 2
    for member in path:
        assert member.status_ == "max_iter"
        assert_certified(member, FEATURES, y)


@pytest.mark.parametrize("method", ["fit", "path"])
def test_the_warning_points_to_the_caller(method):
    model = LinearClassifier(max_iter=1)
    options = {} if method == "fit" else {"Cs": [1.0]}
    with pytest.warns(ConvergenceWarning) as caught:
        getattr(model, method)(FEATURES, LABELS, **options)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("max_iter", [1, 2, 3])
def test_a_limit_that_is_reached_with_a_gap_within_tol_is_no_failure(max_iter):
    X, y = np.eye(2), np.array([0, 1])  # one sweep solves it
    model = LinearClassifier(max_iter=max_iter, tol=1e-3, fit_intercept=False).fit(X, y)
    assert model.certificate_.relative_gap <= 1e-3
    assert model.status_ == "converged"


def test_an_unfinished_fit_can_be_resumed():
    model = LinearClassifier(warm_start=True, max_iter=3, tol=1e-6)
    with pytest.warns(ConvergenceWarning):
        dual = model.fit(FEATURES, LABELS).certificate_.dual
    with pytest.warns(ConvergenceWarning):
        assert model.fit(FEATURES, LABELS).certificate_.dual > dual
    assert_optimal(model.set_params(max_iter=10_000).fit(FEATURES, LABELS), FEATURES, LABELS)


# Interrupts.


class Interrupt:
    """Callback that does in round `at` what Ctrl-C does."""

    def __init__(self, at):
        self.at = at
        self.iterations = 0

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        is_round = hasattr(context, "iteration")
        self.iterations += is_round
        if is_round and self.iterations == self.at:
            raise KeyboardInterrupt


@kinds
@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("at", [1, 2])
def test_interrupt_in_a_callback(model, y, n_jobs, at):
    model = clone(model).set_params(n_jobs=n_jobs, tol=1e-12).set_callbacks(Interrupt(at))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(FEATURES, y)
    # Classes that share two threads may all be done before the interrupt is heard.
    all_done = n_jobs == 2 and model.status_ == "converged"
    assert all_done or model.status_ == "interrupted"
    assert all_done or any("stopped by an interrupt" in str(w.message) for w in caught)
    assert_certified(model, FEATURES, y)
    assert model.predict(FEATURES).shape == (60,)


def interrupted_in_the_second_solve():
    """A solver that gets one Ctrl-C, in the first round of its second solve."""
    calls = []

    def interrupt_once(line, weights):
        calls.append("round")
        if calls.count("round") == 1:
            raise KeyboardInterrupt

    class Interrupted(SequentialDual):
        def solve(self, problem, stopping, **options):
            calls.append("solve")
            options["on_iteration"] = interrupt_once if calls.count("solve") == 2 else None
            return super().solve(problem, stopping, **options)

    return Interrupted()


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_interrupted_path(formulation):
    solver = interrupted_in_the_second_solve()
    model = LinearClassifier(formulation=formulation, tol=1e-6, solver=solver)
    with pytest.warns(ConvergenceWarning, match="interrupt"):
        path = model.path(FEATURES, LABELS, [0.1, 1.0, 10.0])
    assert [member.status_ for member in path] == ["converged", "interrupted", "interrupted"]
    for member in path:
        assert_certified(member, FEATURES, LABELS)


CTRL_C = """
import signal, sys, warnings
import numpy as np
from maxmargin import LinearClassifier, LinearRegressor

signal.signal(signal.SIGINT, signal.default_int_handler)
warnings.simplefilter("ignore")
random = np.random.default_rng(0)
X = random.standard_normal((400, 10))
y = random.integers(0, 4, 400)
models = [
    LinearClassifier(formulation=formulation, n_jobs=n_jobs)
    for formulation in ("crammer-singer", "weston-watkins", "one-vs-rest")
    for n_jobs in (1, 2)
]
for model in [*models, LinearRegressor()]:
    model.set_params(C=1e6, max_iter=2, tol=1e-15, nonnegative=True).fit(X, y)  # compiles
    model.set_params(max_iter=10**9, time_limit=30.0)
    print("training", flush=True)
    model.fit(X, y)
    certificate = model.certificate_
    usable = 0.0 < certificate.dual < certificate.primal and model.predict(X).shape == (400,)
    print(model.status_, usable, flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="needs SIGINT")
def test_ctrl_c():
    child = subprocess.Popen([sys.executable, "-c", CTRL_C], stdout=subprocess.PIPE, text=True)
    with child:
        for _ in range(7):
            assert child.stdout.readline() == "training\n"
            time.sleep(0.2)
            child.send_signal(signal.SIGINT)
            sent = time.perf_counter()
            assert child.stdout.readline() == "interrupted True\n"
            assert time.perf_counter() - sent < 5.0
        assert child.stdout.read() == ""
    assert child.returncode == 0
