"""Whether the table of a working set that was read from a file is one.

Compiled routines follow its numbers without looking, so each must point into its array.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.checks import check_finite, check_indices, check_shape

Order = NDArray[np.int64]

_MOST_CAPACITY = 1 << 24
"""Cutting planes of one example, beyond which their Gram matrix would fit in no memory."""

_PER_EXAMPLE = ("totals", "gaps", "size", "capacity", "slot_at", "gram_at")
_PER_CUT = ("length", "loss", "coef", "previous", "idle", "free")


def check_table(table: Any, n_features: int, n_outputs: int) -> None:
    """Refuse a table in which compiled routines would look outside their arrays.

    Parameters
    ----------
    table : named tuple of arrays
        See `maxmargin.dual.working_set`.
    n_features : int
    n_outputs : int
        Outputs that are listed, one for each number of a cutting plane.

    Raises
    ------
    ValueError
    """
    n_cuts = len(table.start)
    places = [array.__array_interface__["data"][0] for array in table if array.size]
    if len(set(places)) < len(places):
        raise ValueError("two arrays of the working set are the same")
    for name in _PER_EXAMPLE:
        check_shape(name, getattr(table, name), len(table.owner))
    for name in _PER_CUT:
        check_shape(name, getattr(table, name), n_cuts)
    check_shape("values", table.values, len(table.columns))
    n_free, n_entries = _check_counts(table, n_outputs)
    _check_lists(table, n_cuts)
    check_indices("free", table.free[:n_free], n_cuts)
    check_indices("columns", table.columns[:n_entries], max(n_features, 1))
    for name in ("totals", "loss", "coef", "previous"):
        check_finite(name, getattr(table, name))
    check_finite("values", table.values[:n_entries])
    in_use = np.flatnonzero(table.length >= 0)
    lengths = table.length[in_use].astype(np.int64)
    _check_apart("start", table.start[in_use], lengths, n_entries)
    if int(lengths.sum()) != int(table.counts[2]):
        raise ValueError("the working set counts other entries than it has")
    free = np.sort(table.free[:n_free])
    numbers = np.sort(np.concatenate([free, in_use]))
    if not np.array_equal(numbers, np.arange(int(table.counts[-1]))):
        raise ValueError("a cutting plane is in use and free, or neither")


def _check_counts(table: Any, n_outputs: int) -> tuple[int, int]:
    """Check that no array is used beyond its end; numbers of free planes and of entries."""
    n_cuts, n_entries = len(table.start), len(table.columns)
    rooms = n_cuts, n_entries, n_entries, len(table.slots), len(table.gram), n_cuts
    check_shape("counts", table.counts, len(rooms))
    counts = table.counts
    if (counts < 0).any() or (counts > np.array(rooms)).any() or n_outputs < counts[-1]:
        raise ValueError("the working set counts more cutting planes than it has")
    return int(counts[0]), int(counts[1])


def _check_lists(table: Any, n_cuts: int) -> None:
    """Check that the list and the Gram matrix of every example lie in their arrays."""
    size, capacity = table.size.astype(np.int64), table.capacity.astype(np.int64)
    if (size < 0).any() or (size > capacity).any() or capacity.max(initial=0) > _MOST_CAPACITY:
        raise ValueError("an example has more cutting planes than there is room for")
    _check_apart("slot_at", table.slot_at, capacity, int(table.counts[3]))
    _check_apart("gram_at", table.gram_at, capacity**2, int(table.counts[4]))
    listed = table.slots[_places(table.slot_at, size)]
    check_indices("slots", listed, n_cuts)
    if not np.array_equal(np.sort(listed), np.flatnonzero(table.length >= 0)):
        raise ValueError("examples list other cutting planes than there are")


def _check_apart(name: str, starts: Order, lengths: Order, end: int) -> None:
    """Refuse parts that do not lie between 0 and `end`, or overlap."""
    order = np.lexsort([lengths, starts])
    starts, stops = starts[order], starts[order] + lengths[order]
    inside = ((starts >= 0) & (starts <= end) & (stops <= end)).all()
    if not inside or (stops[:-1] > starts[1:]).any():
        raise ValueError(f"{name} points outside its array, or into the part of another")


def _places(starts: Order, lengths: Order) -> Order:
    """All places of parts of these lengths."""
    before = np.repeat(np.cumsum(lengths) - lengths, lengths)
    return np.repeat(starts, lengths) + np.arange(int(lengths.sum())) - before
