"""Right problems in plain Python, and mistakes that people make in writing them.

A mistake is a function that takes a right problem and makes it wrong, whatever it is about: it
wraps its methods. `changes_maximum` says whether loss-augmented inference then misses a maximum,
so that a certificate would be false.
"""

from itertools import product

import numpy as np
from scipy.optimize import linear_sum_assignment

import maxmargin as mm


class FourClasses(mm.Problem):
    def joint_feature(self, x, y):
        return np.outer(np.arange(4) == y, x).ravel()

    def loss(self, y_true, y):
        return float(abs(y_true - y))

    def inference(self, x, w):
        return int(np.argmax(w.reshape(4, -1) @ x))

    def loss_augmented_inference(self, x, y_true, w):
        return int(np.argmax(w.reshape(4, -1) @ x + np.abs(np.arange(4) - y_true)))


class Chain(mm.Problem):
    """Labels of a sequence, by Viterbi."""

    n_labels = 3

    def joint_feature(self, x, y):
        labels = np.eye(self.n_labels)[list(y)]
        return np.r_[(labels.T @ x).ravel(), (labels[:-1].T @ labels[1:]).ravel()]

    def loss(self, y_true, y):
        return float(sum(a != b for a, b in zip(y_true, y, strict=True)))

    def inference(self, x, w):
        return self._viterbi(x, w, np.zeros((len(x), self.n_labels)))

    def loss_augmented_inference(self, x, y_true, w):
        wrong = np.ones((len(x), self.n_labels))
        wrong[np.arange(len(x)), list(y_true)] = 0.0
        return self._viterbi(x, w, wrong)

    def _viterbi(self, x, w, extra):
        k = self.n_labels
        nodes = x @ w[: -k * k].reshape(k, -1).T + extra
        edges = w[-k * k :].reshape(k, k)
        best, back = nodes[0], []
        for node in nodes[1:]:
            ways = best[:, None] + edges
            back.append(ways.argmax(axis=0))
            best = ways.max(axis=0) + node
        path = [int(best.argmax())]
        for step in reversed(back):
            path.append(int(step[path[-1]]))
        return tuple(reversed(path))


class LabelSet(mm.Problem):
    """Any set of five labels, as an array of zeros and ones."""

    def joint_feature(self, x, y):
        return np.outer(y, x).ravel()

    def loss(self, y_true, y):
        return float(np.sum(y_true != y))

    def inference(self, x, w):
        return (w.reshape(5, -1) @ x > 0).astype(float)

    def loss_augmented_inference(self, x, y_true, w):
        return (w.reshape(5, -1) @ x + 1.0 - 2.0 * y_true > 0).astype(float)


class Matching(mm.Problem):
    def joint_feature(self, x, y):
        return x[np.arange(len(y)), y].sum(axis=0)

    def loss(self, y_true, y):
        return float(np.sum(y_true != y))

    def inference(self, x, w):
        return linear_sum_assignment(x @ w, maximize=True)[1]

    def loss_augmented_inference(self, x, y_true, w):
        scores = x @ w + 1.0
        scores[np.arange(len(y_true)), y_true] -= 1.0
        return linear_sum_assignment(scores, maximize=True)[1]


class Selection(mm.Problem):
    """At most three rows of a matrix, which can be listed."""

    def joint_feature(self, x, y):
        return x[sorted(y)].sum(axis=0)

    def loss(self, y_true, y):
        return float(len(y_true ^ y))

    def outputs(self, x):
        flags = product([False, True], repeat=len(x))
        chosen = (frozenset(np.flatnonzero(some).tolist()) for some in flags)
        return [some for some in chosen if len(some) <= 3]

    def inference(self, x, w):
        return self._best(x @ w)

    def loss_augmented_inference(self, x, y_true, w):
        return self._best(x @ w + [-1.0 if i in y_true else 1.0 for i in range(len(x))])

    def _best(self, gains):
        return frozenset(i for i in np.argsort(-gains)[:3].tolist() if gains[i] > 0)


def class_data(random, n):
    X = random.normal(size=(n, 3))
    return list(X), (X @ random.normal(size=(3, 4))).argmax(axis=1).tolist()


def chain_data(random, n):
    table = random.normal(size=(2, 3))
    X = [random.normal(size=(random.integers(2, 6), 2)) for _ in range(n)]
    noise = [0.5 * random.normal(size=(len(x), 3)) for x in X]
    return X, [
        tuple((x @ table + e).argmax(axis=1).tolist()) for x, e in zip(X, noise, strict=True)
    ]


