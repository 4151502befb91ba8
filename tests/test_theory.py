"""Numeric checks of docs/theory.md: one test for each claim that no other test checks."""

import math
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import referee
from hypothesis import given, settings
from hypothesis import strategies as st
from linear_problems import KINDS, random_case
from numpy.testing import assert_allclose
from scipy import optimize
from sklearn.svm import LinearSVC, LinearSVR

from maxmargin import GaussianPrior, LinearClassifier
from maxmargin.compiled.rows import measured_rows
from maxmargin.core.conventions import (
    C_from_joachims,
    C_from_lambda,
    joachims_from_C,
    lambda_from_C,
)
from maxmargin.core.linear import CrammerSinger, ScalarProblem, WestonWatkins, unwhitened
from maxmargin.dual.explicit import SharedWeights, make_dual
from maxmargin.dual.sweeps import (
    MOVED,
    NEVER,
    add_snapshot,
    crammer_singer_step,
    weston_watkins_step,
)
from maxmargin.solvers.loop import SWEEPS_PER_EXTRAPOLATION, Momentum, Stopping
from maxmargin.solvers.sequential_dual import (
    LONGEST_WAIT,
    SKIPPED_PART_OF_GAP,
    SequentialDual,
)

SEEDS = st.integers(0, 100_000)
GEOMETRIES = {
    "nonnegative": st.booleans(),
    "with_origin": st.booleans(),
    "bias": st.sampled_from([0.0, 1.5]),
}


def random_dual(problem, random):
    """A feasible point, with a good share of its variables at their bounds."""
    shape = problem.n_samples, problem.n_outputs
    wild = random.normal(size=shape) * problem.C[:, None] * random.choice([0.3, 1.0, 3.0])
    return problem.feasible(np.where(random.random(shape) < 0.3, 0.0, wild))


def random_weights(problem, random):
    """Weights that satisfy the problem's constraints."""
    weights = random.normal(size=problem.weights_shape)
    if problem.nonnegative:
        weights[:-1] = np.maximum(weights[:-1], 0.0)
    if problem.bias == 0.0:
        weights[-1] = 0.0
    return weights


def full_features(problem):
    """The features with the constant one."""
    return np.hstack([problem.X, np.full((problem.n_samples, 1), problem.bias)])


def linear_of(problem, dual_coef):
    """Each example's share of the dual's linear term."""
    if isinstance(problem, ScalarProblem):
        b = dual_coef[:, 0]
        return problem.target * b - problem.epsilon * np.abs(b)
    loss = problem.margins[:, None] * problem.loss_matrix[problem.labels]
    return -np.sum(loss * dual_coef, axis=1)


# Section 1: conventions


@given(C=st.floats(1e-6, 1e6), n=st.integers(1, 10**9))
def test_conversions_are_inverse_to_each_other(C, n):
    assert C_from_lambda(lambda_from_C(C, n), n) == pytest.approx(C, rel=1e-14)
    assert C_from_joachims(joachims_from_C(C, n), n) == pytest.approx(C, rel=1e-14)
    assert lambda_from_C(C, n) * joachims_from_C(C, n) == pytest.approx(1.0, rel=1e-14)


def test_conversions_of_the_objective():
    random = np.random.default_rng(0)
    n, C = 40, 0.7
    X, signs, w = random.normal(size=(n, 3)), random.choice([-1.0, 1.0], n), random.normal(size=3)
    losses = np.maximum(0.0, 1.0 - signs * (X @ w))
    ours = referee.hinge_objective(w, X, signs, C=np.full(n, C), margins=np.ones(n))
    lam = lambda_from_C(C, n)
    assert lam / 2 * w @ w + losses.mean() == pytest.approx(lam * ours)
    assert w @ w / 2 + joachims_from_C(C, n) / n * losses.sum() == pytest.approx(ours)


@pytest.mark.parametrize(
    "convert", [C_from_lambda, lambda_from_C, C_from_joachims, joachims_from_C]
)
def test_conversions_refuse_nonsense(convert):
    for weight in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="positive and finite"):
            convert(weight, 10)
    with pytest.raises(ValueError, match="at least one example"):
        convert(1.0, 0)


