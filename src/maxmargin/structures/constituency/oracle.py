"""Separation oracle over parsed sentences; outputs are the bytes of derivations."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.core.checks import check_indices
from maxmargin.core.cuts import starts_of
from maxmargin.core.oracle import CompiledOracle, Entries, Floats, Order
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
        self._tables = grammar.rules, grammar.units, grammar.start_columns, self.leaves, self.ends

    @cached_property
    def oracle_work(self) -> float:
        """Rules times split points of all spans."""
        n = self.lengths.astype(np.float64)
        return float(self.grammar.rules.n_rules * np.mean((n**3 - n) / 6.0))

    def infer(self, weights: Floats, examples: Order, starts: Order, found: Nodes) -> None:
        rules, scores = self.grammar.rules, self.grammar.scores(weights)
        longest = int(self.lengths[examples].max())
        where = self.y_true, self.true_starts, examples, starts, found
        chart, leaf_scores = make_chart(longest, rules), np.empty((longest, rules.n_complete))
        text = self.leaves, self.ends, scores, weights
        if self.zero_one:
            infer_others(rules, *text, *where, chart, leaf_scores)
        else:
            unit_scores = np.empty((n_cells(longest), rules.n_units))
            true_units = np.empty(n_cells(longest), dtype=np.int64)
            scratch = chart, leaf_scores, unit_scores, true_units
            infer_brackets(rules, self.grammar.units, *text, *where, *scratch)

    def check_outputs(self, examples: Order, starts: Order, found: Nodes) -> None:
        """Refuse spans outside their sentences, and units and rules that do not exist."""
        first, last, units, rules = found.T
        lengths = np.repeat(self.lengths[examples], np.diff(starts))
        if not ((first >= 0) & (first < last) & (last <= lengths)).all():
            raise ValueError("The outputs are trees of other sentences.")
        check_indices("units of outputs", units, len(self.grammar.chains), start=-1)
        check_indices("rules of outputs", rules, len(self.grammar.binary), start=-1)

    def entries_of(self, examples: Order, starts: Order, found: Nodes) -> Entries:
        room = 2 * self.grammar.most_columns(int(starts[-1]), len(examples))
        columns, values = np.empty(room, dtype=np.uint32), np.empty(room)
        entries = np.zeros(len(examples) + 1, dtype=np.int64)
        where = self.y_true, self.true_starts, examples, starts, found
        fill_cuts(*self._tables, *where, entries, columns, values, np.zeros(self.n_features))
        used = entries[-1]
        return entries, columns[:used].copy(), values[:used].copy(), self._losses(where)

    def _losses(self, where: tuple[Nodes, Order, Order, Order, Nodes]) -> Floats:
        y_true, true_starts, examples, starts, found = where
        if self.zero_one:
            firsts = np.repeat(true_starts[examples] - starts[:-1], np.diff(starts))
            wrong = (found != y_true[np.arange(starts[-1]) + firsts]).any(axis=1)
            return (np.diff(starts_of(wrong)[starts]) > 0).astype(np.float64)
        losses = np.empty(len(examples))
        true_units = np.empty(n_cells(int(self.lengths[examples].max(initial=1))), dtype=np.int64)
        count_brackets(self.grammar.units, self.ends, *where, losses, true_units)
        return losses


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


@compiled
def infer_brackets(  # type: ignore[no-untyped-def]
    rules, units, leaves, ends, scores, weights, y_true, true_starts, examples, starts, found,
    chart, leaf_scores, unit_scores, true_units,
):  # fmt: skip
    """Loss-augmented inference with the bracket loss, for each of the `examples`.

    rules, units, leaves, ends, scores, weights : grammar, words by sentence, weights
    y_true, true_starts : derivations of all sentences, that of i from ``true_starts[i]`` on
    examples, starts, found : the derivation of ``examples[k]`` goes to ``found[starts[k]:]``
    chart, leaf_scores, unit_scores ``(n_cells, n_units)``, true_units ``(n_cells,)`` : scratch
    """
    for k in range(len(examples)):
        b = examples[k]
        length = ends[b + 1] - ends[b]
        set_leaves(leaves, ends[b], weights, leaf_scores[:length])
        set_true_output(units, y_true[true_starts[b] : true_starts[b + 1]], length, true_units)
        for c in range(length * (length + 1) // 2):
            for u in range(unit_scores.shape[1]):
                loss = unit_loss(units, true_units[c], u)
                unit_scores[c, u] = scores.units[0, u] + loss
        augmented = Scores(scores.rules, unit_scores, scores.starts)
        fill_chart(rules, augmented, leaf_scores[:length], chart)
        best_nodes(rules, augmented, length, chart, found[starts[k] : starts[k + 1]])


@compiled
def infer_others(  # type: ignore[no-untyped-def]
    rules, leaves, ends, scores, weights, y_true, true_starts, examples, starts, found,
    chart, leaf_scores,
):  # fmt: skip
    """Best derivations other than the true ones, if any; arguments as in `infer_brackets`."""
    for k in range(len(examples)):
        b = examples[k]
        length = ends[b + 1] - ends[b]
        nodes = found[starts[k] : starts[k + 1]]
        set_leaves(leaves, ends[b], weights, leaf_scores[:length])
        fill_chart(rules, scores, leaf_scores[:length], chart)
        best_nodes(rules, scores, length, chart, nodes)
        if same_nodes(nodes, y_true[true_starts[b] : true_starts[b + 1]]):
            next_nodes(rules, scores, length, chart, nodes)


@compiled
def fill_cuts(  # type: ignore[no-untyped-def]
    rules, units, start_columns, leaves, ends, y_true, true_starts, examples, starts, found,
    entries, columns, values, counts,
):  # fmt: skip
    """Write the cuts ``phi(x, y_true) - phi(x, found)``.

    rules, units, start_columns, leaves, ends : grammar, and words by sentence
    y_true, true_starts, examples, starts, found : derivations as in `infer_brackets`
    entries, columns, values : CSR arrays of the cuts, filled
    counts ``(n_features,)`` : scratch, zeros
    """
    for k in range(len(examples)):
        b = examples[k]
        first = entries[k]
        nodes = y_true[true_starts[b] : true_starts[b + 1]]
        middle = list_columns(rules, units, start_columns, leaves, ends[b], nodes, columns, first)
        last = list_columns(
            rules, units, start_columns, leaves, ends[b], found[starts[k] : starts[k + 1]],
            columns, middle,
        )  # fmt: skip
        for q in range(first, last):
            counts[columns[q]] += 1.0 if q < middle else -1.0
        at = first
        for q in range(first, last):
            column = columns[q]
            if counts[column] != 0.0:
                columns[at] = column
                values[at] = counts[column]
                counts[column] = 0.0
                at += 1
        entries[k + 1] = at


@compiled
def count_brackets(  # type: ignore[no-untyped-def]
    units, ends, y_true, true_starts, examples, starts, found, losses, true_units
):
    """Set `losses`: wrong and missed brackets of `found`; arguments as in `infer_brackets`."""
    for k in range(len(examples)):
        b = examples[k]
        length = ends[b + 1] - ends[b]
        nodes = y_true[true_starts[b] : true_starts[b + 1]]
        total = set_true_output(units, nodes, length, true_units)
        for p in range(starts[k], starts[k + 1]):
            unit = np.int64(found[p, 2])
            if unit >= 0:
                c = cell(np.int64(found[p, 0]), np.int64(found[p, 1]), length)
                total += unit_loss(units, true_units[c], unit)
        losses[k] = total
