"""Feature dictionaries as rows of a matrix, read in compiled code.

Strings name an indicator (``{"word": "the"}``), numbers and booleans are values, lists name several
indicators, dictionaries are nested; a position may be a list of indicators. The bytes of all names
lie in one array behind an open-addressed hash table, and dictionaries are walked through the stable
C interface of Python: names are compared in place, and no Python object is made.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, Self

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled_with
from maxmargin.compiled.rows import Rows, as_matrix, make_rows, sparse_rows
from maxmargin.core.arrays import check_indices, check_offsets, check_types
from maxmargin.core.inputs import place_of
from maxmargin.core.registry import registered
from maxmargin.core.state import Remade

SEPARATOR = "="
"""Between feature and value in an indicator: ``word=the``."""

_object = types.intp  # every pointer to a Python object
_PyObject_IsInstance = types.ExternalFunction("PyObject_IsInstance", types.intc(_object, _object))
_PyObject_Size = types.ExternalFunction("PyObject_Size", types.intp(_object))
_PyDict_Next = types.ExternalFunction(
    "PyDict_Next", types.intc(_object, types.intp, types.intp, types.intp)
)
_PyList_GetItem = types.ExternalFunction("PyList_GetItem", _object(_object, types.intp))
_PyUnicode_AsUTF8AndSize = types.ExternalFunction(
    "PyUnicode_AsUTF8AndSize", types.intp(_object, types.intp)
)
_PyFloat_AsDouble = types.ExternalFunction("PyFloat_AsDouble", types.float64(_object))
_PyErr_Occurred = types.ExternalFunction("PyErr_Occurred", _object())
_PyErr_Clear = types.ExternalFunction("PyErr_Clear", types.void())

_DONE, _TABLE_FULL, _TEXT_FULL, _UNUSUAL, _INEXACT = range(5)
"""Why `_read` returns."""

_TRUE, _FALSE, _NONE, _DICT, _LIST, _STR, _FLOAT, _INT = range(8)
_KNOWN_OBJECTS = np.array(
    [id(thing) for thing in (True, False, None, dict, list, str, float, int)], dtype=np.intp
)
_POSITION, _COLUMNS, _SCRATCH = range(3)
_CODE, _NAME, _NAME_LENGTH, _VALUE, _VALUE_LENGTH, _SLOT = range(6)
_SEEN_KEY, _SEEN_LENGTH, _SEEN_CODE, _SEEN_NAME = range(6, 10)

_SORTED_UP_TO = 64
"""Features of a row up to which it is sorted by insertion, not by scipy."""

_ROOM = 4
"""Part of the text of all names by which its array grows."""

_FNV_START, _FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_SIGN = np.uint8(ord(SEPARATOR))
_LOW, _HALF = 0xFFFFFFFF, 32


@registered("NameTable")
class NameTable(Remade):
    """Names and their columns, in the order in which they were added."""

    def __init__(self) -> None:
        self.n_columns = 0
        self.ends = np.zeros(257, dtype=np.int64)  # of each name in the text
        self.text = np.empty(4096, dtype=np.uint8)
        self.slots = np.zeros(512, dtype=np.int64)  # half of the hash, and the column + 1

    def parts(self) -> dict[str, Any]:
        ends = self.ends[: self.n_columns + 1].copy()  # without the room for more
        return {"ends": ends, "text": self.text[: ends[-1]].copy(), "slots": self.slots}

    @classmethod
    def remade(cls, **parts: Any) -> Self:
        check_types(cls.__name__, parts, _PARTS)
        _check_parts(**parts)
        table, ends = cls(), parts["ends"]
        table.n_columns, table.text, table.slots = len(ends) - 1, parts["text"], parts["slots"]
        table.ends = np.zeros(len(table.slots) // 2 + 1, dtype=np.int64)  # with room for more
        table.ends[: len(ends)] = ends
        return table

    def names(self) -> list[str]:
        text = self.text[: self.ends[self.n_columns]].tobytes()
        return [text[a:b].decode() for a, b in pairwise(self.ends[: self.n_columns + 1].tolist())]

    def read(
        self, positions: list[Any], plain: Callable[[int], dict[str, float]], grow: bool
    ) -> Rows:
        """Feature rows of positions; `plain` gives the features of those with unusual values.

        Values are float32 if that holds all of them exactly, as it does the ones of indicators.
        The list has these features afterwards.
        """
        sizes = _sizes(positions)
        n_features = sum(sizes)
        columns = np.empty(n_features, dtype=np.uint32)
        values: NDArray[np.floating] = np.empty(n_features, dtype=np.float32)
        starts = np.zeros(len(positions) + 1, dtype=np.int64)
        features, numbers = _space(max(sizes, default=0))
        state = np.zeros(6, dtype=np.int64)
        state[_COLUMNS] = self.n_columns
        while True:
            outcome = _read(  # in CPython the number that `id` gives is an address
                id(positions), _KNOWN_OBJECTS, grow, self.slots, self.ends, self.text,
                features, numbers, columns, values, starts, state,
            )  # fmt: skip
            self.n_columns = int(state[_COLUMNS])
            if outcome == _DONE:
                break
            if outcome == _TABLE_FULL:
                self._enlarge()
            elif outcome == _TEXT_FULL:
                room = np.empty(max(len(self.text) // _ROOM, 4096), dtype=np.uint8)
                self.text = np.concatenate([self.text, room])
            elif outcome == _INEXACT:
                with np.errstate(invalid="ignore"):  # what is not written yet may be anything
                    values = values.astype(np.float64)
            else:
                at = int(state[_POSITION])
                positions[at] = plain(at)
                more = len(positions[at]) - sizes[at]
                if more > 0:
                    columns = np.concatenate([columns, np.empty(more, dtype=columns.dtype)])
                    values = np.concatenate([values, np.empty(more, dtype=values.dtype)])
                    features, numbers = _space(max(len(numbers), len(positions[at])))
        n_entries = int(starts[-1])
        rows = sparse_rows(values[:n_entries], columns[:n_entries], starts)
        if len(numbers) <= _SORTED_UP_TO:
            return rows
        matrix = as_matrix(rows, self.n_columns).astype(np.float64)  # a copy, whose sums are exact
        matrix.sum_duplicates()
        return make_rows(matrix, 0.0)

    def _enlarge(self) -> None:
        slots = np.zeros(2 * len(self.slots), dtype=np.int64)
        _move(self.slots, slots)
        self.slots = slots
        self.ends = np.concatenate([self.ends, np.zeros(len(self.slots) // 4, dtype=np.int64)])


_PARTS = {"ends": NDArray[np.int64], "text": NDArray[np.uint8], "slots": NDArray[np.int64]}


def _check_parts(ends: Any, text: Any, slots: Any) -> None:
    """Refuse tables in which lookups would leave the arrays, or never end."""
    n_columns, n_slots = len(ends) - 1, len(slots)
    if (
        (slots.ndim, text.ndim) != (1, 1)
        or n_slots < 2
        or n_slots & (n_slots - 1)
        or 2 * n_columns > n_slots
    ):
        raise ValueError("the table of names has no room for its names")
    check_offsets("the ends of names", ends, len(text))
    columns = slots & _LOW
    check_indices("columns of names", columns, n_columns + 1)
    if np.count_nonzero(slots) != n_columns or np.count_nonzero(columns) != n_columns:
        raise ValueError("the table of names has other names than it lists")
    text.tobytes().decode()
    if n_columns and len(text) and ((text[ends[ends < len(text)]] & 0xC0) == 0x80).any():
        raise ValueError("a name ends in the middle of a letter")


def _sizes(positions: Sequence[Any]) -> list[int]:
    """Lengths; zero of what has none, which slower code will refuse."""
    try:
        return list(map(len, positions))
    except TypeError:
        return [len(one) if hasattr(one, "__len__") else 0 for one in positions]


def _space(size: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Scratch for one position: parts of its features and names seen before, and values."""
    return np.zeros((size, 10), np.int64), np.empty(size)


