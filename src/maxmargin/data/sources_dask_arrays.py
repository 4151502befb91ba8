"""Dask's arrays as a source, one chunk of rows at a time."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from maxmargin.data.sources import CountedSource, Examples


class DaskArrays(CountedSource):
    """Rows of a dask array and their targets.

    Parameters
    ----------
    X : dask.array.Array of shape (n, n_features)
        Rows in chunks that have all columns.
    y : dask.array.Array of shape (n,)
        Brought into the same chunks.

    See Also
    --------
    maxmargin.data.DaskSource : Bags and data frames.

    Examples
    --------
    >>> import dask.array as da  # doctest: +SKIP
    >>> DaskArrays(da.zeros((9, 2), chunks=(3, 2)), da.zeros(9))  # doctest: +SKIP
    """

    def __init__(self, X: Any, y: Any) -> None:
        if getattr(X, "ndim", 0) != 2 or getattr(y, "ndim", 0) != 1:
            raise ValueError("X must be a dask array of two dimensions, and y one of one.")
        if X.shape[0] != y.shape[0]:
            raise ValueError(
                f"X has {X.shape[0]} rows but y has {y.shape[0]}: give one target for each."
            )
        super().__init__(None if np.isnan(X.shape[0]) else int(X.shape[0]), int(X.shape[1]))
        self.X = X.rechunk({1: -1})
        self.y = y.rechunk((self.X.chunks[0],))

    def partitions(self) -> list[tuple[Any, Any]]:
        """Chunks of both, not computed yet."""
        rows = self.X.to_delayed()[:, 0].tolist()
        return list(zip(rows, self.y.to_delayed().tolist(), strict=True))

    def _read(self) -> Iterator[Examples]:
        for X, y in self.partitions():
            yield Examples(X.compute(scheduler="synchronous"), y.compute(scheduler="synchronous"))

    def _name(self) -> str:
        return f"{len(self.X.chunks[0])} chunks"
