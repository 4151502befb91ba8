"""What a text file holds, guessed from how it begins."""

import codecs
import io
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from maxmargin.data.files import FileFormatError, PathLike, head_of
from maxmargin.data.libsvm_lines import LineReader, Lines
from maxmargin.data.text import shown_name
from maxmargin.structures.chain.columns import DOCUMENT
from maxmargin.structures.constituency.trees import TreeError, read_trees

HEAD_BYTES = 1 << 20
"""Bytes that are looked at, if nobody says otherwise."""

MOST_GRADES = 5
"""Degrees of relevance that ranking data have at most: 0 to 4."""

_MOST_WRONG = 0.2
"""Share of the lines that may be malformed: which, the reader will say."""

_SPARSE = re.compile(r"\s*(?:[^\s:#]+\s+)?(?:cost:\S+\s+)?(?:qid:\S+\s+)?[0-9]+:[-+.\w]+(?:\s|#|$)")
_QUERY = re.compile(r"\s*[^\s:#]+\s+(?:cost:\S+\s+)?qid:(\S*)")
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_FIELD = re.compile("[^ \t]+")


@dataclass(frozen=True)
class Format:
    r"""What a file seems to be.

    Attributes
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


def guess_format(data: PathLike | bytes, n_bytes: int = HEAD_BYTES) -> Format:
    r"""Guess what a text file holds.

    Parameters
    ----------
    data : path or bytes
        A file, plain or compressed; ``"-"`` is standard input, of which nothing is used up: it can
        be read afterwards from its beginning. Bytes are the beginning of a text.
    n_bytes : int, default=2**20
        How much of it to look at.

    Returns
    -------
    format : Format

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
    lines = _lines(head, len(head) == n_bytes, name)
    for guess in _GUESSES:
        found = guess(lines, name)
        if found is not None:
            return found
    first = next(line for line in lines if line.strip())
    reason = (
        f"is of no format that is read here (LIBSVM, SVM-hmm, LETOR, CoNLL columns, CoNLL-U, Penn "
        f"trees): it begins with {first.strip()[:40]!r}; if it is one of them, "
        f"its reader (--format) names the line that is wrong."
    )
    raise FileFormatError(name, None, reason)


def _lines(head: bytes, is_cut: bool, name: str) -> list[str]:
    """Whole lines, in whatever encoding: the readers will care."""
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


def _penn(lines: list[str], name: str) -> Format | None:
    """Whether the text begins with a whole tree."""
    depth, tree = 0, ""
    for letter in chain.from_iterable(f"{line}\n" for line in lines):
        if not depth and letter.isspace():
            continue
        depth += (letter == "(") - (letter == ")")
        tree += letter
        if depth <= 0:
            break
    try:
        read = read_trees(tree, clean=False) if tree.startswith("(") else []
    except TreeError:
        return None
    return Format("penn", "parsing", "trees in brackets: parsing") if read else None


def _conllu(lines: list[str], name: str) -> Format | None:
    words = [line.split("\t") for line in lines if line.strip() and not line.startswith("#")]
    if not words or len(words[0]) != 10 or not re.fullmatch("1|1-[0-9]+|0\\.1", words[0][0]):
        return None
    if any(len(word) > 6 and word[6] != "_" for word in words):
        return Format("conllu", "dependencies", "10 columns with heads: dependency parsing")
    reason = "10 columns without heads: sentences for a dependency parser"
    return Format("conllu", "dependencies", reason)


def _sparse(lines: list[str], name: str) -> Format | None:
    """LIBSVM's format and its relatives with a query, or a sequence, in each line."""
    examples = [line for line in lines if line.partition("#")[0].strip()]
    some = examples[:1000]
    n_alike = sum(bool(_SPARSE.match(line) or _QUERY.match(line)) for line in some)
    if n_alike < 0.5 * max(len(some), 1):
        return None
    queries = [match[1] for match in map(_QUERY.match, examples) if match]
    if any(not _WHOLE.fullmatch(query) for query in queries):
        return Format("letor", "ranking", "queries with names: ranking")
    reader = LineReader(name, first_index=0, multilabel=True, weighted=True, skip=True)
    content = "\n".join(examples).encode()
    parts = list(reader.read(io.BytesIO(content), len(content) + 1))
    if not parts or reader.n_skipped > max(_MOST_WRONG * len(examples), 1):
        return None
    (rows,) = parts
    if queries and len(rows.labels):  # else those lines were malformed
        return _with_groups(rows, lines)
    return _without_groups(rows)


