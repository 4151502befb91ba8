"""Which examples to visit in a round, and in what order.

Idle examples are looked at less and less often: one that is at a corner it does not want to leave
waits 1, 3, 7, ... rounds, up to a limit, before its next visit, and is visited in every round
again as soon as it moves. ``visits[i, DUE]`` is the round of the next visit, ``visits[i, WAIT]``
the present wait, and ``visits[i, MOVING]`` is 1 if its coefficients have changed since the last
extrapolation looked at them.
"""

import numpy as np

from maxmargin.dual.compiled import compiled, inlined

DUE, WAIT, MOVING = 0, 1, 2

CHUNK, STREAMS = 32, 8
"""Neighbouring examples kept together by the shuffle, and how many such runs are interleaved."""


@inlined
def postpone(i, visits, now, longest_wait):  # type: ignore[no-untyped-def]
    """Visit the idle example ``i`` again after twice as many rounds as last time."""
    wait = min(2 * visits[i, WAIT] + 1, longest_wait)
    visits[i, WAIT] = wait
    visits[i, DUE] = now + 1 + wait


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
def visiting_order(visits, now, state, due, runs, order):  # type: ignore[no-untyped-def]
    """Set `order` to the examples that are due, in random order; returns how many there are.

    The order is kind to the memory: runs of `CHUNK` neighbours are shuffled, and `STREAMS` of them
    interleaved. The hardware can follow that many streams, and neighbours, which are often alike,
    do not follow each other. A random permutation converges no faster and costs twice the time
    for each visit. `due` and `runs` are scratch space as long as `order`.
    """
    count = 0
    for i in range(len(visits)):
        due[count] = i
        count += visits[i, DUE] <= now
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
