"""GraphLabeler: what goes in, what comes out, and what it says to bad input."""

import itertools
import os
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from maxmargin.structures.graph.estimator import GraphLabeler
from maxmargin.structures.graph.formats import grid_edges


def random_edges(random, n_nodes, extra):
    """A tree and some edges more."""
    edges = {(int(random.integers(v)), v) for v in range(1, n_nodes)}
    for _ in range(extra):
        u, v = random.choice(n_nodes, 2, replace=False)
        edges.add((min(u, v), max(u, v)))
    return np.array(sorted(edges), dtype=np.int64).reshape(-1, 2)


def graphs(n=40, n_features=4, n_labels=3, seed=0, extra=2, smallest=2):
    """Graphs whose labels follow features and neighbours, with features of edges."""
    random = np.random.default_rng(seed)
    hidden = random.normal(size=(n_labels, n_features))
    X, y = [], []
    for _ in range(n):
        n_nodes = int(random.integers(smallest, 6))
        rows = random.normal(size=(n_nodes, n_features))
        edges = random_edges(random, n_nodes, extra if n_nodes > 2 else 0)
        scores = rows @ hidden.T
        scores[edges[:, 1]] += 0.7 * scores[edges[:, 0]]
        X.append((rows, edges, random.normal(size=(len(edges), 2))))
        y.append(np.array(list("abc"))[scores.argmax(axis=1)])
    return X, y


X, Y = graphs()
PLAIN = [x[:2] for x in X]


@pytest.fixture(scope="module")
def labeler():
    return GraphLabeler(tol=1e-3).fit(X, Y)


def score_of(labeler, x, labels):
    """Score of a labelling from the named attributes alone."""
    at = [int(np.flatnonzero(labeler.classes_ == label)[0]) for label in labels]
    of_edges = x[2] if len(x) > 2 else np.ones((len(x[1]), 1))
    total = sum(
        labeler.node_coef_[k] @ row + labeler.intercept_[k] for k, row in zip(at, x[0], strict=True)
    )
    return total + sum(
        labeler.edge_coef_[:, at[u], at[v]] @ row
        for (u, v), row in zip(x[1], of_edges, strict=True)
    )


def all_labellings(labeler, x):
    return list(itertools.product(labeler.classes_, repeat=len(x[0])))


def test_it_learns_and_certifies(labeler):
    assert labeler.score(X, Y) > 0.75
    assert labeler.certificate_.relative_gap <= 1e-3
    assert labeler.status_ == "converged"
    assert not labeler.certificate_.relaxed
    assert labeler.node_coef_.shape == (3, 4)
    assert labeler.edge_coef_.shape == (2, 3, 3)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("data", [X, PLAIN])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_predictions_follow_from_the_named_weights(directed, data, fit_intercept):
    labeler = GraphLabeler(directed=directed, fit_intercept=fit_intercept, tol=1e-2).fit(data, Y)
    some = data[:12]
    answers = labeler.predict(some), labeler.decision_function(some)
    for x, predicted, score in zip(some, *answers, strict=True):
        by_hand = max(all_labellings(labeler, x), key=lambda y: score_of(labeler, x, y))
        assert tuple(predicted) == by_hand
        assert score == pytest.approx(score_of(labeler, x, by_hand))
    symmetric = np.array_equal(labeler.edge_coef_, labeler.edge_coef_.transpose(0, 2, 1))
    assert symmetric != directed
    assert labeler.intercept_.any() == fit_intercept


def test_without_directions_they_do_not_matter():
    turned = [(rows, edges[:, ::-1], z) for rows, edges, z in X]
    one, two = GraphLabeler(tol=1e-3).fit(X, Y), GraphLabeler(tol=1e-3).fit(turned, Y)
    assert one.certificate_ == two.certificate_
    directed = GraphLabeler(directed=True, tol=1e-3)
    assert directed.fit(X, Y).certificate_.primal < 0.99 * one.certificate_.primal


def test_marginals_by_hand(labeler):
    for temperature in (0.5, 2.0):
        marginals = labeler.predict_marginals(X[:6], temperature=temperature)
        for x, found in zip(X[:6], marginals, strict=True):
            expected = np.zeros((len(x[0]), 3))
            for y in all_labellings(labeler, x):
                weight = np.exp(score_of(labeler, x, y) / temperature)
                expected[np.arange(len(y)), np.searchsorted(labeler.classes_, y)] += weight
            assert_allclose(found, expected / expected.sum(axis=1, keepdims=True), atol=1e-10)


