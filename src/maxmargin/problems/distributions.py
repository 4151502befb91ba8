"""Distributions over the outputs of every block: the dual points of partial linearization.

The dual of a structural SVM has, for every block ``b``, a distribution ``p`` over the outputs of
its example. The weights that belong to them and the dual value are

    w = sum_b C_b E_p[psi],        D = sum_b C_b E_p[loss] - 1/2 |w|^2

Mohapatra et al. (2016) move ``p`` towards ``s ~ p * exp((loss - <w, psi>) / temperature)``. There
are two ways to keep a distribution: a number for every output, where these are few, and for chains
the probabilities of labels and of pairs of neighbouring labels. Weights and losses depend on
nothing else, and the logarithm of ``p`` is taken to be the sum of those of the pairs less those of
the inner labels: of all distributions with these probabilities, the one with the most entropy.
"""

import copy
import math
from abc import ABC, abstractmethod
from functools import partial, singledispatch
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.dual.compiled import compiled, inlined
from maxmargin.dual.planes import Planes, add_plane, add_planes, plane_product
from maxmargin.dual.rows import Rows, add_row_multiple, squared_norms
from maxmargin.dual.working_set import DualPoint, Visit
from maxmargin.engines.threads import Threads
from maxmargin.inference.chains import marginals_along, viterbi_along
from maxmargin.problems.chains import (
    ChainTrainingSet,
    Labels,
    Layout,
    add_losses,
    edge_scores,
    edge_scratch,
    pair_scores,
    set_node_scores,
    shares,
)
from maxmargin.problems.structured import PythonTrainingSet, TrainingSet

Floats = NDArray[np.float64]
Order = NDArray[np.int64]

LEAST = 1e-100
"""Smaller probabilities are reweighted as if they were this large: what vanished can return."""

WIDEST = 430.0
"""Range of transitions over the temperature up to which factors can take the place of logarithms.

Then the smallest product of a share, a probability and a factor, ``LEAST * exp(-WIDEST)``, is still
a number, and what rounds to zero next to it would not have changed a sum."""

LONGEST = 1.0 - float(np.finfo(np.float64).eps)
"""Longest step at a temperature above zero: it leaves a trace of every output."""

PROPOSE, STEP = 1, 2
"""What a kernel does with each block."""

LINE_SEARCH = -1.0
"""Stands for a step size in kernels: look for the best one."""

_TOLERANCE = 1e-9
_CHUNK = 4096
_GAIN, _LINEAR, _WORK = range(3)


class Distributions(ABC):
    """A distribution over the outputs of every block, and moves that improve it.

    A start at temperature zero has all probability on the truth, and so weights of zero. At any
    other temperature every output must have some, because proposals only reweight what is there:
    one exact step leads from the truth towards all outputs alike. How far depends on C, and a
    share that is fixed instead is now so large that the dual starts far below zero, now so small
    that it takes many passes to grow.

    Parameters
    ----------
    training : TrainingSet
    """

    def __init__(self, training: Any) -> None:
        self.training = training
        self.linear = 0.0
        """``sum_b C_b E[loss]``, the dual's linear term, as kept up by the steps."""
        self.gaps = np.full(training.n_blocks, math.inf)
        """Gap of each block, ``C (hinge - E[loss - <w, psi>])``, where it was proposed last."""
        self._proposals: Any = None
        self._longest = 1.0

    @property
    @abstractmethod
    def n_variables(self) -> int:
        """Probabilities kept."""

    @abstractmethod
    def expectations(self) -> tuple[Floats, float]:
        """The weights and the linear term of the dual that belong to the distributions."""

    @abstractmethod
    def dual(self) -> float:
        """Dual value, from the distributions and the data alone.

        Raises
        ------
        ValueError
            If these are no distributions.
        """

    @abstractmethod
    def copy(self) -> Self:
        """The distributions of this moment."""

    @abstractmethod
    def take(self, start: Any) -> None:
        """Take over the distributions of an earlier solve.

        Raises
        ------
        ValueError
            If they are of another kind or shape.
        """

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
        self._longest = _longest(temperature)
        threads.map(
            partial(self._propose, weights, temperature), shares(len(blocks), threads.n_threads)
        )
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
        sums = np.zeros(3)
        self._step(weights, LINE_SEARCH if fixed_step is None else fixed_step, sums)
        return self._moved(*sums.tolist())

    def visit(
        self, weights: Floats, blocks: Order, temperature: float, fixed_step: float | None = None
    ) -> Visit:
        """`propose` and `step` for one block after the other, each at weights up to date."""
        self._proposals = self._room(blocks, for_all=False)
        self._longest = _longest(temperature)
        sums = np.zeros(3)
        self._visit(weights, temperature, LINE_SEARCH if fixed_step is None else fixed_step, sums)
        return self._moved(*sums.tolist())

    def step_together(self, weights: Floats, fixed_step: float | None = None) -> Visit:
        """Step towards the proposals with one step size for all; otherwise the same."""
        direction = np.zeros_like(weights)
        linear = self._add_direction(direction)
        slope = linear - float(weights @ direction)
        square = float(direction @ direction)
        step = fixed_step
        if step is None:
            step = best_step(slope, square, self._longest)
        self._mix(step)
        weights += step * direction
        return self._moved(step * (slope - 0.5 * step * square), step * linear, weights.size)

    def _moved(self, gain: float, linear: float, work: float) -> Visit:
        """Bring the linear term and gaps up to date; proposals are used up."""
        found, self._proposals = self._proposals, None
        self.linear += linear
        cost = self.training.cost[found.blocks]
        gaps = cost * (found.hinges - found.values)
        self.gaps[found.blocks] = gaps
        return Visit(gain, float(gaps.sum()), float(cost @ found.hinges), work)

    def _spread(self, temperature: float) -> float:
        """The share that all outputs alike get in a start; the distributions must be that."""
        if temperature == 0.0:
            return 0.0
        weights, linear = self.expectations()
        return float(best_step(linear, float(weights @ weights), LONGEST))

    @abstractmethod
    def _room(self, blocks: Order, for_all: bool) -> Any:
        """Proposals to be filled in, side by side or one in the place of the other."""

    @abstractmethod
    def _propose(self, weights: Floats, temperature: float, part: slice) -> None:
        """Fill in a part of the proposals."""

    @abstractmethod
    def _step(self, weights: Floats, fixed_step: float, sums: Floats) -> None:
        """Move the blocks one by one; adds gain, change of the linear term and work to `sums`."""

    @abstractmethod
    def _visit(self, weights: Floats, temperature: float, fixed_step: float, sums: Floats) -> None:
        """The same, with the proposals filled in on the way."""

    @abstractmethod
    def _add_direction(self, direction: Floats) -> float:
        """Add what a whole step would change the weights by; returns that of the linear term."""

    @abstractmethod
    def _mix(self, step: float) -> None:
        """Move all that were proposed by the same step."""


