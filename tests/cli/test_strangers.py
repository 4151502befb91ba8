"""What people who have used other programs for years try first."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from matplotlib.figure import Figure
from sklearn.datasets import dump_svmlight_file, load_iris

import maxmargin as mm
from maxmargin.cli import files
from maxmargin.cli.main import app
from maxmargin.cli.training import in_words_of_options
from maxmargin.report.plots import plot_matrix

COLUMNS = "He PRP B-NP\nreckons VBZ B-VP\n. . O\n\nThe DT B-NP\ndog NN I-NP\nbarks VBZ B-VP\n\n"


def invoke(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, f"{result.stdout}\n{result.stderr}\n{result.exception!r}"
    return result


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with data to stand in."""
    monkeypatch.chdir(tmp_path)
    X, y = load_iris(return_X_y=True)
    dump_svmlight_file(X, y + 1, "iris.svm", zero_based=False)
    Path("chunks.txt").write_text(COLUMNS)
    Path("labels.svm").write_text("1,2 1:1\n2 2:1\n\n1 1:1 2:1\n1,2 1:2\n")
    Path("folder").mkdir()
    return tmp_path


REFUSED_BEFORE_TRAINING = [
    (["-o", "folder"], 2, "folder is a folder"),
    (["-o", "."], 2, "is a folder"),
    (["-o", "-"], 2, "Only predictions can be written to standard output"),
    (["--test", "missing.svm"], 1, "no file 'missing.svm'"),
    (["--prune", "-1"], 2, "--prune must be"),
    (["--prune", "nan"], 2, "--prune must be"),
    (["--checkpoint", "nowhere/state"], 2, "no folder nowhere"),
    (["--resume"], 2, "--checkpoint FILE"),
    (["-e", "0.1"], 2, "-e needs --svmstruct"),
    (["--svmstruct", "--tol", "0.1"], 2, "give -e instead of --tol"),
    (["--svmstruct", "-e", "-5"], 2, "-e must be a positive"),
    (["--svmstruct", "-c", "-5"], 2, "but is -5.0"),
    (["--svmstruct", "--stream"], 2, "cannot be combined"),
    (["--solver", "n-slack"], 2, "--solver of LinearClassifier must be "),
    (["--set", "fit_intercept=maybe"], 2, "--set fit_intercept of LinearClassifier must be True"),
    (["--set", "prior=flat"], 2, "only in Python"),
    (["--seed", "-1"], 2, "--seed of LinearClassifier must be an int"),
]


@pytest.mark.parametrize(("options", "code", "match"), REFUSED_BEFORE_TRAINING)
def test_what_cannot_be_is_said_before_the_data_are_read(here, options, code, match):
    output = [] if "-o" in options else ["-o", "m.mm"]
    result = invoke("train", "iris.svm", *output, *options, code=code)
    assert match in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not Path("m.mm").exists()


@pytest.mark.parametrize("options", [["--threads", "0"], ["--hash", "0"], ["--hash", "31"]])
def test_numbers_out_of_range_are_bad_usage(here, options):
    assert options[1] in invoke("train", "chunks.txt", "-o", "m.mm", *options, code=2).stderr


def test_other_commands_check_their_places_first(here):
    invoke("train", "iris.svm", "-o", "m.mm", "-q")
    Path("file").write_text("")
    for arguments in (
        ["path", "iris.svm", "-o", "file"],
        ["report", "m.mm", "-o", "folder"],
        ["predict", "m.mm", "iris.svm", "-o", "nowhere/out"],
    ):
        assert "Errno" not in invoke(*arguments, code=2).stderr
    result = invoke("path", "iris.svm", "-o", "models", "--test", "missing.svm", code=1)
    assert len(result.stderr.splitlines()) == 1


