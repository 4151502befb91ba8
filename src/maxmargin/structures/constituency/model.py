"""What a trained grammar answers: the best tree, several, and marginals of spans."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled
from maxmargin.core.threads import Threads
from maxmargin.structures.constituency.chart import Nodes, Scores
from maxmargin.structures.constituency.grammar import Grammar
from maxmargin.structures.constituency.inference import best_derivation
from maxmargin.structures.constituency.k_best import best_derivations
from maxmargin.structures.constituency.lexicon import Sentence
from maxmargin.structures.constituency.marginals import expected_derivation
from maxmargin.structures.constituency.trees import Tree

Floats = NDArray[np.float64]


class GrammarModel:
    """A grammar with weights.

    Parameters
    ----------
    grammar : Grammar
    weights : ndarray of shape (n_features,)
    """

    def __init__(self, grammar: Grammar, weights: Floats) -> None:
        self.grammar, self.weights = grammar, np.array(weights)
        self.scores = grammar.scores(self.weights)

    def inference(
        self, sentences: Sequence[Sentence], threads: Threads
    ) -> list[tuple[Tree, float]]:
        """The best tree of each sentence and its score; if there is none, a flat one and -inf."""
        found = threads.map(
            lambda leaves: best_derivation(self.grammar.rules, self.scores, leaves),
            self._leaf_scores(sentences),
        )
        return [
            self._answer(sentence, *answer)
            for sentence, answer in zip(sentences, found, strict=True)
        ]

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
        """Expected number of phrases of each label at each span, a `(n, n + 1, n_labels)` array."""
        scores = Scores(*(part / temperature for part in self.scores))
        units = self.grammar.units
        owners = np.repeat(np.arange(self.grammar.rules.n_units), np.diff(units.label_starts))
        labels = np.zeros((self.grammar.rules.n_units, len(self.grammar.labels)))
        np.add.at(labels, (owners, units.labels), 1.0)
        found = []
        for leaves in self._leaf_scores(sentences):
            n = len(leaves)
            shares, _ = expected_derivation(self.grammar.rules, scores, leaves / temperature)
            answer = np.zeros((n, n + 1, len(self.grammar.labels)))
            start, stop = np.triu_indices(n)  # spans in the order of charts
            answer[start, stop + 1] = shares.units @ labels
            found.append(answer)
        return found

    def _leaf_scores(self, sentences: Sequence[Sentence]) -> Iterator[Floats]:
        """Scores of the tags of each sentence's words."""
        leaves = self.grammar.leaves(sentences)
        first = 0
        for sentence in sentences:
            scores = np.empty((len(sentence.words), self.grammar.rules.n_complete))
            set_leaves(leaves, first, self.weights, scores)
            first += len(scores)
            yield scores


@compiled
def set_leaves(leaves, first, weights, scores):  # type: ignore[no-untyped-def]
    """Scores of the tags of ``len(scores)`` words, from the word `first` on."""
    scores[:] = -np.inf
    for t in range(len(scores)):
        for q in range(leaves.starts[first + t], leaves.starts[first + t + 1]):
            column = leaves.columns[q]
            scores[t, leaves.symbols[q]] = weights[column] if column >= 0 else 0.0
