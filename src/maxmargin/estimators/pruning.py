"""Smaller models: without the weights that hardly matter."""

import copy
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.core.certificate import Certificate
from maxmargin.predictors.checks import check_is_fitted

_STORED = 1.5
"""What a weight in a sparse matrix takes, next to one in a dense one."""


class Prunable(ABC):
    """An estimator with weights of features, ``coef_``, that can be left out."""

    coef_: Any

    @abstractmethod
    def _keep_weights(self, keep: NDArray[np.bool_]) -> None:
        """Set all other weights in ``coef_`` to zero, and forget what is no longer needed."""


@dataclass(frozen=True)
class Pruned:
    """A model without its small weights, and what that costs.

    Parameters
    ----------
    estimator : estimator
        A copy; the one that was given stays as it is.
    kept, dropped : int
        Feature weights other than zero that are left, and that are gone.
    score_before, score_after : float or None
        On the examples that were given, if any.
    """

    estimator: Any
    kept: int
    dropped: int
    score_before: float | None = None
    score_after: float | None = None


def prune(estimator: Any, threshold: float, X: Any = None, y: Any = None) -> Pruned:
    """Drop the weights of features that are below a threshold.

    A tagger trained on feature dictionaries also forgets the names of features without weights. The
    weights of a linear model become a sparse matrix if that is smaller. Transitions and biases
    stay.

    Parameters
    ----------
    estimator : fitted SequenceTagger, LinearClassifier or LinearRegressor
    threshold : float
        Weights of a smaller absolute value are dropped; at 0, which changes no prediction, only
        features without any weight.
    X, y : examples, default=None
        To score both models on.

    Returns
    -------
    pruned : Pruned
        The dual value of its ``certificate_`` still holds; the primal value is not known.

    Raises
    ------
    TypeError
        If the estimator has no weights of features that could be left out.
    ValueError
        If the threshold is negative, or would leave nothing.

    See Also
    --------
    maxmargin.save : Write a model to a file.

    Examples
    --------
    >>> import maxmargin as mm
    >>> X = [[["the", "t"], ["dog", "d"]], [["the", "t"], ["cat", "c"], ["sat", "s"]]]
    >>> y = [["DET", "NOUN"], ["DET", "NOUN", "VERB"]]
    >>> tagger = mm.SequenceTagger(C=10.0).fit(X, y)
    >>> pruned = mm.prune(tagger, threshold=0.2, X=X, y=y)
    >>> len(tagger.vocabulary_), len(pruned.estimator.vocabulary_), pruned.score_after
    (8, 6, 1.0)
    """
    if not isinstance(estimator, Prunable):
        raise TypeError(
            f"{type(estimator).__name__} cannot be pruned: only SequenceTagger, LinearClassifier "
            f"and LinearRegressor have weights of features that can be left out."
        )
    if not isinstance(threshold, Real) or not 0.0 <= threshold < math.inf:
        raise ValueError(f"threshold is {threshold}, but must be a number that is not negative.")
    if (X is None) != (y is None):
        raise ValueError("Give X and y both, or neither.")
    from maxmargin.io.models import OF_TRAINING

    check_is_fitted(estimator)
    weights = dense(estimator.coef_)
    keep = (weights != 0.0) & (np.abs(weights) >= threshold)
    if not keep.any():
        raise ValueError(
            f"A threshold of {threshold:g} would drop all weights, of which the largest is "
            f"{np.abs(weights).max(initial=0.0):.3g}: give a smaller one."
        )
    pruned = copy.copy(estimator)
    for name in OF_TRAINING:  # made with all weights
        pruned.__dict__.pop(name, None)
    pruned.certificate_ = Certificate(
        math.inf, estimator.certificate_.dual, estimator.certificate_.relaxed
    )
    pruned._keep_weights(keep)
    kept = int(np.count_nonzero(keep))
    scores = [None if X is None else float(model.score(X, y)) for model in (estimator, pruned)]
    return Pruned(pruned, kept, int(np.count_nonzero(weights)) - kept, *scores)


def dense(weights: Any) -> NDArray[np.float64]:
    """Weights that may be a sparse matrix, as an array."""
    return weights.toarray() if sp.issparse(weights) else np.asarray(weights)


def smaller(weights: NDArray[np.float64]) -> Any:
    """The weights as a sparse matrix, if it takes less memory."""
    if _STORED * np.count_nonzero(weights) >= weights.size:
        return weights
    return sp.csr_array(np.atleast_2d(weights))
