"""The signatures that estimators and commands use, as text, and how they are compiled ahead.

A line of the catalogue is ``module.routine(types)``. Types are in numba's own notation, as
``int64, readonly(float64[:, ::1]), (int64, float64, )``; a named tuple is a call of its class.
"""

import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from numba import types

SIGNATURES = Path(__file__).with_name("signatures.txt")

_SCALARS = {
    str(one): one
    for one in (*types.integer_domain, *types.real_domain, types.boolean, types.none, types.void)
}
_CONTIGUOUS = {"C": -1, "F": 0}
"""The axis along which an array of this layout is contiguous."""


def spelled(signature: Any) -> str:
    """The types of a routine's arguments, as text."""
    return ", ".join(map(_spelled, getattr(signature, "args", signature)))


def _spelled(one: Any) -> str:
    if isinstance(one, types.Array):
        axes = [":"] * one.ndim
        if one.layout in _CONTIGUOUS:
            axes[_CONTIGUOUS[one.layout]] = "::1"
        text = f"{_spelled(one.dtype)}[{', '.join(axes)}]"
        return text if one.mutable else f"readonly({text})"
    if isinstance(one, types.BaseTuple):
        inside = "".join(f"{_spelled(part)}, " for part in one)
        if isinstance(one, types.BaseNamedTuple):
            kind = one.instance_class
            return f"{kind.__module__}.{kind.__qualname__}({inside})"
        return f"({inside})"
    if isinstance(one, types.Omitted):
        return f"omitted({one.value!r})"
    return str(one)


def parsed(text: str) -> tuple[Any, ...]:
    """The types that a text of `spelled` stands for; what it names is imported."""
    names: dict[str, Any] = {"readonly": _read_only, "omitted": types.Omitted, **_SCALARS}
    for module in set(re.findall(r"\b[A-Za-z_][\w.]*(?=\.\w+\()", text)):
        import_module(module)
        top = module.partition(".")[0]
        names[top] = import_module(top)
    return tuple(map(_typed, eval(f"({text},)" if text else "()", {"__builtins__": {}}, names)))


def _read_only(array: Any) -> Any:
    return array.copy(readonly=True)


def _typed(value: Any) -> Any:
    """A tuple of types as the type of a tuple."""
    if not isinstance(value, tuple):
        return value
    parts = tuple(map(_typed, value))
    if hasattr(value, "_fields"):
        return types.BaseTuple.from_types(parts, type(value))
    return types.BaseTuple.from_types(parts)


def catalogue() -> list[str]:
    """All lines, sorted."""
    return SIGNATURES.read_text("utf-8").split("\n")[:-1]


def compile_line(line: str) -> str:
    """Compile the routine of a line for its signature, unless its machine code is there."""
    name, _, signature = line.removesuffix(")").partition("(")
    module, _, routine = name.rpartition(".")
    getattr(import_module(module), routine).compile(parsed(signature))
    return line


def compile_catalogue(
    processes: int | None = None, start: Callable[[], None] | None = None
) -> Iterator[str]:
    """Compile all lines in several processes, one per core unless told; yields each when done.

    Each process calls `start` first.
    """
    with ProcessPoolExecutor(processes or os.cpu_count(), get_context("spawn"), start) as pool:
        waiting = [pool.submit(compile_line, line) for line in catalogue()]
        for done in as_completed(waiting):
            yield done.result()
