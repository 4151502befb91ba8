"""PerformanceClassifier: two classes, trained for F1, ROC area or precision among the first k."""

import warnings
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, _fit_context
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from maxmargin.core.arrays import Floats
from maxmargin.core.inputs import check_bias, check_costs, check_lengths
from maxmargin.core.oracle import Oracle
from maxmargin.estimators.checks import check_labels
from maxmargin.estimators.structured import StructuredEstimator
from maxmargin.predictors.checks import check_features
from maxmargin.predictors.declared import estimator
from maxmargin.structures.performance.predictor import PerformanceClassifierPredictor
from maxmargin.structures.performance.problem import AT_K, TABLE_LOSSES, Measure, TableOracle
from maxmargin.structures.ranking.oracle import PairOracle
from maxmargin.training.fit import make_solver, train_oracle

Flags = NDArray[np.bool_]

NOTHING = 0.01
"""Part of the objective at zero weights by which a fit must improve it, or warn."""


@estimator
class PerformanceClassifier(ClassifierMixin, PerformanceClassifierPredictor, StructuredEstimator):
    """Linear SVM for two classes, trained for a measure of the whole data set.

    Minimises ``1/2 |w|^2 + C * n * hinge(w)`` with one hinge for the labelling of all n rows
    (Joachims 2005), an upper bound of what the measure lacks of its best value on the training
    data. With ``loss="error"`` the model is that of `LinearClassifier` at the same C.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the hinge for each row. SVM-perf's ``-c`` is ``C * n / 100``.
    loss : {"f1", "auc", "error", "precision@k", "recall@k", "break-even"}, default="f1"
        One less the F measure, or the area under the ROC curve; the fraction of errors; what
        precision or recall lack among the k highest rows, or among as many as are positive.
    beta : float, default=1.0
        For "f1": recall counts `beta` times as much as precision.
    k : int or float, default=None
        For "precision@k" and "recall@k", which need it: a number of rows, or a fraction of them.
    pos_label : label, default=None
        The class that is positive; None means the larger of the two.
    fit_intercept : bool, default=True
        A threshold: for "f1" and "error" the weight of a constant feature; for "auc" set so that
        the fewest training rows are wrong, for the others so that k are predicted positive.
    intercept_scaling : float, default=1.0
        Value of the constant feature, whose weight is regularised as any other.
    solver : str or solver object, default="one-slack"
        See `StructuredSVM`. With one hinge, "n-slack" is the same problem.
    n_jobs : int, default=None
        Not used: there is one oracle call at a time.
    random_state : int, RandomState instance or None, default=0
        Not used by the default solver.

    See Also
    --------
    LinearClassifier : Errors counted row by row, several classes, weights of rows.
    Ranker : The same for many short lists.

    Notes
    -----
    With k rows predicted positive, the hinge compares the mean of the negatives among them with
    that of the positives left out (Kar, Narasimhan and Jain 2015). For k below the number of
    positives and noisy data, zero weights may be optimal; a warning says so.

    Examples
    --------
    >>> import maxmargin as mm
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = X / X.max(axis=0)
    >>> model = mm.PerformanceClassifier(loss="f1", C=10.0).fit(X, y)
    >>> model.score(X, y) > 0.95
    True
    """

    loss: str = "f1"
    beta: float = 1.0
    k: float | None = None
    pos_label: Any = None
    fit_intercept: bool = True
    intercept_scaling: float = 1.0
    solver: Any = "one-slack"

    _parameter_constraints = {
        "loss": [StrOptions(TABLE_LOSSES | {"auc"})],
        "beta": [Interval(Real, 0, None, closed="neither")],
        "k": [
            Interval(Integral, 1, None, closed="left"),
            Interval(Real, 0, 1, closed="neither"),
            None,
        ],
        "pos_label": [object],
        "intercept_scaling": [Interval(Real, 0, None, closed="neither")],
    }

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: ArrayLike, sample_weight: None = None) -> Self:
        """Train on rows and their classes.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            Two classes, numbers or strings.
        sample_weight : None
            Refused: the measures count rows.
        """
        if sample_weight is not None:
            raise ValueError(
                "PerformanceClassifier takes no sample_weight, because its measures count rows: "
                "leave it out, or use LinearClassifier."
            )
        if (self.k is None) == (self.loss in ("precision@k", "recall@k")):
            raise ValueError(
                f"loss={self.loss!r} {'needs' if self.k is None else 'takes no'} k: it is for "
                f"'precision@k' and 'recall@k'."
            )
        if self.beta != 1.0 and self.loss != "f1":
            raise ValueError(f"loss={self.loss!r} takes no beta: it is for 'f1'.")
        given, X = X, check_features(X, type(self).__name__)
        classes, y_positive, positive = self._classes(X, y)
        n, d = X.shape
        C, ends = check_costs(np.array([float(self.C) * n])), np.array([0, n])
        learns_bias = self.fit_intercept and self.loss in ("f1", "error")
        bias = float(self.intercept_scaling) if learns_bias else 0.0
        check_bias(bias)
        oracle: Oracle
        if self.loss == "auc":
            oracle = PairOracle(X, positive.astype(np.float64), ends, C)
        else:
            measure = Measure(self.loss, self.beta, self.k)
            if self.loss in AT_K:
                measure.rows_called(n, int(positive.sum()))  # k may be too large
            oracle = TableOracle(X, positive, ends, C, measure, bias)

        def attributes(weights: Floats) -> dict[str, Any]:
            intercept = 0.0
            if learns_bias:
                intercept = bias * weights[-1]
            elif self.fit_intercept:
                intercept = -self._threshold(np.ravel(X @ weights[:d]), positive)
            return {
                "classes_": classes,
                "pos_label_": y_positive,
                "coef_": weights[None, :d],
                "intercept_": np.array([intercept]),
                "n_features_in_": d,
            }

        train_oracle(self, make_solver(self.solver), oracle, X, y, attributes)
        validate_data(self, given, skip_check_array=True)
        without = oracle.primal(np.zeros(oracle.n_features))
        if self.loss in AT_K and self.certificate_.dual >= (1.0 - NOTHING) * without:
            warnings.warn(
                f"No weights promise a better {self.loss} than zero weights do: take a larger C, "
                f"a k of at least the number of positive rows, or another loss.",
                stacklevel=3,
            )
        return self

    def score(self, X: Any, y: ArrayLike, sample_weight: None = None) -> float:
        """The measure that was trained for: 1 is best.

        For "error" the accuracy; for "precision@k" and "recall@k" that of the k rows (or that
        fraction) with the highest scores; for "break-even" of as many as are positive in `y`.

        Parameters
        ----------
        sample_weight : None
            Refused: the measures count rows.
        """
        if sample_weight is not None:
            raise ValueError("The measures of PerformanceClassifier count rows: no sample_weight.")
        from sklearn.metrics import fbeta_score, roc_auc_score

        scores = self.decision_function(X)
        y_true = np.asarray(y)
        check_lengths(scores, y_true)
        positive = y_true == self.pos_label_
        if self.loss == "error":
            return float(np.mean(self.predict(X) == y_true))
        if self.loss == "f1":
            return float(fbeta_score(positive, scores > 0.0, beta=self.beta))
        if not positive.any() or (self.loss == "auc" and positive.all()):
            raise ValueError(
                f"y must hold {'both classes' if positive.any() else 'positive rows'}."
            )
        if self.loss == "auc":
            return float(roc_auc_score(positive, scores))
        n_positive = int(np.count_nonzero(positive))
        called = Measure(self.loss, k=self.k).rows_called(len(y_true), n_positive)
        hits = np.count_nonzero(positive[np.argsort(-scores, kind="stable")[:called]])
        return float(hits / (n_positive if self.loss == "recall@k" else called))

    def _classes(self, X: Any, y: Any) -> tuple[NDArray[Any], Any, Flags]:
        """The two classes, the positive one, and which rows are positive."""
        name = type(self).__name__
        labels = check_labels(y, name)
        check_lengths(X, labels)
        check_classification_targets(labels)
        classes = np.unique(labels)
        if len(classes) != 2:
            raise ValueError(
                f"{name} needs two classes, but y holds {len(classes)} "
                f"{'class' if len(classes) == 1 else 'classes'}: check how y was made, or use "
                f"LinearClassifier for more than two (Only binary classification is supported)."
            )
        if self.pos_label is not None and self.pos_label not in classes:
            first, second = classes.tolist()
            raise ValueError(
                f"pos_label is {self.pos_label!r}, but y holds {first!r} and {second!r}."
            )
        y_positive = classes[1] if self.pos_label is None else self.pos_label
        return classes, y_positive, labels == y_positive

    def _threshold(self, scores: Floats, positive: Flags) -> float:
        """Score above which rows are called positive, for losses that do not depend on it."""
        order = np.argsort(-scores, kind="stable")
        falling = scores[order]
        if self.loss == "auc":
            right = np.where(positive[order], 1, -1)
            gained = np.concatenate([[0], np.cumsum(right)])
            # A cut among equal scores cannot be made.
            gained[1:-1][falling[1:] == falling[:-1]] = -len(scores)
            called = int(np.argmax(gained))
        else:
            called = Measure(self.loss, k=self.k).rows_called(len(scores), int(positive.sum()))
        if called == 0:
            return float(falling[0])
        if called == len(scores):
            return float(falling[-1]) - 1.0
        return 0.5 * float(falling[called - 1] + falling[called])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = False
        return tags
