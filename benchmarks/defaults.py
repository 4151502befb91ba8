"""Defaults: a first fit is accurate and quick, in every structure and beside sklearn-crfsuite.

Every structured estimator is fitted to a part of a training set, for several C and tolerances, and
scored on another part of it; test data are not looked at. Scores are shares of right outputs, F1,
average precision or what the loss is about; each is compared with the best score of its set in the
whole grid. Times are CPU seconds of one thread, as shares of those of `C=1, tol=1e-3`. A fit that
exceeds a limit is stopped and counts with the score and the time that it has then; so do tighter
tolerances with the same C. Means over sets: of differences of scores in points, of the relative
increase of what a score lacks to one, geometric of times. Asked for: defaults of the library that
lose at most a point on average and take at most a third of the time.

Then CoNLL-2000 chunking, four fifths of the training sentences to fit and one to score, beside
python-crfsuite as `sklearn_crfsuite.CRF()` calls it (L-BFGS, c1 = 0, c2 = 1, until it converges),
each training in a process of its own, from feature dictionaries: those of the claim `chunking`, and
those of the tutorial of sklearn-crfsuite. Asked for: a higher F1 in less time.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import child, parser, run, say, timed
from benchmarks.reporting import Bars, Panel, Report, Row
from benchmarks.tagger_peers import KNOBS, LBFGS, OURS, Clock, Task, installed, missing, train

CS = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0)
TOLERANCES = (0.3, 0.1, 0.03, 0.01, 1e-3)
REFERENCE = 1.0, 1e-3
"""The C and the tolerance with whose times others are compared."""

LIMIT = 8.0
"""Seconds of a fit."""

MOST_POINTS, MOST_TIME = 1.0, 1.0 / 3.0
"""What the defaults may lose, and take."""

UNLIMITED = 2**31 - 1
"""python-crfsuite's default number of iterations."""

FIRST_FITS = ((0.1, 0.1), (0.1, 0.03), (0.3, 0.1), (0.3, 0.03), (1.0, 0.1), (1.0, 0.03))
"""Values of C and tol beside the library's own in the comparison with crfsuite."""

Setting = tuple[float, float]
"""C and tol."""


# The grid


@dataclass(frozen=True)
class Fit:
    """What came out of a fit; `stopped` if the limit ended it, or a looser one with this C."""

    study: str
    C: float
    tol: float
    score: float
    train_score: float
    cpu_seconds: float
    oracle_calls: int
    gap: float
    primal: float
    dual: float
    stopped: bool

    @property
    def setting(self) -> Setting:
        """C and tol."""
        return self.C, self.tol

    @property
    def lacks(self) -> float:
        """What the score lacks to one; below a thousandth differences are not seen."""
        return max(1.0 - self.score, 1e-3)


def grid(study: Any, Cs: Sequence[float], tols: Sequence[float], limit: float) -> Iterator[Fit]:
    """Fits of all C, from loose to tight."""
    for C in Cs:
        last: Fit | None = None
        for tol in tols:
            if last is not None and last.stopped:
                yield Fit(**asdict(last) | {"tol": tol})
                continue
            done = timed(partial(study.fitted, C=C, tol=tol, time_limit=limit))
            model = done.answer
            score, train_score = study.scores(model)
            found = model.certificate_
            last = Fit(
                study.name,
                C,
                tol,
                score,
                train_score,
                done.cpu_seconds,
                model.history_[-1].oracle_calls,
                found.relative_gap,
                found.primal,
                found.dual,
                stopped=model.status_ == "time_limit",
            )
            say(str(asdict(last)))
            yield last


def of_setting(fits: Sequence[Fit], setting: Setting) -> dict[str, Fit]:
    """The fits with these values, by study."""
    return {one.study: one for one in fits if one.setting == setting}


