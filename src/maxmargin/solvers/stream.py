"""Streams of examples as solvers see them, and their certificate in one pass.

A stream gives batches, each of them an `Oracle` in memory. Examples are known by their position in
the stream. What is certified here comes from the examples, weights and the dual point alone.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.certificate import DualPoint
from maxmargin.core.oracle import Hinges, Oracle
from maxmargin.core.oracle_check import OracleChecker
from maxmargin.core.threads import Threads
from maxmargin.dual.cut_cache import Frozen

Floats = NDArray[np.float64]

ROUNDING = 1e-9
"""Relative to its C, how far above it the coefficients of an example may seem to add up."""

CHUNK = 1024
"""Examples whose cutting planes are held at the same time."""


class FrozenPoint(NamedTuple):
    """A feasible dual point of which a part is known only as a sum.

    Parameters
    ----------
    listed : DualPoint
        Coefficients of outputs.
    frozen : Frozen
        The sum of all the others. That each of its terms is a cutting plane of its example rests on
        the solver; what the examples have spent on it is checked.
    """

    listed: DualPoint
    frozen: Frozen

    def dual(self, oracle: Oracle) -> float:
        """Dual value, with the cutting planes that are listed made anew."""
        return Evaluation(self, oracle.n_features).add(oracle, 0).total


DualPointOfStream = DualPoint | FrozenPoint


class Evaluation:
    """The dual value of a point, added up batch by batch.

    Parameters
    ----------
    point : DualPoint or FrozenPoint
    n_features : int
    """

    def __init__(self, point: DualPointOfStream, n_features: int) -> None:
        self.weights, self.linear = np.zeros(n_features), 0.0
        self.spent = np.zeros(0)
        self.evaluated = 0
        if isinstance(point, FrozenPoint):
            self.weights += point.frozen.vector
            self.linear += float(point.frozen.loss[0])
            self.spent = point.frozen.spent
            point = point.listed
        order = np.argsort(point.examples, kind="stable")
        self.positions, self.coef = point.examples[order], point.coef[order]
        self.outputs = [point.outputs[k] for k in order]

    def add(self, oracle: Oracle, first: int) -> "Evaluation":
        """Add the cutting planes of a batch that begins at position `first`.

        Raises
        ------
        ValueError
            If the coefficients are not feasible.
        """
        last = first + oracle.n_examples
        low, high = np.searchsorted(self.positions, [first, last])
        examples, coef = self.positions[low:high] - first, self.coef[low:high]
        used = np.bincount(examples, weights=coef, minlength=oracle.n_examples).astype(np.float64)
        spent = self.spent[first:last]
        used[: len(spent)] += spent
        if (coef < 0.0).any() or (used > oracle.C * (1.0 + ROUNDING)).any():
            raise ValueError("The dual point is not feasible.")
        for start in range(0, len(examples), CHUNK):
            some = slice(start, start + CHUNK)
            outputs = self.outputs[low:high][some]
            cuts = oracle.cuts_of(examples[some], outputs)
            self.weights += cuts.matrix(len(self.weights)).T @ coef[some]
            self.linear += float(coef[some] @ cuts.losses)
        self.evaluated += len(examples)
        return self

    @property
    def total(self) -> float:
        """The dual value.

        Raises
        ------
        ValueError
            If examples of the point were not among those that were added.
        """
        if self.evaluated != len(self.positions):
            raise ValueError(
                f"The source ended before example {self.positions[-1]}, which it gave before: it "
                f"must give the same examples in the same order on every pass."
            )
        return self.linear - 0.5 * float(self.weights @ self.weights)


class Batch(NamedTuple):
    """Examples in memory, and the position of the first of them in the stream."""

    first: int
    oracle: Oracle


class Stream(ABC):
    """Examples that are gone through again and again, not all of which need be in memory."""

    oracle_state: Any = None
    """Oracle calls of a stream remember nothing from one pass to the next."""

    checker: OracleChecker | None = None
    """Looks at the answers of an oracle that a user wrote, in all batches; see `Oracle`."""

    @property
    @abstractmethod
    def content(self) -> Any:
        """All that tells these examples, and their oracle, from others."""

    @abstractmethod
    def batches(self) -> Iterator[Batch]:
        """All examples from the beginning."""

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Length of the weight vector."""

    @property
    @abstractmethod
    def exact(self) -> bool:
        """Whether the oracle always finds the most violated cut."""

    def evaluate(
        self, candidates: Sequence[Floats], point: DualPointOfStream, threads: Threads
    ) -> tuple[list[float], float]:
        """Primal value of each of some weights, and dual value of a point, in one pass."""
        evaluation = Evaluation(point, self.n_features)
        hinges = [Hinges(0.0, 0.0)] * len(candidates)
        for first, oracle in self.batches():
            evaluation.add(oracle, first)
            for some in oracle.chunks():
                for k, weights in enumerate(candidates):
                    cuts = oracle.separate(weights, some, threads)
                    hinges[k] += oracle.hinges(cuts, weights, some)
        primals = [
            0.5 * float(weights @ weights) + each.most
            for weights, each in zip(candidates, hinges, strict=True)
        ]
        return primals, evaluation.total


class InMemory(Stream):
    """An oracle in memory as a stream of one batch.

    Parameters
    ----------
    oracle : Oracle
    first : int
        Position of its first example.
    checker : OracleChecker or None
        What has checked the oracle on the examples before, if there were any.
    """

    def __init__(
        self, oracle: Oracle, first: int = 0, checker: OracleChecker | None = None
    ) -> None:
        self.oracle, self.first = oracle, first
        oracle.check_from(first, checker)
        self.checker = oracle.checker

    @property
    def content(self) -> Any:
        return self.oracle.content

    def batches(self) -> Iterator[Batch]:
        yield Batch(self.first, self.oracle)

    @property
    def n_features(self) -> int:
        return self.oracle.n_features

    @property
    def exact(self) -> bool:
        return self.oracle.exact
