"""A place lost at each single question of a fit, whatever the question is."""

import numpy as np
import pytest
from distributed_problems import Classes, class_data
from faulty_engine import FaultyEngine
from numpy.testing import assert_allclose

import maxmargin as mm
from maxmargin.core.python_oracle import make_oracle
from maxmargin.io.checkpoint import Checkpoint
from maxmargin.solvers.loop import Stopping
from maxmargin.training.distributed_cutting_plane import DistributedOneSlack
from maxmargin.training.distributed_dual import DistributedDual
from maxmargin.training.engines import EngineError
from maxmargin.training.partitions import Partition
from maxmargin.training.shards import Loader, Shards, shard_oracle, surveyed

N, TOL = 12, 0.3
X, Y = class_data(N)
# Without luck in them: no move depends on time.
SOLVERS = {
    "dual": DistributedDual(local_passes=0.5, staleness=0),
    "stale": DistributedDual(local_passes=0.5, staleness=2),
    "one-slack": DistributedOneSlack(),
}


@pytest.fixture(scope="module")
def optimum():
    return mm.StructuredSVM(Classes(), tol=1e-6).fit(X, Y).certificate_


def bound(X, y, weight):
    return make_oracle(Classes(), X, y, np.ones(len(X)), "margin")


def parts(n_parts=2):
    owns = [np.arange(part, N, n_parts) for part in range(n_parts)]
    return [Partition([X[i] for i in own], [Y[i] for i in own], None, own) for own in owns]


def fit(solver, loses, folder, resume=False):
    """A fit with every question that there is: with checkpoints, and the point fetched."""
    checkpoint = Checkpoint(folder / "run.checkpoint", every=0.0, resume=resume)
    with FaultyEngine(3, loses) as engine:
        oracle = shard_oracle(engine, parts(), bound, 2, "classes")
        oracle.lists_point = True
        try:
            result = solver.solve(oracle, Stopping(TOL), checkpoint=checkpoint)
        finally:
            oracle.shards.close()
    return result, engine.questions


def never(number, name):
    return None


def check(result, optimum):
    """The certificate holds, and is as good as was asked for."""
    assert result.status == "converged"
    assert result.certificate.relative_gap <= TOL
    assert result.certificate.primal >= optimum.dual
    assert result.certificate.dual <= optimum.primal
    assert_allclose(result.certificate.primal, optimum.primal, rtol=TOL / (1 - TOL))


def questions(solver, folder, resume):
    """All that are asked in a fit in which nothing happens."""
    _, asked = fit(solver, never, folder)
    if resume:
        _, asked = fit(solver, never, folder, resume=True)
    assert {"make", "about", "begin", "hinges", "sums", "point"} <= set(asked)
    assert ("resume" in asked) == resume
    return asked


def lose_and_check(solver, number, moment, folder, resume, optimum):
    result, _ = fit(solver, lambda n, name: moment if n == number else None, folder, resume)
    check(result, optimum)


@pytest.mark.parametrize(
    ("name", "resume"),
    [
        pytest.param("dual", False, id="dual-new"),
        pytest.param("stale", False, id="stale-new", marks=pytest.mark.slow),
        pytest.param("one-slack", False, id="one-slack-new"),
        *(pytest.param(name, True, id=f"{name}-resumed") for name in SOLVERS),
    ],
)
def test_a_place_lost_at_questions_of_every_kind(name, resume, optimum, tmp_path):
    asked = questions(SOLVERS[name], tmp_path, resume)
    for kind in sorted(set(asked)):
        first, last = asked.index(kind), len(asked) - 1 - asked[::-1].index(kind)
        lose_and_check(SOLVERS[name], first, "before", tmp_path, resume, optimum)
        lose_and_check(SOLVERS[name], last, "after", tmp_path, resume, optimum)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("resume", [False, True], ids=["new", "resumed"])
@pytest.mark.parametrize("name", SOLVERS)
def test_a_place_lost_at_any_question(name, resume, moment, optimum, tmp_path):
    n = len(questions(SOLVERS[name], tmp_path, resume))
    # All at both ends, where kinds of questions change, and some of those in between.
    ends = {*range(min(n, 20)), *range(max(n - 20, 0), n)}
    for number in sorted(ends | set(range(0, n, n // 30 + 1))):
        lose_and_check(SOLVERS[name], number, moment, tmp_path, resume, optimum)


@pytest.mark.parametrize("name", SOLVERS)
def test_places_lost_again_and_again(name, optimum, tmp_path):
    """Every seventh question is the last of its place, also while lost shards are made again."""
    for seed in range(5):
        random = np.random.default_rng(seed)
        left = [12]

        def often(number, name, random=random, left=left):
            if left[0] and random.random() < 1 / 7:
                left[0] -= 1
                return random.choice(["before", "after"])
            return None

        result, _ = fit(SOLVERS[name], often, tmp_path)
        check(result, optimum)


@pytest.mark.parametrize("name", SOLVERS)
def test_a_shard_that_ends_every_place_ends_the_fit(name, tmp_path):
    with pytest.raises(EngineError, match="lost with its worker 21 times"):
        fit(SOLVERS[name], lambda number, name: "after" if name == "make" else None, tmp_path)
    kinds = ("improve", "separate", "cached")
    with pytest.raises(EngineError, match="lost with its worker 21 times"):
        fit(SOLVERS[name], lambda number, name: "after" if name in kinds else None, tmp_path)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_place_lost_while_a_source_is_surveyed(moment):
    for lost_at in range(10):
        engine = FaultyEngine(2, lambda n, name, at=lost_at: moment if n == at else None)
        with engine:
            assert surveyed(engine, list(range(5)), str) == list("01234")


def test_an_answer_that_is_lost_is_not_worked_for_twice():
    """A cluster asks a worker again if the answer did not get through."""

    class Counter:
        def __init__(self, parts):
            self.total = 0

        def add(self, n):
            self.total += n
            return self.total

    class Asking(FaultyEngine):
        def call(self, worker, function, *arguments):
            super().call(worker, function, *arguments).exception()
            return super().call(worker, function, *arguments)

    with Asking(1, never) as engine:
        shards = Shards(engine, [Loader(Counter, [])])
        assert shards.make_all("add", 5) == [5]
        assert shards.ask_all("add", 5) == [10]
        shards.close()