def best_of_each(fits: Sequence[Fit]) -> dict[str, Fit]:
    """The fit of the best score of each study."""
    best: dict[str, Fit] = {}
    for one in fits:
        if one.study not in best or one.score > best[one.study].score:
            best[one.study] = one
    return best


def geometric(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


@dataclass(frozen=True)
class Summary:
    """What a setting loses to the best of each study, and takes, in the mean."""

    setting: Setting
    points: float
    worst: float
    worst_study: str
    relative: float
    time: float
    stopped: int

    def __str__(self) -> str:
        stopped = f"; {self.stopped} stopped" if self.stopped else ""
        return (
            f"{self.points:.2f} points below the best (at most {self.worst:.1f}: "
            f"{self.worst_study}), lacks {self.relative:+.1%}, {self.time:.3f} of the time{stopped}"
        )


def summary(fits: Sequence[Fit], setting: Setting) -> Summary:
    """One setting over all studies."""
    best, here, reference = (
        best_of_each(fits),
        of_setting(fits, setting),
        of_setting(fits, REFERENCE),
    )
    points = {name: 100 * (best[name].score - one.score) for name, one in here.items()}
    worst = max(points, key=points.__getitem__)
    return Summary(
        setting,
        float(np.mean(list(points.values()))),
        points[worst],
        worst,
        geometric([one.lacks / best[name].lacks for name, one in here.items()]) - 1.0,
        geometric([one.cpu_seconds / reference[name].cpu_seconds for name, one in here.items()]),
        sum(one.stopped for one in here.values()),
    )


def own_defaults() -> Setting:
    """The library's, of the taggers."""
    from maxmargin import SequenceTagger

    tagger = SequenceTagger()
    assert isinstance(tagger.tol, float)
    return tagger.C, tagger.tol


def grid_rows(fits: Sequence[Fit], settings: Sequence[Setting], own: Setting) -> list[Row]:
    """The library's defaults with a bar, and every other setting."""
    rows: list[Row] = []
    for setting in settings:
        C, tol = setting
        found = summary(fits, setting)
        what = f"C = {C:g}, tol = {tol:g}"
        if setting == own:
            met = found.points <= MOST_POINTS and found.time <= MOST_TIME
            bar = f"<= {MOST_POINTS:g} points, {MOST_TIME:.2f} of the time"
            rows.insert(0, Row(f"defaults: {what}", bar, str(found), met=met))
        else:
            rows.append(Row(what, "", str(found)))
    return rows


# What is separable


@dataclass(frozen=True)
class Waste:
    """A study and C whose training outputs are all right long before the tightest tolerance."""

    study: str
    C: float
    first: float
    """The loosest tolerance with which they are."""
    time: float
    """How many times as long the tightest takes, at least."""
    points: float
    """What the tightest gains on the part held out."""
    optimum: float
    """Of the objective of zero weights, at most."""
    gap: float
    """At the first tolerance, of the objective of zero weights."""


def wastes(fits: Sequence[Fit], at_zero: dict[str, float], right: float = 1.0) -> list[Waste]:
    """Those among all studies and C."""
    found = []
    for key in dict.fromkeys((one.study, one.C) for one in fits):
        mine = [one for one in fits if (one.study, one.C) == key]
        first = next((one for one in mine if one.train_score >= right), None)
        if first is None:
            continue
        last, zero = mine[-1], key[1] * at_zero[key[0]]
        found.append(
            Waste(
                *key,
                first.tol,
                last.cpu_seconds / first.cpu_seconds,
                100 * (last.score - first.score),
                last.primal / zero,
                (first.primal - first.dual) / zero,
            )
        )
    return found


def waste_notes(found: Sequence[Waste], fits: Sequence[Fit]) -> list[str]:
    """How often and how much."""
    pairs = len(dict.fromkeys((one.study, one.C) for one in fits))
    long = [one for one in found if one.time >= 3.0]
    text = (
        f"Of {pairs} pairs of a set and a C, {len(found)} have all training outputs right at some "
        f"tolerance; in {len(long)} of these the tightest takes at least three times as long as "
        "the first that gets them right."
    )
    if long:
        worst = max(long, key=lambda one: one.time)
        gains = [one.points for one in long]
        text += (
            f" The longest is {worst.study} at C = {worst.C:g}, {worst.time:.0f} times as long, "
            f"where the optimum is {worst.optimum:.1%} of the objective of zero weights. What the "
            f"tightest gains on the parts held out is {np.mean(gains):+.2f} points in the mean, "
            f"{min(gains):+.2f} to {max(gains):+.2f}."
        )
    return [text]


# Beside crfsuite


def work(who: str, C: float, setting: float, kind: str, file: str) -> dict[str, Any]:
    """Make dictionaries, train, tag, count; inside a process of its own."""
    from benchmarks.chunking import f1, features
    from benchmarks.defaults_data import tutorial_features

    make: Callable[[Any], Any] = tutorial_features if kind == "tutorial" else features
    (X, y), (X_held_out, y_held_out) = (
        ([make(one) for one in part], [[token[2] for token in one] for one in part])
        for part in json.loads(Path(file).read_text())
    )
    clock = Clock()
    found = train(who, setting, Task(X, y, X_held_out, C), clock)
    return {
        "who": who,
        "C": C,
        KNOBS[who]: setting,
        "f1": f1(y_held_out, found.tags),
        "seconds": clock.seconds["train"],
        "cpu_seconds": clock.cpu_seconds["train"],
    }


def first_fits(own: Setting, options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """Ours and crfsuite on the same sentences, for either kind of features."""
    from benchmarks.sequences import corpus

    sentences = corpus("conll2000", options.quick).train
    order = np.random.RandomState(0).permutation(len(sentences))
    n = 4 * len(sentences) // 5
    contents = [[sentences[i] for i in chosen] for chosen in (order[:n], order[n:])]
    others = [setting for setting in FIRST_FITS if setting != own]
    ours = [own, *(others[:1] if options.quick else others)]
    calls: list[tuple[str, float, float]] = [(OURS, C, tol) for C, tol in ours]
    if installed(LBFGS):
        calls.insert(1, (LBFGS, 0.0, UNLIMITED))
    found: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "sentences.json")
        file.write_text(json.dumps(contents))
        for kind in ("chunking", "tutorial"):
            found[kind] = []
            for call in calls:
                arguments = [*map(str, call), kind, str(file)]
                one = child(["-m", "benchmarks.defaults", "--child", *arguments])
                say(f"{kind} features, {one}")
                found[kind].append(one)
    return found


def first_rows(found: dict[str, list[dict[str, Any]]]) -> list[Row]:
    """The library's own defaults with a bar, the others without."""
    rows: list[Row] = []
    for kind, (own, *rest) in found.items():
        theirs = next((one for one in rest if one["who"] == LBFGS), None)
        peer = missing(LBFGS) if theirs is None else f"{LBFGS}: {_first(theirs)}"
        for one in (own, *rest):
            if one["who"] == LBFGS:
                continue
            what = f"{kind} features, C = {one['C']:g}, tol = {one['tol']:g}"
            if one is not own:
                rows.append(Row(what, "", _first(one), peer))
                continue
            met = None if theirs is None else wins(one, theirs)
            rows.append(Row(f"defaults, {what}", "F1 higher, time less", _first(one), peer, met))
    return rows


def wins(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Whether both figures are better."""
    return bool(ours["f1"] > theirs["f1"] and ours["cpu_seconds"] < theirs["cpu_seconds"])


def _first(one: dict[str, Any]) -> str:
    return f"F1 {one['f1']:.4f} in {one['cpu_seconds']:.3g} s"


# All of it


def measure(options: argparse.Namespace) -> Report:
    from benchmarks.defaults_data import study

    own = own_defaults()
    Cs, tols = ((0.1, 1.0), (0.1, 1e-3)) if options.quick else (CS, TOLERANCES)
    Cs = tuple(sorted({*Cs, own[0]}))
    tols = tuple(sorted({*tols, own[1]}, reverse=True))
    settings = [(C, tol) for C in Cs for tol in tols]
    fits: list[Fit] = []
    at_zero: dict[str, float] = {}
    left_out = []
    for name in options.data:
        one = study(name, options.quick)
        if one is None:
            say(f"{name} is not there")
            left_out.append(name)
            continue
        at_zero[name] = one.loss_at_zero()
        one.fitted(C=0.1, tol=1e-3, max_iter=3)  # compiles, or loads what is compiled
        mine = list(grid(one, Cs, tols, options.limit))
        fits += mine
        best = best_of_each(mine)[name]
        say(
            f"{name}: best {best.score:.4f} at C = {best.C:g}, tol = {best.tol:g}; "
            f"{sum(each.cpu_seconds for each in mine):.0f} s"
        )
    if not fits:
        raise SystemExit("None of the data sets is there: set MAXMARGIN_DATA to their folder.")
    report = Report(rows=grid_rows(fits, settings, own))
    found = wastes(fits, at_zero)
    report.notes = waste_notes(found, fits) + sets_notes(fits, own, left_out)
    beside = {} if options.no_peer else first_fits(own, options)
    report.rows += first_rows(beside)
    report.panels = panels(fits, settings, beside)
    report.details = {
        "fits": [asdict(one) for one in fits],
        "at zero": at_zero,
        "separable": [asdict(one) for one in found],
        "beside crfsuite": beside,
    }
    return report


def sets_notes(fits: Sequence[Fit], own: Setting, left_out: Sequence[str]) -> list[str]:
    """The best of each set, and what the defaults lose to it."""
    here = of_setting(fits, own)
    each = "; ".join(
        f"{name} {best.score:.4f} (C = {best.C:g}, tol = {best.tol:g}), "
        f"{100 * (here[name].score - best.score):+.2f}"
        for name, best in best_of_each(fits).items()
    )
    notes = [f"The best score of each set, and what the defaults are above it in points: {each}."]
    stopped = sum(one.stopped for one in fits)
    if stopped:
        notes.append(f"Of {len(fits)} fits {stopped} were stopped by the limit, or left out.")
    if left_out:
        notes.append(f"Not there: {', '.join(left_out)}.")
    return notes


def panels(
    fits: Sequence[Fit], settings: Sequence[Setting], beside: dict[str, list[dict[str, Any]]]
) -> dict[str, Panel | Bars]:
    """Points lost against time, a curve for each C; and F1 and time beside crfsuite."""
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for setting in settings:
        found = summary(fits, setting)
        times, points = curves.setdefault(f"C = {setting[0]:g}", ([], []))
        times.append(found.time)
        points.append(found.points)
    result: dict[str, Panel | Bars] = {
        "Points below the best, from tol = 0.3 to 0.001": Panel(
            curves, "time, of that of C = 1, tol = 0.001", "points", ("log", "linear")
        )
    }
    for kind, found_here in beside.items():
        heights = {
            one["who"] if one["who"] == LBFGS else f"{one['C']:g}, {one['tol']:g}": {
                "CPU": one["cpu_seconds"]
            }
            for one in found_here
        }
        result[f"Training, {kind} features (C, tol)"] = Bars(heights, "CPU seconds", "log")
    return result


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        who, C, setting, kind, file = sys.argv[2:]
        print(json.dumps(work(who, float(C), float(setting), kind, file)))
    else:
        from benchmarks.defaults_data import STUDIES

        arguments = parser(__doc__, list(STUDIES))
        arguments.add_argument("--limit", type=float, default=LIMIT, help="seconds for each fit")
        arguments.add_argument("--no-peer", action="store_true", help="only our own")
        run(arguments, measure)
