"""Ordered classes: abalone rings closer by ordinal hinge than by rounded regression or classes.

UCI's abalone: the first 3,133 shells to train on, the last 1,044 to test on, 29 possible numbers
of rings. `OrdinalClassifier` is compared with our `LinearRegressor`, rounded, with our
`LinearClassifier` and with scikit-learn's LinearSVC on the same standardised features. C is chosen
from four values on a random quarter of the training rows, for each model alike, by the error that
counts: the mean distance from the true number. Times are of one fit on all training rows.
"""

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes
from sklearn.svm import LinearSVC

import maxmargin as mm
from benchmarks.common import clocks, parser, run
from benchmarks.label_data import Choice, Labelled, abalone, choose
from benchmarks.reporting import Bars, Report, Row
from maxmargin.structures.ordinal.estimator import OrdinalClassifier

CS = (0.001, 0.01, 0.1, 1.0)


class Rounded:
    """A regressor that answers whole numbers."""

    def __init__(self, regressor: Any, classes: NDArray[Any]) -> None:
        self.regressor, self.classes = regressor, classes

    def fit(self, X: Any, y: Any) -> "Rounded":
        """Train the regressor."""
        self.regressor.fit(X, y.astype(float))
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The closest class."""
        numbers = np.clip(np.rint(self.regressor.predict(X)), self.classes[0], self.classes[-1])
        return np.asarray(numbers, dtype=int)


def absolute(truth: Any, found: Any) -> float:
    return float(np.abs(truth - found).mean())


def squared(truth: Any, found: Any) -> float:
    return float(((truth - found) ** 2).mean())


def load(quick: bool) -> Labelled:
    if not quick:
        return abalone()
    X, y = load_diabetes(return_X_y=True)
    X, y = X / X.std(axis=0), np.digitize(y, np.quantile(y, [0.2, 0.4, 0.6, 0.8]))
    return Labelled(X[:300], y[:300], X[300:], y[300:])


def measure(options: argparse.Namespace) -> Report:
    data = load(options.quick)
    every = np.concatenate([data.y_train, data.y_test])
    classes = np.arange(every.min(), every.max() + 1)
    makers: dict[str, Any] = {
        "OrdinalClassifier": lambda C: OrdinalClassifier(C=C, classes=classes, tol=1e-3),
        "OrdinalClassifier, squared loss": lambda C: OrdinalClassifier(
            C=C / 10, classes=classes, loss="squared", tol=1e-3
        ),
        "LinearRegressor, rounded": lambda C: Rounded(mm.LinearRegressor(C=C), classes),
        "LinearClassifier": lambda C: mm.LinearClassifier(C=C),
        "scikit-learn LinearSVC": lambda C: LinearSVC(C=C, max_iter=10_000),
    }
    warm = Labelled(*(part[:100] for part in data))
    found: dict[str, Choice] = {}
    for name, make in makers.items():
        make(1.0).fit(warm.X_train, warm.y_train)  # compiles, or loads what is compiled
        error = squared if "squared" in name else absolute
        found[name] = choose(name, make, CS, data, error)
    report = Report()
    errors = {
        name: absolute(data.y_test, choice.model.predict(data.X_test))
        for name, choice in found.items()
    }
    ours = errors["OrdinalClassifier"]
    for name, choice in found.items():
        predicted = choice.model.predict(data.X_test)
        text = f"{errors[name]:.3f}, squared {squared(data.y_test, predicted):.2f}"
        text += f" (C = {choice.C:g}, {choice.fit.seconds:.3g} s)"
        title = f"mean absolute error, {name}"
        if name.startswith("Ordinal"):
            report.rows.append(Row(title, "", text))
        else:
            report.rows.append(Row(title, ">= ours", f"{ours:.3f}", text, met=ours <= errors[name]))
        report.details[name] = clocks([choice.fit]) | {"C": choice.C, "error": errors[name]}
    gap = found["OrdinalClassifier"].model.certificate_.relative_gap
    report.rows.append(Row("relative gap", "<= 1e-3", f"{gap:.1e}", met=gap <= 1e-3))
    steps = np.diff(found["OrdinalClassifier"].model.thresholds_)
    report.rows.append(Row("smallest step between thresholds", "", f"{steps.min():.2g}"))
    report.panels = {
        "Mean absolute error": Bars({"test rows": errors}, "rings"),
        "One fit": Bars({"": {name: each.fit.seconds for name, each in found.items()}}, "s", "log"),
    }
    best = min((name for name in errors if not name.startswith("Ordinal")), key=errors.__getitem__)
    report.notes.append(
        f"The closest of the others, {best}, is {errors[best] / ours - 1:.1%} further from the "
        f"truth. Plain classes do not know that 9 is nearer to 10 than 3 is."
    )
    return report


if __name__ == "__main__":
    run(parser(__doc__), measure)
