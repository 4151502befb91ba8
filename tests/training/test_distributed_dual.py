"""The distributed dual method on threads, where everything can be watched."""

import signal
import threading
import warnings
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from distributed_problems import Classes, Failing, class_data, tagging_data
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import maxmargin as mm
from maxmargin.core.certificate import certify
from maxmargin.core.python_oracle import PythonOracle, make_oracle
from maxmargin.solvers.loop import Stopping
from maxmargin.training.distributed_dual import DistributedDual, DistributedRun
from maxmargin.training.engines import ThreadEngine
from maxmargin.training.partitions import Partition
from maxmargin.training.shards import Delta, shard_oracle

REPEATABLE = DistributedDual(staleness=0, local_passes=0.25)


def bound(X, y, weight):
    return make_oracle(Classes(), X, y, np.ones(len(X)) if weight is None else weight, "margin")


def parts_of(X, y, n_parts):
    owns = [np.arange(part, len(X), n_parts) for part in range(n_parts)]
    return [Partition([X[i] for i in own], [y[i] for i in own], None, own) for own in owns]


def solve(n_shards, solver=REPEATABLE, data=None, lists_point=True, **options):
    X, y = data or class_data(40)
    with ThreadEngine(n_shards) as engine:
        oracle = shard_oracle(engine, parts_of(X, y, n_shards), bound, n_shards, "classes")
        oracle.lists_point = lists_point
        result = solver.solve(oracle, Stopping(**({"tol": 1e-3} | options)))
        oracle.shards.close()
    return result, oracle


VARIANTS = {
    "waiting": REPEATABLE,
    "default": DistributedDual(),
    "long moves": DistributedDual(staleness=0, local_passes=1.0, scale=1.0),
    "cautious": DistributedDual(staleness=1, local_passes=0.25, scale=3.0),
    "plain": DistributedDual(local=mm.Auto(acceleration=False, max_sweeps=2)),
}


@pytest.mark.diagonal
@pytest.mark.parametrize("n_shards", [2, 3])
@pytest.mark.parametrize("name", VARIANTS)
def test_the_gap_is_that_of_the_whole_data(name, n_shards):
    X, y = class_data(40)
    result, _ = solve(n_shards, VARIANTS[name])
    whole = PythonOracle(Classes(), X, y, np.ones(len(X)))
    again = certify(whole, result.weights, result.dual_point)
    assert result.status == "converged"
    assert result.certificate.relative_gap <= 1e-3
    assert_allclose(again.primal, result.certificate.primal, rtol=1e-12)
    assert_allclose(again.dual, result.certificate.dual, rtol=1e-10)


def test_one_shard_is_auto_to_the_last_bit():
    X, y = class_data(40)
    whole = PythonOracle(Classes(), X, y, np.ones(len(X)))
    local = mm.Auto().solve(whole, Stopping(1e-3))
    result, _ = solve(1, DistributedDual())
    assert_array_equal(result.weights, local.weights)
    assert result.certificate.primal == local.certificate.primal
    assert_allclose(result.certificate.dual, local.certificate.dual, rtol=1e-13)
    assert [line.oracle_calls for line in result.history] == [
        line.oracle_calls for line in local.history
    ]


def test_the_dual_never_falls_and_is_what_the_shards_hold():
    result, _ = solve(3, max_iter=30, tol=1e-12)
    duals = [line.dual for line in result.history]
    assert all(b >= a - 1e-9 * abs(a) for a, b in pairwise(duals))
    assert_allclose(duals[-1], result.certificate.dual, rtol=1e-9)


def test_all_waiting_for_all_repeats_to_the_last_bit():
    (one, _), (two, _) = (solve(3, tol=1e-2) for _ in range(2))
    assert_array_equal(one.weights, two.weights)


def test_few_rounds_and_little_time_still_certify():
    result, _ = solve(3, max_iter=2)
    assert result.status == "max_iter"
    assert result.certificate.primal >= result.certificate.dual > 0.0
    result, _ = solve(2, time_limit=0.05, tol=1e-15)
    assert result.status == "time_limit"
    assert np.isfinite(result.certificate.gap)


def test_a_solve_goes_on_from_the_point_of_another_with_other_shards():
    X, y = class_data(40)
    first, _ = solve(2, tol=1e-3)
    with ThreadEngine(3) as engine:
        oracle = shard_oracle(engine, parts_of(X, y, 3), bound, 3, "classes")
        run = DistributedRun(oracle, Stopping(1e-4), None, 0, REPEATABLE)
        run.resume(first.dual_point)
        assert_allclose(run.dual, first.certificate.dual, rtol=1e-12)
        again = run.listed_point()
    order, other = (
        np.lexsort((first.dual_point.coef, first.dual_point.examples)),
        np.lexsort((again.coef, again.examples)),
    )
    assert_array_equal(again.examples[other], first.dual_point.examples[order])
    assert_allclose(again.coef[other], first.dual_point.coef[order], rtol=1e-12)


