"""Rankings of the documents of a query, trained for a measure of the list or for its pairs.

A ranking scores the mean, over pairs of different relevance, of half the difference of scores, with
a minus where inverted: the true output is unique, and psi is the mean over inverted pairs.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maxmargin.core.arrays import Floats, Order
from maxmargin.core.oracle import Threads
from maxmargin.core.problem import Problem
from maxmargin.structures.ranking.oracle import ListOracle, PairOracle, RankedList
from maxmargin.structures.rows.oracle import RowSumOracle, stacked_rows


def gains(relevance: Any) -> Floats:
    """``2 ** relevance - 1``."""
    return np.asarray(np.exp2(np.asarray(relevance, dtype=np.float64)) - 1.0)


def discounts(n: int, k: int | None = None) -> Floats:
    """Discounts of the ranks ``1 .. n``: 1, 1, then ``1 / log2(rank)``; 0 after `k`."""
    found = 1.0 / np.log2(np.maximum(np.arange(1.0, n + 1), 2.0))
    found[n if k is None else min(k, n) :] = 0.0
    return np.asarray(found)


def in_order(relevance: ArrayLike, scores: ArrayLike) -> Floats:
    """Relevance of the documents in descending order of their scores; stable."""
    order = np.argsort(-np.asarray(scores, dtype=np.float64), kind="stable")
    return np.asarray(relevance, dtype=np.float64)[order]


def ndcg(relevance: ArrayLike, scores: ArrayLike, k: int | None = None) -> float:
    """Normalised discounted cumulative gain of the first `k` documents of one query, or of all.

    Gains are ``2 ** relevance - 1``, discounts 1, 1, then ``1 / log2(rank)``, and a query without
    relevant documents has 0: all as in LETOR's evaluation tool.
    """
    found, discount = in_order(relevance, scores), discounts(np.size(relevance), k)
    ideal = float(gains(np.sort(found)[::-1]) @ discount)
    return float(gains(found) @ discount) / ideal if ideal > 0.0 else 0.0


def average_precision(relevance: ArrayLike, scores: ArrayLike, threshold: float = 1.0) -> float:
    """Mean precision at the ranks of the relevant documents of one query; 0 without any."""
    ranks = np.flatnonzero(in_order(relevance, scores) >= threshold) + 1.0
    return float(np.mean(np.arange(1, len(ranks) + 1) / ranks)) if len(ranks) else 0.0


def precision_at(relevance: ArrayLike, scores: ArrayLike, k: int, threshold: float = 1.0) -> float:
    """Fraction of relevant documents among the first `k`; missing ranks count as irrelevant."""
    return float(np.count_nonzero(in_order(relevance, scores)[:k] >= threshold)) / k


PAIR_LOSSES = {"pairwise", "auc"}
LIST_LOSSES = {"map", "ndcg", "precision@k"}


class Ranking(NamedTuple):
    """An output: `orders` of documents, first to last, one for each list of the loss.

    For pairwise losses it is one order and, below it, the reach of each rank (see
    `oracle.set_reach`). `relevance` decides which pairs count; predictions have none.
    """

    relevance: Floats
    orders: NDArray[np.int32]


class RankingProblem(Problem):
    """Rank the documents of a query: inputs are matrices with one row a document.

    The loss of a query, at most 1, is one of

    - "pairwise": the fraction of pairs of different relevance in the wrong order. Pairs are judged
      independently, so that the hinge of a query is the mean of ``max(0, 1 - (s_i - s_j))``;
    - "auc": the same for relevant and irrelevant documents, one less the area under the ROC curve;
    - "map": one less the average precision;
    - "precision@k": what the first `k` documents lack of as many relevant ones as possible;
    - "ndcg": one less the NDCG, of the first `k` documents or of all. The loss is a weighted sum
      over the levels of relevance but the lowest, each a list of relevant and irrelevant documents
      with inference of its own: with more than two levels, the hinge is an upper bound of that of
      one ranking.

    Inference is exact: ``O(n log n)`` for pairs, ``O(P N)`` time and memory for lists of P relevant
    and N irrelevant documents.

    Parameters
    ----------
    loss : {"pairwise", "auc", "map", "ndcg", "precision@k"}, default="pairwise"
    k : int, default=None
        Ranks that count, for "ndcg" (None: all) and "precision@k", which needs it.
    threshold : float, default=1.0
        Least relevance of a relevant document, for the losses with binary relevance.

    See Also
    --------
    maxmargin.Ranker : The estimator.

    Examples
    --------
    >>> import numpy as np
    >>> import maxmargin as mm
    >>> problem = mm.structures.RankingProblem("map")
    >>> queries = [np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]])]
    >>> model = mm.StructuredSVM(problem, C=100.0).fit(queries, [[0, 1, 0]])
    >>> model.predict(queries)[0].orders.tolist()
    [[1, 2, 0]]
    """

    def __init__(
        self, loss: str = "pairwise", k: int | None = None, threshold: float = 1.0
    ) -> None:
        if loss not in PAIR_LOSSES | LIST_LOSSES:
            known = ", ".join(sorted(PAIR_LOSSES | LIST_LOSSES))
            raise ValueError(f"loss is {loss!r}, but must be one of {known}.")
        if k is not None and loss not in ("ndcg", "precision@k"):
            raise ValueError(f"k is for loss='ndcg' and loss='precision@k', not for {loss!r}.")
        if k is None and loss == "precision@k":
            raise ValueError("loss='precision@k' needs k, the number of ranks that count.")
        if threshold != 1.0 and loss in ("pairwise", "ndcg"):
            raise ValueError(
                f"threshold is for losses with binary relevance, 'map', 'auc' and 'precision@k', "
                f"not for {loss!r}."
            )
        self.loss_name, self.k, self.threshold = loss, k, threshold

    def y_true(self, relevance: ArrayLike) -> Ranking:
        """The true output of a query."""
        values = _relevance(relevance)
        order = np.argsort(-values, kind="stable").astype(np.int32)
        return self._ranking(values, order)

    def joint_feature(self, x: Any, y: Ranking) -> Any:
        coef = np.zeros(len(y.relevance))
        for weight, better, wrong in self._judged(y.relevance, y.orders):
            signs = np.where(better, 0.5 - wrong, 0.0) * (weight / np.count_nonzero(better))
            coef += signs.sum(axis=1) - signs.sum(axis=0)
        return x.T @ coef

    def loss(self, y_true: Any, y: Ranking) -> float:
        relevance = _relevance(y_true)
        orders = y.orders if len(y.relevance) else self._ranking(relevance, y.orders[0]).orders
        if self.loss_name in PAIR_LOSSES:
            judged = self._judged(relevance, orders)
            return float(sum(wrong.sum() / better.sum() for _, better, wrong in judged))
        total, discount = 0.0, self._discounts(len(relevance))
        for (cut, weight, credits), order in zip(self._lists(relevance), orders, strict=True):
            ranks = np.flatnonzero(relevance[order] >= cut)
            total += weight * float(credits @ (discount[: len(ranks)] - discount[ranks]))
        return total

    def inference(self, x: Any, w: Floats) -> Ranking:
        order = np.argsort(-np.ravel(x @ w), kind="stable").astype(np.int32)
        return Ranking(np.zeros(0), order[None])

    def loss_augmented_inference(self, x: Any, y_true: Any, w: Floats) -> Ranking:
        relevance = _relevance(y_true)
        oracle = self.oracle(x, relevance, np.array([0, x.shape[0]]), np.ones(1))
        found = oracle.separate(np.array(w), np.zeros(1, dtype=np.int64), Threads(1)).outputs[0]
        return Ranking(relevance, np.frombuffer(found, np.int32).reshape(-1, x.shape[0]))

    def make_oracle(
        self, X: Sequence[Any], Y: Sequence[Any], C: Floats, rescaling: str
    ) -> RowSumOracle:
        """The oracle of queries, for margin rescaling; `Y` holds relevances, or rankings."""
        relevance = [_relevance(y_true) for y_true in Y]
        for i, (x, y_true) in enumerate(zip(X, relevance, strict=True)):
            if x.shape[0] != len(y_true):
                raise ValueError(
                    f"Query {i} has {x.shape[0]} documents but relevance for {len(y_true)}."
                )
        rows, ends = stacked_rows(X)
        return self.oracle(rows, np.concatenate(relevance), ends, C)

    def oracle(self, X: Any, relevance: Floats, ends: Order, C: Floats) -> RowSumOracle:
        """The oracle of queries that are slices of one matrix.

        Queries without `informs` are allowed: their hinge is zero whatever the weights.
        """
        if self.loss_name in PAIR_LOSSES:
            return PairOracle(X, self._levels(relevance), ends, C)
        lists = [self._lists(values) for values in np.split(relevance, ends[1:-1])]
        longest = int(np.diff(ends).max(initial=0))
        return ListOracle(X, relevance, lists, self._discounts(longest), ends, C)

    def informs(self, relevance: Floats) -> bool:
        """Whether rankings of documents of this relevance can differ in loss."""
        if self.loss_name in PAIR_LOSSES:
            return len(np.unique(self._levels(relevance))) > 1
        return bool(self._lists(relevance))

    def _levels(self, relevance: Floats) -> Floats:
        """Relevance as pairwise losses see it."""
        if self.loss_name == "auc":
            return np.asarray(relevance >= self.threshold, dtype=np.float64)
        return relevance

    def _discounts(self, n: int) -> Floats:
        if self.loss_name == "map":
            return np.asarray(1.0 / np.arange(1, n + 1))
        if self.loss_name == "ndcg":
            return discounts(n, self.k)
        return np.asarray(np.arange(n) < (self.k or 0), dtype=np.float64)

    def _lists(self, relevance: Floats) -> list[RankedList]:
        """Each list to rank, but for those whose loss is zero for all rankings."""
        if self.loss_name == "ndcg":
            return self._lists_by_level(relevance)
        n, n_relevant = len(relevance), int(np.count_nonzero(relevance >= self.threshold))
        if n_relevant in (0, n) or n <= (self.k or 0):
            return []
        if self.loss_name == "map":
            credits = np.arange(1, n_relevant + 1) / n_relevant
        else:
            credits = np.full(n_relevant, 1.0 / min(self.k or 0, n_relevant))
        return [RankedList(self.threshold, 1.0, credits)]

    def _lists_by_level(self, relevance: Floats) -> list[RankedList]:
        levels, counts = np.unique(relevance, return_counts=True)
        if len(levels) < 2:
            return []
        discount = self._discounts(len(relevance))
        ideal = float(gains(np.sort(relevance)[::-1]) @ discount)
        lists = []
        for level, below, n_relevant in zip(
            levels[1:], levels, len(relevance) - np.cumsum(counts), strict=False
        ):
            best = float(discount[:n_relevant].sum())
            weight = float(gains(level) - gains(below)) * best / ideal
            lists.append(RankedList(float(level), weight, np.full(n_relevant, 1.0 / best)))
        return lists

    def _ranking(self, relevance: Floats, order: NDArray[np.int32]) -> Ranking:
        """One order as an output."""
        if self.loss_name in PAIR_LOSSES:
            return Ranking(relevance, np.stack([order, np.arange(len(order), dtype=np.int32)]))
        return Ranking(relevance, np.repeat(order[None], len(self._lists(relevance)), axis=0))

    def _judged(
        self, relevance: Floats, orders: NDArray[np.int32]
    ) -> list[tuple[float, NDArray[np.bool_], NDArray[np.bool_]]]:
        """For each list its weight, the pairs that count, and those in the wrong order."""
        if self.loss_name in PAIR_LOSSES:
            levels = self._levels(relevance)
            better = levels[:, None] > levels
            rank = np.argsort(orders[0])
            wrong = better & (rank[None, :] < orders[1][rank][:, None])
            return [(1.0, better, wrong)] if better.any() else []
        judged = []
        for (cut, weight, _), order in zip(self._lists(relevance), orders, strict=True):
            better = (relevance >= cut)[:, None] & (relevance < cut)
            rank = np.argsort(order)
            judged.append((weight, better, better & (rank[None, :] < rank[:, None])))
        return judged


def _relevance(y_true: Any) -> Floats:
    """Checked relevance of a true output, a `Ranking` or an array."""
    given = y_true.relevance if isinstance(y_true, Ranking) else y_true
    values = np.asarray(given, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all() or (values < 0.0).any():
        raise ValueError("Relevance must be one finite number for each document, none negative.")
    return values
