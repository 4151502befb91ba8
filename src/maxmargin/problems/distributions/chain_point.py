"""Probabilities of labels and pairs as a dual point, valued in plain numpy."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from maxmargin.dual.registry import registered
from maxmargin.problems.chains import ChainTrainingSet
from maxmargin.problems.distributions.contract import DistributionPoint
from maxmargin.problems.distributions.valuation import TOLERANCE, changes_of, chunks_of

Floats = NDArray[np.float64]
Order = NDArray[np.int64]


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
    def even(cls, training: ChainTrainingSet) -> Self:
        """All labels, and so all pairs, alike."""
        layout, lengths = training.layout, training.sequences.lengths
        n = layout.n_labels
        nodes = np.zeros((len(training.labels), layout.n_columns))
        nodes[:, :n] = 1.0 / n
        pairs = np.zeros((np.maximum(lengths - 1, 0).sum(), n, layout.n_columns))
        pairs[:, :, :n] = 1.0 / n**2
        return cls(training.sequences.ends, nodes, pairs)

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

    def fits(self, training: ChainTrainingSet) -> bool:
        """Whether the training set has sequences of these lengths and as many labels."""
        same_lengths = np.array_equal(self.ends, training.sequences.ends)
        return same_lengths and self.pairs.shape[1] == training.layout.n_labels

    def expectations(self, training: ChainTrainingSet) -> tuple[Floats, float]:
        """The weights and the linear term of the dual that belong to the distributions."""
        weights = np.zeros(training.n_features)
        table = training.layout.table(weights)
        self._add_nodes(training, table)
        self._add_pairs(training, table)
        return weights, self._linear(training)

    def dual(self, training: ChainTrainingSet) -> float:
        if not (self.fits(training) and self._feasible):
            raise ValueError("The dual point is not feasible.")
        weights, linear = self.expectations(training)
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

    def _linear(self, training: ChainTrainingSet) -> float:
        cost = np.repeat(training.cost * training.loss_scale, training.sequences.lengths)
        total = 0.0
        for some in chunks_of(self.nodes):
            losses = training.loss[training.labels[some]]
            total += float(cost[some] @ (losses * self.nodes[some]).sum(axis=1))
        return total

    def _add_nodes(self, training: ChainTrainingSet, table: Floats) -> None:
        """Add the weights of features, biases and ends."""
        layout, sequences, labels = training.layout, training.sequences, training.labels
        cost = np.repeat(training.cost, sequences.lengths)
        for some in chunks_of(self.nodes):
            changes = changes_of(self.nodes[some], labels[some], cost[some])
            table[: layout.n_features] += sequences.X[some].T @ changes
            if layout.bias >= 0:
                table[layout.bias] += changes.sum(axis=0)
        if layout.first >= 0:
            filled = sequences.lengths > 0
            firsts, lasts = sequences.ends[:-1][filled], sequences.ends[1:][filled] - 1
            for row, ends in ((layout.first, firsts), (layout.last, lasts)):
                table[row] += changes_of(self.nodes[ends], labels[ends], cost[ends]).sum(axis=0)

    def _add_pairs(self, training: ChainTrainingSet, table: Floats) -> None:
        """Add the weights of transitions and of features tied to pairs."""
        layout, tied, before = training.layout, training.sequences.tied, self.before
        labels = training.labels.astype(np.int64)
        truths = labels[before] * layout.n_columns + labels[before + 1]
        cost = np.repeat(training.cost, training.sequences.lengths)[before]
        pairs = self.pairs.reshape(len(self.pairs), layout.n_labels * layout.n_columns)
        transitions = table[layout.transitions : layout.transitions + layout.n_labels].reshape(-1)
        for some in chunks_of(pairs):
            changes = changes_of(pairs[some], truths[some], cost[some])
            transitions += changes.sum(axis=0)
            if tied is not None:
                rows = table[layout.tied :].reshape(tied.shape[1], -1)
                rows += tied[before[some] + 1].T @ changes
