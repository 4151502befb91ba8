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
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from itertools import chain
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.arrays import Floats, Order, dot
from maxmargin.core.certificate import DualPoint
from maxmargin.core.cuts import Cuts
from maxmargin.core.oracle import Hinges, Oracle, Threads
from maxmargin.core.oracle_check import OracleChecker
from maxmargin.core.problem import ProblemError, renumbered
from maxmargin.core.registry import registered
from maxmargin.core.result import Iteration, Result, Status
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
    """Shards are lost with their worker, and all that was kept there: `Shards.lost` has them."""


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
        self.lost: set[int] = set()
        """Shards that are lost, until `restore` has made them again."""
        self.numbers: list[Order] = []
        """For each shard, the numbers of its examples among all, by which errors name them."""
        self.patience = PATIENCE_SECONDS
        self._run = uuid.uuid4().hex
        self._generation = [0] * len(self.loaders)
        self._workers: list[Any] = [None] * len(self.loaders)
        self._held: set[tuple[int, Any]] = set()
        """Shards, and workers that keep or have kept them."""
        self._request_numbers = itertools.count(1)
        self._losses = [0] * len(self.loaders)
        self._answered = [0] * len(self.loaders)
        """Requests that each shard has answered since it was made."""
        self._requests: dict[int, _Request] = {}
        self._done: queue.SimpleQueue[None] = queue.SimpleQueue()
        """Gets an item whenever an answer is there."""

    def __len__(self) -> int:
        return len(self.loaders)

    @property
    def busy(self) -> KeysView[int]:
        return self._requests.keys()

    def make(self, shard: int) -> None:
        """Make a shard (again), on the worker that has the fewest; its answer is None."""
        self._generation[shard] += 1
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
        generation = self._generation[shard]
        self._call(shard, _make, self._key(shard), generation, loader.make, *partitions)

    def _choose_worker(self, shard: int) -> Any:
        """The worker that holds its data, or the one with the fewest shards."""
        self._workers[shard] = None
        workers, holder = self.engine.workers, self.loaders[shard].holder
        used = [self._workers.count(worker) for worker in workers]
        return holder if holder in workers else workers[used.index(min(used))]

    def make_all(self, method: str, *arguments: Any) -> list[Any]:
        """Make all shards, and send each a first request."""
        self.lost = set(range(len(self)))
        answers = self.restore(lambda shard: (method, *arguments))
        return [answers[shard] for shard in range(len(self))]

    def restore(self, first: Callable[[int], tuple[Any, ...]]) -> dict[int, Any]:
        """Make lost shards again until none is; their answers to the `first` request of each."""
        answers = {}
        while self.lost:
            for shard in sorted(self.lost):
                self.make(shard)
            for made in self.gathered():
                self.ask(made.shard, *first(made.shard))
            for answer in self.gathered():
                answers[answer.shard] = answer.value
                self.lost.discard(answer.shard)
        return answers

    def ask(self, shard: int, method: str, *arguments: Any) -> None:
        """Call a method of a shard, which must have answered all requests before."""
        if shard in self._requests:
            raise EngineError(f"Shard {shard} has not answered the request before.")
        about = self._key(shard), self._generation[shard], next(self._request_numbers)
        self._call(shard, _ask, *about, method, *arguments)

    def answer(self) -> Answer | None:
        """The next answer, or that a shard is lost; None if no shard is busy.

        `EngineError` if none can come any more.
        """
        while self._requests:
            # What is done, not what the queue says: Ctrl-C may come between the two.
            for shard, request in list(self._requests.items()):
                if request.pending is None or request.pending.done():
                    answer = self._read(shard, request)
                    if answer is not None:
                        del self._requests[shard]
                        return answer
            try:
                self._done.get(timeout=POLL_SECONDS)
            except queue.Empty:
                silent = self._silent()
                if silent is not None:
                    return self._lost(silent, self._requests.pop(silent))
        return None

    def coming(self) -> Iterator[Answer]:
        """Answers of busy shards that are not lost, as they come; raises their errors."""
        return filter(self._is_present, iter(self.answer, None))

    def gathered(self) -> list[Answer]:
        """The same in the order of the shards; raises the first error once all have answered."""
        return list(filter(self._is_present, sorted(iter(self.answer, None))))

    def _is_present(self, answer: Answer) -> bool:
        """Whether a shard is not lost; raises its error, with examples numbered among all."""
        error = answer.error
        if isinstance(error, ProblemError) and self.numbers:
            error.args = (renumbered(str(error), self.numbers[answer.shard]),)
        if error is not None and not isinstance(error, LostShardError):
            raise error
        return error is None

    def wait(self) -> list[Answer]:
        """As `gathered`, but `LostShardError` if any shard is lost."""
        answers = self.gathered()
        if self.lost:
            raise LostShardError(f"Shards {sorted(self.lost)} are lost.")
        return answers

    def ask_all(self, method: str, *arguments: Any) -> list[Any]:
        """What all shards answer to a request, in order; errors as in `wait`."""
        while self._requests:  # which Ctrl-C or an error has interrupted: of no use any more
            self.answer()
        for shard in range(0 if self.lost else len(self)):
            self.ask(shard, method, *arguments)
        return [answer.value for answer in self.wait()]

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
        self._send(shard, _Request(function, arguments))

    def _send(self, shard: int, request: "_Request") -> None:
        pending, worker = None, self._workers[shard]
        if worker is not None:
            with suppress(LostWorkerError):
                pending = self.engine.call(worker, request.function, *request.arguments)
        request.pending, request.trials = pending, request.trials + 1
        self._requests[shard] = request
        if pending is not None:
            pending.add_done_callback(lambda done: self._done.put(None))

    def _read(self, shard: int, request: "_Request") -> Answer | None:
        """The answer that is there; None if it is still to come after all."""
        seconds = time.perf_counter() - request.at
        if request.pending is None:
            return self._lost(shard, request)
        try:
            value = self.engine.result(request.pending, request.fetch_seconds)
        except NoAnswerYetError:
            request.fetch_seconds *= 2.0
            return None
        except LostWorkerError:
            return self._lost(shard, request)
        except Exception as error:
            return Answer(shard, None, error, seconds)
        if value is _Gone:
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
        self.lost.add(shard)
        return Answer(shard, None, LostShardError(), time.perf_counter() - request.at)