def _longest(temperature: float) -> float:
    return LONGEST if temperature > 0.0 else 1.0


@inlined
def best_step(slope, square, longest):  # type: ignore[no-untyped-def]
    """The step in [0, longest] with the largest ``slope * step - 1/2 square * step^2``."""
    if square * longest > slope:
        return max(slope / square, 0.0)
    return longest if slope > 0.0 else 0.0


@inlined
def normalise(logs):  # type: ignore[no-untyped-def]
    """From logarithms to probabilities."""
    highest = -np.inf
    for m in range(len(logs)):
        highest = max(highest, logs[m])
    total = 0.0
    for m in range(len(logs)):
        logs[m] = np.exp(logs[m] - highest)
        total += logs[m]
    for m in range(len(logs)):
        logs[m] /= total


def _places(sizes: Order, for_all: bool) -> tuple[Order, int]:
    """Where things of these sizes go, side by side or all to one place, and the room they take."""
    if for_all:
        starts = _starts(sizes)
        return starts[:-1], int(starts[-1])
    return np.zeros(len(sizes), dtype=np.int64), int(sizes.max(initial=0))


def _starts(sizes: NDArray[Any]) -> Order:
    """Where each of some parts of these sizes starts, and the last one ends."""
    starts = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=starts[1:])
    return starts


class _Explicit(NamedTuple):
    """Planes of all outputs: block ``b`` has the planes ``first[b]:first[b + 1]``."""

    first: Order
    starts: Order
    columns: NDArray[np.uint32]
    values: Floats
    losses: Floats
    totals: Floats


class _ExplicitProposals(NamedTuple):
    """The distribution proposed for block ``blocks[k]`` stands in `mass` from ``at[k]`` on."""

    blocks: Order
    at: Order
    mass: Floats
    hinges: Floats
    values: Floats


class ExplicitDistributions(Distributions):
    """A probability for every output of every example.

    Parameters
    ----------
    training : PythonTrainingSet
    outputs : list of lists
        All outputs of each example; the truth is added where it is missing.
    temperature : float
        Whether it is zero decides on the start.

    Attributes
    ----------
    mass : ndarray of shape (n_outputs_of_all,)
    """

    training: PythonTrainingSet

    def __init__(
        self, training: PythonTrainingSet, outputs: list[list[Any]], temperature: float
    ) -> None:
        super().__init__(training)
        self.outputs: list[Any] = []
        parts: list[Planes] = []
        truths: list[int] = []
        for b, listed in enumerate(outputs):
            planes, truth = _planes_of_all(training, b, listed)
            truths.append(len(self.outputs) + truth)
            parts.append(planes)
            self.outputs += planes.outputs
        sizes = np.array([len(planes.losses) for planes in parts])
        self._blocks = np.repeat(np.arange(training.n_blocks), sizes)
        self._data = _Explicit(
            first=_starts(sizes),
            starts=_starts(np.concatenate([np.diff(planes.starts) for planes in parts])),
            columns=np.concatenate([planes.columns for planes in parts]),
            values=np.concatenate([planes.values for planes in parts]),
            losses=np.concatenate([planes.losses for planes in parts]),
            totals=training.cost,
        )
        self._scratch = np.zeros(training.n_features)
        self.mass = np.repeat(1.0 / sizes, sizes)
        spread = self._spread(temperature)
        self.mass *= spread
        self.mass[truths] += 1.0 - spread
        self.linear = self.expectations()[1]

    @property
    def n_variables(self) -> int:
        return len(self.mass)

    def expectations(self) -> tuple[Floats, float]:
        data, weights = self._data, np.zeros(self.training.n_features)
        coef = data.totals[self._blocks] * self.mass
        add_planes(data.starts, data.columns, data.values, coef, weights)
        return weights, float(coef @ data.losses)

    def dual(self) -> float:
        used = np.flatnonzero(self.mass)
        blocks = self._blocks[used]
        coef = self.training.cost[blocks] * self.mass[used]
        point = DualPoint(blocks, coef, [self.outputs[j] for j in used.tolist()])
        return float(self.training.dual(point))

    def copy(self) -> Self:
        twin = copy.copy(self)
        twin.mass = self.mass.copy()
        return twin

    def take(self, start: Any) -> None:
        same = isinstance(start, ExplicitDistributions) and np.array_equal(
            start._data.first, self._data.first
        )
        if not same:
            raise ValueError("The start is no distribution over the outputs of these examples.")
        self.mass[:] = start.mass
        self.linear = self.expectations()[1]

    def _room(self, blocks: Order, for_all: bool) -> _ExplicitProposals:
        at, size = _places(np.diff(self._data.first)[blocks], for_all)
        return _ExplicitProposals(blocks, at, np.empty(size), *np.empty((2, len(blocks))))

    def _propose(self, weights: Floats, temperature: float, part: slice) -> None:
        propose_explicit(
            self._data, self.mass, self._proposals, part.start, part.stop, temperature, weights
        )

    def _step(self, weights: Floats, fixed_step: float, sums: Floats) -> None:
        step_explicit(
            self._data, self.mass, self._proposals, 0, len(self._proposals.blocks),
            fixed_step, self._longest, weights, self._scratch, sums,
        )  # fmt: skip

    def _visit(self, weights: Floats, temperature: float, fixed_step: float, sums: Floats) -> None:
        visit_explicit(
            self._data, self.mass, self._proposals, temperature,
            fixed_step, self._longest, weights, self._scratch, sums,
        )  # fmt: skip

    def _add_direction(self, direction: Floats) -> float:
        return float(add_all_explicit(self._data, self.mass, self._proposals, direction))

    def _mix(self, step: float) -> None:
        mix_explicit(self._data, self.mass, self._proposals, step)


