"""Distributions over the labellings of chains."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.dual.rows import squared_norms
from maxmargin.problems.chains import ChainTrainingSet, edge_scratch
from maxmargin.problems.distributions.chain_moves import (
    ChainData,
    ChainProposals,
    Marginals,
    ProposalScratch,
    StepScratch,
    add_all_chains,
    mix_all_chains,
    move_chains,
)
from maxmargin.problems.distributions.chain_point import ChainPoint
from maxmargin.problems.distributions.contract import Distributions
from maxmargin.problems.distributions.steps import Move, places_for, starts_of

Floats = NDArray[np.float64]
Order = NDArray[np.int64]


class ChainDistributions(Distributions):
    """Probabilities of the labels and of the pairs of neighbouring labels of all sequences.

    Parameters
    ----------
    training : ChainTrainingSet
        Of order one, with margin rescaling and a loss that adds up over the positions.
    temperature : float
        Whether it is zero decides on the start.
    """

    training: ChainTrainingSet
    point: ChainPoint

    def __init__(self, training: ChainTrainingSet, temperature: float) -> None:
        super().__init__(training)
        layout, sequences = training.layout, training.sequences
        self._pair_counts = np.maximum(sequences.lengths - 1, 0)
        self._data = ChainData(
            rows=training.rows,
            tied=sequences.tied_rows,
            ends=sequences.ends,
            pair_at=starts_of(self._pair_counts),
            labels=training.labels,
            layout=layout,
            loss=training.loss,
            loss_scale=training.loss_scale,
            totals=training.cost,
            squares=_squares(training),
        )
        self._scratch = StepScratch(
            direction=np.zeros((layout.n_rows, layout.n_columns)),
            touched=np.zeros((2, layout.n_rows), dtype=np.int64),
            changes=np.zeros((sequences.longest + 1, layout.n_columns)),
        )
        self.point = ChainPoint.even(training)
        self._start(temperature)

    @property
    def _marginals(self) -> Marginals:
        return Marginals(self.point.nodes, self.point.pairs)

    def expectations(self) -> tuple[Floats, float]:
        return self.point.expectations(self.training)

    def _give_to_truth(self, kept: float) -> None:
        nodes, pairs = self._marginals
        labels, before = self.training.labels, self.point.before
        nodes *= kept
        pairs *= kept
        nodes[np.arange(len(nodes)), labels] += 1.0 - kept
        pairs[np.arange(len(pairs)), labels[before], labels[before + 1]] += 1.0 - kept

    def _fits(self, start: Any) -> bool:
        return isinstance(start, ChainPoint) and start.fits(self.training)

    def _set(self, start: ChainPoint) -> None:
        self.point.nodes[:], self.point.pairs[:] = start.nodes, start.pairs

    def _room(self, blocks: Order, for_all: bool) -> ChainProposals:
        node_at, n_nodes = places_for(self.training.sequences.lengths[blocks], for_all)
        pair_at, n_pairs = places_for(self._pair_counts[blocks], for_all)
        nodes = np.empty((n_nodes, *self.point.nodes.shape[1:]))
        pairs = np.empty((n_pairs, *self.point.pairs.shape[1:]))
        return ChainProposals(blocks, node_at, pair_at, nodes, pairs, *np.empty((2, len(blocks))))

    def _move(self, move: Move, part: slice, weights: Floats) -> tuple[float, float, float]:
        moved: tuple[float, float, float] = move_chains(
            self._data, self._marginals, self._proposals, part.start, part.stop, move,
            self.training.layout.table(weights), self._proposal_scratch(), self._scratch,
        )  # fmt: skip
        return moved

    def _proposal_scratch(self) -> ProposalScratch:
        longest, layout = self.training.sequences.longest, self.training.layout
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
        table, changes = self.training.layout.table(direction), self._scratch.changes
        return float(add_all_chains(self._data, self._marginals, self._proposals, table, changes))

    def _mix(self, step: float) -> None:
        mix_all_chains(self._data, self._marginals, self._proposals, step)


def _squares(training: ChainTrainingSet) -> Floats:
    """See `ChainData`."""
    X, layout = training.sequences.X, training.layout
    if sp.issparse(X) and not X.has_canonical_format:
        return np.zeros(0)
    squares = np.empty(len(training.labels))
    squared_norms(training.rows, squares)
    squares += (layout.bias >= 0) + 2 * (layout.first >= 0)
    return squares
