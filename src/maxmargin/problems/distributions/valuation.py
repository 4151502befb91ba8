"""Probabilities of labels and what they are worth, in plain numpy: what points have in common."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

TOLERANCE = 1e-9
"""By which probabilities may miss their sums."""

CHUNK = 2**20
"""Numbers that are copied at a time."""


def changes_of(probabilities: Floats, truths: NDArray[np.integer], cost: Floats) -> Floats:
    """Cost times the truth less the probabilities, one row for each position.

    The difference comes before any sum: where all probability is on the truth, weights are zero,
    and not what rounding leaves, which would decide between outputs that are equally good.
    """
    changes = -probabilities
    changes[np.arange(len(changes)), truths] += 1.0
    changes *= cost[:, None]
    return changes


def chunks_of(rows: Floats) -> Iterator[slice]:
    """Some rows of a table at a time."""
    size = max(1, CHUNK // rows.shape[1])
    return (slice(start, start + size) for start in range(0, len(rows), size))
