"""Shards: partitions of the data with a state, each kept by one worker and sent requests.

A request names the shard and its generation (how often it was made). If that one is gone with its
worker, the answer says so, and the driver has it made again. `ShardedOracle` is the oracle of all.
"""

import itertools
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator, KeysView, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.certificate import DualPoint
from maxmargin.core.cuts import Cuts
from maxmargin.core.oracle import Hinges, Oracle
from maxmargin.core.oracle_check import OracleChecker
from maxmargin.core.problem import ProblemError, renumbered
from maxmargin.core.registry import registered
from maxmargin.core.result import Iteration, Result, Status
from maxmargin.core.threads import Threads
from maxmargin.data.libsvm import LineFile
from maxmargin.solvers.loop import Solver, run_loop
from maxmargin.solvers.online import Evaluation
from maxmargin.training.engines import (
    Engine,
    EngineError,
    LostWorkerError,
    NoAnswerYetError,
    Pending,
)
from maxmargin.training.partitions import SourcePartition, joined, load_partition

Floats = NDArray[np.float64]
Order = NDArray[np.int64]
Key = tuple[str, int]

FORGET_SECONDS = 5.0

MISROUTED_TRIALS = 3
"""How often a request that another worker has answered is repeated."""

SCATTER_TRIALS = 20
"""How often data are sent to workers that turn out to be lost."""

POLL_SECONDS = 1.0
"""Time without any answer before the workers are checked."""

FETCH_SECONDS = 2.0
"""Time for an answer to arrive; doubled each time that it does not."""

PATIENCE_SECONDS = 3600.0
"""Time without an answer before a shard is made again; solvers set their own once it is made."""

MOST_LOSSES, ANSWERS_TO_RECOVER = 20, 100
"""Losses of a shard without so many answers in a row, after which it must be ending its workers."""


class LostShardError(RuntimeError):
    """A shard is lost with its worker, and all that was kept there."""

    def __init__(self, number: int) -> None:
        super().__init__(f"Shard {number} is lost.")
        self.number = number


class Loader(NamedTuple):
    """How a shard is made: ``make(partitions)``, which may be lazy; `holder` has most of them."""

    make: Callable[[list[Any]], Any]
    partitions: list[Any]
    holder: Any = None


class Answer(NamedTuple):
    """What a shard has answered, after how many seconds; or its error, perhaps `LostShardError`."""

    shard: int
    value: Any
    error: Exception | None
    seconds: float


