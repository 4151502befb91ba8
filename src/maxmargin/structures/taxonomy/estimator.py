"""HierarchicalClassifier: classes in a tree."""

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray
from sklearn.utils._param_validation import StrOptions

from maxmargin.core.arrays import Floats
from maxmargin.core.inputs import check_loss_matrix
from maxmargin.predictors.declared import estimator
from maxmargin.structures.rows.estimator import RowClassifier
from maxmargin.structures.taxonomy.predictor import HierarchicalClassifierPredictor
from maxmargin.structures.taxonomy.problem import Hierarchy, Taxonomy
from maxmargin.training.fit import Encoded, Metadata


@estimator
class HierarchicalClassifier(HierarchicalClassifierPredictor, RowClassifier):
    """Classes of a taxonomy with weights for every node, and a certificate of optimality.

    A class scores the sum of ``<w_node, x>`` over the nodes on its path from the root, so that
    close classes share the weights of their common ancestors. Minimises ``1/2 |w|^2 + C * sum_i
    weight_i * hinge_i(w)``.

    Parameters
    ----------
    taxonomy : dict, list of str or "auto", default="auto"
        ``{child: parent}``; nested ``{node: {child: {...}}}``, the innermost also as lists; a list
        of paths such as "a/b/c" (or "a.b.c" if none has a slash), the names of the classes; "auto"
        takes the classes in `y` for such paths. Several trees get a common root. Nodes above no
        class in `y` are left out.
    loss : {"tree", "zero-one"} or array-like, default="tree"
        Length of the path between the classes; one for any mistake; or ``loss[true, predicted]``,
        classes sorted (also as dictionary ``{(true, predicted): loss}``).
    edge_lengths : dict, default=None
        Length of the edge from a node to its parent (or the common root), 1 where left out.
    fit_intercept : bool, default=True
        An intercept for every node.

    See Also
    --------
    LinearClassifier : Classes on their own.

    Examples
    --------
    >>> import maxmargin as mm
    >>> X = [[1.0, 0.1], [0.9, -0.1], [-1.0, 0.8], [-0.9, -0.9]]
    >>> y = ["sci.med", "sci.space", "rec.autos", "rec.sport"]
    >>> model = mm.HierarchicalClassifier(C=10.0).fit(X, y)
    >>> model.nodes_
    ['rec', 'rec.autos', 'rec.sport', 'sci', 'sci.med', 'sci.space']
    >>> model.predict([[-1.0, 1.0]]).tolist()
    ['rec.autos']
    """

    taxonomy: Any = "auto"
    loss: Any = "tree"
    edge_lengths: Mapping[Any, float] | None = None
    fit_intercept: bool = True

    _parameter_constraints = {
        "taxonomy": [StrOptions({"auto"}), dict, "array-like"],
        "loss": [StrOptions({"tree", "zero-one"}), "array-like", dict],
        "edge_lengths": [dict, None],
    }

    def _metadata(self, examples: Encoded, classes: NDArray[Any] | None) -> Metadata:
        classes = self._found_classes(examples.y, classes)
        tree = Taxonomy.of(self.taxonomy, classes.tolist())
        loss_matrix = self._losses(tree, classes)
        return {
            "classes_": classes,
            "nodes_": tree.nodes,
            "parents_": tree.parents,
            "loss_matrix_": loss_matrix,
            "_problem": Hierarchy(examples.X.shape[1], tree, loss_matrix, self.fit_intercept),
        }

    def _fitted(self, metadata: Metadata, weights: Floats) -> dict[str, Any]:
        problem = metadata["_problem"]
        paths = problem.taxonomy.paths
        of_nodes, intercepts = problem.coefficients(weights)
        return metadata | {
            "node_coef_": of_nodes,
            "coef_": paths @ of_nodes,
            "intercept_": paths @ intercepts,
            "_weights": weights,
        }

    def _losses(self, tree: Taxonomy, classes: NDArray[Any]) -> Floats:
        if isinstance(self.loss, str) and self.loss == "tree":
            return tree.distances(self.edge_lengths)
        if self.edge_lengths is not None:
            raise ValueError("edge_lengths are for loss='tree': leave them out.")
        return check_loss_matrix(None if isinstance(self.loss, str) else self.loss, classes)
