"""LatentStructuredSVM and LatentClassifier: never a higher objective, and what they say."""

import runpy
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from latent_problems import Instances, WrongInstances, objective, random_bags
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import maxmargin as mm
from maxmargin.estimators.latent import LatentStructuredSVM
from maxmargin.structures.chain.problem import HiddenChains
from maxmargin.structures.latent.estimator import LatentClassifier

ROOT = Path(__file__).parents[2]

X, Y = random_bags(0, n=40, d=4, k=3, most=5)
NAMES = np.array(["one", "two", "zero"])
LABELS = NAMES[Y]
COLUMNS = np.cumsum([0, *map(len, X)])


@pytest.fixture(scope="module")
def model():
    return LatentClassifier(C=1.0, restarts=2).fit(X, LABELS)


def value(model, X, numbers, C=1.0):
    """The objective of a classifier's weights, by trying every class and instance."""
    ones = [np.column_stack([x, np.ones(len(x))]) for x in X]
    weights = np.column_stack([model.coef_, model.intercept_])
    background = list(model.classes_).index(model.background) if model.background else -1
    problem = Instances(1.0 - np.eye(len(weights)), background)
    return objective(problem, ones, numbers, np.full(len(X), C), weights.ravel())


def check_descent(model, tol):
    assert (np.diff(model.objectives_) <= 0).all()
    assert len(model.objectives_) == len(model.certificates_)
    assert model.certificate_.primal == model.objectives_[-1] == model.restart_objectives_.min()
    assert 0.0 <= model.certificate_.relative_gap <= tol
    assert all(certificate.relative_gap >= -1e-9 for certificate in model.certificates_)
    assert model.status_ == "converged"


# Descent


@given(st.integers(0, 10_000), st.sampled_from([0.01, 0.3, 3.0]), st.booleans())
@settings(max_examples=15, deadline=None)
def test_the_objective_of_bags_never_rises(seed, C, has_background):
    X, Y = random_bags(seed)
    model = LatentClassifier(C=C, background=1 if has_background else None).fit(X, Y)
    check_descent(model, 1e-3)
    assert_allclose(model.certificate_.primal, value(model, X, Y, C))
    if has_background:
        assert not model.coef_[1].any()
        assert model.intercept_[1] == 0.0


@given(st.integers(0, 10_000), st.sampled_from([0.03, 1.0]))
@settings(max_examples=5, deadline=None)
def test_the_objective_of_plain_problems_never_rises(seed, C):
    X, Y = random_bags(seed)
    problem = Instances(1.0 - np.eye(3))
    model = LatentStructuredSVM(problem, C=C, restarts=2).fit(X, Y)
    check_descent(model, 1e-3)
    found = objective(problem, X, Y, np.full(len(Y), C), model.weights_)
    assert_allclose(model.certificate_.primal, found)
    best = [problem.latent(x, y, model.weights_) for x, y in zip(X, Y, strict=True)]
    scores = [
        [problem.joint_feature(x, y, h) @ model.weights_ for h in pair]
        for x, y, *pair in zip(X, Y, best, model.imputations_, strict=True)
    ]
    assert_allclose(*np.transpose(scores))


SOLVERS = [
    "auto", "dual-coordinate", "frank-wolfe", "n-slack", "one-slack", "partial-linearization",
    "exponentiated-gradient",
]  # fmt: skip


@pytest.mark.parametrize("solver", SOLVERS)
def test_any_solver_can_make_the_steps(solver):
    some, tol = slice(15), 0.02
    model = LatentClassifier(C=0.3, solver=solver, tol=tol).fit(X[some], Y[some])
    check_descent(model, tol)
    assert_allclose(model.certificate_.primal, value(model, X[some], Y[some], 0.3))
    for kind in (Instances, WrongInstances):
        plain = LatentStructuredSVM(kind(1.0 - np.eye(3)), C=0.3, solver=solver, tol=tol)
        plain.fit(X[some], Y[some])
        check_descent(plain, tol)
        found = objective(plain.problem, X[some], Y[some], np.full(15, 0.3), plain.weights_)
        assert_allclose(plain.certificate_.primal, found)


