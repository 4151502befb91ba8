"""The one place that says how numba compiles our kernels.

Kernels allocate nothing: numba's reference counting is switched off for them (``_nrt``). With it,
every row that a kernel looks at costs several atomic operations, three times the price of a short
dot product. Scratch space and results are arrays that the caller passes in.
"""

from collections.abc import Callable
from typing import Any

import numba

Function = Callable[..., Any]

_SETTINGS: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "_nrt": False,
}


def compiled(function: Function) -> Function:
    """Compile on first call, keep the machine code on disk, release the GIL."""
    kernel: Function = numba.njit(**_SETTINGS, fastmath={"contract", "nsz"})(function)
    return kernel


def compiled_over_classes(function: Function) -> Function:
    """The same for functions whose loops run over the padded classes of one example.

    Lets sums and maxima be taken four lanes at a time, which takes their order out of our hands
    (but not out of the compiled code's: runs still repeat bit for bit). Infinities keep their
    meaning, not-a-numbers do not.
    """
    flags = {"contract", "nsz", "nnan", "reassoc"}
    kernel: Function = numba.njit(**_SETTINGS, fastmath=flags)(function)
    return kernel
