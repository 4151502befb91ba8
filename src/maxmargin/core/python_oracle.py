"""The separation oracle of any `Problem` in Python, every answer checked."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.core.arrays import Floats, Order
from maxmargin.core.cuts import Cuts, starts_of
from maxmargin.core.inputs import LARGEST, are_moderate
from maxmargin.core.oracle import _CHUNK, Oracle, Threads, outputs_missing
from maxmargin.core.oracle_check import ROUNDING, Candidate, OracleChecker
from maxmargin.core.problem import (
    HasInference,
    InfersBatches,
    ListsOutputs,
    MakesOracle,
    ProblemError,
    called,
    is_exact,
    rescales_slack,
    settings_of,
)

_ROUNDING, _CANCELLED = 1e-7, 1e-13
"""Relative to the terms, how far below zero rounding may push a maximum."""


_SparseRow = tuple[NDArray[np.uint32], Floats]


class PythonOracle(Oracle):
    """Oracle of any `Problem`, one call at a time."""

    def __init__(
        self,
        problem: Any,
        X: Sequence[Any],
        Y: Sequence[Any],
        C: Floats,
        rescaling: str = "margin",
    ) -> None:
        self.problem, self.X, self.Y, self.C = problem, X, Y, C
        self.exact = is_exact(problem)
        self.by_slack = rescaling == "slack"
        self.method = "slack_rescaled_inference" if self.by_slack else "loss_augmented_inference"
        self._in_batches = isinstance(problem, InfersBatches) and not self.by_slack
        """Whether the problem has inference for many examples at once."""
        self._true_rows: dict[int, _SparseRow] = {}
        self.known: dict[int, dict[Any, Candidate]] = {}
        self.first = 0
        if isinstance(problem, HasInference) and self.exact:
            self.checker = OracleChecker()
        self.n_features = 0  # not known before the first example's features
        self._true_rows[0] = self._feature(0, Y[0])
        if self._loss(0, Y[0]) != 0.0:
            raise ProblemError(
                f"loss of {self._name} must be zero for the true output, but for example 0 it is "
                f"{self._loss(0, Y[0]):g}."
            )

    @property
    def oracle_name(self) -> str:
        return f"{'cuts' if self._in_batches else self.method} of {self._name}"

    def check_from(self, first: int, checker: OracleChecker | None) -> None:
        super().check_from(first, checker)
        self.first = first

    @property
    def content(self) -> Any:
        settings = settings_of(self.problem)
        return self._name, settings, self.X, self.Y, self.C, self.by_slack, self.n_features

    @property
    def oracle_work(self) -> None:
        return None

    def separate(self, weights: Floats, examples: Order, threads: Threads) -> Cuts:
        fixed = weights.view()
        fixed.flags.writeable = False
        if self._in_batches:
            return self._batched(self.problem.cuts, fixed, examples)
        outputs = [self._inferred(int(i), fixed) for i in examples]
        cuts = self._checked(self.cuts_of(examples, outputs), fixed, examples, self.method)
        return self._compared(cuts, fixed, examples)

    def cuts_of(self, examples: Order, outputs: Sequence[Any]) -> Cuts:
        columns, values, losses = [], [], []
        for i, y in zip(examples.tolist(), outputs, strict=True):
            row_columns, row_values = self._difference(i, y)
            loss = self._loss(i, y)
            columns.append(row_columns)
            values.append(loss * row_values if self.by_slack else row_values)
            losses.append(loss)
        return Cuts(
            starts_of([len(part) for part in columns]),
            np.concatenate(columns) if columns else np.zeros(0, dtype=np.uint32),
            np.concatenate(values) if values else np.zeros(0),
            np.array(losses, dtype=np.float64),
            list(outputs),
        )

    def outputs(self, example: int) -> list[Any]:
        if not isinstance(self.problem, ListsOutputs):
            raise ValueError(outputs_missing(self.problem))
        return list(self._call("outputs", example, self.X[example]))

    @property
    def _name(self) -> str:
        return type(self.problem).__name__

    def _inferred(self, i: int, weights: Floats) -> Any:
        try:
            return self._call(self.method, i, self.X[i], self.Y[i], weights)
        except ProblemError:
            # Features of varying length make inference fail that is right: blame the features.
            for other in range(min(self.n_examples, _CHUNK)):
                self._feature(other, self.Y[other])
            raise

    def _call(self, method: str, i: int, *arguments: Any) -> Any:
        return called(self.problem, method, i, *arguments)

    def _loss(self, i: int, y: Any) -> float:
        """Loss of an output for example `i`, checked."""
        given = self._call("loss", i, self.Y[i], y)
        try:
            loss = math.nan if isinstance(given, str) else float(given)
        except (TypeError, ValueError):
            loss = math.nan
        if not (math.isfinite(loss) and loss >= 0.0):
            raise ProblemError(
                f"loss of {self._name} must be a finite number that is not negative, but for "
                f"example {i} and the output {y!r:.80} it is {given!r:.80}."
            )
        if loss > LARGEST:
            raise ProblemError(
                f"loss of {self._name} is {loss:g} for example {i} and the output {y!r:.80}, but "
                f"beyond {LARGEST:g} sums overflow: scale it, to about 1."
            )
        return loss

    def _difference(self, i: int, y: Any) -> _SparseRow:
        """Joint features of example `i` with its true output less those with `y`."""
        columns, values = self._of_y_true(i)
        other_columns, other_values = self._feature(i, y)
        if not len(columns) + len(other_columns):
            return columns, values
        touched = np.concatenate([columns, other_columns])
        order = touched.argsort(kind="stable")
        touched = touched[order]
        is_new = np.ones(len(touched), dtype=bool)
        np.not_equal(touched[1:], touched[:-1], out=is_new[1:])
        at = is_new.nonzero()[0]
        difference = np.add.reduceat(np.concatenate([values, -other_values])[order], at)
        kept = difference != 0.0
        return touched[at[kept]], difference[kept]

    def _of_y_true(self, i: int) -> _SparseRow:
        if i not in self._true_rows:
            self._true_rows[i] = self._feature(i, self.Y[i])
        return self._true_rows[i]

    def _feature(self, i: int, y: Any) -> _SparseRow:
        """Columns and values of the joint features of example `i` with an output, checked."""
        given = self._call("joint_feature", i, self.X[i], y)
        try:
            columns, values, width = as_row(given)
        except (TypeError, ValueError) as error:
            raise ProblemError(
                f"joint_feature of {self._name} must return numbers, but did not for example {i} "
                f"and the output {y!r:.80}."
            ) from error
        self.n_features = self.n_features or width
        if width != self.n_features:
            raise ProblemError(
                f"joint_feature of {self._name} returned {width} features for example {i} and the "
                f"output {y!r:.80}, but {self.n_features} for the first example."
            )
        if not np.isfinite(values).all():
            raise ProblemError(
                f"joint_feature of {self._name} returned NaN or infinity for example {i} and the "
                f"output {y!r:.80}."
            )
        if not are_moderate(values):
            raise ProblemError(
                f"joint_feature of {self._name} returned {values[np.abs(values).argmax()]:g} for "
                f"example {i} and the output {y!r:.80}, but squares of numbers beyond {LARGEST:g} "
                f"overflow: scale the features, to about 1."
            )
        return columns, values

    def _batched(self, batched: Callable[..., Cuts], weights: Floats, examples: Order) -> Cuts:
        xs, y_true = [self.X[i] for i in examples], [self.Y[i] for i in examples]
        try:
            cuts = _as_cuts(*batched(xs, y_true, weights))
        except Exception as error:
            raise ProblemError(
                f"cuts of {self._name} raised {type(error).__name__} for the examples "
                f"{examples[0]} to {examples[-1]}: {error}"
            ) from error
        n = len(examples)
        if len(cuts.losses) != n or len(cuts.starts) != n + 1 or len(cuts.outputs) != n:
            raise ProblemError(
                f"cuts of {self._name} must return one cut for each of the {n} examples it "
                f"was given, but returned {len(cuts.losses)}."
            )
        self._check_entries(cuts)
        cuts = self._checked(cuts, weights, examples, "cuts")
        return self._compared(cuts, weights, examples)

    def _check_entries(self, cuts: Cuts) -> None:
        """Check a user's cuts, because compiled routines trust them."""
        n_entries = len(cuts.columns)
        grows = (np.diff(cuts.starts) >= 0).all() and cuts.starts[0] == 0
        if not grows or cuts.starts[-1] != n_entries or len(cuts.values) != n_entries:
            raise ProblemError(
                f"cuts of {self._name} must return starts that rise from 0 to the number of "
                f"columns and values."
            )
        if n_entries and cuts.columns.max() >= self.n_features:
            raise ProblemError(
                f"cuts of {self._name} returned the column {cuts.columns.max()}, but there are "
                f"{self.n_features} features."
            )
        if not (np.isfinite(cuts.values).all() and np.isfinite(cuts.losses).all()):
            raise ProblemError(f"cuts of {self._name} returned NaN or infinity.")
        if not (are_moderate(cuts.values) and are_moderate(cuts.losses)):
            raise ProblemError(
                f"cuts of {self._name} returned numbers beyond {LARGEST:g}, whose squares "
                f"overflow: scale features and losses, to about 1."
            )
        suboptimality = cuts.suboptimality
        if suboptimality is not None and not (
            len(suboptimality) == len(cuts.losses) and (suboptimality >= 0).all()
        ):
            raise ProblemError(
                f"cuts of {self._name} must return a suboptimality bound for each example, none "
                f"negative."
            )
        if suboptimality is not None and self.exact:
            raise ProblemError(
                f"cuts of {self._name} returned a suboptimality bound, so {self._name} must say "
                f"exact = False."
            )

    def _checked(self, cuts: Cuts, weights: Floats, examples: Order, method: str) -> Cuts:
        """Refuse cuts below zero, that of the true output; if inference is not exact, use that."""
        slopes = cuts.slopes(weights)
        scale = 1.0 + cuts.losses + np.abs(cuts.losses - slopes)
        if not (slopes < -_ROUNDING * scale).any():
            return cuts
        # Where large numbers cancel, what is left of them is rounding.
        sizes = np.abs(cuts.values * weights[cuts.columns])
        of_cut = np.repeat(np.arange(len(slopes)), np.diff(cuts.starts))
        cancelled = np.bincount(of_cut, weights=sizes, minlength=len(slopes))
        bad = np.flatnonzero(slopes < -np.maximum(_ROUNDING * scale, _CANCELLED * cancelled))
        if not len(bad):
            return cuts
        if not self.exact:
            return self._with_true_outputs(cuts, slopes, examples, bad)
        k = bad[0]
        raise ProblemError(
            f"{method} of {self._name} returned {cuts.outputs[k]!r:.80} for example "
            f"{examples[k]}, whose score plus loss is {-slopes[k]:.3g} below that of the true "
            f"output: it must return the highest."
        )

    def _with_true_outputs(self, cuts: Cuts, slopes: Floats, examples: Order, at: Order) -> Cuts:
        """Replace some cuts by those of the true outputs."""
        counts = np.diff(cuts.starts)
        kept = np.ones(len(counts), dtype=bool)
        kept[at] = False
        entries = np.repeat(kept, counts)
        outputs = list(cuts.outputs)
        for k in at.tolist():
            outputs[k] = self.Y[int(examples[k])]
        suboptimality = cuts.suboptimality
        if suboptimality is not None:
            suboptimality = np.where(kept, suboptimality, np.maximum(slopes + suboptimality, 0.0))
        columns, values = cuts.columns[entries], cuts.values[entries]
        starts = starts_of(counts * kept)
        return Cuts(starts, columns, values, cuts.losses * kept, outputs, suboptimality)

    def _compared(self, cuts: Cuts, weights: Floats, examples: Order) -> Cuts:
        if self.checker is not None:
            self.checker.check(self, cuts, weights, examples)
        return cuts

    # What an `OracleChecker` asks

    @property
    def inference_name(self) -> str:
        return f"inference of {self._name}"

    def candidate(self, i: int, y: Any) -> Candidate:
        """An output with its features less those of the true one."""
        columns, values = self._difference(i, y)
        return Candidate(columns, -values, self._loss(i, y), y)

    def inferred_best(self, i: int, weights: Floats) -> Any:
        """Result of MAP inference for example `i`."""
        return self._call("inference", i, self.X[i], weights)

    def is_candidate(self, candidate: Candidate) -> bool:
        """Whether loss-augmented inference ranges over it."""
        return True

    def true_terms(self, i: int, weights: Floats) -> float:
        """Sum of the absolute terms of the true output's score."""
        columns, values = self._of_y_true(i)
        return float(np.abs(values) @ np.abs(weights[columns]))

    def check_agreement(self, i: int, found: Candidate) -> None:
        """Refuse a loss of the true output, and a cut that is not that of its output."""
        own = self._loss(i, self.Y[i])
        if own != 0.0:
            raise ProblemError(
                f"loss of {self._name} must be zero for the true output, but for example "
                f"{self.first + i} it is {own:g}."
            )
        if not self._in_batches:
            return  # then the cut was made of the output
        again = self.candidate(i, found.output)
        dense = np.zeros(self.n_features)
        np.add.at(dense, found.columns, found.values)
        np.subtract.at(dense, again.columns, again.values)
        apart = float(np.abs(dense).max(initial=0.0))
        if apart > ROUNDING * (1.0 + float(np.abs(again.values).max(initial=0.0))) or (
            abs(found.loss - again.loss) > ROUNDING * (1.0 + again.loss)
        ):
            raise ProblemError(
                f"cuts of {self._name} does not agree with joint_feature and loss: for example "
                f"{self.first + i} and the output {found.output!r:.80} its loss is {found.loss:g}, "
                f"not {again.loss:g}, and its features are {apart:.3g} off."
            )


