"""What a file may hold of an estimator: attributes it declares, of the types it declares."""

import inspect
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.dual.conforming import check_shape


class StoredEstimator:
    """Base of the estimators that files can hold.

    Attributes that a fit sets are annotated in the body of the class. A file can set no others.
    """

    n_features_in_: int
    feature_names_in_: NDArray[np.object_]

    @classmethod
    def fitted_types(cls) -> dict[str, Any]:
        """Type hints of the attributes that a fit sets, by name."""
        ours = [base for base in cls.__mro__ if base.__module__.startswith("maxmargin.")]
        hints: dict[str, Any] = {}
        for base in reversed(ours):
            hints |= inspect.get_annotations(base)
        parameters = inspect.signature(cls).parameters
        return {name: hint for name, hint in hints.items() if name not in parameters}

    def _check_fitted(self) -> None:
        """Raise an error if attributes that come from a file do not fit together."""


def check_classes(classes: NDArray[Any], n_classes: int | None = None) -> None:
    """Refuse what can be no array of class labels, or not of so many.

    Raises
    ------
    ValueError
    """
    labels = classes.tolist()
    plain = all(isinstance(label, str | int | float) for label in labels)
    if classes.ndim != 1 or not plain or n_classes not in (None, len(labels)):
        raise ValueError("classes_ are not the labels of the model's classes")


def check_weights(name: str, weights: Any, *shape: int) -> None:
    """Refuse weights, dense or sparse, that are not of this shape, or no numbers of 64 bits.

    Raises
    ------
    ValueError
    """
    check_shape(name, weights, *shape)
    if weights.dtype != np.float64:
        raise ValueError(f"{name} must be numbers of 64 bits")
