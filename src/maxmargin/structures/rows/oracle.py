"""Oracles over feature rows: one row an example (`RowOracle`), or a sum of rows (`RowSumOracle`).

With one row, the joint features are ``outer(x, factors(y))``, row by row, then ``extras(y)``, which
do not depend on x; x ends with a one if there are intercepts, and columns are padded for vector
instructions. A problem gives factors, extras and losses of many outputs at a time, and infers from
the scores ``X @ table``. With several rows, psi is their sum with coefficients that y gives.
"""

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from inspect import signature
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled
from maxmargin.compiled.rows import add_row_scores, make_rows, padded, row_score
from maxmargin.core.arrays import Floats, Order, check_indices, check_shape
from maxmargin.core.cuts import starts_of
from maxmargin.core.oracle import CompiledOracle, Entries
from maxmargin.core.problem import Problem
from maxmargin.core.state import Remade

Codes = NDArray[np.int32]


class RowProblem(Remade, Problem):
    """Base of the problems on feature rows; outputs are rows of integers, *codes*, in here.

    The weight table has `n_columns`; `n_extras` further features do not depend on the input.
    """

    code_width = 1
    """Number of integers in a code."""

    n_values: int
    """Upper bound (exclusive) of the integers of codes."""

    def __init__(
        self, n_features: int, n_columns: int, n_extras: int = 0, fit_intercept: bool = True
    ) -> None:
        if min(n_features, n_columns, n_extras) < 0:
            raise ValueError("Numbers of features and of labels must not be negative.")
        self.n_inputs, self.n_columns, self.n_extras = n_features, n_columns, n_extras
        self.fit_intercept = fit_intercept

    @abstractmethod
    def factors(self, codes: Codes) -> Codes:
        """Multiples of the row in each column of the weight table, ``(n, n_columns)``."""

    def extras(self, codes: Codes) -> Codes:
        """Features of outputs that do not depend on the input, ``(n, n_extras)``."""
        return np.zeros((len(codes), 0), dtype=np.int32)

    @abstractmethod
    def losses(self, y_true: Codes, codes: Codes) -> Floats:
        """Losses of predicting `codes` where `y_true` are right, ``(n,)``."""

    @abstractmethod
    def infer(
        self, scores: Floats, extras: Floats, y_true: Codes | None = None, slack: bool = False
    ) -> Codes:
        """Codes ``(n, code_width)`` of the best outputs, from scores ``(n, n_columns or more)``.

        `extras` are the weights of the extra features. With `y_true` it is loss-augmented
        inference, with `slack`, too, it maximises ``loss * (1 + score - score of y_true)``.
        """

    @property
    @abstractmethod
    def oracle_work(self) -> float:
        """Operations of one oracle call, without the scores."""

    @abstractmethod
    def outputs(self, x: Any) -> list[Any]:
        """All outputs, which are the same for every input."""

    def code(self, y: Any) -> Codes:
        """The code of an output."""
        return np.asarray(y, dtype=np.int32).reshape(1, self.code_width)

    def output(self, code: Codes) -> Any:
        """The output of a code."""
        return int(code[0])

    @property
    def table_shape(self) -> tuple[int, int]:
        """Rows and padded columns of the weight table."""
        return self.n_inputs + self.fit_intercept, padded(self.n_columns)

    @property
    def n_weights(self) -> int:
        """Length of the weight vector."""
        return int(np.prod(self.table_shape)) + self.n_extras

    def split(self, weights: Floats) -> tuple[Floats, Floats]:
        """The weight table and the weights of the extras, as views."""
        n = self.n_weights - self.n_extras
        return weights[:n].reshape(self.table_shape), weights[n:]

    def potentials(self, X: Any, weights: Floats) -> tuple[Floats, Floats]:
        """What `infer` takes: rows times the weight table, and the weights of the extras."""
        table, extras = self.split(weights)
        scores = np.asarray(X @ table[: self.n_inputs, : self.n_columns])
        return scores + table[-1, : self.n_columns] if self.fit_intercept else scores, extras

    def coefficients(self, weights: Floats) -> tuple[Floats, Floats]:
        """Weights ``(n_columns, n_inputs)`` and intercepts, zero if not fitted, of the columns."""
        table = self.split(weights)[0][:, : self.n_columns]
        intercepts = table[-1].copy() if self.fit_intercept else np.zeros(self.n_columns)
        return table[: self.n_inputs].T.copy(), intercepts

    def joint_feature(self, x: Any, y: Any) -> Floats:
        x, code = as_row(x), self.code(y)
        if self.fit_intercept:
            x = np.append(x, 1.0)
        factors = np.zeros(self.table_shape[1])
        factors[: self.n_columns] = self.factors(code)[0]
        return np.concatenate([np.outer(x, factors).ravel(), self.extras(code)[0]])

    def loss(self, y_true: Any, y: Any) -> float:
        return float(self.losses(self.code(y_true), self.code(y))[0])

    def inference(self, x: Any, w: Floats) -> Any:
        return self._inferred(x, w)

    def loss_augmented_inference(self, x: Any, y_true: Any, w: Floats) -> Any:
        return self._inferred(x, w, self.code(y_true))

    def slack_rescaled_inference(self, x: Any, y_true: Any, w: Floats) -> Any:
        """The output with the largest ``loss * (1 + score - score of y_true)``."""
        return self._inferred(x, w, self.code(y_true), True)

    def _inferred(self, x: Any, w: Floats, y_true: Codes | None = None, slack: bool = False) -> Any:
        return self.output(self.infer(*self.potentials(as_row(x)[None], w), y_true, slack)[0])

    def make_oracle(
        self, X: Any, Y: Sequence[Any], C: Floats, rescaling: str = "margin"
    ) -> "RowOracle":
        """The oracle with batched inference."""
        if sp.issparse(X):
            X = sp.csr_array(X, dtype=np.float64)
        else:
            X = np.ascontiguousarray(X, dtype=np.float64)
        if X.ndim != 2 or X.shape[1] != self.n_inputs:
            raise ValueError(
                f"X has the shape {X.shape}, but {type(self).__name__} was made for rows of "
                f"{self.n_inputs} features."
            )
        return RowOracle(self, X, self._codes(Y), C, slack=rescaling == "slack")

    def _codes(self, Y: Sequence[Any]) -> Codes:
        """Codes of true outputs, checked all at once, or else one by one."""
        width, values = self.code_width, np.arange(self.n_values)
        with suppress(ValueError):  # outputs of different lengths
            given = np.asarray(Y).reshape(len(Y), width)
            if np.isin(given, values).all():
                return given.astype(np.int32)
        for i, y in enumerate(Y):
            if np.size(y) != width or not np.isin(y, values).all():
                what = "a whole number" if width == 1 else f"{width} whole numbers"
                raise ValueError(
                    f"The output of example {i} is {y!r:.80}, but {type(self).__name__} takes "
                    f"{what} from 0 to {self.n_values - 1}."
                )
        return np.concatenate([self.code(y) for y in Y])