def as_row(features: Any) -> tuple[NDArray[np.uint32], Floats, int]:
    """Columns, values and length of joint features; TypeError or ValueError if they are none."""
    if sp.issparse(features):
        row = sp.coo_array(features)
        row.sum_duplicates()
        return row.coords[-1].astype(np.uint32), row.data.astype(np.float64), row.shape[-1]
    dense = np.asarray(features, dtype=np.float64).ravel()
    if isinstance(features, str) or not np.ndim(features):
        raise TypeError("joint features must be an array or a sparse row")
    columns = np.flatnonzero(dense)
    return columns.astype(np.uint32), dense[columns], len(dense)


def _as_cuts(
    starts: Any, columns: Any, values: Any, losses: Any, outputs: Any, suboptimality: Any = None
) -> Cuts:
    """Cuts with the dtypes of compiled routines, from what a user returned."""
    return Cuts(
        np.ascontiguousarray(starts, dtype=np.int64),
        np.ascontiguousarray(columns, dtype=np.uint32),
        np.ascontiguousarray(values, dtype=np.float64),
        np.ascontiguousarray(losses, dtype=np.float64),
        list(outputs),
        None if suboptimality is None else np.ascontiguousarray(suboptimality, dtype=np.float64),
    )


def make_oracle(
    problem: Any, X: Sequence[Any], Y: Sequence[Any], C: Floats, rescaling: str
) -> Oracle:
    """The oracle of a problem: its own, or the plain-Python one."""
    from maxmargin.core.slack_rescaling import SlackRescaledOracle  # which builds on this module

    if rescaling == "slack" and not rescales_slack(problem):
        return SlackRescaledOracle(make_oracle(problem, X, Y, C, "margin"))
    if isinstance(problem, MakesOracle):
        bound: Oracle = problem.make_oracle(X, Y, C, rescaling)
        return bound
    return PythonOracle(problem, X, Y, C, rescaling)