def _planes_of_all(training: PythonTrainingSet, b: int, outputs: list[Any]) -> tuple[Planes, int]:
    """Planes of all outputs of example `b`, and which of them is the truth's.

    That is one without entries or loss, because outputs need not be comparable.
    """
    planes = training.planes_of(np.full(len(outputs), b), outputs)
    zero = np.flatnonzero((np.diff(planes.starts) == 0) & (planes.losses == 0.0))
    if len(zero):
        return planes, int(zero[0])
    outputs = [*outputs, training.Y[b]]
    return training.planes_of(np.full(len(outputs), b), outputs), len(outputs) - 1


@compiled
def propose_explicit(data, mass, found, start, stop, temperature, weights):  # type: ignore[no-untyped-def]
    """Fill in the proposals `start` to `stop`."""
    for k in range(start, stop):
        first = data.first[found.blocks[k]]
        old = mass[first : data.first[found.blocks[k] + 1]]
        new = found.mass[found.at[k] : found.at[k] + len(old)]
        value = 0.0
        best = 0
        for j in range(len(old)):
            begin, end = data.starts[first + j], data.starts[first + j + 1]
            product = plane_product(begin, end, data.columns, data.values, weights)
            new[j] = data.losses[first + j] - product
            value += old[j] * new[j]
            if new[j] > new[best]:
                best = j
        found.hinges[k] = new[best]
        found.values[k] = value
        for j in range(len(old)):
            if temperature > 0.0:
                new[j] = np.log(max(old[j], LEAST)) + new[j] / temperature
            else:
                new[j] = 1.0 if j == best else 0.0
        if temperature > 0.0:
            normalise(new)


@compiled
def add_explicit(data, mass, found, k, step, direction):  # type: ignore[no-untyped-def]
    """Add what a step changes the weights by; returns the change of the linear term."""
    b = found.blocks[k]
    first, at = data.first[b], found.at[k]
    linear = 0.0
    for j in range(data.first[b + 1] - first):
        p = first + j
        change = step * data.totals[b] * (found.mass[at + j] - mass[p])
        linear += change * data.losses[p]
        add_plane(data.starts[p], data.starts[p + 1], data.columns, data.values, change, direction)
    return linear


@compiled
def add_all_explicit(data, mass, found, direction):  # type: ignore[no-untyped-def]
    """Add what whole steps of all change the weights by; returns that of the linear term."""
    linear = 0.0
    for k in range(len(found.blocks)):
        linear += add_explicit(data, mass, found, k, 1.0, direction)
    return linear


@compiled
def mix_block_explicit(data, mass, found, k, step):  # type: ignore[no-untyped-def]
    """Move one block."""
    b, at = found.blocks[k], found.at[k]
    first = data.first[b]
    for j in range(data.first[b + 1] - first):
        mass[first + j] = (1.0 - step) * mass[first + j] + step * found.mass[at + j]


@compiled
def mix_explicit(data, mass, found, step):  # type: ignore[no-untyped-def]
    """Move all that were proposed."""
    for k in range(len(found.blocks)):
        mix_block_explicit(data, mass, found, k, step)


@compiled
def step_explicit(  # type: ignore[no-untyped-def]
    data, mass, found, begin, end, fixed_step, longest, weights, scratch, sums
):
    """Steps towards the proposals `begin` to `end`.

    Scratch: a vector of zeros, also afterwards.
    """
    for k in range(begin, end):
        b = found.blocks[k]
        slope = linear = add_explicit(data, mass, found, k, 1.0, scratch)
        square = 0.0
        start, stop = data.starts[data.first[b]], data.starts[data.first[b + 1]]
        for q in range(start, stop):
            # Each column counts once: from then on it is zero.
            entry = scratch[data.columns[q]]
            scratch[data.columns[q]] = 0.0
            slope -= entry * weights[data.columns[q]]
            square += entry * entry
        step = fixed_step if fixed_step >= 0.0 else best_step(slope, square, longest)
        if step > 0.0:
            add_explicit(data, mass, found, k, step, weights)
            mix_block_explicit(data, mass, found, k, step)
        sums[_GAIN] += step * (slope - 0.5 * step * square)
        sums[_LINEAR] += step * linear
        sums[_WORK] += 4 * (stop - start)


