"""Dask's bags and data frames as sources, one partition at a time.

Dask's arrays as a source, one chunk of rows at a time.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from maxmargin.data.sources import CountedSource, Examples
from maxmargin.data.sources_columns import Columns
from maxmargin.data.sources_python import examples_of


class DaskSource(CountedSource):
    """A bag of pairs ``(x, y)`` or of dictionaries, or a data frame of dask.

    Each block is a partition, which is computed in this thread when it is asked for.

    Parameters
    ----------
    collection : dask.bag.Bag or dask.dataframe.DataFrame
    features : str or list of str, default=None
        Columns, or keys of dictionaries, of the inputs; None takes all columns of numbers.
    target : str, default=None
        Column or key of the target; None takes ``y``, ``target``, ``label`` or ``labels``.

    See Also
    --------
    maxmargin.data.open_examples : Finds the right source for what you have.

    Examples
    --------
    >>> import dask.bag  # doctest: +SKIP
    >>> DaskSource(dask.bag.from_sequence([([0.0], 1), ([1.0], 2)]))  # doctest: +SKIP
    """

    def __init__(
        self,
        collection: Any,
        *,
        features: str | Sequence[str] | None = None,
        target: str | None = None,
    ) -> None:
        super().__init__()
        self.collection = collection
        self.columns = Columns(features, target)

    def _read(self) -> Iterator[Examples]:
        n = 0
        for partition in self.collection.to_delayed():
            part = partition.compute(scheduler="synchronous")
            is_frame = hasattr(part, "columns")
            part = part if is_frame else list(part)
            if len(part):
                yield (
                    self.columns.of_frame(part) if is_frame else examples_of(part, self.columns, n)
                )
                n += len(part)

    def _name(self) -> str:
        kind = type(self.collection).__name__
        return f"{kind} of {self.collection.npartitions} partitions"


def is_dask(data: Any) -> bool:
    """Whether it is a collection of dask with partitions."""
    return type(data).__module__.startswith("dask") and hasattr(data, "to_delayed")


class DaskArrays(CountedSource):
    """Rows of a dask array and their targets.

    Parameters
    ----------
    X : dask.array.Array of shape (n, n_features)
        Its chunks of rows are the blocks.
    y : dask.array.Array of shape (n,)
        Brought into the same chunks; if their sizes are not known, as of arrays that were data
        frames, it must have them.

    See Also
    --------
    maxmargin.data.open_examples : Finds the right source for what you have.
    maxmargin.data.DaskSource : Bags and data frames.

    Examples
    --------
    >>> import dask.array as da  # doctest: +SKIP
    >>> DaskArrays(da.zeros((9, 2), chunks=(3, 2)), da.zeros(9))  # doctest: +SKIP
    DaskArrays(3 chunks, 9 examples, 2 features)
    """

    def __init__(self, X: Any, y: Any) -> None:
        for name, array, ndim in (("X", X, 2), ("y", y, 1)):
            if not is_dask_array(array) or array.ndim != ndim:
                raise ValueError(
                    f"{name} must be a dask array of {ndim} dimension{'s' * (ndim > 1)}, but is "
                    f"{_described(array)}."
                )
        unknown = np.isnan([X.shape[0], y.shape[0]])
        if unknown.any():
            if X.numblocks[0] != y.numblocks[0]:
                raise ValueError(
                    f"X has {X.numblocks[0]} chunks of rows but y has {y.numblocks[0]}, and how "
                    f"long they are is not known: call compute_chunk_sizes() of both before."
                )
        elif X.shape[0] != y.shape[0]:
            raise ValueError(
                f"X has {X.shape[0]} rows but y has {y.shape[0]}: give one target for each."
            )
        super().__init__(None if unknown.any() else int(X.shape[0]), int(X.shape[1]))
        self.X = X.rechunk({1: -1})
        self.y = y if unknown.any() else y.rechunk((self.X.chunks[0],))

    def partitions(self) -> list[tuple[Any, Any]]:
        """Chunks of both, not computed yet."""
        rows = self.X.to_delayed()[:, 0].tolist()
        return list(zip(rows, self.y.to_delayed().tolist(), strict=True))

    def _read(self) -> Iterator[Examples]:
        for X, y in self.partitions():
            yield Examples(X.compute(scheduler="synchronous"), y.compute(scheduler="synchronous"))

    def _name(self) -> str:
        return f"{len(self.X.chunks[0])} chunks"


def is_dask_array(data: Any) -> bool:
    """Whether it is an array of dask."""
    return type(data).__module__.startswith("dask.array")


def _described(data: Any) -> str:
    return f"one of {data.ndim}" if is_dask_array(data) else f"of type {type(data).__name__}"
