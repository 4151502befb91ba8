"""Distributions over the labellings of chains: marginals of labels and of pairs of neighbours.

Compiled: directions in the weight table, proposals and steps, example by example. As a dual point,
the marginals are evaluated in plain numpy.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.compiled.exponentials import (
    mean_score,
    reweight_chain,
    set_factors,
    set_labelling,
    set_potentials,
    true_score,
)
from maxmargin.compiled.rows import Rows, add_row_multiple, squared_norms
from maxmargin.core.oracle import starts_of
from maxmargin.core.registry import registered
from maxmargin.dual.marginal import (
    TOLERANCE,
    DistributionPoint,
    Distributions,
    Move,
    changes_of,
    chunks_of,
    measure_products,
    measure_rows,
    mixed,
    move_and_clear,
    places_for,
    step_size,
    touch,
    touch_features,
)
from maxmargin.structures.chain.inference import marginals_along, viterbi_along
from maxmargin.structures.chain.oracle import (
    ChainOracle,
    Labels,
    Layout,
    add_losses,
    edge_scores,
    edge_scratch,
    pair_scores,
    set_node_scores,
)


@compiled
def add_node_changes(rows, layout, first, length, changes, table):  # type: ignore[no-untyped-def]
    """Add the features of the positions from `first` on times `changes`."""
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
def add_pair_changes(tied, layout, first, old, new, C, table):  # type: ignore[no-untyped-def]
    """Add what a whole step changes the weights of pairs by; `first` is the first position."""
    n = layout.n_labels
    for t in range(len(old)):
        add_difference(old[t], new[t], C, pair_scores(table, layout))
        for q in range(tied.starts[first + t + 1], tied.starts[first + t + 2]):
            row = layout.tied + np.int64(tied.columns[q]) * n
            add_difference(old[t], new[t], C * tied.values[q], table[row : row + n])


@compiled
def add_difference(old, new, scale, out):  # type: ignore[no-untyped-def]
    """``out += scale * (old - new)``."""
    for a in range(old.shape[0]):
        for m in range(old.shape[1]):
            out[a, m] += scale * (old[a, m] - new[a, m])


@compiled
def touch_rows(rows, tied, layout, first, length, touched):  # type: ignore[no-untyped-def]
    """List the rows of the weight table that belong to a sequence; returns how many there are."""
    count = 0
    for i in range(first, first + length):
        count = touch_features(rows, i, touched, count)
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


Floats = NDArray[np.float64]
Order = NDArray[np.int64]


class ChainData(NamedTuple):
    """What the compiled functions need of the data.

    The pairs of example ``b`` stand from ``pair_at[b]`` on. `squares` has the squared length of the
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


class Marginals(NamedTuple):
    """Probabilities of labels and of pairs: of all examples, or of one."""

    nodes: Floats
    pairs: Floats


class ChainProposals(NamedTuple):
    """Those of example ``examples[k]`` start at ``node_at[k]`` and ``pair_at[k]``."""

    examples: Order
    node_at: Order
    pair_at: Order
    nodes: Floats
    pairs: Floats
    hinges: Floats
    values: Floats


class ProposalScratch(NamedTuple):
    """Scratch of one thread; what it holds does not matter, but `factors` is zero at first."""

    labels: Labels
    scores: Floats
    best: Floats
    sums: Floats
    factors: Floats
    edges: Floats
    potentials: Floats


class StepScratch(NamedTuple):
    """Scratch of steps: `direction` and ``touched[1]`` are zero between them."""

    direction: Floats
    touched: Order
    changes: Floats


@inlined
def old_and_new(data, marginals, found, k):  # type: ignore[no-untyped-def]
    """The distribution of example ``examples[k]``, and the one proposed."""
    b = found.examples[k]
    nodes = marginals.nodes[data.ends[b] : data.ends[b + 1]]
    pairs = marginals.pairs[data.pair_at[b] : data.pair_at[b + 1]]
    new_nodes = found.nodes[found.node_at[k] : found.node_at[k] + len(nodes)]
    new_pairs = found.pairs[found.pair_at[k] : found.pair_at[k] + len(pairs)]
    return Marginals(nodes, pairs), Marginals(new_nodes, new_pairs)


