"""GrammarParser: what goes in, what comes out, and what it says to bad input."""

import os
import pickle
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import maxmargin as mm
from maxmargin.structures.constituency.estimator import GrammarParser
from maxmargin.structures.constituency.formats import read_trees
from maxmargin.structures.constituency.grammar import (
    Grammar,
    GrammarError,
    Sentence,
    TreeError,
    bracket_scores,
    brackets,
)
from maxmargin.structures.constituency.predictor import UnparsedWarning
from maxmargin.structures.constituency.problem import GrammarModel

BANK = """
(S (NP (PRP I)) (VP (VBD saw) (NP (DT a) (NN man)) (PP (IN with) (NP (DT a) (NN telescope)))))
(S (NP (PRP I)) (VP (VBD saw) (NP (NP (DT a) (NN man)) (PP (IN in) (NP (NN town))))))
(S (NP (DT the) (JJ big) (NN dog)) (VP (VBZ barks)))
(S (NP (NP (DT the) (NN dog)) (PP (IN in) (NP (NN town)))) (VP (VBZ barks)))
(S (VP (VB stop)))
(FRAG (NP (NN town)))
(S (NP (PRP I)) (VP (VBD saw) (SBAR (IN that) (S (NP (DT the) (NN dog)) (VP (VBD ran))))))
"""
LINES = BANK.strip().splitlines()
TREES = read_trees(BANK)
PAIRS = [list(zip(tree.words, tree.tags, strict=True)) for tree in TREES]
TAGS = [list(tree.tags) for tree in TREES]
WORDS = [list(tree.words) for tree in TREES]


class Nested(list):
    """As a tree of NLTK."""

    def __init__(self, tree):
        super().__init__(
            child if isinstance(child, str) else Nested(child) for child in tree.children
        )
        self._label = tree.label

    def label(self):
        return self._label


@pytest.fixture(scope="module")
def parser():
    return GrammarParser(C=10.0).fit(TREES)


def test_it_learns_and_certifies(parser):
    assert parser.status_ == "converged"
    assert parser.certificate_.relative_gap <= 1e-3
    assert parser.coef_.shape == (len(parser.grammar_.rule_names),)
    assert parser.score(TREES) > 0.9
    assert parser.score(PAIRS, TREES) == parser.score(TREES)


@pytest.mark.parametrize("loss", ["brackets", "zero-one"])
@pytest.mark.parametrize("solver", ["auto", "n-slack", "one-slack"])
def test_solvers_and_losses(loss, solver):
    found = GrammarParser(C=1.0, loss=loss, solver=solver).fit(TREES)
    other = GrammarParser(C=1.0, loss=loss, solver="dual-coordinate").fit(TREES)
    assert found.certificate_.dual <= other.certificate_.primal * (1 + 1e-9)
    assert found.certificate_.primal >= other.certificate_.dual * (1 - 1e-9)


@pytest.mark.parametrize("X", [LINES, TREES, PAIRS, TAGS, [Nested(tree) for tree in TREES]])
def test_forms_of_sentences(parser, X):
    again = GrammarParser(C=10.0).fit(X, LINES)
    assert_array_equal(again.coef_, parser.coef_)
    expected = parser.predict(TREES)
    found = parser.predict(X)
    assert [tree.tags for tree in found] == [tree.tags for tree in expected]
    assert [brackets(tree) for tree in found] == [brackets(tree) for tree in expected]
    if X is not TAGS:  # tags have no words
        assert found == expected


def test_scores_are_sums_of_the_named_weights(parser):
    weights = dict(zip(parser.grammar_.rule_names, parser.coef_, strict=True))
    (tree,) = parser.predict(
        [[("I", "PRP"), ("ran", "VBD"), ("a", "DT"), ("big", "JJ"), ("x", "NN")]]
    )
    assert str(tree) == "(S (NP (PRP I)) (VP (VBD ran) (NP (DT a) (JJ big) (NN x))))"
    used = [
        "start -> S", "S -> NP VP", "NP -> PRP", "VP -> VBD NP",
        "NP -> NP[..DT JJ] NN", "NP[..DT JJ] -> DT JJ",
    ]  # fmt: skip
    expected = sum(weights[name] for name in used)
    assert parser.decision_function([tree])[0] == pytest.approx(expected)


def test_top(parser):
    for x, answers in zip(TREES, parser.predict_k_best(TREES, 4), strict=True):
        trees, scores = zip(*answers, strict=True)
        assert len(set(trees)) == len(trees) <= 4
        assert list(scores) == sorted(scores, reverse=True)
        assert scores[0] == pytest.approx(parser.decision_function([x])[0])
        assert parser.predict_k_best([x], 1)[0][0][0] == trees[0]
    assert max(len(answers) for answers in parser.predict_k_best(TREES, 4)) > 1


