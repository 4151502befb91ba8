"""Trees as derivations of a binary grammar, and back.

A node with more than two children is read from the left, one child at a time: its first children
stand under a *part*, a symbol that knows its node and the last `horizontal` of these children. A
chain of nodes with a single child each is one *unit* of the node it ends in. Both can be undone: a
derivation belongs to exactly one tree, and a tree to one derivation.
"""

from collections.abc import Sequence
from typing import NamedTuple

from maxmargin.core.registry import registered
from maxmargin.structures.constituency.trees import Tree

KINDS = "phrase", "tag", "part"
"""Of symbols, in their order."""


@registered("Symbol", check="check")
class Symbol(NamedTuple):
    """What a node of a derivation is labelled with.

    Attributes
    ----------
    kind : {"phrase", "tag", "part"}
    label : str
        Of the tree's node; of a part, the label of the node it is a part of.
    above : tuple of str
        Labels of the ancestors that the symbol knows, nearest first. Tags know none.
    last : tuple of Symbol
        Of a part: the last of the children it stands for.
    """

    kind: str
    label: str
    above: tuple[str, ...] = ()
    last: tuple["Symbol", ...] = ()

    def check(self) -> None:
        """Raise ValueError if there is no such kind."""
        if self.kind not in KINDS:
            raise ValueError(f"{self.kind!r:.40} is no kind of symbol")

    def __str__(self) -> str:
        name = "^".join((self.label, *self.above))
        return f"{name}[..{' '.join(map(str, self.last))}]" if self.kind == "part" else name


Chain = tuple[Symbol, ...]
"""Symbols of a chain of nodes, top to bottom; the last has several children, or is a tag."""

BinaryRule = tuple[Symbol, Symbol, Symbol]
"""Parent, left and right child."""


class Step(NamedTuple):
    """A node of a derivation in symbols, as the module `inference` has it in numbers."""

    start: int
    stop: int
    chain: Chain | None
    rule: BinaryRule | None


@registered("Markovisation")
class Markovisation(NamedTuple):
    """How much symbols know.

    Attributes
    ----------
    horizontal : int or None
        Children that a part remembers; None is all of them.
    vertical : int
        Nodes whose labels a phrase knows, itself included.
    """

    horizontal: int | None
    vertical: int

    def steps(self, tree: Tree) -> list[Step]:
        """The derivation of a tree, a node above its left, above its right subtree."""
        return self._steps(tree, (), 0)

    def symbol(self, node: Tree, above: tuple[str, ...]) -> Symbol:
        """Of a node below these ancestors."""
        if node.is_tag:
            return Symbol("tag", node.label)
        return Symbol("phrase", node.label, above[: self.vertical - 1])

    def _steps(self, node: Tree, above: tuple[str, ...], start: int) -> list[Step]:
        chain = [self.symbol(node, above)]
        while len(node.nodes) == 1:
            above = (node.label, *above[: self.vertical])
            node = node.nodes[0]
            chain.append(self.symbol(node, above))
        if node.is_tag:
            return [Step(start, start + 1, tuple(chain), None)]
        above = (node.label, *above[: self.vertical])
        below: list[Step] = []
        stops = [start]
        for child in node.nodes:
            steps = self._steps(child, above, stops[-1])
            below += steps
            stops.append(steps[0].stop)
        children = [self.symbol(child, above) for child in node.nodes]
        return self._heads(tuple(chain), children, stops) + below

    def _heads(self, chain: Chain, children: Sequence[Symbol], stops: Sequence[int]) -> list[Step]:
        """The node and its parts, from all children down to the first two."""
        heads = []
        parent = chain[-1]
        for n in range(len(children), 1, -1):
            left = self._part(chain[-1], children[: n - 1]) if n > 2 else children[0]
            whole = chain if n == len(children) else None
            heads.append(Step(stops[0], stops[n], whole, (parent, left, children[n - 1])))
            parent = left
        return heads

    def _part(self, node: Symbol, children: Sequence[Symbol]) -> Symbol:
        kept = len(children) if self.horizontal is None else min(self.horizontal, len(children))
        return Symbol("part", node.label, node.above, tuple(children[len(children) - kept :]))


def tree_of(steps: Sequence[Step], words: Sequence[str]) -> Tree:
    """The tree of a derivation."""

    def children(row: int) -> list[Tree]:
        """What hangs below a node or part."""
        found: list[Tree] = []
        right: list[int] = []
        while True:  # down along the parts, which may be many
            middle = steps[row + 1].stop
            right.append(row + 2 * (middle - steps[row].start))
            row += 1
            if steps[row].chain is not None:
                break
        found.append(node(row))
        found.extend(node(child) for child in reversed(right))
        return found

    def node(row: int) -> Tree:
        step = steps[row]
        assert step.chain is not None
        *upper, bottom = step.chain
        if step.rule is None:
            tree = Tree(bottom.label, (words[step.start],))
        else:
            tree = Tree(bottom.label, tuple(children(row)))
        for symbol in reversed(upper):
            tree = Tree(symbol.label, (tree,))
        return tree

    return node(0)
