"""Compiled reading of lines ``label index:value index:value``, in blocks of whole lines.

A line is a label (or several, with commas between them), perhaps ``qid:3``, then ``index:value``
pairs in any order, and perhaps a comment after ``#``. SVM-light's ``cost:2.5``, the weight of the
example, may stand anywhere after the label, once. Indices that do not ascend are sorted; one
that stands twice is refused, and so are values that are not finite. A stream of any length takes
the memory of one block.
"""

from collections.abc import Iterator
from io import BufferedIOBase
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.data import text as texts
from maxmargin.data.decimals import PADDING
from maxmargin.data.files import FileFormatError
from maxmargin.data.libsvm_kernels import (
    COST_UNWANTED,
    COSTS,
    ENTRIES,
    GROUP_WANTED,
    HARD_ONES,
    IN_COSTS,
    IN_VALUES,
    LABELS,
    LINE_END,
    LINES,
    MANY_HARD,
    MANY_LABELS,
    N_COUNTS,
    NO_COST,
    NO_GROUP,
    NO_INDEX,
    NO_LABEL,
    NO_VALUE,
    NOT_FINITE,
    REPEATED,
    ROWS,
    TOO_LARGE,
    TOO_SMALL,
    after_last_line,
    count_marks,
    end_lines_at_returns,
    has_returns,
    parse_lines,
)
from maxmargin.data.text import endless_line, shown_name

MOST_MESSAGES = 100
"""Skipped lines whose message is kept; the others are only counted."""

_LAST_COLUMN = 2**31 - 2

_Text = NDArray[np.uint8]

_COMPLAINTS = {
    NO_LABEL: "a line must begin with a label that is a number",
    MANY_LABELS: "there must be one label, unless multilabel=True",
    NO_INDEX: "a feature must be index:value, with a whole number as index",
    NO_VALUE: "the value after a colon must be a number",
    NO_GROUP: "qid: must be followed by a whole number",
    GROUP_WANTED: "qid: and the number of the sequence must follow the tag",
    REPEATED: "an index must not stand twice in a line",
    NOT_FINITE: "numbers must be finite, and not beyond 1.8e308",
    NO_COST: "cost: must stand once in a line, followed by a number that is not negative",
}


class Lines(NamedTuple):
    """Some lines of a file, taken apart.

    Attributes
    ----------
    X : csr_array
        As many columns as the largest index needs.
    labels : ndarray of float64
        All labels, row by row.
    label_starts : ndarray of int64, shape (n_rows + 1,)
        Row ``i`` has the labels ``label_starts[i]`` to ``label_starts[i + 1]``.
    groups : ndarray of int64, shape (n_rows,)
        Numbers after ``qid:``; -1 without.
    costs : ndarray of float64, shape (n_rows,)
        Numbers after ``cost:``; 1 without.
    has_costs : bool
        Whether there is any ``cost:``.
    """

    X: sp.csr_array
    labels: NDArray[np.float64]
    label_starts: NDArray[np.int64]
    groups: NDArray[np.int64]
    costs: NDArray[np.float64]
    has_costs: bool