def test_scikit_learn_weighs_losses_alike():
    random = np.random.default_rng(1)
    n, C = 40, 0.3
    X = random.normal(size=(n, 3))
    signs, target = random.choice([-1.0, 1.0], n), random.normal(size=n)
    exact = {"fit_intercept": False, "tol": 1e-10, "max_iter": 100_000, "random_state": 0}
    each, ones = np.full(n, C), np.ones(n)

    theirs = LinearSVC(C=C, loss="hinge", **exact).fit(X, signs).coef_
    assert_allclose(theirs, referee.hinge(X, signs, C=each, margins=ones).weights, atol=1e-5)
    theirs = LinearSVR(C=C, epsilon=0.1, **exact).fit(X, target).coef_
    ours = referee.epsilon_insensitive(X, target, C=each, epsilon=0.1).weights
    assert_allclose(theirs[None], ours, atol=1e-5)
    # ... but its Crammer-Singer of two classes is the hinge of twice that C (section 6).
    theirs = LinearSVC(C=C, multi_class="crammer_singer", **exact).fit(X, signs).coef_
    assert_allclose(theirs, referee.hinge(X, signs, C=2 * each, margins=ones).weights, atol=1e-5)


# Section 2: primal and dual


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_a_dual_point_minimise_the_lagrangian(kind, nonnegative):
    problem = random_case(kind, 5, nonnegative=nonnegative, with_origin=True, bias=1.5).problem
    dual_coef = random_dual(problem, np.random.default_rng(5))
    pull = full_features(problem).T @ dual_coef
    linear = linear_of(problem, dual_coef).sum()

    def lagrangian(flat):
        weights = flat.reshape(problem.weights_shape)
        away = weights - problem.origin
        value = 0.5 * np.sum(away**2) - np.sum(pull * weights) + linear
        return value, (away - pull).ravel()

    free = np.zeros(problem.weights_shape, dtype=bool)
    free[-1] = True
    low = np.where(free | (not nonnegative), -np.inf, 0.0).ravel()
    found = optimize.minimize(
        lagrangian,
        np.zeros(low.size),
        jac=True,
        method="L-BFGS-B",
        bounds=optimize.Bounds(low, np.inf),
        options={"ftol": 1e-15, "gtol": 1e-10},
    )
    assert found.fun == pytest.approx(problem.dual(dual_coef), rel=1e-9, abs=1e-9)
    assert_allclose(found.x.reshape(problem.weights_shape), problem.weights(dual_coef), atol=1e-6)


@settings(max_examples=150, deadline=None)
@given(kind=st.sampled_from(KINDS), seed=SEEDS, k=st.integers(3, 6), **GEOMETRIES)
def test_any_weights_and_any_feasible_dual_point_certify_each_other(kind, seed, k, **geometry):
    problem = random_case(kind, seed, k=k, **geometry).problem
    random = np.random.default_rng(seed)
    primal = problem.primal(random_weights(problem, random))
    dual = problem.dual(random_dual(problem, random))
    assert dual <= primal + 1e-9 * (abs(primal) + abs(dual))


@settings(max_examples=100, deadline=None)
@given(kind=st.sampled_from(KINDS), seed=SEEDS, **GEOMETRIES)
def test_the_gap_of_a_dual_point_and_its_own_weights_is_a_sum_over_examples(kind, seed, **geometry):
    problem = random_case(kind, seed, **geometry).problem
    dual_coef = random_dual(problem, np.random.default_rng(seed))
    weights = problem.weights(dual_coef)
    scores = problem.scores(weights)
    paid = problem.C * problem.losses(scores, slice(None))
    terms = paid - linear_of(problem, dual_coef) + np.sum(dual_coef * scores, axis=1)
    scale = 1.0 + np.abs(paid).sum()
    assert terms.min() >= -1e-12 * scale
    gap = problem.primal(weights) - problem.dual(dual_coef)
    assert gap == pytest.approx(terms.sum(), abs=1e-10 * scale)


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_gaps_bound_the_distance_to_the_optimal_weights(kind, nonnegative):
    case = random_case(kind, 3, nonnegative=nonnegative, with_origin=True, bias=1.0)
    problem, optimum = case.problem, case.optimum()
    best = optimum.weights.T
    random = np.random.default_rng(3)
    for _ in range(20):
        weights, dual_coef = random_weights(problem, random), random_dual(problem, random)
        own = problem.weights(dual_coef)
        allowed = 1e-7 * (1.0 + abs(optimum.value))
        half = 0.5 * np.sum((weights - best) ** 2)
        assert half <= problem.primal(weights) - optimum.value + allowed
        half = 0.5 * np.sum((own - best) ** 2)
        assert half <= optimum.value - problem.dual(dual_coef) + allowed
        distance = np.sqrt(np.sum((weights - best) ** 2))
        assert distance <= np.sqrt(2 * (problem.primal(weights) - problem.dual(dual_coef))) + 1e-6
        gap, apart = problem.primal(weights) - problem.dual(dual_coef), weights - own
        square = np.sum((0.5 * (weights + own) - best) ** 2)
        assert square <= gap - 0.25 * np.sum(apart**2) + 2 * allowed


