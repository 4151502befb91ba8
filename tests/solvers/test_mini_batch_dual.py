"""The solvers of kernel problems against clarabel on the dual with every output written out."""

import kernel_referee
import numpy as np
import pytest
import structured_referee
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from maxmargin.compiled.rows import padded
from maxmargin.core.kernel import (
    Candidates,
    FunctionKernel,
    JointKernel,
    KernelProblem,
    LinearKernel,
    ProductKernel,
    RBFKernel,
)
from maxmargin.core.kernel_oracle import ClassOracle, KernelClasses, KernelOracle
from maxmargin.core.oracle import Threads
from maxmargin.core.problem import ProblemError
from maxmargin.core.result import Status
from maxmargin.solvers.kernel_classes_dual import CachedRows, KernelClassesDual, project
from maxmargin.solvers.loop import Stopping
from maxmargin.solvers.mini_batch_dual import MiniBatchDual

TIGHT = 1e-6


class Turns(KernelProblem):
    """Which of some windows of an input, turned how: parts are rows of x, labels are angles."""

    angles = (0.0, 1.0, 2.5)

    def outputs(self, x):
        return [(k, angle) for k in range(len(x)) for angle in self.angles]

    def loss(self, y_true, y):
        return 0.5 * (y_true[0] != y[0]) + 0.3 * abs(y_true[1] - y[1])

    def part(self, x, y):
        return x[y[0]]

    def label(self, y):
        return y[1]


class GridOfTurns(Turns):
    """The same with candidates made at once."""

    def candidates(self, x):
        return Candidates.grid(self.outputs(x), x, np.array(self.angles)[:, None])

    def losses(self, y_true, candidates):
        return np.array([self.loss(y_true, y) for y in candidates.outputs])


LABELS = RBFKernel(0.8)
PARTS = {
    "linear": (LinearKernel(), lambda a, b: a @ b),
    "rbf": (RBFKernel(0.3), lambda a, b: np.exp(-0.3 * np.sum((a - b) ** 2))),
}


def turns(seed, n=7):
    """Inputs whose true angles are in the list or between, and costs, one of them zero."""
    random = np.random.default_rng(seed)
    X = [random.normal(size=(int(random.integers(1, 4)), 3)) for _ in range(n)]
    Y = [(int(random.integers(len(x))), float(random.choice([0.0, 1.0, 1.7, 2.5]))) for x in X]
    C = random.uniform(0.1, 1.0, n) * 10.0 ** random.uniform(-1.0, 1.0)
    C[1] = 0.0
    return X, Y, C


def referee_value(X, Y, C, parts, rescaling="margin"):
    formula = PARTS[parts][1]

    def kernel(p, q):
        return formula(p[0], q[0]) * np.exp(-0.8 * (p[1] - q[1]) ** 2)

    return kernel_referee.optimum(Turns(), X, Y, C, kernel, rescaling)


def training_of(X, Y, C, parts="rbf", problem=Turns, rescaling="margin"):
    kernel = ProductKernel(PARTS[parts][0], LABELS)
    return KernelOracle(problem(), X, Y, C, kernel, rescaling)


def solve(oracle, tol=TIGHT, max_iter=20_000, seed=0, n_jobs=1, start=None, **options):
    solver = MiniBatchDual(**options)
    stopping = Stopping(tol=tol, max_iter=max_iter)
    return solver.solve(oracle, stopping, seed=seed, n_jobs=n_jobs, start=start)


def assert_certifies(result, value, tol=TIGHT):
    certificate = result.certificate
    assert result.status is Status.CONVERGED
    assert certificate.relative_gap <= tol
    assert certificate.dual <= value * (1 + 1e-6) + 1e-9
    assert certificate.primal >= value * (1 - 1e-6) - 1e-9


@pytest.mark.diagonal
@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("steps", ["qp", "smo"])
@pytest.mark.parametrize("seed", range(3))
def test_optimum_is_the_referees(seed, steps, parts):
    X, Y, C = turns(seed)
    value = referee_value(X, Y, C, parts)
    assert_certifies(solve(training_of(X, Y, C, parts), steps=steps), value)


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("steps", ["qp", "smo"])
@pytest.mark.parametrize("seed", range(2))
def test_optimum_with_slack_rescaling_is_the_referees(seed, steps, parts):
    X, Y, C = turns(seed)
    value = referee_value(X, Y, C, parts, "slack")
    assert value != pytest.approx(referee_value(X, Y, C, parts), rel=1e-2)
    oracle = training_of(X, Y, C, parts, rescaling="slack")
    options = {"outputs_per_call": 2, "prune_every": 2, "max_idle": 1}
    assert_certifies(solve(oracle, steps=steps, **options), value)


