"""Support vector regression within 1e-3 of the optimum: 1.5 times as fast as LIBLINEAR."""

from functools import partial

from benchmarks.common import run
from benchmarks.race import ONE, REGRESSION, against_liblinear, race_parser

measure = partial(against_liblinear, formulation=REGRESSION, bars={ONE: 1.5}, epsilon=0.1)

if __name__ == "__main__":
    run(race_parser(__doc__, ("cpu_small",), repeats=20), measure)
