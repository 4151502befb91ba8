"""Data in parts: partitions of Dask and blocks of files, read where the shards are."""

import numpy as np
import pytest
from distributed_problems import Classes, class_data, tagging_data
from numpy.testing import assert_allclose

import maxmargin as mm
from maxmargin.data import DaskSource, open_examples
from maxmargin.data.sources_dask_arrays import DaskArrays
from maxmargin.estimators.parser import GrammarParser
from maxmargin.problems.grammar_rules import Grammar
from maxmargin.solvers.distributed_dual import DistributedDual

bag = pytest.importorskip("dask.bag")
da = pytest.importorskip("dask.array")

ON_SHARDS = {"solver": DistributedDual(), "n_jobs": 2}


def test_a_bag_of_pairs():
    X, y = class_data(40)
    pairs = bag.from_sequence(list(zip(X, y, strict=True)), npartitions=3)
    local = mm.StructuredSVM(Classes()).fit(X, y)
    there = mm.StructuredSVM(Classes(), **ON_SHARDS).fit(DaskSource(pairs))
    assert there.certificate_.relative_gap <= 1e-3
    assert_allclose(there.certificate_.primal, local.certificate_.primal, rtol=2e-3)


def test_partitions_without_examples_are_left_out():
    X, y = class_data(30)
    pairs = bag.from_sequence(list(zip(X, y, range(30), strict=True)), npartitions=3)
    some = pairs.filter(lambda item: item[2] >= 10).map(lambda item: item[:2])
    there = mm.StructuredSVM(Classes(), **ON_SHARDS).fit(DaskSource(some))
    local = mm.StructuredSVM(Classes()).fit(X[10:], y[10:])
    assert_allclose(there.certificate_.primal, local.certificate_.primal, rtol=2e-3)
    none = pairs.filter(lambda item: False).map(lambda item: item[:2])
    with pytest.raises(ValueError, match="holds no examples"):
        mm.StructuredSVM(Classes(), **ON_SHARDS).fit(DaskSource(none))


def test_classes_and_names_of_all_partitions_are_found():
    X = [[{"word": w} for w in text] for text in ("ab", "cd", "ef", "ace", "bdf", "fa")]
    y = [[w.upper() for w in text] for text in ("ab", "cd", "ef", "ace", "bdf", "fa")]
    pairs = bag.from_sequence(list(zip(X, y, strict=True)), npartitions=3)
    tagger = mm.SequenceTagger(C=10.0, **ON_SHARDS).fit(DaskSource(pairs))
    assert tagger.classes_.tolist() == list("ABCDEF")
    assert sorted(tagger.vocabulary_) == [f"word={w}" for w in "abcdef"]
    assert [labels.tolist() for labels in tagger.predict(X)] == y


def test_partitions_of_other_widths_are_refused():
    X, y = tagging_data(8)
    X[7] = X[7][:, :5]
    pairs = bag.from_sequence(list(zip(X, y, strict=True)), npartitions=8)
    with pytest.raises(ValueError, match="Part 7 of the data has 5 features, but part 0 has 8"):
        mm.SequenceTagger(**ON_SHARDS).fit(DaskSource(pairs))


def test_arrays_in_chunks():
    X, y = class_data(40)
    local = mm.StructuredSVM(Classes()).fit(X, y)
    source = DaskArrays(da.from_array(np.array(X), chunks=(9, 5)), da.from_array(np.array(y)))
    there = mm.StructuredSVM(Classes(), **ON_SHARDS).fit(source)
    assert_allclose(there.certificate_.primal, local.certificate_.primal, rtol=2e-3)
    assert source.n_features == 12
    assert [len(block.y) for block in source.blocks()] == [9, 9, 9, 9, 4]
    with pytest.raises(ValueError, match="40 rows but y has 39"):
        DaskArrays(source.X, source.y[:39])


@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("kind", ["memory", "libsvm", "parquet"])
def test_rows_of_files_and_arrays(kind, n_classes, tmp_path):
    X, y = class_data(60)
    X, y = np.array(X), np.minimum(y, n_classes - 1)
    local = mm.LinearClassifier(class_weight="balanced", tol=1e-4).fit(X, y)
    there = mm.LinearClassifier(class_weight="balanced", **ON_SHARDS)
    if kind == "memory":
        there.fit(X, y)
    elif kind == "libsvm":
        path = tmp_path / "data.libsvm"
        with open(path, "w") as file:
            for x, label in zip(X.tolist(), y, strict=True):
                entries = " ".join(f"{j + 1}:{value!r}" for j, value in enumerate(x))
                file.write(f"{label} {entries}\n")
        there.fit(open_examples(path, block_bytes=2000))
    else:
        pandas = pytest.importorskip("pandas")
        pytest.importorskip("pyarrow")
        for at in range(4):
            frame = pandas.DataFrame(X[at::4], columns=[f"x{j}" for j in range(12)])
            frame["y"] = y[at::4]
            frame.to_parquet(tmp_path / f"part{at}.parquet")
        there.fit(open_examples(tmp_path))
    assert there.certificate_.relative_gap <= 1e-3
    assert there.coef_.shape == local.coef_.shape
    assert_allclose(there.certificate_.primal, local.certificate_.primal, rtol=1.1e-3)
    assert (there.predict(X) == local.predict(X)).mean() >= 0.95


def test_what_linear_models_can_only_do_in_one_place():
    X, y = class_data(10)
    for options in ({"nonnegative": True}, {"margins": 2.0}, {"formulation": "weston-watkins"}):
        with pytest.raises(ValueError, match="needs all data in one process"):
            mm.LinearClassifier(**options, **ON_SHARDS).fit(X, y)


def test_a_parser_needs_its_grammar_before():
    trees = ["(S (NP (PRP I)) (VP (VBD saw)))", "(S (NP (DT the) (NN dog)) (VP (VBZ barks)))"]
    pairs = bag.from_sequence([(tree, tree) for tree in trees], npartitions=2)
    with pytest.raises(ValueError, match="needs all rules before"):
        GrammarParser(**ON_SHARDS).fit(DaskSource(pairs))
    grammar = Grammar.read(GrammarParser().fit(trees)._read(trees, None, None).y)
    there = GrammarParser(grammar=grammar, **ON_SHARDS).fit(DaskSource(pairs))
    local = GrammarParser(grammar=grammar).fit(trees)
    assert_allclose(there.certificate_.primal, local.certificate_.primal, rtol=2e-3)


def test_targets_are_in_the_source():
    pairs = bag.from_sequence([(np.ones(2), 1)], npartitions=1)
    with pytest.raises(ValueError, match="leave Y out"):
        mm.StructuredSVM(Classes(), **ON_SHARDS).fit(DaskSource(pairs), [1])
