"""Dependency trees in a report."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from maxmargin.core.arrays import Floats
from maxmargin.report.answers import Answers, ClassScore, check_words, class_scores, drawings
from maxmargin.report.markup import LINE, Markup, plural, svg, tag, text_at, word_centres
from maxmargin.structures.dependency.formats import DependencySentence, read_dependencies
from maxmargin.structures.dependency.predictor import own_tree

ARC_FIRST, ARC_LEVEL, BEND = 26.0, 19.0, 0.75
"""Pixels to the bend of the lowest arc and between levels, and the fraction an arc reaches."""


class ArcAnswers(Answers):
    """Dependency trees."""

    y_optional = True
    unit = "sentence"
    legend = "Arrows point from heads to words. Dashed ones are not the same in both trees."

    drawn, words_above = True, False

    def __init__(self, estimator: Any, X: Any = None, *others: Any) -> None:
        if isinstance(X, str | os.PathLike):
            X = read_dependencies(X, tag=estimator.tag)
        super().__init__(estimator, X, *others)

    def compare(self) -> None:
        given = [own_tree(one) for one in self.X] if self.y is None else self.y
        self.y_true = [_arcs(tree) for tree in given]
        self.predictions = [_arcs(tree) for tree in self.predictions]
        check_words(self.words, [len(tree.heads) for tree in self.y_true], "heads")
        self.wrong = [z.differences(y) for y, z in zip(self.y_true, self.predictions, strict=True)]

    @property
    def size(self) -> str:
        return f"{super().size}, {plural(sum(map(len, self.wrong)), 'word')}"

    def more_scores(self) -> list[tuple[str, float]]:
        pairs = zip(self.y_true, self.predictions, strict=True)
        found = {
            "Fraction of words whose head is correct (UAS)": [
                a == b for y, z in pairs for a, b in zip(y.heads, z.heads, strict=True)
            ]
        }
        if self._labelled:
            right = [not one for wrong in self.wrong for one in wrong]
            found["Fraction of words whose head and label are correct (LAS)"] = right
        whole = [not any(wrong) for wrong in self.wrong]
        found["Fraction of sentences without any mistake"] = whole
        return [(name, float(np.mean(correct))) for name, correct in found.items()]

    def class_tables(self) -> list[tuple[str, list[ClassScore]]]:
        """Labels of the words, whatever their heads."""
        if not self._labelled:
            return []
        y_true, said = (
            np.concatenate([tree.labels for tree in trees])
            for trees in (self.y_true, self.predictions)
        )
        return [("Labels of words, whatever their heads", class_scores(y_true, said))]

    @property
    def _labelled(self) -> bool:
        return all(one.labels is not None for one in (*self.y_true, *self.predictions))

    def losses(self) -> Floats:
        """How many words are wrong."""
        return np.array([float(sum(wrong)) for wrong in self.wrong])

    def length(self, i: int) -> int:
        return len(self.wrong[i])

    def mistake(self, i: int, loss: float) -> tuple[Any, ...]:
        arcs = drawn_arcs(*self._words(i), self.y_true[i], self.predictions[i])
        drawn = drawings(("True arcs above, predicted ones below", arcs))
        return f"{loss:.0f} of {plural(self.length(i), 'word')} wrong", drawn

    def _words(self, i: int) -> tuple[list[str], list[str] | None]:
        sentence, n = self.X[i], len(self.wrong[i])
        if self.words is not None:
            return [str(word) for word in self.words[i]], None
        if isinstance(sentence, DependencySentence):
            return list(sentence.words), list(sentence.tags)
        if isinstance(sentence, np.ndarray):
            return [str(at + 1) for at in range(n)], None
        return [str(word) for word, _ in sentence], [str(tag) for _, tag in sentence]


@dataclass(frozen=True)
class Arcs:
    """Heads of words, 0 for the root, and perhaps labels of the arcs."""

    heads: Sequence[int]
    labels: Sequence[str] | None = None

    def differences(self, other: "Arcs") -> list[bool]:
        """Whether head (or label) of each word differs."""
        wrong = np.not_equal(self.heads, other.heads)
        if self.labels is not None and other.labels is not None:
            wrong |= np.not_equal(self.labels, other.labels)
        return wrong.tolist()  # type: ignore[no-any-return]

    def described(self, words: Sequence[str]) -> str:
        """Every arc in words."""
        ends = ["the root" if not head else words[head - 1] for head in self.heads]
        return "; ".join(f"{word} to {end}" for word, end in zip(words, ends, strict=True))


def drawn_arcs(
    words: Sequence[str], tags: Sequence[str] | None, y_true: Arcs, prediction: Arcs
) -> Markup:
    """Draw true arcs above and predicted ones below a sentence, differences marked."""
    named = [y_true.labels or (), prediction.labels or ()]
    columns = [
        [word, *([tags[at]] if tags else []), *(labels[at] for labels in named if labels)]
        for at, word in enumerate(words)
    ]
    centres, width = word_centres(columns)
    width = max(width, 120.0)
    wrong = y_true.differences(prediction)
    above, below = _levels(y_true.heads), _levels(prediction.heads)
    top = LINE + BEND * (ARC_FIRST + ARC_LEVEL * max(above, default=0))
    line = top + LINE
    floor = line + (LINE if tags else 0.0) + 8.0
    height = floor + BEND * (ARC_FIRST + ARC_LEVEL * max(below, default=0)) + LINE
    parts = _drawn_half(y_true, wrong, centres, above, top, -1.0)
    parts += _drawn_half(prediction, wrong, centres, below, floor, 1.0)
    for at, word in enumerate(words):
        parts.append(text_at(word, centres[at], line - 2.0, "word"))
        if tags:
            parts.append(text_at(tags[at], centres[at], line + LINE - 4.0, "tag"))
    said = f"True heads: {y_true.described(words)}. Predicted: {prediction.described(words)}."
    return svg(width, height, said, *parts)


def _levels(heads: Sequence[int]) -> list[int]:
    """How many arcs each arc must go over; the root's go over all."""
    spans = {at: sorted((head, at)) for at, head in enumerate(heads, start=1) if head}
    levels: dict[int, int] = {}
    for at, (first, last) in sorted(spans.items(), key=lambda item: item[1][1] - item[1][0]):
        inside = [
            levels[other] + 1
            for other, (a, b) in spans.items()
            if first <= a and b <= last and b - a < last - first
        ]
        levels[at] = max(inside, default=0)
    highest = max(levels.values(), default=0) + 1
    return [levels.get(at, highest) for at in range(1, len(heads) + 1)]


