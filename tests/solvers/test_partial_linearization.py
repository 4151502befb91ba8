import gc
import weakref
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from structured_referee import (
    Case,
    Chains,
    compiled_chains,
    random_chains,
    random_classes,
    widen,
)

import maxmargin as mm
from maxmargin.core.certificate import DualPoint
from maxmargin.core.oracle import Threads
from maxmargin.core.python_oracle import PythonOracle
from maxmargin.core.result import Status
from maxmargin.dual.marginal import ExplicitPoint, distributions_of
from maxmargin.solvers.loop import Stopping
from maxmargin.structures.chain.marginals import ChainDistributions
from maxmargin.structures.chain.oracle import ChainOracle, Layout, Sequences

ONE = Threads(1)
TEMPERATURES = (0.0, 0.001, 0.1, 3.0, "scheduled")


def trainings() -> dict[str, Any]:
    """The same code paths that users can reach, on small data."""
    tied = random_chains(7, n=10, n_tied=2, shortest=1)
    return {
        "classes": random_classes(1).oracle(),
        "slack": random_classes(2, rescaling="slack").oracle(),
        "listed chains": random_chains(3).oracle(),
        "chains": compiled_chains(random_chains(4, n=15)),
        "sparse chains": compiled_chains(random_chains(5, n=15, bias=True, ends=True), sparse=True),
        "single rows": compiled_chains(random_chains(6, n=20, longest=1, ends=True)),
        "empty sequences": compiled_chains(random_chains(8, n=15, shortest=0)),
        "tied chains": compiled_chains(tied, sparse=True),
    }


TRAININGS = trainings()
every_training = pytest.mark.parametrize("oracle", TRAININGS.values(), ids=TRAININGS.keys())


def duals(solver: Any, oracle: Any, iterations: int = 12, seed: int = 3) -> np.ndarray:
    result = solver.solve(oracle, Stopping(tol=-1.0, max_iter=iterations), seed=seed)
    return np.array([line.dual for line in result.history])


# --- The two algorithms it generalises ----------------------------------------------------------


@every_training
def test_temperature_zero_takes_the_steps_of_frank_wolfe(oracle: Any) -> None:
    ours = mm.PartialLinearization(temperature=0.0, batch_size=1)
    found, expected = duals(ours, oracle), duals(mm.FrankWolfe(batch_size=1), oracle)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@every_training
def test_temperature_zero_takes_the_steps_of_frank_wolfe_over_all_blocks(oracle: Any) -> None:
    ours = mm.PartialLinearization(temperature=0.0, block=False)
    found, expected = duals(ours, oracle), duals(mm.FrankWolfe(block=False), oracle)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


class LogSpace:
    """Exponentiated gradient as in the literature: one logarithm for every output."""

    def __init__(self, case: Case, masses: list[np.ndarray], temperature: float) -> None:
        self.psi, self.losses = case.pieces
        self.C, self.temperature = case.C, temperature
        self.logs = np.full(self.losses.shape, -np.inf)
        for logs, mass in zip(self.logs, masses, strict=True):
            logs[: len(mass)] = np.log(mass)

    @property
    def masses(self) -> np.ndarray:
        return np.exp(self.logs)

    @property
    def weights(self) -> np.ndarray:
        return np.einsum("i,ij,ijf->f", self.C, self.masses, self.psi)

    @property
    def dual(self) -> float:
        weights = self.weights
        return float(self.C @ (self.masses * self.losses).sum(axis=1) - 0.5 * weights @ weights)

    def step(self, blocks: np.ndarray) -> None:
        slopes = self.losses - self.psi @ self.weights
        self.logs[blocks] += slopes[blocks] / self.temperature
        self.logs[blocks] -= np.logaddexp.reduce(self.logs[blocks], axis=1, keepdims=True)


def split(point: ExplicitPoint, case: Case) -> list[np.ndarray]:
    sizes = [len(case.problem.outputs(x)) for x in case.X]
    return np.split(point.mass, np.cumsum(sizes)[:-1])


