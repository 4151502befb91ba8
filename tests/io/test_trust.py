"""No file is trusted: what it names, how much it asks for, where its numbers point."""

import json
import multiprocessing
import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris
from test_models import MODELS, Signs

import maxmargin as mm
from maxmargin.core.kernel_oracle import Multiclass
from maxmargin.core.registry import registered
from maxmargin.io.files import read_tensors, write_tensors
from maxmargin.structures.chain.problem import HiddenChains
from maxmargin.structures.graph.problem import GraphLabelling

X, y = load_iris(return_X_y=True)
GRAPHS = [(np.eye(3), [(0, 1), (1, 2)])], [np.array([0, 1, 0])]


@pytest.fixture(scope="module")
def models():
    """Fitted models by name, each made once."""
    made = {}

    def get(name):
        if name not in made:
            made[name] = MODELS[name]()
        return made[name]

    return get


def changed(path, model, change):
    """A file of the model after `change(tree of fitted attributes, arrays, header)`."""
    header, arrays = read_tensors(mm.save(model, path))
    header = json.loads(json.dumps(header))
    arrays = {name: array.copy() for name, array in arrays.items()}
    change(header["model"][1]["fitted"][1], arrays, header)
    write_tensors(path, header, arrays)
    return path


NAMES_OF_MODULES = [
    "maxmargin.__main__:app", "maxmargin.cli.main:app", "os:system", "maxmargin.evil:Certificate2"
]  # fmt: skip


