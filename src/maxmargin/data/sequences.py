"""Sequences as users have them, turned into one matrix of feature rows.

Three forms are understood: a list of matrices with one row a position; one matrix of all rows, with
the lengths; and a list of lists of feature dictionaries, one dictionary a position. In the last,
strings name an indicator (``{"word": "the"}``), numbers and booleans are values, lists name several
indicators, and dictionaries are nested; a position may also be a list of names of indicators.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
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
        # Indicators by feature and value, so that their names need not be put together to look
        # up what has been seen before: that would cost more than all the rest.
        self._indicators: defaultdict[str, dict[str, int]] = defaultdict(dict)

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
        entries = _Entries()
        columns = entries.columns
        append = columns.append
        indicators = self._indicators
        starts, ends = [0], [0]
        for i, sequence in enumerate(sequences):
            for t, position in enumerate(sequence):
                if position.__class__ is dict:
                    for name, value in position.items():
                        try:  # the common case by the shortest way: a string seen before
                            append(indicators[name][value])
                        except (KeyError, TypeError):
                            self._add_at(i, t, name, value, grow, entries)
                else:
                    self._add_position(i, t, position, grow, entries)
                starts.append(len(columns))
            ends.append(len(starts) - 1)
        matrix = sp.csr_array(
            (entries.values(), np.array(columns, dtype=np.int32), np.array(starts)),
            shape=(len(starts) - 1, max(len(self), 1)),
        )
        matrix.sum_duplicates()
        return matrix, np.array(ends, dtype=np.int64)

    def _column(self, name: str, grow: bool) -> int:
        """Column of a name; -1 if it is unknown and stays so."""
        if grow:
            return self.columns.setdefault(name, len(self.columns))
        return self.columns.get(name, -1)

    def _add_at(
        self, i: int, t: int, name: str, value: Any, grow: bool, entries: "_Entries"
    ) -> None:
        """Add one feature of a position, which an error then names."""
        try:
            self._add(name, value, grow, entries)
        except TypeError as error:
            raise ValueError(f"Sequence {i}, position {t}: {error}") from error

    def _add_position(self, i: int, t: int, position: Any, grow: bool, entries: "_Entries") -> None:
        """Add the features of a position that is not a plain dictionary."""
        if isinstance(position, Mapping):
            for name, value in position.items():
                self._add_at(i, t, name, value, grow, entries)
        elif isinstance(position, _LISTS):
            for name in position:
                entries.add(self._column(str(name), grow))
        else:
            raise ValueError(
                f"Sequence {i}, position {t}: features must be a dictionary or a list of names, "
                f"not {type(position).__name__}."
            )

    def _add(self, name: str, value: Any, grow: bool, entries: "_Entries") -> None:
        """Add one feature."""
        if isinstance(value, str):
            column = self._column(f"{name}{SEPARATOR}{value}", grow)
            if column >= 0:
                self._indicators[name][value] = column
            entries.add(column)
        elif isinstance(value, Mapping):
            for key, inner in value.items():
                self._add(f"{name}{SEPARATOR}{key}", inner, grow, entries)
        elif isinstance(value, _LISTS):
            for item in value:
                self._add(name, str(item), grow, entries)
        elif value is None or isinstance(value, (bool, np.bool_)):
            if value:
                entries.add(self._column(name, grow))
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
            entries.add(self._column(name, grow), number)


class _Entries:
    """Columns and values, most of which are one and are not kept."""

    def __init__(self) -> None:
        self.columns: list[int] = []
        self._others: dict[int, float] = {}

    def add(self, column: int, value: float = 1.0) -> None:
        if column >= 0:
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
