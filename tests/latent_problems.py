"""A small latent problem in plain Python, and its objective by trying every output."""

from itertools import product

import numpy as np

from maxmargin.core.latent import LatentProblem


class Instances(LatentProblem):
    """Classes of bags: the row ``h`` of the input stands in the place of the class ``y``.

    The background class, if there is one, has no features.
    """

    def __init__(self, matrix, background=-1):
        self.matrix, self.background = matrix, background

    def outputs(self, x):
        return list(product(range(len(self.matrix)), range(len(x))))

    def joint_feature(self, x, y, h):
        return np.kron(np.eye(len(self.matrix))[y] * (y != self.background), x[h])

    def loss(self, truth, y):
        return float(self.matrix[truth, y])

    def decode(self, x, w):
        return self._best(self._scores(x, w))

    def separate(self, x, truth, w):
        return self._best(self._scores(x, w) + self.matrix[truth][:, None])

    def complete(self, x, truth, w):
        return int(self._scores(x, w)[truth].argmax())

    def _scores(self, x, w):
        scores = w.reshape(len(self.matrix), -1) @ x.T
        if self.background >= 0:
            scores[self.background] = 0.0
        return scores

    def _best(self, scores):
        y, h = np.unravel_index(scores.argmax(), scores.shape)
        return int(y), int(h)

    def initial(self, x, truth, random):
        return int(random.integers(len(x)))


class WrongInstances(Instances):
    """The same, with a search that leaves out the true class."""

    def separate_wrong(self, x, truth, w):
        scores = self._scores(x, w) + self.matrix[truth][:, None]
        scores[truth] = -np.inf
        return self._best(scores)


def objective(problem, X, Y, cost, w):
    """The objective that is not convex, by trying every output."""
    total = 0.5 * float(w @ w)
    for x, truth, c in zip(X, Y, cost, strict=True):
        pairs = problem.outputs(x)
        scores = [problem.joint_feature(x, *pair) @ w for pair in pairs]
        violation = max(
            problem.loss(truth, y) + score for (y, _), score in zip(pairs, scores, strict=True)
        )
        own = max(score for (y, _), score in zip(pairs, scores, strict=True) if y == truth)
        total += c * (violation - own)
    return total


def random_bags(seed, *, n=12, d=3, k=3, most=4):
    """Bags of one to `most` rows; one of them leans towards the class."""
    random = np.random.default_rng(seed)
    Y = random.permutation(np.arange(n) % k)
    X = []
    for y in Y:
        x = random.normal(size=(random.integers(1, most + 1), d))
        x[random.integers(len(x)), y % d] += 2.0
        X.append(x)
    return X, Y
