"""Badly scaled problems are solved all the same: by Newton steps, against a QP solver."""

from dataclasses import replace

import numpy as np
import pytest
import referee
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info

import maxmargin as mm
from maxmargin.core.cuts import Cuts
from maxmargin.core.linear import CrammerSinger, ScalarProblem, WestonWatkins
from maxmargin.dual.interior_point import (
    PART_OF_GAP,
    ClassConstraints,
    DenseConstraints,
    interior_point,
    linear_constraints,
    linear_work,
)
from maxmargin.dual.working_set import WorkingSet


def badly_scaled(seed, n=40, width=5):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, width)) * 10.0 ** random.uniform(-3, 3, size=width)
    return X, np.arange(n) % 3, 10.0 ** random.uniform(-6, 6)


def nearly(primal):
    return 1e-7 / PART_OF_GAP * abs(primal)


def class_problem(kind, X, labels, C, origin=None):
    losses = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [0.5, 1.0, 0.0]])
    return kind(
        X=X,
        C=C * np.linspace(0.5, 2.0, len(X)),
        bias=1.0,
        origin=origin,
        labels=labels.astype(np.int32),
        margins=np.ones(len(X)),
        loss_matrix=losses,
    )


def scalar_problem(kind, X, labels, C):
    random = np.random.default_rng(0)
    costs = C * np.linspace(0.5, 2.0, len(X))
    if kind == "hinge":
        signs = np.where(labels == 0, 1.0, -1.0)
        return ScalarProblem.hinge(signs, np.ones(len(X)), costs, X=X, bias=1.0)
    target = X @ random.normal(size=X.shape[1]) + random.normal(size=len(X))
    return ScalarProblem.epsilon_insensitive(target, 0.1, costs, X=X, bias=1.0)


def solved(problem):
    constraints = linear_constraints(problem)
    point = interior_point(constraints, nearly)
    weights = constraints.table(point.weights)
    if problem.origin is not None:
        weights = weights + problem.origin
    coef = problem.feasible(constraints.coefficients(point.alpha))
    return weights, coef


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", [CrammerSinger, WestonWatkins, "hinge", "regression"])
def test_weights_and_dual_point_certify_each_other(kind, seed):
    X, labels, C = badly_scaled(seed)
    make = scalar_problem if isinstance(kind, str) else class_problem
    problem = make(kind, X, labels, C)
    weights, coef = solved(problem)
    primal = problem.primal(weights)
    assert primal - problem.dual(coef) <= 1e-5 * primal


def test_the_mean_of_a_prior_is_where_weights_start():
    X, labels, C = badly_scaled(3)
    origin = np.random.default_rng(1).normal(size=(6, 3))
    problem = class_problem(CrammerSinger, X, labels, C, origin)
    weights, coef = solved(problem)
    primal = problem.primal(weights)
    assert primal - problem.dual(coef) <= 1e-5 * primal


@pytest.mark.parametrize("shared", [True, False])
def test_rows_of_classes_are_those_of_a_dense_matrix(shared):
    random = np.random.default_rng(0)
    n, width, n_classes = 7, 3, 4
    X, labels = random.normal(size=(n, width)), random.integers(n_classes, size=n).astype(np.int32)
    margins = random.uniform(size=(n, n_classes))
    classes = ClassConstraints(X, labels, margins, np.ones(n), shared=shared)
    rows = [
        np.outer(X[i], np.eye(n_classes)[labels[i]] - np.eye(n_classes)[j]).ravel()
        for i in range(n)
        for j in range(n_classes)
        if j != labels[i]
    ]
    dense = DenseConstraints(np.array(rows), classes.margins, classes.groups, classes.C)
    weights, alpha = random.normal(size=classes.n_weights), random.uniform(size=len(rows))
    spare = random.uniform(size=len(classes.C))
    np.testing.assert_allclose(classes.scores(weights), dense.scores(weights))
    np.testing.assert_allclose(classes.weights(alpha), dense.weights(alpha))
    np.testing.assert_allclose(classes.normal(alpha, spare), dense.normal(alpha, spare))
    # As the docstring defines it.
    member = np.eye(len(classes.C))[classes.groups]
    D, inner = np.diag(alpha), np.diag(member.T @ alpha + spare)
    matrix = D - D @ member @ np.linalg.inv(inner) @ member.T @ D
    np.testing.assert_allclose(
        dense.normal(alpha, spare), dense.rows.T @ matrix @ dense.rows, atol=1e-12
    )


