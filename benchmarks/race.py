"""Who comes first within 1e-3 of the optimum: shared by the benchmarks against linear peers.

Each contender goes through its tolerances, from loose to tight, until the objective of its weights
(valued here, by numpy, for all alike) is within `TARGET` of the optimal value. Then all of them
train again with the tolerance they need, taking turns, and the clock counts.

A race is kept as plain numbers, so that a claim can be measured data set by data set.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from typing import Any

from benchmarks.common import (
    RESULTS,
    Data,
    Timed,
    clocks,
    load,
    result_file,
    say,
    span,
    subsample,
    timed,
)
from benchmarks.contenders import (
    LIBLINEAR,
    MAKERS,
    ONE,
    TWO,
    Contender,
    missing,
    package_version,
)
from benchmarks.reporting import Bars, Panel, Report, Row, write_json
from benchmarks.tasks import (
    BINARY,
    CRAMMER_SINGER,
    ONE_VERSUS_REST,
    REGRESSION,
    WESTON_WATKINS,
    Formulation,
    Optimum,
    Task,
    check_against_clarabel,
    kept,
    optimum,
    reference_parser,
)

__all__ = [
    "BINARY",
    "CRAMMER_SINGER",
    "LIBLINEAR",
    "ONE",
    "ONE_VERSUS_REST",
    "REGRESSION",
    "TARGET",
    "TWO",
    "WESTON_WATKINS",
    "Formulation",
    "Optimum",
    "Task",
    "against_peers",
    "distance_panels",
    "measured",
    "optimum",
    "race",
    "race_parser",
    "ratio_row",
    "reference_parser",
    "speed_panels",
]

TARGET = 1e-3
SETTINGS = "settings.json"
"""Where the tolerances that contenders need are kept, beside the results."""

Found = dict[str, Any]


# The race


def race(
    task: Task, options: argparse.Namespace, names: Sequence[str], test: Data | None = None
) -> Found:
    """Time that each of the contenders takes to come within the target, as plain numbers."""
    say(task.key)
    present = [name for name in names if not missing(name)]
    for name in present:  # compiles, or loads what is compiled
        if name in (ONE, TWO):
            MAKERS[name](task.on(subsample(task.data, 100))).train(1e-3)
    reference = optimum(task, options)
    say(f"  {reference}")
    contenders = [MAKERS[name](task) for name in present]
    searches = {one.name: _search(one, task, reference, options, test) for one in contenders}
    arrived = {
        one.name: partial(one.train, searches[one.name][-1]["tolerance"])
        for one in contenders
        if searches[one.name][-1]["excess"] <= TARGET
    }
    runs = take_turns(arrived, options.repeats, options.repeat_limit)
    result: Found = {
        "data": task.data.name,
        "formulation": task.formulation.name,
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
        "optimum": asdict(reference),
        "missing": {name: missing(name) for name in names if name not in present},
        "finishes": {},
    }
    for one in contenders:
        mine, search = runs.get(one.name, []), searches[one.name]
        values = [reference.excess(task.value(one.weights(run.answer))) for run in mine]
        nearest = _nearest(search)
        result["finishes"][one.name] = {
            "version": package_version(one.name),
            "knob": one.knob,
            "setting": f"{one.knob} {nearest['tolerance']:g}",
            "excess": max(values, default=nearest["excess"]),
            **clocks(mine),
            "test": nearest.get("test"),
            "search": search,
        }
    if options.check:
        result["clarabel"] = check_against_clarabel(task)
    return result


def _nearest(search: list[Found]) -> Found:
    return min(search, key=lambda trial: trial["excess"])


def _search(
    contender: Contender,
    task: Task,
    reference: Optimum,
    options: argparse.Namespace,
    test: Data | None,
) -> list[Found]:
    """Trials from loose to tight, up to the first that is near enough.

    The same version of a contender needs the same tolerance, so they are kept on disk.
    """
    path = RESULTS / SETTINGS
    key = f"{task.key}; {contender.name} {package_version(contender.name)}"
    trials: list[Found] = kept(path).get(key, [])
    scored = test is None or all("test" in trial for trial in trials)
    if options.search == "kept" and not options.quick and trials and scored:
        return trials
    trials = []
    for tolerance in contender.tolerances[:: 3 if options.quick else 1]:
        run = timed(partial(contender.train, tolerance))
        weights = contender.weights(run.answer)
        excess = reference.excess(task.value(weights))
        at_limit = bool(contender.is_at_limit(run.answer))
        # Whoever stops the process for a while stops its own clock too.
        took = min(run.seconds, run.cpu_seconds)
        trial = {
            "tolerance": tolerance,
            "seconds": took,
            "excess": excess,
            "at_limit": at_limit,
        }
        trials.append(trial if test is None else trial | {"test": task.accuracy(weights, test)})
        say(f"  {contender.name}, {contender.knob} {tolerance:g}: {excess:.2e} {took:.3g} s")
        if excess <= TARGET or at_limit or took > options.search_limit:
            break
    if not options.quick:
        write_json(path, kept(path) | {key: trials})
    return trials


def take_turns(
    works: Mapping[str, Callable[[], Any]], repeats: int, limit: float
) -> dict[str, list[Timed]]:
    """Each work `repeats` times, in turns; after two runs one that took `limit` seconds rests."""
    results: dict[str, list[Timed]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            mine = results[name]
            if len(mine) < 2 or sum(run.seconds for run in mine) < limit:
                mine.append(timed(work))
    return results


def measured(
    claim: str,
    options: argparse.Namespace,
    tasks: Mapping[str, Callable[[], Iterator[Found]]],
) -> list[Found]:
    """Races of the data sets asked for; of the others, what the claim's last result has."""
    path = result_file(claim, options.quick)
    old = json.loads(path.read_text())["details"].get("races", []) if path.exists() else []
    found: list[Found] = []
    for name, work in tasks.items():
        if name in options.data:
            found += [one | {"of": name} for one in work()]
        else:
            found += [one for one in old if one.get("of") == name]
    return found