class RowOracle(CompiledOracle):
    """Oracle over feature rows with true codes ``(n_examples, code_width)``, in batches."""

    def __init__(
        self, problem: RowProblem, X: Any, y_true: Codes, C: Floats, *, slack: bool = False
    ) -> None:
        self.problem, self.y_true, self.C, self.slack = problem, y_true, C, slack
        self.n_features = problem.n_weights
        self.rows = make_rows(X, 1.0 if problem.fit_intercept else 0.0)
        self.output_sizes = np.ones(len(C), dtype=np.int64)

    @property
    def oracle_work(self) -> float:
        per_row = self.rows.starts[-1] / max(self.n_examples, 1) + self.problem.fit_intercept
        return float(per_row * self.problem.table_shape[1] + self.problem.oracle_work)

    def outputs(self, example: int) -> list[bytes]:
        return self._all_outputs

    @cached_property
    def _all_outputs(self) -> list[bytes]:
        return [self.problem.code(y).tobytes() for y in self.problem.outputs(None)]

    @property
    def oracle_name(self) -> str:
        return f"the oracle of {type(self.problem).__name__}"

    @property
    def output_dtype(self) -> Any:  # type: ignore[override]
        return np.dtype((np.int32, (self.problem.code_width,)))

    def infer(self, weights: Floats, examples: Order, starts: Order, found: Codes) -> None:
        table, extras = self.problem.split(weights)
        scores = np.empty((len(examples), table.shape[1]))
        score_rows(self.rows, examples, table, scores)
        found[:] = self.problem.infer(scores, extras, self.y_true[examples], self.slack)

    def check_outputs(self, examples: Order, starts: Order, found: Codes) -> None:
        check_indices("outputs", found, self.problem.n_values)

    def entries_of(self, examples: Order, starts: Order, found: Codes) -> Entries:
        problem, y_true = self.problem, self.y_true[examples]
        factors = problem.factors(y_true) - problem.factors(found)
        extras = problem.extras(y_true) - problem.extras(found)
        losses = problem.losses(y_true, found)
        scales = losses if self.slack else np.ones(len(examples))
        lengths = np.diff(self.rows.starts)[examples] + problem.fit_intercept
        entries = starts_of(
            np.count_nonzero(factors, axis=1) * lengths + np.count_nonzero(extras, axis=1)
        )
        columns, values = np.empty(entries[-1], dtype=np.uint32), np.empty(entries[-1])
        shape = problem.table_shape
        fill_cuts(self.rows, *shape, examples, factors, extras, scales, entries, columns, values)
        return entries, columns, values, losses


