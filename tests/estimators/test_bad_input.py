"""Bad input: one sentence, and an estimator that was fitted before stays exactly as it was."""

import copy

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from maxmargin import GaussianPrior, LinearClassifier, LinearRegressor

FORMULATIONS = ["crammer-singer", "weston-watkins", "one-vs-rest"]

random = np.random.default_rng(0)
FEATURES = random.standard_normal((30, 4))
LABELS = np.arange(30) % 3
VALUES = FEATURES @ [1.0, -1.0, 2.0, 0.0] + random.standard_normal(30)


def assert_one_sentence(message):
    assert "\n" not in message
    assert message.endswith(".")


def assert_refused(model, X, y, match, **metadata):
    """Fit `model`, which has been fitted before, and `path`: both must fail and change nothing."""
    before = copy.deepcopy(vars(model))
    for method, options in [(model.fit, {}), (model.path, {"Cs": [0.1, 1.0]})]:
        with pytest.raises(ValueError, match=match) as caught:
            method(X, y, **options, **metadata)
        assert_one_sentence(str(caught.value))
        assert_equal(vars(model), before)


@pytest.fixture(scope="module")
def fitted_once():
    return {
        "classifier": LinearClassifier(warm_start=True).fit(FEATURES, LABELS),
        "regressor": LinearRegressor(warm_start=True).fit(FEATURES, VALUES),
    }


@pytest.fixture
def classifier(fitted_once):
    return copy.deepcopy(fitted_once["classifier"])


@pytest.fixture
def regressor(fitted_once):
    return copy.deepcopy(fitted_once["regressor"])


@pytest.fixture(params=["classifier", "regressor"])
def either(request, fitted_once):
    """A fitted model of each kind, with targets for it."""
    y = LABELS if request.param == "classifier" else VALUES
    return copy.deepcopy(fitted_once[request.param]), y


def with_entry(X, row, column, value):
    X = X.copy()
    X[row, column] = value
    return X


# Features.


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("make", [np.asarray, np.asfortranarray, sp.csr_array, sp.csc_array])
def test_nan_and_infinity_are_found(either, make, dtype, value):
    model, y = either
    X = FEATURES.astype(dtype)
    X[np.arange(30) % 2 == 0] = 0.0  # empty rows, when sparse
    X = make(with_entry(X, 7, 2, value))
    assert_refused(model, X, y, match=r"(NaN|inf).* row 7, column 2")


def test_large_features_are_not_taken_for_infinite(either):
    model, y = either
    X = with_entry(with_entry(FEATURES, 0, 0, 1e308), 1, 0, 1e308)
    with np.errstate(over="ignore"):
        assert np.isinf(X.sum())
    with pytest.raises(ValueError, match="row 5, column 1"):
        model.fit(with_entry(X, 5, 1, np.nan), y)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_no_samples(either, make):
    model, y = either
    assert_refused(model, make(FEATURES[:0]), y[:0], match="0 sample")


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_no_features(either, make):
    model, y = either
    assert_refused(model, make(FEATURES[:, :0]), y, match="0 feature")


@pytest.mark.parametrize(
    "X",
    [FEATURES[:, 0], FEATURES[None], 1.0, None, FEATURES + 1j, FEATURES.astype(str) + "x"],
    ids=["one dimension", "three dimensions", "scalar", "None", "complex", "text"],
)
def test_features_that_are_no_matrix_of_numbers(either, X):
    model, y = either
    assert_refused(model, X, y, match=".")


def test_mismatched_lengths(either):
    model, y = either
    assert_refused(model, FEATURES, y[:-1], match="30 rows but y has 29")
    assert_refused(model, sp.csr_array(FEATURES)[:-2], y, match="28 rows but y has 30")


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_nothing_but_zeros_and_no_intercept(either, make):
    model, y = either
    model.set_params(fit_intercept=False)
    assert_refused(model, make(0 * FEATURES), y, match="Every row of X is zero")


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_nothing_but_zeros_with_an_intercept(make, formulation, n_classes):
    y = np.minimum(np.arange(31) % 5, n_classes - 1)
    model = LinearClassifier(formulation=formulation).fit(make(np.zeros((31, 4))), y)
    assert model.status_ == "converged"
    assert not model.coef_.any()
    assert (model.predict(make(np.zeros((2, 4)))) == n_classes - 1).all()