class Shards:
    """All shards of a fit, on whichever workers they are."""

    def __init__(self, engine: Engine, loaders: Sequence[Loader]) -> None:
        self.engine, self.loaders = engine, list(loaders)
        self._run = uuid.uuid4().hex
        self._generations = itertools.count(1)
        self._generation = [0] * len(self.loaders)
        self._workers: list[Any] = [None] * len(self.loaders)
        self._held: set[tuple[int, Any]] = set()
        """Shards, and workers that keep or have kept them."""
        self._numbers = itertools.count(1)
        self._losses = [0] * len(self.loaders)
        self._answered = [0] * len(self.loaders)
        """Requests that each shard has answered since it was made."""
        self.patience = PATIENCE_SECONDS
        self._requests: dict[int, _Request] = {}
        self._done: queue.SimpleQueue[float] = queue.SimpleQueue()
        """Gets an item whenever an answer is there."""

    def __len__(self) -> int:
        return len(self.loaders)

    @property
    def busy(self) -> KeysView[int]:
        return self._requests.keys()

    def make(self, shard: int) -> None:
        """Make a shard (again), on the worker that has the fewest; its answer is None."""
        self._generation[shard] = generation = next(self._generations)
        self._answered[shard] = 0
        loader = self.loaders[shard]
        for _ in range(SCATTER_TRIALS):
            worker = self._choose_worker(shard)
            try:
                partitions = [self.engine.scatter(worker, one) for one in loader.partitions]
            except LostWorkerError:  # which `missing` did not know yet
                self.engine.give_up(worker)
                time.sleep(0.2)
                continue
            self._workers[shard] = worker
            self._held.add((shard, worker))
            break
        else:
            partitions = []  # and without a worker the answer is that the shard is lost
        self._call(shard, _make, self._key(shard), generation, loader.make, *partitions)

    def _choose_worker(self, shard: int) -> Any:
        """The worker that holds its data, or the one with the fewest shards."""
        self._workers[shard] = None
        workers, holder = self.engine.workers, self.loaders[shard].holder
        used = [self._workers.count(worker) for worker in workers]
        return holder if holder in workers else workers[used.index(min(used))]

    def make_all(self, method: str, *arguments: Any) -> list[Any]:
        """Make all shards, and send each a first request; lost ones are made again."""
        answers: dict[int, Any] = {}
        while len(answers) < len(self):
            for shard in range(len(self)):
                if shard not in answers:
                    self.make(shard)
            for shard in self._answers_of_present():
                self.ask(shard, method, *arguments)
            answers |= self._answers_of_present()
        return [answers[shard] for shard in range(len(self))]

    def ask(self, shard: int, method: str, *arguments: Any) -> None:
        """Call a method of a shard, which must have answered all requests before."""
        if shard in self._requests:
            raise EngineError(f"Shard {shard} has not answered the request before.")
        key, generation, number = self._key(shard), self._generation[shard], next(self._numbers)
        self._call(shard, _ask, key, generation, number, method, *arguments)

    def answer(self, timeout: float | None = None) -> Answer | None:
        """The next answer, or that a shard is lost; None if none comes in so many seconds.

        `EngineError` if none can come any more.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while self._requests:
            # What is done, not what the queue says: Ctrl-C may come between the two.
            for shard, request in list(self._requests.items()):
                if request.pending is None or request.pending.done():
                    answer = self._read(shard, request)
                    if answer is not None:
                        del self._requests[shard]
                        return answer
            left = POLL_SECONDS if until is None else min(until - time.monotonic(), POLL_SECONDS)
            try:
                self._done.get(timeout=max(left, 0.0))
            except queue.Empty:
                silent = self._silent()
                if silent is not None:
                    return self._lost(silent, self._requests.pop(silent))
                if until is not None and time.monotonic() >= until:
                    return None
        return None

    def ask_all(self, method: str, *arguments: Any) -> list[Any]:
        """Answers of all shards to a request, in order; raises the first error once all have."""
        self._answers()  # to requests that Ctrl-C has interrupted, which are of no use any more
        for shard in range(len(self)):
            self.ask(shard, method, *arguments)
        return self.wait()

    def wait(self) -> list[Any]:
        """Answers of all busy shards, in order; errors as in `ask_all`."""
        answers = self._answers()
        for answer in answers:
            if answer.error is not None:
                raise answer.error
        return [answer.value for answer in answers]

    def _answers(self) -> list[Answer]:
        answers = []
        while self._requests:
            answer = self.answer()
            assert answer is not None
            answers.append(answer)
        return sorted(answers, key=lambda answer: answer.shard)

    def _answers_of_present(self) -> dict[int, Any]:
        """Answers of busy shards that are not lost."""
        values = {}
        for answer in self._answers():
            if answer.error is None:
                values[answer.shard] = answer.value
            elif not isinstance(answer.error, LostShardError):
                raise answer.error
        return values

    def close(self) -> None:
        """Have the workers forget the shards, without waiting long."""
        pending = []
        try:
            missing = self.engine.missing({worker for _, worker in self._held})
            for shard, worker in self._held:
                if worker not in missing:
                    with suppress(LostWorkerError):
                        pending.append(self.engine.call(worker, _forget, self._key(shard)))
        except EngineError:
            return
        until = time.monotonic() + FORGET_SECONDS
        while not all(one.done() for one in pending) and time.monotonic() < until:
            time.sleep(0.01)

    def _key(self, shard: int) -> Key:
        return self._run, shard

    def _call(self, shard: int, function: Callable[..., Any], *arguments: Any) -> None:
        self._send(shard, _Request(time.perf_counter(), function, arguments))

    def _send(self, shard: int, request: "_Request") -> None:
        pending, worker = None, self._workers[shard]
        if worker is not None:
            with suppress(LostWorkerError):
                pending = self.engine.call(worker, request.function, *request.arguments)
        self._requests[shard] = request._replace(pending=pending, trials=request.trials + 1)
        if pending is not None:
            pending.add_done_callback(lambda done: self._done.put(time.perf_counter()))

    def _read(self, shard: int, request: "_Request") -> Answer | None:
        """The answer that is there; None if it is still to come after all."""
        seconds = time.perf_counter() - request.at
        if request.pending is None:
            return self._lost(shard, request)
        try:
            value = self.engine.result(request.pending, request.fetch_seconds)
        except NoAnswerYetError:
            longer = request._replace(fetch_seconds=2.0 * request.fetch_seconds)
            self._requests[shard] = longer
            return None
        except LostWorkerError:
            return self._lost(shard, request)
        except Exception as error:
            return Answer(shard, None, error, seconds)
        if value is _GONE:
            # An engine may give to others what was meant for a worker that is busy.
            worker = self._workers[shard]
            if request.trials < MISROUTED_TRIALS and not self.engine.missing([worker]):
                self._send(shard, request)
                return None
            self._workers[shard] = None  # so that the worker is not given up
            return self._lost(shard, request)
        self._answered[shard] += 1
        return Answer(shard, value, None, seconds)

    def _silent(self) -> int | None:
        """A shard that is lost, or too slow where there are other workers; doubles the patience."""
        missing = self.engine.missing({self._workers[shard] for shard in self._requests})
        now = time.perf_counter()
        for shard, request in self._requests.items():
            if self._workers[shard] in missing:
                return shard
            making = request.function is _make
            late = now - request.at > (PATIENCE_SECONDS if making else self.patience)
            if late and len(self.engine.workers) > 1:
                self.patience *= 1.0 if making else 2.0
                return shard
        return None

    def _lost(self, shard: int, request: "_Request") -> Answer:
        if self._answered[shard] >= ANSWERS_TO_RECOVER:
            self._losses[shard] = 0
        self._losses[shard] += 1
        if self._losses[shard] > MOST_LOSSES:
            raise EngineError(
                f"Partition {shard} of the data, of {len(self)}, was lost with its worker "
                f"{self._losses[shard]} times: see in the workers' logs what ends them, which may "
                f"be too little memory for the partition or a crash of the oracle."
            )
        if self._workers[shard] is not None:
            self.engine.give_up(self._workers[shard])
            self._workers[shard] = None
        return Answer(shard, None, LostShardError(shard), time.perf_counter() - request.at)


class _Request(NamedTuple):
    """What a shard works on; Dask goes on only while `pending` is referenced."""

    at: float
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    pending: Pending | None = None
    """None if the worker was lost before."""
    trials: int = 0
    fetch_seconds: float = FETCH_SECONDS


class _Gone:
    """The answer of a worker that does not have the shard."""

    def __reduce__(self) -> str:
        return "_GONE"


_GONE = _Gone()


class _Kept:
    """A shard in the table of its process."""

    def __init__(self, generation: int, shard: Any) -> None:
        self.generation, self.shard = generation, shard
        self.lock = threading.Lock()
        self.number, self.answer = 0, None
        """Of the last request."""


_TABLE: dict[Key, _Kept] = {}


def _make(key: Key, generation: int, make: Callable[[list[Any]], Any], *partitions: Any) -> None:
    kept = _Kept(generation, make(list(partitions)))
    if key not in _TABLE or _TABLE[key].generation < generation:  # else a later one was quicker
        _TABLE[key] = kept


def _ask(key: Key, generation: int, number: int, method: str, *arguments: Any) -> Any:
    kept = _TABLE.get(key)
    if kept is None or kept.generation != generation:
        return _GONE
    with kept.lock:
        # A cluster asks again if an answer was lost on its way: nothing must be done twice.
        if number != kept.number:
            kept.answer = getattr(kept.shard, method)(*arguments)
            kept.number = number
        return kept.answer


def _forget(key: Key) -> None:
    _TABLE.pop(key, None)


class Delta(NamedTuple):
    """A vector encoded by its changes: new values of some columns, or of all if None."""

    columns: NDArray[np.uint32] | None
    values: Floats

    @classmethod
    def between(cls, old: Floats, new: Floats) -> "Delta":
        """What makes `new` of `old`."""
        columns = np.flatnonzero(old != new).astype(np.uint32)
        some = cls(columns, new[columns])
        return some if some.nbytes < new.nbytes else cls(None, new.copy())

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + (0 if self.columns is None else self.columns.nbytes)

    @property
    def entries(self) -> "slice | NDArray[np.uint32]":
        return slice(None) if self.columns is None else self.columns

    def apply(self, vector: Floats) -> None:
        vector[self.entries] = self.values


Found = TypeVar("Found")


def surveyed(engine: Engine, partitions: list[Any], survey: Callable[[Any], Found]) -> list[Found]:
    """What `survey` finds in each partition, called where it lies."""
    make = partial(_Surveyed, survey)
    shards = Shards(engine, [Loader(make, [one], engine.holder(one)) for one in partitions])
    try:
        return shards.make_all("tell")
    finally:
        shards.close()


class _Surveyed:
    """A shard that keeps only what was found in its partition."""

    def __init__(self, survey: Callable[[Any], Any], partitions: list[Any]) -> None:
        self.found = survey(*partitions)

    def tell(self) -> Any:
        return self.found


def equally_wide(engine: Engine, partitions: list[Any]) -> list[Any]:
    """Partitions of a file that does not tell its width, all as wide as the widest."""
    for one in partitions:
        source = one.source if isinstance(one, SourcePartition) else None
        if not isinstance(source, LineFile) or source.n_features is not None:
            return partitions
    width = max(surveyed(engine, partitions, _width), default=0)
    return [one._replace(source=one.source.widened(width)) for one in partitions]


def _width(partition: SourcePartition) -> int:
    for _ in partition.source.batches():
        pass
    return partition.source.n_features or 0


class About(NamedTuple):
    """How many (or which) examples each partition of a shard has, and how wide they are."""

    partitions: "list[int | Order]"
    n_features: int
    exact: bool
    oracle_work: float | None


class Sums(NamedTuple):
    """``sum coef * psi`` and ``sum coef * loss`` of a dual point."""

    vector: Floats
    linear: float


class Shard:
    """Examples of some partitions, whose first ones have the numbers `firsts`, and solver state."""

    def __init__(
        self,
        make_oracle: Callable[[Any, Any, Any], Oracle],
        partitions: list[Any],
        firsts: list[int] | None = None,
    ) -> None:
        loaded = [load_partition(one) for one in partitions]
        whole = joined(loaded)
        self.oracle = make_oracle(whole.X, whole.y, whole.weight)
        self.partitions: list[int | Order] = [
            one.n_examples if one.numbers is None else one.numbers for one in loaded
        ]
        """How many (or which) examples each has."""
        self.firsts = firsts
        self.work: Any = None

    def about(self) -> About:
        oracle = self.oracle
        return About(self.partitions, oracle.n_features, oracle.exact, oracle.oracle_work)

    def begin(self, make: Callable[..., Any], *arguments: Any) -> None:
        """Make what the solver keeps here."""
        self.work = make(self.oracle, *arguments)

    def do(self, method: str, *arguments: Any) -> Any:
        """Call a method of what the solver keeps here."""
        with self._renumbering():
            return getattr(self.work, method)(*arguments)

    @contextmanager
    def _renumbering(self) -> Iterator[None]:
        """Let errors name an example by its number among all, if known."""
        try:
            yield
        except ProblemError as error:
            told = self._told(str(error))
            if told == str(error):
                raise
            raise ProblemError(told) from error

    def _told(self, sentence: str) -> str:
        numbers = []
        for k, own in enumerate(self.partitions):
            if isinstance(own, np.ndarray):
                numbers.append(own)
            elif self.firsts is None:
                return sentence
            else:
                numbers.append(np.arange(self.firsts[k], self.firsts[k] + own))
        return renumbered(sentence, np.concatenate(numbers))

    def hinges(self, weights: Floats) -> tuple[Hinges, str | None]:
        """Bounds of the sum of C times hinge, and what seems wrong with the oracle, if anything."""
        with self._renumbering():
            hinges = self.oracle.all_hinges(weights, Threads(1))
        wrong = None if self.oracle.checker is None else self.oracle.checker.sentence
        return hinges, None if wrong is None else self._told(wrong)

    def sums(self) -> Sums:
        """Sums of the present dual point, over cuts made anew from the data."""
        evaluation = Evaluation(self.work.point(), self.oracle.n_features).add(self.oracle, 0)
        return Sums(evaluation.weights, evaluation.linear)


class ResidentPoint:
    """A feasible dual point that stays in the shards."""

    def dual(self, oracle: "ShardedOracle") -> float:
        """Dual value, from cuts that each shard makes anew."""
        sums = oracle.sums()
        return sums.linear - 0.5 * float(sums.vector @ sums.vector)


class ShardedOracle(Oracle):
    """The oracle of examples in shards; `partition_numbers` lists each one's partitions."""

    def __init__(self, shards: Shards, partition_numbers: list[list[int]], content: Any) -> None:
        self.shards, self._content = shards, content
        self.C = np.zeros(0)  # each shard knows the C of its own
        self.checker: OracleChecker = OracleChecker()
        """Repeats what those of the shards have found."""
        self.sent = self.received = 0
        """Bytes of the arrays sent to the shards, and received."""
        self._told_of = 0, 0
        told: list[About] = shards.make_all("about")
        widths = sorted({about.n_features for about in told})
        if len(widths) > 1:
            raise ProblemError(
                f"Some partitions of the data have {widths[0]} joint features and some "
                f"{widths[-1]}: the features must be the same for all."
            )
        self.n_features = widths[0]
        self.exact = all(about.exact for about in told)
        works = [about.oracle_work for about in told]
        self._oracle_work = None if None in works else float(np.mean(works))  # type: ignore[arg-type]
        flat = chain.from_iterable(about.partitions for about in told)
        partitions = dict(zip(chain.from_iterable(partition_numbers), flat, strict=True))
        first, numbers = 0, {}
        for k in sorted(partitions):
            which = partitions[k]
            own = np.arange(first, first + which) if isinstance(which, int) else which
            numbers[k], first = own, first + len(own)
        self.numbers: list[Order] = [
            np.concatenate([numbers[k] for k in own]) for own in partition_numbers
        ]
        """For each shard, the numbers of its examples among all."""
        self._n_examples = first
        self.lists_point = False
        """Whether to fetch the final dual point, for a warm start."""

    @property
    def n_examples(self) -> int:
        return self._n_examples

    @property
    def content(self) -> Any:
        return self._content

    @property
    def oracle_work(self) -> float | None:
        return self._oracle_work

    def separate(self, weights: Floats, examples: Order, threads: Threads) -> Cuts:
        raise NotImplementedError("Cutting planes stay in their shards.")

    def cuts_of(self, examples: Order, outputs: Sequence[Any]) -> Cuts:
        raise NotImplementedError("Cutting planes stay in their shards.")

    def all_hinges(self, weights: Floats, threads: Threads | None = None) -> Hinges:
        self.sent += weights.nbytes * len(self.shards)
        hinges, wrong = zip(*self.shards.ask_all("hinges", weights), strict=True)
        self.checker.sentence = next((sentence for sentence in wrong if sentence), None)
        return sum(hinges, Hinges(0.0, 0.0))

    def sums(self) -> Sums:
        """`Sums` over all shards."""
        vector, linear = np.zeros(self.n_features), 0.0
        for own in self.shards.ask_all("sums"):
            vector += own.vector
            linear += own.linear
            self.received += own.vector.nbytes
        return Sums(vector, linear)

    def traffic(self) -> dict[str, Any]:
        """Bytes sent and received since the last call."""
        before, self._told_of = self._told_of, (self.sent, self.received)
        return {"sent": self.sent - before[0], "received": self.received - before[1]}

    def split(self, point: DualPoint) -> list[DualPoint]:
        """A dual point over all examples as one for each shard, with its own numbers."""
        points = []
        for numbers in self.numbers:
            order = np.argsort(numbers)
            at = np.searchsorted(numbers, point.examples, sorter=order)
            at = order[np.minimum(at, len(numbers) - 1)]
            own = np.flatnonzero(numbers[at] == point.examples)
            points.append(DualPoint(at[own], point.coef[own], [point.outputs[k] for k in own]))
        return points

    def join(self, points: Sequence[DualPoint]) -> DualPoint:
        """The inverse of `split`."""
        return DualPoint(
            np.concatenate([n[p.examples] for n, p in zip(self.numbers, points, strict=True)]),
            np.concatenate([point.coef for point in points]),
            [output for point in points for output in point.outputs],
        )


