"""Compiled parsing of lines ``label index:value index:value``, in batches of whole lines.

A line is a label (or several, with commas between them), perhaps ``qid:3``, then ``index:value``
pairs in any order, and perhaps a comment after ``#``. SVM-light's ``cost:2.5``, the weight of the
example, may stand anywhere after the label, once. Indices that do not ascend are sorted; one
that stands twice is refused, and so are values that are not finite. A stream of any length takes
the memory of one batch.
"""

from collections.abc import Iterator
from io import BufferedIOBase
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled
from maxmargin.data import files
from maxmargin.data.decimals import HARD, MOST_DIGITS, NO_NUMBER, PADDING, read_decimal, read_digits
from maxmargin.data.files import FileFormatError, endless_line, shown_name

LINE_END, _RETURN, _HASH, _COMMA, _COLON = b"\n\r#,:"
_INFINITE = np.uint64(0x7FF0000000000000)  # exponent of nan and infinity
_NEGATIVE = np.uint64(1) << np.uint64(63)
_ONE = np.float64(1.0).view(np.uint64)

(
    NO_LABEL, MANY_LABELS, NO_INDEX, NO_VALUE, NO_GROUP, GROUP_WANTED, TOO_SMALL, TOO_LARGE,
    REPEATED, NOT_FINITE, COST_UNWANTED, NO_COST, MANY_HARD,
) = range(1, 14)  # fmt: skip
"""What may be wrong with a line; the last is only that space is missing."""

ROWS, LABELS, ENTRIES, HARD_ONES, LINES, COSTS, N_COUNTS = range(7)
"""What is counted while lines are parsed."""

IN_LABELS, IN_VALUES, IN_COSTS = 0, 1, 2
"""Where a number belongs that is left to Python."""


@compiled
def after_last_line(text, start, end):  # type: ignore[no-untyped-def]
    """Where the last line that ends does so; 0 if none does."""
    while end > start:
        if text[end - 1] == LINE_END:
            return end
        end -= 1
    return 0


@compiled
def has_returns(text):  # type: ignore[no-untyped-def]
    """Whether there is a carriage return: without a branch, so that many bytes are seen at once."""
    found = False
    for at in range(len(text)):
        found |= text[at] == _RETURN
    return found


@compiled
def end_lines_at_returns(text, is_all):  # type: ignore[no-untyped-def]
    """Make a carriage return that no line feed follows one itself, as old files have them."""
    for at in range(len(text) - 1):
        if text[at] == _RETURN and text[at + 1] != LINE_END:
            text[at] = LINE_END
    if is_all and text[-1] == _RETURN:
        text[-1] = LINE_END


@compiled
def count_marks(text, end):  # type: ignore[no-untyped-def]
    """Ends of lines, colons and commas."""
    lines, colons, commas = 0, 0, 0
    for at in range(end):
        lines += text[at] == LINE_END
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
def parse_lines(  # type: ignore[no-untyped-def]
    text, at, end, first_index, last_column, multilabel, grouped, weighted, labels, label_starts,
    groups, costs, columns, values, starts, hard, counts,
):  # fmt: skip
    """Read lines until the end, the first malformed one, or one with numbers for Python.

    Returns where it stopped, what is wrong there (0: nothing), and where that line starts. A
    malformed line leaves no trace in the arrays.
    """
    while at < end and counts[HARD_ONES] == 0:
        line_start = at
        at = _after_space(text, at)
        if text[at] != LINE_END and text[at] != _HASH:
            row, n_label, n_entry = counts[ROWS], counts[LABELS], counts[ENTRIES]
            n_hard = 0
            _, token_end = read_digits(text, at, np.uint64(0))
            more = not (multilabel and text[token_end] == _COLON)
            while more:
                found, token_end, labels[n_label] = read_decimal(text, at)
                if found == NO_NUMBER:
                    return at, NO_LABEL, line_start
                if found == HARD:
                    if n_hard == len(hard):
                        return at, MANY_HARD, line_start
                    n_hard = _note(hard, n_hard, IN_LABELS, n_label, at, token_end)
                elif labels[n_label] & _INFINITE == _INFINITE:
                    return at, NOT_FINITE, line_start
                n_label += 1
                more = text[token_end] == _COMMA
                if more and not multilabel:
                    return at, MANY_LABELS, line_start
                if not (more or _ends(text[token_end])):
                    return at, NO_LABEL, line_start
                at = token_end + more
            at = _after_space(text, at)
            groups[row], costs[row] = -1, _ONE
            has_cost = _is_cost(text, at)
            if has_cost:
                complaint, token_end, n_hard = _cost(text, at, weighted, row, costs, hard, n_hard)
                if complaint:
                    return at, complaint, line_start
                at = _after_space(text, token_end)
            if _is_group(text, at):
                start = at + 4 + (text[at + 4] == 45)
                number, token_end = read_digits(text, start, np.uint64(0))
                digits = token_end - start
                if digits == 0 or digits >= MOST_DIGITS or not _ends(text[token_end]):
                    return at, NO_GROUP, line_start
                groups[row] = -np.int64(number) if text[at + 4] == 45 else np.int64(number)
                at = _after_space(text, token_end)
            elif grouped:
                return at, GROUP_WANTED, line_start
            last, ascend, pairs_start = np.int64(-1), True, at
            while text[at] != LINE_END and text[at] != _HASH:
                if _is_cost(text, at):
                    complaint, token_end, n_hard = _cost(
                        text, at, weighted and not has_cost, row, costs, hard, n_hard
                    )
                    if complaint:
                        return at, NO_COST if has_cost else complaint, line_start
                    has_cost, at = True, _after_space(text, token_end)
                    continue
                number, colon = read_digits(text, at, np.uint64(0))
                if colon == at or text[colon] != _COLON:
                    return at, NO_INDEX, line_start
                if colon - at >= MOST_DIGITS:
                    number = np.uint64(1) << np.uint64(62)
                column = np.int64(number) - first_index
                if column < 0:
                    return at, TOO_SMALL, line_start
                if column == last:
                    return at, REPEATED, line_start
                ascend = ascend and column > last
                if column > last_column:
                    return at, TOO_LARGE, line_start
                found, token_end, values[n_entry] = read_decimal(text, colon + 1)
                if found == NO_NUMBER or not _ends(text[token_end]):
                    return at, NO_VALUE, line_start
                if found == HARD:
                    if n_hard == len(hard):
                        return at, MANY_HARD, line_start
                    n_hard = _note(hard, n_hard, IN_VALUES, column, colon + 1, token_end)
                elif values[n_entry] & _INFINITE == _INFINITE:
                    return at, NOT_FINITE, line_start
                columns[n_entry] = column
                last = column
                n_entry += 1
                at = _after_space(text, token_end)
            if not ascend:
                repeated = _sort(columns[counts[ENTRIES] : n_entry], values[counts[ENTRIES] :])
                if repeated >= 0:
                    at = _second(text, pairs_start, repeated + first_index)
                    return at, REPEATED, line_start
            counts[ROWS], counts[LABELS], counts[ENTRIES] = row + 1, n_label, n_entry
            label_starts[row + 1], starts[row + 1] = n_label, n_entry
            counts[HARD_ONES] = n_hard
            counts[COSTS] += has_cost
        while text[at] != LINE_END:
            at += 1
        at += 1
        counts[LINES] += 1
    return at, 0, at


