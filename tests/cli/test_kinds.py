"""A file of another kind than the model's is refused with a sentence that names both."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from kinds_of_files import FILES

from maxmargin.cli.main import app

MAY_BE_EITHER = {
    ("libsvm (regression)", "libsvm (classification)"),
    ("libsvm (multilabel)", "libsvm (classification)"),
}
"""Models, and files that may as well be of their kind: whole numbers, one label in each line."""


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A file of each kind, and a model of each."""
    folder = tmp_path_factory.mktemp("kinds")
    for kind, content in FILES.items():
        (folder / f"{kind}.txt").write_text(content)
        task = ["--task", kind.split("(")[1][:-1], "--format", kind.split()[0]]
        options = ["-o", folder / f"{kind}.mm", "-q", "--tol", "0.1", "--max-iter", "20", *task]
        result = invoke("train", folder / f"{kind}.txt", *options)
        assert result.exit_code == 0, result.output
    return folder


@pytest.mark.parametrize("model", FILES)
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("command", ["evaluate", "predict", "report"])
def test_every_model_on_every_file(folder, model, file, command):
    trained, path = folder / f"{model}.mm", folder / f"{file}.txt"
    options = ["--test", path, "-o", folder / "page.html"] if command == "report" else [path]
    result = invoke(command, trained, *options)
    if model == file or (model, file) in MAY_BE_EITHER:
        assert result.exit_code == 0, result.output
        return
    assert result.exit_code == 3, result.output
    assert len(result.stderr.splitlines()) == 1
    format_, task = model.split()
    if (model, file) == ("penn (parsing)", "columns (tagging)"):
        assert "looks like columns with empty lines between them" in result.stderr
        return
    assert (
        f"looks like {file}, but the model was trained on {format_} files {task}" in result.stderr
    )


def test_standard_input_is_looked_at_as_well(folder):
    model = folder / "libsvm (classification).mm"
    command = [sys.executable, "-m", "maxmargin", "evaluate", str(model), "-"]
    result = subprocess.run(
        command, input=FILES["svm-hmm (tagging)"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 3
    assert "standard input looks like svm-hmm (tagging), but the model" in result.stderr


def test_a_file_that_was_said_to_be_something_else_stays_that(folder, tmp_path):
    """A model whose training file looked like another kind goes on reading such files."""
    path, model = folder / "svm-hmm (tagging).txt", tmp_path / "m.mm"
    options = ["--task", "classification", "--format", "libsvm", "-o", model, "-q"]
    assert invoke("train", path, *options).exit_code == 0
    assert invoke("evaluate", model, path).exit_code == 0
    assert invoke("evaluate", model, folder / "libsvm (classification).txt").exit_code == 0


def test_what_nobody_can_tell_is_said_and_not_refused(folder, tmp_path):
    path = tmp_path / "two.txt"
    path.write_text("1 qid:1 1:1 2:1\n2 qid:1 1:1 2:1\n")
    result = invoke("predict", folder / "svm-hmm (tagging).mm", path)
    assert result.exit_code == 0
    assert "note: " in result.stderr
    assert "looks like letor (ranking), but the model was trained on svm-hmm" in result.stderr


def test_a_test_file_is_looked_at_before_the_training(folder, tmp_path):
    other, model = folder / "svm-hmm (tagging).txt", tmp_path / "m.mm"
    options = ["-o", model, "--test", other]
    result = invoke("train", folder / "libsvm (classification).txt", *options)
    assert result.exit_code == 3
    assert "looks like svm-hmm (tagging)" in result.stderr
    assert not model.exists()


def test_cost_is_a_sample_weight(tmp_path, monkeypatch):
    """As SVM-light has it; examples of no weight do not count."""
    monkeypatch.chdir(tmp_path)
    Path("plain.svm").write_text("1 1:1\n-1 1:-1\n-1 1:0.8\n" * 4)
    Path("costs.svm").write_text("1 cost:3 1:1\n-1 cost:3 1:-1\n-1 cost:0 1:0.8\n" * 4)
    Path("bare.svm").write_text("1 1:1\n-1 1:-1\n" * 12)
    objectives = {}
    for name in ("plain", "costs", "bare"):
        result = invoke("train", f"{name}.svm", "-o", f"{name}.mm", "--tol", "1e-6", "--json")
        assert result.exit_code == 0, result.output
        objectives[name] = json.loads(result.stdout)["objective"]
    assert objectives["costs"] == pytest.approx(objectives["bare"], rel=1e-5)
    assert objectives["plain"] > 1.5 * objectives["bare"]
    assert invoke("evaluate", "plain.mm", "costs.svm").exit_code == 0
    assert "weights after cost:" in invoke("evaluate", "plain.mm", "costs.svm").stderr
    result = invoke("train", "costs.svm", "-o", "s.mm", "--stream")
    assert result.exit_code == 3
    assert "command line without --stream only" in result.stderr
    assert invoke("path", "costs.svm", "-o", "folder", "-C", "0.1,1").exit_code == 0
