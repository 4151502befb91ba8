"""What an engine is: places that work can be sent to."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, Self


class EngineError(RuntimeError):
    """The engine can do no work any more, or never could; says why, and what to do."""


class Pending(Protocol):
    """An answer that will come; futures of Python and of Dask are such."""

    def result(self) -> Any: ...

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
        """Call a function there; somewhere else, if the place is lost in the meantime."""

    def lend(self, place: Any, data: Any) -> Any:
        """What to pass as an argument in the place of large data, or of data that lie there."""
        return data

    def home(self, data: Any) -> Any:
        """The place where lazy data lie already; None if there is none."""
        return None

    @abstractmethod
    def is_loss(self, error: BaseException) -> bool:
        """Whether an answer's error means that its place is lost, not that the work failed."""

    def check(self) -> None:  # noqa: B027
        """Raise an `EngineError` if no answer can come any more."""

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
