"""What linear contenders minimise: a data set, a sum of losses, and its optimal value."""

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import ROOT, Data, Floats, parser, result_file, say, subsample, timed
from benchmarks.reporting import write_json

REFERENCE_TOLERANCE = 1e-8
QUICK_LIMIT = 5.0


def _crammer_singer(scores: Floats, y: NDArray[Any], _: float) -> float:
    everyone = np.arange(len(y))
    violations = 1.0 + scores - scores[everyone, y][:, None]
    violations[everyone, y] = 0.0
    return float(violations.max(axis=1).sum())


def _one_versus_rest(scores: Floats, y: NDArray[Any], _: float) -> float:
    signs = np.where(y[:, None] == np.arange(scores.shape[1]), 1.0, -1.0)
    return float(np.maximum(0.0, 1.0 - signs * scores).sum())


def _hinge(scores: Floats, y: NDArray[Any], _: float) -> float:
    return float(np.maximum(0.0, 1.0 - (2.0 * y - 1.0) * scores[:, 0]).sum())


def _epsilon_insensitive(scores: Floats, y: NDArray[Any], epsilon: float) -> float:
    return float(np.maximum(0.0, np.abs(scores[:, 0] - y) - epsilon).sum())


@dataclass(frozen=True)
class Formulation:
    """A sum of losses; None where only our own solver values it."""

    name: str
    total_loss: Callable[[Floats, NDArray[Any], float], float] | None


CRAMMER_SINGER = Formulation("crammer-singer", _crammer_singer)
WESTON_WATKINS = Formulation("weston-watkins", None)
ONE_VERSUS_REST = Formulation("one-vs-rest", _one_versus_rest)
BINARY = Formulation("binary", _hinge)
REGRESSION = Formulation("regression", _epsilon_insensitive)

FORMULATIONS = {
    one.name: one for one in (CRAMMER_SINGER, WESTON_WATKINS, ONE_VERSUS_REST, BINARY, REGRESSION)
}


@dataclass(frozen=True)
class Task:
    """A data set and what to minimise over it; no intercept."""

    data: Data
    formulation: Formulation
    C: float = 1.0
    epsilon: float = 0.0

    @property
    def key(self) -> str:
        """A name for this task among all others."""
        rows, columns = self.data.X.shape
        width = f", epsilon={self.epsilon:g}" if self.epsilon else ""
        name, loss = self.data.name, self.formulation.name
        return f"{name} {rows}x{columns}, {loss}, C={self.C:g}{width}"

    @property
    def n_classes(self) -> int:
        """Number of classes, 0 to so many less one."""
        return int(self.data.y.max()) + 1

    def estimator(self, **settings: Any) -> Any:
        """Ours, not yet fitted."""
        import maxmargin as mm  # not above: processes of peers shall not import it

        settings = {"C": self.C, "fit_intercept": False} | settings
        if self.formulation is REGRESSION:
            return mm.LinearRegressor(epsilon=self.epsilon, **settings)
        if self.formulation is BINARY:
            return mm.LinearClassifier(**settings)
        return mm.LinearClassifier(formulation=self.formulation.name, **settings)

    def fit(self, **settings: Any) -> Any:
        """Ours, fitted; stopping early is no reason to warn here."""
        from sklearn.exceptions import ConvergenceWarning

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return self.estimator(**settings).fit(self.data.X, self.data.y)

    def value(self, weights: Floats) -> float:
        """Objective at weights of shape (n_features, n_outputs)."""
        assert self.formulation.total_loss is not None
        scores = np.asarray(self.data.X @ weights)
        loss = self.formulation.total_loss(scores, self.data.y, self.epsilon)
        return 0.5 * float(np.sum(weights**2)) + self.C * loss

    def accuracy(self, weights: Floats, data: Data) -> float:
        """Share of the rows of `data` whose class these weights get right."""
        scores = np.asarray(data.X @ weights)
        found = scores.argmax(axis=1) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(int)
        return float(np.mean(found == data.y))

    def on(self, data: Data) -> "Task":
        """The same on other data."""
        return Task(data, self.formulation, self.C, self.epsilon)


