"""1-slack cutting planes against a decomposition method: two classes.

Table 2 of Joachims et al. (2009) compares 1-slack without a cache with SVM-light on two classes.
SVM-light cannot be installed, so LIBSVM (scikit-learn's `SVC` with a linear kernel) stands for the
decomposition methods here. Data: a9a; Covertype, its first class against the others; 20
Newsgroups, the five groups about computers against the others. C = 1 on the sum, no cache, one
thread, to a certified relative gap of 1e-3; LIBSVM with its default tolerance, also 1e-3, though
of another measure. It has an intercept and 1-slack has none, as in the paper. Seconds are CPU
seconds of whole fits, in turns; the least counts, and above 10,000 rows there is one. Sizes are
random parts of the training rows. Our own default for such problems, `LinearClassifier`, runs
beside them.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.svm import SVC

import maxmargin as mm
from benchmarks.common import (
    Data,
    Timed,
    clocks,
    interleaved,
    parser,
    run,
    say,
    span,
    subsample,
)
from benchmarks.cutting_plane_problems import PAPER, exponent, listed, train_and_test
from benchmarks.reporting import Panel, Quote, Report, Row
from benchmarks.sequences import as_chains, error, fit

ONE, LIBSVM, DEFAULT = "1-slack", "LIBSVM", "LinearClassifier"
C = 1.0
TOLERANCE = 1e-3
ONCE_ABOVE = 10_000
"""Rows above which each trains only once: LIBSVM takes a minute there."""

COMPUTERS = (1, 2, 3, 4, 5)
"""Numbers of the groups about computers."""


class Theirs(NamedTuple):
    """A line of the paper's table: rows, seconds and support vectors of 1-slack and SVM-light."""

    data: str
    n: int
    seconds: tuple[float, float]
    vectors: tuple[int, int]


TABLE = (
    Theirs("Reuters CCAT", 804_414, (58.0, 20_075.5), (8, 230_388)),
    Theirs("Reuters C11", 804_414, (71.3, 5_187.4), (6, 60_748)),
    Theirs("ArXiv Astro-ph", 62_369, (4.4, 80.1), (9, 11_318)),
    Theirs("Covertype 1", 522_911, (53.4, 25_514.3), (27, 279_092)),
    Theirs("KDD04 Physics", 150_000, (9.2, 1_040.2), (13, 99_123)),
)
NEAREST = {"a9a": TABLE[4], "covtype": TABLE[3], "20news": TABLE[2]}
"""The line of the table that is most like our data."""


def two_classes(name: str, quick: bool) -> tuple[Data, Data]:
    """Training and test rows, with zero and one for classes."""

    def binary(data: Data) -> Data:
        positive = {
            "a9a": data.y == data.y.max(),
            "covtype": data.y == data.y.min(),
            "20news": np.isin(data.y, COMPUTERS),
        }[name]
        return data._replace(y=positive.astype(np.int64))

    train, test = map(binary, train_and_test(name, quick))
    return train, test


def one_slack(data: Data) -> Any:
    """Two outputs with weights of their own: half the C makes the objective that of one vector."""
    return fit(
        as_chains(data),
        C=C / 2,
        tol=TOLERANCE,
        solver=mm.OneSlack(cache=0),
        fit_intercept=False,
        fit_ends=False,
        max_iter=10**6,
    )


def libsvm(data: Data) -> SVC:
    return SVC(kernel="linear", C=C, cache_size=500).fit(data.X, data.y)


def default(data: Data) -> Any:
    return mm.LinearClassifier(C=C, fit_intercept=False, tol=TOLERANCE).fit(data.X, data.y)


def seconds(runs: Sequence[Timed]) -> list[float]:
    """Of the processor."""
    return [run.cpu_seconds for run in runs]


def at_size(data: Data, test: Data, repeats: int) -> dict[str, dict[str, Any]]:
    """All contestants on the same rows."""
    works = {ONE: one_slack, LIBSVM: libsvm, DEFAULT: default}
    runs = interleaved({who: partial(work, data) for who, work in works.items()}, repeats)
    models = {who: each[0].answer for who, each in runs.items()}
    vectors = {ONE: models[ONE].history_[-1].cuts, LIBSVM: int(models[LIBSVM].n_support_.sum())}
    scores = {
        ONE: 1.0 - error(models[ONE], as_chains(test)),
        LIBSVM: models[LIBSVM].score(test.X, test.y),
        DEFAULT: models[DEFAULT].score(test.X, test.y),
    }
    found = {
        who: clocks(each)
        | {"best": min(seconds(each)), "spread": span(seconds(each)), "score": float(scores[who])}
        | ({"vectors": vectors[who]} if who in vectors else {})
        for who, each in runs.items()
    }
    found[ONE] |= {
        "gap": models[ONE].certificate_.relative_gap,
        "rounds": models[ONE].n_iter_,
        "primal": 2.0 * models[ONE].certificate_.primal,
    }
    found[DEFAULT]["primal"] = models[DEFAULT].certificate_.primal
    say(f"{data.name}, {len(data.y)}: { ({who: one['spread'] for who, one in found.items()}) }")
    return found


