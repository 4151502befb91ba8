"""Partitions of the data, each of which can be read on a worker."""

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from maxmargin.core.arrays import Floats, Order
from maxmargin.data.sources import Columns, Source, examples_of, widened
from maxmargin.data.tables import DaskArrays, DaskSource


class Partition(NamedTuple):
    """Examples of a partition; `y` may be None where the inputs say all."""

    X: Any
    y: Any
    weight: Floats | None = None
    """Multiplies the C of each example."""
    numbers: Order | None = None
    """Of the examples among all; None if partitions follow one another."""

    @property
    def n_examples(self) -> int:
        return self.X.shape[0] if hasattr(self.X, "shape") else len(self.X)


class SourcePartition(NamedTuple):
    """Batches of a source, which workers read themselves: all, or every `of`-th from `number`."""

    source: Source
    number: int = 0
    of: int = 1

    def load(self) -> Partition:
        batches, first = [], 0
        for at, (X, y) in enumerate(self.source.batches()):
            if at % self.of == self.number and len(y):
                numbers = None if self.of == 1 else np.arange(first, first + len(y))
                batches.append(Partition(X, y, None, numbers))
            first += len(y)
        return joined(batches) if batches else Partition([], [])


def load_partition(partition: Any) -> Partition:
    """The examples of a partition, read or computed now if it is lazy."""
    if hasattr(partition, "__dask_graph__"):
        partition = partition.compute(scheduler="synchronous")
    return partition.load() if isinstance(partition, SourcePartition) else partition


def joined(partitions: Sequence[Partition]) -> Partition:
    """Several partitions as one."""
    if len(partitions) == 1:
        return partitions[0]
    Xs, ys, weights, numbers = zip(*partitions, strict=True)
    filled = [np.ones(one.n_examples) if one.weight is None else one.weight for one in partitions]
    return Partition(
        stacked(Xs),
        None if ys[0] is None else stacked(ys),
        None if all(weight is None for weight in weights) else np.concatenate(filled),
        None if numbers[0] is None else stacked(numbers),
    )


def stacked(values: Sequence[Any]) -> Any:
    """Concatenate matrices, arrays or lists; sparse rows become as wide as the widest."""
    if any(sp.issparse(value) for value in values):
        width = max(value.shape[1] for value in values)
        return sp.vstack([widened(sp.csr_array(value), width) for value in values], format="csr")
    if all(isinstance(value, np.ndarray) for value in values):
        return np.concatenate(values)
    return list(chain.from_iterable(values))


def taken(values: Any, numbers: Order) -> Any:
    """Some of the items or rows."""
    if values is None:
        return None
    if sp.issparse(values):
        return sp.csr_array(values)[numbers]
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values[numbers]
    if hasattr(values, "iloc"):
        return values.iloc[numbers]
    return [values[number] for number in numbers]


def dealt_out(X: Any, y: Any, weight: Floats | None, n: int, n_partitions: int) -> list[Partition]:
    """Examples in memory as partitions, every `n_partitions`-th in the same one."""
    owns = [np.arange(number, n, n_partitions) for number in range(n_partitions)]
    return [Partition(taken(X, own), taken(y, own), taken(weight, own), own) for own in owns]


def partitions_of(source: Source, n_partitions: int) -> list[Any]:
    """Partitions of a source: Dask's own, or so many of anything else."""
    if not isinstance(source, (DaskSource, DaskArrays)):
        split = source.split(n_partitions)
        if split is None:
            return [SourcePartition(source, one, n_partitions) for one in range(n_partitions)]
        return [SourcePartition(one) for one in split]
    import dask

    lazy = dask.delayed(_computed_partition)
    if isinstance(source, DaskArrays):
        return [lazy(X, y) for X, y in source.partitions()]
    return [lazy(one, None, source.columns) for one in source.collection.to_delayed()]


def _computed_partition(part: Any, y: Any, columns: Columns | None = None) -> Partition:
    """Examples of a partition that Dask has computed."""
    if columns is None:
        return Partition(part, y)
    if hasattr(part, "columns"):
        return Partition(*columns.of_frame(part))
    items = list(part)
    return Partition(*examples_of(items, columns, 0)) if items else Partition([], [])


def fingerprint_of(source: Source) -> str:
    """A short text that identifies the data; of Dask's, its own name for it."""
    if isinstance(source, DaskSource):
        return str(source.collection.__dask_keys__()[0])
    if isinstance(source, DaskArrays):
        return f"{source.X.name} {source.y.name}"
    return source.fingerprint()


class Survey(NamedTuple):
    """What was found in a partition: its size, what the estimator asked for, and one example."""

    n_examples: int
    found: Any
    first: Partition | None


def check_widths(widths: Sequence[int]) -> None:
    """Refuse partitions with different numbers of features."""
    other = next((number for number, width in enumerate(widths) if width != widths[0]), None)
    if other is not None:
        raise ValueError(
            f"Partition {other} of the data has {widths[other]} features, but partition 0 has "
            f"{widths[0]}: they must be the same for all."
        )
