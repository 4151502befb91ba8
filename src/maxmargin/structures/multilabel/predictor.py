"""How a multi-label classifier predicts."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.arrays import Floats
from maxmargin.core.inputs import check_k
from maxmargin.core.oracle import Threads
from maxmargin.predictors.base import check_classes
from maxmargin.predictors.declared import estimator, fitted
from maxmargin.structures.multilabel.problem import LabelSets
from maxmargin.structures.rows.oracle import Codes
from maxmargin.structures.rows.predictor import RowPredictor


@estimator
class MultilabelClassifierPredictor(RowPredictor):
    """What a fitted `MultilabelClassifier` has learned, and how it predicts.

    Attributes
    ----------
    classes_ : ndarray of shape (n_labels,)
        The labels: column numbers, names of columns, or members of sets, as `y` came.
    coef_ : ndarray of shape (n_labels, n_features)
    intercept_ : ndarray of shape (n_labels,)
        Zeros where not fitted.
    edges_ : ndarray of shape (n_edges, 2)
        Pairs that are scored together, as places in `classes_`.
    pair_coef_ : ndarray of shape (n_edges, 2, 2)
        ``pair_coef_[e, s, t]`` is added when the labels of edge ``e`` are s and t, 1 for on.
    """

    _arguments = """
    y : {array-like, sparse matrix} of shape (n_samples, n_labels), or list of sets
        Zeros and ones, one column a label; or the labels of each example, as a set, or as a list of
        strings. In the same form in all calls.
    classes : array-like of shape (n_labels,), default=None
        All labels that will ever come; needed in the first call of `partial_fit` if `y` holds sets.
        A matrix has a column for each.
    """

    _problem: LabelSets = fitted()
    _sets: bool = fitted()
    coef_: Floats = fitted()
    intercept_: Floats = fitted()
    pair_coef_: Floats = fitted()
    edges_: NDArray[np.int64] = fitted()

    def _check_fitted(self) -> None:
        super()._check_fitted()
        check_classes(self.classes_, self._problem.code_width)
        _ = self._sets

    def predict(self, X: Any) -> Any:
        """The best set of labels of each example.

        Returns
        -------
        y : ndarray of shape (n_samples, n_labels) or list of sets
            Zeros and ones, or sets if trained on sets.
        """
        gains, bonus = self._reduced(X)
        return self._named(self._best(gains, bonus))

    def decision_function(self, X: Any) -> Floats:
        """How much better the best set with a label is than the best without it.

        Positive where `predict` has the label. For independent labels that is the label's score.

        Returns
        -------
        margins : ndarray of shape (n_samples, n_labels)
            The higher, the surer.
        """
        gains, bonus = self._reduced(X)
        if not len(bonus):
            return gains
        graph = self._problem.graph
        couplings = graph.couplings(bonus)
        best = self._best(gains, bonus)
        highest = graph.scores(best, gains, bonus)
        margins = np.empty(gains.shape)
        for label, column in enumerate(best.T):
            # Given that a label is on, its partners gain what they have in common with it. Then,
            # as when it is off, it can be left out.
            on = 1 - column[:, None]
            others = gains + on * couplings[label]
            others[:, label] = -np.inf
            found = self._best(others, bonus)
            others[:, label] = 0.0
            other = graph.scores(found, others, bonus) + on[:, 0] * gains[:, label]
            margins[:, label] = np.where(column == 1, highest - other, other - highest)
        return margins

    def predict_k_best(self, X: Any, k: int) -> list[list[tuple[Any, float]]]:
        """The k best sets of labels of each example with their scores, best first.

        For at most 18 labels: all sets are scored.

        Returns
        -------
        k_best : list of lists of (labels, score)
            Labels as in `predict`. Fewer than k where there are fewer sets.
        """
        k, potentials = check_k(k), self._potentials(X)
        found = self._problem.top_of(*potentials, k)
        return [
            list(zip(self._named(sets), totals.tolist(), strict=True)) for sets, totals in found
        ]

    def _reduced(self, X: Any) -> tuple[Floats, Floats]:
        """Gains of labels and bonuses of edges."""
        potentials = self._potentials(X)
        return self._problem.reduced(*potentials)

    def _best(self, gains: Floats, bonus: Floats) -> Codes:
        with Threads(self.n_jobs) as threads:
            parts = threads.shares(len(gains))
            graph = self._problem.graph
            return np.concatenate(threads.map(lambda part: graph.best(gains[part], bonus), parts))

    def _named(self, codes: Codes) -> Any:
        if not self._sets:
            return codes
        return [set(self.classes_[row == 1].tolist()) for row in codes]
