"""Whether anything got worse since it was last recorded.

Seconds differ from machine to machine and from hour to hour, so none are kept. Two kinds of numbers
are, in `benchmarks/over_commits/recorded.json`:

- **Counts**: oracle calls, iterations and cutting planes that small fits of each family of solvers
  need to a certified gap, on data that scikit-learn has or that are made. They depend only on
  the code; a tolerance of some per cent is for other processors, which round otherwise.
- **Ratios**: the time of each hot routine over the time that the same machine, in the same run,
  needs for the multiply-adds, maxima or bytes that the routine cannot do without (see *limits*).
  They still move by tens of per cent where others use the cores, so they are shown and not judged.

`make regressions` compares and says what got worse; `python -m benchmarks.regressions --record`
writes the present numbers down. The same numbers are in `benchmarks/over_commits/asv` for
[airspeed velocity](https://asv.readthedocs.io): `asv run --config
benchmarks/over_commits/asv.conf.json --python=same`, then `asv publish` draws them over commits.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from benchmarks.common import ROOT, load, parser, run, say
from benchmarks.grid_data import pretend_images
from benchmarks.reporting import Bars, Report, Row, write_json
from benchmarks.sequences import letters

RECORDED = ROOT / "benchmarks" / "over_commits" / "recorded.json"

TOLERANCE = 0.1
"""By how much a count may grow."""

COUNTS = ("oracle calls", "iterations", "cutting planes")
SOLVERS = ("auto", "dual-coordinate", "frank-wolfe", "n-slack", "one-slack")
GAP = 1e-2


class Fit(NamedTuple):
    """A small fit, by what family of models and which solver."""

    name: str
    train: Callable[[], Any]


def fits() -> list[Fit]:
    """All fits whose counts are recorded."""
    import maxmargin as mm

    words = letters("ocr", quick=True).train
    digits, graphs = load("mnist", quick=True), pretend_images(3).train

    def tagger(solver: str) -> Any:
        model = mm.SequenceTagger(C=0.1, tol=GAP, solver=solver)
        return model.fit(words.X, words.y, lengths=words.lengths)

    chains = [Fit(f"chains, {solver}", lambda s=solver: tagger(s)) for solver in SOLVERS]  # type: ignore[misc]
    return [
        Fit("classes", lambda: mm.LinearClassifier(tol=1e-3).fit(digits.X, digits.y)),
        Fit("two classes", lambda: mm.LinearClassifier(tol=1e-3).fit(digits.X, digits.y > 4)),
        Fit("regression", lambda: mm.LinearRegressor(tol=1e-3).fit(digits.X, digits.y)),
        *chains,
        Fit("graphs", lambda: mm.GraphLabeler(C=1e-3, tol=GAP).fit(graphs.X, graphs.y)),
    ]


@cache
def counts_of(name: str) -> dict[str, int]:
    """What a fit took."""
    (fit,) = (one for one in fits() if one.name == name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = fit.train()
    end = model.history_[-1]
    return {
        "oracle calls": end.oracle_calls,
        "iterations": model.n_iter_,
        "cutting planes": end.cuts,
    }


def all_counts() -> dict[str, int]:
    """All counts by name."""
    found: dict[str, int] = {}
    for fit in fits():
        counts = counts_of(fit.name)
        found |= {f"{fit.name}: {what}": counts[what] for what in COUNTS}
    return found


@cache
def kernels() -> dict[str, Any]:
    """The kernels whose ratios are recorded, by name."""
    from benchmarks.kernel_cases import chain_cases, grammar_case, row_cases

    every = [*chain_cases()[:3], grammar_case(12), *row_cases(0.05)]
    return {case.name: case for case in every}


def ratio_of(name: str, seconds: float = 0.3) -> float:
    """How many times as long as the machine's limit a kernel takes."""
    from benchmarks.machine_limits import fastest

    case = kernels()[name]
    ratio: float = fastest(case.repeat, seconds) / max(case.limits().values())
    return ratio


def recorded() -> dict[str, dict[str, float]]:
    """What was written down."""
    found: dict[str, dict[str, float]] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


def grown(now: float, before: float) -> float:
    """By what part a number has grown, or shrunk if negative."""
    return now / before - 1.0 if before else float(now > 0)


def worse(
    now: Mapping[str, float], before: Mapping[str, float], tolerance: float = TOLERANCE
) -> dict[str, tuple[float, float]]:
    """Numbers that have grown by more than is tolerated, with what they were."""
    return {
        name: (before[name], value)
        for name, value in now.items()
        if name in before and grown(value, before[name]) > tolerance
    }


def measure(options: argparse.Namespace) -> Report:
    counts = all_counts()
    names = list(kernels())[::4] if options.quick else list(kernels())
    ratios = {name: ratio_of(name, 0.02 if options.quick else 0.5) for name in names}
    if options.record:
        write_json(
            RECORDED, {"counts": counts, "ratios": {k: round(v, 3) for k, v in ratios.items()}}
        )
        say(f"recorded: {RECORDED.relative_to(ROOT)}")
    before = recorded()
    report = Report(details={"counts": counts, "ratios": ratios, "recorded": before})
    bad = worse(counts, before["counts"])
    for name, value in counts.items():
        old = before["counts"].get(name)
        bar = "" if old is None else f"<= {old:g} + {TOLERANCE:.0%}"
        report.rows.append(
            Row(name, bar, f"{value:g}", met=None if old is None else name not in bad)
        )
    for name, ratio in ratios.items():
        old = before["ratios"].get(name)
        was = "" if old is None else f"recorded: {old:.2f}"
        report.rows.append(Row(f"time over the limit: {name}", "", f"{ratio:.2f}", was))
    report.notes.append(sentence(bad))
    report.panels["Counts"] = now_over_recorded(
        counts, before["counts"], {name: tuple(name.split(": ")) for name in counts}
    )
    report.panels["Times over the limit"] = now_over_recorded(
        ratios, before["ratios"], {name: (case.data, case.kind) for name, case in kernels().items()}
    )
    return report


def now_over_recorded(
    now: Mapping[str, float], before: Mapping[str, float], bars: Mapping[str, tuple[str, ...]]
) -> Bars:
    """Each number relative to what was recorded; `bars` tells the group and name of its bar."""
    heights: dict[str, dict[str, float]] = {}
    for name, value in now.items():
        if name in before:
            group, bar = bars[name]
            heights.setdefault(group, {})[bar] = 1.0 + grown(value, before[name])
    return Bars(heights, "now / recorded")


def sentence(bad: Mapping[str, tuple[float, float]]) -> str:
    """What got worse, in words."""
    if not bad:
        return f"No count has grown by more than {TOLERANCE:.0%} since it was recorded."
    named = "; ".join(f"{name} from {old:g} to {new:g}" for name, (old, new) in bad.items())
    return f"Worse than recorded: {named}."


def check() -> int:
    """Compare counts and ratios with what was recorded, in words; 1 if a count got worse."""
    before = recorded()
    bad = worse(all_counts(), before["counts"])
    print(sentence(bad))
    for name in kernels():
        if name in before["ratios"]:
            ratio, old = ratio_of(name), before["ratios"][name]
            print(f"{name}: {ratio:.2f} times its limit, recorded {old:.2f}")
    return 1 if bad else 0


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("--record", action="store_true", help="write the present numbers down")
    arguments.add_argument("--check", action="store_true", help="only say what got worse")
    if "--check" in sys.argv[1:]:
        sys.exit(check())
    run(arguments, measure)
