"""Damage to files: blind, on their bytes, and aimed, on what they hold.

All of it follows from a random generator, so that a seed brings the same damage back.
"""

import json
import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np

Generator = np.random.Generator
Arrays = dict[str, np.ndarray]

# Blind damage


def blindly_damaged(raw: bytes, others: Sequence[bytes], random: Generator) -> tuple[bytes, str]:
    """Bytes that are neither `raw` nor one of the `others`, and what was done to them."""
    while True:
        found, done = bytearray(raw), []
        for _ in range(random.choice([1, 1, 1, 2, 4])):
            damage = _BLIND[random.integers(len(_BLIND))]
            found = bytearray(damage(found, others, random))
            done.append(damage.__name__.strip("_"))
        if found != raw and bytes(found) not in others:
            return bytes(found), ", ".join(done)


def _place(raw: bytearray, random: Generator) -> int:
    """Anywhere, but often where lengths and names are."""
    end = (8, min(len(raw), 4096), len(raw))[random.integers(3)]
    return int(random.integers(max(1, min(end, len(raw)))))


def _run(raw: bytearray, random: Generator) -> slice:
    start = _place(raw, random)
    return slice(start, start + int(random.choice([1, 1, 2, 4, 8, 64, 1000])))


def _flip(raw, others, random):
    if raw:
        raw[_place(raw, random)] ^= 1 << int(random.integers(8))
    return raw


def _overwrite(raw, others, random):
    run = _run(raw, random)
    raw[run] = random.bytes(len(raw[run]))
    return raw


def _digit(raw, others, random):
    """One digit of the header by another: it stays what JSON can hold."""
    digits = [at for at, byte in enumerate(raw[:65536]) if 48 <= byte < 58]
    if digits:
        raw[digits[random.integers(len(digits))]] = 48 + int(random.integers(10))
    return raw


def _blank(raw, others, random):
    run = _run(raw, random)
    raw[run] = bytes([random.choice([0, 32, 255])]) * len(raw[run])
    return raw


def _insert(raw, others, random):
    at = _place(raw, random)
    raw[at:at] = random.bytes(int(random.choice([1, 2, 8, 64, 1000])))
    return raw


def _delete(raw, others, random):
    del raw[_run(raw, random)]
    return raw


def _repeat(raw, others, random):
    run, at = _run(raw, random), _place(raw, random)
    raw[at:at] = raw[run]
    return raw


def _truncate(raw, others, random):
    return raw[: random.integers(len(raw) + 1)] if random.random() < 0.5 else raw[:-8]


def _swap(raw, others, random):
    length = int(random.choice([1, 8, 64, 512]))
    one, other = sorted(int(random.integers(len(raw) + 1)) for _ in range(2))
    first, second = slice(one, one + length), slice(max(other, one + length), other + length)
    raw[second], raw[first] = raw[first], raw[second]
    return raw


def _splice(raw, others, random):
    """A run of another file of the same format in the place of one's own."""
    other = others[random.integers(len(others))]
    at, length = _place(bytearray(other), random), int(random.choice([8, 64, 512, 4096]))
    if random.random() < 0.3:
        return raw[:at] + other[at:]
    raw[at : at + length] = other[at : at + length]
    return raw


_BLIND: list[Callable[..., bytearray]] = [
    _flip, _flip, _overwrite, _digit, _blank, _insert, _delete, _repeat, _truncate, _swap, _splice,
]  # fmt: skip


# Aimed damage


class Damaged(NamedTuple):
    """What to write instead of what a file held."""

    header: Any
    arrays: Arrays
    what: str
    breaks: str
    """What no sound file would hold; if a change is one that a sound file could have, nothing."""


class Repeated(dict[str, Any]):
    """A JSON object that says one of its names twice."""

    def __init__(self, items: dict[str, Any], name: str, value: Any) -> None:
        super().__init__(items)
        self._more = (name, value)

    def items(self):
        return [*super().items(), self._more]


NAMES_OF_CODE = [
    "maxmargin.io.checkpoint:Checkpoint", "maxmargin.data.files:open_bytes", "os:system",
    "maxmargin.dual.kernels:RBFKernel", "numpy:ndarray", "builtins:eval", "", ":", "maxmargin.",
    "Certificate", "Vocabulary", "NameTable", "Layout", "KernelModel", "RBFKernel", "Iteration",
    "Grammar", "Checkpoint", "WorkingSet", "LinearClassifier", "DualPoint",
]  # fmt: skip

KINDS_OF_VALUES = [
    "array", "view", "strings", "objects", "state", "random", "bytes", "many bytes", "named",
    "data", "records", "made", "object", "list", "tuple", "dict", "csr", "given", "nothing",
]  # fmt: skip

