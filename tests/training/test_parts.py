"""Data in parts: partitions of Dask and blocks of files, read where the shards are."""

import numpy as np
import pytest
import scipy.sparse as sp
from distributed_problems import Classes, Failing, class_data, tagging_data
from numpy.testing import assert_allclose

import maxmargin as mm
from maxmargin.data import DaskArrays, DaskSource, open_examples, read_svm_hmm
from maxmargin.structures.constituency.estimator import GrammarParser
from maxmargin.structures.constituency.grammar import Grammar
from maxmargin.training.distributed_dual import DistributedDual

bag = pytest.importorskip("dask.bag")
da = pytest.importorskip("dask.array")

ON_SHARDS = {"solver": DistributedDual(), "n_jobs": 2}


def test_a_bag_of_pairs():
    X, y = class_data(40)
    pairs = bag.from_sequence(list(zip(X, y, strict=True)), npartitions=3)
    local = mm.StructuredSVM(Classes(), tol=1e-3).fit(X, y)
    there = mm.StructuredSVM(Classes(), tol=1e-3, **ON_SHARDS).fit(DaskSource(pairs))
    assert there.certificate_.relative_gap <= 1e-3
    assert_allclose(there.certificate_.primal, local.certificate_.primal, rtol=2e-3)


def test_partitions_without_examples_are_left_out():
    X, y = class_data(30)
    pairs = bag.from_sequence(list(zip(X, y, range(30), strict=True)), npartitions=3)
    some = pairs.filter(lambda item: item[2] >= 10).map(lambda item: item[:2])
    there = mm.StructuredSVM(Classes(), tol=1e-3, **ON_SHARDS).fit(DaskSource(some))
    local = mm.StructuredSVM(Classes(), tol=1e-3).fit(X[10:], y[10:])
    assert_allclose(there.certificate_.primal, local.certificate_.primal, rtol=2e-3)
    none = pairs.filter(lambda item: False).map(lambda item: item[:2])
    with pytest.raises(ValueError, match="holds no examples"):
        mm.StructuredSVM(Classes(), tol=1e-3, **ON_SHARDS).fit(DaskSource(none))


def test_classes_and_names_of_all_partitions_are_found():
    X = [[{"word": w} for w in text] for text in ("ab", "cd", "ef", "ace", "bdf", "fa")]
    y = [[w.upper() for w in text] for text in ("ab", "cd", "ef", "ace", "bdf", "fa")]
    pairs = bag.from_sequence(list(zip(X, y, strict=True)), npartitions=3)
    tagger = mm.SequenceTagger(C=10.0, tol=1e-3, **ON_SHARDS).fit(DaskSource(pairs))
    assert tagger.classes_.tolist() == list("ABCDEF")
    assert sorted(tagger.vocabulary_) == [f"word={w}" for w in "abcdef"]
    assert [labels.tolist() for labels in tagger.predict(X)] == y


def test_partitions_of_other_widths_are_refused():
    X, y = tagging_data(8)
    X[7] = X[7][:, :5]
    pairs = bag.from_sequence(list(zip(X, y, strict=True)), npartitions=8)
    with pytest.raises(
        ValueError, match="Partition 7 of the data has 5 features, but partition 0 has 8"
    ):
        mm.SequenceTagger(tol=1e-3, **ON_SHARDS).fit(DaskSource(pairs))


def test_arrays_in_chunks():
    X, y = class_data(40)
    local = mm.StructuredSVM(Classes(), tol=1e-3).fit(X, y)
    source = DaskArrays(da.from_array(np.array(X), chunks=(9, 5)), da.from_array(np.array(y)))
    there = mm.StructuredSVM(Classes(), tol=1e-3, **ON_SHARDS).fit(source)
    assert_allclose(there.certificate_.primal, local.certificate_.primal, rtol=2e-3)
    assert source.n_features == 12
    assert [len(block.y) for block in source.batches()] == [9, 9, 9, 9, 4]
    with pytest.raises(ValueError, match="40 rows but y has 39"):
        DaskArrays(source.X, source.y[:39])


def test_arrays_are_opened_as_a_pair():
    X, y = class_data(40)
    rows, targets = da.from_array(np.array(X), chunks=(9, 5)), da.from_array(np.array(y))
    for source in (open_examples(rows, targets), open_examples((rows, targets))):
        assert isinstance(source, DaskArrays)
        assert np.array_equal(np.concatenate([block.y for block in source.batches()]), y)
    with pytest.raises(ValueError, match="y must be a dask array of 1 dimension, but is of type N"):
        open_examples(rows)
    with pytest.raises(ValueError, match="X must be a dask array of 2 dimensions, but is one of 1"):
        open_examples(targets, targets)


def frame_of(X, y):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(np.array(X), columns=[f"x{j}" for j in range(12)])
    return frame.assign(y=y)


@pytest.mark.parametrize("named", [False, True])
def test_data_frames_of_dask(tmp_path, named):
    frames = pytest.importorskip("dask.dataframe")
    X, y = class_data(40)
    y = np.array(list("abcde"))[y] if named else np.array(y)
    frames.from_pandas(frame_of(X, y), npartitions=3).to_parquet(tmp_path / "frame")
    frame = frames.read_parquet(tmp_path / "frame")
    local = mm.LinearClassifier(tol=1e-4).fit(np.array(X), y)
    there = mm.LinearClassifier(**ON_SHARDS).fit(open_examples(frame))
    assert there.classes_.tolist() == local.classes_.tolist()
    assert_allclose(there.certificate_.primal, local.certificate_.primal, rtol=1.1e-3)
    some = frame[frame.x0 > 0.0]  # of which nobody knows how long the partitions are
    kept = np.array(X)[:, 0] > 0.0
    local = mm.LinearClassifier(tol=1e-4).fit(np.array(X)[kept], y[kept])
    there = mm.LinearClassifier(**ON_SHARDS).fit(open_examples(some))
    assert_allclose(there.certificate_.primal, local.certificate_.primal, rtol=1.1e-3)


