"""Linear SVM problems with explicit outputs, and a Gaussian prior.

With ``u(B) = origin + X' B`` and weights ``W(B) = u``, or ``max(u, 0)`` if they are nonnegative,

    primal(W) = 1/2 |W - origin|^2 + sum_i C_i * loss_i(scores_i)
    dual(B)   = linear(B) - 1/2 |W(B)|^2 + 1/2 |origin|^2

Weights have shape (n_features + 1, n_outputs), the last row for the constant feature ``bias``.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from maxmargin.core.arrays import Floats, check_indices, check_shape, inner_product
from maxmargin.core.inputs import (
    as_floats,
)
from maxmargin.core.registry import registered

_LEAST_ENTRIES, _MOST_ENTRIES = 1 << 18, 1 << 20
"""Scores, and copies of features, of a chunk of examples, about: as many as there are weights, for
which a product with the features makes a new array in each chunk, within these bounds."""

_DENSE_ROW = 8
"""A feature with weights for more than one of so many classes has them in an array."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearProblem(ABC):
    """Examples and geometry of the weights, in plain numpy; `origin` is the mean of a prior."""

    X: Any
    C: Floats
    bias: float = 0.0
    origin: Floats | None = None
    nonnegative: bool = False
    exact: ClassVar[bool] = True  # an explicit maximum over classes is always found
    _per_example: ClassVar[tuple[str, ...]] = ("X", "C")
    _costs: ClassVar[tuple[str, ...]] = ("C",)

    @property
    def n_outputs(self) -> int:
        """Number of weight vectors."""
        return 1

    @property
    def parts(self) -> "tuple[LinearProblem, ...]":
        """Independent problems that this one consists of."""
        return (self,)

    @abstractmethod
    def losses(self, scores: Floats, examples: slice) -> Floats:
        """Loss of each of the `examples` at their scores, without C."""

    @abstractmethod
    def linear(self, dual_coef: Floats) -> float:
        """The dual's linear term."""

    @abstractmethod
    def feasible(self, dual_coef: Floats) -> Floats:
        """`dual_coef`, or the feasible point next to it that rounding asks for."""

    def check(self) -> None:
        """Raise ValueError if arrays do not fit together."""
        if len(self.X.shape) != 2 or self.X.dtype.kind != "f":
            raise ValueError("the features are no matrix of numbers")
        for name in self._per_example[1:]:
            check_shape(name, getattr(self, name), self.n_samples)
        if self.origin is not None:
            check_shape("origin", self.origin, *self.weights_shape)

    @property
    def n_samples(self) -> int:
        return int(self.X.shape[0])

    @property
    def weights_shape(self) -> tuple[int, int]:
        """(n_features + 1, n_outputs)."""
        return int(self.X.shape[1]) + 1, self.n_outputs

    def some(self, examples: NDArray[Any]) -> Self:
        """The same problem on some of the examples only."""
        return replace(self, **{name: getattr(self, name)[examples] for name in self._per_example})

    def scaled(self, factor: float) -> Self:
        """The same problem, every C multiplied by `factor`."""
        return replace(self, **{name: factor * getattr(self, name) for name in self._costs})

    def joined(self, others: Sequence[Self]) -> Self:
        """The same problem on the examples of others, too."""
        together: dict[str, Any] = {}
        for name in self._per_example:
            arrays = [getattr(problem, name) for problem in (self, *others)]
            sparse = any(map(sp.issparse, arrays))
            together[name] = sp.vstack(arrays, format="csr") if sparse else np.concatenate(arrays)
        return replace(self, **together)

    def _chunks(self) -> Iterator[slice]:
        n_entries = self.X.nnz if sp.issparse(self.X) else self.X.size
        copied = 0 if self.X.dtype == np.float64 else n_entries  # into double precision
        entries = min(max(math.prod(self.weights_shape), _LEAST_ENTRIES), _MOST_ENTRIES)
        step = 1 + int(entries / (self.n_outputs + copied / max(1, self.n_samples)))
        for start in range(0, self.n_samples, step):
            yield slice(start, min(start + step, self.n_samples))

    def _features(self, examples: slice, transposed: bool = False) -> Any:
        """Consecutive rows of X, or as columns, without a copy."""
        X, (start, stop, _) = self.X, examples.indices(self.n_samples)
        everything = (start, stop) == (0, self.n_samples)
        if everything or not sp.issparse(X):
            rows = X if everything else X[start:stop]
            return rows.T if transposed else rows
        n, d = stop - start, X.shape[1]
        rows = sp.csc_array((d, n)) if transposed else sp.csr_array((n, d))
        first, last = X.indptr[[start, stop]]
        # Set one by one: given all at once, views of less than half of an array would be copied.
        rows.data, rows.indices = X.data[first:last], X.indices[first:last]
        rows.indptr = X.indptr[start : stop + 1] - first
        return rows

    def unclipped_weights(self, dual_coef: Floats) -> Floats:
        """``u(B)``."""
        u = self._start()
        for rows in self._chunks():
            u[:-1] += self._features(rows, transposed=True) @ dual_coef[rows]
        u[-1] += self.bias * dual_coef.sum(axis=0)
        return u

    def weights(self, dual_coef: Floats) -> Floats:
        """``W(B)``."""
        return self._clipped(self.unclipped_weights(dual_coef))

    def _clipped(self, u: Floats) -> Floats:
        """Project ``u`` on the feasible weights, in place."""
        if self.nonnegative:
            np.maximum(u[:-1], 0.0, out=u[:-1])
        return u

    def prior_weights(self) -> Floats:
        """The minimiser of the regulariser alone."""
        return self._clipped(self._start())

    def _start(self) -> Floats:
        """``u`` of zero coefficients."""
        return np.zeros(self.weights_shape) if self.origin is None else self.origin.copy()

    def scores(self, weights: Floats | None, examples: slice = slice(None)) -> Floats:
        """Scores of shape (n_examples, n_outputs); None stands for weights of zero."""
        if weights is None or not weights.any():
            start, stop, _ = examples.indices(self.n_samples)
            return np.zeros((stop - start, self.n_outputs))
        return np.asarray(self._features(examples) @ weights[:-1] + self.bias * weights[-1])

    def primal(self, weights: Floats) -> float:
        """Objective value at `weights` (which must satisfy `nonnegative`)."""
        return self.penalty(weights) + self.total_loss(weights)

    def primal_of_prior(self) -> float:
        """Objective value at `prior_weights`, with which every fit is compared."""
        return self.total_loss(None) if self.origin is None else self.primal(self.prior_weights())

    def penalty(self, weights: Floats) -> float:
        """The regulariser at `weights`."""
        away = weights if self.origin is None else weights - self.origin
        return 0.5 * inner_product(away, away)

    def total_loss(self, weights: Floats | None) -> float:
        """Sum over the examples of C times loss; None stands for weights of zero."""
        return sum(
            inner_product(self.C[rows], self.losses(self.scores(weights, rows), rows))
            for rows in self._chunks()
        )

    def dual(self, dual_coef: Floats) -> float:
        """Dual value of feasible coefficients: never above the optimum."""
        return self.dual_of_sums(self.linear(dual_coef), self.unclipped_weights(dual_coef))

    def dual_of_sums(self, linear: float, unclipped: Floats) -> float:
        """Dual value from its linear term and ``u(B)``, which is overwritten."""
        weights = self._clipped(unclipped)
        if self.origin is None:
            return linear - 0.5 * inner_product(weights, weights)
        # A product, not a difference of squares: exact where the weights are the origin.
        return linear - 0.5 * inner_product(weights - self.origin, weights + self.origin)


