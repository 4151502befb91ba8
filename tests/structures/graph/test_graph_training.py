"""Compiled graphs against all labellings of the same graphs, one by one, in plain Python."""

from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from structured_referee import Case, Enumerable, random_cost

import maxmargin as mm
from maxmargin.core.oracle import Threads
from maxmargin.core.result import Status
from maxmargin.core.slack_rescaling import SlackRescaledOracle
from maxmargin.solvers.block_coordinate import Auto, DualCoordinate, FrankWolfe
from maxmargin.solvers.cutting_plane import NSlack, OneSlack
from maxmargin.solvers.loop import Stopping
from maxmargin.solvers.partial_linearization import PartialLinearization
from maxmargin.structures.graph.formats import grid_edges, stack_graphs
from maxmargin.structures.graph.oracle import GraphInference, GraphLayout, GraphOracle, Graphs
from maxmargin.structures.graph.problem import GraphLabelling

ONE = Threads(1)


class PlainGraphs(Enumerable):
    """A label for each node, as a tuple; features written down one by one."""

    def __init__(self, layout, matrix, scales):
        super().__init__()
        self.layout, self.matrix, self.scales = layout, matrix, scales

    def outputs(self, x):
        return [tuple(y) for y in np.ndindex(*[self.layout.n_labels] * len(x[0]))]

    def joint_feature(self, x, y):
        nodes, edges, of_edges = x
        n, layout = self.layout.n_labels, self.layout
        table = np.zeros((layout.n_rows, layout.n_columns))
        for row, label in zip(nodes, y, strict=True):
            table[: layout.n_features, label] += row
            if layout.bias >= 0:
                table[layout.n_features, label] += 1.0
        for (u, v), row in zip(edges, of_edges, strict=True):
            a, b = y[u], y[v]
            if not layout.directed:
                a, b = min(a, b), max(a, b)
            for j, value in enumerate(row):
                table[layout.pairs + j * n + a, b] += value
        return table.ravel()

    def loss(self, y_true, y):
        # The only one among the graphs with this truth; see `random_graphs`.
        scales = self.scales[y_true]
        return float(sum(self.matrix[a, b] * s for a, b, s in zip(y_true, y, scales, strict=True)))


def random_graphs(seed, *, n=8, n_labels=None, smallest=1, largest=4, density=0.7, **options):
    """Graphs of a few nodes and random labels, with what the referee needs; no two truths alike."""
    random = np.random.default_rng(seed)
    k = n_labels or int(random.integers(2, 4))
    flags = {"bias": bool(random.integers(2)), "directed": bool(random.integers(2))} | options
    layout = GraphLayout.of(2, 2, k, **flags)
    matrix = random.uniform(0.2, 2.0, (k, k)) * (1.0 - np.eye(k))
    X, Y, scales = [], [], {}
    while len(X) < n:
        m = int(random.integers(smallest, largest + 1))
        y = tuple(random.integers(0, k, m).tolist())
        if y in scales:
            continue
        every = [(u, v) for u in range(m) for v in range(u)]
        edges = np.array([e[:: random.choice([-1, 1])] for e in every if random.random() < density])
        edges = edges.astype(np.int64).reshape(-1, 2)
        of_edges = random.integers(-1, 2, (len(edges), 2)).astype(float)
        X.append((random.normal(size=(m, 2)), edges, of_edges))
        Y.append(y)
        scales[y] = random.uniform(0.0, 1.0, m)
    return Case(PlainGraphs(layout, matrix, scales), X, Y, random_cost(random, n))


def compiled_graphs(case, inference_method="auto", sparse=False, **options):
    stacked = stack_graphs(case.X)
    if sparse:
        stacked = stacked._replace(
            X=sp.csr_array(stacked.X), edge_rows=sp.csr_array(stacked.edge_rows)
        )
    return GraphOracle(
        Graphs(*stacked),
        np.array([label for y in case.Y for label in y]),
        case.problem.layout,
        case.C,
        case.problem.matrix,
        np.concatenate([case.problem.scales[y] for y in case.Y]),
        inference_method=inference_method,
        **options,
    )


@cache
def case_of(seed, **options):
    return random_graphs(seed, **dict(options))


def blocks_of(oracle):
    return np.arange(oracle.n_examples, dtype=np.int64)


