"""The estimators as parts of scikit-learn: its checks, tools, metadata routing and callbacks."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from numpy.testing import assert_allclose, assert_array_equal, assert_equal
from sklearn.base import clone
from sklearn.callback import FitCallback, ProgressBar
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, cross_validate
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from maxmargin import LinearClassifier, LinearRegressor

FORMULATIONS = ["crammer-singer", "weston-watkins", "one-vs-rest"]

IRIS, SPECIES = load_iris(return_X_y=True)
IRIS = StandardScaler().fit_transform(IRIS)


# Fits with sample weights and with repeated examples are compared to seven digits, so the duality
# gap has to be smaller still.
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [
        LinearClassifier(tol=1e-10),
        LinearClassifier(formulation="weston-watkins", tol=1e-10),
        LinearClassifier(formulation="one-vs-rest", tol=1e-10),
        LinearRegressor(tol=1e-10),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# Tools.


def test_pipeline():
    model = make_pipeline(StandardScaler(), LinearClassifier()).fit(IRIS, SPECIES)
    assert model.score(IRIS, SPECIES) > 0.95
    assert model.decision_function(IRIS).shape == (150, 3)


def test_grid_search_over_cost_and_formulation():
    grid = {"C": [1e-4, 1.0], "formulation": FORMULATIONS}
    infer = GridSearchCV(LinearClassifier(), grid, cv=3, error_score="raise")
    infer.fit(IRIS, SPECIES)
    assert len(infer.cv_results_["params"]) == 6
    assert infer.best_params_["C"] == 1.0
    assert infer.best_score_ > 0.9
    assert infer.best_estimator_.formulation == infer.best_params_["formulation"]


def test_grid_search_of_a_regressor():
    y = IRIS @ [1.0, -2.0, 0.5, 0.0]
    infer = GridSearchCV(LinearRegressor(), {"C": [1e-4, 1.0], "epsilon": [0.0, 0.1]}, cv=3)
    assert infer.fit(IRIS, y).best_params_ == {"C": 1.0, "epsilon": 0.0}


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_cross_validation(formulation):
    scores = cross_val_score(LinearClassifier(formulation=formulation), IRIS, SPECIES, cv=3)
    assert scores.min() > 0.8


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"formulation": "weston-watkins"},
        {"formulation": "one-vs-rest"},
        {"loss_matrix": {(0, 2): 3.0, (2, 0): 2.0}},
        {"class_weight": {0: 1.0, 1: 2.0, 2: 3.0}},
        {"class_weight": "balanced"},
        {"margins": {0: 1.0, 2: 2.0}},
    ],
    ids=str,
)
def test_a_class_may_be_missing_from_a_training_fold(options):
    X, y = IRIS[:120], SPECIES[:120]  # all examples of class 2 are in the last of six folds
    model = LinearClassifier(**options)
    fitted = cross_validate(model, X, y, cv=KFold(6), error_score="raise", return_estimator=True)
    assert [len(part.classes_) for part in fitted["estimator"]] == [3, 3, 3, 3, 3, 2]


def test_clone_has_the_parameters_and_no_fit():
    model = LinearClassifier(2.0, margins={0: 2.0}, loss_matrix={(0, 1): 3.0}, warm_start=True)
    twin = clone(model.fit(IRIS, SPECIES))
    assert_equal(twin.get_params(), model.get_params())
    assert vars(twin).keys() == model.get_params().keys()


@pytest.mark.parametrize("warm_start", [False, True])
def test_pickle_round_trip(warm_start):
    model = LinearClassifier(warm_start=warm_start).fit(IRIS, SPECIES)
    twin = pickle.loads(pickle.dumps(model))
    assert_equal(vars(twin), vars(model))
    assert_array_equal(twin.predict(IRIS), model.predict(IRIS))


@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_labels_may_be_strings(formulation, n_classes):
    X, y = IRIS[: 50 * n_classes], SPECIES[: 50 * n_classes]
    names = np.array(["ash", "birch", "cedar"])
    by_number = LinearClassifier(formulation=formulation).fit(X, y)
    by_name = LinearClassifier(formulation=formulation).fit(X, names[y])
    assert_array_equal(by_name.classes_, names[:n_classes])
    assert_array_equal(by_name.coef_, by_number.coef_)
    assert_array_equal(by_name.predict(X), names[by_number.predict(X)])


def test_strings_as_keys_of_class_options():
    names = np.array(["ash", "birch", "cedar"])[SPECIES]
    options = [
        ({"class_weight": {0: 3.0}}, {"class_weight": {"ash": 3.0}}),
        ({"margins": {0: 3.0}}, {"margins": {"ash": 3.0}}),
        ({"loss_matrix": {(0, 2): 3.0}}, {"loss_matrix": {("ash", "cedar"): 3.0}}),
    ]
    plain = LinearClassifier().fit(IRIS, SPECIES)
    for by_number, by_name in options:
        first = LinearClassifier(**by_number).fit(IRIS, SPECIES)
        second = LinearClassifier(**by_name).fit(IRIS, names)
        assert_array_equal(first.coef_, second.coef_)
        assert not np.array_equal(first.coef_, plain.coef_)


# The same data in other containers.


def sparse_data():
    random = np.random.default_rng(0)
    X = random.standard_normal((80, 12)) * (random.random((80, 12)) < 0.4)
    y = (X @ random.standard_normal((12, 3)) + random.standard_normal((80, 3))).argmax(axis=1)
    return X, y


def in_pieces(X):
    """CSR in which every entry is the sum of four."""
    X = sp.csr_array(X)
    indices, data = np.tile(X.indices.reshape(-1, 1), 4), np.tile(X.data.reshape(-1, 1) / 4, 4)
    pieces = sp.csr_array((data.ravel(), indices.ravel(), 4 * X.indptr), shape=X.shape)
    assert pieces.nnz == 4 * X.nnz
    return pieces


def with_wide_indices(X):
    X = sp.csr_array(X)
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


def scores(model, X):
    return getattr(model, "decision_function", model.predict)(X)


@pytest.mark.diagonal
@pytest.mark.parametrize(
    "container",
    [sp.csr_array, sp.csr_matrix, sp.csc_array, sp.coo_array, with_wide_indices, in_pieces, list],
)
@pytest.mark.parametrize(
    "model",
    [
        *(LinearClassifier(formulation=formulation, tol=1e-9) for formulation in FORMULATIONS),
        LinearRegressor(tol=1e-9),
    ],
    ids=str,
)
def test_containers_agree(model, container):
    X, y = sparse_data()
    dense = clone(model).fit(X, y)
    other = clone(model).fit(container(X), y)
    assert other.status_ == "converged"
    assert_allclose(other.certificate_.primal, dense.certificate_.primal, rtol=1e-8)
    assert_allclose(other.coef_, dense.coef_, atol=1e-3)
    assert_allclose(scores(other, container(X)), scores(dense, X), atol=1e-2)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_single_precision(make):
    X, y = sparse_data()
    double = LinearClassifier(tol=1e-8).fit(make(X), y)
    single = LinearClassifier(tol=1e-8).fit(make(X.astype(np.float32)), y)
    assert single.status_ == "converged"
    assert single.coef_.dtype == np.float64
    assert_allclose(single.certificate_.primal, double.certificate_.primal, rtol=1e-6)
    assert_allclose(single.coef_, double.coef_, atol=1e-3)


def test_fit_leaves_its_input_alone():
    X, y = sparse_data()
    pieces = in_pieces(X)
    data, indices = pieces.data.copy(), pieces.indices.copy()
    weights = np.arange(80.0)
    prior = (np.ones(12), np.arange(1.0, 13.0))
    LinearClassifier(prior=prior, nonnegative=True).fit(pieces, y, weights)
    assert_array_equal(pieces.data, data)
    assert_array_equal(pieces.indices, indices)
    assert_array_equal(weights, np.arange(80.0))
    assert_equal(prior, (np.ones(12), np.arange(1.0, 13.0)))


def test_data_frame():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(IRIS, columns=["a", "b", "c", "d"])
    labels = pandas.Series(SPECIES).map({0: "ash", 1: "birch", 2: "cedar"})
    model = LinearClassifier().fit(frame, labels)
    assert_array_equal(model.feature_names_in_, ["a", "b", "c", "d"])
    assert_array_equal(model.coef_, LinearClassifier().fit(IRIS, SPECIES).coef_)
    assert model.score(frame, labels) > 0.95
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["b", "a", "c", "d"]])
    assert not hasattr(model.fit(IRIS, SPECIES), "feature_names_in_")


# Metadata.


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.usefixtures("routing")
def test_weights_and_margins_are_routed_through_a_pipeline():
    weights, margins = np.arange(150.0) % 3, 1 + np.arange(150.0) % 2
    step = LinearClassifier().set_fit_request(sample_weight=True, margins=True)
    routed = Pipeline([("model", step)]).fit(IRIS, SPECIES, sample_weight=weights, margins=margins)
    direct = LinearClassifier().fit(IRIS, SPECIES, weights, margins)
    assert_array_equal(routed[-1].coef_, direct.coef_)
    assert not np.array_equal(direct.coef_, LinearClassifier().fit(IRIS, SPECIES).coef_)


@pytest.mark.usefixtures("routing")
def test_weights_and_margins_are_routed_through_cross_validation():
    weights, margins = np.arange(150.0) % 3, 1 + np.arange(150.0) % 2
    folds = KFold(3, shuffle=True, random_state=0)
    model = LinearClassifier().set_fit_request(sample_weight=True, margins=True)
    model.set_score_request(sample_weight=False)
    params = {"sample_weight": weights, "margins": margins}
    routed = cross_validate(
        model, IRIS, SPECIES, cv=folds, params=params, return_estimator=True, error_score="raise"
    )
    for (train, _), fitted in zip(folds.split(IRIS), routed["estimator"], strict=True):
        direct = LinearClassifier().fit(IRIS[train], SPECIES[train], weights[train], margins[train])
        assert_array_equal(fitted.coef_, direct.coef_)


@pytest.mark.usefixtures("routing")
def test_weights_of_a_regressor_are_routed_through_a_search():
    y, weights = IRIS[:, 0] + IRIS[:, 1] ** 2, np.arange(150.0) % 3
    model = LinearRegressor().set_fit_request(sample_weight=True)
    model.set_score_request(sample_weight=True)
    infer = GridSearchCV(model, {"C": [1.0]}, cv=3).fit(IRIS, y, sample_weight=weights)
    direct = LinearRegressor().fit(IRIS, y, weights)
    assert_array_equal(infer.best_estimator_.coef_, direct.coef_)


# Callbacks.


class Recorder:
    """Keeps the rounds it is shown; `answer` is called with their number and can stop the fit."""

    def __init__(self, answer: Any = lambda count: False) -> None:
        self.answer = answer
        self.iterations: list[Any] = []
        self.models: list[Any] = []
        self.events: list[str] = []

    def setup(self, estimator, context):
        self.events.append("setup")

    def teardown(self, estimator, context):
        self.events.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.events.append("begin")

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        self.events.append("end")
        if hasattr(context, "iteration"):
            self.iterations.append(context.iteration)
            self.models.append(fitted_estimator)
            return self.answer(len(self.iterations))
        return False


class PropagatedRecorder(Recorder):
    """One that meta-estimators hand on to the estimators they fit."""

    max_propagation_depth = None


MODELS = [
    *(LinearClassifier(formulation=formulation) for formulation in FORMULATIONS),
    LinearClassifier(formulation="one-vs-rest", n_jobs=2),
    LinearRegressor(),
]


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_callbacks_see_every_round(model):
    recorder = Recorder()
    assert isinstance(recorder, FitCallback)
    model = clone(model).set_callbacks(recorder).fit(IRIS, SPECIES)
    assert recorder.events[0] == "setup"
    assert recorder.events[-1] == "teardown"
    assert recorder.events.count("begin") == recorder.events.count("end")
    assert len(recorder.iterations) >= 2
    assert recorder.iterations == model.history_
    assert_array_equal(model.coef_, clone(model).set_callbacks().fit(IRIS, SPECIES).coef_)


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_callbacks_get_an_estimator_that_predicts(model):
    recorder = Recorder()
    model = clone(model).set_callbacks(recorder).fit(IRIS, SPECIES)
    for shown in recorder.models:
        assert np.isfinite(shown.predict(IRIS)).all()
    assert shown is not model
    assert shown.score(IRIS, SPECIES) > 0.9


def test_callbacks_get_an_estimator_that_predicts_when_the_features_have_changed():
    recorder = Recorder()
    model = LinearClassifier().fit(IRIS, SPECIES).set_callbacks(recorder)
    model.fit(IRIS[:, :2], SPECIES)
    assert recorder.models[-1].predict(IRIS[:, :2]).shape == (150,)


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_a_callback_can_stop_the_fit(model):
    by_class = model.get_params().get("formulation") == "one-vs-rest"
    # Of three classes in two threads, the last cannot be done when the first is.
    recorder = Recorder(lambda count: count == (1 if by_class else 2))
    model = clone(model).set_params(tol=1e-12).set_callbacks(recorder)
    with pytest.warns(ConvergenceWarning, match=r"stopped by a callback .* gap of .*tol=1e-12"):
        model.fit(IRIS, SPECIES)
    assert model.status_ == "stopped by a callback"
    if not by_class:
        assert len(recorder.iterations) == model.n_iter_ == 2
    assert 1e-12 < model.certificate_.relative_gap <= 1.0
    assert np.isfinite(model.predict(IRIS)).all()


@pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
def test_stopping_a_fit_that_has_converged_changes_nothing():
    recorder = Recorder(lambda count: count == 3)  # the last of the three classes
    model = LinearClassifier(formulation="one-vs-rest").set_callbacks(recorder)
    assert model.fit(IRIS, SPECIES).certificate_.relative_gap <= model.tol
    assert model.status_ == "converged"


def test_an_error_in_a_callback_leaves_the_estimator_as_it_was():
    model = LinearClassifier().fit(IRIS, SPECIES)
    model.set_params(C=5.0).set_callbacks(Recorder(lambda count: 1 / 0))
    before = copy.copy(vars(model))
    with pytest.raises(ZeroDivisionError):
        model.fit(IRIS[:, :3], SPECIES)
    assert_equal(vars(model), before)


def test_callbacks_of_a_step_or_of_a_searched_estimator():
    recorder = Recorder()
    make_pipeline(StandardScaler(), LinearClassifier().set_callbacks(recorder)).fit(IRIS, SPECIES)
    assert recorder.events.count("setup") == recorder.events.count("teardown") == 1
    assert recorder.iterations

    recorder = Recorder()
    model = LinearClassifier().set_callbacks(recorder)
    GridSearchCV(model, {"C": [0.1, 1.0]}, cv=2, error_score="raise").fit(IRIS, SPECIES)
    assert recorder.events.count("setup") == recorder.events.count("teardown") == 5


def test_callbacks_are_handed_on_by_meta_estimators():
    recorder = PropagatedRecorder()
    model = make_pipeline(StandardScaler(), LinearClassifier())
    grid = {"linearclassifier__C": [0.1, 1.0]}
    infer = GridSearchCV(model, grid, cv=2, error_score="raise").set_callbacks(recorder)
    infer.fit(IRIS, SPECIES)
    assert recorder.events.count("setup") == 1
    final = infer.best_estimator_[-1]
    assert recorder.iterations[-1] in final.history_
    assert not hasattr(final, "_skl_callbacks")


def test_callbacks_and_path():
    recorder = Recorder()
    models = LinearClassifier().set_callbacks(recorder).path(IRIS, SPECIES, [0.1, 1.0])
    assert [model.status_ for model in models] == ["converged", "converged"]


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_progress_bar_of_scikit_learn(model, capsys):
    pytest.importorskip("rich")
    clone(model).set_callbacks(ProgressBar()).fit(IRIS, SPECIES)
    assert type(model).__name__ in capsys.readouterr().out


def test_progress_bar_of_a_search(capsys):
    pytest.importorskip("rich")
    bar = ProgressBar(max_propagation_depth=None)
    GridSearchCV(LinearClassifier(), {"C": [0.1, 1.0]}, cv=2).set_callbacks(bar).fit(IRIS, SPECIES)
    output = capsys.readouterr().out
    assert "GridSearchCV" in output
    assert "LinearClassifier" in output
