"""Every solver of structured problems against the referee, and its promises about stopping."""

import signal
import threading
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from structured_referee import (
    Case,
    Classes,
    compiled_chains,
    narrow,
    random_chains,
    random_classes,
    widen,
)

from maxmargin.compiled.rows import add_to
from maxmargin.core.certificate import certify
from maxmargin.core.oracle import Threads
from maxmargin.core.oracle_check import ProblemWarning
from maxmargin.core.problem import ProblemError
from maxmargin.core.result import Status
from maxmargin.solvers.block_coordinate import Auto, DualCoordinate, FrankWolfe
from maxmargin.solvers.cutting_plane import NSlack, OneSlack
from maxmargin.solvers.loop import Stopping
from maxmargin.solvers.online import Online
from maxmargin.solvers.partial_linearization import ExponentiatedGradient, PartialLinearization
from maxmargin.solvers.structured import BlockRun
from maxmargin.training.fit import SOLVERS, make_solver

KINDS = ("classes", "chains", "compiled")

FAST = {
    "auto": Auto(),
    "auto, no acceleration": Auto(acceleration=False),
    "auto, no sweeps": Auto(acceleration=False, max_sweeps=0),
    "auto, short memory": Auto(max_idle=0, max_steps=3, oracle_cost=0.0),
    "auto, batches": Auto(batch_size=5),
    "dual-coordinate, tracked": DualCoordinate(),
    "dual-coordinate, true": DualCoordinate(bound="true", batch_size=3),
    "n-slack": NSlack(),
    "n-slack, eager": NSlack(update_every=3, precision=0.5, max_idle=3),
    "one-slack, cache": OneSlack(),
    "one-slack, small cache": OneSlack(cache=1, accept=0.1, max_idle=5),
    "one-slack, no cache": OneSlack(cache=0, precision=0.01),
    "frank-wolfe, away": FrankWolfe(step="away", cache_sweeps=1),
    "frank-wolfe, pairwise": FrankWolfe(step="pairwise"),
}
SLOW = {
    "frank-wolfe": FrankWolfe(),
    "frank-wolfe, no averaging": FrankWolfe(averaging=False, evaluate_every=3),
    "frank-wolfe, gap sampling": FrankWolfe(gap_sampling=True),
    "frank-wolfe, cache": FrankWolfe(cache_sweeps=3, batch_size=4),
    "frank-wolfe, all blocks": FrankWolfe(block=False),
    "one-slack, line search": OneSlack(cache=0, line_search=True),
    "one-slack, cache and line search": OneSlack(line_search=True),
}
ALL = FAST | SLOW


@cache
def case_of(kind, seed, rescaling="margin"):
    make = random_classes if kind == "classes" else random_chains
    return make(seed, rescaling=rescaling)


def training_of(kind, case):
    return compiled_chains(case) if kind == "compiled" else case.oracle()


def solve(oracle, solver, tol=1e-5, max_iter=300, **options):
    return solver.solve(oracle, Stopping(tol, max_iter), **options)


def plain(weights, oracle):
    """Weights as the plain-Python problem has them."""
    return narrow(weights, oracle.layout) if hasattr(oracle, "layout") else weights


def assert_brackets(result, case, oracle, slack=1e-9):
    """The certificate is true of the weights and the point, and the optimum lies in it."""
    optimum, certificate = case.optimum.value, result.certificate
    slack *= optimum
    assert certificate.dual - slack <= optimum <= certificate.primal + slack
    assert certificate == certify(oracle, result.weights, result.dual_point)
    weights = plain(result.weights, oracle)
    assert certificate.primal == pytest.approx(case.objective(weights), rel=1e-12)
    # The objective grows by at least half the squared distance from its minimum.
    apart = np.sum((weights - case.optimum.weights) ** 2)
    assert 0.5 * apart <= certificate.primal - optimum + 1e-6 * optimum


def assert_history(result, optimum):
    history = result.history
    assert len(history) == result.iterations
    assert all(b.dual >= a.dual for a, b in pairwise(history))
    assert all(b.primal <= a.primal for a, b in pairwise(history))
    assert all(b.oracle_calls >= a.oracle_calls for a, b in pairwise(history))
    assert all(b.seconds >= a.seconds for a, b in pairwise(history))
    for line in history:
        assert line.dual <= optimum * (1.0 + 1e-9)
        assert line.primal >= optimum * (1.0 - 1e-9)


