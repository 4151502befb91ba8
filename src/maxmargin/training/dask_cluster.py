"""The workers of a Dask cluster as an engine."""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any

from maxmargin.training.engines import (
    Engine,
    EngineError,
    LostPlaceError,
    NoAnswerYetError,
    Pending,
    leave_interrupts_to_the_driver,
)

FIRST_WORKER = 30.0
"""Seconds to wait until at least one worker is there, or for the scheduler to say so."""

LARGE = 1 << 19
"""Bytes from which on arguments go to the worker themselves, not within the task's description."""

TRANSPORT = (OSError, CancelledError)
"""Errors of connections, among them all timeouts and `CommClosedError`, and answers that are gone
with their worker."""


class DaskEngine(Engine):
    """Workers that a `distributed.Client` knows.

    Parameters
    ----------
    client : distributed.Client
        It stays the caller's: nobody closes it here.
    patience : float, default=30
        Seconds to wait for a worker where there is none, and for a scheduler that says nothing.
    """

    def __init__(self, client: Any, patience: float = FIRST_WORKER) -> None:
        from distributed import LocalCluster

        self.client, self.patience = client, patience
        self._given_up: set[str] = set()
        self._last_seen = time.monotonic()
        """When there was a worker, or the search for one began."""
        if client.status not in ("running", "connecting"):
            raise EngineError(
                f"The Dask client is {client.status}: make a new one with distributed.Client."
            )
        self._shares_our_terminal = isinstance(client.cluster, LocalCluster)
        """Whether Ctrl-C, which a terminal sends to all its processes, would end workers, too."""
        self._told: dict[str, Pending] = {}
        """Workers that were told to leave Ctrl-C to the driver."""

    @property
    def places(self) -> list[str]:
        self._last_seen = time.monotonic()
        while True:
            workers = self._workers()
            if workers:
                return [one for one in workers if one not in self._given_up] or workers
            time.sleep(0.1)

    def missing(self, places: Iterable[str]) -> set[str]:
        return set(places) - set(self._workers())

    def _workers(self) -> list[str]:
        """Those that there are; an error if there has been none for too long."""
        workers = list(self._asked_scheduler("ncores"))
        now = time.monotonic()
        if workers:
            self._last_seen = now
        elif now - self._last_seen > self.patience:
            raise EngineError(
                f"The Dask cluster {self._address} has had no worker for {self.patience:.0f} "
                f"seconds: start some with `dask worker {self._address}`."
            )
        return workers

    def _asked_scheduler(self, method: str, **arguments: Any) -> Any:
        """What the scheduler answers; whoever does not get an answer from it gets none at all."""
        if self.client.status != "running":  # it need not try for long to find out
            raise self._gone()
        try:
            return self.client.sync(
                getattr(self.client.scheduler, method), callback_timeout=self.patience, **arguments
            )
        except Exception as error:
            raise self._gone() from error

    def call(self, place: str, function: Callable[..., Any], *arguments: Any) -> Pending:
        if self._shares_our_terminal and place not in self._told:
            self._told[place] = self._submit(place, _leave_interrupts)
        return self._submit(
            place, function, *(self._sent(place, argument) for argument in arguments)
        )

    def _submit(self, place: str, function: Callable[..., Any], *arguments: Any) -> Pending:
        name = getattr(function, "__name__", "call").strip("_")
        with self._connected():
            pending: Pending = self.client.submit(
                function,
                *arguments,
                key=f"maxmargin_{name}-{uuid.uuid4().hex}",
                workers=[place],
                pure=False,
            )
        return pending

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Say so if an error comes from a client that has lost its scheduler."""
        try:
            yield
        except Exception as error:
            if self.client.status != "running":
                raise self._gone() from error
            raise

    def result(self, pending: Any, timeout: float) -> Any:
        from distributed import KilledWorker

        try:
            with self._connected():
                return pending.result(timeout)
        except KilledWorker as error:
            raise LostPlaceError(str(error)) from error
        except TRANSPORT as error:
            if pending.status == "error":  # of the function itself
                raise
            if isinstance(error, TimeoutError):
                raise NoAnswerYetError(str(error)) from error
            raise LostPlaceError(str(error)) from error

    def lend(self, place: str, data: Any) -> Any:
        if hasattr(data, "__dask_graph__"):
            with self._connected():
                return self.client.compute(data, workers=[place], allow_other_workers=True)
        try:
            return self.client.scatter([data], workers=[place], hash=False)[0]
        except Exception as error:
            if isinstance(error, TRANSPORT) or self.missing([place]):
                raise LostPlaceError(f"The worker {place} is lost.") from error
            raise

    def home(self, data: Any) -> str | None:
        if not hasattr(data, "__dask_graph__"):
            return None
        graph = dict(data.__dask_graph__())
        keys = {*graph, *(key for task in graph.values() for key in _dependencies(task))}
        holders = self._asked_scheduler("who_has", keys=list(keys))
        places = [place for held in holders.values() for place in held]
        return max(places, key=places.count) if places else None

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


def _leave_interrupts() -> None:
    """Let the process of a worker leave Ctrl-C to the driver, from the thread that may say so."""
    from distributed import get_worker

    get_worker().loop.add_callback(leave_interrupts_to_the_driver)