_ODD: list[Any] = [
    -1, 0, 1, 2, 7, -7, 255, 2**15, 2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63, 2**64, 10**30,
    -(2**31), -(2**63), 0.0, -0.0, 0.5, -1.5, 1e-300, 1e18, 1e308, math.nan, math.inf, -math.inf,
    "", "x", "0", "nan", "é\u0000", "auto", None, True, False,
]  # fmt: skip

FREE = (
    "parameters", "about", "given", "maxmargin", "classes", "degree", "gamma", "coef0",
    "markovisation", "min_count", "history", "seconds", "fingerprint", "nodes",
)  # fmt: skip
"""Parts of the ways to values that are hyperparameters, labels, or of no use for answers."""

_ORDERED = ("indptr", "ends")
"""How the names of arrays end whose numbers must not fall."""


def aimed_damage(
    header: Any, arrays: Arrays, random: Generator, free: tuple[str, ...] = FREE
) -> Damaged:
    """Header and arrays that differ from those of a file in one to three places.

    What is on a way with one of the words in `free` breaks nothing.
    """
    tree, arrays = json.loads(json.dumps(header)), {n: a.copy() for n, a in arrays.items()}
    done, broken = [], []
    for _ in range(random.choice([1, 1, 1, 1, 2, 3])):
        if arrays and random.random() < 0.45:
            name, what, breaks = _damage_arrays(arrays, random)
        else:
            name, what, breaks = _damage_tree(tree, sorted(arrays), random)
        done.append(f"{name}: {what}")
        broken.append("" if any(word in name for word in free) else breaks)
    return Damaged(tree, arrays, "; ".join(done), " and ".join(sorted({*broken})) * all(broken))


class _Node(NamedTuple):
    """A value of a JSON tree, where it is kept, and the way to it."""

    holder: Any
    key: Any
    path: tuple[Any, ...]

    @property
    def value(self) -> Any:
        return self.holder[self.key]

    @property
    def name(self) -> str:
        return ".".join(str(step) for step in self.path if step not in (0, 1))


def _nodes(value: Any, path: tuple[Any, ...] = ()) -> list[_Node]:
    found = []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in list(items):
        found.append(_Node(value, key, (*path, key)))
        if isinstance(item, dict | list):
            found += _nodes(item, (*path, key))
    return found


def _damage_tree(tree: Any, names: list[str], random: Generator) -> tuple[str, str, str]:
    nodes = _nodes(tree)
    odds = np.array([weight for weight, _, _ in _TREE])
    _, fits, damage = _TREE[random.choice(len(_TREE), p=odds / odds.sum())]
    fitting = [node for node in nodes if fits(node, names)]
    if not fitting:
        fitting, damage = nodes, _drop
    telling = [node for node in fitting if "history" not in node.name]
    chosen = telling if telling and random.random() < 0.95 else fitting
    node = chosen[random.integers(len(chosen))]
    name = node.name
    what, breaks = damage(node, nodes, names, random)
    return name, what, breaks


def _any(node: _Node, names: list[str]) -> bool:
    return True


def _is_plain(node: _Node, names: list[str]) -> bool:
    return not isinstance(node.value, dict | list)


def _names_array(node: _Node, names: list[str]) -> bool:
    return isinstance(node.value, str) and node.value in names


def _names_class(node: _Node, names: list[str]) -> bool:
    """The second of a list that begins with a kind of value of some class."""
    return (
        node.key == 1
        and isinstance(node.value, str)
        and isinstance(node.holder, list)
        and node.holder[0] in ("named", "data", "records", "made")
    )


def _names_kind(node: _Node, names: list[str]) -> bool:
    return node.key == 0 and isinstance(node.value, str) and node.value in KINDS_OF_VALUES


def _is_structural(node: _Node, names: list[str]) -> bool:
    """Whether a string names an array, a class or a kind of value, or is of the header itself."""
    named = (_names_array, _names_class, _names_kind)
    return any(names_it(node, names) for names_it in named) or len(node.path) < 2


def _are_numbers(node: _Node, names: list[str]) -> bool:
    """A short list of integers: a shape, strides, a layout."""
    value = node.value
    return isinstance(value, list) and bool(value) and all(type(item) is int for item in value)


def _is_number_of_view(node: _Node, names: list[str]) -> bool:
    """The offset of a view, a number of rows and the like."""
    return type(node.value) is int and isinstance(node.holder, list)