@dataclass(frozen=True, kw_only=True, eq=False)
class MulticlassProblem(LinearProblem):
    """One weight vector a class; ``loss_matrix[y, j]`` is the loss of ``j`` where ``y`` is true.

    Without a matrix, which would be large for many classes, `n_classes` says how many there are,
    and every mistake costs 1. Then weights and dual coefficients may be sparse arrays, too.
    """

    labels: NDArray[np.int32]
    margins: Floats
    loss_matrix: Floats | None = None
    n_classes: int = 0
    _per_example: ClassVar[tuple[str, ...]] = ("X", "C", "labels", "margins")

    def check(self) -> None:
        super().check()
        if self.loss_matrix is not None:
            check_shape("loss_matrix", self.loss_matrix, self.n_outputs, self.n_outputs)
        check_indices("labels", self.labels, self.n_outputs)

    @property
    def n_outputs(self) -> int:
        return self.n_classes if self.loss_matrix is None else len(self.loss_matrix)

    def all_losses(self) -> Floats:
        """The loss matrix, made if there is none."""
        return 1.0 - np.eye(self.n_classes) if self.loss_matrix is None else self.loss_matrix

    def _losses_of(self, labels: NDArray[np.int32]) -> Floats:
        """Rows of the loss matrix."""
        if self.loss_matrix is not None:
            return self.loss_matrix[labels]
        losses = np.ones((len(labels), self.n_classes))
        losses[np.arange(len(labels)), labels] = 0.0
        return losses

    def _augmented(self, scores: Floats, examples: slice) -> Floats:
        """``loss(y, j) + score_j - score_y``; zero at ``j = y``."""
        labels = self.labels[examples]
        own = scores[np.arange(len(labels)), labels]
        loss = self._losses_of(labels)
        loss *= self.margins[examples, None]
        loss += scores
        loss -= own[:, None]
        return loss

    def linear(self, dual_coef: Any) -> float:
        if self.loss_matrix is None:  # then it is what wrong classes have, and so the true one
            return inner_product(self.margins, self._own(dual_coef))

        def of_chunk(rows: slice) -> Any:
            loss = self._losses_of(self.labels[rows])
            return np.einsum("i,ij,ij->", self.margins[rows], loss, dual_coef[rows])

        return -float(sum(map(of_chunk, self._chunks())))

    def _own(self, dual_coef: Any) -> Floats:
        """Coefficient of each example's true class."""
        return np.asarray(dual_coef[np.arange(self.n_samples), self.labels]).ravel()

    def unclipped_weights(self, dual_coef: Any) -> Any:
        if not sp.issparse(dual_coef):
            return super().unclipped_weights(dual_coef)
        weights = sp.csr_array(self.X.T) @ dual_coef
        if self.bias == 0.0:
            weights.resize(self.weights_shape)
            return weights
        constant = sp.csr_array(self.bias * dual_coef.sum(axis=0).reshape(1, -1))
        return sp.vstack([weights, constant], format="csr")

    def total_loss(self, weights: Any) -> float:
        if not sp.issparse(weights):
            return super().total_loss(weights)
        weights = _SplitWeights(self.X, self.bias, weights)
        return sum(
            inner_product(self.C[rows], self.losses(weights.scores(rows), rows))
            for rows in self._chunks()
        )

    def penalty(self, weights: Any) -> float:
        return super().penalty(weights.data if sp.issparse(weights) else weights)

    def dual_of_sums(self, linear: float, unclipped: Any) -> float:
        if sp.issparse(unclipped):
            return linear - self.penalty(unclipped)
        return super().dual_of_sums(linear, unclipped)

    def feasible(self, dual_coef: Any) -> Any:
        """As an array, or sparse, as it is given."""
        if not sp.issparse(dual_coef):
            own = np.arange(self.n_samples), self.labels
            coef = np.minimum(dual_coef, 0.0)
            coef[own] = 0.0
            coef = self._bounded(coef, self.C[:, None])
            coef[own] = -coef.sum(axis=1)
            return coef
        coef = sp.coo_array(dual_coef)
        wrong = (coef.col != self.labels[coef.row]) & (coef.data < 0.0)
        rows, columns = coef.row[wrong], coef.col[wrong]
        parts = sp.csr_array((coef.data[wrong], (rows, columns)), shape=coef.shape)
        parts = self._bounded(parts, np.repeat(self.C, np.diff(parts.indptr)))
        own = sp.csr_array(
            (-parts.sum(axis=1), (np.arange(self.n_samples), self.labels)), shape=coef.shape
        )
        return parts + own

    @abstractmethod
    def _bounded(self, coef: Any, bounds: Floats) -> Any:
        """Coefficients of wrong classes, none positive, within the bounds.

        `bounds` are the C of each row's entries, in the shape of the array, or of sparse data.
        """

    @abstractmethod
    def losses_at_zero(self) -> Floats:
        """Loss of each example at weights of zero, without C; of a problem without a matrix."""

    @abstractmethod
    def settled(self, examples: NDArray[Any]) -> sp.coo_array:
        """Coefficients of wrong classes for rows without features, where these are optimal."""


