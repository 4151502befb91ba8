"""What a text file holds: `guess_format`.

A `FileFormat` says how files of a format are recognised. It is listed in
`maxmargin.structures.FILE_FORMATS`, and stands apart from what reads them: all formats are tried,
and one of the readers is imported.
"""

import codecs
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from io import BytesIO

import numpy as np

from maxmargin.data.files import FileFormatError, PathLike, head_of, shown_name
from maxmargin.data.libsvm_lines import LineReader, Lines

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
    source: str | None = None  # in `maxmargin.data`, imported when it is asked for
    option: str | None = None  # of `source`, which it needs, and by which it is chosen


@cache
def file_formats() -> dict[str, FileFormat]:
    """All formats by name, in the order in which they are tried."""
    places = (one.split(":") for one in import_module("maxmargin.structures").FILE_FORMATS)
    formats = [getattr(import_module(f"maxmargin.{home}"), name) for home, name in places]
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
