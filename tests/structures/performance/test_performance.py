"""Labels of whole data sets: searches and planes against their definition, and the optimum."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from structured_referee import Case

import maxmargin as mm
from maxmargin.core.oracle import Threads
from maxmargin.solvers.loop import Stopping
from maxmargin.structures.performance.problem import Measure, PerformanceProblem, TableOracle
from maxmargin.training.fit import make_solver

ONE = Threads(1)
BLOCK = np.zeros(1, dtype=np.int64)
PLAIN = ("f1", "error", "break-even")
EXACT_SOLVERS = ("auto", "dual-coordinate", "n-slack", "one-slack")

seeds = st.integers(0, 2**32 - 1)


class Enumerated(PerformanceProblem):
    """With all labellings, or those with as many positives as there are, as tuples."""

    n_positive = None

    def outputs(self, x):
        every = [np.array(y) for y in product([False, True], repeat=len(x))]
        if self.measure.name != "break-even":
            return every
        return [y for y in every if y.sum() == self.n_positive]


def draw(seed, n=6, ties=False, n_positive=None):
    random = np.random.default_rng(seed)
    x = random.integers(-1, 2, (n, 3)) if ties else random.normal(size=(n, 3))
    y_true = np.arange(n) < (n_positive or random.integers(1, n))
    return x.astype(float), random.permutation(y_true), random


@pytest.mark.parametrize("loss", PLAIN)
@settings(max_examples=20, deadline=None)
@given(seed=seeds, ties=st.booleans(), scale=st.sampled_from([0.0, 1.0, 10.0]))
def test_search_is_the_best_of_all_labellings(loss, seed, ties, scale):
    problem = Enumerated(loss, beta=0.5)
    x, y_true, random = draw(seed, ties=ties)
    problem.n_positive = y_true.sum()
    w = scale * random.normal(size=3)
    base = problem.joint_feature(x, y_true)
    assert problem.loss(y_true, y_true) == 0.0

    def value(y):
        return problem.loss(y_true, y) + w @ (problem.joint_feature(x, y) - base)

    found = problem.loss_augmented_inference(x, y_true, w)
    assert value(found) == pytest.approx(max(map(value, problem.outputs(x))), abs=1e-10)


@pytest.mark.parametrize("measure", ["f1", "error", "break-even", "precision@k", "recall@k"])
@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize("sparse", [False, True])
def test_planes_are_the_highest_of_all_labellings(measure, k, sparse):
    called = [np.array(y) for y in product([False, True], repeat=7)]
    for seed in range(6):
        x, y_true, random = draw(seed, n=7, n_positive=3)
        how = Measure(measure, 2.0, k)
        if measure in ("precision@k", "recall@k", "break-even"):
            allowed = [y for y in called if y.sum() == how.rows_called(7, 3)]
        else:
            allowed = called
        X = sp.csr_array(x) if sparse else x
        oracle = TableOracle(X, y_true, np.array([0, 7]), np.ones(1), how, bias=2.0)
        w = random.normal(size=4)
        scores = x @ w[:3] + 2.0 * w[3]
        values = [how.loss_of(y_true, y) - how.coefficients(y_true, y) @ scores for y in allowed]
        cuts = oracle.separate(w, BLOCK, ONE)
        assert cuts.slopes(w)[0] == pytest.approx(max(0.0, *values), abs=1e-12)
        again = oracle.cuts_of(BLOCK, cuts.outputs)
        assert_allclose(again.slopes(w), cuts.slopes(w))


def test_measures_at_k_do_not_care_for_a_shift_of_all_scores():
    x, y_true, random = draw(0, n=9, n_positive=4)
    x[:, 2] = 1.0
    for k in (2, 4, 6):
        how = Measure("precision@k", k=k)
        oracle = TableOracle(x, y_true, np.array([0, 9]), np.ones(1), how)
        w = random.normal(size=3)
        hinges = [
            oracle.hinges(oracle.separate(v, BLOCK, ONE), v, BLOCK).most
            for v in (w, w + np.array([0, 0, 7]))
        ]
        assert hinges[0] == pytest.approx(hinges[1])
        top = np.argsort(-x @ w)[:k]
        lacking = (min(k, 4) - y_true[top].sum()) / k
        assert hinges[0] >= lacking - 1e-12


@pytest.mark.parametrize("loss", PLAIN)
@pytest.mark.parametrize("n_sets", [1, 2])
def test_solvers_agree_with_the_referee(loss, n_sets):
    problem = Enumerated(loss)
    problem.n_positive = 3
    X, Y = zip(*(draw(seed, n=6, n_positive=3)[:2] for seed in range(n_sets)), strict=True)
    C = np.array([4.0, 1.0])[:n_sets]
    optimum = Case(problem, list(X), list(Y), C).optimum.value
    oracle = problem.make_oracle(X, Y, C, "margin")
    for name in EXACT_SOLVERS:
        found = make_solver(name).solve(oracle, Stopping(1e-6, 1000)).certificate
        assert found.dual <= optimum * (1 + 1e-7) + 1e-9, name
        assert found.primal >= optimum * (1 - 1e-7) - 1e-9, name
        assert found.relative_gap <= 1e-6, name


def test_errors_are_the_hinges_of_the_rows():
    x, y_true, random = draw(0, n=30)
    oracle = PerformanceProblem("error").make_oracle([x], [y_true], np.array([30.0]), "margin")
    w = random.normal(size=3)
    hinges = np.maximum(0.0, 1.0 - np.where(y_true, 1.0, -1.0) * (x @ w))
    assert oracle.primal(w) == pytest.approx(0.5 * w @ w + hinges.sum())


def test_shares_and_numbers_of_rows():
    assert Measure("precision@k", k=3).rows_called(10, 5) == 3
    assert Measure("precision@k", k=0.25).rows_called(10, 5) == 2
    assert Measure("precision@k", k=0.001).rows_called(10, 5) == 1
    assert Measure("break-even").rows_called(10, 5) == 5
    with pytest.raises(ValueError, match="k is 10, which is 10 of 10 rows"):
        Measure("recall@k", k=10).rows_called(10, 5)


def test_outputs_of_other_data_are_refused():
    oracle = PerformanceProblem().make_oracle([np.eye(9)], [np.arange(9) > 3], np.ones(1), "margin")
    with pytest.raises(ValueError, match="other lengths"):
        oracle.cuts_of(BLOCK, [b"\x00"])


def test_structured_svm_takes_it():
    x, y_true, _ = draw(0, n=40)
    model = mm.StructuredSVM(PerformanceProblem("f1"), C=40.0, tol=1e-3).fit([x], [y_true])
    assert model.certificate_.relative_gap <= 1e-3
    assert model.predict([x])[0].dtype == bool
    assert -1.0 <= model.score([x], [y_true]) <= 0.0


def test_bad_input():
    with pytest.raises(ValueError, match="'f1', 'error' or 'break-even'"):
        PerformanceProblem("auc")
    with pytest.raises(ValueError, match="flag, True or False"):
        PerformanceProblem().make_oracle([np.eye(2)], [[1, 0]], np.ones(1), "margin")
    with pytest.raises(ValueError, match="Data set 0 needs a flag for each row, at least one True"):
        PerformanceProblem().make_oracle([np.eye(2)], [[False, False]], np.ones(1), "margin")
