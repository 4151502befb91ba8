"""Who comes first within 1e-3 of the optimum: shared by the benchmarks against LIBLINEAR.

Each contender goes through its tolerances, from loose to tight, until the objective of its
weights (valued here, by numpy, for all alike) is within `TARGET` of the optimal value. Then all of
them train again with the tolerance they need, taking turns, and the clock counts.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

import maxmargin as mm
from benchmarks import peer
from benchmarks.common import (
    NO_PEER,
    RESULTS,
    ROOT,
    Data,
    Floats,
    Timed,
    best,
    clocks,
    interleaved,
    load,
    parser,
    say,
    span,
    subsample,
    timed,
)
from benchmarks.reporting import Report, Row, write_json

TARGET = 1e-3
OUR_TOLERANCES = (0.1, 0.05, 0.03, 0.02, 0.01, 5e-3, 3e-3, 2e-3, 1e-3, 5e-4, 3e-4, 1e-4, 1e-5)
PEER_TOLERANCES = (10.0, 3.0, 1.0, 0.5, 0.3, 0.2, 0.1, 0.05, 0.03, 0.02, 0.01, 3e-3, 1e-3)
REFERENCE_TOLERANCE = 1e-8
QUICK_LIMIT = 5.0

ONE, TWO, PEER = "1 thread", "2 threads", "LIBLINEAR"


# Tasks


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
    """A sum of losses, and the solver of LIBLINEAR that minimises it (None: there is none)."""

    name: str
    solver: int | None
    total_loss: Callable[[Floats, NDArray[Any], float], float] | None


CRAMMER_SINGER = Formulation("crammer-singer", peer.CRAMMER_SINGER, _crammer_singer)
WESTON_WATKINS = Formulation("weston-watkins", None, None)
ONE_VERSUS_REST = Formulation("one-vs-rest", peer.HINGE, _one_versus_rest)
BINARY = Formulation("binary", peer.HINGE, _hinge)
REGRESSION = Formulation("regression", peer.REGRESSION, _epsilon_insensitive)


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

    def estimator(self, **settings: Any) -> Any:
        """Ours, not yet fitted."""
        settings = {"C": self.C, "fit_intercept": False} | settings
        if self.formulation is REGRESSION:
            return mm.LinearRegressor(epsilon=self.epsilon, **settings)
        if self.formulation is BINARY:
            return mm.LinearClassifier(**settings)
        return mm.LinearClassifier(formulation=self.formulation.name, **settings)

    def fit(self, **settings: Any) -> Any:
        """Ours, fitted; stopping early is no reason to warn here."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return self.estimator(**settings).fit(self.data.X, self.data.y)

    def value(self, weights: Floats) -> float:
        """Objective at weights of shape (n_features, n_outputs)."""
        assert self.formulation.total_loss is not None
        scores = np.asarray(self.data.X @ weights)
        loss = self.formulation.total_loss(scores, self.data.y, self.epsilon)
        return 0.5 * float(np.sum(weights**2)) + self.C * loss

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
    path = RESULTS / "optima.json"
    known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
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
    write_json(path, known | {task.key: asdict(result)})
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
    cost, ones = np.full(len(y), task.C), np.ones(len(y))

    def hinge(positive: NDArray[np.bool_]) -> float:
        signs = np.where(positive, 1.0, -1.0)
        return float(referee.hinge(coordinates, signs, cost=cost, margins=ones).value)

    if task.formulation is CRAMMER_SINGER:
        loss = 1.0 - np.eye(len(labels))
        value = referee.crammer_singer(
            coordinates, y, len(labels), cost=cost, margins=ones, loss_matrix=loss
        ).value
    elif task.formulation is WESTON_WATKINS:
        value = referee.weston_watkins(coordinates, y, len(labels), cost=cost, margins=ones).value
    elif task.formulation is ONE_VERSUS_REST:
        value = sum(hinge(y == label) for label in range(len(labels)))
    elif task.formulation is BINARY:
        value = hinge(y == 1)
    else:
        value = referee.epsilon_insensitive(coordinates, y, cost=cost, epsilon=task.epsilon).value
    ours = task.on(few).fit(tol=REFERENCE_TOLERANCE, max_iter=10**6)
    return float(abs(ours.certificate_.primal - value) / abs(value))


