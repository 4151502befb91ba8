"""Classes in a tree against plain Python and the referee, and taxonomies good and bad."""

import numpy as np
import pytest
from feature_rows import (
    SOLVERS,
    PlainRows,
    check_searches,
    check_single_searches,
    check_solver,
    check_threads,
    check_widths,
)
from numpy.testing import assert_allclose, assert_array_equal
from structured_referee import Case, random_cost

from maxmargin.structures.taxonomy.problem import Hierarchy, Taxonomy

PATHS = ["a/x/p", "a/x/q", "a/y", "b", "c/z"]


class PlainHierarchy(PlainRows):
    """Paths are strings; nodes are all their beginnings, in the order they are met."""

    def __init__(self, paths, intercept=True, costs=None):
        super().__init__(intercept)
        self.paths = [self.beginnings(path) for path in paths]
        self.nodes = list(dict.fromkeys(node for path in self.paths for node in path))
        self.costs = costs

    @staticmethod
    def beginnings(path):
        parts = path.split("/")
        return ["/".join(parts[: i + 1]) for i in range(len(parts))]

    def outputs(self, x):
        return list(range(len(self.paths)))

    def factors(self, y):
        return [node in self.paths[y] for node in self.nodes]

    def loss(self, y_true, y):
        if self.costs is not None:
            return float(self.costs[y_true, y])
        shared = len(set(self.paths[y_true]) & set(self.paths[y]))
        return float(len(self.paths[y_true]) + len(self.paths[y]) - 2 * shared)


def make(seed, rescaling="margin", intercept=True, n=14, d=3, costs=False):
    random = np.random.default_rng(seed)
    k = len(PATHS)
    matrix = random.uniform(0.2, 2.0, (k, k)) * (1.0 - np.eye(k)) if costs else None
    X = list(random.normal(size=(n, d)) * (random.random((n, d)) < 0.8))
    Y = random.integers(0, k, n).tolist()
    case = Case(PlainHierarchy(PATHS, intercept, matrix), X, Y, random_cost(random, n), rescaling)
    return case, Hierarchy(d, Taxonomy.of("auto", PATHS), matrix, intercept)


@pytest.mark.parametrize("rescaling", ["margin", "slack"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_searches(rescaling, intercept, sparse):
    for seed in range(5):
        case, problem = make(seed, rescaling, intercept, costs=seed % 2 == 1)
        check_searches(problem, case, sparse)


def test_single_searches():
    check_single_searches(*make(0)[::-1])


def test_threads_and_widths(monkeypatch):
    case, problem = make(1, n=60)
    check_threads(problem, case, monkeypatch)
    check_widths(problem, case)


@pytest.mark.diagonal
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("rescaling", ["margin", "slack"])
def test_solvers_agree_with_the_referee(solver, rescaling):
    for seed in range(2):
        case, problem = make(seed, rescaling)
        check_solver(problem, case, solver)


def test_forms_of_a_taxonomy():
    classes = ["cat", "dog", "rose", "oak"]
    trees = [
        Taxonomy.of(form, classes)
        for form in (
            {"cat": "animal", "dog": "animal", "rose": "plant", "oak": "tree", "tree": "plant"},
            {"animal": {"cat": {}, "dog": {}}, "plant": {"rose": {}, "tree": {"oak": {}}}},
            {"animal": ["cat", "dog"], "plant": {"rose": None, "tree": ("oak",)}},
            {"cat": "animal", "dog": "animal", "rose": "plant", "tree": "plant", "oak": "tree",
             "animal": None, "plant": None, "fern": "plant"},
        )
    ]  # fmt: skip
    for tree in trees:
        assert tree.nodes == ["animal", "cat", "dog", "plant", "rose", "tree", "oak"]
        assert tree.parents.tolist() == [-1, 0, 0, -1, 3, 3, 5]
        assert tree.class_nodes.tolist() == [1, 2, 4, 6]
        assert_array_equal(
            tree.distances(), [[0, 2, 4, 5], [2, 0, 4, 5], [4, 4, 0, 3], [5, 5, 3, 0]]
        )


def test_paths_with_slashes_and_dots():
    slashes = Taxonomy.of(["a/b.c/d", "a/e", "never"], ["a/b.c/d", "a/e"])
    assert slashes.nodes == ["a", "a/b.c", "a/b.c/d", "a/e"]
    dots = Taxonomy.of("auto", ["comp.graphics", "comp.os.mac", "misc"])
    assert dots.nodes == ["comp", "comp.graphics", "comp.os", "comp.os.mac", "misc"]


def test_inner_nodes_can_be_classes():
    tree = Taxonomy.of("auto", ["a", "a/b", "c"])
    assert_array_equal(tree.distances(), [[0, 1, 2], [1, 0, 3], [2, 3, 0]])


def test_a_single_root_changes_nothing_but_its_own_row():
    several = Taxonomy.of({"x": "a", "y": "a", "z": "b"}, ["x", "y", "z"])
    single = Taxonomy.of({"x": "a", "y": "a", "z": "b", "a": "top", "b": "top"}, ["x", "y", "z"])
    assert_array_equal(several.distances(), single.distances())
    assert len(single.nodes) == len(several.nodes) + 1


def test_numbers_as_classes():
    assert Taxonomy.of("auto", [1, 2]).nodes == [1, 2]
    assert Taxonomy.of({1: 10, 2: 10}, [1, 2]).nodes == [10, 1, 2]


def test_edge_lengths():
    tree = Taxonomy.of("auto", ["a/x", "a/y", "b"])
    found = tree.distances({"a": 3.0, "a/x": 0.5, "b": 0.0})
    assert_allclose(found, [[0, 1.5, 3.5], [1.5, 0, 4], [3.5, 4, 0]])
    with pytest.raises(ValueError, match="edge above 'a/x' has the length -1"):
        tree.distances({"a/x": -1.0})
    with pytest.raises(ValueError, match="edge above 'b' has the length nan"):
        tree.distances({"b": np.nan})


BAD = {
    "circle": ({"x": "a", "a": "b", "b": "a", "y": "a"}, "has a cycle, 'a' -> 'b' -> 'a'"),
    "own parent": ({"x": "x", "y": "a"}, "has a cycle, 'x' -> 'x'"),
    "two parents": ({"a": ["x"], "b": ["y", "x"]}, "'x' has two parents .*'[ab]' and '[ab]'"),
    "repeated": ({"a": ["x", "y"], "b": {"a": {}}}, "'a' has two parents"),
    "unknown class": ({"x": "a"}, "class 'y' is not in the taxonomy"),
    "unknown path": (["x", "a/z"], "class 'y' is not in the taxonomy"),
    "empty part": (["x", "y", "a//z"], "'a//z' of the taxonomy has an empty part"),
    "a word": ("tree", "taxonomy is 'tree', but must be"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_taxonomies_get_a_sentence(name):
    taxonomy, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        Taxonomy.of(taxonomy, ["x", "y"])
