"""The dual over the planes of one block, on their Gram matrix.

Maximise ``sum_j coef_j loss_j - 1/2 |w|^2`` over ``coef >= 0, sum(coef) <= total``. The budget
that is left over belongs to the implicit zero plane (the truth: no features, no loss). The
slope of plane ``j`` is ``loss_j - <w, psi_j>``; the zero plane's is zero. `gram` holds the inner
products from position `at` on, in rows of length `stride`.
"""

from maxmargin.compiled.compile import inlined

ZERO_CUT = -1

ROUNDING = 1e-12
"""Part of a block's total that is no budget, only what rounding left of it."""


@inlined
def curvature_between(gram, at, stride, up, down):  # type: ignore[no-untyped-def]
    """``|psi_up - psi_down|^2``; either may be the zero plane."""
    total = 0.0
    if up >= 0:
        total += gram[at + up * stride + up]
    if down >= 0:
        total += gram[at + down * stride + down]
        if up >= 0:
            total -= 2.0 * gram[at + up * stride + down]
    return total


@inlined
def pairwise_steps(gram, at, stride, size, slopes, coef, total, tolerance, max_steps):  # type: ignore[no-untyped-def]
    """Move coefficient between the most violating pair until none violates by `tolerance`.

    Changes `slopes` and `coef` in place; returns the gain of the dual and the number of steps.
    """
    rest = total
    for j in range(size):
        rest -= coef[j]
    if rest < ROUNDING * total:  # it could not be given away, and would be offered for ever
        rest = 0.0
    gain = 0.0
    steps = 0
    while steps < max_steps:
        up = down = ZERO_CUT
        highest = 0.0
        lowest = 0.0 if rest > 0.0 else 1e300
        for j in range(size):
            if slopes[j] > highest:
                highest = slopes[j]
                up = j
            if coef[j] > 0.0 and slopes[j] < lowest:
                lowest = slopes[j]
                down = j
        violation = highest - lowest
        if violation <= tolerance:
            break
        curvature = curvature_between(gram, at, stride, up, down)
        available = coef[down] if down >= 0 else rest
        step = available
        if curvature * available > violation:
            step = violation / curvature
        if down >= 0:
            coef[down] = coef[down] - step if step < available else 0.0
            for j in range(size):
                slopes[j] += step * gram[at + down * stride + j]
        else:
            rest = rest - step if step < available else 0.0
        if up >= 0:
            coef[up] += step
            for j in range(size):
                slopes[j] -= step * gram[at + up * stride + j]
        else:
            rest += step
        gain += step * (violation - 0.5 * step * curvature)
        steps += 1
    return gain, steps


@inlined
def frank_wolfe_step(gram, at, stride, size, slopes, coef, total, away):  # type: ignore[no-untyped-def]
    """An exact line search towards the best plane or, if `away` and better, from the worst.

    Changes `coef` in place and leaves `slopes` as they were; returns the gain of the dual.
    """
    best = worst = ZERO_CUT
    highest = 0.0
    used = value = square = 0.0
    for j in range(size):
        used += coef[j]
        value += coef[j] * slopes[j]
        if slopes[j] > highest:
            highest = slopes[j]
            best = j
        for k in range(size):
            square += coef[j] * gram[at + j * stride + k] * coef[k]
    lowest = 0.0 if total - used > ROUNDING * total else 1e300
    for j in range(size):
        if coef[j] > 0.0 and slopes[j] < lowest:
            lowest = slopes[j]
            worst = j
    towards = total * highest - value
    backing = value - total * lowest
    leave = away and backing > towards
    corner = worst if leave else best
    # Direction total * e_corner - coef, or its opposite.
    curvature = square
    if corner >= 0:
        curvature += total * total * gram[at + corner * stride + corner]
        for k in range(size):
            curvature -= 2.0 * total * gram[at + corner * stride + k] * coef[k]
    slope = backing if leave else towards
    longest = 1.0
    if leave:
        held = coef[worst] if worst >= 0 else total - used
        longest = held / (total - held) if held < total else 0.0
    step = longest
    if curvature * longest > slope:
        step = slope / curvature
    if slope <= 0.0 or step <= 0.0:
        return 0.0
    keep = 1.0 + step if leave else 1.0 - step
    for j in range(size):
        coef[j] *= keep
    if corner >= 0:
        coef[corner] += -step * total if leave else step * total
        if leave and step == longest:
            coef[corner] = 0.0
    return step * (slope - 0.5 * step * curvature)
