"""Lists of classes: against the referee, against the dual of all classes, and invariants."""

import warnings

import numpy as np
import pytest
import referee
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import maxmargin as mm
from maxmargin.core.certificate import certify
from maxmargin.core.linear import CrammerSinger, WestonWatkins
from maxmargin.core.result import Status
from maxmargin.dual import listed_classes
from maxmargin.dual.explicit import MulticlassDual
from maxmargin.dual.listed_classes import ListedDual, has_listed_dual
from maxmargin.estimators.convergence import NotConvergedWarning
from maxmargin.solvers import many_classes
from maxmargin.solvers.loop import Stopping
from maxmargin.solvers.sequential_dual import SequentialDual

KINDS = {"crammer-singer": CrammerSinger, "weston-watkins": WestonWatkins}


def many(kind, seed, *, n=40, d=6, k=5, bias=0.0, dtype=np.float64):
    """A problem with uneven costs and margins, one row of zeros and one cost of zero."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, d)) * (random.random((n, d)) < 0.4)
    X[0] = 0.0
    C = random.uniform(0.1, 2.0, n) * 10.0 ** random.integers(-2, 2)
    C[1] = 0.0
    return KINDS[kind](
        X=sp.csr_array(X.astype(dtype)),
        C=C,
        labels=random.integers(0, k, n).astype(np.int32),
        margins=random.uniform(0.0, 2.0, n),
        n_classes=k,
        bias=bias,
    )


@pytest.fixture(params=["tables", "dense", "both"])
def lists(request, monkeypatch):
    """Lists even for few classes; weights in tables, in rows for all classes, or in both."""
    rows = {"tables": 0, "dense": 10**9, "both": 0.4}[request.param]
    monkeypatch.setattr(listed_classes, "MANY_CLASSES", 3)
    monkeypatch.setattr(listed_classes, "DENSE_FROM", rows)


def solve(problem, tol=1e-9, **options):
    return SequentialDual().solve(problem, Stopping(tol, 20_000), **options)


@pytest.mark.diagonal
@pytest.mark.parametrize("bias", [0.0, 1.5])
@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_the_referee(kind, bias, lists):
    for seed in range(4):
        problem = many(kind, seed, bias=bias)
        assert has_listed_dual(problem)
        solver = getattr(referee, kind.replace("-", "_"))
        losses = {"loss_matrix": 1.0 - np.eye(5)} if kind == "crammer-singer" else {}
        shared = {"C": problem.C, "margins": problem.margins, "bias": bias}
        optimum = solver(problem.X.toarray(), problem.labels, 5, **shared, **losses).value
        result = solve(problem)
        assert result.status is Status.CONVERGED
        assert result.certificate.primal == pytest.approx(optimum, rel=1e-6, abs=1e-9)
        assert result.certificate.dual <= optimum * (1 + 1e-8) + 1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_float32_rows_are_the_same_problem(kind, lists):
    single = many(kind, 1, dtype=np.float32)
    double = KINDS[kind](**{**vars(single), "X": single.X.astype(np.float64)})
    expected = solve(double).certificate.primal
    assert solve(single).certificate.primal == pytest.approx(expected, rel=1e-7)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    kind=st.sampled_from([*KINDS]),
    seed=st.integers(0, 10_000),
    bias=st.sampled_from([0.0, 1.5]),
    k=st.integers(3, 60),
)
def test_dual_never_decreases_and_never_passes_the_primal(kind, seed, bias, k, lists):
    problem = many(kind, seed, k=k, bias=bias)
    state = ListedDual(problem, None, 3, seed)
    scale = 1.0 + state.expected
    last = state.dual
    for step in (True, False, True, False):
        before = state.dual
        gained = sum(state.oracle_calls(0.0, step))
        assert state.dual == pytest.approx(before + (gained if step else 0.0), abs=1e-9 * scale)
        for _ in range(3):
            assert state.dual >= last - 1e-12 * scale
            last = state.dual
            point = state.point()
            feasible = problem.feasible(point)
            assert abs(feasible - point).max() <= 1e-12 * (1.0 + problem.C.max())
            weights = problem.weights(point)
            fresh = certify(problem, weights, feasible)
            assert fresh.dual <= fresh.primal + 1e-12 * scale
            # What the updates keep in step equals what is computed anew, sparse or dense.
            assert state.dual == pytest.approx(fresh.dual, abs=1e-10 * scale)
            assert problem.primal(weights.toarray()) == pytest.approx(fresh.primal, rel=1e-12)
            assert problem.dual(feasible.toarray()) == pytest.approx(fresh.dual, abs=1e-12 * scale)
            list(state.list_updates(0.0))
    sum(state.oracle_calls(0.0, False))
    weights = problem.weights(state.point())
    assert state.expected == pytest.approx(problem.primal(weights), abs=1e-10 * scale)
    state.check_state()


@pytest.mark.parametrize("kind", KINDS)
def test_as_with_coefficients_of_all_classes(kind):
    problem = many(kind, 0, n=400, d=50, k=120)
    matrix = KINDS[kind](**{**vars(problem), "loss_matrix": problem.all_losses()})
    assert has_listed_dual(problem)
    assert not has_listed_dual(matrix)
    listed, dense = solve(problem, 1e-7), solve(matrix, 1e-7)
    assert listed.certificate.primal == pytest.approx(dense.certificate.primal, rel=2e-7)
    assert sp.issparse(listed.dual_point)
    # Any of the two problems certifies what was found for the other.
    crossed = certify(matrix, listed.weights, listed.dual_point.toarray())
    assert crossed.primal == pytest.approx(listed.certificate.primal, rel=1e-12)
    assert crossed.dual == pytest.approx(listed.certificate.dual, rel=1e-12)


@pytest.mark.diagonal
@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_same_bits_whatever_the_threads(kind, lists):
    problem = many(kind, 3, n=200, k=20)
    one, two = (solve(problem, 1e-4, n_jobs=n_jobs, seed=5) for n_jobs in (1, 2))
    np.testing.assert_array_equal(one.weights, two.weights)
    assert (one.dual_point != two.dual_point).nnz == 0


@pytest.mark.diagonal
@pytest.mark.parametrize("kind", KINDS)
def test_starts_from_an_earlier_solution(kind, lists):
    problem = many(kind, 2, n=200, k=20, bias=1.0)
    first = solve(problem, 1e-6)
    again = solve(problem, 1e-6, start=first.dual_point)
    assert again.iterations == 1
    assert again.certificate.dual == pytest.approx(first.certificate.dual, rel=1e-9)


def test_a_start_of_another_shape_is_left_alone(lists):
    problem = many("crammer-singer", 2)
    result = solve(problem, start=sp.csr_array((3, 3)))
    assert result.certificate.primal == pytest.approx(solve(problem).certificate.primal)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("limit", "status"),
    [({"max_iter": 1}, Status.MAX_ITER), ({"time_limit": 1e-9}, Status.TIME_LIMIT)],
)
def test_stopping_early_still_certifies(kind, limit, status, lists):
    problem = many(kind, 0, n=200, k=20)
    result = SequentialDual().solve(problem, Stopping(1e-12, **limit))
    assert result.status is status
    fresh = certify(problem, result.weights, result.dual_point)
    # Zero weights may be the answer, whose objective needs no sum over classes.
    assert fresh.primal == pytest.approx(result.certificate.primal, rel=1e-14)
    assert fresh.dual == result.certificate.dual
    assert fresh.dual <= fresh.primal


def test_an_interrupted_solve_certifies(lists):
    problem = many("crammer-singer", 0, n=200, k=20)
    for at in range(4):
        seen = []

        def interrupt(line, weights, at=at, seen=seen):
            seen.append(weights())
            if len(seen) > at:
                raise KeyboardInterrupt
            return False

        result = solve(problem, 1e-12, on_iteration=interrupt)
        assert result.status is Status.INTERRUPTED
        assert result.certificate.dual <= result.certificate.primal
        assert result.certificate.primal <= problem.primal(seen[-1]) * (1 + 1e-12)


def test_kinds_of_problems_that_lists_are_for():
    problem = many("crammer-singer", 0, k=120)
    assert has_listed_dual(problem)
    others = {
        "X": problem.X.toarray(),
        "nonnegative": True,
        "origin": np.zeros((7, 120)),
        "loss_matrix": problem.all_losses(),
        "n_classes": 99,
    }
    for name, value in others.items():
        assert not has_listed_dual(CrammerSinger(**{**vars(problem), name: value}))
    dense = SequentialDual().start(
        CrammerSinger(**{**vars(problem), "nonnegative": True}), Stopping(), None, 0
    )
    assert isinstance(dense.dual_state, MulticlassDual)


# Estimators


@pytest.fixture
def text():
    """Rows of a few words, 150 classes."""
    random = np.random.default_rng(0)
    y = np.concatenate([np.arange(150), random.integers(0, 150, 650)])
    X = 0.3 * random.random((800, 300)) * (random.random((800, 300)) < 0.02)
    X[np.arange(800), y] += 1.0
    return sp.csr_array(X), y


@pytest.fixture
def sparse_answers(monkeypatch):
    monkeypatch.setattr(many_classes, "MOST_DENSE_WEIGHTS", 0)


@pytest.mark.parametrize("formulation", KINDS)
def test_sparse_weights_predict_as_dense_ones(formulation, text, monkeypatch, tmp_path):
    X, y = text
    dense = mm.LinearClassifier(formulation=formulation).fit(X, y)
    monkeypatch.setattr(many_classes, "MOST_DENSE_WEIGHTS", 0)
    model = mm.LinearClassifier(formulation=formulation).fit(X, y)
    assert isinstance(dense.coef_, np.ndarray)
    assert sp.issparse(model.coef_)
    assert model.coef_.shape == (150, 300)
    np.testing.assert_allclose(model.coef_.toarray(), dense.coef_, atol=1e-12)
    np.testing.assert_allclose(model.intercept_, dense.intercept_, atol=1e-12)
    assert model.certificate_.primal == pytest.approx(dense.certificate_.primal, rel=1e-12)
    monkeypatch.setattr("maxmargin.predictors.linear.BATCH_SCORES", 2000)
    loaded = mm.load(mm.save(model, tmp_path / "many.mm"))
    predictor = mm.load_predictor(tmp_path / "many.mm")
    for rows in (X, X.toarray()):
        expected = dense.predict(rows)
        assert (expected == y).mean() > 0.9
        for one in (model, loaded, predictor):
            np.testing.assert_array_equal(one.predict(rows), expected)
            np.testing.assert_allclose(
                one.decision_function(rows), dense.decision_function(rows), atol=1e-9
            )


def test_weights_of_samples_count_as_copies(text):
    X, y = text
    counts = np.random.default_rng(1).integers(0, 3, len(y))
    rows = np.repeat(np.arange(len(y)), counts)
    options = {"tol": 1e-6, "fit_intercept": False}
    kept = np.isin(y, y[rows])  # with the same classes
    weighted = mm.LinearClassifier(**options).fit(X[kept], y[kept], sample_weight=counts[kept])
    copied = mm.LinearClassifier(**options).fit(X[rows], y[rows])
    assert weighted.certificate_.primal == pytest.approx(copied.certificate_.primal, rel=3e-6)


def test_warm_starts_and_paths(text, sparse_answers):
    X, y = text
    model = mm.LinearClassifier(warm_start=True, tol=1e-4).fit(X, y)
    first = model.n_iter_
    assert model.fit(X, y).n_iter_ == 1 < first
    models = mm.LinearClassifier(tol=1e-4).path(X, y, Cs=[0.1, 1.0])
    alone = mm.LinearClassifier(tol=1e-4).fit(X, y)
    primal = alone.certificate_.primal
    assert models[1].certificate_.primal == pytest.approx(primal, rel=2e-4)


def test_checkpoints_go_on_to_the_same_bits(text, tmp_path):
    X, y = text
    expected = mm.LinearClassifier(tol=1e-5).fit(X, y)
    for stop in (1, 2, expected.n_iter_ - 1):
        path = tmp_path / f"{stop}.ckpt"
        kept = mm.Checkpoint(path, every=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotConvergedWarning)
            mm.LinearClassifier(tol=1e-5, max_iter=stop, checkpoint=kept).fit(X, y)
        again = mm.LinearClassifier(tol=1e-5, checkpoint=mm.Checkpoint(path, resume=True))
        again.fit(X, y)
        np.testing.assert_array_equal(again.coef_, expected.coef_)
        assert again.n_iter_ == expected.n_iter_
