"""The scripts in examples/ run as they stand there."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run_script(name):
    path = ROOT / "examples" / name
    runpy.run_path(str(path), run_name="__main__")


def test_demo_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_script("demo.py")
    output = capsys.readouterr().out
    assert "Test accuracy" in output
    assert "relative gap" in output


@pytest.mark.parametrize(
    "name", ["own_problem.py", "fast_problem.py", "matching.py", "segments.py", "own_solver.py"]
)
def test_structured_examples_run(name, capsys):
    run_script(name)
    assert "relative gap" in capsys.readouterr().out
