"""Searches over a chain against all its labellings, one by one."""

from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from maxmargin.compiled.rows import padded
from maxmargin.structures.chain.inference import (
    best_other,
    k_best,
    marginals,
    marginals2,
    most_slack,
    viterbi,
    viterbi2,
)

SHAPES = [(length, n) for length in range(1, 6) for n in range(1, 5)]
GARBAGE = [1e6, np.inf, -np.inf]


class Chain(NamedTuple):
    """Scores whose padding is garbage; `width` is two vectors or more for some."""

    nodes: np.ndarray
    pairs: np.ndarray
    triples: np.ndarray
    y_true: np.ndarray

    @property
    def length(self):
        return len(self.nodes)

    @property
    def n_labels(self):
        return len(self.pairs)

    @property
    def width(self):
        return self.nodes.shape[1]

    def labellings(self):
        """All of them, in the order in which ties are broken."""
        labellings = product(range(self.n_labels), repeat=self.length)
        return np.array([y[::-1] for y in labellings])

    def scores(self, y, triples=False):
        """Scores of the labellings that are the rows of `y`."""
        total = self.nodes[np.arange(self.length), y].sum(axis=1)
        total += self.pairs[y[:, :-1], y[:, 1:]].sum(axis=1)
        if triples:
            total += self.triples[y[:, :-2] * self.n_labels + y[:, 1:-1], y[:, 2:]].sum(axis=1)
        return total

    def score(self, y, triples=False):
        return self.scores(y[None].astype(np.int64), triples)[0]


def make_chain(length, n_labels, seed, scale=None, extra_columns=0):
    """Normal scores times `scale`, or small integers, which make ties and sum exactly."""
    random = np.random.default_rng(seed)

    def draw(*rows):
        shape = (*rows, padded(n_labels) + extra_columns)
        scores = random.normal(size=shape) * scale if scale else random.integers(-1, 2, shape)
        scores = scores.astype(np.float64)
        scores[..., n_labels:] = random.choice(GARBAGE, scores[..., n_labels:].shape)
        return scores

    y_true = random.integers(0, n_labels, length).astype(np.int32)
    return Chain(draw(length), draw(n_labels), draw(n_labels**2), y_true)


def garbage(*shape):
    """Scratch and results may hold anything at first."""
    return np.random.default_rng(0).choice(GARBAGE, shape)


def labels_for(*shape):
    return np.full(shape, -7, dtype=np.int32)


def run_viterbi(chain):
    labels = labels_for(chain.length)
    best = garbage(chain.length, chain.width)
    return viterbi(chain.nodes, chain.pairs[None], chain.n_labels, labels, best), labels


def run_viterbi2(chain):
    labels = np.full(chain.length, 77, dtype=np.uint8)  # any integer type will do
    best = garbage(chain.length, chain.n_labels, chain.width)
    args = chain.nodes, chain.pairs, chain.triples, chain.n_labels
    return viterbi2(*args, labels, best), labels


def run_top(chain, k):
    labels, scores = labels_for(k, chain.length), garbage(k)
    shape = chain.length + 1, k, chain.width
    back = np.full(shape, -7, dtype=np.int32)
    steps, used = garbage(chain.width), np.full(chain.width, -7, dtype=np.int32)
    scratch = garbage(*shape), back, steps, used
    count = k_best(chain.nodes, chain.pairs[None], chain.n_labels, k, labels, scores, *scratch)
    return scores[:count], labels[:count]


def run_best_other(chain):
    labels = labels_for(chain.length)
    scratch = garbage(chain.length, chain.width), garbage(chain.length)
    args = chain.nodes, chain.pairs, chain.n_labels, chain.y_true
    return best_other(*args, labels, *scratch), labels


def run_most_slack(chain):
    labels = labels_for(chain.length)
    best = garbage(chain.length, chain.length + 1, chain.width)
    args = chain.nodes, chain.pairs, chain.n_labels, chain.y_true
    return most_slack(*args, labels, best), labels


def run_marginals(chain, edges=None):
    length, n, width = chain.length, chain.n_labels, chain.width
    of_nodes, of_pairs = garbage(length, width), garbage(length - 1, n, width)
    sums = garbage(length - 1, width)
    edges = chain.pairs[None] if edges is None else edges
    result = marginals(chain.nodes, edges, n, of_nodes, of_pairs, sums)
    return result, of_nodes, of_pairs


def run_marginals2(chain):
    length, n, width = chain.length, chain.n_labels, chain.width
    of_nodes, of_pairs = garbage(length, width), garbage(length - 1, n, width)
    later = max(length - 2, 0)
    of_triples = garbage(later, n * n, width)
    args = chain.nodes, chain.pairs, chain.triples, n
    result = marginals2(*args, of_nodes, of_pairs, of_triples, garbage(later, n, width))
    return result, of_nodes, of_pairs, of_triples


