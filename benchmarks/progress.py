"""What somebody sees who waits for the claims: which run, for how long, and what came out."""

import shlex
import sys
import time
from collections.abc import Sequence

from benchmarks.common import say
from benchmarks.reporting import Row, count, table
from benchmarks.runner import Outcome, Run, expected_seconds
from maxmargin.data.live_line import Field, LiveLine, about, duration

IN_PLACE, IN_A_LOG = 0.5, 60.0
"""Seconds from one line of progress to the next."""


class Progress:
    """Tells on standard error what runs and what has ended.

    Parameters
    ----------
    todo : sequence of str
        Claims that are to be measured.
    quick : bool
        Whether only to show that they run.
    """

    def __init__(self, todo: Sequence[str], quick: bool) -> None:
        self._todo = todo
        self._quick = quick
        self._expected = expected_seconds(todo, quick)
        self._ended: list[Outcome] = []
        self._line = LiveLine(sys.stderr)
        self._shown: tuple[list[str], float] = ([], 0.0)

    def show(self, running: Sequence[Run], outcome: Outcome | None) -> None:
        """Rewrite the line of what runs; what has ended gets a line of its own."""
        if outcome is not None:
            self._ended.append(outcome)
            number = self._todo.index(outcome.claim) + 1
            ran = self._quick and not outcome.failure
            became = f"ran ({duration(outcome.seconds)})" if ran else outcome
            text = f"[{number} of {len(self._todo)}] {outcome.claim} {became}"
            self._line.show([Field(text, 1)])
            self._line.end()
            return  # the next may be about to start
        names = [run.claim for run in running]
        every = IN_PLACE if self._line.in_place else IN_A_LOG
        if names and (names != self._shown[0] or time.monotonic() > self._shown[1] + every):
            self._shown = (names, time.monotonic())
            self._line.show(self._fields(running))

    def _fields(self, running: Sequence[Run]) -> list[Field]:
        each = []
        for run in running:
            usual = self._expected[run.claim]
            of_what = f" of about {about(usual)}" if usual else ""
            each.append(f"{run.claim} {duration(run.seconds)}{of_what}")
        numbers = [str(self._todo.index(run.claim) + 1) for run in running]
        return [
            Field(f"[{', '.join(numbers)} of {len(self._todo)}]", 3),
            Field(", ".join(each), 4),
            Field(self._left(running), 2),
            Field(f"| {running[-1].last_line}" if self._line.in_place else "", 1),
        ]

    def _left(self, running: Sequence[Run]) -> str:
        """The time that all claims may still take, as far as the last times tell."""
        left = sum(self._expected[claim] for claim in self._rest())
        left -= sum(min(run.seconds, self._expected[run.claim]) for run in running)
        return f"about {about(left / len(running))} left" if left > 0 else "time left: ?"

    def _rest(self) -> list[str]:
        ended = {outcome.claim for outcome in self._ended}
        return [claim for claim in self._todo if claim not in ended]

    def stopped(self, flags: Sequence[str]) -> None:
        """Say what is kept and how to go on with the same flags."""
        self._line.end()
        rest = self._rest()
        again = shlex.join(["python", "-m", "benchmarks", *flags, "--only", *rest])
        say(
            f"\nStopped: measured and kept {count(len(self._ended), 'claim')}, left {len(rest)}. "
            # With --quick and --anew the same command would begin anew.
            f"To go on, {f'run: {again}' if flags else 'start the same command again.'}"
        )

    def sum_up(self) -> bool:
        """Tell every bar that was missed and every failure; whether there was a failure."""
        if self._quick:
            print(f"{count(len(self._ended), 'claim')} ran on tiny data: numbers mean nothing")
        else:
            self._sum_up_bars()
        failed = [one for one in self._ended if one.failure]
        for one in failed:
            say(f"\n{one.claim} {one.failure}. The end of what it said:\n{one.said}")
        return bool(failed)

    def _sum_up_bars(self) -> None:
        met = sum(row.met is True for one in self._ended for row in one.rows)
        missed = [
            Row(f"{one.claim}: {row.what}", row.bar, row.reached, row.peer, row.met)
            for one in self._ended
            for row in one.missed
        ]
        measured = count(len(self._ended), "claim")
        print(f"{measured} measured: {count(met, 'bar')} met, {len(missed)} missed")
        if missed:
            print(f"\n{table(missed)}")
