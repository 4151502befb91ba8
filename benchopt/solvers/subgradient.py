"""Stochastic subgradients in plain numpy (Pegasos): the baseline that anybody can write."""

import numpy as np
from benchmark_utils.chains import features, search

from benchopt import BaseSolver


class Solver(BaseSolver):
    """Small batches, steps of 1 / (lambda t); the average counts later weights more."""

    name = "Subgradient"
    requirements = ["numpy"]
    sampling_strategy = "callback"
    parameters = {"batch": [10]}

    def set_objective(self, X, y, lengths, C, n_labels):
        """Keep what to train on."""
        self.X, self.y, self.lengths, self.n_labels = X, y, lengths, n_labels
        self.strength = 1.0 / (C * len(lengths))
        self.seed = self.get_seed(use_repetition=True)

    def run(self, callback):
        """A pass over all sequences between two callbacks."""
        random = np.random.default_rng(self.seed)
        n, n_features = len(self.lengths), self.X.shape[1]
        starts = np.cumsum(self.lengths) - self.lengths
        weights = [np.zeros((n_features, self.n_labels)), np.zeros((self.n_labels, self.n_labels))]
        self.average = [part.copy() for part in weights]
        t = 0
        while callback():
            order = random.permutation(n)
            for some in np.array_split(order, max(n // self.batch, 1)):
                t += 1
                rows = np.concatenate(
                    [np.arange(starts[i], starts[i] + self.lengths[i]) for i in some]
                )
                batch = self.X[rows], self.y[rows], self.lengths[some]
                slopes = self._slopes(weights, *batch)
                for part, slope, mean in zip(weights, slopes, self.average, strict=True):
                    part *= 1.0 - 1.0 / t
                    part += slope / (self.strength * t * len(some))
                    mean += 2.0 / (t + 1) * (part - mean)

    def _slopes(self, weights, X, y, lengths):
        """Features of the truth less those of the most violating labels, summed."""
        found = search(X, lengths, *weights, truth=y)
        truth, worst = (features(X, labels, lengths, self.n_labels) for labels in (y, found))
        return [right - wrong for right, wrong in zip(truth, worst, strict=True)]

    def get_result(self):
        """The average."""
        return {"emissions": self.average[0], "transitions": self.average[1]}
