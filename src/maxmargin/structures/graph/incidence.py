"""Graphs as the compiled searches walk them: the edges at each node, one graph after the other.

Nodes of a graph are numbered from 0. A labelling ``y`` of a graph scores

    sum_v nodes[v, y_v] + sum_e table_e[y_first, y_second]

Edges with the same scores share a table, their *kind*. Every table is there twice: ``pairs[2 *
kind]`` has the labels of the edge's first node as rows, ``pairs[2 * kind + 1]`` those of the
second, so that from either end the labels of the other stand side by side. Nodes are ``(n_nodes,
P)`` and pairs ``(2 * n_kinds, n_labels, P)``, float64 and finite, with ``P =
simd.padded(n_labels)``.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import inlined

Ints = NDArray[np.int64]


class Incidence(NamedTuple):
    """The edges at each node of many graphs.

    Node ``v`` of graph ``g`` has the number ``node_ends[g] + v``, in `starts` and `middles`; its
    edges to smaller nodes stand at ``starts[v]:middles[v]``, those to larger ones from there to
    ``starts[v + 1]``.

    `neighbours` and `edges` count from 0 in each graph, and `tables` says which of the graph's
    `pairs` has the labels of this node as rows; ``tables ^ 1`` has them as columns.
    """

    node_ends: Ints
    edge_ends: Ints
    starts: Ints
    middles: Ints
    neighbours: Ints
    edges: Ints
    tables: Ints


def make_incidence(node_ends: Ints, edge_ends: Ints, edges: Ints, kinds: Ints) -> Incidence:
    """From the ends of edges, ``(n_edges_of_all, 2)``, and their kinds, counted in each graph."""
    n_edges = np.diff(edge_ends)
    offsets = np.repeat(node_ends[:-1], n_edges)
    own = np.concatenate([edges[:, 0], edges[:, 1]])
    other = np.concatenate([edges[:, 1], edges[:, 0]])
    at = np.concatenate([offsets, offsets]) + own
    order = np.lexsort((other, at))
    n_nodes = int(node_ends[-1])
    starts = np.zeros(n_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(at, minlength=n_nodes), out=starts[1:])
    smaller = np.bincount(at[other < own], minlength=n_nodes)
    number = np.arange(len(edges)) - np.repeat(edge_ends[:-1], n_edges)
    return Incidence(
        node_ends,
        edge_ends,
        starts,
        starts[:-1] + smaller,
        other[order],
        np.concatenate([number, number])[order],
        np.concatenate([2 * kinds, 2 * kinds + 1])[order],
    )


@inlined
def set_local_scores(incidence, first, v, n_labels, nodes, pairs, labels, row):  # type: ignore[no-untyped-def]
    """Set `row` to the scores of the labels of node `v` if all others keep theirs.

    `first` is the number of the graph's node 0.
    """
    for b in range(n_labels):
        row[b] = nodes[v, b]
    for q in range(incidence.starts[first + v], incidence.starts[first + v + 1]):
        beside = pairs[incidence.tables[q] ^ 1, labels[incidence.neighbours[q]]]
        for b in range(n_labels):
            row[b] += beside[b]


@inlined
def labelling_score(incidence, first, n_nodes, nodes, pairs, labels):  # type: ignore[no-untyped-def]
    """Score of a labelling of the graph whose node 0 has the number `first`."""
    total = 0.0
    for v in range(n_nodes):
        total += nodes[v, labels[v]]
        for q in range(incidence.starts[first + v], incidence.middles[first + v]):
            total += pairs[incidence.tables[q], labels[v], labels[incidence.neighbours[q]]]
    return total
