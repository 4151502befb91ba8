"""Writes docs/benchmarks.md, and a page for each section behind it, from what is published."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.claims import HEADLINES, SECTIONS, Section, about, claims, title
from benchmarks.common import say
from benchmarks.fingerprint import ROOT
from benchmarks.publishing import publish, published
from benchmarks.recording import published_file
from benchmarks.reporting import Quote, Row, count
from maxmargin.data.live_line import duration

DOCS = ROOT / "docs"
PAGE = DOCS / "benchmarks.md"
BEHIND = DOCS / "benchmarks"
"""The page with the summary, and the folder of the pages with everything."""

WRITTEN_BY = "<!-- Written by `python -m benchmarks.page`: change that, or a benchmark. -->"

Results = Mapping[str, Mapping[str, Any]]
"""What is published of each claim."""

Found = TypeVar("Found", Row, Quote)

BUSY = 0.2
"""Fraction of the processors taken by other programs above which a machine is called busy."""

INTRODUCTION = f"""\
# Benchmarks

{WRITTEN_BY}

Each claim is one file in `benchmarks/`. This page has the figures that matter most and everything
that was missed; the [sections](#sections) have every claim with its conditions, tables and plots.

```sh
make bench                                     # all claims; goes on where it stopped
make bench-quick                               # all of them on tiny data: shows that they run
python -m benchmarks --list                    # which claims there are, and which are up to date
python -m benchmarks.crammer_singer            # a single one; --help tells its options
```

The data sets are taken from the folder that `MAXMARGIN_DATA` names, or downloaded. A peer that
cannot be installed is left out, and its rows say so. The raw results stay on the machine that
measured them: in a fresh clone `--list` says "not measured yet" of each.

**How time is taken.** Each claim runs in a process of its own, on one thread unless it says
otherwise. Ours and the peer alternate, several times; minima are compared, and rows show the
spread. Times are whole `fit` calls, checks and certificate included; the peer's features are
converted outside its clock. Below each claim stands how much of the processors other programs took
meanwhile: where that is much, seconds are upper bounds.

**Where objectives are compared**, the measure is the time to come within 0.1 % of the optimal
objective: with the first of the peer's tolerances, and the first `tol` of ours, that gets there.
The objective is recomputed from the weights, for all alike. The optimum is our own run at
`tol=1e-8`, whose certificate says how well it is known."""


def write(redraw: bool = False) -> None:
    """Publish what was measured, and write the pages."""
    publish(redraw)
    texts = pages(published())
    BEHIND.mkdir(exist_ok=True)
    for old in set(BEHIND.glob("*.md")) - set(texts):
        old.unlink()
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    say(f"written: {PAGE.relative_to(ROOT)} and {count(len(texts) - 1, 'page')} behind it")


def pages(results: Results) -> dict[Path, str]:
    """The text of every page, in Markdown: the summary and a page for each section."""
    sections = [section for section in SECTIONS if _claims_of(section)]
    texts = {PAGE: _front(sections, results)}
    for section in sections:
        texts[_path(section)] = "\n\n".join(_section(section, results)) + "\n"
    return texts


def _claims_of(section: Section) -> list[str]:
    return [claim for claim in section.claims if claim in claims()]


def _path(section: Section) -> Path:
    return BEHIND / f"{slug(section.title)}.md"


def _front(sections: Sequence[Section], results: Results) -> str:
    entries = [_path(section).relative_to(DOCS).with_suffix("").as_posix() for section in sections]
    contents = "\n".join(["```{toctree}", ":hidden:", "", *entries, "```"])
    return "\n\n".join([INTRODUCTION, *_summary(results), contents]) + "\n"


# Summary


def _summary(results: Results) -> Iterator[str]:
    rows = [(claim, row) for claim in results for row in _rows(results[claim])]
    quotes = [(claim, quote) for claim in results for quote in _quotes(results[claim])]
    missed = [(claim, row) for claim, row in rows if row.met is False]
    differ = [(claim, quote) for claim, quote in quotes if quote.holds is False]
    yield "## Sections"
    yield _counts(results)
    if results:
        yield _by_section(results)
    headlines = [(claim, row) for claim, row in rows if row.bar and (claim, row.what) in HEADLINES]
    if headlines:
        yield "## The figures that matter most"
        yield _table(
            ("claim", "what", "asked for", "reached", "peer", "met"),
            [(_link(claim, results), *_cells(row)) for claim, row in headlines],
        )
    yield "## Where it falls short"
    if missed:
        yield "Every bar that was missed; the claims' tables have the peers and the spread."
        yield _table(
            ("claim", "missed", "what"),
            [
                (_link(claim, results), str(len(group)), _listed(map(_shortfall, group)))
                for claim, group in _grouped(missed).items()
            ],
        )
    if differ:
        yield "What papers say that did not come out here; the claims' tables have both figures."
        yield _table(
            ("claim", "differs", "where"),
            [
                (_link(claim, results), str(len(group)), _listed(quote.where for quote in group))
                for claim, group in _grouped(differ).items()
            ],
        )
    if not missed and not differ:
        yield "Nowhere, in what was measured."


def _grouped(pairs: Iterable[tuple[str, Found]]) -> dict[str, list[Found]]:
    groups: dict[str, list[Found]] = {}
    for claim, found in pairs:
        groups.setdefault(claim, []).append(found)
    return groups


def _shortfall(row: Row) -> str:
    """The missed bar in a few words; what was reached goes without its parentheses."""
    return f"{row.what}: {row.reached.partition(' (')[0]} (asked for: {row.bar})"


def _listed(texts: Iterable[str]) -> str:
    """A cell that names each once."""
    return _cell("; ".join(dict.fromkeys(texts)))


def _counts(results: Results) -> str:
    met = _number_of(True, results)
    missed = _number_of(False, results)
    unmeasured = [_link(claim, results) for claim in claims() if claim not in results]
    text = f"{count(len(results), 'claim')} measured: **{count(met, 'bar')} met, {missed} missed**."
    if results:
        dates = sorted(result["date"][:10] for result in results.values())
        machines = {f"{one['cpu']}, {one['cores']} cores" for one in results.values()}
        days = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
        total = duration(sum(result["seconds"] for result in results.values()))
        text += f" Measured on {'; '.join(sorted(machines))}; {days}; {total} in all."
    if unmeasured:
        text += f" Not measured yet: {', '.join(unmeasured)}."
    return text


def _number_of(met: bool, results: Results) -> int:
    return sum(row.met is met for result in results.values() for row in _rows(result))


def _by_section(results: Results) -> str:
    lines = []
    for section in SECTIONS:
        mine = {claim: results[claim] for claim in section.claims if claim in results}
        if mine:
            holds = [quote.holds for result in mine.values() for quote in _quotes(result)]
            numbers = (
                _number_of(True, mine),
                _number_of(False, mine),
                holds.count(True),
                holds.count(False),
            )
            name = f"[{section.title}]({_address(_path(section), PAGE)})"
            lines.append((name, *(str(number or "") for number in numbers)))
    columns = ("section", "bars met", "missed", "agrees with a paper", "differs from it")
    return _table(columns, lines)


# Sections


def _section(section: Section, results: Results) -> Iterator[str]:
    yield f"# {section.title}"
    yield WRITTEN_BY
    if section.about:
        yield section.about
    yield f"What is measured how, and what was missed: [benchmarks]({_address(PAGE, BEHIND)})."
    for claim in _claims_of(section):
        yield f"## {_title(claim, results)}"
        if claim in results:
            yield from _claim(claim, results[claim])
        else:
            yield f"Not measured yet: `python -m benchmarks.{claim}` does that."


def _claim(claim: str, result: Mapping[str, Any]) -> Iterator[str]:
    text = result["about"].partition("\n")[2].strip()
    if text:
        yield text
    rows, quotes = _rows(result), _quotes(result)
    yield _table(("what", "asked for", "reached", "peer", "met"), map(_cells, rows))
    if quotes:
        holds = {True: "yes", False: "**no**", None: ""}
        yield _table(
            ("paper", "says", "here", "agrees"),
            [
                (*map(_cell, (quote.where, quote.says, quote.here)), holds[quote.holds])
                for quote in quotes
            ],
        )
    yield from result["notes"]
    if result["plot"]:
        parts = ", ".join(result["plot"])
        words = re.sub(r"[\[\]]", "", f"{title(result['about'])}. Plot of {parts}")
        picture = _address(published_file(claim).with_suffix(".svg"), BEHIND)
        yield f"![{words}]({picture})"
    yield _how(result)


def _how(result: Mapping[str, Any]) -> str:
    """How the claim was measured, on what, and whether in peace."""
    when = f"{result['date'][:10]}, {duration(result['seconds'])}"
    commit = f", commit {result['commit']}" if result["commit"] else ""
    versions = ", ".join(
        f"{package} {version or 'not installed'}" for package, version in result["versions"].items()
    )
    cores, load = result["cores"], " to ".join(f"{load:.1f}" for load in result["load"])
    quiet = f"load {load}; other programs took {result['others']:.1f} of {cores} processors"
    if result["others"] > BUSY * cores:
        quiet = f"**a busy machine**: {quiet}"
    return (
        f"<small>`{result['command']}`, {when}{commit}; "
        f"{result['cpu']}, {cores} cores; {versions}; {quiet}.</small>"
    )


def _rows(result: Mapping[str, Any]) -> list[Row]:
    return [Row(**row) for row in result["rows"]]


def _quotes(result: Mapping[str, Any]) -> list[Quote]:
    return [Quote(**quote) for quote in result["quotes"]]


# Markdown


def _title(claim: str, results: Results) -> str:
    return title(results[claim]["about"] if claim in results else about(claim))


def _link(claim: str, results: Results) -> str:
    """The claim's place on its section's page, from the page with the summary."""
    home = next(section for section in SECTIONS if claim in section.claims)
    return f"[{claim}]({_address(_path(home), PAGE)}#{slug(_title(claim, results))})"


def _address(target: Path, page: Path) -> str:
    """`target` as a link on `page`, or on a page in that folder."""
    return Path(os.path.relpath(target, page if page == BEHIND else page.parent)).as_posix()


def slug(heading: str) -> str:
    """What a heading is called in links; "a 1 %" is "a-1-", as at GitHub."""
    return re.sub(r"[^\w -]", "", heading.strip()).lower().replace(" ", "-")


def _table(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table without the columns in which nothing stands."""
    kept = [column for column in zip(columns, *lines, strict=True) if any(column[1:])]
    rows = [f"| {' | '.join(row)} |" for row in zip(*kept, strict=True)]
    return "\n".join([rows[0], "|---" * len(kept) + "|", *rows[1:]])


def _cells(row: Row) -> tuple[str, ...]:
    met = {True: "yes", False: "**missed**", None: ""}
    return (*map(_cell, (row.what, row.bar, row.reached, row.peer)), met[row.met])


def _cell(text: str) -> str:
    """Text on one line that neither ends the cell nor begins a tag, a formula, struck words."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    parts[::2] = [re.sub(r"(?<!\\)([~$]|<(?=[a-zA-Z/!?]))", r"\\\1", part) for part in parts[::2]]
    return re.sub(r"(?<!\\)\|", r"\\|", "".join(parts))


if __name__ == "__main__":
    write(redraw=True)
