"""dlib's structural SVM solver: cutting planes over the sum of all slacks."""

import dlib
import numpy as np
from benchmark_utils.chains import features, search

from benchopt import BaseSolver


class Solver(BaseSolver):
    """Sampled by its epsilon; searches in numpy, one sequence at a time, as its interface asks."""

    name = "dlib"
    requirements = ["pip::dlib"]
    sampling_strategy = "tolerance"

    def set_objective(self, X, y, lengths, C, n_labels):
        """Cut the rows into sequences."""
        X = X.toarray() if hasattr(X, "toarray") else X
        ends = np.cumsum(lengths)[:-1]
        self.rows, self.truths = np.split(X, ends), np.split(y, ends)
        self.shape, self.n_labels = (X.shape[1], n_labels), n_labels
        self.num_samples = len(lengths)
        self.num_dimensions = n_labels * (X.shape[1] + n_labels)
        self.C = C * len(lengths)  # dlib takes the mean of the hinges
        self.weights = np.zeros(self.num_dimensions)

    def run(self, tolerance):
        """Train until the mean hinge is within the tolerance of its optimum."""
        self.epsilon = min(tolerance, 1e3)
        solution = dlib.solve_structural_svm_problem(self)
        found = np.fromiter(solution, float, len(solution))
        self.weights = np.pad(found, (0, self.num_dimensions - len(found)))

    def get_result(self):
        """The weights as two matrices."""
        emissions, transitions = self._split(self.weights)
        return {"emissions": emissions, "transitions": transitions}

    def get_truth_joint_feature_vector(self, i):
        """Called by dlib."""
        return self._feature(i, self.truths[i])

    def separation_oracle(self, i, solution):
        """Called by dlib: the loss and the features of the most violating labels."""
        weights = self._split(np.fromiter(solution, float, len(solution)))
        length = np.array([len(self.truths[i])])
        found = search(self.rows[i], length, *weights, truth=self.truths[i])
        return float(np.count_nonzero(found != self.truths[i])), self._feature(i, found)

    def _split(self, weights):
        emissions, transitions = np.split(weights, [self.shape[0] * self.n_labels])
        return emissions.reshape(self.shape), transitions.reshape(self.n_labels, self.n_labels)

    def _feature(self, i, labels):
        parts = features(self.rows[i], labels, np.array([len(labels)]), self.n_labels)
        vector = np.concatenate([part.ravel() for part in parts])
        result = dlib.sparse_vector()
        result.extend([dlib.pair(int(j), float(vector[j])) for j in np.flatnonzero(vector)])
        return result
