"""Matplotlib for notebooks and pages: axes when they are needed, figures as SVG inside HTML."""

import re
import warnings
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any

import numpy as np

from maxmargin.report.markup import Markup, tag

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
