"""The one place that says how numba compiles our routines, and keeps what it has compiled.

Routines allocate nothing: numba's reference counting is switched off for them (``_nrt``). With it,
every row that a routine looks at costs several atomic operations, three times the price of a short
dot product. Scratch space and results are arrays that the caller passes in.

Sums and maxima may be taken several lanes at a time (``reassoc``, ``nnan``), which takes their
order out of our hands, but not out of the compiled code's: runs still repeat bit for bit.
Infinities keep their meaning, not-a-numbers do not.

Machine code is kept where numba would keep it. Numba's own files are an index for each function
with numbered files beside it: two processes that compile at the same time may give the same number
to different signatures, and whoever comes next runs the wrong code. Here, each signature has a file
of its own that says what it is.
"""

import functools
import hashlib
import os
import pickle
import uuid
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache
from numba.core.serialize import dumps

Function = Callable[..., Any]

_SETTINGS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"contract", "nsz", "nnan", "reassoc"},
    "_nrt": False,
}


def compiled(function: Function) -> Function:
    """Compile on first call, keep the machine code on disk, release the GIL."""
    return compiled_with(**_SETTINGS)(function)


def inlined(function: Function) -> Function:
    """The same for a small function that becomes part of the routines that call it.

    Numba does not compile it once more by itself: that halves the time of the first fit.
    """
    return compiled_with(**_SETTINGS, inline="always")(function)


def compiled_with(**settings: Any) -> Callable[[Function], Function]:
    """Compile with other settings, and keep the machine code on disk where there is a place."""

    def decorate(function: Function) -> Function:
        routine: Any = numba.njit(**settings)(function)
        try:
            routine._cache = _MachineCode(function)
        except RuntimeError:  # no folder can be written to
            _warn_of_compiling()
        return routine  # type: ignore[no-any-return]

    return decorate


@functools.cache
def _warn_of_compiling() -> None:
    """Say once why each process will take its time."""
    warnings.warn(
        "No folder can be written to for compiled code, so that each process compiles anew, for "
        "some ten seconds: set the environment variable NUMBA_CACHE_DIR to a folder of yours.",
        RuntimeWarning,
        stacklevel=2,
    )


class _MachineCode(FunctionCache):  # type: ignore[misc]
    """Numba's cache of a function, with other files, and no reason to fail."""

    def __init__(self, function: Function) -> None:
        super().__init__(function)
        stamp = numba.__version__, self._impl.locator.get_source_stamp()
        self._cache_file = _Files(Path(self._cache_path), self._impl.filename_base, stamp)

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(OSError):  # a full disk, perhaps; what was compiled is in memory
            super().save_overload(sig, data)


class _Files:
    """A file for each signature of a function, written whole or not at all.

    Names begin with `name`; a file is of use where `stamp` is the same.
    """

    def __init__(self, folder: Path, name: str, stamp: Any) -> None:
        self.folder, self.name, self.stamp = folder, name, stamp

    def load(self, key: Any) -> Any:
        """What was saved for a key of numba's; None if there is nothing, or nothing of use."""
        try:
            stamp, saved_key, data = pickle.loads(self._path(key).read_bytes())
        except Exception:  # not there, or damaged in any way: it will be written anew
            return None
        return data if (stamp, saved_key) == (self.stamp, key) else None

    def save(self, key: Any, data: Any) -> None:
        """Keep the data under a key."""
        path = self._path(key)
        beside = path.with_suffix(f".{uuid.uuid4().hex[:16]}")
        try:
            beside.write_bytes(dumps((self.stamp, key, data)))
            os.replace(beside, path)
        except OSError:
            beside.unlink(missing_ok=True)
            raise

    def flush(self) -> None:
        """Forget all."""
        for path in self.folder.glob(f"{self.name}.*.nbc"):
            path.unlink(missing_ok=True)

    def _path(self, key: Any) -> Path:
        # Without the code of the function, so that new code takes the place of old.
        signature, target, (_, closure) = key
        text = repr((signature, target, closure))
        return self.folder / f"{self.name}.{hashlib.sha256(text.encode()).hexdigest()[:16]}.nbc"
