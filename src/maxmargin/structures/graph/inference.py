"""Inference for one graph: exact (variable elimination), relaxed (TRW-S, with a bound), min-cut.

A labelling scores ``sum_v nodes[v, y_v] + sum_e table_e[y_first, y_second]``. `nodes` are
``(n_nodes, P)`` and `pairs` ``(2 * n_kinds, n_labels, P)``, float64 and finite, with
``P = simd.padded(n_labels)``. Edges of one *kind* share a table: ``pairs[2 * kind]`` has the labels
of the first node as rows, ``pairs[2 * kind + 1]`` is its transpose.
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
from maxmargin.compiled.exponentials import LEAST
from maxmargin.compiled.rows import padded
from maxmargin.compiled.simd import max_plus
from maxmargin.core.arrays import Floats
from maxmargin.core.cuts import starts_of
from maxmargin.structures.chain.inference import highest_label

Ints = NDArray[np.int64]


class Incidence(NamedTuple):
    """The edges at each node of many graphs.

    Node ``v`` of graph ``g`` is ``u = node_ends[g] + v``; its edges to smaller nodes stand at
    ``starts[u]:middles[u]``, those to larger ones at ``middles[u]:starts[u + 1]``. `neighbours` and
    `edges` count from 0 in each graph; ``pairs[tables[q]]`` has the labels of this node as rows,
    ``pairs[tables[q] ^ 1]`` as columns.
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
    n_edges = edge_ends[1:] - edge_ends[:-1]
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
def labelling_score(incidence, first, n_nodes, nodes, pairs, labels):  # type: ignore[no-untyped-def]
    """Score of a labelling of the graph whose node 0 has the number `first`."""
    total = 0.0
    for v in range(n_nodes):
        total += nodes[v, labels[v]]
        for q in range(incidence.starts[first + v], incidence.middles[first + v]):
            total += pairs[incidence.tables[q], labels[v], labels[incidence.neighbours[q]]]
    return total


@compiled
def find_cycles(node_ends, edge_ends, edges, above, is_forest):  # type: ignore[no-untyped-def]
    """Clear `is_forest` for graphs with a cycle: an edge between two nodes already connected.

    `above` leads from each node, at first itself, to the root of its tree.
    """
    for g in range(len(is_forest)):
        first = node_ends[g]
        for e in range(edge_ends[g], edge_ends[g + 1]):
            u, v = first + edges[e, 0], first + edges[e, 1]
            while above[u] != u:
                above[u] = above[above[u]]
                u = above[u]
            while above[v] != v:
                above[v] = above[above[v]]
                v = above[v]
            if u == v:
                is_forest[g] = False
                break
            above[u] = v


class TooWideError(ValueError):
    """Elimination would need too large tables; `width` is the scope at which it gave up."""

    def __init__(self, width: int) -> None:
        super().__init__(f"an elimination meets a scope of {width} nodes")
        self.width = width


class Elimination(NamedTuple):
    """Elimination orders of many graphs: junction trees whose cliques are a node with its scope.

    Place ``p`` eliminates node ``order[p]``, which leaves a table over its remaining neighbours,
    the scope ``scope[scope_starts[p]:scope_starts[p + 1]]``, the one eliminated next first. The
    table starts at ``table_at[p]``, the label of the first of the scope running fastest; tables of
    `children` are added to the scores of this node. `links` are its edges into the scope, as places
    in `Incidence`. Graph ``g`` needs ``sizes[g]`` entries; -1 if it is not to be eliminated.
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
    """Nodes in min-fill order, each with its scope; TooWideError above `limit` table entries.

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


