"""Windows of images, and their features: histograms of oriented gradients (Dalal, Triggs 2005)."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.ndimage import gaussian_filter, zoom

from maxmargin.core.arrays import Floats
from maxmargin.core.registry import registered

BLOCK = 2
"""Cells along the side of a block."""

_EPSILON = 1e-5
"""Added to the norms of blocks, so that blocks without edges stay zero."""


def cell_histograms(
    image: Floats, cell: int, n_orientations: int = 9, signed: bool = False
) -> Floats:
    """Histograms of gradient orientations of the cells of an image, weighted by gradient magnitude.

    Gradients are central differences, and zero across the border of the image. Pixels at the right
    and the lower border that do not fill a cell are left out.

    Parameters
    ----------
    image : ndarray of shape (height, width)
    cell : int
        Side of a cell in pixels.
    n_orientations : int, default=9
    signed : bool, default=False
        Distinguish opposite gradients: orientations of a whole turn instead of half.

    Returns
    -------
    histograms : ndarray of shape (height // cell, width // cell, n_orientations)

    Examples
    --------
    A vertical edge, whose gradient points along the rows:

    >>> import numpy as np
    >>> from maxmargin.structures.pose.features import cell_histograms
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
    """Histograms of blocks of 2 x 2 cells, one at every cell, each of Euclidean norm one.

    A window of ``h`` x ``w`` cells is described by its ``h - 1`` x ``w - 1`` blocks, which
    overlapping windows share. Those of a whole image are what scikit-image's ``hog`` computes with
    ``block_norm="L2"``.

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
    >>> from maxmargin.structures.pose.features import hog_blocks
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


@registered("Pose")
class Pose(NamedTuple):
    """Centre of the window in pixels from the left and top, relative scale, angle in radians."""

    x: float
    y: float
    scale: float
    angle: float


@registered("WindowGrid")
@dataclass(frozen=True)
class WindowGrid:
    """Sliding windows of one shape at all cells of an image, and of the image rescaled.

    Height and width, multiples of `cell`, are those at scale one, and `cell` is the stride. At
    scale two windows are twice as large: the image is taken at half its size.
    """

    height: int
    width: int
    cell: int = 4
    n_orientations: int = 9
    signed: bool = False
    scales: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        if min(self.cell, self.n_orientations) < 1:
            raise ValueError("Cells must have a side of one pixel and one orientation at least.")
        for name, side in (("height", self.height), ("width", self.width)):
            if side % self.cell or side < BLOCK * self.cell:
                raise ValueError(
                    f"The window's {name} is {side} pixels, but must be a multiple of the cell's "
                    f"{self.cell}, and {BLOCK * self.cell} at least."
                )
        if len(set(self.scales)) < len(self.scales) or not self.scales or min(self.scales) <= 0.0:
            raise ValueError(
                f"scales is {self.scales}, but must hold different positive numbers, one at least."
            )

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of blocks in a window."""
        return self.height // self.cell - BLOCK + 1, self.width // self.cell - BLOCK + 1

    @property
    def n_features(self) -> int:
        return self.shape[0] * self.shape[1] * BLOCK**2 * self.n_orientations

    def windows(self, image: Floats) -> "ImageWindows":
        """All windows of an image; at scales where it is smaller than a window there are none."""
        blocks = [
            hog_blocks(_resized(image, scale), self.cell, self.n_orientations, self.signed)
            for scale in self.scales
        ]
        return ImageWindows(self, blocks)

    def box(self, pose: Pose) -> Floats:
        """Left, top, right and bottom of a pose's window."""
        wide, high = 0.5 * pose.scale * self.width, 0.5 * pose.scale * self.height
        return np.array([pose.x - wide, pose.y - high, pose.x + wide, pose.y + high])


class ImageWindows:
    """Windows of an image by scale, row, column; `boxes` are left, top, right, bottom, (n, 4)."""

    def __init__(self, grid: WindowGrid, blocks: list[Floats]) -> None:
        self.grid, self.blocks = grid, blocks
        high, wide = grid.shape
        self._views: dict[float, Floats] = {}
        boxes, scales = [np.zeros((0, 4))], [np.zeros(0)]
        for scale, level in zip(grid.scales, blocks, strict=True):
            rows, columns = level.shape[0] - high + 1, level.shape[1] - wide + 1
            if rows < 1 or columns < 1:
                continue
            view = sliding_window_view(level, (high, wide), axis=(0, 1))  # type: ignore[call-overload]
            self._views[scale] = view.transpose(0, 1, 3, 4, 2)
            left = scale * grid.cell * np.tile(np.arange(columns), rows)
            top = scale * grid.cell * np.repeat(np.arange(rows), columns)
            right, bottom = left + scale * grid.width, top + scale * grid.height
            boxes.append(np.column_stack([left, top, right, bottom]))
            scales.append(np.full(rows * columns, scale))
        self.boxes, self.scales = np.concatenate(boxes), np.concatenate(scales)

    def __len__(self) -> int:
        return len(self.scales)

    def features(self) -> Floats:
        """Features of all windows, ``(n_windows, n_features)``."""
        levels = [view.reshape(-1, self.grid.n_features) for view in self._views.values()]
        return levels[0] if len(levels) == 1 else np.concatenate(levels)

    def feature(self, pose: Pose) -> Floats:
        """Features ``(n_features,)`` of the window of a pose, which must be one of the grid."""
        step = pose.scale * self.grid.cell
        row = round((pose.y - 0.5 * pose.scale * self.grid.height) / step)
        column = round((pose.x - 0.5 * pose.scale * self.grid.width) / step)
        return np.asarray(self._views[pose.scale][row, column].reshape(-1))

    def pose(self, window: int, angle: float) -> Pose:
        """A window with an angle, as a pose."""
        left, top, right, bottom = self.boxes[window].tolist()
        return Pose((left + right) / 2, (top + bottom) / 2, float(self.scales[window]), angle)

    def nearest(self, pose: Pose) -> int:
        """The window that overlaps most with that of a pose."""
        return int(np.argmax(overlaps(self.grid.box(pose), self.boxes)))


def overlaps(box: Floats, boxes: Floats) -> Floats:
    """Intersection over union of one box (left, top, right, bottom) with each of some."""
    sides = np.minimum(boxes[:, 2:], box[2:]) - np.maximum(boxes[:, :2], box[:2])
    common = np.maximum(sides, 0.0).prod(axis=1)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1) + (box[2:] - box[:2]).prod()
    return np.asarray(common / (areas - common))


def _resized(image: Floats, scale: float) -> Floats:
    """The image at 1 / `scale` of its size, smoothed before it is made smaller."""
    if scale == 1.0:
        return image
    if scale > 1.0:
        image = gaussian_filter(image, (scale - 1.0) / 2.0)
    return np.asarray(zoom(image, 1.0 / scale, order=1, grid_mode=True, mode="nearest"))
