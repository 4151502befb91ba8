"""Parse trees and dependency trees of sentences."""

import os
from typing import Any

import numpy as np

from maxmargin.report.answers import Answers, check_words, worst
from maxmargin.report.drawing import Arcs, drawn_arcs, drawn_pair
from maxmargin.report.markup import Markup, plural, tag
from maxmargin.report.scores import ClassScore, class_scores
from maxmargin.structures.constituency.trees import as_tree, bracket_scores, brackets
from maxmargin.structures.dependency.estimator import own_tree
from maxmargin.structures.dependency.formats import DependencySentence, read_dependencies

MOST_WORDS = 40
"""Words of a sentence that is drawn; longer ones are shown only if there are no others."""


class TreeAnswers(Answers):
    """Parse trees by a grammar."""

    unit = "sentence"
    legend = "Nodes that the other tree does not have are marked."

    @classmethod
    def offered(cls, estimator: Any) -> bool:
        """Whether there is a grammar."""
        return hasattr(estimator, "grammar_")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.y_true = [as_tree(tree) for tree in (self.X if self.y is None else self.y)]
        self._scores = bracket_scores(self.y_true, self.predictions)

    @property
    def size(self) -> str:
        """Sentences and words."""
        n_words = sum(len(tree.words) for tree in self.y_true)
        return f"{super().size}, {plural(n_words, 'word')}"

    def score(self) -> float:
        """What the estimator calls its score, without parsing again."""
        return self._scores.f1

    def more_scores(self) -> list[tuple[str, float]]:
        """F1 and its parts."""
        return [
            ("F1 of labelled brackets", self._scores.f1),
            ("Precision of labelled brackets", self._scores.precision),
            ("Recall of labelled brackets", self._scores.recall),
            ("Share of sentences all of whose brackets are right", self._scores.exact),
        ]

    def class_tables(self) -> list[tuple[str, list[ClassScore]]]:
        """Brackets of each label."""
        counts: dict[str, list[int]] = {}
        for y_true, prediction in zip(self.y_true, self.predictions, strict=True):
            true, said = brackets(y_true), brackets(prediction)
            for place, found in enumerate((true & said, said, true)):
                for (label, *_), n in found.items():
                    counts.setdefault(label, [0, 0, 0])[place] += n
        rows = [
            ClassScore(
                label,
                right / max(said, 1),
                right / max(true, 1),
                2 * right / max(said + true, 1),
                true,
            )
            for label, (right, said, true) in sorted(counts.items())
        ]
        return [("Brackets of each label: label and place must be right", rows)]

    def mistakes(self, most: int) -> list[Markup]:
        """Those with the most wrong or missed brackets."""
        losses = []
        for y_true, prediction in zip(self.y_true, self.predictions, strict=True):
            true, said = brackets(y_true), brackets(prediction)
            losses.append(float((true - said).total() + (said - true).total()))
        found = []
        for i in worst_drawable(losses, [len(tree.words) for tree in self.y_true], most):
            above, below = drawn_pair(self.y_true[i], self.predictions[i])
            what = f"{losses[i]:.0f} wrong or missed brackets"
            found.append(
                self.item(i, what, drawn(figure("true", above), figure("predicted", below)))
            )
        return found

    def shown(self, i: int) -> str:
        """The sentence."""
        return super().shown(i) or " ".join(self.y_true[i].words)


