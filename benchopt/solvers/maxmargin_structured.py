"""maxmargin: all its solvers of structured problems, on its compiled chains."""

import warnings

import numpy as np

from benchopt import BaseSolver
from maxmargin import SequenceTagger


class Solver(BaseSolver):
    """Sampled by rounds, whatever a solver calls a round."""

    name = "maxmargin"
    requirements = ["pip::maxmargin"]
    sampling_strategy = "iteration"
    parameters = {
        "solver": [
            "auto",
            "one-slack",
            "n-slack",
            "dual-coordinate",
            "frank-wolfe",
            "partial-linearization",
        ]
    }
    test_config = {"solver": "auto"}

    def set_objective(self, X, y, lengths, C, n_labels):
        """Keep what to train on."""
        self.X, self.y, self.lengths, self.n_labels = X, y, lengths, n_labels
        self.tagger = SequenceTagger(
            C, solver=self.solver, fit_intercept=False, fit_ends=False, tol=1e-8
        )

    def warm_up(self):
        """Compile, or load what is compiled."""
        self.run(1)

    def run(self, n_iter):
        """Train for so many rounds."""
        self.model = None
        if n_iter > 0:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that it stops before its tolerance
                self.tagger.set_params(max_iter=n_iter)
                self.model = self.tagger.fit(self.X, self.y, lengths=self.lengths)

    def get_result(self):
        """Weights, and the dual value of the certificate."""
        k = self.n_labels
        emissions, transitions = np.zeros((self.X.shape[1], k)), np.zeros((k, k))
        if self.model is None:
            return {"emissions": emissions, "transitions": transitions, "dual": 0.0}
        seen = self.model.classes_
        emissions[:, seen] = self.model.coef_.T
        transitions[np.ix_(seen, seen)] = self.model.transitions_
        dual = self.model.certificate_.dual
        return {"emissions": emissions, "transitions": transitions, "dual": dual}
