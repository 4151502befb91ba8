"""Sequences as users have them, turned into one matrix of feature rows.

Three forms are understood: a list of matrices with one row a position; one matrix of all rows, with
the lengths; and a list of lists of feature dictionaries, one dictionary a position. In the last,
strings name an indicator (``{"word": "the"}``), numbers and booleans are values, lists name several
indicators, and dictionaries are nested; a position may also be a list of names of indicators.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from operator import getitem
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Order = NDArray[np.int64]

_LISTS = list, tuple, set, frozenset

SEPARATOR = "="
"""Between a feature and its value in the name of an indicator: ``word=the``."""


class Vocabulary:
    """Columns of feature names, in the order in which they were first seen.

    Parameters
    ----------
    names : iterable of str
        Names already known.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.columns = {name: column for column, name in enumerate(names)}
        self._indicators = _Indicators(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def rows(self, sequences: Sequence[Any], grow: bool) -> tuple[sp.csr_array, Order]:
        """Feature rows of all positions, and where each sequence ends.

        Parameters
        ----------
        sequences : list of lists of feature dictionaries
        grow : bool
            Give new names columns; otherwise they are left out.

        Raises
        ------
        ValueError
            If a position is no dictionary or list, or a value is none of those understood.
        """
        ends = np.zeros(len(sequences) + 1, dtype=np.int64)
        np.cumsum([len(sequence) for sequence in sequences], out=ends[1:])
        self._indicators.grow = grow
        try:
            columns, values, counts = self._all_indicators(sequences)
        except (TypeError, _OtherValueError):
            columns, values, counts = self._one_by_one(sequences)
        known = columns >= 0
        # Where each row starts among the features that are known.
        before = np.zeros(len(columns) + 1, dtype=np.int64)
        np.cumsum(known, out=before[1:])
        starts = np.zeros(len(counts) + 1, dtype=np.int64)
        np.cumsum(counts, out=starts[1:])
        matrix = sp.csr_array(
            (values[known], columns[known], before[starts]),
            shape=(len(counts), max(len(self), 1)),
        )
        matrix.sum_duplicates()
        return matrix, ends

    def _all_indicators(self, sequences: Sequence[Any]) -> "_Features":
        """Columns, values and numbers of features, if all are indicators in dictionaries.

        For features that have been seen before no line of Python runs: they are looked up in C.
        """
        positions = list(chain.from_iterable(sequences))
        names = map(self._indicators.__getitem__, chain.from_iterable(positions))
        values = chain.from_iterable(map(dict.values, positions))
        columns = np.fromiter(map(getitem, names, values), dtype=np.int32)
        counts = np.fromiter(map(len, positions), dtype=np.int64)
        return columns, np.ones(len(columns)), counts

    def _one_by_one(self, sequences: Sequence[Any]) -> "_Features":
        """The same for features of any kind."""
        entries = _Entries()
        starts = [0]
        for i, sequence in enumerate(sequences):
            for t, position in enumerate(sequence):
                try:
                    self._add_position(position, entries)
                except TypeError as error:
                    raise ValueError(f"Sequence {i}, position {t}: {error}") from error
                starts.append(len(entries.columns))
        return np.array(entries.columns, dtype=np.int32), entries.values(), np.diff(starts)

    def _add_position(self, position: Any, entries: "_Entries") -> None:
        """Add the features of one position."""
        if isinstance(position, Mapping):
            for name, value in position.items():
                self._add(name, value, entries)
        elif isinstance(position, _LISTS):
            for name in position:
                entries.add(self._indicators[name][True])
        else:
            raise TypeError(
                f"features must be a dictionary or a list of names, not {type(position).__name__}."
            )

    def _add(self, name: str, value: Any, entries: "_Entries") -> None:
        """Add one feature."""
        if isinstance(value, Mapping):
            for key, inner in value.items():
                self._add(f"{name}{SEPARATOR}{key}", inner, entries)
        elif isinstance(value, _LISTS):
            for item in value:
                entries.add(self._indicators[name][str(item)])
        elif value is None or isinstance(value, (str, bool, np.bool_)):
            entries.add(self._indicators[name][value])
        else:
            try:
                number = float(value)
            except (TypeError, ValueError):
                raise TypeError(
                    f"feature {name!r} must be a string, a number, a boolean, a list or a "
                    f"dictionary, not {type(value).__name__}."
                ) from None
            if not np.isfinite(number):
                raise TypeError(f"feature {name!r} is {number}, but must be finite.")
            entries.add(self._indicators[name][True], number)


class _OtherValueError(Exception):
    """A feature whose value in its row is not one."""


class _Indicators(dict[str, "_Values"]):
    """Columns by name and value of features that are one where they are: strings, true, 1.

    What is false, nothing or unknown has the column -1. Two dictionaries deep, because strings
    know their hash, and pairs of strings do not.
    """

    def __init__(self, columns: dict[str, int]) -> None:
        super().__init__()
        self.columns = columns
        self.grow = False

    def __missing__(self, name: str) -> "_Values":
        values = self[name] = _Values(name, self)
        return values


class _Values(dict[Any, int]):
    """Columns by value of the feature of one name."""

    def __init__(self, name: str, indicators: _Indicators) -> None:
        super().__init__()
        self.name, self.indicators = name, indicators

    def __missing__(self, value: Any) -> int:
        name = self.name
        if isinstance(value, str):
            name = f"{name}{SEPARATOR}{value}"
        elif value is not None and not isinstance(value, (bool, np.bool_)) and value != 1:
            raise _OtherValueError
        elif not value:
            return -1
        columns = self.indicators.columns
        if self.indicators.grow:
            column = columns.setdefault(name, len(columns))
        else:
            column = columns.get(name, -1)
        if column >= 0:
            self[value] = column
        return column


_Features = tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.int64]]


