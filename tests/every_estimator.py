"""A small problem for every estimator that there is."""

from typing import Any, NamedTuple

import numpy as np

import maxmargin as mm
from maxmargin.core.kernel_oracle import Multiclass

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.normal(size=(24, 3))
LABELS = np.arange(24) % 3
ROWS[:, 0] += LABELS


class Case(NamedTuple):
    """An estimator with data that it can learn from.

    Parameters
    ----------
    model : estimator
    X, y : Any
    more : dict
        What else its methods are given.
    scale : callable
        X with a number in it multiplied by a factor; None if it has no numbers.
    labels : callable
        y with its labels replaced by those of a function of their number; None if it has none.
    """

    model: Any
    X: Any
    y: Any
    more: dict[str, Any] = {}
    scale: Any = None
    labels: Any = None


class Words(mm.Problem):
    """Classes as a problem that a user has written."""

    def joint_feature(self, x, y):
        table = np.zeros((3, len(x)))
        table[y] = x
        return table.ravel()

    def loss(self, y_true, y):
        return float(y_true != y)

    def inference(self, x, weights):
        return int(np.argmax(weights.reshape(3, -1) @ x))

    def loss_augmented_inference(self, x, y_true, weights):
        return int(np.argmax(weights.reshape(3, -1) @ x + (np.arange(3) != y_true)))

    def outputs(self, x):
        return range(3)


class Hidden(mm.LatentProblem):
    """The same with a sign that nobody has marked."""

    def joint_feature(self, x, y, h):
        return np.outer(np.arange(3) == y, h * np.asarray(x)).ravel()

    def loss(self, y_true, y):
        return float(y_true != y)

    def _best(self, x, weights, bonus, among=range(3)):
        pairs = [(y, h) for y in among for h in (1, -1)]
        return max(pairs, key=lambda p: self.joint_feature(x, *p) @ weights + bonus[p[0]])

    def inference(self, x, weights):
        return self._best(x, weights, np.zeros(3))

    def loss_augmented_inference(self, x, y_true, weights):
        return self._best(x, weights, 1.0 * (np.arange(3) != y_true))

    def latent(self, x, y_true, weights):
        return self._best(x, weights, np.zeros(3), [y_true])[1]

    def init_latent(self, x, y_true, random):
        return 1


def scaled_row(X, factor):
    X = np.array(X, dtype=np.float64)
    X[2, 1] *= factor
    return X


def scaled_list(X, factor):
    return [scaled_row(x, factor) if i == 1 else x for i, x in enumerate(X)]


def of_rows(make):
    return [make(k) for k in LABELS]


SEQUENCES = [ROWS[i : i + 4] for i in range(0, 24, 4)]
TAGS = [LABELS[i : i + 4] for i in range(0, 24, 4)]
EDGES = np.array([[0, 1], [1, 2], [2, 3]])
GRAPHS = [(rows, EDGES) for rows in SEQUENCES]
SETS = [{k} | ({0} if i % 2 else set()) for i, k in enumerate(LABELS.tolist())]
TREES = [
    "(S (NP (DT the) (NN dog)) (VP (VBZ barks)))",
    "(S (NP (NN cat)) (VP (VBZ sleeps) (NP (NN fish))))",
]
TAGGED = [[("Dogs", "NOUN"), ("bark", "VERB")], [("Go", "VERB"), ("now", "ADV")]]
HEADS = [([2, 0], ["subj", "root"]), ([0, 1], ["root", "mod"])]


def _image(x, y):
    down, right = np.mgrid[:16, :16] + 0.5
    return 1.0 * ((abs(right - x) < 3) & (abs(down - y) < 1))


POSES = np.array([[8.0, 8.0, 0.0], [6.0, 8.0, 0.1], [8.0, 9.0, 0.0]])

ROWS_CASE = {"scale": scaled_row, "labels": of_rows}

CASES = {
    "LinearClassifier": lambda: Case(mm.LinearClassifier(), ROWS, LABELS, **ROWS_CASE),
    "LinearRegressor": lambda: Case(mm.LinearRegressor(), ROWS, 1.0 * LABELS, scale=scaled_row),
    "HierarchicalClassifier": lambda: Case(
        mm.HierarchicalClassifier(taxonomy={"a": "top", "b": "top", "c": None}),
        ROWS,
        np.array(["a", "b", "c"])[LABELS],
        scale=scaled_row,
    ),
    "OrdinalClassifier": lambda: Case(mm.OrdinalClassifier(), ROWS, LABELS, **ROWS_CASE),
    "MultilabelClassifier": lambda: Case(
        mm.MultilabelClassifier(),
        ROWS,
        SETS,
        scale=scaled_row,
        labels=lambda make: [{make(k) for k in labels} for labels in SETS],
    ),
    "PerformanceClassifier": lambda: Case(
        mm.PerformanceClassifier(),
        ROWS,
        LABELS % 2,
        scale=scaled_row,
        labels=lambda make: [make(k % 2) for k in LABELS],
    ),
    "Ranker": lambda: Case(
        mm.Ranker(), ROWS, LABELS, {"groups": np.repeat(np.arange(6), 4)}, scale=scaled_row
    ),
    "SequenceTagger": lambda: Case(
        mm.SequenceTagger(),
        SEQUENCES,
        TAGS,
        scale=scaled_list,
        labels=lambda make: [[make(k) for k in tags] for tags in TAGS],
    ),
    "GraphLabeler": lambda: Case(
        mm.GraphLabeler(),
        GRAPHS,
        TAGS,
        scale=lambda X, factor: [X[0], (scaled_row(X[1][0], factor), EDGES), *X[2:]],
        labels=lambda make: [[make(k) for k in tags] for tags in TAGS],
    ),
    "StructuredSVM": lambda: Case(
        mm.StructuredSVM(Words()), list(ROWS), LABELS.tolist(), scale=scaled_row
    ),
    "KernelStructuredSVM": lambda: Case(
        mm.KernelStructuredSVM(Multiclass(), kernel="linear"), ROWS, LABELS, **ROWS_CASE
    ),
    "LatentStructuredSVM": lambda: Case(
        mm.LatentStructuredSVM(Hidden()), list(ROWS), LABELS.tolist(), scale=scaled_row
    ),
    "LatentClassifier": lambda: Case(
        mm.LatentClassifier(),
        [ROWS[[i, i]] + [[0.0], [0.1]] for i in range(24)],
        LABELS,
        scale=lambda X, factor: [
            x if i != 1 else x * np.array([[1, 1, factor]]) for i, x in enumerate(X)
        ],
        labels=of_rows,
    ),
    "GrammarParser": lambda: Case(mm.GrammarParser(), TREES, TREES),
    "DependencyParser": lambda: Case(
        mm.DependencyParser(labelled=True),
        TAGGED,
        HEADS,
        labels=lambda make: [(heads, [make(k) for k in range(2)]) for heads, _ in HEADS],
    ),
    "PoseEstimator": lambda: Case(
        mm.PoseEstimator(window=8, n_angles=4),
        [_image(x, y) for x, y, _ in POSES],
        POSES,
        scale=lambda X, factor: [scaled_row(x + 1.0, factor) for x in X],
    ),
    "LowRankKernel": lambda: Case(
        mm.LowRankKernel("linear", n_components=3), ROWS, None, scale=scaled_row
    ),
}


def estimators():
    """Names of all public classes with a method ``fit``."""
    return sorted(
        name
        for name in mm.__all__
        if isinstance(getattr(mm, name), type) and hasattr(getattr(mm, name), "fit")
    )