def test_marginals(parser):
    labels = parser.grammar_.labels
    for tree, marginals in zip(TREES, parser.predict_marginals(TREES), strict=True):
        n = len(tree.words)
        assert marginals.shape == (n, n + 1, len(labels))
        assert (marginals >= 0.0).all()
        assert not marginals[np.tril_indices(n)].any()
        assert marginals[0, n].sum() >= 1.0 - 1e-12
    top = [[*answers, (None, -np.inf)] for answers in parser.predict_k_best(TREES, 2)]
    clear = [answers[0][0] for answers in top if answers[0][1] > answers[1][1] + 0.1]
    assert len(clear) >= 4
    cold = parser.predict_marginals(clear, temperature=1e-3)
    for tree, marginals in zip(clear, cold, strict=True):
        expected = np.zeros_like(marginals)
        for (label, start, stop), count in brackets(tree).items():
            expected[start, stop, labels.index(label)] = count
        assert_allclose(marginals, expected, atol=1e-6)


def test_words_with_predicted_tags():
    parser = GrammarParser(C=10.0, tags="predicted", min_count=1).fit(WORDS, TREES)
    assert parser.score(WORDS, TREES) > 0.9
    (tree,) = parser.predict([["the", "dog", "ran"]])
    assert str(tree) == "(S (NP (DT the) (NN dog)) (VP (VBD ran)))"
    with pytest.raises(GrammarError, match="other words than the sentence"):
        GrammarParser(tags="predicted").fit(WORDS[::-1], TREES)


def test_one_word():
    parser = GrammarParser().fit(["(S (VB go))", "(NP (NN dog))"])
    assert [str(tree) for tree in parser.predict([["VB"], ["NN"]])] == [
        "(S (VB VB))",
        "(NP (NN NN))",
    ]
    assert str(GrammarParser().fit(["(UH yes)"]).predict([[("no", "UH")]])[0]) == "(UH no)"


def test_markovisation():
    exact = GrammarParser(horizontal=None, vertical=2).fit(TREES)
    assert "S -> NP^S VP^S" in exact.grammar_.rule_names
    small = GrammarParser(horizontal=0).fit(TREES)
    assert "NP[..] -> DT JJ" in small.grammar_.rule_names
    assert small.grammar_.rules.n_symbols < exact.grammar_.rules.n_symbols


def test_maximum_likelihood_weights_give_probabilities(parser):
    grammar = parser.grammar_
    model = GrammarModel(grammar, grammar.log_probabilities())
    _, score = model.k_best([Sentence(("stop",), ("VB",))], 1)[0][0]
    # start -> S in 6 of 7, S -> VP in 1 of 7, VP -> VB in 1 of 7.
    assert score == pytest.approx(np.log(6 / 7 * 1 / 7 * 1 / 7))


def test_threads_do_not_matter(parser):
    other = GrammarParser(C=10.0, n_jobs=3).fit(TREES)
    assert_array_equal(other.coef_, parser.coef_)
    assert other.predict(TREES) == parser.predict(TREES)


def test_sample_weights_and_warm_starts():
    doubled = GrammarParser(C=1.0, tol=1e-6).fit(TREES + TREES)
    weighted = GrammarParser(C=1.0, tol=1e-6).fit(TREES, sample_weight=[2.0] * len(TREES))
    assert weighted.certificate_.primal == pytest.approx(doubled.certificate_.primal, rel=1e-5)
    with pytest.raises(ValueError, match=r"sample_weight\[0\] is -1"):
        GrammarParser().fit(TREES, sample_weight=[-1.0] * len(TREES))
    warm = GrammarParser(C=1.0, warm_start=True).fit(TREES)
    first = warm.history_[-1].oracle_calls
    warm.fit(TREES)
    assert warm.history_[-1].oracle_calls < first


def test_a_grammar_without_binary_rules_comes_back_from_a_file(tmp_path):
    parser = GrammarParser().fit(["(S (VP (VB stop)))", "(FRAG (NP (NN town)))"])
    mm.save(parser, tmp_path / "model.mm")
    sentences = [[("stop", "VB")], [("town", "NN")]]
    assert mm.load(tmp_path / "model.mm").predict(sentences) == parser.predict(sentences)


def test_clone_pickle_and_refit(parser):
    assert clone(parser).get_params() == parser.get_params()
    again = pickle.loads(pickle.dumps(parser))
    assert again.predict(TREES) == parser.predict(TREES)
    with pytest.raises(NotFittedError):
        clone(parser).predict(TREES)


def test_stopping_early_is_said():
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        parser = GrammarParser(C=100.0, max_iter=1).fit(TREES)
    assert parser.status_ == "max_iter"


