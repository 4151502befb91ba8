"""A model in terms of a kernel: rows with factors, where linear models have weights."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.dual.conforming import check_shape
from maxmargin.dual.kernels import ProductKernel
from maxmargin.dual.registry import registered

Floats = NDArray[np.float64]

_MOST_VALUES = 4_000_000
"""Values of the kernel that are held at the same time when outputs are scored."""


@registered("KernelModel", check="check")
@dataclass(frozen=True)
class KernelModel:
    """Scores of a part p with a label l: ``sum f[a, b] * k(parts[a], p) * k(labels[b], l)``.

    Parameters
    ----------
    kernel : ProductKernel
    parts, labels : rows
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
        """The model itself: nothing in it ever changes."""
        return self

    def factors_of(self, labels: Any) -> Floats:
        """What each part row counts for outputs with these labels: (n_parts, n_labels)."""
        return np.asarray(self.factors @ self.kernel.labels(self.labels, labels))

    def weights_of(self, labels: Any) -> Floats:
        """Factors of the part rows; where the kernel of parts is linear, weights of features."""
        factors = self.factors_of(labels)
        return np.asarray(self.parts.T @ factors) if self._is_linear else factors

    def scores(self, parts: Any, weights: Floats) -> Floats:
        """Scores of parts with the labels that `weights_of` was asked for: one row a part."""
        if not self.parts.shape[0]:
            return np.zeros((parts.shape[0], weights.shape[1]))
        if self._is_linear:
            return np.asarray(parts @ weights)
        at_once = max(1, _MOST_VALUES // self.parts.shape[0])
        out = np.empty((parts.shape[0], weights.shape[1]))
        for start in range(0, len(out), at_once):
            some = slice(start, start + at_once)
            out[some] = self.kernel.parts(parts[some], self.parts) @ weights
        return out

    def pair_scores(self, parts: Any, labels: Any) -> Floats:
        """Score of each row of `parts` with the row of `labels` in the same place."""
        out = np.zeros(parts.shape[0])
        at_once = max(1, _MOST_VALUES // max(1, self.parts.shape[0]))
        for start in range(0, len(out), at_once):
            some = slice(start, start + at_once)
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
        at_once = max(1, _MOST_VALUES // self.parts.shape[0])
        for start in range(0, self.parts.shape[0], at_once):
            some = slice(start, start + at_once)
            values = self.kernel.parts(self.parts[some], self.parts) @ factors
            total += float(np.sum(self.factors[some].toarray() * values))
        return 0.5 * total

    @property
    def _is_linear(self) -> bool:
        return bool(self.kernel.parts.is_linear)
