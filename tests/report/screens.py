"""What a terminal shows of the text that a program has written to it."""

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time


class Screen:
    """Understands what a progress line uses: new lines, returns, going up, and erasing a line."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.rows: list[str] = [""]
        self.at = 0  # the column of the cursor, which is always in the last row

    def feed(self, text: str) -> "Screen":
        text = text.replace("\r\n", "\n")
        while text:
            if text.startswith("\x1b[2K"):
                self.rows[-1], text = "", text[4:]
                continue
            if text.startswith("\x1b[1A"):
                assert self.rows.pop() == ""
                text = text[4:]
                continue
            first, text = text[0], text[1:]
            assert first != "\x1b", f"another escape sequence: {text[:10]!r}"
            if first == "\n":
                self.rows.append("")
                self.at = 0
            elif first == "\r":
                self.at = 0
            else:
                if self.at == self.width:  # it wraps
                    self.rows.append("")
                    self.at = 0
                row = self.rows[-1].ljust(self.at)
                self.rows[-1] = row[: self.at] + first + row[self.at + 1 :]
                self.at += 1
        return self


def run_in_terminal(program, width, *, interrupt_at=None, env=None, timeout=60.0):
    """Run a Python program in a pseudo-terminal.

    Returns its text and exit code. `interrupt_at`: Ctrl-C is pressed when this text has been seen.
    """
    pid, master = pty.fork()
    if pid == 0:
        os.environ.update(env or {"TERM": "xterm"})
        prelude = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        os.execv(sys.executable, [sys.executable, "-c", prelude + program])
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    text, ends = "", time.monotonic() + timeout
    try:
        while time.monotonic() < ends:
            if not select.select([master], [], [], 0.1)[0]:
                continue
            try:
                text += os.read(master, 65536).decode()
            except OSError:  # the program has ended
                break
            if interrupt_at is not None and interrupt_at in text:
                interrupt_at = None
                os.write(master, b"\x03")
        else:
            os.kill(pid, signal.SIGKILL)
            raise TimeoutError(f"The program did not end; it wrote {text!r}")
    finally:
        _, status = os.waitpid(pid, 0)
        os.close(master)
    return text, os.waitstatus_to_exitcode(status)
