"""Engines: workers that calls can be sent to (threads, processes, those of a Dask cluster)."""

import signal
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Executor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol, Self


class EngineError(RuntimeError):
    """The engine can do no work any more, or never could; says why, and what to do."""


class LostWorkerError(RuntimeError):
    """A worker is lost, with all that it kept; others may be left."""


class NoAnswerYetError(RuntimeError):
    """An answer has not arrived in time."""


class Pending(Protocol):
    """An answer to come: a future of Python or of Dask."""

    def result(self, timeout: float | None = None) -> Any: ...

    def done(self) -> bool: ...

    def add_done_callback(self, call: Callable[[Any], Any], /) -> Any: ...


class Engine(ABC):
    """Workers, each of which runs what it is sent; they may be lost, and others may join."""

    @property
    @abstractmethod
    def workers(self) -> list[Any]:
        """Workers that can be used now; `EngineError` if there is none."""

    @abstractmethod
    def call(self, worker: Any, function: Callable[..., Any], *arguments: Any) -> Pending:
        """Call a function on this worker; `LostWorkerError` if it is known to be lost.

        If it is lost later, the answer may never come: `missing` tells.
        """

    def result(self, pending: Pending, timeout: float) -> Any:
        """What the function returned or raised.

        `LostWorkerError` if the answer is lost with its worker, `NoAnswerYetError` after `timeout`
        seconds.
        """
        return pending.result()

    def scatter(self, worker: Any, data: Any) -> Any:
        """What to pass instead of large data, or of data that lie on the worker."""
        return data

    def holder(self, data: Any) -> Any:
        """The worker that holds lazy data already, if any."""
        return None

    def missing(self, workers: Iterable[Any]) -> set[Any]:
        """Lost workers among these; `EngineError` if no answer can come any more."""
        return set()

    def give_up(self, worker: Any) -> None:  # noqa: B027
        """Expect no more answers of a worker."""

    def close(self) -> None:  # noqa: B027
        """End what was started for this engine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class ThreadEngine(Engine):
    """Threads of this process, for inference that releases the GIL."""

    def __init__(self, n_threads: int) -> None:
        self._threads = [ThreadPoolExecutor(1) for _ in range(n_threads)]

    @property
    def workers(self) -> list[int]:
        return list(range(len(self._threads)))

    def call(self, worker: int, function: Callable[..., Any], *arguments: Any) -> Pending:
        return self._threads[worker].submit(function, *arguments)

    def close(self) -> None:
        for thread in self._threads:
            thread.shutdown(cancel_futures=True)


class ProcessEngine(Engine):
    """Processes of this machine, for inference in pure Python."""

    def __init__(self, n_processes: int) -> None:
        self._processes = [_one_process() for _ in range(n_processes)]

    @property
    def workers(self) -> list[int]:
        return list(range(len(self._processes)))

    def call(self, worker: int, function: Callable[..., Any], *arguments: Any) -> Pending:
        try:
            return self._processes[worker].submit(function, *arguments)
        except _ended() as error:
            raise LostWorkerError(f"Process {worker} has ended.") from error

    def result(self, pending: Pending, timeout: float) -> Any:
        try:
            return pending.result()
        except _ended() as error:
            raise LostWorkerError("The process has ended.") from error

    def give_up(self, worker: int) -> None:
        lost, self._processes[worker] = self._processes[worker], _one_process()
        lost.shutdown(wait=False, kill_workers=True)  # type: ignore[call-arg]

    def close(self) -> None:
        for process in self._processes:
            process.shutdown(kill_workers=True)  # type: ignore[call-arg]


def _ended() -> tuple[type[Exception], ...]:
    """What pools raise whose process has ended, or was ended by `give_up`."""
    from joblib.externals.loky.process_executor import (  # type: ignore[import-untyped]
        BrokenProcessPool,
        ShutdownExecutorError,
    )

    return BrokenProcessPool, ShutdownExecutorError


def _one_process() -> Executor:
    """A pool of a single process, which finds again what is kept in it."""
    from joblib.externals.loky.process_executor import ProcessPoolExecutor

    pool: Executor = ProcessPoolExecutor(max_workers=1, initializer=_ignore_interrupts)
    return pool


def _ignore_interrupts() -> None:
    """Ignore Ctrl-C, which a terminal sends to workers too: the driver still needs them."""
    if threading.current_thread() is threading.main_thread():  # else it is the driver's process
        signal.signal(signal.SIGINT, signal.SIG_IGN)


FIRST_WORKER_SECONDS = 30.0
"""Time to wait for a first worker, or for the scheduler to answer."""

LARGE_BYTES = 1 << 19
"""Size from which arguments go to the worker directly, not with the task."""

TRANSPORT_ERRORS = (OSError, CancelledError, UnboundLocalError)
"""Errors of connections, timeouts among them, and of answers lost with their worker.

