"""LIBSVM files are read as scikit-learn reads them, in blocks, and with better complaints."""

import gzip
import io
import re
import sys
from itertools import chain

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

import maxmargin.data as mmd
from maxmargin.data import (
    FileFormatError,
    LibsvmFile,
    SvmHmmFile,
    files,
    libsvm_lines,
    read_libsvm,
    read_svm_hmm,
)
from maxmargin.data.libsvm import whole_numbers


def written(tmp_path, text, name="data.svm"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def whole(source):
    """All blocks as one."""
    blocks = list(source.batches())
    width = blocks[-1].X.shape[1]
    for block in blocks:
        block.X.resize((block.X.shape[0], width))
    X = sp.vstack([block.X for block in blocks], format="csr")
    y = [block.y for block in blocks]
    return X, np.concatenate(y) if isinstance(y[0], np.ndarray) else list(chain(*y))


def assert_same(X, expected):
    assert X.shape == expected.shape
    assert X.data.tobytes() == expected.data.tobytes()
    np.testing.assert_array_equal(X.indices, expected.indices)
    np.testing.assert_array_equal(X.indptr, expected.indptr)


@pytest.fixture
def random_file(tmp_path):
    random = np.random.default_rng(0)
    X = sp.random(60, 30, density=0.2, format="csr", random_state=0)
    X.data *= 10.0 ** random.integers(-12, 12, size=X.nnz)
    path = tmp_path / "random.svm"
    dump_svmlight_file(X, random.integers(-3, 4, size=60), str(path), zero_based=False)
    return path


@pytest.mark.parametrize("batch_bytes", [1, 50, 1000, 1 << 20])
def test_the_same_bits_as_scikit_learns(random_file, batch_bytes):
    expected, y = load_svmlight_file(str(random_file), zero_based=False)
    source = LibsvmFile(random_file, batch_bytes=batch_bytes)
    assert (source.n_examples, source.n_features) == (None, None)
    for _ in range(2):
        found, found_y = whole(source)
        assert_same(found, expected)
        np.testing.assert_array_equal(found_y, y)
        assert (source.n_examples, source.n_features) == expected.shape
    assert_same(read_libsvm(random_file)[0], expected)
    np.testing.assert_array_equal(source.classes(), np.unique(y))


def test_blocks_never_get_narrower_and_are_all_alike_later(tmp_path):
    path = written(tmp_path, "1 5:1\n2 1:1\n1 9:1\n2 2:1\n")
    source = LibsvmFile(path, batch_bytes=6)
    assert [block.X.shape for block in source.batches()] == [(1, 5), (1, 5), (1, 9), (1, 9)]
    assert [block.X.shape for block in source.batches()] == [(1, 9)] * 4
    assert [b.X.shape[1] for b in LibsvmFile(path, n_features=12, batch_bytes=6).batches()] == [
        12
    ] * 4


def test_everything_a_line_may_have(tmp_path):
    text = (
        "\ufeff# a comment\n\n  +1 qid:7 1:1e-3\t3:7 # note\r\n"
        "2 2:123456789012345678901#x\n-0.5\n1 2:5e-324 3:1e-999"
    )
    X, y, groups = read_libsvm(written(tmp_path, text), query_id=True)
    expected = [[1e-3, 0, 7], [0, 123456789012345678901.0, 0], [0, 0, 0], [0, 5e-324, 0]]
    np.testing.assert_array_equal(X.toarray(), expected)
    np.testing.assert_array_equal(y, [1, 2, -0.5, 1])
    assert groups.tolist() == [7, -1, -1, -1]


SAME_AS_PEER = {
    "3,1 3:1\n1 2:1\n3:1 4:1\n 3:1\n-2.5,7 1:1\n": {"multilabel": True},
    "1 qid:-3 3:1\n2 qid:12 4:2\n": {"query_id": True},
    "1 3:0 4:-0\n\n2\n": {},
    "1 0:1 4:2\n": {},
    "1\n2 1:1\n": {"n_features": 4},
}


@pytest.mark.parametrize("text", SAME_AS_PEER)
def test_options_as_scikit_learn_has_them(tmp_path, text):
    path = written(tmp_path, text)
    found = read_libsvm(path, **SAME_AS_PEER[text])
    expected = load_svmlight_file(str(path), **SAME_AS_PEER[text])
    assert_same(found[0], expected[0])
    assert len(found) == len(expected)
    for ours, theirs in zip(found[1:], expected[1:], strict=True):
        assert list(ours) == list(theirs)


def test_multilabel_source(tmp_path):
    source = LibsvmFile(written(tmp_path, "3,1 3:1\n\n2:1\n1 2:1\n"), multilabel=True)
    assert whole(source)[1] == [(1.0, 3.0), (), (1.0,)]
    assert source.classes().tolist() == [1, 3]


BAD = {
    "x 1:1": "a line must begin with a label that is a number",
    "1;2 1:1": "a line must begin with a label",
    "3:1 4:1": "a line must begin with a label",
    "1,2 1:1": "there must be one label, unless multilabel=True",
    "1 a:1": "a feature must be index:value",
    "1 -3:1": "a feature must be index:value",
    "1 3 4:1": "a feature must be index:value",
    "1 0:1": "indices are counted from 1, unless first_index=0",
    "1 3:x": "the value after a colon must be a number",
    "1 3:1.5.2": "the value after a colon must be a number",
    "1 3:": "the value after a colon must be a number",
    "1 3: 1": "the value after a colon must be a number",
    "1 3:infi": "the value after a colon must be a number",
    "1 qid:x 3:1": "qid: must be followed by a whole number",
    "1 3:1 qid:4": "a feature must be index:value",
    "1 3:1 3:2": "an index must not stand twice in a line, but there is '3:2'",
    "1 3:1 1:2 2:5 3:4 7:1": "an index must not stand twice in a line, but there is '3:4 7:1'",
    "1 3:nan": "numbers must be finite, and not beyond 1.8e308, but there is '3:nan'",
    "1 3:-inf 4:1": "numbers must be finite",
    "infinity 4:1": "numbers must be finite",
    "1e999 4:1": "numbers must be finite, and not beyond 1.8e308, but there is '1e999 4:1'",
    "1 2:5e-324 1:1e-999 3:-1e400 4:1": "there is '3:-1e400 4:1'",
    "1 1:2\0": "a feature must be index:value",
    "1 99999999999:1": "the last index is 2147483647",
    "1 99999999999999999999999999:1": "the last index is 2147483647",
}


@pytest.mark.parametrize("batch_bytes", [8, 1 << 20])
@pytest.mark.parametrize("line", BAD)
def test_malformed_lines(tmp_path, line, batch_bytes):
    path = written(tmp_path, f"1 1:1\n\n{line}\n2 2:2\n")
    with pytest.raises(FileFormatError) as raised:
        whole(LibsvmFile(path, batch_bytes=batch_bytes))
    assert (raised.value.path, raised.value.line) == (str(path), 3)
    assert str(raised.value).startswith(f"{path}, line 3: {raised.value.reason}")
    assert BAD[line] in raised.value.reason
    assert raised.value.reason.endswith(" (the line starts at byte 7).")
    assert "\n" not in str(raised.value)
    source = LibsvmFile(path, on_error="skip", batch_bytes=batch_bytes)
    for _ in range(2):
        X, y = whole(source)
        assert y.tolist() == [1, 2]
        assert X.toarray().tolist() == [[1, 0], [0, 2]]
        assert (source.n_skipped, source.skipped) == (1, [str(raised.value)])


def test_an_index_beyond_the_declared_width(tmp_path):
    path = written(tmp_path, "1 1:1\n2 4:1\n3 3:1\n")
    with pytest.raises(ValueError, match=r"line 2: the last index is 3, but .* '4:1'"):
        whole(LibsvmFile(path, n_features=3))
    assert whole(LibsvmFile(path, n_features=3, on_error="skip"))[1].tolist() == [1, 3]
    assert whole(LibsvmFile(path, n_features=5, first_index=0))[0].toarray()[1, 4] == 1


@pytest.mark.parametrize("batch_bytes", [1, 3, 1 << 20])
@pytest.mark.parametrize("line_end", [b"\r", b"\r\n", b"\n"])
def test_line_ends_of_all_systems(tmp_path, line_end, batch_bytes):
    lines = [b"1 1:1", b"", b"2 2:2 # x", b"1 0:1"]
    for last in (line_end, b""):
        path = written(tmp_path, line_end.join(lines[:3]) + last)
        X, y = whole(LibsvmFile(path, batch_bytes=batch_bytes))
        assert y.tolist() == [1, 2]
        assert X.toarray().tolist() == [[1, 0], [0, 2]]
        path = written(tmp_path, line_end.join(lines) + last)
        with pytest.raises(FileFormatError, match="line 4: indices are counted from 1"):
            whole(LibsvmFile(path, batch_bytes=batch_bytes))


def test_indices_in_any_order_are_sorted(tmp_path):
    random = np.random.default_rng(0)
    rows = [random.permutation(n) + 1 for n in (1, 2, 3, 10, 100, 2000)]
    values = [10.0 ** -(row % 400) for row in rows]  # with some that only Python reads
    lines = [
        "1 " + " ".join(f"{j}:{float(v)!r}" for j, v in zip(row, value, strict=True))
        for row, value in zip(rows, values, strict=True)
    ]
    X, _ = read_libsvm(written(tmp_path, "\n".join(lines)))
    assert X.has_sorted_indices
    for i, row in enumerate(rows):
        np.testing.assert_array_equal(X.indices[X.indptr[i] : X.indptr[i + 1]], np.sort(row) - 1)
        np.testing.assert_array_equal(X.toarray()[i, row - 1], values[i])


@pytest.mark.parametrize("text", ["1 0:1 3:1\n", "1 4:1\n", "1 5:1\n"])
def test_whole_files_that_are_too_wide(tmp_path, text):
    path = written(tmp_path, text)
    with pytest.raises(ValueError, match=r"has 4 features, but n_features is 3|the last index is"):
        read_libsvm(path, n_features=3)
    assert read_libsvm(path, n_features=5)[0].shape == (1, 5)


def test_many_malformed_lines_are_counted_and_some_are_told(tmp_path):
    source = LibsvmFile(written(tmp_path, "x\n" * 500 + "1 1:1\n"), on_error="skip")
    assert whole(source)[1].tolist() == [1]
    assert (source.n_skipped, len(source.skipped)) == (500, libsvm_lines.MOST_MESSAGES)
    assert "line 100: a line must begin" in source.skipped[-1]
    assert "starts at byte 198" in source.skipped[-1]


def test_many_numbers_for_python(tmp_path):
    pairs = " ".join(f"{j}:5e-324" for j in range(1, 200))
    X, y = read_libsvm(written(tmp_path, f"1e-999 {pairs}\n" * 3))
    assert (X.toarray() == 5e-324).all()
    assert X.shape == (3, 199)
    assert (y == 0).all()


def test_a_text_without_ends_of_lines_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LONGEST_LINE", 1000)
    path = written(tmp_path, b"1 1:1\n" + b"7" * 5000)
    with pytest.raises(ValueError, match="line 2: the line does not end within 1000 characters"):
        whole(LibsvmFile(path, batch_bytes=100))
    assert (
        whole(LibsvmFile(written(tmp_path, "1 1:1\n" + " " * 900 + "2\n"), batch_bytes=8))[1][1]
        == 2
    )


def with_sorted_pairs(text):
    """The same lines with ascending indices, which scikit-learn insists on."""
    lines = []
    for line in text.split(b"\n"):
        content = line.partition(b"#")[0]
        *labels, pairs = re.match(rb"(\s*\S*)(\s+qid:-?\d+)?(.*)", content).groups(b"")
        pairs = sorted(pairs.split(), key=lambda pair: int(pair.partition(b":")[0]))
        lines.append(b"".join(labels) + b" " + b" ".join(pairs))
    return b"\n".join(lines)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.text("0123 :.-e#,qidn\t\r", max_size=30) | st.sampled_from(["1 1:2", "1 2:0.5 7:1e-3"]),
        max_size=8,
    ),
    st.integers(1, 60),
)
def test_whatever_is_read_scikit_learn_reads_alike(lines, batch_bytes):
    """Blocks of any size; what only one of them refuses, or sorts, is written out."""
    text = "\n".join(lines).encode()
    reader = libsvm_lines.LineReader("text", first_index=0)
    try:
        parts = list(reader.read(io.BytesIO(text), batch_bytes))
    except ValueError:
        with pytest.raises(ValueError):
            list(libsvm_lines.LineReader("text", first_index=0).read(io.BytesIO(text), 1 << 20))
        return
    unified = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    expected, y = load_svmlight_file(io.BytesIO(with_sorted_pairs(unified)), zero_based=True)
    assert sum(len(part.labels) for part in parts) == len(y)
    if parts:
        np.testing.assert_array_equal(np.concatenate([part.labels for part in parts]), y)
        data = np.concatenate([part.X.data for part in parts])
        np.testing.assert_array_equal(data, expected.data)
        indices = np.concatenate([part.X.indices for part in parts])
        np.testing.assert_array_equal(indices, expected.indices)


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_a_compressed_file_that_was_cut_short(tmp_path, on_error):
    compressed = gzip.compress("".join(f"1 1:{i}\n" for i in range(20_000)).encode())
    path = written(tmp_path, compressed[:-1000], "data.svm.gz")
    source = LibsvmFile(path, batch_bytes=10_000, on_error=on_error)
    blocks = source.batches()
    assert set(next(blocks).y.tolist()) == {1}
    with pytest.raises(
        ValueError, match=r"data\.svm\.gz is damaged or cut short: .* line \d{4,}\."
    ):
        list(blocks)
    assert source.n_examples is None