@pytest.mark.filterwarnings("ignore:LinearClassifier found no weights")
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(3, 60), st.integers(1, 12), st.floats(-6, 6))
def test_default_fits_of_bad_tables_converge(seed, n, width, power):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, width)) * 10.0 ** random.uniform(-3, 3, size=width)
    model = mm.LinearClassifier(C=10.0**power).fit(X, np.arange(n) % 3)
    assert model.certificate_.relative_gap <= 1e-3


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.integers(3, 40), st.integers(1, 6), st.floats(-2, 2))
def test_the_optimum_is_that_of_a_qp_solver(seed, n, width, power):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, width)) * 10.0 ** random.uniform(-1, 1, size=width)
    labels, ones, C = np.arange(n) % 3, np.ones(n), np.full(n, 10.0**power)
    losses = 1.0 - np.eye(3)
    problem = CrammerSinger(
        X=X, C=C, bias=1.0, labels=labels.astype(np.int32), margins=ones, loss_matrix=losses
    )
    weights, coef = solved(problem)
    try:
        options = {"C": C, "margins": ones, "loss_matrix": losses, "bias": 1.0}
        value = referee.crammer_singer(X, labels, 3, **options).value
    except RuntimeError:
        reject()  # the referee is not sure of its last digits
    assert problem.primal(weights) == pytest.approx(value, rel=1e-6, abs=1e-9)
    assert problem.dual(coef) == pytest.approx(value, rel=1e-6, abs=1e-9)


def test_a_table_that_updates_alone_would_not_finish():
    """25 rows, two features times 30, a large C: updates alone leave a gap of 0.8."""
    random = np.random.default_rng(0)
    X, y = 30.0 * random.normal(size=(25, 2)), np.arange(25) % 3
    model = mm.LinearClassifier(C=1e4).fit(X, y)
    assert model.status_ == "converged"
    assert model.certificate_.relative_gap <= 1e-3
    assert model.n_iter_ < 1000


def test_large_problems_and_bounds_are_left_to_updates():
    X, labels, C = badly_scaled(0)
    problem = class_problem(CrammerSinger, X, labels, C)
    assert np.isfinite(linear_work(problem))
    wide = class_problem(CrammerSinger, np.ones((40, 2000)), labels, C)
    assert linear_work(wide) == np.inf
    many = class_problem(CrammerSinger, np.ones((1500, 1)), np.zeros(1500, dtype=int), C)
    many = replace(many, loss_matrix=1.0 - np.eye(700))  # pairs of classes for every example
    assert linear_work(many) == np.inf


def test_a_resumed_fit_takes_the_same_steps(tmp_path):
    X, y, _ = badly_scaled(1)
    whole = mm.LinearClassifier(C=1e4, tol=1e-5).fit(X, y)
    path = tmp_path / "fit.ck"
    half = mm.LinearClassifier(
        C=1e4, tol=1e-5, max_iter=30, checkpoint=mm.Checkpoint(path, every=0)
    )
    with pytest.warns(UserWarning, match="max_iter"):
        half.fit(X, y)
    again = mm.LinearClassifier(
        C=1e4, tol=1e-5, checkpoint=mm.Checkpoint(path, every=0, resume=True)
    ).fit(X, y)
    np.testing.assert_array_equal(again.coef_, whole.coef_)


