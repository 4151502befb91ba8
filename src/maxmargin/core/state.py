"""Values as plain data, and back: the state of a solve, and what a model has learned.

`Stateful` objects name what a solve changes; `Remade` objects are made again from their parts.
Arrays that share memory do so again. Reading trusts nothing: only registered classes are made, with
fields of the declared types, and no more memory than the file has bytes for.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache, partial
from inspect import signature
from typing import Any, ClassVar, Self, get_type_hints

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.core.arrays import check_types, checked_csr, conforms
from maxmargin.core.registry import as_named_now, check, class_named, name_of

Tree = Any
"""What JSON can hold."""

Arrays = dict[str, NDArray[Any]]

FindClass = Callable[[Any], type]
"""The class of a name in a file; raises ValueError if there is none."""

_PLAIN = (type(None), bool, int, float, str)

_MOST_EQUAL_RECORDS = 10_000
"""Most records without any column written out: nothing else bounds their number."""

_WIDEST_STRINGS = 1 << 24
"""Bytes of an array of strings, beyond what its strings account for."""


class Stateful:
    """An object that a solve changes."""

    state_names: ClassVar[tuple[str, ...]] = ()
    """Attributes that a solve changes."""

    state_types: ClassVar[Mapping[str, Any]] = {}
    """Type hints of those that are None at first."""

    def check_state(self) -> None:
        """Raise ValueError if a state from a file is inconsistent, or contradicts the data."""


class Remade:
    """An object that is made again from parts with a plain form."""

    def parts(self) -> dict[str, Any]:
        """What `remade` takes: by default, the arguments of the constructor, from attributes."""
        return {name: getattr(self, name) for name in signature(type(self)).parameters}

    @classmethod
    def remade(cls, **parts: Any) -> Self:
        """An object with these parts, which may come from a file: raises if they do not fit."""
        check_types(cls.__name__, parts, get_type_hints(cls.__init__))
        return cls(**parts)


class UnwritableError(ValueError):
    """A value that has no plain form."""


def refuse(value: Any) -> Tree:
    """Refuse to write a value."""
    raise UnwritableError(f"values of type {type(value).__name__} have no plain form")


def capture(value: Any, foreign: Callable[[Any], Tree] = refuse) -> tuple[Tree, Arrays]:
    """A value as a JSON tree and named arrays; `foreign` stands for what has no plain form."""
    capturing = _Capture(foreign)
    return capturing.tree(value, ""), capturing.arrays


def restore(
    tree: Tree,
    arrays: Arrays,
    into: Any = None,
    foreign: Callable[[Tree], Any] | None = None,
    find: FindClass = class_named,
) -> Any:
    """The value of a tree; raises any exception if `capture` did not make it.

    `Stateful` objects are restored in place, in `into`. `foreign` undoes that of `capture`, and
    `find` says which classes may be made.
    """
    return _Restore(arrays, foreign, find).value(tree, into)


class _Capture:
    """Arrays are named by the way to them: ``fitted.coef_``."""

    def __init__(self, foreign: Callable[[Any], Tree]) -> None:
        self._foreign = foreign
        self._seen: dict[int, str] = {}
        self.arrays: Arrays = {}

    def tree(self, value: Any, path: str) -> Tree:
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, np.ndarray):
            return self._array(value, path)
        if isinstance(value, Stateful):
            return ["state", self._items({n: getattr(value, n) for n in value.state_names}, path)]
        name = name_of(type(value))
        if isinstance(value, Remade) and name is not None:
            return ["made", name, self._items(value.parts(), path)]
        if isinstance(value, np.random.Generator):
            return ["random", value.bit_generator.state]
        if isinstance(value, bytes):
            return ["bytes", self._named(np.frombuffer(value, dtype=np.uint8), path)]
        if isinstance(value, list) and len(value) > 1 and _are_bytes(value):
            lengths = np.array([-1 if item is None else len(item) for item in value])
            joined = np.frombuffer(b"".join(item or b"" for item in value), dtype=np.uint8)
            named = self._named(lengths, f"{path}.lengths"), self._named(joined, f"{path}.bytes")
            return ["many bytes", *named]
        if isinstance(value, list) and len(value) > 1 and _are_records(value):
            return self._records(value, path)
        if hasattr(value, "_fields") and name is None:
            return self._foreign(value)
        if isinstance(value, list | tuple):
            items = [self.tree(item, f"{path}.{at}") for at, item in enumerate(value)]
            return [type(value).__name__, items] if name is None else ["named", name, items]
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return ["object", self._items(value, path)]
        if isinstance(value, dict):
            pairs = [
                [self.tree(key, f"{path}.{at}"), self.tree(item, f"{path}.{key}")]
                for at, (key, item) in enumerate(value.items())
            ]
            return ["dict", pairs]
        if sp.issparse(value) and value.format == "csr":
            own = {"data": value.data, "indices": value.indices, "indptr": value.indptr}
            return ["csr", self._items(own, path), list(value.shape)]
        if dataclasses.is_dataclass(value) and name is not None:
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            return ["data", name, self._items(fields, path)]
        return self._foreign(value)

    def _records(self, records: list[Any], path: str) -> Tree:
        """Data of one class, field by field; the first one is written out whatever it holds."""
        names = [field.name for field in dataclasses.fields(records[0])]
        columns = {name: _column([getattr(item, name) for item in records]) for name in names}
        columns[names[0]] = _written_out([getattr(item, names[0]) for item in records])
        return ["records", name_of(type(records[0])), len(records), self._items(columns, path)]

    def _items(self, items: Mapping[str, Any], path: str) -> dict[str, Tree]:
        return {name: self.tree(item, f"{path}.{name}") for name, item in items.items()}

    def _array(self, value: NDArray[Any], path: str) -> Tree:
        if value.dtype.kind == "U":
            return ["strings", value.tolist(), value.dtype.str]
        if value.dtype.kind == "O":
            items = [self.tree(item, f"{path}.{at}") for at, item in enumerate(value.flat)]
            return ["objects", items, list(value.shape)]
        if value.dtype.kind not in "biuf":
            raise UnwritableError(f"arrays of type {value.dtype} have no plain form")
        owner = value
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        packed = owner.flags.c_contiguous and owner.dtype == value.dtype
        known = id(owner) in self._seen
        # The rest of a much larger owner is not written.
        if owner is value or not packed or not (known or owner.nbytes <= 2 * value.nbytes):
            return ["array", self._named(value, path)]
        offset = _address(value) - _address(owner)
        return ["view", self._named(owner, path), offset, list(value.shape), list(value.strides)]

    def _named(self, array: NDArray[Any], path: str) -> str:
        if id(array) not in self._seen:
            name = path.lstrip(".") or "value"
            while name in self.arrays:
                name += "'"
            self._seen[id(array)] = name
            self.arrays[name] = array  # which also keeps it alive, and its id its own
        return self._seen[id(array)]


class _Restore:
    def __init__(
        self, arrays: Arrays, foreign: Callable[[Tree], Any] | None, find: FindClass
    ) -> None:
        self.arrays, self._foreign, self._find = arrays, foreign, find

    def value(self, tree: Tree, into: Any = None) -> Any:
        if not isinstance(tree, list):
            return tree
        kind, *parts = tree
        match kind:
            case "array":
                return self.arrays[parts[0]]
            case "view":
                return _view(self.arrays[parts[0]], *parts[1:])
            case "strings":
                return _strings(*parts)
            case "objects":
                objects = np.empty(len(parts[0]), dtype=object)
                for at, item in enumerate(parts[0]):  # of which some may be sequences
                    objects[at] = self.value(item)
                return objects.reshape(parts[1])
            case "state":
                return self._state(parts[0], into)
            case "random":
                into.bit_generator.state = parts[0]
                return into
            case "bytes":
                return self.arrays[parts[0]].tobytes()
            case "many bytes":
                return _split(*(self.arrays[name] for name in parts))
            case "named":
                made = self._class(parts[0], tuple)
                value = made(*map(self.value, parts[1]))
                check_types(made.__name__, value._asdict(), _hints(made))
                return check(value)
            case "data":
                made, items = self._class(parts[0], object), as_named_now(self._items(parts[1]))
                check_types(made.__name__, items, _hints(made))
                return check(made(**items))
            case "records":
                return self._records(self._class(parts[0], object), *parts[1:])
            case "made":
                made, items = self._class(parts[0], Remade), as_named_now(self._items(parts[1]))
                return check(made.remade(**items))
            case "object":
                return self._items(parts[0])
            case "list":
                return [self.value(item) for item in parts[0]]
            case "tuple":
                return tuple(self.value(item) for item in parts[0])
            case "dict":
                return {self.value(key): self.value(item) for key, item in parts[0]}
            case "csr":
                return checked_csr(**self._items(parts[0]), shape=parts[1])
        if self._foreign is None:
            raise ValueError(f"{kind!r:.80} is no kind of value")
        return self._foreign(tree)

    def _items(self, items: Mapping[str, Tree]) -> dict[str, Any]:
        return {name: self.value(item) for name, item in items.items()}

    def _class(self, name: Any, base: type) -> Any:
        """The registered class that a file asks for."""
        found = self._find(name)
        is_data = dataclasses.is_dataclass(found) and not issubclass(found, Remade)
        if not issubclass(found, base) or (base is object and not is_data):
            raise ValueError(f"{name!r:.80} is no kind of value")
        return found

    def _records(self, kind: Any, n: Any, items: Mapping[str, Tree]) -> list[Any]:
        columns = as_named_now(self._items(items))
        full = [c for c in columns.values() if isinstance(c, np.ndarray | list)]
        if type(n) is not int or any(len(column) != n for column in full):
            raise ValueError(f"records of {kind.__name__} have columns of different lengths")
        if not (full or 0 <= n <= _MOST_EQUAL_RECORDS):
            raise ValueError(f"there are too many records of {kind.__name__}")
        for name, column in columns.items():
            # Numbers of one array are of one type.
            some = _spread(column, 1)[:1] if isinstance(column, np.ndarray) else _spread(column, 1)
            for value in some:
                check_types(kind.__name__, {name: value}, _hints(kind))
        rows = zip(*(_spread(column, n) for column in columns.values()), strict=True)
        return [check(kind(**dict(zip(columns, row, strict=True)))) for row in rows]

    def _state(self, items: Mapping[str, Tree], into: Any) -> Any:
        if not isinstance(into, Stateful) or items.keys() != set(into.state_names):
            raise ValueError("the state is one of something else")
        for name, part in items.items():
            old = getattr(into, name)
            new = self.value(part, old)
            hint = into.state_types.get(name)
            if not (alike(old, new) if old is not None else conforms(new, hint)):
                raise ValueError(f"{name} of {type(into).__name__} is of another type")
            setattr(into, name, new)
        into.check_state()
        return into


@cache
def _hints(kind: type) -> dict[str, Any]:
    fields = getattr(kind, "_fields", None)
    names = fields or [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    hints = get_type_hints(kind)
    return {name: hints[name] for name in names}


def alike(old: Any, new: Any, may_grow: bool = False) -> bool:
    """Whether a value from a file fits that of a new object: arrays as long, unless they grow."""
    if old is None or new is None:
        return old is new
    if isinstance(old, np.ndarray):
        same_kind = isinstance(new, np.ndarray) and (old.dtype, old.ndim) == (new.dtype, new.ndim)
        return same_kind and (may_grow or not old.size or old.shape == new.shape)
    if hasattr(old, "_fields"):
        return type(new) is type(old) and all(map(partial(alike, may_grow=True), old, new))
    if isinstance(old, list | tuple) and old:
        return type(new) is type(old) and len(new) == len(old) and all(map(alike, old, new))
    if dataclasses.is_dataclass(old):
        return type(new) is type(old) and all(
            alike(getattr(old, field.name), getattr(new, field.name))
            for field in dataclasses.fields(old)
        )
    return conforms(new, type(old)) if isinstance(old, _PLAIN) else isinstance(new, type(old))


def _view(owner: NDArray[Any], offset: Any, shape: Any, strides: Any) -> NDArray[Any]:
    """A view without overlaps, checked here because numpy's check of bounds overflows."""
    size = owner.itemsize
    whole = [type(n) is int for n in (offset, *shape, *strides)]
    if not all(whole) or len(shape) != len(strides) or min(shape, default=0) < 0:
        raise ValueError("a view has a shape that no array can have")
    used = [(stride, n - 1) for n, stride in zip(shape, strides, strict=True) if n > 1]
    low = offset + sum(min(0, stride * n) for stride, n in used)
    high = offset + sum(max(0, stride * n) for stride, n in used) + size
    inside = low >= 0 and high <= owner.nbytes
    if 0 not in shape and not (inside and all(stride % size == 0 for stride, _ in used)):
        raise ValueError("a view lies outside its array")
    extent = size
    for stride, n in sorted((abs(stride), n) for stride, n in used):
        if stride < extent:
            raise ValueError("a view has numbers of its array twice")
        extent += stride * n
    return np.ndarray(shape, owner.dtype, owner.data, offset if 0 not in shape else 0, strides)


