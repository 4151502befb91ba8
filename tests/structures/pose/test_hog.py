"""Histograms of oriented gradients against a loop over pixels, and against scikit-image."""

import math

import numpy as np
import pytest

from maxmargin.structures.pose.features import cell_histograms, hog_blocks


def pixel(image, row, column):
    """Gradient of one pixel: length, and direction in radians."""
    height, width = image.shape
    down = image[row + 1, column] - image[row - 1, column] if 0 < row < height - 1 else 0.0
    right = image[row, column + 1] - image[row, column - 1] if 0 < column < width - 1 else 0.0
    return math.hypot(down, right), math.atan2(down, right)


def histograms_by_hand(image, cell, n_orientations, turn):
    out = np.zeros((image.shape[0] // cell, image.shape[1] // cell, n_orientations))
    for row in range(out.shape[0] * cell):
        for column in range(out.shape[1] * cell):
            length, direction = pixel(image, row, column)
            at = int(direction % turn / turn * n_orientations) % n_orientations
            out[row // cell, column // cell, at] += length / cell**2
    return out


def blocks_by_hand(cells):
    rows, columns, k = cells.shape
    out = np.zeros((rows - 1, columns - 1, 4 * k))
    for row in range(rows - 1):
        for column in range(columns - 1):
            four = [cells[row + a, column + b] for a in (0, 1) for b in (0, 1)]
            block = np.concatenate(four)
            out[row, column] = block / math.sqrt(sum(v * v for v in block) + 1e-10)
    return out


@pytest.mark.parametrize("shape", [(12, 16), (13, 18), (4, 4)])
@pytest.mark.parametrize(("signed", "turn"), [(False, math.pi), (True, 2 * math.pi)])
@pytest.mark.parametrize(("cell", "n_orientations"), [(4, 9), (3, 5), (1, 2)])
def test_cells_are_sums_over_pixels(shape, signed, turn, cell, n_orientations):
    image = np.random.default_rng(0).normal(size=shape)
    found = cell_histograms(image, cell, n_orientations, signed)
    np.testing.assert_allclose(found, histograms_by_hand(image, cell, n_orientations, turn))


def test_blocks_are_neighbouring_cells_of_length_one():
    image = np.random.default_rng(1).normal(size=(17, 20))
    cells = histograms_by_hand(image, 4, 9, math.pi)
    np.testing.assert_allclose(hog_blocks(image, 4), blocks_by_hand(cells))


def test_flat_images_have_no_features():
    assert not hog_blocks(np.full((16, 16), 7.0), 4).any()


@pytest.mark.parametrize("shape", [(7, 16), (3, 3), (16, 5)])
def test_too_small_for_a_block(shape):
    assert hog_blocks(np.ones(shape), 4).size == 0


def test_brightness_and_contrast_hardly_matter():
    image = np.random.default_rng(2).normal(size=(16, 16))
    np.testing.assert_allclose(hog_blocks(image, 4), hog_blocks(5 * image + 3, 4), atol=1e-8)


def test_signed_gradients_tell_dark_from_bright():
    image = np.zeros((8, 8))
    image[:, 4:] = 1.0
    np.testing.assert_allclose(hog_blocks(image, 4), hog_blocks(-image, 4))
    assert not np.allclose(hog_blocks(image, 4, signed=True), hog_blocks(-image, 4, signed=True))


@pytest.mark.parametrize("shape", [(16, 16), (19, 26)])
def test_the_same_as_scikit_image(shape):
    feature = pytest.importorskip("skimage.feature")
    image = np.random.default_rng(3).normal(size=shape)
    theirs = feature.hog(
        image,
        orientations=9,
        pixels_per_cell=(4, 4),
        cells_per_block=(2, 2),
        block_norm="L2",
        feature_vector=False,
    )
    ours = hog_blocks(image, 4)
    # Theirs are added up in single precision.
    np.testing.assert_allclose(ours, theirs.reshape(ours.shape), rtol=1e-6)
