"""Training on turned digits, looked at round by round: shared by the benchmarks of He's solver."""

import time
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.pose_data import Posed
from maxmargin.core.oracle import Oracle
from maxmargin.core.python_oracle import make_oracle
from maxmargin.solvers.loop import Stopping
from maxmargin.structures.pose.features import ImageWindows, Pose, WindowGrid
from maxmargin.structures.pose.problem import LinearPoses, PoseOracle, PoseProblem

Floats = NDArray[np.float64]

WINDOW, N_ANGLES = 32, 16


class EnoughError(Exception):
    """The time is over, and nobody wants a certificate."""


class Trace(NamedTuple):
    """After each iteration: processor seconds, oracle calls, dual value, cutting planes kept."""

    seconds: Floats
    searches: Floats
    duals: Floats
    planes: Floats

    def at(self, dual: float) -> tuple[float, float] | None:
        """Seconds and oracle calls until this dual value; None for never."""
        where = np.flatnonzero(self.duals >= dual)
        return (self.seconds[where[0]], self.searches[where[0]]) if len(where) else None


def traced(solver: Any, training: Any, limit: float, enough: float, seed: int = 0) -> Trace:
    """Train until the dual value is `enough`, or the time is over."""
    lines: list[tuple[float, float, float, float]] = []
    start = time.process_time()

    def on_round(line: Any, _: Any) -> bool:
        lines.append((time.process_time() - start, line.oracle_calls, line.dual, line.cuts))
        if lines[-1][0] > limit or line.dual >= enough:
            raise EnoughError
        return False

    with suppress(EnoughError):
        solver.solve(training, Stopping(tol=1e-3, max_iter=10**9), seed=seed, on_iteration=on_round)
    return Trace(*np.array(lines).T)


class PoseTask(NamedTuple):
    """Windows of images, where the digit is, and what each image costs."""

    problem: PoseProblem
    windows: list[ImageWindows]
    truths: list[Pose]
    C: Floats

    @classmethod
    def of(cls, data: Posed, C: float, scales: tuple[float, ...] = (1.0,)) -> "PoseTask":
        """All windows of the images, at some scales."""
        grid = WindowGrid(WINDOW, WINDOW, scales=scales)
        windows = [grid.windows(image) for image in data.images]
        truths = [
            w.pose(w.nearest(Pose(x, y, 1.0, angle)), angle)
            for w, (x, y, angle) in zip(windows, data.poses.tolist(), strict=True)
        ]
        return cls(PoseProblem(grid, N_ANGLES), windows, truths, np.full(len(windows), C))

    def kernel(self) -> PoseOracle:
        """With the kernel between poses."""
        return PoseOracle(self.problem, self.windows, self.truths, self.C)

    def linear(self, n: int | None = None) -> Oracle:
        """The same model with its weights written out; of the first `n` images."""
        parts = self.windows[:n], self.truths[:n], self.C[:n]
        return make_oracle(LinearPoses(self.problem), *parts, "margin")
