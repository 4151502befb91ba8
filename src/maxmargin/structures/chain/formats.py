"""Files of tagged sequences: tokens in columns (CoNLL, CRF++), and rows in SVM-hmm's format."""

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.data.files import FileFormatError, PathLike, create, lines_of, shown_name
from maxmargin.data.libsvm import LineFile, stacked, whole_numbers
from maxmargin.data.libsvm_lines import LineReader
from maxmargin.data.sources import BATCH_BYTES, Examples, widened
from maxmargin.structures.chain.recognition import DOCUMENT, fields_of


@dataclass(frozen=True, slots=True)
class ColumnSentence:
    """Tokens of a sentence by columns, with their tags if they are known.

    Parameters
    ----------
    columns : tuple of tuples of str
        ``columns[k][i]`` is column ``k`` of token ``i``, without the column of the tags.
    tags : tuple of str, default=None

    Examples
    --------
    >>> from maxmargin.data import ColumnSentence
    >>> sentence = ColumnSentence((("He", "reckons"), ("PRP", "VBZ")), ("B-NP", "B-VP"))
    >>> sentence.words, len(sentence)
    (('He', 'reckons'), 2)
    """

    columns: tuple[tuple[str, ...], ...]
    tags: tuple[str, ...] | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """The first column."""
        return self.columns[0]

    def __len__(self) -> int:
        return len(self.columns[0])


def read_columns(
    path: PathLike,
    *,
    tag_column: int | None = -1,
    comment: str | None = None,
    encoding: str | None = None,
) -> list[ColumnSentence]:
    r"""Read sentences in columns, as those of CoNLL's shared tasks and of CRF++, whole.

    A line is a token, its columns separated by spaces or tabs; empty lines end sentences.

    Parameters
    ----------
    path : path
        Plain or compressed by gzip, bzip2, xz or zstd; ``"-"`` is standard input.
    tag_column : int or None, default=-1
        Column of the tags, from 0, or from the end if negative; None if there is none.
    comment : str, default=None
        Lines that begin with this are left out. None leaves out none: ``#`` may be a word.
    encoding : str, default=None
        Such as ``"latin-1"``; None is UTF-8.

    Returns
    -------
    sentences : list of ColumnSentence
        Lines of CoNLL-2003 that begin documents (``-DOCSTART-``) are left out.

    Raises
    ------
    FileFormatError
        With file and line, if lines differ in their number of columns or lack that of the tags.

    See Also
    --------
    iter_columns : One after the other, for files that do not fit in memory.
    write_columns : With the tags that were predicted.
    maxmargin.data.Templates : Features of the columns for `maxmargin.SequenceTagger`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from maxmargin.data import read_columns
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "train.txt")
    ...     _ = path.write_text("He PRP B-NP\nreckons VBZ B-VP\n\nYes UH B-INTJ\n")
    ...     for sentence in read_columns(path):
    ...         print(sentence.words, sentence.tags)
    ('He', 'reckons') ('B-NP', 'B-VP')
    ('Yes',) ('B-INTJ',)
    """
    return list(iter_columns(path, tag_column=tag_column, comment=comment, encoding=encoding))


def iter_columns(
    path: PathLike,
    *,
    tag_column: int | None = -1,
    comment: str | None = None,
    encoding: str | None = None,
) -> Iterator[ColumnSentence]:
    """Sentences in columns, read one after the other as they are asked for.

    Parameters
    ----------
    path, tag_column, comment, encoding : Any
        As in `read_columns`, and so are errors.

    Yields
    ------
    sentence : ColumnSentence
        The next one.
    """
    name = shown_name(path)
    tokens: list[list[str]] = []
    n_columns, tags = 0, -1
    first, first_letter = 0, ""  # of the lines that are a token
    for number, line in enumerate(chain(lines_of(path, encoding), [""]), start=1):
        fields = fields_of(line)
        if not fields or fields[0] == DOCUMENT:
            if tokens:
                columns = tuple(zip(*tokens, strict=True))
                yield ColumnSentence(columns) if tags < 0 else with_tags(columns, tags)
                tokens = []
            continue
        if comment and line.startswith(comment):
            continue
        if len(fields) != n_columns:
            if n_columns:
                hint = ', or pass comment="#"' if "#" in (line[0], first_letter) else ""
                reason = (
                    f"the number of columns is {len(fields)}, but {n_columns} in line {first}: "
                    f"give all lines as many{hint}."
                )
                raise FileFormatError(name, number, reason)
            n_columns, first, first_letter = len(fields), number, line[0]
            tags = _tag_place(tag_column, n_columns, name, number)
        tokens.append(fields)


