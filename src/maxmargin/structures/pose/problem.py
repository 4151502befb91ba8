"""Where an object is in an image and how it is turned (He, Sigal and Sclaroff, 2014; He, 2016).

The joint kernel is the inner product of what two windows show, times an RBF kernel of the angles.
So the score of a window at an angle is linear in its features, and the weights depend on the angle,

    weights(angle) = sum over support vectors of  factor * kernel(angle, its angle) * its features

and the search over all windows and some angles is one product of matrices for each image.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.kernel import Candidates, KernelProblem, NewOutputs
from maxmargin.core.kernel_model import KernelModel
from maxmargin.core.kernel_oracle import Found, KernelOracle
from maxmargin.core.kernels import Kernel, LinearKernel
from maxmargin.core.registry import registered
from maxmargin.core.state import Remade
from maxmargin.core.threads import Threads
from maxmargin.structures.pose.inference import (
    TURN,
    angular_distance,
    best_angles,
    wrapped_gaussian,
)
from maxmargin.structures.pose.windows import ImageWindows, Pose, WindowGrid, overlaps

Floats = NDArray[np.float64]
Order = NDArray[np.int64]

_MOST_STORED = 1 << 16
"""Angles of a problem in a file, where nothing but a number says how many there are."""


@registered("AngleKernel")
@dataclass(frozen=True)
class AngleKernel(Kernel):
    """``exp(-gamma d^2)`` of the angular distance, wrapped around the circle.

    Parameters
    ----------
    gamma : float

    See Also
    --------
    maxmargin.structures.pose.inference.wrapped_gaussian : What wrapping changes, and why.

    Examples
    --------
    >>> import numpy as np
    >>> from maxmargin.structures.pose.problem import AngleKernel
    >>> AngleKernel(2.0)(np.array([[0.1]]), np.array([[0.1], [2 * np.pi], [3.0]])).round(4)
    array([[1.    , 0.9802, 0.    ]])
    """

    gamma: float

    def __call__(self, A: Any, B: Any) -> Floats:
        distances = np.mod(A - B.T + np.pi, TURN) - np.pi
        return wrapped_gaussian(distances, self.gamma)


class PoseGrid(Sequence[Pose]):
    """All poses of an image that are searched, made when they are asked for.

    Parameters
    ----------
    windows : ImageWindows
    angles : ndarray of shape (n_angles,)
    """

    def __init__(self, windows: ImageWindows, angles: Floats) -> None:
        self.windows, self.angles = windows, angles

    def __len__(self) -> int:
        return len(self.windows) * len(self.angles)

    def __getitem__(self, at: Any) -> Any:
        window, angle = divmod(range(len(self))[at], len(self.angles))
        return self.windows.pose(window, float(self.angles[angle]))

    def __iter__(self) -> Iterator[Pose]:
        return (self[at] for at in range(len(self)))


@registered("PoseProblem")
class PoseProblem(Remade, KernelProblem):
    """Poses: a window of a grid with one of some angles. Inputs are `ImageWindows`.

    The loss is ``angle_weight * distance / pi + (1 - angle_weight) * (1 - overlap)``, with the
    angular distance and the windows' intersection over union. Truths may have any angle.

    Parameters
    ----------
    grid : WindowGrid
    n_angles : int, default=16
    gamma : float, default=None
        Of the kernel of angles; None makes its standard deviation the distance of two angles.
    angle_weight : float, default=0.5
        From 0 to 1.

    See Also
    --------
    maxmargin.PoseEstimator

    Examples
    --------
    >>> from maxmargin.structures.pose.problem import PoseProblem
    >>> from maxmargin.structures.pose.windows import Pose, WindowGrid
    >>> problem = PoseProblem(WindowGrid(8, 8, cell=4), n_angles=4)
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
        self.grid, self.angle_weight = grid, angle_weight
        self.angles: Floats = TURN / n_angles * np.arange(n_angles, dtype=np.float64)
        self.gamma = 0.5 / self.spacing**2 if gamma is None else gamma
        self.label_kernel = AngleKernel(self.gamma)
        self._labels = self.angles[:, None]

    def parts(self) -> dict[str, Any]:
        return {
            "grid": self.grid,
            "n_angles": len(self.angles),
            "gamma": self.gamma,
            "angle_weight": self.angle_weight,
        }

    @classmethod
    def remade(cls, **parts: Any) -> Self:
        if not 1 <= parts["n_angles"] <= _MOST_STORED:
            raise ValueError("no file can say that there are so many angles")
        if not 0.0 < parts["gamma"] < np.inf:
            raise ValueError("gamma must be positive")
        return super().remade(**parts)

    @property
    def spacing(self) -> float:
        """From one angle to the next."""
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
        """Losses of every overlap with every angle, those of the first overlap first."""
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
        """The best angles of windows, of all angles up to the neighbours of given ones.

        Parameters
        ----------
        model : KernelModel
        features : ndarray of shape (n, n_features)
        angles : ndarray of shape (n,)

        Returns
        -------
        angles, scores : ndarray of shape (n,)
        """
        factors = (model.factors.T @ (model.parts @ features.T)).T
        return best_angles(factors, model.labels[:, 0], self.gamma, angles, self.spacing)


