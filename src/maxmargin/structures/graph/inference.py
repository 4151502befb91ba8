"""Inference for one labelled graph: exact by elimination, relaxed with a bound, or by minimum cuts.

Nodes of a graph are numbered from 0. A labelling ``y`` of a graph scores

    sum_v nodes[v, y_v] + sum_e table_e[y_first, y_second]

Edges with the same scores share a table, their *kind*. Every table is there twice: ``pairs[2 *
kind]`` has the labels of the edge's first node as rows, ``pairs[2 * kind + 1]`` those of the
second, so that from either end the labels of the other stand side by side. Nodes are ``(n_nodes,
P)`` and pairs ``(2 * n_kinds, n_labels, P)``, float64 and finite, with ``P =
simd.padded(n_labels)``.

**Exact**, for graphs that are trees or nearly: one node after the other is eliminated, which
replaces it by a table over its neighbours, its *scope*, which are neighbours of each other from
then on. For every labelling of the scope the table has the best score (or the logarithm of the sum
of exponentials) of the nodes eliminated so far. That is a walk over a junction tree whose cliques
are the scopes with their nodes; it takes ``n_labels ** (len(scope) + 1)`` steps for each. The next
node is always one that makes the fewest new neighbours (min-fill), so that trees have scopes of one
node; the largest scope is the treewidth, or close. A table keeps no pointers: on the way back the
row of the node is computed once more.

**Relaxed**: a labelling and a bound that no labelling exceeds, by tree-reweighted message passing.
The score of an edge can be split between its ends: with any *messages* ``m_ev`` from edge to node,
the score of every labelling is at most

    sum_v max_x (nodes[v, x] + sum_e m_ev[x]) + sum_e max_xy (table_e[x, y] - m_eu[x] - m_ev[y])

The least such bound is the value of the linear relaxation. A pass goes over the nodes in order. A
node passes its scores on to its edges ahead, in equal parts, and each of these passes all it has to
its other end. So after a pass no edge has anything left, and the bound is a sum over nodes. Passes
in alternate directions never raise it (Kolmogorov, 2006: TRW-S). Only one message is kept for each
edge: the one to the later node.

**Minimum cuts**, for two labels and submodular (attractive) pairwise potentials, ``t[0, 0] +
t[1, 1] >= t[0, 1] + t[1, 0]``. These are, up to a constant, scores of the two nodes less ``weight *
[first has 0 and second has 1]``, so that a minimum cut between label 0 and label 1 is the best
labelling. Capacities are whole numbers, so they are rounded; but what flows along the edges is a
set of messages as above, and these give a bound without any rounding.

`best_labelling` and `graph_marginals` are for one graph, ready to call.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.compiled.simd import max_plus, padded
from maxmargin.core.cuts import starts_of
from maxmargin.structures.chain.inference import highest_label

Floats = NDArray[np.float64]
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
    starts = starts_of(np.bincount(at, minlength=n_nodes))
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


class TooWideError(ValueError):
    """An elimination would need too large tables; `width` is the scope at which it gave up."""

    def __init__(self, width: int) -> None:
        super().__init__(f"an elimination meets a scope of {width} nodes")
        self.width = width


class Elimination(NamedTuple):
    """The order in which nodes of many graphs are eliminated, and what that needs.

    The node eliminated in place ``p`` is ``order[p]``; places of graph ``g`` are those of its nodes
    in `Incidence`. ``scope[scope_starts[p]:scope_starts[p + 1]]`` are its neighbours then, the one
    eliminated next first. Its table stands in scratch from ``table_at[p]`` on, the label of
    the first node of the scope running fastest; `children` are the places whose tables are added to
    the scores of this node. `links` are its edges to nodes in the scope, as places in `Incidence`.
    Graph ``g`` needs scratch for ``sizes[g]`` numbers; -1 if it is not to be eliminated.
    """

    order: Ints
    scope_starts: Ints
    scope: Ints
    table_at: Ints
    link_starts: Ints
    links: Ints
    child_starts: Ints
    children: Ints
    sizes: Ints


def elimination_order(
    n_nodes: int, edges: Sequence[Sequence[int]], n_labels: int, limit: float
) -> list[tuple[int, list[int]]]:
    """Nodes in the order of elimination by min-fill, each with its scope.

    TooWideError if the tables have more than `limit` entries together.

    Examples
    --------
    A square with a tail:

    >>> elimination_order(5, [(0, 1), (1, 2), (2, 3), (3, 0), (3, 4)], 2, np.inf)
    [(4, [3]), (0, [1, 3]), (1, [2, 3]), (2, [3]), (3, [])]
    """
    adjacent: list[set[int]] = [set() for _ in range(n_nodes)]
    for u, v in edges:
        adjacent[u].add(v)
        adjacent[v].add(u)

    def fill(v: int) -> int:
        around = adjacent[v]
        return sum(len(around - adjacent[u]) - 1 for u in around) // 2

    fills = [fill(v) for v in range(n_nodes)]
    heap = [(f, v) for v, f in enumerate(fills)]
    heapify(heap)
    order: list[tuple[int, list[int]]] = []
    place = [-1] * n_nodes
    entries = 0
    while heap:
        f, v = heappop(heap)
        if place[v] >= 0 or f != fills[v]:
            continue
        around = adjacent[v]
        entries += n_labels ** (len(around) + 1)
        if entries > limit:
            raise TooWideError(len(around))
        place[v] = len(order)
        order.append((v, list(around)))
        changed = set(around)
        for u in around:
            adjacent[u].discard(v)
        if f:
            for u, w in combinations(around, 2):
                if w not in adjacent[u]:
                    changed |= adjacent[u] & adjacent[w]
                    adjacent[u].add(w)
                    adjacent[w].add(u)
        for u in changed:
            now = fill(u)
            if now != fills[u]:
                fills[u] = now
                heappush(heap, (now, u))
    for _, scope in order:
        scope.sort(key=place.__getitem__)
    return order


class _Plan(NamedTuple):
    """The elimination of one graph, all places counted from 0."""

    order: Ints
    counts: Ints
    scope: Ints
    table_at: Ints
    size: int


def _plan(order: list[tuple[int, list[int]]], n_labels: int) -> _Plan:
    counts = np.array([len(scope) for _, scope in order], dtype=np.int64)
    sizes = n_labels**counts
    return _Plan(
        np.array([v for v, _ in order], dtype=np.int64),
        counts,
        np.array([u for _, scope in order for u in scope], dtype=np.int64),
        np.cumsum(sizes) - sizes,
        int(sizes.sum()),
    )


def make_elimination(
    incidence: Incidence, edges: Ints, n_labels: int, limits: NDArray[np.float64]
) -> tuple[Elimination, dict[int, int]]:
    """Eliminations of all graphs whose tables have no more entries together than their limit.

    Returns them, and for each other graph the width at which it was given up. Graphs with the same
    edges are looked at once.
    """
    known: dict[tuple[int, bytes, float], _Plan | int] = {}
    plans: list[_Plan] = []
    given_up: dict[int, int] = {}
    for g, limit in enumerate(limits.tolist()):
        n_nodes = int(incidence.node_ends[g + 1] - incidence.node_ends[g])
        own = edges[incidence.edge_ends[g] : incidence.edge_ends[g + 1]]
        key = n_nodes, own.tobytes(), limit
        if key not in known:
            try:
                order = elimination_order(n_nodes, own.tolist(), n_labels, limit)
                known[key] = _plan(order, n_labels)
            except TooWideError as error:
                known[key] = error.width
        plan = known[key]
        if not isinstance(plan, _Plan):
            given_up[g] = plan
            none = np.zeros(n_nodes, dtype=np.int64)
            plan = _Plan(none, none, none[:0], none, -1)
        plans.append(plan)
    return _stacked(incidence, plans), given_up


def _stacked(incidence: Incidence, plans: list[_Plan]) -> Elimination:
    """Plans of all graphs one after the other, with links and children."""
    none, n_nodes = np.zeros(0, dtype=np.int64), np.diff(incidence.node_ends)
    order = np.concatenate([none, *(plan.order for plan in plans)])
    counts = np.concatenate([none, *(plan.counts for plan in plans)])
    scope = np.concatenate([none, *(plan.scope for plan in plans)])
    table_at = np.concatenate([none, *(plan.table_at for plan in plans)])
    sizes = np.array([plan.size for plan in plans], dtype=np.int64)
    scope_starts = starts_of(counts)
    offsets, n_places = np.repeat(incidence.node_ends[:-1], n_nodes), len(order)
    eliminated = np.repeat(sizes >= 0, n_nodes)

    place = np.full(n_places, -1, dtype=np.int64)  # of each node
    place[(offsets + order)[eliminated]] = np.flatnonzero(eliminated)

    # Links: edges to nodes that are eliminated later.
    own = np.repeat(np.arange(n_places), np.diff(incidence.starts))
    other = offsets[own] + incidence.neighbours
    links = np.flatnonzero(place[own] < place[other])
    by_place = np.argsort(place[own[links]], kind="stable")
    links = links[by_place]
    link_starts = starts_of(np.bincount(place[own[links]], minlength=n_places))

    # A table goes to the node of its scope that is eliminated next.
    passing = np.flatnonzero(counts > 0)
    parents = place[offsets[passing] + scope[scope_starts[passing]]]
    children = passing[np.argsort(parents, kind="stable")]
    child_starts = starts_of(np.bincount(parents, minlength=n_places))
    return Elimination(
        order, scope_starts, scope, table_at, link_starts, links, child_starts, children, sizes
    )  # fmt: skip


@inlined
def table_place(elimination, p, n_labels, labels):  # type: ignore[no-untyped-def]
    """Where in the table of place `p` its scope has these labels, but the first label 0."""
    at = elimination.table_at[p]
    power = n_labels
    for i in range(elimination.scope_starts[p] + 1, elimination.scope_starts[p + 1]):
        at += power * labels[elimination.scope[i]]
        power *= n_labels
    return at


@inlined
def set_own_row(elimination, incidence, p, n_labels, nodes, pairs, labels, row):  # type: ignore[no-untyped-def]
    """Scores of the labels of the node in place `p` and of its links, given those of its scope."""
    v = elimination.order[p]
    for b in range(n_labels):
        row[b] = nodes[v, b]
    for i in range(elimination.link_starts[p], elimination.link_starts[p + 1]):
        q = elimination.links[i]
        beside = pairs[incidence.tables[q] ^ 1, labels[incidence.neighbours[q]]]
        for b in range(n_labels):
            row[b] += beside[b]


@inlined
def set_row(elimination, incidence, p, n_labels, nodes, pairs, labels, tables, row):  # type: ignore[no-untyped-def]
    """The same with all that has been eliminated into it."""
    set_own_row(elimination, incidence, p, n_labels, nodes, pairs, labels, row)
    for i in range(elimination.child_starts[p], elimination.child_starts[p + 1]):
        at = table_place(elimination, elimination.children[i], n_labels, labels)
        for b in range(n_labels):
            row[b] += tables[at + b]


@inlined
def open_scope(elimination, p, n_labels, labels):  # type: ignore[no-untyped-def]
    """All labels of the scope 0; returns where the table of place `p` begins and ends."""
    size = 1
    for i in range(elimination.scope_starts[p], elimination.scope_starts[p + 1]):
        labels[elimination.scope[i]] = 0
        size *= n_labels
    return elimination.table_at[p], elimination.table_at[p] + size


@inlined
def next_labels(elimination, p, n_labels, labels):  # type: ignore[no-untyped-def]
    """Count the labels of the scope one up; after the last come the first."""
    for i in range(elimination.scope_starts[p], elimination.scope_starts[p + 1]):
        u = elimination.scope[i]
        labels[u] += 1
        if labels[u] < n_labels:
            break
        labels[u] = 0


@compiled
def best_exact(elimination, incidence, g, n_labels, nodes, pairs, labels, tables, row):  # type: ignore[no-untyped-def]
    """Set `labels` to the best labelling of graph `g` and return its score.

    Scratch: `tables` float64 ``(sizes[g],)``, `row` float64 ``(P,)``.
    """
    start, stop = incidence.node_ends[g], incidence.node_ends[g + 1]
    for p in range(start, stop):
        first, last = open_scope(elimination, p, n_labels, labels)
        for at in range(first, last):
            set_row(elimination, incidence, p, n_labels, nodes, pairs, labels, tables, row)
            highest = row[0]
            for b in range(1, n_labels):
                highest = max(highest, row[b])
            tables[at] = highest
            next_labels(elimination, p, n_labels, labels)
    score = 0.0
    for p in range(stop - 1, start - 1, -1):
        set_row(elimination, incidence, p, n_labels, nodes, pairs, labels, tables, row)
        label = highest_label(row, n_labels)
        labels[elimination.order[p]] = label
        if elimination.scope_starts[p] == elimination.scope_starts[p + 1]:
            score += row[label]
    return score


@inlined
def add_row(elimination, incidence, p, n_labels, labels, row, places, of_nodes, of_pairs):  # type: ignore[no-untyped-def]
    """Add what the node in place `p` has for each of its labels, given those of its scope.

    To its row of `of_nodes`, and to the tables of its links in `of_pairs`: ``places[q]`` says which
    one belongs to place ``q`` in `Incidence`.
    """
    v = elimination.order[p]
    for b in range(n_labels):
        of_nodes[v, b] += row[b]
    for i in range(elimination.link_starts[p], elimination.link_starts[p + 1]):
        q = elimination.links[i]
        beside = labels[incidence.neighbours[q]]
        joint = of_pairs[places[q]]
        if incidence.tables[q] % 2 == 0:
            for b in range(n_labels):
                joint[b, beside] += row[b]
        else:
            for b in range(n_labels):
                joint[beside, b] += row[b]


@inlined
def share_out(elimination, p, n_labels, labels, row, shares):  # type: ignore[no-untyped-def]
    """Add what the labels of a clique have to those of its children's scopes."""
    for i in range(elimination.child_starts[p], elimination.child_starts[p + 1]):
        to = table_place(elimination, elimination.children[i], n_labels, labels)
        for b in range(n_labels):
            shares[to + b] += row[b]


