"""Formats and sources of examples: `guess_format`, `open_examples`, and `convert`.

A module that reads a text format holds a `FileFormat` as ``FILE_FORMAT`` and is listed in
`maxmargin.structures.READERS`, which are imported when a file has to be recognised.
"""

import codecs
import inspect
import os
import re
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from maxmargin.core.arrays import open_mapped
from maxmargin.data.csr_folder import META, CsrFolder, CsrFolderWriter
from maxmargin.data.files import (
    STANDARD_INPUT,
    FileFormatError,
    PathLike,
    begins_with,
    head_of,
    shown_name,
)
from maxmargin.data.libsvm_lines import LineReader, Lines
from maxmargin.data.live_line import Field, LiveLine, about, duration
from maxmargin.data.sources import (
    ArraySource,
    Columns,
    DatasetSource,
    Examples,
    FunctionSource,
    Source,
    is_matrix,
)
from maxmargin.data.tables import (
    ArrowSource,
    DaskArrays,
    DaskSource,
    is_arrow,
    is_dask,
    is_dask_array,
)

HEAD_BYTES = 1 << 20
"""Bytes that are looked at by default."""

MOST_WRONG = 0.2
"""Fraction of the lines that may be malformed: the reader will say which."""

_MOST_GRADES = 5
"""Degrees of relevance in ranking data, at most: 0 to 4."""

_SPARSE = re.compile(r"\s*(?:[^\s:#]+\s+)?(?:cost:\S+\s+)?(?:qid:\S+\s+)?[0-9]+:[-+.\w]+(?:\s|#|$)")
_QUERY = re.compile(r"\s*[^\s:#]+\s+(?:cost:\S+\s+)?qid:(\S*)")


@dataclass(frozen=True)
class Format:
    r"""What a file seems to be.

    Parameters
    ----------
    name : str
        "libsvm", "svm-hmm", "letor", "columns", "penn" or "conllu".
    task : str
        What it is good for: "binary", "multiclass", "multilabel", "regression", "tagging",
        "ranking", "parsing" or "dependencies".
    reason : str
        What was seen.
    doubt : str or None
        What else it may be, and how to say so.
    n_columns : int or None
        Of a file of columns.

    Examples
    --------
    >>> from maxmargin.data import guess_format
    >>> found = guess_format(b"1 1:0.5\n2 2:1\n3 1:1 4:0.5\n1 2:1")
    >>> found.name, found.task
    ('libsvm', 'multiclass')
    >>> print(found)
    libsvm, 3 integer labels: multi-class classification
    """

    name: str
    task: str
    reason: str
    doubt: str | None = None
    n_columns: int | None = None

    def __str__(self) -> str:
        return f"{self.name}, {self.reason}" + ("" if self.doubt is None else f" ({self.doubt})")


class Head:
    """The first lines of a text file, and its name for messages."""

    def __init__(self, name: str, lines: list[str]) -> None:
        self.name, self.lines = name, lines
        self.examples = [line for line in lines if line.partition("#")[0].strip()]
        some = self.examples[:1000]
        n_sparse = sum(bool(_SPARSE.match(line) or _QUERY.match(line)) for line in some)
        self._is_sparse = n_sparse >= 0.5 * max(len(some), 1)
        found = map(_QUERY.match, self.examples if self._is_sparse else [])
        self.queries = [match[1] for match in found if match]
        """What follows ``qid:`` in sparse rows."""

    @cached_property
    def rows(self) -> Lines | None:
        """The lines as sparse rows; None if too many are malformed."""
        if not self._is_sparse:
            return None
        reader = LineReader(self.name, first_index=0, multilabel=True, weighted=True, skip=True)
        content = "\n".join(self.examples).encode()
        batches = list(reader.read(BytesIO(content), len(content) + 1))
        if not batches or reader.n_skipped > max(MOST_WRONG * len(self.examples), 1):
            return None
        return batches[0]

    @property
    def grouped_rows(self) -> Lines | None:
        rows = self.rows if self.queries else None
        return rows if rows is not None and len(rows.labels) else None

    @cached_property
    def signs_of_documents(self) -> list[bool]:
        """What speaks for documents of queries, against positions of sequences.

        Both have ``qid:``. Relevance starts at 0, tags at 1; positions have few of many features.
        """
        rows = self.grouped_rows
        if rows is None:
            return []
        labels = np.unique(rows.labels)
        n_features = len(np.unique(rows.X.indices))
        has_most = rows.X.nnz > 0.5 * max(len(rows.groups) * n_features, 1)
        is_grade = bool((labels != np.round(labels)).any()) or labels[-1] < _MOST_GRADES
        return [bool(labels[0] == 0), bool(has_most), bool(is_grade)]


