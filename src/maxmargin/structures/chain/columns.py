r"""Sentences in columns, as CoNLL's shared tasks, CRF++ and many taggers have them.

    He        PRP  B-NP
    reckons   VBZ  B-VP

    Yes       UH   B-INTJ

A line is a token: columns with spaces or tabs between them, the word first and its tag last. Empty
lines end sentences. All lines have as many columns as the first.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from maxmargin.data.files import FileFormatError, PathLike, create, lines_of, shown_name
from maxmargin.data.formats import MOST_WRONG, Format, Head

DOCUMENT = "-DOCSTART-"
"""Word of the lines by which CoNLL-2003 begins a document; they are no part of a sentence."""

_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_fields = re.compile("[^ \t]+").findall  # other spaces of Unicode may be part of words


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
    r"""Read sentences in columns whole.

    Parameters
    ----------
    path : path
        Plain or compressed by gzip, bzip2, xz or zstd; ``"-"`` is standard input.
    tag_column : int or None, default=-1
        Where the tags stand: counted from 0, or from the end if negative. None if there are
        none, as in a file to be tagged.
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
        If lines do not have the same number of columns, or there is none for the tags: names the
        file and the line.

    See Also
    --------
    iter_columns : One after the other, for files that do not fit in memory.
    write_columns : With the tags that were predicted.
    maxmargin.data.Templates : What to make of the columns for `maxmargin.SequenceTagger`.

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

    Errors are those of `read_columns`.

    Parameters
    ----------
    path, tag_column, comment, encoding : Any
        As in `read_columns`.

    Yields
    ------
    sentence : ColumnSentence
        The next one.
    """
    name = shown_name(path)
    tokens: list[list[str]] = []
    n_columns, tags = 0, 0
    first, first_letter = 0, ""  # of the lines that are a token
    for number, line in enumerate(lines_of(path, encoding), start=1):
        fields = _fields(line)
        if not fields or fields[0] == DOCUMENT:
            if tokens:
                yield _sentence(tokens, tags)
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
    if tokens:
        yield _sentence(tokens, tags)


def write_columns(
    sentences: Iterable[ColumnSentence],
    tags: Iterable[Sequence[Any]] | None = None,
    path: PathLike | None = None,
    *,
    separator: str = " ",
) -> str:
    """Sentences in columns: what they have, and one column more with predicted tags.

    This is what ``crf_test`` writes and ``conlleval`` reads: the words and other columns, the true
    tag if there is one, the predicted tag.

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
    """Number of the column with the tags; -1 if there is none."""
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


def _sentence(tokens: list[list[str]], tags: int) -> ColumnSentence:
    columns = tuple(zip(*tokens, strict=True))
    if tags < 0:
        return ColumnSentence(columns)
    return ColumnSentence(columns[:tags] + columns[tags + 1 :], columns[tags])


def recognise(head: Head) -> Format | None:
    """Columns, if nearly all lines have as many."""
    tokens = [fields for fields in map(_fields, head.lines) if fields and fields[0] != DOCUMENT]
    if not tokens:
        return None
    (n, most), *_ = Counter(map(len, tokens)).most_common(1)
    if len(tokens) - most > MOST_WRONG * len(tokens):
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
