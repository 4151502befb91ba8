"""PoseEstimator: location and rotation of the object in an image."""

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions

from maxmargin.core.arrays import Floats
from maxmargin.core.inputs import as_floats, costs
from maxmargin.estimators.kernel import KernelEstimator
from maxmargin.predictors.declared import estimator
from maxmargin.solvers.mini_batch_dual import MiniBatchDual
from maxmargin.structures.pose.features import ImageWindows, Pose, WindowGrid, overlaps
from maxmargin.structures.pose.predictor import PoseEstimatorPredictor, check_images
from maxmargin.structures.pose.problem import TURN, PoseOracle, PoseProblem, angular_distance


def check_poses(poses: ArrayLike, n_images: int, grid: WindowGrid) -> list[Pose]:
    """One pose for each image, with angles reduced to one turn."""
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
    """A pose moved to the nearest window of its image."""
    window = windows.nearest(pose)
    if not overlaps(windows.grid.box(pose), windows.boxes[[window]])[0] > 0.0:
        raise ValueError(
            f"Pose {i}, at x = {pose.x:g} and y = {pose.y:g}, is outside of its image: no window "
            f"overlaps with it."
        )
    return windows.pose(window, pose.angle)


SOLVER = MiniBatchDual(outputs_per_call=3, diversity=0.5)
"""What "auto" is: three poses an oracle call halve the number of calls on rotated digits."""


class PoseErrors(NamedTuple):
    """How far predictions are off: windows by their intersection over union, angles in radians."""

    overlaps: Floats
    angles: Floats


