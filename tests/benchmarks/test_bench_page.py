"""The pages: made from what is published, by the program and by nobody's hand."""

import json
import re

import pytest

from benchmarks import page as pages
from benchmarks import publishing
from benchmarks.claims import HEADLINES, Section, claims, title
from benchmarks.publishing import published
from benchmarks.recording import PUBLISHED

MEASURED = {
    "about": "A claim\n\nWhat is measured.",
    "command": "python -m benchmarks.fake",
    "date": "2026-01-02T03:04:05+00:00",
    "seconds": 75.0,
    "commit": "abc1234",
    "cpu": "Abacus",
    "cores": 2,
    "versions": {"python": "3.11", "dlib": None},
    "load": [0.5, 1.25],
    "others": 0.1,
    "quotes": [],
    "notes": [],
    "plot": ["speeds"],
}


def row(what, met=None, bar="2x", reached="3x", peer=""):
    return {"what": what, "bar": bar, "reached": reached, "peer": peer, "met": met}


@pytest.fixture
def make_pages(monkeypatch):
    """Makes the page with the summary and that of the only section of such results."""

    def make(**results):
        sections = (Section("Fakes", tuple(results), "A sentence."),)
        monkeypatch.setattr(pages, "SECTIONS", sections)
        monkeypatch.setattr(pages, "claims", lambda: list(results))
        monkeypatch.setattr(pages, "about", lambda claim: f"Claim {claim}")
        made = pages.pages({name: MEASURED | one for name, one in results.items() if one})
        return made[pages.PAGE], made.get(pages.BEHIND / "fakes.md")

    return make


def test_the_pages_are_those_that_the_program_makes():
    made = pages.pages(published())
    assert set(pages.BEHIND.glob("*.md")) == set(made) - {pages.PAGE}
    for path, text in made.items():
        assert path.read_text(encoding="utf-8") == text, (
            "run `python -m benchmarks.page`; edit nothing by hand"
        )


def test_the_first_page_can_be_read_in_one_sitting():
    assert len(pages.PAGE.read_text(encoding="utf-8").splitlines()) <= 200


def test_headlines_are_lines_of_what_is_published():
    rows = {(claim, row["what"]) for claim, found in published().items() for row in found["rows"]}
    assert set(HEADLINES) <= rows


def test_what_is_published_belongs_to_a_claim():
    files = {path.stem for path in PUBLISHED.glob("*")}
    assert files <= set(claims())


def test_every_plot_of_the_pages_is_there():
    pictures = [
        (words, pages.BEHIND / picture)
        for path in pages.BEHIND.glob("*.md")
        for words, picture in re.findall(
            r"^!\[(.*)\]\((.*)\)$", path.read_text(encoding="utf-8"), re.MULTILINE
        )
    ]
    assert len(pictures) == sum(bool(result["plot"]) for result in published().values())
    assert [picture for words, picture in pictures if not words or not picture.exists()] == []


def test_missed_bars_come_first_and_in_bold(make_pages):
    rows = [row("speed", True), row("size", False, "1 MB", "2 MB (3 in all)")]
    front, section = make_pages(fake={"rows": rows})
    assert "1 claim measured: **1 bar met, 1 missed**." in front
    short = front.split("## Where it falls short")[1]
    assert "| [fake](benchmarks/fakes.md#a-claim) | 1 | size: 2 MB (asked for: 1 MB) |" in short
    assert "speed" not in short
    assert "| size | 1 MB | 2 MB (3 in all) | **missed** |" in section


def test_headlines_are_shown_met_or_missed(make_pages, monkeypatch):
    monkeypatch.setattr(pages, "HEADLINES", (("fake", "speed"), ("fake", "size")))
    rows = [row("speed", True), row("size", False), row("colour", True)]
    front, _ = make_pages(fake={"rows": rows})
    headlines = front.split("## The figures that matter most")[1].split("\n## ")[0]
    assert "| speed | 2x | 3x | yes |" in headlines
    assert "| size | 2x | 3x | **missed** |" in headlines
    assert "colour" not in headlines


def test_where_nothing_is_missed_the_page_says_so(make_pages):
    front, _ = make_pages(fake={"rows": [row("speed", True)]})
    assert "Nowhere, in what was measured." in front


