"""The separation oracle: a problem bound to its training examples, called in threads."""

import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.arrays import Floats, Order, dot
from maxmargin.core.certificate import DualPoint
from maxmargin.core.cuts import Cuts, starts_of
from maxmargin.core.oracle_check import OracleChecker

Entries = tuple[Order, NDArray[np.uint32], Floats, Floats]
"""Starts, columns and values of psi, and losses: see `Cuts`."""

_CHUNK = 1024
"""Examples whose cuts are in memory at the same time while the objective is evaluated."""

_FEATURES, _PARTS = 1 << 21, 8
"""Weights of a dual point that are in memory at the same time, beside those of the fit: 16 MB, or
one of so many parts, for each of which its cuts are made again."""

Task = TypeVar("Task")
Answer = TypeVar("Answer")

WORK_FOR_THREADS = 3e6
"""Multiplications from which on threads pay: about half a millisecond."""

SECONDS_FOR_THREADS = 3e-4
"""What oracle calls have to take for threads to pay: to hand one over and to make scratch once more
takes some tenths of a millisecond."""


class Threads:
    """`n_jobs` threads; a single one, or a single task, runs in the caller's."""

    def __init__(self, n_jobs: int | None) -> None:
        self.n_threads = n_threads(n_jobs)
        self._pool = ThreadPoolExecutor(self.n_threads) if self.n_threads > 1 else None
        self._seconds: dict[Any, float] = {}
        """What a unit of work took in the last `map_slices` of each kind."""

    def shares(self, n: int, work: float = math.inf) -> list[slice]:
        """``range(n)`` in one slice a thread; in one slice if `work` for each is too little."""
        return _slices(n, self.n_threads if n * work > WORK_FOR_THREADS else 1)

    def map_slices(
        self, function: Callable[[slice], Answer], work: Floats, kind: Any
    ) -> list[Answer]:
        """Results for ``range(len(work))`` in one slice, or in one a thread if that pays.

        Slices have equal work. What the last call of this `kind` took tells, which decides nothing
        but who computes.
        """
        whole = slice(0, len(work))
        if self.n_threads == 1:
            return [function(whole)]
        total = float(work.sum())
        if total * self._seconds.get(kind, 0.0) <= SECONDS_FOR_THREADS:
            started = time.perf_counter()
            answer = function(whole)
            self._seconds[kind] = (time.perf_counter() - started) / max(total, 1.0)
            return [answer]

        def timed(part: slice) -> tuple[Answer, float]:
            started = time.thread_time()
            return function(part), time.thread_time() - started

        found = self.map(timed, _slices_of(work, self.n_threads))
        self._seconds[kind] = sum(spent for _, spent in found) / total
        return [answer for answer, _ in found]

    def map(
        self,
        function: Callable[[Task], Answer],
        tasks: Iterable[Task],
        cancel: Callable[[], None] = lambda: None,
    ) -> list[Answer]:
        """Results of all `tasks`; on an error or Ctrl-C, calls `cancel` and waits for the rest."""
        tasks = list(tasks)
        if self._pool is None or len(tasks) <= 1:
            return [function(task) for task in tasks]
        # The first in this thread: to wake another one takes as long as some oracle calls.
        running = [self._pool.submit(function, task) for task in tasks[1:]]
        try:
            return [function(tasks[0]), *(future.result() for future in running)]
        except BaseException:
            cancel()
            wait(running)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()


def n_threads(n_jobs: int | None) -> int:
    """Number of threads for scikit-learn's `n_jobs`."""
    if n_jobs is None:
        return 1
    if n_jobs > 0:
        return n_jobs  # to count cores takes as long as to tag a word
    return max(1, (os.cpu_count() or 1) + 1 + n_jobs)


ONE_THREAD = Threads(1)


