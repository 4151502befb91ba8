"""Matplotlib for notebooks and pages: axes when they are needed, figures as SVG inside HTML.

Parse trees and dependency arcs as SVG.
"""

import re
import unicodedata
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

import numpy as np

from maxmargin.report.markup import Markup, tag
from maxmargin.structures.constituency.trees import Tree, brackets

MISSING = 'Plots need matplotlib: pip install "maxmargin[report]"'

PANEL = (4.6, 2.9)
"""Inches of one plot in a page: at this width it can be read on a phone, too."""

MARGINS = {"left": 0.165, "right": 0.97, "bottom": 0.175, "top": 0.89}
"""Room for the numbers: finding out how much they need would take most of the time of a plot."""

REM_PER_INCH = 7.4
"""Width in the page, in the unit of its text, for an inch of a figure."""

RESOLUTION = 160
"""Dots an inch of what is no vector, such as the cells of heat maps."""

BLUE, ORANGE = (0.16, 0.43, 0.86), (0.85, 0.40, 0.05)

INKS = {
    "#100001": "var(--ink)",
    "#100002": "var(--line)",
    "#100003": "var(--faint)",
    "#100011": "var(--series-1)",
    "#100012": "var(--series-2)",
    "#100013": "var(--series-3)",
    "#100014": "var(--series-4)",
}
"""Colours that stand for those of the page, which knows whether it is light or dark."""

STRONG, THIN, FAINT, *SERIES = INKS


def pyplot() -> Any:
    """Return matplotlib's pyplot, or say how to get it."""
    try:
        import matplotlib.pyplot
    except ImportError as error:
        raise ImportError(MISSING) from error
    return matplotlib.pyplot


def new_axes(given: Any, n: int, size: tuple[float, float] = PANEL) -> Any:
    """`n` axes: those given, or new ones, side by side."""
    if given is None:
        width, height = size
        _, made = pyplot().subplots(
            1, n, figsize=(width * n, height), squeeze=False, layout="constrained"
        )
        return made[0]
    axes = np.atleast_1d(np.asarray(given, dtype=object)).ravel()
    if len(axes) != n:
        raise ValueError(f"axes must be {n} axes, but there are {len(axes)}.")
    return axes


def heat_colors(both_signs: bool = False) -> Any:
    """Colours from clear to blue, with `both_signs` from orange over clear to blue.

    The clear ones let any background through, light or dark.
    """
    from matplotlib.colors import LinearSegmentedColormap

    clear_blue, blue = (*BLUE, 0.0), (*BLUE, 1.0)
    if not both_signs:
        return LinearSegmentedColormap.from_list("amount", [clear_blue, blue])
    parts = [
        (0.0, (*ORANGE, 1.0)),
        (0.4999, (*ORANGE, 0.0)),
        (0.5001, clear_blue),
        (1.0, blue),
    ]
    return LinearSegmentedColormap.from_list("sign", parts)


def style() -> dict[str, Any]:
    """Settings of matplotlib for plots in a page."""
    from matplotlib.rcsetup import cycler

    return {
        "axes.edgecolor": THIN,
        "axes.facecolor": "none",
        "axes.grid": False,
        "axes.labelcolor": STRONG,
        "axes.prop_cycle": cycler(color=SERIES),
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlecolor": STRONG,
        "axes.titlesize": 10,
        "axes.titleweight": "bold",
        "axes.titley": 1.0,
        "figure.facecolor": "none",
        "font.size": 9,
        "grid.color": THIN,
        "legend.frameon": False,
        "legend.labelcolor": STRONG,
        "svg.fonttype": "none",
        "svg.hashsalt": "maxmargin",
        "text.color": STRONG,
        "xtick.color": STRONG,
        "ytick.color": STRONG,
    }


class Figures:
    """Makes the plots of one page, each with names of its own for its parts."""

    def __init__(self) -> None:
        self._made = 0

    def draw(
        self,
        plot: Callable[[Any], Any],
        captions: Sequence[str],
        *,
        side: float | None = None,
    ) -> Markup:
        """Plots side by side.

        Parameters
        ----------
        plot : callable
            Gets a list of axes, each of a figure of its own.
        captions : sequence of str
            What is to be seen, one for each of the axes; also read out to those who do not see.
        side : float, default=None
            Inches of a matrix, around which names take what room they need; None is for plots
            with numbers at their sides, which are all alike.
        """
        pyplot()
        import matplotlib
        from matplotlib.figure import Figure

        figures = []
        with matplotlib.rc_context(style()), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing")  # the browser has more fonts
            if side is None:
                panels = [Figure(figsize=PANEL) for _ in captions]
                for panel in panels:
                    panel.subplots_adjust(**MARGINS)
            else:
                size = side, 0.94 * side
                panels = [Figure(figsize=size, layout="constrained") for _ in captions]
            plot([panel.subplots() for panel in panels])
            for panel, caption in zip(panels, captions, strict=True):
                figures.append(self._figure(panel, caption))
        widest = None if side is None else f"max-width: {REM_PER_INCH * side:.1f}rem"
        return tag("div", *figures, class_="plots", style=widest)

    def _figure(self, panel: Any, caption: str) -> Markup:
        self._made += 1
        file = StringIO()
        nothing = dict.fromkeys(["Creator", "Date", "Format", "Type"])
        panel.savefig(file, format="svg", transparent=True, metadata=nothing, dpi=RESOLUTION)
        drawing = embedded(file.getvalue(), f"plot{self._made}-", caption)
        inches = float(panel.get_size_inches()[0])
        return tag(
            "figure",
            tag("div", drawing, class_="scroll"),
            tag("figcaption", caption),
            class_="plot wide" if inches > PANEL[0] else "plot",
        )


def embedded(svg: str, prefix: str, alternative: str) -> Markup:
    """Make an SVG file of matplotlib a part of a page.

    What belongs to files goes; names get the prefix, so that no two plots of a page share any; and
    the colours become those of the page.
    """
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", svg)
    svg = svg.replace("xlink:href", "href")
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = re.sub(r'\bhref="#', f'href="#{prefix}', svg)
    svg = svg.replace("url(#", f"url(#{prefix}")
    for ink, color in INKS.items():
        svg = svg.replace(ink, color)
    opening = re.match(r"<svg[^>]*>", svg)
    assert opening is not None
    box = re.search(r'viewBox="[\d. ]+"', opening.group())
    assert box is not None
    title = tag("title", alternative)
    return Markup(f'<svg role="img" {box.group()}>{title}{svg[opening.end() :].strip()}')


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
    words: Sequence[str], tags: Sequence[str] | None, y_true: Arcs, prediction: Arcs
) -> Markup:
    """Draw the true arcs above a sentence and the predicted ones below, different ones marked."""
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
