"""Dependency trees with hashed arc features (McDonald et al. 2005), and the separation oracle.

An arc into a word is ``head * n_labels + label``, the head counted from 1, 0 for the root. Its
features are words and tags of head and modifier and tags around and between, each with direction,
and with distance; labels have weights for fewer templates. Weights are `n_columns` of arcs, then
`n_rows` rows of labelled arcs, one column a label, padded. Hash collisions are possible.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.compiled.rows import padded
from maxmargin.core.arrays import Floats
from maxmargin.core.cuts import starts_of
from maxmargin.core.oracle import CompiledOracle, Entries, Threads
from maxmargin.core.registry import registered
from maxmargin.structures.dependency.inference import (
    Numbers,
    Structure,
    best_heads,
    check_trees,
    tree_scratch,
)

Arcs = NDArray[np.uint32]
Columns = NDArray[np.uint32]
Rows = tuple[Numbers, Columns, Floats]
"""Starts, columns and values of a CSR matrix."""

N_TEMPLATES = 22
"""Templates of an arc with direction, as many with distance; tags between come on top."""

N_LABEL_TEMPLATES = 9
"""Templates of a labelled arc."""

_HEAD_WORD = np.uint64(0x9E3779B97F4A7C15)
_HEAD_TAG = np.uint64(0xC2B2AE3D27D4EB4F)
_WORD = np.uint64(0x165667B19E3779F9)
_TAG = np.uint64(0xD6E8FEB86659FD93)
_BEFORE_HEAD = np.uint64(0xA0761D6478BD642F)
_AFTER_HEAD = np.uint64(0xE7037ED1A0B428DB)
_BEFORE = np.uint64(0x8EBC6AF09C88C6E3)
_AFTER = np.uint64(0x589965CC75374CC3)
_BETWEEN = np.uint64(0xB492B66FBE98F273)
_TO_THE_RIGHT = np.uint64(0x1D8E4E27C47D124F)
_DISTANCE = np.uint64(0xEB44ACCAB455D165)
_TEMPLATE = np.uint64(0x2545F4914F6CDD1D)
_STIR = np.uint64(0xFF51AFD7ED558CCD)
_HALF = np.uint64(32)
_PLACE = np.uint64(29)

LINE = 8
"""Weights in a cache line."""

VALUE = 1.0 / 6.0
"""Value of a feature: the fifty or so of an arc have a norm of about one."""


@inlined
def _stirred(key):  # type: ignore[no-untyped-def]
    """A hash of a key, random in its upper half."""
    return (key ^ (key >> _HALF)) * _STIR


@inlined
def _below(stirred, n):  # type: ignore[no-untyped-def]
    """A number below `n` from a hash."""
    return np.int64(((stirred >> _HALF) * np.uint64(n)) >> _HALF)


@inlined
def _direction(head, modifier):  # type: ignore[no-untyped-def]
    """Key of the direction of an arc."""
    return _TO_THE_RIGHT if head < modifier else np.uint64(0)


@inlined
def _distance(head, modifier):  # type: ignore[no-untyped-def]
    """Length of an arc in seven classes: 1 to 5, 6 for up to ten, 7 for more."""
    distance = abs(head - modifier)
    if distance > 5:
        distance = 6 if distance <= 10 else 7
    return distance


@compiled
def _set_arc_columns(words, tags, head, modifier, n_lines, keys, columns):  # type: ignore[no-untyped-def]
    """Set the columns of an arc but those of the tags between."""
    hw, ht = np.uint64(words[head]) * _HEAD_WORD, np.uint64(tags[head]) * _HEAD_TAG
    w, t = np.uint64(words[modifier]) * _WORD, np.uint64(tags[modifier]) * _TAG
    before_head = np.uint64(tags[head - 1]) * _BEFORE_HEAD
    after_head = np.uint64(tags[head + 1]) * _AFTER_HEAD
    before = np.uint64(tags[modifier - 1]) * _BEFORE
    after = np.uint64(tags[modifier + 1]) * _AFTER
    keys[0] = np.uint64(0)
    keys[1] = hw
    keys[2] = ht
    keys[3] = hw + ht
    keys[4] = w
    keys[5] = t
    keys[6] = w + t
    keys[7] = hw + ht + w + t
    keys[8] = ht + w + t
    keys[9] = hw + w + t
    keys[10] = hw + ht + t
    keys[11] = hw + ht + w
    keys[12] = hw + w
    keys[13] = ht + t
    keys[14] = ht + after_head + before + t
    keys[15] = before_head + ht + before + t
    keys[16] = ht + after_head + t + after
    keys[17] = before_head + ht + t + after
    keys[18] = ht + before + t
    keys[19] = ht + t + after
    keys[20] = before_head + ht + t
    keys[21] = ht + after_head + t
    direction, distance = _direction(head, modifier), _distance(head, modifier)
    for k in range(N_TEMPLATES):
        # Both columns are in one cache line, at random places.
        stirred = _stirred(keys[k] + np.uint64(k + 1) * _TEMPLATE + direction)
        line = LINE * _below(stirred, n_lines)
        place = np.int64((stirred >> _PLACE) & np.uint64(LINE - 1))
        columns[k] = line + place
        columns[N_TEMPLATES + k] = line + ((place + distance) & (LINE - 1))


@inlined
def _between_key(tags, head, modifier):  # type: ignore[no-untyped-def]
    """The key that all tags between head and modifier share."""
    key = np.uint64(tags[head]) * _HEAD_TAG + np.uint64(tags[modifier]) * _TAG
    return key + _direction(head, modifier)


@inlined
def _between_column(key, tag, n_lines):  # type: ignore[no-untyped-def]
    """Column of a tag between head and modifier; close numbers share a cache line."""
    stirred = _stirred(key + np.uint64(tag // LINE) * _BETWEEN)
    return LINE * _below(stirred, n_lines) + tag % LINE


@inlined
def _with_tag(between, count, tag):  # type: ignore[no-untyped-def]
    """Add a tag to the set `between`; returns its size."""
    for q in range(count):
        if between[q] == tag:
            return count
    between[count] = tag
    return count + 1


@compiled
def _set_label_rows(words, tags, head, modifier, n, keys, rows):  # type: ignore[no-untyped-def]
    """Set the rows of the label weights of an arc."""
    hw, ht = np.uint64(words[head]) * _HEAD_WORD, np.uint64(tags[head]) * _HEAD_TAG
    w, t = np.uint64(words[modifier]) * _WORD, np.uint64(tags[modifier]) * _TAG
    before = np.uint64(tags[modifier - 1]) * _BEFORE
    after = np.uint64(tags[modifier + 1]) * _AFTER
    near = _direction(head, modifier)
    keys[0] = near
    keys[1] = ht + t + near
    keys[2] = ht + t + near + np.uint64(_distance(head, modifier)) * _DISTANCE
    keys[3] = w + t
    keys[4] = w + ht + near
    keys[5] = hw + t + near
    keys[6] = before + t + after + near
    keys[7] = ht + before + t + near
    keys[8] = ht + t + after + near
    for k in range(N_LABEL_TEMPLATES):
        rows[k] = _below(_stirred(keys[k] + np.uint64(k + 1) * _TEMPLATE), n)


@compiled
def _best_label(weights, layout, rows, right, temperature, labels):  # type: ignore[no-untyped-def]
    """The best label and its score, or a soft maximum; loss-augmented unless `right` is -1."""
    n, width = layout.n_labels, layout.width
    for y in range(n):
        labels[y] = 0.0
    for k in range(N_LABEL_TEMPLATES):
        first = layout.n_columns + rows[k] * width
        row = weights[first : first + n]
        for y in range(n):
            labels[y] += VALUE * row[y]
    if right >= 0:
        for y in range(n):
            labels[y] += 1.0
        labels[right] -= 1.0
    best = 0
    for y in range(1, n):
        if labels[y] > labels[best]:
            best = y
    score = labels[best]
    if temperature > 0.0:
        total = 0.0
        for y in range(n):
            total += np.exp((labels[y] - score) / temperature)
        return best, score + temperature * np.log(total)
    return best, score


class Batch(NamedTuple):
    """Some sentences: arcs of the k-th are ``found[starts[k]:starts[k + 1]]``."""

    examples: Numbers
    starts: Numbers
    found: Arcs


class ArcFeatures(ABC):
    """Sentences with features of their arcs."""

    def __init__(self, lengths: Numbers, n_labels: int, n_features: int) -> None:
        self.lengths, self.ends = lengths, starts_of(lengths)
        self.n_labels, self.n_features = n_labels, n_features

    @property
    @abstractmethod
    def oracle_work(self) -> float:
        """Multiplications of one inference, on average."""

    @abstractmethod
    def infer(
        self, weights: Floats, y_true: Arcs | None, structure: Structure, batch: Batch
    ) -> Floats:
        """Write the best trees to ``batch.found``, loss-augmented with `y_true`; returns scores."""

    @abstractmethod
    def differences(self, y_true: Arcs, batch: Batch, n_wrong: int) -> Rows:
        """Rows ``phi(x, y_true) - phi(x, found)``, where `n_wrong` arcs differ."""

    @abstractmethod
    def arc_scores(self, weights: Floats, i: int, temperature: float = 0.0) -> Floats:
        """Scores of all arcs of sentence `i`, the (soft) maximum over labels."""


def parse(
    arcs: ArcFeatures, weights: Floats, structure: Structure, threads: Threads
) -> tuple[Arcs, Floats]:
    """Arcs of the best tree of each sentence, concatenated, and the scores."""
    examples = np.arange(len(arcs.lengths), dtype=np.int64)
    found, totals = np.empty(int(arcs.ends[-1]), dtype=np.uint32), np.empty(len(examples))

    def infer(part: slice) -> None:
        batch = Batch(examples[part], arcs.ends[part.start :], found)
        totals[part] = arcs.infer(weights, None, structure, batch)

    threads.map(infer, threads.shares(len(examples)))
    return found, totals


class DependencyOracle(CompiledOracle):
    """Sentences with their true arcs; the loss counts words with a wrong arc."""

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

    def work_of(self, examples: Numbers) -> Floats:
        # An arc has dozens of features.
        return self.output_sizes[examples].astype(np.float64) ** 2

    def infer(self, weights: Floats, examples: Numbers, starts: Numbers, found: Arcs) -> None:
        self.arcs.infer(weights, self.y_true, self.structure, Batch(examples, starts, found))

    def check_outputs(self, examples: Numbers, starts: Numbers, found: Arcs) -> None:
        # The cut of what is no tree would be no bound.
        check_trees((found // self.arcs.n_labels).astype(np.int64), starts, self.structure)

    def entries_of(self, examples: Numbers, starts: Numbers, found: Arcs) -> Entries:
        firsts = np.repeat(self.arcs.ends[examples] - starts[:-1], np.diff(starts))
        n_wrong = starts_of(found != self.y_true[np.arange(starts[-1]) + firsts])
        batch = Batch(examples, starts, found)
        entries = self.arcs.differences(self.y_true, batch, int(n_wrong[-1]))
        return *entries, np.diff(n_wrong[starts]).astype(np.float64)


UNSEEN, BEFORE, ROOT, AFTER, FIRST_NUMBER = range(5)
"""Reserved numbers: not seen in training, around a sentence, and the first word or tag."""

_LOOKUP = 6.0
"""Cost of a lookup of a weight, in multiplications."""

_NO_ARCS = np.empty(0, dtype=np.uint32)


@registered("FeatureLayout", check="check")
class FeatureLayout(NamedTuple):
    """Where in the weights the parts of a parser stand; unlabelled is one label."""

    n_columns: int
    n_rows: int
    n_labels: int
    width: int

    @classmethod
    def of(cls, n_columns: int, n_rows: int, n_labels: int | None) -> "FeatureLayout":
        """For so many labels, or none; columns are rounded up to whole cache lines."""
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
        return self.n_columns + self.n_rows * self.width


def numbers_of(names: Iterable[str]) -> dict[str, int]:
    """A number for each name, in the order of first occurrence."""
    return {name: number for number, name in enumerate(dict.fromkeys(names), start=FIRST_NUMBER)}


class EncodedSentences(NamedTuple):
    """Words and tags of all sentences as numbers.

    Sentence ``i`` has its root at ``ends[i] + 3 * i + 1`` in `words` and `tags`, then its words;
    padding on either side gives every word neighbours.
    """

    words: NDArray[np.int32]
    tags: NDArray[np.int32]
    ends: Numbers

    @classmethod
    def of(
        cls,
        sentences: Sequence[Sequence[tuple[str, str]]],
        word_numbers: Mapping[str, int],
        tag_numbers: Mapping[str, int],
    ) -> "EncodedSentences":
        """From lists of (word, tag) pairs."""
        ends = starts_of(np.array([len(one) for one in sentences], dtype=np.int64))

        def encoded(which: int, numbers: Mapping[str, int]) -> NDArray[np.int32]:
            parts = (
                (BEFORE, ROOT, *(numbers.get(token[which], UNSEEN) for token in one), AFTER)
                for one in sentences
            )
            length = int(ends[-1]) + 3 * len(sentences)
            return np.fromiter(chain.from_iterable(parts), dtype=np.int32, count=length)

        return cls(encoded(0, word_numbers), encoded(1, tag_numbers), ends)


class Scratch(NamedTuple):
    """Scratch for a sentence: features of arcs, by distance and direction, their scores, trees."""

    keys: NDArray[np.uint64]
    columns: Columns
    between: NDArray[np.int32]
    counts: NDArray[np.int32]
    labels: Floats
    scores: Floats
    arcs: Arcs
    heads: NDArray[np.int32]
    floats: Floats
    integers: NDArray[np.int32]


class HashedArcs(ArcFeatures):
    """Sentences of words and tags whose arcs have hashed features."""

    def __init__(self, sentences: EncodedSentences, layout: FeatureLayout) -> None:
        super().__init__(np.diff(sentences.ends), layout.n_labels, layout.n_features)
        self.sentences, self.layout = sentences, layout
        self._longest = int(self.lengths.max(initial=0))
        self._n_tags = int(sentences.tags.max(initial=0)) + 1

    @property
    def oracle_work(self) -> float:
        arcs = float(np.mean(self.lengths**2)) if len(self.lengths) else 0.0
        spans = float(np.mean(self.lengths**3)) if len(self.lengths) else 0.0
        lookups = 2 * N_TEMPLATES + min(self._n_tags, self._longest) / 2
        labels = N_LABEL_TEMPLATES * (_LOOKUP + self.layout.width) if self.layout.n_rows else 0.0
        return arcs * (_LOOKUP * lookups + labels) + spans

    def infer(
        self, weights: Floats, y_true: Arcs | None, structure: Structure, batch: Batch
    ) -> Floats:
        totals = np.empty(len(batch.examples))
        tables = self.sentences, weights, self.layout, _NO_ARCS if y_true is None else y_true
        infer_hashed(*tables, *structure, *batch, totals, self._scratch())
        return totals

    def arc_scores(self, weights: Floats, i: int, temperature: float = 0.0) -> Floats:
        size, scratch = int(self.lengths[i]) + 1, self._scratch()
        score_arcs(self.sentences, i, weights, self.layout, _NO_ARCS, temperature, scratch)
        return scratch.scores[: size * size].reshape(size, size)

    def differences(self, y_true: Arcs, batch: Batch, n_wrong: int) -> Rows:
        entries = np.zeros(len(batch.examples) + 1, dtype=np.int64)
        most = 2 * (2 * N_TEMPLATES + min(self._n_tags, self._longest) + N_LABEL_TEMPLATES)
        columns, values = np.empty(most * n_wrong, dtype=np.uint32), np.empty(most * n_wrong)
        rows = entries, columns, values
        write_cuts(self.sentences, self.layout, y_true, *batch, *rows, self._scratch())
        return entries, columns[: entries[-1]], values[: entries[-1]]

    def _scratch(self) -> Scratch:
        n = self._longest
        return Scratch(
            np.empty(max(N_TEMPLATES, N_LABEL_TEMPLATES), dtype=np.uint64),
            np.empty((2 * n + 2, 2 * N_TEMPLATES + self._n_tags), dtype=np.uint32),
            np.empty(self._n_tags, dtype=np.int32),
            np.empty(n + 1, dtype=np.int32),
            np.empty(max(self.layout.width, 1)),
            np.zeros((n + 1) ** 2),
            np.empty((n + 1) ** 2, dtype=np.uint32),
            np.empty(n, dtype=np.int32),
            *tree_scratch(n),
        )


@inlined
def score_arcs(sentences, i, weights, layout, y_true, temperature, scratch):  # type: ignore[no-untyped-def]
    """Set (loss-augmented) ``scratch.scores`` of arcs, and ``scratch.arcs`` with best labels.

    Arcs other than `y_true`, true arcs of all words, score one more; empty for none. With a
    `temperature` above 0, scores are a soft maximum over labels.
    """
    words, tags, ends = sentences.words, sentences.tags, sentences.ends
    keys, columns, between = scratch.keys, scratch.columns, scratch.between
    counts, scores, arcs = scratch.counts, scratch.scores, scratch.arcs
    n = ends[i + 1] - ends[i]
    root = ends[i] + 3 * i + 1
    n_lines = layout.n_columns // LINE
    for low in range(n):
        # First the columns of all arcs that start or end here, then their weights: so cache
        # misses overlap.
        n_turns = 2 if low > 0 else 1
        n_tags = 0
        for high in range(low + 1, n + 1):
            if high - 1 > low:
                n_tags = _with_tag(between, n_tags, tags[root + high - 1])
            for turn in range(n_turns):
                h, m = (low, high) if turn == 0 else (high, low)
                head, modifier = root + h, root + m
                here = columns[2 * (high - low) + turn]
                _set_arc_columns(words, tags, head, modifier, n_lines, keys, here)
                key = _between_key(tags, head, modifier)
                for q in range(n_tags):
                    here[2 * N_TEMPLATES + q] = _between_column(key, between[q], n_lines)
            counts[high - low] = 2 * N_TEMPLATES + n_tags
        for high in range(low + 1, n + 1):
            for turn in range(n_turns):
                h, m = (low, high) if turn == 0 else (high, low)
                here = columns[2 * (high - low) + turn]
                score = 0.0
                for k in range(counts[high - low]):
                    score += weights[here[k]]
                score *= VALUE
                right = -1
                if len(y_true) > 0:
                    code = np.int64(y_true[ends[i] + m - 1])
                    if code // layout.n_labels == h:
                        right = code % layout.n_labels
                    else:
                        score += 1.0
                at = h * (n + 1) + m
                arcs[at] = h * layout.n_labels
                if layout.n_rows > 0:
                    _set_label_rows(words, tags, root + h, root + m, layout.n_rows, keys, here)
                    best, more = _best_label(
                        weights, layout, here, right, temperature, scratch.labels
                    )
                    arcs[at] += best
                    score += more
                scores[at] = score


@compiled
def infer_hashed(  # type: ignore[no-untyped-def]
    sentences, weights, layout, y_true, projective, single_root, examples, starts, found, totals,
    scratch,
):  # fmt: skip
    """Write the arcs of the (loss-augmented) best tree of each example to ``found[starts[k]:]``.

    sentences, weights, layout, y_true, scratch : as in `score_arcs`
    projective, single_root : the `Structure`
    examples, starts, found, totals : ``examples[k]``, its arcs and its score; the latter filled
    """
    ends, heads = sentences.ends, scratch.heads
    for k in range(len(examples)):
        i = examples[k]
        size = ends[i + 1] - ends[i] + 1
        score_arcs(sentences, i, weights, layout, y_true, 0.0, scratch)
        scores = scratch.scores[: size * size].reshape(size, size)
        totals[k] = best_heads(
            scores, projective, single_root, heads, scratch.floats, scratch.integers
        )
        for m in range(1, size):
            found[starts[k] + m - 1] = scratch.arcs[heads[m - 1] * size + m]


@inlined
def _put(at, column, value, columns, values):  # type: ignore[no-untyped-def]
    """Put one entry; returns where the next goes."""
    columns[at] = column
    values[at] = value
    return at + 1


@inlined
def _put_pair(at, column, other, columns, values):  # type: ignore[no-untyped-def]
    """Put a feature of the true arc less one of the found arc, unless they cancel."""
    if column != other:
        at = _put(at, column, VALUE, columns, values)
        at = _put(at, other, -VALUE, columns, values)
    return at


@compiled
def write_cuts(  # type: ignore[no-untyped-def]
    sentences, layout, y_true, examples, starts, found, entries, out, values, scratch
):
    """Write the cuts ``phi(x, y_true) - phi(x, found)``.

    sentences, layout, y_true : `EncodedSentences`, `FeatureLayout`, true arcs of all words
    examples, starts, found : arcs of ``examples[k]`` from ``starts[k]`` on
    entries, out, values : CSR starts (first given, rest filled), columns and values of the cuts
    scratch : `Scratch`
    """
    words, tags, ends = sentences.words, sentences.tags, sentences.ends
    keys, columns, between = scratch.keys, scratch.columns, scratch.between
    n_labels, n_lines = layout.n_labels, layout.n_columns // LINE
    for k in range(len(examples)):
        i = examples[k]
        root = ends[i] + 3 * i + 1
        at = entries[k]
        for m in range(1, ends[i + 1] - ends[i] + 1):
            code = np.int64(y_true[ends[i] + m - 1])
            other_code = np.int64(found[starts[k] + m - 1])
            if code == other_code:
                continue
            modifier = root + m
            head, other_head = root + code // n_labels, root + other_code // n_labels
            if head != other_head:
                _set_arc_columns(words, tags, head, modifier, n_lines, keys, columns[0])
                _set_arc_columns(words, tags, other_head, modifier, n_lines, keys, columns[1])
                for q in range(2 * N_TEMPLATES):
                    at = _put_pair(at, columns[0, q], columns[1, q], out, values)
                for turn in range(2):
                    end = head if turn == 0 else other_head
                    count = 0
                    for position in range(min(end, modifier) + 1, max(end, modifier)):
                        count = _with_tag(between, count, tags[position])
                    key = _between_key(tags, end, modifier)
                    for q in range(count):
                        column = _between_column(key, between[q], n_lines)
                        at = _put(at, column, VALUE - 2.0 * VALUE * turn, out, values)
            if layout.n_rows > 0:
                n, width = layout.n_rows, layout.width
                _set_label_rows(words, tags, head, modifier, n, keys, columns[0])
                _set_label_rows(words, tags, other_head, modifier, n, keys, columns[1])
                first = layout.n_columns + code % n_labels
                other = layout.n_columns + other_code % n_labels
                for q in range(N_LABEL_TEMPLATES):
                    row, other_row = columns[0, q] * width, columns[1, q] * width
                    at = _put_pair(at, first + row, other + other_row, out, values)
        entries[k + 1] = at
