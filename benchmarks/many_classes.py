"""Very many classes: 3 times LIBLINEAR's speed at 1,000, certified at 10,000 and at 100,000.

Made text with power laws for classes and words (`class_data.py`), C = 1 on the sum, no intercept.
With 1,000 classes (20,000 rows, 5,000 words) beside LIBLINEAR (`-s 4`), each with the loosest of
its tolerances at which the objective of its weights, evaluated by numpy for both alike, is within
1e-3 of the best dual value; beyond, to a certified gap of 1e-2. Dual variables and weights are then
sparse: 10,000 classes must take less than 2 GB and minutes, and 100,000 less than 16 GB.

Every fit runs in a process of its own, which makes the rows and trains on some of them first, so
that imports and compiled code do not count as time. Times are CPU seconds of the fit, certificate
included, the minimum of several in turns; LIBLINEAR's features are converted outside its clock.
Memory is the peak of the whole process, the rows and all modules included.
"""

import argparse
import json
import sys
import time
from typing import Any, NamedTuple

import numpy as np

from benchmarks.class_data import made_text
from benchmarks.common import child, parser, run, say
from benchmarks.contenders import LIBLINEAR, missing
from benchmarks.memory import peak
from benchmarks.reporting import Bars, Report, Row

CLOSE = 1e-3
OURS = "crammer-singer", "weston-watkins"
TOLERANCES = {"crammer-singer": (1e-2, 3e-3, 1e-3), LIBLINEAR: (1.0, 0.3, 0.1, 0.03, 0.01)}


class Size(NamedTuple):
    """Rows, words and classes of a set, and what a certified fit may take."""

    n: int
    d: int
    k: int
    tokens: int = 60
    minutes: float = float("inf")
    gigabytes: float = float("inf")


SIZES = {
    "thousand": Size(20_000, 5_000, 1_000),
    "ten": Size(30_000, 20_000, 10_000, minutes=10.0, gigabytes=2.0),
    "hundred": Size(200_000, 50_000, 100_000, 20, gigabytes=16.0),
}
TINY = {
    "thousand": Size(600, 300, 120),
    "ten": Size(600, 400, 150, minutes=10.0, gigabytes=2.0),
    "hundred": Size(600, 500, 200, 20, gigabytes=16.0),
}


def work(who: str, setting: str, *size: str) -> dict[str, Any]:
    """Inside the fresh process: make the rows, train, evaluate."""
    n, d, k, tokens = map(int, size)
    data = made_text(n, d, k, tokens)
    some = np.arange(min(n, 300))
    if who == LIBLINEAR:
        from benchmarks.peer import CRAMMER_SINGER, Liblinear

        peer = Liblinear(data.X, data.y)
        started = time.process_time()
        raw = peer.train(CRAMMER_SINGER, 1.0, float(setting))
        seconds, most = time.process_time() - started, peak()
        found = {"primal": objective(data, raw.weights()), "dual": 0.0, "gap": None}
    else:
        import maxmargin as mm

        model = mm.LinearClassifier(
            formulation=who, fit_intercept=False, tol=float(setting), max_iter=200
        )
        model.fit(data.X[some], data.y[some])
        started = time.process_time()
        model.fit(data.X, data.y)
        seconds, most = time.process_time() - started, peak()
        certificate = model.certificate_
        found = {"dual": certificate.dual, "gap": certificate.relative_gap}
        found["primal"] = certificate.primal
        if isinstance(model.coef_, np.ndarray) and who == "crammer-singer":
            found["primal"] = objective(data, np.ascontiguousarray(model.coef_.T))
    return found | {"seconds": seconds, "megabytes": most}


def objective(data: Any, weights: Any) -> float:
    """Crammer-Singer objective of weights of shape (n_features, n_classes), by numpy."""
    total = 0.5 * float(np.einsum("ij,ij->", weights, weights))
    for at in range(0, len(data.y), 500):
        labels = data.y[at : at + 500]
        scores = data.X[at : at + 500] @ weights
        own = scores[np.arange(len(labels)), labels]
        scores += 1.0
        scores[np.arange(len(labels)), labels] -= 1.0
        total += float((scores.max(axis=1) - own).sum())
    return total


def fit(who: str, setting: float, size: Size) -> dict[str, Any]:
    """What a fresh process that trains finds."""
    say(f"{size.k:,} classes: {who}, tolerance {setting:g}")
    numbers = map(str, size[:4])
    found: dict[str, Any] = child(
        ["-m", "benchmarks.many_classes", "--child", who, str(setting), *numbers]
    )
    return found


