"""How good the progress line's estimate of the time left is.

Fits of several solvers and data sets are recorded, and the estimate is asked at sixty moments from
a third of the time to its end. A moment at which it says that it cannot tell counts apart. Asked
for: within a factor of 2, in the median over all moments. Letters (OCR, fold 0) as chains with six
solvers; MNIST, 20 Newsgroups and Covertype with the sequential dual method.
"""

import argparse
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import maxmargin as mm
from benchmarks.common import load, parser, run, say
from benchmarks.reporting import Bars, Report, Row
from benchmarks.sequences import fit, letters
from maxmargin.core.result import Iteration
from maxmargin.report.progress import TimeLeft

FACTOR = 2.0
MOMENTS = np.linspace(1.0 / 3.0, 0.98, 60)

CHAINS = {
    "auto": (0.03, 1e-3),
    "dual-coordinate": (0.1, 1e-3),
    "frank-wolfe": (1.0, 1e-2),
    "n-slack": (0.1, 1e-2),
    "one-slack": (0.03, 3e-3),
    "partial-linearization": (0.1, 1e-2),
}
"""Lambda and tolerance for the letters."""

LINEAR = {
    "mnist": (0.3, 1e-3),
    "20news": (10.0, 1e-3),
    "covtype": (0.1, 1e-3),
}
"""C and tolerance."""


def fits(quick: bool) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What is recorded, by name."""
    words = letters("ocr", quick).train
    for solver, (strength, tol) in CHAINS.items():
        settings = {"C": 1.0 / (strength * words.n), "solver": solver, "tol": tol}
        loss = {"loss": "hamming-normalized"}
        yield f"letters, {solver}", lambda s=settings | loss: fit(words, **s)  # type: ignore[misc]
    for name, (C, tol) in LINEAR.items():
        data = load(name, quick)
        model = mm.LinearClassifier(C=C, tol=tol)
        yield f"{name}, sequential dual", lambda m=model, d=data: m.fit(d.X, d.y)  # type: ignore[misc]


def errors(history: list[Iteration], tol: float) -> NDArray[np.float64]:
    """Binary logarithms of the factors by which estimates are off; not a number where none."""
    end, rounds = history[-1].seconds, iter(history)
    estimate, found = TimeLeft(tol), []
    coming = next(rounds, None)
    for now in MOMENTS * end:
        while coming is not None and coming.seconds <= now:
            estimate.add(coming)
            coming = next(rounds, None)
        left = estimate.seconds(now)
        found.append(math.nan if left is None else math.log2(left / (end - now)))
    return np.array(found)


def summary(found: NDArray[np.float64]) -> tuple[str, float]:
    """In words, and the median factor."""
    told = np.abs(found[np.isfinite(found)])
    unknown = f"cannot tell in {np.mean(np.isnan(found)):.0%}"
    if not len(told):
        return unknown, math.inf
    factor = float(2.0 ** np.median(told))
    return f"x {factor:.2f}, within x 2 in {np.mean(told <= 1.0):.0%}, {unknown}", factor


def measure(options: argparse.Namespace) -> Report:
    report, all_found = Report(), []
    factors: dict[str, float] = {}
    for name, train in fits(options.quick):
        model = train()
        found = errors(model.history_, model.tol)
        all_found.append(found)
        text, _ = summary(found)
        text = f"{text}; {model.history_[-1].seconds:.1f} s"
        say(f"{name}: {text}")
        report.rows.append(Row(name, "", text))
        report.details[name] = [
            None if math.isnan(one) else round(one, 3) for one in found.tolist()
        ]
        factors[name] = summary(found)[1]
    text, factor = summary(np.concatenate(all_found))
    report.rows.append(Row("all", f"<= x {FACTOR:g}", text, met=factor <= FACTOR))
    told = {name: one for name, one in factors.items() if math.isfinite(one)}
    if told:
        worst = max(told, key=told.__getitem__)
        report.notes.append(
            "The estimate continues the gap's fall of the last iterations; it is worst for "
            f"{worst} (a "
            f"factor of {told[worst]:.2f}). While the gap does not fall, it says that it cannot "
            "tell."
        )
        report.panels["Factor by which the estimate is off"] = Bars(
            {name: {"median": one} for name, one in told.items()}, "median factor"
        )
    return report


if __name__ == "__main__":
    run(parser(__doc__), measure)