def write_columns(
    sentences: Iterable[ColumnSentence],
    tags: Iterable[Sequence[Any]] | None = None,
    path: PathLike | None = None,
    *,
    separator: str = " ",
) -> str:
    """Sentences in columns, with one more for predicted tags, as ``conlleval`` reads them.

    Parameters
    ----------
    sentences : iterable of ColumnSentence
    tags : iterable of sequences, default=None
        A tag for each token, as `maxmargin.SequenceTagger.predict` gives them.
    path : path, default=None
        File to write; compressed if it ends in ``.gz``, ``.bz2``, ``.xz`` or ``.zst``.
    separator : str, default=" "
        Between columns.

    Returns
    -------
    text : str
        What was written.

    Examples
    --------
    >>> from maxmargin.data import ColumnSentence, write_columns
    >>> print(write_columns([ColumnSentence((("He",),), ("NP",))], [["VP"]]), end="")
    He NP VP
    <BLANKLINE>
    """
    known = list(sentences)
    predictions: list[Any] = [None] * len(known) if tags is None else list(tags)
    if len(predictions) != len(known):
        raise ValueError(f"There are {len(known)} sentences, but tags of {len(predictions)}.")
    lines = []
    for i, (sentence, predicted) in enumerate(zip(known, predictions, strict=True)):
        columns = [
            part for part in (*sentence.columns, sentence.tags, predicted) if part is not None
        ]
        if len({len(column) for column in columns}) > 1:
            raise ValueError(
                f"Sentence {i} has {len(sentence)} tokens, but columns or tags of other lengths."
            )
        lines += [separator.join(map(str, token)) for token in zip(*columns, strict=True)]
        lines.append("")
    text = "".join(f"{line}\n" for line in lines)
    if path is not None:
        with create(path) as file:
            file.write(text.encode())
    return text


def _tag_place(tag_column: int | None, n_columns: int, name: str, number: int) -> int:
    """Number of the tag column, counted from 0; -1 if there is none."""
    if tag_column is None:
        return -1
    if n_columns == 1:
        reason = "there is one column only: give tag_column=None if there are no tags."
        raise FileFormatError(name, number, reason)
    if not -n_columns <= tag_column < n_columns:
        reason = (
            f"there are {n_columns} columns, so that tag_column={tag_column} is none of them: "
            f"give another, or None if there are no tags."
        )
        raise FileFormatError(name, number, reason)
    return tag_column % n_columns


def with_tags(columns: tuple[tuple[str, ...], ...], place: int) -> ColumnSentence:
    """A sentence whose tags are in the column at `place`."""
    place %= len(columns)
    return ColumnSentence(columns[:place] + columns[place + 1 :], columns[place])