def make_elimination(
    incidence: Incidence, edges: Ints, n_labels: int, limits: NDArray[np.float64]
) -> tuple[Elimination, dict[int, int]]:
    """Eliminations within each graph's limit of table entries; of others, the width reached."""
    known: dict[tuple[int, bytes, float], tuple[Ints, Ints, Ints] | int] = {}
    found: list[tuple[Ints, Ints, Ints]] = []
    given_up: dict[int, int] = {}
    n_nodes, none = incidence.node_ends[1:] - incidence.node_ends[:-1], np.zeros(0, dtype=np.int64)
    for g, limit in enumerate(limits.tolist()):
        own = edges[incidence.edge_ends[g] : incidence.edge_ends[g + 1]]
        key = int(n_nodes[g]), own.tobytes(), limit
        if key not in known:
            try:
                order = elimination_order(key[0], own.tolist(), n_labels, limit)
                known[key] = (
                    np.array([v for v, _ in order], dtype=np.int64),
                    np.array([len(scope) for _, scope in order], dtype=np.int64),
                    np.array([u for _, scope in order for u in scope], dtype=np.int64),
                )
            except TooWideError as error:
                known[key] = error.width
        one = known[key]
        if isinstance(one, int):
            given_up[g] = one
            one = np.zeros(n_nodes[g], dtype=np.int64), np.zeros(n_nodes[g], dtype=np.int64), none
        found.append(one)
    order_of_all, counts, scope = (
        np.concatenate([none, *(one[i] for one in found)]) for i in range(3)
    )
    tables = starts_of(n_labels**counts)
    first, end = tables[incidence.node_ends[:-1]], tables[incidence.node_ends[1:]]
    sizes = end - first
    sizes[list(given_up)] = -1

    scope_starts, eliminated = starts_of(counts), np.repeat(sizes >= 0, n_nodes)
    offsets, n_places = np.repeat(incidence.node_ends[:-1], n_nodes), len(counts)
    place = np.full(n_places, -1, dtype=np.int64)  # of each node
    place[(offsets + order_of_all)[eliminated]] = np.flatnonzero(eliminated)

    # Links: edges to nodes that are eliminated later.
    at = np.repeat(np.arange(n_places), incidence.starts[1:] - incidence.starts[:-1])
    other = offsets[at] + incidence.neighbours
    links = np.flatnonzero(place[at] < place[other])
    links = links[np.argsort(place[at[links]], kind="stable")]
    link_starts = starts_of(np.bincount(place[at[links]], minlength=n_places))

    # A table goes to the node of its scope that is eliminated next.
    passing = np.flatnonzero(counts > 0)
    parents = place[offsets[passing] + scope[scope_starts[passing]]]
    children = passing[np.argsort(parents, kind="stable")]
    child_starts = starts_of(np.bincount(parents, minlength=n_places))
    elimination = Elimination(
        order_of_all, scope_starts, scope, tables[:-1] - np.repeat(first, n_nodes),
        link_starts, links, child_starts, children, sizes,
    )  # fmt: skip
    return elimination, given_up


@inlined
def table_place(elimination, p, n_labels, labels):  # type: ignore[no-untyped-def]
    """Index into the table of place `p` for these labels of its scope, the first label being 0."""
    at = elimination.table_at[p]
    power = n_labels
    for i in range(elimination.scope_starts[p] + 1, elimination.scope_starts[p + 1]):
        at += power * labels[elimination.scope[i]]
        power *= n_labels
    return at


@inlined
def set_own_row(elimination, incidence, p, n_labels, nodes, pairs, labels, row):  # type: ignore[no-untyped-def]
    """Scores of the node in place `p` with its links, given the labels of its scope."""
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
    """`set_own_row` plus the tables of the children."""
    set_own_row(elimination, incidence, p, n_labels, nodes, pairs, labels, row)
    for i in range(elimination.child_starts[p], elimination.child_starts[p + 1]):
        at = table_place(elimination, elimination.children[i], n_labels, labels)
        for b in range(n_labels):
            row[b] += tables[at + b]


@inlined
def open_scope(elimination, p, n_labels, labels):  # type: ignore[no-untyped-def]
    """Set all labels of the scope to 0; returns where the table of place `p` begins and ends."""
    size = 1
    for i in range(elimination.scope_starts[p], elimination.scope_starts[p + 1]):
        labels[elimination.scope[i]] = 0
        size *= n_labels
    return elimination.table_at[p], elimination.table_at[p] + size


@inlined
def next_labels(elimination, p, n_labels, labels):  # type: ignore[no-untyped-def]
    """Go on to the next labelling of the scope, cyclically."""
    for i in range(elimination.scope_starts[p], elimination.scope_starts[p + 1]):
        u = elimination.scope[i]
        labels[u] += 1
        if labels[u] < n_labels:
            break
        labels[u] = 0