def slacks(chain, labellings):
    errors = (labellings != chain.y_true).sum(axis=1)
    return errors * (1.0 + chain.scores(labellings) - chain.score(chain.y_true))


def enumerated_marginals(chain, scores):
    """Log partition function and marginals of nodes, pairs and triples, by summing."""
    n, width = chain.n_labels, chain.width
    highest = scores.max()
    weights = np.exp(scores - highest)
    of_nodes = np.zeros((chain.length, width))
    of_pairs = np.zeros((chain.length - 1, n, width))
    of_triples = np.zeros((max(chain.length - 2, 0), n * n, width))
    y, p = chain.labellings(), weights / weights.sum()
    for t in range(chain.length):
        np.add.at(of_nodes[t], y[:, t], p)
        if t >= 1:
            np.add.at(of_pairs[t - 1], (y[:, t - 1], y[:, t]), p)
        if t >= 2:
            np.add.at(of_triples[t - 2], (y[:, t - 2] * n + y[:, t - 1], y[:, t]), p)
    return highest + np.log(weights.sum()), of_nodes, of_pairs, of_triples


def assert_marginals(found, expected, tolerance=1e-12):
    assert found[0] == pytest.approx(expected[0], rel=1e-13, abs=tolerance)
    for array, reference in zip(found[1:], expected[1:], strict=False):
        assert_allclose(array, reference, rtol=0.0, atol=tolerance)


def assert_add_up(n_labels, of_nodes, of_pairs, of_triples=None):
    """The padding is zero, so that sums may run over it."""
    assert_allclose(of_nodes.sum(axis=1), 1.0, atol=1e-12)
    assert_allclose(of_pairs.sum(axis=2), of_nodes[:-1, :n_labels], atol=1e-12)
    assert_allclose(of_pairs.sum(axis=1), of_nodes[1:], atol=1e-12)
    assert not of_nodes[:, n_labels:].any()
    assert not of_pairs[:, :, n_labels:].any()
    if of_triples is not None:
        by_first = of_triples.reshape(-1, n_labels, n_labels, of_nodes.shape[1])
        assert_allclose(by_first.sum(axis=3), of_pairs[:-1, :, :n_labels], atol=1e-12)
        assert_allclose(by_first.sum(axis=1), of_pairs[1:], atol=1e-12)
        assert not of_triples[:, :, n_labels:].any()


@pytest.mark.parametrize(("length", "n_labels"), SHAPES)
@pytest.mark.parametrize("triples", [False, True])
def test_best_labelling(length, n_labels, triples):
    infer = run_viterbi2 if triples else run_viterbi
    for seed, scale in enumerate([None, None, 1.0, 1e4]):
        chain = make_chain(length, n_labels, seed, scale, extra_columns=4 * (seed % 2))
        labellings = chain.labellings()
        scores = chain.scores(labellings, triples)
        score, labels = infer(chain)
        assert_array_equal(labels, labellings[np.argmax(scores)])  # the first of equal ones
        assert score == pytest.approx(chain.score(labels, triples), rel=1e-13)


@pytest.mark.parametrize("n_labels", [7, 11, 16, 21, 28, 33])
def test_best_labelling_over_any_number_of_vectors(n_labels):
    for scale in [None, 1.0]:
        chain = make_chain(3, n_labels, n_labels, scale)
        nodes = chain.nodes[:, :n_labels]
        pairs, triples = chain.pairs[:, :n_labels], chain.triples[:, :n_labels]
        triples = triples.reshape(n_labels, n_labels, n_labels)
        scores = nodes[0][:, None, None] + nodes[1][:, None] + nodes[2]
        scores = scores + pairs[:, :, None] + pairs
        for infer, table in [(run_viterbi, scores), (run_viterbi2, scores + triples)]:
            score, labels = infer(chain)
            backwards = table.transpose(2, 1, 0)
            best = np.unravel_index(np.argmax(backwards), backwards.shape)
            assert_array_equal(labels, best[::-1])
            assert score == pytest.approx(table.max(), rel=1e-13)


@pytest.mark.parametrize(("length", "n_labels"), SHAPES)
@pytest.mark.parametrize("k", [1, 2, 7, 300])
def test_top_labellings(length, n_labels, k):
    for seed, scale in enumerate([None, 1.0, 1e4]):
        chain = make_chain(length, n_labels, seed, scale, extra_columns=4 * (seed % 2))
        labellings = chain.labellings()
        expected = chain.scores(labellings)
        order = np.argsort(-expected, kind="stable")[:k]
        scores, labels = run_top(chain, k)
        assert len(scores) == min(k, n_labels**length)
        assert_array_equal(labels, labellings[order])
        assert_allclose(scores, expected[order], rtol=1e-13, atol=1e-12)