def test_primal_value_with_slack_rescaling_is_that_of_its_definition():
    """The primal value of a model, by the definition."""
    case = structured_referee.random_classes(3)
    oracle = KernelOracle(case.problem, case.X, case.Y, case.C, LinearKernel(), rescaling="slack")
    result = solve(oracle)
    problem, model = case.problem, result.weights
    total = model.half_square
    for x, y_true, C in zip(case.X, case.Y, case.C, strict=True):
        features = np.array([problem.joint_feature(x, y) for y in [y_true, *problem.outputs(x)]])
        scores = features @ (model.parts.T @ model.factors.toarray().ravel())
        losses = np.array([problem.loss(y_true, y) for y in problem.outputs(x)])
        total += C * max(0.0, np.max(losses * (1.0 + scores[1:] - scores[0])))
    assert total == pytest.approx(result.certificate.primal)


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 1},
        {"batch_size": 100},
        {"outputs_per_call": 3},
        {"outputs_per_call": 3, "diversity": 0.7},
        {"outputs_per_call": 100, "diversity": 0.1},
        {"prune_every": 1, "max_idle": 1},
        {"prune_every": 2, "max_idle": 1, "steps": "smo", "batch_size": 2},
    ],
    ids=str,
)
def test_no_option_changes_the_optimum(options):
    X, Y, C = turns(11)
    value = referee_value(X, Y, C, "rbf")
    assert_certifies(solve(training_of(X, Y, C), **options), value)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "make", [structured_referee.random_classes, structured_referee.random_chains]
)
def test_linear_kernel_of_joint_features_is_the_linear_problem(make, seed):
    case = make(seed)
    oracle = KernelOracle(case.problem, case.X, case.Y, case.C, LinearKernel())
    assert_certifies(solve(oracle), case.optimum.value)


def test_grids_are_lists():
    X, Y, C = turns(3)
    one, other = training_of(X, Y, C), training_of(X, Y, C, problem=GridOfTurns)
    model = solve(one, max_iter=3).weights
    for count in (1, 4):
        found = one.infer(model, np.arange(len(X)), Threads(1), count, 0.3)
        again = other.infer(model, np.arange(len(X)), Threads(1), count, 0.3)
        assert found.outputs.outputs == again.outputs.outputs
        assert_allclose(found.slopes, again.slopes, atol=1e-12)
        assert_allclose(found.hinges, again.hinges, atol=1e-12)


def test_joint_kernel_is_the_product():
    X, Y, C = turns(5)
    joint = JointKernel(
        lambda x, y, x2, y2: (x[y[0]] @ x2[y2[0]]) * np.exp(-0.8 * (y[1] - y2[1]) ** 2)
    )
    oracle = KernelOracle(Turns(), X, Y, C, joint)
    assert_certifies(solve(oracle), referee_value(X, Y, C, "linear"))


def test_function_of_rows_is_the_kernel_by_name():
    X, Y, C = turns(6)
    function = FunctionKernel(lambda A, B: RBFKernel(0.3)(A, B))
    oracle = KernelOracle(Turns(), X, Y, C, ProductKernel(function, LABELS))
    assert_certifies(solve(oracle), referee_value(X, Y, C, "rbf"))


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    steps=st.sampled_from(["qp", "smo"]),
    count=st.integers(1, 3),
    batch_size=st.integers(1, 8),
    rescaling=st.sampled_from(["margin", "slack"]),
)
def test_dual_never_falls_and_never_passes_a_primal(seed, steps, count, batch_size, rescaling):
    X, Y, C = turns(seed)
    oracle = training_of(X, Y, C, rescaling=rescaling)
    options = {"steps": steps, "outputs_per_call": count, "batch_size": batch_size}
    result = solve(oracle, tol=1e-4, prune_every=3, max_idle=2, **options)
    duals = [line.dual for line in result.history]
    assert (np.diff([0.0, *duals]) >= -1e-10 * (1.0 + abs(duals[-1]))).all()
    primal = oracle.primal(result.weights)
    assert primal == pytest.approx(result.certificate.primal)
    assert oracle.dual(result.dual_point) == pytest.approx(result.certificate.dual)
    assert duals[-1] <= primal + 1e-9
    assert oracle.primal(oracle.model_of(result.dual_point)) >= result.certificate.dual - 1e-9