class Networkx:
    """As much of a networkx graph as is looked at."""

    def __init__(self, nodes, edges):
        self._nodes, self._edges = nodes, edges

    class _View(dict):
        def __call__(self, data):
            return [
                (*(key if isinstance(key, tuple) else (key,)), attributes.get(data))
                for key, attributes in self.items()
            ]

    @property
    def nodes(self):
        return self._View(self._nodes)

    @property
    def edges(self):
        return self._View(self._edges)


def as_networkx(x, with_features=True):
    names = [f"node {v}" for v in range(len(x[0]))]
    edges = {
        (names[u], names[v]): {"x": row} if with_features else {}
        for (u, v), row in zip(x[1], x[2], strict=True)
    }
    return Networkx({name: {"x": row} for name, row in zip(names, x[0], strict=True)}, edges)


def test_forms_of_input_are_the_same_data(labeler):
    networks = [as_networkx(x) for x in X]
    by_name = [dict(zip(g.nodes, y, strict=True)) for g, y in zip(networks, Y, strict=True)]
    sparse = [(sp.csr_array(x), e, sp.csr_array(z)) for x, e, z in X]
    lists = [(x.tolist(), e.tolist(), z.tolist()) for x, e, z in X]
    for data, labels in [(networks, by_name), (networks, Y), (sparse, Y), (lists, Y)]:
        other = GraphLabeler(tol=1e-3).fit(data, labels)
        assert other.certificate_.primal == pytest.approx(labeler.certificate_.primal, rel=2e-3)
        assert other.score(data, labels) == pytest.approx(labeler.score(X, Y), abs=0.03)
    plain = GraphLabeler(tol=1e-3).fit([as_networkx(x, with_features=False) for x in X], Y)
    expected = GraphLabeler(tol=1e-3).fit(PLAIN, Y).certificate_
    assert plain.certificate_.primal == pytest.approx(expected.primal, rel=1e-6)


def test_graphs_without_edges_or_nodes(labeler):
    rows = X[0][0]
    lonely = [(rows, [], np.zeros((0, 2))), (rows, []), (np.zeros((0, 4)), []), X[1]]
    assert [len(y) for y in labeler.predict(lonely)] == [len(rows), len(rows), 0, len(X[1][0])]
    assert labeler.decision_function(lonely)[2] == 0.0
    assert labeler.predict_marginals(lonely)[2].shape == (0, 3)
    assert len(labeler.predict([(np.zeros((0, 4)), [])])[0]) == 0
    # Nothing but single nodes: the linear classifier of Crammer and Singer.
    alone = GraphLabeler(tol=1e-3).fit([(x[0], []) for x in X], Y)
    one_by_one = [(row[None], []) for x in X for row in x[0]]
    assert not alone.edge_coef_.any()
    apart = GraphLabeler(tol=1e-3).fit(one_by_one, [[label] for y in Y for label in y])
    assert apart.certificate_.primal == pytest.approx(alone.certificate_.primal, rel=2e-3)
    empty = GraphLabeler(tol=1e-3).fit([*X, (np.zeros((0, 4)), [])], [*Y, []])
    assert empty.certificate_.primal == pytest.approx(labeler.certificate_.primal, rel=2e-3)


def test_one_label_only():
    labeler = GraphLabeler(tol=1e-3).fit(X, [np.full(len(x[0]), "a") for x in X])
    assert labeler.certificate_.primal == 0.0
    assert all(set(y) <= {"a"} for y in labeler.predict(X))


def test_numbers_and_labels_never_seen(labeler):
    numbers = GraphLabeler(tol=1e-2).fit(X, [[ord(c) for c in y] for y in Y])
    assert set(numbers.classes_) == {97, 98, 99}
    assert labeler.score(X, [np.full(len(y), "z") for y in Y]) == 0.0


# Losses


def test_losses_scale():
    normal = GraphLabeler(loss="hamming-normalized", tol=1e-3).fit(X, Y)
    shares = [np.full(len(y), 1.0 / len(y)) for y in Y]
    weighted = GraphLabeler(tol=1e-3).fit(X, Y, node_weight=shares)
    assert normal.certificate_.primal == pytest.approx(weighted.certificate_.primal, rel=2e-3)
    matrix = GraphLabeler(loss=3.0 * (1.0 - np.eye(3)), tol=1e-3).fit(X, Y)
    triple = GraphLabeler(tol=1e-3).fit(X, Y, node_weight=[np.full(len(y), 3.0) for y in Y])
    assert matrix.certificate_.primal == pytest.approx(triple.certificate_.primal, rel=2e-3)
    named = GraphLabeler(loss={("a", "b"): 9.0}, tol=1e-3).fit(X, Y)
    assert named.certificate_.primal > GraphLabeler(tol=1e-3).fit(X, Y).certificate_.primal


