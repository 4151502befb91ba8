"""Online: streams of any problem against the referee, whatever the cache and the schedule."""

import signal
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from structured_referee import Case, Classes, compiled_chains, random_chains, random_classes
from test_structured_solvers import Blurred, assert_brackets, assert_history, fragile

from maxmargin.core.certificate import certify
from maxmargin.core.oracle import Threads
from maxmargin.core.python_oracle import PythonOracle
from maxmargin.core.result import Status
from maxmargin.data.sources import Examples, Source
from maxmargin.io.checkpoint import Checkpoint
from maxmargin.solvers.block_coordinate import Auto
from maxmargin.solvers.loop import Stopping
from maxmargin.solvers.online import Evaluation, FrozenPoint, InMemory, Online
from maxmargin.structures.rows.oracle import Classes as ManyClasses
from maxmargin.training.streams import SourceStream

PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
TIGHT = 6_000
"""Bytes in which the planes of the small cases do not fit."""

SOLVERS = {
    "larank": Online(),
    "larank, true bound": Online(bound="true", tol_cache=0.1),
    "gap": Online(schedule="gap"),
    "gap, true bound": Online(schedule="gap", bound="true", tol_cache=0.1),
    "gap, as in the paper": Online(
        schedule="gap", oracle_calls=1, max_idle=1, acceleration=False, batch_size=1
    ),
    "batches in order": Online(batch_size=5, shuffle=False),
}


class Listed(Source):
    """Examples of lists, `size` at a time."""

    def __init__(self, X, Y, size=3):
        self.X, self.Y, self.size = X, Y, size
        self.passes = 0

    def batches(self):
        self.passes += 1
        for start in range(0, len(self.Y), self.size):
            part = slice(start, start + self.size)
            yield Examples(self.X[part], self.Y[part])


class CaseStream(SourceStream):
    """The examples of a case, each with its own cost."""

    def __init__(self, case, size=3):
        source = Listed(case.X, list(zip(case.Y, case.C, strict=True)), size)

        def make_oracle(X, y, _):
            Y, C = zip(*y, strict=True)
            return PythonOracle(case.problem, X, Y, np.array(C), case.rescaling)

        super().__init__(source, make_oracle, 1.0)


@cache
def case_of(kind, seed):
    return random_classes(seed) if kind == "classes" else random_chains(seed)


def solve(oracle, solver, tol=1e-5, max_iter=300, **options):
    return solver.solve(oracle, Stopping(tol, max_iter), **options)


@pytest.mark.diagonal
@pytest.mark.parametrize("kind", ["classes", "chains"])
@pytest.mark.parametrize("name", SOLVERS)
def test_cycled_passes_end_at_the_optimum(name, kind):
    for seed in range(2):
        case = case_of(kind, seed)
        result = solve(CaseStream(case), SOLVERS[name])
        assert result.status is Status.CONVERGED
        assert result.certificate.relative_gap <= 1e-5
        assert_brackets_stream(result, case)
        assert_history(result, case.optimum.value)


def assert_brackets_stream(result, case, slack=1e-9):
    """The certificate holds the optimum, and is what the data in memory say."""
    certificate, optimum = result.certificate, case.optimum.value
    slack *= optimum
    assert certificate.dual - slack <= optimum <= certificate.primal + slack
    anew = certify(case.oracle(), result.weights, result.dual_point)
    assert certificate.primal == pytest.approx(anew.primal, rel=1e-12)
    assert certificate.dual == pytest.approx(anew.dual, rel=1e-12)
    assert certificate.primal == pytest.approx(case.objective(result.weights), rel=1e-12)


@pytest.mark.parametrize("name", SOLVERS)
def test_on_a_training_set_in_memory(name):
    for kind in ("classes", "compiled"):
        case = random_classes(3) if kind == "classes" else random_chains(3)
        oracle = case.oracle() if kind == "classes" else compiled_chains(case)
        result = solve(oracle, SOLVERS[name])
        assert result.status is Status.CONVERGED
        assert_brackets(result, case, oracle)


def test_a_stream_and_the_same_data_in_memory_agree():
    case = case_of("chains", 2)
    for size in (1, 3, 100):
        result = solve(CaseStream(case, size), Online(), tol=1e-6)
        assert result.certificate.primal == pytest.approx(case.optimum.value, rel=1e-5)


@pytest.mark.parametrize("schedule", ["gap", "larank", "one-pass"])
def test_one_pass_is_one_pass_and_one_more_certifies(schedule):
    case = case_of("classes", 0)
    stream = CaseStream(case)
    solver = Online(passes=1, schedule=schedule, oracle_calls=1)
    result = solve(stream, solver, tol=1e-9)
    assert result.status is Status.PASSES
    assert result.iterations == len(result.history) == 1
    assert result.history[0].oracle_calls == len(case.X)
    assert stream.source.passes == 3  # one of them only to see the first block
    assert_brackets_stream(result, case)