def test_nothing_but_zeros_with_an_intercept_for_a_regressor():
    model = LinearRegressor(C=100.0, tol=1e-8).fit(np.zeros((5, 2)), [1.0, 2.0, 3.0, 4.0, 50.0])
    assert not model.coef_.any()
    assert_allclose(model.intercept_, 3.0)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_rows_of_zeros_among_others(make, formulation, fit_intercept):
    X = FEATURES.copy()
    X[:9] = 0.0
    model = LinearClassifier(formulation=formulation, fit_intercept=fit_intercept, tol=1e-6)
    model.fit(make(X), LABELS)
    assert model.status_ == "converged"
    if not fit_intercept:  # then they cost the same whatever the weights
        rest = clone(model).fit(X[9:], LABELS[9:])
        losses = {"crammer-singer": 1, "weston-watkins": 2, "one-vs-rest": 3}[formulation]
        constant = 9 * losses
        assert_allclose(model.certificate_.primal, rest.certificate_.primal + constant, rtol=1e-6)
        assert_allclose(model.certificate_.dual, rest.certificate_.dual + constant, rtol=1e-6)


# Targets.


def test_no_targets(either):
    model, _ = either
    assert_refused(model, FEATURES, None, match="y is None")


def test_one_class_only(classifier):
    assert_refused(classifier, FEATURES, np.ones(30), match=r"at least two classes.* class, 1\.0\.")
    assert_refused(classifier, FEATURES, ["ash"] * 30, match="'ash'")


@pytest.mark.parametrize(
    "y",
    [VALUES, np.where(LABELS == 0, np.nan, LABELS), np.column_stack([LABELS, LABELS]), 1.0],
    ids=["continuous", "NaN", "two columns", "scalar"],
)
def test_labels_that_are_no_labels(classifier, y):
    assert_refused(classifier, FEATURES, y, match=".")


def test_continuous_labels_are_named_as_such(classifier):
    assert_refused(classifier, FEATURES, VALUES, match="continuous")


def test_targets_that_are_no_numbers(regressor):
    names = np.array(["ash", "birch", "cedar"])[LABELS]
    assert_refused(regressor, FEATURES, names, match="numbers.*LinearClassifier")
    assert_refused(regressor, FEATURES, names.astype(object), match="numbers.*LinearClassifier")
    assert_refused(regressor, FEATURES, VALUES + 1j, match=".")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_targets_that_are_not_finite(regressor, value):
    y = VALUES.copy()
    y[11] = value
    assert_refused(regressor, FEATURES, y, match=r"y\[11\] is (nan|inf)")


# Weights and margins.


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_bad_sample_weight(either, value):
    model, y = either
    weight = np.ones(30)
    weight[4] = value
    assert_refused(model, FEATURES, y, match=r"sample_weight\[4\] is", sample_weight=weight)


@pytest.mark.parametrize("shape", [(29,), (31,), (30, 1), (0,)])
def test_sample_weight_of_the_wrong_shape(either, shape):
    model, y = either
    assert_refused(model, FEATURES, y, match="sample_weight", sample_weight=np.ones(shape))


@pytest.mark.parametrize("weight", ["heavy", ["heavy"] * 30])
def test_sample_weight_of_text(either, weight):
    model, y = either
    assert_refused(model, FEATURES, y, match="sample_weight", sample_weight=weight)


def test_all_weights_zero(either):
    model, y = either
    assert_refused(model, FEATURES, y, match="weights are zero", sample_weight=np.zeros(30))


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_bad_margins(classifier, value):
    margins = np.ones(30)
    margins[4] = value
    match = r"margins\[4\] is"
    assert_refused(classifier, FEATURES, LABELS, match=match, margins=margins)
    assert_refused(classifier.set_params(margins=margins), FEATURES, LABELS, match=match)
    assert_refused(classifier.set_params(margins=value), FEATURES, LABELS, match="margins")
    classifier.set_params(margins={0: 1.0, 1: value})
    assert_refused(classifier, FEATURES, LABELS, match="margins")


@pytest.mark.parametrize("shape", [(29,), (3,), (30, 3)])
def test_margins_of_the_wrong_shape(classifier, shape):
    margins = np.ones(shape)
    assert_refused(classifier, FEATURES, LABELS, match="margins must hold", margins=margins)
    classifier.set_params(margins=margins)
    assert_refused(classifier, FEATURES, LABELS, match="margins must hold")


