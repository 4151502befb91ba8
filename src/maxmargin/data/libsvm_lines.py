"""Compiled parsing of lines ``label index:value index:value``, in batches of whole lines.

A line is a label (or several, with commas), perhaps ``qid:3``, pairs in any order, and perhaps a
comment after ``#``; SVM-light's ``cost:2.5`` may stand once after the label. Repeated indices and
values that are not finite are refused. Decimal numbers are read to the same bits as in Python
(Lemire, *Number parsing at a gigabyte per second*, 2021): ``w * 10^q = w * 5^q * 2^q``, with the
first 128 bits of ``5^q`` from a table. Of more than 19 digits the first 19 and their successor are
tried; what stays open is left to Python's own routine.
"""

from collections.abc import Iterator
from io import BufferedIOBase
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from maxmargin.compiled.compile import compiled
from maxmargin.data import files
from maxmargin.data.files import FileFormatError, endless_line, shown_name

LEAST_POWER, MOST_POWER = -342, 308
MOST_DIGITS = 19
"""As many always fit in 64 bits."""

PADDING = 8
"""Bytes after a text in memory, because digits are read eight at a time."""

_U = np.uint64
_ONE, _TEN = _U(1), _U(10)
_ALL = _U(0xFFFFFFFFFFFFFFFF)
_PRECISION = _ALL >> _U(55)
_FRACTION = (_ONE << _U(52)) - _ONE
_NAN, _INF, _INFINITY = (_U(int.from_bytes(word, "big")) for word in (b"nan", b"inf", b"infinity"))
_TENS = np.array([10**i for i in range(9)], dtype=np.uint64)


def _powers_of_five() -> NDArray[np.uint64]:
    """The first 128 bits of each ``5^q``, upper half first, rounded up."""
    table = []
    for q in range(LEAST_POWER, MOST_POWER + 1):
        if q >= 0:
            power = 5**q
            shift = power.bit_length() - 128
            power = power >> shift if shift > 0 else power << -shift
        else:
            divisor = 5**-q
            power = (1 << (divisor.bit_length() + 127)) // divisor + 1
            power >>= max(power.bit_length() - 128, 0)
        table.append((power >> 64, power & (1 << 64) - 1))
    return np.array(table, dtype=np.uint64)


POWERS = _powers_of_five()

_I64, _I128 = ir.IntType(64), ir.IntType(128)


