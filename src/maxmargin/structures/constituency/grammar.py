"""Constituency trees, and a grammar read off a treebank.

Weights are those of binary rules, unary rules, start symbols and, where tags are predicted, leaves.
Trees are binarised from the left with Markovisation (Klein and Manning 2003): the first children of
a long node stand under an intermediate symbol. Unary chains of the treebank, and no others, are
collapsed into *units*: cycles of positive unary rules would have no best derivation.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np

from maxmargin.core.arrays import Floats, check_indices, check_shape, check_types
from maxmargin.core.cuts import starts_of
from maxmargin.core.registry import registered
from maxmargin.core.state import Remade
from maxmargin.structures.constituency.inference import (
    Nodes,
    Numbers,
    Scores,
    list_columns,
    make_rules,
)

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
    >>> from maxmargin.structures.constituency.grammar import Tree
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
    """Count labelled brackets ``(label, start, stop)`` over words whose tags are not `ignored`."""
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
    """Precision, recall and F1 of labelled brackets, and the fraction of exact trees."""

    precision: float
    recall: float
    f1: float
    exact: float


def bracket_scores(
    y_true: Sequence[Tree],
    predictions: Iterable[Tree],
    ignored: frozenset[str] = PUNCTUATION,
) -> BracketScores:
    """Precision, recall and F1 of labelled brackets, over all sentences.

    As evalb with the usual settings: tags do not count, punctuation (`ignored` tags) is removed
    first, and a bracket that stands twice must be found twice. Unlike in evalb, ADVP and PRT
    differ.

    Examples
    --------
    >>> from maxmargin.structures.constituency.formats import read_trees
    >>> from maxmargin.structures.constituency.grammar import bracket_scores
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


KINDS = "phrase", "tag", "part"
"""Kinds of symbols; "part" are intermediate ones."""


@registered("Symbol", check="check")
class Symbol(NamedTuple):
    """Label of a node of a derivation.

    An intermediate symbol has the `label` of its node, and the `last` children it stands for;
    phrases remember the labels `above`, nearest first.
    """

    kind: str
    label: str
    above: tuple[str, ...] = ()
    last: tuple["Symbol", ...] = ()

    def check(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"{self.kind!r:.40} is no kind of symbol")

    def __str__(self) -> str:
        name = "^".join((self.label, *self.above))
        return f"{name}[..{' '.join(map(str, self.last))}]" if self.kind == "part" else name


Chain = tuple[Symbol, ...]
"""Symbols of a unary chain from the top; the last is a tag or has several children."""

BinaryRule = tuple[Symbol, Symbol, Symbol]
"""Parent, left and right child."""


class Step(NamedTuple):
    """A node of a derivation; intermediate ones have no chain, leaves no rule."""

    start: int
    stop: int
    chain: Chain
    rule: tuple[()] | BinaryRule


@registered("Markovisation")
class Markovisation(NamedTuple):
    """How much context symbols have, see `Grammar.read`."""

    horizontal: int | None
    vertical: int

    def steps(self, node: Tree, above: tuple[str, ...] = (), start: int = 0) -> list[Step]:
        """The derivation of a tree below these ancestors, from word `start` on, in preorder."""
        chain: Chain = ()
        nodes: tuple[Tree, ...] = (node,)
        while len(nodes) == 1:
            (node,) = nodes
            kept = () if node.is_tag else above[: self.vertical - 1]
            chain += (Symbol("tag" if node.is_tag else "phrase", node.label, kept),)
            above, nodes = (node.label, *above[: self.vertical]), node.nodes
        if node.is_tag:
            return [Step(start, start + 1, chain, ())]
        below: list[Step] = []
        children: list[Symbol] = []
        stops = [start]
        for child in nodes:
            steps = self.steps(child, above, stops[-1])
            below += steps
            children.append(steps[0].chain[0])
            stops.append(steps[0].stop)
        # The node and its intermediate symbols, from all children down to the first two.
        heads: list[Step] = []
        top = parent = chain[-1]
        for n in range(len(children), 1, -1):
            left = children[0]
            if n > 2:
                first = 0 if self.horizontal is None else max(n - 1 - self.horizontal, 0)
                left = Symbol("part", top.label, top.above, tuple(children[first : n - 1]))
            rule = parent, left, children[n - 1]
            heads.append(Step(start, stops[n], () if heads else chain, rule))
            parent = left
        return heads + below


_SUFFIXES = ("ing", "ed", "ly", "ion", "er", "est", "al", "ity", "y", "s")

