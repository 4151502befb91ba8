"""Probabilities of cliques as a dual point, valued in plain numpy."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from maxmargin.dual.registry import registered
from maxmargin.problems.distributions.clique_tree import CliqueTree
from maxmargin.problems.distributions.flat import FlatPoint
from maxmargin.problems.distributions.valuation import TOLERANCE, changes_of, chunks_of
from maxmargin.problems.graphs import Graphs

if TYPE_CHECKING:
    from maxmargin.problems.graph_training import GraphTrainingSet

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@registered("GraphPoint")
@dataclass(frozen=True, eq=False)
class GraphPoint(FlatPoint):
    """Probabilities of the labels of all cliques of all graphs.

    Parameters
    ----------
    mass : ndarray of shape (tree.n_numbers,)
    tree : CliqueTree
    """

    tree: CliqueTree

    @classmethod
    def even(cls, training: "GraphTrainingSet") -> Self:
        """All labellings alike; each graph must have an elimination."""
        graphs, elimination = training.graphs, training.searches.elimination
        first = np.repeat(graphs.node_ends[:-1], graphs.n_nodes)
        nodes = first + elimination.order
        places = np.empty_like(nodes)
        places[nodes] = np.arange(len(nodes))
        scope = places[np.repeat(first, np.diff(elimination.scope_starts)) + elimination.scope]
        tree = CliqueTree(training.layout.n_labels, nodes, elimination.scope_starts, scope)
        return cls(tree.even(), tree)

    def is_like(self, other: FlatPoint) -> bool:
        return isinstance(other, GraphPoint) and self.tree.is_like(other.tree)

    def expectations(self, training: "GraphTrainingSet") -> tuple[Floats, float]:
        """The weights and the linear term of the dual that belong to the distributions."""
        weights = np.zeros(training.n_features)
        linear = self._add_nodes(training, weights)
        self._add_edges(training, weights)
        return weights, linear

    def dual(self, training: "GraphTrainingSet") -> float:
        fits = (
            self.tree.n_labels == training.layout.n_labels
            and len(self.tree.nodes) == training.graphs.node_ends[-1]
            and self.tree.covers(_all_edges(training.graphs))
        )
        if not (fits and self.tree.is_distribution(self.mass, TOLERANCE)):
            raise ValueError("The dual point is not feasible.")
        weights, linear = self.expectations(training)
        return linear - 0.5 * float(weights @ weights)

    def _add_nodes(self, training: "GraphTrainingSet", weights: Floats) -> float:
        """Add the weights of features and biases; returns the linear term."""
        layout, graphs, truth = training.layout, training.graphs, training.searches.data
        n, table = layout.n_labels, layout.table(weights)
        cost = np.repeat(training.cost, graphs.n_nodes)
        nodes = self.tree.node_marginals(self.mass)
        linear = 0.0
        for some in chunks_of(nodes):
            labels = truth.labels[some]
            losses = (truth.loss[labels, :n] * nodes[some]).sum(axis=1)
            linear += float((cost[some] * truth.scales[some]) @ losses)
            changes = changes_of(nodes[some], labels, cost[some])
            table[: layout.n_features, :n] += graphs.X[some].T @ changes
            if layout.bias >= 0:
                table[layout.bias, :n] += changes.sum(axis=0)
        return linear

    def _add_edges(self, training: "GraphTrainingSet", weights: Floats) -> None:
        """Add the weights of edges."""
        layout, graphs = training.layout, training.graphs
        n, edges = layout.n_labels, _all_edges(graphs)
        first, second = training.searches.data.labels.astype(np.int64)[edges].T
        cost = np.repeat(training.cost, graphs.n_edges)
        pairs = self.tree.edge_marginals(self.mass, edges).reshape(len(edges), n * n)
        sums = np.zeros((layout.n_edge_features, n * n))
        for some in chunks_of(pairs):
            changes = changes_of(pairs[some], (first * n + second)[some], cost[some])
            sums += graphs.edge_rows[some].T @ changes
        tables = sums.reshape(-1, n, n)
        if not layout.directed:
            tables = np.triu(tables) + np.triu(tables.transpose(0, 2, 1), 1)
        layout.pair_table(weights).reshape(-1, n, layout.n_columns)[:, :, :n] += tables


def _all_edges(graphs: Graphs) -> Ints:
    """Edges with nodes counted over all graphs."""
    return graphs.edges + np.repeat(graphs.node_ends[:-1], graphs.n_edges)[:, None]
