"""Short names for data, so that a checkpoint can tell whether it belongs to them."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from maxmargin.data.sources_hash import SampledHash


def fingerprint(value: Any) -> str:
    """A name for what a value holds: equal ones have the same, others hardly ever.

    Goes through all of arrays, lists, dictionaries, and the attributes of any other object. Of what
    has none, such as functions, only the type counts.
    """
    found = _WholeHash("")
    found.add(value)
    return found.text()


class _WholeHash(SampledHash):
    """A hash that leaves nothing out."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self._met: dict[int, Any] = {}

    def _places(self, n: int) -> Iterable[int]:
        return range(n)

    def _add_array(self, array: Any) -> None:
        self._add_text(f"array {array.shape} {array.dtype.str}")
        if array.size:
            self._hash.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

    def _add_unknown(self, value: Any) -> None:
        super()._add_unknown(value)
        # Objects may know each other, and this one as well.
        if hasattr(value, "__dict__") and not callable(value) and id(value) not in self._met:
            self._met[id(value)] = value  # which keeps its id its own
            self.add(vars(value))
