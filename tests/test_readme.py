"""The examples of the README and the docs run as they stand there, and so do those in examples/."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = [
    pytest.param(code, id=f"{page}-{number}")
    for page in (
        "README.md",
        "docs/structured.md",
        "docs/ranking.md",
        "docs/performance.md",
        "docs/dependencies.md",
        "docs/labels.md",
        "docs/grammars.md",
        "docs/graphs.md",
        "docs/checkpoints.md",
        "docs/data.md",
        "docs/latent.md",
        "docs/kernels.md",
        "docs/pose.md",
    )
    for number, code in enumerate(
        re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    )
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_runs(example, capsys):
    exec(compile(example, "example", "exec"), {})
    assert capsys.readouterr().out.strip()


def test_there_are_examples():
    assert len(EXAMPLES) >= 8


def run_script(name):
    path = ROOT / "examples" / name
    runpy.run_path(str(path), run_name="__main__")


def test_demo_runs(capsys):
    run_script("demo.py")
    output = capsys.readouterr().out
    assert "Test accuracy" in output
    assert "relative gap" in output


@pytest.mark.parametrize("name", ["own_problem.py", "fast_problem.py", "matching.py"])
def test_structured_examples_run(name, capsys):
    run_script(name)
    assert "relative gap" in capsys.readouterr().out
