r"""Files: their bytes, plain or compressed (told apart by how they begin), and their lines of text.

A name matters when a file is written, and where it says compressed of a file that is not: that was
cut short or is something else. Lines end in ``\n``, ``\r\n`` or ``\r``; byte order marks are left
out. Text is UTF-8; another encoding must be named, as a wrong guess would go unnoticed.
"""

import bz2
import codecs
import gzip
import io
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import IO, Any, BinaryIO, NamedTuple

STANDARD_INPUT = "-"

PathLike = str | os.PathLike[str]


class FileFormatError(ValueError):
    """What is wrong with a file, where, and what to do about it, in one sentence.

    Parameters
    ----------
    path : str
        The file as the user named it.
    line : int or None
        Line, counted from 1; None if it is the file as a whole.
    reason : str
        The sentence after the place.

    Examples
    --------
    >>> from maxmargin.data import FileFormatError
    >>> print(FileFormatError("train.svm", 3, "the value after a colon must be a number."))
    train.svm, line 3: the value after a colon must be a number.
    """

    def __init__(self, path: str, line: int | None, reason: str) -> None:
        super().__init__(path, line, reason)
        self.path, self.line, self.reason = path, line, reason

    def __str__(self) -> str:
        where = self.path if self.line is None else f"{self.path}, line {self.line}:"
        return f"{where} {self.reason}"


_BUFFER_BYTES = 1 << 16

_ZSTD_BYTES = 1 << 10
"""Compressed bytes taken at a time: they may be 32 megabytes of zeros."""


def _gzip(file: Any, mode: str) -> gzip.GzipFile:
    return gzip.GzipFile(file, mode, 6) if mode == "wb" else gzip.GzipFile(None, mode, 6, file)


def _zstd(file: Any, mode: str) -> Any:
    """A Zstandard file, by Python's own module (from 3.14 on) or the package zstandard."""
    with suppress(ImportError):
        from compression import zstd  # type: ignore[import-not-found, unused-ignore]

        return zstd.ZstdFile(file, mode)
    try:
        import zstandard  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise ImportError(
            "Files compressed by zstd need Python 3.14 or the package zstandard: "
            "pip install zstandard."
        ) from None
    if mode == "wb":
        return zstandard.ZstdCompressor(write_checksum=True).stream_writer(open(file, "wb"))
    return _ZstandardReader(file, zstandard.ZstdDecompressor().decompressobj)


class _ZstandardReader(io.RawIOBase):
    """Consecutive frames; unlike the package's own reader it notices a missing end."""

    def __init__(self, stream: BinaryIO, decompressor: Callable[[], Any]) -> None:
        self._stream, self._decompressor = stream, decompressor
        self._frame: Any = None
        self._compressed = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            self._compressed = self._compressed or self._stream.read(_ZSTD_BYTES)
            if not self._compressed:
                if self._frame is not None:
                    raise EOFError("the end is missing")
                return 0
            if self._frame is None:
                self._frame = self._decompressor()
            self._ready = memoryview(self._frame.decompress(self._compressed))
            self._compressed = b""
            if self._frame.eof:
                self._compressed, self._frame = self._frame.unused_data, None
        count, self._ready = _moved(self._ready, buffer)
        return count


def _moved(ready: memoryview, buffer: Any) -> tuple[int, memoryview]:
    """Copy what the buffer has room for: how many bytes, and the rest."""
    count = min(len(buffer), len(ready))
    buffer[:count] = ready[:count]
    return count, ready[count:]


class _Compression(NamedTuple):
    ending: str
    magic: bytes
    open: Callable[..., Any]  # a stream for "rb", a path for "wb"


_COMPRESSIONS = (
    _Compression(".gz", b"\x1f\x8b", _gzip),
    _Compression(".bz2", b"BZh", bz2.BZ2File),
    _Compression(".xz", b"\xfd7zXZ\x00", lzma.LZMAFile),
    _Compression(".zst", b"\x28\xb5\x2f\xfd", _zstd),
)
_MAGIC_BYTES = max(len(way.magic) for way in _COMPRESSIONS)