# Contenders


@dataclass(frozen=True)
class Contender:
    """Something that can be trained to a tolerance."""

    name: str
    knob: str
    tolerances: Sequence[float]
    train: Callable[[float], Any]
    weights: Callable[[Any], Floats]
    is_at_limit: Callable[[Any], bool] = lambda _: False


def ours(task: Task, n_jobs: int) -> Contender:
    """Our estimator with so many threads."""
    return Contender(
        ONE if n_jobs == 1 else TWO,
        "tol",
        OUR_TOLERANCES,
        train=lambda tol: task.fit(tol=tol, n_jobs=n_jobs),
        weights=lambda model: np.atleast_2d(model.coef_).T,
    )


def liblinear(task: Task) -> Contender:
    """LIBLINEAR, its features converted beforehand."""
    converted = peer.Liblinear(task.data.X, task.data.y)
    solver = task.formulation.solver
    assert solver is not None
    n_problems = len(np.unique(task.data.y)) if task.formulation is ONE_VERSUS_REST else 1
    return Contender(
        PEER,
        "-e",
        PEER_TOLERANCES,
        train=lambda e: converted.train(solver, task.C, e, task.epsilon),
        weights=lambda model: model.weights(),
        is_at_limit=lambda model: model.limits_hit >= n_problems,
    )


@dataclass(frozen=True)
class Trial:
    """One training of the search for the tolerance."""

    tolerance: float
    seconds: float
    cpu_seconds: float
    excess: float
    at_limit: bool


@dataclass(frozen=True)
class Finish:
    """How a contender did: its search, and the timed runs with the tolerance it needs."""

    contender: str
    knob: str
    search: list[Trial]
    runs: list[Timed]
    excess: float

    @property
    def reached(self) -> bool:
        """Whether it came within the target."""
        return self.excess <= TARGET

    @property
    def seconds(self) -> float:
        """Time it needs; if it never got there, time of its longest attempt, a lower bound."""
        return best(self.runs) if self.runs else max(trial.seconds for trial in self.search)

    @property
    def setting(self) -> str:
        """The tolerance it needs."""
        return f"{self.knob} {self.search[-1].tolerance:g}"

    def __str__(self) -> str:
        if self.reached:
            return f"{span(run.seconds for run in self.runs)}, {self.setting}"
        nearest = min(self.search, key=lambda trial: trial.excess)
        why = " at its limit of iterations" if nearest.at_limit else ""
        return f"not reached: {nearest.excess:.1e} after {nearest.seconds:.3g} s{why}"

    def as_json(self) -> dict[str, Any]:
        """All of it as plain numbers."""
        search = [asdict(trial) for trial in self.search]
        return {
            "reached": self.reached,
            "setting": self.setting,
            "relative_excess": self.excess,
            **clocks(self.runs),
            "search": search,
        }


def _search(contender: Contender, task: Task, reference: Optimum, limit: float) -> list[Trial]:
    """Trials from loose to tight, up to the first that is near enough."""
    trials = []
    for tolerance in contender.tolerances:
        run = timed(partial(contender.train, tolerance))
        excess = reference.excess(task.value(contender.weights(run.answer)))
        at_limit = contender.is_at_limit(run.answer)
        trials.append(Trial(tolerance, run.seconds, run.cpu_seconds, excess, at_limit))
        say(f"  {contender.name}, {contender.knob} {tolerance:g}: {excess:.2e} {run.seconds:.3g} s")
        if excess <= TARGET or at_limit or run.seconds > limit:
            break
    return trials


