"""Separation oracle over parsed sentences; outputs are the bytes of derivations."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.core.arrays import Floats, Order, check_indices
from maxmargin.core.cuts import starts_of
from maxmargin.core.oracle import CompiledOracle, Entries
from maxmargin.structures.constituency.grammar import Grammar, GrammarError, Sentence, Tree
from maxmargin.structures.constituency.inference import (
    Nodes,
    Scores,
    best_nodes,
    cell,
    fill_chart,
    list_columns,
    make_chart,
    n_cells,
    next_nodes,
    set_leaves,
)


class GrammarOracle(CompiledOracle):
    """Sentences with true trees; the loss is zero-one, or counts wrong and missed brackets."""

    output_dtype = np.dtype((np.int32, (4,)))

    def __init__(
        self,
        grammar: Grammar,
        sentences: Sequence[Sentence],
        trees: Sequence[Tree],
        C: Floats,
        *,
        zero_one: bool = False,
    ) -> None:
        self.grammar, self.C, self.zero_one = grammar, C, zero_one
        self.n_features = grammar.n_features
        self.lengths = np.array([len(sentence.words) for sentence in sentences])
        self.ends = starts_of(self.lengths)
        self.leaves = grammar.leaves(sentences)
        self.y_true = np.concatenate(
            [
                _nodes(grammar, i, sentence, tree)
                for i, (sentence, tree) in enumerate(zip(sentences, trees, strict=True))
            ]
        )
        self.output_sizes = 2 * self.lengths - 1
        self.true_starts = starts_of(self.output_sizes)

    @cached_property
    def oracle_work(self) -> float:
        """Rules times split points of all spans."""
        n = self.lengths.astype(np.float64)
        return float(self.grammar.rules.n_rules * np.mean((n**3 - n) / 6.0))

    def work_of(self, examples: Order) -> Floats:
        return self.lengths[examples].astype(np.float64) ** 3

    def infer(self, weights: Floats, examples: Order, starts: Order, found: Nodes) -> None:
        rules, longest = self.grammar.rules, int(self.lengths[examples].max())
        cells = 0 if self.zero_one else n_cells(longest)
        infer_trees(
            rules, self.grammar.units, self.leaves, self.ends, self.grammar.scores(weights),
            weights, self.zero_one, self.y_true, self.true_starts, examples, starts, found,
            make_chart(longest, rules), np.empty((longest, rules.n_complete)),
            np.empty((cells, rules.n_units)), np.empty(cells, dtype=np.int64),
        )  # fmt: skip

    def check_outputs(self, examples: Order, starts: Order, found: Nodes) -> None:
        """Refuse spans outside their sentences, and units and rules that do not exist."""
        first, last, units, rules = found.T
        lengths = np.repeat(self.lengths[examples], np.diff(starts))
        if not ((first >= 0) & (first < last) & (last <= lengths)).all():
            raise ValueError("The outputs are trees of other sentences.")
        check_indices("units of outputs", units, len(self.grammar.chains), start=-1)
        check_indices("rules of outputs", rules, len(self.grammar.binary), start=-1)

    def entries_of(self, examples: Order, starts: Order, found: Nodes) -> Entries:
        grammar = self.grammar
        room = 2 * grammar.most_columns(int(starts[-1]), len(examples))
        columns, values = np.empty(room, dtype=np.uint32), np.empty(room)
        entries, losses = np.zeros(len(examples) + 1, dtype=np.int64), np.empty(len(examples))
        longest = int(self.lengths[examples].max(initial=1))
        fill_cuts(
            grammar.rules, grammar.units, grammar.start_columns, self.leaves, self.ends,
            self.zero_one, self.y_true, self.true_starts, examples, starts, found,
            entries, columns, values, losses,
            np.zeros(self.n_features), np.empty(n_cells(longest), dtype=np.int64),
        )  # fmt: skip
        used = entries[-1]
        return entries, columns[:used].copy(), values[:used].copy(), losses


def _nodes(grammar: Grammar, i: int, sentence: Sentence, tree: Tree) -> Nodes:
    """The derivation of a true tree; errors name the sentence."""
    try:
        nodes = grammar.nodes(tree)
    except GrammarError as error:
        why = str(error).removeprefix("The ").removesuffix(".")
        raise GrammarError(
            f"The tree of sentence {i} cannot be trained on, as the {why}: read the grammar off "
            f"all trees, or leave this one out."
        ) from None
    given = grammar.lexicon.given
    own, of_tree = (sentence.tags, tree.tags) if given else (sentence.words, tree.words)
    if own != of_tree:
        kind = "tags" if given else "words"
        raise GrammarError(
            f"The tree of sentence {i} has other {kind} than the sentence: {of_tree!r:.60} but not "
            f"{own!r:.60}."
        )
    return nodes


@inlined
def overlap(units, a, b):  # type: ignore[no-untyped-def]
    """Labels that two units share, with multiplicity."""
    total = 0
    for p in range(units.label_starts[a], units.label_starts[a + 1]):
        label = units.labels[p]
        before = 0
        for q in range(units.label_starts[a], p):
            before += units.labels[q] == label
        there = 0
        for q in range(units.label_starts[b], units.label_starts[b + 1]):
            there += units.labels[q] == label
        total += before < there
    return total


@inlined
def n_labels(units, unit):  # type: ignore[no-untyped-def]
    """Phrases of a unit."""
    return units.label_starts[unit + 1] - units.label_starts[unit]


@inlined
def set_true_output(units, nodes, length, true_units):  # type: ignore[no-untyped-def]
    """Set the true unit of each span, -1 for none; returns the number of true brackets."""
    total = 0
    for c in range(length * (length + 1) // 2):
        true_units[c] = -1
    for p in range(2 * length - 1):
        unit = np.int64(nodes[p, 2])
        if unit >= 0:
            true_units[cell(np.int64(nodes[p, 0]), np.int64(nodes[p, 1]), length)] = unit
            total += n_labels(units, unit)
    return total


@inlined
def unit_loss(units, true_unit, unit):  # type: ignore[no-untyped-def]
    """Wrong brackets of a unit less its right ones."""
    loss = n_labels(units, unit)
    if true_unit >= 0:
        loss -= 2 * overlap(units, true_unit, unit)
    return loss


@inlined
def same_nodes(a, b):  # type: ignore[no-untyped-def]
    """Whether two derivations are the same."""
    for p in range(len(a)):
        for q in range(4):
            if a[p, q] != b[p, q]:
                return False
    return True


@inlined
def bracket_loss(units, y_true, nodes, true_units):  # type: ignore[no-untyped-def]
    """Wrong and missed brackets of a derivation; `true_units` as in `set_true_output`."""
    length = (len(nodes) + 1) // 2
    total = set_true_output(units, y_true, length, true_units)
    for p in range(len(nodes)):
        unit = np.int64(nodes[p, 2])
        if unit >= 0:
            c = cell(np.int64(nodes[p, 0]), np.int64(nodes[p, 1]), length)
            total += unit_loss(units, true_units[c], unit)
    return total


@compiled
def infer_trees(  # type: ignore[no-untyped-def]
    rules, units, leaves, ends, scores, weights, zero_one, y_true, true_starts, examples, starts,
    found, chart, leaf_scores, unit_scores, true_units,
):  # fmt: skip
    """Loss-augmented inference for each of the `examples`.

    rules, units, leaves, ends, scores, weights : grammar, words by sentence, weights
    zero_one : whether the best derivations other than the true ones are wanted, if any
    y_true, true_starts : derivations of all sentences, that of i from ``true_starts[i]`` on
    examples, starts, found : the derivation of ``examples[k]`` goes to ``found[starts[k]:]``
    chart, leaf_scores, unit_scores ``(n_cells, n_units)``, true_units ``(n_cells,)`` : scratch
    """
    for k in range(len(examples)):
        b = examples[k]
        length = ends[b + 1] - ends[b]
        true, nodes = y_true[true_starts[b] : true_starts[b + 1]], found[starts[k] : starts[k + 1]]
        set_leaves(leaves, ends[b], weights, leaf_scores[:length])
        augmented = scores
        if not zero_one:
            set_true_output(units, true, length, true_units)
            for c in range(length * (length + 1) // 2):
                for u in range(unit_scores.shape[1]):
                    loss = unit_loss(units, true_units[c], u)
                    unit_scores[c, u] = scores.units[0, u] + loss
            augmented = Scores(scores.rules, unit_scores, scores.starts)
        fill_chart(rules, augmented, leaf_scores[:length], chart)
        best_nodes(rules, augmented, length, chart, nodes)
        if zero_one and same_nodes(nodes, true):
            next_nodes(rules, augmented, length, chart, nodes)


@compiled
def fill_cuts(  # type: ignore[no-untyped-def]
    rules, units, start_columns, leaves, ends, zero_one, y_true, true_starts, examples, starts,
    found, entries, columns, values, losses, counts, true_units,
):  # fmt: skip
    """Write the cuts ``phi(x, y_true) - phi(x, found)`` and their losses.

    rules, units, start_columns, leaves, ends : grammar, and words by sentence
    zero_one, y_true, true_starts, examples, starts, found : as in `infer_trees`
    entries, columns, values, losses : CSR arrays and losses of the cuts, filled
    counts ``(n_features,)`` of zeros, true_units ``(n_cells,)`` : scratch
    """
    for k in range(len(examples)):
        b = examples[k]
        true, nodes = y_true[true_starts[b] : true_starts[b + 1]], found[starts[k] : starts[k + 1]]
        if zero_one:
            losses[k] = not same_nodes(true, nodes)
        else:
            losses[k] = bracket_loss(units, true, nodes, true_units)
        at = first = entries[k]
        middle = list_columns(rules, units, start_columns, leaves, ends[b], true, columns, first)
        last = list_columns(rules, units, start_columns, leaves, ends[b], nodes, columns, middle)
        for q in range(first, last):
            counts[columns[q]] += 1.0 if q < middle else -1.0
        for q in range(first, last):
            column = columns[q]
            if counts[column] != 0.0:
                columns[at] = column
                values[at] = counts[column]
                counts[column] = 0.0
                at += 1
        entries[k + 1] = at
