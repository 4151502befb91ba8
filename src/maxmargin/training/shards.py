"""Shards: parts of the data with a state, each kept in one place and asked for things.

Where a shard is kept it stands in a table of that process. A request names the shard and which
making of it is meant: if that one is gone with its place, the answer says so, and whoever asks
has it made again, there or elsewhere.

Vectors as what has changed in them, where that is shorter.
"""

import itertools
import queue
import threading
import time
import uuid
from collections.abc import Callable, KeysView, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.training.engines import (
    Engine,
    EngineError,
    LostPlaceError,
    NoAnswerYetError,
    Pending,
)

Key = tuple[str, int]

GOODBYE = 5.0
"""Seconds that places have to forget their shards."""

TRIALS = 3
"""How often a place that is there is asked for a shard that somebody else was asked for instead."""

ATTEMPTS = 20
"""How often data are offered to places that turn out to be lost."""

POLL = 1.0
"""Seconds without any answer after which somebody looks whether the places are still there."""

FETCHING = 2.0
"""Seconds in which an answer that is there should arrive; each time it does not, twice as many."""

PATIENCE = 3600.0
"""Seconds without an answer after which a shard is made again in another place, if nobody has said
otherwise; and in any case for the making itself, which may have much to read."""

LOSSES, ENDURED = 20, 100
"""How often a shard may be lost before it has answered so many questions in a row: somebody must
notice when it is the shard itself that ends its places."""


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
        self._held: set[tuple[int, Any]] = set()
        """Shards, and places where they are or have been."""
        self._questions = itertools.count(1)
        self._losses = [0] * len(self.loaders)
        self._answered = [0] * len(self.loaders)
        """Questions that shards have answered since they were made."""
        self.patience = PATIENCE
        """Seconds without an answer after which a shard is looked upon as lost."""
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
        self._answered[shard] = 0
        loader = self.loaders[shard]
        for _ in range(ATTEMPTS):
            place = self._chosen_place(shard)
            try:
                parts = [self.engine.lend(place, part) for part in loader.parts]
            except LostPlaceError:  # before anybody knew
                self.engine.give_up(place)
                time.sleep(0.2)
                continue
            self._places[shard] = place
            self._held.add((shard, place))
            break
        else:
            parts = []  # and without a place the answer is that it is lost
        self._call(shard, _make, self._key(shard), making, loader.make, *parts)

    def _chosen_place(self, shard: int) -> Any:
        """Where its data lie, or else the place that has the fewest shards."""
        self._places[shard] = None
        places, home = self.engine.places, self.loaders[shard].home
        used = [self._places.count(place) for place in places]
        return home if home in places else places[used.index(min(used))]

    def make_all(self, method: str, *arguments: Any) -> list[Any]:
        """Make all shards, and ask each a first question; those lost meanwhile are made again."""
        told: dict[int, Any] = {}
        while len(told) < len(self):
            for shard in range(len(self)):
                if shard not in told:
                    self.make(shard)
            for shard in self._heard():
                self.ask(shard, method, *arguments)
            told |= self._heard()
        return [told[shard] for shard in range(len(self))]

    def ask(self, shard: int, method: str, *arguments: Any) -> None:
        """Let a shard call one of its methods; it must have answered all questions before."""
        if shard in self._asked:
            raise EngineError(f"Shard {shard} has not answered the question before.")
        number = next(self._questions)
        self._call(shard, _ask, self._key(shard), self._making[shard], number, method, *arguments)

    def answer(self, timeout: float | None = None) -> Answer | None:
        """The next answer, from whichever shard; None if none comes in so many seconds.

        That a shard is lost is an answer, too: its place is gone, or has been silent for longer
        than our patience.

        Raises
        ------
        EngineError
            If no answer can come any more.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while self._asked:
            # What is done, not what was told: Ctrl-C may come between the two.
            for shard, asked in list(self._asked.items()):
                if asked.pending is None or asked.pending.done():
                    answer = self._read(shard, asked)
                    if answer is not None:
                        del self._asked[shard]
                        return answer
            left = POLL if until is None else min(until - time.monotonic(), POLL)
            try:
                self._done.get(timeout=max(left, 0.0))
            except queue.Empty:
                silent = self._silent()
                if silent is not None:
                    return self._lost(silent, self._asked.pop(silent))
                if until is not None and time.monotonic() >= until:
                    return None
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
        self._answers()  # which nobody wants any more who was interrupted by Ctrl-C
        for shard in range(len(self)):
            self.ask(shard, method, *arguments)
        return self.wait()

    def wait(self) -> list[Any]:
        """Answers of all shards that are busy, in their order; errors as in `ask_all`."""
        answers = self._answers()
        for answer in answers:
            if answer.error is not None:
                raise answer.error
        return [answer.value for answer in answers]

    def _answers(self) -> list[Answer]:
        """What all shards that are busy answer, in their order."""
        answers = []
        while self._asked:
            answer = self.answer()
            assert answer is not None
            answers.append(answer)
        return sorted(answers, key=lambda answer: answer.shard)

    def _heard(self) -> dict[int, Any]:
        """The same of those that are not lost."""
        heard = {}
        for answer in self._answers():
            if answer.error is None:
                heard[answer.shard] = answer.value
            elif not isinstance(answer.error, LostShardError):
                raise answer.error
        return heard

    def close(self) -> None:
        """Let the places forget the shards; those that do not answer will not be waited for."""
        asked = []
        try:
            missing = self.engine.missing({place for _, place in self._held})
            for shard, place in self._held:
                if place not in missing:
                    with suppress(LostPlaceError):
                        asked.append(self.engine.call(place, _forget, self._key(shard)))
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
        pending, place = None, self._places[shard]
        if place is not None:
            with suppress(LostPlaceError):
                pending = self.engine.call(place, question.function, *question.arguments)
        self._asked[shard] = question._replace(pending=pending, trials=question.trials + 1)
        if pending is not None:
            pending.add_done_callback(lambda done: self._done.put(time.perf_counter()))

    def _read(self, shard: int, asked: "_Question") -> Answer | None:
        """The answer that is there; None if it is still to come after all."""
        seconds = time.perf_counter() - asked.at
        if asked.pending is None:
            return self._lost(shard, asked)
        try:
            value = self.engine.result(asked.pending, asked.fetching)
        except NoAnswerYetError:
            self._asked[shard] = asked._replace(fetching=2.0 * asked.fetching)
            return None
        except LostPlaceError:
            return self._lost(shard, asked)
        except Exception as error:
            return Answer(shard, None, error, seconds)
        if value is _GONE:
            # An engine may give to others what was meant for a place that is busy.
            place = self._places[shard]
            if asked.trials < TRIALS and not self.engine.missing([place]):
                self._put(shard, asked)
                return None
            self._places[shard] = None  # which is none that has to be given up
            return self._lost(shard, asked)
        self._answered[shard] += 1
        return Answer(shard, value, None, seconds)

    def _silent(self) -> int | None:
        """A shard of which no answer is to be expected any more, if there is one.

        As long as there is no other place that might do better, everybody waits for those that are
        only slow. A shard that was slow for too long is given twice the time from then on.
        """
        missing = self.engine.missing({self._places[shard] for shard in self._asked})
        now = time.perf_counter()
        for shard, asked in self._asked.items():
            if self._places[shard] in missing:
                return shard
            making = asked.function is _make
            late = now - asked.at > (PATIENCE if making else self.patience)
            if late and len(self.engine.places) > 1:
                self.patience *= 1.0 if making else 2.0
                return shard
        return None

    def _lost(self, shard: int, asked: "_Question") -> Answer:
        """The answer that a shard is lost with its place."""
        if self._answered[shard] >= ENDURED:
            self._losses[shard] = 0
        self._losses[shard] += 1
        if self._losses[shard] > LOSSES:
            raise EngineError(
                f"Part {shard} of the data, of {len(self)}, was lost with its worker "
                f"{self._losses[shard]} times: see in the workers' logs what ends them, which may "
                f"be too little memory for the part or a crash of the search."
            )
        if self._places[shard] is not None:
            self.engine.give_up(self._places[shard])
            self._places[shard] = None
        return Answer(shard, None, LostShardError(shard), time.perf_counter() - asked.at)


class _Question(NamedTuple):
    """What a shard is at work on; Dask works on for as long as somebody holds what is pending."""

    at: float
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    pending: Pending | None = None
    """None if the place was lost before it could be asked."""
    trials: int = 0
    fetching: float = FETCHING


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
        self.number, self.answer = 0, None
        """The last question, and its answer."""


_TABLE: dict[Key, _Kept] = {}


def _make(key: Key, making: int, make: Callable[[list[Any]], Any], *parts: Any) -> None:
    kept = _Kept(making, make(list(parts)))
    if key not in _TABLE or _TABLE[key].making < making:  # else somebody was quicker meanwhile
        _TABLE[key] = kept


def _ask(key: Key, making: int, number: int, method: str, *arguments: Any) -> Any:
    kept = _TABLE.get(key)
    if kept is None or kept.making != making:
        return _GONE
    with kept.lock:
        # A cluster asks again if an answer was lost on its way: nothing must be done twice.
        if number != kept.number:
            kept.answer = getattr(kept.shard, method)(*arguments)
            kept.number = number
        return kept.answer


def _forget(key: Key) -> None:
    _TABLE.pop(key, None)


Floats = NDArray[np.float64]


class Patch(NamedTuple):
    """New values of some entries of a vector.

    Parameters
    ----------
    columns : ndarray of uint32, or None
        None stands for all of them.
    values : ndarray
    """

    columns: NDArray[np.uint32] | None
    values: Floats

    @classmethod
    def between(cls, old: Floats, new: Floats) -> "Patch":
        """What makes `new` of `old`.

        Examples
        --------
        >>> import numpy as np
        >>> from maxmargin.oracle.shards import Patch
        >>> Patch.between(np.zeros(5), np.array([0.0, 0.0, 3.0, 0.0, 0.0]))
        Patch(columns=array([2], dtype=uint32), values=array([3.]))
        """
        columns = np.flatnonzero(old != new).astype(np.uint32)
        some = cls(columns, new[columns])
        return some if some.nbytes < new.nbytes else cls(None, new.copy())

    @property
    def nbytes(self) -> int:
        """What has to be sent."""
        return self.values.nbytes + (0 if self.columns is None else self.columns.nbytes)

    @property
    def places(self) -> "slice | NDArray[np.uint32]":
        """Where the entries are."""
        return slice(None) if self.columns is None else self.columns

    def apply(self, vector: Floats) -> None:
        """Put the values in their places."""
        vector[self.places] = self.values
