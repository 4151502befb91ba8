"""The exact steps against scipy, on random blocks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from maxmargin.compiled.rows import padded
from maxmargin.dual.sweeps import (
    CORNER,
    MOVED,
    NEVER,
    STAYED,
    box_step,
    crammer_singer_step,
    weston_watkins_step,
)


def block(seed, n_classes):
    """Scores, feasible coefficients, label, cost and inverse curvature of one random example."""
    random = np.random.default_rng(seed)
    scores = np.full(padded(n_classes), NEVER)
    scores[:n_classes] = random.normal(size=n_classes) * 10.0 ** random.integers(-2, 3)
    label = int(random.integers(n_classes))
    C = float(10.0 ** random.uniform(-3, 3))
    inverse = float(10.0 ** random.uniform(-3, 3))
    return random, scores, label, C, inverse


def gain(scores, change, inverse, n_classes):
    """Change of the dual: scores are its gradient with the sign of -coef."""
    change = change[:n_classes]
    return -scores[:n_classes] @ change - 0.5 / inverse * change @ change


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10**6), n_classes=st.integers(2, 21))
def test_crammer_singer_step_is_optimal(seed, n_classes):
    random, scores, label, C, inverse = block(seed, n_classes)
    share = random.dirichlet(np.full(n_classes, 0.3)) * C
    share[random.random(n_classes) < 0.4] = 0.0
    share[label] += C - share.sum()
    coef = np.zeros(len(scores))
    coef[:n_classes] = -share
    coef[label] += C
    old, change = coef.copy(), np.zeros(len(scores))
    outcome = crammer_singer_step(scores, coef, label, C, inverse, 0.0, change)
    new_share = -coef[:n_classes]
    new_share[label] += C
    assert (new_share >= -1e-12 * C).all()
    assert new_share.sum() == pytest.approx(C, rel=1e-9)
    assert not coef[n_classes:].any()
    if outcome == MOVED:
        np.testing.assert_allclose(coef, old + change, rtol=0, atol=1e-12 * C)
    # Optimality: classes in use have the highest gradient at the new point.
    gradient = scores[:n_classes] - (share - new_share) * -1.0 / inverse
    used = new_share > 1e-9 * C
    slack = gradient.max() - gradient[used].min()
    assert slack <= 1e-7 * (1 + np.abs(gradient).max())


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10**6), n_classes=st.integers(2, 21))
def test_weston_watkins_step_is_optimal(seed, n_classes):
    random, scores, label, C, inverse = block(seed, n_classes)
    own = scores[label]
    a = random.choice([0.0, 0.3, 1.0], n_classes) * C
    a[label] = 0.0
    coef = np.zeros(len(scores))
    coef[:n_classes] = -a
    coef[label] = a.sum()
    before = scores.copy()
    old, change = coef.copy(), np.zeros(len(scores))
    outcome = weston_watkins_step(scores, coef, label, C, inverse, 0.0, change)
    new = -coef[:n_classes]
    new[label] = 0.0
    assert ((new >= 0) & (new <= C)).all()
    assert coef[label] == pytest.approx(new.sum(), rel=1e-12)
    if outcome == MOVED:
        np.testing.assert_allclose(coef, old + change, rtol=0, atol=1e-12 * C * n_classes)
    moved = new - a
    gradient = before[:n_classes] - own - (moved + moved.sum()) / inverse
    gradient[label] = 0.0
    wanted = np.where(gradient > 0, C - new, new)
    assert (np.abs(gradient) * np.minimum(wanted, 1.0)).max() <= 1e-7 * (
        1 + np.abs(before[:n_classes]).max() + C / inverse
    )


@pytest.mark.parametrize("seed", range(10))
def test_crammer_singer_step_against_scipy(seed):
    _, scores, label, C, inverse = block(seed, 5)
    scores = np.where(scores == NEVER, NEVER, np.sign(scores) * (np.abs(scores) % 3))
    C, inverse = 1.5, 0.4
    coef, change = np.zeros(8), np.zeros(8)
    crammer_singer_step(scores, coef, label, C, inverse, 0.0, change)
    start = np.zeros(5)
    start[label] = C

    def loss(share):
        move = -(share - start)
        return -gain(scores, move, inverse, 5)

    found = minimize(
        loss,
        np.full(5, C / 5),
        bounds=[(0, None)] * 5,
        constraints={"type": "eq", "fun": lambda share: share.sum() - C},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert -loss(start - coef[:5]) == pytest.approx(-found.fun, abs=1e-8)


def test_outcomes():
    change = np.zeros(4)
    easy = np.array([5.0, 1.0, 1.0, NEVER])
    for step in (crammer_singer_step, weston_watkins_step):
        assert step(easy.copy(), np.zeros(4), 0, 1.0, 1.0, 0.0, change) == CORNER
        assert step(easy.copy(), np.zeros(4), 1, 1.0, 1.0, 0.0, change) == MOVED
        inside = np.array([0.5, -0.5, 0.0, 0.0])
        level = np.array([1.0, 1.0, 0.0, NEVER])
        assert step(level.copy(), inside, 0, 1.0, 1.0, 1e-9, change) == STAYED


@settings(max_examples=100, deadline=None)
@given(
    score=st.floats(-5, 5),
    coef=st.floats(-1, 1),
    target=st.floats(-5, 5),
    epsilon=st.floats(0, 2),
    inverse=st.floats(0.01, 100),
)
def test_box_step_beats_every_other_value(score, coef, target, epsilon, inverse):
    new = box_step(score, coef, target, epsilon, -1.0, 1.0, inverse)
    assert -1.0 <= new <= 1.0

    def value(b):
        move = b - coef
        return (target - score) * move - epsilon * abs(b) - 0.5 / inverse * move**2

    others = np.linspace(-1.0, 1.0, 201)
    assert value(new) >= max(value(b) for b in others) - 1e-9 * (1 + 1 / inverse)