@pytest.mark.parametrize("block", [True, False])
@pytest.mark.parametrize("make", [random_classes, random_chains])
def test_steps_of_one_are_exponentiated_gradient(make: Any, block: bool) -> None:
    case = make(11)
    oracle = case.oracle()
    start = split(distributions_of(oracle, 5.0).point, case)
    expected = LogSpace(case, start, 5.0)
    random = np.random.default_rng(3)
    reference = []
    for _ in range(6):
        order = random.permutation(len(case.X)) if block else np.arange(len(case.X))
        for blocks in order[:, None] if block else [order]:
            expected.step(blocks)
        reference.append(expected.dual)
    assert all(a < b for a, b in pairwise(reference)), "or the best point would not be the last"
    solver = mm.ExponentiatedGradient(temperature=5.0, block=block)
    result = solver.solve(oracle, Stopping(tol=-1.0, max_iter=6), seed=3)
    np.testing.assert_allclose([line.dual for line in result.history], reference, rtol=1e-9)
    for found, wanted in zip(split(result.dual_point, case), expected.masses, strict=True):
        np.testing.assert_allclose(found, wanted[: len(found)], rtol=1e-8)


def labellings(found: ChainDistributions, b: int) -> dict[tuple[int, ...], float]:
    """The distribution of one sequence written out, from its labels and pairs."""
    ends, n = found.point.ends, found.oracle.layout.n_labels
    nodes = found.point.nodes[ends[b] : ends[b + 1]]
    first = np.maximum(np.diff(ends[: b + 1]) - 1, 0).sum()
    pairs = found.point.pairs[first:]
    result = {}
    for y in product(range(n), repeat=len(nodes)):
        if len(y) < 2:
            mass = nodes[0, y[0]] if y else 1.0
        else:
            mass = np.prod([pairs[t, y[t], y[t + 1]] for t in range(len(y) - 1)])
            twice = np.prod([nodes[t, y[t]] for t in range(1, len(y) - 1)])
            mass = mass / twice if twice else 0.0
        result[y] = float(mass)
    return result


def marginals(
    masses: np.ndarray, outputs: list[Any], length: int, n: int
) -> tuple[np.ndarray, np.ndarray]:
    nodes, pairs = np.zeros((length, n)), np.zeros((max(length - 1, 0), n, n))
    for mass, y in zip(masses, outputs, strict=True):
        for t in range(length):
            nodes[t, y[t]] += mass
        for t in range(length - 1):
            pairs[t, y[t], y[t + 1]] += mass
    return nodes, pairs


@pytest.mark.parametrize("temperature", [5.0, 0.9])
def test_steps_of_one_are_exponentiated_gradient_on_chains(temperature: float) -> None:
    case = random_chains(12, n=6)
    oracle = compiled_chains(case)
    found = distributions_of(oracle, temperature)
    start = [np.array([*labellings(found, b).values()]) for b in range(6)]
    expected = LogSpace(case, start, temperature)
    weights = found.expectations()[0]
    n = len(case.problem.matrix)
    for _ in range(3):
        for b in range(6):
            expected.step(np.array([b]))
            found.propose(weights, np.array([b]), temperature, ONE)
            found.step(weights, 1.0)
    assert oracle.dual(found.point) == pytest.approx(expected.dual, rel=1e-9)
    for b in range(6):
        outputs, ends = case.problem.outputs(case.X[b]), found.point.ends
        masses = expected.masses[b, : len(outputs)]
        nodes, _ = marginals(masses, outputs, len(case.X[b]), n)
        np.testing.assert_allclose(
            found.point.nodes[ends[b] : ends[b + 1], :n], nodes, rtol=1e-8, atol=1e-12
        )


# --- The paper's worked example -----------------------------------------------------------------


class Unlisted(mm.Problem):
    """Section 4.1: ``A = diag(2, 1, 3)``, ``b = (1, 1, 0)``; the truth is a fourth output."""

    def joint_feature(self, x: Any, y: Any) -> Any:
        return -np.diag([2.0, 1.0, 3.0])[y] if y < 3 else np.zeros(3)

    def loss(self, y_true: Any, y: Any) -> float:
        return [1.0, 1.0, 0.0, 0.0][y]

    def inference(self, x: Any, w: Any) -> Any:
        raise NotImplementedError

    def loss_augmented_inference(self, x: Any, y_true: Any, w: Any) -> Any:
        raise NotImplementedError


class Example(Unlisted):
    def outputs(self, x: Any) -> list[Any]:
        return [0, 1, 2]


