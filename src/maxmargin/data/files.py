"""Files as their bytes: plain or compressed, told apart by how they begin; and standard input.

`maxmargin.data.text` makes lines of them.

The names of files matter only when they are written, and for one check: a file whose name says
that it is compressed, and which is not, has been cut short or is something else.
"""

import bz2
import gzip
import io
import lzma
import os
import sys
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO, NamedTuple

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
"""Compressed bytes that are taken at a time: they may be 32 megabytes of zeros."""


def _zstd(stream: BinaryIO, mode: str) -> Any:
    """A stream in Zstandard's format, by Python's own module (from 3.14 on) or zstandard's."""
    with suppress(ImportError):
        from compression import zstd  # type: ignore[import-not-found, unused-ignore]

        return zstd.ZstdFile(stream, mode)
    try:
        import zstandard  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise ImportError(
            "Files compressed by zstd need Python 3.14 or the package zstandard: "
            "pip install zstandard."
        ) from None
    if mode == "wb":
        return zstandard.ZstdCompressor(write_checksum=True).stream_writer(stream, closefd=False)
    return _ZstandardReader(stream, zstandard.ZstdDecompressor().decompressobj)


class _ZstandardReader(io.RawIOBase):
    """Frames one after the other; unlike the package's own reader it notices a missing end."""

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
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count


class _Compression(NamedTuple):
    ending: str
    magic: bytes
    open: Callable[..., Any]


_COMPRESSIONS = (
    _Compression(".gz", b"\x1f\x8b", lambda stream, mode: gzip.GzipFile(None, mode, 6, stream)),
    _Compression(".bz2", b"BZh", bz2.BZ2File),
    _Compression(".xz", b"\xfd7zXZ\x00", lzma.LZMAFile),
    _Compression(".zst", b"\x28\xb5\x2f\xfd", _zstd),
)
_MAGIC_BYTES = max(len(way.magic) for way in _COMPRESSIONS)


class Stream(io.BufferedReader):
    """The bytes of a file, decompressed.

    Attributes
    ----------
    n_bytes : int or None
        Size of the file as it is stored; None if it cannot be known, as of a pipe.
    """

    def __init__(self, content: "_Decompressed") -> None:
        super().__init__(content, _BUFFER_BYTES)
        self._stored = content.stored
        self.n_bytes: int | None = None
        with suppress(OSError):  # of what has no number, or cannot be told its place
            self._stored.tell()
            self.n_bytes = os.fstat(self._stored.fileno()).st_size

    @property
    def bytes_read(self) -> int | None:
        """Bytes of the stored file that have been read; None if `n_bytes` is."""
        position: int | None = None if self.n_bytes is None else self._stored.tell()
        return position


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
        parts = [bytes(self._head)]
        while (missing := n_bytes - sum(map(len, parts))) > 0:
            buffer = bytearray(min(missing, _BUFFER_BYTES))
            count = self._fill(buffer)
            if not count:
                break
            parts.append(bytes(buffer[:count]))
        head = b"".join(parts)
        self._head = memoryview(head)
        return head[:n_bytes]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._head:
            return self._fill(buffer)
        count = min(len(buffer), len(self._head))
        buffer[:count] = self._head[:count]
        self._head = self._head[count:]
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
    """Whether a decompressor complains, and not the disk."""
    if isinstance(error, OSError):
        return error.errno is None
    is_zstd = type(error).__name__ == "ZstdError"
    return is_zstd or isinstance(error, (EOFError, zlib.error, lzma.LZMAError))


def open_bytes(path: PathLike) -> Stream:
    """Open a file, or standard input, for reading its bytes.

    Parameters
    ----------
    path : path
        A file, plain or compressed by gzip, bzip2, xz or zstd, whatever its name; ``"-"`` is
        standard input.

    Returns
    -------
    stream : Stream
        To be closed, or used in a ``with`` statement. Reading from it raises FileFormatError
        where a file is damaged.

    Raises
    ------
    FileNotFoundError
        If there is no such file.

    See Also
    --------
    maxmargin.data.text.lines_of : The same as lines of text.
    create : For writing.

    Examples
    --------
    >>> import gzip, pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "no_ending")
    ...     _ = path.write_bytes(gzip.compress(b"some text"))
    ...     with open_bytes(path) as stream:
    ...         stream.read()
    b'some text'
    """
    return Stream(_opened(path))


_looked_at: dict[str, _Decompressed] = {}
"""Pipes of which `head_of` has seen the beginning: it must not be lost to who reads them."""


def head_of(path: PathLike, n_bytes: int) -> bytes:
    """The first bytes of a file, decompressed; of standard input or a pipe nothing is used up."""
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
    if name == STANDARD_INPUT:
        if waiting is not None and waiting.stored is sys.stdin.buffer:
            return waiting
        return _Decompressed("standard input", sys.stdin.buffer, close_stored=False)
    if waiting is not None:
        return waiting
    if not os.path.exists(path):
        raise FileNotFoundError(f"There is no file {name!r:.200}.")
    if os.path.isdir(path):
        raise IsADirectoryError(f"{name!r:.200} is a folder, not a file.")
    return _Decompressed(name, open(path, "rb"), close_stored=True)


def plain_size(path: PathLike) -> int | None:
    """Bytes of a file that is not compressed; None of others, of pipes and of standard input."""
    if str(path) == STANDARD_INPUT or not os.path.isfile(path):
        return None
    compressed = begins_with(path, *(way.magic for way in _COMPRESSIONS))
    return None if compressed else os.path.getsize(path)


class Section(io.FileIO):
    """A part of a plain file, which ends where the part does.

    Parameters
    ----------
    path : path
    start, end : int
        Its first byte, and the one after its last.
    """

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
    """Open a file for writing bytes; compressed as the end of its name says.

    Parameters
    ----------
    path : path
        Compressed if it ends in ``.gz``, ``.bz2``, ``.xz`` or ``.zst``.
    """
    ways = [way for way in _COMPRESSIONS if str(path).endswith(way.ending)]
    stored = open(path, "wb")  # noqa: SIM115
    return io.BufferedWriter(_Compressor(ways[0].open(stored, "wb"), stored)) if ways else stored


class _Compressor(io.RawIOBase):
    """A compressor that closes its file too."""

    def __init__(self, compressor: Any, stored: BinaryIO) -> None:
        self._compressor, self._stored = compressor, stored

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._compressor.write(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._compressor.close()
            self._stored.close()
        super().close()
