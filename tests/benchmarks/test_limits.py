"""Counts of work and measured rates: no bound on any time."""

import numpy as np
import pytest

from benchmarks.kernel_cases import chain_cases, grammar_case, meetings_of, row_cases
from benchmarks.machine_limits import (
    OPERATIONS,
    PLACES,
    STREAMS,
    bandwidth,
    fastest,
    place_seconds,
    rate,
)
from benchmarks.scaling import exponent
from maxmargin.structures.constituency.inference import Scores, fill_chart, make_chart, make_rules


@pytest.mark.parametrize("operation", list(OPERATIONS))
def test_rates_are_those_of_a_processor(operation):
    assert 1e7 < rate(operation) < 1e12


@pytest.mark.parametrize("stream", list(STREAMS))
def test_bandwidths_are_those_of_a_memory(stream):
    assert 1e8 < bandwidth(stream, 1 << 14) < 1e13


@pytest.mark.parametrize("what", list(PLACES))
def test_places_take_time_for_each(what):
    """A hundred times as many take at least ten times as long."""
    columns = np.random.default_rng(0).integers(0, 100, 100_000).astype(np.uint32)
    assert place_seconds(what, columns, 100) > 10 * place_seconds(what, columns[:1000], 100) > 0.0


def test_an_exponential_takes_many_multiplications():
    assert rate("exponentials") < rate("multiply-adds") / 5


def test_fastest_counts_rounds():
    done = []

    def work(rounds):
        done.append(rounds)
        sum(range(100 * rounds))

    assert 0.0 < fastest(work, 0.01) < 0.01
    assert max(done) > 1


def test_every_case_runs_and_has_limits():
    for case in [*chain_cases()[:3], grammar_case(6), *row_cases(0.001)]:
        case.work()
        assert all(0.0 < seconds < 1.0 for seconds in case.limits().values()), case.name


def test_every_case_is_called_by_its_kind_and_its_data():
    cases = [*chain_cases(), grammar_case(6), *row_cases(0.001)]
    assert all(case.name == f"{case.kind}, {case.shape}" for case in cases)
    assert len({(case.kind, case.data) for case in cases}) == len(cases)  # one bar each
    assert {"letters", "6 words", "like MNIST"} <= {case.data for case in cases}


def test_meetings_are_counted():
    """A word or a pair of anything, four words: spans part at 1, 2 and 3 places, once each."""
    pairs = np.array([(1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 1)])
    rules = make_rules(2, 2, pairs, np.array([(0, 0), (1, 1)]))
    leaves = np.array([[0.0, -np.inf]] * 4)
    chart = make_chart(4, rules)
    fill_chart(rules, Scores(np.zeros(4), np.zeros((1, 2)), np.zeros(2)), leaves, chart)
    # Three spans of two words part once, two of three words twice, the whole three times.
    meetings, applied = meetings_of(rules, chart, 4)
    assert meetings == 3 * 1 + 2 * 2 + 1 * 3
    # A pair of words is (0, 0); three words are (0, 1) and (1, 0); four are these and (1, 1).
    assert np.bincount(applied).tolist() == [3, 2 + 1, 2 + 1, 1]


def test_exponents():
    sizes = np.array([1.0, 10.0, 100.0])
    assert exponent(sizes, 3.0 * sizes**1.5) == pytest.approx(1.5)
