"""Digits hidden in clutter: bags of frames, and windows of images, made from MNIST with a seed."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks.common import load

Floats = NDArray[np.float64]

OBJECT, NOTHING = 1, 0
"""Classes of images: with the digit that is looked for, and with another."""

WINDOW, STRIDE = 14, 2


class Hidden(NamedTuple):
    """Bags, and which instance shows the class.

    Parameters
    ----------
    X : ndarray of CSR matrices, one row an instance
    y : ndarray of shape (n_bags,)
    shows : ndarray of shape (n_bags,)
    """

    X: NDArray[Any]
    y: NDArray[Any]
    shows: NDArray[np.int64]


def pictures(quick: bool) -> tuple[Floats, NDArray[Any]]:
    """MNIST, or scikit-learn's digits, as square pictures with values from 0 to 1.

    The first 60,000 are those to train on.
    """
    data = load("mnist", quick, test_rows=not quick)
    X = np.asarray(data.X.toarray(), dtype=np.float64)
    side = int(np.sqrt(X.shape[1]))
    return X.reshape(-1, side, side) / X.max(), data.y


def frames(digits: Floats, y: NDArray[Any], n_frames: int, seed: int) -> Hidden:
    """Every digit among frames of clutter: quarters of four other digits, out of place."""
    random = np.random.default_rng(seed)
    n, half = len(digits), digits.shape[1] // 2
    found = np.empty((n, n_frames, 2 * half, 2 * half))
    quarters = [(a, b) for a in (0, half) for b in (0, half)]
    for a, b in quarters:
        sources = random.integers(n, size=(n, n_frames))
        elsewhere = np.array([place for place in quarters if place != (a, b)])
        places = elsewhere[random.integers(3, size=(n, n_frames))]
        for c, d in elsewhere:
            bag, frame = np.nonzero((places == (c, d)).all(axis=2))
            part = digits[sources[bag, frame], c : c + half, d : d + half]
            found[bag, frame, a : a + half, b : b + half] = part
    shows = random.integers(n_frames, size=n)
    found[np.arange(n), shows] = digits[:, : 2 * half, : 2 * half]
    return _hidden(found.reshape(n, n_frames, -1), y, shows)


def images(digits: Floats, y: NDArray[Any], wanted: int, seed: int) -> tuple[Hidden, Floats]:
    """Images of twice the size of a digit with one of them and scraps of others; all windows.

    Half of the images have the `wanted` digit, half another one. Digits are at half their
    resolution. Returns the windows as bags, and the images.
    """
    random = np.random.default_rng(seed)
    small = _small(digits)
    side, n = 2 * WINDOW, len(small)
    scraps = small[random.integers(n, size=(n, 8))]
    field = np.zeros((n, side, side))
    for i in range(n):
        for scrap in scraps[i]:
            a, b = random.integers(0, WINDOW // 2 + 1, size=2)
            c, d = random.integers(0, side - WINDOW // 2 + 1, size=2)
            here = field[i, c : c + WINDOW // 2, d : d + WINDOW // 2]
            np.maximum(here, scrap[a : a + WINDOW // 2, b : b + WINDOW // 2], out=here)
    places = np.arange(0, side - WINDOW + 1, STRIDE)
    at = random.integers(len(places), size=(n, 2))
    for i, (a, b) in enumerate(places[at]):
        field[i, a : a + WINDOW, b : b + WINDOW] = small[i]
    windows = np.lib.stride_tricks.sliding_window_view(field, (WINDOW, WINDOW), axis=(1, 2))
    windows = windows[:, ::STRIDE, ::STRIDE].reshape(n, len(places) ** 2, -1)
    labels = np.where(y == wanted, OBJECT, NOTHING)
    return _hidden(windows, labels, at[:, 0] * len(places) + at[:, 1]), field


def half_of(digits: Floats, y: NDArray[Any], wanted: int, n: int) -> tuple[Floats, NDArray[Any]]:
    """The first digits, as many of the wanted one as of all others."""
    kinds = [np.flatnonzero(which)[: n // 2] for which in (y == wanted, y != wanted)]
    some = np.sort(np.concatenate(kinds))
    return digits[some], y[some]


def _small(digits: Floats) -> Floats:
    """Digits of the size of a window: means of neighbouring pixels, or every pixel repeated."""
    side = digits.shape[1]
    if side < WINDOW:
        rows = np.arange(WINDOW) * side // WINDOW
        return digits[:, rows][:, :, rows]
    step = side // WINDOW
    return np.asarray(digits.reshape(-1, WINDOW, step, WINDOW, step).mean(axis=(2, 4)))


def _hidden(instances: Floats, y: NDArray[Any], shows: NDArray[np.int64]) -> Hidden:
    bags = np.empty(len(instances), dtype=object)
    for i, rows in enumerate(instances):
        bags[i] = sp.csr_array(rows)
    return Hidden(bags, y, shows)
