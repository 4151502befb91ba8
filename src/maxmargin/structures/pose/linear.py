"""The pose model with its weights written out, for the solvers of linear problems."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.cuts import Cuts
from maxmargin.core.problem import Problem
from maxmargin.structures.pose.problem import PoseProblem
from maxmargin.structures.pose.windows import ImageWindows, Pose

Floats = NDArray[np.float64]

_NEGLIGIBLE = 21.0
"""``exp`` of minus this is what the last terms of the series are."""


class LinearPoses(Problem):
    """`PoseProblem` as a linear problem: features of a window times waves of the angle.

    The kernel of angles is a Fourier series with coefficients that fall like
    ``exp(-n^2 / (4 gamma))``, so that a few waves are the kernel up to 1e-9.

    Parameters
    ----------
    poses : PoseProblem

    See Also
    --------
    maxmargin.PoseEstimator

    Examples
    --------
    >>> import numpy as np
    >>> from maxmargin.structures.pose.problem import AngleKernel, PoseProblem
    >>> from maxmargin.structures.pose.linear import LinearPoses
    >>> from maxmargin.structures.pose.windows import WindowGrid
    >>> linear = LinearPoses(PoseProblem(WindowGrid(8, 8), gamma=3.0))
    >>> waves = linear.waves(np.array([0.3, 1.0]))
    >>> kernel = AngleKernel(3.0)(np.array([[0.3]]), np.array([[1.0]]))
    >>> bool(np.isclose(waves[0] @ waves[1], kernel[0, 0]))
    True
    """

    def __init__(self, poses: PoseProblem) -> None:
        self.poses = poses
        gamma = poses.gamma
        self._orders = np.arange(1, math.ceil(math.sqrt(4.0 * gamma * _NEGLIGIBLE)) + 1)
        powers = np.r_[1.0, 2.0 * np.exp(-(self._orders**2) / (4.0 * gamma))]
        self._amplitudes = np.sqrt(powers / powers.sum())
        self._of_angles = self.waves(poses.angles)

    def waves(self, angles: Floats) -> Floats:
        """Features of angles, whose inner product is the kernel: one row an angle."""
        phases = np.multiply.outer(angles, self._orders)
        amplitudes = self._amplitudes[1:]
        constant = np.full((len(angles), 1), self._amplitudes[0])
        return np.hstack([constant, amplitudes * np.cos(phases), amplitudes * np.sin(phases)])

    def joint_feature(self, x: ImageWindows, y: Pose) -> Floats:
        return np.outer(x.feature(y), self.waves(np.array([y.angle]))[0]).ravel()

    def loss(self, y_true: Pose, y: Pose) -> float:
        return self.poses.loss(y_true, y)

    def inference(self, x: ImageWindows, w: Floats) -> Pose:
        scores = x.features() @ self._detectors(w)
        best: Pose = self.poses.outputs(x)[int(np.argmax(scores))]
        return best

    def loss_augmented_inference(self, x: ImageWindows, y_true: Pose, w: Floats) -> Pose:
        return self._separate(x, y_true, w, self._detectors(w))

    def cuts(self, X: Sequence[ImageWindows], Y: Sequence[Pose], w: Floats) -> Cuts:
        """The searches of `loss_augmented_inference` for many images."""
        detectors = self._detectors(w)
        outputs, values, losses = [], np.empty((len(X), len(w))), np.empty(len(X))
        for i, (x, y_true) in enumerate(zip(X, Y, strict=True)):
            output = self._separate(x, y_true, w, detectors)
            losses[i] = self.loss(y_true, output)
            values[i] = self.joint_feature(x, y_true)
            values[i] -= self.joint_feature(x, output)
            outputs.append(output)
        columns = np.tile(np.arange(len(w), dtype=np.uint32), len(X))
        return Cuts(len(w) * np.arange(len(X) + 1), columns, values.ravel(), losses, outputs)

    def _detectors(self, w: Floats) -> Floats:
        """Weights of the features of a window for each of the angles."""
        return np.asarray(w.reshape(-1, self._of_angles.shape[1]) @ self._of_angles.T)

    def _separate(self, x: ImageWindows, y_true: Pose, w: Floats, detectors: Floats) -> Pose:
        candidates = self.poses.candidates(x)
        values = (candidates.parts @ detectors).ravel() + self.poses.losses(y_true, candidates)
        at = int(np.argmax(values))
        # The angle of the truth need not be one of those that are searched.
        own = x.feature(y_true) @ w.reshape(x.grid.n_features, -1)
        is_true_output = values[at] <= own @ self.waves(np.array([y_true.angle]))[0]
        found: Pose = y_true if is_true_output else candidates.outputs[at]
        return found
