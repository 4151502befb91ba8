"""What a benchmark reports: rows of a table, what papers say beside it, notes, and a plot."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

MOST_POINTS = 300
"""Points of a curve that are kept: more cannot be told apart in a plot."""

WIDTHS = {1: 6.0, 2: 9.2}
"""Inches of a plot with so many columns."""

HEIGHT, LEGEND_LINE = 3.6, 0.19
"""Inches of a part of a plot without its legend, and of each line of that."""

LETTER = 0.07
"""Inches of a letter of the small font, rather too many than too few."""

COLOURS, STYLES = 10, ("-", "--", ":")
"""There are so many colours; then lines are drawn otherwise."""

MOST_NUMBERS = 10
"""Bars, were all groups as large as the largest, of which each can have its number above it."""


@dataclass(frozen=True)
class Row:
    """One line of a table: something measured, beside what was promised.

    `met` is None where nothing was promised, or where the peer is missing.
    """

    what: str
    bar: str
    reached: str
    peer: str = ""
    met: bool | None = None

    def cells(self) -> tuple[str, ...]:
        """The line as text."""
        met = {None: "-", True: "yes", False: "no"}[self.met]
        return self.what, self.bar or "-", self.reached, self.peer or "-", met


@dataclass(frozen=True)
class Quote:
    """A figure or statement of a paper, beside what came out here.

    Parameters
    ----------
    where : str
        Which paper and which table or figure: "Joachims et al. (2009), table 1".
    says : str
        The figure, or the statement in our own words.
    here : str
        What came out here, made from what was measured.
    holds : bool or None
        Whether the two agree; None where they cannot be compared.
    """

    where: str
    says: str
    here: str
    holds: bool | None = None


class Panel(NamedTuple):
    """One part of a plot: named curves and what its axes are."""

    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    x: str
    y: str
    scales: tuple[str, str] = ("log", "log")


class Bars(NamedTuple):
    """One part of a plot: for each of several things, one bar of each contestant."""

    heights: Mapping[str, Mapping[str, float]]
    y: str
    scale: str = "linear"


def panel_as_json(panel: Panel | Bars) -> dict[str, Any]:
    """A part of a plot as plain numbers, no more and no finer than can be seen."""
    if isinstance(panel, Bars):
        heights = {
            group: {name: _seen(height) for name, height in found.items()}
            for group, found in panel.heights.items()
        }
        return panel._replace(heights=heights)._asdict()
    curves = {
        label: [[_seen(value) for value in values] for values in thinned(*curve)]
        for label, curve in panel.curves.items()
    }
    return panel._asdict() | {"curves": curves}


def panel_from_json(content: Mapping[str, Any]) -> Panel | Bars:
    """What `panel_as_json` made plain."""
    return Panel(**content) if "curves" in content else Bars(**content)


def _seen(value: float) -> float:
    return float(f"{value:.5g}")


@dataclass
class Report:
    """What a benchmark found.

    Parameters
    ----------
    rows : list of Row
        The table.
    quotes : list of Quote
        What papers say.
    notes : list of str
        Paragraphs in Markdown for below the table: why something differs or falls short. Numbers
        in them are to be made from what was measured.
    panels : dict of str to Panel or Bars
        The plot, part by part.
    details : dict
        Every measurement behind all this; curves are thinned out (see `thinned`).
    """

    rows: list[Row] = field(default_factory=list)
    quotes: list[Quote] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    panels: dict[str, Panel | Bars] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)


def thinned(*curve: Sequence[float]) -> list[list[float]]:
    """Parallel sequences with at most `MOST_POINTS` of their places, first and last among them."""
    n = len(curve[0])
    if n <= MOST_POINTS:
        return [list(values) for values in curve]
    # Logarithmic: most happens at the beginning.
    places = np.unique(np.geomspace(1, n, MOST_POINTS).astype(int) - 1)
    return [[values[place] for place in places] for values in curve]


def count(number: int, thing: str) -> str:
    """So many things, in words."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def table(rows: Sequence[Row], judged: bool = True) -> str:
    """The rows in columns; whether bars are met is told only if `judged`."""
    lines = [("what", "bar", "reached", "peer", "met?"), *(row.cells() for row in rows)]
    if not judged:
        lines = [line[:-1] for line in lines]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    return "\n".join([text[0], "-" * len(text[0]), *text[1:]])


