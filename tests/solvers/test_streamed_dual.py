"""StreamedDual against the solver for data in memory, its invariants, and its promises."""

from dataclasses import replace
from itertools import islice, pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from linear_problems import KINDS, random_case

from maxmargin.core.certificate import certify
from maxmargin.core.linear import OneVersusRest, ScalarProblem
from maxmargin.core.oracle import Threads
from maxmargin.core.result import Status
from maxmargin.solvers.loop import Stopping
from maxmargin.solvers.sequential_dual import SequentialDual
from maxmargin.solvers.streamed_dual import (
    BatchLearner,
    OnlineDual,
    StoredCoefficients,
    StreamedDual,
    SummedObjective,
    fractions_of,
    read_ahead,
)

GEOMETRIES = {
    "plain": {},
    "bias": {"bias": 2.0},
    "nonnegative": {"nonnegative": True},
    "origin": {"with_origin": True},
    "everything": {"bias": 0.5, "nonnegative": True, "with_origin": True, "sparse": True},
}

CUTS = {"one": [], "single rows": range(1, 30), "uneven": [1, 2, 10, 11, 25]}


def blocks_of(problem, cuts=(10, 20)):
    """The problem as a stream of blocks."""
    n = problem.parts[0].n_samples if isinstance(problem, OneVersusRest) else problem.n_samples
    ends = [0, *cuts, n]

    def part(problem, rows):
        if isinstance(problem, OneVersusRest):
            return OneVersusRest(tuple(one.some(rows) for one in problem.parts))
        return problem.some(rows)

    return lambda: (part(problem, np.arange(a, b)) for a, b in pairwise(ends))


def solve(problem, cuts=(10, 20), tol=1e-6, max_iter=2000, cache_bytes=1 << 20, **options):
    solver = StreamedDual(cache_bytes=cache_bytes)
    return solver.solve(blocks_of(problem, cuts), Stopping(tol, max_iter), **options)


def one_versus_rest(seed=0, n=30):
    case = random_case("crammer-singer", seed, n=n)
    labels, C = case.problem.labels, case.problem.C
    parts = [
        ScalarProblem.hinge(np.where(labels == m, 1.0, -1.0), np.ones(n), C, X=case.problem.X)
        for m in range(4)
    ]
    return OneVersusRest(tuple(parts))


def whole_dual_point(problem, result):
    """The stored coefficients of all blocks, as one matrix."""
    blocks = zip(result.dual_point, blocks_of(problem)(), strict=True)
    zero = np.zeros((problem.n_samples, problem.n_outputs))
    return np.vstack(
        [
            zero[: block.n_samples] if stored is None else stored[0].restore(block)
            for stored, block in blocks
        ]
    )


# The optimum.


