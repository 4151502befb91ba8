"""GrammarParser: a parse tree for each sentence."""

import warnings
from collections.abc import Sequence
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions

from maxmargin.core.arrays import Floats
from maxmargin.core.inputs import check_k, check_temperature
from maxmargin.core.oracle import Oracle, Threads
from maxmargin.estimators.base import check_weights
from maxmargin.estimators.checks import check_is_fitted
from maxmargin.estimators.declared import estimator, fitted
from maxmargin.estimators.structured import ExampleEstimator
from maxmargin.structures.constituency.formats import as_tree
from maxmargin.structures.constituency.grammar import (
    Grammar,
    Sentence,
    Tree,
    TreeError,
    bracket_scores,
)
from maxmargin.structures.constituency.problem import GrammarModel, GrammarProblem
from maxmargin.training.fit import Encoded, Metadata, runs_on_shards


class UnparsedWarning(UserWarning):
    """Sentences without a tree by the grammar got a flat one."""


@estimator
class GrammarParser(ExampleEstimator):
    """Weighted context-free grammar: a structural SVM for parsing, with a certificate.

    The grammar is read off the training trees. The score of a tree is the sum of the weights of its
    rules, and the answer is the best tree by the grammar, found exactly. Minimises ``1/2 |w|^2 + C
    * sum_i weight_i * hinge_i(w)`` over sentences.

    Trees come as brackets in a string, as `maxmargin.structures.constituency.grammar.Tree`, or as
    trees of NLTK. Function tags and traces are removed unless they come as `Tree`.

    Parameters
    ----------
    loss : {"brackets", "zero-one"}, default="brackets"
        Number of labelled brackets that are wrong or missed; or one for any other tree.
    horizontal : int or None, default=2
        Children that the first part of a long rule remembers. None is all: exactly the rules of
        the treebank. The fewer, the smaller, quicker and more general the grammar.
    vertical : int, default=1
        Nodes whose labels a phrase knows: 1 is its own, 2 also its parent's, ...
    tags : {"given", "predicted"}, default="given"
        Whether sentences come with the tags of their words, or tags belong to what is predicted.
    min_count : int, default=3
        If tags are predicted: words seen less often share a class with those that look alike.
    grammar : Grammar, default=None
        A grammar read before, which then says what the last four parameters would.
    rescaling : {"margin", "slack"}, default="margin"
        See `StructuredSVM`. Inference for "slack" is not exact, but its suboptimality is bounded.

    Attributes
    ----------
    grammar_ : Grammar
        Its ``rule_names`` say what each weight is for, its ``labels`` are those of phrases.
    coef_ : ndarray of shape (n_rules,)
        Weights, in the order of ``grammar_.rule_names``.

    See Also
    --------
    StructuredSVM : Any other structure.
    SequenceTagger : Tags only.

    Notes
    -----
    A sentence is a list of (word, tag) pairs; a list of tags, if they are given; or a list of
    words, if they are predicted. A tree stands for its own sentence. A sentence without a tree by
    the grammar gets a flat one, with the commonest label of whole trees above all tags, the score
    ``-inf``, and an `UnparsedWarning`.

    Examples
    --------
    >>> from maxmargin.structures.constituency.estimator import GrammarParser
    >>> trees = [
    ...     "(S (NP (PRP I)) (VP (VBD saw) (NP (NP (DT a) (NN man)) (PP (IN in) (NP (NN town))))))",
    ...     "(S (NP (DT the) (NN dog)) (VP (VBZ barks)))",
    ... ]
    >>> parser = GrammarParser(C=10.0).fit(trees)
    >>> sentence = [("the", "DT"), ("man", "NN"), ("saw", "VBD"), ("a", "DT"), ("dog", "NN")]
    >>> print(parser.predict([sentence])[0])
    (S (NP (DT the) (NN man)) (VP (VBD saw) (NP (DT a) (NN dog))))
    """

    loss: str = "brackets"
    horizontal: int | None = 2
    vertical: int = 1
    tags: str = "given"
    min_count: int = 3
    grammar: Grammar | None = None

    _parameter_constraints = {
        "loss": [StrOptions({"brackets", "zero-one"})],
        "horizontal": [Interval(Integral, 0, None, closed="left"), None],
        "vertical": [Interval(Integral, 1, None, closed="left")],
        "tags": [StrOptions({"given", "predicted"})],
        "min_count": [Interval(Integral, 1, None, closed="left")],
        "grammar": [Grammar, None],
    }

    grammar_: Grammar = fitted()
    coef_: Floats = fitted()

    _arguments = """
    X : list of n_sentences sentences, or of trees
        Lists of words, of tags, or of (word, tag) pairs; see Notes of the class.
    y : list of n_sentences trees, default=None
        The true trees; None if `X` are the trees.
    sample_weight : array-like of shape (n_sentences,), default=None
        Multiplies the C of each sentence.
    """

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Train on sentences and their trees; on a `Source` of them only with a given `grammar`.

        Raises
        ------
        TreeError
            If something is no tree; says which.
        GrammarError
            If the given `grammar` does not have one of the trees; says which, and what it lacks.
        """
        return self._fit(X, y, sample_weight)

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from more sentences, with a given `grammar` that has all their trees."""
        self._check_grammar("partial_fit")
        return self._partial_fit(X, y, sample_weight)

    def _items(self, X: Any, y: Any, examples: Encoded, **others: Any) -> tuple[Any, Any]:
        return (examples.X or examples.y, examples.y) if runs_on_shards(self) else (X, y)

    def _check_grammar(self, what: str) -> None:
        if self.grammar is None:
            raise ValueError(
                f"{what} needs all rules before it begins: give a grammar, such as grammar_ of a "
                f"parser fitted before, or Grammar.read(trees)."
            )

    def _encode(self, X: Any, Y: Any, metadata: Metadata | None) -> Encoded:
        trees = _trees(X if Y is None else Y)
        if not trees:
            raise ValueError("X is empty: there is nothing to learn from.")
        return Encoded(None if Y is None else X, trees, len(trees))

    def _survey(self, source: Any) -> Metadata:
        self._check_grammar("A source")
        return {"grammar_": self.grammar}

    def _survey_partition(self, X: Any, y: Any) -> None:
        """Nothing: the grammar is given."""

    _metadata_of = _survey

    def _metadata(self, examples: Encoded, classes: NDArray[Any] | None) -> Metadata:
        grammar = self.grammar or Grammar.read(
            examples.y,
            horizontal=self.horizontal,
            vertical=self.vertical,
            tags=self.tags,
            min_count=self.min_count,
        )
        return {"grammar_": grammar}

    def _oracle(self, examples: Encoded, C: Floats, metadata: Metadata) -> Oracle:
        grammar, trees = metadata["grammar_"], examples.y
        sentences = _sentences(trees if examples.X is None else examples.X, grammar.lexicon.given)
        _check_pairs(sentences, trees)
        problem = GrammarProblem(grammar, self.loss)
        return problem.make_oracle(sentences, trees, C, self.rescaling)

    def _fitted(self, metadata: Metadata, weights: Floats) -> dict[str, Any]:
        return metadata | {"coef_": weights}

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

    def score(self, X: Any, y: Any = None) -> float:
        """F1 of labelled brackets.

        See `maxmargin.structures.constituency.grammar.bracket_scores`.
        """
        y_true = _trees(X if y is None else y)
        predictions = self.predict(X)
        _check_pairs(predictions, y_true)
        return bracket_scores(y_true, predictions).f1

    @property
    def _model(self) -> GrammarModel:
        check_is_fitted(self)
        return GrammarModel(self.grammar_, self.coef_)

    def _checked(self, X: Any) -> list[Sentence]:
        check_is_fitted(self)
        return _sentences(X, self.grammar_.lexicon.given)

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


def _check_pairs(sentences: Sequence[Any], trees: Sequence[Tree]) -> None:
    if len(sentences) != len(trees):
        raise ValueError(
            f"X has {len(sentences)} sentences but y has {len(trees)} trees: give one for each."
        )


def _trees(given: Any) -> list[Tree]:
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


def _sentences(given: Any, with_tags: bool) -> list[Sentence]:
    """Sentences from any form; errors say which is none."""
    if isinstance(given, str | Tree):
        raise ValueError("Sentences must come in a list, also if there is only one.")
    return [_sentence(i, one, with_tags) for i, one in enumerate(given)]


def _sentence(i: int, given: Any, with_tags: bool) -> Sentence:
    if isinstance(given, str | Tree) or callable(getattr(given, "label", None)):
        tree = _trees([given])[0]
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
