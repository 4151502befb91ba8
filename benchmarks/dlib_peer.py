"""dlib's structural SVM solver, with the same oracle: ours arrives first.

dlib is the structural SVM solver that can be installed from PyPI
(`dlib.solve_structural_svm_problem`: cutting planes over the sum of all slacks, with a cache of
cutting planes for each example). Here it and our default solver train the same two problems through
the same Python methods: one oracle call at a time, in the same plain Python object, whose inner
oracle call is our compiled one. So neither gains from an oracle call that the other has not.

Words are OCR words as chains (200 of fold 0, pixels and transitions, Hamming count, C = 0.1 on the
sum), digits are 600 of scikit-learn's digits (zero-one loss, C = 1). Each gets the loosest
tolerance with which the objective, evaluated from the weights by oracle calls for all examples, is
within 1e-3 of the optimum, which our compiled estimators find at `tol=1e-6`. They then train in
turns, several times; minima are compared. Oracle calls are counted too: they do not depend on the
machine.
"""

import argparse
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

import maxmargin as mm
from benchmarks.common import Floats, clocks, parser, run, say, span, timed
from benchmarks.race import TARGET, take_turns
from benchmarks.reporting import Bars, Panel, Report, Row
from benchmarks.sequences import fit, letters
from maxmargin.structures.chain.inference import viterbi
from maxmargin.structures.chain.oracle import Layout

OURS, DLIB = "ours", "dlib"
NOT_INSTALLED = "not installed: pip install dlib"
TOLERANCES = {
    OURS: (0.1, 0.05, 0.02, 0.01, 5e-3, 2e-3, 1e-3, 5e-4, 2e-4),
    DLIB: (1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4),
}
"""Ours are relative gaps, dlib's an absolute distance of the mean hinge from its optimum."""


# Problems in plain Python, around compiled searches


class Words(mm.Problem):
    """Chains of labels: an input is an array of feature rows, an output an array of labels."""

    def __init__(self, n_features: int, n_labels: int) -> None:
        self.layout = Layout.of(n_features, n_labels, bias=False, ends=False)
        self.searches = 0

    def joint_feature(self, x: Floats, y: NDArray[Any]) -> Floats:
        layout = self.layout
        table = np.zeros((layout.n_rows, layout.n_columns))
        np.add.at(table.T, y, np.pad(x, ((0, 0), (0, layout.n_rows - layout.n_features))))
        np.add.at(table, (layout.transitions + y[:-1], y[1:]), 1.0)
        return table.ravel()

    def loss(self, truth: NDArray[Any], y: NDArray[Any]) -> float:
        return float(np.count_nonzero(truth != y))

    def inference(self, x: Floats, w: Floats) -> NDArray[Any]:
        return self._best(x, w, np.zeros((len(x), self.layout.n_columns)))

    def loss_augmented_inference(self, x: Floats, truth: NDArray[Any], w: Floats) -> NDArray[Any]:
        self.searches += 1
        wrong = np.ones((len(x), self.layout.n_columns))
        wrong[np.arange(len(x)), truth] = 0.0
        return self._best(x, w, wrong)

    def _best(self, x: Floats, w: Floats, added: Floats) -> NDArray[Any]:
        layout, table = self.layout, self.layout.table(w)
        nodes = x @ table[: layout.n_features] + added
        found = np.empty(len(x), dtype=np.uint16)
        pairs = np.ascontiguousarray(table[layout.transitions :])
        viterbi(nodes, pairs[None], layout.n_labels, found, np.empty_like(nodes))
        return found.astype(np.int64)


class Digits(mm.Problem):
    """Classes: an input is a row of features, an output a number."""

    def __init__(self, n_features: int, n_classes: int) -> None:
        self.shape = n_classes, n_features
        self.searches = 0

    def joint_feature(self, x: Floats, y: int) -> Floats:
        table = np.zeros(self.shape)
        table[y] = x
        return table.ravel()

    def loss(self, truth: int, y: int) -> float:
        return float(truth != y)

    def inference(self, x: Floats, w: Floats) -> int:
        return int(np.argmax(w.reshape(self.shape) @ x))

    def loss_augmented_inference(self, x: Floats, truth: int, w: Floats) -> int:
        self.searches += 1
        scores = w.reshape(self.shape) @ x + 1.0
        scores[truth] -= 1.0
        return int(np.argmax(scores))


