"""A grammar read off a treebank: its symbols, rules and weights by number.

The weights of a grammar stand in one vector:

    binary rules       a node or part, its left and its right child
    unary rules        a node and its only child
    starts             the label of a whole tree
    leaves             a class of words and its tag, where tags are not given

A unit of the module `inference` is a chain of unary rules that the treebank has, and scores the
sum of their weights. Chains that it has not are left out: otherwise a circle of unary rules with
positive weights could be gone round for ever.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from maxmargin.core.conforming import check_indices, check_shape, check_types
from maxmargin.core.registry import registered
from maxmargin.core.state import Remade
from maxmargin.structures.constituency.chart import Nodes, Scores, make_rules
from maxmargin.structures.constituency.lexicon import Leaves, Lexicon, Sentence
from maxmargin.structures.constituency.symbols import (
    KINDS,
    BinaryRule,
    Chain,
    Markovisation,
    Step,
    Symbol,
    tree_of,
)
from maxmargin.structures.constituency.trees import Tree

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


class GrammarError(ValueError):
    """A tree that the grammar does not have; says what is missing."""


class Units(NamedTuple):
    """What stands behind units: columns of their unary rules, and labels of their phrases.

    Those of unit `u` are ``columns[column_starts[u]:column_starts[u + 1]]``, and likewise labels.
    """

    column_starts: Numbers
    columns: Numbers
    label_starts: Numbers
    labels: Numbers


@registered("Grammar")
class Grammar(Remade):
    """The rules of a treebank, binary, with a column of the weight vector for each.

    Made by `Grammar.read`.

    Attributes
    ----------
    labels : list of str
        Labels of phrases, sorted.
    tags : list of str
        Sorted.
    rule_names : list of str
        What each weight is for, as ``"NP -> DT NN"``. Parts are written ``NP[..DT JJ]``: the
        first children of an NP, the last of which are DT and JJ.
    counts : ndarray of shape (n_features,)
        How often the treebank uses each.
    root : str
        The commonest label of a whole tree.
    n_features : int

    See Also
    --------
    maxmargin.GrammarParser : Finds weights.

    Examples
    --------
    >>> from maxmargin.structures.constituency.trees import read_trees
    >>> from maxmargin.structures.constituency.grammar import Grammar
    >>> trees = read_trees("(S (NP (DT the) (JJ big) (NN dog)) (VP (VBZ barks)))")
    >>> for name in Grammar.read(trees).rule_names:
    ...     print(name)
    S -> NP VP
    NP[..DT JJ] -> DT JJ
    NP -> NP[..DT JJ] NN
    VP -> VBZ
    start -> S
    """

    def __init__(
        self,
        markovisation: Markovisation,
        binary: "Counter[BinaryRule]",
        chains: "Counter[Chain]",
        starts: "Counter[Symbol]",
        lexicon_pairs: "Counter[tuple[str, str]] | None",
        min_count: int,
    ) -> None:
        self.markovisation, self.min_count = markovisation, min_count
        symbols = {symbol for rule in binary for symbol in rule}
        symbols |= {symbol for chain in chains for symbol in chain}
        self.symbols = sorted(symbols, key=lambda symbol: (KINDS.index(symbol.kind), symbol))
        self._number = {symbol: number for number, symbol in enumerate(self.symbols)}
        number = self._number
        self.labels = sorted({symbol.label for symbol in symbols if symbol.kind == "phrase"})
        self.tags = [symbol.label for symbol in self.symbols if symbol.kind == "tag"]
        self.root = max(starts, key=lambda symbol: (starts[symbol], symbol)).label

        def by_children(rule: BinaryRule) -> tuple[int, ...]:
            parent, left, right = rule
            return number[left], number[right], number[parent]

        self.binary = sorted(binary, key=by_children)
        self.chains = sorted(chains, key=lambda chain: [number[symbol] for symbol in chain])
        unary: Counter[tuple[Symbol, Symbol]] = Counter()
        for chain, count in chains.items():
            for pair in pairwise(chain):
                unary[pair] += count
        self.unary = sorted(unary, key=lambda pair: (number[pair[0]], number[pair[1]]))
        self.starts = sorted(starts, key=number.__getitem__)
        self._chain_counts = np.array([chains[chain] for chain in self.chains])
        self.lexicon = Lexicon(
            {tag: number[Symbol("tag", tag)] for tag in self.tags}, lexicon_pairs, min_count
        )
        self.counts = np.array(
            [binary[rule] for rule in self.binary]
            + [unary[pair] for pair in self.unary]
            + [starts[symbol] for symbol in self.starts]
            + self.lexicon.counts,
            dtype=np.float64,
        )
        self._rule_of = {rule: at for at, rule in enumerate(self.binary)}
        self._unit_of = {chain: at for at, chain in enumerate(self.chains)}
        self.rules = make_rules(
            sum(symbol.kind != "part" for symbol in self.symbols),
            len(self.symbols),
            np.array([[number[symbol] for symbol in rule] for rule in self.binary]),
            np.array([[number[chain[0]], number[chain[-1]]] for chain in self.chains]),
        )

    def parts(self) -> dict[str, Any]:
        numbers, pairs = self._number, self.lexicon.pairs
        n_binary, n_unary = len(self.binary), len(self.unary)
        chain_symbols = [numbers[symbol] for chain in self.chains for symbol in chain]
        return {
            "markovisation": self.markovisation,
            "min_count": self.min_count,
            "symbols": self.symbols,
            "binary": np.array([[numbers[symbol] for symbol in rule] for rule in self.binary]),
            "binary_counts": self.counts[:n_binary],
            "chains": np.array(chain_symbols),
            "chain_lengths": np.array([len(chain) for chain in self.chains]),
            "chain_counts": self._chain_counts,
            "starts": np.array([numbers[symbol] for symbol in self.starts]),
            "start_counts": self.counts[n_binary + n_unary :][: len(self.starts)],
            "lexicon": [] if pairs is None else [list(map(list, pairs)), list(pairs.values())],
        }

    @classmethod
    def remade(cls, **parts: Any) -> Self:
        check_types(cls.__name__, parts, _PARTS)
        _check_parts(**parts)
        symbols = parts["symbols"]

        def counter(rules: Iterable[Any], counts: Iterable[Any]) -> "Counter[Any]":
            return Counter(dict(zip(rules, map(int, counts), strict=True)))

        def named(numbers: Iterable[int]) -> tuple[Symbol, ...]:
            return tuple(symbols[number] for number in numbers)

        ends = np.cumsum(parts["chain_lengths"])[:-1]
        pairs = None
        if parts["lexicon"]:
            words, counts = parts["lexicon"]
            pairs = counter(map(tuple, words), counts)
        return cls(
            parts["markovisation"],
            counter(map(named, parts["binary"]), parts["binary_counts"]),
            counter(map(named, np.split(parts["chains"], ends)), parts["chain_counts"]),
            counter(named(parts["starts"]), parts["start_counts"]),
            pairs,
            parts["min_count"],
        )

    @classmethod
    def read(
        cls,
        trees: Sequence[Tree],
        *,
        horizontal: int | None = 2,
        vertical: int = 1,
        tags: str = "given",
        min_count: int = 3,
    ) -> "Grammar":
        """The grammar of a treebank.

        Parameters
        ----------
        trees : sequence of Tree
        horizontal : int or None, default=2
            Children that a part of a node remembers. None is all: then exactly the rules of the
            treebank are there; the fewer, the more others can be put together from their parts.
        vertical : int, default=1
            Nodes whose labels a phrase knows: 1 is its own, 2 also its parent's, ...
        tags : {"given", "predicted"}, default="given"
            Whether sentences come with their tags, or tags belong to the tree that is predicted.
        min_count : int, default=3
            If tags are predicted: words seen less often share a class with those that look alike.

        Returns
        -------
        grammar : Grammar
        """
        if not len(trees):
            raise GrammarError("There are no trees to read a grammar off.")
        how = Markovisation(horizontal, vertical)
        binary: Counter[BinaryRule] = Counter()
        chains: Counter[Chain] = Counter()
        starts: Counter[Symbol] = Counter()
        pairs: Counter[tuple[str, str]] = Counter()
        for tree in trees:
            steps = how.steps(tree)
            binary.update(step.rule for step in steps if step.rule is not None)
            chains.update(step.chain for step in steps if step.chain is not None)
            starts.update(chain[0] for chain in (steps[0].chain,) if chain is not None)
            pairs.update(zip(tree.words, tree.tags, strict=True))
        return cls(how, binary, chains, starts, None if tags == "given" else pairs, min_count)

    # Columns

    @property
    def n_features(self) -> int:
        """Number of weights."""
        return len(self.counts)

    @property
    def first_start(self) -> int:
        """Column of the first start."""
        return len(self.binary) + len(self.unary)

    @property
    def first_leaf(self) -> int:
        """Column of the first leaf."""
        return self.first_start + len(self.starts)

    @property
    def rule_names(self) -> list[str]:
        """What each weight is for."""
        return [
            *(f"{parent} -> {left} {right}" for parent, left, right in self.binary),
            *(f"{parent} -> {child}" for parent, child in self.unary),
            *(f"start -> {symbol}" for symbol in self.starts),
            *(f"{tag} -> {name!r}" for name, tag in self.lexicon.entries),
        ]

    @cached_property
    def units(self) -> Units:
        """Columns and labels of the units."""
        first = len(self.binary)
        column = {pair: first + at for at, pair in enumerate(self.unary)}
        label = {name: at for at, name in enumerate(self.labels)}
        columns = [[column[pair] for pair in pairwise(chain)] for chain in self.chains]
        labels = [
            [label[symbol.label] for symbol in chain if symbol.kind == "phrase"]
            for chain in self.chains
        ]
        return Units(*_stacked(columns), *_stacked(labels))

    @cached_property
    def start_columns(self) -> Numbers:
        """Column of each symbol as a start, -1 where it is none."""
        columns = np.full(self.rules.n_complete, -1, dtype=np.int64)
        for at, symbol in enumerate(self.starts):
            columns[self._number[symbol]] = self.first_start + at
        return columns

    # Trees

    def nodes(self, tree: Tree) -> Nodes:
        """The derivation of a tree, as `maxmargin.structures.constituency.inference` has it.

        Raises
        ------
        GrammarError
            If the grammar has not all that it needs.
        """
        strange = [tag for tag in tree.tags if tag not in self.lexicon.tags]
        if strange:
            raise GrammarError(f"The grammar has no tag {strange[0]!r}.")
        steps = self.markovisation.steps(tree)
        if steps[0].chain is None or steps[0].chain[0] not in self.starts:
            raise GrammarError(f"The grammar has no whole trees with the label {tree.label!r}.")
        return np.array([self._row(step) for step in steps], dtype=np.int32)

    def _row(self, step: Step) -> tuple[int, int, int, int]:
        unit = rule = -1
        if step.chain is not None:
            unit = self._unit_of.get(step.chain, -1)
            if unit < 0:
                chain = " -> ".join(map(str, step.chain))
                raise GrammarError(f"The grammar has no chain {chain}.")
        if step.rule is not None:
            rule = self._rule_of.get(step.rule, -1)
            if rule < 0:
                parent, left, right = step.rule
                raise GrammarError(f"The grammar has no rule {parent} -> {left} {right}.")
        return step.start, step.stop, unit, rule

    def tree(self, nodes: Nodes, words: Sequence[str]) -> Tree:
        """The tree of a derivation."""
        steps = [
            Step(
                start,
                stop,
                self.chains[unit] if unit >= 0 else None,
                self.binary[rule] if rule >= 0 else None,
            )
            for start, stop, unit, rule in nodes.tolist()
        ]
        return tree_of(steps, words)

    def flat_tree(self, sentence: Sentence) -> Tree:
        """All words under one node: for sentences that the grammar cannot parse."""
        tags = sentence.tags if self.lexicon.given else None
        tags = tags or tuple(self.lexicon.commonest_tag(word) for word in sentence.words)
        pairs = zip(tags, sentence.words, strict=True)
        return Tree(self.root, tuple(Tree(tag, (word,)) for tag, word in pairs))

    # Scores

    def features(self, sentence: Sentence, nodes: Nodes) -> Floats:
        """How often a derivation of a sentence uses what the weights are for."""
        units, rules = nodes[:, 2], nodes[:, 3]
        ends, columns = self.units.column_starts, self.units.columns
        used: list[NDArray[Any]] = [rules[rules >= 0]]
        used += [self.start_columns[self.rules.unit_tops[units[:1]]]]
        used += [columns[ends[unit] : ends[unit + 1]] for unit in units[units >= 0]]
        leaves = self.leaves([sentence])
        for start, _, unit, _ in nodes[rules < 0].tolist():
            some = slice(leaves.starts[start], leaves.starts[start + 1])
            chosen = leaves.symbols[some] == self.rules.unit_bottoms[unit]
            used.append(leaves.columns[some][chosen & (leaves.columns[some] >= 0)])
        counts = np.bincount(np.concatenate(used), minlength=self.n_features)
        return counts.astype(np.float64)

    def scores(self, weights: Floats) -> Scores:
        """What rules, units and starts are worth by these weights."""
        units = self.units
        owners = np.repeat(np.arange(self.rules.n_units), np.diff(units.column_starts))
        of_units = np.bincount(owners, weights=weights[units.columns], minlength=self.rules.n_units)
        starts = np.full(self.rules.n_complete, -np.inf)
        possible = self.start_columns >= 0
        starts[possible] = weights[self.start_columns[possible]]
        return Scores(
            np.array(weights[: len(self.binary)]), of_units[None, :].astype(np.float64), starts
        )

    def leaves(self, sentences: Sequence[Sentence]) -> Leaves:
        """Tags that the words of the sentences may have."""
        return self.lexicon.leaves(sentences, self.first_leaf)

    def log_probabilities(self) -> Floats:
        """Maximum-likelihood weights: the logarithm of each rule's share of its parent's rules.

        With them, the score of a tree is its logarithmic probability by the grammar.
        """
        parents = [self._number[rule[0]] for rule in self.binary]
        parents += [self._number[pair[0]] for pair in self.unary]
        parents += [len(self.symbols)] * len(self.starts)
        parents += [self._number[Symbol("tag", tag)] for _, tag in self.lexicon.entries]
        totals = np.bincount(parents, weights=self.counts)
        return np.asarray(np.log(self.counts / totals[parents]), dtype=np.float64)


def _stacked(lists: Sequence[Sequence[Any]]) -> tuple[Numbers, Numbers]:
    """Where each list starts when they stand one after the other, and all of them."""
    starts = np.zeros(len(lists) + 1, dtype=np.int64)
    np.cumsum([len(each) for each in lists], out=starts[1:])
    return starts, np.array([number for each in lists for number in each], dtype=np.int64)


_PARTS: dict[str, Any] = {
    "markovisation": Markovisation, "min_count": int, "symbols": list[Symbol], "binary": Numbers,
    "binary_counts": Floats, "chains": Numbers, "chain_lengths": Numbers, "chain_counts": Numbers,
    "starts": Numbers, "start_counts": Floats, "lexicon": list[Any],
}  # fmt: skip
"""Types of the parts of a grammar in a file."""


def _check_parts(**parts: Any) -> None:
    """Refuse parts of a grammar that name symbols it has not, or of a kind that cannot be there.

    Raises
    ------
    ValueError
    """
    symbols, chains, lengths = parts["symbols"], parts["chains"], parts["chain_lengths"]
    n_rules = len(parts["binary_counts"])
    if n_rules:
        check_shape("binary", parts["binary"], n_rules, 3)
    for name in ("binary", "chains", "starts"):
        check_indices(name, parts[name], len(symbols))
    if len(set(symbols)) < len(symbols):
        raise ValueError("the grammar has a symbol twice")
    whole = np.array([symbol.kind != "part" for symbol in symbols])
    if not (whole[chains].all() and whole[parts["starts"]].all()):
        raise ValueError("a part of a phrase stands where only phrases and tags can")
    if (lengths < 1).any() or lengths.sum() != len(chains) or not len(parts["starts"]):
        raise ValueError("the chains of the grammar do not fit their lengths")
