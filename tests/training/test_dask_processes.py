"""A scheduler and workers started by hand, as on a real cluster; and the scheduler killed."""

import os
import signal
import threading
import time

import pytest
from distributed_problems import SlowSomewhere, class_data, cluster
from numpy.testing import assert_allclose

import maxmargin as mm
from maxmargin.io.files import read_tensors
from maxmargin.training.engines import EngineError

pytest.importorskip("distributed")
pytestmark = pytest.mark.slow


def test_a_killed_scheduler_leaves_a_checkpoint_for_another_cluster(tmp_path):
    X, y = class_data(60)
    # Searches that take a while, so that there is time to kill somebody.
    problem = SlowSomewhere(tmp_path / "nobody", 0.0)
    (tmp_path / "nobody").write_text("0")
    path = tmp_path / "run.checkpoint"
    options = {"tol": 1e-3, "checkpoint": mm.Checkpoint(path, every=0.0, resume=True)}
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
        model = mm.StructuredSVM(problem, engine=client, **options).fit(X, y)
    assert model.certificate_.relative_gap <= 1e-3
    assert model.history_[-1].seconds > before
    local = mm.StructuredSVM(problem).fit(X, y)
    assert_allclose(model.certificate_.primal, local.certificate_.primal, rtol=2e-3)