@compiled
def marginals_exact(  # type: ignore[no-untyped-def]
    elimination, incidence, g, n_labels, nodes, pairs, node_marginals, pair_marginals,
    labels, tables, shares, row,
):  # fmt: skip
    """Probabilities of labels and of pairs when labellings have probability ``~ exp(score)``.

    Fills `node_marginals` ``(n_nodes, P)`` and `pair_marginals` ``(n_edges, n_labels, P)``, the
    labels of the edge's first node as rows, with zeros in the padding, and returns the logarithm of
    the partition function. Scratch: `labels` int64 ``(n_nodes,)``, `tables` and `shares` float64
    ``(sizes[g],)``, `row` float64 ``(P,)``.
    """
    start, stop = incidence.node_ends[g], incidence.node_ends[g + 1]
    width = node_marginals.shape[1]
    for v in range(stop - start):
        for b in range(width):
            node_marginals[v, b] = 0.0
    for e in range(incidence.edge_ends[g + 1] - incidence.edge_ends[g]):
        for a in range(n_labels):
            for b in range(width):
                pair_marginals[e, a, b] = 0.0

    log_partition = 0.0
    for p in range(start, stop):
        first, last = open_scope(elimination, p, n_labels, labels)
        for at in range(first, last):
            set_row(elimination, incidence, p, n_labels, nodes, pairs, labels, tables, row)
            highest = row[0]
            for b in range(1, n_labels):
                highest = max(highest, row[b])
            total = 0.0
            for b in range(n_labels):
                total += np.exp(row[b] - highest)
            tables[at] = highest + np.log(total)
            shares[at] = 0.0
            next_labels(elimination, p, n_labels, labels)
        if elimination.scope_starts[p] == elimination.scope_starts[p + 1]:
            log_partition += tables[first]
            shares[first] = 1.0

    # Back: the probability of a scope's labels, shared out to the labels of its node. What a clique
    # knows of its children's scopes is theirs.
    for p in range(stop - 1, start - 1, -1):
        first, last = open_scope(elimination, p, n_labels, labels)
        for at in range(first, last):
            set_row(elimination, incidence, p, n_labels, nodes, pairs, labels, tables, row)
            for b in range(n_labels):
                row[b] = shares[at] * np.exp(row[b] - tables[at])
            add_row(
                elimination, incidence, p, n_labels, labels, row,
                incidence.edges, node_marginals, pair_marginals,
            )  # fmt: skip
            share_out(elimination, p, n_labels, labels, row, shares)
            next_labels(elimination, p, n_labels, labels)
    return log_partition


