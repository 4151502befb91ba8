"""The first step of a binary or regression problem: both sides towards their bounds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from linear_problems import KINDS, random_case

from maxmargin.compiled.rows import measured_rows
from maxmargin.core.linear import ScalarProblem
from maxmargin.dual.explicit import _best_of_unit_square, make_dual


def state_of(problem):
    """A state that starts from zero, and so leaves it."""
    return make_dual(problem, measured_rows(problem.X, problem.bias))


@given(
    kind=st.sampled_from(KINDS[2:]),
    seed=st.integers(0, 10**6),
    sparse=st.booleans(),
    C=st.sampled_from([1e-4, 1e-2, 1.0, 100.0]),
)
def test_the_step_is_feasible_gains_and_keeps_weights_in_step(kind, seed, sparse, C):
    problem = random_case(kind, seed, sparse=sparse).problem.scaled(C)
    state = state_of(problem)
    before = problem.dual(problem.feasible(np.zeros((problem.n_samples, 1))))
    np.testing.assert_array_equal(state.dual_coef, problem.feasible(state.dual_coef))
    np.testing.assert_allclose(state.shared.weights, problem.weights(state.dual_coef), atol=1e-9)
    assert state.dual == pytest.approx(problem.dual(state.dual_coef), rel=1e-9, abs=1e-12)
    assert state.dual >= before - 1e-12


def test_where_costs_are_small_all_are_at_their_bounds():
    case = random_case("hinge", 3).problem.scaled(1e-6)
    state = state_of(case)
    np.testing.assert_array_equal(
        state.coef[:, 0], np.where(case.target > 0, case.upper, case.lower)
    )


def test_rows_without_features_keep_their_optimum():
    X = np.array([[1.0], [0.0], [-1.0], [0.0]])
    signs, ones = np.array([1.0, 1.0, -1.0, -1.0]), np.ones(4)
    state = state_of(ScalarProblem.hinge(signs, ones, ones, X=X))
    np.testing.assert_array_equal(state.coef[[1, 3], 0], [1.0, -1.0])
    assert state.dual == pytest.approx(
        2.5
    )  # the optimum: weight 1, two examples that no weight helps


@given(
    linear=st.tuples(*[st.floats(-3, 3)] * 2),
    factor=st.lists(st.floats(-2, 2), min_size=4, max_size=4),
)
def test_the_best_of_the_square_is_not_beaten_on_a_grid(linear, factor):
    factor = np.reshape(factor, (2, 2))
    linear, gram = np.array(linear), factor @ factor.T
    best = _best_of_unit_square(linear, gram)
    assert 0.0 <= best.min() <= best.max() <= 1.0
    ticks = np.linspace(0.0, 1.0, 21)
    grid = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    values = grid @ linear - 0.5 * ((grid @ gram) * grid).sum(axis=1)
    assert best @ linear - 0.5 * best @ gram @ best >= values.max() - 1e-12
