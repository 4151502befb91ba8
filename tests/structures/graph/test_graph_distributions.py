"""Probabilities of cliques against a probability for every labelling."""

import gc
import pickle
import weakref
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from structured_referee import Case, compiled_chains, random_chains

import maxmargin as mm
from maxmargin.core.oracle import Threads
from maxmargin.core.result import Status
from maxmargin.dual.marginal import ExplicitDistributions, distributions_of, mix
from maxmargin.solvers.loop import Stopping
from maxmargin.structures.graph.formats import grid_edges, stack_graphs
from maxmargin.structures.graph.marginals import CliqueTree, GraphDistributions, GraphPoint
from maxmargin.structures.graph.oracle import GraphLayout, GraphOracle, Graphs
from maxmargin.structures.graph.problem import GraphLabelling

ONE = Threads(1)


class Listed(GraphOracle):
    """The same graphs with a number for every labelling."""

    def distributions(self, temperature: float) -> ExplicitDistributions:
        return listed(self, temperature)


def listed(oracle: GraphOracle, temperature: float) -> ExplicitDistributions:
    outputs = [oracle.outputs(g) for g in range(oracle.n_examples)]
    return ExplicitDistributions(oracle, outputs, temperature)


def random_tree(random: Any, n: int) -> np.ndarray:
    """Edges in either direction, nodes in any order."""
    number = random.permutation(n)
    edges = [(number[v], number[random.integers(v)]) for v in range(1, n)]
    return np.array([e[:: random.choice([-1, 1])] for e in edges], dtype=np.int64).reshape(-1, 2)


def random_forest(random: Any, n: int) -> np.ndarray:
    edges = random_tree(random, n)
    return edges[random.random(len(edges)) < 0.6]


def random_graph(random: Any, n: int) -> np.ndarray:
    """A tree with some more edges."""
    edges = random_tree(random, n)
    pairs = {tuple(sorted(e)) for e in edges.tolist()}
    more = [(u, v) for v in range(n) for u in range(v) if (u, v) not in pairs]
    return np.array([*edges.tolist(), *(e for e in more if random.random() < 0.4)], dtype=np.int64)


def complete_graph(random: Any, n: int) -> np.ndarray:
    return np.array([(v, u) for v in range(n) for u in range(v)], dtype=np.int64).reshape(-1, 2)


def ring(random: Any, n: int) -> np.ndarray:
    return np.array([(v, (v + 1) % n) for v in range(n)], dtype=np.int64)


def make_training(
    seed: int, edges_of: Any, sizes: Any, k: int, kind: Any = GraphOracle, **options: Any
) -> GraphOracle:
    """Random graphs of these sizes with `k` labels."""
    random = np.random.default_rng(seed)
    flags = {"bias": True, "directed": False, "sparse": False, "scale": 1.0} | options
    X = []
    for n in sizes:
        edges = edges_of(random, n)
        of_edges = random.integers(-1, 2, (len(edges), 2)).astype(float)
        X.append((random.normal(size=(n, 3)), edges, of_edges))
    stacked = stack_graphs(X)
    if flags["sparse"]:
        rows, edge_rows = sp.csr_array(stacked.X), sp.csr_array(stacked.edge_rows)
        stacked = stacked._replace(X=rows, edge_rows=edge_rows)
    labels = random.integers(0, k, len(stacked.X) if not flags["sparse"] else stacked.X.shape[0])
    return kind(
        Graphs(*stacked),
        labels,
        GraphLayout.of(3, 2, k, bias=flags["bias"], directed=flags["directed"]),
        flags["scale"] * random.uniform(0.1, 1.0, len(X)),
        random.uniform(0.2, 2.0, (k, k)) * (1.0 - np.eye(k)),
        random.uniform(0.2, 1.0, len(labels)),
        inference_method=flags.get("inference", "auto"),
    )


