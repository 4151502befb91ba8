"""LatentClassifier: the class of a bag of instances, one of which shows it."""

from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, _fit_context
from sklearn.utils.multiclass import check_classification_targets

from maxmargin.core.arrays import Floats, Order
from maxmargin.core.cuts import starts_of
from maxmargin.core.inputs import (
    as_matrix,
    check_loss_matrix,
    check_several,
    class_numbers,
    costs,
    stacked_matrices,
)
from maxmargin.estimators.base import check_classes, check_weights
from maxmargin.estimators.checks import check_features, check_is_fitted, check_labels, check_names
from maxmargin.estimators.declared import estimator, fitted
from maxmargin.estimators.latent import LatentEstimator
from maxmargin.structures.latent.oracle import MEAN, NOTHING, LatentBags


@estimator
class LatentClassifier(ClassifierMixin, LatentEstimator):
    """Classes of bags: which of its instances shows the class is a latent variable.

    A bag is a matrix with one row for each instance: the frames of a recording, the windows of an
    image. Class ``k`` scores ``max_j <coef_[k], x_j> + intercept_[k]`` over the instances. Trained
    as `LatentStructuredSVM`; the first start begins with the instances that a linear classifier of
    the means of bags chooses, the others with random ones.

    Parameters
    ----------
    background : label, default=None
        A class without weights that scores zero: in its bags, every instance is to score below
        zero, by a margin, for all other classes. With two classes, one of them the background, this
        is the latent SVM of object detection.
    loss_matrix : array-like of shape (n_classes, n_classes) or dict, default=None
        ``loss_matrix[y, j]``: loss of predicting ``j`` for ``y``, classes sorted, zero diagonal; or
        ``{(true, predicted): loss}``, 1 where left out. None means 1 for every mistake.
    fit_intercept : bool, default=True
        Learn an intercept for each class, as the weight of a constant feature.

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

    See Also
    --------
    LatentStructuredSVM : Latent variables of any other kind.
    LinearClassifier : One row for each example.

    Examples
    --------
    >>> import numpy as np
    >>> import maxmargin as mm
    >>> random = np.random.default_rng(0)
    >>> X = random.normal(size=(60, 5, 3))
    >>> y = np.array(["left", "none", "right"] * 20)
    >>> X[y == "left", 2] += [4, 0, 0]
    >>> X[y == "right", 3] += [0, 4, 0]
    >>> model = mm.LatentClassifier(C=1.0, background="none").fit(X, y)
    >>> bool(model.score(X, y) > 0.9), model.predict_instances(X[[0, 2]]).tolist()
    (True, [2, 3])
    """

    background: Any = None
    loss_matrix: Any = None
    fit_intercept: bool = True

    _parameter_constraints = {
        "background": [object],
        "loss_matrix": ["array-like", dict, None],
    }

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

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        lengths: ArrayLike | None = None,
        initial: ArrayLike | None = None,
    ) -> Self:
        """Train on bags and their classes.

        Parameters
        ----------
        initial : array-like of shape (n_bags,), default=None
            Imputations for the first start: an instance of each bag, or -1 for their mean.
        """
        instances, ends = _bags(X, lengths)
        labels = _labels(y, len(ends) - 1)
        classes, numbers = np.unique(labels, return_inverse=True)
        check_several(classes, "LatentClassifier")
        if not np.array_equal(getattr(self, "classes_", classes), classes):
            self._end = None
        background = self._background_number(classes)
        latent = LatentBags(
            instances,
            ends,
            numbers.astype(np.int32),
            check_loss_matrix(self.loss_matrix, classes),
            costs(self, len(labels), sample_weight),
            background=background,
            fit_intercept=self.fit_intercept,
        )

        def attributes(weights: Floats) -> dict[str, Any]:
            table = weights.reshape(latent.table_shape)[:, : len(classes)]
            return {
                "classes_": classes,
                "coef_": table[: instances.shape[1]].T.copy(),
                "intercept_": table[-1].copy() if self.fit_intercept else np.zeros(len(classes)),
                "n_features_in_": instances.shape[1],
                "_background": background,
            }

        self._fit_latent(latent, X, y, attributes, _first_instances(initial, np.diff(ends)))
        check_names(self, X, reset=True)
        return self

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
            numbers = class_numbers(_labels(y, len(of_bags)), self.classes_)
        bag_of = np.repeat(np.arange(len(of_bags)), np.diff(ends))
        scores = of_instances[np.arange(len(bag_of)), numbers[bag_of]]
        order = np.lexsort([-scores, bag_of])  # stable: of equal ones the first
        best = order[ends[:-1]] - ends[:-1]
        return np.where(numbers == self._background, NOTHING, best)

    def score(
        self, X: Any, y: ArrayLike, sample_weight: Any = None, *, lengths: Any = None
    ) -> float:
        """Fraction of the bags whose class is right."""
        right = self.predict(X, lengths=lengths) == np.asarray(y)
        return float(np.average(right, weights=sample_weight))

    def _scores(self, X: Any, lengths: ArrayLike | None) -> tuple[Floats, Floats, Order]:
        """Scores of bags and of their instances, and where bags end."""
        check_is_fitted(self)
        check_names(self, X)
        instances, ends = _bags(X, lengths, self.n_features_in_)
        scores = np.asarray(instances @ self.coef_.T) + self.intercept_
        return np.maximum.reduceat(scores, ends[:-1]), scores, ends

    def _background_number(self, classes: NDArray[Any]) -> int:
        if self.background is None:
            return NOTHING
        at = np.flatnonzero(classes == self.background)
        if not len(at):
            raise ValueError(
                f"background is {self.background!r}, which is no class in y: name one of "
                f"{', '.join(map(repr, classes[:10].tolist()))}, or None."
            )
        return int(at[0])


def _bags(X: Any, lengths: Any, n_features: int | None = None) -> tuple[Any, Order]:
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


def _labels(y: Any, n_bags: int) -> NDArray[Any]:
    """One class for each bag."""
    labels = check_labels(y, "LatentClassifier")
    if len(labels) != n_bags:
        raise ValueError(
            f"X has {n_bags} bags but y has {len(labels)} entries: give one class for each."
        )
    check_classification_targets(labels)
    return labels


def _first_instances(initial: Any, lengths: Order) -> Order | None:
    """Checked imputations of the user for the first start."""
    if initial is None:
        return None
    chosen = np.asarray(initial)
    if chosen.shape != lengths.shape or not np.issubdtype(chosen.dtype, np.integer):
        raise ValueError(f"initial must hold one whole number for each of the {len(lengths)} bags.")
    bad = np.flatnonzero((chosen < MEAN) | (chosen >= lengths))
    if len(bad):
        i = bad[0]
        raise ValueError(
            f"initial[{i}] is {chosen[i]}, but bag {i} has the instances 0 to {lengths[i] - 1} "
            f"(-1 for their mean)."
        )
    return chosen.astype(np.int64)
