"""Graph labelling as a `Problem`."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from maxmargin.core.arrays import Floats
from maxmargin.core.oracle import Threads
from maxmargin.core.problem import Problem
from maxmargin.core.registry import registered
from maxmargin.core.state import Remade
from maxmargin.structures.graph.formats import stack_graphs
from maxmargin.structures.graph.inference import Ints
from maxmargin.structures.graph.oracle import (
    ANSWER,
    MOST_OUTPUTS,
    GraphInference,
    GraphLayout,
    GraphOracle,
    Graphs,
)


@registered("GraphLabelling")
class GraphLabelling(Remade, Problem):
    """A label for each node of a graph, as a problem for `StructuredSVM`.

    Inputs are graphs as `GraphLabeler` takes them, outputs integer arrays with the label of each
    node, from 0 to ``n_labels - 1``. The loss is the number of wrong nodes.

    Parameters
    ----------
    n_labels : int
    directed : bool, default=False
        Whether weights tell the first node of an edge from its second.
    fit_intercept : bool, default=True
        A bias for each label.
    inference_method : {"auto", "exact", "relaxed", "flow"}, default="auto"
        See `GraphLabeler`.

    See Also
    --------
    maxmargin.GraphLabeler : The same with labels of any kind, and more.

    Notes
    -----
    `PartialLinearization` trains graphs with exact inference; with slack rescaling, those of few
    nodes, whose labellings can be enumerated (`outputs`).

    Examples
    --------
    >>> import numpy as np
    >>> import maxmargin as mm
    >>> path = np.array([[0, 1], [1, 2]])
    >>> X = [(np.array([[1.0], [0.1], [1.0]]), path), (np.array([[-1.0], [-0.1], [-1.0]]), path)]
    >>> Y = [np.array([1, 1, 1]), np.array([0, 0, 0])]
    >>> model = mm.StructuredSVM(GraphLabelling(2), C=10.0).fit(X, Y)
    >>> model.predict([(np.array([[1.0], [-0.1], [1.0]]), path)])
    [array([1, 1, 1])]
    """

    def __init__(
        self,
        n_labels: int,
        *,
        directed: bool = False,
        fit_intercept: bool = True,
        inference_method: str = "auto",
    ) -> None:
        self.n_labels, self.directed = n_labels, directed
        self.fit_intercept, self.inference_method = fit_intercept, inference_method

    def joint_feature(self, x: Any, y: Any) -> Floats:
        graphs, layout = self._read([x])
        labels = np.eye(layout.n_columns)[np.asarray(y, dtype=np.int64)]
        parts = [graphs.X.T @ labels]
        if layout.bias >= 0:
            parts.append(labels.sum(axis=0, keepdims=True))
        pairs = np.zeros((len(graphs.edges), layout.n_labels, layout.n_columns))
        ends = np.asarray(y, dtype=np.int64)[graphs.edges]
        first, second = (ends if self.directed else np.sort(ends, axis=1)).T
        pairs[np.arange(len(pairs)), first, second] = 1.0
        of_edges = graphs.edge_rows.T @ pairs.reshape(len(pairs), -1)
        parts.append(of_edges.reshape(-1, layout.n_columns))
        return np.concatenate(parts).ravel()

    def loss(self, y_true: Any, y: Any) -> float:
        return float(np.sum(np.asarray(y_true) != np.asarray(y)))

    def inference(self, x: Any, w: Floats) -> Ints:
        graphs, layout = self._read([x])
        inference = GraphInference(graphs, layout, self.inference_method)
        return inference.best_labels(w, Threads(1))[0].astype(np.int64)

    def loss_augmented_inference(self, x: Any, y_true: Any, w: Floats) -> Ints:
        inference = self.make_oracle([x], [y_true], np.ones(1)).inference
        found = np.empty(len(y_true), dtype=np.uint16)
        starts = np.array([0, len(found)])
        inference.infer(w, np.zeros(1, dtype=np.int64), starts, found, ANSWER)
        return found.astype(np.int64)

    def outputs(self, x: Any) -> list[Ints]:
        """All labellings; ValueError if they are too many."""
        n_nodes = int(self._read([x])[0].node_ends[-1])
        if self.n_labels**n_nodes > MOST_OUTPUTS:
            raise ValueError(
                f"A graph of {n_nodes} nodes has too many labellings to list: {MOST_OUTPUTS} are "
                f"the limit."
            )
        every = product(range(self.n_labels), repeat=n_nodes)
        return [np.array(labels, dtype=np.int64) for labels in every]

    def make_oracle(
        self, X: Sequence[Any], Y: Sequence[Any], C: Floats, rescaling: str = "margin"
    ) -> GraphOracle:
        """The oracle with compiled inference, for margin rescaling."""
        graphs, layout = self._read(X)
        for i, (y, n_nodes) in enumerate(zip(Y, graphs.n_nodes.tolist(), strict=True)):
            if np.shape(y) != (n_nodes,):
                raise ValueError(
                    f"Graph {i} has {n_nodes} nodes, but its labels have the shape {np.shape(y)}: "
                    f"give one for each node."
                )
        labels = np.concatenate([np.asarray(y) for y in Y])
        whole = np.issubdtype(labels.dtype, np.integer)
        if len(labels) and not (whole and labels.min() >= 0 and labels.max() < self.n_labels):
            raise ValueError(f"Labels must be whole numbers from 0 to {self.n_labels - 1}.")
        mistakes = 1.0 - np.eye(self.n_labels)
        scales, method = np.ones(len(labels)), self.inference_method
        return GraphOracle(graphs, labels, layout, C, mistakes, scales, inference_method=method)

    def _read(self, X: Sequence[Any]) -> tuple[Graphs, GraphLayout]:
        graphs = Graphs(*stack_graphs(X))
        sizes = graphs.X.shape[1], graphs.edge_rows.shape[1], self.n_labels
        options = {"bias": self.fit_intercept, "directed": self.directed}
        return graphs, GraphLayout.of(*sizes, **options)
