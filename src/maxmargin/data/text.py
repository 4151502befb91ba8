r"""Text files as users have them, turned into lines: the one place where bytes become text.

Lines end in ``\n``, ``\r\n`` or ``\r`` alone, the last one perhaps in nothing. A byte order mark
is left out. Text is UTF-8; anything else must be named, because a wrong guess would go unnoticed.
"""

import codecs
import io
from collections.abc import Iterator
from typing import IO

from maxmargin.data.files import STANDARD_INPUT, FileFormatError, PathLike, open_bytes

LONGEST_LINE = 1 << 24
"""Characters after which a text without an end of a line is given up, by every reader.

A few megabytes of a compressed file may be gigabytes without a line: memory must not follow them.
"""

_BATCH_BYTES = 1 << 18

_WIDE_MARKS = codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE
"""How files begin that editors call Unicode, and that are not UTF-8."""


def lines_of(path: PathLike, encoding: str | None = None) -> Iterator[str]:
    r"""Lines of a text file, without their ends.

    Parameters
    ----------
    path : path
        Plain or compressed by gzip, bzip2, xz or zstd; ``"-"`` is standard input.
    encoding : str, default=None
        How the file writes characters, such as ``"latin-1"``; None is UTF-8.

    Yields
    ------
    line : str
        Only ``\n``, ``\r\n`` and ``\r`` end a line: other things that Unicode calls line ends
        may be part of words.

    Raises
    ------
    FileFormatError
        With the line, if the bytes are not of that encoding, if there is a NUL, which no text
        has, or if a line does not end.
    OSError
        If the file cannot be read.

    See Also
    --------
    text_of : The same as one string.
    maxmargin.data.files.open_bytes : Where the bytes come from.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "words.txt")
    ...     _ = path.write_bytes("\ufeffcaf\xe9\r\n\r\nbar".encode())
    ...     list(lines_of(path))
    ['café', '', 'bar']
    """
    with open_bytes(path) as stream:
        yield from lines_of_stream(stream, shown_name(path), encoding)


def lines_of_stream(stream: IO[bytes], name: str, encoding: str | None = None) -> Iterator[str]:
    """The same of a stream that is open already, whose name is for messages."""
    decoder = _decoder(encoding)
    begun, n_lines = "", 0  # the last line, which may go on; lines before it
    batch = stream.read(_BATCH_BYTES)
    if encoding is None and batch.startswith(_WIDE_MARKS):
        reason = 'this is UTF-16 or UTF-32: pass encoding="utf-16" (or "utf-32").'
        raise FileFormatError(name, 1, reason)
    while True:
        try:
            text = decoder.decode(batch, final=not batch)
        except UnicodeError as error:
            line = n_lines + 1 + _good_text(decoder, batch, error).count("\n")
            raise FileFormatError(name, line, _not_of(encoding)) from None
        if "\0" in text:
            line = n_lines + 1 + text[: text.index("\0")].count("\n")
            reason = 'there is a NUL: this is no text, unless encoding="utf-16" reads it.'
            raise FileFormatError(name, line, reason)
        first, *lines = text.split("\n")
        begun += first
        if len(begun) > LONGEST_LINE:
            raise endless_line(name, n_lines + 1)
        if lines:
            yield begun
            begun = lines.pop()
            yield from lines
            n_lines += len(lines) + 1
        if not batch:
            break
        batch = stream.read(_BATCH_BYTES)
    if begun:
        yield begun


def endless_line(name: str, line: int) -> FileFormatError:
    """What is said of a line beyond `LONGEST_LINE`, whoever reads it."""
    reason = f"the line does not end within {LONGEST_LINE} characters: is this a text?"
    return FileFormatError(name, line, reason)


def text_of(path: PathLike, encoding: str | None = None) -> str:
    """A small text file as one string with one kind of line ends; else as `lines_of` reads it."""
    lines, size = [], 0
    for line in lines_of(path, encoding):
        lines.append(line)
        size += len(line) + 1
        if size > LONGEST_LINE:
            reason = f"has more than {LONGEST_LINE} characters: is this the right file?"
            raise FileFormatError(shown_name(path), None, reason)
    return "\n".join(lines)


def shown_name(path: PathLike) -> str:
    """What messages call a file."""
    return "standard input" if str(path) == STANDARD_INPUT else str(path)


def _decoder(encoding: str | None) -> io.IncrementalNewlineDecoder:
    """From bytes to text in which all line ends are the same."""
    try:
        io.TextIOWrapper(io.BytesIO(), encoding=encoding)  # refuses codecs of other things
        name = codecs.lookup(encoding or "utf-8").name
    except (LookupError, ValueError):
        raise ValueError(
            f'There is no encoding {encoding!r:.100}: try "utf-8", "latin-1" or "cp1252".'
        ) from None
    decoder = codecs.getincrementaldecoder("utf-8-sig" if name == "utf-8" else name)()
    return io.IncrementalNewlineDecoder(decoder, translate=True)


def _good_text(decoder: io.IncrementalNewlineDecoder, batch: bytes, error: UnicodeError) -> str:
    """What of a block can be read before the first error."""
    if not isinstance(error, UnicodeDecodeError):
        return ""
    held = len(error.object) - len(batch)  # bytes of a character that began in the last block
    if error.start < held:
        is_return_held = decoder.getstate()[1] & 1
        return "\n" if is_return_held else ""
    try:
        return decoder.decode(batch[: error.start - held], final=True)
    except UnicodeError:  # of UTF-16 without a mark at its beginning
        return ""


def _not_of(encoding: str | None) -> str:
    if encoding is None:
        return 'the bytes are not UTF-8: pass encoding="latin-1", or whatever the text is in.'
    return f"the bytes are not {encoding}: pass the encoding that the text is in."