def test_schedules_differ_by_how_often_they_revisit():
    oracle = compiled_chains(random_chains(5, n=200))
    lines = {
        schedule: solve(oracle, Online(passes=1, schedule=schedule), tol=1e-4)
        for schedule in ("gap", "larank", "one-pass")
    }
    assert lines["one-pass"].history[-1].cache_hits == 0
    assert lines["larank"].history[-1].cache_hits > 1000
    duals = {name: result.certificate.dual for name, result in lines.items()}
    assert duals["one-pass"] < 0.9 * min(duals["gap"], duals["larank"])


def test_the_tracked_bound_looks_less_often_and_ends_at_the_same_place(monkeypatch):
    from maxmargin.solvers.online import StreamRun

    looks = []
    original = StreamRun.look
    monkeypatch.setattr(StreamRun, "look", lambda run: looks.append(1) or original(run))
    oracle = compiled_chains(random_chains(5, n=60))
    counts = {}
    for bound in ("tracked", "true"):
        looks.clear()
        result = solve(oracle, Online(bound=bound), tol=1e-4)
        assert result.status is Status.CONVERGED
        counts[bound] = len(looks)
    assert counts["tracked"] < counts["true"]


@given(
    seed=st.integers(0, 10**6),
    size=st.integers(1, 7),
    kilobytes=st.one_of(st.none(), st.integers(4, 12)),
    passes=st.integers(1, 4),
    schedule=st.sampled_from(["gap", "larank", "one-pass"]),
)
@settings(deadline=None, max_examples=25, phases=PHASES)
def test_whatever_the_stream_the_dual_never_falls_and_never_passes_the_optimum(
    seed, size, kilobytes, passes, schedule
):
    case = random_classes(seed)
    limit = 1 << 30 if kilobytes is None else 1024 * kilobytes
    solver = Online(schedule=schedule, cache_bytes=limit, acceleration=False)
    run = solver.start(CaseStream(case, size), Stopping(1e-12), Threads(1), seed=0)
    duals = [run.dual]
    original = run.explore

    def explore(batch, some):
        original(batch, some)
        duals.append(run.dual)
        assert run.cache.n_bytes <= limit

    run.explore = explore
    for _ in range(passes):
        solver.iterate(run)
        duals.append(run.dual)
    scale = 1e-9 * max(1.0, case.optimum.value)
    assert all(b >= a - scale for a, b in pairwise(duals))
    assert run.dual <= case.optimum.value + scale
    anew = Evaluation(run.point(), run.stream.n_features).add(case.oracle(), 0).total
    assert run.dual == pytest.approx(anew, abs=scale)


@pytest.mark.parametrize("kind", ["classes", "chains"])
def test_a_small_cache_merges_and_freezes_and_stays_valid(kind):
    case = random_classes(7, n=30, d=8) if kind == "classes" else random_chains(7, n=20, d=6)
    limit = _bytes_of(solve(CaseStream(case), Online(), tol=1e-3), case) // 2
    solver = Online(schedule="gap", cache_bytes=limit)
    run = solver.start(CaseStream(case), Stopping(1e-3), Threads(1), seed=0)
    certificates = []
    for _ in range(8):
        solver.iterate(run)
        assert run.cache.n_bytes <= limit
        primals, dual = run.stream.evaluate(run.candidates, run.point(), run.threads)
        certificates.append((min(primals), dual))
    assert run.cache.n_merged > 0
    assert run.cache.n_frozen > 0
    assert certificates[-1][1] > certificates[0][1]
    assert min(primal for primal, _ in certificates) < 1.2 * case.optimum.value
    result = solve(CaseStream(case), solver, tol=1e-3, max_iter=4)
    assert isinstance(result.dual_point, FrozenPoint)
    assert_brackets_stream(result, case)


def test_merging_alone_keeps_every_plane_checkable():
    case = random_chains(8, n=10, d=6, shortest=4, longest=6, k=3)
    case = case.with_cost(30.0 * case.C)
    needed = _bytes_of(solve(CaseStream(case), Online(), tol=1e-3), case)
    solver = Online(cache_bytes=int(1.2 * needed))
    run = solver.start(CaseStream(case), Stopping(1e-3), Threads(1), seed=0)
    for _ in range(3):
        solver.iterate(run)
    assert run.cache.n_merged
    assert run.cache.frozen is None
    oracle = case.oracle()
    assert oracle.dual(run.point()) == pytest.approx(run.dual, rel=1e-10)


def _bytes_of(result, case):
    run = Online().start(CaseStream(case), Stopping(), Threads(1), 0)
    run.resume(result.dual_point)
    run.cache.shrink()
    return run.cache.n_bytes


