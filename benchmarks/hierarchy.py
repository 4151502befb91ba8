"""Class trees: shorter paths from the true class than flat classes with the same features.

20 Newsgroups with the two levels of their names (comp, rec, ...), and X-ray images (ImCLEF07,
parts A and D), whose tree has three levels. The tree loss is the length of the path from the true
class to the answer. `HierarchicalClassifier` trains for it by margin rescaling and by slack
rescaling; "flat" is our `LinearClassifier` (Crammer-Singer) on the same features. C is chosen by
the tree loss on a random quarter of the training rows, for each model alike; then each trains once
on all of them, to a certified gap of 1e-3.
"""

import argparse
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import maxmargin as mm
from benchmarks.common import clocks, parser, run
from benchmarks.label_data import GROUPS, Choice, Labelled, choose, images, newsgroups
from benchmarks.reporting import Bars, Report, Row
from maxmargin.structures.taxonomy.estimator import HierarchicalClassifier
from maxmargin.structures.taxonomy.problem import Taxonomy

FLAT, TREE, SLACK = KINDS = "flat", "tree", "tree, slack"
DATA = {"20news": (0.3, 1.0, 3.0), "imclef07a": (0.1, 1.0), "imclef07d": (0.1, 1.0)}
"""Data sets, and the values of C to choose from."""


def load(name: str, quick: bool) -> tuple[Labelled, Any]:
    """A data set and its taxonomy."""
    if quick:
        X, y = load_digits(return_X_y=True)
        names = np.array([f"{'odd' if digit % 2 else 'even'}/{digit}" for digit in y])
        return Labelled(X[:300] / 16, names[:300], X[300:600] / 16, names[300:600]), "auto"
    if name == "20news":
        return newsgroups(), {group: group.split(".")[0] for group in GROUPS}
    return images(name[-1].upper()), "auto"


def measure_one(name: str, quick: bool, report: Report) -> None:
    data, taxonomy = load(name, quick)
    Cs = DATA[name][:1] if quick else DATA[name]
    classes = np.unique(np.concatenate([data.y_train, data.y_test])).tolist()
    numbers = {label: number for number, label in enumerate(classes)}
    lengths = Taxonomy.of(taxonomy, classes).distances()

    def tree_loss(truth: Any, found: Any) -> float:
        pairs = [(numbers[a], numbers[b]) for a, b in zip(truth, found, strict=True)]
        return float(lengths[tuple(np.transpose(pairs))].mean())

    def hierarchical(rescaling: str) -> Any:
        return lambda C: HierarchicalClassifier(
            C=C, taxonomy=taxonomy, rescaling=rescaling, tol=1e-3
        )

    makers = {
        FLAT: lambda C: mm.LinearClassifier(C=C),
        TREE: hierarchical("margin"),
        SLACK: hierarchical("slack"),
    }
    found: dict[str, Choice] = {}
    texts: dict[str, str] = {}
    losses: dict[str, float] = {}
    for kind, make in makers.items():
        choice = found[kind] = choose(f"{name}, {kind}", make, Cs, data, tree_loss)
        predicted = choice.model.predict(data.X_test)
        losses[kind] = tree_loss(data.y_test, predicted)
        right = 100 * float(np.mean(predicted == data.y_test))
        texts[kind] = f"{losses[kind]:.4f} ({right:.2f} % right, C = {choice.C:g})"
        report.details[f"{name}, {kind}"] = clocks([choice.fit]) | {
            "C": choice.C,
            "tree loss": losses[kind],
            "accuracy": right / 100,
            "gap": choice.model.certificate_.relative_gap,
        }
    for kind in (TREE, SLACK):
        met = losses[kind] < losses[FLAT]
        what = f"{name}, tree loss, {kind}"
        report.rows.append(Row(what, "< flat", texts[kind], texts[FLAT], met=met))
        gap = found[kind].model.certificate_.relative_gap
        seconds, flat = found[kind].fit.seconds, found[FLAT].fit.seconds
        reached = f"{gap:.1e} after {seconds:.3g} s"
        row = Row(f"{name}, gap, {kind}", "<= 1e-3", reached, f"{flat:.3g} s", met=gap <= 1e-3)
        report.rows.append(row)


def measure(options: argparse.Namespace) -> Report:
    report = Report()
    if options.quick:
        options.data = options.data[:1]
    for name in options.data:
        measure_one(name, options.quick, report)
    losses = {
        name: {kind: report.details[f"{name}, {kind}"]["tree loss"] for kind in KINDS}
        for name in options.data
    }
    report.panels["Tree loss of test rows"] = Bars(losses, "length of the path to the true output")
    missed = [name for name, each in losses.items() if min(each[TREE], each[SLACK]) >= each[FLAT]]
    for name in missed:
        kinds = {kind: report.details[f"{name}, {kind}"]["accuracy"] for kind in KINDS}
        shares = ", ".join(f"{kind} {share:.2%}" for kind, share in kinds.items())
        report.notes.append(
            f"On {name} the tree does not help: the flat model's answers are as near or nearer. "
            f"Classes right: {shares}."
        )
    return report


if __name__ == "__main__":
    run(parser(__doc__, list(DATA)), measure)
