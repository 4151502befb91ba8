"""Learning from examples as they come: partial_fit, and fit with a source."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from structured_referee import Classes, random_chains, random_classes

import maxmargin as mm
from maxmargin.core.certificate import certify
from maxmargin.data.sources import Examples, Source
from maxmargin.solvers.online import Online


class Listed(Source):
    def __init__(self, X, Y, size=4):
        self.X, self.Y, self.size = X, Y, size

    def batches(self):
        for start in range(0, len(self.Y), self.size):
            part = slice(start, start + self.size)
            yield Examples(self.X[part], self.Y[part])


def model_of(case, **options):
    return mm.StructuredSVM(case.problem, C=0.5, **options)


def whole(case):
    """The case with the same cost for all."""
    return case.with_cost(np.full(len(case.X), 0.5))


@pytest.mark.parametrize("make", [random_classes, random_chains])
def test_calls_add_up(make):
    case = whole(make(3))
    model = model_of(case)
    duals = []
    for start in range(0, len(case.X), 3):
        model.partial_fit(case.X[start : start + 3], case.Y[start : start + 3])
        assert len(model.predict(case.X)) == len(case.X)
        duals.append(model.certificate_.dual)
    assert duals == sorted(duals)
    assert len(model.history_) == len(duals)
    assert model.certificate_.dual <= case.optimum.value
    assert model.certificate_.dual > 0.5 * case.optimum.value
    # What the certificate's primal value leaves out are hinges of examples, which only add.
    assert model.certificate_.primal <= case.objective(model.weights_) + 1e-9
    assert case.objective(model.weights_) >= case.optimum.value


def test_the_dual_value_is_that_of_the_planes_in_the_cache():
    case = whole(random_classes(1))
    model = model_of(case).partial_fit(case.X[:5], case.Y[:5]).partial_fit(case.X[5:], case.Y[5:])
    point = model._online.run.point()
    assert certify(case.oracle(), model.weights_, point).dual == pytest.approx(
        model.certificate_.dual, rel=1e-9
    )


def test_a_small_cache_is_never_exceeded():
    case = whole(random_classes(5, n=60, d=8))
    model = model_of(case, solver=Online(cache_bytes=8_000))
    for start in range(0, 60, 10):
        model.partial_fit(case.X[start : start + 10], case.Y[start : start + 10])
        assert model._online.run.cache.n_bytes <= 8_000
    assert model._online.run.cache.n_frozen > 0
    assert not len(model._online.run.cache.frozen.spent)
    assert 0.3 * case.optimum.value < model.certificate_.dual <= case.optimum.value


def test_sample_weights_multiply_the_cost():
    case = whole(random_classes(1))
    weights = np.linspace(0.0, 2.0, len(case.X))
    model = model_of(case, tol=1e-5).partial_fit(case.X, case.Y, sample_weight=weights)
    point = model._online.run.point()
    used = np.bincount(point.examples, point.coef, len(case.X))
    assert (used <= 0.5 * weights + 1e-12).all()
    assert used[0] == 0.0


def test_a_model_between_calls_can_be_pickled():
    case = whole(random_classes(1))
    model = model_of(case).partial_fit(case.X[:6], case.Y[:6])
    copy = pickle.loads(pickle.dumps(model))
    for each in (model, copy):
        each.partial_fit(case.X[6:], case.Y[6:])
    np.testing.assert_array_equal(model.weights_, copy.weights_)
    assert clone(model)._online is None


def test_ctrl_c_keeps_what_was_learned_and_the_next_call_goes_on():
    class Impatient(Classes):
        left = 9

        def loss_augmented_inference(self, x, y_true, w):
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt
            return super().loss_augmented_inference(x, y_true, w)

    case = whole(random_classes(1))
    problem = Impatient(case.problem.matrix)
    model = mm.StructuredSVM(problem, C=0.5).partial_fit(case.X, case.Y)
    assert model.status_ == "interrupted"
    before = model.certificate_.dual
    assert before > 0.0
    model.partial_fit(case.X, case.Y)
    assert model.certificate_.dual > before


@pytest.mark.parametrize("make", [random_classes, random_chains])
def test_fit_from_a_source_is_the_fit_of_the_same_data(make):
    case = whole(make(2))
    model = model_of(case, tol=1e-4).fit(Listed(case.X, case.Y))
    assert model.status_ == "converged"
    assert model.certificate_.relative_gap <= 1e-4
    assert model.certificate_.primal == pytest.approx(case.optimum.value, rel=2e-4)
    assert len(model.predict(case.X)) == len(case.X)


def test_one_pass_is_enough_if_it_is_asked_for():
    case = whole(random_classes(2))
    model = model_of(case, tol=1e-9, solver=Online(passes=1)).fit(Listed(case.X, case.Y))
    assert model.status_ == "passes"
    assert model.certificate_.dual <= case.optimum.value <= model.certificate_.primal


def test_a_source_comes_alone():
    case = whole(random_classes(2))
    source = Listed(case.X, case.Y)
    for name, others in {"y": {"y": case.Y}, "sample_weight": {"sample_weight": [1.0]}}.items():
        with pytest.raises(ValueError, match=f"leave {name} out"):
            model_of(case).fit(source, **others)
    with pytest.raises(ValueError, match="holds no examples"):
        model_of(case).fit(Listed([], []))


@pytest.mark.parametrize(
    ("X", "Y", "message"),
    [
        ([np.ones(3)], [0, 1], "1 inputs but y has 2 outputs"),
        ([], [], "X is empty"),
        ([np.ones(4)], [0], r"have 16 joint features, .* before had 12"),
    ],
)
def test_bad_input(X, Y, message):
    problem = Classes(1.0 - np.eye(4))
    model = mm.StructuredSVM(problem).partial_fit([np.ones(3), np.zeros(3)], [0, 1])
    with pytest.raises(ValueError, match=message):
        model.partial_fit(X, Y)
