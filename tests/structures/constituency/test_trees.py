"""Trees: brackets in and out, cleaning, scores, and what readers say to bad text."""

import os
import pickle
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from maxmargin.structures.constituency.formats import as_tree, cleaned, read_tree_file, read_trees
from maxmargin.structures.constituency.grammar import Tree, TreeError, bracket_scores, brackets

PENN = """
( (S
    (NP-SBJ-1 (NNP Mr.) (NNP Vinken) )
    (VP (VBZ is)
      (S (NP-SBJ (-NONE- *-1) )
        (NP-PRD=2 (NN chairman) ))
      (PRN (-LRB- -LCB-) (ADVP|PRT (RB now)) (-RRB- -RCB-)))
    (. .) ))
( (X (NP (-NONE- *) (NP-TMP (-NONE- *T*) )) (VB go) ) )
"""


class Nested(list):
    """As a tree of NLTK."""

    def __init__(self, label, children):
        super().__init__(children)
        self._label = label

    def label(self):
        return self._label


def one(text, **options):
    (tree,) = read_trees(text, **options)
    return tree


def test_penn_trees_are_read_and_cleaned():
    first, second = read_trees(PENN)
    assert str(first) == (
        "(S (NP (NNP Mr.) (NNP Vinken)) (VP (VBZ is) (S (NP (NN chairman))) "
        "(PRN (-LRB- -LCB-) (ADVP|PRT (RB now)) (-RRB- -RCB-))) (. .))"
    )
    assert str(second) == "(X (VB go))"
    assert first.words == ("Mr.", "Vinken", "is", "chairman", "-LCB-", "now", "-RCB-", ".")
    assert first.tags[4] == "-LRB-"


def test_what_is_written_is_read_again():
    for tree in read_trees(PENN, clean=False):
        assert one(str(tree), clean=False) == tree
        assert as_tree(tree) is tree
    assert "-NONE-" in str(one("(S (NP (-NONE- *)) (VB go))", clean=False))


def test_trees_are_values():
    tree = one("(S (NP (NN dogs)) (VP (VB bark)))")
    assert tree == one(" ( S\n(NP (NN dogs))\t(VP (VB bark)) ) ")
    assert len({tree, one(str(tree))}) == 1
    assert pickle.loads(pickle.dumps(tree)) == tree
    with pytest.raises(AttributeError):
        tree.label = "X"


def test_brackets_without_a_label():
    assert str(one("((S (NN a)))")) == "(S (NN a))"
    assert str(one("((NN a) (NN b))")) == "(ROOT (NN a) (NN b))"


def test_trees_of_nltk():
    tree = Nested("", [Nested("S", [Nested("NP-SBJ", [Nested("NN", ["dogs"])])])])
    assert str(as_tree(tree)) == "(S (NP (NN dogs)))"
    assert as_tree(tree[0]) == as_tree(tree)


def test_file(tmp_path):
    path = tmp_path / "some.mrg"
    path.write_text(PENN)
    assert read_tree_file(path) == read_trees(PENN)
    assert read_tree_file(path, clean=False) == read_trees(PENN, clean=False)
    path.write_text("(S (NN a))\n\n(S (NN b)")
    with pytest.raises(TreeError, match=r"some\.mrg, line 3: the tree that begins here has no end"):
        read_tree_file(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(S (NN a))\n)", "line 2: a closing bracket stands outside"),
        ("(S (NN a))\nword", "line 2: 'word' stands outside"),
        ("\n(S\n(NN a)", "line 2: the tree that begins here has no end"),
        ("(S (NP ))", "line 1: The node 'NP' has no children"),
        ("()", "line 1: brackets with nothing in them"),
        ("(S ((NN a)))", "line 1: brackets inside of a tree begin without a label"),
        ("(S\n (NP the dog))", "line 2: The word 'the' is not the only child of 'NP'"),
        ("(S (NN a) b)", "line 1: The word 'b' is not the only child of 'S'"),
        ("(S (NP (-NONE- *)))", "line 1: nothing is left of the tree without its traces"),
    ],
)
def test_bad_text(text, message):
    with pytest.raises(TreeError, match=message) as caught:
        read_trees(text, source="the text")
    assert str(caught.value).startswith("the text, line")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("", "holds 0 trees"),
        ("(S (NN a)) (S (NN b))", "holds 2 trees"),
        (3, "A int is no tree"),
        (Nested("S", []), "'S' has no children"),
        (Nested("S", [Nested("NN", ["a", "b"])]), "'a' is not the only child"),
    ],
)
def test_bad_trees(given, message):
    with pytest.raises(TreeError, match=message):
        as_tree(given)


@pytest.mark.parametrize(
    ("label", "children", "message"),
    [
        ("", ("a",), "label ''"),
        (3, ("a",), "label 3"),
        ("S", (), "has no children"),
        ("S", ["a"], "a tuple"),
        ("S", (3,), "must be trees"),
    ],
)
def test_bad_nodes(label, children, message):
    with pytest.raises(TreeError, match=message):
        Tree(label, children)


def test_cleaning():
    assert cleaned(one("(-NONE- *)", clean=False)) is None
    assert str(cleaned(one("(S-1=2 (PRP$ his) (NN-X a=b-c))", clean=False))) == (
        "(S (PRP$ his) (NN a=b-c))"
    )


def test_brackets():
    tree = one("(S (NP (NP (NN a)) (, ,)) (PRN (: --)) (VP (VB b)))")
    assert brackets(tree) == Counter(
        [("S", 0, 4), ("NP", 0, 2), ("NP", 0, 1), ("PRN", 2, 3), ("VP", 3, 4)]
    )
    assert brackets(tree, frozenset({",", ":"})) == Counter(
        {("S", 0, 2): 1, ("NP", 0, 1): 2, ("VP", 1, 2): 1}
    )


def test_bracket_scores():
    y_true = read_trees("(S (NP (NP (NN a)))) (S (NP (NN a) (, ,)) (VP (VB b)))")
    found = read_trees("(S (NP (NN a))) (S (NP (NN a)) (, ,) (VP (VB b)))")
    scores = bracket_scores(y_true, found)
    assert scores.precision == 1.0
    assert scores.recall == 5 / 6
    assert scores.f1 == 10 / 11
    assert scores.exact == 0.5
    assert bracket_scores(y_true, found, frozenset()).f1 == 8 / 11
    assert bracket_scores([], []) == (1.0, 1.0, 1.0, 0.0)
    with pytest.raises(ValueError):
        bracket_scores(y_true, found[:1])


def test_the_sample_of_the_penn_treebank():
    path = Path(os.environ.get("MAXMARGIN_DATA", "")) / "treebank" / "treebank.zip"
    if not path.is_file():
        pytest.skip("MAXMARGIN_DATA does not hold treebank")
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith(".mrg")]
        trees = [tree for name in names for tree in read_trees(archive.read(name).decode())]
    assert (len(names), len(trees)) == (199, 3914)
    assert sum(len(tree.words) for tree in trees) == 94_084
    labels = {label for tree in trees for label, _, _ in brackets(tree)}
    assert len(labels) == 27  # ADVP|PRT among them
