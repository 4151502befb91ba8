"""Ctrl-C as a terminal sends it: to the driver and to all processes that it has started."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import signal
import sys
import maxmargin as mm
from distributed_problems import Classes, class_data


class Telling:
    setup = teardown = on_fit_task_begin = lambda self, *arguments, **more: None

    def on_fit_task_end(self, *arguments, **more):
        print("round", flush=True)


def fit(engine):
    model = mm.StructuredSVM(Classes(), tol=1e-12, max_iter=10**6, engine=engine, n_jobs=2)
    model.set_callbacks(Telling()).fit(*class_data(200))
    print(model.status_, model.certificate_.relative_gap < 1.0, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which jobs in the background ignore
    if sys.argv[1] == "processes":
        fit("processes")
    else:
        from distributed import Client

        with Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
            fit(client)
"""


@pytest.mark.parametrize("engine", ["processes", pytest.param("dask", marks=pytest.mark.slow)])
def test_workers_stay_to_certify(engine, tmp_path):
    if engine == "dask":
        pytest.importorskip("distributed")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    here = Path(__file__).resolve().parents[1]
    environment = os.environ | {"PYTHONPATH": f"{here}:{os.environ.get('PYTHONPATH', '')}"}
    with subprocess.Popen(
        [sys.executable, script, engine],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            for _ in range(3):
                assert process.stdout.readline() == "round\n"
            os.killpg(process.pid, signal.SIGINT)
            output, errors = process.communicate(timeout=120)
        finally:
            process.kill()
    assert output.splitlines()[-1:] == ["interrupted True"], errors
    assert not re.search("Process Loky|process died", errors)  # no worker has died of it