class _SplitWeights:
    """Sparse weights, with the rows of frequent features as an array: products are faster."""

    def __init__(self, X: Any, bias: float, weights: Any) -> None:
        filled = np.diff(weights.indptr[:-1])
        frequencies = np.bincount(X.indices[: X.nnz], minlength=X.shape[1])
        # The most used first, as many as take a small multiple of the memory of the weights.
        most = 1 + int(weights.nnz / max(1, weights.shape[1]))
        worth = np.flatnonzero(_DENSE_ROW * filled > weights.shape[1])
        worth = worth[np.argsort(-frequencies[worth], kind="stable")][:most]
        is_dense = np.zeros(X.shape[1], dtype=bool)
        is_dense[worth] = True
        rest = np.flatnonzero(~is_dense)
        columns = np.flatnonzero(is_dense)
        self.parts = [(X[:, columns], weights[columns].toarray()), (X[:, rest], weights[rest])]
        self.constant = bias * weights[[-1]].toarray()[0]

    def scores(self, examples: slice) -> Floats:
        (X, dense), (X_rest, rest) = self.parts
        scores = np.asarray(X[examples] @ dense)
        found = sp.csr_array(X_rest[examples] @ rest)
        rows = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr))
        scores[rows, found.indices] += found.data  # each place once: products sum their terms
        scores += self.constant
        return scores


