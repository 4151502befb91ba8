"""Who trains linear models: ours and the peers, each as something with a knob to turn.

Each module is imported where it is used, so that a process that trains one contender has the
memory of that one alone.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from benchmarks.common import Floats, say
from benchmarks.tasks import BINARY, CRAMMER_SINGER, ONE_VERSUS_REST, REGRESSION, Task

ONE, TWO = "ours, 1 thread", "ours, 2 threads"
LIBLINEAR = "LIBLINEAR"
LINEAR_SVC = "LinearSVC"
LINEAR_SVR = "LinearSVR"
SGD, AVERAGED = "SGDClassifier", "SGDClassifier, averaged"
WABBIT, COSTS = "Vowpal Wabbit", "Vowpal Wabbit, csoaa"

OUR_TOLERANCES = (0.1, 0.05, 0.03, 0.02, 0.01, 5e-3, 3e-3, 2e-3, 1e-3, 5e-4, 3e-4, 1e-4, 1e-5)
PEER_TOLERANCES = (
    10.0, 3.0, 1.0, 0.5, 0.3, 0.2, 0.1, 0.05, 0.03, 0.02, 0.01, 3e-3, 1e-3, 3e-4, 1e-4
)  # fmt: skip
PASSES = (1, 5, 20, 50)
MOST_ITERATIONS = 100_000

SOLVERS = {CRAMMER_SINGER: 4, ONE_VERSUS_REST: 3, BINARY: 3, REGRESSION: 13}
"""LIBLINEAR's ``-s``."""


@dataclass(frozen=True)
class Contender:
    """Something that can be trained to a tolerance.

    Parameters
    ----------
    name : str
    knob : str
        What its tolerance, or number of passes, is called.
    tolerances : sequence of float
        From loose to tight.
    train : callable
        Takes a tolerance, returns a model.
    weights : callable
        Takes the model, returns weights of shape (n_features, n_outputs).
    is_at_limit : callable
        Whether the model stopped because of a limit of iterations that is the trainer's own.
    """

    name: str
    knob: str
    tolerances: Sequence[float]
    train: Callable[[float], Any]
    weights: Callable[[Any], Floats]
    is_at_limit: Callable[[Any], bool] = lambda _: False


def _ours(task: Task, n_jobs: int) -> Contender:
    return Contender(
        ONE if n_jobs == 1 else TWO,
        "tol",
        OUR_TOLERANCES,
        train=lambda tol: task.fit(tol=tol, n_jobs=n_jobs),
        weights=lambda model: np.atleast_2d(model.coef_).T,
    )


def _liblinear(task: Task) -> Contender:
    """Its features are converted beforehand."""
    from benchmarks import peer

    converted = peer.Liblinear(task.data.X, task.data.y)
    n_problems = task.n_classes if task.formulation is ONE_VERSUS_REST else 1
    return Contender(
        LIBLINEAR,
        "-e",
        PEER_TOLERANCES,
        train=lambda e: converted.train(SOLVERS[task.formulation], task.C, e, task.epsilon),
        weights=lambda model: model.weights(),
        is_at_limit=lambda model: model.limits_hit >= n_problems,
    )


def _scikit(task: Task) -> Contender:
    """scikit-learn's LinearSVC or LinearSVR, with no limit of iterations that matters."""
    from sklearn import svm

    common = {"C": task.C, "fit_intercept": False, "max_iter": MOST_ITERATIONS, "random_state": 0}
    if task.formulation is REGRESSION:
        name, model = LINEAR_SVR, svm.LinearSVR(epsilon=task.epsilon, **common)
    elif task.formulation is CRAMMER_SINGER:
        name, model = LINEAR_SVC, svm.LinearSVC(multi_class="crammer_singer", **common)
    else:
        name, model = LINEAR_SVC, svm.LinearSVC(loss="hinge", **common)
    return _estimator(name, "tol", PEER_TOLERANCES, model, task)


def _sgd(task: Task, average: bool) -> Contender:
    """scikit-learn's stochastic gradients, in its own schedule of steps."""
    from sklearn.linear_model import SGDClassifier

    model = SGDClassifier(
        alpha=1.0 / (task.C * len(task.data.y)),
        fit_intercept=False,
        tol=None,
        average=average,
        random_state=0,
    )
    return _estimator(AVERAGED if average else SGD, "max_iter", PASSES, model, task)


def _estimator(
    name: str, knob: str, tolerances: Sequence[float], model: Any, task: Task
) -> Contender:
    from sklearn.base import clone

    def train(tolerance: float) -> Any:
        setting = {knob: int(tolerance) if knob == "max_iter" else tolerance}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it might not have converged
            return clone(model).set_params(**setting).fit(task.data.X, task.data.y)

    return Contender(
        name, knob, tolerances, train=train, weights=lambda model: np.atleast_2d(model.coef_).T
    )


def _wabbit(task: Task, costs: bool) -> Contender:
    """Vowpal Wabbit, its features in its own cache file beforehand."""
    from benchmarks.vowpal import Wabbit

    return Contender(
        COSTS if costs else WABBIT,
        "--passes",
        PASSES,
        train=Wabbit(task, costs).train,
        weights=lambda weights: weights,
    )


MAKERS: dict[str, Callable[[Task], Contender]] = {
    ONE: lambda task: _ours(task, 1),
    TWO: lambda task: _ours(task, 2),
    LIBLINEAR: _liblinear,
    LINEAR_SVC: _scikit,
    LINEAR_SVR: _scikit,
    SGD: lambda task: _sgd(task, average=False),
    AVERAGED: lambda task: _sgd(task, average=True),
    WABBIT: lambda task: _wabbit(task, costs=False),
    COSTS: lambda task: _wabbit(task, costs=True),
}
"""A contender of each name, for a task."""

PACKAGES = {
    LIBLINEAR: "liblinear-official",
    WABBIT: "vowpalwabbit",
    COSTS: "vowpalwabbit",
    ONE: "maxmargin",
    TWO: "maxmargin",
}


def package_version(name: str) -> str:
    """Version of the package that a contender comes from; empty where it is missing."""
    try:
        return version(PACKAGES.get(name, "scikit-learn"))
    except PackageNotFoundError:
        return ""


def missing(name: str) -> str:
    """What to say of a contender whose package is not there; empty if it is."""
    if package_version(name):
        return ""
    text = f"not installed: pip install {PACKAGES[name]}"
    say(f"{name} {text}; its part is skipped")
    return text
