"""An engine whose workers are all in this process, and whose clock is a model.

Every shard does its real work here, one after the other, so that stale weights, moves that are cut
short and the gap are the true ones. Only time is modelled: how long a question travels, how long
the work takes, how long the driver is busy with a message. The driver sees answers in the order
of this clock.
"""

import heapq
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from maxmargin.core.oracle import Oracle
from maxmargin.training.distributed_dual import ShardUpdate, Statistics
from maxmargin.training.engines import Engine
from maxmargin.training.partitions import Partition
from maxmargin.training.shards import Answer, Loader, Shard, ShardedOracle, Shards

Bind = Callable[[Any, Any, Any], Oracle]


@dataclass(frozen=True)
class Network:
    """What messages cost; all in seconds but for the bandwidth.

    Parameters
    ----------
    send, receive : float
        The driver is busy with a question, and with the fetching of an answer.
    service : float
        The scheduler is busy with a task; it takes one after the other.
    latency : float
        From the driver to a worker, and the same back, beside all that.
    bandwidth : float
        Bytes a second of the driver's link, each way.
    jitter : float
        Standard deviation of the logarithm of the work's time, from message to message.
    """

    send: float
    receive: float
    service: float
    latency: float
    bandwidth: float
    jitter: float = 0.0


class WorkCosts(NamedTuple):
    """What a worker takes; None stands for what it takes here, in processor time.

    Parameters
    ----------
    search : float or None
        Seconds of a search.
    rest : float or None
        Seconds of all else in a task.
    """

    search: float | None = None
    rest: float | None = None


class SimulatedEngine(Engine):
    """Places of a cluster that does not exist.

    Parameters
    ----------
    n_workers : int
    network : Network
    costs : WorkCosts
    driver : float or None
        Seconds of the driver's own work for each question; None charges what it takes here.
    seed : int
        Of the jitter.
    """

    def __init__(
        self,
        n_workers: int,
        network: Network,
        costs: WorkCosts = WorkCosts(),  # noqa: B008
        driver: float | None = None,
        seed: int = 0,
    ) -> None:
        self.n_workers, self.network, self.costs, self.driver = n_workers, network, costs, driver
        self.now = self.driver_seconds = 0.0
        self.work_seconds = 0.0
        self.tasks = self.searches = self.bytes_out = self.bytes_in = 0
        self._random = np.random.default_rng(seed)
        self._found, self._search_seconds = 0, 0.0
        """Searches of the task under way, and the processor time of them."""
        self._link_out_free = self._link_in_free = self._scheduler_free = 0.0
        self._coming: list[tuple[float, int, _Coming]] = []
        self._left = time.thread_time()

    @property
    def workers(self) -> list[int]:
        return list(range(self.n_workers))

    def restart(self) -> None:
        """Set the clock, and all counts, to zero; nothing may be under way."""
        assert not self._coming
        self.now = self.driver_seconds = self.work_seconds = 0.0
        self.tasks = self.searches = self.bytes_out = self.bytes_in = 0
        self._link_out_free = self._link_in_free = self._scheduler_free = 0.0
        self._left = time.thread_time()

    def call(self, worker: int, function: Callable[..., Any], *arguments: Any) -> "_Coming":
        self._enter(0.0 if self.driver is None else self.driver)
        asked, network = self.now, self.network
        self.now += network.send
        self.driver_seconds += network.send
        out = size(arguments)
        self._link_out_free = max(self.now, self._link_out_free) + out / network.bandwidth
        self._scheduler_free = max(self._link_out_free, self._scheduler_free) + network.service
        coming = _Coming(worker, asked)
        self._found, self._search_seconds = 0, 0.0
        started = time.thread_time()
        try:
            coming.value = function(*arguments)
        except Exception as error:
            coming.error = error
        coming.value, seconds = self._priced(coming.value, time.thread_time() - started)
        coming.bytes = size(coming.value)
        ready = self._scheduler_free + network.latency + seconds + network.latency
        self.tasks += 1
        self.searches += self._found
        self.bytes_out += out
        self.bytes_in += coming.bytes
        self.work_seconds += seconds
        heapq.heappush(self._coming, (ready, self.tasks, coming))
        self._leave()
        return coming

    def next_answer(self) -> "_Coming | None":
        """Wait for the next answer; None if nobody was asked."""
        self._enter(0.0)
        if not self._coming:
            return None
        ready, _, coming = heapq.heappop(self._coming)
        self._link_in_free = max(ready, self._link_in_free) + coming.bytes / self.network.bandwidth
        self.now = max(self.now, self._link_in_free)
        coming.waited = self.now - coming.asked
        self.now += self.network.receive
        self.driver_seconds += self.network.receive
        self._leave()
        return coming

    def _enter(self, own: float) -> None:
        """The driver comes here after work of its own."""
        spent = own if self.driver is not None else time.thread_time() - self._left
        self.now += spent
        self.driver_seconds += spent

    def _leave(self) -> None:
        self._left = time.thread_time()

    def watch(self, training: Oracle) -> Oracle:
        """The same examples, whose searches are counted."""
        search = training.separate

        def counted(weights: Any, examples: Any, threads: Any) -> Any:
            started = time.thread_time()
            planes = search(weights, examples, threads)
            self._search_seconds += time.thread_time() - started
            self._found += len(examples)
            return planes

        training.separate = counted  # type: ignore[method-assign]
        return training

    def _priced(self, value: Any, cpu_seconds: float) -> tuple[Any, float]:
        """An answer as a worker would give it, and the seconds of the work."""
        search, rest = self.costs
        searching = self._search_seconds if search is None else search * self._found
        seconds = searching + (cpu_seconds - self._search_seconds if rest is None else rest)
        if self.network.jitter:
            factor = float(np.exp(self.network.jitter * self._random.standard_normal()))
            searching, seconds = factor * searching, factor * seconds
        statistics = _statistics(value)
        if statistics is None:
            return value, seconds
        told = statistics._replace(seconds=seconds, oracle_seconds=searching)
        return _with_statistics(value, told), seconds


