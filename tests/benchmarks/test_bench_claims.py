"""The claims: none is forgotten, and each result stands until something it depends on changes."""

import json
import re

import pytest
from fake_claims import ROOT, make_folder

from benchmarks import claims, fingerprint, recording
from benchmarks.page import slug
from benchmarks.recording import MalformedError, Recording, read_result
from benchmarks.reporting import Bars, Report, Row, write_json


def is_claim(path):
    """Whether the file measures something and is to be run."""
    text = path.read_text(encoding="utf-8")
    measures = re.search(r"^(def measure\(|measure = )", text, re.MULTILINE)
    return bool(measures and re.search(r"^ +run\(", text, re.MULTILINE))


def test_every_claim_is_registered_once():
    written = [path.stem for path in (ROOT / "benchmarks").glob("*.py") if is_claim(path)]
    registered = [claim for section in claims.SECTIONS for claim in section.claims]
    assert sorted(registered) == sorted(written), "benchmarks/claims.py tells where each stands"


def test_titles_lead_to_different_places():
    titles = [claims.title(claims.about(claim)) for claim in claims.claims()]
    sections = [section.title for section in claims.SECTIONS]
    slugs = [slug(heading) for heading in (*titles, *sections)]
    assert len(set(slugs)) == len(slugs)
    assert not [title for title in titles if "|" in title or len(title) > 100]


def test_links_are_called_as_at_github():
    assert slug("Time to a certified 1 %") == "time-to-a-certified-1-"
    assert slug(" Viterbi, and more ") == "viterbi-and-more"


# Fingerprints


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A claim that needs another file, which needs one more; and one that is in nobody's way."""
    folder = make_folder(tmp_path / "folder", mine="")
    benchmarks = folder / "benchmarks"
    (benchmarks / "mine.py").write_text("from benchmarks import helper as h, reporting\nx = 1\n")
    (benchmarks / "helper.py").write_text('command = ["-m", "benchmarks.distant"]\n')
    (benchmarks / "distant.py").write_text("import pycrfsuite\n")
    (benchmarks / "other.py").write_text("import dlib\n")
    monkeypatch.setattr(fingerprint, "ROOT", folder)
    forget()
    yield folder
    forget()


def forget():
    fingerprint._program.cache_clear()
    fingerprint._library.cache_clear()


def digest_after(path, text):
    path.write_text(text)
    forget()
    return fingerprint.code("mine")


def test_a_claim_consists_of_all_that_it_needs(folder):
    assert [path.stem for path in fingerprint.sources("mine")] == ["distant", "helper", "mine"]


def test_versions_are_of_packages_that_it_names(folder):
    versions = fingerprint.versions("mine")
    assert "python-crfsuite" in versions
    assert "dlib" not in versions
    assert versions["numpy"]


@pytest.mark.parametrize(
    "changed", ["benchmarks/mine.py", "benchmarks/distant.py", "src/maxmargin/library.py"]
)
def test_code_that_matters(folder, changed):
    before = fingerprint.code("mine")
    text = (folder / changed).read_text()
    assert digest_after(folder / changed, f"{text}y = 2\n") != before
    assert digest_after(folder / changed, text) == before


@pytest.mark.parametrize(
    ("changed", "more"),
    [
        ("benchmarks/other.py", "y = 2"),
        ("benchmarks/reporting.py", "y = 2"),
        ("src/maxmargin/library.py", "# a comment"),
        ("benchmarks/mine.py", '"""What x is."""'),
    ],
)
def test_code_that_does_not_matter(folder, changed, more):
    before = fingerprint.code("mine")
    assert digest_after(folder / changed, f"{(folder / changed).read_text()}{more}\n") == before


def test_what_changed_is_told(folder):
    result = {"code": fingerprint.code("mine"), **fingerprint.surroundings("mine")}
    assert fingerprint.what_changed("mine", result) == ""
    assert fingerprint.what_changed("mine", result | {"code": "x"}) == "the code has changed"
    assert fingerprint.what_changed("mine", result | {"cpu": "abacus"}) == "another machine"
    now = result["versions"]["numpy"]
    for before, old in (({"numpy": "1.0"}, "1.0"), ({"numpy": None}, "none")):
        older = result | {"versions": result["versions"] | before}
        assert fingerprint.what_changed("mine", older) == f"numpy was {old} and is {now}"


# Results


@pytest.fixture
def result_path(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "code", lambda claim: "digest")
    monkeypatch.setattr(
        recording,
        "surroundings",
        lambda claim: dict.fromkeys(("cpu", "cores"), 2) | {"versions": {}},
    )
    panels = {"speed": Bars({"a": {"ours": 1.0}}, "seconds")}
    report = Report([Row("speed", "", "3x")], notes=["A note."], panels=panels)
    path = tmp_path / "mine.json"
    write_json(path, Recording("mine", []).end(report, "About."))
    return path


def test_a_result_is_read_as_it_was_written(result_path):
    result = read_result(result_path)
    assert result["rows"] == [
        {"what": "speed", "bar": "", "reached": "3x", "peer": "", "met": None}
    ]
    assert result["seconds"] >= 0
    assert result["panels"]["speed"]["heights"] == {"a": {"ours": 1.0}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": []}, "mine.json has no rows"),
        ({"rows": [{"what": "x"}]}, "mine.json has rows or quotes of another shape"),
        ({"rows": [{"what": "x", "bar": "", "reached": 3.0}]}, "that are no text"),
        ({"quotes": [{"where": "x"}]}, "mine.json has rows or quotes of another shape"),
        ({"notes": [7]}, "that are no text"),
        ({"panels": {}}, "mine.json has no plot"),
    ],
)
def test_a_malformed_result_is_refused_in_a_sentence(result_path, change, message):
    write_json(result_path, json.loads(result_path.read_text()) | change)
    with pytest.raises(MalformedError, match=message):
        read_result(result_path)


def test_where_nothing_could_be_measured_nothing_need_be_drawn(result_path):
    rows = [{"what": "svm_hmm", "bar": "", "reached": "-", "peer": "no program given", "met": None}]
    write_json(result_path, json.loads(result_path.read_text()) | {"rows": rows, "panels": {}})
    assert read_result(result_path)["rows"] == rows


def test_results_of_older_forms_are_refused(result_path):
    old = json.loads(result_path.read_text())
    del old["load"]
    write_json(result_path, old)
    with pytest.raises(MalformedError, match=r"older form \(without load\): measure it again"):
        read_result(result_path)


def test_half_a_file_is_refused(result_path):
    result_path.write_text(result_path.read_text()[:100])
    with pytest.raises(MalformedError, match=r"mine\.json is not JSON"):
        read_result(result_path)
