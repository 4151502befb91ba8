"""The README's examples run as they stand there."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_example_runs(example, capsys):
    exec(compile(example, str(README), "exec"), {})
    assert capsys.readouterr().out.strip()


def test_there_are_examples():
    assert len(EXAMPLES) >= 4


def test_demo_runs(capsys):
    demo = Path(__file__).parents[1] / "examples" / "demo.py"
    exec(compile(demo.read_text(encoding="utf-8"), str(demo), "exec"), {"__name__": "__main__"})
    output = capsys.readouterr().out
    assert "Test accuracy" in output
    assert "relative gap" in output