@compiled
def visit_explicit(  # type: ignore[no-untyped-def]
    data, mass, found, temperature, fixed_step, longest, weights, scratch, sums
):
    """See `Distributions.visit`."""
    for k in range(len(found.blocks)):
        propose_explicit(data, mass, found, k, k + 1, temperature, weights)
        step_explicit(data, mass, found, k, k + 1, fixed_step, longest, weights, scratch, sums)


class _Chains(NamedTuple):
    """What the kernels need of the data.

    The pairs of block ``b`` stand from ``pair_at[b]`` on. `squares` has the squared length of the
    features of each position, constant ones included, or nothing where some may stand twice.
    """

    rows: Rows
    tied: Rows
    ends: Order
    pair_at: Order
    labels: Labels
    layout: Layout
    loss: Floats
    loss_scale: Floats
    totals: Floats
    squares: Floats


class _ChainProposals(NamedTuple):
    """Those of block ``blocks[k]`` start at ``node_at[k]`` and ``pair_at[k]``."""

    blocks: Order
    node_at: Order
    pair_at: Order
    nodes: Floats
    pairs: Floats
    hinges: Floats
    values: Floats


class _ProposalScratch(NamedTuple):
    """Scratch of one thread; what it holds does not matter, but `factors` is zero at first."""

    labels: Labels
    tables: Floats
    factors: Floats
    edges: Floats
    potentials: Floats


class _StepScratch(NamedTuple):
    """Scratch of steps: `table` and ``touched[1]`` are zero between them."""

    table: Floats
    touched: Order
    changes: Floats


