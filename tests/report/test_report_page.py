"""write_report: every estimator, every section, and nothing that could harm a reader."""

import re
import sys
import warnings

import numpy as np
import pytest
from report_samples import SAMPLES, Page, sample
from sklearn.exceptions import NotFittedError

import maxmargin as mm
from maxmargin.report import page as page_module
from maxmargin.report.markup import Markup
from maxmargin.report.page import write_report
from maxmargin.report.plots import Figures

NASTY = "<script>alert('1')</script>&\"\x00"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Pages of all samples, each written when it is first asked for."""
    folder = tmp_path_factory.mktemp("pages")
    made: dict[str, str] = {}

    def page(name):
        if name not in made:
            one = sample(name)
            path = folder / f"{name}.html"
            write_report(one.estimator, path, one.X, one.y, **one.options)
            made[name] = path.read_text(encoding="utf-8")
        return made[name]

    return page


@pytest.fixture
def unplotted(monkeypatch):
    """Pages whose plots are only promised, which is quicker."""
    promise = Markup("<figure></figure>")
    monkeypatch.setattr(Figures, "draw", lambda self, plot, captions, side=None: promise)


def written(tmp_path, *arguments, **options):
    path = write_report(arguments[0], tmp_path / "report.html", *arguments[1:], **options)
    return path.read_text(encoding="utf-8")


def sections_of(page):
    return {attributes["id"] for attributes in page.all("section")}


@pytest.mark.parametrize("name", SAMPLES)
def test_every_estimator_has_its_sections(pages, name):
    page = Page(pages(name))
    assert sections_of(page) == {"summary", "convergence"} | sample(name).sections
    links = {attributes["href"] for attributes in page.all("a")}
    assert links == {f"#{section}" for section in sections_of(page)}
    assert "How close to optimal" in page.text
    assert type(sample(name).estimator).__name__ in page.text


@pytest.mark.parametrize("name", SAMPLES)
def test_pages_are_self_contained_and_accessible(pages, name):
    text = pages(name)
    page = Page(text)
    assert "://" not in text
    assert "@import" not in text
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "link", "iframe", "object", "embed", "form", "base"}
    ids = [attributes["id"] for _, attributes in page.elements if attributes.get("id")]
    assert len(ids) == len(set(ids))
    for _, attributes in page.elements:
        assert not [key for key in attributes if key.startswith("on")]
        target = attributes.get("href") or attributes.get("src") or ""
        assert target == "" or target.startswith("data:image/png") or target[1:] in ids
        for place in re.findall(r"url\(#([^)]*)\)", " ".join(filter(None, attributes.values()))):
            assert place in ids
    assert all(cell["scope"] in ("row", "col") for cell in page.all("th"))
    assert len(page.all("caption")) == len(page.all("table"))
    drawings = [drawing for drawing in page.all("svg") if drawing["role"] == "img"]
    assert len(drawings) == len(page.all("svg")) == len(page.all("title")) - 1
    assert page.all("html")[0]["lang"] == "en"
    assert "#1000" not in text, "a colour was left that is none of the page's"


@pytest.mark.usefixtures("unplotted")
@pytest.mark.parametrize(
    "name", ["classifier", "tagger", "grammar", "dependencies", "ranker", "any problem"]
)
def test_pages_without_data_have_what_the_model_knows(tmp_path, name):
    page = Page(written(tmp_path, sample(name).estimator))
    known = {"summary", "convergence", "strongest-features", "neighbouring-labels"}
    assert sections_of(page) == {"summary", "convergence"} | (sample(name).sections & known)


def test_reports_of_the_same_are_the_same(tmp_path, pages):
    one = sample("tagger")
    assert written(tmp_path, one.estimator, one.X, one.y, **one.options) == pages("tagger")


def test_numbers_of_a_page_are_those_of_the_estimator(pages):
    one, page = sample("classifier"), Page(pages("classifier"))
    score = one.estimator.score(one.X, one.y)
    assert f"{score:.4g}" in page.text_in("dd")
    assert f"{one.estimator.certificate_.relative_gap:.2g}" in page.text_in("dd")
    wrong = np.count_nonzero(one.estimator.predict(one.X) != one.y)
    assert 0 < len(page.all("article")) == min(wrong, 8)
    assert "petal length (cm)" in page.text


@pytest.mark.usefixtures("unplotted")
def test_classes_stand_in_the_order_of_the_estimator(tmp_path):
    X, y = [[0.1], [0.2], [0.4], [0.6], [0.8], [0.9]], ["cold"] * 2 + ["warm"] * 2 + ["hot"] * 2
    model = mm.OrdinalClassifier(C=100.0, classes=["cold", "warm", "hot"]).fit(X, y)
    rows = Page(written(tmp_path, model, X, y)).text_in("th")
    places = [rows.index(name) for name in ("cold", "warm", "hot")]
    assert places == sorted(places)


def test_taggers_show_words_chunks_and_marked_mistakes(pages):
    one, page = sample("tagger"), Page(pages("tagger"))
    assert "F1 of chunks, as conlleval counts them" in page.text_in("th")
    assert "Accuracy without the label O" in page.text_in("th")
    wrong = [
        int(np.count_nonzero(np.asarray(y) != z))
        for y, z in zip(one.y, one.estimator.predict(one.X), strict=True)
    ]
    shown = sorted(wrong, reverse=True)[: len(page.all("article"))]
    assert sum(shown) == len([x for x in page.all("li") if x.get("class") == "wrong"]) > 0
    assert {"the", "dog"} <= set(page.text_in("b"))


@pytest.mark.usefixtures("unplotted")
def test_words_come_from_dictionaries_where_none_are_given(tmp_path):
    one = sample("tagger")
    page = Page(written(tmp_path, one.estimator, one.X, one.y))
    assert {"the", "dog"} <= set(page.text_in("b"))


def test_trees_are_drawn_side_by_side_with_differences_marked(pages):
    page = Page(pages("grammar"))
    labels = [a for a in page.all("text") if a.get("class") == "different"]
    one = sample("grammar")
    predicted = one.estimator.predict(one.X)
    assert str(predicted[0]) != one.X[0]
    assert str(predicted[0]) in page.text_in("title")
    assert one.X[0] in page.text_in("title")
    assert len(labels) == len([a for a in page.all("rect") if a.get("class") == "different"]) > 0


def test_arcs_are_drawn_above_and_below(pages):
    for name in ("dependencies", "labelled dependencies"):
        page = Page(pages(name))
        arcs = [a["class"] for a in page.all("path") if str(a.get("class")).startswith("arc")]
        assert len(arcs) == 2 * 2 * 4  # line and tip of four words on two sides
        assert arcs.count("arc different") == 2 * 2
        assert "UAS" in page.text
        assert ("LAS" in page.text) == (name != "dependencies")


def test_rankings_have_their_measures(pages, tmp_path):
    page = Page(pages("ranker"))
    assert "Mean average precision (MAP)" in page.text_in("th")
    assert "NDCG of the first 10" in page.text_in("th")
    one = sample("ranker")
    words = [f"document {i}" for i in range(60)]
    page = Page(written(tmp_path, one.estimator, one.X, one.y, groups=["q"] * 60, words=words))
    (heading,) = page.text_in("h3")
    assert heading.startswith("Query q: NDCG of the first 10 is 0.")
    best = np.argsort(-one.estimator.predict(one.X))[0]
    first = next(text for text in page.text_in("li") if text.startswith("document"))
    assert first == f"document {best} (relevance {one.y[best]:g})"


def test_certificates_say_what_they_do_not_bound(pages, tmp_path):
    assert "Other latent variables may be better" in Page(pages("latent problem")).text
    X, y = sample("any problem").X, sample("any problem").y
    model = mm.LinearClassifier().partial_fit(X, y, classes=[0, 1, 2])
    assert "was not evaluated" in Page(written(tmp_path, model, X, y)).text


@pytest.mark.usefixtures("unplotted")
def test_relaxed_certificates_are_named(tmp_path):
    random = np.random.default_rng(0)
    ring = [(a, b) for a in range(6) for b in range(a)]
    X = [(random.normal(size=(6, 2)), ring) for _ in range(4)]
    y = [random.integers(0, 3, size=6) for _ in range(4)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = mm.GraphLabeler(inference_method="relaxed", max_iter=3).fit(X, y)
    assert model.certificate_.relaxed
    assert "inference is approximate" in Page(written(tmp_path, model)).text


def test_names_from_data_are_escaped_everywhere(tmp_path):
    nasty = f"{NASTY}\ud800"
    X = [[{"word": nasty, nasty: 1.0}, {"word": "b"}], [{"word": "b"}, {"word": "b"}]]
    y = [[NASTY, "b"], ["b", NASTY]]
    model = mm.SequenceTagger(C=0.001).fit(X, y)
    text = written(tmp_path, model, X, y, words=[[nasty, "b"]] * 2, title=nasty)
    page = Page(text)
    assert not page.all("script")
    assert "<script" not in text
    assert text.count("&lt;script&gt;") > 10
    assert not re.search("[\x00\ud800]", text)
    assert "worst-mistakes" in sections_of(page)


def test_classes_and_columns_are_escaped(tmp_path):
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame({NASTY: [0.0, 1.0, 2.0], "other": [1.0, 0.0, 1.0]})
    model = mm.LinearClassifier(C=1e-4).fit(X, [NASTY, "good", "good"])
    text = written(tmp_path, model, X, [NASTY, "good", NASTY], words=[NASTY] * 3)
    assert not Page(text).all("script")
    assert "<script" not in text


def test_odd_names_of_classes_reach_the_page(tmp_path):
    names = ["a\x07b", "$\\frac$", "WP$", "日本", "\ud800", "<b>"]
    X = np.eye(6)
    model = mm.LinearClassifier(C=10.0).fit(X, names)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = written(tmp_path, model, X[::-1], names)
    labels = Page(text).text_in("text")
    assert {"a\N{REPLACEMENT CHARACTER}b", "$\\frac$", "WP$", "日本", "?", "<b>"} <= set(labels)


@pytest.mark.usefixtures("unplotted")
def test_trees_and_arcs_are_escaped(tmp_path):
    tag = "<script>"
    tree = f"(S (NP ({tag} {tag})) (VP (VB go)))"
    other = f"(S (VP ({tag} {tag})) (VP (VB go)))"
    parser = mm.GrammarParser().fit([tree])
    text = written(tmp_path, parser, [other])
    assert "<script" not in text
    assert len(Page(text).all("article")) == 1
    sentence = [(tag, "DET"), ("go", "VERB")]
    parser = mm.DependencyParser(n_features=64).fit([sentence], [[2, 0]])
    assert "<script" not in written(tmp_path, parser, [sentence], [[0, 1]])


@pytest.mark.usefixtures("unplotted")
def test_labels_not_seen_in_training_are_mistakes(tmp_path):
    X, y = [[0.0], [1.0], [2.0]], ["a", "b", "c"]
    model = mm.LinearClassifier(C=10.0).fit(X, y)
    page = Page(written(tmp_path, model, X, ["a", "b", "new"]))
    assert any("was not seen in training" in text for text in page.text_in("h3"))
    assert "new" in page.text_in("dd")


@pytest.mark.usefixtures("unplotted")
def test_sets_as_zeros_and_ones(tmp_path):
    X, Y = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], np.array([[1, 0], [0, 1], [1, 1]])
    model = mm.MultilabelClassifier(C=10.0).fit(X, Y)
    page = Page(written(tmp_path, model, X, 1 - Y))
    assert "worst-mistakes" in sections_of(page)
    assert [text for tag, text in page.texts if tag in ("mark", "i")] == [*"1001", "none", *"01"]


def test_many_classes_are_cut_to_those_that_matter(tmp_path, monkeypatch):
    monkeypatch.setattr(page_module, "MAX_CLASSES", 2)
    X, y = np.eye(4), list("abcd")
    model = mm.LinearClassifier(C=10.0).fit(X, y)
    page = Page(written(tmp_path, model, X[[0, 1, 2, 2, 3]], list("abcdc")))
    assert "The 2 classes with the most mistakes." in page.text
    assert "the 2 most frequent of 4" in page.text
    assert "the first 2 of 4 classes" in page.text
    sides = [text for text in page.text_in("text") if text in list("abcd")]
    assert sorted(sides) == ["c", "c", "d", "d"]


@pytest.mark.usefixtures("unplotted")
def test_perfect_predictions_have_no_mistakes(tmp_path):
    X, y = [[0.0], [1.0]], ["a", "b"]
    page = Page(written(tmp_path, mm.LinearClassifier(C=100.0).fit(X, y), X, y))
    assert "worst-mistakes" not in sections_of(page)
    assert "Largest confusions" not in page.text


# What is wrong with a call, in one sentence


def test_estimators_must_be_fitted(tmp_path):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        write_report(mm.LinearClassifier(), tmp_path / "report.html")


def test_data_come_together(tmp_path):
    one = sample("classifier")
    with pytest.raises(ValueError, match="X is given without y: give the true outputs"):
        write_report(one.estimator, tmp_path / "report.html", one.X)
    with pytest.raises(ValueError, match="y is given without X: give the test"):
        write_report(one.estimator, tmp_path / "report.html", y=one.y)
    ranked = sample("ranker")
    with pytest.raises(ValueError, match="Ranker needs groups"):
        write_report(ranked.estimator, tmp_path / "report.html", ranked.X, ranked.y)
    assert not list(tmp_path.iterdir())


def test_words_must_fit(tmp_path):
    one = sample("tagger")
    with pytest.raises(ValueError, match="words has 1 entries for 20 examples"):
        write_report(one.estimator, tmp_path / "page.html", one.X, one.y, words=[["a"]])
    with pytest.raises(ValueError, match=r"words\[\d+\] has 1 entries, but there are \d labels"):
        write_report(one.estimator, tmp_path / "page.html", one.X, one.y, words=[["a"]] * 20)
    parsed = sample("dependencies")
    with pytest.raises(ValueError, match=r"words\[1\] has 1 entries, but there are 4 heads"):
        write_report(parsed.estimator, tmp_path / "page.html", parsed.X, words=["abcd", "a"])


def test_the_folder_must_exist(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"The folder '.*nowhere' does not exist: make it"):
        write_report(sample("classifier").estimator, tmp_path / "nowhere" / "page.html")


def test_matplotlib_is_named_where_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r'pip install "maxmargin\[report\]"'):
        write_report(sample("classifier").estimator, tmp_path / "page.html")
