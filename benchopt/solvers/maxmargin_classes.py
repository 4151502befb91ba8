"""maxmargin's sequential dual method, for plain classes (Crammer-Singer)."""

import warnings

import numpy as np

from benchopt import BaseSolver
from maxmargin import LinearClassifier


class Solver(BaseSolver):
    """Sampled by its tolerance, a relative duality gap."""

    name = "maxmargin-sequential-dual"
    requirements = ["pip::maxmargin"]
    sampling_strategy = "tolerance"

    def skip(self, lengths, n_labels, **objective):
        """Only for three classes or more, without structure."""
        if lengths.max() > 1:
            return True, "is for plain classes, not for sequences"
        return (True, "takes two classes as one hinge") if n_labels < 3 else (False, None)

    def set_objective(self, X, y, lengths, C, n_labels):
        """Keep what to train on."""
        self.X, self.y, self.n_labels = X, y, n_labels
        self.model = LinearClassifier(C, fit_intercept=False, max_iter=10**6)

    def warm_up(self):
        """Compile, or load what is compiled."""
        self.run(1.0)

    def run(self, tolerance):
        """Train to a gap."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.model.set_params(tol=min(tolerance, 1.0)).fit(self.X, self.y)

    def get_result(self):
        """Weights, and the dual value of the certificate."""
        emissions = np.zeros((self.X.shape[1], self.n_labels))
        emissions[:, self.model.classes_] = self.model.coef_.T
        transitions = np.zeros((self.n_labels, self.n_labels))
        dual = self.model.certificate_.dual
        return {"emissions": emissions, "transitions": transitions, "dual": dual}