def test_nothing_is_imported_because_a_file_says_so(tmp_path):
    paths = []
    for name in NAMES_OF_MODULES:

        def name_a_module(fitted, arrays, header, name=name):
            fitted["coef_"] = ["data", name, {}]

        path = tmp_path / f"{len(paths)}.mm"
        paths.append(str(changed(path, mm.LinearClassifier().fit(X, y), name_a_module)))
    code = f"""
import sys
import maxmargin as mm
for path in {paths!r}:
    try:
        mm.load(path)
    except mm.ModelFileError as error:
        print("refused", "is no kind of value" in str(error))
    print([one for one in sys.modules if one.startswith(("maxmargin.cli", "maxmargin.__"))])
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["refused True", "[]"] * len(NAMES_OF_MODULES)


def test_importing_the_main_module_runs_no_command():
    code = "import maxmargin.__main__; print('fine')"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stdout == "fine\n"


def test_a_name_belongs_to_one_class():
    with pytest.raises(ValueError, match="Two classes are registered as 'Certificate'"):

        @registered("Certificate")
        class Other:
            pass


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_every_changed_byte_is_found(step, models, tmp_path):
    path = mm.save(models("words")[0], tmp_path / "model.mm")
    raw = path.read_bytes()
    for at in range(0, len(raw), step):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ (1 + at % 255)]) + raw[at + 1 :])
        with pytest.raises(mm.ModelFileError, match="damaged"):
            mm.load(path)


@pytest.mark.parametrize("length", [0, 7, 8, 9, 100, -1, -8])
def test_a_shorter_or_longer_file_is_refused(length, models, tmp_path):
    path = mm.save(models("words")[0], tmp_path / "model.mm")
    raw = path.read_bytes()
    for other in (raw[:length], raw + b"\0" * (length % 64 + 1)):
        path.write_bytes(other)
        with pytest.raises(mm.ModelFileError, match="damaged"):
            mm.load(path)


def many_strings(fitted, arrays, header):
    fitted["classes_"] = ["strings", ["a", "b", "c"], "<U200000000"]


def many_records(fitted, arrays, header):
    line = {"seconds": 0.0, "oracle_calls": 1, "cache_hits": 0, "primal": 0.0, "dual": 0.0}
    fitted["history_"] = ["records", "Iteration", 100_000_000, line | {"cuts": 0}]


def a_large_view(fitted, arrays, header):
    fitted["coef_"] = ["view", "fitted.coef_", 0, [2**40, 4], [0, 8]]


def deep_nesting(fitted, arrays, header):
    tree = 0
    for _ in range(400):
        tree = ["list", [tree]]
    fitted["coef_"] = tree


def many_labels(fitted, arrays, header):
    problem = {"n_features": 4, "n_labels": 10**9, "edges": ["list", []]}
    fitted["coef_"] = ["made", "LabelSets", problem]


def many_angles(fitted, arrays, header):
    grid = ["data", "WindowGrid", {"height": 8, "width": 8}]
    fitted["coef_"] = ["made", "PoseProblem", {"grid": grid, "n_angles": 10**10}]


@pytest.mark.parametrize(
    "bomb", [many_strings, many_records, a_large_view, deep_nesting, many_labels, many_angles]
)
def test_no_file_asks_for_more_memory_than_it_has_bytes_for(bomb, tmp_path):
    import maxmargin.structures.multilabel.problem
    import maxmargin.structures.pose.problem  # noqa: F401

    path = changed(tmp_path / "model.mm", mm.LinearClassifier().fit(X, y), bomb)
    tracemalloc.start()
    with pytest.raises(mm.ModelFileError) as raised:
        mm.load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"dtype": "F64", "shape": [0, 2**62], "data_offsets": [0, 0]}, "no array can have"),
        ({"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}, "type 'BF16' are not known"),
        ({"dtype": "F64", "shape": [-1], "data_offsets": [0, 8]}, "no array can have"),
        ({"dtype": "F64", "shape": [1.0], "data_offsets": [0, 8]}, "no array can have"),
        ({"dtype": "F64", "shape": [2], "data_offsets": [0, 8]}, "does not fit its place"),
        ({"dtype": "F64", "shape": [1] * 40, "data_offsets": [0, 8]}, "does not fit its place"),
        ({"dtype": "F64", "shape": [1], "data_offsets": [8, 16]}, "overlap, or leave a gap"),
        ({"dtype": "F64", "shape": [1]}, "not described as it should be"),
        ([], "not described as it should be"),
    ],
)
def test_arrays_that_cannot_be(entry, reason, tmp_path):
    text = json.dumps({"__metadata__": {"maxmargin": "{}"}, "array": entry}).encode()
    path = tmp_path / "model.mm"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(16))
    with pytest.raises(mm.ModelFileError, match=reason):
        mm.load(path)


@pytest.mark.parametrize("text", [b"[" * 100_000, b"1" * 10_000, b"null", b'{"__metadata__": 3}'])
def test_headers_that_cannot_be(text, tmp_path):
    path = tmp_path / "model.mm"
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    with pytest.raises(mm.ModelFileError, match="damaged or was not written by maxmargin"):
        mm.load(path)


def in_array(name, at, value):
    def change(fitted, arrays, header):
        (found,) = [key for key in arrays if key.endswith(name)]
        arrays[found].reshape(-1)[at] = value

    return change


def in_tree(name, value):
    def change(fitted, arrays, header):
        fitted[name] = value

    return change


def drop(name):
    def change(fitted, arrays, header):
        del fitted[name]

    return change


def shorter(name):
    def change(fitted, arrays, header):
        (found,) = [key for key in arrays if key.endswith(name)]
        arrays[found] = arrays[found][:-1].copy()

    return change


def a_set_of_layouts(which, value):
    def change(fitted, arrays, header):
        fitted["_layout"][2][which] = value

    return change


WRONG = {
    "slots of a vocabulary": ("words", in_array("vocabulary_.table.slots", 3, 7 << 32 | 99)),
    "a full vocabulary": ("words", in_array("vocabulary_.table.slots", slice(None), 1 << 32 | 1)),
    "ends of names": ("words", in_array("vocabulary_.table.ends", 1, 10**9)),
    "text of names": ("words", in_array("vocabulary_.table.text", 0, 0xFF)),
    "rows of a chain model": ("words", a_set_of_layouts(0, 3)),
    "features of a chain model": ("words", a_set_of_layouts(1, -5)),
    "labels of a chain model": ("words", in_tree("classes_", ["strings", ["u"], "<U1"])),
    "table of a chain model": ("words", shorter("_table")),
    "pair features": ("words", in_tree("_tied", ["array", "fitted.history_.seconds"])),
    "parents": ("hierarchy", in_array("fitted.parents_", 0, 4)),
    "parents below": ("hierarchy", in_array("fitted.parents_", 3, -7)),
    "classes of a taxonomy": ("hierarchy", in_array("taxonomy.class_nodes", 0, 99)),
    "weights of nodes": ("hierarchy", shorter("_weights")),
    "edges": ("multilabel", in_array("fitted.edges_", 0, 1000)),
    "a symbol of a rule": ("grammar", in_array("grammar_.binary", 0, 1000)),
    "a negative symbol": ("grammar", in_array("grammar_.chains", 0, -1)),
    "a start": ("grammar", in_array("grammar_.starts", 0, 1000)),
    "lengths of chains": ("grammar", in_array("grammar_.chain_lengths", 0, 1000)),
    "weights of rules": ("grammar", shorter("fitted.coef_")),
    "weights of arcs": ("dependencies", shorter("_weights")),
    "numbers of words": ("dependencies", in_tree("words_", ["object", {"dog": 2**40}])),
    "columns of a parser": ("dependencies", a_set_of_layouts(0, 4095)),
    "rows of a graph model": ("graphs", a_set_of_layouts(6, 100)),
    "features of edges": ("graphs", in_tree("n_edge_features_in_", 7)),
    "an attribute that is none": ("classifier", in_tree("predict", 3)),
    "a private attribute that is none": ("classifier", in_tree("_validate_params", 3)),
    "a class": ("classifier", in_tree("classes_", ["objects", [["list", []]], [1]])),
    "a number": ("classifier", in_tree("n_features_in_", 4.0)),
    "a certificate": ("classifier", in_tree("certificate_", ["data", "Certificate", {}])),
    "a history": ("classifier", in_tree("history_", ["list", [3]])),
    "another class": ("classifier", in_tree("certificate_", ["data", "Iteration", {}])),
    "no weights": ("classifier", drop("coef_")),
    "no certificate": ("classifier", drop("certificate_")),
    "weights of another width": ("regressor", shorter("fitted.coef_")),
    "thresholds": ("ordinal", shorter("fitted._weights")),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_together_is_refused(name, models, tmp_path):
    kind, change = WRONG[name]
    path = changed(tmp_path / "model.mm", models(kind)[0], change)
    with pytest.raises(mm.ModelFileError) as raised:
        mm.load(path)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize(
    "part", ["columns", "rows", "negative", "width", "length"], ids=lambda part: part
)
def test_sparse_weights(part, tmp_path):
    model = mm.LinearClassifier().fit(np.hstack([X, np.zeros((150, 60))]), y)
    pruned = mm.prune(model, 0.0).estimator
    assert sp.issparse(pruned.coef_)

    def change(fitted, arrays, header):
        if part == "columns":
            arrays["fitted.coef_.indices"][0] = 64
        elif part == "negative":
            arrays["fitted.coef_.indices"][0] = -1
        elif part == "rows":
            arrays["fitted.coef_.indptr"][1] = 10**6
        elif part == "width":
            fitted["coef_"][2] = [3, 2**50]
        else:
            arrays["fitted.coef_.data"] = arrays["fitted.coef_.data"][:-1].copy()

    path = changed(tmp_path / "model.mm", pruned, change)
    with pytest.raises(mm.ModelFileError, match=r"sparse matrix|outside its array"):
        mm.load(path)


def test_support_vectors(tmp_path):
    model = mm.KernelStructuredSVM(Multiclass(), kernel="rbf").fit(X, y)
    for name in ("model_.factors.indices", "model_.factors.indptr"):
        path = changed(tmp_path / "model.mm", model, in_array(name, 1, 10**6))
        with pytest.raises(mm.ModelFileError, match="sparse matrix"):
            mm.load(path)
    path = changed(tmp_path / "model.mm", model, shorter("model_.parts"))
    with pytest.raises(mm.ModelFileError, match="factors must be of shape"):
        mm.load(path)


def test_a_file_cannot_make_a_later_fit_write_somewhere(tmp_path):
    def change(fitted, arrays, header):
        header["model"][1]["parameters"][1] |= {
            "checkpoint": str(tmp_path / "victim"), "checkpoint_every": 0.0, "resume": True,
            "engine": "dask",
        }  # fmt: skip

    path = changed(tmp_path / "model.mm", mm.LinearClassifier().fit(X, y), change)
    model = mm.load(path)
    assert (model.checkpoint, model.engine) == (None, None)
    model.fit(X, y)
    assert os.listdir(tmp_path) == ["model.mm"]


def test_the_engine_is_no_part_of_a_model(tmp_path):
    model = mm.LinearClassifier(engine="threads", checkpoint=tmp_path / "run").fit(X, y)
    header = mm.read_header(mm.save(model, tmp_path / "model.mm"))
    assert not {"engine", "checkpoint"} & header["parameters"].keys()


def test_parameters_of_a_file_are_checked(tmp_path):
    def change(fitted, arrays, header):
        header["model"][1]["parameters"][1]["C"] = -1.0

    path = changed(tmp_path / "model.mm", mm.LinearClassifier().fit(X, y), change)
    with pytest.raises(mm.ModelFileError, match="The 'C' parameter"):
        mm.load(path)


def test_a_truncated_file_does_not_matter_once_it_is_loaded(tmp_path):
    fitted = mm.LinearClassifier().fit(X, y)
    path = mm.save(fitted, tmp_path / "model.mm")
    model = mm.load(path)
    os.truncate(path, 100)
    np.testing.assert_array_equal(model.predict(X), fitted.predict(X))


def test_a_large_model_can_be_mapped(tmp_path):
    fitted = mm.LinearClassifier().fit(X, y)
    path = mm.save(fitted, tmp_path / "model.mm")
    written = path.read_bytes()
    model = mm.load(path, mmap=True)
    np.testing.assert_array_equal(model.predict(X), fitted.predict(X))
    model.coef_[:] = 0.0
    assert path.read_bytes() == written
    path.write_bytes(written[:20] + b"?" + written[21:])
    with pytest.raises(mm.ModelFileError, match="damaged"):  # the header is always compared
        mm.load(path, mmap=True)


def _save_in_turn(path, models, stop):
    while not stop.is_set():
        for model in models:
            mm.save(model, path)


def test_a_load_while_others_save_is_one_model_or_the_other(tmp_path):
    path = tmp_path / "model.mm"
    models = [
        mm.LinearClassifier(C=0.1).fit(X, y),
        mm.LinearClassifier(C=10.0).fit(X[:, :2], y > 0),
    ]
    mm.save(models[0], path)
    context = multiprocessing.get_context("fork")
    stop = context.Event()
    savers = [context.Process(target=_save_in_turn, args=(path, models, stop)) for _ in range(2)]
    for saver in savers:
        saver.start()
    found = set()
    try:
        for _ in range(300):
            model = mm.load(path)
            (same,) = [one for one in models if one.C == model.C]
            np.testing.assert_array_equal(model.coef_, same.coef_)
            np.testing.assert_array_equal(model.classes_, same.classes_)
            found.add(model.C)
    finally:
        stop.set()
        for saver in savers:
            saver.join()
    assert found == {0.1, 10.0}


LOAD_EACH = """
import os, sys
import sklearn.base  # which takes longer than the rest
import maxmargin as mm

