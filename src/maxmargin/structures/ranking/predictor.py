"""How a ranker predicts."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from maxmargin.core.arrays import Floats, Order
from maxmargin.core.inputs import as_floats
from maxmargin.predictors.base import Predictor, check_weights
from maxmargin.predictors.checks import check_rows
from maxmargin.predictors.declared import estimator, fitted


@estimator
class RankerPredictor(Predictor):
    """What a fitted `Ranker` has learned, and how it predicts.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        The score of a document is its product with the features.
    n_queries_ : int
        Queries that were learned from, in all calls of `partial_fit`.
    n_left_out_ : int
        Queries whose orders all have the same loss, such as those with a single document.
    n_features_in_ : int
    """

    _arguments = """
    X : {array-like, sparse matrix} of shape (n_documents, n_features)
        One row for each document.
    y : array-like of shape (n_documents,)
        Relevance: zero or more, higher is better.
    groups : array-like of shape (n_documents,) or (n_queries,)
        Query of each document, or number of documents of each query.
    sample_weight : array-like of shape (n_queries,), default=None
        Multiplies the C of each query, in the order in which they first occur.
    """

    coef_: Floats = fitted()
    n_queries_: int = fitted()
    n_left_out_: int = fitted()

    def _check_fitted(self) -> None:
        super()._check_fitted()
        check_weights("coef_", self.coef_, self.n_features_in_)

    def predict(self, X: Any) -> Floats:
        """Score of each document: the higher, the further up in the list of its query.

        Returns
        -------
        scores : ndarray of shape (n_documents,)
            The higher, the better.
        """
        return np.asarray(check_rows(self, X) @ self.coef_)

    def decision_function(self, X: Any) -> Floats:
        """The same as `predict`."""
        return self.predict(X)

    def rank(self, X: Any, groups: ArrayLike) -> list[Order]:
        """Documents of each query from the first to the last.

        Returns
        -------
        orders : list of n_queries ndarrays
            Rows of `X`, queries in the order in which they first occur. Equal scores stay in
            the order of the rows.
        """
        scores = self.predict(X)
        return [
            rows[np.argsort(-scores[rows], kind="stable")]
            for rows in query_rows(groups, len(scores))
        ]


def query_rows(groups: ArrayLike, n_rows: int) -> list[Order]:
    """Rows of each query, by first occurrence; `groups` are queries of rows or their row counts."""
    if groups is None:
        raise ValueError("Ranker needs groups: the query of each row, or the rows of each query.")
    given = np.asarray(groups)
    if given.ndim != 1:
        raise ValueError(f"groups must be a list, but has {given.ndim} dimensions.")
    if len(given) == n_rows:
        if given.dtype.kind == "f" and np.isnan(given).any():
            raise ValueError(f"groups[{int(np.flatnonzero(np.isnan(given))[0])}] is NaN.")
        _, first, query = np.unique(given, return_index=True, return_inverse=True)
        by_place = np.argsort(np.argsort(first))[query]
        ends = np.cumsum(np.bincount(by_place, minlength=len(first)))[:-1]
        return np.split(np.argsort(by_place, kind="stable"), ends)
    sizes = as_floats(given, "groups of another length than X")
    if (sizes < 1).any() or (sizes != np.round(sizes)).any() or sizes.sum() != n_rows:
        raise ValueError(
            f"groups has {len(given)} entries for {n_rows} rows: give the query of each row, or "
            f"numbers of rows of each query, which add up to {n_rows}."
        )
    return np.split(np.arange(n_rows), np.cumsum(sizes.astype(np.int64))[:-1])