def test_arrays_that_were_data_frames():
    frames = pytest.importorskip("dask.dataframe")
    X, y = class_data(40)
    frame = frames.from_pandas(frame_of(X, y), npartitions=3)
    rows, targets = frame[[f"x{j}" for j in range(12)]].to_dask_array(), frame.y.to_dask_array()
    assert np.isnan(rows.shape[0])
    there = mm.LinearClassifier(**ON_SHARDS).fit(open_examples(rows, targets))
    local = mm.LinearClassifier(tol=1e-4).fit(np.array(X), y)
    assert_allclose(there.certificate_.primal, local.certificate_.primal, rtol=1.1e-3)
    with pytest.raises(ValueError, match=r"X has 3 chunks of rows but y has 1, and how long"):
        open_examples(rows, da.from_array(np.array(y)))


def write_libsvm(path, X, y):
    with open(path, "w") as file:
        for x, label in zip(X, y, strict=True):
            entries = " ".join(f"{j + 1}:{value!r}" for j, value in enumerate(x) if value)
            file.write(f"{label} {entries}\n")


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
        write_libsvm(path, X.tolist(), y)
        there.fit(open_examples(path, batch_bytes=2000))
    else:
        pytest.importorskip("pyarrow")
        for at in range(4):
            frame_of(X[at::4], y[at::4]).to_parquet(tmp_path / f"part{at}.parquet")
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
        GrammarParser(tol=1e-3, **ON_SHARDS).fit(DaskSource(pairs))
    grammar = Grammar.read(GrammarParser(tol=1e-3).fit(trees)._encode(trees, None, None).y)
    there = GrammarParser(grammar=grammar, tol=1e-3, **ON_SHARDS).fit(DaskSource(pairs))
    local = GrammarParser(grammar=grammar, tol=1e-3).fit(trees)
    assert_allclose(there.certificate_.primal, local.certificate_.primal, rtol=2e-3)


def test_targets_are_in_the_source():
    pairs = bag.from_sequence([(np.ones(2), 1)], npartitions=1)
    with pytest.raises(ValueError, match="leave y out"):
        mm.StructuredSVM(Classes(), tol=1e-3, **ON_SHARDS).fit(DaskSource(pairs), [1])


class SparseClasses(Classes):
    """The same for rows that are sparse matrices."""

    def joint_feature(self, x, y):
        return super().joint_feature(x.toarray()[0], y)

    def inference(self, x, w):
        return super().inference(x.toarray()[0], w)

    def loss_augmented_inference(self, x, y_true, w):
        return super().loss_augmented_inference(x.toarray()[0], y_true, w)


def test_sparse_rows_of_a_file_for_a_problem(tmp_path):
    """The parts have different widths, of which the file says nothing."""
    X, y = class_data(40)
    X = np.array(X)
    X[:20, 10:] = 0.0
    path = tmp_path / "data.libsvm"
    write_libsvm(path, X.tolist(), y)
    local = mm.StructuredSVM(Classes(), tol=1e-3).fit(X, y)
    there = mm.StructuredSVM(SparseClasses(), tol=1e-3, **ON_SHARDS).fit(open_examples(path))
    assert there.weights_.shape == local.weights_.shape
    assert_allclose(there.certificate_.primal, local.certificate_.primal, rtol=2e-3)
    streamed = mm.StructuredSVM(SparseClasses(), tol=1e-3).fit(open_examples(path, n_features=12))
    assert_allclose(streamed.certificate_.primal, local.certificate_.primal, rtol=2e-3)
    rows = sp.csr_array(X)
    in_memory = mm.StructuredSVM(SparseClasses(), tol=1e-3).fit(rows, y)
    assert_allclose(in_memory.weights_, local.weights_, atol=1e-9)
    assert in_memory.predict(rows) == local.predict(X)
    assert_allclose(in_memory.decision_function(rows), local.decision_function(X), atol=1e-9)


def test_sequences_of_a_file(tmp_path):
    """Here, too, parts are of different widths."""
    random = np.random.default_rng(0)
    path = tmp_path / "tags.txt"
    with open(path, "w") as file:
        for number in range(40):
            for word in random.integers(1, 8 if number < 20 else 12, random.integers(2, 6)):
                also = " 12:0.5" if number > 20 else ""
                file.write(f"{word % 3 + 1} qid:{number} {word}:1{also}\n")
    X, y = read_svm_hmm(path)
    local = mm.SequenceTagger(tol=1e-3).fit(X, y)
    there = mm.SequenceTagger(tol=1e-3, **ON_SHARDS).fit(open_examples(path))
    assert there.n_features_in_ == local.n_features_in_ == 12
    assert_allclose(there.certificate_.primal, local.certificate_.primal, rtol=2e-3)


def test_a_failing_search_names_the_example_among_all():
    X, y = class_data(40)
    arrays = da.from_array(np.array(X), chunks=(9, 12)), da.from_array(np.array(y), chunks=9)
    problem = Failing(X[31][0])
    for source in (open_examples(np.array(X), y), open_examples(*arrays)):
        with pytest.raises(mm.ProblemError, match="example 31"):
            mm.StructuredSVM(problem, tol=1e-3, **ON_SHARDS).fit(source)