_routine = compiled_with(error_model="numpy", _nrt=False)  # the lock is held


@intrinsic
def _byte(typing_context: Any, address: Any) -> Any:
    signature = types.uint8(types.intp)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = context.get_value_type(types.CPointer(types.uint8))
        return builder.load(builder.inttoptr(arguments[0], kind))

    return signature, generate


@_routine
def _text_of(thing, size):
    """Address and length of the bytes of a string; nowhere if it has a lone surrogate."""
    address = _PyUnicode_AsUTF8AndSize(thing, size.ctypes.data)
    if address == 0:
        _PyErr_Clear()
    return address, size[0]


@_routine
def _hashed(address, length, code):
    for k in range(length):
        code = (code ^ np.uint64(_byte(address + k))) * _FNV_PRIME
    return code


@_routine
def _walk(position, size, is_dictionary, known, features, numbers, scratch):
    """Note hash and parts of a position's features; returns how many, or -1 if one is unusual."""
    n = 0
    cursor, address = scratch[:3], scratch[3:]
    cursor[0] = 0
    for k in range(size):
        if is_dictionary:
            first = cursor.ctypes.data
            _PyDict_Next(position, first, first + 8, first + 16)
            key, item = cursor[1], cursor[2]
        else:
            key, item = _PyList_GetItem(position, k), known[_TRUE]
        if item == known[_FALSE] or item == known[_NONE]:
            continue
        # Positions tend to have the same names in the same order, as the same objects.
        seen = features[k]
        if seen[_SEEN_KEY] != key:
            if _PyObject_IsInstance(key, known[_STR]) != 1:
                return -1
            name, length = _text_of(key, address)
            if name == 0:
                return -1
            seen[_SEEN_KEY], seen[_SEEN_LENGTH] = key, length
            seen[_SEEN_CODE] = np.int64(_hashed(name, length, _FNV_START))
            seen[_SEEN_NAME] = name
        code = np.uint64(seen[_SEEN_CODE])
        value, value_length, number = seen[_SEEN_NAME], 0, 1.0
        if item != known[_TRUE]:
            if _PyObject_IsInstance(item, known[_STR]) == 1:
                value, value_length = _text_of(item, address)
                if value == 0:
                    return -1
                code = _hashed(value, value_length, (code ^ np.uint64(_SIGN)) * _FNV_PRIME)
                value_length += 1
            elif (
                _PyObject_IsInstance(item, known[_FLOAT]) == 1
                or _PyObject_IsInstance(item, known[_INT]) == 1
            ):
                number = _PyFloat_AsDouble(item)
                if number == -1.0 and _PyErr_Occurred() != 0:  # an integer too large
                    _PyErr_Clear()
                    return -1
                if not np.isfinite(number):
                    return -1
            else:
                return -1
        features[n, _CODE] = np.int64(code >> np.uint64(33))
        features[n, _NAME], features[n, _NAME_LENGTH] = seen[_SEEN_NAME], seen[_SEEN_LENGTH]
        features[n, _VALUE], features[n, _VALUE_LENGTH] = value, value_length
        numbers[n] = number
        n += 1
    return n