class ChainDistributions(Distributions):
    """Probabilities of the labels and of the pairs of neighbouring labels of all sequences.

    Parameters
    ----------
    training : ChainTrainingSet
        Of order one, with margin rescaling and a loss that adds up over the positions.
    temperature : float
        Whether it is zero decides on the start.

    Attributes
    ----------
    nodes : ndarray of shape (n_tokens, n_columns)
        Zero from `n_labels` on.
    pairs : ndarray of shape (n_pairs, n_labels, n_columns)
        From one position to the next, the sequences one after the other.
    """

    training: ChainTrainingSet

    def __init__(self, training: ChainTrainingSet, temperature: float) -> None:
        super().__init__(training)
        layout, sequences, labels = training.layout, training.sequences, training.labels
        self._pair_counts = np.maximum(sequences.lengths - 1, 0)
        self._data = _Chains(
            rows=training.rows,
            tied=sequences.tied_rows,
            ends=sequences.ends,
            pair_at=_starts(self._pair_counts),
            labels=labels,
            layout=layout,
            loss=training.loss,
            loss_scale=training.loss_scale,
            totals=training.cost,
            squares=_squares(training),
        )
        self._scratch = _StepScratch(
            table=np.zeros((layout.n_rows, layout.n_columns)),
            touched=np.zeros((2, layout.n_rows), dtype=np.int64),
            changes=np.zeros((sequences.longest + 1, layout.n_columns)),
        )
        # The positions that have a next one, which are the first ones of all pairs.
        lasts = sequences.ends[1:][sequences.lengths > 0] - 1
        self._before = np.delete(np.arange(len(labels)), lasts)
        n = layout.n_labels
        self.nodes = np.zeros((len(labels), layout.n_columns))
        self.pairs = np.zeros((len(self._before), n, layout.n_columns))
        self.nodes[:, :n] = 1.0 / n
        self.pairs[:, :, :n] = 1.0 / n**2
        spread = self._spread(temperature)
        self.nodes *= spread
        self.pairs *= spread
        self.nodes[np.arange(len(labels)), labels] += 1.0 - spread
        truths = labels[self._before], labels[self._before + 1]
        self.pairs[np.arange(len(self._before)), *truths] += 1.0 - spread
        self.linear = self.expectations()[1]

    @property
    def n_variables(self) -> int:
        n = self.training.layout.n_labels
        return n * (len(self.nodes) + n * len(self.pairs))

    def expectations(self) -> tuple[Floats, float]:
        training, layout, sequences = self.training, self.training.layout, self.training.sequences
        cost = np.repeat(training.cost, sequences.lengths)
        loss_cost = np.repeat(training.cost * training.loss_scale, sequences.lengths)
        weights = np.zeros(training.n_features)
        table = layout.table(weights)
        linear = 0.0
        for start in range(0, len(cost), _CHUNK):
            some = slice(start, start + _CHUNK)
            losses = (training.loss[training.labels[some]] * self.nodes[some]).sum(axis=1)
            linear += float(loss_cost[some] @ losses)
            change = self._node_changes(some, cost)
            table[: layout.n_features] += sequences.X[some].T @ change
            if layout.bias >= 0:
                table[layout.bias] += change.sum(axis=0)
        if layout.first >= 0:
            filled = sequences.lengths > 0
            for row, tokens in (
                (layout.first, sequences.ends[:-1][filled]),
                (layout.last, sequences.ends[1:][filled] - 1),
            ):
                table[row] += self._node_changes(tokens, cost).sum(axis=0)
        self._add_pair_changes(table, cost)
        return weights, linear

    def _add_pair_changes(self, table: Floats, cost: Floats) -> None:
        """Add cost times the features of pairs, of the truth less the expected ones."""
        layout, tied = self.training.layout, self.training.sequences.tied
        cost = cost[self._before]
        truths = self.training.labels[self._before], self.training.labels[self._before + 1]
        changes = np.zeros(self.pairs.shape[1:])
        np.add.at(changes, truths, cost)
        changes -= np.tensordot(cost, self.pairs, axes=1)
        table[layout.transitions : layout.transitions + layout.n_labels] += changes
        if tied is not None:
            values = sp.diags_array(cost) @ tied[self._before + 1]
            rows = table[layout.tied :].reshape(tied.shape[1], -1)
            rows -= values.T @ self.pairs.reshape(len(cost), -1)
            truth = truths[0].astype(np.int64) * layout.n_columns + truths[1]
            places = np.ones(len(cost)), (np.arange(len(cost)), truth)
            found = (values.T @ sp.csr_array(places, shape=(len(cost), rows.shape[1]))).tocoo()
            np.add.at(rows, found.coords, found.data)

    def _node_changes(self, tokens: Any, cost: Floats) -> Floats:
        """Cost times the truth less the probabilities, at some positions."""
        changes: Floats = -self.nodes[tokens]
        changes[np.arange(len(changes)), self.training.labels[tokens]] += 1.0
        changes *= cost[tokens, None]
        return changes

    def dual(self) -> float:
        n = self.training.layout.n_labels
        positive = (self.nodes >= 0.0).all() and (self.pairs >= 0.0).all()
        off = [
            self.nodes.sum(axis=1) - 1.0,
            self.pairs.sum(axis=2) - self.nodes[self._before, :n],
            self.pairs.sum(axis=1) - self.nodes[self._before + 1],
        ]
        if not positive or any(np.abs(part).max(initial=0.0) > _TOLERANCE for part in off):
            raise ValueError("The dual point is not feasible.")
        weights, linear = self.expectations()
        return linear - 0.5 * float(weights @ weights)

    def copy(self) -> Self:
        twin = copy.copy(self)
        twin.nodes, twin.pairs = self.nodes.copy(), self.pairs.copy()
        return twin

    def take(self, start: Any) -> None:
        same = (
            isinstance(start, ChainDistributions)
            and start.training.layout.n_labels == self.training.layout.n_labels
            and np.array_equal(start._data.ends, self._data.ends)
        )
        if not same:
            raise ValueError("The start is no distribution over the labels of these sequences.")
        self.nodes[:], self.pairs[:] = start.nodes, start.pairs
        self.linear = self.expectations()[1]

    def _room(self, blocks: Order, for_all: bool) -> _ChainProposals:
        node_at, n_nodes = _places(self.training.sequences.lengths[blocks], for_all)
        pair_at, n_pairs = _places(self._pair_counts[blocks], for_all)
        nodes = np.empty((n_nodes, *self.nodes.shape[1:]))
        pairs = np.empty((n_pairs, *self.pairs.shape[1:]))
        return _ChainProposals(blocks, node_at, pair_at, nodes, pairs, *np.empty((2, len(blocks))))

    def _proposal_scratch(self) -> _ProposalScratch:
        longest = self.training.sequences.longest
        return _ProposalScratch(
            labels=np.empty(longest, dtype=np.uint16),
            tables=np.empty((3, longest, self.nodes.shape[1])),
            factors=np.zeros(self.pairs.shape[1:]),
            edges=edge_scratch(longest, self.training.layout),
            potentials=np.empty((longest, *self.pairs.shape[1:])),
        )

    def _propose(self, weights: Floats, temperature: float, part: slice) -> None:
        self._run(PROPOSE, part, weights, temperature, 0.0, np.zeros(3))

    def _step(self, weights: Floats, fixed_step: float, sums: Floats) -> None:
        self._run(STEP, slice(0, len(self._proposals.blocks)), weights, 0.0, fixed_step, sums)

    def _visit(self, weights: Floats, temperature: float, fixed_step: float, sums: Floats) -> None:
        everything = slice(0, len(self._proposals.blocks))
        self._run(PROPOSE | STEP, everything, weights, temperature, fixed_step, sums)

    def _run(
        self,
        moves: int,
        part: slice,
        weights: Floats,
        temperature: float,
        fixed_step: float,
        sums: Floats,
    ) -> None:
        visit_chains(
            self._data, self.nodes, self.pairs, self._proposals, part.start, part.stop, moves,
            temperature, fixed_step, self._longest, self.training.layout.table(weights),
            self._proposal_scratch(), self._scratch, sums,
        )  # fmt: skip

    def _add_direction(self, direction: Floats) -> float:
        table = self.training.layout.table(direction)
        return float(
            add_all_chains(
                self._data, self.nodes, self.pairs, self._proposals, table, self._scratch.changes
            )
        )

    def _mix(self, step: float) -> None:
        mix_chains(self._data, self.nodes, self.pairs, self._proposals, step)


def _squares(training: ChainTrainingSet) -> Floats:
    """See `_Chains`."""
    X, layout = training.sequences.X, training.layout
    if sp.issparse(X) and not X.has_canonical_format:
        return np.zeros(0)
    squares = np.empty(len(training.labels))
    squared_norms(training.rows, squares)
    squares += (layout.bias >= 0) + 2 * (layout.first >= 0)
    return squares


@compiled
def truth_score(labels, scores, edges):  # type: ignore[no-untyped-def]
    """Score of the true labelling."""
    varying = len(edges) > 1
    total = scores[0, labels[0]]
    for t in range(1, len(labels)):
        total += scores[t, labels[t]] + edges[(t - 1) * varying, labels[t - 1], labels[t]]
    return total


