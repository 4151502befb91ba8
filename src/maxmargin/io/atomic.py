"""Files that are written whole or not at all.

What is written goes to a temporary file beside the target, is flushed to the disk and takes the
place of the target in one step. Whoever opens the target meanwhile finds the old file, whole.
"""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_ENDING = ".partial"

_MOST_NAME_BYTES = 150
"""Of the target's name in that of the temporary file: file systems allow 255 for all of it."""


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` when the block ends without an error.

    A symbolic link is followed. Mode and owner of a file that is there are kept. Temporary files
    that killed processes have left for the same target are removed.

    Parameters
    ----------
    path : path

    Raises
    ------
    OSError
        If `path` is a folder, a device or a pipe, has no folder, or cannot be written to; whatever
        was there stays.
    """
    target = Path(os.path.realpath(path))
    check_target(Path(path), target)
    _remove_stale(target)
    partial, file = _create_beside(target)
    try:
        with file:
            yield file
            file.flush()
            _keep_permissions(target, file)
            os.fsync(file.fileno())
            partial.replace(target)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise
    _flush_folder(target.parent)


def check_target(path: Path, target: Path) -> None:
    """Refuse a place that no file can be put in the place of."""
    if not path.name or target.is_dir():
        raise IsADirectoryError(f"{path} is a folder: give the name of a file.")
    if target.exists() and not target.is_file():
        raise OSError(f"{path} is a device or a pipe, not a file: give the name of a file.")
    check_folder_of(target)


def _create_beside(target: Path) -> tuple[Path, BinaryIO]:
    """A new temporary file, locked for as long as it is open."""
    while True:
        partial = target.with_name(f"{_prefix(target)}{secrets.token_hex(8)}{_ENDING}")
        number = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o666)
        file = os.fdopen(number, "wb")
        _lock(file, wait=True)
        # Before it was locked, another writer may have taken it for a stale one.
        if os.fstat(number).st_nlink or fcntl is None:
            return partial, file
        file.close()


_BINARY = getattr(os, "O_BINARY", 0)


def _prefix(target: Path) -> str:
    return f".{os.fsdecode(os.fsencode(target.name)[:_MOST_NAME_BYTES])}."


def _lock(file: BinaryIO, wait: bool) -> bool:
    """Lock a file for as long as it is open; False if others have, or there are no locks here."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_stale(target: Path) -> None:
    """Remove temporary files whose writers are gone: nobody holds their locks."""
    prefix = _prefix(target)
    length = len(prefix) + 16 + len(_ENDING)
    with suppress(OSError):  # a folder that cannot be listed
        for name in os.listdir(target.parent):
            if len(name) == length and name.startswith(prefix) and name.endswith(_ENDING):
                stale = target.with_name(name)
                with suppress(OSError), open(stale, "r+b") as file:
                    if _lock(file, wait=False):
                        stale.unlink()


def _keep_permissions(target: Path, file: BinaryIO) -> None:
    """Give the new file the mode and, if that is allowed, the owner of the one that is there."""
    if os.name != "posix":
        return
    with suppress(FileNotFoundError):
        there = target.stat()
        with suppress(PermissionError):
            os.fchown(file.fileno(), there.st_uid, there.st_gid)
        os.fchmod(file.fileno(), stat.S_IMODE(there.st_mode))


def _flush_folder(folder: Path) -> None:
    """Make the new name as durable as the file."""
    if os.name != "posix":
        return
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def check_folder_of(path: Path) -> None:
    """Refuse a file to write where there is no folder for it."""
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"There is no folder {path.parent} to write {path.name} to: make it."
        )
