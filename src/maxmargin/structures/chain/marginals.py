"""Dual variables of chains: marginals of labels and pairs; as a dual point, in plain numpy."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.compiled.exponentials import (
    mean_score,
    reweight_chain,
    set_factors,
    set_labelling,
    set_potentials,
    true_score,
)
from maxmargin.compiled.rows import as_matrix, in_double, squared_norms
from maxmargin.core.arrays import Floats, Order
from maxmargin.core.registry import registered
from maxmargin.dual.marginal import (
    TOLERANCE,
    Distributions,
    MarginalPoint,
    add_expected,
    add_node_changes,
    expected_loss,
    measure_products,
    mix_example,
    old_and_new,
    step_along,
    step_size,
    touch,
    touch_features,
)
from maxmargin.structures.chain.inference import marginals, viterbi
from maxmargin.structures.chain.oracle import (
    ChainOracle,
    Labels,
    edge_scores,
    edge_scratch,
    pair_scores,
    score_example,
    set_node_scores,
)


class Marginals(NamedTuple):
    """Marginals of labels and of pairs of one example."""

    nodes: Floats
    pairs: Floats


class Scratch(NamedTuple):
    """Scratch of one thread; `factors` starts at zero."""

    labels: Labels
    scores: Floats
    best: Floats
    sums: Floats
    factors: Floats
    edges: Floats
    potentials: Floats
    direction: Floats
    touched: Order


@inlined
def marginals_of(layout, first, masses, found, k):  # type: ignore[no-untyped-def]
    """The marginals of example ``examples[k]``, and those proposed."""
    n, width = layout.n_labels, layout.n_columns
    nodes, new_nodes = old_and_new(first, masses, found, 0, k)
    pairs, new_pairs = old_and_new(first, masses, found, 1, k)
    length = len(nodes) // width
    of_nodes, of_pairs = (length, width), (len(pairs) // (n * width), n, width)
    old = Marginals(nodes.reshape(of_nodes), pairs.reshape(of_pairs))
    return old, Marginals(new_nodes.reshape(of_nodes), new_pairs.reshape(of_pairs))


@compiled
def add_pair_changes(tied, layout, first, old, new, C, table):  # type: ignore[no-untyped-def]
    """Add the change of the weights of pairs by a full step; `first` is the first position."""
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
    """List the rows of the weight table that a sequence uses; returns their number."""
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
    """Set the proposal `new` of a nonempty sequence; returns its hinge and the expected slope."""
    n = data.layout.n_labels
    first, last = data.ends[b], data.ends[b + 1]
    scores = scratch.scores[: last - first]
    score_example(data, b, table, scores)
    edges = edge_scores(data.tied, first, last, table, data.layout, scratch.edges)
    own = true_score(data.labels[first:last], scores, edges)
    hinge = viterbi(scores, edges, n, scratch.labels, scratch.best) - own
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
        marginals(scores, potentials, n, new.nodes, new.pairs, scratch.sums)
    return hinge, mean


@compiled
def set_changes(chains, b, C, old, new, changes):  # type: ignore[no-untyped-def]
    """Set `changes` to ``C * (old - new)`` of the labels; returns the change of the linear term."""
    linear = 0.0
    for t in range(len(old)):
        right = chains.labels[chains.ends[b] + t]
        for m in range(old.shape[1]):
            change = C * (old[t, m] - new[t, m])
            changes[t, m] = change
            linear -= change * chains.loss[right, m]
    return chains.loss_scale[b] * linear


@compiled
def add_position_changes(data, first, length, changes, table):  # type: ignore[no-untyped-def]
    """Add the change of the emission weights by a full step, for positions from `first` on."""
    layout = data.layout
    add_node_changes(data.rows, layout.bias, first, changes, length, table)
    if layout.first >= 0 and length > 0:
        for m in range(layout.n_columns):
            table[layout.first, m] += changes[0, m]
            table[layout.last, m] += changes[length - 1, m]


@inlined
def add_changes(chains, b, C, changes, old, new, table):  # type: ignore[no-untyped-def]
    """Add the change of the weights by a full step."""
    first = chains.ends[b]
    add_position_changes(chains, first, len(old.nodes), changes, table)
    add_pair_changes(chains.tied, chains.layout, first, old.pairs, new.pairs, C, table)


@inlined
def step_example(data, b, old, new, move, table, scratch):  # type: ignore[no-untyped-def]
    """Step towards a proposal; returns step size, and growth of linear term and dual."""
    chains, totals, squares = data
    layout, first, length = chains.layout, chains.ends[b], len(old.nodes)
    changes, direction, touched = scratch.best, scratch.direction, scratch.touched
    whole = set_changes(chains, b, totals[b], old.nodes, new.nodes, changes)
    # The features of a single position stand once each: then nothing need be summed.
    if length == 1 and len(squares) > 0:
        set_node_scores(chains.rows, first, first + 1, table, layout, scratch.scores)
        product, square = measure_products(changes[0], scratch.scores[0])
        square *= squares[first]
        slope = whole - product
        step = step_size(move, slope, square)
        if step > 0.0:
            for m in range(layout.n_columns):
                changes[0, m] *= step
            add_position_changes(chains, first, 1, changes, table)
    else:
        add_changes(chains, b, totals[b], changes, old, new, direction)
        count = touch_rows(chains.rows, chains.tied, layout, first, length, touched)
        step, slope, square = step_along(move, whole, direction, table, touched, count)
    return step, whole, slope, square


@compiled
def move_chains(data, starts, masses, found, first, last, move, table, scratch):  # type: ignore[no-untyped-def]
    """See `Distributions.move_examples`."""
    chains, totals, _ = data
    gain = linear = 0.0
    entries = 0
    usable = False
    for k in range(first, last):
        b = found.examples[k]
        old, new = marginals_of(chains.layout, starts, masses, found, k)
        if move.proposes:
            found.hinges[k] = found.values[k] = 0.0
            if k == first or move.steps:  # which change transitions, and so the factors
                usable = factors_of(table, chains.layout, move.temperature, scratch.factors)
            if len(old.nodes) > 0:
                found.hinges[k], found.values[k] = propose_example(
                    chains, b, old, move.temperature, usable, table, scratch, new
                )
        if move.steps:
            step, whole, slope, square = step_example(data, b, old, new, move, table, scratch)
            if step > 0.0:
                mix_example(starts, masses, found, k, step)
            gain += step * (slope - 0.5 * step * square)
            linear += step * whole
            entries += chains.rows.starts[chains.ends[b + 1]] - chains.rows.starts[chains.ends[b]]
        elif not move.proposes:
            linear += set_changes(chains, b, totals[b], old.nodes, new.nodes, scratch.best)
            add_changes(chains, b, totals[b], scratch.best, old, new, table)
    return gain, linear, 4 * entries * chains.layout.n_columns


@registered("ChainPoint")
@dataclass(frozen=True, eq=False)
class ChainPoint(MarginalPoint):
    """A dual point: marginals of the labels and of the pairs of neighbours of all sequences.

    Sequence ``i`` has the positions ``ends[i]:ends[i + 1]``. `nodes` are ``(n_tokens, n_columns)``,
    zero from `n_labels` on; `pairs` ``(n_pairs, n_labels, n_columns)``, sequences concatenated.
    """

    mass_names: ClassVar[tuple[str, ...]] = ("nodes", "pairs")

    ends: Order
    nodes: Floats
    pairs: Floats

    @classmethod
    def even(cls, oracle: ChainOracle) -> Self:
        """Uniform distributions."""
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
        """Positions that have a next one: the first of each pair."""
        filled = np.diff(self.ends) > 0
        return np.delete(np.arange(len(self.nodes)), self.ends[1:][filled] - 1)

    def is_like(self, other: "ChainPoint") -> bool:
        return np.array_equal(self.ends, other.ends) and (
            self.pairs.shape[1] == other.pairs.shape[1]
        )

    def is_feasible(self, oracle: ChainOracle) -> bool:
        n = oracle.layout.n_labels
        if not np.array_equal(self.ends, oracle.sequences.ends) or self.pairs.shape[1] != n:
            return False
        off = [
            self.nodes.sum(axis=1) - 1.0,
            self.pairs.sum(axis=2) - self.nodes[self.before, :n],
            self.pairs.sum(axis=1) - self.nodes[self.before + 1],
        ]
        positive = all((part >= 0.0).all() for part in (self.nodes, self.pairs))
        return positive and all(np.abs(part).max(initial=0.0) <= TOLERANCE for part in off)

    def expectations(self, oracle: ChainOracle) -> tuple[Floats, float]:
        weights = np.zeros(oracle.n_features)
        table, layout, sequences = oracle.layout.table(weights), oracle.layout, oracle.sequences
        nodes, before, labels = self.nodes, self.before, oracle.labels.astype(np.int64)
        C = np.repeat(oracle.C, sequences.lengths)
        bias = table[layout.bias] if layout.bias >= 0 else None
        add_expected(sequences.matrix, nodes, labels, C, table[: layout.n_features], bias)
        if layout.first >= 0:
            filled = sequences.lengths > 0
            firsts, lasts = sequences.ends[:-1][filled], sequences.ends[1:][filled] - 1
            for row, ends in ((layout.first, firsts), (layout.last, lasts)):
                add_expected(None, nodes[ends], labels[ends], C[ends], None, table[row])

        y_true = labels[before] * layout.n_columns + labels[before + 1]
        pairs = self.pairs.reshape(len(self.pairs), layout.n_labels * layout.n_columns)
        transitions = table[layout.transitions : layout.transitions + layout.n_labels].reshape(-1)
        tied = rows = None
        if sequences.tied is not None:
            tied = as_matrix(sequences.tied, layout.n_tied)[before + 1]
            rows = table[layout.tied :].reshape(layout.n_tied, -1)
        add_expected(tied, pairs, y_true, C[before], rows, transitions)
        costs = np.repeat(oracle.C * oracle.loss_scale, sequences.lengths)
        return weights, expected_loss(nodes, labels, oracle.loss, costs)


class ChainDistributions(Distributions):
    """Marginals of all sequences of order 1, with margin rescaling and a loss over positions."""

    move_examples = staticmethod(move_chains)

    oracle: ChainOracle
    point: ChainPoint

    def __init__(self, oracle: ChainOracle, temperature: float) -> None:
        layout, lengths = oracle.layout, oracle.sequences.lengths
        n_pairs = np.maximum(lengths - 1, 0)
        sizes = lengths * layout.n_columns, n_pairs * (layout.n_labels * layout.n_columns)
        # The largest of all routines is compiled for double precision alone.
        chains = oracle.data._replace(rows=in_double(oracle.rows))
        data = chains, oracle.C, _squares(oracle)
        super().__init__(oracle, ChainPoint.even(oracle), data, sizes, temperature)

    def _true_places(self) -> tuple[Order, ...]:
        n, width = self.oracle.layout.n_labels, self.oracle.layout.n_columns
        labels, before = self.oracle.labels.astype(np.int64), self.point.before
        of_pairs = (np.arange(len(before)) * n + labels[before]) * width + labels[before + 1]
        return np.arange(len(labels)) * width + labels, of_pairs

    def _scratch(self) -> Scratch:
        longest, layout = self.oracle.sequences.longest, self.oracle.layout
        scores, best, sums = np.empty((3, longest, layout.n_columns))
        return Scratch(
            labels=np.empty(longest, dtype=np.uint16),
            scores=scores,
            best=best,
            sums=sums,
            factors=np.zeros((layout.n_labels, layout.n_columns)),
            edges=edge_scratch(longest, layout),
            potentials=np.empty((longest, layout.n_labels, layout.n_columns)),
            direction=self._direction,
            touched=self._touched,
        )


def _squares(oracle: ChainOracle) -> Floats:
    """Squared norm of the features of each position, or none where features may repeat."""
    X, layout = oracle.sequences.matrix, oracle.layout
    if sp.issparse(X) and not X.has_canonical_format:
        return np.zeros(0)
    squares = np.empty(len(oracle.labels))
    squared_norms(oracle.rows, squares)
    squares += (layout.bias >= 0) + 2 * (layout.first >= 0)
    return squares