class Case(NamedTuple):
    """A problem with its examples, C, and the optimal value."""

    name: str
    problem: Any
    X: list[Any]
    Y: list[Any]
    C: float
    optimum: float

    def value(self, w: Floats) -> float:
        """Objective at `w`, by an oracle call for each example."""
        hinges = 0.0
        for x, truth in zip(self.X, self.Y, strict=True):
            y = self.problem.loss_augmented_inference(x, truth, w)
            gain = self.problem.joint_feature(x, y) - self.problem.joint_feature(x, truth)
            hinges += self.problem.loss(truth, y) + float(gain @ w)
        return 0.5 * float(w @ w) + self.C * hinges


def words(quick: bool) -> Case:
    some = letters("ocr", quick).train.first(15 if quick else 200)
    model = fit(some, C=0.1, fit_intercept=False, fit_ends=False, tol=1e-6, max_iter=10**6)
    ends = np.cumsum(some.lengths)[:-1]
    X = np.split(np.asarray(some.X.toarray(), dtype=np.float64), ends)
    Y = np.split(some.y.astype(np.int64), ends)
    problem = Words(X[0].shape[1], int(some.y.max()) + 1)
    return Case("words", problem, X, Y, 0.1, model.certificate_.dual)


def digits(quick: bool) -> Case:
    X, y = load_digits(return_X_y=True)
    X, y = X[: 60 if quick else 600] / 16, y[: 60 if quick else 600]
    model = mm.LinearClassifier(C=1.0, fit_intercept=False, tol=1e-6, max_iter=10**6).fit(X, y)
    return Case("digits", Digits(64, 10), list(X), y.tolist(), 1.0, model.certificate_.dual)


# Trainers


class ForDlib:
    """A problem as dlib asks for it: see python_examples/svm_struct.py of dlib."""

    def __init__(self, case: Case, epsilon: float) -> None:
        self.case, self.epsilon = case, epsilon
        self.num_samples = len(case.X)
        self.C = case.C * self.num_samples  # dlib takes the mean of the hinges
        self.num_dimensions = len(self._feature(0, case.Y[0]))

    def get_truth_joint_feature_vector(self, i: int) -> Any:
        """Features of an example with its true output."""
        return _sparse(self._feature(i, self.case.Y[i]))

    def separation_oracle(self, i: int, solution: Any) -> tuple[float, Any]:
        """Loss and features of the most violating output."""
        weights = np.fromiter(solution, np.float64, len(solution))
        problem, truth = self.case.problem, self.case.Y[i]
        y = problem.loss_augmented_inference(self.case.X[i], truth, weights)
        return problem.loss(truth, y), _sparse(self._feature(i, y))

    def _feature(self, i: int, y: Any) -> Floats:
        feature: Floats = self.case.problem.joint_feature(self.case.X[i], y)
        return feature


def _sparse(feature: Floats) -> Any:
    import dlib

    result = dlib.sparse_vector()
    places = np.flatnonzero(feature)
    pairs = zip(places.tolist(), feature[places].tolist(), strict=True)
    result.extend([dlib.pair(place, value) for place, value in pairs])
    return result


def train_dlib(case: Case, epsilon: float) -> Floats:
    """Weights by dlib."""
    import dlib

    found = dlib.solve_structural_svm_problem(ForDlib(case, epsilon))
    weights = np.zeros(len(case.problem.joint_feature(case.X[0], case.Y[0])))
    values = np.fromiter(found, np.float64, len(found))
    weights[: len(values)] = values
    return weights


def train_ours(case: Case, tol: float) -> Floats:
    """Weights by the default solver, through the same methods."""
    weights: Floats = mm.StructuredSVM(case.problem, C=case.C, tol=tol).fit(case.X, case.Y).weights_
    return weights


