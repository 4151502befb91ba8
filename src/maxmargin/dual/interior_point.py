"""An interior-point method for small max-margin problems, where coordinate steps would crawl.

The problem has rows ``x_r`` with margins ``l_r``, in groups that share a slack:

    min over w, xi    1/2 |w|^2 + sum_g C_g xi_g    s.t.   <x_r, w> + xi_g(r) >= l_r,   xi >= 0
    max over alpha    <l, alpha> - 1/2 |sum_r alpha_r x_r|^2    s.t.   sum_{r in g} alpha_r <= C_g

Coordinate steps need as many passes as the Gram matrix is badly conditioned; Newton steps on the
central path (Mehrotra's predictor and corrector) do not care. One costs the normal matrix of all
rows, as large as the number of weights squared, and a Cholesky factor of it.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.core.arrays import Floats
from maxmargin.core.linear import CrammerSinger, LinearProblem, MulticlassProblem, ScalarProblem

MOST_ITERATIONS = 100

MOST_ENTRIES = 1 << 21
"""Of the matrices that a solve needs."""

USUAL_ITERATIONS = 30
"""Newton steps that a solve takes, about: to compare its work with that of other methods."""

ITERATION_COST = 2e5
"""Multiplications that take as long as what an iteration does in Python, about."""

STEP_COST, ENTRY_COST, PRODUCT_COST = 1.5 * ITERATION_COST, 16.0, 0.02
"""Of a Newton step, in such multiplications: of itself, of each entry of the rows, and of each
multiplication in products of matrices, where BLAS makes many at a time."""

PART_OF_GAP = 0.01
"""Part of the allowed gap that a solve leaves."""

_INTERIOR = 0.995
"""Part of the way to the boundary that a step goes."""

_MOST_REFINEMENTS, _ROUNDING = 30, 1e-12
"""Of the solution of a Newton system: most steps, and the residual that is good enough."""

_LEAST_SHARE = 1e-8
"""Of the feasible dual point that the first one is scaled down to, at most."""

Groups = NDArray[np.int64]


class Constraints(ABC):
    """Rows with margins in groups that share a slack; the rows of a group follow each other."""

    def __init__(self, margins: Floats, groups: Groups, C: Floats, n_weights: int) -> None:
        self.margins, self.groups, self.C, self.n_weights = margins, groups, C, n_weights

    @abstractmethod
    def scores(self, weights: Floats) -> Floats:
        """Product of every row with the weights."""

    @abstractmethod
    def weights(self, alpha: Floats) -> Floats:
        """Sum of the rows, each times its dual variable."""

    @abstractmethod
    def normal(self, factors: Floats, spare: Floats) -> Floats:
        """``X' (D - D E (E' D E + S)^-1 E' D) X`` with ``D = diag(factors)``, ``S = diag(spare)``.

        E says which row is in which group. It is made as a sum of positive terms: the difference
        would cancel near the end.
        """

    def summed(self, values: Floats) -> Floats:
        """Sums over the rows of each group."""
        return np.bincount(self.groups, values, len(self.C)).astype(np.float64, copy=False)

    def primal(self, weights: Floats, scores: Floats) -> float:
        """The objective at weights whose scores are known."""
        slacks = np.zeros(len(self.C))
        np.maximum.at(slacks, self.groups, self.margins - scores)
        return 0.5 * float(weights @ weights) + float(self.C @ slacks)

    def dual(self, alpha: Floats, weights: Floats) -> float:
        """The dual value of dual variables whose weights are known."""
        return float(self.margins @ alpha) - 0.5 * float(weights @ weights)


class DenseConstraints(Constraints):
    """Rows as a dense matrix of shape (n_rows, n_weights)."""

    def __init__(self, rows: Floats, margins: Floats, groups: Groups, C: Floats) -> None:
        super().__init__(margins, groups, C, rows.shape[1])
        self.rows = rows
        self.starts = np.flatnonzero(np.diff(groups, prepend=-1))
        self.places = np.repeat(np.arange(len(self.starts)), np.diff(self.starts, append=len(rows)))
        self.half = np.empty_like(rows)  # a new one in every step would take longer than the sums

    def scores(self, weights: Floats) -> Floats:
        return np.asarray(self.rows @ weights)

    def weights(self, alpha: Floats) -> Floats:
        return np.asarray(alpha @ self.rows)

    def normal(self, factors: Floats, spare: Floats) -> Floats:
        # D - D e e' D / h = (sqrt(D) - c u u' sqrt(D))' (the same), u the unit vector of sqrt(D) e.
        own, sums = spare[self.groups[self.starts]], np.add.reduceat(factors, self.starts)
        part = (1.0 - np.sqrt(own / (sums + own))) / sums
        ends = np.append(self.starts, len(factors))
        of_group = sp.csr_array(
            (part[self.places] * factors, np.arange(len(factors)), ends),
            shape=(len(self.starts), len(factors)),
        )
        half = np.take(of_group @ self.rows, self.places, axis=0, out=self.half, mode="clip")
        np.subtract(self.rows, half, out=half)
        half *= np.sqrt(factors)[:, None]
        return np.asarray(half.T @ half)


class ClassConstraints(Constraints):
    """For each example and each wrong class, the row ``(e_y - e_j) x'`` of a weight matrix.

    The rows of an example share a slack (Crammer-Singer), or each has its own (Weston-Watkins).
    """

    def __init__(
        self, X: Floats, labels: NDArray[np.int32], margins: Floats, C: Floats, *, shared: bool
    ) -> None:
        n, n_classes = margins.shape
        self.X, self.labels, self.shared = X, labels, shared
        self.is_wrong = np.arange(n_classes) != labels[:, None]
        n_rows = n * (n_classes - 1)
        groups = np.repeat(np.arange(n), n_classes - 1) if shared else np.arange(n_rows)
        costs = C if shared else np.repeat(C, n_classes - 1)
        super().__init__(margins[self.is_wrong], groups, costs, X.shape[1] * n_classes)

    def table(self, weights: Floats) -> Floats:
        """Weights of shape (n_features, n_classes)."""
        return weights.reshape(self.X.shape[1], -1)

    def coefficients(self, alpha: Floats) -> Floats:
        """What each class gets of each example: ``alpha`` for the true one, less for the others."""
        coef = np.zeros(self.is_wrong.shape)
        coef[self.is_wrong] = -alpha
        coef[~self.is_wrong] = -coef.sum(axis=1)
        return coef

    def scores(self, weights: Floats) -> Floats:
        scores = self.X @ self.table(weights)
        return np.asarray((scores[~self.is_wrong][:, None] - scores)[self.is_wrong])

    def weights(self, alpha: Floats) -> Floats:
        return np.asarray(self.X.T @ self.coefficients(alpha)).ravel()

    def normal(self, factors: Floats, spare: Floats) -> Floats:
        # Of an example, a Laplacian over the classes: edges among all of them, those of the true
        # class with the spare part; or from the true class only.
        n, n_classes = self.is_wrong.shape
        edges = np.zeros((n, n_classes, n_classes))
        every, classes = np.arange(n), np.arange(n_classes)
        ends = np.zeros((n, n_classes))
        ends[self.is_wrong] = factors if self.shared else factors * spare / (factors + spare)
        if self.shared:
            ends[~self.is_wrong] = spare
            sums = ends.sum(axis=1)
            np.multiply(ends[:, :, None], (ends / sums[:, None])[:, None, :], out=edges)
        else:
            edges[every, self.labels, :] = edges[every, :, self.labels] = ends
        edges[:, classes, classes] = 0.0
        laplacian = -edges
        laplacian[:, classes, classes] = edges.sum(axis=2)
        width = self.X.shape[1]
        normal = np.empty((width, n_classes, width, n_classes))
        for a in range(n_classes):
            for b in range(a + 1):
                block = self.X.T @ (laplacian[:, a, b, None] * self.X)
                normal[:, a, :, b] = block
                normal[:, b, :, a] = block.T
        return normal.reshape(self.n_weights, self.n_weights)


class ScalarConstraints(DenseConstraints):
    """One weight vector; for each example a row for either side on which it may lose, or both."""

    def __init__(self, X: Floats, problem: ScalarProblem) -> None:
        sides = np.stack([problem.upper > 0.0, problem.lower < 0.0], axis=1)
        self.example, side = np.nonzero(sides)
        self.signs, self.n_examples = 1.0 - 2.0 * side, len(X)
        margins = self.signs * problem.target[self.example] - problem.epsilon
        super().__init__(self.signs[:, None] * X[self.example], margins, self.example, problem.C)

    def table(self, weights: Floats) -> Floats:
        """Weights of shape (n_features, 1)."""
        return weights[:, None]

    def coefficients(self, alpha: Floats) -> Floats:
        """Dual coefficient of each example."""
        sums = np.bincount(self.example, self.signs * alpha, self.n_examples)
        return sums.astype(np.float64, copy=False)[:, None]


def newton_work(n_rows: int, n_weights: int) -> float:
    """Multiplications of an interior-point solve, about; infinite if it would take much memory."""
    if n_weights * max(n_rows, n_weights) > MOST_ENTRIES:
        return math.inf
    products = (n_rows + n_weights / 3.0) * float(n_weights**2)
    step = STEP_COST + ENTRY_COST * n_rows * n_weights + PRODUCT_COST * products
    return USUAL_ITERATIONS * step


def linear_work(problem: LinearProblem) -> float:
    """The same for a linear problem; infinite if weights have bounds, or an example no C."""
    n, n_outputs = problem.n_samples, problem.n_outputs
    if problem.nonnegative or n * n_outputs**2 > MOST_ENTRIES or not (problem.C > 0.0).all():
        return math.inf
    return newton_work(n, math.prod(problem.weights_shape))


def linear_constraints(problem: LinearProblem) -> ClassConstraints | ScalarConstraints:
    """A linear problem by its constraints."""
    rows = problem.X.toarray() if sp.issparse(problem.X) else problem.X
    bias = np.full((problem.n_samples, 1), problem.bias)
    X = np.hstack([rows.astype(np.float64), bias])
    made: ClassConstraints | ScalarConstraints
    if isinstance(problem, ScalarProblem):
        made = ScalarConstraints(X, problem)
    else:
        assert isinstance(problem, MulticlassProblem)
        margins = problem.margins[:, None] * problem.all_losses()[problem.labels]
        shared = isinstance(problem, CrammerSinger)
        made = ClassConstraints(X, problem.labels, margins, problem.C, shared=shared)
    if problem.origin is not None:  # in terms of the difference to it
        made.margins = made.margins - made.scores(problem.origin.ravel())
    return made


class Point(NamedTuple):
    """Weights and dual variables that certify each other."""

    weights: Floats
    alpha: Floats
    primal: float
    dual: float


class _Newton:
    """The linear system of a point strictly inside, factored once for two right-hand sides."""

    def __init__(
        self, constraints: Constraints, weights: Floats, alpha: Floats, beta: Floats,
        slack: Floats, xi: Floats,
    ) -> None:  # fmt: skip
        self.constraints, groups = constraints, constraints.groups
        self.alpha, self.beta, self.slack, self.xi = alpha, beta, slack, xi
        # Zero but for rounding: the first point is feasible, and steps keep it so.
        self.missing = constraints.scores(weights) + xi[groups] - constraints.margins - slack
        self.away = weights - constraints.weights(alpha)
        self.spare = constraints.C - constraints.summed(alpha) - beta
        self.factors = alpha / slack
        self.slacks = constraints.summed(self.factors) + beta / xi
        normal = constraints.normal(self.factors, beta / xi)
        normal[np.diag_indices_from(normal)] += 1.0
        self.cholesky = _factor(normal)

    def times(self, weights: Floats) -> Floats:
        """Product with the matrix, more exact than the matrix itself."""
        inner = self.factors * self.constraints.scores(weights)
        mean = self.constraints.summed(inner) / self.slacks
        inner -= self.factors * mean[self.constraints.groups]
        return weights + self.constraints.weights(inner)

    def solve(self, right: Floats) -> Floats:
        """Conjugate gradients, preconditioned by the factor: one step, unless it was shifted."""
        found, rest = np.zeros(len(right)), right
        size, direction = 0.0, np.zeros(len(right))
        enough = _ROUNDING * float(np.abs(right).max(initial=0.0))
        for _ in range(_MOST_REFINEMENTS):
            corrected = scipy.linalg.cho_solve(self.cholesky, rest, check_finite=False)
            before, size = size, float(rest @ corrected)
            direction = corrected + (size / before if before else 0.0) * direction
            product = self.times(direction)
            curvature = float(direction @ product)
            if not curvature > 0.0:
                break
            found = found + size / curvature * direction
            rest = rest - size / curvature * product
            if float(np.abs(rest).max()) <= enough:
                break
        return found

    def step(self, first: Floats, second: Floats) -> tuple[Floats, ...]:
        """Changes by which ``alpha * slack`` grows by `first`, and ``beta * xi`` by `second`."""
        constraints, groups, factors = self.constraints, self.constraints.groups, self.factors
        target, rest = first / self.alpha - self.missing, self.spare - second / self.xi
        summed = constraints.summed(factors * target)
        inner = factors * (target - ((summed - rest) / self.slacks)[groups])
        right = constraints.weights(inner) - self.away
        weights = self.solve(right)
        moved = factors * (target - constraints.scores(weights))
        xi = (constraints.summed(moved) - rest) / self.slacks
        alpha = moved - factors * xi[groups]
        slack = (first - self.slack * alpha) / self.alpha
        return weights, alpha, (second - self.beta * xi) / self.xi, slack, xi


def _factor(normal: Floats) -> tuple[Floats, bool]:
    """A Cholesky factor, of the matrix or of one whose diagonal is hardly larger."""
    diagonal, shift = normal.diagonal().copy(), 0.0
    while True:
        try:
            return scipy.linalg.cho_factor(normal, lower=True, check_finite=False)  # type: ignore[no-any-return]
        except np.linalg.LinAlgError:
            shift = 100.0 * shift if shift else 1e-15
            if not shift <= 1e-3:
                raise
            normal[np.diag_indices_from(normal)] = (1.0 + shift) * diagonal


def interior_point(constraints: Constraints, allowed_gap: Callable[[float], float]) -> Point:
    """Solve a problem to a part of the gap allowed for its objective, or as far as rounding allows.

    Every group must have a C above zero. BLAS gets one thread: the matrices are small, and on a
    busy machine waiting for a second core would take ten times as long as the products.
    """
    from threadpoolctl import threadpool_limits  # not above: machine code is built without it

    with threadpool_limits(1, user_api="blas"):
        return _follow_central_path(constraints, allowed_gap)


def _follow_central_path(constraints: Constraints, allowed_gap: Callable[[float], float]) -> Point:
    """Mehrotra's predictor and corrector steps from a point in the middle."""
    C, groups = constraints.C, constraints.groups
    # A dual point in the middle, scaled along its ray, and slacks that are all positive.
    alpha = (C / (np.bincount(groups, minlength=len(C)) + 1.0))[groups]
    weights = constraints.weights(alpha)
    square = float(weights @ weights)
    best_scale = float(constraints.margins @ alpha) / square if square > 0.0 else 1.0
    scale = min(max(best_scale, _LEAST_SHARE), 1.0)
    alpha, weights = scale * alpha, scale * weights
    beta = C - constraints.summed(alpha)
    violations = constraints.margins - constraints.scores(weights)
    xi = np.zeros(len(C))
    np.maximum.at(xi, groups, violations)
    xi = 1.1 * xi + 1e-3 * max(1.0, float(np.abs(violations).max()))
    slack = xi[groups] - violations
    best = Point(weights, alpha, np.inf, -np.inf)
    n_products = len(alpha) + len(C)
    for _ in range(MOST_ITERATIONS):
        primal = constraints.primal(weights, constraints.scores(weights))
        dual = constraints.dual(alpha, constraints.weights(alpha))
        if primal < best.primal:
            best = best._replace(weights=weights, primal=primal)
        if dual > best.dual:
            best = best._replace(alpha=alpha, dual=dual)
        mean = (float(alpha @ slack) + float(beta @ xi)) / n_products
        enough = best.primal - best.dual <= PART_OF_GAP * allowed_gap(best.primal)
        if enough or not mean > 0.0:
            break
        try:
            newton = _Newton(constraints, weights, alpha, beta, slack, xi)
        except np.linalg.LinAlgError:
            break
        _, d_alpha, d_beta, d_slack, d_xi = newton.step(-alpha * slack, -beta * xi)
        dual_step = min(1.0, _to_boundary(alpha, d_alpha), _to_boundary(beta, d_beta))
        primal_step = min(1.0, _to_boundary(slack, d_slack), _to_boundary(xi, d_xi))
        ahead = float((alpha + dual_step * d_alpha) @ (slack + primal_step * d_slack))
        ahead += float((beta + dual_step * d_beta) @ (xi + primal_step * d_xi))
        centre = mean * (ahead / n_products / mean) ** 3
        d_weights, *changes = newton.step(
            centre - alpha * slack - d_alpha * d_slack, centre - beta * xi - d_beta * d_xi
        )
        parts = list(zip((alpha, beta, slack, xi), changes, strict=True))
        step = min(1.0, _INTERIOR * min(_to_boundary(*part) for part in parts))
        weights = weights + step * d_weights
        alpha, beta, slack, xi = (part + step * change for part, change in parts)
    return best


def _to_boundary(values: Floats, change: Floats) -> float:
    """How far positive values can go until one of them is zero."""
    falling = change < 0.0
    return float((-values[falling] / change[falling]).min(initial=np.inf))