def set_data(random, n):
    X = random.normal(size=(n, 3))
    return list(X), list((X @ random.normal(size=(3, 5)) > 0).astype(float))


def matching_data(random, n):
    weights = random.normal(size=4)
    X = [random.normal(size=(m, m, 4)) for m in random.integers(3, 6, n)]
    noisy = [x + 0.3 * random.normal(size=x.shape) for x in X]
    return X, [Matching().inference(x, weights) for x in noisy]


def selection_data(random, n):
    weights = random.normal(size=4)
    X = [random.normal(size=(5, 4)) for _ in range(n)]
    return X, [Selection().inference(x + 0.3 * random.normal(size=x.shape), weights) for x in X]


RIGHT = {
    "classes": (FourClasses, class_data),
    "chain": (Chain, chain_data),
    "label set": (LabelSet, set_data),
    "matching": (Matching, matching_data),
    "selection": (Selection, selection_data),
}


def made(name, seed, n=40):
    """A right problem with data."""
    problem, data = RIGHT[name]
    return problem(), *data(np.random.default_rng(seed), n)


class Wrapped:
    """A problem with some methods in place of its own."""

    def __init__(self, right):
        self.right = right
        if hasattr(right, "outputs"):
            self.outputs = right.outputs

    def joint_feature(self, x, y):
        return self.right.joint_feature(x, y)

    def loss(self, y_true, y):
        return self.right.loss(y_true, y)

    def inference(self, x, w):
        return self.right.inference(x, w)

    def loss_augmented_inference(self, x, y_true, w):
        return self.right.loss_augmented_inference(x, y_true, w)

    def value(self, x, y_true, y, w):
        return self.right.joint_feature(x, y) @ w + self.right.loss(y_true, y)


class SignOfLoss(Wrapped):
    """Score minus loss, among what can be found at all."""

    def loss_augmented_inference(self, x, y_true, w):
        found = [
            y_true,
            self.right.inference(x, w),
            self.right.loss_augmented_inference(x, y_true, w),
        ]
        return max(found, key=lambda y: self.joint_feature(x, y) @ w - self.loss(y_true, y))


class TruthAlways(Wrapped):
    def loss_augmented_inference(self, x, y_true, w):
        return y_true


class LossLeftOut(Wrapped):
    def loss_augmented_inference(self, x, y_true, w):
        return self.right.inference(x, w)


class LossTooLarge(Wrapped):
    """Loss counts three times in the inference, and once in the loss."""

    def loss_augmented_inference(self, x, y_true, w):
        return self.right.loss_augmented_inference(x, y_true, w / 3.0)


class Lowest(Wrapped):
    """A minimum instead of a maximum."""

    def loss_augmented_inference(self, x, y_true, w):
        return self.right.loss_augmented_inference(x, y_true, -w)


class LowestDecoded(Wrapped):
    changes_maximum = False

    def inference(self, x, w):
        return self.right.inference(x, -w)


class OffByOne(Wrapped):
    """The next of the outputs, in some order that they have."""

    def loss_augmented_inference(self, x, y_true, w):
        return shifted(self.right.loss_augmented_inference(x, y_true, w), x)


class FirstNeverFound(Wrapped):
    """Answers that hold the first label, or item, are replaced by another that was found."""

    def loss_augmented_inference(self, x, y_true, w):
        found = self.right.loss_augmented_inference(x, y_true, w)
        return y_true if holds_first(found) else found


class StaleWeights(Wrapped):
    """The weights of the call before."""

    before = None

    def loss_augmented_inference(self, x, y_true, w):
        used, self.before = self.before, w.copy()
        return self.right.loss_augmented_inference(x, y_true, w if used is None else used)


class FirstWeights(Wrapped):
    """The weights of the first call, for ever."""

    first = None

    def loss_augmented_inference(self, x, y_true, w):
        self.first = w.copy() if self.first is None else self.first
        return self.right.loss_augmented_inference(x, y_true, self.first)


class WrongExample(Wrapped):
    """Features of an input that came before, of the same shape."""

    def __init__(self, right):
        super().__init__(right)
        self.before = {}

    def loss_augmented_inference(self, x, y_true, w):
        used = self.before.get(np.shape(x), x)
        self.before[np.shape(x)] = x
        return self.right.loss_augmented_inference(used, y_true, w)