def test_with_single_instances_it_is_the_linear_classifier():
    random = np.random.default_rng(0)
    rows = random.normal(size=(60, 4))
    numbers = (rows @ random.normal(size=(4, 3)) + random.normal(size=(60, 3))).argmax(axis=1)
    model = LatentClassifier(C=0.5, tol=1e-6).fit(rows[:, None, :], numbers)
    linear = mm.LinearClassifier(C=0.5, tol=1e-6).fit(rows, numbers)
    assert model.certificate_.primal == pytest.approx(linear.certificate_.primal, rel=3e-6)
    assert_allclose(model.coef_, linear.coef_, atol=5e-3)
    assert_allclose(model.intercept_, linear.intercept_, atol=5e-3)
    assert len(model.objectives_) <= 2
    # Two classes, one of them the background, are the binary hinge.
    two = numbers > 0
    model = LatentClassifier(C=0.5, tol=1e-6, background=False).fit(rows[:, None, :], two)
    linear = mm.LinearClassifier(C=0.5, tol=1e-6).fit(rows, two)
    assert model.certificate_.primal == pytest.approx(linear.certificate_.primal, rel=3e-6)
    assert_allclose(model.coef_[1], linear.coef_[0], atol=5e-3)
    assert_allclose(
        model.decision_function(rows[:, None]), linear.decision_function(rows), atol=0.02
    )


def test_a_loss_matrix_and_weights_count():
    matrix = {("one", "two"): 5.0}
    dear = LatentClassifier(C=0.1, loss_matrix=matrix).fit(X, LABELS)
    cheap = LatentClassifier(C=0.1).fit(X, LABELS)
    mistakes = [((m.predict(X) == "two") & (LABELS == "one")).sum() for m in (dear, cheap)]
    assert mistakes[0] < mistakes[1]
    weights = (LABELS != "two") * 2.0
    some = LatentClassifier(C=0.1).fit(X, LABELS, weights)
    kept = np.flatnonzero(weights)
    weighted = value(some, [X[i] for i in kept], Y[kept], 0.2)
    assert some.certificate_.primal == pytest.approx(weighted)


# Starts


def test_more_restarts_are_never_worse():
    few = LatentClassifier(C=1.0).fit(X, LABELS)
    many = LatentClassifier(C=1.0, restarts=6).fit(X, LABELS)
    assert many.restart_objectives_[0] == few.certificate_.primal
    assert len(set(many.restart_objectives_)) > 1
    assert many.certificate_.primal == many.restart_objectives_.min() <= few.certificate_.primal


def test_a_start_can_be_given(model):
    again = LatentClassifier(C=1.0).fit(X, LABELS, initial=model.imputations_)
    assert again.certificate_.primal <= model.certificate_.primal * (1 + 1e-3)
    mixed = np.where(np.arange(len(X)) % 2, model.imputations_, -1)
    check_descent(LatentClassifier(C=1.0).fit(X, LABELS, initial=mixed), 1e-3)
    plain = LatentStructuredSVM(Instances(1.0 - np.eye(3)))
    first = model.imputations_[:15].tolist()
    check_descent(plain.fit(X[:15], Y[:15], initial=first), 1e-3)


def test_same_seed_same_answer_whatever_the_threads(model):
    for options in ({}, {"n_jobs": 2}):
        again = LatentClassifier(C=1.0, restarts=2, **options).fit(X, LABELS)
        assert_array_equal(again.coef_, model.coef_)
        assert_array_equal(again.objectives_, model.objectives_)
    other = LatentClassifier(C=1.0, restarts=2, random_state=1).fit(X, LABELS)
    assert other.restart_objectives_[1] != model.restart_objectives_[1]


def test_warm_starts_go_on(model):
    warm = LatentClassifier(C=1.0, warm_start=True).fit(X, LABELS)
    first = warm.certificate_.primal
    warm.fit(X, LABELS)
    assert warm.certificate_.primal <= first
    assert len(warm.objectives_) <= 2
    warm.set_params(C=2.0).fit(X, LABELS)
    check_descent(warm, 1e-3)
    warm.fit(X[:30], LABELS[:30])
    check_descent(warm, 1e-3)
    warm.fit(X, np.where(LABELS == "one", "new", LABELS))  # other classes: from the beginning
    check_descent(warm, 1e-3)
    warm.fit([x[:, :2] for x in X], LABELS)  # other features, too
    check_descent(warm, 1e-3)


# Stopping


def test_too_few_completions_are_told():
    with pytest.warns(ConvergenceWarning, match="stopped after max_imputations=1 convex steps"):
        model = LatentClassifier(max_imputations=1).fit(X, LABELS)
    assert model.status_ == "max_iter"
    assert len(model.objectives_) == 1
    assert_allclose(model.certificate_.primal, value(model, X, Y))
    assert model.certificate_.dual <= model.certificate_.primal