CASES: dict[str, dict[str, Any]] = {
    "trees": {"edges_of": random_tree, "sizes": [5, 6, 4, 1, 2], "k": 3},
    "directed trees": {"edges_of": random_tree, "sizes": [6, 6, 5], "k": 3, "directed": True},
    "forests": {"edges_of": random_forest, "sizes": [6, 7, 5, 6], "k": 2, "sparse": True},
    "loopy": {"edges_of": random_graph, "sizes": [6, 7, 6], "k": 2, "bias": False},
    "loopy, directed": {"edges_of": random_graph, "sizes": [5, 6, 5], "k": 3, "directed": True},
    "complete": {"edges_of": complete_graph, "sizes": [1, 2, 3, 4], "k": 3},
}
TRAININGS = {name: make_training(i, **case) for i, (name, case) in enumerate(CASES.items())}
every_training = pytest.mark.parametrize("oracle", TRAININGS.values(), ids=TRAININGS.keys())


def everything(oracle: Any) -> np.ndarray:
    return np.arange(oracle.n_examples, dtype=np.int64)


def all_labels(oracle: GraphOracle, g: int) -> np.ndarray:
    """One labelling of graph `g` a row."""
    return np.array([np.frombuffer(y, dtype=np.uint16) for y in oracle.outputs(g)])


def places_of_graph(found: GraphDistributions, g: int) -> np.ndarray:
    """Where the cliques of graph `g` have the number of each of its labellings, one a row."""
    ends, tree = found.oracle.graphs.node_ends, found.point.tree
    own = np.arange(ends[g], ends[g + 1])
    labels = np.zeros(ends[-1], dtype=np.int64)
    rows = []
    for y in all_labels(found.oracle, g):
        labels[own] = y
        rows.append(tree.places_of(labels)[own])
    return np.array(rows)