class _Entries:
    """Columns and values, most of which are one and are not kept."""

    def __init__(self) -> None:
        self.columns: list[int] = []
        self._others: dict[int, float] = {}

    def add(self, column: int, value: float = 1.0) -> None:
        if value != 1.0:
            self._others[len(self.columns)] = value
        self.columns.append(column)

    def values(self) -> NDArray[np.float64]:
        values = np.ones(len(self.columns))
        values[list(self._others)] = list(self._others.values())
        return values


def has_dictionaries(X: Any) -> bool:
    """Whether `X` is a list of lists of feature dictionaries (or of lists of names)."""
    if sp.issparse(X) or isinstance(X, np.ndarray):
        return False
    for sequence in X:
        if sp.issparse(sequence) or isinstance(sequence, np.ndarray):
            return False
        for position in sequence:
            if isinstance(position, (list, tuple)):
                return bool(position) and isinstance(position[0], str)
            return isinstance(position, (Mapping, set, frozenset))
    return False


def stack(X: Any, lengths: Any, n_features: int | None) -> tuple[Any, Order]:
    """Rows of a list of matrices, or of one matrix with lengths, and where sequences end.

    Raises
    ------
    ValueError
        If shapes do not fit together.
    """
    if lengths is not None:
        ends = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(np.asarray(lengths, dtype=np.int64), out=ends[1:])
        if (np.diff(ends) < 0).any():
            raise ValueError("lengths must not be negative.")
        if ends[-1] != X.shape[0]:
            raise ValueError(f"lengths add up to {ends[-1]}, but X has {X.shape[0]} rows.")
        return X, ends
    if sp.issparse(X) or (isinstance(X, np.ndarray) and X.ndim == 2):
        raise ValueError(
            "X is one matrix: give lengths, the number of rows of each sequence, or a list of "
            "matrices."
        )
    parts = [_as_rows(part, i) for i, part in enumerate(X)]
    widths = [part.shape[1] for part in parts if part.shape[0] or part.shape[1]]
    width = n_features if n_features is not None else (widths[0] if widths else 0)
    for i, part in enumerate(parts):
        if part.shape[0] and part.shape[1] != width:
            raise ValueError(
                f"Sequence {i} has {part.shape[1]} features, but {width} were expected."
            )
    ends = np.zeros(len(parts) + 1, dtype=np.int64)
    np.cumsum([part.shape[0] for part in parts], out=ends[1:])
    filled = [part for part in parts if part.shape[0]]
    if not filled:
        return np.zeros((0, width)), ends
    if any(sp.issparse(part) for part in filled):
        return sp.vstack([sp.csr_array(part) for part in filled], format="csr"), ends
    return np.concatenate(filled), ends


def _as_rows(part: Any, i: int) -> Any:
    if sp.issparse(part):
        return part
    try:
        rows = np.asarray(part)
        rows = rows if np.issubdtype(rows.dtype, np.floating) else rows.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Sequence {i} must be a matrix of numbers, one row a position, or a list of feature "
            f"dictionaries."
        ) from error
    if rows.size == 0 and rows.ndim < 2:
        return rows.reshape(0, 0)
    if rows.ndim != 2:
        raise ValueError(
            f"Sequence {i} must be a matrix with one row a position, but has {rows.ndim} "
            f"dimensions."
        )
    return rows