@registered("CrammerSinger", check="check")
class CrammerSinger(MulticlassProblem):
    """The hinge is the largest violation: one slack an example."""

    def losses(self, scores: Floats, examples: slice) -> Floats:
        return np.asarray(self._augmented(scores, examples).max(axis=1))

    def _bounded(self, coef: Any, bounds: Floats) -> Any:
        used = -np.asarray(coef.sum(axis=1))
        scale = np.ones(len(used))
        over = used > self.C
        scale[over] = self.C[over] / used[over]
        if sp.issparse(coef):
            return sp.csr_array(sp.diags_array(scale) @ coef)
        coef *= scale[:, None]
        return coef

    def losses_at_zero(self) -> Floats:
        return self.margins

    def settled(self, examples: NDArray[Any]) -> sp.coo_array:
        other = np.where(self.labels[examples] == 0, 1, 0)
        places = np.arange(len(examples)), other
        return sp.coo_array((-self.C[examples], places), shape=(len(examples), self.n_outputs))


@registered("WestonWatkins", check="check")
class WestonWatkins(MulticlassProblem):
    """The hinge is the sum of the violations: one slack for each wrong class."""

    def losses(self, scores: Floats, examples: slice) -> Floats:
        return np.asarray(np.maximum(self._augmented(scores, examples), 0.0).sum(axis=1))

    def _bounded(self, coef: Any, bounds: Floats) -> Any:
        if sp.issparse(coef):
            np.maximum(coef.data, -bounds, out=coef.data)
            return coef
        return np.maximum(coef, -bounds, out=coef)

    def losses_at_zero(self) -> Floats:
        return (self.n_outputs - 1.0) * self.margins

    def settled(self, examples: NDArray[Any]) -> sp.coo_array:
        return sp.coo_array(-self.C[examples, None] * self._losses_of(self.labels[examples]))


@registered("ScalarProblem", check="check")
@dataclass(frozen=True, kw_only=True, eq=False)
class ScalarProblem(LinearProblem):
    """One weight vector, one dual variable an example: binary classification and regression.

    The loss is ``max(0, side * (target_i - score) - epsilon)``, for both sides or that of the sign:
    in the dual the box ``lower_i <= b_i <= upper_i``.
    """

    target: Floats
    epsilon: float
    lower: Floats
    upper: Floats
    _per_example: ClassVar[tuple[str, ...]] = ("X", "C", "target", "lower", "upper")
    _costs: ClassVar[tuple[str, ...]] = ("C", "lower", "upper")

    @classmethod
    def hinge(cls, signs: Floats, margins: Floats, C: Floats, **shared: Any) -> "ScalarProblem":
        """Loss ``max(0, margin - sign * score)``; `signs` are -1.0 and 1.0."""
        upper = (signs > 0) * C  # a choice would take longer: classes come in no order
        return cls(
            target=signs * margins,
            epsilon=0.0,
            lower=upper - C,
            upper=upper,
            C=C,
            **shared,
        )

    @classmethod
    def epsilon_insensitive(
        cls, target: Floats, epsilon: float, C: Floats, **shared: Any
    ) -> "ScalarProblem":
        """Loss ``max(0, |target - score| - epsilon)``."""
        return cls(target=target, epsilon=epsilon, lower=-C, upper=C, C=C, **shared)

    def losses(self, scores: Floats, examples: slice) -> Floats:
        too_low = self.target[examples] - scores[:, 0]
        too_high = -too_low
        # In place: new arrays would cost more than the arithmetic.
        for miss, counts in (
            (too_low, self.upper[examples] > 0),
            (too_high, self.lower[examples] < 0),
        ):
            miss -= self.epsilon
            np.maximum(miss, 0.0, out=miss)
            miss *= counts
        too_low += too_high
        return too_low

    def linear(self, dual_coef: Floats) -> float:
        b = dual_coef[:, 0]
        return inner_product(self.target, b) - self.epsilon * float(np.abs(b).sum())

    def feasible(self, dual_coef: Floats) -> Floats:
        return np.clip(dual_coef, self.lower[:, None], self.upper[:, None])