@pytest.mark.parametrize(("length", "n_labels"), SHAPES)
def test_best_other_labelling(length, n_labels):
    for seed, scale in enumerate([None, None, None, 1.0, 1.0, 1e4]):
        chain = make_chain(length, n_labels, seed, scale, extra_columns=4 * (seed % 2))
        best = run_viterbi(chain)[1]
        for y_true in [chain.y_true, best]:
            problem = chain._replace(y_true=y_true)
            score, labels = run_best_other(problem)
            if n_labels == 1:
                assert score == -np.inf
                continue
            labellings = chain.labellings()
            others = labellings[(labellings != y_true).any(axis=1)]
            assert (labels != y_true).any()
            assert score == pytest.approx(chain.scores(others).max(), rel=1e-13, abs=1e-12)
            assert score == pytest.approx(chain.score(labels), rel=1e-13, abs=1e-12)


def test_of_equal_others_one_that_differs_earlier():
    chain = Chain(np.zeros((3, 4)), np.zeros((2, 4)), np.zeros((4, 4)), np.full(3, 1, np.int32))
    assert_array_equal(run_best_other(chain)[1], [0, 0, 0])
    chain = chain._replace(y_true=np.zeros(3, np.int32))
    assert_array_equal(run_best_other(chain)[1], [1, 0, 0])


@pytest.mark.parametrize(("length", "n_labels"), SHAPES)
def test_most_slack(length, n_labels):
    found = set()
    for seed, scale in enumerate([None, None, None, 0.3, 1.0, 3.0, 1e4]):
        chain = make_chain(length, n_labels, seed, scale, extra_columns=4 * (seed % 2))
        best = run_viterbi(chain)[1]
        apart = chain.nodes.copy()
        apart[np.arange(length), best] += 4.0
        # A truth that scores anything, one that scores best, and one with room to spare.
        for y_true, nodes in [(chain.y_true, chain.nodes), (best, chain.nodes), (best, apart)]:
            problem = chain._replace(y_true=y_true, nodes=nodes)
            labellings = chain.labellings()
            expected = slacks(problem, labellings)
            slack, labels = run_most_slack(problem)
            assert slack == pytest.approx(max(expected.max(), 0.0), rel=1e-12, abs=1e-12)
            assert slack == pytest.approx(slacks(problem, labels[None])[0], rel=1e-12, abs=1e-11)
            if expected.max() <= 0.0:
                assert_array_equal(labels, y_true)
            found.add(slack > 0.0)
    assert found == ({True, False} if n_labels > 1 else {False})


def test_of_equal_slacks_the_one_with_fewer_errors():
    nodes = np.zeros((3, 4))
    nodes[:, 1] = [1.0, -1.0, -1.0]  # slacks: one error 1 * 2, two errors 2 * 1, three 3 * 0
    chain = Chain(nodes, np.zeros((2, 4)), np.zeros((4, 4)), np.zeros(3, np.int32))
    slack, labels = run_most_slack(chain)
    assert slack == 2.0
    assert_array_equal(labels, [1, 0, 0])


@pytest.mark.parametrize(("length", "n_labels"), SHAPES)
def test_marginals(length, n_labels):
    for seed, scale in enumerate([None, 1.0, 10.0, 1e4]):
        chain = make_chain(length, n_labels, seed, scale, extra_columns=4 * (seed % 2))
        expected = enumerated_marginals(chain, chain.scores(chain.labellings()))
        found = run_marginals(chain)
        assert_marginals(found, expected)
        assert_add_up(n_labels, *found[1:])


@pytest.mark.parametrize(("length", "n_labels"), SHAPES)
def test_marginals_with_other_pairs_at_each_position(length, n_labels):
    for seed in range(2):
        chain = make_chain(length, n_labels, seed, 1.0)
        edges = [make_chain(1, n_labels, seed + t, 1.0).pairs for t in range(1, length)]
        edges = np.array(edges).reshape(length - 1, n_labels, chain.width)
        y = chain.labellings()
        scores = chain.nodes[np.arange(length), y].sum(axis=1)
        scores += edges[np.arange(length - 1), y[:, :-1], y[:, 1:]].sum(axis=1)
        found = run_marginals(chain, edges)
        assert_marginals(found, enumerated_marginals(chain, scores))
        assert_add_up(n_labels, *found[1:])


@pytest.mark.parametrize(("length", "n_labels"), SHAPES)
def test_second_order_marginals(length, n_labels):
    for seed, scale in enumerate([None, 1.0, 1e4]):
        chain = make_chain(length, n_labels, seed, scale, extra_columns=4 * (seed % 2))
        expected = enumerated_marginals(chain, chain.scores(chain.labellings(), triples=True))
        found = run_marginals2(chain)
        assert_marginals(found, expected)
        assert_add_up(n_labels, *found[1:])


