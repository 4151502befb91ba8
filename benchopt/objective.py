"""The structural SVM with margin rescaling and the Hamming loss, over sequences of labels."""

import numpy as np
from benchmark_utils.chains import primal, search

from benchopt import BaseObjective


class Objective(BaseObjective):
    """Half the squared norm of the weights plus C times the sum of the structural hinges.

    The value is computed here, in numpy, from a solver's weights. A solver that also knows a dual
    value gives it, and the relative gap between the two is recorded: it bounds how far the weights
    are from the optimum, if the dual value is honest.
    """

    name = "Structural SVM"
    min_benchopt_version = "1.7"
    requirements = ["numpy", "scipy"]
    parameters = {"C": [0.1]}
    test_dataset_name = "Simulated"

    def skip(self, X, **data):
        """Leave out data that are not on this machine."""
        return (True, data["why"]) if X is None else (False, None)

    def set_data(self, X, y, lengths, X_test, y_test, lengths_test, why=None):
        """Keep the sequences."""
        self.X, self.y, self.lengths = X, y, lengths
        self.X_test, self.y_test, self.lengths_test = X_test, y_test, lengths_test
        self.n_labels = int(max(y.max(), y_test.max())) + 1

    def get_objective(self):
        """What a solver is to minimise."""
        return {
            "X": self.X,
            "y": self.y,
            "lengths": self.lengths,
            "C": self.C,
            "n_labels": self.n_labels,
        }

    def evaluate_result(self, emissions, transitions, dual=None):
        """Objective, gap (if a dual value is known), and share of wrong test labels."""
        value = primal(self.X, self.y, self.lengths, self.C, emissions, transitions)
        found = search(self.X_test, self.lengths_test, emissions, transitions)
        gap = np.nan if dual is None else (value - dual) / max(abs(value), abs(dual), 1e-300)
        return {
            "value": value,
            "dual": np.nan if dual is None else dual,
            "relative_gap": gap,
            "test_error": float(np.mean(found != self.y_test)),
        }

    def get_one_result(self):
        """Weights that know nothing."""
        n_features = self.X.shape[1]
        return {
            "emissions": np.zeros((n_features, self.n_labels)),
            "transitions": np.zeros((self.n_labels, self.n_labels)),
        }
