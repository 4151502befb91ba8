"""Scores of labels and chunks, counted by hand; strongest features; drawings of trees."""

import numpy as np
import pytest

import maxmargin as mm
from maxmargin.report.answers import (
    Answers,
    chunk_scores,
    class_scores,
    largest_confusions,
    look_like_chunks,
    strongest,
    weight_rows,
    worst,
)
from maxmargin.report.markup import Markup, escaped, number, plural, table, tag, text_width
from maxmargin.structures.constituency.formats import as_tree
from maxmargin.structures.constituency.report import TreeAnswers, drawn_pair
from maxmargin.structures.dependency.report import Arcs, drawn_arcs


@pytest.mark.parametrize(
    ("y_true", "said", "f1"),
    [
        ("B-NP I-NP O B-VP", "B-NP O O I-VP", 2 * 1 / (2 + 2)),  # an I- after O starts a chunk
        ("B-NP B-NP", "B-NP I-NP", 0.0),
        ("I-NP I-VP I-VP", "B-NP B-VP I-VP", 1.0),  # and so does one of another kind
        ("B-NP I-NP I-NP", "B-NP I-NP O", 0.0),
        ("O O", "O B-PP", 0.0),
        ("B-PP O B-NP I-NP", "B-PP B-PP B-NP I-NP", 2 * 2 / (2 + 3)),
    ],
)
def test_chunks_by_the_rules_of_conlleval(y_true, said, f1):
    assert chunk_scores([y_true.split()], [said.split()])[-1].f1 == pytest.approx(f1)


def test_chunks_of_each_kind():
    y_true = [["B-NP", "I-NP", "O"], ["B-VP", "B-NP"]]
    said = [["B-NP", "I-NP", "B-VP"], ["B-VP", "O"]]
    np_row, vp_row, total = chunk_scores(y_true, said)
    assert np_row == ("NP", 1.0, 0.5, 2 / 3, 2)
    assert vp_row == ("VP", 0.5, 1.0, 2 / 3, 1)
    assert total[1:] == (2 / 3, 2 / 3, 2 / 3, 3)


@pytest.mark.parametrize("names", [["O"], [1, 2], ["B-", "O"], ["B-NP", "NOUN"], []])
def test_other_labels_are_no_chunks(names):
    assert not look_like_chunks(names)


def test_class_scores_by_hand():
    y_true, said = np.array(list("aabbc")), np.array(list("abbbd"))
    rows = {row.name: row[1:] for row in class_scores(y_true, said)}
    assert rows["a"] == (1.0, 0.5, pytest.approx(2 / 3), 2)
    assert rows["b"] == (pytest.approx(2 / 3), 1.0, pytest.approx(0.8), 2)
    assert rows["c"] == (0.0, 0.0, 0.0, 1)
    assert rows["d"] == (0.0, 0.0, 0.0, 0)
    assert largest_confusions(y_true, said, 1) == [("a", "b", 1)]


def test_the_worst_come_first_and_ties_decide():
    losses = np.array([0.0, 2.0, 1.0, 2.0])
    assert worst(losses, 9) == [1, 3, 2]
    assert worst(losses, 2, np.array([0.0, -5.0, 0.0, -3.0])) == [3, 1]


def test_strongest_features():
    weights = np.array([0.0, 3.0, -1.0, 1e-12, 2.0, -4.0])
    assert strongest(weights, 2) == ([1, 4], [5, 2])
    assert strongest(weights, 10) == ([1, 4], [5, 2])
    assert strongest(np.zeros(3), 2) == strongest(np.zeros(0), 2) == ([], [])


def test_weights_of_two_classes_are_those_of_the_positive_one():
    X, y = [[0.0], [1.0], [2.0]], ["yes", "no", "no"]
    ((name, _),) = weight_rows(mm.LinearClassifier().fit(X, y))
    assert name == "yes"
    ((name, weights),) = weight_rows(mm.PerformanceClassifier(pos_label="no").fit(X, y))
    assert name == "no"
    assert weights[0] > 0
    assert Answers(mm.LinearClassifier().fit(X, y)).feature_names() is None


def test_features_of_dictionaries_have_names():
    X, y = [[{"word": "the"}, {"word": "dog"}]], [["DET", "NOUN"]]
    tagger = mm.SequenceTagger().fit(X, y)
    assert Answers(tagger).feature_names() == ["word=the", "word=dog"]


def test_rules_of_a_grammar_have_names():
    parser = mm.GrammarParser().fit(["(S (NP (NN dogs)) (VP (VB bark)))"])
    names = TreeAnswers(parser).feature_names()
    assert "S -> NP VP" in names
    assert len(names) == len(weight_rows(parser)[0][1])


# Drawings


def test_only_nodes_that_differ_are_marked():
    y_true = as_tree("(S (NP (NP (DT a) (NN b)) (PP (IN c) (NN d))) (VB e))")
    other = as_tree("(S (NP (DT a) (NN b)) (PP (IN c) (NN d)) (VBZ e))")
    above, below = drawn_pair(y_true, other)
    assert above.count("<rect") == 2  # the NP over four words, and the tag of the last
    assert below.count("<rect") == 1
    assert str(y_true) in above
    same, _ = drawn_pair(y_true, y_true)
    assert "<rect" not in same
    assert same.count("<text") == 5 + 5 + 4


def test_a_bracket_that_stands_twice_is_marked_once():
    above, _ = drawn_pair(as_tree("(S (NP (NP (NN a))))"), as_tree("(S (NP (NN a)))"))
    assert above.count("<rect") == 1


def test_arcs_that_differ_in_head_or_label_are_marked():
    y_true, said = Arcs([2, 0, 2], ["a", "root", "b"]), Arcs([2, 0, 1], ["c", "root", "b"])
    assert y_true.differences(said) == [True, False, True]
    drawn = drawn_arcs(["x", "y", "z"], None, y_true, said)
    assert drawn.count('class="arc different"') == 4
    assert drawn.count('class="arc"') == 2
    assert "x to y; y to the root; z to y" in drawn
    assert Arcs([2, 0]).differences(Arcs([2, 0], ["a", "b"])) == [False, False]


def test_wide_letters_take_more_room():
    assert text_width("日本") == text_width("abcd")


# Markup


def test_markup_escapes_once():
    assert tag("p", "<", Markup("<b>x</b>"), None, id='"') == '<p id="&quot;">&lt;<b>x</b></p>'
    assert escaped(escaped("&")) == "&amp;"
    assert escaped("a\x07\ud800") == "a\N{REPLACEMENT CHARACTER}?"


def test_tables_align_numbers_and_name_rows():
    made = table("What", ["name", "n", "text"], [["<x>", 3, "y"]])
    assert '<th scope="row" class="brief">&lt;x&gt;</th>' in made
    assert '<td class="number">3</td><td>y</td>' in made
    assert '<th scope="col" class="number">n</th>' in made


def test_numbers_are_short():
    assert [number(x) for x in (1234567, 0.123456, 123456.7, float("nan"), -float("inf"))] == [
        "1,234,567",
        "0.1235",
        "123,457",
        "unknown",
        "minus infinite",
    ]


def test_counts_with_their_nouns():
    counts = [plural(1, "class"), plural(2, "query"), plural(3000, "match"), plural(0, "graph")]
    assert counts == ["1 class", "2 queries", "3,000 matches", "0 graphs"]
