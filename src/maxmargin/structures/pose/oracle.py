"""The separation oracle of poses: all windows of one image at a time, at all angles."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.kernel_model import KernelModel
from maxmargin.core.kernel_oracle import KernelOracle, ScoredCandidates
from maxmargin.core.kernels import LinearKernel
from maxmargin.core.threads import Threads
from maxmargin.structures.pose.features import ImageWindows, Pose
from maxmargin.structures.pose.problem import PoseProblem

Floats = NDArray[np.float64]
Order = NDArray[np.int64]


class PoseOracle(KernelOracle):
    """Images with true poses.

    Features of windows are held for one image only, and scored by one product of matrices with
    the detectors of the angles.

    Parameters
    ----------
    problem : PoseProblem
    X : sequence of ImageWindows
    Y : sequence of Pose
        With a window of their image's grid, and any angle.
    C : ndarray of shape (n_images,)
        C of each example.
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

    def _own_scores(self, model: KernelModel, examples: Order, threads: Threads) -> Floats:
        # In one product of matrices, whose rounding does not depend on the number of threads.
        return super()._own_scores(model, examples, Threads(1))

    def _scored(self, model: KernelModel, examples: list[int]) -> Iterator[ScoredCandidates]:
        detectors = self.problem.detectors(model)
        for i in examples:
            each = self._candidates(i)
            yield i, each, each.parts, each.labels, each.parts @ detectors
