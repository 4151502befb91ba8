"""Predictors answer as their estimators do, and scikit-learn is not even imported for it."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from every_estimator import CASES, Hidden, Words
from kinds_of_files import FILES

import maxmargin as mm

GIVEN = {"StructuredSVM": Words, "LatentStructuredSVM": Hidden}
PREDICTING = sorted(set(CASES) - {"LowRankKernel"})

WITHOUT = """
import sys

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("sklearn", "pandas"):
            raise AssertionError(f"{name} is imported")

sys.meta_path.insert(0, Refused())
"""

ANSWER = """
import pickle
import maxmargin as mm

folder, tests = sys.argv[1:]
sys.path.insert(0, tests)
from every_estimator import Hidden, Words

given = {"StructuredSVM": Words, "LatentStructuredSVM": Hidden}
with open(f"{folder}/inputs", "rb") as file:
    inputs = pickle.load(file)
for name, X in inputs.items():
    own = {"problem": given[name]()} if name in given else {}
    predictor = mm.load_predictor(f"{folder}/{name}.mm", **own)
    print(name, repr(predictor.predict(X)))
"""


def answers(model, X):
    """What a model answers in all the ways that it knows."""
    ways = {
        "predict": (),
        "decision_function": (),
        "predict_marginals": (),
        "predict_k_best": (2,),
        "predict_latent": (),
        "predict_instances": (),
    }
    return {
        way: repr(getattr(model, way)(X, *arguments))
        for way, arguments in ways.items()
        if hasattr(model, way)
    }


def saved(name, folder):
    case = CASES[name]()
    case.model.fit(case.X, case.y, **case.more)
    return case, mm.save(case.model, Path(folder, f"{name}.mm"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PREDICTING)
def test_a_predictor_answers_as_its_estimator(name, tmp_path):
    case, path = saved(name, tmp_path)
    given = {"problem": GIVEN[name]()} if name in GIVEN else {}
    predictor = mm.load_predictor(path, **given)
    assert isinstance(case.model, type(predictor))
    assert not hasattr(predictor, "fit")
    expected = answers(case.model, case.X)
    assert len(expected) >= 2 or name == "LinearRegressor"
    assert answers(predictor, case.X) == expected


@pytest.mark.filterwarnings("ignore")
def test_no_predictor_needs_scikit_learn(tmp_path):
    cases = {name: saved(name, tmp_path)[0] for name in PREDICTING}
    inputs = {name: case.X for name, case in cases.items()}
    Path(tmp_path, "inputs").write_bytes(pickle.dumps(inputs))
    tests = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WITHOUT + ANSWER, tmp_path, tests],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    expected = "".join(f"{name} {case.model.predict(case.X)!r}\n" for name, case in cases.items())
    assert done.stdout == expected


COMMANDS = """
import json
from maxmargin.cli.main import app

for command in json.loads(sys.argv[1]):
    app(command, standalone_mode=False)
"""


def test_commands_that_do_not_train_do_not_need_it(tmp_path):
    from maxmargin.cli.main import app

    commands = [["--help"]]
    for number, (kind, text) in enumerate(FILES.items()):
        data, model = str(tmp_path / f"data{number}"), str(tmp_path / f"model{number}.mm")
        Path(data).write_text(text)
        format, task = kind.rstrip(")").split(" (")
        app(
            ["train", data, "-o", model, "-q", "--task", task, "--format", format],
            standalone_mode=False,
        )
        commands += [["predict", model, data], ["inspect", model], ["inspect", data]]
        if kind == "libsvm (classification)":
            commands.append(["convert", data, str(tmp_path / "arrays")])
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT + COMMANDS, json.dumps(commands)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


READERS = {
    "letor": {"ranking.formats"},
    "svm-hmm": {"chain.formats"},
    "columns": {"chain.formats", "chain.templates"},
    "penn": {"constituency.formats"},
    "conllu": {"dependency.formats"},
}
"""Modules of the structures that read files, by format; LIBSVM's need none of them."""

IMPORTED = """
import json, sys
from maxmargin.cli.main import app

app(sys.argv[1:], standalone_mode=False)
print(json.dumps([name for name in sys.modules if "." in name]))
"""


def imported(*command):
    """Modules that a command imports."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, *command], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("kind", FILES)
def test_a_command_imports_the_reader_that_it_uses(kind, tmp_path):
    from maxmargin.cli.main import app

    data, model = str(tmp_path / "data"), str(tmp_path / "model.mm")
    Path(data).write_text(FILES[kind])
    format, task = kind.rstrip(")").split(" (")
    options = ["-q", "--task", task, "--format", format, "--max-iter", "1"]
    app(["train", data, "-o", model, *options], standalone_mode=False)
    known = {f"maxmargin.structures.{one}" for some in READERS.values() for one in some}
    used = {f"maxmargin.structures.{one}" for one in READERS.get(format, ())}
    assert imported("predict", model, data) & known == used
    assert imported("inspect", data) & known == used


def test_a_model_is_described_without_readers_and_numba(tmp_path):
    _, path = saved("LinearClassifier", tmp_path)
    found = imported("inspect", str(path))
    assert "maxmargin.io.models" in found
    assert not any(name.startswith(("numba.", "maxmargin.compiled.")) for name in found)


def test_rows_come_as_arrays_lists_and_sparse_matrices(tmp_path):
    case, path = saved("LinearClassifier", tmp_path)
    predictor = mm.load_predictor(path)
    expected = case.model.predict(case.X)
    for X in (
        case.X.tolist(),
        np.asfortranarray(case.X),
        sp.csr_array(case.X),
        sp.csc_matrix(case.X),
        case.X.astype(object),
    ):
        np.testing.assert_array_equal(predictor.predict(X), expected)
    whole = np.rint(case.X)
    np.testing.assert_array_equal(
        predictor.predict(whole.astype(np.int8)), predictor.predict(whole)
    )


def test_wrong_rows_get_a_sentence(tmp_path):
    predictor = mm.load_predictor(saved("LinearClassifier", tmp_path)[1])
    with pytest.raises(ValueError, match=r"X has 2 features, but .* is expecting 3"):
        predictor.predict([[1.0, 2.0]])
    with pytest.raises(ValueError, match="must be a matrix"):
        predictor.predict([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="must hold numbers"):
        predictor.predict([["a", "b", "c"]])
    with pytest.raises(ValueError, match="NaN"):
        predictor.predict([[1.0, np.nan, 3.0]])


def test_names_of_columns_are_compared(tmp_path):
    pandas = pytest.importorskip("pandas")
    case = CASES["LinearClassifier"]()
    frame = pandas.DataFrame(case.X, columns=["a", "b", "c"])
    model = case.model.fit(frame, case.y)
    predictor = mm.load_predictor(mm.save(model, tmp_path / "named.mm"))
    np.testing.assert_array_equal(predictor.predict(frame), model.predict(frame))
    with pytest.raises(ValueError, match="feature names"):
        predictor.predict(frame[["b", "a", "c"]])


def test_a_transformer_is_no_predictor(tmp_path):
    path = saved("LowRankKernel", tmp_path)[1]
    with pytest.raises(mm.ModelFileError, match="predicts nothing"):
        mm.load_predictor(path)
    assert mm.read_header(path)["estimator"] == "LowRankKernel"


def test_a_file_does_not_set_the_threads(tmp_path):
    case = CASES["SequenceTagger"]()
    model = case.model.set_params(n_jobs=2).fit(case.X, case.y)
    path = mm.save(model, tmp_path / "tagger.mm")
    assert mm.load(path).n_jobs == 2
    assert mm.load_predictor(path).n_jobs is None