@pytest.mark.parametrize(
    ("temperature", "direction", "decrease"),
    [(0.0, [1, 0, 0], 0.5341), (1.0, [0.199, 0.796, 0.005], 1.2550)],
)
def test_the_worked_example(temperature: float, direction: list[float], decrease: float) -> None:
    oracle = PythonOracle(Example(), [None], [3], np.ones(1))
    found = distributions_of(oracle, temperature)
    mass = found.point.mass
    # Not on the simplex, but that is what the paper's numbers are for; the truth has nothing.
    mass[:] = [0.125, 0.5, 0.5, 0.0]
    weights = found.expectations()[0]
    np.testing.assert_allclose(weights, [0.25, 0.5, 1.5])
    found.propose(weights, np.array([0]), temperature, ONE)
    proposed = found._proposals.masses[0][:3]
    np.testing.assert_allclose(proposed, direction, atol=5e-4)
    change = np.diag([2.0, 1.0, 3.0]) @ (proposed - mass[:3])
    slope = np.array([1.0, 1.0, 0.0]) @ (proposed - mass[:3]) - weights @ change
    free = slope / (change @ change)
    assert (free > 1.0) == (temperature > 0.0), "the paper's second step is cut off at one"
    assert found.step(weights).gain == pytest.approx(decrease, abs=5e-5)


# --- Chains and the same chains written out -----------------------------------------------------


CHAINS = {
    "any": random_chains(21, n=8, longest=5),
    "bias and ends": random_chains(22, n=8, bias=True, ends=True),
    "tied": random_chains(23, n=8, n_tied=2),
    "normalized": random_chains(24, n=8, normalized=True, k=3),
}


@pytest.mark.parametrize("temperature", [1.0, 0.1, 1e-3, 0.0], ids=str)
@pytest.mark.parametrize("case", CHAINS.values(), ids=CHAINS.keys())
def test_chains_agree_with_all_labellings_written_out(case: Case, temperature: float) -> None:
    oracle = compiled_chains(case)
    n, layout = oracle.layout.n_labels, oracle.layout
    psi, losses = case.pieces
    random = np.random.default_rng(0)
    found = distributions_of(oracle, 1.0)
    weights = found.expectations()[0]
    for _ in range(3):
        for b in random.permutation(len(case.X)):
            outputs = case.problem.outputs(case.X[b])
            mass = np.array([*labellings(found, b).values()])
            vectors = np.array([widen(row, layout) for row in psi[b, : len(outputs)]])
            slopes = losses[b, : len(outputs)] - vectors @ weights
            assert mass.sum() == pytest.approx(1.0)

            found.propose(weights, np.array([b]), temperature, ONE)
            proposals = found._proposals
            assert proposals.hinges[0] == pytest.approx(slopes.max())
            assert proposals.values[0] == pytest.approx(mass @ slopes)
            logs = np.log(mass) + slopes / temperature if temperature else slopes
            wanted = np.exp(logs - logs.max()) if temperature else 1.0 * (logs == logs.max())
            wanted /= wanted.sum()
            nodes, pairs = marginals(wanted, outputs, len(case.X[b]), n)
            of_nodes = proposals.masses[0].reshape(-1, layout.n_columns)
            of_pairs = proposals.masses[1].reshape(-1, n, layout.n_columns)
            np.testing.assert_allclose(of_nodes[:, :n], nodes, atol=1e-9)
            np.testing.assert_allclose(of_pairs[:, :, :n], pairs, atol=1e-9)
            assert not of_nodes[:, n:].any()
            assert not of_pairs[:, :, n:].any()

            direction = case.C[b] * (wanted - mass) @ vectors
            slope = case.C[b] * (wanted - mass) @ slopes
            square = direction @ direction
            step = np.clip(slope / square, 0.0, 1.0) if square else 0.0
            expected = weights + step * direction
            gain = found.step(weights).gain
            assert gain == pytest.approx(step * (slope - 0.5 * step * square), abs=1e-10)
            np.testing.assert_allclose(weights, expected, atol=1e-9)
    fresh, linear = found.expectations()
    np.testing.assert_allclose(fresh, weights, atol=1e-9)
    assert found.linear == pytest.approx(linear)


