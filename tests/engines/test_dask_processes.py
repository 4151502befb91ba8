"""A scheduler and workers started by hand, as on a real cluster; and the scheduler killed."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from distributed_problems import SlowSomewhere, class_data
from numpy.testing import assert_allclose

import maxmargin as mm
from maxmargin.data.tensors import read_tensors
from maxmargin.engines.base import EngineError

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.slow


@contextmanager
def cluster(folder, n_workers):
    """A scheduler and workers, and their client."""
    file = folder / "scheduler.json"
    here = Path(__file__).resolve().parents[1]
    environment = os.environ | {"PYTHONPATH": f"{here}:{os.environ.get('PYTHONPATH', '')}"}
    dask = [sys.executable, "-m", "dask"]
    where = ["--scheduler-file", str(file), "--no-dashboard"]
    started = []

    def start(*arguments):
        command = [*dask, *arguments, *where]
        started.append(
            subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, cwd=folder)
        )

    try:
        start("scheduler", "--host", "127.0.0.1", "--port", "0")
        for _ in range(n_workers):
            start("worker", "--nthreads", "1", "--no-nanny", "--host", "127.0.0.1")
        until = time.monotonic() + 60
        while not file.exists() and time.monotonic() < until:
            time.sleep(0.1)
        client = distributed.Client(scheduler_file=str(file), timeout=60)
        client.wait_for_workers(n_workers, timeout=120)
        yield client, started[0]
        client.close(timeout=5)
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


def test_a_killed_scheduler_leaves_a_checkpoint_for_another_cluster(tmp_path):
    X, y = class_data(60)
    # Searches that take a while, so that there is time to kill somebody.
    problem = SlowSomewhere(tmp_path / "nobody", 0.0)
    (tmp_path / "nobody").write_text("0")
    path = tmp_path / "run.checkpoint"
    options = {"tol": 1e-3, "checkpoint": path, "checkpoint_every": 0.0}
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    with cluster(tmp_path / "first", 2) as (client, scheduler):

        def kill():
            while not path.exists():
                time.sleep(0.05)
            os.kill(scheduler.pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.raises(EngineError, match="go on from the last checkpoint"):
            mm.StructuredSVM(problem, engine=client, **options).fit(X, y)
        killer.join()
    header, _ = read_tensors(path)
    before = header["seconds"]
    with cluster(tmp_path / "second", 1) as (client, _):
        model = mm.StructuredSVM(problem, engine=client, resume=True, **options).fit(X, y)
    assert model.certificate_.relative_gap <= 1e-3
    assert model.history_[-1].seconds > before
    local = mm.StructuredSVM(problem).fit(X, y)
    assert_allclose(model.certificate_.primal, local.certificate_.primal, rtol=2e-3)
