"""Parse trees: a small immutable type, Penn brackets in and out, and bracket scores.

Treebanks write a tree as ``(S (NP (DT the) (NN dog)) (VP (VBZ barks)))``: every word stands alone
under its tag, and tags and phrases stand under phrases. As the Penn treebank has it, labels carry
function tags (``NP-SBJ``, ``NP=2``), traces are words under the tag ``-NONE-``, and the whole
stands in one more pair of brackets without a label. Readers here take all three away.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from maxmargin.core.registry import registered
from maxmargin.data.files import FileFormatError, PathLike
from maxmargin.data.formats import FileFormat, Format, Head
from maxmargin.data.text import lines_of, shown_name

TRACE = "-NONE-"
"""Tag of what is not there to be read."""

PUNCTUATION = frozenset({",", ".", ":", "``", "''"})
"""Tags that bracket scores leave out, as evalb does."""

ROOT = "ROOT"
"""Label of a tree whose outermost brackets have none, but hold several nodes."""

DEEPEST = 200
"""Brackets within brackets that are read; those of languages have some forty."""

_TOKEN = re.compile(r"[()]|[^ \t\r()]+")  # other spaces may be part of words


class TreeError(ValueError):
    """What is wrong with a tree."""


class TreeTextError(TreeError, FileFormatError):
    """What is wrong with a tree in a text, and where it stands."""


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


# Reading


class _Open(NamedTuple):
    """A bracket that is not closed yet: its line, and what was read since."""

    line: int
    content: list[Any]


def read_trees(text: str, *, clean: bool = True, source: str = "the text") -> list[Tree]:
    """Trees of a text in Penn brackets.

    Parameters
    ----------
    text : str
        Any number of trees.
    clean : bool, default=True
        Cut function tags and remove traces, see `cleaned`.
    source : str, default="the text"
        What to call the text in errors.

    Returns
    -------
    trees : list of Tree

    Raises
    ------
    TreeTextError
        With the line, if brackets do not match, a label is missing, a word has no tag of its
        own, nothing but traces is in a tree, or brackets are nested deeper than any sentence.

    See Also
    --------
    read_tree_file : The same from a file.

    Examples
    --------
    >>> from maxmargin.structures.constituency.trees import read_trees
    >>> for tree in read_trees("( (S (NP-SBJ (-NONE- *)) (VP (VB Stop))) )"):
    ...     print(tree)
    (S (VP (VB Stop)))
    """
    return trees_of_lines(text.split("\n"), clean, source)


def trees_of_lines(lines: Iterable[str], clean: bool, source: str) -> list[Tree]:
    """The same of lines, which are taken one by one; see `read_trees`."""
    trees: list[Tree] = []
    path: list[_Open] = []
    for number, line in enumerate(lines, start=1):
        for token in _TOKEN.findall(line):
            if token == "(":
                path.append(_Open(number, []))
                if len(path) > DEEPEST:
                    reason = f"brackets are nested deeper than {DEEPEST}: is one not closed?"
                    raise TreeTextError(source, path[0].line, reason)
                continue
            if not path:
                what = "a closing bracket" if token == ")" else f"{token!r:.50}"
                raise TreeTextError(source, number, f"{what} stands outside of any tree.")
            if token != ")":
                path[-1].content.append(token)
                continue
            opened = path.pop()
            try:
                if path:
                    path[-1].content.append(_node(opened.content))
                else:
                    trees.append(_whole(opened.content, clean))
            except TreeError as error:
                raise TreeTextError(source, opened.line, str(error)) from None
    if path:
        raise TreeTextError(source, path[0].line, "the tree that begins here has no end.")
    return trees


def read_tree_file(
    path: PathLike, *, clean: bool = True, encoding: str | None = None
) -> list[Tree]:
    """Trees of a file in Penn brackets, as `read_trees` reads them.

    Parameters
    ----------
    path : path
        Plain or compressed by gzip, bzip2, xz or zstd; ``"-"`` is standard input.
    clean : bool, default=True
        Cut function tags and remove traces, see `cleaned`.
    encoding : str, default=None
        Such as ``"latin-1"``; None is UTF-8.

    Returns
    -------
    trees : list of Tree
        In the order of the file.

    Raises
    ------
    FileFormatError
        With the line, if the file is no text or holds something else than trees.
    """
    return trees_of_lines(lines_of(path, encoding), clean, shown_name(path))


def _node(content: list[Any]) -> Tree:
    """A node from what stood between its brackets: a label, then children."""
    if not content:
        raise TreeError("brackets with nothing in them.")
    label, *children = content
    if not isinstance(label, str):
        raise TreeError("brackets inside of a tree begin without a label.")
    return Tree(label, tuple(children))


def _whole(content: list[Any], clean: bool) -> Tree:
    """A whole tree, without the brackets around it that have no label."""
    if content and not isinstance(content[0], str):
        only = len(content) == 1
        tree = content[0] if only else _node([ROOT, *content])
    else:
        tree = _node(content)
    if not clean:
        return tree
    kept = cleaned(tree)
    if kept is None:
        raise TreeError("nothing is left of the tree without its traces.")
    return kept


def cleaned(tree: Tree) -> Tree | None:
    """The tree without function tags and traces, or None if there is nothing else.

    Labels end before their first ``-`` or ``=``, unless that is where they begin (``-LRB-``).
    Leaves tagged ``-NONE-`` go, and so do nodes that have no other leaves.

    Examples
    --------
    >>> from maxmargin.structures.constituency.trees import cleaned, read_trees
    >>> tree, = read_trees("(S (NP-SBJ-1 (-LRB- -LCB-)) (NP=2 (-NONE- *T*-1)))", clean=False)
    >>> print(cleaned(tree))
    (S (NP (-LRB- -LCB-)))
    """
    if tree.label == TRACE:
        return None
    label = tree.label if tree.label[0] in "-=" else re.split("[-=]", tree.label)[0]
    if tree.is_tag:
        return Tree(label, tree.children)
    kept = tuple(child for child in map(cleaned, tree.nodes) if child is not None)
    return Tree(label, kept) if kept else None


def as_tree(given: Any) -> Tree:
    """A tree from any form in which people have it.

    Parameters
    ----------
    given : Tree, str or nested tree
        A `Tree` is returned as it is. Brackets in a string and trees as those of NLTK (objects
        with ``label()`` whose items are trees or words) are cleaned, see `cleaned`.

    Returns
    -------
    tree : Tree

    Raises
    ------
    TreeError
        If it is none of these, or not exactly one tree.
    """
    if isinstance(given, Tree):
        return given
    if isinstance(given, str):
        trees = read_trees(given)
        if len(trees) != 1:
            raise TreeError(f"The text holds {len(trees)} trees where one is wanted.")
        return trees[0]
    if not callable(getattr(given, "label", None)):
        raise TreeError(
            f"A {type(given).__name__} is no tree: give brackets in a string, a Tree, or an "
            f"object with label() and children."
        )
    return _whole(_content(given), clean=True)


def _content(given: Any) -> list[Any]:
    """What would stand between the brackets of a tree of NLTK's kind."""
    label = given.label()
    children = [child if isinstance(child, str) else _node(_content(child)) for child in given]
    return [str(label), *children] if label else children


