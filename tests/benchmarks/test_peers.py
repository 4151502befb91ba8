"""The peers of the benchmarks: what they are asked to minimise, and programs given by path."""

import argparse
import stat
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris

import maxmargin as mm
from benchmarks import dlib_peer, svmstruct, svmstruct_programs
from benchmarks.common import Data
from benchmarks.contenders import (
    AVERAGED,
    COSTS,
    LIBLINEAR,
    LINEAR_SVC,
    LINEAR_SVR,
    MAKERS,
    ONE,
    SGD,
    WABBIT,
    missing,
)
from benchmarks.race import race, ratio_row, shown
from benchmarks.tasks import BINARY, CRAMMER_SINGER, ONE_VERSUS_REST, REGRESSION, Task
from maxmargin.data import FileFormatError, read_libsvm, read_svm_hmm


@pytest.fixture
def iris() -> Data:
    X, y = load_iris(return_X_y=True)
    return Data("iris", sp.csr_matrix(X / X.max(axis=0)), y)


def two_classes(data: Data) -> Data:
    return data.some(data.y > 0)._replace(y=data.y[data.y > 0] - 1)


SAME = {
    CRAMMER_SINGER: (LIBLINEAR, LINEAR_SVC),
    ONE_VERSUS_REST: (LIBLINEAR, LINEAR_SVC, SGD, AVERAGED),
    BINARY: (LIBLINEAR, LINEAR_SVC, SGD, AVERAGED),
    REGRESSION: (LIBLINEAR, LINEAR_SVR),
}
CASES = [(one, peer) for one, peers in SAME.items() for peer in peers]


@pytest.mark.parametrize(
    ("formulation", "peer"), CASES, ids=[f"{one.name}, {peer}" for one, peer in CASES]
)
def test_peer_minimises_the_same_objective(iris, formulation, peer):
    if missing(peer):
        pytest.skip(missing(peer))
    data = two_classes(iris) if formulation is BINARY else iris
    if formulation is REGRESSION:
        data = data._replace(y=data.X[:, 0].toarray()[:, 0] * 3.0 + 0.1 * data.y)
    task = Task(data, formulation, epsilon=0.1 if formulation is REGRESSION else 0.0)
    best = task.fit(tol=1e-8, max_iter=10**6).certificate_
    contender = MAKERS[peer](task)
    tight = 3000 if peer in (SGD, AVERAGED) else 1e-6
    value = task.value(contender.weights(contender.train(tight)))
    assert (
        best.dual * (1 - 1e-9) <= value <= best.dual * (1.02 if peer in (SGD, AVERAGED) else 1.001)
    )


@pytest.mark.parametrize(("who", "two"), [(WABBIT, True), (WABBIT, False), (COSTS, False)])
def test_weights_read_from_vowpal_wabbit_classify_as_it_does(iris, tmp_path, who, two):
    workspace = pytest.importorskip("vowpalwabbit").Workspace
    from benchmarks.vowpal import Wabbit, lines

    data = two_classes(iris) if two else iris
    task = Task(data, BINARY if two else ONE_VERSUS_REST)
    wabbit = Wabbit(task, costs=who == COSTS)
    weights = wabbit.train(5)
    assert weights.shape == (4, 1 if two else 3)
    # The program's own answers, from a model that it keeps itself.
    text, answers = tmp_path / "rows", tmp_path / "answers"
    text.write_text(lines(data.X, [""] * len(data.y)))
    wabbit._run(f"--cache_file {wabbit.cache} --passes 5 -f {tmp_path / 'model'}")
    call = f"-t -d {text} -i {tmp_path / 'model'} -p {answers} --quiet"
    workspace(arg_list=call.split()).finish()
    theirs = np.array([float(line.split()[0]) for line in answers.read_text().split("\n") if line])
    scores = np.asarray(data.X @ weights)
    if two:
        np.testing.assert_allclose(np.clip(scores[:, 0], -1, 1), theirs, atol=1e-4)
    else:
        assert np.mean(scores.argmax(axis=1) + 1 == theirs) > 0.99


def options(**more: object) -> argparse.Namespace:
    common = {"quick": True, "repeats": 2, "repeat_limit": 5.0, "search_limit": 5.0}
    return argparse.Namespace(search="new", check=False, reference_limit=5.0, **common | more)


def test_race_is_plain_numbers_and_names_who_is_missing(iris, monkeypatch, tmp_path):
    monkeypatch.setattr("benchmarks.recording.RESULTS", tmp_path)
    absent = "benchmarks.contenders.package_version"
    monkeypatch.setattr(absent, lambda name: "" if name == LIBLINEAR else "1.0")
    found = race(Task(iris, CRAMMER_SINGER), options(), (ONE, LIBLINEAR, LINEAR_SVC), iris)
    assert set(found["finishes"]) == {ONE, LINEAR_SVC}
    assert found["finishes"][ONE]["excess"] <= 1e-3
    assert found["finishes"][ONE]["test"] > 0.9
    row = ratio_row("time", 1.0, found, ONE, LIBLINEAR)
    assert row.met is None
    assert row.peer == "LIBLINEAR not installed: pip install liblinear-official"
    assert ratio_row("time", 1.0, found, ONE, LINEAR_SVC).met is not None


