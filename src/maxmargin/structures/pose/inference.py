"""Inference of angles, in radians modulo a turn: distances, wrapped Gaussian kernel, its maxima."""

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

TURN = 2.0 * np.pi

_NEGLIGIBLE = 37.0
"""``exp`` of minus this is below the rounding of one."""

_MOST_VALUES = 2_000_000
"""Kernel values that are held at the same time."""

_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


def angular_distance(a: Floats, b: Floats) -> Floats:
    """Distance between angles on the circle, at most pi."""
    return np.asarray(np.abs(np.mod(np.subtract(a, b) + np.pi, TURN) - np.pi))


def wrapped_gaussian(distances: Floats, gamma: float) -> Floats:
    """``sum_k exp(-gamma (d + 2 pi k)^2)`` over integers k, over its value at zero; ``|d| <= pi``.

    The RBF of the angular distance itself is not positive semi-definite, for its kink at pi; the
    two differ by about ``exp(-10 gamma)``.
    """
    reach = math.sqrt(_NEGLIGIBLE / gamma)
    most = max(0, math.ceil((reach / np.pi - 1.0) / 2.0))
    values = np.zeros_like(distances)
    at_zero = 0.0
    for k in range(-most, most + 1):
        values += np.exp(-gamma * (distances + TURN * k) ** 2)
        at_zero += math.exp(-gamma * (TURN * k) ** 2)
    return np.asarray(values / at_zero)


def best_angles(
    factors: Floats, centres: Floats, gamma: float, start: Floats, reach: float
) -> tuple[Floats, Floats]:
    """Maxima within `reach` of ``start[i]``: the angles, from 0 to 2 pi, and their scores.

    Row i scores ``sum_l factors[i, l] wrapped_gaussian(angle - centres[l])``, maximised on a grid
    finer than the kernel is wide, then by golden-section search.
    """
    angles, scores = np.empty(len(start)), np.empty(len(start))
    step = min(reach / 4.0, 0.25 / math.sqrt(2.0 * gamma))
    offsets = np.linspace(-reach, reach, 2 * math.ceil(reach / step) + 1)
    at_once = max(1, _MOST_VALUES // max(1, len(offsets) * len(centres)))
    for first in range(0, len(start), at_once):
        some = slice(first, first + at_once)
        angles[some], scores[some] = _best(factors[some], centres, gamma, start[some], offsets)
    return np.mod(angles, TURN), scores


def _best(
    factors: Floats, centres: Floats, gamma: float, start: Floats, offsets: Floats
) -> tuple[Floats, Floats]:
    """`best_angles` of some rows, with the grid of `offsets`."""

    def score(angles: Floats) -> Floats:
        """Scores of some angles for each row."""
        distances = np.mod(angles[:, :, None] - centres + np.pi, TURN) - np.pi
        return np.asarray(np.einsum("nl,nml->nm", factors, wrapped_gaussian(distances, gamma)))

    everyone = np.arange(len(start))
    grid = start[:, None] + offsets
    values = score(grid)
    at = values.argmax(axis=1)
    best, highest = grid[everyone, at], values[everyone, at]
    low = grid[everyone, np.maximum(at - 1, 0)]
    high = grid[everyone, np.minimum(at + 1, len(offsets) - 1)]
    width = float((high - low).max(initial=0.0))
    while width > 1e-9:
        inner = np.column_stack([high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)])
        left, right = score(inner).T
        rises = left < right
        low, high = np.where(rises, inner[:, 0], low), np.where(rises, high, inner[:, 1])
        width *= _GOLDEN
    middle = (low + high) / 2.0
    value = score(middle[:, None])[:, 0]
    better = value > highest  # at an end of the range, the end itself may be the highest
    return np.where(better, middle, best), np.where(better, value, highest)
