"""Training on a Dask cluster of real processes."""

import os
import pickle
import signal
import warnings
from functools import partial

import numpy as np
import pytest
from distributed_problems import Classes, SlowSomewhere, class_data, processes, tagging_data
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import maxmargin as mm
from maxmargin.core.python_oracle import make_oracle
from maxmargin.data import DaskSource
from maxmargin.solvers.block_coordinate import Auto
from maxmargin.solvers.loop import Stopping
from maxmargin.training.distributed_dual import DistributedDual, DistributedRun
from maxmargin.training.engines import DaskEngine
from maxmargin.training.fit import engine
from maxmargin.training.partitions import Partition, partitions_of
from maxmargin.training.shards import shard_oracle

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def client():
    with processes(2) as client:
        yield client


@pytest.fixture
def both_workers(client):
    """After a test has killed one, the next wants both."""
    client.wait_for_workers(2, timeout=120)
    return client


def bound(X, y, weight):
    return make_oracle(Classes(), X, y, np.ones(len(X)), "margin")


def placed(client, X, y, n_shards, bind_part=bound):
    owns = [np.arange(part, len(X), n_shards) for part in range(n_shards)]
    parts = [Partition([X[i] for i in own], [y[i] for i in own], None, own) for own in owns]
    return shard_oracle(DaskEngine(client), parts, bind_part, n_shards, "classes")


def test_one_shard_is_the_local_fit(both_workers):
    X, y = class_data(40)
    local = mm.StructuredSVM(Classes(), tol=1e-3).fit(X, y)
    oracle = placed(both_workers, X, y, 1)
    seed = int(np.random.RandomState(0).randint(2**31))
    result = DistributedDual().solve(oracle, Stopping(1e-3), seed=seed)
    oracle.shards.close()
    assert_array_equal(result.weights, local.weights_)


def test_two_workers_reach_the_gap(both_workers):
    X, y = tagging_data()
    local = mm.SequenceTagger(tol=1e-3).fit(X, y)
    there = mm.SequenceTagger(engine=both_workers, tol=0.05).fit(X, y)
    assert there.certificate_.relative_gap <= 0.05
    assert_allclose(there.certificate_.primal, local.certificate_.primal, rtol=0.052)
    assert there.history_[0].sent >= 0
    assert sum(line.received for line in there.history_) > 0
    again = clone(there)
    assert again.engine is both_workers
    written = pickle.loads(pickle.dumps(there))
    assert written.engine is None
    assert_array_equal(written.coef_, there.coef_)
    with engine("dask"):
        named = mm.SequenceTagger(max_iter=3, tol=1e-3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            named.fit(X, y)
    assert hasattr(named.history_[0], "sent")


def kill_a_worker(client):
    address, pid = next(iter(client.run(os.getpid).items()))
    os.kill(pid, signal.SIGKILL)
    return address


def test_a_killed_worker_costs_its_shard_only(both_workers):
    X, y = class_data(30)
    oracle = placed(both_workers, X, y, 2)
    killed, tol = [], 0.05

    def on_iteration(line, weights):
        if len(killed) < 1 and line.oracle_calls > 45:
            killed.append((kill_a_worker(both_workers), line.dual))
        return False

    solver = DistributedDual(local_passes=0.25)
    result = solver.solve(oracle, Stopping(tol), on_iteration=on_iteration)
    oracle.shards.close()
    assert killed
    assert result.status == "converged"
    assert result.certificate.relative_gap <= tol
    local = mm.StructuredSVM(Classes(), tol=1e-3).fit(X, y)
    assert_allclose(result.certificate.primal, local.certificate_.primal, rtol=tol / (1 - tol))


def slow_bound(path, X, y, weight):
    return make_oracle(SlowSomewhere(path, 0.15), X, y, np.ones(len(X)), "margin")


def test_a_slow_worker_does_not_stall_the_others(both_workers, tmp_path):
    X, y = class_data(40)
    oracle = placed(both_workers, X, y, 2, partial(slow_bound, tmp_path / "slow"))
    # Only moves with searches count, so let there be no others.
    solver = DistributedDual(local_passes=0.5, staleness=4, local=Auto(max_sweeps=0))
    run = DistributedRun(oracle, Stopping(1e-3), None, 0, solver)
    for _ in range(5):
        run.advance()
    counts = sorted(record.oracle_updates for record in run.records)
    assert counts[0] + 2 <= counts[1] <= counts[0] + solver.staleness + 1
    run.settle()
    oracle.shards.close()
    assert run.dual > 0.0


def test_partitions_stay_with_the_workers_that_hold_them(both_workers):
    bag = pytest.importorskip("dask.bag")
    X, y = class_data(40)
    pairs = bag.from_sequence(list(zip(X, y, strict=True)), npartitions=4)
    held = both_workers.persist(pairs)
    distributed.wait(held)
    engine = DaskEngine(both_workers)
    parts = partitions_of(DaskSource(held), 2)
    holders = [engine.holder(part) for part in parts]
    assert set(holders) <= set(engine.workers)
    oracle = shard_oracle(engine, parts, bound, len(set(holders)), "classes")
    for own, holder in zip(oracle.numbers, dict.fromkeys(holders), strict=True):
        assert len(own) == 10 * holders.count(holder)
    oracle.shards.close()
    model = mm.StructuredSVM(Classes(), engine=both_workers, tol=0.3).fit(DaskSource(held))
    assert model.certificate_.relative_gap <= 0.3


def test_a_stuck_worker_loses_its_shard(both_workers, tmp_path):
    """Searches in one process hang; its shard is made again in the other."""
    X, y = class_data(12)
    stuck = SlowSomewhere(tmp_path / "stuck", 3600.0)
    model = mm.StructuredSVM(
        stuck, engine=both_workers, solver=DistributedDual(patience=2.0, local_passes=1.0), tol=0.1
    )
    model.fit(X, y)
    assert model.certificate_.relative_gap <= 0.1
    pid = int((tmp_path / "stuck").read_text())
    os.kill(pid, signal.SIGKILL)  # or it would sleep on
