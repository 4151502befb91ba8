"""Distances and kernels on the circle, and the highest of sums of bumps."""

import numpy as np
import pytest

from maxmargin.structures.pose.problem import (
    TURN,
    angular_distance,
    best_angles,
    wrapped_gaussian,
)


def test_distance_is_the_shorter_way_round():
    random = np.random.default_rng(0)
    a, b = random.uniform(-20, 20, size=(2, 200))
    by_hand = np.min([np.abs(a - b + k * TURN) for k in range(-9, 10)], axis=0)
    np.testing.assert_allclose(angular_distance(a, b), by_hand, atol=1e-12)
    assert angular_distance(np.array(0.0), np.array(np.pi)) == pytest.approx(np.pi)


@pytest.mark.parametrize("gamma", [0.02, 0.3, 1.0, 3.0, 50.0])
def test_the_wrapped_gaussian_is_a_sum_over_turns(gamma):
    distances = np.linspace(-np.pi, np.pi, 101)
    terms = np.exp(-gamma * (distances[:, None] + TURN * np.arange(-30, 31)) ** 2).sum(axis=1)
    np.testing.assert_allclose(wrapped_gaussian(distances, gamma), terms / terms[50], atol=1e-15)


def test_it_is_the_plain_rbf_where_that_is_narrow():
    distances = np.linspace(-np.pi, np.pi, 101)
    plain = np.exp(-3.0 * distances**2)
    np.testing.assert_allclose(wrapped_gaussian(distances, 3.0), plain, atol=2e-13)


@pytest.mark.parametrize("gamma", [0.05, 0.2, 1.0])
def test_wrapping_makes_it_a_kernel(gamma):
    angles = TURN / 64 * np.arange(64)
    difference = np.mod(angles[:, None] - angles + np.pi, TURN) - np.pi
    lowest = np.linalg.eigvalsh(wrapped_gaussian(difference, gamma))[0]
    plain = np.linalg.eigvalsh(np.exp(-gamma * difference**2))[0]
    assert lowest > -1e-13
    assert plain < -1e-7  # so the angular distance alone would not do


@pytest.mark.parametrize("gamma", [0.5, 3.0, 40.0])
@pytest.mark.parametrize("seed", range(5))
def test_best_angles_against_a_dense_grid(gamma, seed):
    random = np.random.default_rng(seed)
    centres = random.uniform(0, TURN, size=12)
    factors, start = random.normal(size=(9, 12)), random.uniform(0, TURN, size=9)
    reach = np.pi / 8
    angles, scores = best_angles(factors, centres, gamma, start, reach)
    dense = start[:, None] + np.linspace(-reach, reach, 20_001)
    for k in range(len(start)):
        difference = np.mod(dense[k][:, None] - centres + np.pi, TURN) - np.pi
        values = wrapped_gaussian(difference, gamma) @ factors[k]
        assert scores[k] >= values.max() - 1e-12
        at = np.mod(angles[k] - centres + np.pi, TURN) - np.pi
        assert scores[k] == pytest.approx(wrapped_gaussian(at, gamma) @ factors[k])
        assert angular_distance(angles[k], start[k]) <= reach + 1e-12
        assert angular_distance(angles[k], dense[k][values.argmax()]) < 1e-3
    assert ((angles >= 0) & (angles < TURN)).all()


def test_no_rows_and_no_centres():
    nothing = np.zeros(0)
    angles, scores = best_angles(np.zeros((0, 3)), np.zeros(3), 1.0, nothing, 0.4)
    assert len(angles) == len(scores) == 0
    angles, scores = best_angles(np.zeros((2, 0)), nothing, 1.0, np.array([0.5, 1.0]), 0.4)
    assert scores.tolist() == [0.0, 0.0]


def test_many_rows_are_done_in_parts(monkeypatch):
    random = np.random.default_rng(0)
    arguments = random.normal(size=(30, 8)), random.uniform(0, 6, size=8), 2.0
    start = random.uniform(0, TURN, size=30)
    whole = best_angles(*arguments, start, 0.4)
    monkeypatch.setattr("maxmargin.structures.pose.problem._MOST_VALUES", 500)
    np.testing.assert_allclose(best_angles(*arguments, start, 0.4), whole, atol=1e-8)