@pytest.mark.diagonal
@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("kind", KINDS)
def test_same_optimum_as_in_memory(kind, geometry, cuts):
    problem = random_case(kind, 1, **GEOMETRIES[geometry]).problem
    expected = SequentialDual().solve(problem, Stopping(1e-9, 100_000)).certificate.primal
    result = solve(problem, CUTS[cuts], tol=1e-5)
    assert result.status is Status.CONVERGED
    assert result.certificate.primal == pytest.approx(expected, rel=2e-5)
    assert result.certificate.dual <= expected * (1 + 1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_certificate_is_that_of_the_weights_over_all_the_data(kind):
    problem = random_case(kind, 2, bias=1.0, nonnegative=True).problem
    result = solve(problem)
    point = problem.feasible(whole_dual_point(problem, result))
    fresh = certify(problem, result.weights, point)
    assert result.certificate.primal == pytest.approx(fresh.primal, rel=1e-12)
    # The stored point is at least as good as the certified one, which the last pass improved.
    assert fresh.dual >= result.certificate.dual * (1 - 1e-6)
    assert fresh.dual <= result.certificate.primal


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_one_versus_rest(n_jobs):
    problem = one_versus_rest()
    expected = SequentialDual().solve(problem, Stopping(1e-9, 100_000)).certificate.primal
    result = solve(problem, tol=1e-5, n_jobs=n_jobs)
    assert result.weights.shape == (5, 4)
    assert result.certificate.primal == pytest.approx(expected, rel=2e-5)
    np.testing.assert_array_equal(result.weights, solve(problem, tol=1e-5).weights)


@pytest.mark.diagonal
@pytest.mark.parametrize("cache_bytes", [0, 2000])
@pytest.mark.parametrize("kind", KINDS)
def test_little_memory_costs_passes_but_not_the_optimum(kind, cache_bytes):
    problem = random_case(kind, 5, n=60).problem
    expected = SequentialDual().solve(problem, Stopping(1e-9, 100_000)).certificate.primal
    result = solve(problem, range(5, 60, 5), tol=1e-4, cache_bytes=cache_bytes)
    assert result.status is Status.CONVERGED
    assert result.certificate.primal == pytest.approx(expected, rel=2e-4)
    roomy = solve(problem, range(5, 60, 5), tol=1e-4)
    assert roomy.iterations <= result.iterations


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_same_bits(kind, n_jobs):
    problem = random_case(kind, 3, n=300, sparse=True).problem
    one, two = (solve(problem, tol=1e-3, n_jobs=n_jobs, seed=5) for _ in range(2))
    np.testing.assert_array_equal(one.weights, two.weights)
    other = solve(problem, tol=1e-3, n_jobs=n_jobs, seed=6)
    assert not np.array_equal(one.weights, other.weights)


def test_features_seen_late_make_the_weights_grow():
    problem = random_case("crammer-singer", 4, d=6, bias=1.0, sparse=True).problem
    X = problem.X.toarray()
    X[:10, 2:], X[:20, 4:] = 0.0, 0.0
    problem = replace(problem, X=sp.csr_array(X))
    widths = {0: 2, 1: 4, 2: 6}
    first = [True]

    def growing():
        for number, block in enumerate(blocks_of(problem)()):
            yield replace(block, X=block.X[:, : widths[number]]) if first[0] else block
        first[0] = False

    result = StreamedDual().solve(growing, Stopping(1e-6, 2000))
    expected = SequentialDual().solve(problem, Stopping(1e-9, 100_000)).certificate.primal
    assert result.weights.shape == problem.weights_shape
    assert result.certificate.primal == pytest.approx(expected, rel=2e-6)


# Invariants.


@settings(max_examples=30, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 10_000),
    nonnegative=st.booleans(),
    with_origin=st.booleans(),
    bias=st.sampled_from([0.0, 1.5]),
    cuts=st.sets(st.integers(1, 29)).map(sorted),
    cache_bytes=st.sampled_from([0, 3000, 1 << 20]),
    n_jobs=st.sampled_from([1, 2]),
)
def test_dual_never_decreases_and_accounts_are_right(
    kind, seed, nonnegative, with_origin, bias, cuts, cache_bytes, n_jobs
):
    problem = random_case(
        kind, seed, nonnegative=nonnegative, with_origin=with_origin, bias=bias
    ).problem
    learner = BatchLearner(cache_bytes, seed)
    coefs = np.zeros((problem.n_samples, problem.n_outputs))
    scale = 1.0 + abs(problem.primal(0.0 * problem.weights(coefs)))
    last = -np.inf

    def let_go(block, portion, examples):
        coefs[[0, *cuts][block] + portion.rows[examples]] = portion.dual_coefs[0][examples]

    with Threads(n_jobs) as threads:
        for pass_number in range(3):
            at = 0
            for number, block in enumerate(blocks_of(problem, cuts)()):
                rows = slice(at, at + block.n_samples)
                at += block.n_samples
                kept = learner.cache.pop(number, None)
                if kept is not None:
                    coefs[rows][kept.rows] = kept.dual_coefs[0]
                learner.prepare([block])
                portion = learner.load(number, [block], [coefs[rows]] if pass_number else None)
                learner.learn(portion, threads)
                coefs[rows] = portion.dual_coefs[0]
                learner.keep(number, portion, let_go)
                now = coefs.copy()
                for other, cached in learner.cache.items():
                    now[[0, *cuts][other] + cached.rows] = cached.dual_coefs[0]
                np.testing.assert_allclose(now, problem.feasible(now), atol=1e-12 * scale)
                np.testing.assert_allclose(
                    learner.unclipped()[0], problem.unclipped_weights(now), atol=1e-9 * scale
                )
                fresh = problem.dual(problem.feasible(now))
                assert learner.dual == pytest.approx(fresh, abs=1e-9 * scale)
                assert fresh >= last - 1e-9 * scale
                assert fresh <= problem.primal(problem.weights(now)) + 1e-9 * scale
                last = fresh
                assert learner.nbytes <= cache_bytes


@settings(max_examples=40, deadline=None)
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 10_000), share=st.floats(0.0, 1.0))
def test_stored_coefficients_are_feasible_and_keep_what_is_at_a_bound(kind, seed, share):
    problem = random_case(kind, seed).problem
    random = np.random.default_rng(seed)
    shape = (problem.n_samples, problem.n_outputs)
    coef = problem.feasible(
        random.normal(size=shape) * problem.C[:, None] * (random.random(shape) < share)
    )
    stored = StoredCoefficients.of(fractions_of(problem, coef))
    back = stored.restore(problem)
    np.testing.assert_allclose(back, problem.feasible(back), rtol=1e-14)
    np.testing.assert_allclose(back, coef, atol=1e-6 * problem.C.max())
    at_bound = coef == -problem.C[:, None]
    np.testing.assert_array_equal(back[at_bound], coef[at_bound])
    assert stored.n_stored <= np.count_nonzero(coef)
    assert sum(array.nbytes for array in stored[1:]) <= 6 * stored.n_stored


@pytest.mark.parametrize("kind", KINDS)
def test_values_summed_over_blocks(kind):
    problem = random_case(kind, 0, with_origin=True, bias=1.0).problem
    random = np.random.default_rng(0)
    weights = [random.normal(size=problem.weights_shape) for _ in range(2)]
    coef = problem.feasible(random.normal(size=(30, problem.n_outputs)))
    value = SummedObjective([[w] for w in weights])
    for a, b in pairwise([0, 7, 8, 30]):
        value.add(problem.some(np.arange(a, b)), [coef[a:b]])
    expected = [problem.primal(w) for w in weights]
    np.testing.assert_allclose(value.primals()[0], expected, rtol=1e-12)
    assert value.dual() == pytest.approx(problem.dual(coef), rel=1e-12)


