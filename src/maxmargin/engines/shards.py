"""Shards: parts of the data with a state, each kept in one place and asked for things.

Where a shard is kept it stands in a table of that process. A request names the shard and which
making of it is meant: if that one is gone with its place, the answer says so, and whoever asks
has it made again, there or elsewhere.
"""

import itertools
import queue
import threading
import time
import uuid
from collections.abc import Callable, KeysView, Sequence
from typing import Any, NamedTuple

from maxmargin.engines.base import Engine, EngineError, Pending

Key = tuple[str, int]

GOODBYE = 5.0
"""Seconds that places have to forget their shards."""

TRIALS = 3
"""How often a place that is there is asked for a shard that somebody else was asked for instead."""

ATTEMPTS = 20
"""How often data are offered to places that turn out to be lost."""


class LostShardError(RuntimeError):
    """A shard is gone with its place, and with it all that was kept there.

    Parameters
    ----------
    number : int
        Of the shard.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"Shard {number} is lost.")
        self.number = number


class Loader(NamedTuple):
    """How a shard is made.

    Parameters
    ----------
    make : callable
        Takes the parts, returns the shard.
    parts : list
        Data: in memory, or ``dask.delayed`` objects, which are computed where the shard is.
    home : place, or None
        Where most of them lie already.
    """

    make: Callable[[list[Any]], Any]
    parts: list[Any]
    home: Any = None


class Answer(NamedTuple):
    """What a shard has answered.

    Parameters
    ----------
    shard : int
    value : Any
    error : Exception or None
        `LostShardError`, or what the shard raised.
    seconds : float
        From the question to the answer.
    """

    shard: int
    value: Any
    error: Exception | None
    seconds: float


class Shards:
    """All shards of a fit, wherever they are.

    Parameters
    ----------
    engine : Engine
    loaders : list of Loader
        One for each shard.
    """

    def __init__(self, engine: Engine, loaders: Sequence[Loader]) -> None:
        self.engine, self.loaders = engine, list(loaders)
        self._run = uuid.uuid4().hex
        self._makings = itertools.count(1)
        self._making = [0] * len(self.loaders)
        self._places: list[Any] = [None] * len(self.loaders)
        self._asked: dict[int, _Question] = {}
        self._done: queue.SimpleQueue[float] = queue.SimpleQueue()
        """Gets an item whenever somebody has answered."""

    def __len__(self) -> int:
        return len(self.loaders)

    @property
    def busy(self) -> KeysView[int]:
        """Shards that have not answered yet."""
        return self._asked.keys()

    def make(self, shard: int) -> None:
        """Make a shard (again), in the place that has the fewest; its answer is None."""
        self._making[shard] = making = next(self._makings)
        loader = self.loaders[shard]
        self._places[shard] = None
        for attempt in range(ATTEMPTS):
            places = self.engine.places
            used = [self._places.count(place) for place in places]
            fewest = places[used.index(min(used))]
            self._places[shard] = place = loader.home if loader.home in places else fewest
            try:
                parts = [self.engine.lend(place, part) for part in loader.parts]
                self._call(shard, _make, self._key(shard), making, loader.make, *parts)
                return
            except Exception as error:  # the place may be lost before anybody knows
                if attempt == ATTEMPTS - 1 or not self.engine.is_loss(error):
                    raise
                self.engine.give_up(place)
                time.sleep(0.2)

    def stuck(self, patience: float) -> int | None:
        """A shard that has not answered for so long that nobody waits any more, if there is one.

        As long as there is no other place that might do better, everybody waits.
        """
        now = time.perf_counter()
        for shard, asked in self._asked.items():
            if now - asked.at > patience and len(self.engine.places) > 1:
                self.engine.give_up(self._places[shard])
                self._places[shard] = None
                del self._asked[shard]
                return shard
        return None

    def ask(self, shard: int, method: str, *arguments: Any) -> None:
        """Let a shard call one of its methods; it must have answered all questions before."""
        if shard in self._asked:
            raise EngineError(f"Shard {shard} has not answered the question before.")
        self._call(shard, _ask, self._key(shard), self._making[shard], method, *arguments)

    def answer(self, timeout: float | None = None) -> Answer | None:
        """The next answer, from whichever shard; None if none comes in so many seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            # What is done, not what was told: Ctrl-C may come between the two.
            for shard, asked in self._asked.items():
                if asked.pending.done():
                    answer = self._read(shard, asked)
                    if answer is None:
                        break  # it was asked again
                    del self._asked[shard]
                    return answer
            left = None if until is None else max(until - time.monotonic(), 0.0)
            try:
                self._done.get(timeout=left)
            except queue.Empty:
                if not any(asked.pending.done() for asked in self._asked.values()):
                    return None

    def ask_all(self, method: str, *arguments: Any) -> list[Any]:
        """Answers of all shards to the same question, in their order.

        Raises
        ------
        LostShardError
            If one is lost; the others have answered.
        Exception
            The first that a shard raised.
        """
        for shard in range(len(self)):
            self.ask(shard, method, *arguments)
        return self.wait()

    def wait(self) -> list[Any]:
        """Answers of all shards that are busy, in their order; errors as in `ask_all`."""
        answers = []
        while self._asked:
            answer = self.answer()
            assert answer is not None
            answers.append(answer)
        answers.sort()
        for answer in answers:
            if answer.error is not None:
                raise answer.error
        return [answer.value for answer in answers]

    def close(self) -> None:
        """Let the places forget the shards; those that do not answer will not be waited for."""
        try:
            self.engine.check()
            asked = [
                self.engine.call(place, _forget, self._key(shard))
                for shard, place in enumerate(self._places)
                if place is not None
            ]
        except EngineError:
            return
        until = time.monotonic() + GOODBYE
        while not all(one.done() for one in asked) and time.monotonic() < until:
            time.sleep(0.01)

    def _key(self, shard: int) -> Key:
        return self._run, shard

    def _call(self, shard: int, function: Callable[..., Any], *arguments: Any) -> None:
        self._put(shard, _Question(time.perf_counter(), function, arguments))

    def _put(self, shard: int, question: "_Question") -> None:
        pending = self.engine.call(self._places[shard], question.function, *question.arguments)
        self._asked[shard] = question._replace(pending=pending, trials=question.trials + 1)
        pending.add_done_callback(lambda done: self._done.put(time.perf_counter()))

    def _read(self, shard: int, asked: "_Question") -> Answer | None:
        seconds = time.perf_counter() - asked.at
        try:
            value = asked.pending.result()
        except Exception as error:
            if self.engine.is_loss(error):
                self.engine.give_up(self._places[shard])
                error = LostShardError(shard)
            return Answer(shard, None, error, seconds)
        if value is _GONE:
            # A cluster may give to others what was meant for a place that is busy.
            if asked.trials < TRIALS and self._places[shard] in self.engine.places:
                self._put(shard, asked)
                return None
            return Answer(shard, None, LostShardError(shard), seconds)
        return Answer(shard, value, None, seconds)


class _Question(NamedTuple):
    """What a shard is at work on; Dask works on for as long as somebody holds what is pending."""

    at: float
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    pending: Pending = None  # type: ignore[assignment]
    trials: int = 0


class _Gone:
    """The answer of a place that does not have the shard."""

    def __reduce__(self) -> str:
        return "_GONE"


_GONE = _Gone()


class _Kept:
    """A shard in the table of its process."""

    def __init__(self, making: int, shard: Any) -> None:
        self.making, self.shard = making, shard
        self.lock = threading.Lock()


_TABLE: dict[Key, _Kept] = {}


def _make(key: Key, making: int, make: Callable[[list[Any]], Any], *parts: Any) -> None:
    _TABLE[key] = _Kept(making, make(list(parts)))


def _ask(key: Key, making: int, method: str, *arguments: Any) -> Any:
    kept = _TABLE.get(key)
    if kept is None or kept.making != making:
        return _GONE
    with kept.lock:
        return getattr(kept.shard, method)(*arguments)


def _forget(key: Key) -> None:
    _TABLE.pop(key, None)