def dense(cuts, oracle):
    rows = np.zeros((len(cuts.losses), oracle.n_features))
    owners = np.repeat(np.arange(len(rows)), np.diff(cuts.starts))
    np.add.at(rows, (owners, cuts.columns), cuts.values)
    return rows


def random_weights(seed, oracle, scale=1.0):
    return np.random.default_rng(seed).normal(size=oracle.n_features) * scale


@pytest.mark.parametrize("sparse", [False, True])
def test_planes_of_given_labels(sparse):
    for seed in range(8):
        case = case_of(seed)
        oracle = compiled_graphs(case, sparse=sparse)
        psi, losses = case.pieces
        for i, x in enumerate(case.X):
            outputs = case.problem.outputs(x)
            raw = [np.array(y, dtype=np.uint16).tobytes() for y in outputs]
            cuts = oracle.cuts_of(np.full(len(raw), i), raw)
            assert_allclose(dense(cuts, oracle), psi[i, : len(raw)], atol=1e-12)
            assert_allclose(cuts.losses, losses[i, : len(raw)], atol=1e-12)
            assert set(raw) == set(oracle.outputs(i))
            # Every column once, and no zeros.
            assert cuts.values.all()
            for a, b in zip(cuts.starts[:-1], cuts.starts[1:], strict=True):
                assert len(np.unique(cuts.columns[a:b])) == b - a


@pytest.mark.parametrize("inference", ["auto", "exact", "relaxed"])
def test_searches_find_or_enclose_the_hinge(inference):
    for seed in range(8):
        case = case_of(seed)
        oracle = compiled_graphs(case, inference)
        psi, losses = case.pieces
        for scale in [0.0, 0.3, 3.0]:
            weights = random_weights(seed, oracle, scale)
            weights[dense_padding(oracle)] = 0.0
            cuts = oracle.separate(weights, blocks_of(oracle), ONE)
            hinges = (losses - psi @ weights).max(axis=1)
            slopes = cuts.slopes(weights)
            if inference == "relaxed":
                assert not oracle.exact
                assert (slopes <= hinges + 1e-9).all()
                assert (slopes >= -1e-9).all()
                assert (slopes + cuts.suboptimality >= hinges - 1e-9).all()
            else:
                assert oracle.exact
                assert cuts.suboptimality is None
                assert_allclose(slopes, hinges, atol=1e-9)
            for i, output in enumerate(cuts.outputs):
                y = tuple(np.frombuffer(output, dtype=np.uint16).tolist())
                j = case.problem.outputs(case.X[i]).index(y)
                assert slopes[i] == pytest.approx(losses[i, j] - psi[i, j] @ weights, abs=1e-9)


def dense_padding(oracle):
    """Weights that no feature uses; searches must not depend on them, so they stay zero."""
    layout = oracle.layout
    columns = np.arange(oracle.n_features) % layout.n_columns
    return columns >= layout.n_labels


def agreeing_weights(seed, oracle, scale):
    """Weights with which neighbours like to agree, for edge features that are not negative."""
    layout = oracle.layout
    weights = random_weights(seed, oracle, scale)
    weights[dense_padding(oracle)] = 0.0
    pairs = layout.table(weights)[layout.pairs :].reshape(-1, 2, layout.n_columns)
    pairs[:, 0, 0] += 2 * np.abs(pairs).sum(axis=(1, 2))
    return weights


def with_positive_edges(case):
    return Case(case.problem, [(x, e, np.abs(z) + 0.5) for x, e, z in case.X], case.Y, case.C)


def test_flows_find_the_hinge_and_fall_back():
    for seed in range(8):
        case = with_positive_edges(case_of(seed, n_labels=2))
        oracle = compiled_graphs(case, "flow")
        psi, losses = case.pieces
        assert not oracle.exact
        for scale in [0.3, 3.0]:
            agreeing = agreeing_weights(seed, oracle, scale)
            cuts = oracle.separate(agreeing, blocks_of(oracle), ONE)
            hinges = (losses - psi @ agreeing).max(axis=1)
            assert_allclose(cuts.slopes(agreeing), hinges, atol=1e-6)
            assert (cuts.slopes(agreeing) + cuts.suboptimality >= hinges - 1e-12).all()
            assert cuts.suboptimality.max() < 1e-5
            cuts = oracle.separate(-agreeing, blocks_of(oracle), ONE)
            hinges = (losses + psi @ agreeing).max(axis=1)
            slopes = cuts.slopes(-agreeing)
            assert (slopes <= hinges + 1e-9).all()
            assert (slopes + cuts.suboptimality >= hinges - 1e-9).all()