def test_factors_and_logarithms_reweight_alike() -> None:
    # Features tied to pairs that are all zero change nothing but the way it is computed.
    case = random_chains(25, n=10, k=3, longest=6)
    plain = compiled_chains(case, sparse=True)
    X, ends = plain.sequences.matrix, plain.sequences.ends
    tied = ChainOracle(
        Sequences.of(X, ends, sp.csr_array((X.shape[0], 1))),
        plain.labels,
        Layout.of(3, 3, bias=case.problem.bias, ends=case.problem.ends, n_tied=1),
        plain.C,
        case.problem.matrix,
        normalized=case.problem.normalized,
    )
    for temperature in (2.0, 0.05, 0.01):
        solver = mm.PartialLinearization(temperature=temperature)
        np.testing.assert_allclose(duals(solver, plain), duals(solver, tied), rtol=1e-9)


def test_columns_that_stand_twice_in_a_row_add_up() -> None:
    data, columns = np.array([1.0, 2.0, -1.0, 0.5]), np.array([0, 0, 1, 0])
    twice = sp.csr_array((data, columns, np.array([0, 2, 3, 4])), shape=(3, 2))
    once = twice.copy()
    once.sum_duplicates()
    found = []
    for X in (twice, once):
        oracle = ChainOracle(
            Sequences.of(X, np.arange(4)),
            np.array([0, 1, 2]),
            Layout.of(2, 3, bias=True, ends=False),
            np.ones(3),
            1.0 - np.eye(3),
        )
        found.append(duals(mm.PartialLinearization(temperature=0.1), oracle))
    np.testing.assert_allclose(*found, rtol=1e-12)


def test_features_may_be_dense_or_sparse_of_any_width_and_labels_one() -> None:
    case = random_chains(26, n=10)
    solver = mm.PartialLinearization()
    expected = duals(solver, compiled_chains(case))
    for sparse, dtype, rtol in ((True, np.float64, 1e-9), (False, np.float32, 1e-3)):
        found = duals(solver, compiled_chains(case, sparse=sparse, dtype=dtype))
        np.testing.assert_allclose(found, expected, rtol=rtol)
    assert duals(solver, compiled_chains(random_chains(27, k=1))).max() == 0.0


@pytest.mark.parametrize("temperature", [1e-10, 1e-4, 1e4, 1e10], ids=str)
@pytest.mark.parametrize("name", ["classes", "chains", "tied chains"])
def test_extreme_temperatures_do_no_harm(name: str, temperature: float) -> None:
    for kind in (mm.PartialLinearization, mm.ExponentiatedGradient):
        solver = kind(temperature=temperature)
        result = solver.solve(TRAININGS[name], Stopping(tol=0.0, max_iter=20))
        assert np.isfinite(result.weights).all()
        assert np.isfinite(result.certificate.gap)
        assert result.certificate.dual >= 0.0


@every_training
def test_a_cold_start_has_weights_of_exactly_zero(oracle: Any) -> None:
    # What rounding would leave decides between outputs that are equally good, of which there are
    # many as long as weights are zero: the first pass would not be that of Frank-Wolfe.
    weights, linear = distributions_of(oracle, 0.0).expectations()
    assert not weights.any()
    assert linear == 0.0


# --- What any solver promises -------------------------------------------------------------------


@pytest.mark.diagonal
@every_training
@pytest.mark.parametrize("temperature", TEMPERATURES, ids=str)
@pytest.mark.parametrize("block", [True, False])
def test_the_dual_never_falls(oracle: Any, temperature: Any, block: bool) -> None:
    found = distributions_of(oracle, 0.1)
    weights, everything = found.expectations()[0], np.arange(oracle.n_examples)
    value = oracle.dual(found.point)
    assert value >= 0.0
    for _ in range(4):
        level = 0.3 if temperature == "scheduled" else temperature
        found.propose(weights, everything, level, ONE)  # at weights that grow stale
        update = found.step(weights) if block else found.step_together(weights)
        assert update.gain >= 0.0
        assert update.gap >= -1e-12
        assert oracle.dual(found.point) == pytest.approx(value + update.gain, abs=1e-9)
        value = oracle.dual(found.point)
    solver = mm.PartialLinearization(temperature=temperature, block=block)
    assert (np.diff(duals(solver, oracle)) >= -1e-12).all()


