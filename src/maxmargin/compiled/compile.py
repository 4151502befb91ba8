"""How numba compiles our routines, and where it keeps their machine code.

Routines allocate nothing, results and scratch are arguments: numba's reference counting, three
times the price of a short dot product, is off. Sums may be reordered by the compiler (``reassoc``),
so runs repeat bit for bit, but NaN has no meaning.
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
    """Compile a small function into the routines that call it only: half the compile time."""
    return compiled_with(**_SETTINGS, inline="always")(function)


def compiled_with(**settings: Any) -> Callable[[Function], Function]:
    """Compile with these settings, and keep the machine code on disk where that can be done."""

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
    """Warn, once, that each process compiles anew."""
    warnings.warn(
        "No folder can be written to for compiled code, so that each process compiles anew, for "
        "some ten seconds: set the environment variable NUMBA_CACHE_DIR to a folder of yours.",
        RuntimeWarning,
        stacklevel=2,
    )


class _MachineCode(FunctionCache):  # type: ignore[misc]
    """Numba's cache of a function, in our files; a failure to write is ignored."""

    def __init__(self, function: Function) -> None:
        super().__init__(function)
        stamp = numba.__version__, self._impl.locator.get_source_stamp()
        self._cache_file = _Files(Path(self._cache_path), self._impl.filename_base, stamp)

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(OSError):  # a full disk, perhaps; what was compiled is in memory
            super().save_overload(sig, data)


class _Files:
    """One file a signature, replaced atomically; numba's own may mix up two compiled at once."""

    def __init__(self, folder: Path, name: str, stamp: Any) -> None:
        self.folder, self.name, self.stamp = folder, name, stamp

    def load(self, key: Any) -> Any:
        """The data saved under this key of numba's; None if there are none of the same `stamp`."""
        try:
            stamp, saved_key, data = pickle.loads(self._path(key).read_bytes())
        except Exception:  # not there, or damaged in any way: it will be written anew
            return None
        return data if (stamp, saved_key) == (self.stamp, key) else None

    def save(self, key: Any, data: Any) -> None:
        path = self._path(key)
        beside = path.with_suffix(f".{uuid.uuid4().hex[:16]}")
        try:
            beside.write_bytes(dumps((self.stamp, key, data)))
            os.replace(beside, path)
        except OSError:
            beside.unlink(missing_ok=True)
            raise

    def flush(self) -> None:
        """Remove the files of all signatures."""
        for path in self.folder.glob(f"{self.name}.*.nbc"):
            path.unlink(missing_ok=True)

    def _path(self, key: Any) -> Path:
        # Without the code of the function, so that new code takes the place of old.
        signature, target, (_, closure) = key
        text = repr((signature, target, closure))
        return self.folder / f"{self.name}.{hashlib.sha256(text.encode()).hexdigest()[:16]}.nbc"