@dataclass(frozen=True)
class FileFormat:
    """A format that some module reads."""

    name: str  # as the option ``--format`` of the command line has it
    title: str  # as a sentence does
    recognise: Callable[[Head], Format | None]  # None if it is of another
    reader: str | None = None  # what to call, if `open_examples` does not open it by itself
    source: Callable[..., Source] | None = None
    option: str | None = None  # of `source`, which it needs, and by which it is chosen


@cache
def file_formats() -> dict[str, FileFormat]:
    """All formats by name, in the order in which they are tried."""
    readers = import_module("maxmargin.structures").READERS
    formats = [import_module(f"maxmargin.{reader}").FILE_FORMAT for reader in readers]
    return {one.name: one for one in formats}


def guess_format(data: PathLike | bytes, n_bytes: int = HEAD_BYTES) -> Format:
    r"""Guess what a text file holds.

    Parameters
    ----------
    data : path or bytes
        A file, plain or compressed; ``"-"`` is standard input, which can still be read from its
        beginning afterwards. Bytes are the beginning of a text.
    n_bytes : int, default=2**20
        How much of it to look at.

    Returns
    -------
    format : Format
        The format, and why it was taken for that.

    Raises
    ------
    FileFormatError
        If it is none of the formats known.

    See Also
    --------
    read_libsvm, read_svm_hmm, read_letor, read_columns, read_tree_file, read_conllu

    Examples
    --------
    >>> from maxmargin.data import guess_format
    >>> print(guess_format(b"He PRP B-NP\nreckons VBZ B-VP\n\nYes UH B-INTJ\n"))
    columns, 3 columns, 3 tags in the last: tagging
    """
    if isinstance(data, bytes):
        name, head = "the text", data[:n_bytes]
    else:
        name, head = shown_name(data), head_of(data, n_bytes)
    begin = Head(name, _lines(head, len(head) == n_bytes, name))
    for one in file_formats().values():
        found = one.recognise(begin)
        if found is not None:
            return found
    first = next(line for line in begin.lines if line.strip())
    titles = ", ".join(one.title for one in file_formats().values())
    reason = (
        f"is of no format that is read here ({titles}): it begins with {first.strip()[:40]!r}; if "
        f"it is one of them, its reader (--format) names the line that is wrong."
    )
    raise FileFormatError(name, None, reason)


def _lines(head: bytes, is_cut: bool, name: str) -> list[str]:
    """Whole lines, in any encoding: the readers will check it."""
    if not head.strip(b"\xef\xbb\xbf \t\r\n"):
        raise FileFormatError(name, None, "is empty.")
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in head:
        reason = "is no text, or one in UTF-16: save it as UTF-8."
        raise FileFormatError(name, None, reason)
    head = head.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if is_cut:
        head = head[: max(head.rfind(b"\n"), head.rfind(b" ")) + 1 or len(head)]
    try:
        text = head.decode()
    except UnicodeDecodeError:
        text = head.decode("latin-1")
    lines = text.split("\n")
    if all(line.startswith("#") for line in lines if line.strip()):
        raise FileFormatError(name, None, "begins with nothing but comments.")
    return lines


_NUMPY = b"\x93NUMPY"
_LOOKED_AT = 1 << 16
"""Bytes in which the first example of a text must begin."""


def open_examples(data: Any, y: Any = None, **options: Any) -> Source:
    """A source of the examples in whatever holds them.

    Parameters
    ----------
    data : object
        One of

        - a `Source`, which is returned as it is;
        - inputs in memory, with `y`: array, sparse matrix, data frame, or list; or a pair of both;
        - the path of a file, whose content tells the format: LIBSVM's, SVM-hmm's (if lines have a
          ``qid``), Parquet, Feather, Arrow, or an ``.npy`` array, with `y` another or in memory.
          ``"-"`` is standard input, in LIBSVM's format or in SVM-hmm's;
        - with `templates`, the path of a file of tagged sentences in columns;
        - the path of a folder, written by `convert` or with Parquet or Arrow files;
        - a function that returns an iterator of pairs ``(x, y)``, of dictionaries or of `Examples`,
          such as a generator function; it is called anew for each pass;
        - a data set as PyTorch and Hugging Face have them: a length, and pairs or dictionaries by
          number (a list of pairs is one, too); or any iterable that starts anew each time;
        - a data frame of pandas with its target among the columns;
        - a bag or a data frame of dask; an array of dask, with `y` another.

    y : array-like, list or path, default=None
        Targets, where `data` has only the inputs.
    **options
        Of the source that is found. Tables and dictionaries take `features` and `target`, names of
        columns.

    Returns
    -------
    source : Source
        `LibsvmFile`, `SvmHmmFile`, `ColumnFile`, `CsrFolder`, `ArrowSource`, `ArraySource`,
        `FunctionSource`, `DatasetSource`, `DaskSource` or `DaskArrays`.

    Raises
    ------
    ValueError
        If it is none of these; says what is missing.

    See Also
    --------
    convert : To a folder that is read much faster.

    Examples
    --------
    >>> from maxmargin.data import open_examples
    >>> def examples():
    ...     for i in range(5):
    ...         yield [i, i * i], i % 2
    >>> source = open_examples(examples)
    >>> [batch.X.shape for batch in source.batches()], source
    ([(5, 2)], FunctionSource(examples, 5 examples, 2 features))
    """
    if isinstance(data, tuple) and len(data) == 2 and y is None and not hasattr(data, "_fields"):
        data, y = data
    if isinstance(data, (str, os.PathLike)):
        return _open_path(os.fspath(data), y, options)
    if is_dask_array(data):
        return _made(DaskArrays, options, data, y)
    if y is not None:
        return _made(ArraySource, options, data, _array(y))
    return _open_whole(data, options)