def shard_oracle(
    engine: Engine,
    partitions: Sequence[Any],
    make_oracle: Callable[[Any, Any, Any], Oracle],
    n_shards: int,
    content: Any,
    counts: Sequence[int] | None = None,
) -> ShardedOracle:
    """The oracle of partitions (of `counts` examples, if known) in shards, each near its data."""
    holders = [engine.holder(partition) for partition in partitions]
    known = [holder for holder in dict.fromkeys(holders) if holder is not None][:n_shards]
    numbers: list[list[int]] = [[] for _ in range(n_shards)]
    for k, holder in enumerate(holders):
        if holder in known:
            numbers[known.index(holder)].append(k)
    for k, holder in enumerate(holders):  # the rest is dealt out
        if holder not in known:
            min(numbers, key=len).append(k)
    firsts = None if counts is None else np.cumsum([0, *counts]).tolist()
    loaders = []
    for shard, own in enumerate(numbers):
        if own:
            own_firsts = None if firsts is None else [firsts[k] for k in own]
            make = partial(Shard, make_oracle, firsts=own_firsts)
            holder = known[shard] if shard < len(known) else None
            loaders.append(Loader(make, [partitions[k] for k in own], holder))
    return ShardedOracle(Shards(engine, loaders), [own for own in numbers if own], content)


