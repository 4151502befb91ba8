"""What an engine is: places that work can be sent to."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
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
