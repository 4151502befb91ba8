"""Feature dictionaries as rows of a matrix.

In a dictionary strings name an indicator (``{"word": "the"}``), numbers and booleans are values,
lists name several indicators, and dictionaries are nested; a position may also be a list of names
of indicators.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.core.checks import check_types
from maxmargin.core.registry import registered
from maxmargin.core.state import Remade
from maxmargin.data.name_table import SEPARATOR, NameTable
from maxmargin.data.sequences import place_of

_LISTS = list, tuple, set, frozenset


@registered("Vocabulary")
class Vocabulary(Remade, Mapping[str, int]):
    """Columns of feature names, in the order in which they were first seen.

    Parameters
    ----------
    names : iterable of str
        Names already known.

    Examples
    --------
    >>> vocabulary = Vocabulary()
    >>> rows, ends = vocabulary.rows([[{"word": "the", "length": 3}, {"word": "cat"}]], grow=True)
    >>> rows.toarray()
    array([[1., 3., 0.],
           [0., 0., 1.]])
    >>> dict(vocabulary)
    {'word=the': 0, 'length': 1, 'word=cat': 2}
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._table = NameTable()
        self._columns: dict[str, int] = {}
        self.rows([[list(names)]], grow=True)

    def __getstate__(self) -> dict[str, Any]:
        return {"_table": self._table, "_columns": {}}

    def parts(self) -> dict[str, Any]:
        return {"table": self._table}

    @classmethod
    def remade(cls, **parts: Any) -> Self:
        check_types(cls.__name__, parts, {"table": NameTable})
        vocabulary = cls()
        vocabulary._table = parts["table"]
        return vocabulary

    def __len__(self) -> int:
        return self._table.n_columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name())

    def __getitem__(self, name: str) -> int:
        return self._by_name()[name]

    def _by_name(self) -> dict[str, int]:
        """The same as a dictionary, which is made when somebody asks."""
        if len(self._columns) != len(self):
            self._columns = {name: column for column, name in enumerate(self._table.names())}
        return self._columns

    def rows(self, sequences: Sequence[Any], grow: bool) -> tuple[sp.csr_array, NDArray[np.int64]]:
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
        positions = list(chain.from_iterable(sequences))

        def plain(at: int) -> dict[str, float]:
            try:
                return _plain(positions[at])
            except TypeError as error:
                raise ValueError(f"{place_of(at, ends).capitalize()}: {error}") from error

        return self._table.read(positions, plain, grow), ends


def _plain(position: Any) -> dict[str, float]:
    """Features by their names, of a position of any kind.

    Raises
    ------
    TypeError
        If it is none of the kinds understood.
    """
    found: dict[str, float] = {}

    def add(name: str, number: float = 1.0) -> None:
        name = name.encode(errors="replace").decode()  # lone surrogates are no text
        found[name] = found.get(name, 0.0) + number

    def add_value(name: str, value: Any) -> None:
        if isinstance(value, bytes):
            raise TypeError(f"feature {name!r:.50} is a byte string, {value!r:.50}: decode it.")
        if isinstance(value, Mapping):
            for key, inner in value.items():
                add_value(f"{name}{SEPARATOR}{_name(key)}", inner)
        elif isinstance(value, _LISTS):
            for item in value:
                add(f"{name}{SEPARATOR}{_name(item)}")
        elif isinstance(value, str):
            add(f"{name}{SEPARATOR}{value}")
        elif value is not None and value is not False:
            add(name, _finite(name, value))

    if isinstance(position, Mapping):
        for name, value in position.items():
            add_value(_name(name), value)
    elif isinstance(position, _LISTS):
        for name in position:
            add(_name(name))
    else:
        raise TypeError(
            f"features must be a dictionary or a list of names, not {type(position).__name__}."
        )
    return found


def _name(given: Any) -> str:
    if isinstance(given, bytes):
        raise TypeError(f"the name of a feature is a byte string, {given!r:.50}: decode it.")
    return str(given)


def _finite(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(
            f"feature {name!r} must be a string, a number, a boolean, a list or a dictionary, not "
            f"{type(value).__name__}."
        ) from None
    except OverflowError:
        number = np.inf
    if not np.isfinite(number):
        raise TypeError(f"feature {name!r} is {number}, but must be finite.")
    return number
