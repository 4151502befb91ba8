"""The state of a solve as plain data, and back.

Objects with state name what belongs to it in `state_names`; the rest can be made anew. What they
hold may be numbers, strings, bytes, arrays, random generators, and lists, tuples, dictionaries,
named tuples and data classes of such. Arrays that are the same stay the same.
"""

import dataclasses
from importlib import import_module
from typing import Any, ClassVar

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


class UnwritableError(ValueError):
    """A value that has no plain form; says which type it is of."""


def capture(value: Any) -> tuple[Tree, Arrays]:
    """A value as a tree, and the arrays that the tree names.

    Raises
    ------
    UnwritableError
    """
    capturing = _Capture()
    return capturing.tree(value), capturing.arrays


def restore(tree: Tree, arrays: Arrays, into: Any = None) -> Any:
    """The value of a tree. `Stateful` objects are changed in place, and so must be in `into`."""
    return _Restore(arrays).value(tree, into)


class _Capture:
    def __init__(self) -> None:
        self.arrays: Arrays = {}
        self._names: dict[int, str] = {}

    def tree(self, value: Any) -> Tree:
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, np.ndarray) and value.dtype.kind == "U":
            return ["strings", value.tolist(), value.dtype.str]
        if isinstance(value, np.ndarray):
            return ["array", self._named(value)]
        if isinstance(value, Stateful):
            names = type(value).state_names
            return ["state", {name: self.tree(getattr(value, name)) for name in names}]
        if isinstance(value, np.random.Generator):
            return ["random", value.bit_generator.state]
        if isinstance(value, bytes):
            return ["bytes", self._named(np.frombuffer(value, dtype=np.uint8))]
        if isinstance(value, list) and len(value) > 1 and _are_bytes(value):
            lengths = np.array([-1 if item is None else len(item) for item in value])
            joined = np.frombuffer(b"".join(item or b"" for item in value), dtype=np.uint8)
            return ["many bytes", self._named(lengths), self._named(joined)]
        if isinstance(value, list | tuple):
            items = [self.tree(item) for item in value]
            if hasattr(value, "_fields"):
                return ["named", _name_of(value), items]
            return [type(value).__name__, items]
        if isinstance(value, dict):
            return ["dict", [[self.tree(key), self.tree(item)] for key, item in value.items()]]
        if sp.issparse(value) and value.format == "csr":
            own = value.data, value.indices, value.indptr, value.shape
            return ["csr", [self.tree(part) for part in own]]
        if dataclasses.is_dataclass(value):
            fields = [field.name for field in dataclasses.fields(value)]
            parts = {name: self.tree(getattr(value, name)) for name in fields}
            return ["data", _name_of(value), parts]
        raise UnwritableError(f"values of type {type(value).__name__} have no plain form")

    def _named(self, array: NDArray[Any]) -> str:
        name = self._names.setdefault(id(array), str(len(self._names)))
        self.arrays[name] = array  # which also keeps it alive, and its id its own
        if array.dtype.kind not in "biuf":
            raise UnwritableError(f"arrays of type {array.dtype} have no plain form")
        return name


class _Restore:
    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays

    def value(self, tree: Tree, into: Any = None) -> Any:
        if not isinstance(tree, list):
            return tree
        kind, *parts = tree
        match kind:
            case "array":
                return self.arrays[parts[0]]
            case "strings":
                return np.array(parts[0], dtype=parts[1])
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
                return _class_of(parts[0])(*map(self.value, parts[1]))
            case "list":
                return [self.value(item) for item in parts[0]]
            case "tuple":
                return tuple(self.value(item) for item in parts[0])
            case "dict":
                return {self.value(key): self.value(item) for key, item in parts[0]}
            case "csr":
                data, indices, indptr, shape = map(self.value, parts[0])
                return sp.csr_array((data, indices, indptr), shape=shape)
            case "data":
                fields = {name: self.value(item) for name, item in parts[1].items()}
                return _class_of(parts[0])(**fields)
        raise ValueError(f"{kind!r} is no kind of value")


def _are_bytes(items: list[Any]) -> bool:
    return all(item is None or isinstance(item, bytes) for item in items)


def _split(lengths: NDArray[Any], joined: NDArray[Any]) -> list[bytes | None]:
    raw, ends = joined.tobytes(), np.cumsum(np.maximum(lengths, 0)).tolist()
    return [
        None if length < 0 else raw[end - length : end]
        for length, end in zip(lengths.tolist(), ends, strict=True)
    ]


def _name_of(value: Any) -> str:
    kind = type(value)
    if not kind.__module__.startswith("maxmargin."):
        raise UnwritableError(f"values of type {kind.__name__} have no plain form")
    return f"{kind.__module__}:{kind.__qualname__}"


def _class_of(name: str) -> Any:
    """A named tuple or data class of this library; a file must not get at anything else."""
    module, _, kind = name.partition(":")
    if module.startswith("maxmargin."):
        found = getattr(import_module(module), kind, None)
        holds_data = hasattr(found, "_fields") or dataclasses.is_dataclass(found)
        if isinstance(found, type) and holds_data:
            return found
    raise ValueError(f"{name!r} is no kind of value")