def _open_whole(data: Any, options: dict[str, Any]) -> Source:
    if isinstance(data, Source):
        if options:
            raise ValueError(f"{data!r} is open already: options must be given when it is made.")
        return data
    if isinstance(data, Iterator):
        raise ValueError(
            f"A {type(data).__name__} can be gone through only once: give the function that makes "
            f"it, so that each pass starts anew."
        )
    if is_dask(data):
        return _made(DaskSource, options, data)
    if hasattr(data, "columns") and hasattr(data, "iloc"):
        names = {name: options.pop(name) for name in ("features", "target") if name in options}
        return _made(ArraySource, options, *Columns(**names).of_frame(data))
    if isinstance(data, (np.ndarray, dict, bytes)) or sp.issparse(data):
        raise ValueError(
            f"A {type(data).__name__} holds inputs only: give the targets as well, as y."
        )
    if hasattr(data, "dataset") and hasattr(data, "batch_size"):
        raise ValueError(
            f"A {type(data).__name__} makes batches, perhaps in another order each time: give the "
            f"data set that it reads."
        )
    if hasattr(data, "__len__") and hasattr(data, "__getitem__"):
        return _made(DatasetSource, options, data)
    if isinstance(data, Iterable):
        return _made(FunctionSource, options, data.__iter__)
    if callable(data):
        return _made(FunctionSource, options, data)
    raise ValueError(
        f"Examples cannot be read from a {type(data).__name__}: give inputs and targets, the path "
        f"of a file or folder, a generator function, or a data set with a length and items."
    )


def _open_path(path: str, y: Any, options: dict[str, Any]) -> Source:
    for one in file_formats().values() if options and y is None else ():
        if one.source is not None and one.option in options:
            return _made(one.source, options, path)
    if y is None and path == STANDARD_INPUT:
        return _made(_kind_of_lines(path, options), options, path)
    if not os.path.exists(path):
        raise FileNotFoundError(f"There is no file or folder {path!r:.200}.")
    kind = _kind_of_path(path, options)
    if kind is ArraySource:
        if y is None:
            raise ValueError(
                f"{path!r} holds inputs only: give the targets as well, as y, an array or the path "
                f"of another .npy file."
            )
        return _made(ArraySource, options, open_mapped(path), _array(y))
    if y is not None:
        raise ValueError(f"{path!r} holds the targets, too: leave out y.")
    return _made(kind, options, path)


def _kind_of_path(path: str, options: dict[str, Any]) -> Callable[..., Source]:
    if os.path.isdir(path):
        if Path(path, META).is_file():
            return CsrFolder
        if any(file.is_file() and is_arrow(file) for file in Path(path).iterdir()):
            return ArrowSource
        raise ValueError(
            f"{path!r} is a folder without {META}, which converted data have, and without Parquet "
            f"or Arrow files."
        )
    if is_arrow(path):
        return ArrowSource
    if begins_with(path, _NUMPY):
        return ArraySource
    return _kind_of_lines(path, options)


