"""How much longer a fit will take: on histories of real fits, and on made-up ones.

The histories in histories.json were recorded on a noisy machine with two cores; of long ones some
rounds are left out.
"""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from maxmargin.core.result import Iteration
from maxmargin.report.progress import TimeLeft

HISTORIES = json.loads(Path(__file__).with_name("histories.json").read_text())
FEW_ROUNDS = {"letters, online, lambda 0.1, tol 0.01"}


def rounds_of(history):
    columns = (history[name] for name in ("seconds", "primal", "dual", "expected"))
    for seconds, primal, dual, expected in zip(*columns, strict=True):
        bounds = (math.inf if value is None else value for value in (primal, expected))
        primal, expected = bounds
        yield Iteration(seconds, 0, 0, primal, dual, 0, expected)


def errors(history):
    """Factors by which the estimate is off (binary logarithms), once a third of the time is over.

    Not a number where it says that it cannot tell.
    """
    iterations = list(rounds_of(history))
    end = iterations[-1].seconds
    estimate, found = TimeLeft(history["tol"]), []
    for now in np.linspace(end / 3.0, 0.98 * end, 60):
        while iterations and iterations[0].seconds <= now:
            estimate.add(iterations.pop(0))
        left = estimate.seconds(now)
        found.append(math.nan if left is None else math.log2(left / (end - now)))
    return np.array(found)


@pytest.mark.parametrize("name", HISTORIES)
def test_estimates_of_real_fits(name):
    found = errors(HISTORIES[name])
    told = found[np.isfinite(found)]
    if name in FEW_ROUNDS:
        assert len(told) < 0.2 * len(found)  # six rounds tell nothing
    else:
        assert len(told) > 0.8 * len(found)
        assert np.median(np.abs(told)) < math.log2(3.0)


def test_estimates_of_all_real_fits():
    found = np.concatenate([errors(history) for history in HISTORIES.values()])
    told = np.abs(found[np.isfinite(found)])
    assert np.median(told) < math.log2(1.7)
    assert np.mean(told <= 1.0) > 0.65
    assert np.mean(told <= 2.0) > 0.85


def falling(gap_at, n_rounds=50, told=lambda k: True):
    """An estimate after rounds of a second each with these gaps; some do not value the primal."""
    estimate, primal = TimeLeft(tol=1e-4), math.inf
    for k in range(1, n_rounds + 1):
        gap = gap_at(k)
        if told(k):
            primal = 1.0 + 0.5 * gap
        estimate.add(Iteration(float(k), 0, 0, primal=primal, dual=1.0 - 0.5 * gap, cuts=0))
    return estimate.seconds(now=float(n_rounds))


def test_exponential_and_power():
    assert falling(lambda k: 0.9**k) == pytest.approx(37.4, rel=0.05)
    assert falling(lambda k: 2.0 * k**-2.0) == pytest.approx(91.4, rel=0.05)


def test_rounds_in_between_are_read_from_the_gain_of_the_dual():
    # Over a fifth of the time, gains fall somewhat later than gaps.
    assert 37.4 < falling(lambda k: 0.9**k, told=lambda k: k == 45) < 2.0 * 37.4


def test_nothing_is_told_where_nothing_can_be():
    assert TimeLeft(1e-3).seconds(1.0) is None
    assert falling(lambda k: 0.5, 50) is None  # at a standstill
    assert falling(lambda k: 0.9**k, 3) is None  # just begun
    assert falling(lambda k: 0.9**k, told=lambda k: False) is None
    assert falling(lambda k: 0.999**k) is None  # too far away
    assert falling(lambda k: 0.5**k) is None  # should have ended


def test_bad_values_do_no_harm():
    estimate = TimeLeft(1e-3, time_limit=60.0)
    for seconds, primal, dual in ((0.0, math.inf, -math.inf), (0.0, 1.0, 0.0), (2.0, 1.0, 1.5)):
        estimate.add(Iteration(seconds, 0, 0, primal, dual, 0))
    assert estimate.seconds(20.0) == 40.0


def test_the_time_limit_ends_it():
    estimate = TimeLeft(tol=1e-4, time_limit=12.0)
    assert estimate.seconds(10.0) is None
    for k in range(1, 11):
        estimate.add(Iteration(float(k), 0, 0, primal=1.0 + 0.9**k, dual=1.0, cuts=0))
    assert estimate.seconds(10.0) == 2.0
    assert estimate.seconds(13.0) == 0.0


def test_parts():
    estimate = TimeLeft(1e-3)
    estimate.add(Iteration(3.0, 0, 0, primal=1.0, dual=1.0, cuts=0, stage="1 of 4", done=0.25))
    assert estimate.seconds(3.0) == pytest.approx(9.0)
    assert estimate.seconds(13.0) == 0.0
    estimate.add(Iteration(4.0, 0, 0, primal=1.0, dual=1.0, cuts=0, stage="completion 2"))
    assert estimate.seconds(4.0) is None


@pytest.mark.parametrize("every", [1, 40])
def test_a_long_history_is_thinned(every):
    estimate, primal = TimeLeft(tol=1e-4), math.inf
    for k in range(1, 20_001):
        gap = math.exp(-4e-4 * k)
        if k % every == 0:
            primal = 1.0 + gap
        estimate.add(Iteration(1e-2 * k, 0, 0, primal=primal, dual=1.0 - 1e-3 * gap, cuts=0))
    assert len(estimate._points) <= 512
    assert estimate.seconds(200.0) == pytest.approx(30.3, rel=0.1)
