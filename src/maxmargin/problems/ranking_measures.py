"""How good a ranking is: NDCG, average precision and precision, as LETOR's tool counts them."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def gains(relevance: Any) -> Floats:
    """``2 ** relevance - 1``."""
    return np.asarray(np.exp2(np.asarray(relevance, dtype=np.float64)) - 1.0)


def discounts(n: int, k: int | None = None) -> Floats:
    """What the places ``1 .. n`` are worth: 1 for the first two, then ``1 / log2(place)``.

    Places after the first `k` are worth nothing.
    """
    places = np.arange(1, n + 1, dtype=np.float64)
    worth = 1.0 / np.log2(np.maximum(places, 2.0))
    worth[n if k is None else min(k, n) :] = 0.0
    return np.asarray(worth)


def in_order(relevance: ArrayLike, scores: ArrayLike) -> Floats:
    """Relevance of the documents from the highest score down, equal ones as given."""
    order = np.argsort(-np.asarray(scores, dtype=np.float64), kind="stable")
    return np.asarray(relevance, dtype=np.float64)[order]


def ndcg(relevance: ArrayLike, scores: ArrayLike, k: int | None = None) -> float:
    """Normalised discounted cumulative gain of the first `k` documents of one query, or of all.

    Gains are ``2 ** relevance - 1``. The first two places count in full and place ``i`` by
    ``1 / log2(i)``, as in the evaluation tool of LETOR. A query without a relevant document
    has NDCG 0, as there.

    Parameters
    ----------
    relevance, scores : array-like of shape (n_documents,)
    k : int, default=None
        More than there are documents means all of them.

    Returns
    -------
    ndcg : float

    Examples
    --------
    >>> from maxmargin.problems.ranking_measures import ndcg
    >>> ndcg([2, 0, 1], [3.0, 2.0, 1.0], k=2)
    0.75
    """
    found, worth = in_order(relevance, scores), discounts(np.size(relevance), k)
    ideal = float(gains(np.sort(found)[::-1]) @ worth)
    return float(gains(found) @ worth) / ideal if ideal > 0.0 else 0.0


def average_precision(relevance: ArrayLike, scores: ArrayLike, threshold: float = 1.0) -> float:
    """Mean, over the relevant documents of one query, of the precision at their places.

    Documents of a relevance of `threshold` or more are relevant. A query without any has 0.

    Examples
    --------
    >>> from maxmargin.problems.ranking_measures import average_precision
    >>> average_precision([1, 0, 1, 0], [4.0, 3.0, 2.0, 1.0])
    0.8333333333333333
    """
    places = np.flatnonzero(in_order(relevance, scores) >= threshold) + 1.0
    return float(np.mean(np.arange(1, len(places) + 1) / places)) if len(places) else 0.0


def precision_at(relevance: ArrayLike, scores: ArrayLike, k: int, threshold: float = 1.0) -> float:
    """Share of relevant documents among the first `k`, counting places after the last as wrong.

    Examples
    --------
    >>> from maxmargin.problems.ranking_measures import precision_at
    >>> precision_at([1, 0, 1, 0], [4.0, 3.0, 2.0, 1.0], k=2)
    0.5
    """
    return float(np.count_nonzero(in_order(relevance, scores)[:k] >= threshold)) / k
