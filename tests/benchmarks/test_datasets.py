"""Tests of the data set loaders, on small fake files and on the real ones where present."""

from __future__ import annotations

import gzip
import io
import lzma
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from functools import partial
from http.client import IncompleteRead
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.utils import Bunch

from benchmarks import datasets
from benchmarks.datasets import (
    CORPORA,
    NAMES,
    Dataset,
    Letters,
    available,
    load,
    load_corpus,
    load_letters,
)

PAGE = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/"
LETTERS_PAGE = "http://ai.stanford.edu/~btaskar/ocr/letter.data.gz"
NLTK_PAGE = "https://raw.githubusercontent.com/nltk/nltk_data/gh-pages/packages/corpora/"
FETCHERS = ("fetch_openml", "fetch_covtype", "fetch_20newsgroups")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point the loaders to an empty data folder and an empty cache, without a network."""

    def unreachable(*args: Any, **options: Any) -> Any:
        raise URLError("no network in tests")

    monkeypatch.setenv("MAXMARGIN_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("MAXMARGIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets, "urlopen", unreachable)
    for fetcher in FETCHERS:
        monkeypatch.setattr(f"sklearn.datasets.{fetcher}", unreachable)
    return tmp_path / "data"


@pytest.fixture
def cache(folder: Path) -> Path:
    return folder.parent / "cache"


@pytest.fixture
def serve(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, bytes]], list[str]]:
    """Serve pages, by address or below the LIBSVM data page; the list records what was asked."""

    def start(pages: dict[str, bytes]) -> list[str]:
        asked: list[str] = []

        def urlopen(url: str, timeout: float) -> io.BytesIO:
            asked.append(url)
            return io.BytesIO(pages[url.removeprefix(PAGE)])

        monkeypatch.setattr(datasets, "urlopen", urlopen)
        return asked

    return start


def write(path: Path, body: bytes) -> None:
    """Write a file, compressed as its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(body) if path.suffix == ".gz" else lzma.compress(body))


def idx(values: np.ndarray) -> bytes:
    shape = np.array(values.shape, ">i4").tobytes()
    return bytes([0, 0, 8, values.ndim]) + shape + values.astype(np.uint8).tobytes()


def table(values: np.ndarray, delimiter: str) -> bytes:
    header = delimiter.join([f"f{i}" for i in range(values.shape[1] - 1)] + ["target"])
    lines = [delimiter.join(f"{value:g}" for value in row) for row in values]
    return "\n".join([header, *lines, ""]).encode()


def libsvm(X: np.ndarray, y: np.ndarray) -> bytes:
    rows = (
        " ".join([f"{target:g}", *(f"{j + 1}:{v:.9g}" for j, v in enumerate(row) if v)])
        for row, target in zip(X, y, strict=True)
    )
    return "\n".join([*rows, ""]).encode()


def tar_of(posts: dict[str, str]) -> bytes:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as tar:
        folder = tarfile.TarInfo("20news-bydate-train")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, text in posts.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode("latin-1"))
            tar.addfile(member, io.BytesIO(text.encode("latin-1")))
    return body.getvalue()


def assert_well_formed(data: Dataset) -> None:
    for X, y in ((data.X_train, data.y_train), (data.X_test, data.y_test)):
        assert sp.issparse(X)
        assert X.format == "csr"
        assert X.dtype == np.float64
        assert X.indices.dtype == X.indptr.dtype == np.int32
        canonical = sp.csr_matrix((X.data, X.indices, X.indptr), X.shape)  # no cached flags
        assert canonical.has_canonical_format
        assert np.all(X.data != 0)
        assert y.shape == (X.shape[0],)


def assert_same(one: Dataset, other: Dataset) -> None:
    assert_allclose(one.X_train.toarray(), other.X_train.toarray(), atol=1e-6)
    assert_allclose(one.X_test.toarray(), other.X_test.toarray(), atol=1e-6)
    assert_array_equal(one.y_train, other.y_train)
    assert_array_equal(one.y_test, other.y_test)


