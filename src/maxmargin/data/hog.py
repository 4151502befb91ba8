"""Histograms of oriented gradients: what edges there are around each place of an image."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

BLOCK = 2
"""Cells along the side of a block."""

_EPSILON = 1e-5
"""Added to the lengths of blocks, so that flat places stay zero."""


def cell_histograms(
    image: Floats, cell: int, n_orientations: int = 9, signed: bool = False
) -> Floats:
    """Edges of each cell by their orientation: sums of gradient lengths over the cell's area.

    Gradients are central differences, and zero across the border of the image. Pixels at the right
    and the lower border that do not fill a cell are left out.

    Parameters
    ----------
    image : ndarray of shape (height, width)
    cell : int
        Side of a cell in pixels.
    n_orientations : int, default=9
    signed : bool, default=False
        Tell dark to bright from bright to dark: orientations of a whole turn instead of half.

    Returns
    -------
    histograms : ndarray of shape (height // cell, width // cell, n_orientations)

    Examples
    --------
    A vertical edge, whose gradient points along the rows:

    >>> import numpy as np
    >>> from maxmargin.data.hog import cell_histograms
    >>> image = np.zeros((4, 4))
    >>> image[:, 2:] = 1.0
    >>> cell_histograms(image, 4, n_orientations=4)
    array([[[0.5, 0. , 0. , 0. ]]])
    """
    image = np.asarray(image, dtype=np.float64)
    rows, columns = image.shape[0] // cell, image.shape[1] // cell
    down, right = np.zeros_like(image), np.zeros_like(image)
    down[1:-1] = image[2:] - image[:-2]
    right[:, 1:-1] = image[:, 2:] - image[:, :-2]
    whole = slice(rows * cell), slice(columns * cell)
    down, right = down[whole], right[whole]
    turn = 2.0 * np.pi if signed else np.pi
    share = np.mod(np.arctan2(down, right), turn) / turn
    orientation = np.floor(share * n_orientations).astype(np.int64) % n_orientations
    place = np.arange(rows).repeat(cell)[:, None] * columns + np.arange(columns).repeat(cell)
    sums = np.bincount(
        (place * n_orientations + orientation).ravel(),
        weights=np.hypot(down, right).ravel(),
        minlength=rows * columns * n_orientations,
    )
    return np.asarray(sums.reshape(rows, columns, n_orientations) / cell**2)


def hog_blocks(image: Floats, cell: int, n_orientations: int = 9, signed: bool = False) -> Floats:
    """Histograms of blocks of 2 x 2 cells, one at every cell, each of length one.

    A window of ``h`` x ``w`` cells is described by the ``h - 1`` x ``w - 1`` blocks in it, so
    windows that overlap share them. Those of a whole image are what scikit-image's ``hog`` computes
    with ``block_norm="L2"``.

    Parameters
    ----------
    image, cell, n_orientations, signed
        As in `cell_histograms`.

    Returns
    -------
    blocks : ndarray of shape (rows - 1, columns - 1, 4 * n_orientations)
        For so many rows and columns of cells; empty for fewer than two.

    Examples
    --------
    >>> import numpy as np
    >>> from maxmargin.data.hog import hog_blocks
    >>> hog_blocks(np.eye(16), cell=4).shape
    (3, 3, 36)
    """
    cells = cell_histograms(image, cell, n_orientations, signed)
    rows, columns = (max(0, size - BLOCK + 1) for size in cells.shape[:2])
    corners = [(a, b) for a in range(BLOCK) for b in range(BLOCK)]
    blocks = np.concatenate([cells[a : a + rows, b : b + columns] for a, b in corners], axis=2)
    squares = np.einsum("ijk,ijk->ij", blocks, blocks)
    blocks /= np.sqrt(squares + _EPSILON**2)[:, :, None]
    return blocks