def _drawn_half(
    arcs: Arcs,
    wrong: Sequence[bool],
    centres: Sequence[float],
    levels: Sequence[int],
    base: float,
    down: float,
) -> list[Markup]:
    """Arcs on one side of the words: up if `down` is -1."""
    parts = []
    for at, head in enumerate(arcs.heads):
        class_ = "arc different" if wrong[at] else "arc"
        reach = down * (ARC_FIRST + ARC_LEVEL * levels[at])
        end = centres[at]
        if head:
            start = centres[head - 1]
            side = 5.0 if start < end else -5.0
            start, end = start + side, end - side
            peak = base + reach
            bend = f"C{start:.1f} {peak:.1f} {end:.1f} {peak:.1f}"
            path = f"M{start:.1f} {base:.1f}{bend} {end:.1f} {base:.1f}"
            middle, label_at = (start + end) / 2, base + BEND * reach
        else:
            path = f"M{end:.1f} {base + BEND * reach:.1f}L{end:.1f} {base:.1f}"
            middle, label_at = end, base + BEND * reach + (down * 6.0)
        parts.append(tag("path", d=path, class_=class_))
        tip = base + down * 7.0
        arrow = f"M{end - 3.5:.1f} {tip:.1f}L{end + 3.5:.1f} {tip:.1f}L{end:.1f} {base:.1f}Z"
        parts.append(tag("path", d=arrow, class_=f"{class_} tip"))
        label = arcs.labels[at] if arcs.labels is not None else (None if head else "root")
        if label is not None:
            kind = "label different" if wrong[at] else "label"
            parts.append(text_at(label, middle, label_at + 3.5, kind))
    return parts


def _arcs(tree: Any) -> Arcs:
    """Heads, or heads and labels, in any of the forms that parsers take."""
    if len(tree) == 2 and np.ndim(tree[0]) == 1:
        heads, labels = tree
        return Arcs([int(head) for head in heads], [str(label) for label in labels])
    return Arcs([int(head) for head in tree])


ANSWERS = (("DependencyParser", ArcAnswers),)
