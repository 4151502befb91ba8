"""KernelStructuredSVM and LowRankKernel beside linear models, scikit-learn and explicit sums."""

import os
import warnings
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import maxmargin as mm
from maxmargin.core.kernel import (
    FunctionKernel,
    JointKernel,
    KernelError,
    KernelProblem,
    LinearKernel,
    ProductKernel,
    RBFKernel,
)
from maxmargin.core.kernel_oracle import Multiclass
from maxmargin.estimators.kernel import KernelStructuredSVM, LowRankKernel, LowRankProblem, pivots
from maxmargin.solvers.kernel_classes_dual import KernelClassesDual
from maxmargin.solvers.mini_batch_dual import MiniBatchDual

HALF_A_POINT = 0.005


class Levels(KernelProblem):
    """Neighbours cost less."""

    def outputs(self, x):
        return [0, 1, 2]

    def loss(self, y_true, y):
        return abs(y_true - y)


LEVELS_KERNEL = ProductKernel(RBFKernel(0.5), RBFKernel(0.3))


def levels_data(seed=0, n=30):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, 2))
    return X, np.digitize(X[:, 0] + X[:, 1] ** 2, [0.3, 1.2]).tolist()


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return train_test_split(X / 16, y, test_size=0.4, random_state=0)


# Classes


def test_linear_kernel_is_the_linear_classifier(iris):
    X, y = iris
    linear = mm.LinearClassifier(C=0.5, fit_intercept=False, tol=1e-6).fit(X, y)
    kernel = KernelStructuredSVM(Multiclass(), C=0.5, kernel="linear", tol=1e-6).fit(X, y)
    assert kernel.certificate_.primal == pytest.approx(linear.certificate_.primal, rel=3e-6)
    assert_allclose(kernel.decision_function(X), linear.decision_function(X), atol=2e-2)


def test_two_classes_are_the_binary_svm_with_the_same_cost(iris):
    X, y = iris
    X, y = X[50:], np.where(y[50:] == 1, "versicolor", "virginica")
    linear = mm.LinearClassifier(C=0.5, fit_intercept=False, tol=1e-5).fit(X, y)
    kernel = KernelStructuredSVM(Multiclass(), C=0.5, kernel="linear", tol=1e-5).fit(X, y)
    assert kernel.certificate_.primal == pytest.approx(linear.certificate_.primal, rel=3e-5)
    scores = kernel.decision_function(X)
    assert_allclose(scores[:, 1] - scores[:, 0], linear.decision_function(X), atol=3e-2)
    assert set(kernel.predict(X)) == {"versicolor", "virginica"}


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix, sp.csr_array])
def test_scores_are_explicit_kernel_sums(iris, form):
    X, y = iris
    model = KernelStructuredSVM(Multiclass(), C=3.0, kernel="rbf", gamma=0.4).fit(form(X), y)
    rows = model.model_.parts.toarray() if sp.issparse(model.model_.parts) else model.model_.parts
    factors = model.model_.factors.toarray()
    expected = [
        [sum(f[m] * np.exp(-0.4 * np.sum((x - r) ** 2)) for r, f in zip(rows, factors, strict=True))
         for m in range(3)]
        for x in X[::15]
    ]  # fmt: skip
    assert_allclose(model.decision_function(form(X[::15])), expected, atol=1e-9)
    assert_array_equal(model.predict(form(X[::15])), model.classes_[np.argmax(expected, axis=1)])
    assert model.support_size_ == len(rows) < len(X)
    assert (np.abs(factors).sum(axis=1) > 0).all()


def test_accuracy_on_digits_is_that_of_svc(digits):
    X, X_test, y, y_test = digits
    ours = KernelStructuredSVM(Multiclass(), C=10.0, kernel="rbf", gamma=0.05).fit(X, y)
    svc = SVC(C=10.0, gamma=0.05).fit(X, y)
    assert ours.accuracy(X_test, y_test) >= svc.score(X_test, y_test) - HALF_A_POINT
    assert ours.certificate_.relative_gap <= 1e-3


@pytest.mark.slow
@pytest.mark.skipif("MAXMARGIN_DATA" not in os.environ, reason="needs the data sets")
def test_accuracy_on_letter_is_that_of_svc():
    from benchmarks.datasets import load

    data = load("letter")
    X, X_test = data.X_train.toarray(), data.X_test.toarray()
    ours = KernelStructuredSVM(Multiclass(), C=10.0, kernel="rbf", gamma=0.5, tol=1e-2)
    svc = SVC(C=10.0, gamma=0.5).fit(X, data.y_train)
    ours.fit(X, data.y_train)
    accuracy = ours.accuracy(X_test, data.y_test)
    assert accuracy >= svc.score(X_test, data.y_test) - HALF_A_POINT


