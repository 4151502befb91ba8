"""MultilabelClassifier: any number of labels for each example."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils._param_validation import StrOptions

from maxmargin.core.arrays import Floats
from maxmargin.core.inputs import all_classes, label_array
from maxmargin.predictors.checks import check_features
from maxmargin.predictors.declared import estimator
from maxmargin.structures.multilabel.inference import LOSSES
from maxmargin.structures.multilabel.predictor import MultilabelClassifierPredictor
from maxmargin.structures.multilabel.problem import LabelSets, chow_liu_tree
from maxmargin.structures.rows.estimator import RowEstimator
from maxmargin.structures.rows.oracle import Codes
from maxmargin.training.fit import Encoded, Metadata, known_metadata, runs_on_shards

Edges = NDArray[np.int64]


@estimator
class MultilabelClassifier(ClassifierMixin, MultilabelClassifierPredictor, RowEstimator):
    """Sets of labels, on their own or scored in pairs, with a certificate of optimality.

    A set scores the sum of ``<coef_[l], x> + intercept_[l]`` over its labels, and for each edge of
    `graph` the weight of what its two labels are together. Minimises ``1/2 |w|^2 + C * sum_i
    weight_i * hinge_i(w)``. Inference is exact.

    Parameters
    ----------
    graph : {"independent", "tree", "full"} or list of pairs, default="tree"
        Pairs of labels that are scored together: none; the Chow-Liu tree of the training data (of
        a source and in `partial_fit`, of the first batch); all; or those given, by label. Loopy
        graphs may have at most 18 labels.
    loss : {"hamming", "f1", "zero-one"}, default="hamming"
        Number of wrong labels; ``1 - F1`` of the true and the predicted set, 0 if both are empty;
        one for any mistake.
    fit_intercept : bool, default=True
        An intercept for each label. The tables of edges act as such, too.

    See Also
    --------
    LinearClassifier : One label for each example.

    Notes
    -----
    An oracle call takes ``O(L)`` for L labels with the Hamming loss, without edges as in trees;
    with the F1 loss and T true labels ``O(T (L - T))`` without edges, at most its square in trees.
    Loopy graphs are solved by branch and bound over all sets.

    Examples
    --------
    >>> import maxmargin as mm
    >>> X = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [-1.0, -1.0]]
    >>> y = [{"beach"}, {"town"}, {"beach", "town"}, set()]
    >>> model = mm.MultilabelClassifier(C=10.0).fit(X, y)
    >>> [sorted(labels) for labels in model.predict(X)]
    [['beach'], ['town'], ['beach', 'town'], []]
    """

    graph: Any = "tree"
    loss: str = "hamming"
    fit_intercept: bool = True

    _parameter_constraints = {
        "graph": [StrOptions({"independent", "tree", "full"}), "array-like"],
        "loss": [StrOptions(set(LOSSES))],
    }

    def _all_classes(self, classes: ArrayLike | None, y: Any) -> NDArray[Any] | None:
        if known_metadata(self) is not None or holds_sets(y):
            return super()._all_classes(classes, y)
        return None if classes is None else all_classes(classes, _columns(y))

    def _items(self, X: Any, y: Any, examples: Encoded, **others: Any) -> tuple[Any, Any]:
        return examples.X, y if runs_on_shards(self) else examples.y

    def _encode(self, X: Any, y: Any, metadata: Metadata | None) -> Encoded:
        X = check_features(X, type(self).__name__)
        sets = holds_sets(y)
        if metadata is not None and sets != metadata["_sets"]:
            forms = "matrix", "list of sets"
            raise ValueError(
                f"y is a {forms[sets]}, but was a {forms[not sets]} before: keep to one form."
            )
        if sets:
            _check_sets(y)
        labels = y if sets else from_matrix(y)
        if X.shape[0] != len(labels):
            raise ValueError(
                f"X has {X.shape[0]} rows but y has {len(labels)}: give one set for each."
            )
        return Encoded(X, labels, len(labels), None if sets else _columns(y))

    def _metadata(self, examples: Encoded, classes: NDArray[Any] | None) -> Metadata:
        sets = examples.extra is None
        if not sets:
            classes = examples.extra
        elif classes is None:
            classes = _members(examples.y)
        edges = self._edges(examples, classes)
        n_features = examples.X.shape[1]
        problem = LabelSets(n_features, len(classes), edges, self.loss, self.fit_intercept)
        return {"classes_": classes, "edges_": edges, "_problem": problem, "_sets": sets}

    def _fitted(self, metadata: Metadata, weights: Floats) -> dict[str, Any]:
        coef, intercept = metadata["_problem"].coefficients(weights)
        tables = metadata["_problem"].split(weights)[1]
        return metadata | {
            "coef_": coef,
            "intercept_": intercept,
            "pair_coef_": tables.reshape(-1, 2, 2).copy(),
            "_weights": weights,
        }

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Fraction of examples whose set is right as a whole, as in scikit-learn."""
        gains, bonus = self._reduced(X)
        if holds_sets(y):
            y_true, known = _from_sets(y, self.classes_)
        else:
            y_true = from_matrix(y)
            known = np.ones(len(y_true), dtype=bool)
        if y_true.shape != gains.shape:
            raise ValueError(
                f"y has the shape {y_true.shape}, but for this X and the labels of the training "
                f"data it must have {gains.shape}."
            )
        right = known & (self._best(gains, bonus) == y_true).all(axis=1)
        return float(np.average(right, weights=sample_weight))

    def _codes(self, examples: Encoded, classes: NDArray[Any]) -> Codes:
        if examples.extra is None:
            codes, known = _from_sets(examples.y, classes)
            if not known.all():
                i = int(np.flatnonzero(~known)[0])
                label = next(label for label in examples.y[i] if label not in classes)
                raise ValueError(
                    f"y[{i}] holds {label!r}, which is not one of the classes {classes.tolist()}."
                )
            return codes
        if not np.array_equal(examples.extra, classes):
            raise ValueError(
                f"y has the columns {examples.extra.tolist()}, but those before were "
                f"{classes.tolist()}: they must stay the same."
            )
        return np.asarray(examples.y)

    def _edges(self, examples: Encoded, classes: NDArray[Any]) -> Edges:
        """Edges of the graph asked for."""
        n_labels = len(classes)
        if isinstance(self.graph, str):
            if self.graph == "tree":
                return chow_liu_tree(self._codes(examples, classes))
            pairs = np.triu_indices(n_labels if self.graph == "full" else 0, 1)
            return np.column_stack(pairs).astype(np.int64)
        places = {label: place for place, label in enumerate(classes.tolist())}
        edges: list[tuple[int, int]] = []
        for pair in np.asarray(self.graph).tolist():
            if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
                raise ValueError(f"graph must be a list of pairs of labels, but holds {pair!r}.")
            missing = [label for label in pair if label not in places]
            if missing:
                raise ValueError(f"graph names {missing[0]!r}, which is no label of y.")
            a, b = sorted(places[label] for label in pair)
            if a == b or (a, b) in edges:
                what = "a label with itself" if a == b else "a pair for the second time"
                raise ValueError(f"graph holds {what}, {tuple(pair)!r}: leave it out.")
            edges.append((a, b))
        return np.array(edges, dtype=np.int64).reshape(-1, 2)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.multi_label = True
        tags.target_tags.two_d_labels = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        return tags