def test_no_search_for_weights_that_planes_in_hand_rule_out(monkeypatch):
    """However hopeful the solver, it values nothing of which it could know it to be in vain."""
    oracle = case_of("chains", 0).oracle()
    solver = Auto(max_sweeps=0)
    run = solver.start(oracle, Stopping(1e-6, 100), Threads(1), 0)
    monkeypatch.setattr(BlockRun, "looks_done", lambda self: True)
    for _ in range(3):
        solver.iterate(run)
    assert run.calls == 3 * oracle.n_examples
    assert run.primal == np.inf
    monkeypatch.setattr(run.working_set, "hinges", lambda weights: 0.0)
    solver.iterate(run)
    assert run.calls == (4 + 2) * oracle.n_examples  # the weights and their average
    assert run.primal < np.inf


@pytest.mark.diagonal
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", list(FAST))
def test_agrees_with_the_referee(name, kind):
    for seed in range(3):
        case = case_of(kind, seed)
        oracle = training_of(kind, case)
        result = solve(oracle, FAST[name])
        optimum = case.optimum.value
        assert result.status is Status.CONVERGED
        assert result.certificate.relative_gap <= 1e-5
        assert result.certificate.primal == pytest.approx(optimum, rel=1e-4)
        assert_brackets(result, case, oracle)
        assert_history(result, optimum)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SLOW)
def test_slow_methods_hold_the_optimum_between_their_bounds(name, kind):
    for seed in range(2):
        case = case_of(kind, seed)
        oracle = training_of(kind, case)
        result = solve(oracle, SLOW[name], tol=2e-2, max_iter=2000)
        assert result.status is Status.CONVERGED
        assert result.certificate.relative_gap <= 2e-2
        assert_brackets(result, case, oracle)
        assert_history(result, case.optimum.value)


@pytest.mark.parametrize("kind", ["classes", "chains"])
@pytest.mark.parametrize("name", ["auto", "n-slack", "one-slack, cache", "one-slack, no cache"])
def test_slack_rescaling(name, kind):
    for seed in range(2):
        case = case_of(kind, seed, "slack")
        assert case.optimum.value != pytest.approx(case_of(kind, seed).optimum.value, rel=0.01)
        result = solve(case.oracle(), ALL[name])
        assert result.status is Status.CONVERGED
        assert_brackets(result, case, case.oracle())


@pytest.mark.parametrize("name", ALL)
def test_what_a_run_keeps_in_step_is_true_and_its_dual_never_falls(name):
    case = case_of("compiled", 1)
    oracle = training_of("compiled", case)
    run = ALL[name].start(oracle, Stopping(1e-12), Threads(1), seed=3)
    last = run.dual
    for _ in range(12):
        ALL[name].iterate(run)
        if not getattr(ALL[name], "acceleration", False):  # which may lower it for a while
            assert run.dual >= last - 1e-12
        last, point = run.dual, run.point()
        assert run.dual == pytest.approx(oracle.dual(point), rel=1e-10)
        fresh = np.zeros(oracle.n_features)
        add_to(fresh, oracle.cuts_of(point.examples, point.outputs), point.coef)
        np.testing.assert_allclose(run.weights, fresh, atol=1e-10)


def test_two_ways_to_state_the_chains_meet():
    case = case_of("chains", 4)
    compiled = compiled_chains(case)
    weights = np.random.default_rng(0).normal(size=case.oracle().n_features)
    assert compiled.primal(widen(weights, compiled.layout)) == pytest.approx(
        case.oracle().primal(weights), rel=1e-12
    )
    np.testing.assert_array_equal(narrow(widen(weights, compiled.layout), compiled.layout), weights)


@pytest.mark.parametrize("name", ALL)
def test_an_example_without_cost_has_no_say(name):
    case = case_of("classes", 2)
    assert case.C[1] == 0.0
    moved = Case(case.problem, [*case.X], [*case.Y], case.C)
    moved.X[1] = 100.0 * np.ones_like(case.X[1])
    tol = 3e-2 if name in SLOW else 1e-4
    result = solve(moved.oracle(), ALL[name], tol=tol, max_iter=2000)
    assert result.certificate.primal == pytest.approx(case.optimum.value, rel=2.0 * tol)
    assert not result.dual_point.coef[result.dual_point.examples == 1].any()