# The real data sets


@pytest.mark.parametrize(
    ("name", "shape", "nnz", "n_test", "n_classes", "low", "high"),
    [
        pytest.param("mnist", (60000, 784), 8994156, 10000, 10, 0, 1, marks=pytest.mark.slow),
        pytest.param("covtype", (464809, 54), 5552226, 116203, 7, 0, 1, marks=pytest.mark.slow),
        pytest.param("20news", (11314, 56436), 1713894, 7532, 20, 0, 1, marks=pytest.mark.slow),
        ("a9a", (32561, 123), 451592, 16281, 2, 0, 1),
        ("cpu_small", (6553, 12), 78636, 1639, None, -1, 1),
        ("letter", (15000, 16), 240000, 5000, 26, -1, 1),
        ("pendigits", (7494, 16), 104535, 3498, 10, 0, 1),
    ],
)
def test_real_data(
    name: str,
    shape: tuple[int, int],
    nnz: int,
    n_test: int,
    n_classes: int | None,
    low: float,
    high: float,
) -> None:
    if not available(name):
        pytest.skip(f"MAXMARGIN_DATA does not hold {name}")
    data = load(name)
    assert data.name == name
    assert_well_formed(data)
    assert data.X_train.shape == shape
    assert data.X_train.nnz == nnz
    assert data.X_test.shape == (n_test, shape[1])
    assert low <= min(data.X_train.min(), data.X_test.min())
    assert max(data.X_train.max(), data.X_test.max()) <= high
    if n_classes is None:
        assert data.y_train.dtype == data.y_test.dtype == np.float64
    else:
        assert_array_equal(np.unique(data.y_train), np.arange(n_classes))
        assert set(data.y_test) <= set(range(n_classes))


def test_real_letters() -> None:
    if not available("letters"):
        pytest.skip("MAXMARGIN_DATA does not hold letters")
    letters = load_letters()
    assert_letters_well_formed(letters)
    assert letters.X.shape == (52_152, 128)
    assert_array_equal(
        np.bincount(letters.folds), [626, 704, 684, 698, 693, 651, 739, 717, 690, 675]
    )
    assert set(letters.y) == set(range(26))
    assert (letters.lengths.min(), letters.lengths.max()) == (3, 14)


@pytest.mark.parametrize(
    ("name", "n_train", "n_test", "n_tokens", "n_fields", "n_labels"),
    [
        ("conll2000", 8_936, 2_012, 259_104, 3, 23),
        pytest.param("brown", 45_872, 11_468, 1_161_192, 2, 144, marks=pytest.mark.slow),
    ],
)
def test_real_corpus(
    name: str, n_train: int, n_test: int, n_tokens: int, n_fields: int, n_labels: int
) -> None:
    if not available(name):
        pytest.skip(f"MAXMARGIN_DATA does not hold {name}")
    corpus = load_corpus(name)
    assert corpus.name == name
    assert (len(corpus.train), len(corpus.test)) == (n_train, n_test)
    tokens = [token for sentence in corpus.train + corpus.test for token in sentence]
    assert len(tokens) == n_tokens
    assert {len(token) for token in tokens} == {n_fields}
    assert all(map(all, tokens))
    assert len({token[-1] for token in tokens}) == n_labels


# Local copies


def test_mnist_local(folder: Path) -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (12, 3, 2)), np.r_[np.arange(10), 4, 0]
    for part, rows in (("train", slice(0, 10)), ("t10k", slice(10, 12))):
        write(folder / f"mnist/{part}-images-idx3-ubyte.gz", idx(images[rows]))
        write(folder / f"mnist/{part}-labels-idx1-ubyte.gz", idx(labels[rows]))
    assert available("mnist")
    data = load("mnist")
    assert_well_formed(data)
    assert_array_equal(data.X_train.toarray(), images[:10].reshape(10, 6) / 255)
    assert_array_equal(data.X_test.toarray(), images[10:].reshape(2, 6) / 255)
    assert_array_equal(data.y_train, np.arange(10))
    assert_array_equal(data.y_test, [4, 0])


