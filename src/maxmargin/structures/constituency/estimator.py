"""GrammarParser: a parse tree for each sentence."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any, Self

from numpy.typing import ArrayLike, NDArray
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions

from maxmargin.core.arrays import Floats
from maxmargin.core.oracle import Oracle
from maxmargin.core.result import AbsoluteGap
from maxmargin.estimators.structured import ExampleEstimator
from maxmargin.predictors.declared import estimator
from maxmargin.structures.constituency.grammar import Grammar, Tree, bracket_scores
from maxmargin.structures.constituency.predictor import (
    GrammarParserPredictor,
    checked_sentences,
    checked_trees,
)
from maxmargin.structures.constituency.problem import GrammarProblem
from maxmargin.training.fit import Encoded, Metadata, runs_on_shards


@estimator
class GrammarParser(GrammarParserPredictor, ExampleEstimator):
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
    tol : float or AbsoluteGap, default=0.1
        Relative duality gap that is good enough, or an absolute one: held-out scores are no better
        at smaller ones.

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
    tol: float | AbsoluteGap = 0.1

    _parameter_constraints = {
        "loss": [StrOptions({"brackets", "zero-one"})],
        "horizontal": [Interval(Integral, 0, None, closed="left"), None],
        "vertical": [Interval(Integral, 1, None, closed="left")],
        "tags": [StrOptions({"given", "predicted"})],
        "min_count": [Interval(Integral, 1, None, closed="left")],
        "grammar": [Grammar, None],
    }

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
        trees = checked_trees(X if Y is None else Y)
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
        sentences = checked_sentences(
            trees if examples.X is None else examples.X, grammar.lexicon.given
        )
        _check_pairs(sentences, trees)
        problem = GrammarProblem(grammar, self.loss)
        return problem.make_oracle(sentences, trees, C, self.rescaling)

    def _fitted(self, metadata: Metadata, weights: Floats) -> dict[str, Any]:
        return metadata | {"coef_": weights}

    def score(self, X: Any, y: Any = None) -> float:
        """F1 of labelled brackets.

        See `maxmargin.structures.constituency.grammar.bracket_scores`.
        """
        y_true = checked_trees(X if y is None else y)
        predictions = self.predict(X)
        _check_pairs(predictions, y_true)
        return bracket_scores(y_true, predictions).f1


def _check_pairs(sentences: Sequence[Any], trees: Sequence[Tree]) -> None:
    if len(sentences) != len(trees):
        raise ValueError(
            f"X has {len(sentences)} sentences but y has {len(trees)} trees: give one for each."
        )
