"""Distributions over the labellings of graphs that are searched exactly."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from maxmargin.problems.distributions.flat import FlatDistributions
from maxmargin.problems.distributions.graph_moves import (
    CliqueData,
    ProposalScratch,
    StepScratch,
    WeightTables,
    add_all_graphs,
    move_graphs,
)
from maxmargin.problems.distributions.graph_point import GraphPoint
from maxmargin.problems.distributions.steps import Move

if TYPE_CHECKING:
    from maxmargin.problems.graph_training import GraphTrainingSet

Floats = NDArray[np.float64]

MOST_NUMBERS = 2**28
"""Probabilities of all cliques that are kept at most: 2 GB."""


class GraphDistributions(FlatDistributions):
    """Probabilities of the labels of all cliques of all graphs.

    Parameters
    ----------
    training : GraphTrainingSet
        Of graphs that are searched exactly.
    temperature : float
        Whether it is zero decides on the start.

    Raises
    ------
    ValueError
        If a graph has no exact search, or the cliques of all have too many labellings.
    """

    training: "GraphTrainingSet"
    point: GraphPoint

    def __init__(self, training: "GraphTrainingSet", temperature: float) -> None:
        layout, data = training.layout, training.searches.data
        sizes = layout.n_labels * _exact_sizes(training)
        super().__init__(training, GraphPoint.even(training), sizes)
        self._data = CliqueData(data, self._first, data.incidence.tables // 2, training.cost)
        self._most_nodes = int(training.graphs.n_nodes.max(initial=1))
        self._most_kinds = int(np.diff(data.kind_ends).max(initial=1))
        self._scratch = StepScratch(
            direction=self._tables(np.zeros(training.n_features)),
            touched=np.zeros((2, layout.n_rows), dtype=np.int64),
            nodes=np.empty((self._most_nodes, layout.n_columns)),
            pairs=np.empty((self._most_kinds, layout.n_labels, layout.n_columns)),
            labels=np.empty(self._most_nodes, dtype=np.int64),
            row=np.empty(layout.n_columns),
        )
        self._start(temperature)

    def expectations(self) -> tuple[Floats, float]:
        return self.point.expectations(self.training)

    def _give_to_truth(self, kept: float) -> None:
        self.point.mass[:] *= kept
        self.point.mass[self.point.tree.places_of(self._data.graphs.labels)] += 1.0 - kept

    def _move(self, move: Move, part: slice, weights: Floats) -> tuple[float, float, float]:
        moved: tuple[float, float, float] = move_graphs(
            self._data, self.point.mass, self._proposals, part.start, part.stop, move,
            self._tables(weights), self._proposal_scratch(), self._scratch,
        )  # fmt: skip
        return moved

    def _add_direction(self, direction: Floats) -> float:
        return float(
            add_all_graphs(
                self._data, self.point.mass, self._proposals, self._tables(direction), self._scratch
            )
        )

    def _tables(self, weights: Floats) -> WeightTables:
        layout = self.training.layout
        return WeightTables(layout.table(weights), layout.pair_table(weights))

    def _proposal_scratch(self) -> ProposalScratch:
        layout, sizes = self.training.layout, self._data.graphs.elimination.sizes
        tables, shares = np.empty((2, int(sizes.max(initial=0))))
        return ProposalScratch(
            nodes=np.empty((self._most_nodes, layout.n_columns)),
            pairs=np.empty((2 * self._most_kinds, layout.n_labels, layout.n_columns)),
            labels=np.empty(self._most_nodes, dtype=np.int64),
            tables=tables,
            shares=shares,
            row=np.empty(layout.n_columns),
        )


def _exact_sizes(training: "GraphTrainingSet") -> NDArray[np.int64]:
    """Labellings of the scopes of each graph, after a look whether all can be kept."""
    sizes = training.searches.elimination.sizes
    relaxed = np.flatnonzero(sizes < 0)
    if len(relaxed):
        raise ValueError(
            f"PartialLinearization and ExponentiatedGradient need the marginals of an exact "
            f"search, but graph {relaxed[0]} is not searched exactly: use another solver, such as "
            f"'auto', or inference='exact' if the treewidth is small."
        )
    count = training.layout.n_labels * int(sizes.sum())
    if count > MOST_NUMBERS:
        raise ValueError(
            f"PartialLinearization and ExponentiatedGradient would have to keep {count:,} "
            f"probabilities for the cliques of these graphs, but {MOST_NUMBERS:,} are the limit: "
            f"use another solver, such as 'auto'."
        )
    return sizes