class TruthCosts(Wrapped):
    changes_maximum = False  # the same for all outputs; a fit refuses it if it sees it

    def loss(self, y_true, y):
        return self.right.loss(y_true, y) + 0.5


class NegativeLoss(Wrapped):
    def loss(self, y_true, y):
        return -self.right.loss(y_true, y)


class LossAnother(Wrapped):
    """Inference knows another loss."""

    def loss(self, y_true, y):
        return self.right.loss(y_true, y) ** 2 + 3.0 * holds_first(y) * (
            self.right.loss(y_true, y) > 0
        )


class RandomFeatures(Wrapped):
    changes_maximum = False  # there is none

    def __init__(self, right):
        super().__init__(right)
        self.random = np.random.default_rng(0)

    def joint_feature(self, x, y):
        features = self.right.joint_feature(x, y)
        return features + 0.1 * self.random.normal(size=len(features))


class FeaturesOfWeights(Wrapped):
    """Features that change with the weights of the last inference."""

    changes_maximum = False

    scale = 1.0

    def loss_augmented_inference(self, x, y_true, w):
        self.scale = 1.0 + float(np.abs(w).max())
        return self.right.loss_augmented_inference(x, y_true, w)

    def joint_feature(self, x, y):
        return self.scale * self.right.joint_feature(x, y)


class SignOfFeatures(Wrapped):
    """Features of another sign than those that inferences use."""

    def joint_feature(self, x, y):
        return -self.right.joint_feature(x, y)


class RandomAnswers(Wrapped):
    """Now and then something else."""

    def __init__(self, right):
        super().__init__(right)
        self.random = np.random.default_rng(0)

    def loss_augmented_inference(self, x, y_true, w):
        if self.random.random() < 0.5:
            return self.right.inference(x, self.random.normal(size=len(w)))
        return self.right.loss_augmented_inference(x, y_true, w)


class SometimesNaN(Wrapped):
    def joint_feature(self, x, y):
        features = np.array(self.right.joint_feature(x, y), dtype=float)
        if holds_first(y):
            features[0] = np.nan
        return features


class RaisesForSome(Wrapped):
    def loss_augmented_inference(self, x, y_true, w):
        if holds_first(y_true):
            raise KeyError("no such label")
        return self.right.loss_augmented_inference(x, y_true, w)


MISTAKES = [
    SignOfLoss, TruthAlways, LossLeftOut, LossTooLarge, Lowest, LowestDecoded, OffByOne,
    FirstNeverFound, StaleWeights, FirstWeights, WrongExample, TruthCosts, NegativeLoss,
    LossAnother, RandomFeatures, FeaturesOfWeights, SignOfFeatures, RandomAnswers, SometimesNaN,
    RaisesForSome,
]  # fmt: skip


def changes_maximum(mistake):
    """Whether loss-augmented inference misses a maximum by it, or breaks its contract openly."""
    return getattr(mistake, "changes_maximum", True)


def shifted(y, x):
    """Another output of the same input."""
    if isinstance(y, int):
        return (y + 1) % 4
    if isinstance(y, tuple):
        return tuple((label + 1) % 3 for label in y)
    if isinstance(y, frozenset):
        return frozenset((i + 1) % len(x) for i in y)
    return np.roll(y, 1)


def holds_first(y):
    """Whether an output holds label 0, or puts the first item in the first place."""
    if isinstance(y, int):
        return y == 0
    if isinstance(y, (tuple, frozenset)):
        return 0 in y
    return y[0] == 1.0 if y.dtype == float else bool(y[0] == 0)


class RandomTies(Wrapped):
    """Right: of outputs that are equally good, now this one and now that."""

    def __init__(self, right):
        super().__init__(right)
        self.random = np.random.default_rng(0)

    def inference(self, x, w):
        return self.right.inference(x, w + 1e-12 * self.random.normal(size=len(w)))

    def loss_augmented_inference(self, x, y_true, w):
        return self.right.loss_augmented_inference(
            x, y_true, w + 1e-12 * self.random.normal(size=len(w))
        )


class SinglePrecision(Wrapped):
    """Right: up to rounding."""

    def joint_feature(self, x, y):
        return np.asarray(self.right.joint_feature(x, y), dtype=np.float32)

    def inference(self, x, w):
        return self.right.inference(x.astype(np.float32), w.astype(np.float32))

    def loss_augmented_inference(self, x, y_true, w):
        return self.right.loss_augmented_inference(
            x.astype(np.float32), y_true, w.astype(np.float32)
        )