def _strings(strings: Any, dtype: Any) -> NDArray[np.str_]:
    kind = np.dtype(dtype)
    if kind.kind != "U" or not all(isinstance(string, str) for string in strings):
        raise ValueError("an array of strings holds something else")
    if kind.itemsize * len(strings) > _WIDEST_STRINGS + 64 * sum(map(len, strings)):
        raise ValueError("an array of strings is wider than its strings")
    return np.array(strings, dtype=kind)


def _are_bytes(items: list[Any]) -> bool:
    return all(item is None or isinstance(item, bytes) for item in items)


def _split(lengths: NDArray[Any], joined: NDArray[Any]) -> list[bytes | None]:
    raw, ends = joined.tobytes(), np.cumsum(np.maximum(lengths, 0)).tolist()
    if not ends or ends[-1] != len(raw) or lengths.ndim != 1:
        raise ValueError("a list of bytes does not fit its lengths")
    return [
        None if length < 0 else raw[end - length : end]
        for length, end in zip(lengths.tolist(), ends, strict=True)
    ]


def _are_records(items: list[Any]) -> bool:
    kind = type(items[0])
    ours = dataclasses.is_dataclass(kind) and name_of(kind) and not issubclass(kind, Remade)
    return bool(ours) and all(type(item) is kind for item in items)


def _column(values: list[Any]) -> Any:
    """One field of many records: itself if it never changes, else written out."""
    first = values[0]
    if isinstance(first, _PLAIN) and all(value is first or value == first for value in values):
        return first
    return _written_out(values)


def _written_out(values: list[Any]) -> Any:
    """An array, if all are numbers of one kind."""
    kinds = {type(value.item() if isinstance(value, np.generic) else value) for value in values}
    return np.array(values) if kinds in ({bool}, {int}, {float}) else values


def _spread(column: Any, n: int) -> list[Any]:
    if isinstance(column, np.ndarray):
        return list(column.tolist())
    return column if isinstance(column, list) else [column] * n


def _address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])