def test_a_checkpoint_gives_back_the_point_that_it_was_written_with(tmp_path):
    """Its coefficients were halved where shards count their moves twice; "converged" was wrong."""
    X, y = class_data(40)
    solver = DistributedDual(scale=2.0)
    options = {"solver": solver, "n_jobs": 3}
    options["checkpoint"] = mm.Checkpoint(tmp_path / "run.checkpoint", resume=True)
    first = mm.StructuredSVM(Classes(), tol=1e-3, **options).fit(X, y)
    again = mm.StructuredSVM(Classes(), tol=1e-3, **options).fit(X, y)
    assert again.status_ == "converged"
    assert again.certificate_.relative_gap <= 1e-3
    assert_allclose(again.certificate_.dual, first.certificate_.dual, rtol=1e-9)


def test_what_crosses_is_counted():
    result, oracle = solve(2, lists_point=False)
    assert oracle.sent >= sum(line.sent for line in result.history) > 0
    assert oracle.received >= sum(line.received for line in result.history) > 0
    updates = sum(line.updates for line in result.history)
    most = 8 * oracle.n_features * updates
    assert sum(line.received for line in result.history) <= most + 3 * 8 * oracle.n_features * 99
    assert all(line.oracle_seconds <= line.work_seconds + 1e-6 for line in result.history)


def test_weights_that_hardly_change_are_sent_as_a_difference():
    old = np.zeros(1000)
    new = old.copy()
    new[[3, 500]] = 1.0
    delta = Delta.between(old, new)
    assert delta.nbytes == 24
    delta.apply(old)
    assert_array_equal(old, new)
    whole = Delta.between(old, old + 1.0)
    assert whole.columns is None
    assert whole.nbytes == 8000


def test_sparse_problems_send_less_than_all_weights():
    """Each example has features of its own, so moves touch few weights."""
    X = [np.eye(400)[i] for i in range(100)]
    y = [i % 5 for i in range(100)]
    result, oracle = solve(2, DistributedDual(staleness=0, local_passes=0.05), (X, y), max_iter=5)
    received = sum(line.received for line in result.history)
    assert 0 < received < 0.3 * 8 * oracle.n_features * sum(line.updates for line in result.history)


def test_a_search_that_fails_names_the_example_and_keeps_what_was_learned():
    X, y = class_data()
    model = mm.StructuredSVM(Failing(X[17][0]), solver=DistributedDual(), n_jobs=2, tol=1e-3)
    with pytest.raises(
        mm.ProblemError, match="loss_augmented_inference of Failing raised KeyError for example 17"
    ):
        model.fit(X, y)
    assert model.status_ == "failed"


def test_interrupts_leave_a_usable_model():
    X, y = class_data(200)
    model = mm.StructuredSVM(Classes(), solver=DistributedDual(), n_jobs=2, tol=1e-12)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.7, signal.raise_signal, [signal.SIGINT])
    timer.start()
    try:
        with pytest.warns(ConvergenceWarning, match="an interrupt"):
            model.fit(X, y)
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)
    assert model.status_ == "interrupted"
    assert np.isfinite(model.certificate_.gap)
    assert len(model.predict(X)) == 200


def fit(make, data, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return make(**options).fit(*data)


TASKS = {
    "classes": (partial(mm.StructuredSVM, Classes(), tol=1e-3), class_data(30)),
    "chains": (partial(mm.SequenceTagger, tol=1e-3), tagging_data(30)),
}


@pytest.mark.parametrize("task", TASKS)
def test_estimators_on_shards_of_this_process(task):
    make, data = TASKS[task]
    local = fit(make, data)
    one = fit(make, data, solver=DistributedDual())
    two = fit(make, data, solver=DistributedDual(), n_jobs=2)
    weights = "weights_" if task == "classes" else "coef_"
    assert_array_equal(getattr(one, weights), getattr(local, weights))
    assert one.certificate_.primal == local.certificate_.primal
    assert_allclose(one.certificate_.dual, local.certificate_.dual, rtol=1e-13)
    assert two.certificate_.relative_gap <= 1e-3
    assert_allclose(two.certificate_.primal, local.certificate_.primal, rtol=2e-3)


def test_warm_starts_weights_and_lengths():
    X, y = tagging_data(30)
    model = mm.SequenceTagger(solver=DistributedDual(), n_jobs=2, warm_start=True, tol=1e-3).fit(
        X, y
    )
    model.fit(X, y)
    assert model.history_[0].dual >= 0.999 * model.certificate_.dual
    rows, labels = np.concatenate(X), np.concatenate(y)
    weight = np.random.default_rng(0).uniform(size=len(X))
    lengths = [len(x) for x in X]
    local = mm.SequenceTagger(tol=1e-3).fit(rows, labels, lengths=lengths, sample_weight=weight)
    flat = clone(local).set_params(solver=DistributedDual(), n_jobs=2)
    flat.fit(rows, labels, lengths=lengths, sample_weight=weight)
    assert_allclose(flat.certificate_.primal, local.certificate_.primal, rtol=2e-3)


def test_bad_parameters():
    for options in ({"scale": 0.5}, {"local_passes": 0.0}, {"staleness": -1}):
        with pytest.raises(ValueError, match="must"):
            DistributedDual(**options)
    with pytest.raises(ValueError, match="needs all data in one process"):
        mm.SequenceTagger(solver="frank-wolfe", engine="processes", tol=1e-3).fit(*tagging_data())
