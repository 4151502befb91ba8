"""The cliques of labelled graphs and the probabilities of their labels, in plain numpy.

This is how dual points are valued and checked. It knows of an elimination only which node comes in
which place and with which scope; it shares no code with the searches.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.checks import check_indices, check_offsets, check_shape
from maxmargin.core.registry import registered
from maxmargin.dual.marginal import CHUNK, starts_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@registered("CliqueTree", check="check")
@dataclass(frozen=True, eq=False)
class CliqueTree:
    """Cliques of graphs that are eliminated node by node: each node with its scope.

    A vector of `n_numbers` numbers has a probability for all labellings of each clique, one clique
    after the other: the label of the node runs fastest, then that of the first of its scope.

    Parameters
    ----------
    n_labels : int
    nodes : ndarray of int64, shape (n_nodes_of_all,)
        The node in each place, counted over all graphs.
    scope_starts : ndarray of int64, shape (n_nodes_of_all + 1,)
    scope : ndarray of int64
        Places of the nodes in the scope of each place, all later than it, in rising order.
    """

    n_labels: int
    nodes: Ints
    scope_starts: Ints
    scope: Ints

    def check(self) -> None:
        """Raise ValueError if a scope names places that there are not."""
        check_offsets("scope_starts", self.scope_starts, len(self.scope))
        check_shape("scope_starts", self.scope_starts, len(self.nodes) + 1)
        check_indices("scope", self.scope, len(self.nodes))
        check_indices("nodes", self.nodes, len(self.nodes))

    @cached_property
    def widths(self) -> Ints:
        """How many nodes each scope has."""
        return np.diff(self.scope_starts)

    @cached_property
    def starts(self) -> Ints:
        """Where the numbers of each clique start, and the last one's end."""
        return starts_of(self.n_labels ** (self.widths + 1))

    @cached_property
    def places(self) -> Ints:
        """The place of each node."""
        places = np.empty_like(self.nodes)
        places[self.nodes] = np.arange(len(self.nodes))
        return places

    @property
    def n_numbers(self) -> int:
        """Numbers of all cliques."""
        return int(self.starts[-1])

    def is_like(self, other: "CliqueTree") -> bool:
        """Whether numbers of one are numbers of the other."""
        return self.n_labels == other.n_labels and all(
            np.array_equal(own, others)
            for own, others in [
                (self.nodes, other.nodes),
                (self.scope_starts, other.scope_starts),
                (self.scope, other.scope),
            ]
        )

    def even(self) -> Floats:
        """All labellings alike."""
        sizes = np.diff(self.starts)
        return np.repeat(1.0 / sizes, sizes)

    def places_of(self, labels: NDArray[np.integer]) -> Ints:
        """Where each clique has its number for these labels of the nodes."""
        of_place = labels.astype(np.int64)[self.nodes]
        at = self.starts[:-1] + of_place
        powers = self.n_labels ** (1 + np.arange(len(self.scope)) - self.scope_starts[self._owners])
        np.add.at(at, self._owners, powers * of_place[self.scope])
        return at

    def node_marginals(self, mass: Floats) -> Floats:
        """Probabilities of labels, ``(n_nodes, n_labels)``."""
        marginals = np.empty((len(self.nodes), self.n_labels))
        for some in _alike(self.widths, self.n_labels ** (self.widths + 1)):
            tables = self._tables(mass, some)
            marginals[self.nodes[some]] = tables.reshape(len(some), -1, self.n_labels).sum(axis=1)
        return marginals

    def covers(self, edges: Ints) -> bool:
        """Whether the nodes of each edge, counted over all graphs, are together in a clique."""
        return bool((self._edge_places(edges)[1] >= 0).all())

    def edge_marginals(self, mass: Floats, edges: Ints) -> Floats:
        """Probabilities of pairs of labels, ``(n_edges, n_labels, n_labels)``.

        The labels of the edge's first node are the rows. The edges must be covered.
        """
        n = self.n_labels
        marginals = np.empty((len(edges), n, n))
        own, position = self._edge_places(edges)
        width = self.widths[own]
        for some in _alike(width * (1 + width.max(initial=0)) + position, n ** (width + 1)):
            k, i = int(width[some[0]]), int(position[some[0]])
            tables = self._tables(mass, own[some]).reshape(-1, n ** (k - 1 - i), n, n**i, n)
            pairs = tables.sum(axis=(1, 3))
            swapped = self.nodes[own[some]] == edges[some, 0]
            marginals[some] = np.where(swapped[:, None, None], pairs.transpose(0, 2, 1), pairs)
        return marginals

    def is_distribution(self, mass: Floats, tolerance: float) -> bool:
        """Whether these are the probabilities of cliques under a distribution over labellings.

        They are if none is negative, cliques without a scope sum to one, and every other agrees on
        the labels of its scope with a later clique, which has all of it: from the last place to
        the first, the labels of a node can then be drawn given those of its scope, and all cliques
        come out with these probabilities.
        """
        if mass.shape != (self.n_numbers,) or not (mass >= 0.0).all() or not self._is_tree:
            return False
        roots = self.starts[:-1][self.widths == 0]
        totals = mass[roots[:, None] + np.arange(self.n_labels)].sum(axis=1)
        off = np.abs(totals - 1.0).max(initial=0.0)
        return bool(max(off, self._disagreement(mass)) <= tolerance)

    def _disagreement(self, mass: Floats) -> float:
        """By how much cliques differ at most in the labels that they share with the next."""
        n, off = self.n_labels, 0.0
        below = np.flatnonzero(self.widths)
        above = self.scope[self.scope_starts[below]]
        width, shared = self.widths[above], self._shared[below]
        sizes = n ** (np.maximum(width, self.widths[below]) + 1)
        for some in _alike(width + (1 + width.max(initial=0)) * shared, sizes):
            k, kept = int(width[some[0]]), int(shared[some[0]])
            # Axes of a clique: its scope from the last to the first, then the node itself.
            dropped = tuple(k - i for i in range(k) if not kept >> i & 1)
            tables = self._tables(mass, above[some]).reshape(-1, *[n] * (k + 1))
            theirs = tables.sum(axis=dropped).reshape(len(some), -1)
            own = self._tables(mass, below[some]).reshape(*theirs.shape, n).sum(axis=2)
            off = max(off, float(np.abs(own - theirs).max()))
        return off

    @cached_property
    def _owners(self) -> Ints:
        """The place that each entry of `scope` belongs to."""
        return np.repeat(np.arange(len(self.nodes)), self.widths)

    @cached_property
    def _shared(self) -> Ints:
        """Which of the next clique's scope each scope has, besides its node: bits; -1 for others.

        The next clique is that of the scope's first node.
        """
        rest = np.flatnonzero(np.arange(len(self.scope)) > self.scope_starts[self._owners])
        owners = self._owners[rest]
        positions = self._positions(self.scope[self.scope_starts[owners]], self.scope[rest])
        shared = np.zeros(len(self.nodes), dtype=np.int64)
        np.add.at(shared, owners, 1 << np.maximum(positions, 0))
        shared[owners[positions < 0]] = -1
        return shared

    @cached_property
    def _is_tree(self) -> bool:
        """Whether scopes are in order, and each is part of the clique of its first node."""
        keys = self._keys
        rising = (np.diff(keys) > 0).all() and (self.scope > self._owners).all()
        return bool(rising and (self._shared >= 0).all())

    @cached_property
    def _keys(self) -> Ints:
        """A number for each place with a place in its scope, in rising order."""
        return self._owners * len(self.nodes) + self.scope

    def _positions(self, owners: Ints, members: Ints) -> Ints:
        """Where in the scopes of some places others are; -1 if not there."""
        wanted = owners * len(self.nodes) + members
        at = np.searchsorted(self._keys, wanted)
        there = np.append(self._keys, -1)[at] == wanted
        return np.where(there, at - self.scope_starts[owners], -1)

    def _edge_places(self, edges: Ints) -> tuple[Ints, Ints]:
        """The earlier place of each edge, and where in its scope the later one is; -1 if not."""
        ends = np.sort(self.places[edges], axis=1)
        return ends[:, 0], self._positions(ends[:, 0], ends[:, 1])

    def _tables(self, mass: Floats, places: Ints) -> Floats:
        """Numbers of some cliques of the same width, one row each."""
        size = self.n_labels ** (int(self.widths[places[0]]) + 1)
        tables: Floats = mass[self.starts[places][:, None] + np.arange(size)]
        return tables


def _alike(kinds: Ints, sizes: Ints) -> Iterator[Ints]:
    """Places of things of the same kind, so many at a time as may be copied.

    `sizes` is how many numbers each has; those of one kind have equally many, or less.
    """
    order = np.argsort(kinds, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(kinds[order])) + 1):
        if len(group):
            count = max(1, CHUNK // int(sizes[group].max()))
            yield from (group[i : i + count] for i in range(0, len(group), count))