def covtype_rows() -> np.ndarray:
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.integers(-50, 4000, (21, 2)), np.full(21, 7), np.arange(21) % 2])
    return np.column_stack([X, np.arange(21) % 7 + 1])


def assert_is_covtype(data: Dataset, rows: np.ndarray) -> None:
    assert_well_formed(data)
    X = rows[:, :-1] - rows[:, :-1].min(axis=0)
    X = X / np.maximum(X.max(axis=0), 1)
    order = np.random.RandomState(0).permutation(21)
    assert_array_equal(data.X_train.toarray(), X[order[:16]])
    assert_array_equal(data.X_test.toarray(), X[order[16:]])
    assert_array_equal(data.y_train, rows[order[:16], -1] - 1)
    assert_array_equal(data.y_test, rows[order[16:], -1] - 1)


def test_covtype_local(folder: Path) -> None:
    rows = covtype_rows()
    write(folder / "covtype/covtype.csv.xz", table(rows, ","))
    assert_is_covtype(load("covtype"), rows)


POSTS = {
    "20news-bydate-train/sci.space/11": "moon rocket caf\xe9",
    "20news-bydate-train/alt.atheism/9": "belief rocket caf\xe9",
    "20news-bydate-train/alt.atheism/10": "belief moon moon once",
    "20news-bydate-test/sci.space/5": "rocket unseen unseen",
    "20news-bydate-test/alt.atheism/6": "belief unseen",
}


def assert_is_20news(data: Dataset) -> None:
    # words in two training posts: belief, café, moon, rocket; rows by group, then number
    assert_well_formed(data)
    assert_array_equal(data.X_train.toarray() > 0, [[1, 0, 1, 0], [1, 1, 0, 1], [0, 1, 1, 1]])
    assert_array_equal(data.X_test.toarray(), [[1, 0, 0, 0], [0, 0, 0, 1]])
    assert_array_equal(data.y_train, [0, 0, 1])
    assert_array_equal(data.y_test, [0, 1])
    belief, moon = data.X_train[0].data
    assert_allclose(moon / belief, 1 + np.log(2))  # sublinear, the same document frequency


def test_20news_local(folder: Path) -> None:
    write(folder / "20news/20news-bydate.tar.xz", tar_of(POSTS))
    assert_is_20news(load("20news"))


def test_a9a_local(folder: Path) -> None:
    write(folder / "a9a/a9a.xz", b"-1 3:1 11:1 \n+1 5:1 123:1\n-1 1:1\n")
    write(folder / "a9a/a9a.t.xz", b"+1 3:1 122:1\n")
    data = load("a9a")
    assert_well_formed(data)
    assert data.X_train.shape == (3, 123)
    assert data.X_test.shape == (1, 123)
    assert_array_equal(data.X_train.indices, [2, 10, 4, 122, 0])
    assert_array_equal(data.y_train, [0, 1, 0])
    assert_array_equal(data.y_test, [1])


def test_cpu_small_local(folder: Path) -> None:
    rows = np.random.default_rng(2).uniform(0, 99, (10, 13)).round(3)
    write(folder / "pmlb/227_cpu_small.tsv.gz", table(rows, "\t"))
    data = load("cpu_small")
    assert_well_formed(data)
    assert data.X_train.shape == (8, 12)
    order = np.random.RandomState(0).permutation(10)
    assert_array_equal(np.r_[data.y_train, data.y_test], rows[order, -1])
    X = sp.vstack([data.X_train, data.X_test]).toarray()
    assert_allclose(X.min(axis=0), -1)
    assert_allclose(X.max(axis=0), 1)
    assert_allclose(np.corrcoef(X[:, 0], rows[order, 0])[0, 1], 1)


