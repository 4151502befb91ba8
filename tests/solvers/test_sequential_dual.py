"""SequentialDual against the referee, its own invariants, and its promises about stopping."""

from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from linear_problems import KINDS, random_case

from maxmargin.compiled.rows import measured_rows
from maxmargin.core import oracle
from maxmargin.core.certificate import certify
from maxmargin.core.linear import OneVersusRest, ScalarProblem
from maxmargin.core.oracle import Threads
from maxmargin.core.result import Status
from maxmargin.dual import explicit
from maxmargin.dual.explicit import make_dual
from maxmargin.solvers.loop import Stopping
from maxmargin.solvers.sequential_dual import SequentialDual

PLAIN = SequentialDual(
    skip_idle_examples=False, skip_small_violations=False, acceleration=False, averaging=False
)

GEOMETRIES = {
    "plain": {},
    "bias": {"bias": 2.0},
    "nonnegative": {"nonnegative": True},
    "origin": {"with_origin": True},
    "everything": {"bias": 0.5, "nonnegative": True, "with_origin": True, "sparse": True},
}


def solve(problem, solver=None, tol=1e-9, **options):
    return (solver or SequentialDual()).solve(problem, Stopping(tol, 100_000), **options)


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_the_referee(kind, geometry):
    for seed in range(5):
        case = random_case(kind, seed, **GEOMETRIES[geometry])
        optimum = case.optimum().value
        result = solve(case.problem)
        assert result.status is Status.CONVERGED
        assert result.certificate.primal == pytest.approx(optimum, rel=1e-6, abs=1e-9)
        assert result.certificate.dual <= optimum * (1 + 1e-8) + 1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_switches_and_threads_lead_to_the_same_optimum(kind):
    case = random_case(kind, 7, n=200, bias=1.0)
    expected = solve(case.problem).certificate.primal
    every_example = SequentialDual(skip_idle_examples=False)
    for solver in (PLAIN, every_example, SequentialDual(acceleration=False)):
        assert solve(case.problem, solver).certificate.primal == pytest.approx(expected, rel=1e-8)
    two = solve(case.problem, n_jobs=2)
    assert two.status is Status.CONVERGED
    assert two.certificate.primal == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_same_bits(kind, n_jobs):
    problem = random_case(kind, 3, n=300, sparse=True).problem
    one, two = (solve(problem, tol=1e-2, n_jobs=n_jobs, seed=5) for _ in range(2))
    np.testing.assert_array_equal(one.weights, two.weights)
    np.testing.assert_array_equal(one.dual_point, two.dual_point)
    other = solve(problem, tol=1e-2, n_jobs=n_jobs, seed=6)
    assert not np.array_equal(one.dual_point, other.dual_point)


@pytest.mark.parametrize("kind", KINDS)
def test_dense_sparse_and_float32_are_the_same_problem(kind):
    expected = solve(random_case(kind, 1, dtype=np.float32).problem).certificate.primal
    for sparse, dtype in [(True, np.float32), (True, np.float64)]:
        case = random_case(kind, 1, sparse=sparse, dtype=dtype)
        assert solve(case.problem).certificate.primal == pytest.approx(expected, rel=1e-5)


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 10_000),
    nonnegative=st.booleans(),
    with_origin=st.booleans(),
    bias=st.sampled_from([0.0, 1.5]),
    k=st.integers(3, 9),
    n_jobs=st.sampled_from([1, 2]),
)
def test_dual_never_decreases_and_never_passes_the_primal(
    kind, seed, nonnegative, with_origin, bias, k, n_jobs
):
    problem = random_case(
        kind, seed, k=k, nonnegative=nonnegative, with_origin=with_origin, bias=bias
    ).problem
    measured = measured_rows(problem.X, problem.bias)
    with Threads(n_jobs) as threads:
        state = make_dual(problem, measured, longest_wait=3, threads=threads)
        scale = 1.0 + abs(state.primal(state.shared.weights))
        last = state.dual
        for _ in range(10):
            state.sweep(state.due_examples(), 0.0)
            state.iteration += 1
            assert state.dual >= last - 1e-12 * scale
            last = state.dual
            fresh = certify(
                problem, problem.weights(state.dual_coef), problem.feasible(state.dual_coef)
            )
            assert fresh.dual <= fresh.primal + 1e-12 * scale
            # What the sweeps keep in step equals what is computed anew.
            assert state.dual == pytest.approx(fresh.dual, abs=1e-10 * scale)
            assert state.primal(state.shared.weights) == pytest.approx(
                fresh.primal, abs=1e-10 * scale
            )


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 10_000),
    momentum=st.floats(0.0, 3.0),
    nonnegative=st.booleans(),
    n_jobs=st.sampled_from([1, 2]),
)
def test_extrapolation_stays_feasible_and_can_be_undone(kind, seed, momentum, nonnegative, n_jobs):
    problem = random_case(kind, seed, nonnegative=nonnegative).problem
    with (
        Threads(n_jobs) as threads,
        # Threads always pay.
        patch.object(explicit, "WORK_OF_A_JOIN", 0.0),
        patch.object(oracle, "WORK_FOR_THREADS", 0.0),
    ):
        state = make_dual(problem, measured_rows(problem.X, problem.bias), threads=threads)
        for _ in range(3):
            state.extrapolate(0.0)
            state.sweep(state.due_examples(), 0.0)
        dual, coef = state.dual, state.dual_coef.copy()
        state.extrapolate(momentum)
    np.testing.assert_allclose(
        state.dual_coef, problem.feasible(state.dual_coef), atol=1e-12, rtol=0
    )
    np.testing.assert_allclose(
        state.shared.weights[:, : problem.n_outputs], problem.weights(state.dual_coef), atol=1e-9
    )
    state.revert()
    np.testing.assert_array_equal(state.dual_coef, coef)
    assert state.dual == pytest.approx(dual, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_history_tells_of_a_rising_dual_and_a_falling_primal(kind):
    result = solve(random_case(kind, 4, n=200).problem, tol=1e-6)
    duals = [line.dual for line in result.history]
    primals = [line.primal for line in result.history]
    calls = [line.oracle_calls for line in result.history]
    assert all(b <= a for a, b in pairwise(primals))
    assert all(b >= a for a, b in pairwise(duals))
    assert all(b > a for a, b in pairwise(calls))
    assert result.history[-1].relative_gap <= 1e-6


def test_starts_from_an_earlier_solution():
    problem = random_case("crammer-singer", 2, n=200).problem
    first = solve(problem, tol=1e-6)
    again = solve(problem, tol=1e-6, start=first.dual_point)
    assert again.iterations <= first.iterations // 4


def test_a_start_that_is_not_feasible_is_made_so():
    problem = random_case("crammer-singer", 2).problem
    wild = np.random.default_rng(0).normal(size=(problem.n_samples, 4)) * 100
    result = solve(problem, start=wild)
    assert result.certificate.primal == pytest.approx(solve(problem).certificate.primal, rel=1e-7)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("limit", "status"),
    [({"max_iter": 1}, Status.MAX_ITER), ({"time_limit": 1e-9}, Status.TIME_LIMIT)],
)
def test_stopping_early_still_certifies(kind, limit, status):
    problem = random_case(kind, 0, n=200).problem
    result = SequentialDual().solve(problem, Stopping(1e-12, **limit))
    assert result.status is status
    fresh = certify(problem, result.weights, result.dual_point)
    assert fresh == result.certificate
    assert fresh.dual <= fresh.primal


