"""Learning-to-rank data in the form of LETOR and SVM-rank, one document a line.

    2 qid:10 1:0.5 3:1.0 # anything

is a document of relevance 2 for query 10, with features numbered from 1; those that are left out
are zero. The part after the hash is a comment. Files may be compressed.
"""

import io
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from maxmargin.data.files import create, open_text

__all__ = ["read_letor", "write_letor"]


def read_letor(
    source: str | PathLike[str] | Sequence[str | PathLike[str]], n_features: int | None = None
) -> tuple[Any, NDArray[np.float64], NDArray[Any]]:
    """Read documents with their relevance and their queries.

    Parameters
    ----------
    source : path or list of paths
        Files, read one after the other; perhaps compressed (gzip, bzip2, xz, zstd).
    n_features : int, default=None
        Columns of `X`; None takes the largest number of a feature.

    Returns
    -------
    X : scipy.sparse.csr_array of shape (n_documents, n_features)
        Column 0 holds feature 1.
    y : ndarray of shape (n_documents,)
        Relevance.
    groups : ndarray of shape (n_documents,)
        Query of each document, as integers if all are, else as strings.

    Raises
    ------
    ValueError
        If a line is not understood: names the file and the line.

    See Also
    --------
    write_letor : The way back.
    maxmargin.Ranker : What to do with it.

    Examples
    --------
    >>> from maxmargin.data.letor import read_letor
    >>> X, y, groups = read_letor(["Fold1/train.txt"])  # doctest: +SKIP
    """
    relevance: list[float] = []
    queries: list[str] = []
    columns: list[int] = []
    values: list[float] = []
    starts = [0]
    for path in [source] if isinstance(source, (str, PathLike)) else source:
        for number, line in _lines(Path(path)):
            try:
                target, query, *features = line.split()
                relevance.append(_finite(target))
                queries.append(_query(query))
                last = 0
                for feature in features:
                    name, _, value = feature.partition(":")
                    last = _column(name, last, n_features)
                    columns.append(last - 1)
                    values.append(_finite(value))
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {_complaint(error)}.") from None
            starts.append(len(columns))
    width = (max(columns, default=-1) + 1) if n_features is None else n_features
    X = sp.csr_array(
        (np.array(values, dtype=np.float64), np.array(columns, dtype=np.int32), np.array(starts)),
        shape=(len(relevance), width),
    )
    X.eliminate_zeros()
    X.indptr = X.indptr.astype(np.int32)
    return X, np.array(relevance, dtype=np.float64), _query_ids(queries)


def write_letor(
    path: str | PathLike[str],
    X: Any,
    y: ArrayLike,
    groups: ArrayLike,
    comments: Iterable[str] | None = None,
) -> None:
    """Write documents with their relevance and their queries, so that `read_letor` finds the same.

    Parameters
    ----------
    path : path
        Compressed if it ends in ``.gz``, ``.bz2``, ``.xz`` or ``.zst``.
    X : array-like or sparse matrix of shape (n_documents, n_features)
    y, groups : array-like of shape (n_documents,)
    comments : iterable of str, default=None
        What to write after the hash of each line.

    See Also
    --------
    read_letor : The way back.
    """
    rows = sp.csr_array(X)
    relevance, queries = np.asarray(y), np.asarray(groups)
    n = rows.shape[0]
    notes = [""] * n if comments is None else list(comments)
    if not len(relevance) == len(queries) == len(notes) == n:
        raise ValueError(
            f"X has {n} rows, y {len(relevance)}, groups {len(queries)} and comments {len(notes)} "
            f"entries: give one of each for a document."
        )
    for i, (query, note) in enumerate(zip(queries.tolist(), notes, strict=True)):
        if re.search(r"[\s#]", str(query)) or "\n" in note:
            raise ValueError(
                f"Document {i} has a query or a comment that does not fit in a line: no spaces, "
                f"hashes or line ends."
            )
    with io.TextIOWrapper(create(path), encoding="utf-8") as file:
        for i in range(n):
            entries = slice(rows.indptr[i], rows.indptr[i + 1])
            pairs = zip(rows.indices[entries].tolist(), rows.data[entries].tolist(), strict=True)
            parts = [_short(relevance[i]), f"qid:{queries[i]}"]
            parts += [f"{column + 1}:{_short(value)}" for column, value in sorted(pairs)]
            parts += [f"#{notes[i]}"] if notes[i] else []
            file.write(" ".join(parts) + "\n")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines with something before the comment, and their numbers."""
    try:
        with open_text(path) as file:
            for number, line in enumerate(file, start=1):
                content = line.partition("#")[0]
                if content.strip():
                    yield number, content
    except ValueError as error:  # of files.py, or not UTF-8
        raise ValueError(f"{path} is damaged or no text: {error}") from error


def _finite(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is no finite number")
    return value


def _query(text: str) -> str:
    name, colon, query = text.partition(":")
    if name != "qid" or not (colon and query):
        raise ValueError(f"{text!r} stands where qid:QUERY should")
    return query


def _column(name: str, last: int, n_features: int | None) -> int:
    """Number of a feature, which must be higher than the last before it."""
    if not (name.isascii() and name.isdigit() and int(name) > 0):
        raise ValueError(f"{name!r} is no number of a feature, which are 1, 2 and so on")
    column = int(name)
    if column <= last:
        raise ValueError(f"feature {column} comes after feature {last}")
    if column > (2**31 - 1 if n_features is None else n_features):
        raise ValueError(f"feature {column} is beyond the last, {n_features or 2**31 - 1}")
    return column


def _complaint(error: ValueError) -> str:
    text = str(error)
    return "there is no query" if "not enough values to unpack" in text else text


def _query_ids(queries: list[str]) -> NDArray[Any]:
    numbers = all(re.fullmatch(r"0|-?[1-9][0-9]{0,17}", query) for query in queries)
    return np.array(queries, dtype=np.int64 if numbers else np.str_)


def _short(value: Any) -> str:
    """A number as short as can be read back exactly."""
    number = float(value)
    return str(int(number)) if number.is_integer() and abs(number) < 2**53 else repr(number)
