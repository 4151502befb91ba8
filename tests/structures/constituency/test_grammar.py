"""Grammars read off random treebanks, against all trees of a sentence one by one."""

from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from structured_referee import Case, random_cost

from maxmargin import StructuredSVM
from maxmargin.core.oracle import Threads
from maxmargin.core.python_oracle import PythonOracle
from maxmargin.core.result import Status
from maxmargin.solvers.loop import Stopping
from maxmargin.structures.constituency.formats import read_trees
from maxmargin.structures.constituency.grammar import (
    Grammar,
    GrammarError,
    Lexicon,
    Sentence,
    Tree,
    brackets,
    shape,
)
from maxmargin.structures.constituency.problem import GrammarModel, GrammarProblem
from maxmargin.training.fit import SOLVERS, make_solver

ONE = Threads(1)
seeds = st.integers(0, 2**32 - 1)
markovisations = st.sampled_from(
    [{"horizontal": h, "vertical": v} for h in (None, 0, 1, 2) for v in (1, 2, 3)]
)


def random_tree(random, longest=4, label="S"):
    """A random tree over at most so many words, chains and long rules among its nodes."""
    length = int(random.integers(1, longest + 1))
    if length == 1 and random.random() < 0.7:
        tag = "xy"[random.integers(2)]
        return Tree(tag, ("ab"[random.integers(2)] if random.random() < 0.5 else tag * 2,))
    cuts = [0, *np.flatnonzero(random.random(length - 1) < 0.6) + 1, length]
    children = [random_tree(random, b - a, "SAB"[random.integers(3)]) for a, b in pairwise(cuts)]
    return Tree(label, tuple(children))


def random_treebank(seed, n=6, longest=4):
    random = np.random.default_rng(seed)
    return [Tree("S", (random_tree(random, longest, "A"),)) for _ in range(n)]


def sentence_of(tree):
    return Sentence(tree.words, tree.tags)


def all_trees(grammar, sentence):
    """All trees that the grammar has for a sentence; `test_all_trees` says that they are."""
    model = GrammarModel(grammar, np.zeros(grammar.n_features))
    return [tree for tree, score in model.k_best([sentence], 10**6)[0] if score > -np.inf]


@settings(max_examples=60, deadline=None)
@given(seed=seeds, how=markovisations, tags=st.sampled_from(["given", "predicted"]))
def test_a_tree_is_one_derivation(seed, how, tags):
    trees = random_treebank(seed, longest=7)
    grammar = Grammar.read(trees, tags=tags, **how)
    counts = np.zeros(grammar.n_features)
    for tree in trees:
        nodes = grammar.nodes(tree)
        assert nodes.shape == (2 * len(tree.words) - 1, 4)
        assert grammar.tree(nodes, tree.words) == tree
        assert grammar.markovisation.steps(tree)[0].stop == len(tree.words)
        counts += grammar.features(sentence_of(tree), nodes)
    seen = [not name.endswith(repr(Lexicon.UNKNOWN)) for name in grammar.rule_names]
    assert_array_equal(counts[seen], grammar.counts[seen])
    parents = [name.split(" -> ")[0] for name in grammar.rule_names]
    shares = np.exp(grammar.log_probabilities())
    for parent in set(parents):
        assert shares[[p == parent for p in parents]].sum() == pytest.approx(1.0)


def exact_trees(trees, tags):
    """All trees over some tags whose rules, chains and top are those of a treebank, by hand."""
    rules, chains, tops = set(), set(), {tree.label for tree in trees}

    def read(node):
        chain = [node.label]
        while len(node.nodes) == 1:
            (node,) = node.nodes
            chain.append(node.label)
        chains.add((*chain, node.is_tag))
        if not node.is_tag:
            rules.add((node.label, tuple((child.label, child.is_tag) for child in node.nodes)))
        for child in node.nodes:
            read(child)

    for tree in trees:
        read(tree)

    @cache
    def over(start, stop):
        if stop - start == 1:
            bottoms = [Tree(tags[start], (tags[start],))]
        else:
            bottoms = []
            for label, children in rules:
                for parts in splits(start, stop, len(children)):
                    fitting = [
                        [t for t in over(a, b) if (t.label, t.is_tag) == child]
                        for (a, b), child in zip(parts, children, strict=True)
                    ]
                    bottoms += [Tree(label, chosen) for chosen in product(*fitting)]
        found = []
        for *chain, is_tag in chains:
            for tree in bottoms:
                if (tree.label, tree.is_tag) == (chain[-1], is_tag):
                    for label in chain[-2::-1]:
                        tree = Tree(label, (tree,))
                    found.append(tree)
        return found

    def splits(start, stop, n):
        if n == 1:
            yield ((start, stop),)
            return
        for middle in range(start + 1, stop - n + 2):
            for rest in splits(middle, stop, n - 1):
                yield ((start, middle), *rest)

    return [tree for tree in over(0, len(tags)) if tree.label in tops]


