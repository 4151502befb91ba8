"""HTML and SVG, well-formed and escaped."""

import html
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

VOID = frozenset({"meta", "br"})
"""Elements without an end tag."""

MAX_UNBROKEN = 24
"""Characters of a row's name that stay on one line."""


class Markup(str):
    """Text that is HTML already; all other text is escaped."""

    __slots__ = ()


def escaped(value: Any) -> Markup:
    """Anything as text in a page."""
    if isinstance(value, Markup):
        return value
    return Markup(html.escape(printable(value)))


def printable(value: Any) -> str:
    """Anything as text that can be printed and encoded."""
    plain = str(value).encode(errors="replace").decode()  # lone surrogates are no text
    return "".join(
        c if c.isprintable() or c in "\n\t " else "\N{REPLACEMENT CHARACTER}" for c in plain
    )


def tag(name: str, *children: Any, **attributes: Any) -> Markup:
    """An element of `Markup` and text; ``class_`` is written ``class``, ``a_b`` ``a-b``."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{joined(children)}</{name}>")


def joined(parts: Iterable[Any]) -> Markup:
    """Concatenated parts."""
    return Markup("".join(escaped(part) for part in parts if part is not None))


def definitions(class_: str, *pairs: tuple[str, Any]) -> Markup:
    """A list of names and values."""
    items = (tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs)
    return tag("dl", *items, class_=class_)


class Digits(str):
    """A number that is formatted already."""

    __slots__ = ()


def table(caption: str, heads: Sequence[Any], rows: Iterable[Sequence[Any]]) -> Markup:
    """Make a table whose first column names the rows; numbers are aligned on the right."""
    rows = [list(row) for row in rows]
    numeric = [isinstance(one, int | float | Digits) for one in (rows or [heads])[0]]
    sides = ["number" if one else None for one in numeric]
    head = [tag("th", one, scope="col", class_=at) for one, at in zip(heads, sides, strict=True)]
    lines = []
    for first, *others in rows:
        brief = "brief" if len(first) <= MAX_UNBROKEN else None
        shown = [number(one) if isinstance(one, int | float) else one for one in others]
        cells = [tag("td", one, class_=at) for one, at in zip(shown, sides[1:], strict=True)]
        lines.append(tag("tr", tag("th", first, scope="row", class_=brief), *cells))
    parts = tag("caption", caption), tag("thead", tag("tr", *head)), tag("tbody", *lines)
    return tag("div", tag("table", *parts), class_="scroll")


def number(value: float) -> str:
    """A number for readers: integers with commas, others with four significant digits."""
    if isinstance(value, int):
        return f"{value:,}"
    if value != value:
        return "unknown"
    if value in (float("inf"), float("-inf")):
        return "infinite" if value > 0 else "minus infinite"
    return f"{value:,.0f}" if abs(value) >= 1e5 else f"{value:.4g}"


def plural(n: int, what: str) -> str:
    """A count with its noun."""
    if n == 1:
        return f"1 {what}"
    if what.endswith("y"):
        return f"{n:,} {what[:-1]}ies"
    return f"{n:,} {what}{'es' if what.endswith(('s', 'ch')) else 's'}"


ROUNDING = 1e-13
"""Relative gap below which there is only rounding."""


def percentage(fraction: float) -> str:
    """A fraction for a reader: ``percentage(0.000684) == '0.068 %'``, ``-2e-16`` is ``'0 %'``."""
    percent = 100 * fraction if fraction > ROUNDING else 0.0
    return f"{percent:.3g} %" if percent >= 10 else f"{percent:.2g} %"


CHARACTER, GAP, LINE, MARGIN = 7.4, 16.0, 18.0, 16.0
"""Pixels of a letter, between words, between lines of text, and around a drawing."""


def svg(width: float, height: float, alternative: str, *parts: Markup | None) -> Markup:
    """Make an SVG in its natural size, with an alternative text."""
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
    """Text, centred."""
    return tag("text", text, x=f"{x:.1f}", y=f"{y:.1f}", class_=class_)


def text_width(text: str) -> float:
    """Approximate width of a text in pixels; East Asian characters are twice as wide."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return CHARACTER * (len(text) + wide)


def word_centres(columns: Sequence[Sequence[str]]) -> tuple[list[float], float]:
    """Centre of each column of texts, and the total width."""
    centres, x = [], MARGIN
    for texts in columns:
        width = max(map(text_width, texts)) + GAP
        centres.append(x + width / 2)
        x += width
    return centres, x + MARGIN
