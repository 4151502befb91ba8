"""Learning-to-rank data in the format of LETOR and SVM-rank, ``2 qid:10 1:0.5 3:1.0 # comment``.

One document a line: relevance, query, and features numbered from 1; those left out are zero.
"""

import io
import math
import re
from array import array
from collections.abc import Iterable, Sequence
from contextlib import suppress
from os import PathLike
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from maxmargin.data.files import FileFormatError, create, lines_of, shown_name


def read_letor(
    source: str | PathLike[str] | Sequence[str | PathLike[str]],
    n_features: int | None = None,
    *,
    encoding: str | None = None,
) -> tuple[Any, NDArray[np.float64], NDArray[Any]]:
    """Read documents with their relevance and their queries.

    Parameters
    ----------
    source : path or list of paths
        Files, read one after the other; perhaps compressed (gzip, bzip2, xz, zstd). ``"-"`` is
        standard input.
    n_features : int, default=None
        Columns of `X`; None takes the largest number of a feature.
    encoding : str, default=None
        Of the comments and queries, such as ``"latin-1"``; None is UTF-8.

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
    FileFormatError
        If a line is not understood: names the file and the line.

    See Also
    --------
    write_letor : The way back.
    maxmargin.Ranker : What to do with it.

    Examples
    --------
    >>> import maxmargin as mm
    >>> X, y, groups = mm.data.read_letor(["Fold1/train.txt"])  # doctest: +SKIP
    """
    relevance: list[float] = []
    queries: list[str] = []
    columns, values = array("i"), array("d")  # a tenth of what lists of numbers take
    starts = [0]
    for path in [source] if isinstance(source, (str, PathLike)) else source:
        for number, line in enumerate(lines_of(path, encoding), start=1):
            parts = line.partition("#")[0].split()
            if not parts:
                continue
            try:
                relevance.append(_finite(parts[0]))
                queries.append(_query(parts))
                features = _features(parts[2:], n_features)
            except ValueError as error:
                raise FileFormatError(shown_name(path), number, f"{error}.") from None
            columns.extend(features)
            values.extend(features.values())
            starts.append(len(columns))
    width = (max(columns, default=-1) + 1) if n_features is None else n_features
    X = sp.csr_array(
        (np.array(values), np.array(columns), np.array(starts)),
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


def _finite(text: str) -> float:
    with suppress(ValueError):
        if math.isfinite(value := float(text)):
            return value
    raise ValueError(f"{text!r:.50} is no finite number")


def _query(parts: list[str]) -> str:
    if len(parts) < 2:
        raise ValueError("there is no query")
    name, _, query = parts[1].partition(":")
    if name != "qid" or not query:
        raise ValueError(f"{parts[1]!r:.50} stands where qid:QUERY should")
    return query


def _features(parts: list[str], n_features: int | None) -> dict[int, float]:
    """Values by columns, in ascending order; a column is one less than the number of a feature."""
    most = 2**31 - 1 if n_features is None else n_features
    found: dict[int, float] = {}
    for part in parts:
        name, _, value = part.partition(":")
        if name == "cost":
            raise ValueError("documents of queries have no cost:")
        if not (name.isascii() and name.isdigit()) or not name.strip("0"):
            raise ValueError(f"{name!r:.50} is no number of a feature, which are 1, 2 and so on")
        if len(name) > 18 or int(name) > most:
            raise ValueError(f"feature {name:.50} is beyond the last, {most}")
        if int(name) - 1 in found:
            raise ValueError(f"feature {int(name)} stands twice in the line")
        found[int(name) - 1] = _finite(value)
    return found if list(found) == sorted(found) else dict(sorted(found.items()))


def _query_ids(queries: list[str]) -> NDArray[Any]:
    numbers = all(re.fullmatch(r"0|-?[1-9][0-9]{0,17}", query) for query in queries)
    return np.array(queries, dtype=np.int64 if numbers else np.str_)


def _short(value: Any) -> str:
    """A number as short as can be read back exactly."""
    number = float(value)
    return str(int(number)) if number.is_integer() and abs(number) < 2**53 else repr(number)