@pytest.mark.diagonal
@pytest.mark.parametrize("kind", ["classes", "compiled"])
@pytest.mark.parametrize("name", [n for n in FAST if n != "frank-wolfe, pairwise"])
def test_starts_from_an_earlier_result(name, kind):
    case = case_of(kind, 0)
    oracle = training_of(kind, case)
    first = solve(oracle, FAST[name])
    assert first.iterations > 2
    again = solve(oracle, FAST[name], start=first.dual_point)
    assert again.status is Status.CONVERGED
    assert again.iterations <= max(2, first.iterations // 2)
    for factor in (0.3, 3.0):
        other = case.with_cost(factor * case.C)
        oracle = training_of(kind, other)
        result = solve(oracle, FAST[name], max_iter=2000, start=first.dual_point)
        assert result.status is Status.CONVERGED
        assert_brackets(result, other, oracle)


def test_a_point_of_one_solver_starts_another():
    oracle = training_of("compiled", case_of("compiled", 0))
    for before, after in [(OneSlack(), Auto()), (Auto(), OneSlack()), (NSlack(), FrankWolfe())]:
        point = solve(oracle, before).dual_point
        assert solve(oracle, after, tol=1e-4, start=point).iterations <= 2


def test_an_empty_point_starts_any_solver():
    oracle = training_of("compiled", case_of("compiled", 0))
    nothing = solve(oracle, Auto(), max_iter=0).dual_point
    assert not len(nothing.coef)
    for solver in (Auto(), OneSlack()):
        assert solve(oracle, solver, start=nothing).status is Status.CONVERGED


@pytest.mark.parametrize("name", ALL)
def test_same_bits_whatever_the_number_of_threads(name):
    oracle = compiled_chains(random_chains(5, n=60))
    options = {"tol": 1e-3, "max_iter": 10, "seed": 4}
    one, again, two = (solve(oracle, ALL[name], n_jobs=n, **options) for n in (1, 1, 2))
    for other in (again, two):
        np.testing.assert_array_equal(one.weights, other.weights)
        np.testing.assert_array_equal(one.dual_point.coef, other.dual_point.coef)
        assert one.dual_point.outputs == other.dual_point.outputs
        assert one.certificate == other.certificate


@pytest.mark.parametrize("name", ["auto", "dual-coordinate, tracked", "n-slack", "frank-wolfe"])
def test_another_seed_takes_another_way(name):
    oracle = compiled_chains(random_chains(5, n=60))
    one, two = (solve(oracle, ALL[name], max_iter=3, seed=seed) for seed in (0, 1))
    assert not np.array_equal(one.weights, two.weights)


@pytest.mark.parametrize("name", ALL)
def test_a_callback_sees_every_round_and_can_stop(name):
    case = case_of("classes", 0)
    seen = []

    def on_iteration(line, weights):
        seen.append((line, weights()))
        return len(seen) == 3

    result = solve(case.oracle(), ALL[name], tol=1e-12, on_iteration=on_iteration)
    assert result.status is Status.STOPPED
    assert [line for line, _ in seen] == result.history
    assert all(weights.shape == result.weights.shape for _, weights in seen)
    assert_brackets(result, case, case.oracle())


@pytest.mark.diagonal
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("limit", "status", "iterations"),
    [({"max_iter": 2}, Status.MAX_ITER, 2), ({"time_limit": 1e-9}, Status.TIME_LIMIT, 0)],
)
def test_stopping_early_still_certifies(name, limit, status, iterations):
    case = case_of("chains", 0)
    result = ALL[name].solve(case.oracle(), Stopping(1e-12, **limit))
    assert result.status is status
    assert result.iterations == iterations
    assert_brackets(result, case, case.oracle())


@pytest.mark.parametrize("name", ALL)
def test_time_runs_out_on_the_way(name):
    case = case_of("chains", 0)
    stopping = Stopping(1e-15, 10**9, time_limit=0.03)
    result = ALL[name].solve(case.oracle(), stopping)
    assert result.status in (Status.TIME_LIMIT, Status.CONVERGED)
    assert stopping.seconds < 3.0
    assert_brackets(result, case, case.oracle())


def test_cancelling_from_elsewhere():
    cancelled = threading.Event()
    stopping = Stopping(1e-12, cancelled=cancelled)
    result = Auto().solve(
        case_of("classes", 0).oracle(), stopping, on_iteration=lambda *_: cancelled.set() or False
    )
    assert result.status is Status.INTERRUPTED
    assert result.iterations == 1


class Fragile(Classes):
    """Its search raises `error` at call number `at`."""

    def __init__(self, matrix, at, error):
        super().__init__(matrix)
        self.at, self.error, self.calls = at, error, 0

    def loss_augmented_inference(self, x, y_true, w):
        self.calls += 1
        if self.calls == self.at:
            raise self.error
        return super().loss_augmented_inference(x, y_true, w)


def fragile(case, at, error):
    return Case(Fragile(case.problem.matrix, at, error), case.X, case.Y, case.C)


