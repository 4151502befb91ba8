"""How near the hot routines come to what this machine can do.

Viterbi, forward-backward, CKY, and products with and sums of sparse rows, which is what the dual
methods do all the time. For each the work that cannot be avoided is counted, and divided by rates
that are measured in the same run, on the same core: the result is the least time any code could
take here, and half of that speed is asked for.

**Rates.** Multiply-adds, additions with a maximum, and exponentials: vectors of four in registers,
ten independent chains of them. An exponential is counted as the multiply-adds of its own series.
Bytes: streams that only read, only write, or update, over arrays as large as those that the kernel
uses again and again, so that a working set in the first or second level of the cache is compared
with that level. Places: a loop that does nothing but sum up, or add to, the numbers of a table at
the kernel's own columns, one long row of them; a load for each column and one for its number take
longer than the same bytes in a stream, and an addition waits for the one before it if both are at
the same column.

**Work**, for `n` labels, of each position after the first:

- Viterbi: `n^2 + n` additions with a maximum (the way back looks at one column); `8 n^2` bytes of
  pair scores are read.
- Forward-backward, pair scores the same everywhere: `3 n^2` multiply-adds, `n^2` exponentials for
  each sequence, `8 n^2` bytes of marginals of pairs written, `16 n^2` bytes read.
- Forward-backward, pair scores of their own at each position: `n^2` exponentials, as many additions
  with a maximum, and `2 n^2` multiply-adds.
- CKY: an addition with a maximum, and 16 bytes read, for each pair of neighbouring spans that both
  have a score for the two right-hand symbols of some rule; another, at the place of its left-hand
  symbol, for each span and each rule with such a pair. Nothing is counted for finding out where
  these are, which is the larger part of the work.
- Rows, for each entry: one multiply-add for every class; 12 bytes of value and column; of weights,
  8 bytes for every class, read, or read and written. One vector of weights: its place for each
  entry, too.

Arithmetic of several kinds adds up; bytes move meanwhile. So the limit is the longest of these; if
that is one of places, the part of the longest other one stands beside it. The kernels run on made
data of usual shapes, single thread, in turns of half a millisecond; the fastest counts.
"""

import argparse
from typing import Any

from benchmarks.common import parser, run, say
from benchmarks.kernel_cases import Case, chain_cases, grammar_case, row_cases
from benchmarks.machine_limits import OPERATIONS, STREAMS, bandwidth, fastest, rate
from benchmarks.reporting import Bars, Panel, Report, Row

BAR = 0.5

SIZES = tuple(2**k for k in range(14, 27, 2))
"""Bytes of the streams in the plot."""


def cases(quick: bool) -> list[Case]:
    """All kernels, on less data if `quick`."""
    found = [*chain_cases(), grammar_case(8 if quick else 15), *row_cases(0.02 if quick else 0.05)]
    return found[::3] if quick else found


def measure(options: argparse.Namespace) -> Report:
    seconds = 0.02 if options.quick else options.seconds
    report = Report()
    reached: dict[str, dict[str, float]] = {}
    heights: dict[str, dict[str, float]] = {}
    for case in cases(options.quick):
        limits = case.limits()
        longest, *others = sorted(limits, key=limits.__getitem__, reverse=True)
        taken = fastest(case.repeat, seconds)
        part = limits[longest] / taken
        limit = longest
        if "places" in longest:
            limit += f" ({limits[others[0]] / taken:.0%} of {others[0]})"
        say(f"{case.name}: {part:.0%} of {limit}")
        report.rows.append(Row(case.name, f">= {BAR:.0%}", f"{part:.0%}", limit, met=part >= BAR))
        reached.setdefault(case.kind, {})[case.shape] = part
        heights.setdefault(case.data, {})[case.kind] = part
        report.details[case.name] = {"seconds": taken, "limits": limits, "reached": part}
    rates: dict[str, Any] = {what: rate(what) for what in OPERATIONS}
    sizes = SIZES[:3] if options.quick else SIZES
    streams = {what: [bandwidth(what, size) / 1e9 for size in sizes] for what in STREAMS}
    report.details["rates"] = rates | {"sizes": sizes, "GB/s": streams}
    report.notes += notes(rates, streams, reached)
    report.panels["Part of the limit reached"] = Bars(
        heights, f"part of the limit (asked for: {BAR:g})"
    )
    report.panels["What the machine can move"] = Panel(
        {what: ([size / 1024 for size in sizes], values) for what, values in streams.items()},
        "kilobytes used again and again",
        "gigabytes a second",
    )
    return report


def notes(
    rates: dict[str, float], streams: dict[str, list[float]], reached: dict[str, dict[str, float]]
) -> list[str]:
    """What the numbers mean, and why some are low."""
    every = ", ".join(f"{value / 1e9:.1f} thousand million {what}" for what, value in rates.items())
    moved = ", ".join(
        f"{what} {values[0]:.0f} to {values[-1]:.0f}" for what, values in streams.items()
    )
    found = [
        f"This machine does at most {every} a second, and moves so many gigabytes a second, from "
        f"the first level of the cache to the largest arrays: {moved}.",
    ]
    if "CKY" in reached:
        part = min(reached["CKY"].values())
        found.append(
            f"CKY is far from its limit ({part:.1%}). A treebank's grammar is sparse: most spans "
            "have scores for few of its symbols, and two neighbours meet at a handful of places. "
            "Finding out which, with branches that are hard to foresee, is not counted as work "
            "that cannot be avoided."
        )
    low = [
        f"{kind}, {name} ({part:.0%})"
        for kind, group in reached.items()
        for name, part in group.items()
        if part < BAR and "one" not in kind and kind != "CKY"
    ]
    if low:
        found.append(f"Also below {BAR:.0%}: {'; '.join(low)}.")
    return found


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("--seconds", type=float, default=2.0, help="for each kernel")
    run(arguments, measure)