@pytest.mark.parametrize("loss", ["hamming", "hamming-normalized", {("a", "b"): 5.0}])
def test_hinges_bound_what_is_lost(loss):
    labeler = GraphLabeler(loss=loss, tol=1e-3).fit(X, Y)
    hinge = labeler.certificate_.primal - 0.5 * np.sum(labeler._weights**2)
    lost = 0.0
    for y_true, found in zip(Y, labeler.predict(X), strict=True):
        wrong = y_true != found
        costs = np.where((y_true == "a") & (found == "b"), 5.0, 1.0) if loss != "hamming" else 1.0
        if loss == "hamming-normalized":
            costs = 1.0 / len(y_true)
        lost += np.sum(wrong * costs)
    assert lost <= hinge + 1e-9


def test_void_nodes_are_left_out():
    random = np.random.default_rng(0)
    hidden = [np.where(random.random(len(y)) < 0.3, "?", y) for y in Y]
    labeler = GraphLabeler(void="?", tol=1e-4).fit(X, hidden)
    assert_array_equal(labeler.classes_, ["a", "b", "c"])
    smaller, labels = [], []
    for (rows, edges, z), y in zip(X, hidden, strict=True):
        kept = y != "?"
        number = np.cumsum(kept) - 1
        stay = kept[edges].all(axis=1)
        smaller.append((rows[kept], number[edges[stay]], z[stay]))
        labels.append(y[kept])
    by_hand = GraphLabeler(tol=1e-4).fit(smaller, labels)
    assert labeler.certificate_ == by_hand.certificate_
    predicted = labeler.predict(X)
    assert [len(y) for y in predicted] == [len(y) for y in Y]
    known = np.concatenate(hidden) != "?"
    right = np.concatenate(predicted) == np.concatenate(hidden)
    assert labeler.score(X, hidden) == pytest.approx(right[known].mean())
    assert labeler.score(X, [np.full(len(y), "?") for y in Y]) == 1.0
    # Without being told, -1 is a label like any other.
    assert -1 in GraphLabeler(tol=0.1).fit(X, [[-1] * len(y) for y in Y]).classes_


# Searches


def test_inference_by_name():
    exact = GraphLabeler(inference_method="exact", tol=1e-3).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        relaxed = GraphLabeler(inference_method="relaxed", tol=1e-3).fit(X, Y)
    assert relaxed.certificate_.relaxed
    assert relaxed.certificate_.primal >= exact.certificate_.dual
    assert relaxed.certificate_.dual <= exact.certificate_.primal
    with pytest.raises(
        ValueError, match="inference_method='flow' is for two labels, but there are 3"
    ):
        GraphLabeler(inference_method="flow", tol=1e-3).fit(X, Y)


def noisy_grids(n=6, size=12, seed=0):
    random = np.random.default_rng(seed)
    edges = grid_edges(size, size)
    X, y = [], []
    for _ in range(n):
        row, column = random.integers(3, size - 3, 2)
        y_true = np.zeros((size, size), dtype=int)
        y_true[row - 3 : row + 3, column - 3 : column + 3] = 1
        X.append(((2 * y_true - 1 + random.normal(size=y_true.shape)).reshape(-1, 1), edges))
        y.append(y_true.ravel())
    return X, y


@pytest.mark.parametrize("inference", ["auto", "relaxed", "flow"])
def test_grids_of_two_labels(inference):
    train, test = noisy_grids(), noisy_grids(seed=1)
    labeler = GraphLabeler(C=0.1, inference_method=inference, tol=1e-2).fit(*train)
    alone = GraphLabeler(C=0.1, tol=1e-2).fit([(x, []) for x, _ in train[0]], train[1])
    assert labeler.status_ == "converged"
    assert labeler.certificate_.relaxed
    assert labeler.score(*test) > 0.92
    assert alone.score([(x, []) for x, _ in test[0]], test[1]) < 0.9
    many = [np.arange(len(y)) % 60 for y in train[1]]
    with pytest.raises(
        ValueError, match="Graph 0 is too much for exact inference: its treewidth is "
    ):
        GraphLabeler(inference_method="exact", tol=1e-3).fit(train[0], many)


