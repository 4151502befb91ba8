"""A line of text that changes: rewritten in a terminal, written again elsewhere."""

import multiprocessing
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple, TextIO

_CLEAR_TO_END = "\x1b[J"


class Field(NamedTuple):
    """A part of a line; where there is no room for all, the least important go."""

    text: str
    importance: int


def fitted(fields: Sequence[Field], width: int) -> str:
    """As many fields as have room, the important ones first.

    Examples
    --------
    >>> fitted([Field("round 3", 2), Field("planes 7", 1), Field("gap 0.1", 3)], width=20)
    'round 3  gap 0.1'
    """
    left = [field for field in fields if field.text]
    while len(left) > 1 and len(_joined(left)) > width:
        left.remove(min(left, key=lambda field: field.importance))
    return _joined(left)[:width]


def _joined(fields: Sequence[Field]) -> str:
    return "  ".join(field.text for field in fields)


class LiveLine:
    """Writes a line to a stream, and again when it has changed.

    In a terminal it is rewritten in place and never wraps. In a file, a notebook, a terminal that
    cannot move its cursor, or a process that shares its terminal with others, each text is a line
    of its own.

    Parameters
    ----------
    stream : file, default=None
        None means standard error; in a notebook, which shows that as something to worry about,
        standard output.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        if stream is None:
            stream = sys.stdout if _in_notebook() else sys.stderr
        self.stream = stream
        self.in_place = (
            stream.isatty()
            and os.environ.get("TERM") != "dumb"
            and not _in_notebook()
            and multiprocessing.current_process().name == "MainProcess"
        )
        self._is_open = False

    def show(self, fields: Sequence[Field]) -> None:
        """Write the line, or rewrite it."""
        if not self.in_place:
            self._write(_joined([field for field in fields if field.text]) + "\n")
            return
        # In the last column some terminals wrap. Where the terminal has become narrower, the line
        # may have been wrapped already; what is below the cursor is cleared, and nothing above,
        # since terminals differ in where the cursor is then.
        self._write("\r" + fitted(fields, self._width() - 1) + _CLEAR_TO_END)
        self._is_open = True

    def end(self) -> None:
        """Leave the line on the screen and go to the next."""
        if self._is_open:
            self._is_open = False
            self._write("\n")

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()

    def _width(self) -> int:
        try:
            columns = os.get_terminal_size(self.stream.fileno()).columns
        except (OSError, ValueError):  # says it is a terminal, but has no size
            columns = 0
        return max(columns, 2) if columns else 80


def _in_notebook() -> bool:
    """Whether a Jupyter kernel runs this."""
    shell = sys.modules.get("IPython")
    return shell is not None and hasattr(shell.get_ipython(), "kernel")
