"""Distributions over the outputs of every example: the dual points of partial linearization.

The dual maximises ``D = sum_i C_i E_p[loss] - 1/2 |w|^2`` with ``w = sum_i C_i E_p[psi]`` over a
distribution ``p`` for every example ``i``. Mohapatra et al. (2016) step from ``p`` towards
``s ~ p * exp((loss - <w, psi>) / temperature)``. Kept are the probabilities of all outputs, where
these are few, or the marginals of cliques, for which ``p`` is the distribution of most entropy. A
structure with marginals has a `MarginalPoint`, and `Distributions` with compiled steps.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.compiled.exponentials import reweight
from maxmargin.compiled.rows import add_cuts, add_row_multiple, add_scattered, gathered_product
from maxmargin.core.arrays import Floats, Order, check_finite, dot
from maxmargin.core.certificate import DualPoint
from maxmargin.core.cuts import Cuts, starts_of
from maxmargin.core.oracle import Oracle, Threads
from maxmargin.core.python_oracle import PythonOracle
from maxmargin.core.registry import registered
from maxmargin.core.state import Stateful
from maxmargin.dual.working_set import BlockUpdate

LONGEST = 1.0 - float(np.finfo(np.float64).eps)
"""Longest step at a temperature above zero: every output keeps some probability."""

LINE_SEARCH = -1.0
"""Step size that asks compiled routines for the best one."""

TOLERANCE = 1e-9
"""Error that is allowed in sums of probabilities."""

CHUNK = 2**20


class Move(NamedTuple):
    """What a compiled routine does with each example: propose at a temperature, step, or both.

    If neither, it adds the change of the weights by a whole step to what is given as the weights.
    """

    proposes: bool
    steps: bool
    temperature: float
    fixed_step: float  # or LINE_SEARCH


class Proposals(NamedTuple):
    """What is proposed for example ``examples[k]`` stands in ``masses[i]`` from ``at[i][k]`` on."""

    examples: Order
    at: tuple[Order, ...]
    masses: tuple[Floats, ...]
    hinges: Floats
    values: Floats


class DistributionPoint(ABC):
    """A distribution over the outputs of every example, without the data: kept for a warm start."""

    mass_names: ClassVar[tuple[str, ...]] = ("mass",)
    """Arrays of probabilities, in each of which those of an example are contiguous."""

    @property
    def masses(self) -> tuple[Floats, ...]:
        return tuple(getattr(self, name).reshape(-1) for name in self.mass_names)

    @property
    def n_variables(self) -> int:
        return sum(map(len, self.masses))

    def copy(self) -> Self:
        copies = {name: getattr(self, name).copy() for name in self.mass_names}
        return replace(self, **copies)  # type: ignore[type-var]

    @abstractmethod
    def is_like(self, other: Any) -> bool:
        """Whether the probabilities of another point are of the same outputs."""

    @abstractmethod
    def dual(self, oracle: Any) -> float:
        """Dual value, from the distributions and the data alone; ValueError if infeasible."""


class MarginalPoint(DistributionPoint):
    """Marginal probabilities of the labels of cliques."""

    @abstractmethod
    def is_feasible(self, oracle: Any) -> bool:
        """Whether these are distributions over the outputs of the oracle."""

    @abstractmethod
    def expectations(self, oracle: Any) -> tuple[Floats, float]:
        """Weights and linear term of the dual."""

    def dual(self, oracle: Any) -> float:
        if not self.is_feasible(oracle):
            raise ValueError("The dual point is not feasible.")
        weights, linear = self.expectations(oracle)
        return linear - 0.5 * dot(weights, weights)


class Distributions(Stateful, ABC):
    """A distribution over the outputs of every example, and steps that improve it.

    `point` is uniform at first, `sizes` are the numbers of each example in each of its masses, and
    `data` is what the compiled `move_examples` takes. A solve starts from the true outputs; at a
    temperature above zero one exact step towards the uniform distributions follows, because
    proposals only reweight what has some probability.
    """

    state_names = ("point", "linear")

    move_examples: ClassVar[Callable[..., tuple[float, float, float]]]
    """Makes a `Move` with some examples; returns gain, change of the linear term, and work."""

    point: DistributionPoint

    def __init__(
        self,
        oracle: Any,
        point: DistributionPoint,
        data: Any,
        sizes: tuple[Order, ...],
        temperature: float,
    ) -> None:
        self.oracle, self.point, self._data = oracle, point, data
        self._sizes, self._first = sizes, tuple(map(starts_of, sizes))
        self._proposals: Any = None
        self._temperature = 0.0
        self._direction = self._table(np.zeros(oracle.n_features))
        """Zero between steps, and so is ``_touched[1]``."""
        self._touched = np.zeros((2, len(self._direction)), dtype=np.int64)
        share = 0.0
        if temperature > 0.0:
            weights, linear = self.expectations()
            share = float(best_step(linear, dot(weights, weights), LONGEST))
        for mass, places in zip(point.masses, self._true_places(), strict=True):
            mass *= share
            mass[places] += 1.0 - share
        self.linear = self.expectations()[1]

    def check_state(self) -> None:
        for name, value in vars(self.point).items():
            if isinstance(value, np.ndarray) and value.dtype.kind == "f":
                check_finite(name, value)

    def expectations(self) -> tuple[Floats, float]:
        """Weights and linear term of the dual."""
        assert isinstance(self.point, MarginalPoint)
        return self.point.expectations(self.oracle)

    def take(self, start: Any) -> None:
        """Start from distributions of an earlier solve; ValueError if they are of another kind."""
        if type(start) is not type(self.point) or not self.point.is_like(start):
            raise ValueError("The start is no distribution over the outputs of these examples.")
        for own, other in zip(self.point.masses, start.masses, strict=True):
            own[:] = other
        self.linear = self.expectations()[1]

    def propose(
        self, weights: Floats, examples: Order, temperature: float, threads: Threads
    ) -> float:
        """Find what to step towards, for examples without repeats; returns C times hinge.

        The temperature is in units of the loss; at zero all probability is on the most violating
        output.
        """
        found = self._proposals = self._room(examples, for_all=True)
        self._temperature = temperature
        move = Move(True, False, temperature, LINE_SEARCH)
        parts = threads.shares(len(examples))
        threads.map(lambda part: self._move(move, weights, part), parts)
        return float(self.oracle.C[examples] @ found.hinges)

    def step(self, weights: Floats, fixed_step: float | None = None) -> BlockUpdate:
        """Step towards the proposals, one example after the other; None is an exact line search."""
        return self._moved(*self._move(self._step_of(fixed_step), weights))

    def update(
        self, weights: Floats, examples: Order, temperature: float, fixed_step: float | None = None
    ) -> BlockUpdate:
        """`propose` and `step` for one example after the other, each at the latest weights."""
        self._proposals = self._room(examples, for_all=False)
        self._temperature = temperature
        move = self._step_of(fixed_step)._replace(proposes=True)
        return self._moved(*self._move(move, weights))

    def step_together(self, weights: Floats, fixed_step: float | None = None) -> BlockUpdate:
        """Step towards the proposals with one step size for all."""
        direction = np.zeros_like(weights)
        linear = self._add_direction(direction)
        slope = linear - dot(weights, direction)
        square = float(direction @ direction)
        step = step_size(self._step_of(fixed_step), slope, square)
        mix_all(self._first, self.point.masses, self._proposals, step)
        weights += step * direction
        return self._moved(step * (slope - 0.5 * step * square), step * linear, weights.size)

    def _step_of(self, fixed_step: float | None) -> Move:
        size = LINE_SEARCH if fixed_step is None else fixed_step
        return Move(False, True, self._temperature, size)

    def _add_direction(self, direction: Floats) -> float:
        """Add the change of the weights by a whole step; returns that of the linear term."""
        return self._move(Move(False, False, 0.0, LINE_SEARCH), direction)[1]

    def _move(
        self, move: Move, weights: Floats, part: slice | None = None
    ) -> tuple[float, float, float]:
        """Make a `Move` with all examples of the proposals, or some."""
        found = self._proposals
        first, last = (part.start, part.stop) if part else (0, len(found.examples))
        return self.move_examples(
            self._data, self._first, self.point.masses, found, first, last,
            move, self._table(weights), self._scratch(),
        )  # fmt: skip

    def _moved(self, gain: float, linear: float, work: float) -> BlockUpdate:
        """Update the linear term, and forget the proposals."""
        found, self._proposals = self._proposals, None
        self.linear += linear
        cost = self.oracle.C[found.examples]
        gap = float(cost @ (found.hinges - found.values))
        return BlockUpdate(gain, gap, float(cost @ found.hinges), work)

    def _room(self, examples: Order, for_all: bool) -> Proposals:
        """Arrays for proposals, contiguous or (not `for_all`) all in the same place."""
        at, masses = [], []
        for sizes in self._sizes:
            starts = starts_of(sizes[examples])
            at.append(starts[:-1] if for_all else np.zeros_like(examples))
            room = starts[-1] if for_all else sizes[examples].max(initial=0)
            masses.append(np.empty(int(room)))
        return Proposals(examples, tuple(at), tuple(masses), *np.empty((2, len(examples))))

    @abstractmethod
    def _true_places(self) -> tuple[Order, ...]:
        """Where the probabilities of the true outputs are in each mass."""

    @abstractmethod
    def _scratch(self) -> Any:
        """Scratch of one thread for `move_examples`."""

    def _table(self, weights: Floats) -> Floats:
        """The weights in the shape that `move_examples` takes."""
        table: Floats = self.oracle.layout.table(weights)
        return table


@inlined
def best_step(slope, square, longest):  # type: ignore[no-untyped-def]
    """The step in [0, longest] with the largest ``slope * step - 1/2 square * step^2``."""
    if square * longest > slope:
        return max(slope / square, 0.0)
    return longest if slope > 0.0 else 0.0


@inlined
def step_size(move, slope, square):  # type: ignore[no-untyped-def]
    """Step size of a `Move` that gains ``slope * step - 1/2 square * step^2``."""
    if move.fixed_step >= 0.0:
        return move.fixed_step
    return best_step(slope, square, LONGEST if move.temperature > 0.0 else 1.0)


@inlined
def old_and_new(first, masses, found, i, k):  # type: ignore[no-untyped-def]
    """Probabilities of example ``examples[k]`` in mass `i`, and the proposed ones."""
    b = found.examples[k]
    old = masses[i][first[i][b] : first[i][b + 1]]
    return old, found.masses[i][found.at[i][k] : found.at[i][k] + len(old)]


@compiled
def mix(old, new, step):  # type: ignore[no-untyped-def]
    """``old = (1 - step) * old + step * new``, exact but for the last digit, however small.

    The maximum keeps LLVM from ``old + step * (new - old)``, which rounds in units of the larger.
    """
    for j in range(len(old)):
        old[j] = max(1.0 - step, 0.0) * old[j] + step * new[j]


@inlined
def mix_example(first, masses, found, k, step):  # type: ignore[no-untyped-def]
    """Step with example ``examples[k]`` towards its proposal."""
    for i in range(len(masses)):
        old, new = old_and_new(first, masses, found, i, k)
        mix(old, new, step)


@compiled
def mix_all(first, masses, found, step):  # type: ignore[no-untyped-def]
    """Step towards all proposals alike."""
    for k in range(len(found.examples)):
        mix_example(first, masses, found, k, step)


@inlined
def touch(row, touched, count):  # type: ignore[no-untyped-def]
    """Enter a row once in the list ``touched[0]``; returns how many there are."""
    if touched[1, row] == 0:
        touched[1, row] = 1
        touched[0, count] = row
        count += 1
    return count


@inlined
def touch_features(rows, i, touched, count):  # type: ignore[no-untyped-def]
    """Enter the rows of the weight table for the features of row `i`."""
    start = rows.starts[i]
    for q in range(start, rows.starts[i + 1]):
        column = rows.columns[q if rows.indexed else q - start]
        count = touch(np.int64(column), touched, count)
    return count


@inlined
def measure_products(direction, weights):  # type: ignore[no-untyped-def]
    """Inner products of a direction with weights and with itself."""
    product = square = 0.0
    for m in range(len(direction)):
        product += direction[m] * weights[m]
        square += direction[m] * direction[m]
    return product, square


@compiled
def measure_rows(direction, table, touched, count):  # type: ignore[no-untyped-def]
    """`measure_products` over the rows touched."""
    product = square = 0.0
    for c in range(count):
        row = touched[0, c]
        row_product, row_square = measure_products(direction[row], table[row])
        product += row_product
        square += row_square
    return product, square


@inlined
def step_along(move, whole, direction, table, touched, count):  # type: ignore[no-untyped-def]
    """Step along a direction that changes the linear term by `whole`, and set it to zero.

    Returns the step size, and slope and square of `step_size`.
    """
    product, square = measure_rows(direction, table, touched, count)
    slope = whole - product
    step = step_size(move, slope, square)
    move_and_clear(direction, step, table, touched, count)
    return step, slope, square


@compiled
def move_and_clear(direction, step, table, touched, count):  # type: ignore[no-untyped-def]
    """Make a step, and set the direction to zero."""
    for c in range(count):
        row = touched[0, c]
        touched[1, row] = 0
        for m in range(table.shape[1]):
            table[row, m] += step * direction[row, m]
            direction[row, m] = 0.0


@compiled
def add_node_changes(rows, bias, first, changes, n_nodes, table):  # type: ignore[no-untyped-def]
    """Add the features of the rows from `first` on, and the bias if any, times `changes`."""
    for v in range(n_nodes):
        add_row_multiple(rows, first + v, changes[v], table)
        if bias >= 0:
            for m in range(table.shape[1]):
                table[bias, m] += changes[v, m]


def add_expected(
    X: Any, marginals: Floats, y_true: NDArray[np.integer], C: Floats, table: Any, bias: Any
) -> None:
    """Add ``C * X' (true - marginals)`` to the weights in `table` and `bias`, unless None.

    A row of `X` is a position or pair. The difference comes first: where all probability is on the
    true output, weights are exactly zero, and rounding does not decide between equally good
    outputs.
    """
    for some in chunks_of(marginals):
        changes = -marginals[some]
        changes[np.arange(len(changes)), y_true[some]] += 1.0
        changes *= C[some][:, None]
        if table is not None:
            table += X[some].T @ changes
        if bias is not None:
            bias += changes.sum(axis=0)


def expected_loss(marginals: Floats, y_true: NDArray[np.integer], loss: Floats, C: Floats) -> float:
    """Sum over the positions of C times the expectation of ``loss[true label]``."""
    total = 0.0
    for some in chunks_of(marginals):
        total += float(C[some] @ (loss[y_true[some]] * marginals[some]).sum(axis=1))
    return total


def chunks_of(rows: Floats) -> Iterator[slice]:
    """Slices of some rows of a table at a time."""
    size = max(1, CHUNK // rows.shape[1])
    return (slice(start, start + size) for start in range(0, len(rows), size))


@registered("ExplicitPoint")
@dataclass(frozen=True, eq=False)
class ExplicitPoint(DistributionPoint):
    """A probability for every output; `examples` are in ascending order."""

    mass: Floats
    examples: Order
    outputs: list[Any]

    def is_like(self, other: Any) -> bool:
        return np.array_equal(other.examples, self.examples)

    def dual(self, oracle: Oracle) -> float:
        used = np.flatnonzero(self.mass)
        examples = self.examples[used]
        coef = oracle.C[examples] * self.mass[used]
        return oracle.dual(DualPoint(examples, coef, [self.outputs[j] for j in used.tolist()]))


class _Data(NamedTuple):
    """Cuts of all outputs: example ``b`` has the cuts ``first[b]:first[b + 1]``."""

    first: Order
    starts: Order
    columns: NDArray[np.uint32]
    values: Floats
    losses: Floats
    totals: Floats


@inlined
def propose_example(data, b, old, temperature, weights, new):  # type: ignore[no-untyped-def]
    """Set the distribution to step towards; returns the hinge and the mean slope."""
    first = data.first[b]
    mean = 0.0
    best = 0
    for j in range(len(old)):
        start, stop = data.starts[first + j], data.starts[first + j + 1]
        product = gathered_product(start, stop, data.columns, data.values, weights)
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
    """Add the change of the weights by a step; returns that of the linear term."""
    linear = 0.0
    for j in range(len(old)):
        p = data.first[b] + j
        change = step * data.totals[b] * (new[j] - old[j])
        linear += change * data.losses[p]
        add_scattered(data.starts[p], data.starts[p + 1], data.columns, data.values, vector, change)
    return linear


@inlined
def measure_and_clear(data, start, stop, direction, weights):  # type: ignore[no-untyped-def]
    """Inner products of a direction with the weights and with itself; sets it to zero."""
    product = square = 0.0
    for q in range(start, stop):
        # Each column counts once: from then on it is zero.
        entry = direction[data.columns[q]]
        direction[data.columns[q]] = 0.0
        product += entry * weights[data.columns[q]]
        square += entry * entry
    return product, square


@compiled
def move_explicit(data, starts, masses, found, first, last, move, weights, scratch):  # type: ignore[no-untyped-def]
    """`Distributions.move_examples` on explicit probabilities.

    Parameters
    ----------
    data : _Data
    starts, masses, found : where examples start in each mass, the masses, and Proposals
    first, last : the positions ``first..last-1`` among the proposals
    move : Move
    weights, scratch : ndarrays of shape (n_features,), changed, and zero also afterwards
    """
    gain = linear = 0.0
    work = 0
    for k in range(first, last):
        b = found.examples[k]
        old, new = old_and_new(starts, masses, found, 0, k)
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
        elif not move.proposes:
            linear += add_change(data, b, old, new, 1.0, weights)
    return gain, linear, work


class ExplicitDistributions(Distributions):
    """Probabilities and cuts of all outputs, to which the true one is added where it is missing."""

    move_examples = staticmethod(move_explicit)

    oracle: Oracle
    point: ExplicitPoint

    def __init__(self, oracle: Oracle, outputs: list[list[Any]], temperature: float) -> None:
        found = [_cuts_of_all(oracle, b, listed) for b, listed in enumerate(outputs)]
        sizes = np.array([len(cuts.losses) for cuts, _ in found])
        cuts = Cuts.join([cuts for cuts, _ in found])
        point = ExplicitPoint(
            mass=np.repeat(1.0 / sizes, sizes),
            examples=np.repeat(np.arange(oracle.n_examples), sizes),
            outputs=cuts.outputs,
        )
        first = starts_of(sizes)
        data = _Data(first, cuts.starts, cuts.columns, cuts.values, cuts.losses, oracle.C)
        self._of_y_true = first[:-1] + np.array([y_true for _, y_true in found])
        super().__init__(oracle, point, data, (sizes,), temperature)

    def expectations(self) -> tuple[Floats, float]:
        weights = np.zeros(self.oracle.n_features)
        coef = self.oracle.C[self.point.examples] * self.point.mass
        add_cuts(self._data.starts, self._data.columns, self._data.values, coef, weights)
        return weights, float(coef @ self._data.losses)

    def _true_places(self) -> tuple[Order, ...]:
        return (self._of_y_true,)

    def _table(self, weights: Floats) -> Floats:
        return weights

    def _scratch(self) -> Floats:
        return self._direction


def _cuts_of_all(oracle: Oracle, b: int, outputs: list[Any]) -> tuple[Cuts, int]:
    """Cuts of all outputs of example `b`, and which is true: the one without entries or loss."""
    cuts = oracle.cuts_of(np.full(len(outputs), b), outputs)
    zero = np.flatnonzero((np.diff(cuts.starts) == 0) & (cuts.losses == 0.0))
    if len(zero) or not isinstance(oracle, PythonOracle):
        return cuts, int(zero[0])
    outputs = [*outputs, oracle.Y[b]]
    return oracle.cuts_of(np.full(len(outputs), b), outputs), len(outputs) - 1


@runtime_checkable
class MarginalOracle(Protocol):
    """An oracle that has the marginals of its outputs."""

    def distributions(self, temperature: float) -> Distributions:
        """Initial distributions, see `distributions_of`."""


def distributions_of(oracle: Oracle, temperature: float) -> Distributions:
    """Initial distributions; ValueError without marginals or outputs that can be listed."""
    if isinstance(oracle, MarginalOracle):
        return oracle.distributions(temperature)
    outputs = [oracle.outputs(i) for i in range(oracle.n_examples)]
    return ExplicitDistributions(oracle, outputs, temperature)
