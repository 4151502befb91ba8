"""Parse trees and dependency arcs as SVG."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from maxmargin.data.trees import Tree, brackets
from maxmargin.report.markup import Markup, tag

CHARACTER, GAP = 7.4, 16.0
"""Pixels of a letter, and between words."""

LEVEL, LINE, MARGIN = 42.0, 18.0, 16.0
"""Pixels between the levels of a tree, between lines of text, and around a drawing."""

ARC_FIRST, ARC_LEVEL, BEND = 26.0, 19.0, 0.75
"""Pixels to the bend of the lowest arc, from one to the next above it, and the part an arc goes."""


def drawing(width: float, height: float, alternative: str, *parts: Markup | None) -> Markup:
    """Make an SVG in its natural size, which is read out as `alternative`."""
    return tag(
        "svg",
        tag("title", alternative),
        *parts,
        role="img",
        class_="structure",
        width=f"{width:.0f}",
        height=f"{height:.0f}",
        viewBox=f"0 0 {width:.0f} {height:.0f}",
    )


def text_at(text: Any, x: float, y: float, class_: str | None = None) -> Markup:
    """Text in the middle of a place."""
    return tag("text", text, x=f"{x:.1f}", y=f"{y:.1f}", class_=class_)


def text_width(text: str) -> float:
    """Pixels of a text, about; letters of East Asia are twice as wide."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return CHARACTER * (len(text) + wide)


def word_centres(columns: Sequence[Sequence[str]]) -> tuple[list[float], float]:
    """Middle of each column of texts that stand above each other, and the width of all."""
    centres, x = [], MARGIN
    for texts in columns:
        width = max(map(text_width, texts)) + GAP
        centres.append(x + width / 2)
        x += width
    return centres, x + MARGIN


# Parse trees


def drawn_pair(truth: Tree, prediction: Tree) -> tuple[Markup, Markup]:
    """Draw two trees over the same words, with the nodes marked that the other has not."""
    columns = list(zip(truth.words, truth.tags, prediction.tags, strict=True))
    centres, width = word_centres(columns)
    return (
        _drawn_tree(truth, prediction, centres, width),
        _drawn_tree(prediction, truth, centres, width),
    )


@dataclass
class _Places:
    """Where the nodes of a tree are drawn, children before parents."""

    centres: Sequence[float]
    bottom: float
    nodes: list[tuple[Tree, float, float, int, int]] = field(default_factory=list)
    edges: list[tuple[float, float, float, float]] = field(default_factory=list)

    def add(self, node: Tree, depth: int, start: int) -> tuple[float, float, int]:
        """Place a node and all below it; tells where, and which word comes next."""
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
    return drawing(width, places.bottom + LINE + MARGIN, str(tree), *parts)


def _depth(tree: Tree) -> int:
    """Levels below the top."""
    return 0 if tree.is_tag else 1 + max(map(_depth, tree.nodes))


# Dependency arcs


@dataclass(frozen=True)
class Arcs:
    """Heads of words, counted from 1 with 0 as the root, and perhaps the labels of the arcs."""

    heads: Sequence[int]
    labels: Sequence[str] | None = None

    def differences(self, other: "Arcs") -> list[bool]:
        """Words whose head (or label) is another."""
        wrong = [a != b for a, b in zip(self.heads, other.heads, strict=True)]
        if self.labels is None or other.labels is None:
            return wrong
        labels = zip(self.labels, other.labels, strict=True)
        return [one or a != b for one, (a, b) in zip(wrong, labels, strict=True)]

    def described(self, words: Sequence[str]) -> str:
        """Every arc in words."""
        ends = ["the root" if not head else words[head - 1] for head in self.heads]
        return "; ".join(f"{word} to {end}" for word, end in zip(words, ends, strict=True))


def drawn_arcs(
    words: Sequence[str], tags: Sequence[str] | None, truth: Arcs, prediction: Arcs
) -> Markup:
    """Draw the true arcs above a sentence and the predicted ones below, different ones marked."""
    named = [truth.labels or (), prediction.labels or ()]
    columns = [
        [word, *([tags[at]] if tags else []), *(labels[at] for labels in named if labels)]
        for at, word in enumerate(words)
    ]
    centres, width = word_centres(columns)
    width = max(width, 120.0)
    wrong = truth.differences(prediction)
    above, below = _levels(truth.heads), _levels(prediction.heads)
    top = LINE + BEND * (ARC_FIRST + ARC_LEVEL * max(above, default=0))
    line = top + LINE
    floor = line + (LINE if tags else 0.0) + 8.0
    height = floor + BEND * (ARC_FIRST + ARC_LEVEL * max(below, default=0)) + LINE
    parts = _drawn_half(truth, wrong, centres, above, top, -1.0)
    parts += _drawn_half(prediction, wrong, centres, below, floor, 1.0)
    for at, word in enumerate(words):
        parts.append(text_at(word, centres[at], line - 2.0, "word"))
        if tags:
            parts.append(text_at(tags[at], centres[at], line + LINE - 4.0, "tag"))
    said = f"True heads: {truth.described(words)}. Predicted: {prediction.described(words)}."
    return drawing(width, height, said, *parts)


def _levels(heads: Sequence[int]) -> list[int]:
    """How many arcs each arc must go over; the root's go over all."""
    spans = [
        (min(head, at), max(head, at)) if head else (at, at)
        for at, head in enumerate(heads, start=1)
    ]
    levels = [0] * len(spans)
    for i in sorted(range(len(spans)), key=lambda i: spans[i][1] - spans[i][0]):
        (first, last), head = spans[i], heads[i]
        inside = [
            levels[j] + 1
            for j, (a, b) in enumerate(spans)
            if j != i and heads[j] and first <= a and b <= last and b - a < last - first
        ]
        levels[i] = max(inside, default=0) if head else 0
    highest = max(levels, default=0) + 1
    return [level if head else highest for level, head in zip(levels, heads, strict=True)]


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
