"""How a solve on shards ends: with a certificate, whoever is lost while it is made."""

from collections.abc import Callable, Iterator
from typing import Any

from maxmargin.engines.shards import LostShardError
from maxmargin.solvers.loop import run_loop
from maxmargin.solvers.result import Result, Status

AT_THE_END = (Status.CONVERGED, Status.RELAXED)
"""Reasons to stop that hold only for as long as the dual point that they were found with."""


def certified_on_shards(
    run: Any,
    status: Status,
    certify: Callable[[Status], Result],
    rounds: Callable[[], Iterator[None]],
) -> Result:
    """The answer of a run, certified.

    With a shard goes what it had reached. Where the run had come to its end, it must come there
    again before anybody says so.

    Parameters
    ----------
    run : Run
        With ``recover(*shards)``, which makes lost ones again and counts anew what all hold.
    status : Status
        Why it has stopped.
    certify : callable
        Values the answer and the dual point anew; a shard may be lost meanwhile.
    rounds : callable
        Improve the run, for ever.
    """
    while True:
        try:
            result = certify(status)
            holds = result.certificate.relative_gap <= run.stopping.tol
            if holds or status is not Status.CONVERGED:
                return result
            # A shard was lost since the run had closed the gap.
            run.recover()
            run.primal = result.certificate.primal
            if run.is_done:  # but for rounding
                return result
        except LostShardError as lost:
            run.recover(lost.number)
        if status in AT_THE_END:
            status = run_loop(run, rounds(), None, None)