@pytest.mark.parametrize("tight", [False, True])
def test_starts_from_an_earlier_result(tight):
    case = random_classes(7, n=30, d=8)
    solver = Online(cache_bytes=TIGHT if tight else 1 << 30)
    first = solve(CaseStream(case), solver, tol=1e-4, max_iter=3)
    assert isinstance(first.dual_point, FrozenPoint) == tight
    run = solver.start(CaseStream(case), Stopping(), Threads(1), 0)
    run.resume(first.dual_point)
    assert run.dual == pytest.approx(first.certificate.dual, rel=1e-9)
    half = case.with_cost(0.5 * case.C)
    again = solve(CaseStream(half), solver, tol=1e-4, max_iter=3, start=first.dual_point)
    assert_brackets_stream(again, half)


def test_points_go_from_online_to_other_solvers_and_back():
    oracle = compiled_chains(random_chains(0))
    point = solve(oracle, Online()).dual_point
    assert solve(oracle, Auto(), tol=1e-4, start=point).iterations <= 2
    point = solve(oracle, Auto()).dual_point
    assert solve(oracle, Online(), tol=1e-4, start=point).iterations <= 2


@pytest.mark.parametrize("n", [1, 2])
def test_very_few_examples(n):
    case = random_classes(0)
    case = Case(case.problem, case.X[:n], case.Y[:n], np.ones(n))
    result = solve(CaseStream(case), Online())
    assert result.status is Status.CONVERGED
    assert_brackets_stream(result, case)


def test_examples_that_are_easy_or_empty():
    nothing = Case(Classes(np.zeros((2, 2))), [np.ones(2)] * 5, [0] * 5, np.ones(5))
    result = solve(CaseStream(nothing), Online())
    assert result.status is Status.CONVERGED
    assert result.certificate.primal == result.certificate.dual == 0.0
    empty = random_classes(1)
    empty = Case(empty.problem, [np.zeros_like(x) for x in empty.X], empty.Y, empty.C)
    result = solve(CaseStream(empty), Online())
    assert result.status is Status.CONVERGED
    assert result.certificate.primal == pytest.approx(empty.optimum.value)


def test_rows_without_features_in_a_sparse_stream():
    random = np.random.default_rng(0)
    X = sp.csr_array(random.normal(size=(40, 6)) * (random.random((40, 6)) < 0.2))
    y = random.integers(0, 3, 40)
    problem = ManyClasses(6, 3)
    assert (np.diff(X.indptr) == 0).any()
    stream = SourceStream.of(problem, Listed(X, y, 7), 1.0)
    result = solve(stream, Online(), tol=1e-4)
    other = solve(problem.make_oracle(X, y, np.ones(40)), Auto(), tol=1e-4)
    assert result.status is Status.CONVERGED
    assert result.certificate.primal == pytest.approx(other.certificate.primal, rel=2e-4)


def test_classes_are_checked_at_once_and_named_one_by_one():
    problem, X = ManyClasses(2, 3), np.eye(2)
    assert (problem.make_oracle(X, np.array([2, 0]), np.ones(2)).y_true == [[2], [0]]).all()
    with pytest.raises(ValueError, match=r"output of example 1 is .*3.* from 0 to 2"):
        problem.make_oracle(X, np.array([2, 3]), np.ones(2))


def test_relaxed_searches():
    case = random_classes(0)
    problem = Blurred.__new__(Blurred)
    problem.__dict__.update(case.problem.__dict__)
    blurred = Case(problem, case.X, case.Y, case.C)
    result = solve(CaseStream(blurred), Online(), max_iter=50)
    assert result.status is Status.RELAXED
    assert result.certificate.relaxed
    assert result.certificate.dual <= case.optimum.value <= result.certificate.primal


def test_a_source_that_changes_is_found_out():
    case = case_of("classes", 0)
    stream = CaseStream(case)
    point = solve(stream, Online(), tol=1e-3).dual_point
    stream.source.X, stream.source.Y = stream.source.X[:3], stream.source.Y[:3]
    with pytest.raises(ValueError, match="must give the same examples"):
        stream.evaluate([], point, Threads(1))


def test_a_source_without_examples_and_features_that_change():
    with pytest.raises(ValueError, match="source holds no examples"):
        solve(SourceStream.of(Classes(np.eye(2)), Listed([], []), 1.0), Online())
    ragged = Listed([np.ones(2)] * 3 + [np.ones(3)] * 3, [0, 1, 0] * 2)
    with pytest.raises(ValueError, match=r"from 3 on have 6 joint features, .* have 4"):
        solve(SourceStream.of(Classes(1.0 - np.eye(2)), ragged, 1.0), Online())


