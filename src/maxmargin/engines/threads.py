"""Run compiled kernels, which release the GIL, side by side in threads."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from types import TracebackType
from typing import Self, TypeVar

Task = TypeVar("Task")
Answer = TypeVar("Answer")


class Threads:
    """A fixed number of threads that share out tasks and give the answers in order.

    With one thread, or a single task, tasks simply run where they are asked for.
    """

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self._pool = ThreadPoolExecutor(n_threads) if n_threads > 1 else None

    def map(
        self,
        function: Callable[[Task], Answer],
        tasks: Iterable[Task],
        cancel: Callable[[], None] = lambda: None,
    ) -> list[Answer]:
        """Answers of `function` for all `tasks`; never returns while one is still running.

        After Ctrl-C, too: arrays must not change under the caller's hands. `cancel` is called
        before the wait that this may take.
        """
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
