"""How a classifier of bags predicts."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from maxmargin.core.arrays import Floats, Order
from maxmargin.core.cuts import starts_of
from maxmargin.core.inputs import as_matrix, class_numbers, label_array, stacked_matrices
from maxmargin.predictors.base import check_classes, check_weights
from maxmargin.predictors.checks import check_features, check_is_fitted, check_names
from maxmargin.predictors.declared import estimator, fitted
from maxmargin.predictors.latent import LatentPredictor
from maxmargin.structures.latent.oracle import NOTHING


@estimator
class LatentClassifierPredictor(LatentPredictor):
    """What a fitted `LatentClassifier` has learned, and how it predicts.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (n_classes, n_features)
    intercept_ : ndarray of shape (n_classes,)
    imputations_ : ndarray of shape (n_bags,)
        The instance of each training bag that shows its class best (0 for the background).
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Names of columns; only when trained on data frames.
    """

    _arguments = """
    X : list of {array-like, sparse matrix} of shape (n_instances, n_features)
        Bags; or an array of shape (n_bags, n_instances, n_features); or, with `lengths`, one
        matrix of all instances, one bag after the other.
    y : array-like of shape (n_bags,)
        The true classes, numbers or strings.
    sample_weight : array-like of shape (n_bags,), default=None
        Multiplies the C of each bag.
    lengths : array-like of shape (n_bags,), default=None
        Number of instances of each bag, if `X` is one matrix.
    """

    classes_: NDArray[Any] = fitted()
    coef_: Floats = fitted()
    intercept_: Floats = fitted()
    _background: int = fitted()

    def _check_fitted(self) -> None:
        super()._check_fitted()
        n_classes = len(self.classes_)
        check_classes(self.classes_)
        check_weights("coef_", self.coef_, n_classes, self.n_features_in_)
        check_weights("intercept_", self.intercept_, n_classes)
        _ = self._background

    def decision_function(self, X: Any, *, lengths: ArrayLike | None = None) -> Floats:
        """Scores of the classes: of the best instance for each.

        Returns
        -------
        scores : ndarray of shape (n_bags,) or (n_bags, n_classes)
            One column a class; with two classes, positive means the second.
        """
        scores = self._scores(X, lengths)[0]
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict(self, X: Any, *, lengths: ArrayLike | None = None) -> NDArray[Any]:
        """Class of each bag."""
        numbers = self._scores(X, lengths)[0].argmax(axis=1)
        return np.asarray(self.classes_[numbers])

    def predict_instances(
        self, X: Any, y: ArrayLike | None = None, *, lengths: ArrayLike | None = None
    ) -> Order:
        """The instance of each bag that shows its class.

        Parameters
        ----------
        y : array-like of shape (n_bags,), default=None
            The classes to look for; None means those that are predicted.

        Returns
        -------
        instances : ndarray of shape (n_bags,)
            Numbers within the bags; -1 where the class is the background, which nothing shows.
        """
        of_bags, of_instances, ends = self._scores(X, lengths)
        numbers = of_bags.argmax(axis=1)
        if y is not None:
            numbers = class_numbers(label_array(y), self.classes_)
        bag_of = np.repeat(np.arange(len(of_bags)), np.diff(ends))
        scores = of_instances[np.arange(len(bag_of)), numbers[bag_of]]
        order = np.lexsort([-scores, bag_of])  # stable: of equal ones the first
        best = order[ends[:-1]] - ends[:-1]
        return np.where(numbers == self._background, NOTHING, best)

    def _scores(self, X: Any, lengths: ArrayLike | None) -> tuple[Floats, Floats, Order]:
        """Scores of bags and of their instances, and where bags end."""
        check_is_fitted(self)
        check_names(self, X)
        instances, ends = checked_bags(X, lengths, self.n_features_in_)
        scores = np.asarray(instances @ self.coef_.T) + self.intercept_
        return np.maximum.reduceat(scores, ends[:-1]), scores, ends


def checked_bags(X: Any, lengths: Any, n_features: int | None = None) -> tuple[Any, Order]:
    """Instances of all bags, one bag after the other, checked, and where bags end."""
    if lengths is None:
        X, lengths = _stacked(X)
    counts = np.asarray(lengths, dtype=np.int64)
    empty = np.flatnonzero(counts < 1)
    if len(empty):
        raise ValueError(f"Bag {empty[0]} is empty: give it an instance, or leave it out.")
    ends = starts_of(counts)
    if ends[-1] != X.shape[0]:
        raise ValueError(f"lengths add up to {ends[-1]}, but X has {X.shape[0]} rows.")
    _check_finite(X, ends)
    X = check_features(X, "LatentClassifier")
    if n_features is not None and X.shape[1] != n_features:
        raise ValueError(
            f"X has {X.shape[1]} features, but LatentClassifier was trained with {n_features}."
        )
    return X, ends


def _stacked(X: Any) -> tuple[Any, list[int]]:
    """One matrix of a list of bags, and how many rows of it each has."""
    if sp.issparse(X) or (isinstance(X, np.ndarray) and X.ndim == 2):
        raise ValueError(
            "X is one matrix: give lengths, the number of instances of each bag, or a list of "
            "matrices."
        )
    if X is None or not len(X):
        raise ValueError("X is empty: give at least one bag.")
    bags = [as_matrix(bag, f"Bag {i}", "one row an instance") for i, bag in enumerate(X)]
    width = bags[0].shape[1]
    for i, bag in enumerate(bags):
        if bag.shape[0] and bag.shape[1] != width:
            raise ValueError(
                f"Bag {i} has {bag.shape[1]} features, but bag 0 has {width}: all must have the "
                f"same."
            )
    return stacked_matrices(bags, width), [bag.shape[0] for bag in bags]


def _check_finite(X: Any, ends: Order) -> None:
    """ValueError for NaN or infinity, with the number of the bag."""
    found = sp.coo_array(X) if sp.issparse(X) else None
    values = np.asarray(X) if found is None else found.data
    if not np.issubdtype(values.dtype, np.floating) or np.isfinite(values).all():
        return
    bad = np.argwhere(~np.isfinite(values))[0]
    row, column = bad if found is None else [place[bad[0]] for place in found.coords]
    bag = int(np.searchsorted(ends, row, side="right")) - 1
    raise ValueError(
        f"Bag {bag} has NaN or infinity in instance {row - ends[bag]}, column {column}: remove or "
        f"impute such values before LatentClassifier sees them."
    )
