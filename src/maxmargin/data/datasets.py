"""Real data sets of the benchmarks, read from a local copy or else downloaded.

A local copy is looked for in the folder named by the environment variable
``MAXMARGIN_DATA``. Without one the data set is downloaded: by the fetchers of
scikit-learn, or from the LIBSVM data page. Downloads are kept in the folder
named by ``MAXMARGIN_CACHE``, which is ``~/.cache/maxmargin`` when not set.
"""

from __future__ import annotations

import gzip
import io
import lzma
import os
import tarfile
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from http.client import HTTPException
from pathlib import Path, PurePath
from typing import Any, NamedTuple
from urllib.request import urlopen

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

__all__ = ["NAMES", "Dataset", "available", "load"]

_LIBSVM_PAGE = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/"
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
    >>> from maxmargin.data import load
    >>> load("a9a").X_train.shape  # doctest: +SKIP
    (32561, 123)
    """

    name: str
    X_train: Any
    y_train: NDArray[Any]
    X_test: Any
    y_test: NDArray[Any]


class _Raw(NamedTuple):
    """A data set as its files have it: the training rows first, then the test rows."""

    X: Any  # dense, CSR or, for posts, a list of texts
    y: NDArray[Any]
    n_train: int | None  # None: the data set has no split of its own


class _Source(NamedTuple):
    """Where a data set comes from and how it is prepared."""

    files: tuple[str, ...]  # of the local copy, below MAXMARGIN_DATA
    read: Callable[[Sequence[Path]], _Raw]  # from these files
    fetch: Callable[[], _Raw]  # from the network
    features: Callable[[_Raw], Any]
    targets: Callable[[NDArray[Any]], NDArray[Any]]


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
    >>> from maxmargin.data import load
    >>> mnist = load("mnist")  # doctest: +SKIP
    >>> mnist.X_train.shape, mnist.X_test.shape  # doctest: +SKIP
    ((60000, 784), (10000, 784))
    """
    source = _source(name)
    paths = _local_paths(source)
    raw = source.read(paths) if paths else _fetch(name, source)
    X, y = _csr(source.features(raw)), source.targets(raw.y)
    train, test = _split(len(y), raw.n_train)
    return Dataset(name, X[train], y[train], X[test], y[test])


def available(name: str) -> bool:
    """Tell whether the folder ``MAXMARGIN_DATA`` holds a data set.

    Nothing is downloaded, and earlier downloads do not count.

    Parameters
    ----------
    name : str
        One of `NAMES`.

    Returns
    -------
    bool
        True when every file of the data set is there.

    See Also
    --------
    load : Load a data set by its name.

    Examples
    --------
    >>> from maxmargin.data import available
    >>> available("mnist")  # doctest: +SKIP
    True
    """
    return bool(_local_paths(_source(name)))


# Finding and downloading


def _source(name: str) -> _Source:
    try:
        return _SOURCES[name]
    except KeyError:
        message = f"unknown data set {name!r}, choose one of {', '.join(NAMES)}"
        raise ValueError(message) from None


def _local_paths(source: _Source) -> list[Path]:
    """Return the paths of the local copy, or none when a file is missing."""
    root = os.environ.get("MAXMARGIN_DATA")
    paths = [Path(root, file) for file in source.files] if root else []
    return paths if all(path.is_file() for path in paths) else []


def _cache_folder() -> Path:
    return Path(os.environ.get("MAXMARGIN_CACHE") or Path.home() / ".cache" / "maxmargin")


def _fetch(name: str, source: _Source) -> _Raw:
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


def _scikit_learn(fetcher: str, *args: str, **options: Any) -> Any:
    """Call a fetcher of scikit-learn, with our cache."""
    from sklearn import datasets

    home = _cache_folder() / "scikit-learn"
    return getattr(datasets, fetcher)(*args, data_home=str(home), **options)


# Formats


def _read_idx(path: Path) -> NDArray[np.uint8]:
    """Read an idx file: type and rank in bytes 2 and 3, then the shape, then the bytes."""
    with gzip.open(path) as file:
        body = file.read()
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
    return _parse_libsvm([lzma.decompress(path.read_bytes()) for path in paths], n_features)


def _fetch_libsvm(*pages: str, n_features: int) -> _Raw:
    """Read files of the LIBSVM data page, and keep those that were downloaded and parse."""
    paths = [_cache_folder() / "libsvm" / page for page in pages]
    missing = {path: page for path, page in zip(paths, pages, strict=True) if not path.is_file()}
    new = {path: _download(_LIBSVM_PAGE + page) for path, page in missing.items()}
    raw = _parse_libsvm([new.get(path) or path.read_bytes() for path in paths], n_features)
    for path, body in new.items():
        _store(path, body)
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


_SOURCES = {
    "mnist": _Source(
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
    "covtype": _Source(
        ("covtype/covtype.csv.xz",),
        read=partial(_read_table, delimiter=",", dtype=np.int32),
        fetch=_fetch_covtype,
        features=partial(_ranged, low=0, high=1),
        targets=_class_ids,
    ),
    "20news": _Source(
        ("20news/20news-bydate.tar.xz",),
        read=_read_20news,
        fetch=_fetch_20news,
        features=_tf_idf,
        targets=_class_ids,
    ),
    "a9a": _Source(
        ("a9a/a9a.xz", "a9a/a9a.t.xz"),
        read=partial(_read_libsvm, n_features=123),
        fetch=partial(_fetch_libsvm, "binary/a9a", "binary/a9a.t", n_features=123),
        features=_unscaled,
        targets=_class_ids,
    ),
    "cpu_small": _Source(
        ("pmlb/227_cpu_small.tsv.gz",),
        read=partial(_read_table, delimiter="\t", dtype=np.float64),
        fetch=partial(_fetch_libsvm, "regression/cpusmall", n_features=12),
        features=partial(_ranged, low=-1, high=1),
        targets=_floats,
    ),
    "letter": _Source(
        ("pmlb/letter.tsv.gz",),
        read=partial(_read_table, delimiter="\t", dtype=np.float64, n_train=15_000),
        fetch=partial(
            _fetch_libsvm, "multiclass/letter.scale", "multiclass/letter.scale.t", n_features=16
        ),
        features=partial(_ranged, low=-1, high=1),
        targets=_class_ids,
    ),
    "pendigits": _Source(
        ("pmlb/pendigits.tsv.gz",),
        read=partial(_read_table, delimiter="\t", dtype=np.float64, n_train=7_494),
        fetch=partial(
            _fetch_libsvm, "multiclass/pendigits", "multiclass/pendigits.t", n_features=16
        ),
        features=partial(_divided, by=100),
        targets=_class_ids,
    ),
}

NAMES = tuple(_SOURCES)
"""Names of the data sets that `load` knows."""
