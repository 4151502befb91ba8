"""LatentClassifier: the class of a bag of instances, one of which shows it."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, _fit_context
from sklearn.utils.multiclass import check_classification_targets

from maxmargin.core.arrays import Floats, Order
from maxmargin.core.inputs import check_loss_matrix, check_several, costs
from maxmargin.estimators.checks import check_labels
from maxmargin.estimators.latent import LatentEstimator
from maxmargin.predictors.checks import check_names
from maxmargin.predictors.declared import estimator
from maxmargin.structures.latent.oracle import MEAN, NOTHING, LatentBags
from maxmargin.structures.latent.predictor import LatentClassifierPredictor, checked_bags


@estimator
class LatentClassifier(ClassifierMixin, LatentClassifierPredictor, LatentEstimator):
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
        instances, ends = checked_bags(X, lengths)
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

    def score(
        self, X: Any, y: ArrayLike, sample_weight: Any = None, *, lengths: Any = None
    ) -> float:
        """Fraction of the bags whose class is right."""
        right = self.predict(X, lengths=lengths) == np.asarray(y)
        return float(np.average(right, weights=sample_weight))

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
