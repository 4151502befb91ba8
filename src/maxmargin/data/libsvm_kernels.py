"""Compiled parsing of lines ``label index:value index:value`` in an array of bytes.

`maxmargin.data.libsvm_lines` reads files with it, and says in words what is wrong.
"""

import numpy as np

from maxmargin.data.decimals import HARD, MOST_DIGITS, NO_NUMBER, read_decimal, read_digits
from maxmargin.dual.compiled import compiled

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