def test_papers_stand_beside_what_came_out(make_pages):
    quotes = [
        {"where": "Paper, table 1", "says": "2 s", "here": "1 s", "holds": True},
        {"where": "Paper, table 2", "says": "3 s", "here": "9 s", "holds": False},
        {"where": "Paper, table 2", "says": "4 s", "here": "8 s", "holds": False},
    ]
    front, section = make_pages(fake={"rows": [row("speed", True)], "quotes": quotes})
    assert "| Paper, table 1 | 2 s | 1 s | yes |" in section
    assert "| Paper, table 2 | 3 s | 9 s | **no** |" in section
    assert "| [fake](benchmarks/fakes.md#a-claim) | 2 | Paper, table 2 |" in front


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("|w| and `a|b`", r"\|w\| and `a\|b`"),
        (r"already \| escaped", r"already \| escaped"),
        ("two\nlines", "two lines"),
        ("<b> but < 1 and `x <b>`", r"\<b> but < 1 and `x <b>`"),
        ("~3 s, ~4 s, $5", r"\~3 s, \~4 s, \$5"),
    ],
)
def test_cells_stay_cells(make_pages, text, cell):
    _, section = make_pages(fake={"rows": [row(text, False)]})
    lines = section.splitlines()
    assert f"| {cell} | 2x | 3x | **missed** |" in lines
    widths = {
        len(re.findall(r"(?<!\\)\|", line)) for line in lines if line.endswith("**missed** |")
    }
    assert widths == {5}


def test_columns_in_which_nothing_stands_are_left_out(make_pages):
    _, section = make_pages(fake={"rows": [row("speed", bar="")]})
    assert "| what | reached |\n|---|---|\n| speed | 3x |" in section


def test_how_it_was_measured_is_told(make_pages):
    _, text = make_pages(fake={"rows": [row("speed")], "notes": ["Why it is so."]})
    assert "\n\nWhy it is so.\n\n" in text
    assert (
        "<small>`python -m benchmarks.fake`, 2026-01-02, 1 min 15 s, commit abc1234; Abacus, 2 "
        "cores; python 3.11, dlib not installed; load 0.5 to 1.2; other programs took 0.1 of 2 "
        "processors.</small>"
    ) in text
    assert "![A claim. Plot of speeds](../_static/benchmarks/fake.svg)" in text
    assert "busy" not in text
    _, text = make_pages(fake={"rows": [row("speed")], "others": 0.9})
    assert "**a busy machine**" in text


def test_what_was_never_measured_says_so(make_pages):
    front, section = make_pages(fake={"rows": [row("speed")]}, later=None)
    assert "Not measured yet: [later](benchmarks/fakes.md#claim-later)." in front
    assert "## Claim later\n\nNot measured yet: `python -m benchmarks.later` does that." in section


def test_a_page_of_nothing(make_pages):
    assert "0 claims measured" in make_pages(later=None)[0]


# Publishing


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Where results and what is published of them are, with one claim."""
    monkeypatch.setattr(publishing, "claims", lambda: ["fake"])
    monkeypatch.setattr(publishing, "about", lambda claim: "New words")
    monkeypatch.setattr(publishing, "result_file", lambda claim, quick: tmp_path / "result.json")
    monkeypatch.setattr(publishing, "published_file", lambda claim: tmp_path / "published.json")
    return tmp_path / "result.json", tmp_path / "published.json"


def result(**changes):
    whole = MEASURED | {"claim": "fake", "machine": "m", "code": "c", "arguments": [], "details": 7}
    panels = {"speeds": {"heights": {"a": {"ours": 1.0}}, "y": "s", "scale": "linear"}}
    return json.dumps(whole | {"rows": [row("speed")], "panels": panels} | changes)


def test_published_are_the_numbers_of_the_result_and_the_words_of_the_benchmark(places):
    measured, target = places
    measured.write_text(result())
    publishing.publish()
    found = json.loads(target.read_text())
    assert found["about"] == "New words"
    assert found["rows"] == [row("speed")]
    assert found["plot"] == ["speeds"]
    assert not {"details", "panels", "code"} & set(found)
    assert target.with_suffix(".svg").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (result(arguments=["--data", "x"]), "is of `python -m benchmarks.fake`, not of all"),
        (result(rows=[]), "result.json has no rows; the page keeps what it had."),
        ("{}", "result.json is of an older form"),
    ],
    ids=["with options", "no rows", "older"],
)
def test_what_cannot_be_published_leaves_what_is(places, capsys, content, message):
    measured, target = places
    measured.write_text(result())
    publishing.publish()
    before = target.read_text()
    measured.write_text(content)
    publishing.publish()
    assert message in capsys.readouterr().err
    assert target.read_text() == before


def test_plots_are_drawn_again_only_when_asked(places):
    measured, target = places
    measured.write_text(result())
    publishing.publish()
    picture = target.with_suffix(".svg")
    drawn = picture.read_text()
    picture.write_text("old style")
    publishing.publish()
    assert picture.read_text() == "old style"
    publishing.publish(redraw=True)
    assert picture.read_text() == drawn


def test_title_is_the_first_line():
    assert title("Faster than light.\n\nMeasured with a candle.") == "Faster than light"
