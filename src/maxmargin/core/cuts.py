"""Cutting planes: ``loss - <w, psi>`` bounds the hinge of their example from below at any ``w``."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.core.arrays import Floats, Order


def starts_of(sizes: Any) -> Order:
    """Where things of these sizes start when they stand one after the other, and where they end."""
    starts = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.add.accumulate(sizes, dtype=np.int64, out=starts[1:])
    return starts


class Cuts(NamedTuple):
    """Cutting planes of a batch of examples, one for each.

    Parameters
    ----------
    starts : ndarray of int64, shape (n + 1,)
        Cut ``k`` has the entries ``starts[k]:starts[k + 1]``.
    columns : ndarray of uint32, shape (n_entries,)
        A column may occur more than once in a cut; its values then add up.
    values : ndarray of shape (n_entries,)
        ``psi = joint_feature(x, y_true) - joint_feature(x, y)``.
    losses : ndarray of shape (n,)
    outputs : list of length n
        The outputs ``y``, from which the cuts can be made again.
    suboptimality : ndarray of shape (n,) or None
        Bound on how far the hinge of each example lies above its cut at the weights of the oracle
        call; None for an exact oracle.
    """

    starts: NDArray[np.int64]
    columns: NDArray[np.uint32]
    values: Floats
    losses: Floats
    outputs: list[Any]
    suboptimality: Floats | None = None

    @classmethod
    def join(cls, parts: Sequence["Cuts"]) -> "Cuts":
        """Batches one after the other, at least one."""
        if len(parts) == 1:
            return parts[0]
        starts, columns, values, losses, outputs, suboptimality = zip(*parts, strict=True)
        counts = np.concatenate([np.diff(part) for part in starts])
        bounds = [part for part in suboptimality if part is not None]
        return cls(
            starts_of(counts),
            np.concatenate(columns),
            np.concatenate(values),
            np.concatenate(losses),
            [output for part in outputs for output in part],
            np.concatenate(bounds) if len(bounds) == len(parts) else None,
        )

    def matrix(self, n_features: int) -> sp.csr_array:
        """All psi as the rows of a sparse matrix."""
        entries = self.values, self.columns.astype(np.int64), self.starts
        return sp.csr_array(entries, shape=(len(self.losses), n_features))

    def slopes(self, weights: Floats) -> Floats:
        """``loss - <w, psi>`` of each cut."""
        if len(self.losses) == 1:  # for which a matrix takes longer than an inference
            return self.losses - self.values @ weights[self.columns]
        return np.asarray(self.losses - self.matrix(len(weights)) @ weights)

    def add_to(self, weights: Floats, coef: Floats, first: int = 0) -> None:
        """``weights += sum_k coef_k psi_k``, where `weights` are those from column `first` on."""
        # Entry by entry: a product with the matrix would be a second vector of all weights.
        columns = self.columns.astype(np.int64) - first
        values = np.repeat(coef, np.diff(self.starts)) * self.values
        inside = (columns >= 0) & (columns < len(weights))
        if not inside.all():
            columns, values = columns[inside], values[inside]
        np.add.at(weights, columns, values)

    def take(self, which: NDArray[np.int64]) -> "Cuts":
        """Some of the cuts, without their suboptimality."""
        counts = np.diff(self.starts)[which]
        starts = starts_of(counts)
        entries = np.arange(starts[-1]) + np.repeat(self.starts[which] - starts[:-1], counts)
        return Cuts(
            starts,
            self.columns[entries],
            self.values[entries],
            self.losses[which],
            [self.outputs[k] for k in which],
        )
