"""Sources in parts, each of which can be read somewhere else."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from maxmargin.data.libsvm import LineFile
from maxmargin.data.sources import Source
from maxmargin.data.sources_columns import Columns
from maxmargin.data.sources_dask import DaskArrays, DaskSource
from maxmargin.data.sources_python import examples_of
from maxmargin.training.engines import Engine
from maxmargin.training.sharded_oracle import PartExamples, joined
from maxmargin.training.shards import Loader, Shards


class SourcePart(NamedTuple):
    """Some blocks of a source, read by whoever loads them.

    The source must be within reach, as files on a shared disk are.

    Parameters
    ----------
    source : Source
        Of the part alone; or, if its examples cannot be found otherwise, of all, so that everybody
        reads all and keeps a part.
    number, of : int
        The first block that belongs to the part, and after how many the next does.
    """

    source: Source
    number: int = 0
    of: int = 1

    def load(self) -> PartExamples:
        """Read the examples."""
        batches, first = [], 0
        for at, (X, y) in enumerate(self.source.batches()):
            if at % self.of == self.number and len(y):
                numbers = None if self.of == 1 else np.arange(first, first + len(y))
                batches.append(PartExamples(X, y, None, numbers))
            first += len(y)
        return joined(batches) if batches else PartExamples([], [])


class Survey(NamedTuple):
    """What a part was found to hold.

    Parameters
    ----------
    n_examples : int
    found : Any
        What an estimator must know of all examples.
    first : PartExamples or None
        One of them.
    """

    n_examples: int
    found: Any
    first: PartExamples | None


Found = TypeVar("Found")


def surveyed(engine: Engine, parts: list[Any], survey: Callable[[Any], Found]) -> list[Found]:
    """What each of the parts holds, found where they lie."""
    make = partial(_Surveyed, survey)
    shards = Shards(engine, [Loader(make, [part], engine.home(part)) for part in parts])
    try:
        return shards.make_all("tell")
    finally:
        shards.close()


class _Surveyed:
    """A part of which nothing is kept but what was found in it."""

    def __init__(self, survey: Callable[[Any], Any], parts: list[Any]) -> None:
        (part,) = parts
        self.found = survey(part)

    def tell(self) -> Any:
        """What was found."""
        return self.found


def parts_of(source: Source, n_parts: int) -> list[Any]:
    """The source in parts: partitions of what Dask holds, or so many of anything else."""
    if not isinstance(source, (DaskSource, DaskArrays)):
        own = source.split(n_parts)
        if own is None:
            return [SourcePart(source, number, n_parts) for number in range(n_parts)]
        return [SourcePart(part) for part in own]
    import dask

    lazy = dask.delayed(_partition)
    if isinstance(source, DaskArrays):
        return [lazy(X, y) for X, y in source.partitions()]
    return [lazy(part, None, source.columns) for part in source.collection.to_delayed()]


def as_wide(engine: Engine, parts: list[Any]) -> list[Any]:
    """Parts of a file that does not tell how wide its rows are, all as wide as the widest."""
    if not all(isinstance(part, SourcePart) and _grows(part.source) for part in parts):
        return parts
    width = max(surveyed(engine, parts, _width), default=0)
    return [part._replace(source=part.source.widened(width)) for part in parts]


def _grows(source: Source) -> bool:
    return isinstance(source, LineFile) and source.n_features is None


def _width(part: SourcePart) -> int:
    for _ in part.source.batches():
        pass
    return part.source.n_features or 0


def name_of(source: Source) -> str:
    """A short text that other data will hardly have; of what Dask holds, its own name for it."""
    if isinstance(source, DaskSource):
        return str(source.collection.__dask_keys__()[0])
    if isinstance(source, DaskArrays):
        return f"{source.X.name} {source.y.name}"
    return source.fingerprint()


def _partition(part: Any, y: Any, columns: Columns | None = None) -> PartExamples:
    """Examples of a partition, where Dask has computed it."""
    if columns is None:
        return PartExamples(part, y)
    if hasattr(part, "columns"):
        return PartExamples(*columns.of_frame(part))
    items = list(part)
    return PartExamples(*examples_of(items, columns, 0)) if items else PartExamples([], [])