class LineReader:
    """Reads a stream, and knows where in it the reading is.

    Parameters
    ----------
    name : str
        Of the file, for messages; ``"-"`` is standard input.
    first_index : {1, 0}
        Index of the first feature.
    n_features : int or None
        Number of features; larger indices are malformed.
    multilabel : bool
        Whether lines may have several labels, or none.
    grouped : bool
        Whether lines must have a ``qid:``.
    weighted : bool
        Whether lines may have a ``cost:``.
    skip : bool
        Leave out malformed lines and count them.

    Attributes
    ----------
    n_skipped : int
        Lines left out.
    skipped : list of str
        What was wrong with the first of them.
    """

    def __init__(
        self,
        name: str,
        first_index: int = 1,
        n_features: int | None = None,
        multilabel: bool = False,
        grouped: bool = False,
        weighted: bool = False,
        skip: bool = False,
    ) -> None:
        self.name, self.weighted, self.skip = shown_name(name), weighted, skip
        self.first_index, self.multilabel, self.grouped = first_index, multilabel, grouped
        self.last_column = _LAST_COLUMN if n_features is None else n_features - 1
        self.line, self.offset = 1, 0  # of what is read next
        self.n_skipped = 0
        self.skipped: list[str] = []

    def read(self, stream: BufferedIOBase, block_bytes: int) -> Iterator[Lines]:
        """Blocks of about so many bytes.

        Raises
        ------
        FileFormatError
            If a line is malformed, or does not end: names the file, the line and the byte where it
            starts.
        """
        text = np.empty(block_bytes + 1 + PADDING, dtype=np.uint8)
        held = 0  # bytes at the front whose line has not ended yet
        while True:
            room = len(text) - 1 - PADDING
            filled = self._fill(stream, text, held, room)
            # A return may end the bytes that were held, and only now it is known what follows.
            new = text[max(held - 1, 0) : filled]
            if has_returns(new):
                end_lines_at_returns(new, filled < room)
            if filled < room:  # all has been read
                text[filled] = LINE_END
                end = filled + (filled > 0 and text[filled - 1] != LINE_END)
            else:
                end = after_last_line(text, held, filled)
            if end:
                lines = self._parse(text, end)
                if len(lines.groups):
                    yield lines
            if filled < room:
                return
            held = filled - end
            text[:held] = text[end:filled]
            if held == room:
                if held > texts.LONGEST_LINE:
                    raise endless_line(self.name, self.line)
                room = min(2 * room, texts.LONGEST_LINE + 1)
                text = np.concatenate([text[:held], np.empty(room - held + 1 + PADDING, np.uint8)])

    def _fill(self, stream: BufferedIOBase, text: _Text, start: int, end: int) -> int:
        """Read until `text` is full up to `end`, or nothing is left; returns how far it is."""
        view = memoryview(text)  # type: ignore[arg-type]
        while start < end:
            try:
                count = stream.readinto(view[start:end])
            except FileFormatError as error:  # of a damaged file
                reason = f"{error.reason} The last line before is line {self.line - 1}."
                raise FileFormatError(error.path, None, reason) from error
            if not count:
                break
            start += count
        return start

    def _parse(self, text: _Text, end: int) -> Lines:
        """What the lines before `end` say."""
        n_rows, n_pairs, n_commas = count_marks(text, end)
        labels, values = np.empty(n_rows + n_commas, np.uint64), np.empty(n_pairs, np.uint64)
        columns = np.empty(n_pairs, np.int32)
        label_starts, starts = np.zeros(n_rows + 1, np.int64), np.zeros(n_rows + 1, np.int32)
        groups, costs = np.empty(n_rows, np.int64), np.empty(n_rows, np.uint64)
        hard = np.empty((64, 4), np.int64)
        counts = np.zeros(N_COUNTS, np.int64)
        at = 3 if self.offset == 0 and text[:3].tobytes() == b"\xef\xbb\xbf" else 0
        while at < end:
            at, complaint, line_start = parse_lines(
                text, at, end, self.first_index, self.last_column, self.multilabel,
                self.grouped, self.weighted, labels, label_starts, groups, costs, columns, values,
                starts, hard, counts,
            )  # fmt: skip
            row = int(counts[ROWS]) - 1
            for where, place, first, last in hard[: counts[HARD_ONES]].tolist():
                target = costs if where == IN_COSTS else labels
                if where == IN_VALUES:
                    target, start = values, starts[row]
                    place = start + np.searchsorted(columns[start : starts[row + 1]], place)
                number = float(text[first:last].tobytes())
                target.view(np.float64)[place] = number
                if np.isinf(number):  # the line goes, and is complained about below
                    counts[ROWS], counts[LINES] = row, counts[LINES] - 1
                    counts[LABELS], counts[ENTRIES] = label_starts[row], starts[row]
                    line_start = after_last_line(text, 0, at - 1)
                    at, complaint = first, NOT_FINITE
                    break
            counts[HARD_ONES] = 0
            if complaint == MANY_HARD:
                hard = np.empty((2 * len(hard), 4), np.int64)
                at = line_start
            elif complaint:
                line_end = at + int(np.argmax(text[at:end] == LINE_END))
                shown = text[at : min(at + 20, line_end)].tobytes().decode(errors="replace")
                self._complain(complaint, shown, int(counts[LINES]), line_start)
                counts[LINES] += 1
                at = line_end + 1
        self.line += int(counts[LINES])
        self.offset += end
        rows, entries = int(counts[ROWS]), int(counts[ENTRIES])
        X = sp.csr_array(
            (values[:entries].view(np.float64), columns[:entries], starts[: rows + 1]),
            shape=(rows, int(columns[:entries].max(initial=-1)) + 1),
        )
        X.has_canonical_format = True
        return Lines(
            X,
            labels[: counts[LABELS]].view(np.float64),
            label_starts[: rows + 1],
            groups[:rows],
            costs[:rows].view(np.float64),
            bool(counts[COSTS]),
        )

    def _complain(self, complaint: int, shown: str, lines_before: int, line_start: int) -> None:
        reason = (
            f"{self._what_is_wrong(complaint)}, but there is {shown!r} "
            f"(the line starts at byte {self.offset + line_start})."
        )
        error = FileFormatError(self.name, self.line + lines_before, reason)
        if not self.skip:
            raise error
        self.n_skipped += 1
        if len(self.skipped) < MOST_MESSAGES:
            self.skipped.append(str(error))

    def _what_is_wrong(self, complaint: int) -> str:
        if complaint == TOO_SMALL:
            return "indices are counted from 1, unless first_index=0"
        if complaint == TOO_LARGE:
            return f"the last index is {self.last_column + self.first_index}"
        if complaint == COST_UNWANTED:
            if self.grouped:
                return "positions of sequences have no cost:"
            return (
                "cost:, the weight of an example, is read by read_libsvm(path, sample_weight=True) "
                "and by the command line without --stream only"
            )
        return _COMPLAINTS[complaint]
