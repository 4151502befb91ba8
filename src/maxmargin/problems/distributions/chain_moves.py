"""Moves of the distributions over labellings, compiled: proposals and steps, block by block."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.dual.compiled import compiled, inlined
from maxmargin.dual.rows import Rows
from maxmargin.inference.chains import marginals_along, viterbi_along
from maxmargin.inference.reweighting import (
    mean_score,
    reweight_chain,
    set_factors,
    set_labelling,
    set_potentials,
    truth_score,
)
from maxmargin.problems.chains import (
    Labels,
    Layout,
    add_losses,
    edge_scores,
    pair_scores,
    set_node_scores,
)
from maxmargin.problems.distributions.chain_directions import (
    add_node_changes,
    add_pair_changes,
    touch_rows,
)
from maxmargin.problems.distributions.directions import (
    measure_products,
    measure_rows,
    move_and_clear,
)
from maxmargin.problems.distributions.steps import mixed, step_size

Floats = NDArray[np.float64]
Order = NDArray[np.int64]


class ChainData(NamedTuple):
    """What the kernels need of the data.

    The pairs of block ``b`` stand from ``pair_at[b]`` on. `squares` has the squared length of the
    features of each position, constant ones included, or nothing where some may stand twice.
    """

    rows: Rows
    tied: Rows
    ends: Order
    pair_at: Order
    labels: Labels
    layout: Layout
    loss: Floats
    loss_scale: Floats
    totals: Floats
    squares: Floats


class Marginals(NamedTuple):
    """Probabilities of labels and of pairs: of all blocks, or of one."""

    nodes: Floats
    pairs: Floats


class ChainProposals(NamedTuple):
    """Those of block ``blocks[k]`` start at ``node_at[k]`` and ``pair_at[k]``."""

    blocks: Order
    node_at: Order
    pair_at: Order
    nodes: Floats
    pairs: Floats
    hinges: Floats
    values: Floats


class ProposalScratch(NamedTuple):
    """Scratch of one thread; what it holds does not matter, but `factors` is zero at first."""

    labels: Labels
    scores: Floats
    best: Floats
    sums: Floats
    factors: Floats
    edges: Floats
    potentials: Floats


class StepScratch(NamedTuple):
    """Scratch of steps: `direction` and ``touched[1]`` are zero between them."""

    direction: Floats
    touched: Order
    changes: Floats


@inlined
def old_and_new(data, marginals, found, k):  # type: ignore[no-untyped-def]
    """The distribution of block ``blocks[k]``, and the one proposed."""
    b = found.blocks[k]
    nodes = marginals.nodes[data.ends[b] : data.ends[b + 1]]
    pairs = marginals.pairs[data.pair_at[b] : data.pair_at[b + 1]]
    new_nodes = found.nodes[found.node_at[k] : found.node_at[k] + len(nodes)]
    new_pairs = found.pairs[found.pair_at[k] : found.pair_at[k] + len(pairs)]
    return Marginals(nodes, pairs), Marginals(new_nodes, new_pairs)


@compiled
def node_scores(rows, start, stop, table, layout, nodes):  # type: ignore[no-untyped-def]
    """`set_node_scores`, compiled once for both places that need it."""
    set_node_scores(rows, start, stop, table, layout, nodes)


@inlined
def factors_of(table, layout, temperature, factors):  # type: ignore[no-untyped-def]
    """Set the `factors` of `reweight_chain`; returns whether they can be used."""
    usable = False
    if temperature > 0.0 and layout.tied < 0:
        edges = pair_scores(table, layout)
        usable = set_factors(edges, 1.0 / temperature, layout.n_labels, factors)
    return usable


@inlined
def propose_block(data, b, old, temperature, usable, table, scratch, new):  # type: ignore[no-untyped-def]
    """Set the distribution to go towards; returns the hinge and the mean slope.

    There must be a position. `usable` tells whether the factors are.
    """
    n = data.layout.n_labels
    first, last = data.ends[b], data.ends[b + 1]
    scores = scratch.scores[: last - first]
    node_scores(data.rows, first, last, table, data.layout, scores)
    add_losses(first, last, data.labels, data.loss, data.loss_scale[b], scores)
    edges = edge_scores(data.tied, first, last, table, data.layout, scratch.edges)
    own = truth_score(data.labels[first:last], scores, edges)
    hinge = viterbi_along(scores, edges, n, scratch.labels, scratch.best) - own
    mean = mean_score(old.nodes, old.pairs, scores, edges) - own
    if temperature == 0.0:
        set_labelling(scratch.labels, new.nodes, new.pairs)
    elif usable:
        reweight_chain(
            old.nodes, old.pairs, scores, 1.0 / temperature, scratch.factors, n,
            new.nodes, new.pairs, scratch.sums,
        )  # fmt: skip
    else:
        potentials = scratch.potentials[: len(old.pairs)]
        set_potentials(old.nodes, old.pairs, edges, 1.0 / temperature, n, scores, potentials)
        marginals_along(scores, potentials, n, new.nodes, new.pairs, scratch.sums)
    return hinge, mean


@compiled
def set_changes(data, b, old, new, changes):  # type: ignore[no-untyped-def]
    """Set what a whole step changes the factors of feature rows by: cost times ``old - new``.

    Returns the change of the linear term.
    """
    linear = 0.0
    for t in range(len(old)):
        right = data.labels[data.ends[b] + t]
        for m in range(old.shape[1]):
            change = data.totals[b] * (old[t, m] - new[t, m])
            changes[t, m] = change
            linear -= change * data.loss[right, m]
    return data.loss_scale[b] * linear


@compiled
def add_changes(data, b, changes, pairs, new_pairs, table):  # type: ignore[no-untyped-def]
    """Add what a whole step changes the weights by."""
    first, length = data.ends[b], data.ends[b + 1] - data.ends[b]
    add_node_changes(data.rows, data.layout, first, length, changes, table)
    add_pair_changes(data.tied, data.layout, first, pairs, new_pairs, data.totals[b], table)


@compiled
def mix(old, new, step):  # type: ignore[no-untyped-def]
    """``old = (1 - step) * old + step * new``."""
    for a in range(old.shape[0]):
        for m in range(old.shape[1]):
            old[a, m] = mixed(old[a, m], new[a, m], step)


@inlined
def mix_block(old, new, step):  # type: ignore[no-untyped-def]
    """Move one block."""
    mix(old.nodes, new.nodes, step)
    for t in range(len(old.pairs)):
        mix(old.pairs[t], new.pairs[t], step)


@inlined
def step_block(data, b, old, new, move, table, scratch):  # type: ignore[no-untyped-def]
    """Step towards a proposal; returns the gain and the change of the linear term."""
    rows, layout = data.rows, data.layout
    first, length = data.ends[b], len(old.nodes)
    changes, direction, touched = scratch.changes, scratch.direction, scratch.touched
    whole = set_changes(data, b, old.nodes, new.nodes, changes)
    # The features of a single position stand once each: then nothing need be summed.
    alone = length == 1 and len(data.squares) > 0
    count = 0
    if alone:
        scores = changes[1:]
        node_scores(rows, first, first + 1, table, layout, scores)
        product, square = measure_products(changes[0], scores[0])
        square *= data.squares[first]
    else:
        add_changes(data, b, changes, old.pairs, new.pairs, direction)
        count = touch_rows(rows, data.tied, layout, first, length, touched)
        product, square = measure_rows(direction, table, touched, count)
    slope = whole - product
    step = step_size(move, slope, square)
    if not alone:
        move_and_clear(direction, step, table, touched, count)
    elif step > 0.0:
        for m in range(layout.n_columns):
            changes[0, m] *= step
        add_node_changes(rows, layout, first, 1, changes, table)
    if step > 0.0:
        mix_block(old, new, step)
    return step * (slope - 0.5 * step * square), step * whole


@compiled
def move_chains(data, marginals, found, first, last, move, table, scratch, step_scratch):  # type: ignore[no-untyped-def]
    """See `Distributions._move`."""
    gain = linear = 0.0
    entries = 0
    usable = False
    for k in range(first, last):
        b = found.blocks[k]
        old, new = old_and_new(data, marginals, found, k)
        if move.proposes:
            found.hinges[k] = found.values[k] = 0.0
            if k == first or move.steps:  # which change transitions, and so the factors
                usable = factors_of(table, data.layout, move.temperature, scratch.factors)
            if len(old.nodes) > 0:
                found.hinges[k], found.values[k] = propose_block(
                    data, b, old, move.temperature, usable, table, scratch, new
                )
        if move.steps:
            more, change = step_block(data, b, old, new, move, table, step_scratch)
            gain += more
            linear += change
            entries += data.rows.starts[data.ends[b + 1]] - data.rows.starts[data.ends[b]]
    return gain, linear, 4 * entries * data.layout.n_columns


@compiled
def add_all_chains(data, marginals, found, table, changes):  # type: ignore[no-untyped-def]
    """See `Distributions._add_direction`."""
    linear = 0.0
    for k in range(len(found.blocks)):
        b = found.blocks[k]
        old, new = old_and_new(data, marginals, found, k)
        linear += set_changes(data, b, old.nodes, new.nodes, changes)
        add_changes(data, b, changes, old.pairs, new.pairs, table)
    return linear


@compiled
def mix_all_chains(data, marginals, found, step):  # type: ignore[no-untyped-def]
    """See `Distributions._mix`."""
    for k in range(len(found.blocks)):
        old, new = old_and_new(data, marginals, found, k)
        mix_block(old, new, step)
