"""A probability for every output, where a problem can list them."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.compiled.cuts import add_cut, add_cuts, cut_product
from maxmargin.compiled.reweighting import reweight
from maxmargin.core.certificate import DualPoint
from maxmargin.core.cuts import Cuts
from maxmargin.core.oracle import Oracle
from maxmargin.core.python_oracle import PythonOracle
from maxmargin.core.registry import registered
from maxmargin.dual.marginal import (
    Distributions,
    FlatDistributions,
    FlatPoint,
    Move,
    mix,
    old_and_new,
    starts_of,
    step_size,
)

Floats = NDArray[np.float64]
Order = NDArray[np.int64]


@registered("ExplicitPoint")
@dataclass(frozen=True, eq=False)
class ExplicitPoint(FlatPoint):
    """A probability for every output of every example.

    Parameters
    ----------
    mass : ndarray of shape (n_outputs_of_all,)
    examples : ndarray of int64, shape (n_outputs_of_all,)
        The example that each output is of, in rising order.
    outputs : list
    """

    examples: Order
    outputs: list[Any]

    def is_like(self, other: FlatPoint) -> bool:
        return isinstance(other, ExplicitPoint) and np.array_equal(other.examples, self.examples)

    def dual(self, oracle: Oracle) -> float:
        used = np.flatnonzero(self.mass)
        examples = self.examples[used]
        coef = oracle.C[examples] * self.mass[used]
        return oracle.dual(DualPoint(examples, coef, [self.outputs[j] for j in used.tolist()]))


class _Data(NamedTuple):
    """Planes of all outputs: block ``b`` has the planes ``first[b]:first[b + 1]``."""

    first: Order
    starts: Order
    columns: NDArray[np.uint32]
    values: Floats
    losses: Floats
    totals: Floats


class ExplicitDistributions(FlatDistributions):
    """A probability for every output of every example, and the planes of all outputs.

    Parameters
    ----------
    oracle : TrainingSet
    outputs : list of lists
        All outputs of each example; the truth is added where it is missing.
    temperature : float
        Whether it is zero decides on the start.
    """

    oracle: Oracle
    point: ExplicitPoint

    def __init__(self, oracle: Oracle, outputs: list[list[Any]], temperature: float) -> None:
        found = [_cuts_of_all(oracle, b, listed) for b, listed in enumerate(outputs)]
        parts = [cuts for cuts, _ in found]
        sizes = np.array([len(cuts.losses) for cuts in parts])
        point = ExplicitPoint(
            mass=np.repeat(1.0 / sizes, sizes),
            examples=np.repeat(np.arange(oracle.n_examples), sizes),
            outputs=[output for cuts in parts for output in cuts.outputs],
        )
        super().__init__(oracle, point, sizes)
        self._data = _Data(
            first=self._first,
            starts=starts_of(np.concatenate([np.diff(cuts.starts) for cuts in parts])),
            columns=np.concatenate([cuts.columns for cuts in parts]),
            values=np.concatenate([cuts.values for cuts in parts]),
            losses=np.concatenate([cuts.losses for cuts in parts]),
            totals=oracle.C,
        )
        self._of_y_true = self._data.first[:-1] + [y_true for _, y_true in found]
        self._scratch = np.zeros(oracle.n_features)
        self._start(temperature)

    def expectations(self) -> tuple[Floats, float]:
        data, weights = self._data, np.zeros(self.oracle.n_features)
        coef = data.totals[self.point.examples] * self.point.mass
        add_cuts(data.starts, data.columns, data.values, coef, weights)
        return weights, float(coef @ data.losses)

    def _give_to_true_output(self, kept: float) -> None:
        self.point.mass[:] *= kept
        self.point.mass[self._of_y_true] += 1.0 - kept

    def _move(self, move: Move, part: slice, weights: Floats) -> tuple[float, float, float]:
        moved: tuple[float, float, float] = move_explicit(
            self._data, self.point.mass, self._proposals, part.start, part.stop, move, weights,
            self._scratch,
        )  # fmt: skip
        return moved

    def _add_direction(self, direction: Floats) -> float:
        return float(add_all_explicit(self._data, self.point.mass, self._proposals, direction))


def _cuts_of_all(oracle: Oracle, b: int, outputs: list[Any]) -> tuple[Cuts, int]:
    """Planes of all outputs of example `b`, and which of them is the truth's.

    That is one without entries or loss, because outputs need not be comparable. A problem in plain
    Python may leave it out.
    """
    cuts = oracle.cuts_of(np.full(len(outputs), b), outputs)
    zero = np.flatnonzero((np.diff(cuts.starts) == 0) & (cuts.losses == 0.0))
    if len(zero) or not isinstance(oracle, PythonOracle):
        return cuts, int(zero[0])
    outputs = [*outputs, oracle.Y[b]]
    return oracle.cuts_of(np.full(len(outputs), b), outputs), len(outputs) - 1


@inlined
def propose_example(data, b, old, temperature, weights, new):  # type: ignore[no-untyped-def]
    """Set the distribution to go towards; returns the hinge and the mean slope."""
    first = data.first[b]
    mean = 0.0
    best = 0
    for j in range(len(old)):
        start, stop = data.starts[first + j], data.starts[first + j + 1]
        product = cut_product(start, stop, data.columns, data.values, weights)
        new[j] = data.losses[first + j] - product
        mean += old[j] * new[j]
        if new[j] > new[best]:
            best = j
    hinge = new[best]
    if temperature > 0.0:
        reweight(old, 1.0 / temperature, new)
    else:
        new[:] = 0.0
        new[best] = 1.0
    return hinge, mean


@compiled
def add_change(data, b, old, new, step, vector):  # type: ignore[no-untyped-def]
    """Add what a step changes the weights by; returns the change of the linear term."""
    linear = 0.0
    for j in range(len(old)):
        p = data.first[b] + j
        change = step * data.totals[b] * (new[j] - old[j])
        linear += change * data.losses[p]
        add_cut(data.starts[p], data.starts[p + 1], data.columns, data.values, change, vector)
    return linear


@inlined
def measure_and_clear(data, start, stop, direction, weights):  # type: ignore[no-untyped-def]
    """Product of a direction with the weights and with itself; it is zero afterwards."""
    product = square = 0.0
    for q in range(start, stop):
        # Each column counts once: from then on it is zero.
        entry = direction[data.columns[q]]
        direction[data.columns[q]] = 0.0
        product += entry * weights[data.columns[q]]
        square += entry * entry
    return product, square


@compiled
def move_explicit(data, mass, found, first, last, move, weights, scratch):  # type: ignore[no-untyped-def]
    """See `Distributions._move`. Scratch: a vector of zeros, also afterwards."""
    gain = linear = 0.0
    work = 0
    for k in range(first, last):
        b = found.examples[k]
        old, new = old_and_new(data.first, mass, found, k)
        if move.proposes:
            found.hinges[k], found.values[k] = propose_example(
                data, b, old, move.temperature, weights, new
            )
        if move.steps:
            start, stop = data.starts[data.first[b]], data.starts[data.first[b + 1]]
            whole = add_change(data, b, old, new, 1.0, scratch)
            product, square = measure_and_clear(data, start, stop, scratch, weights)
            slope = whole - product
            step = step_size(move, slope, square)
            if step > 0.0:
                add_change(data, b, old, new, step, weights)
                mix(old, new, step)
            gain += step * (slope - 0.5 * step * square)
            linear += step * whole
            work += 4 * (stop - start)
    return gain, linear, work


@compiled
def add_all_explicit(data, mass, found, direction):  # type: ignore[no-untyped-def]
    """See `Distributions._add_direction`."""
    linear = 0.0
    for k in range(len(found.examples)):
        old, new = old_and_new(data.first, mass, found, k)
        linear += add_change(data, found.examples[k], old, new, 1.0, direction)
    return linear


@runtime_checkable
class MarginalOracle(Protocol):
    """An oracle with distributions of its own: it has the marginals of its outputs."""

    def distributions(self, temperature: float) -> Distributions:
        """Distributions to start from, see `distributions_of`."""


def distributions_of(oracle: Oracle, temperature: float) -> Distributions:
    """Distributions to start from: the true output or, with a temperature, close to it.

    Raises
    ------
    ValueError
        If the oracle has no marginals, and cannot list its outputs.
    """
    if isinstance(oracle, MarginalOracle):
        return oracle.distributions(temperature)
    outputs = [oracle.outputs(i) for i in range(oracle.n_examples)]
    return ExplicitDistributions(oracle, outputs, temperature)