def draw(panels: Mapping[str, Panel | Bars], path: Path) -> None:
    """Panels side by side, as an SVG file; text is text, on white, about as wide as a page."""
    from matplotlib import pyplot, rc_context

    pyplot.switch_backend("agg")
    columns = 1 if len(panels) == 1 else 2
    width = WIDTHS[columns] / columns
    lines = [_legend_shape(panel, width)[0] for panel in panels.values()]
    heights = [
        HEIGHT + LEGEND_LINE * max(lines[at : at + columns]) for at in range(0, len(lines), columns)
    ]
    # The same plot is the same file: no date, no random names in it.
    with rc_context({"svg.hashsalt": path.stem, "svg.fonttype": "none"}):
        figure = pyplot.figure(figsize=(WIDTHS[columns], sum(heights)), layout="constrained")
        figure.get_layout_engine().set(w_pad=0.1, h_pad=0.1)
        parts = figure.subfigures(len(heights), columns, squeeze=False, height_ratios=heights)
        for part, (title, panel) in zip(parts.flat, panels.items(), strict=False):
            axes = part.subplots()
            axes.set_title(title, fontsize="medium")
            if isinstance(panel, Panel):
                _draw_curves(axes, panel)
            else:
                _draw_bars(axes, panel, width)
            _, names_a_line = _legend_shape(panel, width)
            if names_a_line:
                # Below the axes, where it covers nothing.
                part.legend(
                    loc="outside lower center", ncols=names_a_line, fontsize="small", frameon=False
                )
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None, "Creator": None})
        pyplot.close(figure)


def _legend_shape(panel: Panel | Bars, width: float) -> tuple[int, int]:
    """Lines of the legend and names in each; none if there is nothing to tell apart."""
    names = list(panel.curves) if isinstance(panel, Panel) else _contestants(panel)
    if not names or (isinstance(panel, Bars) and len(names) == 1):
        return 0, 0
    letters = max(map(len, names)) + 7  # the line or patch before it, and some space
    names_a_line = min(max(int(width / LETTER) // letters, 1), len(names))
    return -(-len(names) // names_a_line), names_a_line


def _contestants(bars: Bars) -> list[str]:
    return list(dict.fromkeys(name for group in bars.heights.values() for name in group))


def _draw_curves(axes: Any, panel: Panel) -> None:
    for at, (label, curve) in enumerate(panel.curves.items()):
        x, y = thinned(*curve)
        marker = "o" if len(x) < 20 else ""
        style = STYLES[at // COLOURS % len(STYLES)]
        axes.plot(x, y, style, marker=marker, markersize=4, label=label)
    xscale, yscale = panel.scales
    axes.set(xscale=xscale, yscale=yscale, xlabel=panel.x, ylabel=panel.y)
    for axis, scale in ((axes.xaxis, xscale), (axes.yaxis, yscale)):
        if scale == "log":
            _thin_out_numbers(axis)
    axes.grid(alpha=0.3)


def _thin_out_numbers(axis: Any) -> None:
    """Between powers of ten only 2 and 5, and those only where there are few powers."""
    from matplotlib.ticker import LogFormatterSciNotation, LogLocator

    axis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
    axis.set_minor_formatter(LogFormatterSciNotation(minor_thresholds=(1.5, 1.5)))
    axis.set_tick_params(which="minor", labelsize="small")


def _draw_bars(axes: Any, bars: Bars, width: float) -> None:
    contestants = _contestants(bars)
    groups = [[name for name in contestants if name in found] for found in bars.heights.values()]
    most = max([1, *map(len, groups)])
    thickness = 0.8 / most
    for contestant in contestants:
        # Bars that are there stand around the middle of their group, without gaps for others.
        places = [
            middle + (names.index(contestant) - 0.5 * (len(names) - 1)) * thickness
            for middle, names in enumerate(groups)
            if contestant in names
        ]
        heights = [found[contestant] for found in bars.heights.values() if contestant in found]
        drawn = axes.bar(places, heights, thickness, label=contestant)
        if len(groups) * most <= MOST_NUMBERS:
            axes.bar_label(drawn, fmt=_number, fontsize="x-small", padding=1)
    axes.set(ylabel=bars.y, yscale=bars.scale)
    axes.margins(y=0.1)  # room for the numbers
    axes.set_xticks(range(len(groups)), list(bars.heights), fontsize="small")
    beside_each_other = max(map(len, bars.heights), default=0) * len(groups) * LETTER
    if beside_each_other > 0.8 * width:  # the rest is left of the axes
        # The end of a slanted name is at its tick.
        axes.tick_params(axis="x", rotation=30)
        for name in axes.get_xticklabels():
            name.set(ha="right", rotation_mode="anchor")
    axes.grid(alpha=0.3, axis="y")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def write_json(path: Path, content: Any) -> None:
    """Write whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    beside.write_text(json.dumps(content, indent=1, default=_plain) + "\n")
    beside.replace(path)


def _plain(value: Any) -> Any:
    """Numbers and arrays of numpy as Python's."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"no JSON for {type(value).__name__}")