class Stream(io.BufferedReader):
    """The bytes of a file, decompressed; `n_bytes` is its stored size, None if unknown."""

    def __init__(self, content: "_Decompressed") -> None:
        super().__init__(content, _BUFFER_BYTES)
        self._stored = content.stored
        self.n_bytes: int | None = None
        with suppress(OSError):  # of what has no number, or cannot be told its place
            self._stored.tell()
            self.n_bytes = os.fstat(self._stored.fileno()).st_size

    @property
    def bytes_read(self) -> int | None:
        """Bytes of the stored file read so far; None if `n_bytes` is."""
        return None if self.n_bytes is None else int(self._stored.tell())


class _Decompressed(io.RawIOBase):
    """What a `Stream` buffers; says in one sentence that a file is damaged."""

    def __init__(self, name: str, stored: Any, close_stored: bool) -> None:
        self._name, self.stored, self._close_stored = name, stored, close_stored
        self._head = memoryview(b"")  # has been looked at, and not been read yet
        begin = stored.peek(_MAGIC_BYTES)
        ways = [way for way in _COMPRESSIONS if begin.startswith(way.magic)]
        self._bytes = ways[0].open(stored, "rb") if ways else stored
        if not ways and name.endswith(tuple(way.ending for way in _COMPRESSIONS)):
            self.close()
            raise FileFormatError(name, None, "is damaged, or not compressed as its name says.")

    def head(self, n_bytes: int) -> bytes:
        """The first bytes, which are still there to be read."""
        head = bytearray(self._head)
        buffer = bytearray(_BUFFER_BYTES)
        while len(head) < n_bytes and (count := self._fill(buffer)):
            head += buffer[:count]
        self._head = memoryview(bytes(head))
        return bytes(head[:n_bytes])

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._head:
            return self._fill(buffer)
        count, self._head = _moved(self._head, buffer)
        return count

    def _fill(self, buffer: Any) -> int:
        try:
            count: int = self._bytes.readinto(buffer)
        except Exception as error:
            if not _is_damage(error):
                raise
            reason = f"is damaged or cut short: {error}."
            raise FileFormatError(self._name, None, reason) from error
        return count

    def close(self) -> None:
        if self._bytes is not self.stored:
            self._bytes.close()
        if self._close_stored:
            self.stored.close()
        super().close()


def _is_damage(error: Exception) -> bool:
    if isinstance(error, OSError):
        return error.errno is None
    is_zstd = type(error).__name__ == "ZstdError"
    return is_zstd or isinstance(error, (EOFError, zlib.error, lzma.LZMAError))


def open_bytes(path: PathLike) -> Stream:
    """Open a file, or standard input (``"-"``), for its bytes, decompressed and checked."""
    return Stream(_opened(path))


_looked_at: dict[str, _Decompressed] = {}
"""Pipes of which `head_of` has seen the beginning, which their readers must not miss."""


def head_of(path: PathLike, n_bytes: int) -> bytes:
    """The first decompressed bytes of a file; of standard input or a pipe nothing is used up."""
    content = _opened(path)
    try:
        head = content.head(n_bytes)
    except FileFormatError:
        content.close()
        raise
    if str(path) == STANDARD_INPUT or not os.path.isfile(path):
        _looked_at[str(path)] = content
    else:
        content.close()
    return head


def _opened(path: PathLike) -> _Decompressed:
    name = str(path)
    waiting = _looked_at.pop(name, None)
    is_input = name == STANDARD_INPUT
    if waiting is not None and (not is_input or waiting.stored is sys.stdin.buffer):
        return waiting
    if is_input:
        return _Decompressed(shown_name(name), sys.stdin.buffer, close_stored=False)
    check_exists(path)
    if os.path.isdir(path):
        raise IsADirectoryError(f"{name!r:.200} is a folder, not a file.")
    return _Decompressed(name, open(path, "rb"), close_stored=True)


def check_exists(path: PathLike) -> None:
    """Refuse a path where there is nothing."""
    if not os.path.exists(path):
        raise FileNotFoundError(f"There is no file {str(path)!r:.200}.")


def plain_size(path: PathLike) -> int | None:
    """Bytes of a plain file; None if it is compressed, a pipe or standard input."""
    if str(path) == STANDARD_INPUT or not os.path.isfile(path):
        return None
    compressed = begins_with(path, *(way.magic for way in _COMPRESSIONS))
    return None if compressed else os.path.getsize(path)


