"""Parse trees in a report."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from maxmargin.core.arrays import Floats
from maxmargin.report.answers import Answers, ClassScore, drawings, span_scores
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
from maxmargin.structures.constituency.grammar import Tree, bracket_scores, brackets

LEVEL = 42.0
"""Pixels between the levels of a tree."""


class TreeAnswers(Answers):
    """Parse trees by a grammar."""

    y_optional = True
    unit = "sentence"
    legend = "Nodes that the other tree does not have are marked."

    drawn = True

    def feature_names(self) -> Sequence[str]:
        return self.features or list(self.estimator.grammar_.rule_names)

    def compare(self) -> None:
        self.y_true = [as_tree(tree) for tree in (self.X if self.y is None else self.y)]
        pairs = zip(self.y_true, self.predictions, strict=True)
        self._brackets = [(brackets(y), brackets(z)) for y, z in pairs]
        self._scores = bracket_scores(self.y_true, self.predictions)

    @property
    def size(self) -> str:
        n_words = sum(len(tree.words) for tree in self.y_true)
        return f"{super().size}, {plural(n_words, 'word')}"

    def score(self) -> float:
        """The estimator's score, without parsing again."""
        return self._scores.f1

    def more_scores(self) -> list[tuple[str, float]]:
        return [
            ("F1 of labelled brackets", self._scores.f1),
            ("Precision of labelled brackets", self._scores.precision),
            ("Recall of labelled brackets", self._scores.recall),
            ("Fraction of sentences all of whose brackets are correct", self._scores.exact),
        ]

    def class_tables(self) -> list[tuple[str, list[ClassScore]]]:
        caption = "Brackets of each label: label and span must be correct"
        return [(caption, span_scores(self._brackets))]

    def losses(self) -> Floats:
        """How many brackets only one of the trees has."""
        pairs = self._brackets
        return np.array([float(((y - z) + (z - y)).total()) for y, z in pairs])

    def length(self, i: int) -> int:
        return len(self.y_true[i].words)

    def mistake(self, i: int, loss: float) -> tuple[Any, ...]:
        above, below = drawn_pair(self.y_true[i], self.predictions[i])
        drawn = drawings(("true", above), ("predicted", below))
        return f"{loss:.0f} wrong or missed brackets", drawn

    def words_of(self, i: int) -> str:
        return super().words_of(i) or " ".join(self.y_true[i].words)


def drawn_pair(y_true: Tree, prediction: Tree) -> tuple[Markup, Markup]:
    """Draw two trees over the same words, marking the nodes that differ."""
    columns = list(zip(y_true.words, y_true.tags, prediction.tags, strict=True))
    centres, width = word_centres(columns)
    return (
        _drawn_tree(y_true, prediction, centres, width),
        _drawn_tree(prediction, y_true, centres, width),
    )


def _drawn_tree(tree: Tree, other: Tree, centres: Sequence[float], width: float) -> Markup:
    bottom = MARGIN + LINE + _depth(tree) * LEVEL
    different, tags = brackets(tree) - brackets(other), other.tags
    edges: list[Markup] = []
    nodes: list[Markup] = []

    def add(node: Tree, depth: int, start: int) -> tuple[float, float, int]:
        """Draw a subtree; returns its place, and the next word."""
        if node.is_tag:
            x, y, stop = centres[start], bottom, start + 1
            marked = node.label != tags[start]
            nodes.append(text_at(node.children[0], x, y + LINE, "word"))
        else:
            y, stop, below = MARGIN + LINE + depth * LEVEL, start, []
            for child in node.nodes:
                child_x, child_y, stop = add(child, depth + 1, stop)
                below.append((child_x, child_y))
            x = (below[0][0] + below[-1][0]) / 2
            for end_x, end_y in below:
                line = f"M{x:.1f} {y + 5.0:.1f}v7H{end_x:.1f}V{end_y - 14.0:.1f}"
                edges.append(tag("path", d=line, class_="edge"))
            marked = different[node.label, start, stop] > 0
            different[node.label, start, stop] -= marked
        if marked:
            half = text_width(node.label) / 2 + 4.0
            box = {"x": f"{x - half:.1f}", "y": f"{y - 14:.1f}", "width": f"{2 * half:.1f}"}
            nodes.append(tag("rect", **box, height="19", rx="4", class_="different"))
        nodes.append(text_at(node.label, x, y, "different" if marked else None))
        return x, y, stop

    add(tree, 0, 0)
    return svg(width, bottom + LINE + MARGIN, str(tree), *edges, *nodes)


def _depth(tree: Tree) -> int:
    return 0 if tree.is_tag else 1 + max(map(_depth, tree.nodes))


ANSWERS = (("GrammarParser", TreeAnswers),)