ROUNDING = 1e-12
"""A bound this close above a score, relative to its size, is the score."""


class Effort(NamedTuple):
    """When relaxed inference has done enough: after so many `passes`, there and back, or earlier.

    That is where the bound exceeds the labelling by no more than the part `enough` of what it
    exceeds the score to beat by, which is for training the hinge; or where a pass, there and back,
    takes less than the part `progress` of the bound's excess away.
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
        start, stop = incidence.starts[first + v], incidence.starts[first + v + 1]
        middle = incidence.middles[first + v]
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


SUBMODULAR_ROUNDING = 1e-14
"""Relative to the scores of an edge, what may lack of submodularity by rounding."""

LARGEST = 2**30
"""What all capacities add up to at most: flows are 32-bit numbers."""


def submodularity(tables: Floats) -> Floats:
    """How submodular an edge is: ``t[0, 0] + t[1, 1] - t[0, 1] - t[1, 0]``."""
    like: Floats = tables[..., 0, 0] + tables[..., 1, 1] - tables[..., 0, 1] - tables[..., 1, 0]
    return like


def all_submodular(tables: Floats) -> bool:
    """Whether `submodularity` is nowhere negative, but for rounding."""
    sizes = np.abs(tables[..., :2]).sum(axis=(-2, -1))
    return bool((submodularity(tables) >= -SUBMODULAR_ROUNDING * sizes).all())


def best_cut(nodes: Floats, edges: Ints, tables: Floats) -> tuple[Ints, float]:
    """Best labels of a graph with two labels, and a bound that no labelling exceeds.

    Tables ``(n_edges, 2, 2 or more)`` have the labels of an edge's first node as rows and must be
    submodular, see `all_submodular`. The bound is the score of the labels but for rounding.

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
    weight = np.maximum(submodularity(tables), 0.0)
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