@dataclass(frozen=True)
class Race:
    """A task, its optimal value, and how each contender did."""

    task: Task
    optimum: Optimum
    finishes: Mapping[str, Finish]

    @property
    def label(self) -> str:
        """The data, and how well the optimum is known if less well than it should be."""
        name = self.task.data.name
        if self.optimum.status == "converged":
            return name
        return f"{name} (optimum known to {self.optimum.relative_gap:.0e})"

    def as_json(self) -> dict[str, Any]:
        """All of it as plain numbers."""
        finishes = {name: finish.as_json() for name, finish in self.finishes.items()}
        return {"optimum": asdict(self.optimum), **finishes}


def race(task: Task, options: argparse.Namespace) -> Race:
    """Time to come within the target: ours with one and with two threads, and LIBLINEAR."""
    say(task.key)
    for n_jobs in (1, 2):  # compiles, or loads what is compiled
        task.on(subsample(task.data, 100)).fit(n_jobs=n_jobs)
    reference = optimum(task, options)
    say(f"  {reference}")
    contenders = [ours(task, 1), ours(task, 2)]
    contenders += [liblinear(task)] if peer.installed() else []
    searches = {one.name: _search(one, task, reference, options.search_limit) for one in contenders}
    arrived = {
        one.name: partial(one.train, searches[one.name][-1].tolerance)
        for one in contenders
        if searches[one.name][-1].excess <= TARGET
    }
    runs = interleaved(arrived, options.repeats)
    finishes = {}
    for one in contenders:
        mine = runs.get(one.name, [])
        values = [reference.excess(task.value(one.weights(run.answer))) for run in mine]
        excess = max(values, default=min(trial.excess for trial in searches[one.name]))
        finishes[one.name] = Finish(one.name, one.knob, searches[one.name], mine, excess)
    return Race(task, reference, finishes)


def races(options: argparse.Namespace, formulation: Formulation, **settings: Any) -> Iterator[Race]:
    """A race on each of the data sets asked for."""
    for name in options.data:
        yield race(Task(load(name, options.quick), formulation, **settings), options)


# Tables


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


def race_parser(
    description: str | None, data: Sequence[str], repeats: int
) -> argparse.ArgumentParser:
    """Arguments of the benchmarks that race."""
    result = reference_parser(description, data, repeats)
    result.add_argument(
        "--search-limit",
        type=float,
        default=900.0,
        metavar="SECONDS",
        help="try no tighter tolerance after a training that took this long",
    )
    result.add_argument(
        "--check", action="store_true", help="check the optimum of a few rows by clarabel"
    )
    return result


def ratio_row(what: str, bar: float, faster: Finish, slower: Finish | None, text: str) -> Row:
    """A row that promises `faster` to take `bar` times less time than `slower`."""
    wanted = f">= {bar:g}x"
    if slower is None:
        return Row(what, wanted, f"{faster}", NO_PEER)
    if not faster.reached:
        return Row(what, wanted, f"{faster}", text, met=False)
    ratio = slower.seconds / faster.seconds
    more = "" if slower.reached else ">= "
    return Row(what, wanted, f"{more}{ratio:.2f}x ({faster})", text, met=ratio >= bar)


def check_rows(task: Task, options: argparse.Namespace) -> list[Row]:
    """A row about the reference, if `--check` asks for one."""
    if not options.check:
        return []
    difference = check_against_clarabel(task)
    what = f"{task.data.name}, 60 rows: optimum as clarabel's"
    return [Row(what, "<= 1e-07", f"{difference:.1e}", "clarabel", met=difference <= 1e-7)]


def against_liblinear(
    options: argparse.Namespace,
    formulation: Formulation,
    bars: Mapping[str, float],
    **settings: Any,
) -> Report:
    """A row for each data set and each of the contenders that `bars` names."""
    report = Report()
    for one in races(options, formulation, **settings):
        slower = one.finishes.get(PEER)
        for name, bar in bars.items():
            what = f"{one.label}, {name}"
            report.rows.append(ratio_row(what, bar, one.finishes[name], slower, f"{slower}"))
        report.rows += check_rows(one.task, options)
        report.details[one.task.key] = one.as_json()
    return report