@pytest.mark.parametrize("factor", [0.5, 1.1, 3.0])
@pytest.mark.parametrize("kind", KINDS)
def test_the_optimum_at_the_next_cost_is_in_a_ball(kind, factor):
    problem = random_case(kind, 5, bias=1.0).problem
    now, then = (
        SequentialDual().solve(one, Stopping(1e-9)).weights
        for one in (problem, problem.scaled(factor))
    )
    distance = np.linalg.norm(then - 0.5 * (1.0 + factor) * now)
    assert distance <= 0.5 * abs(factor - 1.0) * np.linalg.norm(now) * (1.0 + 1e-3)


# Sections 3, 4 and 10: steps, and what the cooling threshold leaves alone


def padded(values, fill):
    length = -(-len(values) // 4) * 4
    return np.concatenate([values, np.full(length - len(values), fill)])


def test_a_worked_projection_on_the_simplex():
    # a = (0, 0, 1) of cost 1 and label 2, |x|^2 = 2: project (0, 0, 1) + (3, 2, 0) / 2.
    coef = padded(np.zeros(3), 0.0)
    change = np.empty(4)
    crammer_singer_step(padded(np.array([3.0, 2.0, 0.0]), NEVER), coef, 2, 1.0, 0.5, 0.0, change)
    # The level is 5/6: the three entries of (1.5, 1, 1) all stay above it, and lose it.
    assert_allclose(coef[:3], [-2 / 3, -1 / 6, 5 / 6], atol=1e-15)


def test_a_worked_shift():
    # cost 1, label 0, two rivals with gradient 1 and 3 over |x|^2 = 2: t = (1/2, 3/2).
    coef = padded(np.zeros(3), 0.0)
    change = np.empty(4)
    scores = padded(np.array([0.0, 1.0, 3.0]), NEVER)
    weston_watkins_step(scores, coef, 0, 1.0, 0.5, 0.0, change)
    # shift = clip(1/2 - shift) + clip(3/2 - shift) has the root 3/4: a = (0, 3/4).
    assert_allclose(coef[:3], [0.75, 0.0, -0.75], atol=1e-15)


def left_alone(kind, seed):
    """The gap, over cost times threshold, of an example that a sweep leaves alone; 0 if moved."""
    random = np.random.default_rng(seed)
    k, C, threshold = 40, 2.0, 0.5
    X = random.choice([0.1, 1.0]) * np.ones((1, 1))
    shared = {"X": X, "C": np.array([C]), "origin": random.normal(size=(2, 1))}
    start = random.choice([0.0, 0.5, 0.9, 0.999, 1.0]) * C * np.ones((1, 1))
    if kind == "hinge":
        problem = ScalarProblem.hinge(np.ones(1), np.ones(1), **shared)
    elif kind == "epsilon-insensitive":
        target = random.normal(size=1)
        problem = ScalarProblem.epsilon_insensitive(target, 0.1, **shared)
        start *= random.choice([-1.0, 1.0])
    else:
        cls = CrammerSinger if kind == "crammer-singer" else WestonWatkins
        shared["origin"] = random.choice([0.1, 0.3, 1.0]) * random.normal(size=(2, k))
        problem = cls(
            labels=np.zeros(1, dtype=np.int32),
            margins=np.ones(1),
            loss_matrix=random.choice([0.0, 0.3, 1.0]) * (1.0 - np.eye(k)),
            **shared,
        )
        start = random_dual(problem, random)
    state = make_dual(problem, measured_rows(problem.X, problem.bias), start)
    before = state.dual_coef.copy()
    state.sweep(state.due_examples(), threshold)
    if not np.array_equal(before, state.dual_coef):
        return 0.0
    gap = problem.primal(problem.weights(before)) - problem.dual(before)
    return gap / (C * threshold)


@pytest.mark.parametrize(
    ("kind", "factor"),
    [
        ("crammer-singer", 1.0),
        ("weston-watkins", 1.0),
        ("hinge", 1.0),
        ("epsilon-insensitive", 2.0),
    ],
)
def test_what_cooling_leaves_alone_is_bounded_by_the_threshold(kind, factor):
    assert factor * SKIPPED_PART_OF_GAP < 1.0
    assert max(left_alone(kind, seed) for seed in range(400)) <= factor * (1 + 1e-12)


def test_cooling_cannot_stall():
    X, y = np.random.default_rng(0).normal(size=(60, 5)), np.arange(60)
    model = LinearClassifier(C=0.1, formulation="weston-watkins", max_iter=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert model.fit(X, y).status_ == "converged"


def test_short_rows_do_not_lose_their_simplex():
    C, k = 1e-6, 3
    coef = padded(np.zeros(k), 0.0)
    scores = padded(np.array([1.0, 1.0, 0.0]), NEVER)
    outcome = crammer_singer_step(scores, coef, 2, C, 1e12, 0.0, np.empty(4))
    assert outcome == MOVED
    assert_allclose(coef[:k], [-C / 2, -C / 2, C], rtol=1e-6)


# Section 6: two classes


def two_classes(seed):
    random = np.random.default_rng(seed)
    n, d = 12, 3
    X, y = random.normal(size=(n, d)), random.integers(2, size=n)
    C, margins = random.uniform(0.0, 1.0, n), random.uniform(0.5, 1.5, n)
    loss = np.array([[0.0, 0.6], [1.7, 0.0]])
    return SimpleNamespace(
        random=random,
        X=X,
        y=y,
        C=C,
        margins=margins,
        loss=loss,
        sign=np.where(y == 1, 1.0, -1.0),
        asked=margins * loss[y, 1 - y],
    )


@pytest.mark.parametrize("seed", range(3))
def test_two_class_crammer_singer_is_half_the_hinge_of_twice_the_cost(seed):
    t = two_classes(seed)
    mean = t.random.normal(size=(2, 4))
    root = t.random.normal(size=(4, 4))
    shared = {"bias": 1.5, "covariance": root @ root.T + 0.1 * np.eye(4)}
    both = referee.crammer_singer(
        t.X, t.y, 2, C=t.C, margins=t.margins, loss_matrix=t.loss, mean=mean, **shared
    )
    binary = referee.hinge(
        t.X, t.sign, C=2 * t.C, margins=t.asked, mean=mean[1] - mean[0], **shared
    )
    assert both.value == pytest.approx(binary.value / 2, rel=1e-8)
    assert_allclose(both.weights[1] - both.weights[0], binary.weights[0], atol=1e-5)
    assert_allclose(both.weights.sum(axis=0), mean.sum(axis=0), atol=1e-5)


def test_two_nonnegative_weight_vectors_are_the_hinge_without_constraint():
    t = two_classes(0)
    both = referee.crammer_singer(
        t.X, t.y, 2, C=t.C, margins=t.margins, loss_matrix=t.loss, nonnegative=True
    )
    binary = referee.hinge(t.X, t.sign, C=t.C, margins=t.asked)
    assert both.value == pytest.approx(binary.value, rel=1e-8)
    assert_allclose(both.weights[1], np.maximum(binary.weights[0], 0.0), atol=1e-5)
    assert_allclose(both.weights[0], np.maximum(-binary.weights[0], 0.0), atol=1e-5)


@pytest.mark.parametrize("formulation", ["crammer-singer", "weston-watkins", "one-vs-rest"])
def test_the_classifier_solves_two_classes_as_the_hinge_of_the_same_cost(formulation):
    t = two_classes(1)
    model = LinearClassifier(
        C=0.8, formulation=formulation, loss_matrix=t.loss, fit_intercept=False, tol=1e-9
    ).fit(t.X, t.y, sample_weight=t.C, margins=t.margins)
    binary = referee.hinge(t.X, t.sign, C=0.8 * t.C, margins=t.asked)
    assert model.certificate_.primal == pytest.approx(binary.value, rel=1e-7)
    assert_allclose(model.coef_, binary.weights, atol=1e-3)


# Section 7: intercept, sections 8 and 9: non-negative weights, priors


def test_the_intercept_is_regularised_by_its_scale():
    t = two_classes(2)
    scale = 3.0
    model = LinearClassifier(intercept_scaling=scale, tol=1e-9).fit(t.X, t.y)
    w, b = model.coef_[0], model.intercept_[0]
    losses = np.maximum(0.0, 1.0 - t.sign * (t.X @ w + b))
    value = 0.5 * w @ w + 0.5 * (b / scale) ** 2 + losses.sum()
    assert model.certificate_.primal == pytest.approx(value, rel=1e-12)


VECTORS = st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3)), min_size=1, max_size=8)