# Stopping.


@pytest.mark.parametrize("kind", KINDS)
def test_history_has_a_line_for_each_pass(kind):
    result = solve(random_case(kind, 4, n=200).problem, range(20, 200, 20), tol=1e-5)
    assert len(result.history) == result.iterations >= 2
    primals = [line.primal for line in result.history]
    duals = [line.dual for line in result.history]
    assert np.isinf(primals[0])
    assert all(b <= a for a, b in pairwise(primals))
    assert all(b >= a * (1 - 1e-6) for a, b in pairwise(duals))
    assert result.history[-1].primal == result.certificate.primal
    assert result.history[-1].dual == result.certificate.dual


def test_max_iter_counts_the_passes_that_learn_and_one_more_certifies():
    problem = random_case("crammer-singer", 0, n=100).problem
    result = solve(problem, tol=1e-12, max_iter=2)
    assert result.status is Status.MAX_ITER
    assert result.iterations == 3
    fresh = certify(problem, result.weights, whole_dual_point(problem, result))
    assert result.certificate.primal == pytest.approx(fresh.primal, rel=1e-12)
    assert result.certificate.dual == pytest.approx(fresh.dual, rel=1e-12)


def test_no_time_at_all_still_certifies():
    problem = random_case("hinge", 0).problem
    result = StreamedDual().solve(blocks_of(problem), Stopping(1e-6, 100, 1e-9))
    assert result.status is Status.TIME_LIMIT
    assert result.iterations == 2
    assert result.certificate.primal == pytest.approx(problem.primal(0.0 * result.weights))


def test_a_callback_can_stop():
    shown = []
    problem = random_case("crammer-singer", 0, n=100).problem

    def on_iteration(line, weights):
        shown.append((line, weights()))
        return len(shown) == 2

    result = solve(problem, tol=1e-12, on_iteration=on_iteration)
    assert result.status is Status.STOPPED
    assert result.iterations == len(shown) == 2
    assert shown[0][1].shape == problem.weights_shape


@pytest.mark.parametrize("when", [0, 1, 2, 4, 7, 10])
def test_interrupted_after_any_block(when):
    problem = random_case("crammer-singer", 0, n=100).problem
    left = [when]

    def interrupting():
        for block in blocks_of(problem)():
            yield block
            if left[0] == 0:
                left[0] = -1
                raise KeyboardInterrupt
            left[0] -= 1

    result = StreamedDual().solve(interrupting, Stopping(1e-12, 50))
    assert result.status is Status.INTERRUPTED
    assert result.certificate.primal == pytest.approx(problem.primal(result.weights), rel=1e-12)
    point = problem.feasible(whole_dual_point(problem, result))
    assert result.certificate.dual <= problem.dual(point) + 1e-6


@pytest.mark.parametrize(
    ("cuts", "n_blocks", "match"),
    [
        ((10, 20), 2, "fewer blocks"),
        ((10, 20, 25), 4, "gave 5 examples in a block that had 10"),
        ((10, 20, 30), 4, "other blocks"),
    ],
)
def test_a_source_that_changes_between_passes_is_refused(cuts, n_blocks, match):
    problem = random_case("hinge", 0).problem
    passes = iter([(10, 20), cuts])
    wanted = iter([3, n_blocks])

    def changing():
        return islice(blocks_of(problem, next(passes))(), next(wanted))

    with pytest.raises(ValueError, match=match):
        StreamedDual().solve(changing, Stopping(1e-12, 9))


# Parts.


def test_reading_ahead_hands_on_errors_and_stops_reading_when_nobody_wants_more():
    asked = []

    def items():
        for number in range(5):
            asked.append(number)
            if number == 3:
                raise OSError("disk")
            yield number

    reader = read_ahead(items())
    assert next(reader) == 0
    reader.close()
    assert len(asked) <= 2
    asked.clear()
    seen = []
    with pytest.raises(OSError, match="disk"):
        seen.extend(read_ahead(items()))
    assert seen == [0, 1, 2]


@pytest.mark.parametrize("cache_bytes", [0, 5000, 1 << 20])
def test_online_bound_is_below_the_optimum_and_rises(cache_bytes):
    problem = random_case("crammer-singer", 0, n=200, bias=1.0).problem
    online = OnlineDual(cache_bytes, seed=0)
    bounds = []
    for block in blocks_of(problem, range(10, 200, 10))():
        online.learn(block, n_jobs=1, stopping=Stopping(1e-3))
        bounds.append(online.certificate.dual)
        assert online.learner.nbytes <= cache_bytes
    optimum = SequentialDual().solve(problem, Stopping(1e-9, 100_000)).certificate.primal
    assert all(b >= a - 1e-9 for a, b in pairwise(bounds))
    assert 0.3 * optimum < bounds[-1] <= optimum
    assert len(online.learner.cache) <= 10
