"""Dask's bags and data frames as sources, one partition at a time."""

from collections.abc import Iterator, Sequence
from typing import Any

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
