"""How a graph labeler predicts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.arrays import Floats
from maxmargin.core.inputs import check_temperature
from maxmargin.core.oracle import Threads
from maxmargin.predictors.base import Predictor, check_classes, check_weights
from maxmargin.predictors.checks import check_is_fitted, check_names
from maxmargin.predictors.declared import estimator, fitted
from maxmargin.structures.graph.formats import node_features, stack_graphs
from maxmargin.structures.graph.oracle import GraphInference, GraphLayout, Graphs


@estimator
class GraphLabelerPredictor(Predictor):
    """What a fitted `GraphLabeler` has learned, and how it predicts.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    node_coef_ : ndarray of shape (n_classes, n_features)
        Weights of the features of nodes.
    edge_coef_ : ndarray of shape (n_edge_features, n_classes, n_classes)
        Weights of the features of edges, the label of the first node as row; symmetric unless
        `directed`.
    intercept_ : ndarray of shape (n_classes,)
        Biases; zeros where not fitted.
    n_features_in_, n_edge_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features of nodes; only when trained on data frames.
    """

    inference_method: str = "auto"
    _arguments = """
    X : list of n_graphs graphs
        Tuples or networkx graphs, see the page of the class.
    y : list of n_graphs label arrays
        Numbers or strings, one for each node, in the order of the rows or of the graph's
        ``nodes``; for networkx graphs also dictionaries by node.
    classes : array-like of shape (n_classes,), default=None
        All labels that will ever come, without `void`; needed in the first call.
    sample_weight : array-like of shape (n_graphs,), default=None
        Multiplies the C of each graph.
    node_weight : list of n_graphs arrays, default=None
        Multiplies the loss of each node.
    """

    classes_: NDArray[Any] = fitted()
    n_edge_features_in_: int = fitted()
    node_coef_: Floats = fitted()
    edge_coef_: Floats = fitted()
    intercept_: Floats = fitted()
    _layout: GraphLayout = fitted()
    _weights: Floats = fitted()

    def _check_fitted(self) -> None:
        super()._check_fitted()
        layout = self._layout
        check_classes(self.classes_, layout.n_labels)
        widths = self.n_features_in_, self.n_edge_features_in_
        if widths != (layout.n_features, layout.n_edge_features):
            raise ValueError("features and weights are not equal in number")
        check_weights("_weights", self._weights, layout.n_rows * layout.n_columns)
        self.__dict__.update(parts_of(self._weights, layout))

    def predict(self, X: Any) -> list[NDArray[Any]]:
        """Labels of all nodes of each graph.

        Returns
        -------
        y : list of ndarray of shape (n_nodes,)
            What is predicted for each node.
        """
        graphs = self._checked(X)
        labels, _ = self._infer_best(graphs)
        return np.split(self.classes_[labels], graphs.node_ends[1:-1])

    def decision_function(self, X: Any) -> Floats:
        """Score of the labels that `predict` gives each graph."""
        return self._infer_best(self._checked(X))[1]

    def predict_marginals(self, X: Any, *, temperature: float = 1.0) -> list[Floats]:
        """Marginal probability of each label at each node; needs exact inference.

        Returns
        -------
        marginals : list of ndarray of shape (n_nodes, n_classes)
            Classes in the order of ``classes_``.
        """
        temperature = check_temperature(temperature)
        inference = GraphInference(self._checked(X), self._layout, "exact")
        return inference.marginals(self._weights, temperature)

    def _infer_best(self, graphs: Graphs) -> tuple[NDArray[np.uint16], Floats]:
        inference = GraphInference(graphs, self._layout, self.inference_method)
        with Threads(self.n_jobs) as threads:
            return inference.best_labels(self._weights, threads)

    def _checked(self, X: Any) -> Graphs:
        """Checked graphs with the features of the training data."""
        check_is_fitted(self)
        check_names(self, node_features(X))
        return graphs_alike(X, self.__dict__)


def graphs_alike(X: Any, metadata: Mapping[str, Any]) -> Graphs:
    """Graphs with the features of the training data."""
    graphs = Graphs(*stack_graphs(X))
    widths = {"X": ("node", "n_features_in_"), "edge_rows": ("edge", "n_edge_features_in_")}
    for name, (what, width) in widths.items():
        rows, expected = getattr(graphs, name), metadata[width]
        if rows.shape[1] == expected:
            continue
        if rows.shape[0]:
            raise ValueError(
                f"Each {what} of X has {rows.shape[1]} features, but GraphLabeler was trained with "
                f"{expected}."
            )
        empty: dict[str, Any] = {name: np.zeros((0, expected))}
        graphs = replace(graphs, **empty)
    return graphs


def parts_of(weights: Floats, layout: GraphLayout) -> dict[str, Floats]:
    """Fitted attributes as views of the weights."""
    n, table = layout.n_labels, layout.table(weights)
    edge_coef = table[layout.pairs :].reshape(-1, n, layout.n_columns)[:, :, :n]
    if not layout.directed:
        upper = np.triu(edge_coef)
        edge_coef = upper + np.triu(edge_coef, 1).transpose(0, 2, 1)
    return {
        "node_coef_": table[: layout.n_features, :n].T,
        "edge_coef_": edge_coef,
        "intercept_": table[layout.bias, :n] if layout.bias >= 0 else np.zeros(n),
    }