@compiled
def node_scores(rows, start, stop, table, layout, nodes):  # type: ignore[no-untyped-def]
    """`set_node_scores`, compiled once for both places that need it."""
    set_node_scores(rows, start, stop, table, layout, nodes)


@inlined
def factors_of(table, layout, temperature, factors):  # type: ignore[no-untyped-def]
    """Set the `factors` of `reweight_chain`; returns whether they can be used."""
    usable = False
    if temperature > 0.0 and layout.tied < 0:
        edges = pair_scores(table, layout)
        usable = set_factors(edges, 1.0 / temperature, layout.n_labels, factors)
    return usable


@inlined
def propose_example(data, b, old, temperature, usable, table, scratch, new):  # type: ignore[no-untyped-def]
    """Set the distribution to go towards; returns the hinge and the mean slope.

    There must be a position. `usable` tells whether the factors are.
    """
    n = data.layout.n_labels
    first, last = data.ends[b], data.ends[b + 1]
    scores = scratch.scores[: last - first]
    node_scores(data.rows, first, last, table, data.layout, scores)
    add_losses(first, last, data.labels, data.loss, data.loss_scale[b], scores)
    edges = edge_scores(data.tied, first, last, table, data.layout, scratch.edges)
    own = true_score(data.labels[first:last], scores, edges)
    hinge = viterbi_along(scores, edges, n, scratch.labels, scratch.best) - own
    mean = mean_score(old.nodes, old.pairs, scores, edges) - own
    if temperature == 0.0:
        set_labelling(scratch.labels, new.nodes, new.pairs)
    elif usable:
        reweight_chain(
            old.nodes, old.pairs, scores, 1.0 / temperature, scratch.factors, n,
            new.nodes, new.pairs, scratch.sums,
        )  # fmt: skip
    else:
        potentials = scratch.potentials[: len(old.pairs)]
        set_potentials(old.nodes, old.pairs, edges, 1.0 / temperature, n, scores, potentials)
        marginals_along(scores, potentials, n, new.nodes, new.pairs, scratch.sums)
    return hinge, mean


@compiled
def set_changes(data, b, old, new, changes):  # type: ignore[no-untyped-def]
    """Set what a whole step changes the factors of feature rows by: cost times ``old - new``.

    Returns the change of the linear term.
    """
    linear = 0.0
    for t in range(len(old)):
        right = data.labels[data.ends[b] + t]
        for m in range(old.shape[1]):
            change = data.totals[b] * (old[t, m] - new[t, m])
            changes[t, m] = change
            linear -= change * data.loss[right, m]
    return data.loss_scale[b] * linear


@compiled
def add_changes(data, b, changes, pairs, new_pairs, table):  # type: ignore[no-untyped-def]
    """Add what a whole step changes the weights by."""
    first, length = data.ends[b], data.ends[b + 1] - data.ends[b]
    add_node_changes(data.rows, data.layout, first, length, changes, table)
    add_pair_changes(data.tied, data.layout, first, pairs, new_pairs, data.totals[b], table)


@compiled
def mix(old, new, step):  # type: ignore[no-untyped-def]
    """``old = (1 - step) * old + step * new``."""
    for a in range(old.shape[0]):
        for m in range(old.shape[1]):
            old[a, m] = mixed(old[a, m], new[a, m], step)


@inlined
def mix_example(old, new, step):  # type: ignore[no-untyped-def]
    """Update one example."""
    mix(old.nodes, new.nodes, step)
    for t in range(len(old.pairs)):
        mix(old.pairs[t], new.pairs[t], step)