def standard_rows(n: int, high: int, first_class: int, n_classes: int) -> np.ndarray:
    rng = np.random.default_rng(3)
    X = rng.integers(0, high + 1, (n, 16))
    X[0], X[1] = 0, high
    return np.column_stack([X, np.arange(n) % n_classes + first_class])


def test_letter_local(folder: Path) -> None:
    rows = standard_rows(15_003, 15, 1, 26)
    write(folder / "pmlb/letter.tsv.gz", table(rows, "\t"))
    data = load("letter")
    assert_well_formed(data)
    assert_allclose(data.X_train.toarray(), rows[:15_000, :-1] / 7.5 - 1, atol=1e-12)
    assert_allclose(data.X_test.toarray(), rows[15_000:, :-1] / 7.5 - 1, atol=1e-12)
    assert_array_equal(data.y_test, rows[15_000:, -1] - 1)


def test_pendigits_local(folder: Path) -> None:
    rows = standard_rows(7_497, 100, 0, 10)
    write(folder / "pmlb/pendigits.tsv.gz", table(rows, "\t"))
    data = load("pendigits")
    assert_well_formed(data)
    assert_array_equal(data.X_train.toarray(), rows[:7_494, :-1] / 100)
    assert_array_equal(data.X_test.toarray(), rows[7_494:, :-1] / 100)
    assert_array_equal(data.y_test, rows[7_494:, -1])


def assert_letters_well_formed(letters: Letters) -> None:
    assert letters.X.dtype == np.float64
    assert set(letters.X.data) == {1.0}
    assert letters.lengths.sum() == letters.X.shape[0] == len(letters.y)
    assert len(letters.folds) == len(letters.lengths)


WORDS = {"ommand": 3, "in": 0, "a": 9}


def letter_rows() -> tuple[np.ndarray, list[str]]:
    """Pixels of three words, and the lines that the original file has for them."""
    pixels = np.random.default_rng(4).integers(0, 2, (9, 128))
    lines = []
    for number, (word, fold) in enumerate(WORDS.items()):
        for at, letter in enumerate(word):
            after = -1 if at == len(word) - 1 else len(lines) + 2
            row = [len(lines) + 1, letter, after, number, at + 1, fold, *pixels[len(lines)]]
            lines.append("\t".join(map(str, row)) + "\t")
    return pixels, lines


def assert_is_letters(letters: Letters, pixels: np.ndarray) -> None:
    assert_letters_well_formed(letters)
    assert_array_equal(letters.X.toarray(), pixels)
    assert_array_equal(letters.y, [ord(letter) - 97 for word in WORDS for letter in word])
    assert_array_equal(letters.lengths, [len(word) for word in WORDS])
    assert_array_equal(letters.folds, list(WORDS.values()))


def write_letters(folder: Path, n_letters: int = 9) -> np.ndarray:
    pixels, _ = letter_rows()
    path = folder / "letters/letters.npz"
    path.parent.mkdir(parents=True)
    np.savez(
        path,
        pixels=pixels[:n_letters].astype(np.uint8),
        labels=np.array([ord(letter) - 97 for word in WORDS for letter in word], dtype=np.uint8),
        word_lengths=np.array([len(word) for word in WORDS]),
        folds=np.array(list(WORDS.values())),
    )
    return pixels


def test_letters_local(folder: Path) -> None:
    pixels = write_letters(folder)
    assert available("letters")
    assert_is_letters(load_letters(), pixels)


def test_letters_that_do_not_fit(folder: Path) -> None:
    write_letters(folder, n_letters=8)
    with pytest.raises(ValueError, match="words have 9 letters, but there are 8"):
        load_letters()


def zip_of(files: dict[str, str]) -> bytes:
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return body.getvalue()


