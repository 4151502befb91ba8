"""Any source of rows as a folder of arrays: `convert`."""

import sys
import time
from collections.abc import Generator
from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from maxmargin.data.csr_folder import CsrFolder, CsrFolderWriter
from maxmargin.data.files import PathLike
from maxmargin.data.live_line import Field, LiveLine, about, duration
from maxmargin.data.opening import open_examples
from maxmargin.data.sources import Examples, Source, is_matrix

_SECONDS_IN_PLACE, _SECONDS_IN_LOG = 0.1, 5.0
"""Between two progress lines, in a terminal and in a log."""


def convert(
    source: Any,
    folder: PathLike,
    *,
    dtype: DTypeLike = np.float64,
    progress: bool | None = None,
) -> CsrFolder:
    """Write rows and targets to a CSR folder, in one pass and with the memory of one batch.

    Parameters
    ----------
    source : Source, or anything that `open_examples` opens
        Rows of numbers, sparse or dense, with a number or a string as target.
    folder : path
        Must not exist. It appears when it is complete; if the conversion ends early, by Ctrl-C too,
        nothing is left behind.
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
    >>> import tempfile
    >>> from maxmargin.data import convert
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     stored = convert(([[0.5, 2], [0, 1]], [1, 2]), f"{folder}/stored", progress=False)
    ...     print(stored.X.toarray(), stored.y)
    [[0.5 2. ]
     [0.  1. ]] [1 2]
    """
    opened = open_examples(source)
    shown = sys.stderr.isatty() if progress is None else progress
    with CsrFolderWriter(folder, dtype) as writer, closing(_watched(opened, shown)) as batches:
        for batch in batches:
            if not is_matrix(batch.X):
                raise ValueError(
                    f"{opened!r} gives inputs that are no rows of numbers, which a CSR folder "
                    f"cannot hold."
                )
            writer.append(batch)
    return CsrFolder(folder)


def _watched(source: Source, shown: bool) -> Generator[Examples, None, None]:
    """The batches, with progress on standard error if it is to be shown."""
    if not shown:
        yield from source.batches()
        return
    line, start, shown_at, n = LiveLine(), time.perf_counter(), -np.inf, 0
    try:
        for batch in source.batches():
            yield batch
            n += len(batch.y)
            now = time.perf_counter()
            if now - shown_at >= (_SECONDS_IN_PLACE if line.in_place else _SECONDS_IN_LOG):
                line.show(_progress(source, n, now - start))
                shown_at = now
        line.show([Field(f"{n:,} examples in {duration(time.perf_counter() - start)}", 1)])
    finally:
        line.end()  # an error message begins on a line of its own


def _progress(source: Source, n_examples: int, seconds: float) -> list[Field]:
    reached = source.progress
    if reached is not None:
        done, total = reached
        fields = [
            Field(f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB", 4),
            Field(f"{n_examples:,} examples", 2),
            Field(f"{done / seconds / 1e6:.0f} MB/s", 1),
        ]
    else:
        done, total = n_examples, source.n_examples or 0
        of_all = f" of {total:,}" if total else ""
        fields = [
            Field(f"{done:,}{of_all} examples", 4),
            Field(f"{done / seconds:,.0f} a second", 1),
        ]
    if total and done:
        fields.append(Field(f"about {about(seconds * (total - done) / done)} left", 3))
    return fields