class Labelling(NamedTuple):
    """Labels of the nodes, their score, and a bound that the score of no labels exceeds."""

    labels: Ints
    score: float
    bound: float


class Marginals(NamedTuple):
    """Logarithm of the partition function, and probabilities of labels and of pairs of labels."""

    log_partition: float
    nodes: Floats
    pairs: Floats


class _Graph(NamedTuple):
    nodes: Floats
    pairs: Floats
    edges: Ints
    tables: Floats
    incidence: Incidence

    @property
    def n_labels(self) -> int:
        return int(self.tables.shape[1])

    def elimination(self) -> Elimination:
        limits = np.full(1, np.inf)
        return make_elimination(self.incidence, self.edges, self.n_labels, limits)[0]


def best_labelling(
    nodes: ArrayLike, edges: ArrayLike, pairs: ArrayLike, method: str = "exact"
) -> Labelling:
    """Labels with the highest score, ``sum_v nodes[v, y_v] + sum_e pairs[e, y_first, y_second]``.

    Parameters
    ----------
    nodes : array-like of shape (n_nodes, n_labels)
    edges : array-like of shape (n_edges, 2)
        First and second node; no loops, no two edges between the same nodes.
    pairs : array-like of shape (n_edges, n_labels, n_labels), or (n_labels, n_labels) for all
        The label of an edge's first node is the row.
    method : {"exact", "relaxed", "flow"}, default="exact"
        Exact takes ``n_labels ** (treewidth + 1)`` steps for each node. Relaxed gives labels that
        may not be the best, and a bound. Flow is exact, for two labels and edges that like to
        agree: ``pairs[e, 0, 0] + pairs[e, 1, 1] >= pairs[e, 0, 1] + pairs[e, 1, 0]``.

    Returns
    -------
    labelling : Labelling

    See Also
    --------
    graph_marginals

    Examples
    --------
    Three neighbours in a ring who each want to differ from the other two, with two labels:

    >>> ring = [(0, 1), (1, 2), (2, 0)]
    >>> nodes = [[0.5, 0.0], [0.0, 0.125], [0.0, 0.25]]
    >>> best_labelling(nodes, ring, [[0.0, 1.0], [1.0, 0.0]])
    Labelling(labels=array([0, 1, 1]), score=2.875, bound=2.875)

    The relaxation finds them, too, but cannot exclude that all three get their will:

    >>> best_labelling(nodes, ring, [[0.0, 1.0], [1.0, 0.0]], method="relaxed").bound > 3.0
    True
    """
    graph = _graph(nodes, edges, pairs)
    n_nodes, width = graph.nodes.shape
    labels = np.zeros(n_nodes, dtype=np.int64)
    shared = 0, graph.n_labels, graph.nodes, graph.pairs
    if method == "exact":
        elimination = graph.elimination()
        tables, row = np.empty(elimination.sizes[0]), np.empty(width)
        score = best_exact(elimination, graph.incidence, *shared, labels, tables, row)
        return Labelling(labels, score, score)
    if method == "flow":
        if graph.n_labels != 2 or not all_submodular(graph.tables):
            raise ValueError("A flow needs two labels, and submodular scores of edges.")
        labels, bound = best_cut(graph.nodes, graph.edges, graph.tables)
        first, second = labels[graph.edges].T
        score = float(graph.nodes[np.arange(n_nodes), labels].sum())
        score += float(graph.tables[np.arange(len(first)), first, second].sum())
        return Labelling(labels, score, max(bound, score))
    if method == "relaxed":
        messages = np.zeros((len(graph.edges), width))
        scratch = relaxation_scratch(n_nodes, width)
        found = relax(graph.incidence, *shared, -np.inf, Effort(), messages, labels, scratch)
        return Labelling(labels, *found)
    raise ValueError(f"method must be 'exact', 'relaxed' or 'flow', but is {method!r}.")


