"""The one place that says how numba compiles our kernels.

Kernels allocate nothing: numba's reference counting is switched off for them (``_nrt``). With it,
every row that a kernel looks at costs several atomic operations, three times the price of a short
dot product. Scratch space and results are arrays that the caller passes in.

Sums and maxima may be taken several lanes at a time (``reassoc``, ``nnan``), which takes their
order out of our hands, but not out of the compiled code's: runs still repeat bit for bit.
Infinities keep their meaning, not-a-numbers do not.
"""

from collections.abc import Callable
from typing import Any

import numba

Function = Callable[..., Any]

_SETTINGS: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"contract", "nsz", "nnan", "reassoc"},
    "_nrt": False,
}


def compiled(function: Function) -> Function:
    """Compile on first call, keep the machine code on disk, release the GIL."""
    kernel: Function = numba.njit(**_SETTINGS)(function)
    return kernel


def inlined(function: Function) -> Function:
    """The same for a small function that becomes part of the kernels that call it.

    Numba then compiles it once with each of them, and not once more by itself: that halves the
    time of the first fit.
    """
    kernel: Function = numba.njit(**_SETTINGS, inline="always")(function)
    return kernel