@inlined
def step_example(data, b, old, new, move, table, scratch):  # type: ignore[no-untyped-def]
    """Step towards a proposal; returns the gain and the change of the linear term."""
    rows, layout = data.rows, data.layout
    first, length = data.ends[b], len(old.nodes)
    changes, direction, touched = scratch.changes, scratch.direction, scratch.touched
    whole = set_changes(data, b, old.nodes, new.nodes, changes)
    # The features of a single position stand once each: then nothing need be summed.
    alone = length == 1 and len(data.squares) > 0
    count = 0
    if alone:
        scores = changes[1:]
        node_scores(rows, first, first + 1, table, layout, scores)
        product, square = measure_products(changes[0], scores[0])
        square *= data.squares[first]
    else:
        add_changes(data, b, changes, old.pairs, new.pairs, direction)
        count = touch_rows(rows, data.tied, layout, first, length, touched)
        product, square = measure_rows(direction, table, touched, count)
    slope = whole - product
    step = step_size(move, slope, square)
    if not alone:
        move_and_clear(direction, step, table, touched, count)
    elif step > 0.0:
        for m in range(layout.n_columns):
            changes[0, m] *= step
        add_node_changes(rows, layout, first, 1, changes, table)
    if step > 0.0:
        mix_example(old, new, step)
    return step * (slope - 0.5 * step * square), step * whole


@compiled
def move_chains(data, marginals, found, first, last, move, table, scratch, step_scratch):  # type: ignore[no-untyped-def]
    """See `Distributions._move`."""
    gain = linear = 0.0
    entries = 0
    usable = False
    for k in range(first, last):
        b = found.examples[k]
        old, new = old_and_new(data, marginals, found, k)
        if move.proposes:
            found.hinges[k] = found.values[k] = 0.0
            if k == first or move.steps:  # which change transitions, and so the factors
                usable = factors_of(table, data.layout, move.temperature, scratch.factors)
            if len(old.nodes) > 0:
                found.hinges[k], found.values[k] = propose_example(
                    data, b, old, move.temperature, usable, table, scratch, new
                )
        if move.steps:
            more, change = step_example(data, b, old, new, move, table, step_scratch)
            gain += more
            linear += change
            entries += data.rows.starts[data.ends[b + 1]] - data.rows.starts[data.ends[b]]
    return gain, linear, 4 * entries * data.layout.n_columns


@compiled
def add_all_chains(data, marginals, found, table, changes):  # type: ignore[no-untyped-def]
    """See `Distributions._add_direction`."""
    linear = 0.0
    for k in range(len(found.examples)):
        b = found.examples[k]
        old, new = old_and_new(data, marginals, found, k)
        linear += set_changes(data, b, old.nodes, new.nodes, changes)
        add_changes(data, b, changes, old.pairs, new.pairs, table)
    return linear


@compiled
def mix_all_chains(data, marginals, found, step):  # type: ignore[no-untyped-def]
    """See `Distributions._mix`."""
    for k in range(len(found.examples)):
        old, new = old_and_new(data, marginals, found, k)
        mix_example(old, new, step)