def assert_greedy(taken, gains, differences, count, diversity):
    """Each is the highest, of all not yet taken, in gain plus bonus; equals may take turns."""
    assert len(taken) == len(set(taken)) == min(count, len(gains))
    for k, choice in enumerate(taken):
        values = {
            other: gains[other] + diversity * sum(differences[t][other] for t in taken[:k])
            for other in range(len(gains))
            if other not in taken[:k]
        }
        assert values[choice] >= max(values.values()) - 1e-9


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 12), diversity=st.sampled_from([0, 0.3, 5]))
def test_diverse_outputs_are_those_of_brute_force(seed, count, diversity):
    X, Y, C = turns(seed)
    oracle, problem = training_of(X, Y, C), Turns()
    model = solve(oracle, max_iter=2).weights
    found = oracle.infer(model, np.arange(len(X)), Threads(1), count, float(diversity))
    at = 0
    for i, (x, y_true) in enumerate(zip(X, Y, strict=True)):
        listed = problem.outputs(x)
        rows = np.array([problem.part(x, y) for y in [y_true, *listed]])
        labels = np.array([[y[1]] for y in [y_true, *listed]])
        scores = model.pair_scores(rows, labels)
        gains = scores[1:] - scores[0] + [problem.loss(y_true, y) for y in listed]
        differences = [[problem.loss(y, z) for z in listed] for y in listed]
        part = slice(at, at + min(count, len(listed)))
        taken = [listed.index(y) for y in found.outputs.outputs[part]]
        assert_greedy(taken, gains, differences, count, float(diversity))
        assert_allclose(found.slopes[part], gains[taken], atol=1e-9)
        assert found.hinges[i] == pytest.approx(max(gains.max(), 0.0), abs=1e-9)
        at = part.stop
    assert at == len(found.slopes)


def test_scores_are_explicit_kernel_sums():
    X, Y, C = turns(8)
    oracle = training_of(X, Y, C)
    result = solve(oracle)
    point, model = result.dual_point, result.weights
    random = np.random.default_rng(0)
    for part, angle in zip(random.normal(size=(5, 3)), random.uniform(0, 3, 5), strict=True):
        total = 0.0
        for i, y, coef in zip(point.examples, point.outputs, point.coef, strict=True):
            for output, sign in ((Y[i], 1.0), (y, -1.0)):
                near = np.exp(-0.3 * np.sum((X[i][output[0]] - part) ** 2))
                total += sign * coef * near * np.exp(-0.8 * (output[1] - angle) ** 2)
        scored = model.pair_scores(part[None, :], np.array([[angle]]))
        assert scored[0] == pytest.approx(total, abs=1e-10)


def test_large_epsilon_ends_early_and_says_the_gap():
    X, Y, C = turns(2, n=12)
    exact = solve(training_of(X, Y, C))
    rough = solve(training_of(X, Y, C), epsilon=0.2)
    assert rough.status is Status.CONVERGED
    assert rough.iterations < exact.iterations
    assert rough.certificate.gap <= 0.25 * C.sum() + TIGHT
    none = solve(training_of(X, Y, C), epsilon=100.0)
    assert none.iterations == 2
    assert none.certificate.dual == 0.0


def test_threads_change_nothing():
    X, Y, C = turns(4, n=20)
    one, two = (solve(training_of(X, Y, C), n_jobs=n) for n in (1, 2))
    assert one.certificate == two.certificate
    assert_array_equal(one.dual_point.coef, two.dual_point.coef)


def test_same_seed_same_answer():
    X, Y, C = turns(4)
    one, two, other = (solve(training_of(X, Y, C), seed=seed, tol=1e-2) for seed in (1, 1, 2))
    assert_array_equal(one.dual_point.coef, two.dual_point.coef)
    assert other.certificate.primal == pytest.approx(one.certificate.primal, rel=2e-2)


def test_warm_start_begins_where_the_other_ended():
    X, Y, C = turns(9)
    first = solve(training_of(X, Y, C))
    again = solve(training_of(X, Y, C), start=first.dual_point)
    assert again.history[0].dual >= first.certificate.dual * (1 - 1e-9)
    assert again.iterations <= first.iterations
    smaller = solve(training_of(X, Y, 0.3 * C), start=first.dual_point)
    assert_certifies(smaller, referee_value(X, Y, 0.3 * C, "rbf"))


