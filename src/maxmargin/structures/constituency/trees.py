"""Constituency trees: a small immutable type, and scores of labelled brackets."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from maxmargin.core.registry import registered

PUNCTUATION = frozenset({",", ".", ":", "``", "''"})
"""Tags that bracket scores ignore, as evalb does."""


class TreeError(ValueError):
    """What is wrong with a tree."""


@registered("Tree")
@dataclass(frozen=True, slots=True)
class Tree:
    """A node of a parse tree with all that is below it.

    Parameters
    ----------
    label : str
        Of a phrase, or of a word: then it is a tag.
    children : tuple of Tree, or tuple of one str
        Nodes below, or the word.

    See Also
    --------
    read_trees : From brackets.
    as_tree : From any form.

    Examples
    --------
    >>> from maxmargin.structures.constituency.trees import Tree
    >>> tree = Tree("S", (Tree("NP", (Tree("NNS", ("dogs",)),)), Tree("VBP", ("bark",))))
    >>> print(tree)
    (S (NP (NNS dogs)) (VBP bark))
    >>> tree.words, tree.tags
    (('dogs', 'bark'), ('NNS', 'VBP'))
    """

    label: str
    children: tuple["Tree | str", ...]

    def __post_init__(self) -> None:
        words = [child for child in self.children if isinstance(child, str)]
        if not isinstance(self.label, str) or not self.label:
            raise TreeError(f"A node has the label {self.label!r:.50}: it must be a string.")
        if not isinstance(self.children, tuple) or not self.children:
            raise TreeError(f"The node {self.label!r:.50} has no children: give a tuple of them.")
        if not all(isinstance(child, Tree | str) for child in self.children):
            raise TreeError(f"The children of {self.label!r:.50} must be trees, or one word.")
        if words and len(self.children) > 1:
            raise TreeError(
                f"The word {words[0]!r:.50} is not the only child of {self.label!r:.50}: a word "
                f"needs a tag of its own, as in (DT the)."
            )

    @property
    def is_tag(self) -> bool:
        """Whether this is a word under its tag."""
        return isinstance(self.children[0], str)

    @property
    def nodes(self) -> tuple["Tree", ...]:
        """Children that are trees: all, or for a tag none."""
        return () if self.is_tag else self.children  # type: ignore[return-value]

    def leaves(self) -> Iterator["Tree"]:
        """The tags with their words, from left to right."""
        if self.is_tag:
            yield self
        for node in self.nodes:
            yield from node.leaves()

    @property
    def words(self) -> tuple[str, ...]:
        """Words from left to right."""
        return tuple(str(leaf.children[0]) for leaf in self.leaves())

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags from left to right."""
        return tuple(leaf.label for leaf in self.leaves())

    def __str__(self) -> str:
        return f"({self.label} {' '.join(map(str, self.children))})"


def brackets(tree: Tree, ignored: frozenset[str] = frozenset()) -> "Counter[tuple[str, int, int]]":
    """Labels of phrases with the words ``start..stop-1`` they span, counted.

    Leaves with `ignored` tags do not count as words; a phrase without any others has no bracket.
    """
    found: Counter[tuple[str, int, int]] = Counter()

    def walk(node: Tree, start: int) -> int:
        if node.is_tag:
            return start + (node.label not in ignored)
        stop = start
        for child in node.nodes:
            stop = walk(child, stop)
        if stop > start:
            found[node.label, start, stop] += 1
        return stop

    walk(tree, 0)
    return found


class BracketScores(NamedTuple):
    """Agreement of the labelled brackets of trees.

    Attributes
    ----------
    precision, recall, f1 : float
        Fractions of the predicted, of the true brackets that are right, and their harmonic mean.
    exact : float
        Fraction of the sentences all of whose brackets are right.
    """

    precision: float
    recall: float
    f1: float
    exact: float


def bracket_scores(
    y_true: Sequence[Tree],
    predictions: Iterable[Tree],
    ignored: frozenset[str] = PUNCTUATION,
) -> BracketScores:
    """Labelled brackets of predicted trees against the true ones, summed over all sentences.

    As evalb does with the usual settings: tags do not count, punctuation is taken out of the
    sentence first, brackets are compared with label and span, and one that stands twice must be
    found twice. (Evalb also takes ADVP and PRT for the same; here they differ.)

    Examples
    --------
    >>> from maxmargin.structures.constituency.formats import read_trees
    >>> from maxmargin.structures.constituency.trees import bracket_scores
    >>> y_true = read_trees("(S (NP (NNS dogs)) (VP (VBP bark)))")
    >>> bracket_scores(y_true, read_trees("(S (NNS dogs) (VP (VBP bark)))"))
    BracketScores(precision=1.0, recall=0.6666666666666666, f1=0.8, exact=0.0)
    """
    n_true = n_found = n_right = n_exact = 0
    for tree, prediction in zip(y_true, predictions, strict=True):
        true, found = brackets(tree, ignored), brackets(prediction, ignored)
        n_true += true.total()
        n_found += found.total()
        n_right += (true & found).total()
        n_exact += true == found
    precision = n_right / n_found if n_found else 1.0
    recall = n_right / n_true if n_true else 1.0
    f1 = 2 * n_right / (n_true + n_found) if n_true + n_found else 1.0
    return BracketScores(precision, recall, f1, n_exact / max(len(y_true), 1))
