"""Partial linearization (Mohapatra et al., 2016) and exponentiated gradient (Collins et al., 2008).

Objective and dual are those of structured.py, a_iy = C_i p_i(y) with a distribution p_i over the
outputs of every example. With the quadratic term linearised and an entropy added, the maximiser is

    s_i(y) ~ p_i(y) exp((loss_i(y) - <w, psi_i(y)>) / temperature)

A step goes from p_i towards s_i, as far as the dual grows (algorithm 1 of the paper for all
examples, algorithm 2 for one at a time, step size (10)), or all the way (ExponentiatedGradient).
"""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, TypeGuard

from maxmargin.core.arrays import Order
from maxmargin.core.oracle import Hinges, Oracle, Threads
from maxmargin.core.registry import registered
from maxmargin.core.state import Stateful
from maxmargin.dual.marginal import DistributionPoint, MarginalOracle, distributions_of
from maxmargin.dual.working_set import BlockUpdate
from maxmargin.solvers.loop import Stopping
from maxmargin.solvers.structured import BATCHES_PER_PASS, MOST_WORK, StructuredSolver, TrackedRun

SCHEDULED = "scheduled"

FIRST_PASSES = 4
"""Passes of a schedule before the first hot one."""

MOST_HOT = 3
"""Most hot passes in a row."""

COOL, HOT = 0.01, 0.3
"""Temperatures of the first passes and of the first hot one, in units of the mean largest loss."""

RATIO = math.sqrt(2.0)
"""Ratio of a hot temperature to those tried above and below it."""


class Temperatures(Stateful):
    """A constant temperature."""

    def __init__(self, temperature: float) -> None:
        self._temperature = temperature

    @property
    def temperature(self) -> float:
        """The temperature of the next batch."""
        return self._temperature

    def learn(self, gain: float) -> None:
        """Note the growth of the dual by the steps of the last batch."""

    def next_pass(self) -> None:
        """Note the end of a pass."""


class Schedule(Temperatures):
    """Cold and hot passes in turn, with a hot temperature that follows what it gains.

    Cold passes, at temperature zero, find outputs that matter; hot ones share probability out among
    those found, as long as they gain more than the last cold one. Every other batch of a hot pass
    is a little hotter or cooler, and the side that gains more wins. The `unit` is a typical loss.
    """

    state_names = (
        "_temperature", "_hot", "_passes", "_hot_in_a_row", "_gain", "_cold_gain", "_tried",
        "_gains",
    )  # fmt: skip

    def __init__(self, unit: float) -> None:
        super().__init__(COOL * unit)
        self._hot = HOT * unit
        self._passes = 0
        self._hot_in_a_row = 0  # none while the pass is a cold one
        self._gain = self._cold_gain = 0.0
        self._tried = 0
        self._gains = [0.0, 0.0]

    @property
    def temperature(self) -> float:
        if self._hot_in_a_row:
            return self._hot * (RATIO if self._side else 1.0 / RATIO)
        return self._temperature if self._passes < FIRST_PASSES else 0.0

    @property
    def _side(self) -> int:
        """0 for cooler, 1 for hotter, in the order 0 1 1 0 because gains fall within a pass."""
        return (self._tried + 1) // 2 % 2

    def learn(self, gain: float) -> None:
        self._gain += gain
        if self._hot_in_a_row:
            self._gains[self._side] += gain
            self._tried += 1

    def next_pass(self) -> None:
        self._passes += 1
        if self._hot_in_a_row:
            self._choose_side()
            again = self._gain > self._cold_gain and self._hot_in_a_row < MOST_HOT
            self._hot_in_a_row = self._hot_in_a_row + 1 if again else 0
        else:
            self._cold_gain = self._gain
            self._hot_in_a_row = 1 if self._passes >= FIRST_PASSES else 0
        self._gain = 0.0

    def _choose_side(self) -> None:
        if self._tried >= 2:  # with one batch a pass, not before the second hot one
            self._hot *= RATIO if self._gains[1] > self._gains[0] else 1.0 / RATIO
            self._tried = 0
            self._gains = [0.0, 0.0]