def test_stopped_early_is_certified():
    X, Y, C = turns(9)
    result = solve(training_of(X, Y, C), max_iter=1, batch_size=2)
    assert result.status is Status.MAX_ITER
    assert result.certificate.dual <= result.certificate.primal
    value = referee_value(X, Y, C, "rbf")
    assert result.certificate.dual <= value <= result.certificate.primal + 1e-8


def test_interrupt_is_certified():
    X, Y, C = turns(9)
    oracle = training_of(X, Y, C)

    def interrupt(line, model):
        raise KeyboardInterrupt

    result = MiniBatchDual().solve(oracle, Stopping(tol=1e-9), on_iteration=interrupt)
    assert result.status is Status.INTERRUPTED
    assert result.certificate.primal == pytest.approx(oracle.primal(result.weights))


def test_problem_that_fails_is_named():
    class Failing(Turns):
        calls = 0

        def loss(self, y_true, y):
            Failing.calls += 1
            if Failing.calls > 200:
                raise RuntimeError("no more")
            return super().loss(y_true, y)

    X, Y, C = turns(9)
    kernel = ProductKernel("linear", LABELS)
    with pytest.raises(
        ProblemError, match=r"loss.* of Failing raised RuntimeError .*: no more"
    ) as e:
        solve(KernelOracle(Failing(), X, Y, C, kernel))
    assert e.value.result.status is Status.FAILED


