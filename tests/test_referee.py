"""Tests of the referee: closed forms, another solver, and properties of the optimum."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import referee
from numpy.testing import assert_allclose
from scipy import optimize

Pieces = Callable[[np.ndarray, int], list[list[float]]]


class Case(NamedTuple):
    """A problem with its data, and its losses written a second time with plain loops."""

    solve: Callable[..., referee.Solution]
    objective: Callable[..., float]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    pieces: Pieces  # (scores of example i, i) -> for each loss term, what it is the maximum of


PROBLEMS = ["crammer_singer", "weston_watkins", "hinge", "epsilon_insensitive"]
OPTIONS = ["plain", "bias", "mean", "diagonal", "full", "nonnegative", "everything"]


def make_case(problem: str, options: str, seed: int = 0) -> Case:
    """Draw a small problem, a few of whose costs are zero."""
    rng = np.random.default_rng(seed)
    n, d, k = 10, 3, 3
    X = rng.normal(size=(n, d))
    y = rng.integers(k, size=n)
    sign = rng.choice([-1.0, 1.0], size=n)
    target = rng.normal(size=n)
    C = rng.uniform(0.1, 2.0, size=n)
    C[:2] = 0.0
    margins = rng.uniform(0.5, 1.5, size=n)
    loss = rng.uniform(0.5, 2.0, size=(k, k)) * (1.0 - np.eye(k))
    epsilon = 0.3

    rows = k if problem in PROBLEMS[:2] else 1
    common: dict[str, Any] = {}
    if options in ("bias", "everything"):
        common["bias"] = 1.5
    D = d + ("bias" in common)
    if options in ("mean", "everything"):
        common["mean"] = rng.normal(size=(rows, D))
    if options == "diagonal":
        common["covariance"] = rng.uniform(0.2, 3.0, size=D)
    if options in ("full", "everything"):
        root = rng.normal(size=(D, D))
        common["covariance"] = root @ root.T + 0.1 * np.eye(D)
    if options in ("nonnegative", "everything"):
        common["nonnegative"] = True

    data: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
        "crammer_singer": ((X, y, k), {"margins": margins, "loss_matrix": loss}),
        "weston_watkins": ((X, y, k), {"margins": margins}),
        "hinge": ((X, sign), {"margins": margins}),
        "epsilon_insensitive": ((X, target), {"epsilon": epsilon}),
    }
    args, own = data[problem]
    pieces: Pieces = {
        "crammer_singer": lambda s, i: [
            [margins[i] * loss[y[i], j] + s[j] - s[y[i]] for j in range(k)]
        ],
        "weston_watkins": lambda s, i: [
            [0.0, margins[i] + s[j] - s[y[i]]] for j in range(k) if j != y[i]
        ],
        "hinge": lambda s, i: [[0.0, margins[i] - sign[i] * s[0]]],
        "epsilon_insensitive": lambda s, i: [
            [0.0, s[0] - target[i] - epsilon, target[i] - s[0] - epsilon]
        ],
    }[problem]
    return Case(
        getattr(referee, problem),
        getattr(referee, f"{problem}_objective"),
        args,
        {"C": C, **own, **common},
        pieces,
    )


@pytest.fixture(params=[(p, o) for p in PROBLEMS for o in OPTIONS], ids="-".join)
def case(request: pytest.FixtureRequest) -> Case:
    return make_case(*request.param)


def loop_regulariser(weights: np.ndarray, kwargs: dict[str, Any]) -> float:
    """Return the regulariser, class by class."""
    mean, covariance = kwargs.get("mean"), kwargs.get("covariance")
    total = 0.0
    for c, row in enumerate(weights):
        deviation = row if mean is None else row - mean[c]
        if covariance is None:
            scaled = deviation
        elif covariance.ndim == 1:
            scaled = deviation / covariance
        else:
            scaled = np.linalg.solve(covariance, deviation)
        total += 0.5 * (deviation @ scaled)
    return total


def loop_terms(case: Case, weights: np.ndarray) -> list[tuple[float, list[float]]]:
    """Return the cost and the pieces of every loss term."""
    terms = []
    bias = case.kwargs.get("bias", 0.0)
    for i, x in enumerate(case.args[0]):
        row = [*x, bias] if bias else x
        for pieces in case.pieces(weights @ row, i):
            terms.append((case.kwargs["C"][i], pieces))
    return terms


def bounded(case: Case, weights: np.ndarray) -> np.ndarray:
    """Return which weights must be >= 0."""
    mask = np.zeros(weights.shape, dtype=bool)
    mask[:, : case.args[0].shape[1]] = case.kwargs.get("nonnegative", False)
    return mask


def test_objective_is_its_definition(case: Case) -> None:
    shape = case.solve(*case.args, **case.kwargs).weights.shape
    weights = np.random.default_rng(1).normal(size=shape)
    expected = loop_regulariser(weights, case.kwargs) + sum(
        C * max(pieces) for C, pieces in loop_terms(case, weights)
    )
    assert_allclose(case.objective(weights, *case.args, **case.kwargs), expected, rtol=1e-12)


def test_value_is_the_objective_at_the_weights(case: Case) -> None:
    weights, value = case.solve(*case.args, **case.kwargs)
    assert value == case.objective(weights, *case.args, **case.kwargs)


def test_no_feasible_perturbation_is_better(case: Case) -> None:
    rng = np.random.default_rng(1)
    weights, value = case.solve(*case.args, **case.kwargs)
    mask = bounded(case, weights)
    assert np.all(weights[mask] >= 0.0)
    for scale in np.repeat([1e-4, 1e-2, 1.0], 50):
        other = weights + scale * rng.normal(size=weights.shape)
        other[mask] = np.maximum(other[mask], 0.0)
        assert case.objective(other, *case.args, **case.kwargs) >= value - 1e-9


def test_agrees_with_scipy(case: Case) -> None:
    """Solve the same QP by SLSQP, its constraints taken from the loops."""
    weights, value = case.solve(*case.args, **case.kwargs)
    shape, size = weights.shape, weights.size
    owners = [t for t, (_, p) in enumerate(loop_terms(case, weights)) for _ in p]
    costs = np.array([C for C, _ in loop_terms(case, weights)])

    def pieces(flat: np.ndarray) -> np.ndarray:
        terms = loop_terms(case, flat.reshape(shape))
        return np.array([piece for _, pieces in terms for piece in pieces])

    at_zero = pieces(np.zeros(size))
    slope = np.array([pieces(unit) - at_zero for unit in np.eye(size)]).T
    slack_of = np.eye(len(costs))[owners]
    jacobian = np.hstack([-slope, slack_of])
    free = ~bounded(case, weights).ravel()
    result = optimize.minimize(
        lambda v: loop_regulariser(v[:size].reshape(shape), case.kwargs) + costs @ v[size:],
        np.concatenate([np.zeros(size), np.full(len(costs), 5.0)]),
        constraints={
            "type": "ineq",
            "fun": lambda v: jacobian @ v - at_zero,
            "jac": lambda _: jacobian,
        },
        bounds=[(None if f else 0.0, None) for f in free] + [(0.0, None)] * len(costs),
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert_allclose(value, result.fun, rtol=1e-6)
    assert_allclose(weights.ravel(), result.x[:size], atol=1e-4)


@pytest.mark.parametrize("C", [0.01, 100.0])
def test_hinge_of_one_example(C: float) -> None:
    x, mean = np.array([1.0, -2.0, 0.5]), np.array([0.1, 0.2, -0.3])
    sigma = np.array([[2.0, 0.3, 0.0], [0.3, 1.0, 0.1], [0.0, 0.1, 0.5]])
    # w = mean + a sign Sigma x, with a the step that meets the margin, within [0, cost].
    a = np.clip((1.2 + mean @ x) / (x @ sigma @ x), 0.0, C)
    weights, _ = referee.hinge(
        x[None],
        np.array([-1.0]),
        C=np.array([C]),
        margins=np.array([1.2]),
        mean=mean,
        covariance=sigma,
    )
    assert_allclose(weights, [mean - a * sigma @ x], atol=1e-8)


@pytest.mark.parametrize(("target", "expected"), [(5.0, 1.5), (2.0, 0.9), (0.1, 0.0), (-2.0, -0.9)])
def test_epsilon_insensitive_of_one_example(target: float, expected: float) -> None:
    # One feature of value 2, cost 0.75: the weight is (|target| - 0.2) / 2, at most 2 * 0.75.
    weights, _ = referee.epsilon_insensitive(
        np.array([[2.0]]), np.array([target]), C=np.array([0.75]), epsilon=0.2
    )
    assert_allclose(weights, [[expected]], atol=1e-8)


@pytest.mark.parametrize("C", [0.01, 100.0])
def test_crammer_singer_of_one_example(C: float) -> None:
    # The rival of larger loss takes all the step: w_y = a x, w_rival = -a x.
    x = np.array([1.0, 2.0])
    a = min(C, 0.5 * 4.0 / (2.0 * x @ x))
    weights, _ = referee.crammer_singer(
        x[None],
        np.array([1]),
        3,
        C=np.array([C]),
        margins=np.array([0.5]),
        loss_matrix=np.array([[0.0, 9.0, 9.0], [1.0, 0.0, 4.0], [9.0, 9.0, 0.0]]),
    )
    assert_allclose(weights, [0.0 * x, a * x, -a * x], atol=1e-8)


@pytest.mark.parametrize("C", [0.01, 100.0])
def test_weston_watkins_of_one_example(C: float) -> None:
    # All k - 1 rivals alike: w_y = (k - 1) a x, w_rival = -a x.
    x = np.array([1.0, 2.0])
    a = min(C, 0.5 / (4 * x @ x))
    weights, _ = referee.weston_watkins(
        x[None], np.array([1]), 4, C=np.array([C]), margins=np.array([0.5])
    )
    assert_allclose(weights, np.outer([-a, 3 * a, -a, -a], x), atol=1e-8)


def test_two_classes_are_one_hinge() -> None:
    """With two classes and 0-1 loss both multi-class problems are the hinge at twice the cost."""
    X, sign = make_case("hinge", "plain").args
    y = (sign > 0).astype(int)
    C, margins = np.linspace(0.0, 1.0, len(y)), np.linspace(0.5, 1.5, len(y))
    binary = referee.hinge(X, sign, C=2 * C, margins=margins, bias=1.0)
    loss = 1.0 - np.eye(2)
    for multiclass in (
        referee.crammer_singer(X, y, 2, C=C, margins=margins, loss_matrix=loss, bias=1.0),
        referee.weston_watkins(X, y, 2, C=C, margins=margins, bias=1.0),
    ):
        assert_allclose(multiclass.value, binary.value / 2, rtol=1e-9)
        assert_allclose(multiclass.weights, np.outer([-0.5, 0.5], binary.weights), atol=1e-7)


@pytest.mark.parametrize("problem", PROBLEMS)
class TestEveryProblem:
    def test_diagonal_covariance_is_a_full_one(self, problem: str) -> None:
        case = make_case(problem, "diagonal")
        full = {**case.kwargs, "covariance": np.diag(case.kwargs["covariance"])}
        diagonal = case.solve(*case.args, **case.kwargs)
        assert_allclose(case.solve(*case.args, **full).weights, diagonal.weights, atol=1e-9)

    def test_nonnegative_binds_all_but_the_bias(self, problem: str) -> None:
        case = make_case(problem, "bias")
        free = case.solve(*case.args, **case.kwargs)
        held = case.solve(*case.args, **case.kwargs, nonnegative=True)
        assert free.weights[:, :-1].min() < -1e-3
        assert held.weights[:, :-1].min() >= 0.0
        assert held.value > free.value + 1e-6
        sunk = {**case.kwargs, "mean": np.full(free.weights.shape, -9.0), "C": np.zeros(10)}
        held = case.solve(*case.args, **sunk, nonnegative=True)
        assert_allclose(held.weights[:, :-1], 0.0, atol=1e-9)
        assert_allclose(held.weights[:, -1], -9.0, atol=1e-9)

    def test_zero_cost_example_has_no_influence(self, problem: str) -> None:
        case = make_case(problem, "everything")
        before = case.solve(*case.args, **case.kwargs)
        X = case.args[0].copy()
        X[case.kwargs["C"] == 0.0] = 1e3
        after = case.solve(X, *case.args[1:], **case.kwargs)
        assert_allclose(after.weights, before.weights, atol=1e-9)

    def test_no_cost_at_all_returns_the_mean(self, problem: str) -> None:
        case = make_case(problem, "mean")
        weights, value = case.solve(*case.args, **{**case.kwargs, "C": np.zeros(10)})
        assert_allclose(weights, case.kwargs["mean"], atol=1e-12)
        assert value == pytest.approx(0.0, abs=1e-12)

    def test_unsolved_problem_raises(self, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
        case = make_case(problem, "everything")
        monkeypatch.setattr(referee, "TOLERANCE", 1e-30)
        with pytest.raises(RuntimeError, match="status"):
            case.solve(*case.args, **case.kwargs)

    def test_wrong_arguments_raise(self, problem: str) -> None:
        case = make_case(problem, "plain")
        with pytest.raises(TypeError, match="covarience"):
            case.solve(*case.args, **case.kwargs, covarience=None)
        with pytest.raises(TypeError, match="covarience"):
            case.objective(np.zeros(3), *case.args, **case.kwargs, covarience=None)
        with pytest.raises(ValueError, match="non-negative"):
            case.solve(*case.args, **{**case.kwargs, "C": np.full(10, -1.0)})


def test_disagreement_with_the_objective_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    case = make_case("hinge", "plain")
    monkeypatch.setattr(referee, "hinge_objective", lambda *_, **__: -1.0)
    with pytest.raises(RuntimeError, match="is not the QP's"):
        case.solve(*case.args, **case.kwargs)
