"""Compiled passes over the examples of linear problems: sweep, extrapolate, evaluate weights.

A step maximises the dual exactly over the variables ``coef[m]`` of one example, with which its row
enters the weights of class ``m``, given its loss-augmented ``scores[m]`` (`NEVER` in the padding),
its C ``cost`` and ``inverse = 1 / |x|^2``. It writes to `change` and returns `MOVED`, `STAYED` or
`CORNER` (stayed, all variables held at their bounds), after which an example waits 1, 3, 7, ...
iterations: ``updates[i]`` is when it is `DUE`, its `WAIT`, and whether it was `MOVING` since the
last extrapolation. Steps are added to ``unclipped = origin + X' coef``; where weights must not be
negative, ``weights = max(unclipped, 0)`` is another array, because clipping in place would forget
the negative part that later steps must fill first.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled, inlined
from maxmargin.compiled.rows import (
    Rows,
    add_row,
    add_row_multiple,
    add_row_scores,
    clip_row,
    row_score,
)

MOVED, STAYED, CORNER = 0, 1, 2
DUE, WAIT, MOVING = 0, 1, 2

NEVER = -1e300

CHUNK, STREAMS = 32, 8
"""Neighbouring examples kept together by the shuffle, and how many such runs are interleaved."""


class MulticlassRows(NamedTuple):
    """Examples of a multi-class problem; a row of `terms` is C, margin and ``1 / |x|^2``.

    ``loss[y, m]`` is that of class m where y is true; Weston-Watkins has `separate_slacks`.
    """

    rows: Rows
    labels: NDArray[np.int32]
    terms: NDArray[np.float64]
    loss: NDArray[np.float64]
    separate_slacks: bool


class ScalarRows(NamedTuple):
    """Examples of one variable; `terms` are target, bounds, ``1 / |x|^2``; `epsilon` the tube."""

    rows: Rows
    terms: NDArray[np.float64]
    epsilon: float


@inlined
def crammer_singer_step(scores, coef, label, cost, inverse, threshold, change):  # type: ignore[no-untyped-def]
    """One slack for all classes: Euclidean projection on the simplex ``a >= 0, sum(a) = cost``.

    In ``a[m] = -coef[m]`` for a wrong class and ``cost - coef[label]`` for the true one, the
    Hessian is a multiple of the identity, so ``a + scores * inverse`` is projected.
    """
    coef[label] -= cost  # now a = -coef for every class
    top = NEVER
    highest = NEVER
    lowest = -NEVER
    support = 0
    for m in range(len(coef)):
        score = scores[m]
        used = coef[m] < 0.0
        support += used
        low = score if used else -NEVER
        lowest = low if low < lowest else lowest
        top = score if score > top else top
    if top - lowest <= threshold:
        coef[label] += cost
        return CORNER if support == 1 else STAYED

    # Scores from the top one down: added to a, they would drown it where x is short.
    for m in range(len(coef)):
        moved = (scores[m] - top) * inverse - coef[m]
        change[m] = moved
        highest = moved if moved > highest else highest

    # Michelot's iteration: the level only rises, so it ends after at most n_classes iterations.
    level = highest - cost
    while True:
        total = 0.0
        count = 0
        for m in range(len(coef)):
            above = change[m] > level
            total += change[m] if above else 0.0
            count += above
        higher = (total - cost) / count
        if higher <= level:
            break
        level = higher
    for m in range(len(coef)):
        new = level - change[m]
        new = new if new < 0.0 else 0.0
        change[m] = new - coef[m]
        coef[m] = new
    coef[label] += cost
    return MOVED


@inlined
def weston_watkins_step(scores, coef, label, cost, inverse, threshold, change):  # type: ignore[no-untyped-def]
    """One slack for each wrong class: variables ``a[m] = -coef[m]`` in ``[0, cost]``.

    The Hessian is a multiple of ``I + 1 1'``: at the maximiser ``a = clip(t - shift, 0, cost)``
    with ``t = a_old + (scores - scores[label]) * inverse`` and ``shift`` the change of ``sum(a)``,
    an increasing piecewise linear equation that bracketed Newton steps solve exactly.
    """
    own = scores[label]
    old_sum = coef[label]
    scores[label] = NEVER  # the true class has no variable of its own
    coef[label] = 0.0
    total = 0.0
    inside = 0
    for m in range(len(coef)):
        gradient = scores[m] - own
        change[m] = gradient * inverse - coef[m]
        a = -coef[m]
        inside += (a > 0.0) & (a < cost)
        up = gradient if a < cost else 0.0
        down = -gradient if a > 0.0 else 0.0
        violation = up if up > down else down
        total += violation if violation > 0.0 else 0.0
    if total <= threshold:
        coef[label] = old_sum
        return CORNER if inside == 0 else STAYED

    low = -old_sum - cost  # strictly below the root, which is -old_sum when all a leave
    high = len(coef) * cost - old_sum
    shift = 0.0
    while True:
        used = 0.0
        slope = 1
        for m in range(len(coef)):
            a = change[m] - shift
            slope += (a > 0.0) & (a < cost)
            a = a if a > 0.0 else 0.0
            used += a if a < cost else cost
        residual = shift + old_sum - used
        if residual > 0.0:
            high = shift
        elif residual < 0.0:
            low = shift
        else:
            break
        newton = shift - residual / slope
        if newton == shift:
            break  # the root, to the last bit
        if newton <= low or newton >= high:
            newton = 0.5 * (low + high)
        if newton <= low or newton >= high:
            break  # the bracket holds no further number
        shift = newton

    new_sum = 0.0
    for m in range(len(coef)):
        a = change[m] - shift
        a = a if a > 0.0 else 0.0
        a = a if a < cost else cost
        new_sum += a
        change[m] = -a - coef[m]
        coef[m] = -a
    coef[label] = new_sum
    change[label] = new_sum - old_sum
    return MOVED


@inlined
def box_step(score, coef, target, epsilon, lower, upper, inverse):  # type: ignore[no-untyped-def]
    """New value of the variable of a binary or regression example: a clipped soft threshold."""
    free = coef + (target - score) * inverse
    width = epsilon * inverse
    above = free - width
    below = free + width
    free = above if above > 0.0 else (below if below < 0.0 else 0.0)
    free = free if free > lower else lower
    return free if free < upper else upper


@inlined
def postpone(i, updates, now, longest_wait):  # type: ignore[no-untyped-def]
    """Double the wait of the idle example ``i``."""
    wait = min(2 * updates[i, WAIT] + 1, longest_wait)
    updates[i, WAIT] = wait
    updates[i, DUE] = now + 1 + wait


@inlined
def random_below(bound, state):  # type: ignore[no-untyped-def]
    """A random number in ``0..bound-1`` (bound < 2^31); `state` is one uint64 (splitmix64)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.int64(((z >> np.uint64(33)) * np.uint64(bound)) >> np.uint64(31))