CONLL2000 = {
    "conll2000/README": "read me",
    "conll2000/train.txt": "He PRP B-NP\nruns VBZ B-VP\n. . O\n\nStop VB B-VP\n\n",
    "conll2000/test.txt": "Go VB B-VP\n",
}
BROWN = {
    "brown/": "",
    "brown/README": "not/a sentence/here",
    "brown/cats.txt": "ca01 news",
    "brown/cb02": "\n\n\tIt's/pps+bez --/-- over/rb-nc ./.\n\n",
    "brown/ca01": "\n\tThe/at-tl Jury/nn-tl-hl 1/2/cd\n\nNo/at ---hl/--\nGo/vb\nOn/fw-in\n",
}
BROWN_SENTENCES = [
    [("The", "AT"), ("Jury", "NN"), ("1/2", "CD")],
    [("No", "AT"), ("---hl", "--")],
    [("Go", "VB")],
    [("On", "FW-IN")],
    [("It's", "PPS"), ("--", "--"), ("over", "RB"), (".", ".")],
]


def assert_is_corpus(name: str) -> None:
    corpus = load_corpus(name)
    assert corpus.name == name
    if name == "conll2000":
        first = [("He", "PRP", "B-NP"), ("runs", "VBZ", "B-VP"), (".", ".", "O")]
        assert corpus.train == [first, [("Stop", "VB", "B-VP")]]
        assert corpus.test == [[("Go", "VB", "B-VP")]]
    else:
        order = np.random.RandomState(0).permutation(5)
        assert corpus.train == [BROWN_SENTENCES[i] for i in order[:4]]
        assert corpus.test == [BROWN_SENTENCES[order[4]]]


ARCHIVES = [("conll2000", CONLL2000), ("brown", BROWN)]


@pytest.mark.parametrize(("name", "files"), ARCHIVES)
def test_corpus_local(name: str, files: dict[str, str], folder: Path) -> None:
    path = folder / name / f"{name}.zip"
    path.parent.mkdir(parents=True)
    path.write_bytes(zip_of(files))
    assert available(name)
    assert_is_corpus(name)


def test_half_a_local_copy_is_none(folder: Path) -> None:
    write(folder / "a9a/a9a.xz", b"-1 3:1\n")
    assert not available("a9a")
    with pytest.raises(FileNotFoundError):
        load("a9a")


def test_broken_local_copy_is_not_hidden(folder: Path) -> None:
    write(folder / "covtype/covtype.csv.xz", b"f0,target\n1,2\n3,x\n")
    with pytest.raises(ValueError, match="x"):
        load("covtype")


# Downloads


def table_and_pages(name: str) -> tuple[str, bytes, dict[str, bytes]]:
    """Return the local file and its content, and LIBSVM pages with the same rows."""
    if name == "cpu_small":
        rows = np.random.default_rng(2).uniform(0, 99, (10, 13)).round(3)
        pages = {"regression/cpusmall": libsvm(rows[:, :-1], rows[:, -1])}
        return "227_cpu_small", table(rows, "\t"), pages
    if name == "letter":
        n_train, page, rows = 15_000, "multiclass/letter.scale", standard_rows(15_003, 15, 1, 26)
        X = (rows[:, :-1] / 7.5 - 1).round(6)
    else:
        n_train, page, rows = 7_494, "multiclass/pendigits", standard_rows(7_497, 100, 0, 10)
        X = rows[:, :-1]
    train, test = slice(n_train), slice(n_train, None)
    pages = {
        page: libsvm(X[train], rows[train, -1]),
        page + ".t": libsvm(X[test], rows[test, -1]),
    }
    return name, table(rows, "\t"), pages


@pytest.mark.parametrize("name", ["cpu_small", "letter", "pendigits"])
def test_libsvm_download_equals_local_copy(
    name: str, folder: Path, serve: Callable[[dict[str, bytes]], list[str]]
) -> None:
    file, content, pages = table_and_pages(name)
    asked = serve(pages)
    fetched = load(name)
    assert asked == [PAGE + page for page in pages]
    assert_well_formed(fetched)
    write(folder / f"pmlb/{file}.tsv.gz", content)
    assert_same(fetched, load(name))
    assert len(asked) == len(pages)  # the local copy was used


