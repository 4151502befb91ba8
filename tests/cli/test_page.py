"""The commands on the page about the command line run as they stand there."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from maxmargin.cli.main import app

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"


def commands():
    """Commands of the page, those with a text of several lines whole."""
    blocks = re.findall(r"```bash\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return re.findall(r".*<<'END'\n(?s:.*?)\nEND\n|.+\n", "".join(blocks))


def run_plain(command):
    """In this process: starting Python anew for each command would take most of the time."""
    result = CliRunner().invoke(app, shlex.split(command)[1:])
    return result.exit_code, result.stdout, result.stderr


def run_in_shell(command):
    here = str(Path(sys.executable).parent)  # where `maxmargin` and `python` are
    environment = os.environ | {"PATH": f"{here}{os.pathsep}{os.environ['PATH']}"}
    shell = ["bash", "-euo", "pipefail", "-c", command]
    done = subprocess.run(shell, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_the_commands_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = ""
    assert len(commands()) > 15
    for command in commands():
        plain = command.startswith("maxmargin ") and "|" not in command
        code, output, errors = (run_plain if plain else run_in_shell)(command)
        assert code == 0, f"{command}{errors}"
        said += output
    assert (tmp_path / "report.html").stat().st_size > 10_000
    assert "reckons VBZ B-VP B-VP" in said