def test_rounds_and_time_are_bounded():
    with pytest.warns(ConvergenceWarning, match="stopped by max_iter=1 iterations"):
        model = LatentClassifier(max_iter=1, tol=1e-9, restarts=2).fit(X, LABELS)
    assert len(model.restart_objectives_) == 2
    with pytest.warns(ConvergenceWarning, match="the time limit of 1e-06 s"):
        model = LatentClassifier(time_limit=1e-6, restarts=5).fit(X, LABELS)
    assert len(model.restart_objectives_) == 1
    assert model.status_ == "time_limit"
    assert_allclose(model.certificate_.primal, value(model, X, Y))


FEW, FEW_Y = X[:15], Y[:15]


class Failing(Instances):
    """Calls a function before each call of one of its methods."""

    def __init__(self, method, before):
        super().__init__(1.0 - np.eye(3))
        self.method, self.before = method, before

    def latent(self, x, y_true, w):
        if self.method == "latent":
            self.before()
        return super().latent(x, y_true, w)

    def loss_augmented_inference(self, x, y_true, w):
        if self.method == "loss_augmented_inference":
            self.before()
        return super().loss_augmented_inference(x, y_true, w)


def failing(method, at, error=KeyboardInterrupt):
    """A problem whose method fails once, at its call number `at`."""
    calls = iter(range(10**9))

    def before():
        if next(calls) == at:
            raise error

    return Failing(method, before)


@pytest.mark.parametrize(
    ("method", "at"),
    [
        ("latent", 0),
        ("latent", 20),
        ("latent", 70),
        ("loss_augmented_inference", 40),
        ("loss_augmented_inference", 700),
    ],
)
def test_an_interrupt_keeps_the_best_so_far(method, at):
    problem = failing(method, at)
    with pytest.warns(ConvergenceWarning, match="stopped by an interrupt"):
        model = LatentStructuredSVM(problem, restarts=3).fit(FEW, FEW_Y)
    assert model.status_ == "interrupted"
    found = objective(problem, FEW, FEW_Y, np.ones(len(FEW)), model.weights_)
    assert found <= model.certificate_.primal * (1 + 1e-9)
    assert (np.diff(model.objectives_) <= 0).all()
    assert len(model.objectives_) == len(model.certificates_) > 0


def test_a_failing_problem_keeps_what_was_learned():
    model = LatentStructuredSVM(failing("latent", 20, ValueError("broken")))
    with pytest.raises(mm.ProblemError, match="latent of Failing raised ValueError"):
        model.fit(FEW, FEW_Y)
    assert model.weights_.any()
    assert model.status_ == "failed"
    assert len(model.objectives_) >= 1


@pytest.mark.parametrize(
    ("method", "at"), [("latent", 20), ("latent", 70), ("loss_augmented_inference", 700)]
)
def test_a_resumed_fit_ends_at_the_same_bits(method, at, tmp_path):
    whole = LatentStructuredSVM(failing(method, -1), restarts=3).fit(FEW, FEW_Y)
    options = {"restarts": 3, "checkpoint": mm.Checkpoint(tmp_path / "run", 0.0, resume=True)}
    with pytest.warns(ConvergenceWarning, match="interrupt"):
        LatentStructuredSVM(failing(method, at), **options).fit(FEW, FEW_Y)
    for _ in range(2):  # the second time there is nothing left to do
        resumed = LatentStructuredSVM(failing(method, -1), **options).fit(FEW, FEW_Y)
        assert_array_equal(resumed.weights_, whole.weights_)
        assert_array_equal(resumed.objectives_, whole.objectives_)
        assert_array_equal(resumed.restart_objectives_, whole.restart_objectives_)
        assert resumed.imputations_ == whole.imputations_
        assert resumed.status_ == "converged"
    with pytest.raises(ValueError, match="checkpoint of other parameters"):
        LatentStructuredSVM(failing(method, -1), **options | {"restarts": 2}).fit(FEW, FEW_Y)


def test_checkpoints_of_bags(tmp_path):
    options = {"restarts": 2, "checkpoint": mm.Checkpoint(tmp_path / "run", 0.0, resume=True)}
    whole = LatentClassifier(restarts=2).fit(X, LABELS)
    with pytest.warns(ConvergenceWarning):
        LatentClassifier(time_limit=0.05, **options, tol=1e-5).fit(X, LABELS)
    with pytest.raises(ValueError, match="checkpoint of other parameters"):
        LatentClassifier(**options).fit(X, LABELS)
    with pytest.raises(ValueError, match="checkpoint of other data"):
        LatentClassifier(**options, tol=1e-5).fit(X, LABELS[::-1])
    (tmp_path / "run").unlink()
    resumed = LatentClassifier(**options).fit(X, LABELS)
    assert_array_equal(resumed.coef_, whole.coef_)


