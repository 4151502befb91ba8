"""Values as plain data, and back: the state of a solve, and what a model has learned.

Objects that a solve changes are `Stateful`: they name what belongs to their state, the rest can be
made anew. Objects that are made again from their parts are `Remade`. What they hold may be numbers,
strings, bytes, arrays, random generators, and lists, tuples, dictionaries, named tuples and data
classes of such. Arrays that are the same, or views of the same memory, stay so.
"""

import dataclasses
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Tree = Any
"""What JSON can hold."""

Arrays = dict[str, NDArray[Any]]

_PLAIN = (type(None), bool, int, float, str)


class Stateful:
    """An object that a solve changes."""

    state_names: ClassVar[tuple[str, ...]] = ()
    """Attributes that make the difference between it and a new one."""


class Remade:
    """An object that can be made again from parts that have a plain form."""

    def parts(self) -> dict[str, Any]:
        """What `remade` takes: by default, arguments of the constructor."""
        raise NotImplementedError

    @classmethod
    def remade(cls, **parts: Any) -> Self:
        """An object with these parts."""
        return cls(**parts)


class UnwritableError(ValueError):
    """A value that has no plain form; says which type it is of."""


def capture(value: Any, foreign: Callable[[Any], Tree] | None = None) -> tuple[Tree, Arrays]:
    """A value as a tree, and the arrays that the tree names.

    Parameters
    ----------
    value : object
    foreign : callable, default=None
        Says what stands in the tree for a value that has no plain form; it may raise
        `UnwritableError`, which is what happens without it.

    Raises
    ------
    UnwritableError
    """
    capturing = _Capture(foreign or _refuse)
    return capturing.tree(value, ""), capturing.arrays


def restore(
    tree: Tree, arrays: Arrays, into: Any = None, foreign: Callable[[Tree], Any] | None = None
) -> Any:
    """The value of a tree. `Stateful` objects are changed in place, and so must be in `into`."""
    return _Restore(arrays, foreign).value(tree, into)


def _refuse(value: Any) -> Tree:
    raise UnwritableError(f"values of type {type(value).__name__} have no plain form")


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
        if isinstance(value, Remade) and _is_ours(type(value)):
            return ["made", _name_of(value), self._items(value.parts(), path)]
        if isinstance(value, np.random.Generator):
            return ["random", value.bit_generator.state]
        if isinstance(value, bytes):
            return ["bytes", self._named(np.frombuffer(value, dtype=np.uint8), path)]
        if isinstance(value, list) and len(value) > 1 and _are_bytes(value):
            lengths = np.array([-1 if item is None else len(item) for item in value])
            joined = np.frombuffer(b"".join(item or b"" for item in value), dtype=np.uint8)
            return [
                "many bytes",
                self._named(lengths, f"{path}.lengths"),
                self._named(joined, f"{path}.bytes"),
            ]
        if isinstance(value, list) and len(value) > 1 and _are_records(value):
            names = [field.name for field in dataclasses.fields(value[0])]
            columns = {name: _column([getattr(item, name) for item in value]) for name in names}
            return ["records", _name_of(value[0]), len(value), self._items(columns, path)]
        if hasattr(value, "_fields") and not _is_ours(type(value)):
            return self._foreign(value)
        if isinstance(value, list | tuple):
            items = [self.tree(item, f"{path}.{at}") for at, item in enumerate(value)]
            if hasattr(value, "_fields"):
                return ["named", _name_of(value), items]
            return [type(value).__name__, items]
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return ["object", self._items(value, path)]
        if isinstance(value, dict):
            return [
                "dict",
                [
                    [self.tree(key, f"{path}.{at}"), self.tree(item, f"{path}.{key}")]
                    for at, (key, item) in enumerate(value.items())
                ],
            ]
        if sp.issparse(value) and value.format == "csr":
            own = {"data": value.data, "indices": value.indices, "indptr": value.indptr}
            return ["csr", self._items(own, path), list(value.shape)]
        if dataclasses.is_dataclass(value) and _is_ours(type(value)):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            return ["data", _name_of(value), self._items(fields, path)]
        return self._foreign(value)

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
        # The rest of a much larger owner is nobody's business.
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
    def __init__(self, arrays: Arrays, foreign: Callable[[Tree], Any] | None) -> None:
        self.arrays, self._foreign = arrays, foreign

    def value(self, tree: Tree, into: Any = None) -> Any:
        if not isinstance(tree, list):
            return tree
        kind, *parts = tree
        match kind:
            case "array":
                return self.arrays[parts[0]]
            case "view":
                name, offset, shape, strides = parts
                owner = self.arrays[name]
                return np.ndarray(shape, owner.dtype, owner.data, offset, strides)
            case "strings":
                return np.array(parts[0], dtype=parts[1])
            case "objects":
                objects = np.empty(len(parts[0]), dtype=object)
                for at, item in enumerate(parts[0]):  # of which some may be sequences
                    objects[at] = self.value(item)
                return objects.reshape(parts[1])
            case "state":
                for name, part in parts[0].items():
                    setattr(into, name, self.value(part, getattr(into, name)))
                return into
            case "random":
                into.bit_generator.state = parts[0]
                return into
            case "bytes":
                return self.arrays[parts[0]].tobytes()
            case "many bytes":
                return _split(*(self.arrays[name] for name in parts))
            case "named":
                return _class_of(parts[0], _is_record)(*map(self.value, parts[1]))
            case "data":
                return _class_of(parts[0], _is_record)(**self._items(parts[1]))
            case "records":
                record, n, items = _class_of(parts[0], _is_record), parts[1], self._items(parts[2])
                columns = {name: _spread(item, n) for name, item in items.items()}
                rows = zip(*columns.values(), strict=True)
                return [record(**dict(zip(columns, row, strict=True))) for row in rows]
            case "made":
                return _class_of(parts[0], _is_made).remade(**self._items(parts[1]))
            case "object":
                return self._items(parts[0])
            case "list":
                return [self.value(item) for item in parts[0]]
            case "tuple":
                return tuple(self.value(item) for item in parts[0])
            case "dict":
                return {self.value(key): self.value(item) for key, item in parts[0]}
            case "csr":
                own = self._items(parts[0])
                return sp.csr_array((own["data"], own["indices"], own["indptr"]), parts[1])
        if self._foreign is None:
            raise ValueError(f"{kind!r} is no kind of value")
        return self._foreign(tree)

    def _items(self, items: Mapping[str, Tree]) -> dict[str, Any]:
        return {name: self.value(item) for name, item in items.items()}


