"""From a source of examples to the blocks of a linear problem, each checked as it comes."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from maxmargin.core.linear import LinearProblem, OneVersusRest
from maxmargin.core.prior import WhitenedFeatures
from maxmargin.core.state import Stateful
from maxmargin.data.sources import Examples, Source, is_matrix, widened
from maxmargin.estimators.checks import (
    as_floats,
    check_costs,
    check_features,
    check_labels,
    check_lengths,
    check_per_sample,
)
from maxmargin.estimators.linear import LinearEstimator, Targets

Floats = NDArray[np.float64]


SMALL_BLOCK = 1 << 20
"""Bytes up to which blocks are joined: sweeps over very few rows do not earn what they cost."""


@dataclass(frozen=True)
class CheckedExamples:
    """Examples of a block.

    Parameters
    ----------
    X : ndarray or CSR array
    y : ndarray
    C : ndarray of shape (n_samples,)
    first : int
        How many examples the source has before them.
    """

    X: Any
    y: NDArray[Any]
    C: Floats
    first: int

    def of(self, values: Floats, name: str) -> Floats:
        """The part of `values`, which has an entry for each example of the source."""
        return _slice(values, self.first, len(self.y), name)


def _slice(values: Floats, first: int, count: int, name: str) -> Floats:
    part = values[first : first + count]
    if len(part) < count:
        raise ValueError(
            f"{name} has {len(values)} entries but the source has more examples: give one for each."
        )
    return part


class BatchStream(Stateful, ABC):
    """Goes through the blocks of a source again and again: what `StreamedDual.solve` wants.

    In the first pass each block is as wide as the widest so far, in later ones as the widest of
    all. A block without examples is left out.

    Parameters
    ----------
    estimator : LinearEstimator
    source : Source
    y : None
        The source gives the targets; anything else is refused.
    sample_weight : array-like of shape (n_samples,) or None
        Multiplies the C of each example.
    """

    state_names: ClassVar[tuple[str, ...]] = ("width", "complete", "_kind")
    state_types: ClassVar[dict[str, Any]] = {"_kind": Any}

    def __init__(
        self, estimator: LinearEstimator, source: Source, y: Any, sample_weight: ArrayLike | None
    ) -> None:
        if y is not None:
            raise ValueError("A source gives the targets with the examples: leave y out.")
        self.estimator: Any = estimator
        self.source = source
        self.sample_weight = None
        if sample_weight is not None:
            self.sample_weight = as_floats(sample_weight, "sample_weight")
        self.width = source.n_features or 0
        self.complete = False
        self._kind = ""
        self._about: tuple[WhitenedFeatures, Targets] | None = None

    @abstractmethod
    def targets(self, examples: CheckedExamples) -> tuple[Targets, Floats] | None:
        """Targets and costs of a block; None if nothing can be learned from it yet."""

    def end(self) -> None:
        """Refuse a source of which nothing can be learned; called after a complete pass."""

    @property
    def content(self) -> Any:
        """All that tells these blocks from others: the source, and what its beginning becomes."""
        first = next((problem for problem in self() if problem is not None), None)
        return self.source.fingerprint(), self.sample_weight, first

    def about(self) -> tuple[WhitenedFeatures, Targets]:
        """The way back from the features of the problem, and what its outputs are."""
        assert self._about is not None  # a solver has weights only if there was a block
        return self._about

    def __call__(self) -> Iterator[LinearProblem | OneVersusRest | None]:
        for examples in _grouped(self.examples()):
            found = self.targets(examples)
            if found is None:
                yield None
                continue
            targets, C = found
            features = self.estimator._features(examples.X, targets.n_outputs)
            self._about = replace(features, X=None), targets
            yield self.estimator._problem(features, targets, C)
        self.end()
        self.complete = True

    def examples(self) -> Iterator[CheckedExamples]:
        """The blocks as they are, checked; errors tell where."""
        first = 0
        for number, batch in enumerate(self.source.batches()):
            if len(batch.y) == 0:
                continue
            try:
                checked = self._check(batch, first)
            except ValueError as error:
                where = f"In block {number} of the source, whose first row is row {first} of all"
                raise ValueError(f"{where}, {error}") from error
            first += len(checked.y)
            yield checked
        if first == 0:
            raise ValueError("The source gave no examples.")
        if self.sample_weight is not None and len(self.sample_weight) != first:
            raise ValueError(
                f"sample_weight has {len(self.sample_weight)} entries but the source {first} "
                f"examples: give one for each."
            )

    def _check(self, batch: Examples, first: int) -> CheckedExamples:
        name = type(self.estimator).__name__
        if not is_matrix(batch.X):
            raise ValueError(f"X is a {type(batch.X).__name__}, but {name} needs rows of numbers.")
        X = self._as_wide(check_features(batch.X, name))
        y = check_labels(batch.y, name)
        check_lengths(X, y)
        if y.dtype.kind == "f" and not np.isfinite(y).all():
            at = int(np.flatnonzero(~np.isfinite(y))[0])
            raise ValueError(f"y[{at}] is {y[at]} (NaN and inf are not allowed).")
        kind = "numbers" if y.dtype.kind in "biuf" else "text"
        self._kind = self._kind or kind
        if kind != self._kind:
            raise ValueError(f"y holds {kind}, but blocks before held {self._kind}.")
        C = np.full(len(y), float(self.estimator.C))
        if self.sample_weight is not None:
            weights = _slice(self.sample_weight, first, len(y), "sample_weight")
            C *= check_per_sample(weights, len(y), "sample_weight", "weights")
        return CheckedExamples(X, y, check_costs(C), first)

    def _as_wide(self, X: Any) -> Any:
        width = X.shape[1]
        if width == self.width:
            return X
        if sp.issparse(X) and width < self.width:
            return widened(X, self.width)
        if self.width == 0 or (sp.issparse(X) and not self.complete):
            self.width = width
            return X
        raise ValueError(f"X has {width} features, but blocks before had {self.width}.")


def _grouped(batches: Iterator[CheckedExamples]) -> Iterator[CheckedExamples]:
    """The same examples, in blocks that are not too small."""
    group: list[CheckedExamples] = []
    for examples in batches:
        group.append(examples)
        if sum(len(part.y) * _bytes_per_row(part.X) for part in group) >= SMALL_BLOCK:
            yield _joined(group)
            group = []
    if group:
        yield _joined(group)


def _bytes_per_row(X: Any) -> float:
    """Memory that a row takes in a sweep, about."""
    entries = 12 * X.nnz / X.shape[0] if sp.issparse(X) else X.itemsize * X.shape[1]
    return 100.0 + float(entries)


def _joined(group: list[CheckedExamples]) -> CheckedExamples:
    if len(group) == 1:
        return group[0]
    matrices = [examples.X for examples in group]
    if any(map(sp.issparse, matrices)):
        width = max(X.shape[1] for X in matrices)
        matrices = [widened(sp.csr_array(X), width) for X in matrices]
        X = sp.vstack(matrices, format="csr")
    else:
        X = np.concatenate(matrices)
    y, C = (np.concatenate([getattr(e, name) for e in group]) for name in ("y", "C"))
    return CheckedExamples(X, y, C, group[0].first)


def joined_classes(known: NDArray[Any], found: NDArray[Any]) -> NDArray[Any]:
    """All classes, sorted.

    Raises
    ------
    ValueError
        If they are not labels.
    """
    if found.dtype.kind == "f" and (found != np.round(found)).any():
        bad = found[found != np.round(found)][0]
        raise ValueError(f"Labels must be whole numbers or text, but y holds {bad}.")
    return np.union1d(known, found) if len(known) else found


def class_numbers(y: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.intp]:
    """Where in `classes` the labels are.

    Raises
    ------
    ValueError
        If one is not.
    """
    numbers = np.searchsorted(classes, y).clip(max=len(classes) - 1)
    unknown = np.flatnonzero(classes[numbers] != y)
    if len(unknown):
        raise ValueError(
            f"y[{unknown[0]}] is {y[unknown].tolist()[0]!r}, which is not one of the classes "
            f"{classes.tolist()}."
        )
    return numbers