def written_out(found: GraphDistributions, g: int) -> np.ndarray:
    """The probability of each labelling: that of each node given its scope, multiplied."""
    mass, n = found.point.mass, found.oracle.layout.n_labels
    at = places_of_graph(found, g)
    scopes = mass.reshape(-1, n).sum(axis=1)[at // n]
    return np.prod(np.where(scopes > 0.0, mass[at] / np.maximum(scopes, 1e-300), 0.0), axis=1)


def collected(found: GraphDistributions, g: int, masses: np.ndarray) -> np.ndarray:
    """Probabilities of the cliques of graph `g` from those of its labellings."""
    numbers = np.zeros(found.point.n_variables)
    for mass, at in zip(masses, places_of_graph(found, g), strict=True):
        numbers[at] += mass
    return numbers[found._first[0][g] : found._first[0][g + 1]]


def write_out_all(found: GraphDistributions, reference: ExplicitDistributions) -> None:
    """Give all labellings the probabilities that they have by their cliques."""
    for g in everything(found.oracle):
        (first,) = reference._first
        reference.point.mass[first[g] : first[g + 1]] = written_out(found, g)
    reference.linear = reference.expectations()[1]


def duals(solver: Any, oracle: Any, iterations: int = 12, seed: int = 3) -> np.ndarray:
    result = solver.solve(oracle, Stopping(tol=-1.0, max_iter=iterations), seed=seed)
    return np.array([line.dual for line in result.history])


# --- A number for every labelling -----------------------------------------------------------------


@pytest.mark.diagonal
@pytest.mark.parametrize("temperature", [1.0, 0.1, 1e-3, 0.0], ids=str)
@every_training
def test_proposals_and_steps_are_those_of_all_labellings(oracle: Any, temperature: float) -> None:
    found, reference = distributions_of(oracle, 1.0), listed(oracle, 1.0)
    assert isinstance(found, GraphDistributions)
    weights = found.expectations()[0]
    random = np.random.default_rng(0)
    for _ in range(3):
        for g in random.permutation(oracle.n_examples):
            # The same distribution, because a mixture of two is kept by its cliques alone.
            write_out_all(found, reference)
            expected, linear = reference.expectations()
            assert_allclose(weights, expected, atol=1e-9)
            assert_allclose(found.expectations()[0], expected, atol=1e-9)
            assert found.linear == pytest.approx(linear, abs=1e-9)
            assert oracle.dual(found.point) == pytest.approx(oracle.dual(reference.point), abs=1e-9)

            for one in (found, reference):
                one.propose(weights, np.array([g]), temperature, ONE)
            ours, theirs = found._proposals, reference._proposals
            assert ours.hinges[0] == pytest.approx(theirs.hinges[0], abs=1e-9)
            assert ours.values[0] == pytest.approx(theirs.values[0], abs=1e-9)
            assert_allclose(ours.masses[0], collected(found, g, theirs.masses[0]), atol=1e-9)
            directions = np.zeros((2, oracle.n_features))
            terms = [
                one._add_direction(direction)
                for one, direction in zip((found, reference), directions, strict=True)
            ]
            assert_allclose(*directions, atol=1e-9)
            assert terms[0] == pytest.approx(terms[1], abs=1e-9)

            moved = weights.copy()
            gains = found.step(weights).gain, reference.step(moved).gain
            assert gains[0] == pytest.approx(gains[1], abs=1e-9)
            assert_allclose(weights, moved, atol=1e-9)


@pytest.mark.diagonal
@every_training
@pytest.mark.parametrize("temperature", [1.0, 0.05, 0.0], ids=str)
def test_one_step_for_all_is_that_of_all_labellings(oracle: Any, temperature: float) -> None:
    found, reference = distributions_of(oracle, 1.0), listed(oracle, 1.0)
    weights = found.expectations()[0]
    for _ in range(4):
        write_out_all(found, reference)
        moved = weights.copy()
        updates = []
        for one, own in ((found, weights), (reference, moved)):
            one.propose(own, everything(oracle), temperature, ONE)
            updates.append(one.step_together(own))
        assert_allclose(updates[0][:3], updates[1][:3], atol=1e-9)
        assert_allclose(weights, moved, atol=1e-9)
        assert oracle.dual(found.point) == pytest.approx(oracle.dual(reference.point), abs=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_steps_of_one_stay_those_of_all_labellings(name: str) -> None:
    # Nothing is mixed, so the distributions are the same in all rounds.
    oracle = TRAININGS[name]
    found, reference = distributions_of(oracle, 2.0), listed(oracle, 2.0)
    write_out_all(found, reference)
    weights = found.expectations()[0]
    theirs = weights.copy()
    for _ in range(6):
        found.update(weights, everything(oracle), 2.0, 1.0)
        reference.update(theirs, everything(oracle), 2.0, 1.0)
        assert_allclose(weights, theirs, atol=1e-9)
        assert oracle.dual(found.point) == pytest.approx(oracle.dual(reference.point), abs=1e-9)
    for g in everything(oracle):
        own = reference.point.mass[reference._first[0][g] : reference._first[0][g + 1]]
        assert_allclose(written_out(found, g), own, rtol=1e-8, atol=1e-14)


@pytest.mark.parametrize("name", CASES)
def test_temperature_zero_is_frank_wolfe(name: str) -> None:
    solver = mm.PartialLinearization(temperature=0.0)
    ours = duals(solver, TRAININGS[name])
    explicit = make_training([*CASES].index(name), **CASES[name], kind=Listed)
    assert_allclose(ours, duals(solver, explicit), rtol=1e-9, atol=1e-9)
    frank_wolfe = mm.FrankWolfe(batch_size=1)
    assert_allclose(ours, duals(frank_wolfe, TRAININGS[name]), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("temperature", [0.05, 1.0, "scheduled"])
@pytest.mark.parametrize("block", [True, False])
def test_a_graph_that_is_one_clique_takes_the_same_way(temperature: Any, block: bool) -> None:
    # Its clique has a number for every labelling.
    solver = mm.PartialLinearization(temperature=temperature, block=block)
    explicit = make_training([*CASES].index("complete"), **CASES["complete"], kind=Listed)
    found = duals(solver, TRAININGS["complete"], iterations=20)
    assert_allclose(found, duals(solver, explicit, iterations=20), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("solver", [mm.PartialLinearization(), mm.ExponentiatedGradient()])
def test_a_path_is_a_chain(solver: Any) -> None:
    chains = random_chains(50, n=12, k=3, bias=True, ends=False, normalized=False, longest=12)
    paths = [(x, np.array([(t, t + 1) for t in range(len(x) - 1)])) for x in chains.X]
    stacked = stack_graphs(paths)
    oracle = GraphOracle(
        Graphs(*stacked),
        np.array([label for y in chains.Y for label in y]),
        GraphLayout.of(3, 1, 3, bias=True, directed=True),
        chains.C,
        chains.problem.matrix,
        np.ones(len(stacked.X)),
    )
    found, expected = duals(solver, oracle, 30), duals(solver, compiled_chains(chains), 30)
    assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_steps_close_to_one_keep_small_probabilities() -> None:
    random = np.random.default_rng(0)
    old, new = random.random(50), 1e-16 * random.random(50)
    expected = np.float64(2.0**-52) * old + (1.0 - 2.0**-52) * new
    mix(old, new, 1.0 - 2.0**-52)
    assert_allclose(old, expected, rtol=1e-14)


# --- Optimum and certificate ----------------------------------------------------------------------


@pytest.mark.parametrize("edges_of", [random_tree, random_graph])
def test_the_optimum_is_that_of_the_referee(edges_of: Any) -> None:
    random = np.random.default_rng(60)
    problem = GraphLabelling(2)
    X = [(random.normal(size=(5, 2)), edges_of(random, 5)) for _ in range(6)]
    Y = [tuple(random.integers(0, 2, 5).tolist()) for _ in X]
    case = Case(problem, X, Y, random.uniform(0.2, 1.0, 6))  # type: ignore[arg-type]
    oracle = problem.make_oracle(X, [np.array(y) for y in Y], case.C)
    for solver in (mm.PartialLinearization(), mm.ExponentiatedGradient(temperature=10.0)):
        result = solver.solve(oracle, Stopping(tol=1e-3, max_iter=5000))
        assert result.status is Status.CONVERGED
        assert result.certificate.dual <= case.optimum.value * (1 + 1e-8)
        assert result.certificate.primal >= case.optimum.value * (1 - 1e-8)
        assert result.certificate.primal == pytest.approx(case.optimum.value, rel=1e-3)


LARGE: dict[str, dict[str, Any]] = {
    "trees": {"edges_of": random_tree, "sizes": [20, 30, 40, 50] * 3, "k": 4},
    "rings": {"edges_of": ring, "sizes": [12, 25, 18] * 3, "k": 3, "directed": True},
    "ladders": {"edges_of": lambda random, n: grid_edges(3, n // 3), "sizes": [24] * 6, "k": 2},
}


@pytest.mark.parametrize("name", LARGE)
def test_larger_graphs_reach_the_optimum_of_auto(name: str) -> None:
    oracle = make_training(70, **LARGE[name], scale=0.05)
    best = mm.Auto().solve(oracle, Stopping(tol=1e-5)).certificate
    for solver, tol in ((mm.PartialLinearization(), 1e-3), (mm.ExponentiatedGradient(), 1e-2)):
        result = solver.solve(oracle, Stopping(tol=tol, max_iter=2000))
        assert result.status is Status.CONVERGED
        assert result.certificate.dual <= best.primal * (1 + 1e-9)
        assert result.certificate.primal >= best.dual * (1 - 1e-9)
        assert result.certificate.primal == pytest.approx(best.primal, rel=tol)
        assert result.certificate.primal == pytest.approx(oracle.primal(result.weights))


@pytest.mark.parametrize("block", [True, False])
@every_training
def test_the_dual_never_falls_and_is_what_the_steps_say(oracle: Any, block: bool) -> None:
    found = distributions_of(oracle, 0.1)
    weights = found.expectations()[0]
    value = oracle.dual(found.point)
    assert value >= 0.0
    for temperature in (0.3, 0.0, 0.01, 1.0, 1e-4, 0.3):
        found.propose(weights, everything(oracle), temperature, ONE)  # and they grow stale
        update = found.step(weights) if block else found.step_together(weights)
        assert update.gain >= 0.0
        assert update.gap >= -1e-12
        assert oracle.dual(found.point) == pytest.approx(value + update.gain, abs=1e-9)
        value = oracle.dual(found.point)
        assert_allclose(found.expectations()[0], weights, atol=1e-9)
        assert found.linear == pytest.approx(found.expectations()[1], abs=1e-9)


def test_cliques_must_agree_to_have_a_dual_value() -> None:
    for oracle in TRAININGS.values():
        point = distributions_of(oracle, 1.0).point
        tree, n = point.tree, oracle.layout.n_labels
        oracle.dual(point)
        for place, (start, stop) in enumerate(pairwise(tree.starts)):
            # Another label of the node for the same labels of its scope.
            other = point.copy()
            other.mass[start : start + 2] += 0.5 * point.mass[start + 1] * np.array([1.0, -1.0])
            if place in tree.scope:
                with pytest.raises(ValueError, match="not feasible"):
                    oracle.dual(other)
            else:
                assert oracle.dual(other) < np.inf
            for factor in (0.99, 1.01):
                other = point.copy()
                other.mass[stop - n : stop] *= factor
                with pytest.raises(ValueError, match="not feasible"):
                    oracle.dual(other)
        other = point.copy()
        other.mass[0] = np.nan
        with pytest.raises(ValueError, match="not feasible"):
            oracle.dual(other)


def test_probabilities_below_zero_are_none() -> None:
    # One node, where nothing else can be wrong.
    oracle = make_training(0, random_tree, [1], 3)
    point = distributions_of(oracle, 1.0).point
    point.mass[:] = [1.5, -0.5, 0.0]
    with pytest.raises(ValueError, match="not feasible"):
        oracle.dual(point)


def test_cliques_of_other_graphs_have_no_dual_value() -> None:
    oracle = TRAININGS["trees"]
    for other in (
        make_training(9, random_tree, [5, 6, 4, 1, 2], 3),  # other edges
        make_training(0, random_tree, [5, 6, 4, 1, 3], 3),
        make_training(0, random_tree, [5, 6, 4, 1, 2], 2),
    ):
        point = distributions_of(other, 1.0).point
        other.dual(point)
        with pytest.raises(ValueError, match="not feasible"):
            oracle.dual(point)
        with pytest.raises(ValueError, match="The start is no distribution over the"):
            distributions_of(oracle, 1.0).take(point)


def test_pairs_around_a_ring_are_not_enough() -> None:
    # Each pair of neighbours differs for certain, which three nodes with two labels cannot. As
    # cliques of an elimination that forgets the pair it has to add, all of them agree.
    oracle = make_training(0, ring, [3], 2, directed=True)
    differ = np.array([0.0, 0.5, 0.5, 0.0])
    forgetful = CliqueTree(2, np.arange(3), np.array([0, 2, 3, 3]), np.array([1, 2, 2]))
    assert oracle.dual(GraphPoint(forgetful.even(), forgetful))
    pairs_only = CliqueTree(2, np.arange(3), np.array([0, 1, 2, 3]), np.array([1, 2, 0]))
    with pytest.raises(ValueError, match="not feasible"):
        oracle.dual(GraphPoint(np.tile(differ, 3), pairs_only))
    # A scope that is no part of the next clique.
    loose = CliqueTree(2, np.arange(4), np.array([0, 2, 3, 4, 4]), np.array([1, 2, 3, 3]))
    assert not loose.is_distribution(loose.even(), 1e-9)
    whole = CliqueTree(2, np.arange(4), np.array([0, 2, 4, 5, 5]), np.array([1, 2, 2, 3, 3]))
    assert whole.is_distribution(whole.even(), 1e-9)


@every_training
def test_marginals_are_those_of_all_labellings(oracle: Any) -> None:
    found = distributions_of(oracle, 0.5)
    found.update(found.expectations()[0], everything(oracle), 0.5)
    graphs, n = oracle.graphs, oracle.layout.n_labels
    edges = graphs.edges + np.repeat(graphs.node_ends[:-1], graphs.n_edges)[:, None]
    nodes = found.point.tree.node_marginals(found.point.mass)
    pairs = found.point.tree.edge_marginals(found.point.mass, edges)
    for g in everything(oracle):
        mass, y = written_out(found, g), all_labels(oracle, g)
        assert mass.sum() == pytest.approx(1.0, abs=1e-12)
        of_nodes = np.einsum("j,jva->va", mass, np.eye(n)[y])
        assert_allclose(nodes[graphs.node_ends[g] : graphs.node_ends[g + 1]], of_nodes, atol=1e-12)
        for e in range(graphs.edge_ends[g], graphs.edge_ends[g + 1]):
            u, v = graphs.edges[e]
            expected = np.einsum("j,ja,jb->ab", mass, np.eye(n)[y[:, u]], np.eye(n)[y[:, v]])
            assert_allclose(pairs[e], expected, atol=1e-12)


# --- Starts, threads, odd sizes -------------------------------------------------------------------


@every_training
def test_a_cold_start_has_weights_of_exactly_zero(oracle: Any) -> None:
    weights, linear = distributions_of(oracle, 0.0).expectations()
    assert not weights.any()
    assert linear == 0.0


@every_training
def test_a_warm_start_goes_on_where_the_last_solve_ended(oracle: Any) -> None:
    solver = mm.PartialLinearization(temperature=0.1)
    first = solver.solve(oracle, Stopping(tol=0.0, max_iter=10))
    start = pickle.loads(pickle.dumps(first.dual_point))
    assert oracle.dual(start) == first.certificate.dual
    again = solver.solve(oracle, Stopping(tol=0.0, max_iter=1), start=start)
    assert again.history[0].dual >= first.certificate.dual - 1e-12
    assert again.history[0].dual == pytest.approx(first.certificate.dual, rel=0.1)


def test_a_labeler_starts_warm_with_another_c() -> None:
    random = np.random.default_rng(80)
    X = [(random.normal(size=(12, 3)), random_tree(random, 12)) for _ in range(10)]
    y = [np.argmax(x + random.normal(size=x.shape), axis=1) for x, _ in X]
    labeler = mm.GraphLabeler(C=0.1, solver="partial-linearization", warm_start=True, tol=1e-3).fit(
        X, y
    )
    warm = labeler.set_params(C=0.2).fit(X, y)
    cold = mm.GraphLabeler(C=0.2, solver="auto", tol=1e-4).fit(X, y)
    assert warm.certificate_.relative_gap <= 1e-3
    assert warm.certificate_.primal == pytest.approx(cold.certificate_.primal, rel=2e-3)


def test_a_dual_point_does_not_keep_the_data() -> None:
    oracle = make_training(0, random_tree, [5, 6], 3)
    point = mm.PartialLinearization().solve(oracle, Stopping(max_iter=2)).dual_point
    data = weakref.ref(oracle)
    del oracle
    gc.collect()
    assert data() is None
    assert point.n_variables == 9 * (4 + 5) + 2 * 3


@pytest.mark.parametrize("name", ["trees", "loopy"])
@pytest.mark.parametrize(
    "solver",
    [
        mm.PartialLinearization(batch_size=2),
        mm.PartialLinearization(temperature=0.05, block=False),
        mm.ExponentiatedGradient(temperature=3.0, batch_size=3),
    ],
    ids=["block", "batch", "gradient"],
)
def test_threads_change_nothing(name: str, solver: Any) -> None:
    found = [
        solver.solve(TRAININGS[name], Stopping(tol=0.0, max_iter=8), n_jobs=n_jobs, seed=1)
        for n_jobs in (1, 3)
    ]
    assert_array_equal(found[0].weights, found[1].weights)
    assert found[0].certificate == found[1].certificate


@pytest.mark.parametrize("temperature", [1e-10, 1e-4, 1e4, 1e10], ids=str)
@pytest.mark.parametrize("name", ["trees", "loopy, directed"])
def test_extreme_temperatures_do_no_harm(name: str, temperature: float) -> None:
    for kind in (mm.PartialLinearization, mm.ExponentiatedGradient):
        result = kind(temperature=temperature).solve(
            TRAININGS[name], Stopping(tol=0.0, max_iter=20)
        )
        assert np.isfinite(result.weights).all()
        assert np.isfinite(result.certificate.gap)
        assert result.certificate.dual >= 0.0


def test_graphs_without_nodes_without_edges_and_with_one_label() -> None:
    odd = make_training(0, random_forest, [0, 1, 3, 0, 1], 3)
    optimum = mm.Auto().solve(odd, Stopping(tol=1e-5)).certificate
    for solver in (mm.PartialLinearization(), mm.PartialLinearization(block=False)):
        result = solver.solve(odd, Stopping(tol=1e-3, max_iter=3000))
        assert result.certificate.primal == pytest.approx(optimum.primal, rel=2e-3)
    unlinked = make_training(0, lambda random, n: np.zeros((0, 2), dtype=int), [2, 3], 2)
    assert duals(mm.PartialLinearization(), unlinked).max() > 0.0
    assert duals(mm.PartialLinearization(), make_training(0, random_tree, [4, 2], 1)).max() == 0.0


@pytest.mark.parametrize("sparse", [False, True])
def test_features_may_be_dense_or_sparse(sparse: bool) -> None:
    solver = mm.PartialLinearization()
    found = duals(solver, make_training(3, random_tree, [6, 8, 7], 4, sparse=sparse))
    assert_allclose(found, duals(solver, make_training(3, random_tree, [6, 8, 7], 4)), rtol=1e-9)


# --- Sentences ------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["partial-linearization", "exponentiated-gradient"])
def test_graphs_that_are_not_searched_exactly(solver: str) -> None:
    random = np.random.default_rng(0)
    tree = (random.normal(size=(3, 1)), random_tree(random, 3))
    grid = (random.normal(size=(900, 1)), grid_edges(30, 30))
    y = [random.integers(0, 2, 3), random.integers(0, 2, 900)]
    model = mm.GraphLabeler(solver=solver, tol=1e-3)
    expected = (
        r"^PartialLinearization and ExponentiatedGradient need the marginals of exact inference, "
        r"which graph 1 has not: use another solver, such as 'auto', or "
        r"inference_method='exact' if the treewidth is small\.$"
    )
    with pytest.raises(ValueError, match=expected):
        model.fit([tree, grid], y)
    with pytest.raises(ValueError, match="graph 0 has not"):
        model.set_params(inference_method="relaxed").fit([tree], y[:1])


def test_more_probabilities_than_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maxmargin.structures.graph.marginals.MOST_NUMBERS", 10)
    with pytest.raises(ValueError, match=r"keep 18 probabilities .* but 10 are the limit: use"):
        distributions_of(make_training(0, random_tree, [1, 1, 2], 3), 0.0)
