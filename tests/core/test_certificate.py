import numpy as np
import pytest
from linear_problems import random_case

from maxmargin.core import linear
from maxmargin.core.certificate import Certificate


def test_gap_is_relative_to_the_larger_value():
    assert Certificate(10.0, 9.0).relative_gap == pytest.approx(0.1)
    assert Certificate(1.0, -4.0).relative_gap == pytest.approx(1.25)
    assert Certificate(0.0, 0.0).relative_gap == 0.0


def test_independent_problems_add_up():
    assert Certificate(1.0, 0.5) + Certificate(2.0, 1.5) == Certificate(3.0, 2.0)


def test_reads_well():
    text = str(Certificate(1234.5678, 1234.5))
    assert text == "primal 1234.57, dual 1234.5, relative gap 5.5e-05"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sparse", [False, True])
def test_linear_values_do_not_depend_on_chunks_of_rows(sparse, dtype, monkeypatch):
    problem = random_case("crammer-singer", 0, n=50, bias=1.0, sparse=sparse, dtype=dtype).problem
    random = np.random.default_rng(1)
    weights = random.normal(size=problem.weights_shape)
    coef = problem.feasible(random.normal(size=(problem.n_samples, problem.n_outputs)))
    whole = problem.primal(weights), problem.dual(coef)
    monkeypatch.setattr(linear, "_LEAST_ENTRIES", 30)
    monkeypatch.setattr(linear, "_MOST_ENTRIES", 30)
    assert len([*problem._chunks()]) > 5
    assert (problem.primal(weights), problem.dual(coef)) == pytest.approx(whole, rel=1e-12)
    for rows in (problem._features(slice(3, 9)), problem._features(slice(3, 9), transposed=True)):
        held = (rows.data, problem.X.data) if sparse else (rows, problem.X)
        assert np.shares_memory(*held)