@registered("ChainPoint")
@dataclass(frozen=True, eq=False)
class ChainPoint(DistributionPoint):
    """Probabilities of the labels and of the pairs of neighbouring labels of all sequences.

    Parameters
    ----------
    ends : ndarray of int64, shape (n_sequences + 1,)
        Sequence ``i`` has the positions ``ends[i]:ends[i + 1]``.
    nodes : ndarray of shape (n_tokens, n_columns)
        Zero from `n_labels` on.
    pairs : ndarray of shape (n_pairs, n_labels, n_columns)
        From one position to the next, the sequences one after the other.
    """

    ends: Order
    nodes: Floats
    pairs: Floats

    @classmethod
    def even(cls, oracle: ChainOracle) -> Self:
        """All labels, and so all pairs, alike."""
        layout, lengths = oracle.layout, oracle.sequences.lengths
        n = layout.n_labels
        nodes = np.zeros((len(oracle.labels), layout.n_columns))
        nodes[:, :n] = 1.0 / n
        pairs = np.zeros((np.maximum(lengths - 1, 0).sum(), n, layout.n_columns))
        pairs[:, :, :n] = 1.0 / n**2
        return cls(oracle.sequences.ends, nodes, pairs)

    @property
    def n_variables(self) -> int:
        n: int = self.pairs.shape[1]
        return n * (len(self.nodes) + n * len(self.pairs))

    @cached_property
    def before(self) -> Order:
        """The positions that have a next one, which are the first ones of all pairs."""
        filled = np.diff(self.ends) > 0
        return np.delete(np.arange(len(self.nodes)), self.ends[1:][filled] - 1)

    def copy(self) -> Self:
        return replace(self, nodes=self.nodes.copy(), pairs=self.pairs.copy())

    def fits(self, oracle: ChainOracle) -> bool:
        """Whether the training set has sequences of these lengths and as many labels."""
        same_lengths = np.array_equal(self.ends, oracle.sequences.ends)
        return same_lengths and self.pairs.shape[1] == oracle.layout.n_labels

    def expectations(self, oracle: ChainOracle) -> tuple[Floats, float]:
        """The weights and the linear term of the dual that belong to the distributions."""
        weights = np.zeros(oracle.n_features)
        table = oracle.layout.table(weights)
        self._add_nodes(oracle, table)
        self._add_pairs(oracle, table)
        return weights, self._linear(oracle)

    def dual(self, oracle: ChainOracle) -> float:
        if not (self.fits(oracle) and self._feasible):
            raise ValueError("The dual point is not feasible.")
        weights, linear = self.expectations(oracle)
        return linear - 0.5 * float(weights @ weights)

    @property
    def _feasible(self) -> bool:
        off = [
            self.nodes.sum(axis=1) - 1.0,
            self.pairs.sum(axis=2) - self.nodes[self.before, : self.pairs.shape[1]],
            self.pairs.sum(axis=1) - self.nodes[self.before + 1],
        ]
        positive = all((part >= 0.0).all() for part in (self.nodes, self.pairs))
        return positive and all(np.abs(part).max(initial=0.0) <= TOLERANCE for part in off)

    def _linear(self, oracle: ChainOracle) -> float:
        C = np.repeat(oracle.C * oracle.loss_scale, oracle.sequences.lengths)
        total = 0.0
        for some in chunks_of(self.nodes):
            losses = oracle.loss[oracle.labels[some]]
            total += float(C[some] @ (losses * self.nodes[some]).sum(axis=1))
        return total

    def _add_nodes(self, oracle: ChainOracle, table: Floats) -> None:
        """Add the weights of features, biases and ends."""
        layout, sequences, labels = oracle.layout, oracle.sequences, oracle.labels
        C = np.repeat(oracle.C, sequences.lengths)
        for some in chunks_of(self.nodes):
            changes = changes_of(self.nodes[some], labels[some], C[some])
            table[: layout.n_features] += sequences.X[some].T @ changes
            if layout.bias >= 0:
                table[layout.bias] += changes.sum(axis=0)
        if layout.first >= 0:
            filled = sequences.lengths > 0
            firsts, lasts = sequences.ends[:-1][filled], sequences.ends[1:][filled] - 1
            for row, ends in ((layout.first, firsts), (layout.last, lasts)):
                table[row] += changes_of(self.nodes[ends], labels[ends], C[ends]).sum(axis=0)

    def _add_pairs(self, oracle: ChainOracle, table: Floats) -> None:
        """Add the weights of transitions and of features tied to pairs."""
        layout, tied, before = oracle.layout, oracle.sequences.tied, self.before
        labels = oracle.labels.astype(np.int64)
        y_true = labels[before] * layout.n_columns + labels[before + 1]
        C = np.repeat(oracle.C, oracle.sequences.lengths)[before]
        pairs = self.pairs.reshape(len(self.pairs), layout.n_labels * layout.n_columns)
        transitions = table[layout.transitions : layout.transitions + layout.n_labels].reshape(-1)
        for some in chunks_of(pairs):
            changes = changes_of(pairs[some], y_true[some], C[some])
            transitions += changes.sum(axis=0)
            if tied is not None:
                rows = table[layout.tied :].reshape(tied.shape[1], -1)
                rows += tied[before[some] + 1].T @ changes


