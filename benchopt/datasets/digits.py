"""scikit-learn's handwritten digits: plain classes, which are sequences of length one."""

import numpy as np
from sklearn.datasets import load_digits

from benchopt import BaseDataset


class Dataset(BaseDataset):
    """1,797 digits of 8 x 8 pixels, the last third to test on."""

    name = "Digits"
    requirements = ["scikit-learn"]

    def get_data(self):
        """Pixels from 0 to 1."""
        X, y = load_digits(return_X_y=True)
        X, n = X / 16.0, 1198
        return {
            "X": X[:n],
            "y": y[:n],
            "lengths": np.ones(n, dtype=np.int64),
            "X_test": X[n:],
            "y_test": y[n:],
            "lengths_test": np.ones(len(y) - n, dtype=np.int64),
        }