# Answers


def test_predictions_follow_from_the_weights(model):
    scores = np.array([(x @ model.coef_.T + model.intercept_).max(axis=0) for x in X])
    assert_allclose(model.decision_function(X), scores)
    assert_array_equal(model.predict(X), NAMES[scores.argmax(axis=1)])
    assert model.score(X, LABELS) == np.mean(NAMES[scores.argmax(axis=1)] == LABELS) > 0.7
    chosen = [(x @ model.coef_[k]).argmax() for x, k in zip(X, scores.argmax(axis=1), strict=True)]
    assert model.predict_instances(X).tolist() == chosen
    true = [(x @ model.coef_[k]).argmax() for x, k in zip(X, Y, strict=True)]
    assert model.predict_instances(X, LABELS).tolist() == true == model.imputations_.tolist()


def test_the_background_shows_nothing():
    model = LatentClassifier(C=1.0, background="two").fit(X, LABELS)
    scores = model.decision_function(X)
    assert not scores[:, 1].any()
    nothing = model.predict(X) == "two"
    assert nothing.any()
    assert ((model.predict_instances(X) == -1) == nothing).all()
    two = LatentClassifier(background="other").fit(X, np.where(Y == 0, "object", "other"))
    assert_array_equal(two.predict(X) == "other", two.decision_function(X) > 0)


def test_forms_of_input_are_the_same_data(model):
    rows = np.concatenate(X)
    forms = [
        ([x.tolist() for x in X], {}),
        ([sp.csr_array(x) for x in X], {}),
        (rows, {"lengths": np.diff(COLUMNS)}),
        (sp.csr_array(rows), {"lengths": np.diff(COLUMNS)}),
    ]
    for form, options in forms:
        assert_array_equal(model.predict(form, **options), model.predict(X))
        assert model.score(form, LABELS, **options) == model.score(X, LABELS)
        assert_array_equal(model.predict_instances(form, **options), model.predict_instances(X))
        again = LatentClassifier(C=1.0, restarts=2).fit(form, LABELS, **options)
        check_descent(again, 1e-3)
        assert_allclose(again.certificate_.primal, value(again, X, Y))
        if not sp.issparse(form[0]) and not sp.issparse(form):
            assert_array_equal(again.coef_, model.coef_)
    narrow = LatentClassifier(C=1.0).fit([x.astype(np.float32) for x in X], LABELS)
    assert_allclose(narrow.certificate_.primal, value(narrow, X, Y), rtol=1e-5)


def test_predictions_that_fail_tell_for_which_example():
    model = LatentStructuredSVM(Instances(1.0 - np.eye(3))).fit(FEW, FEW_Y)
    with pytest.raises(mm.ProblemError, match=r"inference of Instances raised .* for example 1: "):
        model.predict([FEW[0], "no bag"])


def test_answers_of_the_structured_one():
    problem = Instances(1.0 - np.eye(3))
    X, Y = FEW, FEW_Y
    model = LatentStructuredSVM(problem).fit(X, Y)
    pairs = model.predict_latent(X)
    assert pairs == [problem.inference(x, model.weights_) for x in X]
    assert model.predict(X) == [y for y, _ in pairs]
    assert model.score(X, Y) == -np.mean([y != z for (y, _), z in zip(pairs, Y, strict=True)])
    best = [
        problem.joint_feature(x, *pair) @ model.weights_ for x, pair in zip(X, pairs, strict=True)
    ]
    assert_allclose(model.decision_function(X), best)


def test_hidden_states_tell_what_no_weights_can():
    plain, model = runpy.run_path(str(ROOT / "examples" / "latent_tagging.py"))["main"]()
    check_descent(model, 1e-3)
    assert isinstance(model.problem, HiddenChains)
    assert isinstance(plain, mm.SequenceTagger)


def test_they_are_estimators():
    model = LatentClassifier(C=3.0, background="x", restarts=4)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert copy is not model
    problem = Instances(1.0 - np.eye(3))
    structured = clone(LatentStructuredSVM(problem, C=2.0, max_imputations=7))
    assert structured.C == 2.0
    assert structured.max_imputations == 7
    with pytest.raises(NotFittedError):
        LatentClassifier().predict(X)
    with pytest.raises(NotFittedError):
        structured.predict(X)