def rows(name: str, n: int, found: dict[str, dict[str, Any]]) -> list[Row]:
    """Time and support vectors at one size."""
    one, other, own = found[ONE], found[LIBSVM], found[DEFAULT]
    ratio = other["best"] / one["best"]
    apart = abs(one["primal"] / own["primal"] - 1.0)
    return [
        Row(
            f"{name}, {n:,} rows, time of {ONE} / {LIBSVM}",
            "> 1x",
            f"{ratio:.2f}x ({one['spread']}, {one['rounds']} iterations, gap {one['gap']:.1e}, "
            f"accuracy {100 * one['score']:.2f} %)",
            f"{other['spread']}, accuracy {100 * other['score']:.2f} %",
            met=ratio > 1.0,
        ),
        Row(
            f"{name}, {n:,} rows, cutting planes / support vectors",
            "",
            f"{one['vectors']:,}",
            f"{other['vectors']:,}",
        ),
        Row(
            f"{name}, {n:,} rows, {DEFAULT}, time; objective apart from that of {ONE}",
            f"apart <= {2 * TOLERANCE:g}",
            f"{own['spread']}; {apart:.1e}",
            met=apart <= 2 * TOLERANCE,
        ),
    ]


def quote(name: str, sizes: Sequence[int], found: Sequence[dict[str, dict[str, Any]]]) -> Quote:
    """The nearest line of the paper's table beside ours at the largest size."""
    theirs, one, other = NEAREST[name], found[-1][ONE], found[-1][LIBSVM]
    ratio = other["best"] / one["best"]
    return Quote(
        f"{PAPER}, table 2, {theirs.data}",
        f"{theirs.n:,} rows: 1-slack {theirs.seconds[0]:g} s, SVM-light {theirs.seconds[1]:,} s "
        f"({theirs.seconds[1] / theirs.seconds[0]:.0f} times); {theirs.vectors[0]} and "
        f"{theirs.vectors[1]:,} support vectors",
        f"{name}, {sizes[-1]:,} rows: 1-slack {one['best']:.3g} s, LIBSVM {other['best']:.3g} s "
        f"({ratio:.2g} times); {one['vectors']:,} and {other['vectors']:,}",
        ratio > 1.0 and one["vectors"] < other["vectors"],
    )


def measure(options: argparse.Namespace) -> Report:
    report = Report()
    for name in options.data:
        train, test = two_classes(name, options.quick)
        wanted = (50, 100) if options.quick else options.sizes
        sizes = sorted({min(n, len(train.y)) for n in wanted})
        at_size(subsample(train, 50), test, 1)  # loads what is compiled
        found = [
            at_size(subsample(train, n), test, 1 if n > ONCE_ABOVE else options.repeats)
            for n in sizes
        ]
        for n, one in zip(sizes, found, strict=True):
            report.rows += rows(name, n, one)
        report.quotes.append(quote(name, sizes, found))
        times = {who: [one[who]["best"] for one in found] for who in (ONE, LIBSVM, DEFAULT)}
        report.panels[f"table 2: {name}"] = Panel(
            {who: (sizes, each) for who, each in times.items()}, "rows", "CPU seconds"
        )
        powers = {who: exponent(sizes, each) for who, each in times.items()}
        rounds = listed([one[ONE]["rounds"] for one in found])
        report.notes.append(
            f"{name}: from {sizes[0]:,} to {sizes[-1]:,} rows, time grows as n to the "
            f"{powers[ONE]:.2f} for 1-slack (iterations {rounds}), "
            f"{powers[LIBSVM]:.2f} for LIBSVM and {powers[DEFAULT]:.2f} for `LinearClassifier`."
        )
        report.details[name] = dict(zip(map(str, sizes), found, strict=True))
    return report


if __name__ == "__main__":
    arguments = parser(__doc__, tuple(NEAREST), repeats=2)
    arguments.add_argument("--sizes", type=int, nargs="+", default=[1000, 3000, 10_000, 30_000])
    run(arguments, measure)
