"""Sequences made by a hidden Markov chain with Gaussian emissions."""

import numpy as np

from benchopt import BaseDataset


class Dataset(BaseDataset):
    """Labels follow a sticky chain; each label has a centre, and rows lie around it."""

    name = "Simulated"
    requirements = ["numpy"]
    parameters = {
        "n_sequences": [200],
        "n_features": [20],
        "n_labels": [8],
        "noise": [1.5],
    }
    test_parameters = {"n_sequences": [30], "n_features": [5], "n_labels": [3]}

    def get_data(self):
        """Training and test sequences of two to ten rows."""
        random = np.random.default_rng(self.get_seed(use_repetition=False))
        k = self.n_labels
        centres = random.normal(size=(k, self.n_features))
        moves = random.dirichlet(np.full(k, 0.3), size=k)
        train = self._draw(random, centres, moves)
        test = self._draw(random, centres, moves)
        names = ("X", "y", "lengths", "X_test", "y_test", "lengths_test")
        return dict(zip(names, (*train, *test), strict=True))

    def _draw(self, random, centres, moves):
        lengths = random.integers(2, 11, size=self.n_sequences)
        labels = []
        for length in lengths:
            label = random.integers(self.n_labels)
            for _ in range(length):
                labels.append(label)
                label = random.choice(self.n_labels, p=moves[label])
        y = np.array(labels)
        X = centres[y] + self.noise * random.normal(size=(len(y), self.n_features))
        return X / np.sqrt(self.n_features), y, lengths
