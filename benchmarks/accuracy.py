"""Crammer-Singer, Weston-Watkins or one-versus-rest: test accuracy over ten random splits.

Tables 4.2 and 4.3 of Keerthi et al. (2008), on those of its data sets that can be had (see the
note on its table 1.1), and on `letter`. Training and test rows are put together and split ten
times at random, with all classes in proportion: 60 % to train on, 20 % for validation, 20 % to
test on. C is one of 0.01, 0.03, 0.1, 0.3, 1, 3 and 10, by validation accuracy; each fit starts from
the one before (to a certified relative gap of 1e-2), from the smallest C up, until two in a row are
worse than the best by half a point. Then the model is trained again on training and validation
rows to a gap of 1e-3, and tested. No intercept. The three are compared by Wilcoxon's signed-rank
test over the splits (scipy, two-sided), at the paper's level of 0.01.

By default the splits are of random parts of the data sets, so that the claim takes minutes;
`--full` takes all rows, which takes hours. With fewer rows accuracies are lower than the
paper's, and only the comparison of the three can be held against it.
"""

import argparse
import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import wilcoxon
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split

import maxmargin as mm
from benchmarks.common import CS, Data, load, parser, run, say, subsample
from benchmarks.reporting import Bars, Panel, Quote, Report, Row

REST, CRAMMER_SINGER, WESTON_WATKINS = "one-vs-rest", "crammer-singer", "weston-watkins"
FORMULATIONS = (REST, CRAMMER_SINGER, WESTON_WATKINS)

ROWS = {"20news": 6_000, "mnist": 15_000, "covtype": 30_000, "letter": 10_000}
"""Rows of each data set that are split by default."""

PAPER = {
    "20news": {REST: 85.39, CRAMMER_SINGER: 85.26, WESTON_WATKINS: 85.10},
    "mnist": {REST: 91.46, CRAMMER_SINGER: 92.50, WESTON_WATKINS: 91.84},
    "covtype": {REST: 71.35, CRAMMER_SINGER: 72.31, WESTON_WATKINS: 72.40},
}
"""Table 4.2."""

PAPER_P = {
    "20news": {CRAMMER_SINGER: 0.43, WESTON_WATKINS: 0.01},
    "mnist": {CRAMMER_SINGER: 2.0e-3, WESTON_WATKINS: 2.0e-3},
    "covtype": {CRAMMER_SINGER: 2.0e-3, WESTON_WATKINS: 2.0e-3},
}
"""Table 4.3: against one-versus-rest."""

PAPER_SHAPES = {
    "20news": "NEWS20: 19,928 rows, 62,061 features, 20 classes",
    "mnist": "MNIST: 70,000 rows, 779 features, 10 classes",
    "covtype": "COVER: 581,012 rows, 54 features, 7 classes",
}
"""Table 1.1, training and test rows together."""

LEVEL = 0.01
"""Of significance."""

CHOICE_TOLERANCE, TOLERANCE = 1e-2, 1e-3
WORSE = 0.5
"""Points of validation accuracy below the best, twice in a row, that end the search for C."""

SLACK = 0.5
"""Points by which a mean over all rows may be below the paper's."""


class Split(NamedTuple):
    """What one split gave: the C chosen, accuracies in per cent, the largest gap of a fit."""

    C: float
    accuracy: float
    scores: dict[float, float]
    relative_gap: float


def one_split(data: Data, formulation: str, seed: int) -> Split:
    """Choose C, train again, test."""
    rows = np.arange(len(data.y))
    rest, test = train_test_split(rows, test_size=0.2, stratify=data.y, random_state=seed)
    train, validation = (
        data.some(some)
        for some in train_test_split(rest, test_size=0.25, stratify=data.y[rest], random_state=seed)
    )
    model = mm.LinearClassifier(
        formulation=formulation, tol=CHOICE_TOLERANCE, fit_intercept=False, warm_start=True
    )
    scores: dict[float, float] = {}
    gaps = []
    for C in CS:
        model.set_params(C=C).fit(train.X, train.y)
        gaps.append(model.certificate_.relative_gap / CHOICE_TOLERANCE)
        scores[C] = 100 * float(model.score(validation.X, validation.y))
        if max(list(scores.values())[-2:]) < max(scores.values()) - WORSE:
            break
    chosen = max(scores, key=lambda C: scores[C])
    model.set_params(C=chosen, tol=TOLERANCE, warm_start=False).fit(data.X[rest], data.y[rest])
    gaps.append(model.certificate_.relative_gap / TOLERANCE)
    accuracy = 100 * float(model.score(data.X[test], data.y[test]))
    return Split(chosen, accuracy, scores, float(max(gaps)))


def verdict(difference: float, p: float) -> str:
    """What a test says of a formulation beside one-versus-rest."""
    if not p <= LEVEL:
        return "no difference"
    return "better" if difference > 0 else "worse"


def p_value(one: list[float], other: list[float]) -> float:
    """Of Wilcoxon's test; one where nothing differs."""
    if np.allclose(one, other):
        return 1.0
    return float(wilcoxon(one, other).pvalue)


