"""Dependency trees: training sets over arcs whose features are hashed or given.

A tree is the head of each word, counted from 1, with 0 for the root. An arc into a word is one
number, ``head * n_labels + label``, and without labels just the head.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from maxmargin.dual.planes import Planes
from maxmargin.engines.threads import Threads
from maxmargin.problems.dependency_trees import Structure, check_trees
from maxmargin.problems.structured import TrainingSet

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
Arcs = NDArray[np.uint32]


class ArcFeatures(Protocol):
    """Sentences with features of their arcs: `HashedArcs` or `GivenArcs`."""

    ends: Numbers
    lengths: Numbers
    n_features: int
    n_labels: int

    @property
    def search_work(self) -> float: ...

    def search(
        self,
        weights: Floats,
        truth: Arcs | None,
        structure: tuple[bool, bool],
        blocks: Numbers,
        starts: Numbers,
        found: Arcs,
        totals: Floats,
    ) -> None: ...

    def measure(self, truth: Arcs, blocks: Numbers, starts: Numbers, found: Arcs) -> Numbers: ...

    def fill(
        self,
        truth: Arcs,
        blocks: Numbers,
        starts: Numbers,
        found: Arcs,
        entries: Numbers,
        columns: NDArray[np.uint32],
        values: Floats,
    ) -> None: ...

    def arc_scores(self, weights: Floats, i: int, temperature: float = 0.0) -> Floats: ...


def parse(
    arcs: ArcFeatures, weights: Floats, structure: Structure, threads: Threads
) -> tuple[Arcs, Floats]:
    """Arcs of the best tree of every sentence, one after the other, and the trees' scores."""
    blocks = np.arange(len(arcs.lengths), dtype=np.int64)
    found, totals = np.empty(int(arcs.ends[-1]), dtype=np.uint32), np.empty(len(blocks))

    def search(part: slice) -> None:
        where = blocks[part], arcs.ends[part.start :], found, totals[part]
        arcs.search(weights, None, structure, *where)

    threads.map(search, threads.shares(len(blocks)))
    return found, totals


class DependencyTrainingSet(TrainingSet):
    """Sentences with their trees; the loss is the number of words with a wrong arc.

    Parameters
    ----------
    arcs : ArcFeatures
    truth : ndarray of shape (n_words,)
        True arc of each word of all sentences.
    structure : Structure
    cost : ndarray of shape (n_sentences,)
    """

    def __init__(
        self, arcs: ArcFeatures, truth: NDArray[Any], structure: Structure, cost: Floats
    ) -> None:
        self.arcs, self.structure, self.cost = arcs, structure, cost
        self.truth = truth.astype(np.uint32)
        self.n_features = arcs.n_features

    @property
    def search_work(self) -> float:
        return self.arcs.search_work

    def planes(self, weights: Floats, blocks: Numbers, threads: Threads) -> Planes:
        starts = self._starts(blocks)
        found, totals = np.empty(starts[-1], dtype=np.uint32), np.empty(len(blocks))

        def search(part: slice) -> None:
            where = blocks[part], starts[part.start :], found, totals[part]
            self.arcs.search(weights, self.truth, self.structure, *where)

        parts = threads.shares(len(blocks), self.search_work)
        threads.map(search, parts)
        return self._make_planes(blocks, starts, found, parts, threads)

    def planes_of(self, blocks: Numbers, outputs: Sequence[bytes]) -> Planes:
        # Writable, as found arcs are: numba would compile the kernels again for one that is not.
        found = np.frombuffer(bytearray().join(outputs), dtype=np.uint32)
        starts = self._starts(blocks)
        if [len(output) for output in outputs] != (4 * np.diff(starts)).tolist():
            raise ValueError("The outputs are of other lengths than the sentences.")
        # A plane of what is no tree would be no bound.
        check_trees((found // self.arcs.n_labels).astype(np.int64), starts, self.structure)
        return self._make_planes(blocks, starts, found, Threads(1).shares(len(blocks)), Threads(1))

    def _starts(self, blocks: Numbers) -> Numbers:
        """Where the words of each of some sentences start when they stand one after the other."""
        starts = np.zeros(len(blocks) + 1, dtype=np.int64)
        np.cumsum(self.arcs.lengths[blocks], out=starts[1:])
        return starts

    def _make_planes(
        self, blocks: Numbers, starts: Numbers, found: Arcs, parts: list[slice], threads: Threads
    ) -> Planes:
        entries = np.zeros(len(blocks) + 1, dtype=np.int64)

        def measure(part: slice) -> None:
            where = blocks[part], starts[part.start :], found
            entries[part.start + 1 : part.stop + 1] = self.arcs.measure(self.truth, *where)

        threads.map(measure, parts)
        np.cumsum(entries, out=entries)
        columns, values = np.empty(entries[-1], dtype=np.uint32), np.empty(entries[-1])

        def fill(part: slice) -> None:
            where = blocks[part], starts[part.start :], found, entries[part.start :]
            self.arcs.fill(self.truth, *where, columns, values)

        threads.map(fill, parts)
        wrong = found != self.truth[_ranges(self.arcs.ends[blocks], starts)]
        losses = np.diff(np.r_[0, np.cumsum(wrong)][starts]).astype(np.float64)
        raw = found.tobytes()
        outputs = [raw[4 * a : 4 * b] for a, b in pairwise(starts.tolist())]
        return Planes(entries, columns, values, losses, outputs)


def _ranges(firsts: Numbers, starts: Numbers) -> Numbers:
    """``firsts[k], firsts[k] + 1, ...`` for each k, as many as lie between its starts."""
    return np.arange(starts[-1]) + np.repeat(firsts - starts[:-1], np.diff(starts))