class Section(io.FileIO):
    """A plain file from byte `start` to before byte `end`."""

    def __init__(self, path: PathLike, start: int, end: int) -> None:
        super().__init__(path, "rb")
        self._end = end
        self.seek(start)

    def readinto(self, buffer: Any) -> int:
        left = max(self._end - self.tell(), 0)
        return super().readinto(memoryview(buffer)[:left]) or 0


def read_bytes(path: PathLike) -> bytes:
    """The whole of a small file, decompressed."""
    with open_bytes(path) as stream:
        return stream.read()


def begins_with(path: PathLike, *magic: bytes) -> bool:
    """Whether a file, as it is stored, begins with one of these."""
    with open(path, "rb") as file:
        return file.read(max(map(len, magic))).startswith(magic)


def create(path: PathLike) -> BinaryIO:
    """Open a file for writing bytes, compressed if it ends in .gz, .bz2, .xz or .zst."""
    ways = [way for way in _COMPRESSIONS if str(path).endswith(way.ending)]
    return io.BufferedWriter(ways[0].open(os.fspath(path), "wb")) if ways else open(path, "wb")


LONGEST_LINE = 1 << 24
"""Characters of a line or small file at most: few compressed bytes may be gigabytes."""

_BATCH_BYTES = 1 << 18

_WIDE_MARKS = codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE
"""How UTF-16 and UTF-32 files begin."""

_NO_TEXT = "\udcff"
"""Stands in a decoded text where bytes are not of the encoding; no text has it, nor often its last
byte, by which Python looks for it."""

codecs.register_error("maxmargin.no_text", lambda error: (_NO_TEXT, error.end))  # type: ignore[attr-defined]


def lines_of(path: PathLike, encoding: str | None = None) -> Iterator[str]:
    """Lines of a text file, plain or compressed, without their ends; ``"-"`` is standard input.

    Other line ends of Unicode may be part of words. FileFormatError names a line that is not of the
    encoding (None: UTF-8), has a NUL, or does not end.
    """
    with open_bytes(path) as stream:
        yield from lines_of_stream(stream, shown_name(path), encoding)


def lines_of_stream(stream: IO[bytes], name: str, encoding: str | None = None) -> Iterator[str]:
    """`lines_of` an open stream, whose name is for messages."""
    decoder = _decoder(encoding)
    begun, n_lines = "", 0  # the last line, which may go on; lines before it
    batch = stream.read(_BATCH_BYTES)
    if encoding is None and batch.startswith(_WIDE_MARKS):
        reason = 'this is UTF-16 or UTF-32: pass encoding="utf-16" (or "utf-32").'
        raise FileFormatError(name, 1, reason)
    hint = 'pass encoding="latin-1", or whatever the text is in.'
    if encoding is not None:
        hint = "pass the encoding that the text is in."
    reasons = {
        _NO_TEXT: f"the bytes are not {encoding or 'UTF-8'}: {hint}",
        "\0": 'there is a NUL: this is no text, unless encoding="utf-16" reads it.',
    }
    while True:
        try:
            text = decoder.decode(batch, final=not batch)
        except UnicodeError:  # of UTF-16 without a mark at its beginning
            text = _NO_TEXT
        for mark, reason in reasons.items():
            if mark in text:
                line = n_lines + 1 + text[: text.index(mark)].count("\n")
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
    """The error for a line beyond `LONGEST_LINE`."""
    reason = f"the line does not end within {LONGEST_LINE} characters: is this a text?"
    return FileFormatError(name, line, reason)


def text_of(path: PathLike, encoding: str | None = None) -> str:
    r"""A small text file as one string with ``\n`` for line ends; else as `lines_of`."""
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
    try:
        io.TextIOWrapper(io.BytesIO(), encoding=encoding)  # refuses codecs of other things
        name = codecs.lookup(encoding or "utf-8").name
    except (LookupError, ValueError):
        raise ValueError(
            f'There is no encoding {encoding!r:.100}: try "utf-8", "latin-1" or "cp1252".'
        ) from None
    decoder = codecs.getincrementaldecoder("utf-8-sig" if name == "utf-8" else name)
    return io.IncrementalNewlineDecoder(decoder("maxmargin.no_text"), translate=True)
