"""DependencyParser: what goes in, what comes out, and what it says to bad input."""

import os
import pickle
import warnings
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from maxmargin.structures.dependency.estimator import DependencyParser
from maxmargin.structures.dependency.formats import (
    DependencySentence,
    read_conllu,
    read_dp,
    write_conllu,
)
from maxmargin.structures.dependency.inference import best_tree

DATA = Path(os.environ.get("MAXMARGIN_DATA", ""))

NOUNS, VERBS = ["dog", "cat", "man", "house"], ["sees", "likes", "hits"]


def language(n=40, seed=0):
    """Sentences of a small grammar: determiners, adjectives and prepositions on nouns, one verb."""
    random = np.random.default_rng(seed)
    sentences = []
    for _ in range(n):
        words, tags, heads, labels = [], [], [], []

        def phrase(label, depth=0, words=words, tags=tags, heads=heads, labels=labels):
            first = len(words)
            for word, tag, relation in (("the", "DET", "det"), ("big", "ADJ", "amod")):
                if random.random() < 0.5:
                    words.append(word)
                    tags.append(tag)
                    heads.append(None)
                    labels.append(relation)
            words.append(str(random.choice(NOUNS)))
            tags.append("NOUN")
            heads.append(None)
            labels.append(label)
            noun = len(words)
            heads[first : noun - 1] = [noun] * (noun - 1 - first)
            if depth < 1 and random.random() < 0.3:
                words.append("near")
                tags.append("ADP")
                heads.append(noun)
                labels.append("prep")
                place = len(words)
                inner = phrase("pobj", depth + 1)
                heads[inner - 1] = place
            return noun

        subject = phrase("nsubj")
        words.append(str(random.choice(VERBS)))
        tags.append("VERB")
        heads.append(0)
        labels.append("root")
        verb = len(words)
        heads[subject - 1] = verb
        if random.random() < 0.8:
            heads[phrase("obj") - 1] = verb
        sentences.append(DependencySentence(tuple(words), tuple(tags), tuple(heads), tuple(labels)))
    return sentences


SENTENCES = language()
X = [list(zip(one.words, one.tags, strict=True)) for one in SENTENCES]
HEADS = [list(one.heads) for one in SENTENCES]
TREES = [(list(one.heads), list(one.labels)) for one in SENTENCES]
FRESH = language(20, seed=1)
SMALL = {"n_features": 2**12}


@pytest.fixture(scope="module")
def parser():
    return DependencyParser(tol=1e-2, **SMALL).fit(X, HEADS)


@pytest.fixture(scope="module")
def labelled():
    return DependencyParser(labelled=True, structure="non-projective", tol=1e-2, **SMALL).fit(
        SENTENCES
    )


def test_it_learns_and_certifies(parser, labelled):
    assert parser.score(FRESH) > 0.95
    assert labelled.score(FRESH) > 0.9
    for one in (parser, labelled):
        assert one.certificate_.relative_gap <= 1e-2
        assert one.status_ == "converged"
    assert parser.coef_.shape == (2**12,)
    assert labelled.label_coef_.shape == (2**8, 7)
    assert labelled.labels_.tolist() == ["amod", "det", "nsubj", "obj", "pobj", "prep", "root"]
    assert set(parser.tags_) == {"DET", "ADJ", "NOUN", "VERB", "ADP"}


def test_forms_of_input_are_the_same_data(parser, tmp_path):
    text = write_conllu(SENTENCES)
    path = tmp_path / "train.conllu.xz"
    write_conllu(SENTENCES, path)
    dp = tmp_path / "train.dp"
    lines = [
        "\n".join(f"{w}\t{t}\t{h}" for w, t, h, _ in zip(*one, strict=True)) for one in SENTENCES
    ]
    dp.write_text("\n\n".join(lines))
    tuples = [tuple(map(list, one)) for one in X]
    arrays = [np.array(heads, dtype=np.int32) for heads in HEADS]
    for data in ((SENTENCES,), (text,), (path,), (str(path),), (dp,), (tuples, arrays), (X, TREES)):
        other = DependencyParser(tol=1e-2, **SMALL).fit(*data)
        np.testing.assert_array_equal(other.coef_, parser.coef_)
        assert other.score(*data) == parser.score(X, HEADS)
    fresh = write_conllu(FRESH)
    for one, other in zip(parser.predict(fresh), parser.predict(FRESH), strict=True):
        np.testing.assert_array_equal(one, other)


