"""Searches over dependency trees against all trees of a sentence, one by one."""

from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from maxmargin.structures.dependency.inference import best_tree, k_best_trees, tree_marginals

KINDS = list(product([True, False], repeat=2))
"""Projective or not, with a single root or not."""

kinds = pytest.mark.parametrize(("projective", "single_root"), KINDS)
seeds = st.integers(0, 2**32 - 1)


def reaches_root(heads):
    for m in range(1, len(heads) + 1):
        steps = 0
        while m:
            m, steps = heads[m - 1], steps + 1
            if steps > len(heads):
                return False
    return True


def crosses(heads):
    arcs = [(min(h, m), max(h, m)) for m, h in enumerate(heads, start=1)]
    return any(a < c < b < d for a, b in arcs for c, d in arcs)


@cache
def trees(n, projective, single_root):
    """All trees of n words."""
    found = [
        heads
        for heads in product(range(n + 1), repeat=n)
        if reaches_root(heads)
        and not (projective and crosses(heads))
        and not (single_root and heads.count(0) != 1 and n)
    ]
    return np.array(found, dtype=np.int64).reshape(len(found), n)


def draw(n, seed, kind):
    """Scores: normal, small integers (ties), of very different sizes, or partly forbidden."""
    random = np.random.default_rng(seed)
    scores = random.normal(size=(n + 1, n + 1))
    if kind == "ties":
        scores = random.integers(-1, 2, (n + 1, n + 1)).astype(float)
    elif kind == "wide":
        scores *= 10.0 ** random.integers(-3, 6, (n + 1, n + 1))
    elif kind == "forbidden":
        scores[random.random((n + 1, n + 1)) < 0.5] = -np.inf
    scores[:, 0] = random.choice([1e9, -np.inf, np.nan])  # never looked at
    np.fill_diagonal(scores, 1e9)
    return scores


def totals(scores, heads):
    return scores[heads, np.arange(1, heads.shape[1] + 1)].sum(axis=1)


def test_numbers_of_trees():
    """(n + 1) ** (n - 1) trees, n ** (n - 1) with a single root; projective ones are fewer."""
    for n in range(1, 6):
        assert len(trees(n, False, False)) == (n + 1) ** (n - 1)
        assert len(trees(n, False, True)) == n ** (n - 1)
    assert [len(trees(n, True, False)) for n in range(5)] == [1, 1, 3, 12, 55]
    assert [len(trees(n, True, True)) for n in range(1, 6)] == [1, 2, 7, 30, 143]


@kinds
@settings(max_examples=60, deadline=None)
@given(
    seed=seeds, n=st.integers(0, 5), kind=st.sampled_from(["normal", "ties", "wide", "forbidden"])
)
def test_best_of_all_trees(projective, single_root, seed, n, kind):
    scores = draw(n, seed, kind)
    every = trees(n, projective, single_root)
    heads, score = best_tree(scores, projective=projective, single_root=single_root)
    highest = totals(scores, every).max() if n else 0.0
    scale = 1e-12 * (1.0 + np.abs(scores[np.abs(scores) < 1e9]).max(initial=0.0))
    assert score == pytest.approx(highest, rel=1e-12, abs=scale)
    if np.isfinite(highest) and n:
        assert (every == heads).all(axis=1).any()
        assert totals(scores, heads[None])[0] == pytest.approx(score, abs=scale)


@pytest.mark.diagonal
@kinds
@pytest.mark.parametrize("n", [12, 40])
def test_long_sentences_are_as_good_as_any_change_of_them(projective, single_root, n):
    """No other head of one word makes a better tree, nor do random trees."""
    for seed in range(5):
        scores = draw(n, seed, "normal")
        heads, score = best_tree(scores, projective=projective, single_root=single_root)
        assert reaches_root(heads.tolist())
        assert not (projective and crosses(heads.tolist()))
        for m in range(n):
            for h in range(n + 1):
                other = heads.copy()
                other[m] = h
                listed = other.tolist()
                allowed = reaches_root(listed) and not (projective and crosses(listed))
                if allowed and not (single_root and listed.count(0) > 1):
                    assert totals(scores, other[None])[0] <= score + 1e-9