class ClassProblem(RowProblem):
    """Base of row problems with a few classes; ``loss_matrix[a, b]`` is the loss of b for a."""

    def __init__(self, n_classes: int, loss_matrix: Floats, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.loss_matrix = np.asarray(loss_matrix, dtype=np.float64)
        self.n_classes = self.n_values = n_classes
        check_shape("the loss matrix", self.loss_matrix, n_classes, n_classes)

    def parts(self) -> dict[str, Any]:
        _, *others = signature(type(self)).parameters
        return {"n_features": self.n_inputs} | {name: getattr(self, name) for name in others}

    @abstractmethod
    def class_scores(self, scores: Floats, extras: Floats) -> Floats:
        """Scores of the classes, ``(n, n_classes)``, from those of the columns."""

    @property
    def oracle_work(self) -> float:
        return float(2 * self.n_classes)

    def outputs(self, x: Any) -> list[int]:
        return list(range(self.n_classes))

    def losses(self, y_true: Codes, codes: Codes) -> Floats:
        return self.loss_matrix[y_true[:, 0], codes[:, 0]]

    def infer(
        self, scores: Floats, extras: Floats, y_true: Codes | None = None, slack: bool = False
    ) -> Codes:
        of_classes = self.class_scores(scores, extras)
        if y_true is not None:
            losses = self.loss_matrix[y_true[:, 0]]
            if slack:
                own = np.take_along_axis(of_classes, y_true.astype(np.int64), axis=1)
                of_classes = losses * (1.0 + of_classes - own)
            else:
                of_classes = of_classes + losses
        return np.asarray(of_classes.argmax(axis=1)[:, None], dtype=np.int32)


class Classes(ClassProblem):
    """Classes 0 to n_classes - 1, each with a weight vector (Crammer and Singer).

    `LinearClassifier` trains the same model faster; this is for what only structured solvers do.

    Parameters
    ----------
    n_features : int
        Features of an input.
    n_classes : int
    loss_matrix : array-like of shape (n_classes, n_classes), default=None
        Loss of predicting the column's class where the row's is true; None is the zero-one loss.
    fit_intercept : bool, default=True

    See Also
    --------
    maxmargin.LinearClassifier

    Examples
    --------
    >>> import maxmargin as mm
    >>> X, Y = [[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], [0, 1, 2]
    >>> mm.StructuredSVM(mm.structures.Classes(2, 3), C=100.0).fit(X, Y).predict([[2.0, 0.0]])
    [0]
    """

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        loss_matrix: Floats | None = None,
        fit_intercept: bool = True,
    ) -> None:
        if loss_matrix is None:
            loss_matrix = 1.0 - np.eye(n_classes)
        super().__init__(n_classes, loss_matrix, n_features, n_classes, fit_intercept=fit_intercept)

    def factors(self, codes: Codes) -> Codes:
        return np.asarray(np.arange(self.n_classes) == codes, dtype=np.int32)

    def class_scores(self, scores: Floats, extras: Floats) -> Floats:
        return scores[:, : self.n_classes]