def test_tags_of_either_column():
    text = write_conllu(SENTENCES).replace("\tNOUN\t_", "\tNOUN\tNN")
    assert "NN" in DependencyParser(tag="xpos", tol=1e-2, **SMALL).fit(text).tags_


def test_predictions_are_trees_of_the_structure(parser, labelled):
    for one in (parser, labelled):
        for sentence, found in zip(FRESH, one.predict(FRESH), strict=True):
            heads = found.heads if one is labelled else found
            assert heads.shape == (len(sentence.words),)
            assert (heads == 0).sum() == 1
    found = labelled.predict(FRESH)[0]
    assert len(found.labels) == len(found.heads)
    read = read_conllu(write_conllu([(*FRESH[0][:2], *found)]))
    assert read[0].heads == tuple(found.heads)
    assert read[0].labels == tuple(found.labels)


def test_scores_marginals_and_top_agree(parser, labelled):
    some = FRESH[:8]
    for one, projective in ((parser, True), (labelled, False)):
        scores, trees = one.decision_function(some), one.predict(some)
        top = one.predict_k_best(some, 3)
        cold = one.predict_marginals(some, temperature=1e-2)
        for i, sentence in enumerate(some):
            heads = trees[i].heads if one is labelled else trees[i]
            arcs = one._arcs([sentence]).arc_scores(one._weights, 0)
            assert best_tree(arcs, projective=projective)[1] == pytest.approx(scores[i])
            assert top[i][0][1] == pytest.approx(scores[i])
            np.testing.assert_array_equal(top[i][0][0], heads)
            assert [score for _, score in top[i]] == sorted(
                (score for _, score in top[i]), reverse=True
            )
            np.testing.assert_allclose(cold[i][:, 1:].sum(axis=0), 1.0, atol=1e-6)
            if scores[i] - top[i][1][1] > 0.1:
                assert cold[i][heads, np.arange(1, len(heads) + 1)].min() > 0.9
        warm = one.predict_marginals(some, temperature=1.0)
        assert all(((m >= -1e-9) & (m <= 1 + 1e-9)).all() for m in warm)


def test_score_counts_heads_labels_and_tags(parser, labelled):
    wrong = [one._replace(labels=("never",) * len(one.words)) for one in FRESH]
    assert labelled.score(wrong) == 0.0
    assert parser.score(wrong) == parser.score(FRESH)
    by_hand = np.mean(
        [
            h == g
            for one, found in zip(FRESH, parser.predict(FRESH), strict=True)
            for g, h, tag in zip(one.heads, found, one.tags, strict=True)
            if tag != "DET"
        ]
    )
    assert parser.score(FRESH, ignore_tags={"DET"}) == by_hand


def test_unseen_words_tags_and_labels(parser):
    strange = [[("zebra", "X"), ("the", "DET"), ("", "")]]
    assert parser.predict(strange)[0].shape == (3,)


def test_one_word_and_none(parser):
    found = parser.predict([[("Go", "VERB")], [], [("the", "DET"), ("dog", "NOUN")]])
    assert found[0].tolist() == [0]
    assert found[1].tolist() == []
    assert sorted(found[2]) in ([0, 1], [0, 2])
    assert parser.predict([]) == []
    assert parser.score([[]], [[]]) == 1.0
    assert [m.shape for m in parser.predict_marginals([[], [("Go", "VERB")]])] == [(1, 1), (2, 2)]
    tiny = DependencyParser(tol=1e-2, **SMALL).fit([[("Go", "VERB")], []], [[0], []])
    assert tiny.certificate_.primal == 0.0


def test_several_roots_where_allowed():
    trees = [[0] * len(one) for one in X]
    parser = DependencyParser(single_root=False, tol=1e-2, **SMALL).fit(X, trees)
    assert parser.score(X, trees) == 1.0


CROSSING = [*X[:3], [("a", "DET"), ("b", "NOUN"), ("c", "NOUN"), ("d", "VERB")]]
CROSSED = [*HEADS[:3], [3, 0, 2, 2]]


def test_crossing_arcs_are_refused_lifted_or_learned():
    with pytest.raises(ValueError, match="Sentence 3: the tree is not projective"):
        DependencyParser(tol=1e-2, **SMALL).fit(CROSSING, CROSSED)
    lifted = DependencyParser(projectivize=True, tol=1e-2, **SMALL).fit(CROSSING, CROSSED)
    assert lifted.n_projectivized_ == 1
    free = DependencyParser(structure="non-projective", C=100.0, tol=1e-2, **SMALL).fit(
        CROSSING, CROSSED
    )
    assert free.predict(CROSSING)[3].tolist() == [3, 0, 2, 2]
    assert free.n_projectivized_ == 0


