"""LIBLINEAR's Crammer-Singer solver (-s 4), for plain classes."""

import numpy as np
import scipy.sparse as sp
from liblinear import liblinearutil

from benchopt import BaseSolver


class Solver(BaseSolver):
    """Sampled by its tolerance -e; features are converted outside the clock."""

    name = "LIBLINEAR"
    requirements = ["pip::liblinear-official"]
    sampling_strategy = "tolerance"

    def skip(self, lengths, **objective):
        """Only without structure."""
        return (True, "is for plain classes") if lengths.max() > 1 else (False, None)

    def set_objective(self, X, y, lengths, C, n_labels):
        """Convert the features."""
        self.shape, self.C = (X.shape[1], n_labels), C
        self.problem = liblinearutil.problem(y, sp.csr_matrix(X))

    def run(self, tolerance):
        """Train."""
        options = liblinearutil.parameter(f"-s 4 -c {self.C!r} -e {min(tolerance, 1e3)!r} -q")
        self.model = liblinearutil.train(self.problem, options)

    def get_result(self):
        """Its weights, classes in the order of their numbers."""
        stored = self.model.get_nr_feature(), self.model.get_nr_class()
        emissions = np.zeros(self.shape)
        emissions[: stored[0], self.model.get_labels()] = np.ctypeslib.as_array(
            self.model.w, shape=stored
        )
        return {"emissions": emissions, "transitions": np.zeros((self.shape[1], self.shape[1]))}
