"""Engines on this machine: threads of this process, and processes."""

import signal
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

from maxmargin.engines.base import Engine, LostPlaceError, Pending


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