def one_hot(sentence):
    """Features by the tags of head and modifier, and the direction."""
    tags = ["ROOT", *(tag for _, tag in sentence)]
    names = ["ROOT", "DET", "ADJ", "NOUN", "VERB", "ADP"]
    n = len(tags)
    features = np.zeros((n, n, 2 * len(names) ** 2))
    for h, m in product(range(n), repeat=2):
        at = names.index(tags[h]) * len(names) + names.index(tags[m])
        features[h, m, 2 * at + (h < m)] = 1.0
    return features


@pytest.mark.parametrize("use_labels", [False, True])
def test_features_of_ones_own(use_labels):
    options = {"labelled": use_labels, "tol": 1e-3}
    called = DependencyParser(features=one_hot, **options).fit(SENTENCES)
    arrays = [one_hot(one) for one in X]
    given = DependencyParser(**options).fit(arrays, TREES)
    np.testing.assert_array_equal(called.coef_, given.coef_)
    assert called.coef_.shape == (72,)
    assert called.score(FRESH) > 0.7
    assert given.score(arrays, TREES) == called.score(SENTENCES)
    assert len(called.predict(FRESH)) == len(FRESH)
    assert hasattr(called, "label_coef_") == use_labels
    if use_labels:
        assert called.label_coef_.shape == (72, 7)
    for i, marginals in enumerate(given.predict_marginals(arrays[:3])):
        np.testing.assert_allclose(marginals[:, 1:].sum(axis=0), np.ones(len(X[i])))


@pytest.mark.parametrize("solver", ["auto", "dual-coordinate", "n-slack", "one-slack"])
def test_solvers_agree(solver, parser):
    other = DependencyParser(solver=solver, tol=1e-3, **SMALL).fit(X, HEADS)
    assert other.certificate_.dual <= parser.certificate_.primal
    assert other.certificate_.primal == pytest.approx(parser.certificate_.primal, rel=1.1e-2)


def test_threads_do_not_change_the_answer(parser, labelled):
    for one in (parser, labelled):
        two = clone(one).set_params(n_jobs=2).fit(SENTENCES)
        np.testing.assert_array_equal(two.coef_, one.coef_)


def test_warm_start_goes_on():
    parser = DependencyParser(warm_start=True, tol=1e-3, **SMALL).fit(SENTENCES)
    first = parser.history_[-1].oracle_calls
    parser.fit(SENTENCES)
    assert parser.history_[-1].oracle_calls < first / 2


def test_warm_starts_forget_trees_of_another_structure():
    options = {"structure": "non-projective", "single_root": False, "C": 0.1, **SMALL}
    parser = DependencyParser(warm_start=True, tol=1e-2, **options).fit(SENTENCES)
    narrow = {"structure": "projective", "single_root": True}
    parser.set_params(**narrow).fit(SENTENCES)
    cold = DependencyParser(tol=1e-2, **options).set_params(**narrow).fit(SENTENCES)
    assert parser.certificate_.dual <= cold.certificate_.primal
    assert parser.certificate_.primal >= cold.certificate_.dual


def test_sample_weight_is_repetition():
    times = 1 + np.arange(len(X)) % 3
    weighted = DependencyParser(tol=1e-4, **SMALL).fit(X, HEADS, sample_weight=times)
    repeated = DependencyParser(tol=1e-4, **SMALL).fit(
        [x for x, k in zip(X, times, strict=True) for _ in range(k)],
        [y for y, k in zip(HEADS, times, strict=True) for _ in range(k)],
    )
    assert weighted.certificate_.primal == pytest.approx(repeated.certificate_.primal, rel=3e-4)


def test_fitting_again_forgets_the_other_kind():
    parser = DependencyParser(labelled=True, tol=1e-2, **SMALL).fit(SENTENCES)
    parser.set_params(labelled=False).fit([one_hot(one) for one in X], HEADS)
    assert not hasattr(parser, "labels_")
    assert not hasattr(parser, "words_")
    assert parser.predict([one_hot(X[0])])[0].shape == (len(X[0]),)


def test_pickled_parsers_answer_alike(labelled):
    copy = pickle.loads(pickle.dumps(labelled))
    np.testing.assert_array_equal(copy.decision_function(FRESH), labelled.decision_function(FRESH))


def test_early_stops_keep_the_best_and_warn():
    with pytest.warns(ConvergenceWarning, match="max_iter=1 iterations at a relative duality gap"):
        parser = DependencyParser(C=100.0, max_iter=1, tol=1e-8, **SMALL).fit(X, HEADS)
    assert parser.certificate_.primal >= parser.certificate_.dual


