"""Searches over contingency tables against all labellings, one by one."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxmargin.structures.performance.problem import worst_at_k, worst_f_beta

seeds = st.integers(0, 2**32 - 1)
scales = st.sampled_from([0.0, 0.3, 3.0, 30.0])


def draw(seed, P, N, ties, scale):
    random = np.random.default_rng(seed)
    scores = random.integers(-1, 2, P + N).astype(float) if ties else random.normal(size=P + N)
    return -np.sort(-scale * scores[:P]), -np.sort(-scale * scores[P:])


def labellings(P, N):
    """Hits, alarms, and which positives and negatives are called positive."""
    for called in product([False, True], repeat=P + N):
        of_positive, of_negative = np.array(called[:P], bool), np.array(called[P:], bool)
        yield int(of_positive.sum()), int(of_negative.sum()), of_positive, of_negative


def plain_score(positive, negative, of_positive, of_negative):
    """``sum (y - y_true) / 2 * score / n``."""
    n = len(positive) + len(negative)
    return (negative[of_negative].sum() - positive[~of_positive].sum()) / n


@settings(max_examples=60, deadline=None)
@given(
    seed=seeds,
    P=st.integers(1, 5),
    N=st.integers(0, 5),
    ties=st.booleans(),
    scale=scales,
    beta=st.sampled_from([0.5, 1.0, 2.0]),
)
def test_f_beta(seed, P, N, ties, scale, beta):
    positive, negative = draw(seed, P, N, ties, scale)

    def loss(hits, alarms):
        precision, recall = hits / max(hits + alarms, 1), hits / P
        if hits == 0:
            return 1.0
        return 1.0 - (1 + beta**2) * precision * recall / (beta**2 * precision + recall)

    expected = max(
        loss(hits, alarms) + plain_score(positive, negative, *called)
        for hits, alarms, *called in labellings(P, N)
    )
    hits, alarms, value = worst_f_beta(positive, negative, beta, np.full(N + 1, np.inf))
    assert value == pytest.approx(expected, abs=1e-12 * (1 + scale))
    called = np.arange(P) < hits, np.arange(N) < alarms
    assert loss(hits, alarms) + plain_score(positive, negative, *called) == pytest.approx(
        value, abs=1e-12 * (1 + scale)
    )


@settings(max_examples=60, deadline=None)
@given(
    seed=seeds,
    P=st.integers(1, 5),
    N=st.integers(1, 5),
    k=st.integers(1, 9),
    ties=st.booleans(),
    scale=scales,
    recall=st.booleans(),
)
def test_at_k(seed, P, N, k, ties, scale, recall):
    k = min(k, P + N - 1)
    positive, negative = draw(seed, P, N, ties, scale)
    worth = 1.0 / (P if recall else k)

    def value_of(hits, alarms, of_positive, of_negative):
        left = P - hits
        misses = min(left, alarms)
        if misses == 0:
            return 0.0
        difference = negative[of_negative].mean() - positive[~of_positive].mean()
        value = misses * (worth + difference / (P + N))
        if k == P:  # then it is the plain score
            assert value == pytest.approx(
                misses * worth + plain_score(positive, negative, of_positive, of_negative)
            )
        return value

    expected = max(
        value_of(*labelling) for labelling in labellings(P, N) if labelling[0] + labelling[1] == k
    )
    hits, alarms, value = worst_at_k(positive, negative, k, worth)
    assert hits + alarms == k
    assert value == pytest.approx(expected, abs=1e-12 * (1 + scale))
    own = value_of(hits, alarms, np.arange(P) < hits, np.arange(N) < alarms)
    assert own == pytest.approx(value, abs=1e-12 * (1 + scale))


def test_large_data_take_no_square():
    random = np.random.default_rng(0)
    positive, negative = (-np.sort(-random.normal(size=n)) for n in (100_000, 400_000))
    hits, alarms, value = worst_f_beta(positive, negative, 1.0, np.empty(len(negative) + 1))

    def at(a, b):
        n = len(positive) + len(negative)
        score = (negative[:b].sum() - positive[a:].sum()) / n
        return 1.0 - 2.0 * a / (a + b + len(positive)) + score

    assert at(hits, alarms) == pytest.approx(value)
    near = [at(hits + a, alarms + b) for a in (-1, 0, 1) for b in (-1, 0, 1)]
    assert value >= max(near) - 1e-9