@given(VECTORS)
def test_half_the_squared_positive_part_is_smooth(pairs):
    v, d = np.array(pairs).T
    positive = np.maximum(v, 0.0)
    moved = 0.5 * np.sum(np.maximum(v + d, 0.0) ** 2)
    model = 0.5 * np.sum(positive**2) + positive @ d
    scale = 1e-12 * (1.0 + v @ v + d @ d)
    assert moved <= model + 0.5 * d @ d + scale
    assert moved >= model - scale


def test_clipping_in_place_stops_at_the_wrong_weights():
    # One feature of value 1, one example of each sign, C = 1: the optimum is w = 0 of value 2.
    problem = ScalarProblem.hinge(
        np.array([-1.0, 1.0]), np.ones(2), np.ones(2), X=np.ones((2, 1)), nonnegative=True
    )
    for in_place, expected in [(True, 1.0), (False, 0.0)]:
        unclipped, coef = 0.0, np.zeros(2)
        for i in [0, 1] * 50:
            step = problem.target[i] - max(unclipped, 0.0)
            new = np.clip(coef[i] + step, problem.lower[i], problem.upper[i])
            unclipped += new - coef[i]
            unclipped = max(unclipped, 0.0) if in_place else unclipped
            coef[i] = new
        assert max(unclipped, 0.0) == expected
    assert problem.primal(np.array([[1.0], [0.0]])) == 2.5
    assert problem.primal(np.zeros((2, 1))) == problem.dual(np.array([[-1.0], [1.0]])) == 2.0


