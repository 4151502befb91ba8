"""The best labelling with two labels, where neighbours like to agree: a minimum cut.

Scores of an edge that like to agree, ``t[0, 0] + t[1, 1] >= t[0, 1] + t[1, 0]``, are (up to a
constant) scores of its two nodes less ``weight * [first has 0 and second has 1]``. Where all edges
do, a minimum cut between label 0 and label 1 is the best labelling.

Capacities are whole numbers, so they are rounded. But what flows along the edges is a set of
messages as in `maxmargin.inference.relaxation`, and these give a bound without any rounding.
"""

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ROUNDING = 1e-14
"""Relative to the scores of an edge, disagreement that is none."""

LARGEST = 2**30
"""What all capacities add up to at most: flows are 32-bit numbers."""


def agreement(tables: Floats) -> Floats:
    """How much the ends of an edge like to agree: ``t[0, 0] + t[1, 1] - t[0, 1] - t[1, 0]``.

    Parameters
    ----------
    tables : ndarray of shape (..., 2, 2 or more)
    """
    like: Floats = tables[..., 0, 0] + tables[..., 1, 1] - tables[..., 0, 1] - tables[..., 1, 0]
    return like


def all_agree(tables: Floats) -> bool:
    """Whether `agreement` is nowhere negative, but for rounding."""
    return bool((agreement(tables) >= -ROUNDING * np.abs(tables[..., :2]).sum(axis=(-2, -1))).all())


def best_cut(nodes: Floats, edges: Ints, tables: Floats) -> tuple[Ints, float]:
    """Best labels of a graph with two labels, and a bound that no labelling exceeds.

    Parameters
    ----------
    nodes : ndarray of shape (n_nodes, 2 or more)
    edges : ndarray of shape (n_edges, 2)
    tables : ndarray of shape (n_edges, 2, 2 or more)
        Scores of the labels of an edge's first (row) and second node; they must agree, see
        `all_agree`.

    Returns
    -------
    labels : ndarray of shape (n_nodes,)
    bound : float
        The score of the labels but for rounding.

    Examples
    --------
    The middle of three nodes is of another opinion than its neighbours, but not very:

    >>> nodes = np.array([[0.0, 2.0], [1.0, 0.0], [0.0, 2.0]])
    >>> alike = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> best_cut(nodes, np.array([[0, 1], [1, 2]]), np.array([alike, alike]))
    (array([1, 1, 1]), 6.0)
    """
    n_nodes = len(nodes)
    first, second = edges.T
    weight = np.maximum(agreement(tables), 0.0)
    # In favour of label 1: what is left of an edge is 0, but for -weight where they are (0, 1).
    favour = nodes[:, 1] - nodes[:, 0]
    favour += np.bincount(first, tables[:, 1, 0] - tables[:, 0, 0], n_nodes)
    favour += np.bincount(second, tables[:, 1, 1] - tables[:, 1, 0], n_nodes)
    constant = float(nodes[:, 0].sum() + tables[:, 0, 0].sum())

    total = float(np.abs(favour).sum() + weight.sum())
    scale = 2.0 ** np.floor(np.log2(LARGEST / total)) if total > 0.0 else 1.0
    network, source, sink = _network(favour * scale, edges, weight * scale)
    flow = maximum_flow(network, source, sink, method="dinic").flow

    residual = network - flow
    residual.data[residual.data < 0] = 0
    residual.eliminate_zeros()
    labels = np.ones(n_nodes + 2, dtype=np.int64)
    labels[breadth_first_order(residual, source, return_predecessors=False)] = 0

    # Label 0 is on the side of the source. What flows along an edge from first to second speaks
    # for 1 at the first and against it at the second.
    sent = np.zeros(len(edges))
    if len(edges):
        sent += np.asarray(sp.csr_matrix(flow)[first, second]).ravel() / scale
    sent = np.clip(sent, 0.0, weight)
    favour += np.bincount(first, sent, n_nodes) - np.bincount(second, sent, n_nodes)
    return labels[:n_nodes], constant + float(np.maximum(favour, 0.0).sum())


def _network(favour: Floats, edges: Ints, weight: Floats) -> tuple[sp.csr_array, int, int]:
    """Capacities from the source (label 0) over the nodes to the sink (label 1)."""
    n_nodes = len(favour)
    source, sink = n_nodes, n_nodes + 1
    own = np.arange(n_nodes)
    for_one = favour > 0.0
    tails = np.concatenate([edges[:, 0], np.where(for_one, own, source)])
    heads = np.concatenate([edges[:, 1], np.where(for_one, sink, own)])
    capacities = np.round(np.concatenate([weight, np.abs(favour)])).astype(np.int32)
    network = sp.csr_array((capacities, (tails, heads)), shape=(n_nodes + 2, n_nodes + 2))
    return network, source, sink