def test_margins_of_text(classifier):
    assert_refused(classifier, FEATURES, LABELS, match="margins", margins="wide")
    classifier.set_params(margins={0: "wide"})
    assert_refused(classifier, FEATURES, LABELS, match="margins")


@pytest.mark.parametrize(
    "class_weight",
    [{0: -1.0}, {0: np.nan}, {0: np.inf}, {0: "heavy"}, "unbalanced", 2.0],
    ids=str,
)
def test_bad_class_weight(classifier, class_weight):
    classifier.set_params(class_weight=class_weight)
    assert_refused(classifier, FEATURES, LABELS, match="class_weight")


@pytest.mark.parametrize("class_weight", [{"brich": 3.0}, {"ash": 1.0, "brich": 3.0}], ids=str)
def test_class_weights_of_what_is_no_class(classifier, class_weight):
    names = np.array(["ash", "birch", "cedar"])
    classifier.set_params(class_weight=class_weight)
    match = r"class_weight names 'brich', .* classes \['ash', 'birch', 'cedar'\]: correct it"
    assert_refused(classifier, FEATURES, names[LABELS], match=match)
    with pytest.raises(ValueError, match=match):
        classifier.set_params(solver="one-slack").fit(FEATURES, names[LABELS])


def test_class_weights_that_leave_nothing(classifier):
    classifier.set_params(class_weight={0: 0.0, 1: 0.0, 2: 0.0})
    assert_refused(classifier, FEATURES, LABELS, match="zero")
    classifier.set_params(class_weight={0: 0.0, 1: 0.0, 2: 1.0})
    assert_refused(classifier, FEATURES, LABELS, match="zero", sample_weight=LABELS < 2)


# Parameters.


@pytest.mark.parametrize(
    "parameters",
    [
        {"C": 0.0},
        {"C": -1.0},
        {"C": np.nan},
        {"C": np.inf},
        {"C": "large"},
        {"tol": 0.0},
        {"tol": np.nan},
        {"fit_intercept": "yes"},
        {"intercept_scaling": 0.0},
        {"nonnegative": "yes"},
        {"prior": "flat"},
        {"warm_start": None},
        {"max_iter": 0},
        {"max_iter": 1.5},
        {"time_limit": 0.0},
        {"n_jobs": 0},
        {"n_jobs": 1.5},
        {"random_state": "seed"},
        {"solver": "newton"},
    ],
    ids=str,
)
def test_bad_parameters(either, parameters):
    model, y = either
    assert_refused(model.set_params(**parameters), FEATURES, y, match=next(iter(parameters)))


def test_bad_formulation(classifier):
    classifier.set_params(formulation="one-vs-one")
    assert_refused(classifier, FEATURES, LABELS, match="formulation.*crammer-singer")


@pytest.mark.parametrize("epsilon", [-1.0, np.nan, np.inf, "small"])
def test_bad_epsilon(regressor, epsilon):
    assert_refused(regressor.set_params(epsilon=epsilon), FEATURES, VALUES, match="epsilon")


def losses(row, column, value):
    matrix = 1.0 - np.eye(3)
    matrix[row, column] = value
    return matrix


@pytest.mark.parametrize(
    ("loss_matrix", "match"),
    [
        (losses(1, 1, 0.5), r"\[1, 1\] is 0.5.*diagonal"),
        (losses(1, 2, -1.0), r"\[1, 2\] is -1"),
        (losses(1, 2, np.nan), r"\[1, 2\] is nan"),
        (losses(1, 2, np.inf), r"\[1, 2\] is inf"),
        (losses(2, 2, np.nan), r"\[2, 2\] is nan"),
        (1.0 - np.eye(2), r"shape \(2, 2\)"),
        (1.0 - np.eye(4), r"shape \(4, 4\)"),
        (np.ones((3, 4)), r"shape \(3, 4\)"),
        (np.ones(3), r"shape \(3,\)"),
        ([[0.0, 1.0], [1.0]], "loss_matrix"),
        (1.0, "loss_matrix"),
        ({(0, 0): 1.0}, r"\[0, 0\] is 1.0.*diagonal"),
        ({(0, 1): -1.0}, r"\[0, 1\] is -1"),
        ({(0, 1): "dear"}, "loss_matrix"),
    ],
)
def test_bad_loss_matrix(classifier, loss_matrix, match):
    assert_refused(classifier.set_params(loss_matrix=loss_matrix), FEATURES, LABELS, match=match)


