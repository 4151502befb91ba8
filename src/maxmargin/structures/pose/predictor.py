"""How a pose estimator predicts."""

from typing import Any

import numpy as np

from maxmargin.core.arrays import Floats, check_shape
from maxmargin.core.inputs import as_floats, check_k, complaint, first_immoderate
from maxmargin.core.oracle import Threads
from maxmargin.predictors.checks import check_is_fitted
from maxmargin.predictors.declared import estimator, fitted
from maxmargin.predictors.kernel import KernelPredictor
from maxmargin.structures.pose.features import ImageWindows, Pose, WindowGrid, overlaps
from maxmargin.structures.pose.problem import PoseProblem


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
        found = first_immoderate(array)
        if found is not None:
            place = f"row {found[0]}, column {found[1]}"
            raise ValueError(complaint(found[2], f"Image {i}", place, "PoseEstimator"))
        checked.append(array)
    return checked


@estimator
class PoseEstimatorPredictor(KernelPredictor):
    """What a fitted `PoseEstimator` has learned, and how it predicts.

    Attributes
    ----------
    angles_ : ndarray of shape (n_angles,)
    coef_ : ndarray of shape (n_angles, n_features)
        The detector of each angle.
    """

    refine: bool = True
    _arguments = """
    X : sequence of ndarray of shape (height, width)
        Images, as grey values; of different sizes if you like.
    y : array-like of shape (n_images, 3) or, with several scales, (n_images, 4)
        The true poses; see Notes of the class.
    sample_weight : array-like of shape (n_images,), default=None
        Multiplies the C of each image.
    """

    _problem: PoseProblem = fitted()

    def _check_fitted(self) -> None:
        super()._check_fitted()
        check_shape(
            "the kernel model", self.model_.parts, self.support_size_, self._problem.grid.n_features
        )

    @property
    def angles_(self) -> Floats:
        """Angles that inference tries."""
        check_is_fitted(self)
        return np.asarray(self._problem.angles)

    @property
    def coef_(self) -> Floats:
        """The detector of each of these angles."""
        check_is_fitted(self)
        return np.asarray(self._problem.detectors(self.model_).T)

    def predict(self, X: Any) -> Floats:
        """The best pose in each image.

        Returns
        -------
        y : ndarray of shape (n_images, 3) or, with several scales, (n_images, 4)
            Angles from 0 to a whole turn.
        """
        return self._as_rows([pose for pose, _ in self._best(X)])

    def decision_function(self, X: Any) -> Floats:
        """Score of the best pose in each image."""
        return np.array([score for _, score in self._best(X)])

    def predict_k_best(
        self, X: Any, k: int, *, max_overlap: float = 0.5
    ) -> list[list[tuple[Floats, float]]]:
        """The k best poses in each image with their scores, best first, at different places.

        Parameters
        ----------
        max_overlap : float, default=0.5
            Intersection over union above which a window is left out for a better one.

        Returns
        -------
        top : list of lists of (pose, score)
            Fewer than k where there are no more.
        """
        tops = self._tops(X, check_k(k), max_overlap)
        return [[(self._as_rows([pose])[0], score) for pose, score in top] for top in tops]

    def _windows(self, grid: WindowGrid, images: list[Floats]) -> list[ImageWindows]:
        """Windows of checked images, each with one at least."""
        with Threads(self.n_jobs) as threads:
            windows = threads.map(grid.windows, images)
        for i, each in enumerate(windows):
            if not len(each):
                shape = " x ".join(map(str, images[i].shape))
                raise ValueError(
                    f"Image {i} has {shape} pixels, too few for a window of {grid.height} x "
                    f"{grid.width}: leave it out, pad it, or give smaller scales."
                )
        return windows

    def _best(self, X: Any) -> list[tuple[Pose, float]]:
        return [top[0] for top in self._tops(X, 1, 1.0)]

    def _tops(self, X: Any, k: int, max_overlap: float) -> list[list[tuple[Pose, float]]]:
        """The k best poses of each image with their scores."""
        check_is_fitted(self)
        images = check_images(X)
        windows = self._windows(self._problem.grid, images)
        detectors = self._problem.detectors(self.model_)
        with Threads(self.n_jobs) as threads:
            return threads.map(lambda each: self._top(detectors, each, k, max_overlap), windows)

    def _top(
        self, detectors: Floats, windows: ImageWindows, k: int, max_overlap: float
    ) -> list[tuple[Pose, float]]:
        features = windows.features()
        scores = features @ detectors
        best, angles = scores.max(axis=1), self._problem.angles[scores.argmax(axis=1)]
        chosen: list[int] = []
        free = np.ones(len(windows), dtype=np.bool_)
        while len(chosen) < k and free.any():
            window = int(np.argmax(np.where(free, best, -np.inf)))
            chosen.append(window)
            free &= overlaps(windows.boxes[window], windows.boxes) <= max_overlap
            free[window] = False
        at = np.array(chosen)
        best, angles = best[at], angles[at]
        if self.refine:
            angles, best = self._problem.refined(self.model_, features[at], angles)
        found = [
            (windows.pose(window, float(angle)), float(score))
            for window, angle, score in zip(chosen, angles, best, strict=True)
        ]
        return sorted(found, key=lambda pair: -pair[1])

    def _as_rows(self, poses: list[Pose]) -> Floats:
        rows = np.array(poses, dtype=np.float64).reshape(-1, 4)
        return rows if len(self._problem.grid.scales) > 1 else rows[:, [0, 1, 3]]