def test_one_that_never_arrives_is_said_so():
    trial = {"tolerance": 0.1, "seconds": 2.0, "excess": 0.5, "at_limit": True}
    finish = {"seconds": [], "excess": 0.5, "setting": "-e 0.1", "search": [trial]}
    assert shown(finish) == "not reached: 5.0e-01 after 2 s at its limit of iterations"


# dlib, through the interface that its Python example documents


class FakeDlib(ModuleType):
    """What of dlib is used: its vectors are lists, its solver takes subgradient steps."""

    sparse_vector = list
    pair = staticmethod(lambda place, value: (place, value))

    @staticmethod
    def solve_structural_svm_problem(problem):
        n, size = problem.num_samples, problem.num_dimensions
        truths = [dense(problem.get_truth_joint_feature_vector(i), size) for i in range(n)]
        weights, average = np.zeros(size), np.zeros(size)
        for t in range(1, 1001):
            slope = weights.copy()
            for i in range(n):
                _, found = problem.separation_oracle(i, weights)
                slope += problem.C / n * (dense(found, size) - truths[i])
            weights = weights - slope / t
            average += 2.0 / (t + 1) * (weights - average)
        return average.tolist()


def dense(pairs, size):
    result = np.zeros(size)
    for place, value in pairs:
        result[place] += value
    return result


@pytest.mark.parametrize("make", [dlib_peer.words, dlib_peer.digits], ids=["words", "digits"])
def test_problem_for_dlib_is_ours(monkeypatch, make):
    monkeypatch.setitem(sys.modules, "dlib", FakeDlib("dlib"))
    case = make(True)
    case = case._replace(X=case.X[:6], Y=case.Y[:6])
    fitted = mm.StructuredSVM(case.problem, C=case.C, tol=1e-4).fit(case.X, case.Y)
    value = case.value(dlib_peer.train_dlib(case, 1e-3))
    assert fitted.certificate_.dual <= value <= 1.1 * fitted.certificate_.primal
    assert case.value(fitted.weights_) == pytest.approx(fitted.certificate_.primal)


def test_optimum_of_the_compiled_estimator_is_that_of_the_plain_problem():
    for case in (dlib_peer.words(True), dlib_peer.digits(True)):
        value = case.value(dlib_peer.train_ours(case, 1e-3))
        assert case.optimum <= value <= case.optimum * (1 + 2e-3)


def test_dlib_itself_comes_to_the_same_optimum():
    pytest.importorskip("dlib")
    case = dlib_peer.digits(True)
    value = case.value(dlib_peer.train_dlib(case, 1e-4))
    assert case.optimum * (1 - 1e-9) <= value <= case.optimum * 1.01


# Programs that behave as Joachims' do, on small data


LEARN = """\
    #!{python}
    import sys
    import numpy as np
    sys.path.insert(0, {root!r})
    import maxmargin as mm
    from maxmargin.data import read_libsvm, read_svm_hmm
    flags = dict(zip(sys.argv[1:-2:2], sys.argv[2:-2:2]))
    data, model = sys.argv[-2:]
    kind, c = {kind!r}, float(flags["-c"])
    header = ["0 # kernel type", "3 # kernel parameter -d ", "1 # kernel parameter -g ",
              "1 # kernel parameter -s ", "1 # kernel parameter -r ", "empty# kernel parameter -u "]
    if kind == "svm_hmm":
        X, Y = read_svm_hmm(data)
        options = dict(fit_intercept=False, fit_ends=False, tol=1e-3)
        fitted = mm.SequenceTagger(c / len(X), **options).fit(X, Y)
        mm.save(fitted, model)
        pval = fitted.certificate_.primal
    else:
        X, y = read_libsvm(data)
        scale = 100.0 if kind == "svm_multiclass" else 1.0
        C = c / len(y) / 100.0 if kind == "svm_multiclass" else c * 100.0 / len(y)
        fitted = mm.LinearClassifier(C, fit_intercept=False, tol=1e-5).fit(X, y)
        weights = scale * np.atleast_2d(fitted.coef_)
        pval = scale**2 * fitted.certificate_.primal
        first = "SVM-light Version V6.20"
        qid = ""
        if kind == "svm_multiclass":
            first, qid = "SVM-multiclass Version V2.20", "qid:0 "
            header = ["%d # number of classes" % len(weights),
                      "%d # number of base features" % X.shape[1], "0 # loss function", *header]
        else:
            assert flags["-l"] == "2" and flags["--b"] == "0", flags
        words = " ".join("%d:%.8g" % (j + 1, v) for j, v in enumerate(weights.ravel()) if v)
        header += ["%d # highest feature index " % weights.size,
                   "%d # number of training documents " % len(y),
                   "2 # number of support vectors plus 1 ",
                   "0 # threshold b, each following line is a SV (starting with alpha*y)"]
        open(model, "w").write("\\n".join([first, *header, "1 " + qid + words + " #", ""]))
    print("Reading training examples... done")
    print("Primal objective value: pval=%.5f" % pval)
    print("Runtime in cpu-seconds: 0.41")
"""
CLASSIFY = """\
    #!{python}
    import sys
    sys.path.insert(0, {root!r})
    import maxmargin as mm
    from maxmargin.data import read_svm_hmm
    data, model, answers = sys.argv[-3:]
    X, _ = read_svm_hmm(data, n_features=64)
    lines = [str(tag) for tags in mm.load(model).predict(X) for tag in tags]
    open(answers, "w").write("\\n".join(lines) + "\\n")
"""


