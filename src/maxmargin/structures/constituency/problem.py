"""Constituency trees by a weighted grammar as a `Problem`; joint features count rules."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.core.arrays import Floats
from maxmargin.core.oracle import Oracle, Threads
from maxmargin.core.problem import Problem
from maxmargin.core.slack_rescaling import SlackRescaledOracle
from maxmargin.structures.constituency.grammar import Grammar, Sentence, Tree, brackets
from maxmargin.structures.constituency.inference import (
    Nodes,
    Scores,
    best_derivation,
    best_derivations,
    set_leaves,
)
from maxmargin.structures.constituency.marginals import expected_derivation
from maxmargin.structures.constituency.oracle import GrammarOracle


class GrammarModel:
    """A grammar with weights, and inference with it."""

    def __init__(self, grammar: Grammar, weights: Floats) -> None:
        self.grammar, self.weights = grammar, np.array(weights)
        self.scores = grammar.scores(self.weights)

    def inference(
        self, sentences: Sequence[Sentence], threads: Threads
    ) -> list[tuple[Tree, float]]:
        """The best tree of each sentence and its score; without any, a flat one and -inf."""
        found = threads.map(
            lambda leaves: best_derivation(self.grammar.rules, self.scores, leaves),
            self._leaf_scores(sentences),
        )
        pairs = zip(sentences, found, strict=True)
        return [self._answer(sentence, *answer) for sentence, answer in pairs]

    def k_best(self, sentences: Sequence[Sentence], k: int) -> list[list[tuple[Tree, float]]]:
        """The k best trees of each sentence with their scores, best first."""
        found = []
        for sentence, leaves in zip(sentences, self._leaf_scores(sentences), strict=True):
            answers = best_derivations(self.grammar.rules, self.scores, leaves, k)
            some = answers or [(np.empty((0, 4), dtype=np.int32), -np.inf)]
            found.append([self._answer(sentence, *answer) for answer in some])
        return found

    def _answer(self, sentence: Sentence, nodes: Nodes, score: float) -> tuple[Tree, float]:
        if score == -np.inf:
            return self.grammar.flat_tree(sentence), score
        return self.grammar.tree(nodes, sentence.words), score

    def marginals(self, sentences: Sequence[Sentence], temperature: float) -> list[Floats]:
        """Expected phrases of each label at each span, ``(n, n + 1, n_labels)`` a sentence."""
        scores = Scores(*(part / temperature for part in self.scores))
        units = self.grammar.units
        owners = np.repeat(np.arange(self.grammar.rules.n_units), np.diff(units.label_starts))
        labels = np.zeros((self.grammar.rules.n_units, len(self.grammar.labels)))
        np.add.at(labels, (owners, units.labels), 1.0)
        found = []
        for leaves in self._leaf_scores(sentences):
            n = len(leaves)
            expected, _ = expected_derivation(self.grammar.rules, scores, leaves / temperature)
            answer = np.zeros((n, n + 1, len(self.grammar.labels)))
            start, stop = np.triu_indices(n)  # spans in the order of charts
            answer[start, stop + 1] = expected.units @ labels
            found.append(answer)
        return found

    def _leaf_scores(self, sentences: Sequence[Sentence]) -> Iterator[Floats]:
        """Scores of the tags of each sentence's words, ``(n_words, n_complete)``."""
        leaves = self.grammar.leaves(sentences)
        first = 0
        for sentence in sentences:
            scores = np.empty((len(sentence.words), self.grammar.rules.n_complete))
            set_leaves(leaves, first, self.weights, scores)
            first += len(scores)
            yield scores


class GrammarProblem(Problem):
    """Constituency trees by a grammar, for `StructuredSVM`.

    Inputs are `Sentence`, outputs `Tree`.

    Parameters
    ----------
    grammar : Grammar
    loss : {"brackets", "zero-one"}, default="brackets"
        Number of labelled brackets that are wrong or missed; or one for any other tree.

    See Also
    --------
    maxmargin.GrammarParser : Takes sentences and trees in any form.

    Examples
    --------
    >>> import maxmargin as mm
    >>> from maxmargin.structures.constituency.formats import read_trees
    >>> from maxmargin.structures.constituency.problem import GrammarProblem
    >>> from maxmargin.structures.constituency.grammar import Grammar, Sentence
    >>> trees = read_trees("(S (NP (N dogs)) (VP (V bark))) (S (VP (V stop)))")
    >>> X = [Sentence(tree.words, tree.tags) for tree in trees]
    >>> svm = mm.StructuredSVM(GrammarProblem(Grammar.read(trees)), C=10.0).fit(X, trees)
    >>> print(*svm.predict(X))
    (S (NP (N dogs)) (VP (V bark))) (S (VP (V stop)))
    """

    def __init__(self, grammar: Grammar, loss: str = "brackets") -> None:
        if loss not in ("brackets", "zero-one"):
            raise ValueError(f"loss must be 'brackets' or 'zero-one', but is {loss!r}.")
        self.grammar, self.loss_name = grammar, loss

    def joint_feature(self, x: Sentence, y: Tree) -> Any:
        return sp.csr_array(self.grammar.features(x, self.grammar.nodes(y))[None, :])

    def loss(self, y_true: Tree, y: Tree) -> float:
        if self.loss_name == "zero-one":
            return float(y_true != y)
        true, found = brackets(y_true), brackets(y)
        return float(true.total() + found.total() - 2 * (true & found).total())

    def inference(self, x: Sentence, w: Floats) -> Tree:
        """The best tree, or a flat one if the grammar has none."""
        return GrammarModel(self.grammar, w).inference([x], Threads(1))[0][0]

    def loss_augmented_inference(self, x: Sentence, y_true: Tree, w: Floats) -> Tree:
        return self._inferred(x, y_true, w, "margin")

    def slack_rescaled_inference(self, x: Sentence, y_true: Tree, w: Floats) -> Tree:
        """Exact for the zero-one loss; for bracket losses, the best of several oracle calls."""
        return self._inferred(x, y_true, w, "slack")

    def _inferred(self, x: Sentence, y_true: Tree, w: Floats, rescaling: str) -> Tree:
        oracle = self.make_oracle([x], [y_true], np.ones(1), rescaling)
        cuts = oracle.separate(np.array(w), np.zeros(1, dtype=np.int64), Threads(1))
        # The zero-one oracle leaves the true output out, which may be better all the same.
        if cuts.outputs[0] is None or cuts.slopes(np.array(w))[0] < 0.0:
            return y_true
        nodes = np.frombuffer(cuts.outputs[0], dtype=np.int32).reshape(-1, 4)
        return self.grammar.tree(nodes, x.words)

    def k_best(self, x: Sentence, w: Floats, k: int) -> list[Tree]:
        """The k best trees, best first."""
        return [tree for tree, _ in GrammarModel(self.grammar, w).k_best([x], k)[0]]

    def make_oracle(
        self, X: Sequence[Sentence], Y: Sequence[Tree], C: Floats, rescaling: str = "margin"
    ) -> Oracle:
        """The oracle with compiled inference."""
        zero_one = self.loss_name == "zero-one"
        oracle = GrammarOracle(self.grammar, X, Y, C, zero_one=zero_one)
        # With one loss for all mistakes, margin and slack rescaling are the same.
        by_slack = rescaling == "slack" and not zero_one
        return SlackRescaledOracle(oracle) if by_slack else oracle
