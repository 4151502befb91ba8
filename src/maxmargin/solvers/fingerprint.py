"""Short names for data, so that a checkpoint can tell whether it belongs to them."""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp


def fingerprint(*values: Any) -> str:
    """A name for what values hold: equal values have the same, others hardly ever.

    Goes through arrays, lists, dictionaries and the attributes of any other object. Of what has
    none, such as functions, only the type counts.
    """
    found = _Fingerprint()
    for value in values:
        found.add(value)
    return found.hash.hexdigest()


class _Fingerprint:
    def __init__(self) -> None:
        self.hash = hashlib.blake2b(digest_size=16)
        self._met: dict[int, tuple[int, Any]] = {}

    def add(self, value: Any) -> None:
        if value is None or isinstance(value, bool | int | float | complex | str | np.generic):
            self._note(type(value).__name__, value)
        elif isinstance(value, bytes | bytearray):
            self._note("bytes", len(value))
            self.hash.update(value)
        elif self._is_new(value):
            self._note(type(value).__name__)
            self._add_parts(value)

    def _add_parts(self, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.dtype != object:
            self._note(value.dtype, value.shape)
            self.hash.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
        elif sp.issparse(value):
            self._note(value.format, value.shape)
            for part in vars(value).values():
                self.add(part)
        elif isinstance(value, Mapping):
            self._note(len(value))
            for key in value:
                self.add(key)
                self.add(value[key])
        elif isinstance(value, list | tuple | np.ndarray):
            self._note(len(value))
            for item in value:
                self.add(item)
        elif isinstance(value, set | frozenset):
            self._note(sorted(map(repr, value)))
        elif hasattr(value, "__dict__") and not callable(value):
            self.add(vars(value))

    def _is_new(self, value: Any) -> bool:
        """Whether an object is met for the first time; else note which one it is."""
        if id(value) in self._met:
            self._note("again", self._met[id(value)][0])
            return False
        self._met[id(value)] = len(self._met), value  # which keeps its id its own
        return True

    def _note(self, *what: Any) -> None:
        self.hash.update(repr(what).encode())