@_routine
def _same(text, start, address, length):
    k = 0
    while k < length and text[start + k] == _byte(address + k):
        k += 1
    return k == length


@_routine
def _copy(address, length, text, start):
    for k in range(length):
        text[start + k] = _byte(address + k)


@_routine
def _slot_of(feature, slots, ends, text):
    """The slot of a name, or the empty one where it belongs."""
    mask = len(slots) - 1
    slot = feature[_CODE] & mask
    while slots[slot] != 0:
        column = (slots[slot] & _LOW) - 1
        if slots[slot] >> _HALF == feature[_CODE] and _is_name_of(feature, column, ends, text):
            break
        slot = (slot + 1) & mask
    return slot


@_routine
def _is_name_of(feature, column, ends, text):
    start, middle = ends[column], ends[column] + feature[_NAME_LENGTH]
    if ends[column + 1] - middle != feature[_VALUE_LENGTH]:
        return False
    if not _same(text, start, feature[_NAME], feature[_NAME_LENGTH]):
        return False
    if feature[_VALUE_LENGTH] == 0:
        return True
    return text[middle] == _SIGN and _same(
        text, middle + 1, feature[_VALUE], feature[_VALUE_LENGTH] - 1
    )


@_routine
def _add(feature, column, slot, slots, ends, text):
    """Give a new name the column; False if the text has no room."""
    start = ends[column]
    middle = start + feature[_NAME_LENGTH]
    end = middle + feature[_VALUE_LENGTH]
    if end > len(text):
        return False
    _copy(feature[_NAME], feature[_NAME_LENGTH], text, start)
    if end > middle:
        text[middle] = _SIGN
        _copy(feature[_VALUE], feature[_VALUE_LENGTH] - 1, text, middle + 1)
    ends[column + 1] = end
    slots[slot] = feature[_CODE] << _HALF | column + 1
    return True


