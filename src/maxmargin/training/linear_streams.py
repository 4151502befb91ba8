"""Sources as streams of linear problems."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from maxmargin.core.arrays import Floats
from maxmargin.core.inputs import as_floats
from maxmargin.core.linear import LinearProblem, LinearTask, OneVersusRest
from maxmargin.core.state import Stateful
from maxmargin.data.sources import Source, SourceBatch, is_matrix, read_batches, widened
from maxmargin.training.partitions import stacked

SMALL_BATCH = 1 << 20
"""Bytes up to which batches are joined: a sweep over few rows costs more than it gains."""


@dataclass(frozen=True)
class CheckedExamples:
    """Examples of a batch with their C, and the number of examples before them."""

    X: Any
    y: NDArray[Any]
    C: Floats
    first: int

    def of(self, values: Floats, name: str) -> Floats:
        """Entries for these of `values`, one for each example of the source."""
        return _entries(values, self.first, len(self.y), name)


def _entries(values: Floats, first: int, count: int, name: str) -> Floats:
    own = values[first : first + count]
    if len(own) < count:
        raise ValueError(
            f"{name} has {len(values)} entries but the source has more examples: give one for each."
        )
    return own


class LinearStream(Stateful, ABC):
    """Batches of a source as linear problems for `StreamedDual`, as wide as the widest so far."""

    state_names: ClassVar[tuple[str, ...]] = ("width", "complete", "_kind")
    state_types: ClassVar[dict[str, Any]] = {"_kind": Any}

    def __init__(
        self, estimator: Any, source: Source, y: Any, sample_weight: ArrayLike | None
    ) -> None:
        if y is not None:
            raise ValueError("A source gives the targets with the examples: leave y out.")
        weights = None if sample_weight is None else as_floats(sample_weight, "sample_weight")
        self.estimator, self.source, self.sample_weight = estimator, source, weights
        self.width = source.n_features or 0
        self.complete = False
        self._kind = ""
        self.about: LinearTask
        """What weights mean, as of the last batch."""

    @abstractmethod
    def task(self, examples: CheckedExamples) -> LinearTask | None:
        """The problem of a batch; None if nothing can be learned from it yet."""

    def end(self) -> None:
        """After a complete pass, refuse a source of which nothing can be learned."""

    @property
    def content(self) -> Any:
        """What tells these batches from others: the source, and what its beginning becomes."""
        first = next((problem for problem in self() if problem is not None), None)
        return self.source.fingerprint(), self.sample_weight, first

    def __call__(self) -> Iterator[LinearProblem | OneVersusRest | None]:
        for examples in _grouped(self.examples()):
            task = self.task(examples)
            if task is not None:
                self.about = task._replace(problem=None)
            yield None if task is None else task.problem
        self.end()
        self.complete = True

    def examples(self) -> Iterator[CheckedExamples]:
        """Checked batches; errors say where they are."""
        end = 0
        for batch in read_batches(self.source):
            with batch.located():
                checked = self._check(batch)
            end = checked.first + len(checked.y)
            yield checked
        if self.sample_weight is not None and len(self.sample_weight) != end:
            raise ValueError(
                f"sample_weight has {len(self.sample_weight)} entries but the source {end} "
                f"examples: give one for each."
            )

    def _check(self, batch: SourceBatch) -> CheckedExamples:
        X, y = batch.examples
        if not is_matrix(X):
            name = type(self.estimator).__name__
            raise ValueError(f"X is a {type(X).__name__}, but {name} needs rows of numbers.")
        weights = self.sample_weight
        if weights is not None:
            weights = _entries(weights, batch.first, len(y), "sample_weight")
        X, y, C = self.estimator._check_samples(X, y, weights, alone=False)
        X = self._as_wide(X)
        if y.dtype.kind == "f" and not np.isfinite(y).all():
            at = int(np.flatnonzero(~np.isfinite(y))[0])
            raise ValueError(f"y[{at}] is {y[at]} (NaN and inf are not allowed).")
        kind = "numbers" if y.dtype.kind in "biuf" else "text"
        self._kind = self._kind or kind
        if kind != self._kind:
            raise ValueError(f"y holds {kind}, but batches before held {self._kind}.")
        return CheckedExamples(X, y, C, batch.first)

    def _as_wide(self, X: Any) -> Any:
        width = X.shape[1]
        if width == self.width:
            return X
        if sp.issparse(X) and width < self.width:
            return widened(X, self.width)
        if self.width == 0 or (sp.issparse(X) and not self.complete):
            self.width = width
            return X
        raise ValueError(f"X has {width} features, but batches before had {self.width}.")


def _grouped(batches: Iterator[CheckedExamples]) -> Iterator[CheckedExamples]:
    """The same examples, in batches that are not too small."""
    group: list[CheckedExamples] = []
    for examples in batches:
        group.append(examples)
        if sum(len(one.y) * _bytes_per_row(one.X) for one in group) >= SMALL_BATCH:
            yield _joined(group)
            group = []
    if group:
        yield _joined(group)


def _bytes_per_row(X: Any) -> float:
    entries = 12 * X.nnz / X.shape[0] if sp.issparse(X) else X.itemsize * X.shape[1]
    return 100.0 + float(entries)


def _joined(group: list[CheckedExamples]) -> CheckedExamples:
    if len(group) == 1:
        return group[0]
    X, y, C = (stacked([getattr(one, name) for one in group]) for name in ("X", "y", "C"))
    return CheckedExamples(X, y, C, group[0].first)
