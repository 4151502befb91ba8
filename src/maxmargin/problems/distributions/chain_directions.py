"""Directions in the weight table of a chain: what one sequence adds, and which rows it touches."""

import numpy as np

from maxmargin.dual.compiled import compiled
from maxmargin.dual.rows import add_row_multiple
from maxmargin.problems.chains import pair_scores
from maxmargin.problems.distributions.directions import touch, touch_features


@compiled
def add_node_changes(rows, layout, first, length, changes, table):  # type: ignore[no-untyped-def]
    """Add the features of the positions from `first` on times `changes`."""
    for t in range(length):
        add_row_multiple(rows, first + t, changes[t], table)
    for t in range(length):
        for m in range(layout.n_columns):
            if layout.bias >= 0:
                table[layout.bias, m] += changes[t, m]
            if layout.first >= 0 and t == 0:
                table[layout.first, m] += changes[t, m]
            if layout.last >= 0 and t == length - 1:
                table[layout.last, m] += changes[t, m]


@compiled
def add_pair_changes(tied, layout, first, old, new, cost, table):  # type: ignore[no-untyped-def]
    """Add what a whole step changes the weights of pairs by; `first` is the first position."""
    n = layout.n_labels
    for t in range(len(old)):
        add_difference(old[t], new[t], cost, pair_scores(table, layout))
        for q in range(tied.starts[first + t + 1], tied.starts[first + t + 2]):
            row = layout.tied + np.int64(tied.columns[q]) * n
            add_difference(old[t], new[t], cost * tied.values[q], table[row : row + n])


@compiled
def add_difference(old, new, scale, out):  # type: ignore[no-untyped-def]
    """``out += scale * (old - new)``."""
    for a in range(old.shape[0]):
        for m in range(old.shape[1]):
            out[a, m] += scale * (old[a, m] - new[a, m])


@compiled
def touch_rows(rows, tied, layout, first, length, touched):  # type: ignore[no-untyped-def]
    """List the rows of the weight table that belong to a sequence; returns how many there are."""
    count = 0
    for i in range(first, first + length):
        count = touch_features(rows, i, touched, count)
        for q in range(tied.starts[i], tied.starts[i + 1] if i > first else 0):
            row = layout.tied + np.int64(tied.columns[q]) * layout.n_labels
            for a in range(layout.n_labels):
                count = touch(row + a, touched, count)
    for row in range(layout.transitions, layout.transitions + layout.n_labels):
        count = touch(row, touched, count)
    for row in (layout.bias, layout.first, layout.last):
        if row >= 0:
            count = touch(row, touched, count)
    return count
