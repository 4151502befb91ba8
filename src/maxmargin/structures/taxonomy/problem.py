"""Hierarchical classification: nodes of a tree have weights, a class scores the sum of its path."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from maxmargin.compiled.compile import compiled
from maxmargin.core.arrays import Floats, Order, check_indices, check_shape
from maxmargin.core.inputs import LARGEST
from maxmargin.core.registry import registered
from maxmargin.structures.rows.oracle import ClassProblem, Codes

NO_PARENT = -1


@registered("Taxonomy", check="check")
@dataclass(frozen=True)
class Taxonomy:
    """A forest: names `nodes`, each after its parent (-1 at a root), and the nodes of classes."""

    nodes: list[Any]
    parents: Order
    class_nodes: Order

    @classmethod
    def of(cls, taxonomy: Any, classes: Sequence[Hashable]) -> "Taxonomy":
        """The paths to `classes` in a taxonomy; ValueError for cycles, two parents or no path."""
        parent_of = _parents(taxonomy, classes)
        nodes: list[Any] = []
        number: dict[Any, int] = {}
        for name in classes:
            if name not in parent_of:
                raise ValueError(
                    f"The class {name!r} is not in the taxonomy: add it, or correct its name in y."
                )
            for node in reversed(_path(name, parent_of)):
                if node not in number:
                    number[node] = len(nodes)
                    nodes.append(node)
        above = [parent_of[node] for node in nodes]
        parents = [NO_PARENT if parent is None else number[parent] for parent in above]
        class_nodes = [number[name] for name in classes]
        return cls(nodes, np.array(parents, np.int64), np.array(class_nodes, np.int64))

    def check(self) -> None:
        """Raise ValueError if a node stands before its parent, or a class at no node."""
        n_nodes = len(self.nodes)
        check_shape("parents", self.parents, n_nodes)
        check_indices("parents", self.parents, n_nodes, start=NO_PARENT)
        if (self.parents >= np.arange(n_nodes)).any():
            raise ValueError("a node of the taxonomy stands before its parent")
        check_shape("class_nodes", self.class_nodes, len(self.class_nodes))
        check_indices("class_nodes", self.class_nodes, n_nodes)

    @cached_property
    def paths(self) -> Codes:
        """Whether each node is on the path of each class, ``(n_classes, n_nodes)``."""
        on_path = np.eye(len(self.nodes), dtype=np.int32)
        for node, parent in enumerate(self.parents):
            if parent != NO_PARENT:
                on_path[node] += on_path[parent]
        return on_path[self.class_nodes]

    def distances(self, edge_lengths: Mapping[Any, float] | None = None) -> Floats:
        """Lengths of the paths between classes; edges to parents or a common root have 1."""
        given = dict(edge_lengths or {})
        lengths = np.array([float(given.get(node, 1.0)) for node in self.nodes])
        wrong = np.flatnonzero(~((lengths >= 0.0) & (lengths <= LARGEST)))
        if len(wrong):
            at = wrong[0]
            raise ValueError(
                f"The edge above {self.nodes[at]!r} has the length {lengths[at]}, but lengths must "
                f"be finite and not negative, and not beyond {LARGEST:g}."
            )
        apart = self.paths[:, None, :] != self.paths[None, :, :]
        return np.asarray(apart @ lengths)


@registered("Hierarchy")
class Hierarchy(ClassProblem):
    """The classes of a taxonomy, numbered, with weights for every node.

    Parameters
    ----------
    n_features : int
        Features of an input.
    taxonomy : Taxonomy
    loss_matrix : array-like of shape (n_classes, n_classes), default=None
        Loss of predicting the column's class where the row's is true; None is the path length.
    fit_intercept : bool, default=True
        An intercept for every node.

    See Also
    --------
    maxmargin.HierarchicalClassifier : The estimator.

    Examples
    --------
    >>> import maxmargin as mm
    >>> from maxmargin.structures.taxonomy.problem import Taxonomy
    >>> tree = Taxonomy.of("auto", ["a/x", "a/y", "b"])
    >>> X, Y = [[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], [0, 1, 2]
    >>> mm.StructuredSVM(mm.structures.Hierarchy(2, tree), C=10.0).fit(X, Y).predict(X)
    [0, 1, 2]
    """

    def __init__(
        self,
        n_features: int,
        taxonomy: Taxonomy,
        loss_matrix: Floats | None = None,
        fit_intercept: bool = True,
    ) -> None:
        self.taxonomy = taxonomy
        if loss_matrix is None:
            loss_matrix = taxonomy.distances()
        n_classes, n_nodes = len(taxonomy.class_nodes), len(taxonomy.nodes)
        super().__init__(n_classes, loss_matrix, n_features, n_nodes, fit_intercept=fit_intercept)

    def factors(self, codes: Codes) -> Codes:
        return self.taxonomy.paths[codes[:, 0]]

    def class_scores(self, scores: Floats, extras: Floats) -> Floats:
        of_paths = np.empty((len(scores), self.n_columns))
        sum_paths(scores, self.taxonomy.parents, of_paths)
        return of_paths[:, self.taxonomy.class_nodes]


@compiled
def sum_paths(scores, parents, of_paths):  # type: ignore[no-untyped-def]
    """Prefix sums of the scores of nodes along their paths, for each row."""
    for k in range(len(scores)):
        for node in range(len(parents)):
            above = of_paths[k, parents[node]] if parents[node] >= 0 else 0.0
            of_paths[k, node] = scores[k, node] + above


def _path(name: Any, parent_of: Mapping[Any, Any]) -> list[Any]:
    """The node, its parent, and so on to the root."""
    path, seen = [name], {name}
    while (parent := parent_of[path[-1]]) is not None:
        if parent in seen:
            cycle = " -> ".join(map(repr, [*path[path.index(parent) :], parent]))
            raise ValueError(f"The taxonomy has a cycle, {cycle}: remove one of its links.")
        path.append(parent)
        seen.add(parent)
    return path


def _parents(taxonomy: Any, classes: Sequence[Any]) -> dict[Any, Any]:
    """The parent of every node, None for roots, from any form of taxonomy."""
    if isinstance(taxonomy, Mapping):
        if any(isinstance(below, Mapping | list | tuple | set) for below in taxonomy.values()):
            return _from_nested(taxonomy)
        tops = dict.fromkeys(parent for parent in taxonomy.values() if parent not in taxonomy)
        return {top: None for top in tops if top is not None} | dict(taxonomy)
    if isinstance(taxonomy, str):
        if taxonomy != "auto":
            raise ValueError(
                f"taxonomy is {taxonomy!r}, but must be a dictionary, a list of paths or 'auto'."
            )
        return _from_paths(classes)
    return _from_paths(taxonomy)


def _from_nested(taxonomy: Mapping[Any, Any]) -> dict[Any, Any]:
    """Parents in ``{node: {child: ...}}``."""
    parent_of: dict[Any, Any] = {}
    waiting: list[tuple[Any, Any]] = [(None, taxonomy)]
    while waiting:
        parent, below = waiting.pop()
        inner = below if isinstance(below, Mapping) else dict.fromkeys(below or ())
        for node, further in inner.items():
            if node in parent_of:
                raise ValueError(
                    f"{node!r} has two parents in the taxonomy, {parent_of[node]!r} and "
                    f"{parent!r}: every node must have one, so name one of the two otherwise."
                )
            parent_of[node] = parent
            waiting.append((node, further))
    return parent_of


def _from_paths(paths: Iterable[Any]) -> dict[Any, Any]:
    """Parents in paths; a path that is not a string is a root."""
    paths = list(paths)
    separator = "/" if any(isinstance(p, str) and "/" in p for p in paths) else "."
    parent_of: dict[Any, Any] = {}
    for path in paths:
        if not isinstance(path, str):
            parent_of[path] = None
            continue
        if not all(path.split(separator)):
            raise ValueError(
                f"The path {path!r} of the taxonomy has an empty part: write it without "
                f"{separator!r} at its ends or twice in a row."
            )
        node = path
        while separator in node:
            above = node.rpartition(separator)[0]
            parent_of[node] = above
            node = above
        parent_of[node] = None
    return parent_of