class DistributionRun(TrackedRun):
    """A run that keeps a distribution over the outputs of every example."""

    state_names = (*TrackedRun.state_names, "distributions", "temperatures", "_best")

    def __init__(
        self,
        oracle: Oracle,
        stopping: Stopping,
        threads: Threads,
        seed: int,
        solver: "PartialLinearization",
    ) -> None:
        super().__init__(oracle, stopping, threads, seed, solver.averaging)
        self.fixed_step, self.batch_size = solver.fixed_step, solver.batch_size
        scheduled = isinstance(solver.temperature, str)
        temperature = HOT if scheduled else float(solver.temperature)
        self.distributions = distributions_of(oracle, temperature)
        self.temperatures = (
            Schedule(self._mean_largest_loss()) if scheduled else Temperatures(temperature)
        )
        self.weights[:] = self.distributions.expectations()[0]
        if self.average is not None:
            self.average[:] = self.weights
        self._best = (-math.inf, self.distributions.point)
        self._keep_best()

    @property
    def dual(self) -> float:
        return self.distributions.linear - self.half_square

    @property
    def n_cuts(self) -> int:
        return self.distributions.point.n_variables

    def point(self) -> DistributionPoint:
        return self._best[1]

    def resume(self, start: Any) -> None:
        self.distributions.take(start)
        self.weights[:] = self.distributions.expectations()[0]
        self._keep_best()

    def release(self) -> None:
        super().release()
        del self.average, self.distributions

    def looks_done(self) -> bool:
        """Whether the hinges of the last pass make an evaluation worthwhile."""
        primal = self.expected
        return primal - self.dual <= 2.0 * self.stopping.allowed_gap(primal)

    @property
    def share(self) -> int:
        """Examples to update between two looks at the clock and at the temperature."""
        most = max(1, self.oracle.n_examples // BATCHES_PER_PASS)
        each = self.oracle.oracle_work
        return most if each is None else max(1, min(int(MOST_WORK / max(each, 1.0)), most))

    def update(self, order: Order) -> None:
        """Block updates: step towards the proposals of the examples `order`."""
        total = BlockUpdate(0.0, 0.0, 0.0, 0.0)
        size = self.share if self.batch_size == 1 else self.batch_size
        for start in range(0, len(order), size):
            update = self._update(order[start : start + size])
            self.temperatures.learn(update.gain)
            total += update
            if self.stopping.out_of_time:
                break
        seen = order[: start + size]
        if len(seen) == len(order) or math.isinf(self.estimate):
            self.note_hinges(total.loss, seen)
        self._end_pass()

    def _update(self, examples: Order) -> BlockUpdate:
        if self.batch_size > 1:
            self._propose(examples)
            return self.distributions.step(self.weights, self.fixed_step)
        self.calls += len(examples)
        temperature = self.temperatures.temperature
        return self.distributions.update(self.weights, examples, temperature, self.fixed_step)

    def update_together(self) -> None:
        """One step towards the proposals of all examples; offers the weights before it."""
        loss = self._propose(self.everything)
        self.offer(self.weights, Hinges(loss, loss))
        update = self.distributions.step_together(self.weights, self.fixed_step)
        self.temperatures.learn(update.gain)
        self._end_pass()

    def evaluate(self) -> None:
        """Evaluate the candidates until one is good enough."""
        for weights in self.candidates:
            hinges = self.oracle.all_hinges(weights, self.threads)
            self.calls += self.oracle.n_examples
            self.offer(weights, hinges, ends_iteration=True)
            if self.is_done:
                break

    def _propose(self, examples: Order) -> float:
        self.calls += len(examples)
        temperature = self.temperatures.temperature
        return self.distributions.propose(self.weights, examples, temperature, self.threads)

    def _end_pass(self) -> None:
        self.temperatures.next_pass()
        self.snapshot()
        self._keep_best()

    def _keep_best(self) -> None:
        """Keep a copy of the dual point, unless steps are exact and never lower the dual."""
        if self.fixed_step is not None and self.dual > self._best[0]:
            self._best = (self.dual, self.distributions.point.copy())
        self.best_dual = max(self.best_dual, self.dual)

    def _mean_largest_loss(self) -> float:
        """Mean hinge at zero weights."""
        hinges = self.oracle.all_hinges(self.weights, self.threads)
        self.calls += self.oracle.n_examples
        self.offer(self.weights, hinges)
        return hinges.most / max(float(self.oracle.C.sum()), 1e-300) or 1.0


@registered("PartialLinearization")
@dataclass(frozen=True, kw_only=True)
class PartialLinearization(StructuredSolver):
    """Partial linearization of the dual (Mohapatra et al., 2016).

    A step leads from the distribution over an example's outputs towards the same one reweighted by
    ``exp((loss - <w, psi>) / temperature)``, as far as the dual grows. The problem must list its
    outputs (``outputs(x)``); chains of order one and graphs of exact inference keep marginals of
    their cliques instead, ``n_labels ** 2`` numbers a position, or an edge of a tree.

    Parameters
    ----------
    block : bool, default=True
        One step for each example, or one for all of them.
    temperature : float or "scheduled", default="scheduled"
        In units of the loss; zero is `FrankWolfe`. "scheduled" makes cold and hot passes in turn
        and finds out how hot they should be.
    averaging : bool, default=True
        Also try the average of the weights as the answer: its test error falls early.
    evaluate_every : int, default=10
        Passes between evaluations of the weights, if `block`; each costs one or two more passes.
    batch_size : int, default=1
        Proposals made at the same weights. More let threads share them out, but a step towards an
        old proposal gains less.

    See Also
    --------
    FrankWolfe, ExponentiatedGradient, Auto

    Examples
    --------
    >>> import maxmargin as mm
    >>> X = [[[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0]]]
    >>> y = [["b", "a"], ["a", "a"], ["b"]]
    >>> solver = mm.PartialLinearization(temperature=0.1)
    >>> tagger = mm.SequenceTagger(C=10.0, solver=solver).fit(X, y)
    >>> [labels.tolist() for labels in tagger.predict(X)]
    [['b', 'a'], ['a', 'a'], ['b']]
    """

    block: bool = True
    temperature: float | str = SCHEDULED
    averaging: bool = True
    evaluate_every: int = 10
    batch_size: int = 1

    fixed_step: ClassVar[float | None] = None
    """Length of all steps; None makes exact ones."""

    def __post_init__(self) -> None:
        known = self.temperature == SCHEDULED
        if not (known or (_is_number(self.temperature) and self.temperature >= 0.0)):
            raise ValueError(
                f'temperature must be "scheduled" or a number that is not negative, but is '
                f"{self.temperature!r}."
            )

    def check(self, oracle: Any) -> None:
        """Refuse an oracle that has no marginals and cannot list its outputs."""
        super().check(oracle)
        if not isinstance(oracle, MarginalOracle):
            oracle.outputs(0)

    def start(
        self, oracle: Oracle, stopping: Stopping, threads: Threads, seed: int
    ) -> DistributionRun:
        return DistributionRun(oracle, stopping, threads, seed, self)

    def iterate(self, run: DistributionRun) -> None:
        if not self.block:
            run.update_together()
            return
        run.update(run.shuffled)
        if run.iterations_due(self.evaluate_every) or run.looks_done():
            run.evaluate()


@registered("ExponentiatedGradient")
@dataclass(frozen=True, kw_only=True)
class ExponentiatedGradient(PartialLinearization):
    """Exponentiated gradient on the dual (Collins et al., 2008).

    `PartialLinearization` with steps of length one. The dual falls where the temperature, one over
    the learning rate, is too low for C and the features; the best dual point is kept.

    Parameters
    ----------
    block : bool, default=True
        One step for each example, or one for all of them.
    temperature : float, default=1.0
        In units of the loss.
    averaging : bool, default=True
        Also try the average of the weights as the answer: its test error falls early.
    evaluate_every : int, default=10
        Passes between evaluations of the weights, if `block`; each costs one or two more passes.
    batch_size : int, default=1
        Proposals made at the same weights. More let threads share them out, but ask for a higher
        temperature.

    See Also
    --------
    PartialLinearization, Auto

    Examples
    --------
    >>> import maxmargin as mm
    >>> X, y = [[[0.0, 1.0], [1.0, 0.0]], [[0.0, 1.0]]], [["b", "a"], ["b"]]
    >>> solver = mm.ExponentiatedGradient(temperature=2.0)
    >>> tagger = mm.SequenceTagger(C=1.0, solver=solver).fit(X, y)
    >>> [labels.tolist() for labels in tagger.predict(X)]
    [['b', 'a'], ['b']]
    """

    temperature: float = 1.0

    fixed_step: ClassVar[float | None] = 1.0

    def __post_init__(self) -> None:
        if not (_is_number(self.temperature) and self.temperature > 0.0):
            raise ValueError(f"temperature must be a positive number, but is {self.temperature!r}.")


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, Real) and math.isfinite(value)