# What a race says


def reached(finish: Found) -> bool:
    """Whether it came within the target."""
    return bool(finish["excess"] <= TARGET and finish["seconds"])


def seconds(finish: Found) -> float:
    """Time it needs; if it never got there, time of its longest attempt, a lower bound."""
    if finish["seconds"]:
        return float(min(finish["seconds"]))
    return float(max(trial["seconds"] for trial in finish["search"]))


def shown(finish: Found) -> str:
    """Least and greatest time and the tolerance, or how near it came."""
    if reached(finish):
        return f"{span(finish['seconds'])}, {finish['setting']}"
    nearest = _nearest(finish["search"])
    why = " at its limit of iterations" if nearest["at_limit"] else ""
    return f"not reached: {nearest['excess']:.1e} after {nearest['seconds']:.3g} s{why}"


def label(found: Found) -> str:
    """The data, and how well the optimum is known if less well than it should be."""
    if found["optimum"]["status"] == "converged":
        return str(found["data"])
    return f"{found['data']} (optimum known to {found['optimum']['relative_gap']:.0e})"


def ratio_row(what: str, bar: float, found: Found, faster: str, slower: str) -> Row:
    """A row that promises `faster` to take `bar` times less time than `slower`."""
    ours, theirs = found["finishes"][faster], found["finishes"].get(slower)
    wanted = f">= {bar:g}x" if bar else ""
    if theirs is None:
        return Row(what, wanted, shown(ours), f"{slower} {found['missing'].get(slower, '')}")
    text = f"{slower} {shown(theirs)}"
    if not reached(ours):
        return Row(what, wanted, shown(ours), text, met=False if bar else None)
    ratio = seconds(theirs) / seconds(ours)
    if not reached(theirs) and ratio < 1.0:  # the longest that it was let try says little
        return Row(what, wanted, f"arrives ({shown(ours)})", text, met=True if bar else None)
    more = "" if reached(theirs) else ">= "
    met = (ratio >= bar or not reached(theirs)) if bar else None
    return Row(what, wanted, f"{more}{ratio:.2f}x ({shown(ours)})", text, met=met)


