"""Measure all claims, each in a process of its own, and write the page that shows them.

Claims whose result still stands (same code, machine and versions) are left out, so that what was
stopped can be started again and goes on.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import closing
from types import FrameType

from benchmarks import page
from benchmarks.claims import claims
from benchmarks.common import parser, say
from benchmarks.progress import Progress
from benchmarks.recording import read_result, result_file
from benchmarks.runner import outcomes, why_measure
from maxmargin.data.live_line import duration

MINUTES, QUICK_MINUTES = 30.0, 3.0
"""How long one claim may take."""


def main() -> None:
    options = _options()
    if options.list:
        # End quietly when the reader does, as `head` may.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        _list(options.only)
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _as_ctrl_c)
    todo = []
    for claim in dict.fromkeys(options.only):
        if options.quick or options.anew or why_measure(claim):
            todo.append(claim)
        else:
            say(f"{claim}: up to date ({read_result(result_file(claim, False))['date']})")
    progress = Progress(todo, options.quick)
    limit = 60 * (options.limit or (QUICK_MINUTES if options.quick else MINUTES))
    at_once = min(2, os.cpu_count() or 1) if options.quick else 1
    try:
        with closing(outcomes(todo, options.quick, limit, at_once)) as stages:
            for running, outcome in stages:
                progress.show(running, outcome)
        if not options.quick:
            page.write()
    except KeyboardInterrupt:
        progress.stopped(_flags(options))
        sys.exit(130)
    sys.exit(progress.sum_up())


def _options() -> argparse.Namespace:
    known = claims()
    arguments = parser(__doc__)
    arguments.prog = "python -m benchmarks"
    arguments.add_argument(
        "--only",
        nargs="+",
        choices=known,
        default=known,
        metavar="CLAIM",
        help="these claims instead of all; --list names them",
    )
    arguments.add_argument("--anew", action="store_true", help="also what is up to date")
    arguments.add_argument("--list", action="store_true", help="only tell what is up to date")
    arguments.add_argument(
        "--limit",
        type=float,
        metavar="MINUTES",
        help=f"how long a claim may take ({MINUTES:g}; with --quick {QUICK_MINUTES:g})",
    )
    return arguments.parse_args()


def _flags(options: argparse.Namespace) -> list[str]:
    """What was asked for, but for the claims."""
    flags = [f"--{name}" for name in ("quick", "anew") if getattr(options, name)]
    return flags + (["--limit", f"{options.limit:g}"] if options.limit else [])


def _list(names: Sequence[str]) -> None:
    width = max(map(len, names))
    for claim in names:
        why = why_measure(claim)
        if not why:
            result = read_result(result_file(claim, quick=False))
            why = f"up to date: {result['date']}, took {duration(result['seconds'])}"
        print(f"{claim:{width}}  {why}")


def _as_ctrl_c(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
