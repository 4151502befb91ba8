"""Multivariate performance measures (Joachims 2005): labels of a whole data set as one output.

A labelling scores the sum of the row scores with a plus or a minus, over ``2 n``; its loss depends
on the contingency table: true positives `hits` of P positive rows, false positives `alarms` of N
negative ones, ``n = P + N``. The best labelling of a table scores, relative to the true output,

    (sum of the `alarms` highest negative scores - sum of the `P - hits` lowest positive ones) / n

so that inference maximises over tables. Routines take the scores of both kinds in descending order,
and return hits, alarms and the loss-augmented score.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maxmargin.compiled.compile import compiled
from maxmargin.core.arrays import Floats, Order
from maxmargin.core.oracle import Threads
from maxmargin.core.problem import Problem
from maxmargin.structures.rows.oracle import RowSumOracle, stacked_rows


@compiled
def worst_f_beta(positive, negative, beta, sums):  # type: ignore[no-untyped-def]
    """Loss-augmented inference for ``1 - (1 + beta^2) hits / (hits + alarms + beta^2 P)``.

    Given the hits, it is concave in the alarms, so bisection is exact: ``O(P log N)``. Scratch:
    `sums` float64 ``(N + 1,)``.
    """
    n_positive, n_negative = len(positive), len(negative)
    scale = 1.0 / (n_positive + n_negative)
    square = beta * beta
    sums[0] = 0.0
    for j in range(n_negative):
        sums[j + 1] = sums[j] + negative[j]
    best_hits, best_alarms, best = 0, 0, 0.0
    missed = 0.0
    for i in range(n_positive):
        missed += positive[i]
    for hits in range(n_positive + 1):
        top = (1.0 + square) * hits
        rest = hits + square * n_positive
        low, high = 0, n_negative
        while low < high:
            middle = (low + high) // 2
            size = rest + middle
            if top / (size * (size + 1.0)) + scale * negative[middle] > 0.0:
                low = middle + 1
            else:
                high = middle
        value = 1.0 - top / (rest + low) + scale * (sums[low] - missed)
        if hits == 0 or value > best:
            best_hits, best_alarms, best = hits, low, value
        if hits < n_positive:
            missed -= positive[hits]
    return best_hits, best_alarms, best


@compiled
def worst_at_k(positive, negative, k, worth):  # type: ignore[no-untyped-def]
    """Loss-augmented inference over labellings with `k` positives, ``1 <= k < n``, in ``O(n)``.

    Of these, ``misses = min(P - hits, alarms)`` could be right and are not: the loss is `worth` for
    each, 1 / k for precision and 1 / P for recall. The score, relative to the true output, is

        misses * (mean of the negatives predicted - mean of the positives not predicted) / n

    which is that of the module's docstring where k = P. For other k the latter would compare
    labellings with different numbers of positives, and not be bounded when all scores change alike.
    """
    n_positive, n_negative = len(positive), len(negative)
    scale = 1.0 / (n_positive + n_negative)
    # From as few hits as possible, one alarm after the other becomes a hit.
    hits = max(0, k - n_negative)
    called = missed = 0.0
    for j in range(k - hits):
        called += negative[j]
    for i in range(hits, n_positive):
        missed += positive[i]
    best_hits, best = min(k, n_positive), 0.0
    while hits < min(k, n_positive):
        alarms, left = k - hits, n_positive - hits
        value = min(alarms, left) * (worth + scale * (called / alarms - missed / left))
        if value > best:
            best_hits, best = hits, value
        called -= negative[alarms - 1]
        missed -= positive[hits]
        hits += 1
    return best_hits, k - best_hits, best


Flags = NDArray[np.bool_]
Packed = NDArray[np.uint8]

AT_K = {"precision@k", "recall@k", "break-even"}
TABLE_LOSSES = AT_K | {"f1", "error"}


class Measure(NamedTuple):
    """One of `TABLE_LOSSES`, with the weight `beta` of recall, or `k` rows (or that fraction)."""

    name: str
    beta: float = 1.0
    k: float | None = None

    def rows_called(self, n: int, n_positive: int) -> int:
        """Number of rows predicted positive, where fixed; ValueError if there are too few rows."""
        if self.name == "break-even":
            return n_positive
        k = self.k
        assert k is not None
        called = int(k) if isinstance(k, (int, np.integer)) else max(1, round(k * n))
        if not 1 <= called < n:
            raise ValueError(
                f"k is {k}, which is {called} of {n} rows: give a number of rows from 1 to "
                f"{n - 1}, or a fraction."
            )
        return called

    def loss_of(self, y_true: Flags, called: Flags) -> float:
        """Loss of a labelling; for the measures at k, what it lacks of the best with k rows."""
        n_positive = int(y_true.sum())
        hits, alarms = int((called & y_true).sum()), int((called & ~y_true).sum())
        if self.name == "error":
            return (n_positive - hits + alarms) / len(y_true)
        if self.name == "f1":
            square = self.beta**2
            return 1.0 - (1.0 + square) * hits / (hits + alarms + square * n_positive)
        # A labelling with as many hits as there can be, such as the true one, lacks nothing.
        return self._worth(hits + alarms, n_positive) * min(n_positive - hits, alarms)

    def coefficients(self, y_true: Flags, called: Flags) -> Floats:
        """Coefficients of the rows in the cutting plane of a labelling."""
        missed, alarms = y_true & ~called, called & ~y_true
        if self.name not in ("precision@k", "recall@k"):
            return np.asarray((missed.astype(np.float64) - alarms) / len(y_true))
        n_missed, n_alarms = int(missed.sum()), int(alarms.sum())
        wrong = min(n_missed, n_alarms) / len(y_true)
        return np.asarray(missed * (wrong / max(n_missed, 1)) - alarms * (wrong / max(n_alarms, 1)))

    def worst(self, y_true: Flags, scores: Floats) -> Flags:
        """Loss-augmented inference: the most violating labelling, or the true one."""
        if self.name == "error":  # each row on its own
            return np.where(y_true, scores >= 1.0, scores > -1.0)
        order = np.argsort(-scores)
        positive, negative = order[y_true[order]], order[~y_true[order]]
        of_positive, of_negative = scores[positive], scores[negative]
        if self.name == "f1":
            sums = np.empty(len(negative) + 1)
            hits, alarms, value = worst_f_beta(of_positive, of_negative, float(self.beta), sums)
        else:
            k = self.rows_called(len(y_true), len(positive))
            worth = self._worth(k, len(positive))
            hits, alarms, value = worst_at_k(of_positive, of_negative, k, worth)
        if value <= 0.0:
            return y_true
        called = np.zeros(len(y_true), dtype=np.bool_)
        called[positive[:hits]] = called[negative[:alarms]] = True
        return called

    def _worth(self, called: int, n_positive: int) -> float:
        """Gain of a true positive in the measure."""
        return 1.0 / (n_positive if self.name == "recall@k" else called)


class PerformanceProblem(Problem):
    """Label all rows of a matrix; the loss is a measure of all labels together.

    Inputs are matrices, outputs boolean arrays with one entry a row, True for positive. Inference
    is exact and takes ``O(n log n)``.

    Parameters
    ----------
    loss : {"f1", "error", "break-even"}, default="f1"
        One less the F measure; the fraction of wrong labels; one less the precision among
        labellings with as many positives as there are.
    beta : float, default=1.0
        For "f1": recall counts `beta` times as much as precision.

    See Also
    --------
    maxmargin.PerformanceClassifier : The estimator, with more measures.

    Examples
    --------
    >>> import numpy as np
    >>> import maxmargin as mm
    >>> X = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, -1.0]])
    >>> problem = mm.structures.PerformanceProblem("f1")
    >>> model = mm.StructuredSVM(problem, C=10.0).fit([X], [[True, True, False]])
    >>> model.predict([X])[0].tolist()
    [True, True, False]
    """

    def __init__(self, loss: str = "f1", beta: float = 1.0) -> None:
        if loss not in ("f1", "error", "break-even"):
            raise ValueError(f"loss is {loss!r}, but must be 'f1', 'error' or 'break-even'.")
        self.measure = Measure(loss, beta)

    def joint_feature(self, x: Any, y: ArrayLike) -> Any:
        return x.T @ np.where(_flags(y), 0.5, -0.5) / x.shape[0]

    def loss(self, y_true: ArrayLike, y: ArrayLike) -> float:
        return self.measure.loss_of(_flags(y_true), _flags(y))

    def inference(self, x: Any, w: Floats) -> Flags:
        return np.asarray(np.ravel(x @ w) > 0.0)

    def loss_augmented_inference(self, x: Any, y_true: ArrayLike, w: Floats) -> Flags:
        oracle = self.make_oracle([x], [y_true], np.ones(1), "margin")
        example = np.zeros(1, dtype=np.int64)
        return oracle.labels(oracle.separate(np.array(w), example, Threads(1)).outputs[0], 0)

    def make_oracle(
        self, X: Sequence[Any], Y: Sequence[Any], C: Floats, rescaling: str
    ) -> "TableOracle":
        """The oracle of one data set or several, for margin rescaling."""
        y_true = [_flags(y) for y in Y]
        for i, (x, flags) in enumerate(zip(X, y_true, strict=True)):
            if x.shape[0] != len(flags) or not flags.any():
                raise ValueError(f"Data set {i} needs a flag for each row, at least one True.")
        rows, ends = stacked_rows(X)
        return TableOracle(rows, np.concatenate(y_true), ends, C, self.measure)


class TableOracle(RowSumOracle):
    """Oracle of data sets whose loss is a measure of their contingency tables."""

    output_dtype = np.uint8

    def __init__(
        self,
        X: Any,
        positive: Flags,
        ends: Order,
        C: Floats,
        measure: Measure,
        bias: float = 0.0,
    ) -> None:
        super().__init__(X, ends, C, bias)
        self.measure = measure
        self.output_sizes = (self.sizes + 7) // 8
        self.y_true = [positive[start:stop] for start, stop in pairwise(ends.tolist())]

    def labels(self, output: bytes | Packed, example: int) -> Flags:
        """The labels of an output; outputs have a bit for each row."""
        bits = np.frombuffer(output, dtype=np.uint8)
        return np.unpackbits(bits, count=len(self.y_true[example])).astype(np.bool_)

    def infer_from(
        self, scores: Floats, rows: Order, examples: Order, starts: Order, found: Packed
    ) -> None:
        for k, b in enumerate(examples.tolist()):
            called = self.measure.worst(self.y_true[b], scores[rows[k] : rows[k + 1]])
            found[starts[k] : starts[k + 1]] = np.packbits(called)

    def set_coefficients(
        self, examples: Order, starts: Order, found: Packed, rows: Order, coef: Floats,
        losses: Floats,
    ) -> None:  # fmt: skip
        for k, b in enumerate(examples.tolist()):
            y_true, called = self.y_true[b], self.labels(found[starts[k] : starts[k + 1]], b)
            coef[rows[k] : rows[k + 1]] = self.measure.coefficients(y_true, called)
            losses[k] = self.measure.loss_of(y_true, called)


def _flags(y: ArrayLike) -> Flags:
    flags = np.asarray(y)
    if flags.ndim != 1 or flags.dtype != np.bool_:
        raise ValueError("A labelling must be an array with a flag, True or False, for each row.")
    return flags