class ArcAnswers(Answers):
    """Dependency trees."""

    unit = "sentence"
    legend = "Arrows point from heads to words. Dashed ones are not the same in both trees."

    @classmethod
    def offered(cls, estimator: Any) -> bool:
        """Whether heads of words are predicted."""
        return hasattr(estimator, "n_projectivized_")

    def __init__(
        self, estimator: Any, X: Any, y: Any, words: Any = None, groups: Any = None
    ) -> None:
        if isinstance(X, str | os.PathLike):
            X = read_dependencies(X, tag=estimator.tag)
        super().__init__(estimator, X, y, words, groups)
        given = [own_tree(one) for one in X] if y is None else y
        self.y_true = [_arcs(tree) for tree in given]
        self.predictions = [_arcs(tree) for tree in self.predictions]
        check_words(words, [len(tree.heads) for tree in self.y_true], "heads")
        self.wrong = [z.differences(y) for y, z in zip(self.y_true, self.predictions, strict=True)]

    @property
    def size(self) -> str:
        """Sentences and words."""
        return f"{super().size}, {plural(sum(map(len, self.wrong)), 'word')}"

    def more_scores(self) -> list[tuple[str, float]]:
        """Attachment of words, with and without labels."""
        heads = [
            a == b
            for y, z in zip(self.y_true, self.predictions, strict=True)
            for a, b in zip(y.heads, z.heads, strict=True)
        ]
        found = [("Share of words whose head is right (UAS)", float(np.mean(heads)))]
        if self._labelled:
            right = [not one for wrong in self.wrong for one in wrong]
            name = "Share of words whose head and label are right (LAS)"
            found.append((name, float(np.mean(right))))
        whole = [not any(wrong) for wrong in self.wrong]
        return [*found, ("Share of sentences without any mistake", float(np.mean(whole)))]

    def class_tables(self) -> list[tuple[str, list[ClassScore]]]:
        """Labels of the words, whatever their heads."""
        if not self._labelled:
            return []
        pairs = zip(self.y_true, self.predictions, strict=True)
        columns = list(zip(*((y.labels, z.labels) for y, z in pairs), strict=True))
        y_true, said = (np.concatenate([np.asarray(one) for one in column]) for column in columns)
        return [("Labels of words, whatever their heads", class_scores(y_true, said))]

    @property
    def _labelled(self) -> bool:
        return all(one.labels is not None for one in (*self.y_true, *self.predictions))

    def mistakes(self, most: int) -> list[Markup]:
        """Those with the most wrong arcs."""
        losses = [float(sum(wrong)) for wrong in self.wrong]
        found = []
        for i in worst_drawable(losses, [len(wrong) for wrong in self.wrong], most):
            words, tags = self._words(i)
            arcs = drawn_arcs(words, tags, self.y_true[i], self.predictions[i])
            what = f"{losses[i]:.0f} of {plural(len(words), 'word')} wrong"
            caption = "True arcs above, predicted ones below"
            found.append(self.item(i, what, drawn(figure(caption, arcs))))
        return found

    def shown(self, i: int) -> str:
        """Nothing more: the words are in the drawing."""
        return ""

    def _words(self, i: int) -> tuple[list[str], list[str] | None]:
        """Words and, if they are known, tags."""
        sentence, n = self.X[i], len(self.wrong[i])
        if self.words is not None:
            return [str(word) for word in self.words[i]], None
        if isinstance(sentence, DependencySentence):
            return list(sentence.words), list(sentence.tags)
        if isinstance(sentence, np.ndarray):
            return [str(at + 1) for at in range(n)], None
        return [str(word) for word, _ in sentence], [str(tag) for _, tag in sentence]


def _arcs(tree: Any) -> Arcs:
    """Heads, or heads and labels, in any of the forms that parsers take."""
    if len(tree) == 2 and np.ndim(tree[0]) == 1:
        heads, labels = tree
        return Arcs([int(head) for head in heads], [str(label) for label in labels])
    return Arcs([int(head) for head in tree])


def worst_drawable(losses: list[float], lengths: list[int], most: int) -> list[int]:
    """The worst of the sentences that are short enough to be drawn."""
    short = np.asarray(lengths) <= MOST_WORDS
    found = np.asarray(losses, dtype=float)
    kept = np.where(short, found, 0.0)
    return worst(kept if kept.any() else found, most, -np.asarray(lengths, dtype=float))


def figure(caption: str, drawing: Markup) -> Markup:
    """A drawing that scrolls sideways if it is too wide for the page."""
    return tag("figure", tag("figcaption", caption), tag("div", drawing, class_="scroll"))


def drawn(*figures: Markup) -> Markup:
    """Drawings, side by side if there is room."""
    return tag("div", *figures, class_="drawn")