class PoseOracle(KernelOracle):
    """Images with true poses; windows are searched one image at a time.

    So their features are held for one image only, and the detectors of the angles are made once.

    Parameters
    ----------
    problem : PoseProblem
    X : sequence of ImageWindows
    Y : sequence of Pose
        With a window of their image's grid, and any angle.
    C : ndarray of shape (n_images,)
    rescaling : {"margin", "slack"}
    """

    def __init__(
        self,
        problem: PoseProblem,
        X: Sequence[ImageWindows],
        Y: Sequence[Pose],
        C: Floats,
        rescaling: str = "margin",
    ) -> None:
        super().__init__(problem, X, Y, C, LinearKernel(), rescaling)

    @property
    def content(self) -> Any:
        problem, blocks = self.problem, [windows.blocks for windows in self.X]
        settings = problem.grid, problem.angles, problem.gamma, problem.angle_weight
        return settings, blocks, self.Y, self.C, self.by_slack

    def infer(
        self,
        model: KernelModel,
        examples: Order,
        threads: Threads,
        count: int = 1,
        diversity: float = 0.0,
    ) -> Found:
        detectors = self.problem.detectors(model)
        y_true = self.y_true(examples)
        own = model.pair_scores(y_true.parts, y_true.labels)

        def infer_some(share: slice) -> list[list[_Chosen]]:
            pairs = zip(examples[share].tolist(), own[share], strict=True)
            return [self._infer_image(detectors, i, score, count, diversity) for i, score in pairs]

        shares = threads.map(infer_some, threads.shares(len(examples)))
        of_each = [chosen for share in shares for chosen in share]
        every = [each for chosen in of_each for each in chosen]
        outputs = NewOutputs(
            np.repeat(examples, [len(chosen) for chosen in of_each]),
            [each.output for each in every],
            np.array([each.loss for each in every]),
            np.array([each.part for each in every]),
            np.array([each.label for each in every]),
            np.zeros(len(every)),
        )
        hinges = np.array([max(chosen[0].slope, 0.0) for chosen in of_each])
        return Found(outputs, np.array([each.slope for each in every]), hinges)

    def _infer_image(
        self, detectors: Floats, i: int, own_score: float, count: int, diversity: float
    ) -> list["_Chosen"]:
        """The most violating poses of an image, the highest first."""
        candidates = self._candidates(i)
        losses = self._losses(i, candidates)
        slopes = self._gains((candidates.parts @ detectors).ravel(), own_score, losses)
        return [
            _Chosen(
                candidates.outputs[c],
                float(losses[c]),
                float(slopes[c]),
                candidates.parts[candidates.part_of[c]].copy(),
                candidates.labels[candidates.label_of[c]],
            )
            for c in self._choose(i, candidates, slopes, count, diversity)
        ]


class _Chosen(NamedTuple):
    """A pose that a search takes."""

    output: Pose
    loss: float
    slope: float
    part: Floats
    label: Floats