for path in sys.argv[1:]:
    process = os.fork()
    if not process:
        print(type(mm.load(path)).__name__, flush=True)
        os._exit(0)
    os.waitpid(process, 0)
"""


def test_every_model_loads_in_a_process_that_knows_nothing_of_it(models, tmp_path):
    paths = [mm.save(models(name)[0], tmp_path / f"{name}.mm") for name in MODELS]
    chains = [X[:5], X[60:70]], [y[:5], y[60:70]]
    parameters = {
        "graph": mm.StructuredSVM(GraphLabelling(2)).fit(*GRAPHS),
        "hidden": mm.LatentStructuredSVM(HiddenChains(4, 3, 2)).fit(*chains),
        "kernel": mm.KernelStructuredSVM(Multiclass(), kernel=mm.PolynomialKernel(2)).fit(X, y),
    }
    paths += [mm.save(model, tmp_path / f"{name}.mm") for name, model in parameters.items()]
    ran = subprocess.run(
        [sys.executable, "-c", LOAD_EACH, *paths], capture_output=True, text=True, check=False
    )
    assert ran.stdout.split() == [mm.read_header(path)["estimator"] for path in paths], ran.stderr


def test_attributes_of_every_model_are_declared(models, tmp_path):
    for name in MODELS:
        model = models(name)[0]
        mm.load(mm.save(model, tmp_path / "model.mm"))
    given = mm.StructuredSVM(Signs()).fit([1.0, -2.0, 3.0], [1, -1, 1])
    mm.load(mm.save(given, tmp_path / "model.mm"), problem=Signs())


def test_a_classifier_of_one_class_is_refused(tmp_path):
    model = mm.LinearClassifier().fit(X[:100], y[:100])

    def change(fitted, arrays, header):
        fitted["classes_"] = ["array", "fitted.intercept_"]

    path = changed(tmp_path / "model.mm", model, change)
    with pytest.raises(mm.ModelFileError, match="fewer than two"):
        mm.load(path)