@estimator
class PoseEstimator(PoseEstimatorPredictor, KernelEstimator):
    """Location and angle of the object in an image, by a kernel structural SVM.

    A window with HOG features ``f`` at an angle scores ``sum_s factor_s <f, f_s> exp(-gamma
    d(angle, angle_s)^2)`` over the support vectors ``s``, with the angular distance ``d``: a linear
    detector for each angle, tied to those of other angles. Inference tries `n_angles` angles, and
    refines the best.

    Parameters
    ----------
    window : int or (int, int), default=32
        Height and width of the object in pixels, the same for all angles.
    cell : int, default=4
        Side of the cells of the features, and from one window to the next.
    n_orientations : int, default=9
        Of gradients.
    signed : bool, default=False
        Distinguish gradients from dark to bright from those from bright to dark.
    scales : tuple of float, default=(1.0,)
        Sizes of the object, in parts of `window`.
    n_angles : int, default=16
        Angles that inference tries.
    gamma : float, default=None
        Of the kernel of angles; None makes its standard deviation the spacing of the angles.
    angle_weight : float, default=0.5
        Weight of the angular distance (half a turn is one) in the loss; the rest is one minus the
        windows' intersection over union.
    refine : bool, default=True
        Predict any angle instead of one of the `n_angles`.
    solver : "auto" or MiniBatchDual, default="auto"
        "auto" takes three diverse poses from each oracle call.

    See Also
    --------
    KernelStructuredSVM : Any other structure with a kernel.
    LatentClassifier : Whether the object is there, its place a latent variable.

    Notes
    -----
    Poses are rows ``x, y, angle``; with several scales, ``x, y, scale, angle``. The centre of the
    window is ``x`` pixels from the left and ``y`` from the top; angles are in radians, in the sense
    of the training poses. True windows are moved to the nearest of the grid for training.

    Examples
    --------
    A hook somewhere in an image, turned by any angle:

    >>> import numpy as np
    >>> import maxmargin as mm
    >>> def draw(x, y, angle):
    ...     down, right = np.mgrid[:32, :32] + 0.5
    ...     along = (right - x) * np.cos(angle) + (down - y) * np.sin(angle)
    ...     across = (down - y) * np.cos(angle) - (right - x) * np.sin(angle)
    ...     bar = (abs(along) < 7) & (abs(across) < 1.5)
    ...     return 1.0 * (bar | ((abs(along - 5.5) < 1.5) & (abs(across - 3) < 4)))
    >>> random = np.random.default_rng(0)
    >>> poses = np.column_stack([random.uniform(10, 22, (60, 2)), random.uniform(0, 6.28, 60)])
    >>> images = [draw(*pose) for pose in poses]
    >>> estimator = mm.PoseEstimator(window=16).fit(images[:40], poses[:40])
    >>> errors = estimator.errors(images[40:], poses[40:])
    >>> bool(np.median(errors.overlaps) > 0.7), bool(np.degrees(np.median(errors.angles)) < 10)
    (True, True)
    """

    window: int | tuple[int, int] = 32
    cell: int = 4
    n_orientations: int = 9
    signed: bool = False
    scales: Sequence[float] = (1.0,)
    n_angles: int = 16
    gamma: float | None = None
    angle_weight: float = 0.5
    tol: float = 1e-2

    _parameter_constraints = {
        "window": [Interval(Integral, 1, None, closed="left"), tuple, list],
        "cell": [Interval(Integral, 1, None, closed="left")],
        "n_orientations": [Interval(Integral, 1, None, closed="left")],
        "signed": ["boolean"],
        "scales": [tuple, list],
        "n_angles": [Interval(Integral, 2, None, closed="left")],
        "gamma": [Interval(Real, 0, None, closed="neither"), None],
        "angle_weight": [Interval(Real, 0, 1, closed="both")],
        "refine": ["boolean"],
        "solver": [StrOptions({"auto"}), MiniBatchDual],
    }

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train on images with an object each."""
        problem = PoseProblem(self._grid(), self.n_angles, self.gamma, self.angle_weight)
        images = check_images(X)
        if not images:
            raise ValueError("X is empty: there is nothing to learn from.")
        y_true = check_poses(y, len(images), problem.grid)
        C = costs(self, len(images), sample_weight)
        windows = self._windows(problem.grid, images)
        on_grid = [snapped(i, *pair) for i, pair in enumerate(zip(windows, y_true, strict=True))]
        oracle = PoseOracle(problem, windows, on_grid, C, rescaling=self.rescaling)
        self._fit_oracle(oracle, SOLVER, images, y_true)
        return self

    def errors(self, X: Any, y: ArrayLike) -> PoseErrors:
        """How far the predictions are off.

        Returns
        -------
        errors : PoseErrors
            Of each image.
        """
        predicted = [pose for pose, _ in self._best(X)]
        grid = self._problem.grid
        y_true = check_poses(y, len(predicted), grid)
        pairs = list(zip(y_true, predicted, strict=True))
        common = [overlaps(grid.box(a), grid.box(b)[None])[0] for a, b in pairs]
        turned = [angular_distance(np.asarray(a.angle), np.asarray(b.angle)) for a, b in pairs]
        return PoseErrors(np.array(common), np.array(turned))

    def score(self, X: Any, y: ArrayLike) -> float:
        """One minus the mean loss of the predictions: one is perfect."""
        found, share = self.errors(X, y), self._problem.angle_weight
        losses = share / np.pi * found.angles + (1.0 - share) * (1.0 - found.overlaps)
        return 1.0 - float(np.mean(losses))

    def accuracy(self, X: Any, y: ArrayLike) -> float:
        """Fraction of the predictions whose window overlaps by more than a half with the true one.

        Returns
        -------
        accuracy : float
            The higher, the better.
        """
        return float(np.mean(self.errors(X, y).overlaps > 0.5))

    def _grid(self) -> WindowGrid:
        window: Any = self.window
        if isinstance(window, Integral):
            window = window, window
        if len(window) != 2 or not all(isinstance(side, Integral) for side in window):
            raise ValueError(
                f"window is {window}, but must be a whole number of pixels, or two of them: height "
                f"and width."
            )
        height, width = map(int, window)
        scales = tuple(float(scale) for scale in self.scales)
        return WindowGrid(height, width, self.cell, self.n_orientations, self.signed, scales)
