"""Bags of feature rows, *instances*, one of which shows the class: the latent variable.

Class k scores ``max_j <w_k, x_j>``; the *background* class has no weights and scores zero. With the
instance h imputed for the true class y, the hinge of a bag is

    max(0, max over k != y and j of loss[y, k] + <w_k, x_j> - <w_y, x_h>)

Pairs of the true class with other instances are left out, which makes the bound tighter, and the
same for the best h. In place of h, the mean of all instances may be imputed.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled
from maxmargin.compiled.rows import Rows, add_row_scores, make_rows, padded
from maxmargin.core.arrays import Floats, Order, check_indices, check_shape
from maxmargin.core.cuts import starts_of
from maxmargin.core.latent import LatentOracle
from maxmargin.core.oracle import CompiledOracle, Entries, Threads

Codes = NDArray[np.int32]

MEAN = -1
"""Imputation of the mean of all instances of a bag."""

NOTHING = -1
"""In place of a background class, where there is none."""


class LatentBags(LatentOracle):
    """Bags ``ends[i]:ends[i + 1]`` of rows of `X`; imputations are numbers in bags, or `MEAN`."""

    def __init__(
        self,
        X: Any,
        ends: Order,
        labels: Codes,
        loss: Floats,
        C: Floats,
        *,
        background: int = NOTHING,
        fit_intercept: bool = True,
    ) -> None:
        self.X, self.ends, self.labels, self.loss, self.C = X, ends, labels, loss, C
        self.background = background
        self.bias = 1.0 if fit_intercept else 0.0
        self.rows = make_rows(X, self.bias)
        self.table_shape = X.shape[1] + fit_intercept, padded(len(loss))

    @property
    def lengths(self) -> Order:
        return np.diff(self.ends)

    def init_latent(self, random: np.random.Generator) -> Order:
        return random.integers(self.lengths)

    def rehearsal(self) -> "BagOracle":
        """Oracle over the means of bags, with a larger C: a mean is weaker than an instance."""
        n = len(self.labels)
        means = LatentBags(
            self._shown(np.full(n, MEAN)),
            np.arange(n + 1),
            self.labels,
            self.loss,
            self.C * self.lengths.mean(),
            background=self.background,
            fit_intercept=self.bias != 0.0,
        )
        return means.imputed(np.zeros(n, dtype=np.int64))

    def impute(self, weights: Floats, before: Order, threads: Threads) -> Order:
        chosen = before.copy()
        table = weights.reshape(self.table_shape)

        def infer(part: slice) -> None:
            which = np.arange(part.start, part.stop, dtype=np.int64)
            best_instances(
                self.rows, self.ends, table, self.labels, which, chosen, np.empty(table.shape[1])
            )

        threads.map(infer, threads.shares(len(self.labels)))
        return chosen

    def imputed(self, imputations: Order) -> "BagOracle":
        check_shape("imputations", imputations, len(self.lengths))
        check_indices("imputations", imputations, int(self.lengths.max()), start=MEAN)
        if (imputations >= self.lengths).any():
            raise ValueError("an imputation is no instance of its bag")
        return BagOracle(self, make_rows(self._shown(imputations), self.bias))

    def changes(self, before: Order, after: Order) -> NDArray[np.bool_]:
        changed: NDArray[np.bool_] = (before != after) & (self.labels != self.background)
        return changed

    def _shown(self, imputations: Order) -> Any:
        """The imputed row of each bag."""
        n, mean = len(imputations), imputations == MEAN
        counts = np.where(mean, self.lengths, 1)
        starts = starts_of(counts)
        first = self.ends[:-1] + np.where(mean, 0, imputations)
        places = np.repeat(first - starts[:-1], counts) + np.arange(starts[-1])
        shares = np.repeat(1.0 / counts, counts).astype(self.X.dtype)
        chosen = sp.csr_array((shares, places, starts), shape=(n, self.X.shape[0]))
        return chosen @ self.X


class BagOracle(CompiledOracle):
    """Oracle over bags with imputed rows; outputs are a class and an instance, as bytes."""

    output_dtype = np.dtype((np.int32, (2,)))

    def __init__(self, bags: LatentBags, shown: Rows) -> None:
        self.bags, self.shown, self.C = bags, shown, bags.C
        self.n_features = int(np.prod(bags.table_shape))
        self.output_sizes = np.ones(len(bags.C), dtype=np.int64)
        self.loss = np.zeros((len(bags.loss), bags.table_shape[1]))
        self.loss[:, : len(bags.loss)] = bags.loss

    @property
    def oracle_work(self) -> float:
        rows = self.bags.rows
        entries = float(rows.starts[-1] + self.shown.starts[-1])
        return entries / max(self.n_examples, 1) * self.bags.table_shape[1]

    def infer(self, weights: Floats, examples: Order, starts: Order, found: Codes) -> None:
        bags, table = self.bags, weights.reshape(self.bags.table_shape)
        most_violating(
            bags.rows, bags.ends, self.shown, table, bags.labels, self.loss, examples, found,
            np.empty((2, table.shape[1])), np.empty(table.shape[1], dtype=np.int64),
        )  # fmt: skip

    def outputs(self, b: int) -> list[bytes]:
        """All outputs of a bag, the true one first."""
        label, length = self.bags.labels[b], int(self.bags.lengths[b])
        others = [k for k in range(len(self.bags.loss)) if k != label]
        pairs = [(label, MEAN), *((k, j) for k in others for j in range(length))]
        return [np.array(pair, dtype=np.int32).tobytes() for pair in pairs]

    def check_outputs(self, examples: Order, starts: Order, found: Codes) -> None:
        """The true class, or a wrong one with an instance that there is."""
        classes, instances = found[:, 0], found[:, 1]
        right = classes == self.bags.labels[examples]
        fits = (instances >= 0) & (instances < self.bags.lengths[examples])
        known = (classes >= 0) & (classes < len(self.bags.loss))
        if not (known & np.where(right, instances == MEAN, fits)).all():
            raise ValueError("The outputs are those of other bags.")

    def entries_of(self, examples: Order, starts: Order, found: Codes) -> Entries:
        bags = self.bags
        labels, classes = bags.labels[examples], found[:, 0]
        differs = classes != labels
        others = bags.ends[examples] + np.maximum(found[:, 1], 0)
        constant = bags.bias != 0.0
        own = np.diff(self.shown.starts)[examples] + constant
        other = np.diff(bags.rows.starts)[others] + constant
        counts = own * (differs & (labels != bags.background))
        counts += other * (differs & (classes != bags.background))
        entries = starts_of(counts)
        columns, values = np.empty(entries[-1], dtype=np.uint32), np.empty(entries[-1])
        fill_cuts(
            self.shown, bags.rows, bags.table_shape, bags.background, examples, labels, classes,
            others, entries, columns, values,
        )  # fmt: skip
        return entries, columns, values, self.loss[labels, classes]


@compiled
def best_instances(rows, ends, table, labels, which, chosen, scores):  # type: ignore[no-untyped-def]
    """Impute the best instance for the true class; of ties, the one before."""
    for b in which:
        label = labels[b]
        best = -np.inf
        before = chosen[b]
        known = -np.inf
        for j in range(ends[b + 1] - ends[b]):
            scores[:] = 0.0
            add_row_scores(rows, ends[b] + j, table, scores)
            if scores[label] > best:
                best = scores[label]
                chosen[b] = j
            if j == before:
                known = scores[label]
        if known >= best:
            chosen[b] = before


@compiled
def most_violating(  # type: ignore[no-untyped-def]
    rows, ends, shown, table, labels, loss, examples, found, scratch, at
):
    """Loss-augmented inference: a wrong class with its best instance, or the true output.

    rows, ends, shown : rows of all instances, ``(n_bags + 1,)`` where bags end, imputed rows
    table, labels, loss : weights with P columns, ``(n_bags,)``, ``(n_classes, P)``
    examples, found : ``(n,)``; int32 ``(n, 2)``, written
    scratch, at : scratch, float64 ``(2, P)`` and int64 ``(P,)``
    """
    scores, best = scratch[0], scratch[1]
    for i in range(len(examples)):
        b = examples[i]
        label = labels[b]
        best[:] = -np.inf
        for j in range(ends[b + 1] - ends[b]):
            scores[:] = 0.0
            add_row_scores(rows, ends[b] + j, table, scores)
            for k in range(len(best)):
                if scores[k] > best[k]:
                    best[k] = scores[k]
                    at[k] = j
        scores[:] = 0.0
        add_row_scores(shown, b, table, scores)
        highest = scores[label]
        found[i, 0], found[i, 1] = label, -1
        for k in range(len(loss)):
            if k != label and best[k] + loss[label, k] > highest:
                highest = best[k] + loss[label, k]
                found[i, 0], found[i, 1] = k, at[k]


@compiled
def put_row(rows, i, shape, column, factor, at, columns, values):  # type: ignore[no-untyped-def]
    """Write a row times a factor into a column of the table; returns where the next goes."""
    first = rows.starts[i]
    for q in range(first, rows.starts[i + 1]):
        row = np.int64(rows.columns[q if rows.indexed else q - first])
        columns[at] = row * shape[1] + column
        values[at] = factor * rows.values[q]
        at += 1
    if rows.bias != 0.0:
        columns[at] = (shape[0] - 1) * shape[1] + column
        values[at] = factor * rows.bias
        at += 1
    return at


@compiled
def fill_cuts(  # type: ignore[no-untyped-def]
    shown, rows, shape, background, examples, labels, classes, others, entries, columns, values
):
    """Cuts: the imputed row in the column of the true class, less the other in that of its own.

    shown, rows, shape, background : imputed and all rows, shape of the table, class without weights
    examples, labels, classes, others : ``(n,)`` bags, true and found classes, found rows
    entries, columns, values : CSR arrays of the cuts, of which `entries` is given
    """
    for k in range(len(examples)):
        if labels[k] != classes[k]:
            at = entries[k]
            if labels[k] != background:
                at = put_row(shown, examples[k], shape, labels[k], 1.0, at, columns, values)
            if classes[k] != background:
                put_row(rows, others[k], shape, classes[k], -1.0, at, columns, values)
