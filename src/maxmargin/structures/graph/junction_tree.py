"""Exact inference by elimination, and graphs as the compiled functions walk them.

Nodes of a graph are numbered from 0. A labelling ``y`` of a graph scores

    sum_v nodes[v, y_v] + sum_e table_e[y_first, y_second]

Edges with the same scores share a table, their *kind*. Every table is there twice: ``pairs[2 *
kind]`` has the labels of the edge's first node as rows, ``pairs[2 * kind + 1]`` those of the
second, so that from either end the labels of the other stand side by side. Nodes are ``(n_nodes,
P)`` and pairs ``(2 * n_kinds, n_labels, P)``, float64 and finite, with ``P =
simd.padded(n_labels)``.

Exact inference, for graphs that are trees or nearly, eliminates one node after the other. The
elimination of a node replaces it by a table over its neighbours, its *scope*, which are
neighbours of each other from then on. For every labelling of the scope the table has the best score
(or the logarithm of the sum of exponentials) of the nodes eliminated so far. That is a walk over a
junction tree whose cliques are the scopes with their nodes; it takes ``n_labels ** (len(scope) +
1)`` steps for each. The next node is always one that makes the fewest new neighbours (min-fill), so
that trees have scopes of one node; the largest scope is the treewidth, or close.

A table keeps no pointers: on the way back the row of the node is computed once more.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.structures.chain.inference import highest_label

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

    Raises
    ------
    TooWideError
        If the tables have more than `limit` entries together.

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
    order = _joined([plan.order for plan in plans])
    counts = _joined([plan.counts for plan in plans])
    scope = _joined([plan.scope for plan in plans])
    sizes = np.array([plan.size for plan in plans], dtype=np.int64)
    scope_starts = _starts(counts)
    offsets = np.repeat(incidence.node_ends[:-1], np.diff(incidence.node_ends))
    n_places = len(order)
    eliminated = np.repeat(sizes >= 0, np.diff(incidence.node_ends))

    place = np.full(n_places, -1, dtype=np.int64)  # of each node
    place[(offsets + order)[eliminated]] = np.flatnonzero(eliminated)

    # Links: edges to nodes that are eliminated later.
    own = np.repeat(np.arange(n_places), np.diff(incidence.starts))
    other = offsets[own] + incidence.neighbours
    links = np.flatnonzero(place[own] < place[other])
    by_place = np.argsort(place[own[links]], kind="stable")
    links = links[by_place]
    link_starts = _starts(np.bincount(place[own[links]], minlength=n_places))

    # A table goes to the node of its scope that is eliminated next.
    passing = np.flatnonzero(counts > 0)
    parents = place[offsets[passing] + scope[scope_starts[passing]]]
    children = passing[np.argsort(parents, kind="stable")]
    child_starts = _starts(np.bincount(parents, minlength=n_places))
    return Elimination(
        order, scope_starts, scope, _joined([plan.table_at for plan in plans]),
        link_starts, links, child_starts, children, sizes,
    )  # fmt: skip


def _joined(parts: list[Ints]) -> Ints:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _starts(counts: Ints) -> Ints:
    starts = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts


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
def first_labels(elimination, p, labels):  # type: ignore[no-untyped-def]
    """All labels of the scope 0."""
    for i in range(elimination.scope_starts[p], elimination.scope_starts[p + 1]):
        labels[elimination.scope[i]] = 0


@inlined
def next_labels(elimination, p, n_labels, labels):  # type: ignore[no-untyped-def]
    """Count the labels of the scope one up; returns whether there are more."""
    more = False
    for i in range(elimination.scope_starts[p], elimination.scope_starts[p + 1]):
        u = elimination.scope[i]
        labels[u] += 1
        if labels[u] < n_labels:
            more = True
            break
        labels[u] = 0
    return more


@compiled
def best_exact(elimination, incidence, g, n_labels, nodes, pairs, labels, tables, row):  # type: ignore[no-untyped-def]
    """Set `labels` to the best labelling of graph `g` and return its score.

    Scratch: `tables` float64 ``(sizes[g],)``, `row` float64 ``(P,)``.
    """
    start, stop = incidence.node_ends[g], incidence.node_ends[g + 1]
    for p in range(start, stop):
        first_labels(elimination, p, labels)
        at = elimination.table_at[p]
        more = True
        while more:
            set_row(elimination, incidence, p, n_labels, nodes, pairs, labels, tables, row)
            highest = row[0]
            for b in range(1, n_labels):
                highest = max(highest, row[b])
            tables[at] = highest
            at += 1
            more = next_labels(elimination, p, n_labels, labels)
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
        first_labels(elimination, p, labels)
        at = elimination.table_at[p]
        more = True
        while more:
            set_row(elimination, incidence, p, n_labels, nodes, pairs, labels, tables, row)
            highest = row[0]
            for b in range(1, n_labels):
                highest = max(highest, row[b])
            total = 0.0
            for b in range(n_labels):
                total += np.exp(row[b] - highest)
            tables[at] = highest + np.log(total)
            shares[at] = 0.0
            at += 1
            more = next_labels(elimination, p, n_labels, labels)
        if elimination.scope_starts[p] == elimination.scope_starts[p + 1]:
            log_partition += tables[at - 1]
            shares[at - 1] = 1.0

    # Back: the probability of a scope's labels, shared out to the labels of its node. What a clique
    # knows of its children's scopes is theirs.
    for p in range(stop - 1, start - 1, -1):
        first_labels(elimination, p, labels)
        at = elimination.table_at[p]
        more = True
        while more:
            set_row(elimination, incidence, p, n_labels, nodes, pairs, labels, tables, row)
            for b in range(n_labels):
                row[b] = shares[at] * np.exp(row[b] - tables[at])
            add_row(
                elimination, incidence, p, n_labels, labels, row,
                incidence.edges, node_marginals, pair_marginals,
            )  # fmt: skip
            share_out(elimination, p, n_labels, labels, row, shares)
            at += 1
            more = next_labels(elimination, p, n_labels, labels)
    return log_partition
