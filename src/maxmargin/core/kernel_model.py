"""Models in the feature space of a kernel: support vectors with coefficients, and their scores."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.core.checks import check_shape
from maxmargin.core.kernel import Candidates, n_rows
from maxmargin.core.kernels import ProductKernel, stacked
from maxmargin.core.registry import registered
from maxmargin.core.threads import Threads

Floats = NDArray[np.float64]

_MOST_VALUES = 4_000_000
"""Kernel values, or values in the rows of candidates, that are held at the same time."""

_MOST_INPUTS = 256
"""Inputs whose candidates are held at the same time."""


@registered("KernelModel", check="check")
@dataclass(frozen=True)
class KernelModel:
    """Scores of a part p with a label l: ``sum f[a, b] * k(parts[a], p) * k(labels[b], l)``.

    Parameters
    ----------
    kernel : ProductKernel
    parts, labels : rows
        Of the support vectors, each once.
    factors : csr_array of shape (n_parts, n_labels)
    """

    kernel: ProductKernel
    parts: Any
    labels: Any
    factors: Any

    @classmethod
    def of(
        cls, kernel: ProductKernel, parts: Any, labels: Any, at: tuple[Any, Any], factors: Floats
    ) -> "KernelModel":
        """From the factors of pairs of rows; rows without any factor are left out."""
        shape = parts.shape[0], labels.shape[0]
        table = sp.csr_array(sp.coo_array((factors, at), shape=shape))
        table.sum_duplicates()
        table.eliminate_zeros()
        used = np.flatnonzero(np.diff(table.indptr))
        columns = np.unique(table.indices)
        return cls(kernel, parts[used], labels[columns], sp.csr_array(table[used][:, columns]))

    def check(self) -> None:
        """Raise ValueError if rows and factors do not fit together."""
        if not all(hasattr(rows, "shape") and rows.shape for rows in (self.parts, self.labels)):
            raise ValueError("the rows of the kernel model are none")
        if any(rows.dtype.kind not in "fO" for rows in (self.parts, self.labels, self.factors)):
            raise ValueError("the rows of the kernel model are no numbers")
        kernels = self.kernel.parts, self.kernel.labels
        if any(getattr(kernel, "gamma", 1.0) is None for kernel in kernels):
            raise ValueError("the kernel of the model has no gamma")
        check_shape("factors", self.factors, self.parts.shape[0], self.labels.shape[0])

    def copy(self) -> "KernelModel":
        """The model itself, which is immutable."""
        return self

    def factors_of(self, labels: Any) -> Floats:
        """Factor of each part row for outputs with these labels: (n_parts, n_labels)."""
        return np.asarray(self.factors @ self.kernel.labels(self.labels, labels))

    def weights_of(self, labels: Any) -> Floats:
        """Factors of the part rows; where the kernel of parts is linear, weights of features."""
        factors = self.factors_of(labels)
        return np.asarray(self.parts.T @ factors) if self._is_linear else factors

    def scores(self, parts: Any, weights: Floats) -> Floats:
        """Scores of parts with the labels that `weights_of` was given: one row a part."""
        if not self.parts.shape[0]:
            return np.zeros((parts.shape[0], weights.shape[1]))
        if self._is_linear:
            return np.asarray(parts @ weights)
        out = np.empty((parts.shape[0], weights.shape[1]))
        for some in self._chunks(len(out)):
            out[some] = self.kernel.parts(parts[some], self.parts) @ weights
        return out

    def pair_scores(self, parts: Any, labels: Any) -> Floats:
        """Score of each row of `parts` with the same row of `labels`."""
        out = np.zeros(parts.shape[0])
        for some in self._chunks(len(out)):
            values = self.kernel.parts(parts[some], self.parts)
            factors = self.factors @ self.kernel.labels(self.labels, labels[some])
            out[some] = np.einsum("ap,pa->a", values, factors)
        return out

    @cached_property
    def half_square(self) -> float:
        """``1/2 |w|^2``, with the kernel computed anew."""
        if not self.parts.shape[0]:
            return 0.0
        factors = self.factors_of(self.labels)
        total = 0.0
        for some in self._chunks(self.parts.shape[0]):
            values = self.kernel.parts(self.parts[some], self.parts) @ factors
            total += float(np.sum(self.factors[some].toarray() * values))
        return 0.5 * total

    def _chunks(self, n: int) -> Iterator[slice]:
        """Slices of n rows whose kernel values with all parts may be held together."""
        at_once = max(1, _MOST_VALUES // max(1, self.parts.shape[0]))
        return (slice(start, start + at_once) for start in range(0, n, at_once))

    @property
    def _is_linear(self) -> bool:
        return bool(self.kernel.parts.is_linear)


class Scored(NamedTuple):
    """Rows of the parts and labels of each input, and the scores of every part with every label."""

    part_rows: list[Any]
    label_rows: list[Any]
    scores: list[Floats]


class Scoring:
    """Scores by a model; the weights of labels are kept while inputs share them."""

    def __init__(self, model: KernelModel) -> None:
        self.model = model
        self._labels: Any = None
        self._rows: Any = None
        self._weights: Any = None
        self._weights_rows: Any = None

    def score(self, candidates: Sequence[Candidates]) -> Scored:
        """Score the candidates of some inputs; consecutive ones with the same labels at once."""
        part_rows = [self.model.kernel.parts.rows(each.parts) for each in candidates]
        label_rows = [self._label_rows(each.labels) for each in candidates]
        scores: list[Floats] = []
        start = 0
        while start < len(part_rows):
            stop = start + 1
            while stop < len(part_rows) and label_rows[stop] is label_rows[start]:
                stop += 1
            together = part_rows[start:stop]
            table = self.model.scores(stacked(together), self._weights_of(label_rows[start]))
            scores += np.split(table, np.cumsum([rows.shape[0] for rows in together])[:-1])
            start = stop
        return Scored(part_rows, label_rows, scores)

    def _label_rows(self, labels: Any) -> Any:
        if self._rows is None or labels is not self._labels:
            self._labels, self._rows = labels, self.model.kernel.labels.rows(labels)
        return self._rows

    def _weights_of(self, rows: Any) -> Floats:
        if rows is not self._weights_rows:
            self._weights_rows, self._weights = rows, self.model.weights_of(rows)
        return np.asarray(self._weights)


def in_groups(
    inputs: Iterable[int], candidates_of: Callable[[int], Candidates]
) -> Iterator[list[tuple[int, Candidates]]]:
    """Inputs with their candidates, as many at a time as may be held together."""
    group: list[tuple[int, Candidates]] = []
    values = 0
    for i in inputs:
        candidates = candidates_of(i)
        group.append((i, candidates))
        values += getattr(candidates.parts, "size", n_rows(candidates.parts))
        if len(group) == _MOST_INPUTS or values >= _MOST_VALUES:
            yield group
            group, values = [], 0
    if group:
        yield group


def predict(problem: Any, model: KernelModel, X: Any, threads: Threads) -> list[tuple[Any, float]]:
    """The best output of each input, and its score."""

    def best(share: slice) -> list[tuple[Any, float]]:
        scoring, answers = Scoring(model), []
        for group in in_groups(range(n_rows(X))[share], lambda i: problem.candidates(X[i])):
            candidates = [each for _, each in group]
            for each, table in zip(candidates, scoring.score(candidates).scores, strict=True):
                scores = table[each.part_of, each.label_of]
                at = int(np.argmax(scores))
                answers.append((each.outputs[at], float(scores[at])))
        return answers

    parts = threads.map(best, threads.shares(n_rows(X)))
    return [answer for part in parts for answer in part]
