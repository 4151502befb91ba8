"""Text files of sparse rows in LIBSVM's format, as a source or read whole.

``2 1:0.5 3:1.0  # comment`` is an example of label 2 with features 1 and 3, counted from 1; see
`maxmargin.data.libsvm_lines` for all that a line may have.
"""

import io
import os
from collections.abc import Iterator
from copy import copy
from itertools import chain, pairwise
from typing import Any, BinaryIO, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.core.arrays import SampledHash
from maxmargin.data.files import (
    STANDARD_INPUT,
    FileFormatError,
    PathLike,
    Section,
    Stream,
    open_bytes,
    plain_size,
    shown_name,
)
from maxmargin.data.formats import FileFormat, Format, Head
from maxmargin.data.libsvm_lines import LineReader, Lines
from maxmargin.data.sources import BATCH_BYTES, CountedSource, Examples, Source, widened


class LineFile(CountedSource):
    """A file of lines ``label index:value``: see `LibsvmFile`."""

    _grouped = False

    def __init__(
        self,
        path: PathLike,
        *,
        n_features: int | None = None,
        multilabel: bool = False,
        first_index: int = 1,
        on_error: str = "stop",
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        super().__init__(n_features=n_features)
        if on_error not in ("stop", "skip"):
            raise ValueError(f"on_error must be 'stop' or 'skip', not {on_error!r}.")
        if first_index not in (0, 1):
            raise ValueError(f"first_index must be 1 or 0, not {first_index!r}.")
        if batch_bytes < 1:
            raise ValueError(f"batch_bytes must be at least 1, not {batch_bytes!r}.")
        self.path = os.fspath(path)
        self.first_index, self.on_error, self.batch_bytes = first_index, on_error, batch_bytes
        self.multilabel, self._declared = multilabel, n_features
        self._reader = self._new_reader()
        self._stream: Stream | None = None
        self._begun = False
        self._state: Any = None  # of the file, at the first pass
        self._section: tuple[int, int, int] | None = None  # first byte, end, size of the file

    @property
    def n_skipped(self) -> int:
        """Malformed lines that the last pass has left out so far."""
        return self._reader.n_skipped

    @property
    def skipped(self) -> list[str]:
        """What was wrong with the first hundred of them."""
        return self._reader.skipped

    @property
    def progress(self) -> tuple[int, int] | None:
        stream = self._stream
        if stream is None or stream.closed or stream.n_bytes is None:
            return None
        return stream.bytes_read or 0, stream.n_bytes

    def fingerprint(self) -> str:
        self._refuse_standard_input("has no fingerprint")
        options = [self.first_index, self._declared, self.on_error, self.multilabel]
        content = SampledHash(type(self).__name__, options)
        content.add_file(self.path)
        return content.text()

    def lines(self) -> Iterator[Lines]:
        if self._begun:
            self._refuse_standard_input("can be read only once")
        self._begun = True
        self._reader = self._new_reader()
        if self._section is not None:
            yield from self._section_lines(*self._section)
            return
        with open_bytes(self.path) as stream:
            self._check_state(stream)
            self._stream = stream
            yield from self._reader.read(stream, self.batch_bytes)

    def split(self, n_partitions: int) -> list[Source] | None:
        """Partitions of about the same number of bytes; None if the file is compressed."""
        size = plain_size(self.path)
        if size is None:
            return None
        with open(self.path, "rb") as file:
            cuts = {self._cut(file, size * k // n_partitions) for k in range(1, n_partitions)}
        partitions: list[Source] = []
        for start, end in pairwise(sorted({0, *cuts, size})):
            partition = self.widened(self.n_features)
            partition._section = start, end, size
            partitions.append(partition)
        return partitions

    def _cut(self, file: BinaryIO, at: int) -> int:
        """The first place from a byte on where a partition may begin."""
        file.seek(max(at - 1, 0))
        file.readline()
        return file.tell()

    def widened(self, n_features: int | None) -> Self:
        """The same source, nothing of it read, with a known width."""
        source = copy(self)
        CountedSource.__init__(source, n_features=n_features)
        return source

    def _section_lines(self, start: int, end: int, size: int) -> Iterator[Lines]:
        if os.path.getsize(self.path) != size:
            raise ValueError(
                f"{self.path} has {os.path.getsize(self.path)} bytes, but had {size} when it was "
                f"cut into partitions: all who read it need the same file, which must not change."
            )
        self._reader.offset = start
        with io.BufferedReader(Section(self.path, start, end)) as section:
            try:
                yield from self._reader.read(section, min(self.batch_bytes, end - start + 1))
            except FileFormatError as error:
                if error.line is None:
                    raise
                before = io.BufferedReader(Section(self.path, 0, start))
                with io.TextIOWrapper(before, "latin-1") as text:  # only if somebody must be told
                    line = error.line + sum(1 for _ in text)
                raise FileFormatError(error.path, line, error.reason) from error

    def __getstate__(self) -> dict[str, Any]:
        # Another process reads for itself, perhaps its own copy of the file.
        return self.__dict__ | {"_stream": None, "_state": None}

    def _new_reader(self) -> LineReader:
        skip, width = self.on_error == "skip", self._declared
        return LineReader(
            self.path, self.first_index, width, self.multilabel, self._grouped, skip=skip
        )

    def _check_state(self, stream: Stream) -> None:
        """Refuse a file that was written to since the first pass."""
        if stream.n_bytes is None:
            return
        status = os.stat(self.path)
        state = status.st_size, status.st_mtime_ns
        if self._state is not None and state != self._state:
            raise ValueError(f"{self.path} has changed since the first pass: open it again.")
        self._state = state

    def _refuse_standard_input(self, what: str) -> None:
        if self.path == STANDARD_INPUT:
            raise ValueError(
                f"Standard input {what}: save it to a file, or convert it to a folder."
            )

    def _name(self) -> str:
        return repr(self.path)


class LibsvmFile(LineFile):
    r"""A file in LIBSVM's format, read in batches by a compiled parser.

    Parameters
    ----------
    path : path
        Plain or compressed by gzip, bzip2, xz or zstd; ``"-"`` is standard input, which can be read
        only once.
    n_features : int, default=None
        Number of features; larger indices are then malformed. None learns it from the first pass.
    multilabel : bool, default=False
        Lines have any number of labels, with commas between them; ``y`` is a list of tuples.
    first_index : {1, 0}, default=1
        Index of the first feature.
    on_error : {"stop", "skip"}, default="stop"
        Whether a malformed line ends the reading, or is left out and counted.
    batch_bytes : int, default=2**24
        Text that is read at a time.

    Attributes
    ----------
    n_skipped : int
        Malformed lines that the last pass has left out.
    skipped : list of str
        What was wrong with the first hundred of them.

    Raises
    ------
    FileFormatError
        While it is read, if a line is malformed (names it, and the byte at which it starts) or the
        file damaged.

    See Also
    --------
    read_libsvm : The whole file at once.
    maxmargin.data.convert : To a folder that is read much faster.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from maxmargin.data import LibsvmFile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "data.svm")
    ...     _ = path.write_text("1 1:0.5 3:2\n2 2:1 # a comment\n")
    ...     for batch in LibsvmFile(path).batches():
    ...         print(batch.y, batch.X.toarray())
    [1. 2.] [[0.5 0.  2. ]
     [0.  1.  0. ]]
    """

    def _read(self) -> Iterator[Examples]:
        for lines in self.lines():
            yield Examples(lines.X, _targets(lines, self.multilabel))


def read_libsvm(
    path: PathLike,
    *,
    n_features: int | None = None,
    multilabel: bool = False,
    query_id: bool = False,
    sample_weight: bool = False,
    first_index: int | None = None,
) -> Any:
    """Read a file in LIBSVM's format whole: scikit-learn's ``load_svmlight_file``, but quicker.

    Parameters
    ----------
    path : path
        Plain or compressed by gzip, bzip2, xz or zstd; ``"-"`` is standard input.
    n_features : int, default=None
        Columns of `X`; None takes as many as the largest index needs.
    multilabel : bool, default=False
        Lines have any number of labels, with commas between them.
    query_id : bool, default=False
        Also return the numbers after ``qid:``.
    sample_weight : bool, default=False
        Also return the numbers after SVM-light's ``cost:``, by which the C of an example is
        multiplied; without, such a line is malformed.
    first_index : {None, 1, 0}, default=None
        Index of the first feature; None takes 0 if that index occurs, else 1.

    Returns
    -------
    X : csr_array of shape (n_examples, n_features)
        Features.
    y : ndarray of shape (n_examples,), or list of tuples if there are many labels
        Labels.
    query_ids : ndarray of shape (n_examples,)
        Only if `query_id`; -1 where a line has none.
    sample_weight : ndarray of shape (n_examples,) or None
        Only if `sample_weight`; 1 where a line has none, None where no line has one.

    Raises
    ------
    FileFormatError
        If a line is malformed: names the line, and the byte at which it starts.

    See Also
    --------
    LibsvmFile : The same in batches.

    Examples
    --------
    >>> from maxmargin.data import read_libsvm
    >>> X, y = read_libsvm("train.svm.xz")  # doctest: +SKIP
    """
    reader = LineReader(
        os.fspath(path),
        first_index=first_index or 0,
        n_features=None if n_features is None else n_features + (first_index is None),
        multilabel=multilabel,
        weighted=sample_weight,
    )
    with open_bytes(path) as stream:
        batches = list(reader.read(stream, BATCH_BYTES))
    if first_index is None and all(batch.X.indices.min(initial=1) > 0 for batch in batches):
        for batch in batches:
            batch.X.indices -= 1
    needed = max((int(batch.X.indices.max(initial=-1)) + 1 for batch in batches), default=0)
    if n_features is not None and needed > n_features:
        reason = f"has {needed} features, but n_features is {n_features}."
        raise FileFormatError(shown_name(path), None, reason)
    X = stacked([batch.X for batch in batches], needed if n_features is None else n_features)
    y: Any = [] if multilabel else np.zeros(0)
    if batches:
        targets = [_targets(batch, multilabel) for batch in batches]
        y = list(chain.from_iterable(targets)) if multilabel else np.concatenate(targets)
    found = [X, y]
    if query_id:
        found.append(np.concatenate([batch.groups for batch in batches] or [np.zeros(0, np.int64)]))
    if sample_weight:
        weighted = any(batch.has_costs for batch in batches)
        found.append(np.concatenate([batch.costs for batch in batches]) if weighted else None)
    return tuple(found)


def stacked(batches: list[Any], width: int) -> sp.csr_array:
    """Concatenate CSR arrays, `width` columns wide."""
    if not batches:
        return sp.csr_array((0, width))
    wide = [widened(batch, width) for batch in batches]
    return wide[0] if len(wide) == 1 else sp.vstack(wide, format="csr")


def _targets(lines: Lines, multilabel: bool) -> NDArray[np.float64] | list[tuple[float, ...]]:
    """Labels of each line, sorted if there may be several."""
    if not multilabel:
        return lines.labels
    labels, starts = lines.labels.tolist(), lines.label_starts.tolist()
    return [tuple(sorted(labels[a:b])) for a, b in pairwise(starts)]


def whole_numbers(labels: NDArray[Any]) -> NDArray[Any]:
    """Labels as integers, if they all are, and not too large for that."""
    if labels.dtype.kind != "f":
        return labels
    whole = bool(((labels == np.round(labels)) & (np.abs(labels) < 2**53)).all())
    return labels.astype(np.int64) if whole else labels


def _recognise(head: Head) -> Format | None:
    rows = head.rows
    if rows is None or head.grouped_rows is not None:
        return None
    counts, labels = np.diff(rows.label_starts), np.unique(rows.labels)
    n, k = len(counts), len(labels)
    if (counts != 1).any():
        return Format(
            "libsvm", "multilabel", f"any number of labels a line, {k} in all: multi-label"
        )
    if (labels != np.round(labels)).any():
        return Format("libsvm", "regression", "labels that are no integers: regression")
    if k > max(2, 0.5 * n) and n > 20:
        return Format(
            "libsvm", "regression", f"{k} integers in {n} lines: regression",
            "if they are classes: --task classification",
        )  # fmt: skip
    if k <= 2:
        shown = " and ".join(f"{label:g}" for label in labels)
        doubt = None if k == 2 else "a second one must come later"
        return Format("libsvm", "binary", f"labels {shown}: two classes", doubt)
    doubt = None
    if k > 20 and labels[-1] - labels[0] < 2 * k:
        doubt = "if they are amounts: --task regression"
    return Format("libsvm", "multiclass", f"{k} integer labels: multi-class classification", doubt)


LIBSVM = FileFormat("libsvm", "LIBSVM", _recognise, source="LibsvmFile")