def test_no_marginals_of_graphs_with_many_loops():
    X, y = noisy_grids(1, size=30)
    labeler = GraphLabeler(C=0.1, tol=0.1).fit(X, y)
    assert labeler.status_ == "converged"
    with pytest.raises(ValueError, match="though no marginals"):
        labeler.predict_marginals(X)


def test_a_fit_that_the_relaxation_cannot_finish_says_so():
    """Neighbours in rings of five want to differ: relaxed, each gets what it wants."""
    ring = [(v, (v + 1) % 5) for v in range(5)]
    random = np.random.default_rng(0)
    y = [np.roll([0, 1, 0, 1, random.integers(2)], random.integers(5)) for _ in range(30)]
    X = [((2 * labels - 1 + random.normal(size=5)).reshape(-1, 1), ring) for labels in y]
    with pytest.warns(ConvergenceWarning, match="as far as its relaxed inference can tell"):
        labeler = GraphLabeler(C=10.0, inference_method="relaxed", tol=1e-3).fit(X, y)
    assert labeler.status_ == "relaxed"
    exact = GraphLabeler(C=10.0, tol=1e-3).fit(X, y).certificate_
    assert labeler.certificate_.dual <= exact.primal
    assert exact.dual <= labeler.certificate_.primal


# Contracts


def test_same_answer_whatever_the_number_of_threads():
    one, two = (GraphLabeler(n_jobs=n, tol=1e-2).fit(*noisy_grids()) for n in (1, 2))
    assert_array_equal(one._weights, two._weights)


def test_warm_start_and_clone(labeler):
    warm = clone(GraphLabeler(warm_start=True, tol=1e-3)).fit(X, Y)
    first = warm.history_[-1].oracle_calls
    warm.set_params(C=1.1).fit(X, Y)
    assert warm.history_[-1].oracle_calls < first
    assert warm.certificate_.relative_gap <= 1e-3
    with pytest.raises(NotFittedError):
        clone(labeler).predict(X)
    again = pickle.loads(pickle.dumps(labeler))
    assert_array_equal(np.concatenate(again.predict(X)), np.concatenate(labeler.predict(X)))


def test_sample_weights():
    double = GraphLabeler(tol=1e-4).fit(X + X, Y + Y)
    weighted = GraphLabeler(tol=1e-4).fit(X, Y, sample_weight=np.full(len(X), 2.0))
    assert weighted.certificate_.primal == pytest.approx(double.certificate_.primal, rel=1e-3)


# Bad input


def changed(i, **parts):
    """`X` with some parts of one graph replaced."""
    names = {"nodes": 0, "edges": 1, "of_edges": 2}
    graph = list(X[i])
    for name, value in parts.items():
        graph[names[name]] = value
    return [*X[:i], tuple(graph), *X[i + 1 :]]


NAN = X[3][0].copy()
NAN[1, 2] = np.nan
INFINITE = X[3][2].copy()
INFINITE[0, 1] = np.inf
N = len(X[3][0])


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ([], "X is empty"),
        (changed(3, edges=[[0, N]]), f"Edge 0 of graph 3 joins the nodes 0 and {N}, but the graph"),
        (changed(3, edges=[[0, 1], [-1, 0]]), "Edge 1 of graph 3 joins the nodes -1 and 0, but"),
        (changed(3, edges=[[1, 1]]), "Edge 0 of graph 3 joins the node 1 with itself"),
        (
            changed(3, edges=[[0, 1], [1, 0]]),
            "Edge 1 of graph 3 .* which another edge does already",
        ),
        (
            changed(3, edges=[[0, 1], [0, 1]]),
            "Edge 1 of graph 3 .* which another edge does already",
        ),
        (changed(3, edges=[[0.5, 1.0]]), "The edges of graph 3 must be pairs of node numbers"),
        (changed(3, edges=[0, 1]), "The edges of graph 3 must be pairs of node numbers"),
        (changed(3, edges=[[0, 1, 1]]), "The edges of graph 3 must be pairs of node numbers"),
        (changed(3, nodes=NAN), "Graph 3 has NaN .* at column 2 of node 1"),
        (changed(3, nodes=sp.csr_array(NAN)), "Graph 3 has NaN .* at column 2 of node 1"),
        (changed(3, of_edges=INFINITE), "Graph 3 has infinity .* at column 1 of edge 0"),
        (changed(3, nodes=X[3][0][:, :3]), "Each node of graph 3 has 3 features, but 4 in graph 0"),
        (
            changed(3, of_edges=X[3][2][:, :1]),
            "Each edge of graph 3 has 1 features, but 2 in graph 0",
        ),
        (changed(3, of_edges=X[3][2][1:]), "Graph 3 has . edges but . rows of edge features"),
        (changed(3, nodes=X[3][0][:, 0]), "matrix with one row for each node, not of 1 dim"),
        (changed(3, nodes=[["a"] * 4] * N), "The node features of graph 3 must be a matrix of num"),
        ([*X[:3], X[3][:2], *X[4:]], "Graph 3 has no features of edges, but others have"),
        ([*X[:3], X[3][0], *X[4:]], "Graph 3 must be a tuple"),
        ([*X[:3], 7, *X[4:]], "Graph 3 must be a tuple"),
        ([Networkx({"a": {}}, {})], "Node 'a' of graph 0 has no attribute 'x'"),
        (
            [
                Networkx(
                    {name: {"x": [1.0]} for name in "abc"},
                    {("a", "b"): {"x": [1.0]}, ("b", "c"): {}},
                )
            ],
            "1 of the 2 edges of graph 0 have no attribute 'x'",
        ),
    ],
)
def test_bad_graphs(data, sentence):
    with pytest.raises(ValueError, match=sentence) as error:
        GraphLabeler(tol=1e-3).fit(data, Y[: len(data)])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (Y[1:], "X has 40 graphs but there are labels for 39"),
        ([*Y[:3], Y[3][1:], *Y[4:]], f"Graph 3 has {N} nodes but {N - 1} labels"),
        ([*Y[:3], Y[3][:, None], *Y[4:]], f"Graph 3 has {N} nodes but the shape .* of labels"),
        ([*Y[:3], {0: "a"}, *Y[4:]], f"Graph 3 has {N} nodes but 1 labels"),
    ],
)
def test_bad_labels(labels, sentence):
    with pytest.raises(ValueError, match=sentence):
        GraphLabeler(tol=1e-3).fit(X, labels)


