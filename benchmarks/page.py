"""Writes docs/benchmarks.md, the page of all claims, from what is published of them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.claims import SECTIONS, Section, about, claims, title
from benchmarks.common import say
from benchmarks.fingerprint import ROOT
from benchmarks.publishing import publish, published
from benchmarks.recording import published_file
from benchmarks.reporting import Quote, Row, count
from maxmargin.report.progress import duration

PAGE = ROOT / "docs" / "benchmarks.md"

Results = Mapping[str, Mapping[str, Any]]
"""What is published of each claim."""

BUSY = 0.2
"""Share of the processors, taken by other programs, from which on a machine is called busy."""

INTRODUCTION = """\
# Benchmarks

<!-- Written by `python -m benchmarks.page`. To change it, change that, or a benchmark. -->

Each claim is one file in `benchmarks/`, and can be measured again:

```sh
make bench                                     # all claims; goes on where it stopped
make bench-quick                               # all of them on tiny data: shows that they run
python -m benchmarks --list                    # which claims there are, and which are up to date
python -m benchmarks --only startup memory     # some of them
python -m benchmarks.crammer_singer            # a single one; --help tells its options
```

In a fresh clone `--list` says "not measured yet" of each: this page is part of the repository, the
results themselves are not.

They need the data sets (`MAXMARGIN_DATA` names a folder that has them; otherwise they are
downloaded). A peer that cannot be installed is left out, and its rows say so.

**How time is taken.** Each claim runs in a process of its own, on one thread unless it says
otherwise. Ours and the peer take turns, several times; minima are compared, and rows show the
spread. Times are whole `fit` calls, checks and certificate included; the peer's features are
converted outside its clock. Below each claim stands how much of the processors other programs took
meanwhile: where that is much, seconds are upper bounds.

**Where objectives are compared**, the measure is the time to come within 0.1 % of the optimal
objective: with the first of the peer's tolerances, and the first `tol` of ours, that gets there.
The objective is recomputed from the weights, for all alike. The optimum is our own run at
`tol=1e-8`, whose certificate says how well it is known."""


def write(redraw: bool = False) -> None:
    """Publish what was measured, and write the page."""
    publish(redraw)
    PAGE.write_text(page(published()), encoding="utf-8")
    say(f"written: {PAGE.relative_to(ROOT)}")


def page(results: Results) -> str:
    """The whole page in Markdown."""
    parts = [INTRODUCTION, *_summary(results)]
    for section in SECTIONS:
        parts += _section(section, results)
    return "\n\n".join(parts) + "\n"


# Summary


def _summary(results: Results) -> Iterator[str]:
    rows = [(claim, row) for claim in results for row in _rows(results[claim])]
    quotes = [(claim, quote) for claim in results for quote in _quotes(results[claim])]
    missed = [(claim, row) for claim, row in rows if row.met is False]
    differ = [(claim, quote) for claim, quote in quotes if quote.holds is False]
    yield "## Summary"
    yield _counts(results)
    if results:
        yield _by_section(results)
    yield "## Where it falls short"
    if missed:
        yield "Every bar that was missed:"
        yield _table(
            ("claim", "what", "asked for", "reached", "peer"),
            [
                (_link(claim, results), *map(_cell, (row.what, row.bar, row.reached, row.peer)))
                for claim, row in missed
            ],
        )
    if differ:
        yield "And what papers say that did not come out here:"
        yield _table(
            ("claim", "paper", "says", "here"),
            [
                (_link(claim, results), *map(_cell, (quote.where, quote.says, quote.here)))
                for claim, quote in differ
            ],
        )
    if not missed and not differ:
        yield "Nowhere, in what was measured."


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
            name = f"[{section.title}](#{slug(section.title)})"
            lines.append((name, *(str(number or "") for number in numbers)))
    columns = ("section", "bars met", "missed", "agrees with a paper", "differs from it")
    return _table(columns, lines)


# Sections


def _section(section: Section, results: Results) -> Iterator[str]:
    names = [claim for claim in section.claims if claim in claims()]
    if not names:
        return
    yield f"## {section.title}"
    if section.about:
        yield section.about
    for claim in names:
        yield f"### {_title(claim, results)}"
        if claim in results:
            yield from _claim(claim, results[claim])
        else:
            yield f"Not measured yet: `python -m benchmarks.{claim}` does that."


def _claim(claim: str, result: Mapping[str, Any]) -> Iterator[str]:
    text = result["about"].partition("\n")[2].strip()
    if text:
        yield text
    rows, quotes = _rows(result), _quotes(result)
    met = {True: "yes", False: "**missed**", None: ""}
    yield _table(
        ("what", "asked for", "reached", "peer", "met"),
        [(*map(_cell, (row.what, row.bar, row.reached, row.peer)), met[row.met]) for row in rows],
    )
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
        picture = published_file(claim).with_suffix(".svg").relative_to(PAGE.parent).as_posix()
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
    return f"[{claim}](#{slug(_title(claim, results))})"


def slug(heading: str) -> str:
    """What a heading is called in links; "a 1 %" is "a-1-", as at GitHub."""
    return re.sub(r"[^\w -]", "", heading.strip()).lower().replace(" ", "-")


def _table(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table without the columns in which nothing stands."""
    kept = [column for column in zip(columns, *lines, strict=True) if any(column[1:])]
    rows = [f"| {' | '.join(row)} |" for row in zip(*kept, strict=True)]
    return "\n".join([rows[0], "|---" * len(kept) + "|", *rows[1:]])


def _cell(text: str) -> str:
    """Text on one line that neither ends the cell nor begins a tag, a formula, struck words."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    parts[::2] = [re.sub(r"(?<!\\)([~$]|<(?=[a-zA-Z/!?]))", r"\\\1", part) for part in parts[::2]]
    return re.sub(r"(?<!\\)\|", r"\\|", "".join(parts))


if __name__ == "__main__":
    write(redraw=True)
