"""Threads for compiled routines, which release the GIL, and for reading ahead."""

import math
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from types import TracebackType
from typing import Self, TypeVar

Task = TypeVar("Task")
Answer = TypeVar("Answer")


WORK_FOR_THREADS = 3e6
"""Multiplications from which on threads pay: about half a millisecond."""


class Threads:
    """`n_jobs` threads; a single one, or a single task, runs in the caller's."""

    def __init__(self, n_jobs: int | None) -> None:
        self.n_threads = n_threads(n_jobs)
        self._pool = ThreadPoolExecutor(self.n_threads) if self.n_threads > 1 else None

    def shares(self, n: int, work: float = math.inf) -> list[slice]:
        """``range(n)`` in one slice a thread; in one slice if `work` for each is too little."""
        parts = self.n_threads if n * work > WORK_FOR_THREADS else 1
        cuts = [n * part // parts for part in range(parts + 1)]
        return [slice(a, b) for a, b in pairwise(cuts) if b > a]

    def map(
        self,
        function: Callable[[Task], Answer],
        tasks: Iterable[Task],
        cancel: Callable[[], None] = lambda: None,
    ) -> list[Answer]:
        """Results of all `tasks`; on an error or Ctrl-C, calls `cancel` and waits for the rest."""
        tasks = list(tasks)
        if self._pool is None or len(tasks) == 1:
            return [function(task) for task in tasks]
        running = [self._pool.submit(function, task) for task in tasks]
        try:
            return [future.result() for future in running]
        except BaseException:
            cancel()
            wait(running)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown()


Item = TypeVar("Item")


def read_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The same items, each read in a thread while the one before is in use."""
    end = object()
    with ThreadPoolExecutor(1) as reader:
        following = reader.submit(next, items, end)
        while (item := following.result()) is not end:
            following = reader.submit(next, items, end)
            yield item  # type: ignore[misc]
            del item  # so that its memory is free before the next is waited for


def n_threads(n_jobs: int | None) -> int:
    """Number of threads for scikit-learn's `n_jobs`."""
    if n_jobs is None:
        return 1
    cores = os.cpu_count() or 1
    return n_jobs if n_jobs > 0 else max(1, cores + 1 + n_jobs)