`distributed` raises `UnboundLocalError` where the transfer of an answer was cancelled: its `sync`
then has neither a result nor an error.
"""


class DaskEngine(Engine):
    """Workers of a `distributed.Client`, which stays the caller's; `patience` is in seconds."""

    def __init__(self, client: Any, patience: float = FIRST_WORKER_SECONDS) -> None:
        from distributed import LocalCluster

        self.client, self.patience = client, patience
        self._given_up: set[str] = set()
        self._last_seen = time.monotonic()
        """When there was a worker, or waiting for one began."""
        if client.status not in ("running", "connecting"):
            raise EngineError(
                f"The Dask client is {client.status}: make a new one with distributed.Client."
            )
        self._shares_our_terminal = isinstance(client.cluster, LocalCluster)
        """Whether Ctrl-C in our terminal would end the workers."""
        self._told: dict[str, Pending] = {}

    @property
    def workers(self) -> list[str]:
        self._last_seen = time.monotonic()
        while True:
            workers = self._known_workers()
            if workers:
                return [one for one in workers if one not in self._given_up] or workers
            time.sleep(0.1)

    def missing(self, workers: Iterable[str]) -> set[str]:
        return set(workers) - set(self._known_workers())

    def _known_workers(self) -> list[str]:
        """Present workers; an error if there has been none for too long."""
        workers = list(self._ask_scheduler("ncores"))
        now = time.monotonic()
        if workers:
            self._last_seen = now
        elif now - self._last_seen > self.patience:
            address = self.client.scheduler.address if self.client.scheduler else "(closed)"
            raise EngineError(
                f"The Dask cluster {address} has had no worker for {self.patience:.0f} "
                f"seconds: start some with `dask worker {address}`."
            )
        return workers

    def _ask_scheduler(self, method: str, **arguments: Any) -> Any:
        """The scheduler's answer; an error without one, as no worker could answer either."""
        if self.client.status != "running":  # saves a long timeout
            raise _scheduler_lost()
        try:
            return self.client.sync(
                getattr(self.client.scheduler, method), callback_timeout=self.patience, **arguments
            )
        except Exception as error:
            raise _scheduler_lost() from error

    def call(self, worker: str, function: Callable[..., Any], *arguments: Any) -> Pending:
        if self._shares_our_terminal and worker not in self._told:
            self._told[worker] = self._submit(worker, _ignore_interrupts_in_worker)
        sent = (
            self.scatter(worker, one) if getattr(one, "nbytes", 0) > LARGE_BYTES else one
            for one in arguments
        )
        return self._submit(worker, function, *sent)

    def _submit(self, worker: str, function: Callable[..., Any], *arguments: Any) -> Pending:
        name = getattr(function, "__name__", "call").strip("_")
        with self._connected():
            key = f"maxmargin_{name}-{uuid.uuid4().hex}"
            pending: Pending = self.client.submit(
                function, *arguments, key=key, workers=[worker], pure=False
            )
        return pending

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Say so if an error comes from a client that has lost its scheduler."""
        try:
            yield
        except Exception as error:
            if self.client.status != "running":
                raise _scheduler_lost() from error
            raise

    def result(self, pending: Any, timeout: float) -> Any:
        from distributed import KilledWorker

        try:
            with self._connected():
                return pending.result(timeout)
        except KilledWorker as error:
            raise LostWorkerError(str(error)) from error
        except TRANSPORT_ERRORS as error:
            if pending.status == "error":  # of the function itself
                raise
            if isinstance(error, TimeoutError):
                raise NoAnswerYetError(str(error)) from error
            raise LostWorkerError(str(error)) from error

    def scatter(self, worker: str, data: Any) -> Any:
        if hasattr(data, "__dask_graph__"):
            with self._connected():
                return self.client.compute(data, workers=[worker], allow_other_workers=True)
        try:
            return self.client.scatter([data], workers=[worker], hash=False)[0]
        except Exception as error:
            if isinstance(error, TRANSPORT_ERRORS) or self.missing([worker]):
                raise LostWorkerError(f"The worker {worker} is lost.") from error
            raise

    def holder(self, data: Any) -> str | None:
        if not hasattr(data, "__dask_graph__"):
            return None
        graph = dict(data.__dask_graph__())
        asked_for = (key for task in graph.values() for key in getattr(task, "dependencies", ()))
        holders = self._ask_scheduler("who_has", keys=list({*graph, *asked_for}))
        workers = [worker for held in holders.values() for worker in held]
        return max(workers, key=workers.count) if workers else None

    def give_up(self, worker: str) -> None:
        self._given_up.add(worker)


def _scheduler_lost() -> EngineError:
    return EngineError(
        "The connection to the Dask scheduler is lost: connect to a cluster anew, and go on "
        "from the last checkpoint with Checkpoint(path, resume=True) if the fit had one."
    )


def _ignore_interrupts_in_worker() -> None:
    """Have a Dask worker ignore Ctrl-C, from the thread that may set it."""
    from distributed import get_worker

    get_worker().loop.add_callback(_ignore_interrupts)


def make_engine(kind: Any, n_jobs: int) -> Engine:
    """The engine of a kind, with `n_jobs` threads or processes; a cluster has its own workers."""
    if kind == "threads":
        return ThreadEngine(n_jobs)
    if kind == "processes":
        return ProcessEngine(n_jobs)
    return DaskEngine(_present_client() if kind == "dask" else kind)


def _present_client() -> Any:
    try:
        from distributed import get_client
    except ImportError as error:
        raise EngineError(
            "engine='dask' needs Dask's distributed scheduler: pip install 'maxmargin[dask]'."
        ) from error
    try:
        return get_client()
    except ValueError as error:
        raise EngineError(
            "engine='dask' needs a client: make one before, with client = distributed.Client() for "
            "this machine or distributed.Client(address) for a cluster."
        ) from error