@settings(max_examples=40, deadline=None)
@given(seed=seeds)
def test_all_trees(seed):
    trees = random_treebank(seed, n=4)
    grammar = Grammar.read(trees, horizontal=None)
    for tags in [tree.tags for tree in trees] + [("x", "y", "x")]:
        found = all_trees(grammar, Sentence(tags, tags))
        assert len(set(found)) == len(found)
        assert set(found) == set(exact_trees(trees, tags))


@settings(max_examples=40, deadline=None)
@given(seed=seeds, how=markovisations)
def test_less_memory_means_more_trees(seed, how):
    trees = random_treebank(seed, n=4)
    exact = Grammar.read(trees, horizontal=None, vertical=how["vertical"])
    loose = Grammar.read(trees, **how)
    for tree in trees:
        found = all_trees(loose, sentence_of(tree))
        assert len(set(found)) == len(found)
        assert set(all_trees(exact, sentence_of(tree))) <= set(found)
        for other in found:
            assert loose.tree(loose.nodes(other), tree.words) == other


class Enumerated(GrammarProblem):
    """The same problem for the referee, which wants dense features and all outputs."""

    def outputs(self, x):
        return all_trees(self.grammar, x)

    def joint_feature(self, x, y):
        return super().joint_feature(x, y).toarray()[0]


LOSSES = ["brackets", "zero-one"]


def random_case(seed, loss="brackets", tags="given", n=5, **how):
    """A case none of whose sentences has very many trees."""
    random = np.random.default_rng(seed)
    trees = random_treebank(seed, n)
    grammar = Grammar.read(trees, tags=tags, min_count=2, **how)
    few = [tree for tree in trees if len(all_trees(grammar, sentence_of(tree))) < 300]
    few = few or trees[:1]
    C = random_cost(random, max(len(few), 2))[: len(few)]
    return Case(Enumerated(grammar, loss), [sentence_of(tree) for tree in few], few, C)


def compiled_training(case):
    return case.problem.make_oracle(case.X, case.Y, case.C)


def nodes_in(output):
    return np.frombuffer(output, dtype=np.int32).reshape(-1, 4)


@pytest.mark.parametrize("loss", LOSSES)
@settings(max_examples=25, deadline=None)
@given(
    seed=seeds,
    how=markovisations,
    tags=st.sampled_from(["given", "predicted"]),
    n_threads=st.integers(1, 3),
)
def test_searches_find_the_best_of_all_trees(loss, seed, how, tags, n_threads):
    case = random_case(seed, loss, tags, **how)
    oracle, problem = compiled_training(case), case.problem
    psi, losses = case.pieces
    random = np.random.default_rng(seed)
    for scale in (0.0, 0.3, 3.0):
        weights = scale * random.normal(size=psi.shape[2])
        blocks = random.permutation(len(case.X))
        with Threads(n_threads) as threads:
            cuts = oracle.separate(weights, blocks, threads)
        hinges = (losses - psi @ weights).max(axis=1)
        slopes = np.maximum(cuts.slopes(weights), 0.0)
        assert_allclose(slopes, hinges[blocks], atol=1e-10 * (1.0 + scale))
        for k, b in enumerate(blocks):
            x, y_true = case.X[b], case.Y[b]
            found = problem.grammar.tree(nodes_in(cuts.outputs[k]), x.words)
            difference = problem.joint_feature(x, y_true) - problem.joint_feature(x, found)
            some = slice(cuts.starts[k], cuts.starts[k + 1])
            assert len(set(cuts.columns[some].tolist())) == some.stop - some.start
            row = np.zeros(oracle.n_features)
            row[cuts.columns[some]] = cuts.values[some]
            assert_array_equal(row, difference)
            assert cuts.losses[k] == problem.loss(y_true, found)
            if loss == "zero-one" and len(problem.outputs(x)) > 1:
                assert found != y_true
            scores = [problem.joint_feature(x, y) @ weights for y in problem.outputs(x)]
            best = problem.joint_feature(x, problem.inference(x, weights)) @ weights
            assert best == pytest.approx(max(scores), abs=1e-10)
        again = oracle.cuts_of(blocks, cuts.outputs)
        for one, other in zip(again[:5], cuts[:5], strict=True):
            assert_array_equal(one, other)
        assert oracle.primal(weights) == pytest.approx(case.objective(weights), rel=1e-10)