PAIR = [("a", "X"), ("b", "X")]
BAD = {
    "nothing": (([], []), "X is empty"),
    "no trees": ((X,), "y is missing"),
    "too few trees": ((X, HEADS[:-1]), "40 sentences but y has 39 trees"),
    "too few heads": (([PAIR], [[0]]), "Sentence 0 has 2 words but 1 heads"),
    "too few labels": (([PAIR], [([0, 1], ["x"])]), "Sentence 0 has 2 words but 1 labels"),
    "outside": (([PAIR], [[3, 0]]), "Sentence 0: the head of word 1 is 3"),
    "itself": (([PAIR], [[0, 2]]), "Sentence 0: word 2 is its own head"),
    "cycle": (([PAIR], [[2, 1]]), "Sentence 0: following the heads from word 1"),
    "roots": (([PAIR], [[0, 0]]), "Sentence 0: word 2 is the second one with the root"),
    "fractions": (([PAIR], [[0.5, 0]]), "Sentence 0: heads must be whole numbers"),
    "names": (([PAIR], [["b", "root"]]), "Sentence 0: heads must be whole numbers"),
    "no pairs": (([["a", "b"]], [[0, 1]]), r"Sentence 0, word 1: must be a pair \(word, tag\)"),
    "numbers": (([[("a", 1)]], [[0]]), r"Sentence 0, word 1: must be a pair"),
    "text": ((["a sentence"], [[0]]), r"Sentence 0 must be a list of \(word, tag\) pairs"),
    "no heads": (([DependencySentence(("a",), ("X",))],), "Sentence 0 has no heads"),
    "missing file": (("nowhere.conllu",), "no file"),
    "matrix": (([np.zeros((2, 2))], [[0]]), "Sentence 0"),
    "not square": (([np.zeros((2, 3, 1))], [[0]]), "Sentence 0: arc features must have shape"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_bad_input(arguments, message):
    parser = DependencyParser(tol=1e-2, **SMALL)
    with pytest.raises((ValueError, FileNotFoundError), match=message) as raised:
        parser.fit(*arguments)
    assert "\n" not in str(raised.value)
    with pytest.raises(NotFittedError):
        parser.predict(X)


def test_bad_questions(parser):
    with pytest.raises(ValueError, match="Sentence 0 has no labels"):
        DependencyParser(labelled=True, tol=1e-2).fit(X, HEADS)
    with pytest.raises(ValueError, match="X holds arrays of arc features, but the parser was"):
        parser.predict([np.zeros((2, 2, 3))])
    given = DependencyParser(tol=1e-2).fit([one_hot(one) for one in X], HEADS)
    with pytest.raises(ValueError, match=r"X holds sentences of .* was trained on arrays"):
        given.predict(X)
    with pytest.raises(ValueError, match="X has 3 features for each arc"):
        given.predict([np.zeros((2, 2, 3))])
    with pytest.raises(ValueError, match="ignore_tags"):
        given.score([one_hot(X[0])], HEADS[:1], ignore_tags=["DET"])
    with pytest.raises(ValueError, match=r"features returned an array of shape \(2, 2\)"):
        DependencyParser(features=lambda _: np.zeros((2, 2)), tol=1e-2).fit(X, HEADS)
    with pytest.raises(ValueError, match="temperature"):
        parser.predict_marginals(X, temperature=0.0)
    with pytest.raises(ValueError, match="k must"):
        parser.predict_k_best(X, 0)


@pytest.mark.parametrize(
    "parameters", [{"structure": "planar"}, {"C": 0.0}, {"n_features": 0}, {"tag": "lemma"}]
)
def test_bad_parameters(parameters):
    with pytest.raises(ValueError, match=next(iter(parameters))):
        DependencyParser(tol=1e-2, **parameters).fit(X, HEADS)


def test_no_warnings_on_the_way():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DependencyParser(tol=1e-2, **SMALL).fit(SENTENCES).predict(FRESH)


@pytest.mark.slow
@pytest.mark.skipif(not (DATA / "dependency_treebank").is_dir(), reason="needs MAXMARGIN_DATA")
def test_the_treebank_is_learned():
    sentences = read_dp(DATA / "dependency_treebank" / "dependency_treebank.zip")
    parser = DependencyParser(tol=0.05, n_jobs=2).fit(sentences[:3000])
    assert parser.certificate_.relative_gap <= 0.05
    assert parser.score(sentences[3000:]) > 0.87
