"""Shards that are lost at the worst moment, and questions that reach the wrong place."""

import numpy as np
import pytest
from distributed_problems import Classes, class_data

from maxmargin.core.python_oracle import make_oracle
from maxmargin.solvers.loop import Stopping
from maxmargin.training import shards as shards_module
from maxmargin.training.distributed_cutting_plane import DistributedOneSlack
from maxmargin.training.distributed_dual import DistributedDual
from maxmargin.training.engines import ProcessEngine, ThreadEngine
from maxmargin.training.partitions import Partition
from maxmargin.training.shards import Loader, Shards, shard_oracle


def bound(X, y, weight):
    return make_oracle(Classes(), X, y, np.ones(len(X)), "margin")


@pytest.mark.parametrize("solver", [DistributedDual(), DistributedOneSlack()], ids=["dual", "one"])
def test_a_shard_lost_after_the_last_round(solver):
    """What it had proved is gone: training must go on before anybody says "converged"."""
    X, y = class_data(40)
    owns = [np.arange(part, 40, 2) for part in range(2)]
    parts = [Partition([X[i] for i in own], [y[i] for i in own], None, own) for own in owns]
    iterations, lost = [], []
    with ThreadEngine(2) as engine:
        oracle = shard_oracle(engine, parts, bound, 2, "classes")

        def on_iteration(line, weights):
            iterations.append(line)
            if not lost and line.dual >= 0.95 * line.primal:
                lost.append(len(iterations))
                del shards_module._TABLE[oracle.shards._key(1)]
            return False

        result = solver.solve(oracle, Stopping(0.05), on_iteration=on_iteration)
        oracle.shards.close()
    assert lost
    assert result.status == "converged"
    assert result.certificate.relative_gap <= 0.05
    assert result.iterations > lost[0]


class Straying(ProcessEngine):
    """Gives one question to another place than it was meant for, as a busy cluster may."""

    strays = False

    def call(self, worker, function, *arguments):
        if self.strays:
            self.strays, worker = False, 1 - worker
        return super().call(worker, function, *arguments)


class Counter:
    def __init__(self, parts):
        self.total = sum(parts)

    def add(self, n):
        self.total += n
        return self.total


def test_a_question_that_goes_astray_is_asked_again():
    with Straying(2) as engine:
        shards = Shards(engine, [Loader(Counter, [1]), Loader(Counter, [10])])
        for shard in range(2):
            shards.make(shard)
        shards.wait()
        engine.strays = True
        assert shards.ask_all("add", 5) == [6, 15]
        shards.close()