@registered("ClusterRound")
@dataclass(frozen=True)
class ClusterIteration(Iteration):
    """A line of history of a fit on shards; its own fields are of this iteration alone."""

    sent: int = 0
    received: int = 0
    updates: int = 0
    work_seconds: float = 0.0
    """Summed over the shards."""
    oracle_seconds: float = 0.0
    """Of these, in oracle calls."""
    idle_seconds: float = 0.0
    """Between request and answer without work: transport and the scheduler."""
    step: float = 1.0
    """Mean step size along the shards' updates."""


CERTIFIED_BY_POINT = (Status.CONVERGED, Status.RELAXED)
"""Reasons to stop that hold only together with their dual point."""


def certified_on_shards(
    finish: Callable[[Any, Status], Result], run: Any, status: Status, solver: Solver
) -> Result:
    """The result of a run, certified by `finish`; lost shards have it converge again first."""
    while True:
        try:
            result = finish(run, status)
            if run.oracle.lists_point:
                result = replace(result, dual_point=run.listed_point())
            holds = result.certificate.relative_gap <= run.stopping.tol
            if holds or status is not Status.CONVERGED:
                return result
            # A shard was lost since the run had closed the gap.
            run.recover()
            run.primal = result.certificate.primal
            if run.is_done:  # but for rounding
                return result
        except LostShardError as lost:
            run.recover(lost.number)
        if status in CERTIFIED_BY_POINT:
            status = run_loop(solver, run)