def loosest(who: str, size: Size, optimum: float) -> tuple[float, dict[str, Any]]:
    """The first tolerance that comes close to the optimum, or else the last."""
    for setting in TOLERANCES[who]:
        found = fit(who, setting, size)
        if found["primal"] <= (1.0 + CLOSE) * optimum:
            break
    return setting, found


def beside_liblinear(size: Size, repeats: int) -> Report:
    """Crammer-Singer, both to the same objective."""
    ours = OURS[0]
    best = fit(ours, 1e-4, size)
    absent = missing(LIBLINEAR)
    fits: dict[str, list[dict[str, Any]]] = {}
    settings = {}
    for who in [ours, *([] if absent else [LIBLINEAR])]:
        settings[who], found = loosest(who, size, best["dual"])
        fits[who] = [found]
    for _ in range(repeats - 1):
        for who, setting in settings.items():
            fits[who].append(fit(who, setting, size))
    seconds = {who: min(found["seconds"] for found in each) for who, each in fits.items()}
    megabytes = {who: max(found["megabytes"] for found in each) for who, each in fits.items()}
    above = {who: each[0]["primal"] / best["dual"] - 1.0 for who, each in fits.items()}
    name = f"{size.k:,} classes"
    reached = f"{seconds[ours]:.2f} s, {above[ours]:.1e} above the optimum"
    if absent:
        rows = [Row(f"{name}, time", ">= 3 x", reached, f"{LIBLINEAR} {absent}")]
    else:
        ratio = seconds[LIBLINEAR] / seconds[ours]
        peer = f"{seconds[LIBLINEAR]:.2f} s, {above[LIBLINEAR]:.1e} above, {LIBLINEAR}"
        text = f"{megabytes[LIBLINEAR]:.0f} MB, {LIBLINEAR}"
        mine = megabytes[ours]
        rows = [
            Row(f"{name}, time", ">= 3 x", f"{ratio:.2f} x: {reached}", peer, ratio >= 3.0),
            Row(f"{name}, peak", "< peer's", f"{mine:.0f} MB", text, mine < megabytes[LIBLINEAR]),
        ]
    return Report(rows, details={name: {"fits": fits, "settings": settings, "best": best}})


def certified(size: Size, formulation: str, tol: float) -> Report:
    """A fit to a certified gap."""
    found = fit(formulation, tol, size)
    gap, minutes, peak = found["gap"], found["seconds"] / 60.0, found["megabytes"] / 1000.0
    name = f"{size.k:,} classes, {formulation}"
    known = found["gap"] <= tol
    rows = [Row(f"{name}, certified gap", f"<= {tol:g}", f"{gap:.1e}", met=known)]
    limits = (("time", minutes, size.minutes, "min"), ("peak", peak, size.gigabytes, "GB"))
    for what, value, most, unit in limits:
        bar = f"<= {most:g} {unit}" if np.isfinite(most) else ""
        met = value <= most if bar else None
        rows.append(Row(f"{name}, {what}", bar, f"{value:.2f} {unit}", met=met))
    return Report(rows, details={name: found})


def measure(options: argparse.Namespace) -> Report:
    sizes = TINY if options.quick else SIZES
    report = Report()
    for name in options.data:
        size = sizes[name]
        if name == "thousand":
            parts = [beside_liblinear(size, options.repeats), certified(size, OURS[1], 1e-3)]
        else:
            parts = [certified(size, formulation, 1e-2) for formulation in OURS]
        for part in parts:
            report.rows += part.rows
            report.details |= part.details
    fits = {name: one.get("fits", {"ours": [one]}) for name, one in report.details.items()}
    for title, what in (("CPU seconds", "seconds"), ("Peak memory", "megabytes")):
        heights = {
            name: {who: min(found[what] for found in each) for who, each in some.items()}
            for name, some in fits.items()
        }
        report.panels[title] = Bars(heights, what, "log")
    report.notes.append(
        "Sets: "
        + "; ".join(
            f"{size.n:,} rows of about {size.tokens} words, of {size.d:,}, in {size.k:,} classes"
            for size in (sizes[name] for name in options.data)
        )
        + "."
    )
    return report


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(work(*sys.argv[2:])))
    else:
        run(parser(__doc__, tuple(SIZES), repeats=3), measure)
