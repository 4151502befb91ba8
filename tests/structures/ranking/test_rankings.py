"""Searches over rankings against all rankings, one by one."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from maxmargin.structures.ranking.oracle import (
    count_pairs,
    interleave,
    set_reach,
    sort_descending,
)

seeds = st.integers(0, 2**32 - 1)


def draw(random, n, ties):
    """Scores, with few different values if there are to be ties."""
    return random.integers(-1, 2, n).astype(float) if ties else random.normal(size=n)


def sort(scores):
    order = np.full(len(scores), -7, dtype=np.int32)
    sort_descending(scores, order, np.full(len(scores), -7, dtype=np.int32))
    return order


def run_interleave(relevant, irrelevant, credits, discounts):
    P, N = len(relevant), len(irrelevant)
    ahead = np.full(P, -7, dtype=np.int32)
    best, back = np.full(N + 1, np.inf), np.full((P, N + 1), -7, dtype=np.int32)
    return interleave(relevant, irrelevant, credits, discounts, ahead, best, back), ahead


@settings(max_examples=60, deadline=None)
@given(seed=seeds, n=st.integers(0, 40), ties=st.booleans())
def test_sort_is_stable_and_descending(seed, n, ties):
    scores = draw(np.random.default_rng(seed), n, ties)
    assert_array_equal(sort(scores), np.argsort(-scores, kind="stable"))


@settings(max_examples=80, deadline=None)
@given(
    seed=seeds,
    P=st.integers(1, 4),
    N=st.integers(1, 3),
    ties=st.booleans(),
    scale=st.sampled_from([0.0, 0.1, 1.0, 10.0]),
)
def test_interleaving_is_the_best_of_all_rankings(seed, P, N, ties, scale):
    random = np.random.default_rng(seed)
    scores = draw(random, P + N, ties) * scale
    scores[:P], scores[P:] = -np.sort(-scores[:P]), -np.sort(-scores[P:])
    credits, discounts = random.random(P), random.random(P + N)  # not even falling

    def value(ranking):
        place = np.argsort(ranking)
        total = sum(
            (scores[j] - scores[i]) / (P * N)
            for i in range(P)
            for j in range(P, P + N)
            if place[j] < place[i]
        )
        return total - credits @ discounts[np.sort(place[:P])]

    found, ahead = run_interleave(scores[:P], scores[P:], credits, discounts)
    assert found == pytest.approx(max(map(value, permutations(range(P + N)))), abs=1e-12)
    places = np.arange(P) + ahead
    assert (np.diff(ahead) >= 0).all()
    ranking = np.empty(P + N, dtype=int)
    ranking[places] = np.arange(P)
    ranking[np.setdiff1d(np.arange(P + N), places)] = np.arange(P, P + N)
    assert value(ranking) == pytest.approx(found, abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(seed=seeds, P=st.integers(1, 30), N=st.integers(1, 30), scale=st.sampled_from([1.0, 20.0]))
def test_average_precision_agrees_with_the_greedy_search(seed, P, N, scale):
    # Yue et al. (2007): each irrelevant document for itself takes the place that gains most.
    random = np.random.default_rng(seed)
    relevant, irrelevant = (-np.sort(-scale * random.normal(size=n)) for n in (P, N))
    i, j = np.arange(1, P + 1)[:, None], np.arange(1, N + 1)
    gain = i / ((i + j) * (i + j - 1)) / P + (irrelevant - relevant[:, None]) / (P * N)
    from_below = np.vstack([np.cumsum(gain[::-1], axis=0)[::-1], np.zeros(N)])
    greedy = from_below.max(axis=0).sum()
    credits, discounts = np.arange(1, P + 1) / P, 1.0 / np.arange(1, P + N + 1)
    found, _ = run_interleave(relevant, irrelevant, credits, discounts)
    assert found + 1.0 == pytest.approx(greedy, abs=1e-10)


@settings(max_examples=80, deadline=None)
@given(seed=seeds, n=st.integers(1, 25), ties=st.booleans(), n_levels=st.integers(1, 25))
def test_pairs_are_counted(seed, n, ties, n_levels):
    random = np.random.default_rng(seed)
    scores = draw(random, n, ties)
    levels = random.integers(0, min(n_levels, n), n).astype(np.int32)
    order, reach = sort(scores), np.full(n, -7, dtype=np.int32)
    set_reach(scores, order, reach)
    lost, won = np.full(n, -7), np.full(n, -7)
    total = count_pairs(order, reach, levels, lost, won, np.full(n + 1, -7))
    violated = (levels[:, None] > levels) & (scores[:, None] - scores < 1.0)
    assert_array_equal(lost, violated.sum(axis=1))
    assert_array_equal(won, violated.sum(axis=0))
    assert total == violated.sum()
