"""The oracle of examples that are spread over several workers, in shards."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

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
from maxmargin.solvers.loop import Solver, run_loop
from maxmargin.solvers.online import Evaluation
from maxmargin.training.engines import Engine
from maxmargin.training.partitions import joined, load_partition
from maxmargin.training.shards import Loader, LostShardError, Shards

Floats = NDArray[np.float64]
Order = NDArray[np.int64]


class About(NamedTuple):
    """What a shard tells of its examples: how many, or which, each partition has, and how wide."""

    partitions: "list[int | Order]"
    n_features: int
    exact: bool
    oracle_work: float | None


class Evaluated(NamedTuple):
    """Hinges of a shard at some weights, and what seems wrong with its oracle, if anything."""

    hinges: Hinges
    wrong: str | None


class Sums(NamedTuple):
    """What a dual point makes of the cutting planes: ``sum coef * psi`` and ``sum coef * loss``."""

    vector: Floats
    linear: float


class Shard:
    """Some of the examples on their worker, and what a solver keeps with them.

    Parameters
    ----------
    oracle : Oracle
    partitions : list of int, or of ndarray
        How many examples each of its partitions has, or which.
    firsts : list of int, or None
        For each partition, the number of its first example among all, if that is known.
    """

    def __init__(
        self, oracle: Oracle, partitions: "list[int | Order]", firsts: list[int] | None = None
    ) -> None:
        self.oracle, self.partitions, self.firsts = oracle, partitions, firsts
        self.work: Any = None

    @classmethod
    def load(
        cls,
        make_oracle: Callable[[Any, Any, Any], Oracle],
        partitions: list[Any],
        firsts: list[int] | None = None,
    ) -> "Shard":
        """The shard of some partitions; those that are lazy are computed now."""
        loaded = [load_partition(one) for one in partitions]
        whole = joined(loaded)
        return cls(
            make_oracle(whole.X, whole.y, whole.weight),
            [one.n_examples if one.numbers is None else one.numbers for one in loaded],
            firsts,
        )

    def about(self) -> About:
        """What the oracle of all examples must know."""
        oracle = self.oracle
        return About(self.partitions, oracle.n_features, oracle.exact, oracle.oracle_work)

    def begin(self, make: Callable[..., Any], *arguments: Any) -> None:
        """Let a solver make what it keeps here."""
        self.work = make(self.oracle, *arguments)

    def do(self, method: str, *arguments: Any) -> Any:
        """Ask what the solver keeps here."""
        with self._renumbering():
            return getattr(self.work, method)(*arguments)

    @contextmanager
    def _renumbering(self) -> Iterator[None]:
        """Let errors name the number that an example has among all, if that is known."""
        try:
            yield
        except ProblemError as error:
            if self._numbers() is None:
                raise
            raise ProblemError(self._told(str(error))) from error

    def _told(self, sentence: str) -> str:
        """A sentence about an example, with its number among all if that is known."""
        numbers = self._numbers()
        return sentence if numbers is None else renumbered(sentence, numbers)

    def _numbers(self) -> Order | None:
        numbers = []
        for k, own in enumerate(self.partitions):
            if isinstance(own, np.ndarray):
                numbers.append(own)
            elif self.firsts is None:
                return None
            else:
                numbers.append(np.arange(self.firsts[k], self.firsts[k] + own))
        return np.concatenate(numbers)

    def hinges(self, weights: Floats) -> Evaluated:
        """Bounds of the sum of C times hinge, by an oracle call for each example."""
        with self._renumbering():
            hinges = self.oracle.all_hinges(weights, Threads(1))
        checker = self.oracle.checker
        wrong = (
            None if checker is None or checker.sentence is None else self._told(checker.sentence)
        )
        return Evaluated(hinges, wrong)

    def sums(self) -> Sums:
        """What the present dual point makes of cutting planes made anew from the data."""
        evaluation = Evaluation(self.work.point(), self.oracle.n_features).add(self.oracle, 0)
        return Sums(evaluation.weights, evaluation.linear)


class ResidentPoint:
    """A feasible dual point that stays with the shards."""

    def dual(self, oracle: "ShardedOracle") -> float:
        """Dual value, from cutting planes that each shard makes anew."""
        sums = oracle.sums()
        return sums.linear - 0.5 * float(sums.vector @ sums.vector)


class ShardedOracle(Oracle):
    """The oracle of examples that stay in their shards, which answer for them.

    Parameters
    ----------
    shards : Shards
        Not made yet.
    partition_numbers : list of list of int
        For each shard, which partitions of the data it has.
    content : object
        All that tells the data, and their oracle, from others, whichever worker has them.
    """

    def __init__(self, shards: Shards, partition_numbers: list[list[int]], content: Any) -> None:
        self.shards, self._content = shards, content
        self.C = np.zeros(0)  # each shard knows the C of its own
        self.checker: OracleChecker = (
            OracleChecker()
        )  # it repeats what those of the shards have found
        self.sent = self.received = 0
        """Bytes of the arrays that went to the shards, and that came from them."""
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
        """Whether a solver is to fetch the final dual point, for another solve to start from."""

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
        evaluated: list[Evaluated] = self.shards.ask_all("hinges", weights)
        wrong = [each.wrong for each in evaluated if each.wrong is not None]
        self.checker.sentence = wrong[0] if wrong else None
        return sum((each.hinges for each in evaluated), Hinges(0.0, 0.0))

    def sums(self) -> Sums:
        """What the dual points of all shards make of their cutting planes."""
        vector, linear = np.zeros(self.n_features), 0.0
        for own in self.shards.ask_all("sums"):
            vector += own.vector
            linear += own.linear
            self.received += own.vector.nbytes
        return Sums(vector, linear)

    def split(self, point: DualPoint) -> list[DualPoint]:
        """A dual point of all examples as one for each shard, with their own numbers."""
        points = []
        for numbers in self.numbers:
            order = np.argsort(numbers)
            at = np.searchsorted(numbers, point.examples, sorter=order)
            at = order[np.minimum(at, len(numbers) - 1)]
            own = np.flatnonzero(numbers[at] == point.examples)
            points.append(DualPoint(at[own], point.coef[own], [point.outputs[k] for k in own]))
        return points

    def join(self, points: Sequence[DualPoint]) -> DualPoint:
        """The other way round."""
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
    """The oracle of partitions in so many shards on an engine, each where most of its data lie.

    `counts` are the numbers of examples that the partitions have, if that is known.
    """
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
            make = partial(Shard.load, make_oracle, firsts=own_firsts)
            holder = known[shard] if shard < len(known) else None
            loaders.append(Loader(make, [partitions[k] for k in own], holder))
    return ShardedOracle(Shards(engine, loaders), [own for own in numbers if own], content)


@registered("ClusterRound")
@dataclass(frozen=True)
class ClusterIteration(Iteration):
    """A line of history of a fit on shards; what it adds is of this iteration alone.

    Parameters
    ----------
    sent, received : int
        Bytes of the arrays that went to the shards, and that came from them.
    updates : int
        Updates that shards sent.
    work_seconds, oracle_seconds : float
        Time that shards worked, added up, and of that the time of their oracle calls.
    idle_seconds : float
        Time between request and answer that they did not work, added up: transport and the
        scheduler.
    step : float
        Step size along the shards' updates, on average.
    """

    sent: int = 0
    received: int = 0
    updates: int = 0
    work_seconds: float = 0.0
    oracle_seconds: float = 0.0
    idle_seconds: float = 0.0
    step: float = 1.0


CERTIFIED_BY_POINT = (Status.CONVERGED, Status.RELAXED)
"""Reasons to stop that hold only for as long as the dual point that they were found with."""


def certified_on_shards(
    run: Any,
    status: Status,
    certify: Callable[[Status], Result],
    solver: Solver,
) -> Result:
    """The answer of a run, certified.

    What a lost shard had reached is lost with it. A run that had converged must do so again before
    it says so.

    Parameters
    ----------
    run : Run
        With ``recover(*shards)``, which makes lost shards again and recomputes what all hold.
    status : Status
        Why it has stopped.
    certify : callable
        Evaluates the answer and the dual point anew; a shard may be lost meanwhile.
    solver : Solver
        Whose run it is.
    """
    while True:
        try:
            result = certify(status)
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
