"""What is asked of every problem on feature rows: against plain Python, and of every solver.

A plain problem is an `Enumerable` over the same weight vector: the table, one row a feature with
the intercepts last, padded to a multiple of four columns, then the extra features.
"""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from structured_referee import Case, Enumerable

from maxmargin.core.certificate import certify
from maxmargin.core.oracle import Threads
from maxmargin.core.result import Status
from maxmargin.solvers.loop import Stopping
from maxmargin.structures.rows.oracle import RowOracle, RowProblem
from maxmargin.training.fit import make_solver

SOLVERS = (
    "auto",
    "dual-coordinate",
    "frank-wolfe",
    "n-slack",
    "one-slack",
    "partial-linearization",
)
SLOW = "frank-wolfe", "partial-linearization"


class PlainRows(Enumerable):
    """The layout of joint features on rows."""

    def __init__(self, intercept: bool = True) -> None:
        super().__init__()
        self.intercept = intercept

    def joint_feature(self, x: Any, y: Any) -> Any:
        x = np.array([*x, 1.0]) if self.intercept else np.asarray(x)
        factors = [float(f) for f in self.factors(y)]
        factors += [0.0] * (-len(factors) % 4)
        return np.array([v * f for v in x for f in factors] + [float(e) for e in self.extras(y)])

    def factors(self, y: Any) -> list[float]:
        raise NotImplementedError

    def extras(self, y: Any) -> list[float]:
        return []


def bound(problem: RowProblem, case: Case, sparse: bool = False, dtype: Any = float) -> Any:
    X = np.array(case.X, dtype=dtype)
    X = sp.csr_array(X) if sparse else X
    if dtype is float:
        return problem.make_oracle(X, case.Y, case.C, case.rescaling)
    codes = np.concatenate([problem.code(y) for y in case.Y])
    return RowOracle(problem, X, codes, case.C, slack=case.rescaling == "slack")


def dense(cuts: Any, oracle: Any) -> Any:
    """The planes as rows."""
    rows = np.zeros((len(cuts.losses), oracle.n_features))
    owners = np.repeat(np.arange(len(rows)), np.diff(cuts.starts))
    np.add.at(rows, (owners, cuts.columns), cuts.values)
    return rows


def check_searches(problem: RowProblem, case: Case, sparse: bool) -> None:
    """Planes are those of the outputs they name, and no output is more violating."""
    oracle = bound(problem, case, sparse)
    psi, losses = case.pieces
    n = len(case.X)
    random = np.random.default_rng(n)
    assert oracle.n_features == psi.shape[2]
    for scale in (0.0, 0.3, 3.0):
        weights = scale * random.normal(size=psi.shape[2])
        blocks = random.permutation(n)[: random.integers(1, n + 1)]
        cuts = oracle.separate(weights, blocks, Threads(1))
        hinges = (losses - psi @ weights).max(axis=1)
        assert_allclose(cuts.slopes(weights), hinges[blocks], atol=1e-10 * (1.0 + scale))
        expected = expected_planes(case, problem, blocks, cuts.outputs)
        assert_allclose(dense(cuts, oracle), expected[0], atol=1e-12)
        assert_allclose(cuts.losses, expected[1], atol=1e-12)
        again = oracle.cuts_of(blocks, cuts.outputs)
        assert again.outputs == cuts.outputs
        assert_array_equal(dense(again, oracle), dense(cuts, oracle))
        assert oracle.primal(weights) == pytest.approx(case.objective(weights), rel=1e-10)


def expected_planes(case: Case, problem: RowProblem, blocks: Any, outputs: list[bytes]) -> Any:
    """The referee's pieces of outputs in bytes."""
    psi, losses = case.pieces
    listed = case.problem.outputs(case.X[0])
    named = [problem.output(np.frombuffer(output, dtype=np.int32)) for output in outputs]
    named = [y if isinstance(y, int) else tuple(y.tolist()) for y in named]
    at = [listed.index(y) for y in named]
    return psi[blocks, at], losses[blocks, at]


