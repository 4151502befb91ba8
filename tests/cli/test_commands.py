"""The command line as its users have it: files in, files out, sentences when something is wrong."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from sklearn.datasets import dump_svmlight_file, load_diabetes, load_digits, load_iris

import maxmargin as mm
from maxmargin.cli.main import app
from maxmargin.structures.constituency.formats import read_trees

COLUMNS = """He PRP B-NP
reckons VBZ B-VP
the DT B-NP
deficit NN I-NP
. . O

The DT B-NP
dog NN I-NP
barks VBZ B-VP
. . O

"""
TREES = """( (S (NP-SBJ (DT The) (NN dog)) (VP (VBZ barks))) )
(S (NP (DT a) (NN cat)) (VP (VBZ sleeps)))
(S (NP (DT the) (JJ big) (NN cat)) (VP (VBZ sees) (NP (DT a) (NN dog))))
"""
CONLLU = """# sent_id = 1
1\tThe\tthe\tDET\tDT\t_\t2\tdet\t_\t_
2\tdog\tdog\tNOUN\tNN\t_\t3\tnsubj\t_\t_
3\tbarks\tbark\tVERB\tVBZ\t_\t0\troot\t_\t_

1\tA\ta\tDET\tDT\t_\t2\tdet\t_\t_
2\tcat\tcat\tNOUN\tNN\t_\t3\tnsubj\t_\t_
3\tsleeps\tsleep\tVERB\tVBZ\t_\t0\troot\t_\t_