def test_negative_loss_is_named():
    class Negative(Turns):
        def loss(self, y_true, y):
            return -1.0

    X, Y, C = turns(9)
    with pytest.raises(ProblemError, match=r"loss of Negative must be a finite number.*it is -1"):
        solve(KernelOracle(Negative(), X, Y, C, ProductKernel("linear", LABELS)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0, but must be at least 1"),
        ({"outputs_per_call": 0}, "outputs_per_call is 0"),
        ({"diversity": -1.0}, "diversity is -1.0, but must not be negative"),
        ({"epsilon": float("nan")}, "epsilon is nan"),
        ({"steps": "newton"}, "steps is 'newton', but must be 'qp' or 'smo'"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        MiniBatchDual(**options)


# Classes


def class_case(seed, n=25, k=4):
    random = np.random.default_rng(seed)
    X, labels = random.normal(size=(n, 3)), random.integers(0, k, n)
    labels[:k] = np.arange(k)
    C = random.uniform(0.1, 1.0, n) * 10.0 ** random.uniform(-1.0, 1.5)
    C[-1] = 0.0
    loss = random.uniform(0.2, 2.0, (k, k)) * (1.0 - np.eye(k))
    return X, labels, C, KernelClasses(np.arange(k), loss)


def class_training(X, labels, C, problem, kernel):
    return ClassOracle(problem, X, labels, C, kernel)


def solve_classes(oracle, tol=TIGHT, start=None, **options):
    return KernelClassesDual(**options).solve(oracle, Stopping(tol=tol), start=start)


@pytest.mark.diagonal
@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("seed", range(3))
def test_classes_optimum_is_the_referees(seed, parts, k):
    X, labels, C, problem = class_case(seed, k=k)
    kernel, formula = PARTS[parts]
    value = kernel_referee.optimum(
        problem, X, labels.tolist(), C, lambda p, q: formula(p[0], q[0]) * (p[1] @ q[1])
    )
    result = solve_classes(class_training(X, labels, C, problem, kernel))
    assert_certifies(result, value)
    general = KernelOracle(problem, X, labels.tolist(), C, kernel)
    assert_certifies(solve(general), value)
    assert general.primal(result.weights) == pytest.approx(result.certificate.primal)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), k=st.integers(2, 6))
def test_classes_dual_never_falls_and_is_certified(seed, k):
    X, labels, C, problem = class_case(seed, k=k)
    result = solve_classes(class_training(X, labels, C, problem, RBFKernel(0.3)), tol=1e-4)
    duals = [line.dual for line in result.history]
    assert (np.diff([0.0, *duals]) >= -1e-7 * (1.0 + abs(duals[-1]))).all()  # in single precision
    assert -1e-12 <= result.certificate.relative_gap <= 1e-4
    assert duals[-1] == pytest.approx(result.certificate.dual, rel=1e-5)


def test_small_cache_finds_the_same_optimum():
    X, labels, C, problem = class_case(3, n=300)
    oracle = class_training(X, labels, C, problem, RBFKernel(0.3))
    all_rows, few_rows = (solve_classes(oracle, cache_bytes=size) for size in (10**9, 1))
    assert few_rows.status is all_rows.status is Status.CONVERGED
    assert few_rows.certificate.primal >= all_rows.certificate.dual
    assert all_rows.certificate.primal >= few_rows.certificate.dual


def test_classes_warm_start():
    X, labels, C, problem = class_case(4)
    oracle = class_training(X, labels, C, problem, RBFKernel(0.3))
    first = solve_classes(oracle)
    again = solve_classes(oracle, start=first.dual_point)
    assert again.iterations == 1
    half = class_training(X, labels, 0.5 * C, problem, RBFKernel(0.3))
    from_more, anew = solve_classes(half, start=first.dual_point), solve_classes(half)
    assert from_more.certificate.primal == pytest.approx(anew.certificate.primal, rel=3e-6)


def test_start_of_other_classes_is_left_alone():
    X, labels, C, problem = class_case(4)
    oracle = class_training(X, labels, C, problem, RBFKernel(0.3))
    other = solve_classes(class_training(*class_case(4, k=3), RBFKernel(0.3))).dual_point
    from_other, anew = solve_classes(oracle, start=other), solve_classes(oracle)
    assert_array_equal(from_other.dual_point, anew.dual_point)


def test_moves_of_rows_at_hand_count_what_is_outside():
    """The dual of some rows, with the others at rest, differs from that of all by a constant."""
    X, labels, C, problem = class_case(6, n=40)
    oracle = class_training(X, labels, C, problem, RBFKernel(0.3))
    coef = np.zeros((40, padded(4)))
    coef[:, :4] = solve_classes(oracle, tol=0.2).dual_point
    gram, some = RBFKernel(0.3)(X, X), np.arange(0, 40, 3)

    def whole(changed):
        total = coef[:, :4].copy()
        total[some] = changed[:, :4]
        losses = problem.loss_matrix[labels]
        return -np.sum(total * losses) - 0.5 * np.sum(total * (gram @ total)), total

    hand = CachedRows(
        gram[np.ix_(some, some)], 1.0, np.ascontiguousarray((gram @ coef[:, :4])[some].T),
        coef[some], labels[some], problem.loss_matrix, C[some],
    )  # fmt: skip
    constant = whole(hand.coef)[0] - hand.dual
    for momentum in (0.0, 0.5, 0.9):
        hand.extrapolate(momentum)
        before = hand.dual
        assert whole(hand.coef)[0] - before == pytest.approx(constant)
        hand.sweep(1e-9)
        assert hand.dual >= before - 1e-12
        value, total = whole(hand.coef)
        assert value - hand.dual == pytest.approx(constant)
        assert_allclose(hand.scores.T, (gram @ total)[some], atol=1e-10)
        oracle.certify(total, oracle.scores_of(total, Threads(1)))  # feasible
    best = hand.dual
    hand.extrapolate(0.0)
    hand.sweep(0.0)
    hand.revert()
    assert hand.dual == pytest.approx(best)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6), k=st.integers(2, 6))
def test_projections_are_the_nearest_feasible_points(seed, k):
    random = np.random.default_rng(seed)
    labels, C = random.integers(0, k, 5), random.uniform(0.0, 2.0, 5)
    C[0] = 0.0
    wanted = np.zeros((5, padded(k)))
    wanted[:, :k] = random.normal(size=(5, k))
    found = wanted.copy()
    project(found, k, labels, C)
    own = np.eye(k)[labels]
    a, b = (C[:, None] * own - each[:, :k] for each in (found, wanted))
    assert (a >= -1e-12).all()
    assert_allclose(a.sum(axis=1), C, atol=1e-9)
    # Optimal: what is left is the same wherever a is positive, and no larger elsewhere.
    for row, rest in zip(a, b - a, strict=True):
        if row.any():
            assert rest.max() - rest[row > 1e-9].min() <= 1e-9


def test_infeasible_coefficients_are_refused():
    X, labels, C, problem = class_case(4)
    oracle = class_training(X, labels, C, problem, RBFKernel(0.3))
    coef = solve_classes(oracle).dual_point
    with pytest.raises(ValueError, match="not feasible"):
        oracle.certify(1.5 * coef, oracle.scores_of(1.5 * coef, Threads(1)))
