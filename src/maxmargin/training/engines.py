"""What an engine is: places that work can be sent to.

Engines on this machine: threads of this process, and processes.

Which engine a fit runs on: its parameter says so, or the context.
"""

import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Protocol, Self


class EngineError(RuntimeError):
    """The engine can do no work any more, or never could; says why, and what to do."""


class LostPlaceError(RuntimeError):
    """A place is gone, and with it all that was kept there; others may be left."""


class NoAnswerYetError(RuntimeError):
    """An answer has not arrived in the time that somebody was ready to wait for it."""


class Pending(Protocol):
    """An answer that will come; futures of Python and of Dask are such."""

    def result(self, timeout: float | None = None) -> Any: ...

    def done(self) -> bool: ...

    def add_done_callback(self, call: Callable[[Any], Any], /) -> Any: ...


class Engine(ABC):
    """Places, each of which works through what it is sent.

    A place may be lost, and with it all that was kept there. Others may come.
    """

    @property
    @abstractmethod
    def places(self) -> list[Any]:
        """Names of the places that can be used now.

        Raises
        ------
        EngineError
            If there is none.
        """

    @abstractmethod
    def call(self, place: Any, function: Callable[..., Any], *arguments: Any) -> Pending:
        """Call a function there, and nowhere else.

        If the place is lost, the answer may never come: `missing` tells.

        Raises
        ------
        LostPlaceError
            If the place is known to be lost.
        """

    def result(self, pending: Pending, timeout: float) -> Any:
        """What the function returned, or raised.

        Raises
        ------
        LostPlaceError
            If the answer is lost with its place.
        NoAnswerYetError
            If it takes longer than `timeout` seconds to get here.
        """
        return pending.result()

    def lend(self, place: Any, data: Any) -> Any:
        """What to pass as an argument in the place of large data, or of data that lie there.

        Raises
        ------
        LostPlaceError
            If the place is lost.
        """
        return data

    def home(self, data: Any) -> Any:
        """The place where lazy data lie already; None if there is none."""
        return None

    def missing(self, places: Iterable[Any]) -> set[Any]:
        """Those of the places that are not there any more.

        Raises
        ------
        EngineError
            If no answer can come any more, from wherever.
        """
        return set()

    def give_up(self, place: Any) -> None:  # noqa: B027
        """Expect nothing of a place any more."""

    def close(self) -> None:  # noqa: B027
        """End what was started for this engine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class ThreadEngine(Engine):
    """Threads: for searches that release the GIL, and the first place to look for mistakes.

    Parameters
    ----------
    n_threads : int
    """

    def __init__(self, n_threads: int) -> None:
        self._threads = [ThreadPoolExecutor(1) for _ in range(n_threads)]

    @property
    def places(self) -> list[int]:
        return list(range(len(self._threads)))

    def call(self, place: int, function: Callable[..., Any], *arguments: Any) -> Pending:
        return self._threads[place].submit(function, *arguments)

    def close(self) -> None:
        for thread in self._threads:
            thread.shutdown(cancel_futures=True)


class ProcessEngine(Engine):
    """Processes of this machine, for searches in pure Python.

    Parameters
    ----------
    n_processes : int
    """

    def __init__(self, n_processes: int) -> None:
        self._processes = [_one_process() for _ in range(n_processes)]

    @property
    def places(self) -> list[int]:
        return list(range(len(self._processes)))

    def call(self, place: int, function: Callable[..., Any], *arguments: Any) -> Pending:
        try:
            return self._processes[place].submit(function, *arguments)
        except _ended() as error:
            raise LostPlaceError(f"Process {place} has ended.") from error

    def result(self, pending: Pending, timeout: float) -> Any:
        try:
            return pending.result()
        except _ended() as error:
            raise LostPlaceError("The process has ended.") from error

    def give_up(self, place: int) -> None:
        lost, self._processes[place] = self._processes[place], _one_process()
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
    """A pool of a single process: what is kept in it is found again."""
    from joblib.externals.loky.process_executor import ProcessPoolExecutor

    pool: Executor = ProcessPoolExecutor(max_workers=1, initializer=leave_interrupts_to_the_driver)
    return pool


def leave_interrupts_to_the_driver() -> None:
    """Ignore Ctrl-C in a worker: a terminal sends it to all, but who certifies needs the others."""
    if threading.current_thread() is threading.main_thread():  # else it is the driver's process
        signal.signal(signal.SIGINT, signal.SIG_IGN)


ENGINES = ("threads", "processes", "dask")

_CURRENT: ContextVar[Any] = ContextVar("engine", default="threads")


@contextmanager
def engine(kind: Any) -> Iterator[None]:
    """Let fits within run on another engine; their own parameter `engine` still counts more.

    Parameters
    ----------
    kind : {"threads", "processes", "dask"} or distributed.Client
        Threads of this process; processes of this machine, for searches in pure Python; the workers
        of the present Dask client, or of the one given.

    Examples
    --------
    >>> import numpy as np
    >>> import maxmargin as mm
    >>> with mm.engine("threads"):
    ...     model = mm.SequenceTagger().fit([np.eye(2)], [["a", "b"]])
    >>> model.status_
    'converged'
    """
    check_engine(kind)
    token = _CURRENT.set(kind)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def chosen_engine(parameter: Any) -> Any:
    """What to run on: the parameter, or what the context says if it is None."""
    return check_engine(_CURRENT.get() if parameter is None else parameter)


def check_engine(kind: Any) -> Any:
    """The same, if there is such an engine."""
    if kind in ENGINES if isinstance(kind, str) else _is_client(kind):
        return kind
    raise ValueError(
        f"engine must be 'threads', 'processes', 'dask' or a distributed.Client, but is {kind!r}."
    )


def make_engine(kind: Any, n_jobs: int) -> Engine:
    """The engine itself, with so many threads or processes; a cluster has its own workers."""
    if kind == "threads":
        return ThreadEngine(n_jobs)
    if kind == "processes":
        return ProcessEngine(n_jobs)
    from maxmargin.training.dask_cluster import DaskEngine  # which builds on this module

    return DaskEngine(_present_client() if kind == "dask" else kind)


def _is_client(kind: Any) -> bool:
    return hasattr(kind, "scheduler_info") and hasattr(kind, "submit")


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
