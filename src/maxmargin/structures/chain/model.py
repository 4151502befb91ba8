"""What a trained chain model answers: best labels, several, and marginals."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled
from maxmargin.compiled.rows import make_rows
from maxmargin.core.threads import Threads
from maxmargin.structures.chain.inference import (
    k_best,
    marginals2,
    marginals_along,
    viterbi2,
    viterbi_along,
)
from maxmargin.structures.chain.problem import (
    Layout,
    Sequences,
    edge_scores,
    edge_scratch,
    pair_scores,
    set_node_scores,
)

Floats = NDArray[np.float64]


IMPOSSIBLE = -1e200
"""Below every score of labels: pairs that do not fit together have twice that."""


class ChainModel:
    """A weight table and the searches over it.

    Parameters
    ----------
    table : ndarray of shape (n_rows, n_columns)
    layout : Layout
    """

    def __init__(self, table: Floats, layout: Layout) -> None:
        self.table, self.layout = table, layout

    def inference(
        self, sequences: Sequences, threads: Threads
    ) -> tuple[NDArray[np.uint16], Floats]:
        """Best labels of all positions, and the score of each sequence."""
        labels = np.empty(int(sequences.ends[-1]), dtype=np.uint16)
        scores = np.zeros(len(sequences.lengths))
        rows = make_rows(sequences.X, 0.0)
        length, width = sequences.longest, self.layout.n_columns
        shared = rows, sequences.ends, self.table, self.layout

        def infer(part: slice) -> None:
            where = part.start, part.stop, labels, scores, np.empty((length, width))
            if self.layout.triples >= 0:
                deep = np.empty((length, self.layout.n_labels, width))
                infer_best_second_order(*shared, *where, deep)
            else:
                edges = edge_scratch(length, self.layout)
                best = np.empty((length, width))
                infer_chains(*shared, sequences.tied_rows, *where, edges, best)

        threads.map(infer, threads.shares(len(scores)))
        return labels, scores

    def node_scores(self, sequences: Sequences) -> list[Floats]:
        """Scores of the labels at each position, transitions aside, one array a sequence."""
        rows = make_rows(sequences.X, 0.0)
        nodes = np.empty((int(sequences.ends[-1]), self.layout.n_columns))
        score_nodes(rows, sequences.ends, self.table, self.layout, nodes)
        return np.split(nodes, sequences.ends[1:-1])

    def marginals(self, sequences: Sequences, temperature: float) -> list[Floats]:
        """Probability of each label at each position, ``exp(score / temperature)`` normalised."""
        layout = self.layout
        n, width = layout.n_labels, layout.n_columns
        pairs = self._part(layout.transitions, n) / temperature
        found = []
        for i, scores in enumerate(self.node_scores(sequences)):
            length = len(scores)
            answer = np.zeros((length, width))
            between = np.empty((max(length - 1, 0), n, width))
            if length and layout.triples < 0:
                sums = np.empty((max(length - 1, 1), width))
                edges = pairs[None, :, :]
                if layout.tied >= 0 and length > 1:
                    edges = edges + self._tied_scores(sequences, i) / temperature
                marginals_along(scores / temperature, edges, n, answer, between, sums)
            elif length:
                triples = self._part(layout.triples, n * n) / temperature
                among = np.empty((max(length - 2, 0), n * n, width))
                deep = np.empty((max(length - 2, 1), n, width))
                marginals2(scores / temperature, pairs, triples, n, answer, between, among, deep)
            found.append(answer[:, :n])
        return found

    def k_best(self, sequences: Sequences, k: int) -> list[tuple[NDArray[np.uint16], Floats]]:
        """The k best labellings of each sequence, best first, and their scores."""
        layout = self.layout
        n = layout.n_labels
        pairs = self._part(layout.transitions, n)
        joined = self._joined_pairs() if layout.triples >= 0 else None
        found = []
        for i, scores in enumerate(self.node_scores(sequences)):
            if joined is not None and len(scores) > 1:
                # A chain of pairs of labels, each beginning with what the one before ends with.
                both = scores[1:, None, :n] + pairs[None, :, :n]
                both[0] += scores[0, :n, None]
                labels, totals = _top(both.reshape(-1, n * n), joined, n * n, k)
                labels = np.concatenate([labels[:, :1] // n, labels % n], axis=1)
                labels, totals = labels[totals > IMPOSSIBLE], totals[totals > IMPOSSIBLE]
            else:
                edges = pairs[None, :, :]
                if layout.tied >= 0 and len(scores) > 1:
                    edges = edges + self._tied_scores(sequences, i)
                labels, totals = _top(scores, edges, n, k)
            found.append((labels, totals))
        return found

    def _joined_pairs(self) -> Floats:
        """Scores of the second order as those of pairs of labels that follow each other."""
        n = self.layout.n_labels
        triples = self._part(self.layout.triples, n * n)[:, :n].reshape(n, n, n)
        joined = np.full((n, n, n, n), 2.0 * IMPOSSIBLE)
        middle = np.arange(n)
        joined[:, middle, middle, :] = triples
        return joined.reshape(1, n * n, n * n)

    def _tied_scores(self, sequences: Sequences, i: int) -> Any:
        """What features tied to pairs add to the transitions of one sequence, each position."""
        rows = sequences.tied[sequences.ends[i] + 1 : sequences.ends[i + 1]]
        weights = self.table[self.layout.tied :].reshape(rows.shape[1], -1)
        return (rows @ weights).reshape(rows.shape[0], self.layout.n_labels, -1)

    def _part(self, start: int, n_rows: int) -> Any:
        return self.table[start : start + n_rows]


def _top(nodes: Floats, edges: Floats, n: int, k: int) -> tuple[NDArray[np.uint16], Floats]:
    """Labels and scores of the k best labellings; of no positions there is one."""
    length, width = nodes.shape
    labels = np.empty((k, length), dtype=np.uint16)
    totals = np.zeros(k)
    count = 1
    if length:
        count = k_best(
            nodes, edges, n, k, labels, totals,
            np.empty((length + 1, k, width)), np.empty((length + 1, k, width), np.int32),
            np.empty(width), np.empty(width, np.int32),
        )  # fmt: skip
    return labels[:count], totals[:count]


@compiled
def score_nodes(rows, ends, table, layout, nodes):  # type: ignore[no-untyped-def]
    """Node scores of all sequences."""
    for i in range(len(ends) - 1):
        if ends[i + 1] > ends[i]:
            here = nodes[ends[i] : ends[i + 1]]
            set_node_scores(rows, ends[i], ends[i + 1], table, layout, here)


@compiled
def infer_chains(  # type: ignore[no-untyped-def]
    rows, ends, table, layout, tied, first, last, labels, scores, nodes, edges, best
):
    """Best labels of the sequences ``first..last-1``."""
    for i in range(first, last):
        start, stop = ends[i], ends[i + 1]
        if stop > start:
            set_node_scores(rows, start, stop, table, layout, nodes)
            along = edge_scores(tied, start, stop, table, layout, edges)
            out = labels[start:stop]
            scores[i] = viterbi_along(nodes[: stop - start], along, layout.n_labels, out, best)


@compiled
def infer_best_second_order(rows, ends, table, layout, first, last, labels, scores, nodes, best):  # type: ignore[no-untyped-def]
    """The same for chains of the second order."""
    triples = table[layout.triples : layout.triples + layout.n_labels * layout.n_labels]
    for i in range(first, last):
        start, stop = ends[i], ends[i + 1]
        if stop > start:
            set_node_scores(rows, start, stop, table, layout, nodes)
            pairs = pair_scores(table, layout)
            out = labels[start:stop]
            scores[i] = viterbi2(nodes[: stop - start], pairs, triples, layout.n_labels, out, best)