def test_sentences_without_a_tree(parser):
    with pytest.warns(UnparsedWarning, match="1 of 2 .* sentence 1: no rule goes with its tag 'Q'"):
        trees = parser.predict([TAGS[0], [("a", "DT"), ("b", "Q")]])
    assert str(trees[1]) == "(S (DT a) (Q b))"
    with pytest.warns(UnparsedWarning, match="sentence 0: its rules do not fit"):
        assert parser.decision_function([["VB", "DT"]])[0] == -np.inf
    with pytest.warns(UnparsedWarning):
        assert [score for _, score in parser.predict_k_best([["VB", "DT"]], 3)[0]] == [-np.inf]
    assert not parser.predict_marginals([["VB", "DT"]])[0].any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parser.predict(TREES)


def test_a_given_grammar():
    grammar = Grammar.read(TREES, vertical=2)
    parser = GrammarParser(grammar=grammar).fit(TREES[:3])
    assert parser.grammar_ is grammar
    with pytest.raises(GrammarError, match=r"tree of sentence 1 cannot be trained on.*no tag 'Q'"):
        GrammarParser(grammar=grammar).fit([TREES[0], "(S (Q a))"])


def test_results_do_not_depend_on_the_hash_seed(parser):
    names = parser.grammar_.rule_names
    assert names == GrammarParser(C=10.0).fit(TREES[::-1]).grammar_.rule_names


@pytest.mark.parametrize(
    ("X", "y", "error", "message"),
    [
        ([], None, ValueError, "X is empty"),
        (TREES[0], None, TreeError, "must come in a list"),
        (LINES[0], None, TreeError, "must come in a list"),
        ([LINES[0], "(S (NN a)"], None, TreeError, "Tree 1: .*has no end"),
        ([LINES[0], 3], None, TreeError, "Tree 1: A int is no tree"),
        (["(S (-NONE- *))"], None, TreeError, "Tree 0: .*nothing is left"),
        (PAIRS[:2], TREES, ValueError, "X has 2 sentences but y has 7 trees"),
        ([*PAIRS[:1], []], TREES[:2], ValueError, "Sentence 1 is empty"),
        (
            [[("a", "b", "c")]],
            TREES[:1],
            ValueError,
            "Sentence 0 must be a list of .word, tag. pairs",
        ),
        ([[3]], TREES[:1], ValueError, "Sentence 0 must be a list"),
        (PAIRS[1:2], TREES[:1], GrammarError, "sentence 0 has other tags than the sentence"),
    ],
)
def test_bad_input(X, y, error, message):
    with pytest.raises(error, match=message) as caught:
        GrammarParser().fit(X, y)
    assert "\n" not in str(caught.value)


def test_bad_questions(parser):
    with pytest.raises(ValueError, match="must come in a list"):
        parser.predict(LINES[0])
    with pytest.raises(ValueError, match="Sentence 0 is empty"):
        parser.predict([[]])
    with pytest.raises(ValueError, match="k must be at least 1, but is 0"):
        parser.predict_k_best(TREES, 0)
    with pytest.raises(ValueError, match="temperature must be positive, but is 0"):
        parser.predict_marginals(TREES, temperature=0.0)
    with pytest.raises(ValueError, match="X has 1 sentences but y has 7 trees"):
        parser.score(PAIRS[:1], TREES)
    for bad in ({"horizontal": -1}, {"vertical": 0}, {"loss": "f1"}, {"tags": "none"}, {"C": 0.0}):
        with pytest.raises(ValueError, match=f"'{next(iter(bad))}' parameter"):
            GrammarParser(**bad).fit(TREES)


@pytest.mark.slow
def test_it_beats_maximum_likelihood_on_the_penn_treebank():
    path = Path(os.environ.get("MAXMARGIN_DATA", "")) / "treebank" / "treebank.zip"
    if not path.is_file():
        pytest.skip("MAXMARGIN_DATA does not hold treebank")
    with zipfile.ZipFile(path) as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".mrg"))
        texts = [archive.read(name).decode() for name in names]
    short = [[tree for tree in read_trees(text) if len(tree.words) <= 15] for text in texts]
    train = [tree for trees in short[:159] for tree in trees]
    test = [tree for trees in short[159:] for tree in trees]
    parser = GrammarParser(C=1.0, tol=1e-2, solver=mm.Auto()).fit(train)
    assert parser.certificate_.relative_gap <= 1e-2
    likely = clone(parser).set_params(max_iter=1)
    likely.grammar_, likely.coef_ = parser.grammar_, parser.grammar_.log_probabilities()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnparsedWarning)
        found, baseline = parser.score(test), likely.score(test)
        assert found == bracket_scores(test, parser.predict(test)).f1
    assert baseline > 0.75
    assert found > baseline
