"""Directions in a weight table, measured and followed in the rows that they touch only.

One example has few of all features. Rows that were touched are listed in ``touched[0]``, and marked
in ``touched[1]``, which is zero between directions, as is the direction itself.
"""

import numpy as np

from maxmargin.dual.compiled import compiled, inlined


@inlined
def touch(row, touched, count):  # type: ignore[no-untyped-def]
    """Enter a row in the list ``touched[0]``, once; returns how many there are."""
    if touched[1, row] == 0:
        touched[1, row] = 1
        touched[0, count] = row
        count += 1
    return count


@inlined
def touch_features(rows, i, touched, count):  # type: ignore[no-untyped-def]
    """Enter the rows of the weight table that belong to the features of row `i`."""
    start = rows.starts[i]
    for q in range(start, rows.starts[i + 1]):
        column = rows.columns[q if rows.indexed else q - start]
        count = touch(np.int64(column), touched, count)
    return count


@inlined
def measure_products(direction, weights):  # type: ignore[no-untyped-def]
    """Inner products of a direction with weights and with itself."""
    product = square = 0.0
    for m in range(len(direction)):
        product += direction[m] * weights[m]
        square += direction[m] * direction[m]
    return product, square


@compiled
def measure_rows(direction, table, touched, count):  # type: ignore[no-untyped-def]
    """The same over the rows touched."""
    product = square = 0.0
    for c in range(count):
        row = touched[0, c]
        row_product, row_square = measure_products(direction[row], table[row])
        product += row_product
        square += row_square
    return product, square


@compiled
def move_and_clear(direction, step, table, touched, count):  # type: ignore[no-untyped-def]
    """Make a step; what was scratch is zero again."""
    for c in range(count):
        row = touched[0, c]
        touched[1, row] = 0
        for m in range(table.shape[1]):
            table[row, m] += step * direction[row, m]
            direction[row, m] = 0.0
