"""Exact maximisation of the dual over the variables of one example.

Throughout, ``coef[m]`` is the coefficient with which the example's row enters the weights of class
``m``, ``scores[m]`` is its loss-augmented score (its own class has loss 0), ``cost`` its C and
``inverse`` one over its squared length. A step writes the change of ``coef`` into `change`, applies
it to `coef`, and says what happened: `MOVED`, `STAYED` (no violation above the threshold), or
`CORNER` (stayed, with every variable at a bound that it does not want to leave).

The arrays are padded to whole vectors: in the padding scores are `NEVER` and coefficients stay
zero. The loops are written with conditional values instead of branches, so that they vectorise.
"""

from maxmargin.dual.compiled import inlined

MOVED, STAYED, CORNER = 0, 1, 2

NEVER = -1e300
"""Score of an output that does not exist."""


@inlined
def crammer_singer_step(scores, coef, label, cost, inverse, threshold, change):  # type: ignore[no-untyped-def]
    """One slack for all classes: project on the simplex ``a >= 0, sum(a) = cost``.

    ``a[m] = -coef[m]`` for a wrong class and ``cost - coef[label]`` for the true one. In these
    variables the Hessian is a multiple of the identity, so the maximiser is the Euclidean
    projection of ``a + scores * inverse``.
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

    # Michelot's iteration: the level only rises, so it ends after at most n_classes rounds.
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

    The Hessian is a multiple of ``I + 1 1'``, so at the maximiser ``a = clip(t - shift, 0, cost)``
    with ``t = a_old + (scores - scores[label]) * inverse`` and ``shift`` the change of ``sum(a)``.
    That is one increasing piecewise linear equation in ``shift``; Newton's method kept inside a
    bracket ends on the right piece after finitely many steps, and is exact there.
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
        excess = shift + old_sum - used
        if excess > 0.0:
            high = shift
        elif excess < 0.0:
            low = shift
        else:
            break
        newton = shift - excess / slope
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
    """The one variable of a binary or a regression example; returns its new value.

    Maximises ``target * b - epsilon * |b|`` less the quadratic over ``lower <= b <= upper``: a
    soft threshold, clipped.
    """
    free = coef + (target - score) * inverse
    width = epsilon * inverse
    above = free - width
    below = free + width
    free = above if above > 0.0 else (below if below < 0.0 else 0.0)
    free = free if free > lower else lower
    return free if free < upper else upper
