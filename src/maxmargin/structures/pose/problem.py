"""Location and rotation of an object in an image (He, Sigal and Sclaroff, 2014; He, 2016).

The joint kernel is the inner product of the features of two windows times a kernel of the angles,
so that a window is scored linearly, with the weights of an angle,

    weights(angle) = sum over support vectors of  factor * kernel(angle, its angle) * its features
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from maxmargin.core.arrays import Floats, Order
from maxmargin.core.cuts import Cuts
from maxmargin.core.kernel import Candidates, Kernel, KernelProblem
from maxmargin.core.kernel_oracle import KernelModel, KernelOracle
from maxmargin.core.oracle import Threads
from maxmargin.core.problem import Problem
from maxmargin.core.registry import registered
from maxmargin.core.state import Remade
from maxmargin.structures.pose.features import ImageWindows, Pose, WindowGrid, overlaps

TURN = 2.0 * np.pi

_NEGLIGIBLE = 37.0
"""``exp`` of minus this is below the rounding of one."""

_MOST_VALUES = 2_000_000
"""Kernel values that are held at the same time."""

_EXACT = 1e-13
"""Width of an interval of angles that is not halved again: a few roundings."""


def angular_distance(a: Floats, b: Floats) -> Floats:
    """Distance between angles on the circle, at most pi."""
    return np.asarray(np.abs(np.mod(np.subtract(a, b) + np.pi, TURN) - np.pi))


def wrapped_gaussian(distances: Floats, gamma: float, derivative: bool = False) -> Floats:
    """``sum_k exp(-gamma (d + 2 pi k)^2)`` over integers k, over its value at zero; ``|d| <= pi``.

    The RBF of the angular distance itself is not positive semi-definite, for its kink at pi; the
    two differ by about ``exp(-10 gamma)``. Or its `derivative`.
    """
    reach = math.sqrt(_NEGLIGIBLE / gamma)
    most = max(0, math.ceil((reach / np.pi - 1.0) / 2.0))
    values = np.zeros_like(distances)
    at_zero = 0.0
    for k in range(-most, most + 1):
        turned = distances + TURN * k
        term = np.exp(-gamma * turned**2)
        values += -2.0 * gamma * turned * term if derivative else term
        at_zero += math.exp(-gamma * (TURN * k) ** 2)
    return np.asarray(values / at_zero)


def best_angles(
    factors: Floats, centres: Floats, gamma: float, start: Floats, reach: float
) -> tuple[Floats, Floats]:
    """Maxima within `reach` of ``start[i]``: the angles, from 0 to 2 pi, and their scores.

    Row i scores ``sum_l factors[i, l] wrapped_gaussian(angle - centres[l])``, maximised on a grid
    finer than the kernel is wide, then where the derivative changes its sign: values next to a
    maximum are equal up to rounding, and would leave half the digits of the angle open.
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

    def score(angles: Floats, derivative: bool = False) -> Floats:
        """Scores of some angles for each row, or their derivatives."""
        distances = np.mod(angles[:, :, None] - centres + np.pi, TURN) - np.pi
        kernel = wrapped_gaussian(distances, gamma, derivative)
        return np.asarray(np.einsum("nl,nml->nm", factors, kernel))

    everyone = np.arange(len(start))
    grid = start[:, None] + offsets
    values = score(grid)
    at = values.argmax(axis=1)
    best, highest = grid[everyone, at], values[everyone, at]
    low = grid[everyone, np.maximum(at - 1, 0)]
    high = grid[everyone, np.minimum(at + 1, len(offsets) - 1)]
    while float((high - low).max(initial=0.0)) > _EXACT:
        middle = (low + high) / 2.0
        rises = score(middle[:, None], derivative=True)[:, 0] > 0.0
        low, high = np.where(rises, middle, low), np.where(rises, high, middle)
    middle = (low + high) / 2.0
    value = score(middle[:, None])[:, 0]
    better = value > highest  # at an end of the range, the end itself may be the highest
    return np.where(better, middle, best), np.where(better, value, highest)


