"""Compiled passes over examples: sweep (improve the dual), extrapolate, and value weights.

Weights come as a pair. `unclipped` is ``origin + X' coef`` and is what steps are added to;
`weights` is what scores are computed with. They are the same array unless weights must not be
negative, when ``weights = max(unclipped, 0)``: clipping in place would forget the negative part
that later steps must fill first.

The numbers of one example stand together in a row of `terms`, which saves cache misses:
``(cost, margin, 1 / |x|^2)`` for the multi-class problems, ``(target, lower, upper, 1 / |x|^2)``
for the scalar ones.

Sweeps also keep an average of the weights, with a snapshot after every so many visits, and write
down in `losses`, of shape (n_samples,), cost times loss of each example as they saw it: what the
objective is, but for steps made since.
"""

from maxmargin.dual.compiled import compiled, inlined
from maxmargin.dual.rows import (
    add_row,
    add_row_multiple,
    add_row_scores,
    clip_row,
    row_score,
)
from maxmargin.dual.schedule import MOVING, WAIT, postpone
from maxmargin.dual.subproblems import (
    CORNER,
    MOVED,
    NEVER,
    box_step,
    crammer_singer_step,
    weston_watkins_step,
)


@inlined
def add_snapshot(weights, average, snapshots):  # type: ignore[no-untyped-def]
    """Let the present weights enter their average, which forgets.

    Snapshot ``t`` enters with weight ``4 / (t + 3)``, so the last quarter or so of a run counts.
    """
    snapshots[0] += 1
    rate = 4.0 / (snapshots[0] + 3.0)
    for j in range(weights.shape[0]):
        for m in range(weights.shape[1]):
            average[j, m] += rate * (weights[j, m] - average[j, m])


@inlined
def set_augmented_scores(rows, i, label, margin, loss, weights, scores):  # type: ignore[no-untyped-def]
    """``scores = margin * loss[label] + x_i' weights``, `NEVER` in the padding."""
    n_classes = loss.shape[0]
    for m in range(n_classes):
        scores[m] = margin * loss[label, m]
    for m in range(n_classes, len(scores)):
        scores[m] = NEVER
    add_row_scores(rows, i, weights, scores)


@inlined
def loss_at(scores, label, separate_slacks):  # type: ignore[no-untyped-def]
    """Loss of an example at its loss-augmented scores: the largest violation, or all of them."""
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
    rows, order, labels, terms, loss, separate_slacks, threshold,
    weights, unclipped, nonnegative, coef, losses, visits, now, longest_wait, average, snapshots,
    every, scratch,
):  # fmt: skip
    """One exact step for each example in `order`; returns the change of the linear term."""
    n_classes = loss.shape[0]
    scores, change = scratch[0], scratch[1]
    linear = 0.0
    for o in range(len(order)):
        if o % every == every - 1:
            add_snapshot(weights, average, snapshots)
        i = order[o]
        label = labels[i]
        cost, margin, inverse = terms[i, 0], terms[i, 1], terms[i, 2]
        set_augmented_scores(rows, i, label, margin, loss, weights, scores)
        losses[i] = cost * loss_at(scores, label, separate_slacks)
        if separate_slacks:
            outcome = weston_watkins_step(scores, coef[i], label, cost, inverse, threshold, change)
        else:
            outcome = crammer_singer_step(scores, coef[i], label, cost, inverse, threshold, change)
        if outcome == CORNER:
            postpone(i, visits, now, longest_wait)
            continue
        visits[i, WAIT] = 0
        if outcome == MOVED:
            visits[i, MOVING] = 1
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
    rows, order, terms, epsilon, threshold,
    weights, unclipped, nonnegative, coef, losses, visits, now, longest_wait, average, snapshots,
    every,
):  # fmt: skip
    """The same for problems with one weight vector and one variable an example."""
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
                postpone(i, visits, now, longest_wait)
            continue
        visits[i, WAIT] = 0
        visits[i, MOVING] = 1
        coef[i, 0] = new
        linear += target * change - epsilon * (abs(new) - abs(old))
        add_row(rows, i, change, summed)
        if nonnegative:
            clip_row(rows, i, unclipped, weights)
    return linear


