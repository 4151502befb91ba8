"""OneSlack on shards against OneSlack in one place."""

import numpy as np
import pytest
from distributed_problems import Classes, class_data, tagging_data
from numpy.testing import assert_allclose, assert_array_equal

import maxmargin as mm
from maxmargin.core.certificate import certify
from maxmargin.core.python_oracle import PythonOracle, make_oracle
from maxmargin.solvers.loop import Stopping
from maxmargin.training.distributed_cutting_plane import DistributedOneSlack
from maxmargin.training.engines import ThreadEngine
from maxmargin.training.partitions import Partition
from maxmargin.training.shards import _TABLE, shard_oracle
from maxmargin.training.workers import distributed


def bound(X, y, weight):
    return make_oracle(Classes(), X, y, np.ones(len(X)), "margin")


def solve(n_shards, on_iteration=None, **options):
    X, y = class_data(40)
    owns = [np.arange(part, len(X), n_shards) for part in range(n_shards)]
    parts = [Partition([X[i] for i in own], [y[i] for i in own], None, own) for own in owns]
    with ThreadEngine(n_shards) as engine:
        oracle = shard_oracle(engine, parts, bound, n_shards, "classes")
        oracle.lists_point = True
        solver = DistributedOneSlack(**options)
        result = solver.solve(oracle, Stopping(1e-2), on_iteration=on_iteration)
        oracle.shards.close()
    return result, oracle


def whole():
    X, y = class_data(40)
    return PythonOracle(Classes(), X, y, np.ones(len(X)))


@pytest.mark.parametrize("options", [{}, {"cache": 0}, {"cache": 3, "max_idle": 5}])
def test_one_shard_is_one_slack_and_three_reach_the_gap(options):
    local = mm.OneSlack(**options).solve(whole(), Stopping(1e-2))
    one, _ = solve(1, **options)
    assert one.iterations == local.iterations
    assert_array_equal(one.weights, local.weights)
    three, oracle = solve(3, **options)
    assert three.certificate.relative_gap <= 1e-2
    assert_allclose(three.certificate.dual, local.certificate.dual, rtol=1e-2)
    for result in (one, three):
        again = certify(whole(), result.weights, result.dual_point)
        assert_allclose(again.dual, result.certificate.dual, rtol=1e-10)
    assert oracle.sent > 0
    assert oracle.received > 0


def test_a_lost_shard_takes_only_its_part_of_the_planes_along():
    lost = []

    def on_iteration(line, weights):
        if line.oracle_calls >= 200 and not lost:
            key = next(key for key in _TABLE if key[1] == 1)
            lost.append((_TABLE.pop(key), line.dual))
        return False

    result, _ = solve(2, on_iteration)
    assert lost
    assert result.status == "converged"
    assert result.certificate.relative_gap <= 1e-2
    again = certify(whole(), result.weights, result.dual_point)
    assert_allclose(again.dual, result.certificate.dual, rtol=1e-10)


def test_estimators_take_the_name_and_the_object(tmp_path):
    X, y = tagging_data(30)
    local = mm.SequenceTagger(solver="one-slack", tol=0.01).fit(X, y)
    there = mm.SequenceTagger(solver="one-slack", tol=0.01, engine="processes").fit(X, y)
    assert_allclose(there.certificate_.primal, local.certificate_.primal, rtol=1e-9)
    assert there.history_[0].received > 0
    assert distributed(mm.OneSlack(cache=3)) == DistributedOneSlack(cache=3)
    checkpoint = mm.Checkpoint(tmp_path / "run.checkpoint", resume=True)
    options = {"solver": DistributedOneSlack(), "tol": 0.01, "checkpoint": checkpoint}
    first = mm.SequenceTagger(n_jobs=2, **options).fit(X, y)
    on = mm.SequenceTagger(n_jobs=3, **options).fit(X, y)
    assert on.certificate_.relative_gap <= 0.01
    assert on.n_iter_ <= first.n_iter_ + 3