@pytest.mark.diagonal
@pytest.mark.parametrize("at", [1, 15, 50])
@pytest.mark.parametrize("name", ALL)
def test_ctrl_c_in_a_search_returns_the_best_so_far(name, at):
    case = case_of("classes", 0)
    oracle = fragile(case, at, KeyboardInterrupt()).oracle()
    result = solve(oracle, ALL[name], tol=1e-12)
    assert result.status is Status.INTERRUPTED
    assert_brackets(result, case, oracle)
    if at > len(case.X) + 2:
        assert result.certificate.dual > 0.1 * case.optimum.value


@pytest.mark.diagonal
@pytest.mark.parametrize("at", [1, 15, 50])
@pytest.mark.parametrize("name", ALL)
def test_an_error_in_a_search_has_the_result_up_to_there(name, at):
    case = case_of("classes", 0)
    oracle = fragile(case, at, RuntimeError("out of luck")).oracle()
    with pytest.raises(
        ProblemError, match=r"loss_augmented_inference .* example \d+: out of luck"
    ) as caught:
        solve(oracle, ALL[name], tol=1e-12)
    result, optimum = caught.value.result, case.optimum.value
    assert result.status is Status.FAILED
    assert result.certificate.primal == np.inf
    for dual in (result.certificate.dual, oracle.dual(result.dual_point)):
        assert 0.1 * optimum * (at > 3 * len(case.X)) <= dual <= optimum


def last_search(case):
    """Number of the last call in a whole solve, which belongs to the certificate."""
    counting = fragile(case, -1, None)
    solve(counting.oracle(), Auto())
    return counting.problem.calls


def test_an_error_while_certifying_has_the_result_up_to_there():
    case = case_of("classes", 0)
    oracle = fragile(case, last_search(case), RuntimeError("out of luck")).oracle()
    with pytest.raises(ProblemError) as caught:
        solve(oracle, Auto())
    assert caught.value.result is not None


def test_ctrl_c_while_certifying_loses_nothing():
    case = case_of("classes", 0)
    oracle = fragile(case, last_search(case), KeyboardInterrupt()).oracle()
    try:
        result = solve(oracle, Auto())
    except KeyboardInterrupt:
        pytest.fail("the weights are gone")
    assert_brackets(result, case, oracle)


@pytest.mark.parametrize(("at", "passes"), [(0, 2), (2, 1)])
def test_after_ctrl_c_every_example_is_searched_once_more(at, passes):
    """For the certificate; whoever has searches that take seconds does not want to wait longer.

    Only where the weights may be no better than zero weights yet, these are evaluated, too.
    """
    case = case_of("classes", 0)
    counting = fragile(case, -1, None)

    def interrupt(line, weights):
        if line.oracle_calls > at * len(case.X):
            calls.append(counting.problem.calls)
            raise KeyboardInterrupt

    calls = []
    oracle = counting.oracle()
    result = solve(oracle, Auto(), tol=1e-9, on_iteration=interrupt)
    assert result.status is Status.INTERRUPTED
    assert counting.problem.calls == calls[0] + passes * len(case.X)
    assert_brackets(result, case, oracle)


@pytest.mark.parametrize(
    "solver",
    [Auto(), NSlack(), OneSlack(), FrankWolfe(), PartialLinearization()],
    ids=lambda solver: type(solver).__name__,
)
def test_ctrl_c_at_any_moment_leaves_a_certified_answer(solver):
    def interrupt(number, frame):
        raise KeyboardInterrupt

    case = case_of("chains", 0)
    oracle = training_of("compiled", case)
    never = -1.0
    solve(oracle, solver, tol=never, max_iter=100)  # compiled before the clock ticks
    random = np.random.default_rng(0)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for delay in random.uniform(1e-4, 0.02, size=100):
            armed = []

            def arm(line, weights, delay=delay, armed=armed):
                if not armed:
                    # Again after a while: Python drops what is raised where nobody can catch it.
                    signal.setitimer(signal.ITIMER_REAL, delay, 5.0)
                    armed.append(line)

            result = solve(oracle, solver, tol=never, max_iter=10**6, on_iteration=arm)
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            assert result.status is Status.INTERRUPTED
            assert_brackets(result, case, oracle)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", ALL)
def test_nothing_to_learn(name):
    case = Case(Classes(np.zeros((1, 1))), [np.ones(2)] * 3, [0] * 3, np.ones(3))
    result = solve(case.oracle(), ALL[name])
    assert result.status is Status.CONVERGED
    assert result.certificate.primal == result.certificate.dual == 0.0
    assert not result.weights.any()


def test_gap_sampling_close_to_the_optimum():
    for seed in range(3):
        solver = FrankWolfe(gap_sampling=True, step="away", cache_sweeps=3)
        result = solve(case_of("classes", seed).oracle(), solver, tol=1e-16, max_iter=100)
        assert result.certificate.relative_gap < 1e-6


