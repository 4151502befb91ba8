"""Compiled reading of lines ``label index:value index:value``, in blocks of whole lines.

A line is a label (or several, with commas between them), perhaps ``qid:3``, then ``index:value``
pairs with ascending indices, and perhaps a comment after ``#``. A stream of any length takes the
memory of one block.
"""

from collections.abc import Iterator
from io import BufferedIOBase
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.data.decimals import (
    HARD,
    MOST_DIGITS,
    NO_NUMBER,
    PADDING,
    read_decimal,
    read_digits,
)
from maxmargin.dual.compiled import compiled

LONGEST_LINE = 1 << 30
"""Bytes after which a text without an end of a line is given up."""

MOST_MESSAGES = 100
"""Skipped lines whose message is kept; the others are only counted."""

_LAST_COLUMN = 2**31 - 2
_LINE_END, _HASH, _COMMA, _COLON = b"\n#,:"

(
    _NO_LABEL, _MANY_LABELS, _NO_INDEX, _NO_VALUE, _NO_GROUP, _GROUP_WANTED, _TOO_SMALL, _TOO_LARGE,
    _NOT_ASCENDING, _MANY_HARD,
) = range(1, 11)  # fmt: skip
_ROWS, _LABELS, _ENTRIES, _HARD_ONES, _LINES, _N_COUNTS = range(6)
_IN_LABELS, _IN_VALUES = 0, 1

_Text = NDArray[np.uint8]

