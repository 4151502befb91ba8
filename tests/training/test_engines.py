"""Engines in this process and in others, without a cluster."""

import builtins
import os
import signal
import time

import numpy as np
import pytest
from distributed_problems import Classes, class_data
from numpy.testing import assert_array_equal

import maxmargin as mm
from maxmargin.training.distributed_dual import DistributedDual
from maxmargin.training.engines import EngineError, ProcessEngine, ThreadEngine
from maxmargin.training.fit import chosen_engine, engine
from maxmargin.training.shards import Loader, LostShardError, Shards


class Counter:
    def __init__(self, parts):
        self.total = sum(parts)

    def add(self, n):
        if n < 0:
            raise ValueError("less is no more")
        self.total += n
        return self.total

    def pid(self):
        return os.getpid()


@pytest.mark.parametrize("kind", [ThreadEngine, ProcessEngine])
def test_shards_keep_what_they_are_told(kind):
    with kind(2) as workers:
        shards = Shards(workers, [Loader(Counter, [1, 2]), Loader(Counter, [10])])
        for shard in range(2):
            shards.make(shard)
        shards.wait()
        assert shards.ask_all("add", 5) == [8, 15]
        assert shards.ask_all("add", 1) == [9, 16]
        with pytest.raises(ValueError, match="less is no more"):
            shards.ask_all("add", -1)
        assert shards.ask_all("add", 1) == [10, 17]
        shards.ask(0, "add", 0)
        with pytest.raises(EngineError, match="has not answered"):
            shards.ask(0, "add", 0)
        assert shards.answer().value == 10
        assert shards.answer() is None
        shards.close()
        shards.ask(0, "add", 1)
        assert isinstance(shards.answer().error, LostShardError)


def test_a_killed_process_is_noticed_and_replaced():
    with ProcessEngine(2) as workers:
        shards = Shards(workers, [Loader(Counter, [1]), Loader(Counter, [2])])
        for shard in range(2):
            shards.make(shard)
        shards.wait()
        first, second = shards.ask_all("pid")
        assert first != second
        os.kill(second, signal.SIGKILL)
        time.sleep(0.2)
        with pytest.raises(LostShardError):
            shards.ask_all("add", 1)
        assert list(shards.restore(lambda shard: ("pid",))) == [1]
        assert shards.ask_all("add", 1)[1] == 3


def test_processes_train_what_threads_train():
    X, y = class_data(40)
    local = mm.StructuredSVM(Classes()).fit(X, y)
    with engine("processes"):
        there = mm.StructuredSVM(Classes()).fit(X, y)
    assert_array_equal(there.weights_, local.weights_)
    with engine("processes"):
        here = mm.StructuredSVM(Classes(), engine="threads").fit(X, y)
    assert not hasattr(here.history_[0], "sent")


def test_engines_that_are_none():
    with pytest.raises(ValueError, match="engine must be 'threads'"), engine("cloud"):
        pass
    with pytest.raises(ValueError, match="engine"):
        mm.StructuredSVM(Classes(), engine="cloud").fit(*class_data(10))
    assert chosen_engine(None) == "threads"


def test_dask_without_a_client_or_not_installed(monkeypatch):
    pytest.importorskip("distributed")
    with pytest.raises(EngineError, match="needs a client"):
        mm.StructuredSVM(Classes(), engine="dask").fit(*class_data(10))
    imported = builtins.__import__

    def no_distributed(name, *arguments, **options):
        if name == "distributed":
            raise ImportError(name)
        return imported(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", no_distributed)
    with pytest.raises(EngineError, match=r"pip install 'maxmargin\[dask\]'"):
        mm.StructuredSVM(Classes(), engine="dask").fit(*class_data(10))


def test_a_closed_client_is_refused():
    distributed = pytest.importorskip("distributed")
    closed = distributed.Client(processes=False, dashboard_address=None, n_workers=1)
    closed.close()
    with pytest.raises(EngineError, match="client is closed"):
        mm.StructuredSVM(Classes(), engine=closed).fit(*class_data(10))


def test_more_places_than_examples():
    X, y = class_data(10)
    X, y = X[:3], y[:3]
    model = mm.StructuredSVM(Classes(), solver=DistributedDual(), n_jobs=8).fit(X, y)
    assert np.isfinite(model.certificate_.gap)