# Scores


def brackets(tree: Tree, ignored: frozenset[str] = frozenset()) -> "Counter[tuple[str, int, int]]":
    """Labels of phrases with the words ``start..stop-1`` they span, counted.

    Leaves with `ignored` tags do not count as words; a phrase without any others has no bracket.

    Examples
    --------
    >>> from maxmargin.structures.constituency.trees import brackets, read_trees
    >>> tree, = read_trees("(S (NP (NNS dogs)) (VP (VBP bark)) (. .))")
    >>> sorted(brackets(tree))
    [('NP', 0, 1), ('S', 0, 3), ('VP', 1, 2)]
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
    """How well the brackets of trees agree.

    Attributes
    ----------
    precision, recall, f1 : float
        Shares of the predicted, of the true brackets that are right, and their harmonic mean.
    exact : float
        Share of the sentences all of whose brackets are right.
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
    >>> from maxmargin.structures.constituency.trees import bracket_scores, read_trees
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


def _recognise(head: Head) -> Format | None:
    """Penn brackets, if the text begins with a whole tree."""
    depth, tree = 0, ""
    for letter in chain.from_iterable(f"{line}\n" for line in head.lines):
        if not depth and letter.isspace():
            continue
        depth += (letter == "(") - (letter == ")")
        tree += letter
        if depth <= 0:
            break
    try:
        read = read_trees(tree, clean=False) if tree.startswith("(") else []
    except TreeError:
        return None
    return Format("penn", "parsing", "trees in brackets: parsing") if read else None


FILE_FORMAT = FileFormat("penn", "Penn trees", _recognise, reader="mm.data.read_tree_file")