def test_methods_are_chosen_by_the_graph():
    graphs = Graphs(
        *stack_graphs(
            [
                (np.zeros((4, 1)), [(0, 1), (1, 2), (3, 1)]),
                (np.zeros((3, 1)), [(0, 1), (1, 2), (2, 0)]),
                (np.zeros((0, 1)), []),
                (np.zeros((5, 1)), [(0, 1)]),
                grid_of(30, 30),
            ]
        )
    )
    assert_array_equal(graphs.is_forest, [True, False, True, True, False])
    for n_labels in [2, 5]:
        sizes = graphs.elimination(n_labels, "auto").sizes
        assert_array_equal(sizes >= 0, [True, True, True, True, False])
        assert (graphs.elimination(n_labels, "relaxed").sizes[graphs.n_nodes > 0] == -1).all()
    with pytest.raises(
        ValueError, match="Graph 4 is too much for exact inference: its treewidth"
    ) as e:
        graphs.elimination(9, "exact")
    assert "is about 6 or more, but with 9 labels the limit is 5" in str(e.value)


@given(st.integers(1, 8), st.data())
def test_forests_are_told_from_other_graphs(n_nodes, data):
    pairs = [(u, v) for v in range(n_nodes) for u in range(v)]
    chosen = data.draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    edges = np.array(chosen, dtype=np.int64).reshape(-1, 2)
    path = np.array([[0, 1]])  # another graph before it
    graphs = Graphs(*stack_graphs([(np.zeros((2, 1)), path), (np.zeros((n_nodes, 1)), edges)]))
    links = sp.coo_array((np.ones(len(edges)), tuple(edges.T)), shape=(n_nodes, n_nodes))
    n_trees = sp.csgraph.connected_components(links, directed=False)[0]
    assert graphs.is_forest.tolist() == [True, len(edges) == n_nodes - n_trees]


def grid_of(height, width, n_features=1):
    return np.zeros((height * width, n_features)), grid_edges(height, width)


def test_edges_with_the_same_features_share_a_table():
    of_edges = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    path = [(0, 1), (1, 2), (2, 3)]
    stacked = stack_graphs([(np.zeros((4, 1)), path, of_edges)] * 2)
    for edge_rows in [stacked.edge_rows, sp.csr_array(stacked.edge_rows)]:
        graphs = Graphs(*stacked._replace(edge_rows=edge_rows))
        assert_array_equal(np.diff(graphs.kind_ends), [2, 2])
        assert graphs.edge_kinds[0] == graphs.edge_kinds[2] != graphs.edge_kinds[1]
    # Sums that are equal by chance (here, by rounding) do not make edges the same.
    tiny = np.array([[1e20, 0.0], [1e20, 1.0], [1e20, 0.0]])
    graphs = Graphs(*stack_graphs([(np.zeros((4, 1)), path, tiny)]))
    assert_array_equal(graphs.kind_ends, [0, 3])


def test_nodes_can_be_left_out():
    graphs = Graphs(
        *stack_graphs(
            [
                (np.arange(8.0).reshape(4, 2), [(0, 1), (1, 2), (3, 2)]),
                (np.arange(4.0).reshape(2, 2), [(1, 0)]),
            ]
        )
    )
    some = graphs.keeping(np.array([False, True, True, True, True, False]))
    assert_array_equal(some.node_ends, [0, 3, 4])
    assert_array_equal(some.edge_ends, [0, 2, 2])
    assert_array_equal(some.edges, [[0, 1], [2, 1]])
    assert_array_equal(some.X[0], [2.0, 3.0])
    assert len(some.edge_rows) == 2


SOLVERS = {
    "auto": Auto(),
    "dual-coordinate": DualCoordinate(),
    "n-slack": NSlack(),
    "one-slack": OneSlack(),
    "frank-wolfe": FrankWolfe(step="pairwise"),
}


def solve(oracle, solver, tol=1e-4, max_iter=300, **options):
    return solver.solve(oracle, Stopping(tol, max_iter, None), **options)


