"""Mixtures of outputs: what planes that were merged are planes of."""

import sys
from typing import Any, NamedTuple

import numpy as np

from maxmargin.dual.registry import registered


@registered("Mixture")
class Mixture(NamedTuple):
    """What a merged plane is a plane of: outputs of an example in proportions that add up to 1."""

    outputs: tuple[Any, ...]
    shares: tuple[float, ...]


def size_of(output: Any) -> int:
    """Bytes that an output takes, about."""
    if isinstance(output, np.ndarray):
        return output.nbytes + sys.getsizeof(output)
    size = sys.getsizeof(output)
    if isinstance(output, tuple | list):
        size += sum(map(size_of, output))
    return size


def parts_of(output: Any) -> list[tuple[Any, float]]:
    """Outputs with their shares; of a plane that is not merged, the one."""
    if isinstance(output, Mixture):
        return list(zip(output.outputs, output.shares, strict=True))
    return [(output, 1.0)]


def mixed_output(mixed: list[tuple[Any, float]]) -> Mixture:
    """The mixture of outputs, or mixtures, in these proportions."""
    parts = [
        (part, share * inner)
        for output, share in mixed
        if share > 0.0
        for part, inner in parts_of(output)
    ]
    try:
        sums: dict[Any, float] = {}
        for part, share in parts:
            sums[part] = sums.get(part, 0.0) + share
        parts = list(sums.items())
    except TypeError:  # outputs that cannot be looked up stay as many as they are
        pass
    return Mixture(tuple(part for part, _ in parts), tuple(share for _, share in parts))