@_routine
def _move(slots, larger):
    """Rehash the columns of a table into a larger one."""
    mask = len(larger) - 1
    for old in slots:
        if old != 0:
            slot = (old >> _HALF) & mask
            while larger[slot] != 0:
                slot = (slot + 1) & mask
            larger[slot] = old


@_routine
def _insert(columns, values, start, end, column, value):
    """Insert a feature into a sorted row; returns the row's end, -1 if its value was rounded."""
    at = end
    while at > start and columns[at - 1] > column:
        at -= 1
    if at > start and columns[at - 1] == column:
        at -= 1
        value += values[at]
    else:
        for k in range(end, at, -1):
            columns[k], values[k] = columns[k - 1], values[k - 1]
        columns[at] = column
        end += 1
    values[at] = value
    return end if values[at] == value else -1


@_routine
def _read(
    positions, known, grow, slots, ends, text, features, numbers, columns, values, starts, state
):
    """Read positions into rows until the end, or until Python must help; then call it again.

    Parameters
    ----------
    positions : address of a list, of as many positions as `starts` has rows
    known : addresses of Python's types and constants
    grow : bool, give new names columns
    slots, ends, text : the name table
    features, numbers : scratch of one position, see `_space`
    columns, values, starts : CSR arrays of the rows, set; values of float32 or float64
    state : ndarray of int64, the position to go on from, number of columns, scratch; changed
    """
    mask = len(slots) - 1
    while state[_POSITION] < len(starts) - 1:
        row = state[_POSITION]
        position = _PyList_GetItem(positions, row)
        is_dictionary = _PyObject_IsInstance(position, known[_DICT]) == 1
        if not is_dictionary and _PyObject_IsInstance(position, known[_LIST]) != 1:
            return _UNUSUAL
        size = _PyObject_Size(position)
        if grow and 2 * (state[_COLUMNS] + size) > len(slots):
            return _TABLE_FULL
        n = _walk(position, size, is_dictionary, known, features, numbers, state[_SCRATCH:])
        if n < 0:
            return _UNUSUAL
        # Touched for all features first, memory is waited for once and not for each.
        for k in range(n):
            features[k, _SLOT] = slots[features[k, _CODE] & mask] & _LOW
        for k in range(n):
            features[k, _SLOT] = ends[features[k, _SLOT]]
        start = starts[row]
        end = start
        for k in range(n):
            slot = _slot_of(features[k], slots, ends, text)
            if slots[slot] == 0:
                if not grow:
                    continue
                if not _add(features[k], state[_COLUMNS], slot, slots, ends, text):
                    return _TEXT_FULL
                state[_COLUMNS] += 1
            column = np.uint32((slots[slot] & _LOW) - 1)
            if n <= _SORTED_UP_TO:
                end = _insert(columns, values, start, end, column, numbers[k])
            else:
                columns[end], values[end] = column, numbers[k]
                end = end + 1 if values[end] == numbers[k] else -1
            if end < 0:
                return _INEXACT
        starts[row + 1] = end
        state[_POSITION] += 1
    return _DONE


_LISTS = list, tuple, set, frozenset


@registered("Vocabulary")
class Vocabulary(Remade, Mapping[str, int]):
    """Columns of feature names, in the order in which they were first seen."""

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
        if len(self._columns) != len(self):
            self._columns = {name: column for column, name in enumerate(self._table.names())}
        return self._columns

    def rows(self, sequences: Sequence[Any], grow: bool) -> tuple[Rows, NDArray[np.int64]]:
        """Feature rows of all positions, and where each sequence ends; new names if `grow`."""
        ends = np.array([0, *accumulate(map(len, sequences))], dtype=np.int64)
        positions = list(chain.from_iterable(sequences))

        def plain(at: int) -> dict[str, float]:
            try:
                return _plain(positions[at])
            except TypeError as error:
                raise ValueError(f"{place_of(at, ends).capitalize()}: {error}") from error

        return self._table.read(positions, plain, grow), ends

    def matrix(self, sequences: Sequence[Any], grow: bool) -> tuple[Any, NDArray[np.int64]]:
        """The same rows as a CSR matrix of float64, and where each sequence ends."""
        rows, ends = self.rows(sequences, grow)
        return as_matrix(rows, max(len(self), 1)).astype(np.float64, copy=False), ends


def _plain(position: Any) -> dict[str, float]:
    """Features by name of any position; TypeError if it is not understood."""
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