_MOST_STORED = 1 << 16
"""Angles of a problem in a file, where nothing but a number says how many there are."""


@registered("AngleKernel")
@dataclass(frozen=True)
class AngleKernel(Kernel):
    """``exp(-gamma d^2)`` of the angular distance, wrapped as in `wrapped_gaussian`."""

    gamma: float

    def __call__(self, A: Any, B: Any) -> Floats:
        distances = np.mod(A - B.T + np.pi, TURN) - np.pi
        return wrapped_gaussian(distances, self.gamma)


class PoseGrid(Sequence[Pose]):
    """All poses of an image over which inference maximises, made on demand."""

    def __init__(self, windows: ImageWindows, angles: Floats) -> None:
        self.windows, self.angles = windows, angles

    def __len__(self) -> int:
        return len(self.windows) * len(self.angles)

    def __getitem__(self, at: Any) -> Any:
        window, angle = divmod(range(len(self))[at], len(self.angles))
        return self.windows.pose(window, float(self.angles[angle]))


@registered("PoseProblem")
class PoseProblem(Remade, KernelProblem):
    """Poses: a window of a grid with one of some angles. Inputs are `ImageWindows`.

    The loss is ``angle_weight * distance / pi + (1 - angle_weight) * (1 - overlap)``, with the
    angular distance and the windows' intersection over union. True poses may have any angle.

    Parameters
    ----------
    grid : WindowGrid
    n_angles : int, default=16
    gamma : float, default=None
        Of the kernel of angles; None makes its standard deviation the spacing of the angles.
    angle_weight : float, default=0.5
        From 0 to 1.

    See Also
    --------
    maxmargin.PoseEstimator

    Examples
    --------
    >>> import maxmargin as mm
    >>> from maxmargin.structures.pose.features import Pose, WindowGrid
    >>> problem = mm.structures.PoseProblem(WindowGrid(8, 8, cell=4), n_angles=4)
    >>> problem.loss(Pose(4, 4, 1.0, 0.0), Pose(8, 4, 1.0, 3.14159)).__round__(4)
    0.8333
    """

    def __init__(
        self,
        grid: WindowGrid,
        n_angles: int = 16,
        gamma: float | None = None,
        angle_weight: float = 0.5,
    ) -> None:
        self.grid, self.n_angles, self.angle_weight = grid, n_angles, angle_weight
        self.angles: Floats = TURN / n_angles * np.arange(n_angles, dtype=np.float64)
        self.gamma = 0.5 / self.spacing**2 if gamma is None else gamma
        self.label_kernel = AngleKernel(self.gamma)
        self._labels = self.angles[:, None]

    @classmethod
    def remade(cls, **parts: Any) -> Self:
        if not 1 <= parts["n_angles"] <= _MOST_STORED:
            raise ValueError("no file can say that there are so many angles")
        if not 0.0 < parts["gamma"] < np.inf:
            raise ValueError("gamma must be positive")
        return super().remade(**parts)

    @property
    def spacing(self) -> float:
        """Distance of consecutive angles."""
        return TURN / len(self.angles)

    def outputs(self, x: ImageWindows) -> PoseGrid:
        return PoseGrid(x, self.angles)

    def loss(self, y_true: Pose, y: Pose) -> float:
        overlap = overlaps(self.grid.box(y_true), self.grid.box(y)[None])
        return float(self._weighed(overlap, np.array([y.angle]), y_true.angle)[0])

    def losses(self, y_true: Pose, candidates: Candidates) -> Floats:
        boxes = candidates.outputs.windows.boxes  # type: ignore[attr-defined]
        return self._weighed(overlaps(self.grid.box(y_true), boxes), self.angles, y_true.angle)

    def _weighed(self, overlap: Floats, angles: Floats, y_true: float) -> Floats:
        """Losses of every overlap with every angle, overlap by overlap."""
        turned = self.angle_weight / np.pi * angular_distance(angles, np.asarray(y_true))
        missed = (1.0 - self.angle_weight) * np.maximum(1.0 - overlap, 0.0)
        return np.asarray(np.add.outer(missed, turned).ravel())

    def part(self, x: ImageWindows, y: Pose) -> Floats:
        return x.feature(y)

    def label(self, y: Pose) -> float:
        return y.angle

    def candidates(self, x: ImageWindows) -> Candidates:
        return Candidates.grid(self.outputs(x), x.features(), self._labels)

    def detectors(self, model: KernelModel) -> Floats:
        """Weights of the features of a window for each of the angles: (n_features, n_angles)."""
        return model.weights_of(self._labels)

    def refined(
        self, model: KernelModel, features: Floats, angles: Floats
    ) -> tuple[Floats, Floats]:
        """The best angles of windows and their scores, up to one spacing from given angles."""
        factors = (model.factors.T @ (model.parts @ features.T)).T
        return best_angles(factors, model.labels[:, 0], self.gamma, angles, self.spacing)