# Bad input


def with_bag(i, bag):
    return [*X[:i], bag, *X[i + 1 :]]


NAN = X[2].copy()
NAN[0, 3] = np.nan


@pytest.mark.parametrize(
    ("bags", "labels", "options", "sentence"),
    [
        ([], [], {}, "X is empty: give at least one bag."),
        (with_bag(3, np.zeros((0, 4))), LABELS, {}, "Bag 3 is empty: give it an instance, or"),
        (with_bag(3, sp.csr_array((0, 4))), LABELS, {}, "Bag 3 is empty"),
        (with_bag(3, []), LABELS, {}, "Bag 3 is empty"),
        (with_bag(5, np.zeros((2, 3))), LABELS, {}, "Bag 5 has 3 features, but bag 0 has 4"),
        (with_bag(1, np.zeros(4)), LABELS, {}, "Bag 1 must be a matrix with one row an instance"),
        (with_bag(1, [["a", "b"]]), LABELS, {}, "Bag 1 must be a matrix of numbers"),
        (with_bag(2, NAN), LABELS, {}, "Bag 2 has NaN or infinity in instance 0, column 3: remove"),
        ([sp.csr_array(x) for x in with_bag(2, NAN)], LABELS, {},
         "Bag 2 has NaN or infinity in instance 0, column 3"),
        (np.concatenate(X), LABELS, {}, "X is one matrix: give lengths"),
        (np.concatenate(X), LABELS, {"lengths": [3, 4]}, "lengths add up to 7, but X has"),
        (np.concatenate(X), LABELS, {"lengths": [0, 4]}, "Bag 0 is empty"),
        (X, LABELS[:-1], {}, "X has 40 bags but y has 39 entries: give one class for each."),
        (X, None, {}, "requires y to be passed"),
        (X, ["one"] * 40, {}, "at least two classes, but y holds only one class, 'one'"),
        (X, np.ones(40), {}, r"y holds only one class, 1\.0"),
        (X, np.linspace(0, 1, 40), {}, "Unknown label type"),
        (X, LABELS, {"initial": [0] * 3}, "initial must hold one whole number for each of the 40"),
        (X, LABELS, {"initial": [9] * 40}, r"initial\[0\] is 9, but bag 0 has the instances 0 to"),
        (X, LABELS, {"sample_weight": [1.0]}, "sample_weight must hold one number for each"),
    ],
)  # fmt: skip
def test_bad_bags_get_a_sentence(bags, labels, options, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        LatentClassifier().fit(bags, labels, **options)
    assert "\n" not in str(caught.value)


def test_bad_parameters_get_a_sentence(model):
    with pytest.raises(ValueError, match="background is 'none', which is no class in y: name one"):
        LatentClassifier(background="none").fit(X, LABELS)
    with pytest.raises(ValueError, match="restarts"):
        LatentClassifier(restarts=0).fit(X, LABELS)
    with pytest.raises(ValueError, match="max_imputations"):
        LatentClassifier(max_imputations=0).fit(X, LABELS)
    with pytest.raises(ValueError, match="loss_matrix has shape"):
        LatentClassifier(loss_matrix=np.eye(2)).fit(X, LABELS)
    with pytest.raises(ValueError, match="X has 3 features, but LatentClassifier was trained with"):
        model.predict([x[:, :3] for x in X])
    with pytest.raises(ValueError, match="which is not one of the classes"):
        model.predict_instances(X, ["none"] * len(X))
    with pytest.raises(ValueError, match="problem"):
        LatentStructuredSVM(object()).fit(X, Y)
    with pytest.raises(ValueError, match=r"problem is the class Instances .* Instances\(\)\."):
        LatentStructuredSVM(Instances).fit(X, Y)
    with pytest.raises(ValueError, match="X has 40 inputs but y has 3 entries"):
        LatentStructuredSVM(Instances(1.0 - np.eye(3))).fit(X, Y[:3])
    with pytest.raises(ValueError, match="X has 40 inputs but initial has 1 entries"):
        LatentStructuredSVM(Instances(1.0 - np.eye(3))).fit(X, Y, initial=[0])
    with pytest.raises(ValueError, match="X is empty"):
        LatentStructuredSVM(Instances(1.0 - np.eye(3))).fit([], [])
