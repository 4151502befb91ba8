"""The reader and writer of ranking data, and the real folds where present."""

import gzip
import lzma
import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

from maxmargin.data import FileFormatError
from maxmargin.structures.ranking.formats import read_letor, write_letor

TEXT = """# a file
2 qid:10 1:0.5 3:1 # docid = 7

0 qid:10 2:-1e-3
1.5 qid:2 #nothing but zeros
"""

OHSUMED = Path(os.environ.get("MAXMARGIN_DATA", "/nowhere")) / "letor-ohsumed"


def written(tmp_path, text, name="data.txt"):
    path = tmp_path / name
    opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    with opener(path, "wt", encoding="utf-8") as file:
        file.write(text)
    return path


@pytest.mark.parametrize("name", ["data.txt", "data.txt.gz", "data.txt.xz"])
def test_read(tmp_path, name):
    X, y, groups = read_letor(written(tmp_path, TEXT, name))
    assert_array_equal(X.toarray(), [[0.5, 0, 1], [0, -1e-3, 0], [0, 0, 0]])
    assert_array_equal(y, [2, 0, 1.5])
    assert_array_equal(groups, [10, 10, 2])
    assert groups.dtype == np.int64


def test_several_files_and_more_features(tmp_path):
    path = written(tmp_path, TEXT)
    X, y, groups = read_letor([path, str(path)], n_features=5)
    assert X.shape == (6, 5)
    assert len(y) == len(groups) == 6


def test_queries_may_have_names(tmp_path):
    assert read_letor(written(tmp_path, "1 qid:a\n0 qid:7\n"))[2].tolist() == ["a", "7"]
    assert read_letor(written(tmp_path, "1 qid:07\n0 qid:7\n"))[2].tolist() == ["07", "7"]


def test_an_empty_file_has_no_documents(tmp_path):
    X, y, groups = read_letor(written(tmp_path, "# nothing\n"))
    assert X.shape == (0, 0)
    assert len(y) == len(groups) == 0


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("1", "there is no query"),
        ("x qid:1 1:1", "'x' is no finite number"),
        ("nan qid:1 1:1", "'nan' is no finite number"),
        ("1 1:1 2:1", "'1:1' stands where qid:QUERY should"),
        ("1 qid: 1:1", "'qid:' stands where"),
        ("1 qid:1 0:1", "'0' is no number of a feature"),
        ("1 qid:1 a:1", "'a' is no number of a feature"),
        ("1 qid:1 1:", "'' is no finite number"),
        ("1 qid:1 3", "'' is no finite number"),
        ("1 qid:1 1:inf", "'inf' is no finite number"),
        ("1 qid:1 2:1 1:1 2:1", "feature 2 stands twice in the line"),
        ("1 qid:1 9:1", "feature 9 is beyond the last, 4"),
    ],
)
def test_errors_name_the_file_and_the_line(tmp_path, line, complaint):
    path = written(tmp_path, f"0 qid:1 1:1\n{line}\n")
    with pytest.raises(FileFormatError) as raised:
        read_letor(path, n_features=4)
    assert str(raised.value).startswith(f"{path}, line 2: {complaint}")
    assert str(raised.value).count(". ") == 0


def test_damaged_and_missing_files(tmp_path):
    path = tmp_path / "bad.txt.gz"
    path.write_bytes(b"no gzip")
    with pytest.raises(FileFormatError, match=r"bad\.txt\.gz is damaged, or not compressed"):
        read_letor(path)
    with pytest.raises(FileNotFoundError):
        read_letor(tmp_path / "none.txt")


@pytest.mark.parametrize("name", ["out.txt", "out.txt.gz", "out.txt.xz"])
def test_what_is_written_is_read_again(tmp_path, name):
    random = np.random.default_rng(0)
    X = sp.random_array((20, 7), density=0.3, rng=random, format="csr")
    y, groups = random.integers(0, 3, 20).astype(float), np.repeat([3, 1, 4, 1], 5)
    y[0] = 0.1
    write_letor(tmp_path / name, X, y, groups, comments=[f" doc {i}" for i in range(20)])
    again, relevance, queries = read_letor(tmp_path / name, n_features=7)
    assert_array_equal(again.toarray(), X.toarray())
    assert_array_equal(relevance, y)
    assert_array_equal(queries, groups)


def test_what_does_not_fit_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="X has 2 rows, y 1"):
        write_letor(tmp_path / "out.txt", np.eye(2), [1], [1, 1])
    with pytest.raises(ValueError, match="Document 1 has a query or a comment"):
        write_letor(tmp_path / "out.txt", np.eye(2), [1, 0], ["a", "b c"])
    assert not (tmp_path / "out.txt").exists()


@pytest.mark.skipif(not OHSUMED.exists(), reason="MAXMARGIN_DATA holds no letor-ohsumed")
def test_ohsumed():
    X, y, groups = read_letor(OHSUMED / "S1.txt.xz")
    assert X.shape == (2570, 45)
    assert len(np.unique(groups)) == 21
    assert set(y) == {0.0, 1.0, 2.0}