@pytest.mark.diagonal
@pytest.mark.parametrize("temperature", [0.1, "scheduled"])
@pytest.mark.parametrize("make", [random_classes, random_chains])
@pytest.mark.parametrize("seed", range(2))
def test_the_optimum_is_that_of_the_referee(make: Any, temperature: Any, seed: int) -> None:
    case = make(30 + seed)
    chains = isinstance(case.problem, Chains)
    for oracle in [case.oracle(), *([compiled_chains(case)] if chains else [])]:
        solver = mm.PartialLinearization(temperature=temperature)
        result = solver.solve(oracle, Stopping(tol=1e-4, max_iter=3000))
        assert result.status is Status.CONVERGED
        certificate, optimum = result.certificate, case.optimum.value
        assert certificate.dual <= optimum * (1 + 1e-7)
        assert certificate.primal >= optimum * (1 - 1e-7)
        assert certificate.primal == pytest.approx(optimum, rel=2e-4)
        auto = mm.Auto().solve(oracle, Stopping(tol=1e-5))
        assert certificate.primal == pytest.approx(auto.certificate.primal, rel=2e-4)


@pytest.mark.parametrize("block", [True, False])
def test_exponentiated_gradient_finds_the_optimum_when_it_is_hot_enough(block: bool) -> None:
    case = random_classes(33)
    solver = mm.ExponentiatedGradient(temperature=20.0, block=block)
    result = solver.solve(case.oracle(), Stopping(tol=1e-3, max_iter=20_000))
    assert result.status is Status.CONVERGED
    assert result.certificate.primal == pytest.approx(case.optimum.value, rel=2e-3)


@pytest.mark.diagonal
@every_training
@pytest.mark.parametrize(
    "solver",
    [
        mm.PartialLinearization(),
        mm.PartialLinearization(temperature=0.05, block=False),
        mm.ExponentiatedGradient(),
        mm.ExponentiatedGradient(temperature=0.01),
    ],
    ids=["block", "batch", "gradient", "too cold"],
)
def test_certificates_bracket_and_history_tells_them(oracle: Any, solver: Any) -> None:
    result = solver.solve(oracle, Stopping(tol=-1.0, max_iter=15))  # some reach a gap of zero
    optimum = mm.Auto().solve(oracle, Stopping(tol=1e-6)).certificate
    certificate = result.certificate
    assert certificate.dual <= optimum.primal * (1 + 1e-9)
    assert certificate.primal >= optimum.dual * (1 - 1e-9)
    assert certificate.dual == pytest.approx(result.history[-1].dual, rel=1e-9, abs=1e-9)
    assert certificate.primal == pytest.approx(oracle.primal(result.weights), rel=1e-12)
    assert result.iterations == len(result.history) == 15
    assert result.history[-1].cuts == result.dual_point.n_variables


def test_exponentiated_gradient_keeps_its_best_point() -> None:
    case = random_classes(1)
    oracle = case.with_cost(100.0 * case.C).oracle()
    found = distributions_of(oracle, 0.01)
    start, weights = oracle.dual(found.point), found.expectations()[0]
    for b in np.random.default_rng(0).permutation(oracle.n_examples):
        found.propose(weights, np.array([b]), 0.01, ONE)
        found.step(weights, 1.0)
    assert oracle.dual(found.point) < start, "the example must be one where the dual falls"
    solver = mm.ExponentiatedGradient(temperature=0.01)
    result = solver.solve(oracle, Stopping(tol=0.0, max_iter=1), seed=0)
    assert result.certificate.dual == pytest.approx(start)


@pytest.mark.parametrize("name", ["chains", "tied chains", "single rows", "classes"])
@pytest.mark.parametrize(
    "solver",
    [
        mm.PartialLinearization(batch_size=4),
        mm.PartialLinearization(temperature=0.05, block=False),
        mm.ExponentiatedGradient(temperature=3.0, batch_size=5),
    ],
    ids=["block", "batch", "gradient"],
)
def test_threads_change_nothing(name: str, solver: Any) -> None:
    found = [
        solver.solve(TRAININGS[name], Stopping(tol=0.0, max_iter=8), n_jobs=n_jobs, seed=1)
        for n_jobs in (1, 3)
    ]
    np.testing.assert_array_equal(found[0].weights, found[1].weights)
    assert found[0].certificate == found[1].certificate


@every_training
def test_a_warm_start_goes_on_where_the_last_solve_ended(oracle: Any) -> None:
    solver = mm.PartialLinearization(temperature=0.1)
    first = solver.solve(oracle, Stopping(tol=0.0, max_iter=10))
    again = solver.solve(oracle, Stopping(tol=0.0, max_iter=1), start=first.dual_point)
    assert again.history[0].dual >= first.certificate.dual - 1e-12
    assert again.history[0].dual == pytest.approx(first.certificate.dual, rel=0.1)


