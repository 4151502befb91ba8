"""From any source of rows to a folder that is mapped into memory, with progress."""

import sys
import time
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from maxmargin.data.csr_folder import CsrFolder, CsrFolderWriter
from maxmargin.data.files import PathLike
from maxmargin.data.live_line import Field, LiveLine, about, duration
from maxmargin.data.sources import Source, is_matrix
from maxmargin.data.sources_opening import open_examples

_SECONDS_BETWEEN_CHANGES = 0.1
_SECONDS_BETWEEN_LINES = 5.0
"""In a log file."""


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
        A source of the same examples.

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
    with CsrFolderWriter(folder, dtype) as writer, line or nullcontext():
        n_examples = 0
        for batch in opened.batches():
            if not is_matrix(batch.X):
                raise ValueError(
                    f"{opened!r} gives inputs that are no rows of numbers, which a CSR folder "
                    f"cannot hold."
                )
            writer.append(batch)
            n_examples += len(batch.y)
            if line is not None:
                line.show(n_examples)
        if line is not None:
            line.end(n_examples)
    return CsrFolder(folder)


class _ProgressLine:
    """Bytes (or examples) read, how many a second, and the time left, on one line."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._line = LiveLine()
        self._start = time.perf_counter()
        self._shown_at = -np.inf

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        self._line.end()  # an error message begins on a line of its own

    def show(self, n_examples: int) -> None:
        """Write the line, unless that was done a moment ago."""
        now = time.perf_counter()
        pause = _SECONDS_BETWEEN_CHANGES if self._line.in_place else _SECONDS_BETWEEN_LINES
        if now - self._shown_at >= pause:
            self._shown_at = now
            self._line.show(self._fields(n_examples, now - self._start))

    def end(self, n_examples: int) -> None:
        """Leave a last line."""
        seconds = time.perf_counter() - self._start
        self._line.show([Field(f"{n_examples:,} examples in {duration(seconds)}", 1)])

    def _fields(self, n_examples: int, seconds: float) -> list[Field]:
        reached = self._source.progress
        if reached is not None:
            done, total = reached
            fields = [
                Field(f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB", 4),
                Field(f"{n_examples:,} examples", 2),
                Field(f"{done / seconds / 1e6:.0f} MB/s", 1),
            ]
        else:
            done, total = n_examples, self._source.n_examples or 0
            fields = [
                Field(f"{done:,} of {total:,} examples" if total else f"{done:,} examples", 4),
                Field(f"{done / seconds:,.0f} a second", 1),
            ]
        if total and done:
            fields.append(Field(f"about {about(seconds * (total - done) / done)} left", 3))
        return fields