@compiled
def update_order(updates, now, state, due, runs, order):  # type: ignore[no-untyped-def]
    """Set `order` to the examples that are due, shuffled; returns how many there are.

    Runs of `CHUNK` examples are shuffled and `STREAMS` of them interleaved: a random permutation
    converges no faster, and its cache misses double the time of an update. `due` and `runs` are
    scratch as long as `order`.
    """
    count = 0
    for i in range(len(updates)):
        due[count] = i
        count += updates[i, DUE] <= now
    chunk = CHUNK if count >= 4 * CHUNK * STREAMS else 1
    n_runs = (count + chunk - 1) // chunk
    for run in range(n_runs):
        runs[run] = run
    for last in range(n_runs - 1, 0, -1):
        other = random_below(last + 1, state)
        runs[last], runs[other] = runs[other], runs[last]
    shift = random_below(count, state) if count > 0 else 0
    filled = 0
    for first in range(0, n_runs, STREAMS):
        for p in range(chunk):
            for run in range(first, min(first + STREAMS, n_runs)):
                at = runs[run] * chunk + p
                if at < count:
                    at += shift
                    order[filled] = due[at - count if at >= count else at]
                    filled += 1
    return count


@inlined
def add_snapshot(weights, average, snapshots):  # type: ignore[no-untyped-def]
    """Average the weights; snapshot ``t`` counts ``4 / (t + 3)``, which favours recent ones."""
    snapshots[0] += 1
    rate = 4.0 / (snapshots[0] + 3.0)
    flat, flat_average = weights.reshape(weights.size), average.reshape(weights.size)
    for j in range(len(flat)):
        flat_average[j] += rate * (flat[j] - flat_average[j])