def chains(seed):
    random = np.random.default_rng(seed)
    n, width, n_labels = random.integers(3, 20), random.integers(1, 8), random.integers(2, 5)
    scale = 10.0 ** random.uniform(-3, 3, size=width)
    lengths = random.integers(1, 8, size=n)
    X = [random.normal(size=(length, width)) * scale for length in lengths]
    return X, [random.integers(n_labels, size=length) for length in lengths]


@pytest.mark.diagonal
@pytest.mark.filterwarnings("ignore:.* found no weights")
@pytest.mark.parametrize("C", [1e-6, 1.0, 1e4, 1e6])
@pytest.mark.parametrize("seed", range(4))
def test_badly_scaled_chains_and_graphs_converge(seed, C):
    X, y = chains(seed)
    tagger = mm.SequenceTagger(C=C, tol=1e-3).fit(X, y)
    assert tagger.certificate_.relative_gap <= 1e-3
    graphs = [(x, [(i, i + 1) for i in range(len(x) - 1)]) for x in X]
    labeler = mm.GraphLabeler(C=C, directed=True, tol=1e-3).fit(graphs, y)
    assert labeler.certificate_.relative_gap <= 1e-3


def test_newton_steps_solve_the_working_set():
    """The dual over the working set is that of a QP solver, and its sums stay what they are."""
    random = np.random.default_rng(0)
    n, width = 6, 4
    totals = np.array([1.0, 2.0, 0.0, 5.0, 1e3, 3.0])
    working_set, weights = WorkingSet(totals, width), np.zeros(width)
    rows, losses, examples = [], [], []
    for _ in range(5):
        psi = random.normal(size=(n, width)) * [1.0, 100.0, 0.01, 1.0]
        loss = random.uniform(size=n)
        cuts = Cuts(
            np.arange(n + 1) * width,
            np.tile(np.arange(width, dtype=np.uint32), n),
            psi.ravel(),
            loss,
            [None] * n,
        )
        working_set.put(np.arange(n), cuts, np.zeros(n), weights)
        rows, losses = [*rows, *psi], [*losses, *loss]
        examples += range(n)
    primal = working_set.solve(weights, nearly)
    violations = np.array(losses) - np.array(rows) @ primal
    slacks = np.zeros(n)
    np.maximum.at(slacks, np.array(examples), violations)
    value = 0.5 * primal @ primal + totals @ slacks
    assert working_set.dual == pytest.approx(value, rel=1e-5)
    assert working_set.dual == pytest.approx(working_set.linear - 0.5 * weights @ weights)
    point = working_set.point()
    sums = np.bincount(point.examples, point.coef, n)
    assert (sums <= totals * (1 + 1e-12)).all()
    before = working_set.dual
    working_set.solve(weights, nearly)
    assert working_set.dual >= before


def test_newton_steps_of_chains_go_on_after_a_checkpoint(tmp_path):
    X, y = chains(2)
    whole = mm.SequenceTagger(C=1e5, tol=1e-3).fit(X, y)
    path = tmp_path / "fit.ck"
    between = len(whole.history_) - 1  # the last two iterations are Newton steps
    with pytest.warns(UserWarning, match="max_iter"):
        mm.SequenceTagger(
            C=1e5, max_iter=between, checkpoint=mm.Checkpoint(path, every=0), tol=1e-3
        ).fit(X, y)
    checkpoint = mm.Checkpoint(path, every=0, resume=True)
    again = mm.SequenceTagger(C=1e5, checkpoint=checkpoint, tol=1e-3).fit(X, y)
    assert len(again.history_) == len(whole.history_) > 5
    np.testing.assert_array_equal(again.coef_, whole.coef_)


def blas_threads():
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def test_blas_has_one_thread_while_it_solves():
    X, y, _ = badly_scaled(0)
    inside = []

    def watch(primal):
        inside.append(blas_threads())
        return nearly(primal)

    before = blas_threads()
    interior_point(linear_constraints(class_problem(CrammerSinger, X, y, 1.0)), watch)
    assert inside
    assert all(threads == {1} for threads in inside)
    assert blas_threads() == before
