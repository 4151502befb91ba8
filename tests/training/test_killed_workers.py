"""Worker processes killed in every phase of a fit on Dask, and schedulers that are gone."""

import asyncio
import os
import signal

import numpy as np
import pytest
from distributed_problems import Classes, class_data, cluster
from faulty_engine import question
from numpy.testing import assert_allclose

import maxmargin as mm
from maxmargin.data import open_examples
from maxmargin.training.distributed_cutting_plane import DistributedOneSlack
from maxmargin.training.distributed_dual import DistributedDual
from maxmargin.training.engines import DaskEngine, EngineError

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

TOL = 0.1
X, Y = class_data(20)


@pytest.fixture(scope="module")
def client():
    """Three workers, so that two are left when one is killed; its nanny starts another.

    A slow machine may take longer for that than Dask expects.
    """
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "10 minutes"}),
        distributed.LocalCluster(
            n_workers=3, threads_per_worker=1, dashboard_address=None, processes=True
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.wait_for_workers(3, timeout=120)
        yield client


def slowly(*parameters):
    return pytest.param(*parameters, marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def optimum():
    return mm.StructuredSVM(Classes(), tol=1e-6).fit(X, Y).certificate_


def kill(client, worker, with_signal=signal.SIGKILL):
    """Send a signal to the process of a worker; whether it was there."""
    pids = client.run(os.getpid, workers=[worker], on_error="return")
    pid = pids.get(worker)
    if isinstance(pid, int):
        os.kill(pid, with_signal)
    return pid


class Killer:
    """Kills the worker that is asked a question, once it is asked, or just before."""

    def __init__(self, monkeypatch, wanted, moment="after", times=1):
        self.wanted, self.moment, self.left, self.killed = wanted, moment, times, []
        call, scatter = DaskEngine.call, DaskEngine.scatter

        def killing_call(engine, worker, function, *arguments):
            hit = self._is_wanted(question(function, arguments))
            if hit and self.moment == "before":
                self._kill(engine, worker)
            pending = call(engine, worker, function, *arguments)
            if hit and self.moment == "after":
                self._kill(engine, worker)
            return pending

        def killing_lend(engine, worker, data):
            if self._is_wanted("scatter"):
                self._kill(engine, worker)
            return scatter(engine, worker, data)

        monkeypatch.setattr(DaskEngine, "call", killing_call)
        monkeypatch.setattr(DaskEngine, "scatter", killing_lend)

    def _is_wanted(self, name):
        return name == self.wanted and self.left > 0

    def _kill(self, engine, worker):
        if isinstance(kill(engine.client, worker), int):
            self.left -= 1
            self.killed.append(worker)


def check(certificate, optimum, tol=TOL):
    assert certificate.relative_gap <= tol
    assert certificate.dual <= optimum.primal * (1 + 1e-6)
    assert certificate.primal >= optimum.dual * (1 - 1e-6)
    assert_allclose(certificate.primal, optimum.primal, rtol=tol / (1 - tol))


SOLVERS = {"dual": DistributedDual(local_passes=0.5), "one-slack": DistributedOneSlack()}
PLACING = ["scatter", "make", "about", "begin"]
FITTING = {
    "dual": ["improve", "settle", "lower_bound", "evaluate"],
    "one-slack": ["separate", "cached", "set_mix"],
}
CERTIFYING = ["hinges", "sums"]
QUICK = {("dual", "hinges"), ("one-slack", "sums")}


def phases():
    for name in SOLVERS:
        for phase in (*PLACING, *FITTING[name], *CERTIFYING):
            quick = (name, phase) in QUICK
            yield (name, phase) if quick else slowly(name, phase)


@pytest.mark.parametrize(("name", "phase"), list(phases()))
def test_a_worker_killed_in_a_phase(client, optimum, monkeypatch, name, phase):
    killer = Killer(monkeypatch, phase)
    model = mm.StructuredSVM(Classes(), engine=client, solver=SOLVERS[name], tol=TOL).fit(X, Y)
    assert killer.killed
    check(model.certificate_, optimum)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "examples.libsvm"
    lines = [
        f"{label} " + " ".join(f"{k + 1}:{v:.17g}" for k, v in enumerate(row))
        for row, label in zip(X, Y, strict=True)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("phase", "moment"),
    [("make", "after"), *(slowly(*case) for case in (("make", "before"), ("tell", "after")))],
)
def test_a_worker_killed_while_a_source_is_surveyed(client, monkeypatch, source, phase, moment):
    local = mm.LinearClassifier(tol=1e-6).fit(np.array(X), Y).certificate_
    killer = Killer(monkeypatch, phase, moment)
    model = mm.LinearClassifier(engine=client, tol=TOL).fit(open_examples(source))
    assert killer.killed
    check(model.certificate_, local)


@pytest.mark.slow
def test_a_worker_killed_while_a_checkpoint_is_written(client, optimum, monkeypatch, tmp_path):
    checkpoint = mm.Checkpoint(tmp_path / "run.checkpoint", every=0.0, resume=True)
    options = {"tol": TOL, "checkpoint": checkpoint}
    killer = Killer(monkeypatch, "point")
    model = mm.StructuredSVM(Classes(), engine=client, **options).fit(X, Y)
    assert killer.killed
    check(model.certificate_, optimum)
    again = mm.StructuredSVM(Classes(), engine=client, **options).fit(X, Y)
    check(again.certificate_, optimum)


@pytest.mark.slow
def test_workers_killed_three_times_in_a_fit(client, optimum, monkeypatch):
    killer = Killer(monkeypatch, "begin", times=3)
    model = mm.StructuredSVM(Classes(), engine=client, tol=TOL).fit(X, Y)
    assert len(killer.killed) == 3
    check(model.certificate_, optimum)


def test_cancelled_answers_are_lost_ones(client, optimum, monkeypatch):
    call, cancelled = DaskEngine.call, []

    def cancelling_call(engine, worker, function, *arguments):
        pending = call(engine, worker, function, *arguments)
        if question(function, arguments) == "improve" and len(cancelled) < 3:
            engine.client.cancel([pending])
            cancelled.append(worker)
        return pending

    monkeypatch.setattr(DaskEngine, "call", cancelling_call)
    model = mm.StructuredSVM(Classes(), engine=client, tol=TOL).fit(X, Y)
    assert len(cancelled) == 3
    check(model.certificate_, optimum)


def test_answers_whose_transfer_was_cancelled_are_lost_ones(client, optimum, monkeypatch):
    fetch, cancelled = distributed.Future._result, []

    async def cancelling_fetch(pending, *arguments, **options):
        if "ask" in pending.key and len(cancelled) < 3:
            cancelled.append(pending.key)
            raise asyncio.CancelledError
        return await fetch(pending, *arguments, **options)

    monkeypatch.setattr(distributed.Future, "_result", cancelling_fetch)
    model = mm.StructuredSVM(Classes(), engine=client, tol=TOL).fit(X, Y)
    assert len(cancelled) == 3
    check(model.certificate_, optimum)


@pytest.mark.slow
def test_a_worker_that_is_stopped_and_comes_back(client, optimum, monkeypatch):
    call, stopped = DaskEngine.call, []

    def stopping_call(engine, worker, function, *arguments):
        if question(function, arguments) == "hinges" and not stopped:
            stopped.append(kill(engine.client, worker, signal.SIGSTOP))
            os.spawnlp(os.P_NOWAIT, "sh", "sh", "-c", f"sleep 4; kill -CONT {stopped[0]}")
        return call(engine, worker, function, *arguments)

    monkeypatch.setattr(DaskEngine, "call", stopping_call)
    model = mm.StructuredSVM(Classes(), engine=client, tol=TOL).fit(X, Y)
    assert isinstance(stopped[0], int)
    check(model.certificate_, optimum)


@pytest.mark.slow
def test_a_worker_that_is_stopped_for_good_loses_its_shard(client, optimum, monkeypatch):
    call, stopped = DaskEngine.call, []

    def stopping_call(engine, worker, function, *arguments):
        if question(function, arguments) == "improve" and not stopped:
            stopped.append(kill(engine.client, worker, signal.SIGSTOP))
        return call(engine, worker, function, *arguments)

    monkeypatch.setattr(DaskEngine, "call", stopping_call)
    monkeypatch.setattr("maxmargin.training.shards.FORGET_SECONDS", 0.5)
    solver = DistributedDual(local_passes=0.5, patience=5.0)
    model = mm.StructuredSVM(Classes(), engine=client, solver=solver, tol=TOL).fit(X, Y)
    os.kill(stopped[0], signal.SIGKILL)
    check(model.certificate_, optimum)


def lonely_client(**options):
    """A client of one worker, and no nanny to start another."""
    return distributed.Client(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None, **options
    )


@pytest.mark.parametrize("phase", ["hinges", *map(slowly, ["make", "improve"])])
def test_the_last_worker_lost(monkeypatch, phase):
    """Nobody is left: a sentence after so many seconds, in whatever phase."""
    call, closed = DaskEngine.call, []

    def closing_call(engine, worker, function, *arguments):
        pending = call(engine, worker, function, *arguments)
        if question(function, arguments) == phase and not closed:
            closed.append(worker)
            engine.client.cluster.scale(0)
            engine.patience = 2.0
        return pending

    monkeypatch.setattr(DaskEngine, "call", closing_call)
    refused = pytest.raises(EngineError, match=r"has had no worker for 2 seconds: start some")
    with lonely_client() as client, refused:
        mm.StructuredSVM(Classes(), engine=client, tol=TOL).fit(X, Y)
    assert closed


@pytest.mark.parametrize(
    "phase", ["improve", *map(slowly, ["tell", "scatter", "make", "about", "point", "hinges"])]
)
def test_a_scheduler_lost_in_a_phase(monkeypatch, phase, tmp_path, source):
    call, scatter, killed = DaskEngine.call, DaskEngine.scatter, []
    with cluster(tmp_path, 1) as (client, scheduler):

        def kill_scheduler(name):
            if name == phase and not killed:
                killed.append(scheduler.pid)
                scheduler.kill()

        def killing_call(engine, worker, function, *arguments):
            kill_scheduler(question(function, arguments))
            return call(engine, worker, function, *arguments)

        def killing_lend(engine, worker, data):
            kill_scheduler("scatter")
            return scatter(engine, worker, data)

        monkeypatch.setattr(DaskEngine, "call", killing_call)
        monkeypatch.setattr(DaskEngine, "scatter", killing_lend)
        model = mm.LinearClassifier(
            engine=client, checkpoint=mm.Checkpoint(tmp_path / "run.checkpoint", every=0.0)
        )
        data = [open_examples(source)] if phase == "tell" else [np.array(X), Y]
        with pytest.raises(EngineError, match=r"^The connection to the Dask scheduler is lost: "):
            model.fit(*data)
    assert killed


@pytest.mark.slow
def test_a_scheduler_that_is_silent(monkeypatch, tmp_path):
    """It is there, but does not answer any more."""
    call, stopped = DaskEngine.call, []
    with cluster(tmp_path, 1) as (client, scheduler):

        def stopping_call(engine, worker, function, *arguments):
            if question(function, arguments) == "improve" and not stopped:
                stopped.append(scheduler.pid)
                scheduler.send_signal(signal.SIGSTOP)
                engine.patience = 3.0
            return call(engine, worker, function, *arguments)

        monkeypatch.setattr(DaskEngine, "call", stopping_call)
        with pytest.raises(EngineError, match=r"^The connection to the Dask scheduler is lost: "):
            mm.StructuredSVM(Classes(), engine=client, tol=TOL).fit(X, Y)
        scheduler.send_signal(signal.SIGCONT)
    assert stopped