@compiled
def best_exact(elimination, incidence, g, n_labels, nodes, pairs, labels, tables, row):  # type: ignore[no-untyped-def]
    """MAP inference by elimination: set `labels` ``(n_nodes,)``, return the score.

    Takes ``n_labels ** (len(scope) + 1)`` steps a node; rows are computed again on the way back, as
    no back pointers are kept. Scratch: `tables` ``(sizes[g],)``, `row` ``(P,)``.
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


@compiled
def reweight_cliques(  # type: ignore[no-untyped-def]
    elimination, incidence, g, n_labels, nodes, pairs, cliques, labels, tables, shares, row
):
    """Multiply the probability of each labelling by ``exp(score)`` and normalise, in place.

    Returns the logarithm of what they added up to.

    elimination, incidence, g, n_labels, nodes, pairs : the graph and its scores
    cliques ``(sizes[g] * n_labels,)`` : clique marginals, in any scale; changed
    labels int64 ``(n_nodes,)``, tables and shares ``(sizes[g],)``, row ``(P,)`` : scratch
    """
    start, stop = incidence.node_ends[g], incidence.node_ends[g + 1]
    log_sum = 0.0
    # On the way there, a clique becomes what its node's labels have given those of the scope. The
    # label of the highest score counts at least LEAST, next to which it does not matter what
    # rounds to zero.
    for p in range(start, stop):
        first, last = open_scope(elimination, p, n_labels, labels)
        for at in range(first, last):
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
            next_labels(elimination, p, n_labels, labels)
        if elimination.scope_starts[p] == elimination.scope_starts[p + 1]:
            log_sum += tables[first]
            shares[first] = 1.0
    # And back, it is multiplied by the probability of the scope's labels, which its children have.
    for p in range(stop - 1, start - 1, -1):
        first, last = open_scope(elimination, p, n_labels, labels)
        for at in range(first, last):
            own = cliques[at * n_labels : (at + 1) * n_labels]
            for b in range(n_labels):
                own[b] *= shares[at]
            for i in range(elimination.child_starts[p], elimination.child_starts[p + 1]):
                to = table_place(elimination, elimination.children[i], n_labels, labels)
                for b in range(n_labels):
                    shares[to + b] += own[b]
            next_labels(elimination, p, n_labels, labels)
    return log_sum


@compiled
def add_clique_changes(  # type: ignore[no-untyped-def]
    elimination, incidence, g, n_labels, old, new, factor, of_nodes, of_pairs, labels, row
):
    """Add ``factor * (old - new)`` of the marginals of nodes, and of edges by their kind.

    elimination, incidence, g, n_labels : the graph
    old, new ``(sizes[g] * n_labels,)``, factor : clique marginals
    of_nodes ``(n_nodes, P)``, of_pairs ``(n_kinds, n_labels, P)`` : added to
    labels int64 ``(n_nodes,)``, row ``(P,)`` : scratch
    """
    for p in range(incidence.node_ends[g], incidence.node_ends[g + 1]):
        v = elimination.order[p]
        first, last = open_scope(elimination, p, n_labels, labels)
        for at in range(first, last):
            for b in range(n_labels):
                i = at * n_labels + b
                row[b] = factor * (old[i] - new[i])
                of_nodes[v, b] += row[b]
            for i in range(elimination.link_starts[p], elimination.link_starts[p + 1]):
                q = elimination.links[i]
                beside = labels[incidence.neighbours[q]]
                joint = of_pairs[incidence.tables[q] // 2]
                if incidence.tables[q] % 2 == 0:
                    for b in range(n_labels):
                        joint[b, beside] += row[b]
                else:
                    for b in range(n_labels):
                        joint[beside, b] += row[b]
            next_labels(elimination, p, n_labels, labels)


class Marginals(NamedTuple):
    """Log-partition function, and marginals of labels and of pairs of labels."""

    log_partition: float
    nodes: Floats
    pairs: Floats


def marginals_exact(
    elimination: Elimination, incidence: Incidence, g: int, nodes: Floats, pairs: Floats
) -> Marginals:
    """Marginals of ``p(y) ~ exp(score)`` of graph `g`, those of pairs summed by kind of edge."""
    (n_nodes, width), n_labels, size = nodes.shape, pairs.shape[1], int(elimination.sizes[g])
    where = elimination, incidence, g, n_labels
    labels, row = np.zeros(n_nodes, dtype=np.int64), np.empty(width)
    cliques, tables, shares = np.ones(size * n_labels), *np.empty((2, size))
    log_mean = reweight_cliques(*where, nodes, pairs, cliques, labels, tables, shares, row)
    of_nodes, of_pairs = np.zeros(nodes.shape), np.zeros((len(pairs) // 2, n_labels, width))
    nothing = np.zeros(len(cliques))
    add_clique_changes(*where, cliques, nothing, 1.0, of_nodes, of_pairs, labels, row)
    log_partition = log_mean + n_nodes * np.log(n_labels)
    return Marginals(log_partition, of_nodes[:, :n_labels], of_pairs[:, :, :n_labels])


ROUNDING = 1e-12
"""A bound this close above a score, relative to its size, is the score."""


class Effort(NamedTuple):
    """When relaxed inference stops: after `passes`, forward and backward, at most.

    Or once ``bound - score <= enough * (bound - floor)``, in training the hinge; or once the bound
    falls by less than the fraction `progress` of ``bound - score``.
    """

    passes: int = 100
    enough: float = 0.0
    progress: float = 0.01


class RelaxationScratch(NamedTuple):
    """`labels` int64 ``(n_nodes,)``; the others ``(P,)``, `zeros` all zero."""

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
    """One pass of TRW-S (Kolmogorov 2006); returns the bound and the score of a labelling.

    Any messages ``m_ev`` give an upper bound, whose least value is that of the linear relaxation:

        sum_v max_x (nodes[v, x] + sum_e m_ev[x]) + sum_e max_xy (table_e[x, y] - m_eu[x] - m_ev[y])

    A node passes its belief in equal parts to its edges ahead, so that after a pass the second sum
    is zero; only the message to the later node is kept. Alternate passes never raise the bound. In
    the labelling, ``scratch.labels``, nodes are best given those before and the messages from
    ahead.
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
    """ICM: give each node in turn its best label given all others; returns the gain in score."""
    gain = 0.0
    for _ in range(sweeps):
        before = gain
        for v in range(n_nodes):
            for b in range(n_labels):
                row[b] = nodes[v, b]
            for q in range(incidence.starts[first + v], incidence.starts[first + v + 1]):
                beside = pairs[incidence.tables[q] ^ 1, labels[incidence.neighbours[q]]]
                for b in range(n_labels):
                    row[b] += beside[b]
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
    """TRW-S on graph `g` until `effort` is spent; returns the score of the labelling and the bound.

    incidence, g, n_labels, nodes, pairs : the graph and its scores
    floor, best ``(n_nodes,)`` : score to beat, or -inf, and its labelling; replaced by the best
    effort, scratch : `Effort` and `RelaxationScratch`
    messages ``(n_edges, P)`` : where to start from, anything finite; left for the next call
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
"""Rounding error allowed in `submodularity`, relative to the scores of the edge."""

LARGEST = 2**30
"""Bound on the sum of all capacities: flows are 32-bit integers."""


def submodularity(tables: Floats) -> Floats:
    """``t[0, 0] + t[1, 1] - t[0, 1] - t[1, 0]``: not negative if an edge is submodular."""
    like: Floats = tables[..., 0, 0] + tables[..., 1, 1] - tables[..., 0, 1] - tables[..., 1, 0]
    return like


def all_submodular(tables: Floats) -> bool:
    """Whether all edges are submodular, up to rounding."""
    sizes = np.abs(tables[..., :2]).sum(axis=(-2, -1))
    return bool((submodularity(tables) >= -SUBMODULAR_ROUNDING * sizes).all())


class Labelling(NamedTuple):
    """Labels of the nodes, their score, and an upper bound on the score of any labelling."""

    labels: Ints
    score: float
    bound: float


def best_cut(nodes: Floats, edges: Ints, tables: Floats) -> Labelling:
    """MAP labels of a graph with two labels by minimum cut.

    Tables ``(n_edges, 2, >= 2)`` must be submodular. Capacities are rounded to integers, but the
    bound is not: the flow along the edges is a set of messages as in `message_pass`.
    """
    own = np.arange(len(nodes))
    n_nodes, source, sink = len(own), len(own), len(own) + 1
    first, second = edges.T
    weight = np.maximum(submodularity(tables), 0.0)
    # In favour of label 1: what is left of an edge is 0, but for -weight where they are (0, 1).
    favour = nodes[:, 1] - nodes[:, 0]
    favour += np.bincount(first, tables[:, 1, 0] - tables[:, 0, 0], n_nodes)
    favour += np.bincount(second, tables[:, 1, 1] - tables[:, 1, 0], n_nodes)
    constant = float(nodes[:, 0].sum() + tables[:, 0, 0].sum())

    # From the source (label 0) through the nodes to the sink (label 1).
    tails = np.concatenate([first, np.where(favour > 0.0, own, source)])
    heads = np.concatenate([second, np.where(favour > 0.0, sink, own)])
    total = float(np.abs(favour).sum() + weight.sum())
    scale = 2.0 ** np.floor(np.log2(LARGEST / total)) if total > 0.0 else 1.0
    capacities = np.round(np.concatenate([weight * scale, np.abs(favour * scale)]))
    network = sp.csr_array(
        (capacities.astype(np.int32), (tails, heads)), shape=(n_nodes + 2, n_nodes + 2)
    )
    flow = maximum_flow(network, source, sink, method="dinic").flow

    residual = network - flow
    residual.data[residual.data < 0] = 0
    residual.eliminate_zeros()
    labels = np.ones(n_nodes + 2, dtype=np.int64)
    labels[breadth_first_order(residual, source, return_predecessors=False)] = 0
    labels = labels[:n_nodes]

    # What flows along an edge from first to second speaks for 1 at the first and against it at the
    # second.
    sent = np.zeros(len(edges))
    if len(edges):
        sent += np.asarray(sp.csr_matrix(flow)[first, second]).ravel() / scale
    sent = np.clip(sent, 0.0, weight)
    favour += np.bincount(first, sent, n_nodes) - np.bincount(second, sent, n_nodes)
    bound = constant + float(np.maximum(favour, 0.0).sum())
    score = float(nodes[own, labels].sum())
    score += float(tables[np.arange(len(edges)), labels[first], labels[second]].sum())
    return Labelling(labels, score, max(bound, score))


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
    """MAP inference in one graph: the labelling with the highest score.

    The score is ``sum_v nodes[v, y_v] + sum_e pairs[e, y_first, y_second]``.

    Parameters
    ----------
    nodes : array-like of shape (n_nodes, n_labels)
        Unary potentials.
    edges : array-like of shape (n_edges, 2)
        The ends of each edge, without loops or repeats.
    pairs : array-like of shape (n_edges, n_labels, n_labels) or (n_labels, n_labels)
        Pairwise potentials, by the labels of the first and the second end; or one table for all.
    method : {"exact", "relaxed", "flow"}
        By elimination, in ``n_labels ** (treewidth + 1)`` steps a node; by a relaxation, whose
        bound may exceed the score; or by a maximum flow, which is exact and needs two labels and
        submodular potentials.

    Returns
    -------
    Labelling
        `labels` ``(n_nodes,)``, their `score`, and an upper `bound` of all scores.

    See Also
    --------
    graph_marginals : Marginal probabilities instead of the maximum.

    Examples
    --------
    Three nodes in a ring, each to differ from the other two, which the relaxation deems possible:

    >>> ring, pairs = [(0, 1), (1, 2), (2, 0)], [[0.0, 1.0], [1.0, 0.0]]
    >>> nodes = [[0.5, 0.0], [0.0, 0.125], [0.0, 0.25]]
    >>> best_labelling(nodes, ring, pairs)
    Labelling(labels=array([0, 1, 1]), score=2.875, bound=2.875)
    >>> best_labelling(nodes, ring, pairs, method="relaxed").bound > 3.0
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
        return best_cut(graph.nodes, graph.edges, graph.tables)
    if method == "relaxed":
        messages = np.zeros((len(graph.edges), width))
        scratch = relaxation_scratch(n_nodes, width)
        found = relax(graph.incidence, *shared, -np.inf, Effort(), messages, labels, scratch)
        return Labelling(labels, *found)
    raise ValueError(f"method must be 'exact', 'relaxed' or 'flow', but is {method!r}.")


