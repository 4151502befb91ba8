"""Sentences with dependency trees: CoNLL-U, and ``.dp``, with the columns word, tag and head."""

import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from maxmargin.data.files import FileFormatError, create, lines_of, lines_of_stream, shown_name

_COLUMNS = {"upos": 3, "xpos": 4}
"""Columns of the tags in CoNLL-U."""

_FORM, _HEAD, _LABEL, _N_COLUMNS = 1, 6, 7, 10

_NO_WORD = re.compile(r"[0-9]+[-.][0-9]+")
"""Numbers of multiword tokens and of empty nodes."""

_DP_NAME = re.compile(r"\.(dp(\.(gz|bz2|xz|zst))?|zip)$")

_ZIP_ERRORS = zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError

Source = str | os.PathLike[str]


class DependencySentence(NamedTuple):
    """A sentence, with its tree if it is known.

    Parameters
    ----------
    words, tags : tuple of str
        The words, and the part of speech of each.
    heads : tuple of int or None
        Number of the head of each word, counted from 1; 0 is the root.
    labels : tuple of str or None
        Relation of each word to its head.

    Examples
    --------
    >>> DependencySentence(("Dogs", "bark"), ("NOUN", "VERB"), (2, 0)).heads
    (2, 0)
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    heads: tuple[int, ...] | None = None
    labels: tuple[str, ...] | None = None


def read_conllu(
    source: Source, *, tag: str = "upos", encoding: str | None = None
) -> list[DependencySentence]:
    r"""Read sentences in CoNLL-U format, without multiword tokens, empty nodes and comments.

    Parameters
    ----------
    source : path or str
        A file, perhaps compressed (gzip, bzip2, xz, zstd), or the text itself; ``"-"`` is
        standard input.
    tag : {"upos", "xpos"}, default="upos"
        Which column the tags are taken from: universal, or the language's own.
    encoding : str, default=None
        Of a file, such as ``"latin-1"``; None is UTF-8.

    Returns
    -------
    sentences : list of DependencySentence
        Without heads where the HEAD column is ``_``, without labels where DEPREL is.

    Raises
    ------
    FileFormatError
        With file and line, if the text is not CoNLL-U.

    See Also
    --------
    write_conllu : The other way round.
    read_dp : The files of the dependency treebank.

    Examples
    --------
    >>> text = "1\tDogs\t_\tNOUN\t_\t_\t2\tnsubj\t_\t_\n2\tbark\t_\tVERB\t_\t_\t0\troot\t_\t_\n"
    >>> read_conllu(text)[0].labels
    ('nsubj', 'root')
    """
    if tag not in _COLUMNS:
        raise ValueError(f"tag must be 'upos' or 'xpos', not {tag!r}.")
    column = _COLUMNS[tag]

    def read(line: str, position: int) -> tuple[str, ...] | None:
        fields = line.split("\t")
        if len(fields) != _N_COLUMNS:
            raise ValueError(
                f"a line of CoNLL-U has {_N_COLUMNS} columns with tabs between them, but this one "
                f"has {len(fields)}."
            )
        number = fields[0]
        if _NO_WORD.fullmatch(number):
            return None
        if number != str(position):
            raise ValueError(f"the word should have the number {position}, but has {number!r:.50}.")
        return fields[_FORM], fields[column], fields[_HEAD], fields[_LABEL]

    return list(_sentences(source, encoding, read, comments=True))


def read_dp(source: Source, *, encoding: str | None = None) -> list[DependencySentence]:
    r"""Read sentences in the format of the dependency treebank: word, tag, head.

    Parameters
    ----------
    source : path or str
        As in `read_conllu`, or a ``.zip`` of ``.dp`` files, read in the order of their names.
    encoding : str, default=None
        Of files, such as ``"latin-1"``; None is UTF-8.

    Returns
    -------
    sentences : list of DependencySentence
        Without labels.

    Raises
    ------
    FileFormatError
        With file and line, if the text is of another format.

    Examples
    --------
    >>> read_dp("Dogs\tNNS\t2\nbark\tVBP\t0\n")[0].heads
    (2, 0)
    """

    def read(line: str, position: int) -> tuple[str, ...]:
        fields = line.split("\t")
        if len(fields) != 3:
            raise ValueError(
                f"a line must have 3 columns with tabs between them (word, tag, head), but this "
                f"one has {len(fields)}."
            )
        return (*fields, "_")

    return list(_sentences(source, encoding, read, comments=False))


def read_dependencies(
    source: Source, *, tag: str = "upos", encoding: str | None = None
) -> list[DependencySentence]:
    """Read a file by the end of its name: `read_dp` for .dp and .zip, else `read_conllu`.

    Parameters
    ----------
    source, tag, encoding : Any
        As in `read_conllu`.

    Returns
    -------
    sentences : list of DependencySentence
        In the order of the file.
    """
    if not _is_text(source) and _DP_NAME.search(str(source)):
        return read_dp(source, encoding=encoding)
    return read_conllu(source, tag=tag, encoding=encoding)


def write_conllu(sentences: Iterable[Sequence[Any]], path: Source | None = None) -> str:
    r"""Sentences in CoNLL-U format, with tags in the UPOS column and no more than is known.

    Parameters
    ----------
    sentences : iterable of DependencySentence
        Or tuples of words, tags, heads and labels, the latter two of which may be missing.
    path : path, default=None
        File to write; compressed if it ends in ``.gz``, ``.bz2``, ``.xz`` or ``.zst``.

    Returns
    -------
    text : str
        What was written.

    Examples
    --------
    >>> print(write_conllu([(["Go"], ["VERB"], [0], ["root"])]).replace("\t", " "))
    1 Go _ VERB _ _ 0 root _ _
    <BLANKLINE>
    <BLANKLINE>
    """
    lines = []
    for sentence in sentences:
        words, tags, *tree = DependencySentence(*sentence)
        known = [["_"] * len(words) if part is None else part for part in tree]
        tokens = zip(words, tags, *known, strict=True)
        for position, (word, tag, head, label) in enumerate(tokens, start=1):
            lines.append(f"{position}\t{word}\t_\t{tag}\t_\t_\t{head}\t{label}\t_\t_\n")
        lines.append("\n")
    text = "".join(lines)
    if path is not None:
        with create(path) as file:
            file.write(text.encode())
    return text


def _is_text(source: Source) -> bool:
    """Whether it is no path: file names have no tabs and line ends."""
    return isinstance(source, str) and (not source.strip() or "\n" in source or "\t" in source)


def _sentences(
    source: Source,
    encoding: str | None,
    take_apart: Callable[[str, int], tuple[str, ...] | None],
    comments: bool,
) -> Iterator[DependencySentence]:
    """Sentences of all texts; `take_apart` splits a line into word, tag, head and label."""
    tokens: list[tuple[str, ...]] = []
    places: list[int] = []
    for name, number, line in _lines(source, encoding):
        if not line.strip():
            if tokens:
                yield _sentence(tokens, name, places)
                tokens, places = [], []
        elif not (comments and line.startswith("#")):
            try:
                fields = take_apart(line, len(tokens) + 1)
                if fields is not None and not fields[0].strip():
                    raise ValueError("the word is empty.")
            except ValueError as error:
                raise FileFormatError(name, number, str(error)) from None
            if fields is not None:
                tokens.append(fields)
                places.append(number)


def _lines(source: Source, encoding: str | None) -> Iterator[tuple[str, int, str]]:
    """Lines with the name of their text and their number; each text ends in an empty line."""

    def numbered(name: str, lines: Iterable[str]) -> Iterator[tuple[str, int, str]]:
        for number, line in enumerate(chain(lines, [""]), start=1):
            yield name, number, line.rstrip("\r")

    path = str(source)
    if _is_text(source):
        yield from numbered("the text", path.split("\n"))
    elif not path.endswith(".zip"):
        yield from numbered(shown_name(path), lines_of(path, encoding))
    elif not os.path.isfile(path):
        raise FileNotFoundError(f"There is no file {path!r:.200}.")
    else:
        try:
            with zipfile.ZipFile(path) as archive:
                names = sorted(name for name in archive.namelist() if name.endswith(".dp"))
                if not names:
                    raise FileFormatError(path, None, "holds no files that end in .dp.")
                for name in names:
                    shown = f"{path}, {name}"
                    with archive.open(name) as stream:
                        yield from numbered(shown, lines_of_stream(stream, shown, encoding))
        except _ZIP_ERRORS as error:
            reason = "is damaged, or not compressed as its name says."
            raise FileFormatError(path, None, reason) from error


def _sentence(tokens: list[tuple[str, ...]], name: str, places: list[int]) -> DependencySentence:
    words, tags, heads, labels = zip(*tokens, strict=True)
    named = None if set(labels) == {"_"} else labels
    if set(heads) == {"_"}:
        return DependencySentence(words, tags, None, named)
    if "_" in heads:
        reason = "the word has no head, but others of its sentence have: give all of them or none."
        raise FileFormatError(name, places[heads.index("_")], reason)
    for position, (head, place) in enumerate(zip(heads, places, strict=True), start=1):
        is_number = head.isascii() and head.isdigit() and len(head) < 19
        if not is_number or int(head) > len(words):
            reason = (
                f"the head must be a number from 0, the root, to {len(words)}, the last word, but "
                f"is {head!r:.50}."
            )
            raise FileFormatError(name, place, reason)
        if int(head) == position:
            raise FileFormatError(name, place, "the word is its own head.")
    return DependencySentence(words, tags, tuple(map(int, heads)), named)