@pytest.mark.parametrize("full", [False, True])
def test_whitening_keeps_scores_and_penalty(full):
    random = np.random.default_rng(4)
    n, d, k = 6, 4, 3
    X, mean, w = random.normal(size=(n, d)), random.normal(size=(k, d)), random.normal(size=(d, k))
    root = random.normal(size=(d, d))
    covariance = root @ root.T + 0.1 * np.eye(d) if full else random.uniform(0.1, 3.0, d)
    whitened, origin, root = GaussianPrior(mean, covariance).whiten(X, k)
    assert_allclose(X @ unwhitened(w, root), whitened @ w, atol=1e-12)
    precision = np.linalg.inv(covariance) if full else np.diag(1.0 / covariance)
    away = unwhitened(w, root) - mean.T
    assert np.sum((w - origin) ** 2) == pytest.approx(np.sum(away * (precision @ away)))


def test_a_prior_that_needs_no_correction_is_certified_at_once():
    random = np.random.default_rng(0)
    X, mean = random.normal(size=(60, 7)), 30.0 * random.normal(size=7)
    X = X[np.abs(X @ mean) > 5.0]
    y = np.sign(X @ mean)
    for scale in 1.0 + 0.01 * np.arange(20):
        model = LinearClassifier(
            prior=GaussianPrior(scale * mean), fit_intercept=False, max_iter=20
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, y)
        assert model.certificate_.primal == 0.0
        assert model.status_ == "converged"


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_zeros_start_at_their_optimum(kind):
    problem = random_case(kind, 8).problem  # its row 0 is empty, and no constant feature
    state = make_dual(problem, measured_rows(problem.X, problem.bias))
    at_zero = problem.losses(np.zeros((problem.n_samples, problem.n_outputs)), slice(None))
    constant = problem.C[0] * at_zero[0]
    assert constant > 0.0
    assert linear_of(problem, state.dual_coef)[0] == pytest.approx(constant)
    assert 0 not in state.due_examples()
    assert 1 not in state.due_examples()  # of cost zero


# Section 10: the heuristics


