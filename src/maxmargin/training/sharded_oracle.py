"""A training set whose examples lie in several places, each of them a shard."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.core.certificate import DualPoint
from maxmargin.core.cuts import Cuts
from maxmargin.core.oracle import Hinges, Oracle
from maxmargin.core.oracle_check import OracleWatch
from maxmargin.core.problem import ProblemError, renumbered
from maxmargin.core.threads import Threads
from maxmargin.data.sources import widened
from maxmargin.solvers.stream import Evaluation
from maxmargin.training.engines import Engine
from maxmargin.training.shards import Loader, Shards

Floats = NDArray[np.float64]
Order = NDArray[np.int64]


class PartExamples(NamedTuple):
    """Examples of one part of the data.

    Parameters
    ----------
    X, y : Any
        Inputs and outputs; `y` may be None where the inputs say all.
    weight : ndarray of shape (n,) or None
        Multiplies the C of each example.
    numbers : ndarray of int64, shape (n,), or None
        Which of all examples they are; None if parts follow one another.
    """

    X: Any
    y: Any
    weight: Floats | None = None
    numbers: Order | None = None

    @property
    def n_examples(self) -> int:
        """How many there are."""
        return self.X.shape[0] if hasattr(self.X, "shape") else len(self.X)


class About(NamedTuple):
    """What a shard tells of its examples: how many, or which, are in each part, and how wide."""

    parts: "list[int | Order]"
    n_features: int
    exact: bool
    oracle_work: float | None


class Evaluated(NamedTuple):
    """What a shard finds at some weights, and what is wrong with its oracle, if anything seems."""

    hinges: Hinges
    wrong: str | None


class Sums(NamedTuple):
    """What a dual point makes of the planes: ``sum coef * psi`` and ``sum coef * loss``."""

    vector: Floats
    linear: float


class Shard:
    """Some of the examples, where they live, and what a solver keeps with them.

    Parameters
    ----------
    oracle : TrainingSet
    parts : list of int, or of ndarray
        How many examples each of its parts has, or which.
    firsts : list of int, or None
        For each part, the number of its first example among all, if that is known.
    """

    def __init__(
        self, oracle: Oracle, parts: "list[int | Order]", firsts: list[int] | None = None
    ) -> None:
        self.oracle, self.parts, self.firsts = oracle, parts, firsts
        self.work: Any = None

    @classmethod
    def load(
        cls,
        make_oracle: Callable[[Any, Any, Any], Oracle],
        parts: list[Any],
        firsts: list[int] | None = None,
    ) -> "Shard":
        """The shard of some parts; those that are lazy are computed now."""
        loaded = [loaded_part(part) for part in parts]
        whole = joined(loaded)
        return cls(
            make_oracle(whole.X, whole.y, whole.weight),
            [part.n_examples if part.numbers is None else part.numbers for part in loaded],
            firsts,
        )

    def about(self) -> About:
        """What the whole training set must know."""
        oracle = self.oracle
        return About(self.parts, oracle.n_features, oracle.exact, oracle.oracle_work)

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
        for part, own in enumerate(self.parts):
            if isinstance(own, np.ndarray):
                numbers.append(own)
            elif self.firsts is None:
                return None
            else:
                numbers.append(np.arange(self.firsts[part], self.firsts[part] + own))
        return np.concatenate(numbers)

    def hinges(self, weights: Floats) -> Evaluated:
        """Bounds of the sum of cost times hinge, by a search for each example."""
        with self._renumbering():
            hinges = self.oracle.all_hinges(weights, Threads(1))
        watch = self.oracle.watch
        wrong = None if watch is None or watch.sentence is None else self._told(watch.sentence)
        return Evaluated(hinges, wrong)

    def sums(self) -> Sums:
        """What the present dual point makes of planes that are made from the data anew."""
        evaluation = Evaluation(self.work.point(), self.oracle.n_features).add(self.oracle, 0)
        return Sums(evaluation.weights, evaluation.linear)


class ResidentPoint:
    """A feasible dual point that stays where the shards are."""

    def dual(self, oracle: "ShardedOracle") -> float:
        """Dual value, from planes that each shard makes anew."""
        sums = oracle.sums()
        return sums.linear - 0.5 * float(sums.vector @ sums.vector)


class ShardedOracle(Oracle):
    """Examples that stay in their shards, which answer for them.

    Parameters
    ----------
    shards : Shards
        Not made yet.
    part_numbers : list of list of int
        For each shard, which parts of the data it has.
    content : object
        All that tells the data, and how they are searched, from others, whoever keeps them.
    """

    def __init__(self, shards: Shards, part_numbers: list[list[int]], content: Any) -> None:
        self.shards, self._content = shards, content
        self.C = np.zeros(0)  # each shard knows the C of its own
        self.watch: OracleWatch = OracleWatch()  # which tells what those of the shards have seen
        self.sent = self.received = 0
        """Bytes of the arrays that went to the shards, and that came from them."""
        told: list[About] = shards.make_all("about")
        widths = sorted({about.n_features for about in told})
        if len(widths) > 1:
            raise ProblemError(
                f"Some parts of the data have {widths[0]} joint features and some "
                f"{widths[-1]}: the features must be the same for all."
            )
        self.n_features = widths[0]
        self.exact = all(about.exact for about in told)
        works = [about.oracle_work for about in told]
        self._oracle_work = None if None in works else float(np.mean(works))  # type: ignore[arg-type]
        flat = chain.from_iterable(about.parts for about in told)
        parts = dict(zip(chain.from_iterable(part_numbers), flat, strict=True))
        first, numbers = 0, {}
        for part in sorted(parts):
            told_of = parts[part]
            own = np.arange(first, first + told_of) if isinstance(told_of, int) else told_of
            numbers[part], first = own, first + len(own)
        self.numbers: list[Order] = [
            np.concatenate([numbers[part] for part in own]) for own in part_numbers
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
        raise NotImplementedError("Planes stay in their shards.")

    def cuts_of(self, examples: Order, outputs: Sequence[Any]) -> Cuts:
        raise NotImplementedError("Planes stay in their shards.")

    def all_hinges(self, weights: Floats, threads: Threads | None = None) -> Hinges:
        self.sent += weights.nbytes * len(self.shards)
        evaluated: list[Evaluated] = self.shards.ask_all("hinges", weights)
        wrong = [each.wrong for each in evaluated if each.wrong is not None]
        self.watch.sentence = wrong[0] if wrong else None
        return sum((each.hinges for each in evaluated), Hinges(0.0, 0.0))

    def sums(self) -> Sums:
        """What the dual points of all shards make of their planes."""
        vector, linear = np.zeros(self.n_features), 0.0
        for part in self.shards.ask_all("sums"):
            vector += part.vector
            linear += part.linear
            self.received += part.vector.nbytes
        return Sums(vector, linear)

    def split(self, point: DualPoint) -> list[DualPoint]:
        """A dual point of all examples as one for each shard, with their own numbers."""
        parts = []
        for numbers in self.numbers:
            order = np.argsort(numbers)
            at = np.searchsorted(numbers, point.examples, sorter=order)
            at = order[np.minimum(at, len(numbers) - 1)]
            own = np.flatnonzero(numbers[at] == point.examples)
            parts.append(DualPoint(at[own], point.coef[own], [point.outputs[k] for k in own]))
        return parts

    def join(self, parts: Sequence[DualPoint]) -> DualPoint:
        """The other way round."""
        return DualPoint(
            np.concatenate([n[p.examples] for n, p in zip(self.numbers, parts, strict=True)]),
            np.concatenate([part.coef for part in parts]),
            [output for part in parts for output in part.outputs],
        )


def loaded_part(part: Any) -> PartExamples:
    """The examples of a part, read or computed now if it is lazy."""
    if hasattr(part, "__dask_graph__"):
        part = part.compute(scheduler="synchronous")
    examples: PartExamples = part.load() if hasattr(part, "load") else part
    return examples


def joined(parts: Sequence[PartExamples]) -> PartExamples:
    """Several parts as one."""
    if len(parts) == 1:
        return parts[0]
    weights = [np.ones(part.n_examples) if part.weight is None else part.weight for part in parts]
    return PartExamples(
        _stacked([part.X for part in parts]),
        None if parts[0].y is None else _stacked([part.y for part in parts]),
        None if all(part.weight is None for part in parts) else np.concatenate(weights),
        _stacked([part.numbers for part in parts]) if parts[0].numbers is not None else None,
    )


def _stacked(values: list[Any]) -> Any:
    if any(sp.issparse(value) for value in values):
        width = max(value.shape[1] for value in values)
        rows = [widened(sp.csr_array(value), width) for value in values]
        return sp.vstack(rows, format="csr")
    if all(isinstance(value, np.ndarray) for value in values):
        return np.concatenate(values)
    return list(chain.from_iterable(values))


def place(
    engine: Engine,
    parts: Sequence[Any],
    make_oracle: Callable[[Any, Any, Any], Oracle],
    n_shards: int,
    content: Any,
    counts: Sequence[int] | None = None,
) -> ShardedOracle:
    """Parts of the data as a training set of so many shards on an engine, neighbours together.

    `counts` are the numbers of examples that the parts have, if that is known.
    """
    homes = [engine.home(part) for part in parts]
    known = sorted({home for home in homes if home is not None}, key=homes.index)[:n_shards]
    numbers: list[list[int]] = [[] for _ in range(n_shards)]
    for part, home in enumerate(homes):  # what lies somewhere stays there, the rest is dealt out
        if home in known:
            numbers[known.index(home)].append(part)
    for part, home in enumerate(homes):
        if home not in known:
            min(numbers, key=len).append(part)
    firsts = None if counts is None else np.cumsum([0, *counts]).tolist()
    loaders = []
    for shard, own in enumerate(numbers):
        if own:
            begin = None if firsts is None else [firsts[p] for p in own]
            place = known[shard] if shard < len(known) else None
            make = partial(Shard.load, make_oracle, firsts=begin)
            loaders.append(Loader(make, [parts[p] for p in own], place))
    numbers = [own for own in numbers if own]
    return ShardedOracle(Shards(engine, loaders), numbers, content)