class PoseOracle(KernelOracle):
    """Oracle over images; one image's features at a time, scored by one matrix product."""

    inputs_at_once = 1

    @property
    def content(self) -> Any:
        blocks = [windows.blocks for windows in self.X]
        return self.problem.parts(), blocks, self.Y, self.C, self.by_slack

    def _own_scores(self, model: KernelModel, examples: Order, threads: Threads) -> Floats:
        # In one product of matrices, whose rounding does not depend on the number of threads.
        return super()._own_scores(model, examples, Threads(1))


_NEGLIGIBLE_ORDER = 21.0
"""``exp`` of minus this bounds the first term of the Fourier series that is dropped."""


class LinearPoses(Problem):
    """`PoseProblem` as a linear problem: features of a window times Fourier features of the angle.

    Coefficients of the kernel fall like ``exp(-n^2 / (4 gamma))``: a few give it up to 1e-9.
    """

    def __init__(self, poses: PoseProblem) -> None:
        self.poses = poses
        gamma = poses.gamma
        self._orders = np.arange(1, math.ceil(math.sqrt(4.0 * gamma * _NEGLIGIBLE_ORDER)) + 1)
        powers = np.r_[1.0, 2.0 * np.exp(-(self._orders**2) / (4.0 * gamma))]
        self._amplitudes = np.sqrt(powers / powers.sum())
        self._of_angles = self.waves(poses.angles)

    def waves(self, angles: Floats) -> Floats:
        """Fourier features of angles, whose inner product is the kernel: one row an angle."""
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
        return self._best_violation(x, y_true, w, self._detectors(w))

    def cuts(self, X: Sequence[ImageWindows], Y: Sequence[Pose], w: Floats) -> Cuts:
        """`loss_augmented_inference` for many images."""
        detectors = self._detectors(w)
        outputs, values, losses = [], np.empty((len(X), len(w))), np.empty(len(X))
        for i, (x, y_true) in enumerate(zip(X, Y, strict=True)):
            output = self._best_violation(x, y_true, w, detectors)
            losses[i] = self.loss(y_true, output)
            values[i] = self.joint_feature(x, y_true)
            values[i] -= self.joint_feature(x, output)
            outputs.append(output)
        columns = np.tile(np.arange(len(w), dtype=np.uint32), len(X))
        return Cuts(len(w) * np.arange(len(X) + 1), columns, values.ravel(), losses, outputs)

    def _detectors(self, w: Floats) -> Floats:
        """Weights of the features of a window for each of the angles."""
        return np.asarray(w.reshape(-1, self._of_angles.shape[1]) @ self._of_angles.T)

    def _best_violation(self, x: ImageWindows, y_true: Pose, w: Floats, detectors: Floats) -> Pose:
        candidates = self.poses.candidates(x)
        values = (candidates.parts @ detectors).ravel() + self.poses.losses(y_true, candidates)
        at = int(np.argmax(values))
        # The true angle need not be one of those that inference maximises over.
        own = x.feature(y_true) @ w.reshape(x.grid.n_features, -1)
        is_true_output = values[at] <= own @ self.waves(np.array([y_true.angle]))[0]
        found: Pose = y_true if is_true_output else candidates.outputs[at]
        return found