_NUMBER = re.compile(r"[\d.,:/%-]*\d[\d.,:/%-]*(s|th|st|nd|rd)?")


class Sentence(NamedTuple):
    """A sentence to parse; `tags` are None if unknown."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None


class Leaves(NamedTuple):
    """Tags that words may have.

    Word `t`, sentences concatenated, may have ``symbols[starts[t]:starts[t + 1]]``, whose weights
    are in `columns`, -1 for none.
    """

    starts: Numbers
    symbols: Numbers
    columns: Numbers


def shape(word: str) -> str:
    """Class of a rare word: "<number>", or what applies of "<Capitalhyphen-ed>"."""
    if _NUMBER.fullmatch(word):
        return "<number>"
    begin = "Capital" if word[:1].isupper() else ""
    hyphen = "hyphen" if "-" in word[1:-1] else ""
    ending = next((f"-{end}" for end in _SUFFIXES if word.lower().endswith(end)), "")
    return f"<{begin}{hyphen}{ending}>"


class Lexicon:
    """Tags of words: given with the sentence, or those that the word had in the treebank.

    `pairs` counts words with tags, None if tags are given. Words rarer than `min_count` share a
    class with words of the same `shape`. Each of the `entries`, a class and a tag, has a weight.
    """

    UNKNOWN = "<unknown>"
    """Class of words of a shape that no rare word has; it counts all rare words."""

    def __init__(
        self, tags: dict[str, int], pairs: "Counter[tuple[str, str]] | None", min_count: int
    ) -> None:
        self.tags, self.pairs, self.given = tags, pairs, pairs is None
        words: Counter[str] = Counter()
        for (word, _), count in (pairs or {}).items():
            words[word] += count
        self._known = {word for word, count in words.items() if count >= min_count}
        counts: Counter[tuple[str, str]] = Counter()
        for (word, tag), count in (pairs or {}).items():
            counts[self._class(word), tag] += count
            if word not in self._known or len(self._known) == len(words):
                counts[self.UNKNOWN, tag] += count
        self.entries = sorted(counts)
        self.counts = [counts[entry] for entry in self.entries]
        self._columns: dict[str, list[tuple[int, int]]] = {}
        for column, (name, tag) in enumerate(self.entries):
            self._columns.setdefault(name, []).append((tags[tag], column))

    def _class(self, word: str) -> str:
        return word if word in self._known else shape(word)

    def of_word(self, word: str) -> list[tuple[int, int]]:
        """Tags of a word by number, with the columns of their weights."""
        return self._columns.get(self._class(word)) or self._columns[self.UNKNOWN]

    def most_frequent_tag(self, word: str) -> str:
        _, column = max(self.of_word(word), key=lambda pair: self.counts[pair[1]])
        return self.entries[column][1]

    def leaves(self, sentences: Sequence[Sentence], first_column: int) -> Leaves:
        """Leaves of sentences, weights from `first_column` on; none for an unknown tag."""
        found: list[list[tuple[int, int]]] = []
        for words, tags in sentences:
            if self.given:
                found += [[(self.tags[tag], -1)] if tag in self.tags else [] for tag in tags or ()]
            else:
                found += map(self.of_word, words)
        starts, flat = _stacked(found)
        symbols, columns = flat.reshape(-1, 2).T.copy()
        return Leaves(starts, symbols, columns if self.given else columns + first_column)


class GrammarError(ValueError):
    """The grammar does not generate a tree; says what is missing."""


class Units(NamedTuple):
    """Unary rules of unit `u`: ``columns[column_starts[u]:column_starts[u + 1]]``; so labels."""

    column_starts: Numbers
    columns: Numbers
    label_starts: Numbers
    labels: Numbers


@registered("Grammar")
class Grammar(Remade):
    """The rules of a treebank, binarised, with a column of the weight vector for each.

    Made by `Grammar.read`. `counts` are those of the rules in the treebank, `root` is the most
    frequent label of a whole tree; ``NP[..DT JJ]`` is the intermediate symbol of an NP's first
    children, the last of them DT and JJ.

    Examples
    --------
    >>> from maxmargin.structures.constituency.formats import read_trees
    >>> from maxmargin.structures.constituency.grammar import Grammar
    >>> trees = read_trees("(S (NP (DT the) (JJ big) (NN dog)) (VP (VBZ barks)))")
    >>> Grammar.read(trees).rule_names
    ['S -> NP VP', 'NP[..DT JJ] -> DT JJ', 'NP -> NP[..DT JJ] NN', 'VP -> VBZ', 'start -> S']
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
        self.binary = sorted(binary, key=lambda rule: [number[rule[child]] for child in (1, 2, 0)])
        self.chains = sorted(chains, key=lambda chain: [number[symbol] for symbol in chain])
        unary: Counter[tuple[Symbol, Symbol]] = Counter()
        for chain, count in chains.items():
            for pair in pairwise(chain):
                unary[pair] += count
        self.unary = sorted(unary, key=lambda pair: (number[pair[0]], number[pair[1]]))
        self.starts = sorted(starts, key=number.__getitem__)
        self.first_start = len(self.binary) + len(self.unary)
        self.first_leaf = self.first_start + len(self.starts)
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
        self.n_features = len(self.counts)
        self._rule_of = {(): -1} | {rule: at for at, rule in enumerate(self.binary)}
        self._unit_of = {(): -1} | {chain: at for at, chain in enumerate(self.chains)}
        self.rules = make_rules(
            sum(symbol.kind != "part" for symbol in self.symbols),
            len(self.symbols),
            np.array([self._numbers(rule) for rule in self.binary]),
            np.array([self._numbers((chain[0], chain[-1])) for chain in self.chains]),
        )

    def _numbers(self, symbols: Iterable[Symbol]) -> list[int]:
        return [self._number[symbol] for symbol in symbols]

    def parts(self) -> dict[str, Any]:
        pairs = self.lexicon.pairs
        return {
            "markovisation": self.markovisation,
            "min_count": self.min_count,
            "symbols": self.symbols,
            "binary": np.array([self._numbers(rule) for rule in self.binary], dtype=np.int64),
            "binary_counts": self.counts[: len(self.binary)],
            "chains": np.array([at for chain in self.chains for at in self._numbers(chain)]),
            "chain_lengths": np.array(list(map(len, self.chains))),
            "chain_counts": self._chain_counts,
            "starts": np.array(self._numbers(self.starts)),
            "start_counts": self.counts[self.first_start : self.first_leaf],
            "lexicon": [] if pairs is None else [list(map(list, pairs)), list(pairs.values())],
        }

    @classmethod
    def remade(cls, **parts: Any) -> Self:
        check_types(cls.__name__, parts, _PARTS)
        _check_parts(**parts)
        symbols, lexicon = parts["symbols"], parts["lexicon"]

        def counter(rules: Iterable[Any], counts: Iterable[Any]) -> "Counter[Any]":
            return Counter(dict(zip(rules, map(int, counts), strict=True)))

        def named(numbers: Iterable[int]) -> tuple[Symbol, ...]:
            return tuple(symbols[number] for number in numbers)

        chains = np.split(parts["chains"], np.cumsum(parts["chain_lengths"])[:-1])
        return cls(
            parts["markovisation"],
            counter(map(named, parts["binary"]), parts["binary_counts"]),
            counter(map(named, chains), parts["chain_counts"]),
            counter(named(parts["starts"]), parts["start_counts"]),
            counter(map(tuple, lexicon[0]), lexicon[1]) if lexicon else None,
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
        """The grammar of a treebank; `maxmargin.GrammarParser` says what the parameters do."""
        if not len(trees):
            raise GrammarError("There are no trees to read a grammar off.")
        how = Markovisation(horizontal, vertical)
        binary: Counter[BinaryRule] = Counter()
        chains: Counter[Chain] = Counter()
        starts: Counter[Symbol] = Counter()
        pairs: Counter[tuple[str, str]] = Counter()
        for tree in trees:
            steps = how.steps(tree)
            binary.update(step.rule for step in steps if step.rule)
            chains.update(step.chain for step in steps if step.chain)
            starts[steps[0].chain[0]] += 1
            pairs.update(zip(tree.words, tree.tags, strict=True))
        return cls(how, binary, chains, starts, None if tags == "given" else pairs, min_count)

    # Columns

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
        """Column of each symbol as a start symbol, -1 for none."""
        columns = np.full(self.rules.n_complete, -1, dtype=np.int64)
        columns[self._numbers(self.starts)] = np.arange(self.first_start, self.first_leaf)
        return columns

    # Trees

    def nodes(self, tree: Tree) -> Nodes:
        """The derivation of a tree; GrammarError if the grammar does not generate it."""
        strange = [tag for tag in tree.tags if tag not in self.lexicon.tags]
        if strange:
            raise GrammarError(f"The grammar has no tag {strange[0]!r}.")
        steps = self.markovisation.steps(tree)
        if steps[0].chain[0] not in self.starts:
            raise GrammarError(f"The grammar has no whole trees with the label {tree.label!r}.")
        rows = []
        for start, stop, chain, rule in steps:
            if chain not in self._unit_of:
                raise GrammarError(f"The grammar has no chain {' -> '.join(map(str, chain))}.")
            if rule not in self._rule_of:
                parent, left, right = map(str, rule)
                raise GrammarError(f"The grammar has no rule {parent} -> {left} {right}.")
            rows.append((start, stop, self._unit_of[chain], self._rule_of[rule]))
        return np.array(rows, dtype=np.int32)

    def tree(self, nodes: Nodes, words: Sequence[str]) -> Tree:
        # From the last row to the first, children are done before their parents, left ones last.
        done: list[list[Any]] = []
        for start, _, unit, rule in reversed(nodes.tolist()):
            children = done.pop() + done.pop() if rule >= 0 else [words[start]]
            for symbol in reversed(self.chains[unit] if unit >= 0 else ()):
                children = [Tree(symbol.label, tuple(children))]
            done.append(children)
        tree: Tree = done[0][0]
        return tree

    def flat_tree(self, sentence: Sentence) -> Tree:
        """All words under one node, for sentences without a derivation."""
        tags = sentence.tags if self.lexicon.given else None
        tags = tags or tuple(self.lexicon.most_frequent_tag(word) for word in sentence.words)
        pairs = zip(tags, sentence.words, strict=True)
        return Tree(self.root, tuple(Tree(tag, (word,)) for tag, word in pairs))

    # Scores

    def features(self, sentence: Sentence, nodes: Nodes) -> Floats:
        """Joint feature map: counts of the rules of a derivation."""
        columns = np.empty(self.most_columns(len(nodes), 1), dtype=np.uint32)
        tables = self.rules, self.units, self.start_columns, self.leaves([sentence])
        n_used = list_columns(*tables, np.int64(0), nodes, columns, np.int64(0))
        return np.bincount(columns[:n_used], minlength=self.n_features).astype(np.float64)

    def most_columns(self, n_nodes: int, n_trees: int) -> int:
        """Upper bound on the columns that trees with so many nodes use."""
        # A node has at most one rule, the rules of its unit, and a leaf; the top has a start.
        return n_nodes * (2 + int(np.diff(self.units.column_starts).max())) + n_trees

    def scores(self, weights: Floats) -> Scores:
        """Scores of rules, units and start symbols by these weights."""
        units, n_units = self.units, self.rules.n_units
        owners = np.repeat(np.arange(n_units), np.diff(units.column_starts))
        counted = np.bincount(owners, weights=weights[units.columns], minlength=n_units)
        of_units = counted[None, :].astype(np.float64)  # without unary rules, these are integers
        starts = np.where(self.start_columns >= 0, weights[self.start_columns], -np.inf)
        return Scores(np.array(weights[: len(self.binary)]), of_units, starts)

    def leaves(self, sentences: Sequence[Sentence]) -> Leaves:
        """Tags that the words of the sentences may have."""
        return self.lexicon.leaves(sentences, self.first_leaf)

    def log_probabilities(self) -> Floats:
        """Maximum-likelihood weights: the log-probability of each rule given its parent."""
        parents = self._numbers(parent for parent, *_ in (*self.binary, *self.unary))
        parents += [len(self.symbols)] * len(self.starts)
        parents += [self.lexicon.tags[tag] for _, tag in self.lexicon.entries]
        totals = np.bincount(parents, weights=self.counts)
        return np.asarray(np.log(self.counts / totals[parents]), dtype=np.float64)


def _stacked(lists: Sequence[Sequence[Any]]) -> tuple[Numbers, Numbers]:
    """Lists concatenated: where each starts, and all members."""
    starts = starts_of(np.array([len(each) for each in lists], dtype=np.int64))
    return starts, np.array([number for each in lists for number in each], dtype=np.int64)


_PARTS: dict[str, Any] = {
    "markovisation": Markovisation, "min_count": int, "symbols": list[Symbol], "binary": Numbers,
    "binary_counts": Floats, "chains": Numbers, "chain_lengths": Numbers, "chain_counts": Numbers,
    "starts": Numbers, "start_counts": Floats, "lexicon": list[Any],
}  # fmt: skip
"""Types of the parts of a grammar in a file."""


def _check_parts(**parts: Any) -> None:
    """Raise ValueError for symbols that do not exist, or of a kind that cannot be there."""
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