def against_rest(
    name: str, title: str, splits: dict[str, list[Split]], report: Report
) -> dict[str, float]:
    """Table 4.3: both direct formulations beside one-versus-rest."""
    found = {}
    rest = [split.accuracy for split in splits[REST]]
    for formulation in (CRAMMER_SINGER, WESTON_WATKINS):
        direct = [split.accuracy for split in splits[formulation]]
        difference, p = float(np.mean(direct) - np.mean(rest)), p_value(direct, rest)
        found[formulation] = p
        here = verdict(difference, p)
        text = f"{here}: {difference:+.2f} points, p = {p:.2g}"
        what = f"{title}: {formulation} beside {REST}"
        if name not in PAPER:
            report.rows.append(Row(what, "", text))
            continue
        old = PAPER[name][formulation] - PAPER[name][REST]
        paper_p = PAPER_P[name][formulation]
        there = verdict(old, paper_p)
        report.rows.append(Row(what, f"{there} (the paper's)", text, met=here == there))
        report.quotes.append(
            Quote(
                "Keerthi et al. (2008), table 4.3",
                f"{title.split(',')[0]}, {formulation} beside {REST}: {there}, {old:+.2f} points, "
                f"p = {paper_p:.2g}",
                text,
                here == there,
            )
        )
    return found


def table_4_2(
    name: str, title: str, whole: bool, splits: dict[str, list[Split]], report: Report
) -> None:
    """Means and deviations beside the paper's."""
    texts = []
    for formulation, each in splits.items():
        accuracies = [split.accuracy for split in each]
        mean, deviation = float(np.mean(accuracies)), float(np.std(accuracies, ddof=1))
        Cs = ", ".join(f"{C:g}" for C in sorted({split.C for split in each}))
        unsolved = max(split.relative_gap for split in each) > 1.0
        doubt = "; not solved to the tolerance" if unsolved else ""
        paper = PAPER.get(name, {}).get(formulation)
        is_bar = whole and paper is not None
        report.rows.append(
            Row(
                f"{title}: {formulation}",
                f">= {paper - SLACK:.2f}" if whole and paper is not None else "",
                f"{mean:.2f} +- {deviation:.2f} (C = {Cs}{doubt})",
                f"paper, all rows: {paper:.2f}" if paper is not None else "",
                met=mean >= (paper or 0.0) - SLACK and not doubt if is_bar else None,
            )
        )
        texts.append(f"{formulation} {mean:.2f} +- {deviation:.2f}")
    if name in PAPER:
        means = {each: np.mean([split.accuracy for split in splits[each]]) for each in splits}
        near = all(means[each] >= PAPER[name][each] - SLACK for each in splits)
        report.quotes.append(
            Quote(
                "Keerthi et al. (2008), table 4.2",
                f"{name}: " + ", ".join(f"{k} {v:.2f}" for k, v in PAPER[name].items()),
                f"{title.split(', ')[1]}: " + ", ".join(texts),
                near if whole else None,
            )
        )


def measure_data(name: str, options: argparse.Namespace, report: Report) -> None:
    """All formulations on one data set, over the same splits."""
    every = load(name, options.quick, test_rows=True)
    data = every if options.full else subsample(every, ROWS[name])
    title = f"{data.name}, {len(data.y):,} rows"
    say(f"{title}: {options.splits} splits")
    splits = {
        formulation: [one_split(data, formulation, seed) for seed in range(options.splits)]
        for formulation in FORMULATIONS
    }
    for formulation, each in splits.items():
        say(f"{title}, {formulation}: {[round(split.accuracy, 2) for split in each]}")
    table_4_2(name, title, len(data.y) == len(every.y) and not options.quick, splits, report)
    p_values = against_rest(name, title, splits, report)
    if name in PAPER_SHAPES:
        rows, columns = every.X.shape
        here = f"{rows:,} rows, {columns:,} features, {len(np.unique(every.y))} classes"
        report.quotes.append(
            Quote("Keerthi et al. (2008), table 1.1", PAPER_SHAPES[name], f"{data.name}: {here}")
        )
    report.panels[f"{title}: test accuracy"] = Bars(
        {
            f"split {k}": {each: found[k].accuracy for each, found in splits.items()}
            for k in range(options.splits)
        },
        "per cent",
    )
    every_split = [split for each in splits.values() for split in each]
    shared = [C for C in CS if all(C in split.scores for split in every_split)]
    report.panels[f"{title}: validation accuracy"] = Panel(
        {
            each: (shared, [float(np.mean([split.scores[C] for split in found])) for C in shared])
            for each, found in splits.items()
        },
        "C",
        "per cent, mean over the splits",
        ("log", "linear"),
    )
    report.details[title] = {
        each: [_json(split) for split in found] for each, found in splits.items()
    } | {"p against one-vs-rest": p_values}


def _json(split: Split) -> dict[str, Any]:
    return {
        "C": split.C,
        "accuracy": round(split.accuracy, 4),
        "validation": {str(C): round(value, 4) for C, value in split.scores.items()},
        "gap over tolerance": round(split.relative_gap, 3),
    }


def measure(options: argparse.Namespace) -> Report:
    """All data sets."""
    if options.quick:
        options.splits, options.data = 3, ["mnist", "covtype"]
    report = Report()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the rows say it
        for name in options.data:
            measure_data(name, options, report)
    report.notes.append(
        "Of the paper's sets, SECTOR and RCV1 cannot be had freely in this form. 20 Newsgroups "
        "here is the by-date version with tf-idf features of our own, not the paper's NEWS20, and "
        "whole posts with their headers: hence the higher accuracy. MNIST and Covertype are "
        "scaled to [0, 1], and neither is normalised row by row, as in the paper."
    )
    if options.splits < 8:
        report.notes.append(
            f"With {options.splits} splits no difference can be significant at {LEVEL:g}."
        )
    return report


if __name__ == "__main__":
    arguments = parser(__doc__, tuple(ROWS))
    arguments.add_argument("--splits", type=int, default=10)
    arguments.add_argument("--full", action="store_true", help="all rows: hours")
    run(arguments, measure)