def test_nothing_that_is_read_is_written_over(here):
    before = Path("iris.svm").read_text()
    invoke("train", "iris.svm", "-o", "m.mm", "-q")
    for arguments in (
        ["train", "iris.svm", "-o", "iris.svm"],
        ["train", "iris.svm", "-o", "../" + here.name + "/iris.svm"],
        ["predict", "m.mm", "iris.svm", "-o", "iris.svm"],
        ["predict", "m.mm", "iris.svm", "-o", "m.mm"],
        ["report", "m.mm", "-o", "m.mm"],
    ):
        assert "is an input, too" in invoke(*arguments, code=2).stderr
    assert Path("iris.svm").read_text() == before
    invoke("train", "iris.svm", "-o", "m.mm", "-q")  # an older model may be replaced


def test_a_folder_is_no_model(here):
    assert "is a folder" in invoke("predict", "folder", "iris.svm", code=3).stderr


def test_sentences_about_parameters():
    assert in_words_of_options(
        "The 'n_jobs' parameter of A must be an int in the range [1, 3] or None. Got 7 instead."
    ) == ("--threads of A must be an int in the range [1, 3], but is 7.")
    assert in_words_of_options(
        "The 'loss' parameter of A must be a str among {'b', 'a'} or an instance of 'x.y.Z'. "
        "Got 'c' instead."
    ) == ("--set loss of A must be one of 'a', 'b', but is 'c'.")
    assert in_words_of_options("Something else.") == "Something else."


def test_words_of_other_languages_are_truth_values(here):
    invoke("train", "iris.svm", "-o", "m.mm", "-q", "--set", "fit_intercept=false")
    assert not mm.load("m.mm").intercept_.any()


def test_a_threshold_that_drops_everything_keeps_the_model(here):
    result = invoke("train", "iris.svm", "-o", "m.mm", "--prune", "1e6", code=2)
    assert "m.mm has all weights" in result.stderr
    assert mm.load("m.mm").coef_.any()


def test_a_model_that_cannot_be_written_to_its_place_is_kept(here, monkeypatch):
    save = mm.save

    def full(estimator, path, **options):
        if path.name == path.as_posix():  # the place that was asked for
            raise OSError(28, "No space left on device")
        return save(estimator, path, **options)

    monkeypatch.setattr(files.mm, "save", full)
    monkeypatch.setattr(files.tempfile, "tempdir", str(here / "folder"))
    result = invoke("train", "iris.svm", "-o", "m.mm", code=1)
    assert "m.mm could not be written, No space left on device; the model is in" in result.stderr
    (kept,) = Path("folder").rglob("m.mm")
    assert mm.load(kept).classes_.tolist() == [1, 2, 3]


def test_a_converted_folder_is_data_like_a_file(here):
    invoke("convert", "iris.svm", "iris.csr", "-q")
    invoke("train", "iris.svm", "-o", "a.mm", "-q")
    invoke("train", "iris.csr", "-o", "b.mm", "-q")
    np.testing.assert_array_equal(mm.load("a.mm").coef_, mm.load("b.mm").coef_)
    expected = invoke("predict", "a.mm", "iris.svm").stdout
    assert invoke("predict", "b.mm", "iris.csr").stdout == expected
    invoke("train", "iris.csr", "-o", "c.mm", "-q", "--stream", "--tol", "0.01")
    assert json.loads(invoke("evaluate", "c.mm", "iris.csr", "--json").stdout)["score"] > 0.9
    assert "regression" in invoke("train", "iris.csr", "-o", "d.mm", "--task", "regression").stderr
    invoke("train", "iris.csr", "-o", "d.mm", "--task", "tagging", code=2)
    invoke("train", "folder", "-o", "d.mm", code=1)


def test_streamed_models_know_their_labels_and_indices(here):
    invoke("train", "iris.svm", "-o", "m.mm", "-q", "--stream", "--tol", "0.01")
    assert mm.load("m.mm").classes_.dtype.kind == "i"
    assert set(invoke("predict", "m.mm", "iris.svm").stdout.split()) <= {"1", "2", "3"}
    Path("zero.svm").write_text("1 0:5 1:1\n")
    assert "zero.svm, line 1" in invoke("predict", "m.mm", "zero.svm", code=3).stderr
    result = invoke("train", "labels.svm", "-o", "m.mm", "--stream", "--task", "multilabel", code=2)
    assert "for classification and regression of LIBSVM files" in result.stderr
    assert (
        "give a file, not standard input"
        in invoke("train", "-", "-o", "m.mm", "--stream", code=2).stderr
    )


