"""What distributions can do, however they are kept."""

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from maxmargin.dual.conforming import check_finite
from maxmargin.dual.state import Stateful
from maxmargin.dual.working_set import Visit
from maxmargin.engines.threads import Threads
from maxmargin.problems.distributions.steps import LINE_SEARCH, LONGEST, Move, best_step, step_size

Floats = NDArray[np.float64]
Order = NDArray[np.int64]


class DistributionPoint(ABC):
    """A distribution over the outputs of every block: numbers, without the data they are for.

    So what is kept for a warm start does not keep the data.
    """

    @property
    @abstractmethod
    def n_variables(self) -> int:
        """Probabilities kept."""

    @abstractmethod
    def copy(self) -> Self:
        """The distributions of this moment."""

    @abstractmethod
    def dual(self, training: Any) -> float:
        """Dual value, from the distributions and the data alone.

        Raises
        ------
        ValueError
            If these are no distributions over the outputs of the training set.
        """


class Distributions(Stateful, ABC):
    """A distribution over the outputs of every block, and moves that improve it.

    A start at temperature zero has all probability on the truth, and so weights of zero. At any
    other temperature every output must have some, because proposals only reweight what is there:
    one exact step leads from the truth towards all outputs alike. How far depends on C, and a
    share that is fixed instead is now so large that the dual starts far below zero, now so small
    that it takes many passes to grow.

    Parameters
    ----------
    training : TrainingSet

    Attributes
    ----------
    point : DistributionPoint
        The distributions; moves change it in place.
    linear : float
        ``sum_b C_b E[loss]``, the dual's linear term, as kept up by the steps.
    """

    state_names = ("point", "linear")

    point: DistributionPoint

    def __init__(self, training: Any) -> None:
        self.training = training
        self.linear = 0.0
        self._proposals: Any = None
        self._temperature = 0.0

    def check_state(self) -> None:
        """Refuse probabilities that are not finite."""
        for name, value in vars(self.point).items():
            if isinstance(value, np.ndarray) and value.dtype.kind == "f":
                check_finite(name, value)

    @abstractmethod
    def expectations(self) -> tuple[Floats, float]:
        """The weights and the linear term of the dual that belong to the distributions."""

    def take(self, start: Any) -> None:
        """Take over the distributions of an earlier solve.

        Raises
        ------
        ValueError
            If they are of another kind or shape.
        """
        if not self._fits(start):
            raise ValueError("The start is no distribution over the outputs of these examples.")
        self._set(start)
        self.linear = self.expectations()[1]

    def propose(
        self, weights: Floats, blocks: Order, temperature: float, threads: Threads
    ) -> float:
        """Find for each of the `blocks` the distribution to go towards, and keep it for a step.

        Parameters
        ----------
        weights : ndarray of shape (n_features,)
        blocks : ndarray of int64
            Without repeats.
        temperature : float
            In units of the loss. At zero, all probability is on the most violating output.
        threads : Threads

        Returns
        -------
        loss : float
            Sum over the blocks of cost times hinge at `weights`.
        """
        found = self._proposals = self._room(blocks, for_all=True)
        self._temperature = temperature
        move = Move(True, False, temperature, LINE_SEARCH)
        parts = threads.shares(len(blocks))
        threads.map(lambda part: self._move(move, part, weights), parts)
        return float(self.training.cost[blocks] @ found.hinges)

    def step(self, weights: Floats, fixed_step: float | None = None) -> Visit:
        """Step towards the proposals, one block after the other.

        Parameters
        ----------
        weights : ndarray of shape (n_features,)
            The weights of the present distributions; updated.
        fixed_step : float or None
            None makes the step that increases the dual most.

        Returns
        -------
        visit : Visit
            Its gap and loss are those at the weights of the proposals.
        """
        return self._move_all(self._step_of(fixed_step), weights)

    def visit(
        self, weights: Floats, blocks: Order, temperature: float, fixed_step: float | None = None
    ) -> Visit:
        """`propose` and `step` for one block after the other, each at weights up to date."""
        self._proposals = self._room(blocks, for_all=False)
        self._temperature = temperature
        return self._move_all(self._step_of(fixed_step)._replace(proposes=True), weights)

    def step_together(self, weights: Floats, fixed_step: float | None = None) -> Visit:
        """Step towards the proposals with one step size for all; otherwise the same."""
        direction = np.zeros_like(weights)
        linear = self._add_direction(direction)
        slope = linear - float(weights @ direction)
        square = float(direction @ direction)
        step = step_size(self._step_of(fixed_step), slope, square)
        self._mix(step)
        weights += step * direction
        return self._moved(step * (slope - 0.5 * step * square), step * linear, weights.size)

    def _step_of(self, fixed_step: float | None) -> Move:
        """A step towards the proposals there are."""
        size = LINE_SEARCH if fixed_step is None else fixed_step
        return Move(False, True, self._temperature, size)

    def _move_all(self, move: Move, weights: Floats) -> Visit:
        return self._moved(*self._move(move, slice(0, len(self._proposals.blocks)), weights))

    def _moved(self, gain: float, linear: float, work: float) -> Visit:
        """Bring the linear term up to date; proposals are used up."""
        found, self._proposals = self._proposals, None
        self.linear += linear
        cost = self.training.cost[found.blocks]
        gap = float(cost @ (found.hinges - found.values))
        return Visit(gain, gap, float(cost @ found.hinges), work)

    def _start(self, temperature: float) -> None:
        """From all outputs alike, which the point must be, to where a solve starts."""
        share = 0.0
        if temperature > 0.0:
            weights, linear = self.expectations()
            share = float(best_step(linear, float(weights @ weights), LONGEST))
        self._give_to_truth(share)
        self.linear = self.expectations()[1]

    @abstractmethod
    def _give_to_truth(self, kept: float) -> None:
        """Keep a share of every probability, and give the rest to the truth."""

    @abstractmethod
    def _fits(self, start: Any) -> bool:
        """Whether it is a point of the same kind and shape."""

    @abstractmethod
    def _set(self, start: Any) -> None:
        """Copy the numbers of a point that fits."""

    @abstractmethod
    def _room(self, blocks: Order, for_all: bool) -> Any:
        """Proposals to be filled in, side by side or one in the place of the other."""

    @abstractmethod
    def _move(self, move: Move, part: slice, weights: Floats) -> tuple[float, float, float]:
        """Make a move with the blocks of a part of the proposals, one by one.

        Returns the gain, the change of the linear term, and the work of the steps.
        """

    @abstractmethod
    def _add_direction(self, direction: Floats) -> float:
        """Add what a whole step would change the weights by; returns that of the linear term."""

    @abstractmethod
    def _mix(self, step: float) -> None:
        """Move all that were proposed by the same step."""