class _Coming:
    """An answer on its way."""

    def __init__(self, worker: int, asked: float) -> None:
        self.worker, self.asked = worker, asked
        self.value: Any = None
        self.error: Exception | None = None
        self.bytes = 0
        self.waited = 0.0
        self.shard = -1

    def done(self) -> bool:
        return True

    def result(self, timeout: float | None = None) -> Any:
        if self.error is not None:
            raise self.error
        return self.value

    def add_done_callback(self, call: Callable[[Any], Any], /) -> None:
        raise NotImplementedError("Time passes here only while somebody waits.")


class SimulatedShards(Shards):
    """Shards whose questions and answers go by the clock of a `SimulatedEngine`."""

    engine: SimulatedEngine

    def answer(self) -> Answer | None:
        coming = self.engine.next_answer()
        if coming is None:
            return None
        del self._requests[coming.shard]
        return Answer(coming.shard, coming.value, coming.error, coming.waited)

    def _call(self, shard: int, function: Callable[..., Any], *arguments: Any) -> None:
        coming = self.engine.call(self._workers[shard], function, *arguments)
        coming.shard = shard
        self._requests[shard] = coming  # type: ignore[assignment]


def place_simulated(
    engine: SimulatedEngine, parts: Sequence[Partition], make_oracle: Bind
) -> ShardedOracle:
    """Partitions of the data as shards, one for each worker; the clock starts when all is there."""

    def watched(X: Any, y: Any, weight: Any) -> Oracle:
        return engine.watch(make_oracle(X, y, weight))

    loaders = [Loader(partial(Shard, watched), [part]) for part in parts]
    shards = SimulatedShards(engine, loaders)
    training = ShardedOracle(shards, [[part] for part in range(len(parts))], "simulated")
    engine.restart()
    return training


def size(value: Any) -> int:
    """Bytes of all arrays in it."""
    own = getattr(value, "nbytes", None)
    if own is not None:
        return int(own)
    if isinstance(value, list | tuple):
        return sum(map(size, value))
    return 0


def _statistics(value: Any) -> Statistics | None:
    """What an answer tells of the work, if it does."""
    if isinstance(value, ShardUpdate):
        return value.statistics
    if isinstance(value, tuple) and value and isinstance(value[-1], Statistics):
        return value[-1]
    return None


def _with_statistics(value: Any, statistics: Statistics) -> Any:
    if isinstance(value, ShardUpdate):
        return value._replace(statistics=statistics)
    return (*value[:-1], statistics)
