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

    def loss(self, y_true, y):
        return float(self.matrix[y_true, y])

    def inference(self, x, w):
        return self._best(self._scores(x, w))

    def loss_augmented_inference(self, x, y_true, w):
        return self._best(self._scores(x, w) + self.matrix[y_true][:, None])

    def latent(self, x, y_true, w):
        return int(self._scores(x, w)[y_true].argmax())

    def _scores(self, x, w):
        scores = w.reshape(len(self.matrix), -1) @ x.T
        if self.background >= 0:
            scores[self.background] = 0.0
        return scores

    def _best(self, scores):
        y, h = np.unravel_index(scores.argmax(), scores.shape)
        return int(y), int(h)

    def init_latent(self, x, y_true, random):
        return int(random.integers(len(x)))


class WrongInstances(Instances):
    """The same, with a search that leaves out the true class."""

    def loss_augmented_inference_wrong(self, x, y_true, w):
        scores = self._scores(x, w) + self.matrix[y_true][:, None]
        scores[y_true] = -np.inf
        return self._best(scores)


def objective(problem, X, Y, C, w):
    """The objective that is not convex, by trying every output."""
    total = 0.5 * float(w @ w)
    for x, y_true, c in zip(X, Y, C, strict=True):
        pairs = problem.outputs(x)
        scores = [problem.joint_feature(x, *pair) @ w for pair in pairs]
        violation = max(
            problem.loss(y_true, y) + score for (y, _), score in zip(pairs, scores, strict=True)
        )
        own = max(score for (y, _), score in zip(pairs, scores, strict=True) if y == y_true)
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
