"""A Gaussian prior on the weights, and the change of variables that removes it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from maxmargin.core.registry import registered

Floats = NDArray[np.float64]


@registered("GaussianPrior")
@dataclass(frozen=True, eq=False)
class GaussianPrior:
    """Regularise with ``1/2 (w - mean)' covariance^-1 (w - mean)`` instead of ``1/2 |w|^2``.

    The intercept keeps its own term: mean 0 and variance 1.

    Parameters
    ----------
    mean : array-like of shape (n_features,) or (n_outputs, n_features), default=None
        Weights without a penalty; None means zero. `n_outputs` is the number of rows of ``coef_``.
    covariance : array-like of shape (n_features,) or (n_features, n_features), default=None
        Diagonal or full covariance, the same for every output; None means the identity. The larger
        its variance, the less a weight is regularised. A full covariance makes the features dense.

    See Also
    --------
    maxmargin.LinearClassifier, maxmargin.LinearRegressor

    Examples
    --------
    Shrink towards the weights of an earlier model, and trust the first feature more:

    >>> import numpy as np
    >>> import maxmargin as mm
    >>> X, y = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([-1.0, 1.0])
    >>> prior = mm.GaussianPrior(mean=[0.5, 0.5], covariance=[10.0, 1.0])
    >>> mm.LinearRegressor(prior=prior, C=1e-9, fit_intercept=False).fit(X, y).coef_.round(3)
    array([0.5, 0.5])
    """

    mean: ArrayLike | None = None
    covariance: ArrayLike | None = None

    def whiten(self, X: Any, n_outputs: int) -> "WhitenedFeatures":
        """Features in which this prior is the standard one.

        Raises
        ------
        ValueError
            If mean or covariance do not fit the features, or the covariance is not positive
            definite.
        """
        d = X.shape[1]
        mean = None
        if self.mean is not None:
            mean = _floats(self.mean, "mean")
            if mean.shape not in {(d,), (n_outputs, d)} or not np.isfinite(mean).all():
                raise ValueError(
                    f"The prior's mean must hold finite numbers in shape ({d},) or "
                    f"({n_outputs}, {d}), but has shape {mean.shape}."
                )
            mean = np.broadcast_to(mean, (n_outputs, d)).T
        if self.covariance is None:
            return WhitenedFeatures(X, mean, None)
        covariance = _floats(self.covariance, "covariance")
        if covariance.shape == (d,) and np.isfinite(covariance).all() and (covariance > 0).all():
            scale = np.asarray(np.sqrt(covariance), dtype=np.float64)
            if sp.issparse(X):
                scaled = X.copy()
                scaled.data *= scale[X.indices].astype(X.dtype)
            else:
                scaled = X * scale.astype(X.dtype)
            origin = None if mean is None else mean / scale[:, None]
            return WhitenedFeatures(scaled, origin, scale)
        finite = np.isfinite(covariance).all()
        if covariance.shape == (d, d) and finite and np.allclose(covariance, covariance.T):
            try:
                root = np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
            except np.linalg.LinAlgError:
                pass
            else:
                origin = None
                if mean is not None:
                    origin = scipy.linalg.solve_triangular(root, mean, lower=True)
                return WhitenedFeatures(np.ascontiguousarray(X @ root), origin, root)
        raise ValueError(
            f"The prior's covariance must be {d} positive variances or a symmetric positive "
            f"definite ({d}, {d}) matrix, but has shape {covariance.shape}"
            + ("." if covariance.shape not in {(d,), (d, d)} else " and is not positive definite.")
        )


def _floats(values: ArrayLike, what: str) -> Floats:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"The prior's {what} must hold numbers.") from error


@dataclass(frozen=True, eq=False)
class WhitenedFeatures:
    """Transformed features, the origin of the weights there, and the way back.

    Parameters
    ----------
    X : ndarray or CSR array of shape (n_samples, n_features)
    origin : ndarray of shape (n_features, n_outputs) or None
        The prior's mean; None means zero.
    root : None, ndarray of shape (n_features,) or (n_features, n_features)
        Square root of the covariance.
    """

    X: Any
    origin: Floats | None
    root: Floats | None

    @property
    def keeps_signs(self) -> bool:
        """Whether a weight is negative here exactly when it is negative there."""
        return self.root is None or self.root.ndim == 1

    def unwhiten(self, weights: Floats) -> Floats:
        """Weights of shape (n_features, n_outputs) for the original features."""
        if self.root is None:
            return weights
        return self.root[:, None] * weights if self.root.ndim == 1 else self.root @ weights
