"""Tries in forked children: what ends a child is blamed on the try that it was at.

A child starts with all that its parent has imported, compiled and fitted, so a try costs only
itself. It says at which try it is before it begins; if it dies, hangs or asks for too much memory,
another goes on with the next try.
"""

import json
import os
import resource
import select
import signal
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

SECONDS = 10.0
"""Of the processor that a try may take; more is a hang."""

_PATIENCE = 90.0
"""Seconds by the clock after which even a try that never ran is a hang."""

BYTES = 500 << 20
"""Of memory that a try may take."""

_TRIES_OF_A_CHILD = 500
"""Fewer make it plainer which try has spoilt the memory of a child that dies later."""


class Outcome(NamedTuple):
    """What came of a try: `what` groups tries of the same cause."""

    failed: bool
    what: str
    detail: str = ""


Attempt = Callable[[int], Iterator[str | Outcome]]
"""Takes a seed, says what it is about to do, and then what came of it."""


def in_children(attempt: Attempt, seeds: Iterable[int]) -> Iterator[tuple[int, Outcome]]:
    """The outcome of every try, whatever it does to its process."""
    left = deque(seeds)
    while left:
        some = [left.popleft() for _ in range(min(len(left), _TRIES_OF_A_CHILD))]
        done = 0
        for seed, outcome in _child(attempt, some):
            done += 1
            if outcome.what.startswith("signal") and done > 1:
                outcome = _alone(attempt, seed, outcome, some[0])
            yield seed, outcome
        left.extendleft(reversed(some[done:]))


def _alone(attempt: Attempt, seed: int, died: Outcome, first: int) -> Outcome:
    """Whether it dies alone as well; if not, one of those before it in the child is to blame."""
    ((_, again),) = _child(attempt, [seed])
    if again.what.startswith("signal"):
        return again
    return died._replace(detail=f"not alone, but after seeds {first}..{seed}; {died.detail}")


def _child(attempt: Attempt, seeds: list[int]) -> Iterator[tuple[int, Outcome]]:
    """Outcomes until all seeds are done or the child is."""
    receiver, sender = os.pipe()
    process = os.fork()
    if not process:
        os.close(receiver)
        _work(attempt, seeds, sender)  # never returns
    os.close(sender)
    at, doing, ended = seeds[0], "", None
    try:
        with os.fdopen(receiver, "rb", buffering=0) as pipe:
            for message in _messages(pipe, process):
                if message is None:
                    ended = Outcome(True, "hang", f"more than {SECONDS:g} s")
                    break
                if "at" in message:
                    at, doing = message["at"], ""
                elif "doing" in message:
                    doing = message["doing"]
                else:
                    yield at, _told(Outcome(**message), doing)
    finally:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
    if ended is None and os.WIFSIGNALED(status):
        ended = Outcome(True, f"signal {signal.Signals(os.WTERMSIG(status)).name}")
    elif ended is None and os.WEXITSTATUS(status):
        ended = Outcome(True, f"exit with {os.WEXITSTATUS(status)}")
    if ended is not None:
        yield at, _told(ended, doing)


def _told(outcome: Outcome, doing: str) -> Outcome:
    return outcome._replace(detail=" ".join(f"{doing} | {outcome.detail}".split()))


def _messages(pipe: Any, process: int) -> Iterator[dict[str, Any] | None]:
    """What a child says, until it ends; None if it takes too long to say something."""
    rest = b""
    began, used = time.monotonic(), _processor_seconds(process)
    while True:
        ready, _, _ = select.select([pipe], [], [], 1.0)
        if not ready:
            busy = _processor_seconds(process) - used > SECONDS
            if busy or time.monotonic() - began > _PATIENCE:
                yield None
                return
            continue
        read = pipe.read(1 << 16)
        if not read:
            return
        *lines, rest = (rest + read).split(b"\n")
        for line in lines:
            yield json.loads(line)
        began, used = time.monotonic(), _processor_seconds(process)


def _processor_seconds(process: int) -> float:
    try:
        with open(f"/proc/{process}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _work(attempt: Attempt, seeds: list[int], sender: int) -> None:
    """In the child: try after try, each announced before it begins."""
    code = 70
    try:
        quietly()
        limit = _memory("VmSize") + 2 * BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for seed in seeds:
            _say(sender, {"at": seed})
            _say(sender, _measured(attempt, seed, sender)._asdict())
        code = 0
    finally:
        os._exit(code)


def quietly() -> None:
    """In a child: no warnings, and nothing on the terminal."""
    warnings.simplefilter("ignore")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def _say(sender: int, message: dict[str, Any]) -> None:
    raw = json.dumps(message).encode() + b"\n"
    while raw:
        raw = raw[os.write(sender, raw) :]


def _measured(attempt: Attempt, seed: int, sender: int) -> Outcome:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the highest use of memory is to be that from now on
    before = _memory("VmRSS")
    try:
        outcome = _outcome_of(attempt(seed), sender)
    except BaseException as error:
        return foreign("the attack itself", error)
    used = _memory("VmHWM") - before
    if used > BYTES:
        return Outcome(True, "memory", f"{used >> 20} MB; {outcome.what}: {outcome.detail}")
    return outcome


def _outcome_of(steps: Iterator[str | Outcome], sender: int) -> Outcome:
    """What came of a try; what it is about to do is told before it is done."""
    for step in steps:
        if isinstance(step, Outcome):
            return step
        _say(sender, {"doing": step})
    raise RuntimeError("A try has come to nothing.")


def _memory(name: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(name))


def foreign(stage: str, error: BaseException) -> Outcome:
    """An error that nobody was promised, with the place that it came from."""
    if any(isinstance(cause, MemoryError) for cause in causes(error)):
        return Outcome(True, f"memory, {stage}", f"{error!r}"[:300])
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "maxmargin" in frame.filename] or frames
    place = f"{os.path.basename(ours[-1].filename)}:{ours[-1].name}" if ours else "?"
    return Outcome(True, f"{type(error).__name__} from {stage} at {place}", f"{error}"[:300])


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those that it was raised from or in the wake of."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def refusal(error: BaseException, stage: str) -> Outcome:
    """A refusal is one sentence, and costs no memory."""
    if any(isinstance(cause, MemoryError) for cause in causes(error)):
        return foreign(stage, error)
    text = str(error)
    if "\n" in text or len(text) >= 500 or not text.strip():
        return Outcome(True, f"no sentence from {stage}", text[:600])
    return Outcome(False, "refused", text)