def as_row(x: Any) -> Floats:
    """One input as a vector."""
    return np.asarray(x.toarray() if sp.issparse(x) else x, dtype=np.float64).ravel()


@compiled
def score_rows(rows, examples, table, scores):  # type: ignore[no-untyped-def]
    """``scores[k] = x_b' table`` for example ``b = examples[k]``."""
    for k in range(len(examples)):
        for m in range(scores.shape[1]):
            scores[k, m] = 0.0
        add_row_scores(rows, examples[k], table, scores[k])


@compiled
def fill_cuts(  # type: ignore[no-untyped-def]
    rows, n_rows, width, examples, factors, extras, scales, entries, columns, values
):
    """Entries of cuts: ``scales[k]`` times the row times each non-zero factor, then the extras.

    rows, n_rows, width : the feature rows; rows and padded columns of the weight table
    examples, factors, extras, scales : ``(n,)``, ``(n, n_columns)``, ``(n, n_extras)``, ``(n,)``
    entries, columns, values : CSR arrays of the cuts, of which `entries` is given
    """
    for k in range(len(examples)):
        first, last = rows.starts[examples[k]], rows.starts[examples[k] + 1]
        at = entries[k]
        for m in range(factors.shape[1]):
            if factors[k, m] != 0:
                factor = scales[k] * factors[k, m]
                for q in range(first, last):
                    row = np.int64(rows.columns[q if rows.indexed else q - first])
                    columns[at] = row * width + m
                    values[at] = factor * rows.values[q]
                    at += 1
                if rows.bias != 0.0:
                    columns[at] = (n_rows - 1) * width + m
                    values[at] = factor * rows.bias
                    at += 1
        for e in range(extras.shape[1]):
            if extras[k, e] != 0:
                columns[at] = n_rows * width + e
                values[at] = scales[k] * extras[k, e]
                at += 1


def stacked_rows(X: Sequence[Any]) -> tuple[Any, Order]:
    """The rows of several matrices as one, float32 or float64, and where each ends."""
    stacked = sp.vstack(X, format="csr") if any(map(sp.issparse, X)) else np.concatenate(X)
    rows = stacked if stacked.dtype == np.float32 else stacked.astype(np.float64)
    return rows, starts_of([x.shape[0] for x in X])


