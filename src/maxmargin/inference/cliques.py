"""Distributions over the labellings of graphs, kept as probabilities of the labels of cliques.

The cliques are those of an `Elimination`: each node with its scope. A distribution over the
labellings of graph ``g`` is a vector of ``sizes[g] * n_labels`` numbers. From ``(table_at[p] + i) *
n_labels`` on stand the probabilities of the ``i``-th labelling of the scope of place ``p`` together
with each label of the node. The probability of all labels is

    p(y) = prod_p  p(label of the node in place p | labels of its scope)

which is that of the cliques over that of what neighbouring cliques share. Of all distributions with
these probabilities of cliques, it is the one with the most entropy.

Cliques must agree on what they share, and do so after each of these functions.
"""

import numpy as np

from maxmargin.dual.compiled import compiled
from maxmargin.inference.junction_tree import (
    add_row,
    first_labels,
    next_labels,
    set_own_row,
    set_row,
    share_out,
    table_place,
)
from maxmargin.inference.reweighting import LEAST


@compiled
def reweight_cliques(  # type: ignore[no-untyped-def]
    elimination, incidence, g, n_labels, nodes, pairs, cliques, labels, tables, shares, row
):
    """Multiply the probability of each labelling by ``exp(score)``, and normalise.

    Changes `cliques` in place. Scratch: `labels` int64 ``(n_nodes,)``, `tables` and `shares`
    float64 ``(sizes[g],)``, `row` float64 ``(P,)``.
    """
    start, stop = incidence.node_ends[g], incidence.node_ends[g + 1]
    # On the way there, a clique becomes what its node's labels have given those of the scope. The
    # label of the highest score counts at least LEAST, next to which it does not matter what
    # rounds to zero.
    for p in range(start, stop):
        first_labels(elimination, p, labels)
        at = elimination.table_at[p]
        more = True
        while more:
            set_row(elimination, incidence, p, n_labels, nodes, pairs, labels, tables, row)
            own = cliques[at * n_labels : (at + 1) * n_labels]
            highest = row[0]
            for b in range(1, n_labels):
                highest = max(highest, row[b])
            before = total = 0.0
            for b in range(n_labels):
                kept = max(own[b], LEAST)
                before += kept
                own[b] = kept * np.exp(row[b] - highest)
                total += own[b]
            scale = 1.0 / total
            for b in range(n_labels):
                own[b] *= scale
            tables[at] = highest + np.log(total / before)
            shares[at] = 0.0
            at += 1
            more = next_labels(elimination, p, n_labels, labels)
        if elimination.scope_starts[p] == elimination.scope_starts[p + 1]:
            shares[at - 1] = 1.0
    # And back, it is multiplied by the probability of the scope's labels.
    for p in range(stop - 1, start - 1, -1):
        first_labels(elimination, p, labels)
        at = elimination.table_at[p]
        more = True
        while more:
            own = cliques[at * n_labels : (at + 1) * n_labels]
            for b in range(n_labels):
                own[b] *= shares[at]
            share_out(elimination, p, n_labels, labels, own, shares)
            at += 1
            more = next_labels(elimination, p, n_labels, labels)


@compiled
def mean_clique_score(elimination, incidence, g, n_labels, nodes, pairs, cliques, labels, row):  # type: ignore[no-untyped-def]
    """Expected score of a labelling. Scratch: `labels` and `row`."""
    total = 0.0
    for p in range(incidence.node_ends[g], incidence.node_ends[g + 1]):
        first_labels(elimination, p, labels)
        at = elimination.table_at[p]
        more = True
        while more:
            set_own_row(elimination, incidence, p, n_labels, nodes, pairs, labels, row)
            for b in range(n_labels):
                total += cliques[at * n_labels + b] * row[b]
            at += 1
            more = next_labels(elimination, p, n_labels, labels)
    return total


@compiled
def set_clique_labelling(elimination, incidence, g, n_labels, labels, cliques):  # type: ignore[no-untyped-def]
    """All probability on one labelling."""
    for i in range(len(cliques)):
        cliques[i] = 0.0
    for p in range(incidence.node_ends[g], incidence.node_ends[g + 1]):
        at = table_place(elimination, p, n_labels, labels)
        first = elimination.scope_starts[p]
        if first < elimination.scope_starts[p + 1]:
            at += labels[elimination.scope[first]]
        cliques[at * n_labels + labels[elimination.order[p]]] = 1.0


@compiled
def add_clique_changes(  # type: ignore[no-untyped-def]
    elimination, incidence, g, n_labels, old, new, factor, kinds, of_nodes, of_pairs, labels, row
):
    """Add `factor` times what labels and pairs lose in probability from `old` to `new` cliques.

    To `of_nodes` ``(n_nodes, P)`` and `of_pairs` ``(n_kinds, n_labels, P)``, the labels of the
    edge's first node as rows; ``kinds[q]`` is the kind of the edge in place ``q`` in `Incidence`.
    Scratch: `labels` and `row`.
    """
    for p in range(incidence.node_ends[g], incidence.node_ends[g + 1]):
        first_labels(elimination, p, labels)
        at = elimination.table_at[p]
        more = True
        while more:
            for b in range(n_labels):
                i = at * n_labels + b
                row[b] = factor * (old[i] - new[i])
            add_row(elimination, incidence, p, n_labels, labels, row, kinds, of_nodes, of_pairs)
            at += 1
            more = next_labels(elimination, p, n_labels, labels)