def test_second_order_marginals_without_triples_are_those_of_first_order():
    chain = make_chain(40, 6, 3, 2.0)
    chain.triples[:] = 0.0
    first, second = run_marginals(chain), run_marginals2(chain)
    assert_marginals(second[:3], first)
    assert_add_up(6, *second[1:])


def test_forbidden_labels_and_pairs():
    for seed in range(20):
        chain = make_chain(4, 3, seed, 1.0)
        random = np.random.default_rng(seed)
        for scores in chain[:3]:
            scores[:, :3][random.random((len(scores), 3)) < 0.3] = -np.inf
        # One labelling stays, which is also the truth.
        chain.y_true[:] = 2
        for scores in chain[:3]:
            scores[:, 2] = np.abs(random.normal(size=len(scores)))
        labellings = chain.labellings()
        for triples in [False, True]:
            scores = chain.scores(labellings, triples)
            score, labels = (run_viterbi2 if triples else run_viterbi)(chain)
            assert_array_equal(labels, labellings[np.argmax(scores)])
            assert score == pytest.approx(scores.max())
            found = (run_marginals2 if triples else run_marginals)(chain)
            assert_marginals(found, enumerated_marginals(chain, scores))
        scores, listed = run_top(chain, 100)
        assert_allclose(scores, -np.sort(-chain.scores(labellings)))
        assert {tuple(y) for y in listed} == {tuple(y) for y in labellings}
        others = labellings[(labellings != chain.y_true).any(axis=1)]
        assert run_best_other(chain)[0] == pytest.approx(chain.scores(others).max())
        assert run_most_slack(chain)[0] == pytest.approx(max(slacks(chain, others).max(), 0.0))


def test_long_chains_lose_no_precision():
    """Shifts of whole positions leave probabilities as they are."""
    chain = make_chain(2000, 5, 0, 1.0)
    shifts = np.random.default_rng(1).integers(-(2**13), 2**13, 2000).astype(np.float64)
    # Scores on a grid, so that the sums with the shifts are exact.
    nodes = np.where(np.isfinite(chain.nodes), np.round(chain.nodes * 2**20) / 2**20, 0.0)
    plain, of_nodes, _ = run_marginals(chain._replace(nodes=nodes))
    lifted, shifted_nodes, _ = run_marginals(chain._replace(nodes=nodes + shifts[:, None]))
    assert_allclose(shifted_nodes, of_nodes, atol=1e-9)
    assert lifted - shifts.sum() == pytest.approx(plain, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30), st.integers(1, 9), st.integers(0, 10**6), st.sampled_from([None, 1.0]))
def test_searches_agree(length, n_labels, seed, scale):
    """Chains too long to list: k_best, best_other and most_slack against each other and viterbi."""
    chain = make_chain(length, n_labels, seed, scale)
    score, labels = run_viterbi(chain)
    scores, listed = run_top(chain, 2)
    assert_array_equal(listed[0], labels)
    assert scores[0] == pytest.approx(score, rel=1e-12, abs=1e-12)
    if n_labels > 1:
        assert (listed[1] != labels).any()
        other, differing = run_best_other(chain._replace(y_true=labels))
        assert other == pytest.approx(scores[1], rel=1e-12, abs=1e-12)
        assert (differing != labels).any()
    slack, slackest = run_most_slack(chain)
    of_these = np.vstack([listed, slackest[None], chain.y_true[None]])
    assert slack >= slacks(chain, of_these).max() - 1e-9
    assert slack == pytest.approx(slacks(chain, slackest[None])[0], rel=1e-9, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 30), st.integers(1, 9), st.integers(0, 10**6), st.floats(0.1, 1e3))
def test_cold_marginals_are_the_best_labelling(length, n_labels, seed, scale):
    """The log partition function is bounded by the maximum, and its gradient adds up."""
    chain = make_chain(length, n_labels, seed, scale)
    for infer, expectation in [(run_viterbi, run_marginals), (run_viterbi2, run_marginals2)]:
        score, labels = infer(chain)
        log_partition, of_nodes, *others = expectation(chain)
        tolerance = 1e-9 * (1.0 + abs(score))
        assert score - tolerance <= log_partition
        assert log_partition <= score + length * np.log(n_labels) + tolerance
        assert_add_up(n_labels, of_nodes, *others)
        cold = chain._replace(
            nodes=chain.nodes * 1e9, pairs=chain.pairs * 1e9, triples=chain.triples * 1e9
        )
        of_nodes = expectation(cold)[1]
        assert_allclose(of_nodes[np.arange(length), labels], 1.0, atol=1e-9)
