"""Searches over derivations against all of them, one by one."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from maxmargin.structures.constituency.inference import (
    Scores,
    best_derivation,
    best_derivations,
    best_nodes,
    fill_chart,
    make_chart,
    make_rules,
    n_cells,
    next_nodes,
    row_of_span,
)
from maxmargin.structures.constituency.marginals import expected_derivation

seeds = st.integers(0, 2**32 - 1)


class Case(NamedTuple):
    rules: object
    scores: Scores
    leaves: np.ndarray

    @property
    def length(self):
        return len(self.leaves)

    def derivations(self):
        """All derivations: rows, and score."""
        found = []
        for symbol in range(self.rules.n_complete):
            start = self.scores.starts[symbol]
            if start > -np.inf:
                found += [
                    (rows, start + score) for rows, score in self.below(0, self.length, symbol)
                ]
        return found

    def below(self, start, stop, symbol):
        """All ways down from a symbol at a span."""
        rules = self.rules
        if symbol >= rules.n_complete:
            return self.parted(start, stop, symbol, -1)
        found = []
        at = row_of_span(start, stop, self.length) if len(self.scores.units) > 1 else 0
        for unit in np.flatnonzero(rules.unit_tops == symbol).tolist():
            own = self.scores.units[at, unit]
            bottom = int(rules.unit_bottoms[unit])
            if stop - start == 1:
                ways = [([(start, stop, unit, -1)], self.leaves[start, bottom])]
            else:
                ways = self.parted(start, stop, bottom, unit)
            found += [(rows, own + score) for rows, score in ways if own + score > -np.inf]
        return found

    def parted(self, start, stop, bottom, unit):
        rules = self.rules
        found = []
        for rule in np.flatnonzero(rules.parents == bottom).tolist():
            for middle in range(start + 1, stop):
                for left, left_score in self.below(start, middle, int(rules.lefts[rule])):
                    for right, right_score in self.below(middle, stop, int(rules.rights[rule])):
                        score = self.scores.rules[rule] + left_score + right_score
                        if score > -np.inf:
                            rows = [(start, stop, unit, rule), *left, *right]
                            found.append((rows, score))
                            assume(len(found) < 500)  # lest tests take for ever
        return found

    def score_of(self, nodes):
        """Score of a derivation, adding up what its rows say; checks that they fit together."""
        rules, rows = self.rules, nodes.tolist()

        def walk(row, start, stop, symbol):
            assert rows[row][:2] == [start, stop]
            _, _, unit, rule = rows[row]
            total = 0.0
            bottom = symbol
            if symbol < rules.n_complete:
                at = row_of_span(start, stop, self.length) if len(self.scores.units) > 1 else 0
                assert rules.unit_tops[unit] == symbol
                total += self.scores.units[at, unit]
                bottom = rules.unit_bottoms[unit]
            else:
                assert unit == -1
            if stop - start == 1:
                assert rule == -1
                return total + self.leaves[start, bottom]
            assert rules.parents[rule] == bottom
            middle = rows[row + 1][1]
            total += self.scores.rules[rule]
            total += walk(row + 1, start, middle, rules.lefts[rule])
            return total + walk(row + 2 * (middle - start), middle, stop, rules.rights[rule])

        top = rules.unit_tops[rows[0][2]]
        return self.scores.starts[top] + walk(0, 0, self.length, top)


def draw_scores(random, shape, whole_numbers, forbidden):
    scores = random.integers(-2, 3, shape) if whole_numbers else random.normal(size=shape)
    scores = scores.astype(np.float64)
    scores[random.random(shape) < forbidden] = -np.inf
    return scores


def make_case(seed, whole_numbers=False, forbidden=0.05, varying=None):
    """A random grammar with at most 3 complete symbols and 2 parts, and at most 5 words."""
    random = np.random.default_rng(seed)
    length = int(random.integers(1, 5 + (random.random() < 0.3)))
    n_complete, n_parts = int(random.integers(1, 4)), int(random.integers(0, 3))
    n = n_complete + n_parts
    every = np.array(np.meshgrid(*[np.arange(n)] * 3, indexing="ij")).reshape(3, -1).T
    binary = random.permutation(every)[: random.integers(0, 3 + n)]
    binary = binary[np.lexsort((binary[:, 0], binary[:, 2], binary[:, 1]))]
    pairs = np.array(np.meshgrid(*[np.arange(n_complete)] * 2, indexing="ij")).reshape(2, -1).T
    units = pairs[(random.random(len(pairs)) < 0.15) | (pairs[:, 0] == pairs[:, 1])]
    twice = np.repeat(units, random.integers(1, 3, len(units)), axis=0)  # two chains may end alike
    rules = make_rules(n_complete, n, binary, twice)
    varying = bool(random.integers(0, 2)) if varying is None else varying
    scores = Scores(
        draw_scores(random, len(binary), whole_numbers, forbidden),
        draw_scores(random, (n_cells(length) if varying else 1, len(twice)), whole_numbers, 0.0),
        draw_scores(random, n_complete, whole_numbers, forbidden),
    )
    leaves = draw_scores(random, (length, n_complete), whole_numbers, 0.1)
    return Case(rules, scores, leaves)


def as_rows(nodes):
    return [tuple(row) for row in nodes.tolist()]


def second_best(case):
    """By the kernels: score of the best, its nodes, loss of the second, its nodes."""
    room = case.length + 2  # charts may have been made for longer sentences
    chart = make_chart(room, case.rules)
    for part in chart:
        part[...] = 7  # scratch may hold anything
    nodes = np.full((2 * case.length - 1, 4), -7, dtype=np.int32)
    fill_chart(case.rules, case.scores, case.leaves, chart)
    best = best_nodes(case.rules, case.scores, case.length, chart, nodes)
    first = nodes.copy()
    loss = next_nodes(case.rules, case.scores, case.length, chart, nodes) if best > -np.inf else 0
    return best, first, loss, nodes


@settings(max_examples=150, deadline=None)
@given(seed=seeds, whole_numbers=st.booleans())
def test_best_second_and_all_derivations(seed, whole_numbers):
    case = make_case(seed, whole_numbers=whole_numbers)
    everything = case.derivations()
    scores = sorted((score for _, score in everything), reverse=True)
    best, first, loss, second = second_best(case)
    if not scores:
        assert best == -np.inf
        assert best_derivations(case.rules, case.scores, case.leaves, 3) == []
        return
    assert best == pytest.approx(scores[0])
    assert case.score_of(first) == pytest.approx(best)
    nodes, score = best_derivation(case.rules, case.scores, case.leaves)
    assert_array_equal(nodes, first)
    assert score == best
    if len(scores) > 1:
        assert best - loss == pytest.approx(scores[1])
        assert case.score_of(second) == pytest.approx(scores[1])
        assert as_rows(second) != as_rows(first)
    else:
        assert loss == np.inf
        assert_array_equal(second, first)
    for k in (1, 2, 5, len(scores) + 3):
        found = best_derivations(case.rules, case.scores, case.leaves, k)
        assert_allclose([score for _, score in found], scores[:k], atol=1e-12)
        assert_allclose([case.score_of(nodes) for nodes, _ in found], scores[:k], atol=1e-12)
    assert sorted(as_rows(nodes) for nodes, _ in found) == sorted(rows for rows, _ in everything)


@settings(max_examples=100, deadline=None)
@given(seed=seeds, scale=st.sampled_from([0.0, 1.0, 30.0, 1e4]))
def test_shares_of_all_derivations(seed, scale):
    case = make_case(seed)
    with np.errstate(invalid="ignore"):
        scores = Scores(*(np.where(part > -np.inf, part * scale, part) for part in case.scores))
        leaves = np.where(case.leaves > -np.inf, case.leaves * scale, case.leaves)
    case = Case(case.rules, scores, leaves)
    shares, log_partition = expected_derivation(case.rules, scores, leaves)
    everything = case.derivations()
    rules, units = np.zeros_like(shares.rules), np.zeros_like(shares.units)
    starts = np.zeros_like(shares.starts)
    if everything:
        totals = np.array([score for _, score in everything])
        expected = totals.max() + np.log(np.exp(totals - totals.max()).sum())
        assert log_partition == pytest.approx(expected)
        for (rows, _), share in zip(everything, np.exp(totals - expected), strict=True):
            starts[case.rules.unit_tops[rows[0][2]]] += share
            for start, stop, unit, rule in rows:
                if unit >= 0:
                    units[row_of_span(start, stop, case.length), unit] += share
                if rule >= 0:
                    rules[rule] += share
    else:
        assert log_partition == -np.inf
    tolerance = 1e-11 * max(1.0, scale)
    assert_allclose(shares.rules, rules, atol=tolerance)
    assert_allclose(shares.units, units, atol=tolerance)
    assert_allclose(shares.starts, starts, atol=tolerance)


def catalan(length):
    """Any brackets around pairs: one symbol for words, one for pairs."""
    pairs = np.array([(1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 1)])
    rules = make_rules(2, 2, pairs, np.array([(0, 0), (1, 1)]))
    scores = Scores(np.zeros(4), np.zeros((1, 2)), np.array([-np.inf, 0.0]))
    return Case(rules, scores, np.array([[0.0, -np.inf]] * length))


def test_all_bracketings_are_counted():
    numbers = [1, 1, 2, 5, 14, 42, 132, 429]
    for length, number in enumerate(numbers, start=1):
        case = catalan(length)
        if length == 1:  # a word alone is no pair
            assert best_derivation(*case)[1] == -np.inf
            continue
        _, log_partition = expected_derivation(*case)
        assert np.exp(log_partition) == pytest.approx(number)
        assert len(best_derivations(*case, 1000)) == number


def test_a_long_sentence_with_many_equal_derivations():
    case = catalan(80)
    found = best_derivations(*case, 50)
    assert [score for _, score in found] == [0.0] * 50
    assert len({nodes.tobytes() for nodes, _ in found}) == 50
    shares, log_partition = expected_derivation(*case)
    assert shares.rules.sum() == pytest.approx(79)
    # The Catalan number of 79, by logarithms of factorials.
    logs = np.log(np.arange(1, 161)).cumsum()
    assert log_partition == pytest.approx(logs[157] - 2 * logs[78] - np.log(80))


def test_one_word():
    rules = make_rules(2, 2, np.empty((0, 3)), np.array([(0, 0), (0, 1)]))
    scores = Scores(np.empty(0), np.array([[0.0, 2.0]]), np.array([1.0, -np.inf]))
    case = Case(rules, scores, np.array([[0.5, -1.0]]))
    best, first, loss, second = second_best(case)
    assert (best, loss) == (2.0, 0.5)
    assert as_rows(first) == [(0, 1, 1, -1)]
    assert as_rows(second) == [(0, 1, 0, -1)]


def test_rules_must_be_sorted():
    with pytest.raises(ValueError, match="sorted by left, right and parent"):
        make_rules(2, 2, np.array([(1, 1, 0), (1, 0, 0)]), np.array([(0, 0)]))
    with pytest.raises(ValueError, match="units by their top"):
        make_rules(2, 2, np.array([(1, 0, 0)]), np.array([(1, 1), (0, 0)]))
