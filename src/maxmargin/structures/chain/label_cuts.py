"""Updates over cutting planes of chains that are kept as labels, without entries.

The cuts of an example differ from its true labels at few positions, and mostly at the same ones. So
what a label scores at a position is summed up once for all cuts of the example, and changes of
coefficients are summed up by position and label before they are added to the weights.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.compiled.rows import add_to_column, column_product
from maxmargin.compiled.simd import add_multiple, add_scores
from maxmargin.core.arrays import Floats, Order
from maxmargin.dual.cut_table import (
    LINEAR,
    N_ENTRIES,
    N_FREE,
    N_LIVE,
    UNUSED,
    WORK,
    StepRule,
    Table,
    enter,
    extrapolated,
    longest_step,
    step_block,
)
from maxmargin.dual.gram import EMPTY, HashTable, clear, find, make_table
from maxmargin.dual.output_cuts import NewOutputs
from maxmargin.structures.chain.oracle import ChainData, ChainOracle, Labels, Layout, differ

NARROW = 8
"""Columns of the weight table up to which all labels are scored at once, in one vector or two."""


SMALL_TABLE = 1 << 17
"""Weights up to which the table of a new cut is as large: a megabyte, which fits in a cache."""

PART_COST = 2
"""Time for a feature of a part in that for an entry of a cut, with all that there is beside it."""


class Chains(NamedTuple):
    """The examples; `bits` of codes are labels, and with `slack` a loss scales features.

    `cut_layout` is that of a weight table for the features of one example.
    """

    data: ChainData
    bits: np.uint32
    slack: bool
    cut_layout: Layout


class Model(NamedTuple):
    """A weight table, its layout, and the columns of an example's features in it.

    Those of position ``t`` are ``columns[at[t]:]``.
    """

    table: Floats
    layout: Layout
    columns: NDArray[np.uint32]
    at: Order


class Scratch(NamedTuple):
    """Arrays for one example: `moves`, `seen` and `cut` are zero between uses.

    By position and label: `scores` at the weights, `products` with the new cut, `moves` of the
    coefficients, and what was `seen`; `parts` lists these. By position: `labels` of a cut, else
    the true ones. By cut: its slope and its new coefficient.

    The new `cut` is a weight table of the features at hand only, which `numbers` counts; `own` and
    `own_at` have their columns in it, and `at` those in the weights, see `Model`.
    """

    scores: Floats
    products: Floats
    moves: Floats
    seen: NDArray[np.bool_]
    parts: NDArray[np.int32]
    labels: NDArray[np.uint16]
    slopes: Floats
    coef: Floats
    cut: Floats
    numbers: HashTable
    own: NDArray[np.uint32]
    own_at: Order
    at: Order


class LabelCuts:
    """The compiled routines of `OutputCuts` for chains.

    The code of label ``z`` at position ``t`` is ``t << bits | z``.
    """

    def __init__(self, oracle: ChainOracle) -> None:
        self.oracle = oracle
        self._bits = np.uint32(max(oracle.layout.n_labels - 1, 1).bit_length())
        longest, width = oracle.sequences.longest, oracle.layout.n_columns
        sequences = oracle.sequences
        most = int(np.diff(sequences.rows.starts[sequences.ends]).max(initial=0))
        small = oracle.n_features <= SMALL_TABLE
        self._cut_layout = oracle.layout.resized(
            oracle.layout.n_features if small else min(most, oracle.layout.n_features)
        )
        scores, products, moves = np.zeros((3, longest, width))
        self._scratch = Scratch(
            scores,
            products,
            moves,
            seen=np.zeros((longest, width), dtype=np.bool_),
            parts=np.zeros((longest * width, 2), dtype=np.int32),
            labels=np.zeros(longest, dtype=np.uint16),
            slopes=np.zeros(0),
            coef=np.zeros(0),
            cut=np.zeros((self._cut_layout.n_rows, width)),
            numbers=make_table(self._cut_layout.n_features, oracle.layout.n_features),
            own=np.zeros(most, dtype=np.uint32),
            own_at=np.zeros(longest, dtype=np.int64),
            at=np.zeros(longest, dtype=np.int64),
        )

    def losses(self, examples: Order, starts: Order, found: Labels) -> Floats:
        return self.oracle.measured(examples, starts, found)[1]

    def update(
        self,
        examples: Order,
        weights: Floats,
        rule: StepRule,
        table: Table,
        new: NewOutputs,
        added: NDArray[np.int32],
        sums: Floats,
    ) -> None:
        update_chains(examples, rule, new, added, sums, *self._arguments(weights, table))

    def put(
        self,
        examples: Order,
        coef: Floats,
        weights: Floats,
        table: Table,
        new: NewOutputs,
        added: NDArray[np.int32],
    ) -> None:
        # A routine of its own would be as large as that of updates.
        gaps, sums = table.gaps[examples], np.zeros(5)
        keep_all = StepRule(max_steps=0, tolerance=-math.inf)
        self.update(examples, weights, keep_all, table, new, added, sums)
        table.gaps[examples] = gaps
        table.coef[added] = table.previous[added] = coef

    def code(
        self, examples: Order, numbers: NDArray[np.int32], table: Table, new: NewOutputs
    ) -> None:
        code_labels(examples, numbers, new, table, self.oracle.data, self._bits)

    def add_best(
        self, examples: Order, weights: Floats, vector: Floats, table: Table, best: Order
    ) -> float:
        where = self._arguments(weights, table)
        vectors = self.oracle.layout.table(vector)
        return float(find_best_labels(examples, best, True, vectors, *where))

    def hinges(self, examples: Order, weights: Floats, table: Table) -> float:
        best, nothing = np.empty(len(table.size), dtype=np.int64), np.zeros((0, 1))
        where = self._arguments(weights, table)
        return float(find_best_labels(examples, best, False, nothing, *where))

    def extrapolate(self, examples: Order, momentum: float, weights: Floats, table: Table) -> float:
        where = self._arguments(weights, table)
        return float(extrapolate_chains(examples, momentum, False, *where))

    def revert(self, examples: Order, weights: Floats, table: Table) -> float:
        return float(extrapolate_chains(examples, 0.0, True, *self._arguments(weights, table)))

    def _arguments(self, weights: Floats, table: Table) -> tuple[Any, ...]:
        """What all routines take, with scratch for the longest list of cuts."""
        widest = int(table.capacity.max(initial=0)) + 1
        if widest > len(self._scratch.slopes):
            slopes, coef = np.zeros((2, 2 * widest))
            self._scratch = self._scratch._replace(slopes=slopes, coef=coef)
        chains = Chains(self.oracle.data, self._bits, self.oracle.slack, self._cut_layout)
        in_rows = weights.reshape(-1, self.oracle.layout.n_columns)
        return table, in_rows, chains, self._scratch


@inlined
def part_of(layout, label):  # type: ignore[no-untyped-def]
    """The label that stands for all labels of a narrow table, or for itself."""
    return 0 if layout.n_columns <= NARROW else np.int64(label)


@inlined
def list_part(t, part, n_parts, scratch):  # type: ignore[no-untyped-def]
    """List a part of position `t` unless it is listed; returns how many are."""
    if not scratch.seen[t, part]:
        scratch.seen[t, part] = True
        scratch.parts[n_parts, 0], scratch.parts[n_parts, 1] = t, part
        n_parts += 1
    return n_parts


@inlined
def place_of(p, q, table, chains):  # type: ignore[no-untyped-def]
    """Position and label of code ``q`` of cut `p`."""
    code = table.columns[table.start[p] + q]
    return np.int64(code >> chains.bits), np.int64(
        code & ((np.uint32(1) << chains.bits) - np.uint32(1))
    )


@inlined
def list_parts(b, p, table, chains, n_parts, scratch):  # type: ignore[no-untyped-def]
    """List where the labels of cut `p` differ from the true ones, as `list_part`."""
    data = chains.data
    for q in range(table.length[p]):
        t, z = place_of(p, q, table, chains)
        y = data.labels[data.ends[b] + t]
        n_parts = list_part(t, part_of(data.layout, y), n_parts, scratch)
        n_parts = list_part(t, part_of(data.layout, z), n_parts, scratch)
    return n_parts


@inlined
def list_cuts(b, table, chains, scratch):  # type: ignore[no-untyped-def]
    """List the parts of all cuts of an example; returns how many."""
    n_parts = 0
    for j in range(table.size[b]):
        n_parts = list_parts(b, table.slots[table.slot_at[b] + j], table, chains, n_parts, scratch)
    return n_parts


@inlined
def take_example(b, data, scratch):  # type: ignore[no-untyped-def]
    """Set the true labels of an example, and where its features are, for the functions below."""
    start = data.ends[b]
    for t in range(data.ends[b + 1] - start):
        scratch.labels[t] = data.labels[start + t]
        scratch.at[t] = data.rows.starts[start + t] * data.rows.indexed


@inlined
def number_features(b, n_parts, chains, scratch):  # type: ignore[no-untyped-def]
    """Number the features of all parts listed, for the table of a new cut; returns how many.

    In a table with room for all features they keep their columns.
    """
    rows, start = chains.data.rows, chains.data.ends[b]
    keep = chains.cut_layout.n_features == chains.data.layout.n_features
    numbers, own = scratch.numbers, scratch.own
    for q in range(n_parts):
        scratch.own_at[scratch.parts[q, 0]] = -1
    taken = used = 0
    for q in range(n_parts):
        t = scratch.parts[q, 0]
        if scratch.own_at[t] < 0:
            scratch.own_at[t] = used
            for p in range(rows.starts[start + t + 1] - rows.starts[start + t]):
                own[used] = column = rows.columns[scratch.at[t] + p]
                if not keep:
                    h = find(column, numbers)
                    if numbers.keys[h] == EMPTY:
                        numbers.keys[h] = column
                        numbers.sums[h] = taken
                        numbers.places[taken] = h
                        taken += 1
                    own[used] = np.uint32(numbers.sums[h])
                used += 1
    return taken


@inlined
def exchange_labels(b, p, true, table, chains, scratch):  # type: ignore[no-untyped-def]
    """Put in the labels of cut `p`, or the `true` ones again."""
    for q in range(table.length[p]):
        t, z = place_of(p, q, table, chains)
        scratch.labels[t] = chains.data.labels[chains.data.ends[b] + t] if true else z


@inlined
def forget_parts(n_parts, scratch):  # type: ignore[no-untyped-def]
    """Empty the list."""
    for q in range(n_parts):
        scratch.seen[scratch.parts[q, 0], scratch.parts[q, 1]] = False


@inlined
def fixed_score(model, t, length, m):  # type: ignore[no-untyped-def]
    """Bias and ends of label `m` at position `t`."""
    weights, layout = model.table, model.layout
    score = 0.0
    if layout.bias >= 0:
        score += weights[layout.bias, m]
    if layout.first >= 0 and t == 0:
        score += weights[layout.first, m]
    if layout.last >= 0 and t == length - 1:
        score += weights[layout.last, m]
    return score


@inlined
def change_fixed(model, t, length, m, keep, change):  # type: ignore[no-untyped-def]
    """``weight = keep * weight + change`` where `fixed_score` reads."""
    weights, layout = model.table, model.layout
    if layout.bias >= 0:
        weights[layout.bias, m] = keep * weights[layout.bias, m] + change
    if layout.first >= 0 and t == 0:
        weights[layout.first, m] = keep * weights[layout.first, m] + change
    if layout.last >= 0 and t == length - 1:
        weights[layout.last, m] = keep * weights[layout.last, m] + change


@inlined
def score_parts(b, n_parts, data, model, scores, scratch):  # type: ignore[no-untyped-def]
    """Set the scores of all parts listed; returns how many features they have."""
    rows, start = data.rows, data.ends[b]
    length = data.ends[b + 1] - start
    n_columns = model.layout.n_columns
    n_entries = 0
    for q in range(n_parts):
        t, m = np.int64(scratch.parts[q, 0]), np.int64(scratch.parts[q, 1])
        first, at = rows.starts[start + t], model.at[t]
        count = rows.starts[start + t + 1] - first
        if n_columns <= NARROW:
            for c in range(n_columns):
                scores[t, c] = fixed_score(model, t, length, c)
            add_scores(rows.values, first, model.columns, at, count, model.table, scores[t])
        else:
            scores[t, m] = fixed_score(model, t, length, m) + column_product(
                rows.values, first, model.columns, at, count, model.table, m
            )
        n_entries += count
    return n_entries


@inlined
def pair_score(data, row, a, b, model):  # type: ignore[no-untyped-def]
    """Transition from label `a` to `b`, with the features tied to it at a row."""
    weights, layout, tied = model.table, model.layout, data.tied
    score = weights[layout.transitions + a, b]
    if layout.tied >= 0:
        for q in range(tied.starts[row], tied.starts[row + 1]):
            first = layout.tied + np.int64(tied.columns[q]) * layout.n_labels
            score += tied.values[q] * weights[first + a, b]
    return score


@inlined
def change_pair(data, row, a, b, keep, change, model):  # type: ignore[no-untyped-def]
    """``weight = keep * weight + change * feature`` where `pair_score` reads."""
    weights, layout, tied = model.table, model.layout, data.tied
    at = layout.transitions + a
    weights[at, b] = keep * weights[at, b] + change
    if layout.tied >= 0:
        for q in range(tied.starts[row], tied.starts[row + 1]):
            at = layout.tied + np.int64(tied.columns[q]) * layout.n_labels + a
            weights[at, b] = keep * weights[at, b] + change * tied.values[q]


@inlined
def cut_product(b, p, table, chains, model, scores, scratch):  # type: ignore[no-untyped-def]
    """``<weights, phi(x, y_true) - phi(x, y)>`` for cut `p`, of whose parts `scores` are known."""
    data, weights, layout = chains.data, model.table, model.layout
    labels, found, start, n = data.labels, scratch.labels, data.ends[b], model.layout.n_labels
    length = data.ends[b + 1] - start
    reach = 1 if layout.triples < 0 else 2
    exchange_labels(b, p, False, table, chains, scratch)
    total = 0.0
    following = 0
    for q in range(table.length[p]):
        t, z = place_of(p, q, table, chains)
        total += scores[t, labels[start + t]] - scores[t, z]
        for s in range(max(t, following, 1), min(t + reach + 1, length)):
            y, z = np.int64(labels[start + s]), np.int64(found[s])
            if differ(labels, found, start, 0, s, 1):
                y1, z1 = np.int64(labels[start + s - 1]), np.int64(found[s - 1])
                total += pair_score(data, start + s, y1, y, model)
                total -= pair_score(data, start + s, z1, z, model)
            if layout.triples >= 0 and s > 1:
                y2 = np.int64(labels[start + s - 2]) * n + labels[start + s - 1]
                z2 = np.int64(found[s - 2]) * n + found[s - 1]
                total += weights[layout.triples + y2, y] - weights[layout.triples + z2, z]
        following = t + reach + 1
    exchange_labels(b, p, True, table, chains, scratch)
    return total


@inlined
def change_labels(b, p, table, chains, keep, change, model, scratch):  # type: ignore[no-untyped-def]
    """Add `change` times cut `p` to `moves` by position and label, and what is of pairs to weights.

    Weights of pairs are `keep` times the old ones.
    """
    data, weights, layout = chains.data, model.table, model.layout
    labels, found, start, n = data.labels, scratch.labels, data.ends[b], model.layout.n_labels
    length = data.ends[b + 1] - start
    reach = 1 if layout.triples < 0 else 2
    exchange_labels(b, p, False, table, chains, scratch)
    following = 0
    for q in range(table.length[p]):
        t, z = place_of(p, q, table, chains)
        scratch.moves[t, labels[start + t]] += change
        scratch.moves[t, z] -= change
        for s in range(max(t, following, 1), min(t + reach + 1, length)):
            y, z = np.int64(labels[start + s]), np.int64(found[s])
            if differ(labels, found, start, 0, s, 1):
                y1, z1 = np.int64(labels[start + s - 1]), np.int64(found[s - 1])
                change_pair(data, start + s, y1, y, keep, change, model)
                change_pair(data, start + s, z1, z, keep, -change, model)
            if layout.triples >= 0 and s > 1:
                y2 = layout.triples + np.int64(labels[start + s - 2]) * n + labels[start + s - 1]
                z2 = layout.triples + np.int64(found[s - 2]) * n + found[s - 1]
                weights[y2, y] = keep * weights[y2, y] + change
                weights[z2, z] = keep * weights[z2, z] - change
        following = t + reach + 1
    exchange_labels(b, p, True, table, chains, scratch)


@inlined
def add_moves(b, n_parts, data, model, scratch):  # type: ignore[no-untyped-def]
    """Add the moves of all parts to the weights; returns how many features these have."""
    rows, start, moves = data.rows, data.ends[b], scratch.moves
    length = data.ends[b + 1] - start
    n_entries = 0
    for q in range(n_parts):
        t, m = np.int64(scratch.parts[q, 0]), np.int64(scratch.parts[q, 1])
        first, at = rows.starts[start + t], model.at[t]
        count = rows.starts[start + t + 1] - first
        moved = False
        if model.layout.n_columns <= NARROW:
            for c in range(model.layout.n_labels):
                if moves[t, c] != 0.0:
                    moved = True
                    change_fixed(model, t, length, c, 1.0, moves[t, c])
            if moved:
                add_multiple(rows.values, first, model.columns, at, count, model.table, moves[t])
        elif moves[t, m] != 0.0:
            moved = True
            change_fixed(model, t, length, m, 1.0, moves[t, m])
            add_to_column(rows.values, first, model.columns, at, count, model.table, m, moves[t, m])
        n_entries += moved * count
    return n_entries


@inlined
def clear_moves(data, n_parts, scratch):  # type: ignore[no-untyped-def]
    """Set the moves of all parts to zero again."""
    for q in range(n_parts):
        t, m = np.int64(scratch.parts[q, 0]), np.int64(scratch.parts[q, 1])
        if data.layout.n_columns <= NARROW:
            for c in range(data.layout.n_labels):
                scratch.moves[t, c] = 0.0
        else:
            scratch.moves[t, m] = 0.0


@inlined
def clear_cut(b, n_parts, data, model, scratch):  # type: ignore[no-untyped-def]
    """Set the new cut to zero where moves of parts were added to it."""
    layout, rows, start = model.layout, data.rows, data.ends[b]
    length = data.ends[b + 1] - start
    for q in range(n_parts):
        t, part = np.int64(scratch.parts[q, 0]), np.int64(scratch.parts[q, 1])
        narrow = layout.n_columns <= NARROW
        for m in range(0 if narrow else part, layout.n_labels if narrow else part + 1):
            if scratch.moves[t, m] != 0.0:
                change_fixed(model, t, length, m, 0.0, 0.0)
                for p in range(rows.starts[start + t + 1] - rows.starts[start + t]):
                    model.table[model.columns[model.at[t] + p], m] = 0.0


@inlined
def scale_of(loss, slack):  # type: ignore[no-untyped-def]
    """What multiplies the features of a cut of this loss."""
    return loss if slack else 1.0


@inlined
def append_labels(b, p, n_parts, table, chains, scratch):  # type: ignore[no-untyped-def]
    """Append cut `p` to example `b`, all of whose parts are listed."""
    data = chains.data
    cut = Model(scratch.cut, chains.cut_layout, scratch.own, scratch.own_at)
    n_numbers = number_features(b, n_parts, chains, scratch)
    change_labels(b, p, table, chains, 1.0, 1.0, cut, scratch)
    add_moves(b, n_parts, data, cut, scratch)
    score_parts(b, n_parts, data, cut, scratch.products, scratch)
    m = table.size[b]
    table.slots[table.slot_at[b] + m] = p
    table.size[b] = m + 1
    gram_at, stride = table.gram_at[b], table.capacity[b]
    for j in range(m + 1):
        other = table.slots[table.slot_at[b] + j]
        product = cut_product(b, other, table, chains, cut, scratch.products, scratch)
        product *= scale_of(table.loss[p], chains.slack) * scale_of(table.loss[other], chains.slack)
        table.gram[gram_at + m * stride + j] = product
        table.gram[gram_at + j * stride + m] = product
    clear_cut(b, n_parts, data, cut, scratch)
    clear_moves(data, n_parts, scratch)
    change_labels(b, p, table, chains, 0.0, 0.0, cut, scratch)
    clear(n_numbers, scratch.numbers)


@inlined
def enter_labels(b, first, found, loss, table, chains):  # type: ignore[no-untyped-def]
    """A number for the cut of the labels from ``found[first]`` on, whose codes are set."""
    length = code_of(b, first, found, table.counts[N_ENTRIES], table, chains.data, chains.bits)
    return enter(length, loss, 0.0, table)


@inlined
def code_of(b, first, found, at, table, data, bits):  # type: ignore[no-untyped-def]
    """Set codes, from ``columns[at]`` on, where labels are not the true ones; returns how many."""
    start = data.ends[b]
    n_codes = 0
    for t in range(data.ends[b + 1] - start):
        z = found[first + t]
        if z != data.labels[start + t]:
            table.columns[at + n_codes] = (np.uint32(t) << bits) | np.uint32(z)
            n_codes += 1
    return n_codes


@compiled
def code_labels(examples, numbers, new, table, data, bits):  # type: ignore[no-untyped-def]
    """See `OutputCuts.code`."""
    for k in range(len(numbers)):
        p, at = numbers[k], table.counts[N_ENTRIES]
        length = code_of(examples[k], new.starts[k], new.found, at, table, data, bits)
        table.start[p], table.length[p] = at, length
        table.counts[N_ENTRIES] += length
        table.counts[N_LIVE] += length


@inlined
def withdraw(p, table):  # type: ignore[no-untyped-def]
    """Give the number back of the cut that was entered last."""
    table.free[table.counts[N_FREE]] = p
    table.counts[N_FREE] += 1
    table.counts[N_ENTRIES] -= table.length[p]
    table.counts[N_LIVE] -= table.length[p]
    table.length[p] = UNUSED


@inlined
def model_of(weights, data, scratch):  # type: ignore[no-untyped-def]
    """The weights of all examples, or another vector like them."""
    return Model(weights, data.layout, data.rows.columns, scratch.at)


@inlined
def label_slope(b, p, table, chains, model, scratch):  # type: ignore[no-untyped-def]
    """``loss - <w, psi>`` of cut `p`, of whose parts the scores are known."""
    product = cut_product(b, p, table, chains, model, scratch.scores, scratch)
    return table.loss[p] - scale_of(table.loss[p], chains.slack) * product


@inlined
def set_label_coef(b, p, new, table, chains, model, scratch):  # type: ignore[no-untyped-def]
    """Change a coefficient, moves of parts still to be added; returns the change of linear term."""
    change = new - table.coef[p]
    if change != 0.0:
        table.coef[p] = new
        scaled = change * scale_of(table.loss[p], chains.slack)
        change_labels(b, p, table, chains, 1.0, scaled, model, scratch)
    return change * table.loss[p]


@compiled
def update_chains(examples, rule, new, added, sums, table, weights, chains, scratch):  # type: ignore[no-untyped-def]
    """`update_examples` for cuts that are kept as labels.

    Parameters
    ----------
    examples, rule, added, sums : as there
    new : NewOutputs, labels and losses for each example, or without losses
    table, weights : Table and ndarray of shape (n_rows, n_columns), changed
    chains, scratch : Chains and Scratch
    """
    slopes, coef, data = scratch.slopes, scratch.coef, chains.data
    model = model_of(weights, chains.data, scratch)
    for o in range(len(examples)):
        b = examples[o]
        at = table.slot_at[b]
        m = table.size[b]
        take_example(b, data, scratch)
        n_parts = list_cuts(b, table, chains, scratch)
        entered = -1
        if len(new.losses) > 0:
            entered = enter_labels(b, new.starts[o], new.found, new.losses[o], table, chains)
            n_parts = list_parts(b, entered, table, chains, n_parts, scratch)
        work = PART_COST * score_parts(b, n_parts, data, model, scratch.scores, scratch)
        highest = 0.0
        value = 0.0
        for j in range(m):
            p = table.slots[at + j]
            slopes[j] = slope = label_slope(b, p, table, chains, model, scratch)
            coef[j] = table.coef[p]
            highest = max(highest, slope)
            value += coef[j] * slope
        if entered >= 0:
            slope = label_slope(b, entered, table, chains, model, scratch)
            if slope > highest + rule.tolerance:
                highest = slope
                append_labels(b, entered, n_parts, table, chains, scratch)
                added[o] = entered
                slopes[m] = slope
                coef[m] = 0.0
                work += 3 * work
                m += 1
            else:
                withdraw(entered, table)
        work += step_block(b, m, highest, value, rule, table, slopes, coef, sums)
        for j in range(m):
            p = table.slots[at + j]
            sums[LINEAR] += set_label_coef(b, p, coef[j], table, chains, model, scratch)
        work += PART_COST * add_moves(b, n_parts, data, model, scratch)
        clear_moves(data, n_parts, scratch)
        forget_parts(n_parts, scratch)
        sums[WORK] += work


@compiled
def find_best_labels(examples, best, adds, vector, table, weights, chains, scratch):  # type: ignore[no-untyped-def]
    """`add_best_cuts` for cuts that are kept as labels, or, unless it `adds`, `hinges_of`.

    Returns what they return. Other arguments as in `update_chains`; nothing of `vector` is read
    where nothing is added.
    """
    data, model = chains.data, model_of(weights, chains.data, scratch)
    into = model_of(vector, data, scratch)
    loss = hinges = 0.0
    for b in examples:
        best[b] = -1
        highest = 0.0
        take_example(b, data, scratch)
        n_parts = list_cuts(b, table, chains, scratch)
        score_parts(b, n_parts, data, model, scratch.scores, scratch)
        for j in range(table.size[b]):
            p = table.slots[table.slot_at[b] + j]
            table.idle[p] += adds
            slope = label_slope(b, p, table, chains, model, scratch)
            if slope > highest:
                highest = slope
                best[b] = p
        hinges += table.totals[b] * highest
        p = best[b]
        if adds and p >= 0:
            table.idle[p] = 0
            loss += table.totals[b] * table.loss[p]
            change = table.totals[b] * scale_of(table.loss[p], chains.slack)
            change_labels(b, p, table, chains, 1.0, change, into, scratch)
            add_moves(b, n_parts, data, into, scratch)
            clear_moves(data, n_parts, scratch)
        forget_parts(n_parts, scratch)
    return loss if adds else hinges


@inlined
def move_example(b, table, chains, model, scratch):  # type: ignore[no-untyped-def]
    """Set the coefficients of example `b` to ``scratch.coef``, as `set_label_coef`."""
    linear = 0.0
    n_parts = 0
    take_example(b, chains.data, scratch)
    for j in range(table.size[b]):
        p = table.slots[table.slot_at[b] + j]
        if scratch.coef[j] != table.coef[p]:
            n_parts = list_parts(b, p, table, chains, n_parts, scratch)
            linear += set_label_coef(b, p, scratch.coef[j], table, chains, model, scratch)
    add_moves(b, n_parts, chains.data, model, scratch)
    clear_moves(chains.data, n_parts, scratch)
    forget_parts(n_parts, scratch)
    return linear


@compiled
def extrapolate_chains(examples, momentum, back, table, weights, chains, scratch):  # type: ignore[no-untyped-def]
    """`extrapolate_examples` or, to go `back`, `revert_examples` for cuts that are kept as labels.

    Other arguments as in `update_chains`.
    """
    model = model_of(weights, chains.data, scratch)
    linear = 0.0
    for b in examples:
        step = 0.0 if back else longest_step(b, momentum, table)
        if step >= 0.0:
            for j in range(table.size[b]):
                p = table.slots[table.slot_at[b] + j]
                if back:
                    scratch.coef[j] = table.previous[p]
                else:
                    scratch.coef[j] = extrapolated(p, step, table)
            linear += move_example(b, table, chains, model, scratch)
    return linear