def test_other_bad_input(labeler):
    network = as_networkx(X[0])
    with pytest.raises(ValueError, match="The labels of graph 0 miss the node 'node 0'"):
        GraphLabeler(tol=1e-3).fit([network], [{}])
    with pytest.raises(ValueError, match="Each node of X has 3 features, but GraphLabeler"):
        labeler.predict([(x[:, :3], e, z) for x, e, z in X])
    with pytest.raises(ValueError, match="Each edge of X has 1 features, but GraphLabeler"):
        labeler.predict(PLAIN)
    with pytest.raises(ValueError, match="no labelled nodes"):
        GraphLabeler(tol=1e-3).fit([(np.zeros((0, 2)), [])], [[]])
    with pytest.raises(ValueError, match="no labelled nodes"):
        GraphLabeler(void="a", tol=1e-3).fit(X, [["a"] * len(y) for y in Y])
    with pytest.raises(ValueError, match="node_weight"):
        GraphLabeler(tol=1e-3).fit(X, Y, node_weight=[np.full(len(y), -1.0) for y in Y])
    with pytest.raises(ValueError, match="there are node weights for 39"):
        GraphLabeler(tol=1e-3).fit(X, Y, node_weight=[np.ones(len(y)) for y in Y[1:]])
    with pytest.raises(ValueError, match="temperature must be positive"):
        labeler.predict_marginals(X, temperature=0.0)
    with pytest.raises(ValueError, match="'inference_method' parameter"):
        GraphLabeler(inference_method="guess", tol=1e-3).fit(X, Y)
    with pytest.raises(ValueError, match="loss_matrix has shape"):
        GraphLabeler(loss=np.ones((2, 2)), tol=1e-3).fit(X, Y)


# Real data


@pytest.mark.slow
def test_horses():
    """The first images of the Weizmann horses: weights for edges can only lower the optimum."""
    path = Path(os.environ.get("MAXMARGIN_DATA", "")) / "weizmann-horses" / "horses64.npz"
    if not path.exists():
        pytest.skip("MAXMARGIN_DATA does not hold weizmann-horses")
    with np.load(path) as data:
        images, masks = data["images"][:30] / 255.0, data["masks"][:30]
    edges = grid_edges(64, 64)
    X = [(image.reshape(-1, 3), edges) for image in images]
    y = [mask.ravel() for mask in masks]
    labeler = GraphLabeler(C=0.001, tol=0.05).fit(X, y)
    alone = GraphLabeler(C=0.001, tol=0.05).fit([(x, []) for x, _ in X], y)
    assert labeler.certificate_.relative_gap <= 0.05
    assert labeler.certificate_.dual < alone.certificate_.primal
    assert labeler.edge_coef_.any()
    assert labeler.score(X, y) > 0.7