def _are_bytes(items: list[Any]) -> bool:
    return all(item is None or isinstance(item, bytes) for item in items)


def _split(lengths: NDArray[Any], joined: NDArray[Any]) -> list[bytes | None]:
    raw, ends = joined.tobytes(), np.cumsum(np.maximum(lengths, 0)).tolist()
    return [
        None if length < 0 else raw[end - length : end]
        for length, end in zip(lengths.tolist(), ends, strict=True)
    ]


def _are_records(items: list[Any]) -> bool:
    """Whether all are of one data class of ours."""
    kind = type(items[0])
    ours = dataclasses.is_dataclass(kind) and _is_ours(kind) and not issubclass(kind, Remade)
    return ours and all(type(item) is kind for item in items)


def _column(values: list[Any]) -> Any:
    """One field of many records: itself if it never changes, an array of numbers of one kind."""
    first = values[0]
    if isinstance(first, _PLAIN) and all(value is first or value == first for value in values):
        return first
    kinds = {type(value.item() if isinstance(value, np.generic) else value) for value in values}
    return np.array(values) if kinds in ({bool}, {int}, {float}) else values


def _spread(column: Any, n: int) -> list[Any]:
    if isinstance(column, np.ndarray):
        return list(column.tolist())
    return column if isinstance(column, list) else [column] * n


def _address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def _is_ours(kind: type) -> bool:
    return kind.__module__.startswith("maxmargin.")


def _name_of(value: Any) -> str:
    kind = type(value)
    if not _is_ours(kind):
        raise UnwritableError(f"values of type {kind.__name__} have no plain form")
    return f"{kind.__module__}:{kind.__qualname__}"


def _class_of(name: str, fits: Callable[[type], bool]) -> Any:
    """A class of this library that holds data; a file must not get at anything else."""
    module, _, kind = name.partition(":")
    if module.startswith("maxmargin."):
        found = getattr(import_module(module), kind, None)
        if isinstance(found, type) and fits(found):
            return found
    raise ValueError(f"{name!r} is no kind of value")


def _is_record(kind: type) -> bool:
    return hasattr(kind, "_fields") or dataclasses.is_dataclass(kind)


def _is_made(kind: type) -> bool:
    return issubclass(kind, Remade)
