"""Ranker: the order of the documents of a query."""

import warnings
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import column_or_1d, validate_data

from maxmargin.core.arrays import Floats
from maxmargin.core.cuts import starts_of
from maxmargin.core.inputs import as_floats, check_lengths
from maxmargin.core.oracle import Oracle
from maxmargin.estimators.structured import RescaledEstimator
from maxmargin.predictors.checks import check_features, one_sentence
from maxmargin.predictors.declared import estimator
from maxmargin.structures.ranking.predictor import RankerPredictor, query_rows
from maxmargin.structures.ranking.problem import LIST_LOSSES, PAIR_LOSSES, RankingProblem, ndcg
from maxmargin.training.fit import (
    Encoded,
    Metadata,
    fit_oracle,
    known_metadata,
    oracle_of,
    partial_fit,
)

MOST_RELEVANCE = 1000.0
"""Higher relevance would have an infinite gain."""


@estimator
class Ranker(RankerPredictor, RescaledEstimator):
    """Learning to rank with a linear score, with a certificate of optimality.

    Minimises ``1/2 |w|^2 + C * sum_q weight_q * hinge_q(w)`` over queries ``q``. Losses are at most
    1, so that queries count alike, however many documents or pairs they have.

    Parameters
    ----------
    loss : {"pairwise", "ndcg", "map", "auc", "precision@k"}, default="pairwise"
        The fraction of pairs of different relevance in the wrong order, each with a hinge of its
        own; or one less the NDCG, the average precision, the area under the ROC curve, or the
        precision among the first k over the highest possible.
    k : int, default=None
        Ranks that count, for "ndcg" (None: all) and "precision@k", which needs it.
    threshold : float, default=1.0
        Relevance from which on a document is relevant, for "map", "auc" and "precision@k".
    rescaling : {"margin", "slack"}, default="margin"
        See `StructuredSVM`. For "slack", inference is not exact, but its suboptimality is bounded,
        and pairs have no hinges of their own: the fraction of wrong ones multiplies the violation
        of the query.

    See Also
    --------
    maxmargin.structures.ranking.problem.RankingProblem : The losses and their oracles.
    maxmargin.structures.ranking.formats.read_letor : Reads data sets for ranking.
    PerformanceClassifier : One long list of positives and negatives.

    Notes
    -----
    `groups` are either the query of each row, in any order, or the numbers of rows of the queries,
    one after the other. What is as long as `X` is taken for the former.

    Examples
    --------
    >>> import numpy as np
    >>> import maxmargin as mm
    >>> X = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.6], [0.9, 0.2], [0.1, 0.3]])
    >>> relevance, query = [2, 0, 1, 1, 0], ["a", "a", "a", "b", "b"]
    >>> model = mm.Ranker(C=10.0, loss="ndcg").fit(X, relevance, query)
    >>> [order.tolist() for order in model.rank(X, query)]
    [[0, 2, 1], [3, 4]]
    """

    loss: str = "pairwise"
    k: int | None = None
    threshold: float = 1.0

    _parameter_constraints = {
        "loss": [StrOptions(PAIR_LOSSES | LIST_LOSSES)],
        "k": [Interval(Integral, 1, None, closed="left"), None],
        "threshold": [Interval(Real, 0, None, closed="neither")],
    }

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: Any,
        y: ArrayLike,
        groups: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Train on documents, their relevance and their queries.

        Warns
        -----
        UserWarning
            If queries are left out because all orders have the same loss.
        """
        examples = self._encode(X, y, None, groups)
        fit_oracle(self, examples.X, y, *oracle_of(self, examples, sample_weight))
        self.n_queries_, self.n_left_out_ = self._counts(examples)
        self._finish(X, {})
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(
        self,
        X: Any,
        y: ArrayLike,
        groups: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn from some more queries, each of them whole, without those of earlier calls.

        Warns
        -----
        UserWarning
            If queries are left out because all orders have the same loss; in a first call, some
            must differ.
        """
        begun, so_far = known_metadata(self), (0, 0)
        examples = self._encode(X, y, begun, groups)
        if begun is not None:
            validate_data(self, X, reset=False, skip_check_array=True)
            so_far = self.n_queries_, self.n_left_out_
        _, kept = examples.extra
        if kept or begun is None:
            partial_fit(self, X, y, examples, sample_weight)
        counts = self._counts(examples)
        self.n_queries_, self.n_left_out_ = (a + b for a, b in zip(so_far, counts, strict=True))
        return self

    @property
    def _ranking(self) -> RankingProblem:
        return RankingProblem(self.loss, self.k, float(self.threshold))

    def _encode(self, X: Any, Y: Any, metadata: Metadata | None, groups: Any = None) -> Encoded:
        X = check_features(X, type(self).__name__)
        relevance = _check_relevance(X, Y)
        queries = query_rows(groups, X.shape[0])
        informs = self._ranking.informs
        kept = [q for q, rows in enumerate(queries) if informs(relevance[rows])]
        return Encoded(X, relevance, len(queries), (queries, kept))

    def _counts(self, examples: Encoded) -> tuple[int, int]:
        """Numbers of queries to learn from and of those left out, which a warning tells."""
        queries, kept = examples.extra
        n_left_out = len(queries) - len(kept)
        if n_left_out:
            warnings.warn(
                f"{n_left_out} of {len(queries)} queries are left out: their documents are too few "
                f"or too alike in relevance for loss={self.loss!r} to tell one order from another.",
                stacklevel=4,
            )
        return len(kept), n_left_out

    def _metadata(self, examples: Encoded, classes: NDArray[Any] | None) -> Metadata:
        return {"n_features_in_": examples.X.shape[1]}

    def _oracle(self, examples: Encoded, C: Floats, metadata: Metadata) -> Oracle:
        X, relevance, n_queries, (queries, kept) = examples
        if not kept:
            raise ValueError(
                f"None of the {n_queries} queries has documents whose order matters to "
                f"loss={self.loss!r}: there is nothing to learn from, check y and groups."
            )
        rows = np.concatenate([queries[q] for q in kept])
        ends = starts_of([len(queries[q]) for q in kept])
        in_place = len(rows) == X.shape[0] and (np.diff(rows) == 1).all()
        oracle = self._ranking.oracle(X if in_place else X[rows], relevance[rows], ends, C[kept])
        return self._rescaled(oracle)

    def _fitted(self, metadata: Metadata, weights: Floats) -> dict[str, Any]:
        return metadata | {"coef_": weights}

    def _finish(self, X: Any, metadata: Metadata) -> None:
        validate_data(self, X, skip_check_array=True)

    def score(self, X: Any, y: ArrayLike, groups: ArrayLike) -> float:
        """Mean NDCG of the first ten documents of each query, whatever loss was trained.

        Counted as in LETOR's evaluation tool: queries without relevant documents count zero.
        """
        scores = self.predict(X)
        relevance = _check_relevance(scores, y)
        queries = query_rows(groups, len(scores))
        return float(np.mean([ndcg(relevance[rows], scores[rows], 10) for rows in queries]))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        return tags


def _check_relevance(X: Any, y: Any) -> Floats:
    """One number for each row, none negative."""
    if y is None:
        raise ValueError("Ranker requires y to be passed, but the target y is None.")
    try:
        column = column_or_1d(y, warn=True)
    except ValueError as error:
        raise ValueError(one_sentence(str(error), y, "y")) from error
    check_lengths(X, column)
    relevance = as_floats(column, "y")
    bad = np.flatnonzero(~((relevance >= 0.0) & (relevance <= MOST_RELEVANCE)))
    if len(bad):
        raise ValueError(
            f"y[{bad[0]}] is {relevance[bad[0]]}, but relevance must be from 0 to "
            f"{MOST_RELEVANCE:g}, higher for better documents; NaN and inf are not allowed."
        )
    return relevance
