"""Real data sets of the benchmarks, read from a local copy or else downloaded.

A local copy is looked for in the folder named by the environment variable
``MAXMARGIN_DATA``. Without one the data set is downloaded: by the fetchers of
scikit-learn, from the LIBSVM data page, from the page of the OCR letters, or
from the data of NLTK. Downloads are kept in the folder named by
``MAXMARGIN_CACHE``, which is ``~/.cache/maxmargin`` when not set.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from http.client import HTTPException
from pathlib import Path, PurePath
from typing import Any, NamedTuple, TypeVar
from urllib.request import urlopen

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

from maxmargin.data.files import read_bytes

__all__ = [
    "CORPORA",
    "NAMES",
    "Corpus",
    "Dataset",
    "Letters",
    "Sentence",
    "available",
    "load",
    "load_corpus",
    "load_letters",
]

_LIBSVM_PAGE = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/"
_LETTERS_PAGE = "http://ai.stanford.edu/~btaskar/ocr/letter.data.gz"
_NLTK_PAGE = "https://raw.githubusercontent.com/nltk/nltk_data/gh-pages/packages/corpora/"
_TIMEOUT_SECONDS = 60


class Dataset(NamedTuple):
    """A data set, scaled and split into training and test rows.

    Attributes
    ----------
    name : str
        The name it was loaded by, one of `NAMES`.
    X_train, X_test : scipy.sparse.csr_matrix of float64
        Features, one row an example, in canonical form (sorted int32 indices,
        no duplicates) and without stored zeros.
    y_train, y_test : ndarray of shape (n_rows,)
        Integer class ids ``0..k-1``, or floats for regression.

    See Also
    --------
    load : Load a data set by its name.

    Examples
    --------
    >>> from benchmarks.datasets import load
    >>> load("a9a").X_train.shape  # doctest: +SKIP
    (32561, 123)
    """

    name: str
    X_train: Any
    y_train: NDArray[Any]
    X_test: Any
    y_test: NDArray[Any]


class Letters(NamedTuple):
    """Handwritten words of the OCR set of Kassel and Taskar, letter by letter.

    Attributes
    ----------
    X : scipy.sparse.csr_matrix of float64, shape (52152, 128)
        The 16 x 8 pixels of each letter, 0 or 1, all words one after the other.
    y : ndarray of shape (52152,)
        Letters, 0 for a to 25 for z.
    lengths : ndarray of shape (6877,)
        Letters of each word; the capital first letter is left out by the author of the set.
    folds : ndarray of shape (6877,)
        Fold of each word, 0 to 9.

    See Also
    --------
    load_letters : Load them.
    """

    X: Any
    y: NDArray[np.intp]
    lengths: NDArray[np.int64]
    folds: NDArray[np.int64]


Sentence = list[tuple[str, ...]]
"""Words, each with what is known about it."""


class Corpus(NamedTuple):
    """Sentences for training and for testing.

    Attributes
    ----------
    name : str
        The name it was loaded by, one of `CORPORA`.
    train, test : list of Sentence
        Each a list of tuples: (word, part of speech, chunk) in ``conll2000``, (word, part of
        speech) in ``brown``.

    See Also
    --------
    load_corpus : Load a corpus by its name.
    """

    name: str
    train: list[Sentence]
    test: list[Sentence]


class _Raw(NamedTuple):
    """A data set as its files have it: the training rows first, then the test rows."""

    X: Any  # dense, CSR or, for posts, a list of texts
    y: NDArray[Any]
    n_train: int | None  # None: the data set has no split of its own


@dataclass(frozen=True)
class _Source:
    """Where a data set comes from."""

    files: tuple[str, ...]  # of the local copy, below MAXMARGIN_DATA
    read: Callable[[Sequence[Path]], Any]  # from these files
    fetch: Callable[[], Any]  # from the network


@dataclass(frozen=True)
class _Table(_Source):
    """Where a data set of rows and targets comes from and how it is prepared."""

    features: Callable[[_Raw], Any]
    targets: Callable[[NDArray[Any]], NDArray[Any]]


_AnySource = TypeVar("_AnySource", bound=_Source)


def load(name: str) -> Dataset:
    """Load a data set, from the local copy when there is one.

    Parameters
    ----------
    name : str
        One of `NAMES`.

    Returns
    -------
    Dataset
        The features and targets of the training and test rows.

    Raises
    ------
    ValueError
        If `name` is not one of `NAMES`.
    FileNotFoundError
        If there is no local copy and the download fails.

    See Also
    --------
    load_letters : Handwritten words.
    load_corpus : Sentences.
    available : Whether there is a local copy.

    Notes
    -----
    ========== ==================================== ================================
    name       features                             training / test rows
    ========== ==================================== ================================
    mnist      784 pixels divided by 255            60,000 / 10,000 (standard)
    covtype    54, each scaled to [0, 1]            464,809 / 116,203 (random)
    20news     56,436 tf-idf weights of words       11,314 / 7,532 (by date)
    a9a        123, all 0 or 1                      32,561 / 16,281 (standard)
    cpu_small  12, each scaled to [-1, 1]           6,553 / 1,639 (random)
    letter     16, each scaled to [-1, 1]           15,000 / 5,000 (standard)
    pendigits  16, divided by 100                   7,494 / 3,498 (standard)
    ========== ==================================== ================================

    Scaling a feature uses its least and greatest value over all rows. A random
    split trains on the first 80 % of ``numpy.random.RandomState(0).permutation(n)``.
    Classes are numbered in the order of their labels; ``cpu_small`` is a regression
    problem, whose target is left as it is.

    The posts of ``20news`` are taken whole, decoded as latin-1, ordered by group and
    number, and weighted by scikit-learn's ``TfidfVectorizer(sublinear_tf=True,
    min_df=2)``, fitted to the training posts.

    The LIBSVM files of ``letter`` are already scaled and have six digits, so that the
    download agrees with the local copy only to these.

    Examples
    --------
    >>> from benchmarks.datasets import load
    >>> mnist = load("mnist")  # doctest: +SKIP
    >>> mnist.X_train.shape, mnist.X_test.shape  # doctest: +SKIP
    ((60000, 784), (10000, 784))
    """
    source = _look_up(name, _TABLES)
    raw = _obtain(name, source)
    X, y = _csr(source.features(raw)), source.targets(raw.y)
    train, test = _split(len(y), raw.n_train)
    return Dataset(name, X[train], y[train], X[test], y[test])


def load_letters() -> Letters:
    """Load the OCR letters (6,877 handwritten words), from the local copy when there is one.

    Returns
    -------
    Letters
        Pixels and letters of all words, and their folds.

    Raises
    ------
    FileNotFoundError
        If there is no local copy and the download fails.

    See Also
    --------
    load_corpus : Sentences.
    load : Data sets of single rows.

    Notes
    -----
    Two protocols are usual: "ocr" trains on fold 0 (626 words) and tests on the others, "ocr2" the
    other way round.

    Examples
    --------
    >>> from benchmarks.datasets import load_letters
    >>> letters = load_letters()  # doctest: +SKIP
    >>> letters.X.shape, len(letters.lengths)  # doctest: +SKIP
    ((52152, 128), 6877)
    """
    letters: Letters = _obtain("letters", _SEQUENCES["letters"])
    return letters


def load_corpus(name: str) -> Corpus:
    """Load a corpus of sentences, from the local copy when there is one.

    Parameters
    ----------
    name : str
        One of `CORPORA`.

    Returns
    -------
    Corpus
        The sentences for training and for testing.

    Raises
    ------
    ValueError
        If `name` is not one of `CORPORA`.
    FileNotFoundError
        If there is no local copy and the download fails.

    See Also
    --------
    load_letters : Handwritten words.
    load : Data sets of single rows.

    Notes
    -----
    ========== ================================================ ==================================
    name       a word's tuple                                   training / test sentences
    ========== ================================================ ==================================
    conll2000  word, part of speech (44), chunk (22 in IOB2)    8,936 / 2,012 (standard)
    brown      word, part of speech (144)                       45,872 / 11,468 (random)
    ========== ================================================ ==================================

    The random split is that of `load`. The tags of ``brown`` are in capitals as in NLTK and cut
    before ``-HL``, ``-TL``, ``-NC`` and ``+``, which mark headlines, titles, cited words and
    contractions.

    Examples
    --------
    >>> from benchmarks.datasets import load_corpus
    >>> load_corpus("conll2000").train[0][:2]  # doctest: +SKIP
    [('Confidence', 'NN', 'B-NP'), ('in', 'IN', 'B-PP')]
    """
    corpora = {key: source for key, source in _SEQUENCES.items() if key in CORPORA}
    raw: _Raw = _obtain(name, _look_up(name, corpora))
    train, test = _split(len(raw.X), raw.n_train)
    return Corpus(name, [raw.X[i] for i in train], [raw.X[i] for i in test])


def available(name: str) -> bool:
    """Tell whether the folder ``MAXMARGIN_DATA`` holds a data set.

    Nothing is downloaded, and earlier downloads do not count.

    Parameters
    ----------
    name : str
        One of `NAMES`, ``"letters"`` or one of `CORPORA`.

    Returns
    -------
    bool
        True when every file of the data set is there.

    See Also
    --------
    load : Load a data set by its name.

    Examples
    --------
    >>> from benchmarks.datasets import available
    >>> available("mnist")  # doctest: +SKIP
    True
    """
    return bool(_local_paths(_look_up(name, _TABLES | _SEQUENCES)))


# Finding and downloading


def _look_up(name: str, sources: Mapping[str, _AnySource]) -> _AnySource:
    try:
        return sources[name]
    except KeyError:
        message = f"unknown data set {name!r}, choose one of {', '.join(sources)}"
        raise ValueError(message) from None


def _obtain(name: str, source: _Source) -> Any:
    """Read the local copy, or else download."""
    paths = _local_paths(source)
    return source.read(paths) if paths else _fetch(name, source)


def _local_paths(source: _Source) -> list[Path]:
    """Return the paths of the local copy, or none when a file is missing."""
    root = os.environ.get("MAXMARGIN_DATA")
    paths = [Path(root, file) for file in source.files] if root else []
    return paths if all(path.is_file() for path in paths) else []


def _cache_folder() -> Path:
    return Path(os.environ.get("MAXMARGIN_CACHE") or Path.home() / ".cache" / "maxmargin")


def _fetch(name: str, source: _Source) -> Any:
    try:
        return source.fetch()
    except (OSError, HTTPException, ValueError) as error:  # ValueError: not the data awaited
        root = os.environ.get("MAXMARGIN_DATA") or "not set"
        raise FileNotFoundError(
            f"data set {name!r} was not found in MAXMARGIN_DATA ({root}; wanted "
            f"{', '.join(source.files)}) nor in the cache {_cache_folder()}, and its download "
            f"failed ({error}): set MAXMARGIN_DATA to a folder that holds it, or connect to "
            f"the network"
        ) from error


def _download(url: str) -> bytes:
    with urlopen(url, timeout=_TIMEOUT_SECONDS) as response:
        body: bytes = response.read()
    return body


def _store(path: Path, body: bytes) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        beside.write_bytes(body)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _fetch_files(places: Mapping[str, str], parse: Callable[[Sequence[bytes]], Any]) -> Any:
    """Parse files from the cache or their addresses, and keep what was downloaded and parses."""
    paths = {url: _cache_folder() / place for url, place in places.items()}
    new = {url: _download(url) for url, path in paths.items() if not path.is_file()}
    try:
        parsed = parse([new.get(url) or path.read_bytes() for url, path in paths.items()])
    except (EOFError, LookupError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{', '.join(places)} is not the file awaited: {error}") from error
    for url, body in new.items():
        _store(paths[url], body)
    return parsed


def _scikit_learn(fetcher: str, *args: str, **options: Any) -> Any:
    """Call a fetcher of scikit-learn, with our cache."""
    from sklearn import datasets

    home = _cache_folder() / "scikit-learn"
    return getattr(datasets, fetcher)(*args, data_home=str(home), **options)


# Formats


def _read_idx(path: Path) -> NDArray[np.uint8]:
    """Read an idx file: type and rank in bytes 2 and 3, then the shape, then the bytes."""
    body = read_bytes(path)
    rank = body[3]
    shape = np.frombuffer(body, ">i4", count=rank, offset=4)
    return np.frombuffer(body, np.uint8, offset=4 + 4 * rank).reshape(tuple(shape))


def _read_table(
    paths: Sequence[Path], delimiter: str, dtype: DTypeLike, n_train: int | None = None
) -> _Raw:
    """Read a table with a header and the target in the last column."""
    table = np.loadtxt(paths[0], delimiter=delimiter, skiprows=1, dtype=dtype, ndmin=2)
    return _Raw(table[:, :-1], table[:, -1], n_train)


def _parse_libsvm(bodies: Sequence[bytes], n_features: int) -> _Raw:
    """Parse the LIBSVM files of all rows, or of the training rows and of the test rows."""
    from sklearn.datasets import load_svmlight_files

    files = [io.BytesIO(body) for body in bodies]
    parts = load_svmlight_files(files, n_features=n_features, zero_based=False)
    X, y = parts[0::2], parts[1::2]
    return _Raw(sp.vstack(X), np.concatenate(y), len(y[0]) if len(y) > 1 else None)


def _read_libsvm(paths: Sequence[Path], n_features: int) -> _Raw:
    return _parse_libsvm([read_bytes(path) for path in paths], n_features)


def _fetch_libsvm(*pages: str, n_features: int) -> _Raw:
    """Read files of the LIBSVM data page."""
    places = {_LIBSVM_PAGE + page: f"libsvm/{page}" for page in pages}
    raw: _Raw = _fetch_files(places, lambda bodies: _parse_libsvm(bodies, n_features))
    return raw


def _read_mnist(paths: Sequence[Path]) -> _Raw:
    X_train, y_train, X_test, y_test = map(_read_idx, paths)
    X = np.concatenate([X_train, X_test])
    return _Raw(X.reshape(len(X), -1), np.concatenate([y_train, y_test]), len(y_train))


def _fetch_mnist() -> _Raw:
    mnist = _scikit_learn(
        "fetch_openml", "mnist_784", version=1, as_frame=False, parser="liac-arff"
    )
    return _Raw(mnist.data, mnist.target, 60_000)


def _fetch_covtype() -> _Raw:
    covtype = _scikit_learn("fetch_covtype")
    return _Raw(covtype.data, covtype.target, None)


def _order_posts(posts: Iterable[tuple[str, str]]) -> _Raw:
    """Order pairs of a path, which ends in ``...-train/group/number``, and a text."""
    places = [(PurePath(path).parts[-3:], text) for path, text in posts]
    rows = sorted((not part.endswith("train"), *rest, text) for (part, *rest), text in places)
    is_test, groups, _, texts = zip(*rows, strict=True)
    return _Raw(list(texts), np.array(groups), is_test.count(False))


def _read_20news(paths: Sequence[Path]) -> _Raw:
    with tarfile.open(paths[0]) as tar:
        files = ((member.name, tar.extractfile(member)) for member in tar)
        return _order_posts((name, file.read().decode("latin-1")) for name, file in files if file)


def _fetch_20news() -> _Raw:
    parts = [
        _scikit_learn("fetch_20newsgroups", subset=part, remove=()) for part in ("train", "test")
    ]
    return _order_posts(
        (str(name), text)
        for part in parts
        for name, text in zip(part.filenames, part.data, strict=True)
    )


def _letters(X: NDArray[Any], y: NDArray[Any], lengths: Any, folds: Any) -> Letters:
    if lengths.sum() != len(X) or len(y) != len(X):
        raise ValueError(f"words have {lengths.sum()} letters, but there are {len(X)} of them")
    return Letters(_csr(X), y.astype(np.intp), lengths.astype(np.int64), folds.astype(np.int64))


def _read_letters(paths: Sequence[Path]) -> Letters:
    with np.load(paths[0], allow_pickle=False) as stored:
        return _letters(*(stored[key] for key in ("pixels", "labels", "word_lengths", "folds")))


def _parse_letters(bodies: Sequence[bytes]) -> Letters:
    """Parse lines of number, letter, next number (-1: none), word, position, fold and pixels."""
    rows = [line.split() for line in gzip.decompress(bodies[0]).decode("ascii").splitlines()]
    ends = np.flatnonzero([row[2] == "-1" for row in rows]) + 1
    return _letters(
        np.array([row[6:] for row in rows], dtype=np.uint8),
        np.array([ord(row[1]) - ord("a") for row in rows]),
        np.diff(ends, prepend=0),
        np.array([int(rows[end - 1][5]) for end in ends]),
    )


def _parse_conll2000(bodies: Sequence[bytes]) -> _Raw:
    """Parse lines of word, part of speech and chunk, with an empty line after each sentence."""
    with zipfile.ZipFile(io.BytesIO(bodies[0])) as archive:
        texts = [archive.read(f"conll2000/{part}.txt").decode() for part in ("train", "test")]
    train, test = (
        [[tuple(line.split()) for line in batch.splitlines()] for batch in batches]
        for batches in (re.split(r"\n\s*\n", text.strip()) for text in texts)
    )
    return _Raw(train + test, np.zeros(0), len(train))


def _parse_brown(bodies: Sequence[bytes]) -> _Raw:
    """Parse texts of word/tag, one sentence a line."""
    with zipfile.ZipFile(io.BytesIO(bodies[0])) as archive:
        names = sorted(name for name in archive.namelist() if re.fullmatch(r"brown/c\w\d\d", name))
        lines = [line for name in names for line in archive.read(name).decode().splitlines()]
    if not lines:
        raise ValueError("the archive holds no texts of the Brown corpus")
    pairs = [[token.rpartition("/") for token in line.split()] for line in lines if line.strip()]
    return _Raw([[(word, _base(tag)) for word, _, tag in one] for one in pairs], np.zeros(0), None)


@cache
def _base(tag: str) -> str:
    """Return a tag of the Brown corpus without its marks and what is contracted with it."""
    return re.split(r"-(?:HL|TL|NC)|\+", tag.upper(), maxsplit=1)[0]


def _read_bytes(paths: Sequence[Path], parse: Callable[[Sequence[bytes]], _Raw]) -> _Raw:
    return parse([path.read_bytes() for path in paths])


# Features, targets and split


def _csr(X: Any) -> Any:
    """Return X as a canonical CSR matrix of float64 without stored zeros."""
    X = sp.csr_matrix(X).astype(np.float64, copy=False)
    X.sum_duplicates()
    X.eliminate_zeros()
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return X


def _unscaled(raw: _Raw) -> Any:
    return raw.X


def _divided(raw: _Raw, by: float) -> Any:
    X = _csr(raw.X)
    X.data /= by
    return X


def _ranged(raw: _Raw, low: float, high: float) -> NDArray[np.float64]:
    """Scale every feature to [low, high]; one that is constant becomes low."""
    X = raw.X.toarray() if sp.issparse(raw.X) else raw.X
    least = X.min(axis=0)
    span = X.max(axis=0) - least
    scaled: NDArray[np.float64] = (X - least) / np.where(span > 0, span, 1)
    scaled *= high - low
    scaled += low
    return scaled


def _tf_idf(raw: _Raw) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=2)
    train = vectorizer.fit_transform(raw.X[: raw.n_train])
    return sp.vstack([train, vectorizer.transform(raw.X[raw.n_train :])], format="csr")


def _class_ids(y: NDArray[Any]) -> NDArray[np.intp]:
    return np.unique(y, return_inverse=True)[1]


def _floats(y: NDArray[Any]) -> NDArray[np.float64]:
    return y.astype(np.float64)


def _split(n: int, n_train: int | None) -> list[NDArray[Any]]:
    """Return the training rows and the test rows."""
    if n_train is None:
        return np.split(np.random.RandomState(0).permutation(n), [4 * n // 5])
    return np.split(np.arange(n), [n_train])


_TABLES = {
    "mnist": _Table(
        (
            "mnist/train-images-idx3-ubyte.gz",
            "mnist/train-labels-idx1-ubyte.gz",
            "mnist/t10k-images-idx3-ubyte.gz",
            "mnist/t10k-labels-idx1-ubyte.gz",
        ),
        read=_read_mnist,
        fetch=_fetch_mnist,
        features=partial(_divided, by=255),
        targets=_class_ids,
    ),
    "covtype": _Table(
        ("covtype/covtype.csv.xz",),
        read=partial(_read_table, delimiter=",", dtype=np.int32),
        fetch=_fetch_covtype,
        features=partial(_ranged, low=0, high=1),
        targets=_class_ids,
    ),
    "20news": _Table(
        ("20news/20news-bydate.tar.xz",),
        read=_read_20news,
        fetch=_fetch_20news,
        features=_tf_idf,
        targets=_class_ids,
    ),
    "a9a": _Table(
        ("a9a/a9a.xz", "a9a/a9a.t.xz"),
        read=partial(_read_libsvm, n_features=123),
        fetch=partial(_fetch_libsvm, "binary/a9a", "binary/a9a.t", n_features=123),
        features=_unscaled,
        targets=_class_ids,
    ),
    "cpu_small": _Table(
        ("pmlb/227_cpu_small.tsv.gz",),
        read=partial(_read_table, delimiter="\t", dtype=np.float64),
        fetch=partial(_fetch_libsvm, "regression/cpusmall", n_features=12),
        features=partial(_ranged, low=-1, high=1),
        targets=_floats,
    ),
    "letter": _Table(
        ("pmlb/letter.tsv.gz",),
        read=partial(_read_table, delimiter="\t", dtype=np.float64, n_train=15_000),
        fetch=partial(
            _fetch_libsvm, "multiclass/letter.scale", "multiclass/letter.scale.t", n_features=16
        ),
        features=partial(_ranged, low=-1, high=1),
        targets=_class_ids,
    ),
    "pendigits": _Table(
        ("pmlb/pendigits.tsv.gz",),
        read=partial(_read_table, delimiter="\t", dtype=np.float64, n_train=7_494),
        fetch=partial(
            _fetch_libsvm, "multiclass/pendigits", "multiclass/pendigits.t", n_features=16
        ),
        features=partial(_divided, by=100),
        targets=_class_ids,
    ),
}

_SEQUENCES = {
    "letters": _Source(
        ("letters/letters.npz",),
        read=_read_letters,
        fetch=partial(_fetch_files, {_LETTERS_PAGE: "ocr/letter.data.gz"}, _parse_letters),
    ),
    "conll2000": _Source(
        ("conll2000/conll2000.zip",),
        read=partial(_read_bytes, parse=_parse_conll2000),
        fetch=partial(
            _fetch_files, {_NLTK_PAGE + "conll2000.zip": "nltk/conll2000.zip"}, _parse_conll2000
        ),
    ),
    "brown": _Source(
        ("brown/brown.zip",),
        read=partial(_read_bytes, parse=_parse_brown),
        fetch=partial(_fetch_files, {_NLTK_PAGE + "brown.zip": "nltk/brown.zip"}, _parse_brown),
    ),
}

NAMES = tuple(_TABLES)
"""Names of the data sets that `load` knows."""

CORPORA = ("conll2000", "brown")
"""Names of the corpora that `load_corpus` knows."""