def program(folder: Path, name: str, text: str, **more: str) -> Path:
    path = folder / name
    root = str(Path(__file__).parents[2])
    path.write_text(textwrap.dedent(text).format(python=sys.executable, root=root, **more))
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return path


def measured(*flags: str):
    parsed = svmstruct_programs.arguments().parse_args(["--quick", "--repeats", "1", *flags])
    return svmstruct_programs.measure(parsed)


@pytest.fixture
def no_paths(monkeypatch, tmp_path):
    for name in svmstruct.PROGRAMS:
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setattr("benchmarks.recording.RESULTS", tmp_path)


@pytest.mark.usefixtures("no_paths")
def test_programs_that_are_not_given_have_a_line_that_says_so():
    report = measured()
    assert [row.what for row in report.rows] == list(svmstruct.PROGRAMS)
    assert report.rows[0].peer == (
        "not given: --svm-multiclass PATH, or SVM_MULTICLASS in the environment"
    )
    assert all(row.met is None for row in report.rows)


@pytest.mark.slow
@pytest.mark.usefixtures("no_paths")
@pytest.mark.parametrize("name", [svmstruct.MULTICLASS, svmstruct.PERF])
def test_linear_program_races_and_its_weights_are_ours(tmp_path, name):
    path = program(tmp_path, f"{name}_learn", LEARN, kind=name)
    report = measured(f"--{name.replace('_', '-')}", str(path))
    found = report.details[name]
    # The model that it wrote, in its own scale, is the optimum of the same objective.
    assert abs(found[name]["excess"]) < 1e-3
    assert found[name]["test"] == pytest.approx(found[ONE]["test"], abs=0.03)
    assert found[name]["megabytes"] > 20
    assert found[name]["printed seconds"] == 0.41
    row = next(row for row in report.rows if "time to 1e-3" in row.what)
    assert row.met is True  # a process that imports so much is slower than a fit


@pytest.mark.usefixtures("no_paths")
def test_svm_hmm_is_timed_scored_and_believed(tmp_path, monkeypatch):
    path = program(tmp_path, "svm_hmm_learn", LEARN, kind="svm_hmm")
    program(tmp_path, "svm_hmm_classify", CLASSIFY)
    monkeypatch.setenv("SVM_HMM", str(path))
    found = measured().details["svm_hmm"]
    assert found["svm_hmm"]["objective"] == pytest.approx(found[ONE]["objective"], rel=2e-3)
    assert found["svm_hmm"]["error"] == pytest.approx(found[ONE]["error"], abs=0.05)


@pytest.mark.usefixtures("no_paths")
def test_program_that_fails_is_quoted(tmp_path):
    path = program(tmp_path, "svm_perf_learn", "#!{python}\nprint('no such kernel')\nexit(3)\n")
    with pytest.raises(svmstruct.ProgramError, match=r"status 3 and left no model.*no such kernel"):
        measured("--svm-perf", str(path))
    with pytest.raises(svmstruct.ProgramError, match="--svm-perf names /nowhere, which is no pro"):
        measured("--svm-perf", "/nowhere")


def test_files_for_programs_are_read_back_as_they_were(tmp_path, iris):
    svmstruct.write_rows(tmp_path / "rows", iris.X, iris.y + 1)
    X, y = read_libsvm(tmp_path / "rows")
    np.testing.assert_array_equal(y, iris.y + 1)
    np.testing.assert_allclose(X.toarray(), iris.X.toarray(), rtol=1e-15)
    lengths = np.array([1, 4, 5])
    svmstruct.write_sequences(tmp_path / "words", iris.X[:10], iris.y[:10] + 1, lengths)
    words, _ = read_svm_hmm(tmp_path / "words")
    assert [len(word.toarray()) for word in words] == lengths.tolist()


def test_models_that_are_none_are_refused(tmp_path):
    path = tmp_path / "model"
    path.write_text("SVM-light Version V6.20\n0 # kernel type\n")
    with pytest.raises(FileFormatError, match="header is cut short"):
        svmstruct.read_model(path)
    path.write_text(
        "x\n2 # highest feature index \n0 # threshold b, each\n0.5 1:2 2:4 #\n1 1:1 #\n"
    )
    header, weights = svmstruct.read_model(path)
    assert header["highest feature index"] == "2"
    np.testing.assert_array_equal(weights, [2.0, 2.0])
    path.write_text("x\n2 # highest feature index \n0 # threshold b\n1 9:1 #\n")
    with pytest.raises(FileFormatError, match=r"9:1.*no weight"):
        svmstruct.read_model(path)