@pytest.mark.parametrize("loss", LOSSES)
def test_plain_python_and_compiled_agree(loss):
    for seed in range(4):
        case = random_case(seed, loss)
        weights = np.random.default_rng(seed).normal(size=case.problem.grammar.n_features)
        plain = PythonOracle(case.problem, case.X, case.Y, case.C)
        assert plain.primal(weights) == pytest.approx(compiled_training(case).primal(weights))


@pytest.mark.parametrize("loss", LOSSES)
def test_top(loss):
    case = random_case(1, loss, horizontal=0)
    x, problem = case.X[0], case.problem
    weights = np.random.default_rng(0).normal(size=problem.grammar.n_features)
    ranked = sorted(problem.joint_feature(x, y) @ weights for y in problem.outputs(x))[::-1]
    found = problem.k_best(x, weights, 5)
    assert_allclose([problem.joint_feature(x, y) @ weights for y in found], ranked[:5])


@pytest.mark.diagonal
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    "solver", sorted(set(SOLVERS) - {"partial-linearization", "exponentiated-gradient"})
)
def test_every_solver_finds_the_referees_optimum(loss, solver):
    case = random_case(5, loss, n=8)
    assert case.optimum.value > 0.0
    tol = 1e-3 if solver == "frank-wolfe" else 1e-5
    result = make_solver(solver).solve(compiled_training(case), Stopping(tol, max_iter=20_000))
    assert result.status is Status.CONVERGED
    assert result.certificate.primal == pytest.approx(case.optimum.value, rel=2 * tol)
    assert result.certificate.dual <= case.optimum.value * (1.0 + 1e-9)
    assert case.objective(result.weights) == pytest.approx(result.certificate.primal, rel=1e-12)


def test_structured_svm_takes_the_problem():
    trees = random_treebank(3)
    problem = GrammarProblem(Grammar.read(trees))
    X = [sentence_of(tree) for tree in trees]
    model = StructuredSVM(problem, C=10.0, tol=1e-3).fit(X, trees)
    assert model.certificate_.relative_gap <= 1e-3
    losses = [
        problem.loss(tree, found) for tree, found in zip(trees, model.predict(X), strict=True)
    ]
    assert model.score(X, trees) == -np.mean(losses)
    assert sum(loss == 0.0 for loss in losses) >= 1


def test_slack_rescaling():
    trees = random_treebank(3)
    X = [sentence_of(tree) for tree in trees]
    grammar = Grammar.read(trees)
    by_slack = StructuredSVM(GrammarProblem(grammar, "zero-one"), rescaling="slack", tol=1e-3).fit(
        X, trees
    )
    by_margin = StructuredSVM(GrammarProblem(grammar, "zero-one"), tol=1e-3).fit(X, trees)
    assert_array_equal(by_slack.weights_, by_margin.weights_)
    problem, weights = GrammarProblem(grammar), 0.1 * np.ones(grammar.n_features)
    found = problem.slack_rescaled_inference(X[0], trees[0], weights)
    violation = 1.0 + weights @ (
        problem.joint_feature(X[0], found) - problem.joint_feature(X[0], trees[0])
    ).sum(axis=0)
    assert problem.loss(trees[0], found) * violation >= 0.0
    with pytest.raises(ValueError, match="'brackets' or 'zero-one', but is 'hamming'"):
        GrammarProblem(grammar, "hamming")


@settings(max_examples=25, deadline=None)
@given(seed=seeds, how=markovisations, temperature=st.sampled_from([0.3, 1.0, 5.0]))
def test_marginals(seed, how, temperature):
    case = random_case(seed, **how)
    grammar = case.problem.grammar
    weights = np.random.default_rng(seed).normal(size=grammar.n_features)
    found = GrammarModel(grammar, weights).marginals(case.X, temperature)
    for x, marginals in zip(case.X, found, strict=True):
        trees = case.problem.outputs(x)
        scores = np.array([case.problem.joint_feature(x, y) @ weights for y in trees])
        shares = np.exp((scores - scores.max()) / temperature)
        shares /= shares.sum()
        expected = np.zeros_like(marginals)
        for tree, share in zip(trees, shares, strict=True):
            for (label, start, stop), count in brackets(tree).items():
                expected[start, stop, grammar.labels.index(label)] += count * share
        assert_allclose(marginals, expected, atol=1e-10)


