"""Estimators on rows and graphs, trained on shards: the same optimum as in one place."""

import numpy as np
import pytest
import scipy.sparse as sp
from distributed_problems import class_data
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import maxmargin as mm
from maxmargin.data import open_examples
from maxmargin.training.distributed_cutting_plane import DistributedOneSlack
from maxmargin.training.distributed_dual import DistributedDual
from maxmargin.training.fit import engine

ROWS, NUMBERS = class_data(60)
ROWS, NUMBERS = np.array(ROWS), np.array(NUMBERS)
TAXONOMY = {"a": "x", "b": "x", "c": "y", "d": "y", "e": "y"}
LETTERS = np.array(list("abcde"))[NUMBERS]
SETS = (ROWS[:, :4] + 0.3 * ROWS[:, 4:8] > 0.3).astype(int)


def graph_data(n=20):
    random = np.random.default_rng(0)
    graphs, labels = [], []
    for _ in range(n):
        X = random.normal(size=(6, 3))
        edges = np.array([(a, b) for a in range(6) for b in range(a) if random.random() < 0.4])
        graphs.append((X, edges.reshape(-1, 2)))
        labels.append(np.array(list("uvw"))[(X + 0.3 * random.normal(size=X.shape)).argmax(axis=1)])
    return graphs, labels


CASES = {
    "hierarchical": (mm.HierarchicalClassifier(taxonomy=TAXONOMY, tol=1e-3), (ROWS, LETTERS)),
    # At a smaller tol a fit here would take Newton steps, which shards do not.
    "ordinal": (mm.OrdinalClassifier(tol=1e-2), (sp.csr_array(ROWS), NUMBERS)),
    "multilabel": (mm.MultilabelClassifier(tol=1e-3), (ROWS, SETS)),
    "sets": (mm.MultilabelClassifier(tol=1e-3), (ROWS, [set(np.flatnonzero(row)) for row in SETS])),
    "graphs": (mm.GraphLabeler(tol=1e-3), graph_data()),
}
all_cases = pytest.mark.parametrize("case", CASES)


def on_shards(model, solver, n_shards, **options):
    return clone(model).set_params(solver=solver, n_jobs=n_shards, **options)


@all_cases
def test_one_shard_is_the_local_fit(case):
    model, data = CASES[case]
    here = clone(model).fit(*data)
    there = on_shards(model, DistributedDual(), 1).fit(*data)
    assert_array_equal(there._weights, here._weights)
    assert_allclose(there.certificate_.dual, here.certificate_.dual, rtol=1e-12)
    for found, expected in zip(there.predict(data[0]), here.predict(data[0]), strict=True):
        assert_array_equal(found, expected)


@pytest.mark.parametrize("solver", [DistributedDual(), DistributedOneSlack()], ids=["dual", "one"])
@all_cases
def test_three_shards_certify_the_gap(case, solver):
    model, data = CASES[case]
    here = clone(model).fit(*data)
    there = on_shards(model, solver, 3, tol=0.02).fit(*data)
    assert there.certificate_.relative_gap <= 0.02
    assert there.certificate_.dual <= here.certificate_.primal
    assert_allclose(there.certificate_.primal, here.certificate_.primal, rtol=0.022)
    assert there.n_features_in_ == here.n_features_in_
    assert hasattr(there.history_[0], "sent")


def test_in_another_process_as_the_context_says():
    model, data = CASES["graphs"]
    here = clone(model).fit(*data)
    with engine("processes"):
        there = clone(model).fit(*data)
    assert hasattr(there.history_[0], "sent")
    assert_array_equal(there._weights, here._weights)


def test_names_of_columns_stay():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS, columns=[f"x{j}" for j in range(12)])
    for case in ("ordinal", "multilabel"):
        model, (_, y) = CASES[case]
        there = on_shards(model, DistributedDual(), 2, tol=0.1).fit(frame, y)
        assert there.feature_names_in_.tolist() == list(frame.columns)


def test_classes_of_a_source_in_parts(tmp_path):
    """Some parts lack some classes, and some the last columns."""
    order = np.argsort(NUMBERS, kind="stable")[::2]
    X, y = ROWS[order], NUMBERS[order]
    X[:10, 9:] = 0.0
    path = tmp_path / "data.libsvm"
    lines = [" ".join(f"{j + 1}:{x!r}" for j, x in enumerate(row) if x) for row in X.tolist()]
    path.write_text("".join(f"{label} {line}\n" for label, line in zip(y, lines, strict=True)))
    here = mm.OrdinalClassifier(tol=1e-3).fit(X, y)
    there = on_shards(mm.OrdinalClassifier(tol=1e-3), DistributedDual(), 3).fit(open_examples(path))
    assert there.classes_.tolist() == [0, 1, 2, 3, 4]
    assert there.n_features_in_ == 12
    assert_allclose(there.certificate_.primal, here.certificate_.primal, rtol=2e-3)


def test_what_needs_all_data_in_one_process():
    for case in ("multilabel", "graphs"):
        model, data = CASES[case]
        with pytest.raises(ValueError, match="learns from a source in this process only"):
            on_shards(model, DistributedDual(), 2).fit(open_examples(*data))
    model, (graphs, labels) = CASES["graphs"]
    weights = [np.ones(len(some)) for some in labels]
    with pytest.raises(ValueError, match="node_weight needs all data in one process"):
        on_shards(model, DistributedDual(), 2).fit(graphs, labels, node_weight=weights)


def test_a_linear_classifier_with_cutting_planes():
    """The same optimum as the default's, from a solver that knows nothing of classes."""
    from sklearn.datasets import load_iris

    X, y = load_iris(return_X_y=True)
    default = mm.LinearClassifier(tol=1e-3).fit(X, y)
    for solver in ("one-slack", mm.OneSlack()):
        model = mm.LinearClassifier(tol=1e-2, solver=solver).fit(X, y)
        assert model.certificate_.relative_gap <= 1e-2
        assert model.certificate_.dual <= default.certificate_.primal
        assert default.certificate_.dual <= model.certificate_.primal