def _replace(node, nodes, names, random):
    """Another value; one of the same kind breaks nothing if it is no number of a place."""
    old = node.value
    near = [old + 1, old - 1, -old] if isinstance(old, int | float) else []
    pool = [*near, *_ODD, str(old)[:20], [], {}, [old], {"a": old}]
    new = pool[random.integers(len(pool))]
    both_float = isinstance(old, float) and isinstance(new, float) and math.isfinite(new)
    both_bool = isinstance(old, bool) and isinstance(new, bool)
    both_text = isinstance(old, str) and isinstance(new, str)
    legal = both_float or both_bool or (both_text and not _is_structural(node, names))
    legal = legal or (type(old) is type(new) and old == new)
    node.holder[node.key] = deepcopy(new)
    breaks = "" if legal else f"{type(old).__name__} replaced by {_sort_of(new)}"
    return f"{old!r:.60} -> {new!r:.40}", breaks


def _sort_of(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "no finite number"
    return type(value).__name__


def _drop(node, nodes, names, random):
    del node.holder[node.key]
    return "dropped", "value dropped"


def _repeat_item(node, nodes, names, random):
    other = nodes[random.integers(len(nodes))].value
    if isinstance(node.holder, list):
        node.holder.insert(node.key, deepcopy(node.value))
        return "twice", "value twice"
    owners = [owner for owner in nodes if owner.value is node.holder]
    if not owners:  # the header itself, which the writer makes
        return _drop(node, nodes, names, random)
    owners[0].holder[owners[0].key] = Repeated(node.holder, node.key, deepcopy(other))
    return f"said again as {other!r:.40}", "name said twice"


def _other_node(node, nodes, names, random):
    other = nodes[random.integers(len(nodes))].value
    node.holder[node.key] = deepcopy(other)
    return f"replaced by {other!r:.60}", "value of something else"


def _exchange(node, nodes, names, random):
    """Two values of the same type by each other."""
    alike = [n for n in nodes if type(n.value) is type(node.value) and n.value != node.value]
    if not alike:
        return _drop(node, nodes, names, random)
    other = alike[random.integers(len(alike))]
    one, two = node.value, other.value
    node.holder[node.key], other.holder[other.key] = two, one
    breaks = "" if isinstance(one, float) else "values exchanged"
    return f"exchanged with {other.name} {two!r:.40}", breaks


def _other_array(node, nodes, names, random):
    """The name of an array by that of another, or by one that nobody has."""
    new = _other_than(node.value, [*names, "nobody", ""], random)
    node.holder[node.key] = new
    return f"means array {new!r}", "name of another array"


def _other_than(old: str, pool: list[str], random: Generator) -> str:
    others = [name for name in pool if name != old]
    return others[random.integers(len(others))]


def _other_kind(node, nodes, names, random):
    new = _other_than(node.value, KINDS_OF_VALUES, random)
    old, node.holder[node.key] = node.value, new
    return f"{old!r} becomes {new!r}", "another kind of value"


def _other_class(node, nodes, names, random):
    pool = NAMES_OF_CODE + [n.value for n in nodes if _names_class(n, names)]
    new = _other_than(node.value, pool, random)
    old, node.holder[node.key] = node.value, new
    return f"{old!r} becomes {new!r}", "another class"


def _nest(node, nodes, names, random):
    depth = int(random.choice([1, 2, 31, 300, 3000]))
    value, is_bare = node.value, random.random() < 0.5
    for _ in range(depth):
        value = [value] if is_bare else ["list", [value]]
    node.holder[node.key] = value
    return f"nested {depth} deep", "nested value"


def _numbers(node, nodes, names, random):
    at = int(random.integers(len(node.value)))
    old = node.value[at]
    node.value[at] = new = _near(old, random)
    return f"[{at}] {old} -> {new}", "number of a shape or layout"


def _number(node, nodes, names, random):
    old = node.value
    node.holder[node.key] = new = _near(old, random)
    return f"{old} -> {new}", "number of an offset or layout"


def _near(old: int, random: Generator) -> int:
    pool = {old + 1, old - 1, -1, 0, 8, 2 * old, 2**31, 2**40, -(2**40), 2**62} - {old}
    return sorted(pool)[random.integers(len(pool))]


_TREE: list[tuple[float, Callable[[_Node, list[str]], bool], Callable[..., tuple[str, str]]]] = [
    (4.0, _any, _replace), (1.0, _any, _drop), (1.0, _any, _repeat_item), (1.0, _any, _other_node),
    (1.0, _is_plain, _exchange), (1.0, _names_array, _other_array), (1.0, _names_kind, _other_kind),
    (1.0, _names_class, _other_class), (0.5, _any, _nest), (1.5, _are_numbers, _numbers),
    (1.0, _is_number_of_view, _number),
]  # fmt: skip


def _damage_arrays(arrays: Arrays, random: Generator) -> tuple[str, str, str]:
    names = sorted(arrays)
    odds = np.array([0.05 if "history" in name else 1.0 for name in names])
    name = names[random.choice(len(names), p=odds / odds.sum())]
    what, breaks = _ARRAYS[random.integers(len(_ARRAYS))](arrays, name, random)
    return f"array {name}", what, breaks


def _entries(arrays, name, random):
    """Some entries by others, of which some are no places of anything and some no numbers."""
    array = arrays[name] = np.atleast_1d(arrays[name]).copy()
    if not array.size:
        return _longer(arrays, name, random)
    kind = array.dtype.kind
    if kind == "b":
        array = array.view(np.uint8)
    at = random.integers(array.size, size=int(random.choice([1, 1, 3, array.size])))
    if kind == "f":
        pool = [math.nan, math.inf, -math.inf, 0.0, 1.0, -2.5, 1e-9, 3e37]
        new: Any = pool[random.integers(len(pool))]
        breaks = "" if math.isfinite(new) else "weights not finite"
    else:
        limits = np.iinfo(array.dtype)
        low, high = int(array.min()), int(array.max())
        pool = [low - 1, high + 1, -1, array.size, 2**20, limits.max, limits.min, high, low]
        new = min(max(pool[random.integers(len(pool))], limits.min), limits.max)
        inside = low <= new <= high and not name.endswith(_ORDERED)
        breaks = "" if inside or array.dtype == np.uint8 else "integers out of range"
    array.flat[at] = new
    return f"{len(at)} entries {new}", breaks


def _shuffled(arrays, name, random):
    array = arrays[name]
    flat = array.ravel()
    order = random.permutation(flat.size) if random.random() < 0.7 else np.arange(flat.size)[::-1]
    arrays[name] = flat[order].reshape(array.shape)
    return "shuffled", "integers out of order" if name.endswith(_ORDERED) else ""


def _shorter(arrays, name, random):
    array = arrays[name]
    length = len(array) if array.ndim else 0
    kept = int(random.integers(length)) if length and random.random() < 0.7 else max(length - 1, 0)
    arrays[name] = np.atleast_1d(array)[:kept]
    return f"{length} -> {kept} rows", "array of another length"


def _longer(arrays, name, random):
    array = np.atleast_1d(arrays[name])
    more = np.zeros((int(random.choice([1, 3, 1000])), *array.shape[1:]), array.dtype)
    arrays[name] = np.concatenate([array, array[:1], more])
    return f"{len(array)} -> {len(arrays[name])} rows", "array of another length"


def _reshaped(arrays, name, random):
    array = arrays[name]
    shapes = [(-1,), array.shape[::-1], (1, *array.shape), (*array.shape, 1), (-1, 1)]
    arrays[name] = array.reshape(shapes[random.integers(len(shapes))])
    breaks = "array of another shape" if arrays[name].shape != array.shape else ""
    return f"shape {array.shape} -> {arrays[name].shape}", breaks


def _retyped(arrays, name, random):
    array = arrays[name]
    kinds = ["f8", "f4", "f2", "i8", "i4", "u8", "i1", "u1", "?"]
    kind = np.dtype(kinds[random.integers(len(kinds))])
    with np.errstate(all="ignore"):
        arrays[name] = array.astype(kind)
    rounded = array.dtype.kind == kind.kind == "f" or array.dtype == kind
    breaks = "" if rounded else "array of another type"
    return f"{array.dtype} -> {kind}", breaks


def _reinterpreted(arrays, name, random):
    """The same bytes as numbers of another type."""
    array = np.ascontiguousarray(arrays[name]).ravel()
    kinds = [np.dtype(kind) for kind in ("f8", "i8", "f4", "i4", "u1", "?")]
    kinds = [kind for kind in kinds if array.nbytes % kind.itemsize == 0]
    kind = kinds[random.integers(len(kinds))]
    arrays[name] = array.view(np.uint8).view(kind)
    return f"{array.dtype} read as {kind}", "array of another type" * (array.dtype != kind)


def _without(arrays, name, random):
    del arrays[name]
    return "missing", "array missing"


def _exchanged(arrays, name, random):
    names = sorted(arrays)
    other = names[random.integers(len(names))]
    one, two = arrays[name], arrays[other]
    arrays[name], arrays[other] = two, one
    alike = one.shape == two.shape and one.dtype == two.dtype and one.dtype.kind == "f"
    return f"exchanged with {other}", "" if alike else "arrays exchanged"


def _constant(arrays, name, random):
    array = arrays[name]
    value = int(random.integers(2))
    arrays[name] = np.full_like(array, value)
    inside = array.size > 0 and array.min() <= value <= array.max()
    legal = array.dtype.kind in "fb" or (inside and not name.endswith(_ORDERED))
    return f"all {value}", "" if legal else "integers out of range"


_ARRAYS: list[Callable[..., tuple[str, str]]] = [
    _entries, _entries, _entries, _entries, _shuffled, _shorter, _longer, _reshaped, _retyped,
    _reinterpreted, _without, _exchanged, _constant,
]  # fmt: skip
