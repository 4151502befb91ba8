"""Graphs of users, tuples of arrays or networkx's, as one matrix of nodes and one of edges."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.core.cuts import starts_of
from maxmargin.core.inputs import (
    as_matrix,
    complaint,
    first_immoderate,
    label_array,
    stacked_matrices,
)

Ints = NDArray[np.int64]


class StackedGraphs(NamedTuple):
    """Rows of all nodes and of all edges, concatenated; nodes count from 0 in each graph."""

    X: Any  # of shape (n_nodes_of_all, n_features)
    node_ends: Ints  # of shape (n_graphs + 1,)
    edges: Ints  # of shape (n_edges_of_all, 2)
    edge_ends: Ints
    edge_rows: Any  # a column of ones if edges have no features


def stack_graphs(X: Sequence[Any]) -> StackedGraphs:
    """Checked graphs in any of the forms; ValueError says which is wrong, and where."""
    if not len(X):
        raise ValueError("X is empty: give at least one graph.")
    parts = [_parts(graph, i) for i, graph in enumerate(X)]
    rows, node_ends = _stack([part[0] for part in parts], "node")
    edges = [_edges(part[1], i) for i, part in enumerate(parts)]
    edge_ends = starts_of([len(own) for own in edges])
    stacked = np.concatenate(edges)
    _check_edges(stacked, node_ends, edge_ends)
    return StackedGraphs(rows, node_ends, stacked, edge_ends, _edge_rows(parts, edge_ends))


def grid_edges(height: int, width: int) -> Ints:
    """Edges of a grid whose nodes are numbered row by row, to the right and down.

    Returns
    -------
    edges : ndarray of shape (n_edges, 2)
        First the ``height * (width - 1)`` edges to the right, then those down.

    Examples
    --------
    >>> grid_edges(2, 2).tolist()
    [[0, 1], [2, 3], [0, 2], [1, 3]]
    """
    numbers = np.arange(height * width).reshape(height, width)
    right = np.stack([numbers[:, :-1].ravel(), numbers[:, 1:].ravel()], axis=1)
    down = np.stack([numbers[:-1].ravel(), numbers[1:].ravel()], axis=1)
    return np.concatenate([right, down])


def node_features(X: Sequence[Any]) -> list[Any]:
    """Features of the nodes of each graph that is a tuple of arrays, as they came."""
    return [graph[0] for graph in X if isinstance(graph, (tuple, list)) and len(graph)]


def node_values(values: Any, graph: Any, i: int, what: str, void: Any = None) -> NDArray[Any]:
    """One value for each node of graph `i`, from an array or, by node, from a dictionary."""
    if isinstance(values, Mapping):
        nodes = list(graph.nodes) if hasattr(graph, "nodes") else range(len(values))
        for node in nodes:
            if node not in values:
                raise ValueError(f"The {what} of graph {i} miss the node {node!r}.")
        values = [values[node] for node in nodes]
    array = label_array(values, f"The list of {what} of graph {i}", void)
    return array.ravel() if array.size == 0 else array


def _parts(graph: Any, i: int) -> tuple[Any, Any, Any]:
    """Node features, edges, and edge features or None."""
    if hasattr(graph, "nodes") and hasattr(graph, "edges"):
        return _networkx_parts(graph, i)
    if isinstance(graph, (tuple, list)) and len(graph) in (2, 3):
        return graph[0], graph[1], graph[2] if len(graph) == 3 else None
    raise ValueError(
        f"Graph {i} must be a tuple (node_features, edges) or (node_features, edges, "
        f"edge_features), or have nodes and edges as networkx graphs have."
    )


def _networkx_parts(graph: Any, i: int) -> tuple[Any, Any, Any]:
    numbers: dict[Any, int] = {}
    rows, edges, own_edges = list[Any](), list[tuple[int, int]](), list[Any]()
    for node, x in graph.nodes(data="x"):
        if x is None:
            raise ValueError(f"Node {node!r} of graph {i} has no attribute 'x' with its features.")
        numbers[node] = len(rows)
        rows.append(np.asarray(x, dtype=np.float64))
    for u, v, x in graph.edges(data="x"):
        edges.append((numbers[u], numbers[v]))
        own_edges.append(x)
    missing = sum(x is None for x in own_edges)
    if missing == len(own_edges):
        return rows, edges, None
    if missing:
        raise ValueError(
            f"{missing} of the {len(edges)} edges of graph {i} have no attribute 'x': give "
            f"features to all of them, or to none."
        )
    return rows, edges, [np.asarray(x, dtype=np.float64) for x in own_edges]


def _edges(edges: Any, i: int) -> Ints:
    try:
        array = np.asarray(edges)
        if array.size == 0:
            return np.zeros((0, 2), dtype=np.int64)
        if array.ndim != 2 or array.shape[1] != 2 or not np.issubdtype(array.dtype, np.integer):
            raise ValueError
    except ValueError as error:
        raise ValueError(
            f"The edges of graph {i} must be pairs of node numbers, an integer array of shape "
            f"(n_edges, 2)."
        ) from error
    return array.astype(np.int64)


def _check_edges(edges: Ints, node_ends: Ints, edge_ends: Ints) -> None:
    graph = np.repeat(np.arange(len(node_ends) - 1), edge_ends[1:] - edge_ends[:-1])
    n_nodes = node_ends[1:] - node_ends[:-1]
    low, high = edges.min(axis=1), edges.max(axis=1)
    outside = (low < 0) | (high >= n_nodes[graph])
    loops = low == high
    order = np.lexsort((high, low, graph))
    key = np.stack([graph, low, high])[:, order]
    repeats = (key[:, 1:] == key[:, :-1]).all(axis=0)
    if not (outside.any() or loops.any() or repeats.any()):
        return
    again = np.zeros(len(edges), dtype=bool)
    again[order[1:][repeats]] = True
    for bad, reason in (
        (outside, "the nodes {u} and {v}, but the graph has {n} nodes, counted from 0."),
        (loops, "the node {u} with itself: give it to the node as a feature instead."),
        (again, "the nodes {u} and {v}, which another edge does already, in this direction or "
         "the other: give one edge, with features for both."),
    ):  # fmt: skip
        if bad.any():
            e = int(np.flatnonzero(bad)[0])
            g, (u, v) = int(graph[e]), edges[e].tolist()
            joined = reason.format(u=u, v=v, n=n_nodes[g])
            raise ValueError(f"Edge {e - edge_ends[g]} of graph {g} joins {joined}")


def _edge_rows(parts: list[tuple[Any, Any, Any]], edge_ends: Ints) -> Any:
    n_edges = edge_ends[1:] - edge_ends[:-1]
    missing = [i for i in np.flatnonzero(n_edges) if parts[i][2] is None]
    if len(missing) == np.count_nonzero(n_edges):
        return np.ones((int(edge_ends[-1]), 1))
    if missing:
        raise ValueError(
            f"Graph {missing[0]} has no features of edges, but others have: give them to all, or "
            f"to none."
        )
    given = [part[2] if n else np.zeros((0, 0)) for part, n in zip(parts, n_edges, strict=True)]
    rows, ends = _stack(given, "edge")
    wrong = np.flatnonzero(np.diff(ends) != n_edges)
    if len(wrong):
        i = int(wrong[0])
        raise ValueError(
            f"Graph {i} has {n_edges[i]} edges but {ends[i + 1] - ends[i]} rows of edge features: "
            f"give one for each."
        )
    return rows


def _stack(parts: list[Any], what: str) -> tuple[Any, Ints]:
    """Checked feature rows of all graphs, and where those of each end."""
    matrices = [
        as_matrix(rows, f"The {what} features of graph {i}", f"one row for each {what}")
        for i, rows in enumerate(parts)
    ]
    filled = [(i, rows) for i, rows in enumerate(matrices) if rows.shape[0]]
    for i, rows in filled:
        if rows.shape[1] != filled[0][1].shape[1]:
            raise ValueError(
                f"Each {what} of graph {i} has {rows.shape[1]} features, but "
                f"{filled[0][1].shape[1]} in graph {filled[0][0]}."
            )
    stacked = stacked_matrices(matrices, max((rows.shape[1] for rows in matrices), default=0))
    if sp.issparse(stacked):
        stacked = stacked.astype(np.float64)
        stacked.sum_duplicates()
    ends = starts_of([rows.shape[0] for rows in matrices])
    found = first_immoderate(stacked) if filled else None
    if found is not None:
        row, column, value = found
        g = int(np.searchsorted(ends, row, side="right")) - 1
        place = f"column {column} of {what} {row - ends[g]}"
        raise ValueError(complaint(value, f"Graph {g}", place, "GraphLabeler"))
    return stacked, ends
