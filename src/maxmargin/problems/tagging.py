"""What a trained chain model answers: best labels, several, and marginals."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxmargin.dual.compiled import compiled
from maxmargin.dual.rows import make_rows
from maxmargin.engines.threads import Threads
from maxmargin.inference.chains import marginals2, marginals_along, top, viterbi2, viterbi_along
from maxmargin.problems.chains import (
    Layout,
    Sequences,
    edge_scores,
    edge_scratch,
    pair_scores,
    set_node_scores,
    shares,
)

Floats = NDArray[np.float64]


class ChainModel:
    """A weight table and the searches over it.

    Parameters
    ----------
    table : ndarray of shape (n_rows, n_columns)
    layout : Layout
    """

    def __init__(self, table: Floats, layout: Layout) -> None:
        self.table, self.layout = table, layout

    def decode(self, sequences: Sequences, threads: Threads) -> tuple[NDArray[np.uint16], Floats]:
        """Best labels of all positions, and the score of each sequence."""
        labels = np.empty(int(sequences.ends[-1]), dtype=np.uint16)
        scores = np.zeros(len(sequences.lengths))
        rows = make_rows(sequences.X, 0.0)
        length, width = sequences.longest, self.layout.n_columns
        shared = rows, sequences.ends, self.table, self.layout

        def search(part: slice) -> None:
            where = part.start, part.stop, labels, scores, np.empty((length, width))
            if self.layout.triples >= 0:
                deep = np.empty((length, self.layout.n_labels, width))
                decode_second_order(*shared, *where, deep)
            else:
                edges = edge_scratch(length, self.layout)
                best = np.empty((length, width))
                decode_chains(*shared, sequences.tied_rows, *where, edges, best)

        threads.map(search, shares(len(scores), threads.n_threads))
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

    def top(self, sequences: Sequences, k: int) -> list[tuple[NDArray[np.uint16], Floats]]:
        """The k best labellings of each sequence, best first, and their scores."""
        n, width = self.layout.n_labels, self.layout.n_columns
        pairs = self._part(self.layout.transitions, n)
        found = []
        for scores in self.node_scores(sequences):
            length = len(scores)
            labels = np.empty((k, length), dtype=np.uint16)
            totals = np.zeros(k)
            count = 1
            if length:
                count = top(
                    scores, pairs, n, k, labels, totals,
                    np.empty((length + 1, k, width)), np.empty((length + 1, k, width), np.int32),
                    np.empty(width), np.empty(width, np.int32),
                )  # fmt: skip
            found.append((labels[:count], totals[:count]))
        return found

    def _tied_scores(self, sequences: Sequences, i: int) -> Any:
        """What features tied to pairs add to the transitions of one sequence, each position."""
        rows = sequences.tied[sequences.ends[i] + 1 : sequences.ends[i + 1]]
        weights = self.table[self.layout.tied :].reshape(rows.shape[1], -1)
        return (rows @ weights).reshape(rows.shape[0], self.layout.n_labels, -1)

    def _part(self, start: int, n_rows: int) -> Any:
        return self.table[start : start + n_rows]


@compiled
def score_nodes(rows, ends, table, layout, nodes):  # type: ignore[no-untyped-def]
    """Node scores of all sequences."""
    for i in range(len(ends) - 1):
        if ends[i + 1] > ends[i]:
            here = nodes[ends[i] : ends[i + 1]]
            set_node_scores(rows, ends[i], ends[i + 1], table, layout, here)


@compiled
def decode_chains(  # type: ignore[no-untyped-def]
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
def decode_second_order(rows, ends, table, layout, first, last, labels, scores, nodes, best):  # type: ignore[no-untyped-def]
    """The same for chains of the second order."""
    triples = table[layout.triples : layout.triples + layout.n_labels * layout.n_labels]
    for i in range(first, last):
        start, stop = ends[i], ends[i + 1]
        if stop > start:
            set_node_scores(rows, start, stop, table, layout, nodes)
            pairs = pair_scores(table, layout)
            out = labels[start:stop]
            scores[i] = viterbi2(nodes[: stop - start], pairs, triples, layout.n_labels, out, best)
