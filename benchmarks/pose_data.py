"""Turned digits in clutter: images with one digit, where it is, and how far it is turned.

Made with a seed from MNIST (or, to try things out, from scikit-learn's digits). The digit is made
upright by a shear first, as far as its moments tell, because slant is not what is asked for.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import affine_transform, rotate

from benchmarks.latent_data import pictures

Floats = NDArray[np.float64]

WANTED = 4
SIDE = 28
"""Of a digit's picture."""

SCRAP, N_SCRAPS = 12, 2000
"""Size of the pieces of other digits, and how many there are to choose from."""


class Posed(NamedTuple):
    """Images with a digit each.

    Parameters
    ----------
    images : ndarray of shape (n, side, side)
        Values from 0 to 1.
    poses : ndarray of shape (n, 3)
        Centre of the digit from the left and from the top, in pixels, and angle in radians.
    """

    images: Floats
    poses: Floats


def split(n_train: int, n_test: int, side: int, quick: bool = False) -> tuple[Posed, Posed]:
    """Images to train on and to test on, from other digits each."""
    digits, y = pictures(quick)
    digits = _of_size(digits)
    first = 60_000 if not quick else len(y) // 2
    parts = []
    for seed, (some, n) in enumerate(((slice(first), n_train), (slice(first, None), n_test))):
        shown, others = digits[some][y[some] == WANTED], digits[some][y[some] != WANTED]
        parts.append(scenes(shown, others, n, side, seed))
    return parts[0], parts[1]


def scenes(shown: Floats, others: Floats, n: int, side: int, seed: int) -> Posed:
    """Digits of `shown` at any place and angle, among scraps of `others`, strokes and noise."""
    random = np.random.default_rng(seed)
    picks = random.permutation(len(shown))[np.arange(n) % len(shown)]
    centres = random.uniform(SIDE / 2, side - SIDE / 2, size=(n, 2))
    poses = np.column_stack([centres, random.uniform(0.0, 2.0 * np.pi, size=n)])
    images = np.zeros((n, side, side))
    scraps = _scraps(others, random)
    for image, pick, (x, y, angle) in zip(images, picks, poses, strict=True):
        _add_scraps(image, scraps, random)
        _add_strokes(image, random)
        image *= _around(x, y, side)
        np.maximum(image, _placed(upright(shown[pick]), x, y, angle, side), out=image)
        image += random.normal(scale=0.1, size=image.shape)
    return Posed(np.clip(images, 0.0, 1.0), poses)


def upright(digit: Floats) -> Floats:
    """The digit without slant: sheared so that its columns do not depend on its rows."""
    down, right = np.mgrid[: digit.shape[0], : digit.shape[1]]
    total = digit.sum()
    row, column = (down * digit).sum() / total, (right * digit).sum() / total
    spread = ((down - row) ** 2 * digit).sum()
    shear = ((down - row) * (right - column) * digit).sum() / spread
    # Seen from the middle, the pixel (r, c) of the result is (r, c + shear * r) of the digit.
    middle = (np.array(digit.shape) - 1.0) / 2.0
    matrix = np.array([[1.0, 0.0], [shear, 1.0]])
    return np.asarray(affine_transform(digit, matrix, np.array([row, column]) - matrix @ middle))


def _placed(digit: Floats, x: float, y: float, angle: float, side: int) -> Floats:
    """The digit turned, with its middle at a place of an empty image."""
    cosine, sine = np.cos(angle), np.sin(angle)
    matrix = np.array([[cosine, sine], [-sine, cosine]])
    middle = (np.array(digit.shape) - 1.0) / 2.0
    offset = middle - matrix @ (np.array([y, x]) - 0.5)
    return np.asarray(affine_transform(digit, matrix, offset, output_shape=(side, side), order=1))


def _scraps(others: Floats, random: np.random.Generator) -> Floats:
    """Pieces of turned digits."""
    found = np.empty((N_SCRAPS, SCRAP, SCRAP))
    for scrap in found:
        angle = random.uniform(0.0, 360.0)
        digit = rotate(others[random.integers(len(others))], angle, reshape=False, order=1)
        a, b = random.integers(4, SIDE - SCRAP - 3, size=2)
        scrap[:] = digit[a : a + SCRAP, b : b + SCRAP]
    return found


def _add_scraps(image: Floats, scraps: Floats, random: np.random.Generator) -> None:
    side = len(image)
    for _ in range(side * side // 300):
        a, b = random.integers(0, side - SCRAP + 1, size=2)
        here = image[a : a + SCRAP, b : b + SCRAP]
        np.maximum(here, scraps[random.integers(len(scraps))], out=here)


def _around(x: float, y: float, side: int) -> Floats:
    """What is left of the clutter: little of it where the digit is."""
    down, right = np.mgrid[:side, :side] + 0.5
    return np.where(np.hypot(down - y, right - x) < SIDE / 2 - 2, 0.3, 1.0)


def _add_strokes(image: Floats, random: np.random.Generator) -> None:
    side = len(image)
    down, right = np.mgrid[:side, :side]
    for _ in range(side // 16):
        x, y, length = *random.uniform(0, side, size=2), random.uniform(6, 14)
        angle = random.uniform(0.0, np.pi)
        along = (right - x) * np.cos(angle) + (down - y) * np.sin(angle)
        across = (down - y) * np.cos(angle) - (right - x) * np.sin(angle)
        stroke = np.clip(1.8 - np.abs(across), 0.0, 1.0) * (np.abs(along) < length / 2)
        np.maximum(image, stroke, out=image)


def _of_size(digits: Floats) -> Floats:
    """Pictures of 28 x 28 pixels: every pixel repeated, and a border, where they are smaller."""
    if digits.shape[1] == SIDE:
        return digits
    times = (SIDE - 8) // digits.shape[1]
    large: Any = digits.repeat(times, axis=1).repeat(times, axis=2)
    border = (SIDE - large.shape[1]) // 2
    return np.pad(large, ((0, 0), (border, border), (border, border)))