def test_a_loss_matrix_for_a_class_that_is_missing(classifier):
    classifier.set_params(loss_matrix=1.0 - np.eye(3))
    some = LABELS < 2
    assert_refused(classifier, FEATURES[some], LABELS[some], match=r"2 classes.*dictionary")


def test_a_loss_matrix_with_one_versus_rest(classifier):
    classifier.set_params(loss_matrix=1.0 - np.eye(3), formulation="one-vs-rest")
    assert_refused(classifier, FEATURES, LABELS, match="one-vs-rest")


@pytest.mark.parametrize(
    ("prior", "match"),
    [
        (([1.0, 2.0], None), r"mean.*\(2,\)"),
        ((np.ones((2, 4)), None), r"mean.*\(2, 4\)"),
        ((np.full(4, np.nan), None), "mean.*finite"),
        ((["a", "b", "c", "d"], None), "mean"),
        ((None, np.ones(3)), r"covariance.*\(3,\)"),
        ((None, np.eye(3)), r"covariance.*\(3, 3\)"),
        ((None, [1.0, 1.0, 0.0, 1.0]), "covariance.*positive"),
        ((None, [1.0, 1.0, np.inf, 1.0]), "covariance.*positive"),
        ((None, [1.0, 1.0, np.nan, 1.0]), "covariance.*positive"),
        ((None, np.diag([1.0, 1.0, -1.0, 1.0])), "covariance.*positive definite"),
        ((None, np.triu(np.ones((4, 4)))), "covariance.*symmetric"),
        ((None, np.full((4, 4), np.nan)), "covariance.*positive definite"),
        ((None, np.full((4, 4), np.inf)), "covariance.*positive definite"),
        ((1.0, 2.0, 3.0), "prior"),
    ],
)
def test_bad_prior(either, prior, match):
    model, y = either
    assert_refused(model.set_params(prior=prior), FEATURES, y, match=match)


def test_nonnegative_with_a_full_covariance(either):
    model, y = either
    model.set_params(nonnegative=True, prior=(None, np.eye(4) + 0.1))
    assert_refused(model, FEATURES, y, match="diagonal covariance")


def test_a_bad_prior_given_as_an_object(either):
    model, y = either
    model.set_params(prior=GaussianPrior(covariance=-np.eye(4)))
    with pytest.raises(ValueError, match="positive definite"):
        model.fit(FEATURES, y)


@pytest.mark.parametrize("Cs", [[], [1.0, 0.0], [-1.0], [np.nan], [np.inf], ["large"], [[1], [2]]])
def test_bad_values_for_a_path(either, Cs):
    model, y = either
    before = copy.deepcopy(vars(model))
    with pytest.raises(ValueError, match="Cs") as caught:
        model.path(FEATURES, y, Cs)
    assert_one_sentence(str(caught.value))
    assert_equal(vars(model), before)


# Prediction.


@pytest.mark.parametrize("model", [LinearClassifier(), LinearRegressor()], ids=str)
def test_prediction_before_a_fit(model):
    with pytest.raises(NotFittedError, match="not fitted") as caught:
        model.predict(FEATURES)
    assert_one_sentence(str(caught.value))


@pytest.mark.parametrize(
    ("X", "match"),
    [
        (FEATURES[:, :3], "3 features.*expecting 4"),
        (np.ones((2, 5)), "5 features.*expecting 4"),
        (sp.csr_array((2, 5)), "5 features.*expecting 4"),
        (FEATURES[:0], "0 sample"),
        (with_entry(FEATURES, 7, 2, np.nan), "NaN"),
        (sp.csr_array(with_entry(FEATURES, 7, 2, np.inf)), "inf"),
        (FEATURES[0], "Reshape your data"),
        (FEATURES.astype(str) + "x", "."),
    ],
    ids=["fewer", "more", "more, sparse", "none", "NaN", "inf", "one dimension", "text"],
)
def test_prediction_of_something_else(either, X, match):
    model, _ = either
    with pytest.raises(ValueError, match=match) as caught:
        model.predict(X)
    assert_one_sentence(str(caught.value))