@intrinsic  # type: ignore[untyped-decorator]
def _eight_bytes(context, text, at):  # type: ignore[no-untyped-def]
    """Eight bytes of `text` from `at` on as a number, the first lowest."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        place = builder.bitcast(builder.gep(array.data, [args[1]]), _I64.as_pointer())
        return builder.load(place, align=1)

    return types.uint64(text, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def _product(context, a, b):  # type: ignore[no-untyped-def]
    """Upper and lower half of a 64-bit product."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        whole = builder.mul(builder.zext(args[0], _I128), builder.zext(args[1], _I128))
        halves = builder.lshr(whole, _I128(64)), whole
        return context.make_tuple(
            builder, signature.return_type, [builder.trunc(half, _I64) for half in halves]
        )

    return types.UniTuple(types.uint64, 2)(types.uint64, types.uint64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def _leading_zeros(context, w):  # type: ignore[no-untyped-def]

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.IntType(1)(1))

    return types.int64(types.uint64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def _trailing_zeros(context, w):  # type: ignore[no-untyped-def]

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.IntType(1)(0))

    return types.int64(types.uint64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def _bits_by_python(context, text, at):  # type: ignore[no-untyped-def]
    """Bits of the double that Python reads from `at` on, perhaps infinite."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        none = ir.IntType(8).as_pointer()(None)
        kind = ir.FunctionType(ir.DoubleType(), [none.type, none.type.as_pointer(), none.type])
        read = cgutils.get_or_insert_function(builder.module, kind, "PyOS_string_to_double")
        end = cgutils.alloca_once(builder, none.type)  # it need not be the end of the text
        python = context.get_python_api(builder)
        gil = python.gil_ensure()
        number = builder.call(read, [builder.gep(array.data, [args[1]]), end, none])
        python.gil_release(gil)
        return builder.bitcast(number, _I64)

    return types.uint64(text, types.int64), codegen


@compiled
def double_bits(w, q):  # type: ignore[no-untyped-def]
    """Bits of the double nearest to ``w * 10^q``, and whether they are known."""
    if w == 0:
        return _U(0), True
    if q < LEAST_POWER or q > MOST_POWER:
        return _U(0), False
    zeros = _leading_zeros(w)
    w <<= _U(zeros)
    high, low = _product(w, POWERS[q - LEAST_POWER, 0])
    if high & _PRECISION == _PRECISION:
        more, _ = _product(w, POWERS[q - LEAST_POWER, 1])
        low += more
        if more > low:
            high += _ONE
    if low == _ALL:
        return _U(0), False
    upper = high >> _U(63)
    shift = upper + _U(9)
    mantissa = high >> shift
    exponent = ((217706 * q) >> 16) + 63 + np.int64(upper) - zeros + 1023
    if exponent <= 0 or exponent >= 2046:
        return _U(0), False  # too small, or too large, or nearly
    if low <= _ONE and -4 <= q <= 23 and mantissa & _U(3) == _ONE and mantissa << shift == high:
        mantissa &= ~_ONE  # exactly between two doubles: to the even one
    mantissa = (mantissa + (mantissa & _ONE)) >> _ONE
    if mantissa > _FRACTION << _ONE | _ONE:
        mantissa >>= _ONE
        exponent += 1
    return (mantissa & _FRACTION) | _U(exponent) << _U(52), True


@compiled
def read_digits(text, at, w):  # type: ignore[no-untyped-def]
    """Append the digits from `at` on to `w` (modulo 2^64); also returns where they end.

    Eight bytes at a time and without branches: exclusive or with the code of "0" makes digits the
    bytes below 10, which are joined to pairs, fours and eights side by side.
    """
    count = 8
    while count == 8:
        eight = _eight_bytes(text, at) ^ _U(0x3030303030303030)
        others = (((eight & _U(0x7F7F7F7F7F7F7F7F)) + _U(0x7676767676767676)) | eight) & _U(
            0x8080808080808080
        )
        count = _trailing_zeros(others) >> 3
        digits = eight << _U(64 - 8 * count) if count else _U(0)
        pairs = digits * _TEN + (digits >> _U(8))
        first = (pairs & _U(0x000000FF000000FF)) * _U(100 + (1_000_000 << 32))
        second = ((pairs >> _U(16)) & _U(0x000000FF000000FF)) * _U(1 + (10_000 << 32))
        w = w * _TENS[count] + ((first + second) >> _U(32))
        at += count
    return w, at


@compiled
def _first_digits(text, start, end):  # type: ignore[no-untyped-def]
    """The first `MOST_DIGITS` significant digits, how many follow, and how many are fractions."""
    w, kept, dropped, fractions = _U(0), 0, 0, 0
    point = False
    for at in range(start, end):
        digit = _U(text[at]) - _U(48)
        if digit < _TEN:
            fractions += point
            if kept < MOST_DIGITS:
                w = w * _TEN + digit
                kept += w != 0
            else:
                dropped += 1
        elif text[at] == 46:
            point = True
    return w, dropped, fractions


@compiled
def _named_bits(text, at):  # type: ignore[no-untyped-def]
    """Bits of nan, inf or infinity in any case, and where the word ends; else 0."""
    start = at
    word = _U(0)
    while 97 <= text[at] | 32 <= 122:
        word = word << _U(8) | _U(text[at] | 32)
        at += 1
    if at == start + 3 and word == _NAN:
        return _U(0x7FF8000000000000), at
    if (at == start + 3 and word == _INF) or (at == start + 8 and word == _INFINITY):
        return _U(0x7FF0000000000000), at
    return _U(0), at


@compiled
def read_decimal(text, at):  # type: ignore[no-untyped-def]
    """Read the number at `at`: whether there is one, where it ends, and the bits of the double.

    `text` must end with something that is no part of a number, and `PADDING` after that.
    """
    negative = text[at] == 45
    if negative or text[at] == 43:
        at += 1
    start = at
    w, at = read_digits(text, at, _U(0))
    seen = at - start
    q = 0
    if text[at] == 46:
        point = at
        w, at = read_digits(text, at + 1, w)
        q = point + 1 - at
        seen -= q
    if seen == 0:
        found, at = _named_bits(text, start)
        return found != 0, at, found | _U(negative) << _U(63)
    digits_end = at
    power = np.int64(0)
    if text[at] | 32 == 101:
        at += 1
        falls = text[at] == 45
        if falls or text[at] == 43:
            at += 1
        if not 48 <= text[at] <= 57:
            return False, at, _U(0)
        while 48 <= text[at] <= 57:
            power = min(power * 10 + np.int64(text[at] - 48), np.int64(100_000))
            at += 1
        if falls:
            power = -power
    if seen <= MOST_DIGITS:
        found, known = double_bits(w, q + power)
    else:
        w, dropped, fractions = _first_digits(text, start, digits_end)
        found, known = double_bits(w, dropped - fractions + power)
        if dropped and known:
            after, known = double_bits(w + _ONE, dropped - fractions + power)
            known = known and after == found
    if not known:
        found = _bits_by_python(text, start)
    return True, at, found | _U(negative) << _U(63)


LINE_END, _RETURN, _HASH, _COMMA, _COLON = b"\n\r#,:"
_INFINITE = _U(0x7FF0000000000000)  # exponent of nan and infinity
_NEGATIVE = _ONE << _U(63)
_UNIT_COST = np.float64(1.0).view(np.uint64)
_GROUP, _COST = (_U(int.from_bytes(word, "little")) for word in (b"qid:", b"cost:"))

(
    NO_LABEL, MANY_LABELS, NO_INDEX, NO_VALUE, NO_GROUP, GROUP_WANTED, TOO_SMALL, TOO_LARGE,
    REPEATED, NOT_FINITE, COST_UNWANTED, NO_COST,
) = range(1, 13)  # fmt: skip
"""What may be wrong with a line."""

ROWS, LABELS, ENTRIES, LINES, COSTS, N_COUNTS = range(6)
"""Places in `counts`."""


@compiled
def after_last_line(text, start, end):  # type: ignore[no-untyped-def]
    """End of the last complete line; 0 if there is none."""
    while end > start:
        if text[end - 1] == LINE_END:
            return end
        end -= 1
    return 0


@compiled
def end_lines_at_returns(text, is_all):  # type: ignore[no-untyped-def]
    """Replace carriage returns that no line feed follows, as old files have them, by line feeds."""
    found = False
    for at in range(len(text)):  # vectorised, as it has no branch
        found |= text[at] == _RETURN
    if not found:
        return
    for at in range(len(text) - 1):
        if text[at] == _RETURN and text[at + 1] != LINE_END:
            text[at] = LINE_END
    if is_all and text[-1] == _RETURN:
        text[-1] = LINE_END


@compiled
def count_marks(text, end):  # type: ignore[no-untyped-def]
    """Number of line ends, colons and commas."""
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
    """Whether a token is complete before it: a space or a comment."""
    return byte <= 32 or byte == _HASH


@compiled
def parse_lines(  # type: ignore[no-untyped-def]
    text, at, end, first_index, last_column, multilabel, grouped, weighted, labels, label_starts,
    groups, costs, columns, values, starts, counts,
):  # fmt: skip
    """Read lines until the end or the first malformed one.

    Returns where it stopped, what is wrong there (0: nothing), and where that line starts. A
    malformed line leaves no trace in the arrays.

    Parameters
    ----------
    text, at, end : ndarray of uint8 with `PADDING`, and the range to read
    first_index, last_column : ints, the index of column 0 and the largest column allowed
    multilabel, grouped, weighted : bools, see `LineReader`
    labels, label_starts, groups, costs : labels (CSR), ``qid`` and weight of the rows, set
    columns, values, starts : CSR arrays of the rows, set; numbers are bits of doubles in uint64
    counts : ndarray of int64, shape (N_COUNTS,), changed
    """
    while at < end:
        line_start = at
        at = _after_space(text, at)
        if text[at] != LINE_END and text[at] != _HASH:
            row, n_label, n_entry = counts[ROWS], counts[LABELS], counts[ENTRIES]
            _, token_end = read_digits(text, at, np.uint64(0))
            more = not (multilabel and text[token_end] == _COLON)
            while more:
                found, token_end, labels[n_label] = read_decimal(text, at)
                if not found:
                    return at, NO_LABEL, line_start
                if labels[n_label] & _INFINITE == _INFINITE:
                    return at, NOT_FINITE, line_start
                n_label += 1
                more = text[token_end] == _COMMA
                if more and not multilabel:
                    return at, MANY_LABELS, line_start
                if not (more or _ends(text[token_end])):
                    return at, NO_LABEL, line_start
                at = token_end + more
            at = _after_space(text, at)
            groups[row], costs[row] = -1, _UNIT_COST
            has_cost = _is_cost(text, at)
            if has_cost:
                complaint, token_end, costs[row] = _cost(text, at, weighted)
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
                    if has_cost:
                        return at, NO_COST, line_start
                    complaint, token_end, costs[row] = _cost(text, at, weighted)
                    if complaint:
                        return at, complaint, line_start
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
                if not found or not _ends(text[token_end]):
                    return at, NO_VALUE, line_start
                if values[n_entry] & _INFINITE == _INFINITE:
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
            counts[COSTS] += has_cost
        while text[at] != LINE_END:
            at += 1
        at += 1
        counts[LINES] += 1
    return at, 0, at


@compiled
def _sort(columns, values):  # type: ignore[no-untyped-def]
    """Shell sort of a row by column; returns a repeated column, or -1."""
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
    """Where an index occurs for the second time in a line."""
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
    return _eight_bytes(text, at) & _U(0xFFFFFFFF) == _GROUP


@compiled
def _is_cost(text, at):  # type: ignore[no-untyped-def]
    return _eight_bytes(text, at) & _U(0xFFFFFFFFFF) == _COST


@compiled
def _cost(text, at, weighted):  # type: ignore[no-untyped-def]
    """Read the weight of an example: what is wrong, where it ends, and its bits."""
    if not weighted:
        return COST_UNWANTED, at, _U(0)
    found, token_end, cost = read_decimal(text, at + 5)
    if not found or not _ends(text[token_end]) or cost & _NEGATIVE:
        return NO_COST, token_end, cost
    return NOT_FINITE if cost & _INFINITE == _INFINITE else 0, token_end, cost


MOST_MESSAGES = 100
"""Skipped lines whose message is kept."""

_LAST_COLUMN = 2**31 - 2

_Text = NDArray[np.uint8]

_COMPLAINTS = {
    NO_LABEL: "a line must begin with a label that is a number",
    MANY_LABELS: "there must be one label, unless multilabel=True",
    NO_INDEX: "a feature must be index:value, with a whole number as index",
    NO_VALUE: "the value after a colon must be a number",
    NO_GROUP: "qid: must be followed by a whole number",
    GROUP_WANTED: "qid: and the number of the sequence must follow the tag",
    TOO_SMALL: "indices are counted from 1, unless first_index=0",
    TOO_LARGE: "the last index is {last}",
    REPEATED: "an index must not stand twice in a line",
    NOT_FINITE: "numbers must be finite, and not beyond 1.8e308",
    COST_UNWANTED: "cost:, the weight of an example, is read by read_libsvm(path, "
    "sample_weight=True) and by the command line without --stream only",
    NO_COST: "cost: must stand once in a line, followed by a number that is not negative",
}


class Lines(NamedTuple):
    """Some lines of a file; as many columns as the largest index needs."""

    X: sp.csr_array
    labels: NDArray[np.float64]  # of all rows
    label_starts: NDArray[np.int64]  # where those of each row begin, and the last end
    groups: NDArray[np.int64]  # numbers after qid:, or -1
    costs: NDArray[np.float64]  # numbers after cost:, or 1
    has_costs: bool


class LineReader:
    """Reads a stream, and knows the place in it.

    With `multilabel` a line has any number of labels, with `grouped` a ``qid:``, with `weighted`
    perhaps a ``cost:``. With `skip` malformed lines are left out and counted.
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
            end_lines_at_returns(text[max(held - 1, 0) : filled], filled < room)
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
        """Read until `text` is full up to `end`, or to the end of the stream; returns how far."""
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
        n_rows, n_pairs, n_commas = count_marks(text, end)
        labels, values = np.empty(n_rows + n_commas, np.uint64), np.empty(n_pairs, np.uint64)
        columns = np.empty(n_pairs, np.int32)
        label_starts, starts = np.zeros(n_rows + 1, np.int64), np.zeros(n_rows + 1, np.int32)
        groups, costs = np.empty(n_rows, np.int64), np.empty(n_rows, np.uint64)
        counts = np.zeros(N_COUNTS, np.int64)
        at = 3 if self.offset == 0 and text[:3].tobytes() == b"\xef\xbb\xbf" else 0
        while at < end:
            at, complaint, line_start = parse_lines(
                text, at, end, self.first_index, self.last_column, self.multilabel,
                self.grouped, self.weighted, labels, label_starts, groups, costs, columns, values,
                starts, counts,
            )  # fmt: skip
            if complaint:
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
        wrong = _COMPLAINTS[complaint].format(last=self.last_column + self.first_index)
        if complaint == COST_UNWANTED and self.grouped:
            wrong = "positions of sequences have no cost:"
        reason = (
            f"{wrong}, but there is {shown!r} (the line starts at byte {self.offset + line_start})."
        )
        error = FileFormatError(self.name, self.line + lines_before, reason)
        if not self.skip:
            raise error
        self.n_skipped += 1
        if len(self.skipped) < MOST_MESSAGES:
            self.skipped.append(str(error))
