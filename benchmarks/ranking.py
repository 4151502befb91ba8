"""OHSUMED: the published MAP and NDCG@10 of RankSVM and SVM-MAP or better, on LETOR's folds.

LETOR 3.0, query-level normalised: 106 queries, 16,140 documents, 45 features. `Ranker` trains for
pairs, mean average precision, NDCG, ROC area and precision. Each of five folds trains on three
parts for a range of C, keeps the C of the best MAP on the validation part (the rule of LETOR's
baselines), and tests on the last part; figures are means over the folds, counted as LETOR's
evaluation tool does. The figures of RankSVM and SVM-MAP are quoted from the baselines published
with LETOR 3.0, not measured here. CPU seconds are of all fits of all folds, each from where the
last C ended.
"""

import argparse
import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from benchmarks.common import parser, run, say, timed
from benchmarks.reporting import Bars, Quote, Report, Row
from maxmargin.structures.ranking.estimator import Ranker
from maxmargin.structures.ranking.formats import read_letor
from maxmargin.structures.ranking.predictor import query_rows
from maxmargin.structures.ranking.problem import average_precision, ndcg

N_FEATURES = 45
CS = (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0)
LOSSES: dict[str, dict[str, Any]] = {
    "pairwise": {"loss": "pairwise"},
    "map": {"loss": "map"},
    "ndcg": {"loss": "ndcg"},
    "auc": {"loss": "auc"},
    "ndcg, k = 10": {"loss": "ndcg", "k": 10},
    "precision@k, k = 10": {"loss": "precision@k", "k": 10},
}


class Figures(NamedTuple):
    """Mean average precision and NDCG@10."""

    average_precision: float
    ndcg: float


PUBLISHED = {
    "pairwise": ("RankSVM", Figures(0.4334, 0.4140)),
    "map": ("SVM-MAP", Figures(0.4453, 0.4319)),
}


class Queries(NamedTuple):
    """Documents, their relevance and their queries."""

    X: Any
    y: Any
    groups: Any


def parts(quick: bool) -> list[Queries]:
    """The five parts of OHSUMED, or random ones."""
    if quick:
        return [_random(seed) for seed in range(5)]
    folder = Path(os.environ.get("MAXMARGIN_DATA", "")) / "letor-ohsumed"
    if not folder.is_dir():
        raise SystemExit("MAXMARGIN_DATA names no folder with letor-ohsumed: nothing to measure")
    return [Queries(*read_letor(folder / f"S{i}.txt.xz", N_FEATURES)) for i in range(1, 6)]


def _random(seed: int) -> Queries:
    random = np.random.default_rng(seed)
    X = random.normal(size=(60, N_FEATURES))
    y = np.digitize(X[:, 0] + random.normal(size=60), [0.5, 1.5]).astype(float)
    return Queries(sp.csr_array(X), y, 10 * seed + np.arange(60) // 20)


def together(some: list[Queries]) -> Queries:
    return Queries(
        sp.vstack([part.X for part in some], format="csr"),
        np.concatenate([part.y for part in some]),
        np.concatenate([part.groups for part in some]),
    )


def figures(model: Ranker, data: Queries) -> Figures:
    scores = model.predict(data.X)
    queries = query_rows(data.groups, len(scores))
    of_each = [
        (average_precision(data.y[rows], scores[rows]), ndcg(data.y[rows], scores[rows], 10))
        for rows in queries
    ]
    return Figures(*np.mean(of_each, axis=0).tolist())


class Fold(NamedTuple):
    """The test figures of one fold, at the chosen C, and what all fits took."""

    test: Figures
    C: float
    cpu_seconds: list[float]
    gaps: list[float]


def fold(data: list[Queries], first: int, options: dict[str, Any]) -> Fold:
    train = together([data[(first + i) % 5] for i in range(3)])
    validation, test = data[(first + 3) % 5], data[(first + 4) % 5]
    model = Ranker(warm_start=True, **{"tol": 1e-3, **options})
    best, chosen, C = -1.0, Figures(0.0, 0.0), 0.0
    seconds, gaps = [], []
    for each in CS:
        model.set_params(C=each)
        seconds.append(timed(lambda: model.fit(*train)).cpu_seconds)
        gaps.append(model.certificate_.relative_gap)
        found = figures(model, validation).average_precision
        if found > best:
            best, chosen, C = found, figures(model, test), each
    return Fold(chosen, C, seconds, gaps)


def measure(options: argparse.Namespace) -> Report:
    warnings.filterwarnings("ignore", message=".* queries are left out")
    data = parts(options.quick)
    report = Report()
    for name, settings in LOSSES.items():
        fold(data[:1] * 5, 0, settings)  # compiles, or loads what is compiled
        folds = [fold(data, first, settings) for first in range(5)]
        mean = Figures(*np.mean([each.test for each in folds], axis=0).tolist())
        seconds = sum(sum(each.cpu_seconds) for each in folds)
        gap = max(max(each.gaps) for each in folds)
        say(f"{name}: MAP {mean.average_precision:.4f}, NDCG@10 {mean.ndcg:.4f}, {seconds:.3g} s")
        who, published = PUBLISHED.get(name, ("", None))
        for what, reached, figure in zip(
            ("MAP", "NDCG@10"), mean, published or (None, None), strict=True
        ):
            title = f"{name}: {what}"
            if figure is None:
                report.rows.append(Row(title, "", f"{reached:.4f}"))
            else:
                bar, peer = f">= {who}'s", f"{figure:.4f} ({who}, LETOR 3.0)"
                report.rows.append(Row(title, bar, f"{reached:.4f}", peer, met=reached >= figure))
        all_fits = f"{seconds:.3g} s for {len(CS) * 5} fits, gaps <= {gap:.1e}"
        report.rows.append(Row(f"{name}: CPU", "", all_fits))
        report.details[name] = {
            "average": mean._asdict(),
            "folds": [each._asdict() for each in folds],
        }
        if published is not None:
            met = all(ours >= theirs for ours, theirs in zip(mean, published, strict=True))
            says = f"MAP {published.average_precision:.4f}, NDCG@10 {published.ndcg:.4f}"
            here = f"MAP {mean.average_precision:.4f}, NDCG@10 {mean.ndcg:.4f} (at least as good)"
            here = here if met else here.replace("at least as good", "not as good")
            report.quotes.append(Quote(f"LETOR 3.0, baselines: {who}", says, here, holds=met))
    report.panels = panels(report.details)
    return report


def panels(details: dict[str, Any]) -> dict[str, Any]:
    """Both figures of each loss, those of the baselines beside them, and time."""
    bars: dict[str, Any] = {}
    for title, key in (("Mean average precision", "average_precision"), ("NDCG@10", "ndcg")):
        heights = {name: {"ours": found["average"][key]} for name, found in details.items()}
        for name, (who, published) in PUBLISHED.items():
            heights[name][f"published ({who})"] = getattr(published, key)
        bars[title] = Bars(heights, "test queries")
    seconds = {
        name: {"ours": sum(sum(fold["cpu_seconds"]) for fold in found["folds"])}
        for name, found in details.items()
    }
    return bars | {f"{len(CS) * 5} fits": Bars(seconds, "CPU seconds", "log")}


if __name__ == "__main__":
    run(parser(__doc__), measure)