class ChainDistributions(Distributions):
    """Probabilities of the labels and of the pairs of neighbouring labels of all sequences.

    Parameters
    ----------
    oracle : ChainTrainingSet
        Of order one, with margin rescaling and a loss that adds up over the positions.
    temperature : float
        Whether it is zero decides on the start.
    """

    oracle: ChainOracle
    point: ChainPoint

    def __init__(self, oracle: ChainOracle, temperature: float) -> None:
        super().__init__(oracle)
        layout, sequences = oracle.layout, oracle.sequences
        self._pair_counts = np.maximum(sequences.lengths - 1, 0)
        self._data = ChainData(
            rows=oracle.rows,
            tied=sequences.tied_rows,
            ends=sequences.ends,
            pair_at=starts_of(self._pair_counts),
            labels=oracle.labels,
            layout=layout,
            loss=oracle.loss,
            loss_scale=oracle.loss_scale,
            totals=oracle.C,
            squares=_squares(oracle),
        )
        self._scratch = StepScratch(
            direction=np.zeros((layout.n_rows, layout.n_columns)),
            touched=np.zeros((2, layout.n_rows), dtype=np.int64),
            changes=np.zeros((sequences.longest + 1, layout.n_columns)),
        )
        self.point = ChainPoint.even(oracle)
        self._start(temperature)

    @property
    def _marginals(self) -> Marginals:
        return Marginals(self.point.nodes, self.point.pairs)

    def expectations(self) -> tuple[Floats, float]:
        return self.point.expectations(self.oracle)

    def _give_to_true_output(self, kept: float) -> None:
        nodes, pairs = self._marginals
        labels, before = self.oracle.labels, self.point.before
        nodes *= kept
        pairs *= kept
        nodes[np.arange(len(nodes)), labels] += 1.0 - kept
        pairs[np.arange(len(pairs)), labels[before], labels[before + 1]] += 1.0 - kept

    def _fits(self, start: Any) -> bool:
        return isinstance(start, ChainPoint) and start.fits(self.oracle)

    def _set(self, start: ChainPoint) -> None:
        self.point.nodes[:], self.point.pairs[:] = start.nodes, start.pairs

    def _room(self, examples: Order, for_all: bool) -> ChainProposals:
        node_at, n_nodes = places_for(self.oracle.sequences.lengths[examples], for_all)
        pair_at, n_pairs = places_for(self._pair_counts[examples], for_all)
        nodes = np.empty((n_nodes, *self.point.nodes.shape[1:]))
        pairs = np.empty((n_pairs, *self.point.pairs.shape[1:]))
        return ChainProposals(
            examples, node_at, pair_at, nodes, pairs, *np.empty((2, len(examples)))
        )

    def _move(self, move: Move, part: slice, weights: Floats) -> tuple[float, float, float]:
        moved: tuple[float, float, float] = move_chains(
            self._data, self._marginals, self._proposals, part.start, part.stop, move,
            self.oracle.layout.table(weights), self._proposal_scratch(), self._scratch,
        )  # fmt: skip
        return moved

    def _proposal_scratch(self) -> ProposalScratch:
        longest, layout = self.oracle.sequences.longest, self.oracle.layout
        scores, best, sums = np.empty((3, longest, layout.n_columns))
        return ProposalScratch(
            labels=np.empty(longest, dtype=np.uint16),
            scores=scores,
            best=best,
            sums=sums,
            factors=np.zeros((layout.n_labels, layout.n_columns)),
            edges=edge_scratch(longest, layout),
            potentials=np.empty((longest, layout.n_labels, layout.n_columns)),
        )

    def _add_direction(self, direction: Floats) -> float:
        table, changes = self.oracle.layout.table(direction), self._scratch.changes
        return float(add_all_chains(self._data, self._marginals, self._proposals, table, changes))

    def _mix(self, step: float) -> None:
        mix_all_chains(self._data, self._marginals, self._proposals, step)


def _squares(oracle: ChainOracle) -> Floats:
    """See `ChainData`."""
    X, layout = oracle.sequences.X, oracle.layout
    if sp.issparse(X) and not X.has_canonical_format:
        return np.zeros(0)
    squares = np.empty(len(oracle.labels))
    squared_norms(oracle.rows, squares)
    squares += (layout.bias >= 0) + 2 * (layout.first >= 0)
    return squares