def test_data_of_another_kind_than_the_model_is_for(here):
    invoke("train", "chunks.txt", "-o", "tagger.mm", "-q")
    invoke("train", "iris.svm", "-o", "classifier.mm", "-q")
    result = invoke("predict", "tagger.mm", "iris.svm", code=3)
    assert (
        "looks like libsvm (classification), but the model was trained on columns files (tagging)"
        in result.stderr
    )
    result = invoke("evaluate", "classifier.mm", "chunks.txt", code=3)
    assert (
        "looks like columns (tagging), but the model was trained on libsvm files (classification)"
        in result.stderr
    )
    Path("wide.txt").write_text(COLUMNS.replace("He PRP", "He PRP x").split("\n")[0] + "\n")
    assert "has 4 columns" in invoke("predict", "tagger.mm", "wide.txt", code=3).stderr
    Path("empty").write_text("")
    for model in ("tagger.mm", "classifier.mm"):
        assert "empty is empty" in invoke("predict", model, "empty", code=3).stderr
    invoke("path", "iris.svm", "-o", "models", "-C", "0.1,1", "--json")
    result = invoke("report", "tagger.mm", "--path", "models", "-o", "r.html", code=2)
    assert "another class" in result.stderr


def test_a_broken_line_of_a_short_file_is_named(here):
    Path("bad.txt").write_text(COLUMNS.replace("barks VBZ B-VP", "barks VBZ"))
    assert "bad.txt, line 7: " in invoke("train", "bad.txt", "-o", "m.mm", code=3).stderr


def test_text_in_another_encoding(here):
    Path("latin.txt").write_bytes(COLUMNS.replace("dog", "caf\xe9").encode("latin-1"))
    assert "--encoding latin-1" in invoke("train", "latin.txt", "-o", "m.mm", code=3).stderr
    invoke("train", "chunks.txt", "-o", "m.mm", "-q")
    assert "--encoding latin-1" in invoke("predict", "m.mm", "latin.txt", code=3).stderr
    assert "café" in invoke("predict", "m.mm", "latin.txt", "--encoding", "latin-1").stdout
    invoke("train", "iris.svm", "-o", "c.mm", "-q")
    invoke("predict", "c.mm", "iris.svm", "--encoding", "latin-1", code=2)


def test_every_score_has_a_name(here):
    Path("numbers.svm").write_text("".join(f"{i / 3} 1:{i}\n" for i in range(1, 9)))
    Path("trees.mrg").write_text("(S (NP (DT the) (NN dog)) (VP (VBZ barks)))\n" * 2)
    for name in ("labels.svm", "numbers.svm", "trees.mrg"):
        extra = ["--task", "multilabel"] if name == "labels.svm" else []
        invoke("train", name, "-o", "m.mm", "-q", "--tol", "0.1", *extra)
        numbers = json.loads(invoke("evaluate", "m.mm", name, "--json").stdout)
        assert numbers["score"] in numbers["scores"].values()


def test_features_that_are_too_large_are_blamed(here):
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 5)) * [1, 10, 1e3, 1e5, 1e6]
    dump_svmlight_file(X, np.arange(60) % 3, "large.svm", zero_based=False)
    result = invoke("train", "large.svm", "-o", "m.mm", "--max-iter", "5")
    assert "features are as large as" in result.stderr
    assert "as large" not in invoke("train", "iris.svm", "-o", "m.mm", "--max-iter", "1").stderr
    bounded = "--set", "nonnegative=true"  # which leaves no way but updates
    numbers = json.loads(invoke("train", "large.svm", "-o", "m.mm", "--json", *bounded).stdout)
    assert numbers["status"] == "max_iter"
    assert "features are as large as" in numbers["cause"]