def test_an_example_that_never_moves_is_visited_at_these_rounds():
    # A margin of 0 and weights of 0: nothing is violated, b = 0 is a corner.
    problem = ScalarProblem.hinge(np.ones(1), np.zeros(1), np.ones(1), X=np.ones((1, 1)))
    state = make_dual(problem, measured_rows(problem.X, problem.bias), longest_wait=LONGEST_WAIT)
    iterations = []
    while state.iteration < 260:
        order = state.due_examples()
        iterations += [state.iteration] * len(order)
        state.sweep(order, 0.0)
        state.iteration += 1
    assert iterations == [0, 2, 6, 14, 30, 62, 126, 190, 254]


def test_weights_of_the_average_grow_as_a_cube():
    T = 20
    average, snapshots = np.zeros((T, 1)), np.zeros(1, dtype=np.int64)
    for t in range(T):
        add_snapshot(np.eye(T)[:, [t]], average, snapshots)
    s = np.arange(1, T + 1)
    expected = 4 * s * (s + 1) * (s + 2) / (T * (T + 1) * (T + 2) * (T + 3))
    assert_allclose(average[:, 0], expected, rtol=1e-12)
    assert expected.sum() == pytest.approx(1.0)


def test_extrapolation_factors_and_restart():
    factors, reverted = [], []
    state = SimpleNamespace(
        dual=0.0, extrapolate=factors.append, revert=lambda: reverted.append(True)
    )
    momentum = Momentum(state)
    for gain in (1.0, 1.0, 1.0, -1.0, 1.0):
        momentum.apply()
        early = [momentum.settle() for _ in range(SWEEPS_PER_EXTRAPOLATION - 1)]
        assert not any(early)
        state.dual += gain
        assert momentum.settle()
    assert_allclose(factors, [0.0, 0.282, 0.434, 0.531, 0.0], atol=5e-4)
    assert reverted == [True]


def test_line_search_with_clipped_weights_finds_the_maximum():
    random = np.random.default_rng(0)
    shapes = SimpleNamespace(nonnegative=True, unclipped=None)
    for _ in range(50):
        shapes.unclipped = random.normal(size=(6, 1))
        direction = random.normal(size=(6, 1))
        linear = float(random.uniform(0.0, 2.0))

        def slope(step, unclipped=shapes.unclipped, direction=direction, linear=linear):
            moved = unclipped + step * direction
            moved[:-1] = np.maximum(moved[:-1], 0.0)
            return linear - float(np.sum(moved * direction))

        if slope(0.0) > 1e-3 and slope(1.0) < -1e-3:
            expected = optimize.brentq(slope, 0.0, 1.0)
            products = float(np.sum(shapes.unclipped * direction)), float(np.sum(direction**2))
            found = SharedWeights.line_search(shapes, linear, direction, *products)
            assert found == pytest.approx(expected, abs=1e-2)


@settings(max_examples=50, deadline=None)
@given(seed=SEEDS)
def test_moves_of_threads_fall_short_of_the_segment_only_where_signs_change(seed):
    """The chord of the linear term is below it: a line search on the chord is safe."""
    problem = random_case("epsilon-insensitive", seed).problem
    random = np.random.default_rng(seed)
    start, end = random_dual(problem, random), random_dual(problem, random)
    for step in (0.25, 0.5, 0.75):
        chord = (1 - step) * problem.linear(start) + step * problem.linear(end)
        exact = problem.linear((1 - step) * start + step * end)
        assert chord <= exact + 1e-12 * (1.0 + abs(exact))


@pytest.mark.parametrize("ratio", [1.01, 1.5, 4.0])
@pytest.mark.parametrize("kind", KINDS)
def test_when_a_start_in_proportion_is_the_better_one(kind, ratio):
    case = random_case(kind, 6)
    problem, optimum = case.problem, case.optimum()
    model = make_dual(problem, measured_rows(problem.X, problem.bias))
    for _ in range(2000):
        model.sweep(model.due_examples(), 0.0)
        model.iteration += 1
    best = problem.feasible(model.dual_coef)
    size = np.sum(optimum.weights**2)
    paid = optimum.value - 0.5 * size  # cost times losses
    assert problem.linear(best) == pytest.approx(size + paid, rel=1e-5)
    gain = (ratio - 1) * (paid - 0.5 * (ratio - 1) * size)
    found = problem.dual(ratio * best) - problem.dual(best)
    assert found == pytest.approx(gain, rel=1e-4, abs=1e-5 * optimum.value)
