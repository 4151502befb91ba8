"""How numba compiles our routines.

Routines allocate nothing, results and scratch are arguments: numba's reference counting, three
times the price of a short dot product, is off. Sums may be reordered by the compiler (``reassoc``),
so runs repeat bit for bit, but NaN has no meaning.
"""

from collections.abc import Callable
from typing import Any

import numba

from maxmargin.compiled.machine_code import MachineCode

Function = Callable[..., Any]

_SETTINGS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"contract", "nsz", "nnan", "reassoc"},
    "_nrt": False,
}


def compiled(function: Function) -> Function:
    """Compile on first call, where the machine code is not there already; release the GIL."""
    return compiled_with(**_SETTINGS)(function)


def inlined(function: Function) -> Function:
    """Compile a small function into the routines that call it only: half the compile time."""
    return compiled_with(**_SETTINGS, inline="always")(function)


def compiled_with(**settings: Any) -> Callable[[Function], Function]:
    """Compile with these settings, and keep the machine code."""

    def decorate(function: Function) -> Function:
        routine: Any = numba.njit(**settings)(function)
        routine._cache = MachineCode(routine)
        return routine  # type: ignore[no-any-return]

    return decorate