def check_rows(found: Found) -> list[Row]:
    """A row about the reference, if `--check` asked for one."""
    if "clarabel" not in found:
        return []
    what, difference = f"{found['data']}, 60 rows: optimum as clarabel's", found["clarabel"]
    return [Row(what, "<= 1e-07", f"{difference:.1e}", "clarabel", met=difference <= 1e-7)]


def distance_panels(races: Sequence[Found]) -> dict[str, Panel | Bars]:
    """How near each contender comes in what time."""
    panels: dict[str, Panel | Bars] = {}
    for found in races:
        curves = {
            name: (
                [max(trial["seconds"], 1e-5) for trial in finish["search"]],
                [max(trial["excess"], 1e-7) for trial in finish["search"]],
            )
            for name, finish in found["finishes"].items()
        }
        title = f"{found['data']}, {found['formulation']}"
        panels[title] = Panel(curves, "seconds", "objective above the optimum")
    return panels


def speed_panels(races: Sequence[Found]) -> dict[str, Panel | Bars]:
    """The same, and the time to the target."""
    heights = {
        found["data"]: {
            name: seconds(finish) for name, finish in found["finishes"].items() if reached(finish)
        }
        for found in races
    }
    bars = Bars(heights, "seconds", "log")
    return distance_panels(races) | {"Within 1e-3 of the optimum": bars}


def limit_notes(races: Sequence[Found]) -> list[str]:
    """Where a peer stops before the target, or stands still while its tolerance shrinks."""
    notes = []
    for found in races:
        for name, finish in found["finishes"].items():
            last = finish["search"][-1]
            if not reached(finish):
                why = (
                    "stops at its own limit of iterations"
                    if last["at_limit"]
                    else "comes no nearer"
                )
                notes.append(
                    f"On {found['data']} {name} {why}: {_nearest(finish['search'])['excess']:.2%} "
                    f"above the optimum after {last['seconds']:.3g} s (`{finish['setting']}`)."
                )
            for excess, some in groupby(finish["search"], key=lambda one: f"{one['excess']:.1e}"):
                same = [one["tolerance"] for one in some]
                if len(same) >= 4 and float(excess) > TARGET:
                    notes.append(
                        f"On {found['data']} {name} does not come nearer for every smaller "
                        f"`{finish['knob']}`: from {same[0]:g} to {same[-1]:g} it stays "
                        f"{float(excess):.1%} above the optimum."
                    )
    return notes


def against_peers(
    claim: str,
    options: argparse.Namespace,
    every: Sequence[str],
    formulation: Formulation,
    bars: Mapping[str, float],
    *peers: str,
    **settings: Any,
) -> Report:
    """A row for each data set and each of ours that `bars` names, against LIBLINEAR.

    The other `peers` have rows without a bar.
    """
    names = [*bars, LIBLINEAR, *peers]

    def one(name: str) -> Iterator[Found]:
        yield race(Task(load(name, options.quick), formulation, **settings), options, names)

    races = measured(claim, options, {name: partial(one, name) for name in every})
    report = Report(panels=speed_panels(races), notes=limit_notes(races), details={"races": races})
    for found in races:
        for name, bar in bars.items():
            what = f"{label(found)}, {name}"
            report.rows.append(ratio_row(what, bar, found, name, LIBLINEAR))
        for name in peers:
            what = f"{label(found)}, {ONE}"
            report.rows.append(ratio_row(what, 0.0, found, ONE, name))
        report.rows += check_rows(found)
    return report


def race_parser(
    description: str | None, data: Sequence[str], repeats: int
) -> argparse.ArgumentParser:
    """Arguments of the benchmarks that race."""
    result = reference_parser(description, data, repeats)
    result.add_argument(
        "--search-limit",
        type=float,
        default=900.0,
        metavar="SECONDS",
        help="try no tighter tolerance after a training that took this long",
    )
    result.add_argument(
        "--repeat-limit",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="train no third time what took this long in two",
    )
    result.add_argument(
        "--search",
        choices=("kept", "new"),
        default="kept",
        help="take the tolerances that were found before, or look for them anew",
    )
    result.add_argument(
        "--check", action="store_true", help="check the optimum of a few rows by clarabel"
    )
    return result
