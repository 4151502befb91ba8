"""How a grammar parser predicts."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from maxmargin.core.arrays import Floats
from maxmargin.core.inputs import check_k, check_temperature
from maxmargin.core.oracle import Threads
from maxmargin.predictors.base import Predictor, check_weights
from maxmargin.predictors.checks import check_is_fitted
from maxmargin.predictors.declared import estimator, fitted
from maxmargin.structures.constituency.formats import as_tree
from maxmargin.structures.constituency.grammar import Grammar, Sentence, Tree, TreeError
from maxmargin.structures.constituency.problem import GrammarModel


class UnparsedWarning(UserWarning):
    """Sentences without a tree by the grammar got a flat one."""


@estimator
class GrammarParserPredictor(Predictor):
    """What a fitted `GrammarParser` has learned, and how it predicts.

    Attributes
    ----------
    grammar_ : Grammar
        Its ``rule_names`` say what each weight is for, its ``labels`` are those of phrases.
    coef_ : ndarray of shape (n_rules,)
        Weights, in the order of ``grammar_.rule_names``.
    """

    _arguments = """
    X : list of n_sentences sentences, or of trees
        Lists of words, of tags, or of (word, tag) pairs; see Notes of the class.
    y : list of n_sentences trees, default=None
        The true trees; None if `X` are the trees.
    sample_weight : array-like of shape (n_sentences,), default=None
        Multiplies the C of each sentence.
    """

    grammar_: Grammar = fitted()
    coef_: Floats = fitted()

    def _check_fitted(self) -> None:
        super()._check_fitted()
        check_weights("coef_", self.coef_, self.grammar_.n_features)

    def predict(self, X: Any) -> list[Tree]:
        """The best tree of each sentence; of a tree, the words are parsed anew.

        Returns
        -------
        y : list of Tree
            What is predicted for each sentence.

        Warns
        -----
        UnparsedWarning
            If the grammar has no tree for a sentence: it gets a flat one.
        """
        return [tree for tree, _ in self._inferred_best(X)]

    def decision_function(self, X: Any) -> Floats:
        """Score of the best tree of each sentence, ``-inf`` where there is none."""
        return np.array([score for _, score in self._inferred_best(X)])

    def predict_k_best(self, X: Any, k: int) -> list[list[tuple[Tree, float]]]:
        """The k best trees of each sentence with their scores, best first.

        Returns
        -------
        k_best : list of lists of (tree, score)
            Fewer than k where there are fewer trees; where there is none, the flat one.
        """
        k, sentences = check_k(k), self._checked(X)
        found = self._model.k_best(sentences, k)
        self._warn_of_unparsed(sentences, [answers[0][1] for answers in found])
        return found

    def predict_marginals(self, X: Any, *, temperature: float = 1.0) -> list[Floats]:
        """Marginal probability of each label at each span.

        Returns
        -------
        marginals : list of ndarray of shape (length, length + 1, n_labels)
            ``marginals[i][start, stop, m]``: expected number of phrases ``grammar_.labels[m]`` over
            the words ``start .. stop - 1``, above one only where one stands alone under another.
            Zeros where the grammar has no tree.
        """
        temperature = check_temperature(temperature)
        return self._model.marginals(self._checked(X), temperature)

    @property
    def _model(self) -> GrammarModel:
        check_is_fitted(self)
        return GrammarModel(self.grammar_, self.coef_)

    def _checked(self, X: Any) -> list[Sentence]:
        check_is_fitted(self)
        return checked_sentences(X, self.grammar_.lexicon.given)

    def _inferred_best(self, X: Any) -> list[tuple[Tree, float]]:
        sentences = self._checked(X)
        with Threads(self.n_jobs) as threads:
            found = self._model.inference(sentences, threads)
        self._warn_of_unparsed(sentences, [score for _, score in found])
        return found

    def _warn_of_unparsed(self, sentences: Sequence[Sentence], scores: Sequence[float]) -> None:
        lost = np.flatnonzero(np.isneginf(scores))
        if not len(lost):
            return
        first = sentences[lost[0]]
        known = set(self.grammar_.tags)
        strange = [tag for tag in first.tags or () if tag not in known]
        why = f"no rule goes with its tag {strange[0]!r}" if strange else "its rules do not fit"
        warnings.warn(
            f"{len(lost)} of {len(sentences)} sentences have no tree by the grammar and get a flat "
            f"one; the first is sentence {lost[0]}: {why}.",
            UnparsedWarning,
            stacklevel=4,
        )


def checked_sentences(given: Any, with_tags: bool) -> list[Sentence]:
    """Sentences from any form; errors say which is none."""
    if isinstance(given, str | Tree):
        raise ValueError("Sentences must come in a list, also if there is only one.")
    return [_sentence(i, one, with_tags) for i, one in enumerate(given)]


def checked_trees(given: Any) -> list[Tree]:
    """Trees from any form; errors say which is none."""
    if isinstance(given, str | Tree):
        raise TreeError("Trees must come in a list, also if there is only one.")
    trees = []
    for i, one in enumerate(given):
        try:
            trees.append(as_tree(one))
        except TreeError as error:
            raise TreeError(f"Tree {i}: {error}") from None
    return trees


def _sentence(i: int, given: Any, with_tags: bool) -> Sentence:
    if isinstance(given, str | Tree) or callable(getattr(given, "label", None)):
        tree = checked_trees([given])[0]
        return Sentence(tree.words, tree.tags)
    tokens: list[Any] = [tuple(token) if isinstance(token, list) else token for token in given]
    if not tokens:
        raise ValueError(f"Sentence {i} is empty: leave it out.")
    if all(isinstance(token, str) for token in tokens):
        return Sentence(tuple(tokens), tuple(tokens) if with_tags else None)
    pairs = [token for token in tokens if isinstance(token, tuple) and len(token) == 2]
    if len(pairs) < len(tokens) or not all(
        isinstance(part, str) for pair in pairs for part in pair
    ):
        kind = "tags" if with_tags else "words"
        raise ValueError(
            f"Sentence {i} must be a list of (word, tag) pairs of strings, a list of {kind}, or a "
            f"tree."
        )
    words, tags = zip(*pairs, strict=True)
    return Sentence(words, tags)
