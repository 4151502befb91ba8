"""Trees over sentences by a grammar, as a problem for `StructuredSVM`.

The joint features of a sentence and a tree count how often the tree uses each rule of the grammar.

What a trained grammar answers: the best tree, several, and marginals of spans.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.core.oracle import Oracle
from maxmargin.core.problem import Problem
from maxmargin.core.slack_rescaling import SlackRescaledOracle
from maxmargin.core.threads import Threads
from maxmargin.structures.constituency.grammar import Grammar
from maxmargin.structures.constituency.lexicon import Sentence
from maxmargin.structures.constituency.model import GrammarModel
from maxmargin.structures.constituency.oracle import GrammarOracle
from maxmargin.structures.constituency.trees import Tree, brackets

Floats = NDArray[np.float64]


class GrammarProblem(Problem):
    """Parse trees by a grammar, for `StructuredSVM`.

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
    >>> from maxmargin.structures.constituency.trees import read_trees
    >>> from maxmargin.structures.constituency.problem import GrammarProblem
    >>> from maxmargin.structures.constituency.lexicon import Sentence
    >>> from maxmargin.structures.constituency.grammar import Grammar
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
        """Exact for the zero-one loss; of numbers of brackets the best that a search finds."""
        return self._inferred(x, y_true, w, "slack")

    def _inferred(self, x: Sentence, y_true: Tree, w: Floats, rescaling: str) -> Tree:
        oracle = self.make_oracle([x], [y_true], np.ones(1), rescaling)
        cuts = oracle.separate(np.array(w), np.zeros(1, dtype=np.int64), Threads(1))
        found = cuts.outputs[0]
        # With the zero-one loss the search leaves the truth out; it may be better all the same.
        if found is None or cuts.slopes(np.array(w))[0] < 0.0:
            return y_true
        nodes = np.frombuffer(found, dtype=np.int32).reshape(-1, 4)
        return self.grammar.tree(nodes, x.words)

    def k_best(self, x: Sentence, w: Floats, k: int) -> list[Tree]:
        """The k best trees, best first."""
        return [tree for tree, _ in GrammarModel(self.grammar, w).k_best([x], k)[0]]

    def make_oracle(
        self, X: Sequence[Sentence], Y: Sequence[Tree], cost: Floats, rescaling: str = "margin"
    ) -> Oracle:
        """Sentences and trees with compiled searches."""
        zero_one = self.loss_name == "zero-one"
        oracle = GrammarOracle(self.grammar, X, Y, cost, zero_one=zero_one)
        # With one cost for all mistakes, the two ways of rescaling are the same.
        by_slack = rescaling == "slack" and not zero_one
        return SlackRescaledOracle(oracle) if by_slack else oracle