_COMPLAINTS = {
    _NO_LABEL: "a line must begin with a label that is a number",
    _MANY_LABELS: "there must be one label, unless multilabel=True",
    _NO_INDEX: "a feature must be index:value, with a whole number as index",
    _NO_VALUE: "the value after a colon must be a number",
    _NO_GROUP: "qid: must be followed by a whole number",
    _GROUP_WANTED: "qid: and the number of the sequence must follow the tag",
    _NOT_ASCENDING: "indices must ascend within a line",
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
    """

    X: sp.csr_array
    labels: NDArray[np.float64]
    label_starts: NDArray[np.int64]
    groups: NDArray[np.int64]


class LineReader:
    """Reads a stream, and knows where in it the reading is.

    Parameters
    ----------
    name : str
        Of the file, for messages.
    first_index : {1, 0}
        Index of the first feature.
    n_features : int or None
        Number of features; larger indices are malformed.
    multilabel : bool
        Whether lines may have several labels, or none.
    grouped : bool
        Whether lines must have a ``qid:``.
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
        skip: bool = False,
    ) -> None:
        self.name, self.skip = name, skip
        self.first_index, self.multilabel, self.grouped = first_index, multilabel, grouped
        self.last_column = _LAST_COLUMN if n_features is None else n_features - 1
        self.line, self.offset = 1, 0  # of what is read next
        self.n_skipped = 0
        self.skipped: list[str] = []

    def read(self, stream: BufferedIOBase, block_bytes: int) -> Iterator[Lines]:
        """Blocks of about so many bytes.

        Raises
        ------
        ValueError
            If a line is malformed; names the file, the line and the byte where it starts.
        """
        text = np.empty(block_bytes + 1 + PADDING, dtype=np.uint8)
        held = 0  # bytes at the front whose line has not ended yet
        while True:
            room = len(text) - 1 - PADDING
            filled = self._fill(stream, text, held, room)
            if filled < room:  # all has been read
                text[filled] = _LINE_END
                end = filled + (filled > 0 and text[filled - 1] != _LINE_END)
            else:
                end = _after_last_line(text, held, filled)
            if end:
                lines = self._parse(text, end)
                if len(lines.groups):
                    yield lines
            if filled < room:
                return
            held = filled - end
            text[:held] = text[end:filled]
            if held == room:
                text = self._enlarged(text)

    def _fill(self, stream: BufferedIOBase, text: _Text, start: int, end: int) -> int:
        """Read until `text` is full up to `end`, or nothing is left; returns how far it is."""
        view = memoryview(text)  # type: ignore[arg-type]
        while start < end:
            try:
                count = stream.readinto(view[start:end])
            except ValueError as error:  # of a damaged file
                raise ValueError(
                    f"{error} The last line before is line {self.line - 1}."
                ) from error
            if not count:
                break
            start += count
        return start

    def _enlarged(self, text: _Text) -> _Text:
        if len(text) >= LONGEST_LINE:
            raise ValueError(
                f"{self.name}, line {self.line} (byte {self.offset}) does not end within "
                f"{len(text)} bytes: this is no file of lines label index:value."
            )
        return np.concatenate([text[: -1 - PADDING], np.empty_like(text)])

    def _parse(self, text: _Text, end: int) -> Lines:
        """What the lines before `end` say."""
        n_rows, n_pairs, n_commas = _count(text, end)
        labels, values = np.empty(n_rows + n_commas, np.uint64), np.empty(n_pairs, np.uint64)
        columns = np.empty(n_pairs, np.int32)
        label_starts, starts = np.zeros(n_rows + 1, np.int64), np.zeros(n_rows + 1, np.int32)
        groups = np.empty(n_rows, np.int64)
        hard = np.empty((64, 4), np.int64)
        counts = np.zeros(_N_COUNTS, np.int64)
        at = 3 if self.offset == 0 and text[:3].tobytes() == b"\xef\xbb\xbf" else 0
        while at < end:
            at, complaint, line_start = _parse_lines(
                text, at, end, self.first_index, self.last_column, self.multilabel,
                self.grouped, labels, label_starts, groups, columns, values, starts, hard, counts,
            )  # fmt: skip
            for where, place, first, last in hard[: counts[_HARD_ONES]].tolist():
                target = labels if where == _IN_LABELS else values
                target.view(np.float64)[place] = float(text[first:last].tobytes())
            counts[_HARD_ONES] = 0
            if complaint == _MANY_HARD:
                hard = np.empty((2 * len(hard), 4), np.int64)
                at = line_start
            elif complaint:
                line_end = at + int(np.argmax(text[at:end] == _LINE_END))
                shown = text[at : min(at + 20, line_end)].tobytes().decode(errors="replace")
                self._complain(complaint, shown, int(counts[_LINES]), line_start)
                counts[_LINES] += 1
                at = line_end + 1
        self.line += int(counts[_LINES])
        self.offset += end
        rows, entries = int(counts[_ROWS]), int(counts[_ENTRIES])
        X = sp.csr_array(
            (values[:entries].view(np.float64), columns[:entries], starts[: rows + 1]),
            shape=(rows, int(columns[:entries].max(initial=-1)) + 1),
        )
        X.has_canonical_format = True  # indices ascend
        return Lines(
            X,
            labels[: counts[_LABELS]].view(np.float64),
            label_starts[: rows + 1],
            groups[:rows],
        )

    def _complain(self, complaint: int, shown: str, lines_before: int, line_start: int) -> None:
        message = (
            f"{self.name}, line {self.line + lines_before} (byte {self.offset + line_start}): "
            f"{self._what_is_wrong(complaint)}, but there is {shown!r}."
        )
        if not self.skip:
            raise ValueError(message)
        self.n_skipped += 1
        if len(self.skipped) < MOST_MESSAGES:
            self.skipped.append(message)

    def _what_is_wrong(self, complaint: int) -> str:
        if complaint == _TOO_SMALL:
            return "indices are counted from 1, unless first_index=0"
        if complaint == _TOO_LARGE:
            return f"the last index is {self.last_column + self.first_index}"
        return _COMPLAINTS[complaint]


@compiled
def _after_last_line(text, start, end):  # type: ignore[no-untyped-def]
    """Where the last line that ends does so; 0 if none does."""
    while end > start:
        if text[end - 1] == _LINE_END:
            return end
        end -= 1
    return 0


@compiled
def _count(text, end):  # type: ignore[no-untyped-def]
    """Ends of lines, colons and commas."""
    lines, colons, commas = 0, 0, 0
    for at in range(end):
        lines += text[at] == _LINE_END
        colons += text[at] == _COLON
        commas += text[at] == _COMMA
    return lines, colons, commas


@compiled
def _after_space(text, at):  # type: ignore[no-untyped-def]
    while text[at] == 32 or text[at] == 9 or text[at] == 13:
        at += 1
    return at