@pytest.mark.parametrize("n", [3, 10, 30])
def test_arborescences_are_certified_by_nested_cycles(n):
    """Any tree is at least as good as a projective one, and cycles within cycles are undone."""
    for seed in range(20):
        random = np.random.default_rng(seed)
        scores = random.normal(size=(n + 1, n + 1))
        scores[0] -= 20.0  # the root last: everything is contracted first
        for single_root in (True, False):
            _, free = best_tree(scores, projective=False, single_root=single_root)
            _, narrow = best_tree(scores, projective=True, single_root=single_root)
            assert free >= narrow - 1e-9
    planted = random.permutation(np.arange(1, n + 1))
    for h, m in zip(np.r_[0, planted[:-1]], planted, strict=True):
        scores[h, m] += 100.0
    heads, _ = best_tree(scores, projective=False)
    assert_array_equal(heads[planted - 1], np.r_[0, planted[:-1]])


@kinds
@settings(max_examples=25, deadline=None)
@given(
    seed=seeds,
    n=st.integers(0, 4),
    k=st.integers(1, 200),
    kind=st.sampled_from(["normal", "ties", "forbidden"]),
)
def test_top_of_all_trees(projective, single_root, seed, n, k, kind):
    scores = draw(n, seed, kind)
    every = trees(n, projective, single_root)
    expected = np.sort(totals(scores, every))[::-1] if n else np.zeros(1)
    expected = expected[np.isfinite(expected)][:k]
    found = k_best_trees(scores, k, projective=projective, single_root=single_root)
    assert_allclose([score for _, score in found], expected, atol=1e-9)
    different = {tuple(heads.tolist()) for heads, _ in found}
    assert len(different) == len(found)
    assert different <= {tuple(heads) for heads in every.tolist()}


@kinds
@settings(max_examples=40, deadline=None)
@given(seed=seeds, n=st.integers(0, 5), scale=st.sampled_from([0.0, 1.0, 5.0]))
def test_marginals_of_all_trees(projective, single_root, seed, n, scale):
    scores = draw(n, seed, "normal")
    scores[:, 1:] *= scale
    every = trees(n, projective, single_root)
    logs = totals(scores, every) if n else np.zeros(1)
    chances = np.exp(logs - logs.max())
    expected = np.zeros((n + 1, n + 1))
    for heads, chance in zip(every, chances / chances.sum(), strict=True):
        expected[heads, np.arange(1, n + 1)] += chance
    found, log_partition = tree_marginals(scores, projective=projective, single_root=single_root)
    assert_allclose(found, expected, atol=1e-8)
    assert log_partition == pytest.approx(logs.max() + np.log(chances.sum()), abs=1e-8)


@pytest.mark.parametrize("single_root", [True, False])
def test_projective_marginals_of_forbidden_arcs_and_large_scores(single_root):
    for seed in range(30):
        scores = 1e3 * draw(5, seed, "forbidden" if seed % 2 else "normal")
        scores[0, 1:] = 0.0  # some tree is left
        scores[1:, 1] = 1.0
        scores[1, 1:] = 1.0
        every = trees(5, True, single_root)
        logs = totals(scores, every)
        chances = np.exp(logs - logs.max())
        expected = np.zeros((6, 6))
        for heads, chance in zip(every, chances / chances.sum(), strict=True):
            expected[heads, np.arange(1, 6)] += chance
        found, _ = tree_marginals(scores, single_root=single_root)
        assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize("infer", [best_tree, tree_marginals])
@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (np.zeros((2, 3)), r"shape \(n \+ 1, n \+ 1\)"),
        (np.zeros((0, 0)), "shape"),
        (np.full((3, 3), np.nan), "finite"),
        (np.full((3, 3), np.inf), "finite"),
    ],
)
def test_bad_scores(infer, scores, message):
    with pytest.raises(ValueError, match=message):
        infer(scores)


def test_scores_are_left_alone():
    scores = draw(6, 0, "normal")
    before = scores.copy()
    for projective, single_root in KINDS:
        best_tree(scores, projective=projective, single_root=single_root)
        k_best_trees(scores, 5, projective=projective, single_root=single_root)
        tree_marginals(scores, projective=projective, single_root=single_root)
    assert_array_equal(scores, before)