@pytest.mark.parametrize("name", SOLVERS)
def test_solvers_agree_with_the_referee(name):
    for seed in [0, 1]:
        case = case_of(seed, largest=3)
        result = solve(compiled_graphs(case), SOLVERS[name])
        optimum = case.optimum.value
        assert result.status is Status.CONVERGED
        assert result.certificate.dual <= optimum * (1 + 1e-8)
        assert result.certificate.primal >= optimum * (1 - 1e-8)
        assert result.certificate.relative_gap <= 1e-4
        assert not result.certificate.relaxed
        assert result.certificate.primal == pytest.approx(case.objective(result.weights), rel=1e-9)


@pytest.mark.diagonal
@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("inference", ["relaxed", "flow"])
def test_relaxed_certificates_enclose_the_optimum(name, inference):
    for seed in [0, 1]:
        case = case_of(seed, largest=4, density=1.0, n_labels=2)
        result = solve(compiled_graphs(case, inference), SOLVERS[name], max_iter=100)
        certificate, optimum = result.certificate, case.optimum.value
        assert certificate.relaxed
        assert result.status in (Status.CONVERGED, Status.RELAXED)
        assert certificate.dual <= optimum * (1 + 1e-8)
        assert certificate.primal >= case.objective(result.weights) * (1 - 1e-9)


def test_graphs_of_few_nodes_by_partial_linearization():
    case = case_of(0, largest=3)
    result = solve(compiled_graphs(case), PartialLinearization(), tol=1e-2, max_iter=1000)
    assert result.certificate.dual <= case.optimum.value * (1 + 1e-8)
    assert result.certificate.primal == pytest.approx(case.optimum.value, rel=2e-2)


def test_too_many_labellings_are_not_listed():
    oracle = compiled_graphs(case_of(0, n=3, n_labels=3, smallest=8, largest=8))
    with pytest.raises(ValueError, match=r"3\*\*8 labellings"):
        oracle.outputs(0)


def test_same_bits_whatever_the_number_of_threads(monkeypatch):
    monkeypatch.setattr("maxmargin.core.oracle.SECONDS_FOR_THREADS", -1.0)
    for inference in ["auto", "relaxed", "flow"]:
        case = case_of(3, n=20, n_labels=2, smallest=5, largest=6)
        found = [
            solve(compiled_graphs(case, inference), Auto(), max_iter=20, n_jobs=n_jobs)
            for n_jobs in (1, 3)
        ]
        assert_array_equal(found[0].weights, found[1].weights)
        assert found[0].certificate == found[1].certificate


def loopy_graphs(n, n_labels=3):
    random = np.random.default_rng(0)
    edges = grid_of(8, 8)[1]
    shape = len(edges), 4
    X = [(random.normal(size=(64, 1)), edges, random.normal(size=shape)) for _ in range(n)]
    Y = [random.integers(0, n_labels, 64) for _ in X]
    return GraphLabelling(n_labels, inference_method="relaxed").make_oracle(X, Y, np.ones(n))


def test_messages_are_kept_and_tighten_bounds():
    oracle = loopy_graphs(5)
    weights = random_weights(1, oracle, 1.0)
    blocks = blocks_of(oracle)
    warm = oracle.warm()
    first = warm.separate(weights, blocks, ONE)
    for _ in range(5):
        last = warm.separate(weights, blocks, ONE)
    tops = [cuts.slopes(weights) + cuts.suboptimality for cuts in (first, last)]
    assert (tops[1] <= tops[0] + 1e-9).all()
    assert tops[1].sum() < tops[0].sum() - 1e-6
    # An example twice in a batch does without them.
    twice = warm.separate(weights, np.repeat(blocks, 2), ONE)
    assert_array_equal(twice.suboptimality[::2], twice.suboptimality[1::2])


def same_cuts(one, other):
    return all(map(np.array_equal, one, other))


def test_the_oracle_is_pure_and_evaluations_change_no_run():
    oracle = loopy_graphs(3)
    weights, others = random_weights(1, oracle, 1.0), random_weights(2, oracle, 1.0)
    blocks = blocks_of(oracle)
    before = oracle.separate(weights, blocks, ONE)
    warm, undisturbed = oracle.warm(), oracle.warm()
    for at in (weights, others, weights):
        primal = oracle.primal(at)
        assert warm.primal(at) == primal  # by the cold oracle
        assert same_cuts(warm.separate(at, blocks, ONE), undisturbed.separate(at, blocks, ONE))
    assert same_cuts(oracle.separate(weights, blocks, ONE), before)


