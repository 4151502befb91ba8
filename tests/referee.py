"""An independent referee: small linear SVMs solved in the primal by a general QP solver.

Every problem here has the same form.  With weights ``w_c`` (one row per class, ``D`` entries
each), it minimises::

    1/2 sum_c (w_c - mean_c)' Sigma^-1 (w_c - mean_c)  +  sum_g cost_g max_p (a_gp . w + b_gp)

and the problems differ only in the affine pieces ``a_gp . w + b_gp`` of each loss term ``g``.
The solvers state those pieces and leave the rest to one shared QP, whose variables are the
weights (measured from their mean) and one slack per loss term.  The objectives are written
separately, straight from the definition of each loss, and each solution is checked against them.

Optimal values are checked to 1e-8 and usually good to 1e-10 (relative, when above 1).  Weights
are usually good to 1e-9, but the duality gap alone promises only about 1e-6, and a degenerate
problem can be that far off: compare values first.

Nothing here comes from maxmargin, and nothing is meant to be fast.
"""

from collections.abc import Callable
from typing import NamedTuple, TypedDict, Unpack

import clarabel
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Floats = NDArray[np.floating]
Labels = NDArray[np.integer]

TOLERANCE = 1e-12  # asked of the QP solver: duality gap and feasibility
AGREEMENT = 1e-8  # asked of our objective against the QP solver's primal and dual values


class Solution(NamedTuple):
    """An optimal point.

    Attributes
    ----------
    weights : ndarray of shape (k, D)
        One row per class; ``k`` is 1 for the hinge and epsilon-insensitive problems.
    value : float
        The primal objective at ``weights``.
    """

    weights: Floats
    value: float


class Options(TypedDict, total=False):
    """Keyword arguments that every problem and every objective takes.

    Attributes
    ----------
    bias : float, default 0.0
        Value of one extra last feature given to every row; 0.0 adds no feature.
    mean : ndarray of the weights' shape or None, default None
        Centre of the regulariser; None is zero.
    covariance : ndarray of shape (D,) or (D, D) or None, default None
        Diagonal or full covariance of each class's weights, the bias weight included; None is
        the identity.
    nonnegative : bool, default False
        Require every weight but the bias weights to be >= 0.  Objectives ignore it.
    """

    bias: float
    mean: Floats | None
    covariance: Floats | None
    nonnegative: bool


class _Model(NamedTuple):
    """The options in full: what is common to a problem and to its objective."""

    inputs: Floats  # (n, D): the rows of X with the bias feature, if any
    mean: Floats  # (k, D)
    precision: Floats  # (D, D): the inverse of the covariance
    bounded: NDArray[np.bool_]  # (k, D): the weights that must be >= 0

    def scores(self, weights: Floats) -> Floats:
        """Return the (n, k) scores of all rows."""
        return self.inputs @ weights.reshape(self.mean.shape).T

    def regulariser(self, weights: Floats) -> float:
        """Return half the squared Mahalanobis distance of the weights from their mean."""
        deviation = weights.reshape(self.mean.shape) - self.mean
        return 0.5 * float(np.sum(deviation @ self.precision * deviation))


def _model(
    X: Floats,
    n_classes: int,
    *,
    bias: float = 0.0,
    mean: Floats | None = None,
    covariance: Floats | None = None,
    nonnegative: bool = False,
) -> _Model:
    """Fill in the defaults of the options."""
    n, d = X.shape
    inputs = np.hstack([X, np.full((n, 1), bias)]) if bias else X
    shape = n_classes, inputs.shape[1]
    full_mean = np.zeros(shape) if mean is None else np.reshape(mean, shape)
    if covariance is None:
        precision: Floats = np.eye(shape[1])
    elif np.ndim(covariance) == 1:
        precision = np.diag(1.0 / covariance)
    else:
        precision = np.linalg.inv(covariance)
    bounded = np.zeros(shape, dtype=bool)
    bounded[:, :d] = nonnegative
    return _Model(inputs, full_mean, precision, bounded)