@compiled
def mean_score(nodes, pairs, scores, edges):  # type: ignore[no-untyped-def]
    """Expected score of a labelling."""
    varying = len(edges) > 1
    total = 0.0
    for t in range(len(nodes)):
        for m in range(nodes.shape[1]):
            total += nodes[t, m] * scores[t, m]
    for t in range(len(pairs)):
        edge = edges[t * varying]
        for a in range(pairs.shape[1]):
            for m in range(pairs.shape[2]):
                total += pairs[t, a, m] * edge[a, m]
    return total


@compiled
def set_labelling(labels, nodes, pairs):  # type: ignore[no-untyped-def]
    """All probability on one labelling."""
    for t in range(len(nodes)):
        for m in range(nodes.shape[1]):
            nodes[t, m] = 0.0
        nodes[t, labels[t]] = 1.0
    for t in range(len(pairs)):
        for a in range(pairs.shape[1]):
            for m in range(pairs.shape[2]):
                pairs[t, a, m] = 0.0
        pairs[t, labels[t], labels[t + 1]] = 1.0


@compiled
def set_potentials(nodes, pairs, edges, inverse, n_labels, scores, potentials):  # type: ignore[no-untyped-def]
    """The distribution's logarithm plus scores over the temperature.

    That of the positions in the place of `scores`, that of the pairs in `potentials`.
    """
    varying = len(edges) > 1
    last = len(nodes) - 1
    for t in range(last + 1):
        # An inner position is part of two pairs: it would be counted once too often.
        sign = 1.0 if last == 0 else (-1.0 if 0 < t < last else 0.0)
        for m in range(n_labels):
            scores[t, m] = inverse * scores[t, m] + sign * np.log(max(nodes[t, m], LEAST))
    for t in range(last):
        edge = edges[t * varying]
        for a in range(n_labels):
            for m in range(n_labels):
                log = np.log(max(pairs[t, a, m], LEAST))
                potentials[t, a, m] = inverse * edge[a, m] + log


@compiled
def set_factors(edges, inverse, n_labels, factors):  # type: ignore[no-untyped-def]
    """``exp(edges * inverse)`` over the highest; returns whether that can be used."""
    lowest, highest = np.inf, -np.inf
    for a in range(n_labels):
        for m in range(n_labels):
            lowest = min(lowest, edges[a, m])
            highest = max(highest, edges[a, m])
    for a in range(n_labels):
        for m in range(n_labels):
            factors[a, m] = np.exp((edges[a, m] - highest) * inverse)
    return (highest - lowest) * inverse <= WIDEST


@inlined
def forward_shares(nodes, pairs, logs, factors, n_labels, new_pairs, sums):  # type: ignore[no-untyped-def]
    """One step forward: ``new_pairs[a, m] ~ exp(logs[a]) * p(m | a) * factors[a, m]``."""
    highest = -np.inf
    for a in range(n_labels):
        highest = max(highest, logs[a])
    for m in range(len(sums)):
        sums[m] = 0.0
    for a in range(n_labels):
        share = np.exp(logs[a] - highest) / max(nodes[a], LEAST)
        for m in range(len(sums)):
            part = share * max(pairs[a, m], LEAST) * factors[a, m]
            new_pairs[a, m] = part
            sums[m] += part


@compiled
def reweight_chain(  # type: ignore[no-untyped-def]
    nodes, pairs, scores, inverse, factors, n_labels, new_nodes, new_pairs, sums
):
    """What `marginals_along` makes of `set_potentials`, without a logarithm for every pair.

    As there, the way forward leaves in `new_pairs` what is in proportion to the probabilities of a
    label given the next one, and the way back shares these out.
    """
    last = len(nodes) - 1
    for m in range(n_labels):
        new_nodes[0, m] = np.log(max(nodes[0, m], LEAST)) + inverse * scores[0, m]
    for t in range(last):
        forward_shares(nodes[t], pairs[t], new_nodes[t], factors, n_labels, new_pairs[t], sums[t])
        for m in range(n_labels):
            new_nodes[t + 1, m] = np.log(sums[t, m]) + inverse * scores[t + 1, m]
    normalise(new_nodes[last, :n_labels])
    for t in range(last + 1):
        for m in range(n_labels, nodes.shape[1]):
            new_nodes[t, m] = sums[t, m] = 0.0
    for t in range(last - 1, -1, -1):
        for m in range(n_labels):
            sums[t, m] = new_nodes[t + 1, m] / sums[t, m]
        for a in range(n_labels):
            total = 0.0
            for m in range(nodes.shape[1]):
                new_pairs[t, a, m] *= sums[t, m]
                total += new_pairs[t, a, m]
            new_nodes[t, a] = total


@compiled
def set_changes(old, new, cost, changes):  # type: ignore[no-untyped-def]
    """Set what a whole step changes the factors of feature rows by: cost times ``old - new``."""
    for t in range(len(old)):
        for m in range(old.shape[1]):
            changes[t, m] = cost * (old[t, m] - new[t, m])


@compiled
def mean_loss(changes, labels, loss):  # type: ignore[no-untyped-def]
    """Sum of the `changes` times the loss of each label, that of the right one is zero."""
    total = 0.0
    for t in range(len(labels)):
        for m in range(changes.shape[1]):
            total += changes[t, m] * loss[labels[t], m]
    return total


@compiled
def add_nodes(rows, layout, first, length, changes, table):  # type: ignore[no-untyped-def]
    """Add the features of the positions times `changes`."""
    for t in range(length):
        add_row_multiple(rows, first + t, changes[t], table)
    for t in range(length):
        for m in range(layout.n_columns):
            if layout.bias >= 0:
                table[layout.bias, m] += changes[t, m]
            if layout.first >= 0 and t == 0:
                table[layout.first, m] += changes[t, m]
            if layout.last >= 0 and t == length - 1:
                table[layout.last, m] += changes[t, m]