def _without_groups(rows: Lines) -> Format:
    counts, labels = np.diff(rows.label_starts), np.unique(rows.labels)
    n, k = len(counts), len(labels)
    if (counts != 1).any():
        return Format(
            "libsvm", "multilabel", f"any number of labels a line, {k} in all: multi-label"
        )
    if not _are_whole(labels):
        return Format("libsvm", "regression", "labels that are no integers: regression")
    if k > max(2, 0.5 * n) and n > 20:
        return Format(
            "libsvm", "regression", f"{k} integers in {n} lines: regression",
            "if they are classes: --task classification",
        )  # fmt: skip
    if k <= 2:
        shown = " and ".join(f"{label:g}" for label in labels)
        doubt = None if k == 2 else "a second one must come later"
        return Format("libsvm", "binary", f"labels {shown}: two classes", doubt)
    doubt = None
    if k > 20 and labels[-1] - labels[0] < 2 * k:
        doubt = "if they are amounts: --task regression"
    return Format("libsvm", "multiclass", f"{k} integer labels: multi-class classification", doubt)


def _with_groups(rows: Lines, lines: list[str]) -> Format:
    """Documents of queries, or positions of sequences: what speaks for which.

    Both have ``qid:``. Tags are numbered from 1, and positions have few of many features, which
    are mostly 1. Documents have degrees of relevance from 0 on, and nearly all of their features.
    """
    labels = np.unique(rows.labels)
    n_features = len(np.unique(rows.X.indices))
    has_most = rows.X.nnz > 0.5 * max(len(rows.groups) * n_features, 1)
    signs = [labels[0] == 0, has_most, not _are_whole(labels) or labels[-1] < MOST_GRADES]
    if any("docid" in line.partition("#")[2].lower() for line in lines[:100]):
        return Format("letor", "ranking", "qid: and document numbers after #: ranking")
    n_queries = len(np.unique(rows.groups))
    if sum(signs) >= 2:
        doubt = None if all(signs) else "if lines are positions of sequences: --format svm-hmm"
        reason = f"{n_queries} qid: with {len(labels)} degrees of relevance: ranking"
        return Format("letor", "ranking", reason, doubt)
    doubt = "if lines are documents of queries: --format letor" if any(signs) else None
    reason = f"{n_queries} qid: with {len(labels)} tags: tagging sequences"
    return Format("svm-hmm", "tagging", reason, doubt)


def _are_whole(labels: NDArray[np.float64]) -> bool:
    return bool((labels == np.round(labels)).all())


def _columns(lines: list[str], name: str) -> Format | None:
    tokens = [
        fields for line in lines if (fields := _FIELD.findall(line)) and fields[0] != DOCUMENT
    ]
    if not tokens:
        return None
    (n, most), *_ = Counter(map(len, tokens)).most_common(1)
    if len(tokens) - most > _MOST_WRONG * len(tokens):
        return None
    tokens = [fields for fields in tokens if len(fields) == n]
    if all(_NUMBER.fullmatch(field) for fields in tokens[:1000] for field in fields):
        return None  # a table of numbers
    if n == 1:
        if sum("," in fields[0] or ";" in fields[0] for fields in tokens) > 0.5 * len(tokens):
            return None  # a table with commas
        return Format("columns", "tagging", "1 column: words without tags", n_columns=1)
    n_tags = len({fields[-1] for fields in tokens})
    reason = f"{n} columns, {n_tags} tags in the last: tagging"
    doubt = None
    if len(tokens) > 20 and n_tags > 0.5 * len(tokens):
        doubt = "so many tags are rare: is it the last column that holds them?"
    return Format("columns", "tagging", reason, doubt, n)


_GUESSES: tuple[Callable[[list[str], str], Format | None], ...] = _penn, _conllu, _sparse, _columns