def test_both_solvers_find_the_same_classes(iris):
    X, y = iris
    options = {"C": 2.0, "kernel": "polynomial", "gamma": 0.1, "degree": 2, "tol": 1e-4}
    exact = KernelStructuredSVM(Multiclass(), **options).fit(X, y)
    general = KernelStructuredSVM(Multiclass(), solver=MiniBatchDual(), **options).fit(X, y)
    assert general.certificate_.primal == pytest.approx(exact.certificate_.primal, rel=3e-4)
    assert_allclose(general.decision_function(X), exact.decision_function(X), atol=0.1)
    assert isinstance(general.predict(X), np.ndarray)


def test_threads_change_no_prediction(iris):
    X, y = iris
    one = KernelStructuredSVM(Multiclass(), gamma=0.5).fit(X, y)
    two = KernelStructuredSVM(Multiclass(), gamma=0.5, n_jobs=2).fit(X, y)
    assert_allclose(one.decision_function(X), two.decision_function(X), atol=1e-12)


def test_loss_matrix_and_weights_count(iris):
    X, y = iris
    matrix = np.array([[0, 1, 1], [1, 0, 5.0], [1, 1, 0]])
    plain = KernelStructuredSVM(Multiclass(), C=0.1, gamma=0.5).fit(X, y)
    dear = KernelStructuredSVM(Multiclass(loss_matrix=matrix), C=0.1, gamma=0.5).fit(X, y)
    assert np.sum(dear.predict(X) == 1) > np.sum(plain.predict(X) == 1)
    twice = KernelStructuredSVM(Multiclass(), C=0.05, gamma=0.5)
    twice.fit(X, y, sample_weight=np.full(len(y), 2.0))
    assert_allclose(twice.decision_function(X), plain.decision_function(X), atol=1e-8)


def test_slack_rescaling_of_a_loss_matrix(iris):
    X, y = iris
    matrix = np.array([[0, 1, 2], [1, 0, 4.0], [2, 0.5, 0]])
    options = {"C": 0.3, "gamma": 0.5, "tol": 1e-4, "rescaling": "slack"}
    model = KernelStructuredSVM(Multiclass(loss_matrix=matrix), **options).fit(X, y)
    scores = model.decision_function(X)
    above = scores - scores[np.arange(len(y)), y][:, None]
    hinges = np.max(matrix[y] * (1.0 + above), axis=1)
    gram = RBFKernel(0.5)(model.model_.parts, model.model_.parts)
    factors = model.model_.factors.toarray()
    primal = 0.5 * np.sum(factors * (gram @ factors)) + 0.3 * hinges.sum()
    assert primal == pytest.approx(model.certificate_.primal)
    assert model.certificate_.relative_gap <= 1e-4
    with pytest.raises(ValueError, match="margin rescaling built in: use MiniBatchDual"):
        model.set_params(solver=KernelClassesDual()).fit(X, y)
    # With a loss of one for every mistake there is no difference.
    plain, slack = (
        KernelStructuredSVM(Multiclass(), gamma=0.5, rescaling=name).fit(X, y)
        for name in ("margin", "slack")
    )
    assert plain.certificate_ == slack.certificate_


def test_a_constant_in_the_kernel_is_an_intercept(iris):
    X, y = iris
    X, y = X[::2, :2], (y[::2] > 0).astype(int)
    shifted = X + 20.0

    def with_intercept(A, B):
        return A @ B.T + 1.0

    linear = mm.LinearClassifier(C=1.0, tol=1e-5).fit(X, y)
    kernel = KernelStructuredSVM(Multiclass(), kernel=with_intercept, tol=1e-5).fit(X, y)
    assert kernel.certificate_.primal == pytest.approx(linear.certificate_.primal, rel=3e-5)
    cubic = KernelStructuredSVM(Multiclass(), kernel="polynomial", gamma=0.01, C=100.0, tol=0.05)
    assert cubic.fit(shifted, y).accuracy(shifted, y) > 0.95


