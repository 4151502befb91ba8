"""Images and poses as users give them, checked."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maxmargin.data.magnitudes import LARGEST, are_moderate
from maxmargin.estimators.checks import as_floats
from maxmargin.inference.angles import TURN
from maxmargin.problems.pose_windows import ImageWindows, Pose, WindowGrid, overlaps

Floats = NDArray[np.float64]


def check_images(images: Any) -> list[Floats]:
    """Images as a list of finite 2-D arrays."""
    if isinstance(images, np.ndarray) and images.ndim == 2 and images.dtype != object:
        raise ValueError("X is a single image: give a list of them, [image].")
    checked = []
    for i, image in enumerate(images):
        array = as_floats(image, f"Image {i}")
        if array.ndim != 2:
            raise ValueError(
                f"Image {i} has {array.ndim} dimensions, but must have two, height and width: "
                f"make colours grey values first."
            )
        if not np.isfinite(array).all():
            row, column = np.argwhere(~np.isfinite(array))[0]
            raise ValueError(
                f"Image {i} has NaN or infinity at row {row}, column {column}: replace such values."
            )
        if not are_moderate(array):
            row, column = np.argwhere(np.abs(array) > LARGEST)[0]
            raise ValueError(
                f"Image {i} has {array[row, column]:g} at row {row}, column {column}, but squares "
                f"of numbers beyond {LARGEST:g} overflow: scale the grey values, to about 1."
            )
        checked.append(array)
    return checked


def check_poses(poses: ArrayLike, n_images: int, grid: WindowGrid) -> list[Pose]:
    """One pose for each image, with angles from 0 to a whole turn."""
    rows = as_floats(poses, "poses")
    names = ("x", "y", "scale", "angle") if len(grid.scales) > 1 else ("x", "y", "angle")
    if rows.ndim != 2 or rows.shape[1] != len(names):
        raise ValueError(
            f"poses has the shape {rows.shape}, but must have one row for each image, with "
            f"{', '.join(names)}."
        )
    if len(rows) != n_images:
        raise ValueError(
            f"There are {n_images} images but {len(rows)} poses: give one pose for each."
        )
    if not np.isfinite(rows).all():
        row, column = np.argwhere(~np.isfinite(rows))[0]
        raise ValueError(f"Pose {row} has NaN or infinity as its {names[column]}.")
    if len(names) == 3:
        rows = np.insert(rows, 2, grid.scales[0], axis=1)
    if (rows[:, 2] <= 0.0).any():
        row = int(np.flatnonzero(rows[:, 2] <= 0.0)[0])
        raise ValueError(f"Pose {row} has the scale {rows[row, 2]:g}, which must be positive.")
    rows[:, 3] = np.mod(rows[:, 3], TURN)
    return [Pose(*row) for row in rows.tolist()]


def snapped(i: int, windows: ImageWindows, pose: Pose) -> Pose:
    """The pose with the nearest window of its image."""
    window = windows.nearest(pose)
    if not overlaps(windows.grid.box(pose), windows.boxes[[window]])[0] > 0.0:
        raise ValueError(
            f"Pose {i}, at x = {pose.x:g} and y = {pose.y:g}, is outside of its image: no window "
            f"overlaps with it."
        )
    return windows.pose(window, pose.angle)
