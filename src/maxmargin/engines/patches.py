"""Vectors as what has changed in them, where that is shorter."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Patch(NamedTuple):
    """New values of some entries of a vector.

    Parameters
    ----------
    columns : ndarray of uint32, or None
        None stands for all of them.
    values : ndarray
    """

    columns: NDArray[np.uint32] | None
    values: Floats

    @classmethod
    def between(cls, old: Floats, new: Floats) -> "Patch":
        """What makes `new` of `old`.

        Examples
        --------
        >>> import numpy as np
        >>> from maxmargin.engines.patches import Patch
        >>> Patch.between(np.zeros(5), np.array([0.0, 0.0, 3.0, 0.0, 0.0]))
        Patch(columns=array([2], dtype=uint32), values=array([3.]))
        """
        columns = np.flatnonzero(old != new).astype(np.uint32)
        some = cls(columns, new[columns])
        return some if some.nbytes < new.nbytes else cls(None, new.copy())

    @property
    def nbytes(self) -> int:
        """What has to be sent."""
        return self.values.nbytes + (0 if self.columns is None else self.columns.nbytes)

    @property
    def places(self) -> "slice | NDArray[np.uint32]":
        """Where the entries are."""
        return slice(None) if self.columns is None else self.columns

    def apply(self, vector: Floats) -> None:
        """Put the values in their places."""
        vector[self.places] = self.values