# Words


def test_shapes_of_rare_words():
    assert shape("3.5%") == shape("1990s") == "<number>"
    assert shape("Running") == "<Capital-ing>"
    assert shape("-") == "<>"


def test_words_with_predicted_tags():
    trees = read_trees(
        "(S (NP (NN time)) (VP (VBZ flies))) (S (NP (NNS flies)) (VP (VBP time)))"
        "(S (NP (NN time)) (VP (VBZ flies))) (S (NP (NNP Bob)) (VP (VBZ walks)))"
    )
    grammar = Grammar.read(trees, tags="predicted", min_count=2)
    classes = {name for name, _ in grammar.lexicon.entries}
    assert classes == {"time", "flies", "<Capital>", "<-s>", "<unknown>"}
    assert grammar.lexicon.most_frequent_tag("time") == "NN"
    assert grammar.lexicon.most_frequent_tag("Ann") == "NNP"
    model = GrammarModel(grammar, grammar.log_probabilities())
    sentence = Sentence(("Ann", "flies"), None)
    assert str(model.inference([sentence], ONE)[0][0]) == "(S (NP (NNP Ann)) (VP (VBZ flies)))"
    strange = Sentence(("qqq", "flies"), None)  # looks as no rare word
    assert model.inference([strange], ONE)[0][0].tags[1] in ("VBZ", "NNS")
    everything_known = Grammar.read(trees, tags="predicted", min_count=1)
    assert len(everything_known.leaves([strange]).symbols) > 0


def test_what_cannot_be_parsed_is_flat():
    trees = read_trees("(S (NP (N a)) (VP (V b))) (X (V b))")
    for tags, expected in [
        ("given", "(X (V b) (Q c))"),
        ("predicted", "(X (V b) (N c))"),
    ]:
        grammar = Grammar.read([*trees, trees[1]], tags=tags, min_count=1)
        model = GrammarModel(grammar, np.zeros(grammar.n_features))
        sentence = Sentence(("b", "c"), ("V", "Q"))
        for tree, score in (model.inference([sentence], ONE)[0], *model.k_best([sentence], 3)[0]):
            assert score == -np.inf
            assert (tree.label, len(tree.nodes)) == ("X", 2)
            if tags == "given":
                assert str(tree) == expected
        assert not model.marginals([sentence], 1.0)[0].any()


# Errors


def test_trees_that_the_grammar_has_not():
    grammar = Grammar.read(read_trees("(S (NP (N a)) (VP (V b) (N c) (N d)))"))
    for text, message in [
        ("(X (N a))", "no whole trees with the label 'X'"),
        ("(S (NP (N a)) (VP (Q b) (N c) (N d)))", "no tag 'Q'"),
        ("(S (VP (V a)))", r"no chain S -> VP -> V"),
        ("(S (NP (N a)) (NP (N b)))", r"no rule S -> NP NP"),
        ("(S (NP (N a)) (VP (V b) (V c) (N d)))", r"no rule VP -> VP\[..V V\] N"),
    ]:
        (tree,) = read_trees(text)
        with pytest.raises(GrammarError, match=message):
            grammar.nodes(tree)
        good = read_trees("(S (NP (N a)) (VP (V b) (N c) (N d)))")
        with pytest.raises(
            GrammarError, match=f"tree of sentence 1 cannot be trained on.*{message}"
        ):
            GrammarProblem(grammar).make_oracle(
                [sentence_of(good[0]), sentence_of(tree)], [*good, tree], np.ones(2)
            )


def test_sentences_that_are_not_those_of_the_trees():
    trees = random_treebank(0)
    for tags, other in [("given", Sentence(("a",), ("q",))), ("predicted", Sentence(("q",), None))]:
        problem = GrammarProblem(Grammar.read(trees, tags=tags))
        kind = "tags" if tags == "given" else "words"
        with pytest.raises(GrammarError, match=f"tree of sentence 0 has other {kind}"):
            problem.make_oracle([other, *map(sentence_of, trees[1:])], trees, np.ones(len(trees)))


def test_a_grammar_of_nothing():
    with pytest.raises(GrammarError, match="no trees to read"):
        Grammar.read([])


def test_outputs_of_other_lengths_are_refused():
    case = random_case(0)
    oracle = compiled_training(case)
    with pytest.raises(ValueError, match="other lengths"):
        oracle.cuts_of(np.arange(1), [bytes(16 * 99)])
