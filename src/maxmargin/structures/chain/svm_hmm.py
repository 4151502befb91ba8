"""Sequences in SVM-hmm's format, one position a line.

    3 qid:12 1:0.5 7:1  # anything

is a position of sequence 12 with tag 3. Lines that follow each other with the same number are a
sequence.
"""

import io
from collections.abc import Iterator
from itertools import chain, pairwise
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.data.files import PathLike
from maxmargin.data.formats import FileFormat, Format, Head
from maxmargin.data.libsvm import LineFile, stacked
from maxmargin.data.libsvm_lines import LineReader
from maxmargin.data.sources import BATCH_BYTES, Examples, widened


class SvmHmmFile(LineFile):
    r"""Sequences of a file in SVM-hmm's format, read in batches by a compiled parser.

    Inputs are a list with a CSR matrix for each sequence, one row a position; targets a list of
    arrays of tags.

    Parameters
    ----------
    path : path
        Plain or compressed by gzip, bzip2, xz or zstd; ``"-"`` is standard input, which can be read
        only once.
    n_features : int, default=None
        Number of features, if it is known; larger indices are then malformed. None learns it from
        the first pass.
    on_error : {"stop", "skip"}, default="stop"
        Whether a malformed line ends the reading, or is left out and counted.
    batch_bytes : int, default=2**24
        Text that is read at a time.

    See Also
    --------
    read_svm_hmm : The whole file at once.
    LibsvmFile : Rows that are no sequences.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from maxmargin.data import SvmHmmFile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "tags.txt")
    ...     _ = path.write_text("1 qid:1 1:1 # The\n2 qid:1 2:1 # dog\n2 qid:2 2:1 # Dogs\n")
    ...     source = SvmHmmFile(path)
    ...     for batch in source.batches():
    ...         print([tags.tolist() for tags in batch.y], batch.X[0].shape)
    [[1, 2]] (2, 2)
    [[2]] (1, 2)
    """

    _grouped = True

    def __init__(
        self,
        path: PathLike,
        *,
        n_features: int | None = None,
        on_error: str = "stop",
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        super().__init__(
            path, n_features=n_features, first_index=1, on_error=on_error, batch_bytes=batch_bytes
        )

    def _read(self) -> Iterator[Examples]:
        width = self._n_features or 0
        X, tags, groups = sp.csr_array((0, 0)), np.zeros(0), np.zeros(0, np.int64)
        for lines in self.lines():
            width = max(width, lines.X.shape[1])
            # What is left of the lines before is a sequence that may go on.
            X = stacked([X, lines.X] if len(tags) else [lines.X], width)
            tags, groups = np.r_[tags, lines.labels], np.r_[groups, lines.groups]
            starts = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist()]
            if len(starts) > 1:
                yield _sequences(X, tags, starts, width)
            X, tags, groups = X[starts[-1] :], tags[starts[-1] :], groups[starts[-1] :]
        if len(tags):
            yield _sequences(X, tags, [0, len(tags)], width)
        self._n_features = self._n_features or width

    def _cut(self, file: BinaryIO, at: int) -> int:
        start, before = super()._cut(file, at), None
        while line := file.readline():
            group = self._group(line)
            if None not in (group, before) and group != before:
                return start
            start, before = start + len(line), before if group is None else group
        return start

    def _group(self, line: bytes) -> int | None:
        """Number of the sequence that a line belongs to, if it is of one."""
        reader = LineReader(self.path, n_features=self._declared, grouped=True, skip=True)
        lines = next(reader.read(io.BytesIO(line), len(line) + 1), None)
        return None if lines is None else int(lines.groups[0])


def read_svm_hmm(
    path: PathLike, *, n_features: int | None = None
) -> tuple[list[Any], list[NDArray[Any]]]:
    """Read sequences in SVM-hmm's format whole.

    Parameters
    ----------
    path : path
        Plain or compressed by gzip, bzip2, xz or zstd; ``"-"`` is standard input.
    n_features : int, default=None
        Columns of the matrices; None takes as many as the largest index needs.

    Returns
    -------
    X : list of csr_array of shape (n_positions, n_features)
        Features of each sequence.
    y : list of ndarray of shape (n_positions,)
        Tags, as integers if all of the sequence's are whole numbers.

    Raises
    ------
    FileFormatError
        If a line is malformed: names the line, and the byte at which it starts.

    See Also
    --------
    SvmHmmFile : The same in batches.
    maxmargin.SequenceTagger : What to do with it.

    Examples
    --------
    >>> from maxmargin.data import read_svm_hmm
    >>> X, y = read_svm_hmm("declaration_of_independence.txt")  # doctest: +SKIP
    """
    source = SvmHmmFile(path, n_features=n_features)
    batches = list(source.batches())
    width = source.n_features or 0
    X = [widened(part, width) for part in chain.from_iterable(batch.X for batch in batches)]
    return X, list(chain.from_iterable(batch.y for batch in batches))


def _sequences(X: Any, tags: NDArray[np.float64], ends: list[int], width: int) -> Examples:
    """Sequences of the rows from each of the ends to the next."""
    sequences = []
    for a, b in pairwise(ends):
        entries = slice(X.indptr[a], X.indptr[b])
        rows = sp.csr_array(
            (X.data[entries], X.indices[entries], X.indptr[a : b + 1] - X.indptr[a]),
            shape=(b - a, width),
        )
        rows.has_canonical_format = True
        sequences.append(rows)
    return Examples(sequences, [_tags(tags[a:b]) for a, b in pairwise(ends)])


def _tags(labels: NDArray[np.float64]) -> NDArray[Any]:
    """Whole numbers as integers, unless they are too large for that."""
    whole = bool(((labels == np.round(labels)) & (np.abs(labels) < 2**53)).all())
    return labels.astype(np.int64) if whole else labels


def _recognise(head: Head) -> Format | None:
    """Rows with ``qid:`` that do not look like documents."""
    rows, signs = head.grouped_rows, head.signs_of_documents
    if rows is None or sum(signs) >= 2:
        return None
    n_sequences, n_tags = len(np.unique(rows.groups)), len(np.unique(rows.labels))
    doubt = "if lines are documents of queries: --format letor" if any(signs) else None
    reason = f"{n_sequences} qid: with {n_tags} tags: tagging sequences"
    return Format("svm-hmm", "tagging", reason, doubt)


FILE_FORMAT = FileFormat("svm-hmm", "SVM-hmm", _recognise, source=SvmHmmFile)