def _slices(n: int, parts: int) -> list[slice]:
    """``range(n)`` in so many slices, without empty ones."""
    cuts = [n * part // parts for part in range(parts + 1)]
    return [slice(a, b) for a, b in pairwise(cuts) if b > a]


def _slices_of(work: Floats, parts: int) -> list[slice]:
    """``range(len(work))`` in so many slices of about the same work, without empty ones."""
    done = np.cumsum(work)
    # To the nearest end of a thing: where half of it is done.
    cuts = np.searchsorted(done - 0.5 * work, done[-1] * np.arange(1, parts) / parts)
    ends = [0, *cuts.tolist(), len(work)]
    return [slice(a, b) for a, b in pairwise(ends) if b > a]


class Hinges(NamedTuple):
    """Lower and upper bound of a sum of hinges; equal where the oracle is exact."""

    least: float
    most: float

    @property
    def middle(self) -> float:
        return 0.5 * (self.least + self.most)

    def __add__(self, other: "Hinges") -> "Hinges":  # type: ignore[override]
        return Hinges(self.least + other.least, self.most + other.most)


class Oracle(ABC):
    """Loss-augmented inference over the training examples, each with its `C`.

    Calls depend on their arguments alone; what helps the next call belongs to the `warm` oracle.
    """

    n_features: int
    C: Floats
    exact: bool = True
    """Whether `separate` always finds the most violated cut; if not, cuts have a suboptimality."""
    checker: OracleChecker | None = None
    """Compares answers of an oracle that a user wrote; None for ours."""

    def check_from(self, first: int, checker: OracleChecker | None) -> None:
        """Number examples from `first` on, and go on with the `checker` of the batches before."""
        if self.checker is not None:
            self.checker = checker or self.checker

    @property
    def n_examples(self) -> int:
        return len(self.C)

    @property
    def shape(self) -> tuple[int, int]:
        """(n_examples, n_features)."""
        return self.n_examples, self.n_features

    @abstractmethod
    def separate(self, weights: Floats, examples: Order, threads: Threads) -> Cuts:
        """Most violated cutting plane of each of the `examples` at `weights`."""

    @abstractmethod
    def cuts_of(self, examples: Order, outputs: Sequence[Any]) -> Cuts:
        """Cutting planes of given outputs."""

    @property
    def output_cuts(self) -> Any:
        """Routines for a working set that keeps outputs alone, as `dual.output_cuts` wants them."""
        return None

    def outputs(self, example: int) -> list[Any]:
        """All outputs of an example; ValueError if they cannot be listed."""
        raise ValueError(outputs_missing(self))

    @property
    def oracle_name(self) -> str:
        """Its name in messages."""
        return f"the oracle of {type(self).__name__}"

    @property
    def content(self) -> Any:
        """What tells these examples and their inference from others, for fingerprints."""
        return vars(self)

    def warm(self) -> "Oracle":
        """The oracle of one run, whose calls may start from earlier ones."""
        return self

    @property
    def cold(self) -> "Oracle":
        """The oracle that evaluates the objective: the one a warm one was made of."""
        return self

    @property
    def oracle_state(self) -> Any:
        """What a warm oracle remembers, for checkpoints."""
        return None

    @oracle_state.setter  # noqa: B027
    def oracle_state(self, state: Any) -> None:
        """Restore it."""

    @property
    @abstractmethod
    def oracle_work(self) -> float | None:
        """Multiplications of one oracle call, on average; None if unknown."""

    def primal(self, weights: Floats, threads: Threads | None = None) -> float:
        """Objective at `weights`, by an oracle call for each example."""
        return 0.5 * dot(weights, weights) + self.all_hinges(weights, threads).most

    def all_hinges(self, weights: Floats, threads: Threads | None = None) -> "Hinges":
        """Bounds of the sum of C times hinge over all examples, by an oracle call for each."""
        oracle, threads = self.cold, threads or Threads(1)
        parts = (
            oracle.hinges(oracle.separate(weights, some, threads), weights, some)
            for some in self.chunks()
        )
        return sum(parts, Hinges(0.0, 0.0))

    def hinges(self, cuts: Cuts, weights: Floats, examples: Order) -> "Hinges":
        """Bounds of the sum of C times hinge, from cuts found at these weights."""
        C, slopes = self.C[examples], cuts.slopes(weights)
        least = float(C @ np.maximum(slopes, 0.0))
        if cuts.suboptimality is None:
            return Hinges(least, least)
        return Hinges(least, float(C @ np.maximum(slopes + cuts.suboptimality, 0.0)))

    def dual(self, point: Any) -> float:
        """Dual value of a point from its cuts made anew; ValueError if it is not feasible."""
        if not isinstance(point, DualPoint):
            return float(point.dual(self))
        coef = point.feasible_coef(self.C)
        linear = square = 0.0
        # Where Python makes the cuts, to make them again takes too long.
        most = max(self.n_features, 1)
        if self.oracle_work is not None:
            most = max(_FEATURES, -(-most // _PARTS))
        some_weights = np.empty(min(most, self.n_features))
        for first in range(0, max(self.n_features, 1), most):
            weights, linear = some_weights[: self.n_features - first], 0.0
            weights[:] = 0.0
            for start in range(0, len(coef), _CHUNK):
                some = slice(start, start + _CHUNK)
                cuts = self.cuts_of(point.examples[some], point.outputs[some])
                cuts.add_to(weights, coef[some], first)
                linear += float(coef[some] @ cuts.losses)
            square += dot(weights, weights)
        return linear - 0.5 * square

    def feasible(self, point: DualPoint) -> DualPoint:
        """The point, scaled down in examples where it exceeds their C."""
        if not isinstance(point, DualPoint):
            raise ValueError("The point is no list of outputs with coefficients.")
        return point.feasible(self.C)

    def chunks(self) -> list[Order]:
        ends = [*range(0, self.n_examples, _CHUNK), self.n_examples]
        return [np.arange(start, stop, dtype=np.int64) for start, stop in pairwise(ends)]


class CompiledOracle(Oracle):
    """Base of oracles with compiled inference, in batches and threads.

    Output ``k`` of a batch is ``found[starts[k]:starts[k + 1]]``, of `output_dtype` and as long as
    `output_sizes` says of its example; solvers know it as bytes.
    """

    output_dtype: Any
    output_sizes: Order

    @property
    @abstractmethod
    def oracle_work(self) -> float: ...

    def work_of(self, examples: Order) -> Floats:
        """Work of the oracle calls for some examples, in any unit."""
        return self.output_sizes[examples].astype(np.float64)

    @abstractmethod
    def infer(
        self, weights: Floats, examples: Order, starts: Order, found: NDArray[Any]
    ) -> Floats | None:
        """Write most violating outputs to `found`; returns their suboptimality bounds, or None."""

    @abstractmethod
    def check_outputs(self, examples: Order, starts: Order, found: NDArray[Any]) -> None:
        """Raise ValueError for invalid outputs; their lengths are right."""

    @abstractmethod
    def entries_of(self, examples: Order, starts: Order, found: NDArray[Any]) -> Entries:
        """Cutting planes of a batch of outputs: CSR arrays of psi, and losses."""

    def separate(self, weights: Floats, examples: Order, threads: Threads) -> Cuts:
        def separated(part: slice) -> Cuts:
            some = examples[part]
            starts, found, suboptimality = self._inferred(weights, some)
            entries = self.entries_of(some, starts, found)
            return Cuts(*entries, outputs_of(starts, found), suboptimality)

        return Cuts.join(threads.map_slices(separated, self.work_of(examples), id(self)))

    def most_violating(
        self, weights: Floats, examples: Order, threads: Threads
    ) -> tuple[Order, NDArray[Any]]:
        """What `separate` finds, without cutting planes: `starts` and `found`."""

        def inferred(part: slice) -> NDArray[Any]:
            return self._inferred(weights, examples[part])[1]

        found = threads.map_slices(inferred, self.work_of(examples), id(self))
        all_found = found[0] if len(found) == 1 else np.concatenate(found)
        return starts_of(self.output_sizes[examples]), all_found

    def _inferred(
        self, weights: Floats, examples: Order
    ) -> tuple[Order, NDArray[Any], Floats | None]:
        """The most violating outputs: `starts`, `found`, and what `infer` returns."""
        starts = starts_of(self.output_sizes[examples])
        found = np.empty(starts[-1], dtype=self.output_dtype)
        suboptimality = self.infer(weights, examples, starts, found) if len(examples) else None
        return starts, found, suboptimality

    def cuts_of(self, examples: Order, outputs: Sequence[bytes]) -> Cuts:
        return Cuts(*self.entries_from(examples, outputs), list(outputs))

    def entries_from(self, examples: Order, outputs: Sequence[bytes]) -> Entries:
        """Entries of the cutting planes of given outputs, which are checked."""
        starts = starts_of(self.output_sizes[examples])
        size = np.dtype(self.output_dtype).itemsize
        if list(map(len, outputs)) != (size * np.diff(starts)).tolist():
            raise ValueError("The outputs are of other lengths than those of the examples.")
        # Writable, as found outputs are: numba would compile again for an array that is not.
        found = np.frombuffer(bytearray().join(outputs), dtype=self.output_dtype)
        self.check_outputs(examples, starts, found)
        return self.entries_of(examples, starts, found)


def outputs_of(starts: Order, found: NDArray[Any]) -> list[bytes]:
    """Outputs of a `CompiledOracle`, as solvers know them."""
    raw, size = found.tobytes(), found.strides[0]  # dtypes may be of subarrays
    return [raw[size * a : size * b] for a, b in pairwise(starts.tolist())]


def outputs_missing(problem: Any) -> str:
    """Error message of solvers that need outputs which are not listed."""
    return (
        f"PartialLinearization and ExponentiatedGradient need {type(problem).__name__} to have "
        f"the method outputs(x), the list of all outputs of an input."
    )
