"""Parse trees in a report."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from maxmargin.report.answers import (
    Answers,
    ClassScore,
    counted_score,
    drawings,
    worst_drawable,
)
from maxmargin.report.markup import (
    LINE,
    MARGIN,
    Markup,
    plural,
    svg,
    tag,
    text_at,
    text_width,
    word_centres,
)
from maxmargin.structures.constituency.formats import as_tree
from maxmargin.structures.constituency.trees import Tree, bracket_scores, brackets

LEVEL = 42.0
"""Pixels between the levels of a tree."""


class TreeAnswers(Answers):
    """Parse trees by a grammar."""

    estimators = ("GrammarParser",)
    y_optional = True
    unit = "sentence"
    legend = "Nodes that the other tree does not have are marked."

    @staticmethod
    def feature_names(estimator: Any) -> Sequence[str]:
        """Rules of the grammar."""
        return list(estimator.grammar_.rule_names)

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
            ("Fraction of sentences all of whose brackets are correct", self._scores.exact),
        ]

    def class_tables(self) -> list[tuple[str, list[ClassScore]]]:
        """Brackets of each label."""
        counts: dict[str, list[int]] = {}
        for y_true, prediction in zip(self.y_true, self.predictions, strict=True):
            true, said = brackets(y_true), brackets(prediction)
            for place, found in enumerate((true & said, said, true)):
                for (label, *_), n in found.items():
                    counts.setdefault(label, [0, 0, 0])[place] += n
        rows = [counted_score(label, *n) for label, n in sorted(counts.items())]
        return [("Brackets of each label: label and span must be correct", rows)]

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
            found.append(self.item(i, what, drawings(("true", above), ("predicted", below))))
        return found

    def shown(self, i: int) -> str:
        """The sentence."""
        return super().shown(i) or " ".join(self.y_true[i].words)


def drawn_pair(y_true: Tree, prediction: Tree) -> tuple[Markup, Markup]:
    """Draw two trees over the same words, with the nodes marked that the other has not."""
    columns = list(zip(y_true.words, y_true.tags, prediction.tags, strict=True))
    centres, width = word_centres(columns)
    return (
        _drawn_tree(y_true, prediction, centres, width),
        _drawn_tree(prediction, y_true, centres, width),
    )


@dataclass
class _Places:
    """Where the nodes of a tree are drawn, children before parents."""

    centres: Sequence[float]
    bottom: float
    nodes: list[tuple[Tree, float, float, int, int]] = field(default_factory=list)
    edges: list[tuple[float, float, float, float]] = field(default_factory=list)

    def add(self, node: Tree, depth: int, start: int) -> tuple[float, float, int]:
        """Place a node and all below it; returns its place, and the next word."""
        if node.is_tag:
            x, y, stop = self.centres[start], self.bottom, start + 1
        else:
            y, stop, below = MARGIN + LINE + depth * LEVEL, start, []
            for child in node.nodes:
                child_x, child_y, stop = self.add(child, depth + 1, stop)
                below.append((child_x, child_y))
            x = (below[0][0] + below[-1][0]) / 2
            self.edges += [(x, y + 5.0, end_x, end_y - 14.0) for end_x, end_y in below]
        self.nodes.append((node, x, y, start, stop))
        return x, y, stop


def _drawn_tree(tree: Tree, other: Tree, centres: Sequence[float], width: float) -> Markup:
    places = _Places(centres, MARGIN + LINE + _depth(tree) * LEVEL)
    places.add(tree, 0, 0)
    different, tags = brackets(tree) - brackets(other), other.tags
    parts = [
        tag("path", d=f"M{a:.1f} {b:.1f}v7H{c:.1f}V{d:.1f}", class_="edge")
        for a, b, c, d in places.edges
    ]
    for node, x, y, start, stop in places.nodes:
        if node.is_tag:
            marked = node.label != tags[start]
            parts.append(text_at(node.children[0], x, y + LINE, "word"))
        else:
            marked = different[node.label, start, stop] > 0
            different[node.label, start, stop] -= marked
        if marked:
            half = text_width(node.label) / 2 + 4.0
            box = {"x": f"{x - half:.1f}", "y": f"{y - 14:.1f}", "width": f"{2 * half:.1f}"}
            parts.append(tag("rect", **box, height="19", rx="4", class_="different"))
        parts.append(text_at(node.label, x, y, "different" if marked else None))
    return svg(width, places.bottom + LINE + MARGIN, str(tree), *parts)


def _depth(tree: Tree) -> int:
    """Levels below the top."""
    return 0 if tree.is_tag else 1 + max(map(_depth, tree.nodes))


ANSWERS = (TreeAnswers,)