A9A_PAGES = {"binary/a9a": b"-1 3:1 11:1 \n+1 5:1\n", "binary/a9a.t": b"+1 123:1\n"}


def test_libsvm_download_is_cached(
    cache: Path, serve: Callable[[dict[str, bytes]], list[str]]
) -> None:
    asked = serve(A9A_PAGES)
    first = load("a9a")
    assert not available("a9a")  # a download is no local copy
    assert_same(first, load("a9a"))
    assert asked == [PAGE + "binary/a9a", PAGE + "binary/a9a.t"]
    kept = {path.relative_to(cache / "libsvm").as_posix() for path in cache.rglob("a9a*")}
    assert kept == set(A9A_PAGES)
    (cache / "libsvm/binary/a9a.t").unlink()
    assert_same(first, load("a9a"))
    assert asked[2:] == [PAGE + "binary/a9a.t"]  # only what is missing


def test_cache_default_is_in_the_home_folder(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    serve: Callable[[dict[str, bytes]], list[str]],
) -> None:
    monkeypatch.delenv("MAXMARGIN_CACHE")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    serve(A9A_PAGES)
    load("a9a")
    assert (tmp_path / ".cache/maxmargin/libsvm/binary/a9a").is_file()


def test_a_page_that_is_not_the_data_is_not_cached(
    cache: Path, serve: Callable[[dict[str, bytes]], list[str]]
) -> None:
    serve({"binary/a9a": b"<html>sign in</html>\n", "binary/a9a.t": b""})
    with pytest.raises(FileNotFoundError, match="a9a"):
        load("a9a")
    assert not cache.exists()


def test_cut_off_download_is_not_cached(
    cache: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class CutOff(io.BytesIO):
        def read(self, *args: Any) -> bytes:
            raise IncompleteRead(b"-1 3:1", 100)

    monkeypatch.setattr(datasets, "urlopen", lambda url, timeout: CutOff())
    with pytest.raises(FileNotFoundError, match="IncompleteRead"):
        load("a9a")
    assert not cache.exists()


def test_failed_write_leaves_nothing(
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    serve: Callable[[dict[str, bytes]], list[str]],
) -> None:
    def full(self: Path, target: Path) -> None:
        raise OSError("disk full")

    serve(A9A_PAGES)
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(FileNotFoundError, match="disk full"):
        load("a9a")
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_letters_download_is_cached(
    cache: Path, serve: Callable[[dict[str, bytes]], list[str]]
) -> None:
    pixels, lines = letter_rows()
    body = gzip.compress("\n".join([*lines, ""]).encode())
    asked = serve({LETTERS_PAGE: body})
    assert_is_letters(load_letters(), pixels)
    assert_is_letters(load_letters(), pixels)
    assert asked == [LETTERS_PAGE]
    assert (cache / "ocr/letter.data.gz").read_bytes() == body


@pytest.mark.parametrize(("name", "files"), ARCHIVES)
def test_corpus_download_is_cached(
    name: str,
    files: dict[str, str],
    cache: Path,
    serve: Callable[[dict[str, bytes]], list[str]],
) -> None:
    asked = serve({f"{NLTK_PAGE}{name}.zip": zip_of(files)})
    assert_is_corpus(name)
    assert not available(name)
    assert_is_corpus(name)
    assert asked == [f"{NLTK_PAGE}{name}.zip"]
    assert (cache / f"nltk/{name}.zip").is_file()


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("letters", b"<html>moved</html>"),
        # Without the time of day, which would give the test another name in each process.
        ("letters", gzip.compress(b"1\ta\t-1\n", mtime=0)),
        ("letters", gzip.compress(b"1\ta\t2\t1\t1\t0\t1\n", mtime=0)[:-9]),
        ("conll2000", b"<html>moved</html>"),
        ("conll2000", zip_of({"conll2000/train.txt": ""})),
        ("brown", zip_of({"brown/README": ""})),
    ],
)
def test_what_does_not_parse_is_not_cached(
    name: str, body: bytes, cache: Path, serve: Callable[[dict[str, bytes]], list[str]]
) -> None:
    serve({LETTERS_PAGE if name == "letters" else f"{NLTK_PAGE}{name}.zip": body})
    with pytest.raises(FileNotFoundError, match=name):
        LOADERS[name]()
    assert not cache.exists()