def graph_marginals(nodes: ArrayLike, edges: ArrayLike, pairs: ArrayLike) -> Marginals:
    """Probabilities of labels and of pairs when labellings have probability ``~ exp(score)``.

    Exact, so for graphs of small treewidth. For another temperature, divide the scores by it.

    Parameters
    ----------
    nodes, edges, pairs
        As for `best_labelling`.

    Returns
    -------
    marginals : Marginals
        `nodes` of shape (n_nodes, n_labels), `pairs` of shape (n_edges, n_labels, n_labels).

    Examples
    --------
    >>> marginals = graph_marginals([[0.0, 0.0], [0.0, 0.0]], [(0, 1)], np.log([[3, 1], [1, 3]]))
    >>> marginals.nodes.round(3).tolist(), marginals.pairs.round(3).tolist()
    ([[0.5, 0.5], [0.5, 0.5]], [[[0.375, 0.125], [0.125, 0.375]]])
    """
    graph = _graph(nodes, edges, pairs)
    n, (n_nodes, width) = graph.n_labels, graph.nodes.shape
    elimination = graph.elimination()
    of_nodes, of_pairs = np.empty((n_nodes, width)), np.empty((len(graph.edges), n, width))
    tables, shares = np.empty((2, int(elimination.sizes[0])))
    log_partition = marginals_exact(
        elimination, graph.incidence, 0, n, graph.nodes, graph.pairs, of_nodes, of_pairs,
        np.zeros(n_nodes, dtype=np.int64), tables, shares, np.empty(width),
    )  # fmt: skip
    return Marginals(log_partition, of_nodes[:, :n], of_pairs[:, :, :n])


def _graph(nodes: Any, edges: Any, pairs: Any) -> _Graph:
    """Scores padded, and tables from either end."""
    nodes = np.asarray(nodes, dtype=np.float64)
    edges = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    (n_nodes, n), m = nodes.shape, len(edges)
    tables = np.broadcast_to(np.asarray(pairs, dtype=np.float64), (m, n, n))
    width = padded(n)
    both = np.zeros((2 * m, n, width))
    both[::2, :, :n], both[1::2, :, :n] = tables, tables.transpose(0, 2, 1)
    wide = np.zeros((n_nodes, width))
    wide[:, :n] = nodes
    ends = np.array([0, n_nodes]), np.array([0, m])
    return _Graph(wide, both, edges, tables, make_incidence(*ends, edges, np.arange(m)))