def test_nothing_at_all(tmp_path):
    path = written(tmp_path, "# only a comment\n\n")
    X, y = read_libsvm(path)
    assert X.shape == (0, 0)
    assert y.shape == (0,)
    source = LibsvmFile(path)
    assert list(source.batches()) == []
    assert source.n_examples == 0


def test_a_file_that_changes_or_goes_between_passes(tmp_path):
    path = written(tmp_path, "1 1:1\n")
    source = LibsvmFile(path)
    before = source.fingerprint()
    assert source.fingerprint() == LibsvmFile(str(path)).fingerprint() == before
    whole(source)
    written(tmp_path, "1 1:1\n2 1:1\n")
    assert LibsvmFile(path).fingerprint() != before
    assert LibsvmFile(path).fingerprint() != LibsvmFile(path, n_features=3).fingerprint()
    with pytest.raises(ValueError, match=r"data\.svm has changed since the first pass"):
        whole(source)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"no file .*data\.svm"):
        whole(source)


def test_standard_input_once(monkeypatch):
    stream = io.TextIOWrapper(io.BufferedReader(io.BytesIO(b"1 1:1\n2 2:1\n")))
    monkeypatch.setattr(sys, "stdin", stream)
    source = LibsvmFile("-")
    assert whole(source)[1].tolist() == [1, 2]
    with pytest.raises(ValueError, match="Standard input can be read only once"):
        whole(source)
    assert not stream.closed


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"on_error": "warn"}, "on_error must be 'stop' or 'skip', not 'warn'"),
        ({"first_index": 2}, "first_index must be 1 or 0"),
        ({"batch_bytes": 0}, "batch_bytes must be at least 1"),
    ],
)
def test_bad_options(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        LibsvmFile("data.svm", **options)


def test_how_far_a_pass_is(tmp_path):
    source = LibsvmFile(written(tmp_path, "1 1:1\n" * 100_000), batch_bytes=60_000)
    assert source.progress is None
    reached = [source.progress for _ in source.batches()]
    assert reached[0][1] == reached[-1][1] == 600_000
    assert 0 < reached[0][0] < reached[5][0] <= 600_000
    assert source.progress is None


TAGGED = "".join(
    f"{i % 3 + 1} qid:{word} {i % 5 + 1}:0.5  # {word}\n"
    for word, length in ((4, 3), (2, 1), (3, 6), (9, 2))
    for i in range(length)
)


@pytest.mark.parametrize("batch_bytes", [1, 30, 60, 1 << 20])
def test_sequences_of_svm_hmm(tmp_path, batch_bytes):
    source = SvmHmmFile(written(tmp_path, "# tags\n" + TAGGED), batch_bytes=batch_bytes)
    for _ in range(2):
        blocks = list(source.batches())
        X = [x for block in blocks for x in block.X]
        y = [tags.tolist() for block in blocks for tags in block.y]
        assert y == [[1, 2, 3], [1], [1, 2, 3, 1, 2, 3], [1, 2]]
        assert [x.shape[0] for x in X] == [3, 1, 6, 2]
        assert X[2][:, :5].toarray()[[0, 1, 5], [0, 1, 0]].tolist() == [0.5] * 3
        assert (source.n_examples, source.n_features) == (4, 5)
    assert {x.shape[1] for x in X} == {5}
    assert source.classes().tolist() == [1, 2, 3]


def test_svm_hmm_read_whole(tmp_path):
    path = written(tmp_path, TAGGED)
    X, y = read_svm_hmm(path)
    assert [x.shape for x in X] == [(3, 5), (1, 5), (6, 5), (2, 5)]
    assert y[0].dtype == np.int64
    assert read_svm_hmm(path, n_features=8)[0][0].shape == (3, 8)
    assert mmd.read_svm_hmm(written(tmp_path, "0.5 qid:1 1:1\n"))[1][0].tolist() == [0.5]
    assert read_svm_hmm(written(tmp_path, "# nothing\n")) == ([], [])


def test_svm_hmm_without_qid(tmp_path):
    with pytest.raises(ValueError, match=r"line 2: qid: and the number of the sequence must"):
        read_svm_hmm(written(tmp_path, "1 qid:1 1:1\n1 1:1\n"))


def test_huge_tags_are_left_as_they_are(tmp_path):
    _, y = read_svm_hmm(written(tmp_path, f"{'2' * 32} qid:1 1:1\n1 qid:1\n"))
    assert y[0].tolist() == [float("2" * 32), 1.0]


def test_cost_of_svm_light_is_a_sample_weight(tmp_path):
    """It may stand anywhere after the label, as SVM-light has it."""
    lines = (
        "+1 cost:2.5 1:0.3\n-1 1:2 cost:.5 2:1\n1 qid:3 cost:0 4:1\n-1 cost:1e-400 qid:2 5:1\n1\n"
    )
    path = written(tmp_path, lines)
    X, y, queries, weight = read_libsvm(path, query_id=True, sample_weight=True)
    assert weight.tolist() == [2.5, 0.5, 0.0, 0.0, 1.0]
    assert y.tolist() == [1, -1, 1, -1, 1]
    assert queries.tolist() == [-1, -1, 3, 2, -1]
    assert X.toarray()[1].tolist() == [2, 1, 0, 0, 0]
    assert read_libsvm(written(tmp_path, "1 1:1\n"), sample_weight=True)[2] is None
    X, y, weight = read_libsvm(
        written(tmp_path, "1,2 cost:3 1:1\n"), sample_weight=True, multilabel=True
    )
    assert (y, weight.tolist()) == ([(1.0, 2.0)], [3.0])


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("1 cost:-1 1:1", "cost: must stand once in a line, followed by a number that is not neg"),
        ("1 cost:x 1:1", "cost: must stand once"),
        ("1 cost:2 1:1 cost:2", "cost: must stand once"),
        ("1 cost:inf 1:1", "numbers must be finite"),
        ("1 cost:1e999 1:1", "numbers must be finite"),
        ("cost:1 1:1", "a line must begin with a label"),
        ("1 cost:1 0:1 2:2 0:1", "an index must not stand twice in a line, but there is '0:1' "),
    ],
)
def test_costs_that_are_none(tmp_path, line, complaint):
    path = written(tmp_path, f"1 1:1\n{line}\n")
    with pytest.raises(FileFormatError, match=f"line 2: {complaint}"):
        read_libsvm(path, sample_weight=True)
    source = LibsvmFile(path, on_error="skip", first_index=0)
    assert (whole(source)[1].tolist(), source.n_skipped) == ([1], 1)


