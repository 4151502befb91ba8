"""The workers of a Dask cluster as an engine."""

import time
import uuid
from collections.abc import Callable
from typing import Any

from maxmargin.engines.base import Engine, EngineError, Pending
from maxmargin.engines.local import leave_interrupts_to_the_driver

FIRST_WORKER = 30.0
"""Seconds to wait until at least one worker is there."""

LARGE = 1 << 19
"""Bytes from which on arguments go to the worker themselves, not within the task's description."""


class DaskEngine(Engine):
    """Workers that a `distributed.Client` knows.

    Parameters
    ----------
    client : distributed.Client
        It stays the caller's: nobody closes it here.
    patience : float, default=30
        Seconds to wait for a worker where there is none.
    """

    def __init__(self, client: Any, patience: float = FIRST_WORKER) -> None:
        self.client, self.patience = client, patience
        self._given_up: set[str] = set()
        self._last_seen = time.monotonic()
        """When there was a worker, or the search for one began."""
        if client.status not in ("running", "connecting"):
            raise EngineError(
                f"The Dask client is {client.status}: make a new one with distributed.Client."
            )
        if self._shares_our_terminal:
            client.run(leave_interrupts_to_the_driver)

    @property
    def _shares_our_terminal(self) -> bool:
        """Whether Ctrl-C, which a terminal sends to all its processes, would end workers, too."""
        from distributed import LocalCluster

        return isinstance(self.client.cluster, LocalCluster)

    @property
    def places(self) -> list[str]:
        self._last_seen = time.monotonic()
        while True:
            workers = self._workers()
            if workers:
                return [one for one in workers if one not in self._given_up] or workers
            time.sleep(0.1)

    def _workers(self) -> list[str]:
        """Those that there are; an error if there has been none for too long."""
        try:
            workers = list(self.client.scheduler_info(n_workers=-1)["workers"])
        except Exception as error:
            raise self._gone() from error
        if self.client.status != "running":
            raise self._gone()
        now = time.monotonic()
        if workers:
            self._last_seen = now
        elif now - self._last_seen > self.patience:
            raise EngineError(
                f"The Dask cluster {self._address} has had no worker for {self.patience:.0f} "
                f"seconds: start some with `dask worker {self._address}`."
            )
        return workers

    def call(self, place: str, function: Callable[..., Any], *arguments: Any) -> Pending:
        name = getattr(function, "__name__", "call").strip("_")
        try:
            pending: Pending = self.client.submit(
                function,
                *(self._sent(place, argument) for argument in arguments),
                key=f"maxmargin_{name}-{uuid.uuid4().hex}",
                workers=[place],
                allow_other_workers=True,
                pure=False,
            )
        except Exception as error:
            if self.client.status != "running":
                raise self._gone() from error
            raise
        return pending

    def lend(self, place: str, data: Any) -> Any:
        if hasattr(data, "__dask_graph__"):
            return self.client.compute(data, workers=[place], allow_other_workers=True)
        return self.client.scatter([data], workers=[place], hash=False)[0]

    def home(self, data: Any) -> str | None:
        if not hasattr(data, "__dask_graph__"):
            return None
        graph = dict(data.__dask_graph__())
        keys = {*graph, *(key for task in graph.values() for key in _dependencies(task))}
        holders = self.client.sync(self.client.scheduler.who_has, keys=list(keys))
        places = [place for held in holders.values() for place in held]
        return max(places, key=places.count) if places else None

    def is_loss(self, error: BaseException) -> bool:
        from distributed import KilledWorker
        from distributed.client import FutureCancelledError
        from distributed.comm.core import CommClosedError

        kinds = (KilledWorker, FutureCancelledError, CommClosedError, TimeoutError)
        return isinstance(error, kinds)

    def check(self) -> None:
        self._workers()

    def give_up(self, place: str) -> None:
        self._given_up.add(place)

    @property
    def _address(self) -> str:
        return str(self.client.scheduler.address) if self.client.scheduler else "(closed)"

    def _gone(self) -> EngineError:
        return EngineError(
            "The connection to the Dask scheduler is lost: connect to a cluster anew, and go on "
            "from the last checkpoint with resume=True if the fit had one."
        )

    def _sent(self, place: str, argument: Any) -> Any:
        large = getattr(argument, "nbytes", 0) > LARGE
        return self.lend(place, argument) if large else argument


def _dependencies(task: Any) -> Any:
    """Keys that a task of a graph asks for."""
    return getattr(task, "dependencies", ())