def test_other_warnings_of_a_fit_are_shown(here, monkeypatch):
    def fit(self, X, y):
        warnings.warn("The disc is full.", UserWarning, stacklevel=2)
        return original(self, X, y)

    original = mm.LinearClassifier.fit
    monkeypatch.setattr(mm.LinearClassifier, "fit", fit)
    result = invoke("train", "iris.svm", "-o", "m.mm", "-q", "--max-iter", "1")
    assert "The disc is full." in result.stderr
    assert "LinearClassifier was stopped" not in result.stderr


def test_what_cannot_be_printed_is_one_sentence(here):
    invoke("train", "iris.svm", "-o", "m.mm", "-q")
    command = [sys.executable, "-m", "maxmargin", "inspect", "m.mm", "--json"]
    if Path("/dev/full").exists():
        with open("/dev/full", "w") as full:
            run = subprocess.run(
                command, stdout=full, stderr=subprocess.PIPE, text=True, check=False
            )
        assert run.returncode == 1
        assert run.stderr == "maxmargin: No space left on device.\n"


def test_a_full_disk_is_named(here):
    invoke("train", "iris.svm", "-o", "m.mm", "-q")
    if Path("/dev/full").exists():
        result = invoke("predict", "m.mm", "iris.svm", "-o", "/dev/full", code=1)
        assert result.stderr == "maxmargin: No space left on device: /dev/full.\n"


def test_a_report_is_whole_or_not_there(here, monkeypatch):
    invoke("train", "iris.svm", "-o", "m.mm", "-q")
    Path("r.html").write_text("the old one")

    def fail(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    invoke("report", "m.mm", "-o", "r.html", code=1)
    assert Path("r.html").read_text() == "the old one"
    assert not list(here.glob(".r.html*"))


def test_a_fit_without_a_single_round_is_still_a_model(here):
    result = invoke("train", "iris.svm", "-o", "m.mm", "--time-limit", "1e-9", "--json")
    numbers = json.loads(result.stdout)
    assert (numbers["status"], numbers["iterations"], numbers["oracle_calls"]) == (
        "time_limit",
        0,
        0,
    )
    assert numbers["dual"] <= numbers["objective"]
    assert len(invoke("predict", "m.mm", "iris.svm").stdout.split()) == 150
    invoke("inspect", "m.mm")
    invoke("report", "m.mm", "--test", "iris.svm", "-o", "r.html")


def test_standard_input_is_not_asked_for_twice(here):
    assert "once" in invoke("train", "-", "-o", "m.mm", "--test", "-", code=2).stderr


def test_reports_count_features_as_the_file_does(here):
    Path("two.svm").write_text("1 1:1 2:3\n2 1:3 2:1\n1 2:2\n2 1:2\n")
    invoke("train", "two.svm", "-o", "m.mm", "-q")
    invoke("report", "m.mm", "--test", "two.svm", "-o", "r.html")
    page = Path("r.html").read_text()
    assert "feature 2" in page
    assert "feature 0" not in page
    assert "counted from 0" not in page


def test_numbers_fit_into_the_cells_of_a_heat_map():
    figure = Figure()
    values = np.array([[0.2345678, -0.00123], [-0.0512, 0.0]])
    plot_matrix(values, ["a", "b"], ax=(axis := figure.subplots()))
    assert [text.get_text() for text in axis.texts] == [".23", "-.05"]
    plot_matrix(100 * values, ["a", "b"], ax=(axis := figure.subplots()))
    assert [text.get_text() for text in axis.texts] == ["23", "-5"]
    plot_matrix(values / 1000, ["a", "b"], ax=(axis := Figure().subplots()))
    assert not axis.texts  # a bar of colours instead
    plot_matrix(np.array([[12345, 0], [1, 2]]), ["a", "b"], ax=(axis := Figure().subplots()))
    assert [text.get_text() for text in axis.texts] == ["12345", "1", "2"]


def test_short_help():
    assert "train" in invoke("-h").stdout
    assert "--output" in invoke("train", "-h").stdout


def test_weights_that_are_hardly_better_than_none_are_noted(here):
    result = invoke("train", "iris.svm", "-o", "m.mm", "-C", "1e-9")
    assert "note: The weights are hardly better than none: take a larger C" in result.output
