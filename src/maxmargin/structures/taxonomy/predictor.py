"""How a hierarchical classifier predicts."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.arrays import Floats
from maxmargin.predictors.declared import estimator, fitted
from maxmargin.structures.rows.predictor import RowClassifierPredictor


@estimator
class HierarchicalClassifierPredictor(RowClassifierPredictor):
    """What a fitted `HierarchicalClassifier` has learned, and how it predicts.

    Attributes
    ----------
    nodes_ : list of length n_nodes
        Names of the nodes, each after its parent.
    parents_ : ndarray of shape (n_nodes,)
        Number of each node's parent, -1 at the top.
    node_coef_ : ndarray of shape (n_nodes, n_features)
        Weights of the nodes.
    coef_ : ndarray of shape (n_classes, n_features)
        Weights of the classes, summed over their paths.
    intercept_ : ndarray of shape (n_classes,)
        The same for intercepts; zeros where not fitted.
    loss_matrix_ : ndarray of shape (n_classes, n_classes)
        Loss of predicting the column's class where the row's is true.
    """

    nodes_: list[Any] = fitted()
    parents_: NDArray[np.int64] = fitted()
    node_coef_: Floats = fitted()
    intercept_: Floats = fitted()