"""


def invoke(*arguments, code=0, stdin=None):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
    text = f"{result.stdout}\n{result.stderr}"
    assert result.exit_code == code, f"{text}\n{result.exception!r}"
    return result


@pytest.fixture
def iris(tmp_path):
    X, y = load_iris(return_X_y=True)
    path = tmp_path / "iris.svm"
    dump_svmlight_file(X, y + 1, str(path), zero_based=False)
    return path


@pytest.fixture
def files(tmp_path, iris):
    """A file of each kind."""
    X, y = load_diabetes(return_X_y=True)
    dump_svmlight_file(10 * X, y / 100, str(tmp_path / "diabetes.svm"), zero_based=False)
    (tmp_path / "chunks.txt").write_text(COLUMNS)
    (tmp_path / "trees.mrg").write_text(TREES)
    (tmp_path / "deps.conllu").write_text(CONLLU)
    random = np.random.default_rng(0)
    lines, letor = [], []
    for qid in range(1, 21):
        tag = 0
        for _ in range(4):
            tag = int(random.integers(1, 4))
            lines.append(f"{tag} qid:{qid} {tag}:1 {3 + int(random.integers(1, 4))}:0.5 # w{tag}")
            features = random.random(3)
            relevance = int(features[0] * 3)
            numbers = " ".join(f"{k}:{v:.4f}" for k, v in enumerate(features, start=1))
            letor.append(f"{relevance} qid:{qid} {numbers} # doc{len(letor)}")
    (tmp_path / "hmm.dat").write_text("\n".join(lines) + "\n")
    (tmp_path / "letor.txt").write_text("\n".join(letor) + "\n")
    return tmp_path


CASES = {
    "iris.svm": ("LinearClassifier", 150),
    "diabetes.svm": ("LinearRegressor", 442),
    "chunks.txt": ("SequenceTagger", 11),
    "trees.mrg": ("GrammarParser", 3),
    "deps.conllu": ("DependencyParser", 8),
    "hmm.dat": ("SequenceTagger", 80),
    "letor.txt": ("Ranker", 80),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_train_predict_evaluate_on_every_kind_of_file(files, name):
    estimator, n_lines = CASES[name]
    extra = ["--task", "ranking"] if name == "letor.txt" else []
    extra = ["--task", "tagging"] if name == "hmm.dat" else extra
    model = files / "model.mm"
    invoke("train", files / name, "-o", model, *extra, "--tol", "0.01")
    loaded = mm.load(model)
    assert type(loaded).__name__ == estimator
    predicted = files / "out.txt"
    invoke("predict", model, files / name, "-o", predicted)
    assert len(predicted.read_text().splitlines()) == n_lines
    assert invoke("predict", model, files / name).stdout == predicted.read_text()
    numbers = json.loads(invoke("evaluate", model, files / name, "--json").stdout)
    assert numbers["score"] > (0.3 if estimator == "LinearRegressor" else 0.6)
    facts = json.loads(invoke("inspect", model, "--json").stdout)
    assert facts["estimator"] == estimator
    assert facts["relative_gap"] <= 0.0101


def test_json_is_the_only_output_and_tells_all(iris, tmp_path):
    result = invoke("train", iris, "-o", tmp_path / "m.mm", "--json", "--test", iris, "-C", "2")
    numbers = json.loads(result.stdout)
    assert result.stderr == ""
    assert numbers["status"] == "converged"
    assert numbers["task"] == "classification"
    assert numbers["dual"] <= numbers["objective"]
    assert numbers["relative_gap"] <= 1e-3
    assert numbers["test"]["score"] > 0.9
    assert mm.load(tmp_path / "m.mm").C == 2


def test_quiet_prints_nothing(iris, tmp_path):
    result = invoke("train", iris, "-o", tmp_path / "m.mm", "--quiet")
    assert result.stdout == result.stderr == ""


def test_the_command_line_equals_python(iris, tmp_path):
    invoke("train", iris, "-o", tmp_path / "m.mm", "-C", "0.5", "--seed", "3")
    X, y = mm.data.read_libsvm(iris)
    expected = mm.LinearClassifier(C=0.5, random_state=3, n_jobs=1).fit(X, y.astype(int))
    np.testing.assert_array_equal(mm.load(tmp_path / "m.mm").coef_, expected.coef_)


def test_parameters_can_be_set(iris, tmp_path):
    invoke("train", iris, "-o", tmp_path / "m.mm", "--set", "formulation=weston-watkins",
           "--set", "fit_intercept=False")  # fmt: skip
    model = mm.load(tmp_path / "m.mm")
    assert model.formulation == "weston-watkins"
    assert not model.intercept_.any()
    result = invoke("train", iris, "-o", tmp_path / "m.mm", "--set", "colour=red", code=2)
    assert "no parameter of LinearClassifier" in result.stderr


def test_standard_input_and_compressed_files(iris, tmp_path):
    text = iris.read_bytes()
    (tmp_path / "iris.svm.gz").write_bytes(gzip.compress(text))
    invoke("train", tmp_path / "iris.svm.gz", "-o", tmp_path / "a.mm")
    run = subprocess.run(
        [sys.executable, "-m", "maxmargin.cli.main", "train", "-", "-o", str(tmp_path / "b.mm")],
        input=text, capture_output=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    a, b = mm.load(tmp_path / "a.mm"), mm.load(tmp_path / "b.mm")
    np.testing.assert_array_equal(a.coef_, b.coef_)
    piped = subprocess.run(
        [sys.executable, "-m", "maxmargin.cli.main", "predict", str(tmp_path / "a.mm"), "-"],
        input=text, capture_output=True, check=True,
    )  # fmt: skip
    assert len(piped.stdout.splitlines()) == 150


def test_unseen_features_and_missing_ones_are_no_error(iris, tmp_path):
    invoke("train", iris, "-o", tmp_path / "m.mm", "--quiet")
    (tmp_path / "some.svm").write_text("1 1:5.0\n2 2:3 9:1\n")
    assert len(invoke("predict", tmp_path / "m.mm", tmp_path / "some.svm").stdout.split()) == 2


def test_index_zero_is_remembered(tmp_path):
    rows = sp.csr_array(np.eye(4))
    with (tmp_path / "zero.svm").open("wb") as file:
        dump_svmlight_file(rows, [1, 2, 3, 4], file, zero_based=True)
    invoke("train", tmp_path / "zero.svm", "-o", tmp_path / "m.mm", "-C", "100", "--quiet")
    (tmp_path / "late.svm").write_text("0 1:1\n0 3:1\n")  # does not use the index 0
    assert invoke("predict", tmp_path / "m.mm", tmp_path / "late.svm").stdout.split() == ["2", "4"]


def test_sentences_can_be_parsed_and_tagged_without_truth(files):
    invoke("train", files / "trees.mrg", "-o", files / "p.mm", "--quiet")
    (files / "text.txt").write_text("the dog sleeps\na big cat barks\n")
    trees = read_trees(invoke("predict", files / "p.mm", files / "text.txt").stdout)
    assert [tree.words for tree in trees] == [
        ("the", "dog", "sleeps"),
        ("a", "big", "cat", "barks"),
    ]
    invoke("train", files / "chunks.txt", "-o", files / "t.mm", "--quiet")
    untagged = "".join(" ".join(line.split()[:2]) + "\n" for line in COLUMNS.splitlines())
    (files / "untagged.txt").write_text(untagged)
    lines = invoke("predict", files / "t.mm", files / "untagged.txt").stdout.splitlines()
    assert lines[0].split() == ["He", "PRP", "B-NP"]
    result = invoke("evaluate", files / "t.mm", files / "untagged.txt", code=2)
    assert "no true outputs to compare" in result.stderr


def test_templates_and_hashing(files):
    (files / "template.txt").write_text("columns: word pos\nword[0]\npos[-1..1]\n")
    invoke("train", files / "chunks.txt", "-o", files / "t.mm", "--template",
           files / "template.txt", "--quiet")  # fmt: skip
    names = list(mm.load(files / "t.mm").vocabulary_)
    assert "word[0]=He" in names
    assert not any("suffix" in name for name in names)
    invoke("train", files / "chunks.txt", "-o", files / "h.mm", "--hash", "10", "--quiet")
    assert mm.load(files / "h.mm").n_features_in_ == 1024
    assert invoke("predict", files / "h.mm", files / "chunks.txt").stdout.count("\n") == 11


def test_path_writes_all_models_and_the_best(iris, tmp_path):
    folder = tmp_path / "models"
    result = invoke("path", iris, "-o", folder, "-C", "0.01,1", "--json")
    numbers = json.loads(result.stdout)
    assert [row["C"] for row in numbers["path"]] == [0.01, 1]
    assert sorted(os.listdir(folder)) == ["C=0.01.mm", "C=1.mm", "best.mm"]
    best = max(numbers["path"], key=lambda row: row["score"])
    assert best["C"] == mm.load(folder / "best.mm").C
    page = tmp_path / "report.html"
    invoke("report", folder / "best.mm", "--test", iris, "--path", folder, "-o", page)
    assert "</html>" in page.read_text()


def test_checkpoint_and_resume(iris, tmp_path):
    arguments = [
        "train",
        iris,
        "-o",
        tmp_path / "m.mm",
        "--checkpoint",
        tmp_path / "run",
        "--quiet",
    ]
    invoke(*arguments)
    first = mm.load(tmp_path / "m.mm")
    invoke(*arguments, "--resume")
    assert mm.load(tmp_path / "m.mm").certificate_ == first.certificate_
    assert "checkpoint" not in mm.read_header(tmp_path / "m.mm")["parameters"]


def test_a_stream_reaches_the_same(iris, tmp_path):
    invoke("train", iris, "-o", tmp_path / "m.mm", "--stream", "--tol", "0.01", "--quiet")
    assert mm.load(tmp_path / "m.mm").certificate_.relative_gap <= 0.01
    assert len(invoke("predict", tmp_path / "m.mm", iris).stdout.split()) == 150


def test_time_limit_still_writes_a_model(tmp_path):
    X, y = load_digits(return_X_y=True)
    dump_svmlight_file(X, y, str(tmp_path / "digits.svm"), zero_based=False)
    result = invoke("train", tmp_path / "digits.svm", "-o", tmp_path / "m.mm", "--time-limit",
                    "0.05", "-C", "100", "--tol", "1e-9")  # fmt: skip
    assert "stopped at the time limit" in result.stderr
    assert mm.load(tmp_path / "m.mm").status_ == "time_limit"


def test_ctrl_c_leaves_a_usable_model(tmp_path):
    X, y = load_digits(return_X_y=True)
    dump_svmlight_file(X, y, str(tmp_path / "digits.svm"), zero_based=False)
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from maxmargin.cli.main import app; app()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "train", str(tmp_path / "digits.svm"), "-o",
         str(tmp_path / "m.mm"), "-C", "1000", "--tol", "1e-300", "--max-iter", "1000000000"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    assert "multi-class" in process.stderr.readline()
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):  # a signal may be lost where Python drops exceptions
        process.wait(20)
    process.send_signal(signal.SIGINT)
    process.wait(20)
    assert process.returncode == 130, process.stderr.read()
    assert mm.load(tmp_path / "m.mm").score(X, y) > 0.5


BAD = [
    (["train", "missing.svm", "-o", "m.mm"], 1, "missing.svm"),
    (["train", "bad.svm", "-o", "m.mm"], 3, "bad.svm, line 2"),
    (["train", "empty.svm", "-o", "m.mm"], 3, "empty"),
    (["train", "iris.svm", "-o", "nowhere/m.mm"], 2, "no folder nowhere"),
    (["train", "iris.svm", "-o", "m.mm", "-C", "-1"], 2, "C"),
    (["train", "iris.svm", "-o", "m.mm", "--solver", "magic"], 2, "solver"),
    (["train", "iris.svm", "-o", "m.mm", "--task", "cooking"], 2, "classification"),
    (["train", "iris.svm", "-o", "m.mm", "--format", "penn"], 3, "iris.svm"),
    (["train", "iris.svm", "-o", "m.mm", "--task", "parsing", "--format", "libsvm"], 2, "parsing"),
    (["train", "one.svm", "-o", "m.mm"], 1, "class"),
    (["predict", "iris.svm", "iris.svm"], 3, "iris.svm is not a model file but looks like libsvm"),
    (["predict", "broken.mm", "iris.svm"], 3, "not written by maxmargin"),
    (["evaluate", "nothing.mm", "iris.svm"], 1, "There is no file 'nothing.mm'."),
    (["path", "iris.svm", "-o", "p", "-C", "one,two"], 2, "numbers"),
    (["report", "m0.mm", "--path", "."], 2, "maxmargin path"),
    (["convert", "missing.svm", "folder"], 1, "missing.svm"),
]


@pytest.mark.parametrize(("arguments", "code", "match"), BAD)
def test_bad_usage_and_bad_files_get_one_sentence(arguments, code, match, iris, monkeypatch):
    monkeypatch.chdir(iris.parent)
    Path("bad.svm").write_text("1 1:2\n2 x:3\n")
    Path("empty.svm").write_text("")
    Path("broken.mm").write_bytes(bytes(100))
    Path("one.svm").write_text("1 1:2\n1 1:3\n")
    invoke("train", iris, "-o", "m0.mm", "--quiet", "--max-iter", "5")
    result = invoke(*arguments, code=code)
    lines = [line for line in result.stderr.splitlines() if line.startswith("maxmargin: ")]
    assert len(lines) == 1
    assert match in lines[0]
    assert "Traceback" not in result.stderr


def test_a_model_of_python_is_refused_with_a_sentence(iris, tmp_path):
    X, y = load_iris(return_X_y=True)
    mm.save(mm.LinearClassifier().fit(X, y), tmp_path / "m.mm")
    result = invoke("predict", tmp_path / "m.mm", iris, code=3)
    assert "not trained on the command line" in result.stderr


def test_convert(iris, tmp_path):
    invoke("convert", iris, tmp_path / "folder", "--quiet")
    assert mm.data.open_examples(tmp_path / "folder").n_features == 4


def test_version_and_help():
    assert mm.__version__ in invoke("--version").stdout
    for command in ("train", "predict", "evaluate", "path", "report", "convert", "inspect", "demo"):
        assert "--help" in invoke(command, "--help").stdout