def test_one_slack_asks_less_of_its_cache_the_more_work_searches_are(monkeypatch):
    oracle = compiled_chains(random_chains(5, n=60))
    kind = type(oracle)
    run = OneSlack().start(oracle, Stopping(1e-3), Threads(1), seed=0)
    for _ in range(5):
        OneSlack().iterate(run)
    asked = {}
    for work in (None, 1e9, 0.0):
        monkeypatch.setattr(kind, "oracle_work", work)
        run.last_violation = 100.0
        asked[work] = run.asked(None)
        assert run.asked(0.3) == pytest.approx(30.0)
        run.last_violation = 0.0  # then half of the tolerance is left
        assert run.asked(None) == pytest.approx(0.5e-3 * run.dual)
    assert asked[None] == asked[1e9] == pytest.approx(20.0)
    assert asked[0.0] == pytest.approx(50.0)
    products = oracle.n_features * len(run.cuts)
    monkeypatch.setattr(kind, "oracle_work", 2.0 * products / oracle.n_examples)
    run.last_violation = 100.0
    assert run.asked(None) == pytest.approx(100.0 / 3.0)


def test_one_slack_searches_less_with_a_cache_that_it_trusts():
    oracle = compiled_chains(random_chains(5, n=60))
    calls = {
        accept: solve(oracle, OneSlack(accept=accept), tol=1e-4).history[-1].oracle_calls
        for accept in (0.2, 0.9)
    }
    without = solve(oracle, OneSlack(cache=0), tol=1e-4).history[-1].oracle_calls
    assert calls[0.2] < calls[0.9] < without


def test_a_search_that_is_no_maximum_is_found_out():
    class Forgetful(Classes):
        def loss_augmented_inference(self, x, y_true, w):
            return self.inference(x, w)

    case = case_of("classes", 0)
    oracle = Case(Forgetful(case.problem.matrix), case.X, case.Y, case.C).oracle()
    with (
        pytest.warns(ProblemWarning, match=r"loss_augmented_inference of Forgetful .* example \d+"),
        pytest.raises(ProblemError, match=r"loss_augmented_inference of Forgetful .* example \d+"),
    ):
        solve(oracle, Auto(), tol=1e-3)


def test_names():
    assert {type(make_solver(name)) for name in SOLVERS} == {
        Auto,
        DualCoordinate,
        ExponentiatedGradient,
        FrankWolfe,
        NSlack,
        OneSlack,
        Online,
        PartialLinearization,
    }
    solver = OneSlack(cache=0)
    assert make_solver(solver) is solver


class Blurred(Classes):
    """Searches that find the highest output, but admit that they may have missed it by `blur`."""

    exact = False
    blur = 0.05

    def cuts(self, xs, y_true, w):
        outputs = [self.loss_augmented_inference(x, y, w) for x, y in zip(xs, y_true, strict=True)]
        rows = [
            self.joint_feature(x, y) - self.joint_feature(x, z)
            for x, y, z in zip(xs, y_true, outputs, strict=True)
        ]
        losses = [self.loss(y, z) for y, z in zip(y_true, outputs, strict=True)]
        width = len(rows[0])
        return (
            np.arange(len(rows) + 1) * width,
            np.tile(np.arange(width), len(rows)),
            np.concatenate(rows),
            losses,
            outputs,
            np.full(len(rows), self.blur),
        )


@pytest.mark.parametrize("name", ["auto", "n-slack", "one-slack, cache", "frank-wolfe, pairwise"])
def test_relaxed_searches_have_a_valid_certificate_and_stop_when_they_are_stuck(name):
    case = case_of("classes", 0)
    oracle = case.oracle()
    exact = solve(oracle, ALL[name])
    problem = Blurred.__new__(Blurred)
    problem.__dict__.update(oracle.problem.__dict__)
    blurred = type(oracle)(problem, oracle.X, oracle.Y, oracle.C)
    relaxed = solve(blurred, ALL[name])
    assert relaxed.status is Status.RELAXED
    assert relaxed.certificate.relaxed
    assert "relaxed" in str(relaxed.certificate)
    assert not exact.certificate.relaxed
    # The optimum is between the two numbers, which lie as far apart as the searches admit.
    assert relaxed.certificate.dual <= exact.certificate.primal <= relaxed.certificate.primal
    admitted = Blurred.blur * oracle.C.sum()
    slack = 1e-4 * abs(exact.certificate.primal)
    assert admitted - slack <= relaxed.certificate.gap <= admitted + slack
