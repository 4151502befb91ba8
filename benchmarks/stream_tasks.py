"""Rows that come once, in batches: shared by the benchmarks of Ramanan's algorithms (2013)."""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import maxmargin as mm
from benchmarks.common import Data, Floats, load, subsample
from benchmarks.datasets import load as load_real
from maxmargin.core.oracle import Threads
from maxmargin.data.sources import Examples, Source
from maxmargin.solvers.loop import Stopping
from maxmargin.solvers.online import Online
from maxmargin.structures import Classes
from maxmargin.structures.rows.oracle import RowOracle
from maxmargin.training.streams import SourceStream

C = 0.01
TOLERANCE = 1e-3
TEST_SHARE = 0.2
"""Of the tiny data, which have no test rows of their own."""


class StreamTask(NamedTuple):
    """Training rows in the order of the stream, test rows, and the optimal value."""

    name: str
    X: Any
    y: NDArray[np.int64]
    X_test: Any
    y_test: NDArray[np.int64]
    problem: Classes
    optimum: float
    best_accuracy: float

    @property
    def n(self) -> int:
        """Training rows."""
        return len(self.y)

    def training(self) -> RowOracle:
        """All rows in memory."""
        return self.problem.make_oracle(self.X, self.y.tolist(), np.full(self.n, C))

    def objective(self, weights: Floats) -> float:
        """Over all training rows, by numpy alone."""
        scores = self.problem.potentials(self.X, weights)[0]
        everyone = np.arange(self.n)
        scores = scores + 1.0 - scores[everyone, self.y][:, None]
        scores[everyone, self.y] = 0.0
        return 0.5 * float(weights @ weights) + C * float(scores.max(axis=1).sum())

    def excess(self, *candidates: Floats) -> float:
        """How far the best of some weights is above the optimum, relative to it."""
        return min(map(self.objective, candidates)) / self.optimum - 1.0

    def accuracy(self, weights: Floats) -> float:
        """On the test rows."""
        scores = self.problem.potentials(self.X_test, weights)[0]
        return float((scores.argmax(axis=1) == self.y_test).mean())


def stream_task(name: str, quick: bool, most: int | None = None) -> StreamTask:
    """Rows of a data set in random order, `most` of them at most, and their optimum."""
    if quick:
        data = load(name, quick=True)
        order = np.random.RandomState(0).permutation(len(data.y))
        n = int((1.0 - TEST_SHARE) * len(data.y))
        train, test = data.some(order[:n]), data.some(order[n:])
    else:
        real = load_real(name)
        train, test = Data(name, real.X_train, real.y_train), Data(name, real.X_test, real.y_test)
    if most is not None:
        train = subsample(train, most)
    train = train.some(np.random.RandomState(0).permutation(len(train.y)))
    classes, y = np.unique(train.y, return_inverse=True)
    y_test = np.searchsorted(classes, test.y)
    X, X_test = sp.csr_array(train.X), sp.csr_array(test.X)
    model = mm.LinearClassifier(C=C, tol=1e-4).fit(X, y)
    return StreamTask(
        train.name,
        X,
        y,
        X_test,
        y_test,
        Classes(X.shape[1], len(classes)),
        model.certificate_.dual,
        float(model.score(X_test, y_test)),
    )


class Rows(Source):
    """Rows of a task in batches; `after` is called when the learner asks for the next one."""

    def __init__(
        self, task: StreamTask, block: int = 5000, after: Callable[[], None] = lambda: None
    ) -> None:
        self.task, self.block, self.after = task, block, after

    def batches(self) -> Iterator[Examples]:
        for start in range(0, self.task.n, self.block):
            some = slice(start, start + self.block)
            yield Examples(self.task.X[some], self.task.y[some])
            self.after()


class Stopwatch:
    """Seconds of processor time that count: those in which something is looked at do not."""

    def __init__(self) -> None:
        self.started, self.apart = time.process_time(), 0.0

    @property
    def seconds(self) -> float:
        """So far."""
        return time.process_time() - self.started - self.apart

    def aside(self, work: Callable[[], Any]) -> Any:
        """The answer of work that does not count."""
        before = time.process_time()
        answer = work()
        self.apart += time.process_time() - before
        return answer


def one_pass(task: StreamTask, solver: Online, looks: int = 0) -> dict[str, Any]:
    """What a single pass has found and what it took, and so many times on the way how far it was.

    The curve has seconds, examples seen, the suboptimality of the objective, and how far the dual
    value is below the optimum.
    """
    block = max(1, task.n // looks) if looks else 5000
    points: list[tuple[float, float, float, float]] = []

    def look() -> None:
        found = task.excess(*learner.candidates)
        points.append((watch.seconds, learner.seen, found, 1.0 - learner.dual / task.optimum))

    def after() -> None:
        if looks and learner.seen > (points[-1][1] if points else 0):
            watch.aside(look)

    stream = SourceStream.of(task.problem, Rows(task, block, after), C)
    learner = solver.start(stream, Stopping(TOLERANCE, 1), Threads(1), seed=0)
    watch = Stopwatch()
    solver.iterate(learner)
    seconds = watch.seconds
    if looks:
        watch.aside(look)
    candidates = learner.candidates
    primals, dual = stream.evaluate(candidates, learner.point(), Threads(1))
    k = int(np.argmin(primals))
    assert np.isclose(primals[k], task.objective(candidates[k]), rtol=1e-9)
    return {
        "excess": primals[k] / task.optimum - 1.0,
        "certified gap": 1.0 - dual / primals[k],
        "accuracy": task.accuracy(candidates[k]),
        "seconds": seconds,
        "searches": learner.calls,
        "revisits": learner.hits,
        "planes": learner.n_cuts,
        "megabytes": learner.cache.n_bytes / 1e6,
        "curve": [list(values) for values in zip(*points, strict=True)],
    }
