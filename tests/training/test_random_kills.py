"""Workers killed at random moments of real fits: fifty of them, ten for each kind of fit."""

import os
import random
import signal
import threading
import time

import numpy as np
import pytest
from distributed_problems import Classes, class_data, tagging_data
from numpy.testing import assert_allclose

import maxmargin as mm
from maxmargin.data import DaskSource, open_examples
from maxmargin.solvers.cutting_plane import OneSlack
from maxmargin.training.distributed_dual import DistributedDual

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
bag = pytest.importorskip("dask.bag")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

TOL, KILLS = 0.05, 10
X, Y = class_data(60)
SEQUENCES = tagging_data(60)


@pytest.fixture(scope="module")
def client():
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "10 minutes"}),
        distributed.LocalCluster(
            n_workers=3, threads_per_worker=1, dashboard_address=None, processes=True
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.wait_for_workers(3, timeout=300)
        yield client


def rows_file(folder):
    path = folder / "rows.libsvm"
    rows = (" ".join(f"{k + 1}:{v:.17g}" for k, v in enumerate(row)) for row in X)
    path.write_text("".join(f"{y} {row}\n" for y, row in zip(Y, rows, strict=True)))
    return path


def pairs():
    return DaskSource(bag.from_sequence(list(zip(*SEQUENCES, strict=True)), npartitions=5))


FITS = {
    "structured, dual": (
        lambda **options: mm.StructuredSVM(Classes(), solver=DistributedDual(), **options),
        lambda folder: (X, Y),
        (X, Y),
    ),
    "structured, one-slack": (
        lambda **options: mm.StructuredSVM(Classes(), solver=OneSlack(), **options),
        lambda folder: (X, Y),
        (X, Y),
    ),
    "linear, dual, memory": (
        lambda **options: mm.LinearClassifier(**options),
        lambda folder: (np.array(X), Y),
        (np.array(X), Y),
    ),
    "linear, one-slack, file": (
        lambda **options: mm.LinearClassifier(solver="one-slack", **options),
        lambda folder: (open_examples(rows_file(folder)),),
        (np.array(X), Y),
    ),
    "tagger, dual, bag": (
        lambda **options: mm.SequenceTagger(**options),
        lambda folder: (pairs(),),
        SEQUENCES,
    ),
}


class Killer(threading.Thread):
    """Kills a worker after so many seconds, unless the fit has ended before."""

    def __init__(self, pid, seconds):
        super().__init__(daemon=True)
        self.pid, self.seconds = pid, seconds
        self.fit_ended, self.killed = threading.Event(), False

    def run(self):
        if not self.fit_ended.wait(self.seconds):
            os.kill(self.pid, signal.SIGKILL)
            self.killed = True


@pytest.mark.parametrize("name", FITS)
def test_workers_killed_at_random(client, name, tmp_path):
    make, data, here = FITS[name]
    local_options = {} if "one-slack, file" not in name else {"solver": "auto"}
    local = make(tol=1e-5).set_params(**local_options, engine="threads")
    optimum = local.fit(*here).certificate_
    seed, kills, usual = random.Random(name), 0, 3.0
    while kills < KILLS:
        client.wait_for_workers(3, timeout=300)
        pids = client.run(os.getpid, on_error="ignore")  # of one that is being killed
        pid = seed.choice(sorted(pids.values()))
        killer = Killer(pid, seed.uniform(0.0, usual))
        started = time.monotonic()
        killer.start()
        certificate = make(engine=client, tol=TOL).fit(*data(tmp_path)).certificate_
        killer.fit_ended.set()
        killer.join()
        kills += killer.killed
        if not killer.killed:  # it was too late
            usual = 0.9 * (time.monotonic() - started)
        assert certificate.relative_gap <= TOL
        assert certificate.dual <= optimum.primal * (1 + 1e-5)
        assert certificate.primal >= optimum.dual * (1 - 1e-5)
        assert_allclose(certificate.primal, optimum.primal, rtol=TOL / (1 - TOL))