@pytest.mark.parametrize("rescaling", ["margin", "slack"])
def test_fits_do_not_notice_evaluations(rescaling):
    oracle = loopy_graphs(4)
    oracle = SlackRescaledOracle(oracle) if rescaling == "slack" else oracle

    def evaluate(*_):
        oracle.primal(np.ones(oracle.n_features))

    found = [
        solve(oracle, FrankWolfe(), max_iter=3, on_iteration=hook) for hook in (None, evaluate)
    ]
    assert_array_equal(found[0].weights, found[1].weights)
    assert found[0].certificate == found[1].certificate


def test_without_room_for_messages(monkeypatch):
    monkeypatch.setattr("maxmargin.structures.graph.oracle.MOST_MESSAGE_BYTES", 0)
    case = case_of(1, n=6, n_labels=3, smallest=6, largest=6, density=1.0)
    warm = compiled_graphs(case, "relaxed").warm()
    weights = random_weights(1, warm, 1.0)
    found = [warm.separate(weights, blocks_of(warm), ONE) for _ in range(2)]
    assert_array_equal(found[0].suboptimality, found[1].suboptimality)


# As a problem


def test_labelling_as_a_problem():
    random = np.random.default_rng(0)
    problem = GraphLabelling(3, directed=True, fit_intercept=False)
    path = np.array([[0, 1], [2, 1]])
    X = [(random.normal(size=(3, 2)), path) for _ in range(6)]
    Y = [random.integers(0, 3, 3) for _ in range(6)]
    size = len(problem.joint_feature(X[0], Y[0]))
    weights = random.normal(size=size)
    for x, y in zip(X, Y, strict=True):
        every = problem.outputs(x)
        assert len(every) == 27
        scores = np.array([problem.joint_feature(x, z) @ weights for z in every])
        losses = np.array([problem.loss(y, z) for z in every])
        assert_array_equal(problem.inference(x, weights), every[np.argmax(scores)])
        assert_array_equal(
            problem.loss_augmented_inference(x, y, weights), every[np.argmax(scores + losses)]
        )
    oracle = problem.make_oracle(X, Y, np.ones(6))
    outputs = [np.array([2, 0, 1], dtype=np.uint16).tobytes()] * 6
    cuts = oracle.cuts_of(np.arange(6), outputs)
    for i, row in enumerate(dense(cuts, oracle)):
        expected = problem.joint_feature(X[i], Y[i]) - problem.joint_feature(X[i], [2, 0, 1])
        assert_allclose(row, expected, atol=1e-12)
        assert cuts.losses[i] == problem.loss(Y[i], [2, 0, 1])
    for solver in ["auto", "n-slack", "one-slack", "partial-linearization"]:
        model = mm.StructuredSVM(problem, solver=solver, tol=1e-2).fit(X, Y)
        assert model.certificate_.relative_gap <= 1e-2
        assert len(model.predict(X)) == 6
    with pytest.raises(ValueError, match="Graph 0 has 3 nodes, but its labels have the shape"):
        problem.make_oracle(X, [y[:2] for y in Y], np.ones(6))
    with pytest.raises(ValueError, match="whole numbers from 0 to 2"):
        problem.make_oracle(X, [y + 1 for y in Y], np.ones(6))
    with pytest.raises(ValueError, match="too many labellings"):
        problem.outputs((np.zeros((20, 2)), []))


def test_a_model_answers_with_labels_and_their_score():
    case = with_positive_edges(case_of(2, n=5, n_labels=2, smallest=6, largest=6))
    oracle = compiled_graphs(case)
    weights = agreeing_weights(0, oracle, 1.0)
    best = [
        max(case.problem.joint_feature(x, y) @ weights for y in case.problem.outputs(x))
        for x in case.X
    ]
    for inference in ["auto", "exact", "relaxed", "flow"]:
        found = GraphInference(oracle.graphs, oracle.layout, inference)
        labels, scores = found.best_labels(weights, ONE)
        ends = oracle.graphs.node_ends
        for i, x in enumerate(case.X):
            y = tuple(labels[ends[i] : ends[i + 1]].tolist())
            assert scores[i] == pytest.approx(case.problem.joint_feature(x, y) @ weights)
        assert (scores <= np.array(best) + 1e-9).all()
        if inference != "relaxed":
            assert_allclose(scores, best, rtol=1e-6)
