"""GraphLabeler: a label for each node of a graph."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import _fit_context
from sklearn.utils._param_validation import StrOptions

from maxmargin.core.arrays import Floats
from maxmargin.core.inputs import check_loss_matrix, check_per_sample, class_numbers, flat_labels
from maxmargin.core.oracle import Oracle
from maxmargin.core.result import AbsoluteGap
from maxmargin.data.sources import Source
from maxmargin.estimators.structured import ExampleEstimator
from maxmargin.predictors.checks import check_names
from maxmargin.predictors.declared import estimator
from maxmargin.solvers.loop import Stopping
from maxmargin.structures.graph.formats import node_features, node_values, stack_graphs
from maxmargin.structures.graph.oracle import METHODS, GraphLayout, GraphOracle, Graphs
from maxmargin.structures.graph.predictor import GraphLabelerPredictor, graphs_alike, parts_of
from maxmargin.training.fit import (
    Encoded,
    Metadata,
    partial_fit_classes,
    runs_on_shards,
    survey_classes,
)

FRACTION_OF_TOL = 0.1
"""Fraction of `tol` that the bounds of relaxed inference may take up in a fit."""


@estimator
class GraphLabeler(GraphLabelerPredictor, ExampleEstimator):
    """Labels for the nodes of graphs: a structural SVM with a certificate of optimality.

    The score of a labelling is the sum over nodes of their features with their label, and over
    edges of their features with the pair of labels at their ends. Minimises ``1/2 |w|^2 + C * sum_i
    weight_i * hinge_i(w)`` over graphs.

    Graphs come as tuples ``(node_features, edges)`` or ``(node_features, edges, edge_features)``,
    edges as pairs of node numbers; or as networkx graphs with features of nodes, and perhaps of
    edges, in the attribute ``x``. Edges without features have one, which is constant.

    Parameters
    ----------
    loss : {"hamming", "hamming-normalized"} or array-like, default="hamming"
        Number of wrong nodes; their fraction of the graph; or costs ``loss[true, predicted]``,
        classes sorted (also as dictionary ``{(true, predicted): cost}``), summed over the nodes.
    directed : bool, default=False
        Whether it matters which node of an edge comes first. If not, a pair of labels has one
        weight in either order.
    fit_intercept : bool, default=True
        A bias for each label.
    inference_method : {"auto", "exact", "relaxed", "flow"}, default="auto"
        How the best labels are found; see Notes.
    void : label, default=None
        Stands in `y` for unknown labels. `fit` leaves these nodes out, with their edges, `score`
        does not count them, and `predict` labels all nodes.
    rescaling : {"margin", "slack"}, default="margin"
        See `StructuredSVM`. Inference for "slack" is not exact, but its suboptimality is bounded.
    tol : float or AbsoluteGap, default=0.1
        Relative duality gap that is good enough, or an absolute one: held-out scores are no better
        at smaller ones.

    See Also
    --------
    SequenceTagger : Chains, whose inference is faster.
    StructuredSVM : Any other structure.

    Notes
    -----
    Exact inference, by elimination, takes ``n_classes ** (treewidth + 1)`` steps a node, so it is
    for graphs without cycles and others of small treewidth. Relaxed inference finds good labels and
    an upper bound on all scores. The certificate counts the bounds, so it stays valid, but no
    training can close what they miss, and a fit may end with the status "relaxed" and a warning.
    Flow (minimum cuts) is exact on any graph with two classes and submodular (attractive) pairwise
    potentials, and falls back to relaxed on others.

    "auto" is exact where that costs no more than relaxed inference, else flow, else relaxed;
    "exact" is exact or an error.

    Examples
    --------
    A ring of four nodes, the last of which says little by itself:

    >>> import numpy as np
    >>> import maxmargin as mm
    >>> ring = [(0, 1), (1, 2), (2, 3), (3, 0)]
    >>> X = [(np.array([[1.0], [0.8], [0.9], [0.0]]), ring)]
    >>> X += [(np.array([[-1.0], [-0.8], [-0.9], [0.0]]), ring)]
    >>> y = [["land"] * 4, ["sea"] * 4]
    >>> labeler = mm.GraphLabeler(C=10.0).fit(X, y)
    >>> labeler.predict([(np.array([[1.0], [1.0], [-0.1], [0.5]]), ring)])[0].tolist()
    ['land', 'land', 'land', 'land']
    """

    loss: Any = "hamming"
    directed: bool = False
    fit_intercept: bool = True
    void: Any = None
    tol: float | AbsoluteGap = 0.1

    _parameter_constraints = {
        "loss": [StrOptions({"hamming", "hamming-normalized"}), "array-like", dict],
        "inference_method": [StrOptions(set(METHODS))],
        "void": "no_validation",
    }

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sample_weight: ArrayLike | None = None,
        node_weight: Any = None,
    ) -> Self:
        """Train on graphs and the labels of their nodes."""
        if node_weight is not None and runs_on_shards(self):
            raise ValueError("node_weight needs all data in one process: use engine='threads'.")
        return self._fit(X, y, sample_weight, node_weight=node_weight)

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: ArrayLike | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        node_weight: Any = None,
    ) -> Self:
        """Learn from some more graphs, without those of earlier calls."""
        all_classes = partial_fit_classes(self, classes)
        return self._partial_fit(X, y, sample_weight, all_classes, node_weight=node_weight)

    def _encode(
        self, X: Any, Y: Any, metadata: Metadata | None, node_weight: Any = None
    ) -> Encoded:
        if Y is None:
            raise ValueError("y is missing: give the labels of the nodes of each graph.")
        graphs = Graphs(*stack_graphs(X)) if metadata is None else graphs_alike(X, metadata)
        labels = _of_nodes(Y, X, graphs, "labels", self.void)
        factors = np.ones(len(labels))
        if node_weight is not None:
            weights = _of_nodes(node_weight, X, graphs, "node weights")
            factors = check_per_sample(weights, len(labels), "node_weight", "weights")
        known = self._known(labels)
        graphs, labels, factors = graphs.keeping(known), labels[known], factors[known]
        return Encoded(graphs, labels, graphs.n_graphs, factors)

    def _survey(self, source: Source) -> Metadata:
        labels = [self._encode(X, y, None).y for X, y in source.batches() if len(y)]
        found = [np.unique(some) for some in labels if len(some)]
        classes = np.unique(np.concatenate(found)) if found else np.zeros(0)
        return survey_classes(self, source, classes)

    def _metadata(self, examples: Encoded, classes: NDArray[Any] | None) -> Metadata:
        if not len(examples.y):
            raise ValueError("X holds no labelled nodes: there is nothing to learn from.")
        classes = np.unique(examples.y) if classes is None else classes
        layout = GraphLayout.of(
            examples.X.X.shape[1],
            examples.X.edge_rows.shape[1],
            len(classes),
            bias=self.fit_intercept,
            directed=self.directed,
        )
        return {
            "classes_": classes,
            "n_features_in_": layout.n_features,
            "n_edge_features_in_": layout.n_edge_features,
            "_layout": layout,
        }

    def _oracle(self, examples: Encoded, C: Floats, metadata: Metadata) -> Oracle:
        graphs, labels, _, factors = examples
        named = isinstance(self.loss, str)
        if named and self.loss == "hamming-normalized":
            factors = factors / np.repeat(graphs.n_nodes, graphs.n_nodes)
        losses = check_loss_matrix(None if named else self.loss, metadata["classes_"])
        # No objective is above that of weights of zero, with the worst label at every node.
        highest = float(C.max(initial=0.0) * factors.sum() * losses.max())
        oracle = GraphOracle(
            graphs,
            class_numbers(labels, metadata["classes_"], flat=True),
            metadata["_layout"],
            C,
            losses,
            factors,
            inference_method=self.inference_method,
            enough=FRACTION_OF_TOL * Stopping.within(self.tol).relative_tol(highest),
        )
        return self._rescaled(oracle)

    def _fitted(self, metadata: Metadata, weights: Floats) -> dict[str, Any]:
        return metadata | {"_weights": weights, **parts_of(weights, metadata["_layout"])}

    def _check_names(self, X: Any, *, reset: bool) -> None:
        check_names(self, node_features(X), reset)

    def score(self, X: Any, y: Any) -> float:
        """Fraction of nodes whose label is right; labels not seen in training are mistakes."""
        graphs = self._checked(X)
        y_true = _of_nodes(y, X, graphs, "labels", self.void)
        known = self._known(y_true)
        right = self.classes_[self._infer_best(graphs)[0]] == y_true
        return float(np.mean(right[known])) if known.any() else 1.0

    def _known(self, labels: NDArray[Any]) -> NDArray[np.bool_]:
        """Nodes whose label is not void."""
        return np.asarray(labels != self.void) & np.ones(len(labels), dtype=bool)


def _of_nodes(values: Any, X: Any, graphs: Graphs, what: str, void: Any = None) -> NDArray[Any]:
    """Checked values of all nodes, concatenated; `void` may be of another kind."""
    if len(values) != graphs.n_graphs:
        raise ValueError(
            f"X has {graphs.n_graphs} graphs but there are {what} for {len(values)}: give them for "
            f"each."
        )
    parts = []
    for i, (part, n_nodes) in enumerate(zip(values, graphs.n_nodes.tolist(), strict=True)):
        array = node_values(part, X[i], i, what, void)
        if array.shape != (n_nodes,):
            count = len(array) if array.ndim == 1 else f"the shape {array.shape} of"
            raise ValueError(
                f"Graph {i} has {n_nodes} nodes but {count} {what}: give one for each."
            )
        parts.append(array)
    return flat_labels(parts, "y", void)