def _kind_of_lines(path: str, options: dict[str, Any]) -> Callable[..., Source]:
    begin = head_of(path, _LOOKED_AT)
    # The first line that is no comment, or what of it is there.
    if len(begin) == _LOOKED_AT:
        begin = begin[: max(begin.rfind(b"\n"), begin.rfind(b" "))]
    begin = begin.removeprefix(codecs.BOM_UTF8)
    texts = [text for text in begin.splitlines() if text.partition(b"#")[0].strip()]
    if not texts:
        raise ValueError(f"{shown_name(path)!r} holds no examples.")
    reader = LineReader(
        path, first_index=0, multilabel=options.get("multilabel", False), weighted=True
    )
    try:
        lines = next(reader.read(BytesIO(texts[0]), _LOOKED_AT))
    except FileFormatError:
        hint = ""
        with suppress(FileFormatError):
            other = file_formats()[guess_format(begin).name].reader
            hint = "" if other is None else f"; {other} may read it"
        raise ValueError(
            f"{shown_name(path)!r} holds neither lines of LIBSVM's or SVM-hmm's format, nor an "
            f"array of numpy, nor a Parquet or Arrow table: it begins with {texts[0][:40]!r}{hint}."
        ) from None
    source = file_formats()["libsvm" if lines.groups[0] < 0 else "svm-hmm"].source
    assert source is not None
    return source


def _array(y: Any) -> Any:
    return open_mapped(y) if isinstance(y, (str, os.PathLike)) else y


def _made(kind: Callable[..., Source], options: dict[str, Any], *data: Any) -> Source:
    """A source of that kind, if it has these options."""
    parameters = inspect.signature(kind).parameters.values()
    known = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
    unknown = [name for name in options if name not in known]
    if unknown:
        raise ValueError(
            f"{kind.__name__} has no option {unknown[0]!r}: it has {', '.join(known)}."
        )
    return kind(*data, **options)


_SECONDS_IN_PLACE, _SECONDS_IN_LOG = 0.1, 5.0
"""Between two progress lines, in a terminal and in a log."""


def convert(
    source: Any,
    folder: PathLike,
    *,
    dtype: DTypeLike = np.float64,
    progress: bool | None = None,
) -> CsrFolder:
    """Write rows and targets to a CSR folder, in one pass and with the memory of one batch.

    Parameters
    ----------
    source : Source, or anything that `open_examples` opens
        Rows of numbers, sparse or dense, with a number or a string as target.
    folder : path
        Must not exist. It appears when it is complete; if the conversion ends early, by Ctrl-C too,
        nothing is left behind.
    dtype : {numpy.float64, numpy.float32}, default=numpy.float64
        Of the values.
    progress : bool, default=None
        Show how far it is on standard error; None does so in a terminal.

    Returns
    -------
    stored : CsrFolder
        A source of the same examples.

    Raises
    ------
    ValueError
        If the examples are no rows of numbers.
    FileExistsError
        If there is a file or folder of that name.

    See Also
    --------
    CsrFolder : What has been written.

    Examples
    --------
    >>> import tempfile
    >>> from maxmargin.data import convert
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     stored = convert(([[0.5, 2], [0, 1]], [1, 2]), f"{folder}/stored", progress=False)
    ...     print(stored.X.toarray(), stored.y)
    [[0.5 2. ]
     [0.  1. ]] [1 2]
    """
    opened = open_examples(source)
    shown = sys.stderr.isatty() if progress is None else progress
    with CsrFolderWriter(folder, dtype) as writer, closing(_watched(opened, shown)) as batches:
        for batch in batches:
            if not is_matrix(batch.X):
                raise ValueError(
                    f"{opened!r} gives inputs that are no rows of numbers, which a CSR folder "
                    f"cannot hold."
                )
            writer.append(batch)
    return CsrFolder(folder)


def _watched(source: Source, shown: bool) -> Generator[Examples, None, None]:
    """The batches, with progress on standard error if it is to be shown."""
    if not shown:
        yield from source.batches()
        return
    line, start, shown_at, n = LiveLine(), time.perf_counter(), -np.inf, 0
    try:
        for batch in source.batches():
            yield batch
            n += len(batch.y)
            now = time.perf_counter()
            if now - shown_at >= (_SECONDS_IN_PLACE if line.in_place else _SECONDS_IN_LOG):
                line.show(_progress(source, n, now - start))
                shown_at = now
        line.show([Field(f"{n:,} examples in {duration(time.perf_counter() - start)}", 1)])
    finally:
        line.end()  # an error message begins on a line of its own


def _progress(source: Source, n_examples: int, seconds: float) -> list[Field]:
    reached = source.progress
    if reached is not None:
        done, total = reached
        fields = [
            Field(f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB", 4),
            Field(f"{n_examples:,} examples", 2),
            Field(f"{done / seconds / 1e6:.0f} MB/s", 1),
        ]
    else:
        done, total = n_examples, source.n_examples or 0
        of_all = f" of {total:,}" if total else ""
        fields = [
            Field(f"{done:,}{of_all} examples", 4),
            Field(f"{done / seconds:,.0f} a second", 1),
        ]
    if total and done:
        fields.append(Field(f"about {about(seconds * (total - done) / done)} left", 3))
    return fields