class RowSumOracle(CompiledOracle):
    """Examples of several rows, ``ends[i]:ends[i + 1]`` of `X`, whose cuts are sums of rows."""

    def __init__(self, X: Any, ends: Order, C: Floats, bias: float = 0.0) -> None:
        self.rows, self.ends, self.C = make_rows(X, bias), ends, C
        self.n_columns = X.shape[1]
        self.n_features = self.n_columns + (bias != 0.0)
        self.sizes = np.diff(ends)
        entries = X.nnz if sp.issparse(X) else X.size
        rows = len(self.rows.starts) - 1
        # Every row is scored, sorted, and most are added up.
        self._work = float(2 * entries + rows * np.log2(rows + 1)) / max(self.n_examples, 1)

    @abstractmethod
    def infer_from(
        self, scores: Floats, rows: Order, examples: Order, starts: Order, found: NDArray[Any]
    ) -> None:
        """Write the most violating outputs to `found`; the rows score ``scores[rows[k]:]``."""

    @abstractmethod
    def set_coefficients(
        self, examples: Order, starts: Order, found: NDArray[Any], rows: Order, coef: Floats,
        losses: Floats,
    ) -> None:  # fmt: skip
        """Set coefficients of rows, ``coef[rows[k]:]``, and losses; ValueError for no outputs."""

    @property
    def oracle_work(self) -> float:
        return self._work

    def infer(self, weights: Floats, examples: Order, starts: Order, found: NDArray[Any]) -> None:
        rows = starts_of(self.sizes[examples])
        scores = np.empty(rows[-1])
        score_all_rows(self.rows, self.ends, examples, rows, weights, scores)
        self.infer_from(scores, rows, examples, starts, found)

    def check_outputs(self, examples: Order, starts: Order, found: NDArray[Any]) -> None:
        """Nothing: `set_coefficients` checks them."""

    def entries_of(self, examples: Order, starts: Order, found: NDArray[Any]) -> Entries:
        rows = starts_of(self.sizes[examples])
        coef, losses = np.empty(rows[-1]), np.empty(len(examples))
        self.set_coefficients(examples, starts, found, rows, coef, losses)
        most = np.diff(self.rows.starts[self.ends])[examples] + (self.n_features > self.n_columns)
        room = int(np.minimum(most, self.n_features).sum())
        columns, values = np.empty(room, dtype=np.uint32), np.empty(room)
        counts = np.empty(len(examples), dtype=np.int64)
        totals, seen = np.zeros(self.n_features), np.zeros(self.n_features, dtype=np.bool_)
        used = sum_rows(
            self.rows, self.n_columns, self.ends, examples, rows, coef, counts, columns, values,
            totals, seen,
        )  # fmt: skip
        return starts_of(counts), columns[:used], values[:used], losses


@compiled
def score_all_rows(rows, ends, examples, starts, weights, scores):  # type: ignore[no-untyped-def]
    """Scores of the rows of each example, written to ``scores[starts[k]:]``."""
    for k in range(len(examples)):
        for t in range(starts[k + 1] - starts[k]):
            scores[starts[k] + t] = row_score(rows, ends[examples[k]] + t, weights)


@compiled
def sum_rows(  # type: ignore[no-untyped-def]
    rows, n_columns, ends, examples, starts, coef, counts, columns, values, totals, seen
):
    """Sum the rows of each example with their coefficients; returns the number of entries.

    rows, n_columns, ends : the feature rows, their columns, and those of each example
    examples, starts, coef : ``(n,)``, ``(n + 1,)`` places in coefficients ``(starts[n],)``
    counts, columns, values : written: entries of each cut ``(n,)``, and the entries
    totals, seen : scratch, a float64 and a flag for each feature, zero before and after
    """
    used = 0
    for k in range(len(examples)):
        first = used
        constant = 0.0
        for t in range(starts[k + 1] - starts[k]):
            c = coef[starts[k] + t]
            if c == 0.0:
                continue
            i = ends[examples[k]] + t
            constant += c * rows.bias
            at = rows.starts[i]
            for q in range(at, rows.starts[i + 1]):
                j = rows.columns[q if rows.indexed else q - at]
                if not seen[j]:
                    seen[j] = True
                    columns[used] = j
                    used += 1
                totals[j] += c * rows.values[q]
        for q in range(first, used):
            j = columns[q]
            values[q] = totals[j]
            totals[j] = 0.0
            seen[j] = False
        if constant != 0.0:
            columns[used] = n_columns
            values[used] = constant
            used += 1
        counts[k] = used - first
    return used