@pytest.mark.parametrize("geometry", ["plain", "nonnegative"])
@pytest.mark.parametrize("kind", KINDS)
def test_callbacks_see_present_weights_until_a_valuation_then_the_best(kind, geometry):
    problem = random_case(kind, 0, n=200, **GEOMETRIES[geometry]).problem
    seen = []

    def look(line, weights):
        seen.append((line.primal, weights()))
        return False

    first = PLAIN.solve(problem, Stopping(1e-12, 1), on_iteration=look)
    (primal, shown), = seen  # fmt: skip
    assert primal == np.inf
    assert shown.any() or geometry == "nonnegative"  # where all may be clipped
    np.testing.assert_allclose(shown, problem.weights(first.dual_point), atol=1e-9)
    seen.clear()
    solve(problem, tol=1e-6, on_iteration=look)
    evaluated = [(primal, weights) for primal, weights in seen if primal < np.inf]
    assert evaluated
    for primal, weights in evaluated:
        assert problem.primal(weights) == pytest.approx(primal, rel=1e-9)


def interrupt(line, weights):
    raise KeyboardInterrupt


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_interrupt_returns_the_best_so_far(n_jobs):
    problem = random_case("crammer-singer", 0, n=300).problem
    result = solve(problem, tol=1e-12, n_jobs=n_jobs, on_iteration=interrupt)
    assert result.status is Status.INTERRUPTED
    assert len(result.history) == 1
    assert result.certificate.dual <= result.certificate.primal < np.inf


def one_versus_rest(n=120, k=4):
    random = np.random.default_rng(0)
    X = random.normal(size=(n, 5))
    labels = random.integers(0, k, n)
    ones = np.ones(n)
    parts = [
        ScalarProblem.hinge(np.where(labels == m, 1.0, -1.0), ones, ones, X=X) for m in range(k)
    ]
    return OneVersusRest(tuple(parts))


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_one_versus_rest_is_its_parts(n_jobs):
    problem = one_versus_rest()
    result = solve(problem, tol=1e-8, n_jobs=n_jobs)
    alone = [solve(part, tol=1e-8, seed=m) for m, part in enumerate(problem.parts)]
    np.testing.assert_array_equal(result.weights, np.hstack([part.weights for part in alone]))
    assert result.certificate == certify(problem, result.weights, result.dual_point)
    assert result.status is Status.CONVERGED
    assert len(result.history) == len(problem.parts)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_one_versus_rest_can_be_stopped_between_parts(n_jobs):
    problem = one_versus_rest()
    result = solve(problem, n_jobs=n_jobs, on_iteration=lambda line, weights: True)
    assert result.status is Status.STOPPED
    assert result.weights.shape == (6, 4)
    assert result.certificate == certify(problem, result.weights, result.dual_point)


def test_cancelling_from_elsewhere():
    stopping = Stopping(1e-12)

    def cancel(line, weights):
        stopping.cancelled.set()
        return False

    problem = random_case("crammer-singer", 0, n=300).problem
    result = SequentialDual().solve(problem, stopping, on_iteration=cancel)
    assert result.status is Status.INTERRUPTED
    assert len(result.history) == 1


def test_averaging_lowers_the_primal_of_a_short_run():
    problem = random_case("crammer-singer", 1, n=2000, d=10).problem
    few = Stopping(1e-12, max_iter=6)
    with_average = SequentialDual().solve(problem, few).certificate.primal
    without = SequentialDual(averaging=False).solve(problem, few).certificate.primal
    assert with_average < without


def test_unknown_problems_are_refused_in_a_sentence():
    with pytest.raises(TypeError, match=r"SequentialDual solves .* not object"):
        make_dual(object(), None)  # type: ignore[arg-type]
