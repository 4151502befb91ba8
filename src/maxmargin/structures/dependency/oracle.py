"""Dependency trees: training sets over arcs whose features are hashed or given.

A tree is the head of each word, counted from 1, with 0 for the root. An arc into a word is one
number, ``head * n_labels + label``, and without labels just the head.

Sentences as numbers, and their arcs with hashed features, for training sets and parsing.

See `maxmargin.structures.dependency.features` for the features. Weights are

    columns 0 .. n_columns-1      features of arcs
    n_rows rows of `width`        features of labelled arcs, one column for each label, padded
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.simd import padded
from maxmargin.core.oracle import CompiledOracle, Entries, starts_of
from maxmargin.core.registry import registered
from maxmargin.core.threads import Threads
from maxmargin.structures.dependency.features import (
    LINE,
    N_LABEL_TEMPLATES,
    N_TEMPLATES,
    infer_hashed,
    score_arcs,
    write_cuts,
)
from maxmargin.structures.dependency.inference import Structure, check_trees, tree_scratch

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
    def oracle_work(self) -> float: ...

    def infer(
        self,
        weights: Floats,
        y_true: Arcs | None,
        structure: tuple[bool, bool],
        examples: Numbers,
        starts: Numbers,
        found: Arcs,
        totals: Floats,
    ) -> None: ...

    def measure(self, y_true: Arcs, examples: Numbers, starts: Numbers, found: Arcs) -> Numbers: ...

    def fill(
        self,
        y_true: Arcs,
        examples: Numbers,
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
    examples = np.arange(len(arcs.lengths), dtype=np.int64)
    found, totals = np.empty(int(arcs.ends[-1]), dtype=np.uint32), np.empty(len(examples))

    def infer(part: slice) -> None:
        where = examples[part], arcs.ends[part.start :], found, totals[part]
        arcs.infer(weights, None, structure, *where)

    threads.map(infer, threads.shares(len(examples)))
    return found, totals


class DependencyOracle(CompiledOracle):
    """Sentences with their trees; the loss is the number of words with a wrong arc.

    Parameters
    ----------
    arcs : ArcFeatures
    y_true : ndarray of shape (n_words,)
        True arc of each word of all sentences.
    structure : Structure
    C : ndarray of shape (n_sentences,)
    """

    output_dtype = np.uint32

    def __init__(
        self, arcs: ArcFeatures, y_true: NDArray[Any], structure: Structure, C: Floats
    ) -> None:
        self.arcs, self.structure, self.C = arcs, structure, C
        self.y_true = y_true.astype(np.uint32)
        self.n_features, self.output_sizes = arcs.n_features, arcs.lengths

    @property
    def oracle_work(self) -> float:
        return self.arcs.oracle_work

    def infer(self, weights: Floats, examples: Numbers, starts: Numbers, found: Arcs) -> None:
        totals = np.empty(len(examples))
        self.arcs.infer(weights, self.y_true, self.structure, examples, starts, found, totals)

    def check_outputs(self, examples: Numbers, starts: Numbers, found: Arcs) -> None:
        # The cut of what is no tree would be no bound.
        check_trees((found // self.arcs.n_labels).astype(np.int64), starts, self.structure)

    def entries_of(self, examples: Numbers, starts: Numbers, found: Arcs) -> Entries:
        where = self.y_true, examples, starts, found
        entries = starts_of(self.arcs.measure(*where))
        columns, values = np.empty(entries[-1], dtype=np.uint32), np.empty(entries[-1])
        self.arcs.fill(*where, entries, columns, values)
        wrong = found != self.y_true[_ranges(self.arcs.ends[examples], starts)]
        losses = np.diff(starts_of(wrong)[starts]).astype(np.float64)
        return entries, columns, values, losses


def _ranges(firsts: Numbers, starts: Numbers) -> Numbers:
    """``firsts[k], firsts[k] + 1, ...`` for each k, as many as lie between its starts."""
    return np.arange(starts[-1]) + np.repeat(firsts - starts[:-1], np.diff(starts))


UNSEEN, BEFORE, ROOT, AFTER, FIRST_NUMBER = range(5)
"""Numbers that no word and no tag has: of what was not seen in training, and around a sentence."""

_LOOKUP = 6.0
"""Multiplications of vectors in the time of one look into the weights."""

_NO_ARCS = np.empty(0, dtype=np.uint32)


@registered("FeatureLayout", check="check")
class FeatureLayout(NamedTuple):
    """Where in the weights the parts of a parser stand; without labels there is one label."""

    n_columns: int
    n_rows: int
    n_labels: int
    width: int

    @classmethod
    def of(cls, n_columns: int, n_rows: int, n_labels: int | None) -> "FeatureLayout":
        """For so many labels, or none; columns are rounded up to fill lines of the cache."""
        n_columns = -(-n_columns // LINE) * LINE
        if n_labels is None:
            return cls(n_columns, 0, 1, 0)
        return cls(n_columns, n_rows, n_labels, padded(n_labels))

    def check(self) -> None:
        """Raise ValueError if this is no layout that `of` makes."""
        n_labels = self.n_labels if self.width else None
        if min(self) < 0 or self != FeatureLayout.of(self.n_columns, self.n_rows, n_labels):
            raise ValueError("the parts of the parser do not fit together")

    @property
    def n_features(self) -> int:
        """Number of weights."""
        return self.n_columns + self.n_rows * self.width


def numbers_of(names: Iterable[str]) -> dict[str, int]:
    """A number for each name, in the order of first occurrence."""
    return {name: number for number, name in enumerate(dict.fromkeys(names), start=FIRST_NUMBER)}


class EncodedSentences(NamedTuple):
    """Words and tags of all sentences as numbers.

    Sentence ``i``, of ``ends[i + 1] - ends[i]`` words, has its root at ``ends[i] + 3 * i + 1`` in
    `words` and `tags`, its words after that, and something before and after: every word has
    neighbours.
    """

    words: NDArray[np.int32]
    tags: NDArray[np.int32]
    ends: Numbers

    @classmethod
    def of(
        cls,
        sentences: Sequence[tuple[Sequence[str], Sequence[str]]],
        word_numbers: Mapping[str, int],
        tag_numbers: Mapping[str, int],
    ) -> "EncodedSentences":
        """From pairs of words and tags."""
        ends = np.zeros(len(sentences) + 1, dtype=np.int64)
        np.cumsum([len(words) for words, _ in sentences], out=ends[1:])

        def encoded(which: int, numbers: Mapping[str, int]) -> NDArray[np.int32]:
            parts = (
                (BEFORE, ROOT, *(numbers.get(name, UNSEEN) for name in one[which]), AFTER)
                for one in sentences
            )
            length = int(ends[-1]) + 3 * len(sentences)
            return np.fromiter(chain.from_iterable(parts), dtype=np.int32, count=length)

        return cls(encoded(0, word_numbers), encoded(1, tag_numbers), ends)


class HashedArcs:
    """Sentences and the features of their arcs, for searches and planes.

    Parameters
    ----------
    sentences : EncodedSentences
    layout : FeatureLayout
    """

    def __init__(self, sentences: EncodedSentences, layout: FeatureLayout) -> None:
        self.sentences, self.layout = sentences, layout
        self.ends = sentences.ends
        self.lengths = np.diff(sentences.ends)
        self.n_labels, self.n_features = layout.n_labels, layout.n_features
        self._longest = int(self.lengths.max(initial=0))
        self._n_tags = int(sentences.tags.max(initial=0)) + 1

    @property
    def oracle_work(self) -> float:
        """Multiplications of one search, on average."""
        arcs = float(np.mean(self.lengths**2)) if len(self.lengths) else 0.0
        spans = float(np.mean(self.lengths**3)) if len(self.lengths) else 0.0
        lookups = 2 * N_TEMPLATES + min(self._n_tags, self._longest) / 2
        labels = N_LABEL_TEMPLATES * (_LOOKUP + self.layout.width) if self.layout.n_rows else 0.0
        return arcs * (_LOOKUP * lookups + labels) + spans

    def infer(
        self,
        weights: Floats,
        y_true: Arcs | None,
        structure: tuple[bool, bool],
        examples: Numbers,
        starts: Numbers,
        found: Arcs,
        totals: Floats,
    ) -> None:
        """Arcs of the best tree of each of the `examples`, written to ``found[starts[k]:]``.

        With the `y_true` of all sentences, one is added for each wrong arc. `structure` says
        whether trees are projective and have a single root; `totals` gets the scores.
        """
        n = self._longest
        infer_hashed(
            *self.sentences, weights, self.layout,
            _NO_ARCS if y_true is None else y_true, y_true is not None, *structure,
            examples, starts, found, totals,
            np.empty((n + 1) ** 2), np.empty((n + 1) ** 2, dtype=np.uint32),
            np.empty(n, dtype=np.int32), *self._scratch(), *tree_scratch(n),
        )  # fmt: skip

    def arc_scores(self, weights: Floats, i: int, temperature: float = 0.0) -> Floats:
        """Scores of all arcs of sentence `i`: of the best label, or a soft maximum over labels."""
        n = int(self.lengths[i])
        scores = np.zeros((n + 1) ** 2)
        scratch = self._scratch()
        score_arcs(
            *self.sentences, i, weights, self.layout, _NO_ARCS, False, temperature,
            scores, np.empty((n + 1) ** 2, dtype=np.uint32), *scratch,
        )  # fmt: skip
        return scores.reshape(n + 1, n + 1)

    def measure(self, y_true: Arcs, examples: Numbers, starts: Numbers, found: Arcs) -> Numbers:
        """Number of entries of the plane of each of the `examples`."""
        counts = np.zeros(len(examples), dtype=np.int64)
        write_cuts(
            *self.sentences, self.layout, y_true, examples, starts, found,
            counts, False, _NO_ARCS, np.empty(0), *self._scratch(),
        )  # fmt: skip
        return counts

    def fill(
        self,
        y_true: Arcs,
        examples: Numbers,
        starts: Numbers,
        found: Arcs,
        entries: Numbers,
        columns: NDArray[np.uint32],
        values: Floats,
    ) -> None:
        """The entries, from ``entries[k]`` on for the k-th of the `examples`."""
        write_cuts(
            *self.sentences, self.layout, y_true, examples, starts, found,
            entries[: len(examples)].copy(), True, columns, values, *self._scratch(),
        )  # fmt: skip

    def _scratch(self) -> tuple[Any, ...]:
        keys = np.empty(max(N_TEMPLATES, N_LABEL_TEMPLATES), dtype=np.uint64)
        n = self._longest
        columns = np.empty((2 * n + 2, 2 * N_TEMPLATES + self._n_tags), dtype=np.uint32)
        between, counts = np.empty(self._n_tags, dtype=np.int32), np.empty(n + 1, dtype=np.int32)
        return keys, columns, between, counts, np.empty(max(self.layout.width, 1))
