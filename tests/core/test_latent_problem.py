"""Latent problems: searches and imputations against brute force, convex steps against a QP."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from latent_problems import Instances, WrongInstances, objective, random_bags
from numpy.testing import assert_allclose, assert_array_equal
from structured_referee import Case, Enumerable

from maxmargin.core.certificate import DualPoint
from maxmargin.core.latent import PythonLatentOracle
from maxmargin.core.oracle import Threads
from maxmargin.core.problem import ProblemError
from maxmargin.solvers.loop import Stopping
from maxmargin.structures.chain.problem import HiddenChains
from maxmargin.structures.latent.oracle import MEAN, NOTHING, LatentBags
from maxmargin.training.fit import make_solver

ONE = Threads(1)


def make_bags(seed, *, background=NOTHING, intercept=True, sparse=False, dtype=np.float64, **sizes):
    """Compiled bags, and the plain-Python problem of the same data."""
    X, Y = random_bags(seed, **sizes)
    random = np.random.default_rng(seed)
    k = int(Y.max()) + 1
    matrix = random.uniform(0.2, 2.0, (k, k)) * (1.0 - np.eye(k))
    C = random.uniform(0.1, 1.0, len(Y))
    ends = np.cumsum([0, *map(len, X)])
    rows = np.concatenate(X).astype(dtype)
    bags = LatentBags(
        sp.csr_array(rows) if sparse else rows,
        ends,
        Y.astype(np.int32),
        matrix,
        C,
        background=background,
        fit_intercept=intercept,
    )
    X = [x.astype(dtype) for x in X]
    if intercept:
        X = [np.column_stack([x, np.ones(len(x))]) for x in X]
    return bags, Instances(matrix, background), X, Y, C


def widen(weights, bags):
    """Weights of `Instances`, one row a class, as the padded table, one column a class."""
    table = np.zeros(bags.table_shape)
    table[:, : len(bags.loss)] = weights.reshape(len(bags.loss), -1).T
    return table.ravel()


def random_weights(random, problem, x):
    w = random.normal(size=(len(problem.matrix), x.shape[1]))
    if problem.background >= 0:
        w[problem.background] = 0.0
    return w.ravel()


VARIANTS = [
    {},
    {"background": 0},
    {"background": 2, "intercept": False},
    {"sparse": True},
    {"sparse": True, "dtype": np.float32, "background": 1},
    {"dtype": np.float32, "intercept": False},
]


@pytest.mark.parametrize("options", VARIANTS)
@pytest.mark.parametrize("seed", range(4))
def test_bags_against_brute_force(seed, options):
    bags, problem, X, Y, _ = make_bags(seed, **options)
    random = np.random.default_rng(seed)
    rtol = 1e-5 if options.get("dtype") is np.float32 else 1e-9
    w = random_weights(random, problem, X[0])
    weights = widen(w, bags)
    everything = np.arange(len(Y))
    for chosen in (random.integers(bags.lengths), np.full(len(Y), MEAN)):
        oracle = bags.imputed(chosen)
        cuts = oracle.separate(weights, everything, ONE)
        for i, (x, y, h) in enumerate(zip(X, Y, chosen, strict=True)):
            shown = x.mean(axis=0, keepdims=True) if h == MEAN else x[[h]]
            own = problem.joint_feature(shown, y, 0) @ w
            others = [(k, j) for k, j in problem.outputs(x) if k != y]
            slopes = [problem.loss(y, k) + problem.joint_feature(x, k, j) @ w - own
                      for k, j in others]  # fmt: skip
            hinge = max(0.0, *slopes)
            assert_allclose(cuts.slopes(weights)[i], hinge, rtol=rtol, atol=1e-6)
        again = oracle.cuts_of(everything, cuts.outputs)
        for old, new in zip(cuts[:4], again[:4], strict=True):
            assert_array_equal(old, new)
        assert again.outputs == cuts.outputs


@pytest.mark.parametrize("options", VARIANTS)
def test_best_completions_give_the_objective_and_others_more(options):
    bags, problem, X, Y, C = make_bags(3, **options)
    random = np.random.default_rng(0)
    for _ in range(5):
        w = random_weights(random, problem, X[0])
        weights = widen(w, bags)
        true = objective(problem, X, Y, C, w)
        best = bags.impute(weights, np.full(len(Y), MEAN), ONE)
        assert best.tolist() == [
            0 if y == problem.background else problem.latent(x, y, w)
            for x, y in zip(X, Y, strict=True)
        ]
        assert_allclose(bags.imputed(best).primal(weights), true, rtol=1e-5)
        for chosen in (random.integers(bags.lengths), np.full(len(Y), MEAN)):
            assert bags.imputed(chosen).primal(weights) >= true - 1e-6


def test_the_rehearsal_is_the_linear_classifier_of_the_means():
    bags, problem, X, Y, C = make_bags(1)
    means = [x.mean(axis=0, keepdims=True) for x in X]
    random = np.random.default_rng(0)
    w = random_weights(random, problem, X[0])
    dear = C * bags.lengths.mean()
    assert_allclose(bags.rehearsal().primal(widen(w, bags)), objective(problem, means, Y, dear, w))


def test_completions_stay_where_they_are_as_good():
    X = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [2.0, 0.0], [2.0, 0.0]])
    bags = LatentBags(
        X, np.array([0, 3, 5]), np.array([0, 1], dtype=np.int32), 1.0 - np.eye(2), np.ones(2),
        fit_intercept=False,
    )  # fmt: skip
    weights = widen(np.array([1.0, 0.0, 1.0, 0.0]), bags)
    assert bags.impute(weights, np.array([1, 1]), ONE).tolist() == [1, 1]
    assert bags.impute(weights, np.array([2, MEAN]), ONE).tolist() == [0, 0]
    assert bags.changes(np.array([1, 1]), np.array([1, 0])).tolist() == [False, True]


def test_outputs_of_other_bags_are_refused():
    bags, _, X, Y, _ = make_bags(0)
    oracle = bags.imputed(np.zeros(len(Y), dtype=np.int64))
    right, wrong = int(Y[0]), int(Y[0] + 1) % 3
    for pair in ((right, 0), (wrong, MEAN), (wrong, len(X[0])), (3, 0)):
        output = np.array(pair, dtype=np.int32).tobytes()
        with pytest.raises(ValueError, match="other bags"):
            oracle.cuts_of(np.zeros(1, dtype=np.int64), [output])
    with pytest.raises(ValueError, match="other lengths"):
        oracle.cuts_of(np.zeros(1, dtype=np.int64), [b"abc"])


class Shown(Enumerable):
    """A completed bag as the referee sees it: the truth, or another class with an instance.

    Inputs are pairs of a bag and what its truth shows.
    """

    def __init__(self, problem):
        super().__init__()
        self.problem = problem

    def outputs(self, x):
        bag, _, label = x
        return [(label, MEAN), *(pair for pair in self.problem.outputs(bag) if pair[0] != label)]

    def joint_feature(self, x, y):
        bag, shown, label = x
        return self.problem.joint_feature(*((shown[None], label, 0) if y[1] == MEAN else (bag, *y)))

    def loss(self, y_true, y):
        return self.problem.loss(y_true[0], y[0])


@pytest.mark.diagonal
@pytest.mark.parametrize("background", [NOTHING, 1])
@pytest.mark.parametrize(
    "solver",
    ["auto", "dual-coordinate", "frank-wolfe", "n-slack", "one-slack", "partial-linearization"],
)
def test_convex_steps_reach_the_referees_optimum(solver, background):
    bags, problem, X, Y, C = make_bags(5, background=background)
    chosen = np.random.default_rng(0).integers(bags.lengths)
    chosen[::3] = MEAN
    shown = [x.mean(axis=0) if h == MEAN else x[h] for x, h in zip(X, chosen, strict=True)]
    inputs = list(zip(X, shown, Y.tolist(), strict=True))
    case = Case(Shown(problem), inputs, [(y, MEAN) for y in Y.tolist()], C)
    tol = 1e-2 if solver == "frank-wolfe" else 1e-4
    result = make_solver(solver).solve(bags.imputed(chosen), Stopping(tol))
    assert result.status == "converged"
    assert result.certificate.dual <= case.optimum.value * (1 + 1e-7)
    assert result.certificate.primal >= case.optimum.value * (1 - 1e-7)
    assert result.certificate.relative_gap <= tol


def test_threads_do_not_change_the_answer():
    random = np.random.default_rng(0)
    n, m, d = 400, 20, 60
    bags = LatentBags(
        random.normal(size=(n * m, d)), np.arange(0, n * m + 1, m),
        random.integers(0, 5, n).astype(np.int32), 1.0 - np.eye(5), np.ones(n),
    )  # fmt: skip
    weights = random.normal(size=int(np.prod(bags.table_shape)))
    oracle, everything = bags.imputed(random.integers(bags.lengths)), np.arange(n)
    assert n * oracle.oracle_work > 3e6  # else nothing is shared out
    with Threads(3) as threads:
        many = oracle.separate(weights, everything, threads)
        imputed = bags.impute(weights, np.zeros(n, dtype=np.int64), threads)
    one = oracle.separate(weights, everything, ONE)
    for a, b in zip(one[:4], many[:4], strict=True):
        assert_array_equal(a, b)
    assert_array_equal(imputed, bags.impute(weights, np.zeros(n, dtype=np.int64), ONE))


# Hidden states


class Unbound:
    """A problem without its compiled training set."""

    def __init__(self, problem):
        self.problem = problem

    def __getattr__(self, name):
        if name in ("make_oracle", "outputs"):
            raise AttributeError(name)
        return getattr(self.problem, name)


def all_pairs(problem, length):
    labels = product(range(problem.n_labels), repeat=length)
    states = list(product(range(problem.n_states), repeat=length))
    return [(np.array(y, dtype=int), np.array(h, dtype=int)) for y in labels for h in states]


@given(st.integers(0, 10_000), st.integers(0, 3), st.integers(1, 3), st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_hidden_chains_against_brute_force(seed, length, n_labels, n_states):
    random = np.random.default_rng(seed)
    problem = HiddenChains(2, n_labels, n_states)
    x = random.normal(size=(length, 2))
    w = random.integers(-2, 3, problem.layout.n_rows * problem.layout.n_columns).astype(float)
    y_true = random.integers(n_labels, size=length)

    def score(pair):
        return problem.joint_feature(x, *pair) @ w

    def augmented(pair):
        return score(pair) + problem.loss(y_true, pair[0])

    pairs = all_pairs(problem, length)
    assert_allclose(score(problem.inference(x, w)), max(map(score, pairs)))
    assert_allclose(
        augmented(problem.loss_augmented_inference(x, y_true, w)), max(map(augmented, pairs))
    )
    own = [pair for pair in pairs if np.array_equal(pair[0], y_true)]
    assert_allclose(score((y_true, problem.latent(x, y_true, w))), max(map(score, own)))


def test_compiled_hidden_chains_are_the_plain_problem():
    random = np.random.default_rng(0)
    problem = HiddenChains(3, 2, 2)
    X = [random.normal(size=(length, 3)) for length in (4, 1, 3, 0, 2)]
    Y = [random.integers(2, size=len(x)) for x in X]
    C = random.uniform(0.5, 1.0, len(X))
    compiled, plain = (
        problem.make_oracle(X, Y, C),
        PythonLatentOracle(Unbound(problem), X, Y, C),
    )
    first = [random.integers(2, size=len(x)) for x in X]
    for _ in range(5):
        w = random.normal(size=problem.layout.n_rows * problem.layout.n_columns)
        a, b = compiled.imputed(first), plain.imputed(first)
        assert_allclose(a.primal(w), b.primal(w))
        found, expected = compiled.impute(w, first, ONE), plain.impute(w, first, ONE)
        assert [h.tolist() for h in found] == [h.tolist() for h in expected]
        assert_array_equal(compiled.changes(first, found), plain.changes(first, expected))
        assert compiled.imputed(found).primal(w) <= a.primal(w) + 1e-9


def test_hidden_chains_say_what_labels_they_take():
    with pytest.raises(ValueError, match="Sequence 1 has 2 positions: give each a label from 0 to"):
        HiddenChains(1, 2, 2).make_oracle(
            [np.zeros((1, 1)), np.zeros((2, 1))], [[0], [0, 2]], np.ones(2)
        )


# The plain-Python side


def plain(problem=None, seed=0):
    X, Y = random_bags(seed)
    problem = problem or Instances(1.0 - np.eye(3))
    return PythonLatentOracle(problem, X, Y, np.ones(len(Y))), X, Y


def test_plain_completions_are_the_best_and_others_bound_them():
    latent, X, Y = plain()
    random = np.random.default_rng(1)
    first = latent.init_latent(random)
    for _ in range(5):
        w = random.normal(size=9)
        best = latent.impute(w, first, ONE)
        true = objective(latent.problem, X, Y, latent.C, w)
        assert_allclose(latent.imputed(best).primal(w), true)
        assert latent.imputed(first).primal(w) >= true - 1e-9
        assert latent.impute(np.zeros(9), first, ONE) == first


def test_searches_of_wrong_outputs_are_those_of_bags():
    bags, problem, X, Y, C = make_bags(2)
    tight = PythonLatentOracle(WrongInstances(problem.matrix), X, Y, C)
    loose = PythonLatentOracle(problem, X, Y, C)
    random = np.random.default_rng(0)
    for _ in range(5):
        w = random.normal(size=len(problem.matrix) * X[0].shape[1])
        chosen = random.integers(bags.lengths)
        found = tight.imputed(chosen.tolist()).primal(w)
        assert_allclose(found, bags.imputed(chosen).primal(widen(w, bags)))
        assert found <= loose.imputed(chosen.tolist()).primal(w)
        best = tight.impute(w, chosen.tolist(), ONE)
        assert_allclose(tight.imputed(best).primal(w), objective(problem, X, Y, C, w))


def test_a_point_stays_feasible_when_truths_are_completed_otherwise():
    latent, _, _ = plain()
    first = latent.init_latent(np.random.default_rng(1))
    result = make_solver("auto").solve(latent.imputed(first), Stopping(1e-3))
    assert isinstance(result.dual_point, DualPoint)
    other = latent.imputed(latent.impute(result.weights, first, ONE))
    assert other.dual(result.dual_point) <= other.primal(result.weights)


class Broken(Instances):
    def __init__(self, **methods):
        super().__init__(1.0 - np.eye(3))
        self.__dict__.update(methods)


def fail(*_):
    raise RuntimeError("no")


@pytest.mark.parametrize(
    ("methods", "sentence"),
    [
        ({"latent": lambda x, y, w: int(np.argmin(x @ w.reshape(3, -1)[y]))},
         "latent of Broken returned .* below that of .*: it must return the highest"),
        ({"latent": fail}, "latent of Broken raised RuntimeError for example 0: no"),
        ({"init_latent": fail}, "init_latent of Broken raised RuntimeError for example 0: no"),
        ({"loss_augmented_inference": lambda x, y, w: 3},
         r"inference of Broken raised TypeError for example 0: .* pair \(y, h\), but it is 3"),
        ({"loss_augmented_inference":
             lambda x, y, w: ((y + 1) % 3, int(np.argmin(x @ w.reshape(3, -1)[y - 2])))},
         "loss_augmented_inference of Broken returned .* it must return the highest"),
        ({"loss": lambda a, b: -1.0}, "loss of Broken must be a finite number"),
    ],
)  # fmt: skip
def test_broken_contracts_are_named(methods, sentence):
    latent, _, _ = plain(Broken(**methods))
    with pytest.raises(ProblemError, match=sentence):
        use(latent)


def use(latent):
    """Whatever a fit would do."""
    random = np.random.default_rng(0)
    first, w = latent.init_latent(random), 10.0 * random.normal(size=9)
    latent.imputed(first).primal(w)
    latent.impute(w, latent.impute(w, first, ONE), ONE)
