"""Penn brackets: treebanks read from strings and files, and trees in any form."""

import re
from collections.abc import Iterable
from typing import Any

from maxmargin.data.files import FileFormatError, PathLike, lines_of, shown_name
from maxmargin.structures.constituency.grammar import Tree, TreeError

TRACE = "-NONE-"
"""Tag of traces, which are no words of the sentence."""

ROOT = "ROOT"
"""Label of a tree whose unlabelled outermost brackets hold several nodes."""

DEEPEST = 200
"""Bound on the depth of brackets; treebanks have about forty."""

_TOKEN = re.compile(r"[()]|[^ \t\r()]+")  # other spaces may be part of words


class TreeTextError(TreeError, FileFormatError):
    """What is wrong with a tree in a text, and where."""


def read_trees(text: str, *, clean: bool = True, source: str = "the text") -> list[Tree]:
    """Trees of a text in Penn brackets, ``(S (NP (DT the) (NN dog)) (VP (VBZ barks)))``.

    Parameters
    ----------
    text : str
        Any number of trees.
    clean : bool, default=True
        Cut function tags (``NP-SBJ``, ``NP=2``) and remove traces (``-NONE-``).
    source : str, default="the text"
        What to call the text in errors.

    Returns
    -------
    trees : list of Tree

    Raises
    ------
    TreeTextError
        With the line, if brackets do not match or are nested too deep, a label is missing, a word
        has no tag of its own, or a tree holds nothing but traces.

    See Also
    --------
    read_tree_file : The same from a file.

    Examples
    --------
    >>> from maxmargin.structures.constituency.formats import read_trees
    >>> for tree in read_trees("( (S (NP-SBJ (-NONE- *)) (VP (VB Stop))) )"):
    ...     print(tree)
    (S (VP (VB Stop)))
    """
    return trees_of_lines(text.split("\n"), clean, source)


def trees_of_lines(lines: Iterable[str], clean: bool, source: str) -> list[Tree]:
    """`read_trees` of lines, taken one by one."""
    trees: list[Tree] = []
    path: list[tuple[int, list[Any]]] = []  # of brackets that are open: line, and what they hold
    for number, line in enumerate(lines, start=1):
        for token in _TOKEN.findall(line):
            if token == "(":
                path.append((number, []))
                if len(path) > DEEPEST:
                    reason = f"brackets are nested deeper than {DEEPEST}: is one not closed?"
                    raise TreeTextError(source, path[0][0], reason)
                continue
            if not path:
                what = "a closing bracket" if token == ")" else f"{token!r:.50}"
                raise TreeTextError(source, number, f"{what} stands outside of any tree.")
            if token != ")":
                path[-1][1].append(token)
                continue
            line_number, content = path.pop()
            try:
                if path:
                    path[-1][1].append(_node(content))
                else:
                    trees.append(_whole(content, clean))
            except TreeError as error:
                raise TreeTextError(source, line_number, str(error)) from None
    if path:
        raise TreeTextError(source, path[0][0], "the tree that begins here has no end.")
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
        Cut function tags and remove traces.
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
    """A node from the content of its brackets: a label, then children."""
    if not content:
        raise TreeError("brackets with nothing in them.")
    label, *children = content
    if not isinstance(label, str):
        raise TreeError("brackets inside of a tree begin without a label.")
    return Tree(label, tuple(children))


def _whole(content: list[Any], clean: bool) -> Tree:
    """A whole tree, without unlabelled brackets around it."""
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
    """The tree without function tags and traces, or None if nothing is left.

    Labels end before their first ``-`` or ``=``, unless they begin with it (``-LRB-``).
    """
    if tree.label == TRACE:
        return None
    label = tree.label if tree.label[0] in "-=" else re.split("[-=]", tree.label)[0]
    if tree.is_tag:
        return Tree(label, tree.children)
    kept = tuple(child for child in map(cleaned, tree.nodes) if child is not None)
    return Tree(label, kept) if kept else None


def as_tree(given: Any) -> Tree:
    """A tree from a `Tree`, from brackets or from NLTK; the latter two are `cleaned`."""
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
    """Content of the brackets of a tree of NLTK's kind."""
    label = given.label()
    children = [child if isinstance(child, str) else _node(_content(child)) for child in given]
    return [str(label), *children] if label else children
