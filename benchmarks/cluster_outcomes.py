"""What the model of clusters finds, as tables and as a plot."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import ROOT, say
from benchmarks.reporting import Row


@dataclass(frozen=True)
class Outcome:
    """A fit, simulated or real.

    `passes` counts searches of all examples, the certificate's included; `busy` is the share of the
    time that workers work, `driver` that the driver does; `bytes_per_round` go and come while each
    worker makes one move.
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
"""Outcomes for ever more workers, by search, network and solver."""


def rows_of(title: str, outcomes: Sequence[Outcome]) -> Iterator[Row]:
    one = outcomes[0]
    for outcome in outcomes:
        sign = "" if outcome.arrived else "> "
        yield Row(
            f"{title}, {outcome.workers}",
            "",
            f"{sign}{outcome.seconds:.3g} s, efficiency {outcome.efficiency(one):.0%}, "
            f"{outcome.passes:.1f} passes, busy {outcome.busy:.0%}, driver {outcome.driver:.0%}, "
            f"{outcome.bytes_per_round / 1e6:.3g} MB a round",
            outcome.bound_by(one),
        )


def markdown(curves: Curves) -> str:
    """A table for the documentation: a row for each number of workers."""
    lines = []
    for key, outcomes in curves.items():
        lines += [
            f"{', '.join(key)}:",
            "",
            "| workers | seconds | efficiency | passes | workers busy | driver busy | MB a round "
            "| bound by |",
            "|--:|--:|--:|--:|--:|--:|--:|:--|",
        ]
        for one in outcomes:
            cells = (
                f"{one.workers:,}",
                f"{'' if one.arrived else '> '}{one.seconds:.3g}",
                f"{one.efficiency(outcomes[0]):.0%}" if one.arrived else "-",
                f"{one.passes:.1f}",
                f"{one.busy:.0%}",
                f"{one.driver:.0%}",
                f"{one.bytes_per_round / 1e6:.2g}",
                one.bound_by(outcomes[0]),
            )
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def draw(curves: Curves, checks: list[dict[str, Any]], path: Path) -> None:
    """Seconds against workers: a panel for each search, and one for what was checked.

    Triangles are fits that were given up there.
    """
    try:
        from matplotlib import pyplot
    except ImportError:
        say("matplotlib is not installed: no plot")
        return
    pyplot.switch_backend("agg")
    kinds = list(dict.fromkeys(kind for kind, _, _ in curves))
    figure, grid = pyplot.subplots(1, len(kinds) + 1, figsize=(12, 4), layout="tight")
    for axes, kind in zip(grid, kinds, strict=False):
        axes.set(xscale="log", yscale="log")
        for (of, network, solver), outcomes in curves.items():
            if of != kind:
                continue
            there = [outcome for outcome in outcomes if outcome.arrived]
            line = "-" if solver == "dual" else "--"
            colour = "C0" if network == "data centre" else "C1"
            points = [one.workers for one in there], [one.seconds for one in there]
            axes.plot(*points, line, color=colour, marker=".", label=f"{solver}, {network}")
            left = [outcome for outcome in outcomes if not outcome.arrived]
            points = [one.workers for one in left], [one.seconds for one in left]
            axes.plot(*points, "^", color=colour, fillstyle="none", alpha=0.5)
        of_dual = curves[kind, "data centre", "dual"]
        ideal = np.array([of_dual[0].workers, of_dual[-1].workers])
        bounds = axes.get_ylim()
        axes.plot(ideal, of_dual[0].seconds / ideal, ":", color="grey", label="ideal, dual")
        axes.set(title=kind, ylim=(0.3 * bounds[0], bounds[1]))
    for at, kind in enumerate(dict.fromkeys(one["kind"] for one in checks)):
        of_kind = [one for one in checks if one["kind"] == kind]
        for what, style in (("predicted", "-"), ("measured", "x")):
            fits = [one[what] for one in of_kind]
            points = [one["workers"] for one in fits], [one["seconds"] for one in fits]
            grid[-1].plot(*points, style, color=f"C{at + 2}", label=f"{kind}, {what}")
    grid[-1].set(title="real workers here", ylim=(0.0, None))
    for axes in grid:
        axes.set(xlabel="workers", ylabel="seconds to a gap of 1e-2")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="x-small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    pyplot.close(figure)
    say(f"written: {path.relative_to(ROOT)}")