@dataclass
class _Request:
    """What a shard works on; Dask goes on only while `pending` is referenced."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    pending: Pending | None = None
    """None if the worker was lost before."""
    at: float = field(default_factory=time.perf_counter)
    trials: int = 0
    fetch_seconds: float = FETCH_SECONDS


class _Gone:
    """The answer, this class itself, of a worker that does not have the shard."""


@dataclass
class _Kept:
    """A shard in the table of its process, with number and answer of the last request."""

    generation: int
    shard: Any
    lock: Any = field(default_factory=threading.Lock)
    number: int = 0
    answer: Any = None


_TABLE: dict[Key, _Kept] = {}


def _make(key: Key, generation: int, make: Callable[[list[Any]], Any], *partitions: Any) -> None:
    kept = _Kept(generation, make(list(partitions)))
    if key not in _TABLE or _TABLE[key].generation < generation:  # else a later one was quicker
        _TABLE[key] = kept


def _ask(key: Key, generation: int, number: int, method: str, *arguments: Any) -> Any:
    kept = _TABLE.get(key)
    if kept is None or kept.generation != generation:
        return _Gone
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


class Shard:
    """Examples of some partitions, and what a solver keeps with them."""

    def __init__(
        self, make_oracle: Callable[[Any, Any, Any], Oracle], partitions: list[Any]
    ) -> None:
        loaded = [load_partition(one) for one in partitions]
        whole = joined(loaded)
        self.oracle = make_oracle(whole.X, whole.y, whole.weight)
        self.partitions: list[int | Order] = [
            one.n_examples if one.numbers is None else one.numbers for one in loaded
        ]
        """How many (or which) examples each has."""
        self.work: Any = None

    def about(self) -> tuple[list[int | Order], int, bool, float | None]:
        """What `ShardedOracle` must know."""
        oracle = self.oracle
        return self.partitions, oracle.n_features, oracle.exact, oracle.oracle_work

    def begin(self, make: Callable[..., Any], *arguments: Any) -> None:
        """Make what the solver keeps here."""
        self.work = make(self.oracle, *arguments)

    def do(self, method: str, *arguments: Any) -> Any:
        """Call a method of what the solver keeps here."""
        return getattr(self.work, method)(*arguments)

    def hinges(self, weights: Floats) -> tuple[Hinges, str | None]:
        """Bounds of the sum of C times hinge, and what seems wrong with the oracle, if anything."""
        hinges = self.oracle.all_hinges(weights, Threads(1))
        return hinges, None if self.oracle.checker is None else self.oracle.checker.sentence

    def sums(self) -> tuple[Floats, float]:
        """``sum coef * psi`` and ``sum coef * loss`` of the dual point, over cuts made anew."""
        evaluation = Evaluation(self.work.point(), self.oracle.n_features).add(self.oracle, 0)
        return evaluation.weights, evaluation.linear


class ResidentPoint:
    """A feasible dual point that stays in the shards."""

    def dual(self, oracle: "ShardedOracle") -> float:
        """Dual value, from cuts that each shard makes anew."""
        vector, linear = oracle.sums()
        return linear - 0.5 * dot(vector, vector)


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
        told, widths, exact, works = zip(*shards.make_all("about"), strict=True)
        if len(set(widths)) > 1:
            raise ProblemError(
                f"Some partitions of the data have {min(widths)} joint features and some "
                f"{max(widths)}: the features must be the same for all."
            )
        self.n_features = widths[0]
        self.exact = all(exact)
        self._oracle_work = None if None in works else float(np.mean(works))
        flat = chain.from_iterable(told)
        partitions = dict(zip(chain.from_iterable(partition_numbers), flat, strict=True))
        first, numbers = 0, {}
        for k in sorted(partitions):
            which = partitions[k]
            own = np.arange(first, first + which) if isinstance(which, int) else which
            numbers[k], first = own, first + len(own)
        self.numbers = [np.concatenate([numbers[k] for k in own]) for own in partition_numbers]
        """For each shard, the numbers of its examples among all."""
        shards.numbers = self.numbers
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
        told = zip(wrong, self.numbers, strict=True)
        self.checker.sentence = next((renumbered(one, own) for one, own in told if one), None)
        return sum(hinges, Hinges(0.0, 0.0))

    def sums(self) -> tuple[Floats, float]:
        """``sum coef * psi`` and ``sum coef * loss`` of the dual point in all shards."""
        vectors, linears = zip(*self.shards.ask_all("sums"), strict=True)
        self.received += sum(vector.nbytes for vector in vectors)
        return sum(vectors, np.zeros(self.n_features)), sum(linears)

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
) -> ShardedOracle:
    """The oracle of partitions in shards, each near its data."""
    holders = [engine.holder(partition) for partition in partitions]
    known = [holder for holder in dict.fromkeys(holders) if holder is not None][:n_shards]
    numbers: list[list[int]] = [[] for _ in range(n_shards)]
    for k, holder in enumerate(holders):
        if holder in known:
            numbers[known.index(holder)].append(k)
    for k, holder in enumerate(holders):  # the rest is dealt out
        if holder not in known:
            min(numbers, key=len).append(k)
    known += [None] * (n_shards - len(known))
    loaders = [
        Loader(partial(Shard, make_oracle), [partitions[k] for k in own], holder)
        for own, holder in zip(numbers, known, strict=True)
        if own
    ]
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


Method = TypeVar("Method", bound=Callable[..., Any])


def retried(method: Method) -> Method:
    """Call a method of a run again, with lost shards made again, while one is lost."""

    @wraps(method)
    def repeated(run: Any, *arguments: Any) -> Any:
        while True:
            try:
                return method(run, *arguments)
            except LostShardError:
                run.recover()

    return cast(Method, repeated)


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
        except LostShardError:
            run.recover()
        if status in CERTIFIED_BY_POINT:
            status = run_loop(solver, run)