@dataclass(frozen=True, eq=False)
class OneVersusRest:
    """Independent binary problems on the same examples, one a class."""

    parts: tuple[ScalarProblem, ...]
    exact: ClassVar[bool] = True

    def scaled(self, factor: float) -> "OneVersusRest":
        return OneVersusRest(tuple(part.scaled(factor) for part in self.parts))

    def primal(self, weights: Floats) -> float:
        """Sum of the primal values; column ``m`` holds the weights of part ``m``."""
        return sum(part.primal(weights[:, [m]]) for m, part in enumerate(self.parts))

    def dual(self, dual_coef: Floats) -> float:
        return sum(part.dual(dual_coef[:, [m]]) for m, part in enumerate(self.parts))


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

    def whiten(self, X: Any, n_outputs: int) -> tuple[Any, Floats | None, Floats | None]:
        """Features in which this prior is the standard one, its mean there, and its `root`.

        That is the square root of the covariance; ValueError if the prior does not fit.
        """
        d = X.shape[1]
        mean = root = None
        if self.mean is not None:
            mean = as_floats(self.mean, "The prior's mean")
            if mean.shape not in {(d,), (n_outputs, d)} or not np.isfinite(mean).all():
                raise ValueError(
                    f"The prior's mean must hold finite numbers in shape ({d},) or "
                    f"({n_outputs}, {d}), but has shape {mean.shape}."
                )
            mean = np.broadcast_to(mean, (n_outputs, d)).T
        if self.covariance is not None:
            root = _square_root(as_floats(self.covariance, "The prior's covariance"), d)
        if root is None:
            return X, mean, None
        if root.ndim == 2:
            if mean is not None:
                mean = scipy.linalg.solve_triangular(root, mean, lower=True)
            return np.ascontiguousarray(X @ root), mean, root
        if sp.issparse(X):
            scaled = X.copy()
            scaled.data *= root[X.indices].astype(X.dtype)
        else:
            scaled = X * root.astype(X.dtype)
        return scaled, None if mean is None else mean / root[:, None], root


def _square_root(covariance: Floats, d: int) -> Floats:
    """Standard deviations, or the Cholesky factor of a matrix."""
    if np.isfinite(covariance).all():
        if covariance.shape == (d,) and (covariance > 0).all():
            return np.sqrt(covariance)
        if covariance.shape == (d, d) and np.allclose(covariance, covariance.T):
            with suppress(np.linalg.LinAlgError):
                return np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
    raise ValueError(
        f"The prior's covariance must be {d} positive variances or a symmetric positive "
        f"definite ({d}, {d}) matrix, but has shape {covariance.shape}"
        + ("." if covariance.shape not in {(d,), (d, d)} else " and is not positive definite.")
    )


def unwhitened(weights: Floats, root: Floats | None) -> Floats:
    """Weights of shape (n_features, n_outputs) for the original features."""
    if root is None:
        return weights
    return root[:, None] * weights if root.ndim == 1 else root @ weights


class LinearTask(NamedTuple):
    """The problem of a linear estimator, and what its weights mean.

    They are whitened by `root`, and belong to a constant feature `bias` and to the `classes`.
    """

    problem: Any
    root: Floats | None
    bias: float
    classes: NDArray[Any] | None = None
