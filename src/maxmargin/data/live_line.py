"""A line of text that shows progress: rewritten in a terminal, repeated elsewhere."""

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TextIO

REFRESHES_PER_SECOND = 2
"""Of a line in a terminal, whose clock moves on."""


class Field(NamedTuple):
    """A part of a line; the least important go where there is no room."""

    text: str
    importance: int


Fields = Sequence[Field]


def fitted(fields: Fields, width: int) -> str:
    """As many fields as have room, the important ones first."""
    left = [field for field in fields if field.text]
    while len(left) > 1 and len(_joined(left)) > width:
        left.remove(min(left, key=lambda field: field.importance))
    return _joined(left)[:width]


def _joined(fields: Fields) -> str:
    return "  ".join(field.text for field in fields if field.text)


class LiveLine:
    """Writes a line to a stream again when it has changed; in a terminal, rich does so in place."""

    def __init__(self, stream: TextIO | None = None) -> None:
        # A notebook shows what goes to standard error as something to worry about.
        in_notebook = _in_notebook()
        stream = stream or (sys.stdout if in_notebook else sys.stderr)
        self.stream = stream
        self.in_place = (
            stream.isatty()
            and os.environ.get("TERM") != "dumb"
            and not in_notebook
            and multiprocessing.current_process().name == "MainProcess"
        )
        self._fields: Callable[[], Fields] = tuple
        self._live: Any = None

    def show(self, fields: Fields | Callable[[], Fields]) -> None:
        """Write or rewrite the line; what a function returns is rendered again and again."""
        self._fields = fields if callable(fields) else lambda: fields
        if not self.in_place:
            self.stream.write(_joined(self._fields()) + "\n")
            self.stream.flush()
        elif self._live is None:
            self._live = _live(self, self.stream)
            self._live.start(refresh=True)
        else:
            self._live.refresh()

    def end(self, clear: bool = False) -> None:
        """Leave the line on the screen (or clear it), and go to the next."""
        if self._live is not None:
            self._live.transient = clear
            self._live.stop()
            self._live = None

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        from rich.text import Text

        # In the last column some terminals wrap.
        yield Text(fitted(self._fields(), options.max_width - 1), no_wrap=True, overflow="crop")


def _live(renderable: Any, stream: TextIO) -> Any:
    from rich.console import Console, ConsoleDimensions
    from rich.live import Live

    class Terminal(Console):
        """As wide as the terminal of its own stream."""

        @property  # type: ignore[misc]
        def size(self) -> ConsoleDimensions:
            try:
                columns, lines = os.get_terminal_size(stream.fileno())
            except (OSError, ValueError):  # says it is a terminal, but has no size
                columns, lines = 0, 0
            return ConsoleDimensions(max(columns, 2) if columns else 80, lines or 25)

        def show_cursor(self, show: bool = True) -> bool:
            return False  # a process that is killed must not leave a terminal without a cursor

    return Live(
        renderable,
        console=Terminal(file=stream, force_terminal=True, force_jupyter=False),
        refresh_per_second=REFRESHES_PER_SECOND,
        # Warnings and prints appear above the line, unless they go elsewhere.
        redirect_stdout=sys.stdout.isatty(),
        redirect_stderr=sys.stderr.isatty(),
    )


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    return shell is not None and hasattr(shell.get_ipython(), "kernel")


def short(number: float) -> str:
    """A count in at most five characters: 12.3k."""
    for sign in ("", "k", "M", "G"):
        number = float(f"{number:.3g}")
        if number < 1000.0:
            return f"{number:g}{sign}"
        number /= 1000.0
    return f"{number:.3g}T"


def duration(seconds: float) -> str:
    """Elapsed time: 3 min 20 s."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def about(seconds: float) -> str:
    """Time to go, roughly: 1.6 min."""
    for unit, size, most in (("s", 1, 60), ("min", 60, 60), ("h", 3600, 24)):
        amount = seconds / size
        digits = 2 if amount < 3 and size > 1 else 1
        rounded = float(f"{amount:.{digits}g}")
        if rounded < most:
            return f"{max(rounded, 1):g} {unit}"
    return f"{seconds / 86400:.2g} days"