@compiled
def _sort(columns, values):  # type: ignore[no-untyped-def]
    """Sort a row by its columns, by Shell's method; returns one that stands twice, or -1."""
    gap = 1
    while gap < len(columns) // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for k in range(gap, len(columns)):
            column, value, at = columns[k], values[k], k
            while at >= gap and columns[at - gap] > column:
                columns[at], values[at] = columns[at - gap], values[at - gap]
                at -= gap
            columns[at], values[at] = column, value
        gap //= 3
    for k in range(1, len(columns)):
        if columns[k] == columns[k - 1]:
            return np.int64(columns[k])
    return np.int64(-1)


@compiled
def _second(text, at, index):  # type: ignore[no-untyped-def]
    """Where an index stands for the second time in a line that has been read before."""
    seen = 0
    while True:
        number, colon = read_digits(text, at, np.uint64(0))
        seen += colon > at and np.int64(number) == index  # cost: has no digits
        if seen == 2:
            return at
        while not _ends(text[colon]):
            colon += 1
        at = _after_space(text, colon)


@compiled
def _is_group(text, at):  # type: ignore[no-untyped-def]
    """Whether ``qid:`` stands there."""
    return (
        text[at] == 113 and text[at + 1] == 105 and text[at + 2] == 100 and text[at + 3] == _COLON
    )


@compiled
def _is_cost(text, at):  # type: ignore[no-untyped-def]
    """Whether ``cost:`` stands there."""
    return (
        text[at] == 99
        and text[at + 1] == 111
        and text[at + 2] == 115
        and text[at + 3] == 116
        and text[at + 4] == _COLON
    )


@compiled
def _cost(text, at, weighted, row, costs, hard, n_hard):  # type: ignore[no-untyped-def]
    """Read the weight of an example: what is wrong, where it ends, numbers left to Python."""
    if not weighted:
        return COST_UNWANTED, at, n_hard
    found, token_end, cost = read_decimal(text, at + 5)
    if found == NO_NUMBER or not _ends(text[token_end]) or cost & _NEGATIVE:
        return NO_COST, token_end, n_hard
    if found == HARD:
        if n_hard == len(hard):
            return MANY_HARD, token_end, n_hard
        n_hard = _note(hard, n_hard, IN_COSTS, row, at + 5, token_end)
    elif cost & _INFINITE == _INFINITE:
        return NOT_FINITE, token_end, n_hard
    costs[row] = cost
    return 0, token_end, n_hard


@compiled
def _note(hard, count, where, place, start, end):  # type: ignore[no-untyped-def]
    """Note a number for Python to read, and its label or column; returns how many there are."""
    hard[count, 0], hard[count, 1], hard[count, 2], hard[count, 3] = where, place, start, end
    return count + 1


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
    """Some lines of a file, read; as many columns as the largest index needs."""

    X: sp.csr_array
    labels: NDArray[np.float64]  # of all rows
    label_starts: NDArray[np.int64]  # where those of each row begin, and the last end
    groups: NDArray[np.int64]  # numbers after qid:, or -1
    costs: NDArray[np.float64]  # numbers after cost:, or 1
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
        Larger indices are malformed.
    multilabel, grouped, weighted : bool
        Whether lines may have several labels or none, must have a ``qid:``, may have a ``cost:``.
    skip : bool
        Leave out malformed lines, and count them in `n_skipped`; `skipped` says what was wrong.
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

    def read(self, stream: BufferedIOBase, batch_bytes: int) -> Iterator[Lines]:
        """Batches of about so many bytes; FileFormatError if a line is malformed or endless."""
        text = np.empty(batch_bytes + 1 + PADDING, dtype=np.uint8)
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
                if held > files.LONGEST_LINE:
                    raise endless_line(self.name, self.line)
                room = min(2 * room, files.LONGEST_LINE + 1)
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
