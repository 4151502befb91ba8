"""How time grows with the data: examples, classes, length, features.

Each line of the plot varies one thing and leaves the rest alone; the exponent is the slope of a
straight line through the logarithms of size and time, beside the one that the algorithm lets
expect.

- **Examples**: Covertype (Crammer-Singer, C = 1, to a gap of 1e-3), shares of its rows. The
  iterations should not grow, so time should be linear.
- **Classes**: scores of all rows for more and more classes, which is what a sweep does: linear, in
  steps of whole vectors.
- **Labels and length of sequences**: the best labelling of random chains: the square of the number
  of labels, linear in the length. Second-order chains: the cube.
- **Length of sentences**: CKY with a grammar of fixed size: between the square, as there are spans,
  and the cube, as there are places to part them.
- **Features**: a fit of made rows with more and more features but the same number in each row:
  time depends on what a row has, not on what it could have, until the weights leave the cache.

The fastest of several runs in turns counts.
"""

import argparse
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import maxmargin as mm
from benchmarks.common import best, interleaved, load, parser, run, say, subsample
from benchmarks.kernel_cases import all_class_scores, all_viterbi, grammar_case, rows_of
from benchmarks.machine_limits import fastest
from benchmarks.reporting import Panel, Report, Row
from maxmargin.compiled.rows import make_rows, padded
from maxmargin.structures.chain.inference import viterbi2

SLACK = 0.15
"""By how much an exponent may be larger than expected."""


class Line(NamedTuple):
    """One thing that is varied.

    Parameters
    ----------
    what, size : str
        What takes time, and what is varied.
    expected : float
        Exponent of time against size.
    sizes : sequence of int
    seconds : callable
        Measures the times of all sizes.
    """

    what: str
    size: str
    expected: float
    sizes: Sequence[int]
    seconds: Callable[[Sequence[int]], list[float]]


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The slope of time against size, both as logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


# What is varied


def fits_of_shares(data: Any, repeats: int, sizes: Sequence[int]) -> list[float]:
    works = {}
    for n in sizes:
        part = subsample(data, n)
        model = mm.LinearClassifier(C=1.0, tol=1e-3, fit_intercept=False)
        works[str(n)] = partial(model.fit, part.X, part.y)
    works[str(sizes[0])]()
    return [best(runs) for runs in interleaved(works, repeats).values()]


def scores_by_classes(sizes: Sequence[int]) -> list[float]:
    rows = make_rows(rows_of(300, 500, 60), 0.0)

    def seconds(n_classes: int) -> float:
        width = padded(n_classes)
        weights, out = np.zeros((501, width)), np.zeros((300, width))
        return fastest(lambda rounds: [all_class_scores(rows, weights, out) for _ in range(rounds)])

    return [seconds(n) for n in sizes]


def chains(n_labels: int, length: int) -> float:
    width = padded(n_labels)
    random = np.random.default_rng(0)
    nodes, pairs = random.normal(size=(1, length, width)), random.normal(size=(n_labels, width))
    labels, scratch = np.zeros(length, dtype=np.int64), np.zeros((length, width))
    arguments = nodes, pairs[None], n_labels, labels, scratch
    return fastest(lambda rounds: [all_viterbi(*arguments) for _ in range(rounds)])


def second_order(n_labels: int, length: int = 8) -> float:
    width = padded(n_labels)
    random = np.random.default_rng(0)
    nodes, pairs = random.normal(size=(length, width)), random.normal(size=(n_labels, width))
    triples = random.normal(size=(n_labels**2, width))
    labels, scratch = np.zeros(length, dtype=np.int64), np.zeros((length, n_labels, width))
    arguments = nodes, pairs, triples, n_labels, labels, scratch
    return fastest(lambda rounds: [viterbi2(*arguments) for _ in range(rounds)])


def made_rows(n: int, d: int, each: int = 20) -> tuple[Any, Any]:
    """Rows with the same number of entries whatever the features, and three noisy classes."""
    X = rows_of(n, d, each)
    random = np.random.default_rng(1)
    scores = X @ random.normal(size=(d, 3))
    return X, (scores + random.normal(size=scores.shape)).argmax(axis=1)


def fits_by_features(n: int, repeats: int, sizes: Sequence[int]) -> list[float]:
    works = {}
    for d in sizes:
        X, y = made_rows(n, d)
        # The same number of rounds, or another problem would be measured for each size.
        model = mm.LinearClassifier(C=0.01, tol=1e-12, max_iter=10, fit_intercept=False)
        works[str(d)] = partial(_quiet, model.fit, X, y)
    works[str(sizes[0])]()
    return [best(runs) for runs in interleaved(works, repeats).values()]


def _quiet(train: Callable[..., Any], *data: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return train(*data)


def lines(options: argparse.Namespace) -> list[Line]:
    quick = options.quick
    data = load("covtype", quick)
    shares = [round(share * len(data.y)) for share in options.shares]
    words = (6, 8, 10) if quick else (8, 12, 16, 24)
    return [
        Line("fit of Covertype", "examples", 1.0, shares,
             partial(fits_of_shares, data, options.repeats)),
        Line("scores", "classes", 1.0, (8, 16, 32, 64, 128, 256), scores_by_classes),
        Line("Viterbi", "labels", 2.0, (8, 16, 32, 64, 128),
             lambda sizes: [chains(n, 20) for n in sizes]),
        Line("Viterbi, second order", "labels", 3.0, (8, 16, 32, 64),
             lambda sizes: [second_order(n) for n in sizes]),
        Line("Viterbi", "positions", 1.0, (8, 32, 128, 512),
             lambda sizes: [chains(26, length) for length in sizes]),
        Line("CKY", "words", 3.0, words,
             lambda sizes: [fastest(grammar_case(length).repeat) for length in sizes]),
        Line("fit of made rows", "features", 0.0,
             (100, 1_000) if quick else (100, 1_000, 10_000, 100_000),
             partial(fits_by_features, 500 if quick else 20_000, options.repeats)),
    ]  # fmt: skip


def measure(options: argparse.Namespace) -> Report:
    report = Report()
    for line in lines(options):
        seconds = line.seconds(line.sizes)
        found = exponent(line.sizes, seconds)
        name = f"{line.what} against {line.size}"
        say(f"{name}: {found:.2f}")
        report.rows.append(
            Row(
                f"{name}: {line.sizes[0]:,} to {line.sizes[-1]:,}",
                f"exponent <= {line.expected:g} + {SLACK:g}",
                f"{found:.2f} ({seconds[0]:.2g} to {seconds[-1]:.2g} s)",
                met=found <= line.expected + SLACK,
            )
        )
        report.details[name] = {"sizes": line.sizes, "seconds": seconds, "exponent": found}
        expected = [seconds[-1] * (size / line.sizes[-1]) ** line.expected for size in line.sizes]
        report.panels[name] = Panel(
            {
                f"measured: {found:.2f}": (list(line.sizes), seconds),
                f"expected: {line.expected:g}": (list(line.sizes), expected),
            },
            line.size,
            "seconds",
        )
    return report


if __name__ == "__main__":
    arguments = parser(__doc__, repeats=3)
    arguments.add_argument("--shares", type=float, nargs="+", default=[0.1, 0.3, 1.0])
    run(arguments, measure)