@inlined
def set_augmented_scores(data, i, weights, scores):  # type: ignore[no-untyped-def]
    """``scores = margin * loss[label] + x_i' weights``, `NEVER` in the padding."""
    n_classes = data.loss.shape[0]
    margin, label = data.terms[i, 1], data.labels[i]
    for m in range(n_classes):
        scores[m] = margin * data.loss[label, m]
    for m in range(n_classes, len(scores)):
        scores[m] = NEVER
    add_row_scores(data.rows, i, weights, scores)


@inlined
def loss_at(scores, label, separate_slacks):  # type: ignore[no-untyped-def]
    """Hinge of an example at its loss-augmented scores: the largest, or the sum over classes."""
    own = scores[label]
    worst = own
    summed = 0.0
    if separate_slacks:
        for m in range(len(scores)):
            above = scores[m] - own
            summed += above if above > 0.0 else 0.0
        return summed
    for m in range(len(scores)):
        worst = scores[m] if scores[m] > worst else worst
    return worst - own


@compiled
def sweep_multiclass(  # type: ignore[no-untyped-def]
    data, order, threshold, weights, unclipped, nonnegative, coef, losses, updates, now,
    longest_wait, average, snapshots, every, scratch,
):  # fmt: skip
    """One exact step for each example in `order`; returns the change of the linear term.

    Parameters
    ----------
    data : MulticlassRows
    order : ndarray of int32, shape (n_updates,), without repeats
    threshold : float, violations up to which are left alone
    weights, unclipped, average : ndarrays of shape (n_features + 1, n_columns), changed
    nonnegative : bool; if not, the first two are the same array
    coef : ndarray of shape (n_samples, n_columns), changed
    losses : ndarray of shape (n_samples,), set to C times hinge as seen before the steps
    updates : ndarray of int32, shape (n_samples, 3), changed
    now, longest_wait : ints, the iteration and the most that an idle example waits
    snapshots, every : ndarray of int64, shape (1,), and int, updates from one snapshot to the next
    scratch : ndarray of shape (2, n_columns)
    """
    rows, labels, terms, loss, separate_slacks = data
    n_classes = loss.shape[0]
    scores, change = scratch[0], scratch[1]
    linear = 0.0
    for o in range(len(order)):
        if o % every == every - 1:
            add_snapshot(weights, average, snapshots)
        i = order[o]
        label = labels[i]
        cost, margin, inverse = terms[i, 0], terms[i, 1], terms[i, 2]
        set_augmented_scores(data, i, weights, scores)
        losses[i] = cost * loss_at(scores, label, separate_slacks)
        if separate_slacks:
            outcome = weston_watkins_step(scores, coef[i], label, cost, inverse, threshold, change)
        else:
            outcome = crammer_singer_step(scores, coef[i], label, cost, inverse, threshold, change)
        if outcome == CORNER:
            postpone(i, updates, now, longest_wait)
            continue
        updates[i, WAIT] = 0
        if outcome == MOVED:
            updates[i, MOVING] = 1
            loss_change = 0.0
            for m in range(n_classes):
                loss_change += change[m] * loss[label, m]
            linear -= margin * loss_change
            add_row_multiple(rows, i, change, unclipped)
            if nonnegative:
                clip_row(rows, i, unclipped, weights)
    return linear


@compiled
def sweep_scalar(  # type: ignore[no-untyped-def]
    data, order, threshold, weights, unclipped, nonnegative, coef, losses, updates, now,
    longest_wait, average, snapshots, every, scratch,
):  # fmt: skip
    """`sweep_multiclass` for `ScalarRows`, with one column."""
    rows, terms, epsilon = data
    scored = weights.reshape(weights.size)  # unlike weights[:, 0], contiguous for the compiler
    summed = unclipped.reshape(unclipped.size)
    linear = 0.0
    for o in range(len(order)):
        if o % every == every - 1:
            add_snapshot(weights, average, snapshots)
        i = order[o]
        old = coef[i, 0]
        target, lower, upper, inverse = terms[i, 0], terms[i, 1], terms[i, 2], terms[i, 3]
        miss = target - row_score(rows, i, scored)
        losses[i] = upper * max(miss - epsilon, 0.0) + lower * min(miss + epsilon, 0.0)
        new = box_step(target - miss, old, target, epsilon, lower, upper, inverse)
        change = new - old
        # The slope at `old` towards `new`: a step may be short only because a bound is near.
        if change > 0.0:
            violation = miss + epsilon if old < 0.0 else miss - epsilon
        else:
            violation = epsilon - miss if old > 0.0 else -epsilon - miss
        if change == 0.0 or violation <= threshold:
            if old in (lower, upper, 0.0):
                postpone(i, updates, now, longest_wait)
            continue
        updates[i, WAIT] = 0
        updates[i, MOVING] = 1
        coef[i, 0] = new
        linear += target * change - epsilon * (abs(new) - abs(old))
        add_row(rows, i, change, summed)
        if nonnegative:
            clip_row(rows, i, unclipped, weights)
    return linear


