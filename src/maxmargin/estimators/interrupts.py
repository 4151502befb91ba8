"""What Ctrl-C does to a fit that keeps checkpoints."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def first_interrupt_sets(cancelled: threading.Event) -> Iterator[None]:
    """Let the first Ctrl-C set `cancelled`, so that the round under way is ended and kept.

    The second one comes at once. Where somebody else handles Ctrl-C, or this is not the main
    thread, nothing changes.
    """
    usual = signal.default_int_handler
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not usual:
        yield
        return

    def cancel(number: int, frame: Any) -> None:
        signal.signal(signal.SIGINT, usual)
        cancelled.set()

    signal.signal(signal.SIGINT, cancel)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