def test_a_warm_start_may_have_another_c() -> None:
    case = random_chains(40)
    more = case.with_cost(2.0 * case.C)
    solver = mm.PartialLinearization()
    first = solver.solve(compiled_chains(case), Stopping(tol=1e-3))
    again = solver.solve(compiled_chains(more), Stopping(tol=1e-3), start=first.dual_point)
    assert again.status is Status.CONVERGED
    assert again.certificate.primal == pytest.approx(more.optimum.value, rel=2e-3)


@pytest.mark.parametrize("name", ["chains", "classes"])
def test_a_start_of_another_kind_is_refused(name: str) -> None:
    found = distributions_of(TRAININGS[name], 0.0)
    other = TRAININGS["sparse chains" if name == "chains" else "listed chains"]
    for start in (distributions_of(other, 0.0).point, DualPoint(np.zeros(0), np.zeros(0), [])):
        with pytest.raises(ValueError, match="The start is no distribution over the"):
            found.take(start)


@pytest.mark.parametrize(
    "make", [lambda: random_classes(1).oracle(), lambda: compiled_chains(random_chains(4))]
)
def test_a_dual_point_does_not_keep_the_data(make: Any) -> None:
    oracle = make()
    point = mm.PartialLinearization().solve(oracle, Stopping(max_iter=2)).dual_point
    value, data = oracle.dual(point), weakref.ref(oracle)
    del oracle
    gc.collect()
    assert data() is None
    assert make().dual(point) == value


def test_what_is_no_distribution_has_no_dual_value() -> None:
    point = distributions_of(TRAININGS["chains"], 1.0).point
    with pytest.raises(ValueError, match="not feasible"):
        TRAININGS["sparse chains"].dual(point)
    point.nodes[0, :2] += 0.1, -0.1
    with pytest.raises(ValueError, match="not feasible"):
        TRAININGS["chains"].dual(point)
    listed = distributions_of(TRAININGS["classes"], 1.0).point
    listed.mass[0] += 0.1
    with pytest.raises(ValueError, match="not feasible"):
        TRAININGS["classes"].dual(listed)


def test_the_schedule_does_not_depend_on_the_unit_of_the_loss() -> None:
    case = random_chains(41)
    assert isinstance(case.problem, Chains)
    large = Case(
        Chains(
            8.0 * case.problem.matrix,
            bias=case.problem.bias,
            ends=case.problem.ends,
            normalized=case.problem.normalized,
        ),
        case.X,
        case.Y,
        8.0 * case.C,
    )
    solver = mm.PartialLinearization()
    found = [duals(solver, compiled_chains(one), iterations=20) for one in (case, large)]
    np.testing.assert_allclose(64.0 * found[0], found[1], rtol=1e-9)


# --- Sentences ----------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["partial-linearization", "exponentiated-gradient"])
def test_a_problem_that_cannot_list_its_outputs(solver: str) -> None:
    expected = (
        r"PartialLinearization and ExponentiatedGradient need Unlisted to have the method outputs"
    )
    model = mm.StructuredSVM(Unlisted(), solver=solver)
    with pytest.raises(ValueError, match=expected):
        model.fit([0], [3])


@pytest.mark.parametrize("options", [{"order": 2}, {"loss": "zero-one"}, {"rescaling": "slack"}])
def test_chains_that_have_no_such_distributions(options: dict[str, Any]) -> None:
    model = mm.SequenceTagger(solver="partial-linearization", **options)
    with pytest.raises(ValueError, match="train chains of order 1 with margin rescaling"):
        model.fit([np.eye(2)], [["a", "b"]])


@pytest.mark.parametrize("temperature", [-1.0, np.nan, np.inf, "warm"])
def test_temperatures_that_are_none(temperature: Any) -> None:
    with pytest.raises(ValueError, match=r'temperature must be "scheduled" or a number'):
        mm.PartialLinearization(temperature=temperature)
    with pytest.raises(ValueError, match="temperature must be a positive number"):
        mm.ExponentiatedGradient(temperature=temperature)


def test_both_have_names() -> None:
    X, y = [np.eye(2), np.eye(2)[:1]], [["a", "b"], ["a"]]
    for name in ("partial-linearization", "exponentiated-gradient"):
        model = mm.SequenceTagger(solver=name, tol=0.05).fit(X, y)
        assert model.certificate_.relative_gap <= 0.05