@compiled
def add_sides(rows, coef, sums):  # type: ignore[no-untyped-def]
    """Add ``coef_i x_i`` to ``sums[0]`` where the coefficient is positive, else to ``sums[1]``."""
    for i in range(len(coef)):
        if coef[i] != 0.0:
            add_row(rows, i, coef[i], sums[0 if coef[i] > 0.0 else 1])


@compiled
def extrapolate_multiclass(  # type: ignore[no-untyped-def]
    data, start, stop, momentum, coef, previous, unclipped, updates, scratch
):
    """``coef += step_i * (coef - previous)``, ``step_i <= momentum`` the longest feasible one.

    The weights have moved by all of `momentum`: what the examples ``start..stop-1`` have moved less
    is added to `unclipped`. Returns the linear change.

    Parameters
    ----------
    data, coef, updates, scratch : as in `sweep_multiclass`
    start, stop, momentum : ints and float
    previous : ndarray of shape (n_samples, n_columns), set to the coefficients before
    unclipped : ndarray of shape (n_features + 1, n_columns), changed
    """
    rows, labels, terms, loss, separate_slacks = data
    # An example's own class lies in [0, own_bound * cost], the others in [-cost, 0].
    own_bound = loss.shape[0] - 1.0 if separate_slacks else 1.0
    n_classes = loss.shape[0]
    change = scratch[0]
    linear = 0.0
    for i in range(start, stop):
        if updates[i, MOVING] == 0:
            continue
        label = labels[i]
        cost = terms[i, 0]
        step = momentum
        moving = False
        for m in range(n_classes):
            change[m] = coef[i, m] - previous[i, m]
            moving |= change[m] != 0.0
        if not moving:
            updates[i, MOVING] = 0
            continue
        for m in range(n_classes):
            if m == label:
                room = own_bound * cost - coef[i, m] if change[m] > 0.0 else coef[i, m]
            else:
                room = -coef[i, m] if change[m] > 0.0 else cost + coef[i, m]
            room = max(room, 0.0)
            if step * abs(change[m]) > room:
                step = room / abs(change[m])
        loss_change = 0.0
        for m in range(n_classes):
            old = coef[i, m]
            low, high = (0.0, own_bound * cost) if m == label else (-cost, 0.0)
            new = min(max(old + step * change[m], low), high)
            previous[i, m] = old
            coef[i, m] = new
            loss_change += (new - old) * loss[label, m]
            change[m] *= step - momentum
        linear -= terms[i, 1] * loss_change
        if step < momentum:
            add_row_multiple(rows, i, change, unclipped)
    return linear


@compiled
def extrapolate_scalar(  # type: ignore[no-untyped-def]
    data, start, stop, momentum, coef, previous, unclipped, updates, scratch
):
    """`extrapolate_multiclass` for `ScalarRows`."""
    rows, terms, epsilon = data
    summed = unclipped.reshape(unclipped.size)
    linear = 0.0
    for i in range(start, stop):
        if updates[i, MOVING] == 0:
            continue
        old = coef[i, 0]
        change = old - previous[i, 0]
        if change == 0.0:
            updates[i, MOVING] = 0
            continue
        wanted = old + momentum * change
        new = min(max(wanted, terms[i, 1]), terms[i, 2])
        previous[i, 0] = old
        coef[i, 0] = new
        linear += terms[i, 0] * (new - old) - epsilon * (abs(new) - abs(old))
        if new != wanted:
            add_row(rows, i, new - wanted, summed)
    return linear


