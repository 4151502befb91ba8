"""A labelling of any graph and a bound that no labelling exceeds, by tree-reweighted messages.

The score of an edge can be shared out to its ends: with any *messages* ``m_ev`` from edge to node,
the score of every labelling is at most

    sum_v max_x (nodes[v, x] + sum_e m_ev[x]) + sum_e max_xy (table_e[x, y] - m_eu[x] - m_ev[y])

The least such bound is the linear relaxation's value. A pass visits the nodes in order. A node
hands its scores on to its edges ahead, in equal shares, and each of these passes all it has to its
other end. So after a pass no edge has anything left, and the bound is a sum over nodes. Passes in
alternate directions never raise it (Kolmogorov, 2006: TRW-S).

Only one message is kept for each edge: the one to the node that is visited later.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.compiled.simd import max_plus
from maxmargin.structures.chain.inference import highest_label
from maxmargin.structures.graph.incidence import set_local_scores

ROUNDING = 1e-12
"""A bound this close above a score, relative to its size, is the score."""


class Effort(NamedTuple):
    """When a relaxed search has done enough.

    Parameters
    ----------
    passes : int
        Most passes, there and back.
    enough : float
        Stop where the bound exceeds the labelling by no more than this part of what the bound
        exceeds the score to beat by: for training, the hinge.
    progress : float
        Stop where a pass, there and back, takes less than this part of the bound's excess away.
    """

    passes: int = 100
    enough: float = 0.0
    progress: float = 0.01


class RelaxationScratch(NamedTuple):
    """`labels` int64 ``(n_nodes,)``; the others ``(P,)``, `zeros` with zeros."""

    labels: NDArray[np.int64]
    belief: NDArray[np.float64]
    row: NDArray[np.float64]
    given: NDArray[np.float64]
    zeros: NDArray[np.float64]


def relaxation_scratch(n_nodes: int, width: int) -> RelaxationScratch:
    """Scratch for graphs of at most so many nodes."""
    rows = np.zeros((4, width))
    return RelaxationScratch(np.zeros(n_nodes, dtype=np.int64), *rows)


@compiled
def message_pass(  # type: ignore[no-untyped-def]
    incidence, first, n_nodes, n_labels, forward, nodes, pairs, messages, scratch
):
    """One pass; returns the bound after it and the score of the labelling met on the way.

    That one goes to ``scratch.labels``: each node takes the best label given those of the nodes
    before it and the messages from those ahead.
    """
    labels, belief, row, given = scratch.labels, scratch.belief, scratch.row, scratch.given
    bound = 0.0
    score = 0.0
    for step in range(n_nodes):
        v = step if forward else n_nodes - 1 - step
        start, middle, stop = (
            incidence.starts[first + v],
            incidence.middles[first + v],
            incidence.starts[first + v + 1],
        )
        behind, behind_end = (start, middle) if forward else (middle, stop)
        ahead, ahead_end = (middle, stop) if forward else (start, middle)
        # Beliefs: scores with the messages of all edges. For the label, nodes behind have theirs.
        for b in range(n_labels):
            belief[b] = nodes[v, b]
            row[b] = nodes[v, b]
        for q in range(behind, behind_end):
            message = messages[incidence.edges[q]]
            beside = pairs[incidence.tables[q] ^ 1, labels[incidence.neighbours[q]]]
            for b in range(n_labels):
                belief[b] += message[b]
                row[b] += beside[b]
        for b in range(n_labels):
            given[b] = row[b]
        for q in range(ahead, ahead_end):
            message = messages[incidence.edges[q]]
            for b in range(n_labels):
                belief[b] += message[b]
                given[b] += message[b]
        label = highest_label(given, n_labels)
        labels[v] = label
        score += row[label]
        highest = belief[0]
        for b in range(1, n_labels):
            highest = max(highest, belief[b])
        n_ahead, n_behind = ahead_end - ahead, behind_end - behind
        most = max(n_ahead, n_behind, 1)
        share = 1.0 / most
        bound += (1.0 - n_ahead / most) * highest
        for q in range(ahead, ahead_end):
            message = messages[incidence.edges[q]]
            for b in range(n_labels):
                given[b] = share * belief[b] - message[b]
            max_plus(given, pairs[incidence.tables[q]], scratch.zeros, n_labels, message)
    return bound, score


@inlined
def improve(incidence, first, n_nodes, n_labels, nodes, pairs, sweeps, labels, row):  # type: ignore[no-untyped-def]
    """Give node after node its best label given all others; returns what that gains."""
    gain = 0.0
    for _ in range(sweeps):
        before = gain
        for v in range(n_nodes):
            set_local_scores(incidence, first, v, n_labels, nodes, pairs, labels, row)
            label = highest_label(row, n_labels)
            if row[label] > row[labels[v]]:
                gain += row[label] - row[labels[v]]
                labels[v] = label
        if gain == before:
            break
    return gain


@compiled
def relax(  # type: ignore[no-untyped-def]
    incidence, g, n_labels, nodes, pairs, floor, effort, messages, best, scratch
):
    """Find a labelling of graph `g` and a bound; returns the labelling's score and the bound.

    `best` holds the labelling to beat, and at the end the best one found. Its score is `floor`,
    which may be ``-inf`` if there is none. `messages`, ``(n_edges, P)``, may hold anything finite
    at first; the better they fit, the fewer passes it takes. They are left as they are at the end.
    """
    first = incidence.node_ends[g]
    n_nodes = incidence.node_ends[g + 1] - first
    labels = scratch.labels
    score = floor
    bound = before = np.inf
    for _ in range(effort.passes):
        for direction in range(2):
            forward = direction == 0
            reached, found = message_pass(
                incidence, first, n_nodes, n_labels, forward, nodes, pairs, messages, scratch
            )
            bound = min(bound, reached)
            if not forward:  # a sweep takes nearly as long as a pass
                found += improve(
                    incidence, first, n_nodes, n_labels, nodes, pairs, 1, labels, scratch.row
                )
            if found > score:
                score = found
                for v in range(n_nodes):
                    best[v] = labels[v]
        suboptimality = bound - score
        if suboptimality <= ROUNDING * abs(bound):
            break
        if effort.enough > 0.0 and suboptimality <= effort.enough * (bound - floor):
            break
        if before - bound < effort.progress * suboptimality:
            break
        before = bound
    if score < bound:
        for v in range(n_nodes):
            labels[v] = best[v]
        score += improve(incidence, first, n_nodes, n_labels, nodes, pairs, 10, labels, scratch.row)
        for v in range(n_nodes):
            best[v] = labels[v]
    return score, max(bound, score)
