"""Binary SVM within 1e-3 of the optimum: 1.5 times as fast as LIBLINEAR."""

from functools import partial

from benchmarks.common import run
from benchmarks.race import BINARY, ONE, against_liblinear, race_parser

measure = partial(against_liblinear, formulation=BINARY, bars={ONE: 1.5})

if __name__ == "__main__":
    run(race_parser(__doc__, ("a9a",), repeats=20), measure)
