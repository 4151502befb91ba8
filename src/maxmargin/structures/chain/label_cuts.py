"""Updates over cutting planes of chains that are kept as labels, without entries.

The cuts of an example differ from its true labels at few positions, and mostly at the same ones. So
what a label scores at a position is summed up once for all cuts of the example, and changes of
coefficients are summed up by position and label before they are added to the weights.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.compiled.rows import add_row_in, add_row_multiple, add_row_scores, row_score_in
from maxmargin.core.arrays import Floats, Order
from maxmargin.dual.cut_table import (
    LINEAR,
    WORK,
    StepRule,
    Table,
    enter,
    extrapolated,
    longest_step,
    step_block,
)
from maxmargin.dual.output_cuts import Kept, NewOutputs
from maxmargin.structures.chain.oracle import ChainOracle, differ

NARROW = 8
"""Columns of the weight table up to which all labels are scored at once, in one vector or two."""


class Scratch(NamedTuple):
    """Arrays for one example: `moves`, `seen` and `cut` are zero between uses.

    By position and label: `scores` at the weights, `products` with the new cut, `moves` of the
    coefficients, and what was `seen`; `parts` lists these. By cut: `where` its labels begin, its
    slope and its new coefficient. The new `cut` is as large as the weights.
    """

    scores: Floats
    products: Floats
    moves: Floats
    seen: NDArray[np.bool_]
    parts: NDArray[np.int32]
    cut: Floats
    where: Order
    slopes: Floats
    coef: Floats


class LabelCuts:
    """The compiled routines of `OutputCuts` for chains."""

    def __init__(self, oracle: ChainOracle) -> None:
        self.oracle = oracle
        shape = oracle.sequences.longest, oracle.layout.n_columns
        scores, products, moves = np.zeros((3, *shape))
        parts = np.zeros((shape[0] * shape[1], 2), dtype=np.int32)
        cut = np.zeros((oracle.layout.n_rows, oracle.layout.n_columns))
        seen = np.zeros(shape, dtype=np.bool_)
        self._scratch = Scratch(
            scores, products, moves, seen, parts, cut, np.zeros(0, np.int64), cut[0], cut[0]
        )

    def update(
        self,
        examples: Order,
        weights: Floats,
        rule: StepRule,
        table: Table,
        kept: Kept,
        new: NewOutputs,
        added: NDArray[np.int32],
        sums: Floats,
    ) -> None:
        update_chains(examples, rule, new, added, sums, *self._arguments(weights, table, kept))

    def put(
        self,
        examples: Order,
        coef: Floats,
        table: Table,
        kept: Kept,
        new: NewOutputs,
        added: NDArray[np.int32],
    ) -> None:
        weights = self._scratch.cut.ravel()  # of which nothing is read
        put_labels(examples, new, coef, added, *self._arguments(weights, table, kept))

    def add_best(
        self,
        examples: Order,
        weights: Floats,
        vector: Floats,
        table: Table,
        kept: Kept,
        best: Order,
    ) -> float:
        where = self._arguments(weights, table, kept)
        return float(add_best_labels(examples, self.oracle.layout.table(vector), best, *where))

    def hinges(self, examples: Order, weights: Floats, table: Table, kept: Kept) -> float:
        return float(hinges_of_labels(examples, *self._arguments(weights, table, kept)))

    def extrapolate(
        self, examples: Order, momentum: float, weights: Floats, table: Table, kept: Kept
    ) -> float:
        where = self._arguments(weights, table, kept)
        return float(extrapolate_chains(examples, momentum, *where))

    def revert(self, examples: Order, weights: Floats, table: Table, kept: Kept) -> float:
        return float(revert_chains(examples, *self._arguments(weights, table, kept)))

    def _arguments(self, weights: Floats, table: Table, kept: Kept) -> tuple[Any, ...]:
        """What all routines take, with scratch for the longest list of cuts."""
        widest = int(table.capacity.max(initial=0)) + 1
        if widest > len(self._scratch.where):
            where = np.zeros(2 * widest, dtype=np.int64)
            slopes, coef = np.zeros((2, 2 * widest))
            self._scratch = self._scratch._replace(where=where, slopes=slopes, coef=coef)
        oracle = self.oracle
        in_rows = oracle.layout.table(weights)
        return table, in_rows, oracle.data, oracle.slack, kept, self._scratch


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
def list_parts(data, b, labels_at, kept, n_parts, scratch):  # type: ignore[no-untyped-def]
    """List where labels from `labels_at` on differ from the true ones, as `list_part`."""
    start = data.ends[b]
    for t in range(data.ends[b + 1] - start):
        y, z = data.labels[start + t], kept.found[labels_at + t]
        if y != z:
            n_parts = list_part(t, part_of(data.layout, y), n_parts, scratch)
            n_parts = list_part(t, part_of(data.layout, z), n_parts, scratch)
    return n_parts


@inlined
def forget_parts(n_parts, scratch):  # type: ignore[no-untyped-def]
    """Empty the list."""
    for q in range(n_parts):
        scratch.seen[scratch.parts[q, 0], scratch.parts[q, 1]] = False


@inlined
def fixed_score(layout, t, length, m, weights):  # type: ignore[no-untyped-def]
    """Bias and ends of label `m` at position `t`."""
    score = 0.0
    if layout.bias >= 0:
        score += weights[layout.bias, m]
    if layout.first >= 0 and t == 0:
        score += weights[layout.first, m]
    if layout.last >= 0 and t == length - 1:
        score += weights[layout.last, m]
    return score


@inlined
def change_fixed(layout, t, length, m, keep, change, weights):  # type: ignore[no-untyped-def]
    """``weight = keep * weight + change`` where `fixed_score` reads."""
    if layout.bias >= 0:
        weights[layout.bias, m] = keep * weights[layout.bias, m] + change
    if layout.first >= 0 and t == 0:
        weights[layout.first, m] = keep * weights[layout.first, m] + change
    if layout.last >= 0 and t == length - 1:
        weights[layout.last, m] = keep * weights[layout.last, m] + change


@inlined
def score_parts(data, b, n_parts, weights, scores, scratch):  # type: ignore[no-untyped-def]
    """Set the scores of all parts listed; returns how many features they have."""
    layout, start = data.layout, data.ends[b]
    length = data.ends[b + 1] - start
    n_entries = 0
    for q in range(n_parts):
        t, m = np.int64(scratch.parts[q, 0]), np.int64(scratch.parts[q, 1])
        if layout.n_columns <= NARROW:
            for c in range(layout.n_columns):
                scores[t, c] = fixed_score(layout, t, length, c, weights)
            add_row_scores(data.rows, start + t, weights, scores[t])
        else:
            score = fixed_score(layout, t, length, m, weights)
            scores[t, m] = score + row_score_in(data.rows, start + t, weights, m)
        n_entries += data.rows.starts[start + t + 1] - data.rows.starts[start + t]
    return n_entries


@inlined
def pair_score(data, row, a, b, weights):  # type: ignore[no-untyped-def]
    """Transition from label `a` to `b`, with the features tied to it at a row."""
    layout, tied = data.layout, data.tied
    score = weights[layout.transitions + a, b]
    if layout.tied >= 0:
        for q in range(tied.starts[row], tied.starts[row + 1]):
            first = layout.tied + np.int64(tied.columns[q]) * layout.n_labels
            score += tied.values[q] * weights[first + a, b]
    return score


@inlined
def change_pair(data, row, a, b, keep, change, weights):  # type: ignore[no-untyped-def]
    """``weight = keep * weight + change * feature`` where `pair_score` reads."""
    layout, tied = data.layout, data.tied
    at = layout.transitions + a
    weights[at, b] = keep * weights[at, b] + change
    if layout.tied >= 0:
        for q in range(tied.starts[row], tied.starts[row + 1]):
            at = layout.tied + np.int64(tied.columns[q]) * layout.n_labels + a
            weights[at, b] = keep * weights[at, b] + change * tied.values[q]


@inlined
def cut_product(data, b, labels_at, kept, scores, weights):  # type: ignore[no-untyped-def]
    """``<weights, phi(x, y_true) - phi(x, y)>`` for labels y, of whose parts `scores` are known."""
    labels, found, layout = data.labels, kept.found, data.layout
    start, n = data.ends[b], data.layout.n_labels
    total = 0.0
    for t in range(data.ends[b + 1] - start):
        y, z = np.int64(labels[start + t]), np.int64(found[labels_at + t])
        if y != z:
            total += scores[t, y] - scores[t, z]
        if t > 0 and differ(labels, found, start, labels_at, t, 1):
            y1, z1 = np.int64(labels[start + t - 1]), np.int64(found[labels_at + t - 1])
            total += pair_score(data, start + t, y1, y, weights)
            total -= pair_score(data, start + t, z1, z, weights)
        if layout.triples >= 0 and t > 1 and differ(labels, found, start, labels_at, t, 2):
            y2 = np.int64(labels[start + t - 2]) * n + labels[start + t - 1]
            z2 = np.int64(found[labels_at + t - 2]) * n + found[labels_at + t - 1]
            total += weights[layout.triples + y2, y] - weights[layout.triples + z2, z]
    return total


@inlined
def change_labels(data, b, labels_at, kept, keep, change, moves, weights):  # type: ignore[no-untyped-def]
    """Add `change` times a cut: to `moves` by position and label, to the weights what is of pairs.

    Weights of pairs are `keep` times the old ones.
    """
    labels, found, layout = data.labels, kept.found, data.layout
    start, n = data.ends[b], data.layout.n_labels
    for t in range(data.ends[b + 1] - start):
        y, z = np.int64(labels[start + t]), np.int64(found[labels_at + t])
        if y != z:
            moves[t, y] += change
            moves[t, z] -= change
        if t > 0 and differ(labels, found, start, labels_at, t, 1):
            y1, z1 = np.int64(labels[start + t - 1]), np.int64(found[labels_at + t - 1])
            change_pair(data, start + t, y1, y, keep, change, weights)
            change_pair(data, start + t, z1, z, keep, -change, weights)
        if layout.triples >= 0 and t > 1 and differ(labels, found, start, labels_at, t, 2):
            y2 = layout.triples + np.int64(labels[start + t - 2]) * n + labels[start + t - 1]
            z2 = layout.triples + np.int64(found[labels_at + t - 2]) * n + found[labels_at + t - 1]
            weights[y2, y] = keep * weights[y2, y] + change
            weights[z2, z] = keep * weights[z2, z] - change


@inlined
def add_moves(data, b, n_parts, weights, scratch):  # type: ignore[no-untyped-def]
    """Add the moves of all parts to the weights; returns how many features these have."""
    layout, start, moves = data.layout, data.ends[b], scratch.moves
    length = data.ends[b + 1] - start
    n_entries = 0
    for q in range(n_parts):
        t, m = np.int64(scratch.parts[q, 0]), np.int64(scratch.parts[q, 1])
        moved = False
        if layout.n_columns <= NARROW:
            for c in range(layout.n_labels):
                if moves[t, c] != 0.0:
                    moved = True
                    change_fixed(layout, t, length, c, 1.0, moves[t, c], weights)
            if moved:
                add_row_multiple(data.rows, start + t, moves[t], weights)
        elif moves[t, m] != 0.0:
            moved = True
            change_fixed(layout, t, length, m, 1.0, moves[t, m], weights)
            add_row_in(data.rows, start + t, moves[t, m], weights, m)
        if moved:
            n_entries += data.rows.starts[start + t + 1] - data.rows.starts[start + t]
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
def clear_cut(data, b, n_parts, scratch):  # type: ignore[no-untyped-def]
    """Set the new cut to zero where moves of parts were added to it."""
    layout, rows, start = data.layout, data.rows, data.ends[b]
    length = data.ends[b + 1] - start
    for q in range(n_parts):
        t, part = np.int64(scratch.parts[q, 0]), np.int64(scratch.parts[q, 1])
        narrow = layout.n_columns <= NARROW
        for m in range(0 if narrow else part, layout.n_labels if narrow else part + 1):
            if scratch.moves[t, m] != 0.0:
                change_fixed(layout, t, length, m, 0.0, 0.0, scratch.cut)
                at = rows.starts[start + t]
                for p in range(rows.starts[start + t + 1] - at):
                    scratch.cut[rows.columns[at * rows.indexed + p], m] = 0.0


@inlined
def scale_of(loss, slack):  # type: ignore[no-untyped-def]
    """What multiplies the features of a cut of this loss."""
    return loss if slack else 1.0


@inlined
def append_labels(b, p, m, n_parts, table, data, slack, kept, scratch):  # type: ignore[no-untyped-def]
    """Append cut `p` as number `m` of example `b`, all of whose parts are listed."""
    change_labels(data, b, scratch.where[m], kept, 1.0, 1.0, scratch.moves, scratch.cut)
    add_moves(data, b, n_parts, scratch.cut, scratch)
    score_parts(data, b, n_parts, scratch.cut, scratch.products, scratch)
    table.slots[table.slot_at[b] + m] = p
    table.size[b] = m + 1
    gram_at, stride = table.gram_at[b], table.capacity[b]
    for j in range(m + 1):
        other = table.slots[table.slot_at[b] + j]
        product = cut_product(data, b, scratch.where[j], kept, scratch.products, scratch.cut)
        product *= scale_of(table.loss[p], slack) * scale_of(table.loss[other], slack)
        table.gram[gram_at + m * stride + j] = product
        table.gram[gram_at + j * stride + m] = product
    clear_cut(data, b, n_parts, scratch)
    clear_moves(data, n_parts, scratch)
    change_labels(data, b, scratch.where[m], kept, 0.0, 0.0, scratch.moves, scratch.cut)


@inlined
def enter_labels(o, b, new, table, data, kept):  # type: ignore[no-untyped-def]
    """A number for the new cut, whose labels are the next of those kept."""
    p = enter(0, new.losses[o], 0.0, table)
    kept.at[p] = kept.used[0]
    kept.used[0] += data.ends[b + 1] - data.ends[b]
    return p


@inlined
def copy_labels(o, new, kept):  # type: ignore[no-untyped-def]
    """Copy new labels behind those that are kept; returns where they begin."""
    at, first = kept.used[0], new.starts[o]
    for t in range(new.starts[o + 1] - first):
        kept.found[at + t] = new.found[first + t]
    return at


@inlined
def list_cuts(b, table, data, kept, scratch):  # type: ignore[no-untyped-def]
    """Set where the labels of all cuts begin, and list their parts; returns how many."""
    n_parts = 0
    for j in range(table.size[b]):
        scratch.where[j] = kept.at[table.slots[table.slot_at[b] + j]]
        n_parts = list_parts(data, b, scratch.where[j], kept, n_parts, scratch)
    return n_parts


@inlined
def label_slope(b, j, table, weights, data, slack, kept, scratch):  # type: ignore[no-untyped-def]
    """``loss - <w, psi>`` of cut ``j`` of example `b`, of whose parts the scores are known."""
    loss = table.loss[table.slots[table.slot_at[b] + j]]
    product = cut_product(data, b, scratch.where[j], kept, scratch.scores, weights)
    return loss - scale_of(loss, slack) * product


@inlined
def set_label_coef(b, j, new, table, weights, data, slack, kept, scratch):  # type: ignore[no-untyped-def]
    """Change a coefficient, moves of parts still to be added; returns the change of linear term."""
    p = table.slots[table.slot_at[b] + j]
    change = new - table.coef[p]
    if change != 0.0:
        table.coef[p] = new
        change_labels(
            data, b, scratch.where[j], kept, 1.0, change * scale_of(table.loss[p], slack),
            scratch.moves, weights,
        )  # fmt: skip
    return change * table.loss[p]


@compiled
def update_chains(examples, rule, new, added, sums, table, weights, data, slack, kept, scratch):  # type: ignore[no-untyped-def]
    """`update_examples` for cuts that are kept as labels.

    Parameters
    ----------
    examples, rule, added, sums : as there
    new : NewOutputs, labels and losses for each example, or without losses
    table, weights : Table and ndarray of shape (n_rows, n_columns), changed
    data, slack : ChainData, and whether features are scaled by the loss
    kept : Kept, with room for all new labels
    scratch : Scratch
    """
    slopes, coef = scratch.slopes, scratch.coef
    for o in range(len(examples)):
        b = examples[o]
        m = table.size[b]
        n_parts = list_cuts(b, table, data, kept, scratch)
        if len(new.losses) > 0:
            scratch.where[m] = copy_labels(o, new, kept)
            n_parts = list_parts(data, b, scratch.where[m], kept, n_parts, scratch)
        work = score_parts(data, b, n_parts, weights, scratch.scores, scratch)
        highest = 0.0
        value = 0.0
        for j in range(m):
            slopes[j] = slope = label_slope(b, j, table, weights, data, slack, kept, scratch)
            coef[j] = table.coef[table.slots[table.slot_at[b] + j]]
            highest = max(highest, slope)
            value += coef[j] * slope
        if len(new.losses) > 0:
            product = cut_product(data, b, scratch.where[m], kept, scratch.scores, weights)
            slope = new.losses[o] - scale_of(new.losses[o], slack) * product
            if slope > highest + rule.tolerance:
                highest = slope
                p = enter_labels(o, b, new, table, data, kept)
                append_labels(b, p, m, n_parts, table, data, slack, kept, scratch)
                added[o] = p
                slopes[m] = slope
                coef[m] = 0.0
                work += 3 * work
                m += 1
        work += step_block(b, m, highest, value, rule, table, slopes, coef, sums)
        for j in range(m):
            sums[LINEAR] += set_label_coef(
                b, j, coef[j], table, weights, data, slack, kept, scratch
            )
        work += add_moves(data, b, n_parts, weights, scratch)
        clear_moves(data, n_parts, scratch)
        forget_parts(n_parts, scratch)
        sums[WORK] += work


@compiled
def put_labels(examples, new, coef, added, table, weights, data, slack, kept, scratch):  # type: ignore[no-untyped-def]
    """`put_cuts` for cuts that are kept as labels; other arguments as in `update_chains`."""
    for o in range(len(examples)):
        b = examples[o]
        m = table.size[b]
        n_parts = list_cuts(b, table, data, kept, scratch)
        scratch.where[m] = copy_labels(o, new, kept)
        n_parts = list_parts(data, b, scratch.where[m], kept, n_parts, scratch)
        p = enter_labels(o, b, new, table, data, kept)
        table.coef[p] = table.previous[p] = coef[o]
        append_labels(b, p, m, n_parts, table, data, slack, kept, scratch)
        added[o] = p
        forget_parts(n_parts, scratch)


@compiled
def add_best_labels(examples, vector, best, table, weights, data, slack, kept, scratch):  # type: ignore[no-untyped-def]
    """`add_best_cuts` for cuts that are kept as labels; other arguments as in `update_chains`."""
    total = 0.0
    for b in examples:
        best[b] = -1
        highest = 0.0
        chosen = 0
        n_parts = list_cuts(b, table, data, kept, scratch)
        score_parts(data, b, n_parts, weights, scratch.scores, scratch)
        for j in range(table.size[b]):
            p = table.slots[table.slot_at[b] + j]
            table.idle[p] += 1
            slope = label_slope(b, j, table, weights, data, slack, kept, scratch)
            if slope > highest:
                highest = slope
                best[b] = p
                chosen = j
        p = best[b]
        if p >= 0:
            table.idle[p] = 0
            change = table.totals[b] * scale_of(table.loss[p], slack)
            total += table.totals[b] * table.loss[p]
            change_labels(data, b, scratch.where[chosen], kept, 1.0, change, scratch.moves, vector)
            add_moves(data, b, n_parts, vector, scratch)
            clear_moves(data, n_parts, scratch)
        forget_parts(n_parts, scratch)
    return total


@compiled
def hinges_of_labels(examples, table, weights, data, slack, kept, scratch):  # type: ignore[no-untyped-def]
    """`hinges_of` for cuts that are kept as labels; arguments as in `update_chains`."""
    total = 0.0
    for b in examples:
        highest = 0.0
        n_parts = list_cuts(b, table, data, kept, scratch)
        score_parts(data, b, n_parts, weights, scratch.scores, scratch)
        for j in range(table.size[b]):
            slope = label_slope(b, j, table, weights, data, slack, kept, scratch)
            highest = max(highest, slope)
        forget_parts(n_parts, scratch)
        total += table.totals[b] * highest
    return total


@inlined
def move_example(b, table, weights, data, slack, kept, scratch):  # type: ignore[no-untyped-def]
    """Set the coefficients of example `b` to ``scratch.coef``, as `set_label_coef`."""
    linear = 0.0
    n_parts = 0
    for j in range(table.size[b]):
        p = table.slots[table.slot_at[b] + j]
        scratch.where[j] = kept.at[p]
        if scratch.coef[j] != table.coef[p]:
            n_parts = list_parts(data, b, scratch.where[j], kept, n_parts, scratch)
            linear += set_label_coef(
                b, j, scratch.coef[j], table, weights, data, slack, kept, scratch
            )
    add_moves(data, b, n_parts, weights, scratch)
    clear_moves(data, n_parts, scratch)
    forget_parts(n_parts, scratch)
    return linear


@compiled
def extrapolate_chains(examples, momentum, table, weights, data, slack, kept, scratch):  # type: ignore[no-untyped-def]
    """`extrapolate_examples` for cuts that are kept as labels; arguments as in `update_chains`."""
    linear = 0.0
    for b in examples:
        step = longest_step(b, momentum, table)
        if step >= 0.0:
            for j in range(table.size[b]):
                scratch.coef[j] = extrapolated(table.slots[table.slot_at[b] + j], step, table)
            linear += move_example(b, table, weights, data, slack, kept, scratch)
    return linear


@compiled
def revert_chains(examples, table, weights, data, slack, kept, scratch):  # type: ignore[no-untyped-def]
    """`revert_examples` for cuts that are kept as labels; arguments as in `update_chains`."""
    linear = 0.0
    for b in examples:
        for j in range(table.size[b]):
            scratch.coef[j] = table.previous[table.slots[table.slot_at[b] + j]]
        linear += move_example(b, table, weights, data, slack, kept, scratch)
    return linear