def holds_sets(y: Any) -> bool:
    """Whether `y` is a list of label sets rather than a matrix."""
    if sp.issparse(y) or hasattr(y, "columns") or not hasattr(y, "__iter__"):
        return False
    if np.dtype(getattr(y, "dtype", object)).kind != "O":
        return False
    members = [labels for labels in y if isinstance(labels, Collection)]
    if members and not any(map(len, members)):
        return True
    return any(isinstance(labels, set | frozenset) for labels in members) or any(
        isinstance(label, str) for labels in members for label in labels
    )


def _columns(y: Any) -> NDArray[Any]:
    """Labels of a matrix: the names of its columns, or their numbers."""
    return label_array(getattr(y, "columns", np.arange(np.shape(y)[1])), "The columns of y")


def _check_sets(y: Sequence[Any]) -> None:
    for i, labels in enumerate(y):
        if isinstance(labels, str) or not isinstance(labels, Collection):
            raise ValueError(
                f"y[{i}] is {labels!r:.80}, but must be a set of labels, as the others are."
            )


def _members(y: Sequence[Any]) -> NDArray[Any]:
    """All labels in the sets, sorted."""
    members = list({label for labels in y for label in labels})
    if not members:
        raise ValueError("All sets in y are empty: there is nothing to learn from.")
    return np.unique(label_array(members))


def _from_sets(y: Sequence[Any], classes: NDArray[Any]) -> tuple[Codes, NDArray[np.bool_]]:
    """Sets as rows of zeros and ones, and whether all labels of each are known."""
    places = {label: place for place, label in enumerate(classes.tolist())}
    codes = np.zeros((len(y), len(classes)), dtype=np.int32)
    known = np.ones(len(y), dtype=bool)
    for i, labels in enumerate(y):
        for label in labels:
            if label in places:
                codes[i, places[label]] = 1
            else:
                known[i] = False
    return codes, known


def from_matrix(y: Any) -> Codes:
    """A matrix of zeros and ones, checked."""
    try:
        matrix = np.asarray(y.toarray() if sp.issparse(y) else y)
        codes = matrix.astype(np.int32)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "y must be a matrix of zeros and ones with a column for each label, or a list of sets "
            "of labels."
        ) from error
    if codes.ndim != 2 or not codes.size:
        raise ValueError(
            f"y must be a matrix of zeros and ones with a column for each label, but has the "
            f"shape {codes.shape}."
        )
    odd = np.argwhere((codes != matrix) | (codes < 0) | (codes > 1))
    if len(odd):
        i, label = odd[0]
        raise ValueError(
            f"y[{i}, {label}] is {matrix[i, label]}, but must be 0 or 1; to give labels by name "
            f"or number, use sets."
        )
    return codes