def test_a_point_that_takes_too_much_is_no_certificate():
    case = case_of("classes", 0)
    point = solve(CaseStream(case), Online(), tol=1e-3).dual_point
    with pytest.raises(ValueError, match="not feasible"):
        CaseStream(case).evaluate([], point._replace(coef=1.5 * point.coef), Threads(1))


@pytest.mark.parametrize("parameter", [{"schedule": "never"}, {"bound": "guessed"}])
def test_parameters_are_checked(parameter):
    with pytest.raises(ValueError, match=f"{next(iter(parameter))} must be"):
        Online(**parameter)


@pytest.mark.parametrize("at", [1, 9, 40])
def test_ctrl_c_while_exploring_keeps_what_was_learned(at):
    case = case_of("classes", 0)
    result = solve(CaseStream(fragile(case, at, KeyboardInterrupt())), Online(), tol=1e-12)
    assert result.status is Status.INTERRUPTED
    assert_brackets_stream(result, case)


def test_ctrl_c_while_certifying_gives_the_weights_without_a_certificate():
    case = case_of("classes", 0)
    counting = fragile(case, -1, None)
    first = solve(CaseStream(counting), Online(passes=1))
    stream = CaseStream(fragile(case, counting.problem.calls, KeyboardInterrupt()))
    result = solve(stream, Online(passes=1))
    assert result.status is Status.INTERRUPTED
    assert result.certificate.primal == np.inf
    assert result.certificate.dual == pytest.approx(first.certificate.dual, rel=1e-9)
    assert result.weights.any()


@pytest.mark.parametrize("limit", [1 << 30, 4 * TIGHT])
def test_ctrl_c_at_any_moment_leaves_a_certified_answer(limit):
    def interrupt(number, frame):
        raise KeyboardInterrupt

    case = random_chains(0, n=30)
    oracle = compiled_chains(case)
    never, solver = -1.0, Online(cache_bytes=limit)
    solve(oracle, solver, tol=never, max_iter=3)  # compiled before the clock ticks
    random = np.random.default_rng(0)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for delay in random.uniform(1e-4, 0.04, size=25):
            armed = []

            def arm(line, weights, delay=delay, armed=armed):
                if not armed:
                    signal.setitimer(signal.ITIMER_REAL, delay, 5.0)  # again, if Python dropped it
                    armed.append(line)

            result = solve(oracle, solver, tol=never, max_iter=10**6, on_iteration=arm)
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            assert result.status is Status.INTERRUPTED
            assert_brackets(result, case, oracle)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def test_an_error_in_a_search_has_the_result_up_to_there():
    case = case_of("classes", 0)
    stream = CaseStream(fragile(case, 30, RuntimeError("out of luck")))
    with pytest.raises(ValueError, match="out of luck") as caught:
        solve(stream, Online())
    assert 0.0 < caught.value.result.certificate.dual <= case.optimum.value


def test_time_runs_out_on_the_way():
    case = case_of("chains", 0)
    result = Online().solve(CaseStream(case), Stopping(1e-15, 10**9, time_limit=0.03))
    assert result.status in (Status.TIME_LIMIT, Status.CONVERGED)
    assert_brackets_stream(result, case)


def test_the_same_bits_whatever_the_number_of_threads():
    oracle = compiled_chains(random_chains(5, n=60))
    one, two = (solve(oracle, Online(), tol=1e-3, n_jobs=n, seed=4) for n in (1, 2))
    np.testing.assert_array_equal(one.weights, two.weights)
    assert one.certificate == two.certificate
    other = solve(oracle, Online(), tol=1e-3, seed=5)
    assert not np.array_equal(one.weights, other.weights)


@pytest.mark.parametrize("limit", [1 << 30, 4 * TIGHT])
def test_a_checkpoint_goes_on_to_the_same_bits(tmp_path, limit):
    case, solver = random_chains(5, n=40), Online(cache_bytes=limit)
    whole = solve(compiled_chains(case), solver, tol=1e-9, max_iter=6)
    path = tmp_path / "online"
    solve(compiled_chains(case), solver, tol=1e-9, max_iter=3, checkpoint=Checkpoint(path, 0.0))
    resumed = solve(
        compiled_chains(case), solver, tol=1e-9, max_iter=6,
        checkpoint=Checkpoint(path, 0.0, resume=True),
    )  # fmt: skip
    assert resumed.iterations == 6
    np.testing.assert_array_equal(whole.weights, resumed.weights)
    assert whole.certificate == resumed.certificate


def test_positions_of_a_part_of_a_stream_begin_anywhere():
    case = case_of("classes", 0)
    part = InMemory(case.oracle(), first=100)
    run = Online().start(part, Stopping(), Threads(1), 0)
    Online().explore(run)
    assert run.point().examples.min() >= 100
    primals, dual = part.evaluate([run.weights], run.point(), Threads(1))
    assert dual == pytest.approx(run.dual, rel=1e-9)
    assert primals[0] >= case.optimum.value