@compiled
def extrapolate_multiclass(  # type: ignore[no-untyped-def]
    rows, momentum, coef, previous, labels, terms, loss, own_bound, unclipped, visits, scratch
):
    """``coef += step_i * (coef - previous)``, ``step_i <= momentum`` the longest feasible one.

    On entry `unclipped` has been moved by the full `momentum`; rows that had to stop earlier are
    corrected here. `previous` becomes the old `coef`. The coefficient of an example's own class
    lies in ``[0, own_bound * cost]``, the others in ``[-cost, 0]``. Returns the change of the
    linear term.
    """
    n_classes = loss.shape[0]
    change = scratch[0]
    linear = 0.0
    for i in range(coef.shape[0]):
        if visits[i, MOVING] == 0:
            continue
        label = labels[i]
        cost = terms[i, 0]
        step = momentum
        moving = False
        for m in range(n_classes):
            change[m] = coef[i, m] - previous[i, m]
            moving |= change[m] != 0.0
        if not moving:
            visits[i, MOVING] = 0
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
def extrapolate_scalar(rows, momentum, coef, previous, terms, epsilon, unclipped, visits):  # type: ignore[no-untyped-def]
    """The same for one variable an example."""
    summed = unclipped.reshape(unclipped.size)
    linear = 0.0
    for i in range(coef.shape[0]):
        if visits[i, MOVING] == 0:
            continue
        old = coef[i, 0]
        change = old - previous[i, 0]
        if change == 0.0:
            visits[i, MOVING] = 0
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
def total_loss_multiclass(  # type: ignore[no-untyped-def]
    rows, start, stop, labels, terms, loss, separate_slacks, weights, scratch
):
    """Sum over the examples ``start..stop-1`` of cost times loss."""
    scores = scratch[0]
    total = 0.0
    for i in range(start, stop):
        label = labels[i]
        set_augmented_scores(rows, i, label, terms[i, 1], loss, weights, scores)
        total += terms[i, 0] * loss_at(scores, label, separate_slacks)
    return total


@compiled
def total_loss_scalar(rows, start, stop, terms, epsilon, weights):  # type: ignore[no-untyped-def]
    """Sum over the examples ``start..stop-1`` of cost times loss; a side's cost is its bound."""
    scored = weights.reshape(weights.size)
    total = 0.0
    for i in range(start, stop):
        miss = terms[i, 0] - row_score(rows, i, scored)
        total += terms[i, 2] * max(miss - epsilon, 0.0) + terms[i, 1] * min(miss + epsilon, 0.0)
    return total


@compiled
def linear_scalar(terms, epsilon, coef):  # type: ignore[no-untyped-def]
    """Linear term of a scalar dual."""
    total = 0.0
    for i in range(len(terms)):
        total += terms[i, 0] * coef[i, 0] - epsilon * abs(coef[i, 0])
    return total


@compiled
def linear_multiclass(labels, terms, loss, coef):  # type: ignore[no-untyped-def]
    """Linear term of a multi-class dual."""
    total = 0.0
    for i in range(len(labels)):
        row = 0.0
        for m in range(loss.shape[0]):
            row += loss[labels[i], m] * coef[i, m]
        total -= terms[i, 1] * row
    return total


@compiled
def copy_rows(array, order, out):  # type: ignore[no-untyped-def]
    """``out = array[order]``."""
    for o in range(len(order)):
        for m in range(array.shape[1]):
            out[o, m] = array[order[o], m]


@compiled
def shorten_changes(array, order, before, step):  # type: ignore[no-untyped-def]
    """Take the change of ``array[order]`` since `before` back to `step` times itself."""
    for o in range(len(order)):
        i = order[o]
        for m in range(array.shape[1]):
            array[i, m] = before[o, m] + step * (array[i, m] - before[o, m])


@compiled
def product_along(unclipped, direction, step, nonnegative):  # type: ignore[no-untyped-def]
    """Inner product of `direction` with the weights that belong to a step along it."""
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
def move_on(current, last, momentum):  # type: ignore[no-untyped-def]
    """``current += momentum * (current - last)``; `last` becomes the old `current`."""
    for j in range(current.shape[0]):
        for m in range(current.shape[1]):
            old = current[j, m]
            current[j, m] = old + momentum * (old - last[j, m])
            last[j, m] = old


@compiled
def sum_of_products(a, b):  # type: ignore[no-untyped-def]
    """Inner product of two matrices; unlike BLAS, in one thread."""
    total = 0.0
    for j in range(a.shape[0]):
        for m in range(a.shape[1]):
            total += a[j, m] * b[j, m]
    return total