class SvmHmmFile(LineFile):
    r"""Sequences of a file in SVM-hmm's format, read in batches by a compiled parser.

    A line is a position, ``3 qid:12 1:0.5 7:1`` of sequence 12 with tag 3. Inputs are a CSR matrix
    for each sequence, one row a position; targets arrays of tags.

    Parameters
    ----------
    path : path
        Plain or compressed by gzip, bzip2, xz or zstd; ``"-"`` is standard input, read only once.
    n_features : int, default=None
        Larger indices are malformed. None learns it from the first pass.
    on_error : {"stop", "skip"}, default="stop"
        Whether a malformed line ends the reading, or is left out and counted.
    batch_bytes : int, default=2**24
        Text that is read at a time.

    See Also
    --------
    read_svm_hmm : The whole file at once.
    LibsvmFile : Rows that are no sequences.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from maxmargin.data import SvmHmmFile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "tags.txt")
    ...     _ = path.write_text("1 qid:1 1:1 # The\n2 qid:1 2:1 # dog\n2 qid:2 2:1 # Dogs\n")
    ...     source = SvmHmmFile(path)
    ...     for batch in source.batches():
    ...         print([tags.tolist() for tags in batch.y], batch.X[0].shape)
    [[1, 2]] (2, 2)
    [[2]] (1, 2)
    """

    _grouped = True

    def __init__(
        self,
        path: PathLike,
        *,
        n_features: int | None = None,
        on_error: str = "stop",
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        super().__init__(
            path, n_features=n_features, first_index=1, on_error=on_error, batch_bytes=batch_bytes
        )

    def _read(self) -> Iterator[Examples]:
        width = self.n_features or 0
        X, tags, groups = sp.csr_array((0, 0)), np.zeros(0), np.zeros(0, np.int64)
        for lines in self.lines():
            width = max(width, lines.X.shape[1])
            # What is left of the lines before is a sequence that may go on.
            X = stacked([X, lines.X] if len(tags) else [lines.X], width)
            tags, groups = np.r_[tags, lines.labels], np.r_[groups, lines.groups]
            starts = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist()]
            if len(starts) > 1:
                yield _sequences(X, tags, starts, width)
            X, tags, groups = X[starts[-1] :], tags[starts[-1] :], groups[starts[-1] :]
        if len(tags):
            yield _sequences(X, tags, [0, len(tags)], width)
        self.n_features = self.n_features or width

    def _cut(self, file: BinaryIO, at: int) -> int:
        start, before = super()._cut(file, at), None
        while line := file.readline():
            group = self._group(line)
            if None not in (group, before) and group != before:
                return start
            start, before = start + len(line), before if group is None else group
        return start

    def _group(self, line: bytes) -> int | None:
        """The sequence that a line belongs to, None for a line of no sequence."""
        reader = LineReader(self.path, n_features=self._declared, grouped=True, skip=True)
        lines = next(reader.read(io.BytesIO(line), len(line) + 1), None)
        return None if lines is None else int(lines.groups[0])


def read_svm_hmm(
    path: PathLike, *, n_features: int | None = None
) -> tuple[list[Any], list[NDArray[Any]]]:
    """Read sequences in SVM-hmm's format whole.

    Parameters
    ----------
    path : path
        Plain or compressed by gzip, bzip2, xz or zstd; ``"-"`` is standard input.
    n_features : int, default=None
        Columns of the matrices; None takes as many as the largest index needs.

    Returns
    -------
    X : list of csr_array of shape (n_positions, n_features)
        Features of each sequence.
    y : list of ndarray of shape (n_positions,)
        Tags, as integers if all of the sequence's are whole numbers.

    Raises
    ------
    FileFormatError
        If a line is malformed: names the line, and the byte at which it starts.

    See Also
    --------
    SvmHmmFile : The same in batches.
    maxmargin.SequenceTagger : What to do with it.

    Examples
    --------
    >>> from maxmargin.data import read_svm_hmm
    >>> X, y = read_svm_hmm("declaration_of_independence.txt")  # doctest: +SKIP
    """
    source = SvmHmmFile(path, n_features=n_features)
    batches = list(source.batches())
    width = source.n_features or 0
    X = [widened(part, width) for part in chain.from_iterable(batch.X for batch in batches)]
    return X, list(chain.from_iterable(batch.y for batch in batches))


def _sequences(X: Any, tags: NDArray[np.float64], ends: list[int], width: int) -> Examples:
    """Sequences of the rows from each of the ends to the next."""
    sequences = []
    for a, b in pairwise(ends):
        entries = slice(X.indptr[a], X.indptr[b])
        rows = sp.csr_array(
            (X.data[entries], X.indices[entries], X.indptr[a : b + 1] - X.indptr[a]),
            shape=(b - a, width),
        )
        rows.has_canonical_format = True
        sequences.append(rows)
    return Examples(sequences, [whole_numbers(tags[a:b]) for a, b in pairwise(ends)])