# The optimum


@dataclass(frozen=True)
class Optimum:
    """The optimal value lies between `dual` and `primal`."""

    primal: float
    dual: float
    relative_gap: float
    status: str
    seconds: float
    limit: float

    def excess(self, value: float) -> float:
        """How far `value` is above the optimum, relative to it, at most."""
        return (value - self.dual) / abs(self.dual)

    def __str__(self) -> str:
        stopped = "" if self.status == "converged" else f", stopped by its {self.status}"
        return f"optimum {self.primal:.9g}, known to {self.relative_gap:.1e}{stopped}"


def optimum(task: Task, options: argparse.Namespace) -> Optimum:
    """The optimal value, by our own solver run long, with its certificate; kept on disk."""
    limit = QUICK_LIMIT if options.quick else options.reference_limit
    path = result_file("optima", options.quick)
    known = kept(path)
    if task.key in known:
        old = Optimum(**known[task.key])
        if old.status == "converged" or old.limit >= limit:
            return old
    say(f"  {task.key}: looking for the optimum, at most {limit:g} s ...")
    settings = {"tol": REFERENCE_TOLERANCE, "max_iter": 10**7, "time_limit": limit}
    # Threads that share out classes cost no accuracy; threads that share out examples may.
    n_jobs = 2 if task.formulation is ONE_VERSUS_REST else 1
    run = timed(partial(task.fit, n_jobs=n_jobs, **settings))
    found = run.answer.certificate_
    result = Optimum(
        found.primal, found.dual, found.relative_gap, run.answer.status_, run.seconds, limit
    )
    write_json(path, kept(path) | {task.key: asdict(result)})
    return result


def kept(path: Any) -> dict[str, Any]:
    """What a JSON file of earlier runs has, if there is one."""
    result: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return result


def check_against_clarabel(task: Task, n: int = 60) -> float:
    """Relative difference of our optimal value and that of a general QP solver, on a few rows.

    With weights in the span of the rows, the features can be replaced by their coordinates in an
    orthonormal basis of it, which keeps the QP small.
    """
    sys.path.insert(0, str(ROOT / "tests"))
    import referee  # type: ignore[import-not-found]

    few = subsample(task.data, n)
    coordinates = np.asarray(np.linalg.qr(few.X.toarray().T, mode="r")).T
    if task.formulation is REGRESSION:
        y = few.y
    else:
        labels, y = np.unique(few.y, return_inverse=True)
    few = few._replace(y=y)
    C, ones = np.full(len(y), task.C), np.ones(len(y))

    def hinge(positive: NDArray[np.bool_]) -> float:
        signs = np.where(positive, 1.0, -1.0)
        return float(referee.hinge(coordinates, signs, C=C, margins=ones).value)

    if task.formulation is CRAMMER_SINGER:
        loss = 1.0 - np.eye(len(labels))
        value = referee.crammer_singer(
            coordinates, y, len(labels), C=C, margins=ones, loss_matrix=loss
        ).value
    elif task.formulation is WESTON_WATKINS:
        value = referee.weston_watkins(coordinates, y, len(labels), C=C, margins=ones).value
    elif task.formulation is ONE_VERSUS_REST:
        value = sum(hinge(y == label) for label in range(len(labels)))
    elif task.formulation is BINARY:
        value = hinge(y == 1)
    else:
        value = referee.epsilon_insensitive(coordinates, y, C=C, epsilon=task.epsilon).value
    ours = task.on(few).fit(tol=REFERENCE_TOLERANCE, max_iter=10**6)
    return float(abs(ours.certificate_.primal - value) / abs(value))


def reference_parser(
    description: str | None, data: Sequence[str], repeats: int | None = None
) -> argparse.ArgumentParser:
    """Arguments of the benchmarks that need optimal values."""
    result = parser(description, data, repeats)
    result.add_argument(
        "--reference-limit",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="most time to spend on an optimal value",
    )
    return result