def fake_fetcher(monkeypatch: pytest.MonkeyPatch, name: str, fetch: Callable[..., Bunch]) -> None:
    monkeypatch.setattr(f"sklearn.datasets.{name}", fetch)


def test_mnist_download(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.random.default_rng(0).integers(0, 256, (60_020, 2)).astype(np.float64)
    labels = np.arange(60_020) % 10

    def fetch(name: str, *, data_home: str, as_frame: bool, **options: Any) -> Bunch:
        assert name == "mnist_784"
        assert Path(data_home).parent == cache
        assert not as_frame
        return Bunch(data=images, target=labels.astype(str).astype(object))

    fake_fetcher(monkeypatch, "fetch_openml", fetch)
    data = load("mnist")
    assert_well_formed(data)
    assert_array_equal(data.X_train.toarray(), images[:60_000] / 255)
    assert_array_equal(data.y_test, labels[60_000:])


def test_covtype_download(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = covtype_rows()
    bunch = Bunch(data=rows[:, :-1].astype(np.float64), target=rows[:, -1].astype(np.int32))
    fake_fetcher(monkeypatch, "fetch_covtype", lambda data_home: bunch)
    assert_is_covtype(load("covtype"), rows)


def test_20news_download(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(*, subset: str, remove: tuple[str, ...], data_home: str) -> Bunch:
        assert remove == ()
        names = [name for name in POSTS if f"-{subset}/" in name]
        names = names[::-1]  # scikit-learn shuffles
        places = np.array([f"{data_home}/20news_home/{name}" for name in names])
        return Bunch(data=[POSTS[name] for name in names], filenames=places)

    fake_fetcher(monkeypatch, "fetch_20newsgroups", fetch)
    assert_is_20news(load("20news"))


# Errors and the module


LOADERS: dict[str, Callable[[], Any]] = {
    **{name: partial(load, name) for name in NAMES},
    **{name: partial(load_corpus, name) for name in CORPORA},
    "letters": load_letters,
}


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("is_set", [True, False])
def test_error_says_what_to_do(
    name: str, is_set: bool, folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_set:
        monkeypatch.delenv("MAXMARGIN_DATA")
    assert not available(name)
    with pytest.raises(FileNotFoundError) as caught:
        LOADERS[name]()
    sentence = str(caught.value)
    assert sentence.startswith(f"data set {name!r} was not found in MAXMARGIN_DATA (")
    assert (str(folder) if is_set else "not set") in sentence
    assert str(cache) in sentence
    assert "no network in tests" in sentence
    assert "set MAXMARGIN_DATA" in sentence
    assert sentence.endswith("connect to the network")
    assert "\n" not in sentence
    assert ". " not in sentence
    assert isinstance(caught.value.__cause__, URLError)


@pytest.mark.parametrize("function", [load, available])
def test_unknown_name(function: Callable[[str], Any]) -> None:
    with pytest.raises(ValueError, match="unknown data set 'iris', choose one of mnist, covtype"):
        function("iris")


def test_unknown_corpus() -> None:
    with pytest.raises(ValueError, match="unknown data set 'letters', choose one of conll2000, br"):
        load_corpus("letters")


def test_names() -> None:
    names = ("mnist", "covtype", "20news", "a9a", "cpu_small", "letter", "pendigits")
    assert names == NAMES
    assert CORPORA == ("conll2000", "brown")


def test_import_does_not_import_scikit_learn() -> None:
    code = "import runpy, sys; runpy.run_path(sys.argv[1]); sys.exit('sklearn' in sys.modules)"
    subprocess.run([sys.executable, "-c", code, str(datasets.__file__)], check=True)
