"""Checkpoints: a solve that was killed resumes from the last one, to the same answer."""

import math
import os
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from maxmargin.core.arrays import SampledHash, conforms
from maxmargin.core.state import Stateful, UnwritableError, capture, restore
from maxmargin.io.files import read_tensors, write_tensors

if TYPE_CHECKING:
    from maxmargin.solvers.loop import Stopping


def fingerprint(value: Any) -> str:
    """A hash of all of arrays, lists, dictionaries and attributes; of functions only the type."""
    return _WholeHash("", value).text()


class _WholeHash(SampledHash):
    """A hash that leaves nothing out."""

    def __init__(self, kind: str, *values: Any) -> None:
        self._met: dict[int, Any] = {}
        super().__init__(kind, *values)

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


_FORMAT = 4
"""The first had no checksum, the second other names, the third other states of linear duals."""


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written; the training goes on without."""


@dataclass
class Checkpoint:
    """Where a fit keeps its state, how often, and whether it goes on from there.

    Parameters
    ----------
    path : path
        Of one file. It is replaced as a whole: whatever happens, the last one stays.
    every : float, default=60.0
        Least seconds between two writes.
    resume : bool, default=False
        Go on from the file if it is there; it must come from the same data and parameters.

    See Also
    --------
    maxmargin.StructuredSVM : Takes one as its parameter `checkpoint`, as every estimator does.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import maxmargin as mm
    >>> X, y = [[[0.0, 1.0], [1.0, 0.0]], [[0.0, 1.0]]], [["b", "a"], ["b"]]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "run.checkpoint")
    ...     first = mm.SequenceTagger(checkpoint=path).fit(X, y)
    ...     resumed = mm.Checkpoint(path, resume=True)
    ...     again = mm.SequenceTagger(checkpoint=resumed).fit(X, y)
    >>> again.certificate_ == first.certificate_
    True
    """

    path: Any
    every: float = 60.0
    resume: bool = False

    def __post_init__(self) -> None:
        self.path: Path = Path(self.path)
        if not self.every >= 0.0:
            raise ValueError(f"every must be a number of seconds from 0 on, but is {self.every}.")

    @classmethod
    def of(cls, given: "str | os.PathLike[str] | Checkpoint") -> Self:
        """A new one, for one fit, from a path or from another."""
        return cls(given.path, given.every, given.resume) if isinstance(given, cls) else cls(given)

    def begin(
        self,
        state: Stateful,
        content: Any,
        solver: Any,
        stopping: "Stopping",
        seed: int,
        **parameters: Any,
    ) -> bool:
        """Note what the solve is about, and resume `state` and clock from the file if asked to.

        `content`, the ``repr`` of `solver` and `parameters` identify the solve; ValueError if the
        file is damaged or of another. Returns whether it was resumed.
        """
        self._about = {
            "data": fingerprint(content),
            "solver": repr(solver),
            "tol": stopping.tol,
            "gap": stopping.gap,
            "seed": seed,
            **parameters,
        }
        self._stopping = stopping
        self._last = time.perf_counter()
        if not (self.resume and self.path.exists()):
            return False
        header, arrays = read_tensors(self.path)
        if not isinstance(header, dict) or header.get("kind") != "checkpoint":
            raise ValueError(f"{self.path} is no checkpoint: give another path.")
        if header.get("format") != _FORMAT:
            raise ValueError(
                f"{self.path} is a checkpoint of another version of maxmargin: finish it with that "
                f"version, or remove the file."
            )
        about: Any = header.get("about")
        seconds: Any = header.get("seconds")
        clock = conforms(seconds, float) and 0.0 <= seconds < math.inf
        if not isinstance(about, dict) or not clock:
            raise ValueError(f"{self.path} is damaged: remove the file to begin anew.")
        for name, mine in self._about.items():
            theirs = about.get(name)
            if theirs != mine:
                other = f"parameters ({name} {theirs!s:.100}, not {mine!s:.100})"
                if name == "data":  # which holds the costs and losses that parameters have made
                    other = "data, or of another C, loss or the like"
                raise ValueError(
                    f"{self.path} is a checkpoint of other {other}: fit the same as before, give "
                    f"another path, or remove the file."
                )
        # Copies, because those of the reader may not be written to or made longer.
        self._restore(header, {name: array.copy() for name, array in arrays.items()}, state)
        stopping.earlier = seconds
        return True

    def _restore(self, header: Any, arrays: Any, state: Stateful) -> None:
        """Restore a state, all of which must fit together and the data."""
        try:
            for name, array in arrays.items():
                if array.dtype.kind == "f" and np.isnan(array).any():
                    raise ValueError(f"{name} is not a number")
            restore(header["state"], arrays, state)
        except Exception as error:
            reason = " ".join(f"{error}".split())
            raise ValueError(
                f"{self.path} is damaged: {reason:.200}; remove the file to begin anew."
            ) from error

    def offer(self, state: Callable[[], Stateful], final: bool = False) -> None:
        """Write the state if it is time to, or `final`."""
        if not final and time.perf_counter() - self._last < self.every:
            return
        try:
            tree, arrays = capture(state())
            header = {"kind": "checkpoint", "format": _FORMAT, "about": self._about}
            header |= {"seconds": self._stopping.seconds, "state": tree}
            write_tensors(self.path, header, arrays)
        except (OSError, UnwritableError) as error:
            warnings.warn(
                f"The checkpoint {self.path} could not be written, and training goes on without: "
                f"{error}.",
                CheckpointWarning,
                stacklevel=2,
            )
        self._last = time.perf_counter()
