"""The engine with a modelled clock: what it does is real, and its time is what the model says."""

import sys
from pathlib import Path

import numpy as np
import pytest
from distributed_problems import Classes, class_data
from numpy.testing import assert_allclose, assert_array_equal

from maxmargin.core.certificate import certify
from maxmargin.core.python_oracle import PythonOracle, make_oracle
from maxmargin.solvers.loop import Stopping
from maxmargin.training.distributed_cutting_plane import DistributedOneSlack
from maxmargin.training.distributed_dual import DistributedDual
from maxmargin.training.engines import ThreadEngine
from maxmargin.training.partitions import Partition
from maxmargin.training.shards import Loader, shard_oracle

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from benchmarks.simulated_engine import (
    Network,
    SimulatedEngine,
    SimulatedShards,
    WorkCosts,
    place_simulated,
    size,
)

FREE = Network(send=0.0, receive=0.0, service=0.0, latency=0.0, bandwidth=np.inf)
SEARCHES = WorkCosts(search=1.0, rest=0.0)
WAITING = DistributedDual(staleness=0, local_passes=0.25)


def bound(X, y, weight):
    return make_oracle(Classes(), X, y, np.ones(len(X)), "margin")


def parts_of(n_parts, n=40):
    X, y = class_data(n)
    owns = [np.arange(part, n, n_parts) for part in range(n_parts)]
    return [Partition([X[i] for i in own], [y[i] for i in own], None, own) for own in owns]


def simulated(n_workers, network=FREE, costs=SEARCHES, solver=WAITING, seed=0, **stopping):
    engine = SimulatedEngine(n_workers, network, costs, driver=0.0, seed=seed)
    oracle = place_simulated(engine, parts_of(n_workers), bound)
    result = solver.solve(oracle, Stopping(**({"tol": 1e-3} | stopping)))
    oracle.shards.close()
    return result, engine


class Echo:
    """A shard that answers with what it is asked, and searches nothing."""

    def echo(self, value):
        return value


def echoing_shards(n_workers, network, costs):
    engine = SimulatedEngine(n_workers, network, costs, driver=0.0)
    shards = SimulatedShards(engine, [Loader(lambda parts: Echo(), [])] * n_workers)
    for shard in range(n_workers):
        shards.make(shard)
    shards.wait()
    engine.restart()
    return shards, engine


@pytest.mark.parametrize("solver", [WAITING, DistributedOneSlack()], ids=["dual", "one-slack"])
def test_what_is_computed_is_what_threads_compute(solver):
    result, _ = simulated(3, solver=solver, max_iter=30)
    with ThreadEngine(3) as engine:
        oracle = shard_oracle(engine, parts_of(3), bound, 3, "classes")
        real = solver.solve(oracle, Stopping(1e-3, max_iter=30))
        oracle.shards.close()
    assert_array_equal(result.weights, real.weights)
    assert result.iterations == real.iterations


def test_the_gap_is_that_of_the_whole_data():
    X, y = class_data(40)
    network = Network(send=0.1, receive=0.1, service=0.1, latency=0.5, bandwidth=1e4)
    engine = SimulatedEngine(4, network, WorkCosts(search=1.0, rest=0.5), driver=0.1)
    oracle = place_simulated(engine, parts_of(4), bound)
    oracle.lists_point = True
    result = DistributedDual().solve(oracle, Stopping(1e-2))
    whole = PythonOracle(Classes(), X, y, np.ones(len(X)))
    again = certify(whole, result.weights, result.dual_point)
    assert result.certificate.relative_gap <= 1e-2
    assert_allclose(again.primal, result.certificate.primal, rtol=1e-12)


def test_searches_on_one_free_worker_are_all_the_time():
    _, engine = simulated(1)
    assert engine.searches >= 40
    assert_allclose(engine.now, engine.searches)
    assert_allclose(engine.work_seconds, engine.now)


def test_workers_that_wait_for_all_take_as_long_as_the_slowest():
    """Ten examples each, all of which are searched in a round, or none."""
    _, engine = simulated(4, solver=DistributedOneSlack())
    assert_allclose(engine.now, engine.searches / 4)


def test_a_message_takes_what_the_network_says():
    network = Network(send=1.0, receive=2.0, service=4.0, latency=8.0, bandwidth=10.0)
    shards, engine = echoing_shards(1, network, WorkCosts(rest=16.0))
    value = np.zeros(25)  # 200 bytes, 20 seconds each way
    shards.ask(0, "echo", value)
    answer = shards.answer()
    there_and_back = 1.0 + 20.0 + 4.0 + 8.0 + 16.0 + 8.0 + 20.0
    assert answer.seconds == there_and_back
    assert engine.now == there_and_back + 2.0
    assert (engine.bytes_out, engine.bytes_in) == (200, 200)
    assert engine.driver_seconds == 3.0
    assert shards.answer() is None


def test_link_scheduler_and_driver_take_one_message_after_the_other():
    costs = WorkCosts(rest=1.0)
    for network in (
        Network(send=3.0, receive=0.0, service=0.0, latency=0.0, bandwidth=np.inf),
        Network(send=0.0, receive=3.0, service=0.0, latency=0.0, bandwidth=np.inf),
        Network(send=0.0, receive=0.0, service=3.0, latency=0.0, bandwidth=np.inf),
    ):
        shards, engine = echoing_shards(5, network, costs)
        shards.ask_all("echo", 0)
        assert engine.now == 5 * 3.0 + 1.0
    shards, engine = echoing_shards(5, FREE, costs)
    shards.ask_all("echo", 0)
    assert engine.now == 1.0
    narrow = Network(send=0.0, receive=0.0, service=0.0, latency=0.0, bandwidth=8.0)
    shards, engine = echoing_shards(5, narrow, costs)
    shards.ask_all("echo", np.zeros(1))
    assert engine.now == 1.0 + 5 * 1.0 + 1.0  # the first answer needs its second only at the end


def test_answers_come_in_the_order_of_the_clock():
    shards, engine = echoing_shards(2, FREE, WorkCosts(rest=1.0))
    shards.ask(0, "echo", "late")
    engine.costs = WorkCosts(rest=0.5)
    shards.ask(1, "echo", "early")
    assert [shards.answer().value, shards.answer().value] == ["early", "late"]
    assert engine.now == 1.0


def test_jitter_changes_time_and_repeats_with_its_seed():
    network = Network(0.0, 0.0, 0.0, 0.0, np.inf, jitter=0.3)
    solver = DistributedOneSlack()
    times = [simulated(4, network, solver=solver, seed=seed)[1].now for seed in (1, 1, 2)]
    assert times[0] == times[1] != times[2]
    _, free = simulated(4, solver=solver)
    assert times[0] > free.now  # all wait for the slowest


def test_errors_of_shards_reach_the_driver():
    shards, _ = echoing_shards(1, FREE, SEARCHES)
    shards.ask(0, "sing")
    with pytest.raises(AttributeError, match="sing"):
        shards.wait()


def test_bytes_of_what_crosses():
    assert size((np.zeros(3), [np.zeros(1), "text"], {"no": 1})) == 32