def test_classes_of_words():
    def common_pairs(a, b):
        return float(len({*pairwise(a)} & {*pairwise(b)}))

    X = ["abab", "abba", "babab", "cdcd", "cddc", "dcdcd"]
    y = ["ab", "ab", "ab", "cd", "cd", "cd"]
    kernel = FunctionKernel(common_pairs, pairwise=True)
    model = KernelStructuredSVM(Multiclass(), C=10.0, kernel=kernel).fit(X, y)
    assert model.predict(["bab", "dcd"]).tolist() == ["ab", "cd"]


def test_warm_start_from_another_cost(iris):
    X, y = iris
    model = KernelStructuredSVM(Multiclass(), C=1.0, gamma=0.5, warm_start=True).fit(X, y)
    model.set_params(C=1.1).fit(X, y)
    cold = KernelStructuredSVM(Multiclass(), C=1.1, gamma=0.5).fit(X, y)
    assert model.certificate_.primal == pytest.approx(cold.certificate_.primal, rel=3e-3)
    assert model.history_[-1].oracle_calls < cold.history_[-1].oracle_calls


# Any problem


def test_problem_of_a_user():
    X, Y = levels_data()
    model = KernelStructuredSVM(Levels(), C=20.0, kernel=LEVELS_KERNEL).fit(X, Y)
    assert model.status_ == "converged"
    assert model.score(X, Y) > -0.2
    scores = model.decision_function(X)
    for x, predicted, score in zip(X, model.predict(X), scores, strict=True):
        weights = model.model_.weights_of(np.array([[0.0], [1.0], [2.0]]))
        all_scores = model.model_.scores(x[None, :], weights)[0]
        assert predicted == np.argmax(all_scores)
        assert score == pytest.approx(all_scores.max())


def test_problem_with_joint_features_and_linear_kernel_is_the_linear_svm():
    class Classes(mm.Problem):
        def outputs(self, x):
            return [0, 1, 2]

        def joint_feature(self, x, y):
            return np.outer(np.arange(3) == y, x).ravel()

        def loss(self, y_true, y):
            return float(y_true != y)

        def inference(self, x, w):
            return int(np.argmax(w.reshape(3, -1) @ x))

        def loss_augmented_inference(self, x, y_true, w):
            return int(np.argmax(w.reshape(3, -1) @ x + (np.arange(3) != y_true)))

    X, Y = levels_data()
    linear = mm.StructuredSVM(Classes(), tol=1e-5).fit(X, Y)
    kernel = KernelStructuredSVM(Classes(), kernel="linear", tol=1e-5).fit(X, Y)
    assert kernel.certificate_.primal == pytest.approx(linear.certificate_.primal, rel=3e-5)
    same = np.mean([a == b for a, b in zip(kernel.predict(X), linear.predict(X), strict=True)])
    assert same > 0.95


def test_models_are_plain_and_copies_are_fresh():
    X, Y = levels_data()
    model = KernelStructuredSVM(Levels(), C=2.0, kernel=LEVELS_KERNEL, tol=1e-2)
    again = clone(model)
    model.fit(X, Y)
    assert not hasattr(again, "model_")
    kept = model.model_
    assert isinstance(kept.parts, np.ndarray)
    assert isinstance(kept.labels, np.ndarray)
    assert kept.factors.shape == (len(kept.parts), len(kept.labels))


def test_callbacks_see_rounds():
    X, Y = levels_data()
    seen = []

    class Watch:
        def setup(self, estimator, context): ...
        def on_fit_task_begin(self, estimator, context): ...
        def teardown(self, estimator, context): ...

        def on_fit_task_end(self, estimator, context):
            if hasattr(context, "iteration"):
                seen.append(context.iteration.dual)
            return False

    model = KernelStructuredSVM(Levels(), kernel=LEVELS_KERNEL).set_callbacks(Watch()).fit(X, Y)
    assert len(seen) == model.n_iter_
    assert seen == sorted(seen)


def test_stopping_early_warns_and_keeps_the_model(iris):
    X, y = iris
    with pytest.warns(ConvergenceWarning, match="max_iter=1 iterations"):
        model = KernelStructuredSVM(Multiclass(), gamma=0.5, max_iter=1, tol=1e-6).fit(X, y)
    assert model.certificate_.dual <= model.certificate_.primal < np.inf
    assert model.accuracy(X, y) > 0.5


# Bad kernels and bad input


def test_asymmetric_kernel_is_named(iris):
    def lopsided(A, B):
        return A @ (B * np.arange(1, 5)).T + A[:, :1]

    with pytest.raises(KernelError, match="the kernel lopsided is not symmetric"):
        KernelStructuredSVM(Multiclass(), kernel=lopsided).fit(*iris)