@compiled
def _ends(byte):  # type: ignore[no-untyped-def]
    """Whether what stands before it is complete: a space or a comment follows."""
    return byte <= 32 or byte == _HASH


@compiled
def _parse_lines(  # type: ignore[no-untyped-def]
    text, at, end, first_index, last_column, multilabel, grouped, labels, label_starts,
    groups, columns, values, starts, hard, counts,
):  # fmt: skip
    """Read lines until the end, the first malformed one, or one with numbers for Python.

    Returns where it stopped, what is wrong there (0: nothing), and where that line starts. A
    malformed line leaves no trace in the arrays.
    """
    while at < end and counts[_HARD_ONES] == 0:
        line_start = at
        at = _after_space(text, at)
        if text[at] != _LINE_END and text[at] != _HASH:
            row, n_label, n_entry = counts[_ROWS], counts[_LABELS], counts[_ENTRIES]
            n_hard = 0
            _, token_end = read_digits(text, at, np.uint64(0))
            more = not (multilabel and text[token_end] == _COLON)
            while more:
                found, token_end, labels[n_label] = read_decimal(text, at)
                if found == NO_NUMBER:
                    return at, _NO_LABEL, line_start
                if found == HARD:
                    if n_hard == len(hard):
                        return at, _MANY_HARD, line_start
                    n_hard = _note(hard, n_hard, _IN_LABELS, n_label, at, token_end)
                n_label += 1
                more = text[token_end] == _COMMA
                if more and not multilabel:
                    return at, _MANY_LABELS, line_start
                if not (more or _ends(text[token_end])):
                    return at, _NO_LABEL, line_start
                at = token_end + more
            at = _after_space(text, at)
            groups[row] = -1
            if _is_group(text, at):
                start = at + 4 + (text[at + 4] == 45)
                number, token_end = read_digits(text, start, np.uint64(0))
                digits = token_end - start
                if digits == 0 or digits >= MOST_DIGITS or not _ends(text[token_end]):
                    return at, _NO_GROUP, line_start
                groups[row] = -np.int64(number) if text[at + 4] == 45 else np.int64(number)
                at = _after_space(text, token_end)
            elif grouped:
                return at, _GROUP_WANTED, line_start
            last = np.int64(-1)
            while text[at] != _LINE_END and text[at] != _HASH:
                number, colon = read_digits(text, at, np.uint64(0))
                if colon == at or text[colon] != _COLON:
                    return at, _NO_INDEX, line_start
                if colon - at >= MOST_DIGITS:
                    number = np.uint64(1) << np.uint64(62)
                column = np.int64(number) - first_index
                if column <= last:
                    return at, _TOO_SMALL if column < 0 else _NOT_ASCENDING, line_start
                if column > last_column:
                    return at, _TOO_LARGE, line_start
                found, token_end, values[n_entry] = read_decimal(text, colon + 1)
                if found == NO_NUMBER or not _ends(text[token_end]):
                    return at, _NO_VALUE, line_start
                if found == HARD:
                    if n_hard == len(hard):
                        return at, _MANY_HARD, line_start
                    n_hard = _note(hard, n_hard, _IN_VALUES, n_entry, colon + 1, token_end)
                columns[n_entry] = column
                last = column
                n_entry += 1
                at = _after_space(text, token_end)
            counts[_ROWS], counts[_LABELS], counts[_ENTRIES] = row + 1, n_label, n_entry
            label_starts[row + 1], starts[row + 1] = n_label, n_entry
            counts[_HARD_ONES] = n_hard
        while text[at] != _LINE_END:
            at += 1
        at += 1
        counts[_LINES] += 1
    return at, 0, at


@compiled
def _is_group(text, at):  # type: ignore[no-untyped-def]
    """Whether ``qid:`` stands there."""
    return (
        text[at] == 113 and text[at + 1] == 105 and text[at + 2] == 100 and text[at + 3] == _COLON
    )


@compiled
def _note(hard, count, where, place, start, end):  # type: ignore[no-untyped-def]
    """Note a number for Python to read; returns how many there are."""
    hard[count, 0], hard[count, 1], hard[count, 2], hard[count, 3] = where, place, start, end
    return count + 1