def test_costs_that_nobody_asked_for_are_not_lost_without_a_word(tmp_path):
    path = written(tmp_path, "1 1:1\n-1 cost:2 1:1\n")
    reads = [
        read_libsvm,
        lambda path: whole(LibsvmFile(path)),
        lambda path: mmd.convert(path, tmp_path / "folder"),
    ]
    for read in reads:
        with pytest.raises(
            FileFormatError, match=r"line 2: cost:.* is read by read_libsvm\(path, sam"
        ):
            read(path)
    path = written(tmp_path, "1 qid:1 1:1\n2 qid:1 cost:2 1:1\n")
    with pytest.raises(FileFormatError, match="line 2: positions of sequences have no cost:"):
        read_svm_hmm(path)
    with pytest.raises(FileFormatError, match="line 2: documents of queries have no cost:"):
        mmd.read_letor(path)


def test_many_numbers_that_python_has_to_read(tmp_path):
    """In any order of their columns, in several batches, on lines with costs and other numbers."""
    numbers = [f"{k}e-32{k % 4}" for k in range(1, 500)]
    pairs = " ".join(f"{column}:{text}" for column, text in reversed(list(enumerate(numbers, 1))))
    path = written(tmp_path, f"5e-324 cost:2e-310 {pairs}\n1 1:0.5\n" * 3)
    X, y, weight = read_libsvm(path, sample_weight=True)
    assert X.shape == (6, 499)
    assert y.tolist() == [5e-324, 1.0] * 3
    assert weight.tolist() == [2e-310, 1.0] * 3
    for row in (0, 2, 4):
        assert X[[row]].toarray().ravel().tolist() == [float(text) for text in numbers]


def test_whole_numbers_are_integers_unless_they_are_too_large():
    assert whole_numbers(np.array([1.0, -3.0])).dtype == np.int64
    for labels in ([1.0, 1e300], [1.0, 0.5], [np.nan]):
        assert whole_numbers(np.array(labels)).dtype == np.float64