def test_indefinite_kernel_is_named(iris):
    def sigmoid(A, B):
        return np.tanh(0.1 * A @ B.T - 3.0)

    with pytest.raises(KernelError, match="the kernel sigmoid is not positive semi-definite"):
        KernelStructuredSVM(Multiclass(), kernel=sigmoid).fit(*iris)
    with pytest.raises(KernelError, match="PolynomialKernel is not positive semi-definite"):
        KernelStructuredSVM(Multiclass(), kernel="polynomial", coef0=-50.0, degree=1).fit(*iris)
    with pytest.raises(KernelError, match="the kernel sigmoid is not"):
        LowRankKernel(sigmoid).fit(iris[0])
    joint = JointKernel(lambda x, y, x2, y2: float(np.sum(x) > np.sum(x2)))
    with pytest.raises(KernelError, match="the kernel <lambda> is not symmetric"):
        KernelStructuredSVM(Levels(), kernel=joint).fit(*levels_data())


def test_bad_input_is_one_sentence(iris):
    X, y = iris
    model = KernelStructuredSVM(Multiclass())
    with pytest.raises(ValueError, match="X has 150 inputs but y has 149 outputs"):
        model.fit(X, y[:-1])
    with pytest.raises(ValueError, match="X is empty"):
        model.fit([], [])
    with pytest.raises(ValueError, match=r"problem is the class Multiclass .* Multiclass\(\)\."):
        KernelStructuredSVM(Multiclass).fit(X, y)
    with pytest.raises(ValueError, match="only one class, 0"):
        model.fit(X[:10], y[:10].tolist())
    spoilt = X.copy()
    spoilt[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"NaN .* at row 3, column 1"):
        model.fit(spoilt, y)
    with pytest.raises(ValueError, match="not in classes"):
        KernelStructuredSVM(Multiclass(classes=[0, 1])).fit(X, y)
    with pytest.raises(ValueError, match="KernelClassesDual is for Multiclass only"):
        KernelStructuredSVM(Levels(), solver=KernelClassesDual()).fit(X, y)
    with pytest.raises(ValueError, match="All sample weights are zero"):
        model.fit(X, y, sample_weight=np.zeros(150))
    with pytest.raises(ValueError, match="every must be a number of seconds from 0 on"):
        mm.Checkpoint("run", every=-1.0)

    class NoList(mm.Problem):
        joint_feature = loss = inference = loss_augmented_inference = lambda self, *args: 0.0

    with pytest.raises(mm.ProblemError, match="cannot list its outputs"):
        KernelStructuredSVM(NoList()).fit(X, y)


# Low rank


@parametrize_with_checks([LowRankKernel(n_components=5)])
def test_scikit_learns_checks(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


@pytest.mark.parametrize("method", ["cholesky", "random"])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_full_rank_is_the_kernel(method, form):
    X = np.random.default_rng(0).normal(size=(25, 3))
    features = LowRankKernel("rbf", 25, gamma=0.5, method=method).fit(form(X))
    Z = features.transform(form(X))
    assert_allclose(Z @ Z.T, RBFKernel(0.5)(X, X), atol=1e-8)


def test_linear_kernel_has_the_rank_of_the_rows():
    X = np.random.default_rng(0).normal(size=(40, 3))
    features = LowRankKernel("linear", 20).fit(X)
    assert features.transform(X).shape == (40, 3)
    assert_allclose(features.transform(X) @ features.transform(X).T, X @ X.T, atol=1e-9)


def test_pivots_leave_alone_what_is_described():
    X = np.repeat([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0]], [50, 1, 1], axis=0)
    for seed in range(10):
        chosen = pivots(RBFKernel(1.0), X, 52, np.random.RandomState(seed))
        assert sorted(map(tuple, X[chosen])) == [(0.0, 0.0), (0.0, 3.0), (3.0, 0.0)]


def test_pivots_are_drawn_in_proportion_to_what_is_left():
    X = np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 1.0]])
    random = np.random.RandomState(0)
    first = [int(pivots(LinearKernel(), X, 1, random)[0]) for _ in range(3000)]
    assert_allclose(np.bincount(first) / 3000, [1 / 6, 4 / 6, 1 / 6], atol=0.03)


def test_pivots_describe_more_than_random_rows():
    X = np.random.default_rng(0).normal(size=(300, 2)) ** 3
    exact = RBFKernel(0.5)(X, X)
    errors = {}
    for method in ("cholesky", "random"):
        Z = LowRankKernel("rbf", 30, gamma=0.5, method=method).fit_transform(X)
        errors[method] = np.trace(exact) - np.trace(Z @ Z.T)
    assert 0.0 <= errors["cholesky"] < errors["random"]