def _solve(
    model: _Model,
    slopes: Floats,
    offsets: Floats,
    C: Floats,
    objective: Callable[[Floats], float],
) -> Solution:
    """Minimise the regulariser plus a weighted sum of maxima of affine pieces.

    Parameters
    ----------
    model : _Model
        Regulariser and sign constraints.
    slopes : ndarray of shape (terms, pieces, k, D)
        Gradient of each affine piece of each loss term.
    offsets : ndarray of shape (terms, pieces)
        Value of each affine piece at zero weights.
    C : ndarray of shape (terms,)
        Weight of each loss term.  Those of weight 0 are left out of the QP, where their slacks
        would be unbounded.
    objective : callable
        The same function of the weights, written independently.

    Returns
    -------
    Solution

    Raises
    ------
    RuntimeError
        If the QP is not solved, or its optimal value is not that of ``objective``.
    """
    if np.any(C < 0):
        raise ValueError("costs must be non-negative")
    k, D = model.mean.shape
    slopes, offsets, C = slopes[C > 0], offsets[C > 0], C[C > 0]
    terms, pieces = offsets.shape
    mean, bounded = model.mean.ravel(), model.bounded.ravel()

    # Variables: v = w - mean (k * D of them), then one slack t per term.
    #   minimise  1/2 sum_c v_c' Sigma^-1 v_c + cost . t
    #   subject to  a . v - t <= -(b + a . mean)  for each piece,  -v <= mean  where bounded.
    flat = slopes.reshape(terms * pieces, k * D)
    own_slack = np.repeat(np.eye(terms), pieces, axis=0)
    signs = -np.eye(k * D)[bounded]
    P = sparse.block_diag([model.precision] * k + [sparse.csc_matrix((terms, terms))])
    q = np.concatenate([np.zeros(k * D), C])
    A = np.block([[flat, -own_slack], [signs, np.zeros((len(signs), terms))]])
    b = np.concatenate([-(offsets.ravel() + flat @ mean), mean[bounded]])

    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = TOLERANCE
    qp = clarabel.DefaultSolver(
        sparse.triu(P, format="csc"),
        q,
        sparse.csc_matrix(A),
        b,
        [clarabel.NonnegativeConeT(len(b))],
        settings,
    ).solve()
    if qp.status != clarabel.SolverStatus.Solved:
        raise RuntimeError(f"the QP solver stopped with status {qp.status}")

    weights = model.mean + np.reshape(qp.x[: k * D], (k, D))
    weights[model.bounded] = np.maximum(weights[model.bounded], 0.0)
    value = objective(weights)
    if not np.allclose(value, [qp.obj_val, qp.obj_val_dual], rtol=AGREEMENT, atol=AGREEMENT):
        raise RuntimeError(
            f"objective {value!r} is not the QP's {qp.obj_val!r} (dual {qp.obj_val_dual!r})"
        )
    return Solution(weights, value)


def _rival_slopes(inputs: Floats, y: Labels, n_classes: int) -> Floats:
    """Return the gradients of ``w_j . x_i - w_{y_i} . x_i``, of shape (n, j, k, D)."""
    classes = np.eye(n_classes)
    return np.einsum("ijc,id->ijcd", classes - classes[y][:, None, :], inputs)


def crammer_singer_objective(
    weights: Floats,
    X: Floats,
    y: Labels,
    n_classes: int,
    *,
    C: Floats,
    margins: Floats,
    loss_matrix: Floats,
    **options: Unpack[Options],
) -> float:
    """Return the value at ``weights`` of the problem of `crammer_singer`."""
    model = _model(X, n_classes, **options)
    scores = model.scores(weights)
    own = scores[np.arange(len(y)), y]
    violations = margins[:, None] * loss_matrix[y] + scores - own[:, None]
    return model.regulariser(weights) + float(C @ violations.max(axis=1))


def crammer_singer(
    X: Floats,
    y: Labels,
    n_classes: int,
    *,
    C: Floats,
    margins: Floats,
    loss_matrix: Floats,
    **options: Unpack[Options],
) -> Solution:
    """Solve the multi-class SVM of Crammer and Singer.

    The loss of example i is ``max_j [margins_i loss_matrix[y_i, j] + w_j . x_i - w_{y_i} . x_i]``.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Examples.
    y : ndarray of shape (n,)
        Labels in ``0, ..., n_classes - 1``.
    n_classes : int
        Number of classes k.
    C : ndarray of shape (n,)
        Weight of each example's loss, >= 0.
    margins : ndarray of shape (n,)
        Scale of each example's row of the loss matrix.
    loss_matrix : ndarray of shape (n_classes, n_classes)
        Margin required of each true class (row) over each rival (column); zero diagonal.
    **options
        See `Options`.

    Returns
    -------
    Solution
    """
    model = _model(X, n_classes, **options)
    return _solve(
        model,
        slopes=_rival_slopes(model.inputs, y, n_classes),
        offsets=margins[:, None] * loss_matrix[y],
        C=C,
        objective=lambda weights: crammer_singer_objective(
            weights,
            X,
            y,
            n_classes,
            C=C,
            margins=margins,
            loss_matrix=loss_matrix,
            **options,
        ),
    )


