"""Sentences with dependency trees: the CoNLL-U format, and ``.dp``, that of a small treebank.

CoNLL-U has a line of ten columns, with tabs between them, for each word, and an empty line after
each sentence. Lines for multiword tokens (``1-2``) and for empty nodes (``1.1``), and comments, are
left out. A ``.dp`` file has three columns: word, tag and head.
"""

import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from maxmargin.data.files import create, read_bytes

_COLUMNS = {"upos": 3, "xpos": 4}
"""Where in CoNLL-U the kinds of tags stand."""

_FORM, _HEAD, _LABEL, _N_COLUMNS = 1, 6, 7, 10

Source = str | os.PathLike[str]


class DependencySentence(NamedTuple):
    """A sentence, with its tree if it is known.

    Attributes
    ----------
    words, tags : tuple of str
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


def read_conllu(source: Source, *, tag: str = "upos") -> list[DependencySentence]:
    r"""Read sentences in CoNLL-U format.

    Parameters
    ----------
    source : path or str
        A file, perhaps compressed (gzip, bzip2, xz, zstd), or the text itself.
    tag : {"upos", "xpos"}, default="upos"
        Which column the tags are taken from: universal, or the language's own.

    Returns
    -------
    sentences : list of DependencySentence
        Without heads where the HEAD column is ``_``, without labels where DEPREL is.

    Raises
    ------
    ValueError
        If the text is not CoNLL-U; names the file and the line.

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
    [(name, text)] = _texts(source)
    column = _COLUMNS[tag]

    def read(line: str, where: str, position: int) -> tuple[str, ...] | None:
        fields = line.split("\t")
        if len(fields) != _N_COLUMNS:
            raise ValueError(
                f"{where}: a line of CoNLL-U has {_N_COLUMNS} columns with tabs between them, but "
                f"this one has {len(fields)}."
            )
        number = fields[0]
        if "-" in number or "." in number:
            return None
        if number != str(position):
            raise ValueError(
                f"{where}: the word should have the number {position}, but has {number!r}."
            )
        return fields[_FORM], fields[column], fields[_HEAD], fields[_LABEL]

    return list(_sentences(text, name, read, comments=True))


def read_dp(source: Source) -> list[DependencySentence]:
    r"""Read sentences in the format of the dependency treebank: word, tag, head.

    Parameters
    ----------
    source : path or str
        A file, perhaps compressed (gzip, bzip2, xz, zstd), a ``.zip`` of files that end in ``.dp``,
        which are read in the order of their names, or the text itself.

    Returns
    -------
    sentences : list of DependencySentence
        Without labels.

    Raises
    ------
    ValueError
        If the text is of another format; names the file and the line.

    Examples
    --------
    >>> read_dp("Dogs\tNNS\t2\nbark\tVBP\t0\n")[0].heads
    (2, 0)
    """

    def read(line: str, where: str, position: int) -> tuple[str, ...]:
        fields = line.split("\t")
        if len(fields) != 3:
            raise ValueError(
                f"{where}: a line must have 3 columns with tabs between them (word, tag, head), "
                f"but this one has {len(fields)}."
            )
        return (*fields, "_")

    return [
        sentence
        for name, text in _texts(source)
        for sentence in _sentences(text, name, read, comments=False)
    ]


def read_dependencies(source: Source, *, tag: str = "upos") -> list[DependencySentence]:
    """Read a file by the end of its name: `read_dp` for .dp and .zip, else `read_conllu`."""
    if not _is_text(source) and str(source).endswith((".dp", ".dp.xz", ".dp.gz", ".zip")):
        return read_dp(source)
    return read_conllu(source, tag=tag)


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

    Examples
    --------
    >>> print(write_conllu([(["Go"], ["VERB"], [0], ["root"])]).replace("\t", " "))
    1 Go _ VERB _ _ 0 root _ _
    <BLANKLINE>
    <BLANKLINE>
    """
    lines = []
    for sentence in sentences:
        words, tags, heads, labels = DependencySentence(*sentence)
        unknown = ["_"] * len(words)
        for position, (word, tag, head, label) in enumerate(
            zip(
                words,
                tags,
                unknown if heads is None else heads,
                unknown if labels is None else labels,
                strict=True,
            ),
            start=1,
        ):
            lines.append(f"{position}\t{word}\t_\t{tag}\t_\t_\t{head}\t{label}\t_\t_\n")
        lines.append("\n")
    text = "".join(lines)
    if path is not None:
        with create(path) as file:
            file.write(text.encode())
    return text


_Read = Callable[[str, str, int], tuple[str, ...] | None]


def _is_text(source: Source) -> bool:
    """Whether it is no path; no name of a file has tabs and ends of lines."""
    return isinstance(source, str) and (not source.strip() or "\n" in source or "\t" in source)


def _texts(source: Source) -> Iterator[tuple[str, str]]:
    """Names and texts of what is to be read."""
    if _is_text(source):
        yield "the text", str(source)
        return
    path = Path(source)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {str(source)!r:.200}.")
    try:
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                names = sorted(name for name in archive.namelist() if name.endswith(".dp"))
                for name in names:
                    yield f"{path}, {name}", archive.read(name).decode("utf-8-sig")
            if not names:
                raise ValueError(f"{path} holds no files that end in .dp.")
            return
        text = read_bytes(path).decode("utf-8-sig")
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path} is damaged, or not compressed as its name says.") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text in UTF-8.") from error
    yield str(path), text


def _sentences(text: str, name: str, read: _Read, comments: bool) -> Iterator[DependencySentence]:
    """Sentences of a text; `read` takes a line apart into word, tag, head and label."""
    tokens: list[tuple[str, ...]] = []
    places: list[int] = []
    for number, line in enumerate([*text.split("\n"), ""], start=1):
        line = line.rstrip("\r")
        if not line.strip():
            if tokens:
                yield _sentence(tokens, name, places)
                tokens, places = [], []
        elif not (comments and line.startswith("#")):
            fields = read(line, f"{name}, line {number}", len(tokens) + 1)
            if fields is not None:
                tokens.append(fields)
                places.append(number)


def _sentence(tokens: list[tuple[str, ...]], name: str, places: list[int]) -> DependencySentence:
    words, tags, heads, labels = zip(*tokens, strict=True)
    known = [head != "_" for head in heads]
    if any(known) and not all(known):
        raise ValueError(
            f"{name}, line {places[known.index(False)]}: the word has no head, but others of its "
            f"sentence have: give all of them or none."
        )
    numbers = tuple(
        _head(head, position, len(tokens), f"{name}, line {place}")
        for position, (head, place) in enumerate(zip(heads, places, strict=True), start=1)
        if all(known)
    )
    named = None if all(label == "_" for label in labels) else labels
    return DependencySentence(words, tags, numbers if all(known) else None, named)


def _head(text: str, position: int, n_words: int, where: str) -> int:
    head = int(text) if text.isascii() and text.isdigit() else -1
    if not 0 <= head <= n_words:
        raise ValueError(
            f"{where}: the head must be a number from 0, the root, to {n_words}, the last word, "
            f"but is {text!r}."
        )
    if head == position:
        raise ValueError(f"{where}: the word is its own head.")
    return head