def test_low_rank_in_a_pipeline(digits):
    X, X_test, y, y_test = digits
    model = make_pipeline(
        LowRankKernel("rbf", 300, gamma=0.05), mm.LinearClassifier(C=10.0, tol=1e-2)
    ).fit(X, y)
    exact = KernelStructuredSVM(Multiclass(), C=10.0, gamma=0.05, tol=1e-2).fit(X, y)
    assert model.score(X_test, y_test) >= exact.accuracy(X_test, y_test) - 0.015


@pytest.mark.parametrize("solver", ["one-slack", "n-slack", "auto"])
def test_low_rank_problem_of_full_rank_is_the_kernel_problem(solver):
    X, Y = levels_data(n=15)
    features = LowRankKernel("rbf", 15, gamma=0.5).fit(X)
    labels = LowRankKernel("rbf", 3, gamma=0.3).fit([[0.0], [1.0], [2.0]])
    problem = LowRankProblem(Levels(), features, labels)
    linear = mm.StructuredSVM(problem, C=2.0, solver=solver, tol=1e-4).fit(X, Y)
    kernel = KernelStructuredSVM(Levels(), C=2.0, kernel=LEVELS_KERNEL, tol=1e-4).fit(X, Y)
    assert linear.certificate_.primal == pytest.approx(kernel.certificate_.primal, rel=3e-4)


def test_low_rank_problem_of_joint_features():
    class Pairs(mm.Problem):
        joint_feature = staticmethod(lambda x, y: np.array([x[0] * y, x[1] * y, y]))
        outputs = staticmethod(lambda x: [-1.0, 1.0])
        loss = staticmethod(lambda y_true, y: float(y_true != y))
        inference = loss_augmented_inference = staticmethod(lambda *args: None)

    X = np.random.default_rng(0).normal(size=(20, 2))
    Y = np.sign(X[:, 0] * X[:, 1]).tolist()
    joint = np.array([Pairs.joint_feature(x, y) for x in X for y in (-1.0, 1.0)])
    problem = LowRankProblem(Pairs(), LowRankKernel("rbf", 40, gamma=0.5).fit(joint))
    linear = mm.StructuredSVM(problem, C=5.0, solver="one-slack", tol=1e-4).fit(X, Y)
    kernel = KernelStructuredSVM(Pairs(), C=5.0, kernel="rbf", gamma=0.5, tol=1e-4).fit(X, Y)
    assert linear.certificate_.primal == pytest.approx(kernel.certificate_.primal, rel=3e-4)
    assert linear.predict(X) == kernel.predict(X)


def test_linear_kernel_objects_have_no_parameters():
    assert LinearKernel().fitted(np.eye(2)) == LinearKernel()


# Models in files


def nearness(x, y, x2, y2):
    return float(np.exp(-np.sum((x - x2) ** 2)) * (y == y2))


def with_constant(A, B):
    return A @ B.T + 1.0


SAVED = {
    "classes": (Multiclass(), {"gamma": 0.5}, {}),
    "loss matrix": (Multiclass(loss_matrix=2.0 - 2.0 * np.eye(3)), {"rescaling": "slack"}, {}),
    "mini-batches": (Multiclass(), {"solver": MiniBatchDual(batch_size=9), "gamma": 0.5}, {}),
    "function": (Multiclass(), {"kernel": with_constant}, {"kernel": with_constant}),
    "own problem": (Levels(), {"kernel": LEVELS_KERNEL}, {"problem": Levels()}),
    "joint kernel": (
        Levels(),
        {"kernel": JointKernel(nearness)},
        {"problem": Levels(), "kernel": JointKernel(nearness)},
    ),
}


@pytest.mark.parametrize("name", SAVED)
def test_models_come_back_from_files(name, tmp_path):
    problem, options, given = SAVED[name]
    X, Y = levels_data()
    model = KernelStructuredSVM(problem, C=5.0, **options).fit(X, Y)
    again = mm.load(mm.save(model, tmp_path / "model.mm"), **given)
    assert list(again.predict(X)) == list(model.predict(X))
    assert_array_equal(again.decision_function(X), model.decision_function(X))
    assert again.certificate_ == model.certificate_
    assert again.support_size_ == model.support_size_
    assert again.score(X, Y) == model.score(X, Y)
