"""What the model of clusters finds, as rows and as a plot."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.reporting import Bars, Panel, Row

TOLERANCE = 1e-2


@dataclass(frozen=True)
class Outcome:
    """A fit, simulated or real.

    `passes` counts oracle calls of all examples, the certificate's included; `busy` is the share of
    the time that workers work, `driver` that the driver does; `bytes_per_round` go and come while
    each worker makes one move.
    """

    workers: int
    seconds: float
    arrived: bool
    gap: float
    rounds: int
    tasks: int
    passes: float
    busy: float
    driver: float
    bytes_per_round: float
    real_seconds: float

    def efficiency(self, one: "Outcome") -> float:
        """Speed-up over one worker, for each worker."""
        return one.seconds / self.seconds / self.workers

    def bound_by(self, one: "Outcome") -> str:
        """What most of the lost time is lost to."""
        if not self.arrived:
            return "given up"
        if self.efficiency(one) > 0.7:
            return "-"
        if self.driver > 0.6:
            return "driver"
        more = self.passes / one.passes
        return "more passes" if more > 1.0 / self.busy else "waiting"


Curves = dict[tuple[str, str, str], list[Outcome]]
"""Outcomes for ever more workers, by oracle call, network and solver."""


def rows_of(title: str, outcomes: Sequence[Outcome]) -> Iterator[Row]:
    one = outcomes[0]
    for outcome in outcomes:
        sign = "" if outcome.arrived else "> "
        yield Row(
            f"{title}, {outcome.workers}",
            "",
            f"{sign}{outcome.seconds:.3g} s, efficiency {outcome.efficiency(one):.0%}, "
            f"{outcome.passes:.1f} passes, busy {outcome.busy:.0%}, driver {outcome.driver:.0%}, "
            f"{outcome.bytes_per_round / 1e6:.3g} MB an iteration",
            outcome.bound_by(one),
        )


def panels_of(curves: Curves, checks: Sequence[dict[str, Any]]) -> dict[str, Panel | Bars]:
    """Seconds against workers for each oracle, and what was checked; without what was given up."""
    panels: dict[str, Panel | Bars] = {}
    for kind in dict.fromkeys(kind for kind, _, _ in curves):
        drawn = {
            f"{solver}, {network}": [one for one in outcomes if one.arrived]
            for (of, network, solver), outcomes in curves.items()
            if of == kind
        }
        lines = {
            name: ([one.workers for one in there], [one.seconds for one in there])
            for name, there in drawn.items()
        }
        workers, seconds = lines["dual, data centre"]
        lines["dual, ideal"] = workers, [seconds[0] / n for n in workers]
        panels[kind] = Panel(lines, "workers", f"seconds to a gap of {TOLERANCE:g}")
    heights = {
        f"{one['kind'].rpartition(', ')[2]}, {one['measured']['workers']}": {
            what: one[what]["seconds"] for what in ("predicted", "measured")
        }
        for one in checks
    }
    panels["real workers here"] = Bars(heights, "seconds")
    return panels