def graph_marginals(nodes: ArrayLike, edges: ArrayLike, pairs: ArrayLike) -> Marginals:
    """Exact marginal probabilities under ``p(y) ~ exp(score)``, by elimination.

    Parameters
    ----------
    nodes : array-like of shape (n_nodes, n_labels)
        Unary potentials.
    edges : array-like of shape (n_edges, 2)
        The ends of each edge, without loops or repeats.
    pairs : array-like of shape (n_edges, n_labels, n_labels) or (n_labels, n_labels)
        Pairwise potentials, by the labels of the first and the second end; or one table for all.

    Returns
    -------
    Marginals
        Those of `nodes` ``(n_nodes, n_labels)`` and `pairs` ``(n_edges, n_labels, n_labels)``, and
        the logarithm of the partition function.

    See Also
    --------
    best_labelling : The labelling with the highest score.

    Examples
    --------
    >>> found = graph_marginals([[0.0, 0.0], [0.0, 0.0]], [(0, 1)], [[1.0, 0.0], [0.0, 1.0]])
    >>> found.nodes[0]
    array([0.5, 0.5])
    """
    graph = _graph(nodes, edges, pairs)
    return marginals_exact(graph.elimination(), graph.incidence, 0, graph.nodes, graph.pairs)


def _graph(nodes: Any, edges: Any, pairs: Any) -> _Graph:
    """Padded scores, each table with its transpose."""
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
