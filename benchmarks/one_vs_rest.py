"""One-versus-rest within 1e-3 of the optimum: two threads 1.8 times as fast as one."""

import argparse

from benchmarks.common import run
from benchmarks.race import (
    ONE,
    ONE_VERSUS_REST,
    PEER,
    TWO,
    check_rows,
    race_parser,
    races,
    ratio_row,
)
from benchmarks.reporting import Report

BAR = 1.8


def measure(options: argparse.Namespace) -> Report:
    report = Report()
    for race in races(options, ONE_VERSUS_REST):
        one, two = race.finishes[ONE], race.finishes[TWO]
        text = f"one thread {one}; LIBLINEAR {race.finishes.get(PEER, 'not installed')}"
        what = f"{race.label}, two threads against one"
        report.rows.append(ratio_row(what, BAR, two, one, text))
        report.rows += check_rows(race.task, options)
        report.details[race.task.key] = race.as_json()
    return report


if __name__ == "__main__":
    run(race_parser(__doc__, ("mnist", "covtype", "20news"), repeats=3), measure)