@compiled
def add_pairs(tied, layout, first, old, new, cost, table):  # type: ignore[no-untyped-def]
    """Add what a whole step changes the weights of pairs by; `first` is the first position."""
    n = layout.n_labels
    for t in range(len(old)):
        add_matrices(old[t], new[t], cost, pair_scores(table, layout))
        for q in range(tied.starts[first + t + 1], tied.starts[first + t + 2]):
            row = layout.tied + np.int64(tied.columns[q]) * n
            add_matrices(old[t], new[t], cost * tied.values[q], table[row : row + n])


@compiled
def add_matrices(old, new, scale, out):  # type: ignore[no-untyped-def]
    """``out += scale * (old - new)``."""
    for a in range(old.shape[0]):
        for m in range(old.shape[1]):
            out[a, m] += scale * (old[a, m] - new[a, m])


@compiled
def mix(old, new, step):  # type: ignore[no-untyped-def]
    """``old = (1 - step) * old + step * new``."""
    for a in range(old.shape[0]):
        for m in range(old.shape[1]):
            old[a, m] = (1.0 - step) * old[a, m] + step * new[a, m]


@inlined
def touch(row, touched, count):  # type: ignore[no-untyped-def]
    """Enter a row in the list ``touched[0]``, once; returns how many there are."""
    if touched[1, row] == 0:
        touched[1, row] = 1
        touched[0, count] = row
        count += 1
    return count


@compiled
def touch_rows(rows, tied, layout, first, length, touched):  # type: ignore[no-untyped-def]
    """List the rows of the weight table that belong to a sequence; returns how many there are."""
    count = 0
    for i in range(first, first + length):
        start = rows.starts[i]
        for q in range(start, rows.starts[i + 1]):
            column = rows.columns[q if rows.indexed else q - start]
            count = touch(np.int64(column), touched, count)
        for q in range(tied.starts[i], tied.starts[i + 1] if i > first else 0):
            row = layout.tied + np.int64(tied.columns[q]) * layout.n_labels
            for a in range(layout.n_labels):
                count = touch(row + a, touched, count)
    for row in range(layout.transitions, layout.transitions + layout.n_labels):
        count = touch(row, touched, count)
    for row in (layout.bias, layout.first, layout.last):
        if row >= 0:
            count = touch(row, touched, count)
    return count


@compiled
def measure_products(a, b):  # type: ignore[no-untyped-def]
    """Inner products of a vector with another one and with itself."""
    product = square = 0.0
    for m in range(len(a)):
        product += a[m] * b[m]
        square += a[m] * a[m]
    return product, square


@compiled
def measure_direction(direction, table, touched, count):  # type: ignore[no-untyped-def]
    """Product of a direction with the weights and with itself, over the rows touched."""
    product = square = 0.0
    for c in range(count):
        row = touched[0, c]
        for m in range(table.shape[1]):
            product += table[row, m] * direction[row, m]
            square += direction[row, m] * direction[row, m]
    return product, square


@compiled
def move_and_clear(direction, step, table, touched, count):  # type: ignore[no-untyped-def]
    """Make a step; what was scratch is zero again."""
    for c in range(count):
        row = touched[0, c]
        touched[1, row] = 0
        for m in range(table.shape[1]):
            table[row, m] += step * direction[row, m]
            direction[row, m] = 0.0


@compiled
def node_scores(rows, start, stop, table, layout, nodes):  # type: ignore[no-untyped-def]
    """`set_node_scores`, compiled once for both places that need it."""
    set_node_scores(rows, start, stop, table, layout, nodes)


@inlined
def propose_block(data, b, nodes, pairs, temperature, table, usable, scratch, new_nodes, new_pairs):  # type: ignore[no-untyped-def]
    """Set the distribution to go towards; returns the hinge and the mean slope."""
    layout, n = data.layout, data.layout.n_labels
    first, last = data.ends[b], data.ends[b + 1]
    scores, best, sums = scratch.tables[0, : last - first], scratch.tables[1], scratch.tables[2]
    node_scores(data.rows, first, last, table, layout, scores)
    add_losses(first, last, data.labels, data.loss, data.loss_scale[b], scores)
    edges = edge_scores(data.tied, first, last, table, layout, scratch.edges)
    own = truth_score(data.labels[first:last], scores, edges)
    hinge = viterbi_along(scores, edges, n, scratch.labels, best) - own
    value = mean_score(nodes, pairs, scores, edges) - own
    if temperature == 0.0:
        set_labelling(scratch.labels, new_nodes, new_pairs)
    elif usable:
        reweight_chain(
            nodes, pairs, scores, 1.0 / temperature, scratch.factors, n, new_nodes, new_pairs, sums
        )
    else:
        potentials = scratch.potentials[: len(pairs)]
        set_potentials(nodes, pairs, edges, 1.0 / temperature, n, scores, potentials)
        marginals_along(scores, potentials, n, new_nodes, new_pairs, sums)
    return hinge, value


