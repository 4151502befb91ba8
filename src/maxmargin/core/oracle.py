"""The separation oracle: what solvers see of a problem bound to its training examples.

An oracle call, loss-augmented inference, returns the most violated cutting plane of an example.
Structures with compiled inference bring an oracle of their own; for any other `Problem` there is
`maxmargin.core.python_oracle`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.certificate import DualPoint
from maxmargin.core.cuts import Cuts
from maxmargin.core.oracle_check import OracleChecker
from maxmargin.core.threads import Threads

Floats = NDArray[np.float64]
Order = NDArray[np.int64]


_CHUNK = 1024
"""Blocks whose planes are held at the same time when all of them are valued."""


class Hinges(NamedTuple):
    """What a sum of hinges is at least and at most; the same where searches are exact."""

    least: float
    most: float

    @property
    def middle(self) -> float:
        """The best guess."""
        return 0.5 * (self.least + self.most)

    def __add__(self, other: "Hinges") -> "Hinges":  # type: ignore[override]
        return Hinges(self.least + other.least, self.most + other.most)


class Oracle(ABC):
    """Examples as solvers see them.

    Parameters
    ----------
    n_features : int
    C : ndarray of shape (n_blocks,)
        C of each block.
    """

    n_features: int
    C: Floats
    exact: bool = True
    """Whether `separate` always finds the most violated cut; if not, cuts have a suboptimality."""
    checker: OracleChecker | None = None
    """Looks at the answers of an oracle that a user wrote; None where nobody need."""

    def check_from(self, first: int, checker: OracleChecker | None) -> None:
        """Say how many examples come before, and who looks at them already, if anybody does.

        Examples that come bit by bit are those of one fit, which is warned once.
        """
        if self.checker is not None:
            self.checker = checker or self.checker

    @property
    def n_examples(self) -> int:
        """Number of examples."""
        return len(self.C)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of examples and of features."""
        return self.n_examples, self.n_features

    @abstractmethod
    def separate(self, weights: Floats, examples: Order, threads: Threads) -> Cuts:
        """The most violating plane at `weights` of each of the `examples`."""

    @abstractmethod
    def cuts_of(self, examples: Order, outputs: Sequence[Any]) -> Cuts:
        """Planes of given outputs, made from the data anew."""

    def outputs(self, example: int) -> list[Any]:
        """All outputs of an example, where they are few enough to be listed.

        Raises
        ------
        ValueError
            If they are not.
        """
        raise ValueError(outputs_missing(self))

    @property
    def oracle_name(self) -> str:
        """What to call the search when it fails."""
        return f"the oracle of {type(self).__name__}"

    @property
    def content(self) -> Any:
        """All that tells these examples, and how they are searched, from others."""
        return vars(self)

    @property
    def oracle_state(self) -> Any:
        """What searches remember from one to the next, where that can change what they find."""
        return None

    @oracle_state.setter  # noqa: B027
    def oracle_state(self, state: Any) -> None:
        """Remember that again."""

    @property
    @abstractmethod
    def oracle_work(self) -> float | None:
        """Multiplications of one search, on average; None where nobody can count."""

    def primal(self, weights: Floats, threads: Threads | None = None) -> float:
        """Objective at `weights`, by a search for each block."""
        return 0.5 * float(weights @ weights) + self.all_hinges(weights, threads).most

    def all_hinges(self, weights: Floats, threads: Threads | None = None) -> "Hinges":
        """Bounds of the sum of cost times hinge over all blocks, by a search for each."""
        threads = threads or Threads(1)
        parts = (
            self.hinges(self.separate(weights, some, threads), weights, some)
            for some in self.chunks()
        )
        return sum(parts, Hinges(0.0, 0.0))

    def hinges(self, cuts: Cuts, weights: Floats, examples: Order) -> "Hinges":
        """Bounds of the sum of cost times hinge, by planes found at these weights."""
        C, slopes = self.C[examples], cuts.slopes(weights)
        least = float(C @ np.maximum(slopes, 0.0))
        if cuts.suboptimality is None:
            return Hinges(least, least)
        return Hinges(least, float(C @ np.maximum(slopes + cuts.suboptimality, 0.0)))

    def dual(self, point: Any) -> float:
        """Dual value of a feasible point, with its planes made anew.

        Raises
        ------
        ValueError
            If the point is not feasible.
        """
        if not isinstance(point, DualPoint):
            return float(point.dual(self))
        coef = self.feasible(point).coef
        if not np.allclose(coef, point.coef, rtol=1e-9, atol=0.0):
            raise ValueError("The dual point is not feasible.")
        weights = np.zeros(self.n_features)
        linear = 0.0
        for start in range(0, len(coef), _CHUNK):
            some = slice(start, start + _CHUNK)
            cuts = self.cuts_of(point.examples[some], point.outputs[some])
            weights += cuts.matrix(self.n_features).T @ coef[some]
            linear += float(coef[some] @ cuts.losses)
        return linear - 0.5 * float(weights @ weights)

    def feasible(self, point: DualPoint) -> DualPoint:
        """The point, cut back in blocks where it takes more than their C."""
        if not isinstance(point, DualPoint):
            raise ValueError("The point is no list of outputs with coefficients.")
        coef = np.maximum(point.coef, 0.0)
        used = np.bincount(point.examples, weights=coef, minlength=self.n_examples)
        over = used > self.C
        scale = np.ones(self.n_examples)
        scale[over] = self.C[over] / used[over]
        return point._replace(coef=coef * scale[point.examples])

    def chunks(self) -> list[Order]:
        """All blocks, so many at a time as planes may be held at the same time."""
        ends = [*range(0, self.n_examples, _CHUNK), self.n_examples]
        return [np.arange(start, stop, dtype=np.int64) for start, stop in pairwise(ends)]


def outputs_missing(problem: Any) -> str:
    """What to say where outputs are needed that nobody can list."""
    return (
        f"PartialLinearization and ExponentiatedGradient need {type(problem).__name__} to have "
        f"the method outputs(x), the list of all outputs of an input."
    )