@compiled
def total_loss_multiclass(data, start, stop, weights, scratch):  # type: ignore[no-untyped-def]
    """Sum over the examples ``start..stop-1`` of C times hinge."""
    scores = scratch[0]
    total = 0.0
    for i in range(start, stop):
        set_augmented_scores(data, i, weights, scores)
        total += data.terms[i, 0] * loss_at(scores, data.labels[i], data.separate_slacks)
    return total


@compiled
def total_loss_scalar(data, start, stop, weights, scratch):  # type: ignore[no-untyped-def]
    """`total_loss_multiclass` for `ScalarRows`, where the cost of a side is its bound."""
    rows, terms, epsilon = data
    scored = weights.reshape(weights.size)
    total = 0.0
    for i in range(start, stop):
        miss = terms[i, 0] - row_score(rows, i, scored)
        total += terms[i, 2] * max(miss - epsilon, 0.0) + terms[i, 1] * min(miss + epsilon, 0.0)
    return total


@compiled
def linear_multiclass(data, coef):  # type: ignore[no-untyped-def]
    """Linear term of the dual."""
    total = 0.0
    for i in range(len(data.labels)):
        row = 0.0
        for m in range(data.loss.shape[0]):
            row += data.loss[data.labels[i], m] * coef[i, m]
        total -= data.terms[i, 1] * row
    return total


@compiled
def linear_scalar(data, coef):  # type: ignore[no-untyped-def]
    """Linear term of the dual."""
    total = 0.0
    for i in range(len(data.terms)):
        total += data.terms[i, 0] * coef[i, 0] - data.epsilon * abs(coef[i, 0])
    return total


@compiled
def shorten_changes(array, order, before, step):  # type: ignore[no-untyped-def]
    """Scale the change of ``array[order]`` since `before` by `step`."""
    for o in range(len(order)):
        i = order[o]
        for m in range(array.shape[1]):
            array[i, m] = before[o, m] + step * (array[i, m] - before[o, m])


@compiled
def product_along(unclipped, direction, step, nonnegative):  # type: ignore[no-untyped-def]
    """Inner product of `direction` with the weights after a step along it."""
    total = 0.0
    last = unclipped.shape[0] - 1
    for j in range(unclipped.shape[0]):
        for m in range(unclipped.shape[1]):
            weight = unclipped[j, m] + step * direction[j, m]
            if nonnegative and weight < 0.0 and j < last:
                weight = 0.0
            total += weight * direction[j, m]
    return total


@compiled
def sum_moves(unclipped, copies, start, stop, products):  # type: ignore[no-untyped-def]
    """Set ``copies[0]`` to the sum d of ``copies[t] - unclipped``, in the rows ``start..stop-1``.

    Sets `products`, of shape (2,), to ``<unclipped, d>`` and ``|d|^2`` there.
    """
    along = square = 0.0
    for j in range(start, stop):
        for m in range(unclipped.shape[1]):
            moved = -len(copies) * unclipped[j, m]
            for t in range(len(copies)):
                moved += copies[t, j, m]
            copies[0, j, m] = moved
            along += unclipped[j, m] * moved
            square += moved * moved
    products[0], products[1] = along, square


@compiled
def add_multiple(unclipped, direction, step, start, stop):  # type: ignore[no-untyped-def]
    """``unclipped += step * direction`` in the rows ``start..stop-1``."""
    for j in range(start, stop):
        for m in range(unclipped.shape[1]):
            unclipped[j, m] += step * direction[j, m]


@compiled
def move_on(current, last, momentum):  # type: ignore[no-untyped-def]
    """``current += momentum * (current - last)``; `last` becomes the old `current`."""
    flat, flat_last = current.reshape(current.size), last.reshape(current.size)
    for j in range(len(flat)):
        old = flat[j]
        flat[j] = old + momentum * (old - flat_last[j])
        flat_last[j] = old


@compiled
def sum_of_products(a, b):  # type: ignore[no-untyped-def]
    """Inner product of two matrices, in one thread unlike BLAS."""
    total = 0.0
    flat_a, flat_b = a.reshape(a.size), b.reshape(a.size)  # vectors even if there is one column
    for j in range(len(flat_a)):
        total += flat_a[j] * flat_b[j]
    return total