@inlined
def step_block(  # type: ignore[no-untyped-def]
    data, b, nodes, pairs, new_nodes, new_pairs, fixed_step, longest, table, scratch, sums
):
    """Step towards a proposal."""
    rows, tied, layout = data.rows, data.tied, data.layout
    first, length, cost = data.ends[b], len(nodes), data.totals[b]
    changes, direction, touched = scratch.changes, scratch.table, scratch.touched
    set_changes(nodes, new_nodes, cost, changes)
    linear = -data.loss_scale[b] * mean_loss(
        changes, data.labels[first : first + length], data.loss
    )
    # The features of a single position stand once each: then nothing need be summed.
    alone = length == 1 and len(data.squares) > 0
    count = 0
    if alone:
        scores = changes[1:]
        node_scores(rows, first, first + 1, table, layout, scores)
        product, square = measure_products(changes[0], scores[0])
        square *= data.squares[first]
    else:
        add_nodes(rows, layout, first, length, changes, direction)
        add_pairs(tied, layout, first, pairs, new_pairs, cost, direction)
        count = touch_rows(rows, tied, layout, first, length, touched)
        product, square = measure_direction(direction, table, touched, count)
    slope = linear - product
    step = fixed_step if fixed_step >= 0.0 else best_step(slope, square, longest)
    if alone and step > 0.0:
        for m in range(layout.n_columns):
            changes[0, m] *= step
        add_nodes(rows, layout, first, length, changes, table)
    else:
        move_and_clear(direction, step, table, touched, count)
    if step > 0.0:
        mix(nodes, new_nodes, step)
        for t in range(len(pairs)):
            mix(pairs[t], new_pairs[t], step)
    sums[_GAIN] += step * (slope - 0.5 * step * square)
    sums[_LINEAR] += step * linear
    sums[_WORK] += 4 * (rows.starts[first + length] - rows.starts[first]) * layout.n_columns


@compiled
def visit_chains(  # type: ignore[no-untyped-def]
    data, nodes, pairs, found, start, stop, moves, temperature, fixed_step, longest, table,
    scratch, step_scratch, sums,
):  # fmt: skip
    """Fill in the proposals `start` to `stop`, or step towards them, or one after the other."""
    usable = False
    for k in range(start, stop):
        b = found.blocks[k]
        old_nodes = nodes[data.ends[b] : data.ends[b + 1]]
        old_pairs = pairs[data.pair_at[b] : data.pair_at[b + 1]]
        new_nodes = found.nodes[found.node_at[k] : found.node_at[k] + len(old_nodes)]
        new_pairs = found.pairs[found.pair_at[k] : found.pair_at[k] + len(old_pairs)]
        if moves & PROPOSE:
            found.hinges[k] = found.values[k] = 0.0
            if temperature > 0.0 and data.layout.tied < 0 and (k == start or moves & STEP):
                edges = pair_scores(table, data.layout)
                usable = set_factors(
                    edges, 1.0 / temperature, data.layout.n_labels, scratch.factors
                )
            if len(old_nodes) > 0:
                found.hinges[k], found.values[k] = propose_block(
                    data, b, old_nodes, old_pairs, temperature, table, usable, scratch,
                    new_nodes, new_pairs,
                )  # fmt: skip
        if moves & STEP:
            step_block(
                data, b, old_nodes, old_pairs, new_nodes, new_pairs, fixed_step, longest, table,
                step_scratch, sums,
            )  # fmt: skip


@compiled
def add_all_chains(data, nodes, pairs, found, table, changes):  # type: ignore[no-untyped-def]
    """Add what whole steps of all change the weights by; returns that of the linear term."""
    linear = 0.0
    for k in range(len(found.blocks)):
        b = found.blocks[k]
        first, last, cost = data.ends[b], data.ends[b + 1], data.totals[b]
        old_pairs = pairs[data.pair_at[b] : data.pair_at[b + 1]]
        new_nodes = found.nodes[found.node_at[k] : found.node_at[k] + last - first]
        new_pairs = found.pairs[found.pair_at[k] : found.pair_at[k] + len(old_pairs)]
        set_changes(nodes[first:last], new_nodes, cost, changes)
        linear -= data.loss_scale[b] * mean_loss(changes, data.labels[first:last], data.loss)
        add_nodes(data.rows, data.layout, first, last - first, changes, table)
        add_pairs(data.tied, data.layout, first, old_pairs, new_pairs, cost, table)
    return linear


@compiled
def mix_chains(data, nodes, pairs, found, step):  # type: ignore[no-untyped-def]
    """Move all that were proposed."""
    for k in range(len(found.blocks)):
        b = found.blocks[k]
        first, last = data.ends[b], data.ends[b + 1]
        mix(
            nodes[first:last], found.nodes[found.node_at[k] : found.node_at[k] + last - first], step
        )
        first, last = data.pair_at[b], data.pair_at[b + 1]
        for t in range(last - first):
            mix(pairs[first + t], found.pairs[found.pair_at[k] + t], step)


@singledispatch
def distributions_of(training: TrainingSet, temperature: float) -> Distributions:
    """Distributions to start from; see `Distributions`.

    Raises
    ------
    ValueError
        If nobody can tell what the outputs are.
    """
    raise ValueError(_missing(training))


@distributions_of.register
def _(training: PythonTrainingSet, temperature: float) -> Distributions:
    if not hasattr(training.problem, "outputs"):
        raise ValueError(_missing(training.problem))
    outputs = [training.outputs(i) for i in range(training.n_blocks)]
    return ExplicitDistributions(training, outputs, temperature)


@distributions_of.register
def _(training: ChainTrainingSet, temperature: float) -> Distributions:
    if training.layout.triples >= 0 or training.zero_one or training.slack:
        raise ValueError(
            "PartialLinearization and ExponentiatedGradient train chains of order 1 with margin "
            "rescaling and a loss that adds up over the positions, and no others."
        )
    return ChainDistributions(training, temperature)


def _missing(problem: Any) -> str:
    return (
        f"PartialLinearization and ExponentiatedGradient need {type(problem).__name__} to have "
        f"the method outputs(x), the list of all outputs of an input."
    )