def check_single_searches(problem: RowProblem, case: Case) -> None:
    """The methods that every problem has, one example at a time."""
    random = np.random.default_rng(0)
    for x, y_true in zip(case.X, case.Y, strict=True):
        w = random.normal(size=problem.n_weights)
        outputs = case.problem.outputs(x)
        assert [np.array(y).tolist() for y in outputs] == [
            np.array(y).tolist() for y in problem.outputs(x)
        ]
        features = np.array([case.problem.joint_feature(x, y) for y in outputs])
        losses = np.array([case.problem.loss(y_true, y) for y in outputs])
        for y, feature, loss in zip(outputs, features, losses, strict=True):
            assert_allclose(problem.joint_feature(x, y), feature)
            assert problem.loss(y_true, y) == pytest.approx(loss)
        scores = features @ w
        own = case.problem.joint_feature(x, y_true) @ w

        def score(y: Any, x: Any = x, w: Any = w) -> float:
            return float(problem.joint_feature(x, y) @ w)

        assert score(problem.inference(x, w)) == pytest.approx(scores.max())
        assert score(problem.inference(sp.csr_array([x]), w)) == pytest.approx(scores.max())
        y = problem.loss_augmented_inference(x, y_true, w)
        assert score(y) + problem.loss(y_true, y) == pytest.approx((scores + losses).max())
        y = problem.slack_rescaled_inference(x, y_true, w)
        slack = problem.loss(y_true, y) * (1.0 + score(y) - own)
        assert slack == pytest.approx((losses * (1.0 + scores - own)).max())


def check_solver(problem: RowProblem, case: Case, solver: str) -> None:
    """The optimum lies in the certificate, which is true of the weights and the point."""
    oracle = bound(problem, case)
    tol, max_iter = (1e-2, 5000) if solver in SLOW else (1e-5, 500)
    result = make_solver(solver).solve(oracle, Stopping(tol, max_iter))
    optimum, certificate = case.optimum.value, result.certificate
    assert result.status is Status.CONVERGED
    assert certificate.relative_gap <= tol
    assert certificate.dual <= optimum * (1.0 + 1e-9)
    assert certificate.primal >= optimum * (1.0 - 1e-9)
    assert certificate.primal == pytest.approx(case.objective(result.weights), rel=1e-12)
    assert certificate == certify(oracle, result.weights, result.dual_point)


def check_threads(problem: RowProblem, case: Case, monkeypatch: Any) -> None:
    """Planes do not depend on the number of threads."""
    monkeypatch.setattr("maxmargin.core.oracle.SECONDS_FOR_THREADS", -1.0)
    oracle = bound(problem, case)
    weights = np.random.default_rng(0).normal(size=oracle.n_features)
    blocks = np.arange(oracle.n_examples)
    expected = oracle.separate(weights, blocks, Threads(1))
    for n_threads in (2, 5):
        with Threads(n_threads) as threads:
            found = oracle.separate(weights, blocks, threads)
        for one, other in zip(found[:4], expected[:4], strict=True):
            assert_array_equal(one, other)
        assert found.outputs == expected.outputs


def check_widths(problem: RowProblem, case: Case) -> None:
    """Single precision and sparse rows give the same planes."""
    single = Case(
        case.problem,
        [np.asarray(x, dtype=np.float32).astype(float) for x in case.X],
        case.Y,
        case.C,
        case.rescaling,
    )
    weights = np.random.default_rng(1).normal(size=problem.n_weights)
    blocks = np.arange(len(case.X))
    slopes = [
        bound(problem, single, sparse, dtype).separate(weights, blocks, Threads(1)).slopes(weights)
        for sparse in (False, True)
        for dtype in (float, np.float32)
    ]
    for other in slopes[1:]:
        assert_allclose(other, slopes[0], rtol=1e-6, atol=1e-6)