TRAINERS: dict[str, Callable[[Case, float], Floats]] = {OURS: train_ours, DLIB: train_dlib}


# The comparison


def compete(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """Tolerances that each needs, then times and oracle calls with them."""
    trainers = {
        name: train for name, train in TRAINERS.items() if name == OURS or find_spec("dlib")
    }
    searches: dict[str, list[dict[str, float]]] = {}
    for name, train in trainers.items():
        trials = searches[name] = []
        for tolerance in TOLERANCES[name][:: 3 if options.quick else 1]:
            before = case.problem.searches
            one = timed(partial(train, case, tolerance))
            asked = case.problem.searches - before
            excess = (case.value(one.answer) - case.optimum) / case.optimum
            say(f"{case.name}, {name}, {tolerance:g}: {excess:.2e}, {one.seconds:.3g} s, {asked}")
            trials.append(
                {
                    "tolerance": tolerance,
                    "seconds": one.seconds,
                    "searches": asked,
                    "excess": excess,
                }
            )
            if excess <= TARGET or one.seconds > options.limit:
                break
    works = {
        name: partial(trainers[name], case, trials[-1]["tolerance"])
        for name, trials in searches.items()
        if trials[-1]["excess"] <= TARGET
    }
    runs = take_turns(works, options.repeats, options.limit)
    return {
        name: {"search": trials, **clocks(runs.get(name, []))} for name, trials in searches.items()
    }


def rows(name: str, found: dict[str, Any]) -> list[Row]:
    """Time and oracle calls beside dlib's."""
    ours, theirs = found[OURS], found.get(DLIB)
    mine, count = span(ours["seconds"]), int(ours["search"][-1]["searches"])
    titles = f"{name}, time to 1e-3 of the optimum", f"{name}, oracle calls"
    if theirs is None:
        return [
            Row(titles[0], ">= 1x", mine, NOT_INSTALLED),
            Row(titles[1], "<= dlib's", f"{count:,}", NOT_INSTALLED),
        ]
    last = theirs["search"][-1]
    arrived = bool(theirs["seconds"])
    least = min(theirs["seconds"]) if arrived else last["seconds"]
    ratio = least / min(ours["seconds"])
    text = (
        f"dlib {span(theirs['seconds'])}, epsilon {last['tolerance']:g}"
        if arrived
        else f"dlib not reached: {last['excess']:.1e} after {last['seconds']:.3g} s"
    )
    more = "" if arrived else ">= "
    peer = int(last["searches"])
    return [
        Row(titles[0], ">= 1x", f"{more}{ratio:.2f}x ({mine})", text, ratio >= 1.0),
        Row(titles[1], "<= dlib's", f"{count:,}", f"{more}{peer:,}", count <= peer),
    ]


def measure(options: argparse.Namespace) -> Report:
    report = Report()
    times: dict[str, dict[str, float]] = {}
    for case in (words(options.quick), digits(options.quick)):
        train_ours(case, 0.5)  # compiles, or loads what is compiled
        found = compete(case, options)
        report.rows += rows(case.name, found)
        report.details[case.name] = {"examples": len(case.X), "optimum": case.optimum, **found}
        curves = {
            name: (
                [trial["searches"] for trial in each["search"]],
                [max(trial["excess"], 1e-7) for trial in each["search"]],
            )
            for name, each in found.items()
        }
        report.panels[case.name] = Panel(curves, "searches", "objective above the optimum")
        times[case.name] = {
            name: min(each["seconds"]) for name, each in found.items() if each["seconds"]
        }
    report.panels["Within 1e-3 of the optimum"] = Bars(times, "seconds", "log")
    report.notes.append(
        "Both pay Python for each oracle call. dlib also pays for handing vectors over to it, "
        "entry by "
        "entry; its C++ interface, which does not, is out of reach from here."
    )
    return report


if __name__ == "__main__":
    arguments = parser(__doc__, repeats=3)
    arguments.add_argument(
        "--limit", type=float, default=40.0, help="seconds after which nothing tighter is tried"
    )
    run(arguments, measure)