def weston_watkins_objective(
    weights: Floats,
    X: Floats,
    y: Labels,
    n_classes: int,
    *,
    C: Floats,
    margins: Floats,
    **options: Unpack[Options],
) -> float:
    """Return the value at ``weights`` of the problem of `weston_watkins`."""
    model = _model(X, n_classes, **options)
    scores = model.scores(weights)
    everyone = np.arange(len(y))
    violations = np.maximum(0.0, margins[:, None] + scores - scores[everyone, y][:, None])
    violations[everyone, y] = 0.0
    return model.regulariser(weights) + float(C @ violations.sum(axis=1))


def weston_watkins(
    X: Floats,
    y: Labels,
    n_classes: int,
    *,
    C: Floats,
    margins: Floats,
    **options: Unpack[Options],
) -> Solution:
    """Solve the multi-class SVM of Weston and Watkins.

    The loss of example i is ``sum_{j != y_i} max(0, margins_i + w_j . x_i - w_{y_i} . x_i)``.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Examples.
    y : ndarray of shape (n,)
        Labels in ``0, ..., n_classes - 1``.
    n_classes : int
        Number of classes k.
    C : ndarray of shape (n,)
        Weight of each example's loss, >= 0.
    margins : ndarray of shape (n,)
        Margin required of each example over every rival class.
    **options
        See `Options`.

    Returns
    -------
    Solution
    """
    model = _model(X, n_classes, **options)
    competitors = np.arange(n_classes) != y[:, None]  # one loss term per example and rival
    slopes = _rival_slopes(model.inputs, y, n_classes)[competitors]
    offsets = np.broadcast_to(margins[:, None], competitors.shape)[competitors]
    return _solve(
        model,
        slopes=np.stack([np.zeros_like(slopes), slopes], axis=1),
        offsets=np.stack([np.zeros_like(offsets), offsets], axis=1),
        C=np.broadcast_to(C[:, None], competitors.shape)[competitors],
        objective=lambda weights: weston_watkins_objective(
            weights, X, y, n_classes, C=C, margins=margins, **options
        ),
    )


def hinge_objective(
    weights: Floats,
    X: Floats,
    sign: Floats,
    *,
    C: Floats,
    margins: Floats,
    **options: Unpack[Options],
) -> float:
    """Return the value at ``weights`` of the problem of `hinge`."""
    model = _model(X, 1, **options)
    violations = margins - sign * model.scores(weights)[:, 0]
    return model.regulariser(weights) + float(C @ np.maximum(0.0, violations))


def hinge(
    X: Floats,
    sign: Floats,
    *,
    C: Floats,
    margins: Floats,
    **options: Unpack[Options],
) -> Solution:
    """Solve the two-class SVM.

    The loss of example i is ``max(0, margins_i - sign_i w . x_i)``.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Examples.
    sign : ndarray of shape (n,)
        Labels, -1 or +1.
    C : ndarray of shape (n,)
        Weight of each example's loss, >= 0.
    margins : ndarray of shape (n,)
        Margin required of each example.
    **options
        See `Options`.

    Returns
    -------
    Solution
    """
    model = _model(X, 1, **options)
    slopes = -sign[:, None] * model.inputs
    return _solve(
        model,
        slopes=np.stack([np.zeros_like(slopes), slopes], axis=1)[:, :, None, :],
        offsets=np.stack([np.zeros_like(margins), margins], axis=1),
        C=C,
        objective=lambda weights: hinge_objective(
            weights, X, sign, C=C, margins=margins, **options
        ),
    )


def epsilon_insensitive_objective(
    weights: Floats,
    X: Floats,
    target: Floats,
    *,
    C: Floats,
    epsilon: float,
    **options: Unpack[Options],
) -> float:
    """Return the value at ``weights`` of the problem of `epsilon_insensitive`."""
    model = _model(X, 1, **options)
    residuals = model.scores(weights)[:, 0] - target
    losses = np.maximum(0.0, np.abs(residuals) - epsilon)
    return model.regulariser(weights) + float(C @ losses)


def epsilon_insensitive(
    X: Floats,
    target: Floats,
    *,
    C: Floats,
    epsilon: float,
    **options: Unpack[Options],
) -> Solution:
    """Solve support vector regression.

    The loss of example i is ``max(0, |w . x_i - target_i| - epsilon)``.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Examples.
    target : ndarray of shape (n,)
        Values to predict.
    C : ndarray of shape (n,)
        Weight of each example's loss, >= 0.
    epsilon : float
        Error that costs nothing.
    **options
        See `Options`.

    Returns
    -------
    Solution
    """
    model = _model(X, 1, **options)
    slopes = model.inputs
    return _solve(
        model,
        slopes=np.stack([np.zeros_like(slopes), slopes, -slopes], axis=1)[:, :, None, :],
        offsets=np.stack([np.zeros_like(target), -target - epsilon, target - epsilon], axis=1),
        C=C,
        objective=lambda weights: epsilon_insensitive_objective(
            weights, X, target, C=C, epsilon=epsilon, **options
        ),
    )
