"""From any source of rows to a folder that is mapped into memory, with progress."""

import sys
import time
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from maxmargin.data.csr_folder import CsrFolder, CsrFolderWriter
from maxmargin.data.files import PathLike
from maxmargin.data.sources import Source, is_matrix
from maxmargin.data.sources_opening import open_examples

_SECONDS_BETWEEN_LINES = 0.1


def convert(
    source: Any,
    folder: PathLike,
    *,
    dtype: DTypeLike = np.float64,
    progress: bool | None = None,
) -> CsrFolder:
    r"""Write rows and targets to a CSR folder, in one pass and with the memory of one block.

    Parameters
    ----------
    source : Source, or anything that `open_examples` opens
        Rows of numbers, sparse or dense, with a number or a string as target.
    folder : path
        To be made; it must not exist. It appears under this name when it is complete; if the
        conversion ends early, by Ctrl-C too, nothing is left behind.
    dtype : {numpy.float64, numpy.float32}, default=numpy.float64
        Of the values.
    progress : bool, default=None
        Show how far it is on standard error; None does so in a terminal.

    Returns
    -------
    stored : CsrFolder

    Raises
    ------
    ValueError
        If the examples are no rows of numbers.
    FileExistsError
        If there is a file or folder of that name.

    See Also
    --------
    CsrFolder : What has been written.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from maxmargin.data import convert
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "data.svm")
    ...     _ = path.write_text("1 1:0.5 3:2\n2 2:1\n")
    ...     stored = convert(path, f"{folder}/stored", progress=False)
    ...     print(stored.X.toarray(), stored.y)
    [[0.5 0.  2. ]
     [0.  1.  0. ]] [1. 2.]
    """
    opened = open_examples(source)
    shown = sys.stderr.isatty() if progress is None else progress
    line = _ProgressLine(opened) if shown else None
    with CsrFolderWriter(folder, dtype) as writer:
        n_examples = 0
        for block in opened.blocks():
            if not is_matrix(block.X):
                raise ValueError(
                    f"{opened!r} gives inputs that are no rows of numbers, which a CSR folder "
                    f"cannot hold."
                )
            writer.append(block)
            n_examples += len(block.y)
            if line is not None:
                line.show(n_examples)
        if line is not None:
            line.end(n_examples)
    return CsrFolder(folder)


class _ProgressLine:
    """Bytes (or examples) read, how many a second, and the time left, on one line."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._start = time.perf_counter()
        self._shown_at = -np.inf
        self._width = 0

    def show(self, n_examples: int) -> None:
        """Rewrite the line, unless that was done a moment ago."""
        now = time.perf_counter()
        if now - self._shown_at >= _SECONDS_BETWEEN_LINES:
            self._shown_at = now
            self._write(self._text(n_examples, now - self._start), end="")

    def end(self, n_examples: int) -> None:
        """Leave a last line."""
        seconds = time.perf_counter() - self._start
        self._write(f"{n_examples:,} examples in {_duration(seconds)}", end="\n")

    def _text(self, n_examples: int, seconds: float) -> str:
        reached = self._source.progress
        if reached is not None:
            done, total = reached
            parts = [f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB", f"{n_examples:,} examples"]
            parts.append(f"{done / seconds / 1e6:.0f} MB/s")
        else:
            done, total = n_examples, self._source.n_examples or 0
            parts = [f"{done:,} of {total:,} examples" if total else f"{done:,} examples"]
            parts.append(f"{done / seconds:,.0f} a second")
        if total and done:
            parts.append(f"{_duration(seconds * (total - done) / done)} left")
        return "  ".join(parts)

    def _write(self, text: str, end: str) -> None:
        padded = text.ljust(self._width)  # covers a longer line before
        self._width = len(text)
        sys.stderr.write(f"\r{padded}{end}")
        sys.stderr.flush()


def _duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{seconds:.1f} s"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {whole % 60} s"
