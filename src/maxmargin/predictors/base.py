"""Base of all predictors: what a fit has learned, as files hold it."""

import inspect
from dataclasses import MISSING, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.arrays import check_shape
from maxmargin.core.certificate import Certificate
from maxmargin.core.result import Iteration
from maxmargin.predictors.declared import Documented, estimator, fitted

MOST_THREADS = 1024
"""More than any machine has use for: a number in a file must not be able to ask for them."""


@estimator
class Stored:
    """Base of what files can hold; a file sets only what ``fitted()`` declares."""

    n_features_in_: int = fitted()
    feature_names_in_: NDArray[np.object_] = fitted()

    @classmethod
    def fitted_types(cls) -> dict[str, Any]:
        """Type hints of the attributes that a fit sets, by name."""
        learned = [one for one in fields(cls) if not one.init and one.default is MISSING]
        return {one.name: one.type for one in learned}

    def _check_fitted(self) -> None:
        """Raise an error if attributes that come from a file do not fit together."""


@estimator
class Predictor(Stored, Documented):
    """Base of all predictors: the lower half of an estimator, which answers once it is fitted.

    An estimator inherits its predictor, and adds parameters, training and scikit-learn's methods.
    Modules of predictors import neither scikit-learn nor a solver.

    Parameters
    ----------
    n_jobs : int, default=None
        Threads; None means 1 and -1 one for each core. The result does not depend on it.

    Attributes
    ----------
    certificate_ : Certificate
        ``primal``, ``dual``, ``gap`` and ``relative_gap`` over all the training data.
    history_ : list of Iteration
        Seconds, oracle calls, updates, primal and dual value after each iteration.
    n_iter_ : int
        Number of iterations.
    status_ : str
        "converged", or why the fit stopped before.
    """

    n_jobs: int | None = None

    certificate_: Certificate = fitted()
    history_: list[Iteration] = fitted()
    n_iter_: int = fitted()
    status_: str = fitted()
    _data_fingerprint: str = fitted()

    def _check_fitted(self) -> None:
        """ValueError unless all of these are there and fit together."""
        _ = self.certificate_, self.history_, self.n_iter_, self.status_


def check_classes(classes: NDArray[Any], n_classes: int | None = None) -> None:
    """ValueError for what can be no array of class labels, or not of so many."""
    labels = classes.tolist()
    plain = all(isinstance(label, str | int | float) for label in labels)
    if classes.ndim != 1 or not plain or n_classes not in (None, len(labels)):
        raise ValueError("classes_ are not the labels of the model's classes")


def check_weights(name: str, weights: Any, *shape: int) -> None:
    """ValueError for weights, dense or sparse, that are not float64 or not of this shape."""
    check_shape(name, weights, *shape)
    if weights.dtype != np.float64:
        raise ValueError(f"{name} must be numbers of 64 bits")


def callers_level() -> int:
    """The `stacklevel` of a warning that names the line which called the library."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and (frame := frame.f_back) is not None:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith(("maxmargin.", "sklearn.")):
            break
        level += 1
    return level
